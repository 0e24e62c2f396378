/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/build: the passes, as a backend and the options of a build want them. */
#ifndef INFERD_ENGINE_BUILD_FUSE_H
#define INFERD_ENGINE_BUILD_FUSE_H

#include "engine/build/build.h"

/* Rewrites an imported graph, and notes in `report` what was done. */
enum status build_fuse(struct ir_graph *graph, const struct build_options *options,
                       struct build_report *report, struct error *err);

/* Whether the device has a tactic for the node, as the tuner would ask. An error is none. */
bool build_device_takes(const struct build_options *options, const struct ir_graph *graph,
                        const struct ir_node *node);

#endif
