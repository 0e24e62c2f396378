/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recurrent layer, one direction after the other, step by step. The state is kept in double from
 * step to step; a row of the recurrent matrix is converted once a step for all sequences.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

static const int64_t gates_of[] = {
    [IR_RECURRENT_RNN] = 1, [IR_RECURRENT_LSTM] = 4, [IR_RECURRENT_GRU] = 3};
static const uint32_t functions_of[] = {
    [IR_RECURRENT_RNN] = 1, [IR_RECURRENT_LSTM] = 3, [IR_RECURRENT_GRU] = 2};

/* Numbers are double, and arrays are [sequences][hidden] unless a comment says otherwise. */
struct state {
    const struct ref_recurrent *how;
    int64_t directions, direction; /* how many, and which one this is */
    int64_t steps, sequences, hidden, gates;
    double *h, *c, *reset; /* reset: r * h of a GRU */
    double *sums;          /* [sequences][gates][hidden] */
    double *peephole;      /* [3][hidden] */
    double *bias;          /* [hidden] */
    int64_t *left;         /* [sequences]: steps of each */
};

static double call(const struct state *s, uint32_t f, double x)
{
    uint32_t own = (uint32_t)s->direction * functions_of[s->how->cell] + f;
    double a = s->how->alphas[own], b = s->how->betas[own], clip = s->how->clip;
    if (clip > 0 && f < 2) /* the LSTM's third function takes the cell state as it is */
        x = x < -clip ? -clip : x > clip ? clip : x;
    switch (s->how->funcs[own]) {
    case IR_UNARY_RELU:
        return x < 0 ? 0 : x;
    case IR_UNARY_LEAKY_RELU:
        return x < 0 ? a * x : x;
    case IR_UNARY_ELU:
        return x < 0 ? a * expm1(x) : x;
    case IR_UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    case IR_UNARY_TANH:
        return a * tanh(b * x);
    case IR_UNARY_THRESHOLDED_RELU:
        return x > a ? x : 0;
    case IR_UNARY_HARD_SIGMOID:
        x = a * x + b;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    case IR_UNARY_SOFTPLUS:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case IR_UNARY_SOFTSIGN:
        return x / (1 + fabs(x));
    case IR_UNARY_LINEAR:
        return a * x + b;
    default:
        return x;
    }
}

/* Where, counted in hidden elements of one direction, sequence n of a step lies in X, which has all
 * gates of it, or in Y. */
static int64_t place(const struct state *s, int64_t at, int64_t n, int64_t gates)
{
    return ((at * s->sequences + n) * s->directions + s->direction) * gates;
}

/* Adds the products of rows first..end-1 of the matrix with each sequence's `from` to the sums. */
static void add_products(const struct state *s, int64_t first, int64_t end, const double *from)
{
    const struct tensor_view *r = s->how->r;
    double row[REF_ROW];
    int64_t own = s->direction * s->gates * s->hidden; /* rows of the directions before */
    for (int64_t g = first; g < end; g++)
        for (int64_t k = 0; k < s->hidden; k += REF_ROW) {
            size_t part = (size_t)MIN(s->hidden - k, REF_ROW);
            ref_read_f64(r->dtype, r->data, (own + g) * s->hidden + k, 1, part, row);
            for (int64_t n = 0; n < s->sequences; n++) {
                const double *v = from + n * s->hidden + k;
                double sum = 0;
                for (size_t i = 0; i < part; i++)
                    sum += row[i] * v[i];
                s->sums[n * s->gates * s->hidden + g] += sum;
            }
        }
}

/* Sets the sums of sequence n to what the inputs give. The hidden gate of a linear GRU begins with
 * the bias instead, because its product is scaled first. */
static void begin_sums(const struct state *s, int64_t n, int64_t at)
{
    const struct tensor_view *x = s->how->x;
    int64_t width = s->gates * s->hidden;
    double *sums = s->sums + n * width;
    for (int64_t k = 0; k < width; k += REF_ROW)
        ref_read_f64(x->dtype, x->data, place(s, at, n, s->gates) * s->hidden + k, 1,
                     (size_t)MIN(width - k, REF_ROW), sums + k);
    if (s->how->cell == IR_RECURRENT_GRU && s->how->linear)
        memcpy(sums + 2 * s->hidden, s->bias, (size_t)s->hidden * sizeof(*sums));
}

static void step_rnn(const struct state *s, int64_t n)
{
    for (int64_t j = 0; j < s->hidden; j++)
        s->h[n * s->hidden + j] = call(s, 0, s->sums[n * s->hidden + j]);
}

static void step_lstm(const struct state *s, int64_t n)
{
    int64_t size = s->hidden;
    const double *sums = s->sums + n * 4 * size, *p = s->peephole;
    double *h = s->h + n * size, *c = s->c + n * size;
    for (int64_t j = 0; j < size; j++) {
        double i = call(s, 0, sums[j] + p[j] * c[j]);
        double f =
            s->how->coupled ? 1 - i : call(s, 0, sums[2 * size + j] + p[2 * size + j] * c[j]);
        c[j] = f * c[j] + i * call(s, 1, sums[3 * size + j]);
        h[j] = call(s, 0, sums[size + j] + p[size + j] * c[j]) * call(s, 2, c[j]);
    }
}

/* Puts z and r in the place of their sums, and computes r * h, which the hidden gate's product may
 * need. */
static void open_gru(const struct state *s, int64_t n)
{
    double *sums = s->sums + n * 3 * s->hidden;
    for (int64_t j = 0; j < 2 * s->hidden; j++)
        sums[j] = call(s, 0, sums[j]);
    for (int64_t j = 0; j < s->hidden; j++)
        s->reset[n * s->hidden + j] = sums[s->hidden + j] * s->h[n * s->hidden + j];
}

static void close_gru(const struct state *s, int64_t n, int64_t at)
{
    const struct tensor_view *x = s->how->x;
    int64_t size = s->hidden;
    const double *sums = s->sums + n * 3 * size;
    for (int64_t j = 0; j < size; j++) {
        double inner = sums[2 * size + j];
        if (s->how->linear)
            inner = inner * sums[size + j] +
                    ref_get_f64(x->dtype, x->data, (place(s, at, n, 3) + 2) * size + j);
        double *h = &s->h[n * size + j];
        *h = (1 - sums[j]) * call(s, 1, inner) + sums[j] * *h;
    }
}

/* The position of sequence n in this step; `steps` if the sequence has ended. */
static int64_t position(const struct state *s, int64_t n, int64_t step)
{
    if (step >= s->left[n])
        return s->steps;
    bool back = s->how->way == IR_WAY_BACK || s->direction > 0;
    return back ? s->left[n] - 1 - step : step;
}

static void run_step(const struct state *s, int64_t step)
{
    int64_t size = s->hidden;
    bool gru = s->how->cell == IR_RECURRENT_GRU, again = gru && !s->how->linear;
    for (int64_t n = 0; n < s->sequences; n++)
        begin_sums(s, n, MIN(position(s, n, step), s->steps - 1));
    add_products(s, 0, again ? 2 * size : s->gates * size, s->h);
    for (int64_t n = 0; gru && n < s->sequences; n++)
        open_gru(s, n);
    if (again)
        add_products(s, 2 * size, 3 * size, s->reset);
    for (int64_t n = 0; n < s->sequences; n++) {
        int64_t at = position(s, n, step);
        if (at == s->steps)
            continue;
        if (gru)
            close_gru(s, n, at);
        else if (s->how->cell == IR_RECURRENT_LSTM)
            step_lstm(s, n);
        else
            step_rnn(s, n);
        ref_write_f64(s->how->y->dtype, s->how->y->data, place(s, at, n, 1) * size, 1, (size_t)size,
                      s->h + n * size);
    }
}

enum status ref_recurrent_length(const struct tensor_view *lengths, int64_t n, int64_t steps,
                                 int64_t *out, struct error *err)
{
    int64_t length = lengths ? ref_get_i64(lengths->dtype, lengths->data, n) : steps;
    if (length < 0 || length > steps)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "sequence %" PRId64 " has %" PRId64 " steps, not 0 to %" PRId64, n, length,
                         steps);
    *out = length;
    return STATUS_OK;
}

/* Loads the direction's `count` numbers of an operand, or zeros if it is absent. */
static void load(const struct state *s, const struct tensor_view *from, int64_t count, double *to)
{
    if (from)
        ref_read_f64(from->dtype, from->data, s->direction * count, 1, (size_t)count, to);
    else
        memset(to, 0, (size_t)count * sizeof(*to));
}

static struct state state_of(const struct ref_recurrent *how, double *scratch)
{
    struct state s = {.how = how, .steps = how->x->shape.dim[0]};
    s.sequences = how->x->shape.dim[1];
    s.directions = ir_way_directions(how->way);
    s.gates = gates_of[how->cell];
    s.hidden = how->x->shape.dim[2] / (s.directions * s.gates);
    int64_t all = s.sequences * s.hidden;
    s.h = scratch;
    s.c = s.h + all;
    s.reset = s.c + all;
    s.sums = s.reset + all;
    s.peephole = s.sums + s.gates * all;
    s.bias = s.peephole + 3 * s.hidden;
    s.left = (int64_t *)(void *)(s.bias + s.hidden);
    return s;
}

size_t ref_recurrent_scratch(const struct shape *x, enum ir_recurrent cell, enum ir_way way)
{
    int64_t n = x->dim[1], h = x->dim[2] / (ir_way_directions(way) * gates_of[cell]);
    return (size_t)(n * h * (3 + gates_of[cell]) + 4 * h) * sizeof(double) +
           (size_t)n * sizeof(int64_t);
}

enum status ref_recurrent(const struct ref_recurrent *how, void *scratch, struct error *err)
{
    struct state s = state_of(how, scratch);
    const struct tensor_view *y = how->y;
    int64_t all = s.sequences * s.hidden;
    for (int64_t n = 0; n < s.sequences; n++)
        TRY(ref_recurrent_length(how->lengths, n, s.steps, &s.left[n], err));
    memset(y->data, 0, (size_t)(s.steps * s.directions * all) * dtype_size(y->dtype));
    for (; s.direction < s.directions; s.direction++) {
        load(&s, how->h0, all, s.h);
        load(&s, how->c0, all, s.c);
        load(&s, how->peephole, 3 * s.hidden, s.peephole);
        load(&s, how->bias, s.hidden, s.bias);
        for (int64_t step = 0; step < s.steps; step++)
            run_step(&s, step);
        int64_t at = s.direction * all;
        ref_write_f64(how->h_last->dtype, how->h_last->data, at, 1, (size_t)all, s.h);
        if (how->c_last)
            ref_write_f64(how->c_last->dtype, how->c_last->data, at, 1, (size_t)all, s.c);
    }
    return STATUS_OK;
}
