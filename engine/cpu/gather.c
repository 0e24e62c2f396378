/* SPDX-License-Identifier: Apache-2.0 */
/* See gather.h. A thread remembers in variables of its own that it is bound, because OpenMP may end
 * threads of a team and begin others. */
#include "engine/cpu/gather.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/team.h"

enum {
    TRIES_MAX = 6,
    MEET_NS = 300000, /* a thread waits this long for the others, running; much less than the time
                         that the scheduler gives it */
};

struct meeting {
    struct gather *gather;
    uint32_t threads;
    atomic_uint arrived;
    atomic_uint late; /* threads that did not see the others */
};

static _Thread_local struct {
    bool bound;
    int cpu;
    cpu_set_t before; /* where the thread might run */
} place;

static void move_back(void)
{
    if (place.bound)
        sched_setaffinity(0, sizeof(place.before), &place.before);
    place.bound = false;
}

/* Brings the thread to the processor, and binds it there if it is not the caller. */
static void move_to(int cpu)
{
    cpu_set_t one;
    if (place.bound ? place.cpu == cpu : team_thread() == 0 && sched_getcpu() == cpu)
        return;
    move_back();
    if (cpu < 0 || cpu >= CPU_SETSIZE ||
        sched_getaffinity(0, sizeof(place.before), &place.before) != 0)
        return;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    place.cpu = cpu;
    place.bound = sched_setaffinity(0, sizeof(one), &one) == 0;
    if (team_thread() == 0)
        move_back();
}

/* What a thread of the team does. All of them run at once only if they run on different processors,
 * because the meeting is much shorter than a turn of the scheduler. */
static void meet(void *user, int64_t first UNUSED, int64_t end UNUSED)
{
    struct meeting *m = user;
    int *cpu = &m->gather->cpus[team_thread()];
    if (m->gather->threads)
        move_to(*cpu);
    else
        *cpu = sched_getcpu();
    uint64_t until = clock_now_ns() + MEET_NS;
    atomic_fetch_add_explicit(&m->arrived, 1, memory_order_relaxed);
    while (atomic_load_explicit(&m->arrived, memory_order_relaxed) < m->threads)
        if (clock_now_ns() > until) {
            atomic_fetch_add_explicit(&m->late, 1, memory_order_relaxed);
            return;
        }
}

static bool are_different(const int *cpus, uint32_t n)
{
    cpu_set_t seen;
    CPU_ZERO(&seen);
    for (uint32_t i = 0; i < n; i++) {
        if (cpus[i] < 0 || cpus[i] >= CPU_SETSIZE || CPU_ISSET((size_t)cpus[i], &seen))
            return false;
        CPU_SET((size_t)cpus[i], &seen);
    }
    return true;
}

static bool try_once(struct gather *g, uint32_t threads)
{
    struct meeting m = {.gather = g, .threads = threads};
    team_run(threads, threads, meet, &m);
    bool met = atomic_load_explicit(&m.late, memory_order_relaxed) == 0;
    if (!g->threads && (!met || !are_different(g->cpus, threads)))
        for (uint32_t i = 0; i < threads; i++)
            g->cpus[i] = cores_cpu(i);
    g->threads = threads;
    return met;
}

bool gather_team(struct gather *g, uint32_t threads)
{
    uint32_t most = TRIES_MAX - MIN(g->vain, TRIES_MAX - 1);
    if (g->threads != threads)
        gather_release(g);
    for (uint32_t i = 0; i < most; i++)
        if (try_once(g, threads)) {
            g->vain = 0;
            return true;
        }
    g->vain++;
    return false;
}

static void leave(void *user UNUSED, int64_t first UNUSED, int64_t end UNUSED)
{
    move_back();
}

void gather_release(struct gather *g)
{
    if (g->threads)
        team_run(g->threads, g->threads, leave, NULL);
    g->threads = 0;
    g->vain = 0;
}
