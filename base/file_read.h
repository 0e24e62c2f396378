/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a whole file, into memory of our own or for its digest alone.
 *
 * Others can change a file that a process has mapped: if the file is cut short, the next access
 * raises SIGBUS, and overwritten bytes change under a process that has checked them. A process that
 * must not die of that, or must know what it uses, reads the file instead. That costs little:
 * several threads read, piece by piece, into huge pages, and hash each piece while it is in the
 * cache.
 *
 * A file that changes while it is read is refused. Its time and its size tell of most changes, but
 * not for every way of writing, so callers that have a digest compare it as well.
 */
#ifndef INFERD_BASE_FILE_READ_H
#define INFERD_BASE_FILE_READ_H

#include <stdatomic.h>

#include "base/digest.h"
#include "base/file.h"

enum { FILE_PIECE = 1 << 20 };

/* What callers further up ask of a reading. */
struct file_guard {
    const _Atomic bool *stop; /* ends the reading between two pieces: CANCELLED; NULL: never */
    /* Gets the digest of the bytes before they are given out; its failure refuses them. NULL: all
     * bytes are accepted. */
    enum status (*accept)(void *user, const uint8_t digest[DIGEST_BYTES], struct error *err);
    void *user;
};

struct file_read {
    const char *name;               /* for error texts */
    uint64_t limit;                 /* more bytes are refused before one is read; 0: any number */
    const struct file_guard *guard; /* NULL: none */
    /* file_load: gets the pieces in their order, on the caller's thread, while others are still
     * read; NULL: not wanted. */
    void (*piece)(void *user, const void *data, size_t size);
    void *user;
    /* file_digest: a text of 2 to 64 bytes to look for; NULL: none. */
    const char *word;
    bool *found;
};

/*
 * The digest of a file is made by all threads together: the SHA-256 of
 *
 *     "inferd file v1"                            14 bytes
 *     the file's size                              8 bytes, the highest first
 *     the SHA-256 of each MiB (FILE_PIECE) of it  32 bytes each; the last piece may be shorter
 */

/* Reads the whole regular file `fd` into memory that no other process has and that cannot be
 * written any more; file_unmap frees it. UNAVAILABLE: the file changed while it was read. */
enum status file_load(int fd, const struct file_read *how, struct file_map *out, struct error *err);
/* Finds the digest alone, and whether the word is in the file; keeps only a few pieces in
 * memory. */
enum status file_digest(int fd, const struct file_read *how, uint8_t out[DIGEST_BYTES],
                        struct error *err);

#endif
