/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as a whole, from its configuration to its exit code: starts everything, listens to
 * signals, watches over loops and workers, and stops everything in order.
 */
#ifndef INFERD_DAEMON_SERVER_H
#define INFERD_DAEMON_SERVER_H

#include "daemon/options.h"

/* First in main: from now on SIGTERM, SIGINT and SIGHUP wait until the server handles them, also
 * across an exec. Otherwise an early signal would end the process without a word, or, in a
 * container whose first process this is, be lost. */
void server_signals_hold(void);

/* Takes over `config`. Serves until a signal or a failure ends it; returns the exit code. */
int server_run(const struct options *options, struct config *config);

#endif
