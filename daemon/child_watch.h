/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child from its start to its end: what it says goes to the log, and it is ended when it takes
 * too long or the server stops. Whatever it started ends with it, and nothing that holds its pipe
 * open delays anybody.
 */
#ifndef INFERD_DAEMON_CHILD_WATCH_H
#define INFERD_DAEMON_CHILD_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/log.h"

enum { CHILD_LINE_MAX = 512 };

struct child_watch {
    const struct log_sink *log; /* its first lines, as verbose */
    const _Atomic bool *stop;   /* ends it early */
    uint32_t timeout_s;
    char last[CHILD_LINE_MAX]; /* its last line; no control bytes */
    int how;                   /* it ended, as waitpid tells it */
};

/* `pid` is the head of a process group of its own, `in` the reading end of its pipe; closes the
 * pipe and reaps the child. DEADLINE_EXCEEDED, CANCELLED: it was ended. */
enum status child_watch(struct child_watch *watch, pid_t pid, int in, struct error *err);

#endif
