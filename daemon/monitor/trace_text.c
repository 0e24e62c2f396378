/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of traces, see trace_text.h. A request is a span, and its stages are spans within it:
 *
 *   read     from the first byte of its message that was seen to the whole request
 *   queue    from then to the batch
 *   gather   inputs are lined up and copied; then compute and output
 *   write    from the answer to its last byte, or to where the socket took no more
 */
#include "daemon/monitor/trace_text.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/monitor/snapshot.h"

struct stage {
    const char *name;
    uint64_t begin_ns, end_ns;
};

enum { STAGES = 6 };

/* The stages that the request came to. Returns how many. */
static uint32_t stages_of(const struct trace *t, struct stage out[STAGES])
{
    uint64_t input_ns = t->gather_ns + t->input_ns, compute_ns = input_ns + t->compute_ns;
    const struct stage all[STAGES] = {
        {"read", t->read_ns, t->decoded_ns},
        {"queue", t->queued_ns, t->gather_ns ? t->gather_ns : t->answered_ns},
        {"gather", t->gather_ns, input_ns},
        {"compute", t->gather_ns ? input_ns : 0, compute_ns},
        {"output", t->gather_ns ? compute_ns : 0, compute_ns + t->output_ns},
        {"write", t->answered_ns, t->written_ns},
    };
    uint32_t n = 0;
    for (size_t i = 0; i < STAGES; i++)
        if (all[i].begin_ns && all[i].end_ns >= all[i].begin_ns)
            out[n++] = all[i];
    return n;
}

static void hex_put(struct text *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text_printf(out, "%02x", bytes[i]);
}

/* --- Chrome --- */

static void event_begin(const struct trace *t, const char *name, char phase, uint64_t ns,
                        struct text *out)
{
    text_printf(out, "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"%c\",\"id\":\"", name, phase);
    hex_put(out, t->span, TRACE_SPAN);
    text_printf(out, "\",\"pid\":%d,\"tid\":%" PRIu32 ",\"ts\":%llu.%03llu", (int)getpid(), t->loop,
                ns / NS_PER_US, ns % NS_PER_US);
}

static void event(const struct trace *t, const char *name, char phase, uint64_t ns,
                  struct text *out)
{
    event_begin(t, name, phase, ns, out);
    text_put(out, "},\n");
}

void trace_chrome_write(const struct trace *t, struct text *out)
{
    struct stage stages[STAGES];
    char cause[SNAPSHOT_CAUSE];
    uint32_t n = stages_of(t, stages);
    event_begin(t, t->of_step ? "step" : "request", 'b', t->read_ns, out);
    text_put(out, ",\"args\":{\"model\":\"");
    text_json(out, t->model);
    text_put(out, "\",\"version\":\"");
    text_json(out, t->version);
    text_put(out, "\",\"id\":\"");
    text_json(out, t->id);
    text_put(out, "\",\"trace\":\"");
    hex_put(out, t->parent.trace, TRACE_ID);
    text_printf(out, "\",\"cause\":\"%s\",\"instances\":%" PRIu32 ",\"batch\":%" PRIu32 "}},\n",
                snapshot_cause_name(t->cause, cause), t->instances, t->batch);
    for (uint32_t i = 0; i < n; i++) {
        event(t, stages[i].name, 'b', stages[i].begin_ns, out);
        event(t, stages[i].name, 'e', stages[i].end_ns, out);
    }
    event(t, t->of_step ? "step" : "request", 'e', t->written_ns, out);
}

/* --- OpenTelemetry --- */

static void attribute(struct text *out, const char *key, const char *value, bool first)
{
    text_printf(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":\"", first ? "" : ",", key);
    text_json(out, value);
    text_put(out, "\"}}");
}

static void number_attribute(struct text *out, const char *key, uint64_t value)
{
    text_printf(out, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}}", key, value);
}

/* Up to the times; the rest is the caller's, with the closing brace. `kind` 1: internal, 2: of a
 * server. */
static void span_begin(const struct trace *t, const uint8_t *span, const uint8_t *parent, int kind,
                       const char *name, struct text *out)
{
    text_put(out, "{\"traceId\":\"");
    hex_put(out, t->parent.trace, TRACE_ID);
    text_put(out, "\",\"spanId\":\"");
    hex_put(out, span, TRACE_SPAN);
    if (parent) {
        text_put(out, "\",\"parentSpanId\":\"");
        hex_put(out, parent, TRACE_SPAN);
    }
    text_printf(out, "\",\"kind\":%d,\"name\":\"", kind);
    text_json(out, name);
}

static void span_times(uint64_t begin_ns, uint64_t end_ns, struct text *out)
{
    text_printf(out, "\",\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":\"%" PRIu64 "\"",
                begin_ns, end_ns);
}

void trace_otlp_write(const struct trace *t, uint64_t epoch_ns, struct text *out)
{
    static const uint8_t none[TRACE_SPAN];
    struct stage stages[STAGES];
    char cause[SNAPSHOT_CAUSE];
    uint32_t n = stages_of(t, stages);
    bool has_parent = memcmp(t->parent.span, none, TRACE_SPAN) != 0;
    span_begin(t, t->span, has_parent ? t->parent.span : NULL, t->of_step ? 1 : 2,
               t->of_step ? "step" : "inference", out);
    span_times(t->read_ns + epoch_ns, t->written_ns + epoch_ns, out);
    text_put(out, ",\"attributes\":[");
    attribute(out, "inferd.model", t->model, true);
    attribute(out, "inferd.version", t->version, false);
    if (*t->id)
        attribute(out, t->of_step ? "inferd.step" : "inferd.request_id", t->id, false);
    number_attribute(out, "inferd.instances", t->instances);
    number_attribute(out, "inferd.batch", t->batch);
    text_put(out, "]");
    if (t->cause)
        text_printf(out, ",\"status\":{\"code\":2,\"message\":\"%s\"}",
                    snapshot_cause_name(t->cause, cause));
    text_put(out, "}");
    for (uint32_t i = 0; i < n; i++) {
        uint8_t span[TRACE_SPAN]; /* the request's, with another last byte: unique in its trace */
        memcpy(span, t->span, TRACE_SPAN);
        span[TRACE_SPAN - 1] = (uint8_t)(span[TRACE_SPAN - 1] + 1 + i);
        text_put(out, ",");
        span_begin(t, span, t->span, 1, stages[i].name, out);
        span_times(stages[i].begin_ns + epoch_ns, stages[i].end_ns + epoch_ns, out);
        text_put(out, "}");
    }
}

void trace_otlp_begin(const char *host, struct text *out)
{
    text_put(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    attribute(out, "service.name", "inferd", true);
    attribute(out, "service.version", INFERD_VERSION, false);
    attribute(out, "host.name", host, false);
    number_attribute(out, "process.pid", (uint64_t)getpid());
    text_put(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"inferd\"},\"spans\":[");
}

void trace_otlp_end(struct text *out)
{
    text_put(out, "]}]}]}");
}
