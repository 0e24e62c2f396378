/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 over libcrypto, see base64.h. */
#include "base/base64.h"

#include <stdint.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/compiler.h"

enum { GROUP = 4, BYTES = 3, AT_ONCE = 1 << 20 /* characters; libcrypto counts in int */ };

/* Whole groups without padding. Libcrypto takes a padding anywhere, which the caller has ruled out,
 * and drops white space at either end, which then is missing from what it returns. */
static bool groups_decode(uint8_t *to, const char *text, size_t len)
{
    for (size_t at = 0; at < len; at += AT_ONCE) {
        int n = (int)MIN(len - at, (size_t)AT_ONCE);
        if (EVP_DecodeBlock(to + at / GROUP * BYTES, (const uint8_t *)text + at, n) !=
            n / GROUP * BYTES)
            return false;
    }
    return true;
}

bool base64_decode(const char *text, size_t len, void *out, size_t *size)
{
    uint8_t *to = out, rest[BYTES];
    char last[GROUP] = {'A', 'A', 'A', 'A'};
    if (len % GROUP == 0) /* only whole groups are padded */
        for (int k = 0; k < 2 && len && text[len - 1] == '='; k++)
            len--;
    size_t left = len % GROUP, whole = len - left;
    if (left == 1 || (len && memchr(text, '=', len)))
        return false;
    memcpy(last, text + whole, left);
    if (!groups_decode(rest, last, GROUP) || !groups_decode(to, text, whole))
        return false;
    size_t n = whole / GROUP * BYTES, more = left ? left - 1 : 0;
    memcpy(to + n, rest, more);
    *size = n + more;
    return true;
}

void base64_url_encode(const void *bytes, size_t size, char *out)
{
    int n = EVP_EncodeBlock((uint8_t *)out, bytes, (int)size);
    for (char *c = out; c < out + n; c++)
        *c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c == '=' ? '\0' : *c);
}
