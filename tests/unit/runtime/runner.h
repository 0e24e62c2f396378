/* SPDX-License-Identifier: Apache-2.0 */
/* A plan of a test's own, loaded and ready to run: on a CPU device with the reference kernels
 * alone, or on a fault device over one, whose memory only copies reach. */
#ifndef INFERD_TESTS_UNIT_RUNTIME_RUNNER_H
#define INFERD_TESTS_UNIT_RUNTIME_RUNNER_H

#include "engine/build/build.h"
#include "engine/engine.h"

struct runner {
    struct device *device;
    struct engine *engine;
    const struct engine_info *info;
    struct lane *lane;
    struct context *ctx;
    char *output; /* room for the outputs of the largest batch */
};

/* `make` builds the plan for a CPU device; script NULL: the plan runs on such a device. Fails the
 * test if anything fails. */
void runner_open(struct runner *r, const char *script, struct plan *(*make)(struct device *cpu));
void runner_close(struct runner *r);

/* Builds a plan of the model, which it closes. Fails the test if that fails. */
struct plan *runner_plan(const void *model, size_t size, const struct build_options *options);

#endif
