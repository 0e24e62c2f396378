/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that loads and unloads models, so that the loops never wait for a disk, a build or a
 * worker. It makes tables (daemon/model.h) out of configurations, and hands them out.
 *
 * The first configuration may have models that cannot be loaded: they are listed with the reason,
 * and the others are served. After that a configuration is taken as a whole or not at all (R25 of
 * docs/operations.md): if anything that was served, or is new, cannot be loaded, everything stays
 * as it is.
 *
 * Between these, polls and orders exchange single models of the repository
 * (models_repository.c).
 */
#ifndef INFERD_DAEMON_MODELS_H
#define INFERD_DAEMON_MODELS_H

#include "config/config.h"
#include "daemon/brought.h"
#include "daemon/plan_cache.h"
#include "daemon/shared.h"

struct models;

struct models_ops {
    /* The configuration again, on the loader's thread (for a reload). */
    enum status (*configure)(void *user, struct config **out, struct error *err);
    /* Gives every loop a new table. When the call returns all of them use it, and nobody looks into
     * the old one any more. Both references stay the caller's. */
    void (*publish)(void *user, struct table *table, const struct config *config);
    /* The present pass has ended: `err` is NULL if all is well. The loader's thread. */
    void (*done)(void *user, bool first, uint32_t loaded, const struct error *err);
    /* After models_stop: the thread's last act. It publishes nothing any more. */
    void (*ended)(void *user);
    void *user;
};

/* Starts the thread. `table` is what the loops use now (empty); `config` is the first configuration
 * and becomes the loader's. */
enum status models_new(struct shared *shared, struct config *config, struct table *table,
                       const struct models_ops *ops, struct models **out, struct error *err);
/* Loads the first configuration. */
void models_start(struct models *models);
/* Asks for a reload; several at once become one. Any thread. */
void models_reload(struct models *models);
/* An order of a client to load a model of the repository or to unload it, by name and with all its
 * versions. It stays the caller's, who gets it back by `done`, once, on the loader's thread; `err`
 * is NULL if it was carried out. */
struct models_order {
    struct models_order *next;
    bool unload;
    bool dependents; /* unload the models that this one is made of, too */
    char name[MESSAGE_MAX_NAME + 1];
    const char *instead;           /* a load's configuration in place of config.pbtxt; NULL: none */
    const struct brought *brought; /* a load's files in place of the repository's; NULL: none */
    void (*done)(struct models_order *order, const struct error *err);
};

/* Any thread. An error: the order is not taken, and `done` not called. */
enum status models_order(struct models *models, struct models_order *order, struct error *err);
/* Hands over a model that nobody uses any more. Any thread. */
void models_retire(struct models *models, struct model *model);
/* Tells the thread to end: builds are cut short. Any thread. */
void models_stop(struct models *models);
/* Waits for the thread's end, lets its table go and unloads every model. The loops must be gone,
 * because their tables hold models. NULL is fine. */
void models_free(struct models *models);

/* Where engines are loaded from and to. */
struct models_source {
    struct device *device;
    struct plan_cache *cache;
    struct trust *trust;      /* NULL: files need no signature */
    const _Atomic bool *stop; /* ends a load early */
};

/* The engine of one version, from its plan or, by way of the cache, its ONNX file: what the thread
 * does for each, and what a check of the configuration tries. */
enum status models_engine_open(const struct models_source *source, const struct config *config,
                               const struct wanted *wanted, struct engine **out, struct error *err);

#endif
