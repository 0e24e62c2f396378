/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of a bench, for the two files that implement it: bench.c its buffers, measure.c its
 * clock. */
#ifndef INFERD_ENGINE_TUNE_BENCH_H
#define INFERD_ENGINE_TUNE_BENCH_H

#include "engine/tune/internal.h"

enum {
    BENCH_SLOTS = IR_MAX_INPUTS + IR_MAX_OUTPUTS + 1,
    BENCH_WORKSPACE = BENCH_SLOTS - 1,
};

struct bench_slot {
    void *memory;
    uint64_t size;
    enum dtype noise; /* the slot holds random floats of this type; NONE: other bytes */
};

struct tune_bench {
    struct device *device;
    const struct backend *backend;
    struct backend_stream *stream;
    struct backend_event *begin, *end;
    struct bench_slot slots[BENCH_SLOTS], pool;
    uint64_t pool_bytes, pool_at, seed;
    uint64_t
        constant[IR_MAX_INPUTS]; /* bytes of an input that comes from the pool; 0: it does not */
    uint32_t n_inputs;
    void *inputs[IR_MAX_INPUTS], *outputs[IR_MAX_OUTPUTS];
    uint8_t *blocks; /* what the next three point into; NULL: nothing has been timed yet */
    uint8_t *noise[DTYPE_COUNT_]; /* BENCH_BLOCK bytes of floats in [-1, 1), or any I8 */
    uint8_t *weights;             /* BENCH_BLOCK bytes that are small floats in any float type */
    uint8_t *zeros;
};

/* Makes and fills the buffers of the sample's node, and sets `inputs` and `outputs` to them. */
enum status bench_set_up(struct tune_bench *bench, const struct ir_graph *sample,
                         uint64_t workspace, struct error *err);
/* Moves the constants to the next place in the pool, for the next launch. */
void bench_turn_pool(struct tune_bench *bench);
/* Waits for all that is on the stream. */
enum status bench_settle(struct tune_bench *bench, struct error *err);

#endif
