/* SPDX-License-Identifier: Apache-2.0 */
/* The survey's side of an import: it notes failures, and the import goes on without the node. */
#ifndef INFERD_ENGINE_IMPORT_SURVEY_H
#define INFERD_ENGINE_IMPORT_SURVEY_H

#include "engine/import/map.h"

/* Takes the failure of this node (NULL: of an input or the like) from the mapper, unless it says
 * nothing about the model. `formed`: the node has passed the table of ops, so the failure is not
 * yet noted. */
void survey_take(struct mapper *m, const struct onnx_node *node, bool formed);

/* Says whether the node reads a name that a refused node would have written. */
bool survey_lacks(struct mapper *m, const struct onnx_node *node);

#endif
