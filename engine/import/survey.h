/* SPDX-License-Identifier: Apache-2.0 */
/* A survey's side of an import: failures are taken down, and it goes on without the node. */
#ifndef INFERD_ENGINE_IMPORT_SURVEY_H
#define INFERD_ENGINE_IMPORT_SURVEY_H

#include "engine/import/map.h"

/* The mapper has failed on this node (NULL: on an input or the like): takes the failure from it,
 * but for one that says nothing about the model. `formed`: the table of ops has not shown it. */
void survey_take(struct mapper *m, const struct onnx_node *node, bool formed);

/* The node reads what a refused one would have written. */
bool survey_lacks(struct mapper *m, const struct onnx_node *node);

#endif
