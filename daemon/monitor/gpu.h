/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVIDIA's management library (NVML) says of the GPUs of this machine. The library is looked
 * for when the program runs, because it comes with the driver. Where there is none, there are no
 * GPUs to tell of.
 */
#ifndef INFERD_DAEMON_MONITOR_GPU_H
#define INFERD_DAEMON_MONITOR_GPU_H

#include <stdint.h>

enum { GPU_MOST = 16, GPU_TEXT = 96 };

/* Bits of struct gpu.has: a GPU, or a virtual one, need not tell everything. */
enum { GPU_UTILIZATION = 1, GPU_MEMORY = 2, GPU_POWER = 4, GPU_LIMIT = 8, GPU_ENERGY = 16 };

struct gpu {
    char uuid[GPU_TEXT], name[GPU_TEXT];
    uint32_t has;
    double utilization;                 /* 0 to 1 */
    uint64_t memory_total, memory_used; /* bytes */
    double power_w, power_limit_w, energy_j;
};

struct gpus;

/* NULL: there is no library, or it finds no driver. `library` is its name; NULL: the usual one. */
struct gpus *gpus_open(const char *library);
void gpus_close(struct gpus *gpus); /* NULL is fine */

/* Fills at most GPU_MOST and returns how many. NULL: none. */
uint32_t gpus_read(struct gpus *gpus, struct gpu out[GPU_MOST]);

#endif
