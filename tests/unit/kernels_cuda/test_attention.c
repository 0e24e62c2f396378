/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels against the reference: every variant on random shapes, strides and masks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

enum mask { NONE, KEYS, QUERIES, ALL, COLUMN, ONE_HEAD, HALF, MASKS };

struct attention_case {
    enum dtype dtype;
    int64_t n, heads, kv_heads, sq, sk, d, e;
    bool packed, causal, bools, first; /* first: heads first, but for y */
    enum mask mask;
    int first_variant;
    bool spans;
    enum dtype to; /* y in 8 bits; NONE: as the others */
    bool zeros;    /* the mask hides nothing */
    bool infinite; /* a value is, and a key is NaN */
};

static void case_text(const struct attention_case *c, int variant, char *out, size_t size)
{
    snprintf(out, size,
             "%s n %d heads %d / %d sq %d sk %d d %d e %d packed %d causal %d bools %d first %d "
             "mask %d spans %d to %d variant %d",
             dtype_name(c->dtype), (int)c->n, (int)c->heads, (int)c->kv_heads, (int)c->sq,
             (int)c->sk, (int)c->d, (int)c->e, c->packed, c->causal, c->bools, c->first,
             (int)c->mask, c->spans, (int)c->to, variant);
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

/* Some keys are hidden, and all of them from the last row but one. */
static struct array mask_new(const struct attention_case *c)
{
    const int64_t dims[MASKS][4] = {{1, 1, 1, 1},
                                    {c->n, 1, 1, c->sk},
                                    {c->n, 1, c->sq, c->sk},
                                    {c->n, c->heads, c->sq, c->sk},
                                    {1, c->heads, c->sq, 1},
                                    {1, c->heads, c->sq, c->sk},
                                    {c->n % 2 ? 1 : c->n / 2, c->heads, c->sq, c->sk}};
    struct array mask =
        array_new(c->bools ? DTYPE_BOOL : c->dtype, 4, dims[c->mask], NULL, c->bools ? 1 : 2);
    size_t count = array_count(&mask), row = (size_t)dims[c->mask][3];
    for (size_t i = 0; i < count; i++) {
        bool hidden =
            !c->zeros && (array_draw(5) == 0 || (count > 2 * row && i / row == count / row - 2));
        if (c->bools)
            array_values(&mask)[i] = !hidden;
        else if (hidden)
            array_values(&mask)[i] = array_draw(2) ? -INFINITY : -30;
        else if (c->zeros)
            array_values(&mask)[i] = array_draw(2) ? 0.0F : -0.0F;
    }
    array_store(&mask);
    return mask;
}

/* Those for Hopper: keys that they hold at a time, and heads that they are for. */
static bool pass_takes(const struct attention_case *c, int variant)
{
    static const struct {
        int64_t more_than, keys, queries, least, most;
        enum mask mask; /* the last that it takes */
    } pass[] = {{0, 64, 64, 1, 64, MASKS},
                {0, 128, INT64_MAX, 33, 64, MASKS},
                {128, 208, INT64_MAX, 33, 64, KEYS},
                {208, 256, INT64_MAX, 33, 64, NONE},
                {0, INT64_MAX, INT64_MAX, 1, 128, MASKS},
                {256, INT64_MAX, INT64_MAX, 33, 64, KEYS}};
    int row = variant - KERNEL_ATTENTION_PASS_PAIR;
    if (c->spans && variant != KERNEL_ATTENTION_PASS_BLOCKS)
        return false;
    int64_t columns = c->d > c->e ? c->d : c->e;
    return c->dtype != DTYPE_F32 && c->sq > 16 && c->d % 8 == 0 && c->e % 8 == 0 &&
           c->sk > pass[row].more_than && c->sk <= pass[row].keys && c->sq <= pass[row].queries &&
           (!c->to || (c->e % 16 == 0 && variant != KERNEL_ATTENTION_PASS_256)) &&
           columns >= pass[row].least && columns <= pass[row].most && c->mask <= pass[row].mask;
}

static bool takes(const struct attention_case *c, int variant)
{
    static const int idle[] = {[KERNEL_ATTENTION_128] = 64,
                               [KERNEL_ATTENTION_64] = 32,
                               [KERNEL_ATTENTION_WIDE_128] = 64,
                               [KERNEL_ATTENTION_WIDE_64] = 32,
                               [KERNEL_ATTENTION_PARTS] = 0};
    bool wide = variant == KERNEL_ATTENTION_WIDE_128 || variant == KERNEL_ATTENTION_WIDE_64;
    if (variant == 0 || variant == KERNEL_ATTENTION_PLAIN)
        return true;
    if (variant >= KERNEL_ATTENTION_PASS_PAIR && variant <= KERNEL_ATTENTION_PASS_STREAM)
        return pass_takes(c, variant);
    if (c->dtype == DTYPE_F32 || variant > KERNEL_ATTENTION_PARTS ||
        (wide && (c->d > 128 || c->e > 128)))
        return false;
    if (c->spans && (variant == KERNEL_ATTENTION_SPLIT || variant == KERNEL_ATTENTION_PARTS))
        return false;
    return c->sq > idle[variant] && (variant != KERNEL_ATTENTION_PARTS || c->sk > 64);
}

#define STEP 0.0078125 /* of y in 8 bits, so that the numbers' last bits do not matter */
enum { ZERO = 5 };     /* of UINT8, beside 128 */

static double byte_value(enum dtype type, uint8_t byte)
{
    return STEP * (type == DTYPE_F8   ? (double)f8_to_f32(byte)
                   : type == DTYPE_I8 ? (int8_t)byte
                                      : byte - (128 + ZERO));
}

/* Within a step, or a sixteenth of the number in FP8, whose steps are so large. */
static void check_bytes(enum dtype type, const uint8_t *bytes, const struct array *y,
                        double tolerance, const char *what)
{
    for (size_t i = 0; i < array_count(y); i++) {
        double want = (double)array_values(y)[i], got = byte_value(type, bytes[i]);
        double step = type == DTYPE_F8 ? fabs(want) / 16 + STEP / 512 : STEP * 0.5;
        if (!(fabs(got - want) <= step + tolerance * fmax(1, fabs(want))))
            fail_msg("%s: %zu: %g instead of %g", what, i, got, want);
    }
}

/* Every variant against what is in y. */
static void check_variants(const struct attention_case *c, const struct kernel_attention *a,
                           struct array *y)
{
    double tolerance = c->dtype == DTYPE_F32 ? 1e-5 : c->dtype == DTYPE_F16 ? 2e-3 : 2e-2;
    for (int variant = c->first_variant; variant <= KERNEL_ATTENTION_PASS_STREAM + 1; variant++) {
        char what[200];
        case_text(c, variant, what, sizeof(what));
        struct kernel_call call = {.variant = variant, .multiprocessors = 132, .capability = 90};
        if (variant >= KERNEL_ATTENTION_PASS_PAIR)
            call.multiprocessors = 2; /* blocks with several items */
        struct kernel_call dry = call;
        dry.dry = true;
        struct kernel_attention with = *a;
        uint64_t bytes = kernel_attention_workspace(&call, &with);
        with.workspace = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
        size_t count = array_count(y);
        uint8_t *short_y = aligned_alloc(64, (count + 63) / 64 * 64);
        struct kernel_view to = *a->y;
        if (c->to) {
            to.dtype = c->to;
            to.step = (float)STEP;
            to.zero = c->to == DTYPE_U8 ? 128 + ZERO : 0;
            to.data = memset(short_y, 0x77, count);
            with.y = &to;
        }
        array_poison(y);
        cudaError_t may = kernel_attention(&dry, &with), did = kernel_attention(&call, &with);
        free(with.workspace);
        if (may != did || did != (takes(c, variant) ? cudaSuccess : cudaErrorNotSupported))
            fail_msg("%s: dry %d, launched %d", what, (int)may, (int)did);
        if (takes(c, variant) && c->to)
            check_bytes(c->to, short_y, y, tolerance, what);
        else if (takes(c, variant))
            array_check(y, tolerance, what);
        free(short_y);
    }
}

/* An operand of [n,s,heads*d], or of [n,heads,s,d]. */
static struct array operand_new(const struct attention_case *c, int64_t s, int64_t heads, int64_t d)
{
    if (c->first)
        return ARRAY(c->dtype, NULL, c->n, heads, s, d);
    return ARRAY(c->dtype, NULL, c->n, s, heads * d);
}

static struct kernel_view operand_view(const struct attention_case *c, const struct array *a,
                                       int64_t heads, int64_t d)
{
    return c->first ? a->view : heads_of(a, heads, d, 0);
}

/* Sequences of up to 90 rows, or of many rows up to 300, one behind the other. Some rows see
 * nothing, or name keys that are not there. */
static int32_t *spans_new(const struct attention_case *c)
{
    int32_t *spans = malloc((size_t)c->sq * 2 * sizeof(*spans)), first = 0, rows = (int32_t)c->sq;
    while (first < rows) {
        int32_t end = first + 1 + (int32_t)array_draw(rows > 400 ? 300 : 90);
        end = end < rows ? end : rows;
        for (int32_t i = first; i < end; i++) {
            int odd = (int)array_draw(30);
            spans[2 * i] = odd == 0 ? end : odd == 1 ? -3 : first;
            spans[2 * i + 1] = odd == 2 ? rows + 5 : end;
        }
        first = end;
    }
    return spans;
}

static void check_case(const struct attention_case *c)
{
    int64_t all = c->packed ? c->heads + 2 * c->kv_heads : c->heads;
    struct array q = operand_new(c, c->sq, all, c->d), k = operand_new(c, c->sk, c->kv_heads, c->d);
    struct array v = operand_new(c, c->sk, c->kv_heads, c->e), mask = mask_new(c);
    struct array y = ARRAY(c->dtype, NULL, c->n, c->sq, c->heads * c->e);
    if (c->infinite) {
        array_values(&v)[c->sk / 3 * v.view.stride[1] + 5] = -INFINITY;
        array_values(&v)[c->sk / 2 * v.view.stride[1] + 1] = NAN;
        array_values(&k)[c->sk / 4 * k.view.stride[1] + 2] = NAN;
        array_store(&v), array_store(&k);
    }
    struct ref_attention how = {.heads = c->heads,
                                .kv_heads = c->kv_heads,
                                .scale = 0.7,
                                .packed = c->packed,
                                .causal = c->causal};
    int32_t *spans = c->spans ? spans_new(c) : NULL;
    struct tensor_view pairs = {DTYPE_I32, {3, {1, c->sq, 2}}, spans};
    how.spans = c->spans ? &pairs : NULL;
    struct tensor_view bytes = {DTYPE_BOOL, mask.dense.shape, mask.view.data};
    struct tensor_view hides = c->bools ? bytes : mask.dense;
    void *scratch = malloc(ref_attention_scratch(c->sk));
    ref_attention(&how, &q.dense, c->packed ? NULL : &k.dense, c->packed ? NULL : &v.dense,
                  c->mask ? &hides : NULL, &y.dense, scratch);
    free(scratch);

    struct kernel_view qv = operand_view(c, &q, c->heads, c->d), mv = mask.view;
    struct kernel_view kv = operand_view(c, &k, c->kv_heads, c->d);
    struct kernel_view vv = operand_view(c, &v, c->kv_heads, c->e);
    struct kernel_view yv = heads_of(&y, c->heads, c->e, 0);
    if (c->packed) {
        kv = heads_of(&q, c->kv_heads, c->d, c->heads * c->d);
        vv = heads_of(&q, c->kv_heads, c->d, (c->heads + c->kv_heads) * c->d);
    }
    const int64_t full[] = {c->n, c->heads, c->sq, c->sk};
    for (int d = 0; d < 4; d++) {
        mv.stride[d] = mv.dim[d] == 1 ? 0 : mv.stride[d];
        mv.dim[d] = d == 0 && mv.dim[d] > 1 ? mv.dim[d] : full[d]; /* fewer batches repeat */
    }
    mv.data = c->mask ? mv.data : NULL;
    const struct kernel_attention a = {&qv, &kv, &vv, &mv, &yv, 0.7f, c->causal, NULL, spans};
    check_variants(c, &a, &y);
    free(spans);
    array_free(&q), array_free(&k), array_free(&v), array_free(&y), array_free(&mask);
}

static void test_random(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 16, 24, 32, 40, 64, 64, 72, 80, 128, 5, 33, 160, 256};
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 24; i++) {
        struct attention_case c = {.dtype = dtypes[i % 3],
                                   .n = 1 + array_draw(2),
                                   .kv_heads = 1 + array_draw(2),
                                   .sq = 1 + array_draw(array_draw(3) ? 80 : 20),
                                   .sk = 1 + array_draw(array_draw(3) ? 90 : 270),
                                   .d = sizes[array_draw(ARRAY_LEN(sizes))],
                                   .packed = array_draw(4) == 0,
                                   .causal = array_draw(3) == 0,
                                   .bools = array_draw(3) == 0,
                                   .mask = (enum mask)array_draw(MASKS)};
        c.heads = c.kv_heads * (1 + array_draw(2));
        c.e = array_draw(3) ? c.d : sizes[array_draw(ARRAY_LEN(sizes))];
        c.sk = array_draw(2) ? (c.sk + 15) / 16 * 16 : c.sk; /* masks in whole chunks */
        c.first = !c.packed && array_draw(2);
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
        {DTYPE_F16, 1, 2, 2, 128, 128, 64, 64, .packed = true, .mask = KEYS},
        {DTYPE_F16, 1, 2, 2, 128, 128, 64, 64, .packed = true, .causal = true},
        {DTYPE_F16, 1, 1, 1, 64, 64, 64, 64, .packed = true},
        {DTYPE_BF16, 1, 1, 1, 256, 256, 32, 32, .packed = true, .mask = QUERIES},
        {DTYPE_F16, 1, 1, 1, 197, 197, 64, 64, .packed = true},
        {DTYPE_F16, 2, 3, 3, 49, 49, 32, 32, .packed = true, .mask = ONE_HEAD},
        {DTYPE_F16, 4, 3, 3, 49, 49, 32, 32, .packed = true, .mask = HALF},
        {DTYPE_F32, 6, 2, 2, 9, 9, 16, 16, .mask = HALF},
        {DTYPE_F16, 1, 1, 1, 32, 32, 128, 128, .mask = ALL},
        {DTYPE_F16, 1, 1, 1, 16, 1, 64, 64, .mask = NONE},
        {DTYPE_F16, 1, 2, 2, 1, 300, 64, 64, .mask = KEYS},
        {DTYPE_BF16, 1, 8, 2, 1, 1024, 128, 128, .first = true, .mask = KEYS},
        {DTYPE_F16, 1, 8, 2, 3, 640, 64, 64, .causal = true, .bools = true, .mask = ALL},
        {DTYPE_F16, 1, 1, 1, 90, 40, 64, 64, .causal = true},
        {DTYPE_F16, 1, 1, 1, 2, 4200, 32, 32, .mask = KEYS},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* Sequences in rows one behind the other. */
static void test_spans(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {DTYPE_F16, 1, 2, 2, 200, 200, 64, 64, .packed = true, .spans = true},
        {DTYPE_F16, 1, 2, 2, 129, 129, 64, 64, .packed = true, .causal = true, .spans = true},
        {DTYPE_BF16, 1, 2, 1, 150, 150, 32, 32, .spans = true},
        {DTYPE_F16, 1, 4, 2, 70, 70, 128, 128, .causal = true, .spans = true},
        {DTYPE_F16, 1, 1, 1, 90, 90, 40, 24, .spans = true},
        {DTYPE_BF16, 1, 1, 1, 40, 40, 256, 256, .spans = true},
        {DTYPE_F16, 1, 1, 1, 1, 1, 64, 64, .spans = true},
        {DTYPE_F32, 1, 3, 3, 100, 100, 16, 16, .packed = true, .spans = true},
        {DTYPE_F32, 1, 2, 1, 33, 33, 20, 12, .causal = true, .spans = true},
        {DTYPE_F16, 1, 1, 1, 520, 520, 64, 64, .packed = true, .spans = true},
        {DTYPE_BF16, 1, 1, 1, 410, 410, 128, 128, .spans = true},
        {DTYPE_F16, 1, 1, 1, 410, 410, 96, 80, .causal = true, .spans = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* What is infinite or NaN in one sequence is not seen by others. */
static void test_spans_not_finite(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {DTYPE_F16, 1, 2, 2, 200, 200, 64, 64, .spans = true, .infinite = true},
        {DTYPE_BF16, 1, 2, 1, 150, 150, 32, 32, .spans = true, .infinite = true},
        {DTYPE_F16, 1, 1, 1, 300, 300, 128, 128, .spans = true, .infinite = true},
        {DTYPE_F16, 1, 1, 1, 180, 180, 80, 80, .spans = true, .infinite = true},
        {DTYPE_F16, 1, 1, 1, 60, 60, 200, 200, .spans = true, .infinite = true},
        {DTYPE_F32, 1, 3, 3, 100, 100, 16, 16, .spans = true, .infinite = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* y in 8 bits. */
static void test_bytes(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {DTYPE_F16, 1, 2, 2, 200, 200, 64, 64, .packed = true, .spans = true, .to = DTYPE_F8},
        {DTYPE_F16, 1, 2, 2, 130, 130, 64, 64, .packed = true, .to = DTYPE_I8},
        {DTYPE_BF16, 1, 2, 1, 77, 77, 32, 32, .mask = KEYS, .to = DTYPE_U8},
        {DTYPE_BF16, 1, 2, 1, 140, 150, 128, 128, .causal = true, .to = DTYPE_I8},
        {DTYPE_F16, 1, 2, 2, 101, 177, 80, 96, .mask = ALL, .to = DTYPE_F8},
        {DTYPE_F16, 3, 3, 3, 50, 50, 64, 64, .packed = true, .to = DTYPE_I8},
        {DTYPE_F16, 1, 4, 2, 197, 197, 64, 64, .to = DTYPE_I8},
        {DTYPE_F16, 1, 2, 2, 211, 230, 64, 64, .first = true, .to = DTYPE_F8},
        {DTYPE_F16, 1, 2, 2, 40, 40, 40, 24, .to = DTYPE_I8},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* A row without a single key gives zeros, one with an infinite value or NaN gives NaN, and one with
 * the lowest number for each key the mean of all, as in the reference. */
static void test_not_finite(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int variant = 1; variant <= KERNEL_ATTENTION_PASS_BLOCKS; variant++) {
            const int64_t s = 70;
            if (variant == KERNEL_ATTENTION_PARTS || variant == KERNEL_ATTENTION_PASS_PAIR ||
                variant == KERNEL_ATTENTION_PASS_208 || variant == KERNEL_ATTENTION_PASS_256)
                continue; /* not for so few keys, so many, or this mask */
            struct array q = ARRAY(DTYPE_BF16, NULL, 1, s, 64),
                         k = ARRAY(DTYPE_BF16, NULL, 1, s, 64),
                         v = ARRAY(DTYPE_BF16, NULL, 1, s, 64),
                         y = ARRAY(DTYPE_BF16, NULL, 1, s, 64),
                         mask = ARRAY(DTYPE_BF16, NULL, 1, 1, s, s);
            for (int64_t i = 0; i < s; i++)
                array_values(&mask)[7 * s + i] = kind == 0 ? -INFINITY : -3.38e38;
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
            struct kernel_call call = {.variant = variant, .capability = 90};
            const struct kernel_attention a = {&qv, &kv,   &vv,  &mask.view, &yv,
                                               1,   false, NULL, NULL};
            array_poison(&y);
            assert_int_equal(kernel_attention(&call, &a), cudaSuccess);
            char what[64];
            snprintf(what, sizeof(what), "kind %d variant %d", kind, variant);
            array_check(&y, 2e-2, what);
            array_free(&q), array_free(&k), array_free(&v), array_free(&y), array_free(&mask);
        }
}

/* Hopper's variants: odd lengths, all masks, heads of every row of their table. */
static void test_pass(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {DTYPE_F16, 3, 3, 3, 50, 50, 64, 64, .packed = true},
        {DTYPE_BF16, 1, 3, 1, 64, 61, 32, 32, .causal = true, .mask = ALL},
        {DTYPE_F16, 2, 4, 4, 49, 49, 32, 32, .bools = true, .mask = QUERIES},
        {DTYPE_F16, 2, 2, 2, 129, 128, 64, 64, .mask = KEYS},
        {DTYPE_BF16, 3, 3, 3, 128, 128, 64, 64, .mask = KEYS},
        {DTYPE_F16, 1, 1, 1, 70, 100, 64, 64, .causal = true, .mask = KEYS},
        {DTYPE_F16, 1, 5, 1, 128, 127, 64, 64, .causal = true},
        {DTYPE_BF16, 1, 3, 3, 77, 77, 48, 64, .mask = COLUMN},
        {DTYPE_F16, 1, 4, 2, 197, 197, 64, 64, .packed = true},
        {DTYPE_BF16, 2, 1, 1, 130, 197, 64, 64, .causal = true, .bools = true, .mask = KEYS},
        {DTYPE_F16, 1, 2, 2, 211, 230, 64, 64, .first = true},
        {DTYPE_F16, 1, 1, 1, 256, 256, 64, 64, .causal = true},
        {DTYPE_F16, 2, 2, 1, 150, 300, 64, 64, .causal = true, .mask = KEYS},
        {DTYPE_F16, 1, 2, 1, 200, 420, 64, 64, .mask = NONE},
        {DTYPE_F16, 2, 2, 2, 129, 128, 64, 64, .mask = KEYS, .zeros = true},
        {DTYPE_F16, 1, 1, 1, 140, 320, 64, 64, .mask = ALL, .zeros = true},
        {DTYPE_BF16, 1, 1, 1, 260, 330, 64, 64, .causal = true, .mask = KEYS},
        {DTYPE_F16, 1, 2, 2, 101, 177, 80, 96, .mask = ALL},
        {DTYPE_BF16, 1, 2, 1, 140, 150, 128, 128, .causal = true, .bools = true, .mask = HALF},
        {DTYPE_F16, 1, 2, 2, 200, 77, 24, 16, .causal = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attention_case c = cases[i];
        c.first_variant = KERNEL_ATTENTION_PASS_PAIR;
        check_case(&c);
    }
    struct kernel_call old = {.dry = true, .variant = KERNEL_ATTENTION_PASS_BLOCKS};
    struct array q = ARRAY(DTYPE_F16, NULL, 1, 64, 64);
    struct kernel_view qv = heads_of(&q, 1, 64, 0), none = {0};
    const struct kernel_attention a = {&qv, &qv, &qv, &none, &qv, 1, false, NULL, NULL};
    for (old.capability = 80; old.capability <= 100; old.capability += 10)
        assert_int_equal(kernel_attention(&old, &a),
                         old.capability == 90 ? cudaSuccess : cudaErrorNotSupported);
    array_free(&q);
}

static cudaError_t ask(const struct kernel_view *q, const struct kernel_view *k, float scale,
                       int variant)
{
    struct kernel_view none = {0};
    struct kernel_call dry = {.dry = true, .variant = variant};
    const struct kernel_attention a = {q, k, q, &none, q, scale, false, NULL, NULL};
    return kernel_attention(&dry, &a);
}

static void test_refused(void **state)
{
    (void)state;
    struct array q = ARRAY(DTYPE_F16, NULL, 1, 4, 264), k = ARRAY(DTYPE_F32, NULL, 1, 4, 264);
    struct kernel_view qv = heads_of(&q, 1, 264, 0), kv = heads_of(&k, 1, 64, 0);
    /* Refused are a head of more than 256 columns, operands of different types, and columns that
     * are not adjacent; and on tensor cores a scale that is not positive. */
    assert_int_equal(ask(&qv, &qv, 1, 0), cudaErrorNotSupported);
    qv = heads_of(&q, 1, 64, 0);
    assert_int_equal(ask(&qv, &qv, 1, 0), cudaSuccess);
    assert_int_equal(ask(&qv, &qv, 1, KERNEL_ATTENTION_SPLIT), cudaSuccess);
    assert_int_equal(ask(&qv, &qv, -1, 0), cudaSuccess);
    assert_int_equal(ask(&qv, &qv, -1, KERNEL_ATTENTION_SPLIT), cudaErrorNotSupported);
    assert_int_equal(ask(&qv, &kv, 1, 0), cudaErrorNotSupported);
    kv = qv;
    kv.stride[3] = 2;
    assert_int_equal(ask(&qv, &kv, 1, 0), cudaErrorNotSupported);
    array_free(&q), array_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_pass),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_spans_not_finite),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
