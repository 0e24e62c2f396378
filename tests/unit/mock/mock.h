/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that behaves as a device with memory of its own, without one, in two ways. As a device
 * that lags, for tests of what the runtime does to it:
 *
 *   - device memory is at addresses that nobody can read or write; the ops see other ones;
 *   - memory is full of 0xC5 when it is given out;
 *   - each stream is a thread that works off what was put onto it, a little later;
 *   - capture records, and graphs replay, the very addresses that were captured;
 *   - a marked graph waits for the half of the one launched before on another stream;
 *   - pinned allocations lie one right behind the other, the first in the first gap;
 *   - copies and launches with addresses of the wrong side, copies across the border of a pinned
 *     allocation, and marks outside of a capture are refused;
 *   - graphs that are freed while they run, or after their stream, fail the test.
 *
 * Ops are the CPU's reference kernels; tactics say "mock" where they would say "cpu". Nothing is
 * allocated by what a served batch calls.
 *
 * As a device that is simulated, for tests of the tuner: work is done inside the call, in memory
 * that anybody can read, and takes what a script says on a clock of the device's own. It has three
 * float types, 8 bits for tensors with a range, channels-last layouts, packed weights and compiled
 * tactics. What it computes is right (the reference does it), but a graph only takes its time.
 */
#ifndef INFERD_TESTS_UNIT_MOCK_MOCK_H
#define INFERD_TESTS_UNIT_MOCK_MOCK_H

#include "engine/backend.h"

extern const struct backend backend_mock;

/* So far, over the whole device. */
struct mock_counts {
    uint64_t allocations; /* of memory, arenas grown, events, ops, streams and graphs made */
    uint64_t launches;    /* of ops, from outside: captured ones too */
    uint64_t graphs;      /* launches of graphs */
    uint64_t turns;       /* those among them that wait for the half of another stream's */
    uint64_t copies[3];   /* single ones, by enum copy_direction */
    uint64_t copy_calls[3];
    uint64_t compiled;                 /* calls of compile for tactics without code */
    size_t device_bytes, pinned_bytes; /* held now */
    /* Of a simulated device. */
    uint64_t candidates, loaded, codes, prepared, drops;
    uint64_t direct;         /* launches of ops out of a graph */
    uint64_t captured;       /* graphs made */
    uint64_t uncompiled;     /* ops prepared without having been compiled or having code */
    uint64_t zeros;          /* launches with float inputs that were all zero */
    uint64_t same_constants; /* launches in a row that read the same constant bytes */
    bool threads;            /* more than one thread compiled */
};

/* What was captured, in a graph. */
struct mock_capture {
    uint32_t ops, events;
    uint32_t marks, marked_at; /* how often its half was marked, and how many ops were before */
};

/* A device with reference kernels only; fails the test if it cannot be opened. */
struct device *mock_open(void);

enum { MOCK_VARIANTS = 4, MOCK_LAUNCH_NS = 9000 /* of the host, for each launch out of a graph */ };

struct mock_script {
    /* Nanoseconds of a node with a tactic; NULL: mock_cost. */
    uint64_t (*cost)(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic);
    enum ir_op missing; /* it has no candidates for this op */
    /* Tactics whose name has this text; NULL: none. */
    const char *no_compile, *no_launch, *no_capture, *lost;
    bool refuse_code; /* what comes as tactic->code is no longer good */
    /* What other work takes of the machine while a launch (the n-th of all) would take `ns`; NULL:
     * nothing. `told`: the device knows of it, as of a thread that waits for a processor. */
    uint64_t (*disturb)(uint64_t n, uint64_t ns);
    bool told;
    bool bytes; /* it offers 8 bits too, of inputs, of outputs, and of both */
};

/* A simulated device; all of it must have come back when engine_device_close is called. */
struct device *mock_simulate(void);
struct mock_script *mock_script(struct device *device);
/* By bytes moved; heavy ops take 10 times as long in fp32; variant v of a tactic is slower by v/8.
 */
uint64_t mock_cost(const struct ir_graph *graph, const struct ir_node *node,
                   const struct tactic *tactic);
/* Which variant of its kind a tactic is. */
uint32_t mock_variant(const struct tactic *tactic);

/* Of a device of this backend, not of a fault device that wraps one. */
void mock_read(const struct device *device, struct mock_counts *out);
/* All captures that have ended so far; returns their number, which must not exceed `max`. */
uint32_t mock_read_captures(const struct device *device, struct mock_capture *out, uint32_t max);
/* How long each task of a stream takes at least. */
void mock_set_delay(struct device *device, uint64_t ns);

#endif
