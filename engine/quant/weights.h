/* SPDX-License-Identifier: Apache-2.0 */
/* Products with constant weights, and the ranges of these weights. */
#ifndef INFERD_ENGINE_QUANT_WEIGHTS_H
#define INFERD_ENGINE_QUANT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/ir/ir.h"

/* The input that holds the data, if the node multiplies floats, or CONV_POOL's bytes, by constant
 * weights; else IR_NONE. */
uint32_t quant_product_data(const struct ir_graph *graph, const struct ir_node *node);

/* Gives the weights of such a node a symmetric range, unless they have a range: of INT8, for each
 * channel of the output, or of FP8 (`bytes`), one for all channels if these are not too unlike.
 * *made: they got one. */
enum status quant_weights_range(struct ir_graph *graph, uint32_t node, enum dtype bytes, bool *made,
                                struct error *err);

/* The same of one constant, whose channels lie along a dimension; IR_NONE: it has one for all. */
enum status quant_constant_range(struct ir_graph *graph, uint32_t constant, uint32_t axis,
                                 enum dtype bytes, bool *made, struct error *err);

#endif
