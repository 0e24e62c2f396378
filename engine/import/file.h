/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a model: the model itself, and external data, which lies beside it and nowhere else.
 *
 * If another process truncates a file while it is mapped, an access raises SIGBUS. Therefore a
 * process of its own (inferctl build) imports models, never the daemon.
 */
#ifndef INFERD_ENGINE_IMPORT_FILE_H
#define INFERD_ENGINE_IMPORT_FILE_H

#include <stddef.h>

#include "base/error.h"
#include "base/file.h"

/* Maps a whole file of 1..limit bytes. If `folder` is not NULL, it becomes a descriptor of the
 * folder that the file lies in; the caller closes it. */
enum status file_map_open(const char *path, size_t limit, struct file_map *out, int *folder,
                          struct error *err);

/* Maps a file that is already open; `name` is for error texts. */
enum status file_map_open_fd(int fd, const char *name, size_t limit, struct file_map *out,
                             struct error *err);

/* Maps `location`, a relative path of plain names that stays below `folder` (see
 * file_open_beneath). An empty file is fine. */
enum status file_map_open_beside(int folder, const char *location, struct file_map *out,
                                 struct error *err);

#endif
