/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our CUDA kernels, as the engine calls them: C linkage, one launcher per family. A .cu file holds
 * the kernels of a family and then its launcher. Products and convolutions on Hopper stand in
 * kernels_hopper.h.
 *
 * Tensors are views: logical dims (N, C, spatial.. for images) with strides in elements, so every
 * layout is only a matter of strides; launchers look for the contiguous, vectorisable cases and
 * keep a general kernel for the rest. Data is aligned to 16 bytes unless said otherwise. Floats are
 * computed in fp32 and rounded once when stored.
 *
 * Launchers put work onto the stream and return; they neither allocate nor wait, and may be
 * captured. The caller has checked the arguments. cudaErrorNotSupported: the launcher does not do
 * this case, and nothing was launched. A call with `dry` set gives the same answer without a device
 * and never launches.
 */
#ifndef INFERD_KERNELS_CUDA_KERNELS_H
#define INFERD_KERNELS_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/mlp.h"
#include "base/op_enums.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_RANK_MAX = 8, KERNEL_STEPS_MAX = 8, KERNEL_CONCAT_MAX = 32 };

/* What a kernel writes to the caller's flag when it meets a number that it must not use. */
enum { KERNEL_BAD_INDEX = 1, KERNEL_BAD_LENGTH = 2 };

struct kernel_view {
    void *data;
    int32_t dtype; /* enum dtype */
    int32_t rank;
    int64_t dim[KERNEL_RANK_MAX];
    int64_t stride[KERNEL_RANK_MAX]; /* 0: broadcast along that dim */
    /* Integers or FP8 q that stand for step (q - zero), for kernels that say so alone; step 0:
     * numbers as they are. */
    float step, zero;
};

/* What happens to a value before it is stored: engine/ir/ir.h's epilogue. An operand has the dims
 * of the output, with stride 0 where it broadcasts. */
struct kernel_step {
    int32_t binary; /* 0: unary */
    int32_t func;   /* enum ir_unary or enum ir_binary */
    float alpha, beta, gamma;
    struct kernel_view operand;
};

struct kernel_epilogue {
    int32_t n;
    struct kernel_step step[KERNEL_STEPS_MAX];
};

struct kernel_call {
    cudaStream_t stream;
    bool dry;
    int32_t variant; /* 0: the launcher's own choice; else one of its variants, listed with it */
    int32_t multiprocessors; /* of the device; 0: as many as an H200 has */
    int32_t capability;      /* of the device: 90 for 9.0; some kernels are for one alone */
    int32_t shared;          /* bytes of shared memory that a block may have; 0: Hopper's */
};

/* --- elementwise.cu --- */

/* y = epilogue(cast(x)): casts, reformats, copies, unary chains. x and y may differ in type and in
 * strides; x broadcasts with stride 0. Padding that y's layout has (CHANNELS_LAST_4, _8) is not
 * covered by y's dims: `pad_channels` is the number of channels that y really holds (0: no
 * padding), and those behind dim[1] become zero. */
cudaError_t kernel_map(const struct kernel_call *call, const struct kernel_view *x,
                       const struct kernel_view *y, int64_t pad_channels,
                       const struct kernel_epilogue *epilogue);
/* y = epilogue(func(a, b)); comparisons store BOOL. `fmod` selects the kind of MOD. */
cudaError_t kernel_binary(const struct kernel_call *call, enum ir_binary func, bool fmod,
                          const struct kernel_view *a, const struct kernel_view *b,
                          const struct kernel_view *y, const struct kernel_epilogue *epilogue);
cudaError_t kernel_select(const struct kernel_call *call, const struct kernel_view *cond,
                          const struct kernel_view *a, const struct kernel_view *b,
                          const struct kernel_view *y, const struct kernel_epilogue *epilogue);

/* --- quantise.cu --- */

/* y = saturate(round(x / scale) + zero), and y = (x - zero) * scale. `scale`, of floats, and
 * `zero`, of any type or NULL, have y's dims, with stride 0 where they repeat. Floats have at most
 * 32 bits, quantised integers 16, and those that become floats 32. */
cudaError_t kernel_quantise(const struct kernel_call *call, const struct kernel_view *x,
                            const struct kernel_view *scale, const struct kernel_view *zero,
                            const struct kernel_view *y);
cudaError_t kernel_dequantise(const struct kernel_call *call, const struct kernel_view *x,
                              const struct kernel_view *scale, const struct kernel_view *zero,
                              const struct kernel_view *y);

/* --- bytes.cu --- */

/* y = epilogue(x), where x, y and operands are floats or 8-bit integers, with their steps and zero
 * points; x may be I32, too. */
cudaError_t kernel_bytes(const struct kernel_call *call, const struct kernel_view *x,
                         const struct kernel_view *y, const struct kernel_epilogue *epilogue);

/* --- move.cu --- */

/* Copies into another order, place or number of elements; x and y have the same type. Transpose,
 * slice, expand, reshape and the parts of a concat are all y[i] = x[i] over equal dims with
 * different strides (a view's data points at its first element). Transposes of the last dims go
 * through shared memory. */
cudaError_t kernel_copy(const struct kernel_call *call, const struct kernel_view *x,
                        const struct kernel_view *y);
/* The parts follow one another along `axis` of y. A launch copies KERNEL_CONCAT_MAX of them. Only
 * floats have an epilogue. */
cudaError_t kernel_concat(const struct kernel_call *call, const struct kernel_view *parts,
                          int32_t n_parts, int32_t axis, const struct kernel_view *y,
                          const struct kernel_epilogue *epilogue);
/* y has x's dims with `axis` replaced by all of indices' dims. Indices are I32 or I64; negative
 * ones count from the end. An index out of range makes NaN (or 0) and sets *bad, a device int32, to
 * 1. */
cudaError_t kernel_gather(const struct kernel_call *call, const struct kernel_view *x,
                          const struct kernel_view *indices, int32_t axis,
                          const struct kernel_view *y, int32_t *bad);
/* pads are begins, then ends; negative ones crop. */
cudaError_t kernel_pad(const struct kernel_call *call, enum ir_pad mode,
                       const struct kernel_view *x, const int64_t *pads, float value,
                       const struct kernel_view *y);

/* --- pool.cu --- */

struct kernel_window {
    int32_t spatial;                                   /* 1..3 */
    int32_t kernel[3], stride[3], dilation[3], pad[3]; /* pad: begins */
    int32_t end[3]; /* padding behind; read only by an average that counts padding */
};

/* Variants. SINGLE: 8 or 4 channels of one output per thread; TILE_*: tiles of so many rows of two
 * outputs, for square windows of 2 and 3. These three are for channels-last; GENERAL is for
 * everything. */
enum {
    KERNEL_POOL_SINGLE = 1,
    KERNEL_POOL_TILE_2 = 2,
    KERNEL_POOL_TILE_4 = 3,
    KERNEL_POOL_GENERAL = 4,
};

/* NaN wins in max, as in the reference. `power`: p of LP pooling. */
cudaError_t kernel_pool(const struct kernel_call *call, enum ir_pool func, float power,
                        bool count_include_pad, const struct kernel_window *window,
                        const struct kernel_view *x, const struct kernel_view *y,
                        const struct kernel_epilogue *epilogue);

/* --- pool_bytes.cu --- */

/* The maximum, or the average, of tensors as kernel_bytes takes them. Sums of integers are exact;
 * averages of more than 2^22 of them are refused. */
cudaError_t kernel_bytes_pool(const struct kernel_call *call, bool average, bool count_include_pad,
                              const struct kernel_window *window, const struct kernel_view *x,
                              const struct kernel_view *y);

/* --- depthwise.cu --- */

/* One filter per channel (group = C, M = C). Weights are packed [k.., C] in x's type, bias [C] in
 * fp32 or NULL; x and y are channels-last. 2 spatial dims. */
cudaError_t kernel_depthwise(const struct kernel_call *call, const struct kernel_window *window,
                             const struct kernel_view *x, const void *weights, const float *bias,
                             const struct kernel_view *y, const struct kernel_epilogue *epilogue);

/* The same on Hopper in 16 bits, by tensor copies: windows of 3x3 and 5x5, steps of 1 and 2,
 * channels in multiples of 8; behind it nothing, ReLU, clipping, swish or hard swish. */
cudaError_t kernel_depthwise_strip(const struct kernel_call *call,
                                   const struct kernel_window *window, const struct kernel_view *x,
                                   const void *weights, const float *bias,
                                   const struct kernel_view *y,
                                   const struct kernel_epilogue *epilogue);

/* Any convolution, slowly: for nodes that nothing else does. Weights [M, C/g, k..] in x's type, or
 * [C, M/g, k..] if it is transposed; bias [M] fp32 or NULL. */
cudaError_t kernel_conv_direct(const struct kernel_call *call, const struct kernel_window *window,
                               int32_t groups, bool transposed, const struct kernel_view *x,
                               const void *weights, const float *bias, const struct kernel_view *y,
                               const struct kernel_epilogue *epilogue);

/* --- depthwise_bytes.cu --- */

/* Variants: channels of a thread; ANY window and number of channels, one at a time. */
enum {
    KERNEL_DEPTHWISE_BYTES_16 = 1,
    KERNEL_DEPTHWISE_BYTES_8 = 2,
    KERNEL_DEPTHWISE_BYTES_4 = 3,
    KERNEL_DEPTHWISE_BYTES_ANY = 4,
};

/* As kernel_depthwise, of x in I8 or U8 by a scale; y is floats or 8 bits by a scale. Sums of
 * products of x's integers (less 128 each if x is U8) and the INT8 weights, padding being x's zero
 * point, become sum * scale[c] + bias[c], and then what the epilogue makes of them. Weights are
 * packed [rows, kernel_depthwise_words, C, 4], with zeros behind a row's last tap. */
cudaError_t kernel_depthwise_bytes(const struct kernel_call *call,
                                   const struct kernel_window *window, const struct kernel_view *x,
                                   const void *weights, const float *scale, const float *bias,
                                   const struct kernel_view *y,
                                   const struct kernel_epilogue *epilogue);

/* Groups of four taps in a row of a filter. */
static inline int64_t kernel_depthwise_words(int64_t columns)
{
    return (columns + 3) / 4;
}

/* --- conv_bytes.cu --- */

enum { KERNEL_CONV_BYTES_VARIANTS = 3 }; /* from 1 on: tiles of 128x128, 128x64, 32x32 */

/* How a filter lies in the packed weights [M, packed]: runs of bytes that lie one behind the other
 * in x's memory, too, each with zeros up to `padded` bytes. Runs go by the channel (if x is plain),
 * then the taps of all spatial dims but the last, then those of the last, of which a run may have
 * all (`merged`). Within a run: its taps, then the channels of a group (unless x is plain). */
struct kernel_runs {
    int64_t runs, length, padded, packed;
    bool plain, merged;
};

/* False: x is neither channels-last nor plain, or windows are too large. */
bool kernel_conv_bytes_runs(const struct kernel_window *window, int32_t groups,
                            const struct kernel_view *x, struct kernel_runs *out);

/* Convolutions, as kernel_depthwise_bytes computes them, but with x's integers as they are. y's dim
 * `axis` has its channels, which are innermost; its other dims are x's images and positions. A
 * product is a convolution of images of one position. */
cudaError_t kernel_conv_bytes(const struct kernel_call *call, const struct kernel_window *window,
                              int32_t groups, const struct kernel_view *x, const void *weights,
                              const float *scale, const float *bias, const struct kernel_view *y,
                              int32_t axis, const struct kernel_epilogue *epilogue);

/* --- product.cu --- */

enum {
    KERNEL_PRODUCT_VARIANTS = 3, /* from 1 on: tiles of 128, 64 and 32 rows and columns */
    KERNEL_PRODUCT_DEPTH_MAX = 1 << 16,
};

/* A product of bytes by INT8 weights, or a convolution: its rows are then the positions of an
 * image's output. A product has one image and one group. */
struct kernel_product {
    int64_t images, groups, rows, cols, depth; /* rows of an image; cols and depth of a group */
    struct kernel_window window;               /* spatial 0: a product */
    int64_t in[3], out[3];                     /* extents of a convolution's images */
    bool is_signed;                            /* x is I8, else U8 */
};

/* The depth that packed weights have: with zeros up to whole chunks. */
static inline int64_t kernel_product_depth(int64_t depth)
{
    return (depth + 15) / 16 * 16;
}

/* y = sums + bias, all INT32, modulo 2^32. x and y are dense and plain; w is packed as
 * [groups, cols, kernel_product_depth]; bias [groups * cols] or NULL. */
cudaError_t kernel_product_bytes(const struct kernel_call *call, const struct kernel_product *p,
                                 const void *x, const void *w, const int32_t *bias, int32_t *y);

/* The columns of a product that begin or end its rows, where the others are done by a library that
 * writes 16 aligned bytes at a time: in row r the first ones, as many as there are before the
 * first column c for which (r * cols + c) of y's elements are whole 16 bytes, and of the last ones
 * as many as are missing to `left`: from one less than 16 bytes hold to 7 more, or 0. */
struct kernel_edges {
    int64_t rows, cols, depth, left;
    float alpha;
    int32_t x_dtype, y_dtype; /* floats; y's is x's or F32 */
};

/* x [rows, depth] and w [cols, depth], whose rows are whole 16 bytes; y [rows, cols]; bias [cols]
 * of y's type, or NULL. */
cudaError_t kernel_product_edges(const struct kernel_call *call, const struct kernel_edges *e,
                                 const void *x, const void *w, const void *bias, void *y);

/* --- mlp.cu --- */

enum { KERNEL_MLP_VARIANTS = 5 }; /* from 1 on, by rising rows of a tile */

/* y = f(x w + bias) for one layer after the other: x[rows, widths[0]] and y[rows, widths[layers]]
 * are dense, of F16, BF16 or F32. Weights and biases (FP32) are packed, layer by layer, and filled
 * up with zeros, as kernel_mlp_at and mlp_padded say. base/mlp.h says how much fits. */
struct kernel_mlp {
    int64_t rows;
    int32_t dtype, layers;
    int32_t widths[MLP_LAYERS_MAX + 1];
    int32_t funcs[MLP_LAYERS_MAX]; /* enum ir_unary */
    float alphas[MLP_LAYERS_MAX], betas[MLP_LAYERS_MAX], gammas[MLP_LAYERS_MAX];
    const void *x, *weights;
    const float *bias;
    void *y;
};

/* Where the weight for number k of a row of x and column n lies among those of its layer, in
 * elements of `size` bytes. Those of 16 bits are tiles of 16x16, those of one column behind each
 * other, where each lane has its fragments of two B (mma.cuh), one behind the other. */
static inline int64_t kernel_mlp_at(uint32_t size, int64_t depth, int64_t width, int64_t k,
                                    int64_t n)
{
    int64_t row = k % MLP_TILE, column = n % MLP_TILE;
    if (size == 4)
        return k * (int64_t)mlp_padded(width, size) + n;
    int64_t tile = n / MLP_TILE * ((int64_t)mlp_padded(depth, size) / MLP_TILE) + k / MLP_TILE;
    int64_t lane = column % 8 * 4 + row % 8 / 2;
    return tile * MLP_TILE * MLP_TILE + lane * 8 + column / 8 * 4 + row / 8 * 2 + row % 2;
}

/* The rows of a tile; 0: there is no such variant. */
int32_t kernel_mlp_rows(int32_t dtype, int32_t variant);
cudaError_t kernel_mlp(const struct kernel_call *call, const struct kernel_mlp *m);

/* --- stem.cu --- */

enum { KERNEL_STEM_CHANNELS = 4, KERNEL_STEM_WINDOW = 8 };

/* The first layer of an image network, on Hopper alone: a convolution at steps of 2 of images of
 * one to four channels, and with `pool` the maximum over windows of 3x3 at steps of 2 behind it,
 * padded by 1:
 *
 *     y = relu(conv(x, w) + bias)
 *     y = round(scale[m] sum(x w) + bias[m]), not below `low`, not above `high`
 *
 * The former if y is F16 or BF16: x is of y's type, or F32, which is rounded to it, or U8, whose
 * channel c counts as q + shift[c]; 0 outside of the image. The latter if y is I8 or U8: so is x,
 * or it is F32, and rounded to `q_dtype` by step and zero as QUANTIZE does it; `zero` outside.
 * x is dense, [N, C, H, W], or [N, H, W, C] with `last`; y is dense, [N, H, W, filters], of an even
 * number of filters. Sides are of H, then of W; out: of the convolution; pad: begins. Windows have
 * up to 8 pixels a side, one less if their pad is odd.
 *
 * bias (NULL: none, for floats) and scale (not negative) have kernel_stem_filters numbers.
 * kernel_stem_place is where the weight of a filter, a channel and a tap (r, s) lies among the
 * kernel_stem_packed numbers of y's type, or of I8. What is beyond the filters is 0. */
struct kernel_stem {
    int64_t images, channels, filters, in[2], out[2];
    int32_t kernel[2], pad[2];
    int32_t x_dtype, q_dtype, y_dtype, zero;
    bool last, pool, relu;
    float shift[KERNEL_STEM_CHANNELS], step, low, high;
    const void *x, *weights;
    const float *bias, *scale;
    void *y;
};

static inline int64_t kernel_stem_filters(int64_t filters)
{
    return (filters + 63) / 64 * 64;
}

/* Steps of depth, of 32 bytes, for each line of so many taps. */
#ifdef __cplusplus
constexpr
#endif
    static inline int
    kernel_stem_steps(bool bytes, int taps, bool deep)
{
    return bytes ? taps / 2 : deep ? taps : taps == 4 ? 3 : 2;
}

/* Taps of cells of two pixels by two along each side, 2 or 4; 0: the window has too many. */
int32_t kernel_stem_taps(const struct kernel_stem *p);
int64_t kernel_stem_packed(const struct kernel_stem *p);
int64_t kernel_stem_place(const struct kernel_stem *p, int64_t filter, int64_t channel, int64_t r,
                          int64_t s);
cudaError_t kernel_stem(const struct kernel_call *call, const struct kernel_stem *p);

/* --- rows.cu --- */

/* Softmax over `axis`, or its logarithm if `log` is set. */
cudaError_t kernel_softmax(const struct kernel_call *call, int32_t axis, bool log,
                           const struct kernel_view *x, const struct kernel_view *y,
                           const struct kernel_epilogue *epilogue);
/* Normalises over dims axis..rank-1, which are dense. scale and bias are fp32 and as long as a row;
 * bias may be NULL. Without an epilogue y may be 8 bits by a scale, if rows have at most 8,192
 * elements, and FP32 behind 16 bits, if they have at most 1,024. */
cudaError_t kernel_layer_norm(const struct kernel_call *call, int32_t axis, bool rms, float epsilon,
                              const struct kernel_view *x, const float *scale, const float *bias,
                              const struct kernel_view *y, const struct kernel_epilogue *epilogue);
/* y has x's rank, with 1 at the reduced axes. Takes any strides; fast for the last dims, and for
 * the spatial dims of channels-last. */
cudaError_t kernel_reduce(const struct kernel_call *call, enum ir_reduce func, const int32_t *axes,
                          int32_t n_axes, const struct kernel_view *x, const struct kernel_view *y,
                          const struct kernel_epilogue *epilogue);

/* --- group_norm.cu --- */

/* INSTANCE_NORM, plain or channels-last; scale and bias are views [C] of F16, BF16 or F32. The
 * workspace is aligned to 16. */
size_t kernel_group_norm_workspace(const struct kernel_call *call, const struct kernel_view *x);
cudaError_t kernel_group_norm(const struct kernel_call *call, int64_t groups, float epsilon,
                              const struct kernel_view *x, const struct kernel_view *scale,
                              const struct kernel_view *bias, const struct kernel_view *y,
                              const struct kernel_epilogue *epilogue, void *workspace);

/* LRN, plain or channels-last. */
cudaError_t kernel_lrn(const struct kernel_call *call, int64_t size, float alpha, float beta,
                       float bias, const struct kernel_view *x, const struct kernel_view *y,
                       const struct kernel_epilogue *epilogue);

/* --- resize.cu --- */

/* RESIZE as engine/ir/ops.def describes it. */
struct kernel_resize {
    enum ir_resize mode;
    enum ir_coord coord;
    enum ir_nearest nearest;
    bool exclude_outside, antialias;
    float cubic_a, value; /* value: outside of the crop */
    double scales[KERNEL_RANK_MAX];
    double roi_start[KERNEL_RANK_MAX], roi_end[KERNEL_RANK_MAX]; /* IR_COORD_TF_CROP only */
};

/* At most three dims of y have another size than in x. F16, BF16, F32; any type for NEAREST
 * without an epilogue and a crop. */
cudaError_t kernel_resize(const struct kernel_call *call, const struct kernel_resize *how,
                          const struct kernel_view *x, const struct kernel_view *y,
                          const struct kernel_epilogue *epilogue);

/* --- sample.cu --- */

/* SAMPLE: x[N,C,s..] read at grid[N,o..,r], which is dense; to three spatial dims. */
cudaError_t kernel_sample(const struct kernel_call *call, enum ir_resize mode,
                          enum ir_border border, enum ir_sample coord, const struct kernel_view *x,
                          const struct kernel_view *grid, const struct kernel_view *y);

struct kernel_roi_pool {
    enum ir_roi func;
    bool half_pixel;
    int32_t samples; /* of a bin, in each dim; 0: by the bin's size */
    float scale;
};
/* ROI_POOL: x[N,C,H,W], rois[R,4] and batch[R] dense, y[R,C,h,w]. An image that is not there makes
 * NaN and sets *bad, a device int32, to 1. */
cudaError_t kernel_roi_pool(const struct kernel_call *call, const struct kernel_roi_pool *how,
                            const struct kernel_view *x, const struct kernel_view *rois,
                            const struct kernel_view *batch, const struct kernel_view *y,
                            int32_t *bad);

/* --- attention.cu --- */

/* Variants: queries per block, of which a warp has 16, or in the WIDE ones 32. SPLIT: 16 queries of
 * the heads that read the same keys; the keys are shared out among the warps, in PARTS among
 * blocks, too. These are for 16-bit types. PLAIN is for all types. A variant refuses sequences that
 * would leave half of its block idle.
 * The PASS ones are for 16-bit types on Hopper (attention_pass.cuh): heads to 128 columns, and
 * strides of multiples of 8. All keys in one product, up to so many: PAIR 64 (and 64 queries), 128,
 * 208 and 256, these three for heads of 33 to 64 columns, 208 without a mask for each query, 256
 * without a mask. BLOCKS: any number, 64 to 128 at a time, also by spans. STREAM: more than 256
 * keys, for heads of 33 to 64 columns, without a mask for each query. */
enum {
    KERNEL_ATTENTION_128 = 1,
    KERNEL_ATTENTION_64 = 2,
    KERNEL_ATTENTION_32 = 3,
    KERNEL_ATTENTION_SPLIT = 4,
    KERNEL_ATTENTION_PLAIN = 5,
    KERNEL_ATTENTION_WIDE_128 = 6,
    KERNEL_ATTENTION_WIDE_64 = 7,
    KERNEL_ATTENTION_PARTS = 8,
    KERNEL_ATTENTION_PASS_PAIR = 9,
    KERNEL_ATTENTION_PASS_128 = 10,
    KERNEL_ATTENTION_PASS_208 = 11,
    KERNEL_ATTENTION_PASS_256 = 12,
    KERNEL_ATTENTION_PASS_BLOCKS = 13,
    KERNEL_ATTENTION_PASS_STREAM = 14,
};

/* Views q [N,H,Sq,D], k [N,Hk,Sk,D], v [N,Hk,Sk,E] and y [N,H,Sq,E] with any strides but that
 * of columns, which is 1; F16 or BF16 (tensor cores) or F32 (plain arithmetic); D, E <= 256.
 * Head h of q reads head h / (H / Hk) of k. mask: dims [N or a divisor,H,Sq,Sk], stride 0 where
 * it broadcasts, of q's type or BOOL (false hides a key); data NULL: none. causal: query i sees
 * keys up to i + Sk - Sq. A query that sees no key gives zeros. y may be 8 bits by a scale.
 * spans [Sq,2] (NULL: none): query i sees the keys from spans[i][0] on to that before spans[i][1],
 * of those that there are; a block reads no others. Then N is 1, Sq is Sk, and there is no mask.
 * PARTS takes none, and of the PASS variants BLOCKS alone does. */
struct kernel_attention {
    const struct kernel_view *q, *k, *v, *mask, *y;
    float scale;
    bool causal;
    void *workspace; /* kernel_attention_workspace bytes, aligned to 16 */
    const int32_t *spans;
};
cudaError_t kernel_attention(const struct kernel_call *call, const struct kernel_attention *a);
/* The variant that stands for 0; 0: there is none. */
int32_t kernel_attention_choice(const struct kernel_call *call, const struct kernel_attention *a);
/* Bytes that the call's variant needs. */
uint64_t kernel_attention_workspace(const struct kernel_call *call,
                                    const struct kernel_attention *a);

/* --- index.cu --- */

/*
 * Where the rows of an index tensor point in a dense X of `size` elements: each names a slot of
 * `part` neighbours. The rows have dims of their own, along which the slot moves by `base`; each
 * has `numbers` numbers, and the slot moves by `stride` times the number, which is for a dim of
 * `extent` elements (a negative one counts from its end).
 */
struct kernel_index {
    int32_t dtype; /* I32 or I64 */
    int32_t rank, numbers;
    int64_t dim[KERNEL_RANK_MAX], base[KERNEL_RANK_MAX];
    int64_t extent[KERNEL_RANK_MAX], stride[KERNEL_RANK_MAX];
    int64_t part, size;
};

/* A dense tensor as [outer, dim, inner]. */
struct kernel_axis {
    int64_t outer, dim, inner;
};

/* y[row, part] = the slot that the row names. Out of range: as kernel_gather. */
cudaError_t kernel_gather_slots(const struct kernel_call *call, const struct kernel_index *index,
                                int32_t dtype, const void *x, const void *indices, void *y,
                                int32_t *bad);
/* Puts updates [row, part] into the slots of y, which is a copy of X already, or combines them with
 * what is there, as if row after row. A row that names no slot sets *bad and does nothing else. */
int64_t kernel_scatter_workspace(const struct kernel_index *index, enum ir_scatter func);
cudaError_t kernel_scatter_slots(const struct kernel_call *call, const struct kernel_index *index,
                                 enum ir_scatter func, int32_t dtype, const void *indices,
                                 const void *updates, void *y, void *workspace, int32_t *bad);
/* y [outer, dim, inner] is values[1] where its position along dim is the index, else values[0]. */
cudaError_t kernel_one_hot(const struct kernel_call *call, const struct kernel_axis *axis,
                           int32_t index_type, const void *indices, int32_t dtype,
                           const void *values, void *y);
/* x and y are [outer, rows, columns]. */
cudaError_t kernel_trilu(const struct kernel_call *call, const struct kernel_axis *axis, bool upper,
                         int64_t k, int32_t dtype, const void *x, void *y);

/* --- scan.cu --- */

/* These take all element types. */
cudaError_t kernel_arg_reduce(const struct kernel_call *call, const struct kernel_axis *axis,
                              bool min, bool last, int32_t dtype, const void *x, int64_t *y);
cudaError_t kernel_cumsum(const struct kernel_call *call, const struct kernel_axis *axis,
                          bool exclusive, bool reverse, int32_t dtype, const void *x, void *y);
/* k up to 16,384; sorted, equal ones by their positions. */
cudaError_t kernel_topk(const struct kernel_call *call, const struct kernel_axis *axis, int64_t k,
                        bool largest, int32_t dtype, const void *x, void *values, int64_t *indices);
/* As kernel_reduce, slower, and without an epilogue. */
cudaError_t kernel_reduce_any(const struct kernel_call *call, enum ir_reduce func,
                              const int32_t *axes, int32_t n_axes, const struct kernel_view *x,
                              const struct kernel_view *y);

/* --- recurrent.cu --- */

/* One direction of a recurrent layer; docs/ir.md says what RECURRENT computes. All tensors are
 * dense; x, r, h0, c0, peephole, bias, y, h and c are of `dtype` (F16, BF16, F32). */
enum { KERNEL_CELL_FUNCTIONS = 3 }; /* at most */

struct kernel_recurrent {
    int32_t cell, way;                       /* enum ir_recurrent, enum ir_way */
    int32_t dtype, lengths;                  /* lengths: I32 or I64 */
    int32_t func[2 * KERNEL_CELL_FUNCTIONS]; /* enum ir_unary; the second half: of the way back */
    float alpha[2 * KERNEL_CELL_FUNCTIONS], beta[2 * KERNEL_CELL_FUNCTIONS], clip;
    bool linear, coupled;
    int32_t steps, sequences, hidden;
};

/* A length out of range counts as 0 and sets *bad, as an index does. NULL: absent. */
struct kernel_recurrent_data {
    const void *x, *r, *lengths, *h0, *c0, *peephole, *bias;
    void *y, *h, *c, *workspace;
    int32_t *bad;
};

/* Variants: 8, 16 or 32, the hidden units of a block. The blocks wait for each other, so that the
 * launch is a cooperative one. Needs the workspace that kernel_recurrent_workspace tells. */
int64_t kernel_recurrent_workspace(const struct kernel_call *call,
                                   const struct kernel_recurrent *how);
cudaError_t kernel_recurrent(const struct kernel_call *call, const struct kernel_recurrent *how,
                             const struct kernel_recurrent_data *data);

/* --- embed.cu --- */

/* Row r of y takes number i = r / inner % n: with ids the row of the table that id i names, without
 * (NULL, NONE) row i itself. Negative ids, and those out of range, are as in kernel_gather. */
struct kernel_table {
    const void *data, *ids;
    int32_t ids_type; /* I32, I64 or NONE */
    int64_t rows, inner, n;
};

/* y [rows, width] = the sum of what its rows take from n tables, in their order. All are dense and
 * of the type `dtype`: F16, BF16 or F32. */
enum { KERNEL_TABLES_MAX = 3 };
cudaError_t kernel_embed(const struct kernel_call *call, const struct kernel_table *tables,
                         int32_t n, int32_t dtype, int64_t rows, int64_t width, void *y,
                         int32_t *bad);

#ifdef __cplusplus
}
#endif

#endif
