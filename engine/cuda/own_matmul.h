/* SPDX-License-Identifier: Apache-2.0 */
/* What own_matmul.c knows of products, for the families of products that are more than that. */
#ifndef INFERD_ENGINE_CUDA_OWN_MATMUL_H
#define INFERD_ENGINE_CUDA_OWN_MATMUL_H

#include "engine/cuda/lt.h"
#include "engine/cuda/own.h"

/* The inputs of a node that its kernel adds; IR_NONE: there is none. */
struct own_matmul_operands {
    uint32_t bias, residual;
};

/* What happens to a product's sums, as kernel_matmul does it: sets func, alpha and late. False:
 * more than a bias, a residual and one activation. */
bool own_matmul_steps(const struct ir_node *node, const struct lt_steps *steps,
                      struct kernel_matmul *matmul, struct own_matmul_operands *operands);

/* Of the variants that divide the depth, counted from 0, the one to take without timing. */
int32_t own_matmul_split(const struct cuda_device *device, const struct kernel_matmul *p);

#endif
