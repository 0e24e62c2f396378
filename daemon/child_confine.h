/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines a build child, in two halves: the daemon prepares the confinement before it forks, and
 * the child puts it on before it executes the program. The child's half runs while all other
 * threads are gone, perhaps in the middle of a malloc, so it makes async-signal-safe calls only and
 * allocates nothing.
 *
 * The child has descriptors 0 to 2 (/dev/null, and a pipe to the daemon) and the three that it was
 * given. It has no capability and cannot get one; only the child of a root daemon keeps the one to
 * read any file, if Landlock narrows it. Lists say which system calls (child_filter.h) and which
 * files (child_landlock.h) the child may use. Its CPU time, memory, file size and descriptors are
 * limited, its priority is low, and the kernel kills it first when memory runs out. It ends with
 * the daemon's thread that started it, and is the head of a process group of its own.
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

/* Exit statuses of a child that never became the program. */
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
    /* Opened anew, for reading only: all descriptors of one opening share position and flags. */
    int model, folder;
    int null, rules; /* rules is -1 without Landlock */
    struct child_filter filter;
};

/* The caller has filled in `given`. */
enum status child_confinement_init(struct child_confinement *c, struct error *err);
void child_confinement_deinit(struct child_confinement *c);

/* Confines the forked child and becomes the program; `out` is its standard output and error. */
__attribute__((noreturn)) void child_confine(struct child_confinement *c, pid_t parent, int out,
                                             char *const *argv, char *const *envp);

#endif
