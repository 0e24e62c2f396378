/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detached signatures of files: Ed25519 (RFC 8032), 64 bytes, over
 *
 *     "inferd plan v1"                         14 bytes, so that no signature made for something
 *                                              else fits
 *     the file's digest (base/file_read.h)     32 bytes
 *
 * A signature says who made the bytes, not what they are for: a file that a key has signed may
 * stand in the place of another file, with its signature beside it. Keys are PEM files as `openssl
 * genpkey -algorithm ed25519` and `openssl pkey -pubout` write them.
 */
#ifndef INFERD_BASE_SIGNATURE_H
#define INFERD_BASE_SIGNATURE_H

#include "base/digest.h"
#include "base/error.h"

enum { SIGNATURE_BYTES = 64, SIGNATURE_KEYS_MAX = 64 };

struct signature_keys;

/* Reads one or more public keys from the open file `fd`. Keys of other kinds than Ed25519 are
 * refused. */
enum status signature_keys_read(int fd, const char *name, struct signature_keys **out,
                                struct error *err);
void signature_keys_free(struct signature_keys *keys); /* NULL is fine */

/* FAILED_PRECONDITION: the signature is by none of these keys, or not for this digest. */
enum status signature_check(const struct signature_keys *keys, const uint8_t digest[DIGEST_BYTES],
                            const uint8_t signature[SIGNATURE_BYTES], struct error *err);

/* Reads a signature from the open file `fd`, which must hold nothing else. */
enum status signature_read(int fd, uint8_t out[SIGNATURE_BYTES], struct error *err);

/* Signs with the private key in the open file `fd`. The key must not be encrypted, because nobody
 * is asked for a password. */
enum status signature_make(int fd, const char *name, const uint8_t digest[DIGEST_BYTES],
                           uint8_t out[SIGNATURE_BYTES], struct error *err);

#endif
