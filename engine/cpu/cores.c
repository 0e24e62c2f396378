/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts physical cores from the affinity mask and sysfs. Of the hardware threads of one core only
 * the first that we may use counts. If sysfs says nothing, every hardware thread counts as a core.
 */
#include "engine/cpu/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether a CPU in `set` with a lower number shares the core of `cpu`. The file in sysfs lists the
 * CPUs of a core like "0-1,8". */
static bool has_earlier_sibling(int cpu, const cpu_set_t *set)
{
    char path[96], text[256];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool found = false;
    if (fgets(text, sizeof(text), file)) {
        for (char *at = text, *end; *at && !found; at = *end ? end + 1 : end) {
            long first = strtol(at, &end, 10), last = first;
            if (end == at)
                break;
            if (*end == '-')
                last = strtol(end + 1, &end, 10);
            for (long i = first; i <= last && i < cpu && !found; i++)
                found = i >= 0 && CPU_ISSET((size_t)i, set);
        }
    }
    fclose(file);
    return found;
}

/* The CPU of core `number`; if there is none, *n is the number of cores. */
static int find(uint32_t number, uint32_t *n)
{
    cpu_set_t set;
    *n = 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &set) && !has_earlier_sibling(cpu, &set) && (*n)++ == number)
            return cpu;
    return -1;
}

uint32_t cores_count(void)
{
    uint32_t n;
    find(UINT32_MAX, &n);
    return n ? n : 1;
}

int cores_cpu(uint32_t number)
{
    uint32_t n;
    return find(number, &n);
}
