/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of functions of one tensor of bytes whose result is stored as bytes again: a table says
 * what each of the 256 bytes becomes. The chain itself makes the table, so that both agree in every
 * bit.
 */
#include <stdlib.h>

#include "engine/cpu/native_op.h"

enum { BYTES = 256 };

static void look_up_chunk(const struct native_op *op, const struct ref_walk *w, int64_t at,
                          size_t n)
{
    op->fast->bytes->look_up((const uint8_t *)op->inputs[op->input[1]] + w->at[1] + at,
                             (uint8_t *)op->output + w->at[0] + at, n, op->owned);
}

static void run_table(void *user, int64_t first, int64_t end)
{
    native_each_chunk(user, first, end, look_up_chunk);
}

/* Whether operand k is the bytes themselves again. */
static bool is_again(const struct native_op *op, const struct ir_node *node, uint32_t k)
{
    return node->inputs[op->input[k]] == node->inputs[op->input[1]] && op->walk.step[k] == 1;
}

/* Whether operand k is one number that is known. */
static bool is_known(const struct native_op *op, const struct ir_graph *graph,
                     const struct ir_node *node, uint32_t k)
{
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[op->input[k]]);
    size_t n = 0;
    return t->data && op->stored[k].dtype == DTYPE_NONE && shape_elements(&t->shape, &n) && n == 1;
}

/* Runs the chain over all bytes. */
static enum status keep_table(struct native_op *op, const struct ir_graph *graph,
                              const struct ir_node *node, struct error *err)
{
    uint8_t all[BYTES];
    void *inputs[IR_MAX_INPUTS] = {NULL};
    struct native_op whole = *op;
    struct ref_walk walk = op->walk;
    for (uint32_t i = 0; i < BYTES; i++)
        all[i] = (uint8_t)i;
    if (!(op->owned = malloc(BYTES)))
        return error_no_memory(err, "a table");
    for (uint32_t k = 0; k < walk.n; k++)
        walk.at[k] = 0;
    for (uint32_t k = 1; k < walk.n; k++) {
        uint32_t id = node->inputs[op->input[k]];
        inputs[op->input[k]] =
            id == node->inputs[op->input[1]] ? all : (void *)(uintptr_t)ir_tensor(graph, id)->data;
    }
    whole.inputs = inputs;
    whole.output = op->owned;
    native_chunk_run(&whole, &walk, 0, BYTES);
    return STATUS_OK;
}

bool native_table_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node, uint32_t n)
{
    if (op->stored[0].dtype == DTYPE_NONE || op->stored[1].dtype == DTYPE_NONE ||
        op->walk.step[0] != 1 || op->walk.step[1] != 1)
        return false;
    for (uint32_t k = 2; k < n; k++)
        if (!is_again(op, node, k) && !is_known(op, graph, node, k))
            return false;
    op->work = run_table;
    op->keep = keep_table;
    return true;
}
