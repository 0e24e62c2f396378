/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine: a plan that fits the device, the plan's weights, and its description. If the device
 * reads host memory, the weights stay in the memory that the plan was read into, else they are
 * uploaded once. A plan for a device with memory of its own may have CPU segments; the engine opens
 * the CPU for them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/import/onnx.h"
#include "engine/runtime/fault.h"
#include "engine/runtime/internal.h"
#include "engine/runtime/layer_values.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/upload.h"

/* The backend whose tactics the device runs: a fault device runs those of the one it wraps. */
static const char *device_backend(const struct device *device)
{
    const char *wrapped = fault_wrapped(device);
    return wrapped ? wrapped : device->backend->name;
}

bool engine_segment_on_host(const struct engine *engine, const struct ir_segment *segment)
{
    return strcmp(segment->backend, device_backend(engine->device)) != 0;
}

/* Whether two device lines begin with the same kind of device: "cpu; ...", "cuda; ...". */
static bool same_kind(const char *a, const char *b)
{
    size_t n = strcspn(a, ";");
    return n == strcspn(b, ";") && memcmp(a, b, n) == 0;
}

/* Compares the device line of the plan's header with this device's, and opens the CPU if needed. */
static enum status check_device(struct engine *engine, struct error *err)
{
    struct device *device = engine->device;
    const struct plan *plan = engine->plan;
    const char *own = device_backend(device);
    char own_line[FINGERPRINT_MAX] = "", host_line[FINGERPRINT_MAX] = "", here[PLAN_DEVICE_MAX];
    bool mixed = plan_needs_host(plan, own) && !device->backend->host_memory;
    if (mixed)
        TRY(backend_host_open(device, &engine->host, err));
    device->backend->device_fingerprint(device, own_line);
    if (mixed)
        engine->host->backend->device_fingerprint(engine->host, host_line);
    plan_device_line(here, own_line, mixed ? host_line : NULL);
    if (strcmp(here, plan->device) != 0)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the plan was built for '%s', this device is '%s': %sbuild it again",
                         plan->device, here,
                         same_kind(plan->device, here) ? "" : "name the one it is for, or ");
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        const struct ir_graph *graph = plan->profiles[p].graph;
        for (uint32_t i = 0; i < graph->n_segments; i++) {
            const char *backend = graph->segments[i].backend;
            if (strcmp(backend, own) != 0 && !(mixed && !strcmp(backend, backend_cpu.name)))
                return error_set(err, STATUS_FAILED_PRECONDITION,
                                 "the plan needs backend '%s' beside '%s'", backend, own);
        }
    }
    return STATUS_OK;
}

enum status engine_plan_threads(const char *path, uint32_t *threads, struct error *err)
{
    char device[PLAN_DEVICE_MAX];
    TRY(plan_read_device(path, device, err));
    char *host = strstr(device, " | "); /* the threads of the CPU beside a device do not count */
    if (host)
        *host = '\0';
    const char *at = strstr(device, "; threads ");
    unsigned long n = at ? strtoul(at + strlen("; threads "), NULL, 10) : 0;
    *threads = n <= UINT32_MAX ? (uint32_t)n : 0;
    return STATUS_OK;
}

enum status engine_plan_check_fd(int fd, const char *name, const char *spec, struct error *err)
{
    struct plan *plan;
    TRY(plan_read_fd(fd, name, NULL, &plan, err));
    size_t n = strcspn(spec, ":");
    bool fits = (strncmp(plan->device, spec, n) == 0 && plan->device[n] == ';') ||
                !strcmp(spec, "fault"); /* what it wraps is known once it is open */
    enum status status = fits ? STATUS_OK
                              : error_set(err, STATUS_FAILED_PRECONDITION,
                                          "the plan was built for '%s', not for %s: build it again",
                                          plan->device, spec);
    plan_free(plan);
    return status;
}

/* --- description --- */

static void *take(struct engine *engine, size_t count, size_t size)
{
    return arena_array(engine->plan->arena, count ? count : 1, size);
}

/* The bindings at the point of this profile. */
static bool describe_at(struct engine *engine, const struct plan_profile *profile, bool input,
                        const struct engine_binding **out)
{
    const struct plan *plan = engine->plan;
    const struct ir_graph *graph = profile->graph;
    uint32_t n = input ? plan->n_inputs : plan->n_outputs;
    struct engine_binding *list = take(engine, n, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        const struct plan_binding *from = input ? &plan->inputs[i] : &plan->outputs[i];
        const struct plan_axes *axes = input ? &plan->input_axes[i] : &plan->output_axes[i];
        struct shape shape = ir_tensor(graph, input ? graph->inputs[i] : graph->outputs[i])->shape;
        struct shape instance = shape;
        if (plan->batched && !axes->shared) {
            instance.dim[axes->batch] = 1;
            shape.dim[axes->batch] = -1;
        }
        list[i] = (struct engine_binding){from->name, from->dtype, shape, 0};
        if (!shape_bytes(&instance, from->dtype, &list[i].instance_bytes))
            return false;
    }
    *out = list;
    return list != NULL;
}

/* The bindings of all points together. */
static bool describe_bindings(struct engine *engine, bool input, const struct engine_binding **out)
{
    const struct plan *plan = engine->plan;
    const struct engine_info *info = &engine->info;
    uint32_t n = input ? plan->n_inputs : plan->n_outputs;
    struct engine_binding *list = take(engine, n, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        const struct plan_binding *from = input ? &plan->inputs[i] : &plan->outputs[i];
        list[i] = (struct engine_binding){from->name, from->dtype, from->shape, 0};
        for (uint32_t k = 0; k < info->n_points; k++) {
            const struct engine_point *p = &info->points[k];
            list[i].instance_bytes =
                MAX(list[i].instance_bytes, (input ? p->inputs : p->outputs)[i].instance_bytes);
        }
    }
    *out = list;
    return list != NULL;
}

static bool describe_axes(struct engine *engine, const struct plan_axes *from, uint32_t n,
                          const struct engine_axes **out)
{
    struct engine_axes *list = take(engine, n, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        list[i] = (struct engine_axes){
            .shared = from[i].shared, .batch = from[i].batch, .mask = from[i].mask};
        memcpy(list[i].free, from[i].free, sizeof(list[i].free));
    }
    *out = list;
    return list != NULL;
}

static bool describe_free(struct engine *engine)
{
    const struct plan *plan = engine->plan;
    struct engine_free *list = take(engine, plan->n_free, sizeof(*list));
    for (uint32_t i = 0; list && i < plan->n_free; i++)
        list[i] = (struct engine_free){plan->free[i].name, plan->free[i].low, plan->free[i].high,
                                       plan->free[i].pads};
    engine->info.free = list;
    engine->info.n_free = plan->n_free;
    return list != NULL;
}

_Static_assert((int)ENGINE_MAX_FREE == (int)PLAN_MAX_FREE, "values are copied");

static bool describe_points(struct engine *engine)
{
    const struct plan *plan = engine->plan;
    struct engine_point *list = take(engine, plan->n_profiles, sizeof(*list));
    uint32_t n = 0;
    for (uint32_t i = 0; list && i < plan->n_profiles; i++) {
        const struct plan_profile *p = &plan->profiles[i];
        if (!i || !plan_same_point(plan, p, p - 1)) {
            struct engine_point *point = &list[n++];
            *point = (struct engine_point){.first = i};
            memcpy(point->values, p->values, sizeof(point->values));
            if (!describe_at(engine, p, true, &point->inputs) ||
                !describe_at(engine, p, false, &point->outputs))
                return false;
        }
        list[n - 1].n++;
        engine->profiles[i].point = n - 1;
    }
    engine->info.points = list;
    engine->info.n_points = n;
    return list && describe_bindings(engine, true, &engine->info.inputs) &&
           describe_bindings(engine, false, &engine->info.outputs) &&
           describe_axes(engine, plan->input_axes, plan->n_inputs, &engine->info.input_axes) &&
           describe_axes(engine, plan->output_axes, plan->n_outputs, &engine->info.output_axes);
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
    /* Segments of all backends use the same offsets. */
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
    engine->compiled = take(engine, plan->n_profiles, sizeof(*engine->compiled));
    bool ok = engine->profiles && engine->layouts && engine->compiled && describe_free(engine) &&
              describe_points(engine);
    for (uint32_t i = 0; i < plan->n_profiles && ok; i++) {
        ok = describe_profile(engine, i);
        info->out_bytes_max = MAX(info->out_bytes_max, engine->profiles[i].out_bytes);
    }
    if (!ok)
        return error_no_memory(err, "an engine");
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

/* --- tails --- */

/* What a tail says of itself must be what the plan says of it. */
static enum status check_tail(const struct engine *engine, const struct onnx_model *tail,
                              uint32_t reads, struct error *err)
{
    const struct plan *plan = engine->plan;
    enum dtype dtype;
    bool ok = onnx_tail_inputs(tail) == reads && !onnx_tail_output_name(tail, plan->n_late, &dtype);
    for (uint32_t i = 0; i < plan->n_late && ok; i++)
        ok = onnx_tail_output_name(tail, i, &dtype) && dtype == plan->late[i].dtype;
    return ok ? STATUS_OK
              : error_set(err, STATUS_DATA_LOSS, "plan: a tail with other inputs or outputs");
}

/* A body that was built for another CPU is left out: its loop runs node by node. */
static enum status open_body(struct engine *engine, const struct plan_body *from,
                             struct engine_bodies *to, struct error *err)
{
    struct plan *plan;
    const char *tail = engine->plan->tail;
    TRY(plan_read_body(tail + from->offset, from->size, tail + from->weights_offset,
                       from->weights_size, &plan, err));
    if (plan->n_late || plan->batched || plan->n_free || plan->n_profiles != 1) {
        plan_free(plan);
        return error_set(err, STATUS_DATA_LOSS, "it has other sizes");
    }
    enum status status =
        engine_from_plan(engine->tail_device, plan, "a loop's body", &to->list[to->n], err);
    to->n += !status;
    return status == STATUS_FAILED_PRECONDITION ? STATUS_OK : status;
}

static enum status open_bodies(struct engine *engine, uint32_t profile, struct error *err)
{
    const struct plan_profile *p = &engine->plan->profiles[profile];
    struct engine_bodies *to = &engine->bodies[profile];
    to->list = take(engine, p->n_bodies, sizeof(struct engine *));
    if (!to->list)
        return error_no_memory(err, "an engine");
    for (uint32_t i = 0; i < p->n_bodies; i++) {
        enum status status = open_body(engine, &p->bodies[i], to, err);
        if (!status)
            continue;
        error_prefix(err, "plan: a loop's body");
        return status == STATUS_RESOURCE_EXHAUSTED ? status : error_recast(err, CAUSE_DATA_LOSS);
    }
    return STATUS_OK;
}

static enum status open_tails(struct engine *engine, struct error *err)
{
    const struct plan *plan = engine->plan;
    if (!plan->n_late)
        return STATUS_OK;
    engine->tail_device = engine->device;
    if (engine->device->backend != &backend_cpu)
        TRY(backend_host_open(engine->device, &engine->tail_device, err));
    engine->tails = take(engine, plan->n_profiles, sizeof(*engine->tails));
    engine->bodies = take(engine, plan->n_profiles, sizeof(*engine->bodies));
    if (!engine->tails || !engine->bodies)
        return error_no_memory(err, "an engine");
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        const struct plan_profile *p = &plan->profiles[i];
        enum status status = onnx_tail_open((const char *)plan->tail + p->tail_offset, p->tail_size,
                                            plan->tail, plan->tail_bytes, &engine->tails[i], err);
        if (status) {
            error_prefix(err, "plan: a tail");
            return status == STATUS_RESOURCE_EXHAUSTED ? status
                                                       : error_recast(err, CAUSE_DATA_LOSS);
        }
        TRY(check_tail(engine, engine->tails[i], p->graph->n_outputs, err));
        TRY(open_bodies(engine, i, err));
    }
    return STATUS_OK;
}

/* Shows the outputs of the tails in place of those that they read. */
static bool show_late(struct engine *engine)
{
    const struct plan *plan = engine->plan;
    struct engine_info *shown = &engine->shown;
    struct engine_binding *list = take(engine, plan->n_late, sizeof(*list));
    struct engine_point *points = take(engine, engine->info.n_points, sizeof(*points));
    if (!list || !points)
        return false;
    for (uint32_t i = 0; i < plan->n_late; i++)
        list[i] = (struct engine_binding){plan->late[i].name, plan->late[i].dtype,
                                          plan->late[i].shape, 0};
    for (uint32_t i = 0; i < shown->n_points; i++) {
        points[i] = engine->info.points[i];
        points[i].outputs = list;
    }
    shown->late = true;
    shown->weight_bytes += plan->tail_bytes;
    shown->n_outputs = plan->n_late;
    shown->outputs = list;
    shown->points = points;
    shown->output_axes = NULL;
    shown->out_bytes_max = 0;
    return true;
}

static enum status show(struct engine *engine, struct error *err)
{
    engine->shown = engine->info;
    if (engine->plan->n_late && !show_late(engine))
        return error_no_memory(err, "an engine");
    if (engine->plan->ragged.max_length && !engine_show_ragged(engine))
        return error_no_memory(err, "an engine");
    return STATUS_OK;
}

/* --- device memory --- */

static size_t largest_instance(const struct engine *engine)
{
    size_t size = 0;
    for (uint32_t i = 0; i < engine->info.n_inputs; i++)
        size = MAX(size, engine->info.inputs[i].instance_bytes);
    return size;
}

/* Whether engines of other sizes may be made of the model, or this is one of them. */
static bool has_like(const struct engine *engine, const struct engine *like)
{
    return like || engine->plan->n_free;
}

static enum status share(struct engine *engine, const struct engine *like, struct error *err)
{
    struct weights *theirs = like && like->device == engine->device ? like->parts : NULL;
    TRY(weights_new(engine->device, engine->plan, theirs, &engine->parts, err));
    engine->info.common_bytes = engine->shown.common_bytes = weights_common(engine->parts);
    return STATUS_OK;
}

/* The weights are used where they lie. */
static enum status fill_host(struct engine *engine, const struct engine *like, struct error *err)
{
    engine->weights = engine->plan->weights;
    if (has_like(engine, like))
        return share(engine, like, err);
    memory_note(engine->device, MEMORY_DEVICE, engine, "weights", engine->plan->weight_bytes);
    return STATUS_OK;
}

enum status engine_padding(struct engine *engine, struct error *err)
{
    const struct backend *backend = engine->device->backend;
    size_t size = largest_instance(engine);
    if (!backend->host_memory || (engine->info.max_batch == 1 && !backend->capture_begin) || !size)
        return STATUS_OK;
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&engine->lock);
    if (engine->zeros)
        return STATUS_OK;
    engine->zeros_kind = MEMORY_PINNED;
    TRY(memory_alloc(engine->device, MEMORY_PINNED, size, "padding", &engine->zeros, err));
    memset(engine->zeros, 0, size);
    return STATUS_OK;
}

/* Uploads weights and zeros together. The zeros pad batches and are the inputs of the runs before
 * the first batch. */
static enum status fill_device(struct engine *engine, const struct engine *like, struct error *err)
{
    const struct plan *plan = engine->plan;
    struct backend_copy copies[2];
    uint32_t n = 0;
    size_t size = largest_instance(engine);
    CLEANUP(cleanup_free) void *blank = NULL;
    engine->zeros_kind = MEMORY_DEVICE;
    if (has_like(engine, like)) {
        TRY(share(engine, like, err));
    } else if (plan->weight_bytes) {
        TRY(memory_alloc(engine->device, MEMORY_DEVICE, plan->weight_bytes, "weights",
                         &engine->uploaded, err));
        copies[n++] = (struct backend_copy){engine->uploaded, plan->weights, plan->weight_bytes};
        engine->weights = engine->uploaded;
    }
    if (size) {
        TRY(memory_alloc(engine->device, MEMORY_DEVICE, size, "padding", &engine->zeros, err));
        blank = calloc(1, size);
        if (!blank)
            return error_no_memory(err, "an engine");
        copies[n++] = (struct backend_copy){engine->zeros, blank, size};
    }
    return n ? upload(engine->device, copies, n, err) : STATUS_OK;
}

/* --- life --- */

static void engine_free(struct engine *engine)
{
    memory_note(engine->device, MEMORY_DEVICE, engine, "weights", 0);
    memory_free(engine->device, MEMORY_DEVICE, engine->uploaded);
    memory_free(engine->device, engine->zeros_kind, engine->zeros);
    engine_device_close(engine->host);
    for (uint32_t i = 0; engine->bodies && i < engine->plan->n_profiles; i++)
        for (uint32_t k = 0; k < engine->bodies[i].n; k++)
            engine_unref(engine->bodies[i].list[k]);
    if (engine->tail_device != engine->device)
        engine_device_close(engine->tail_device);
    if (engine->device->backend->compile_drop)
        engine->device->backend->compile_drop(engine->device);
    for (uint32_t i = 0; engine->tails && i < engine->plan->n_profiles; i++)
        if (engine->tails[i])
            onnx_close(engine->tails[i]);
    plan_free(engine->plan);
    weights_free(engine->parts);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

static enum status fill(struct engine *engine, const struct engine *like, struct error *err)
{
    TRY(check_device(engine, err));
    TRY(describe(engine, err));
    TRY(open_tails(engine, err));
    TRY(show(engine, err));
    return engine->device->backend->host_memory ? fill_host(engine, like, err)
                                                : fill_device(engine, like, err);
}

static enum status engine_new(struct device *device, struct plan *plan, const char *name,
                              const struct engine *like, struct engine **out, struct error *err)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    if (!engine) {
        plan_free(plan);
        return error_no_memory(err, "an engine");
    }
    atomic_init(&engine->refs, 1);
    engine->device = device;
    engine->plan = plan;
    pthread_mutex_init(&engine->lock, NULL);
    enum status status = fill(engine, like, err);
    if (status) {
        error_prefix(err, "%s", name);
        engine_free(engine);
        return status;
    }
    *out = engine;
    return STATUS_OK;
}

enum status engine_from_plan(struct device *device, struct plan *plan, const char *name,
                             struct engine **out, struct error *err)
{
    return engine_new(device, plan, name, NULL, out, err);
}

enum status engine_load(struct device *device, const char *path, struct engine **out,
                        struct error *err)
{
    struct plan *plan;
    TRY(plan_read(path, &plan, err));
    return engine_from_plan(device, plan, path, out, err);
}

enum status engine_load_fd(struct device *device, int fd, const char *name,
                           const struct file_guard *guard, const struct engine *like,
                           struct engine **out, struct error *err)
{
    struct plan *plan;
    TRY(plan_read_fd(fd, name, guard, &plan, err));
    return engine_new(device, plan, name, like, out, err);
}

void engine_settle(struct engine *engine)
{
    const struct plan *plan = engine->plan;
    if (atomic_exchange_explicit(&engine->settled, true, memory_order_relaxed))
        return;
    bool apart = engine->uploaded || (engine->parts && !engine->device->backend->host_memory);
    if (!apart || engine->host || !plan->map.size)
        return; /* the weights are used where they lie */
    /* Gives back whole pages. The addresses stay taken, so a stray read of them faults at once
     * instead of finding zeros. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)plan->weights + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)plan->weights + plan->weight_bytes) / page * page;
    if (begin < end && mprotect((void *)begin, end - begin, PROT_NONE) == 0)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

struct engine *engine_ref(struct engine *engine)
{
    atomic_fetch_add_explicit(&engine->refs, 1, memory_order_relaxed);
    return engine;
}

void engine_unref(struct engine *engine)
{
    /* acq_rel: other threads' uses of the engine come before its end. */
    if (engine && atomic_fetch_sub_explicit(&engine->refs, 1, memory_order_acq_rel) == 1)
        engine_free(engine);
}

const struct engine_info *engine_describe(const struct engine *engine)
{
    return &engine->shown;
}

uint32_t engine_profile_index(const struct engine *engine, uint32_t point, uint32_t batch)
{
    if (point >= engine->info.n_points || !batch)
        return engine->info.n_profiles;
    const struct engine_point *p = &engine->info.points[point];
    for (uint32_t i = p->first; i < p->first + p->n; i++)
        if (engine->profiles[i].batch >= batch)
            return i;
    return engine->info.n_profiles;
}

const struct engine_profile *engine_profile_for(const struct engine *engine, uint32_t point,
                                                uint32_t batch)
{
    uint32_t index = engine_profile_index(engine, point, batch);
    return index < engine->info.n_profiles ? &engine->shown.profiles[index] : NULL;
}

bool engine_input_apart(const struct engine *engine, uint32_t index)
{
    const struct engine_axes *axes = engine_input_axes(&engine->info, index);
    return !engine->host && !engine->info.n_free && !engine->shown.ragged &&
           !(axes && (axes->shared || axes->mask || axes->batch));
}
