/* SPDX-License-Identifier: Apache-2.0 */
/* Ops along one axis that compare or accumulate: ARG_REDUCE, CUMSUM, TOPK. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

/* An element as it is compared: NaN is the largest, and int64 stays exact. */
struct key {
    double f;
    int64_t i;
    int64_t at;
};

static struct key key_of(const struct tensor_view *x, int64_t index, int64_t at)
{
    struct key key = {.at = at};
    if (dtype_is_float(x->dtype))
        key.f = ref_get_f64(x->dtype, x->data, index);
    else if (x->dtype == DTYPE_U64) /* shifted so that signed comparison orders it */
        key.i = (int64_t)((uint64_t)ref_get_i64(x->dtype, x->data, index) ^ (uint64_t)INT64_MIN);
    else
        key.i = ref_get_i64(x->dtype, x->data, index);
    return key;
}

/* Returns <0, 0 or >0 if a is below, like or above b. */
static int compare(const struct key *a, const struct key *b)
{
    if (a->i != b->i)
        return a->i < b->i ? -1 : 1;
    if (isnan(a->f) || isnan(b->f))
        return (isnan(a->f) != 0) - (isnan(b->f) != 0);
    return (a->f > b->f) - (a->f < b->f);
}

void ref_arg_reduce(bool min, bool select_last, uint32_t axis, const struct tensor_view *x,
                    const struct tensor_view *y)
{
    int64_t outer = ref_extent(&x->shape, 0, axis), dim = x->shape.dim[axis];
    int64_t inner = ref_extent(&x->shape, axis + 1, x->shape.rank);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            struct key best = key_of(x, o * dim * inner + i, 0);
            for (int64_t d = 1; d < dim; d++) {
                struct key key = key_of(x, (o * dim + d) * inner + i, d);
                int order = compare(&key, &best);
                bool better = min ? order < 0 : order > 0;
                if (isnan(key.f) || isnan(best.f)) /* the first NaN wins either way */
                    better = isnan(key.f) && !isnan(best.f);
                if (better || (select_last && order == 0))
                    best = key;
            }
            ref_write_i64(y->dtype, y->data, o * inner + i, 1, 1, &best.at);
        }
}

void ref_cumsum(uint32_t axis, bool exclusive, bool reverse, const struct tensor_view *x,
                const struct tensor_view *y)
{
    int64_t outer = ref_extent(&x->shape, 0, axis), dim = x->shape.dim[axis];
    int64_t inner = ref_extent(&x->shape, axis + 1, x->shape.rank);
    bool floats = dtype_is_float(x->dtype);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double f_sum = 0;
            uint64_t i_sum = 0;
            for (int64_t d = 0; d < dim; d++) {
                int64_t at = (o * dim + (reverse ? dim - 1 - d : d)) * inner + i;
                double f_before = f_sum;
                uint64_t i_before = i_sum;
                f_sum += floats ? ref_get_f64(x->dtype, x->data, at) : 0;
                i_sum += floats ? 0 : (uint64_t)ref_get_i64(x->dtype, x->data, at);
                double f_out = exclusive ? f_before : f_sum;
                int64_t i_out = (int64_t)(exclusive ? i_before : i_sum);
                if (floats)
                    ref_write_f64(y->dtype, y->data, at, 1, 1, &f_out);
                else
                    ref_write_i64(y->dtype, y->data, at, 1, 1, &i_out);
            }
        }
}

size_t ref_topk_scratch(int64_t dim)
{
    return (size_t)dim * sizeof(struct key);
}

/* Whether a comes before b in the answer. */
static bool before(const struct key *a, const struct key *b, bool largest)
{
    int order = compare(a, b);
    if (order == 0)
        return a->at < b->at;
    return largest ? order > 0 : order < 0;
}

/* Lets keys[at] sink until no child comes after it, so that the last key of the answer is on
 * top. */
static void sift(struct key *keys, int64_t at, int64_t n, bool largest)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && before(&keys[child], &keys[child + 1], largest))
            child++;
        if (!before(&keys[at], &keys[child], largest))
            return;
        struct key swap = keys[at];
        keys[at] = keys[child];
        keys[child] = swap;
        at = child;
    }
}

/* Sorts the keys into the order of the answer. Heap sort needs no memory and has no bad case. */
static void sort(struct key *keys, int64_t n, bool largest)
{
    for (int64_t at = n / 2; at-- > 0;)
        sift(keys, at, n, largest);
    for (int64_t end = n; end-- > 1;) {
        struct key last = keys[0];
        keys[0] = keys[end];
        keys[end] = last;
        sift(keys, 0, end, largest);
    }
}

void ref_topk(uint32_t axis, bool largest, const struct tensor_view *x,
              const struct tensor_view *values, const struct tensor_view *indices, void *scratch)
{
    struct key *keys = scratch;
    size_t size = dtype_size(x->dtype);
    int64_t outer = ref_extent(&x->shape, 0, axis), dim = x->shape.dim[axis];
    int64_t inner = ref_extent(&x->shape, axis + 1, x->shape.rank), k = values->shape.dim[axis];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t d = 0; d < dim; d++)
                keys[d] = key_of(x, (o * dim + d) * inner + i, d);
            sort(keys, dim, largest);
            for (int64_t d = 0; d < k; d++) {
                int64_t to = (o * k + d) * inner + i, from = (o * dim + keys[d].at) * inner + i;
                memcpy((char *)values->data + (size_t)to * size,
                       (const char *)x->data + (size_t)from * size, size);
                ref_write_i64(indices->dtype, indices->data, to, 1, 1, &keys[d].at);
            }
        }
}
