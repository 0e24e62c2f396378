/* SPDX-License-Identifier: Apache-2.0 */
/* Chains whose first function has other types than fp32: casts, comparisons, logic, integers and
 * selection, by the rows of kernels/cpu/typed.h. */
#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum { PART = 512 }; /* elements of an operand that are spread out at a time */

/* Makes dense what lies `step` elements apart. */
static void spread(const char *from, int64_t step, int64_t size, size_t n, void *to)
{
#define SPREAD(type)                                                                               \
    for (size_t i = 0; i < n; i++)                                                                 \
    ((type *)to)[i] = ((const type *)(const void *)from)[(int64_t)i * step]
    switch (size) {
    case 1:
        SPREAD(uint8_t);
        break;
    case 2:
        SPREAD(uint16_t);
        break;
    case 4:
        SPREAD(uint32_t);
        break;
    default:
        SPREAD(uint64_t);
        break;
    }
#undef SPREAD
}

void native_head_run(const struct native_op *op, const struct ref_walk *w, int64_t at, size_t n)
{
    uint64_t dense[TYPED_OPERANDS][PART];
    const void *operands[TYPED_OPERANDS] = {NULL};
    char *y = (char *)op->output + (w->at[0] + at) * op->head_size[0];
    for (size_t done = 0; done < n; done += PART) {
        size_t part = MIN(n - done, (size_t)PART);
        for (uint32_t k = 1; k <= op->n_head; k++) {
            const char *from = (const char *)op->inputs[op->input[k]] +
                               (w->at[k] + (at + (int64_t)done) * w->step[k]) * op->head_size[k];
            bool spreads = w->step[k] != 1;
            if (spreads && (w->step[k] || done == 0)) /* one element is spread out once */
                spread(from, w->step[k], op->head_size[k], part, dense[k - 1]);
            operands[k - 1] = spreads ? (const void *)dense[k - 1] : from;
        }
        op->head(operands, y + (int64_t)done * op->head_size[0], part);
    }
}

/* --- which row computes a node --- */

static typed_row unary_row(const struct typed_kernels *typed, const struct ir_node *node,
                           enum dtype type, enum dtype to UNUSED)
{
    float alpha, beta, gamma;
    enum ir_unary func = (enum ir_unary)ir_attr_int(node, IR_ATTR_FUNC);
    ir_unary_constants(node, &alpha, &beta, &gamma);
    return func == IR_UNARY_IS_INF && (alpha == 0 || beta == 0) ? NULL : typed->unary[func][type];
}

static typed_row binary_row(const struct typed_kernels *typed, const struct ir_node *node,
                            enum dtype type, enum dtype to UNUSED)
{
    enum ir_binary func = (enum ir_binary)ir_attr_int(node, IR_ATTR_FUNC);
    bool truncates = func == IR_BINARY_MOD && ir_attr_float(node, IR_ATTR_ALPHA) != 0;
    return truncates ? NULL : typed->binary[func][type];
}

static typed_row cast_row(const struct typed_kernels *typed, const struct ir_node *node UNUSED,
                          enum dtype type, enum dtype to)
{
    return typed->cast[type][to];
}

static typed_row select_row(const struct typed_kernels *typed, const struct ir_node *node UNUSED,
                            enum dtype type UNUSED, enum dtype to)
{
    return typed->select[dtype_size(to)];
}

static const struct {
    typed_row (*row)(const struct typed_kernels *typed, const struct ir_node *node, enum dtype type,
                     enum dtype to);
    uint32_t operands;
} heads[IR_OP_COUNT_] = {
    [IR_OP_UNARY] = {unary_row, 1},
    [IR_OP_BINARY] = {binary_row, 2},
    [IR_OP_CAST] = {cast_row, 1},
    [IR_OP_SELECT] = {select_row, 3},
};

bool native_head_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node, uint32_t *n)
{
    enum dtype to = ir_tensor(graph, node->outputs[0])->dtype;
    op->head =
        heads[node->op].row(op->fast->typed, node, ir_tensor(graph, node->inputs[0])->dtype, to);
    op->n_head = heads[node->op].operands;
    op->head_size[0] = (int64_t)dtype_size(to);
    for (uint32_t i = 0; i < op->n_head; i++) {
        op->input[*n] = i;
        op->head_size[*n] = (int64_t)dtype_size(ir_tensor(graph, node->inputs[i])->dtype);
        ++*n;
    }
    return op->head != NULL;
}
