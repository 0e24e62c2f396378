/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of our own kernels from node to bytes, on the emulated device: every candidate they
 * offer for random nodes is prepared, launched and compared with the reference. The same trial runs
 * on hardware (tests/device); here sanitizers watch.
 *
 *   test_own DEVICE_PROPERTIES [KIND [COUNT [SEED]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/cuda.h"
#include "engine/cuda/dry.h"
#include "engine/cuda/family.h"
#include "tests/device/layout.h"
#include "tests/device/trial.h"

enum { COUNT = 5, TACTICS_MAX = 64 };

/* --- a backend that is host memory, and kernels that are done when they are launched --- */

struct backend_event {
    int unused;
};

static enum status memory_alloc(struct device *device UNUSED, enum memory_kind kind UNUSED,
                                size_t size, const char *tag UNUSED, void **out, struct error *err)
{
    void *memory = NULL;
    if (posix_memalign(&memory, BACKEND_ALIGN, size ? size : 1) != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    *out = memory;
    return STATUS_OK;
}

static void memory_free(struct device *device UNUSED, enum memory_kind kind UNUSED, void *memory)
{
    free(memory);
}

static enum status stream_new(struct device *device, struct backend_stream **out, struct error *err)
{
    return cuda_stream_new_dry(device, out, err);
}

static enum status event_new(struct device *device UNUSED, bool timing UNUSED,
                             struct backend_event **out, struct error *err)
{
    *out = calloc(1, sizeof(**out));
    return *out ? STATUS_OK : error_set(err, STATUS_RESOURCE_EXHAUSTED, "out of memory");
}

static void event_free(struct backend_event *event)
{
    free(event);
}

static enum status event_record(struct backend_event *event UNUSED,
                                struct backend_stream *stream UNUSED, struct error *err UNUSED)
{
    return STATUS_OK;
}

static enum status event_wait(struct backend_event *event UNUSED, struct error *err UNUSED)
{
    return STATUS_OK;
}

static enum status copy(struct backend_stream *stream UNUSED, enum copy_direction direction UNUSED,
                        const struct backend_copy *copies, uint32_t n, struct error *err UNUSED)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(copies[i].to, copies[i].from, copies[i].size);
    return STATUS_OK;
}

static const struct cuda_family *family_of(const struct ir_node *node, const struct tactic *tactic)
{
    return cuda_family_of(tactic->id, node->op);
}

static enum status pack(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    return family_of(node, tactic)
        ->pack((struct cuda_device *)(void *)device, graph, node, tactic, input, to, err);
}

static enum status op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err)
{
    return family_of(node, tactic)->prepare(stream, graph, node, tactic, out, err);
}

static uint64_t op_workspace(const struct backend_op *op)
{
    return op->workspace;
}

static void op_free(struct backend_op *op)
{
    if (op)
        op->free(op);
}

static enum status op_launch(struct backend_op *op, struct backend_stream *stream,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err)
{
    return op->launch(op, stream, inputs, outputs, workspace, err);
}

static const struct backend emulated = {
    .abi = BACKEND_ABI,
    .name = "cuda",
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .stream_new = stream_new,
    .stream_free = cuda_stream_free_dry,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .copy = copy,
    .pack = pack,
    .op_prepare = op_prepare,
    .op_workspace = op_workspace,
    .op_free = op_free,
    .op_launch = op_launch,
};

/* --- trials --- */

struct list {
    struct tactic *items[TACTICS_MAX];
    uint32_t n;
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err)
{
    struct list *list = user;
    if (list->n == TACTICS_MAX)
        return STATUS_OK;
    if (!(list->items[list->n] = malloc(sizeof(*tactic))))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    *list->items[list->n++] = *tactic;
    return STATUS_OK;
}

static enum status list_candidates(struct device *device, const struct ir_graph *graph,
                                   enum precision precision, struct list *out, struct error *err)
{
    const struct ir_node *node = ir_node(graph, 0);
    enum status status = STATUS_OK;
    for (uint32_t id = CUDA_FAMILY_OWN_MAP; id <= CUDA_FAMILY_OWN_ATTENTION && !status; id++) {
        const struct cuda_family *family = cuda_family_of(id << 16, node->op);
        if (family)
            status = family->candidates((struct cuda_device *)(void *)device, graph, node,
                                        precision, keep, out, err);
    }
    return status;
}

static double bound_of(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 2e-3 : dtype == DTYPE_BF16 ? 2e-2 : 1e-5;
}

/* Number of tactics that were wrong. */
static uint32_t try_tactic(struct trial *trial, const struct case_kind *kind, uint64_t seed,
                           const struct tactic *tactic)
{
    struct subject subject;
    struct outcome out = {0};
    struct error err = {0};
    struct ir_graph *graph = case_new(kind, seed);
    enum status status =
        subject_init(&subject, case_new(kind, seed), tactic->dtype, seed, true, &err);
    if (!status)
        status = trial_run(trial, &subject, graph, tactic, 0, &out, &err);
    bool wrong = status || !(out.error <= bound_of(tactic->dtype));
    if (wrong)
        printf("  %s seed %llu '%s': %s, error %.3g\n", kind->name, (unsigned long long)seed,
               tactic->name, status ? err.text : "", out.error);
    ir_graph_free(graph);
    subject_deinit(&subject);
    return wrong;
}

static uint32_t try_kind(struct trial *trial, const struct case_kind *kind, uint32_t count,
                         uint64_t first)
{
    uint32_t failed = 0, tactics = 0, without = 0;
    for (uint64_t seed = first; seed < first + count; seed++)
        for (int p = PRECISION_F32; p <= PRECISION_BF16; p++) {
            struct list list = {0};
            struct error err = {0};
            struct ir_graph *asked = p == PRECISION_TF32 ? NULL : case_new(kind, seed);
            if (!asked)
                continue;
            if (list_candidates(trial->device, asked, (enum precision)p, &list, &err)) {
                printf("  %s: %s\n", kind->name, err.text);
                failed++;
            }
            without += list.n == 0;
            tactics += list.n;
            for (uint32_t i = 0; i < list.n; i++) {
                failed += try_tactic(trial, kind, seed, list.items[i]);
                free(list.items[i]);
            }
            ir_graph_free(asked);
        }
    printf("%-16s %4u tactics, %3u without, %u failed\n", kind->name, tactics, without, failed);
    fflush(stdout);
    return failed;
}

/* --- reformats: no case of a network, so none of tests/device has them --- */

static const enum ir_layout layouts[] = {IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST,
                                         IR_LAYOUT_CHANNELS_LAST_4, IR_LAYOUT_CHANNELS_LAST_8};

/* x of random numbers, in its layout, through the node to y. */
static enum status run_reformat(struct trial *trial, const struct ir_graph *graph,
                                const struct tactic *tactic, struct error *err)
{
    const struct ir_node *node = ir_node(graph, 0);
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct backend_op *op = NULL;
    size_t n = 0;
    bool fits = shape_elements(&x->shape, &n);
    float *plain = calloc(n, sizeof(float)), *got = calloc(n, sizeof(float));
    void *in = malloc(x->bytes), *out = malloc(y->bytes);
    for (size_t i = 0; i < n; i++) /* exact in every type */
        plain[i] = (float)((int)(i * 37 % 255) - 127);
    layout_pack(x, plain, DTYPE_F32, in);
    memset(out, 0xff, y->bytes);
    enum status status =
        fits ? op_prepare(trial->stream, graph, node, tactic, &op, err) : STATUS_INTERNAL;
    if (!status)
        status = op_launch(op, trial->stream, &in, &out, NULL, err);
    op_free(op);
    layout_unpack(y, out, DTYPE_F32, got);
    if (!status && !layout_padding_zero(y, out))
        status = error_set(err, STATUS_INTERNAL, "padding is not zero");
    if (!status && memcmp(plain, got, n * sizeof(float)) != 0)
        status = error_set(err, STATUS_INTERNAL, "other numbers came out");
    free(plain);
    free(got);
    free(in);
    free(out);
    return status;
}

static uint32_t try_reformat(struct trial *trial, const struct shape *shape, enum ir_layout from,
                             enum ir_layout to, enum dtype x_type, enum dtype y_type)
{
    struct ir_graph *graph = ir_graph_new();
    struct list list = {0};
    struct error err = {0};
    uint32_t x = ir_tensor_add(graph, "x", x_type, shape);
    uint32_t node = ir_node_add(graph, IR_OP_REFORMAT, "reformat", 1, &x);
    bool made = ir_attr_set_int(graph, node, IR_ATTR_TO, y_type);
    uint32_t y = ir_node_output_add(graph, node, "y", y_type, shape);
    made = made && ir_tensor_set_layout(graph, x, from) && ir_tensor_set_layout(graph, y, to);
    enum status status =
        made ? list_candidates(trial->device, graph, PRECISION_F16, &list, &err) : STATUS_INTERNAL;
    if (!status && list.n != 1)
        status = error_set(&err, STATUS_INTERNAL, "%u candidates", list.n);
    if (!status)
        status = run_reformat(trial, graph, list.items[0], &err);
    if (status)
        printf("  %s %s to %s %s: %s\n", dtype_name(x_type), ir_layout_name(from),
               dtype_name(y_type), ir_layout_name(to), err.text);
    while (list.n > 0)
        free(list.items[--list.n]);
    ir_graph_free(graph);
    return status != STATUS_OK;
}

static uint32_t try_reformats(struct trial *trial)
{
    static const int64_t channels[] = {3, 8, 20, 64};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    uint32_t failed = 0, n = 0;
    for (size_t c = 0; c < ARRAY_LEN(channels); c++)
        for (size_t i = 0; i < ARRAY_LEN(layouts) * ARRAY_LEN(layouts); i++)
            for (size_t k = 0; k < ARRAY_LEN(types) * ARRAY_LEN(types); k++, n++) {
                int64_t width = k % 2 ? 9 : 12;
                struct shape shape = {.rank = 4, .dim = {2, channels[c], 8, width}};
                failed += try_reformat(trial, &shape, layouts[i / 4], layouts[i % 4], types[k / 3],
                                       types[k % 3]);
            }
    printf("%-16s %4u, %u failed\n", "reformat", n, failed);
    return failed;
}

int main(int argc, char **argv)
{
    struct device *device = NULL;
    struct trial trial = {0};
    struct error err = {0};
    const char *only = argc > 2 ? argv[2] : NULL;
    uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : COUNT, failed = 0;
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    if (argc < 2 || cuda_device_open_dry(argv[1], NULL, &device, &err)) {
        printf("%s\n", argc < 2 ? "device properties?" : err.text);
        return 1;
    }
    const struct backend *real = device->backend;
    device->backend = &emulated;
    if (trial_init(&trial, device, &err)) {
        printf("%s\n", err.text);
        failed++;
    } else {
        for (const struct case_kind *kind = case_kinds; kind->name; kind++)
            if (!only || strcmp(only, kind->name) == 0)
                failed += try_kind(&trial, kind, count, seed);
        if (!only || strcmp(only, "reformat") == 0)
            failed += try_reformats(&trial);
    }
    trial_deinit(&trial);
    device->backend = real;
    real->device_close(device);
    return failed != 0;
}
