/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that built plans are kept in: files "KEY.plan" that only this account can write.
 *
 * Whoever can write a plan decides what it computes, and on a GPU what runs. So the folder is
 * checked as sshd checks the files of a user: it must belong to us, the folders above it to us or
 * root, and nobody else may write to any of them; below a sticky folder like /tmp it must be closed
 * to all others. A folder that fails the check is not used, unless the configuration says that
 * whoever can write it is trusted: a pod's volume belongs to root, and to no other pod. Files are
 * opened below its descriptor, not through links, and must be ours alone.
 *
 * A plan has one writer at a time: its temporary is locked (base/file.h). Plans in use are locked
 * as shared, so that no process removes what another one serves.
 *
 * Used by one thread, the loader.
 */
#ifndef INFERD_DAEMON_PLAN_FOLDER_H
#define INFERD_DAEMON_PLAN_FOLDER_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/file.h"
#include "base/log.h"

struct plan_folder;

struct plan_folder_config {
    const char *path;  /* NULL: $CACHE_DIRECTORY, else ~/.cache/inferd */
    const char *below; /* a folder in that one, which is meant; NULL: none */
    bool insecure;     /* whoever can write the folder is trusted */
    uint64_t limit;    /* bytes of plans in it; 0: no limit */
    uint32_t most;     /* plans in it; 0: no limit */
    const struct log_sink *log;
};

/* The folder is made if it is missing (for us alone). What killed builds left is removed, and so
 * are plans beyond the limits. The error says what was expected and what is there. */
enum status plan_folder_open(const struct plan_folder_config *config, struct plan_folder **out,
                             struct error *err);
void plan_folder_close(struct plan_folder *folder); /* NULL is fine */

/* Opens a kept plan for reading, and marks it as used; nobody removes it while the descriptor is
 * open. NOT_FOUND: there is none; PERMISSION_DENIED: it is not ours alone. */
enum status plan_folder_find(struct plan_folder *folder, const char *key, int *fd,
                             struct error *err);

/* Marks a kept plan as used now. */
void plan_folder_mark(int fd);

/* Becomes the writer of this plan (to file_writer_fd). While another process writes it, the call
 * waits, for `timeout_s` (DEADLINE_EXCEEDED) or until `stop` (CANCELLED). */
enum status plan_folder_write(struct plan_folder *folder, const char *key, uint32_t timeout_s,
                              const _Atomic bool *stop, struct file_writer **out,
                              struct error *err);

/* Removes the plans that were not used for the longest time until the rest fits the limit, but none
 * that somebody has open. */
void plan_folder_trim(struct plan_folder *folder);

/* For messages. */
const char *plan_folder_path(const struct plan_folder *folder);

#endif
