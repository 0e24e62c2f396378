/* SPDX-License-Identifier: Apache-2.0 */
/*
 * World's plan for a mock device (device_mock.h), and a context that runs it there. All of it fails
 * the test where it does not say otherwise.
 */
#ifndef INFERD_TESTS_UNIT_RUNTIME_RIG_H
#define INFERD_TESTS_UNIT_RUNTIME_RIG_H

#include "tests/unit/runtime/world.h"

enum {
    RIG_INSTANCE = WORLD_IN * sizeof(float),
    RIG_NODES = 4 /* that run: conv, softmax, add, transpose */
};

/* Nodes that run are the mock's, but for those whose bit is set in `host`: they are the CPU's. */
struct rig_plan {
    unsigned host;
    uint64_t times[RIG_NODES]; /* of each, as if tuned, ns */
};

struct rig {
    struct world *world;
    struct device *mock, *device; /* the same, or a fault device over it */
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    char *buffer;
    char path[64];
};

void rig_must(enum status status, const struct error *err);

/* Profiles 1, 4 and 8, in a new file whose name goes to `path`. */
void rig_plan_write(struct world *world, struct device *mock, const struct rig_plan *spec,
                    char *path);
/* `device` is the mock, or a fault device over it, and is closed by rig_deinit; so is what a
 * failure left half made. */
enum status rig_init(struct rig *r, struct world *world, struct device *device, struct device *mock,
                     const struct rig_plan *spec, const struct context_options *options,
                     struct error *err);
void rig_deinit(struct rig *r);
/* On a mock device of its own, which takes a while for everything. */
void rig_make_with(struct rig *r, struct world *world, const struct rig_plan *spec,
                   const struct context_options *options);
void rig_make(struct rig *r, struct world *world, unsigned host,
              const struct context_options *options);

/* Runs a batch whose instances are those of the world from `first` on, and checks what comes out.
 */
enum status rig_run(struct rig *r, const struct engine_span *spans, uint32_t n, uint32_t first,
                    uint32_t batch, struct error *err);
/* One batch of each size. */
void rig_run_all(struct rig *r);

#endif
