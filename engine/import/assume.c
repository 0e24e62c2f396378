/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/assume.h"

#include "engine/import/ops.h"

/* --- what is assumed --- */

/* The shape of the node's output in the trial; NULL: there is none. */
static const struct shape *trial_shape(const struct mapper *m)
{
    uint32_t tensor =
        m->trial && m->node->n_outputs ? map_noted(m->trial, m->node->outputs[0]) : IR_NONE;
    return tensor == IR_NONE ? NULL : map_shape(m->trial, tensor);
}

/* Notes that the body is right only if the flag, a tensor of one element, is set. */
static void assume(struct mapper *m, uint32_t flag)
{
    flag = emit_reshape(m, flag, &(struct shape){.rank = 0});
    m->assumed = m->assumes ? emit_binary(m, IR_BINARY_AND, m->assumed, flag) : flag;
    m->assumes = true;
}

static uint32_t int_of(struct mapper *m, int64_t value)
{
    return emit_int_list(m, 1, &value);
}

/* first, first + 1, .. : `n` of them. `first` is [1]. */
static uint32_t emit_row(struct mapper *m, uint32_t first, int64_t n)
{
    return emit_binary(m, IR_BINARY_ADD, first, emit_count(m, n));
}

/* --- Slice --- */

/* Element `i` of a list of bounds as INT64 [1], counted from the front and cut to 0..dim. */
static uint32_t emit_bound(struct mapper *m, uint32_t list, uint32_t i, int64_t dim)
{
    uint32_t at = emit_cast(m, emit_slice(m, list, 0, i, i + 1), DTYPE_I64);
    uint32_t behind = emit_binary(m, IR_BINARY_ADD, at, int_of(m, dim));
    uint32_t negative = emit_binary(m, IR_BINARY_LESS, at, int_of(m, 0));
    at = emit_select(m, negative, behind, at);
    at = emit_binary(m, IR_BINARY_MAX, at, int_of(m, 0));
    return emit_binary(m, IR_BINARY_MIN, at, int_of(m, dim));
}

/* Whether the operands are of forms that are understood: lists of `n` bounds, in steps of 1. */
static bool reads_bounds(struct mapper *m, struct ints *axes, uint32_t *n)
{
    struct ints steps;
    const struct shape *starts = map_shape(m, map_in(m, 1)), *ends = map_shape(m, map_in(m, 2));
    bool ok = !map_failed(m) && starts->rank == 1 && shape_equal(starts, ends) &&
              starts->dim[0] <= SHAPE_MAX_RANK;
    *n = ok ? (uint32_t)starts->dim[0] : 0;
    if (!ok)
        return false;
    if (map_ints(m, 4, "steps", &steps))
        for (uint32_t i = 0; i < steps.n; i++)
            ok = ok && steps.v[i] == 1;
    if (!map_ints(m, 3, "axes", axes))
        map_default_axes(axes, *n);
    for (uint32_t i = 0; i < axes->n && !map_failed(m); i++) {
        axes->v[i] = map_axis(m, axes->v[i], map_shape(m, map_in(m, 0))->rank);
        for (uint32_t k = 0; k < i; k++)
            ok = ok && axes->v[k] != axes->v[i];
    }
    return ok && axes->n == *n && !map_failed(m);
}

static uint32_t emit_part(struct mapper *m, uint32_t x, uint32_t i, uint32_t axis, int64_t size)
{
    int64_t dim = map_shape(m, x)->dim[axis];
    uint32_t start = emit_bound(m, map_in(m, 1), i, dim);
    uint32_t end = emit_bound(m, map_in(m, 2), i, dim);
    uint32_t length = emit_binary(m, IR_BINARY_SUB, end, start);
    assume(m, emit_binary(m, IR_BINARY_EQUAL, length, int_of(m, size)));
    uint32_t first = emit_binary(m, IR_BINARY_MIN, start, int_of(m, dim - size));
    return emit_gather(m, x, emit_row(m, first, size), axis);
}

bool assume_slice(struct mapper *m)
{
    struct ints axes;
    uint32_t x = map_in(m, 0), n;
    const struct shape *size = trial_shape(m);
    if (map_failed(m) || !size || m->opset < 10 || size->rank != map_shape(m, x)->rank ||
        (map_can_make_known(m, map_in(m, 1)) && map_can_make_known(m, map_in(m, 2))) ||
        !reads_bounds(m, &axes, &n))
        return false;
    for (uint32_t i = 0; i < n && !map_failed(m); i++) {
        uint32_t axis = (uint32_t)axes.v[i];
        if (size->dim[axis] < 1 || size->dim[axis] > map_shape(m, x)->dim[axis])
            return false;
        x = emit_part(m, x, i, axis, size->dim[axis]);
    }
    map_out(m, 0, x);
    return true;
}

/* --- Range --- */

static uint32_t emit_one(struct mapper *m, uint32_t x)
{
    return emit_cast(m, emit_reshape(m, x, &(struct shape){.rank = 1, .dim = {1}}), DTYPE_I64);
}

bool assume_range(struct mapper *m)
{
    uint32_t first = map_in(m, 0), limit = map_in(m, 1), step = map_in(m, 2);
    const struct shape *size = trial_shape(m);
    enum dtype dtype = map_dtype(m, first);
    if (map_failed(m) || !size || size->rank != 1 || size->dim[0] < 1 ||
        (dtype != DTYPE_I64 && dtype != DTYPE_I32) || map_dtype(m, limit) != dtype ||
        (map_can_make_known(m, first) && map_can_make_known(m, limit)) ||
        !map_can_make_known(m, step) || map_known_int(m, step) != 1)
        return false;
    int64_t n = size->dim[0];
    first = emit_one(m, first);
    limit = emit_one(m, limit);
    uint32_t length = emit_binary(m, IR_BINARY_SUB, limit, first);
    assume(m, emit_binary(m, IR_BINARY_EQUAL, length, int_of(m, n)));
    assume(m, emit_binary(m, IR_BINARY_LESS, first, limit)); /* the difference may have wrapped */
    map_out(m, 0, emit_cast(m, emit_row(m, first, n), dtype));
    return true;
}

/* --- If --- */

bool assume_else(struct mapper *m, uint32_t cond, uint32_t *then, const uint32_t *other)
{
    bool differ = false, fit = m->notes || m->trial;
    for (uint32_t i = 0; i < m->node->n_outputs && fit; i++) {
        size_t a, b;
        fit = map_dtype(m, then[i]) == map_dtype(m, other[i]) &&
              shape_elements(map_shape(m, then[i]), &a) &&
              shape_elements(map_shape(m, other[i]), &b) && a == b;
        differ = differ || !shape_equal(map_shape(m, then[i]), map_shape(m, other[i]));
    }
    if (!fit || !differ || map_failed(m))
        return fit;
    for (uint32_t i = 0; i < m->node->n_outputs; i++) {
        const struct shape shape = *map_shape(m, other[i]);
        then[i] = emit_reshape(m, then[i], &shape);
    }
    assume(m, emit_unary(m, IR_UNARY_NOT, cond));
    return !map_failed(m);
}
