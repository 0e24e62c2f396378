/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which dimensions of a model's inputs and outputs count instances. Names say which of the inputs'
 * do, or the caller, or their place (engine/import/dims.h); of an output it is the one that is 1
 * for one instance and 2 for two. An input without such a dimension is shared by all instances of a
 * batch. A model is not batched if an output has none, nor if only the place speaks for the inputs'
 * dimensions, and nothing shows that instances are apart (along.h). Where a name speaks for them, a
 * layer that mixes instances is only warned of.
 */
#ifndef INFERD_ENGINE_BUILD_INSTANCES_H
#define INFERD_ENGINE_BUILD_INSTANCES_H

#include "engine/build/build.h"

struct build_instances {
    bool batched;
    char why[256]; /* if not: a sentence for people */
    /* Of a batched model, without free dimensions. */
    struct plan_axes inputs[IR_MAX_IO], outputs[IR_MAX_IO];
};

/* An error says that the model cannot be imported at all. */
enum status build_instances_find(struct onnx_model *model, const struct build_options *options,
                                 struct build_instances *out, struct error *err);

/* As onnx_is_batched. *named is false, too, if a build has guessed what counts instances. */
bool build_looks_batched(const struct onnx_model *model, const struct build_options *options,
                         bool *named);

/* Whether it is the first dimension of each input. */
bool build_instances_first(const struct build_instances *instances);

/* Imports the model for `batch` instances, with the types in which inputs are served. `steps` and
 * `tail` are those of onnx_options, and may be NULL. */
enum status build_import(struct onnx_model *model, const struct build_options *options,
                         uint32_t batch, uint64_t *steps, struct onnx_tail *tail,
                         struct ir_graph **out, struct error *err);
void build_tail_cleanup(struct onnx_tail *tail); /* for CLEANUP (base/compiler.h) */

#endif
