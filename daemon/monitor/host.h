/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of this machine and of this process. What it does not tell (under the unit
 * of systemd /proc has processes alone) is left out. */
#ifndef INFERD_DAEMON_MONITOR_HOST_H
#define INFERD_DAEMON_MONITOR_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* Clock ticks of all processors since the machine started, and what they came to. */
struct host_ticks {
    uint64_t busy, all;
    double load; /* between the last two readings that lay far enough apart */
};

struct host {
    bool has_cpu; /* load is known: the share of the processors' time, 0 to 1 */
    double cpu_load;
    uint64_t memory_total, memory_used; /* bytes; 0: not known */
    double process_cpu_s;
    uint64_t process_resident, process_virtual, process_fds, process_fds_most, process_threads;
};

/* `since` is what the last call left there, at first zeros; the load is that of the time
 * between, or for a short time that of the one before. */
void host_read(struct host_ticks *since, struct host *out);

/* For tests: the numbers of texts that look like /proc/stat, and like /proc/meminfo. False: they
 * are not there. */
bool host_ticks_parse(const char *text, struct host_ticks *out);
bool host_memory_parse(const char *text, uint64_t *total, uint64_t *used);

#endif
