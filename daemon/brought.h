/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that came with an order to load a model, and stand in for the repository's: parameters
 * "file:VERSION/NAME". The loader writes them to a folder that is ours alone, in the shape of a
 * repository, loads the model from there and removes the folder. One order is carried out at a
 * time, so there is never more on disk than one message holds. What a killed daemon left there is
 * removed with the next order.
 */
#ifndef INFERD_DAEMON_BROUGHT_H
#define INFERD_DAEMON_BROUGHT_H

#include "proto/request.h"

struct brought {
    uint32_t n;
    struct {
        struct message_text path; /* below the model's folder */
        struct message_text data;
    } files[REQUEST_MAX_SETTINGS];
};

/* Takes the files among the request's settings; they point into it. INVALID_ARGUMENT: a path that
 * is none of VERSION/NAME, FILE or deeper ones, or comes twice. */
enum status brought_take(const struct request *request, struct brought *out, struct error *err);
/* Bytes that brought_copy needs, and a copy of all in such memory. */
size_t brought_size(const struct brought *brought);
struct brought *brought_copy(const struct brought *brought, void *memory);

/* A folder in use: who sweeps leaves it alone while `fd` is open. */
struct brought_folder {
    char *path; /* NULL: there is none */
    int fd;
};

/* Writes them below a new folder in `base` (NULL: $CACHE_DIRECTORY, else $TMPDIR, else /tmp), as
 * MODEL/.... */
enum status brought_write(const struct brought *brought, const char *base, const char *model,
                          struct brought_folder *out, struct error *err);
/* Removes the folder and all below it. */
void brought_folder_cleanup(struct brought_folder *folder);

#endif
