/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that goes from one comparison of a profile to the next. fp32's values do not change from
 * round to round, so they are computed once, as far as there is room for them. Values that nobody
 * needs serve the next tensors for which they have room: of a large batch they are gigabytes, which
 * the system would have to clear for each layer.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "engine/guard/internal.h"

enum {
    KEPT_PART = 3,    /* of the memory that is free, one part in so many */
    SPARE_MIB = 4096, /* at most */
    LARGER = 4,       /* times that a spare may be as large as what it serves */
};

bool value_memory_init(struct value_memory *m, uint32_t n_tensors)
{
    bool ok = true;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *m = (struct value_memory){.n_tensors = n_tensors};
    m->kept_most = pages > 0 && page > 0 ? (size_t)pages / KEPT_PART * (size_t)page : 0;
    for (uint32_t k = 0; k < GUARD_SAMPLES && ok; k++) {
        m->kept[k] = calloc((size_t)n_tensors + 1, sizeof(void *));
        ok = m->kept[k];
    }
    return ok;
}

static void *remove_spare(struct value_memory *m, uint32_t at)
{
    void *value = m->spare[at].value;
    m->spare_bytes -= m->spare[at].bytes;
    m->n_spare--;
    memmove(&m->spare[at], &m->spare[at + 1], (m->n_spare - at) * sizeof(m->spare[0]));
    return value;
}

void value_memory_deinit(struct value_memory *m)
{
    while (m->n_spare)
        free(remove_spare(m, 0));
    for (uint32_t k = 0; k < GUARD_SAMPLES; k++) {
        for (uint32_t i = 0; m->kept[k] && i < m->n_tensors; i++)
            free(m->kept[k][i]);
        free(m->kept[k]);
        m->kept[k] = NULL;
    }
}

void *value_take(struct value_memory *m, const struct ir_tensor *t)
{
    size_t bytes = value_bytes(t);
    uint32_t best = m->n_spare;
    for (uint32_t i = m->n_spare; i-- > 0;)
        if (m->spare[i].bytes >= bytes && m->spare[i].bytes / LARGER <= bytes &&
            (best == m->n_spare || m->spare[i].bytes < m->spare[best].bytes))
            best = i;
    return best < m->n_spare ? remove_spare(m, best) : value_new(t);
}

void value_give(struct value_memory *m, void *value)
{
    size_t bytes = malloc_usable_size(value);
    if (!value || bytes >> 20 >= SPARE_MIB) {
        free(value);
        return;
    }
    while (m->n_spare == VALUE_SPARES ||
           (m->n_spare && (m->spare_bytes + bytes) >> 20 >= SPARE_MIB))
        free(remove_spare(m, 0));
    m->spare[m->n_spare].value = value;
    m->spare[m->n_spare++].bytes = bytes;
    m->spare_bytes += bytes;
}

void value_keep(struct value_memory *m, uint32_t set, uint32_t tensor, void *value)
{
    size_t bytes = malloc_usable_size(value);
    if (m->kept[set][tensor] || m->kept_bytes + bytes > m->kept_most)
        return;
    m->kept[set][tensor] = value;
    m->kept_bytes += bytes;
}
