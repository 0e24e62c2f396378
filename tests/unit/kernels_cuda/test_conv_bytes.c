/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of bytes, depthwise and others: each stored bit is what exact sums, one rounding of
 * scale and bias, and a division by the output's step give. Steps are powers of two around those of
 * the sums, so that many results are ties, and many lie beyond the ends.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "kernels/cuda/kernels.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/test.h"

enum epilogue { NONE, RELU, ADD, ADD_RELU, SCALE_CLIP, EPILOGUES };

enum { D = 3 }; /* spatial dims; those that a case lacks come first and are 1 */

struct problem {
    int rank; /* spatial dims that it has */
    int64_t n, c, m, groups, in[D];
    int kernel[D], stride[D], dilation[D], pad[D], pad_end[D];
    bool plain, biased;
    enum dtype x, y, operand;
    int x_zero, y_zero;
    enum epilogue epilogue;
};

/* Its data. y and the operand are [N, positions, M]; w is [M, C / groups, taps]. */
struct data {
    int64_t out[D], positions, taps;
    uint8_t *x, *residual;
    int8_t *w, *packed;
    float *scale, *bias, *factor;
    uint8_t *y, *want;
    size_t y_bytes;
};

static int draw(int least, int most)
{
    return least + (int)array_draw((uint32_t)(most - least + 1));
}

static void *room(size_t bytes)
{
    void *at = NULL;
    assert_int_equal(posix_memalign(&at, 16, bytes), 0);
    return at;
}

static uint8_t *random_bytes(size_t n)
{
    uint8_t *to = room(n);
    for (size_t i = 0; i < n; i++)
        to[i] = i % 7 ? (uint8_t)array_draw(256) : array_draw(2) ? 0x80 : 0x7f;
    return to;
}

static int64_t whole(enum dtype dtype, uint8_t byte)
{
    return dtype == DTYPE_I8 ? (int8_t)byte : byte;
}

/* --- the reference --- */

static int64_t x_at(const struct problem *p, int64_t n, int64_t c, const int64_t *at)
{
    int64_t spot = (at[0] * p->in[1] + at[1]) * p->in[2] + at[2];
    int64_t spots = p->in[0] * p->in[1] * p->in[2];
    return p->plain ? (n * p->c + c) * spots + spot : (n * spots + spot) * p->c + c;
}

/* The sum of x's integers, less `base` each, by the filter's. */
static int64_t sum_of(const struct problem *p, const struct data *d, int64_t n, int64_t m,
                      int64_t position, int64_t base)
{
    int64_t each = p->c / p->groups, first = m / (p->m / p->groups) * each, sum = 0;
    int64_t out[D] = {position / d->out[2] / d->out[1], position / d->out[2] % d->out[1],
                      position % d->out[2]};
    for (int64_t tap = 0; tap < d->taps; tap++) {
        int64_t step[D] = {tap / p->kernel[2] / p->kernel[1], tap / p->kernel[2] % p->kernel[1],
                           tap % p->kernel[2]};
        int64_t at[D];
        bool inside = true;
        for (int i = 0; i < D; i++) {
            at[i] = out[i] * p->stride[i] - p->pad[i] + step[i] * p->dilation[i];
            inside = inside && at[i] >= 0 && at[i] < p->in[i];
        }
        for (int64_t c = 0; c < each; c++) {
            int64_t v = inside ? whole(p->x, d->x[x_at(p, n, first + c, at)]) : p->x_zero;
            sum += (v - base) * d->w[(m * each + c) * d->taps + tap];
        }
    }
    return sum;
}

static const float operand_step = 0.25F;
static const int operand_zero = 3;

static float finished(const struct problem *p, const struct data *d, float v, int64_t at, int64_t m)
{
    if (p->epilogue == ADD || p->epilogue == ADD_RELU)
        v += ((float)whole(p->operand, d->residual[at]) - (float)operand_zero) * operand_step;
    if (p->epilogue == SCALE_CLIP) {
        v *= d->factor[m];
        return fminf(fmaxf(v, -3.5F), 6);
    }
    return p->epilogue == RELU || p->epilogue == ADD_RELU ? fmaxf(v, 0) : v;
}

static const float y_step = 0.5F;

static void store(const struct problem *p, float v, int64_t at, uint8_t *to)
{
    float least = p->y == DTYPE_I8 ? -128 : 0;
    uint16_t half = p->y == DTYPE_F16 ? f32_to_f16(v) : f32_to_bf16(v);
    if (p->y == DTYPE_F32)
        memcpy(to + at * 4, &v, sizeof(v));
    else if (p->y == DTYPE_F16 || p->y == DTYPE_BF16)
        memcpy(to + at * 2, &half, sizeof(half));
    else if (p->y == DTYPE_F8)
        to[at] = f32_to_f8(v / y_step);
    else
        to[at] =
            (uint8_t)(int)fminf(fmaxf(rintf(v / y_step) + (float)p->y_zero, least), least + 255);
}

static bool is_scaled(enum dtype dtype)
{
    return dtype_size(dtype) == 1;
}

static void expect(const struct problem *p, struct data *d, bool depthwise)
{
    int64_t base = depthwise && p->x == DTYPE_U8 ? 128 : 0;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t i = 0; i < d->positions; i++)
            for (int64_t m = 0; m < p->m; m++) {
                int64_t at = (n * d->positions + i) * p->m + m;
                int64_t sum = sum_of(p, d, n, m, i, base);
                float v = fmaf((float)sum, d->scale[m], p->biased ? d->bias[m] : 0);
                store(p, finished(p, d, v, at, m), at, d->want);
            }
}

/* --- packing, as kernels.h says --- */

static void pack_runs(const struct problem *p, struct data *d, const struct kernel_runs *r)
{
    int64_t each = p->c / p->groups, columns = p->kernel[2];
    d->packed = calloc((size_t)(p->m * r->packed), 1);
    assert_non_null(d->packed);
    for (int64_t m = 0; m < p->m; m++)
        for (int64_t c = 0; c < each; c++)
            for (int64_t t = 0; t < d->taps; t++) {
                int64_t rows = r->merged ? t / columns : t, column = r->merged ? t % columns : 0;
                int64_t runs_of_channel = r->merged ? d->taps / columns : d->taps;
                int64_t run = r->plain ? c * runs_of_channel + rows : rows;
                int64_t within = r->plain ? column : column * each + c;
                assert_true(within < r->length && run < r->runs);
                d->packed[m * r->packed + run * r->padded + within] =
                    d->w[(m * each + c) * d->taps + t];
            }
}

static void pack_depthwise(const struct problem *p, struct data *d)
{
    int64_t columns = p->kernel[2], words = kernel_depthwise_words(columns);
    d->packed = room((size_t)(p->kernel[1] * words * p->c * 4));
    memset(d->packed, 0, (size_t)(p->kernel[1] * words * p->c * 4));
    for (int64_t c = 0; c < p->c; c++)
        for (int64_t t = 0; t < d->taps; t++) {
            int64_t row = t / columns, column = t % columns;
            d->packed[((row * words + column / 4) * p->c + c) * 4 + column % 4] =
                d->w[c * d->taps + t];
        }
}

/* --- the world of a case --- */

static struct kernel_view image_of(const struct problem *p, const int64_t *dims, int64_t channels,
                                   bool plain, enum dtype dtype, void *at)
{
    struct kernel_view v = {.data = at, .dtype = (int32_t)dtype, .rank = p->rank + 2};
    int64_t next = plain ? 1 : channels;
    for (int i = D - 1; i >= D - p->rank; i--) {
        int to = i - (D - p->rank) + 2;
        v.dim[to] = dims[i];
        v.stride[to] = next;
        next *= dims[i];
    }
    v.dim[0] = p->n;
    v.dim[1] = channels;
    v.stride[1] = plain ? next : 1;
    v.stride[0] = plain ? next * channels : next;
    return v;
}

static struct kernel_window window_of(const struct problem *p)
{
    struct kernel_window w = {.spatial = p->rank};
    for (int i = 0; i < p->rank; i++) {
        int from = D - p->rank + i;
        w.kernel[i] = p->kernel[from];
        w.stride[i] = p->stride[from];
        w.dilation[i] = p->dilation[from];
        w.pad[i] = p->pad[from];
    }
    return w;
}

static struct kernel_epilogue epilogue_of(const struct problem *p, const struct data *d,
                                          const struct kernel_view *y)
{
    struct kernel_epilogue e = {0};
    struct kernel_step add = {.binary = 1, .func = IR_BINARY_ADD, .operand = *y};
    struct kernel_step factor = {.binary = 1, .func = IR_BINARY_MUL, .operand = *y};
    add.operand.data = d->residual;
    add.operand.dtype = (int32_t)p->operand;
    add.operand.step = operand_step;
    add.operand.zero = (float)operand_zero;
    factor.operand.data = d->factor;
    factor.operand.dtype = DTYPE_F32;
    factor.operand.step = factor.operand.zero = 0;
    memset(factor.operand.stride, 0, sizeof(factor.operand.stride));
    factor.operand.stride[1] = 1;
    if (p->epilogue == ADD || p->epilogue == ADD_RELU)
        e.step[e.n++] = add;
    if (p->epilogue == SCALE_CLIP) {
        e.step[e.n++] = factor;
        e.step[e.n++] = (struct kernel_step){.func = IR_UNARY_CLIP, .alpha = -3.5F, .beta = 6};
    }
    if (p->epilogue == RELU || p->epilogue == ADD_RELU)
        e.step[e.n++] = (struct kernel_step){.func = IR_UNARY_RELU};
    return e;
}

static void data_init(const struct problem *p, struct data *d)
{
    int64_t inputs = p->n * p->c;
    *d = (struct data){.positions = 1, .taps = 1};
    for (int i = 0; i < D; i++) {
        int64_t reach = (int64_t)p->dilation[i] * (p->kernel[i] - 1) + 1;
        d->out[i] = (p->in[i] + p->pad[i] + p->pad_end[i] - reach) / p->stride[i] + 1;
        d->positions *= d->out[i];
        d->taps *= p->kernel[i];
        inputs *= p->in[i];
    }
    int64_t depth = p->c / p->groups * d->taps, outputs = p->n * d->positions * p->m;
    d->x = random_bytes((size_t)inputs);
    d->w = (int8_t *)random_bytes((size_t)(p->m * depth));
    d->residual = random_bytes((size_t)outputs);
    d->scale = room((size_t)p->m * sizeof(float));
    d->bias = room((size_t)p->m * sizeof(float));
    d->factor = room((size_t)p->m * sizeof(float));
    /* sums are about 5,000 roots of the depth; a few hundred steps of 1/8 to 1/16 */
    int usual = (int)floorf(log2f(60.0F / (5000 * sqrtf((float)depth))));
    for (int64_t m = 0; m < p->m; m++) {
        d->scale[m] = ldexpf(1, usual + draw(-1, 1));
        d->bias[m] = (float)draw(-64, 64) / 8;
        d->factor[m] = (float)draw(-8, 8) / 4;
    }
    d->y_bytes = (size_t)outputs * dtype_size(p->y);
    d->y = room(d->y_bytes);
    d->want = room(d->y_bytes);
}

static void data_deinit(struct data *d)
{
    free(d->x), free(d->w), free(d->residual), free(d->packed);
    free(d->scale), free(d->bias), free(d->factor), free(d->y), free(d->want);
}

static void problem_text(const struct problem *p, char *out, size_t size)
{
    int n = snprintf(
        out, size,
        "%s zero %d%s to %s zero %d, n %d c %d m %d groups %d epilogue %d%s:", dtype_name(p->x),
        p->x_zero, p->plain ? " plain" : "", dtype_name(p->y), p->y_zero, (int)p->n, (int)p->c,
        (int)p->m, (int)p->groups, (int)p->epilogue, p->biased ? " biased" : "");
    for (int i = D - p->rank; i < D; i++)
        n += snprintf(out + n, size - (size_t)n, " [%d: kernel %d stride %d dilation %d pad %d,%d]",
                      (int)p->in[i], p->kernel[i], p->stride[i], p->dilation[i], p->pad[i],
                      p->pad_end[i]);
}

static void compare(const struct problem *p, const struct data *d, int variant)
{
    size_t size = dtype_size(p->y);
    char what[400];
    for (size_t i = 0; i < d->y_bytes; i++) {
        /* the sign of FP8's 0 is no matter */
        bool zeros = p->y == DTYPE_F8 && !(d->y[i] & 0x7f) && !(d->want[i] & 0x7f);
        if (d->y[i] == d->want[i] || zeros)
            continue;
        problem_text(p, what, sizeof(what));
        fail_msg("%s variant %d: element %zu has the byte %02x, not %02x", what, variant, i / size,
                 d->y[i], d->want[i]);
    }
}

/* Returns the number of variants that have taken it. */
static int check(const struct problem *p, bool depthwise)
{
    struct data d;
    struct kernel_runs runs;
    char what[400];
    int taken = 0;
    problem_text(p, what, sizeof(what));
    data_init(p, &d);
    struct kernel_window window = window_of(p);
    struct kernel_view x = image_of(p, p->in, p->c, p->plain, p->x, d.x);
    struct kernel_view y = image_of(p, d.out, p->m, false, p->y, d.y);
    x.step = 0.125F; /* in the scales already */
    x.zero = (float)p->x_zero;
    y.step = is_scaled(p->y) ? y_step : 0;
    y.zero = (float)p->y_zero;
    struct kernel_epilogue epilogue = epilogue_of(p, &d, &y);
    if (depthwise)
        pack_depthwise(p, &d);
    else if (kernel_conv_bytes_runs(&window, (int32_t)p->groups, &x, &runs))
        pack_runs(p, &d, &runs);
    else
        fail_msg("%s: no runs", what);
    int8_t *aligned = d.packed;
    if (!depthwise) {
        aligned = room((size_t)(p->m * runs.packed));
        memcpy(aligned, d.packed, (size_t)(p->m * runs.packed));
    }
    expect(p, &d, depthwise);
    for (int v = 0; v <= (depthwise ? (int)KERNEL_DEPTHWISE_BYTES_ANY : KERNEL_CONV_BYTES_VARIANTS);
         v++) {
        /* With few multiprocessors even small problems count as large. */
        struct kernel_call call = {.variant = v, .multiprocessors = v ? 132 : 1}, dry = call;
        const float *bias = p->biased ? d.bias : NULL;
        cudaError_t did[2];
        dry.dry = true;
        memset(d.y, 0xa5, d.y_bytes);
        for (int i = 0; i < 2; i++)
            did[i] = depthwise ? kernel_depthwise_bytes(i ? &call : &dry, &window, &x, aligned,
                                                        d.scale, bias, &y, &epilogue)
                               : kernel_conv_bytes(i ? &call : &dry, &window, (int32_t)p->groups,
                                                   &x, aligned, d.scale, bias, &y, 1, &epilogue);
        if (did[0] != did[1] || (v == 0 && did[1] != cudaSuccess))
            fail_msg("%s variant %d: dry %d, launched %d", what, v, (int)did[0], (int)did[1]);
        if (did[1] == cudaSuccess) {
            compare(p, &d, v);
            taken++;
        }
    }
    if (!depthwise)
        free(aligned);
    data_deinit(&d);
    return taken;
}

static struct problem draw_problem(int i, int rank, int size)
{
    static const enum dtype types[] = {DTYPE_I8,  DTYPE_U8, DTYPE_I8,  DTYPE_U8,
                                       DTYPE_F16, DTYPE_F8, DTYPE_F32, DTYPE_BF16};
    struct problem p = {.rank = rank, .n = draw(1, 3), .c = 1, .m = 1, .groups = 1};
    p.x = i % 2 ? DTYPE_U8 : DTYPE_I8;
    p.x_zero = p.x == DTYPE_I8 ? draw(0, 2) ? draw(-128, 127) : 0 : draw(0, 255);
    p.y = types[i / 2 % 8];
    p.y_zero = p.y == DTYPE_I8 ? draw(-40, 40) : p.y == DTYPE_U8 ? draw(0, 255) : 0;
    p.operand = array_draw(2) ? DTYPE_I8 : DTYPE_U8;
    p.epilogue = (enum epilogue)array_draw(EPILOGUES);
    p.biased = array_draw(4) != 0;
    for (int k = 0; k < D; k++) {
        bool there = k >= D - rank;
        p.kernel[k] = there ? draw(1, 5) : 1;
        p.stride[k] = there ? draw(1, 3) : 1;
        p.dilation[k] = there && array_draw(3) == 0 ? 2 : 1;
        p.pad[k] = there ? draw(0, 3) : 0;
        p.pad_end[k] = there ? draw(0, 3) : 0;
        p.in[k] = there ? p.dilation[k] * (p.kernel[k] - 1) + 1 + draw(0, size) : 1;
    }
    return p;
}

/* --- tests --- */

static void any_convolution(void **state UNUSED)
{
    for (int i = 0; i < 48; i++) {
        struct problem p = draw_problem(i, 1 + i % 3, i % 3 == 2 ? 3 : 9);
        p.groups = array_draw(2) ? 1 : draw(2, 4);
        p.c = p.groups * draw(1, 9);
        p.m = p.groups * draw(1, 24);
        p.plain = array_draw(2);
        assert_true(check(&p, false) > 0);
    }
}

/* Channels that are copied in chunks of 16, and results that are stored eight at a time. */
static void wide_convolutions(void **state UNUSED)
{
    for (int i = 0; i < 24; i++) {
        struct problem p = draw_problem(i, 2, 5);
        p.groups = i % 3 ? 1 : 2;
        p.c = p.groups * 16 * draw(1, 3);
        p.m = p.groups * 8 * draw(1, 20);
        for (int d = 1; d < D; d++) {
            p.kernel[d] = i % 4 ? 3 : 1;
            p.in[d] = p.dilation[d] * (p.kernel[d] - 1) + 1 + draw(0, 6);
        }
        assert_int_equal(check(&p, false), 1 + KERNEL_CONV_BYTES_VARIANTS);
    }
}

/* As the first layers of networks read what clients send. */
static void first_convolutions(void **state UNUSED)
{
    static const int kernels[] = {7, 3, 4};
    for (int i = 0; i < 12; i++) {
        struct problem p = draw_problem(i, 2, 20);
        p.c = i % 4 == 3 ? 4 : i % 4 == 2 ? 1 : 3;
        p.m = i % 2 ? 64 : 24;
        p.plain = i / 2 % 2;
        for (int d = 1; d < D; d++) {
            p.kernel[d] = kernels[i % 3];
            p.stride[d] = i % 3 == 2 ? 4 : 2;
            p.dilation[d] = 1;
            p.pad[d] = p.pad_end[d] = p.kernel[d] / 2;
            p.in[d] = draw(19, 33);
        }
        assert_int_equal(check(&p, false), 1 + KERNEL_CONV_BYTES_VARIANTS);
    }
}

static void depthwise_of_any_window(void **state UNUSED)
{
    for (int i = 0; i < 32; i++) {
        struct problem p = draw_problem(i, 2, 9);
        p.c = p.m = p.groups = array_draw(2) ? 4 * draw(1, 8) : draw(1, 40);
        assert_true(check(&p, true) > 0);
    }
}

static void depthwise_of_usual_windows(void **state UNUSED)
{
    for (int i = 0; i < 30; i++) {
        struct problem p = draw_problem(i, 2, 9);
        int k = 3 + i % 3 * 2, s = k == 7 ? 1 : i / 3 % 2 + 1;
        p.c = p.m = p.groups = 16 * draw(1, 10);
        for (int d = 1; d < D; d++) {
            p.kernel[d] = k;
            p.stride[d] = s;
            p.dilation[d] = 1;
            p.in[d] = k + draw(0, 14);
        }
        assert_int_equal(check(&p, true), 1 + KERNEL_DEPTHWISE_BYTES_ANY);
    }
}

static void others_are_refused(void **state UNUSED)
{
    struct problem p = draw_problem(0, 2, 9);
    struct kernel_call dry = {.dry = true};
    struct kernel_epilogue none = {0};
    p.c = p.m = 6;
    struct kernel_window window = window_of(&p);
    struct kernel_view x = image_of(&p, p.in, p.c, false, DTYPE_I8, NULL), other = x;
    struct kernel_view y = image_of(&p, p.in, p.m, false, DTYPE_F16, NULL);
    float scale[6] = {0};
    other.dtype = DTYPE_F16; /* no bytes */
    assert_int_equal(kernel_conv_bytes(&dry, &window, 1, &other, NULL, scale, NULL, &y, 1, &none),
                     cudaErrorNotSupported);
    assert_int_equal(kernel_depthwise_bytes(&dry, &window, &other, NULL, scale, NULL, &y, &none),
                     cudaErrorNotSupported);
    /* groups that do not divide the channels; more than the sums hold */
    assert_int_equal(kernel_conv_bytes(&dry, &window, 4, &x, NULL, scale, NULL, &y, 1, &none),
                     cudaErrorNotSupported);
    window.kernel[0] = window.kernel[1] = 150;
    assert_int_equal(kernel_conv_bytes(&dry, &window, 1, &x, NULL, scale, NULL, &y, 1, &none),
                     cudaErrorNotSupported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_convolution),
        cmocka_unit_test(wide_convolutions),
        cmocka_unit_test(first_convolutions),
        cmocka_unit_test(depthwise_of_any_window),
        cmocka_unit_test(depthwise_of_usual_windows),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
