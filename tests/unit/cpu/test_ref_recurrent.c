/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers against cells that are written out number by number from the operators' text,
 * in every arrangement of operands; lengths, directions, types, and lengths that are wrong.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

enum { STEPS = 5, BATCH = 3, HIDDEN = 7, GATES = 4, LARGE = 300, ROOM = GATES * LARGE * LARGE };

static float xs[ROOM], rs[ROOM], h0s[ROOM], c0s[ROOM], ps[ROOM], bs[ROOM];
static float ys[ROOM], hs[ROOM], cs[ROOM], want_y[ROOM], want_h[ROOM], want_c[ROOM];
static double scratch[ROOM];

/* One case; NULL lengths: all steps. */
struct layer {
    enum ir_recurrent cell;
    int64_t steps, batch, hidden;
    bool reverse, linear, coupled, states, peephole, bias;
    double clip;
    const int32_t *lengths;
};

static double clipped(const struct layer *l, double x)
{
    return l->clip > 0 ? fmin(fmax(x, -l->clip), l->clip) : x;
}

static double sigmoid(const struct layer *l, double x)
{
    return 1 / (1 + exp(-clipped(l, x)));
}

/* Row `gate`, unit j of the matrix times v. */
static double product(const struct layer *l, int gate, int64_t j, const double *v)
{
    double sum = 0;
    for (int64_t k = 0; k < l->hidden; k++)
        sum += (double)rs[(gate * l->hidden + j) * l->hidden + k] * v[k];
    return sum;
}

/* The input's contribution to unit j of a gate. */
static double given(const struct layer *l, int gates, int gate, int64_t j, int64_t t, int64_t n)
{
    return (double)xs[((t * l->batch + n) * gates + gate) * l->hidden + j];
}

static double eye(const struct layer *l, int gate, int64_t j)
{
    return l->peephole ? (double)ps[gate * l->hidden + j] : 0;
}

static void gru_step(const struct layer *l, int64_t t, int64_t n, double *h)
{
    double reset[LARGE], next[LARGE], z[LARGE], r[LARGE];
    for (int64_t j = 0; j < l->hidden; j++) {
        z[j] = sigmoid(l, given(l, 3, 0, j, t, n) + product(l, 0, j, h));
        r[j] = sigmoid(l, given(l, 3, 1, j, t, n) + product(l, 1, j, h));
        reset[j] = r[j] * h[j];
    }
    for (int64_t j = 0; j < l->hidden; j++) {
        double state = product(l, 2, j, reset);
        if (l->linear)
            state = r[j] * (product(l, 2, j, h) + (l->bias ? (double)bs[j] : 0));
        next[j] = (1 - z[j]) * tanh(clipped(l, given(l, 3, 2, j, t, n) + state)) + z[j] * h[j];
    }
    memcpy(h, next, sizeof(next));
}

static void lstm_step(const struct layer *l, int64_t t, int64_t n, double *h, double *c)
{
    double next[LARGE];
    for (int64_t j = 0; j < l->hidden; j++) {
        double i = sigmoid(l, given(l, 4, 0, j, t, n) + product(l, 0, j, h) + eye(l, 0, j) * c[j]);
        double f = sigmoid(l, given(l, 4, 2, j, t, n) + product(l, 2, j, h) + eye(l, 2, j) * c[j]);
        double g = tanh(clipped(l, given(l, 4, 3, j, t, n) + product(l, 3, j, h)));
        c[j] = (l->coupled ? 1 - i : f) * c[j] + i * g;
        double o = sigmoid(l, given(l, 4, 1, j, t, n) + product(l, 1, j, h) + eye(l, 1, j) * c[j]);
        next[j] = o * tanh(c[j]);
    }
    memcpy(h, next, sizeof(next));
}

static void rnn_step(const struct layer *l, int64_t t, int64_t n, double *h)
{
    double next[LARGE];
    for (int64_t j = 0; j < l->hidden; j++)
        next[j] = tanh(clipped(l, given(l, 1, 0, j, t, n) + product(l, 0, j, h)));
    memcpy(h, next, sizeof(next));
}

static void expect_sequence(const struct layer *l, int64_t n)
{
    double h[LARGE], c[LARGE];
    int64_t length = l->lengths ? l->lengths[n] : l->steps;
    for (int64_t j = 0; j < l->hidden; j++) {
        h[j] = l->states ? (double)h0s[n * l->hidden + j] : 0;
        c[j] = l->states ? (double)c0s[n * l->hidden + j] : 0;
    }
    for (int64_t i = 0; i < l->steps; i++)
        for (int64_t j = 0; j < l->hidden; j++)
            want_y[(i * l->batch + n) * l->hidden + j] = 0;
    for (int64_t i = 0; i < length; i++) {
        int64_t t = l->reverse ? length - 1 - i : i;
        if (l->cell == IR_RECURRENT_GRU)
            gru_step(l, t, n, h);
        else if (l->cell == IR_RECURRENT_LSTM)
            lstm_step(l, t, n, h, c);
        else
            rnn_step(l, t, n, h);
        for (int64_t j = 0; j < l->hidden; j++)
            want_y[(t * l->batch + n) * l->hidden + j] = (float)h[j];
    }
    for (int64_t j = 0; j < l->hidden; j++) {
        want_h[n * l->hidden + j] = (float)h[j];
        want_c[n * l->hidden + j] = (float)c[j];
    }
}

static int64_t gates_of(enum ir_recurrent cell)
{
    return cell == IR_RECURRENT_LSTM ? 4 : cell == IR_RECURRENT_GRU ? 3 : 1;
}

static struct ref_recurrent functions_of(const struct layer *l)
{
    struct ref_recurrent how = {.cell = l->cell,
                                .funcs = {IR_UNARY_SIGMOID, IR_UNARY_TANH, IR_UNARY_TANH},
                                .alphas = {1, 1, 1},
                                .betas = {1, 1, 1},
                                .clip = l->clip,
                                .way = l->reverse ? IR_WAY_BACK : IR_WAY_AHEAD,
                                .linear = l->linear,
                                .coupled = l->coupled};
    if (l->cell == IR_RECURRENT_RNN)
        how.funcs[0] = IR_UNARY_TANH;
    return how;
}

static void check(struct layer l)
{
    int64_t width = gates_of(l.cell) * l.hidden;
    struct tensor_view x = VIEW(DTYPE_F32, xs, l.steps, l.batch, width);
    struct tensor_view r = VIEW(DTYPE_F32, rs, width, l.hidden);
    struct tensor_view h0 = VIEW(DTYPE_F32, h0s, l.batch, l.hidden), c0 = h0;
    struct tensor_view p = VIEW(DTYPE_F32, ps, 3 * l.hidden), b = VIEW(DTYPE_F32, bs, l.hidden);
    struct tensor_view lengths = VIEW(DTYPE_I32, (void *)(uintptr_t)l.lengths, l.batch);
    struct tensor_view y = POISONED(DTYPE_F32, ys, l.steps, l.batch, l.hidden);
    struct tensor_view h = POISONED(DTYPE_F32, hs, l.batch, l.hidden);
    struct tensor_view c = POISONED(DTYPE_F32, cs, l.batch, l.hidden);
    bool lstm = l.cell == IR_RECURRENT_LSTM;
    c0.data = c0s;
    for (int64_t n = 0; n < l.batch; n++)
        expect_sequence(&l, n);
    struct ref_recurrent how = functions_of(&l);
    how.x = &x;
    how.r = &r;
    how.lengths = l.lengths ? &lengths : NULL;
    how.h0 = l.states ? &h0 : NULL;
    how.c0 = l.states && lstm ? &c0 : NULL;
    how.peephole = l.peephole ? &p : NULL;
    how.bias = l.bias ? &b : NULL;
    how.y = &y;
    how.h_last = &h;
    how.c_last = lstm ? &c : NULL;
    assert_true(ref_recurrent_scratch(&x.shape, l.cell, how.way) <= sizeof(scratch));
    assert_int_equal(ref_recurrent(&how, scratch, NULL), STATUS_OK);
    assert_floats(ys, want_y, (size_t)(l.steps * l.batch * l.hidden), 1e-6);
    assert_floats(hs, want_h, (size_t)(l.batch * l.hidden), 1e-6);
    if (lstm)
        assert_floats(cs, want_c, (size_t)(l.batch * l.hidden), 1e-6);
}

#define CHECK(kind, n_steps, n_batch, n_hidden, ...)                                               \
    check((struct layer){.cell = (kind),                                                           \
                         .steps = (n_steps),                                                       \
                         .batch = (n_batch),                                                       \
                         .hidden = (n_hidden),                                                     \
                         __VA_ARGS__})

static const int32_t uneven[BATCH] = {2, 5, 0};

static void test_rnn(void **state UNUSED)
{
    CHECK(IR_RECURRENT_RNN, STEPS, BATCH, HIDDEN, .clip = 0);
    CHECK(IR_RECURRENT_RNN, STEPS, BATCH, HIDDEN, .reverse = true, .states = true);
    CHECK(IR_RECURRENT_RNN, STEPS, BATCH, HIDDEN, .clip = 0.25, .lengths = uneven);
}

static void test_lstm(void **state UNUSED)
{
    CHECK(IR_RECURRENT_LSTM, STEPS, BATCH, HIDDEN, .clip = 0);
    CHECK(IR_RECURRENT_LSTM, STEPS, BATCH, HIDDEN, .states = true, .peephole = true);
    CHECK(IR_RECURRENT_LSTM, STEPS, BATCH, HIDDEN, .coupled = true, .clip = 0.5);
    CHECK(IR_RECURRENT_LSTM, STEPS, BATCH, HIDDEN, .reverse = true, .states = true,
          .lengths = uneven);
}

static void test_gru(void **state UNUSED)
{
    CHECK(IR_RECURRENT_GRU, STEPS, BATCH, HIDDEN, .clip = 0);
    CHECK(IR_RECURRENT_GRU, STEPS, BATCH, HIDDEN, .linear = true, .states = true);
    CHECK(IR_RECURRENT_GRU, STEPS, BATCH, HIDDEN, .linear = true, .bias = true, .reverse = true,
          .lengths = uneven);
    CHECK(IR_RECURRENT_GRU, STEPS, BATCH, HIDDEN, .clip = 0.25);
}

/* Part d of two, `each` floats long, of each of `n` neighbours. */
static void pick(const float *from, int64_t n, int64_t each, int64_t d, float *to)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * each, from + (2 * i + d) * each, (size_t)each * sizeof(*to));
}

static struct ref_recurrent both_ways(bool gru)
{
    struct ref_recurrent how = {.cell = gru ? IR_RECURRENT_GRU : IR_RECURRENT_LSTM,
                                .way = IR_WAY_BOTH,
                                .linear = gru,
                                .funcs = {IR_UNARY_SIGMOID, IR_UNARY_TANH, IR_UNARY_TANH,
                                          IR_UNARY_SIGMOID, IR_UNARY_SOFTSIGN, IR_UNARY_TANH},
                                .alphas = {1, 1, 1, 1, 1, 1},
                                .betas = {1, 1, 1, 1, 1, 1}};
    if (gru) {
        how.funcs[2] = IR_UNARY_SIGMOID;
        how.funcs[3] = IR_UNARY_SOFTSIGN;
    }
    return how;
}

/* Both ways give what each gives by itself. */
static void check_both_ways(bool gru)
{
    enum { N = BATCH, H = HIDDEN };
    static float x1[ROOM], y1[ROOM], h1[ROOM], c1[ROOM], part[ROOM];
    int64_t width = (gru ? 3 : 4) * H, n_funcs = gru ? 2 : 3;
    struct tensor_view x = VIEW(DTYPE_F32, xs, STEPS, N, 2 * width);
    struct tensor_view r = VIEW(DTYPE_F32, rs, 2 * width, H), h0 = VIEW(DTYPE_F32, h0s, 2 * N, H);
    struct tensor_view c0 = VIEW(DTYPE_F32, c0s, 2 * N, H), p = VIEW(DTYPE_F32, ps, 2 * 3 * H);
    struct tensor_view b = VIEW(DTYPE_F32, bs, 2 * H);
    struct tensor_view lengths = VIEW(DTYPE_I32, (void *)(uintptr_t)uneven, N);
    struct tensor_view y = POISONED(DTYPE_F32, ys, STEPS, N, 2 * H);
    struct tensor_view h = POISONED(DTYPE_F32, hs, 2 * N, H), c = POISONED(DTYPE_F32, cs, 2 * N, H);
    struct ref_recurrent how = both_ways(gru);
    how.x = &x, how.r = &r, how.lengths = &lengths, how.h0 = &h0, how.y = &y, how.h_last = &h;
    if (gru)
        how.bias = &b;
    else
        how.c0 = &c0, how.peephole = &p, how.c_last = &c;
    assert_true(ref_recurrent_scratch(&x.shape, how.cell, how.way) <= sizeof(scratch));
    assert_int_equal(ref_recurrent(&how, scratch, NULL), STATUS_OK);
    for (int64_t d = 0; d < 2; d++) {
        struct tensor_view xd = VIEW(DTYPE_F32, x1, STEPS, N, width);
        struct tensor_view rd = VIEW(DTYPE_F32, rs + d * width * H, width, H);
        struct tensor_view hd = VIEW(DTYPE_F32, h0s + d * N * H, N, H);
        struct tensor_view cd = VIEW(DTYPE_F32, c0s + d * N * H, N, H);
        struct tensor_view pd = VIEW(DTYPE_F32, ps + d * 3 * H, 3 * H);
        struct tensor_view bd = VIEW(DTYPE_F32, bs + d * H, H);
        struct tensor_view yd = POISONED(DTYPE_F32, y1, STEPS, N, H);
        struct tensor_view hl = POISONED(DTYPE_F32, h1, N, H), cl = POISONED(DTYPE_F32, c1, N, H);
        struct ref_recurrent one = how;
        pick(xs, STEPS * N, width, d, x1);
        one.way = d ? IR_WAY_BACK : IR_WAY_AHEAD;
        memcpy(one.funcs, how.funcs + d * n_funcs, (size_t)n_funcs * sizeof(one.funcs[0]));
        one.x = &xd, one.r = &rd, one.h0 = &hd, one.y = &yd, one.h_last = &hl;
        one.bias = gru ? &bd : NULL;
        if (!gru)
            one.c0 = &cd, one.peephole = &pd, one.c_last = &cl;
        assert_int_equal(ref_recurrent(&one, scratch, NULL), STATUS_OK);
        pick(ys, STEPS * N, H, d, part);
        assert_floats(part, y1, (size_t)(STEPS * N * H), 0);
        assert_floats(hs + d * N * H, h1, (size_t)(N * H), 0);
        if (!gru)
            assert_floats(cs + d * N * H, c1, (size_t)(N * H), 0);
    }
}

static void test_both_ways(void **state UNUSED)
{
    check_both_ways(false);
    check_both_ways(true);
}

/* Rows are longer than what the kernel converts at a time. With no step at all the first state
 * comes back. */
static void test_sizes(void **state UNUSED)
{
    CHECK(IR_RECURRENT_GRU, 2, 2, LARGE - 1, .clip = 0);
    CHECK(IR_RECURRENT_LSTM, 1, 1, LARGE - 1, .states = true);
    CHECK(IR_RECURRENT_LSTM, 0, BATCH, HIDDEN, .states = true);
    CHECK(IR_RECURRENT_RNN, 1, 1, 1, .clip = 0);
}

/* Each function by one step of one unit: h' = f(x). */
static void test_functions(void **state UNUSED)
{
    static const struct {
        enum ir_unary func;
        double alpha, beta, x, want;
    } rows[] = {
        {IR_UNARY_IDENTITY, 0, 0, -1.5, -1.5},
        {IR_UNARY_RELU, 0, 0, -1.5, 0},
        {IR_UNARY_RELU, 0, 0, 1.5, 1.5},
        {IR_UNARY_LEAKY_RELU, 0.25, 0, -2, -0.5},
        {IR_UNARY_ELU, 2, 0, -1, 2 * (0.36787944117144233 - 1)},
        {IR_UNARY_SIGMOID, 0, 0, 1, 0.73105857863000490},
        {IR_UNARY_TANH, 0.5, 2, 0.5, 0.5 * 0.76159415595576485},
        {IR_UNARY_THRESHOLDED_RELU, 1, 0, 0.5, 0},
        {IR_UNARY_THRESHOLDED_RELU, 1, 0, 1.5, 1.5},
        {IR_UNARY_HARD_SIGMOID, 0.5, 0.25, 1, 0.75},
        {IR_UNARY_HARD_SIGMOID, 0.5, 0.25, 9, 1},
        {IR_UNARY_SOFTPLUS, 0, 0, 0, 0.69314718055994531},
        {IR_UNARY_SOFTPLUS, 0, 0, 1000, 1000},
        {IR_UNARY_SOFTSIGN, 0, 0, -3, -0.75},
        {IR_UNARY_LINEAR, 2, 1, 3, 7},
    };
    double x, r = 0, y, h;
    struct tensor_view xv = VIEW(DTYPE_F64, &x, 1, 1, 1), rv = VIEW(DTYPE_F64, &r, 1, 1);
    struct tensor_view yv = VIEW(DTYPE_F64, &y, 1, 1, 1), hv = VIEW(DTYPE_F64, &h, 1, 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ref_recurrent how = {.cell = IR_RECURRENT_RNN,
                                    .funcs = {rows[i].func},
                                    .alphas = {rows[i].alpha},
                                    .betas = {rows[i].beta},
                                    .x = &xv,
                                    .r = &rv,
                                    .y = &yv,
                                    .h_last = &hv};
        x = rows[i].x;
        assert_int_equal(ref_recurrent(&how, scratch, NULL), STATUS_OK);
        assert_doubles(&y, &rows[i].want, 1, 1e-15);
        assert_doubles(&h, &rows[i].want, 1, 1e-15);
    }
}

static void test_wrong_lengths_are_refused(void **state UNUSED)
{
    static const int32_t wrong[][2] = {{0, 6}, {-1, 5}, {5, INT32_MAX}};
    struct tensor_view x = VIEW(DTYPE_F32, xs, 5, 2, 3), r = VIEW(DTYPE_F32, rs, 3, 3);
    struct tensor_view y = VIEW(DTYPE_F32, ys, 5, 2, 3), h = VIEW(DTYPE_F32, hs, 2, 3);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct tensor_view lengths = VIEW(DTYPE_I32, (void *)(uintptr_t)wrong[i], 2);
        struct ref_recurrent how = {.cell = IR_RECURRENT_RNN,
                                    .funcs = {IR_UNARY_TANH},
                                    .x = &x,
                                    .r = &r,
                                    .lengths = &lengths,
                                    .y = &y,
                                    .h_last = &h};
        struct error err;
        assert_int_equal(ref_recurrent(&how, scratch, &err), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "not 0 to 5"));
    }
}

/* Half precision: operands are read as halves and results rounded when stored, but the state
 * between steps is not rounded. */
static void test_half_precision(void **state UNUSED)
{
    uint16_t x[3], r[1], y[3], h[1];
    double want = 0;
    for (int i = 0; i < 3; i++)
        x[i] = f32_to_f16(0.25F * (float)(i + 1));
    r[0] = f32_to_f16(0.5F);
    struct tensor_view xv = VIEW(DTYPE_F16, x, 3, 1, 1), rv = VIEW(DTYPE_F16, r, 1, 1);
    struct tensor_view yv = VIEW(DTYPE_F16, y, 3, 1, 1), hv = VIEW(DTYPE_F16, h, 1, 1);
    struct ref_recurrent how = {.cell = IR_RECURRENT_RNN,
                                .funcs = {IR_UNARY_TANH},
                                .alphas = {1},
                                .betas = {1},
                                .x = &xv,
                                .r = &rv,
                                .y = &yv,
                                .h_last = &hv};
    assert_int_equal(ref_recurrent(&how, scratch, NULL), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        want = tanh(0.25 * (i + 1) + 0.5 * want);
        assert_int_equal(y[i], f32_to_f16((float)want));
    }
    assert_int_equal(h[0], y[2]);
}

static int setup(void **state UNUSED)
{
    fill_random(xs, ROOM, 1);
    fill_random(rs, ROOM, 2);
    fill_random(h0s, ROOM, 3);
    fill_random(c0s, ROOM, 4);
    fill_random(ps, ROOM, 5);
    fill_random(bs, ROOM, 6);
    for (size_t i = 0; i < ROOM; i++)
        rs[i] *= 0.3F;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_lstm),
        cmocka_unit_test(test_gru),
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_wrong_lengths_are_refused),
        cmocka_unit_test(test_half_precision),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
