/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that behaves as a device with memory of its own, without one: what the runtime does to
 * such a device is tested with it.
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
 */
#ifndef INFERD_TESTS_UNIT_RUNTIME_DEVICE_MOCK_H
#define INFERD_TESTS_UNIT_RUNTIME_DEVICE_MOCK_H

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
    uint64_t compiled;                 /* calls of compile */
    size_t device_bytes, pinned_bytes; /* held now */
};

/* What was captured, in a graph. */
struct mock_capture {
    uint32_t ops, events;
    uint32_t marks, marked_at; /* how often its half was marked, and how many ops were before */
};

/* A device with reference kernels only; fails the test if it cannot be opened. */
struct device *mock_open(void);
/* Of a device of this backend, not of a fault device that wraps one. */
void mock_read(const struct device *device, struct mock_counts *out);
/* All captures that have ended so far; returns their number, which must not exceed `max`. */
uint32_t mock_read_captures(const struct device *device, struct mock_capture *out, uint32_t max);
/* How long each task of a stream takes at least. */
void mock_set_delay(struct device *device, uint64_t ns);

#endif
