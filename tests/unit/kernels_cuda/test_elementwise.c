/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_map, kernel_binary, kernel_select against the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/cases.h"

static const enum dtype floats[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};

static enum dtype any_float(void)
{
    return floats[case_draw(3)];
}

static enum dtype any_dtype(void)
{
    return (enum dtype)(DTYPE_BOOL + case_draw(DTYPE_F64));
}

/* --- epilogues --- */

struct steps {
    struct kernel_epilogue e;
    struct case_tensor operand[KERNEL_STEPS_MAX];
    int32_t n_operands;
};

static void steps_draw(struct steps *s, const struct kernel_view *y, int32_t n)
{
    static const int unaries[] = {IR_UNARY_RELU, IR_UNARY_SIGMOID, IR_UNARY_GELU,
                                  IR_UNARY_CLIP, IR_UNARY_LINEAR,  IR_UNARY_ELU};
    static const int binaries[] = {IR_BINARY_ADD, IR_BINARY_MUL, IR_BINARY_SUB, IR_BINARY_MAX,
                                   IR_BINARY_PRELU};
    *s = (struct steps){.e.n = n};
    for (int32_t i = 0; i < n; i++) {
        struct kernel_step *step = &s->e.step[i];
        step->alpha = 0.5F, step->beta = 1.5F, step->gamma = 1;
        step->binary = case_draw(2) != 0;
        step->func = step->binary ? binaries[case_draw(5)] : unaries[case_draw(6)];
        if (!step->binary)
            continue;
        struct case_tensor *o = &s->operand[s->n_operands++];
        *o =
            case_operand(any_float(), y, case_draw(1U << y->rank),
                         (enum case_layout[]){CASE_PLAIN, CASE_LAST, CASE_ANY_ORDER}[case_draw(3)]);
        case_fill(o);
        step->operand = o->view;
    }
}

/* In place in fp32. */
static void steps_apply(const struct steps *s, const struct tensor_view *v)
{
    for (int32_t i = 0, o = 0; i < s->e.n; i++) {
        const struct kernel_step *step = &s->e.step[i];
        if (step->binary)
            ref_binary((enum ir_binary)step->func, false, v, &s->operand[o++].dense, v);
        else
            ref_unary((enum ir_unary)step->func, (double)step->alpha, (double)step->beta,
                      (double)step->gamma, v, v);
    }
}

static void steps_free(struct steps *s)
{
    for (int32_t i = 0; i < s->n_operands; i++)
        case_free(&s->operand[i]);
}

/* --- kernel_map --- */

struct map_case {
    enum dtype x, y;
    enum case_layout from, to;
    int32_t rank;
    int64_t dim[KERNEL_RANK_MAX];
    int32_t steps;
    unsigned once; /* dims along which x is one number */
};

static void map_check(const struct map_case *c)
{
    struct case_tensor y = case_new(c->y, c->rank, c->dim, c->to);
    struct case_tensor x = c->once ? case_operand(c->x, &y.view, c->once, c->from)
                                   : case_new(c->x, c->rank, c->dim, c->from);
    struct steps s;
    case_fill(&x);
    steps_draw(&s, &y.view, c->steps);
    struct tensor_view want = case_dense(c->y, &x.dense.shape);
    if (c->steps == 0) {
        ref_cast(&x.dense, &want);
    } else {
        struct tensor_view wide = case_dense(DTYPE_F32, &x.dense.shape);
        ref_cast(&x.dense, &wide);
        steps_apply(&s, &wide);
        ref_cast(&wide, &want);
        free(wide.data);
    }
    struct kernel_call dry = case_call;
    dry.dry = true;
    cudaError_t said = kernel_map(&dry, &x.view, &y.view, y.padded, &s.e);
    assert_int_equal(said, cudaSuccess);
    assert_int_equal(kernel_map(&case_call, &x.view, &y.view, y.padded, &s.e), cudaSuccess);
    case_check(&y, &want, c->steps ? 4 * case_precision(c->y) : 0);
    steps_free(&s);
    free(want.data);
    case_free(&x);
    case_free(&y);
}

static void test_cast_every_type(void **state)
{
    (void)state;
    case_seed(1);
    for (int x = DTYPE_BOOL; x < DTYPE_COUNT_; x++)
        for (int y = DTYPE_BOOL; y < DTYPE_COUNT_; y++) {
            map_check(&(struct map_case){(enum dtype)x,
                                         (enum dtype)y,
                                         CASE_PLAIN,
                                         CASE_PLAIN,
                                         1,
                                         {(int64_t[]){4096, 999, 1}[case_draw(3)]},
                                         0,
                                         0});
            map_check(&(struct map_case){(enum dtype)x,
                                         (enum dtype)y,
                                         CASE_ANY_ORDER,
                                         CASE_GAPS,
                                         3,
                                         {3, 5, 16},
                                         0,
                                         case_draw(8)});
        }
}

static void test_map_layouts(void **state)
{
    (void)state;
    case_seed(2);
    for (int i = 0; i < 400; i++) {
        struct map_case c = {.x = any_float(), .y = any_float(), .rank = 4};
        if (case_draw(4) == 0)
            c.x = case_draw(2) ? DTYPE_U8 : DTYPE_BOOL;
        if (case_draw(2) == 0)
            c.y = c.x == DTYPE_U8 || c.x == DTYPE_BOOL ? c.y : c.x;
        c.from = (enum case_layout)case_draw(4);
        c.to = (enum case_layout)case_draw(4);
        c.dim[0] = 1 + case_draw(3);
        c.dim[1] = (int64_t[]){1, 3, 4, 8, 16, 24, 65, 128}[case_draw(8)];
        c.dim[2] = 1 + case_draw(12);
        c.dim[3] = (int64_t[]){1, 7, 8, 12, 16}[case_draw(5)];
        c.steps = (int32_t)case_draw(4);
        map_check(&c);
    }
}

static void test_map_images(void **state)
{
    (void)state;
    case_seed(3);
    static const enum dtype from[] = {DTYPE_U8, DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < 120; i++) {
        struct map_case c = {.x = from[case_draw(4)], .y = any_float(), .rank = 4};
        c.from = CASE_PLAIN;
        c.to = case_draw(2) ? CASE_LAST_4 : CASE_LAST_8;
        c.dim[0] = 1 + case_draw(3);
        c.dim[1] = 1 + case_draw(8);
        c.dim[2] = 1 + case_draw(40);
        c.dim[3] = 1 + case_draw(40);
        c.steps = (int32_t)case_draw(3);
        map_check(&c);
    }
}

static void test_map_orders(void **state)
{
    (void)state;
    case_seed(4);
    for (int i = 0; i < 300; i++) {
        struct map_case c = {.x = any_float(), .rank = 1 + (int32_t)case_draw(4)};
        c.y = case_draw(3) ? c.x : any_float();
        c.from = (enum case_layout)(CASE_ANY_ORDER + case_draw(2));
        c.to = (enum case_layout)(CASE_ANY_ORDER + case_draw(2));
        for (int d = 0; d < c.rank; d++)
            c.dim[d] = (int64_t[]){1, 2, 5, 8, 16, 24}[case_draw(6)];
        c.once = case_draw(3) ? 0 : case_draw(1U << c.rank);
        c.steps = (int32_t)case_draw(3);
        map_check(&c);
    }
}

/* Tiles at the edges of the tensor, and more than one tile in each direction. */
static void test_transpose(void **state)
{
    (void)state;
    case_seed(5);
    static const enum dtype types[] = {DTYPE_U8,  DTYPE_I16, DTYPE_F16,
                                       DTYPE_F32, DTYPE_I64, DTYPE_BF16};
    for (int i = 0; i < 60; i++) {
        enum dtype t = types[case_draw(6)];
        struct map_case c = {.x = t, .y = t, .rank = 3, .from = CASE_PLAIN, .to = CASE_LAST};
        if (case_draw(2)) {
            c.from = CASE_LAST;
            c.to = CASE_PLAIN;
        }
        c.dim[0] = 1 + case_draw(2);
        c.dim[1] = 60 + case_draw(140);
        c.dim[2] = 60 + case_draw(140);
        if (case_draw(2)) {
            c.dim[1] &= ~INT64_C(15);
            c.dim[2] &= ~INT64_C(15);
        }
        map_check(&c);
    }
}

static void unary_check(int func, enum dtype x, enum dtype y)
{
    float a = 0.5F, b = 1.5F;
    struct case_tensor tx = case_new(x, 1, (int64_t[]){300}, CASE_PLAIN);
    struct case_tensor ty = case_new(y, 1, (int64_t[]){300}, CASE_PLAIN);
    case_fill(&tx);
    if (dtype_is_float(x)) {
        float special[] = {0.0F, -0.0F, NAN, INFINITY, -INFINITY, 0.999F, -1.0F};
        struct tensor_view from = VIEW(DTYPE_F32, special, 7), to = tx.dense;
        to.shape = from.shape;
        ref_cast(&from, &to);
        case_scatter(&tx);
    }
    struct tensor_view want = case_dense(y, &tx.dense.shape);
    ref_unary((enum ir_unary)func, (double)a, (double)b, 1.25, &tx.dense, &want);
    struct kernel_epilogue e = {.n = 1,
                                .step[0] = {.func = func, .alpha = a, .beta = b, .gamma = 1.25F}};
    assert_int_equal(kernel_map(&case_call, &tx.view, &ty.view, 0, &e), cudaSuccess);
    case_check(&ty, &want, !dtype_is_float(y) ? 0 : y == DTYPE_F64 ? 1e-12 : 2 * case_precision(y));
    free(want.data);
    case_free(&tx);
    case_free(&ty);
}

static void test_unary_functions(void **state)
{
    (void)state;
    case_seed(6);
    for (int func = IR_UNARY_IDENTITY; func < IR_UNARY_COUNT_; func++) {
        enum dtype out =
            func == IR_UNARY_IS_NAN || func == IR_UNARY_IS_INF ? DTYPE_BOOL : DTYPE_NONE;
        if (func == IR_UNARY_NOT || func == IR_UNARY_BITWISE_NOT)
            continue;
        unary_check(func, DTYPE_F16, out ? out : DTYPE_F16);
        unary_check(func, DTYPE_BF16, out ? out : DTYPE_BF16);
        unary_check(func, DTYPE_F32, out ? out : DTYPE_F32);
        unary_check(func, DTYPE_F64, out ? out : DTYPE_F64);
    }
    static const int ints[] = {IR_UNARY_RELU,   IR_UNARY_CLIP,       IR_UNARY_ABS,
                               IR_UNARY_NEG,    IR_UNARY_SIGN,       IR_UNARY_LINEAR,
                               IR_UNARY_SHRINK, IR_UNARY_BITWISE_NOT};
    for (int dtype = DTYPE_U8; dtype <= DTYPE_I64; dtype++)
        for (size_t i = 0; i < ARRAY_LEN(ints); i++)
            unary_check(ints[i], (enum dtype)dtype, (enum dtype)dtype);
    unary_check(IR_UNARY_NOT, DTYPE_BOOL, DTYPE_BOOL);
}

static void test_int64_is_exact(void **state)
{
    (void)state;
    int64_t x[] = {INT64_MAX, INT64_MIN, (INT64_C(1) << 53) + 1, -(INT64_C(1) << 53) - 1};
    int64_t y[4], want[] = {INT64_MAX, INT64_MIN, (INT64_C(1) << 53) + 1, (INT64_C(1) << 53) + 1};
    struct kernel_view vx = {.data = x, .dtype = DTYPE_I64, .rank = 1, .dim = {4}, .stride = {1}},
                       vy = {.data = y, .dtype = DTYPE_I64, .rank = 1, .dim = {4}, .stride = {1}};
    struct kernel_epilogue e = {.n = 1, .step[0] = {.func = IR_UNARY_ABS}};
    assert_int_equal(kernel_map(&case_call, &vx, &vy, 0, &e), cudaSuccess);
    assert_memory_equal(y, want, sizeof(want));
}

/* --- kernel_binary --- */

static void binary_check(int func, bool fmod, enum dtype in, int steps)
{
    bool truth = func >= IR_BINARY_EQUAL && func <= IR_BINARY_XOR;
    enum dtype out = truth ? DTYPE_BOOL : in;
    int64_t dims[4] = {1 + case_draw(3), 1 + case_draw(5), (int64_t[]){1, 4, 9}[case_draw(3)],
                       (int64_t[]){1, 8, 16, 13}[case_draw(4)]};
    static const enum case_layout layouts[] = {CASE_PLAIN, CASE_LAST, CASE_ANY_ORDER};
    enum case_layout layout = layouts[case_draw(3)];
    bool ordered = layout != CASE_ANY_ORDER;
    struct case_tensor y = case_new(out, 4, dims, layout);
    struct case_tensor a = case_operand(in, &y.view, case_draw(2) ? 0 : case_draw(16),
                                        ordered ? layout : layouts[case_draw(3)]);
    struct case_tensor b = case_operand(in, &y.view, case_draw(2) ? 0 : case_draw(16),
                                        ordered ? layout : layouts[case_draw(3)]);
    case_fill(&a);
    case_fill(&b);
    struct steps s;
    steps_draw(&s, &y.view, steps);
    struct tensor_view want = case_dense(out, &y.dense.shape);
    if (steps) {
        struct tensor_view wide = case_dense(DTYPE_F32, &y.dense.shape);
        struct tensor_view wa = case_dense(DTYPE_F32, &y.dense.shape);
        struct tensor_view wb = case_dense(DTYPE_F32, &y.dense.shape);
        ref_cast(&a.dense, &wa);
        ref_cast(&b.dense, &wb);
        ref_binary((enum ir_binary)func, fmod, &wa, &wb, &wide);
        steps_apply(&s, &wide);
        ref_cast(&wide, &want);
        free(wide.data);
        free(wa.data);
        free(wb.data);
    } else {
        ref_binary((enum ir_binary)func, fmod, &a.dense, &b.dense, &want);
    }
    assert_int_equal(kernel_binary(&case_call, func, fmod, &a.view, &b.view, &y.view, &s.e),
                     cudaSuccess);
    case_check(&y, &want,
               !dtype_is_float(out) ? 0
               : out == DTYPE_F64   ? 1e-12
                                    : 6 * case_precision(out));
    steps_free(&s);
    free(want.data);
    case_free(&a);
    case_free(&b);
    case_free(&y);
}

static void test_binary_functions(void **state)
{
    (void)state;
    case_seed(7);
    for (int func = IR_BINARY_ADD; func < IR_BINARY_COUNT_; func++) {
        bool logic = func == IR_BINARY_AND || func == IR_BINARY_OR || func == IR_BINARY_XOR;
        bool bits = func >= IR_BINARY_SHIFT_LEFT;
        for (int dtype = DTYPE_BOOL; dtype < DTYPE_COUNT_; dtype++) {
            bool is_float = dtype_is_float((enum dtype)dtype);
            if (logic != (dtype == DTYPE_BOOL) || (bits && is_float) || dtype == DTYPE_F8)
                continue;
            for (int i = 0; i < 6; i++)
                binary_check(func, false, (enum dtype)dtype, 0);
            if (func == IR_BINARY_MOD)
                binary_check(func, true, (enum dtype)dtype, 0);
        }
    }
}

static void test_binary_epilogue(void **state)
{
    (void)state;
    case_seed(8);
    static const int funcs[] = {IR_BINARY_ADD, IR_BINARY_MUL, IR_BINARY_SUB, IR_BINARY_MAX};
    for (int i = 0; i < 300; i++)
        binary_check(funcs[case_draw(4)], false, any_float(), 1 + (int)case_draw(3));
}

static void test_select(void **state)
{
    (void)state;
    case_seed(9);
    for (int i = 0; i < 200; i++) {
        enum dtype dtype = any_dtype();
        int64_t dims[3] = {1 + case_draw(3), 1 + case_draw(5), 1 + case_draw(16)};
        struct case_tensor y = case_new(dtype, 3, dims, CASE_PLAIN);
        struct case_tensor c = case_operand(DTYPE_BOOL, &y.view, case_draw(8), CASE_PLAIN);
        struct case_tensor a = case_operand(dtype, &y.view, case_draw(8), CASE_ANY_ORDER);
        struct case_tensor b = case_operand(dtype, &y.view, 0, CASE_PLAIN);
        case_fill(&c);
        case_fill(&a);
        case_fill(&b);
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        ref_select(&c.dense, &a.dense, &b.dense, &want);
        assert_int_equal(kernel_select(&case_call, &c.view, &a.view, &b.view, &y.view, NULL),
                         cudaSuccess);
        case_check(&y, &want, 0);
        free(want.data);
        case_free(&a);
        case_free(&b);
        case_free(&c);
        case_free(&y);
    }
}

static void test_empty_and_refused(void **state)
{
    (void)state;
    struct kernel_view x = {
        .data = NULL, .dtype = DTYPE_F32, .rank = 2, .dim = {0, 4}, .stride = {4, 1}};
    assert_int_equal(kernel_map(&case_call, &x, &x, 0, NULL), cudaSuccess);
    assert_int_equal(kernel_binary(&case_call, IR_BINARY_ADD, false, &x, &x, &x, NULL),
                     cudaSuccess);
    struct kernel_view big = {.data = NULL,
                              .dtype = DTYPE_F32,
                              .rank = 2,
                              .dim = {1 << 16, 1 << 16},
                              .stride = {1 << 16, 1}};
    assert_int_equal(kernel_map(&case_call, &big, &big, 0, NULL), cudaErrorNotSupported);
    struct kernel_view d = {.data = NULL, .dtype = DTYPE_F64, .rank = 1, .dim = {4}, .stride = {1}};
    struct kernel_epilogue e = {.n = 1, .step[0] = {.func = IR_UNARY_RELU}};
    assert_int_equal(kernel_binary(&case_call, IR_BINARY_ADD, false, &d, &d, &d, &e),
                     cudaErrorNotSupported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_every_type),   cmocka_unit_test(test_map_layouts),
        cmocka_unit_test(test_map_images),        cmocka_unit_test(test_map_orders),
        cmocka_unit_test(test_transpose),         cmocka_unit_test(test_unary_functions),
        cmocka_unit_test(test_int64_is_exact),    cmocka_unit_test(test_binary_functions),
        cmocka_unit_test(test_binary_epilogue),   cmocka_unit_test(test_select),
        cmocka_unit_test(test_empty_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
