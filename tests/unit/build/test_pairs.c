/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of two convolutions, and products and the norms before them, as one node: each where it
 * takes less time than its parts, on a simulated device. */
#include <string.h>

#include "base/compiler.h"
#include "engine/build/pairs.h"
#include "engine/engine.h"
#include "engine/tune/pin.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/passes/parse.h"

struct network {
    const char *text, *first; /* the first node that may be made of two */
    uint32_t nodes;
    enum ir_op both;
};

static const struct network sums = {"input x FP32[1,8,8,8]\n"
                                    "a = conv \"a\" (x, w FP32[8,8,1,1], bias FP32[8])\n"
                                    "b = conv \"b\" (x, w, bias) then relu\n"
                                    "c = conv \"c\" (b, w, bias) then add(a), relu\n"
                                    "d = conv \"d\" (c, w) strides=2,2\n"
                                    "e = conv \"e\" (c, w) strides=2,2 then relu\n"
                                    "f = conv \"f\" (e, w, bias) then add(d), relu\n"
                                    "output f\n",
                                    "a + c", 6, IR_OP_CONV_PAIR};

static const struct network norms = {"input x FP32[4,16]\n"
                                     "n = layer_norm \"n\" (x, s FP32[16]) axis=1\n"
                                     "a = matmul \"a\" (n, w FP32[16,16]) then relu\n"
                                     "b = matmul \"b\" (a, w) then add(n)\n"
                                     "k = layer_norm \"k\" (b, s) axis=1\n"
                                     "c = matmul \"c\" (k, w) then relu\n"
                                     "output c\n",
                                     "n + a", 5, IR_OP_NORM_MATMUL};

/* Nanoseconds; each of their parts takes 1,000. */
static uint64_t first_pair, second_pair;

static uint64_t cost(const struct ir_graph *graph UNUSED, const struct ir_node *node,
                     const struct tactic *tactic UNUSED)
{
    if (node->op == IR_OP_REFORMAT)
        return 10;
    if (node->op != IR_OP_CONV_PAIR && node->op != IR_OP_NORM_MATMUL)
        return 1000;
    return strcmp(node->name, sums.first) == 0 || strcmp(node->name, norms.first) == 0
               ? first_pair
               : second_pair;
}

struct built {
    const struct network *network;
    struct ir_graph *graph, *joined;
    struct build_report report;
    struct tune_report tuned;
};

/* A judge who rules out FP16 for what has this op, and this name if there is one. */
static enum ir_op disliked;
static const char *disliked_name;

static enum status dislike(void *user UNUSED, const struct ir_graph *graph, uint32_t *held,
                           struct error *err UNUSED)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, i)->op == disliked &&
            (!disliked_name || !strcmp(ir_node(graph, i)->name, disliked_name)))
            held[i] = 1U << DTYPE_F16;
    return STATUS_OK;
}

static enum status look(void *user UNUSED, const struct ir_graph *graph UNUSED,
                        const struct tune_layer *layers UNUSED, uint32_t *held UNUSED, bool *again,
                        struct error *err UNUSED)
{
    *again = false;
    return STATUS_OK;
}

static const struct tune_judge judge = {dislike, look, NULL};

static const struct tune_pins *pins; /* of the next build */

static struct built build(const struct network *network, struct device *device, bool timed,
                          bool cached, enum precision precision)
{
    struct built b = {.network = network,
                      .graph = graph_parse(network->text),
                      .report = {.fused = network->nodes}};
    struct tune_cache *cache = NULL;
    struct error err;
    if (cached)
        assert_int_equal(tune_cache_new(device, &cache, &err), STATUS_OK);
    const struct build_options options = {.device = device, .precision = precision, .pins = pins};
    const struct tune_options tune = {.device = device,
                                      .precision = precision,
                                      .no_timing = !timed,
                                      .cache = cache,
                                      .pins = pins,
                                      .judge = &judge};
    if (build_tune_pairs(b.graph, &options, &tune, &b.report, &b.tuned, &b.joined, &err))
        fail_msg("%s", err.text);
    tune_cache_free(cache);
    return b;
}

static void built_free(struct built *b)
{
    ir_graph_free(b->joined);
    ir_graph_free(b->graph);
}

/* The names of the graph's pairs, one behind the other. */
static const char *pairs_of(const struct built *b, char out[64])
{
    const struct ir_graph *g = b->joined ? b->joined : b->graph;
    uint32_t parts = 0, pairs = 0;
    bool convolutions = b->network == &sums;
    out[0] = '\0';
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *n = ir_node(g, i);
        assert_true(n->tactic || n->op == IR_OP_REFORMAT);
        parts += n->op == IR_OP_CONV || n->op == IR_OP_MATMUL || n->op == IR_OP_LAYER_NORM;
        if (n->op == b->network->both) {
            pairs++;
            strcat(strcat(out, n->name), ";");
        }
    }
    assert_int_equal(parts + 2 * pairs, b->network->nodes);
    assert_int_equal(b->joined != NULL, pairs > 0);
    assert_int_equal(b->report.passes[PASS_NUMBER_fuse_pair].rewrites, convolutions ? pairs : 0);
    assert_int_equal(b->report.passes[PASS_NUMBER_fuse_norm].rewrites, convolutions ? 0 : pairs);
    assert_int_equal(b->report.passes[PASS_NUMBER_fuse_norm].removed, convolutions ? 0 : pairs);
    assert_int_equal(b->report.fused, b->network->nodes - pairs);
    return out;
}

static void each_where_it_is_faster(void **state)
{
    (void)state;
    static const struct {
        const struct network *network;
        uint64_t first, second;
        const char *pairs;
    } rows[] = {
        {&sums, 1500, 1600, "a + c;d + f;"},  {&sums, 1500, 2500, "a + c;"},
        {&sums, 2500, 1500, "d + f;"},        {&sums, 2500, 2600, ""},
        {&norms, 1500, 1600, "n + a;k + c;"}, {&norms, 1500, 2500, "n + a;"},
        {&norms, 2500, 1500, "k + c;"},       {&norms, 2500, 2600, ""},
        {&norms, 1900, 1700, "k + c;"}, /* a norm has to gain an eighth */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int cached = 0; cached < 2; cached++) {
            struct device *device = mock_simulate();
            char names[64];
            mock_add_features(device, BACKEND_PAIRS);
            mock_script(device)->cost = cost;
            first_pair = rows[i].first;
            second_pair = rows[i].second;
            struct built b =
                build(rows[i].network, device, true, cached, cached ? PRECISION_F16 : PRECISION_I8);
            assert_string_equal(pairs_of(&b, names), rows[i].pairs);
            /* the last graph's times come from the cache, but they were measured */
            assert_true(b.tuned.timed > 0);
            assert_int_equal(b.tuned.from_cache, 0);
            uint64_t most = rows[i].network == &norms ? 2000 * 8 / 9 : 2000;
            uint64_t best = (rows[i].first < most ? rows[i].first : 2000) +
                            (rows[i].second < most ? rows[i].second : 2000) +
                            1000 * (rows[i].network->nodes - 4);
            assert_true(b.tuned.time_ns >= best && b.tuned.time_ns <= best + 100);
            built_free(&b);
            engine_device_close(device);
        }
}

/* Not in FP8, not in INT8 without timing, not without a kernel, and without timing neither such small
 * sums nor norms. */
static void not_asked_for(void **state)
{
    (void)state;
    static const struct {
        const struct network *network;
        uint32_t features;
        enum ir_op missing;
        bool timed;
        enum precision precision;
    } rows[] = {
        {&sums, 0, IR_OP_NONE, true, PRECISION_F16},
        {&sums, BACKEND_PAIRS, IR_OP_CONV_PAIR, true, PRECISION_F16},
        {&sums, BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_I8},
        {&sums, BACKEND_PAIRS, IR_OP_NONE, true, PRECISION_F8},
        {&sums, BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_F16},
        {&norms, 0, IR_OP_NONE, true, PRECISION_F16},
        {&norms, BACKEND_PAIRS, IR_OP_NORM_MATMUL, false, PRECISION_F16},
        {&norms, BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_I8},
        {&norms, BACKEND_PAIRS, IR_OP_NONE, true, PRECISION_F8},
        {&norms, BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_F16},
    };
    first_pair = second_pair = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = mock_simulate();
        char names[64];
        mock_add_features(device, rows[i].features);
        mock_script(device)->cost = cost;
        mock_script(device)->missing = rows[i].missing;
        struct built b = build(rows[i].network, device, rows[i].timed, true, rows[i].precision);
        assert_string_equal(pairs_of(&b, names), "");
        assert_int_equal(b.tuned.timed > 0, rows[i].timed);
        built_free(&b);
        engine_device_close(device);
    }
}

/* The kernels have short types alone: what needs others is two nodes again. */
static void held_back_apart(void **state)
{
    (void)state;
    struct device *device = mock_simulate();
    char names[64];
    mock_add_features(device, BACKEND_PAIRS);
    mock_script(device)->cost = cost;
    first_pair = second_pair = 500;
    static const struct {
        const struct network *network;
        enum ir_op disliked;
        const char *name, *pairs;
    } rows[] = {
        {&sums, IR_OP_CONV_PAIR, NULL, ""},
        {&sums, IR_OP_CONV_PAIR, "a + c", "d + f;"},
        {&sums, IR_OP_CONV, NULL, "a + c;d + f;"},
        {&norms, IR_OP_NORM_MATMUL, NULL, ""},
        {&norms, IR_OP_NORM_MATMUL, "k + c", "n + a;"},
        {&norms, IR_OP_MATMUL, NULL, "n + a;k + c;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        disliked = rows[i].disliked;
        disliked_name = rows[i].name;
        struct built b = build(rows[i].network, device, true, true, PRECISION_F16);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        built_free(&b);
    }
    disliked = IR_OP_NONE;
    disliked_name = NULL;
    engine_device_close(device);
}

/* What an operator rules out is not made, and the build goes on. */
static void pinned_apart(void **state)
{
    (void)state;
    static const struct {
        struct tune_pin pin;
        const char *pairs;
    } rows[] = {
        {{.layer = "c", .what = "*nothing*", .kind = TUNE_PIN_TACTIC, .excludes = true},
         "a + c;d + f;"},
        {{.layer = "c", .what = "mock conv_pair*", .kind = TUNE_PIN_TACTIC, .excludes = true},
         "d + f;"},
        {{.layer = "d", .precision = PRECISION_F16, .kind = TUNE_PIN_PRECISION, .excludes = true},
         "a + c;"},
    };
    first_pair = second_pair = 500;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = mock_simulate();
        char names[64];
        struct tune_pins one = {.n = 1, .list = {rows[i].pin}};
        mock_add_features(device, BACKEND_PAIRS);
        mock_script(device)->cost = cost;
        pins = &one;
        struct built b = build(&sums, device, true, true, PRECISION_F16);
        pins = NULL;
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        built_free(&b);
        engine_device_close(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_where_it_is_faster),
        cmocka_unit_test(not_asked_for),
        cmocka_unit_test(held_back_apart),
        cmocka_unit_test(pinned_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
