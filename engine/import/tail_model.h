/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the model that a tail is (onnx.h), in ONNX's own format: nodes as they lie in the file
 * they come from, constants as places in what the plan keeps beside it. Memory that runs out, or a
 * model beyond 2 GiB, is told by tail_model_end.
 */
#ifndef INFERD_ENGINE_IMPORT_TAIL_MODEL_H
#define INFERD_ENGINE_IMPORT_TAIL_MODEL_H

#include "engine/import/model.h"
#include "engine/ir/ir.h"

struct tail_model;

struct tail_model *tail_model_new(void); /* NULL: no memory */
void tail_model_free(struct tail_model *to);

void tail_model_node(struct tail_model *to, const struct onnx_node *node);
void tail_model_input(struct tail_model *to, const char *name);
void tail_model_constant(struct tail_model *to, const char *name, const struct ir_tensor *tensor,
                         uint64_t offset);
void tail_model_output(struct tail_model *to, const struct onnx_value_info *info);

/* *out: the model, with the opsets of `from`; malloc-ed. False: it could not be written. */
bool tail_model_end(struct tail_model *to, const struct onnx_model *from, void **out, size_t *size);

#endif
