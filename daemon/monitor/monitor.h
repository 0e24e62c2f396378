/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: a thread of its own that tells people and programs what the daemon does, over HTTP
 * at the addresses of `listen.metrics`:
 *
 *   /          the status page (daemon/monitor/page.h), and /model/NAME/VERSION
 *   /metrics   for Prometheus (daemon/monitor/metrics.h)
 *
 * It also writes out the traces of requests (daemon/monitor/trace_out.h).
 *
 * It reads what the other threads count, and takes no lock that a request needs. Whoever asks it
 * costs the others a bounded share of one core: after each answer the monitor rests for a
 * multiple of the time that it took to make, beyond a burst.
 *
 * Who may look is decided as everywhere (daemon/identity.h): with tokens in the configuration it
 * takes the right `status`. The token comes as `Authorization: Bearer TOKEN`, or as the password of
 * the scheme Basic, which is what browsers ask their users for.
 */
#ifndef INFERD_DAEMON_MONITOR_MONITOR_H
#define INFERD_DAEMON_MONITOR_MONITOR_H

#include "config/config.h"
#include "daemon/model.h"
#include "daemon/shared.h"

struct monitor;

/* Binds the addresses of `listen`, which have no names any more (daemon/listen_names.h), and takes
 * a reference to the table. Traces go where the configuration says. Errors name the address. */
enum status monitor_new(struct shared *shared, const struct config *config,
                        const struct config_listen *listen, struct table *table,
                        struct monitor **out, struct error *err);
/* Starts its thread, and writes "metrics ADDRESS" for each address to stderr. */
enum status monitor_start(struct monitor *monitor, struct error *err);
/* Ends the thread and frees everything. Loops and dispatcher must still be there. NULL is fine. */
void monitor_free(struct monitor *monitor);

/* The monitor tells of this table from now on, and takes a reference. Any thread. */
void monitor_set_table(struct monitor *monitor, struct table *table);

/* As listeners_check. NULL is fine. */
enum status monitor_check(const struct monitor *monitor, const struct config *config,
                          struct error *err);

#endif
