/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two products of bytes in a row on Hopper, on shapes whose edges lie within tiles. Sums are exact:
 * each result of the first product is what one rounding gives, or its neighbour where that lies
 * within two thousandths of a tie (of two sources, within half a unit of the second one's sums).
 * Sums of FP8 are nearly exact. What is wanted of the second product is computed from what the
 * first one has stored.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"

struct chain_case {
    int64_t rows, depth, cols, next;
    enum dtype x, residual, t; /* residual: DTYPE_NONE: none */
    float low, next_low;
    int64_t second; /* depth of a second source; 0: none */
    bool strided;   /* it is every second pixel of images of 4x6 */
    int32_t blocks; /* multiprocessors */
};

/* Weights, scales and biases of a product by columns, and as they are packed. */
struct product {
    int64_t depth, cols;
    int8_t *w, *packed;
    float *scale, *bias, *packed_scale, *packed_bias;
};

struct data {
    uint8_t *x, *x2, *z, *y, *t;
    struct product first, second, next; /* scale of the second: the ratio */
    double *want;                       /* of y */
};

enum { IN_H = 4, IN_W = 6, OUT_H = 2, OUT_W = 3 };
enum { ALL = 1 << 20 }; /* no limit */

static const float residual_step = 0.375F;
static const float to = 8; /* a result of FP8 is so much more */

static void *room(int64_t bytes)
{
    void *at = NULL;
    assert_int_equal(posix_memalign(&at, 16, (size_t)bytes), 0);
    memset(at, 0, (size_t)bytes);
    return at;
}

/* In FP8 below 8, and none is NaN. */
static void *random_bytes(int64_t n, enum dtype dtype)
{
    enum { SIGN = 0x80, EIGHT = 0x50 };
    uint8_t *bytes = room(n);
    for (int64_t i = 0; i < n; i++) {
        bytes[i] = i % 7 ? (uint8_t)array_draw(256) : array_draw(2) ? 0x80 : 0x7f;
        if (dtype == DTYPE_F8)
            bytes[i] = (uint8_t)((bytes[i] & SIGN) | (bytes[i] % SIGN % EIGHT));
    }
    return bytes;
}

static double number(enum dtype dtype, uint8_t byte)
{
    return dtype == DTYPE_F8 ? (double)f8_to_f32(byte) : dtype == DTYPE_U8 ? byte : (int8_t)byte;
}

static void product_init(enum dtype dtype, int64_t depth, int64_t cols, struct product *p)
{
    *p = (struct product){.depth = depth, .cols = cols};
    p->w = random_bytes(depth * cols, dtype);
    p->scale = room(cols * (int64_t)sizeof(float));
    p->bias = room(cols * (int64_t)sizeof(float));
    for (int64_t c = 0; c < cols; c++) {
        p->scale[c] = (60.0F + (float)array_draw(60)) / (5000 * sqrtf((float)depth));
        p->bias[c] = (float)array_draw(100) - 50;
        p->scale[c] *= dtype == DTYPE_F8 ? 200 : 1; /* results to either side of 56, its largest */
        p->bias[c] /= dtype == DTYPE_F8 ? 5 : 1;
    }
}

static void product_deinit(struct product *p)
{
    free(p->w), free(p->packed), free(p->scale), free(p->bias);
    free(p->packed_scale), free(p->packed_bias);
}

static double sum_of(const struct product *p, enum dtype x_dtype, const uint8_t *x, int64_t c)
{
    const enum dtype w_dtype = x_dtype == DTYPE_F8 ? DTYPE_F8 : DTYPE_I8;
    double sum = 0;
    for (int64_t k = 0; k < p->depth; k++)
        sum += number(x_dtype, x[k]) * number(w_dtype, (uint8_t)p->w[c * p->depth + k]);
    return sum;
}

/* The second source's pixel of a row. */
static const uint8_t *pixel_of(const struct chain_case *c, const struct data *d, int64_t row)
{
    int64_t image = row / (OUT_H * OUT_W), h = row / OUT_W % OUT_H * 2, w = row % OUT_W * 2;
    return d->x2 + (c->strided ? (image * IN_H + h) * IN_W + w : row) * c->second;
}

static double want_of(const struct chain_case *c, const struct data *d, int64_t row, int64_t m)
{
    double sum = sum_of(&d->first, c->x, d->x + row * c->depth, m);
    if (c->second) {
        sum *= (double)d->second.scale[m];
        sum = c->x == DTYPE_F8 ? sum : (double)rintf((float)sum);
        sum += sum_of(&d->second, c->x, pixel_of(c, d, row), m);
    }
    double v = sum * (double)d->first.scale[m] + (double)d->first.bias[m];
    if (c->residual != DTYPE_NONE)
        v += (number(c->residual, d->z[row * c->cols + m]) - (c->residual == DTYPE_U8 ? 128 : 0)) *
             (double)residual_step;
    return v;
}

static void data_init(const struct chain_case *c, struct data *d)
{
    *d = (struct data){
        .x = random_bytes(c->rows * c->depth, c->x),
        .x2 = random_bytes((c->strided ? c->rows * 4 : c->rows) * c->second + 1, c->x),
        .z = random_bytes(c->rows * c->cols, c->residual),
        .y = room(c->rows * c->cols),
        .t = room(c->rows * c->next),
        .want = room(c->rows * c->cols * (int64_t)sizeof(double)),
    };
    product_init(c->x, c->depth, c->cols, &d->first);
    product_init(c->x, MAX(c->second, 1), c->cols, &d->second);
    product_init(c->x, c->cols, c->next, &d->next);
    for (int64_t m = 0; m < c->cols; m++)
        d->second.scale[m] = 0.125F + (float)array_draw(1000) / 500;
    for (int64_t at = 0; at < c->rows * c->cols; at++)
        d->want[at] = want_of(c, d, at / c->cols, at % c->cols);
}

static void data_deinit(struct data *d)
{
    free(d->x), free(d->x2), free(d->z), free(d->y), free(d->t), free(d->want);
    product_deinit(&d->first), product_deinit(&d->second), product_deinit(&d->next);
}

static void pack(struct product *p, int64_t line, int64_t pitch)
{
    int64_t rows = kernel_tile_rows(p->cols);
    free(p->packed), free(p->packed_scale), free(p->packed_bias);
    p->packed = room(rows * pitch);
    p->packed_scale = room(rows * (int64_t)sizeof(float));
    p->packed_bias = room(rows * (int64_t)sizeof(float));
    for (int64_t c = 0; c < p->cols; c++) {
        memcpy(p->packed + kernel_line_row(line, c) * pitch, p->w + c * p->depth, (size_t)p->depth);
        p->packed_scale[kernel_line_number(line, c)] = p->scale[c];
        p->packed_bias[kernel_line_number(line, c)] = p->bias[c];
    }
}

/* Packs what the variant wants. */
static struct kernel_chain arguments(const struct chain_case *c, struct data *d, int32_t variant)
{
    const float high = c->x == DTYPE_F8 ? FLT_MAX : 127;
    struct kernel_chain p = {
        .first = {.rows = c->rows,
                  .cols = c->cols,
                  .depth = c->depth,
                  .x_dtype = (int32_t)c->x,
                  .residual_dtype = (int32_t)c->residual,
                  .y_dtype = (int32_t)c->x,
                  .x = d->x,
                  .residual = c->residual == DTYPE_NONE ? NULL : d->z,
                  .residual_step = residual_step,
                  .low = c->low,
                  .high = high,
                  .to = to,
                  .y = d->y},
        .next = {.cols = c->next,
                 .t_dtype = (int32_t)c->t,
                 .low = c->next_low,
                 .high = high,
                 .to = to / 64,
                 .t = d->t},
    };
    p.first.second.depth = c->second;
    if (c->strided)
        p.first.second.image = (struct kernel_images){c->rows / (OUT_H * OUT_W),
                                                      c->second,
                                                      {IN_H, IN_W},
                                                      {OUT_H, OUT_W},
                                                      {1, 1},
                                                      {2, 2},
                                                      {1, 1},
                                                      {0, 0}};
    const int64_t line = KERNEL_CHAIN_LINE, step = KERNEL_CHAIN_STEP;
    pack(&d->first, line, kernel_tile_depth(&p.first.image, c->depth, step));
    if (c->second)
        pack(&d->second, line, kernel_tile_depth(&p.first.second.image, c->second, step));
    pack(&d->next, kernel_chain_line(variant), kernel_chain_depth(c->cols));
    p.first.weights = d->first.packed;
    p.first.scale = d->first.packed_scale;
    p.first.bias = d->first.packed_bias;
    p.first.second.x = d->x2;
    p.first.second.weights = d->second.packed;
    p.first.second.ratio = d->second.packed_scale;
    p.next.weights = d->next.packed;
    p.next.scale = d->next.packed_scale;
    p.next.bias = d->next.packed_bias;
    return p;
}

/* How far from what was wanted a result may be: half of the distance of the type's numbers. */
static double room_of(enum dtype dtype, double want)
{
    int exponent;
    if (dtype != DTYPE_F8)
        return 0.5;
    frexp(want, &exponent);
    return ldexp(0.5, MAX(exponent - 4, -9));
}

/* Whether a stored number is what is wanted, both as the kernel counts them. */
static bool is_near(double v, enum dtype dtype, uint8_t byte, double low, double by, double slack)
{
    const bool real = dtype == DTYPE_F8;
    double have = number(dtype, byte) - (dtype == DTYPE_U8 ? 128 : 0);
    double least = real ? -(double)DTYPE_F8_MAX : -128, most = real ? (double)DTYPE_F8_MAX : 127;
    double want = fmax(v, low) * (real ? by : 1);
    want = fmin(fmax(want, least), most);
    return fabs(have - want) <= room_of(dtype, want) + 2e-3 + slack;
}

/* The number of results that are wrong. */
static int64_t wrong_ones(const struct chain_case *c, const struct data *d)
{
    int64_t wrong = 0;
    for (int64_t at = 0; at < c->rows * c->cols; at++) {
        double slack = c->second && c->x != DTYPE_F8 ? (double)d->first.scale[at % c->cols] : 0;
        wrong += !is_near(d->want[at], c->x, d->y[at], (double)c->low, (double)to, slack);
    }
    for (int64_t at = 0; at < c->rows * c->next; at++) {
        int64_t row = at / c->next, m = at % c->next;
        double v = sum_of(&d->next, c->x, d->y + row * c->cols, m) * (double)d->next.scale[m] +
                   (double)d->next.bias[m];
        wrong += !is_near(v, c->t, d->t[at], (double)c->next_low, (double)to / 64, 0);
    }
    return wrong;
}

static struct kernel_call call_of(const struct chain_case *c, int32_t variant)
{
    return (struct kernel_call){.variant = variant, .multiprocessors = c->blocks, .capability = 90};
}

struct run {
    const struct chain_case *c;
    struct data *d;
    struct kernel_chain p;
    int32_t variant;
};

static int run(const void *user)
{
    const struct run *k = user;
    struct kernel_call call = call_of(k->c, k->variant);
    memset(k->d->y, 0x55, (size_t)(k->c->rows * k->c->cols));
    memset(k->d->t, 0x55, (size_t)(k->c->rows * k->c->next));
    return kernel_chain(&call, &k->p) != cudaSuccess || wrong_ones(k->c, k->d) > 0;
}

/* Returns the variants that took the case, as bits; bit 0 is variant 1. */
static unsigned check_case(const struct chain_case *c)
{
    struct data d;
    unsigned taken = 0;
    float most = 1e6F;
    data_init(c, &d);
    for (int32_t v = 1; v <= KERNEL_CHAIN_VARIANTS; v++) {
        struct kernel_call dry = call_of(c, v);
        struct run k = {c, &d, arguments(c, &d, v), v};
        k.p.first.second.most = v % 2 ? &most : NULL; /* it is less than 2^22 */
        dry.dry = true;
        if (kernel_chain(&dry, &k.p) != cudaSuccess)
            continue;
        taken |= 1U << (v - 1);
        if (run(&k))
            fail_msg("variant %d, %d rows of %d, %d and %d columns: %d wrong", (int)v, (int)c->rows,
                     (int)c->depth, (int)c->cols, (int)c->next, (int)wrong_ones(c, &d));
    }
    data_deinit(&d);
    return taken;
}

/* Rows and columns that end within tiles and lines, one chunk and several, rounds of rings and
 * slots, blocks with none, one and several tiles, each type. */
static void test_chains(void **state)
{
    (void)state;
    static const struct {
        struct chain_case c;
        unsigned taken;
    } rows[] = {
        {{1, 16, 16, 16, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, -128, 0, false, 132}, 7},
        {{700, 64, 256, 64, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, -128, 0, false, 1}, 7},
        {{333, 48, 240, 48, DTYPE_I8, DTYPE_U8, DTYPE_U8, 0, -128, 0, false, 2}, 7},
        {{900, 128, 144, 64, DTYPE_U8, DTYPE_I8, DTYPE_I8, -128, 0, 0, false, 1}, 7},
        {{500, 64, 256, 128, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 0, 0, false, 2}, 4},
        {{520, 112, 208, 112, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, -128, 0, false, 1}, 4},
        {{450, 128, 256, 128, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 0, 0, false, 1}, 4},
        {{600, 64, 64, 64, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, -128, 0, false, 1}, 7},
        {{700, 64, 256, 64, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, -128, 64, false, 1}, 7},
        {{444, 48, 256, 128, DTYPE_I8, DTYPE_NONE, DTYPE_U8, 0, -128, 32, true, 1}, 4},
        {{204, 16, 144, 64, DTYPE_U8, DTYPE_U8, DTYPE_I8, -128, 0, 64, true, 1}, 7},
        {{700, 64, 256, 64, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, 0, 0, false, 1}, 7},
        {{333, 112, 240, 112, DTYPE_F8, DTYPE_NONE, DTYPE_F8, -ALL, 0, 0, false, 2}, 4},
        {{444, 48, 256, 64, DTYPE_F8, DTYPE_NONE, DTYPE_F8, 0, -ALL, 32, true, 1}, 7},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (check_case(&rows[i].c) != rows[i].taken)
            fail_msg("case %d is taken by others than %u", (int)i, rows[i].taken);
}

static int left_out_of(const struct chain_case *c, int32_t variant)
{
    struct data d;
    char what[32];
    data_init(c, &d);
    const struct run k = {c, &d, arguments(c, &d, variant), variant};
    snprintf(what, sizeof(what), "variant %d", (int)variant);
    int faults = left_out_all(what, run, &k);
    data_deinit(&d);
    return faults;
}

/* Leaves out one wait, arrival, fence or commit after the other. The first case has more steps of x
 * than slots let the loading thread run ahead, and residuals. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        struct chain_case c;
        int32_t variant;
    } cases[] = {
        {{1300, 64, 256, 64, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, -128, 64, false, 1}, 1},
        {{1300, 64, 256, 64, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, -128, 0, false, 1}, 1},
    };
    int faults = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        faults += left_out_of(&cases[i].c, cases[i].variant);
    assert_true(faults >= 10);
    print_message("%d faults found\n", faults);
}

static bool is_taken(const struct kernel_chain *p, int32_t variant, int32_t capability)
{
    struct kernel_call dry = {.dry = true, .variant = variant, .capability = capability};
    return kernel_chain(&dry, p) == cudaSuccess;
}

static void test_refused(void **state)
{
    (void)state;
    const struct kernel_chain p = {.first = {.rows = 64,
                                             .cols = 256,
                                             .depth = 64,
                                             .x_dtype = DTYPE_I8,
                                             .y_dtype = DTYPE_I8,
                                             .high = 127},
                                   .next = {.cols = 64, .t_dtype = DTYPE_U8, .high = 127}};
    struct kernel_chain q = p;
    assert_true(is_taken(&p, 1, 90));
    assert_false(is_taken(&p, 1, 80));
    assert_false(is_taken(&p, 0, 90));
    assert_false(is_taken(&p, KERNEL_CHAIN_VARIANTS + 1, 90));
    q.first.y_dtype = DTYPE_U8; /* of another type than x */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.next.t_dtype = DTYPE_F8;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.first.cols = 272; /* a third chunk */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.next.cols = 80;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.first.depth = 144; /* a third step */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.first.high = 100; /* other limits than 0 */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.next.low = 3;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.next.cols = 40; /* rows of t are not whole 16 bytes */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.first.func = IR_UNARY_GELU;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.first.rows = INT64_C(1) << 40;
    assert_false(is_taken(&q, 1, 90));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
