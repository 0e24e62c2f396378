/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapping backend. Each of its objects is a pair: the wrapped object, and the fault device,
 * which has the rules. Each device has a table of its own, with the claims and functions that the
 * wrapped backend has.
 */
#include "engine/runtime/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/runtime/fault_script.h"

struct fault_device {
    struct device device;
    struct backend table;
    struct device *inner;
    struct fault_script script;
    atomic_uint_fast64_t calls[FAULT_POINTS_]; /* relaxed: they are only counted */
    atomic_bool lost; /* relaxed: it does not matter which call is the first to see it */
};

struct backend_stream {
    struct fault_device *device;
    struct backend_stream *inner;
};

struct backend_event {
    struct fault_device *device;
    struct backend_event *inner;
};

struct backend_arena {
    struct fault_device *device;
    struct backend_arena *inner;
};

struct backend_op {
    struct fault_device *device;
    struct backend_op *inner;
};

struct backend_graph {
    struct fault_device *device;
    struct backend_graph *inner;
};

static struct fault_device *of(const struct device *device)
{
    return (struct fault_device *)(uintptr_t)device;
}

static const struct backend *inner(const struct fault_device *d)
{
    return d->inner->backend;
}

const char *fault_wrapped(const struct device *device)
{
    return device->backend->device_open == backend_fault.device_open ? inner(of(device))->name
                                                                     : NULL;
}

/* --- the script's rules --- */

static enum status lost(struct error *err)
{
    error_cause(err, CAUSE_DEVICE_LOST, "injected: the device is lost");
    if (err)
        err->scope = ERROR_DEVICE;
    return STATUS_UNAVAILABLE;
}

static enum status act(struct fault_device *d, const struct fault_rule *rule, uint64_t call,
                       struct error *err)
{
    switch (rule->action) {
    case FAULT_DELAY:
        clock_sleep_until(clock_now_ns() + rule->delay_ns);
        return STATUS_OK;
    case FAULT_HANG:
        for (;;)
            clock_sleep_until(clock_now_ns() + NS_PER_S);
    case FAULT_FAIL:
        return error_set(err, rule->status, "injected: call %llu fails", (unsigned long long)call);
    case FAULT_MODEL:
        error_set(err, STATUS_INTERNAL, "injected: call %llu fails", (unsigned long long)call);
        if (err)
            err->scope = ERROR_MODEL;
        return STATUS_INTERNAL;
    case FAULT_OOM:
        return error_cause(err, CAUSE_OUT_OF_MEMORY, "injected: out of memory");
    case FAULT_SHORT:
        return error_set(err, STATUS_DATA_LOSS, "injected: a short copy");
    case FAULT_DEVICE:
        atomic_store_explicit(&d->lost, true, memory_order_relaxed);
        return lost(err);
    }
    return STATUS_OK;
}

/* Counts a call and does what the script says about it. *how (may be NULL): the failing action. */
static enum status inject(struct fault_device *d, enum fault_point point, enum fault_action *how,
                          struct error *err)
{
    if (atomic_load_explicit(&d->lost, memory_order_relaxed))
        return lost(err);
    uint64_t call = 1 + atomic_fetch_add_explicit(&d->calls[point], 1, memory_order_relaxed);
    const struct fault_rule *other = NULL;
    for (uint32_t i = 0; i < d->script.n_rules; i++) {
        const struct fault_rule *rule = &d->script.rules[i];
        if (rule->point != point || call < rule->first || call > rule->last)
            continue;
        if (rule->action == FAULT_DELAY)
            act(d, rule, call, err);
        else if (!other)
            other = rule;
    }
    if (other && how)
        *how = other->action;
    return other ? act(d, other, call, err) : STATUS_OK;
}

/* --- device --- */

static enum status device_count(uint32_t *out, struct error *err UNUSED)
{
    *out = 1;
    return STATUS_OK;
}

/* Makes the device's table: the fault backend's, with the claims of the wrapped backend and without
 * the functions that it lacks. */
static void make_table(struct fault_device *d)
{
    const struct backend *wrapped = inner(d);
    struct backend *t = &d->table;
    *t = backend_fault;
    t->features = wrapped->features;
    t->host_memory = wrapped->host_memory && !d->script.apart;
    t->stable_addresses = wrapped->stable_addresses || d->script.apart;
    if (!wrapped->pack)
        t->pack = NULL;
    if (!wrapped->compile)
        t->compile = NULL;
    if (!wrapped->compile_drop)
        t->compile_drop = NULL;
    if (!wrapped->code)
        t->code = NULL;
    if (!wrapped->capture_begin) {
        t->capture_begin = NULL;
        t->capture_end = NULL;
        t->graph_launch = NULL;
        t->graph_free = NULL;
    }
    if (!wrapped->capture_half)
        t->capture_half = NULL;
    t->range_begin = wrapped->range_begin;
    t->range_end = wrapped->range_end;
}

static enum status open_inner(struct fault_device *d, const struct device_options *options,
                              struct error *err)
{
    const struct backend *backend = options->wrap;
    struct device_options own = *options;
    TRY(fault_script_parse(options->script, &d->script, err));
    if (!backend)
        TRY(backend_find(d->script.backend, &backend, &own.index, err));
    if (backend == &backend_fault)
        return error_set(err, STATUS_INVALID_ARGUMENT, "fault script: cannot wrap itself");
    own.script = NULL;
    own.wrap = NULL;
    return backend->device_open(&own, &d->inner, err);
}

static enum status device_open(const struct device_options *options, struct device **out,
                               struct error *err)
{
    CLEANUP(cleanup_free) struct fault_device *d = calloc(1, sizeof(*d));
    if (!d)
        return error_no_memory(err, "the fault backend");
    TRY(open_inner(d, options, err));
    make_table(d);
    d->device = (struct device){
        .backend = &d->table, .threads = d->inner->threads, .block_bytes = d->inner->block_bytes};
    *out = &STEAL(d)->device;
    return STATUS_OK;
}

static void device_close(struct device *device)
{
    if (!device)
        return;
    struct fault_device *d = of(device);
    inner(d)->device_close(d->inner);
    free(d);
}

static void device_fingerprint(struct device *device, char out[FINGERPRINT_MAX])
{
    inner(of(device))->device_fingerprint(of(device)->inner, out);
}

/* --- memory --- */

static enum status fault_memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                                      const char *tag, void **out, struct error *err)
{
    struct fault_device *d = of(device);
    TRY(inject(d, FAULT_MEMORY, NULL, err));
    return inner(d)->memory_alloc(d->inner, kind, size, tag, out, err);
}

static void fault_memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    inner(of(device))->memory_free(of(device)->inner, kind, memory);
}

static enum status arena_create(struct device *device, size_t reserve, struct backend_arena **out,
                                struct error *err)
{
    struct fault_device *d = of(device);
    CLEANUP(cleanup_free) struct backend_arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return error_no_memory(err, "the fault backend");
    arena->device = d;
    TRY(inner(d)->arena_new(d->inner, reserve, &arena->inner, err));
    *out = STEAL(arena);
    return STATUS_OK;
}

static enum status arena_grow(struct backend_arena *arena, size_t size, struct error *err)
{
    TRY(inject(arena->device, FAULT_MEMORY, NULL, err));
    return inner(arena->device)->arena_grow(arena->inner, size, err);
}

static void *arena_base(struct backend_arena *arena)
{
    return inner(arena->device)->arena_base(arena->inner);
}

static void arena_destroy(struct backend_arena *arena)
{
    if (!arena)
        return;
    inner(arena->device)->arena_free(arena->inner);
    free(arena);
}

/* --- streams and events --- */

static enum status stream_new(struct device *device, struct backend_stream **out, struct error *err)
{
    struct fault_device *d = of(device);
    CLEANUP(cleanup_free) struct backend_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return error_no_memory(err, "the fault backend");
    stream->device = d;
    TRY(inner(d)->stream_new(d->inner, &stream->inner, err));
    *out = STEAL(stream);
    return STATUS_OK;
}

static void stream_free(struct backend_stream *stream)
{
    if (!stream)
        return;
    inner(stream->device)->stream_free(stream->inner);
    free(stream);
}

static enum status event_new(struct device *device, bool timing, struct backend_event **out,
                             struct error *err)
{
    struct fault_device *d = of(device);
    CLEANUP(cleanup_free) struct backend_event *event = calloc(1, sizeof(*event));
    if (!event)
        return error_no_memory(err, "the fault backend");
    event->device = d;
    TRY(inner(d)->event_new(d->inner, timing, &event->inner, err));
    *out = STEAL(event);
    return STATUS_OK;
}

static void event_free(struct backend_event *event)
{
    if (!event)
        return;
    inner(event->device)->event_free(event->inner);
    free(event);
}

static enum status event_record(struct backend_event *event, struct backend_stream *stream,
                                struct error *err)
{
    return inner(event->device)->event_record(event->inner, stream->inner, err);
}

/* The wait itself comes first: even if the call fails then, the work has ended, and the caller may
 * free what the work used. */
static enum status event_wait(struct backend_event *event, struct error *err)
{
    TRY(inner(event->device)->event_wait(event->inner, err));
    return inject(event->device, FAULT_WAIT, NULL, err);
}

static enum status event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                                 struct error *err)
{
    return inner(from->device)->event_elapsed(from->inner, to->inner, ns, err);
}

/* Copies half of the bytes of all copies together, as a device does that stops in the middle. */
static void copy_half(struct backend_stream *stream, enum copy_direction direction,
                      const struct backend_copy *copies, uint32_t n)
{
    size_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        left += copies[i].size;
    left /= 2;
    for (uint32_t i = 0; i < n && left; i++) {
        struct backend_copy part = copies[i];
        part.size = MIN(part.size, left);
        left -= part.size;
        if (inner(stream->device)->copy(stream->inner, direction, &part, 1, NULL))
            return;
    }
}

static enum status copy(struct backend_stream *stream, enum copy_direction direction,
                        const struct backend_copy *copies, uint32_t n, struct error *err)
{
    enum fault_action how = FAULT_FAIL;
    enum status status = inject(stream->device, FAULT_COPY, &how, err);
    if (status && how == FAULT_SHORT)
        copy_half(stream, direction, copies, n);
    return status ? status : inner(stream->device)->copy(stream->inner, direction, copies, n, err);
}

/* --- ops --- */

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct fault_device *d = of(device);
    return inner(d)->candidates(d->inner, graph, node, precision, visit, user, err);
}

static uint64_t cost(struct device *device, const struct ir_graph *graph,
                     const struct ir_node *node, const struct tactic *tactic, uint32_t rank)
{
    struct fault_device *d = of(device);
    return inner(d)->cost ? inner(d)->cost(d->inner, graph, node, tactic, rank) : 0;
}

static enum status pack(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct fault_device *d = of(device);
    return inner(d)->pack(d->inner, graph, node, tactic, input, to, err);
}

static enum status compile(struct device *device, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct error *err)
{
    struct fault_device *d = of(device);
    return inner(d)->compile(d->inner, graph, node, tactic, err);
}

static void compile_drop(struct device *device)
{
    inner(of(device))->compile_drop(of(device)->inner);
}

static enum status code(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct arena *arena, const void **out, uint64_t *size, struct error *err)
{
    struct fault_device *d = of(device);
    return inner(d)->code(d->inner, graph, node, tactic, arena, out, size, err);
}

static enum status op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err)
{
    struct fault_device *d = stream->device;
    TRY(inject(d, FAULT_PREPARE, NULL, err));
    CLEANUP(cleanup_free) struct backend_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "the fault backend");
    op->device = d;
    TRY(inner(d)->op_prepare(stream->inner, graph, node, tactic, &op->inner, err));
    *out = STEAL(op);
    return STATUS_OK;
}

static uint64_t op_workspace(const struct backend_op *op)
{
    return inner(op->device)->op_workspace(op->inner);
}

static void op_free(struct backend_op *op)
{
    if (!op)
        return;
    inner(op->device)->op_free(op->inner);
    free(op);
}

static enum status op_launch(struct backend_op *op, struct backend_stream *stream,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err)
{
    TRY(inject(op->device, FAULT_LAUNCH, NULL, err));
    return inner(op->device)->op_launch(op->inner, stream->inner, inputs, outputs, workspace, err);
}

/* --- capture --- */

static enum status capture_begin(struct backend_stream *stream, struct error *err)
{
    return inner(stream->device)->capture_begin(stream->inner, err);
}

static enum status capture_half(struct backend_stream *stream, struct error *err)
{
    return inner(stream->device)->capture_half(stream->inner, err);
}

static enum status capture_end(struct backend_stream *stream, struct backend_graph **out,
                               struct error *err)
{
    struct fault_device *d = stream->device;
    struct backend_graph *inner_graph = NULL;
    TRY(inner(d)->capture_end(stream->inner, &inner_graph, err));
    struct backend_graph *graph = calloc(1, sizeof(*graph));
    if (!graph) {
        inner(d)->graph_free(inner_graph);
        return error_no_memory(err, "the fault backend");
    }
    *graph = (struct backend_graph){d, inner_graph};
    *out = graph;
    return STATUS_OK;
}

static enum status graph_launch(struct backend_graph *graph, struct backend_stream *stream,
                                struct error *err)
{
    TRY(inject(graph->device, FAULT_LAUNCH, NULL, err));
    return inner(graph->device)->graph_launch(graph->inner, stream->inner, err);
}

static void graph_free(struct backend_graph *graph)
{
    if (!graph)
        return;
    inner(graph->device)->graph_free(graph->inner);
    free(graph);
}

const struct backend backend_fault = {
    .abi = BACKEND_ABI,
    .name = "fault",
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_fingerprint = device_fingerprint,
    .memory_alloc = fault_memory_alloc,
    .memory_free = fault_memory_free,
    .arena_new = arena_create,
    .arena_grow = arena_grow,
    .arena_base = arena_base,
    .arena_free = arena_destroy,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .copy = copy,
    .candidates = candidates,
    .cost = cost,
    .pack = pack,
    .compile = compile,
    .compile_drop = compile_drop,
    .code = code,
    .op_prepare = op_prepare,
    .op_workspace = op_workspace,
    .op_free = op_free,
    .op_launch = op_launch,
    .capture_begin = capture_begin,
    .capture_half = capture_half,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
};
