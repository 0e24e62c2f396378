/* SPDX-License-Identifier: Apache-2.0 */
/* Records of requests and their way to the monitor; see trace.h. */
#include "daemon/trace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "daemon/dispatch.h"

struct lane {
    _Alignas(64) struct trace *free; /* the loop's own */
    uint64_t seed, serial;
    uint32_t passed; /* requests since the last one that was traced by its turn */
    _Alignas(64) _Atomic(struct trace *) finished;
    _Atomic(struct trace *) returned;
    struct trace items[TRACE_RECORDS];
};

struct traces {
    _Atomic uint32_t rate;
    _Atomic int64_t left; /* traces by their turn; below 0: any number */
    uint32_t n_lanes;
    struct lane *lanes;
};

struct traces *traces_new(uint32_t n_loops)
{
    struct traces *traces = calloc(1, sizeof(*traces));
    struct lane *lanes = aligned_alloc(64, n_loops * sizeof(*lanes));
    if (!traces || !lanes) {
        free(traces);
        free(lanes);
        return NULL;
    }
    memset(lanes, 0, n_loops * sizeof(*lanes));
    traces->n_lanes = n_loops;
    atomic_init(&traces->left, -1);
    traces->lanes = lanes;
    for (uint32_t i = 0; i < n_loops; i++) {
        if (getrandom(&lanes[i].seed, sizeof(lanes[i].seed), 0) != sizeof(lanes[i].seed))
            lanes[i].seed = clock_now_ns() + i; /* the ids need not be secret */
        for (uint32_t k = 0; k < TRACE_RECORDS; k++) {
            lanes[i].items[k].next = lanes[i].free;
            lanes[i].free = &lanes[i].items[k];
        }
    }
    return traces;
}

void traces_free(struct traces *traces)
{
    if (traces)
        free(traces->lanes);
    free(traces);
}

void traces_rate_set(struct traces *traces, uint32_t rate)
{
    atomic_store_explicit(&traces->rate, rate, memory_order_relaxed);
}

uint32_t traces_rate(const struct traces *traces)
{
    return atomic_load_explicit(&traces->rate, memory_order_relaxed);
}

void traces_left_set(struct traces *traces, int64_t left)
{
    atomic_store_explicit(&traces->left, left, memory_order_relaxed);
}

int64_t traces_left(const struct traces *traces)
{
    return atomic_load_explicit(&traces->left, memory_order_relaxed);
}

/* Takes one of those that are left. */
static bool left_take(struct traces *traces)
{
    int64_t left = traces_left(traces);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&traces->left, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return left != 0;
}

/* --- traceparent --- */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: these are not `n` bytes in small hexadecimal digits. */
static bool hex_read(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= bytes[i];
    return !any;
}

bool trace_parent_parse(struct message_text text, struct trace_parent *out)
{
    enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };
    uint8_t version, flags;
    struct trace_parent parent;
    if (text.len < LENGTH || text.data[2] != '-' || text.data[SPAN_AT - 1] != '-' ||
        text.data[FLAGS_AT - 1] != '-')
        return false;
    if (!hex_read(text.data, &version, 1) || !hex_read(text.data + TRACE_AT, parent.trace, 16) ||
        !hex_read(text.data + SPAN_AT, parent.span, 8) ||
        !hex_read(text.data + FLAGS_AT, &flags, 1))
        return false;
    /* A later version may have more behind a dash; this one has not. */
    if (version == 0xff || (text.len > LENGTH && (!version || text.data[LENGTH] != '-')) ||
        is_zero(parent.trace, TRACE_ID) || is_zero(parent.span, TRACE_SPAN))
        return false;
    parent.sampled = flags & 1;
    *out = parent;
    return true;
}

/* --- a loop's side --- */

/* Takes back what the monitor has returned, if nothing else is left. */
static struct trace *record_take(struct lane *lane)
{
    if (!lane->free)
        lane->free = atomic_exchange_explicit(&lane->returned, NULL, memory_order_acquire);
    struct trace *trace = lane->free;
    if (trace)
        lane->free = trace->next;
    return trace;
}

static bool is_wanted(struct traces *traces, struct lane *lane, uint32_t rate, bool has_parent,
                      const struct trace_parent *parent)
{
    if (has_parent)
        return parent->sampled;
    if (++lane->passed < rate)
        return false;
    lane->passed = 0;
    return left_take(traces);
}

/* A record with an id of its own; NULL: there is none left. */
static struct trace *record_begin(struct lane *lane, uint32_t loop, XXH128_hash_t *id)
{
    struct trace *trace = record_take(lane);
    if (!trace)
        return NULL;
    *trace = (struct trace){.loop = loop};
    *id = XXH3_128bits_withSeed(&lane->serial, sizeof(lane->serial), lane->seed);
    lane->serial++;
    uint64_t span = (id->low64 ^ id->high64) | 1; /* an id is never 0 */
    memcpy(trace->span, &span, sizeof(span));
    return trace;
}

struct trace *trace_begin_step(struct traces *traces, const struct trace *whole, bool *dropped)
{
    XXH128_hash_t id;
    struct trace *trace = record_begin(&traces->lanes[whole->loop], whole->loop, &id);
    *dropped = !trace;
    if (!trace)
        return NULL;
    trace->parent = whole->parent;
    memcpy(trace->parent.span, whole->span, TRACE_SPAN);
    trace->read_ns = clock_now_ns();
    trace->of_step = true;
    return trace;
}

struct trace *trace_begin(struct traces *traces, uint32_t loop, struct message_text text,
                          bool *dropped)
{
    XXH128_hash_t id;
    struct lane *lane = &traces->lanes[loop];
    struct trace_parent parent = {.sampled = false};
    uint32_t rate = traces_rate(traces);
    bool has_parent = rate && text.len && trace_parent_parse(text, &parent);
    *dropped = false;
    if (!rate || !is_wanted(traces, lane, rate, has_parent, &parent))
        return NULL;
    struct trace *trace = record_begin(lane, loop, &id);
    *dropped = !trace;
    if (!trace)
        return NULL;
    trace->parent = parent;
    if (!has_parent) {
        id.low64 |= 1;
        memcpy(trace->parent.trace, &id, sizeof(id));
    }
    return trace;
}

void trace_decoded(struct trace *trace)
{
    trace->decoded_ns = clock_now_ns();
}

void trace_answered(struct trace *trace, const struct inflight *inflight)
{
    const struct batch *batch = inflight->batch;
    trace->answered_ns = clock_now_ns();
    trace->cause = inflight->cause;
    trace->instances = inflight->item.instances;
    if (batch || inflight->cause == CAUSE_EXPIRED)
        trace->queued_ns = inflight->item.arrival_ns;
    if (!batch)
        return;
    trace->gather_ns = inflight->item.arrival_ns + inflight->queue_ns;
    trace->input_ns = batch->times.input_ns;
    trace->compute_ns = batch->times.compute_ns;
    trace->output_ns = batch->times.output_ns;
    trace->batch = batch->instances;
}

static void push(_Atomic(struct trace *) *stack, struct trace *trace)
{
    trace->next = atomic_load_explicit(stack, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(stack, &trace->next, trace, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

void trace_end(struct traces *traces, struct trace *trace)
{
    trace->written_ns = clock_now_ns();
    push(&traces->lanes[trace->loop].finished, trace);
}

/* --- the monitor's --- */

struct trace *traces_take(struct traces *traces, uint32_t loop)
{
    return atomic_exchange_explicit(&traces->lanes[loop].finished, NULL, memory_order_acquire);
}

void traces_give(struct traces *traces, struct trace *trace)
{
    push(&traces->lanes[trace->loop].returned, trace);
}
