/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an identity has in flight on all its connections and loops, so that its limits
 * (`identities[].requests` and `bytes`) hold. It outlives snapshots: a reload goes on with the same
 * one, and a request in flight keeps a reference until its end, even if the name has gone.
 *
 * Any thread. All accesses are relaxed except for the last reference's, because the numbers guard
 * no memory.
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

/* Books a request of so many bytes, and takes a reference. False: the identity would then have more
 * than `requests` or `bytes` in flight (0: no limit). A single request always fits in `bytes`. */
bool identity_use_take(struct identity_use *use, uint64_t requests, uint64_t bytes,
                       uint64_t size) MUST_USE;
/* Books the request out, and gives the reference back; NULL is fine. */
void identity_use_give(struct identity_use *use, uint64_t size);

#endif
