/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers a team's threads for a measurement: each on a processor of its own, all of them running.
 *
 * Where other work keeps all processors busy, a thread that sleeps between two launches waits for a
 * processor at the next one, longer than threads spin before they sleep. So its team does not get
 * out of this state by itself, and each launch takes as long as waking up does. Worse, the
 * scheduler may leave two threads of the team on one processor, where they take turns. A team that
 * was gathered is as in quiet until the scheduler takes a processor away, which is milliseconds
 * later.
 */
#ifndef INFERD_ENGINE_CPU_GATHER_H
#define INFERD_ENGINE_CPU_GATHER_H

#include <stdbool.h>
#include <stdint.h>

enum { GATHER_THREADS_MAX = 256 };

/* One thread's measurements; zeros at first. */
struct gather {
    uint32_t threads; /* that have the processors in `cpus`; 0: none have yet */
    uint32_t vain;    /* times in a row that the team did not come together: fewer tries then */
    int cpus[GATHER_THREADS_MAX]; /* by the threads' numbers */
};

/* Gathers the calling thread and the others of its team (team.h), `threads` in all; there must be a
 * core for each. Returns once all run, or false after a few vain tries, some milliseconds. Threads
 * stay on the processors where the scheduler had them, if these are different; else each takes a
 * core by its number. The others are bound to their processors; the caller is not, but is brought
 * back to its own at the next call. */
bool gather_team(struct gather *gather, uint32_t threads);
/* Lets the others run where they might before. */
void gather_release(struct gather *gather);

#endif
