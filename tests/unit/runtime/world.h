/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime's tests start from: the sample graph as a plan with profiles 1, 4 and 8 for a
 * CPU device with the reference kernels alone, in a file, and the answers of the oracle.
 */
#ifndef INFERD_TESTS_UNIT_RUNTIME_WORLD_H
#define INFERD_TESTS_UNIT_RUNTIME_WORLD_H

#include "engine/backend.h"
#include "engine/engine.h"

enum { WORLD_IN = 4 * 6 * 6, WORLD_MAX_BATCH = 8, WORLD_OUTPUTS = 4 };

struct world {
    char path[64];
    struct device *cpu;
    struct engine *engine;     /* on cpu */
    float *in;                 /* WORLD_MAX_BATCH instances, aligned to 64 */
    float *out[WORLD_OUTPUTS]; /* what must come out for them */
};

/* Both assert that all goes well. */
void world_init(struct world *world);
void world_deinit(struct world *world);
/* For a group of tests: the state is a world. */
int world_setup(void **state);
int world_teardown(void **state);

/* A device "fault" with this script, over the same kind of device. */
struct device *world_fault(const char *script);

/* Instances first..first+n-1 of the output in `buffer` are bit for bit what they must be. */
void world_check(const struct world *world, const struct engine_profile *profile,
                 const char *buffer, uint32_t first, uint32_t n);

#endif
