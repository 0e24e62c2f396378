/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a graph layer by layer in FP32 and shows what each tensor holds: for calibration, and to
 * compare layers with what they should compute. Nothing is timed; the device runs each layer by the
 * tactic that is best by guess.
 *
 *   struct observer *observer;
 *   observer_new(graph, device, host, log, &observer, err);     // the graph stays as it is
 *   observer_run(observer, inputs, seen, user, err);            // as often as one likes
 *   observer_free(observer);
 *
 * An observer belongs to one thread.
 */
#ifndef INFERD_ENGINE_BUILD_OBSERVE_H
#define INFERD_ENGINE_BUILD_OBSERVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

struct observer;

/* `graph` has been through the passes and not through the tuner; it must outlive the observer.
 * `host` and `log` may be NULL. */
enum status observer_new(const struct ir_graph *graph, struct device *device, struct device *host,
                         const struct log_sink *log, struct observer **out, struct error *err);
void observer_free(struct observer *observer); /* NULL is fine */
void observer_cleanup(struct observer **at);

/* What a float tensor holds: `n` numbers, row by row, in FP32 whatever the tensor's own type is.
 * They are good until the call returns. */
struct observed {
    uint32_t tensor; /* of the graph that observer_new got */
    const float *values;
    size_t n;
};

/* A failure ends the run, which returns it. */
typedef enum status (*observer_seen)(void *user, const struct observed *value, struct error *err);

/*
 * Runs the graph once. inputs[i] has the bytes of graph input i, row by row, in the type that the
 * input has. Float inputs are shown first, then what the layers make, in the order in which they
 * run. A tensor that is a mere renaming of another one's bytes (a reshape, say) is shown right
 * after that one, with the same numbers. Each tensor is shown once a run.
 */
enum status observer_run(struct observer *observer, const void *const *inputs, observer_seen seen,
                         void *user, struct error *err);

#endif
