/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CONCAT, in plain, channels-last and blocked layouts. Before the dim that grows, in the order in
 * which the layout stores dims, everything is a row of the output: a run of bytes from each
 * input, one behind the other. Units of work are blocks of such rows, so that threads share long
 * rows, too. An input that is stored in 8 bits by another scale than the output has a table of what
 * its bytes become.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum { BLOCK_BYTES = 1 << 15 };

struct table {
    bool there; /* else bytes stay as they are */
    uint8_t to[256];
};

/* Copies bytes from..to-1 of a row. */
static void copy_part(const struct native_op *op, int64_t row, int64_t from, int64_t to)
{
    const struct native_concat *c = &op->concat;
    uint8_t *y = (uint8_t *)op->output + row * c->row;
    const int64_t *begin = op->owned; /* of each input's run; behind the last one the row's end */
    const struct table *tables = c->scaled ? (const void *)(begin + c->inputs + 1) : NULL;
    for (uint32_t i = 0; i < c->inputs && begin[i] < to; i++) {
        int64_t first = MAX(from, begin[i]), end = MIN(to, begin[i + 1]);
        if (first >= end)
            continue;
        const uint8_t *x =
            (const uint8_t *)op->inputs[i] + row * (begin[i + 1] - begin[i]) + first - begin[i];
        if (tables && tables[i].there)
            op->fast->bytes->look_up(x, y + first, (size_t)(end - first), tables[i].to);
        else
            memcpy(y + first, x, (size_t)(end - first));
    }
}

static void run_concat(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_concat *c = &op->concat;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t from = unit % c->blocks * BLOCK_BYTES;
        copy_part(op, unit / c->blocks, from, MIN(from + BLOCK_BYTES, c->row));
    }
}

/* Rows of one number of four bytes from each of two inputs, as halves of rotated pairs are put
 * together again. */
static void run_pairs(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const uint32_t *a = op->inputs[0], *b = op->inputs[1];
    uint32_t *y = op->output;
    for (int64_t row = first; row < end; row++) {
        y[2 * row] = a[row];
        y[2 * row + 1] = b[row];
    }
}

/* The bytes of an input's run in each row, or -1: the tensor cannot have the layout. *rows: how
 * many rows there are. */
static int64_t run_of(const struct native_op *op, const struct ir_tensor *t, uint32_t axis,
                      int64_t *rows)
{
    struct native_stored stored;
    uint32_t at = 0;
    if (!native_stored_make(&t->shape, op->layout, &stored))
        return -1;
    while (stored.axis[at] != axis)
        at++;
    *rows = ref_extent(&stored.dims, 0, at);
    return ref_extent(&stored.dims, at, stored.dims.rank) * (int64_t)dtype_size(t->dtype);
}

/* What each byte of an input becomes. */
static void fill_table(const struct native_op *op, const struct stored *x, const struct stored *y,
                       struct table *table)
{
    uint8_t all[256];
    float real[256];
    for (uint32_t q = 0; q < 256; q++)
        all[q] = (uint8_t)q;
    op->fast->bytes->widen[native_byte(x)](all, real, 256, x->step, (float)x->zero);
    op->fast->bytes->narrow[native_byte(y)](real, table->to, 256, y->step, (float)y->zero);
    table->there = memcmp(all, table->to, sizeof(all)) != 0;
}

static enum status keep_runs(struct native_op *op, const struct ir_graph *graph,
                             const struct ir_node *node, struct error *err)
{
    size_t each = sizeof(int64_t) + (op->concat.scaled ? sizeof(struct table) : 0);
    int64_t rows, *begin = calloc((size_t)node->n_inputs + 1, each);
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    op->owned = begin;
    if (!begin)
        return error_no_memory(err, "the runs of '%s'", node->name);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        begin[i + 1] = begin[i] + run_of(op, ir_tensor(graph, node->inputs[i]), axis, &rows);
    struct table *tables = (void *)(begin + node->n_inputs + 1);
    struct stored x, y;
    for (uint32_t i = 0; i < node->n_inputs && op->concat.scaled; i++)
        if (stored_read(graph, node->inputs[i], &x) && stored_read(graph, node->outputs[0], &y))
            fill_table(op, &x, &y, &tables[i]);
    return STATUS_OK;
}

/* Whether all tensors are stored in 8 bits, by one scale each. */
static bool all_scaled(const struct ir_graph *graph, const struct ir_node *node)
{
    struct stored x;
    for (uint32_t i = 0; i <= node->n_inputs; i++)
        if (!stored_read(graph, i < node->n_inputs ? node->inputs[i] : node->outputs[0], &x) ||
            x.dtype == DTYPE_NONE)
            return false;
    return true;
}

bool native_concat_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    struct native_concat *c = &op->concat;
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    int64_t rows = 0, run = 0;
    c->scaled = stored_any(graph, node);
    if (node->n_epilogue || (c->scaled && !all_scaled(graph, node)))
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        run = run_of(op, ir_tensor(graph, node->inputs[i]), axis, &rows);
        if (run < 0)
            return false;
        c->row += run;
    }
    c->inputs = node->n_inputs;
    c->blocks = (c->row + BLOCK_BYTES - 1) / BLOCK_BYTES;
    op->inputs_follow = true;
    op->units = rows * c->blocks;
    op->work = c->inputs == 2 && !c->scaled && c->row == 8 && run == 4 ? run_pairs : run_concat;
    op->keep = keep_runs;
    return true;
}
