/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What batches of one model were seen to take, to estimate how long a queue will: a running mean
 * and deviation of the times for each power of two of the size, and how full batches get when
 * enough requests wait (requests of different shapes or sizes leave room).
 *
 * A size never seen counts as the nearest smaller one that was seen, or else as the nearest larger;
 * if nothing was seen, all times are 0. So estimates are rather too short, which is right because
 * requests are refused by them. Private to this folder; times are nanoseconds.
 */
#ifndef INFERD_BATCHING_PACE_H
#define INFERD_BATCHING_PACE_H

#include <stdint.h>

enum { PACE_CLASSES = 33 }; /* class k: 2^(k-1) < size <= 2^k */

struct pace_time {
    uint64_t mean_ns, deviation_ns; /* of one batch; the deviation is the mean absolute one */
};

struct pace {
    uint32_t fill_256; /* instances of a batch when enough wait, in 256ths */
    uint64_t seen;     /* a bit for each class */
    struct pace_time class[PACE_CLASSES];
};

/* Sets the limit anew. Keeps the times, because their sizes may still come. */
void pace_limit(struct pace *pace, uint32_t max_batch);

/* A batch was formed while at least max_batch instances waited. */
void pace_formed(struct pace *pace, uint32_t instances);

/* A batch took so long from its forming until its worker was free again. `instances` > 0. */
void pace_ran(struct pace *pace, uint32_t instances, uint64_t ran_ns);

/* The time of one batch of that size. */
struct pace_time pace_batch(const struct pace *pace, uint32_t instances);

/* The time of a queue of that many instances, on one worker. If `rest` is given, the last batch,
 * which is not full, is not counted, and *rest is the number of its instances. */
uint64_t pace_queue_ns(const struct pace *pace, uint64_t instances, uint32_t *rest);

#endif
