/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types, under the names of the Open Inference Protocol ("FP32", "INT64", "BYTES", ...).
 * 8-bit floats are none of the protocol's types: no input or output has them.
 * The enum's values are stored in plan files: append, never renumber.
 */
#ifndef INFERD_BASE_DTYPE_H
#define INFERD_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_NONE = 0,
    DTYPE_BOOL = 1, /* one byte, 0 or 1 */
    DTYPE_U8 = 2,
    DTYPE_U16 = 3,
    DTYPE_U32 = 4,
    DTYPE_U64 = 5,
    DTYPE_I8 = 6,
    DTYPE_I16 = 7,
    DTYPE_I32 = 8,
    DTYPE_I64 = 9,
    DTYPE_F16 = 10,
    DTYPE_BF16 = 11,
    DTYPE_F32 = 12,
    DTYPE_F64 = 13,
    DTYPE_F8 = 14, /* FLOAT8E4M3FN; only inside of graphs, and in them only between scales */
    DTYPE_COUNT_
};

/* Bytes of one element; 0 for DTYPE_NONE and for numbers outside the table. */
size_t dtype_size(enum dtype dtype);

/* "FP32"; "NONE" outside the table. Static storage. */
const char *dtype_name(enum dtype dtype);

/* The protocol's type of that name (case matters); DTYPE_NONE if there is none. `len` bytes, no
 * terminator. */
enum dtype dtype_parse(const char *name, size_t len);

bool dtype_is_float(enum dtype dtype); /* fp16, bf16, fp32, fp64: those to compute in */
bool dtype_is_signed(enum dtype dtype);

/* IEEE 754 binary16 and bfloat16, round to nearest even; NaN stays NaN. */
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

static inline float bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof(f));
    return f;
}

uint16_t f32_to_bf16(float value);

/* A float of a sign, 4 bits of exponent and 3 of mantissa, without infinities: the largest is
 * DTYPE_F8_MAX, and all ones are NaN. Rounds to nearest even, and saturates. */
#define DTYPE_F8_MAX 448.0F
float f8_to_f32(uint8_t bits);
uint8_t f32_to_f8(float value);

/* Writes the low bytes of a number as an element of 1, 2, 4 or 8 bytes, at any address. */
static inline void dtype_store(void *to, uint64_t value, size_t width)
{
    const uint32_t word = (uint32_t)value;
    const uint16_t half = (uint16_t)value;

    switch (width) {
    case 1:
        *(uint8_t *)to = (uint8_t)value;
        break;
    case 2:
        memcpy(to, &half, 2);
        break;
    case 4:
        memcpy(to, &word, 4);
        break;
    default:
        memcpy(to, &value, 8);
    }
}

#endif
