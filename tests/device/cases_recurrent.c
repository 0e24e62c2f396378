/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of recurrent layers: every cell, with and without what is optional. */
#include <math.h>

#include "tests/device/make.h"

static const int64_t gates_of[] = {
    [IR_RECURRENT_RNN] = 1, [IR_RECURRENT_LSTM] = 4, [IR_RECURRENT_GRU] = 3};
static const uint32_t functions_of[] = {
    [IR_RECURRENT_RNN] = 1, [IR_RECURRENT_LSTM] = 3, [IR_RECURRENT_GRU] = 2};

/* INT64 lengths of sequences, 0..steps. */
static uint32_t add_lengths(struct ir_graph *g, uint64_t *random, int64_t sequences, int64_t steps)
{
    struct shape shape = DIMS(sequences);
    int64_t *data = arena_array(g->arena, (size_t)sequences, sizeof(*data));
    for (int64_t i = 0; data && i < sequences; i++)
        data[i] = between(random, 0, steps);
    return data ? ir_constant_add(g, "lengths", DTYPE_I64, &shape, data) : IR_NONE;
}

/* Of both directions; `usual` is about the first. */
static bool set_functions(struct ir_graph *g, uint64_t *random, uint32_t node, int64_t cell,
                          bool usual, enum ir_way way)
{
    int64_t funcs[6] = {IR_UNARY_SIGMOID, IR_UNARY_TANH, IR_UNARY_TANH};
    float alphas[6] = {0, 1, 1}, betas[6] = {0, 1, 1};
    uint32_t n = functions_of[cell], all = n * (uint32_t)ir_way_directions(way);
    if (cell == IR_RECURRENT_RNN) {
        funcs[0] = IR_UNARY_TANH;
        alphas[0] = betas[0] = 1;
    }
    if (!usual) {
        funcs[0] = IR_UNARY_HARD_SIGMOID;
        alphas[0] = 0.2F;
        betas[0] = 0.5F;
        funcs[1] = PICK(random, IR_UNARY_SOFTSIGN, IR_UNARY_TANH, IR_UNARY_ELU);
        alphas[1] = 0.75F;
    }
    for (uint32_t i = n; i < all; i++) { /* its own, so that an exchange of them is seen */
        funcs[i] = i == n ? IR_UNARY_HARD_SIGMOID : IR_UNARY_TANH;
        alphas[i] = i == n ? 0.25F : 0.5F;
        betas[i] = i == n ? 0.5F : 1;
    }
    return ir_attr_set_int(g, node, IR_ATTR_FUNC, cell) &&
           ir_attr_set_int(g, node, IR_ATTR_REVERSE, way) &&
           ir_attr_set_ints(g, node, IR_ATTR_FUNCS, all, funcs) &&
           ir_attr_set_floats(g, node, IR_ATTR_ALPHAS, all, alphas) &&
           ir_attr_set_floats(g, node, IR_ATTR_BETAS, all, betas);
}

bool make_recurrent(struct ir_graph *g, uint64_t *random)
{
    int64_t cell =
        PICK(random, IR_RECURRENT_LSTM, IR_RECURRENT_LSTM, IR_RECURRENT_GRU, IR_RECURRENT_RNN);
    int64_t steps = PICK(random, 1, 2, 5, 9), n = PICK(random, 1, 1, 2, 3, 8, 9, 20);
    int64_t h = PICK(random, 3, 8, 16, 24, 33, 40);
    if (chance(random, 8)) { /* several chunks a warp; more than shared memory holds */
        h = PICK(random, 300, 660);
        steps = MIN(steps, 2);
        n = 1;
    }
    enum ir_way way = (enum ir_way)PICK(random, IR_WAY_AHEAD, IR_WAY_BACK, IR_WAY_BOTH);
    int64_t ways = ir_way_directions(way), width = ways * gates_of[cell] * h;
    bool lstm = cell == IR_RECURRENT_LSTM, gru = cell == IR_RECURRENT_GRU;
    bool linear = gru && chance(random, 60);
    uint32_t in[7] = {
        add_input(g, DTYPE_F32, DIMS(steps, n, width)),
        add_constant(g, random, DIMS(width, h), 1 / sqrt((double)h)),
        chance(random, 40) ? add_lengths(g, random, n, steps) : IR_NONE,
        chance(random, 50) ? add_input(g, DTYPE_F32, DIMS(ways * n, h)) : IR_NONE,
        lstm && chance(random, 50) ? add_input(g, DTYPE_F32, DIMS(ways * n, h)) : IR_NONE,
        lstm && chance(random, 40) ? add_constant(g, random, DIMS(ways * 3 * h), 1) : IR_NONE,
        linear ? add_constant(g, random, DIMS(ways * h), 1) : IR_NONE};
    uint32_t n_in = ARRAY_LEN(in);
    while (in[n_in - 1] == IR_NONE)
        n_in--;
    uint32_t node = ir_node_add(g, IR_OP_RECURRENT, "recurrent", n_in, in);
    return node != IR_NONE && set_functions(g, random, node, cell, chance(random, 70), way) &&
           ir_attr_set_float(g, node, IR_ATTR_CLIP, chance(random, 30) ? 0.75F : 0.0F) &&
           ir_attr_set_int(g, node, IR_ATTR_LINEAR, linear) &&
           ir_attr_set_int(g, node, IR_ATTR_COUPLED, lstm && chance(random, 20)) && finish(g, node);
}

static bool add_lstm(struct ir_graph *g, uint64_t *random, enum ir_way way, int64_t sequences,
                     int64_t hidden)
{
    int64_t width = ir_way_directions(way) * 4 * hidden;
    uint32_t in[2] = {add_input(g, DTYPE_F32, DIMS(64, sequences, width)),
                      add_constant(g, random, DIMS(width, hidden), 1 / sqrt((double)hidden))};
    uint32_t node = ir_node_add(g, IR_OP_RECURRENT, "lstm", 2, in);
    return node != IR_NONE && set_functions(g, random, node, IR_RECURRENT_LSTM, true, way) &&
           finish(g, node);
}

bool sized_lstm_256(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_lstm(g, random, IR_WAY_AHEAD, batch, 256);
}

bool sized_lstm_512(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_lstm(g, random, IR_WAY_AHEAD, batch, 512);
}

bool sized_lstm_512_both(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return add_lstm(g, random, IR_WAY_BOTH, batch, 512);
}
