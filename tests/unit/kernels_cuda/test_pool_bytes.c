/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling of tensors in 8 bits against the reference, exactly: steps are powers of two and numbers
 * few enough, so that all sums are exact in floats, too.
 */
#include <math.h>
#include <stdio.h>

#include "base/compiler.h"
#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/test.h"

static const enum dtype types[] = {DTYPE_I8, DTYPE_U8, DTYPE_F8, DTYPE_F16, DTYPE_BF16, DTYPE_F32};

struct side {
    enum dtype dtype;
    float step, zero; /* step 0: numbers as they are */
};

struct pool_case {
    struct side x, y;
    bool average, count_pad, last;
    int64_t n, c;
    int32_t apart;      /* channels that are pooled by a call of their own, the last ones */
    int32_t processors; /* 1 is busy with little, and 0 stands for many */
    int32_t spatial;
    int32_t in[3], kernel[3], stride[3], dilation[3], pad[3], end[3], extra[3];
};

static int32_t draw(int32_t from, int32_t to)
{
    return from + (int32_t)array_draw((uint32_t)(to - from + 1));
}

static bool in_bytes(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8 || dtype == DTYPE_F8;
}

static struct side draw_side(enum dtype dtype)
{
    struct side s = {.dtype = dtype};
    if (in_bytes(dtype))
        s.step = ldexpf(1, draw(-6, 1));
    if (dtype == DTYPE_I8)
        s.zero = (float)draw(-9, 9);
    if (dtype == DTYPE_U8)
        s.zero = (float)draw(100, 140);
    return s;
}

static void case_text(const struct pool_case *c, char *out, size_t size)
{
    snprintf(out, size,
             "%s step %g zero %g to %s step %g zero %g, average %d count %d last %d "
             "[%d,%d,%d,%d,%d] apart %d kernel %d %d %d stride %d %d %d dilation %d %d %d pad %d "
             "%d %d end %d %d %d",
             dtype_name(c->x.dtype), (double)c->x.step, (double)c->x.zero, dtype_name(c->y.dtype),
             (double)c->y.step, (double)c->y.zero, c->average, c->count_pad, c->last, (int)c->n,
             (int)c->c, c->in[0], c->in[1], c->in[2], c->apart, c->kernel[0], c->kernel[1],
             c->kernel[2], c->stride[0], c->stride[1], c->stride[2], c->dilation[0], c->dilation[1],
             c->dilation[2], c->pad[0], c->pad[1], c->pad[2], c->end[0], c->end[1], c->end[2]);
}

/* Outputs of a dim; 0: the window does not fit. */
static int64_t out_of(const struct pool_case *c, int d)
{
    int64_t reach = (int64_t)(c->kernel[d] - 1) * c->dilation[d] + 1;
    int64_t room = c->in[d] + c->pad[d] + c->end[d] - reach;
    int64_t n = room < 0 ? 0 : room / c->stride[d] + 1;
    /* A last window that begins inside the image may reach out of it. */
    return n && c->extra[d] && n * c->stride[d] < c->in[d] + c->pad[d] ? n + 1 : n;
}

/* Numbers as they are stored; floats have few bits. */
static void fill(struct array *x, const struct side *side)
{
    float *v = array_values(x);
    for (size_t i = 0; i < array_count(x); i++)
        v[i] = side->dtype == DTYPE_I8   ? (float)draw(-128, 127)
               : side->dtype == DTYPE_U8 ? (float)draw(0, 255)
                                         : (float)draw(-120, 120) / 16;
    if (side->dtype != DTYPE_I8 && side->dtype != DTYPE_U8 && draw(0, 3) == 0)
        v[array_draw((uint32_t)array_count(x))] = NAN;
    array_store(x);
}

static float stands_for(const struct side *s, float q)
{
    return s->step != 0 ? (q - s->zero) * s->step : q;
}

static float stored(const struct side *s, float v)
{
    if (s->dtype == DTYPE_F8)
        return f8_to_f32(f32_to_f8(v / s->step));
    if (!in_bytes(s->dtype))
        return v;
    float least = s->dtype == DTYPE_I8 ? -128 : 0;
    return isnan(v) ? least : fminf(fmaxf(rintf(v / s->step) + s->zero, least), least + 255);
}

static void set_side(struct array *a, const struct side *side)
{
    a->view.step = side->step;
    a->view.zero = side->zero;
}

/* The channels from `first` on, `n` of them. */
static struct kernel_view some_channels(const struct array *a, int64_t first, int64_t n)
{
    struct kernel_view v = a->view;
    v.data = (char *)v.data + (size_t)(first * v.stride[1]) * dtype_size((enum dtype)v.dtype);
    v.dim[1] = n;
    return v;
}

static void run(const struct pool_case *c, const struct kernel_window *window,
                const struct array *x, struct array *y, const char *what)
{
    struct kernel_call dry = {.dry = true}, call = {.multiprocessors = c->processors};
    const int64_t first[3] = {0, c->c - c->apart, c->c};
    array_poison(y);
    for (int i = 0; i < 2; i++) {
        struct kernel_view from = some_channels(x, first[i], first[i + 1] - first[i]);
        struct kernel_view to = some_channels(y, first[i], first[i + 1] - first[i]);
        cudaError_t may = kernel_bytes_pool(&dry, c->average, c->count_pad, window, &from, &to);
        cudaError_t did = kernel_bytes_pool(&call, c->average, c->count_pad, window, &from, &to);
        if (may != cudaSuccess || did != cudaSuccess)
            fail_msg("%s: dry %d, launched %d", what, (int)may, (int)did);
    }
    array_check(y, 0, what);
}

static void check_case(const struct pool_case *c)
{
    int rank = c->spatial + 2;
    int64_t in[5] = {c->n, c->c}, out[5] = {c->n, c->c};
    struct kernel_window window = {.spatial = c->spatial};
    struct ref_pooling ref = {.func = c->average ? IR_POOL_AVERAGE : IR_POOL_MAX,
                              .win = {.rank = (uint32_t)c->spatial},
                              .count_include_pad = c->count_pad};
    char what[400];
    case_text(c, what, sizeof(what));
    for (int d = 0; d < c->spatial; d++) {
        in[d + 2] = c->in[d];
        out[d + 2] = out_of(c, d);
        if (out[d + 2] == 0)
            return;
        ref.win.kernel[d] = window.kernel[d] = c->kernel[d];
        ref.win.strides[d] = window.stride[d] = c->stride[d];
        ref.win.dilations[d] = window.dilation[d] = c->dilation[d];
        ref.win.pads[d] = window.pad[d] = c->pad[d];
        ref.ends[d] = window.end[d] = c->end[d];
    }
    const int *order = c->last ? array_channels_last(rank) : NULL;
    struct array x = array_new(c->x.dtype, rank, in, order, 1);
    struct array y = array_new(c->y.dtype, rank, out, order, 1);
    fill(&x, &c->x);
    set_side(&x, &c->x);
    set_side(&y, &c->y);
    for (size_t i = 0; i < array_count(&x); i++)
        array_values(&x)[i] = stands_for(&c->x, array_values(&x)[i]);
    ref_pool(&ref, &x.dense, &y.dense, NULL);
    for (size_t i = 0; i < array_count(&y); i++)
        array_values(&y)[i] = stored(&c->y, array_values(&y)[i]);
    run(c, &window, &x, &y, what);
    array_free(&x), array_free(&y);
}

/* A case without its window. */
static struct pool_case draw_case(int i)
{
    struct pool_case c = {.x = draw_side(types[i % 6]),
                          .y = draw_side(types[array_draw(6)]),
                          .average = array_draw(2),
                          .count_pad = array_draw(2),
                          .last = array_draw(4) != 0,
                          .n = draw(1, 3),
                          .processors = draw(0, 1),
                          .c = array_draw(2)   ? 16 * draw(1, 3)
                               : array_draw(2) ? 8 * draw(1, 5)
                                               : draw(1, 21)};
    if (array_draw(3) == 0)
        c.y = c.x;
    if (array_draw(3) == 0)
        c.apart = draw(0, (int32_t)c.c);
    return c;
}

static void any_window(void **state)
{
    (void)state;
    for (int i = 0; i < 480; i++) {
        struct pool_case c = draw_case(i);
        c.spatial = draw(1, 3);
        for (int d = 0; d < c.spatial; d++) {
            c.in[d] = draw(1, 9);
            c.kernel[d] = draw(1, 4);
            c.stride[d] = draw(1, 3);
            c.dilation[d] = draw(1, 3);
            c.pad[d] = draw(0, c.kernel[d]); /* a whole kernel: windows with nothing in them */
            c.end[d] = draw(0, c.kernel[d]);
            c.extra[d] = draw(0, 1);
        }
        check_case(&c);
    }
}

/* Rows long enough that threads share them, and global windows, which are one row. */
static void windows_that_are_shared(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct pool_case c = draw_case(i);
        bool whole = array_draw(3) != 0;
        c.spatial = draw(1, 3);
        for (int d = 0; d < c.spatial; d++) {
            c.in[d] = c.spatial == 1 ? draw(1, 90) : c.spatial == 2 ? draw(1, 11) : draw(1, 5);
            if (!whole && d == c.spatial - 1)
                c.in[d] = draw(20, 40);
            c.kernel[d] = array_draw(8) ? c.in[d] : draw(1, c.in[d]);
            c.stride[d] = draw(1, 3);
            c.dilation[d] = 1;
            c.pad[d] = whole ? 0 : draw(0, 2);
            c.end[d] = whole ? 0 : draw(0, 2);
        }
        check_case(&c);
    }
}

/* The layer of ResNet-50, in miniature: more windows than threads have room for, and few. */
static void global_averages(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct pool_case c = {.x = draw_side(i % 2 ? DTYPE_U8 : DTYPE_I8),
                              .y = draw_side(types[i / 4]),
                              .average = true,
                              .last = true,
                              .n = i % 4 < 2 ? 1 : 9,
                              .c = 16 * draw(20, 40),
                              .processors = i % 3 != 0,
                              .spatial = 2,
                              .in = {7, 7},
                              .kernel = {7, 7},
                              .stride = {1, 1},
                              .dilation = {1, 1}};
        check_case(&c);
    }
}

static void sums_beyond_int32_are_refused(void **state)
{
    struct kernel_call call = {.dry = true};
    struct kernel_view x = {.dtype = DTYPE_I8,
                            .rank = 3,
                            .dim = {1, 16, (1 << 22) + 1},
                            .stride = {16 << 22, 1, 16},
                            .step = 1};
    struct kernel_view y = {
        .dtype = DTYPE_I8, .rank = 3, .dim = {1, 16, 1}, .stride = {16, 1, 16}, .step = 1};
    struct kernel_window window = {
        .spatial = 1, .kernel = {1 << 22}, .stride = {2}, .dilation = {1}};
    (void)state;
    assert_int_equal(kernel_bytes_pool(&call, true, false, &window, &x, &y), cudaSuccess);
    window.kernel[0]++;
    assert_int_equal(kernel_bytes_pool(&call, true, false, &window, &x, &y), cudaErrorNotSupported);
    assert_int_equal(kernel_bytes_pool(&call, false, false, &window, &x, &y), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_window),
        cmocka_unit_test(windows_that_are_shared),
        cmocka_unit_test(global_averages),
        cmocka_unit_test(sums_beyond_int32_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
