/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a pipeline's sizes when it is bound. A size of a tensor is a number, or the
 * request's number of instances, or *free*: each request chooses it within a range, or *open*: only
 * a run tells it. Free sizes that meet in a step are one from then on, within what both ranges
 * have in common; one that meets a number is that number.
 *
 * Pure: knows neither models nor tensors (pipeline_bind.c does).
 */
#ifndef INFERD_DAEMON_PIPELINE_SIZES_H
#define INFERD_DAEMON_PIPELINE_SIZES_H

#include <stdbool.h>
#include <stdint.h>

enum size_kind { SIZE_UNSAID, SIZE_NUMBER, SIZE_COUNT, SIZE_FREE, SIZE_OPEN };

struct size {
    enum size_kind kind;
    int64_t n; /* the number, or which free size */
};

/* What a step takes in one of its dimensions. */
struct size_range {
    const char *name;
    int64_t low, high;
    bool instances; /* it is one that the step's model counts instances in */
};

struct size_free {
    struct size_range range;
    uint32_t up;     /* which free size it has become one with; its own number: none */
    uint32_t number; /* from 1 on, among those that remain (sizes_number); 0: it is a number */
};

enum { SIZES_MOST = 512 };

struct sizes {
    uint32_t n;
    struct size_free free[SIZES_MOST];
};

/* The size as it is known by now: a number if its range has but one. */
struct size sizes_now(const struct sizes *sizes, struct size size);
/* Of a free size that is no number. */
const struct size_free *sizes_free(const struct sizes *sizes, struct size size);

/* Lets a dimension of a tensor be one of a step, in which every tensor of it has the same size:
 * `own`, within `range`, or SIZE_UNSAID before the first one. False: they contradict each other,
 * and nothing has changed. */
bool sizes_meet(struct sizes *sizes, struct size *tensor, struct size *own,
                const struct size_range *range);
/* Lets it be what a step says without a choice: a number, or the request's instances. */
bool sizes_be(struct sizes *sizes, struct size *tensor, struct size said);

/* Numbers the free sizes that remain from 1 on, and returns how many there are. */
uint32_t sizes_number(struct sizes *sizes);

/* "4", "1 to 512", "the request's instances", "what a run makes" */
enum { SIZE_TEXT_MAX = 48 };
const char *sizes_text(const struct sizes *sizes, struct size size, char out[SIZE_TEXT_MAX]);

#endif
