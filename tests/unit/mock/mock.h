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

/* Totals over the whole device. */
struct mock_counts {
    /* of memory; also growths of arenas, and the making of events, ops, streams and graphs */
    uint64_t allocations;
    uint64_t launches;  /* launches of ops from outside, captured ones too */
    uint64_t graphs;    /* launches of graphs */
    uint64_t turns;     /* those that wait for the half of a graph of another stream */
    uint64_t copies[3]; /* single copies, by enum copy_direction */
    uint64_t copy_calls[3];
    uint64_t compiled;                 /* calls of compile for tactics without code */
    size_t device_bytes, pinned_bytes; /* bytes held now */
    /* Only on a simulated device: */
    uint64_t candidates, loaded, codes, prepared, drops;
    uint64_t direct;         /* launches of ops outside of graphs */
    uint64_t captured;       /* graphs made */
    uint64_t uncompiled;     /* ops prepared though neither compiled nor given code */
    uint64_t zeros;          /* launches with float inputs that were all zero */
    uint64_t same_constants; /* launches that read the same constant bytes as the one before */
    bool threads;            /* more than one thread compiled */
};

/* What a captured graph has. */
struct mock_capture {
    uint32_t ops, events;
    /* how often a half was marked, and the number of ops before the mark */
    uint32_t marks, marked_at;
};

/* A device with reference kernels only; fails the test if it cannot be opened. */
struct device *mock_open(void);

/* The host takes MOCK_LAUNCH_NS for each launch outside of a graph. */
enum { MOCK_VARIANTS = 4, MOCK_LAUNCH_NS = 9000 };

struct mock_script {
    /* The time of a node with a tactic, in nanoseconds; NULL: mock_cost. */
    uint64_t (*cost)(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic);
    enum ir_op missing; /* the device has no candidates for this op */
    /* Each holds for tactics whose name contains the text; NULL: for none. */
    const char *no_compile, *no_launch, *no_capture, *lost;
    bool refuse_code; /* code that comes as tactic->code no longer works */
    /* The time that other work takes from the machine during launch `n` (of all), which would take
     * `ns`; NULL: none. `told`: the device knows of that time, as of a thread that waits for a
     * processor. */
    uint64_t (*disturb)(uint64_t n, uint64_t ns);
    bool told;
    bool bytes; /* it offers 8 bits too: for inputs, for outputs, and for both */
    /* All float outputs of nodes with this name are multiplied by `factor`, if the tactic's name
     * contains `wrong_tactic`. */
    const char *wrong_node, *wrong_tactic;
    float factor;
    /* Heavy tactics of one layout and type are a kin, of which variants 0, 1 and 2 begin a wave;
     * those whose name contains the text are of the last wave. */
    bool waves;
    const char *last_wave;
    const char *quick; /* of no kin, if the name contains this; NULL: none is */
    /* Called by each thread that compiles, before it does; NULL: nothing. */
    void (*compiling)(struct device *device, const struct tactic *tactic);
    bool no_wide;          /* nodes that have candidates in 16 bits have no others, */
    enum ir_op no_wide_op; /* or nodes of this op have none; NONE: no op */
    bool wide_apart;       /* such have others only where 16 bits are not allowed */
};

/* A simulated device. All that it gave out must be back when engine_device_close is called. */
struct device *mock_simulate(void);
struct mock_script *mock_script(struct device *device);
/* Adds features (enum backend_feature) to those of a simulated device. */
void mock_add_features(struct device *device, uint32_t features);
/* The cost follows the bytes moved; heavy ops take 10 times as long in fp32; variant v of a tactic
 * is slower by v/8. */
uint64_t mock_cost(const struct ir_graph *graph, const struct ir_node *node,
                   const struct tactic *tactic);
/* The variant's number among the tactics of its kind. */
uint32_t mock_variant(const struct tactic *tactic);

/* The device must be of this backend, not a fault device that wraps one. */
void mock_read(const struct device *device, struct mock_counts *out);
/* All captures that have ended so far. Returns their number, which must not exceed `max`. */
uint32_t mock_read_captures(const struct device *device, struct mock_capture *out, uint32_t max);
/* Sets how long each task of a stream takes at least. */
void mock_set_delay(struct device *device, uint64_t ns);

#endif
