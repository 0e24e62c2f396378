/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon/virtual_clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static _Atomic bool started;
static _Atomic uint64_t now;
static _Thread_local uint64_t look_ns;

void virtual_clock_start(uint64_t now_ns)
{
    atomic_store(&now, now_ns);
    atomic_store(&started, true);
}

uint64_t virtual_clock_now(void)
{
    return atomic_load(&now);
}

void virtual_clock_advance(uint64_t ns)
{
    atomic_fetch_add(&now, ns);
}

void virtual_clock_look_takes(uint64_t ns)
{
    look_ns = ns;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    bool monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    if (!monotonic || !atomic_load(&started))
        return (int)syscall(SYS_clock_gettime, clock, out);
    uint64_t ns = look_ns ? atomic_fetch_add(&now, look_ns) + look_ns : atomic_load(&now);
    out->tv_sec = (time_t)(ns / NS_PER_S);
    out->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}
