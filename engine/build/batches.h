/* SPDX-License-Identifier: Apache-2.0 */
/* The batch sizes that a build makes profiles for. */
#ifndef INFERD_ENGINE_BUILD_BATCHES_H
#define INFERD_ENGINE_BUILD_BATCHES_H

#include "engine/build/build.h"

struct build_batching {
    const struct build_options *options;
    const struct build_space *space;
    bool batched;
    const char *why; /* if it is not */
};

/* The sizes in rising order, each once. */
enum status build_batches_choose(const struct build_batching *b, uint32_t list[PLAN_MAX_PROFILES],
                                 uint32_t *n, struct error *err);

#endif
