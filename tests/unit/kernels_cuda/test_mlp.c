/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of fully connected layers against the sum over all numbers, layer by layer, with values
 * rounded to the type between layers as the kernel does: shapes, types, functions, what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};

/* A chain, and room for its numbers. */
struct chain {
    struct kernel_mlp m;
    float *w[MLP_LAYERS_MAX], *b[MLP_LAYERS_MAX]; /* [K,N] and [N], rounded to the type */
    struct array x, y;
    void *packed;
    float *bias;
};

static uint32_t size_of(const struct chain *c)
{
    return (uint32_t)dtype_size((enum dtype)c->m.dtype);
}

static float rounded(enum dtype dtype, float v)
{
    return dtype == DTYPE_F16    ? f16_to_f32(f32_to_f16(v))
           : dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(v))
                                 : v;
}

static float *numbers(size_t n, float scale, enum dtype dtype)
{
    float *v = malloc(n * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = rounded(dtype, ((float)array_draw(2001) / 1000 - 1) * scale);
    return v;
}

static void pack(struct chain *c)
{
    uint32_t size = size_of(c);
    struct mlp_room room = {0};
    assert_true(mlp_room(c->m.widths, (uint32_t)c->m.layers, size, &room));
    assert_int_equal(posix_memalign(&c->packed, 64, room.weights), 0);
    assert_int_equal(posix_memalign((void **)&c->bias, 64, room.bias), 0);
    memset(c->packed, 0, room.weights);
    memset(c->bias, 0, room.bias);
    char *to = c->packed;
    float *bias = c->bias;
    for (int i = 0; i < c->m.layers; i++) {
        int64_t depth = c->m.widths[i], width = c->m.widths[i + 1];
        for (int64_t k = 0; k < depth; k++)
            for (int64_t n = 0; n < width; n++) {
                float v = c->w[i][k * width + n];
                uint16_t half = c->m.dtype == DTYPE_F16 ? f32_to_f16(v) : f32_to_bf16(v);
                memcpy(to + kernel_mlp_at(size, depth, width, k, n) * size,
                       size == 4 ? (void *)&v : (void *)&half, size);
            }
        memcpy(bias, c->b[i], (size_t)width * sizeof(float));
        to += mlp_padded(depth, size) * mlp_padded(width, size) * size;
        bias += mlp_padded(width, size);
    }
}

/* Weights of a size that keeps values about as large as they are. */
static struct chain chain_new(enum dtype dtype, int64_t rows, int layers, const int *widths,
                              const int *funcs)
{
    struct chain c = {.m = {.rows = rows, .dtype = (int32_t)dtype, .layers = layers}};
    for (int i = 0; i <= layers; i++)
        c.m.widths[i] = widths[i];
    for (int i = 0; i < layers; i++) {
        float scale = 1.7F / sqrtf((float)widths[i]);
        c.m.funcs[i] = funcs[i];
        c.m.alphas[i] = funcs[i] == IR_UNARY_CLIP ? -0.5F : 0.75F;
        c.m.betas[i] = funcs[i] == IR_UNARY_LINEAR ? 0.125F : 0.5F;
        c.m.gammas[i] = 1;
        c.w[i] = numbers((size_t)(widths[i] * widths[i + 1]), scale, dtype);
        c.b[i] = numbers((size_t)widths[i + 1], 0.5F, DTYPE_F32);
    }
    c.x = ARRAY(dtype, NULL, rows, widths[0]);
    c.y = ARRAY(dtype, NULL, rows, widths[layers]);
    pack(&c);
    c.m.x = c.x.view.data;
    c.m.y = c.y.view.data;
    c.m.weights = c.packed;
    c.m.bias = c.bias;
    return c;
}

static void chain_free(struct chain *c)
{
    for (int i = 0; i < c->m.layers; i++) {
        free(c->w[i]);
        free(c->b[i]);
    }
    array_free(&c->x);
    array_free(&c->y);
    free(c->packed);
    free(c->bias);
}

static void layer(const struct chain *c, int i, const float *from, float *to)
{
    int depth = c->m.widths[i], width = c->m.widths[i + 1];
    for (int n = 0; n < width; n++) {
        double sum = (double)c->b[i][n];
        for (int k = 0; k < depth; k++)
            sum += (double)from[k] * (double)c->w[i][k * width + n];
        struct tensor_view v = {DTYPE_F64, {.rank = 0}, &sum};
        ref_unary((enum ir_unary)c->m.funcs[i], (double)c->m.alphas[i], (double)c->m.betas[i],
                  (double)c->m.gammas[i], &v, &v);
        to[n] = i + 1 < c->m.layers ? rounded((enum dtype)c->m.dtype, (float)sum) : (float)sum;
    }
}

static void reference(struct chain *c)
{
    float here[MLP_WIDTH_MAX], there[MLP_WIDTH_MAX];
    int last = c->m.widths[c->m.layers], first = c->m.widths[0];
    for (int64_t r = 0; r < c->m.rows; r++) {
        memcpy(here, array_values(&c->x) + r * first, (size_t)first * sizeof(float));
        for (int i = 0; i < c->m.layers; i++) {
            layer(c, i, here, there);
            memcpy(here, there, (size_t)c->m.widths[i + 1] * sizeof(float));
        }
        memcpy(array_values(&c->y) + r * last, here, (size_t)last * sizeof(float));
    }
}

/* A number that the kernel's sum puts on the other side of a half is a unit of the type off, and
 * the layers behind carry this on. */
static double tolerance_of(const struct chain *c)
{
    double unit = c->m.dtype == DTYPE_F16 ? 1e-3 : c->m.dtype == DTYPE_BF16 ? 8e-3 : 1e-6;
    return unit * sqrt((double)c->m.layers) * (c->m.dtype == DTYPE_F32 ? 4 : 1);
}

/* Returns how many variants take it. */
static int check(struct chain *c, int32_t blocks, int32_t shared)
{
    int taken = 0;
    reference(c);
    for (int variant = 1; variant <= KERNEL_MLP_VARIANTS; variant++) {
        struct kernel_call call = {.variant = variant,
                                   .multiprocessors = blocks,
                                   .shared = shared,
                                   .capability = 90,
                                   .dry = true};
        char what[96];
        snprintf(what, sizeof(what), "%s, %d rows, %d layers, variant %d",
                 dtype_name((enum dtype)c->m.dtype), (int)c->m.rows, c->m.layers, variant);
        cudaError_t dry = kernel_mlp(&call, &c->m);
        call.dry = false;
        array_poison(&c->y);
        assert_int_equal(kernel_mlp(&call, &c->m), dry);
        if (dry != cudaSuccess)
            continue;
        array_check(&c->y, tolerance_of(c), what);
        taken++;
    }
    return taken;
}

/* --- tests --- */

static void test_shapes(void **state)
{
    (void)state;
    static const int rows[] = {1, 17, 300}, widths[] = {1, 13, 64, 200, 24, 8};
    static const int funcs[] = {IR_UNARY_RELU, IR_UNARY_IDENTITY, IR_UNARY_TANH};
    int taken = 0;
    for (int i = 0; i < 54; i++) {
        int w[4] = {widths[i % 6], widths[i / 3 % 6], widths[i / 9 % 6], widths[(i / 2 + 3) % 6]};
        struct chain c = chain_new(dtypes[i % 3], rows[i / 3 % 3], 2 + i % 2, w, funcs);
        int some = check(&c, 2, 0);
        assert_true(some > 0);
        taken += some;
        chain_free(&c);
    }
    assert_in_range(taken, 52 * KERNEL_MLP_VARIANTS, 54 * KERNEL_MLP_VARIANTS); /* tall tiles */
}

/* A narrow chain of as many layers as there may be. */
static void test_many_layers(void **state)
{
    (void)state;
    int widths[MLP_LAYERS_MAX + 1], funcs[MLP_LAYERS_MAX];
    for (int i = 0; i < MLP_LAYERS_MAX; i++) {
        widths[i] = (const int[]){64, 13, 32, 50}[i % 4];
        funcs[i] = i % 3 ? IR_UNARY_TANH : IR_UNARY_SIGMOID;
    }
    widths[MLP_LAYERS_MAX] = 3;
    for (int i = 0; i < 3; i++) {
        struct chain c = chain_new(dtypes[i], 17, MLP_LAYERS_MAX, widths, funcs);
        assert_int_equal(check(&c, 132, 0), KERNEL_MLP_VARIANTS);
        chain_free(&c);
    }
}

/* Every function from floats to floats between layers and behind the last one. Columns that only
 * fill up a tile would be infinite or NaN behind some of them. */
static void test_functions(void **state)
{
    (void)state;
    static const int funcs[] = {
        IR_UNARY_IDENTITY, IR_UNARY_RELU,       IR_UNARY_LEAKY_RELU, IR_UNARY_ELU,
        IR_UNARY_SIGMOID,  IR_UNARY_HARD_SWISH, IR_UNARY_SWISH,      IR_UNARY_HARD_SIGMOID,
        IR_UNARY_TANH,     IR_UNARY_GELU,       IR_UNARY_GELU_TANH,  IR_UNARY_MISH,
        IR_UNARY_CLIP,     IR_UNARY_LINEAR,     IR_UNARY_ABS,        IR_UNARY_EXP,
        IR_UNARY_SOFTPLUS, IR_UNARY_SOFTSIGN,   IR_UNARY_COS};
    for (size_t i = 0; i < 3 * ARRAY_LEN(funcs); i++) {
        int func[2] = {funcs[i / 3], funcs[i / 3]};
        struct chain c = chain_new(dtypes[i % 3], 5, 2, (const int[]){7, 9, 11}, func);
        assert_int_equal(check(&c, 132, 0), KERNEL_MLP_VARIANTS);
        chain_free(&c);
    }
}

/* 1 / x of the zeros that fill up a tile is infinite: rows must not become NaN. */
static void test_padding_is_zero(void **state)
{
    (void)state;
    const int funcs[2] = {IR_UNARY_RECIPROCAL, IR_UNARY_IDENTITY};
    for (int i = 0; i < 3; i++) {
        struct chain c = chain_new(dtypes[i], 3, 2, (const int[]){5, 5, 5}, funcs);
        for (int k = 0; k < 5; k++)
            c.bias[k] = c.b[0][k] = 4;
        assert_int_equal(check(&c, 132, 0), KERNEL_MLP_VARIANTS);
        chain_free(&c);
    }
}

/* NaN and infinities reach their rows alone. */
static void test_not_finite(void **state)
{
    (void)state;
    const int funcs[2] = {IR_UNARY_RELU, IR_UNARY_IDENTITY};
    for (int variant = 1; variant <= KERNEL_MLP_VARIANTS; variant++) {
        struct chain c = chain_new(DTYPE_F16, 70, 2, (const int[]){24, 40, 10}, funcs);
        struct kernel_call call = {.variant = variant, .multiprocessors = 2};
        const uint16_t *y = c.m.y;
        ((uint16_t *)c.x.view.data)[33 * 24 + 23] = 0x7e00;
        assert_int_equal(kernel_mlp(&call, &c.m), cudaSuccess);
        for (int i = 0; i < 700; i++)
            assert_int_equal(isnan(f16_to_f32(y[i])) != 0, i / 10 == 33);
        chain_free(&c);
    }
}

/* What base/mlp.h says fits is taken, to the last byte; in FP32 weights stay where they are. */
static void test_room(void **state)
{
    (void)state;
    static const int widths[] = {100, 128, 96, 40}, funcs[3] = {0};
    for (int i = 0; i < 3; i++) {
        struct chain c = chain_new(dtypes[i], 20, 3, widths, funcs);
        struct mlp_room room = {0};
        assert_true(mlp_room(c.m.widths, 3, size_of(&c), &room));
        int32_t fits = (int32_t)mlp_room_bytes(&room, MLP_ROWS_LEAST);
        assert_int_equal(check(&c, 132, fits), dtypes[i] == DTYPE_F32 ? KERNEL_MLP_VARIANTS : 1);
        assert_int_equal(check(&c, 132, fits - 1),
                         dtypes[i] == DTYPE_F32 ? KERNEL_MLP_VARIANTS : 0);
        chain_free(&c);
    }
}

static cudaError_t ask(enum dtype dtype, int64_t rows, int layers, int width, int32_t variant)
{
    struct kernel_call call = {.dry = true, .variant = variant};
    struct kernel_mlp m = {.rows = rows, .dtype = (int32_t)dtype, .layers = layers};
    for (int i = 0; i <= layers && i <= MLP_LAYERS_MAX; i++)
        m.widths[i] = width;
    return kernel_mlp(&call, &m);
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(ask(DTYPE_F16, 4, 2, 64, 1), cudaSuccess);
    assert_int_equal(ask(DTYPE_F64, 4, 2, 64, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 0, 2, 64, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, INT64_C(1) << 40, 2, 64, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 0, 64, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, MLP_LAYERS_MAX + 1, 8, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 1, MLP_WIDTH_MAX + 1, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 2, 0, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 2, 512, 1), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 2, 64, 0), cudaErrorNotSupported);
    assert_int_equal(ask(DTYPE_F16, 4, 2, 64, KERNEL_MLP_VARIANTS + 1), cudaErrorNotSupported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_many_layers),
        cmocka_unit_test(test_functions),  cmocka_unit_test(test_padding_is_zero),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_room),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
