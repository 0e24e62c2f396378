/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values, how they are stored, and how far they are from fp32's. A large batch has gigabytes of
 * them, so they are cut into pieces that all cores share; sums are added up in the pieces' order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "engine/tune/spread.h"
#include "kernels/cpu/ref.h"

enum {
    LANES = 8,            /* sums side by side, so that compilers use vectors */
    LARGE_PAGE = 2 << 20, /* bytes */
    LARGE = 8 << 20,      /* bytes of a value: below, the rest of a page would be much of it */
};

size_t value_bytes(const struct ir_tensor *t)
{
    size_t n = 0;
    return shape_bytes(&t->shape, ir_tensor_type(t), &n) ? n : 0;
}

/* Large ones ask for large pages: without these a large batch has millions of page faults. */
void *value_new(const struct ir_tensor *t)
{
    size_t bytes = value_bytes(t), align = bytes < LARGE ? (size_t)BACKEND_ALIGN : LARGE_PAGE;
    size_t size = (bytes / align + 1) * align;
    void *value = aligned_alloc(align, size);
    if (value && bytes >= LARGE)
        madvise(value, size, MADV_HUGEPAGE); /* a wish: it need not be granted */
    return value;
}

static size_t count(const struct ir_tensor *t)
{
    size_t n = 0;
    return shape_elements(&t->shape, &n) ? n : 0;
}

/* --- formats --- */

static void move(enum ir_layout from_layout, enum ir_layout to_layout, const struct shape *shape,
                 enum dtype from_type, const void *from, enum dtype to_type, void *to)
{
    const struct tensor_view x = {from_type, *shape, (void *)(uintptr_t)from};
    const struct tensor_view y = {to_type, *shape, to};
    value_move(from_layout, to_layout, &x, &y);
}

/* The scale's steps and zero points as tensors. */
struct scale_views {
    struct tensor_view step, zero;
};

static struct scale_views views_of(const struct ir_scale *scale)
{
    const struct shape shape = {.rank = 1, .dim = {scale->n}};
    return (struct scale_views){
        .step = {DTYPE_F32, shape, (void *)(uintptr_t)scale->step},
        .zero = {DTYPE_I32, shape, (void *)(uintptr_t)scale->zero},
    };
}

struct run {
    const struct tensor_view *x, *y;
    const struct ir_scale *scale; /* one step for all */
};

static void quantize(const struct ir_scale *scale, const struct tensor_view *x,
                     const struct tensor_view *y)
{
    const struct scale_views v = views_of(scale);
    const struct tensor_view *zero = scale->zero ? &v.zero : NULL;
    (dtype_is_float(y->dtype) ? ref_dequantize : ref_quantize)(scale->axis, x, &v.step, zero, y);
}

static void quantize_piece(void *user, uint32_t i)
{
    const struct run *run = user;
    const struct tensor_view x = value_piece(run->x, i), y = value_piece(run->y, i);
    quantize(run->scale, &x, &y);
}

/* Between floats and steps of 8 bits, whichever of the two x is, by the reference kernels. */
static void rescale(const struct ir_scale *scale, const struct tensor_view *x,
                    const struct tensor_view *y)
{
    struct run run = {.x = x, .y = y, .scale = scale};
    if (scale->n == 1)
        spread(value_pieces(x), quantize_piece, &run);
    else
        quantize(scale, x, y);
}

bool value_store(const struct ir_graph *graph, const struct ir_tensor *t, const void *value,
                 void *to)
{
    enum dtype type = ir_tensor_type(t);
    const struct ir_scale *scale = ir_scale(graph, t->scale);
    if (!scale) {
        move(IR_LAYOUT_PLAIN, t->layout, &t->shape, type, value, t->dtype, to);
        return true;
    }
    const struct tensor_view x = {type, t->shape, (void *)(uintptr_t)value};
    struct tensor_view y = {t->dtype, t->shape, to};
    if (value_step(IR_LAYOUT_PLAIN, t->layout, scale, &x, &y))
        return true;
    CLEANUP(cleanup_free) uint8_t *bytes = malloc(count(t) + 1);
    if (!bytes)
        return false;
    y.data = bytes;
    rescale(scale, &x, &y);
    move(IR_LAYOUT_PLAIN, t->layout, &t->shape, t->dtype, bytes, t->dtype, to);
    return true;
}

bool value_load(const struct ir_graph *graph, const struct ir_tensor *t, const void *from,
                void *value)
{
    enum dtype type = ir_tensor_type(t);
    const struct ir_scale *scale = ir_scale(graph, t->scale);
    if (!scale) {
        move(t->layout, IR_LAYOUT_PLAIN, &t->shape, t->dtype, from, type, value);
        return true;
    }
    struct tensor_view x = {t->dtype, t->shape, (void *)(uintptr_t)from};
    const struct tensor_view y = {type, t->shape, value};
    if (value_step(t->layout, IR_LAYOUT_PLAIN, scale, &x, &y))
        return true;
    CLEANUP(cleanup_free) uint8_t *bytes = malloc(count(t) + 1);
    if (!bytes)
        return false;
    move(t->layout, IR_LAYOUT_PLAIN, &t->shape, t->dtype, from, t->dtype, bytes);
    x.data = bytes;
    rescale(scale, &x, &y);
    return true;
}

/* --- comparing --- */

/* Whether a tensor looks as if each row scored classes. */
static bool has_classes(const struct shape *shape)
{
    return shape->rank == 2 && shape->dim[1] > 1;
}

static size_t largest(const float *row, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

/* Adds up a run of elements, the fast way. False: some are not finite, and nothing was added. */
static bool add_finite(const float *value, const float *wanted, size_t n, struct value_error *sum)
{
    double difference[LANES] = {0}, norm[LANES] = {0}, all[2] = {0};
    for (size_t i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            double d = (double)value[i + k] - (double)wanted[i + k];
            difference[k] += d * d;
            norm[k] += (double)wanted[i + k] * (double)wanted[i + k];
        }
    for (size_t i = n - n % LANES; i < n; i++) {
        double d = (double)value[i] - (double)wanted[i];
        difference[0] += d * d;
        norm[0] += (double)wanted[i] * (double)wanted[i];
    }
    for (size_t k = 0; k < LANES; k++) {
        all[0] += difference[k];
        all[1] += norm[k];
    }
    if (!isfinite(all[0]) || !isfinite(all[1]))
        return false;
    sum->difference += all[0];
    sum->norm += all[1];
    return true;
}

static void add_any(const float *value, const float *wanted, size_t n, struct value_error *sum)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(wanted[i]))
            continue;
        sum->broken += !isfinite(value[i]);
        double d = isfinite(value[i]) ? (double)value[i] - (double)wanted[i] : 0;
        sum->difference += d * d;
        sum->norm += (double)wanted[i] * (double)wanted[i];
    }
}

struct comparison {
    const float *value, *wanted;
    size_t n;
    struct value_error *sums; /* by piece */
};

static void compare_piece(void *user, uint32_t i)
{
    const struct comparison *c = user;
    size_t at = (size_t)i * VALUE_PIECE, n = MIN(c->n - at, (size_t)VALUE_PIECE);
    if (!add_finite(c->value + at, c->wanted + at, n, &c->sums[i]))
        add_any(c->value + at, c->wanted + at, n, &c->sums[i]);
}

static bool compare_floats(const struct ir_tensor *t, const float *value, const float *wanted,
                           struct value_error *sum)
{
    size_t n = count(t), columns = has_classes(&t->shape) ? (size_t)t->shape.dim[1] : 0;
    uint32_t pieces = (uint32_t)((n + VALUE_PIECE - 1) / VALUE_PIECE);
    CLEANUP(cleanup_free) struct value_error *sums = calloc((size_t)pieces + 1, sizeof(*sums));
    struct comparison c = {value, wanted, n, sums};
    if (!sums)
        return false;
    spread(pieces, compare_piece, &c);
    for (uint32_t i = 0; i < pieces; i++) {
        sum->difference += sums[i].difference;
        sum->norm += sums[i].norm;
        sum->broken += sums[i].broken;
    }
    sum->classes = columns > 0;
    for (size_t i = 0; columns && i < n; i += columns) {
        sum->rows++;
        sum->agree += largest(value + i, columns) == largest(wanted + i, columns);
    }
    return true;
}

static void compare_integers(const struct ir_tensor *t, const void *value, const void *wanted,
                             struct value_error *sum)
{
    size_t n = count(t), size = dtype_size(ir_tensor_type(t));
    sum->classes = true;
    sum->rows += n;
    if (!memcmp(value, wanted, n * size)) {
        sum->agree += n;
        return;
    }
    for (size_t i = 0; i < n; i++)
        sum->agree +=
            !memcmp((const char *)value + i * size, (const char *)wanted + i * size, size);
}

bool value_compare(const struct ir_tensor *t, const void *value, const void *wanted,
                   struct value_error *sum)
{
    enum dtype type = ir_tensor_type(t);
    if (!dtype_is_float(type)) {
        compare_integers(t, value, wanted, sum);
        return true;
    }
    if (type == DTYPE_F32)
        return compare_floats(t, value, wanted, sum);
    CLEANUP(cleanup_free) float *x = malloc((count(t) + 1) * sizeof(*x));
    CLEANUP(cleanup_free) float *y = malloc((count(t) + 1) * sizeof(*y));
    if (!x || !y)
        return false;
    move(IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, &t->shape, type, value, DTYPE_F32, x);
    move(IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, &t->shape, type, wanted, DTYPE_F32, y);
    return compare_floats(t, x, y, sum);
}

/* Where fp32 has zeros alone, the difference counts as it is. */
double value_relative(const struct value_error *sum)
{
    if (sum->broken)
        return INFINITY;
    return sqrt(sum->difference / (sum->norm > 0 ? sum->norm : 1));
}
