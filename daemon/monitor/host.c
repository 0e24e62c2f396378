/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc; see host.h. */
#include "daemon/monitor/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { TEXT = 4096, TICKS_LEAST = 20 };

/* The beginning of a file, terminated. False: it cannot be read. */
static bool file_text(const char *path, char out[TEXT])
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, TEXT - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n > 0;
}

bool host_ticks_parse(const char *text, struct host_ticks *out)
{
    uint64_t user, nice, system, idle, wait = 0, irq = 0, soft = 0, steal = 0;
    int n = sscanf(text,
                   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64,
                   &user, &nice, &system, &idle, &wait, &irq, &soft, &steal);
    if (n < 4)
        return false;
    out->busy = user + nice + system + irq + soft + steal;
    out->all = out->busy + idle + wait;
    return true;
}

bool host_memory_parse(const char *text, uint64_t *total, uint64_t *used)
{
    uint64_t all, available;
    const char *at = strstr(text, "MemAvailable:");
    if (sscanf(text, "MemTotal: %" SCNu64, &all) != 1 || !at ||
        sscanf(at, "MemAvailable: %" SCNu64, &available) != 1 || available > all)
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
    uint64_t pages = 0, resident = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->process_cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if (file_text("/proc/self/statm", text) &&
        sscanf(text, "%" SCNu64 " %" SCNu64, &pages, &resident) == 2) {
        out->process_virtual = pages * page;
        out->process_resident = resident * page;
    }
    const char *at = file_text("/proc/self/status", text) ? strstr(text, "\nThreads:") : NULL;
    if (!at || sscanf(at, "\nThreads: %" SCNu64, &out->process_threads) != 1)
        out->process_threads = 0;
    descriptors_read(out);
}

void host_read(struct host_ticks *since, struct host *out)
{
    *out = (struct host){0};
    cpu_read(since, out);
    memory_read(out);
    process_read(out);
}
