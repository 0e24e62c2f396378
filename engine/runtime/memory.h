/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All memory that the runtime takes from a backend is taken by these functions, so that there can
 * be an account of it: what each allocation was for, its size and time, and the peak of each tag.
 * The account is off until memory_track_start; then each allocation takes a lock and a record.
 * Nothing on the path of a request allocates.
 */
#ifndef INFERD_ENGINE_RUNTIME_MEMORY_H
#define INFERD_ENGINE_RUNTIME_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/backend.h"

enum { MEMORY_TAG_MAX = 32 };

struct memory_record {
    char tag[MEMORY_TAG_MAX];
    enum memory_kind kind;
    size_t size;
    uint64_t taken_ns;    /* clock_now_ns */
    uint64_t released_ns; /* 0: still held */
};

struct memory_tag {
    char tag[MEMORY_TAG_MAX];
    enum memory_kind kind; /* of the last allocation */
    size_t held, peak;     /* bytes */
    uint64_t count;        /* allocations so far */
};

enum status memory_alloc(struct device *device, enum memory_kind kind, size_t size, const char *tag,
                         void **out, struct error *err);
void memory_free(struct device *device, enum memory_kind kind, void *memory); /* NULL is fine */

/* For memory that is not allocated by the backend's memory_alloc: arenas, mapped weights. `key`
 * identifies it; noting a key again changes its size (0: released). */
void memory_note(struct device *device, enum memory_kind kind, const void *key, const char *tag,
                 size_t size);

/* Must be called before other threads use the device. Earlier allocations are not in the
 * account. */
enum status memory_track_start(struct device *device, struct error *err);
void memory_track_stop(struct device *device); /* no other thread may use the device any more */

/* Any thread may call these while the account is on. Both copy at most `max` and return how many
 * there are. Records are in order of time; beyond 65,536 the oldest are dropped. */
size_t memory_track_records(struct device *device, struct memory_record *out, size_t max);
size_t memory_track_tags(struct device *device, struct memory_tag *out, size_t max);

#endif
