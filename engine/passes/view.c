/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of an element in a dense tensor is written in digits, one for each dimension of the
 * tensor. A node that moves whole dimensions moves digits. The result is a strided view again if
 * each dimension of the view counts within one digit and never carries into the next.
 */
#include "engine/passes/view.h"

#include <string.h>

bool view_init(const struct rewrite *rw, uint32_t tensor, const int64_t dim[VIEW_RANK],
               struct view *out)
{
    struct shape shape = {.rank = VIEW_RANK};
    size_t n, wanted;
    memcpy(shape.dim, dim, VIEW_RANK * sizeof(*dim));
    if (!shape_elements(&ir_tensor(rw->graph, tensor)->shape, &n) ||
        !shape_elements(&shape, &wanted) || n != wanted || n == 0)
        return false;
    *out = (struct view){.tensor = tensor, .scale = 1};
    memcpy(out->dim, dim, sizeof(out->dim));
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(&shape, strides);
    memcpy(out->stride, strides, sizeof(out->stride));
    return true;
}

/* How the digits of a place in a node's output become a place in its input: digit j counts
 * `step[j]` elements, and the first element is at `base`. */
struct digits {
    int64_t step[SHAPE_MAX_RANK], base;
};

/* The digit in which a stride counts; the rank if there is none. */
static uint32_t digit_of(const struct shape *shape, const int64_t *strides, int64_t stride)
{
    uint32_t j = 0;
    while (j < shape->rank && (shape->dim[j] == 1 || strides[j] > stride))
        j++;
    return j < shape->rank && stride % strides[j] == 0 ? j : shape->rank;
}

static bool move(struct view *view, const struct shape *shape, const struct digits *to,
                 uint32_t input)
{
    int64_t strides[SHAPE_MAX_RANK], last[SHAPE_MAX_RANK];
    struct view moved = *view;
    shape_strides(shape, strides);
    moved.offset = to->base;
    for (uint32_t j = 0; j < shape->rank; j++) {
        last[j] = view->offset / strides[j] % shape->dim[j];
        moved.offset += last[j] * to->step[j];
    }
    for (uint32_t k = 0; k < VIEW_RANK; k++) {
        if (view->dim[k] == 1 || view->stride[k] == 0)
            continue;
        uint32_t j = digit_of(shape, strides, view->stride[k]);
        if (j == shape->rank)
            return false;
        int64_t count = view->stride[k] / strides[j];
        last[j] += count * (view->dim[k] - 1);
        if (last[j] >= shape->dim[j])
            return false;
        moved.stride[k] = count * to->step[j];
    }
    moved.tensor = input;
    *view = moved;
    return true;
}

static bool back_transpose(const struct ir_node *node, const int64_t *strides, struct digits *to)
{
    const struct ir_attr *perm = ir_attr(node, IR_ATTR_PERM);
    for (uint32_t j = 0; j < perm->count; j++)
        to->step[j] = strides[perm->i[j]];
    return true;
}

static bool back_slice(const struct ir_node *node, const int64_t *strides, struct digits *to)
{
    const struct ir_attr *starts = ir_attr(node, IR_ATTR_STARTS);
    for (uint32_t j = 0; j < starts->count; j++) {
        int64_t step = ir_attr_at(node, IR_ATTR_STEPS, j);
        if (step < 1 || step > IR_MAX_DIM)
            return false;
        to->step[j] = step * strides[j];
        to->base += starts->i[j] * strides[j];
    }
    return true;
}

/* Reads the one index of a GATHER; false if it is not known, or there are several. */
static bool constant_index(const struct ir_tensor *t, int64_t dim, int64_t *out)
{
    int64_t index;
    if (!t->data || (t->dtype != DTYPE_I64 && t->dtype != DTYPE_I32) ||
        t->bytes != dtype_size(t->dtype))
        return false;
    if (t->dtype == DTYPE_I64) {
        memcpy(&index, t->data, sizeof(index));
    } else {
        int32_t narrow;
        memcpy(&narrow, t->data, sizeof(narrow));
        index = narrow;
    }
    if (index < -dim || index >= dim)
        return false;
    *out = index < 0 ? index + dim : index;
    return true;
}

static bool back_gather(const struct rewrite *rw, const struct ir_node *node,
                        const int64_t *strides, struct digits *to)
{
    const struct shape *from = &ir_tensor(rw->graph, node->inputs[0])->shape;
    const struct ir_tensor *index = ir_tensor(rw->graph, node->inputs[1]);
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    int64_t at;
    if (!constant_index(index, from->dim[axis], &at))
        return false;
    for (uint32_t j = 0; j < axis; j++)
        to->step[j] = strides[j];
    for (uint32_t j = axis + 1; j < from->rank; j++)
        to->step[j - 1 + index->shape.rank] = strides[j];
    to->base = at * strides[axis];
    return true;
}

/* A dimension of one element that the node repeats counts no elements of the input. */
static bool back_repeat(const struct shape *from, const struct shape *to, const int64_t *strides,
                        struct digits *digits)
{
    uint32_t ahead = to->rank - from->rank;
    for (uint32_t j = 0; j < from->rank; j++) {
        if (from->dim[j] != 1 && from->dim[j] != to->dim[ahead + j])
            return false;
        digits->step[ahead + j] = from->dim[j] == 1 ? 0 : strides[j];
    }
    return true;
}

/* How the digits of the node's output become places in its first input; false: not known. */
static bool back(const struct rewrite *rw, const struct ir_node *node, struct digits *to)
{
    const struct shape *from = &ir_tensor(rw->graph, node->inputs[0])->shape;
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(from, strides);
    switch (node->op) {
    case IR_OP_TRANSPOSE:
        return back_transpose(node, strides, to);
    case IR_OP_SLICE:
        return back_slice(node, strides, to);
    case IR_OP_GATHER:
        return back_gather(rw, node, strides, to);
    case IR_OP_EXPAND:
    case IR_OP_TILE:
        return back_repeat(from, &ir_tensor(rw->graph, node->outputs[0])->shape, strides, to);
    default:
        return false;
    }
}

/* Makes one digit of neighbours that the node moves as one, so that a dimension of the view may
 * count through both: batches and windows, say, where only heads and rows change places. */
static struct shape join(const struct shape *shape, struct digits *to)
{
    struct shape joined = {.rank = 0};
    for (uint32_t j = 0; j < shape->rank; j++) {
        uint32_t last = joined.rank - 1;
        if (shape->dim[j] == 1)
            continue;
        if (joined.rank && to->step[last] == to->step[j] * shape->dim[j]) {
            joined.dim[last] *= shape->dim[j];
            to->step[last] = to->step[j];
            continue;
        }
        joined.dim[joined.rank] = shape->dim[j];
        to->step[joined.rank++] = to->step[j];
    }
    return joined;
}

bool view_back(const struct rewrite *rw, struct view *view)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, view->tensor);
    if (t->producer == IR_NONE)
        return false;
    const struct ir_node *node = ir_node(rw->graph, t->producer);
    struct digits to = {.base = 0};
    float scale, shift;
    if (node->op == IR_OP_RESHAPE) {
        view->tensor = node->inputs[0];
        return true;
    }
    if (rw_linear(rw, t->producer, &scale, &shift)) {
        if (shift != 0)
            return false;
        view->scale *= scale;
        view->tensor = node->inputs[0];
        return true;
    }
    if (node->n_epilogue || !back(rw, node, &to))
        return false;
    const struct shape joined = join(&t->shape, &to);
    return move(view, &joined, &to, node->inputs[0]);
}

bool view_has_strides(const struct view *view, const int64_t stride[VIEW_RANK])
{
    for (uint32_t k = 0; k < VIEW_RANK; k++)
        if (view->dim[k] != 1 && view->stride[k] != stride[k])
            return false;
    return true;
}
