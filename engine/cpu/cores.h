/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INFERD_ENGINE_CPU_CORES_H
#define INFERD_ENGINE_CPU_CORES_H

#include <stdint.h>

/* Physical cores that this thread may run on (its affinity counts); at least 1. */
uint32_t cores_count(void);
/* The first CPU of core `number`, counted from 0 among these; -1: there is no such core. */
int cores_cpu(uint32_t number);

#endif
