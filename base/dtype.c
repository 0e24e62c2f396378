/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

#include "base/compiler.h"

struct dtype_row {
    const char *name;
    uint8_t size;
    bool is_float;
    bool is_signed;
};

static const struct dtype_row rows[DTYPE_COUNT_] = {
    [DTYPE_NONE] = {"NONE", 0, false, false},  [DTYPE_BOOL] = {"BOOL", 1, false, false},
    [DTYPE_U8] = {"UINT8", 1, false, false},   [DTYPE_U16] = {"UINT16", 2, false, false},
    [DTYPE_U32] = {"UINT32", 4, false, false}, [DTYPE_U64] = {"UINT64", 8, false, false},
    [DTYPE_I8] = {"INT8", 1, false, true},     [DTYPE_I16] = {"INT16", 2, false, true},
    [DTYPE_I32] = {"INT32", 4, false, true},   [DTYPE_I64] = {"INT64", 8, false, true},
    [DTYPE_F16] = {"FP16", 2, true, true},     [DTYPE_BF16] = {"BF16", 2, true, true},
    [DTYPE_F32] = {"FP32", 4, true, true},     [DTYPE_F64] = {"FP64", 8, true, true},
    [DTYPE_F8] = {"FP8", 1, false, true},
};

static const struct dtype_row *row(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT_ ? &rows[dtype] : &rows[DTYPE_NONE];
}

size_t dtype_size(enum dtype dtype)
{
    return row(dtype)->size;
}

const char *dtype_name(enum dtype dtype)
{
    return row(dtype)->name;
}

bool dtype_is_float(enum dtype dtype)
{
    return row(dtype)->is_float;
}

bool dtype_is_signed(enum dtype dtype)
{
    return row(dtype)->is_signed;
}

enum dtype dtype_parse(const char *name, size_t len)
{
    for (size_t i = 1; i < ARRAY_LEN(rows); i++)
        if (i != DTYPE_F8 && strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return (enum dtype)i;
    return DTYPE_NONE;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f;
    uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* a subnormal, exact in binary32 */
    return sign ? -tiny : tiny;
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* 65520: rounds to infinity */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 leaves the subnormal in the low bits */
        uint32_t r = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return sign | (uint16_t)r;
    }
    uint32_t odd = magnitude >> 13 & 1;
    return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f8_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24;
    uint32_t magnitude = bits & 0x7f;
    if (magnitude == 0x7f)
        return float_of(sign | 0x7fc00000);
    if (magnitude >= 8)
        return float_of(sign | (magnitude + (120 << 3)) << 20);
    float tiny = (float)magnitude * 0x1p-9f; /* a subnormal */
    return sign ? -tiny : tiny;
}

uint8_t f32_to_f8(float value)
{
    uint32_t bits = bits_of(value);
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7f;
    if (magnitude >= bits_of(DTYPE_F8_MAX))
        return sign | 0x7e;
    if (magnitude < 0x3c800000) { /* below 2^-6: adding 2^14 leaves the subnormal in the low bits */
        uint32_t r = bits_of(float_of(magnitude) + 0x1p14f) - bits_of(0x1p14f);
        return sign | (uint8_t)r;
    }
    uint32_t odd = magnitude >> 20 & 1;
    return sign | (uint8_t)((magnitude - 0x3c000000 + 0x7ffff + odd) >> 20);
}
