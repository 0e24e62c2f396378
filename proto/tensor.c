/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in frames: where their bytes lie, and whether their names, types, shapes and bytes fit
 * together (R3 and R4 of docs/operations.md). A message is refused if it has more than 64 tensors,
 * or a tensor with more than 8 dimensions, with a negative dimension, with a name that is too long
 * or that another tensor has, with an unknown datatype, with a size that overflows, or with more or
 * fewer bytes than its shape needs.
 */
#include "proto/tensor.h"

#include <stdarg.h>

bool proto_refuse(struct proto_decoder *decoder, const char *fmt, ...)
{
    if (!decoder->failed) {
        va_list args;
        va_start(args, fmt);
        error_setv(decoder->err, STATUS_INVALID_ARGUMENT, fmt, args);
        va_end(args);
        decoder->failed = true;
    }
    return false;
}

bool proto_take(pb_istream_t *stream, struct proto_decoder *decoder, struct message_text *out)
{
    const uint8_t *at = stream->state;
    size_t len = stream->bytes_left;
    if (at < decoder->begin || at > decoder->end || len > (size_t)(decoder->end - at))
        return proto_refuse(decoder, "malformed message: wrong wire type");
    if (!pb_read(stream, NULL, len))
        return false;
    *out = (struct message_text){.data = (const char *)at, .len = len};
    return true;
}

bool proto_text_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct proto_text *text = *arg;
    return proto_take(stream, text->decoder, text->out);
}

/* Packed (the usual) or one element a call. */
static bool shape_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct proto_tensor *tensor = *arg;
    struct shape *shape = &tensor->out->shape;
    while (stream->bytes_left) {
        uint64_t dim;
        if (!pb_decode_varint(stream, &dim))
            return false;
        if (shape->rank == SHAPE_MAX_RANK)
            return proto_refuse(tensor->decoder, "a shape has more than %d dimensions",
                                SHAPE_MAX_RANK);
        shape->dim[shape->rank++] = (int64_t)dim;
    }
    return true;
}

static bool contents_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct proto_tensor *tensor = *arg;
    if (tensor->out->typed)
        return proto_refuse(tensor->decoder, "a tensor has its contents twice");
    tensor->out->typed = true;
    return proto_take(stream, tensor->decoder, &tensor->out->contents);
}

void proto_tensor_bind(struct proto_tensor *tensor, struct proto_decoder *decoder,
                       struct message_tensor *out, pb_callback_t *name, pb_callback_t *datatype,
                       pb_callback_t *shape, pb_callback_t *contents)
{
    memset(out, 0, sizeof(*out));
    tensor->decoder = decoder;
    tensor->out = out;
    tensor->name = (struct proto_text){decoder, &out->name};
    tensor->datatype = (struct proto_text){decoder, &out->datatype};
    *name = (pb_callback_t){.funcs.decode = proto_text_decode, .arg = &tensor->name};
    *datatype = (pb_callback_t){.funcs.decode = proto_text_decode, .arg = &tensor->datatype};
    *shape = (pb_callback_t){.funcs.decode = shape_decode, .arg = tensor};
    *contents = (pb_callback_t){.funcs.decode = contents_decode, .arg = tensor};
}

bool proto_raw_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct proto_raw *raw = *arg;
    if (raw->n == MESSAGE_MAX_TENSORS)
        return proto_refuse(raw->decoder, "more than %d raw contents", MESSAGE_MAX_TENSORS);
    return proto_take(stream, raw->decoder, &raw->items[raw->n++]);
}

static enum status raw_join(struct message_tensor *tensors, uint32_t n, const struct proto_raw *raw,
                            const char *what, struct error *err)
{
    uint32_t typed = 0, raw_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        typed += tensors[i].typed;
        raw_n += !tensors[i].region.sized;
        if (tensors[i].typed && tensors[i].region.sized)
            return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.*s' has contents and a region",
                             what, MESSAGE_TEXT(tensors[i].name));
    }
    if (typed && raw->n)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "contents and raw_%s_contents may not be used together", what);
    if (!typed && raw->n != raw_n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u %ss but %u entries in raw_%s_contents",
                         raw_n, what, raw->n, what);
    for (uint32_t i = 0, k = 0; i < n; i++) {
        const struct message_text *item =
            raw->n && !tensors[i].region.sized ? &raw->items[k++] : NULL;
        tensors[i].data = item ? item->data : NULL;
        tensors[i].size = item ? item->len : tensors[i].region.size;
    }
    return STATUS_OK;
}

static enum status name_check(const struct message_tensor *tensors, uint32_t i, const char *what,
                              struct error *err)
{
    struct message_text name = tensors[i].name;
    if (!message_tensor_name_ok(name))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s %u: the name '%.*s' is not 1 to %d printable characters", what, i,
                         MESSAGE_TEXT(name), MESSAGE_MAX_NAME);
    for (uint32_t k = 0; k < i; k++)
        if (message_text_equal(name, tensors[k].name))
            return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.*s' is there twice", what,
                             MESSAGE_TEXT(name));
    return STATUS_OK;
}

/* Contents are counted when they are unpacked. Before that, whether they can be as many at all,
 * with a byte for each: else a few bytes would have memory taken for a shape of any size. */
static enum status contents_check(const struct message_tensor *tensor, size_t bytes,
                                  const char *what, struct error *err)
{
    size_t n = bytes / dtype_size(tensor->dtype);
    if (n <= tensor->contents.len)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "%s '%.*s': of its %zu elements at least %zu are missing", what,
                     MESSAGE_TEXT(tensor->name), n, n - tensor->contents.len);
}

static enum status size_check(const struct message_tensor *tensor, const char *what,
                              struct error *err)
{
    char text[SHAPE_TEXT_MAX];
    size_t bytes;
    if (tensor->dtype == DTYPE_NONE)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.*s': datatype '%.*s' is not served",
                         what, MESSAGE_TEXT(tensor->name), MESSAGE_TEXT(tensor->datatype));
    if (!shape_bytes(&tensor->shape, tensor->dtype, &bytes))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.*s': %s is not a shape", what,
                         MESSAGE_TEXT(tensor->name), shape_format(&tensor->shape, text));
    if (tensor->typed)
        return contents_check(tensor, bytes, what, err);
    if (tensor->size == bytes)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.*s': %s of %s takes %zu bytes, %zu came",
                     what, MESSAGE_TEXT(tensor->name), dtype_name(tensor->dtype),
                     shape_format(&tensor->shape, text), bytes, tensor->size);
}

enum status proto_tensors_finish(struct message_tensor *tensors, uint32_t n,
                                 const struct proto_raw *raw, const char *what, struct error *err)
{
    TRY(raw_join(tensors, n, raw, what, err));
    return message_tensors_check(tensors, n, what, err);
}

enum status message_tensors_check(struct message_tensor *tensors, uint32_t n, const char *what,
                                  struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct message_tensor *t = &tensors[i];
        t->dtype = dtype_parse(t->datatype.data, t->datatype.len);
        TRY(name_check(tensors, i, what, err));
        TRY(size_check(t, what, err));
    }
    return STATUS_OK;
}

enum status proto_decode(struct proto_decoder *decoder, const void *frame, size_t size,
                         const struct proto_walk *within, const pb_msgdesc_t *fields, void *message,
                         const char *what)
{
    const struct message_text wire = {frame, size};
    TRY(proto_walk_check(within, wire, MESSAGE_MAX_FIELDS, what, decoder->err));
    decoder->begin = frame;
    decoder->end = decoder->begin + size;
    decoder->failed = false;
    pb_istream_t stream = pb_istream_from_buffer(frame, size);
    if (pb_decode_ex(&stream, fields, message, PB_DECODE_NOINIT))
        return STATUS_OK;
    proto_refuse(decoder, "malformed %s: %s", what, PB_GET_ERROR(&stream));
    return STATUS_INVALID_ARGUMENT;
}
