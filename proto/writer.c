/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds frames; see writer.h. A payload's tag and length are written by hand because nanopb would
 * have to copy the payload to write it.
 */
#include "proto/writer.h"

#include "inference.pb.h"
#include "proto/frame.h"

enum { VARINT_MAX = 10, LENGTH_ROOM = 1 + VARINT_MAX };

static size_t varint_put(uint8_t *to, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        to[n++] = (uint8_t)(value | 0x80);
    to[n++] = (uint8_t)value;
    return n;
}

static size_t varint_size(uint64_t value)
{
    size_t n = 1;
    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

static enum status too_large(struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "the message's texts take more than %d bytes",
                     MESSAGE_HEAD_MAX);
}

void proto_writer_init(struct proto_writer *w, void *head, struct iovec *iov)
{
    *w = (struct proto_writer){.head = head, .used = FRAME_HEAD_BYTES, .iov = iov};
}

enum status proto_writer_put(struct proto_writer *w, const pb_msgdesc_t *fields,
                             const void *message, struct error *err)
{
    pb_ostream_t stream = pb_ostream_from_buffer(w->head + w->used, MESSAGE_HEAD_MAX - w->used);
    if (!pb_encode(&stream, fields, message))
        return too_large(err);
    w->used += stream.bytes_written;
    return STATUS_OK;
}

static void piece_end(struct proto_writer *w)
{
    size_t len = w->used - w->cut;
    if (len)
        w->iov[w->n_iov++] = (struct iovec){.iov_base = w->head + w->cut, .iov_len = len};
    w->total += len;
    w->cut = w->used;
}

static void payload_put(struct proto_writer *w, uint32_t tag, const void *data, size_t size)
{
    w->used += varint_put(w->head + w->used, (uint64_t)tag << 3 | PB_WT_STRING);
    w->used += varint_put(w->head + w->used, size);
    if (!size)
        return;
    piece_end(w);
    w->iov[w->n_iov++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    w->total += size;
}

void proto_writer_put_whole(struct proto_writer *w, struct message_text message)
{
    piece_end(w);
    w->iov[w->n_iov++] =
        (struct iovec){.iov_base = (void *)(uintptr_t)message.data, .iov_len = message.len};
    w->total += message.len;
}

enum status proto_writer_put_payload(struct proto_writer *w, uint32_t tag,
                                     struct message_text payload, struct error *err)
{
    if (MESSAGE_HEAD_MAX - w->used < 2 * VARINT_MAX)
        return too_large(err);
    payload_put(w, tag, payload.data, payload.len);
    return STATUS_OK;
}

enum status proto_writer_put_tensors(struct proto_writer *w, uint32_t tag,
                                     const pb_msgdesc_t *fields, const void *message,
                                     uint32_t raw_tag, const struct message_tensor *tensors,
                                     uint32_t n, struct error *err)
{
    size_t prefix = w->used;
    size_t payloads = 0;
    size_t heads = LENGTH_ROOM; /* at most, of the length before and the payloads' heads */
    for (uint32_t i = 0; i < n; i++) {
        size_t head = varint_size((uint64_t)raw_tag << 3) + varint_size(tensors[i].size);
        if (tensors[i].size > UINT32_MAX)
            return error_set(err, STATUS_INTERNAL, "a frame holds less than 4 GiB");
        payloads += head + tensors[i].size;
        heads += head;
    }
    if (MESSAGE_HEAD_MAX - prefix < heads)
        return too_large(err);

    /* The length stands before what it counts: encode behind the room for it, then close up. */
    uint8_t *body = w->head + prefix + LENGTH_ROOM;
    pb_ostream_t stream = pb_ostream_from_buffer(body, MESSAGE_HEAD_MAX - prefix - heads);
    if (!pb_encode(&stream, fields, message))
        return too_large(err);
    if (tag) {
        w->used += varint_put(w->head + w->used, (uint64_t)tag << 3 | PB_WT_STRING);
        w->used += varint_put(w->head + w->used, stream.bytes_written + payloads);
    }
    memmove(w->head + w->used, body, stream.bytes_written);
    w->used += stream.bytes_written;
    for (uint32_t i = 0; i < n; i++)
        payload_put(w, raw_tag, tensors[i].data, tensors[i].size);
    return STATUS_OK;
}

enum status proto_writer_finish(struct proto_writer *w, uint32_t *n_iov, struct error *err)
{
    piece_end(w);
    size_t size = w->total - FRAME_HEAD_BYTES;
    if (size > UINT32_MAX)
        return error_set(err, STATUS_INTERNAL, "a frame holds less than 4 GiB");
    frame_head_write(w->head, (uint32_t)size);
    *n_iov = w->n_iov;
    return STATUS_OK;
}

static bool text_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct message_text *text = *arg;
    if (!text->len)
        return true;
    return pb_encode_tag_for_field(stream, field) &&
           pb_encode_string(stream, (const pb_byte_t *)text->data, text->len);
}

pb_callback_t proto_text_put(const struct message_text *text)
{
    return (pb_callback_t){.funcs.encode = text_encode, .arg = (void *)(uintptr_t)text};
}

static bool shape_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct shape *shape = *arg;
    size_t size = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        size += varint_size((uint64_t)shape->dim[i]);
    if (!shape->rank)
        return true;
    if (!pb_encode_tag(stream, PB_WT_STRING, field->tag) || !pb_encode_varint(stream, size))
        return false;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (!pb_encode_varint(stream, (uint64_t)shape->dim[i]))
            return false;
    return true;
}

/* --- where an output lies that is in a region: the entries of a map --- */

static bool parameter_write(pb_ostream_t *stream, uint32_t tag, const char *key,
                            const struct message_text *text, uint64_t number)
{
    uint32_t inner =
        text ? inference_InferParameter_string_param_tag : inference_InferParameter_int64_param_tag;
    uint8_t head[2 * VARINT_MAX];
    size_t n = varint_put(head, (uint64_t)inner << 3 | (text ? PB_WT_STRING : PB_WT_VARINT));
    n += varint_put(head + n, text ? text->len : number);
    size_t value = n + (text ? text->len : 0), name = strlen(key);
    size_t size = 2 + name + 1 + varint_size(value) + value;
    return pb_encode_tag(stream, PB_WT_STRING, tag) && pb_encode_varint(stream, size) &&
           pb_encode_tag(stream, PB_WT_STRING, 1) &&
           pb_encode_string(stream, (const pb_byte_t *)key, name) &&
           pb_encode_tag(stream, PB_WT_STRING, 2) && pb_encode_varint(stream, value) &&
           pb_write(stream, head, n) &&
           (!text || pb_write(stream, (const pb_byte_t *)text->data, text->len));
}

static bool region_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct message_region *region = *arg;
    if (!region->name.len)
        return true;
    return parameter_write(stream, field->tag, "shared_memory_region", &region->name, 0) &&
           parameter_write(stream, field->tag, "shared_memory_byte_size", NULL, region->size) &&
           (!region->offset ||
            parameter_write(stream, field->tag, "shared_memory_offset", NULL, region->offset));
}

static bool tensors_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct proto_tensor_list *list = *arg;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct message_tensor *t = &list->items[i];
        struct message_text dtype = message_text_of(dtype_name(t->dtype));
        if (t->dtype == DTYPE_NONE)
            dtype = t->datatype;
        inference_ModelInferResponse_InferOutputTensor m = {
            .name = proto_text_put(&t->name),
            .datatype = proto_text_put(&dtype),
            .shape = {.funcs.encode = shape_encode, .arg = (void *)(uintptr_t)&t->shape},
            .parameters = {.funcs.encode = region_encode, .arg = (void *)(uintptr_t)&t->region},
        };
        if (!pb_encode_tag_for_field(stream, field) ||
            !pb_encode_submessage(stream, inference_ModelInferResponse_InferOutputTensor_fields,
                                  &m))
            return false;
    }
    return true;
}

pb_callback_t proto_tensors_put(const struct proto_tensor_list *list)
{
    return (pb_callback_t){.funcs.encode = tensors_encode, .arg = (void *)(uintptr_t)list};
}
