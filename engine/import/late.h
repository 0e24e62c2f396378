/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a graph leaves to a tail (onnx.h). A node of the model's own graph is *late* if only a
 * request knows a value that its shapes depend on, or if it reads what a late node makes. The
 * importer maps all others as ever; what late nodes read of them becomes outputs of the graph.
 */
#ifndef INFERD_ENGINE_IMPORT_LATE_H
#define INFERD_ENGINE_IMPORT_LATE_H

#include "engine/import/map.h"

struct late {
    bool *nodes;         /* of the model's graph: those that are late */
    struct value *names; /* what they make */
    uint32_t n;
};

/* Shows all names that the graph and those within it read, their own ones among them; false: that
 * is enough. */
typedef bool (*late_name)(void *user, const char *name);
bool late_each_name(const struct onnx_graph *graph, late_name seen, void *user);

/* Whether the node at hand is to be late because of what it reads. */
bool late_reads(struct mapper *m, const struct onnx_node *node);
/* If the mapping of the node at hand has just failed because only a request knows a value: takes
 * the failure back, with the nodes of ours from `first` on, and returns true. */
bool late_takes(struct mapper *m, uint32_t first);
/* Makes the node late. Fails if it, or a node within, could not be mapped with all values known. */
void late_add(struct mapper *m, const struct onnx_node *node, uint32_t index);
/* Behind the last node: makes the graph's outputs, and the tail. */
void late_finish(struct mapper *m, struct onnx_tail *out);

#endif
