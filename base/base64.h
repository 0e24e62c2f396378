/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648): how JSON carries bytes, and tokens are written. */
#ifndef INFERD_BASE_BASE64_H
#define INFERD_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes `len` characters, with or without padding at their end; `out` may be `text` itself, and
 * has room for 3 bytes for each 4 characters begun. False: it is no base64. */
bool base64_decode(const char *text, size_t len, void *out, size_t *size);

/* Encodes a few bytes for URLs, without padding, terminated; `out` has room for 4 characters for
 * each 3 bytes begun and one more. */
void base64_url_encode(const void *bytes, size_t size, char *out);

#endif
