/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RNN, LSTM, GRU. Each direction becomes two nodes: a product of all steps' inputs with the
 * weights, whose tactic is chosen like any other's, and a RECURRENT node for what depends on the
 * step before. The product adds all biases except the one that a linear GRU scales.
 */
#include "engine/import/ops.h"

#include <string.h>
#include <strings.h>

enum { MAX_FUNCS = 3 };

/* The words of the attribute `activations`, in upper or lower case. */
static const struct cell_function {
    const char *name;
    enum ir_unary func;
    bool takes_alpha, takes_beta;
    float alpha, beta; /* if the file gives none */
} functions[] = {
    {"Tanh", IR_UNARY_TANH, false, false, 1, 1},
    {"Sigmoid", IR_UNARY_SIGMOID, false, false, 0, 0},
    {"Relu", IR_UNARY_RELU, false, false, 0, 0},
    {"Affine", IR_UNARY_LINEAR, true, true, 1, 0},
    {"LeakyRelu", IR_UNARY_LEAKY_RELU, true, false, 0.01F, 0},
    {"ThresholdedRelu", IR_UNARY_THRESHOLDED_RELU, true, false, 1, 0},
    {"ScaledTanh", IR_UNARY_TANH, true, true, 1, 1},
    {"HardSigmoid", IR_UNARY_HARD_SIGMOID, true, true, 0.2F, 0.5F},
    {"Elu", IR_UNARY_ELU, true, false, 1, 0},
    {"Softsign", IR_UNARY_SOFTSIGN, false, false, 0, 0},
    {"Softplus", IR_UNARY_SOFTPLUS, false, false, 0, 0},
};

static const struct cell {
    enum ir_recurrent kind;
    int64_t gates;
    uint32_t n_funcs;
    const char *funcs[MAX_FUNCS];
} cells[IR_RECURRENT_COUNT_] = {
    [IR_RECURRENT_RNN] = {IR_RECURRENT_RNN, 1, 1, {"Tanh"}},
    [IR_RECURRENT_LSTM] = {IR_RECURRENT_LSTM, 4, 3, {"Sigmoid", "Tanh", "Tanh"}},
    [IR_RECURRENT_GRU] = {IR_RECURRENT_GRU, 3, 2, {"Sigmoid", "Tanh"}},
};

/* The functions of one direction. */
struct choice {
    int64_t funcs[MAX_FUNCS];
    float alphas[MAX_FUNCS], betas[MAX_FUNCS];
};

struct layer {
    const struct cell *cell;
    uint32_t x, w, r, b, lengths, h0, c0, peephole; /* x is [steps, sequences, inputs] */
    int64_t steps, sequences, hidden, directions;
    int64_t linear, coupled;
    float clip;
    bool batch_first, backward; /* backward: there is no forward direction */
    bool bytes;                 /* W and R are quantised */
    struct choice choices[2];
};

/* --- attributes --- */

static const struct cell_function *function_named(const char *name, size_t size)
{
    for (uint32_t i = 0; i < ARRAY_LEN(functions); i++)
        if (strlen(functions[i].name) == size && !strncasecmp(functions[i].name, name, size))
            return &functions[i];
    return NULL;
}

/* A function that takes a value gets the next one of the list. */
static float next_value(const struct onnx_attr *values, uint32_t *used, bool takes, float fallback)
{
    if (!takes || !values || *used >= values->n_floats)
        return fallback;
    return values->floats[(*used)++];
}

static void read_functions(struct mapper *m, struct layer *l)
{
    const struct onnx_attr *names = map_attr(m, "activations");
    const struct onnx_attr *alphas = map_attr(m, "activation_alpha");
    const struct onnx_attr *betas = map_attr(m, "activation_beta");
    uint32_t n = (uint32_t)l->directions * l->cell->n_funcs, used_alphas = 0, used_betas = 0;
    if (names && names->n_strings != n)
        map_invalid(m, "%u activations, expected %u", names->n_strings, n);
    for (uint32_t i = 0; i < n && !map_failed(m); i++) {
        struct choice *to = &l->choices[i / l->cell->n_funcs];
        uint32_t at = i % l->cell->n_funcs;
        const char *name = names ? (const char *)names->strings[i].data : l->cell->funcs[at];
        size_t size = names ? names->strings[i].size : strlen(name);
        const struct cell_function *f = function_named(name, size);
        if (!f) {
            map_refuse(m, "activation '%.*s'", (int)MIN(size, 64), name);
            return;
        }
        to->funcs[at] = f->func;
        to->alphas[at] = next_value(alphas, &used_alphas, f->takes_alpha, f->alpha);
        to->betas[at] = next_value(betas, &used_betas, f->takes_beta, f->beta);
    }
}

static void read_attributes(struct mapper *m, struct layer *l)
{
    bool both = map_attr_is(m, "direction", "bidirectional", "forward");
    l->backward = map_attr_is(m, "direction", "reverse", "forward");
    if (!both && !l->backward && !map_attr_is(m, "direction", "forward", "forward"))
        map_invalid(m, "attribute 'direction' is none of forward, reverse, bidirectional");
    l->directions = both ? 2 : 1;
    l->batch_first = map_attr_int(m, "layout", 0) != 0;
    l->linear = map_attr_int(m, "linear_before_reset", 0) != 0;
    l->coupled = map_attr_int(m, "input_forget", 0) != 0;
    l->clip = map_attr_float(m, "clip", 0);
    read_functions(m, l);
}

/* --- operands --- */

/* Only an LSTM has operands in these places: a cell state and a peephole. */
static uint32_t lstm_in(struct mapper *m, const struct layer *l, uint32_t i)
{
    return l->cell->kind == IR_RECURRENT_LSTM ? map_in_opt(m, i) : IR_NONE;
}

static void check_operand(struct mapper *m, const char *name, uint32_t tensor, uint32_t rank,
                          uint32_t axis, int64_t want)
{
    const struct shape *shape = map_shape(m, tensor);
    char text[SHAPE_TEXT_MAX];
    if (!map_failed(m) && tensor != IR_NONE && (shape->rank != rank || shape->dim[axis] != want))
        map_invalid(m, "%s is %s, expected rank %u and %lld as dimension %u", name,
                    shape_format(shape, text), rank, (long long)want, axis);
}

/* Says whether all sequences have all steps, so that their lengths need not be given. */
static bool is_full(const struct mapper *m, uint32_t lengths, int64_t steps)
{
    const struct ir_tensor *t = ir_tensor(m->graph, lengths);
    size_t n;
    if (!ir_tensor_is_constant(t) || dtype_is_float(t->dtype) || !shape_elements(&t->shape, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (map_element_int(t, i) != steps)
            return false;
    return true;
}

/* Takes one index of an axis as a tensor of `shape`; IR_NONE stays IR_NONE. */
static uint32_t emit_pick(struct mapper *m, uint32_t x, uint32_t axis, int64_t index,
                          const struct shape *shape)
{
    if (x == IR_NONE || map_failed(m))
        return IR_NONE;
    if (map_shape(m, x)->dim[axis] > 1)
        x = emit_slice(m, x, axis, index, index + 1);
    return emit_reshape(m, x, shape);
}

/* Checks a scale or zero point of weights [directions, rows, columns]: one for each direction, or
 * for each of its columns. */
static void check_weight_scale(struct mapper *m, uint32_t scale, const struct shape *weights)
{
    const struct shape *shape = map_shape(m, scale);
    char text[SHAPE_TEXT_MAX];
    bool fits = (shape->rank == 1 || (shape->rank == 2 && shape->dim[1] == weights->dim[2])) &&
                shape->dim[0] == weights->dim[0];
    if (!map_failed(m) && !fits)
        map_invalid(m, "a scale or zero point of its weights is %s, expected %lld or [%lld,%lld]",
                    shape_format(shape, text), (long long)weights->dim[0],
                    (long long)weights->dim[0], (long long)weights->dim[2]);
}

/* Gives W or R of integers, operand `i`, as an LSTM has them: floats, [directions, columns, rows].
 * Operand `scale` is followed by the zero point. */
static uint32_t emit_real_weights(struct mapper *m, const struct layer *l, uint32_t i,
                                  uint32_t scale)
{
    uint32_t w = map_in(m, i), by[2] = {map_in(m, scale), map_in(m, scale + 1)};
    uint32_t parts[2] = {IR_NONE, IR_NONE};
    check_operand(m, i == 1 ? "W" : "R", w, 3, 0, l->directions);
    if (map_failed(m))
        return IR_NONE;
    const struct shape whole = *map_shape(m, w);
    const struct shape part = {.rank = 2, .dim = {whole.dim[1], whole.dim[2]}};
    const struct shape turned = {.rank = 3, .dim = {1, whole.dim[2], whole.dim[1]}};
    for (uint32_t d = 0; d < l->directions && !map_failed(m); d++) {
        uint32_t of[2];
        for (uint32_t k = 0; k < 2; k++) {
            check_weight_scale(m, by[k], &whole);
            struct shape one = {.rank = map_shape(m, by[k])->rank - 1, .dim = {whole.dim[2]}};
            of[k] = emit_pick(m, by[k], 0, d, &one);
        }
        const struct quantisation q = {.scale = of[0], .zero = of[1], .axis = 1};
        parts[d] = emit_dequantize(m, emit_pick(m, w, 0, d, &part), &q, map_dtype(m, l->x));
        parts[d] = emit_transpose(m, parts[d], 2, (const int64_t[]){1, 0});
        parts[d] = emit_reshape(m, parts[d], &turned);
    }
    return l->directions == 1 ? parts[0] : emit_concat(m, 2, parts, 0);
}

static void read_operands(struct mapper *m, struct layer *l)
{
    uint32_t states = l->batch_first ? 1 : 0; /* the axis of directions */
    l->x = map_in(m, 0);
    l->w = l->bytes ? emit_real_weights(m, l, 1, 8) : map_in(m, 1);
    l->r = l->bytes ? emit_real_weights(m, l, 2, 10) : map_in(m, 2);
    l->b = map_in_opt(m, 3);
    l->lengths = map_in_opt(m, 4);
    l->h0 = map_in_opt(m, 5);
    l->c0 = lstm_in(m, l, 6);
    l->peephole = lstm_in(m, l, 7);
    if (map_shape(m, l->r)->rank == 3)
        l->hidden = map_attr_int(m, "hidden_size", map_shape(m, l->r)->dim[2]);
    if (l->hidden < 0 || l->hidden > IR_MAX_DIM) {
        map_invalid(m, "attribute 'hidden_size' is %lld", (long long)l->hidden);
        l->hidden = 0;
    }
    if (map_shape(m, l->x)->rank != 3)
        map_invalid(m, "X has rank %u, expected 3", map_shape(m, l->x)->rank);
    check_operand(m, "W", l->w, 3, 0, l->directions);
    check_operand(m, "R", l->r, 3, 0, l->directions);
    check_operand(m, "R", l->r, 3, 2, l->hidden);
    check_operand(m, "W", l->w, 3, 1, map_shape(m, l->r)->dim[1]);
    check_operand(m, "R", l->r, 3, 1, l->cell->gates * l->hidden);
    check_operand(m, "B", l->b, 2, 0, l->directions);
    check_operand(m, "B", l->b, 2, 1, 2 * l->cell->gates * l->hidden);
    check_operand(m, "P", l->peephole, 2, 0, l->directions);
    check_operand(m, "initial_h", l->h0, 3, states, l->directions);
    check_operand(m, "initial_c", l->c0, 3, states, l->directions);
    if (l->batch_first)
        l->x = emit_transpose(m, l->x, 3, (const int64_t[]){1, 0, 2});
    if (map_failed(m))
        return;
    l->steps = map_shape(m, l->x)->dim[0];
    l->sequences = map_shape(m, l->x)->dim[1];
    if (l->lengths != IR_NONE && is_full(m, l->lengths, l->steps))
        l->lengths = IR_NONE;
    map_sequence(m, l->steps);
}

/* --- nodes --- */

/* Makes the bias of the product and, in `inner`, the one that a linear GRU scales. */
static uint32_t emit_biases(struct mapper *m, const struct layer *l, uint32_t d, uint32_t *inner)
{
    int64_t width = l->cell->gates * l->hidden;
    const struct shape both = {.rank = 1, .dim = {2 * width}},
                       gate = {.rank = 1, .dim = {l->hidden}};
    *inner = IR_NONE;
    if (l->b == IR_NONE)
        return IR_NONE;
    uint32_t b = emit_pick(m, l->b, 0, d, &both);
    uint32_t of_inputs = emit_slice(m, b, 0, 0, width);
    uint32_t of_state = emit_slice(m, b, 0, width, 2 * width);
    if (l->cell->kind == IR_RECURRENT_GRU && l->linear) {
        *inner = emit_slice(m, of_state, 0, 2 * l->hidden, width);
        uint32_t parts[] = {emit_slice(m, of_state, 0, 0, 2 * l->hidden), IR_NONE};
        parts[1] = emit_expand(m, emit_scalar(m, map_dtype(m, b), 0), &gate);
        of_state = emit_concat(m, 2, parts, 0);
    }
    return emit_binary(m, IR_BINARY_ADD, of_inputs, of_state);
}

/* Makes x w' + bias for all steps. */
static uint32_t emit_inputs(struct mapper *m, const struct layer *l, uint32_t d, uint32_t bias)
{
    struct shape shape = {.rank = 2};
    if (map_failed(m))
        return IR_NONE;
    memcpy(shape.dim, &map_shape(m, l->w)->dim[1], 2 * sizeof(shape.dim[0]));
    const uint32_t inputs[] = {l->x, emit_pick(m, l->w, 0, d, &shape), bias};
    uint32_t node = emit_begin(m, IR_OP_MATMUL, bias == IR_NONE ? 2 : 3, inputs);
    emit_int(m, node, IR_ATTR_TRANS_B, 1);
    return emit_end(m, node);
}

static void emit_floats(struct mapper *m, uint32_t node, enum ir_attr_key key, uint32_t n,
                        const float *values)
{
    if (!map_failed(m) && !ir_attr_set_floats(m->graph, node, key, n, values))
        map_exhausted(m);
}

/* Makes the nodes of direction d; outputs: y, the last h, the last c. */
static void emit_direction(struct mapper *m, const struct layer *l, uint32_t d, uint32_t *outputs)
{
    const struct choice *choice = &l->choices[d];
    const struct shape state = {.rank = 2, .dim = {l->sequences, l->hidden}};
    const struct shape matrix = {.rank = 2, .dim = {l->cell->gates * l->hidden, l->hidden}};
    const struct shape peephole = {.rank = 1, .dim = {3 * l->hidden}};
    uint32_t inner, axis = l->batch_first ? 1 : 0, bias = emit_biases(m, l, d, &inner);
    const uint32_t inputs[] = {
        emit_inputs(m, l, d, bias),
        emit_pick(m, l->r, 0, d, &matrix),
        l->lengths,
        emit_pick(m, l->h0, axis, d, &state),
        emit_pick(m, l->c0, axis, d, &state),
        emit_pick(m, l->peephole, 0, d, &peephole),
        inner,
    };
    uint32_t n = ARRAY_LEN(inputs);
    while (n > 2 && inputs[n - 1] == IR_NONE)
        n--;
    uint32_t node = emit_begin(m, IR_OP_RECURRENT, n, inputs);
    emit_int(m, node, IR_ATTR_FUNC, l->cell->kind);
    emit_ints(m, node, IR_ATTR_FUNCS, l->cell->n_funcs, choice->funcs);
    emit_floats(m, node, IR_ATTR_ALPHAS, l->cell->n_funcs, choice->alphas);
    emit_floats(m, node, IR_ATTR_BETAS, l->cell->n_funcs, choice->betas);
    if (l->backward || d > 0)
        emit_int(m, node, IR_ATTR_REVERSE, 1);
    if (l->clip != 0)
        emit_float(m, node, IR_ATTR_CLIP, l->clip);
    if (l->cell->kind == IR_RECURRENT_GRU && l->linear)
        emit_int(m, node, IR_ATTR_LINEAR, 1);
    if (l->cell->kind == IR_RECURRENT_LSTM && l->coupled)
        emit_int(m, node, IR_ATTR_COUPLED, 1);
    emit_end_all(m, node, l->cell->kind == IR_RECURRENT_LSTM ? 3 : 2, outputs);
}

/* Puts the directions' tensors side by side along a new axis. */
static uint32_t emit_joined(struct mapper *m, const struct layer *l, const uint32_t *parts,
                            uint32_t axis)
{
    uint32_t wide[2] = {IR_NONE, IR_NONE};
    for (uint32_t d = 0; d < l->directions && !map_failed(m); d++) {
        struct shape shape = *map_shape(m, parts[d]);
        memmove(&shape.dim[axis + 1], &shape.dim[axis], (shape.rank - axis) * sizeof(shape.dim[0]));
        shape.dim[axis] = 1;
        shape.rank++;
        wide[d] = emit_reshape(m, parts[d], &shape);
    }
    return l->directions == 1 ? wide[0] : emit_concat(m, 2, wide, axis);
}

static void map_layer(struct mapper *m, struct layer *l)
{
    uint32_t outputs[2][3], parts[3][2];
    read_attributes(m, l);
    read_operands(m, l);
    for (uint32_t d = 0; d < l->directions && !map_failed(m); d++) {
        outputs[d][2] = IR_NONE;
        emit_direction(m, l, d, outputs[d]);
        for (uint32_t i = 0; i < 3; i++)
            parts[i][d] = outputs[d][i];
        if (l->batch_first && map_out_used(m, 0))
            parts[0][d] = emit_transpose(m, parts[0][d], 3, (const int64_t[]){1, 0, 2});
    }
    if (map_failed(m))
        return;
    if (map_out_used(m, 0))
        map_out(m, 0, emit_joined(m, l, parts[0], l->batch_first ? 2 : 1));
    for (uint32_t i = 1; i < (l->cell->kind == IR_RECURRENT_LSTM ? 3 : 2); i++)
        if (map_out_used(m, i))
            map_out(m, i, emit_joined(m, l, parts[i], l->batch_first ? 1 : 0));
}

void map_recurrent(struct mapper *m)
{
    map_layer(m, &(struct layer){.cell = &cells[m->row->func]});
}

/* onnxruntime's LSTM with weights of integers rounds inputs and states too, at every step; here
 * these stay real numbers. */
void map_dynamic_quantize_lstm(struct mapper *m)
{
    map_layer(m, &(struct layer){.cell = &cells[IR_RECURRENT_LSTM], .bytes = true});
}
