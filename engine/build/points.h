/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The points that a model can have. Two dimensions that it adds to each other are one, whatever
 * the file calls them ("ids_length", "mask_length"). Others hang together in other ways: what was
 * kept, what is new, and their sum.
 */
#ifndef INFERD_ENGINE_BUILD_POINTS_H
#define INFERD_ENGINE_BUILD_POINTS_H

#include "engine/build/build.h"

/* Makes one of free dimensions with equal ranges that cannot have different sizes, and leaves out
 * points that the model cannot have; the log says so. `options` have the space's dimensions. An
 * error is that of the largest point, if the model can have none. */
enum status build_points_keep(struct onnx_model *model, const struct build_options *options,
                              uint32_t batch, struct build_space *space, struct error *err);

#endif
