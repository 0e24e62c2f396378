/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type and shape rules, by a table: a line gives an op, its inputs and attributes, and what must
 * come out (types of all outputs) or a part of the reason why it is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/plugin/sample.h"

/* Inputs are written "FP32[1,3,8,8] INT64[2] -", attributes "pads=1,1,1,1 alpha=0.5f". */
struct rule_case {
    enum ir_op op;
    const char *inputs;
    const char *attrs;
    const char *outputs; /* NULL: refused */
    const char *reason;  /* part of the error text */
};

#define LSTM_FUNCS      "funcs=6,10,10 alphas=0f,1f,1f betas=0f,1f,1f"
#define GRU_FUNCS       "funcs=6,10 alphas=0f,1f betas=0f,1f"
#define REFUSED(reason) NULL, reason

static const struct rule_case cases[] = {
    /* conv */
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "", "FP32[1,4,6,6]", NULL},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3] -", "pads=1,1,1,1 strides=2,2", "FP32[1,4,4,4]",
     NULL},
    {IR_OP_CONV, "FP32[2,4,9] FP32[6,2,3] FP32[6]", "group=2 dilations=2", "FP32[2,6,5]", NULL},
    {IR_OP_CONV, "FP32[0,4,9] FP32[6,4,3] FP32[6]", "", "FP32[0,6,7]", NULL},
    {IR_OP_CONV, "FP16[1,1,4,4,4] FP16[1,1,2,2,2]", "", "FP16[1,1,3,3,3]", NULL},
    {IR_OP_CONV, "FP32[1,3,8,8] FP16[4,3,3,3]", "", REFUSED("input 1 is FP16")},
    {IR_OP_CONV, "INT32[1,3,8,8] INT32[4,3,3,3]", "", REFUSED("not a float")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,2,3,3]", "", REFUSED("do not fit weights")},
    {IR_OP_CONV, "FP32[1,4,8,8] FP32[3,2,3,3]", "group=2", REFUSED("do not fit weights")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,9,3]", "", REFUSED("larger than dimension 0")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,0,3]", "", REFUSED("kernel dimension 0 is 0")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3]", "", REFUSED("weights [4,3,3]")},
    {IR_OP_CONV, "FP32[1,3] FP32[4,3]", "", REFUSED("rank 2")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3] FP32[5]", "", REFUSED("not [4]")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "strides=0,1", REFUSED("strides[0] is 0")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "strides=1", REFUSED("1 values, not 2")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "pads=1,1", REFUSED("2 values, not 4")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "pads=-1,0,0,0", REFUSED("pads[0]")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "group=0", REFUSED("group[0] is 0")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "dilations=9223372036854775807,1",
     REFUSED("dilations")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "alpha=1f", REFUSED("no attribute alpha")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "group=1f", REFUSED("wrong kind")},
    {IR_OP_CONV, "FP32[1,3,8,8] FP32[4,3,3,3]", "group=1,1", REFUSED("2 values, not 1")},
    {IR_OP_CONV, "FP32[1,3,8,8]", "", REFUSED("has 1 inputs")},
    {IR_OP_CONV, "FP32[1,3,8,8] -", "", REFUSED("input 1 is missing")},
    {IR_OP_CONV, "UINT8[1,3,8,8] INT8[4,3,3,3] INT32[4]", "", "INT32[1,4,6,6]", NULL},
    {IR_OP_CONV, "INT8[1,3,8,8] INT8[4,3,3,3] INT8[4]", "", REFUSED("input 2 is INT8, not INT32")},
    {IR_OP_CONV, "UINT8[1,3,8,8] FP32[4,3,3,3]", "", REFUSED("not a float")},
    {IR_OP_CONV, "FP32[1,3,8,8] INT8[4,3,3,3]", "", REFUSED("input 1 is INT8")},
    /* deconv */
    {IR_OP_DECONV, "FP32[1,4,3,3] FP32[4,2,3,3]", "strides=2,2", "FP32[1,2,7,7]", NULL},
    {IR_OP_DECONV, "FP32[1,4,3,3] FP32[4,2,3,3] FP32[4]", "group=2 pads=1,1,1,1 output_padding=1,1",
     "FP32[1,4,4,4]", NULL},
    {IR_OP_DECONV, "FP32[1,4,3] FP32[4,2,3]", "dilations=2", "FP32[1,2,7]", NULL},
    {IR_OP_DECONV, "FP32[1,4,3,3] FP32[3,2,3,3]", "", REFUSED("do not fit weights")},
    {IR_OP_DECONV, "FP32[1,4,1] FP32[4,2,1]", "pads=1,1", REFUSED("would be -1")},
    {IR_OP_DECONV, "FP32[1,4,0] FP32[4,2,1]", "", REFUSED("dimension 0")},
    {IR_OP_DECONV, "FP32[1,0,3] FP32[0,1099511627776,1]", "group=1099511627776",
     REFUSED("too many groups")},
    /* matmul */
    {IR_OP_MATMUL, "FP32[2,3] FP32[3,4]", "", "FP32[2,4]", NULL},
    {IR_OP_MATMUL, "FP32[5,1,2,3] FP32[7,3,4] FP32[4]", "", "FP32[5,7,2,4]", NULL},
    {IR_OP_MATMUL, "FP32[3,2] FP32[4,3]", "trans_a=1 trans_b=1 alpha=0.5f", "FP32[2,4]", NULL},
    {IR_OP_MATMUL, "INT32[2,3] INT32[3,4]", "", "INT32[2,4]", NULL},
    {IR_OP_MATMUL, "UINT8[5,2,3] INT8[3,4] INT32[4]", "", "INT32[5,2,4]", NULL},
    {IR_OP_MATMUL, "INT8[2,3] UINT8[3,4]", "", "INT32[2,4]", NULL},
    {IR_OP_MATMUL, "INT8[2,3] INT16[3,4]", "", REFUSED("input 1 is INT16")},
    {IR_OP_MATMUL, "UINT8[2,3] INT8[3,4] FP32[4]", "", REFUSED("input 2 is FP32, not INT32")},
    {IR_OP_MATMUL, "FP32[2,0] FP32[0,4]", "", "FP32[2,4]", NULL},
    {IR_OP_MATMUL, "FP32[2,3] FP32[4,3]", "", REFUSED("do not fit together")},
    {IR_OP_MATMUL, "FP32[2,2,3] FP32[3,3,4]", "", REFUSED("do not fit together")},
    {IR_OP_MATMUL, "FP32[3] FP32[3,4]", "", REFUSED("rank 2")},
    {IR_OP_MATMUL, "FP32[2,3] FP32[3,4] FP32[2]", "", REFUSED("not [4]")},
    {IR_OP_MATMUL, "FP32[2,3] FP32[3,4]", "trans_a=2", REFUSED("trans_a")},
    {IR_OP_MATMUL, "FP32[2,3] FP32[3,4] FP32[4] FP32[4]", "", REFUSED("has 4 inputs")},
    {IR_OP_MATMUL, "FP32[1048576,1] FP32[1,1048576]", "", REFUSED("too large")},
    /* pool */
    {IR_OP_POOL, "FP32[1,3,8,8]", "func=0 kernel=2,2 strides=2,2", "FP32[1,3,4,4] INT64[1,3,4,4]",
     NULL},
    {IR_OP_POOL, "FP32[1,3,8,8]", "func=1 kernel=3,3 strides=2,2 pads=1,1,1,1", "FP32[1,3,4,4]",
     NULL},
    {IR_OP_POOL, "FP32[1,3,6]", "func=1 kernel=3 strides=2 ceil_mode=1", "FP32[1,3,3]", NULL},
    /* the last window would start in the padding behind: not counted */
    {IR_OP_POOL, "FP32[1,3,3]", "func=1 kernel=2 strides=3 pads=0,1 ceil_mode=1", "FP32[1,3,1]",
     NULL},
    {IR_OP_POOL, "INT8[1,3,4]", "func=0 kernel=2", "INT8[1,3,3] INT64[1,3,3]", NULL},
    {IR_OP_POOL, "INT8[1,3,4]", "func=1 kernel=2", REFUSED("not a float")},
    {IR_OP_POOL, "FP32[1,3,4]", "kernel=2", REFUSED("func is missing")},
    {IR_OP_POOL, "FP32[1,3,4]", "func=3 kernel=2", REFUSED("func[0] is 3")},
    {IR_OP_POOL, "FP32[1,3,4]", "func=0", REFUSED("kernel is missing")},
    {IR_OP_POOL, "FP32[1,3,4]", "func=2 kernel=2 alpha=0f", REFUSED("not positive")},
    /* reduce */
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=1 axes=1,2", "FP32[2,1,1]", NULL},
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=0 axes=0,2 keepdims=0", "FP32[3]", NULL},
    {IR_OP_REDUCE, "FP32[2,3]", "func=6 axes=", "FP32[2,3]", NULL},
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=1 axes=2,1", REFUSED("rising order")},
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=1 axes=1,1", REFUSED("rising order")},
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=1 axes=3", REFUSED("axes[0] is 3")},
    {IR_OP_REDUCE, "FP32[2,3,4]", "func=1 axes=-1", REFUSED("axes[0] is -1")},
    {IR_OP_REDUCE, "FP32[2]", "func=1 axes=0,0,0,0,0,0,0,0,0", REFUSED("rising order")},
    {IR_OP_REDUCE, "FP32[2]", "func=1", REFUSED("attribute axes is missing")},
    {IR_OP_REDUCE, "BOOL[2]", "func=1 axes=0", REFUSED("not a number")},
    {IR_OP_ARG_REDUCE, "FP32[2,3,4]", "func=0 axis=1", "INT64[2,1,4]", NULL},
    {IR_OP_ARG_REDUCE, "FP32[2,3,4]", "func=0 axis=1 keepdims=0", "INT64[2,4]", NULL},
    {IR_OP_ARG_REDUCE, "FP32[2,0,4]", "func=0 axis=1", REFUSED("empty")},
    {IR_OP_ARG_REDUCE, "FP32[]", "func=0 axis=0", REFUSED("axis")},
    /* norms */
    {IR_OP_SOFTMAX, "FP32[2,3]", "axis=1 log=1", "FP32[2,3]", NULL},
    {IR_OP_SOFTMAX, "FP32[2,3]", "axis=2", REFUSED("axis")},
    {IR_OP_SOFTMAX, "FP32[2,3]", "", REFUSED("axis is missing")},
    {IR_OP_BATCH_NORM, "FP32[2,3,4] FP32[3] FP32[3] FP32[3] FP32[3]", "epsilon=1f", "FP32[2,3,4]",
     NULL},
    {IR_OP_BATCH_NORM, "FP32[2,3,4] FP32[3] FP32[3] FP32[3] FP32[4]", "", REFUSED("input 4")},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[4] FP32[4]", "axis=2", "FP32[2,3,4]", NULL},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[3,4] -", "axis=1", "FP32[2,3,4]", NULL},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[1]", "axis=1", "FP32[2,3,4]", NULL},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[4]", "axis=2 rms=1", "FP32[2,3,4]", NULL},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[2,1,4]", "axis=1", REFUSED("does not broadcast")},
    {IR_OP_LAYER_NORM, "FP32[2,3,4] FP32[3]", "axis=2", REFUSED("does not broadcast")},
    {IR_OP_INSTANCE_NORM, "FP32[2,4,5] FP32[4] FP32[4]", "group=2", "FP32[2,4,5]", NULL},
    {IR_OP_INSTANCE_NORM, "FP32[2,4,5] FP32[4] FP32[4]", "group=3", REFUSED("do not divide")},
    {IR_OP_LRN, "FP32[2,4,5]", "size=3 alpha=1f beta=1f bias=1f", "FP32[2,4,5]", NULL},
    {IR_OP_LRN, "FP32[2,4,5]", "size=0", REFUSED("size")},
    /* elementwise */
    {IR_OP_UNARY, "FP32[2]", "func=1", "FP32[2]", NULL},
    {IR_OP_UNARY, "FP32[2]", "func=42", "BOOL[2]", NULL},
    {IR_OP_UNARY, "BOOL[2]", "func=30", "BOOL[2]", NULL},
    {IR_OP_UNARY, "FP32[2]", "func=30", REFUSED("not BOOL")},
    {IR_OP_UNARY, "INT32[2]", "func=6", REFUSED("not a float")},
    {IR_OP_UNARY, "FP32[2]", "func=46", REFUSED("func")},
    {IR_OP_UNARY, "FP32[2]", "func=-1", REFUSED("func")},
    {IR_OP_UNARY, "-", "func=1", REFUSED("missing")},
    {IR_OP_BINARY, "FP32[2,1] FP32[3]", "func=0", "FP32[2,3]", NULL},
    {IR_OP_BINARY, "INT64[2] INT64[]", "func=10", "BOOL[2]", NULL},
    {IR_OP_BINARY, "INT64[2] INT64[1]", "func=17", "INT64[2]", NULL},
    {IR_OP_BINARY, "FP32[2] FP32[3]", "func=0", REFUSED("do not broadcast")},
    {IR_OP_BINARY, "FP32[2] INT32[2]", "func=0", REFUSED("INT32")},
    {IR_OP_BINARY, "FP32[2] FP32[2]", "func=14", REFUSED("not BOOL")},
    {IR_OP_BINARY, "FP32[2] FP32[2]", "func=19", REFUSED("not an integer")},
    {IR_OP_BINARY, "FP32[2] FP32[2]", "func=22", REFUSED("func")},
    {IR_OP_SELECT, "BOOL[2,1] INT8[3] INT8[1,1,1]", "", "INT8[1,2,3]", NULL},
    {IR_OP_SELECT, "INT8[2] INT8[2] INT8[2]", "", REFUSED("not BOOL")},
    {IR_OP_SELECT, "BOOL[2] INT8[2] INT16[2]", "", REFUSED("INT16")},
    {IR_OP_CAST, "FP32[2]", "to=9", "INT64[2]", NULL},
    {IR_OP_CAST, "FP32[2]", "to=0", REFUSED("to[0]")},
    {IR_OP_CAST, "FP32[2]", "to=14", REFUSED("to[0]")},
    {IR_OP_CUMSUM, "FP32[2]", "axis=0 exclusive=1 reverse=1", "FP32[2]", NULL},
    {IR_OP_CUMSUM, "FP32[2]", "axis=0 exclusive=3", REFUSED("exclusive")},
    {IR_OP_TRILU, "BOOL[2,3]", "upper=0 k=-5", "BOOL[2,3]", NULL},
    {IR_OP_TRILU, "BOOL[2]", "", REFUSED("rank 1")},
    /* shuffles */
    {IR_OP_RESHAPE, "FP32[2,3]", "shape=6", "FP32[6]", NULL},
    {IR_OP_RESHAPE, "FP32[1]", "shape=", "FP32[]", NULL},
    {IR_OP_RESHAPE, "FP32[0,3]", "shape=0,7", "FP32[0,7]", NULL},
    {IR_OP_RESHAPE, "FP32[2,3]", "shape=-1", REFUSED("shape[0] is -1")},
    {IR_OP_RESHAPE, "FP32[2,3]", "shape=7", REFUSED("cannot become [7]")},
    {IR_OP_RESHAPE, "FP32[1]", "shape=1,1,1,1,1,1,1,1,1", REFUSED("rank 8 at most")},
    {IR_OP_RESHAPE, "FP32[2,3]", "", REFUSED("attribute shape is missing")},
    {IR_OP_TRANSPOSE, "FP32[2,3,4]", "perm=2,0,1", "FP32[4,2,3]", NULL},
    {IR_OP_TRANSPOSE, "FP32[2,3,4]", "perm=2,0,0", REFUSED("twice")},
    {IR_OP_TRANSPOSE, "FP32[2,3,4]", "perm=2,0", REFUSED("2 values, not 3")},
    {IR_OP_TRANSPOSE, "FP32[2,3,4]", "perm=3,0,1", REFUSED("perm[0] is 3")},
    {IR_OP_CONCAT, "FP32[2,3] FP32[2,4] FP32[2,0]", "axis=1", "FP32[2,7]", NULL},
    {IR_OP_CONCAT, "FP32[2,3] FP32[3,4]", "axis=1", REFUSED("input 1 is [3,4]")},
    {IR_OP_CONCAT, "FP32[2,3] FP32[2]", "axis=1", REFUSED("input 1 is [2]")},
    {IR_OP_CONCAT, "FP32[2,3] INT8[2,3]", "axis=1", REFUSED("INT8")},
    {IR_OP_CONCAT, "FP32[] FP32[]", "axis=0", REFUSED("axis")},
    {IR_OP_CONCAT, "", "axis=0", REFUSED("has 0 inputs")},
    {IR_OP_SLICE, "FP32[8,9]", "starts=1,8 ends=7,-1 steps=2,-3", "FP32[3,3]", NULL},
    {IR_OP_SLICE, "FP32[8]", "starts=4 ends=4 steps=1", "FP32[0]", NULL},
    {IR_OP_SLICE, "FP32[8]", "starts=0 ends=8 steps=9223372036854775807", "FP32[1]", NULL},
    {IR_OP_SLICE, "FP32[8]", "starts=0 ends=9 steps=1", REFUSED("no slice")},
    {IR_OP_SLICE, "FP32[8]", "starts=8 ends=0 steps=-1", REFUSED("no slice")},
    {IR_OP_SLICE, "FP32[8]", "starts=7 ends=-1 steps=-9223372036854775808", REFUSED("no slice")},
    {IR_OP_SLICE, "FP32[8]", "starts=0 ends=8 steps=0", REFUSED("no slice")},
    {IR_OP_SLICE, "FP32[8]", "starts=5 ends=4 steps=1", REFUSED("no slice")},
    {IR_OP_SLICE, "FP32[8]", "starts=0 ends=8", REFUSED("steps is missing")},
    {IR_OP_SLICE, "FP32[8]", "starts=0,0 ends=8 steps=1", REFUSED("2 values, not 1")},
    {IR_OP_PAD, "FP32[2,3]", "pads=1,-1,0,4 value=2f", "FP32[3,6]", NULL},
    {IR_OP_PAD, "FP32[2,3]", "pads=0,2,0,2 mode=1", "FP32[2,7]", NULL},
    {IR_OP_PAD, "FP32[2,3]", "pads=0,3,0,0 mode=1", REFUSED("cannot be padded")},
    {IR_OP_PAD, "FP32[0]", "pads=1,0 mode=2", REFUSED("cannot be padded")},
    {IR_OP_PAD, "FP32[3]", "pads=-2,-2", REFUSED("cannot be padded")},
    {IR_OP_PAD, "FP32[3]", "pads=-4,4", REFUSED("cannot be padded")},
    {IR_OP_PAD, "FP32[3]", "pads=1", REFUSED("1 values, not 2")},
    {IR_OP_PAD, "FP32[3]", "pads=1,9223372036854775807", REFUSED("pads[1]")},
    {IR_OP_EXPAND, "FP32[3,1]", "shape=2,3,4", "FP32[2,3,4]", NULL},
    {IR_OP_EXPAND, "FP32[3,4]", "shape=3,1", REFUSED("does not broadcast")},
    {IR_OP_EXPAND, "FP32[1]", "shape=1048576,1048576,1048576", REFUSED("too large")},
    {IR_OP_TILE, "FP32[2,3]", "repeats=2,0", "FP32[4,0]", NULL},
    {IR_OP_TILE, "FP32[2,3]", "repeats=2", REFUSED("1 values, not 2")},
    {IR_OP_TILE, "FP32[4096]", "repeats=1099511627776", REFUSED("too large")},
    {IR_OP_REFORMAT, "FP32[2,3]", "", "FP32[2,3]", NULL},
    {IR_OP_REFORMAT, "INT64[2,3]", "", "INT64[2,3]", NULL},
    {IR_OP_REFORMAT, "FP32[2,3]", "to=10", REFUSED("has no attribute to")},
    /* resize */
    {IR_OP_RESIZE, "FP32[1,3,4,4]", "shape=1,3,8,8 scales=1f,1f,2f,2f mode=1 coord=2",
     "FP32[1,3,8,8]", NULL},
    {IR_OP_RESIZE, "FP32[4]", "shape=8 scales=2f coord=4 roi=0f,1f", "FP32[8]", NULL},
    {IR_OP_RESIZE, "FP32[4]", "shape=8 scales=2f coord=4", REFUSED("roi")},
    {IR_OP_RESIZE, "FP32[4]", "shape=8 scales=0f", REFUSED("scales[0]")},
    {IR_OP_RESIZE, "FP32[4]", "shape=8 scales=nanf", REFUSED("scales[0]")},
    {IR_OP_RESIZE, "FP32[4]", "shape=8", REFUSED("scales")},
    {IR_OP_RESIZE, "FP32[4]", "shape=8 scales=2f mode=3", REFUSED("mode")},
    {IR_OP_RESIZE, "FP32[0]", "shape=8 scales=2f", REFUSED("empty")},
    {IR_OP_RESIZE, "FP32[9]", "shape=3 scales=0.33f mode=2 coord=5 antialias=1", "FP32[3]", NULL},
    {IR_OP_RESIZE, "FP32[9]", "shape=3 scales=0.33f coord=7", REFUSED("coord[0]")},
    {IR_OP_RESIZE, "FP32[9]", "shape=3 scales=0.33f antialias=1", REFUSED("not for the nearest")},
    {IR_OP_RESIZE, "FP32[9]", "shape=3 scales=1e-7f mode=1 antialias=1", REFUSED("too small")},
    /* indexing */
    {IR_OP_GATHER, "FP32[2,3,4] INT64[5,6]", "axis=1", "FP32[2,5,6,4]", NULL},
    {IR_OP_GATHER, "FP32[2,3] INT32[]", "axis=0", "FP32[3]", NULL},
    {IR_OP_GATHER, "FP32[2,3] FP32[1]", "axis=0", REFUSED("INT32 or INT64")},
    {IR_OP_GATHER, "FP32[1,1,1,1,1] INT64[1,1,1,1,1]", "axis=0", REFUSED("dimensions")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2,3]", "", "FP32[2,3,4]", NULL},
    {IR_OP_EMBED, "FP16[9,4] INT32[2,3] FP16[2,4] INT64[1,3] FP16[3,4]", "", "FP16[2,3,4]", NULL},
    {IR_OP_EMBED, "FP32[9,4] INT64[2,3] FP32[2,1,4] - FP32[5,4] INT64[]", "", "FP32[2,3,4]", NULL},
    {IR_OP_EMBED, "FP32[9,4,1] INT64[2]", "", REFUSED("(input 0) is not of rank 2")},
    {IR_OP_EMBED, "FP32[9,4] FP32[2]", "", REFUSED("INT32 or INT64")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP16[4]", "", REFUSED("input 2 is FP16")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[2,5]", "", REFUSED("(input 2) does not have rows of 4")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[2,1]", "", REFUSED("does not have rows of 4")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[1,2,4] INT64[2]", "", REFUSED("(input 2) does not")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[3,4]", "",
     REFUSED("rows [3,4] (input 2) do not broadcast to [2,4]")},
    {IR_OP_EMBED, "FP32[9,4] INT64[1] FP32[2,4]", "", REFUSED("do not broadcast to [1,4]")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[5,4] INT64[1,2]", "",
     REFUSED("indices [1,2] (input 3) do not broadcast to [2]")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] - INT64[2]", "", REFUSED("input 3 is there without input 2")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] - - FP32[2,4]", "",
     REFUSED("input 4 is there without input 2")},
    {IR_OP_EMBED, "FP32[9,4] INT64[2] FP32[2,4] - - INT64[2]", "",
     REFUSED("input 5 is there without input 4")},
    {IR_OP_GATHER_ELEMENTS, "FP32[2,3] INT64[2,7]", "axis=1", "FP32[2,7]", NULL},
    {IR_OP_GATHER_ELEMENTS, "FP32[2,3] INT64[3,3]", "axis=1", REFUSED("do not fit")},
    {IR_OP_GATHER_ELEMENTS, "FP32[2,3] INT64[2]", "axis=1", REFUSED("do not fit")},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[5,2]", "", "FP32[5,4]", NULL},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[2,5,1]", "batch_dims=1", "FP32[2,5,4]", NULL},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[5,4]", "", REFUSED("do not fit")},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[3,5,1]", "batch_dims=1", REFUSED("do not fit")},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[]", "", REFUSED("do not fit")},
    {IR_OP_GATHER_ND, "FP32[2,3,4] INT64[2,3,4,1]", "batch_dims=3", REFUSED("do not fit")},
    {IR_OP_SCATTER_ELEMENTS, "FP32[2,3] INT64[1,2] FP32[1,2]", "axis=1 func=1", "FP32[2,3]", NULL},
    {IR_OP_SCATTER_ELEMENTS, "FP32[2,3] INT64[1,2] FP32[2,2]", "axis=1", REFUSED("updates")},
    {IR_OP_SCATTER_ELEMENTS, "FP32[2,3] INT64[1,2] FP32[1,2]", "axis=1 func=5", REFUSED("func")},
    {IR_OP_SCATTER_ND, "FP32[4,3] INT64[2,1] FP32[2,3]", "", "FP32[4,3]", NULL},
    {IR_OP_SCATTER_ND, "FP32[4,3] INT64[2,1] FP32[2,4]", "", REFUSED("updates")},
    {IR_OP_ONE_HOT, "INT64[2,3] FP32[2]", "axis=1 depth=5", "FP32[2,5,3]", NULL},
    {IR_OP_ONE_HOT, "INT64[2,3] FP32[3]", "axis=1 depth=5", REFUSED("not [2]")},
    {IR_OP_ONE_HOT, "INT64[2,3] FP32[2]", "axis=3 depth=5", REFUSED("axis")},
    {IR_OP_TOPK, "FP32[2,5]", "axis=1 k=3", "FP32[2,3] INT64[2,3]", NULL},
    {IR_OP_TOPK, "FP32[2,5]", "axis=1 k=6", REFUSED("k is 6 of 5")},
    /* attention */
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,8]", "heads=4 alpha=0.5f", "FP32[2,5,8]",
     NULL},
    {IR_OP_ATTENTION, "FP16[2,5,12] FP16[2,7,12] FP16[2,7,12] FP16[2,1,1,7]", "heads=3",
     "FP16[2,5,12]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,36]", "heads=3 packed=1", "FP32[2,5,12]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - FP32[5,5]", "heads=3 packed=1", "FP32[2,5,12]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - FP32[2,4,5,5]", "heads=3 packed=1",
     REFUSED("mask [2,4,5,5] does not broadcast to [2,3,5,5]")},
    {IR_OP_ATTENTION, "FP32[2,5,36] FP32[2,5,36]", "heads=3 packed=1", REFUSED("apart")},
    {IR_OP_ATTENTION, "FP32[2,5,12]", "heads=4 packed=0", REFUSED("input 1 is missing")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] -", "heads=4", REFUSED("input 2 is missing")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,8]", "heads=5",
     REFUSED("last dimension 5 does not divide")},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - - INT32[2,5,2]", "heads=3 packed=1", "FP32[2,5,12]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,5,12] FP32[2,5,8] - INT32[2,5,2]", "heads=4 causal=1",
     "FP32[2,5,8]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - - INT64[2,5,2]", "heads=3 packed=1",
     REFUSED("spans are INT64 [2,5,2], but must be INT32 [2,5,2]")},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - - INT32[2,10]", "heads=3 packed=1",
     REFUSED("spans are INT32 [2,10], but must be INT32 [2,5,2]")},
    {IR_OP_ATTENTION, "FP32[2,5,36] - - FP32[5,5] INT32[2,5,2]", "heads=3 packed=1",
     REFUSED("without mask")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,8] - INT32[2,5,2]", "heads=4",
     REFUSED("with equal rows")},
    {IR_OP_ATTENTION, "FP32[2,3,5,4] FP32[2,5,12] FP32[2,5,12] - INT32[2,5,2]", "heads=3",
     REFUSED("of rank 3")},
    {IR_OP_ATTENTION, "FP32[2,5,24]", "heads=3 packed=1", REFUSED("9 does not divide")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,10]", "heads=4",
     REFUSED("input 2 is [2,7,10]")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,6,12]", "heads=4", REFUSED("do not fit")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,8] FP32[2,7,12]", "heads=4", REFUSED("do not fit")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,4,7,12] FP32[2,7,12]", "heads=4", REFUSED("do not fit")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,4,7,3] FP32[2,7,8]", "heads=4", "FP32[2,5,8]", NULL},
    {IR_OP_ATTENTION, "FP32[2,4,5,3] FP32[2,7,12] FP32[2,4,7,6]", "heads=4 causal=1",
     "FP32[2,5,24]", NULL},
    {IR_OP_ATTENTION, "FP32[2,4,5,3] FP32[2,2,7,3] FP32[2,2,7,6] BOOL[2,1,1,7]",
     "heads=4 kv_heads=2", "FP32[2,5,24]", NULL},
    {IR_OP_ATTENTION, "FP32[2,5,24] - - FP32[4,5,5]", "heads=4 kv_heads=2 packed=1", "FP32[2,5,12]",
     NULL},
    {IR_OP_ATTENTION, "FP32[6,5,36] - - FP32[3,1,5,5]", "heads=3 packed=1", "FP32[6,5,12]", NULL},
    {IR_OP_ATTENTION, "FP32[6,5,36] - - FP32[4,1,5,5]", "heads=3 packed=1",
     REFUSED("does not broadcast")},
    {IR_OP_ATTENTION, "FP32[2,4,5,3] FP32[2,3,7,3] FP32[2,3,7,6]", "heads=4 kv_heads=3",
     REFUSED("4 heads do not divide by 3")},
    {IR_OP_ATTENTION, "FP32[2,4,5,3] FP32[2,4,7,3] FP32[2,4,7,3]", "heads=2",
     REFUSED("input 0 is [2,4,5,3], but needs 2 heads")},
    {IR_OP_ATTENTION, "FP32[2,4,5,9]", "heads=4 packed=1", REFUSED("needs rank 3")},
    {IR_OP_ATTENTION, "FP32[2,12] FP32[2,12] FP32[2,12]", "heads=4", REFUSED("needs rank 3 or 4")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12] INT32[7]", "heads=4",
     REFUSED("input 3 is INT32")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12] FP16[7]", "heads=4",
     REFUSED("input 3 is FP16")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12] BOOL[1,2,1,1,7]", "heads=4",
     REFUSED("does not broadcast")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP16[2,7,12] FP32[2,7,12]", "heads=4", REFUSED("FP16")},
    {IR_OP_ATTENTION, "INT32[2,5,12] INT32[2,7,12] INT32[2,7,12]", "heads=4", REFUSED("a float")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12]", "", REFUSED("heads is missing")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12]", "heads=0", REFUSED("heads[0]")},
    {IR_OP_ATTENTION, "FP32[2,5,12] FP32[2,7,12] FP32[2,7,12]", "heads=4 packed=2",
     REFUSED("packed[0]")},
    /* recurrent layers */
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=10 alphas=1f betas=1f",
     "FP32[7,2,5] FP32[2,5]", NULL},
    {IR_OP_RECURRENT, "FP32[7,2,20] FP32[20,5] INT32[2] FP32[2,5] FP32[2,5] FP32[15]",
     "func=1 " LSTM_FUNCS " reverse=1 clip=1f coupled=1", "FP32[7,2,5] FP32[2,5] FP32[2,5]", NULL},
    {IR_OP_RECURRENT, "FP64[7,2,15] FP64[15,5] INT64[2] - - - FP64[5]",
     "func=2 linear=1 " GRU_FUNCS, "FP64[7,2,5] FP64[2,5]", NULL},
    {IR_OP_RECURRENT, "FP32[0,2,15] FP32[15,5]", "func=2 " GRU_FUNCS, "FP32[0,2,5] FP32[2,5]",
     NULL},
    {IR_OP_RECURRENT, "FP32[7,2,30] FP32[30,5] INT64[2] FP32[4,5] - - FP32[10]",
     "func=2 linear=1 reverse=2 funcs=6,10,6,10 alphas=0f,1f,0f,1f betas=0f,1f,0f,1f",
     "FP32[7,2,10] FP32[4,5]", NULL},
    {IR_OP_RECURRENT, "FP32[7,2,30] FP32[30,5]", "func=2 reverse=2 " GRU_FUNCS,
     REFUSED("funcs has 2 values")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5]",
     "func=2 reverse=2 funcs=6,10,6,10 alphas=0f,1f,0f,1f betas=0f,1f,0f,1f", REFUSED("6 gates")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5]", "func=2 reverse=3 " GRU_FUNCS,
     REFUSED("reverse[0]")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5] - - - - FP32[5]", "func=2 " GRU_FUNCS,
     REFUSED("no linear GRU")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5] - - FP32[2,5]", "func=2 " GRU_FUNCS,
     REFUSED("no LSTM")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5]", "func=1 " LSTM_FUNCS, REFUSED("4 gates")},
    {IR_OP_RECURRENT, "FP32[7,15] FP32[15,5]", "func=2 " GRU_FUNCS, REFUSED("3 gates")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,6]", "func=2 " GRU_FUNCS, REFUSED("not [15,5]")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5] - FP32[3,5]", "func=2 " GRU_FUNCS,
     REFUSED("not [2,5]")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5] INT32[3]", "func=2 " GRU_FUNCS, REFUSED("not [2]")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP32[15,5] FP32[2]", "func=2 " GRU_FUNCS, REFUSED("input 2")},
    {IR_OP_RECURRENT, "FP32[7,2,15] FP16[15,5]", "func=2 " GRU_FUNCS, REFUSED("FP16")},
    {IR_OP_RECURRENT, "INT32[7,2,15] INT32[15,5]", "func=2 " GRU_FUNCS, REFUSED("a float")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=25 alphas=0f betas=0f",
     REFUSED("erf, which no cell has")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=10,10 alphas=1f betas=1f",
     REFUSED("funcs has 2 values")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=10 betas=1f",
     REFUSED("alphas is missing")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=10 alphas=nanf betas=1f",
     REFUSED("alphas[0]")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=0 funcs=10 alphas=1f betas=1f clip=-1f",
     REFUSED("clip")},
    {IR_OP_RECURRENT, "FP32[7,2,5] FP32[5,5]", "func=3 funcs=10 alphas=1f betas=1f",
     REFUSED("func[0]")},
    /* images */
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[2,4,5,2]", "", "FP32[2,3,4,5]", NULL},
    {IR_OP_SAMPLE, "FP64[2,3,8,9,7] FP32[2,4,3]", "mode=2 border=2 coord=2", "FP64[2,3,4]", NULL},
    {IR_OP_SAMPLE, "FP32[2,3,8] FP32[2,1]", "", "FP32[2,3]", NULL},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[1,4,5,2]", "", REFUSED("do not fit together")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[2,4,5,3]", "", REFUSED("do not fit together")},
    {IR_OP_SAMPLE, "FP32[2,3] FP32[2,0]", "", REFUSED("do not fit together")},
    {IR_OP_SAMPLE, "FP32[2,3,0,9] FP32[2,4,5,2]", "", REFUSED("dimension 2 is empty")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9,7,2] FP32[2,4,4]", "mode=2", REFUSED("at most 3")},
    {IR_OP_SAMPLE, "INT32[2,3,8,9] FP32[2,4,5,2]", "", REFUSED("a float")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] INT32[2,4,5,2]", "", REFUSED("a float")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[2,4,5,2]", "mode=3", REFUSED("mode[0]")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[2,4,5,2]", "border=3", REFUSED("border[0]")},
    {IR_OP_SAMPLE, "FP32[2,3,8,9] FP32[2,4,5,2]", "coord=3", REFUSED("coord[0]")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "shape=5,6", "FP32[7,3,5,6]", NULL},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[0,4] INT32[0]", "shape=5,6 func=2 size=2 coord=1",
     "FP32[0,3,5,6]", NULL},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,5] INT64[7]", "shape=5,6", REFUSED("do not fit")},
    {IR_OP_ROI_POOL, "FP32[2,3,8] FP32[7,4] INT64[7]", "shape=5,6", REFUSED("do not fit")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[6]", "shape=5,6", REFUSED("not [7]")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] FP32[7]", "shape=5,6", REFUSED("INT32 or INT64")},
    {IR_OP_ROI_POOL, "FP32[2,3,0,9] FP32[7,4] INT64[7]", "shape=5,6", REFUSED("empty")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "shape=5,0", REFUSED("shape[1]")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "", REFUSED("shape is missing")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "shape=5,6 size=257", REFUSED("size[0]")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "shape=5,6 func=3", REFUSED("func[0]")},
    {IR_OP_ROI_POOL, "FP32[2,3,8,9] FP32[7,4] INT64[7]", "shape=5,6 alpha=inff",
     REFUSED("not finite")},
    {IR_OP_CONV_POOL, "FP32[2,3,9,8] FP32[4,3,3,3]", "strides=2,2 pads=1,1,1,1", "FP32[2,4,3,2]",
     NULL},
    {IR_OP_CONV_POOL, "UINT8[2,3,9,8] FP16[4,3,3,3] FP16[4]", "", "FP16[2,4,4,3]", NULL},
    {IR_OP_CONV_POOL, "INT8[2,3,9,8] FP16[4,3,3,3]", "", REFUSED("input is INT8")},
    {IR_OP_CONV_POOL, "FP32[2,3,9,8] FP16[4,3,3,3]", "", REFUSED("weights are FP16")},
    {IR_OP_CONV_POOL, "UINT8[2,3,9,8] FP16[4,3,3,3] FP32[4]", "", REFUSED("input is UINT8")},
    {IR_OP_CONV_POOL, "FP32[2,3,9] FP32[4,3,3]", "", REFUSED("rank 3, not 4")},
    {IR_OP_CONV_POOL, "FP32[2,3,9,8] FP32[4,3,3]", "", REFUSED("do not fit")},
    {IR_OP_CONV_POOL, "FP32[2,4,9,8] FP32[4,3,3,3]", "", REFUSED("do not fit")},
    {IR_OP_CONV_POOL, "FP32[2,3,9,8] FP32[4,3,3,3] FP32[3]", "", REFUSED("not [4]")},
    {IR_OP_CONV_POOL, "FP32[2,3,2,8] FP32[4,3,3,3]", "", REFUSED("larger than")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[2,7,8,5] FP32[5,7,1,1]", "strides=2,2",
     "FP32[2,5,4,3]", NULL},
    {IR_OP_CONV_PAIR, "FP16[2,3,4,3] FP16[5,3,1,1] FP16[2,7,4,3] FP16[5,7,1,1] FP16[5]", "",
     "FP16[2,5,4,3]", NULL},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[2,7,9,5] FP32[5,7,1,1]", "strides=2,2",
     REFUSED("do not fit each other")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[1,7,4,3] FP32[5,7,1,1]", "",
     REFUSED("do not fit each other")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[2,7,4,3] FP32[4,7,1,1]", "",
     REFUSED("do not fit each other")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[2,7,4,3] FP32[5,6,1,1]", "",
     REFUSED("do not fit input")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,3,1] FP32[2,7,4,3] FP32[5,7,1,1]", "",
     REFUSED("do not fit input")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4] FP32[5,3,1] FP32[2,7,4,3] FP32[5,7,1,1]", "",
     REFUSED("do not fit input")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP16[2,7,4,3] FP16[5,7,1,1]", "",
     REFUSED("input 2 is FP16")},
    {IR_OP_CONV_PAIR, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[2,7,4,3] FP32[5,7,1,1] FP32[4]", "",
     REFUSED("not [5]")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1]", "",
     "FP32[2,5,4,3] FP32[2,6,4,3]", NULL},
    {IR_OP_CONV_CHAIN,
     "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] FP32[2,7,8,5] FP32[5,7,1,1] FP32[5] "
     "FP32[2,5,4,3] FP32[6]",
     "strides=2,2 funcs=1,1", "FP32[2,5,4,3] FP32[2,6,4,3]", NULL},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,4,1,1]", "", REFUSED("do not fit")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,3,1]", "", REFUSED("do not fit")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1]", "funcs=1", REFUSED("funcs")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1]", "funcs=1,2", REFUSED("funcs")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] FP32[2,7,4,3] -", "",
     REFUSED("without weights")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] FP32[2,7,5,3] FP32[5,7,1,1]", "",
     REFUSED("do not fit each other")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] FP32[2,7,4,3] FP32[4,7,1,1]", "",
     REFUSED("do not fit each other")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] - - FP32[4]", "",
     REFUSED("not [5]")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] - - - FP32[2,5,4,2]", "",
     REFUSED("residual is")},
    {IR_OP_CONV_CHAIN, "FP32[2,3,4,3] FP32[5,3,1,1] FP32[6,5,1,1] - - - - FP32[5]", "",
     REFUSED("not [6]")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "k=4", "INT64[24,3]", NULL},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "k=1099511627776 alpha=0.5f beta=0.1f mode=1",
     "INT64[60,3]", NULL},
    {IR_OP_NMS, "FP32[1,10,4] FP32[1,3,10]", "k=0", "INT64[0,3]", NULL},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,9]", "k=4", REFUSED("do not fit")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[1,3,10]", "k=4", REFUSED("do not fit")},
    {IR_OP_NMS, "FP32[2,10,5] FP32[2,3,10]", "k=4", REFUSED("do not fit")},
    {IR_OP_NMS, "FP32[2,10,4] FP16[2,3,10]", "k=4", REFUSED("input 1 is FP16")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "", REFUSED("k is missing")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "k=-1", REFUSED("k[0]")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "k=4 mode=2", REFUSED("mode[0]")},
    {IR_OP_NMS, "FP32[2,10,4] FP32[2,3,10]", "k=4 alpha=nanf", REFUSED("not a number")},
    {IR_OP_MLP, "FP32[2,3,5] FP32[22] FP32[6]", "widths=2,4 funcs=1,17 alphas=0f,-1f betas=0f,6f",
     REFUSED("not [18]")},
    {IR_OP_MLP, "FP32[2,3,5] FP32[18] FP32[6]", "widths=2,4 funcs=1,17 alphas=0f,-1f betas=0f,6f",
     "FP32[2,3,4]", NULL},
    {IR_OP_MLP, "FP16[5] FP16[10] FP16[2]", "widths=2 funcs=0 alphas=0f betas=0f", "FP16[2]", NULL},
    {IR_OP_MLP, "FP32[0,5] FP32[10] FP32[2]", "widths=2 funcs=0 alphas=0f betas=0f", "FP32[0,2]",
     NULL},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[3]", "widths=2 funcs=0 alphas=0f betas=0f",
     REFUSED("not [2]")},
    {IR_OP_MLP, "FP32[3,0] FP32[0] FP32[2]", "widths=2 funcs=0 alphas=0f betas=0f",
     REFUSED("no rows")},
    {IR_OP_MLP, "FP32[] FP32[2] FP32[2]", "widths=2 funcs=0 alphas=0f betas=0f",
     REFUSED("no rows")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP16[2]", "widths=2 funcs=0 alphas=0f betas=0f",
     REFUSED("input 2 is FP16")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=0 funcs=0 alphas=0f betas=0f",
     REFUSED("widths[0] is 0")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=0,0 alphas=0f betas=0f",
     REFUSED("funcs has 2 values, not 1")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=0 alphas=0f,0f betas=0f",
     REFUSED("alphas has 2 values, not 1")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=0 alphas=0f betas=0f,0f",
     REFUSED("betas has 2 values, not 1")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=30 alphas=0f betas=0f",
     REFUSED("not, which is no function")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=42 alphas=0f betas=0f",
     REFUSED("is_nan, which is no function")},
    {IR_OP_MLP, "FP32[3,5] FP32[10] FP32[2]", "widths=2 funcs=17 alphas=nanf betas=0f",
     REFUSED("is no number")},
    {IR_OP_MLP, "FP32[1,262144] FP32[10] FP32[2]", "widths=274877906944 funcs=0 alphas=0f betas=0f",
     REFUSED("too many weights")},
    {IR_OP_MLP, "FP32[1,1] FP32[32] FP32[32]",
     "widths=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 funcs=0 alphas=0f "
     "betas=0f",
     REFUSED("32 layers")},
    {IR_OP_DET, "FP32[2,3,5,5]", "", "FP32[2,3]", NULL},
    {IR_OP_DET, "FP64[0,0]", "", "FP64[]", NULL},
    {IR_OP_DET, "FP32[5,4]", "", REFUSED("not square")},
    {IR_OP_DET, "FP32[5]", "", REFUSED("not square")},
    {IR_OP_DET, "INT32[5,5]", "", REFUSED("a float")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[] UINT8[]", "to=2", "UINT8[2,3]", NULL},
    {IR_OP_QUANTIZE, "FP16[2,3] FP32[1]", "to=6", "INT8[2,3]", NULL},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[3] INT16[3]", "to=7 axis=1", "INT16[2,3]", NULL},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[3]", "to=2 axis=0", REFUSED("does not fit dimension 0")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[3]", "to=2 axis=2", REFUSED("does not fit dimension 2")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[1,3]", "to=2 axis=1", REFUSED("does not fit")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[3] UINT8[]", "to=2 axis=1", REFUSED("zero is []")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[] INT8[]", "to=2", REFUSED("zero is INT8, the output UINT8")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[]", "to=8", REFUSED("quantises to INT32")},
    {IR_OP_QUANTIZE, "INT32[2,3] FP32[]", "to=2", REFUSED("a float")},
    {IR_OP_QUANTIZE, "FP32[2,3] INT8[]", "to=2", REFUSED("a float")},
    {IR_OP_QUANTIZE, "FP32[2,3] FP32[]", "", REFUSED("to is missing")},
    {IR_OP_DEQUANTIZE, "UINT8[2,3] FP32[] UINT8[]", "to=12", "FP32[2,3]", NULL},
    {IR_OP_DEQUANTIZE, "INT32[2,3] FP32[2]", "to=10 axis=0", "FP16[2,3]", NULL},
    {IR_OP_DEQUANTIZE, "INT8[] FP32[1] INT8[1]", "to=13", "FP64[]", NULL},
    {IR_OP_DEQUANTIZE, "INT8[3] FP32[3] UINT8[3]", "to=12", REFUSED("input 2 is UINT8")},
    {IR_OP_DEQUANTIZE, "INT8[3] FP32[4]", "to=12", REFUSED("does not fit dimension 0")},
    {IR_OP_DEQUANTIZE, "INT64[3] FP32[]", "to=12", REFUSED("dequantises INT64")},
    {IR_OP_DEQUANTIZE, "INT8[3] FP32[]", "to=2", REFUSED("dequantises INT8 to UINT8")},
    {IR_OP_DEQUANTIZE, "FP32[3] FP32[]", "to=12", REFUSED("an integer")},
    {IR_OP_PLUGIN, "FP32[2,3]", "words=" SAMPLE_WORDS, "FP32[2,3]", NULL},
    {IR_OP_PLUGIN, "INT64[]", "words=" SAMPLE_WORDS, "INT64[]", NULL},
    {IR_OP_PLUGIN, "FP32[2,3]", "words=0,1,116", REFUSED("damaged")},
    {IR_OP_PLUGIN, "FP32[2,3]", "", REFUSED("words is missing")},
    /* what no op is */
    {IR_OP_NONE, "FP32[1]", "", REFUSED("no such op")},
    {(enum ir_op)IR_OP_COUNT_, "FP32[1]", "", REFUSED("no such op")},
    {(enum ir_op) - 1, "FP32[1]", "", REFUSED("no such op")},
};

/* "FP32[2,3]" at *at; moves it behind. */
static uint32_t parse_tensor(struct ir_graph *g, const char **at)
{
    struct shape shape = {0};
    size_t name = strcspn(*at, "[");
    enum dtype dtype = dtype_parse(*at, name);
    assert_int_not_equal(dtype, DTYPE_NONE);
    *at += name + 1;
    while (**at != ']') {
        char *end;
        shape.dim[shape.rank++] = strtoll(*at, &end, 10);
        *at = *end == ',' ? end + 1 : end;
    }
    ++*at;
    uint32_t id = ir_tensor_add(g, "t", dtype, &shape);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

static enum ir_attr_key parse_key(const char *text, size_t len)
{
    for (int i = 1; i < IR_ATTR_COUNT_; i++)
        if (strlen(ir_attr_name((enum ir_attr_key)i)) == len &&
            memcmp(ir_attr_name((enum ir_attr_key)i), text, len) == 0)
            return (enum ir_attr_key)i;
    fail_msg("no attribute %.*s", (int)len, text);
    return IR_ATTR_NONE;
}

static void parse_attrs(struct ir_graph *g, uint32_t node, const char *at)
{
    while (*at) {
        size_t len = strcspn(at, "=");
        enum ir_attr_key key = parse_key(at, len);
        int64_t ints[64];
        float floats[64];
        uint32_t n = 0;
        bool is_float = false;
        for (at += len + 1; *at && *at != ' '; n++) {
            size_t value = strcspn(at, ", ");
            char *end;
            is_float |= at[value - 1] == 'f';
            if (is_float)
                floats[n] = strtof(at, &end);
            else
                ints[n] = strtoll(at, &end, 10);
            at += value + (at[value] == ',');
        }
        assert_true(is_float ? ir_attr_set_floats(g, node, key, n, floats)
                             : ir_attr_set_ints(g, node, key, n, ints));
        at += *at == ' ';
    }
}

static void check_outputs(const struct rule_case *c, const struct ir_type *types, uint32_t n)
{
    char got[4 * (SHAPE_TEXT_MAX + 8)] = "", shape[SHAPE_TEXT_MAX];
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++)
        len += (size_t)snprintf(got + len, sizeof(got) - len, "%s%s%s", i ? " " : "",
                                dtype_name(types[i].dtype), shape_format(&types[i].shape, shape));
    if (strcmp(got, c->outputs) != 0)
        fail_msg("%s (%s) %s: got %s, not %s", ir_op_name(c->op), c->inputs, c->attrs, got,
                 c->outputs);
}

static void run_case(const struct rule_case *c)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t inputs[16], n = 0;
    for (const char *at = c->inputs; *at; at += *at == ' ')
        inputs[n++] = *at == '-' ? (at++, IR_NONE) : parse_tensor(g, &at);
    uint32_t node = ir_node_add(g, c->op, "n", n, inputs);
    parse_attrs(g, node, c->attrs);

    struct ir_type types[IR_MAX_OUTPUTS];
    struct error err = {0};
    uint32_t n_out = 99;
    enum status status = ir_infer_node(g, ir_node(g, node), types, &n_out, &err);
    if (c->outputs) {
        if (status != STATUS_OK)
            fail_msg("%s (%s) %s: %s", ir_op_name(c->op), c->inputs, c->attrs, err.text);
        check_outputs(c, types, n_out);
        assert_in_range(n_out, ir_op_row(c->op)->min_out, ir_op_row(c->op)->max_out);
    } else {
        if (status != STATUS_INVALID_ARGUMENT || !strstr(err.text, c->reason) || n_out != 99)
            fail_msg("%s (%s) %s: refusal \"%s\" was expected, got %s \"%s\"", ir_op_name(c->op),
                     c->inputs, c->attrs, c->reason, status_name(status), err.text);
    }
    ir_graph_free(g);
}

static void rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        run_case(&cases[i]);
}

/* Each op has at least one line that is accepted and one that is refused. */
static void every_op_is_covered(void **state)
{
    (void)state;
    for (int op = 1; op < IR_OP_COUNT_; op++) {
        int good = 0, refused = 0;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            good += cases[i].op == (enum ir_op)op && cases[i].outputs;
            refused += cases[i].op == (enum ir_op)op && !cases[i].outputs;
        }
        if (!good || !refused)
            fail_msg("%s: %d accepted, %d refused", ir_op_name((enum ir_op)op), good, refused);
    }
}

static void apply_adds_as_many_outputs_as_named(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    struct error err = {0};
    struct shape s = {.rank = 3, .dim = {1, 1, 4}};
    uint32_t x = ir_tensor_add(g, "x", DTYPE_F32, &s);
    uint32_t pool = ir_node_add(g, IR_OP_POOL, "pool", 1, &x);
    parse_attrs(g, pool, "func=0 kernel=2");
    assert_int_equal(ir_infer_apply(g, pool, NULL, 0, &err), STATUS_OK);
    assert_int_equal(ir_node(g, pool)->n_outputs, 1);
    assert_int_equal(ir_infer_apply(g, pool, (const char *[]){"y", "index"}, 2, &err), STATUS_OK);
    assert_int_equal(ir_node(g, pool)->n_outputs, 2);
    assert_string_equal(ir_tensor(g, ir_node(g, pool)->outputs[1])->name, "index");
    assert_int_equal(ir_infer_apply(g, pool, (const char *[]){"", "", ""}, 3, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "at most 2 outputs"));

    uint32_t topk = ir_node_add(g, IR_OP_TOPK, "topk", 1, &x);
    parse_attrs(g, topk, "axis=2 k=1");
    assert_int_equal(ir_infer_apply(g, topk, (const char *[]){NULL}, 1, &err), STATUS_OK);
    assert_int_equal(ir_node(g, topk)->n_outputs, 2);

    /* An output that is there already is checked. */
    assert_true(ir_attr_set_int(g, topk, IR_ATTR_K, 2));
    assert_int_equal(ir_infer_apply(g, topk, NULL, 0, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "[1,1,1], not"));
    ir_graph_free(g);
}

int main(void)
{
    if (sample_load(NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(every_op_is_covered),
        cmocka_unit_test(apply_adds_as_many_outputs_as_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
