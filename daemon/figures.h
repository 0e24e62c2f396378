/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the daemon's threads, for whoever describes it; any thread, without a lock. */
#ifndef INFERD_DAEMON_FIGURES_H
#define INFERD_DAEMON_FIGURES_H

#include "daemon/model.h"
#include "daemon/shared.h"

uint64_t figures_counter(const struct shared *shared, enum counter which);

/* Requests that were taken and have not been answered. */
uint64_t figures_in_flight(const struct shared *shared);

/* Where the memory is that grows with peers, models and workers. */
enum { FIGURES_MEMORY = 8 };
/* `outputs`: dispatch_output_bytes. */
void figures_memory(const struct shared *shared, const struct table *table, uint64_t outputs,
                    struct body_memory out[FIGURES_MEMORY]);

#endif
