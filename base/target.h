/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the path of an output leads to. A file that is replaced by rename would also replace a
 * device, a pipe or a link of that name, so whoever writes asks here first.
 */
#ifndef INFERD_BASE_TARGET_H
#define INFERD_BASE_TARGET_H

#include <stdbool.h>

#include "base/error.h"

enum target_kind {
    TARGET_FILE,   /* a regular file, or nothing yet: it may be replaced */
    TARGET_STREAM, /* a pipe, a character device, or a socket that is standard output: it may be
                      written to */
};

/* Finds out which it is; anything else, such as a folder, is INVALID_ARGUMENT. *real (malloc-ed) is
 * the path with the last name's symbolic links followed, also where they lead to nothing yet. */
enum status target_find(const char *path, enum target_kind *kind, char **real, struct error *err);

/* Opens a TARGET_STREAM, or what standard output is, for writing. Waits for a pipe's reader. */
enum status target_open_stream(const char *path, int *fd, struct error *err);

/* Whether both paths lead to one file that exists. */
bool target_same(const char *a, const char *b);

/* Whether the path leads to what standard output is, as /dev/stdout does. */
bool target_is_stdout(const char *path);

#endif
