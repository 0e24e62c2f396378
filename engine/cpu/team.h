/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spreads the work of one node over the threads of its stream. They belong to the OpenMP runtime
 * that oneDNN uses as well, so there is one set of threads.
 */
#ifndef INFERD_ENGINE_CPU_TEAM_H
#define INFERD_ENGINE_CPU_TEAM_H

#include <stdint.h>

/* Does units first..end-1 of the work. */
typedef void (*team_work)(void *user, int64_t first, int64_t end);

/* Calls `work` on up to `threads` threads, the caller among them, with equal parts of `units`;
 * returns when all are done. */
void team_run(uint32_t threads, int64_t units, team_work work, void *user);

/* Within `work`: the calling thread's number in the team, 0 to threads-1. */
uint32_t team_thread(void);

/* Within `work`: waits until all threads of the team have called this as often. What they wrote
 * before is then seen by all. Only for work of which each thread has a part: units >= threads. */
void team_meet(void);

#endif
