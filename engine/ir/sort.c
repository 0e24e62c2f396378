/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of sort.h. */
#include "engine/ir/sort.h"

#include <stdlib.h>

enum mark { UNSEEN, OPEN, DONE };

struct walk {
    uint32_t *stack;  /* items being visited */
    uint32_t *cursor; /* for each item: the next need to look at */
    uint8_t *marks;
    uint32_t *order, n_order;
};

static void walk_deinit(struct walk *w)
{
    free(w->stack);
    free(w->cursor);
    free(w->marks);
}

/* Walks from `root`. Returns an item of a cycle, or SORT_NONE. */
static uint32_t walk_from(struct walk *w, uint32_t root, sort_need need, const void *user)
{
    uint32_t depth = 0;
    w->stack[depth++] = root;
    w->marks[root] = OPEN;
    while (depth) {
        uint32_t at = w->stack[depth - 1], from = need(user, at, w->cursor[at]++);
        if (from == SORT_END) {
            w->marks[at] = DONE;
            w->order[w->n_order++] = at;
            depth--;
        } else if (from != SORT_NONE && w->marks[from] == OPEN) {
            return at;
        } else if (from != SORT_NONE && w->marks[from] == UNSEEN) {
            w->marks[from] = OPEN;
            w->stack[depth++] = from;
        }
    }
    return SORT_NONE;
}

enum status sort_by_need(uint32_t n, sort_need need, const void *user, uint32_t *order,
                         uint32_t *through, struct error *err)
{
    CLEANUP(walk_deinit)
    struct walk w = {
        .stack = calloc((size_t)n + 1, sizeof(*w.stack)),
        .cursor = calloc((size_t)n + 1, sizeof(*w.cursor)),
        .marks = calloc((size_t)n + 1, 1),
        .order = order,
    };
    if (!w.stack || !w.cursor || !w.marks)
        return error_no_memory(err, "sorting %u nodes", n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cycle = w.marks[i] == UNSEEN ? walk_from(&w, i, need, user) : SORT_NONE;
        if (cycle != SORT_NONE) {
            *through = cycle;
            return STATUS_INVALID_ARGUMENT;
        }
    }
    return STATUS_OK;
}
