/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of the op PLUGIN as their plugins see them. */
#ifndef INFERD_ENGINE_IR_PLUGIN_NODE_H
#define INFERD_ENGINE_IR_PLUGIN_NODE_H

#include "engine/ir/ir.h"
#include "engine/plugin/plugin.h"

/* Reads a node of the op PLUGIN, with its inputs, and with those outputs that it has. Tensors of
 * FP32 have the type `real` instead, if that is not NONE. Errors as plugin_node_read's. */
enum status ir_plugin_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype real, struct plugin_node *out, struct error *err);

/* Whether the node's rows do not belong to one instance each. */
bool ir_plugin_mixes(const struct ir_graph *graph, const struct ir_node *node);

#endif
