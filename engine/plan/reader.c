/* SPDX-License-Identifier: Apache-2.0 */
/* Plan file -> struct plan: the header first, then the digest, only then the contents. */
#include <string.h>

#include <xxhash.h>

#include "base/checked.h"
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

/* Where the sections must be; there is only one right answer. */
static bool sections_ok(const struct plan_header *h, size_t size)
{
    size_t end, code;
    return h->file_size == size && h->structure_offset == sizeof(*h) &&
           h->structure_size <= PLAN_MAX_STRUCTURE &&
           section_ok(h->structure_offset, h->structure_size, size) &&
           checked_round_up(sizeof(*h) + h->structure_size, PLAN_PAGE, &end) &&
           h->weights_offset == end && section_ok(h->weights_offset, h->weights_size, size) &&
           checked_round_up(end + h->weights_size, PLAN_PAGE, &code) &&
           h->code_offset == (h->code_size ? code : end + h->weights_size) &&
           section_ok(h->code_offset, h->code_size, size) && h->code_offset + h->code_size == size;
}

static enum status check_header(const struct plan_header *h, const void *data, size_t size,
                                struct error *err)
{
    uint8_t digest[16];
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
    plan_digest(h, XXH3_128bits((const char *)data + sizeof(*h), size - sizeof(*h)), digest);
    if (memcmp(digest, h->digest, sizeof(digest)) != 0)
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: its digest does not match");
    size_t len = strnlen(h->device, sizeof(h->device));
    if (len == sizeof(h->device) || !all_zero(h->device + len, sizeof(h->device) - len) ||
        !all_zero(h->reserved, sizeof(h->reserved)))
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: bad header");
    return STATUS_OK;
}

enum status plan_read_memory(const void *data, size_t size, struct plan **out, struct error *err)
{
    struct plan_header h;
    if (size < sizeof(h))
        return error_set(err, STATUS_DATA_LOSS, "the plan is damaged: too short");
    memcpy(&h, data, sizeof(h));
    enum status status = check_header(&h, data, size, err);
    if (status)
        return status;
    struct plan *plan = plan_new();
    if (!plan)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "plan: out of memory");
    memcpy(plan->device, h.device, sizeof(plan->device));
    for (int i = 0; i < 16; i++) {
        static const char hex[] = "0123456789abcdef";
        plan->digest[2 * i] = hex[h.model_digest[i] >> 4];
        plan->digest[2 * i + 1] = hex[h.model_digest[i] & 15];
    }
    plan->weights = (const char *)data + h.weights_offset;
    plan->weight_bytes = h.weights_size;
    plan->code = (const char *)data + h.code_offset;
    plan->code_bytes = h.code_size;
    status = plan_decode(plan, (const char *)data + h.structure_offset, h.structure_size, err);
    if (!status)
        status = plan_check(plan, err);
    if (status) {
        plan_free(plan);
        return status;
    }
    *out = plan;
    return STATUS_OK;
}

/* Takes over the map. */
static enum status read_map(struct file_map *map, const char *name, struct plan **out,
                            struct error *err)
{
    struct plan *plan;
    enum status status = plan_read_memory(map->data, map->size, &plan, err);
    if (status) {
        error_prefix(err, "%s", name);
        file_unmap(map);
        return status;
    }
    plan->map = *map;
    *out = plan;
    return STATUS_OK;
}

enum status plan_read(const char *path, struct plan **out, struct error *err)
{
    struct file_map map;
    enum status status = file_map_path(path, 0, &map, err);
    return status ? status : read_map(&map, path, out, err);
}

enum status plan_read_fd(int fd, const char *name, struct plan **out, struct error *err)
{
    struct file_map map;
    enum status status = file_map_fd(fd, name, 0, &map, err);
    return status ? status : read_map(&map, name, out, err);
}

enum status plan_read_device(const char *path, char device[PLAN_DEVICE_MAX], struct error *err)
{
    struct file_map map;
    enum status status = file_map_path(path, 0, &map, err);
    if (status)
        return status;
    const struct plan_header *h = map.data;
    if (map.size < sizeof(*h) || memcmp(h->magic, PLAN_MAGIC, sizeof(h->magic)) != 0 ||
        strnlen(h->device, sizeof(h->device)) == sizeof(h->device))
        status = error_set(err, STATUS_DATA_LOSS, "%s: not a plan file", path);
    else
        memcpy(device, h->device, sizeof(h->device));
    file_unmap(&map);
    return status;
}
