/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dimensions that nobody gives a size, and that nothing names as a batch: the states [2,B,128] of
 * recurrent models, say, beside inputs that are named. They are as many as there are instances if
 * the model can be imported so, and in no other way: then a size of their own does not fit. If no
 * other dimension counts instances, it must also be shown that they keep these apart: [T,B,C] whose
 * T has a size, say. So it is where there are many, of which those of equal shapes are tried
 * together.
 */
#ifndef INFERD_ENGINE_BUILD_TIES_H
#define INFERD_ENGINE_BUILD_TIES_H

#include "engine/build/build.h"
#include "engine/build/shapes.h"

/* Adds such dimensions to the space and to the options, which have the space's values. Nothing is
 * added if that cannot be shown of all of them: the import then says what is missing. */
enum status build_ties_find(struct onnx_model *model, struct build_options *options,
                            struct arena *arena, struct build_space *space, struct error *err);

#endif
