/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 16-bit floats on Hopper: every row of the kernel's table, on shapes whose edges lie
 * within tiles, against sums in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/op_enums.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"
#include "tests/unit/kernels_cuda/probe.h"

struct matmul_case {
    enum dtype dtype;
    int64_t rows, cols, depth;
    enum ir_unary func;
    bool biased, residual, late;
    float scale;
    int32_t blocks; /* multiprocessors */
    int64_t second; /* depth of a second source; 0: there is none */
};

static double apply(enum ir_unary func, double x, double alpha)
{
    switch (func) {
    case IR_UNARY_RELU:
        return x < 0 ? 0 : x;
    case IR_UNARY_GELU:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case IR_UNARY_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case IR_UNARY_SWISH:
        return x / (1 + exp(-alpha * x));
    default:
        return x;
    }
}

/* The weights w [cols, depth] as the kernel wants them; the caller frees them. */
static uint16_t *packed_new(const struct array *w, int64_t cols, int64_t depth)
{
    int64_t pitch = (depth + 7) / 8 * 8, rows = kernel_matmul_packed_rows(cols);
    void *to = NULL;
    assert_int_equal(posix_memalign(&to, 16, (size_t)(rows * pitch * 2)), 0);
    memset(to, 0, (size_t)(rows * pitch * 2));
    for (int64_t c = 0; c < cols; c++)
        memcpy((uint16_t *)to + kernel_matmul_packed_row(1, c) * pitch,
               (const uint16_t *)w->view.data + c * depth, (size_t)depth * 2);
    return to;
}

struct matmul_data {
    struct array a, w, a2, w2, bias, residual, y;
    uint16_t *packed, *packed2;
    bool wide; /* y is FP32 */
};

static struct matmul_data data_new(const struct matmul_case *c, bool wide)
{
    struct matmul_data d = {
        .a = ARRAY(c->dtype, NULL, c->rows, c->depth),
        .w = ARRAY(c->dtype, NULL, c->cols, c->depth),
        .a2 = ARRAY(c->dtype, NULL, c->rows, MAX(c->second, 1)),
        .w2 = ARRAY(c->dtype, NULL, c->cols, MAX(c->second, 1)),
        .bias = ARRAY(c->dtype, NULL, c->cols),
        .residual = ARRAY(c->dtype, NULL, c->rows, c->cols),
        .y = ARRAY(wide ? DTYPE_F32 : c->dtype, NULL, c->rows, c->cols),
        .wide = wide,
    };
    d.packed = packed_new(&d.w, c->cols, c->depth);
    d.packed2 = packed_new(&d.w2, c->cols, MAX(c->second, 1));
    return d;
}

static void data_free(struct matmul_data *d)
{
    array_free(&d->a), array_free(&d->w), array_free(&d->bias), array_free(&d->residual);
    array_free(&d->y), array_free(&d->a2), array_free(&d->w2);
    free(d->packed);
    free(d->packed2);
}

static struct kernel_matmul arguments(const struct matmul_case *c, const struct matmul_data *d)
{
    return (struct kernel_matmul){
        .rows = c->rows,
        .cols = c->cols,
        .depth = c->depth,
        .second = {.depth = c->second, .a = d->a2.view.data, .b = d->packed2},
        .dtype = (int32_t)c->dtype,
        .func = (int32_t)c->func,
        .scale = c->scale,
        .alpha = 1.25F,
        .late = c->late,
        .wide = d->wide,
        .a = d->a.view.data,
        .b = d->packed,
        .bias = c->biased ? d->bias.view.data : NULL,
        .residual = c->residual ? d->residual.view.data : NULL,
        .y = d->y.view.data,
    };
}

static void reference(const struct matmul_case *c, struct matmul_data *d)
{
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t n = 0; n < c->cols; n++) {
            const float *a = array_values(&d->a) + r * c->depth;
            const float *w = array_values(&d->w) + n * c->depth;
            double sum = 0, z = array_values(&d->residual)[r * c->cols + n];
            for (int64_t k = 0; k < c->depth; k++)
                sum += (double)a[k] * w[k];
            for (int64_t k = 0; k < c->second; k++)
                sum += (double)array_values(&d->a2)[r * c->second + k] *
                       array_values(&d->w2)[n * c->second + k];
            sum = sum * c->scale + (c->biased ? array_values(&d->bias)[n] : 0);
            sum += c->residual && !c->late ? z : 0;
            sum = apply(c->func, sum, 1.25) + (c->residual && c->late ? z : 0);
            array_values(&d->y)[r * c->cols + n] = (float)sum;
        }
}

/* Variants that share a tile's depth between blocks: the tile's columns, and the blocks. */
static bool shares(int variant, int64_t *columns, int64_t *blocks)
{
    enum { FIRST = 8 };
    *columns = variant < FIRST ? 0 : INT64_C(32) << (variant - FIRST) / 3;
    *blocks = variant < FIRST ? 1 : INT64_C(2) << (variant - FIRST) % 3;
    return variant >= FIRST;
}

/* Those are for few tiles, and for a depth of as many steps of 64 as there are blocks. Of the
 * others, those from APART on write FP32. */
static bool taken(const struct matmul_case *c, int variant, bool wide)
{
    enum { APART = 4 };
    int64_t columns, blocks;
    if (!shares(variant, &columns, &blocks))
        return !wide || variant >= APART;
    return (c->depth + 63) / 64 + (c->second + 63) / 64 >= blocks &&
           (c->rows + 63) / 64 * ((c->cols + columns - 1) / columns) * blocks <= 8 * c->blocks;
}

/* With sanitizers, variants take turns at the cases. */
static void check_as(const struct matmul_case *c, int first, bool wide)
{
    static int turn;
    struct matmul_data d = data_new(c, wide);
    struct kernel_matmul p = arguments(c, &d);
    reference(c, &d);
    turn++;
    for (int variant = first; variant < KERNEL_MATMUL_PATCH; variant++) {
        char what[120];
        if ((variant + turn) % EMULATED_SHARE != 0)
            continue;
        struct kernel_call call = {
            .variant = variant, .multiprocessors = c->blocks, .capability = 90};
        snprintf(what, sizeof(what), "variant %d: %s %dx%dx%d func %d", variant,
                 dtype_name(c->dtype), (int)c->rows, (int)c->cols, (int)c->depth, (int)c->func);
        array_poison(&d.y);
        assert_int_equal(kernel_matmul(&call, &p),
                         taken(c, variant, wide) ? cudaSuccess : cudaErrorNotSupported);
        if (!taken(c, variant, wide))
            continue;
        array_check(&d.y, c->dtype == DTYPE_F16 ? 3e-4 : 2e-3, what);
    }
    data_free(&d);
}

static void check_case(const struct matmul_case *c, int first)
{
    check_as(c, first, false);
}

/* Edges within tiles and within a thread's columns, rounds of the ring that do not end with a tile,
 * blocks with none, one and several tiles. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct matmul_case cases[] = {
        {DTYPE_F16, 1, 8, 8, IR_UNARY_IDENTITY, true, false, false, 1, 132, 0},
        {DTYPE_F16, 1, 3, 40, IR_UNARY_IDENTITY, true, true, false, 1, 2, 0},
        {DTYPE_F16, 128, 256, 64, IR_UNARY_IDENTITY, false, false, false, 1, 132, 0},
        {DTYPE_BF16, 129, 257, 72, IR_UNARY_RELU, true, true, false, 0.5F, 2, 0},
        {DTYPE_F16, 77, 200, 328, IR_UNARY_GELU, true, false, false, 1, 1, 0},
        {DTYPE_F16, 300, 333, 136, IR_UNARY_IDENTITY, true, true, false, 1, 3, 0},
        {DTYPE_BF16, 260, 520, 200, IR_UNARY_SWISH, true, false, false, 1, 1, 0},
        {DTYPE_F16, 1100, 40, 64, IR_UNARY_GELU_TANH, true, true, true, 1, 2, 0},
        {DTYPE_F16, 65, 1000, 16, IR_UNARY_RELU, false, true, true, 1, 2, 0},
        {DTYPE_F16, 70, 264, 72, IR_UNARY_RELU, true, true, false, 1, 2, 0},
        {DTYPE_BF16, 130, 200, 64, IR_UNARY_IDENTITY, true, true, false, 1, 2, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i], 1);
}

/* Results of FP32 whose rows begin at each place within 16 bytes, and end at each; of one tile and
 * of several. */
static void test_wide(void **state)
{
    (void)state;
    static const struct matmul_case cases[] = {
        {DTYPE_F16, 5, 1, 8, IR_UNARY_IDENTITY, false, false, false, 1, 2, 0},
        {DTYPE_F16, 130, 257, 72, IR_UNARY_IDENTITY, false, false, false, 1, 2, 0},
        {DTYPE_BF16, 67, 515, 72, IR_UNARY_RELU, true, true, false, 0.5F, 1, 0},
        {DTYPE_F16, 70, 322, 136, IR_UNARY_GELU, true, true, true, 1, 2, 0},
        {DTYPE_F16, 9, 31, 64, IR_UNARY_IDENTITY, true, false, false, 1, 2, 0},
        {DTYPE_F16, 200, 63, 64, IR_UNARY_SWISH, true, false, false, 1, 1, 0},
        {DTYPE_BF16, 66, 256, 64, IR_UNARY_IDENTITY, true, false, false, 1, 2, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_as(&cases[i], 1, true);
}

/* Few rows and much depth, which clusters of blocks share: rows of one unit and of more than a
 * tile, depths that blocks share unevenly, and rounds of the ring. */
static void test_shared_depth(void **state)
{
    (void)state;
    static const struct matmul_case cases[] = {
        {DTYPE_F16, 1, 96, 520, IR_UNARY_GELU, true, true, false, 1, 132, 0},
        {DTYPE_F16, 9, 130, 1032, IR_UNARY_IDENTITY, true, true, false, 0.5F, 132, 0},
        {DTYPE_BF16, 64, 257, 584, IR_UNARY_RELU, true, true, true, 1, 132, 0},
        {DTYPE_F16, 67, 64, 2496, IR_UNARY_SWISH, false, false, false, 1, 132, 0},
        {DTYPE_BF16, 130, 40, 4480, IR_UNARY_GELU_TANH, true, true, false, 1, 132, 0},
        {DTYPE_F16, 3, 104, 2048, IR_UNARY_IDENTITY, true, false, false, 1, 132, 0},
        {DTYPE_BF16, 65, 101, 520, IR_UNARY_RELU, true, true, false, 1, 132, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_case(&cases[i], 8);
        check_as(&cases[i], 1, true);
        for (int variant = 8; variant < KERNEL_MATMUL_PATCH; variant++)
            assert_true(taken(&cases[i], variant, false));
    }
}

/* Both sources end within a step, are one step or several, and fill the ring together. */
static void test_two_sources(void **state)
{
    (void)state;
    static const struct matmul_case cases[] = {
        {DTYPE_F16, 1, 8, 8, IR_UNARY_IDENTITY, true, false, false, 1, 132, 8},
        {DTYPE_F16, 300, 333, 136, IR_UNARY_RELU, true, true, false, 1, 3, 200},
        {DTYPE_BF16, 129, 257, 64, IR_UNARY_RELU, true, false, false, 1, 2, 72},
        {DTYPE_F16, 260, 136, 712, IR_UNARY_RELU, true, false, false, 0.5F, 2, 64},
        {DTYPE_BF16, 67, 64, 200, IR_UNARY_SWISH, false, true, true, 1, 132, 584},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i], 1);
}

/* --- each instruction that orders is needed --- */

/* What is run again and again; sums are taken once. */
struct left_out {
    struct kernel_call call;
    struct kernel_matmul p;
    struct matmul_data d;
};

static int run_left_out(const void *user)
{
    const struct left_out *k = user;
    array_poison(&k->d.y);
    return kernel_matmul(&k->call, &k->p) == cudaSuccess && !array_f16_is_near(&k->d.y);
}

static int left_out_of(const struct matmul_case *c, int32_t variant)
{
    struct left_out k = {
        .call = {.variant = variant, .multiprocessors = c->blocks, .capability = 90},
        .d = data_new(c, false),
    };
    char what[32];
    reference(c, &k.d);
    k.p = arguments(c, &k.d);
    snprintf(what, sizeof(what), "variant %d", variant);
    int faults = left_out_all(what, run_left_out, &k);
    data_free(&k.d);
    return faults;
}

/* Leaves out one wait, arrival, fence or commit after the other, of a kernel of each kind, and lets
 * waits for products wait for one group less. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        int32_t variant;
        struct matmul_case c;
    } kernels[] = {
        {3, {DTYPE_F16, 260, 136, 648, IR_UNARY_RELU, true, true, false, 1, 2, 0}},
        {7, {DTYPE_F16, 260, 136, 968, IR_UNARY_RELU, true, true, false, 1, 2, 0}},
        {9, {DTYPE_F16, 65, 72, 2584, IR_UNARY_RELU, true, true, false, 1, 132, 0}},
        {1, {DTYPE_F16, 260, 136, 392, IR_UNARY_RELU, true, false, false, 1, 2, 264}},
    };
    int faults = 0;
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++) {
        int first = probe_sites(), least = 8;
        faults += left_out_of(&kernels[i].c, kernels[i].variant);
        assert_true(probe_sites() - first >= least);
    }
    print_message("%d faults found\n", faults);
}

/* The exact GELU of every number that there is: the sum is 0, the bias is the number. */
static void test_gelu(void **state)
{
    (void)state;
    enum { NUMBERS = 1 << 16 };
    struct matmul_case c = {DTYPE_F16, 1, NUMBERS, 8, IR_UNARY_GELU, true, false, false, 1, 132, 0};
    struct matmul_data d = data_new(&c, false);
    struct kernel_matmul p = arguments(&c, &d);
    struct kernel_call call = {.variant = 1, .multiprocessors = 132, .capability = 90};
    uint16_t *bias = d.bias.view.data, *y = d.y.view.data;
    memset(d.a.view.data, 0, 16);
    for (int i = 0; i < NUMBERS; i++)
        bias[i] = (uint16_t)i;
    assert_int_equal(kernel_matmul(&call, &p), cudaSuccess);
    for (int i = 0; i < NUMBERS; i++) {
        double x = f16_to_f32((uint16_t)i), want = apply(IR_UNARY_GELU, x, 0),
               got = f16_to_f32(y[i]);
        if (isnan(want)   ? !isnan(got)
            : isinf(want) ? got != want
                          : !(fabs(got - want) <= 6e-5 + fabs(want) * 0x1p-11))
            fail_msg("GELU of %g: %g, not %g", x, got, want);
    }
    data_free(&d);
}

/* NaN and infinities reach their rows and columns alone. */
static void test_not_finite(void **state)
{
    (void)state;
    struct matmul_case c = {DTYPE_F16, 70, 40, 520, IR_UNARY_RELU, true, false, false, 1, 4, 0};
    struct matmul_data d = data_new(&c, false);
    struct kernel_matmul p = arguments(&c, &d);
    ((uint16_t *)d.a.view.data)[5 * 520 + 39] = 0x7e00; /* NaN */
    ((uint16_t *)d.bias.view.data)[7] = 0x7c00;         /* infinity */
    for (int variant = 1; variant < KERNEL_MATMUL_PATCH; variant++) {
        struct kernel_call call = {.variant = variant, .multiprocessors = 4, .capability = 90};
        const uint16_t *y = d.y.view.data;
        array_poison(&d.y);
        if (!taken(&c, variant, false))
            continue;
        assert_int_equal(kernel_matmul(&call, &p), cudaSuccess);
        for (int r = 0; r < 70; r++)
            for (int n = 0; n < 40; n++) {
                float v = f16_to_f32(y[r * 40 + n]);
                assert_int_equal(isnan(v) != 0, r == 5);
                assert_int_equal(isinf(v) != 0, r != 5 && n == 7);
            }
    }
    data_free(&d);
}

static cudaError_t ask(int64_t rows, int64_t depth, enum dtype dtype, enum ir_unary func,
                       int32_t variant, int32_t capability)
{
    struct kernel_matmul p = {.rows = rows,
                              .cols = 64,
                              .depth = depth,
                              .dtype = (int32_t)dtype,
                              .func = (int32_t)func,
                              .scale = 1};
    struct kernel_call dry = {.dry = true, .variant = variant, .capability = capability};
    return kernel_matmul(&dry, &p);
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_RELU, 1, 90), cudaSuccess);
    assert_int_equal(ask(4, 60, DTYPE_F16, IR_UNARY_RELU, 1, 90), cudaErrorNotSupported);
    assert_int_equal(ask(1, 60, DTYPE_F16, IR_UNARY_RELU, 1, 90), cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F32, IR_UNARY_RELU, 1, 90), cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_TANH, 1, 90), cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_RELU, 0, 90), cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_RELU, KERNEL_MATMUL_VARIANTS + 1, 90),
                     cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_RELU, 1, 80), cudaErrorNotSupported);
    assert_int_equal(ask(4, 64, DTYPE_F16, IR_UNARY_RELU, 1, 100), cudaErrorNotSupported);
    assert_int_equal(ask(INT64_C(1) << 40, 64, DTYPE_F16, IR_UNARY_RELU, 1, 90),
                     cudaErrorNotSupported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_shared_depth),
        cmocka_unit_test(test_wide),     cmocka_unit_test(test_two_sources),
        cmocka_unit_test(test_gelu),     cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
