/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/walk.h"

#include <string.h>

static bool mergeable(const struct ref_walk *walk, int64_t inner_dim,
                      const int64_t inner_stride[REF_WALK_MAX])
{
    uint32_t last = walk->rank - 1;
    for (uint32_t k = 0; k < walk->n; k++)
        if (walk->stride[k][last] != inner_stride[k] * inner_dim)
            return false;
    return true;
}

bool ref_walk_init(struct ref_walk *walk, const struct shape *space, uint32_t n,
                   int64_t (*strides)[SHAPE_MAX_RANK])
{
    *walk = (struct ref_walk){.row = 1, .n = n};
    for (uint32_t d = 0; d < space->rank; d++) {
        int64_t dim = space->dim[d], stride[REF_WALK_MAX] = {0};
        if (dim == 0)
            return false;
        if (dim == 1)
            continue;
        for (uint32_t k = 0; k < n; k++)
            stride[k] = strides[k][d];
        bool merge = walk->rank && mergeable(walk, dim, stride);
        uint32_t to = merge ? walk->rank - 1 : walk->rank++;
        walk->dim[to] = merge ? walk->dim[to] * dim : dim;
        for (uint32_t k = 0; k < n; k++)
            walk->stride[k][to] = stride[k];
    }
    if (walk->rank) { /* the innermost dim is the row */
        walk->rank--;
        walk->row = walk->dim[walk->rank];
        for (uint32_t k = 0; k < n; k++)
            walk->step[k] = walk->stride[k][walk->rank];
    }
    return true;
}

bool ref_walk_next(struct ref_walk *walk)
{
    for (uint32_t d = walk->rank; d-- > 0;) {
        bool carry = ++walk->index[d] == walk->dim[d];
        int64_t back = carry ? 1 - walk->dim[d] : 1;
        for (uint32_t k = 0; k < walk->n; k++)
            walk->at[k] += back * walk->stride[k][d];
        if (!carry)
            return true;
        walk->index[d] = 0;
    }
    return false;
}

void ref_walk_seek(struct ref_walk *walk, int64_t row)
{
    for (uint32_t k = 0; k < walk->n; k++)
        walk->at[k] = 0;
    for (uint32_t d = walk->rank; d-- > 0;) {
        walk->index[d] = row % walk->dim[d];
        row /= walk->dim[d];
        for (uint32_t k = 0; k < walk->n; k++)
            walk->at[k] += walk->index[d] * walk->stride[k][d];
    }
}

int64_t ref_walk_rows(const struct ref_walk *walk)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < walk->rank; d++)
        n *= walk->dim[d];
    return n;
}

void ref_broadcast_strides(const struct shape *of, const struct shape *space,
                           int64_t out[SHAPE_MAX_RANK])
{
    int64_t own[SHAPE_MAX_RANK];
    shape_strides(of, own);
    uint32_t lead = space->rank - of->rank;
    for (uint32_t d = 0; d < space->rank; d++)
        out[d] = d < lead || of->dim[d - lead] == 1 ? 0 : own[d - lead];
}

static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                     size_t size)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    to_step *= (int64_t)size;
    from_step *= (int64_t)size;
    /* A constant size turns the inner memcpy into one load and one store. */
#define COPY(bytes)                                                                                \
    for (int64_t i = 0; i < n; i++, to += to_step, from += from_step)                              \
    memcpy(to, from, bytes)
    switch (size) {
    case 1:
        COPY(1);
        break;
    case 2:
        COPY(2);
        break;
    case 4:
        COPY(4);
        break;
    default:
        COPY(8);
        break;
    }
#undef COPY
}

void ref_walk_copy(struct ref_walk *walk, const struct shape *space,
                   int64_t (*strides)[SHAPE_MAX_RANK], size_t size, void *to, const void *from)
{
    int64_t bytes = (int64_t)size;
    for (bool row = ref_walk_init(walk, space, 2, strides); row; row = ref_walk_next(walk))
        copy_row((char *)to + walk->at[0] * bytes, walk->step[0],
                 (const char *)from + walk->at[1] * bytes, walk->step[1], walk->row, size);
}

int64_t ref_extent(const struct shape *shape, uint32_t first, uint32_t last)
{
    int64_t n = 1;
    for (uint32_t d = first; d < last; d++)
        n *= shape->dim[d];
    return n;
}
