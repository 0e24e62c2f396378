/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's log: one line for each event on stderr, written with one system call, so that lines
 * of several threads do not mix. For the journal (JOURNAL_STREAM names the stream), which adds
 * times of its own, a line starts with sd-daemon's level ("<4>"); otherwise it starts with local
 * time and "inferd: warning: ". log_write has replaced control bytes by then (R10 of
 * docs/operations.md).
 */
#ifndef INFERD_DAEMON_LOG_H
#define INFERD_DAEMON_LOG_H

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

/* A sink for the whole process. */
void log_stderr_init(struct log_sink *sink, enum log_level level);

/* "error", "warning", "info", "verbose"; false: none of them. */
bool log_level_parse(const char *name, enum log_level *out);

#endif
