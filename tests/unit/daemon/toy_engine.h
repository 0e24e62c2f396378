/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for tests of the dispatcher: one input and one output of numbers of eight bytes, which
 * come out as they went in, plus one. It counts what must be in balance. Behind a gate that a test
 * holds, batches end when the test says so.
 */
#ifndef INFERD_TESTS_UNIT_DAEMON_TOY_ENGINE_H
#define INFERD_TESTS_UNIT_DAEMON_TOY_ENGINE_H

#include <stdatomic.h>

#include "engine/engine.h"

struct toy {
    _Atomic int buffers, contexts, lanes, engines; /* alive */
    _Atomic int shelves, shelves_allowed;          /* alive; as below */
    _Atomic int batches;
    _Atomic int fetched;          /* inputs that were taken from shelves */
    _Atomic int alone;            /* batches whose output went to a shelf alone */
    _Atomic uint64_t frame_bytes; /* bytes in which loops keep frames, now */
    /* Set by tests; read by workers. */
    _Atomic uint64_t delay_ns;
    _Atomic int fail_every;       /* 0: never */
    _Atomic uint64_t poison;      /* inputs x with x % poison == 1 are invalid; 0: none */
    _Atomic bool model_scope;     /* failures are the model's */
    _Atomic int lose_at;          /* this batch loses the device; 0: none */
    _Atomic int contexts_allowed; /* negative: any number */
    _Atomic int buffers_allowed;
    _Atomic bool apart; /* inputs are copied: their bytes are free before the batch ends */
};

extern struct toy toy;

void toy_reset(void);
/* max_batch 16 and `out_bytes` of output a batch, at least 8 x 16; one number in and out. */
struct engine *toy_engine_new(size_t out_bytes);
/* Takes `in` numbers an instance and gives `out` numbers: the k-th is input number k % in, plus
 * one. */
struct engine *toy_engine_shaped(uint32_t in, uint32_t out);
struct device *toy_device(void);
bool toy_is_poison(uint64_t x);

/* The gate; a test's thread holds it. A worker stops at it before a batch ends, and on a device
 * apart also before its inputs have been copied. */
void toy_gate_close(void);
void toy_gate_open(void);
/* Lets the worker that stands there pass; false: none does. */
bool toy_gate_pass(void);
/* Whether a worker stands there, and will not move before it is let pass. */
bool toy_gate_holds(void);

#endif
