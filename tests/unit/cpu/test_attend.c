/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of every instruction set that this machine has, against the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/fast.h"
#include "tests/unit/cpu/views.h"

static const struct fast_kernels *tables[FAST_MAX];
static size_t n_tables;

static int setup(void **state UNUSED)
{
    n_tables = fast_kernels_list(tables);
    return 0;
}

struct form {
    int queries, keys, dim, out_dim;
    enum dtype mask;
    bool shared; /* one mask for all queries */
    bool causal;
};

/* Operands of one head; the mask is [queries][keys], or [1][keys] if it is shared. */
struct operands {
    float *q, *k, *v, *y, *want, *scratch;
    void *mask;
};

static float *numbers(int64_t n, uint32_t seed)
{
    float *out = malloc((size_t)n * sizeof(*out) + 1); /* never of no bytes */
    fill_random(out, (size_t)n, seed);
    return out;
}

/* About a third of a mask's elements hide their keys. */
static void *make_mask(const struct form *f, uint32_t seed)
{
    int64_t n = (int64_t)(f->shared ? 1 : f->queries) * f->keys;
    float *out = numbers(n, seed);
    uint8_t *bools = (uint8_t *)out;
    for (int64_t i = 0; i < n; i++) {
        bool hidden = out[i] < -0.3F;
        if (f->mask == DTYPE_BOOL)
            bools[i] = !hidden;
        else if (hidden)
            out[i] = -INFINITY;
    }
    return out;
}

static void want_reference(const struct form *f, const struct operands *o)
{
    const struct ref_attention how = {.heads = 1, .scale = 0.7, .causal = f->causal};
    struct tensor_view q = VIEW(DTYPE_F32, o->q, 1, f->queries, f->dim);
    struct tensor_view k = VIEW(DTYPE_F32, o->k, 1, f->keys, f->dim);
    struct tensor_view v = VIEW(DTYPE_F32, o->v, 1, f->keys, f->out_dim);
    struct tensor_view y = VIEW(DTYPE_F32, o->want, 1, f->queries, f->out_dim);
    struct tensor_view mask = VIEW(f->mask, o->mask, f->shared ? 1 : f->queries, f->keys);
    void *scratch = malloc(ref_attention_scratch(f->keys) + 1);
    ref_attention(&how, &q, &k, &v, f->mask == DTYPE_NONE ? NULL : &mask, &y, scratch);
    free(scratch);
}

static void run(const struct form *f, const struct operands *o, attend_run attend)
{
    struct attend a = {.keys = f->keys, .dim = f->dim, .out_dim = f->out_dim};
    a.k = o->k;
    a.v = o->v;
    a.k_row = f->dim;
    a.v_row = f->out_dim;
    a.scale = 0.7F;
    a.mask = f->mask;
    a.mask_step = 1;
    a.mask_shared = f->shared;
    a.scratch = o->scratch;
    for (int first = 0; first < f->queries; first += ATTEND_QUERIES) {
        a.n = MIN(f->queries - first, ATTEND_QUERIES);
        for (int i = 0; i < a.n; i++) {
            int row = first + i, seen = row + f->keys - f->queries + 1;
            struct attend_query *query = &a.query[i];
            query->q = o->q + (ptrdiff_t)row * f->dim;
            query->y = o->y + (ptrdiff_t)row * f->out_dim;
            query->seen = f->causal ? MAX(MIN(seen, f->keys), 0) : f->keys;
            query->mask = (char *)o->mask + (ptrdiff_t)(f->shared ? 0 : row) * f->keys *
                                                (f->mask == DTYPE_BOOL ? 1 : 4);
        }
        attend(&a);
    }
}

static void check(const struct form *f, uint32_t seed)
{
    size_t n = (size_t)(f->queries * f->out_dim);
    struct operands o = {
        .q = numbers((int64_t)f->queries * f->dim, seed),
        .k = numbers((int64_t)f->keys * f->dim, seed + 1),
        .v = numbers((int64_t)f->keys * f->out_dim, seed + 2),
        .mask = make_mask(f, seed + 3),
        .y = malloc(n * sizeof(float)),
        .want = malloc(n * sizeof(float)),
    };
    size_t scratch = (size_t)attend_scratch(f->dim, f->out_dim) * sizeof(float);
    o.scratch = aligned_alloc(64, (scratch + 63) / 64 * 64);
    want_reference(f, &o);
    for (size_t i = 0; i < n_tables; i++) {
        memset(o.y, 0xff, n * sizeof(float));
        memset(o.scratch, 0xff, scratch);
        run(f, &o, tables[i]->attend);
        assert_floats(o.y, o.want, n, 2e-6);
    }
    void *all[] = {o.q, o.k, o.v, o.mask, o.y, o.want, o.scratch};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void test_attend_table(void **state UNUSED)
{
    static const struct form forms[] = {
        {128, 128, 64, 64, DTYPE_NONE, false, false}, {197, 197, 64, 64, DTYPE_F32, true, false},
        {49, 49, 32, 32, DTYPE_F32, false, false},    {70, 200, 8, 16, DTYPE_BOOL, false, true},
        {1, 300, 64, 64, DTYPE_NONE, false, false},   {2, 65, 40, 24, DTYPE_F32, true, true},
        {3, 130, 7, 5, DTYPE_BOOL, true, false},      {4, 130, 7, 5, DTYPE_BOOL, true, true},
        {65, 1, 1, 1, DTYPE_NONE, false, false},      {100, 20, 16, 100, DTYPE_NONE, false, true},
        {16, 16, 200, 3, DTYPE_F32, false, true},     {9, 0, 4, 4, DTYPE_NONE, false, false},
        {1, 0, 4, 4, DTYPE_NONE, false, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        check(&forms[i], 1 + 4 * (uint32_t)i);
}

static int below(uint32_t *state, int n)
{
    *state = *state * 1664525U + 1013904223U;
    return (int)(*state >> 8) % n;
}

static void test_attend_random(void **state UNUSED)
{
    static const enum dtype masks[] = {DTYPE_NONE, DTYPE_F32, DTYPE_BOOL};
    uint32_t seed = 7;
    for (uint32_t i = 0; i < 150; i++) {
        struct form f = {.queries = 1 + below(&seed, i % 2 ? 150 : 6)};
        f.keys = 1 + below(&seed, 150);
        f.dim = 1 + below(&seed, 70);
        f.out_dim = 1 + below(&seed, 70);
        f.mask = masks[below(&seed, 3)];
        f.shared = below(&seed, 2);
        f.causal = below(&seed, 2);
        check(&f, 100 + 4 * i);
    }
}

/* Scores that grow from block to block, so that each block corrects the sums before it, and a NaN,
 * which spoils its own query only. */
static void test_attend_extremes(void **state UNUSED)
{
    enum { Q = 20, K = 200, D = 4 };
    for (int few = 0; few < 2; few++)
        for (size_t t = 0; t < n_tables; t++) {
            struct form f = {few ? 2 : Q, K, D, D, DTYPE_NONE, false, false};
            float q[Q * D], k[K * D], v[K * D], y[Q * D], want[Q * D];
            struct operands o = {q, k, v, y, want, NULL, NULL};
            o.scratch = aligned_alloc(64, (size_t)attend_scratch(D, D) * sizeof(float));
            fill_random(v, K * D, 1);
            for (int i = 0; i < Q * D; i++)
                q[i] = 1;
            for (int i = 0; i < K * D; i++)
                k[i] = (float)(i / D) * 0.5F;
            q[1] = NAN;
            want_reference(&f, &o);
            run(&f, &o, tables[t]->attend);
            assert_true(isnan(y[0]));
            assert_floats(y, want, (size_t)(f.queries * D), 4e-6);
            free(o.scratch);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attend_table),
        cmocka_unit_test(test_attend_random),
        cmocka_unit_test(test_attend_extremes),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
