/* SPDX-License-Identifier: Apache-2.0 */
/* See weights.h. */
#include "engine/quant/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define F8_UNLIKE 64.0F

uint32_t quant_product_data(const struct ir_graph *g, const struct ir_node *node)
{
    bool layer = node->op == IR_OP_CONV_POOL;
    if ((!layer && !ir_op_has(node->op, IR_TRAIT_PRODUCT)) || node->n_inputs < 2 ||
        node->inputs[0] == IR_NONE || node->inputs[1] == IR_NONE)
        return IR_NONE;
    const struct ir_tensor *a = ir_tensor(g, node->inputs[0]), *b = ir_tensor(g, node->inputs[1]);
    if (layer && ir_tensor_type(a) == DTYPE_U8)
        return ir_tensor_is_constant(b) && !ir_tensor_is_constant(a) ? 0 : IR_NONE;
    if (ir_tensor_is_constant(a) == ir_tensor_is_constant(b) ||
        !dtype_is_float(ir_tensor_type(a)) || !dtype_is_float(ir_tensor_type(b)))
        return IR_NONE;
    return ir_tensor_is_constant(a) ? 1 : 0;
}

/* The dimension of the weights that is the output's channels, or of a matrix product its columns
 * (its rows, if the weights stand first). IR_NONE: there is none. */
static uint32_t channel_axis(const struct ir_node *node, uint32_t input, const struct ir_tensor *w)
{
    if (node->op != IR_OP_MATMUL)
        return node->op == IR_OP_DECONV ? 1 : 0;
    if (w->shape.rank < 2)
        return IR_NONE;
    bool swapped = ir_attr_int(node, input ? IR_ATTR_TRANS_B : IR_ATTR_TRANS_A);
    return w->shape.rank - ((input == 1) != swapped ? 1 : 2);
}

static float value_at(const struct ir_tensor *t, size_t i)
{
    float wide;
    double widest;
    uint16_t half;
    const char *at = (const char *)t->data + i * dtype_size(t->dtype);
    switch (t->dtype) {
    case DTYPE_F32:
        memcpy(&wide, at, sizeof(wide));
        return wide;
    case DTYPE_F64:
        memcpy(&widest, at, sizeof(widest));
        return (float)widest;
    default:
        memcpy(&half, at, sizeof(half));
        return t->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
}

/* The largest magnitude of each channel; false: some weight is not finite. */
static bool find_most(const struct ir_tensor *w, uint32_t axis, size_t channels, float *most)
{
    size_t inner = 1, n = 0;
    for (uint32_t i = axis + 1; axis != IR_NONE && i < w->shape.rank; i++)
        inner *= (size_t)w->shape.dim[i];
    if (!shape_elements(&w->shape, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(value_at(w, i));
        float *m = &most[axis == IR_NONE ? 0 : i / inner % channels];
        if (!isfinite(v))
            return false;
        *m = fmaxf(*m, v);
    }
    return true;
}

/* The largest magnitudes become steps: the largest number of the type stands for them. A channel of
 * zeros has any step. */
static void make_steps(float *step, size_t channels, float largest)
{
    for (size_t i = 0; i < channels; i++)
        step[i] = step[i] > 0 ? fmaxf(step[i] / largest, FLT_MIN) : 1;
}

/* FP8's numbers span 15 powers of two with the same relative error: where channels differ by less
 * than F8_UNLIKE, one step does for all, and products are faster. */
static size_t join_steps(float *step, size_t channels)
{
    float least = FLT_MAX, most = 0;
    for (size_t i = 0; i < channels; i++) {
        most = fmaxf(most, step[i]);
        least = step[i] > 0 ? fminf(least, step[i]) : least;
    }
    if (most > F8_UNLIKE * least)
        return channels;
    step[0] = most;
    return 1;
}

enum status quant_weights_range(struct ir_graph *g, uint32_t node, enum dtype bytes, bool *made,
                                struct error *err)
{
    const struct ir_node *n = ir_node(g, node);
    uint32_t input = 1 - quant_product_data(g, n), id = n->inputs[input];
    return quant_constant_range(g, id, channel_axis(n, input, ir_tensor(g, id)), bytes, made, err);
}

enum status quant_constant_range(struct ir_graph *g, uint32_t id, uint32_t axis, enum dtype bytes,
                                 bool *made, struct error *err)
{
    const struct ir_tensor *w = ir_tensor(g, id);
    size_t channels = axis == IR_NONE ? 1 : (size_t)w->shape.dim[axis];
    if (w->range != IR_NO_SCALE || !channels || channels > UINT32_MAX)
        return STATUS_OK;
    CLEANUP(cleanup_free) float *step = calloc(channels, sizeof(*step));
    if (!step)
        return error_no_memory(err, "the ranges of weights");
    if (!find_most(w, axis, channels, step))
        return STATUS_OK; /* such weights stay floats */
    if (bytes == DTYPE_F8)
        channels = join_steps(step, channels);
    make_steps(step, channels, bytes == DTYPE_F8 ? DTYPE_F8_MAX : INT8_MAX);
    const struct ir_scale scale = {.n = (uint32_t)channels,
                                   .axis = axis == IR_NONE || channels == 1 ? 0 : axis,
                                   .dtype = bytes == DTYPE_F8 ? DTYPE_F8 : DTYPE_I8,
                                   .step = step};
    uint32_t number = ir_scale_add(g, &scale);
    if (number == IR_NO_SCALE)
        return error_no_memory(err, "the ranges of weights");
    ir_tensor(g, id)->range = number;
    *made = true;
    return STATUS_OK;
}
