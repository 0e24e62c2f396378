/* SPDX-License-Identifier: Apache-2.0 */
/* Names, and typed contents turned into raw bytes; see message.h. */
#include "proto/message.h"

#include "inference.pb.h"
#include "proto/tensor.h"

static bool name_byte_ok(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool message_name_ok(struct message_text name)
{
    if (name.len < 1 || name.len > MESSAGE_MAX_NAME || name.data[0] == '.')
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!name_byte_ok(name.data[i]))
            return false;
    return true;
}

bool message_tensor_name_ok(struct message_text name)
{
    if (name.len < 1 || name.len > MESSAGE_MAX_NAME)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] <= 0x20 || name.data[i] >= 0x7f)
            return false;
    return true;
}

/* Elements come in any number of packed chunks and single fields. */
struct unpack {
    struct proto_decoder decoder;
    const struct message_tensor *tensor;
    const struct unpack_row *row;
    unsigned char *to;
    size_t left; /* elements */
};

struct unpack_row {
    enum dtype dtype;
    uint32_t tag; /* the field of InferTensorContents that carries the type */
    const char *field;
    bool (*read)(pb_istream_t *stream, void *to, bool *in_range);
};

static bool read_4(pb_istream_t *stream, void *to, bool *in_range)
{
    (void)in_range;
    return pb_decode_fixed32(stream, to);
}

static bool read_8(pb_istream_t *stream, void *to, bool *in_range)
{
    (void)in_range;
    return pb_decode_fixed64(stream, to);
}

/* The integers: a varint, checked against the type's range. Negative int32 come as 64 bits. */
#define READ_VARINT(name, type, min, max)                                                          \
    static bool name(pb_istream_t *stream, void *to, bool *in_range)                               \
    {                                                                                              \
        uint64_t wire;                                                                             \
        if (!pb_decode_varint(stream, &wire))                                                      \
            return false;                                                                          \
        *in_range = (int64_t)wire >= (min) && (int64_t)wire <= (max);                              \
        type value = (type)wire;                                                                   \
        memcpy(to, &value, sizeof(value));                                                         \
        return true;                                                                               \
    }
READ_VARINT(read_bool, uint8_t, 0, 1)
READ_VARINT(read_i8, int8_t, INT8_MIN, INT8_MAX)
READ_VARINT(read_i16, int16_t, INT16_MIN, INT16_MAX)
READ_VARINT(read_i32, int32_t, INT32_MIN, INT32_MAX)
READ_VARINT(read_u8, uint8_t, 0, UINT8_MAX)
READ_VARINT(read_u16, uint16_t, 0, UINT16_MAX)
READ_VARINT(read_u32, uint32_t, 0, UINT32_MAX)

static bool read_64(pb_istream_t *stream, void *to, bool *in_range)
{
    (void)in_range;
    uint64_t wire;
    if (!pb_decode_varint(stream, &wire))
        return false;
    memcpy(to, &wire, sizeof(wire));
    return true;
}

static const struct unpack_row rows[] = {
    {DTYPE_BOOL, inference_InferTensorContents_bool_contents_tag, "bool_contents", read_bool},
    {DTYPE_I8, inference_InferTensorContents_int_contents_tag, "int_contents", read_i8},
    {DTYPE_I16, inference_InferTensorContents_int_contents_tag, "int_contents", read_i16},
    {DTYPE_I32, inference_InferTensorContents_int_contents_tag, "int_contents", read_i32},
    {DTYPE_I64, inference_InferTensorContents_int64_contents_tag, "int64_contents", read_64},
    {DTYPE_U8, inference_InferTensorContents_uint_contents_tag, "uint_contents", read_u8},
    {DTYPE_U16, inference_InferTensorContents_uint_contents_tag, "uint_contents", read_u16},
    {DTYPE_U32, inference_InferTensorContents_uint_contents_tag, "uint_contents", read_u32},
    {DTYPE_U64, inference_InferTensorContents_uint64_contents_tag, "uint64_contents", read_64},
    {DTYPE_F32, inference_InferTensorContents_fp32_contents_tag, "fp32_contents", read_4},
    {DTYPE_F64, inference_InferTensorContents_fp64_contents_tag, "fp64_contents", read_8},
};

static const struct unpack_row *row_find(enum dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return NULL;
}

static bool elements_decode(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    struct unpack *u = *arg;
    struct message_text name = u->tensor->name;
    size_t width = dtype_size(u->row->dtype);
    if (field->tag != u->row->tag)
        return proto_refuse(&u->decoder, "'%.*s': %s elements go into %s", MESSAGE_TEXT(name),
                            dtype_name(u->row->dtype), u->row->field);
    while (stream->bytes_left) {
        bool in_range = true;
        if (!u->left)
            return proto_refuse(&u->decoder, "'%.*s': more elements than its shape has",
                                MESSAGE_TEXT(name));
        if (!u->row->read(stream, u->to, &in_range))
            return false;
        if (!in_range)
            return proto_refuse(&u->decoder, "'%.*s': an element is out of %s's range",
                                MESSAGE_TEXT(name), dtype_name(u->row->dtype));
        u->to += width;
        u->left--;
    }
    return true;
}

enum status message_unpack(const struct message_tensor *tensor, void *to, size_t size,
                           struct error *err)
{
    const struct unpack_row *row = row_find(tensor->dtype);
    if (!row)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "'%.*s': %s has no typed contents; send it raw",
                         MESSAGE_TEXT(tensor->name), dtype_name(tensor->dtype));
    struct unpack u = {.decoder.err = err,
                       .tensor = tensor,
                       .row = row,
                       .to = to,
                       .left = size / dtype_size(row->dtype)};
    pb_callback_t cb = {.funcs.decode = elements_decode, .arg = &u};
    inference_InferTensorContents contents = {.bool_contents = cb,
                                              .int_contents = cb,
                                              .int64_contents = cb,
                                              .uint_contents = cb,
                                              .uint64_contents = cb,
                                              .fp32_contents = cb,
                                              .fp64_contents = cb,
                                              .bytes_contents = cb};
    enum status s =
        proto_decode(&u.decoder, tensor->contents.data, tensor->contents.len,
                     inference_InferTensorContents_fields, &contents, "InferTensorContents");
    if (s == STATUS_OK && u.left)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %zu elements are missing",
                         MESSAGE_TEXT(tensor->name), u.left);
    return s;
}
