/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of tensors as JSON numbers, exactly; see json.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/json.h"

enum { NUMBER_MOST = 400 }; /* digits of a number; the longest double takes fewer that matter */

/* The range of an integer type; `max` as an unsigned number. */
struct range {
    enum dtype dtype;
    int64_t min;
    uint64_t max;
};

static const struct range ranges[] = {
    {DTYPE_BOOL, 0, 1},
    {DTYPE_U8, 0, UINT8_MAX},
    {DTYPE_U16, 0, UINT16_MAX},
    {DTYPE_U32, 0, UINT32_MAX},
    {DTYPE_U64, 0, UINT64_MAX},
    {DTYPE_I8, INT8_MIN, INT8_MAX},
    {DTYPE_I16, INT16_MIN, INT16_MAX},
    {DTYPE_I32, INT32_MIN, INT32_MAX},
    {DTYPE_I64, INT64_MIN, INT64_MAX},
};

static const struct range *range_of(enum dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (ranges[i].dtype == dtype)
            return &ranges[i];
    return NULL;
}

static enum status refuse(struct message_text text, enum dtype dtype, struct message_text name,
                          const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %.*s %s %s", MESSAGE_TEXT(name),
                     (int)MIN(text.len, (size_t)40), text.data ? text.data : "", why,
                     dtype_name(dtype));
}

/* Reads digits; false: there is something else, or too much for 64 bits. */
static bool digits_read(const char *at, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    if (at == end)
        return false;
    for (; at < end; at++)
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    *out = value;
    return true;
}

static enum status integer_read(struct message_text text, const struct range *range, void *to,
                                struct message_text name, struct error *err)
{
    bool minus = text.len && text.data[0] == '-';
    uint64_t value;
    if (!digits_read(text.data + minus, text.data + text.len, &value))
        return refuse(text, range->dtype, name, "is no integer of 64 bits, as is expected of", err);
    /* The magnitude of the least value, without overflow. */
    uint64_t most = minus ? (range->min ? (uint64_t)(-(range->min + 1)) + 1 : 0) : range->max;
    if (value > most)
        return refuse(text, range->dtype, name, "is out of the range of", err);
    dtype_store(to, minus ? 0 - value : value, dtype_size(range->dtype));
    return STATUS_OK;
}

static enum status float_read(struct message_text text, enum dtype dtype, void *to,
                              struct message_text name, struct error *err)
{
    char number[NUMBER_MOST + 1];
    if (text.len > NUMBER_MOST)
        return refuse(text, dtype, name, "... has too many digits for", err);
    memcpy(number, text.data, text.len);
    number[text.len] = '\0';
    double wide = 0;
    float narrow = 0;
    if (dtype == DTYPE_F64)
        wide = strtod(number, NULL);
    else
        wide = narrow = strtof(number, NULL);
    if (!isfinite(wide))
        return refuse(text, dtype, name, "is out of the range of", err);
    if (dtype == DTYPE_F64)
        memcpy(to, &wide, sizeof(wide));
    else
        memcpy(to, &narrow, sizeof(narrow));
    return STATUS_OK;
}

enum status json_element_read(enum json_kind kind, struct message_text text, enum dtype dtype,
                              void *to, struct message_text name, struct error *err)
{
    const struct range *range = range_of(dtype);
    if (dtype == DTYPE_BOOL && (kind == JSON_TRUE || kind == JSON_FALSE)) {
        *(uint8_t *)to = kind == JSON_TRUE;
        return STATUS_OK;
    }
    if (kind != JSON_NUMBER)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "'%.*s': an element of its data is no number, as is expected of %s",
                         MESSAGE_TEXT(name), dtype_name(dtype));
    if (range)
        return integer_read(text, range, to, name, err);
    if (dtype == DTYPE_F32 || dtype == DTYPE_F64)
        return float_read(text, dtype, to, name, err);
    return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %s is taken as binary data only",
                     MESSAGE_TEXT(name), dtype_name(dtype));
}

/* --- writing --- */

/* Adds ".0" to what would be read as an integer. */
static size_t point_add(char *out, size_t len)
{
    if (strcspn(out, ".eE") < len)
        return len;
    memcpy(out + len, ".0", 3);
    return len + 2;
}

static size_t float_write(double value, bool narrow, char *out)
{
    if (!isfinite(value))
        return (size_t)sprintf(out, "%s",
                               isnan(value) ? "NaN"
                               : value < 0  ? "-Infinity"
                                            : "Infinity");
    /* These many digits always suffice; often fewer do, and the text gets shorter. */
    int most = narrow ? 9 : 17;
    for (int digits = narrow ? 7 : 15; digits <= most; digits += 2) {
        size_t len = (size_t)snprintf(out, JSON_ELEMENT_MOST, "%.*g", digits, value);
        if (digits == most ||
            (narrow ? (double)strtof(out, NULL) == value : strtod(out, NULL) == value))
            return point_add(out, len);
    }
    return 0;
}

static size_t integer_write(enum dtype dtype, const void *from, char *out)
{
    uint64_t bits = 0;
    size_t width = dtype_size(dtype);
    memcpy(&bits, from, width); /* little endian, as all that is served here */
    if (!dtype_is_signed(dtype))
        return (size_t)snprintf(out, JSON_ELEMENT_MOST, "%" PRIu64, bits);
    uint32_t shift = 64 - 8 * (uint32_t)width;
    return (size_t)snprintf(out, JSON_ELEMENT_MOST, "%" PRId64, (int64_t)(bits << shift) >> shift);
}

size_t json_element_write(enum dtype dtype, const void *from, char *out)
{
    uint16_t half;
    float narrow;
    double wide;
    switch (dtype) {
    case DTYPE_BOOL:
        return (size_t)sprintf(out, "%s", *(const uint8_t *)from ? "true" : "false");
    case DTYPE_F64:
        memcpy(&wide, from, sizeof(wide));
        return float_write(wide, false, out);
    case DTYPE_F32:
        memcpy(&narrow, from, sizeof(narrow));
        return float_write(narrow, true, out);
    case DTYPE_F16:
    case DTYPE_BF16:
        memcpy(&half, from, sizeof(half));
        return float_write(dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half), true, out);
    default:
        return integer_write(dtype, from, out);
    }
}
