/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns typed contents into raw bytes, a slice at a time; see message.h. Between two slices only
 * positions are kept, so an event loop that has other connections to serve can stop within a packed
 * chunk of any length and go on there in its next turn.
 */
#include "inference.pb.h"
#include "proto/message.h"
#include "proto/wire.h"

/* A number on the wire has 64 bits, and a negative one comes sign-extended: `min` and `max` bound
 * it as a signed number. Every number is in the range of a 64-bit type. Floats are copied as they
 * are. */
struct message_unpack_row {
    enum dtype dtype;
    uint32_t number; /* the field of InferTensorContents that carries the type */
    const char *field;
    enum wire_type type; /* of one element */
    int64_t min, max;
};

#define NUMBERS(name) inference_InferTensorContents_##name##_tag, #name, WIRE_VARINT
static const struct message_unpack_row rows[] = {
    {DTYPE_BOOL, NUMBERS(bool_contents), 0, 1},
    {DTYPE_I8, NUMBERS(int_contents), INT8_MIN, INT8_MAX},
    {DTYPE_I16, NUMBERS(int_contents), INT16_MIN, INT16_MAX},
    {DTYPE_I32, NUMBERS(int_contents), INT32_MIN, INT32_MAX},
    {DTYPE_I64, NUMBERS(int64_contents), INT64_MIN, INT64_MAX},
    {DTYPE_U8, NUMBERS(uint_contents), 0, UINT8_MAX},
    {DTYPE_U16, NUMBERS(uint_contents), 0, UINT16_MAX},
    {DTYPE_U32, NUMBERS(uint_contents), 0, UINT32_MAX},
    {DTYPE_U64, NUMBERS(uint64_contents), INT64_MIN, INT64_MAX},
    {DTYPE_F32, inference_InferTensorContents_fp32_contents_tag, "fp32_contents", WIRE_32, 0, 0},
    {DTYPE_F64, inference_InferTensorContents_fp64_contents_tag, "fp64_contents", WIRE_64, 0, 0},
};

static const struct message_unpack_row *row_find(enum dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return NULL;
}

enum status message_unpack_begin(struct message_unpacking *u, const struct message_tensor *tensor,
                                 void *to, size_t size, struct error *err)
{
    const struct message_unpack_row *row = row_find(tensor->dtype);
    if (!row)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "'%.*s': %s has no typed contents; send it raw",
                         MESSAGE_TEXT(tensor->name), dtype_name(tensor->dtype));
    const struct message_text contents = tensor->contents;
    const uint8_t *at = (const uint8_t *)(contents.len ? contents.data : "");
    *u = (struct message_unpacking){.row = row,
                                    .name = tensor->name,
                                    .at = at,
                                    .end = at + contents.len,
                                    .chunk_end = at,
                                    .to = to,
                                    .left = size / dtype_size(row->dtype)};
    return STATUS_OK;
}

static enum status malformed(const struct message_unpacking *u, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': malformed InferTensorContents: %s",
                     MESSAGE_TEXT(u->name), why);
}

static enum status too_many(const struct message_unpacking *u, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': more elements than its shape has",
                     MESSAGE_TEXT(u->name));
}

/* A field without an element; elements are counted by the shape. */
static enum status empty_count(struct message_unpacking *u, struct error *err)
{
    if (u->empty++ < MESSAGE_MAX_FIELDS)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "'%.*s': more than %d fields without an element in its contents",
                     MESSAGE_TEXT(u->name), MESSAGE_MAX_FIELDS);
}

/* The head of the next field, whose elements are then from `at` to `chunk_end`: those of a packed
 * chunk, or one. */
static enum status chunk_begin(struct message_unpacking *u, struct error *err)
{
    const struct message_unpack_row *row = u->row;
    struct wire w = {.at = u->at, .end = u->end};
    struct wire_field field = {0};
    if (!wire_next(&w, &field))
        return malformed(u, "no whole field of a known wire type", err);
    if (field.number > inference_InferTensorContents_bytes_contents_tag) {
        u->at = u->chunk_end = w.at;
        return empty_count(u, err);
    }
    if (field.number != row->number)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %s elements go into %s",
                         MESSAGE_TEXT(u->name), dtype_name(row->dtype), row->field);
    if (field.type != WIRE_BYTES && field.type != row->type)
        return malformed(u, "an element of the wrong wire type", err);
    size_t size = wire_left(&field.value);
    if (row->type != WIRE_VARINT && size % dtype_size(row->dtype))
        return malformed(u, "a chunk that ends within an element", err);
    if (row->type != WIRE_VARINT && size / dtype_size(row->dtype) > u->left)
        return too_many(u, err);
    u->at = field.value.at;
    u->chunk_end = field.value.end;
    return size ? STATUS_OK : empty_count(u, err);
}

/* Copies elements that look the same on the wire and in memory: those that begin before `stop`, and
 * at least one. */
static void copy(struct message_unpacking *u, const uint8_t *stop)
{
    size_t width = dtype_size(u->row->dtype);
    size_t n = ((size_t)(stop - u->at) + width - 1) / width;
    size_t bytes = MIN(MAX(n, (size_t)1) * width, (size_t)(u->chunk_end - u->at));
    memcpy(u->to, u->at, bytes);
    u->to += bytes;
    u->at += bytes;
    u->left -= bytes / width;
}

/* Converts varints: those that begin before `stop`, and at least one. */
static enum status numbers(struct message_unpacking *u, const uint8_t *stop, struct error *err)
{
    const struct message_unpack_row *row = u->row;
    size_t width = dtype_size(row->dtype);
    struct wire w = {.at = u->at, .end = u->chunk_end};
    do {
        uint64_t value;
        if (!u->left)
            return too_many(u, err);
        if (!wire_varint(&w, &value))
            return malformed(u, "a number that is not whole", err);
        if ((int64_t)value < row->min || (int64_t)value > row->max)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "'%.*s': an element is out of %s's range", MESSAGE_TEXT(u->name),
                             dtype_name(row->dtype));
        dtype_store(u->to, value, width);
        u->to += width;
        u->left--;
    } while (w.at < w.end && w.at < stop);
    u->at = w.at;
    return STATUS_OK;
}

enum status message_unpack_step(struct message_unpacking *u, size_t bytes, bool *done,
                                struct error *err)
{
    const uint8_t *stop = u->at + MIN(bytes, (size_t)(u->end - u->at));
    const size_t before = u->left;
    while (u->at < u->end && (u->at < stop || u->left == before)) {
        if (u->at == u->chunk_end)
            TRY(chunk_begin(u, err));
        else if (u->row->type == WIRE_VARINT)
            TRY(numbers(u, stop, err));
        else
            copy(u, stop);
    }
    if (u->at == u->end && u->left)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %zu elements are missing",
                         MESSAGE_TEXT(u->name), u->left);
    *done = u->at == u->end;
    return STATUS_OK;
}

enum status message_unpack(const struct message_tensor *tensor, void *to, size_t size,
                           struct error *err)
{
    struct message_unpacking u;
    bool done = false;
    TRY(message_unpack_begin(&u, tensor, to, size, err));
    while (!done)
        TRY(message_unpack_step(&u, SIZE_MAX, &done, err));
    return STATUS_OK;
}
