/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines for sizes that no point of a served plan has: a thread that builds them, one at a time,
 * and the cache that keeps them (shape_cache.h).
 *
 * Such an engine is loaded as a model of its own, which knows its base and is in no table: it has
 * contexts on all workers, and a queue. Requests of these sizes go to it instead; numbers are
 * counted for the base. Each request holds a reference to both, so an engine that makes room for
 * another one, or whose base is unloaded, ends after its last request.
 *
 * Plans are built by the child that builds all plans (plan_cache.h), from the very file that the
 * base was built from, and are kept in the folder "shapes" below the one of other plans: so engines
 * are there again after a restart as soon as they are asked for, and damaged files are built anew.
 */
#ifndef INFERD_DAEMON_SHAPES_H
#define INFERD_DAEMON_SHAPES_H

#include "daemon/plan_cache.h"
#include "daemon/shape_cache.h"
#include "daemon/shared.h"

struct shapes;
struct wanted;

/* What happens to a request of new sizes while their engine is built. */
enum shapes_policy {
    SHAPES_NOTHING,  /* nothing is built, and the request is refused */
    SHAPES_WAIT,     /* it waits */
    SHAPES_REFUSE,   /* it is refused, and may come again */
    SHAPES_FALLBACK, /* it runs on the CPU; if that is the device, it waits */
};

/* Starts the thread. `plans` is as for other plans. */
enum status shapes_new(struct shared *shared, const struct plan_cache_config *plans,
                       const struct config *config, struct shapes **out, struct error *err);
/* Builds nothing more; what is being built ends early, and who waits is refused. Returns when the
 * thread has ended, after which no loop is woken. NULL is fine. */
void shapes_stop(struct shapes *shapes);
/* All models must be gone: retired ones are unloaded here. NULL is fine. */
void shapes_free(struct shapes *shapes);

/* --- the loader's thread --- */

/* Applies the limits of a configuration. */
void shapes_configure(struct shapes *shapes, const struct config *config);
/* Lets a loaded model have further engines; of no effect if it has no free dimensions, or is no
 * .onnx. To be called again when its settings change. */
enum status shapes_attach(struct shapes *shapes, struct model *model, const struct wanted *wanted,
                          const struct config *config, struct error *err);
/* Lets go of a model's engines; before it is unloaded. */
void shapes_detach(struct model *model);

/* --- any thread --- */

/* Takes such a model, which nobody uses any more. */
void shapes_retire(struct shapes *shapes, struct model *model);

/* Asks for an engine of a model for these values of its free dimensions, on behalf of `asker`, a
 * number for whoever pays for it. *out is a reference, or NULL: the engine is being built, and the
 * request may wait. `again`: it has waited, and is not counted once more.
 * Causes: FAILED_PRECONDITION (nothing is built), SHAPE_BUILDING, SHAPES_FULL, SHAPE_FAILED,
 * DRAINING. */
struct shapes_question {
    struct model *model;
    const int64_t *values;
    uint64_t asker;
    bool again;
    uint32_t *begun;           /* of `again`: counts up if it is put into the queue anew */
    struct counters *counters; /* the thread's */
};
enum status shapes_ask(const struct shapes_question *question, struct model **out,
                       struct error *err);

/* Books a request that waits, with its bytes. SHAPES_FULL: there are too many. And its end. */
enum status shapes_wait_in(const struct model *model, const struct config_limits *limits,
                           uint64_t bytes, struct error *err);
void shapes_wait_out(const struct model *model, uint64_t bytes);

/* How many engines there are, of all models, and what they take; requests that wait. */
struct shapes_figures {
    uint64_t engines, bytes, waiting;
};
struct shapes_figures shapes_look(const struct shapes *shapes); /* NULL: zeros */

#endif
