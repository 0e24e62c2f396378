/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by index: Gather*, Scatter*, OneHot, Compress, NonZero, ReverseSequence. */
#include "engine/import/ops.h"

/* Whether known indices, one for each dimension of x, name each of its elements once and in order,
 * as those do that torch's exporter writes for mask[batch, key] and for as_strided. The result is x
 * in another shape then, and a reshape says so to whoever must know where an element goes. */
static bool reads_in_order(struct mapper *m, uint32_t x, uint32_t indices)
{
    const struct shape *shape = map_shape(m, x);
    size_t n, given;
    if (map_failed(m) || !shape->rank || !shape_elements(shape, &n) ||
        !shape_elements(map_shape(m, indices), &given) || given != n * shape->rank ||
        !map_make_known(m, indices))
        return false;
    const struct ir_tensor *t = ir_tensor(m->graph, indices);
    shape = map_shape(m, x);
    for (size_t i = 0, k = 0; i < n; i++) {
        int64_t place = 0;
        for (uint32_t d = 0; d < shape->rank; d++) {
            int64_t index = map_element_int(t, k++);
            if (index < 0 || index >= shape->dim[d])
                return false;
            place = place * shape->dim[d] + index;
        }
        if (place != (int64_t)i)
            return false;
    }
    return true;
}

/* A list of one element is left alone: its only index is the first one of a longer list, too, and
 * both sizes should become the same node. */
void map_gather(struct mapper *m)
{
    uint32_t x = map_in(m, 0), indices = map_in(m, 1);
    const struct shape *in = map_shape(m, x);
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), in->rank);
    bool order = in->rank == 1 && in->dim[0] > 1 && reads_in_order(m, x, indices);
    map_out(m, 0,
            order ? emit_reshape(m, x, map_shape(m, indices)) : emit_gather(m, x, indices, axis));
}

void map_gather_elements(struct mapper *m)
{
    const uint32_t inputs[] = {map_in(m, 0), map_in(m, 1)};
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, inputs[0])->rank);
    uint32_t node = emit_begin(m, IR_OP_GATHER_ELEMENTS, 2, inputs);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    map_out(m, 0, emit_end(m, node));
}

uint32_t emit_gather_nd(struct mapper *m, uint32_t x, uint32_t indices, int64_t batch_dims)
{
    uint32_t node = emit_begin(m, IR_OP_GATHER_ND, 2, (const uint32_t[]){x, indices});
    emit_int(m, node, IR_ATTR_BATCH_DIMS, batch_dims);
    return emit_end(m, node);
}

void map_gather_nd(struct mapper *m)
{
    uint32_t x = map_in(m, 0), indices = map_in(m, 1);
    int64_t batch_dims = map_attr_int(m, "batch_dims", 0);
    struct shape shape = *map_shape(m, indices);
    bool all = !batch_dims && shape.rank && shape.dim[shape.rank - 1] == map_shape(m, x)->rank;
    if (!all || !reads_in_order(m, x, indices)) {
        map_out(m, 0, emit_gather_nd(m, x, indices, batch_dims));
        return;
    }
    shape.dim[--shape.rank] = 0;
    map_out(m, 0, emit_reshape(m, x, &shape));
}

/* The values are those of enum ir_scatter. */
static int64_t scatter_func(struct mapper *m)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        if (map_attr_is(m, "reduction", names[i], "none"))
            return i;
    }
    map_refuse(m, "attribute 'reduction' is none of none, add, mul, max, min");
    return 0;
}

void map_scatter_elements(struct mapper *m)
{
    const uint32_t inputs[] = {map_in(m, 0), map_in(m, 1), map_in(m, 2)};
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, inputs[0])->rank);
    uint32_t node = emit_begin(m, IR_OP_SCATTER_ELEMENTS, 3, inputs);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_FUNC, scatter_func(m));
    map_out(m, 0, emit_end(m, node));
}

void map_scatter_nd(struct mapper *m)
{
    const uint32_t inputs[] = {map_in(m, 0), map_in(m, 1), map_in(m, 2)};
    uint32_t node = emit_begin(m, IR_OP_SCATTER_ND, 3, inputs);
    emit_int(m, node, IR_ATTR_FUNC, scatter_func(m));
    map_out(m, 0, emit_end(m, node));
}

void map_one_hot(struct mapper *m)
{
    uint32_t inputs[] = {map_in(m, 0), map_in(m, 2)};
    int64_t depth = map_known_int(m, map_in(m, 1));
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", -1), map_shape(m, inputs[0])->rank + 1);
    if (!map_failed(m) && map_dtype(m, inputs[0]) != DTYPE_I32)
        inputs[0] = emit_cast(m, inputs[0], DTYPE_I64);
    uint32_t node = emit_begin(m, IR_OP_ONE_HOT, 2, inputs);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_DEPTH, depth);
    map_out(m, 0, emit_end(m, node));
}

/* Turns the places where a known condition holds into indices of a gather. */
void map_compress(struct mapper *m)
{
    uint32_t x = map_in(m, 0), axis = 0;
    const struct ir_tensor *condition = map_known(m, map_in(m, 1));
    size_t given;
    if (!condition || !shape_elements(&condition->shape, &given))
        return;
    if (map_attr(m, "axis"))
        axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, x)->rank);
    else
        x = emit_flat(m, x);
    if (map_failed(m))
        return;
    condition = map_known(m, map_in(m, 1));
    size_t n = MIN(given, (size_t)map_shape(m, x)->dim[axis]);
    struct shape shape = {.rank = 1};
    for (size_t i = 0; i < n; i++)
        shape.dim[0] += map_element_int(condition, i) != 0;
    int64_t *indices = emit_brief_room(m, &shape, DTYPE_I64);
    if (!indices)
        return;
    for (size_t i = 0, k = 0; i < n; i++) {
        if (map_element_int(condition, i))
            indices[k++] = (int64_t)i;
    }
    map_out(m, 0, emit_gather(m, x, emit_constant(m, DTYPE_I64, &shape, indices), axis));
}

/* Counts the elements that are not zero, or, with `most` above 0, puts the places of the first
 * `most` of them into `to`, in rising order. Of integers and floats alike, some bit is set then,
 * but the sign's. No branch depends on an element: which of them are set is anybody's guess. */
static size_t find_set(const struct ir_tensor *x, size_t n, int64_t *to, size_t most)
{
    const char *at = x->data;
    size_t size = dtype_size(x->dtype), found = 0, i = 0;
    bool has_sign = dtype_is_float(x->dtype) || x->dtype == DTYPE_F8;
    uint64_t mask = UINT64_MAX >> (64 - 8 * size) >> has_sign;
#define FIND(type)                                                                                 \
    for (type v; i < n && (!most || found < most); i++) {                                          \
        memcpy(&v, at + i * sizeof(v), sizeof(v));                                                 \
        if (most)                                                                                  \
            to[found] = (int64_t)i;                                                                \
        found += (v & mask) != 0;                                                                  \
    }
    switch (size) {
    case 1:
        FIND(uint8_t);
        break;
    case 2:
        FIND(uint16_t);
        break;
    case 4:
        FIND(uint32_t);
        break;
    default:
        FIND(uint64_t);
        break;
    }
#undef FIND
    return found;
}

/* Turns the n places that stand in the last row of `to`, in rising order, into indices: a row for
 * each dimension. */
static void place_indices(const struct shape *shape, size_t n, int64_t *to)
{
    for (uint32_t d = shape->rank; d-- > 1;) {
        int64_t *above = to + (d - 1) * n, *own = to + d * n, dim = shape->dim[d];
        int64_t whole = 0,
                begin = 0; /* place = whole * dim + what is left, and begin = whole * dim */
        for (size_t k = 0; k < n; k++) {
            for (; own[k] >= begin + dim; begin += dim)
                whole++;
            own[k] -= begin;
            above[k] = whole;
        }
    }
}

/* Takes a known operand only, because the number of results is the shape of the output. */
void map_non_zero(struct mapper *m)
{
    const struct ir_tensor *x = map_known(m, map_in(m, 0));
    size_t n;
    if (!x || !shape_elements(&x->shape, &n))
        return;
    size_t found = find_set(x, n, NULL, 0);
    struct shape in = x->shape, out = {.rank = 2, .dim = {in.rank, (int64_t)found}};
    int64_t *to = emit_brief_room(m, &out, DTYPE_I64);
    if (!to)
        return;
    if (found && in.rank) {
        find_set(x, n, to + (in.rank - 1) * found, found);
        place_indices(&in, found, to);
    }
    map_out(m, 0, emit_constant(m, DTYPE_I64, &out, to));
}

/* For each step of the output, the step of the input that it shows: [batch, time, 1]. */
static uint32_t reversed_steps(struct mapper *m, const struct ir_tensor *lengths, int64_t batch,
                               int64_t time)
{
    struct shape shape = {.rank = 3, .dim = {batch, time, 1}};
    struct ir_tensor copy = *lengths;
    int64_t *to = emit_room(m, &shape, DTYPE_I64);
    if (!to)
        return IR_NONE;
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = map_element_int(&copy, (size_t)b);
        if (n < 0 || n > time)
            map_invalid(m, "a sequence length of %lld, expected at most %lld", (long long)n,
                        (long long)time);
        for (int64_t t = 0; t < time; t++)
            to[b * time + t] = t < n ? n - 1 - t : t;
    }
    return emit_constant(m, DTYPE_I64, &shape, to);
}

/* Takes known lengths only, and becomes a gather along time for each batch. */
void map_reverse_sequence(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    const struct ir_tensor *lengths = map_known(m, map_in(m, 1));
    struct shape in = *map_shape(m, x);
    int64_t batch_axis = map_attr_int(m, "batch_axis", 1);
    int64_t time_axis = map_attr_int(m, "time_axis", 0);
    if (!lengths)
        return;
    if (in.rank < 2 || batch_axis + time_axis != 1 || batch_axis < 0 || time_axis < 0)
        map_invalid(m, "time axis %lld and batch axis %lld of rank %u", (long long)time_axis,
                    (long long)batch_axis, in.rank);
    else if (lengths->shape.rank != 1 || lengths->shape.dim[0] != in.dim[batch_axis])
        map_invalid(m, "sequence lengths for another batch size than %lld",
                    (long long)in.dim[batch_axis]);
    if (map_failed(m))
        return;
    int64_t perm[SHAPE_MAX_RANK];
    for (uint32_t d = 0; d < in.rank; d++)
        perm[d] = d < 2 && batch_axis == 1 ? 1 - d : d;
    uint32_t steps = reversed_steps(m, lengths, in.dim[batch_axis], in.dim[time_axis]);
    uint32_t y = emit_gather_nd(m, emit_transpose(m, x, in.rank, perm), steps, 1);
    map_out(m, 0, emit_transpose(m, y, in.rank, perm));
}
