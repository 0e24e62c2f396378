/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function of attend.h for one instruction set. The build compiles this file several times,
 * with FAST_ATTEND as the function's name.
 *
 * Up to PANEL queries stand side by side in the lanes of vectors, so that keys and values are read
 * as they are, one number for all lanes, and a softmax needs no sums across lanes:
 *
 *   scores[key][query] = k[key][..] q[..][query]      out[e][query] += v[..][e] p[..][query]
 *
 * Both are one product, of a matrix with any strides and a panel. A few queries would leave most
 * lanes empty. For these, lanes go along the rows of keys and values instead.
 */
#include "kernels/cpu/attend.h"

#include "kernels/cpu/fast_inner.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
enum { VECS = 4 };
#elif defined(__AVX2__)
enum { VECS = 2 };
#else
enum { VECS = 1 };
#endif

enum {
    PANEL = VECS * LANES,
    TILE = 16,
    ROWS = 6, /* of a product at a time: with VECS they nearly fill the registers */
    FEW = 3,  /* queries that are computed one by one */
    KEYS = ATTEND_KEYS,
};

/* --- products --- */

/* c[r][..] (+)= the sum over k of a[r][k] b[k][..], for `rows` rows of `vecs` vectors. Both numbers
 * are constants wherever this is called. The sums are variables of their own, because compilers
 * keep arrays of vectors in memory. */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define ROW_BEGIN(r)                                                                               \
    vec s##r##0 = zero, s##r##1 = zero, s##r##2 = zero, s##r##3 = zero;                            \
    if (add && rows > (r)) {                                                                       \
        s##r##0 = VEC_AT(c + (r)*width, 0);                                                        \
        s##r##1 = vecs > 1 ? VEC_AT(c + (r)*width, 1) : zero;                                      \
        s##r##2 = vecs > 2 ? VEC_AT(c + (r)*width, 2) : zero;                                      \
        s##r##3 = vecs > 3 ? VEC_AT(c + (r)*width, 3) : zero;                                      \
    }
#define ROW_ADD(r)                                                                                 \
    if (rows > (r)) {                                                                              \
        float x_ = a[(r)*a_row];                                                                   \
        s##r##0 += x_ * m0;                                                                        \
        s##r##1 += x_ * m1;                                                                        \
        s##r##2 += x_ * m2;                                                                        \
        s##r##3 += x_ * m3;                                                                        \
    }
#define ROW_END(r)                                                                                 \
    if (rows > (r)) {                                                                              \
        VEC_AT(c + (r)*width, 0) = s##r##0;                                                        \
        if (vecs > 1)                                                                              \
            VEC_AT(c + (r)*width, 1) = s##r##1;                                                    \
        if (vecs > 2)                                                                              \
            VEC_AT(c + (r)*width, 2) = s##r##2;                                                    \
        if (vecs > 3)                                                                              \
            VEC_AT(c + (r)*width, 3) = s##r##3;                                                    \
    }

INLINE void tile(int rows, int vecs, const float *a, int64_t a_row, int64_t a_step, const float *b,
                 int64_t depth, float *c, bool add)
{
    const vec zero = {0};
    const int64_t width = vecs * LANES;
    EACH_ROW(ROW_BEGIN)
    for (int64_t k = 0; k < depth; k++, a += a_step, b += width) {
        vec m0 = VEC_AT(b, 0), m1 = vecs > 1 ? VEC_AT(b, 1) : zero;
        vec m2 = vecs > 2 ? VEC_AT(b, 2) : zero, m3 = vecs > 3 ? VEC_AT(b, 3) : zero;
        EACH_ROW(ROW_ADD)
    }
    EACH_ROW(ROW_END)
}

/* The same for any number of rows. */
INLINE void product_of(int vecs, int64_t rows, const float *a, int64_t a_row, int64_t a_step,
                       const float *b, int64_t depth, float *c, bool add)
{
    const int64_t width = vecs * LANES;
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
        tile(ROWS, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, add);
    for (; r + 4 <= rows; r += 4)
        tile(4, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, add);
    for (; r + 2 <= rows; r += 2)
        tile(2, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, add);
    for (; r < rows; r++)
        tile(1, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, add);
}

#define PRODUCT(vecs)                                                                              \
    static void product_##vecs(int64_t rows, const float *a, int64_t a_row, int64_t a_step,        \
                               const float *b, int64_t depth, float *c, bool add)                  \
    {                                                                                              \
        product_of(vecs, rows, a, a_row, a_step, b, depth, c, add);                                \
    }

/* --- a panel of queries --- */

struct panel {
    const struct attend *a;
    const struct attend_query *query;
    int64_t n, width;                 /* queries, and lanes: whole vectors */
    int64_t least, most;              /* keys that all and that any of the queries may see */
    float *q, *scores, *hidden, *out; /* [dim], [KEYS], [KEYS] (of the mask), [out_dim] x [width] */
    float high[PANEL], sum[PANEL], factor[PANEL];
    bool begun; /* `out` has been written to */
};

/* to[c][r] = from[r][c] */
static void turn(const float *const *from, int64_t rows, float *const *to, int64_t cols)
{
    if (rows < TILE || cols < TILE) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                to[c][r] = from[r][c];
        return;
    }
    float block[TILE][TILE];
    for (int r = 0; r < TILE; r++)
        memcpy(block[r], from[r], sizeof(block[r]));
    for (int c = 0; c < TILE; c++)
        for (int r = 0; r < TILE; r++)
            to[c][r] = block[r][c];
}

/* Puts scaled queries side by side; lanes without a query get zeros. */
static void pack_queries(struct panel *p)
{
    int64_t dim = p->a->dim;
    const float *from[TILE];
    float *to[TILE];
    if (p->n < p->width)
        memset(p->q, 0, (size_t)(dim * p->width) * sizeof(float));
    for (int64_t l = 0; l < p->n; l += TILE)
        for (int64_t d = 0; d < dim; d += TILE) {
            int64_t rows = MIN(p->n - l, TILE), cols = MIN(dim - d, TILE);
            for (int64_t r = 0; r < rows; r++)
                from[r] = p->query[l + r].q + d;
            for (int64_t c = 0; c < cols; c++)
                to[c] = p->q + (d + c) * p->width + l;
            turn(from, rows, to, cols);
        }
    VECTOR
    for (int64_t i = 0; i < dim * p->width; i++)
        p->q[i] *= p->a->scale;
}

/* What a mask adds to the scores of n <= TILE keys from key j on: of a BOOL mask, 0 or -inf. */
static void read_mask(const struct attend *a, const void *mask, int64_t j, int64_t n, float *out)
{
    if (a->mask == DTYPE_BOOL) {
        const uint8_t *m = (const uint8_t *)mask + j * a->mask_step;
        for (int64_t i = 0; i < n; i++)
            out[i] = m[i * a->mask_step] ? 0 : -INFINITY;
    } else {
        const float *m = (const float *)mask + j * a->mask_step;
        for (int64_t i = 0; i < n; i++)
            out[i] = m[i * a->mask_step];
    }
}

/* Reads the mask for n keys from key j on into p->hidden: [n][width], or [n] if all queries share
 * it. Returns false if it hides all these keys from all queries. */
static bool read_masks(struct panel *p, int64_t j, int64_t n)
{
    const struct attend *a = p->a;
    int64_t floats = a->mask_shared ? n : n * p->width;
    float block[TILE][TILE];
    const float *from[TILE];
    float *to[TILE];
    for (int64_t i = 0; i < floats && p->n < p->width; i++)
        p->hidden[i] = -INFINITY;
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t cols = MIN(n - at, TILE);
        if (a->mask_shared) {
            read_mask(a, p->query->mask, j + at, cols, p->hidden + at);
            continue;
        }
        for (int64_t c = 0; c < cols; c++)
            to[c] = p->hidden + (at + c) * p->width;
        for (int64_t l = 0; l < p->n; l += TILE) {
            int64_t rows = MIN(p->n - l, TILE);
            for (int64_t r = 0; r < rows; r++) {
                read_mask(a, p->query[l + r].mask, j + at, cols, block[r]);
                from[r] = block[r];
            }
            turn(from, rows, to, cols);
            for (int64_t c = 0; c < cols; c++)
                to[c] += TILE;
        }
    }
    return highest_of(p->hidden, (size_t)floats) > -INFINITY;
}

static void add_masks(const struct panel *p, int64_t n)
{
    bool hides = p->a->mask == DTYPE_BOOL;
    for (int64_t j = 0; j < n && p->a->mask_shared; j++) {
        float m = p->hidden[j], *s = p->scores + j * p->width;
        VECTOR
        for (int64_t l = 0; l < p->width; l++)
            s[l] = hides && m < 0 ? m : s[l] + m;
    }
    if (p->a->mask_shared)
        return;
    float *s = p->scores, *m = p->hidden;
    int64_t all = n * p->width;
    if (hides) {
        VECTOR
        for (int64_t i = 0; i < all; i++)
            s[i] = m[i] < 0 ? m[i] : s[i];
    } else {
        VECTOR
        for (int64_t i = 0; i < all; i++)
            s[i] += m[i];
    }
}

/* Hides the keys behind those that each query may see. */
static void hide_unseen(const struct panel *p, int64_t j, int64_t n)
{
    int32_t seen[PANEL];
    for (int64_t l = 0; l < p->width; l++)
        seen[l] = l < p->n ? (int32_t)MAX(MIN(p->query[l].seen - j, n), 0) : 0;
    for (int64_t i = MAX(p->least - j, 0); i < n; i++) {
        float *s = p->scores + i * p->width;
        VECTOR
        for (int64_t l = 0; l < p->width; l++)
            s[l] = (int32_t)i < seen[l] ? s[l] : -INFINITY;
    }
}

/* Takes the scores of a block of keys into the running softmax: scores become exp(score - high),
 * and factor[..] is what the sums so far must be multiplied by. `width` is a constant. */
INLINE void soften_of(const int width, struct panel *p, int64_t keys)
{
    float next[PANEL], shift[PANEL], total[PANEL] = {0}, *s = p->scores;
    memcpy(next, p->high, sizeof(next));
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4, s += 4 * width) {
        VECTOR
        for (int l = 0; l < width; l++) {
            float a = s[l] > s[width + l] ? s[l] : s[width + l];
            float b = s[2 * width + l] > s[3 * width + l] ? s[2 * width + l] : s[3 * width + l];
            a = a > b ? a : b;
            next[l] = a > next[l] ? a : next[l];
        }
    }
    for (; j < keys; j++, s += width) {
        VECTOR
        for (int l = 0; l < width; l++)
            next[l] = s[l] > next[l] ? s[l] : next[l];
    }
    VECTOR
    for (int l = 0; l < width; l++) {
        shift[l] = next[l] == -INFINITY ? 0 : next[l];
        p->factor[l] = exp_of_negative(p->high[l] - shift[l]);
        p->high[l] = next[l];
    }
    s = p->scores;
    for (j = 0; j < keys; j++, s += width) {
        VECTOR
        for (int l = 0; l < width; l++) {
            float e = exp_of_negative(s[l] - shift[l]);
            s[l] = e;
            total[l] += e;
        }
    }
    VECTOR
    for (int l = 0; l < width; l++)
        p->sum[l] = p->sum[l] * p->factor[l] + total[l];
}

#define SOFTEN(vecs)                                                                               \
    static void soften_##vecs(struct panel *p, int64_t keys)                                       \
    {                                                                                              \
        soften_of((vecs)*LANES, p, keys);                                                          \
    }

/* What is compiled for each number of vectors in a panel. */
struct by_width {
    void (*product)(int64_t rows, const float *a, int64_t a_row, int64_t a_step, const float *b,
                    int64_t depth, float *c, bool add);
    void (*soften)(struct panel *p, int64_t keys);
};

PRODUCT(1)
SOFTEN(1)
#ifdef __AVX2__
PRODUCT(2)
SOFTEN(2)
#endif
#ifdef __AVX512F__
PRODUCT(3)
SOFTEN(3)
PRODUCT(4)
SOFTEN(4)
#endif
static const struct by_width by_vecs[VECS] = {
    {product_1, soften_1},
#ifdef __AVX2__
    {product_2, soften_2},
#endif
#ifdef __AVX512F__
    {product_3, soften_3},
    {product_4, soften_4},
#endif
};

/* Multiplies the sums so far with their factors, most of which are 1 after some blocks. */
static void correct(struct panel *p)
{
    bool same = true;
    for (int64_t l = 0; l < p->width; l++)
        same = same && p->factor[l] == 1;
    for (int64_t e = 0; e < p->a->out_dim && !same; e++) {
        float *o = p->out + e * p->width;
        VECTOR
        for (int64_t l = 0; l < p->width; l++)
            o[l] *= p->factor[l];
    }
}

static void run_keys(struct panel *p, int64_t j, int64_t n)
{
    const struct attend *a = p->a;
    const struct by_width *by = &by_vecs[p->width / LANES - 1];
    bool masked = a->mask != DTYPE_NONE;
    if (masked && !read_masks(p, j, n))
        return;
    by->product(n, a->k + j * a->k_row, a->k_row, 1, p->q, a->dim, p->scores, false);
    if (masked)
        add_masks(p, n);
    if (j + n > p->least)
        hide_unseen(p, j, n);
    by->soften(p, n);
    if (p->begun)
        correct(p);
    by->product(a->out_dim, a->v + j * a->v_row, 1, a->v_row, p->scores, n, p->out, p->begun);
    p->begun = true;
}

/* Divides by the sums and writes the rows of y. */
static void finish(struct panel *p)
{
    int64_t out_dim = p->a->out_dim;
    const float *from[TILE];
    float *to[TILE], inverse[PANEL];
    for (int64_t l = 0; l < p->width; l++)
        inverse[l] = 1 / p->sum[l];
    for (int64_t e = 0; e < out_dim; e++) {
        float *o = p->out + e * p->width;
        VECTOR
        for (int64_t l = 0; l < p->width; l++)
            o[l] = p->sum[l] == 0 ? 0 : o[l] * inverse[l];
    }
    for (int64_t l = 0; l < p->n; l += TILE)
        for (int64_t e = 0; e < out_dim; e += TILE) {
            int64_t rows = MIN(out_dim - e, TILE), cols = MIN(p->n - l, TILE);
            for (int64_t r = 0; r < rows; r++)
                from[r] = p->out + (e + r) * p->width + l;
            for (int64_t c = 0; c < cols; c++)
                to[c] = p->query[l + c].y + e;
            turn(from, rows, to, cols);
        }
}

static void run_panel(const struct attend *a, const struct attend_query *query, int64_t n)
{
    struct panel p = {.a = a, .query = query, .n = n, .least = a->keys};
    p.width = (n + LANES - 1) / LANES * LANES;
    p.q = a->scratch;
    p.out = p.q + a->dim * p.width;
    p.scores = p.out + a->out_dim * p.width;
    p.hidden = p.scores + KEYS * p.width;
    for (int64_t l = 0; l < PANEL; l++)
        p.high[l] = -INFINITY;
    for (int64_t l = 0; l < n; l++) {
        p.least = MIN(p.least, query[l].seen);
        p.most = MAX(p.most, query[l].seen);
    }
    pack_queries(&p);
    for (int64_t j = 0; j < p.most; j += KEYS)
        run_keys(&p, j, MIN(p.most - j, KEYS));
    if (!p.begun)
        memset(p.out, 0, (size_t)(a->out_dim * p.width) * sizeof(float));
    finish(&p);
}

/* --- a few queries, one by one --- */

/* scores[j] = scale (k[j][..] q[..]) for n keys; four at a time share the query. */
static void score_row(const struct attend *a, const float *q, const float *k, int64_t n,
                      float *scores)
{
    int64_t j = 0, row = a->k_row;
    for (; j + 4 <= n; j += 4, k += 4 * row) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t d = 0; d < a->dim; d++) {
            s0 += q[d] * k[d];
            s1 += q[d] * k[row + d];
            s2 += q[d] * k[2 * row + d];
            s3 += q[d] * k[3 * row + d];
        }
        scores[j] = s0 * a->scale;
        scores[j + 1] = s1 * a->scale;
        scores[j + 2] = s2 * a->scale;
        scores[j + 3] = s3 * a->scale;
    }
    for (; j < n; j++, k += row) {
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t d = 0; d < a->dim; d++)
            s += q[d] * k[d];
        scores[j] = s * a->scale;
    }
}

static void mask_row(const struct attend *a, const struct attend_query *query, int64_t j, int64_t n,
                     float *scores)
{
    float m[TILE];
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t part = MIN(n - at, TILE);
        read_mask(a, query->mask, j + at, part, m);
        for (int64_t i = 0; i < part; i++)
            scores[at + i] = a->mask == DTYPE_BOOL && m[i] < 0 ? m[i] : scores[at + i] + m[i];
    }
}

/* y[..] = factor y[..] + the sum over n keys of p[j] v[j][..] */
static void add_row(const struct attend *a, const float *p, const float *v, int64_t n, float factor,
                    float *y)
{
    int64_t j = 0, row = a->v_row;
    VECTOR
    for (int64_t e = 0; e < a->out_dim; e++)
        y[e] *= factor;
    for (; j + 4 <= n; j += 4, v += 4 * row) {
        VECTOR
        for (int64_t e = 0; e < a->out_dim; e++)
            y[e] += (p[j] * v[e] + p[j + 1] * v[row + e]) +
                    (p[j + 2] * v[2 * row + e] + p[j + 3] * v[3 * row + e]);
    }
    for (; j < n; j++, v += row) {
        VECTOR
        for (int64_t e = 0; e < a->out_dim; e++)
            y[e] += p[j] * v[e];
    }
}

/* The running softmax of one query. */
struct running {
    float high, sum;
};

static void run_row(const struct attend *a, const struct attend_query *query, struct running *run,
                    int64_t j, int64_t n)
{
    float scores[KEYS];
    score_row(a, query->q, a->k + j * a->k_row, n, scores);
    if (a->mask != DTYPE_NONE)
        mask_row(a, query, j, n, scores);
    float next = highest_of(scores, (size_t)n);
    next = next > run->high ? next : run->high;
    float shift = next == -INFINITY ? 0 : next;
    float factor = exp_of_negative(run->high - shift);
    run->sum = run->sum * factor + exp_part(scores, scores, (size_t)n, shift);
    run->high = next;
    add_row(a, scores, a->v + j * a->v_row, n, factor, query->y);
}

/* A block of keys is read once for all the queries. */
static void run_few(const struct attend *a)
{
    struct running run[FEW];
    for (int64_t r = 0; r < a->n; r++) {
        run[r] = (struct running){.high = -INFINITY};
        memset(a->query[r].y, 0, (size_t)a->out_dim * sizeof(float));
    }
    for (int64_t j = 0; j < a->keys; j += KEYS)
        for (int64_t r = 0; r < a->n; r++) {
            int64_t n = MIN(a->query[r].seen - j, KEYS);
            if (n > 0)
                run_row(a, &a->query[r], &run[r], j, n);
        }
    for (int64_t r = 0; r < a->n; r++) {
        float *y = a->query[r].y, sum = run[r].sum;
        VECTOR
        for (int64_t e = 0; e < a->out_dim; e++)
            y[e] = sum == 0 ? 0 : y[e] / sum;
    }
}

void FAST_ATTEND(const struct attend *a)
{
    if (a->n <= FEW) {
        run_few(a);
        return;
    }
    for (int64_t at = 0; at < a->n; at += PANEL)
        run_panel(a, a->query + at, MIN(a->n - at, PANEL));
}
