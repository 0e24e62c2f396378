/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time that a test moves by hand, for the whole program: its own clock_gettime takes the place of
 * the C library's, for libuv too. Minutes of time limits pass in microseconds, and nothing depends
 * on how busy the machine is. Clocks of the day go on as usual.
 */
#ifndef INFERD_TESTS_UNIT_DAEMON_VIRTUAL_CLOCK_H
#define INFERD_TESTS_UNIT_DAEMON_VIRTUAL_CLOCK_H

#include <stdint.h>

/* From now on the monotonic clocks stand still at this time; any thread sees that. */
void virtual_clock_start(uint64_t now_ns);
uint64_t virtual_clock_now(void);
void virtual_clock_advance(uint64_t ns);
/* Each look of the calling thread at a monotonic clock takes this long; looks of other threads take
 * no time. */
void virtual_clock_look_takes(uint64_t ns);

#endif
