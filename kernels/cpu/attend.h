/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of some fp32 queries over the keys of one head; attend.c is compiled once for each
 * instruction set, and fast.h's tables have the function. Scores are computed for a block of keys
 * at a time and never lie in memory as a whole: the sums so far are corrected whenever a block has
 * a higher score (the online softmax of
 * Milakov and Gimelshein, 2018).
 *
 * Keys that no query of a block sees may be left unread. Rows are aligned to 4.
 */
#ifndef INFERD_KERNELS_CPU_ATTEND_H
#define INFERD_KERNELS_CPU_ATTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum {
    ATTEND_QUERIES = 64, /* at most, in one call */
    ATTEND_KEYS = 64,    /* in one block */
};

struct attend_query {
    const float *q;   /* [dim] */
    float *y;         /* [out_dim] */
    const void *mask; /* its first element; the next key's lies mask_step elements behind it */
    int64_t from;     /* keys before this one are hidden; 0 or more, and 0 beside a mask */
    int64_t seen;     /* keys from this one on are hidden; 0..keys */
};

struct attend {
    int64_t keys, dim, out_dim;
    const float *k, *v;   /* [keys][dim], [keys][out_dim] */
    int64_t k_row, v_row; /* elements from row to row */
    float scale;          /* of the products, before the mask is added */
    enum dtype mask;      /* F32: added; BOOL: false hides a key; NONE: there is no mask */
    int64_t mask_step;
    bool mask_shared; /* all queries have the same mask */
    int64_t n;        /* queries */
    struct attend_query query[ATTEND_QUERIES];
    float *scratch; /* attend_scratch floats, aligned to 64 */
};

/* A query that sees no key gets zeros. */
typedef void (*attend_run)(const struct attend *a);

#ifdef FAST_ATTEND
void FAST_ATTEND(const struct attend *a); /* of the instruction set that is being compiled for */
#endif

static inline int64_t attend_scratch(int64_t dim, int64_t out_dim)
{
    return ATTEND_QUERIES * (dim + out_dim + 2 * ATTEND_KEYS);
}

#endif
