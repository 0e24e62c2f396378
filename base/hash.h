/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash whose tables may fail to grow: its own answer to that is exit(). After HASH_ADD and its
 * like the caller asks HASH_ADDED; an item that was not added belongs to the caller as before.
 * HASH_FUNCTION, if another is wanted, is defined before this is included.
 */
#ifndef INFERD_BASE_HASH_H
#define INFERD_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define HASH_ADDED(item) ((item)->hh.tbl != NULL)

#endif
