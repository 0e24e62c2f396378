/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of two convolutions, and two convolutions in a row, as one node: each where it takes less
 * time than its parts, on a simulated device. */
#include <string.h>

#include "base/compiler.h"
#include "engine/build/pairs.h"
#include "engine/engine.h"
#include "engine/tune/pin.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/passes/parse.h"

struct model {
    const char *text;
    uint32_t convolutions; /* and no other nodes */
};

static const struct model blocks = {"input x FP32[1,8,8,8]\n"
                                    "a = conv \"a\" (x, w FP32[8,8,1,1], bias FP32[8])\n"
                                    "b = conv \"b\" (x, w, bias) then relu\n"
                                    "c = conv \"c\" (b, w, bias) then add(a), relu\n"
                                    "d = conv \"d\" (c, w) strides=2,2\n"
                                    "e = conv \"e\" (c, w) strides=2,2 then relu\n"
                                    "f = conv \"f\" (e, w, bias) then add(d), relu\n"
                                    "output f\n",
                                    6};

/* Ends of blocks that the next block reads at once: of two sources, and with a residual. */
static const struct model rows_of_two = {
    "input x FP32[1,8,8,8]\n"
    "a = conv \"a\" (x, w FP32[8,8,1,1], bias FP32[8])\n"
    "b = conv \"b\" (x, w, bias) then relu\n"
    "c = conv \"c\" (b, w, bias) then add(a), relu\n"
    "d = conv \"d\" (c, w) then relu\n"
    "e = conv \"e\" (d, v FP32[8,8,3,3]) pads=1,1,1,1 then relu\n"
    "f = conv \"f\" (e, w, bias) then add(c), relu\n"
    "g = conv \"g\" (f, w, bias) then relu\n"
    "output f\noutput g\n",
    7};

static const struct model *model = &blocks; /* of the next build */

/* Nanoseconds; a convolution takes 1,000. Of chains, the one that ends with d and that with g. */
static uint64_t first_pair, second_pair, first_chain, second_chain;

static uint64_t cost(const struct ir_graph *graph UNUSED, const struct ir_node *node,
                     const struct tactic *tactic UNUSED)
{
    if (node->op == IR_OP_REFORMAT)
        return 10;
    if (node->op == IR_OP_CONV_CHAIN)
        return strcmp(node->name, "f + g") == 0 ? second_chain : first_chain;
    if (node->op != IR_OP_CONV_PAIR)
        return 1000;
    return strcmp(node->name, "a + c") == 0 ? first_pair : second_pair;
}

struct built {
    struct ir_graph *graph, *joined;
    struct build_report report;
    struct tune_report tuned;
};

/* A judge who rules out FP16, or another type, for what has this op. */
static enum ir_op disliked;
static enum dtype ruled_out = DTYPE_F16;
static const char *disliked_name; /* NULL: any */

static enum status dislike(void *user UNUSED, const struct ir_graph *graph, uint32_t *held,
                           struct error *err UNUSED)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, i)->op == disliked &&
            (!disliked_name || !strcmp(ir_node(graph, i)->name, disliked_name)))
            held[i] = 1U << ruled_out;
    return STATUS_OK;
}

static uint32_t looks;
static const char *found[2]; /* what looks find to hold back: the first, the second; or NULL */

/* A judge that holds back goes on until there is nothing more to hold back. */
static enum status look(void *user UNUSED, const struct ir_graph *graph,
                        const struct tune_layer *layers UNUSED, uint32_t *held, bool *again,
                        struct error *err UNUSED)
{
    const char *name = looks < ARRAY_LEN(found) ? found[looks] : NULL;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (name && !strcmp(ir_node(graph, i)->name, name)) {
            held[i] = 1U << ruled_out;
            *again = true;
        }
    looks++;
    return STATUS_OK;
}

static const struct tune_judge judge = {dislike, look, NULL};

static const struct tune_pins *pins; /* of the next build */

static struct built build(struct device *device, bool timed, bool cached, enum precision precision)
{
    struct built b = {.graph = graph_parse(model->text), .report = {.fused = model->convolutions}};
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

/* The names of the graph's pairs and chains, one behind the other. */
static const char *pairs_of(const struct built *b, char out[64])
{
    const struct ir_graph *g = b->joined ? b->joined : b->graph;
    uint32_t nodes = 0, pairs = 0, chains = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *n = ir_node(g, i);
        bool pair = n->op == IR_OP_CONV_PAIR, chain = n->op == IR_OP_CONV_CHAIN;
        assert_true(n->tactic || n->op == IR_OP_REFORMAT);
        nodes += n->op != IR_OP_REFORMAT;
        pairs += pair || (chain && n->inputs[IR_CHAIN_X2] != IR_NONE);
        chains += chain;
        if (pair || chain)
            strcat(strcat(out, n->name), ";");
    }
    assert_int_equal(nodes + pairs + chains, model->convolutions);
    assert_int_equal(b->joined != NULL, pairs + chains > 0);
    assert_int_equal(b->report.passes[PASS_NUMBER_fuse_pair].rewrites, pairs);
    assert_int_equal(b->report.passes[PASS_NUMBER_fuse_chain].rewrites, chains);
    assert_int_equal(b->report.fused, nodes);
    return out;
}

static void each_where_it_is_faster(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, second;
        const char *pairs;
    } rows[] = {
        {1500, 1600, "a + c;d + f;"},
        {1500, 2500, "a + c;"},
        {2500, 1500, "d + f;"},
        {2500, 2600, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int cached = 0; cached < 2; cached++) {
            struct device *device = mock_simulate();
            char names[64];
            mock_add_features(device, BACKEND_PAIRS);
            mock_script(device)->cost = cost;
            first_pair = rows[i].first;
            second_pair = rows[i].second;
            struct built b = build(device, true, cached, cached ? PRECISION_F16 : PRECISION_I8);
            assert_string_equal(pairs_of(&b, names), rows[i].pairs);
            /* the last graph's times come from the cache, but they were measured */
            assert_true(b.tuned.timed > 0);
            assert_int_equal(b.tuned.from_cache, 0);
            uint64_t best = (rows[i].first < 2000 ? rows[i].first : 2000) +
                            (rows[i].second < 2000 ? rows[i].second : 2000) + 2000;
            assert_true(b.tuned.time_ns >= best && b.tuned.time_ns <= best + 100);
            built_free(&b);
            engine_device_close(device);
        }
}

/* Not in 8 bits without timing, not without a kernel, and without timing not so small
 * ones. */
static void not_asked_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t features;
        enum ir_op missing;
        bool timed;
        enum precision precision;
    } rows[] = {
        {0, IR_OP_NONE, true, PRECISION_F16},
        {BACKEND_PAIRS, IR_OP_CONV_PAIR, true, PRECISION_F16},
        {BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_I8},
        {BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_F8},
        {BACKEND_PAIRS, IR_OP_NONE, false, PRECISION_F16},
    };
    first_pair = second_pair = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = mock_simulate();
        char names[64];
        mock_add_features(device, rows[i].features);
        mock_script(device)->cost = cost;
        mock_script(device)->missing = rows[i].missing;
        struct built b = build(device, rows[i].timed, true, rows[i].precision);
        assert_string_equal(pairs_of(&b, names), "");
        assert_int_equal(b.tuned.timed > 0, rows[i].timed);
        built_free(&b);
        engine_device_close(device);
    }
}

/* The kernel has short types alone: a sum that needs others is two convolutions again. */
static void held_back_apart(void **state)
{
    (void)state;
    struct device *device = mock_simulate();
    char names[64];
    mock_add_features(device, BACKEND_PAIRS);
    mock_script(device)->cost = cost;
    first_pair = second_pair = 500;
    static const struct {
        enum ir_op disliked;
        const char *name, *pairs;
    } rows[] = {
        {IR_OP_CONV_PAIR, NULL, ""},
        {IR_OP_CONV_PAIR, "a + c", "d + f;"},
        {IR_OP_CONV, NULL, "a + c;d + f;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        disliked = rows[i].disliked;
        disliked_name = rows[i].name;
        looks = 0;
        struct built b = build(device, true, true, PRECISION_F16);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        assert_int_equal(looks, 1); /* at the graph that is kept: a look may take a minute */
        built_free(&b);
    }
    disliked_name = NULL;
    disliked = IR_OP_NONE;
    engine_device_close(device);
}

/* Each comparison may be of an assignment that has more of them, so it is the last for these. */
static void found_and_apart(void **state)
{
    (void)state;
    struct device *device = mock_simulate();
    char names[64];
    mock_add_features(device, BACKEND_PAIRS);
    mock_script(device)->cost = cost;
    first_pair = second_pair = 500;
    static const struct {
        const char *found[2], *pairs;
        uint32_t looks;
    } rows[] = {
        {{"a + c"}, "d + f;", 2},
        {{"a + c", "d + f"}, "", 3},
        {{"b"}, "a + c;d + f;", 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        memcpy(found, rows[i].found, sizeof(found));
        looks = 0;
        struct built b = build(device, true, true, PRECISION_F16);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        assert_int_equal(looks, rows[i].looks);
        built_free(&b);
    }
    memset(found, 0, sizeof(found));
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
        struct built b = build(device, true, true, PRECISION_F16);
        pins = NULL;
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        built_free(&b);
        engine_device_close(device);
    }
}

/* --- chains --- */

static struct device *chaining(uint32_t features)
{
    struct device *device = mock_simulate();
    mock_add_features(device, features);
    mock_script(device)->cost = cost;
    model = &rows_of_two;
    return device;
}

static void close_chaining(struct device *device)
{
    model = &blocks;
    disliked = IR_OP_NONE;
    disliked_name = NULL;
    ruled_out = DTYPE_F16;
    memset(found, 0, sizeof(found));
    engine_device_close(device);
}

/* A chain that begins with a pair is compared with that pair; without the pair, with a residual. */
static void chains_where_they_are_faster(void **state)
{
    (void)state;
    static const struct {
        uint64_t pair, first, second;
        const char *pairs;
        uint64_t best;
    } rows[] = {
        {500, 1400, 1900, "a + c + d;f + g;", 1400 + 1900 + 2000},
        {500, 1600, 1900, "a + c;f + g;", 500 + 1900 + 3000},
        {500, 1400, 2100, "a + c + d;", 1400 + 4000},
        {500, 1600, 2100, "a + c;", 500 + 5000},
        {2500, 1900, 1900, "c + d;f + g;", 1900 + 1900 + 3000},
        {2500, 2100, 1900, "f + g;", 1900 + 5000},
        {2500, 2100, 2100, "", 7000},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int cached = 0; cached < 2; cached++) {
            struct device *device = chaining(BACKEND_PAIRS | BACKEND_CONV_CHAINS);
            char names[64];
            first_pair = rows[i].pair;
            first_chain = rows[i].first;
            second_chain = rows[i].second;
            struct built b = build(device, true, cached, PRECISION_I8);
            assert_string_equal(pairs_of(&b, names), rows[i].pairs);
            assert_true(b.tuned.timed > 0);
            assert_int_equal(b.tuned.from_cache, 0);
            assert_in_range(b.tuned.time_ns, rows[i].best, rows[i].best + 100);
            built_free(&b);
            close_chaining(device);
        }
}

/* There are chains in INT8 alone, if times are taken, and with a kernel; with pairs or without. */
static void chains_not_asked_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t features;
        enum ir_op missing;
        bool timed;
        enum precision precision;
        const char *pairs;
    } rows[] = {
        {BACKEND_PAIRS, IR_OP_NONE, true, PRECISION_I8, "a + c;"},
        {BACKEND_PAIRS | BACKEND_CONV_CHAINS, IR_OP_CONV_CHAIN, true, PRECISION_I8, "a + c;"},
        {BACKEND_PAIRS | BACKEND_CONV_CHAINS, IR_OP_NONE, true, PRECISION_F16, "a + c;"},
        {BACKEND_PAIRS | BACKEND_CONV_CHAINS, IR_OP_NONE, false, PRECISION_F8, ""},
        {BACKEND_PAIRS | BACKEND_CONV_CHAINS, IR_OP_NONE, false, PRECISION_I8, ""},
        {BACKEND_PAIRS | BACKEND_CONV_CHAINS, IR_OP_CONV_PAIR, true, PRECISION_I8, "c + d;f + g;"},
        {BACKEND_CONV_CHAINS, IR_OP_NONE, true, PRECISION_I8, "c + d;f + g;"},
        {BACKEND_CONV_CHAINS, IR_OP_NONE, false, PRECISION_F16, ""},
    };
    first_pair = first_chain = second_chain = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = chaining(rows[i].features);
        char names[64];
        mock_script(device)->missing = rows[i].missing;
        struct built b = build(device, rows[i].timed, true, rows[i].precision);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        assert_int_equal(b.tuned.timed > 0, rows[i].timed);
        built_free(&b);
        close_chaining(device);
    }
}

/* The kernel has 8 bits alone: whatever type a chain may not have, it is its parts again, of which
 * a pair is one. A pair that a chain has is not looked at. */
static void chains_held_back_apart(void **state)
{
    (void)state;
    static const struct {
        enum ir_op disliked;
        enum dtype type;
        const char *name, *pairs;
    } rows[] = {
        {IR_OP_CONV_CHAIN, DTYPE_I8, NULL, "a + c;"},
        {IR_OP_CONV_CHAIN, DTYPE_U8, NULL, "a + c;"},
        {IR_OP_CONV_CHAIN, DTYPE_F16, "f + g", "a + c + d;"},
        {IR_OP_CONV_CHAIN, DTYPE_I8, "a + c + d", "a + c;f + g;"},
        {IR_OP_CONV_PAIR, DTYPE_F16, NULL, "a + c + d;f + g;"},
        {IR_OP_CONV, DTYPE_I8, NULL, "a + c + d;f + g;"},
    };
    first_pair = second_chain = 500;
    first_chain = 400;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = chaining(BACKEND_PAIRS | BACKEND_CONV_CHAINS);
        char names[64];
        disliked = rows[i].disliked;
        disliked_name = rows[i].name;
        ruled_out = rows[i].type;
        looks = 0;
        struct built b = build(device, true, true, PRECISION_I8);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        assert_int_equal(looks, 1);
        built_free(&b);
        close_chaining(device);
    }
}

/* A pair that is held back, too, is let go after the chain that it began. */
static void chains_found_and_apart(void **state)
{
    (void)state;
    static const struct {
        enum dtype type;
        const char *found[2], *pairs;
        uint32_t looks;
    } rows[] = {
        {DTYPE_I8, {"a + c + d"}, "a + c;f + g;", 2},
        {DTYPE_I8, {"a + c + d", "f + g"}, "a + c;", 3},
        {DTYPE_F16, {"a + c + d", "a + c"}, "f + g;", 3},
        {DTYPE_I8, {"f + g"}, "a + c + d;", 2},
        {DTYPE_F16, {"e"}, "a + c + d;f + g;", 2},
    };
    first_pair = second_chain = 500;
    first_chain = 400;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device *device = chaining(BACKEND_PAIRS | BACKEND_CONV_CHAINS);
        char names[64];
        memcpy(found, rows[i].found, sizeof(found));
        ruled_out = rows[i].type;
        looks = 0;
        struct built b = build(device, true, true, PRECISION_I8);
        assert_string_equal(pairs_of(&b, names), rows[i].pairs);
        assert_int_equal(looks, rows[i].looks);
        built_free(&b);
        close_chaining(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_where_it_is_faster),
        cmocka_unit_test(not_asked_for),
        cmocka_unit_test(held_back_apart),
        cmocka_unit_test(found_and_apart),
        cmocka_unit_test(pinned_apart),
        cmocka_unit_test(chains_where_they_are_faster),
        cmocka_unit_test(chains_not_asked_for),
        cmocka_unit_test(chains_held_back_apart),
        cmocka_unit_test(chains_found_and_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
