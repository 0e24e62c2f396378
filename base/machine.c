/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit that cannot be read counts as no limit: these numbers guard against mistakes, and the
 * kernel limits the process in any case.
 */
#include "base/machine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

static uint64_t file_number(const char *path)
{
    char text[32], *end = text;
    uint64_t value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    if (fgets(text, sizeof(text), file))
        value = strtoull(text, &end, 10);
    fclose(file);
    return end == text ? UINT64_MAX : value; /* "max" is no number */
}

uint64_t machine_group_limit(const char *mount, const char *group)
{
    char path[PATH_MAX], up[PATH_MAX];
    uint64_t least = UINT64_MAX;
    int len = snprintf(up, sizeof(up), "%s", group);
    if (len < 0 || (size_t)len >= sizeof(up))
        return UINT64_MAX;
    for (char *end = up + len; end; end = strrchr(up, '/')) {
        *end = '\0';
        len = snprintf(path, sizeof(path), "%s%s/memory.max", mount, up);
        if (len > 0 && (size_t)len < sizeof(path))
            least = MIN(least, file_number(path));
    }
    return least;
}

/* The group's path: the line of /proc/self/cgroup that begins with "0::". */
static uint64_t own_group_limit(void)
{
    char line[PATH_MAX];
    uint64_t limit = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return UINT64_MAX;
    while (limit == UINT64_MAX && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0)
            limit = machine_group_limit("/sys/fs/cgroup", line + 3);
    }
    fclose(file);
    return limit;
}

uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    return MIN(all, own_group_limit());
}
