/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/emulated.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/device/ranged.h"
#include "engine/stored.h"
#include "tests/test.h"
#include "tests/unit/kernels_cuda/fake_lt.h"

enum cudaStreamCaptureStatus emulated_capture = cudaStreamCaptureStatusActive;
bool emulated_idle;

static const struct cuda_family *const families[] = {
    &cuda_family_own_map,       &cuda_family_own_move,  &cuda_family_own_pool,
    &cuda_family_own_conv,      &cuda_family_own_rows,  &cuda_family_own_attention,
    &cuda_family_own_recurrent, &cuda_family_own_image, &cuda_family_own_norm,
    &cuda_family_own_index,     &cuda_family_own_quant, &cuda_family_own_bytes,
    &cuda_family_lt_bytes,      &cuda_family_lt_f8,     &cuda_family_plugin,
    &cuda_family_own_product,   &cuda_family_lt_head,   &cuda_family_own_matmul,
    &cuda_family_own_scaled,    &cuda_family_own_mlp,   &cuda_family_own_stem,
    &cuda_family_own_pair,      &cuda_family_own_embed, &cuda_family_own_chain,
};

/* --- functions of the module and of CUDA that the families and plugins call --- */

cudaError_t cudaSetDevice(int ordinal UNUSED)
{
    return cudaSuccess;
}

/* Each call finds one more node, unless the stream is idle. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream UNUSED, enum cudaStreamCaptureStatus *out,
                                     unsigned long long *id UNUSED, cudaGraph_t *graph UNUSED,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n)
{
    static char places[64];
    static cudaGraphNode_t last;
    static size_t calls;
    if (!emulated_idle)
        last = (cudaGraphNode_t)(void *)&places[calls++ % sizeof(places)];
    *out = emulated_capture;
    *nodes = &last;
    *edges = NULL;
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code UNUSED)
{
    return "an error";
}

/* Nothing is captured here. */
void cuda_counters_reserve(struct backend_stream *stream UNUSED, uint64_t bytes UNUSED)
{
}

void *cuda_counter(struct backend_stream *stream UNUSED, uint64_t bytes UNUSED, void *workspace)
{
    return workspace;
}

enum status cuda_error(struct error *err, cudaError_t code, const char *what)
{
    return error_set(err, STATUS_INTERNAL, "%s: %d", what, (int)code);
}

enum status cuda_stream_flag(struct backend_stream *stream, int32_t **out, struct error *err UNUSED)
{
    *out = stream->bad_index;
    return STATUS_OK;
}

/* --- a backend whose device memory is the host's --- */

static enum status memory_alloc(struct device *device UNUSED, enum memory_kind kind UNUSED,
                                size_t size, const char *tag UNUSED, void **out, struct error *err)
{
    if (posix_memalign(out, BACKEND_ALIGN, size))
        return error_no_memory(err, "a test");
    return STATUS_OK;
}

static void memory_free(struct device *device UNUSED, enum memory_kind kind UNUSED, void *memory)
{
    free(memory);
}

static enum status copy(struct backend_stream *stream UNUSED, enum copy_direction way UNUSED,
                        const struct backend_copy *copies, uint32_t n, struct error *err UNUSED)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(copies[i].to, copies[i].from, copies[i].size);
    return STATUS_OK;
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

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum status status = STATUS_OK;
    struct cuda_device *d = CONTAINER_OF(device, struct cuda_device, base);
    for (size_t i = 0; i < ARRAY_LEN(families) && !status; i++)
        if (cuda_family_takes(families[i]->id, node->op))
            status = families[i]->candidates(d, graph, node, precision, visit, user, err);
    return status;
}

static const struct cuda_family *family_of(const struct tactic *tactic)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (tactic->id >> 16 == families[i]->id)
            return families[i];
    return NULL;
}

static enum status pack(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    return family_of(tactic)->pack(CONTAINER_OF(device, struct cuda_device, base), graph, node,
                                   tactic, input, to, err);
}

static enum status op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err)
{
    const struct cuda_family *family = family_of(tactic);
    /* as the backend asks */
    assert_true((family->scales && stored_any(graph, node)) || family->casts ||
                ir_node_is_uniform(graph, node));
    return family->prepare(stream, graph, node, tactic, out, err);
}

static uint64_t op_workspace(const struct backend_op *op)
{
    return op->workspace;
}

static void op_free(struct backend_op *op)
{
    op->free(op);
}

static enum status op_launch(struct backend_op *op, struct backend_stream *stream,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err)
{
    return op->launch(op, stream, inputs, outputs, workspace, err);
}

const struct backend backend_emulated = {
    .abi = BACKEND_ABI,
    .name = "emulated",
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .copy = copy,
    .event_record = event_record,
    .event_wait = event_wait,
    .candidates = candidates,
    .pack = pack,
    .op_prepare = op_prepare,
    .op_workspace = op_workspace,
    .op_free = op_free,
    .op_launch = op_launch,
};

void emulated_deinit(struct emulated *b)
{
    cuda_lt_free(b->device.lt);
}

void emulated_init(struct emulated *b)
{
    *b = (struct emulated){.device = {.base.backend = &backend_emulated}};
    b->device.properties.multiProcessorCount = 132;
    b->device.properties.major = 9; /* so that kernels for Hopper are among the candidates */
    assert_int_equal(setenv("INFERD_OWN_MATMUL", "1", 1), 0);
    assert_int_equal(cuda_lt_new(0, &b->device.lt, NULL), STATUS_OK);
    lt_adopt(b->device.lt, &fake_lt);
    b->stream = (struct backend_stream){.device = &b->device, .bad_index = &b->flag};
    b->trial = (struct trial){
        .device = &b->device.base, .backend = &backend_emulated, .stream = &b->stream};
}

/* --- what is offered --- */

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct emulated_offers *offers = user;
    assert_true(offers->n < EMULATED_OFFERS_MAX);
    offers->items[offers->n++] = *tactic;
    return STATUS_OK;
}

struct emulated_offers *emulated_ask(struct device *device, const struct ir_graph *graph,
                                     enum precision precision)
{
    struct emulated_offers *offers = calloc(1, sizeof(*offers));
    struct error err = {0};
    assert_non_null(offers);
    if (backend_emulated.candidates(device, graph, ir_node(graph, 0), precision, keep, offers,
                                    &err))
        fail_msg("%s: %s", ir_op_name(ir_node(graph, 0)->op), err.text);
    return offers;
}

struct ir_graph *emulated_ranged(const struct case_kind *kind, uint64_t seed,
                                 const struct subject *subject)
{
    struct ir_graph *graph = case_new(kind, seed);
    assert_non_null(graph);
    assert_int_equal(ranged_copy(subject->graph, graph, NULL), STATUS_OK);
    return graph;
}
