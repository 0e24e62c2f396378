/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/scaled.h"

#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/compiler.h"

float scaled_in_steps(const struct stored *to, float v)
{
    return v / to->step + (float)(to->zero - (to->dtype == DTYPE_U8 ? 128 : 0));
}

bool scaled_limits(const struct stored *to, uint32_t func, float alpha, float beta, float *low,
                   float *high)
{
    bool relu = func == IR_UNARY_RELU;
    if (!relu && func != IR_UNARY_CLIP)
        return false;
    *low = fmaxf(-128, scaled_in_steps(to, relu ? 0 : alpha));
    *high = relu ? 127 : fminf(127, scaled_in_steps(to, beta));
    return true;
}

bool scaled_constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                          struct scaled_inputs inputs, uint32_t axis, int64_t n, enum dtype bytes)
{
    const struct ir_tensor *w = cuda_input(graph, node, inputs.weights);
    const struct ir_tensor *bias =
        inputs.bias == IR_NONE ? NULL : cuda_input(graph, node, inputs.bias);
    const struct ir_scale *scale = ir_scale(graph, w->range);
    return scale && stored_type(scale) == bytes && !scale->zero_min && !scale->zero_max &&
           (scale->n == 1 || (scale->axis == axis && scale->n == n)) && dtype_is_float(w->dtype) &&
           w->layout == IR_LAYOUT_PLAIN && w->data &&
           (!bias || (ir_tensor_is_constant(bias) && dtype_is_float(bias->dtype) &&
                      bias->shape.rank == 1 && bias->shape.dim[0] == n));
}

void scaled_ports(const struct ir_graph *graph, const struct ir_node *node, bool biased,
                  enum dtype bytes, uint64_t packed, struct tactic *tactic)
{
    stored_set_scales(tactic, graph, node);
    if (biased) /* packing reads it as it is */
        tactic->in[2].format = (struct ir_format){.dtype = cuda_input(graph, node, 2)->dtype};
    tactic->in[1].format =
        (struct ir_format){.dtype = bytes, .scale = cuda_input(graph, node, 1)->range};
    tactic_port_pack(&tactic->in[1], packed);
}

enum status scaled_constants_read(const struct ir_graph *graph, const struct ir_node *node,
                                  struct scaled_inputs inputs, uint64_t n_weights, uint64_t n,
                                  struct scaled_constants *out, bool *fit, struct error *err)
{
    CLEANUP(scaled_constants_cleanup)
    struct scaled_constants made = {
        .scale = ir_scale(graph, cuda_input(graph, node, inputs.weights)->range),
        .weights = malloc(n_weights * sizeof(*made.weights)),
        .bias = calloc(n, sizeof(*made.bias)),
    };
    if (!made.weights || !made.bias)
        return error_no_memory(err, "the weights of '%s'", node->name);
    *fit = cuda_constant_f32(cuda_input(graph, node, inputs.weights), made.weights, n_weights) &&
           (inputs.bias == IR_NONE ||
            cuda_constant_f32(cuda_input(graph, node, inputs.bias), made.bias, n));
    *out = made;
    made.weights = made.bias = NULL;
    return STATUS_OK;
}

void scaled_constants_cleanup(struct scaled_constants *constants)
{
    free(constants->weights);
    free(constants->bias);
}

float scaled_step(const struct ir_scale *scale, int64_t c)
{
    return scale->step[scale->n > 1 ? c : 0];
}

int8_t scaled_byte(float weight, float step)
{
    return (int8_t)fminf(fmaxf(rintf(weight / step), INT8_MIN), INT8_MAX);
}
