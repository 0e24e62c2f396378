/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats become FP32 inside a graph; inputs, outputs and decisions keep their types. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/build/widen.h"
#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/same.h"

static const struct row {
    const char *what, *before, *after; /* NULL: nothing changes */
    uint32_t widened;
    double tolerance;
} rows[] = {
    {"a layer with weights",
     "input x FP16[1,2,4,4]\n"
     "c = conv \"c\" (x, w FP16[3,2,3,3], b FP16[3])\n"
     "y = unary \"y\" (c) func=relu\n"
     "output y\n",
     "input x FP16[1,2,4,4]\n"
     "%5 FP32[1,2,4,4] = cast \"x/widen\" (x) to=12\n"
     "c FP32[1,3,2,2] = conv \"c\" (%5, w FP32[3,2,3,3], b FP32[3])\n"
     "%4 FP32[1,3,2,2] = unary \"y\" (c) func=relu\n"
     "y FP16[1,3,2,2] = cast \"y/narrow\" (%4) to=10\n"
     "output y\n",
     4, 1e-3},
    {"BF16; a result that is read and an output",
     "input x BF16[4]\n"
     "a = unary \"a\" (x) func=tanh\n"
     "y = binary \"y\" (a, k BF16[4]) func=mul\n"
     "output a\n"
     "output y\n",
     "input x BF16[4]\n"
     "%4 FP32[4] = cast \"x/widen\" (x) to=12\n"
     "%1 FP32[4] = unary \"a\" (%4) func=tanh\n"
     "%3 FP32[4] = binary \"y\" (%1, k FP32[4]) func=mul\n"
     "a BF16[4] = cast \"a/narrow\" (%1) to=11\n"
     "y BF16[4] = cast \"y/narrow\" (%3) to=11\n"
     "output a\n"
     "output y\n",
     3, 1e-2},
    {"a cast of the model to 16 bits becomes one to FP32",
     "input x FP32[4]\n"
     "a = cast \"a\" (x) to=10\n"
     "b = unary \"b\" (a) func=relu\n"
     "y = cast \"y\" (b) to=12\n"
     "output y\n",
     "input x FP32[4]\n"
     "a FP32[4] = cast \"a\" (x) to=12\n"
     "b FP32[4] = unary \"b\" (a) func=relu\n"
     "y FP32[4] = cast \"y\" (b) to=12\n"
     "output y\n",
     2, 1e-3},
    {"an embedding is read in 16 bits",
     "input i INT64[3]\n"
     "e = gather \"e\" (table FP16[9,4], i) axis=0\n"
     "y = unary \"y\" (e) func=relu\n"
     "output y\n",
     "input i INT64[3]\n"
     "e FP16[3,4] = gather \"e\" (table FP16[9,4], i) axis=0\n"
     "%4 FP32[3,4] = cast \"e/widen\" (e) to=12\n"
     "%3 FP32[3,4] = unary \"y\" (%4) func=relu\n"
     "y FP16[3,4] = cast \"y/narrow\" (%3) to=10\n"
     "output y\n",
     1, 1e-3},
    {"a table that something else reads too is widened",
     "input i INT64[3]\n"
     "e = gather \"e\" (table FP16[9,4], i) axis=0\n"
     "y = matmul \"y\" (e, table) trans_b=1\n"
     "output y\n",
     "input i INT64[3]\n"
     "e FP32[3,4] = gather \"e\" (table FP32[9,4], i) axis=0\n"
     "%3 FP32[3,9] = matmul \"y\" (e, table FP32[9,4]) trans_b=1\n"
     "y FP16[3,9] = cast \"y/narrow\" (%3) to=10\n"
     "output y\n",
     3, 1e-3},
    {"a part of a table that is an output",
     "input i INT64[3]\n"
     "input x FP16[3,4]\n"
     "e = gather \"e\" (table FP16[9,4], i) axis=0\n"
     "y = unary \"y\" (x) func=relu\n"
     "output e\n"
     "output y\n",
     "input i INT64[3]\n"
     "input x FP16[3,4]\n"
     "e FP16[3,4] = gather \"e\" (table FP16[9,4], i) axis=0\n"
     "%5 FP32[3,4] = cast \"x/widen\" (x) to=12\n"
     "%4 FP32[3,4] = unary \"y\" (%5) func=relu\n"
     "y FP16[3,4] = cast \"y/narrow\" (%4) to=10\n"
     "output e\n"
     "output y\n",
     1, 1e-3},
    {"what a comparison reads is rounded, once",
     "input x FP16[4]\n"
     "a = unary \"a\" (x) func=exp\n"
     "b = binary \"b\" (a, one FP16[]=1) func=greater\n"
     "c = binary \"c\" (x, one) func=less\n"
     "d = unary \"d\" (a) func=floor\n"
     "e = select \"e\" (b, a, d)\n"
     "output c\n"
     "output e\n",
     "input x FP16[4]\n"
     "%7 FP32[4] = cast \"x/widen\" (x) to=12\n"
     "a FP32[4] = unary \"a\" (%7) func=exp\n"
     "%8 FP16[4] = cast \"a/round\" (a) to=10\n"
     "%9 FP32[4] = cast \"a/rounded\" (%8) to=12\n"
     "b BOOL[4] = binary \"b\" (%9, one FP32[]) func=greater\n"
     "c BOOL[4] = binary \"c\" (%7, one FP32[]) func=less\n"
     "d FP32[4] = unary \"d\" (%9) func=floor\n"
     "%6 FP32[4] = select \"e\" (b, a, d)\n"
     "e FP16[4] = cast \"e/narrow\" (%6) to=10\n"
     "output c\n"
     "output e\n",
     4, 1e-3},
    {"what chooses a place is rounded; NaN is NaN in any type",
     "input x FP16[2,4]\n"
     "a = unary \"a\" (x) func=exp\n"
     "b = arg_reduce \"b\" (a) func=0 axis=1\n"
     "v, p = topk \"t\" (a) axis=1 k=2\n"
     "n = unary \"n\" (a) func=is_nan\n"
     "output b\n"
     "output v\n"
     "output p\n"
     "output n\n",
     "input x FP16[2,4]\n"
     "%6 FP32[2,4] = cast \"x/widen\" (x) to=12\n"
     "a FP32[2,4] = unary \"a\" (%6) func=exp\n"
     "%7 FP16[2,4] = cast \"a/round\" (a) to=10\n"
     "%8 FP32[2,4] = cast \"a/rounded\" (%7) to=12\n"
     "b INT64[2,1] = arg_reduce \"b\" (%8) func=0 axis=1\n"
     "%3 FP32[2,2], p INT64[2,2] = topk \"t\" (%8) axis=1 k=2\n"
     "n BOOL[2,4] = unary \"n\" (a) func=is_nan\n"
     "v FP16[2,2] = cast \"v/narrow\" (%3) to=10\n"
     "output b\n"
     "output v\n"
     "output p\n"
     "output n\n",
     2, 1e-3},
    {"nothing of 16 bits",
     "input x FP32[4]\n"
     "y = unary \"y\" (x) func=relu\n"
     "output y\n",
     NULL, 0, 0},
    {"an input that only becomes FP32 is left as it is",
     "input x FP16[4]\n"
     "c = cast \"c\" (x) to=12\n"
     "y = unary \"y\" (c) func=relu\n"
     "output y\n",
     NULL, 0, 0},
};

static void run(const struct row *row)
{
    struct ir_graph *g = graph_parse(row->before);
    struct outputs want, got;
    struct error err = {0};
    uint32_t widened = 99;
    char *before = ir_graph_text(g);
    outputs_compute(g, 7, &want);
    if (build_widen(g, &widened, &err))
        fail_msg("%s: %s", row->what, err.text);
    char *after = ir_graph_text(g);
    if (strcmp(after, row->after ? row->after : before) != 0)
        fail_msg("%s: got\n%s", row->what, after);
    assert_int_equal(widened, row->widened);
    outputs_compute(g, 7, &got);
    outputs_check(&got, &want, row->tolerance, row->what);
    outputs_free(&want);
    outputs_free(&got);
    free(before);
    free(after);
    ir_graph_free(g);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        run(&rows[i]);
}

/* floor(exp(x)) of halves: FP32 would tell apart what the model's type does not. */
static void test_a_decision_sees_the_declared_precision(void **state)
{
    (void)state;
    struct ir_graph *g = graph_parse("input x FP16[1]\n"
                                     "a = binary \"a\" (x, k FP16[]=0.25) func=sub\n"
                                     "y = unary \"y\" (a) func=floor\n"
                                     "output y\n");
    const uint16_t input = f32_to_f16(2049.25F - 0.25F + 1); /* 2050; 2049.75 rounds to it */
    uint16_t output = 0;
    struct tensor_view x = {DTYPE_F16, {.rank = 1, .dim = {1}}, (void *)(uintptr_t)&input};
    struct tensor_view y = {DTYPE_F16, {.rank = 1, .dim = {1}}, &output};
    struct error err;
    uint32_t widened;
    assert_int_equal(build_widen(g, &widened, &err), STATUS_OK);
    assert_int_equal(cpu_eval_graph(g, &x, &y, &err), STATUS_OK);
    assert_true(f16_to_f32(output) == 2050);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_a_decision_sees_the_declared_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
