/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648): how JSON carries bytes. */
#ifndef INFERD_BASE_BASE64_H
#define INFERD_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes `len` characters, with or without padding at their end; `out` may be `text` itself, and
 * has room for 3 bytes for each 4 characters begun. False: it is no base64. */
bool base64_decode(const char *text, size_t len, void *out, size_t *size);

#endif
