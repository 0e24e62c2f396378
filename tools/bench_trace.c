/* SPDX-License-Identifier: Apache-2.0 */
/* See bench_trace.h. Spans are kept in memory, so that writing them disturbs nothing. */
#include "tools/bench_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/ir/ir.h"
#include "tools/json.h"
#include "tools/output.h"

enum { SPANS_MAX = 1 << 17 /* of a context: 5 MiB */ };

static const char *const rows[] = {
    [TRACE_INPUT] = "input copy",
    [TRACE_COMPUTE] = "compute",
    [TRACE_OUTPUT] = "output copy",
    [TRACE_LAYER] = "layers",
};

enum status bench_trace_init(struct bench_trace *trace, struct error *err)
{
    *trace = (struct bench_trace){.max = SPANS_MAX};
    trace->spans = calloc(SPANS_MAX, sizeof(*trace->spans));
    return trace->spans ? STATUS_OK : error_no_memory(err, "the trace");
}

void bench_trace_deinit(struct bench_trace *trace)
{
    free(trace->spans);
    *trace = (struct bench_trace){0};
}

enum status bench_trace_add(struct bench_trace *trace, struct context *ctx,
                            const struct trace_base *base, struct error *err)
{
    uint32_t n, room = trace->max - trace->n;
    if (trace->full)
        return STATUS_OK;
    TRY(context_trace(ctx, base, trace->spans + trace->n, room, &n, err));
    if (n == room)
        trace->full = true; /* perhaps cut off */
    else
        trace->n += n;
    return STATUS_OK;
}

static void put_name(struct json *j, uint32_t row, uint32_t ctx, enum trace_kind kind)
{
    char name[64];
    snprintf(name, sizeof(name), "context %u: %s", ctx, rows[kind]);
    json_object(j, NULL);
    json_text(j, "name", "thread_name");
    json_text(j, "ph", "M");
    json_uint(j, "pid", 1);
    json_uint(j, "tid", row);
    json_object(j, "args");
    json_text(j, "name", name);
    json_end(j);
    json_end(j);
}

static void put_span(struct json *j, uint32_t row, double shift_us, const struct trace_span *span)
{
    json_object(j, NULL);
    json_text(j, "name", span->node ? span->node->name : rows[span->kind]);
    json_text(j, "cat", span->node ? "layer" : "batch");
    json_text(j, "ph", "X");
    json_uint(j, "pid", 1);
    json_uint(j, "tid", row);
    json_real(j, "ts", (double)span->begin_ns / NS_PER_US + shift_us);
    json_real(j, "dur", (double)(span->end_ns - span->begin_ns) / NS_PER_US);
    if (span->node && span->node->tactic) {
        json_object(j, "args");
        json_text(j, "op", ir_op_name(span->node->op));
        json_text(j, "tactic", span->node->tactic->name);
        json_end(j);
    }
    json_end(j);
}

/* What is in use during the spans: what each layer has, if they are timed, or else what is most
 * during computing. */
static void put_use(struct json *j, uint32_t context, double shift_us,
                    const struct memory_view *memory, const struct bench_trace *trace)
{
    bool timed = false;
    for (uint32_t i = 0; i < trace->n; i++)
        timed = timed || trace->spans[i].kind == TRACE_LAYER;
    const enum trace_kind kind = timed ? TRACE_LAYER : TRACE_COMPUTE;
    for (uint32_t i = 0; memory->n_layers && i < trace->n; i++) {
        const struct trace_span *s = &trace->spans[i];
        if (s->kind != kind)
            continue;
        memory_layer_trace(memory, context, timed ? s->node : memory->layers[memory->most].node,
                           (double)s->begin_ns / NS_PER_US + shift_us, j);
        if (i + 1 == trace->n || trace->spans[i + 1].kind != kind)
            memory_layer_trace(memory, context, NULL, (double)s->end_ns / NS_PER_US + shift_us, j);
    }
}

static void write_all(FILE *file, const struct bench_trace *const *traces, uint32_t n,
                      uint64_t base_ns, const struct memory_view *memory)
{
    uint64_t first_ns = memory && memory->n_events ? memory->events[0].at_ns : base_ns;
    uint64_t zero_ns = MIN(first_ns, base_ns);
    double shift_us = (double)(base_ns - zero_ns) / NS_PER_US;
    struct json j;
    json_init(&j, file);
    json_object(&j, NULL);
    json_text(&j, "displayTimeUnit", "ms");
    json_list(&j, "traceEvents");
    for (uint32_t c = 0; c < n; c++) {
        uint32_t first = c * (uint32_t)ARRAY_LEN(rows);
        for (uint32_t k = 0; k < ARRAY_LEN(rows); k++)
            put_name(&j, first + k, c, (enum trace_kind)k);
        for (uint32_t i = 0; i < traces[c]->n; i++)
            put_span(&j, first + traces[c]->spans[i].kind, shift_us, &traces[c]->spans[i]);
        if (memory)
            put_use(&j, c, shift_us, memory, traces[c]);
    }
    if (memory)
        memory_view_trace(memory, zero_ns, &j);
    json_end(&j);
    json_end(&j);
}

enum status bench_trace_write(const char *path, const struct bench_trace *const *traces, uint32_t n,
                              const struct trace_base *base, const struct memory_view *memory,
                              struct error *err)
{
    CLEANUP(output_text_cleanup) struct output_text text = {0};
    TRY(output_text_begin(&text, err));
    write_all(text.file, traces, n, trace_base_clock(base), memory);
    return output_text_end(&text, path, err);
}
