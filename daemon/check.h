/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `inferd --check-config`: tries everything that the daemon would do at its start, and says what it
 * found. An error does not end the check, so one run shows all of them.
 *
 * The check may run beside a daemon that serves. It binds addresses for a moment but never listens
 * on them, leaves unix sockets alone, and loads models one after the other, so that only one at a
 * time takes memory (a device's too). It writes to the plan cache and nowhere else: it builds ONNX
 * files as the daemon would, and the daemon then finds their plans there.
 */
#ifndef INFERD_DAEMON_CHECK_H
#define INFERD_DAEMON_CHECK_H

#include "config/config.h"

/* Findings go to stdout, one on a line, and errors to stderr. Returns the exit code. */
int check_run(const struct config *config);

#endif
