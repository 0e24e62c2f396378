/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RNN, LSTM, GRU. A layer becomes two nodes: a product of all steps' inputs with the weights, whose
 * tactic is chosen like any other's, and a RECURRENT node for what depends on the step before, each
 * for both directions if there are two. The product adds all biases except the one that a linear
 * GRU scales.
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

/* Takes the tensor as one of rank 1 or 2; IR_NONE stays IR_NONE. */
static uint32_t emit_as(struct mapper *m, uint32_t x, uint32_t rank, int64_t rows, int64_t columns)
{
    const struct shape shape = {.rank = rank, .dim = {rows, columns}};
    return x == IR_NONE || map_failed(m) ? IR_NONE : emit_reshape(m, x, &shape);
}

/* Makes the bias of the product and, in `inner`, the one that a linear GRU scales. */
static uint32_t emit_biases(struct mapper *m, const struct layer *l, uint32_t *inner)
{
    int64_t width = l->cell->gates * l->hidden;
    const struct shape gate = {.rank = 2, .dim = {l->directions, l->hidden}};
    *inner = IR_NONE;
    if (l->b == IR_NONE)
        return IR_NONE;
    uint32_t of_inputs = emit_slice(m, l->b, 1, 0, width);
    uint32_t of_state = emit_slice(m, l->b, 1, width, 2 * width);
    if (l->cell->kind == IR_RECURRENT_GRU && l->linear) {
        *inner = emit_slice(m, of_state, 1, 2 * l->hidden, width);
        uint32_t parts[] = {emit_slice(m, of_state, 1, 0, 2 * l->hidden), IR_NONE};
        parts[1] = emit_expand(m, emit_scalar(m, map_dtype(m, l->b), 0), &gate);
        of_state = emit_concat(m, 2, parts, 1);
    }
    *inner = emit_as(m, *inner, 1, l->directions * l->hidden, 0);
    return emit_as(m, emit_binary(m, IR_BINARY_ADD, of_inputs, of_state), 1, l->directions * width,
                   0);
}

/* Makes x w' + bias for all steps. */
static uint32_t emit_inputs(struct mapper *m, const struct layer *l, uint32_t bias)
{
    if (map_failed(m))
        return IR_NONE;
    uint32_t w =
        emit_as(m, l->w, 2, l->directions * l->cell->gates * l->hidden, map_shape(m, l->w)->dim[2]);
    const uint32_t inputs[] = {l->x, w, bias};
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

/* Takes a state that comes with the layer, [directions, sequences, hidden] or, batch first,
 * [sequences, directions, hidden], as rows. */
static uint32_t emit_state(struct mapper *m, const struct layer *l, uint32_t x)
{
    if (x != IR_NONE && l->batch_first)
        x = emit_transpose(m, x, 3, (const int64_t[]){1, 0, 2});
    return emit_as(m, x, 2, l->directions * l->sequences, l->hidden);
}

static void emit_attributes(struct mapper *m, const struct layer *l, uint32_t node)
{
    int64_t funcs[2 * MAX_FUNCS];
    float alphas[2 * MAX_FUNCS], betas[2 * MAX_FUNCS];
    uint32_t n = (uint32_t)l->directions * l->cell->n_funcs;
    for (uint32_t i = 0; i < n; i++) {
        const struct choice *from = &l->choices[i / l->cell->n_funcs];
        funcs[i] = from->funcs[i % l->cell->n_funcs];
        alphas[i] = from->alphas[i % l->cell->n_funcs];
        betas[i] = from->betas[i % l->cell->n_funcs];
    }
    emit_int(m, node, IR_ATTR_FUNC, l->cell->kind);
    emit_ints(m, node, IR_ATTR_FUNCS, n, funcs);
    emit_floats(m, node, IR_ATTR_ALPHAS, n, alphas);
    emit_floats(m, node, IR_ATTR_BETAS, n, betas);
    if (l->backward || l->directions == 2)
        emit_int(m, node, IR_ATTR_REVERSE, l->backward ? IR_WAY_BACK : IR_WAY_BOTH);
    if (l->clip != 0)
        emit_float(m, node, IR_ATTR_CLIP, l->clip);
    if (l->cell->kind == IR_RECURRENT_GRU && l->linear)
        emit_int(m, node, IR_ATTR_LINEAR, 1);
    if (l->cell->kind == IR_RECURRENT_LSTM && l->coupled)
        emit_int(m, node, IR_ATTR_COUPLED, 1);
}

/* Makes the layer's nodes; outputs: y, the last h, the last c. */
static void emit_layer(struct mapper *m, const struct layer *l, uint32_t *outputs)
{
    int64_t rows = l->directions * l->cell->gates * l->hidden;
    uint32_t inner, bias = emit_biases(m, l, &inner);
    const uint32_t inputs[] = {
        emit_inputs(m, l, bias),
        emit_as(m, l->r, 2, rows, l->hidden),
        l->lengths,
        emit_state(m, l, l->h0),
        emit_state(m, l, l->c0),
        emit_as(m, l->peephole, 1, l->directions * 3 * l->hidden, 0),
        inner,
    };
    uint32_t n = ARRAY_LEN(inputs);
    while (n > 2 && inputs[n - 1] == IR_NONE)
        n--;
    uint32_t node = emit_begin(m, IR_OP_RECURRENT, n, inputs);
    emit_attributes(m, l, node);
    emit_end_all(m, node, l->cell->kind == IR_RECURRENT_LSTM ? 3 : 2, outputs);
}

/* Gives y as ONNX has it: [steps, directions, sequences, hidden], or batch first [sequences, steps,
 * directions, hidden]. */
static uint32_t emit_output(struct mapper *m, const struct layer *l, uint32_t y)
{
    struct shape apart = {.rank = 4, .dim = {l->steps, l->sequences, l->directions, l->hidden}};
    if (map_failed(m))
        return IR_NONE;
    if (l->directions == 1 && !l->batch_first) { /* nothing moves */
        apart.dim[1] = 1;
        apart.dim[2] = l->sequences;
        return emit_reshape(m, y, &apart);
    }
    y = emit_reshape(m, y, &apart);
    return emit_transpose(
        m, y, 4, l->batch_first ? (const int64_t[]){1, 0, 2, 3} : (const int64_t[]){0, 2, 1, 3});
}

/* Gives a last state as ONNX has it. */
static uint32_t emit_last(struct mapper *m, const struct layer *l, uint32_t x)
{
    const struct shape apart = {.rank = 3, .dim = {l->directions, l->sequences, l->hidden}};
    x = map_failed(m) ? IR_NONE : emit_reshape(m, x, &apart);
    return l->batch_first ? emit_transpose(m, x, 3, (const int64_t[]){1, 0, 2}) : x;
}

static void map_layer(struct mapper *m, struct layer *l)
{
    uint32_t outputs[3] = {IR_NONE, IR_NONE, IR_NONE};
    read_attributes(m, l);
    read_operands(m, l);
    if (map_failed(m))
        return;
    emit_layer(m, l, outputs);
    if (map_failed(m))
        return;
    if (map_out_used(m, 0))
        map_out(m, 0, emit_output(m, l, outputs[0]));
    for (uint32_t i = 1; i < (l->cell->kind == IR_RECURRENT_LSTM ? 3 : 2); i++)
        if (map_out_used(m, i))
            map_out(m, i, emit_last(m, l, outputs[i]));
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
