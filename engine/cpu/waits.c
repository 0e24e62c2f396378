/* SPDX-License-Identifier: Apache-2.0 */
/* The files stay open, and all are opened anew when the number of threads changes; the waits since
 * the last call are then lost. */
#include "engine/cpu/waits.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"

enum { THREADS_MAX = 256, WAKING_NS = 50000, PREEMPTED_NS = 500000 };

struct waits {
    nlink_t links; /* of the folder: the number of threads, and two */
    uint32_t n;
    struct thread {
        int fd;
        uint64_t waited, turns;
    } threads[THREADS_MAX];
    long preempted;
};

struct waits *waits_new(void)
{
    return calloc(1, sizeof(struct waits));
}

static void close_all(struct waits *w)
{
    while (w->n)
        close(w->threads[--w->n].fd);
}

void waits_free(struct waits *w)
{
    if (!w)
        return;
    close_all(w);
    free(w);
}

static bool read_thread(struct thread *t)
{
    char text[96];
    ssize_t n = pread(t->fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char *rest;
    strtoull(text, &rest, 10); /* the time on a processor */
    t->waited = strtoull(rest, &rest, 10);
    t->turns = strtoull(rest, NULL, 10);
    return true;
}

static void open_all(struct waits *w)
{
    DIR *folder = opendir("/proc/self/task");
    close_all(w);
    if (!folder)
        return;
    for (const struct dirent *e; w->n < THREADS_MAX && (e = readdir(folder));) {
        char path[48];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.20s/schedstat", e->d_name);
        int fd = openat(dirfd(folder), path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        w->threads[w->n] = (struct thread){.fd = fd};
        if (read_thread(&w->threads[w->n]))
            w->n++;
        else
            close(fd);
    }
    closedir(folder);
}

static uint64_t preemptions(struct waits *w)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        return 0;
    long more = w->preempted ? usage.ru_nivcsw - w->preempted : 0;
    w->preempted = MAX(usage.ru_nivcsw, 1);
    return (uint64_t)MAX(more, 0) * PREEMPTED_NS;
}

uint64_t waits_longest(struct waits *w)
{
    struct stat folder;
    uint64_t longest = 0;
    if (stat("/proc/self/task", &folder) == 0 && folder.st_nlink != w->links) {
        w->links = folder.st_nlink;
        open_all(w);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        struct thread *t = &w->threads[i], was = *t;
        if (!read_thread(t)) { /* the thread has ended */
            w->links = 0;
            continue;
        }
        uint64_t waited = t->waited - was.waited, forgiven = (t->turns - was.turns) * WAKING_NS;
        longest = MAX(longest, waited - MIN(waited, forgiven));
    }
    return w->n ? longest : preemptions(w);
}
