/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables whose key is one number, a shape key or a flow: uthash with Fibonacci hashing, whose upper
 * half is well mixed. Private to this folder; to be included before anything that includes uthash.
 */
#ifndef INFERD_BATCHING_KEYS_H
#define INFERD_BATCHING_KEYS_H

#include <stdint.h>
#include <string.h>

static inline unsigned key_hash(const void *key)
{
    uint64_t k;
    memcpy(&k, key, sizeof(k));
    return (unsigned)(k * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}
#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = key_hash(keyptr))

#include "base/hash.h"

#endif
