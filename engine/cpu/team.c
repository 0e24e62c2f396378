/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls libgomp through the functions that gcc puts in place of OpenMP's pragmas. For the pragmas
 * themselves clang would bring a runtime of its own, and with it a second set of threads.
 */
#include "engine/cpu/team.h"

#include "base/compiler.h"

void GOMP_parallel(void (*run)(void *data), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

struct team {
    team_work work;
    void *user;
    int64_t units;
};

static void run_part(void *data)
{
    const struct team *team = data;
    int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
    int64_t first = team->units * part / parts, end = team->units * (part + 1) / parts;
    if (first < end)
        team->work(team->user, first, end);
}

uint32_t team_thread(void)
{
    return (uint32_t)omp_get_thread_num();
}

void team_meet(void)
{
    GOMP_barrier(); /* returns at once where there is no team */
}

void team_run(uint32_t threads, int64_t units, team_work work, void *user)
{
    uint32_t useful = (uint32_t)MIN((int64_t)threads, units);
    if (useful <= 1) {
        work(user, 0, units);
        return;
    }
    struct team team = {work, user, units};
    GOMP_parallel(run_part, &team, useful, 0);
}
