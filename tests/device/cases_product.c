/* SPDX-License-Identifier: Apache-2.0 */
/* Products of integers, products with rows of an odd length, and chains of layers. */
#include <math.h>

#include "base/mlp.h"
#include "tests/device/make.h"

bool make_matmul_bytes(struct ir_graph *g, uint64_t *random)
{
    int64_t m = PICK(random, 1, 5, 33, 64), n = PICK(random, 1, 10, 64, 136);
    int64_t k = PICK(random, 1, 16, 31, 200, 1000), lead = PICK(random, 0, 0, 1, 6);
    struct shape b = chance(random, 25) && lead ? DIMS(lead, k, n) : DIMS(k, n);
    uint32_t in[3] = {
        add_input(g, PICK(random, DTYPE_U8, DTYPE_I8), lead ? DIMS(lead, m, k) : DIMS(m, k)),
        chance(random, 70) ? add_integers(g, random, b, DTYPE_I8)
                           : add_input(g, PICK(random, DTYPE_U8, DTYPE_I8), b),
        chance(random, 60) ? add_integers(g, random, DIMS(n), DTYPE_I32) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "matmul", in[2] == IR_NONE ? 2 : 3, in);
    return finish(g, node);
}

bool sized_product_bytes(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    uint32_t in[3] = {add_input(g, DTYPE_U8, DIMS(batch, 128, 768)),
                      add_integers(g, random, DIMS(768, 3072), DTYPE_I8),
                      add_integers(g, random, DIMS(3072), DTYPE_I32)};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "integers", 3, in);
    return finish(g, node);
}

static uint32_t add_head(struct ir_graph *g, uint64_t *random, struct shape x, int64_t n, bool rows,
                         bool biased)
{
    int64_t k = x.dim[x.rank - 1];
    uint32_t in[3] = {add_input(g, DTYPE_F32, x),
                      add_constant(g, random, rows ? DIMS(n, k) : DIMS(k, n), 0.05),
                      biased ? add_constant(g, random, DIMS(n), 0.5) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "head", biased ? 3 : 2, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TRANS_B, rows) && finish(g, node)
               ? node
               : IR_NONE;
}

bool make_head(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 8, 64, 200, 264), n = between(random, 1024, 1100);
    struct shape x = chance(random, 50) ? DIMS(between(random, 1, 21), k)
                                        : DIMS(between(random, 1, 3), between(random, 1, 7), k);
    bool rows = chance(random, 50), biased = chance(random, 50);
    return add_head(g, random, x, n, rows, biased) != IR_NONE &&
           (chance(random, 70) || add_epilogue(g, random, x.rank - 1));
}

bool sized_head(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_head(g, random, DIMS(batch, 128, 768), 50257, false, false) != IR_NONE;
}

/* Few rows and much depth. */
bool make_matmul_deep(struct ir_graph *g, uint64_t *random)
{
    int64_t m = PICK(random, 1, 7, 64, 100), n = PICK(random, 24, 96, 200);
    int64_t k = PICK(random, 520, 1032, 2048);
    bool trans = chance(random, 50);
    uint32_t in[3] = {
        add_input(g, DTYPE_F32, DIMS(m, k)),
        add_constant(g, random, trans ? DIMS(n, k) : DIMS(k, n), 1.7 / sqrt((double)k)),
        chance(random, 80) ? add_constant(g, random, DIMS(n), 0.5) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "matmul", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TRANS_B, trans) && finish(g, node) &&
           (chance(random, 40) || add_unary(g, PICK(random, IR_UNARY_RELU, IR_UNARY_GELU), 0, 0));
}

static bool add_dense(struct ir_graph *g, uint64_t *random, struct shape x, int64_t n)
{
    return add_head(g, random, x, n, false, true) != IR_NONE;
}

bool sized_product_sum(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_dense(g, random, DIMS(batch, 128, 3072), 768) &&
           add_operand(g, IR_BINARY_ADD, add_input(g, DTYPE_F32, DIMS(batch, 128, 768)));
}

bool sized_row_gelu(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_dense(g, random, DIMS(batch, 768), 3072) && add_unary(g, IR_UNARY_GELU, 0, 0);
}

bool sized_row_sum(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_dense(g, random, DIMS(batch, 3072), 768) &&
           add_operand(g, IR_BINARY_ADD, add_input(g, DTYPE_F32, DIMS(batch, 768)));
}

bool sized_row_wide(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_dense(g, random, DIMS(batch, 4096), 4096);
}

/* --- chains of layers --- */

/* `usual`: the hidden layers' width, for which weights keep the size of values. */
static bool add_mlp(struct ir_graph *g, uint64_t *random, struct shape x, uint32_t layers,
                    const int64_t *widths, const int64_t *funcs, int64_t usual)
{
    float alphas[MLP_LAYERS_MAX], betas[MLP_LAYERS_MAX];
    int64_t weights = 0, columns = 0, depth = x.dim[x.rank - 1];
    for (uint32_t i = 0; i < layers; i++) {
        alphas[i] = funcs[i] == IR_UNARY_CLIP ? -0.5F : 0.75F;
        betas[i] = 0.5F;
        weights += depth * widths[i];
        columns += depth = widths[i];
    }
    uint32_t in[3] = {add_input(g, DTYPE_F32, x),
                      add_constant(g, random, DIMS(weights), 1.7 / sqrt((double)usual)),
                      add_constant(g, random, DIMS(columns), 0.5)};
    uint32_t node = ir_node_add(g, IR_OP_MLP, "mlp", 3, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_WIDTHS, layers, widths) &&
           ir_attr_set_ints(g, node, IR_ATTR_FUNCS, layers, funcs) &&
           ir_attr_set_floats(g, node, IR_ATTR_ALPHAS, layers, alphas) &&
           ir_attr_set_floats(g, node, IR_ATTR_BETAS, layers, betas) && finish(g, node);
}

bool make_mlp(struct ir_graph *g, uint64_t *random)
{
    int64_t widths[MLP_LAYERS_MAX], funcs[MLP_LAYERS_MAX], rows = PICK(random, 1, 5, 16, 33, 100);
    int64_t usual = PICK(random, 13, 64, 64, 136);
    uint32_t layers = (uint32_t)PICK(random, 2, 2, 3, 4, 6);
    if (usual == 13 && chance(random, 50))
        layers = MLP_LAYERS_MAX;
    for (uint32_t i = 0; i < layers; i++) {
        widths[i] = chance(random, 70) ? usual : between(random, 8, usual);
        funcs[i] = PICK(random, IR_UNARY_RELU, IR_UNARY_TANH, IR_UNARY_SIGMOID, IR_UNARY_GELU,
                        IR_UNARY_SWISH, IR_UNARY_CLIP);
        if (layers == MLP_LAYERS_MAX)
            funcs[i] = PICK(random, IR_UNARY_TANH, IR_UNARY_SIGMOID);
    }
    widths[layers - 1] = PICK(random, 1, 3, 8, 64);
    funcs[layers - 1] = PICK(random, IR_UNARY_IDENTITY, IR_UNARY_SIGMOID);
    int64_t depth = PICK(random, 1, 7, 8, 24, 64);
    return add_mlp(g, random, chance(random, 70) ? DIMS(rows, depth) : DIMS(2, rows, depth), layers,
                   widths, funcs, usual);
}

bool sized_mlp_ten(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    int64_t widths[10], funcs[10];
    for (uint32_t i = 0; i < 10; i++) {
        widths[i] = 64;
        funcs[i] = IR_UNARY_RELU;
    }
    return add_mlp(g, random, DIMS(batch, 64), 10, widths, funcs, 64);
}

bool sized_mlp_ranking(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    static const int64_t widths[] = {256, 256, 64, 1};
    static const int64_t funcs[] = {IR_UNARY_RELU, IR_UNARY_RELU, IR_UNARY_RELU, IR_UNARY_SIGMOID};
    return add_mlp(g, random, DIMS(batch, 64), 4, widths, funcs, 256);
}

/* One layer of ten, for comparison. */
bool sized_layer(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_dense(g, random, DIMS(batch, 64), 64) && add_unary(g, IR_UNARY_RELU, 0, 0);
}
