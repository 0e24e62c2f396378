/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averages of 8-bit numbers over windows or whole images, channels last. Sums are of integers, and
 * exact; then the average is a real number, which goes through the epilogue and may become 8 bits
 * again. A unit of work is one position of the output and some of its channels.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum { CHANNELS = 256 };

/* A window over the image: its corner, the taps inside of the image, and those that count. */
struct taps {
    int64_t first[SHAPE_MAX_RANK], n[SHAPE_MAX_RANK];
    int64_t inside, counted;
};

static int64_t round_up(int64_t n, int64_t by)
{
    return n > 0 ? (n + by - 1) / by : 0;
}

static struct taps taps_at(const struct native_average *a, int64_t position)
{
    struct taps t = {.inside = 1, .counted = 1};
    for (uint32_t d = a->rank; d-- > 0;) {
        int64_t at = position % a->out[d] * a->stride[d] - a->begin[d], by = a->dilation[d];
        int64_t skipped = MIN(round_up(-at, by), a->kernel[d]);
        int64_t inside = MIN(round_up(a->in[d] - at, by), a->kernel[d]);
        int64_t reached = MIN(round_up(a->in[d] + a->end[d] - at, by), a->kernel[d]);
        position /= a->out[d];
        t.first[d] = at + skipped * by;
        t.n[d] = MAX(inside - skipped, 0);
        t.inside *= t.n[d];
        t.counted *= a->counts_padding ? reached : t.n[d];
    }
    return t;
}

/* Adds up channels `first`.. of all taps of the window; x is the image. */
static void add_taps(const struct native_op *op, const struct taps *t, const uint8_t *x,
                     int64_t first, size_t n, int32_t *sums)
{
    const struct native_average *a = &op->average;
    enum byte_type type = native_byte(&a->x);
    memset(sums, 0, n * sizeof(*sums));
    for (int64_t tap = 0; tap < t->inside; tap++) {
        int64_t rest = tap, place = 0, step = 1;
        for (uint32_t d = a->rank; d-- > 0;) {
            place += (t->first[d] + rest % t->n[d] * a->dilation[d]) * step;
            rest /= t->n[d];
            step *= a->in[d];
        }
        op->fast->bytes->add[type](x + place * a->channels + first, sums, n);
    }
}

static void run_average(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_average *a = &op->average;
    const struct stored *x = &a->x;
    int64_t positions = 1, pixels = 1;
    for (uint32_t d = 0; d < a->rank; d++) {
        positions *= a->out[d];
        pixels *= a->in[d];
    }
    for (int64_t unit = first; unit < end; unit++) {
        int64_t channel = unit % a->blocks * CHANNELS, row = unit / a->blocks;
        size_t n = (size_t)MIN(a->channels - channel, CHANNELS);
        struct taps t = taps_at(a, row % positions);
        int32_t sums[CHANNELS];
        float means[CHANNELS];
        add_taps(op, &t, (const uint8_t *)op->inputs[0] + row / positions * pixels * a->channels,
                 channel, n, sums);
        for (size_t i = 0; i < n; i++)
            means[i] = (float)((double)x->step * ((double)sums[i] - (double)(x->zero * t.inside)) /
                               (double)t.counted);
        int64_t at = row * a->channels + channel;
        native_after_on(op, at, means, (int64_t)n);
        if (op->stored[0].dtype != DTYPE_NONE)
            native_store(op, at, means, n);
        else
            memcpy((float *)op->output + at, means, n * sizeof(*means));
    }
}

static bool set_window(struct native_average *a, const struct ir_node *node, const struct shape *x,
                       const struct shape *y)
{
    a->rank = x->rank - 2;
    a->counts_padding = ir_attr_int(node, IR_ATTR_COUNT_INCLUDE_PAD) != 0;
    for (uint32_t d = 0; d < a->rank; d++) {
        a->kernel[d] = ir_attr_at(node, IR_ATTR_KERNEL, d);
        a->stride[d] = ir_attr_at(node, IR_ATTR_STRIDES, d);
        a->dilation[d] = ir_attr_at(node, IR_ATTR_DILATIONS, d);
        a->begin[d] = ir_attr_at(node, IR_ATTR_PADS, d);
        a->end[d] = ir_attr_at(node, IR_ATTR_PADS, a->rank + d);
        a->in[d] = x->dim[2 + d];
        a->out[d] = y->dim[2 + d];
    }
    return ir_attr_int(node, IR_ATTR_FUNC) == IR_POOL_AVERAGE && node->n_outputs == 1;
}

/* The window is the whole image. */
static bool set_whole(struct native_average *a, const struct ir_node *node, const struct shape *x)
{
    const struct ir_attr *axes = ir_attr(node, IR_ATTR_AXES);
    a->rank = x->rank - 2;
    if (!axes || axes->count != a->rank || ir_attr_int(node, IR_ATTR_FUNC) != IR_REDUCE_MEAN)
        return false;
    for (uint32_t d = 0; d < a->rank; d++) {
        if (axes->i[d] != (int64_t)d + 2)
            return false;
        a->kernel[d] = a->in[d] = x->dim[2 + d];
        a->stride[d] = a->dilation[d] = a->out[d] = 1;
    }
    return true;
}

bool native_average_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    struct native_average *a = &op->average;
    enum ir_layout layout = op->layout;
    uint32_t n = 1;
    if (layout != IR_LAYOUT_CHANNELS_LAST ||
        !(node->op == IR_OP_POOL ? set_window(a, node, x, y) : set_whole(a, node, x)))
        return false;
    a->channels = x->dim[1];
    a->blocks = (a->channels + CHANNELS - 1) / CHANNELS;
    op->units = ref_extent(y, 0, y->rank) / a->channels * a->blocks;
    op->work = run_average;
    if (!stored_read(graph, node->inputs[0], &a->x) || a->x.dtype == DTYPE_NONE ||
        !native_steps_add(op, node, &n) || !native_stored_read(op, graph, node, n))
        return false;
    if (!native_has_layout(y, layout))
        op->layout = IR_LAYOUT_PLAIN; /* which is the same for an image of one place */
    bool made = native_walk_make(op, graph, node, n, &op->after);
    op->layout = layout;
    return made;
}
