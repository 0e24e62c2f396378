/* SPDX-License-Identifier: Apache-2.0 */
/* Do two graphs compute the same? By the reference kernels, on random inputs. */
#ifndef INFERD_TESTS_UNIT_PASSES_SAME_H
#define INFERD_TESTS_UNIT_PASSES_SAME_H

#include "engine/ir/ir.h"

/* The graph's outputs for inputs that follow from the seed; freed by outputs_free. */
struct outputs {
    uint32_t n;
    struct tensor_view views[IR_MAX_IO];
};
void outputs_compute(const struct ir_graph *graph, uint64_t seed, struct outputs *out);
void outputs_free(struct outputs *outputs);

/* Fails the test unless all numbers agree within `tolerance` times the largest one of the tensor.
 */
void outputs_check(const struct outputs *got, const struct outputs *want, double tolerance,
                   const char *what);

#endif
