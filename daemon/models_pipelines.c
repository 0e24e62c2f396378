/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines in a table of models. Whenever a table is made, each pipeline is bound to the versions
 * that this table has, those first that others are made of. One whose steps are the same versions
 * as before stays what it was, with its numbers.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/models_internal.h"
#include "daemon/pipeline.h"

enum status models_pipeline_add(struct table *table, const struct wanted *w, struct error *err)
{
    TRY(models_entry_add(table, w, NULL, "", err));
    if (!table_entry_pipeline(&table->entries[table->n - 1], w->settings, &w->source))
        return error_no_memory(err, "the table of models");
    return STATUS_OK;
}

/* --- one --- */

static const struct table_entry *former_of(const struct models *m, const struct table_entry *entry)
{
    for (uint32_t i = 0; i < m->table->n; i++)
        if (strcmp(m->table->entries[i].name, entry->name) == 0 &&
            strcmp(m->table->entries[i].version, entry->version) == 0)
            return &m->table->entries[i];
    return NULL;
}

static enum status entry_bind(const struct models *m, const struct config *config,
                              const struct table *table, struct table_entry *entry,
                              struct error *err)
{
    CLEANUP(pipeline_cleanup) struct pipeline *pipeline = NULL;
    const struct table_entry *former = former_of(m, entry);
    struct model *model;
    TRY(pipeline_bind(table, entry->pipeline, &pipeline, err));
    TRY(dispatch_pipeline_load(m->shared->dispatch, config, entry->name, entry->version,
                               STEAL(pipeline), &model, err));
    bool same = former && former->model && former->model->pipeline &&
                model_source_equal(&former->source, &entry->source) &&
                former->model->max_instances == model->max_instances &&
                pipeline_equal(former->model->pipeline, model->pipeline);
    if (same) {
        dispatch_model_unload(m->shared->dispatch, model); /* nobody has seen it */
        model = model_ref(former->model);
    } else {
        log_write(&m->shared->log, LOG_INFO, "pipeline '%s' version '%s': %u steps", entry->name,
                  entry->version, model->pipeline->n_steps);
    }
    *entry->reason = '\0';
    entry->model = model;
    return STATUS_OK;
}

/* --- all --- */

/* What a failure of this entry means to whoever makes the table. */
static bool matters(const struct models *m, const struct table_entry *entry, const char *only)
{
    const struct table_entry *former = former_of(m, entry);
    if (only)
        return strcmp(only, entry->name) == 0;
    return m->loaded_once && !(former && former->state == MODEL_UNAVAILABLE);
}

/* The log hears of it once. */
static void failure_tell(struct models *m, const struct table_entry *entry, bool matter,
                         const struct error *why)
{
    const struct table_entry *former = former_of(m, entry);
    if (former && former->state == entry->state && strcmp(former->reason, entry->reason) == 0)
        return;
    if (matter)
        counter_add(&m->shared->counters, COUNTER_LOADS_FAILED, 1);
    log_write(&m->shared->log, matter ? LOG_ERROR : LOG_WARNING, "pipeline '%s' version '%s': %s",
              entry->name, entry->version, why->text);
}

/* Lists the entry as unavailable. `failure` keeps the first one that matters. */
static void entry_fail(struct models *m, struct table_entry *entry, const char *only,
                       const struct error *why, struct error *failure)
{
    bool matter = matters(m, entry, only);
    entry->state = MODEL_UNAVAILABLE;
    snprintf(entry->reason, sizeof(entry->reason), "%.*s", (int)sizeof(entry->reason) - 1,
             why->text);
    failure_tell(m, entry, matter || !m->loaded_once, why);
    if (failure->status || !matter)
        return;
    error_copy(failure, why);
    error_prefix(failure, "model '%s' version '%s'", entry->name, entry->version);
}

struct binding {
    struct models *m;
    const struct config *config;
    const char *only;
    struct error failure; /* the first that matters */
};

static void decide(void *user, const struct table *table, struct table_entry *entry)
{
    struct binding *b = user;
    struct error why;
    if (entry->state != MODEL_LOADING) /* it is in a circle */
        error_set(&why, STATUS_FAILED_PRECONDITION, "%s", entry->reason);
    else if (!entry_bind(b->m, b->config, table, entry, &why))
        entry->state = MODEL_READY;
    if (entry->state != MODEL_READY)
        entry_fail(b->m, entry, b->only, &why, &b->failure);
}

enum status models_pipelines_bind(struct models *m, const struct config *config,
                                  struct table *table, const char *only, struct error *err)
{
    struct binding b = {.m = m, .config = config, .only = only};
    pipelines_decide(table, decide, &b);
    return b.failure.status ? error_copy(err, &b.failure) : STATUS_OK;
}
