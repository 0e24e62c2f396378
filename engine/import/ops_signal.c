/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DFT and STFT as products with a matrix of sines and cosines that is made here; MelWeightMatrix.
 *
 * A product takes more steps than a fast transform, but products are what machines do best. A
 * transform of more than a few thousand points is refused, because its matrix would be larger than
 * most models.
 */
#include "engine/import/ops.h"

#include <math.h>
#include <string.h>

enum { MATRIX_MAX = 1 << 24, MEL_MAX = 1 << 22 }; /* elements */

static const double turn = 6.283185307179586;

/* A transform, as far as its matrix depends on it. */
struct dft {
    int64_t length;     /* of the transform */
    int64_t rows, bins; /* points that are read, and written */
    int64_t parts_in;   /* 1: real, 2: complex */
    int64_t parts_out;  /* 1 for the inverse of half a spectrum */
    bool inverse, half;
};

/* The number in the matrix by which point `row` of the input counts in point `bin` of the output.
 * `from` and `to` say which parts they are: 0 real, 1 imaginary. */
static double factor(const struct dft *d, int64_t row, int64_t from, int64_t bin, int64_t to)
{
    double angle = turn * (double)(row * bin % d->length) / (double)d->length;
    double sine = d->inverse ? sin(angle) : -sin(angle);
    double value = from == to ? cos(angle) : to ? sine : -sine;
    if (!d->inverse)
        return value;
    bool twice = d->half && row != 0 && 2 * row != d->length; /* counts for its mirror image too */
    return value * (twice ? 2 : 1) / (double)d->length;
}

static uint32_t dft_matrix(struct mapper *m, enum dtype dtype, const struct dft *d)
{
    int64_t rows = d->rows * d->parts_in, columns = d->bins * d->parts_out;
    struct shape shape = {.rank = 2, .dim = {rows, columns}};
    void *room = emit_room(m, &shape, dtype);
    for (int64_t i = 0; room && i < rows * columns; i++) {
        int64_t row = i / columns, column = i % columns;
        emit_number(room, dtype, (size_t)i,
                    factor(d, row / d->parts_in, row % d->parts_in, column / d->parts_out,
                           column % d->parts_out));
    }
    return emit_constant(m, dtype, &shape, room);
}

/* Fills in what follows from the number of points on the axis and the length; length 0: as many as
 * there are points. */
static void dft_sizes(struct mapper *m, struct dft *d, int64_t points, int64_t length)
{
    bool mirror = d->inverse && d->half;
    d->length = length ? length : mirror ? 2 * (points - 1) : points;
    if (d->length < 1 || d->length > MATRIX_MAX || points < 1) {
        map_invalid(m, "a transform of %lld points", (long long)d->length);
        d->length = 1;
    }
    d->rows = MIN(points, mirror ? d->length / 2 + 1 : d->length);
    d->bins = d->half && !d->inverse ? d->length / 2 + 1 : d->length;
    d->parts_out = mirror ? 1 : 2;
    if (d->rows * d->parts_in > MATRIX_MAX / (d->bins * d->parts_out))
        map_refuse(m, "a transform of %lld points", (long long)d->length);
}

/* Transforms x[.., parts] along an axis. */
static uint32_t emit_dft(struct mapper *m, uint32_t x, uint32_t axis, const struct dft *d)
{
    struct shape shape = *map_shape(m, x), flat = {.rank = 2};
    int64_t perm[SHAPE_MAX_RANK], back[SHAPE_MAX_RANK];
    uint32_t rank = shape.rank;
    if (map_failed(m))
        return IR_NONE;
    for (uint32_t i = 0; i < rank; i++) {
        perm[i] = i < axis || i == rank - 1 ? i : i == rank - 2 ? axis : i + 1;
        back[perm[i]] = i;
    }
    if (shape.dim[axis] > d->rows)
        x = emit_slice(m, x, axis, 0, d->rows);
    if (axis != rank - 2)
        x = emit_transpose(m, x, rank, perm);
    shape = *map_shape(m, x);
    flat.dim[0] = map_product(m, &shape, 0, rank - 2);
    flat.dim[1] = d->rows * d->parts_in;
    shape.dim[rank - 2] = d->bins;
    shape.dim[rank - 1] = d->parts_out;
    uint32_t y =
        emit_matmul(m, emit_reshape(m, x, &flat), dft_matrix(m, map_dtype(m, x), d), IR_NONE);
    y = emit_reshape(m, y, &shape);
    return axis != rank - 2 ? emit_transpose(m, y, rank, back) : y;
}

/* How many parts the last dimension has: the real one, or the real and the imaginary one. */
static int64_t parts_of(struct mapper *m, uint32_t x, uint32_t least_rank)
{
    const struct shape *shape = map_shape(m, x);
    if (!map_failed(m) && shape->rank < least_rank)
        map_invalid(m, "its input has rank %u, expected %u at least", shape->rank, least_rank);
    int64_t parts = map_failed(m) ? 1 : shape->dim[shape->rank - 1];
    if (parts != 1 && parts != 2)
        map_invalid(m, "its last dimension is %lld, expected 1 or 2", (long long)parts);
    return parts;
}

void map_dft(struct mapper *m)
{
    uint32_t x = map_in(m, 0), length = map_in_opt(m, 1), axis_in = IR_NONE;
    int64_t axis = m->opset < 20 ? map_attr_int(m, "axis", 1) : -2;
    struct dft d = {.parts_in = parts_of(m, x, 2)};
    uint32_t rank = map_shape(m, x)->rank;
    if (m->opset >= 20)
        axis_in = map_in_opt(m, 2);
    if (axis_in != IR_NONE)
        axis = map_known_int(m, axis_in);
    int64_t points = length == IR_NONE ? 0 : map_known_int(m, length);
    uint32_t at = map_axis(m, axis, rank);
    d.inverse = map_attr_int(m, "inverse", 0) != 0;
    d.half = map_attr_int(m, "onesided", 0) != 0;
    if (!map_failed(m) && (at == rank - 1 || points < 0 || (length != IR_NONE && !points)))
        map_invalid(m, "axis %u and length %lld", at, (long long)points);
    if (map_failed(m))
        return;
    dft_sizes(m, &d, map_shape(m, x)->dim[at], points);
    map_out(m, 0, emit_dft(m, x, at, &d));
}

/* Cuts x[batch, points, parts] into frames: [batch, frames, length, parts]. */
static uint32_t emit_frames(struct mapper *m, uint32_t x, int64_t length, int64_t step)
{
    int64_t points = map_shape(m, x)->dim[1];
    if (length < 1 || length > points || step < 1) {
        map_invalid(m, "frames of %lld every %lld of %lld points", (long long)length,
                    (long long)step, (long long)points);
        return IR_NONE;
    }
    struct shape shape = {.rank = 2, .dim = {(points - length) / step + 1, length}};
    int64_t *indices = emit_room(m, &shape, DTYPE_I64);
    for (int64_t i = 0; indices && i < shape.dim[0] * length; i++)
        indices[i] = i / length * step + i % length;
    return emit_gather(m, x, emit_constant(m, DTYPE_I64, &shape, indices), 1);
}

void map_stft(struct mapper *m)
{
    uint32_t x = map_in(m, 0), window = map_in_opt(m, 2), given = map_in_opt(m, 3);
    int64_t step = map_known_int(m, map_in(m, 1)), parts, length = 0;
    struct shape signal = *map_shape(m, x);
    if (signal.rank == 2) { /* a real signal without its last dimension, as torch writes it */
        signal.dim[signal.rank++] = 1;
        x = emit_reshape(m, x, &signal);
    }
    parts = parts_of(m, x, 3);
    if (!map_failed(m) && map_shape(m, x)->rank != 3)
        map_invalid(m, "its signal has rank %u, expected 3", map_shape(m, x)->rank);
    if (!map_failed(m) && window != IR_NONE && map_shape(m, window)->rank != 1)
        map_invalid(m, "its window has rank %u, expected 1", map_shape(m, window)->rank);
    if (given != IR_NONE)
        length = map_known_int(m, given);
    else if (window != IR_NONE)
        length = map_shape(m, window)->dim[0];
    else
        map_invalid(m, "it has neither a window nor a frame length");
    if (!map_failed(m) && window != IR_NONE && map_shape(m, window)->dim[0] != length)
        map_invalid(m, "a window of %lld for frames of %lld",
                    (long long)map_shape(m, window)->dim[0], (long long)length);
    if (map_failed(m))
        return;
    struct dft d = {.parts_in = parts, .half = map_attr_int(m, "onesided", 1) != 0};
    uint32_t frames = emit_frames(m, x, length, step);
    dft_sizes(m, &d, length, length);
    if (window != IR_NONE)
        frames = emit_binary(m, IR_BINARY_MUL, frames, emit_along(m, window, 2, 4));
    map_out(m, 0, emit_dft(m, frames, 2, &d));
}

/* --- MelWeightMatrix --- */

static double mel_of(double hertz)
{
    return 2595 * log10(1 + hertz / 700);
}

/* The bin of the spectrum into which edge i of n triangles falls. */
static double mel_edge(double low, double high, int64_t i, int64_t n, double length, double rate)
{
    double mel = mel_of(low) + (double)i * (mel_of(high) - mel_of(low)) / (double)n;
    return floor((length + 1) * (700 * (pow(10, mel / 2595) - 1)) / rate);
}

/* The weight of bin `at` in the triangle low-top-high. */
static double triangle(double at, double low, double top, double high)
{
    if (at >= top && at < high)
        return (high - at) / (high - top);
    if (at == top)
        return 1;
    return at >= low && at < top ? (at - low) / (top - low) : 0;
}

void map_mel_weight_matrix(struct mapper *m)
{
    int64_t mels = map_known_int(m, map_in(m, 0)), length = map_known_int(m, map_in(m, 1));
    int64_t rate = map_known_int(m, map_in(m, 2));
    double low = map_known_number(m, map_in(m, 3)), high = map_known_number(m, map_in(m, 4));
    enum dtype dtype = onnx_dtype(map_attr_int(m, "output_datatype", ONNX_FLOAT));
    if (!map_failed(m) && (dtype == DTYPE_NONE || dtype == DTYPE_BOOL))
        map_refuse(m, "of that element type");
    if (mels < 1 || mels > MEL_MAX || length < 1 || length > MEL_MAX || rate < 1 || !(low >= 0) ||
        !(high >= low) || isinf(high))
        map_invalid(m, "%lld bands of %lld points at a rate of %lld, from %g to %g hertz",
                    (long long)mels, (long long)length, (long long)rate, low, high);
    if (map_failed(m))
        return;
    struct shape shape = {.rank = 2, .dim = {length / 2 + 1, mels}};
    if (shape.dim[0] > MATRIX_MAX / mels) {
        map_refuse(m, "%lld bands of %lld points", (long long)mels, (long long)length);
        return;
    }
    void *room = emit_room(m, &shape, dtype);
    for (int64_t k = 0; room && k < mels; k++) {
        double edges[3];
        for (int64_t i = 0; i < 3; i++)
            edges[i] = mel_edge(low, high, k + i, mels + 2, (double)length, (double)rate);
        for (int64_t bin = 0; bin < shape.dim[0]; bin++)
            emit_number(room, dtype, (size_t)(bin * mels + k),
                        triangle((double)bin, edges[0], edges[1], edges[2]));
    }
    map_out(m, 0, emit_constant(m, dtype, &shape, room));
}
