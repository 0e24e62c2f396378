/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers that candidates are timed on; they are kept from candidate to candidate.
 *
 * Inputs and outputs are in the device's caches, as they are right behind the layer before.
 * Constants are there only as far as the model lets them be: each launch takes them from another
 * place in a pool as large as all constants of the model, because a batch reads all the others
 * between two uses of the same weights.
 *
 * Floats are random, also those that are stored in 8 bits: a device may be faster on zeros. Other
 * integer inputs are zeros: most of them are indices, and zero is always a valid index; but lengths
 * of sequences are full, because a sequence of no steps takes no time. Only the backend knows what
 * a packed constant holds, so the pool has bytes that are harmless in any float type: each 16 bits
 * are an fp16 number of 0.5 to 1 of either sign, which is a normal number as bf16 too, and two of
 * them are a normal fp32.
 */
#include "engine/tune/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "kernels/cpu/ref.h"

enum { BENCH_BLOCK = 1 << 20 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15U; /* splitmix64 (Steele, Lea, Flood 2014) */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

/* Gives the blocks their contents where something is timed for the first time: most benches of a
 * build without timing only tell how much workspace a node needs. */
static enum status make_noise(struct tune_bench *b, struct error *err)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8};
    int64_t n = BENCH_BLOCK / (int64_t)sizeof(float);
    uint64_t seed = b->seed;
    if (b->blocks)
        return STATUS_OK;
    if (!(b->blocks = calloc(ARRAY_LEN(types) + 2, BENCH_BLOCK)))
        return error_no_memory(err, "the tuner");
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        b->noise[types[i]] = b->blocks + i * BENCH_BLOCK;
    b->weights = b->blocks + ARRAY_LEN(types) * BENCH_BLOCK;
    b->zeros = b->weights + BENCH_BLOCK;
    float *wide = (float *)(void *)b->noise[DTYPE_F32];
    for (int64_t i = 0; i < n; i++)
        wide[i] = (float)(next_random(&seed) >> 40) / (float)(1 << 23) - 1.0F;
    struct tensor_view from = {DTYPE_F32, {1, {n}}, wide};
    for (size_t i = 0; i < BENCH_BLOCK; i++)
        b->noise[DTYPE_I8][i] = (uint8_t)(next_random(&seed) >> 32);
    for (size_t i = 0; i < BENCH_BLOCK; i++) /* below 2, as the other floats are */
        b->noise[DTYPE_F8][i] = b->noise[DTYPE_I8][i] & 0xbf;
    for (size_t i = 1; dtype_is_float(types[i]); i++)
        for (int64_t half = 0; half < 2; half++) {
            struct tensor_view to = {types[i], {1, {n}}, b->noise[types[i]] + 2 * n * half};
            ref_cast(&from, &to);
        }
    for (size_t i = 0; i < BENCH_BLOCK / sizeof(uint16_t); i++) {
        uint64_t r = next_random(&seed);
        uint16_t half = (uint16_t)(0x3800U | (r & 0x3ff) | (r >> 16 & 0x8000));
        memcpy(b->weights + i * sizeof(half), &half, sizeof(half));
    }
    return STATUS_OK;
}

static void bench_cleanup(struct tune_bench **b)
{
    tune_bench_free(*b);
}

enum status tune_bench_new(struct device *device, uint64_t seed, uint64_t pool_bytes,
                           struct tune_bench **out, struct error *err)
{
    CLEANUP(bench_cleanup) struct tune_bench *b = calloc(1, sizeof(*b));
    if (!b)
        return error_no_memory(err, "the tuner");
    b->device = device;
    b->backend = device->backend;
    b->pool_bytes = pool_bytes;
    b->seed = seed;
    TRY(b->backend->stream_new(device, &b->stream, err));
    TRY(b->backend->event_new(device, true, &b->begin, err));
    TRY(b->backend->event_new(device, true, &b->end, err));
    *out = STEAL(b);
    return STATUS_OK;
}

void tune_bench_free(struct tune_bench *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < BENCH_SLOTS; i++)
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
    free(b->blocks);
    free(b);
}

enum status bench_settle(struct tune_bench *b, struct error *err)
{
    TRY(b->backend->event_record(b->end, b->stream, err));
    return b->backend->event_wait(b->end, err);
}

static enum status grow(struct tune_bench *b, struct bench_slot *slot, uint64_t size,
                        struct error *err)
{
    if (slot->memory && size <= slot->size)
        return STATUS_OK;
    if (slot->memory)
        b->backend->memory_free(b->device, MEMORY_DEVICE, slot->memory);
    *slot = (struct bench_slot){0};
    TRY(b->backend->memory_alloc(b->device, MEMORY_DEVICE, size, "tuning", &slot->memory, err));
    slot->size = size;
    return STATUS_OK;
}

static enum status fill(struct tune_bench *b, struct bench_slot *slot, uint64_t size,
                        const void *block, struct error *err)
{
    for (uint64_t at = 0; at < size; at += BENCH_BLOCK) {
        struct backend_copy copy = {(char *)slot->memory + at, block,
                                    (size_t)MIN(size - at, (uint64_t)BENCH_BLOCK)};
        TRY(b->backend->copy(b->stream, COPY_TO_DEVICE, &copy, 1, err));
    }
    return bench_settle(b, err);
}

/* A small integer constant is used as it is: the amount of work may depend on it. */
static enum status fill_input(struct tune_bench *b, struct bench_slot *slot,
                              const struct ir_tensor *t, struct error *err)
{
    enum dtype stored = t->dtype == DTYPE_F8 ? DTYPE_F8 : DTYPE_I8;
    enum dtype type = t->scale != IR_NO_SCALE ? stored : t->dtype;
    bool real = t->scale != IR_NO_SCALE || dtype_is_float(t->dtype);
    const uint8_t *noise = real ? b->noise[type] : NULL;
    TRY(grow(b, slot, MAX(t->bytes, 1), err));
    if (noise && slot->noise == type)
        return STATUS_OK;
    bool keep = !noise && ir_tensor_is_constant(t) && t->bytes <= BENCH_BLOCK &&
                t->layout == IR_LAYOUT_PLAIN;
    slot->noise = noise ? type : DTYPE_NONE;
    if (!keep)
        return fill(b, slot, noise ? slot->size : t->bytes, noise ? noise : b->zeros, err);
    struct backend_copy copy = {slot->memory, t->data, t->bytes};
    TRY(b->backend->copy(b->stream, COPY_TO_DEVICE, &copy, 1, err));
    return bench_settle(b, err);
}

/* The flags of an operand of the op's own. */
static unsigned flags_of(const struct ir_graph *sample, uint32_t input)
{
    return input < IR_OPERANDS_MAX ? ir_op_row(ir_node(sample, 0)->op)->operands[input].flags : 0;
}

/* Lengths of a recurrent layer's sequences, each of which has all steps; or spans of rows. */
static int64_t number_of(const struct ir_graph *sample, uint32_t input, size_t at, size_t n)
{
    const struct ir_node *node = ir_node(sample, 0);
    return flags_of(sample, input) & IR_OPERAND_SPANS
               ? ir_span_sample(at, n)
               : ir_tensor(sample, node->inputs[0])->shape.dim[0];
}

/* Fills in numbers that say how much work there is. */
static enum status fill_numbers(struct tune_bench *b, struct bench_slot *slot,
                                const struct ir_graph *sample, uint32_t input, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(sample, ir_node(sample, 0)->inputs[input]);
    size_t n = t->bytes / dtype_size(t->dtype);
    CLEANUP(cleanup_free) uint8_t *full = malloc(MAX(t->bytes, 1));
    if (!full)
        return error_no_memory(err, "the tuner");
    for (size_t i = 0; i < n; i++) {
        int64_t number = number_of(sample, input, i, n);
        memcpy(full + i * dtype_size(t->dtype), &number, dtype_size(t->dtype)); /* little-endian */
    }
    TRY(grow(b, slot, MAX(t->bytes, 1), err));
    struct backend_copy copy = {slot->memory, full, t->bytes};
    slot->noise = DTYPE_NONE;
    TRY(b->backend->copy(b->stream, COPY_TO_DEVICE, &copy, 1, err));
    return bench_settle(b, err);
}

/* Whether the work depends on the input's numbers, which a request tells. */
static bool is_work(const struct ir_graph *sample, uint32_t input)
{
    return flags_of(sample, input) & (IR_OPERAND_LENGTH | IR_OPERAND_SPANS) &&
           !ir_tensor_is_constant(ir_tensor(sample, ir_node(sample, 0)->inputs[input]));
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
}

/* Whether the input is a constant that comes from the pool. */
static bool pooled(const struct tune_bench *b, const struct ir_tensor *t)
{
    return b->noise[t->dtype] && ir_tensor_is_constant(t);
}

static enum status grow_pool(struct tune_bench *b, const struct ir_graph *sample, struct error *err)
{
    const struct ir_node *node = ir_node(sample, 0);
    uint64_t sum = 0;
    b->n_inputs = node->n_inputs;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct ir_tensor *t =
            node->inputs[i] == IR_NONE ? NULL : ir_tensor(sample, node->inputs[i]);
        b->constant[i] = t && pooled(b, t) ? MAX(t->bytes, 1) : 0;
        sum += aligned(b->constant[i]);
    }
    if (sum == 0 || (b->pool.memory && sum <= b->pool.size))
        return STATUS_OK;
    TRY(grow(b, &b->pool, MAX(sum, aligned(b->pool_bytes)), err));
    return fill(b, &b->pool, b->pool.size, b->weights, err);
}

void bench_turn_pool(struct tune_bench *b)
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

enum status bench_set_up(struct tune_bench *b, const struct ir_graph *sample, uint64_t workspace,
                         struct error *err)
{
    const struct ir_node *node = ir_node(sample, 0);
    TRY(make_noise(b, err));
    TRY(grow_pool(b, sample, err));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        b->inputs[i] = NULL;
        if (node->inputs[i] == IR_NONE || b->constant[i])
            continue;
        const struct ir_tensor *t = ir_tensor(sample, node->inputs[i]);
        if (is_work(sample, i))
            TRY(fill_numbers(b, &b->slots[i], sample, i, err));
        else
            TRY(fill_input(b, &b->slots[i], t, err));
        b->inputs[i] = b->slots[i].memory;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        struct bench_slot *slot = &b->slots[IR_MAX_INPUTS + i];
        TRY(grow(b, slot, MAX(ir_tensor(sample, node->outputs[i])->bytes, 1), err));
        b->outputs[i] = slot->memory;
    }
    return grow(b, &b->slots[BENCH_WORKSPACE], MAX(workspace, 1), err);
}
