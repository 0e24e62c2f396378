/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins' kernels as tactics. Private to engine/cpu and engine/cuda.
 *
 * A tactic's blob is the kernel's name, by which a stored one is found again. All tensors are plain
 * and have the graph's own types, but on a device FP32 may be a shorter float type throughout, if
 * the op says that its kernels look at types.
 */
#ifndef INFERD_ENGINE_PLUGGED_H
#define INFERD_ENGINE_PLUGGED_H

#include "engine/backend.h"
#include "engine/ir/plugin_node.h"

/* A kernel and the node that it runs. */
struct plugged {
    const struct inferd_plugin_kernel *kernel;
    struct plugin_node node;
};

/* Which tactics are looked for: kernels for `where`, with `real` in place of FP32 (NONE: FP32
 * stays). `backend` and `id` are theirs. */
struct plugged_wish {
    enum inferd_plugin_where where;
    enum dtype real;
    const char *backend;
    uint32_t id;
};

/* Visits every kernel of the node's op that takes the node. The reference is none of them: it is
 * every op's on the CPU (engine/cpu/call.c). */
enum status plugged_candidates(const struct ir_graph *graph, const struct ir_node *node,
                               const struct plugged_wish *wish, tactic_visit visit, void *user,
                               struct error *err);

/* Checks the node as its graph stores it, and finds the kernel that a tactic names.
 * INVALID_ARGUMENT: the tactic is none of a plugin's for `where`, or not for this node. */
enum status plugged_read(const struct ir_graph *graph, const struct ir_node *node,
                         const struct tactic *tactic, enum inferd_plugin_where where,
                         struct plugged *out, struct error *err);

#endif
