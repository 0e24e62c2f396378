/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of an epilogue cuBLASLt does by itself: any number of the first steps that together
 * are act(x + residual + bias), each at most once, in any order before the activation; steps behind
 * it are left to our kernels. Its GELU is the tanh form, at most 4.8e-4 from the exact one. That is
 * less than FP16 rounds a sum of 2.7 to where they differ most, and in the norm as much as one
 * rounding to FP16. So in 16 bits it stands for the exact GELU too, which in FP32 is left to our
 * kernels.
 */
#include "engine/cuda/lt.h"

static bool take_binary(const struct lt_step *step, struct lt_epilogue *e)
{
    uint32_t *to = step->operand == LT_OPERAND_VECTOR ? &e->bias
                   : step->operand == LT_OPERAND_FULL ? &e->residual
                                                      : NULL;
    if (step->func != IR_BINARY_ADD || !to || *to != IR_NONE)
        return false;
    *to = step->input;
    return true;
}

static bool take_unary(const struct lt_step *step, bool half, struct lt_epilogue *e)
{
    bool gelu = step->func == IR_UNARY_GELU_TANH || (step->func == IR_UNARY_GELU && half);
    if (step->func != IR_UNARY_RELU && !gelu)
        return false;
    e->act = step->func == IR_UNARY_RELU ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_GELU;
    return true;
}

bool lt_epilogue(const struct lt_steps *steps, uint32_t taken, struct lt_epilogue *out)
{
    struct lt_epilogue e = {.bias = IR_NONE, .residual = IR_NONE, .act = CUBLASLT_EPILOGUE_DEFAULT};
    if (taken > steps->n)
        return false;
    for (uint32_t i = 0; i < taken; i++) {
        const struct lt_step *step = &steps->step[i];
        if (e.act != CUBLASLT_EPILOGUE_DEFAULT ||
            !(step->binary ? take_binary(step, &e) : take_unary(step, steps->half, &e)))
            return false;
    }
    *out = e;
    return true;
}

uint32_t lt_epilogue_longest(const struct lt_steps *steps)
{
    struct lt_epilogue e;
    uint32_t n = 0;
    while (n < steps->n && lt_epilogue(steps, n + 1, &e))
        n++;
    return n;
}

/* --- reading steps --- */

enum dtype lt_type(const struct ir_tensor *tensor, enum dtype dtype, bool exact)
{
    return !exact && tensor->dtype == DTYPE_F32 && dtype != DTYPE_NONE ? dtype : tensor->dtype;
}

static enum lt_operand operand_kind(const struct shape *operand, const struct shape *y,
                                    uint32_t axis)
{
    if (shape_equal(operand, y))
        return LT_OPERAND_FULL;
    if (operand->rank > y->rank)
        return LT_OPERAND_OTHER;
    int64_t along = 1;
    for (uint32_t i = 0; i < operand->rank; i++) {
        if (i + y->rank - operand->rank == axis)
            along = operand->dim[i];
        else if (operand->dim[i] != 1)
            return LT_OPERAND_OTHER;
    }
    return along == y->dim[axis] ? LT_OPERAND_VECTOR : LT_OPERAND_OTHER;
}

bool lt_steps_read(const struct ir_graph *graph, const struct ir_node *node, uint32_t bias,
                   enum dtype dtype, bool exact, struct lt_product *p)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct lt_steps *steps = &p->steps;
    steps->n = 0;
    steps->half = p->dtype == DTYPE_F16 || p->dtype == DTYPE_BF16;
    if (bias < ir_node_own_inputs(node) && cuda_input(graph, node, bias)) {
        const struct ir_tensor *t = cuda_input(graph, node, bias);
        if (lt_type(t, dtype, exact) != p->dtype || t->shape.rank != 1 ||
            t->shape.dim[0] != y->shape.dim[p->axis])
            return false;
        steps->step[steps->n++] = (struct lt_step){
            .binary = true, .func = IR_BINARY_ADD, .input = bias, .operand = LT_OPERAND_VECTOR};
    }
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *from = &node->epilogue[i];
        struct lt_step step = {.binary = from->kind == IR_EPILOGUE_BINARY, .func = from->func};
        if (step.binary) {
            const struct ir_tensor *t = cuda_input(graph, node, from->input);
            if (!t)
                return false;
            step.input = from->input;
            step.operand = operand_kind(&t->shape, &y->shape, p->axis);
            /* Only our kernels mix types. */
            if (lt_type(t, dtype, exact) != p->dtype)
                step.operand = LT_OPERAND_OTHER;
        }
        steps->step[steps->n++] = step;
    }
    return true;
}
