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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_of_heads),
        cmocka_unit_test(test_attention_packed),
        cmocka_unit_test(test_attention_masks_broadcast),
        cmocka_unit_test(test_attention_at_the_ends),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
