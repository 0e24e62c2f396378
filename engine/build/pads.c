/* SPDX-License-Identifier: Apache-2.0 */
/* See pads.h. */
#include "engine/build/pads.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/engine.h"

enum { PAIRS_MOST = 3 };

struct trying {
    const struct build_space *space;
    uint32_t dimension;
    build_graph_at make;
    void *user;
    struct build_pads *out;
    struct error *err;
};

struct pair {
    int64_t small, large;
};

/* --- sizes --- */

static int64_t next_size(const struct trying *t, int64_t above)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < t->space->n_points; i++) {
        int64_t size = t->space->points[i][t->dimension];
        if (size > above && size < next)
            next = size;
    }
    return next;
}

static void pair_add(struct pair *pairs, uint32_t *n, int64_t small, int64_t large)
{
    for (uint32_t i = 0; i < *n; i++)
        if (pairs[i].small == small && pairs[i].large == large)
            return;
    if (small < large && *n < PAIRS_MOST)
        pairs[(*n)++] = (struct pair){small, large};
}

/* The smallest and the largest gap between points, and all of the range. */
static uint32_t pairs_find(const struct trying *t, struct pair pairs[PAIRS_MOST])
{
    const struct plan_free *free = &t->space->free[t->dimension];
    int64_t low = MAX(free->low, (int64_t)ENGINE_PADS_FROM), before = low - 1, size;
    uint32_t n = 0;
    while ((size = next_size(t, before)) != INT64_MAX) {
        if (size - before > 1 || next_size(t, size) == INT64_MAX) {
            pair_add(pairs, &n, MAX(before + 1, low), size);
            n = MIN(n, 2u); /* the last one replaces those in the middle */
        }
        before = size;
    }
    pair_add(pairs, &n, low, before);
    return n;
}

/* --- graphs --- */

/* Makes the graph at a size of the dimension, with the others at their largest. *out stays NULL if
 * the model cannot have the size. */
static enum status graph_make(const struct trying *t, int64_t size, struct ir_graph **out)
{
    int64_t values[PLAN_MAX_FREE];
    memcpy(values, t->space->points[t->space->n_points - 1], sizeof(values));
    values[t->dimension] = size;
    enum status status = t->make(t->user, values, out, t->err);
    return status == STATUS_RESOURCE_EXHAUSTED ? status : STATUS_OK;
}

static enum status pair_prove(const struct trying *t, const struct pair *pair, bool *proved)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *small = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *large = NULL;
    TRY(graph_make(t, pair->small, &small));
    TRY(graph_make(t, pair->large, &large));
    if (!small || !large) {
        snprintf(t->out->result.why, sizeof(t->out->result.why), "it cannot have all sizes");
        *proved = false;
        return STATUS_OK;
    }
    *proved = along_prove(small, large, pair->small, pair->large, ALONG_PADDED, &t->out->result);
    return t->out->result.no_memory ? error_no_memory(t->err, "the builder") : STATUS_OK;
}

enum status build_pads_find(const struct build_space *space, uint32_t dimension,
                            build_graph_at make, void *user, struct build_pads *out,
                            struct error *err)
{
    struct trying t = {space, dimension, make, user, out, err};
    struct pair pairs[PAIRS_MOST];
    *out = (struct build_pads){.pads = false};
    uint32_t n = pairs_find(&t, pairs);
    bool proved = n > 0;
    for (uint32_t i = 0; i < n && proved; i++)
        TRY(pair_prove(&t, &pairs[i], &proved));
    out->pads = proved;
    return STATUS_OK;
}
