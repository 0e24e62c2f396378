/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up, see figures.h. */
#include "daemon/figures.h"

#include <string.h>

#include "daemon/loop.h"
#include "daemon/shapes.h"

static uint64_t load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

uint64_t figures_counter(const struct shared *shared, enum counter which)
{
    uint64_t sum = counter_get(&shared->counters, which);
    for (uint32_t i = 0; i < shared->n_loops; i++)
        sum += counter_get(&shared->loops[i]->counters, which);
    return sum;
}

uint64_t figures_in_flight(const struct shared *shared)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < shared->n_loops; i++)
        sum += load(&shared->loops[i]->pending);
    return sum;
}

void figures_memory(const struct shared *shared, const struct table *table, uint64_t outputs,
                    struct body_memory out[FIGURES_MEMORY])
{
    uint64_t used = budget_used(&shared->budget), held = budget_held(&shared->budget);
    uint64_t limit = load(&shared->budget.limit);
    uint64_t unread = 0, weights = 0, arena = 0;
    for (uint32_t i = 0; i < shared->n_loops; i++)
        unread += load(&shared->loops[i]->backlog_bytes);
    for (uint32_t i = 0; i < table->n; i++) {
        const struct model *model = table->entries[i].model;
        weights += model ? model->info->weight_bytes : 0;
        for (uint32_t p = 0; model && p < model->info->n_profiles; p++)
            arena = MAX(arena, (uint64_t)model->info->profiles[p].arena_bytes);
    }
    const struct body_memory rows[FIGURES_MEMORY] = {
        {"requests and replies", used, limit},
        {"of these, replies not read", unread, 0},
        {"kept for the next ones", held - MIN(held, used), limit},
        {"event loops", shared->n_loops * (sizeof(struct loop) + LOOP_HEADS), 0},
        {"output buffers", outputs, 0},
        {"arenas", arena * dispatch_workers(shared->dispatch), 0},
        {"weights", weights, 0},
        {"engines for new sizes",
         shapes_look(atomic_load_explicit(&shared->shapes, memory_order_acquire)).bytes, 0},
    };
    memcpy(out, rows, sizeof(rows));
}
