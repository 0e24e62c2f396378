/* SPDX-License-Identifier: Apache-2.0 */
/* See escape.h. */
#include "base/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* C0, DEL, and C1 (U+0080 to U+009F), which terminals take for commands as well. */
static bool is_control(const unsigned char *at, size_t len)
{
    return (len == 1 && (at[0] < 0x20 || at[0] == 0x7f)) ||
           (len == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

void escape_text(char *out, size_t size, const char *in)
{
    size_t n = 0, len, left = strlen(in);
    for (; left; in += len, left -= len) {
        const unsigned char *at = (const unsigned char *)in;
        len = utf8_char(in, left);
        if (len && !is_control(at, len)) {
            if (n + len >= size)
                break;
            memcpy(out + n, in, len);
            n += len;
        } else {
            len = 1; /* the second byte of a C1 character is then no UTF-8 */
            if (n + 4 >= size)
                break;
            snprintf(out + n, 5, "\\x%02x", at[0]);
            n += 4;
        }
    }
    out[n] = '\0';
}
