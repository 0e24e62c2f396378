/* SPDX-License-Identifier: Apache-2.0 */
/* What FP8 costs in exactness, on devices that have no kernels for it. */
#ifndef INFERD_ENGINE_QUANT_EMULATE_H
#define INFERD_ENGINE_QUANT_EMULATE_H

#include "base/error.h"
#include "engine/ir/ir.h"

/* Of each product whose data and weights have ranges of FP8 (ranges.h), rounds the weights to FP8's
 * numbers, and puts a quantisation and its inverse before the data; then takes these ranges off. */
enum status quant_emulate(struct ir_graph *graph, struct error *err);

#endif
