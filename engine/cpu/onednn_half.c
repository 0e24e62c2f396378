/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of BF16, on machines that have instructions for them: twice as fast as
 * those of FP32. x is stored as BF16, and so are the packed weights; sums and bias stay in FP32,
 * and so does y unless its readers want BF16. All other ops compute in FP32, so that a change of
 * format stands before each product whose input something else than a product has made.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cpu/onednn_recipe.h"

/* Whether the tensor is a real number of FP32, stored as this type. */
static bool is_stored_as(const struct ir_tensor *t, enum dtype dtype)
{
    size_t n;
    return t->dtype == dtype && t->scale == IR_NO_SCALE && ir_tensor_type(t) == DTYPE_F32 &&
           shape_elements(&t->shape, &n) && n > 0;
}

static bool is_either(const struct ir_tensor *t)
{
    return is_stored_as(t, DTYPE_F32) || is_stored_as(t, DTYPE_BF16);
}

bool subject_is_half(const struct subject *s)
{
    const struct ir_tensor *x = subject_in(s, 0), *w = subject_in(s, 1), *y = subject_out(s, 0);
    if (!s->dnn->bf16 || !x || !is_either(x) || !is_either(y))
        return false;
    if (s->node->op == IR_OP_REFORMAT)
        return x->dtype == DTYPE_BF16 || y->dtype == DTYPE_BF16;
    bool fits = ir_op_has(s->node->op, IR_TRAIT_BYTES) && x->dtype == DTYPE_BF16 && w &&
                is_either(w) && ir_tensor_is_constant(w) && !ir_tensor_is_constant(x);
    for (uint32_t i = 2; fits && i < s->node->n_inputs; i++)
        fits = !subject_in(s, i) || is_stored_as(subject_in(s, i), DTYPE_F32);
    return fits;
}

static bool shorten(struct ir_graph *graph, uint32_t tensor)
{
    const struct ir_format format = {.layout = IR_LAYOUT_PLAIN, .dtype = DTYPE_BF16};
    return ir_tensor(graph, tensor)->layout == IR_LAYOUT_PLAIN &&
           ir_tensor_set_format(graph, tensor, format);
}

enum status half_each(const struct subject *s, half_offer offer, void *user, struct error *err)
{
    const struct ir_node *node = s->node;
    if (!s->dnn->bf16 || !ir_op_has(node->op, IR_TRAIT_BYTES) || !subject_all_f32(s) ||
        node->inputs[0] == IR_NONE)
        return STATUS_OK;
    CLEANUP(cleanup_free) struct ir_tensor *tensors = calloc(s->graph->n_tensors, sizeof(*tensors));
    if (!tensors)
        return error_no_memory(err, "formats of '%s'", node->name);
    memcpy(tensors, s->graph->tensors, s->graph->n_tensors * sizeof(*tensors));
    struct ir_graph copy = *s->graph;
    copy.tensors = tensors;
    const struct subject half = {s->dnn, &copy, node};
    if (!shorten(&copy, node->inputs[0]) || !subject_is_half(&half))
        return STATUS_OK;
    TRY(offer(user, &copy, err));
    return shorten(&copy, node->outputs[0]) ? offer(user, &copy, err) : STATUS_OK;
}
