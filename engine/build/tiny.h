/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that are nothing beside others of their tensor, for backends on the host's processor.
 *
 * Weight decay leaves the weights of dead channels at 1e-30 and less. Numbers below 1.2e-38, and
 * products that fall below it, take a processor some hundred cycles each (Intel's optimisation
 * manual, "Floating-point exceptions": an assist): a text detector spent more than half of its time
 * on them. So a product's weights below 2^-100 of their tensor's largest become 0. Beside that one
 * FP32 has no digit below 2^-24.
 */
#ifndef INFERD_ENGINE_BUILD_TINY_H
#define INFERD_ENGINE_BUILD_TINY_H

#include "base/error.h"
#include "engine/ir/ir.h"

/* Gives FP32 constants that nothing but products reads as weights (IR_TRAIT_PRODUCT) other data.
 * *dropped: how many weights have become 0. */
enum status build_drop_tiny(struct ir_graph *graph, uint64_t *dropped, struct error *err);

#endif
