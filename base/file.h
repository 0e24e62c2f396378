/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: opened, mapped, written by replacing. file_read.h reads them.
 *
 * Only regular files are opened and mapped. Anything else (folders, devices, pipes) is refused
 * without blocking on it. A mapping shows what others do to the file: cut short, it is a SIGBUS.
 * That ends an inferctl or a build child, which concerns nobody else; the daemon maps no file. A
 * path that came from a file or a peer goes through file_open_beneath, which never leaves its
 * folder and follows no symbolic link (R13 of docs/operations.md).
 *
 * Writing never shows a half-written file to anybody (R33): the bytes go to a temporary beside the
 * target, are fsync-ed, take the target's name, and the folder is fsync-ed. The temporary's name is
 * fixed (".NAME.inferd-tmp") and its writer holds a flock on it, so there is one writer per target
 * (R35), and what a killed writer left behind is known by its free lock (R36).
 *
 * A writer of a descriptor writes into a file that somebody else has opened, and has no name to
 * give it: who opened the file decides what becomes of it.
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

/* A descriptor of a regular file, close-on-exec, for reading. Symbolic links are followed: the path
 * is the operator's. */
enum status file_open(const char *path, int *fd, struct error *err);

/* The same below the folder `dir` (a descriptor): no "..", no absolute path, no symbolic link, no
 * file with a second name elsewhere. */
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

/* Opens the temporary for `path`. If another process is writing the same target it waits for it if
 * `wait`, else fails with UNAVAILABLE. */
enum status file_writer_new(const char *path, bool wait, struct file_writer **out,
                            struct error *err);
/* The same for a plain name in the folder `dir`, which stays the caller's. */
enum status file_writer_new_in(int dir, const char *name, bool wait, struct file_writer **out,
                               struct error *err);
/* Writes to the regular file `fd`, from its begin; what it holds is cut off. Takes no ownership.
 * `name` is for the error text. */
enum status file_writer_new_fd(int fd, const char *name, struct file_writer **out,
                               struct error *err);
/* The descriptor that is written to; the writer's. */
int file_writer_fd(const struct file_writer *writer);
enum status file_writer_put(struct file_writer *writer, const void *data, size_t size,
                            struct error *err);
/* fsync, rename, fsync of the folder. After a failure the old target is untouched. A writer of a
 * descriptor only does the first. */
enum status file_writer_commit(struct file_writer *writer, struct error *err);
/* Removes the temporary, for a handler of the signal that ends the process. */
void file_writer_abandon(const struct file_writer *writer);
/* file_sweep in the file's folder. */
uint32_t file_writer_sweep(const struct file_writer *writer);
void file_writer_free(struct file_writer *writer); /* discards what was not committed */

/* Removes temporaries in the folder `dir` whose writers are gone; returns how many. Best effort. */
uint32_t file_sweep(int dir);

#endif
