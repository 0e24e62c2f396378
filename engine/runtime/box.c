/* SPDX-License-Identifier: Apache-2.0 */
/* See box.h. A box is copied in runs: the last dimensions of which it has all, and the one before
 * them, lie together in both. */
#include "engine/runtime/box.h"

#include <string.h>

bool box_is_whole(const struct box *box)
{
    return shape_equal(box->whole, box->part);
}

/* The dimensions [n, rank) lie together; *bytes is the size of such a run. */
static uint32_t run_of(const struct box *box, size_t *bytes)
{
    uint32_t n = box->part->rank;
    *bytes = box->element;
    while (n > 0) {
        n--;
        *bytes *= (size_t)box->part->dim[n];
        if (box->part->dim[n] != box->whole->dim[n])
            break;
    }
    return n;
}

/* The offset in the tensor of the box's run at these indices of the dimensions [0, n). */
static size_t offset_of(const struct box *box, const int64_t *index, uint32_t n)
{
    size_t at = 0;
    for (uint32_t d = 0; d < box->whole->rank; d++) {
        int64_t i = (d < n ? index[d] : 0) + (d == box->axis ? box->first : 0);
        at = at * (size_t)box->whole->dim[d] + (size_t)i;
    }
    return at * box->element;
}

/* Steps to the next run. False: that was the last one. */
static bool step(const struct box *box, int64_t *index, uint32_t n)
{
    for (uint32_t d = n; d-- > 0;) {
        if (++index[d] < box->part->dim[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static void copy(const struct box *box, char *whole, char *part, bool put)
{
    int64_t index[SHAPE_MAX_RANK] = {0};
    size_t bytes;
    uint32_t n = run_of(box, &bytes);
    for (uint32_t d = 0; d < box->part->rank; d++)
        if (!box->part->dim[d])
            return;
    do {
        char *at = whole + offset_of(box, index, n);
        memcpy(put ? at : part, put ? part : at, bytes);
        part += bytes;
    } while (step(box, index, n));
}

void box_put(const struct box *box, void *whole, const void *part)
{
    copy(box, whole, (char *)(uintptr_t)part, true);
}

void box_take(const struct box *box, const void *whole, void *part)
{
    copy(box, (char *)(uintptr_t)whole, part, false);
}
