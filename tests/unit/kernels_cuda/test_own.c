/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of our own kernels from a node to its answer, on the emulated device: every kind of
 * node, every candidate, its constants packed, the op prepared and launched, beside the reference.
 */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "tests/device/trial.h"

enum { SEEDS = 5, TACTICS_MAX = 64 };

static const struct cuda_family *const families[] = {
    &cuda_family_own_map,  &cuda_family_own_move, &cuda_family_own_pool,
    &cuda_family_own_conv, &cuda_family_own_rows, &cuda_family_own_attention,
};

/* --- what the families ask of the module --- */

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
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "out of memory");
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
        if (families[i]->takes(node->op))
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
    return family_of(tactic)->prepare(stream, graph, node, tactic, out, err);
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

static const struct backend emulated = {
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

/* --- the test --- */

struct list {
    struct tactic items[TACTICS_MAX];
    uint32_t n;
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct list *list = user;
    assert_true(list->n < TACTICS_MAX);
    list->items[list->n++] = *tactic;
    return STATUS_OK;
}

static double bound_of(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 2e-3 : dtype == DTYPE_BF16 ? 2e-2 : 1e-5;
}

static void try_tactic(struct trial *trial, const struct case_kind *kind, uint64_t seed,
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
    if (status)
        fail_msg("%s seed %u '%s': %s", kind->name, (unsigned)seed, tactic->name, err.text);
    if (!(out.error <= bound_of(tactic->dtype)))
        fail_msg("%s seed %u '%s': error %g", kind->name, (unsigned)seed, tactic->name, out.error);
    subject_deinit(&subject);
    ir_graph_free(graph);
}

static uint32_t try_case(struct trial *trial, const struct case_kind *kind, uint64_t seed,
                         enum precision precision)
{
    struct list *list = calloc(1, sizeof(*list));
    struct error err = {0};
    struct ir_graph *asked = case_new(kind, seed);
    assert_non_null(list);
    assert_non_null(asked);
    if (candidates(trial->device, asked, ir_node(asked, 0), precision, keep, list, &err))
        fail_msg("%s: %s", kind->name, err.text);
    for (uint32_t i = 0; i < list->n; i++)
        try_tactic(trial, kind, seed, &list->items[i]);
    uint32_t n = list->n;
    ir_graph_free(asked);
    free(list);
    return n;
}

static void every_candidate(void **state)
{
    int32_t flag = 0;
    struct cuda_device device = {.base.backend = &emulated};
    struct backend_stream stream = {.device = &device, .bad_index = &flag};
    struct trial trial = {.device = &device.base, .backend = &emulated, .stream = &stream};
    device.properties.multiProcessorCount = 132;
    (void)state;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++) {
        uint32_t n = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            for (int p = PRECISION_F32; p <= PRECISION_BF16; p++)
                if (p != PRECISION_TF32)
                    n += try_case(&trial, kind, seed * 131, (enum precision)p);
        print_message("%-20s %u\n", kind->name, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_candidate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
