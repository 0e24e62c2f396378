/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing cache. Keys are salted with the device's fingerprint, so one file serves many devices
 * and library versions, and what no longer fits is simply never asked for.
 *
 * File, little-endian: "INFTIMES", u32 version, u32 number of entries, then the entries by rising
 * key (u64 high, u64 low, u64 nanoseconds), then the 16 bytes of XXH3-128 over all before it. Two
 * saves of the same entries have the same bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"
#include "engine/tune/internal.h"

#include <uthash.h>

enum { HEAD = 16, ENTRY = 24, DIGEST = 16, CACHE_VERSION = 1, CACHE_MAX_BYTES = 256 << 20 };

static const char magic[8] = {'I', 'N', 'F', 'T', 'I', 'M', 'E', 'S'};

struct entry {
    struct tune_key key;
    uint64_t ns;
    UT_hash_handle hh;
};

struct tune_cache {
    uint64_t salt; /* of the device */
    struct entry *entries;
    bool changed; /* since it was loaded */
};

static uint64_t get_u64(const uint8_t *from)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | from[i];
    return v;
}

static void put_u64(uint8_t *to, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static struct entry *find(const struct tune_cache *cache, const struct tune_key *key)
{
    struct entry *e = NULL;
    HASH_FIND(hh, cache->entries, key, sizeof(*key), e);
    return e;
}

static struct tune_key salted(const struct tune_cache *cache, const struct tune_key *key)
{
    uint8_t bytes[16];
    put_u64(bytes, key->high);
    put_u64(bytes + 8, key->low);
    XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, sizeof(bytes), cache->salt);
    return (struct tune_key){hash.high64, hash.low64};
}

bool tune_cache_get(const struct tune_cache *cache, const struct tune_key *key, uint64_t *ns)
{
    struct tune_key here = salted(cache, key);
    const struct entry *e = find(cache, &here);
    if (e)
        *ns = e->ns;
    return e != NULL;
}

/* Does not touch `changed`. */
static bool add(struct tune_cache *cache, const struct tune_key *key, uint64_t ns)
{
    struct entry *e = find(cache, key);
    if (e) {
        e->ns = ns;
        return true;
    }
    e = calloc(1, sizeof(*e));
    if (!e)
        return false;
    e->key = *key;
    e->ns = ns;
    HASH_ADD(hh, cache->entries, key, sizeof(e->key), e);
    return true;
}

bool tune_cache_put(struct tune_cache *cache, const struct tune_key *key, uint64_t ns)
{
    struct tune_key here = salted(cache, key);
    cache->changed = true;
    return add(cache, &here, ns);
}

void tune_cache_free(struct tune_cache *cache)
{
    if (!cache)
        return;
    struct entry *e, *next;
    HASH_ITER(hh, cache->entries, e, next)
    {
        HASH_DEL(cache->entries, e);
        free(e);
    }
    free(cache);
}

enum status tune_cache_new(struct device *device, struct tune_cache **out, struct error *err)
{
    char fingerprint[FINGERPRINT_MAX];
    struct tune_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "timing cache: out of memory");
    device->backend->device_fingerprint(device, fingerprint);
    cache->salt = XXH3_64bits(fingerprint, strlen(fingerprint));
    *out = cache;
    return STATUS_OK;
}

/* Why the bytes are not a cache; NULL if they are one. */
static const char *fault_of(const uint8_t *data, size_t size)
{
    uint8_t digest[DIGEST];
    if (size < HEAD + DIGEST || memcmp(data, magic, sizeof(magic)) != 0)
        return "not a timing cache";
    uint64_t word = get_u64(data + 8);
    if ((uint32_t)word != CACHE_VERSION)
        return "of another version";
    if ((size - HEAD - DIGEST) % ENTRY != 0 || (size - HEAD - DIGEST) / ENTRY != word >> 32)
        return "cut short";
    XXH128_hash_t hash = XXH3_128bits(data, size - DIGEST);
    put_u64(digest, hash.low64);
    put_u64(digest + 8, hash.high64);
    return memcmp(digest, data + size - DIGEST, DIGEST) ? "damaged" : NULL;
}

/* Adds a file's entries; those that are there already stay if `keep`. */
static enum status merge(struct tune_cache *cache, const struct file_map *map, bool keep,
                         struct error *err)
{
    const uint8_t *data = map->data;
    for (size_t at = HEAD; at + ENTRY + DIGEST <= map->size; at += ENTRY) {
        struct tune_key key = {get_u64(data + at), get_u64(data + at + 8)};
        if (keep && find(cache, &key))
            continue;
        if (!add(cache, &key, get_u64(data + at + 16)))
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "timing cache: out of memory");
    }
    return STATUS_OK;
}

/* Merges the file if there is a sound one. */
static enum status read_file(struct tune_cache *cache, const char *path, bool keep,
                             const struct log_sink *log, struct error *err)
{
    struct file_map map = {0};
    struct error why;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return STATUS_OK;
    if (file_map_path(path, CACHE_MAX_BYTES, &map, &why) != STATUS_OK) {
        log_write(log, LOG_WARNING, "timing cache ignored: %s", why.text);
        return STATUS_OK;
    }
    enum status st = STATUS_OK;
    const char *fault = fault_of(map.data, map.size);
    if (fault)
        log_write(log, LOG_WARNING, "timing cache %s ignored: %s", path, fault);
    else
        st = merge(cache, &map, keep, err);
    file_unmap(&map);
    return st;
}

enum status tune_cache_load(const char *path, struct device *device, const struct log_sink *log,
                            struct tune_cache **out, struct error *err)
{
    struct tune_cache *cache;
    enum status st = tune_cache_new(device, &cache, err);
    if (st)
        return st;
    st = read_file(cache, path, false, log, err);
    if (st)
        tune_cache_free(cache);
    else
        *out = cache;
    return st;
}

static int by_key(const struct entry *a, const struct entry *b)
{
    return tune_key_compare(&a->key, &b->key);
}

/* The file's bytes; the caller frees. */
static uint8_t *spell(struct tune_cache *cache, size_t *size)
{
    size_t n = HASH_COUNT(cache->entries);
    *size = HEAD + n * ENTRY + DIGEST;
    uint8_t *data = calloc(1, *size), *at = data + HEAD;
    if (!data)
        return NULL;
    memcpy(data, magic, sizeof(magic));
    put_u64(data + 8, (uint64_t)n << 32 | CACHE_VERSION);
    HASH_SORT(cache->entries, by_key);
    for (const struct entry *e = cache->entries; e; e = e->hh.next, at += ENTRY) {
        put_u64(at, e->key.high);
        put_u64(at + 8, e->key.low);
        put_u64(at + 16, e->ns);
    }
    XXH128_hash_t hash = XXH3_128bits(data, *size - DIGEST);
    put_u64(at, hash.low64);
    put_u64(at + 8, hash.high64);
    return data;
}

enum status tune_cache_save(struct tune_cache *cache, const char *path, struct error *err)
{
    struct file_writer *writer = NULL;
    if (!cache->changed)
        return STATUS_OK;
    enum status st = file_writer_new(path, true, &writer, err);
    if (st)
        return st;
    /* Under the writer's lock: what another process has added since is kept. */
    st = read_file(cache, path, true, NULL, err);
    size_t size = 0;
    uint8_t *data = st ? NULL : spell(cache, &size);
    if (!st && !data)
        st = error_set(err, STATUS_RESOURCE_EXHAUSTED, "timing cache: out of memory");
    if (!st)
        st = file_writer_put(writer, data, size, err);
    if (!st)
        st = file_writer_commit(writer, err);
    if (!st)
        cache->changed = false;
    free(data);
    file_writer_free(writer);
    return st;
}
