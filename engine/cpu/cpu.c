/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU backend's table. A launch returns when its work is done, so a stream holds no work and an
 * event is only the time at which it was recorded. A tactic's id says which part of the backend
 * (reference, native or oneDNN) runs the node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/backend.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/gather.h"
#include "engine/cpu/native.h"
#include "engine/cpu/onednn.h"
#include "engine/cpu/plugin.h"
#include "engine/cpu/reference.h"
#include "engine/stored.h"
#include "engine/cpu/waits.h"

enum { THREADS_MAX = 1024 };

struct cpu_device {
    struct device base;
    struct onednn *onednn; /* NULL: reference kernels only */
    uint32_t cores;
};

struct backend_stream {
    struct cpu_device *device;
    struct waits *waits; /* NULL until longest_wait is first called */
    struct gather gather;
};

struct backend_event {
    uint64_t recorded_ns;
};

struct backend_arena {
    void *all; /* what is reserved; `base` lies within it, at a huge page */
    char *base;
    size_t all_bytes, reserved, usable; /* whole pages; the latter two from `base` on */
};

/* Exactly one of the three is set. */
struct backend_op {
    struct reference_op *reference;
    struct plugin_op *plugin;
    struct native_op *native;
    struct onednn_op *onednn;
};

static struct cpu_device *cpu_device_of(struct device *device)
{
    return CONTAINER_OF(device, struct cpu_device, base);
}

/* --- device --- */

static enum status device_count(uint32_t *out, struct error *err UNUSED)
{
    *out = 1;
    return STATUS_OK;
}

static enum status device_open(const struct device_options *options, struct device **out,
                               struct error *err)
{
    if (options->index != 0)
        return error_set(err, STATUS_NOT_FOUND, "there is one cpu device, no cpu:%u",
                         options->index);
    if (options->threads > THREADS_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u threads: at most %d", options->threads,
                         THREADS_MAX);
    uint32_t threads = options->threads ? options->threads : MIN(cores_count(), THREADS_MAX);
    struct onednn *onednn = NULL;
    if (!options->reference_only)
        TRY(onednn_new(threads, &onednn, err));
    struct cpu_device *device = calloc(1, sizeof(*device));
    if (!device) {
        onednn_free(onednn);
        return error_no_memory(err, "a device (%zu bytes)", sizeof(*device));
    }
    device->base.backend = &backend_cpu;
    device->base.threads = threads;
    device->cores = cores_count();
    device->onednn = onednn;
    *out = &device->base;
    return STATUS_OK;
}

static void device_close(struct device *device)
{
    if (!device)
        return;
    onednn_free(cpu_device_of(device)->onednn);
    free(cpu_device_of(device));
}

static void device_fingerprint(struct device *device, char out[FINGERPRINT_MAX])
{
    char library[96];
    if (!cpu_device_of(device)->onednn) {
        snprintf(out, FINGERPRINT_MAX, "cpu; reference kernels; threads %u", device->threads);
        return;
    }
    onednn_fingerprint(cpu_device_of(device)->onednn, library, sizeof(library));
    snprintf(out, FINGERPRINT_MAX, "cpu; %s; native %s; threads %u", library, native_isa(),
             device->threads);
}

/* --- memory --- */

enum { HUGE_PAGE = 2 << 20 };

/* A wish, which the kernel may ignore: activations of some MiB have more pages than a TLB has
 * entries. */
static void wish_huge(void *memory, size_t size)
{
    if (size >= HUGE_PAGE)
        madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
}

static enum status memory_alloc(struct device *device UNUSED, enum memory_kind kind UNUSED,
                                size_t size, const char *tag, void **out, struct error *err)
{
    size_t rounded;
    void *memory;
    if (!checked_round_up(MAX(size, 1), BACKEND_ALIGN, &rounded) ||
        posix_memalign(&memory, rounded >= HUGE_PAGE ? HUGE_PAGE : BACKEND_ALIGN, rounded) != 0)
        return error_no_memory(err, "%s (%zu bytes)", tag, size);
    wish_huge(memory, rounded);
    *out = memory;
    return STATUS_OK;
}

static void memory_free(struct device *device UNUSED, enum memory_kind kind UNUSED, void *memory)
{
    free(memory);
}

static enum status arena_make(struct device *device UNUSED, size_t reserve,
                              struct backend_arena **out, struct error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded, bytes;
    if (!checked_round_up(MAX(reserve, 1), page, &rounded) ||
        !checked_add(rounded, HUGE_PAGE, &bytes))
        return error_no_memory(err, "an arena (%zu bytes)", reserve);
    void *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return error_no_memory(err, "an arena (%zu bytes)", reserve);
    struct backend_arena *arena = calloc(1, sizeof(*arena));
    if (!arena) {
        munmap(all, bytes);
        return error_no_memory(err, "an arena (%zu bytes)", reserve);
    }
    arena->all = all;
    arena->all_bytes = bytes;
    arena->base = (char *)all + (-(uintptr_t)all & (HUGE_PAGE - 1));
    arena->reserved = rounded;
    *out = arena;
    return STATUS_OK;
}

static enum status arena_grow(struct backend_arena *arena, size_t size, struct error *err)
{
    size_t rounded;
    if (size <= arena->usable)
        return STATUS_OK;
    if (!checked_round_up(size, (size_t)sysconf(_SC_PAGESIZE), &rounded) ||
        rounded > arena->reserved)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "an arena of %zu bytes is needed, %zu are reserved", size,
                         arena->reserved);
    if (mprotect(arena->base, rounded, PROT_READ | PROT_WRITE) != 0)
        return error_no_memory(err, "a larger arena (%zu bytes)", size);
    wish_huge(arena->base, rounded);
    arena->usable = rounded;
    return STATUS_OK;
}

static void *arena_base(struct backend_arena *arena)
{
    return arena->base;
}

static void arena_drop(struct backend_arena *arena)
{
    if (!arena)
        return;
    munmap(arena->all, arena->all_bytes);
    free(arena);
}

/* --- streams and events --- */

static enum status stream_new(struct device *device, struct backend_stream **out, struct error *err)
{
    struct backend_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return error_no_memory(err, "a stream (%zu bytes)", sizeof(*stream));
    stream->device = cpu_device_of(device);
    *out = stream;
    return STATUS_OK;
}

static void stream_free(struct backend_stream *stream)
{
    if (!stream)
        return;
    waits_free(stream->waits);
    gather_release(&stream->gather);
    free(stream);
}

static enum status event_new(struct device *device UNUSED, bool timing UNUSED,
                             struct backend_event **out, struct error *err)
{
    struct backend_event *event = calloc(1, sizeof(*event));
    if (!event)
        return error_no_memory(err, "an event (%zu bytes)", sizeof(*event));
    *out = event;
    return STATUS_OK;
}

static void event_free(struct backend_event *event)
{
    free(event);
}

static enum status event_record(struct backend_event *event, struct backend_stream *stream UNUSED,
                                struct error *err UNUSED)
{
    event->recorded_ns = clock_now_ns();
    return STATUS_OK;
}

static enum status event_wait(struct backend_event *event UNUSED, struct error *err UNUSED)
{
    return STATUS_OK;
}

static enum status event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                                 struct error *err UNUSED)
{
    *ns = to->recorded_ns - from->recorded_ns;
    return STATUS_OK;
}

static uint64_t longest_wait(struct backend_stream *stream)
{
    if (!stream->waits && !(stream->waits = waits_new()))
        return 0;
    return waits_longest(stream->waits);
}

static enum status copy(struct backend_stream *stream UNUSED, enum copy_direction direction UNUSED,
                        const struct backend_copy *copies, uint32_t n, struct error *err UNUSED)
{
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].size && copies[i].to != copies[i].from)
            memcpy(copies[i].to, copies[i].from, copies[i].size);
    return STATUS_OK;
}

/* --- build time --- */

struct question {
    struct device *device;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

/* Visits the candidates that run the node with its tensors stored as the graph says. */
static enum status ask(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct question *q = user;
    struct onednn *onednn = cpu_device_of(q->device)->onednn;
    if (stored_f8(graph, q->node)) /* our kernels know integers alone */
        return STATUS_OK;
    if (onednn) {
        TRY(plugin_candidates(graph, q->node, q->visit, q->user, err));
        TRY(onednn_candidates(onednn, graph, q->node, q->precision, q->visit, q->user, err));
        TRY(native_candidates(q->device->threads, graph, q->node, q->visit, q->user, err));
    }
    struct tactic tactic;
    if (stored_any(graph, q->node) && !stored_moves(graph, q->node))
        return STATUS_OK;
    TRY(reference_candidate(graph, q->node, &tactic, err));
    tactic.backend = backend_cpu.name;
    return q->visit(q->user, &tactic, err);
}

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct question q = {device, node, precision, visit, user};
    TRY(stored_each(graph, node, ask, &q, err));
    return ask(&q, graph, err);
}

static bool is_onednn(const struct tactic *tactic)
{
    return tactic->id >= ONEDNN_TACTIC_FIRST && tactic->id <= ONEDNN_TACTIC_LAST;
}

static uint64_t cost(struct device *device, const struct ir_graph *graph,
                     const struct ir_node *node, const struct tactic *tactic, uint32_t rank)
{
    char impl[ONEDNN_IMPL_MAX];
    struct cost_kernel kernel = {"reference", 1};
    if (is_onednn(tactic) && cpu_device_of(device)->onednn) {
        kernel.threads = onednn_tactic_impl(cpu_device_of(device)->onednn, tactic, impl);
        kernel.impl = impl;
    } else if (tactic->id == NATIVE_TACTIC) {
        kernel = (struct cost_kernel){"native", native_tactic_threads(tactic)};
    }
    uint64_t ns = cost_estimate(graph, node, tactic, &kernel, native_lanes());
    return ns + ns / 256 * rank; /* of equals the better guess */
}

static enum status reference_only(const struct ir_node *node, struct error *err)
{
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "layer '%s' was planned for faster kernels than this device's reference ones",
                     node->name);
}

static enum status pack(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct onednn *onednn = cpu_device_of(device)->onednn;
    if (tactic->id == NATIVE_TACTIC)
        return native_pack(graph, node, tactic, input, to, err);
    if (!is_onednn(tactic))
        return error_set(err, STATUS_INVALID_ARGUMENT, "layer '%s': nothing to pack", node->name);
    if (!onednn)
        return reference_only(node, err);
    return onednn_pack(onednn, graph, node, tactic, input, to, err);
}

/* --- runtime --- */

static void op_free(struct backend_op *op)
{
    if (!op)
        return;
    reference_op_free(op->reference);
    plugin_op_free(op->plugin);
    native_op_free(op->native);
    onednn_op_free(op->onednn);
    free(op);
}

static void op_cleanup(struct backend_op **at)
{
    op_free(*at);
}

static enum status fill_op(struct backend_op *op, struct cpu_device *device,
                           const struct ir_graph *graph, const struct ir_node *node,
                           const struct tactic *tactic, struct error *err)
{
    bool onednn = is_onednn(tactic), native = tactic->id == NATIVE_TACTIC;
    bool plugin = tactic->id == PLUGIN_TACTIC;
    if ((onednn || native || plugin) && !device->onednn)
        return reference_only(node, err);
    if (native && !ir_node_is_uniform(graph, node) && !stored_any(graph, node))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "layer '%s': no kernel takes tensors of several types", node->name);
    if (onednn)
        return onednn_op_prepare(device->onednn, graph, node, tactic, &op->onednn, err);
    if (plugin)
        return plugin_op_prepare(device->base.threads, graph, node, tactic, &op->plugin, err);
    if (native)
        return native_op_prepare(device->base.threads, graph, node, tactic, &op->native, err);
    return reference_op_prepare(graph, node, tactic, &op->reference, err);
}

static enum status op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err)
{
    CLEANUP(op_cleanup) struct backend_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op (%zu bytes)", sizeof(*op));
    TRY(fill_op(op, stream->device, graph, node, tactic, err));
    *out = STEAL(op);
    return STATUS_OK;
}

static uint64_t op_workspace(const struct backend_op *op)
{
    if (op->onednn)
        return onednn_op_workspace(op->onednn);
    if (op->native)
        return native_op_workspace(op->native);
    if (op->plugin)
        return plugin_op_workspace(op->plugin);
    return op->reference ? reference_op_workspace(op->reference) : 0;
}

static uint32_t op_threads(const struct backend_op *op)
{
    if (op->onednn)
        return onednn_op_threads(op->onednn);
    if (op->native)
        return native_op_threads(op->native);
    return op->plugin ? plugin_op_threads(op->plugin) : 1;
}

static bool op_gather(struct backend_op *op, struct backend_stream *stream)
{
    uint32_t threads = op_threads(op);
    return threads < 2 || threads > MIN(stream->device->cores, GATHER_THREADS_MAX) ||
           gather_team(&stream->gather, threads);
}

static enum status op_launch(struct backend_op *op, struct backend_stream *stream UNUSED,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err)
{
    if (op->onednn)
        return onednn_op_launch(op->onednn, inputs, outputs, workspace, err);
    if (op->plugin)
        return plugin_op_launch(op->plugin, inputs, outputs, workspace, err);
    if (op->reference)
        return reference_op_launch(op->reference, inputs, outputs, workspace, err);
    return native_op_launch(op->native, inputs, outputs, workspace, err);
}

const struct backend backend_cpu = {
    .abi = BACKEND_ABI,
    .features = BACKEND_ATTENTION | BACKEND_SCALES | BACKEND_WIDENS | BACKEND_TABLES |
                BACKEND_LAYS | BACKEND_BOXES,
    .name = "cpu",
    .host_memory = true,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_fingerprint = device_fingerprint,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .arena_new = arena_make,
    .arena_grow = arena_grow,
    .arena_base = arena_base,
    .arena_free = arena_drop,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .longest_wait = longest_wait,
    .op_gather = op_gather,
    .copy = copy,
    .candidates = candidates,
    .cost = cost,
    .pack = pack,
    .op_prepare = op_prepare,
    .op_workspace = op_workspace,
    .op_free = op_free,
    .op_launch = op_launch,
};
