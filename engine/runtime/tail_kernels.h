/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are prepared for nodes of tails, by all that decides what a kernel does: op,
 * attributes, types and shapes. Requests of one kind lead to the same sizes again and again. The
 * kernels that were not used for the longest time make room for new ones.
 *
 * Of one thread, as the stream is.
 */
#ifndef INFERD_ENGINE_RUNTIME_TAIL_KERNELS_H
#define INFERD_ENGINE_RUNTIME_TAIL_KERNELS_H

#include "engine/backend.h"

enum { TAIL_KERNELS_MAX = 512 };

struct tail_kernels;

/* The device and the stream, which must outlive it, are a CPU's. NULL: no memory. */
struct tail_kernels *tail_kernels_new(struct device *device, struct backend_stream *stream);
void tail_kernels_free(struct tail_kernels *kernels); /* NULL is fine */

/*
 * Runs the node by a kernel that reads and writes plain tensors. *done false: there is none, or
 * none yet: with `eager` one is prepared at once, else when such a node comes a second time.
 */
enum status tail_kernels_run(struct tail_kernels *kernels, const struct ir_graph *graph,
                             const struct ir_node *node, bool eager, const void *const *inputs,
                             void *const *outputs, bool *done, struct error *err);

/* How many were found as they had been prepared, and how many were not. */
struct tail_kernels_figures {
    uint64_t hits, misses;
    uint32_t n;
};
struct tail_kernels_figures tail_kernels_look(const struct tail_kernels *kernels);

#endif
