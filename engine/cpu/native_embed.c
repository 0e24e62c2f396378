/* SPDX-License-Identifier: Apache-2.0 */
/* EMBED: a unit is one row of the output, and the sum of one row of each table. Rows of 16 bits
 * become floats, and are rounded when they are summed up. */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"
#include "kernels/cpu/index.h"

static struct tensor_view ids_of(const struct native_op *op, uint32_t k)
{
    const struct native_embed *e = &op->embed;
    struct tensor_view view = {.dtype = e->ids[k], .data = op->inputs[2 * k + 1]};
    view.shape = (struct shape){.rank = 1, .dim = {e->count[k]}};
    return view;
}

static enum status check_ids(const struct native_op *op, struct error *err)
{
    const struct native_embed *e = &op->embed;
    for (uint32_t k = 0; k < e->n; k++) {
        struct tensor_view ids = ids_of(op, k);
        for (int64_t i = 0; e->ids[k] && i < e->count[k]; i++) {
            int64_t index;
            enum status status = ref_index(&ids, i, e->rows[k], &index, err);
            if (status) {
                error_prefix(err, "embed '%s'", op->name);
                return status;
            }
        }
    }
    return STATUS_OK;
}

/* n elements of row `row` of table k, from element `at` on, as floats. */
static const float *read(const struct native_op *op, uint32_t k, int64_t row, int64_t at, size_t n,
                         float *buffer)
{
    const void *from = (const char *)op->inputs[2 * k] + (row * op->row + at) * op->size;
    if (!op->embed.widen)
        return from;
    op->embed.widen((const void *const[TYPED_OPERANDS]){from}, buffer, n);
    return buffer;
}

static void sum_rows(const struct native_op *op, const int64_t *from, int64_t to)
{
    const struct native_embed *e = &op->embed;
    fast_binary add = op->fast->binary[IR_BINARY_ADD];
    for (int64_t at = 0; at < op->row; at += NATIVE_CHUNK) {
        float first[NATIVE_CHUNK], next[NATIVE_CHUNK];
        size_t n = (size_t)MIN(op->row - at, NATIVE_CHUNK);
        void *y = (char *)op->output + (to * op->row + at) * op->size;
        float *sum = e->widen ? first : y;
        const float *a = read(op, 0, from[0], at, n, first);
        for (uint32_t k = 1; k < e->n; k++) {
            add(a, read(op, k, from[k], at, n, next), sum, n);
            a = sum;
        }
        if (e->widen)
            e->narrow((const void *const[TYPED_OPERANDS]){a}, y, n);
        else if (a != sum)
            memcpy(sum, a, n * sizeof(*sum));
    }
}

static void run_embed(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_embed *e = &op->embed;
    struct ref_walk w = op->walk;
    struct tensor_view ids[IR_EMBED_TABLES];
    int64_t i = first % w.row;
    ref_walk_seek(&w, first / w.row);
    for (uint32_t k = 0; k < e->n; k++)
        ids[k] = ids_of(op, k);
    for (int64_t unit = first; unit < end; unit++) {
        int64_t from[IR_EMBED_TABLES];
        bool strays = false; /* check_ids passed, so somebody writes to the ids meanwhile */
        for (uint32_t k = 0; k < e->n; k++) {
            from[k] = w.at[1 + k] + i * w.step[1 + k];
            strays =
                strays || (e->ids[k] && ref_index(&ids[k], from[k], e->rows[k], &from[k], NULL));
        }
        if (!strays)
            sum_rows(op, from, w.at[0] + i * w.step[0]);
        if (++i == w.row) {
            i = 0;
            ref_walk_next(&w);
        }
    }
}

static struct shape rows_of(const struct shape *shape)
{
    struct shape rows = *shape;
    rows.rank--;
    return rows;
}

bool native_embed_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    struct native_embed *e = &op->embed;
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct shape rows = rows_of(&y->shape);
    int64_t strides[1 + IR_EMBED_TABLES][SHAPE_MAX_RANK];
    if (!op->fast->binary[IR_BINARY_ADD] || y->dtype == DTYPE_F64)
        return false;
    if (y->dtype != DTYPE_F32) {
        e->widen = op->fast->typed->cast[y->dtype][DTYPE_F32];
        e->narrow = op->fast->typed->cast[DTYPE_F32][y->dtype];
        if (!e->widen || !e->narrow)
            return false;
    }
    shape_strides(&rows, strides[0]);
    e->n = ir_embed_count(node);
    for (uint32_t k = 0; k < e->n; k++) {
        const struct ir_tensor *table = ir_tensor(graph, ir_embed_table(node, k));
        uint32_t ids = ir_embed_ids(node, k);
        struct shape own = ids == IR_NONE ? rows_of(&table->shape) : ir_tensor(graph, ids)->shape;
        ref_broadcast_strides(&own, &rows, strides[1 + k]);
        e->rows[k] = table->shape.dim[0];
        e->ids[k] = ids == IR_NONE ? DTYPE_NONE : ir_tensor(graph, ids)->dtype;
        e->count[k] = ref_extent(&own, 0, own.rank);
    }
    op->name = node->name;
    op->row = y->shape.dim[y->shape.rank - 1];
    op->size = (int64_t)dtype_size(y->dtype);
    op->work = run_embed;
    op->check = check_ids;
    if (!ref_walk_init(&op->walk, &rows, 1 + e->n, strides))
        return false;
    op->units = ref_walk_rows(&op->walk) * op->walk.row;
    return true;
}
