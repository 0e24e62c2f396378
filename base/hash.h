/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash whose tables may fail to grow: its own answer to that is exit(). After HASH_ADD and its
 * like the caller asks HASH_ADDED; an item that was not added belongs to the caller as before.
 * HASH_FUNCTION, if another is wanted, is defined before this is included.
 */
#ifndef INFERD_BASE_HASH_H
#define INFERD_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

/* For texts; its own default makes clang speak of fall-through. */
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
