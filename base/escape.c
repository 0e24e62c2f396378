/* SPDX-License-Identifier: Apache-2.0 */
/* See escape.h. */
#include "base/escape.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void escape_text(char *out, size_t size, const char *in)
{
    size_t n = 0, len, left = strlen(in);
    for (; left; in += len, left -= len) {
        const unsigned char *at = (const unsigned char *)in;
        len = utf8_char(in, left);
        if (len && !utf8_is_control(in, len)) {
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
