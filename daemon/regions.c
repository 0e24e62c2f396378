/* SPDX-License-Identifier: Apache-2.0 */
/* Registered regions, see regions.h. */
#include "daemon/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "daemon/caller.h"

#define FOLDER "/dev/shm" /* where shm_open(3) has its files */

struct region {
    _Atomic uint32_t refs;
    enum region_kind kind;
    int fd;                /* of the system's; -1: none */
    struct device *device; /* of a GPU's, */
    struct backend_shared *shared;
    uint64_t number; /* and the device's number */
    uint64_t offset, size;
    char name[REQUEST_MAX_REGION + 1];
    char key[NAME_MAX + 1];    /* without the slash in front of it */
    uint8_t address[PEER_KEY]; /* together with the owner: whose share it counts to */
    char owner[];
};

struct regions {
    char prefix[NAME_MAX + 1]; /* empty: there are none of the system's */
    struct device *device;     /* NULL: there are none of a GPU's */
    uint64_t number;           /* of the device */
    uint32_t most;
    uint64_t most_bytes;
    pthread_mutex_t lock; /* guards all below */
    uint32_t n;
    uint64_t bytes;
    struct region *items[];
};

/* --- whose they are --- */

void regions_owner_of(const struct identities *identities, const struct identity *who, int fd,
                      const struct peer *address, struct regions_owner *out)
{
    struct credentials peer = {0};
    credentials_read(fd, &peer);
    *out = (struct regions_owner){.has_user = peer.known, .user = peer.uid};
    if (peer.known)
        snprintf(out->name, sizeof(out->name), "%s@%u", identity_name(who), (unsigned)peer.uid);
    else
        snprintf(out->name, sizeof(out->name), "%s", identity_name(who));
    bool told = peer.known || who != identities_anonymous(identities);
    out->has_share = told || (address && !address->local);
    if (!told && address)
        memcpy(out->address, address->key, PEER_KEY);
}

/* --- the table --- */

/* glibc and Python add slashes in front of a name, which mean nothing. */
static struct message_text key_strip(struct message_text key)
{
    while (key.len && *key.data == '/')
        key = (struct message_text){key.data + 1, key.len - 1};
    return key;
}

/* The number in "cuda:N"; 0 if there is none. */
static uint64_t number_of(const char *device)
{
    const char *colon = strchr(device, ':');
    return colon ? strtoull(colon + 1, NULL, 10) : 0;
}

enum status regions_new(const struct config *config, uint32_t most, struct device *device,
                        struct regions **out, struct error *err)
{
    *out = NULL;
    if (!config->shared_memory && !config->cuda_shared_memory)
        return STATUS_OK;
    most = MIN(most, config->limits.regions);
    struct regions *regions = calloc(1, sizeof(*regions) + most * sizeof(struct region *));
    if (!regions)
        return error_no_memory(err, "regions");
    struct message_text prefix = key_strip(message_text_of(config->shared_memory));
    if (prefix.len)
        memcpy(regions->prefix, prefix.data, MIN(prefix.len, (size_t)NAME_MAX));
    if (config->cuda_shared_memory && engine_shares(device))
        regions->device = device;
    regions->number = number_of(config->device);
    regions->most = most;
    regions->most_bytes = config->limits.region_bytes;
    pthread_mutex_init(&regions->lock, NULL);
    *out = regions;
    return STATUS_OK;
}

bool regions_offered(const struct regions *regions, enum region_kind kind)
{
    return regions && (kind == REGION_CUDA ? regions->device != NULL : regions->prefix[0] != '\0');
}

void regions_free(struct regions *regions)
{
    if (!regions)
        return;
    for (uint32_t i = 0; i < regions->n; i++)
        region_give(regions->items[i]);
    pthread_mutex_destroy(&regions->lock);
    free(regions);
}

void region_give(struct region *region)
{
    if (!region || atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (region->fd >= 0)
        close(region->fd);
    if (region->shared)
        engine_shared_close(region->device, region->shared);
    free(region);
}

const char *region_name(const struct region *region)
{
    return region->name;
}

static void region_cleanup(struct region **region)
{
    region_give(*region);
}

static bool belongs(const struct region *region, const struct regions_owner *owner,
                    struct message_text name)
{
    return strcmp(region->owner, owner->name) == 0 &&
           (!name.len || message_text_equal(name, message_text_of(region->name)));
}

/* --- registering --- */

static enum status name_check(struct message_text name, struct error *err)
{
    bool plain = name.len > 0 && name.len <= REQUEST_MAX_REGION && utf8_ok(name.data, name.len);
    for (size_t i = 0; plain && i < name.len; i++)
        plain = (unsigned char)name.data[i] >= ' ' && name.data[i] != 0x7f;
    if (plain)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "region '%.*s': expected a name of 1 to %d bytes without control characters",
                     MESSAGE_TEXT(name), REQUEST_MAX_REGION);
}

static enum status key_check(const struct regions *regions, struct message_text key,
                             struct error *err)
{
    const char *prefix = regions->prefix;
    size_t n = strlen(prefix);
    if (key.len >= n && key.len <= NAME_MAX && memcmp(key.data, prefix, n) == 0 &&
        !memchr(key.data, '/', key.len) && !memchr(key.data, '\0', key.len))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "key '%.*s': expected a name without slashes that begins with '%s'",
                     MESSAGE_TEXT(key), prefix);
}

/* Refuses what could make a later call wait, or is not meant to be shared. */
static enum status file_check(const struct region *region, const struct regions_owner *owner,
                              struct error *err)
{
    struct stat st;
    struct statfs fs;
    uint64_t end;
    if (fstat(region->fd, &st) || fstatfs(region->fd, &fs))
        return error_set(err, STATUS_INVALID_ARGUMENT, "key '%s': %s", region->key,
                         strerror(errno));
    if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC || st.st_nlink > 1)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "key '%s': expected a regular file on tmpfs with one name", region->key);
    if (owner->has_user && owner->user != 0 && st.st_uid != owner->user)
        return error_set(err, STATUS_PERMISSION_DENIED, "key '%s': the file is another user's",
                         region->key);
    if (__builtin_add_overflow(region->offset, region->size, &end) || end > (uint64_t)st.st_size)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "key '%s': %llu bytes from %llu on are beyond its %llu bytes", region->key,
                         (unsigned long long)region->size, (unsigned long long)region->offset,
                         (unsigned long long)st.st_size);
    return STATUS_OK;
}

/* Not blocking: neither a pipe nor somebody's lease on the file holds the caller up. */
static enum status file_open(struct region *region, struct error *err)
{
    char path[sizeof(FOLDER "/") + NAME_MAX];
    snprintf(path, sizeof(path), FOLDER "/%s", region->key);
    region->fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (region->fd >= 0)
        return STATUS_OK;
    bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return error_set(err, full ? STATUS_RESOURCE_EXHAUSTED : STATUS_INVALID_ARGUMENT,
                     "key '%s': %s (it is opened as the server's user, to read and write)",
                     region->key, strerror(errno));
}

/* What the handle stands for is checked by the device. */
static enum status handle_open(const struct regions *regions, const struct request_region *wanted,
                               struct region *region, struct error *err)
{
    if (wanted->key.len != ENGINE_HANDLE_BYTES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a handle of %zu bytes; expected %d",
                         wanted->key.len, ENGINE_HANDLE_BYTES);
    if (wanted->device != regions->number)
        return error_set(err, STATUS_INVALID_ARGUMENT, "device_id %llu; this server's is %llu",
                         (unsigned long long)wanted->device, (unsigned long long)regions->number);
    region->device = regions->device;
    region->number = wanted->device;
    return engine_shared_open(regions->device, wanted->key.data, wanted->size, &region->shared,
                              err);
}

static enum status region_open(const struct regions *regions, enum region_kind kind,
                               const struct regions_owner *owner,
                               const struct request_region *wanted, struct region **out,
                               struct error *err)
{
    struct message_text key = key_strip(wanted->key);
    size_t length = strlen(owner->name) + 1;
    CLEANUP(region_cleanup) struct region *region = calloc(1, sizeof(*region) + length);
    if (!region)
        return error_no_memory(err, "a region");
    atomic_init(&region->refs, 1);
    region->fd = -1;
    region->kind = kind;
    region->size = wanted->size;
    memcpy(region->name, wanted->name.data, wanted->name.len);
    memcpy(region->owner, owner->name, length);
    memcpy(region->address, owner->address, PEER_KEY);
    if (kind == REGION_CUDA) {
        TRY(handle_open(regions, wanted, region, err));
    } else {
        TRY(key_check(regions, key, err));
        region->offset = wanted->offset;
        memcpy(region->key, key.data, key.len);
        TRY(file_open(region, err));
        TRY(file_check(region, owner, err));
    }
    *out = STEAL(region);
    return STATUS_OK;
}

/* --- room --- */

struct sum {
    uint32_t n;
    uint64_t bytes;
};

static bool counts_for(const struct region *region, const struct regions_owner *owner)
{
    return strcmp(region->owner, owner->name) == 0 &&
           memcmp(region->address, owner->address, PEER_KEY) == 0;
}

static struct sum sum_of(const struct regions *regions, const struct regions_owner *owner)
{
    struct sum sum = {0};
    for (uint32_t i = 0; i < regions->n; i++)
        if (counts_for(regions->items[i], owner)) {
            sum.n++;
            sum.bytes += regions->items[i]->size;
        }
    return sum;
}

static bool fits(const struct sum *sum, const struct sum *most, uint64_t size)
{
    return sum->n < most->n && sum->bytes <= most->bytes && size <= most->bytes - sum->bytes;
}

static bool is_dead(const struct region *region)
{
    struct stat st;
    return region->fd >= 0 && atomic_load_explicit(&region->refs, memory_order_relaxed) == 1 &&
           fstat(region->fd, &st) == 0 && st.st_nlink == 0;
}

/* Drops what nobody can open any more: of that owner, or of all if `owner` is NULL. */
static void dead_drop(struct regions *regions, const struct regions_owner *owner)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < regions->n; i++) {
        struct region *region = regions->items[i];
        if ((!owner || counts_for(region, owner)) && is_dead(region)) {
            regions->bytes -= region->size;
            region_give(region);
        } else {
            regions->items[kept++] = region;
        }
    }
    regions->n = kept;
}

static enum status room_check(const struct sum *sum, const struct sum *most, uint64_t size,
                              const char *whose, const char *limit, struct error *err)
{
    if (fits(sum, most, size))
        return STATUS_OK;
    if (sum->n >= most->n)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%u regions are registered%s, which is %s",
                         sum->n, whose, limit);
    return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                     "a region of %llu bytes beside %llu%s; %s is %llu", (unsigned long long)size,
                     (unsigned long long)sum->bytes, whose, limit, (unsigned long long)most->bytes);
}

static enum status share_check(struct regions *regions, const struct regions_owner *owner,
                               uint64_t size, struct error *err)
{
    const struct sum most = {MAX(regions->most / 2, 1u), MAX(regions->most_bytes / 2, UINT64_C(1))};
    struct sum sum = sum_of(regions, owner);
    if (!fits(&sum, &most, size)) {
        dead_drop(regions, owner);
        sum = sum_of(regions, owner);
    }
    return room_check(&sum, &most, size, " by this client", "its share", err);
}

static enum status place_check(struct regions *regions, const struct regions_owner *owner,
                               const struct request_region *wanted, struct error *err)
{
    const struct sum most = {regions->most, regions->most_bytes};
    for (uint32_t i = 0; i < regions->n; i++)
        if (belongs(regions->items[i], owner, wanted->name))
            return error_set(err, STATUS_ALREADY_EXISTS, "there is a region '%.*s' already",
                             MESSAGE_TEXT(wanted->name));
    if (owner->has_share)
        TRY(share_check(regions, owner, wanted->size, err));
    if (!fits(&(struct sum){regions->n, regions->bytes}, &most, wanted->size))
        dead_drop(regions, NULL);
    const struct sum all = {regions->n, regions->bytes};
    return room_check(&all, &most, wanted->size, "", "the limit", err);
}

enum status regions_register(struct regions *regions, enum region_kind kind,
                             const struct regions_owner *owner, const struct request_region *wanted,
                             struct error *err)
{
    CLEANUP(region_cleanup) struct region *region = NULL;
    TRY(name_check(wanted->name, err));
    if (!wanted->size)
        return error_set(err, STATUS_INVALID_ARGUMENT, "region '%.*s' has no bytes",
                         MESSAGE_TEXT(wanted->name));
    TRY(region_open(regions, kind, owner, wanted, &region, err));
    pthread_mutex_lock(&regions->lock);
    enum status status = place_check(regions, owner, wanted, err);
    if (!status) {
        regions->bytes += wanted->size;
        regions->items[regions->n++] = STEAL(region);
    }
    pthread_mutex_unlock(&regions->lock);
    return status;
}

void regions_unregister(struct regions *regions, enum region_kind kind,
                        const struct regions_owner *owner, struct message_text name)
{
    pthread_mutex_lock(&regions->lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < regions->n; i++) {
        struct region *region = regions->items[i];
        if (region->kind == kind && belongs(region, owner, name)) {
            regions->bytes -= region->size;
            region_give(region);
        } else {
            regions->items[kept++] = region;
        }
    }
    regions->n = kept;
    pthread_mutex_unlock(&regions->lock);
}

static bool row_fill(const struct region *region, struct arena *arena, struct body_region *out)
{
    *out = (struct body_region){.name = arena_printf(arena, "%s", region->name),
                                .key = arena_printf(arena, "/%s", region->key),
                                .device = region->number,
                                .offset = region->offset,
                                .size = region->size};
    return out->name && out->key;
}

enum status regions_list(struct regions *regions, enum region_kind kind,
                         const struct regions_owner *owner, struct message_text name,
                         struct arena *arena, struct body_regions *out, struct error *err)
{
    *out = (struct body_regions){0};
    pthread_mutex_lock(&regions->lock);
    struct body_region *items = arena_array(arena, MAX(regions->n, 1u), sizeof(*items));
    bool filled = items != NULL;
    for (uint32_t i = 0; filled && i < regions->n; i++)
        if (regions->items[i]->kind == kind && belongs(regions->items[i], owner, name))
            filled = row_fill(regions->items[i], arena, &items[out->n++]);
    pthread_mutex_unlock(&regions->lock);
    out->items = items;
    if (!filled)
        return error_no_memory(err, "a description");
    if (name.len && !out->n)
        return error_set(err, STATUS_NOT_FOUND, "there is no region '%.*s'", MESSAGE_TEXT(name));
    return STATUS_OK;
}

void regions_count(struct regions *regions, uint32_t *n, uint64_t *bytes)
{
    pthread_mutex_lock(&regions->lock);
    *n = regions->n;
    *bytes = regions->bytes;
    pthread_mutex_unlock(&regions->lock);
}

/* --- using --- */

static enum status range_check(const struct region *region, const struct message_region *place,
                               struct error *err)
{
    if (place->offset <= region->size && place->size <= region->size - place->offset)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "region '%s': %llu bytes from %llu on are beyond its %llu bytes", region->name,
                     (unsigned long long)place->size, (unsigned long long)place->offset,
                     (unsigned long long)region->size);
}

enum status region_take(struct regions *regions, const struct regions_owner *owner,
                        const struct message_region *place, struct region **out, struct error *err)
{
    CLEANUP(region_cleanup) struct region *found = NULL;
    if (regions) {
        pthread_mutex_lock(&regions->lock);
        for (uint32_t i = 0; i < regions->n && !found; i++)
            if (belongs(regions->items[i], owner, place->name))
                found = regions->items[i];
        if (found)
            atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
        pthread_mutex_unlock(&regions->lock);
    }
    if (!found)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "there is no region '%.*s' of shared memory%s", MESSAGE_TEXT(place->name),
                         regions ? "" : "; none is offered here");
    TRY(range_check(found, place, err));
    *out = STEAL(found);
    return STATUS_OK;
}

static enum status failed(const struct region *region, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "region '%s': %s", region->name, why);
}

enum status region_read(const struct region *region, uint64_t at, void *to, size_t size,
                        struct error *err)
{
    if (region->kind == REGION_CUDA)
        return engine_shared_read(region->device, region->shared, at, to, size, err);
    for (size_t done = 0; done < size;) {
        ssize_t n =
            pread(region->fd, (char *)to + done, size - done, (off_t)(region->offset + at + done));
        if (n < 0 && errno != EINTR)
            return failed(region, strerror(errno), err);
        if (n == 0)
            return failed(region, "its file has become shorter", err);
        done += n > 0 ? (size_t)n : 0;
    }
    return STATUS_OK;
}

/* The size is looked at first, since a write behind the end of a file makes it longer. */
enum status region_write(const struct region *region, uint64_t at, const void *from, size_t size,
                         struct error *err)
{
    struct stat st;
    if (region->kind == REGION_CUDA)
        return engine_shared_write(region->device, region->shared, at, from, size, err);
    if (fstat(region->fd, &st))
        return failed(region, strerror(errno), err);
    if (region->offset + at + size > (uint64_t)st.st_size)
        return failed(region, "its file has become shorter", err);
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(region->fd, (const char *)from + done, size - done,
                           (off_t)(region->offset + at + done));
        if (n == 0 || (n < 0 && errno != EINTR))
            return failed(region, n ? strerror(errno) : "nothing can be written", err);
        done += n > 0 ? (size_t)n : 0;
    }
    return STATUS_OK;
}
