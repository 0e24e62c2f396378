/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closed op set of the intermediate representation, and the attributes of each op.
 *
 * Importers map to these ops; passes rewrite among them; every backend is judged by the reference
 * in kernels/cpu. Fusions add an epilogue to a node (ir.h), never an op for a combination.
 * Values of the enums are stored in plan files: append, never renumber.
 *
 * CONV and MATMUL of INT8 and UINT8 operands, the two types in any mixture, have INT32 sums, a bias
 * of INT32 and no epilogue.
 *
 * Notation: inputs in order, `?` optional (IR_NONE if absent); attributes in capitals with their
 * default. Everything is static: what ONNX passes as a tensor of shape-like integers (axes, pads,
 * starts, sizes) is an attribute here, resolved by the importer.
 *
 * CONV        X[N,C,s..], W[M,C/g,k..], B[M]?   STRIDES=1 PADS=0 (begins, then ends) DILATIONS=1
 * GROUP=1 DECONV      X[N,C,s..], W[C,M/g,k..], B[M]?   the same, OUTPUT_PADDING=0 (ConvTranspose)
 * MATMUL      A[..,M,K], B[..,K,N], bias[N]?    TRANS_A=0 TRANS_B=0 (swap the last two dims)
 * ALPHA=1; rank >= 2, leading dims broadcast;  Y = ALPHA * A B + bias POOL        X[N,C,s..]
 * FUNC(ir_pool) KERNEL STRIDES=1 PADS=0 DILATIONS=1 COUNT_INCLUDE_PAD=0 CEIL_MODE=0 ALPHA=2 (the p
 * of LP pooling); optional 2nd output: int64 argmax (max only) REDUCE      X FUNC(ir_reduce) AXES
 * (>= 0, sorted) KEEPDIMS=1 ARG_REDUCE  X -> int64      FUNC(0 max, 1 min) AXIS KEEPDIMS=1
 * SELECT_LAST=0 SOFTMAX     X               AXIS LOG=0 (over that one axis) BATCH_NORM  X,
 * scale[C], bias[C], mean[C], var[C]     EPSILON=1e-5 LAYER_NORM  X, scale, bias?   AXIS
 * (normalises dims AXIS..rank-1) EPSILON=1e-5; scale and bias broadcast to those dims INSTANCE_NORM
 * X, scale[C], bias[C]            EPSILON=1e-5 GROUP=0 (0: one group a channel; else group
 * normalisation) LRN         X               SIZE ALPHA=1e-4 BETA=0.75 BIAS=1 UNARY       X
 * FUNC(ir_unary) ALPHA BETA GAMMA (defaults at each function) BINARY      A, B FUNC(ir_binary);
 * multidirectional broadcast; comparisons and logic give BOOL; ALPHA for BINARY_MOD: 1 = fmod
 * SELECT      cond(BOOL), X, Y                  broadcast
 * CAST        X               TO (enum dtype); saturation as numpy's astype; to a float it may have
 *             an epilogue (the scale and shift of an input that is served as bytes)
 * RESHAPE     X               SHAPE (all >= 0)  Reshape, Flatten, Squeeze, Unsqueeze
 * TRANSPOSE   X               PERM
 * CONCAT      X0, X1, ..      AXIS
 * SLICE       X               STARTS ENDS STEPS (one per dim of X, normalised: for a positive step
 *             0 <= start <= end <= dim; for a negative one -1 <= end <= start < dim). Split is
 * several. PAD         X               PADS (begins, then ends; may be negative = crop)
 * MODE(ir_pad) VALUE=0 GATHER      X, indices      AXIS; negative indices count from the end EXPAND
 * X               SHAPE (the full output shape) RESIZE      X               SHAPE (full output
 * shape) SCALES (one float per dim) MODE(ir_resize) COORD(ir_coord) NEAREST(ir_nearest)
 * CUBIC_A=-0.75 EXCLUDE_OUTSIDE=0 VALUE=0 ROI (2*rank floats, only for ir_coord TF_CROP)
 * ANTIALIAS=0 (1: the filter widens where the output shrinks; not for nearest) TILE X
 * REPEATS CUMSUM      X               AXIS EXCLUSIVE=0 REVERSE=0 TOPK        X -> values,
 * indices(int64)       AXIS K LARGEST=1 SORTED=1 GATHER_ELEMENTS X, indices  AXIS GATHER_ND   X,
 * indices      BATCH_DIMS=0 SCATTER_ELEMENTS X, indices, updates   AXIS  FUNC(0 set, 1 add, 2 mul,
 * 3 max, 4 min) SCATTER_ND  X, indices, updates        FUNC as above ONE_HOT     indices, values[2]
 * AXIS DEPTH TRILU       X               UPPER=1 K=0 REFORMAT    X -> same shape, another
 * format (format.h); put in by the builder only
 * ATTENTION   Q[N,Sq,H*D], K[N,Sk,H*D], V[N,Sk,H*E], mask?   HEADS=H ALPHA (scale) PACKED=0
 *             Y[N,Sq,H*E] = softmax(ALPHA Q K' + mask) V, head by head; mask broadcasts to
 *             [N,H,Sq,Sk]. PACKED=1: Q is [N,S,3*H*D], query, key and value behind one another
 *             within each row; K and V are absent.
 * RECURRENT   X[S,N,G*H], R[G*H,H], lengths[N]?, h0[N,H]?, c0[N,H]?, peephole[3*H]?, bias[H]?
 *             FUNC(ir_recurrent) FUNCS(ir_unary, one for each of the cell's functions) ALPHAS BETAS
 *             (one for each of FUNCS) REVERSE=0 CLIP=0 (0: none) LINEAR=0 COUPLED=0
 *             -> Y[S,N,H], the last h[N,H], the last c[N,H] (LSTM)
 *             One direction of a recurrent layer over S steps. X holds what the gates get from the
 *             inputs, W x + b with all biases: that product is a MATMUL of its own. Gates (and rows
 *             of R) in ONNX's order: LSTM i o f c, GRU z r h, RNN one. See enum ir_recurrent.
 *             Sequence n ends after lengths[n] steps (INT32, INT64): Y is 0 from there on; REVERSE
 *             walks from there to step 0. CLIP: what gates' functions are given lies in
 *             [-CLIP, CLIP]; k of an LSTM takes c' as it is, as in onnxruntime.
 *             A FUNC of TANH is ALPHA tanh(BETA x) here.
 * SAMPLE      X[N,C,s..], grid[N,o..,r]   MODE(ir_resize)=linear BORDER(ir_border)=zeros
 *             COORD(ir_sample)=half pixel. Y[N,C,o..]: X read at real coordinates, where r is the
 *             number of X's spatial dims; element k of a coordinate is for spatial dim r-1-k.
 *             CUBIC for r <= 3; its kernel has a = -0.75.
 * ROI_POOL    X[N,C,H,W], rois[R,4] (x1, y1, x2, y2), batch[R]   SHAPE (h, w) FUNC(ir_roi)=average
 *             ALPHA=1 (what rois are multiplied with) SIZE=0 (samples of a bin along each dim; 0:
 *             as many as its size) COORD=0 (1: half a pixel to the left, and no least size)
 *             Y[R,C,h,w]. A batch index outside of 0..N-1 is an error.
 * NMS         boxes[B,N,4], scores[B,C,N] -> int64 [B*C*min(K,N),3]   K ALPHA (most overlap)
 *             BETA? (scores at most that are not looked at) MODE=0 (corners; 1: centre and size)
 *             The selected ones (batch, class, box) as ONNX orders them, then rows of -1.
 * DET         X[..,n,n] -> [..]
 */
#ifndef INFERD_ENGINE_IR_OP_H
#define INFERD_ENGINE_IR_OP_H

#include <stdint.h>

#include "base/op_enums.h"

enum ir_op {
    IR_OP_NONE = 0,
    IR_OP_CONV = 1,
    IR_OP_DECONV = 2,
    IR_OP_MATMUL = 3,
    IR_OP_POOL = 4,
    IR_OP_REDUCE = 5,
    IR_OP_ARG_REDUCE = 6,
    IR_OP_SOFTMAX = 7,
    IR_OP_BATCH_NORM = 8,
    IR_OP_LAYER_NORM = 9,
    IR_OP_INSTANCE_NORM = 10,
    IR_OP_LRN = 11,
    IR_OP_UNARY = 12,
    IR_OP_BINARY = 13,
    IR_OP_SELECT = 14,
    IR_OP_CAST = 15,
    IR_OP_RESHAPE = 16,
    IR_OP_TRANSPOSE = 17,
    IR_OP_CONCAT = 18,
    IR_OP_SLICE = 19,
    IR_OP_PAD = 20,
    IR_OP_GATHER = 21,
    IR_OP_EXPAND = 22,
    IR_OP_RESIZE = 23,
    IR_OP_TILE = 24,
    IR_OP_CUMSUM = 25,
    IR_OP_TOPK = 26,
    IR_OP_GATHER_ELEMENTS = 27,
    IR_OP_GATHER_ND = 28,
    IR_OP_SCATTER_ELEMENTS = 29,
    IR_OP_SCATTER_ND = 30,
    IR_OP_ONE_HOT = 31,
    IR_OP_TRILU = 32,
    IR_OP_REFORMAT = 33,
    IR_OP_ATTENTION = 34,
    IR_OP_RECURRENT = 35,
    IR_OP_SAMPLE = 36,
    IR_OP_ROI_POOL = 37,
    IR_OP_NMS = 38,
    IR_OP_DET = 39,
    IR_OP_COUNT_
};

/* Attribute keys. [i]: integers, [f]: floats. */
enum ir_attr_key {
    IR_ATTR_NONE = 0,
    IR_ATTR_FUNC = 1,               /* [i] */
    IR_ATTR_AXIS = 2,               /* [i] >= 0 */
    IR_ATTR_AXES = 3,               /* [i] */
    IR_ATTR_KEEPDIMS = 4,           /* [i] */
    IR_ATTR_KERNEL = 5,             /* [i] one per spatial dim */
    IR_ATTR_STRIDES = 6,            /* [i] one per spatial dim */
    IR_ATTR_PADS = 7,               /* [i] begins, then ends */
    IR_ATTR_DILATIONS = 8,          /* [i] */
    IR_ATTR_GROUP = 9,              /* [i] */
    IR_ATTR_OUTPUT_PADDING = 10,    /* [i] */
    IR_ATTR_TRANS_A = 11,           /* [i] */
    IR_ATTR_TRANS_B = 12,           /* [i] */
    IR_ATTR_COUNT_INCLUDE_PAD = 13, /* [i] */
    IR_ATTR_CEIL_MODE = 14,         /* [i] */
    IR_ATTR_SELECT_LAST = 15,       /* [i] */
    IR_ATTR_LOG = 16,               /* [i] */
    IR_ATTR_TO = 17,                /* [i] enum dtype */
    IR_ATTR_SHAPE = 18,             /* [i] */
    IR_ATTR_PERM = 19,              /* [i] */
    IR_ATTR_STARTS = 20,            /* [i] */
    IR_ATTR_ENDS = 21,              /* [i] */
    IR_ATTR_STEPS = 22,             /* [i] */
    IR_ATTR_MODE = 23,              /* [i] */
    IR_ATTR_COORD = 24,             /* [i] */
    IR_ATTR_NEAREST = 25,           /* [i] */
    IR_ATTR_EXCLUDE_OUTSIDE = 26,   /* [i] */
    IR_ATTR_REPEATS = 27,           /* [i] */
    IR_ATTR_EXCLUSIVE = 28,         /* [i] */
    IR_ATTR_REVERSE = 29,           /* [i] */
    IR_ATTR_K = 30,                 /* [i] */
    IR_ATTR_LARGEST = 31,           /* [i] */
    IR_ATTR_SORTED = 32,            /* [i] */
    IR_ATTR_BATCH_DIMS = 33,        /* [i] */
    IR_ATTR_DEPTH = 34,             /* [i] */
    IR_ATTR_UPPER = 35,             /* [i] */
    IR_ATTR_SIZE = 36,              /* [i] */
    IR_ATTR_ALPHA = 37,             /* [f] */
    IR_ATTR_BETA = 38,              /* [f] */
    IR_ATTR_GAMMA = 39,             /* [f] */
    IR_ATTR_EPSILON = 40,           /* [f] */
    IR_ATTR_BIAS = 41,              /* [f] */
    IR_ATTR_VALUE = 42,             /* [f] */
    IR_ATTR_SCALES = 43,            /* [f] */
    IR_ATTR_CUBIC_A = 44,           /* [f] */
    IR_ATTR_ROI = 45,               /* [f] */
    IR_ATTR_HEADS = 46,             /* [i] */
    IR_ATTR_PACKED = 47,            /* [i] */
    IR_ATTR_FUNCS = 48,             /* [i] */
    IR_ATTR_ALPHAS = 49,            /* [f] */
    IR_ATTR_BETAS = 50,             /* [f] */
    IR_ATTR_CLIP = 51,              /* [f] */
    IR_ATTR_LINEAR = 52,            /* [i] */
    IR_ATTR_COUPLED = 53,           /* [i] */
    IR_ATTR_BORDER = 54,            /* [i] */
    IR_ATTR_ANTIALIAS = 55,         /* [i] */
    IR_ATTR_COUNT_
};

/* "conv", "matmul", ...; "?" outside the table. Static storage. */
const char *ir_op_name(enum ir_op op);
const char *ir_attr_name(enum ir_attr_key key);
const char *ir_unary_name(enum ir_unary func);   /* "relu" */
const char *ir_binary_name(enum ir_binary func); /* "add" */

#endif
