/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bearer tokens: made, hashed, compared.
 *
 * A token is 32 random bytes, written in base64url without padding: 43 characters. Nobody can guess
 * it, however little the hash costs, so one round of SHA-256 is right for keeping it. A slow hash
 * would protect what people choose, but let a peer that sends wrong tokens use up a processor. A
 * password must therefore not take a token's place: a text shorter than TOKEN_LEAST is never
 * accepted.
 */
#ifndef INFERD_BASE_TOKEN_H
#define INFERD_BASE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    TOKEN_TEXT = 43,  /* characters of a token that was made here */
    TOKEN_LEAST = 32, /* of any token: 16 bytes in hexadecimal are enough */
    TOKEN_MOST = 128, /* a longer text is no token */
    TOKEN_HASH_TEXT = sizeof("sha256:") - 1 + 64,
};

struct token_hash {
    uint8_t bytes[32];
};

/* A new token, terminated. */
enum status token_new(char out[TOKEN_TEXT + 1], struct error *err);

/* Whether `token` is TOKEN_LEAST to TOKEN_MOST printable ASCII characters without a space. */
bool token_ok(const char *token, size_t len);

/* False: no memory for the library's context. */
bool token_hash_of(const char *token, size_t len, struct token_hash *out) MUST_USE;

/* "sha256:" and 64 hexadecimal digits, terminated; and back. */
void token_hash_format(const struct token_hash *hash, char out[TOKEN_HASH_TEXT + 1]);
bool token_hash_parse(const char *text, size_t len, struct token_hash *out);

/* Compares in a time that does not depend on where the two differ. */
bool token_same(const void *a, const void *b, size_t size);

#endif
