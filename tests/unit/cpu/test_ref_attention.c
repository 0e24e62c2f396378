/* SPDX-License-Identifier: Apache-2.0 */
/* Attention against the sum over keys, head by head, in every arrangement of operands. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

/* There are more queries than the kernel takes at a time. In the second case dims are longer than
 * its row buffer. */
enum { BATCH = 2, MOST = 1 << 18 };

static float qs[MOST], ks[MOST], vs[MOST], masks[MOST], ys[MOST], want[MOST];
static double scratch[MOST];

struct sizes {
    int heads, queries, keys, dim, out_dim;
};

/* One row of one head. The tensor's rows have `width` elements, and the head begins `at` elements
 * into a row. */
static const float *row_of(const float *data, int n, int rows, int row, int width, int at)
{
    return data + ((ptrdiff_t)n * rows + row) * width + at;
}

static void attend(const struct sizes *s, double scale, const float *q, int q_width, const float *k,
                   int k_width, const float *v, int v_width, bool masked, int n, int h)
{
    for (int i = 0; i < s->queries; i++) {
        double p[512], highest = -INFINITY, sum = 0;
        const float *query = row_of(q, n, s->queries, i, q_width, h * s->dim);
        for (int j = 0; j < s->keys; j++) {
            const float *key = row_of(k, n, s->keys, j, k_width, h * s->dim);
            p[j] = 0;
            for (int d = 0; d < s->dim; d++)
                p[j] += (double)query[d] * (double)key[d];
            p[j] = p[j] * scale + (masked ? (double)masks[n * s->keys + j] : 0);
            highest = fmax(highest, p[j]);
        }
        for (int j = 0; j < s->keys; j++)
            sum += p[j] = exp(p[j] - highest);
        for (int e = 0; e < s->out_dim; e++) {
            double y = 0;
            for (int j = 0; j < s->keys; j++)
                y += p[j] * (double)*row_of(v, n, s->keys, j, v_width, h * s->out_dim + e);
            want[((n * s->queries + i) * s->heads + h) * s->out_dim + e] = (float)(y / sum);
        }
    }
}

static void check(struct sizes s, bool masked)
{
    struct ref_attention how = {.heads = s.heads, .scale = 0.3};
    for (int n = 0; n < BATCH; n++)
        for (int h = 0; h < s.heads; h++)
            attend(&s, how.scale, qs, s.heads * s.dim, ks, s.heads * s.dim, vs, s.heads * s.out_dim,
                   masked, n, h);
    struct tensor_view q = VIEW(DTYPE_F32, qs, BATCH, s.queries, s.heads * s.dim);
    struct tensor_view k = VIEW(DTYPE_F32, ks, BATCH, s.keys, s.heads * s.dim);
    struct tensor_view v = VIEW(DTYPE_F32, vs, BATCH, s.keys, s.heads * s.out_dim);
    struct tensor_view mask = VIEW(DTYPE_F32, masks, BATCH, 1, 1, s.keys);
    struct tensor_view y = POISONED(DTYPE_F32, ys, BATCH, s.queries, s.heads * s.out_dim);
    assert_true(ref_attention_scratch(s.keys) <= sizeof(scratch));
    ref_attention(&how, &q, &k, &v, masked ? &mask : NULL, &y, scratch);
    assert_floats(ys, want, (size_t)(BATCH * s.queries * s.heads * s.out_dim), 1e-6);
}

static int setup(void **state UNUSED)
{
    fill_random(qs, MOST, 1);
    fill_random(ks, MOST, 2);
    fill_random(vs, MOST, 3);
    fill_random(masks, MOST, 4);
    return 0;
}

static void test_attention_of_heads(void **state UNUSED)
{
    static const struct sizes all[] = {
        {3, 19, 11, 8, 5}, {1, 9, 300, 260, 270}, {2, 1, 1, 1, 1}, {12, 8, 16, 4, 4}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        check(all[i], false);
        check(all[i], true);
    }
}

static void test_attention_packed(void **state UNUSED)
{
    struct sizes s = {.heads = 3, .queries = 19, .keys = 19, .dim = 4, .out_dim = 4};
    struct ref_attention how = {.heads = s.heads, .scale = 0.5, .packed = true};
    int width = 3 * s.heads * s.dim;
    for (int n = 0; n < BATCH; n++)
        for (int h = 0; h < s.heads; h++)
            attend(&s, how.scale, qs, width, qs + width / 3, width, qs + 2 * width / 3, width,
                   false, n, h);
    struct tensor_view q = VIEW(DTYPE_F32, qs, BATCH, s.queries, width);
    struct tensor_view y = POISONED(DTYPE_F32, ys, BATCH, s.queries, width / 3);
    ref_attention(&how, &q, NULL, NULL, NULL, &y, scratch);
    assert_floats(ys, want, (size_t)(BATCH * s.queries * width / 3), 1e-6);
}

/* A mask of each rank: by key, by query and key, by head, and one for all. */
static void test_attention_masks_broadcast(void **state UNUSED)
{
    enum { H = 2, Q = 3, K = 4, D = 2 };
    const struct ref_attention how = {.heads = H, .scale = 1};
    static const int64_t dims[][4] = {{1, 1, 1, K}, {1, 1, Q, K}, {1, H, Q, 1}, {BATCH, H, Q, K}};
    struct tensor_view q = VIEW(DTYPE_F32, qs, BATCH, Q, H * D);
    struct tensor_view k = VIEW(DTYPE_F32, ks, BATCH, K, H * D);
    struct tensor_view v = VIEW(DTYPE_F32, vs, BATCH, K, H * D);
    for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
        static float full[BATCH * H * Q * K], other[BATCH * Q * H * D];
        struct tensor_view mask = view_of(DTYPE_F32, masks, 4, dims[i]);
        struct tensor_view whole = POISONED(DTYPE_F32, full, BATCH, H, Q, K);
        struct tensor_view y = POISONED(DTYPE_F32, ys, BATCH, Q, H * D);
        struct tensor_view z = POISONED(DTYPE_F32, other, BATCH, Q, H * D);
        ref_expand(&mask, &whole);
        ref_attention(&how, &q, &k, &v, &mask, &y, scratch);
        ref_attention(&how, &q, &k, &v, &whole, &z, scratch);
        assert_floats(ys, other, ARRAY_LEN(other), 0);
    }
    /* A mask of lower rank. */
    struct tensor_view mask = VIEW(DTYPE_F32, masks, K), same = VIEW(DTYPE_F32, masks, 1, 1, 1, K);
    struct tensor_view y = POISONED(DTYPE_F32, ys, BATCH, Q, H * D);
    struct tensor_view z = POISONED(DTYPE_F32, want, BATCH, Q, H * D);
    ref_attention(&how, &q, &k, &v, &mask, &y, scratch);
    ref_attention(&how, &q, &k, &v, &same, &z, scratch);
    assert_floats(ys, want, BATCH * Q * H * D, 0);
}

/* A mask of one window of two for each image. */
static void test_attention_masks_repeat(void **state UNUSED)
{
    enum { N = 6, M = 3, H = 2, Q = 3, D = 2 };
    static float full[N * H * Q * Q];
    const struct ref_attention how = {.heads = H, .scale = 1};
    struct tensor_view q = VIEW(DTYPE_F32, qs, N, Q, H * D), k = VIEW(DTYPE_F32, ks, N, Q, H * D);
    struct tensor_view v = VIEW(DTYPE_F32, vs, N, Q, H * D);
    struct tensor_view mask = VIEW(DTYPE_F32, masks, M, H, Q, Q);
    struct tensor_view whole = VIEW(DTYPE_F32, full, N, H, Q, Q);
    struct tensor_view y = POISONED(DTYPE_F32, ys, N, Q, H * D);
    struct tensor_view z = POISONED(DTYPE_F32, want, N, Q, H * D);
    memcpy(full, masks, sizeof(full) / 2);
    memcpy(full + M * H * Q * Q, masks, sizeof(full) / 2);
    ref_attention(&how, &q, &k, &v, &mask, &y, scratch);
    ref_attention(&how, &q, &k, &v, &whole, &z, scratch);
    assert_floats(ys, want, N * Q * H * D, 0);
}

/* Keys hidden by an infinite mask do not count, however large they are. Without any keys the answer
 * is zero. */
static void test_attention_at_the_ends(void **state UNUSED)
{
    float q[2] = {1, 2}, k[4] = {3, 4, 1e30F, 1e30F}, v[4] = {5, 6, 7, 8}, m[2] = {0, -INFINITY};
    float y[2];
    const float first[2] = {5, 6}, zeros[2] = {0, 0};
    const struct ref_attention how = {.heads = 1, .scale = 1};
    struct tensor_view vq = VIEW(DTYPE_F32, q, 1, 1, 2), vk = VIEW(DTYPE_F32, k, 1, 2, 2);
    struct tensor_view vv = VIEW(DTYPE_F32, v, 1, 2, 2), vm = VIEW(DTYPE_F32, m, 2);
    struct tensor_view vy = POISONED(DTYPE_F32, y, 1, 1, 2);
    ref_attention(&how, &vq, &vk, &vv, &vm, &vy, scratch);
    assert_floats(y, first, 2, 0);
    vk.shape.dim[1] = vv.shape.dim[1] = 0;
    vy = POISONED(DTYPE_F32, y, 1, 1, 2);
    ref_attention(&how, &vq, &vk, &vv, NULL, &vy, scratch);
    assert_floats(y, zeros, 2, 0);
}

/* The same numbers with heads first: [N,S,H*D] becomes [N,H,S,D]. */
static void heads_first(const float *rows, int n_rows, int heads, int dim, float *out)
{
    for (int n = 0; n < BATCH; n++)
        for (int h = 0; h < heads; h++)
            for (int s = 0; s < n_rows; s++)
                for (int d = 0; d < dim; d++)
                    *out++ = rows[((n * n_rows + s) * heads + h) * dim + d];
}

/* Each operand may have its heads first, whatever the others have. */
static void test_attention_with_heads_first(void **state UNUSED)
{
    enum { H = 3, Q = 10, K = 6, D = 4, E = 5 };
    const struct ref_attention how = {.heads = H, .scale = 0.3};
    static float qh[BATCH * H * Q * D], kh[BATCH * H * K * D], vh[BATCH * H * K * E];
    heads_first(qs, Q, H, D, qh);
    heads_first(ks, K, H, D, kh);
    heads_first(vs, K, H, E, vh);
    struct tensor_view q[2] = {VIEW(DTYPE_F32, qs, BATCH, Q, H * D),
                               VIEW(DTYPE_F32, qh, BATCH, H, Q, D)};
    struct tensor_view k[2] = {VIEW(DTYPE_F32, ks, BATCH, K, H * D),
                               VIEW(DTYPE_F32, kh, BATCH, H, K, D)};
    struct tensor_view v[2] = {VIEW(DTYPE_F32, vs, BATCH, K, H * E),
                               VIEW(DTYPE_F32, vh, BATCH, H, K, E)};
    struct tensor_view y = POISONED(DTYPE_F32, want, BATCH, Q, H * E);
    ref_attention(&how, &q[0], &k[0], &v[0], NULL, &y, scratch);
    for (int i = 1; i < 8; i++) {
        struct tensor_view z = POISONED(DTYPE_F32, ys, BATCH, Q, H * E);
        ref_attention(&how, &q[i & 1], &k[i >> 1 & 1], &v[i >> 2], NULL, &z, scratch);
        assert_floats(ys, want, BATCH * Q * H * E, 0);
    }
}

/* Two query heads share a head of keys and values: the same as with these repeated, apart and
 * packed. */
static void test_attention_of_grouped_queries(void **state UNUSED)
{
    enum { H = 6, G = 3, Q = 5, D = 4, ROW = (H + 2 * G) * D };
    static float q[BATCH * Q * H * D], k[BATCH * Q * H * D], v[BATCH * Q * H * D];
    static float few_k[BATCH * Q * G * D], few_v[BATCH * Q * G * D];
    for (int r = 0; r < BATCH * Q; r++) {
        const float *row = qs + (ptrdiff_t)r * ROW;
        memcpy(q + (ptrdiff_t)r * H * D, row, H * D * sizeof(*q));
        memcpy(few_k + (ptrdiff_t)r * G * D, row + H * D, G * D * sizeof(*q));
        memcpy(few_v + (ptrdiff_t)r * G * D, row + (H + G) * D, G * D * sizeof(*q));
        for (int i = 0; i < H * D; i++) {
            int from = i / D / (H / G) * D + i % D;
            k[r * H * D + i] = row[H * D + from];
            v[r * H * D + i] = row[(H + G) * D + from];
        }
    }
    struct ref_attention how = {.heads = H, .scale = 0.3};
    struct tensor_view vq = VIEW(DTYPE_F32, q, BATCH, Q, H * D);
    struct tensor_view vk = VIEW(DTYPE_F32, k, BATCH, Q, H * D);
    struct tensor_view vv = VIEW(DTYPE_F32, v, BATCH, Q, H * D);
    struct tensor_view y = POISONED(DTYPE_F32, want, BATCH, Q, H * D);
    ref_attention(&how, &vq, &vk, &vv, NULL, &y, scratch);
    how.kv_heads = G;
    vk = VIEW(DTYPE_F32, few_k, BATCH, Q, G * D);
    vv = VIEW(DTYPE_F32, few_v, BATCH, Q, G * D);
    y = POISONED(DTYPE_F32, ys, BATCH, Q, H * D);
    ref_attention(&how, &vq, &vk, &vv, NULL, &y, scratch);
    assert_floats(ys, want, BATCH * Q * H * D, 0);
    how.packed = true;
    vq = VIEW(DTYPE_F32, qs, BATCH, Q, ROW);
    y = POISONED(DTYPE_F32, ys, BATCH, Q, H * D);
    ref_attention(&how, &vq, NULL, NULL, NULL, &y, scratch);
    assert_floats(ys, want, BATCH * Q * H * D, 0);
}

/* A BOOL mask and `causal` are as a mask of infinities, with more keys than queries and with fewer:
 * then the first queries see none, and give zeros. */
static void test_attention_hides_keys(void **state UNUSED)
{
    enum { Q = 7, D = 2, MOST_KEYS = 12 };
    static const int keys[] = {Q, MOST_KEYS, 3};
    for (size_t c = 0; c < ARRAY_LEN(keys); c++) {
        int n = keys[c];
        static float m[Q * MOST_KEYS];
        static bool seen[Q * MOST_KEYS];
        for (int i = 0; i < Q; i++)
            for (int j = 0; j < n; j++) {
                seen[i * n + j] = j <= i + n - Q;
                m[i * n + j] = seen[i * n + j] ? 0 : -INFINITY;
            }
        struct ref_attention how = {.heads = 1, .scale = 1};
        struct tensor_view q = VIEW(DTYPE_F32, qs, BATCH, Q, D),
                           k = VIEW(DTYPE_F32, ks, BATCH, n, D);
        struct tensor_view v = VIEW(DTYPE_F32, vs, BATCH, n, D), vm = VIEW(DTYPE_F32, m, Q, n);
        struct tensor_view vb = VIEW(DTYPE_BOOL, seen, Q, n);
        struct tensor_view y = POISONED(DTYPE_F32, want, BATCH, Q, D);
        ref_attention(&how, &q, &k, &v, &vm, &y, scratch);
        for (int i = 0; i < (Q - n) * D; i++)
            assert_true(want[i] == 0);
        y = POISONED(DTYPE_F32, ys, BATCH, Q, D);
        ref_attention(&how, &q, &k, &v, &vb, &y, scratch);
        assert_floats(ys, want, BATCH * Q * D, 0);
        how.causal = true;
        y = POISONED(DTYPE_F32, ys, BATCH, Q, D);
        ref_attention(&how, &q, &k, &v, NULL, &y, scratch);
        assert_floats(ys, want, BATCH * Q * D, 0);
    }
}

/* Rows of sequences, one behind the other, as those of each sequence alone; rows whose span is
 * empty give zeros, and spans end where rows do. */
static void test_attention_of_spans(void **state UNUSED)
{
    enum { N = 3, S = 8, ROWS = N * S, WIDTH = 12, HEADS = 3 };
    static const int32_t lengths[] = {5, 1, 10, 6}; /* two rows are left */
    int32_t spans[ROWS][2] = {{0}}, first = 0;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        for (int32_t k = 0; k < lengths[i]; k++) {
            spans[first + k][0] = i ? first : -7;
            spans[first + k][1] = first + lengths[i];
        }
        first += lengths[i];
    }
    spans[ROWS - 1][0] = ROWS - 1;
    spans[ROWS - 1][1] = ROWS + 3; /* sees itself */
    struct tensor_view span = VIEW(DTYPE_I32, spans, N, S, 2);
    for (int causal = 0; causal < 2; causal++) {
        struct ref_attention how = {.heads = HEADS, .scale = 0.3, .causal = causal};
        memset(want, 0, sizeof(want));
        first = 0;
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            struct tensor_view q = VIEW(DTYPE_F32, qs + first * WIDTH, 1, lengths[i], WIDTH);
            struct tensor_view k = VIEW(DTYPE_F32, ks + first * WIDTH, 1, lengths[i], WIDTH);
            struct tensor_view v = VIEW(DTYPE_F32, vs + first * WIDTH, 1, lengths[i], WIDTH);
            struct tensor_view y = VIEW(DTYPE_F32, want + first * WIDTH, 1, lengths[i], WIDTH);
            ref_attention(&how, &q, &k, &v, NULL, &y, scratch);
            first += lengths[i];
        }
        memcpy(want + (ROWS - 1) * WIDTH, vs + (ROWS - 1) * WIDTH, WIDTH * sizeof(float));
        struct tensor_view q = VIEW(DTYPE_F32, qs, N, S, WIDTH);
        struct tensor_view k = VIEW(DTYPE_F32, ks, N, S, WIDTH);
        struct tensor_view v = VIEW(DTYPE_F32, vs, N, S, WIDTH);
        struct tensor_view y = POISONED(DTYPE_F32, ys, N, S, WIDTH);
        how.spans = &span;
        ref_attention(&how, &q, &k, &v, NULL, &y, scratch);
        assert_floats(ys, want, (size_t)(ROWS * WIDTH), 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_of_heads),
        cmocka_unit_test(test_attention_packed),
        cmocka_unit_test(test_attention_masks_broadcast),
        cmocka_unit_test(test_attention_at_the_ends),
        cmocka_unit_test(test_attention_masks_repeat),
        cmocka_unit_test(test_attention_with_heads_first),
        cmocka_unit_test(test_attention_of_grouped_queries),
        cmocka_unit_test(test_attention_hides_keys),
        cmocka_unit_test(test_attention_of_spans),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
