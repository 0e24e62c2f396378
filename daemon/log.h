/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's log: one line for each event on stderr, written with one system call, so that lines
 * of several threads do not mix. log_write has replaced control bytes by then (R10 of
 * docs/operations.md). The formats:
 *
 *   text     local time and "inferd: warning: "; for the journal (JOURNAL_STREAM names the stream),
 *            which adds times of its own, sd-daemon's level ("<4>") instead
 *   json     an object a line: time, level, component, message
 *   journal  a datagram of fields (MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, INFERD_COMPONENT) to the
 *            journal's own socket; where that does not take it, text
 *
 * Format and levels may be changed while others write.
 */
#ifndef INFERD_DAEMON_LOG_H
#define INFERD_DAEMON_LOG_H

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

struct config;

/* A sink for the whole process. */
void log_stderr_init(struct log_sink *sink, enum log_level level);

/* Takes over log_level, log_components and log_format, which have been checked. */
void log_configure(struct log_sink *sink, const struct config *config);

/* Where the journal listens; for tests. */
extern const char *log_journal_path;

#endif
