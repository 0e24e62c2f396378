/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the runtime's tests start from: the sample graph as a plan with profiles 1, 4 and
 * 8 for a CPU device with the reference kernels alone, in a file, and the expected answers.
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
    float *out[WORLD_OUTPUTS]; /* the expected outputs for them */
};

/* Both fail the test if anything fails. */
void world_init(struct world *world);
void world_deinit(struct world *world);
/* Setup and teardown of a group of tests, whose state is a world. */
int world_setup(void **state);
int world_teardown(void **state);

/* A fault device with this script over a device of the same kind. */
struct device *world_fault(const char *script);

/* Checks that instances first..first+n-1 of the output in `buffer` are right, bit for bit. */
void world_check(const struct world *world, const struct engine_profile *profile,
                 const char *buffer, uint32_t first, uint32_t n);

#endif
