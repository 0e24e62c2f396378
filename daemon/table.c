/* SPDX-License-Identifier: Apache-2.0 */
/* The table of models, see model.h. Found by bisection: names are short and tables small. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/model_file.h"
#include "daemon/dispatch.h"
#include "daemon/identity.h"
#include "daemon/model.h"
#include "daemon/tls.h"

const char *model_state_name(enum model_state state)
{
    static const char *const names[] = {
        [MODEL_LOADING] = "LOADING", [MODEL_READY] = "READY", [MODEL_UNAVAILABLE] = "UNAVAILABLE"};
    return names[state];
}

uint32_t model_priority(const struct model *model, uint64_t level)
{
    uint64_t levels = atomic_load_explicit(&model->priority_levels, memory_order_relaxed);
    if (!levels)
        return 0;
    if (!level)
        level = atomic_load_explicit(&model->default_priority, memory_order_relaxed);
    level = MIN(MAX(level, UINT64_C(1)), levels) - 1;
    return (uint32_t)(levels <= BATCHER_PRIORITIES ? level : level * BATCHER_PRIORITIES / levels);
}

struct model *model_ref(struct model *model)
{
    atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

void model_unref(struct model *model)
{
    if (model && atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) == 1)
        dispatch_model_retire(model->dispatch, model);
}

struct table *table_new(const struct config *config, uint32_t capacity)
{
    struct table *table = calloc(1, sizeof(*table));
    struct table_entry *entries = calloc(capacity ? capacity : 1, sizeof(*entries));
    if (!table || !entries) {
        free(table);
        free(entries);
        return NULL;
    }
    atomic_init(&table->refs, 1);
    table->limits = config->limits;
    table->default_timeout_ns = config->default_timeout_ms * NS_PER_MS;
    table->entries = entries;
    return table;
}

struct table *table_ref(struct table *table)
{
    atomic_fetch_add_explicit(&table->refs, 1, memory_order_relaxed);
    return table;
}

void table_unref(struct table *table)
{
    if (!table || atomic_fetch_sub_explicit(&table->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < table->n; i++) {
        free(table->entries[i].name);
        free(table->entries[i].version);
        model_unref(table->entries[i].model);
        table_entry_pipeline(&table->entries[i], NULL, NULL);
    }
    identities_unref(table->identities);
    tls_unref(table->tls);
    free(table->entries);
    free(table);
}

bool table_add(struct table *table, const char *name, const char *version, enum model_state state,
               const char *reason, struct model *model)
{
    struct table_entry entry = {
        .name = strdup(name), .version = strdup(version), .state = state, .model = model};
    if (!entry.name || !entry.version) {
        free(entry.name);
        free(entry.version);
        return false;
    }
    snprintf(entry.reason, sizeof(entry.reason), "%s", reason ? reason : "");
    table->entries[table->n++] = entry;
    return true;
}

bool table_entry_pipeline(struct table_entry *entry, struct model_file *file,
                          const struct model_source *source)
{
    model_file_free(entry->pipeline);
    free(entry->source.path);
    entry->pipeline = NULL;
    entry->source = (struct model_source){0};
    if (!file)
        return true;
    entry->source = *source;
    entry->source.path = strdup(source->path);
    if (entry->source.path)
        entry->pipeline = model_file_ref(file);
    return entry->pipeline != NULL;
}

static int entry_compare(const void *a, const void *b)
{
    const struct table_entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strverscmp(x->version, y->version);
}

void table_sort(struct table *table)
{
    qsort(table->entries, table->n, sizeof(*table->entries), entry_compare);
}

static int name_compare(const char *name, struct message_text wanted)
{
    size_t len = strlen(name);
    int order = memcmp(name, wanted.data, MIN(len, wanted.len));
    return order ? order : (len > wanted.len) - (len < wanted.len);
}

const struct table_entry *table_find(const struct table *table, struct message_text name,
                                     struct message_text version)
{
    uint32_t low = 0, high = table->n;
    while (low < high) { /* the first entry of that name or beyond */
        uint32_t middle = (low + high) / 2;
        if (name_compare(table->entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct table_entry *found = NULL;
    for (uint32_t i = low; i < table->n && name_compare(table->entries[i].name, name) == 0; i++) {
        const struct table_entry *e = &table->entries[i];
        if (version.len) {
            if (message_text_equal(message_text_of(e->version), version))
                return e;
        } else if (!found || e->state == MODEL_READY || found->state != MODEL_READY) {
            found = e;
        }
    }
    return found;
}
