/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash, set up so that a table which cannot grow reports it; uthash alone would call exit().
 * After HASH_ADD and the like the caller asks HASH_ADDED; an item that was not added belongs to the
 * caller as before. A file that wants another HASH_FUNCTION defines it before it includes this
 * header.
 */
#ifndef INFERD_BASE_HASH_H
#define INFERD_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

/* A hash for texts, because clang warns of fall-through in uthash's default. */
static inline unsigned hash_fnv1a(const void *key, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)key;
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

#define HASH_ADDED(item) ((item)->hh.tbl != NULL)

#endif
