/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build child is held by, in two halves: the daemon prepares it before it forks, and the
 * child takes it on before it executes the program. The child's half runs beside threads that are
 * gone, maybe amidst malloc: it makes async-signal-safe calls only and allocates nothing.
 *
 * The child has descriptors 0 to 2 (nothing, and a pipe to the daemon) and the three it was given;
 * no capability and no way to one; its list of system calls (child_filter.h) and of files
 * (child_landlock.h); limits of CPU time, memory, file size and descriptors; a low priority; and
 * the first place when the kernel has to kill somebody for memory. It ends with the daemon's thread
 * that started it, and is the head of a process group of its own.
 */
#ifndef INFERD_DAEMON_CHILD_CONFINE_H
#define INFERD_DAEMON_CHILD_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/child_filter.h"

/* Descriptors as the child has them. */
enum { CHILD_MODEL_AT = 3, CHILD_PLAN_AT = 4, CHILD_FOLDER_AT = 5, CHILD_PROGRAM_AT = 6 };

/* Exit statuses of a child that did not come to be the program. */
enum { CHILD_NOT_CONFINED = 126, CHILD_NOT_EXECUTED = 127 };

struct child_limits {
    uint64_t cpu_s, memory_bytes, file_bytes;
};

struct child_given {
    int program, model, plan, folder; /* folder may be -1 */
    bool device;                      /* its driver needs more than building on the CPU does */
    struct child_limits limits;
};

struct child_confinement {
    struct child_given given; /* the descriptors are the caller's */
    /* Opened anew, to read only: the place in a file and its flags are shared by all who have it by
     * one opening. */
    int model, folder;
    int null, rules; /* rules is -1 without Landlock */
    struct child_filter filter;
};

/* `given` is filled in already. */
enum status child_confinement_init(struct child_confinement *c, struct error *err);
void child_confinement_deinit(struct child_confinement *c);

/* In the forked child: becomes the program. `out`: its standard output and error. */
__attribute__((noreturn)) void child_confine(struct child_confinement *c, pid_t parent, int out,
                                             char *const *argv, char *const *envp);

#endif
