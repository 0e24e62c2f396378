/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index space and K tensors in it, each with its own strides: the form that elementwise kernels
 * take. The first tensor is the one that is written. Dims are in the order of its memory, so that
 * neighbouring threads write neighbours; dims of one element are dropped, and neighbouring dims are
 * merged where all tensors allow it. Indices have 31 bits: larger tensors are refused.
 */
#ifndef INFERD_KERNELS_CUDA_WALK_CUH
#define INFERD_KERNELS_CUDA_WALK_CUH

#include "kernels/cuda/device.cuh"

template <int K> struct walk {
    int32_t rank; /* at least 1 */
    uint32_t total;
    struct divider dim[KERNEL_RANK_MAX];
    int32_t stride[K][KERNEL_RANK_MAX];
};

template <int K>
inline bool walk_mergeable(const walk<K> *w, int64_t inner_dim, const int64_t (*inner)[K],
                           int outer)
{
    for (int k = 0; k < K; k++)
        if (w->stride[k][outer] != inner_dim * (*inner)[k])
            return false;
    return true;
}

/* All views must have the dims of views[0]. False: they are too large. */
template <int K> inline bool walk_make(const struct kernel_view *const (&views)[K], walk<K> *out)
{
    const struct kernel_view *y = views[0];
    const int64_t limit = INT64_C(1) << 31;
    int order[KERNEL_RANK_MAX], rank = 0;
    int64_t total = 1;
    for (int k = 0; k < K; k++)
        if (kernel_span(views[k]) >= limit)
            return false;
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] >= limit)
            return false;
        total = total >= limit ? limit : total * y->dim[i];
        if (y->dim[i] == 1)
            continue;
        int at = rank++;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    if (total >= limit)
        return false;
    *out = walk<K>();
    out->total = (uint32_t)total;
    int64_t dim[KERNEL_RANK_MAX] = {1};
    for (int i = 0; i < rank && total > 0; i++) {
        int64_t inner[K];
        for (int k = 0; k < K; k++)
            inner[k] = views[k]->stride[order[i]];
        int to = out->rank;
        if (to > 0 && walk_mergeable<K>(out, y->dim[order[i]], &inner, to - 1)) {
            dim[--to] *= y->dim[order[i]];
        } else {
            dim[to] = y->dim[order[i]];
            out->rank++;
        }
        for (int k = 0; k < K; k++)
            out->stride[k][to] = (int32_t)inner[k];
    }
    out->rank = out->rank ? out->rank : 1;
    for (int i = 0; i < out->rank; i++)
        out->dim[i] = divider_make((uint32_t)dim[i]);
    return true;
}

/* Whether tensor k can be read or written n innermost neighbours at a time; a broadcast along them
 * is read once. */
template <int K>
inline bool walk_is_wide(const walk<K> *w, int k, int n, const struct kernel_view *view)
{
    int last = w->rank - 1, bytes = n * number_size(view->dtype);
    bool repeats = k > 0 && w->stride[k][last] == 0;
    if (w->dim[last].by % (uint32_t)n || (w->stride[k][last] != 1 && !repeats))
        return false;
    if (repeats)
        return true;
    for (int i = 0; i < last; i++)
        if (w->stride[k][i] % n)
            return false;
    return (uintptr_t)view->data % (uintptr_t)(bytes < 16 ? bytes : 16) == 0;
}

/* Makes every index one of n neighbours; all tensors must be wide. */
template <int K> inline void walk_widen(walk<K> *w, int n)
{
    int last = w->rank - 1;
    w->total /= (uint32_t)n;
    w->dim[last] = divider_make(w->dim[last].by / (uint32_t)n);
    for (int k = 0; k < K; k++)
        w->stride[k][last] *= n;
}

/* Gives the offsets of the i-th index. */
template <int K>
__device__ __forceinline__ void walk_at(const walk<K> &w, uint32_t i, int32_t (&at)[K])
{
    uint32_t rest = i;
#pragma unroll
    for (int k = 0; k < K; k++)
        at[k] = 0;
    for (int d = w.rank - 1; d > 0; d--) {
        uint32_t index;
        rest = divider_split(w.dim[d], rest, &index);
#pragma unroll
        for (int k = 0; k < K; k++)
            at[k] += (int32_t)index * w.stride[k][d];
    }
#pragma unroll
    for (int k = 0; k < K; k++)
        at[k] += (int32_t)rest * w.stride[k][0];
}

#endif
