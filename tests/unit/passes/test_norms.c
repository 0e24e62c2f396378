/* SPDX-License-Identifier: Apache-2.0 */
/* Products that normalise the rows which they read. */
#include <string.h>

#include "base/compiler.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    {"before a block of a transformer", "fuse_norm",
     "input x FP32[2,3,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8], t FP32[8]) axis=2 epsilon=0.5\n"
     "m = matmul \"m\" (n, w FP32[8,6], b FP32[6]) then gelu\n"
     "y = matmul \"y\" (m, v FP32[6,8]) then add(x)\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "m FP32[2,3,6] = norm_matmul \"n + m\" (x, w FP32[8,6], s FP32[8], t FP32[8], b FP32[6]) "
     "epsilon=0.5 then gelu\n"
     "y FP32[2,3,8] = matmul \"y\" (m, v FP32[6,8]) then add(x)\n"
     "output y\n",
     "n + m: one product of normalised rows"},
    {"no shift, no bias, weights transposed, RMS", "fuse_norm",
     "input x FP32[5,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5 rms=1\n"
     "y = matmul \"y\" (n, w FP32[6,8]) trans_b=1\n"
     "output y\n",
     "input x FP32[5,8]\n"
     "y FP32[5,6] = norm_matmul \"n + y\" (x, w FP32[6,8], s FP32[8]) trans_b=1 epsilon=0.5 "
     "rms=1\n"
     "output y\n",
     NULL},
    {"no shift, a bias, a sum with what was there before", "fuse_norm",
     "input x FP32[5,8]\n"
     "input z FP32[5,6]\n"
     "r = unary \"r\" (z) func=exp\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5\n"
     "y = matmul \"y\" (n, w FP32[8,6], b FP32[6]) then add(r), relu, mul(z)\n"
     "output y\n",
     "input x FP32[5,8]\n"
     "input z FP32[5,6]\n"
     "r FP32[5,6] = unary \"r\" (z) func=exp\n"
     "y FP32[5,6] = norm_matmul \"n + y\" (x, w FP32[8,6], s FP32[8], -, b FP32[6]) "
     "epsilon=0.5 then add(r), relu, mul(z)\n"
     "output y\n",
     NULL},
    {"a sum with what is made behind a norm that nobody else reads", "fuse_norm",
     "input x FP32[5,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5\n"
     "r = unary \"r\" (x) func=exp\n"
     "y = matmul \"y\" (n, w FP32[8,8]) then add(r)\n"
     "output y\n",
     "input x FP32[5,8]\n"
     "r FP32[5,8] = unary \"r\" (x) func=exp\n"
     "y FP32[5,8] = norm_matmul \"n + y\" (x, w FP32[8,8], s FP32[8]) epsilon=0.5 then add(r)\n"
     "output y\n",
     NULL},
    {"the sum behind a block reads the norm before it (BERT)", "fuse_norm",
     "input x FP32[2,3,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8], t FP32[8]) axis=2 epsilon=0.5\n"
     "e = unary \"e\" (n) func=exp\n"
     "m = matmul \"m\" (n, w FP32[8,6], b FP32[6]) then gelu\n"
     "y = matmul \"y\" (m, v FP32[6,8]) then add(n), add(e)\n"
     "k = layer_norm \"k\" (y, s, t) axis=2 epsilon=0.5\n"
     "z = matmul \"z\" (k, w)\n"
     "output z\n",
     "input x FP32[2,3,8]\n"
     "m FP32[2,3,6], n FP32[2,3,8] = norm_matmul \"n + m\" (x, w FP32[8,6], s FP32[8], t FP32[8], "
     "b FP32[6]) epsilon=0.5 then gelu\n"
     "e FP32[2,3,8] = unary \"e\" (n) func=exp\n"
     "y FP32[2,3,8] = matmul \"y\" (m, v FP32[6,8]) then add(n), add(e)\n"
     "z FP32[2,3,6] = norm_matmul \"k + z\" (y, w FP32[8,6], s FP32[8], t FP32[8]) epsilon=0.5\n"
     "output z\n",
     "n + m: one product of normalised rows, which others read"},
    {"outputs of the graph keep their names", "fuse_norm",
     "input x FP32[5,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5\n"
     "y = matmul \"y\" (n, w FP32[8,6]) then add(x2 FP32[6])\n"
     "output n\noutput y\n",
     "input x FP32[5,8]\n"
     "y FP32[5,6], n FP32[5,8] = norm_matmul \"n + y\" (x, w FP32[8,6], s FP32[8]) "
     "epsilon=0.5 then add(x2 FP32[6])\n"
     "output n\noutput y\n",
     NULL},
    {"one product takes the norm, another one reads its rows", "fuse_norm",
     "input x FP32[5,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5\n"
     "a = matmul \"a\" (n, w FP32[8,6])\n"
     "b = matmul \"b\" (n, v FP32[8,6]) then swish, mul(a)\n"
     "output b\n",
     "input x FP32[5,8]\n"
     "a FP32[5,6], n FP32[5,8] = norm_matmul \"n + a\" (x, w FP32[8,6], s FP32[8]) "
     "epsilon=0.5\n"
     "b FP32[5,6] = matmul \"b\" (n, v FP32[8,6]) then swish, mul(a)\n"
     "output b\n",
     "b: n + a has the norm"},
    {"products that stay behind their norm", "fuse_norm",
     "input x FP32[2,4,8]\n"
     "input c FP32[8,8]\n"
     "input d FP32[8]\n"
     "a = layer_norm \"a\" (x, s FP32[8]) axis=2 epsilon=0.5\n"
     "b = matmul \"b\" (a, c)\n" /* computed weights */
     "e = layer_norm \"e\" (x, s) axis=2 epsilon=0.5\n"
     "f = matmul \"f\" (e, w FP32[8,8], d)\n" /* a computed bias */
     "g = layer_norm \"g\" (x, s) axis=2 epsilon=0.5\n"
     "h = matmul \"h\" (g, u FP32[2,8,8])\n" /* several matrices */
     "i = layer_norm \"i\" (x, s) axis=2 epsilon=0.5\n"
     "j = matmul \"j\" (i, r FP32[4,8]) trans_a=1\n" /* columns are normalised */
     "k = layer_norm \"k\" (x, s) axis=2 epsilon=0.5\n"
     "l = matmul \"l\" (k, w) alpha=2.0\n" /* a scale */
     "m = layer_norm \"m\" (x, s) axis=1 epsilon=0.5\n"
     "n = matmul \"n\" (m, w)\n" /* of two dimensions */
     "o = layer_norm \"o\" (x, d) axis=2 epsilon=0.5\n"
     "p = matmul \"p\" (o, w)\n" /* a computed scale */
     "q = layer_norm \"q\" (x, s, one FP32[]) axis=2 epsilon=0.5\n"
     "t = matmul \"t\" (q, w)\n" /* one shift for all */
     "v = layer_norm \"v\" (x, s) axis=2 epsilon=0.5 then relu\n"
     "y = matmul \"y\" (v, w)\n" /* a step between */
     "output b\noutput f\noutput h\noutput j\noutput l\noutput n\noutput p\noutput t\noutput y\n",
     NULL, "q + t: its scale or shift is no constant for each column"},
    {"a product that needs what is made of the norm", "fuse_norm",
     "input x FP32[5,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8]) axis=1 epsilon=0.5\n"
     "e = unary \"e\" (n) func=exp\n"
     "a = matmul \"a\" (n, w FP32[8,8]) then add(n)\n"
     "b = matmul \"b\" (n, w) then add(e)\n"
     "output a\noutput b\n",
     NULL, "n + a: others read the norm, and the product may need what they make of it"},
};

static void rewrites(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

static bool takes_named(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    bool stored = strcmp(node->name, "a + b") == 0;
    assert_int_equal(node->op, IR_OP_NORM_MATMUL);
    assert_int_equal(node->n_epilogue, 1);
    assert_int_equal(node->n_outputs, stored ? 2 : 1);
    assert_int_equal(ir_tensor(graph, node->outputs[0])->shape.dim[1], 6);
    return strcmp(node->name, user) == 0;
}

/* What is not asked for, or not taken, stays; what is taken is noted by its names. The device sees
 * the outputs that the node would have. */
static void products_are_asked_and_noted(void **state)
{
    (void)state;
    static const char text[] = "input x FP32[4,8]\n"
                               "a = layer_norm \"a\" (x, s FP32[8]) axis=1\n"
                               "b = matmul \"b\" (a, w FP32[8,6]) then relu\n"
                               "c = matmul \"c\" (b, v FP32[6,8]) then add(a)\n"
                               "d = layer_norm \"d\" (c, s) axis=1\n"
                               "e = matmul \"e\" (d, w) then relu\n"
                               "output e\n";
    static const char *const wanted[] = {"", "a + b", "d + e"};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        struct ir_graph *g = graph_parse(text);
        struct pass_pairs pairs = {0};
        struct pass_context ctx = {.takes = takes_named,
                                   .takes_user = (void *)(uintptr_t)wanted[i]};
        struct error err = {0};
        assert_int_equal(pass_run(pass_find("fuse_norm"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(ctx.rewrites, 0);
        ctx.pairs = &pairs;
        assert_int_equal(pass_run(pass_find("fuse_norm"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(pairs.n, i > 0);
        assert_int_equal(g->n_nodes, i > 0 ? 4 : 5);
        if (i > 0) {
            assert_string_equal(pairs.row[0].both, wanted[i]);
            assert_string_equal(pairs.row[0].first, i == 1 ? "a" : "d");
            assert_string_equal(pairs.row[0].second, i == 1 ? "b" : "e");
        }
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rewrites),
                                       cmocka_unit_test(products_are_asked_and_noted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
