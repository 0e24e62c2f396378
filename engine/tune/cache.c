/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing cache. Keys are salted with the device's fingerprint, so one file serves many devices
 * and library versions, and entries of a device that is gone are simply never asked for.
 *
 * The file is little-endian: "INFTIMES", u32 version, u32 number of times, u32 number of codes,
 * u32 zero, then the times by rising key (u64 high, u64 low, u64 nanoseconds), then the codes by
 * rising key (u64 high, u64 low, u64 n, n bytes padded to 8), then the 16 bytes of XXH3-128 over
 * all bytes before them. Two saves of the same entries have the same bytes.
 *
 * A code is a chosen tactic in its compiled form. Codes are large, so their sum is bounded: beyond
 * it, the file leaves out codes that this process did not ask for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/hash.h"
#include "engine/tune/internal.h"

enum {
    HEAD = 24,
    ENTRY = 24,
    DIGEST = 16,
    CACHE_VERSION = 2,
    CACHE_MAX_BYTES = 512 << 20,
    CODES_MAX_BYTES = 192 << 20,
};

static const char magic[8] = {'I', 'N', 'F', 'T', 'I', 'M', 'E', 'S'};

struct entry {
    struct tune_key key;
    uint64_t ns;
    UT_hash_handle hh;
};

struct code {
    struct tune_key key;
    void *data;
    uint64_t size;
    bool used; /* by this process */
    UT_hash_handle hh;
};

struct tune_cache {
    uint64_t salt; /* of the device */
    struct entry *entries;
    struct code *codes;
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
    HASH_FIND(hh, cache->entries, key, sizeof(*key), e); /* NOLINT: hashes bytes that are set */
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
    if (!HASH_ADDED(e)) {
        free(e);
        return false;
    }
    return true;
}

bool tune_cache_put(struct tune_cache *cache, const struct tune_key *key, uint64_t ns)
{
    struct tune_key here = salted(cache, key);
    cache->changed = true;
    return add(cache, &here, ns);
}

/* --- codes --- */

static struct code *find_code(const struct tune_cache *cache, const struct tune_key *key)
{
    struct code *c = NULL;
    HASH_FIND(hh, cache->codes, key, sizeof(*key), c); /* NOLINT: the same */
    return c;
}

/* Does not touch `changed`. */
static bool add_code(struct tune_cache *cache, const struct tune_key *key, const void *data,
                     uint64_t size, bool used)
{
    void *copy = malloc(size ? size : 1);
    struct code *c = find_code(cache, key);
    bool known = c != NULL;
    if (!known)
        c = calloc(1, sizeof(*c));
    if (!copy || !c) {
        free(copy);
        if (!known)
            free(c);
        return false;
    }
    memcpy(copy, data, size);
    free(c->data);
    c->data = copy;
    c->size = size;
    c->used = used;
    if (!known) {
        c->key = *key;
        HASH_ADD(hh, cache->codes, key, sizeof(c->key), c);
        if (!HASH_ADDED(c)) {
            free(copy);
            free(c);
            return false;
        }
    }
    return true;
}

bool tune_cache_get_code(struct tune_cache *cache, const struct tune_key *key, const void **code,
                         uint64_t *size)
{
    struct tune_key here = salted(cache, key);
    struct code *c = find_code(cache, &here);
    if (!c)
        return false;
    c->used = true;
    *code = c->data;
    *size = c->size;
    return true;
}

bool tune_cache_put_code(struct tune_cache *cache, const struct tune_key *key, const void *code,
                         uint64_t size)
{
    struct tune_key here = salted(cache, key);
    cache->changed = true;
    return add_code(cache, &here, code, size, true);
}

void tune_cache_free(struct tune_cache *cache)
{
    if (!cache)
        return;
    struct entry *e, *next;
    struct code *c, *after;
    HASH_ITER(hh, cache->codes, c, after)
    {
        HASH_DEL(cache->codes, c); /* NOLINT: the analyser loses uthash's list */
        free(c->data);
        free(c);
    }
    HASH_ITER(hh, cache->entries, e, next)
    {
        HASH_DEL(cache->entries, e); /* NOLINT: the same */
        free(e);
    }
    free(cache);
}

enum status tune_cache_new(struct device *device, struct tune_cache **out, struct error *err)
{
    char fingerprint[FINGERPRINT_MAX];
    struct tune_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return error_no_memory(err, "the timing cache");
    device->backend->device_fingerprint(device, fingerprint);
    cache->salt = XXH3_64bits(fingerprint, strlen(fingerprint));
    *out = cache;
    return STATUS_OK;
}

static uint64_t padded(uint64_t size)
{
    return (size + 7) / 8 * 8;
}

static uint32_t times_of(const uint8_t *data)
{
    return (uint32_t)(get_u64(data + 8) >> 32);
}

static uint32_t codes_of(const uint8_t *data)
{
    return (uint32_t)get_u64(data + 16);
}

/* Whether the entries fill the file between head and digest exactly. */
static bool entries_fit(const uint8_t *data, size_t size)
{
    uint64_t left = size - HEAD - DIGEST, times = (uint64_t)times_of(data) * ENTRY;
    if (times > left)
        return false;
    const uint8_t *at = data + HEAD + times;
    left -= times;
    for (uint32_t i = codes_of(data); i > 0; i--) {
        if (left < ENTRY)
            return false;
        uint64_t bytes = get_u64(at + 16);
        if (bytes > left - ENTRY || padded(bytes) > left - ENTRY)
            return false;
        at += ENTRY + padded(bytes);
        left -= ENTRY + padded(bytes);
    }
    return left == 0;
}

/* Why the bytes are not a cache; NULL if they are one. */
static const char *fault_of(const uint8_t *data, size_t size)
{
    uint8_t digest[DIGEST];
    if (size < HEAD + DIGEST || memcmp(data, magic, sizeof(magic)) != 0)
        return "not a timing cache";
    if ((uint32_t)get_u64(data + 8) != CACHE_VERSION)
        return "of another version";
    if (!entries_fit(data, size))
        return "cut short";
    XXH128_hash_t hash = XXH3_128bits(data, size - DIGEST);
    put_u64(digest, hash.low64);
    put_u64(digest + 8, hash.high64);
    return memcmp(digest, data + size - DIGEST, DIGEST) ? "damaged" : NULL;
}

static enum status merge(struct tune_cache *cache, const uint8_t *data, bool keep,
                         struct error *err)
{
    const uint8_t *at = data + HEAD;
    bool ok = true;
    for (uint32_t i = times_of(data); i > 0 && ok; i--, at += ENTRY) {
        struct tune_key key = {get_u64(at), get_u64(at + 8)};
        ok = (keep && find(cache, &key)) || add(cache, &key, get_u64(at + 16));
    }
    for (uint32_t i = codes_of(data); i > 0 && ok; i--) {
        struct tune_key key = {get_u64(at), get_u64(at + 8)};
        uint64_t size = get_u64(at + 16);
        ok = (keep && find_code(cache, &key)) || add_code(cache, &key, at + ENTRY, size, false);
        at += ENTRY + padded(size);
    }
    return ok ? STATUS_OK : error_no_memory(err, "the timing cache");
}

enum status tune_cache_merge(struct tune_cache *cache, const void *data, size_t size, bool keep,
                             const char **fault, struct error *err)
{
    *fault = fault_of(data, size);
    return *fault ? STATUS_OK : merge(cache, data, keep, err);
}

/* Merges the file into the cache; a file that is missing or unsound changes nothing. */
static enum status read_file(struct tune_cache *cache, const char *path, bool keep,
                             const struct log_sink *log, struct error *err)
{
    struct file_map map = {0};
    struct error why;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return STATUS_OK;
    if (file_map_path(path, CACHE_MAX_BYTES, &map, &why)) {
        log_write(log, LOG_WARNING, "timing cache ignored: %s", why.text);
        return STATUS_OK;
    }
    const char *fault;
    enum status status = tune_cache_merge(cache, map.data, map.size, keep, &fault, err);
    if (fault)
        log_write(log, LOG_WARNING, "timing cache %s ignored: %s", path, fault);
    file_unmap(&map);
    return status;
}

static void cache_cleanup(struct tune_cache **cache)
{
    tune_cache_free(*cache);
}

enum status tune_cache_load(const char *path, struct device *device, const struct log_sink *log,
                            struct tune_cache **out, struct error *err)
{
    CLEANUP(cache_cleanup) struct tune_cache *cache = NULL;
    TRY(tune_cache_new(device, &cache, err));
    TRY(read_file(cache, path, false, log, err));
    *out = STEAL(cache);
    return STATUS_OK;
}

static int by_key(const struct entry *a, const struct entry *b)
{
    return tune_key_compare(&a->key, &b->key);
}

static int by_code_key(const struct code *a, const struct code *b)
{
    return tune_key_compare(&a->key, &b->key);
}

/* Drops codes that this process did not ask for if all together are too large. Sorts the others,
 * sets *n to their number and returns the bytes that they take in the file. */
static uint64_t choose_codes(struct tune_cache *cache, uint32_t *n)
{
    uint64_t used = 0, sum = 0;
    *n = 0;
    struct code *c, *next;
    for (c = cache->codes; c; c = c->hh.next)
        used += c->used ? ENTRY + padded(c->size) : 0;
    HASH_SORT(cache->codes, by_code_key);
    HASH_ITER(hh, cache->codes, c, next)
    {
        uint64_t bytes = ENTRY + padded(c->size);
        if (!c->used && used + bytes > CODES_MAX_BYTES) {
            HASH_DEL(cache->codes, c); /* NOLINT: the analyser loses uthash's list */
            free(c->data);
            free(c);
            continue;
        }
        used += c->used ? 0 : bytes;
        sum += bytes;
        (*n)++;
    }
    return sum;
}

/* The file's bytes, which the caller frees; NULL: no memory. */
static uint8_t *spell(struct tune_cache *cache, size_t *size)
{
    uint32_t n_codes;
    size_t n = HASH_COUNT(cache->entries);
    uint64_t codes = choose_codes(cache, &n_codes);
    *size = HEAD + n * ENTRY + codes + DIGEST;
    uint8_t *data = calloc(1, *size);
    if (!data)
        return NULL;
    uint8_t *at = data + HEAD;
    memcpy(data, magic, sizeof(magic));
    put_u64(data + 8, (uint64_t)n << 32 | CACHE_VERSION);
    put_u64(data + 16, n_codes);
    HASH_SORT(cache->entries, by_key);
    for (const struct entry *e = cache->entries; e; e = e->hh.next, at += ENTRY) {
        put_u64(at, e->key.high);
        put_u64(at + 8, e->key.low);
        put_u64(at + 16, e->ns);
    }
    for (const struct code *c = cache->codes; c; c = c->hh.next) {
        put_u64(at, c->key.high);
        put_u64(at + 8, c->key.low);
        put_u64(at + 16, c->size);
        memcpy(at + ENTRY, c->data, c->size);
        at += ENTRY + padded(c->size);
    }
    XXH128_hash_t hash = XXH3_128bits(data, *size - DIGEST);
    put_u64(at, hash.low64);
    put_u64(at + 8, hash.high64);
    return data;
}

/* The writer holds the file's lock, so entries that another process has added since are kept. */
static enum status save_to(struct file_writer *writer, struct tune_cache *cache, const char *path,
                           struct error *err)
{
    size_t size = 0;
    TRY(read_file(cache, path, true, NULL, err));
    CLEANUP(cleanup_free) uint8_t *data = spell(cache, &size);
    if (!data)
        return error_no_memory(err, "the timing cache");
    TRY(file_writer_put(writer, data, size, err));
    TRY(file_writer_commit(writer, err));
    cache->changed = false;
    return STATUS_OK;
}

enum status tune_cache_save(struct tune_cache *cache, const char *path, struct error *err)
{
    struct file_writer *writer = NULL;
    if (!cache->changed)
        return STATUS_OK;
    TRY(file_writer_new(path, true, &writer, err));
    enum status status = save_to(writer, cache, path, err);
    file_writer_free(writer);
    return status;
}
