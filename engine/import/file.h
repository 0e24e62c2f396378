/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files mapped for reading. Regular files only; a model's external data only beside the model.
 *
 * A file that another process truncates while it is mapped raises SIGBUS on access: models are
 * imported by a process of its own (inferctl build), never by the daemon.
 */
#ifndef INFERD_ENGINE_IMPORT_FILE_H
#define INFERD_ENGINE_IMPORT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct file_map {
    const uint8_t *data; /* NULL: nothing mapped */
    size_t size;
};

/* Maps a whole file of 1..limit bytes. `folder` gets a descriptor of the folder it lies in, unless
 * NULL; the caller closes it. */
enum status file_map_open(const char *path, size_t limit, struct file_map *out, int *folder,
                          struct error *err);

/* The same for `location`, a relative path that stays below `folder`: absolute paths, "..", links
 * of both kinds, and anything that is not a regular file are refused. An empty file gives size 0
 * and data that is not NULL. */
enum status file_map_open_beside(int folder, const char *location, struct file_map *out,
                                 struct error *err);

void file_map_close(struct file_map *map);

#endif
