/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as text: for Chrome's trace viewer (and Perfetto), and for collectors of OpenTelemetry. */
#ifndef INFERD_DAEMON_MONITOR_TRACE_TEXT_H
#define INFERD_DAEMON_MONITOR_TRACE_TEXT_H

#include "base/text.h"
#include "daemon/trace.h"

/* Events in the array of a trace file, each with its comma: nested ones of the request's own row,
 * since requests overlap. Times are microseconds of the monotonic clock. */
void trace_chrome_write(const struct trace *trace, struct text *out);

/* Spans for `scopeSpans[].spans` of OTLP's JSON, without a comma at the end. `epoch_ns`: what to
 * add to clock_now_ns for nanoseconds since 1970. */
void trace_otlp_write(const struct trace *trace, uint64_t epoch_ns, struct text *out);
/* What stands before and behind them in a request to a collector. */
void trace_otlp_begin(const char *host, struct text *out);
void trace_otlp_end(struct text *out);

#endif
