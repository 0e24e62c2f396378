/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first layer of an image network on Hopper: a convolution of one to four channels at steps of
 * 2, bias and ReLU, and a maximum over windows of 3x3 at steps of 2 behind it, in one launch.
 * docs/kernels.md has a drawing.
 *
 * Two by two pixels of the image are a cell, whose channels are those of the four: over cells the
 * convolution has steps of 1, and half as many taps along each side. A line of cells lies in shared
 * memory as bricks of 16 bytes, one a cell (or two, in planes). Products read bricks without a
 * swizzle, the next brick of the depth 16 bytes further: the neighbouring cell is the next tap, so
 * that a line is built once and read as a matrix of windows by its descriptors alone.
 *
 * Products are filters times cells, a line of the output at a time: what the pool compares along a
 * line is in one thread or in its neighbour, and along a column in two products that follow one
 * another. Comparing rounded values, or sums of integers, gives what two layers give, bit for bit.
 *
 * A block has a warpgroup that multiplies, and warps that build lines, each its own ones: it has
 * asked memory for its next line before it waits for room. Two blocks share a multiprocessor; one
 * compares and stores while the other multiplies. Each has an equal share of the output's lines.
 */
#ifndef INFERD_KERNELS_CUDA_STEM_CUH
#define INFERD_KERNELS_CUDA_STEM_CUH

#include "kernels/cuda/hopper_mma.cuh"

namespace stem
{

constexpr int SLAB = 64;              /* filters of a product */
constexpr int COLUMNS = 112;          /* cells of a product */
constexpr int CELLS = COLUMNS + 4;    /* of a line in shared memory */
constexpr int SLOTS = 16, BRICK = 16; /* lines; bytes */
constexpr int PANEL = SLAB * 128;     /* bytes of weights: lines of 128, swizzled */
constexpr int PAIRS = CELLS / 2;      /* of a line; a thread builds two cells at a time */
constexpr int TURNS = (PAIRS + KERNEL_WARP - 1) / KERNEL_WARP;
constexpr int WARPS = HOPPER_WARPGROUP / KERNEL_WARP;
constexpr int BLOCKS = 2; /* of a multiprocessor */

struct job {
    const void *x, *weights;
    const float *bias, *scale; /* of all filters; scale: of bytes */
    void *y;
    int height, width, channels; /* of an image */
    int tall, wide;              /* the convolution's output */
    int rows, columns, filters;  /* of y */
    int tiles, groups, items;    /* items: lines of tiles of all images */
    int up, left;                /* the first tap's cell, counted from the output's; left is even */
    int odd;                     /* cells of a line in front of the first tap's */
    int plane, down, right;      /* numbers from a pixel's channel to the next one, and so on */
    bool pool, relu, last, whole; /* last: fours go along the channels; whole: fours are aligned */
    float shift[4];
    uint32_t outside; /* bytes of what lies outside of an image */
    float low, high;
};

/* T: what is multiplied, half_t or bf16_t (X: uint8_t or T), or that X is bytes: int8_t, uint8_t.
 * DEEP: four channels. */
template <class T_, class X_, int TAPS_, bool DEEP_> struct shape {
    typedef T_ T;
    typedef X_ X;
    static constexpr int TAPS = TAPS_;
    static constexpr bool BYTES = sizeof(T) == 1, DEEP = DEEP_;
    static constexpr int PLANES = BYTES ? 1 : 2, PLANE = CELLS * BRICK, LINE = PLANES * PLANE;
    static constexpr int STEPS = kernel_stem_steps(BYTES, TAPS, DEEP); /* of a line of taps */
    static constexpr int WEIGHTS = (TAPS * STEPS * 32 + 127) / 128 * PANEL;
    static constexpr int BUILDERS = BYTES ? 2 : 4;
    static constexpr int THREADS = HOPPER_WARPGROUP + BUILDERS * KERNEL_WARP;
    static constexpr int SHARED = HOPPER_ALIGN + WEIGHTS + SLOTS * LINE + 2 * SLOTS * 8;
    static_assert(BLOCKS * (SHARED + 1024) <= HOPPER_SHARED_MAX, "shared memory");
};

template <class S> struct room { /* shared memory */
    unsigned char *weights, *lines;
    uint64_t *full, *empty;
    __device__ explicit room(unsigned char *raw)
    {
        weights = shared_aligned(raw);
        lines = weights + S::WEIGHTS;
        full = reinterpret_cast<uint64_t *>(lines + SLOTS * S::LINE);
        empty = full + SLOTS;
    }
};

/* A block's share of the output's lines, as runs of lines of one tile: for each, the lines of the
 * convolution from `line` on. A pool's run begins with the line above it, if there is one. */
struct runs {
    int at, end, image, tile, line, count;
    __device__ __forceinline__ explicit runs(const job &j)
        : at(0), end(0), image(0), tile(0), line(0), count(0)
    {
        int64_t block = (int)blockIdx.x / j.groups, blocks = (int)gridDim.x / j.groups;
        at = (int)(j.items * block / blocks);
        end = (int)(j.items * (block + 1) / blocks);
    }
    __device__ __forceinline__ bool next(const job &j)
    {
        if (at >= end)
            return false;
        int column = at / j.rows, row = at - column * j.rows, n = min(j.rows - row, end - at);
        image = column / j.tiles;
        tile = column - image * j.tiles;
        line = j.pool ? max(2 * row - 1, 0) : row;
        count = (j.pool ? min(2 * (row + n), j.tall) : row + n) - line;
        at += n;
        return true;
    }
    /* The tile's first column of the convolution. A pool's tile begins with a pair of columns that
     * is the last one of the tile before, and is not stored. */
    __device__ __forceinline__ int first(const job &j) const
    {
        return tile * (j.pool ? COLUMNS - 2 : COLUMNS);
    }
};

/* --- warps that build lines --- */

template <class X> struct four { /* neighbouring numbers */
    uint32_t word[sizeof(X)];
};

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

    /* Rows whose fours are aligned. */
    __device__ __forceinline__ void load_whole(const job &j, const X *x, int row, int column)
    {
#pragma unroll
        for (int down = 0; down < 2; down++)
#pragma unroll
            for (int k = 0; k < C; k++) {
                int64_t at = (int64_t)(row + down) * j.down + column * (LAST ? C : 1);
                const X *from = x + at + (LAST ? 4 * k : (int64_t)k * j.plane);
                four<X> &to = v[LAST ? down * C + k : 2 * k + down];
                if (!(there >> 4 * down & 1))
                    continue;
                if constexpr (sizeof(X) == 1) {
                    to.word[0] = __ldg(reinterpret_cast<const uint32_t *>(from));
                } else {
                    uint2 both = __ldg(reinterpret_cast<const uint2 *>(from));
                    to.word[0] = both.x, to.word[1] = both.y;
                }
            }
    }

    /* A number at a time, from any rows. */
    __device__ __forceinline__ void load_each(const job &j, const X *x, int row, int column)
    {
        constexpr int IN = 4 / sizeof(X), SIZE = 32 / IN; /* numbers of a word, bits of a number */
        constexpr uint32_t MASK = (1u << SIZE) - 1;
#pragma unroll
        for (int i = 0; i < 8 * C; i++) {
            const int k = i / 8, down = i / 4 % 2, right = i % 4;
            uint32_t &to = v[2 * k + down].word[right / IN];
            if (!(there >> (4 * down + right) & 1))
                continue;
            const X *from = x + (int64_t)(row + down) * j.down + (int64_t)k * j.plane +
                            (column + right) * j.right;
            uint32_t n = sizeof(X) == 1 ? *reinterpret_cast<const uint8_t *>(from)
                                        : *reinterpret_cast<const uint16_t *>(from);
            to = (to & ~(MASK << right % IN * SIZE)) | n << right % IN * SIZE;
        }
    }

    __device__ __forceinline__ void load(const job &j, int image, int row, int column)
    {
        const X *x = static_cast<const X *>(j.x) + (int64_t)image * C * j.height * j.width;
        uint32_t columns = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            columns |= (uint32_t)(column + i >= 0 && column + i < j.width) << i;
        there = (row >= 0 && row < j.height ? columns : 0) |
                (row + 1 >= 0 && row + 1 < j.height ? columns << 4 : 0);
        outside(j);
        if (LAST || j.whole) {
            if (there)
                load_whole(j, x, row, column);
        } else if (there) {
            load_each(j, x, row, column);
        }
    }

    /* Two bytes become floats, and each channel is shifted. */
    __device__ __forceinline__ uint32_t shifted(const job &j, uint32_t two, int p, int n) const
    {
        const pair_place<C, LAST> at(p, n);
        const int first = 2 * (p * C + n % C);
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

    /* The channels of cell p, those that are not there 0. */
    __device__ __forceinline__ void cell(const job &j, int p, uint32_t (&to)[4 * S::PLANES]) const
    {
#pragma unroll
        for (int i = 0; i < 4 * S::PLANES; i++)
            to[i] = 0;
#pragma unroll
        for (int n = 0; n < 2 * C; n++) {
            const pair_place<C, LAST> at(p, n);
            if constexpr (sizeof(X) == 2) {
                to[n] = v[at.at].word[at.half];
            } else {
                uint32_t two = __byte_perm(v[at.at].word[0], 0, at.half ? 0x4432 : 0x4410);
                if constexpr (S::BYTES)
                    to[n / 2] |= two << n % 2 * 16;
                else
                    to[n] = shifted(j, two, p, n);
            }
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

/* The lines of cells of a block, in order; a warp has each BUILDERS-th of them. */
template <class S> struct lines {
    runs r;
    int i, count; /* of the run; of all */
    bool more;
    __device__ __forceinline__ lines(const job &j, int warp)
        : r(j), i(warp), count(warp), more(r.next(j))
    {
        settle(j);
    }
    __device__ __forceinline__ void settle(const job &j)
    {
        while (more && i >= r.count + S::TAPS - 1) {
            i -= r.count + S::TAPS - 1;
            more = r.next(j);
        }
    }
    __device__ __forceinline__ void next(const job &j)
    {
        i += S::BUILDERS;
        count += S::BUILDERS;
        settle(j);
    }
};

template <class S, int C, bool LAST> struct builder {
    patch<S, C, LAST> part[TURNS];
    int lane;
    __device__ __forceinline__ void load(const job &j, const lines<S> &l)
    {
        int row = 2 * (l.r.line + l.i + j.up), column = 2 * (l.r.first(j) + j.left);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            if (lane + turn * KERNEL_WARP < PAIRS)
                part[turn].load(j, l.r.image, row, column + 4 * (lane + turn * KERNEL_WARP));
    }
    __device__ __forceinline__ void put(const job &j, unsigned char *line) const
    {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            if (lane + turn * KERNEL_WARP < PAIRS)
                part[turn].put(j, line, lane + turn * KERNEL_WARP);
    }
    __device__ __forceinline__ void run(const room<S> &r, const job &j, int warp)
    {
        lines<S> l(j, warp);
        lane = (int)threadIdx.x % KERNEL_WARP;
        if (l.more)
            load(j, l);
        while (l.more) {
            int slot = l.count % SLOTS;
            mbarrier_wait(r.empty + slot, (uint32_t)(l.count / SLOTS & 1) ^ 1);
            put(j, r.lines + slot * S::LINE);
            proxy_fence();
            mbarrier_arrive(r.full + slot);
            l.next(j);
            if (l.more)
                load(j, l);
        }
    }
};

template <class S, int C>
__device__ __forceinline__ void build_channels(const room<S> &r, const job &j, int warp)
{
    if (j.last)
        builder<S, C, true>().run(r, j, warp);
    else
        builder<S, C, false>().run(r, j, warp);
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

/* --- the warpgroup that multiplies --- */

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

/* What a thread keeps of a line of the convolution: two filters, and of each 8 columns of cells two
 * neighbouring ones. 16-bit floats: rounded, a filter's two columns in a word. */
template <class S, bool BYTES = S::BYTES> struct kept {
    static constexpr int N = COLUMNS / 4;
    static constexpr uint32_t LOWEST = (int)number_of<typename S::T>::dtype == DTYPE_F16
                                           ? 0xfc00fc00u
                                           : 0xff80ff80u; /* -infinity */
    typedef typename S::T T;
    typedef float sum_t;
    typedef uint32_t pair_t; /* a column of both filters */
    uint32_t v[N];           /* [2 (columns / 8) + filter] */
    float bias[2];

    static __device__ __forceinline__ pair_t lowest(void)
    {
        return LOWEST;
    }

    __device__ __forceinline__ void open(const job &j, int filter)
    {
        bias[0] = j.bias ? __ldg(j.bias + filter) : 0;
        bias[1] = j.bias ? __ldg(j.bias + filter + 1) : 0;
    }
    __device__ __forceinline__ void clear(void)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = LOWEST;
    }
    __device__ __forceinline__ uint32_t rounded(const float (&sum)[COLUMNS / 2], int i) const
    {
        return pair_of<T>(sum[2 * i] + bias[i % 2], sum[2 * i + 1] + bias[i % 2]);
    }
    __device__ __forceinline__ void compare(const float (&sum)[COLUMNS / 2])
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = pair_max<T>(v[i], rounded(sum, i));
    }

    /* Columns 8 i of this line and of those that were kept: the best of a thread's two and of the
     * one before them, which `before` carries along the line. `only`: the second one does not
     * exist. This line is kept alone then. */
    __device__ __forceinline__ pair_t best(const float (&sum)[COLUMNS / 2], int i, bool only,
                                           pair_t &before)
    {
        int lane = (int)threadIdx.x % KERNEL_WARP, t = lane % 4;
        uint32_t most[2];
#pragma unroll
        for (int f = 0; f < 2; f++) {
            uint32_t now = rounded(sum, 2 * i + f);
            most[f] = pair_max<T>(v[2 * i + f], now);
            v[2 * i + f] = now;
        }
        uint32_t left = __byte_perm(most[0], most[1], 0x5410);
        uint32_t right = only ? LOWEST : __byte_perm(most[0], most[1], 0x7632);
        uint32_t come = __shfl_sync(0xffffffffu, right, lane - t + (t + 3) % 4);
        uint32_t side = t ? come : before;
        before = come;
        return pair_max<T>(pair_max<T>(left, right), side);
    }
    __device__ __forceinline__ void store(const job &j, int64_t at, uint32_t both) const
    {
        if (j.relu)
            both = pair_max<T>(both, 0);
        *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(j.y) + at) = both;
    }
    __device__ __forceinline__ void store_column(const job &j, const float (&sum)[COLUMNS / 2],
                                                 int i, int64_t at) const
    {
        const int n = 4 * (i / 2) + i % 2;
        store(j, at, pair_of<T>(sum[n] + bias[0], sum[n + 2] + bias[1]));
    }
};

/* Bytes: sums, which scales that are not negative keep in order. */
template <class S> struct kept<S, true> {
    static constexpr int N = COLUMNS / 2;
    typedef int32_t sum_t;
    struct pair_t {
        int32_t v[2];
    };
    int32_t v[N];
    float bias[2], scale[2];

    static __device__ __forceinline__ pair_t lowest(void)
    {
        return {{INT32_MIN, INT32_MIN}};
    }

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
            v[i] = INT32_MIN;
    }
    __device__ __forceinline__ void compare(const int32_t (&sum)[COLUMNS / 2])
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = max(v[i], sum[i]);
    }
    __device__ __forceinline__ pair_t best(const int32_t (&sum)[COLUMNS / 2], int i, bool only,
                                           pair_t &before)
    {
        int lane = (int)threadIdx.x % KERNEL_WARP, t = lane % 4;
        pair_t out;
#pragma unroll
        for (int f = 0; f < 2; f++) {
            const int n = 4 * i + 2 * f;
            int32_t left = max(v[n], sum[n]);
            int32_t right = only ? INT32_MIN : max(v[n + 1], sum[n + 1]);
            v[n] = sum[n], v[n + 1] = sum[n + 1];
            int32_t come = __shfl_sync(0xffffffffu, right, lane - t + (t + 3) % 4);
            out.v[f] = max(max(left, right), t ? come : before.v[f]);
            before.v[f] = come;
        }
        return out;
    }
    __device__ __forceinline__ void store(const job &j, int64_t at, const pair_t &both) const
    {
        uint32_t out = 0;
#pragma unroll
        for (int f = 0; f < 2; f++) {
            float x = fmaf((float)both.v[f], scale[f], bias[f]);
            int q = (int)rintf(fminf(fmaxf(x, j.low), j.high));
            out |= ((uint32_t)q & 0xff) << 8 * f;
        }
        *reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(j.y) + at) = (uint16_t)out;
    }
    __device__ __forceinline__ void store_column(const job &j, const int32_t (&sum)[COLUMNS / 2],
                                                 int i, int64_t at) const
    {
        const int n = 4 * (i / 2) + i % 2;
        const pair_t both = {{sum[n], sum[n + 2]}};
        store(j, at, both);
    }
};

template <class S> struct consumer {
    typedef typename kept<S>::sum_t sum_t;
    const room<S> &r;
    const job &j;
    kept<S> keep;
    int group, filter, count, waited; /* count, waited: lines of cells */

    __device__ consumer(const room<S> &shared, const job &todo)
        : r(shared), j(todo), keep(), group((int)blockIdx.x % todo.groups), filter(0), count(0),
          waited(0)
    {
        int thread = (int)threadIdx.x;
        filter = group * SLAB + thread / KERNEL_WARP * 16 + thread % KERNEL_WARP / 4 * 2;
        keep.open(j, filter);
    }

    __device__ __forceinline__ void free_line(int line)
    {
        if (threadIdx.x % KERNEL_WARP == 0)
            mbarrier_arrive(r.empty + line % SLOTS);
    }

    /* Step s of a line of taps. The second plane has two taps in a brick (see patch::put). */
    __device__ __forceinline__ uint64_t cells(int tap, int s) const
    {
        const bool second = !S::BYTES && s >= S::TAPS / 2;
        const int at = second ? S::PLANE + (s - S::TAPS / 2) * 2 * BRICK : s * 2 * BRICK;
        const int lead = second && !S::DEEP && S::TAPS == 4 ? 2 * BRICK : BRICK;
        uint32_t line = shared_address(r.lines + (count + tap) % SLOTS * S::LINE);
        return descriptor_bricks(line + (uint32_t)(at + j.odd * BRICK), lead, 8 * BRICK);
    }

    __device__ __forceinline__ void multiply(sum_t (&sum)[COLUMNS / 2])
    {
        uint32_t weights = shared_address(r.weights);
        for (; waited < count + S::TAPS; waited++)
            mbarrier_wait(r.full + waited % SLOTS, (uint32_t)(waited / SLOTS & 1));
        wgmma_hold(sum);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::TAPS * S::STEPS; i++) {
            uint64_t a = descriptor_rows<128>(weights + (uint32_t)(i / 4 * PANEL + i % 4 * 32));
            uint64_t b = cells(i / S::STEPS, i % S::STEPS);
            if constexpr (S::BYTES)
                wgmma_bytes<int8_t, typename S::X>(sum, a, b, i > 0);
            else
                wgmma<typename S::T>(sum, a, b, i > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(sum);
        free_line(count++);
    }

    /* Numbers of y from its start to the thread's filters of a pixel. */
    __device__ __forceinline__ int64_t place(const runs &w, int row, int column) const
    {
        return (((int64_t)w.image * j.rows + row) * j.columns + column) * j.filters + filter;
    }

    __device__ __forceinline__ void store_pool(const runs &w, const sum_t (&sum)[COLUMNS / 2],
                                               int row)
    {
        int t = (int)threadIdx.x % 4, column = w.first(j) / 2 + t;
        int64_t at = place(w, row, column);
        int left = filter < j.filters ? j.columns - column : 0;
        int wide = j.wide - 2 * column; /* columns of the convolution that are left */
        typename kept<S>::pair_t before = kept<S>::lowest();
        bool repeated = w.tile > 0 && t == 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++, at += 4 * j.filters) {
            typename kept<S>::pair_t both = keep.best(sum, i, wide <= 8 * i + 1, before);
            if (4 * i < left && !(i == 0 && repeated))
                keep.store(j, at, both);
        }
    }

    __device__ __forceinline__ void store_line(const runs &w, const sum_t (&sum)[COLUMNS / 2],
                                               int row)
    {
        int column = w.first(j) + (int)threadIdx.x % 4 * 2;
        int64_t at = place(w, row, column);
        int left = filter < j.filters ? j.columns - column : 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++, at += 8 * j.filters)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (8 * i + k < left)
                    keep.store_column(j, sum, 2 * i + k, at + k * j.filters);
    }

    __device__ __forceinline__ void run(void)
    {
        for (runs w(j); w.next(j);) {
            keep.clear();
#pragma unroll 1
            for (int i = 0; i < w.count; i++) {
                sum_t sum[COLUMNS / 2];
                int line = w.line + i;
                multiply(sum);
                if (!j.pool)
                    store_line(w, sum, line);
                else if (line % 2 ? i > 0 : line == j.tall - 1)
                    store_pool(w, sum, line / 2);
                else
                    keep.compare(sum);
            }
            for (int i = 1; i < S::TAPS; i++)
                free_line(count++);
        }
    }
};

/* Weights are packed as they lie in shared memory. */
template <class S>
__device__ __forceinline__ void fetch_weights(unsigned char *to, const job &j, int group)
{
    const uint4 *from = static_cast<const uint4 *>(j.weights) + group * (S::WEIGHTS / 16);
    for (int i = (int)threadIdx.x; i < S::WEIGHTS / 16; i += S::THREADS)
        shared_put(to + i * 16, __ldg(from + i));
    proxy_fence();
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, BLOCKS) kernel(const __grid_constant__ job j)
{
    KERNEL_SHARED(unsigned char, raw);
    room<S> r(raw);
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            mbarrier_init(r.full + i, KERNEL_WARP);
            mbarrier_init(r.empty + i, WARPS);
        }
    } /* no copies know of these: __syncthreads is enough */
    fetch_weights<S>(r.weights, j, (int)blockIdx.x % j.groups); /* no kernel writes weights */
    __syncthreads();
    grid_go();
    grid_wait();
    if (threadIdx.x < HOPPER_WARPGROUP)
        consumer<S>(r, j).run();
    else
        build<S>(r, j);
}

/* --- launching --- */

/* The first tap's cell, and the pixels of its cell that the window begins behind. */
inline int first_cell(int pad)
{
    return -((pad + 1) / 2);
}

template <class S> struct job job_of(const struct kernel_stem &p)
{
    struct job j = {};
    int left = first_cell(p.pad[1]);
    j.x = p.x, j.weights = p.weights, j.bias = p.bias, j.scale = p.scale, j.y = p.y;
    j.height = (int)p.in[0], j.width = (int)p.in[1], j.channels = (int)p.channels;
    j.tall = (int)p.out[0], j.wide = (int)p.out[1];
    j.rows = p.pool ? (j.tall + 1) / 2 : j.tall;
    j.columns = p.pool ? (j.wide + 1) / 2 : j.wide;
    j.filters = (int)p.filters;
    j.tiles = p.pool ? max((j.columns - 1 + COLUMNS / 2 - 2) / (COLUMNS / 2 - 1), 1)
                     : (j.wide + COLUMNS - 1) / COLUMNS;
    j.groups = (j.filters + SLAB - 1) / SLAB;
    j.up = first_cell(p.pad[0]);
    j.odd = left & 1;
    j.left = left - j.odd;
    j.pool = p.pool, j.relu = p.relu;
    j.whole = j.width % 4 == 0;
    j.last = p.last && j.whole;
    j.plane = p.last ? 1 : j.height * j.width;
    j.down = p.last ? j.width * j.channels : j.width;
    j.right = p.last ? j.channels : 1;
    for (int i = 0; i < 4; i++)
        j.shift[i] = p.shift[i];
    j.outside = (uint32_t)(p.zero & 0xff) * 0x01010101u;
    j.low = p.low, j.high = p.high;
    return j;
}

/* The kernel counts lines in 31 bits. */
inline bool counts(const struct kernel_stem &p)
{
    const int64_t most = INT32_MAX / 4, side = 1 << 20;
    bool fits = p.images >= 1 && p.filters >= 2 && p.filters <= most && p.filters % 2 == 0;
    fits = fits && p.in[0] * p.in[1] <= most;
    for (int i = 0; i < 2; i++)
        fits = fits && p.in[i] >= 1 && p.in[i] <= side && p.out[i] >= 1 && p.out[i] <= side;
    return fits && p.images <= most / (p.out[0] * ((p.out[1] + COLUMNS - 1) / COLUMNS + 1));
}

template <class S>
cudaError_t launch_of(const struct kernel_call *call, const struct kernel_stem &p)
{
    if (!counts(p))
        return cudaErrorNotSupported;
    struct job j = job_of<S>(p);
    int64_t items = p.images * j.tiles * j.rows;
    int multiprocessors = call->multiprocessors > 0 ? call->multiprocessors : 132;
    j.items = (int)items;
    int blocks = max(min((int)items, BLOCKS * multiprocessors / j.groups), 1) * j.groups;
    return hopper_launch(kernel<S>, (unsigned)blocks, 1, S::THREADS, S::SHARED, call, j);
}

/* The kernel with so many taps of cells along a side. */
template <class T, class X, bool DEEP>
cudaError_t launch_taps(const struct kernel_call *call, const struct kernel_stem &p)
{
    return kernel_stem_taps(&p) == 2 ? launch_of<shape<T, X, 2, DEEP>>(call, p)
                                     : launch_of<shape<T, X, 4, DEEP>>(call, p);
}

template <class T, class X>
cudaError_t launch(const struct kernel_call *call, const struct kernel_stem &p)
{
    if constexpr (sizeof(T) == 1)
        return launch_taps<T, X, false>(call, p);
    else
        return p.channels == 4 ? launch_taps<T, X, true>(call, p)
                               : launch_taps<T, X, false>(call, p);
}

/* stem_f16.cu, stem_bf16.cu, stem_bytes.cu: by the type that is multiplied */
cudaError_t launch_f16(const struct kernel_call *call, const struct kernel_stem &p);
cudaError_t launch_bf16(const struct kernel_call *call, const struct kernel_stem &p);
cudaError_t launch_bytes(const struct kernel_call *call, const struct kernel_stem &p);

} // namespace stem

#endif
