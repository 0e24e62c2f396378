/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a request may be padded with zeros along a free dimension to a larger point, and nobody
 * sees it. The model is imported and fused for some pairs of sizes, and along.h proves it of these
 * or does not. A size in between is that of the same model with the same layers.
 */
#ifndef INFERD_ENGINE_BUILD_PADS_H
#define INFERD_ENGINE_BUILD_PADS_H

#include "engine/build/along.h"
#include "engine/build/shapes.h"

/* Makes the graph of a point, fused as it would be built. */
typedef enum status (*build_graph_at)(void *user, const int64_t *values, struct ir_graph **out,
                                      struct error *err);

struct build_pads {
    bool pads;
    struct along_result result; /* why not; or where outputs have the dimension */
};

/* Tries one dimension. A model that cannot be imported at some size is not padded; an error is a
 * lack of memory. */
enum status build_pads_find(const struct build_space *space, uint32_t dimension,
                            build_graph_at make, void *user, struct build_pads *out,
                            struct error *err);

#endif
