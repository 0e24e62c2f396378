/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 through libcrypto's EVP, see digest.h. */
#include "base/digest.h"

#include <stdlib.h>

#include <openssl/evp.h>

struct digest {
    EVP_MD_CTX *state;
    bool failed;
};

struct digest *digest_new(void)
{
    struct digest *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->state = EVP_MD_CTX_new();
    if (!d->state || EVP_DigestInit_ex(d->state, EVP_sha256(), NULL) != 1) {
        digest_free(d);
        return NULL;
    }
    return d;
}

void digest_free(struct digest *d)
{
    if (!d)
        return;
    EVP_MD_CTX_free(d->state);
    free(d);
}

void digest_add(struct digest *d, const void *data, size_t size)
{
    if (size && EVP_DigestUpdate(d->state, data, size) != 1)
        d->failed = true;
}

bool digest_finish(struct digest *d, uint8_t out[DIGEST_BYTES])
{
    bool ok = EVP_DigestFinal_ex(d->state, out, NULL) == 1 && !d->failed;
    d->failed = EVP_DigestInit_ex(d->state, NULL, NULL) != 1;
    return ok;
}

void digest_text(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = hex[digest[i] >> 4];
        out[2 * i + 1] = hex[digest[i] & 15];
    }
    out[2 * DIGEST_BYTES] = '\0';
}
