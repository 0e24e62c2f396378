/* SPDX-License-Identifier: Apache-2.0 */
/* Whole characters and nothing else; see utf8.h. */
#include "base/utf8.h"

#include <stdint.h>

#include "base/compiler.h"

enum { CONTINUATION_MIN = 0x80, CONTINUATION_MAX = 0xbf };

/* Table 3-7 of the Unicode standard: by the first byte, the length and the range of the second
 * byte. The bytes after the second are any continuation bytes. */
static const struct {
    uint8_t first, last, len, second_min, second_max;
} rows[] = {
    {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf}, {0xe1, 0xec, 3, 0x80, 0xbf},
    {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf}, {0xf0, 0xf0, 4, 0x90, 0xbf},
    {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

static bool within(uint8_t c, uint8_t min, uint8_t max)
{
    return c >= min && c <= max;
}

size_t utf8_char(const char *text, size_t len)
{
    const uint8_t *at = (const uint8_t *)text;
    if (!len)
        return 0;
    if (at[0] < 0x80)
        return 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!within(at[0], rows[i].first, rows[i].last))
            continue;
        if (len < rows[i].len || !within(at[1], rows[i].second_min, rows[i].second_max))
            return 0;
        for (size_t k = 2; k < rows[i].len; k++)
            if (!within(at[k], CONTINUATION_MIN, CONTINUATION_MAX))
                return 0;
        return rows[i].len;
    }
    return 0;
}

size_t utf8_prefix(const char *text, size_t len, size_t max)
{
    size_t at = 0;
    while (at < len) {
        size_t n = utf8_char(text + at, len - at);
        if (!n || n > max - at)
            break;
        at += n;
    }
    return at;
}

bool utf8_is_control(const char *text, size_t len)
{
    const unsigned char *at = (const unsigned char *)text;
    return (len == 1 && (at[0] < 0x20 || at[0] == 0x7f)) ||
           (len == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

bool utf8_ok(const char *text, size_t len)
{
    return utf8_prefix(text, len, len) == len;
}

size_t utf8_cut(const char *text, size_t len, size_t max)
{
    if (len <= max)
        return len;
    /* A character that crosses `max` began at most three bytes before it. */
    for (size_t back = 1; back <= 3 && back <= max; back++)
        if (utf8_char(text + max - back, len - (max - back)) > back)
            return max - back;
    return max;
}
