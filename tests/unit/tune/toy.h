/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend for the tuner's tests: a device with a clock of its own, three float types,
 * 8 bits for tensors with a range, channels-last layouts, packed weights, captures and compiled
 * tactics. What it computes is right
 * (the reference does it), how long that takes is up to the test, and everything that is asked of
 * it is counted.
 */
#ifndef INFERD_TESTS_UNIT_TUNE_TOY_H
#define INFERD_TESTS_UNIT_TUNE_TOY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/backend.h"

enum { TOY_VARIANTS = 4, TOY_LAUNCH_NS = 9000 /* of the host, for each launch out of a graph */ };

struct toy_script {
    /* Nanoseconds of a node with a tactic; NULL: toy_cost. */
    uint64_t (*cost)(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic);
    /* What other work takes of the machine while a launch (the n-th of all) would take `ns`; NULL:
     * nothing. `told`: the device knows of it, as of a thread that waits for a processor. */
    uint64_t (*disturb)(uint64_t n, uint64_t ns);
    bool told;
    enum ir_op missing; /* it has no candidates for this op */
    /* Tactics whose name has this text; NULL: none. */
    const char *no_compile, *no_launch, *no_capture, *lost;
    bool refuse_code; /* what comes as tactic->code is no longer good */
    bool bytes;       /* it offers 8 bits too, of inputs, of outputs, and of both */
};

struct toy_counts {
    unsigned candidates, compiled, loaded, codes, prepared, launches, captured, replayed, drops;
    unsigned threads;    /* more than one thread compiled */
    unsigned uncompiled; /* ops prepared without having been compiled or having code */
    unsigned zeros;      /* launches with float inputs that were all zero */
    unsigned open_graphs, open_ops, open_memory;
    unsigned same_constants; /* launches in a row that read the same constant bytes */
};

struct device *toy_new(void);
void toy_free(struct device *device);
struct toy_script *toy_script(struct device *device);
struct toy_counts *toy_counts(struct device *device);

/* By bytes moved; heavy ops take 10 times as long in fp32; variant v of a tactic is slower by v/8.
 */
uint64_t toy_cost(const struct ir_graph *graph, const struct ir_node *node,
                  const struct tactic *tactic);
/* Which variant of its kind a tactic is. */
uint32_t toy_variant(const struct tactic *tactic);

#endif
