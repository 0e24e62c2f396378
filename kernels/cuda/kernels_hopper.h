/* SPDX-License-Identifier: Apache-2.0 */
/* The part of kernels.h that is for products and convolutions on Hopper. */
#ifndef INFERD_KERNELS_CUDA_KERNELS_HOPPER_H
#define INFERD_KERNELS_CUDA_KERNELS_HOPPER_H

#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dense images [N, H, W, C] as a convolution of one group reads them, for kernels on Hopper: rows
 * of a product are the output's pixels, and its depth is the window's taps with all channels of
 * each. Sides are of H, then of W; pad: begins. kernel[0] 0: no images. */
struct kernel_images {
    int64_t images, channels, in[2], out[2];
    int32_t kernel[2], stride[2], dilation[2], pad[2];
};

/* Where the variants for convolutions of 3x3 by patches (patch.cuh) have a filter among the packed
 * ones: a thread has rows g and g + 8 of 16, neighbouring filters. */
static inline int64_t kernel_patch_row(int64_t filter)
{
    int64_t in = filter % 16;
    return filter - in + in / 2 + in % 2 * 8;
}

/* --- matmul.cu --- */

/* Variants, from 1 on: the rows of the table in matmul_table.cuh; from PATCH on those of patch.cuh.
 * They are for Hopper alone. */
enum { KERNEL_MATMUL_PATCH = 17, KERNEL_MATMUL_VARIANTS = 17 };

/* y = func(scale a b' + bias + residual), or func(scale a b' + bias) + residual if it is `late`. a
 * [rows, depth], residual and y [rows, cols] and bias [cols] are dense, of F16 or BF16; rows of a
 * are whole 16 bytes. func: IR_UNARY_IDENTITY, RELU, GELU, GELU_TANH, or SWISH with `alpha`. The
 * weights b are packed: column c of them is row kernel_matmul_packed_row(v, c) of
 * [kernel_matmul_packed_rows(cols), kernel_matmul_packed_depth(image, depth)]; the rest is 0. If a
 * is images, each tap has kernel_matmul_tap_depth numbers of a packed row. A second source adds to
 * the same sums: a b' is a b' + second.a second.b' then. */
struct kernel_matmul {
    int64_t rows, cols, depth;
    struct kernel_images image; /* whose pixels are rows of a; rows of pixels are whole 16 bytes */
    struct {
        int64_t depth; /* 0: there is none */
        struct kernel_images image;
        const void *a, *b;
    } second;
    int32_t dtype, func;
    float scale, alpha;
    bool late, wide; /* wide: y is FP32, which rows that are apart or divide the depth write */
    const void *a, *b, *bias, *residual; /* bias and residual may be NULL */
    void *y;
};

static inline int64_t kernel_matmul_packed_rows(int64_t cols)
{
    return (cols + 31) / 32 * 32;
}

static inline int64_t kernel_matmul_tap_depth(int64_t channels)
{
    return (channels + 63) / 64 * 64;
}

static inline int64_t kernel_matmul_packed_depth(const struct kernel_images *i, int64_t depth)
{
    return i->kernel[0] ? kernel_matmul_tap_depth(i->channels) * i->kernel[0] * i->kernel[1]
                        : (depth + 7) / 8 * 8;
}

/* Of 32 columns, thread q of the four that share a row of a product's result has the 8 from 8q on:
 * numbers 2i and 2i + 1 of them are that thread's in columns 8i .. 8i + 7 of the result. */
static inline int64_t kernel_matmul_packed_row(int32_t variant, int64_t column)
{
    int64_t in = column % 32;
    return variant >= KERNEL_MATMUL_PATCH ? kernel_patch_row(column)
                                          : column - in + in % 8 / 2 * 8 + in / 8 * 2 + in % 2;
}

cudaError_t kernel_matmul(const struct kernel_call *call, const struct kernel_matmul *p);

/* --- tile.cu --- */

/* Variants, from 1 on: the rows of the table in tile_table.cuh; from PATCH on those of patch.cuh,
 * from SPLIT on those of split.cuh: tiles of 32 columns by 2, 4 and 8 blocks, then of 64; from
 * WIDE on those for results of 16 bits, which of the others only SPLIT's have; from MANY on those
 * of three and four consumers, which have no activation but ReLU, and for integers no limit but 0.
 * They are for Hopper alone. */
enum {
    KERNEL_TILE_PATCH = 13,
    KERNEL_TILE_SPLIT = 15,
    KERNEL_TILE_WIDE = 22,
    KERNEL_TILE_MANY = 27,
    KERNEL_TILE_VARIANTS = 33,
    KERNEL_TILE_ROOM = 256
};

/* Products and convolutions of 8-bit integers by constant INT8 weights, with results of 8 bits:
 *
 *     y = round(scale[c] sum(x w) + bias[c] + residual_step residual), not below `low`, not above
 *         `high`
 *
 * x [rows, depth] and residual and y [rows, cols] are dense, I8 or U8 each, x may be images; rows
 * of each are whole 16 bytes; SPLIT's rows of residual and y are whole 8 numbers. What lies outside
 * of an image is 0. Residual and y are counted from 128 if they are U8: so are bias, low
 * and high. Weights, scale and bias are packed: column c of the weights is row kernel_tile_row(v,
 * c) of [kernel_tile_rows(cols), kernel_tile_depth(image, depth, step)] (a tap has
 * kernel_tile_tap_depth numbers; step: kernel_tile_step(v)), and its scale and bias are numbers
 * kernel_tile_number(v, c) of kernel_tile_rows(cols); all else is 0.
 *
 * With an activation it is y = round(to func(v) + zero), v = scale[c] sum(x w) + bias[c] +
 * residual_step residual.
 *
 * Or of FP8 (E4M3), x and weights F8, residual and y too, or with results of 16 bits from any x,
 * residual and y both F16 or both BF16:
 *
 *     v = func(scale[c] sum(x w) + bias[c] + residual_step residual)
 *     y = round(to v), v not below `low`, not above `high`; `to` is 1 in 16 bits
 *
 * where the residual stands behind func if it is `late`. func: IR_UNARY_IDENTITY, RELU, GELU,
 * GELU_TANH, or SWISH with `alpha`. There is one source for 16 bits, and for all activations.
 *
 * With a second source sum(x w) is round(ratio[c] sum(x w)) + sum(second.x second.w), where ratio
 * is packed like scale, and second.x has the type of x; SPLIT's add floats that are not rounded,
 * and so do all of FP8. second.most points to a number that no |ratio[c] sum(x w)| is above; NULL:
 * nothing is known. */
struct kernel_tile {
    int64_t rows, cols, depth;
    struct kernel_images image;
    struct {
        int64_t depth; /* 0: there is none */
        struct kernel_images image;
        const void *x, *weights;
        const float *ratio, *most;
    } second;
    int32_t x_dtype, residual_dtype, y_dtype;
    const void *x, *weights, *residual; /* residual may be NULL */
    const float *scale, *bias;
    float residual_step, low, high;
    int32_t func; /* with IR_UNARY_IDENTITY, the rest is read for F8 and for 16 bits alone */
    float alpha, to, zero;
    bool late;
    void *y;
};

static inline int64_t kernel_tile_rows(int64_t cols)
{
    return (cols + KERNEL_TILE_ROOM - 1) / KERNEL_TILE_ROOM * KERNEL_TILE_ROOM;
}

/* A variant's step of depth in bytes, 128 or 64, of which a tap has a whole number. */
int64_t kernel_tile_step(int32_t variant);

static inline int64_t kernel_tile_tap_depth(int64_t channels, int64_t step)
{
    return (channels + step - 1) / step * step;
}

static inline int64_t kernel_tile_depth(const struct kernel_images *i, int64_t depth, int64_t step)
{
    return i->kernel[0] ? kernel_tile_tap_depth(i->channels, step) * i->kernel[0] * i->kernel[1]
                        : (depth + 15) / 16 * 16;
}

/* Columns whose results four threads have side by side, 128, 64 or 32. A quarter of them is one
 * thread's: numbers 2i and 2i + 1 of the quarter are its columns 8i .. 8i + 7 of a product. */
int64_t kernel_tile_line(int32_t variant);

static inline bool kernel_tile_is_patch(int32_t variant)
{
    return variant >= KERNEL_TILE_PATCH && variant < KERNEL_TILE_SPLIT;
}

/* Where a column's weights and its scale are among those of lines of so many columns: of a line,
 * four numbers of a thread are neighbours, and so are the four threads of a row. */
static inline int64_t kernel_line_row(int64_t line, int64_t column)
{
    int64_t in = column % line, i = in % (line / 4);
    return column - in + i / 2 * 8 + in / (line / 4) * 2 + i % 2;
}

static inline int64_t kernel_line_number(int64_t line, int64_t column)
{
    int64_t in = column % line, i = in % (line / 4);
    return column - in + i / 4 * 16 + in / (line / 4) * 4 + i % 4;
}

static inline int64_t kernel_tile_row(int32_t variant, int64_t column)
{
    return kernel_tile_is_patch(variant) ? kernel_patch_row(column)
                                         : kernel_line_row(kernel_tile_line(variant), column);
}

static inline int64_t kernel_tile_number(int32_t variant, int64_t column)
{
    return kernel_tile_is_patch(variant) ? column
                                         : kernel_line_number(kernel_tile_line(variant), column);
}

cudaError_t kernel_tile(const struct kernel_call *call, const struct kernel_tile *p);

/* --- chain.cu --- */

enum { KERNEL_CHAIN_VARIANTS = 3, KERNEL_CHAIN_STEP = 64, KERNEL_CHAIN_LINE = 128 };

/* Two products in a row, for Hopper alone: `first` as kernel_tile has it, of one source or two, and
 * behind it one of its results:
 *
 *     y = round(scale[c] sum(x w) + bias[c] + residual_step residual)
 *     t = round(next.scale[c] sum(y v) + next.bias[c])
 *
 * y has the type of x, and is counted as it is stored; t [rows, next.cols] is I8 or U8. Of either,
 * the only limits are those of its type and that `low` may be 0. Or all are F8, and computed as
 * kernel_tile does; `to` is for these alone. Rows of t are whole 16 bytes, too.
 *
 * Column c of the weights w is row kernel_line_row(KERNEL_CHAIN_LINE, c), as kernel_tile has them
 * for steps of KERNEL_CHAIN_STEP; that of v is row kernel_line_row(kernel_chain_line(variant), c)
 * of [kernel_tile_rows(next.cols), kernel_chain_depth(cols)]. Scales and biases are numbers
 * kernel_line_number of the same lines; all else is 0. */
struct kernel_chain {
    struct kernel_tile first;
    struct {
        int64_t cols;
        int32_t t_dtype;
        const void *weights;
        const float *scale, *bias;
        float low, high, to;
        void *t;
    } next;
};

static inline int64_t kernel_chain_depth(int64_t cols)
{
    return (cols + 15) / 16 * 16;
}

int64_t kernel_chain_line(int32_t variant);
cudaError_t kernel_chain(const struct kernel_call *call, const struct kernel_chain *p);

#ifdef __cplusplus
}
#endif

#endif
