/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares one node, run on a device by one tactic, with the reference.
 *
 * Inputs and constants are rounded to the tactic's type before the reference sees them, so what is
 * compared is the arithmetic alone. Output memory is poisoned, and the red zone behind it must stay
 * untouched.
 */
#ifndef INFERD_TESTS_DEVICE_TRIAL_H
#define INFERD_TESTS_DEVICE_TRIAL_H

#include "engine/backend.h"
#include "tests/device/cases.h"

struct trial {
    struct device *device;
    const struct backend *backend;
    struct backend_stream *stream;
    struct backend_event *begin, *end;
};

enum status trial_init(struct trial *trial, struct device *device, struct error *err);
void trial_deinit(struct trial *trial);

/* A case in one float type: the graph, its inputs' bytes and the reference's outputs. */
struct subject {
    struct ir_graph *graph;
    enum dtype dtype; /* the type that F32 is rounded to */
    void *inputs[IR_MAX_IO];
    void *want[IR_MAX_OUTPUTS];
    uint64_t seed;
};

/* Takes ownership of the graph, also on failure. Without `reference`, nothing is computed and
 * `want` is empty. */
enum status subject_init(struct subject *subject, struct ir_graph *graph, enum dtype dtype,
                         uint64_t seed, bool reference, struct error *err);
/* The same with ranges (ranged.h): graphs for trial_run need ranged_copy. The case's floats are
 * FP32. */
enum status subject_init_ranged(struct subject *subject, struct ir_graph *graph, uint64_t seed,
                                enum dtype bytes, struct error *err);
void subject_deinit(struct subject *subject);

struct outcome {
    double error; /* ||out - reference|| / ||reference||, of the worst output; infinite if a NaN is
                   * on one side alone. Of an output in 8 bits by a scale: ranged_error */
    double us;    /* of one launch, if it was asked for */
    double bytes; /* read and written at least */
};

/* The float type that the tactic works in, or else the type of its node. What it reads or writes in
 * a shorter type than the graph counts as that type. */
enum dtype trial_type(const struct ir_graph *graph, const struct tactic *tactic);

/* `graph` is a second copy of the subject's graph; it is changed as the tactic requires. If
 * `repeats` > 0, the launches are timed. `err` gets a text for anything wrong other than the
 * numbers, such as an overrun or padding that is not zero.
 */
enum status trial_run(struct trial *trial, const struct subject *subject, struct ir_graph *graph,
                      const struct tactic *tactic, uint32_t repeats, struct outcome *out,
                      struct error *err);

#endif
