/* SPDX-License-Identifier: Apache-2.0 */
/* Base64, see base64.h. */
#include "base/base64.h"

#include <stdint.h>

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t len, void *out, size_t *size)
{
    uint8_t *to = out;
    uint32_t bits = 0;
    size_t n = 0;
    if (len % 4 == 0) /* only whole groups are padded */
        for (int k = 0; k < 2 && len && text[len - 1] == '='; k++)
            len--;
    if (len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        int value = value_of(text[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4)
            to[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *size = n;
    return true;
}
