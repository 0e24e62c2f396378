/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: opened, mapped, written by replacing. file_read.h reads them.
 *
 * Only regular files are opened and mapped. Anything else (folders, devices, pipes) is refused
 * without blocking on it. A mapping shows what others do to its file, and if the file is cut short,
 * reading the mapping raises SIGBUS. That ends an inferctl or a build child, which harms nobody
 * else; the daemon maps no file. A path that came from a file or a peer goes through
 * file_open_beneath, which never leaves its folder and follows no symbolic link (R13 of
 * docs/operations.md).
 *
 * Writing never shows a half-written file to anybody (R33): the bytes go to a temporary beside the
 * target, are fsync-ed, take the target's name, and the folder is fsync-ed. The temporary's name is
 * fixed (".NAME.inferd-tmp") and its writer holds a flock on it, so there is one writer per target
 * (R35), and what a killed writer left behind is known by its free lock (R36).
 *
 * A writer of a descriptor writes into a file that somebody else has opened, and has no name to
 * give it: whoever opened the file decides what becomes of it.
 */
#ifndef INFERD_BASE_FILE_H
#define INFERD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/error.h"

/* A file's bytes: a mapping, or what file_load made. */
struct file_map {
    const void *data; /* page-aligned; not NULL even if size is 0 */
    size_t size;
};

/* Opens a regular file for reading, close-on-exec. Symbolic links are followed, because the path is
 * the operator's. */
enum status file_open(const char *path, int *fd, struct error *err);

/* Does the same below the folder `dir` (a descriptor), and refuses "..", an absolute path, a
 * symbolic link and a file with a second name elsewhere. */
enum status file_open_beneath(int dir, const char *path, int *fd, struct error *err);

/* Maps a whole file, for programs that may die of what happens to it (see above). More than `limit`
 * bytes (0: no limit) are refused. The file must not be changed in place while it is mapped;
 * replacing it by rename is fine. */
enum status file_map_path(const char *path, size_t limit, struct file_map *out, struct error *err);
/* Takes no ownership of `fd`; `name` is for the error text. */
enum status file_map_fd(int fd, const char *name, size_t limit, struct file_map *out,
                        struct error *err);
void file_unmap(struct file_map *map); /* {0} is fine; leaves {0} */

struct file_writer;

/* Opens the temporary for `path`, or for what a symbolic link of that name leads to: the link
 * stays. What is there and is no regular file is refused. If another process is writing the same
 * target, the call waits for that process (`wait`) or fails with UNAVAILABLE. */
enum status file_writer_new(const char *path, bool wait, struct file_writer **out,
                            struct error *err);
/* Does the same and waits, but a TARGET_STREAM (base/target.h) and what standard output is are
 * written to as they are: for texts, which readers take as they come. */
enum status file_writer_new_text(const char *path, struct file_writer **out, struct error *err);
/* Says whether file_writer_new_text would find a folder or a stream that cannot be written to, for
 * before the work. Leaves no temporary, and opens no stream: a pipe's reader would see its end. */
enum status file_writer_try_text(const char *path, struct error *err);
/* Opens the temporary for a plain name in the folder `dir`, which stays the caller's. Whatever has
 * that name is replaced. */
enum status file_writer_new_in(int dir, const char *name, bool wait, struct file_writer **out,
                               struct error *err);
/* Cuts the regular file `fd` to nothing and writes to it. Takes no ownership; `name` is for the
 * error text. */
enum status file_writer_new_fd(int fd, const char *name, struct file_writer **out,
                               struct error *err);
/* The descriptor that is written to; it stays the writer's. */
int file_writer_fd(const struct file_writer *writer);
enum status file_writer_put(struct file_writer *writer, const void *data, size_t size,
                            struct error *err);
/* Calls fsync, renames, and calls fsync for the folder. After a failure the old target is
 * untouched. A writer of a descriptor or a stream only calls fsync. */
enum status file_writer_commit(struct file_writer *writer, struct error *err);
/* Removes the temporary, for a handler of the signal that ends the process. */
void file_writer_abandon(const struct file_writer *writer);
/* file_sweep in the file's folder. */
uint32_t file_writer_sweep(const struct file_writer *writer);
void file_writer_free(struct file_writer *writer); /* discards what was not committed */
void file_writer_cleanup(struct file_writer **at); /* for CLEANUP (base/compiler.h) */

/* Removes temporaries in the folder `dir` whose writers are gone, as far as it can; returns how
 * many. */
uint32_t file_sweep(int dir);

#endif
