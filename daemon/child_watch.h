/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a child from its start to its end. What the child writes goes to the log; it is killed
 * when it takes too long or the server stops. Whatever it started is killed with it, and a process
 * that still holds its pipe open delays nobody.
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
    const struct log_sink *log; /* gets its first lines, as verbose */
    const _Atomic bool *stop;   /* ends it early */
    uint32_t timeout_s;
    char last[CHILD_LINE_MAX]; /* its last line; no control bytes */
    int how;                   /* how it ended, as waitpid tells it */
};

/* `pid` heads a process group of its own, `in` is the reading end of its pipe. Closes the pipe and
 * reaps the child. DEADLINE_EXCEEDED: the child took too long. STOPPED: the server stops. */
enum status child_watch(struct child_watch *watch, pid_t pid, int in, struct error *err);

#endif
