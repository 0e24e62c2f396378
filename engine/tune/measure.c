/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing one candidate: random inputs, the least of a few repetitions (what else runs on the
 * machine can only make it slower). Buffers are kept from candidate to candidate.
 *
 * Inputs and outputs are warm, as right behind the layer before. Constants are as warm as the model
 * lets them be: each launch takes them from another place in a pool as large as all constants of
 * the model, for that is what lies between two uses of the same weights.
 *
 * Integer inputs are zeros: they are indices more often than not, and zero is always a valid one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "engine/tune/internal.h"

enum {
    NOISE_BYTES = 1 << 20,
    SAMPLES_MIN = 3,
    SAMPLES_MAX = 16,
    SAMPLE_NS = 50000, /* launches are repeated until a sample is at least this long */
    REPEATS_MAX = 64,
    BUDGET_NS = 60000000, /* of one candidate, once it has SAMPLES_MIN */
    STEADY_PART = 30,     /* the two least samples differ by less than this part */
    SLOW_NUM = 3,         /* slower than the best by 3/2: SAMPLES_MIN will do */
    SLOW_DEN = 2,
    HOPELESS_FACTOR = 8, /* slower than the best by this: one will do */
    SLOTS = IR_MAX_INPUTS + IR_MAX_OUTPUTS + 1,
    WORKSPACE_SLOT = SLOTS - 1,
};

struct slot {
    void *memory;
    uint64_t size;
    bool noise; /* holds random floats */
};

struct tune_bench {
    struct device *device;
    struct slot pool;
    uint64_t pool_bytes, pool_at;
    uint64_t constant[IR_MAX_INPUTS]; /* of an input that comes from the pool: its bytes; else 0 */
    uint32_t n_inputs;
    const struct backend *backend;
    struct backend_stream *stream;
    struct backend_event *begin, *end;
    struct slot slots[SLOTS];
    void *inputs[IR_MAX_INPUTS], *outputs[IR_MAX_OUTPUTS];
    float *noise;   /* NOISE_BYTES in [-1, 1) */
    uint8_t *zeros; /* NOISE_BYTES */
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15U; /* splitmix64 (Steele, Lea, Flood 2014) */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

enum status tune_bench_new(struct device *device, uint64_t seed, uint64_t pool_bytes,
                           struct tune_bench **out, struct error *err)
{
    struct tune_bench *b = calloc(1, sizeof(*b));
    if (!b)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "tuner: out of memory");
    b->device = device;
    b->backend = device->backend;
    b->pool_bytes = pool_bytes;
    b->noise = malloc(NOISE_BYTES);
    b->zeros = calloc(1, NOISE_BYTES);
    enum status st = b->noise && b->zeros
                         ? STATUS_OK
                         : error_set(err, STATUS_RESOURCE_EXHAUSTED, "tuner: out of memory");
    for (size_t i = 0; st == STATUS_OK && i < NOISE_BYTES / sizeof(float); i++)
        b->noise[i] = (float)(next_random(&seed) >> 40) / (float)(1 << 23) - 1.0F;
    if (!st)
        st = b->backend->stream_new(device, &b->stream, err);
    if (!st)
        st = b->backend->event_new(device, true, &b->begin, err);
    if (!st)
        st = b->backend->event_new(device, true, &b->end, err);
    if (st)
        tune_bench_free(b);
    else
        *out = b;
    return st;
}

void tune_bench_free(struct tune_bench *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (b->slots[i].memory)
            b->backend->memory_free(b->device, MEMORY_DEVICE, b->slots[i].memory);
    if (b->pool.memory)
        b->backend->memory_free(b->device, MEMORY_DEVICE, b->pool.memory);
    if (b->end)
        b->backend->event_free(b->end);
    if (b->begin)
        b->backend->event_free(b->begin);
    if (b->stream)
        b->backend->stream_free(b->stream);
    free(b->noise);
    free(b->zeros);
    free(b);
}

static enum status settle(struct tune_bench *b, struct error *err)
{
    enum status st = b->backend->event_record(b->end, b->stream, err);
    return st ? st : b->backend->event_wait(b->end, err);
}

static enum status grow(struct tune_bench *b, struct slot *slot, uint64_t size, struct error *err)
{
    if (slot->memory && size <= slot->size)
        return STATUS_OK;
    if (slot->memory)
        b->backend->memory_free(b->device, MEMORY_DEVICE, slot->memory);
    *slot = (struct slot){0};
    enum status st =
        b->backend->memory_alloc(b->device, MEMORY_DEVICE, size, "tuning", &slot->memory, err);
    if (st == STATUS_OK)
        slot->size = size;
    return st;
}

static enum status fill(struct tune_bench *b, struct slot *slot, uint64_t size, const void *block,
                        struct error *err)
{
    enum status st = STATUS_OK;
    for (uint64_t at = 0; at < size && !st; at += NOISE_BYTES) {
        struct backend_copy copy = {(char *)slot->memory + at, block,
                                    (size_t)MIN(size - at, (uint64_t)NOISE_BYTES)};
        st = b->backend->copy(b->stream, COPY_TO_DEVICE, &copy, 1, err);
    }
    return st ? st : settle(b, err);
}

/* A small integer constant is used as it is: it may be what decides the work. */
static enum status fill_input(struct tune_bench *b, struct slot *slot, const struct ir_tensor *t,
                              struct error *err)
{
    bool floats = t->dtype == DTYPE_F32;
    enum status st = grow(b, slot, MAX(t->bytes, 1), err);
    if (st || (floats && slot->noise))
        return st;
    slot->noise = floats;
    if (floats)
        return fill(b, slot, slot->size, b->noise, err);
    if (!ir_tensor_is_constant(t) || t->layout != IR_LAYOUT_PLAIN)
        return fill(b, slot, t->bytes, b->zeros, err);
    struct backend_copy copy = {slot->memory, t->data, t->bytes};
    st = b->backend->copy(b->stream, COPY_TO_DEVICE, &copy, 1, err);
    return st ? st : settle(b, err);
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
}

/* Whether the input is a constant that comes from the pool. */
static bool pooled(const struct ir_tensor *t)
{
    return t->dtype == DTYPE_F32 && ir_tensor_is_constant(t);
}

static enum status grow_pool(struct tune_bench *b, const struct ir_graph *sample, struct error *err)
{
    const struct ir_node *node = ir_node(sample, 0);
    uint64_t sum = 0;
    b->n_inputs = node->n_inputs;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct ir_tensor *t =
            node->inputs[i] == IR_NONE ? NULL : ir_tensor(sample, node->inputs[i]);
        b->constant[i] = t && pooled(t) ? MAX(t->bytes, 1) : 0;
        sum += aligned(b->constant[i]);
    }
    if (sum == 0 || (b->pool.memory && sum <= b->pool.size))
        return STATUS_OK;
    enum status st = grow(b, &b->pool, MAX(sum, aligned(b->pool_bytes)), err);
    return st ? st : fill(b, &b->pool, b->pool.size, b->noise, err);
}

/* Other constants for the next launch. */
static void turn_pool(struct tune_bench *b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n_inputs; i++)
        sum += aligned(b->constant[i]);
    if (b->pool_at + sum > b->pool.size)
        b->pool_at = 0;
    for (uint32_t i = 0; i < b->n_inputs; i++) {
        if (b->constant[i] == 0)
            continue;
        b->inputs[i] = (char *)b->pool.memory + b->pool_at;
        b->pool_at += aligned(b->constant[i]);
    }
}

static enum status set_up(struct tune_bench *b, const struct ir_graph *sample, uint64_t workspace,
                          struct error *err)
{
    const struct ir_node *node = ir_node(sample, 0);
    enum status st = grow_pool(b, sample, err);
    for (uint32_t i = 0; i < node->n_inputs && !st; i++) {
        b->inputs[i] = NULL;
        if (node->inputs[i] == IR_NONE || b->constant[i])
            continue;
        st = fill_input(b, &b->slots[i], ir_tensor(sample, node->inputs[i]), err);
        b->inputs[i] = b->slots[i].memory;
    }
    for (uint32_t i = 0; i < node->n_outputs && !st; i++) {
        struct slot *slot = &b->slots[IR_MAX_INPUTS + i];
        st = grow(b, slot, MAX(ir_tensor(sample, node->outputs[i])->bytes, 1), err);
        b->outputs[i] = slot->memory;
    }
    return st ? st : grow(b, &b->slots[WORKSPACE_SLOT], MAX(workspace, 1), err);
}

/* Nanoseconds of one launch, as the mean of `repeats`. */
static enum status run(struct tune_bench *b, struct backend_op *op, uint32_t repeats, uint64_t *ns,
                       struct error *err)
{
    const struct backend *backend = b->backend;
    uint64_t total = 0;
    enum status st = backend->event_record(b->begin, b->stream, err);
    for (uint32_t i = 0; i < repeats && !st; i++) {
        turn_pool(b);
        st = backend->op_launch(op, b->stream, b->inputs, b->outputs,
                                b->slots[WORKSPACE_SLOT].memory, err);
    }
    if (!st)
        st = settle(b, err);
    if (!st)
        st = backend->event_wait(b->begin, err);
    if (!st)
        st = backend->event_elapsed(b->begin, b->end, &total, err);
    *ns = MAX(total / repeats, 1);
    return st;
}

/* The least sample is believed once another one comes close to it. */
static enum status sample_times(struct tune_bench *b, struct backend_op *op, uint64_t best_ns,
                                bool once, uint64_t *out, struct error *err)
{
    uint64_t least, second = UINT64_MAX, ns, begun = clock_now_ns();
    enum status st = run(b, op, 1, &least, err); /* the first one warms up, but bounds it too */
    for (uint32_t i = 0; !once && i < SAMPLES_MAX && !st; i++) {
        uint64_t repeats = MIN(MAX(SAMPLE_NS / least, 1), REPEATS_MAX);
        if (best_ns && least / HOPELESS_FACTOR > best_ns)
            break;
        st = run(b, op, (uint32_t)repeats, &ns, err);
        second = MIN(second, MAX(least, ns));
        least = MIN(least, ns);
        bool slow = best_ns && least / SLOW_NUM > best_ns / SLOW_DEN;
        bool steady = second - least <= least / STEADY_PART;
        if (i + 1 >= SAMPLES_MIN && (slow || steady || clock_now_ns() - begun > BUDGET_NS))
            break;
    }
    *out = least;
    return st;
}

enum status tune_bench_time(struct tune_bench *b, struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once, uint64_t *out,
                            struct error *err)
{
    struct backend_op *op = NULL;
    enum status st = tune_sample_shape(sample, tactic, err);
    if (st)
        return st;
    st = b->backend->op_prepare(b->stream, sample, ir_node(sample, 0), tactic, &op, err);
    if (st == STATUS_FAILED_PRECONDITION)
        return STATUS_UNIMPLEMENTED;
    if (!st)
        st = set_up(b, sample, b->backend->op_workspace(op), err);
    if (!st)
        st = sample_times(b, op, best_ns, once, out, err);
    if (op)
        b->backend->op_free(op);
    return st;
}

enum status tune_bench_workspace(struct tune_bench *b, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err)
{
    struct backend_op *op = NULL;
    enum status st = b->backend->op_prepare(b->stream, graph, node, node->tactic, &op, err);
    if (st)
        return st;
    *out = b->backend->op_workspace(op);
    b->backend->op_free(op);
    return STATUS_OK;
}

enum status tune_bench_reformat(struct tune_bench *b, const struct ir_graph *sample,
                                const struct tactic *tactic, const void *from, void *to,
                                struct error *err)
{
    struct backend_op *op = NULL;
    const struct ir_node *node = ir_node(sample, 0);
    enum status st = b->backend->op_prepare(b->stream, sample, node, tactic, &op, err);
    if (!st)
        st = set_up(b, sample, b->backend->op_workspace(op), err);
    struct backend_copy in = {b->inputs[0], from, ir_tensor(sample, node->inputs[0])->bytes};
    struct backend_copy back = {to, b->outputs[0], ir_tensor(sample, node->outputs[0])->bytes};
    uint64_t ns;
    b->slots[0].noise = false;
    if (!st)
        st = b->backend->copy(b->stream, COPY_TO_DEVICE, &in, 1, err);
    if (!st)
        st = run(b, op, 1, &ns, err);
    if (!st)
        st = b->backend->copy(b->stream, COPY_TO_HOST, &back, 1, err);
    if (!st)
        st = settle(b, err);
    if (op)
        b->backend->op_free(op);
    return st;
}
