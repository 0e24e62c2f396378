/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes finished traces from the loops, writes them to a file for Chrome's viewer, and sends them
 * to a collector as OTLP over plain HTTP. All of it is on the monitor's thread and its event loop.
 *
 * What waits is bounded: TRACE_OUT_MOST bytes for the collector, and one request to it at a time; a
 * file is moved to FILE.1 when it has TRACE_FILE_MOST bytes. What does not fit, or what the
 * collector or the file system does not take, is dropped and counted. A file whose disk is full
 * keeps the traces that it has as a whole, and is tried again after a while.
 */
#ifndef INFERD_DAEMON_MONITOR_TRACE_OUT_H
#define INFERD_DAEMON_MONITOR_TRACE_OUT_H

#include <uv.h>

#include "base/resolve.h"
#include "config/config.h"
#include "daemon/shared.h"

enum { TRACE_OUT_MOST = 1 << 20, TRACE_FILE_MOST = 64 << 20 };

struct trace_out;

/* Looks up the collector's host, so only at the start. NULL in *out: neither a file nor a collector
 * is configured. */
enum status trace_out_new(struct shared *shared, const struct config *config,
                          struct trace_out **out, struct error *err);
/* From now on it uses that loop; before its thread runs. */
void trace_out_attach(struct trace_out *out, uv_loop_t *uv);
/* To be called about once a second. */
void trace_out_tick(struct trace_out *out);
/* Writes what has come to the file, and closes its handles; what the collector has not got is
 * lost. NULL is fine. */
void trace_out_close(struct trace_out *out);
void trace_out_free(struct trace_out *out); /* once the loop has run again; NULL is fine */

#endif
