/* SPDX-License-Identifier: Apache-2.0 */
/* See models_seen.h. */
#include "daemon/models_seen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define REST_NS NS_PER_S

enum { GONE = 0 }; /* a signature; no listing has it */

static struct models_seen_row *row_find(const struct models_seen *seen, const char *name)
{
    for (uint32_t i = 0; i < seen->n; i++)
        if (strcmp(seen->rows[i].name, name) == 0)
            return &seen->rows[i];
    return NULL;
}

/* The end of the model that begins at items[first]. */
static uint32_t group_end(const struct wanted_list *list, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < list->n && strcmp(list->items[end].name, list->items[first].name) == 0)
        end++;
    return end;
}

static bool rests(uint64_t changed_ns, uint64_t now_ns)
{
    return changed_ns > now_ns || now_ns - changed_ns >= REST_NS;
}

static void row_put(struct models_seen *seen, const char *name, uint64_t signature, bool changed)
{
    struct models_seen_row *row = &seen->rows[seen->n++];
    snprintf(row->name, sizeof(row->name), "%s", name);
    row->signature = signature;
    row->changed = changed;
}

bool models_seen_look(const struct models_seen *last, const struct wanted_list *list,
                      uint64_t now_ns, bool at_once, struct models_seen *out)
{
    struct models_seen seen = {.rows = calloc((size_t)list->n + last->n + 1, sizeof(*seen.rows))};
    if (!seen.rows)
        return false;
    for (uint32_t i = 0, end; i < list->n; i = end) {
        uint64_t changed_ns;
        const char *name = list->items[i].name;
        const struct models_seen_row *old = row_find(last, name);
        end = group_end(list, i);
        if (!list->items[i].of_repository)
            continue;
        uint64_t now = wanted_signature(&list->items[i], end - i, &changed_ns) | 1;
        bool differs = !old || old->signature != now;
        if (differs && !at_once && !rests(changed_ns, now_ns))
            row_put(&seen, name, old ? old->signature : GONE, false);
        else
            row_put(&seen, name, now, differs);
    }
    for (uint32_t i = 0; i < last->n; i++)
        if (last->rows[i].signature != GONE && !row_find(&seen, last->rows[i].name))
            row_put(&seen, last->rows[i].name, GONE, true);
    *out = seen;
    return true;
}

void models_seen_deinit(struct models_seen *seen)
{
    free(seen->rows);
    *seen = (struct models_seen){0};
}
