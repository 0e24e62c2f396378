/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan file -> struct plan: the header is checked first, then the digest, and only then the
 * contents. A file is read into memory of our own, and its digest is made on the way. The contents
 * are looked at once the whole file is in memory and the caller's guard has accepted it.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/plan/format.h"

static void put_hash(XXH128_hash_t hash, uint8_t out[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, 16);
}

void plan_digest(const struct plan_header *header, XXH128_hash_t rest, uint8_t out[16])
{
    struct plan_header copy = *header;
    put_hash(rest, copy.digest);
    put_hash(XXH3_128bits(&copy, sizeof(copy)), out);
}

static bool all_zero(const void *data, size_t size)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++)
        if (p[i])
            return false;
    return true;
}

static bool section_ok(uint64_t offset, uint64_t size, uint64_t file_size)
{
    return offset <= file_size && size <= file_size - offset;
}

/* Whether the sections are where they must be; their sizes leave only one right answer. */
static bool sections_ok(const struct plan_header *h, size_t size)
{
    size_t end, code, tail;
    return h->file_size == size && h->structure_offset == sizeof(*h) &&
           h->structure_size <= PLAN_MAX_STRUCTURE &&
           section_ok(h->structure_offset, h->structure_size, size) &&
           checked_round_up(sizeof(*h) + h->structure_size, PLAN_PAGE, &end) &&
           h->weights_offset == end && section_ok(h->weights_offset, h->weights_size, size) &&
           checked_round_up(end + h->weights_size, PLAN_PAGE, &code) &&
           h->code_offset == (h->code_size ? code : end + h->weights_size) &&
           section_ok(h->code_offset, h->code_size, size) &&
           checked_round_up(h->code_offset + h->code_size, PLAN_PAGE, &tail) &&
           h->tail_offset == (h->tail_size ? tail : h->code_offset + h->code_size) &&
           section_ok(h->tail_offset, h->tail_size, size) && h->tail_offset + h->tail_size == size;
}

/* Checks what can be checked without the rest of the file. */
static enum status check_lengths(const struct plan_header *h, size_t size, struct error *err)
{
    if (memcmp(h->magic, PLAN_MAGIC, sizeof(h->magic)) != 0)
        return error_set(err, STATUS_DATA_LOSS, "not a plan file");
    if (h->endian != PLAN_ENDIAN)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the plan was built on a machine of another byte order: build it here");
    if (h->version != PLAN_VERSION)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the plan has format version %u, this program reads %d: build it again",
                         h->version, PLAN_VERSION);
    if (!sections_ok(h, size))
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: its lengths do not add up");
    return STATUS_OK;
}

/* `rest` is the hash of all bytes behind the header; NULL: the digest means nothing. */
static enum status check_header(const struct plan_header *h, size_t size, const XXH128_hash_t *rest,
                                struct error *err)
{
    uint8_t digest[16];
    TRY(check_lengths(h, size, err));
    if (rest)
        plan_digest(h, *rest, digest);
    if (rest && memcmp(digest, h->digest, sizeof(digest)) != 0)
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: its digest does not match");
    size_t len = strnlen(h->device, sizeof(h->device));
    if (len == sizeof(h->device) || !all_zero(h->device + len, sizeof(h->device) - len) ||
        !all_zero(h->reserved, sizeof(h->reserved)))
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: bad header");
    return STATUS_OK;
}

static enum status too_short(struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: too short");
}

/* A plan with what its header says. NULL: no memory. */
static struct plan *plan_of(const struct plan_header *h)
{
    struct plan *plan = plan_new();
    if (!plan)
        return NULL;
    memcpy(plan->device, h->device, sizeof(plan->device));
    for (int i = 0; i < 16; i++) {
        static const char hex[] = "0123456789abcdef";
        plan->digest[2 * i] = hex[h->model_digest[i] >> 4];
        plan->digest[2 * i + 1] = hex[h->model_digest[i] & 15];
    }
    return plan;
}

/* `data` holds a whole header at least; `rest` is the hash of all bytes behind it. */
static enum status read_hashed(const void *data, size_t size, XXH128_hash_t rest, struct plan **out,
                               struct error *err)
{
    struct plan_header h;
    memcpy(&h, data, sizeof(h));
    TRY(check_header(&h, size, &rest, err));
    CLEANUP(plan_cleanup) struct plan *plan = plan_of(&h);
    if (!plan)
        return error_no_memory(err, "a plan");
    plan->weights = (const char *)data + h.weights_offset;
    plan->weight_bytes = h.weights_size;
    plan->code = (const char *)data + h.code_offset;
    plan->code_bytes = h.code_size;
    plan->tail = (const char *)data + h.tail_offset;
    plan->tail_bytes = h.tail_size;
    TRY(plan_decode(plan, (const char *)data + h.structure_offset, h.structure_size, err));
    TRY(plan_check(plan, err));
    *out = STEAL(plan);
    return STATUS_OK;
}

enum status plan_read_memory(const void *data, size_t size, struct plan **out, struct error *err)
{
    const size_t head = sizeof(struct plan_header);
    if (size < head)
        return too_short(err);
    return read_hashed(data, size, XXH3_128bits((const char *)data + head, size - head), out, err);
}

enum status plan_read_body(const void *head, size_t head_size, const void *weights,
                           size_t weights_size, struct plan **out, struct error *err)
{
    struct plan_header h;
    if (head_size < sizeof(h))
        return too_short(err);
    memcpy(&h, head, sizeof(h));
    TRY(check_header(&h, h.file_size, NULL, err));
    if (h.structure_size != head_size - sizeof(h) || h.weights_size != weights_size ||
        h.code_size || h.tail_size)
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: its parts do not add up");
    CLEANUP(plan_cleanup) struct plan *plan = plan_of(&h);
    if (!plan)
        return error_no_memory(err, "a plan");
    plan->weights = weights;
    plan->weight_bytes = weights_size;
    TRY(plan_decode(plan, (const char *)head + sizeof(h), h.structure_size, err));
    TRY(plan_check(plan, err));
    *out = STEAL(plan);
    return STATUS_OK;
}

/* --- files --- */

static enum status header_read(int fd, struct plan_header *out, struct error *err)
{
    ssize_t n;
    do
        n = pread(fd, out, sizeof(*out), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_errno(err, errno, "read");
    return (size_t)n < sizeof(*out) ? too_short(err) : STATUS_OK;
}

/* Checks whether the file can be a plan at all, before memory of its size is taken. */
static enum status first_look(int fd, struct error *err)
{
    struct plan_header h;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_errno(err, errno, "stat");
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "not a regular file");
    TRY(header_read(fd, &h, err));
    return check_lengths(&h, (size_t)st.st_size, err);
}

struct hashing {
    XXH3_state_t *state;
    size_t header; /* bytes of the header that have not come yet */
};

static void hash_piece(void *user, const void *data, size_t size)
{
    struct hashing *h = user;
    size_t skip = MIN(size, h->header);
    h->header -= skip;
    XXH3_128bits_update(h->state, (const char *)data + skip, size - skip);
}

/* *map: the file's bytes; *rest: the hash of all bytes behind the header. */
static enum status load(int fd, const char *name, const struct file_guard *guard,
                        struct file_map *map, XXH128_hash_t *rest, struct error *err)
{
    struct hashing hashing = {XXH3_createState(), sizeof(struct plan_header)};
    const struct file_read how = {
        .name = name, .guard = guard, .piece = hash_piece, .user = &hashing};
    if (!hashing.state || XXH3_128bits_reset(hashing.state) != XXH_OK) {
        XXH3_freeState(hashing.state);
        return error_no_memory(err, "a digest of %s", name);
    }
    enum status status = file_load(fd, &how, map, err);
    if (!status)
        *rest = XXH3_128bits_digest(hashing.state);
    XXH3_freeState(hashing.state);
    return status;
}

enum status plan_read_fd(int fd, const char *name, const struct file_guard *guard,
                         struct plan **out, struct error *err)
{
    struct file_map map = {0};
    struct plan *plan = NULL;
    XXH128_hash_t rest;
    enum status status = first_look(fd, err);
    if (status) {
        error_prefix(err, "%s", name);
        return status;
    }
    TRY(load(fd, name, guard, &map, &rest, err)); /* its errors have the name */
    status = map.size < sizeof(struct plan_header)
                 ? too_short(err)
                 : read_hashed(map.data, map.size, rest, &plan, err);
    if (status) {
        error_prefix(err, "%s", name);
        file_unmap(&map);
        return status;
    }
    assert(plan);
    plan->map = map;
    *out = plan;
    return STATUS_OK;
}

enum status plan_read(const char *path, struct plan **out, struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    TRY(file_open(path, &fd, err));
    return plan_read_fd(fd, path, NULL, out, err);
}

enum status plan_read_device(const char *path, char device[PLAN_DEVICE_MAX], struct error *err)
{
    struct plan_header h;
    CLEANUP(cleanup_close) int fd = -1;
    TRY(file_open(path, &fd, err));
    if (header_read(fd, &h, err) || memcmp(h.magic, PLAN_MAGIC, sizeof(h.magic)) != 0 ||
        strnlen(h.device, sizeof(h.device)) == sizeof(h.device))
        return error_set(err, STATUS_DATA_LOSS, "%s: not a plan file", path);
    memcpy(device, h.device, sizeof(h.device));
    return STATUS_OK;
}
