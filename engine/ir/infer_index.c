/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that read or write where an index tensor says. The kernels check the values of indices. */
#include "engine/ir/infer.h"

#include <inttypes.h>

static enum status does_not_fit(const struct infer *in, const char *what, const struct shape *shape,
                                const struct shape *x)
{
    char have[SHAPE_TEXT_MAX], of[SHAPE_TEXT_MAX];
    return infer_fail(in, "%s %s do not fit input %s", what, shape_format(shape, have),
                      shape_format(x, of));
}

static enum status append(const struct infer *in, struct shape *shape, const struct shape *from,
                          uint32_t first, uint32_t end)
{
    if (shape->rank + (end - first) > SHAPE_MAX_RANK)
        return infer_fail(in, "output would have more than %u dimensions", SHAPE_MAX_RANK);
    for (uint32_t i = first; i < end; i++)
        shape->dim[shape->rank++] = from->dim[i];
    return STATUS_OK;
}

enum status infer_gather(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *index = infer_input(in, 1);
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    out[0] = (struct ir_type){.dtype = ir_tensor_type(x)};
    *n_out = 1;
    TRY(append(in, &out->shape, &x->shape, 0, (uint32_t)axis));
    TRY(append(in, &out->shape, &index->shape, 0, index->shape.rank));
    return append(in, &out->shape, &x->shape, (uint32_t)axis + 1, x->shape.rank);
}

/* Checks that every dimension of `index` but the one at `axis` lies within X. */
static enum status check_elements(const struct infer *in, const struct shape *x,
                                  const struct shape *index)
{
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    if (index->rank != x->rank)
        return does_not_fit(in, "indices", index, x);
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != (uint32_t)axis && index->dim[i] > x->dim[i])
            return does_not_fit(in, "indices", index, x);
    return STATUS_OK;
}

enum status infer_gather_elements(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *index = infer_input(in, 1);
    TRY(check_elements(in, &x->shape, &index->shape));
    out[0] = (struct ir_type){ir_tensor_type(x), index->shape};
    *n_out = 1;
    return STATUS_OK;
}

/* Reads the last dimension of an ND index: the number of X's dimensions, from `batch` on, that an
 * index addresses. */
static enum status tuple_size(const struct infer *in, const struct shape *x,
                              const struct shape *index, uint32_t batch, uint32_t *out)
{
    if (index->rank < batch + 1 || x->rank < batch + 1)
        return does_not_fit(in, "indices", index, x);
    int64_t k = index->dim[index->rank - 1];
    if (k < 1 || k > (int64_t)(x->rank - batch))
        return does_not_fit(in, "indices", index, x);
    for (uint32_t i = 0; i < batch; i++)
        if (x->dim[i] != index->dim[i])
            return does_not_fit(in, "indices", index, x);
    *out = (uint32_t)k;
    return STATUS_OK;
}

enum status infer_gather_nd(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *index = infer_input(in, 1);
    int64_t batch = infer_int(in, IR_ATTR_BATCH_DIMS);
    uint32_t k = 0;
    TRY(tuple_size(in, &x->shape, &index->shape, (uint32_t)batch, &k));
    out[0] = (struct ir_type){.dtype = ir_tensor_type(x)};
    *n_out = 1;
    TRY(append(in, &out->shape, &index->shape, 0, index->shape.rank - 1));
    return append(in, &out->shape, &x->shape, (uint32_t)batch + k, x->shape.rank);
}

static enum status check_updates(const struct infer *in, const struct shape *wanted)
{
    const struct ir_tensor *updates = infer_input(in, 2);
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (infer_int(in, IR_ATTR_FUNC) != IR_SCATTER_SET)
        TRY(infer_class(in, 0, IR_CLASS_NUMBER));
    if (!shape_equal(&updates->shape, wanted))
        return infer_fail(in, "updates are %s, not %s", shape_format(&updates->shape, have),
                          shape_format(wanted, want));
    return STATUS_OK;
}

enum status infer_scatter_elements(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *index = infer_input(in, 1);
    TRY(check_elements(in, &x->shape, &index->shape));
    TRY(check_updates(in, &index->shape));
    infer_like_first(in, out, n_out);
    return STATUS_OK;
}

enum status infer_scatter_nd(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *index = infer_input(in, 1);
    struct shape wanted = {0};
    uint32_t k = 0;
    TRY(tuple_size(in, &x->shape, &index->shape, 0, &k));
    TRY(append(in, &wanted, &index->shape, 0, index->shape.rank - 1));
    TRY(append(in, &wanted, &x->shape, k, x->shape.rank));
    TRY(check_updates(in, &wanted));
    infer_like_first(in, out, n_out);
    return STATUS_OK;
}

enum status infer_one_hot(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *index = infer_input(in, 0), *values = infer_input(in, 1);
    struct shape depth = {.rank = 1, .dim = {infer_int(in, IR_ATTR_DEPTH)}};
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    TRY(infer_vector(in, 1, 2));
    if (axis > index->shape.rank)
        return infer_fail(in, "axis %" PRId64 " of an output of rank %u", axis,
                          index->shape.rank + 1);
    out[0] = (struct ir_type){.dtype = ir_tensor_type(values)};
    *n_out = 1;
    TRY(append(in, &out->shape, &index->shape, 0, (uint32_t)axis));
    TRY(append(in, &out->shape, &depth, 0, 1));
    return append(in, &out->shape, &index->shape, (uint32_t)axis, index->shape.rank);
}

enum status infer_topk(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis = infer_int(in, IR_ATTR_AXIS), k = infer_int(in, IR_ATTR_K);
    infer_like_first(in, out, n_out);
    if (k > out->shape.dim[axis])
        return infer_fail(in, "k is %" PRId64 " of %" PRId64, k, out->shape.dim[axis]);
    out->shape.dim[axis] = k;
    out[1] = (struct ir_type){DTYPE_I64, out->shape};
    *n_out = 2;
    return STATUS_OK;
}

static enum status check_broadcast(const struct infer *in, const char *what, uint32_t input,
                                   const struct shape *to)
{
    const struct shape *shape = &infer_input(in, input)->shape;
    char have[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
    struct shape all;
    if (shape_broadcast(shape, to, &all) && shape_equal(&all, to))
        return STATUS_OK;
    return infer_fail(in, "%s %s (input %u) do not broadcast to %s", what,
                      shape_format(shape, have), input, shape_format(to, wanted));
}

/* Checks table k of a sum of rows [..,H]. */
static enum status check_table(const struct infer *in, uint32_t k, const struct shape *ids,
                               const struct shape *rows)
{
    const struct ir_tensor *table = infer_input(in, 2 * k), *own = infer_input(in, 2 * k + 1);
    int64_t width = rows->dim[rows->rank - 1];
    char text[SHAPE_TEXT_MAX];
    if (!table)
        return own || infer_input(in, 2 * k + 2)
                   ? infer_fail(in, "input %u is there without input %u",
                                own ? 2 * k + 1 : 2 * k + 2, 2 * k)
                   : STATUS_OK;
    if (!table->shape.rank || table->shape.dim[table->shape.rank - 1] != width ||
        (own && table->shape.rank != 2))
        return infer_fail(in, "table %s (input %u) does not have rows of %" PRId64,
                          shape_format(&table->shape, text), 2 * k, width);
    return own ? check_broadcast(in, "indices", 2 * k + 1, ids)
               : check_broadcast(in, "rows", 2 * k, rows);
}

enum status infer_embed(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *table = infer_input(in, 0), *ids = infer_input(in, 1);
    char text[SHAPE_TEXT_MAX];
    if (table->shape.rank != 2)
        return infer_fail(in, "table %s (input 0) is not of rank 2",
                          shape_format(&table->shape, text));
    out[0] = (struct ir_type){ir_tensor_type(table), ids->shape};
    *n_out = 1;
    TRY(append(in, &out->shape, &table->shape, 1, 2));
    for (uint32_t k = 1; k < IR_EMBED_TABLES; k++)
        TRY(check_table(in, k, &ids->shape, &out->shape));
    return STATUS_OK;
}
