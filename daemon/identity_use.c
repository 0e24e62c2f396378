/* SPDX-License-Identifier: Apache-2.0 */
/* What identities have in flight, see identity_use.h. */
#include "daemon/identity_use.h"

#include <stdatomic.h>
#include <stdlib.h>

struct identity_use {
    _Atomic uint32_t refs; /* release on the way down, so that who frees sees all that was done */
    _Atomic uint64_t requests, bytes;
};

struct identity_use *identity_use_new(void)
{
    struct identity_use *use = calloc(1, sizeof(*use));
    if (use)
        atomic_init(&use->refs, 1);
    return use;
}

struct identity_use *identity_use_ref(struct identity_use *use)
{
    atomic_fetch_add_explicit(&use->refs, 1, memory_order_relaxed);
    return use;
}

void identity_use_unref(struct identity_use *use)
{
    if (use && atomic_fetch_sub_explicit(&use->refs, 1, memory_order_acq_rel) == 1)
        free(use);
}

/* Books first and looks then: two at once may both be refused, but never both exceed a limit. */
bool identity_use_take(struct identity_use *use, uint64_t requests, uint64_t bytes, uint64_t size)
{
    uint64_t n = atomic_fetch_add_explicit(&use->requests, 1, memory_order_relaxed);
    uint64_t used = atomic_fetch_add_explicit(&use->bytes, size, memory_order_relaxed);
    bool fits = (!requests || n < requests) && (!bytes || !used || used + size <= bytes);
    if (fits) {
        identity_use_ref(use);
    } else {
        atomic_fetch_sub_explicit(&use->requests, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&use->bytes, size, memory_order_relaxed);
    }
    return fits;
}

void identity_use_give(struct identity_use *use, uint64_t size)
{
    if (!use)
        return;
    atomic_fetch_sub_explicit(&use->requests, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&use->bytes, size, memory_order_relaxed);
    identity_use_unref(use);
}
