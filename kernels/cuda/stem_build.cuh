/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warps of stem.cuh that build lines of cells. A thread has four columns of two rows of the
 * image, in all channels: two cells. What the image holds is brought to the type that is multiplied
 * here: so no kernel before this one reads and writes the whole image for that.
 */
#ifndef INFERD_KERNELS_CUDA_STEM_BUILD_CUH
#define INFERD_KERNELS_CUDA_STEM_BUILD_CUH

#include "kernels/cuda/stem.cuh"

namespace stem
{

template <class X> struct four { /* neighbouring numbers */
    uint32_t word[sizeof(X)];
};

template <class X> __device__ __forceinline__ void load_four(const X *from, four<X> &to)
{
    if constexpr (sizeof(X) == 1) {
        to.word[0] = __ldg(reinterpret_cast<const uint32_t *>(from));
    } else if constexpr (sizeof(X) == 2) {
        uint2 both = __ldg(reinterpret_cast<const uint2 *>(from));
        to.word[0] = both.x, to.word[1] = both.y;
    } else {
        uint4 all = __ldg(reinterpret_cast<const uint4 *>(from));
        to.word[0] = all.x, to.word[1] = all.y, to.word[2] = all.z, to.word[3] = all.w;
    }
}

template <class X> __device__ __forceinline__ void load_one(const X *from, int at, four<X> &to)
{
    if constexpr (sizeof(X) == 4) {
        to.word[at] = __ldg(reinterpret_cast<const uint32_t *>(from));
    } else {
        constexpr int IN = 4 / sizeof(X), SIZE = 32 / IN; /* numbers of a word, bits of a number */
        constexpr uint32_t MASK = (1u << SIZE) - 1;
        uint32_t n = sizeof(X) == 1 ? *reinterpret_cast<const uint8_t *>(from)
                                    : *reinterpret_cast<const uint16_t *>(from);
        uint32_t &word = to.word[at / IN];
        word = (word & ~(MASK << at % IN * SIZE)) | n << at % IN * SIZE;
    }
}

/* Numbers 2 half and 2 half + 1 of floats. */
template <class X> __device__ __forceinline__ float2 floats_of(const four<X> &from, int half)
{
    if constexpr (sizeof(X) == 4)
        return make_float2(__uint_as_float(from.word[2 * half]),
                           __uint_as_float(from.word[2 * half + 1]));
    else
        return pair_floats<X>(from.word[half]);
}

/* The integer of v in the last byte, rounded as QUANTIZE rounds it (side_quotient): limits that are
 * integers may come before the division, and of NaN the least is made. */
__device__ __forceinline__ uint32_t integer_of(const job &j, float v)
{
    v = fminf(fmaxf(v, j.least), j.most);
    float q = v * j.inverse;
    q = fmaf(fmaf(-q, j.step, v), j.inverse, q);
    /* 1.5 2^23 + q has no room for fractions, and q in its last bits */
    return __float_as_uint(q + 12582912.0f + j.zero);
}

/* Number `n` of the pairs of numbers that make up cell `p` of a thread's two: where it was loaded
 * (a number of `four`s, and which half of it), and the pixels of its two numbers. Planes have their
 * channels one after the other; channels that lie last make pairs as they lie. */
template <int C, bool LAST> struct pair_place {
    int at, half, down, right[2];
    __host__ __device__ constexpr pair_place(int p, int n)
        : at(LAST ? n / C * C + (p * C + n % C) / 2 : n), half(LAST ? (p * C + n % C) % 2 : p),
          down(LAST ? n / C : n % 2), right{LAST ? 2 * (p * C + n % C) / C : 2 * p,
                                            LAST ? (2 * (p * C + n % C) + 1) / C : 2 * p + 1}
    {
    }
};

/* The numbers of two cells: four columns of two rows. */
template <class S, int C, bool LAST> struct patch {
    typedef typename S::X X;
    typedef typename S::T T;
    static constexpr bool SAME = sizeof(X) == sizeof(T); /* numbers stay as they are */
    four<X> v[2 * C];
    uint32_t there; /* bit 4 row + column: the pixel is in the image */

    __device__ __forceinline__ void outside(const job &j)
    {
#pragma unroll
        for (int i = 0; i < 2 * C; i++)
#pragma unroll
            for (int k = 0; k < (int)sizeof(X); k++)
                v[i].word[k] = sizeof(X) == 1 ? j.outside : 0;
    }

    /* Rows whose fours are aligned: all of a four is in the image, or nothing. */
    __device__ __forceinline__ void load_whole(const job &j, const X *line, int column)
    {
#pragma unroll
        for (int down = 0; down < 2; down++)
#pragma unroll
            for (int k = 0; k < C; k++)
                if (there >> 4 * down & 1)
                    load_four(line + (column * (LAST ? C : 1) + down * j.down +
                                      k * (LAST ? 4 : j.plane)),
                              v[LAST ? down * C + k : 2 * k + down]);
    }

    /* A number at a time, from any rows. */
    __device__ __forceinline__ void load_each(const job &j, const X *line, int column)
    {
#pragma unroll
        for (int i = 0; i < 8 * C; i++) {
            const int k = i / 8, down = i / 4 % 2, right = i % 4;
            if (there >> (4 * down + right) & 1)
                load_one(line + (down * j.down + k * j.plane + (column + right) * j.right), right,
                         v[2 * k + down]);
        }
    }

    /* Of four columns from `column` on of two rows, whose first one begins at `line`. */
    __device__ __forceinline__ void load(const job &j, const X *line, int row, int column)
    {
        uint32_t columns = 0;
        if (LAST || j.whole) {
            columns = (unsigned)column < (unsigned)j.width ? 0xf : 0;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                columns |= (uint32_t)((unsigned)(column + i) < (unsigned)j.width) << i;
        }
        there = ((unsigned)row < (unsigned)j.height ? columns : 0) |
                ((unsigned)(row + 1) < (unsigned)j.height ? columns << 4 : 0);
        outside(j);
        if (LAST || j.whole)
            load_whole(j, line, column);
        else
            load_each(j, line, column);
    }

    /* Two bytes become floats, and each channel is shifted. */
    __device__ __forceinline__ uint32_t shifted(const job &j, int p, int n) const
    {
        const pair_place<C, LAST> at(p, n);
        const int first = 2 * (p * C + n % C);
        uint32_t two = __byte_perm(v[at.at].word[0], 0, at.half ? 0x4432 : 0x4410);
        float a = j.shift[LAST ? first % C : n / 2], b = j.shift[LAST ? (first + 1) % C : n / 2];
        /* 2^23 + q has q in its last byte */
        a += __uint_as_float(__byte_perm(two, 0x4b000000u, 0x7650)) - 8388608.0f;
        b += __uint_as_float(__byte_perm(two, 0x4b000000u, 0x7651)) - 8388608.0f;
        uint32_t word = pair_of<T>(a, b);
        if (there != 0xff) {
            word &= there >> (4 * at.down + at.right[0]) & 1 ? ~0u : 0xffff0000u;
            word &= there >> (4 * at.down + at.right[1]) & 1 ? ~0u : 0x0000ffffu;
        }
        return word;
    }

    /* Pair n of cell p as floats of 16 bits. */
    __device__ __forceinline__ uint32_t halves(const job &j, int p, int n) const
    {
        const pair_place<C, LAST> at(p, n);
        if constexpr (SAME) {
            return v[at.at].word[at.half];
        } else if constexpr (sizeof(X) == 1) {
            return shifted(j, p, n);
        } else {
            float2 two = floats_of<X>(v[at.at], at.half);
            return pair_of<T>(two.x, two.y);
        }
    }

    /* Pair n of cell p as bytes, the last two of a word. */
    __device__ __forceinline__ uint32_t integers(const job &j, const pair_place<C, LAST> &at) const
    {
        float2 two = floats_of<X>(v[at.at], at.half);
        return __byte_perm(integer_of(j, two.x), integer_of(j, two.y), 0x0040);
    }

    /* Pairs n and n + 1 of cell p as bytes. */
    __device__ __forceinline__ uint32_t bytes(const job &j, int p, int n) const
    {
        const pair_place<C, LAST> a(p, n), b(p, n + 1);
        if constexpr (SAME)
            return __byte_perm(v[a.at].word[0], v[b.at].word[0],
                               (b.half ? 0x7600 : 0x5400) | (a.half ? 0x32 : 0x10));
        else
            return __byte_perm(integers(j, a), integers(j, b), 0x5410);
    }

    /* The channels of cell p, those that are not there 0. */
    __device__ __forceinline__ void cell(const job &j, int p, uint32_t (&to)[4 * S::PLANES]) const
    {
#pragma unroll
        for (int i = 0; i < 4 * S::PLANES; i++)
            to[i] = 0;
        if constexpr (S::BYTES) {
#pragma unroll
            for (int i = 0; i < C; i++)
                to[i] = bytes(j, p, 2 * i);
        } else {
#pragma unroll
            for (int i = 0; i < 2 * C; i++)
                to[i] = halves(j, p, i);
        }
    }

    /* Puts the cells 2 pair and 2 pair + 1 into a line. The second plane has the other half of each
     * cell's channels; of up to 12 channels that is half a brick, and the next cell's comes behind
     * it, so that one brick has two taps. */
    __device__ __forceinline__ void put(const job &j, unsigned char *line, int pair) const
    {
        uint32_t a[4 * S::PLANES], b[4 * S::PLANES];
        unsigned char *to = line + 2 * pair * BRICK;
        cell(j, 0, a);
        cell(j, 1, b);
        shared_put(to, make_uint4(a[0], a[1], a[2], a[3]));
        shared_put(to + BRICK, make_uint4(b[0], b[1], b[2], b[3]));
        if constexpr (!S::BYTES) {
            to += S::PLANE;
            if constexpr (S::DEEP) {
                shared_put(to, make_uint4(a[4], a[5], a[6], a[7]));
                shared_put(to + BRICK, make_uint4(b[4], b[5], b[6], b[7]));
            } else {
                if (pair > 0)
                    shared_put(to - BRICK / 2, make_uint2(a[4], a[5]));
                shared_put(to, make_uint4(a[4], a[5], b[4], b[5]));
                shared_put(to + BRICK, make_uint2(b[4], b[5]));
            }
        }
    }
};

/* The lines of cells of a block, in order; two warps have each BUILT-th of them. */
template <class S> struct lines {
    typedef typename S::X X;
    runs r;
    int left;        /* lines of the run from this one on; not above 0: there are no more lines */
    int row, column; /* of the image: the line's first */
    const X *from;   /* where the row begins, or would */
    __device__ __forceinline__ lines(const job &j, int first)
        : r(j), left(0), row(0), column(0), from(nullptr)
    {
        settle(j, first);
    }
    /* Goes to a line so many behind the end of the run. */
    __device__ __forceinline__ void settle(const job &j, int behind)
    {
        int count = 0;
        while (r.next(j)) {
            count = r.count + S::TAPS - 1;
            if (behind < count)
                break;
            behind -= count;
            count = 0;
        }
        left = count - (count ? behind : 0);
        row = 2 * (r.line + behind + j.up);
        column = 2 * (r.first(j) + j.left);
        from = static_cast<const X *>(j.x) +
               ((int64_t)r.image * j.channels * j.height * j.width + (int64_t)row * j.down);
    }
    __device__ __forceinline__ void step(const job &j)
    {
        left -= BUILT;
        row += 2 * BUILT;
        from += 2 * BUILT * j.down;
        if (left <= 0)
            settle(j, -left);
    }
};

/* A warp that builds: two of its halves of lines are asked of memory ahead, or one where there are
 * no registers for two. */
template <class S, int C, bool LAST> struct builder {
    typedef typename S::X X;
    static constexpr bool TWO = sizeof(X) * C < 16;
    const room<S> &r;
    const job &j;
    lines<S> next;  /* what is loaded next */
    uint32_t count; /* of the line that is built next */
    int lane, pair; /* pair: of a line's pairs of cells */

    __device__ builder(const room<S> &shared, const job &todo, int warp)
        : r(shared), j(todo), next(todo, warp / HALVES), count((uint32_t)(warp / HALVES)),
          lane((int)threadIdx.x % KERNEL_WARP), pair(warp % HALVES * KERNEL_WARP + lane)
    {
    }

    /* False: there is nothing more to load. */
    __device__ __forceinline__ bool load(patch<S, C, LAST> &part)
    {
        if (next.left <= 0)
            return false;
        if (pair < PAIRS)
            part.load(j, next.from, next.row, next.column + 4 * pair);
        next.step(j);
        return true;
    }

    __device__ __forceinline__ void build(const patch<S, C, LAST> &part)
    {
        uint32_t slot = count % SLOTS;
        mbarrier_wait(r.empty + slot, (count / SLOTS & 1) ^ 1);
        if (pair < PAIRS)
            part.put(j, r.lines + slot * S::LINE, pair);
        proxy_fence();
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(r.full + slot);
        count += BUILT;
    }

    __device__ __forceinline__ void run(void)
    {
        patch<S, C, LAST> even, odd;
        bool more = false, another = false;
        /* ptxas counts all loads with one counter, and waits for both halves where a turn begins:
         * so memory's latency is there once for two halves, and less of it, since the first half's
         * loads have been under way while the second was built. Were loads in front of the loop,
         * it would wait for both at each half. The first turn only loads. */
#pragma unroll 1
        do {
            if (more)
                build(even);
            more = load(even);
            if constexpr (TWO) {
                if (another)
                    build(odd);
                another = load(odd);
            }
        } while (more || another);
    }
};

template <class S, int C>
__device__ __forceinline__ void build_channels(const room<S> &r, const job &j, int warp)
{
    if (j.last)
        builder<S, C, true>(r, j, warp).run();
    else
        builder<S, C, false>(r, j, warp).run();
}

template <class S> __device__ __forceinline__ void build(const room<S> &r, const job &j)
{
    int warp = ((int)threadIdx.x - HOPPER_WARPGROUP) / KERNEL_WARP;
    if (S::BYTES ? j.channels == 4 : S::DEEP)
        build_channels<S, 4>(r, j, warp);
    else if (j.channels == 3)
        build_channels<S, 3>(r, j, warp);
    else if (j.channels == 2)
        build_channels<S, 2>(r, j, warp);
    else
        build_channels<S, 1>(r, j, warp);
}

} // namespace stem

#endif
