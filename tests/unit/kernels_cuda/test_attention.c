/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels against the reference: every variant on random shapes, strides and masks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

struct attention_case {
    enum dtype dtype;
    int64_t n, heads, sq, sk, d, e;
    bool packed;
    int mask; /* see mask_dims; 0: none */
};

static void case_text(const struct attention_case *c, int variant, char *out, size_t size)
{
    snprintf(out, size, "%s n %d heads %d sq %d sk %d d %d e %d packed %d mask %d variant %d",
             dtype_name(c->dtype), (int)c->n, (int)c->heads, (int)c->sq, (int)c->sk, (int)c->d,
             (int)c->e, c->packed, c->mask, variant);
}

/* [N,S,H*D] as [N,H,S,D], from column `first` of each row on. */
static struct kernel_view heads_of(const struct array *a, int64_t heads, int64_t d, int64_t first)
{
    struct kernel_view v = {
        .dtype = a->view.dtype,
        .rank = 4,
        .dim = {a->view.dim[0], heads, a->view.dim[1], d},
        .stride = {a->view.stride[0], d, a->view.stride[1], 1},
        .data = (char *)a->view.data + (size_t)first * dtype_size((enum dtype)a->view.dtype),
    };
    return v;
}

static struct array mask_new(const struct attention_case *c)
{
    const int64_t dims[][4] = {{1, 1, 1, 1},
                               {c->n, 1, 1, c->sk},
                               {c->n, 1, c->sq, c->sk},
                               {c->n, c->heads, c->sq, c->sk},
                               {1, c->heads, c->sq, 1}};
    struct array mask = array_new(c->dtype, 4, dims[c->mask], NULL, 2);
    for (size_t i = 0; i < array_count(&mask); i++)
        if (array_draw(5) == 0)
            array_values(&mask)[i] = array_draw(2) ? -INFINITY : -30;
    array_store(&mask);
    return mask;
}

static void check_case(const struct attention_case *c)
{
    int64_t wide = c->packed ? 3 * c->heads * c->d : c->heads * c->d;
    struct array q = ARRAY(c->dtype, NULL, c->n, c->sq, wide);
    struct array k = ARRAY(c->dtype, NULL, c->n, c->sk, c->heads * c->d);
    struct array v = ARRAY(c->dtype, NULL, c->n, c->sk, c->heads * c->e);
    struct array y = ARRAY(c->dtype, NULL, c->n, c->sq, c->heads * c->e);
    struct array mask = mask_new(c);
    struct ref_attention how = {.heads = c->heads, .scale = 0.7, .packed = c->packed};
    void *scratch = malloc(ref_attention_scratch(c->sk));
    ref_attention(&how, &q.dense, c->packed ? NULL : &k.dense, c->packed ? NULL : &v.dense,
                  c->mask ? &mask.dense : NULL, &y.dense, scratch);
    free(scratch);

    struct kernel_view qv = heads_of(&q, c->heads, c->d, 0), yv = heads_of(&y, c->heads, c->e, 0);
    struct kernel_view kv = heads_of(&k, c->heads, c->d, 0), vv = heads_of(&v, c->heads, c->e, 0);
    if (c->packed) {
        kv = heads_of(&q, c->heads, c->d, c->heads * c->d);
        vv = heads_of(&q, c->heads, c->d, 2 * c->heads * c->d);
    }
    struct kernel_view mv = mask.view;
    for (int d = 0; d < 4; d++)
        if (mv.dim[d] == 1)
            mv.stride[d] = 0;
    mv.dim[0] = c->n, mv.dim[1] = c->heads, mv.dim[2] = c->sq, mv.dim[3] = c->sk;
    if (!c->mask)
        mv.data = NULL;
    double tolerance = c->dtype == DTYPE_F32 ? 1e-5 : c->dtype == DTYPE_F16 ? 2e-3 : 2e-2;
    bool chunks = c->dtype != DTYPE_F32 && c->d % 8 == 0 && c->e % 8 == 0;
    for (int variant = 0; variant <= 6; variant++) {
        char what[160];
        case_text(c, variant, what, sizeof(what));
        struct kernel_call dry = {.variant = variant, .dry = true, .multiprocessors = 132};
        struct kernel_call call = {.variant = variant, .multiprocessors = 132};
        array_poison(&y);
        cudaError_t may = kernel_attention(&dry, 0.7f, &qv, &kv, &vv, &mv, &yv);
        cudaError_t did = kernel_attention(&call, 0.7f, &qv, &kv, &vv, &mv, &yv);
        bool takes = variant == 0 || variant == KERNEL_ATTENTION_PLAIN ||
                     (chunks && variant < KERNEL_ATTENTION_PLAIN);
        if (may != did || did != (takes ? cudaSuccess : cudaErrorNotSupported))
            fail_msg("%s: dry %d, launched %d", what, (int)may, (int)did);
        if (takes)
            array_check(&y, tolerance, what);
    }
    array_free(&q), array_free(&k), array_free(&v), array_free(&y), array_free(&mask);
}

static void test_random(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 16, 24, 32, 40, 64, 64, 72, 80, 128, 5, 33};
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 30; i++) {
        struct attention_case c = {.dtype = dtypes[i % 3],
                                   .n = 1 + array_draw(2),
                                   .heads = 1 + array_draw(3),
                                   .sq = 1 + array_draw(140),
                                   .sk = 1 + array_draw(150),
                                   .d = sizes[array_draw(ARRAY_LEN(sizes))],
                                   .packed = array_draw(3) == 0,
                                   .mask = (int)array_draw(5)};
        c.e = array_draw(3) ? c.d : sizes[array_draw(ARRAY_LEN(sizes))];
        if (c.packed) {
            c.e = c.d;
            c.sk = c.sq;
        }
        check_case(&c);
    }
}

/* Sizes that the tiles divide exactly, and the shapes of well-known networks. */
static void test_exact(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {DTYPE_F16, 1, 2, 128, 128, 64, 64, true, 1},  {DTYPE_F16, 1, 1, 64, 64, 64, 64, true, 0},
        {DTYPE_BF16, 1, 1, 256, 256, 32, 32, true, 2}, {DTYPE_F16, 1, 1, 197, 197, 64, 64, true, 0},
        {DTYPE_F16, 1, 1, 32, 32, 128, 128, false, 3}, {DTYPE_F16, 1, 1, 16, 1, 64, 64, false, 0},
        {DTYPE_F16, 1, 2, 1, 300, 64, 64, false, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* Rows without a single key, with infinities and with NaN give NaN, as in the reference. */
static void test_not_finite(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int variant = 1; variant <= KERNEL_ATTENTION_PLAIN; variant++) {
            const int64_t s = 40;
            struct array q = ARRAY(DTYPE_F16, NULL, 1, s, 64), k = ARRAY(DTYPE_F16, NULL, 1, s, 64);
            struct array v = ARRAY(DTYPE_F16, NULL, 1, s, 64), y = ARRAY(DTYPE_F16, NULL, 1, s, 64);
            struct array mask = ARRAY(DTYPE_F16, NULL, 1, 1, s, s);
            for (int64_t i = 0; i < s; i++)
                array_values(&mask)[7 * s + i] = kind == 0 ? -INFINITY : -65504;
            if (kind == 1)
                array_values(&q)[9 * 64 + 3] = NAN;
            if (kind == 2)
                array_values(&v)[11 * 64 + 5] = INFINITY;
            array_store(&mask), array_store(&q), array_store(&v);
            struct ref_attention how = {.heads = 1, .scale = 1};
            void *scratch = malloc(ref_attention_scratch(s));
            ref_attention(&how, &q.dense, &k.dense, &v.dense, &mask.dense, &y.dense, scratch);
            free(scratch);
            struct kernel_view qv = heads_of(&q, 1, 64, 0), kv = heads_of(&k, 1, 64, 0);
            struct kernel_view vv = heads_of(&v, 1, 64, 0), yv = heads_of(&y, 1, 64, 0);
            struct kernel_call call = {.variant = variant};
            array_poison(&y);
            assert_int_equal(kernel_attention(&call, 1, &qv, &kv, &vv, &mask.view, &yv),
                             cudaSuccess);
            char what[64];
            snprintf(what, sizeof(what), "kind %d variant %d", kind, variant);
            array_check(&y, 2e-3, what);
            array_free(&q), array_free(&k), array_free(&v), array_free(&y), array_free(&mask);
        }
}

static void test_refused(void **state)
{
    (void)state;
    struct array q = ARRAY(DTYPE_F16, NULL, 1, 4, 136), k = ARRAY(DTYPE_F32, NULL, 1, 4, 136);
    struct kernel_view qv = heads_of(&q, 1, 136, 0), kv = heads_of(&k, 1, 64, 0), none = {0};
    struct kernel_call dry = {.dry = true};
    /* Refused are a head of more than 128 columns, operands of different types, and columns that
     * are not adjacent. */
    assert_int_equal(kernel_attention(&dry, 1, &qv, &qv, &qv, &none, &qv), cudaErrorNotSupported);
    qv = heads_of(&q, 1, 64, 0);
    assert_int_equal(kernel_attention(&dry, 1, &qv, &qv, &qv, &none, &qv), cudaSuccess);
    assert_int_equal(kernel_attention(&dry, 1, &qv, &kv, &qv, &none, &qv), cudaErrorNotSupported);
    kv = qv;
    kv.stride[3] = 2;
    assert_int_equal(kernel_attention(&dry, 1, &qv, &kv, &qv, &none, &qv), cudaErrorNotSupported);
    array_free(&q), array_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
