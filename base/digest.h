/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256, for where somebody could gain from two contents with one digest: the names of kept
 * plans, and what a signature is made over. XXH3, which plans and timings carry inside, finds
 * accidents only.
 *
 * libcrypto computes the hash, because it uses the processor's own instructions and is well looked
 * after.
 */
#ifndef INFERD_BASE_DIGEST_H
#define INFERD_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum { DIGEST_BYTES = 32, DIGEST_TEXT = 2 * DIGEST_BYTES + 1 };

struct digest;

struct digest *digest_new(void); /* NULL: no memory */
void digest_free(struct digest *digest);
void digest_add(struct digest *digest, const void *data, size_t size);
/* Gives the digest of what was added since the last digest_finish. False: the library has failed
 * since then (it had no memory). */
bool digest_finish(struct digest *digest, uint8_t out[DIGEST_BYTES]) MUST_USE;

/* As hexadecimal digits. */
void digest_text(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT]);

#endif
