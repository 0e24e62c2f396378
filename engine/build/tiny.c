/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/tiny.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

/* A float's bits without its sign are ordered as its magnitude is. */
#define MAGNITUDE 0x7FFFFFFF
#define INFINITE  0x7F800000
#define EXPONENT  23

enum { READ_AS_WEIGHTS = 1, READ_OTHERWISE = 2, POWERS = 100, BLOCK = 32 };

static void mark_readers(const struct ir_graph *graph, uint8_t *marks)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        for (uint32_t k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] != IR_NONE)
                marks[node->inputs[k]] |= k == 1 && ir_op_has(node->op, IR_TRAIT_PRODUCT)
                                              ? READ_AS_WEIGHTS
                                              : READ_OTHERWISE;
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        marks[graph->outputs[i]] |= READ_OTHERWISE;
}

/* Constants need not be aligned. */
static uint32_t bits_at(const char *from, size_t i)
{
    uint32_t bits;
    memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    return bits;
}

/* Returns the bits of the least magnitude that stays, or 0 if all stay. The loops over a block
 * become vector instructions, which compare only signed numbers on the oldest processors. */
static uint32_t limit_of(const char *from, size_t n)
{
    int32_t most[BLOCK] = {0}, least[BLOCK], block[BLOCK]; /* least: of those that are not 0 */
    for (size_t k = 0; k < BLOCK; k++)
        least[k] = INT32_MAX;
    for (size_t i = 0; i < n; i += BLOCK) {
        if (n - i < BLOCK)
            memset(block, 0, sizeof(block));
        memcpy(block, from + i * sizeof(*block), MIN(n - i, (size_t)BLOCK) * sizeof(*block));
        for (size_t k = 0; k < BLOCK; k++) {
            int32_t magnitude = block[k] & MAGNITUDE;
            int32_t other = magnitude ? magnitude : INT32_MAX;
            most[k] = magnitude > most[k] ? magnitude : most[k];
            least[k] = other < least[k] ? other : least[k];
        }
    }
    for (size_t k = 1; k < BLOCK; k++) {
        most[0] = MAX(most[0], most[k]);
        least[0] = MIN(least[0], least[k]);
    }
    if (most[0] >= INFINITE || most[0] >> EXPONENT <= POWERS)
        return 0;
    int32_t limit = most[0] - (POWERS << EXPONENT);
    return least[0] < limit ? (uint32_t)limit : 0;
}

static enum status drop(struct ir_graph *graph, struct ir_tensor *t, uint64_t *dropped,
                        struct error *err)
{
    const char *from = t->data;
    size_t n = (size_t)t->bytes / sizeof(uint32_t);
    uint32_t limit = limit_of(from, n);
    if (!limit)
        return STATUS_OK;
    uint32_t *to = arena_alloc(graph->arena, n * sizeof(*to));
    if (!to)
        return error_no_memory(err, "weights");
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_at(from, i), magnitude = bits & MAGNITUDE;
        to[i] = magnitude < limit ? 0 : bits;
        *dropped += magnitude && magnitude < limit;
    }
    t->data = to;
    return STATUS_OK;
}

enum status build_drop_tiny(struct ir_graph *graph, uint64_t *dropped, struct error *err)
{
    CLEANUP(cleanup_free) uint8_t *marks = calloc((size_t)graph->n_tensors + 1, sizeof(*marks));
    *dropped = 0;
    if (!marks)
        return error_no_memory(err, "weights");
    mark_readers(graph, marks);
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(graph, i);
        if (marks[i] == READ_AS_WEIGHTS && ir_tensor_is_constant(t) && t->dtype == DTYPE_F32)
            TRY(drop(graph, t, dropped, err));
    }
    return STATUS_OK;
}
