/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INFERD_ENGINE_CPU_CORES_H
#define INFERD_ENGINE_CPU_CORES_H

#include <stdint.h>

/* Physical cores that this process may run on (its affinity counts); at least 1. */
uint32_t cores_count(void);

#endif
