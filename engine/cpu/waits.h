/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long this process's threads wait for a processor while others have it: the kernel counts it
 * for each thread (/proc/self/task/TID/schedstat: nanoseconds on a processor, nanoseconds of
 * waiting, turns; Linux's sched-stats.rst). Waking up takes a while on an idle machine too: a part
 * of each turn's wait is forgiven. Where these files cannot be read, each time that a thread was
 * made to leave its processor counts half a millisecond.
 */
#ifndef INFERD_ENGINE_CPU_WAITS_H
#define INFERD_ENGINE_CPU_WAITS_H

#include <stdint.h>

struct waits;

struct waits *waits_new(void); /* NULL: no memory */
void waits_free(struct waits *waits);

/* Nanoseconds that the unluckiest thread has waited since this was last called; 0 at first. */
uint64_t waits_longest(struct waits *waits);

#endif
