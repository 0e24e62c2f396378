/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the pipelines of a table are bound; see pipeline.h. */
#include <stdio.h>
#include <string.h>

#include "daemon/pipeline.h"

/* Not decided yet: MODEL_LOADING, which no other entry is. */
static bool is_open(const struct table_entry *entry)
{
    return entry->pipeline && entry->state == MODEL_LOADING;
}

/* Whether what a step names is decided, in all its versions. */
static bool step_is_decided(const struct table *table, const struct model_file_step *step)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (is_open(&table->entries[i]) && strcmp(table->entries[i].name, step->model) == 0)
            return false;
    return true;
}

static bool is_due(const struct table *table, const struct table_entry *entry)
{
    for (uint32_t s = 0; s < entry->pipeline->n_steps; s++)
        if (!step_is_decided(table, &entry->pipeline->steps[s]))
            return false;
    return true;
}

static void open_all(struct table *table)
{
    for (uint32_t i = 0; i < table->n; i++) {
        struct table_entry *entry = &table->entries[i];
        if (!entry->pipeline)
            continue;
        model_unref(entry->model);
        entry->model = NULL;
        entry->state = MODEL_LOADING;
    }
}

/* Decides all that are made of nothing undecided. False: there is none. */
static bool round_decide(struct table *table,
                         void (*decide)(void *user, const struct table *table,
                                        struct table_entry *entry),
                         void *user)
{
    bool any = false;
    for (uint32_t i = 0; i < table->n; i++)
        if (is_open(&table->entries[i]) && is_due(table, &table->entries[i])) {
            any = true;
            decide(user, table, &table->entries[i]);
        }
    return any;
}

void pipelines_decide(struct table *table,
                      void (*decide)(void *user, const struct table *table,
                                     struct table_entry *entry),
                      void *user)
{
    table_sort(table);
    open_all(table);
    while (round_decide(table, decide, user))
        ;
    for (uint32_t i = 0; i < table->n; i++) {
        struct table_entry *entry = &table->entries[i];
        if (!is_open(entry))
            continue;
        entry->state = MODEL_UNAVAILABLE;
        snprintf(entry->reason, sizeof(entry->reason), "the pipeline is made of itself");
        decide(user, table, entry);
    }
}
