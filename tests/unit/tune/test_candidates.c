/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every candidate of every kind of node, one at a time through the tuner (with layouts, reformats,
 * packed constants and all), is compared with the reference kernels.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

/* The bound for fp32 sums in another order; Winograd loses about one more digit. */
static const double bound = 2e-6, bound_winograd = 2e-5;

static struct device *device;
static uint32_t onednn_seen; /* candidates other than the reference's */

static int open_device(void **state)
{
    (void)state;
    device = net_device();
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    engine_device_close(device);
    return 0;
}

/* Runs each candidate of the graph's one node. */
static void check(struct ir_graph *g)
{
    float *want[IR_MAX_IO], *got[IR_MAX_IO];
    uint32_t n = 1;
    struct error err;
    net_reference(g, want);
    for (uint32_t k = 0; k < n; k++) {
        struct tune_options options = {.device = device, .no_timing = true};
        struct ir_graph *tuned = net_copy(g);
        net_only((int)k);
        if (tune_graph(tuned, &options, NULL, &err))
            fail_msg("'%s' candidate %u: %s", ir_node(g, 0)->name, k, err.text);
        n = net_offered();
        assert_int_equal(ir_verify(tuned, &err), STATUS_OK);
        net_run(device, NULL, tuned, got);
        bool winograd = strstr(net_name(), "wino") != NULL;
        onednn_seen += strncmp(net_name(), "onednn", 6) == 0;
        for (uint32_t i = 0; i < g->n_outputs; i++) {
            double e = net_error(g, i, got[i], want[i]);
            if (!(e <= (winograd ? bound_winograd : bound)))
                fail_msg("'%s' with '%s': error %g in\n%s", ir_node(g, 0)->name, net_name(), e,
                         ir_graph_text(g));
            free(got[i]);
        }
        ir_graph_free(tuned);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        free(want[i]);
    ir_graph_free(g);
    net_only(NET_ALL);
}

/* A shape that broadcasts to `shape`, ending with a 0 for net_input. */
static const int64_t *some_operand(uint64_t *seed, const struct shape *shape, int64_t *dims)
{
    int64_t kind = net_between(seed, 0, 3);
    for (uint32_t i = 0; i < shape->rank; i++) {
        bool channel = i == 1;
        dims[i] = kind == 0 || (kind == 1 && channel) || (kind == 2 && net_random(seed) % 2)
                      ? shape->dim[i]
                      : 1;
    }
    dims[shape->rank] = 0;
    return dims;
}

static void some_epilogue(struct ir_graph *g, uint32_t node, uint64_t *seed)
{
    static const struct {
        enum ir_unary func;
        float alpha, beta;
    } unary[] = {{IR_UNARY_RELU, 0, 0},
                 {IR_UNARY_CLIP, -0.5F, 0.75F},
                 {IR_UNARY_GELU, 0, 0},
                 {IR_UNARY_HARD_SWISH, 0, 0},
                 {IR_UNARY_SWISH, 1, 0},
                 {IR_UNARY_LEAKY_RELU, 0.1F, 0},
                 {IR_UNARY_HARD_SIGMOID, 0.2F, 0.5F},
                 {IR_UNARY_TANH, 0, 0},
                 {IR_UNARY_SIN, 0, 0},
                 {IR_UNARY_ELU, 0.7F, 0}};
    static const enum ir_binary binary[] = {IR_BINARY_ADD, IR_BINARY_MUL, IR_BINARY_SUB,
                                            IR_BINARY_MAX};
    for (int64_t n = net_between(seed, 0, 3); n > 0; n--) {
        int64_t dims[SHAPE_MAX_RANK + 1];
        const struct shape shape = ir_tensor(g, ir_node(g, node)->outputs[0])->shape;
        if (net_random(seed) % 2) {
            size_t k = net_random(seed) % (sizeof(unary) / sizeof(unary[0]));
            net_unary(g, node, unary[k].func, unary[k].alpha, unary[k].beta);
        } else {
            some_operand(seed, &shape, dims);
            uint32_t t = net_random(seed) % 2 ? net_input(g, dims) : net_constant(g, dims);
            net_binary(g, node, binary[net_random(seed) % 4], t);
        }
    }
}

static void one_window(uint64_t *seed, enum ir_op op, const char *name)
{
    struct ir_graph *g = ir_graph_new();
    static const int64_t channels[] = {1, 3, 8, 16, 20, 32, 48};
    int64_t spatial = net_between(seed, 1, 3), group = 1;
    int64_t x[6] = {net_between(seed, 1, 2), channels[net_random(seed) % 7]}, w[6] = {0};
    int64_t strides[3], dilations[3], pads[6], kernel[3], m = channels[net_random(seed) % 7];
    if (net_random(seed) % 4 == 0)
        m = group = x[1]; /* depthwise */
    else if (x[1] % 4 == 0 && m % 4 == 0 && net_random(seed) % 4 == 0)
        group = 4;
    for (int64_t i = 0; i < spatial; i++) {
        kernel[i] = net_between(seed, 1, 3);
        strides[i] = net_between(seed, 1, 2);
        dilations[i] = net_random(seed) % 4 ? 1 : 2;
        int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
        pads[i] = net_between(seed, 0, reach - 1);
        pads[spatial + i] = net_between(seed, 0, reach - 1);
        x[2 + i] = net_between(seed, reach, spatial == 1 ? 40 : 9);
        w[2 + i] = kernel[i];
    }
    w[0] = op == IR_OP_DECONV ? x[1] : m;
    w[1] = (op == IR_OP_DECONV ? m : x[1]) / group;
    uint32_t in[3] = {net_input(g, x), IR_NONE, IR_NONE}, n = 1;
    if (op != IR_OP_POOL) {
        in[1] = net_random(seed) % 8 ? net_constant(g, w) : net_input(g, w);
        in[2] = net_constant(g, (int64_t[]){m, 0});
        n = net_random(seed) % 4 ? 3 : 2;
    }
    uint32_t node = net_node(g, op, name, n, in);
    net_ints(g, node, IR_ATTR_STRIDES, (uint32_t)spatial, strides);
    net_ints(g, node, IR_ATTR_DILATIONS, (uint32_t)spatial, dilations);
    net_ints(g, node, IR_ATTR_PADS, 2 * (uint32_t)spatial, pads);
    if (op == IR_OP_POOL) {
        net_ints(g, node, IR_ATTR_KERNEL, (uint32_t)spatial, kernel);
        net_int(g, node, IR_ATTR_FUNC, net_random(seed) % 2);
        net_int(g, node, IR_ATTR_CEIL_MODE, net_random(seed) % 2);
        net_int(g, node, IR_ATTR_COUNT_INCLUDE_PAD, net_random(seed) % 2);
    } else {
        net_int(g, node, IR_ATTR_GROUP, group);
    }
    net_output(g, net_infer(g, node));
    some_epilogue(g, node, seed);
    check(g);
}

static void convolutions(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++)
        one_window(&(uint64_t){seed}, IR_OP_CONV, "conv");
}

static void transposed_convolutions(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1040; seed++)
        one_window(&(uint64_t){seed}, IR_OP_DECONV, "deconv");
}

static void pools(void **state)
{
    (void)state;
    for (uint64_t seed = 2000; seed < 2060; seed++)
        one_window(&(uint64_t){seed}, IR_OP_POOL, "pool");
}

/* The sizes for which Winograd, 1x1 kernels and the stem are made. */
static void convolutions_of_networks(void **state)
{
    (void)state;
    static const int64_t rows[][6] = {/* c, h, m, k, stride, group */
                                      {64, 14, 64, 3, 1, 1},  {3, 33, 32, 7, 2, 1},
                                      {64, 14, 128, 1, 1, 1}, {96, 15, 96, 3, 2, 96},
                                      {32, 28, 32, 3, 1, 1},  {24, 9, 144, 1, 1, 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int64_t *r = rows[i];
        struct ir_graph *g = ir_graph_new();
        uint32_t in[3] = {net_input(g, (int64_t[]){1, r[0], r[1], r[1], 0}),
                          net_constant(g, (int64_t[]){r[2], r[0] / r[5], r[3], r[3], 0}),
                          net_constant(g, (int64_t[]){r[2], 0})};
        uint32_t node = net_node(g, IR_OP_CONV, "conv", 3, in);
        net_ints(g, node, IR_ATTR_STRIDES, 2, (int64_t[]){r[4], r[4]});
        int64_t p = r[3] / 2;
        net_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){p, p, p, p});
        net_int(g, node, IR_ATTR_GROUP, r[5]);
        uint32_t y = net_infer(g, node);
        struct shape s = ir_tensor(g, y)->shape;
        net_binary(g, node, IR_BINARY_ADD,
                   net_input(g, (int64_t[]){s.dim[0], s.dim[1], s.dim[2], s.dim[3], 0}));
        net_unary(g, node, IR_UNARY_RELU, 0, 0);
        net_output(g, y);
        check(g);
    }
}

static void products(void **state)
{
    (void)state;
    for (uint64_t start = 1; start <= 60; start++) {
        uint64_t seed = start;
        struct ir_graph *g = ir_graph_new();
        int64_t m = net_between(&seed, 1, 40), k = net_between(&seed, 1, 40);
        int64_t n = net_between(&seed, 1, 40), lead = net_between(&seed, 0, 2);
        bool ta = net_random(&seed) % 4 == 0, tb = net_random(&seed) % 2;
        bool one_right = net_random(&seed) % 2;
        int64_t a[5] = {0}, b[5] = {0};
        for (int64_t i = 0; i < lead; i++) {
            a[i] = i + 2;
            b[i] = net_random(&seed) % 3 ? i + 2 : 1;
        }
        a[lead] = ta ? k : m;
        a[lead + 1] = ta ? m : k;
        int64_t *bm = one_right ? b : b + lead;
        bm[0] = tb ? n : k;
        bm[1] = tb ? k : n;
        bm[2] = 0;
        uint32_t in[3] = {net_input(g, a),
                          net_random(&seed) % 3 ? net_constant(g, b) : net_input(g, b),
                          net_constant(g, (int64_t[]){n, 0})};
        uint32_t node = net_node(g, IR_OP_MATMUL, "matmul", net_random(&seed) % 2 ? 3 : 2, in);
        net_int(g, node, IR_ATTR_TRANS_A, ta);
        net_int(g, node, IR_ATTR_TRANS_B, tb);
        if (net_random(&seed) % 4 == 0)
            net_float(g, node, IR_ATTR_ALPHA, 0.5F);
        net_output(g, net_infer(g, node));
        some_epilogue(g, node, &seed);
        check(g);
    }
}

static void rows_and_norms(void **state)
{
    (void)state;
    static const int64_t x[] = {2, 3, 5, 33, 0};
    for (int64_t axis = 0; axis < 4; axis++)
        for (int64_t log = 0; log < 2; log++) {
            struct ir_graph *g = ir_graph_new();
            uint32_t in = net_input(g, x), node = net_node(g, IR_OP_SOFTMAX, "softmax", 1, &in);
            net_int(g, node, IR_ATTR_AXIS, axis);
            net_int(g, node, IR_ATTR_LOG, log);
            net_output(g, net_infer(g, node));
            check(g);
        }
    for (int64_t axis = 1; axis < 4; axis++)
        for (uint32_t n = 2; n <= 3; n++) {
            struct ir_graph *g = ir_graph_new();
            uint32_t in[3] = {net_input(g, x), net_constant(g, x + axis),
                              net_constant(g, x + axis)};
            uint32_t node = net_node(g, IR_OP_LAYER_NORM, "layer_norm", n, in);
            net_int(g, node, IR_ATTR_AXIS, axis);
            net_output(g, net_infer(g, node));
            check(g);
        }
}

static void reductions(void **state)
{
    (void)state;
    static const int64_t axes[][3] = {{1, 3, 0}, {2, 2, 3}, {2, 0, 2}, {1, 1, 0}, {3, 1, 2}};
    for (int64_t func = IR_REDUCE_SUM; func <= IR_REDUCE_LOG_SUM_EXP; func++)
        for (size_t i = 0; i < 5; i++)
            for (int64_t keep = 0; keep < 2; keep++) {
                struct ir_graph *g = ir_graph_new();
                uint32_t x = net_input(g, (int64_t[]){2, 16, 5, 7, 0});
                uint32_t p = net_node(g, IR_OP_REDUCE, "reduce", 1, &x);
                net_int(g, p, IR_ATTR_FUNC, func == IR_REDUCE_LOG_SUM ? IR_REDUCE_SUM : func);
                net_int(g, p, IR_ATTR_KEEPDIMS, keep);
                int64_t list[3] = {axes[i][1], axes[i][2], 3};
                net_ints(g, p, IR_ATTR_AXES, (uint32_t)axes[i][0], list);
                net_output(g, net_infer(g, p));
                check(g);
            }
}

static void elementwise(void **state)
{
    (void)state;
    for (int64_t func = 0; func <= IR_UNARY_ROUND; func++) {
        struct ir_graph *g = ir_graph_new();
        uint32_t x = net_input(g, (int64_t[]){2, 20, 5, 7, 0});
        uint32_t node = net_node(g, IR_OP_UNARY, ir_unary_name((enum ir_unary)func), 1, &x);
        net_int(g, node, IR_ATTR_FUNC, func);
        if (func == IR_UNARY_LOG || func == IR_UNARY_SQRT || func == IR_UNARY_RECIPROCAL) {
            ir_graph_free(g); /* random inputs would give NaN, or differ without bound */
            continue;
        }
        net_output(g, net_infer(g, node));
        check(g);
    }
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ir_graph *g = ir_graph_new();
        uint64_t s = seed;
        struct shape full = {.rank = 4, .dim = {2, 20, 3, 5}};
        int64_t a[9], b[9], swap = net_random(&s) % 2;
        some_operand(&s, &full, a);
        memcpy(b, full.dim, sizeof(full.dim));
        b[4] = 0;
        uint32_t in[2] = {net_input(g, swap ? a : b), net_input(g, swap ? b : a)};
        uint32_t node = net_node(g, IR_OP_BINARY, "binary", 2, in);
        net_int(g, node, IR_ATTR_FUNC, net_between(&s, IR_BINARY_ADD, IR_BINARY_MIN));
        if (ir_attr_int(ir_node(g, node), IR_ATTR_FUNC) == IR_BINARY_DIV)
            net_int(g, node, IR_ATTR_FUNC, IR_BINARY_SUB);
        net_output(g, net_infer(g, node));
        some_epilogue(g, node, &s);
        check(g);
    }
}

static void moves(void **state)
{
    (void)state;
    for (int64_t axis = 0; axis < 4; axis++) {
        struct ir_graph *g = ir_graph_new();
        int64_t a[] = {2, 16, 5, 7, 0}, b[] = {2, 16, 5, 7, 0};
        b[axis] = axis == 1 ? 32 : 3;
        uint32_t in[2] = {net_input(g, a), net_input(g, b)};
        uint32_t node = net_node(g, IR_OP_CONCAT, "concat", 2, in);
        net_int(g, node, IR_ATTR_AXIS, axis);
        net_output(g, net_infer(g, node));
        check(g);
    }
    struct ir_graph *pairs = ir_graph_new(); /* numbers in turn */
    const int64_t halves[] = {3, 5, 7, 1, 0};
    uint32_t half[2] = {net_input(pairs, halves), net_input(pairs, halves)};
    uint32_t put = net_node(pairs, IR_OP_CONCAT, "pairs", 2, half);
    net_int(pairs, put, IR_ATTR_AXIS, 3);
    net_output(pairs, net_infer(pairs, put));
    check(pairs);
    static const int64_t perms[][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}, {1, 0, 2, 3}};
    for (size_t i = 0; i < 4; i++) {
        struct ir_graph *g = ir_graph_new();
        uint32_t x = net_input(g, (int64_t[]){2, 19, 5, 7, 0});
        uint32_t node = net_node(g, IR_OP_TRANSPOSE, "transpose", 1, &x);
        net_ints(g, node, IR_ATTR_PERM, 4, perms[i]);
        net_output(g, net_infer(g, node));
        check(g);
    }
    static const int64_t starts[][4] = {{0, 16, 0, 0}, {0, 3, 1, 2}, {1, 0, 4, 0}};
    for (size_t i = 0; i < 3; i++) {
        struct ir_graph *g = ir_graph_new();
        uint32_t x = net_input(g, (int64_t[]){2, 48, 5, 7, 0});
        uint32_t node = net_node(g, IR_OP_SLICE, "slice", 1, &x);
        net_ints(g, node, IR_ATTR_STARTS, 4, starts[i]);
        net_ints(g, node, IR_ATTR_ENDS, 4, (int64_t[]){2, 32, 5, 7});
        net_ints(g, node, IR_ATTR_STEPS, 4, (int64_t[]){1, 1, 1, 1});
        net_output(g, net_infer(g, node));
        check(g);
    }
}

static void resizes(void **state)
{
    (void)state;
    static const int64_t rows[][5] = {
        /* mode, coord, nearest, h, w */
        {IR_RESIZE_NEAREST, IR_COORD_ASYMMETRIC, IR_NEAREST_FLOOR, 10, 21},
        {IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL, IR_NEAREST_ROUND_PREFER_FLOOR, 10, 14},
        {IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL, IR_NEAREST_ROUND_PREFER_FLOOR, 8, 9},
        {IR_RESIZE_LINEAR, IR_COORD_HALF_PIXEL, 0, 12, 9},
        {IR_RESIZE_LINEAR, IR_COORD_ALIGN_CORNERS, 0, 12, 9},
        {IR_RESIZE_LINEAR, IR_COORD_HALF_PIXEL, 0, 3, 30}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int64_t *r = rows[i];
        struct ir_graph *g = ir_graph_new();
        uint32_t x = net_input(g, (int64_t[]){1, 17, 5, 7, 0});
        uint32_t node = net_node(g, IR_OP_RESIZE, "resize", 1, &x);
        float scales[4] = {1, 1, (float)r[3] / 5, (float)r[4] / 7};
        net_ints(g, node, IR_ATTR_SHAPE, 4, (int64_t[]){1, 17, r[3], r[4]});
        assert_true(ir_attr_set_floats(g, node, IR_ATTR_SCALES, 4, scales));
        net_int(g, node, IR_ATTR_MODE, r[0]);
        net_int(g, node, IR_ATTR_COORD, r[1]);
        net_int(g, node, IR_ATTR_NEAREST, r[2]);
        net_output(g, net_infer(g, node));
        check(g);
    }
}

static void onednn_took_part(void **state)
{
    (void)state;
    if (onednn_seen < 500)
        fail_msg("only %u candidates were oneDNN's", onednn_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(transposed_convolutions),
        cmocka_unit_test(pools),
        cmocka_unit_test(convolutions_of_networks),
        cmocka_unit_test(products),
        cmocka_unit_test(rows_and_norms),
        cmocka_unit_test(reductions),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(moves),
        cmocka_unit_test(resizes),
        cmocka_unit_test(onednn_took_part),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
