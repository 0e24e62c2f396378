/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that only move elements: concatenation, reformats, transposes and slices. The last three are
 * reorders between two descriptors of the same dims.
 */
#include "base/cleanup.h"
#include "engine/cpu/onednn_recipe.h"

/* Makes attributes for a primitive that knows no post-ops, with a scratchpad of ours. Returns false
 * if the node has an epilogue. */
static bool bare_attr(const struct subject *s, dnnl_primitive_attr_t *out)
{
    CLEANUP(attr_cleanup) dnnl_primitive_attr_t attr = NULL;
    if (s->node->n_epilogue > 0 || dnnl_primitive_attr_create(&attr) != dnnl_success ||
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success)
        return false;
    *out = STEAL(attr);
    return true;
}

static enum status make_concat(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct ir_tensor *y = subject_out(s, 0);
    uint32_t n = s->node->n_inputs;
    int64_t axis = ir_attr_int(s->node, IR_ATTR_AXIS);
    CLEANUP(attr_cleanup) dnnl_primitive_attr_t attr = NULL;
    CLEANUP(cleanup_free) dnnl_memory_desc_t *src = NULL;
    dnnl_memory_desc_t dst;
    if (c.src != c.dst || n > CONCAT_MAX || !desc_tensor(&dst, y, c.dst) || !bare_attr(s, &attr))
        return STATUS_UNIMPLEMENTED;
    if (!(src = calloc(n, sizeof(*src))))
        return STATUS_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < n; i++) {
        if (!desc_tensor(&src[i], subject_in(s, i), c.src))
            return STATUS_UNIMPLEMENTED;
        recipe_in(s, r, DNNL_ARG_MULTIPLE_SRC + (int)i, i, &src[i], c.src);
    }
    recipe_out(s, r, DNNL_ARG_DST, 0, &dst, c.dst);
    dnnl_primitive_desc_t pd;
    if (dnnl_concat_primitive_desc_create(&pd, &dst, (int)n, (int)axis, src, attr,
                                          s->dnn->engine) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    return recipe_take(r, pd);
}

static enum status reorder(const struct subject *s, const dnnl_memory_desc_t *from,
                           enum ir_layout from_layout, const dnnl_memory_desc_t *to,
                           enum ir_layout to_layout, struct recipe *r)
{
    CLEANUP(attr_cleanup) dnnl_primitive_attr_t attr = NULL;
    if (!bare_attr(s, &attr))
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_FROM, 0, from, from_layout);
    recipe_out(s, r, DNNL_ARG_TO, 0, to, to_layout);
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, from, s->dnn->engine, to, s->dnn->engine, attr) !=
        dnnl_success)
        return STATUS_UNIMPLEMENTED;
    return recipe_take(r, pd);
}

/* A reformat's layouts are those that its tensors have. */
static uint32_t list_reformat(const struct subject *s, struct choice out[CHOICES_MAX])
{
    out[0] = (struct choice){.src = (uint8_t)subject_in(s, 0)->layout,
                             .dst = (uint8_t)subject_out(s, 0)->layout};
    return out[0].src == IR_LAYOUT_OPAQUE || out[0].dst == IR_LAYOUT_OPAQUE ? 0 : 1;
}

static enum status make_reformat(const struct subject *s, struct choice c, struct recipe *r)
{
    dnnl_memory_desc_t from, to;
    if (!desc_tensor(&from, subject_in(s, 0), c.src) || !desc_tensor(&to, subject_out(s, 0), c.dst))
        return STATUS_UNIMPLEMENTED;
    return reorder(s, &from, c.src, &to, c.dst, r);
}

/* Plain, and the ways in which the elements stay where they are. */
static uint32_t list_transpose(const struct subject *s, struct choice out[CHOICES_MAX])
{
    static const struct choice ways[] = {{.src = IR_LAYOUT_CHANNELS_LAST, .dst = IR_LAYOUT_PLAIN},
                                         {.src = IR_LAYOUT_PLAIN, .dst = IR_LAYOUT_CHANNELS_LAST}};
    uint32_t rank = subject_out(s, 0)->shape.rank, n = 0;
    out[n] = (struct choice){0};
    n += rank > 0;
    for (size_t i = 0; i < ARRAY_LEN(ways) && rank >= 3 && rank <= 5; i++) {
        const struct ir_format from = {.layout = ways[i].src}, to = {.layout = ways[i].dst};
        if (ir_node_renames(s->graph, s->node, from, to))
            out[n++] = ways[i];
    }
    return n;
}

/* The strides of a tensor that is plain or channels-last. */
static void strides_in(const struct shape *x, enum ir_layout layout, int64_t *strides)
{
    struct shape as = *x;
    shape_strides(x, strides);
    if (layout != IR_LAYOUT_CHANNELS_LAST)
        return;
    for (uint32_t i = 1; i < x->rank; i++)
        as.dim[i] = x->dim[i + 1 < x->rank ? i + 1 : 1];
    int64_t dense[SHAPE_MAX_RANK];
    shape_strides(&as, dense);
    for (uint32_t i = 1; i < x->rank; i++)
        strides[i + 1 < x->rank ? i + 1 : 1] = dense[i];
}

static enum status make_transpose(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct shape *x = &subject_in(s, 0)->shape, *y = &subject_out(s, 0)->shape;
    int64_t dense[SHAPE_MAX_RANK], strides[SHAPE_MAX_RANK];
    strides_in(x, c.src, dense);
    for (uint32_t i = 0; i < y->rank; i++) {
        int64_t from = ir_attr_at(s->node, IR_ATTR_PERM, i);
        if (from < 0 || from >= (int64_t)x->rank)
            return STATUS_UNIMPLEMENTED;
        strides[i] = dense[from];
    }
    dnnl_memory_desc_t from, to;
    if (!desc_strides(&from, y->rank, y->dim, strides) || !desc_layout(&to, y->rank, y->dim, c.dst))
        return STATUS_UNIMPLEMENTED;
    desc_type(&from, subject_in(s, 0));
    desc_type(&to, subject_out(s, 0));
    return reorder(s, &from, c.src, &to, c.dst, r);
}

/* If channels are blocked, a slice must consist of whole blocks; oneDNN checks that. */
static enum status make_slice(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct ir_tensor *x = subject_in(s, 0), *y = subject_out(s, 0);
    int64_t starts[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->shape.rank; i++) {
        starts[i] = ir_attr_at(s->node, IR_ATTR_STARTS, i);
        if (ir_attr_at(s->node, IR_ATTR_STEPS, i) != 1)
            return STATUS_UNIMPLEMENTED;
    }
    dnnl_memory_desc_t whole, from, to;
    if (c.src != c.dst || !desc_tensor(&whole, x, c.src) ||
        !desc_part(&from, &whole, &y->shape, starts) || !desc_tensor(&to, y, c.dst))
        return STATUS_UNIMPLEMENTED;
    return reorder(s, &from, c.src, &to, c.dst, r);
}

const struct onednn_row onednn_concat = {
    .op = IR_OP_CONCAT, .list = list_layouts, .make = make_concat, .impls = 1};
const struct onednn_row onednn_reformat = {
    .op = IR_OP_REFORMAT, .list = list_reformat, .make = make_reformat, .impls = 1};
const struct onednn_row onednn_transpose = {
    .op = IR_OP_TRANSPOSE, .list = list_transpose, .make = make_transpose, .impls = 1};
const struct onednn_row onednn_slice = {
    .op = IR_OP_SLICE, .list = list_layouts, .make = make_slice, .impls = 1};
