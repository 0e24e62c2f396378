/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products of tensors that are stored in 8 bits by scales. x stands for
 * sx (p - zx) and the weights of output channel c for sw[c] q, where p and q are the stored
 * integers, so that
 *
 *     y[c] = alpha sx sw[c] (sum(p q) - zx sum(q)) + bias[c]
 *
 * oneDNN adds the bias to the integer sum and multiplies both by a scale. What it then holds counts
 * in a unit, for which there is some choice: steps of the output, steps of a residual that is in 8
 * bits too, or real numbers where the epilogue has a function that needs these.
 *
 * zx is either oneDNN's to subtract, or part of the bias, which is right where x has no padding.
 * The weights are packed with this bias behind them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cpu/onednn_recipe.h"
#include "engine/stored.h"

/* A sum of so many products of 8-bit numbers stays within 31 bits. */
enum { DEPTH_MAX = 65000 };

static const struct ir_scale *weights_scale(const struct subject *s)
{
    const struct ir_tensor *w = subject_in(s, 1);
    return ir_scale(s->graph, w->scale != IR_NO_SCALE ? w->scale : w->range);
}

/* The dimension of the weights that is the output's channel. */
static uint32_t channel_axis(const struct subject *s)
{
    if (s->node->op != IR_OP_MATMUL)
        return 0;
    bool trans = ir_attr_int(s->node, IR_ATTR_TRANS_B) != 0;
    return subject_in(s, 1)->shape.rank - (trans ? 2 : 1);
}

static int64_t channels_of(const struct subject *s)
{
    return subject_in(s, 1)->shape.dim[channel_axis(s)];
}

/* Whether the weights' integers fit INT8 once their zero point is subtracted. */
static bool weights_fit(const struct subject *s)
{
    const struct ir_tensor *w = subject_in(s, 1);
    const struct ir_scale *scale = weights_scale(s);
    size_t n = 0;
    if (!scale || (scale->n > 1 && scale->axis != channel_axis(s)) ||
        (scale->n > 1 && scale->n != (uint64_t)channels_of(s)) || !shape_elements(&w->shape, &n) ||
        n == 0 || n / (size_t)channels_of(s) > DEPTH_MAX)
        return false;
    int32_t zero = stored_type(scale) == DTYPE_U8 ? 128 : 0;
    return (scale->zero_min == zero && scale->zero_max == zero) ||
           (scale->dtype == DTYPE_NONE && !scale->zero_min && !scale->zero_max);
}

static bool is_real(const struct ir_tensor *t)
{
    size_t n;
    return t->dtype == DTYPE_F32 && t->scale == IR_NO_SCALE && shape_elements(&t->shape, &n) && n;
}

/* Whether the tensor is FP32, or stored in 8 bits by one scale. */
static bool is_operand(const struct subject *s, uint32_t tensor)
{
    struct stored stored;
    return stored_read(s->graph, tensor, &stored) &&
           (stored.dtype != DTYPE_NONE || is_real(ir_tensor(s->graph, tensor)));
}

bool subject_is_scaled(const struct subject *s)
{
    struct stored x;
    const struct ir_tensor *w = subject_in(s, 1), *bias = NULL;
    bool product = s->node->op == IR_OP_MATMUL;
    if (!s->dnn->vnni || !ir_op_has(s->node->op, IR_TRAIT_BYTES) || !w ||
        !stored_read(s->graph, s->node->inputs[0], &x) || x.dtype == DTYPE_NONE ||
        !ir_tensor_is_constant(w) || !weights_fit(s) || !is_operand(s, s->node->outputs[0]) ||
        (product && !(ir_attr_float(s->node, IR_ATTR_ALPHA) > 0)))
        return false;
    if (ir_node_own_inputs(s->node) > 2)
        bias = subject_in(s, 2);
    if (bias && !(ir_tensor_is_constant(bias) && is_real(bias)))
        return false;
    for (uint32_t i = ir_node_own_inputs(s->node); i < s->node->n_inputs; i++)
        if (!is_operand(s, s->node->inputs[i]))
            return false;
    return true;
}

bool scaled_has_zero(const struct subject *s)
{
    struct stored x;
    return stored_read(s->graph, s->node->inputs[0], &x) && x.zero != 0;
}

/* --- what oneDNN is told --- */

static float alpha_of(const struct subject *s)
{
    return s->node->op == IR_OP_MATMUL ? ir_attr_float(s->node, IR_ATTR_ALPHA) : 1;
}

/* What 1 in an integer sum of channel c stands for. */
static double sum_step(const struct subject *s, int64_t c)
{
    const struct ir_scale *scale = weights_scale(s);
    struct stored x;
    (void)stored_read(s->graph, s->node->inputs[0], &x);
    return (double)alpha_of(s) * (double)x.step * (double)scale->step[scale->n > 1 ? c : 0];
}

static enum status set_scales(const struct subject *s, float unit, dnnl_primitive_attr_t attr)
{
    const struct ir_scale *scale = weights_scale(s);
    CLEANUP(cleanup_free) float *scales = malloc(scale->n * sizeof(*scales));
    if (!scales)
        return STATUS_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < scale->n; i++) {
        scales[i] = (float)(sum_step(s, i) / (double)unit);
        if (!isfinite(scales[i]))
            return STATUS_UNIMPLEMENTED;
    }
    /* In oneDNN the channels of an output are its dim 1. */
    return status_of_dnnl(
        dnnl_primitive_attr_set_output_scales(attr, scale->n, scale->n > 1 ? 1 << 1 : 0, scales));
}

enum status scaled_attr(const struct subject *s, const struct output_view *view, struct choice c,
                        struct recipe *r, dnnl_primitive_attr_t *out)
{
    CLEANUP(attr_cleanup) dnnl_primitive_attr_t attr = NULL;
    struct stored x;
    float unit = epilogue_unit(s);
    TRY(epilogue_attr_in(s, view, unit, r, &attr));
    TRY(set_scales(s, unit, attr));
    if (stored_read(s->graph, s->node->inputs[0], &x) && x.zero && c.zero == ZERO_OF_ONEDNN &&
        dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, &x.zero) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    *out = STEAL(attr);
    return STATUS_OK;
}

static size_t packed_weights(const dnnl_memory_desc_t *md)
{
    return (dnnl_memory_desc_get_size(md) + BACKEND_ALIGN - 1) & ~(size_t)(BACKEND_ALIGN - 1);
}

void scaled_packed(const struct subject *s, struct recipe *r, const dnnl_memory_desc_t *want,
                   const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *bias)
{
    recipe_in(s, r, DNNL_ARG_BIAS, 1, bias, IR_LAYOUT_PLAIN);
    r->args[r->n_args - 1].offset = packed_weights(want);
    recipe_in(s, r, DNNL_ARG_WEIGHTS, 1, want, IR_LAYOUT_PLAIN);
    r->packed_arg = r->n_args - 1;
    r->plain = *plain;
    tactic_port_pack(&r->in[1], packed_weights(want) + dnnl_memory_desc_get_size(bias));
}

void scaled_port(const struct subject *s, struct tactic_port *weights)
{
    const struct ir_tensor *w = subject_in(s, 1);
    weights->format.scale = w->scale != IR_NO_SCALE ? w->scale : w->range;
    weights->format.dtype = stored_type(weights_scale(s));
}

/* --- packing --- */

static float float_at(const struct ir_tensor *t, int64_t i)
{
    float value;
    memcpy(&value, (const char *)t->data + (size_t)i * sizeof(value), sizeof(value));
    return value;
}

/* How a channel's weights lie: `channels` runs of `run` elements, again and again. */
struct weight_order {
    int64_t channels, run, n;
};

static struct weight_order order_of(const struct subject *s)
{
    const struct shape *shape = &subject_in(s, 1)->shape;
    struct weight_order o = {.channels = channels_of(s), .run = 1, .n = 1};
    for (uint32_t d = 0; d < shape->rank; d++) {
        o.n *= shape->dim[d];
        o.run *= d > channel_axis(s) ? shape->dim[d] : 1;
    }
    return o;
}

void scaled_weights(const struct subject *s, int8_t *to)
{
    const struct ir_scale *scale = weights_scale(s);
    const struct ir_tensor *w = subject_in(s, 1);
    struct weight_order o = order_of(s);
    for (int64_t i = 0; i < o.n; i++) {
        float q = rintf(float_at(w, i) / scale->step[scale->n > 1 ? i / o.run % o.channels : 0]);
        q = q > INT8_MIN ? q : INT8_MIN;
        to[i] = (int8_t)(q < INT8_MAX ? q : INT8_MAX);
    }
}

/* What the epilogue's first operand subtracts because of its zero point, as a real number. */
static double residual_shift(const struct subject *s)
{
    struct stored first = {0};
    const struct ir_epilogue *step = &s->node->epilogue[0];
    if (s->node->n_epilogue && step->kind == IR_EPILOGUE_BINARY)
        (void)stored_read(s->graph, s->node->inputs[step->input], &first);
    return first.dtype == DTYPE_NONE ? 0 : (double)first.step * first.zero;
}

bool scaled_bias(const struct subject *s, struct choice c, const int8_t *weights, float *to)
{
    const struct ir_tensor *bias = ir_node_own_inputs(s->node) > 2 ? subject_in(s, 2) : NULL;
    struct weight_order o = order_of(s);
    struct stored x;
    bool finite = stored_read(s->graph, s->node->inputs[0], &x);
    int64_t zero = c.zero == ZERO_IN_BIAS ? x.zero : 0;
    for (int64_t ch = 0; ch < o.channels; ch++) {
        double value = (bias ? (double)float_at(bias, ch) : 0) - residual_shift(s);
        int64_t sum = 0;
        for (int64_t i = ch * o.run; i < o.n && zero; i += o.channels * o.run)
            for (int64_t k = 0; k < o.run; k++)
                sum += weights[i + k];
        to[ch] = (float)(value / sum_step(s, ch) - (double)(zero * sum));
        finite = finite && isfinite(to[ch]);
    }
    return finite;
}
