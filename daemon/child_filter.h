/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that a build child may make are a list of those that `inferctl build` needs,
 * found by watching it; all others fail with EPERM. Calls that reach out of the process are let
 * through with harmless arguments only: the child may make threads but no processes, open files for
 * reading, and signal itself. The filter cannot look into the arguments of clone3 and openat2,
 * which therefore fail with ENOSYS, as in a kernel without them: the C library and base/file.c then
 * use the older call. Calls of another architecture end the process; the numbers of x32, which come
 * under this architecture's name, fail with EPERM like all unknown ones.
 *
 * A device's driver needs more (its own ioctl numbers, files for writing, memory files, local
 * sockets to itself), which a second list allows. Neither list lets the child connect to anybody.
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

/* Puts the filter on the calling process before it executes anything else. The process must not be
 * able to gain privileges. Async-signal-safe. False: errno says why. */
bool child_filter_enter(struct child_filter *filter, pid_t self);

#endif
