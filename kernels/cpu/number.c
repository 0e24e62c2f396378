/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion between rows of any type and rows of double or int64. Elements are moved by memcpy,
 * which compilers turn into plain (vector) loads: the data may be unaligned.
 */
#include "kernels/cpu/number.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Narrows to 24 bits in such a way that rounding the result again, to 11 or 8 bits, gives what
 * rounding once would give: it rounds towards zero and sets the last bit if anything was lost
 * ("round to odd"). */
static float narrow_to_odd(double value)
{
    float near = (float)value;
    if ((double)near == value || isnan(value) || isinf(near))
        return near;
    uint32_t bits;
    memcpy(&bits, &near, sizeof(bits));
    if (fabs((double)near) > fabs(value))
        bits--;
    bits |= 1;
    memcpy(&near, &bits, sizeof(near));
    return near;
}

/* Converts as x86's instructions do: a number that does not fit becomes the smallest one. */
static int64_t truncate_64(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

static int32_t truncate_32(double value)
{
    return value > -0x1p31 - 1 && value < 0x1p31 ? (int32_t)value : INT32_MIN;
}

static uint64_t truncate_u64(double value)
{
    if (value >= 0x1p63)
        return value < 0x1p64 ? (uint64_t)value : 0;
    return (uint64_t)truncate_64(value);
}

/* One pass over the row. The contiguous case has a loop of its own, which compilers can
 * vectorise. */
#define FOR_ROW(size, body)                                                                        \
    do {                                                                                           \
        if (stride == 1) {                                                                         \
            for (size_t i = 0; i < n; i++, p += (size)) {                                          \
                body                                                                               \
            }                                                                                      \
        } else {                                                                                   \
            int64_t step = stride * (int64_t)(size);                                               \
            for (size_t i = 0; i < n; i++, p += step) {                                            \
                body                                                                               \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define READ(type, expr) FOR_ROW(sizeof(type), type v; memcpy(&v, p, sizeof(v)); out[i] = (expr);)

#define WRITE(type, expr) FOR_ROW(sizeof(type), type v = (expr); memcpy(p, &v, sizeof(v));)

void ref_read_f64(enum dtype dtype, const void *base, int64_t index, int64_t stride, size_t n,
                  double *out)
{
    const char *p = (const char *)base + index * (int64_t)dtype_size(dtype);
    switch (dtype) {
    case DTYPE_BOOL:
        READ(uint8_t, v ? 1.0 : 0.0);
        break;
    case DTYPE_U8:
        READ(uint8_t, (double)v);
        break;
    case DTYPE_U16:
        READ(uint16_t, (double)v);
        break;
    case DTYPE_U32:
        READ(uint32_t, (double)v);
        break;
    case DTYPE_U64:
        READ(uint64_t, (double)v);
        break;
    case DTYPE_I8:
        READ(int8_t, (double)v);
        break;
    case DTYPE_I16:
        READ(int16_t, (double)v);
        break;
    case DTYPE_I32:
        READ(int32_t, (double)v);
        break;
    case DTYPE_I64:
        READ(int64_t, (double)v);
        break;
    case DTYPE_F8:
        READ(uint8_t, (double)f8_to_f32(v));
        break;
    case DTYPE_F16:
        READ(uint16_t, (double)f16_to_f32(v));
        break;
    case DTYPE_BF16:
        READ(uint16_t, (double)bf16_to_f32(v));
        break;
    case DTYPE_F32:
        READ(float, (double)v);
        break;
    case DTYPE_F64:
        READ(double, v);
        break;
    case DTYPE_NONE:
    case DTYPE_COUNT_:
        break;
    }
}

void ref_write_f64(enum dtype dtype, void *base, int64_t index, int64_t stride, size_t n,
                   const double *in)
{
    char *p = (char *)base + index * (int64_t)dtype_size(dtype);
    switch (dtype) {
    case DTYPE_BOOL:
        WRITE(uint8_t, in[i] != 0);
        break;
    case DTYPE_U8:
    case DTYPE_I8:
        WRITE(uint8_t, (uint8_t)(uint32_t)truncate_32(in[i]));
        break;
    case DTYPE_U16:
    case DTYPE_I16:
        WRITE(uint16_t, (uint16_t)(uint32_t)truncate_32(in[i]));
        break;
    case DTYPE_U32:
        WRITE(uint32_t, (uint32_t)(uint64_t)truncate_64(in[i]));
        break;
    case DTYPE_I32:
        WRITE(int32_t, truncate_32(in[i]));
        break;
    case DTYPE_U64:
        WRITE(uint64_t, truncate_u64(in[i]));
        break;
    case DTYPE_I64:
        WRITE(int64_t, truncate_64(in[i]));
        break;
    case DTYPE_F8:
        WRITE(uint8_t, f32_to_f8(narrow_to_odd(in[i])));
        break;
    case DTYPE_F16:
        WRITE(uint16_t, f32_to_f16(narrow_to_odd(in[i])));
        break;
    case DTYPE_BF16:
        WRITE(uint16_t, f32_to_bf16(narrow_to_odd(in[i])));
        break;
    case DTYPE_F32:
        WRITE(float, (float)in[i]);
        break;
    case DTYPE_F64:
        WRITE(double, in[i]);
        break;
    case DTYPE_NONE:
    case DTYPE_COUNT_:
        break;
    }
}

void ref_read_i64(enum dtype dtype, const void *base, int64_t index, int64_t stride, size_t n,
                  int64_t *out)
{
    const char *p = (const char *)base + index * (int64_t)dtype_size(dtype);
    switch (dtype) {
    case DTYPE_BOOL:
        READ(uint8_t, v ? 1 : 0);
        break;
    case DTYPE_U8:
        READ(uint8_t, v);
        break;
    case DTYPE_U16:
        READ(uint16_t, v);
        break;
    case DTYPE_U32:
        READ(uint32_t, v);
        break;
    case DTYPE_U64:
    case DTYPE_I64:
        READ(int64_t, v);
        break;
    case DTYPE_I8:
        READ(int8_t, v);
        break;
    case DTYPE_I16:
        READ(int16_t, v);
        break;
    case DTYPE_I32:
        READ(int32_t, v);
        break;
    case DTYPE_F8:
        READ(uint8_t, truncate_64((double)f8_to_f32(v)));
        break;
    case DTYPE_F16:
        READ(uint16_t, truncate_64((double)f16_to_f32(v)));
        break;
    case DTYPE_BF16:
        READ(uint16_t, truncate_64((double)bf16_to_f32(v)));
        break;
    case DTYPE_F32:
        READ(float, truncate_64((double)v));
        break;
    case DTYPE_F64:
        READ(double, truncate_64(v));
        break;
    case DTYPE_NONE:
    case DTYPE_COUNT_:
        break;
    }
}

void ref_write_i64(enum dtype dtype, void *base, int64_t index, int64_t stride, size_t n,
                   const int64_t *in)
{
    char *p = (char *)base + index * (int64_t)dtype_size(dtype);
    switch (dtype) {
    case DTYPE_BOOL:
        WRITE(uint8_t, in[i] != 0);
        break;
    case DTYPE_U8:
    case DTYPE_I8:
        WRITE(uint8_t, (uint8_t)(uint64_t)in[i]);
        break;
    case DTYPE_U16:
    case DTYPE_I16:
        WRITE(uint16_t, (uint16_t)(uint64_t)in[i]);
        break;
    case DTYPE_U32:
    case DTYPE_I32:
        WRITE(uint32_t, (uint32_t)(uint64_t)in[i]);
        break;
    case DTYPE_U64:
    case DTYPE_I64:
        WRITE(int64_t, in[i]);
        break;
    case DTYPE_F8:
        WRITE(uint8_t, f32_to_f8(narrow_to_odd((double)in[i])));
        break;
    case DTYPE_F16:
        WRITE(uint16_t, f32_to_f16(narrow_to_odd((double)in[i])));
        break;
    case DTYPE_BF16:
        WRITE(uint16_t, f32_to_bf16(narrow_to_odd((double)in[i])));
        break;
    case DTYPE_F32:
        WRITE(float, (float)in[i]);
        break;
    case DTYPE_F64:
        WRITE(double, (double)in[i]);
        break;
    case DTYPE_NONE:
    case DTYPE_COUNT_:
        break;
    }
}

double ref_get_f64(enum dtype dtype, const void *base, int64_t index)
{
    double value = 0;
    ref_read_f64(dtype, base, index, 1, 1, &value);
    return value;
}

int64_t ref_get_i64(enum dtype dtype, const void *base, int64_t index)
{
    int64_t value = 0;
    ref_read_i64(dtype, base, index, 1, 1, &value);
    return value;
}
