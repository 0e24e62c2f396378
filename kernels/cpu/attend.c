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
    ROWS = 6, /* of a product at a time: with VECS they nearly fill the registers */
    FEW = 3,  /* queries that are computed one by one */
    KEYS = ATTEND_KEYS,
};

/* --- products --- */

/* c[r][..] = factor[..] c[r][..] + the sum over k of a[r][k] b[k][..], for `rows` rows of `vecs`
 * vectors, both of which are constants wherever this is called. Without a factor c is not read. The
 * sums are variables of their own, because compilers keep arrays of vectors in memory. */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define ROW_BEGIN(r)                                                                               \
    vec s##r##0 = zero, s##r##1 = zero, s##r##2 = zero, s##r##3 = zero;                            \
    if (factor && rows > (r)) {                                                                    \
        s##r##0 = VEC_AT(c + (r)*width, 0) * VEC_AT(factor, 0);                                    \
        if (vecs > 1)                                                                              \
            s##r##1 = VEC_AT(c + (r)*width, 1) * VEC_AT(factor, 1);                                \
        if (vecs > 2)                                                                              \
            s##r##2 = VEC_AT(c + (r)*width, 2) * VEC_AT(factor, 2);                                \
        if (vecs > 3)                                                                              \
            s##r##3 = VEC_AT(c + (r)*width, 3) * VEC_AT(factor, 3);                                \
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
                 int64_t depth, float *c, const float *factor)
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
                       const float *b, int64_t depth, float *c, const float *factor)
{
    const int64_t width = vecs * LANES;
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
        tile(ROWS, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, factor);
    for (; r + 4 <= rows; r += 4)
        tile(4, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, factor);
    for (; r + 2 <= rows; r += 2)
        tile(2, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, factor);
    for (; r < rows; r++)
        tile(1, vecs, a + r * a_row, a_row, a_step, b, depth, c + r * width, factor);
}

/* --- a panel of queries --- */

struct panel {
    const struct attend *a;
    const struct attend_query *query;
    int64_t n, width;                 /* queries, and lanes: whole vectors */
    int64_t least, most;              /* keys that all and that any of the queries may see, */
    int64_t first, last;              /* from the first of any, and the first of all, on */
    float *q, *scores, *hidden, *out; /* [dim], [KEYS], [KEYS] (of the mask), [out_dim] x [width] */
    float high[PANEL], sum[PANEL], factor[PANEL];
    bool begun; /* `out` has been written to */
};

/* to[c][r] = from[r][c]. With `missing`, which stands in for rows that are not there, LANES numbers
 * are written to each row of `to`, else `rows`. */
static void turn(const float *const *from, int64_t rows, float *const *to, int64_t cols,
                 const float *missing)
{
    if (!missing && rows * cols <= 2 * LANES) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                to[c][r] = from[r][c];
        return;
    }
    float in[LANES][LANES], out[LANES][LANES];
#define FROM(i) i < rows ? from[i] : spare,
    const float *spare = missing ? missing : from[0];
    const float *whole_from[LANES] = {EACH_LANE(FROM)};
#undef FROM
    float *whole_to[LANES];
    bool direct = missing || rows == LANES;
    for (int i = 0; i < LANES; i++)
        whole_to[i] = i < cols && direct ? to[i] : &out[i][0];
    for (int64_t r = 0; r < LANES && cols < LANES; r++) {
        for (int64_t c = 0; c < cols; c++)
            in[r][c] = whole_from[r][c];
        whole_from[r] = in[r];
    }
    turn_block(whole_from, whole_to);
    for (int64_t c = 0; c < cols && !direct; c++)
        for (int64_t r = 0; r < rows; r++)
            to[c][r] = out[c][r];
}

static inline void fill(float *row, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = value;
}

/* Puts scaled queries side by side; lanes without a query get zeros. */
static void pack_queries(struct panel *p)
{
    const int64_t dim = p->a->dim, width = p->width;
    const float *from[LANES] = {NULL}, zeros[LANES] = {0};
    float *to[LANES];
    for (int64_t l = 0; l < p->n; l += LANES)
        for (int64_t d = 0; d < dim; d += LANES) {
            int64_t rows = MIN(p->n - l, LANES), cols = MIN(dim - d, LANES);
            for (int64_t r = 0; r < rows; r++)
                from[r] = p->query[l + r].q + d;
            for (int64_t c = 0; c < cols; c++)
                to[c] = p->q + (d + c) * width + l;
            turn(from, rows, to, cols, zeros);
        }
    float *q = p->q, scale = p->a->scale;
    VECTOR
    for (int64_t i = 0; i < dim * width; i++)
        q[i] *= scale;
}

/* What a mask adds to the scores of n <= LANES keys from key j on: of a BOOL mask, 0 or -inf. */
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
    bool direct = a->mask == DTYPE_F32 && a->mask_step == 1;
    float block[LANES][LANES], none[LANES], *to[LANES];
    const float *from[LANES];
    fill(none, LANES, -INFINITY);
    for (int64_t at = 0; at < n; at += LANES) {
        int64_t cols = MIN(n - at, LANES);
        if (a->mask_shared) {
            read_mask(a, p->query->mask, j + at, cols, p->hidden + at);
            continue;
        }
        for (int64_t l = 0; l < p->n; l += LANES) {
            int64_t rows = MIN(p->n - l, LANES);
            for (int64_t r = 0; r < rows; r++) {
                const struct attend_query *query = &p->query[l + r];
                from[r] = direct ? (const float *)query->mask + j + at : block[r];
                if (!direct)
                    read_mask(a, query->mask, j + at, cols, block[r]);
            }
            for (int64_t c = 0; c < cols; c++)
                to[c] = p->hidden + (at + c) * p->width + l;
            turn(from, rows, to, cols, none);
        }
    }
    const float *hidden = p->hidden;
    int sees = 0;
#pragma omp simd reduction(| : sees)
    for (int64_t i = 0; i < floats; i++)
        sees |= hidden[i] != -INFINITY;
    return sees;
}

static void add_masks(const struct panel *p, int64_t n)
{
    const bool hides = p->a->mask == DTYPE_BOOL, shared = p->a->mask_shared;
    const int64_t width = shared ? p->width : n * p->width, rows = shared ? n : 1;
    float *s = p->scores;
    const float *m = p->hidden;
    for (int64_t j = 0; j < rows; j++, s += width) {
        if (!shared && hides) {
            VECTOR
            for (int64_t i = 0; i < width; i++)
                s[i] = m[i] < 0 ? m[i] : s[i];
        } else if (!shared) {
            VECTOR
            for (int64_t i = 0; i < width; i++)
                s[i] += m[i];
        } else if (hides && m[j] < 0) {
            fill(s, width, -INFINITY);
        } else {
            const float add = m[j];
            VECTOR
            for (int64_t i = 0; i < width; i++)
                s[i] += add;
        }
    }
}

/* Hides the keys before those that each query may see. */
static void hide_before(const struct panel *p, int64_t j, int64_t n)
{
    const int64_t width = p->width;
    int32_t from[PANEL];
    for (int64_t l = 0; l < width; l++)
        from[l] = l < p->n ? (int32_t)MIN(MAX(p->query[l].from - j, 0), n) : 0;
    for (int64_t i = 0; i < MIN(p->last - j, n); i++) {
        float *s = p->scores + i * width;
        const int32_t key = (int32_t)i;
        VECTOR
        for (int64_t l = 0; l < width; l++)
            s[l] = key >= from[l] ? s[l] : -INFINITY;
    }
}

/* Hides the keys behind those that each query may see. */
static void hide_unseen(const struct panel *p, int64_t j, int64_t n)
{
    const int64_t width = p->width;
    int32_t seen[PANEL];
    for (int64_t l = 0; l < width; l++)
        seen[l] = l < p->n ? (int32_t)MAX(MIN(p->query[l].seen - j, n), 0) : 0;
    for (int64_t i = MAX(p->least - j, 0); i < n; i++) {
        float *s = p->scores + i * width;
        const int32_t key = (int32_t)i;
        VECTOR
        for (int64_t l = 0; l < width; l++)
            s[l] = key < seen[l] ? s[l] : -INFINITY;
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

/* Divides by the sums; a sum of 0 means that the query saw no key. */
INLINE void divide_of(const int width, struct panel *p)
{
    float sum[PANEL], inverse[PANEL], *o = p->out;
    memcpy(sum, p->sum, sizeof(sum));
    VECTOR
    for (int l = 0; l < width; l++)
        inverse[l] = 1 / sum[l];
    for (int64_t e = 0; e < p->a->out_dim; e++, o += width) {
        VECTOR
        for (int l = 0; l < width; l++)
            o[l] = sum[l] == 0 ? 0 : o[l] * inverse[l];
    }
}

/* What is compiled for each number of vectors in a panel. */
struct by_width {
    void (*product)(int64_t rows, const float *a, int64_t a_row, int64_t a_step, const float *b,
                    int64_t depth, float *c, const float *factor);
    void (*soften)(struct panel *p, int64_t keys);
    void (*divide)(struct panel *p);
};

#define BY_WIDTH(vecs)                                                                             \
    static void product_##vecs(int64_t rows, const float *a, int64_t a_row, int64_t a_step,        \
                               const float *b, int64_t depth, float *c, const float *factor)       \
    {                                                                                              \
        product_of(vecs, rows, a, a_row, a_step, b, depth, c, factor);                             \
    }                                                                                              \
    static void soften_##vecs(struct panel *p, int64_t keys)                                       \
    {                                                                                              \
        soften_of((vecs)*LANES, p, keys);                                                          \
    }                                                                                              \
    static void divide_##vecs(struct panel *p)                                                     \
    {                                                                                              \
        divide_of((vecs)*LANES, p);                                                                \
    }
#define BY_WIDTH_ROW(vecs)                                                                         \
    {                                                                                              \
        product_##vecs, soften_##vecs, divide_##vecs                                               \
    }

BY_WIDTH(1)
#ifdef __AVX2__
BY_WIDTH(2)
#endif
#ifdef __AVX512F__
BY_WIDTH(3)
BY_WIDTH(4)
#endif

static const struct by_width by_vecs[VECS] = {
    BY_WIDTH_ROW(1),
#ifdef __AVX2__
    BY_WIDTH_ROW(2),
#endif
#ifdef __AVX512F__
    BY_WIDTH_ROW(3),
    BY_WIDTH_ROW(4),
#endif
};

static void run_keys(struct panel *p, int64_t j, int64_t n)
{
    const struct attend *a = p->a;
    const struct by_width *by = &by_vecs[p->width / LANES - 1];
    bool masked = a->mask != DTYPE_NONE;
    if (masked && !read_masks(p, j, n))
        return;
    by->product(n, a->k + j * a->k_row, a->k_row, 1, p->q, a->dim, p->scores, NULL);
    if (masked)
        add_masks(p, n);
    if (j < p->last)
        hide_before(p, j, n);
    if (j + n > p->least)
        hide_unseen(p, j, n);
    by->soften(p, n);
    by->product(a->out_dim, a->v + j * a->v_row, 1, a->v_row, p->scores, n, p->out,
                p->begun ? p->factor : NULL);
    p->begun = true;
}

/* Writes the rows of y. */
static void unpack_out(struct panel *p)
{
    int64_t out_dim = p->a->out_dim;
    const float *from[LANES];
    float *to[LANES];
    for (int64_t l = 0; l < p->n; l += LANES)
        for (int64_t e = 0; e < out_dim; e += LANES) {
            int64_t rows = MIN(out_dim - e, LANES), cols = MIN(p->n - l, LANES);
            for (int64_t r = 0; r < rows; r++)
                from[r] = p->out + (e + r) * p->width + l;
            for (int64_t c = 0; c < cols; c++)
                to[c] = p->query[l + c].y + e;
            turn(from, rows, to, cols, NULL);
        }
}

static void run_panel(const struct attend *a, const struct attend_query *query, int64_t n)
{
    struct panel p = {.a = a, .query = query, .n = n, .least = a->keys, .first = a->keys};
    p.width = (n + LANES - 1) / LANES * LANES;
    p.q = a->scratch;
    p.out = p.q + a->dim * p.width;
    p.scores = p.out + a->out_dim * p.width;
    p.hidden = p.scores + KEYS * p.width;
    fill(p.high, PANEL, -INFINITY);
    for (int64_t l = 0; l < n; l++) {
        p.least = MIN(p.least, query[l].seen);
        p.most = MAX(p.most, query[l].seen);
        p.first = MIN(p.first, query[l].from);
        p.last = MAX(p.last, query[l].from);
    }
    pack_queries(&p);
    for (int64_t j = p.first; j < p.most; j += KEYS)
        run_keys(&p, j, MIN(p.most - j, KEYS));
    if (!p.begun)
        fill(p.out, a->out_dim * p.width, 0);
    by_vecs[p.width / LANES - 1].divide(&p);
    unpack_out(&p);
}

/* --- a few queries, one by one --- */

/* scores[j] = scale (k[j][..] q[..]) for n keys; four at a time share the query. */
static void score_row(const struct attend *a, const float *q, const float *k, int64_t n,
                      float *scores)
{
    const int64_t row = a->k_row, dim = a->dim;
    const float scale = a->scale;
    int64_t j = 0;
    for (; j + 4 <= n; j += 4, k += 4 * row) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t d = 0; d < dim; d++) {
            s0 += q[d] * k[d];
            s1 += q[d] * k[row + d];
            s2 += q[d] * k[2 * row + d];
            s3 += q[d] * k[3 * row + d];
        }
        scores[j] = s0 * scale;
        scores[j + 1] = s1 * scale;
        scores[j + 2] = s2 * scale;
        scores[j + 3] = s3 * scale;
    }
    for (; j < n; j++, k += row) {
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t d = 0; d < dim; d++)
            s += q[d] * k[d];
        scores[j] = s * scale;
    }
}

static void mask_row(const struct attend *a, const struct attend_query *query, int64_t j, int64_t n,
                     float *scores)
{
    float m[LANES];
    for (int64_t at = 0; at < n; at += LANES) {
        int64_t part = MIN(n - at, LANES);
        read_mask(a, query->mask, j + at, part, m);
        for (int64_t i = 0; i < part; i++)
            scores[at + i] = a->mask == DTYPE_BOOL && m[i] < 0 ? m[i] : scores[at + i] + m[i];
    }
}

/* y[..] = factor y[..] + the sum over n keys of p[j] v[j][..] */
static void add_row(const struct attend *a, const float *p, const float *v, int64_t n, float factor,
                    float *y)
{
    const int64_t row = a->v_row, dim = a->out_dim;
    int64_t j = 0;
    VECTOR
    for (int64_t e = 0; e < dim; e++)
        y[e] *= factor;
    for (; j + 4 <= n; j += 4, v += 4 * row) {
        VECTOR
        for (int64_t e = 0; e < dim; e++)
            y[e] += (p[j] * v[e] + p[j + 1] * v[row + e]) +
                    (p[j + 2] * v[2 * row + e] + p[j + 3] * v[3 * row + e]);
    }
    for (; j < n; j++, v += row) {
        VECTOR
        for (int64_t e = 0; e < dim; e++)
            y[e] += p[j] * v[e];
    }
}

/* The running softmax of one query. */
struct running {
    float high, sum;
};

static void run_row(const struct attend *a, const struct attend_query *query, struct running *run,
                    int64_t j, int64_t n, float *scores)
{
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
    float scores[KEYS] = {0};
    for (int64_t r = 0; r < a->n; r++) {
        run[r] = (struct running){.high = -INFINITY};
        memset(a->query[r].y, 0, (size_t)a->out_dim * sizeof(float));
    }
    for (int64_t j = 0; j < a->keys; j += KEYS)
        for (int64_t r = 0; r < a->n; r++) {
            int64_t from = MAX(a->query[r].from, j), n = MIN(a->query[r].seen - j, KEYS);
            if (j + n > from)
                run_row(a, &a->query[r], &run[r], from, j + n - from, scores);
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
