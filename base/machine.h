/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process may come to use; other limits are derived from that. */
#ifndef INFERD_BASE_MACHINE_H
#define INFERD_BASE_MACHINE_H

#include <stdint.h>

/* Bytes of the machine's memory, or the limit of the process's control group (version 2) or of a
 * group above it where that is less. Reads files, so it is not for the path of a request. */
uint64_t machine_memory(void);

/* The least `memory.max` of the group `group` ("/system.slice/inferd.service") and of those above
 * it, in the tree mounted at `mount`; UINT64_MAX: none has a limit. */
uint64_t machine_group_limit(const char *mount, const char *group);

#endif
