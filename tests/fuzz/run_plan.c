/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See run_plan.h. Inputs and outputs are buffers of exactly the sizes that the engine states, so
 * that AddressSanitizer sees every access beyond them. A call that fails must give an error that
 * says why.
 */
#include "tests/fuzz/run_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "engine/backend.h"
#include "engine/engine.h"

/* --- what is small enough --- */

static uint64_t elements(const struct ir_graph *graph, uint32_t tensor)
{
    size_t n = 0;
    if (tensor == IR_NONE || !shape_elements(&ir_tensor(graph, tensor)->shape, &n))
        return 0;
    return n;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX / 4 : MIN(product, UINT64_MAX / 4);
}

/* The work for one element of the output: elements of operands, or places of a window. */
static uint64_t steps_each(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *a = &ir_tensor(graph, node->inputs[0])->shape;
    const struct ir_attr *kernel = ir_attr(node, IR_ATTR_KERNEL);
    uint64_t window = 1, largest = 0;
    switch (node->op) {
    case IR_OP_UNARY:
    case IR_OP_BINARY:
    case IR_OP_SELECT:
    case IR_OP_CAST:
    case IR_OP_RESHAPE:
    case IR_OP_TRANSPOSE:
    case IR_OP_CONCAT:
    case IR_OP_SLICE:
    case IR_OP_PAD:
    case IR_OP_EMBED:
    case IR_OP_GATHER:
    case IR_OP_EXPAND:
    case IR_OP_TILE:
    case IR_OP_REFORMAT:
    case IR_OP_BATCH_NORM:
    case IR_OP_SOFTMAX:
    case IR_OP_LAYER_NORM:
    case IR_OP_INSTANCE_NORM:
        return 4;
    case IR_OP_MATMUL:
        return (uint64_t)a->dim[a->rank - (ir_attr_int(node, IR_ATTR_TRANS_A) ? 2 : 1)];
    case IR_OP_POOL:
        for (uint32_t i = 0; kernel && i < kernel->count; i++)
            window = times(window, (uint64_t)kernel->i[i]);
        return window;
    default:
        for (uint32_t i = 0; i < node->n_inputs; i++)
            largest = MAX(largest, elements(graph, node->inputs[i]));
        return largest;
    }
}

static uint64_t steps_of(const struct ir_graph *graph)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        uint64_t out = 0, in = 0;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            out += elements(graph, node->outputs[k]);
        for (uint32_t k = 0; k < node->n_inputs; k++)
            in += elements(graph, node->inputs[k]);
        sum += in + times(MAX(out, 1), steps_each(graph, node));
        if (sum > RUN_STEPS_MAX)
            break;
    }
    return sum;
}

static bool is_small(const struct ir_graph *graph)
{
    uint64_t bytes = graph->n_segments ? graph->segments[0].arena_bytes : 0;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        bytes += ir_tensor(graph, graph->inputs[i])->bytes;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        bytes += ir_tensor(graph, graph->outputs[i])->bytes;
    return bytes <= RUN_BYTES_MAX && steps_of(graph) <= RUN_STEPS_MAX;
}

/* --- a run --- */

static void expect_reason(enum status status, const struct error *err)
{
    if (status && (err->status != status || !err->text[0]))
        abort();
}

/* Whole numbers are small, so that many of them are valid as indices. */
static void fill(enum dtype dtype, void *to, size_t bytes)
{
    size_t size = dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        float f = (float)(i % 7) - 2.5F;
        int64_t n = dtype == DTYPE_BOOL ? (int64_t)(i & 1) : (int64_t)(i * 5 % 4) - 1;
        if (dtype == DTYPE_F32)
            memcpy((char *)to + i * size, &f, size);
        else
            memcpy((char *)to + i * size, &n, size);
    }
}

struct run {
    struct engine_span spans[IR_MAX_IO];
    struct engine_input inputs[IR_MAX_IO];
    void *data[IR_MAX_IO];
    void *output;
};

static bool run_fill(struct run *run, struct device *device, const struct engine_info *info,
                     const struct engine_profile *profile, uint32_t batch)
{
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        size_t bytes = info->inputs[i].instance_bytes *
                       engine_count_of(info, engine_input_axes(info, i), batch);
        run->data[i] = malloc(bytes ? bytes : 1);
        if (!run->data[i])
            return false;
        fill(info->inputs[i].dtype, run->data[i], bytes);
        run->spans[i] = (struct engine_span){run->data[i], bytes};
        run->inputs[i] = (struct engine_input){&run->spans[i], 1};
    }
    return engine_buffer_alloc(device, profile->out_bytes, "outputs", &run->output, NULL) ==
           STATUS_OK;
}

static uint64_t sum; /* so that the reads are not left out */

static void run_batch(struct context *ctx, struct device *device, const struct engine_info *info,
                      const struct engine_profile *profile, uint32_t batch)
{
    struct run run = {.output = NULL};
    struct error err = {0};
    if (run_fill(&run, device, info, profile, batch)) {
        enum status status = context_enqueue(ctx, batch, run.inputs, run.output, &err);
        if (!status)
            status = context_wait(ctx, NULL, &err);
        expect_reason(status, &err);
        for (size_t i = 0; !status && i < profile->out_bytes; i++)
            sum += ((const uint8_t *)run.output)[i];
    }
    engine_buffer_free(device, run.output);
    for (uint32_t i = 0; i < info->n_inputs; i++)
        free(run.data[i]);
}

static void run_profiles(struct engine *engine, struct device *device, struct lane *lane,
                         const struct plan *plan)
{
    const struct engine_info *info = engine_describe(engine);
    for (uint32_t p = 0; p < info->n_profiles; p++) {
        const struct engine_profile *profile = &info->profiles[p];
        const struct context_options options = {.batch = profile->batch};
        struct context *ctx = NULL;
        struct error err = {0};
        if (!is_small(plan->profiles[p].graph))
            continue;
        enum status status = context_new_with(engine, lane, &options, &ctx, &err);
        expect_reason(status, &err);
        if (status)
            continue;
        run_batch(ctx, device, info, profile, profile->batch);
        if (profile->batch > 1 && (p == 0 || profile[-1].batch < profile->batch - 1))
            run_batch(ctx, device, info, profile, profile->batch - 1); /* the rest is padding */
        context_free(ctx);
    }
}

/* --- devices --- */

static struct device *device_of(bool reference_only)
{
    static struct device *devices[2];
    const struct device_options options = {.threads = 1, .reference_only = reference_only};
    if (!devices[reference_only])
        (void)engine_device_open("cpu", &options, &devices[reference_only], NULL);
    return devices[reference_only];
}

/* The file with a header for the device. -1: no descriptor. */
static int file_for(struct device *device, const void *file, size_t size)
{
    char line[FINGERPRINT_MAX];
    struct plan_header h;
    memcpy(&h, file, sizeof(h));
    memset(h.device, 0, sizeof(h.device));
    device->backend->device_fingerprint(device, line);
    plan_device_line(h.device, line, NULL);
    plan_digest(&h, XXH3_128bits((const char *)file + sizeof(h), size - sizeof(h)), h.digest);
    int fd = memfd_create("plan", MFD_CLOEXEC);
    if (fd >= 0 && (pwrite(fd, file, size, 0) != (ssize_t)size ||
                    pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void run_on(struct device *device, const void *file, size_t size, const struct plan *plan)
{
    struct engine *engine = NULL;
    struct lane *lane = NULL;
    struct error err = {0};
    int fd = file_for(device, file, size);
    if (fd < 0)
        return;
    enum status status = engine_load_fd(device, fd, "plan", NULL, NULL, &engine, &err);
    expect_reason(status, &err);
    if (!status) {
        status = lane_new(device, &lane, &err);
        expect_reason(status, &err);
    }
    if (!status)
        run_profiles(engine, device, lane, plan);
    lane_free(lane);
    engine_unref(engine);
    close(fd);
}

void run_plan(const void *file, size_t size, const struct plan *plan)
{
    size_t largest = 0; /* an engine keeps an instance of zeros */
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        struct shape one = plan->inputs[i].shape;
        size_t bytes;
        if (plan->batched && !plan->input_axes[i].shared)
            one.dim[plan->input_axes[i].batch] = 1;
        if (!shape_bytes(&one, plan->inputs[i].dtype, &bytes))
            return;
        largest = MAX(largest, bytes);
    }
    if (largest > RUN_BYTES_MAX)
        return;
    for (int reference_only = 0; reference_only < 2; reference_only++) {
        struct device *device = device_of(reference_only);
        if (device)
            run_on(device, file, size, plan);
    }
}
