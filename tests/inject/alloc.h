/* SPDX-License-Identifier: Apache-2.0 */
/* Makes allocations fail from within a test that is linked with alloc.c; see there. */
#ifndef INFERD_TESTS_INJECT_ALLOC_H
#define INFERD_TESTS_INJECT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The Nth allocation from now on, of any thread, fails; 0: none does. Counting starts anew. */
void inject_arm(uint64_t nth);
/* No more allocations fail. Returns true if one failed since inject_arm(). */
bool inject_disarm(void);

#endif
