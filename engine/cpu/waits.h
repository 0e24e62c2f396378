/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long this process's threads wait for a processor while others use it. The kernel
 * counts this for each thread (/proc/self/task/TID/schedstat: nanoseconds on a processor,
 * nanoseconds of waiting, turns; Linux's sched-stats.rst). Waking up takes a while on an idle
 * machine too, so a part of each turn's wait is forgiven. If these files cannot be read, each time
 * that a thread was made to leave its processor counts as half a millisecond.
 */
#ifndef INFERD_ENGINE_CPU_WAITS_H
#define INFERD_ENGINE_CPU_WAITS_H

#include <stdint.h>

struct waits;

struct waits *waits_new(void); /* NULL: no memory */
void waits_free(struct waits *waits);

/* Nanoseconds that the unluckiest thread has waited since the last call; 0 at the first. */
uint64_t waits_longest(struct waits *waits);

#endif
