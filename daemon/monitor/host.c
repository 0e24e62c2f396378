/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc; see host.h. */
#include "daemon/monitor/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/compiler.h"

enum { TEXT = 4096, TICKS_LEAST = 20 };

/* The beginning of a file, terminated. False: it cannot be read. */
static bool file_text(const char *path, char out[TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    out[0] = '\0';
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, TEXT - 1);
    close(fd);
    out[n < 0 ? 0 : n] = '\0';
    return n > 0;
}

/* Reads up to `n` numbers with blanks between them; returns how many there are. */
static size_t numbers_read(const char *text, uint64_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *end;
        out[i] = strtoull(text, &end, 10);
        if (end == text)
            return i;
        text = end;
    }
    return n;
}

/* The number behind a name. */
static bool named_read(const char *text, const char *name, uint64_t *out)
{
    const char *at = strstr(text, name);
    return at && numbers_read(at + strlen(name), out, 1) == 1;
}

bool host_ticks_parse(const char *text, struct host_ticks *out)
{
    enum { USER, NICE, SYSTEM, IDLE, WAIT, IRQ, SOFT, STEAL, TICKS };
    uint64_t t[TICKS] = {0};
    if (strncmp(text, "cpu ", 4) != 0 || numbers_read(text + 4, t, TICKS) <= IDLE)
        return false;
    out->busy = t[USER] + t[NICE] + t[SYSTEM] + t[IRQ] + t[SOFT] + t[STEAL];
    out->all = out->busy + t[IDLE] + t[WAIT];
    return true;
}

bool host_memory_parse(const char *text, uint64_t *total, uint64_t *used)
{
    uint64_t all, available;
    if (!named_read(text, "MemTotal:", &all) || !named_read(text, "MemAvailable:", &available) ||
        available > all)
        return false;
    *total = all * 1024;
    *used = (all - available) * 1024;
    return true;
}

static void cpu_read(struct host_ticks *since, struct host *out)
{
    char text[TEXT];
    struct host_ticks now;
    if (!file_text("/proc/stat", text) || !host_ticks_parse(text, &now))
        return;
    if (now.all < since->all + TICKS_LEAST || now.busy < since->busy) {
        now = *since;
    } else {
        now.load = (double)(now.busy - since->busy) / (double)(now.all - since->all);
        *since = now;
    }
    out->has_cpu = now.all > 0;
    out->cpu_load = now.load;
}

static void memory_read(struct host *out)
{
    char text[TEXT];
    struct sysinfo info;
    if (file_text("/proc/meminfo", text) &&
        host_memory_parse(text, &out->memory_total, &out->memory_used))
        return;
    if (sysinfo(&info) == 0) {
        out->memory_total = (uint64_t)info.totalram * info.mem_unit;
        out->memory_used =
            (uint64_t)(info.totalram - info.freeram - info.bufferram) * info.mem_unit;
    }
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static void descriptors_read(struct host *out)
{
    struct rlimit limit;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        out->process_fds += entry->d_name[0] != '.';
    if (folder) {
        closedir(folder);
        out->process_fds -= out->process_fds > 0; /* the folder's own */
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->process_fds_most = limit.rlim_cur;
}

static void process_read(struct host *out)
{
    char text[TEXT];
    struct rusage usage;
    uint64_t pages[2], page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->process_cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if (file_text("/proc/self/statm", text) && numbers_read(text, pages, 2) == 2) {
        out->process_virtual = pages[0] * page;
        out->process_resident = pages[1] * page;
    }
    if (file_text("/proc/self/status", text))
        named_read(text, "\nThreads:", &out->process_threads);
    descriptors_read(out);
}

void host_read(struct host_ticks *since, struct host *out)
{
    *out = (struct host){0};
    cpu_read(since, out);
    memory_read(out);
    process_read(out);
}
