/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single models of the repository: what a poll finds, and what clients order. A model is exchanged
 * as a whole: if one of its versions cannot be loaded, and any was served before, all stay as they
 * were. The models beside it are not touched.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/identity.h"
#include "daemon/models_internal.h"
#include "daemon/pipeline.h"
#include "daemon/tls.h"

enum { ORDERS_MOST = 64 };

static void table_cleanup(struct table **at)
{
    table_unref(*at);
}

static bool is_of(const struct table_entry *entry, const char *name)
{
    return entry->of_repository && strcmp(entry->name, name) == 0;
}

/* --- which models --- */

static bool is_explicit(const struct config *config)
{
    return strcmp(config->repository_mode, "explicit") == 0;
}

static bool load_named(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->repository_load_count; i++)
        if (strcmp(config->repository_load[i], "*") == 0 ||
            strcmp(config->repository_load[i], name) == 0)
            return true;
    return false;
}

/* Whether a pipeline that is loaded at the start has it as a step. */
static bool load_implied(const struct config *config, const struct wanted_list *list,
                         const char *name, uint32_t depth)
{
    for (uint32_t i = 0; i < list->n && depth < PIPELINE_DEPTH_MOST; i++) {
        const struct wanted *w = &list->items[i];
        for (uint32_t s = 0; w->pipeline && s < w->settings->n_steps; s++)
            if (strcmp(w->settings->steps[s].model, name) == 0 &&
                (load_named(config, w->name) || load_implied(config, list, w->name, depth + 1)))
                return true;
    }
    return false;
}

bool models_chosen(const struct models *m, const struct config *config,
                   const struct wanted_list *list, const char *name)
{
    if (!is_explicit(config))
        return true;
    if (!m->loaded_once)
        return load_named(config, name) || load_implied(config, list, name, 1);
    for (uint32_t i = 0; i < m->table->n; i++)
        if (is_of(&m->table->entries[i], name) && !m->table->entries[i].unloaded)
            return true;
    return false;
}

/* --- one model --- */

/* The entries of all other models, with what serves them. */
static enum status others_copy(const struct models *m, const char *name, struct table *table,
                               struct error *err)
{
    for (uint32_t i = 0; i < m->table->n; i++) {
        const struct table_entry *from = &m->table->entries[i];
        if (is_of(from, name))
            continue;
        if (!table_add(table, from->name, from->version, from->state, from->reason,
                       from->model ? model_ref(from->model) : NULL))
            return error_no_memory(err, "the table of models");
        table->entries[table->n - 1].of_repository = from->of_repository;
        table->entries[table->n - 1].unloaded = from->unloaded;
        if (!table_entry_pipeline(&table->entries[table->n - 1], from->pipeline, &from->source))
            return error_no_memory(err, "the table of models");
    }
    return STATUS_OK;
}

static enum status clash_check(const struct table *table, const struct wanted *w, struct error *err)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->entries[i].name, w->name) == 0 &&
            strcmp(table->entries[i].version, w->version) == 0)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "model '%s' version '%s' is named in the configuration too", w->name,
                             w->version);
    return STATUS_OK;
}

static bool was_ready(const struct models *m, const char *name)
{
    for (uint32_t i = 0; i < m->table->n; i++)
        if (is_of(&m->table->entries[i], name) && m->table->entries[i].state == MODEL_READY)
            return true;
    return false;
}

/* Adds a version. `*failure` keeps why one could not be loaded, if nothing served is in danger. */
static enum status version_put(struct models *m, const struct wanted *w, struct table *table,
                               bool serving, struct error *failure, struct error *err)
{
    struct model *model = NULL;
    struct error why;
    char reason[96] = "";
    if (atomic_load_explicit(&m->stop, memory_order_relaxed))
        return error_plain(err, CAUSE_STOPPED);
    TRY(clash_check(table, w, err));
    if (w->pipeline)
        return models_pipeline_add(table, w, err);
    if (models_version_make(m, m->config, w, &model, &why)) {
        if (serving)
            return error_copy(err, &why);
        snprintf(reason, sizeof(reason), "%s; the server's log says more", status_name(why.status));
        error_copy(failure, &why);
    }
    return models_entry_add(table, w, model, reason, err);
}

static enum status table_begin(struct models *m, uint32_t more, struct table **out,
                               struct error *err)
{
    *out = table_new(m->config, m->table->n + more);
    if (!*out)
        return error_no_memory(err, "the table of models");
    (*out)->identities = identities_ref(m->table->identities);
    (*out)->tls = tls_ref(m->table->tls);
    return STATUS_OK;
}

/* Loads what the listing has of a model, and takes the rest of it out of service. */
static enum status model_exchange(struct models *m, const char *name,
                                  const struct wanted_list *list, struct error *err)
{
    struct error failure = {0};
    CLEANUP(table_cleanup) struct table *table = NULL;
    bool serving = was_ready(m, name);
    TRY(table_begin(m, list->n, &table, err));
    TRY(others_copy(m, name, table, err));
    for (uint32_t i = 0; i < list->n; i++)
        TRY(version_put(m, &list->items[i], table, serving, &failure, err));
    struct error why;
    if (models_pipelines_bind(m, m->config, table, name, &why)) {
        if (serving || why.cause == CAUSE_OUT_OF_MEMORY)
            return error_copy(err, &why);
        error_copy(&failure, &why);
    }
    models_publish(m, STEAL(table), m->config);
    return failure.status ? error_copy(err, &failure) : STATUS_OK;
}

/* Where a model is loaded from, if that is not the repository. */
struct elsewhere {
    const char *root, *instead; /* see repository_list_model */
};

static enum status model_load(struct models *m, const char *name, struct elsewhere from,
                              bool must_be_there, struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    TRY(repository_list_model(m->config, from.root, name, from.instead, &m->shared->log, &list,
                              err));
    if (!list.n && must_be_there && from.root)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the files that came with model '%s' are no version of it: expected "
                         "VERSION/model.onnx or VERSION/model.plan",
                         name);
    if (!list.n && must_be_there)
        return error_set(err, STATUS_NOT_FOUND, "the repository has no model '%s'", name);
    return model_exchange(m, name, &list, err);
}

/* What is to be loaded by an order: a model and, of a pipeline, the models that are not ready. */
struct needed {
    uint32_t n;
    char names[PIPELINE_STEPS_MOST][MESSAGE_MAX_NAME + 1];
};

static void needed_add(struct needed *needed, const char *name)
{
    for (uint32_t i = 0; i < needed->n; i++)
        if (strcmp(needed->names[i], name) == 0)
            return;
    if (needed->n < PIPELINE_STEPS_MOST)
        snprintf(needed->names[needed->n++], sizeof(needed->names[0]), "%s", name);
}

static enum status needed_look(const struct models *m, const char *name, struct elsewhere from,
                               struct needed *needed, struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    TRY(repository_list_model(m->config, from.root, name, from.instead, NULL, &list, err));
    for (uint32_t i = 0; i < list.n; i++)
        for (uint32_t s = 0; list.items[i].pipeline && s < list.items[i].settings->n_steps; s++) {
            const struct model_file_step *step = &list.items[i].settings->steps[s];
            const struct table_entry *entry = pipeline_step_find(m->table, step);
            if (!entry || entry->state != MODEL_READY)
                needed_add(needed, step->model);
        }
    return STATUS_OK;
}

/* With a pipeline come its models, those first that others are made of. What of these cannot be
 * loaded the pipeline itself tells. */
static enum status model_load_ordered(struct models *m, const struct models_order *order,
                                      struct error *err)
{
    const struct elsewhere nowhere = {NULL, NULL};
    struct needed needed = {.n = 0};
    CLEANUP(brought_folder_cleanup) struct brought_folder folder = {NULL, -1};
    if (order->brought)
        TRY(brought_write(order->brought, m->config->cache, order->name, &folder, err));
    const struct elsewhere from = {folder.path, order->instead};
    needed_add(&needed, order->name);
    for (uint32_t i = 0; i < needed.n; i++) /* the list grows on the way */
        TRY(needed_look(m, needed.names[i], i ? nowhere : from, &needed, err));
    for (uint32_t i = needed.n; i-- > 1;)
        model_load(m, needed.names[i], nowhere, true, NULL);
    return model_load(m, order->name, from, true, err);
}

/* Keeps the model's versions in the table, for the index, but not what serves them. */
static enum status model_unload(struct models *m, const char *name, struct error *err)
{
    CLEANUP(table_cleanup) struct table *table = NULL;
    uint32_t found = 0;
    TRY(table_begin(m, 0, &table, err));
    TRY(others_copy(m, name, table, err));
    for (uint32_t i = 0; i < m->table->n; i++) {
        const struct table_entry *from = &m->table->entries[i];
        if (!is_of(from, name))
            continue;
        if (!table_add(table, from->name, from->version, MODEL_UNAVAILABLE, "unloaded", NULL))
            return error_no_memory(err, "the table of models");
        table->entries[table->n - 1].of_repository = true;
        table->entries[table->n - 1].unloaded = true;
        found++;
    }
    if (!found)
        return error_set(err, STATUS_NOT_FOUND, "no model '%s' of the repository is loaded", name);
    models_pipelines_bind(m, m->config, table, name, NULL); /* those made of it are not ready */
    models_publish(m, STEAL(table), m->config);
    return STATUS_OK;
}

/* Unloads the models of a pipeline, too, if that is wished; which these are is in the table as it
 * was before. */
static enum status model_unload_ordered(struct models *m, const struct models_order *order,
                                        struct error *err)
{
    CLEANUP(table_cleanup) struct table *before = table_ref(m->table);
    TRY(model_unload(m, order->name, err));
    for (uint32_t i = 0; order->dependents && i < before->n; i++) {
        const struct table_entry *entry = &before->entries[i];
        for (uint32_t s = 0;
             is_of(entry, order->name) && entry->pipeline && s < entry->pipeline->n_steps; s++)
            model_unload(m, entry->pipeline->steps[s].model, NULL); /* it may be gone already */
    }
    return STATUS_OK;
}

/* --- polls --- */

bool models_poll_wanted(const struct models *m)
{
    return m->loaded_once && m->config->repository &&
           strcmp(m->config->repository_mode, "poll") == 0;
}

static void changed_exchange(struct models *m, const struct models_seen *seen)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        struct error err;
        if (!seen->rows[i].changed || atomic_load_explicit(&m->stop, memory_order_relaxed))
            continue;
        log_write(&m->shared->log, LOG_INFO, "the repository's model '%s' has changed",
                  seen->rows[i].name);
        const struct elsewhere nowhere = {NULL, NULL};
        enum status status = model_load(m, seen->rows[i].name, nowhere, false, &err);
        counter_add(&m->shared->counters, status ? COUNTER_RELOADS_FAILED : COUNTER_RELOADS, 1);
        if (status)
            log_write(&m->shared->log, LOG_ERROR, "model '%s': %s", seen->rows[i].name, err.text);
    }
}

static enum status poll_look(struct models *m, struct models_seen *out, struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    TRY(repository_list_model(m->config, NULL, NULL, NULL, NULL, &list, err));
    if (!models_seen_look(&m->seen, &list, clock_wall_ms() * NS_PER_MS, false, out))
        return error_no_memory(err, "what the repository has");
    return STATUS_OK;
}

void models_poll(struct models *m)
{
    struct models_seen seen;
    struct error err;
    enum status status = poll_look(m, &seen, &err);
    if (status) {
        if (!m->poll_failed)
            log_write(&m->shared->log, LOG_ERROR, "poll: %s", err.text);
        m->poll_failed = true;
        return;
    }
    m->poll_failed = false;
    changed_exchange(m, &seen);
    models_seen_deinit(&m->seen);
    m->seen = seen;
}

/* --- orders --- */

static enum status order_run(struct models *m, const struct models_order *order, struct error *err)
{
    if (!m->config->repository || !is_explicit(m->config))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "models are loaded and unloaded by request only with a `repository` and "
                         "`repository_mode: explicit`");
    log_write(&m->shared->log, LOG_INFO, "%s of model '%s' is ordered",
              order->unload ? "unload" : "load", order->name);
    return order->unload ? model_unload_ordered(m, order, err) : model_load_ordered(m, order, err);
}

void models_orders_run(struct models *m, struct models_order *list)
{
    while (list) {
        struct models_order *order = list;
        struct error err;
        list = order->next;
        enum status status = atomic_load_explicit(&m->stop, memory_order_relaxed)
                                 ? error_plain(&err, CAUSE_STOPPED)
                                 : order_run(m, order, &err);
        order->done(order, status ? &err : NULL);
    }
}

enum status models_order(struct models *m, struct models_order *order, struct error *err)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&m->lock);
    if (m->ended) {
        status = error_plain(err, CAUSE_STOPPED);
    } else if (m->n_orders >= ORDERS_MOST) {
        status = error_set(err, STATUS_RESOURCE_EXHAUSTED,
                           "%d orders to load and unload models are waiting", ORDERS_MOST);
    } else {
        order->next = NULL;
        *m->orders_end = order;
        m->orders_end = &order->next;
        m->n_orders++;
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

void models_orders_fail(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    struct models_order *left = STEAL(m->orders);
    m->ended = true;
    pthread_mutex_unlock(&m->lock);
    models_orders_run(m, left); /* the loader stops, so each of them fails */
}
