/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of two convolutions of one tensor is one convolution, if the places that the one reads
 * are among those that the other reads: its weights are added to those at these places. The same
 * is true of a scale and a shift of each channel of that tensor, which are a convolution of one
 * place. Networks that are trained with such branches (RepVGG, MobileOne, RepViT) are often
 * exported with them.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum { DIMS_MAX = 3, TAPS_MAX = 1024 };

/* Where a convolution reads, along each spatial dimension. */
struct window {
    uint32_t dims;
    int64_t kernel[DIMS_MAX], stride[DIMS_MAX], dilation[DIMS_MAX], pad[DIMS_MAX];
};

/* One of the two operands of a sum. */
struct branch {
    uint32_t node, x;
    struct window window;
    int64_t group;
    float *scale, *shift; /* of a scale and shift of channels; NULL: it is a convolution */
};

static void branch_deinit(struct branch *b)
{
    free(b->scale);
    free(b->shift);
}

/* --- what the operands are --- */

static bool read_window(const struct rewrite *rw, const struct ir_node *n, struct window *w)
{
    const struct shape *weights = &ir_tensor(rw->graph, n->inputs[1])->shape;
    w->dims = weights->rank - 2;
    for (uint32_t d = 0; d < w->dims && d < DIMS_MAX; d++) {
        w->kernel[d] = weights->dim[2 + d];
        w->stride[d] = ir_attr_at(n, IR_ATTR_STRIDES, d);
        w->dilation[d] = ir_attr_at(n, IR_ATTR_DILATIONS, d);
        w->pad[d] = ir_attr_at(n, IR_ATTR_PADS, d);
    }
    return w->dims <= DIMS_MAX;
}

static bool find_conv(struct rewrite *rw, uint32_t tensor, struct branch *out)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_CONV);
    if (node == IR_NONE || rw_uses(rw, tensor) != 1 || !rw_is_float(rw, tensor) ||
        !weighted_has_constants(rw, node))
        return false;
    const struct ir_node *n = ir_node(rw->graph, node);
    *out = (struct branch){.node = node, .x = n->inputs[0], .group = ir_attr_int(n, IR_ATTR_GROUP)};
    return read_window(rw, n, &out->window);
}

/* Finds scale * x + shift, as batch normalisation becomes it. */
static bool find_scale(struct rewrite *rw, uint32_t tensor, struct branch *out)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
    const struct shape shape = ir_tensor(rw->graph, tensor)->shape;
    if (!n || n->op != IR_OP_BINARY || ir_attr_int(n, IR_ATTR_FUNC) != IR_BINARY_MUL ||
        rw_uses(rw, tensor) != 1 || n->n_epilogue != 1 || shape.rank < 3 ||
        n->epilogue[0].kind != IR_EPILOGUE_BINARY || n->epilogue[0].func != IR_BINARY_ADD)
        return false;
    uint32_t scale = n->inputs[1], shift = n->inputs[n->epilogue[0].input];
    *out = (struct branch){.node = node, .x = n->inputs[0], .group = 0};
    out->window = (struct window){
        .dims = shape.rank - 2, .kernel = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    return out->window.dims <= DIMS_MAX && constant_is_float(rw, scale) &&
           constant_is_float(rw, shift) &&
           constant_per_channel(rw, scale, &shape, 1, &out->scale) &&
           constant_per_channel(rw, shift, &shape, 1, &out->shift);
}

/* --- whether the one reads what the other reads --- */

static int64_t taps_of(const struct window *w)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < w->dims; d++)
        n *= w->kernel[d];
    return n;
}

/* Sets taps[i] to the host's tap that reads what the guest's tap i reads. */
static bool map_taps(const struct window *host, const struct window *guest, int64_t *taps,
                     int64_t *n)
{
    *n = taps_of(guest);
    for (uint32_t d = 0; d < guest->dims; d++)
        if (*n > TAPS_MAX || host->stride[d] != guest->stride[d])
            return false;
    for (int64_t i = 0; i < *n; i++) {
        int64_t left = i, unit = 1;
        taps[i] = 0;
        for (uint32_t d = guest->dims; d-- > 0; left /= guest->kernel[d]) {
            int64_t at = left % guest->kernel[d] * guest->dilation[d] - guest->pad[d];
            int64_t from = at + host->pad[d], tap = from / host->dilation[d];
            if (from < 0 || from % host->dilation[d] || tap >= host->kernel[d])
                return false;
            taps[i] += tap * unit;
            unit *= host->kernel[d];
        }
    }
    return true;
}

/* --- the sum of weights --- */

/* Adds the guest's weights to `sum`, which has the host's: [channels][depth][taps]. */
static void add_weights(const struct rewrite *rw, const struct branch *host,
                        const struct branch *guest, const int64_t *taps, int64_t n, float *sum)
{
    const struct shape *shape =
        &ir_tensor(rw->graph, ir_node(rw->graph, host->node)->inputs[1])->shape;
    int64_t channels = shape->dim[0], depth = shape->dim[1], all = taps_of(&host->window);
    uint32_t weights = guest->scale ? IR_NONE : ir_node(rw->graph, guest->node)->inputs[1];
    for (int64_t c = 0; c < channels; c++) {
        if (guest->scale) { /* channel c reads itself, which its group has as one of `depth` */
            sum[(c * depth + c % depth) * all + taps[0]] += guest->scale[c];
            continue;
        }
        for (int64_t k = c * depth; k < (c + 1) * depth; k++)
            for (int64_t i = 0; i < n; i++)
                sum[k * all + taps[i]] += constant_at(rw, weights, (size_t)(k * n + i));
    }
}

/* The guest's bias, or shift, of each channel; NULL: no memory. */
static float *bias_of(struct rewrite *rw, const struct branch *guest, size_t channels)
{
    float *bias = calloc(channels + 1, sizeof(*bias));
    uint32_t from = guest->scale ? IR_NONE : weighted_bias(ir_node(rw->graph, guest->node));
    if (!bias)
        rw_fail(rw);
    for (size_t c = 0; bias && c < channels; c++)
        bias[c] = guest->shift ? guest->shift[c] : from == IR_NONE ? 0 : constant_at(rw, from, c);
    return bias;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void merge(struct rewrite *rw, uint32_t node, const struct branch *host,
                  const struct branch *guest, const int64_t *taps, int64_t n)
{
    const uint32_t weights = ir_node(rw->graph, host->node)->inputs[1];
    const struct ir_tensor t = *ir_tensor(rw->graph, weights);
    size_t total = 0, channels = (size_t)t.shape.dim[0];
    if (!shape_elements(&t.shape, &total) || t.bytes > rw->room)
        return;
    CLEANUP(cleanup_free) float *sum = calloc(total + 1, sizeof(*sum));
    CLEANUP(cleanup_free) float *bias = bias_of(rw, guest, channels);
    if (!sum || !bias) {
        rw_fail(rw);
        return;
    }
    for (size_t i = 0; i < total; i++)
        sum[i] = constant_at(rw, weights, i);
    add_weights(rw, host, guest, taps, n, sum);
    if (!all_finite(sum, total) || !all_finite(bias, channels))
        return;
    uint32_t made = constant_make(rw, t.name, t.dtype, &t.shape, sum);
    if (made == IR_NONE)
        return;
    rw->room -= t.bytes;
    rw_done(rw, "%s + %s: one convolution", ir_node(rw->graph, host->node)->name,
            ir_node(rw->graph, guest->node)->name);
    rw_set_input(rw, host->node, 1, made);
    const struct weighted w = {.node = host->node, .axis = 1, .channels = channels};
    weighted_shift(rw, &w, NULL, bias);
    rw_absorb(rw, host->node, node);
}

/* Whether the guest can become a part of the host's weights. */
static bool fits(const struct rewrite *rw, const struct branch *host, const struct branch *guest,
                 int64_t *taps, int64_t *n)
{
    const struct ir_node *h = ir_node(rw->graph, host->node);
    const struct shape *x = &ir_tensor(rw->graph, host->x)->shape;
    const struct shape *w = &ir_tensor(rw->graph, h->inputs[1])->shape;
    if (host->x != guest->x || host->window.dims != guest->window.dims)
        return false;
    if (guest->scale ? x->dim[1] != w->dim[0] : host->group != guest->group)
        return false;
    return map_taps(&host->window, &guest->window, taps, n);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!rw_is_binary(rw, node, IR_BINARY_ADD))
        return;
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t one = rw_input(rw, node, i), other = rw_input(rw, node, 1 - i);
        CLEANUP(branch_deinit) struct branch host = {0}, guest = {0};
        int64_t taps[TAPS_MAX], n;
        if (one == other || !shape_equal(&ir_tensor(rw->graph, one)->shape, y) ||
            !shape_equal(&ir_tensor(rw->graph, other)->shape, y) || !find_conv(rw, one, &host) ||
            !(find_conv(rw, other, &guest) || find_scale(rw, other, &guest)) ||
            !fits(rw, &host, &guest, taps, &n))
            continue;
        merge(rw, node, &host, &guest, taps, n);
        return;
    }
}

PASS(merge_branches)
{
    return rewrite_run(graph, ctx, visit, err);
}
