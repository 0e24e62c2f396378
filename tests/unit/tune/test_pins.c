/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: whom they name, what they allow, what is said if nothing is left; and the limit of
 * workspaces. */
#include <string.h>

#include "engine/engine.h"
#include "engine/tune/internal.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/tune/net.h"

static struct device *device, *host;

static int set_up(void **state)
{
    struct device_options options = {.threads = 1, .reference_only = true};
    (void)state;
    device = mock_simulate();
    return (int)engine_device_open("cpu", &options, &host, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    engine_device_close(device);
    engine_device_close(host);
    return 0;
}

static void patterns(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool fits;
    } rows[] = {
        {"", "", true},         {"", "a", false},       {"*", "", true},      {"**", "ab", true},
        {"a", "a", true},       {"a", "ab", false},     {"?", "", false},     {"?b", "ab", true},
        {"a*c", "abcbc", true}, {"a*c", "abcb", false}, {"*b*", "abc", true}, {"a?*", "a", false},
        {"*aab", "aaab", true}, {"A", "a", false},      {"[a]", "[a]", true}, {"*.*", "a.b", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (tune_pattern(rows[i].pattern, rows[i].text, strlen(rows[i].text)) != rows[i].fits)
            fail_msg("'%s' and '%s'", rows[i].pattern, rows[i].text);
    assert_true(tune_pattern("ab", "abc", 2));
}

#define PIN(layer_, kind_, what_, not_)                                                            \
    {                                                                                              \
        .layer = (layer_), .kind = TUNE_PIN_##kind_, .what = (what_), .excludes = (not_),          \
        .said = "pin x"                                                                            \
    }

static void the_last_of_a_kind_counts(void **state)
{
    static const struct tune_pins pins = {
        5,
        {PIN("conv*", BACKEND, "cpu", false), PIN("*", TACTIC, "slow*", true),
         PIN("conv2", BACKEND, "cuda", false), PIN("relu?", BACKEND, "cpu", true),
         PIN("conv1", TACTIC, "slower", false)}};
    (void)state;
    assert_int_equal(tune_pins_of(&pins, "conv3"), 1 | 2);
    assert_int_equal(tune_pins_of(&pins, "conv2"), 2 | 4);
    assert_int_equal(tune_pins_of(&pins, "conv1"), 1 | 16);
    assert_int_equal(tune_pins_of(&pins, "conv1 + relu1"), 1 | 8 | 16);
    assert_int_equal(tune_pins_of(&pins, "pool + relu1"), 2 | 8);
    assert_int_equal(tune_pins_of(NULL, "conv1"), 0);
    assert_true(tune_pins_backend(&pins, 1 | 2, "cpu"));
    assert_false(tune_pins_backend(&pins, 1 | 2, "cuda"));
    assert_false(tune_pins_backend(&pins, 8, "cpu"));
    assert_true(tune_pins_backend(&pins, 0, "cuda"));
}

static const struct ir_node *find(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!strcmp(ir_node(g, i)->name, name))
            return ir_node(g, i);
    fail_msg("no node '%s'", name);
    return NULL;
}

static enum status tune(const struct tune_pins *pins, enum precision precision,
                        struct ir_graph **out, struct error *err)
{
    const struct tune_options options = {
        .device = device, .host = host, .precision = precision, .pins = pins, .no_timing = true};
    *out = net_network(2);
    enum status status = tune_graph(*out, &options, NULL, err);
    if (status) {
        ir_graph_free(*out);
        *out = NULL;
    }
    return status;
}

/* All layers' types, but for the fully connected one's. */
static void layers_have_the_types_that_they_are_pinned_to(void **state)
{
    static const struct {
        enum precision precision;
        struct tune_pins pins;
        enum dtype conv, fc;
    } rows[] = {
        {PRECISION_F32, {0}, DTYPE_F32, DTYPE_F32},
        {PRECISION_F16, {0}, DTYPE_F16, DTYPE_F16},
        {PRECISION_F16,
         {1, {{.layer = "fc", .kind = TUNE_PIN_PRECISION, .what = "fp32"}}},
         DTYPE_F16,
         DTYPE_F32},
        {PRECISION_F32,
         {1,
          {{.layer = "conv",
            .kind = TUNE_PIN_PRECISION,
            .what = "fp16",
            .precision = PRECISION_F16}}},
         DTYPE_F16,
         DTYPE_F32},
        {PRECISION_BF16,
         {2,
          {{.layer = "*",
            .kind = TUNE_PIN_PRECISION,
            .what = "bf16",
            .precision = PRECISION_BF16,
            .excludes = true},
           {.layer = "f?",
            .kind = TUNE_PIN_PRECISION,
            .what = "bf16",
            .precision = PRECISION_BF16}}},
         DTYPE_F32,
         DTYPE_BF16},
        {PRECISION_F16, /* a wish that comes true, however fast fp16 is, */
         {1, {{.layer = "*", .kind = TUNE_PIN_PRECISION, .what = "fp32", .wishes = true}}},
         DTYPE_F32,
         DTYPE_F32},
        {PRECISION_F32, /* and one that cannot */
         {1,
          {{.layer = "*",
            .kind = TUNE_PIN_PRECISION,
            .what = "int8",
            .precision = PRECISION_I8,
            .wishes = true}}},
         DTYPE_F32,
         DTYPE_F32},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *g;
        struct error err;
        if (tune(&rows[i].pins, rows[i].precision, &g, &err))
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(ir_tensor(g, find(g, "conv")->inputs[0])->dtype, rows[i].conv);
        assert_int_equal(ir_tensor(g, find(g, "fc")->inputs[0])->dtype, rows[i].fc);
        ir_graph_free(g);
    }
}

static void layers_run_where_they_are_pinned_to(void **state)
{
    static const struct tune_pins pins = {3,
                                          {PIN("pool", BACKEND, "cpu", false),
                                           PIN("fc", BACKEND, "mock", true),
                                           PIN("join", TACTIC, "mock*", false)}};
    struct ir_graph *g;
    struct error err;
    (void)state;
    if (tune(&pins, PRECISION_F16, &g, &err))
        fail_msg("%s", err.text);
    assert_string_equal(find(g, "pool")->tactic->backend, "cpu");
    assert_string_equal(find(g, "fc")->tactic->backend, "cpu");
    assert_string_equal(find(g, "join")->tactic->backend, "mock");
    assert_string_equal(find(g, "conv")->tactic->backend, "mock");
    ir_graph_free(g);
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        struct tune_pin pin;
        const char *text;
        enum status status;
    } rows[] = {
        {PIN("covn", BACKEND, "cpu", false), "(did you mean 'conv'?)", STATUS_NOT_FOUND},
        {PIN("z*", BACKEND, "cpu", false), "--pin x: no layer has this name", STATUS_NOT_FOUND},
        {PIN("fc", TACTIC, "fast*", false), "layer 'fc' (matmul) has no such kernel; there are '",
         STATUS_UNIMPLEMENTED},
        {PIN("pool", TACTIC, "*", true), "layer 'pool' (pool) has no such kernel; there are '",
         STATUS_UNIMPLEMENTED},
        {PIN("fc", BACKEND, "cuda", false), "'reference'", STATUS_UNIMPLEMENTED},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct tune_pins pins = {1, {rows[i].pin}};
        struct ir_graph *g;
        struct error err = {0};
        assert_int_equal(tune(&pins, PRECISION_F32, &g, &err), rows[i].status);
        if (!strstr(err.text, rows[i].text))
            fail_msg("'%s'", err.text);
    }
}

/* The device stays what it was pinned to where runs are too short for it. */
static void a_pinned_layer_is_not_sent_away(void **state)
{
    static const struct tune_pins pins = {
        2, {PIN("*", BACKEND, "cpu", false), PIN("fc", BACKEND, "mock", false)}};
    struct tune_options options = {
        .device = device, .host = host, .pins = &pins, .min_segment = 3, .no_timing = true};
    struct ir_graph *g = net_network(2);
    struct error err;
    (void)state;
    if (tune_graph(g, &options, NULL, &err))
        fail_msg("%s", err.text);
    assert_string_equal(find(g, "fc")->tactic->backend, "mock");
    assert_string_equal(find(g, "conv")->tactic->backend, "cpu");
    ir_graph_free(g);
}

/* The reference sorts in its workspace. Guesses and times keep to the limit alike. */
static void a_workspace_has_a_limit(void **state)
{
    (void)state;
    for (int no_timing = 0; no_timing < 2; no_timing++)
        for (uint64_t limit = 64; limit <= 1 << 20; limit <<= 14) {
            struct tune_options options = {
                .device = host, .workspace = limit, .no_timing = no_timing, .seed = 3};
            struct ir_graph *g = ir_graph_new();
            struct error err = {0};
            uint32_t x = net_input(g, (int64_t[]){1, 4096, 0});
            uint32_t node = net_node(g, IR_OP_TOPK, "top", 1, &x);
            net_int(g, node, IR_ATTR_K, 3);
            net_int(g, node, IR_ATTR_AXIS, 1);
            net_output(g, net_infer(g, node));
            enum status status = tune_graph(g, &options, NULL, &err);
            if (limit > 64) {
                assert_int_equal(status, STATUS_OK);
                assert_in_range(find(g, "top")->workspace_bytes, 65, limit);
            } else {
                assert_int_equal(status, STATUS_FAILED_PRECONDITION);
                assert_non_null(strstr(err.text, "layer 'top' (topk): its kernels need a workspace "
                                                 "of 0."));
                assert_non_null(strstr(err.text, "at most 0.00 MiB are allowed"));
            }
            ir_graph_free(g);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(the_last_of_a_kind_counts),
        TEST(layers_have_the_types_that_they_are_pinned_to),
        TEST(layers_run_where_they_are_pinned_to),
        TEST(what_cannot_be_is_refused),
        TEST(a_pinned_layer_is_not_sent_away),
        TEST(a_workspace_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
