/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/import/decode.h"
#include "engine/import/onnx.h"
#include "onnx_subset.pb.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ONNX data is used as it lies");

static const uint64_t nothing[1];

static const struct {
    enum dtype dtype;
    const char *name;
} types[] = {
    {DTYPE_NONE, "UNDEFINED"},
    {DTYPE_F32, "FLOAT"},
    {DTYPE_U8, "UINT8"},
    {DTYPE_I8, "INT8"},
    {DTYPE_U16, "UINT16"},
    {DTYPE_I16, "INT16"},
    {DTYPE_I32, "INT32"},
    {DTYPE_I64, "INT64"},
    {DTYPE_NONE, "STRING"},
    {DTYPE_BOOL, "BOOL"},
    {DTYPE_F16, "FLOAT16"},
    {DTYPE_F64, "DOUBLE"},
    {DTYPE_U32, "UINT32"},
    {DTYPE_U64, "UINT64"},
    {DTYPE_NONE, "COMPLEX64"},
    {DTYPE_NONE, "COMPLEX128"},
    {DTYPE_BF16, "BFLOAT16"},
    {DTYPE_NONE, "FLOAT8E4M3FN"},
    {DTYPE_NONE, "FLOAT8E4M3FNUZ"},
    {DTYPE_NONE, "FLOAT8E5M2"},
    {DTYPE_NONE, "FLOAT8E5M2FNUZ"},
    {DTYPE_NONE, "UINT4"},
    {DTYPE_NONE, "INT4"},
    {DTYPE_NONE, "FLOAT4E2M1"},
    {DTYPE_NONE, "FLOAT8E8M0"},
};

enum dtype onnx_dtype(int64_t type)
{
    return type >= 0 && type < (int64_t)ARRAY_LEN(types) ? types[type].dtype : DTYPE_NONE;
}

enum dtype onnx_dtype_inside(int64_t type)
{
    return type == ONNX_FLOAT8E4M3FN ? DTYPE_F8 : onnx_dtype(type);
}

const char *onnx_type_name(int64_t type)
{
    return type >= 0 && type < (int64_t)ARRAY_LEN(types) ? types[type].name : "unknown";
}

/* Copies typed fields into a dense array, or finds that the file has them as one. */
struct typed {
    enum dtype dtype;
    struct span whole;
    uint8_t *to; /* NULL: only look whether the field is one packed run in the file */
    size_t n, elements;
    const void *run;
};

static bool typed_room(const struct typed *t)
{
    return t->n < t->elements;
}

/* Reads float_data and double_data. */
static bool fixed_take(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct typed *t = *arg;
    size_t size = dtype_size(t->dtype);
    if (!t->to) {
        uintptr_t at = (uintptr_t)stream->state, begin = (uintptr_t)t->whole.data;
        if (at >= begin && at - begin < t->whole.size &&
            stream->bytes_left <= t->whole.size - (at - begin) &&
            stream->bytes_left == t->elements * size)
            t->run = stream->state;
        return pb_read(stream, NULL, stream->bytes_left);
    }
    while (stream->bytes_left) {
        if (!typed_room(t))
            PB_RETURN_ERROR(stream, "more values than the shape holds");
        if (!pb_read(stream, t->to + t->n++ * size, size))
            return false;
    }
    return true;
}

/* Reads int32_data, int64_data, uint64_data: the low bytes of each value are the element. */
static bool varint_take(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct typed *t = *arg;
    size_t size = dtype_size(t->dtype);
    if (!t->to)
        return pb_read(stream, NULL, stream->bytes_left);
    while (stream->bytes_left) {
        uint64_t value;
        if (!pb_decode_varint(stream, &value))
            return false;
        if (!typed_room(t))
            PB_RETURN_ERROR(stream, "more values than the shape holds");
        if (t->dtype == DTYPE_BOOL)
            value = value != 0;
        memcpy(t->to + t->n++ * size, &value, size);
    }
    return true;
}

static enum status typed_decode(const struct onnx_tensor *tensor, struct typed *t,
                                struct error *err)
{
    pb_callback_t fixed = {.funcs.decode = fixed_take, .arg = t};
    pb_callback_t varint = {.funcs.decode = varint_take, .arg = t};
    onnxpb_Tensor message = {.data_type = 0};
    switch (t->dtype) {
    case DTYPE_F32:
        message.float_data = fixed;
        break;
    case DTYPE_F64:
        message.double_data = fixed;
        break;
    case DTYPE_I64:
        message.int64_data = varint;
        break;
    case DTYPE_U32:
    case DTYPE_U64:
        message.uint64_data = varint;
        break;
    default:
        message.int32_data = varint;
        break;
    }
    enum status status =
        decode_message(tensor->body, onnxpb_Tensor_fields, &message, "tensor", err);
    if (status)
        error_prefix(err, "tensor '%s'", tensor->name);
    return status;
}

static enum status typed_bytes(struct arena *arena, const struct onnx_tensor *tensor,
                               enum dtype dtype, size_t elements, const void **data,
                               struct error *err)
{
    struct typed t = {.dtype = dtype, .whole = tensor->body, .elements = elements};
    if (elements > tensor->body.size)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its shape has %zu elements, the file has %zu bytes for them",
                         tensor->name, elements, tensor->body.size);
    TRY(typed_decode(tensor, &t, err));
    if (t.run) {
        *data = t.run;
        return STATUS_OK;
    }
    t.to = arena_array(arena, elements, dtype_size(dtype));
    if (!t.to)
        return error_no_memory(err, "tensor '%s'", tensor->name);
    TRY(typed_decode(tensor, &t, err));
    if (t.n != elements)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its shape has %zu elements, the file has %zu values",
                         tensor->name, elements, t.n);
    *data = t.to;
    return STATUS_OK;
}

static enum status external_map(struct onnx_model *model, const char *location,
                                const struct file_map **out, struct error *err)
{
    for (uint32_t i = 0; i < model->n_external; i++) {
        if (!strcmp(model->external[i].location, location)) {
            *out = &model->external[i].map;
            return STATUS_OK;
        }
    }
    if (model->n_external == ONNX_MAX_EXTERNAL_FILES)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "external data: more than %d files",
                         ONNX_MAX_EXTERNAL_FILES);
    struct onnx_external *external = &model->external[model->n_external];
    TRY(file_map_open_beside(model->folder, location, &external->map, err));
    external->location = location;
    model->n_external++;
    *out = &external->map;
    return STATUS_OK;
}

/* External data of a tail lies in its plan; there is no folder, and a location says nothing. */
static enum status stored_bytes(const struct onnx_model *model, const struct onnx_tensor *tensor,
                                size_t bytes, const void **data, struct error *err)
{
    if (tensor->length != bytes || tensor->offset > model->store.size ||
        model->store.size - tensor->offset < bytes ||
        tensor->offset % dtype_size(onnx_dtype_inside(tensor->type)))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its bytes lie outside of what the plan keeps for it",
                         tensor->name);
    *data = model->store.data + tensor->offset;
    return STATUS_OK;
}

static enum status external_bytes(struct onnx_model *model, const struct onnx_tensor *tensor,
                                  size_t bytes, const void **data, struct error *err)
{
    const struct file_map *map = NULL;
    if (model && model->store.data)
        return stored_bytes(model, tensor, bytes, data, err);
    if (!model || model->folder < 0 || !tensor->location)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its data is external, and there is no file to look in",
                         tensor->name);
    if (tensor->length != UINT64_MAX && tensor->length != bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its shape needs %zu bytes, its external data has %llu",
                         tensor->name, bytes, (unsigned long long)tensor->length);
    enum status status = external_map(model, tensor->location, &map, err);
    if (status) {
        error_prefix(err, "tensor '%s'", tensor->name);
        return status;
    }
    if (tensor->offset > map->size || map->size - tensor->offset < bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': bytes %llu+%zu of '%s' lie beyond its end at %zu",
                         tensor->name, (unsigned long long)tensor->offset, bytes, tensor->location,
                         map->size);
    *data = (const char *)map->data + tensor->offset;
    return STATUS_OK;
}

/* Makes every BOOL 0 or 1, because kernels count on it. */
static enum status bool_bytes(struct arena *arena, size_t n, const void **data, struct error *err)
{
    const uint8_t *from = *data;
    size_t i = 0;
    while (i < n && from[i] <= 1)
        i++;
    if (i == n)
        return STATUS_OK;
    uint8_t *to = arena_alloc(arena, n);
    if (!to)
        return error_no_memory(err, "a tensor");
    for (i = 0; i < n; i++)
        to[i] = from[i] != 0;
    *data = to;
    return STATUS_OK;
}

enum status tensor_bytes(struct onnx_model *model, struct arena *arena,
                         const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                         struct error *err)
{
    enum dtype type = onnx_dtype_inside(tensor->type);
    const void *bytes = nothing;
    size_t elements, size;
    if (type == DTYPE_NONE)
        return error_set(err, STATUS_UNIMPLEMENTED, "tensor '%s': element type %s (%d)",
                         tensor->name, onnx_type_name(tensor->type), tensor->type);
    if (!shape_elements(&tensor->shape, &elements) || !shape_bytes(&tensor->shape, type, &size))
        return error_set(err, STATUS_INVALID_ARGUMENT, "tensor '%s': its size overflows",
                         tensor->name);
    if (tensor->external)
        TRY(external_bytes(model, tensor, size, &bytes, err));
    else if (tensor->raw.data && tensor->raw.size != size)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%s': its shape needs %zu bytes, its raw data has %zu",
                         tensor->name, size, tensor->raw.size);
    else if (tensor->raw.data)
        bytes = tensor->raw.data;
    else if (elements)
        TRY(typed_bytes(arena, tensor, type, elements, &bytes, err));
    if (type == DTYPE_BOOL)
        TRY(bool_bytes(arena, elements, &bytes, err));
    *dtype = type;
    *data = bytes;
    return STATUS_OK;
}
