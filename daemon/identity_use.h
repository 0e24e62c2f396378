/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an identity has in flight, over all its connections and loops, so that its limits
 * (`identities[].requests` and `bytes`) hold. It outlives snapshots: a reload goes on with it, and
 * a request in flight keeps it until its end, even if nobody has that name any more.
 *
 * Any thread. Relaxed, but for the last reference: the numbers guard no memory.
 */
#ifndef INFERD_DAEMON_IDENTITY_USE_H
#define INFERD_DAEMON_IDENTITY_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct identity_use;

/* One reference; NULL: no memory. */
struct identity_use *identity_use_new(void);
struct identity_use *identity_use_ref(struct identity_use *use);
void identity_use_unref(struct identity_use *use); /* NULL is fine */

/* Books a request of so many bytes, and takes a reference; false: that would be more than
 * `requests` or `bytes` in all, of which 0 is no limit. A single request always fits in `bytes`. */
bool identity_use_take(struct identity_use *use, uint64_t requests, uint64_t bytes,
                       uint64_t size) MUST_USE;
/* Books it out, and gives the reference back; NULL is fine. */
void identity_use_give(struct identity_use *use, uint64_t size);

#endif
