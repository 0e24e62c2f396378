/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of bytes that several threads charge and that have a limit. The atomics are relaxed, because
 * an account guards no other data. A charge is added first and compared with the limit afterwards:
 * two charges at one moment may both be refused, but they never both go over the limit.
 */
#ifndef INFERD_BASE_ACCOUNT_H
#define INFERD_BASE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* Charges what cannot be refused; the sum may go over its limit. */
static inline void account_force(_Atomic uint64_t *sum, uint64_t bytes)
{
    atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed);
}

static inline void account_sub(_Atomic uint64_t *sum, uint64_t bytes)
{
    atomic_fetch_sub_explicit(sum, bytes, memory_order_relaxed);
}

/* Returns false and adds nothing if the sum would go beyond `most`. */
static inline MUST_USE bool account_add(_Atomic uint64_t *sum, uint64_t bytes, uint64_t most)
{
    uint64_t before = atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed);
    if (before <= most && bytes <= most - before)
        return true;
    account_sub(sum, bytes);
    return false;
}

#endif
