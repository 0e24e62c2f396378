/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See check_pipelines.h. The table has stand-ins for models: what a pipeline is bound to, without
 * queue and lanes.
 */
#include "daemon/check_pipelines.h"

#include <stdlib.h>

#include "daemon/pipeline.h"

struct check_pipelines {
    struct config_limits limits;
    struct table *table;
    struct model *models; /* by ->next; the first reference to each of them */
    void (*found)(void *user, const struct table_entry *entry, const struct error *err);
    void *user;
};

enum status check_pipelines_new(const struct config *config, const struct wanted_list *list,
                                struct check_pipelines **out, struct error *err)
{
    bool any = false;
    for (uint32_t i = 0; i < list->n; i++)
        any |= list->items[i].pipeline;
    *out = NULL;
    if (!any)
        return STATUS_OK;
    struct check_pipelines *check = calloc(1, sizeof(*check));
    struct table *table = table_new(config, list->n);
    if (!check || !table) {
        free(check);
        table_unref(table);
        return error_no_memory(err, "the check of pipelines");
    }
    check->limits = config->limits;
    check->table = table;
    *out = check;
    return STATUS_OK;
}

/* Each stand-in has one reference more than others know of, so none is ever retired. */
void check_pipelines_free(struct check_pipelines *check)
{
    if (!check)
        return;
    table_unref(check->table);
    while (check->models) { /* the latest first, and so pipelines before what they are made of */
        struct model *model = check->models;
        check->models = model->next;
        pipeline_free(model->pipeline);
        if (model->engine)
            engine_unref(model->engine);
        free(model);
    }
    free(check);
}

static struct model *stand_in(struct check_pipelines *check)
{
    struct model *model = calloc(1, sizeof(*model));
    if (!model)
        return NULL;
    atomic_init(&model->refs, 1);
    model->next = check->models;
    check->models = model;
    return model;
}

enum status check_pipelines_model(struct check_pipelines *check, const struct wanted *wanted,
                                  struct engine *engine, uint32_t max_instances, struct error *err)
{
    struct model *model = stand_in(check);
    if (!model)
        return error_no_memory(err, "the check of pipelines");
    model->engine = engine_ref(engine);
    model->info = engine_describe(engine);
    model->max_batch = model->info->max_batch;
    model->max_instances = max_instances;
    if (table_add(check->table, wanted->name, wanted->version, MODEL_READY, "", model_ref(model)))
        return STATUS_OK;
    return error_no_memory(err, "the check of pipelines");
}

enum status check_pipelines_add(struct check_pipelines *check, const struct wanted *wanted,
                                struct error *err)
{
    struct table *table = check->table;
    if (table_add(table, wanted->name, wanted->version, MODEL_LOADING, "", NULL) &&
        table_entry_pipeline(&table->entries[table->n - 1], wanted->settings, &wanted->source))
        return STATUS_OK;
    return error_no_memory(err, "the check of pipelines");
}

static enum status entry_try(struct check_pipelines *check, const struct table *table,
                             struct table_entry *entry, struct error *err)
{
    if (entry->state != MODEL_LOADING)
        return error_set(err, STATUS_FAILED_PRECONDITION, "%s", entry->reason);
    struct model *model = stand_in(check);
    if (!model)
        return error_no_memory(err, "the check of pipelines");
    TRY(pipeline_bind(table, entry->pipeline, &model->pipeline, err));
    model->info = &model->pipeline->info;
    model->max_batch = model->pipeline->max_batch;
    TRY(pipeline_fits(model->pipeline, &check->limits, &model->max_instances, err));
    entry->model = model_ref(model);
    return STATUS_OK;
}

static void decide(void *user, const struct table *table, struct table_entry *entry)
{
    struct check_pipelines *check = user;
    struct error err;
    enum status status = entry_try(check, table, entry, &err);
    entry->state = status ? MODEL_UNAVAILABLE : MODEL_READY;
    check->found(check->user, entry, status ? &err : NULL);
}

void check_pipelines_run(struct check_pipelines *check,
                         void (*found)(void *user, const struct table_entry *entry,
                                       const struct error *err),
                         void *user)
{
    check->found = found;
    check->user = user;
    pipelines_decide(check->table, decide, check);
}
