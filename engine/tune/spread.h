/* SPDX-License-Identifier: Apache-2.0 */
/* Work that many threads share for a moment: for building plans, not for the path of a request. */
#ifndef INFERD_ENGINE_TUNE_SPREAD_H
#define INFERD_ENGINE_TUNE_SPREAD_H

#include <stdint.h>

/* Calls one(user, i) for each i below n, in this order but side by side, on as many threads as
 * there are processors; the caller's thread is one of them. Returns when all calls have returned.
 * If threads do not start, this only takes longer. */
void spread(uint32_t n, void (*one)(void *user, uint32_t i), void *user);

#endif
