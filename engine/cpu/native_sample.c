/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SAMPLE. A unit of work is a block of output positions of one image: where they read is found
 * once, then every channel reads there. In the channels-last layout all channels of a position are
 * read together. Other layouts of blocks are left to the plain one.
 */
#include <math.h>

#include "base/compiler.h"
#include "engine/cpu/call.h"
#include "engine/cpu/native_op.h"

enum { TAPS_ALL = 2048 }; /* of one block */

static struct tensor_view grid_of(const struct native_op *op)
{
    struct tensor_view view = {.dtype = DTYPE_F32, .shape = op->sample.grid, .data = op->inputs[1]};
    return view;
}

/* The positions `first` to first + n - 1, counted over all images, one by one. */
static void find_taps(const struct native_op *op, int64_t first, int64_t n, int32_t *at,
                      float *weight)
{
    const struct native_sample *s = &op->sample;
    struct tensor_view grid = grid_of(op);
    struct ref_taps taps;
    for (int64_t p = 0; p < n; p++) {
        ref_sample_taps(&s->how, &s->x, &grid, first + p, &taps);
        for (int64_t k = 0; k < s->taps; k++) {
            bool there = k < (int64_t)taps.n;
            at[k * s->block + p] = there ? (int32_t)taps.at[k] : 0;
            weight[k * s->block + p] = there ? (float)taps.weight[k] : 0;
        }
    }
}

/* The same, for bilinear samples without reflection. */
static void find_bilinear(const struct native_op *op, int64_t first, int64_t n, int32_t *at,
                          float *weight)
{
    const struct native_sample *s = &op->sample;
    double a[2], b[2];
    for (int d = 0; d < 2; d++) { /* the grid names the last dim first */
        double dim = (double)s->x.dim[3 - d];
        bool half = s->how.coord == IR_SAMPLE_HALF_PIXEL, pixels = s->how.coord == IR_SAMPLE_PIXELS;
        a[d] = pixels ? 1 : half ? dim / 2 : (dim - 1) / 2;
        b[d] = pixels ? 0 : (dim - 1) / 2;
    }
    op->fast->sweep->bilinear((const float *)op->inputs[1] + first * 2, n, s->x.dim[2], s->x.dim[3],
                              a, b, s->how.border == IR_BORDER_EDGE, s->block, at, weight);
}

static void run_sample(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_sample *s = &op->sample;
    int64_t channels = s->x.dim[1], plane = ref_extent(&s->x, 2, s->x.rank);
    int32_t at[TAPS_ALL];
    float weight[TAPS_ALL];
    for (int64_t unit = first; unit < end; unit++) {
        int64_t image = unit / s->blocks, from = unit % s->blocks * s->block;
        int64_t n = MIN(s->places - from, s->block);
        struct sweep_table table = {n, s->taps, s->block, at, weight};
        const float *x = (const float *)op->inputs[0] + image * channels * plane;
        float *y = (float *)op->output + image * channels * s->places;
        (s->bilinear ? find_bilinear : find_taps)(op, image * s->places + from, n, at, weight);
        if (op->layout == IR_LAYOUT_CHANNELS_LAST) {
            op->fast->sweep->pick(y + from * channels, x, &table, (size_t)channels, 1, false);
            continue;
        }
        for (int64_t c = 0; c < channels; c++)
            op->fast->sweep->pick(y + c * s->places + from, x + c * plane, &table, 1, 1, false);
    }
}

bool native_sample_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    struct native_sample *s = &op->sample;
    s->how = call_sample(node);
    s->x = ir_tensor(graph, node->inputs[0])->shape;
    s->grid = ir_tensor(graph, node->inputs[1])->shape;
    if (ir_layout_block(op->layout) || !native_all_f32(graph, node, 0) ||
        ref_extent(&s->x, 2, s->x.rank) > INT32_MAX || ref_extent(&s->x, 2, s->x.rank) == 0)
        return false;
    int64_t of_dim = s->how.mode == IR_RESIZE_NEAREST ? 1 : s->how.mode == IR_RESIZE_LINEAR ? 2 : 4;
    for (s->taps = 1; s->rank < s->x.rank - 2; s->rank++)
        s->taps *= of_dim;
    if (s->taps > REF_TAPS_MAX)
        return false;
    s->bilinear =
        s->how.mode == IR_RESIZE_LINEAR && s->rank == 2 && s->how.border != IR_BORDER_REFLECT;
    s->places = ref_extent(&s->grid, 1, s->grid.rank - 1);
    s->block = TAPS_ALL / s->taps;
    s->blocks = (s->places + s->block - 1) / s->block;
    op->units = s->x.dim[0] * s->blocks;
    op->work = run_sample;
    return true;
}
