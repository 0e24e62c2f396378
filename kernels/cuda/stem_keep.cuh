/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warpgroup of stem.cuh that multiplies: what it keeps of lines for the pool, and what it
 * stores.
 */
#ifndef INFERD_KERNELS_CUDA_STEM_KEEP_CUH
#define INFERD_KERNELS_CUDA_STEM_KEEP_CUH

#include "kernels/cuda/stem.cuh"

namespace stem
{

template <class T> __device__ __forceinline__ uint32_t pair_max(uint32_t a, uint32_t b);
template <> __device__ __forceinline__ uint32_t pair_max<half_t>(uint32_t a, uint32_t b)
{
    __half2 x, y;
    memcpy(static_cast<void *>(&x), &a, sizeof(x));
    memcpy(static_cast<void *>(&y), &b, sizeof(y));
    x = __hmax2_nan(x, y);
    memcpy(&a, &x, sizeof(a));
    return a;
}
template <> __device__ __forceinline__ uint32_t pair_max<bf16_t>(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    memcpy(static_cast<void *>(&x), &a, sizeof(x));
    memcpy(static_cast<void *>(&y), &b, sizeof(y));
    x = __hmax2_nan(x, y);
    memcpy(&a, &x, sizeof(a));
    return a;
}

/* What thread t of four gets from the one before it, and the first from the last one's value of the
 * brick before, which `before` carries along the line. */
template <class V> __device__ __forceinline__ V from_left(V right, V &before)
{
    int lane = (int)threadIdx.x % KERNEL_WARP, t = lane % 4;
    V come = __shfl_sync(0xffffffffu, right, lane - t + (t + 3) % 4);
    V side = t ? come : before;
    before = come;
    return side;
}

/* What a consumer does with lines: store them as they are, or their pool; a pool over an odd number
 * of columns does not see the one behind the last. */
enum mode { LINES, POOL, POOL_ODD };

/* What a thread has of a line of the convolution: of two filters, 14 pairs of neighbouring columns,
 * 8 columns apart. 16-bit floats: sums with their bias, rounded; a filter's two columns in a word.
 * The pool compares lines first, and then columns. */
template <class S, bool BYTES = S::BYTES> struct kept {
    static constexpr int N = COLUMNS / 4;
    static constexpr uint32_t LOWEST = (int)number_of<typename S::T>::dtype == DTYPE_F16
                                           ? 0xfc00fc00u
                                           : 0xff80ff80u; /* -infinity */
    typedef typename S::T T;
    typedef float sum_t;
    typedef uint32_t word_t; /* a column of both filters */
    struct line {
        uint32_t v[N]; /* [2 pair + filter] */
    };
    line kept_lines;
    float bias[2];

    __device__ __forceinline__ void open(const job &j, int filter)
    {
        bias[0] = j.bias ? __ldg(j.bias + filter) : 0;
        bias[1] = j.bias ? __ldg(j.bias + filter + 1) : 0;
    }
    __device__ __forceinline__ void clear(void)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            kept_lines.v[i] = LOWEST;
    }
    template <mode M>
    __device__ __forceinline__ void read(const float (&sum)[COLUMNS / 2], int last, line &to) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            to.v[i] = pair_of<T>(sum[2 * i] + bias[i % 2], sum[2 * i + 1] + bias[i % 2]);
            if (M == POOL_ODD && last == i / 2 * 8)
                to.v[i] = __byte_perm(to.v[i], LOWEST, 0x7610);
        }
    }
    __device__ __forceinline__ void compare(const line &now)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            kept_lines.v[i] = pair_max<T>(kept_lines.v[i], now.v[i]);
    }
    __device__ __forceinline__ uint32_t finish(const job &j, uint32_t both) const
    {
        return j.relu ? pair_max<T>(both, 0) : both;
    }
    /* What the pool makes of the lines that were kept and this one, which is kept alone then. */
    __device__ __forceinline__ void best(const job &j, const line &now, uint32_t (&to)[N / 2])
    {
        uint32_t before = LOWEST;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            uint32_t a = pair_max<T>(kept_lines.v[2 * i], now.v[2 * i]);
            uint32_t b = pair_max<T>(kept_lines.v[2 * i + 1], now.v[2 * i + 1]);
            uint32_t left = __byte_perm(a, b, 0x5410), right = __byte_perm(a, b, 0x7632);
            to[i] = finish(j, pair_max<T>(pair_max<T>(left, right), from_left(right, before)));
        }
        kept_lines = now;
    }
    /* Columns 8 (i / 2) + i % 2 of both filters. */
    __device__ __forceinline__ void columns(const job &j, const float (&sum)[COLUMNS / 2],
                                            uint32_t (&to)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = finish(j, pair_of<T>(sum[4 * (i / 2) + i % 2] + bias[0],
                                         sum[4 * (i / 2) + i % 2 + 2] + bias[1]));
    }
};

/* Bytes: sums, which scales that are not negative keep in order. The pool compares columns first:
 * there are half as many numbers to keep then. */
template <class S> struct kept<S, true> {
    static constexpr int N = COLUMNS / 4;
    typedef int32_t sum_t;
    typedef uint16_t word_t;
    struct line {
        int32_t v[N]; /* [2 pair + filter]: for pools, the best of three columns */
    };
    line kept_lines;
    float bias[2], scale[2];

    __device__ __forceinline__ void open(const job &j, int filter)
    {
#pragma unroll
        for (int f = 0; f < 2; f++) {
            bias[f] = __ldg(j.bias + filter + f);
            scale[f] = __ldg(j.scale + filter + f);
        }
    }
    __device__ __forceinline__ void clear(void)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            kept_lines.v[i] = INT32_MIN;
    }
    template <mode M>
    __device__ __forceinline__ void read(const int32_t (&sum)[COLUMNS / 2], int last,
                                         line &to) const
    {
        int32_t before[2] = {INT32_MIN, INT32_MIN};
#pragma unroll
        for (int i = 0; i < N; i++) {
            int32_t left = sum[2 * i], right = sum[2 * i + 1];
            if (M == POOL_ODD && last == i / 2 * 8)
                right = INT32_MIN;
            to.v[i] = max(max(left, right), from_left(right, before[i % 2]));
        }
    }
    __device__ __forceinline__ void compare(const line &now)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            kept_lines.v[i] = max(kept_lines.v[i], now.v[i]);
    }
    __device__ __forceinline__ uint32_t finish(const job &j, int32_t a, int32_t b) const
    {
        float x[2] = {fmaf((float)a, scale[0], bias[0]), fmaf((float)b, scale[1], bias[1])};
#pragma unroll
        for (int f = 0; f < 2; f++) /* 1.5 2^23 + q has no fractions, and q in its last bits */
            x[f] = fminf(fmaxf(x[f], j.low), j.high) + 12582912.0f;
        return __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x0040);
    }
    __device__ __forceinline__ void best(const job &j, const line &now, uint32_t (&to)[N / 2])
    {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            to[i] = finish(j, max(kept_lines.v[2 * i], now.v[2 * i]),
                           max(kept_lines.v[2 * i + 1], now.v[2 * i + 1]));
        kept_lines = now;
    }
    __device__ __forceinline__ void columns(const job &j, const int32_t (&sum)[COLUMNS / 2],
                                            uint32_t (&to)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = finish(j, sum[4 * (i / 2) + i % 2], sum[4 * (i / 2) + i % 2 + 2]);
    }
};

template <class S> struct consumer {
    typedef typename kept<S>::sum_t sum_t;
    typedef typename kept<S>::word_t word_t;
    typedef typename kept<S>::line line;
    static constexpr int N = COLUMNS / 2; /* sums of a thread */
    const room<S> &r;
    const job &j;
    kept<S> keep;
    int group, filter;
    uint32_t lines;         /* where the first tap's cells lie in slot 0, in units of descriptors */
    uint32_t count, waited; /* lines of cells: of the next product, seen full */

    __device__ consumer(const room<S> &shared, const job &todo)
        : r(shared), j(todo), keep(), group((int)blockIdx.x % todo.groups), filter(0),
          lines((shared_address(shared.lines) & 0x3ffff) / BRICK + (uint32_t)todo.odd), count(0),
          waited(0)
    {
        int thread = (int)threadIdx.x;
        filter = group * SLAB + thread / KERNEL_WARP * 16 + thread % KERNEL_WARP / 4 * 2;
        keep.open(j, filter);
    }

    __device__ __forceinline__ void free_line(void)
    {
        if (threadIdx.x % KERNEL_WARP == 0)
            mbarrier_arrive(r.empty + count % SLOTS);
        count++;
    }

    /* Step s of a line of taps that lies in this slot. The second plane has two taps in a brick
     * (see patch::put). */
    __device__ __forceinline__ uint64_t cells(uint32_t slot, int s) const
    {
        const bool second = !S::BYTES && s >= S::TAPS / 2;
        const int at = second ? S::PLANE + (s - S::TAPS / 2) * 2 * BRICK : s * 2 * BRICK;
        const int lead = second && !S::DEEP && S::TAPS == 4 ? 2 * BRICK : BRICK;
        return descriptor_moved(descriptor_bricks((uint32_t)at, lead, 8 * BRICK),
                                lines + slot * (S::LINE / BRICK));
    }

    /* The products of the next line, whose first line of taps is given back. */
    __device__ __forceinline__ void multiply(sum_t (&sum)[N])
    {
        const uint64_t weights = descriptor_rows<128>(shared_address(r.weights));
        /* from one lane, so that descriptors are made where all lanes have the same */
        uint32_t slot = __shfl_sync(0xffffffffu, count % SLOTS, 0);
#pragma unroll 1
        for (; waited < count + S::TAPS; waited++)
            mbarrier_wait(r.full + waited % SLOTS, waited / SLOTS & 1);
        wgmma_hold(sum);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::TAPS * S::STEPS; i++) {
            uint64_t a = descriptor_beyond(weights, i / 4 * PANEL + i % 4 * 32);
            uint64_t b = cells((slot + i / S::STEPS) % SLOTS, i % S::STEPS);
            if constexpr (S::BYTES)
                wgmma_bytes<int8_t, typename S::T>(sum, a, b, i > 0);
            else
                wgmma<typename S::T>(sum, a, b, i > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(sum);
        free_line();
    }

    /* The thread's filters of a pixel of y. */
    __device__ __forceinline__ typename S::T *place(const runs &w, int row, int column) const
    {
        int64_t pixel = ((int64_t)w.image * j.rows + row) * j.columns + column;
        return static_cast<typename S::T *>(j.y) + pixel * j.filters + filter;
    }

    /* Pairs i whose columns `first` + `each` i are stored. */
    __device__ __forceinline__ int pairs(int first, int each) const
    {
        int left = filter < j.filters ? j.columns - first : 0;
        return (left + each - 1) / each;
    }

    static __device__ __forceinline__ void store(typename S::T *to, uint32_t word)
    {
        *reinterpret_cast<word_t *>(to) = (word_t)word;
    }

    __device__ __forceinline__ void store_pool(const runs &w, const line &now, int row)
    {
        int column = w.first(j) / 2 + (int)threadIdx.x % 4, end = pairs(column, 4);
        bool repeated = w.tile > 0 && threadIdx.x % 4 == 0; /* the tile before has the first */
        typename S::T *to = place(w, row, column);
        uint32_t words[N / 4];
        keep.best(j, now, words);
#pragma unroll
        for (int i = 0; i < N / 4; i++, to += 4 * j.filters)
            if (i < end && (i > 0 || !repeated))
                store(to, words[i]);
    }

    __device__ __forceinline__ void store_line(const runs &w, const uint32_t (&words)[N / 2],
                                               int row)
    {
        int column = w.first(j) + (int)threadIdx.x % 4 * 2;
        typename S::T *to = place(w, row, column);
        int end[2] = {pairs(column, 8), pairs(column + 1, 8)};
#pragma unroll
        for (int i = 0; i < N / 2; i++, to += (i % 2 ? 1 : 7) * j.filters)
            if (i / 2 < end[i % 2])
                store(to, words[i]);
    }

    /* Line i of the run. */
    template <mode M>
    __device__ __forceinline__ void take(const runs &w, const sum_t (&sum)[N], int i)
    {
        int row = w.line + i;
        if constexpr (M == LINES) {
            uint32_t words[N / 2];
            keep.columns(j, sum, words);
            wgmma_hold(words); /* what is not stored is made, too: else each store would branch */
            store_line(w, words, row);
        } else {
            line now;
            keep.template read<M>(sum, j.wide - 1 - w.first(j) - (int)threadIdx.x % 4 * 2, now);
            if (row % 2 ? i > 0 : row == j.tall - 1)
                store_pool(w, now, row / 2);
            else
                keep.compare(now);
        }
    }

    template <mode M> __device__ __forceinline__ void run_as(void)
    {
        for (runs w(j); w.next(j);) {
            keep.clear();
#pragma unroll 1
            for (int i = 0; i < w.count; i++) {
                sum_t sum[N];
                multiply(sum);
                take<M>(w, sum, i);
            }
            for (int i = 1; i < S::TAPS; i++)
                free_line();
        }
    }

    __device__ __forceinline__ void run(void)
    {
        if (!j.pool)
            run_as<LINES>();
        else if (j.wide % 2)
            run_as<POOL_ODD>();
        else
            run_as<POOL>();
    }
};

} // namespace stem

#endif
