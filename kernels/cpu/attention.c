/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes attention for a few queries at a time. Their scores against all keys lie in scratch
 * memory, so softmax can use the maximum of a row, and a key or value is converted once for all
 * these queries.
 */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { ROWS = 8 }; /* queries at a time */

/* Where the heads of an operand lie; steps count elements. */
struct place {
    const struct tensor_view *view;
    int64_t first, batch, head, row; /* the first head's place; steps */
    int64_t rows, dim;               /* of one head */
};

/* One head of one instance; the places' `first` is its own first row. */
struct head {
    const struct ref_attention *how;
    struct place q, k, v, y;
    const struct tensor_view *mask;
    int64_t mask_at, mask_row, mask_col;
    double *scores; /* [ROWS][keys] */
};

static void read_row(const struct place *p, int64_t row, int64_t from, size_t n, double *out)
{
    ref_read_f64(p->view->dtype, p->view->data, p->first + row * p->row + from, 1, n, out);
}

static void multiply_keys(const struct head *h, int64_t first, size_t rows)
{
    double q[ROWS][REF_ROW], k[REF_ROW];
    for (int64_t i = 0; i < (int64_t)rows * h->k.rows; i++)
        h->scores[i] = 0;
    for (int64_t d = 0; d < h->q.dim; d += REF_ROW) {
        size_t part = (size_t)MIN(h->q.dim - d, REF_ROW);
        for (size_t r = 0; r < rows; r++)
            read_row(&h->q, first + (int64_t)r, d, part, q[r]);
        for (int64_t j = 0; j < h->k.rows; j++) {
            read_row(&h->k, j, d, part, k);
            for (size_t r = 0; r < rows; r++) {
                double sum = 0;
                for (size_t i = 0; i < part; i++)
                    sum += q[r][i] * k[i];
                h->scores[(int64_t)r * h->k.rows + j] += sum;
            }
        }
    }
}

/* Adds the mask to n scores from key j on; a BOOL mask hides keys where it is false. */
static void add_mask(const struct head *h, int64_t row, int64_t j, size_t n, double *scores)
{
    double mask[REF_ROW];
    ref_read_f64(h->mask->dtype, h->mask->data, h->mask_at + row * h->mask_row + j * h->mask_col,
                 h->mask_col, n, mask);
    for (size_t i = 0; i < n; i++)
        if (h->mask->dtype != DTYPE_BOOL)
            scores[i] += mask[i];
        else if (mask[i] == 0)
            scores[i] = -INFINITY;
}

/* Whether the key is one of those that the row reads, if it reads not all. */
static bool is_in_span(const struct head *h, int64_t row, int64_t key)
{
    const int32_t *span = h->how->spans ? (const int32_t *)h->how->spans->data + 2 * row : NULL;
    return !span || (key >= span[0] && key < span[1]);
}

static void scale_and_mask(const struct head *h, int64_t row, double *scores)
{
    for (int64_t j = 0; j < h->k.rows; j++)
        scores[j] *= h->how->scale;
    for (int64_t j = 0; h->mask && j < h->k.rows; j += REF_ROW)
        add_mask(h, row, j, (size_t)MIN(h->k.rows - j, REF_ROW), scores + j);
    int64_t last = row + h->k.rows - h->q.rows; /* the last key that the query sees */
    for (int64_t j = MAX(last + 1, 0); h->how->causal && j < h->k.rows; j++)
        scores[j] = -INFINITY;
    for (int64_t j = 0; h->how->spans && j < h->k.rows; j++)
        if (!is_in_span(h, row, j))
            scores[j] = -INFINITY;
}

/* A row whose scores are all -inf becomes zeros. */
static void softmax(double *scores, int64_t n)
{
    double highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        highest = isnan(highest) || highest > scores[j] ? highest : scores[j];
    bool none = highest == -INFINITY;
    for (int64_t j = 0; j < n; j++)
        sum += scores[j] = none ? 0 : exp(scores[j] - highest);
    for (int64_t j = 0; j < n && !none; j++)
        scores[j] /= sum;
}

static void multiply_values(const struct head *h, int64_t first, size_t rows)
{
    double v[REF_ROW];
    for (int64_t e = 0; e < h->v.dim; e += REF_ROW) {
        double sums[ROWS][REF_ROW] = {{0}};
        size_t part = (size_t)MIN(h->v.dim - e, REF_ROW);
        for (int64_t j = 0; j < h->k.rows; j++) {
            read_row(&h->v, j, e, part, v);
            for (size_t r = 0; r < rows; r++) {
                double p = h->scores[(int64_t)r * h->k.rows + j];
                if (!is_in_span(h, first + (int64_t)r, j))
                    continue; /* an infinite value times a weight of 0 is not 0 */
                for (size_t i = 0; i < part; i++)
                    sums[r][i] += p * v[i];
            }
        }
        for (size_t r = 0; r < rows; r++)
            ref_write_f64(h->y.view->dtype, h->y.view->data,
                          h->y.first + (first + (int64_t)r) * h->y.row + e, 1, part, sums[r]);
    }
}

static void attend(const struct head *h)
{
    for (int64_t first = 0; first < h->q.rows; first += ROWS) {
        size_t rows = (size_t)MIN(h->q.rows - first, ROWS);
        multiply_keys(h, first, rows);
        for (size_t r = 0; r < rows; r++) {
            double *scores = h->scores + (int64_t)r * h->k.rows;
            scale_and_mask(h, first + (int64_t)r, scores);
            softmax(scores, h->k.rows);
        }
        multiply_values(h, first, rows);
    }
}

/* The place of `heads` heads that begin with head `skip` of the `all` heads in the tensor. */
static struct place place_of(const struct tensor_view *view, int64_t heads, int64_t all,
                             int64_t skip)
{
    const int64_t *dim = view->shape.dim;
    struct place p = {.view = view};
    if (view->shape.rank == 4) { /* [N,heads,S,D] */
        p.rows = dim[2];
        p.row = p.dim = dim[3];
        p.head = p.rows * p.dim;
        p.batch = heads * p.head;
    } else { /* [N,S,all*D] */
        p.rows = dim[1];
        p.row = dim[2];
        p.head = p.dim = dim[2] / all;
        p.batch = p.rows * p.row;
        p.first = skip * p.dim;
    }
    return p;
}

/* Fills in the places of all heads. */
static struct head head_of(const struct ref_attention *how, const struct tensor_view *q,
                           const struct tensor_view *k, const struct tensor_view *v,
                           const struct tensor_view *y)
{
    int64_t heads = how->heads, kv = how->kv_heads ? how->kv_heads : heads, all = heads + 2 * kv;
    struct head h = {.how = how, .y = place_of(y, heads, heads, 0)};
    if (how->packed) {
        h.q = place_of(q, heads, all, 0);
        h.k = place_of(q, kv, all, heads);
        h.v = place_of(q, kv, all, heads + kv);
    } else {
        h.q = place_of(q, heads, heads, 0);
        h.k = place_of(k, kv, kv, 0);
        h.v = place_of(v, kv, kv, 0);
    }
    return h;
}

/* The rows of all instances as those of one. */
static void flatten(struct place *p, int64_t batches)
{
    p->rows *= batches;
}

static void go_to(struct place *p, const struct place *from, int64_t n, int64_t head)
{
    p->first = from->first + n * from->batch + head * from->head;
}

size_t ref_attention_scratch(int64_t keys)
{
    return (size_t)keys * ROWS * sizeof(double);
}

void ref_attention(const struct ref_attention *how, const struct tensor_view *q,
                   const struct tensor_view *k, const struct tensor_view *v,
                   const struct tensor_view *mask, const struct tensor_view *y, void *scratch)
{
    struct head all = head_of(how, q, k, v, y);
    int64_t batches = q->shape.dim[0], of_mask[SHAPE_MAX_RANK] = {0};
    if (how->spans) {
        struct place *const places[] = {&all.q, &all.k, &all.v, &all.y};
        for (size_t i = 0; i < ARRAY_LEN(places); i++)
            flatten(places[i], batches);
        batches = 1;
    }
    int64_t shared = how->kv_heads ? how->heads / how->kv_heads : 1;
    int64_t masks = mask && mask->shape.rank == 4 ? MAX(mask->shape.dim[0], 1) : 1;
    struct shape scores = {.rank = 4, .dim = {masks, how->heads, all.q.rows, all.k.rows}};
    struct head h = all;
    if (mask)
        ref_broadcast_strides(&mask->shape, &scores, of_mask);
    h.mask = mask;
    h.mask_row = of_mask[2];
    h.mask_col = of_mask[3];
    h.scores = scratch;
    for (int64_t n = 0; n < batches; n++)
        for (int64_t i = 0; i < how->heads; i++) {
            go_to(&h.q, &all.q, n, i);
            go_to(&h.k, &all.k, n, i / shared);
            go_to(&h.v, &all.v, n, i / shared);
            go_to(&h.y, &all.y, n, i);
            h.mask_at = n % masks * of_mask[0] + i * of_mask[1];
            attend(&h);
        }
}
