/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds, a thread's own time, and the time of day. */
#ifndef INFERD_BASE_CLOCK_H
#define INFERD_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S  1000000000ULL

/* CLOCK_MONOTONIC. */
uint64_t clock_now_ns(void);

/* The processor's time that the calling thread has used. */
uint64_t clock_thread_ns(void);

/* Milliseconds since 1970, exact to a few of them (CLOCK_REALTIME_COARSE). */
uint64_t clock_wall_ms(void);

/* Sleeps until clock_now_ns() >= `when`; returns at once if that has passed. */
void clock_sleep_until(uint64_t when);

#endif
