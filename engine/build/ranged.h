/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/build: the ranges that a build in 8 bits has, in two steps, between which the
 * graph may be rewritten. */
#ifndef INFERD_ENGINE_BUILD_RANGED_H
#define INFERD_ENGINE_BUILD_RANGED_H

#include "engine/build/build.h"

/* Whether the device has no kernels for the 8-bit floats that are wanted, and rounds to them. */
bool build_emulates(const struct build_options *options);

/* In 8 bits, which rows of the table name a tensor of the graph: as it was imported, before passes
 * make tensors vanish. *known is the caller's, to be freed; in other precisions it is NULL. */
enum status build_find_known(const struct ir_graph *imported, const struct build_options *options,
                             bool **known, struct error *err);

/* As build_fuse. In 8 bits, each tensor has a name then, by which a table speaks of it. */
enum status build_fuse_named(struct ir_graph *graph, const struct build_options *options,
                             struct build_report *report, struct error *err);

/* Puts the ranges onto what is left of the graph's tensors, as the device's products read them.
 * `known` as above; NULL: nothing is to be done. */
enum status build_range(struct ir_graph *graph, const struct build_options *options,
                        const bool *known, struct build_report *report, struct error *err);

#endif
