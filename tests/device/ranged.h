/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges for a case's tensors, so that kernels for 8 bits can be tried on it. Inputs and weights
 * hold numbers that 8 bits hold exactly, and so do floats of 16 bits; the output has a range that
 * cuts off its largest numbers.
 */
#ifndef INFERD_TESTS_DEVICE_RANGED_H
#define INFERD_TESTS_DEVICE_RANGED_H

#include "engine/ir/ir.h"

/* Gives ranges to the inputs and weights of node 0, and rounds the weights to theirs. With seed 0
 * all ranges are symmetric ones of INT8, here and below. `bytes` FP8: all are of FP8. */
enum status ranged_inputs(struct ir_graph *graph, uint64_t seed, enum dtype bytes,
                          struct error *err);
/* Gives a range to an output of which these are the values, unless it follows from the inputs. */
enum status ranged_output(struct ir_graph *graph, uint32_t output, const float *values,
                          uint64_t seed, enum dtype bytes, struct error *err);
/* Whether a kernel makes this output of the first one as that is stored (CONV_CHAIN's second one);
 * and what it should be, given the numbers that the first one holds. */
bool ranged_follows(const struct ir_graph *graph, uint32_t output);
void ranged_follow(const struct ir_graph *graph, const float *first, float *values);
/* Gives the tensors of another graph of the case the same ranges and constants. */
enum status ranged_copy(const struct ir_graph *from, struct ir_graph *to, struct error *err);
/* Rounds n numbers to those that the scale has. */
void ranged_round(const struct ir_scale *scale, const struct shape *shape, float *values);
/* How far stored numbers are from what they should be, in steps (of FP8, in the distance between
 * its numbers there) beyond the half that rounding takes; numbers that the scale does not reach
 * should be its last one. */
double ranged_error(const struct ir_scale *scale, enum dtype dtype, const float *have,
                    const float *want, size_t n);

#endif
