/* SPDX-License-Identifier: Apache-2.0 */
/*
 * World's plan for a mock device (device_mock.h), and a context that runs it there. Every failure
 * fails the test, unless the function returns a status.
 */
#ifndef INFERD_TESTS_UNIT_RUNTIME_RIG_H
#define INFERD_TESTS_UNIT_RUNTIME_RIG_H

#include "tests/unit/runtime/world.h"

enum {
    RIG_INSTANCE = WORLD_IN * sizeof(float),
    RIG_NODES = 4 /* nodes that run: conv, softmax, add, transpose */
};

/* A node runs on the mock, unless its bit is set in `host`: then it runs on the CPU. */
struct rig_plan {
    unsigned host;
    uint64_t times[RIG_NODES]; /* time of each node, as if tuned, in ns */
};

struct rig {
    struct world *world;
    struct device *mock, *device; /* `device` is the mock itself, or a fault device over it */
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    char *buffer;
    char path[64];
};

void rig_must(enum status status, const struct error *err);

/* Writes a plan with profiles 1, 4 and 8 to a new file, whose name goes to `path`. */
void rig_plan_write(struct world *world, struct device *mock, const struct rig_plan *spec,
                    char *path);
/* `device` is the mock or a fault device over it. rig_deinit closes it, also after a failure, with
 * all that was made until then. */
enum status rig_init(struct rig *r, struct world *world, struct device *device, struct device *mock,
                     const struct rig_plan *spec, const struct context_options *options,
                     struct error *err);
void rig_deinit(struct rig *r);
/* Makes a rig on a mock device of its own, on which every task takes a while. */
void rig_make_with(struct rig *r, struct world *world, const struct rig_plan *spec,
                   const struct context_options *options);
void rig_make(struct rig *r, struct world *world, unsigned host,
              const struct context_options *options);

/* Runs a batch of the world's instances from `first` on, and checks the outputs. */
enum status rig_run(struct rig *r, const struct engine_span *spans, uint32_t n, uint32_t first,
                    uint32_t batch, struct error *err);
/* One batch of each size. */
void rig_run_all(struct rig *r);

#endif
