/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine: a plan that fits the device, its weights on it once, and its description. Weights are
 * used where they are mapped if the device reads host memory, else uploaded.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/runtime/fault.h"
#include "engine/runtime/internal.h"
#include "engine/runtime/memory.h"

/* Which backend's tactics the device runs: its own, or those of what it wraps. */
static const char *device_backend(const struct device *device)
{
    return device->backend == &backend_fault ? fault_wrapped(device) : device->backend->name;
}

static enum status check_device(const struct plan *plan, struct device *device, struct error *err)
{
    char here[FINGERPRINT_MAX] = "";
    device->backend->device_fingerprint(device, here);
    if (strcmp(here, plan->device) != 0)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the plan was built for '%s', this device is '%s': build it again",
                         plan->device, here);
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        const struct ir_graph *graph = plan->profiles[p].graph;
        for (uint32_t i = 0; i < graph->n_segments; i++)
            if (strcmp(graph->segments[i].backend, device_backend(device)) != 0)
                return error_set(err, STATUS_FAILED_PRECONDITION,
                                 "the plan needs backend '%s' beside '%s'",
                                 graph->segments[i].backend, device_backend(device));
    }
    return STATUS_OK;
}

enum status engine_plan_threads(const char *path, uint32_t *threads, struct error *err)
{
    char device[PLAN_DEVICE_MAX];
    enum status status = plan_read_device(path, device, err);
    if (status)
        return status;
    const char *at = strstr(device, "; threads ");
    unsigned long n = at ? strtoul(at + strlen("; threads "), NULL, 10) : 0;
    *threads = n <= UINT32_MAX ? (uint32_t)n : 0;
    return STATUS_OK;
}

/* --- description --- */

static void *take(struct engine *engine, size_t count, size_t size)
{
    return arena_array(engine->plan->arena, count ? count : 1, size);
}

static bool describe_bindings(struct engine *engine, const struct plan_binding *from, uint32_t n,
                              const struct engine_binding **out)
{
    struct engine_binding *list = take(engine, n, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        struct shape instance = from[i].shape;
        if (engine->plan->batched)
            instance.dim[0] = 1;
        list[i] = (struct engine_binding){from[i].name, from[i].dtype, from[i].shape, 0};
        if (!shape_bytes(&instance, from[i].dtype, &list[i].instance_bytes))
            return false;
    }
    *out = list;
    return list != NULL;
}

/* Lays `n` tensors one behind the other at multiples of 64, from *end on. */
static bool lay_out(const struct ir_graph *graph, const uint32_t *ids, uint32_t n, size_t *offsets,
                    size_t *end)
{
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = *end;
        if (!checked_add(*end, ir_tensor(graph, ids[i])->bytes, end) ||
            !checked_round_up(*end, BACKEND_ALIGN, end))
            return false;
    }
    return true;
}

static bool describe_profile(struct engine *engine, uint32_t index)
{
    const struct plan_profile *from = &engine->plan->profiles[index];
    const struct ir_graph *graph = from->graph;
    struct engine_profile *to = &engine->profiles[index];
    struct profile_layout *layout = &engine->layouts[index];
    struct shape *in = take(engine, graph->n_inputs, sizeof(*in));
    struct shape *out = take(engine, graph->n_outputs, sizeof(*out));
    size_t *out_offset = take(engine, graph->n_outputs, sizeof(*out_offset));
    layout->in_offset = take(engine, graph->n_inputs, sizeof(*layout->in_offset));
    if (!in || !out || !out_offset || !layout->in_offset)
        return false;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        in[i] = ir_tensor(graph, graph->inputs[i])->shape;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        out[i] = ir_tensor(graph, graph->outputs[i])->shape;
    to->batch = from->batch;
    to->in = in;
    to->out = out;
    to->out_offset = out_offset;
    to->tensor_bytes = from->tensor_bytes;
    to->time_ns = plan_profile_time(from);
    /* All segments are on one backend, and so in one arena. */
    for (uint32_t i = 0; i < graph->n_segments; i++)
        to->arena_bytes = MAX(to->arena_bytes, graph->segments[i].arena_bytes);
    size_t end;
    if (!checked_round_up(to->arena_bytes, BACKEND_ALIGN, &end) ||
        !lay_out(graph, graph->inputs, graph->n_inputs, layout->in_offset, &end))
        return false;
    layout->out_base = end;
    return lay_out(graph, graph->outputs, graph->n_outputs, out_offset, &to->out_bytes) &&
           checked_add(end, to->out_bytes, &layout->total);
}

static enum status describe(struct engine *engine, struct error *err)
{
    const struct plan *plan = engine->plan;
    struct engine_info *info = &engine->info;
    engine->profiles = take(engine, plan->n_profiles, sizeof(*engine->profiles));
    engine->layouts = take(engine, plan->n_profiles, sizeof(*engine->layouts));
    bool ok = engine->profiles && engine->layouts &&
              describe_bindings(engine, plan->inputs, plan->n_inputs, &info->inputs) &&
              describe_bindings(engine, plan->outputs, plan->n_outputs, &info->outputs);
    for (uint32_t i = 0; i < plan->n_profiles && ok; i++) {
        ok = describe_profile(engine, i);
        info->out_bytes_max = MAX(info->out_bytes_max, engine->profiles[i].out_bytes);
    }
    if (!ok)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "engine: out of memory");
    info->name = plan->name;
    info->device = plan->device;
    memcpy(info->digest, plan->digest, sizeof(info->digest));
    info->batched = plan->batched;
    info->max_batch = engine->profiles[plan->n_profiles - 1].batch;
    info->n_inputs = plan->n_inputs;
    info->n_outputs = plan->n_outputs;
    info->n_profiles = plan->n_profiles;
    info->profiles = engine->profiles;
    info->weight_bytes = plan->weight_bytes;
    return STATUS_OK;
}

/* --- device memory --- */

/* On a stream of its own: loading may happen on any thread. */
static enum status copy_in(struct device *device, void *to, const void *from, size_t size,
                           struct error *err)
{
    const struct backend *backend = device->backend;
    struct backend_stream *stream = NULL;
    struct backend_event *event = NULL;
    struct backend_copy copy = {to, from, size};
    enum status status = backend->stream_new(device, &stream, err);
    if (!status)
        status = backend->event_new(device, false, &event, err);
    if (!status)
        status = backend->copy(stream, COPY_TO_DEVICE, &copy, 1, err);
    if (!status)
        status = backend->event_record(event, stream, err);
    if (!status)
        status = backend->event_wait(event, err);
    if (event)
        backend->event_free(event);
    if (stream)
        backend->stream_free(stream);
    return status;
}

static enum status upload(struct engine *engine, struct error *err)
{
    struct plan *plan = engine->plan;
    struct device *device = engine->device;
    engine->weights = plan->weights;
    if (plan->weight_bytes == 0)
        return STATUS_OK;
    if (device->backend->host_memory) {
        memory_note(device, engine, "weights", plan->weight_bytes);
        return STATUS_OK;
    }
    enum status status =
        memory_alloc(device, MEMORY_DEVICE, plan->weight_bytes, "weights", &engine->uploaded, err);
    if (!status)
        status = copy_in(device, engine->uploaded, plan->weights, plan->weight_bytes, err);
    engine->weights = engine->uploaded;
    return status;
}

static enum status make_zeros(struct engine *engine, struct error *err)
{
    size_t size = 0;
    for (uint32_t i = 0; i < engine->info.n_inputs; i++)
        size = MAX(size, engine->info.inputs[i].instance_bytes);
    if (engine->info.max_batch == 1 || size == 0)
        return STATUS_OK; /* nothing is ever padded */
    enum status status =
        memory_alloc(engine->device, MEMORY_PINNED, size, "padding", &engine->zeros, err);
    if (!status)
        memset(engine->zeros, 0, size);
    return status;
}

/* --- life --- */

static void engine_free(struct engine *engine)
{
    memory_note(engine->device, engine, "weights", 0);
    memory_free(engine->device, MEMORY_DEVICE, engine->uploaded);
    memory_free(engine->device, MEMORY_PINNED, engine->zeros);
    plan_free(engine->plan);
    free(engine);
}

enum status engine_load(struct device *device, const char *path, struct engine **out,
                        struct error *err)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    if (!engine)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "engine: out of memory");
    atomic_init(&engine->refs, 1);
    engine->device = device;
    enum status status = plan_read(path, &engine->plan, err);
    if (status) {
        free(engine);
        return status;
    }
    status = check_device(engine->plan, device, err);
    if (!status)
        status = describe(engine, err);
    if (!status)
        status = upload(engine, err);
    if (!status)
        status = make_zeros(engine, err);
    if (status) {
        error_prefix(err, "%s", path);
        engine_free(engine);
        return status;
    }
    *out = engine;
    return STATUS_OK;
}

struct engine *engine_ref(struct engine *engine)
{
    atomic_fetch_add_explicit(&engine->refs, 1, memory_order_relaxed);
    return engine;
}

void engine_unref(struct engine *engine)
{
    /* What others did with the engine must be over before it goes away. */
    if (engine && atomic_fetch_sub_explicit(&engine->refs, 1, memory_order_acq_rel) == 1)
        engine_free(engine);
}

const struct engine_info *engine_describe(const struct engine *engine)
{
    return &engine->info;
}

const struct engine_profile *engine_profile_for(const struct engine *engine, uint32_t batch)
{
    for (uint32_t i = 0; batch && i < engine->info.n_profiles; i++)
        if (engine->profiles[i].batch >= batch)
            return &engine->profiles[i];
    return NULL;
}
