/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a whole file, into memory of our own or for its digest alone.
 *
 * What a process has mapped, others can change, or take away: a file that is cut short turns the
 * next look at it into a SIGBUS, and bytes that are overwritten change under those who had checked
 * them. Whoever may not die of that, or has to know what it uses, reads. That costs little: several
 * threads read, piece by piece, into huge pages, and look at each piece while it is warm.
 *
 * A file that changes while it is read is refused. The times and the size of the file tell, but not
 * for every way of writing: those who have a digest compare it as well.
 */
#ifndef INFERD_BASE_FILE_READ_H
#define INFERD_BASE_FILE_READ_H

#include <stdatomic.h>

#include "base/digest.h"
#include "base/file.h"

enum { FILE_PIECE = 1 << 20 };

/* What somebody far from the reading asks of it. */
struct file_guard {
    const _Atomic bool *stop; /* looked at between pieces, ends it: CANCELLED; NULL: nobody does */
    /* Is told the digest of the bytes that are going to be used, before they are given out; a
     * failure refuses them. NULL: all are accepted. */
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
    /* file_digest: to be looked for, 2 to 64 bytes; NULL: nothing. */
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

/* The whole regular file `fd`, from its begin, into memory that nobody else has and that cannot be
 * written any more; file_unmap frees it. UNAVAILABLE: the file changed while it was read. */
enum status file_load(int fd, const struct file_read *how, struct file_map *out, struct error *err);
/* The digest alone, and whether the word is in the file; keeps only a few pieces in memory. */
enum status file_digest(int fd, const struct file_read *how, uint8_t out[DIGEST_BYTES],
                        struct error *err);

#endif
