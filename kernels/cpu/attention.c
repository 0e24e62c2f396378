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

/* One head of one instance; offsets and steps count elements. */
struct head {
    const struct ref_attention *how;
    const struct tensor_view *q, *k, *v, *mask, *y;
    int64_t q_at, k_at, v_at, y_at; /* the first row's */
    int64_t q_row, k_row, v_row, y_row;
    int64_t mask_at, mask_row, mask_col;
    int64_t queries, keys, dim, out_dim; /* dims of one head */
    double *scores;                      /* [ROWS][keys] */
};

static void multiply_keys(const struct head *h, int64_t first, size_t rows)
{
    double q[ROWS][REF_ROW], k[REF_ROW];
    for (int64_t i = 0; i < (int64_t)rows * h->keys; i++)
        h->scores[i] = 0;
    for (int64_t d = 0; d < h->dim; d += REF_ROW) {
        size_t part = (size_t)MIN(h->dim - d, REF_ROW);
        for (size_t r = 0; r < rows; r++)
            ref_read_f64(h->q->dtype, h->q->data, h->q_at + (first + (int64_t)r) * h->q_row + d, 1,
                         part, q[r]);
        for (int64_t j = 0; j < h->keys; j++) {
            ref_read_f64(h->k->dtype, h->k->data, h->k_at + j * h->k_row + d, 1, part, k);
            for (size_t r = 0; r < rows; r++) {
                double sum = 0;
                for (size_t i = 0; i < part; i++)
                    sum += q[r][i] * k[i];
                h->scores[(int64_t)r * h->keys + j] += sum;
            }
        }
    }
}

static void scale_and_mask(const struct head *h, int64_t row, double *scores)
{
    double mask[REF_ROW] = {0};
    for (int64_t j = 0; j < h->keys; j += REF_ROW) {
        size_t part = (size_t)MIN(h->keys - j, REF_ROW);
        if (h->mask)
            ref_read_f64(h->mask->dtype, h->mask->data,
                         h->mask_at + row * h->mask_row + j * h->mask_col, h->mask_col, part, mask);
        for (size_t i = 0; i < part; i++)
            scores[j + (int64_t)i] = h->how->scale * scores[j + (int64_t)i] + mask[i];
    }
}

static void softmax(double *scores, int64_t n)
{
    double highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        highest = isnan(highest) || highest > scores[j] ? highest : scores[j];
    for (int64_t j = 0; j < n; j++)
        sum += scores[j] = exp(scores[j] - highest);
    for (int64_t j = 0; j < n; j++)
        scores[j] /= sum;
}

static void multiply_values(const struct head *h, int64_t first, size_t rows)
{
    double v[REF_ROW];
    for (int64_t e = 0; e < h->out_dim; e += REF_ROW) {
        double sums[ROWS][REF_ROW] = {{0}};
        size_t part = (size_t)MIN(h->out_dim - e, REF_ROW);
        for (int64_t j = 0; j < h->keys; j++) {
            ref_read_f64(h->v->dtype, h->v->data, h->v_at + j * h->v_row + e, 1, part, v);
            for (size_t r = 0; r < rows; r++) {
                double p = h->scores[(int64_t)r * h->keys + j];
                for (size_t i = 0; i < part; i++)
                    sums[r][i] += p * v[i];
            }
        }
        for (size_t r = 0; r < rows; r++)
            ref_write_f64(h->y->dtype, h->y->data, h->y_at + (first + (int64_t)r) * h->y_row + e, 1,
                          part, sums[r]);
    }
}

static void attend(const struct head *h)
{
    for (int64_t first = 0; first < h->queries; first += ROWS) {
        size_t rows = (size_t)MIN(h->queries - first, ROWS);
        multiply_keys(h, first, rows);
        for (size_t r = 0; r < rows; r++) {
            double *scores = h->scores + (int64_t)r * h->keys;
            scale_and_mask(h, first + (int64_t)r, scores);
            softmax(scores, h->keys);
        }
        multiply_values(h, first, rows);
    }
}

/* Fills in sizes and steps. In the packed form query, key and value are thirds of a row. */
static struct head head_of(const struct ref_attention *how, const struct tensor_view *q,
                           const struct tensor_view *k, const struct tensor_view *v,
                           const struct tensor_view *y)
{
    struct head h = {.how = how, .q = q, .k = how->packed ? q : k, .v = how->packed ? q : v};
    h.y = y;
    h.queries = q->shape.dim[1];
    h.keys = h.k->shape.dim[1];
    h.q_row = q->shape.dim[2];
    h.k_row = h.k->shape.dim[2];
    h.v_row = h.v->shape.dim[2];
    h.y_row = y->shape.dim[2];
    h.dim = h.q_row / (how->packed ? 3 * how->heads : how->heads);
    h.out_dim = h.y_row / how->heads;
    return h;
}

size_t ref_attention_scratch(int64_t keys)
{
    return (size_t)keys * ROWS * sizeof(double);
}

void ref_attention(const struct ref_attention *how, const struct tensor_view *q,
                   const struct tensor_view *k, const struct tensor_view *v,
                   const struct tensor_view *mask, const struct tensor_view *y, void *scratch)
{
    struct head h = head_of(how, q, k, v, y);
    int64_t batches = q->shape.dim[0], of_mask[SHAPE_MAX_RANK] = {0};
    struct shape scores = {.rank = 4, .dim = {batches, how->heads, h.queries, h.keys}};
    if (mask)
        ref_broadcast_strides(&mask->shape, &scores, of_mask);
    h.mask = mask;
    h.mask_row = of_mask[2];
    h.mask_col = of_mask[3];
    h.scores = scratch;
    for (int64_t n = 0; n < batches; n++)
        for (int64_t i = 0; i < how->heads; i++) {
            int64_t third = how->packed ? h.y_row : 0;
            h.q_at = n * h.queries * h.q_row + i * h.dim;
            h.k_at = n * h.keys * h.k_row + i * h.dim + third;
            h.v_at = n * h.keys * h.v_row + i * h.out_dim + 2 * third;
            h.y_at = n * h.queries * h.y_row + i * h.out_dim;
            h.mask_at = n * of_mask[0] + i * of_mask[1];
            attend(&h);
        }
}
