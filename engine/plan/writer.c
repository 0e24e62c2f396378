/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct plan -> file. Constants and compiled tactics are laid out first (the same bytes once),
 * then the structure is encoded with their offsets. Then emit() runs twice: it puts all bytes into
 * the digest, and then into the file.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "engine/plan/format.h"

struct blob {
    struct {
        XXH128_hash_t hash;
        uint64_t size;
    } key;
    const void *data;
    uint64_t offset;
    UT_hash_handle hh;
};

/* A section of aligned blobs, each stored once. */
struct section {
    struct blob *table; /* in the order of their offsets */
    uint64_t size;
};

struct layout {
    struct plan_offsets offsets;
    struct section weights, code;
};

static void section_deinit(struct section *section)
{
    struct blob *b = section->table;
    HASH_CLEAR(hh, section->table); /* the blobs stay linked */
    while (b) {
        struct blob *next = b->hh.next;
        free(b);
        b = next;
    }
}

static void layout_deinit(struct layout *layout)
{
    section_deinit(&layout->weights);
    section_deinit(&layout->code);
    for (int i = 0; i < PLAN_MAX_PROFILES; i++) {
        free(layout->offsets.constants[i]);
        free(layout->offsets.code[i]);
    }
}

static bool place_blob(struct section *section, const void *data, uint64_t bytes, uint64_t *offset)
{
    struct blob *b, probe = {0};
    probe.key.hash = XXH3_128bits(data, bytes);
    probe.key.size = bytes;
    HASH_FIND(hh, section->table, &probe.key, sizeof(probe.key), b);
    if (b && memcmp(b->data, data, bytes) == 0) {
        *offset = b->offset;
        return true;
    }
    b = malloc(sizeof(*b));
    size_t end;
    if (!b || !checked_round_up(section->size, BACKEND_ALIGN, &end) ||
        !checked_add(end, bytes, &section->size)) {
        free(b);
        return false;
    }
    *b = probe;
    b->data = data;
    *offset = b->offset = end;
    HASH_ADD(hh, section->table, key, sizeof(b->key), b);
    if (!HASH_ADDED(b)) {
        free(b);
        return false;
    }
    return true;
}

static bool place_profile(struct layout *layout, const struct ir_graph *graph, uint32_t profile)
{
    uint64_t *constants = calloc(graph->n_tensors + 1, sizeof(*constants));
    uint64_t *code = calloc(graph->n_nodes + 1, sizeof(*code));
    layout->offsets.constants[profile] = constants;
    layout->offsets.code[profile] = code;
    bool ok = constants && code;
    for (uint32_t i = 0; i < graph->n_tensors && ok; i++) {
        const struct ir_tensor *t = ir_tensor(graph, i);
        ok = t->place != IR_PLACE_CONSTANT ||
             place_blob(&layout->weights, t->data, t->bytes, &constants[i]);
    }
    for (uint32_t i = 0; i < graph->n_nodes && ok; i++) {
        const struct tactic *t = ir_node(graph, i)->tactic;
        ok = !t || !t->code_size || place_blob(&layout->code, t->code, t->code_size, &code[i]);
    }
    return ok;
}

static enum status layout_init(struct layout *layout, const struct plan *plan, struct error *err)
{
    for (uint32_t p = 0; p < plan->n_profiles; p++)
        if (!place_profile(layout, plan->profiles[p].graph, p))
            return error_no_memory(err, "a plan");
    return STATUS_OK;
}

/* Where the bytes of a plan go: into a hash, a file, or memory that has room for them. */
struct sink {
    XXH3_state_t *hash;
    struct file_writer *file;
    uint8_t *memory;
    uint64_t at;
};

static enum status sink_put(struct sink *sink, const void *data, size_t size, struct error *err)
{
    sink->at += size;
    if (sink->file)
        return file_writer_put(sink->file, data, size, err);
    if (sink->hash)
        XXH3_128bits_update(sink->hash, data, size);
    else if (size && sink->memory)
        sink->memory = (uint8_t *)memcpy(sink->memory, data, size) + size;
    return STATUS_OK;
}

static enum status sink_pad(struct sink *sink, uint64_t to, struct error *err)
{
    static const char zeros[PLAN_PAGE];
    return sink_put(sink, zeros, to - sink->at, err); /* a gap is always less than a page */
}

static enum status emit_section(struct sink *sink, const struct section *section, uint64_t offset,
                                struct error *err)
{
    if (section->table)
        TRY(sink_pad(sink, offset, err));
    for (const struct blob *b = section->table; b; b = b->hh.next) {
        TRY(sink_pad(sink, offset + b->offset, err));
        TRY(sink_put(sink, b->data, b->key.size, err));
    }
    return STATUS_OK;
}

/* Puts everything behind the header into the sink. */
static enum status emit(struct sink *sink, const struct plan_header *header, const void *structure,
                        const struct layout *layout, const void *tail, struct error *err)
{
    sink->at = header->structure_offset;
    TRY(sink_put(sink, structure, header->structure_size, err));
    TRY(sink_pad(sink, header->weights_offset, err));
    TRY(emit_section(sink, &layout->weights, header->weights_offset, err));
    TRY(emit_section(sink, &layout->code, header->code_offset, err));
    if (!header->tail_size)
        return STATUS_OK;
    TRY(sink_pad(sink, header->tail_offset, err));
    return sink_put(sink, tail, header->tail_size, err);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

static bool header_init(struct plan_header *h, const struct plan *plan, size_t structure_size,
                        uint64_t weights_size, uint64_t code_size)
{
    size_t offset, code, tail, size;
    if (!checked_round_up(sizeof(*h) + structure_size, PLAN_PAGE, &offset) ||
        !checked_add(offset, weights_size, &code) ||
        (code_size && !checked_round_up(code, PLAN_PAGE, &code)) ||
        !checked_add(code, code_size, &tail) ||
        (plan->tail_bytes && !checked_round_up(tail, PLAN_PAGE, &tail)) ||
        !checked_add(tail, plan->tail_bytes, &size))
        return false;
    memset(h, 0, sizeof(*h));
    memcpy(h->magic, PLAN_MAGIC, sizeof(h->magic));
    h->version = PLAN_VERSION;
    h->endian = PLAN_ENDIAN;
    h->file_size = size;
    h->structure_offset = sizeof(*h);
    h->structure_size = structure_size;
    h->weights_offset = offset;
    h->weights_size = weights_size;
    h->code_offset = code;
    h->code_size = code_size;
    h->tail_offset = tail;
    h->tail_size = plan->tail_bytes;
    for (size_t i = 0; i < 16 && plan->digest[2 * i] && plan->digest[2 * i + 1]; i++)
        h->model_digest[i] =
            (uint8_t)(hex_value(plan->digest[2 * i]) << 4 | hex_value(plan->digest[2 * i + 1]));
    memcpy(h->device, plan->device, strnlen(plan->device, sizeof(h->device) - 1));
    return true;
}

/* Sets the header's digest. */
static enum status digest(struct plan_header *header, const void *structure,
                          const struct layout *layout, const void *tail, struct error *err)
{
    struct sink hash = {.hash = XXH3_createState()};
    if (!hash.hash)
        return error_no_memory(err, "a plan");
    XXH3_128bits_reset(hash.hash);
    enum status status = emit(&hash, header, structure, layout, tail, err);
    plan_digest(header, XXH3_128bits_digest(hash.hash), header->digest);
    XXH3_freeState(hash.hash);
    return status;
}

enum status plan_write_to(struct file_writer *writer, const struct plan *plan, struct error *err)
{
    CLEANUP(layout_deinit) struct layout layout = {0};
    CLEANUP(cleanup_free) uint8_t *structure = NULL;
    struct sink file = {.file = writer};
    size_t size = 0;
    struct plan_header header;
    TRY(plan_check(plan, err));
    TRY(layout_init(&layout, plan, err));
    TRY(plan_encode(plan, &layout.offsets, &structure, &size, err));
    if (!header_init(&header, plan, size, layout.weights.size, layout.code.size))
        return error_set(err, STATUS_OUT_OF_RANGE, "plan: too large");
    TRY(digest(&header, structure, &layout, plan->tail, err));
    TRY(file_writer_put(writer, &header, sizeof(header), err));
    TRY(emit(&file, &header, structure, &layout, plan->tail, err));
    return file_writer_commit(writer, err);
}

enum status plan_write(const char *path, const struct plan *plan, struct error *err)
{
    struct file_writer *writer;
    TRY(file_writer_new(path, true, &writer, err));
    enum status status = plan_write_to(writer, plan, err);
    file_writer_free(writer);
    return status;
}

void plan_bytes_deinit(struct plan_bytes *bytes)
{
    free(bytes->head);
    free(bytes->weights);
    *bytes = (struct plan_bytes){.head = NULL};
}

/* Fills `out`, which may be left half full. */
static enum status write_parts(const struct plan *plan, const struct layout *layout,
                               struct plan_bytes *out, struct error *err)
{
    uint8_t *structure = NULL;
    size_t size = 0;
    struct plan_header header;
    TRY(plan_encode(plan, &layout->offsets, &structure, &size, err));
    out->head_size = sizeof(header) + size;
    out->weights_size = layout->weights.size;
    out->head = malloc(out->head_size);
    out->weights = malloc(out->weights_size + 1);
    bool fits = header_init(&header, plan, size, layout->weights.size, 0);
    if (fits && out->head && out->weights) {
        memcpy(out->head, &header, sizeof(header));
        memcpy((uint8_t *)out->head + sizeof(header), structure, size);
    }
    free(structure);
    if (!fits)
        return error_set(err, STATUS_OUT_OF_RANGE, "plan: too large");
    if (!out->head || !out->weights)
        return error_no_memory(err, "a plan");
    struct sink memory = {.memory = out->weights, .at = header.weights_offset};
    return emit_section(&memory, &layout->weights, header.weights_offset, err);
}

enum status plan_write_body(const struct plan *plan, struct plan_bytes *out, struct error *err)
{
    CLEANUP(layout_deinit) struct layout layout = {0};
    *out = (struct plan_bytes){.head = NULL};
    TRY(plan_check(plan, err));
    TRY(layout_init(&layout, plan, err));
    if (layout.code.size || plan->tail_bytes)
        return error_set(err, STATUS_UNIMPLEMENTED, "a body with compiled tactics or a tail");
    enum status status = write_parts(plan, &layout, out, err);
    if (status)
        plan_bytes_deinit(out);
    return status;
}
