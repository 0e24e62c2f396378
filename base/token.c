/* SPDX-License-Identifier: Apache-2.0 */
/* Bearer tokens over libcrypto; see token.h. */
#include "base/token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/base64.h"

#define PREFIX "sha256:"

enum { RANDOM_BYTES = 32 };

enum status token_new(char out[TOKEN_TEXT + 1], struct error *err)
{
    uint8_t random[RANDOM_BYTES];
    char text[TOKEN_TEXT + 2]; /* libcrypto writes a padding first */
    ssize_t n;
    do
        n = getrandom(random, RANDOM_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n != RANDOM_BYTES)
        return error_errno(err, n < 0 ? errno : EIO, "random bytes for a token");
    base64_url_encode(random, sizeof(random), text);
    memcpy(out, text, TOKEN_TEXT + 1);
    explicit_bzero(random, sizeof(random));
    explicit_bzero(text, sizeof(text));
    return STATUS_OK;
}

bool token_ok(const char *token, size_t len)
{
    if (len < TOKEN_LEAST || len > TOKEN_MOST)
        return false;
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return false;
    return true;
}

bool token_hash_of(const char *token, size_t len, struct token_hash *out)
{
    return EVP_Digest(token, len, out->bytes, NULL, EVP_sha256(), NULL) == 1;
}

void token_hash_format(const struct token_hash *hash, char out[TOKEN_HASH_TEXT + 1])
{
    int n = snprintf(out, TOKEN_HASH_TEXT + 1, PREFIX);
    for (size_t i = 0; i < sizeof(hash->bytes); i++)
        n += snprintf(out + n, 3, "%02x", hash->bytes[i]);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool token_hash_parse(const char *text, size_t len, struct token_hash *out)
{
    struct token_hash hash;
    size_t skip = sizeof(PREFIX) - 1;
    if (len != TOKEN_HASH_TEXT || memcmp(text, PREFIX, skip) != 0)
        return false;
    for (size_t i = 0; i < sizeof(hash.bytes); i++) {
        int high = digit_of(text[skip + 2 * i]), low = digit_of(text[skip + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        hash.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *out = hash;
    return true;
}

bool token_same(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}
