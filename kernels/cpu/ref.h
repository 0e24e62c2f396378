/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of every op: plain C over dense row-major tensors, one file for each family.
 *
 * Every other implementation is judged by these functions, so they are written to be read and to be
 * right. Floats (fp16 and bf16 too) are computed in double and rounded once when they are stored.
 * Integers are computed in int64 and wrap around. NaN and infinity go where numpy and ONNX say. The
 * functions are also the fallback for whatever a faster library does not do, so loops run in a sane
 * order; nothing here allocates, starts threads or keeps state.
 *
 * Callers pass types and shapes that fit together as docs/ir.md demands; this is asserted at most.
 * What tensors hold is never trusted: functions that read indices return a status. Data may be
 * unaligned. Outputs must not overlap inputs, except where a function says so.
 */
#ifndef INFERD_KERNELS_CPU_REF_H
#define INFERD_KERNELS_CPU_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/op_enums.h"
#include "base/shape.h"

/* --- elementwise --- */

/* y = func(x; alpha, beta, gamma), the constants as in the IR. x and y may be the same memory if
 * their types have the same size. */
void ref_unary(enum ir_unary func, double alpha, double beta, double gamma,
               const struct tensor_view *x, const struct tensor_view *y);

/* y = func(a, b), a and b broadcast to y's shape. a or b may be y's memory if it has y's type and
 * shape. Integer division truncates and gives 0 for x/0; MOD has the divisor's sign, or with
 * `truncate` the dividend's; shifts by the width or more give 0. */
void ref_binary(enum ir_binary func, bool truncate, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *y);

/* y = cond ? a : b, all broadcast to y's shape. */
void ref_select(const struct tensor_view *cond, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *y);

/* Converts numbers as numpy's astype does on x86. A float is truncated to an integer; if it is out
 * of range, it becomes the smallest int32/int64 and is then cut to the width. Integers wrap
 * around. */
void ref_cast(const struct tensor_view *x, const struct tensor_view *y);

/* y = saturate(round(x / scale) + zero) and y = (x - zero) * scale, rounded as docs/ir.md says.
 * `scale`, and `zero` if it is not NULL, have one element, or one for each index of `axis`. */
void ref_quantize(uint32_t axis, const struct tensor_view *x, const struct tensor_view *scale,
                  const struct tensor_view *zero, const struct tensor_view *y);
void ref_dequantize(uint32_t axis, const struct tensor_view *x, const struct tensor_view *scale,
                    const struct tensor_view *zero, const struct tensor_view *y);

/* --- shape: bytes are moved, types do not matter --- */

void ref_copy(const struct tensor_view *x, const struct tensor_view *y); /* RESHAPE */
void ref_transpose(const int64_t *perm, const struct tensor_view *x, const struct tensor_view *y);
void ref_concat(uint32_t axis, uint32_t n, const struct tensor_view *x,
                const struct tensor_view *y);
void ref_slice(const int64_t *starts, const int64_t *steps, const struct tensor_view *x,
               const struct tensor_view *y);
void ref_expand(const struct tensor_view *x, const struct tensor_view *y);
void ref_tile(const struct tensor_view *x, const struct tensor_view *y);
/* Keeps the diagonal `k` and what is above (upper) or below it; zeroes the rest. */
void ref_trilu(bool upper, int64_t k, const struct tensor_view *x, const struct tensor_view *y);

/* `pads`: begins, then ends; negative ones crop. */
void ref_pad(enum ir_pad mode, const int64_t *pads, double value, const struct tensor_view *x,
             const struct tensor_view *y);
/* The input index that position i of the output, counted from where the input begins, repeats. n
 * > 0 is the input's dim; not for IR_PAD_CONSTANT. */
int64_t ref_pad_source(enum ir_pad mode, int64_t i, int64_t n);

/* x and y have the same logical shape; types may differ if both are floats. */
void ref_reformat(enum ir_layout from, enum ir_layout to, const struct tensor_view *x,
                  const struct tensor_view *y);

/* --- indices: INVALID_ARGUMENT if one is out of range; y is then partly written --- */

enum status ref_gather(uint32_t axis, const struct tensor_view *x,
                       const struct tensor_view *indices, const struct tensor_view *y,
                       struct error *err);
/* y[..,H] = the sum of row ids[k] of tables[k], or, where ids[k] is NULL, of tables[k] itself, over
 * 1 <= n <= 3 tables. Ids broadcast to y's dims before the last one, such tables to y. Floats. */
enum status ref_embed(uint32_t n, const struct tensor_view *const *tables,
                      const struct tensor_view *const *ids, const struct tensor_view *y,
                      struct error *err);
enum status ref_gather_elements(uint32_t axis, const struct tensor_view *x,
                                const struct tensor_view *indices, const struct tensor_view *y,
                                struct error *err);
enum status ref_gather_nd(uint32_t batch_dims, const struct tensor_view *x,
                          const struct tensor_view *indices, const struct tensor_view *y,
                          struct error *err);
enum status ref_scatter_elements(uint32_t axis, enum ir_scatter func, const struct tensor_view *x,
                                 const struct tensor_view *indices,
                                 const struct tensor_view *updates, const struct tensor_view *y,
                                 struct error *err);
enum status ref_scatter_nd(enum ir_scatter func, const struct tensor_view *x,
                           const struct tensor_view *indices, const struct tensor_view *updates,
                           const struct tensor_view *y, struct error *err);
/* `values`: off, on. An index outside [-depth, depth) gives a row of "off" and is no error. */
void ref_one_hot(uint32_t axis, const struct tensor_view *indices, const struct tensor_view *values,
                 const struct tensor_view *y);

/* --- reductions --- */

/* Reduces the `n_axes` dims in `axes`; y has x's shape without these dims (or with 1 in their
 * place). */
void ref_reduce(enum ir_reduce func, const int64_t *axes, uint32_t n_axes,
                const struct tensor_view *x, const struct tensor_view *y);
/* y is int64. A NaN wins, as in numpy. */
void ref_arg_reduce(bool min, bool select_last, uint32_t axis, const struct tensor_view *x,
                    const struct tensor_view *y);
void ref_cumsum(uint32_t axis, bool exclusive, bool reverse, const struct tensor_view *x,
                const struct tensor_view *y);
/* Ties go to the lower index; NaN counts as the largest. `indices` is int64. `scratch` has
 * ref_topk_scratch(dim[axis]) bytes, aligned to 8. */
size_t ref_topk_scratch(int64_t dim);
void ref_topk(uint32_t axis, bool largest, const struct tensor_view *x,
              const struct tensor_view *values, const struct tensor_view *indices, void *scratch);

/* --- normalisation --- */

void ref_softmax(uint32_t axis, bool log_of, const struct tensor_view *x,
                 const struct tensor_view *y);
void ref_batch_norm(double epsilon, const struct tensor_view *x, const struct tensor_view *scale,
                    const struct tensor_view *bias, const struct tensor_view *mean,
                    const struct tensor_view *var, const struct tensor_view *y);
/* Over dims axis..rank-1, to which scale and bias (may be NULL) broadcast. */
void ref_layer_norm(uint32_t axis, bool rms, double epsilon, const struct tensor_view *x,
                    const struct tensor_view *scale, const struct tensor_view *bias,
                    const struct tensor_view *y);
/* `groups` 0: every channel is a group of its own. */
void ref_instance_norm(int64_t groups, double epsilon, const struct tensor_view *x,
                       const struct tensor_view *scale, const struct tensor_view *bias,
                       const struct tensor_view *y);
void ref_lrn(int64_t size, double alpha, double beta, double bias, const struct tensor_view *x,
             const struct tensor_view *y);

/* --- attention --- */

struct ref_attention {
    int64_t heads;    /* H */
    int64_t kv_heads; /* Hk of keys and values; 0: as many */
    double scale;
    bool packed; /* q[N,S,(H+2*Hk)*D] holds queries, keys and values; k and v are NULL */
    bool causal; /* query i does not see a key j > i + Sk - Sq */
    /* NULL, or INT32 [N,S,2]: operands are of rank 3, the N*S rows are one sequence of queries and
     * of keys, and query i sees keys spans[i][0]..spans[i][1] - 1 of those that there are. */
    const struct tensor_view *spans;
};
/* y[N,Sq,H*E] = softmax(scale q k' + mask) v, head by head. q[N,Sq,H*D], k[N,Sk,Hk*D] and
 * v[N,Sk,Hk*E] are floats; each may instead have its heads first: [N,H,Sq,D]. `mask` (may be
 * NULL) broadcasts to [N,H,Sq,Sk], or has M batches that repeat; it holds floats, or BOOL:
 * false hides a key. A query that sees no key gives zeros. `scratch` has
 * ref_attention_scratch(Sk) bytes, aligned to 8; with spans Sk is N*S. */
size_t ref_attention_scratch(int64_t keys);
void ref_attention(const struct ref_attention *how, const struct tensor_view *q,
                   const struct tensor_view *k, const struct tensor_view *v,
                   const struct tensor_view *mask, const struct tensor_view *y, void *scratch);

/* --- recurrent layers --- */

struct ref_recurrent {
    enum ir_recurrent cell;
    enum ir_way way;
    enum ir_unary funcs[2 * 3]; /* all of the first direction, then those of the second */
    double alphas[2 * 3], betas[2 * 3];
    double clip; /* 0: none */
    bool linear, coupled;
    /* D directions: x[S,N,D*G*H], r[D*G*H,H]; lengths[N], h0[D*N,H], c0[D*N,H], peephole[D*3*H],
     * bias[D*H] or NULL */
    const struct tensor_view *x, *r, *lengths, *h0, *c0, *peephole, *bias;
    const struct tensor_view *y, *h_last, *c_last; /* [S,N,D*H], [D*N,H], [D*N,H] or NULL */
};
/* INVALID_ARGUMENT: a length outside 0..S. `scratch` has ref_recurrent_scratch() bytes, aligned
 * to 8. */
size_t ref_recurrent_scratch(const struct shape *x, enum ir_recurrent cell, enum ir_way way);
enum status ref_recurrent(const struct ref_recurrent *how, void *scratch, struct error *err);
/* The length of sequence n, which is `steps` if `lengths` is NULL. */
enum status ref_recurrent_length(const struct tensor_view *lengths, int64_t n, int64_t steps,
                                 int64_t *out, struct error *err);

/* --- chains of fully connected layers --- */

struct ref_mlp {
    uint32_t layers;
    const int64_t *widths, *funcs; /* of each layer: its columns, its enum ir_unary */
    const float *alphas, *betas, *gammas;
    const struct tensor_view *x, *weights, *bias, *y; /* docs/ir.md */
};
/* What lies between layers is not rounded. `scratch` has ref_mlp_scratch() bytes, aligned to 8;
 * `depth`: the numbers of a row of x. */
size_t ref_mlp_scratch(int64_t depth, uint32_t layers, const int64_t *widths);
void ref_mlp(const struct ref_mlp *how, void *scratch);

/* --- convolution, matrix product, pooling, resize --- */

/* A sliding window over the spatial dims, those from 2 on. */
struct ref_window {
    uint32_t rank; /* spatial dims, 1..6 */
    int64_t kernel[SHAPE_MAX_RANK], strides[SHAPE_MAX_RANK], dilations[SHAPE_MAX_RANK];
    int64_t pads[SHAPE_MAX_RANK]; /* begins; the ends follow from the output's shape */
};

/* x[N,C,s..], w[M,C/group,k..], b[M] or NULL, y[N,M,o..]. Floats. */
void ref_conv(const struct ref_window *win, int64_t group, const struct tensor_view *x,
              const struct tensor_view *w, const struct tensor_view *b,
              const struct tensor_view *y);
/* x[N,C,s..], w[C,M/group,k..], b[M] or NULL, y[N,M,o..]. Floats. */
void ref_deconv(const struct ref_window *win, int64_t group, const struct tensor_view *x,
                const struct tensor_view *w, const struct tensor_view *b,
                const struct tensor_view *y);

/* The maximum over windows of 3x3 at steps of 2, padded by 1, of a convolution without groups:
 * x[N,C,h,w], of any type but BOOL, w[M,C,k,k], b[M] or NULL, y[N,M,o,o]. `out`: the convolution's
 * sides. The scratch, for M filters, is aligned to 8. */
size_t ref_conv_pool_scratch(int64_t filters, const int64_t *out);
void ref_conv_pool(const struct ref_window *win, const int64_t *out, void *scratch,
                   const struct tensor_view *x, const struct tensor_view *w,
                   const struct tensor_view *b, const struct tensor_view *y);

/* The sum of two convolutions by weights of one place each, the second one at steps `strides`:
 * x[N,C,h,w], w[M,C,1,1], x2[N,D,h2,w2], w2[M,D,1,1], b[M] or NULL, y[N,M,h,w]. Floats. */
void ref_conv_pair(const int64_t *strides, const struct tensor_view *x, const struct tensor_view *w,
                   const struct tensor_view *x2, const struct tensor_view *w2,
                   const struct tensor_view *b, const struct tensor_view *y);

/* y = f(conv(x, w) + conv(x2, w2) + b + z) as above, x2, w2, b and z NULL or of these shapes, and
 * t[N,K,h,w] = g(conv(y, v) + a), v[K,M,1,1], a[K] or NULL. relu: whether f, and g, is ReLU; else
 * they are the identity. Floats. */
struct ref_chain {
    const int64_t *strides;
    const struct tensor_view *x, *w, *x2, *w2, *b, *z, *v, *a, *y, *t;
    bool relu[2];
};
void ref_conv_chain(const struct ref_chain *c);

/* y[..,M,N] = alpha a b + bias[N] (or NULL); the flags say that the last two dims are swapped. */
void ref_matmul(bool trans_a, bool trans_b, double alpha, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *bias,
                const struct tensor_view *y);

struct ref_pooling {
    enum ir_pool func;
    struct ref_window win;
    int64_t ends[SHAPE_MAX_RANK]; /* pads at the ends, for count_include_pad */
    bool count_include_pad;
    double p;
};
/* `indices` (max only; int64 positions in the whole of x) may be NULL. */
void ref_pool(const struct ref_pooling *pool, const struct tensor_view *x,
              const struct tensor_view *y, const struct tensor_view *indices);

struct ref_resize {
    enum ir_resize mode;
    enum ir_coord coord;
    enum ir_nearest nearest;
    bool exclude_outside;
    bool antialias; /* not for nearest: the filter is as wide as what an output pixel stands for */
    double cubic_a;
    double value; /* outside of the crop */
    double scales[SHAPE_MAX_RANK];
    double roi_start[SHAPE_MAX_RANK], roi_end[SHAPE_MAX_RANK]; /* IR_COORD_TF_CROP only */
};
/* `scratch` has ref_resize_scratch() bytes, aligned to 8; NULL if that is 0. */
size_t ref_resize_scratch(const struct ref_resize *how, uint32_t rank);
void ref_resize(const struct ref_resize *how, const struct tensor_view *x,
                const struct tensor_view *y, void *scratch);
/* What output position i of dim d is interpolated from; returns the number of taps. There is
 * room for ref_resize_most_taps of them. TF_CROP may ask for positions outside of x, which this
 * does not tell. */
int64_t ref_resize_most_taps(const struct ref_resize *how, uint32_t d);
int64_t ref_resize_taps(const struct ref_resize *how, uint32_t d, int64_t i, const struct shape *x,
                        const struct shape *y, int64_t *at, double *weight);

/* --- images --- */

struct ref_sample {
    enum ir_resize mode;
    enum ir_border border;
    enum ir_sample coord;
};
/* x[N,C,s..], grid[N,o..,r], y[N,C,o..]. There are r spatial dims; coordinates name the last one
 * first. */
void ref_sample(const struct ref_sample *how, const struct tensor_view *x,
                const struct tensor_view *grid, const struct tensor_view *y);
/* Where an output position reads each channel, in elements from the channel's beginning; weights of
 * 0 are left out. */
enum { REF_TAPS_MAX = 64 }; /* 4^3 for cubic, 2^6 for linear */
struct ref_taps {
    uint32_t n;
    int64_t at[REF_TAPS_MAX];
    double weight[REF_TAPS_MAX];
};
void ref_sample_taps(const struct ref_sample *how, const struct shape *x,
                     const struct tensor_view *grid, int64_t position, struct ref_taps *taps);

struct ref_roi_pool {
    enum ir_roi func;
    bool half_pixel;
    int64_t samples; /* of a bin, in each dim; 0: by the bin's size */
    double scale;
};
/* x[N,C,H,W], rois[R,4], batch[R], y[R,C,h,w]. INVALID_ARGUMENT for an image that is not there. */
enum status ref_roi_pool(const struct ref_roi_pool *how, const struct tensor_view *x,
                         const struct tensor_view *rois, const struct tensor_view *batch,
                         const struct tensor_view *y, struct error *err);

struct ref_nms {
    int64_t most; /* boxes kept of a class */
    double overlap;
    double least; /* scores must be above this number, if has_least */
    bool has_least;
    bool centre; /* boxes are x, y, width, height; else two opposite corners */
};
/* boxes[B,N,4], scores[B,C,N], y int64 [rows,3]. `scratch` has ref_nms_scratch(N) bytes, aligned
 * to 8. */
size_t ref_nms_scratch(int64_t boxes);
void ref_nms(const struct ref_nms *how, const struct tensor_view *boxes,
             const struct tensor_view *scores, const struct tensor_view *y, void *scratch);

/* x[..,n,n], y[..]. `scratch` has ref_det_scratch(n) bytes, aligned to 8. */
size_t ref_det_scratch(int64_t n);
void ref_det(const struct tensor_view *x, const struct tensor_view *y, void *scratch);

#endif
