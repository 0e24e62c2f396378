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
 * A block has a warpgroup that multiplies, and one whose warps build lines, each halves of its own
 * ones: it has asked memory for its next two before it waits for room. Two blocks share a
 * multiprocessor; one compares and stores while the other multiplies. Each has an equal share of
 * the output's lines.
 *
 * stem_build.cuh has the warps that build, stem_keep.cuh those that multiply, stem_launch.cuh the
 * kernel and its launcher.
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
constexpr int HALVES = (PAIRS + KERNEL_WARP - 1) / KERNEL_WARP; /* warps that build a line */
constexpr int WARPS = HOPPER_WARPGROUP / KERNEL_WARP;
constexpr int BUILT = WARPS / HALVES; /* lines that are built at a time */
constexpr int THREADS = 2 * HOPPER_WARPGROUP;
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
    /* of floats that become bytes: a step and its inverse, the zero point, the limits as floats */
    float step, inverse, zero, least, most;
    float low, high;
};

/* T: what is multiplied, and cells are made of: half_t, bf16_t, int8_t or uint8_t. X: what images
 * are made of: T, float, or uint8_t beside floats. DEEP: four channels. */
template <class T_, class X_, int TAPS_, bool DEEP_> struct shape {
    typedef T_ T;
    typedef X_ X;
    static constexpr int TAPS = TAPS_;
    static constexpr bool BYTES = sizeof(T) == 1, DEEP = DEEP_;
    static constexpr int PLANES = BYTES ? 1 : 2, PLANE = CELLS * BRICK, LINE = PLANES * PLANE;
    static constexpr int STEPS = kernel_stem_steps(BYTES, TAPS, DEEP); /* of a line of taps */
    static constexpr int WEIGHTS = (TAPS * STEPS * 32 + 127) / 128 * PANEL;
    static constexpr int SHARED = HOPPER_ALIGN + WEIGHTS + SLOTS * LINE + 2 * SLOTS * 8;
    static_assert(BLOCKS * (SHARED + 1024) <= HOPPER_SHARED_MAX, "shared memory");
};

template <class S> struct room { /* shared memory */
    unsigned char *weights, *lines;
    uint64_t *full, *empty;
    __device__ explicit room(unsigned char *raw)
    {
        weights = shared_kept(raw);
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

/* stem_f16.cu, stem_bf16.cu, stem_bytes.cu: by the type that is multiplied */
cudaError_t launch_f16(const struct kernel_call *call, const struct kernel_stem &p);
cudaError_t launch_bf16(const struct kernel_call *call, const struct kernel_stem &p);
cudaError_t launch_bytes(const struct kernel_call *call, const struct kernel_stem &p);

} // namespace stem

#endif
