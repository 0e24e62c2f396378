/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks constants of 4-bit integers, and of 8-bit floats other than E4M3FN. No tensor of ours has
 * these types, so their values go into the smallest type that holds them all.
 */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "engine/import/onnx.h"
#include "engine/import/tensor.h"

/* An 8-bit float: a sign, `exponent` bits, and the mantissa in the remaining bits. */
struct float8 {
    uint32_t exponent;
    int bias;
    bool infinities;    /* as in IEEE 754; otherwise all exponents are finite */
    bool unsigned_zero; /* the pattern of -0 is the only NaN; otherwise all ones are */
};

static const struct narrow {
    enum onnx_type type;
    enum dtype held;
    struct float8 format; /* of the 8-bit floats */
} narrow[] = {
    {ONNX_INT4, DTYPE_I8, {0}},
    {ONNX_UINT4, DTYPE_U8, {0}},
    {ONNX_FLOAT8E4M3FNUZ, DTYPE_F32, {4, 8, false, true}},
    {ONNX_FLOAT8E5M2, DTYPE_F32, {5, 15, true, false}},
    {ONNX_FLOAT8E5M2FNUZ, DTYPE_F32, {5, 16, false, true}},
};

static const struct narrow *narrow_find(int32_t type)
{
    for (uint32_t i = 0; i < ARRAY_LEN(narrow); i++) {
        if ((int32_t)narrow[i].type == type)
            return &narrow[i];
    }
    return NULL;
}

bool tensor_is_narrow(int32_t type)
{
    return narrow_find(type) != NULL;
}

static float decode_float8(const struct float8 *format, uint8_t bits)
{
    uint32_t mantissa_bits = 7 - format->exponent;
    uint32_t exponent = (bits & 0x7fu) >> mantissa_bits;
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1), top = (1u << format->exponent) - 1;
    float sign = bits & 0x80 ? -1.0f : 1.0f;
    if (format->unsigned_zero && bits == 0x80)
        return NAN;
    if (format->infinities && exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (!format->infinities && !format->unsigned_zero && (bits & 0x7f) == 0x7f)
        return NAN;
    int power = (exponent ? (int)exponent : 1) - format->bias - (int)mantissa_bits;
    return sign * ldexpf((float)(mantissa + (exponent ? 1u << mantissa_bits : 0)), power);
}

/* The low nibble of each byte comes first. */
static void unpack_nibbles(bool is_signed, size_t n, const uint8_t *from, uint8_t *to)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t nibble = i % 2 ? from[i / 2] >> 4 : from[i / 2] & 15;
        to[i] = is_signed && nibble & 8 ? (uint8_t)(nibble | 0xf0) : nibble;
    }
}

enum status tensor_unpack(struct onnx_model *model, struct arena *arena,
                          const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                          struct error *err)
{
    const struct narrow *row = narrow_find(tensor->type);
    struct onnx_tensor packed = *tensor;
    const void *bytes;
    size_t n;
    if (!row)
        return tensor_bytes(model, arena, tensor, dtype, data, err);
    if (!shape_elements(&tensor->shape, &n) || n > INT64_MAX / 2)
        return error_set(err, STATUS_INVALID_ARGUMENT, "tensor '%s': its size overflows",
                         tensor->name);
    packed.type = ONNX_UINT8;
    packed.shape = (struct shape){.rank = 1, .dim = {(int64_t)n}};
    if (row->held != DTYPE_F32)
        packed.shape.dim[0] = (int64_t)((n + 1) / 2);
    TRY(tensor_bytes(model, arena, &packed, dtype, &bytes, err));
    void *to = arena_array(arena, MAX(n, 1), dtype_size(row->held));
    if (!to)
        return error_no_memory(err, "tensor '%s'", tensor->name);
    if (row->held != DTYPE_F32)
        unpack_nibbles(row->held == DTYPE_I8, n, bytes, to);
    for (size_t i = 0; row->held == DTYPE_F32 && i < n; i++)
        ((float *)to)[i] = decode_float8(&row->format, ((const uint8_t *)bytes)[i]);
    *dtype = row->held;
    *data = to;
    return STATUS_OK;
}
