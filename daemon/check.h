/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `inferd --check-config`: tries all that the daemon would do at its start, says what it found, and
 * goes on after what is wrong, so that one run shows everything.
 *
 * It may run beside a daemon that serves: addresses are bound for a moment and never listened on,
 * unix sockets are left alone, and models are loaded one after the other, so that memory (a
 * device's too) is taken for one at a time. The plan cache is the only thing that is written: ONNX
 * files are built as the daemon would build them, which then finds their plans there.
 */
#ifndef INFERD_DAEMON_CHECK_H
#define INFERD_DAEMON_CHECK_H

#include "config/config.h"

/* What it finds goes to stdout, a line each, and what is wrong to stderr. Returns the exit code. */
int check_run(const struct config *config);

#endif
