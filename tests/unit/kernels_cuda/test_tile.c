/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of bytes on Hopper: every row of the kernel's table, on shapes whose
 * edges lie within tiles. Sums are exact, so that each result is what one rounding of scale, bias
 * and residual gives, or its neighbour where that lies within two thousandths of a tie: as much as
 * half a unit of the second of two sources, to which some round the first. FP8's are nearly exact.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"

struct tile_case {
    struct kernel_images i; /* without taps: so many rows of so many channels */
    int64_t filters;
    enum dtype x, residual, y; /* residual: DTYPE_NONE: none */
    float low, high;
    int32_t blocks; /* multiprocessors */
};

/* What happens to sums. */
struct bend {
    int32_t func;
    bool late;
};

struct data {
    int64_t rows, depth, taps;
    uint8_t *x, *residual, *y, *packed;
    int8_t *w;
    float *scale, *bias; /* of columns */
    float *packed_scale, *packed_bias;
    double *want;
    struct bend bend;
};

/* A matrix. */
#define ROWS(rows, depth)                                                                          \
    {                                                                                              \
        .images = (rows), .channels = (depth)                                                      \
    }

/* Images of channels by h by w, and a square window over them to p by q. */
#define SQUARE(n, channels, h, w, p, q, side, step, edge)                                          \
    {                                                                                              \
        (n), (channels), {(h), (w)}, {(p), (q)}, {(side), (side)}, {(step), (step)}, {1, 1},       \
        {                                                                                          \
            (edge), (edge)                                                                         \
        }                                                                                          \
    }

/* Lines of pixels, and a window of three of them at steps of 2, padded in front. */
/* clang-format off */
#define LINES {1, 48, {1, 50}, {1, 25}, {1, 3}, {1, 2}, {1, 1}, {0, 1}}
/* clang-format on */

enum { ALL = 1 << 20 }; /* no limit */

static const float residual_step = 0.375F, alpha = 1.25F;
static const float to = 8, zero = 3; /* steps of y in FP8, or behind an activation */

static void *room(size_t bytes)
{
    void *at = NULL;
    assert_int_equal(posix_memalign(&at, 16, bytes), 0);
    memset(at, 0, bytes);
    return at;
}

static bool is_wide(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* In FP8 below 8, and none is NaN; of 16 bits around 0. */
static uint8_t *random_bytes(int64_t n, enum dtype dtype)
{
    enum { SIGN = 0x80, EIGHT = 0x50 };
    uint8_t *bytes = room((size_t)n * (is_wide(dtype) ? 2 : 1));
    for (int64_t i = 0; is_wide(dtype) && i < n; i++) {
        float v = ((float)array_draw(1000) - 500) / 7;
        uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(v) : f32_to_bf16(v);
        memcpy(bytes + 2 * i, &half, sizeof(half));
    }
    if (is_wide(dtype))
        return bytes;
    for (int64_t i = 0; i < n; i++) {
        bytes[i] = i % 7 ? (uint8_t)array_draw(256) : array_draw(2) ? 0x80 : 0x7f;
        if (dtype == DTYPE_F8)
            bytes[i] = (uint8_t)((bytes[i] & SIGN) | (bytes[i] % SIGN % EIGHT));
    }
    return bytes;
}

/* The numbers of all bytes. */
static const double *numbers_of(enum dtype dtype)
{
    static double tables[DTYPE_COUNT_][256];
    double *table = tables[dtype];
    for (int i = 0; table[255] == 0 && i < 256; i++)
        table[i] = dtype == DTYPE_F8   ? (double)f8_to_f32((uint8_t)i)
                   : dtype == DTYPE_I8 ? (int8_t)i
                                       : i;
    return table;
}

/* Element `at`. */
static double number_at(enum dtype dtype, const uint8_t *from, int64_t at)
{
    uint16_t half;
    if (!is_wide(dtype))
        return numbers_of(dtype)[from[at]];
    memcpy(&half, from + 2 * at, sizeof(half));
    return (double)(dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half));
}

static double sum_of(const struct tile_case *c, const struct data *d, int64_t row, int64_t m)
{
    const struct kernel_images *i = &c->i;
    const double *of_x = numbers_of(c->x),
                 *of_w = numbers_of(c->x == DTYPE_F8 ? DTYPE_F8 : DTYPE_I8);
    const uint8_t *w = (const uint8_t *)d->w + m * d->depth;
    double sum = 0;
    if (!i->kernel[0]) {
        for (int64_t k = 0; k < d->depth; k++)
            sum += of_x[d->x[row * d->depth + k]] * of_w[w[k]];
        return sum;
    }
    int64_t q = row % i->out[1], p = row / i->out[1] % i->out[0], n = row / i->out[1] / i->out[0];
    for (int64_t t = 0; t < d->taps; t++) {
        int64_t h = p * i->stride[0] - i->pad[0] + t / i->kernel[1] * i->dilation[0];
        int64_t v = q * i->stride[1] - i->pad[1] + t % i->kernel[1] * i->dilation[1];
        bool inside = h >= 0 && h < i->in[0] && v >= 0 && v < i->in[1];
        const uint8_t *x = d->x + (inside ? ((n * i->in[0] + h) * i->in[1] + v) * i->channels : 0);
        for (int64_t k = 0; inside && k < i->channels; k++)
            sum += of_x[x[k]] * of_w[w[t * i->channels + k]];
    }
    return sum;
}

static double activated(int32_t func, double v)
{
    switch (func) {
    case IR_UNARY_RELU:
        return fmax(v, 0);
    case IR_UNARY_GELU:
        return v * erfc(-v * M_SQRT1_2) / 2;
    case IR_UNARY_GELU_TANH:
        return v / 2 * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    case IR_UNARY_SWISH:
        return v / (1 + exp(-v * (double)alpha));
    default:
        return v;
    }
}

/* Whether integers are made of real numbers. */
static bool is_bent(const struct tile_case *c, const struct bend *bend)
{
    return bend->func != IR_UNARY_IDENTITY && (c->y == DTYPE_I8 || c->y == DTYPE_U8);
}

/* The residual is that of element `at`, counted as it is. */
static double result_of(const struct tile_case *c, const struct data *d, double sum, int64_t at)
{
    int64_t m = at % c->filters;
    double z = c->residual == DTYPE_NONE ? 0 : number_at(c->residual, d->residual, at);
    double v = sum * (double)d->scale[m] + (double)d->bias[m];
    z = (z - (c->residual == DTYPE_U8 ? 128 : 0)) * (double)residual_step;
    v = activated(d->bend.func, v + (d->bend.late ? 0 : z)) + (d->bend.late ? z : 0);
    if (is_bent(c, &d->bend))
        v = v * (double)to + (double)zero;
    v = fmin(fmax(v, (double)c->low), (double)c->high);
    return c->y == DTYPE_F8 ? v * (double)to : v;
}

static void data_init_bent(const struct tile_case *c, const struct bend *bend, struct data *d)
{
    const struct kernel_images *i = &c->i;
    bool images = i->kernel[0] > 0;
    *d = (struct data){.taps = images ? (int64_t)i->kernel[0] * i->kernel[1] : 1, .bend = *bend};
    d->rows = images ? i->images * i->out[0] * i->out[1] : i->images;
    d->depth = d->taps * i->channels;
    d->x = random_bytes(i->images * (images ? i->in[0] * i->in[1] : 1) * i->channels, c->x);
    d->w = (int8_t *)random_bytes(c->filters * d->depth, c->x);
    d->residual = random_bytes(d->rows * c->filters, c->residual);
    d->y = room((size_t)(d->rows * c->filters) * (is_wide(c->y) ? 2 : 1));
    d->want = room((size_t)(d->rows * c->filters) * sizeof(double));
    d->scale = room((size_t)c->filters * sizeof(float));
    d->bias = room((size_t)c->filters * sizeof(float));
    for (int64_t m = 0; m < c->filters; m++) {
        d->scale[m] = (60.0F + (float)array_draw(60)) / (5000 * sqrtf((float)d->depth));
        d->bias[m] = (float)array_draw(100) - 50;
        d->scale[m] *= c->x == DTYPE_F8 ? 200 : 1; /* results to either side of 56, its largest */
        d->bias[m] /= c->x == DTYPE_F8 ? 5 : 1;
        d->scale[m] /= is_bent(c, bend) ? to : 1;
        d->bias[m] /= is_bent(c, bend) ? to : 1;
    }
    for (int64_t at = 0; at < d->rows * c->filters; at++)
        d->want[at] = result_of(c, d, sum_of(c, d, at / c->filters, at % c->filters), at);
}

static void data_init(const struct tile_case *c, struct data *d)
{
    data_init_bent(c, &(struct bend){IR_UNARY_IDENTITY, false}, d);
}

static void data_deinit(struct data *d)
{
    free(d->x), free(d->w), free(d->residual), free(d->y), free(d->packed), free(d->want);
    free(d->scale), free(d->bias), free(d->packed_scale), free(d->packed_bias);
    d->packed = NULL;
    d->packed_scale = d->packed_bias = NULL;
}

static struct kernel_tile arguments(const struct tile_case *c, const struct data *d)
{
    return (struct kernel_tile){
        .rows = d->rows,
        .cols = c->filters,
        .depth = d->depth,
        .image = c->i,
        .x_dtype = (int32_t)c->x,
        .residual_dtype = (int32_t)c->residual,
        .y_dtype = (int32_t)c->y,
        .x = d->x,
        .residual = c->residual == DTYPE_NONE ? NULL : d->residual,
        .residual_step = residual_step,
        .low = c->low,
        .high = c->high,
        .func = d->bend.func,
        .alpha = alpha,
        .to = to,
        .zero = zero,
        .late = d->bend.late,
        .y = d->y,
    };
}

/* Packs weights, scale and bias as a variant wants them. */
static void pack(const struct tile_case *c, struct data *d, int32_t variant, struct kernel_tile *p)
{
    int64_t step = kernel_tile_step(variant), rows = kernel_tile_rows(c->filters);
    int64_t deep = kernel_tile_depth(&p->image, p->depth, step),
            tap = kernel_tile_tap_depth(c->i.channels, step);
    free(d->packed), free(d->packed_scale), free(d->packed_bias);
    d->packed = room((size_t)(rows * deep));
    d->packed_scale = room((size_t)rows * sizeof(float));
    d->packed_bias = room((size_t)rows * sizeof(float));
    for (int64_t m = 0; m < c->filters; m++) {
        uint8_t *row = d->packed + kernel_tile_row(variant, m) * deep;
        d->packed_scale[kernel_tile_number(variant, m)] = d->scale[m];
        d->packed_bias[kernel_tile_number(variant, m)] = d->bias[m];
        for (int64_t t = 0; t < d->taps; t++)
            memcpy(row + t * (c->i.kernel[0] ? tap : 0), d->w + m * d->depth + t * c->i.channels,
                   (size_t)c->i.channels);
    }
    p->weights = d->packed;
    p->scale = d->packed_scale;
    p->bias = d->packed_bias;
}

/* The result at `at` as the kernel counts it. */
static double have(const struct tile_case *c, const struct data *d, int64_t at)
{
    return number_at(c->y, d->y, at) - (c->y == DTYPE_U8 ? 128 : 0);
}

/* How far a result may be from what was wanted: half of the distance of the type's numbers. */
static double room_of(enum dtype y, double want)
{
    const int bits = y == DTYPE_F8 ? 4 : y == DTYPE_F16 ? 11 : 8, least = y == DTYPE_F8 ? -9 : -24;
    int exponent;
    if (y == DTYPE_I8 || y == DTYPE_U8)
        return 0.5;
    frexp(want, &exponent);
    return ldexp(0.5, MAX(exponent - bits, least));
}

/* The number of results that are wrong. */
static int64_t wrong_ones(const struct tile_case *c, const struct data *d, int64_t *first)
{
    const bool bytes = c->y == DTYPE_I8 || c->y == DTYPE_U8;
    const double floats = c->y == DTYPE_F8 ? (double)DTYPE_F8_MAX : INFINITY;
    int64_t wrong = 0;
    for (int64_t at = 0; at < d->rows * c->filters; at++) {
        double want = fmin(fmax(d->want[at], bytes ? -128 : -floats), bytes ? 127 : floats);
        if (!(fabs(have(c, d, at) - want) <= room_of(c->y, want) + 2e-3) && wrong++ == 0)
            *first = at;
    }
    return wrong;
}

static struct kernel_call call_of(const struct tile_case *c, int32_t variant)
{
    return (struct kernel_call){.variant = variant, .multiprocessors = c->blocks, .capability = 90};
}

/* Returns how many of these rows of the table took the case. With sanitizers, rows take turns at
 * the cases. */
static int check_rows(const struct tile_case *c, const struct bend *bend, int32_t from, int32_t end)
{
    static int turn;
    struct data d;
    int taken = 0;
    turn++;
    data_init_bent(c, bend, &d);
    struct kernel_tile p = arguments(c, &d);
    for (int32_t v = from; v < end; v++) {
        struct kernel_call call = call_of(c, v), dry = call;
        int64_t first = 0, wrong;
        dry.dry = true;
        if (kernel_tile(&dry, &p) != cudaSuccess)
            continue;
        taken++;
        if ((v + turn) % EMULATED_SHARE != 0)
            continue;
        pack(c, &d, v, &p);
        memset(d.y, 0x55, (size_t)(d.rows * c->filters) * (is_wide(c->y) ? 2 : 1));
        assert_int_equal(kernel_tile(&call, &p), cudaSuccess);
        wrong = wrong_ones(c, &d, &first);
        if (wrong)
            fail_msg("variant %d, %d rows of %d, %d columns: %d wrong; row %d column %d is %g, "
                     "not %g",
                     (int)v, (int)d.rows, (int)d.depth, (int)c->filters, (int)wrong,
                     (int)(first / c->filters), (int)(first % c->filters), have(c, &d, first),
                     d.want[first]);
    }
    data_deinit(&d);
    return taken;
}

static int check_case(const struct tile_case *c)
{
    return check_rows(c, &(struct bend){IR_UNARY_IDENTITY, false}, 1, KERNEL_TILE_SPLIT);
}

/* Rows and columns that end within tiles and lines, rounds of rings and slots, blocks with none,
 * one and several tiles, results at both ends. */
static void test_products(void **state)
{
    (void)state;
    static const struct tile_case cases[] = {
        {ROWS(1, 16), 16, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
        {ROWS(130, 128), 256, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 2},
        {ROWS(333, 64), 272, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 127, 3},
        {ROWS(700, 256), 64, DTYPE_U8, DTYPE_NONE, DTYPE_I8, 0, 90, 2},
        {ROWS(260, 512), 144, DTYPE_I8, DTYPE_U8, DTYPE_I8, -100, 100, 2},
        {ROWS(513, 96), 512, DTYPE_U8, DTYPE_I8, DTYPE_U8, -128, -1, 1},
        {ROWS(200, 1168), 80, DTYPE_I8, DTYPE_I8, DTYPE_U8, -128, 127, 1},
    };
    static const int least[] = {12, 11, 12, 10, 8, 11, 3};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(check_case(&cases[i]), least[i]);
}

/* Three and four consumers: with none, one and several tiles each, residuals in every slot, depths
 * that end within a step. Other limits than 0 are refused. */
static void test_manies(void **state)
{
    (void)state;
    static const struct tile_case cases[] = {
        {ROWS(1, 16), 16, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
        {ROWS(900, 64), 272, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 127, 3},
        {ROWS(1300, 256), 128, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 2},
        {ROWS(1100, 512), 144, DTYPE_I8, DTYPE_U8, DTYPE_I8, 0, 127, 1},
        {SQUARE(5, 64, 9, 7, 9, 7, 3, 1, 1), 64, DTYPE_U8, DTYPE_I8, DTYPE_U8, -128, 127, 1},
        {ROWS(500, 704), 64, DTYPE_I8, DTYPE_I8, DTYPE_U8, -128, 127, 1},
        {ROWS(200, 64), 64, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 1, 127, 132},
    };
    static const int taken[] = {7, 7, 5, 4, 1, 2, 0};
    static const struct bend none = {IR_UNARY_IDENTITY, false};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(check_rows(&cases[i], &none, KERNEL_TILE_MANY, KERNEL_TILE_VARIANTS + 1),
                         taken[i]);
}

static void test_windows(void **state)
{
    (void)state;
    static const struct tile_case cases[] = {
        {SQUARE(2, 64, 9, 7, 9, 7, 3, 1, 1), 64, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, 127, 132},
        {SQUARE(3, 144, 8, 9, 4, 5, 3, 2, 1), 96, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 127, 1},
        {SQUARE(2, 128, 6, 6, 3, 3, 1, 2, 0), 128, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
        {LINES, 160, DTYPE_U8, DTYPE_U8, DTYPE_I8, -128, 127, 132},
    };
    static const int least[] = {6, 3, 11, 8};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(check_case(&cases[i]), least[i]);
}

/* Patches at each edge of images, blocks with no tile, with one and with several, more than one
 * tile of filters, channels that do not fill a line. */
static void test_patches(void **state)
{
    (void)state;
    static const struct {
        struct tile_case c;
        int32_t variant;
    } rows[] = {
        {{SQUARE(2, 64, 30, 17, 30, 17, 3, 1, 1), 64, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, 127, 2},
         13},
        {{SQUARE(3, 48, 15, 9, 13, 7, 3, 1, 0), 144, DTYPE_I8, DTYPE_U8, DTYPE_I8, 0, 100, 5}, 13},
        {{SQUARE(9, 128, 14, 8, 14, 8, 3, 1, 1), 128, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 2},
         14},
        {{{1, 96, {3, 40}, {5, 43}, {3, 3}, {1, 1}, {1, 1}, {2, 3}},
          16,
          DTYPE_I8,
          DTYPE_I8,
          DTYPE_U8,
          -128,
          127,
          132},
         14},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct data d;
        struct kernel_call dry = call_of(&rows[i].c, rows[i].variant);
        dry.dry = true;
        data_init(&rows[i].c, &d);
        struct kernel_tile p = arguments(&rows[i].c, &d);
        assert_int_equal(kernel_tile(&dry, &p), cudaSuccess);
        data_deinit(&d);
        check_case(&rows[i].c);
    }
}

/* Rows that are not there, octets of rows that no block has, columns that end within a tile and
 * within a unit, depths of a step for each block and of several rounds of the ring, blocks to which
 * nothing is sent. */
static void test_splits(void **state)
{
    (void)state;
    static const struct tile_case cases[] = {
        {ROWS(1, 16), 16, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
        {ROWS(1, 1104), 1000, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, 127, 132},
        {ROWS(49, 1024), 72, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 132},
        {ROWS(130, 1232), 104, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 100, 132},
        {ROWS(64, 9232), 40, DTYPE_I8, DTYPE_U8, DTYPE_I8, -100, 127, 132},
        {ROWS(9, 2048), 64, DTYPE_U8, DTYPE_I8, DTYPE_U8, -128, -1, 1},
        {SQUARE(1, 512, 7, 7, 7, 7, 3, 1, 1), 96, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, 127, 132},
        {SQUARE(3, 144, 8, 9, 4, 5, 3, 2, 1), 96, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 127, 132},
        {SQUARE(2, 1024, 6, 6, 3, 3, 1, 2, 0), 128, DTYPE_I8, DTYPE_NONE, DTYPE_U8, -128, 127, 132},
        {LINES, 160, DTYPE_U8, DTYPE_U8, DTYPE_I8, -128, 127, 132},
    };
    static const int taken[] = {0, 7, 7, 7, 7, 6, 7, 7, 7, 3};
    static const struct bend none = {IR_UNARY_IDENTITY, false};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(check_rows(&cases[i], &none, KERNEL_TILE_SPLIT, KERNEL_TILE_WIDE),
                         taken[i]);
}

/* A case, what happens to its sums, and how many variants take it. */
struct bent_case {
    struct tile_case c;
    struct bend bend;
    int taken;
};

static void check_bent(const struct bent_case *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int taken = check_rows(&rows[i].c, &rows[i].bend, 1, KERNEL_TILE_VARIANTS + 1);
        if (taken != rows[i].taken)
            fail_msg("case %d: %d, not %d", (int)i, taken, rows[i].taken);
    }
}

/* Products, windows and patches of FP8, each activation, residuals before and behind it, limits,
 * results that saturate and such as have no exponent. */
static void test_floats(void **state)
{
    (void)state;
    static const struct bent_case rows[] = {
        {{ROWS(1, 16), 16, DTYPE_F8, DTYPE_NONE, DTYPE_F8, -ALL, ALL, 132},
         {IR_UNARY_IDENTITY, false},
         19},
        {{ROWS(130, 128), 256, DTYPE_F8, DTYPE_F8, DTYPE_F8, -ALL, ALL, 2},
         {IR_UNARY_GELU, false},
         11},
        {{ROWS(333, 64), 272, DTYPE_F8, DTYPE_F8, DTYPE_F8, -ALL, ALL, 3},
         {IR_UNARY_RELU, true},
         12},
        {{ROWS(700, 256), 64, DTYPE_F8, DTYPE_NONE, DTYPE_F8, -ALL, ALL, 2},
         {IR_UNARY_SWISH, false},
         10},
        {{ROWS(60, 1232), 144, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, ALL, 132},
         {IR_UNARY_IDENTITY, false},
         10},
        {{ROWS(70, 9232), 72, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, 6, 132},
         {IR_UNARY_GELU_TANH, true},
         7},
        {{SQUARE(1, 512, 7, 7, 7, 7, 3, 1, 1), 96, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, ALL, 132},
         {IR_UNARY_IDENTITY, false},
         10},
        {{SQUARE(2, 64, 30, 17, 30, 17, 3, 1, 1), 64, DTYPE_F8, DTYPE_F8, DTYPE_F8, -ALL, ALL, 2},
         {IR_UNARY_RELU, true},
         6},
        {{{1, 96, {3, 40}, {5, 43}, {3, 3}, {1, 1}, {1, 1}, {2, 3}},
          16,
          DTYPE_F8,
          DTYPE_NONE,
          DTYPE_F8,
          -ALL,
          ALL,
          132},
         {IR_UNARY_SWISH, false},
         12},
    };
    check_bent(rows, ARRAY_LEN(rows));
}

/* Results of integers behind an activation. */
static void test_bent(void **state)
{
    (void)state;
    static const struct {
        struct tile_case c;
        struct bend bend;
    } rows[] = {
        {{ROWS(130, 128), 256, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 2},
         {IR_UNARY_GELU, false}},
        {{ROWS(60, 1232), 144, DTYPE_U8, DTYPE_I8, DTYPE_U8, -100, 120, 132},
         {IR_UNARY_SWISH, false}},
        {{SQUARE(2, 64, 30, 17, 30, 17, 3, 1, 1), 64, DTYPE_U8, DTYPE_U8, DTYPE_I8, -128, 127, 132},
         {IR_UNARY_RELU, false}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_true(check_rows(&rows[i].c, &rows[i].bend, 1, KERNEL_TILE_VARIANTS + 1) >= 10);
}

/* Results of 16 bits from all three types, in lines that end within tiles. */
static void test_wide(void **state)
{
    (void)state;
    static const struct bent_case rows[] = {
        {{ROWS(1, 16), 16, DTYPE_F8, DTYPE_NONE, DTYPE_F16, -ALL, ALL, 132},
         {IR_UNARY_IDENTITY, false},
         5},
        {{ROWS(130, 128), 264, DTYPE_I8, DTYPE_F16, DTYPE_F16, -ALL, ALL, 2},
         {IR_UNARY_GELU, false},
         5},
        {{ROWS(333, 1024), 136, DTYPE_U8, DTYPE_BF16, DTYPE_BF16, -ALL, ALL, 3},
         {IR_UNARY_GELU_TANH, true},
         5},
        {{ROWS(700, 768), 64, DTYPE_F8, DTYPE_BF16, DTYPE_BF16, -50, 50, 2},
         {IR_UNARY_IDENTITY, false},
         5},
        {{ROWS(60, 1232), 72, DTYPE_F8, DTYPE_F16, DTYPE_F16, 0, ALL, 132},
         {IR_UNARY_SWISH, false},
         10},
        {{SQUARE(2, 144, 9, 7, 5, 4, 3, 2, 1), 96, DTYPE_U8, DTYPE_F16, DTYPE_F16, 0, ALL, 132},
         {IR_UNARY_IDENTITY, false},
         10},
    };
    check_bent(rows, ARRAY_LEN(rows));
}

/* --- two sources --- */

/* The second source's case has only its images, filters and types; its scale is the ratio. */
struct pair_case {
    struct tile_case first, second;
    int taken;
};

/* What no sum of the first source is above, in units of the second one. */
static float most_of(const struct pair_case *c, struct data *d, const struct data *e)
{
    double most = 0;
    for (int64_t at = 0; at < d->rows * c->first.filters; at++) {
        int64_t m = at % c->first.filters;
        most = fmax(most, fabs(sum_of(&c->first, d, at / c->first.filters, m) * e->scale[m]));
    }
    return (float)most;
}

static void want_pair(const struct pair_case *c, struct data *d, const struct data *e)
{
    const struct tile_case *f = &c->first;
    for (int64_t at = 0; at < d->rows * f->filters; at++) {
        int64_t r = at / f->filters, m = at % f->filters;
        double sum = sum_of(f, d, r, m) * (double)e->scale[m];
        if (f->x != DTYPE_F8)
            sum = (double)rintf((float)sum);
        d->want[at] = result_of(f, d, sum + sum_of(&c->second, e, r, m), at);
    }
}

static void pair_init(const struct pair_case *c, struct data *d, struct data *e)
{
    data_init(&c->first, d);
    data_init(&c->second, e);
    assert_int_equal(d->rows, e->rows);
    for (int64_t m = 0; m < c->first.filters; m++)
        e->scale[m] = 0.125F + (float)array_draw(1000) / 500;
    want_pair(c, d, e);
}

static struct kernel_tile pair_pack(const struct pair_case *c, struct data *d, struct data *e,
                                    int32_t variant)
{
    struct kernel_tile p = arguments(&c->first, d), q = arguments(&c->second, e);
    pack(&c->first, d, variant, &p);
    pack(&c->second, e, variant, &q);
    p.second.depth = e->depth;
    p.second.image = c->second.i;
    p.second.x = e->x;
    p.second.weights = q.weights;
    p.second.ratio = q.scale;
    return p;
}

/* Sources of one step and of several, that end within a step, and of every second pixel; of every
 * second variant the size of the first one's sums is known. */
static void test_two_sources(void **state)
{
    (void)state;
    static const struct pair_case cases[] = {
        {{ROWS(140, 64), 256, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 2},
         {ROWS(140, 48), 256, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 2},
         15},
        {{ROWS(700, 144), 144, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 1},
         {ROWS(700, 208), 144, DTYPE_U8, DTYPE_NONE, DTYPE_U8, 0, 127, 1},
         12},
        {{ROWS(45, 528), 80, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
         {SQUARE(3, 80, 6, 9, 3, 5, 1, 2, 0), 80, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 132},
         12},
        {{ROWS(70, 128), 72, DTYPE_U8, DTYPE_I8, DTYPE_U8, -128, 127, 132},
         {ROWS(70, 2576), 72, DTYPE_U8, DTYPE_NONE, DTYPE_U8, 0, 127, 132},
         7},
        {{ROWS(3, 3088), 96, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 100, 132},
         {ROWS(3, 144), 96, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 132},
         10},
        {{ROWS(140, 64), 256, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, ALL, 2},
         {ROWS(140, 48), 256, DTYPE_F8, DTYPE_NONE, DTYPE_F8, 0, ALL, 2},
         15},
        {{ROWS(70, 128), 72, DTYPE_F8, DTYPE_NONE, DTYPE_F8, -ALL, ALL, 132},
         {ROWS(70, 2576), 72, DTYPE_F8, DTYPE_NONE, DTYPE_F8, 0, ALL, 132},
         7},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct tile_case *c = &cases[i].first;
        struct data d, e;
        int taken = 0;
        pair_init(&cases[i], &d, &e);
        float most = most_of(&cases[i], &d, &e);
        for (int32_t v = 1; v <= KERNEL_TILE_VARIANTS; v++) {
            struct kernel_call call = call_of(c, v), dry = call;
            struct kernel_tile p = pair_pack(&cases[i], &d, &e, v);
            int64_t first = 0;
            p.second.most = v % 2 ? &most : NULL;
            dry.dry = true;
            if (kernel_tile(&dry, &p) != cudaSuccess)
                continue;
            memset(d.y, 0x55, (size_t)(d.rows * c->filters));
            assert_int_equal(kernel_tile(&call, &p), cudaSuccess);
            if (wrong_ones(c, &d, &first))
                fail_msg("case %d, variant %d: row %d column %d is %g, not %g", (int)i, (int)v,
                         (int)(first / c->filters), (int)(first % c->filters), have(c, &d, first),
                         d.want[first]);
            taken++;
        }
        assert_int_equal(taken, cases[i].taken);
        data_deinit(&d);
        data_deinit(&e);
    }
}

/* --- each instruction that orders is needed --- */

/* What is run again and again; sums are taken once. */
struct left_out {
    const struct tile_case *c;
    const struct data *d;
    struct kernel_tile p;
    int32_t variant;
};

static int run_left_out(const void *user)
{
    const struct left_out *k = user;
    struct kernel_call call = call_of(k->c, k->variant);
    int64_t first;
    memset(k->d->y, 0x55, (size_t)(k->d->rows * k->c->filters) * (is_wide(k->c->y) ? 2 : 1));
    return kernel_tile(&call, &k->p) == cudaSuccess && wrong_ones(k->c, k->d, &first) > 0;
}

static int left_out_of(const struct tile_case *c, int32_t variant)
{
    struct data d;
    char what[32];
    data_init(c, &d);
    struct left_out k = {c, &d, arguments(c, &d), variant};
    pack(c, &d, variant, &k.p);
    snprintf(what, sizeof(what), "variant %d", (int)variant);
    int faults = left_out_all(what, run_left_out, &k);
    data_deinit(&d);
    return faults;
}

static int left_out_of_pair(const struct pair_case *c, int32_t variant)
{
    struct data d, e;
    pair_init(c, &d, &e);
    const struct left_out k = {&c->first, &d, pair_pack(c, &d, &e, variant), variant};
    int faults = left_out_all("two sources", run_left_out, &k);
    data_deinit(&d);
    data_deinit(&e);
    return faults;
}

/* Leaves out one wait, arrival, fence or commit after the other, of a kernel of each kind. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        int32_t variant;
        struct tile_case c;
    } kernels[] = {
        {2, {ROWS(900, 96), 144, DTYPE_I8, DTYPE_I8, DTYPE_I8, 0, 127, 1}},
        {2, {ROWS(700, 1168), 144, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 1}},
        {7, {ROWS(1300, 256), 144, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 2}},
        {7, {ROWS(1300, 256), 144, DTYPE_U8, DTYPE_NONE, DTYPE_U8, -128, 127, 2}},
        {13,
         {SQUARE(25, 32, 14, 8, 14, 8, 3, 1, 1), 64, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 1}},
        {17, {ROWS(70, 9344), 144, DTYPE_U8, DTYPE_U8, DTYPE_U8, -128, 127, 132}},
        {2, {ROWS(900, 96), 144, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, ALL, 1}},
        {7, {ROWS(1300, 256), 144, DTYPE_F8, DTYPE_NONE, DTYPE_F8, -ALL, ALL, 4}},
        {17, {ROWS(70, 9344), 144, DTYPE_F8, DTYPE_F8, DTYPE_F8, 0, ALL, 132}},
        {23, {ROWS(900, 96), 144, DTYPE_F8, DTYPE_F16, DTYPE_F16, -ALL, ALL, 1}},
        {25, {ROWS(1300, 256), 144, DTYPE_I8, DTYPE_NONE, DTYPE_BF16, -ALL, ALL, 4}},
        {17, {ROWS(70, 9344), 144, DTYPE_U8, DTYPE_BF16, DTYPE_BF16, -ALL, ALL, 132}},
        {18, {ROWS(9, 1840), 72, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132}},
    };
    static const struct pair_case pair = {
        {ROWS(1300, 256), 144, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 2},
        {ROWS(1300, 320), 144, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 2},
        0};
    static const struct pair_case few = {
        {ROWS(70, 5648), 144, DTYPE_I8, DTYPE_NONE, DTYPE_I8, -128, 127, 132},
        {ROWS(70, 5632), 144, DTYPE_I8, DTYPE_NONE, DTYPE_I8, 0, 127, 132},
        0};
    int faults = left_out_of_pair(&pair, 8) + left_out_of_pair(&few, 16);
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++)
        faults += left_out_of(&kernels[i].c, kernels[i].variant);
    assert_true(faults >= 30);
    print_message("%d faults found\n", faults);
}

static bool is_taken(const struct kernel_tile *p, int32_t variant, int32_t capability)
{
    struct kernel_call dry = {.dry = true, .variant = variant, .capability = capability};
    return kernel_tile(&dry, p) == cudaSuccess;
}

static void test_refused(void **state)
{
    (void)state;
    struct kernel_tile p = {
        .rows = 64, .cols = 64, .depth = 256, .x_dtype = DTYPE_I8, .y_dtype = DTYPE_I8};
    assert_true(is_taken(&p, 1, 90));
    assert_false(is_taken(&p, 1, 80));
    assert_false(is_taken(&p, 0, 90));
    assert_false(is_taken(&p, KERNEL_TILE_VARIANTS + 1, 90));
    assert_false(is_taken(&p, 4, 90)); /* one step of weights stays, and there are two */
    struct kernel_tile q = p;
    q.cols = 72; /* rows of y are not whole 16 bytes */
    assert_false(is_taken(&q, 1, 90));
    q.rows = 1; /* nor is the only one */
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.depth = 250;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.y_dtype = DTYPE_F16;
    assert_false(is_taken(&q, 1, 90));
    q = p;
    q.rows = INT64_C(1) << 40;
    assert_false(is_taken(&q, 1, 90));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_products),    cmocka_unit_test(test_manies),
        cmocka_unit_test(test_windows),     cmocka_unit_test(test_patches),
        cmocka_unit_test(test_splits),      cmocka_unit_test(test_floats),
        cmocka_unit_test(test_wide),        cmocka_unit_test(test_bent),
        cmocka_unit_test(test_two_sources), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
