/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See child_watch.h. The watch waits for the end of the child and for the end of its pipe, since
 * either may come long before the other. A process descriptor tells of the child's end at once;
 * without one (an old kernel, a filter of system calls) the watch asks at each tick.
 */
#include "daemon/child_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { TICK_MS = 100, LINES_LOGGED = 1000, DRAINED_MAX = 256 /* reads; a pipe holds less */ };

struct lines {
    char line[CHILD_LINE_MAX];
    size_t len;
    unsigned n;
};

static void line_end(struct child_watch *watch, struct lines *lines)
{
    lines->line[lines->len] = '\0';
    if (lines->len == 0)
        return;
    if (++lines->n <= LINES_LOGGED)
        log_write(watch->log, LOG_VERBOSE, "build: %s", lines->line);
    else if (lines->n == LINES_LOGGED + 1)
        log_write(watch->log, LOG_VERBOSE, "build: further lines are left out");
    memcpy(watch->last, lines->line, lines->len + 1);
    lines->len = 0;
}

static void lines_add(struct child_watch *watch, struct lines *lines, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\n' || c == '\r') {
            line_end(watch, lines);
            continue;
        }
        if ((unsigned char)c < 0x20 || c == 0x7f)
            c = '?';
        if (lines->len + 1 < sizeof(lines->line))
            lines->line[lines->len++] = c;
    }
}

/* False: there is nothing more to come. */
static bool lines_read(struct child_watch *watch, struct lines *lines, int in)
{
    char text[1024];
    ssize_t n = read(in, text, sizeof(text));
    if (n > 0)
        lines_add(watch, lines, text, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Does not reap the child, so that the child's number and that of its group stay its own. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

static enum status child_wait(struct child_watch *watch, struct lines *lines, pid_t pid, int in,
                              int process, struct error *err)
{
    uint64_t end_ns = clock_now_ns() + watch->timeout_s * NS_PER_S;
    struct pollfd fds[] = {{.fd = in, .events = POLLIN}, {.fd = process, .events = POLLIN}};
    while (!has_ended(pid)) {
        if (atomic_load_explicit(watch->stop, memory_order_relaxed)) /* a flag and no more */
            return error_plain(err, CAUSE_STOPPED);
        if (clock_now_ns() > end_ns)
            return error_set(err, STATUS_DEADLINE_EXCEEDED,
                             "building took longer than build_timeout_s, %u s", watch->timeout_s);
        if (poll(fds, 2, TICK_MS) > 0 && fds[0].revents && !lines_read(watch, lines, in))
            fds[0].fd = -1; /* closed by a child that goes on */
    }
    return STATUS_OK;
}

enum status child_watch(struct child_watch *watch, pid_t pid, int in, struct error *err)
{
    struct lines lines = {.len = 0};
    watch->last[0] = '\0';
    watch->how = SIGKILL;
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    enum status status = child_wait(watch, &lines, pid, in, process, err);
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* it may not head its group yet */
    while (waitpid(pid, &watch->how, 0) < 0 && errno == EINTR)
        ;
    /* The child's last words are in the pipe, whose other end somebody else may still hold. */
    if (fcntl(in, F_SETFL, O_NONBLOCK) == 0)
        for (int n = 0; n < DRAINED_MAX && lines_read(watch, &lines, in); n++)
            ;
    line_end(watch, &lines);
    close(in);
    if (process >= 0)
        close(process);
    return status;
}
