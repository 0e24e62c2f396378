/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inferctl bench --trace keeps and writes: Chrome's trace event format (JSON, "complete"
 * events, microseconds), which chrome://tracing and Perfetto show. Each context has a row for its
 * input copies, its computing, its output copies, and its layers if they are timed. With an account
 * of memory there are counters of what was held when, and of what each layer has in use.
 */
#ifndef INFERD_TOOLS_BENCH_TRACE_H
#define INFERD_TOOLS_BENCH_TRACE_H

#include <stdint.h>

#include "engine/runtime/layer_times.h"
#include "tools/memory_view.h"

/* The trace of one context. It belongs to the context's thread until that has ended. */
struct bench_trace {
    struct trace_span *spans;
    uint32_t n, max;
    bool full; /* the rest of the run is left out */
};

enum status bench_trace_init(struct bench_trace *trace, struct error *err);
void bench_trace_deinit(struct bench_trace *trace);

/* Adds the batch that context_wait has just returned, as a whole or not at all. */
enum status bench_trace_add(struct bench_trace *trace, struct context *ctx,
                            const struct trace_base *base, struct error *err);

/* Writes one file for all contexts. Times count from the base, or from the first event of memory if
 * that was earlier. `memory` may be NULL. */
enum status bench_trace_write(const char *path, const struct bench_trace *const *traces, uint32_t n,
                              const struct trace_base *base, const struct memory_view *memory,
                              struct error *err);

#endif
