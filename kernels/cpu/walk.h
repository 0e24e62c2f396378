/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks an index space row by row while following several tensors in it, each by its own strides.
 *
 * Dims of one element are dropped and neighbours merged where all tensors allow it, so that rows
 * are as long as they can be. A stride of 0 broadcasts, a negative one goes backwards.
 *
 *   struct ref_walk w;
 *   for (bool row = ref_walk_init(&w, &space, 2, strides); row; row = ref_walk_next(&w))
 *       ... w.row elements, those of tensor k at w.at[k] + i * w.step[k] ...
 */
#ifndef INFERD_KERNELS_CPU_WALK_H
#define INFERD_KERNELS_CPU_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/shape.h"

enum { REF_WALK_MAX = 12 };

struct ref_walk {
    int64_t row;                /* elements of a row */
    int64_t step[REF_WALK_MAX]; /* within a row */
    int64_t at[REF_WALK_MAX];   /* where the row starts, in elements */
    uint32_t n;                 /* tensors */
    uint32_t rank;              /* dims outside of the row */
    int64_t dim[SHAPE_MAX_RANK], index[SHAPE_MAX_RANK];
    int64_t stride[REF_WALK_MAX][SHAPE_MAX_RANK];
};

/* Moves to the first row; returns false if the space is empty. */
bool ref_walk_init(struct ref_walk *walk, const struct shape *space, uint32_t n,
                   int64_t (*strides)[SHAPE_MAX_RANK]);
/* Moves to the next row. After the last row it returns false, and `at` is back at the first. */
bool ref_walk_next(struct ref_walk *walk);

/* Moves to row `row` (counted from 0), which must exist. */
void ref_walk_seek(struct ref_walk *walk, int64_t row);
int64_t ref_walk_rows(const struct ref_walk *walk);

/* The strides of a dense tensor of shape `of` broadcast to `space`: 0 where the tensor repeats. */
void ref_broadcast_strides(const struct shape *of, const struct shape *space,
                           int64_t out[SHAPE_MAX_RANK]);

/* Copies elements of `size` bytes over a walk of two tensors, the first for `to`, the second for
 * `from`. */
void ref_walk_copy(struct ref_walk *walk, const struct shape *space,
                   int64_t (*strides)[SHAPE_MAX_RANK], size_t size, void *to, const void *from);

/* Elements of dims first..last-1. */
int64_t ref_extent(const struct shape *shape, uint32_t first, uint32_t last);

#endif
