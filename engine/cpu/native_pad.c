/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PAD, and SLICE by steps of 1 as padding by less than nothing, in plain, channels-last and
 * blocked layouts. The dims behind the last padded one are a run of bytes that stays together. A
 * unit of work is a row of the last padded dim: what it repeats of one row of the input is a
 * stretch in the middle, and single runs before and behind it.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"
#include "kernels/cpu/number.h"

static void fill(char *to, const char *value, int64_t size, int64_t bytes)
{
    int64_t done = MIN(size, bytes);
    memcpy(to, value, (size_t)done);
    for (int64_t n; done < bytes; done += n) {
        n = MIN(done, bytes - done);
        memcpy(to + done, to, (size_t)n);
    }
}

/* The input's row that row `row` of the output repeats, or -1: none. */
static int64_t source_row(const struct native_pad *p, int64_t row)
{
    int64_t from = 0, step = 1;
    for (uint32_t d = p->rank - 1; d-- > 0;) {
        int64_t at = row % p->out[d] - p->begin[d], n = p->in[d];
        row /= p->out[d];
        if (at < 0 || at >= n) {
            if (p->mode == IR_PAD_CONSTANT)
                return -1;
            at = ref_pad_source(p->mode, at, n);
        }
        from += at * step;
        step *= n;
    }
    return from;
}

/* Writes runs first..end-1 of a row; x is the input's row. */
static void write_outside(const struct native_pad *p, char *y, const char *x, int64_t first,
                          int64_t end)
{
    uint32_t last = p->rank - 1;
    if (p->mode == IR_PAD_CONSTANT) {
        fill(y + first * p->run, p->value, p->size, (end - first) * p->run);
        return;
    }
    for (int64_t i = first; i < end; i++)
        memcpy(y + i * p->run,
               x + ref_pad_source(p->mode, i - p->begin[last], p->in[last]) * p->run,
               (size_t)p->run);
}

static void run_pad(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_pad *p = &op->pad;
    uint32_t last = p->rank - 1;
    int64_t in = p->in[last], out = p->out[last], begin = p->begin[last];
    int64_t from = MIN(MAX(begin, 0), out), to = MAX(MIN(in + begin, out), from);
    for (int64_t row = first; row < end; row++) {
        char *y = (char *)op->output + row * out * p->run;
        int64_t source = source_row(p, row);
        if (source < 0) {
            fill(y, p->value, p->size, out * p->run);
            continue;
        }
        const char *x = (const char *)op->inputs[0] + source * in * p->run;
        write_outside(p, y, x, 0, from);
        memcpy(y + from * p->run, x + (from - begin) * p->run, (size_t)((to - from) * p->run));
        write_outside(p, y, x, to, out);
    }
}

/* Whether reading works out for each dim: what is not constant needs elements to repeat. */
static bool has_sources(const struct native_pad *p)
{
    for (uint32_t d = 0; d < p->rank; d++)
        if (p->in[d] == 0 && p->mode != IR_PAD_CONSTANT)
            return false;
    return true;
}

/* Sets the dims of x and y; begin[d] is where x begins within dim d of y. */
static bool set_dims(struct native_op *op, const struct ir_tensor *x, const struct shape *y,
                     const int64_t *begin)
{
    struct native_pad *p = &op->pad;
    struct native_stored from, to;
    bool blocked = ir_layout_block(op->layout) > 0;
    if (x->shape.rank == 0 || !native_stored_make(&x->shape, op->layout, &from) ||
        !native_stored_make(y, op->layout, &to))
        return false;
    p->size = p->run = (int64_t)dtype_size(x->dtype);
    for (uint32_t d = 0; d < from.dims.rank; d++) {
        p->in[d] = from.dims.dim[d];
        p->out[d] = to.dims.dim[d];
        p->begin[d] = begin[from.axis[d]];
        if (blocked && from.axis[d] == 1 && (p->begin[d] != 0 || p->in[d] != p->out[d]))
            return false; /* blocks of channels are not moved */
    }
    for (p->rank = from.dims.rank; p->rank > 1; p->rank--) {
        uint32_t d = p->rank - 1;
        if (p->begin[d] != 0 || p->in[d] != p->out[d])
            break;
        p->run *= p->in[d];
    }
    op->units = ref_extent(&to.dims, 0, p->rank - 1);
    op->work = run_pad;
    return has_sources(p);
}

/* The integer that stands for the value in x and in y. False: they are stored by other scales, or
 * there is none. */
static bool stored_value(const struct ir_graph *graph, const struct ir_node *node, double *value)
{
    struct stored x, y;
    if (!stored_read(graph, node->inputs[0], &x) || !stored_read(graph, node->outputs[0], &y) ||
        x.dtype != y.dtype || x.step != y.step || x.zero != y.zero)
        return false;
    if (x.dtype == DTYPE_NONE)
        return true;
    double q = *value / (double)x.step + x.zero, least = stored_least(x.dtype);
    *value = q;
    return q >= least && q <= least + 255 && q == (double)(int32_t)q;
}

bool native_pad_make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    int64_t begin[SHAPE_MAX_RANK];
    double value = (double)ir_attr_float(node, IR_ATTR_VALUE);
    op->pad.mode = (enum ir_pad)ir_attr_int(node, IR_ATTR_MODE);
    if (!stored_value(graph, node, &value))
        return false;
    ref_write_f64(x->dtype, op->pad.value, 0, 1, 1, &value);
    for (uint32_t d = 0; d < x->shape.rank; d++)
        begin[d] = ir_attr_at(node, IR_ATTR_PADS, d);
    return set_dims(op, x, &ir_tensor(graph, node->outputs[0])->shape, begin);
}

bool native_slice_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    int64_t begin[SHAPE_MAX_RANK];
    op->pad.mode = IR_PAD_CONSTANT;
    for (uint32_t d = 0; d < x->shape.rank; d++) {
        begin[d] = -ir_attr_at(node, IR_ATTR_STARTS, d);
        if (ir_attr_at(node, IR_ATTR_STEPS, d) != 1)
            return native_steps_make(op, graph, node);
    }
    return set_dims(op, x, &ir_tensor(graph, node->outputs[0])->shape, begin);
}
