/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that a build child may make: a list of those that `inferctl build` needs, found
 * by watching it, and EPERM for all others. Calls that reach out of the process are let through
 * with harmless arguments only: new threads but no new processes, files opened for reading, signals
 * to itself. What the filter cannot look into (clone3, openat2) is ENOSYS, as in a kernel without
 * them: the C library and base/file.c then use the older call. Calls of another architecture end
 * the process; x32's numbers, which come under this architecture's name, are EPERM like all unknown
 * ones.
 *
 * A device's driver needs more (its own ioctl numbers, files for writing, memory files, local
 * sockets for itself): a second list has it. No list has a way to connect to anybody.
 */
#ifndef INFERD_DAEMON_CHILD_FILTER_H
#define INFERD_DAEMON_CHILD_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>
#include <sys/types.h>

enum { CHILD_FILTER_MAX = 768, CHILD_FILTER_PIDS_MAX = 4 };

struct child_filter {
    struct sock_filter code[CHILD_FILTER_MAX];
    unsigned short len, n_pids;
    unsigned short pids[CHILD_FILTER_PIDS_MAX]; /* where the process's own id belongs */
};

/* `program_at`: the number of the descriptor that may be executed. */
void child_filter_init(struct child_filter *filter, bool device, int program_at);

/* In the process itself, before it executes anything else; async-signal-safe. It must not be able
 * to gain privileges. False: errno. */
bool child_filter_enter(struct child_filter *filter, pid_t self);

#endif
