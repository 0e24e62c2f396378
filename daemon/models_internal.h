/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loader's files share:
 *
 *   models.c             the thread, whole configurations, and one version
 *   models_repository.c  single models of the repository: polls and orders
 *   models_seen.c        what a poll compares
 *   models_pipelines.c   pipelines are bound to the models beside them
 */
#ifndef INFERD_DAEMON_MODELS_INTERNAL_H
#define INFERD_DAEMON_MODELS_INTERNAL_H

#include <pthread.h>

#include "daemon/models.h"
#include "daemon/models_seen.h"
#include "daemon/repository.h"
#include "daemon/shapes.h"

struct models {
    struct shared *shared;
    struct models_ops ops;
    struct trust *trust; /* NULL: files need no signature */
    struct plan_cache *cache;
    struct shapes *shapes;
    pthread_t thread;

    pthread_mutex_t lock; /* guards start, reload, retired and the orders */
    pthread_cond_t wake;
    bool start, reload;
    struct model *retired; /* by ->next */
    struct models_order *orders, **orders_end;
    uint32_t n_orders;
    bool ended; /* takes no more orders */

    _Atomic bool stop; /* relaxed: it guards no other data */

    /* The loader's thread. */
    struct config *config; /* of the present table */
    struct config *first;  /* what devices, threads and sockets were made from */
    struct table *table;   /* a reference */
    bool loaded_once;
    struct models_seen seen; /* of the repository, at the last pass or poll */
    uint64_t poll_ns;        /* when the next poll is due */
    bool poll_failed;        /* the last one, which the log has been told */
};

/* Loads a version, or keeps the one that is served if nothing has changed. */
enum status models_version_make(struct models *m, const struct config *config,
                                const struct wanted *w, struct model **out, struct error *err);
/* The entry of this version in the present table; NULL: there is none. */
const struct table_entry *models_served(const struct models *m, const struct wanted *w);
/* Adds a version, takes over `model` (NULL: it is not served, for this reason). */
enum status models_entry_add(struct table *table, const struct wanted *w, struct model *model,
                             const char *reason, struct error *err);
/* Adds a pipeline, which is not bound yet. */
enum status models_pipeline_add(struct table *table, const struct wanted *w, struct error *err);
/* Binds all pipelines of the table, which is complete, to its models, and sorts it. Those that do
 * not fit are listed as unavailable, with the reason. An error: with `only` NULL, one of them does
 * not fit, though it was ready or is new and the first pass is over; else the one of this name
 * does not. */
enum status models_pipelines_bind(struct models *m, const struct config *config,
                                  struct table *table, const char *only, struct error *err);

/* Makes the loops use the table, which is taken over. */
void models_publish(struct models *m, struct table *table, const struct config *config);

/* Whether a pass over everything, which is `list`, loads this model of the repository: not if
 * clients have to ask for it, and have not. */
bool models_chosen(const struct models *m, const struct config *config,
                   const struct wanted_list *list, const char *name);
bool models_poll_wanted(const struct models *m);
void models_poll(struct models *m);
void models_orders_run(struct models *m, struct models_order *list);
/* Fails what is left, when the loader ends. */
void models_orders_fail(struct models *m);

#endif
