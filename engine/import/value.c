/* SPDX-License-Identifier: Apache-2.0 */
/* See value.h. */
#include "engine/import/value.h"

#include <errno.h>
#include <stdlib.h>

/* What stands before `end` is a number, and nothing but a comma is behind it. */
static bool ends(const char *from, const char *end)
{
    return end != from && (*end == ',' || *end == '\0') && errno != ERANGE;
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

static bool read_whole(const char *text, enum dtype dtype, uint64_t *bits, const char **end)
{
    size_t len = strcspn(text, ","), width = dtype_size(dtype);
    char *stop;
    bool truth = is_word(text, len, "true");
    *end = text + len;
    if (dtype == DTYPE_BOOL && (truth || is_word(text, len, "false"))) {
        *bits = truth;
        return true;
    }
    errno = 0;
    if (dtype == DTYPE_U64 && *text != '-') {
        *bits = strtoull(text, &stop, 10);
        return ends(text, stop);
    }
    int64_t value = strtoll(text, &stop, 10);
    *bits = (uint64_t)value;
    if (!ends(text, stop) || (dtype == DTYPE_BOOL && *bits > 1))
        return false;
    if (!dtype_is_signed(dtype))
        return value >= 0 && (width == 8 || *bits >> (8 * width) == 0);
    return width == 8 ||
           (value >= -(INT64_C(1) << (8 * width - 1)) && value < INT64_C(1) << (8 * width - 1));
}

static bool read_float(const char *text, enum dtype dtype, uint64_t *bits, const char **end)
{
    char *stop;
    errno = 0;
    double value = strtod(text, &stop);
    float narrow = (float)value;
    uint32_t word;
    *end = stop;
    if (!ends(text, stop))
        return false;
    memcpy(&word, &narrow, sizeof(word));
    if (dtype == DTYPE_F64)
        memcpy(bits, &value, sizeof(*bits));
    else
        *bits = dtype == DTYPE_F16    ? f32_to_f16(narrow)
                : dtype == DTYPE_BF16 ? f32_to_bf16(narrow)
                                      : word;
    return true;
}

bool value_fill(const char *text, enum dtype dtype, size_t n, void *out)
{
    size_t width = dtype_size(dtype), i = 0;
    uint64_t bits = 0;
    for (bool more = true; more; i++) {
        const char *end;
        bool ok = dtype_is_float(dtype) ? read_float(text, dtype, &bits, &end)
                                        : read_whole(text, dtype, &bits, &end);
        if (!ok || i >= n)
            return false;
        dtype_store((char *)out + i * width, bits, width);
        more = *end == ',';
        text = end + more;
    }
    if (i != n && i != 1)
        return false;
    for (; i < n; i++)
        memcpy((char *)out + i * width, out, width);
    return true;
}
