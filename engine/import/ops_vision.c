/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GridSample and the ops around it: AffineGrid (a product), DeformConv (samples at the shifted
 * places of a window, then a product); Col2Im, CenterCropPad.
 */
#include "engine/import/ops.h"
#include "engine/import/window.h"

#include <string.h>

static const char *const modes[] = {
    [IR_RESIZE_NEAREST] = "nearest", [IR_RESIZE_LINEAR] = "linear", [IR_RESIZE_CUBIC] = "cubic"};
static const char *const modes_16[] = {[IR_RESIZE_NEAREST] = "nearest",
                                       [IR_RESIZE_LINEAR] = "bilinear",
                                       [IR_RESIZE_CUBIC] = "bicubic"};
static const char *const borders[] = {
    [IR_BORDER_ZEROS] = "zeros", [IR_BORDER_EDGE] = "border", [IR_BORDER_REFLECT] = "reflection"};

static uint32_t emit_sample(struct mapper *m, uint32_t x, uint32_t grid, int64_t mode,
                            int64_t border, enum ir_sample coord)
{
    uint32_t node = emit_begin(m, IR_OP_SAMPLE, 2, (const uint32_t[]){x, grid});
    emit_int(m, node, IR_ATTR_MODE, mode);
    emit_int(m, node, IR_ATTR_BORDER, border);
    emit_int(m, node, IR_ATTR_COORD, coord);
    return emit_end(m, node);
}

void map_grid_sample(struct mapper *m)
{
    bool old = m->opset < 20;
    uint32_t x = map_in(m, 0), grid = map_in(m, 1);
    int64_t mode = map_attr_named(m, "mode", old ? modes_16 : modes, ARRAY_LEN(modes),
                                  old ? "bilinear" : "linear");
    int64_t border = map_attr_named(m, "padding_mode", borders, ARRAY_LEN(borders), "zeros");
    bool align = map_attr_int(m, "align_corners", 0) != 0;
    map_out(m, 0,
            emit_sample(m, x, grid, mode, border,
                        align ? IR_SAMPLE_ALIGN_CORNERS : IR_SAMPLE_HALF_PIXEL));
}

/* The places of an image of `size`, each as its coordinates, last dimension first, then 1: [places,
 * n + 1]. */
static uint32_t homogeneous_grid(struct mapper *m, enum dtype dtype, const int64_t *size,
                                 uint32_t n, bool align)
{
    struct shape image = {.rank = n};
    memcpy(image.dim, size, n * sizeof(*size));
    struct shape shape = {.rank = 2, .dim = {map_product(m, &image, 0, n), n + 1}};
    void *room = emit_room(m, &shape, dtype);
    for (int64_t p = 0; room && p < shape.dim[0]; p++) {
        size_t row = (size_t)p * (n + 1);
        int64_t rest = p;
        for (uint32_t k = 0; k < n; k++) {
            int64_t dim = size[n - 1 - k], i = rest % dim;
            rest /= dim;
            double corners = dim > 1 ? 2 * (double)i / (double)(dim - 1) - 1 : 0;
            double centres = (2 * (double)i + 1) / (double)dim - 1;
            emit_number(room, dtype, row + k, align ? corners : centres);
        }
        emit_number(room, dtype, row + n, 1);
    }
    return emit_constant(m, dtype, &shape, room);
}

void map_affine_grid(struct mapper *m)
{
    uint32_t theta = map_in(m, 0);
    struct shape in = *map_shape(m, theta), out = {.rank = 0};
    struct ints size;
    if (!map_known_ints(m, map_in(m, 1), &size))
        return;
    uint32_t n = size.n >= 2 ? size.n - 2 : 0;
    if (n < 2 || n > 3 || in.rank != 3 || in.dim[0] != size.v[0] || in.dim[1] != n ||
        in.dim[2] != n + 1)
        map_invalid(m, "a size of %u values does not fit its first operand", size.n);
    for (uint32_t i = 0; i < size.n && !map_failed(m); i++) {
        if (size.v[i] < 0 || size.v[i] > INT32_MAX)
            map_invalid(m, "a size of %lld", (long long)size.v[i]);
    }
    if (map_failed(m))
        return;
    bool align = map_attr_int(m, "align_corners", 0) != 0;
    uint32_t grid = homogeneous_grid(m, map_dtype(m, theta), size.v + 2, n, align);
    uint32_t node = emit_begin(m, IR_OP_MATMUL, 2, (const uint32_t[]){grid, theta});
    emit_int(m, node, IR_ATTR_TRANS_B, 1);
    out.dim[out.rank++] = in.dim[0];
    for (uint32_t i = 0; i < n; i++)
        out.dim[out.rank++] = size.v[2 + i];
    out.dim[out.rank++] = n;
    map_out(m, 0, emit_reshape(m, emit_end(m, node), &out));
}

/* --- DeformConv --- */

struct deform {
    struct window w;
    int64_t batch, channels, outputs, group, offset_group;
    int64_t taps, places;    /* of the window, and of the output */
    int64_t out[WINDOW_MAX]; /* spatial */
};

static bool read_deform(struct mapper *m, uint32_t x, uint32_t weights, uint32_t offset,
                        struct deform *d)
{
    struct shape in = *map_shape(m, x), w = *map_shape(m, weights), o = *map_shape(m, offset);
    window_read(m, x, weights, &d->w);
    d->group = map_attr_int(m, "group", 1);
    d->offset_group = map_attr_int(m, "offset_group", 1);
    if (map_failed(m))
        return false;
    d->batch = in.dim[0];
    d->channels = in.dim[1];
    d->outputs = w.dim[0];
    if (o.rank != in.rank || o.dim[0] != in.dim[0] || d->group < 1 || d->offset_group < 1 ||
        d->channels % d->group || d->channels % d->offset_group || d->outputs % d->group ||
        d->channels / d->group != w.dim[1]) {
        map_invalid(m, "weights, offsets and groups do not fit its input");
        return false;
    }
    for (uint32_t i = 0; i < d->w.n && !map_failed(m); i++) {
        int64_t room =
            in.dim[2 + i] + d->w.pads[i] + d->w.pads[d->w.n + i] - window_extent(&d->w, i);
        d->out[i] = o.dim[2 + i];
        if (room < 0 || room / d->w.strides[i] + 1 != d->out[i])
            map_invalid(m, "dimension %u of the offsets is %lld, which does not fit the window",
                        2 + i, (long long)d->out[i]);
    }
    d->taps = map_product(m, &w, 2, w.rank);
    d->places = map_product(m, &o, 2, o.rank);
    return !map_failed(m);
}

/* The places of the window's taps without offsets, in pixels, last dimension first: [taps, places,
 * n]. */
static uint32_t window_places(struct mapper *m, enum dtype dtype, const struct deform *d)
{
    uint32_t n = d->w.n;
    struct shape shape = {.rank = 3, .dim = {d->taps, d->places, n}};
    void *room = emit_room(m, &shape, dtype);
    for (size_t at = 0; room && at < (size_t)(d->taps * d->places) * n; at++) {
        uint32_t axis = n - 1 - (uint32_t)(at % n);
        int64_t place = (int64_t)(at / n) % d->places, tap = (int64_t)(at / n) / d->places;
        for (uint32_t i = n - 1; i > axis; i--) {
            place /= d->out[i];
            tap /= d->w.kernel[i];
        }
        int64_t pixel = place % d->out[axis] * d->w.strides[axis] - d->w.pads[axis] +
                        tap % d->w.kernel[axis] * d->w.dilations[axis];
        emit_number(room, dtype, at, (double)pixel);
    }
    return emit_constant(m, dtype, &shape, room);
}

/* The samples that the window's taps see: [batch, group, channels of a group x taps, places]. */
static uint32_t deformed(struct mapper *m, uint32_t x, uint32_t offset, uint32_t mask,
                         const struct deform *d)
{
    struct shape in = *map_shape(m, x);
    int64_t images = d->batch * d->offset_group, n = d->w.n;
    struct shape apart = {.rank = 4, .dim = {images, d->taps, n, d->places}};
    in.dim[0] = images;
    in.dim[1] = d->channels / d->offset_group;
    uint32_t at =
        emit_transpose(m, emit_reshape(m, offset, &apart), 4, (const int64_t[]){0, 1, 3, 2});
    at = emit_strided(m, at, 3, -1);
    at = emit_binary(m, IR_BINARY_ADD, at, window_places(m, map_dtype(m, offset), d));
    uint32_t y = emit_sample(m, emit_reshape(m, x, &in), at, IR_RESIZE_LINEAR, IR_BORDER_ZEROS,
                             IR_SAMPLE_PIXELS);
    if (mask != IR_NONE) {
        const struct shape one = {.rank = 4, .dim = {images, 1, d->taps, d->places}};
        y = emit_binary(m, IR_BINARY_MUL, y, emit_reshape(m, mask, &one));
    }
    const struct shape columns = {
        .rank = 4, .dim = {d->batch, d->group, d->channels / d->group * d->taps, d->places}};
    return emit_reshape(m, y, &columns);
}

void map_deform_conv(struct mapper *m)
{
    struct deform d;
    uint32_t x = map_in(m, 0), weights = map_in(m, 1), offset = map_in(m, 2);
    uint32_t bias = map_in_opt(m, 3), mask = map_in_opt(m, 4);
    if (!read_deform(m, x, weights, offset, &d))
        return;
    const struct shape rows = {
        .rank = 4, .dim = {1, d.group, d.outputs / d.group, d.channels / d.group * d.taps}};
    uint32_t y =
        emit_matmul(m, emit_reshape(m, weights, &rows), deformed(m, x, offset, mask, &d), IR_NONE);
    struct shape out = {.rank = 2 + d.w.n, .dim = {d.batch, d.outputs}};
    memcpy(out.dim + 2, d.out, d.w.n * sizeof(*d.out));
    y = emit_reshape(m, y, &out);
    if (bias != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, emit_along(m, bias, 1, out.rank));
    map_out(m, 0, y);
}

/* --- Col2Im --- */

/* Makes weights of a transposed convolution that put column p of a block at the block's place p. */
static uint32_t block_weights(struct mapper *m, enum dtype dtype, const struct ints *block,
                              int64_t taps)
{
    struct shape shape = {.rank = 2 + block->n, .dim = {taps, 1}};
    memcpy(shape.dim + 2, block->v, block->n * sizeof(*block->v));
    void *room = emit_room(m, &shape, dtype);
    for (int64_t i = 0; room && i < taps * taps; i++)
        emit_number(room, dtype, (size_t)i, i / taps == i % taps);
    return emit_constant(m, dtype, &shape, room);
}

static void list_or(struct mapper *m, const char *name, uint32_t n, int64_t fallback, int64_t least,
                    struct ints *out)
{
    bool given = map_attr_ints(m, name, out);
    if (given && out->n != n)
        map_invalid(m, "attribute '%s' has %u values, expected %u", name, out->n, n);
    for (uint32_t i = 0; i < n && !map_failed(m); i++) {
        out->v[i] = given ? out->v[i] : fallback;
        if (out->v[i] < least || out->v[i] > INT32_MAX)
            map_invalid(m, "attribute '%s' has a value %lld", name, (long long)out->v[i]);
    }
    out->n = n;
}

/* A transposed convolution with the same strides, pads and dilations writes this output. The blocks
 * of each channel are an image of their own. */
void map_col2im(struct mapper *m)
{
    struct ints image, block, strides, pads, dilations;
    uint32_t x = map_in(m, 0);
    struct shape in = *map_shape(m, x), cut = {.rank = 0}, out;
    if (!map_known_ints(m, map_in(m, 1), &image) || !map_known_ints(m, map_in(m, 2), &block))
        return;
    uint32_t n = image.n;
    if (in.rank != 3 || n < 1 || n > WINDOW_MAX || block.n != n)
        map_invalid(m, "an image of %u and blocks of %u dimensions", n, block.n);
    if (map_failed(m))
        return;
    list_or(m, "strides", n, 1, 1, &strides);
    list_or(m, "dilations", n, 1, 1, &dilations);
    list_or(m, "pads", 2 * n, 0, 0, &pads);
    int64_t taps = 1, rest[WINDOW_MAX], blocks = 1;
    for (uint32_t i = 0; i < n && !map_failed(m); i++) {
        if (image.v[i] < 1 || image.v[i] > INT32_MAX || block.v[i] < 1 || block.v[i] > 4096) {
            map_invalid(m, "an image of %lld in blocks of %lld", (long long)image.v[i],
                        (long long)block.v[i]);
            return;
        }
        int64_t room =
            image.v[i] + pads.v[i] + pads.v[n + i] - ((block.v[i] - 1) * dilations.v[i] + 1);
        cut.dim[2 + i] = room < 0 ? 0 : room / strides.v[i] + 1;
        rest[i] = room % strides.v[i];
        if (room < 0 || __builtin_mul_overflow(taps, block.v[i], &taps) ||
            __builtin_mul_overflow(blocks, cut.dim[2 + i], &blocks))
            map_invalid(m, "blocks that are larger than the image");
    }
    if (!map_failed(m) && (in.dim[1] % taps || in.dim[2] != blocks))
        map_invalid(m, "%lld columns of %lld, expected %lld of a multiple of %lld",
                    (long long)in.dim[2], (long long)in.dim[1], (long long)blocks, (long long)taps);
    if (map_failed(m))
        return;
    int64_t channels = in.dim[1] / taps;
    cut.rank = out.rank = 2 + n;
    cut.dim[0] = map_product(m, &(struct shape){.rank = 2, .dim = {in.dim[0], channels}}, 0, 2);
    cut.dim[1] = taps;
    const uint32_t inputs[] = {emit_reshape(m, x, &cut),
                               block_weights(m, map_dtype(m, x), &block, taps)};
    uint32_t node = emit_begin(m, IR_OP_DECONV, 2, inputs);
    emit_ints(m, node, IR_ATTR_STRIDES, n, strides.v);
    emit_ints(m, node, IR_ATTR_DILATIONS, n, dilations.v);
    emit_ints(m, node, IR_ATTR_PADS, 2 * n, pads.v);
    emit_ints(m, node, IR_ATTR_OUTPUT_PADDING, n, rest);
    out.dim[0] = in.dim[0];
    out.dim[1] = channels;
    memcpy(out.dim + 2, image.v, n * sizeof(*image.v));
    map_out(m, 0, emit_reshape(m, emit_end(m, node), &out));
}

/* --- CenterCropPad --- */

void map_center_crop_pad(struct mapper *m)
{
    struct ints sizes, axes;
    uint32_t x = map_in(m, 0), rank = map_shape(m, x)->rank;
    int64_t pads[2 * SHAPE_MAX_RANK] = {0};
    bool padded = false;
    if (!map_known_ints(m, map_in(m, 1), &sizes))
        return;
    if (!map_attr_ints(m, "axes", &axes))
        for (axes.n = 0; axes.n < rank; axes.n++)
            axes.v[axes.n] = axes.n;
    if (!map_failed(m) && sizes.n != axes.n)
        map_invalid(m, "%u sizes for %u axes", sizes.n, axes.n);
    for (uint32_t i = 0; i < axes.n && !map_failed(m); i++) {
        uint32_t axis = map_axis(m, axes.v[i], rank);
        int64_t dim = map_shape(m, x)->dim[axis], size = sizes.v[i];
        if (size < 0 || size > INT32_MAX)
            map_invalid(m, "to a size of %lld", (long long)size);
        else if (size < dim)
            x = emit_slice(m, x, axis, (dim - size) / 2, (dim - size) / 2 + size);
        else if (size > dim) {
            padded = true;
            pads[axis] = (size - dim) / 2;
            pads[rank + axis] = size - dim - pads[axis];
        }
    }
    if (padded) {
        uint32_t node = emit_begin(m, IR_OP_PAD, 1, &x);
        emit_ints(m, node, IR_ATTR_PADS, 2 * rank, pads);
        emit_int(m, node, IR_ATTR_MODE, IR_PAD_CONSTANT);
        x = emit_end(m, node);
    }
    map_out(m, 0, x);
}
