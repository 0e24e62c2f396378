/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes that a peer or a file chose. An overflow returns false and leaves the result
 * untouched. */
#ifndef INFERD_BASE_CHECKED_H
#define INFERD_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

static inline MUST_USE bool checked_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline MUST_USE bool checked_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* `n` rounded up to a multiple of `to`, which is a power of two; false on overflow. */
static inline MUST_USE bool checked_round_up(size_t n, size_t to, size_t *out)
{
    size_t r;
    if (!checked_add(n, to - 1, &r))
        return false;
    *out = r & ~(to - 1);
    return true;
}

#endif
