/* SPDX-License-Identifier: Apache-2.0 */
/* Reshapes, transposes, slices and reductions. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    /* --- merge_shuffles --- */
    {"reshape + reshape", "merge_shuffles",
     "input x FP32[2,3,4]\n"
     "a = reshape \"a\" (x) shape=6,4\n"
     "y = reshape \"b\" (a) shape=24\n"
     "output y\noutput a\n",
     "input x FP32[2,3,4]\n"
     "a FP32[6,4] = reshape \"a\" (x) shape=6,4\n"
     "y FP32[24] = reshape \"b\" (x) shape=24\n"
     "output y\n"
     "output a\n",
     "b reads past a"},
    {"transpose + transpose", "merge_shuffles",
     "input x FP32[2,3,4]\n"
     "a = transpose \"a\" (x) perm=2,0,1\n"
     "y = transpose \"b\" (a) perm=1,0,2\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "y FP32[2,4,3] = transpose \"b\" (x) perm=0,2,1\n"
     "output y\n",
     NULL},
    /* --- merge_chains --- */
    {"a transpose with its batch joined is one of four dimensions", "merge_chains",
     "input x FP32[2,3,5,4]\n"
     "a = reshape \"a\" (x) shape=6,5,4\n"
     "b = transpose \"b\" (a) perm=0,2,1\n"
     "y = reshape \"y\" (b) shape=2,3,4,5\n"
     "output y\n",
     "input x FP32[2,3,5,4]\n"
     "y FP32[2,3,4,5] = transpose \"y\" (x) perm=0,1,3,2\n"
     "output y\n",
     "y is one transpose of 3 nodes"},
    {"heads split, merged with the batch, and back: nothing moves", "merge_chains merge_shuffles",
     "input x FP32[2,5,12]\n"
     "a = reshape \"a\" (x) shape=2,5,3,4\n"
     "b = transpose \"b\" (a) perm=0,2,1,3\n"
     "c = reshape \"c\" (b) shape=6,5,4\n"
     "d = transpose \"d\" (c) perm=1,0,2\n"
     "e = reshape \"e\" (d) shape=5,2,3,4\n"
     "f = transpose \"f\" (e) perm=1,0,2,3\n"
     "g = reshape \"g\" (f) shape=10,12\n"
     "y = unary \"y\" (g) func=exp\n"
     "output y\n",
     "input x FP32[2,5,12]\n"
     "g FP32[10,12] = reshape \"g\" (x) shape=10,12\n"
     "y FP32[10,12] = unary \"y\" (g) func=exp\n"
     "output y\n",
     "f moves nothing"},
    {"two transposes with a reshape between are one", "merge_chains",
     "input x FP32[2,3,5,4]\n"
     "a = transpose \"a\" (x) perm=0,2,1,3\n"
     "b = reshape \"b\" (a) shape=2,5,12\n"
     "y = transpose \"y\" (b) perm=1,0,2\n"
     "output y\n",
     "input x FP32[2,3,5,4]\n"
     "%2 FP32[6,5,4] = reshape \"y\" (x) shape=6,5,4\n"
     "%3 FP32[5,6,4] = transpose \"y\" (%2) perm=1,0,2\n"
     "y FP32[5,2,12] = reshape \"y\" (%3) shape=5,2,12\n"
     "output y\n",
     NULL},
    {"channels shuffled, a chain that others read, digits that do not fit: stay", "merge_chains",
     "input x FP32[2,6,5,4]\n"
     "a = reshape \"a\" (x) shape=2,2,3,5,4\n"
     "b = transpose \"b\" (a) perm=0,2,1,3,4\n"
     "c = reshape \"c\" (b) shape=2,6,5,4\n"
     "d = reshape \"d\" (x) shape=12,5,4\n"
     "e = transpose \"e\" (d) perm=0,2,1\n"
     "f = reshape \"f\" (e) shape=2,6,4,5\n"
     "g = transpose \"g\" (x) perm=1,0,2,3\n"
     "h = reshape \"h\" (g) shape=4,3,20\n"
     "i = transpose \"i\" (h) perm=1,0,2\n"
     "output c\noutput e\noutput f\noutput i\n",
     NULL, NULL},
    /* --- cancel_transposes --- */
    {"batch and sequence swapped for a product", "cancel_transposes erase_noops",
     "input x FP32[2,5,6]\n"
     "t = transpose \"t\" (x) perm=1,0,2\n"
     "r = reshape \"r\" (t) shape=10,6\n"
     "m = matmul \"m\" (r, w FP32[4,6], b FP32[4]) trans_b=1 alpha=0.5\n"
     "s = reshape \"s\" (m) shape=5,2,4\n"
     "u = transpose \"u\" (s) perm=1,0,2\n"
     "y = unary \"y\" (u) func=exp\n"
     "output y\n",
     "input x FP32[2,5,6]\n"
     "%4 FP32[2,5,4] = matmul \"m\" (x, w FP32[4,6], b FP32[4]) trans_b=1 alpha=0.5\n"
     "y FP32[2,5,4] = unary \"y\" (%4) func=exp\n"
     "output y\n",
     "t and u undo each other"},
    {"reshapes around a product", "cancel_transposes erase_noops",
     "input x FP32[2,5,6]\n"
     "r = reshape \"r\" (x) shape=10,6\n"
     "m = matmul \"m\" (r, w FP32[6,4])\n"
     "s = reshape \"s\" (m) shape=2,5,4\n"
     "y = unary \"y\" (s) func=exp\n"
     "output y\n",
     "input x FP32[2,5,6]\n"
     "%3 FP32[2,5,4] = matmul \"m\" (x, w FP32[6,4]) trans_b=0 alpha=1\n"
     "y FP32[2,5,4] = unary \"y\" (%3) func=exp\n"
     "output y\n",
     NULL},
    {"around a product: another order, other rows, a product that is read: stay",
     "cancel_transposes",
     "input x FP32[4,4,6]\n"
     "t = transpose \"t\" (x) perm=1,0,2\n"
     "m = matmul \"m\" (t, w FP32[6,6])\n"
     "u = transpose \"u\" (m) perm=1,2,0\n"
     "r = reshape \"r\" (x) shape=32,3\n"
     "p = matmul \"p\" (r, v FP32[3,6])\n"
     "s = reshape \"s\" (p) shape=4,8,6\n"
     "k = reshape \"k\" (x) shape=16,6\n"
     "o = matmul \"o\" (k, w)\n"
     "z = reshape \"z\" (o) shape=4,4,6\n"
     "output u\noutput s\noutput o\noutput z\n",
     NULL, NULL},
    {"transpose and back", "merge_shuffles erase_noops",
     "input x FP32[2,3,4]\n"
     "r = unary \"r\" (x) func=relu\n"
     "a = transpose \"a\" (r) perm=2,0,1\n"
     "b = transpose \"b\" (a) perm=1,2,0\n"
     "y = unary \"y\" (b) func=tanh\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "r FP32[2,3,4] = unary \"r\" (x) func=relu\n"
     "y FP32[2,3,4] = unary \"y\" (r) func=tanh\n"
     "output y\n",
     NULL},
    {"a transpose that moves no element", "merge_shuffles",
     "input x FP32[2,1,4]\n"
     "y = transpose \"a\" (x) perm=1,0,2\n"
     "output y\n",
     "input x FP32[2,1,4]\n"
     "y FP32[1,2,4] = reshape \"a\" (x) shape=1,2,4\n"
     "output y\n",
     "a is a reshape"},
    {"a transpose that moves elements", "merge_shuffles",
     "input x FP32[2,1,4]\n"
     "y = transpose \"a\" (x) perm=2,1,0\n"
     "output y\n",
     NULL, NULL},
    /* --- keep_windows --- */
    {"Swin: a block in windows, and what follows it", "keep_windows erase_noops merge_shuffles",
     "input x FP32[2,2,4,8]\n"
     "n = layer_norm \"n\" (x, g FP32[8]) axis=3\n"
     "a = reshape \"a\" (n) shape=2,1,2,2,2,8\n"
     "b = transpose \"b\" (a) perm=0,1,3,2,4,5\n"
     "c = reshape \"c\" (b) shape=4,4,8\n"
     "d = matmul \"d\" (c, w FP32[8,8])\n"
     "e = reshape \"e\" (d) shape=2,1,2,2,2,8\n"
     "f = transpose \"f\" (e) perm=0,1,3,2,4,5\n"
     "h = reshape \"h\" (f) shape=2,2,4,8\n"
     "s = binary \"s\" (x, h) func=add\n"
     "m = layer_norm \"m\" (s, k FP32[8]) axis=3\n"
     "o = matmul \"o\" (m, v FP32[8,16]) then relu\n"
     "p = matmul \"p\" (o, u FP32[16,8]) then add(s)\n"
     "y = transpose \"y\" (p) perm=0,3,1,2\n"
     "output y\n",
     "input x FP32[2,2,4,8]\n"
     "%9 FP32[2,8,8] = reshape \"s\" (x) shape=2,8,8\n"
     "%11 FP32[2,8,8] = gather \"s\" (%9, s INT64[8]) axis=1\n"
     "%12 FP32[4,4,8] = reshape \"s\" (%11) shape=4,4,8\n"
     "%13 FP32[4,4,8] = layer_norm \"n\" (%12, g FP32[8]) axis=2\n"
     "d FP32[4,4,8] = matmul \"d\" (%13, w FP32[8,8])\n"
     "%14 FP32[4,4,8] = reshape \"s\" (%11) shape=4,4,8\n"
     "%15 FP32[4,4,8] = binary \"s\" (d, %14) func=add\n"
     "%16 FP32[2,2,4,8] = reshape \"m\" (%15) shape=2,2,4,8\n"
     "%17 FP32[2,2,4,8] = layer_norm \"m\" (%16, k FP32[8]) axis=3\n"
     "%18 FP32[2,2,4,16] = matmul \"o\" (%17, v FP32[8,16]) then relu\n"
     "%19 FP32[2,2,4,8] = reshape \"p\" (%15) shape=2,2,4,8\n"
     "%20 FP32[2,2,4,8] = matmul \"p\" (%18, u FP32[16,8]) then add(%19)\n"
     "%21 FP32[2,8,8] = reshape \"p\" (%20) shape=2,8,8\n"
     "%23 FP32[2,8,8] = gather \"p\" (%21, p INT64[8]) axis=1\n"
     "p FP32[2,2,4,8] = reshape \"p\" (%23) shape=2,2,4,8\n"
     "y FP32[2,8,2,4] = transpose \"y\" (p) perm=0,3,1,2\n"
     "output y\n",
     NULL},
    {"Swin: patches between stages", "keep_windows",
     "input x FP32[2,4,4,8]\n"
     "a = slice \"a\" (x) starts=0,0,0,0 ends=2,4,4,8 steps=1,2,2,1\n"
     "b = slice \"b\" (x) starts=0,1,0,0 ends=2,4,4,8 steps=1,2,2,1\n"
     "c = slice \"c\" (x) starts=0,0,1,0 ends=2,4,4,8 steps=1,2,2,1\n"
     "d = slice \"d\" (x) starts=0,1,1,0 ends=2,4,4,8 steps=1,2,2,1\n"
     "y = concat \"y\" (a, b, c, d) axis=3\n"
     "output y\n",
     "input x FP32[2,4,4,8]\n"
     "%2 FP32[2,16,8] = reshape \"y\" (x) shape=2,16,8\n"
     "%4 FP32[2,16,8] = gather \"y\" (%2, y INT64[16]) axis=1\n"
     "y FP32[2,2,2,32] = reshape \"y\" (%4) shape=2,2,2,32\n"
     "output y\n",
     NULL},
    {"gathers of rows, one behind the other", "keep_windows",
     "input x FP32[2,4,8]\n"
     "a = gather \"a\" (x, i INT64[4]=+) axis=1\n"
     "y = gather \"y\" (a, j INT64[4]=+) axis=1\n"
     "output y\n",
     "input x FP32[2,4,8]\n"
     "%2 FP32[2,4,8] = reshape \"y\" (x) shape=2,4,8\n"
     "%4 FP32[2,4,8] = gather \"y\" (%2, y INT64[4]) axis=1\n"
     "y FP32[2,4,8] = reshape \"y\" (%4) shape=2,4,8\n"
     "output y\n",
     NULL},
    {"windows that are put back elsewhere, slices that overlap, parts of rows: stay",
     "keep_windows",
     "input x FP32[2,2,4,8]\n"
     "n = layer_norm \"n\" (x, g FP32[8]) axis=3\n"
     "a = reshape \"a\" (n) shape=2,1,2,2,2,8\n"
     "b = transpose \"b\" (a) perm=0,1,3,2,4,5\n"
     "c = reshape \"c\" (b) shape=4,4,8\n"
     "d = matmul \"d\" (c, w FP32[8,8])\n"
     "e = reshape \"e\" (d) shape=2,2,4,8\n"
     "f = transpose \"f\" (e) perm=0,2,1,3\n"
     "h = reshape \"h\" (f) shape=2,2,4,8\n"
     "s = binary \"s\" (x, h) func=add\n"
     "q = slice \"q\" (s) starts=0,0,0,0 ends=2,2,4,8 steps=1,2,2,1\n"
     "r = slice \"r\" (s) starts=0,0,0,0 ends=2,2,4,8 steps=1,2,2,1\n"
     "t = slice \"t\" (s) starts=0,1,1,0 ends=2,2,4,8 steps=1,2,2,1\n"
     "u = slice \"u\" (s) starts=0,1,0,0 ends=2,2,4,8 steps=1,2,2,1\n"
     "y = concat \"y\" (q, r, t, u) axis=3\n"
     "output y\n",
     NULL, NULL},
    /* --- gather_channels --- */
    {"ShuffleNet: channels of two groups, and halves of them", "gather_channels erase_unused",
     "input x FP32[2,6,4,3]\n"
     "a = reshape \"a\" (x) shape=2,2,3,4,3\n"
     "t = transpose \"t\" (a) perm=0,2,1,3,4\n"
     "g = reshape \"g\" (t) shape=2,6,4,3\n"
     "p = slice \"p\" (g) starts=0,0,0,0 ends=2,3,4,3 steps=1,1,1,1\n"
     "q = slice \"q\" (g) starts=0,3,0,0 ends=2,6,4,3 steps=1,1,1,1\n"
     "output p\noutput q\n",
     "input x FP32[2,6,4,3]\n"
     "p FP32[2,3,4,3] = gather \"p\" (x, p INT64[3]) axis=1\n"
     "q FP32[2,3,4,3] = gather \"q\" (x, q INT64[3]) axis=1\n"
     "output p\noutput q\n",
     "t is a gather of channels"},
    {"channels of three dimensions, turned around", "gather_channels",
     "input x FP32[1,24,5]\n"
     "a = reshape \"a\" (x) shape=1,2,3,4,5\n"
     "t = transpose \"t\" (a) perm=0,3,1,2,4\n"
     "y = reshape \"y\" (t) shape=1,24,5\n"
     "output y\n",
     "input x FP32[1,24,5]\n"
     "y FP32[1,24,5] = gather \"y\" (x, y INT64[24]) axis=1\n"
     "output y\n",
     NULL},
    {"a shuffle that others read, and one of places", "gather_channels",
     "input x FP32[2,6,4,3]\n"
     "a = reshape \"a\" (x) shape=2,2,3,4,3\n"
     "t = transpose \"t\" (a) perm=0,2,1,3,4\n"
     "g = reshape \"g\" (t) shape=2,6,4,3\n"
     "b = reshape \"b\" (x) shape=2,6,2,2,3\n"
     "u = transpose \"u\" (b) perm=0,1,3,2,4\n"
     "h = reshape \"h\" (u) shape=2,6,4,3\n"
     "output t\noutput g\noutput h\n",
     NULL, NULL},
    /* --- gather_slices --- */
    {"split, one half changed, all put together (C2f)", "gather_slices erase_unused",
     "input x FP32[2,6,4,3]\n"
     "a = slice \"a\" (x) starts=0,0,0,0 ends=2,2,4,3 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,2,0,0 ends=2,6,4,3 steps=1,1,1,1\n"
     "c = unary \"c\" (b) func=relu\n"
     "y = concat \"y\" (a, b, c) axis=1\n"
     "output y\n",
     "input x FP32[2,6,4,3]\n"
     "b FP32[2,4,4,3] = slice \"b\" (x) starts=0,2,0,0 ends=2,6,4,3 steps=1,1,1,1\n"
     "c FP32[2,4,4,3] = unary \"c\" (b) func=relu\n"
     "y FP32[2,10,4,3] = concat \"y\" (x, c) axis=1\n"
     "output y\n",
     "y takes neighbouring slices of x as one"},
    {"neighbours that are not all of it", "gather_slices erase_unused",
     "input x FP32[2,6,4,3]\n"
     "a = slice \"a\" (x) starts=0,1,0,0 ends=2,2,4,3 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,2,0,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "c = unary \"c\" (x) func=relu\n"
     "y = concat \"y\" (c, a, b) axis=1\n"
     "output y\n",
     "input x FP32[2,6,4,3]\n"
     "c FP32[2,6,4,3] = unary \"c\" (x) func=relu\n"
     "%3 FP32[2,4,4,3] = slice \"a\" (x) starts=0,1,0,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "y FP32[2,10,4,3] = concat \"y\" (c, %3) axis=1\n"
     "output y\n",
     NULL},
    {"neighbours in another order, or such as others read", "gather_slices",
     "input x FP32[2,6,4,3]\n"
     "a = slice \"a\" (x) starts=0,1,0,0 ends=2,2,4,3 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,2,0,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "c = unary \"c\" (b) func=relu\n"
     "y = concat \"y\" (a, b, c) axis=1\n"
     "z = concat \"z\" (b, a, c) axis=1\n"
     "output y\noutput z\n",
     NULL, NULL},
    {"Swin: a roll over two axes", "gather_slices gather_slices",
     "input x FP32[2,5,4,3]\n"
     "a = slice \"a\" (x) starts=0,2,0,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,0,0,0 ends=2,2,4,3 steps=1,1,1,1\n"
     "c = concat \"c\" (a, b) axis=1\n"
     "d = slice \"d\" (c) starts=0,0,3,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "e = slice \"e\" (c) starts=0,0,0,0 ends=2,5,3,3 steps=1,1,1,1\n"
     "y = concat \"y\" (d, e) axis=2\n"
     "output y\n",
     "input x FP32[2,5,4,3]\n"
     "%2 FP32[2,20,3] = reshape \"c\" (x) shape=2,20,3\n"
     "y FP32[2,5,4,3] = gather \"y\" (%2, y INT64[5,4]) axis=1\n"
     "output y\n",
     NULL},
    {"gathers of neighbouring axes, the later one first", "gather_slices gather_slices",
     "input x FP32[2,5,4,3]\n"
     "a = slice \"a\" (x) starts=0,0,3,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,0,1,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "c = concat \"c\" (a, b) axis=2\n"
     "d = slice \"d\" (c) starts=0,3,0,0 ends=2,5,4,3 steps=1,1,1,1\n"
     "e = slice \"e\" (c) starts=0,1,0,0 ends=2,2,4,3 steps=1,1,1,1\n"
     "y = concat \"y\" (d, e) axis=1\n"
     "output y\n",
     "input x FP32[2,5,4,3]\n"
     "%2 FP32[2,20,3] = reshape \"c\" (x) shape=2,20,3\n"
     "y FP32[2,3,4,3] = gather \"y\" (%2, y INT64[3,4]) axis=1\n"
     "output y\n",
     NULL},
    {"slices of two tensors, along another axis, of the last axis, backwards, read: stay",
     "gather_slices",
     "input x FP32[4,4]\n"
     "input z FP32[4,4]\n"
     "a = slice \"a\" (x) starts=2,0 ends=4,4 steps=1,1\n"
     "b = slice \"b\" (z) starts=0,0 ends=2,4 steps=1,1\n"
     "c = concat \"c\" (a, b) axis=0\n"
     "d = slice \"d\" (x) starts=0,2 ends=4,4 steps=1,1\n"
     "e = slice \"e\" (x) starts=0,0 ends=4,2 steps=1,1\n"
     "f = concat \"f\" (d, e) axis=1\n"
     "g = slice \"g\" (x) starts=0,2 ends=4,4 steps=1,1\n"
     "h = slice \"h\" (x) starts=0,0 ends=4,2 steps=1,1\n"
     "i = concat \"i\" (g, h) axis=0\n"
     "j = slice \"j\" (x) starts=3,0 ends=1,4 steps=-1,1\n"
     "k = slice \"k\" (x) starts=0,0 ends=2,4 steps=1,1\n"
     "l = concat \"l\" (j, k) axis=0\n"
     "m = slice \"m\" (x) starts=2,0 ends=4,4 steps=1,1\n"
     "n = slice \"n\" (x) starts=0,0 ends=2,4 steps=1,1\n"
     "o = concat \"o\" (m, n) axis=0\n"
     "output c\noutput f\noutput i\noutput l\noutput o\noutput m\n",
     NULL, NULL},
    /* --- sink_transposes --- */
    {"a block of ConvNeXt", "merge_shuffles sink_transposes merge_shuffles erase_noops",
     "input x FP32[1,3,4,5]\n"
     "input before FP32[1,3,4,5]\n"
     "t = transpose \"t\" (before) perm=0,3,1,2\n"
     "u = transpose \"u\" (x) perm=0,3,1,2\n"
     "m = binary \"m\" (k FP32[5,1,1], u) func=mul\n"
     "y = binary \"y\" (m, t) func=add\n"
     "output y\noutput t\n",
     "input x FP32[1,3,4,5]\n"
     "input before FP32[1,3,4,5]\n"
     "t FP32[1,5,3,4] = transpose \"t\" (before) perm=0,3,1,2\n"
     "%5 FP32[1,3,4,5] = binary \"m\" (k FP32[1,1,1,5], x) func=mul\n"
     "%6 FP32[1,3,4,5] = binary \"y\" (%5, before) func=add\n"
     "y FP32[1,5,3,4] = transpose \"y\" (%6) perm=0,3,1,2\n"
     "output y\n"
     "output t\n",
     "y before"},
    {"an operand with other bytes: not", "sink_transposes",
     "input x FP32[1,3,3,5]\n"
     "input z FP32[5,3,1]\n"
     "u = transpose \"u\" (x) perm=0,3,1,2\n"
     "y = binary \"y\" (u, z) func=add\n"
     "output y\n",
     NULL, NULL},
    {"a sum whose operands would change places for ever", "*",
     "input x FP32[2,3,4,5]\n"
     "input z FP32[2,5,3,4]\n"
     "u = transpose \"u\" (x) perm=0,3,1,2\n"
     "y = binary \"y\" (u, z) func=add\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "input z FP32[2,5,3,4]\n"
     "%3 FP32[2,3,4,5] = transpose \"z\" (z) perm=0,2,3,1\n"
     "%4 FP32[2,3,4,5] = binary \"y\" (x, %3) func=add\n"
     "y FP32[2,5,3,4] = transpose \"y\" (%4) perm=0,3,1,2\n"
     "output y\n",
     "y before u"},
    {"the same of three dims, where no product is behind the transpose: not", "sink_transposes",
     "input x FP32[2,3,4]\n"
     "input z FP32[2,4,3]\n"
     "u = transpose \"u\" (x) perm=0,2,1\n"
     "y = binary \"y\" (u, z) func=add\n"
     "output y\n",
     NULL, NULL},
    {"and where a product is", "sink_transposes",
     "input a FP32[2,3,6]\n"
     "input z FP32[2,4,3]\n"
     "x = matmul \"x\" (a, w FP32[6,4])\n"
     "u = transpose \"u\" (x) perm=0,2,1\n"
     "y = binary \"y\" (u, z) func=add\n"
     "output y\n",
     "input a FP32[2,3,6]\n"
     "input z FP32[2,4,3]\n"
     "x FP32[2,3,4] = matmul \"x\" (a, w FP32[6,4])\n"
     "%5 FP32[2,3,4] = transpose \"z\" (z) perm=0,2,1\n"
     "%6 FP32[2,3,4] = binary \"y\" (x, %5) func=add\n"
     "y FP32[2,4,3] = transpose \"y\" (%6) perm=0,2,1\n"
     "output y\n",
     "y before u"},
    {"other dims move: not", "sink_transposes",
     "input x FP32[2,3,4,5]\n"
     "input z FP32[2,4,3,5]\n"
     "u = transpose \"u\" (x) perm=0,2,1,3\n"
     "y = binary \"y\" (u, z) func=add\n"
     "output y\n",
     NULL, NULL},
    /* --- reshape_matmul --- */
    {"GPT-2: a product between reshapes, and what joins it then", "*",
     "input x FP32[2,3,4]\n"
     "input r FP32[2,3,5]\n"
     "a = reshape \"a\" (x) shape=6,4\n"
     "b = matmul \"b\" (a, w FP32[4,5], k FP32[5])\n"
     "c = reshape \"c\" (b) shape=2,3,5\n"
     "d = unary \"d\" (c) func=gelu_tanh\n"
     "y = binary \"y\" (r, d) func=add\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "input r FP32[2,3,5]\n"
     "y FP32[2,3,5] = matmul \"b + c + d + y\" (x, w FP32[4,5], k FP32[5]) then gelu_tanh, "
     "add(r)\n"
     "output y\n",
     "b works on rows as c has them"},
    {"two products and their activation between reshapes", "*",
     "input x FP32[2,3,4]\n"
     "a = reshape \"a\" (x) shape=6,4\n"
     "b = matmul \"b\" (a, w FP32[4,5])\n"
     "c = unary \"c\" (b) func=relu\n"
     "d = matmul \"d\" (c, v FP32[6,5]) trans_b=1\n"
     "y = reshape \"y\" (d) shape=2,3,6\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "%4 FP32[2,3,5] = matmul \"b + c + c\" (x, w FP32[4,5]) then relu\n"
     "y FP32[2,3,6] = matmul \"d + y\" (%4, v FP32[6,5]) trans_b=1\n"
     "output y\n",
     NULL},
    {"other rows behind the product: not", "reshape_matmul",
     "input x FP32[2,3,4]\n"
     "a = reshape \"a\" (x) shape=6,4\n"
     "b = matmul \"b\" (a, w FP32[4,5])\n"
     "y = reshape \"y\" (b) shape=3,2,5\n"
     "output y\n",
     NULL, "b: x has other rows than y"},
    {"other columns, two readers, two matrices: not", "reshape_matmul",
     "input x FP32[2,3,4]\n"
     "a = reshape \"a\" (x) shape=3,8\n"
     "b = matmul \"b\" (a, w FP32[8,10])\n"
     "y = reshape \"y\" (b) shape=2,3,5\n"
     "c = reshape \"c\" (x) shape=6,4\n"
     "d = matmul \"d\" (c, u FP32[4,5])\n"
     "z = reshape \"z\" (d) shape=2,3,5\n"
     "e = reshape \"e\" (x) shape=1,6,4\n"
     "f = matmul \"f\" (e, v FP32[1,4,5])\n"
     "g = reshape \"g\" (f) shape=2,3,5\n"
     "output y\noutput z\noutput d\noutput g\n",
     NULL, NULL},
    /* --- hoist_activations --- */
    {"SegFormer: GELU behind a convolution's transpose", "hoist_activations fuse_activation",
     "input x FP32[1,4,3,5]\n"
     "a = conv \"a\" (x, w FP32[4,1,1,1]) group=4\n"
     "b = reshape \"b\" (a) shape=1,4,15\n"
     "c = transpose \"c\" (b) perm=0,2,1\n"
     "y = unary \"y\" (c) func=gelu\n"
     "output y\n",
     "input x FP32[1,4,3,5]\n"
     "%4 FP32[1,4,3,5] = conv \"a + y\" (x, w FP32[4,1,1,1]) group=4 then gelu\n"
     "b FP32[1,4,15] = reshape \"b\" (%4) shape=1,4,15\n"
     "y FP32[1,15,4] = transpose \"c + y\" (b) perm=0,2,1\n"
     "output y\n",
     "y before b"},
    {"sums behind reshapes of products, on either side", "hoist_activations fuse_sum",
     "input x FP32[6,4]\n"
     "input r FP32[2,3,5]\n"
     "b = matmul \"b\" (x, w FP32[4,5])\n"
     "c = reshape \"c\" (b) shape=2,3,5\n"
     "y = binary \"y\" (r, c) func=add\n"
     "d = matmul \"d\" (x, v FP32[4,5])\n"
     "e = reshape \"e\" (d) shape=2,3,5\n"
     "z = binary \"z\" (e, k FP32[2,3,5]) func=sub\n"
     "output y\noutput z\n",
     "input x FP32[6,4]\n"
     "input r FP32[2,3,5]\n"
     "%6 FP32[6,5] = reshape \"r\" (r) shape=6,5\n"
     "%7 FP32[6,5] = matmul \"b + y\" (x, w FP32[4,5]) then add(%6)\n"
     "y FP32[2,3,5] = reshape \"c + y\" (%7) shape=2,3,5\n"
     "%9 FP32[6,5] = matmul \"d + z\" (x, v FP32[4,5]) then sub(k FP32[6,5])\n"
     "z FP32[2,3,5] = reshape \"e + z\" (%9) shape=2,3,5\n"
     "output y\n"
     "output z\n",
     "y before c"},
    {"the product on the right of a difference: not", "hoist_activations",
     "input x FP32[6,4]\n"
     "input r FP32[2,3,5]\n"
     "b = matmul \"b\" (x, w FP32[4,5])\n"
     "c = reshape \"c\" (b) shape=2,3,5\n"
     "y = binary \"y\" (r, c) func=sub\n"
     "output y\n",
     NULL, NULL},
    {"a shuffle with two readers: not", "hoist_activations",
     "input x FP32[6,4]\n"
     "b = matmul \"b\" (x, w FP32[4,5])\n"
     "c = reshape \"c\" (b) shape=2,3,5\n"
     "y = unary \"y\" (c) func=relu\n"
     "output y\noutput c\n",
     NULL, "y stays behind c, which has 2 readers"},
    {"a sum over another shape, a function that is no step: not", "hoist_activations",
     "input x FP32[6,4]\n"
     "input r FP32[3,5]\n"
     "b = matmul \"b\" (x, w FP32[4,5])\n"
     "c = reshape \"c\" (b) shape=2,3,5\n"
     "y = binary \"y\" (c, r) func=add\n"
     "d = matmul \"d\" (x, v FP32[4,5])\n"
     "e = reshape \"e\" (d) shape=2,3,5\n"
     "z = unary \"z\" (e) func=sin\n"
     "output y\noutput z\n",
     NULL, NULL},
    {"slice + slice", "merge_shuffles",
     "input x FP32[20,7]\n"
     "a = slice \"a\" (x) starts=2,0 ends=19,7 steps=3,1\n"
     "y = slice \"b\" (a) starts=1,6 ends=5,7 steps=2,1\n"
     "output y\n",
     "input x FP32[20,7]\n"
     "y FP32[2,1] = slice \"b\" (x) starts=5,6 ends=12,7 steps=6,1\n"
     "output y\n",
     NULL},
    {"slice + slice of nothing", "merge_shuffles",
     "input x FP32[20]\n"
     "a = slice \"a\" (x) starts=2 ends=19 steps=3\n"
     "y = slice \"b\" (a) starts=6 ends=6 steps=2\n"
     "output y\n",
     "input x FP32[20]\n"
     "y FP32[0] = slice \"b\" (x) starts=0 ends=0 steps=1\n"
     "output y\n",
     NULL},
    {"slice backwards: not", "merge_shuffles",
     "input x FP32[20]\n"
     "a = slice \"a\" (x) starts=19 ends=-1 steps=-1\n"
     "y = slice \"b\" (a) starts=1 ends=5 steps=2\n"
     "output y\n",
     NULL, NULL},
    /* --- skip_expand --- */
    {"an expand before a sum", "skip_expand",
     "input x FP32[2,1,4]\n"
     "input z FP32[2,3,4]\n"
     "e = expand \"e\" (x) shape=2,3,4\n"
     "y = binary \"y\" (z, e) func=add\n"
     "output y\n",
     "input x FP32[2,1,4]\n"
     "input z FP32[2,3,4]\n"
     "y FP32[2,3,4] = binary \"y\" (z, x) func=add\n"
     "output y\n",
     "y reads past e"},
    {"two expands before a choice: one is needed", "skip_expand",
     "input c BOOL[4]\n"
     "input x FP32[1]\n"
     "d = expand \"d\" (c) shape=3,4\n"
     "e = expand \"e\" (x) shape=3,1\n"
     "y = select \"y\" (d, e, k FP32[4])\n"
     "output y\n",
     "input c BOOL[4]\n"
     "input x FP32[1]\n"
     "e FP32[3,1] = expand \"e\" (x) shape=3,1\n"
     "y FP32[3,4] = select \"y\" (c, e, k FP32[4])\n"
     "output y\n",
     "y needs the shape that e gives"},
    {"an expand that makes the shape: not", "skip_expand",
     "input x FP32[2,1,4]\n"
     "e = expand \"e\" (x) shape=2,3,4\n"
     "y = binary \"y\" (x, e) func=add\n"
     "z = unary \"z\" (e) func=tanh\n"
     "output y\noutput z\n",
     NULL, "y needs the shape that e gives"},
    /* --- transpose_matmul --- */
    {"swapped operands", "transpose_matmul",
     "input a FP32[2,4,3]\n"
     "input b FP32[2,5,4]\n"
     "s = transpose \"s\" (a) perm=0,2,1\n"
     "t = transpose \"t\" (b) perm=0,2,1\n"
     "y = matmul \"m\" (s, t)\n"
     "output y\n",
     "input a FP32[2,4,3]\n"
     "input b FP32[2,5,4]\n"
     "y FP32[2,3,5] = matmul \"m\" (a, b) trans_a=1 trans_b=1\n"
     "output y\n",
     NULL},
    {"a swapped operand of a transposing product", "transpose_matmul",
     "input a FP32[3,4]\n"
     "input b FP32[4,5]\n"
     "t = transpose \"t\" (b) perm=1,0\n"
     "y = matmul \"m\" (a, t) trans_b=1\n"
     "output y\noutput t\n",
     "input a FP32[3,4]\n"
     "input b FP32[4,5]\n"
     "t FP32[5,4] = transpose \"t\" (b) perm=1,0\n"
     "y FP32[3,5] = matmul \"m\" (a, b) trans_b=0\n"
     "output y\n"
     "output t\n",
     NULL},
    {"keys of attention", "transpose_matmul",
     "input q FP32[2,3,4,5]\n"
     "input k FP32[2,4,3,5]\n"
     "t = transpose \"keys\" (k) perm=0,2,3,1\n"
     "y = matmul \"scores\" (q, t)\n"
     "output y\n",
     "input q FP32[2,3,4,5]\n"
     "input k FP32[2,4,3,5]\n"
     "%3 FP32[2,3,4,5] = transpose \"keys\" (k) perm=0,2,1,3\n"
     "y FP32[2,3,4,4] = matmul \"scores\" (q, %3) trans_b=1\n"
     "output y\n",
     "keys moves rows for scores"},
    {"values of attention: rows already", "transpose_matmul",
     "input p FP32[2,3,4,4]\n"
     "input v FP32[2,4,3,5]\n"
     "t = transpose \"values\" (v) perm=0,2,1,3\n"
     "y = matmul \"mix\" (p, t)\n"
     "output y\n",
     NULL, NULL},
    /* --- reduce_to_pool --- */
    {"global average", "reduce_to_pool",
     "input x FP32[2,3,4,5]\n"
     "y = reduce \"gap\" (x) func=1 axes=2,3\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "y FP32[2,3,1,1] = pool \"gap\" (x) func=1 kernel=4,5\n"
     "output y\n",
     NULL},
    {"global average without dimensions", "reduce_to_pool",
     "input x FP32[2,3,4,5]\n"
     "y = reduce \"gap\" (x) func=1 axes=2,3 keepdims=0\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "%2 FP32[2,3,1,1] = pool \"gap\" (x) func=1 kernel=4,5\n"
     "y FP32[2,3] = reshape \"gap\" (%2) shape=2,3\n"
     "output y\n",
     NULL},
    {"global maximum", "reduce_to_pool",
     "input x FP32[2,3,4,5]\n"
     "y = reduce \"gmp\" (x) func=2 axes=2,3\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "y FP32[2,3,1,1] = pool \"gmp\" (x) func=0 kernel=4,5\n"
     "output y\n",
     NULL},
    {"sums, other axes, sequences: not", "reduce_to_pool",
     "input x FP32[2,3,4,5]\n"
     "input s FP32[2,3,4]\n"
     "a = reduce \"a\" (x) func=0 axes=2,3\n"
     "b = reduce \"b\" (x) func=1 axes=1,2\n"
     "c = reduce \"c\" (x) func=1 axes=3\n"
     "d = reduce \"d\" (s) func=1 axes=2\n"
     "output a\noutput b\noutput c\noutput d\n",
     NULL, NULL},
    /* --- fuse_reduce --- */
    {"L1 norm", "fuse_reduce",
     "input x FP32[2,3]\n"
     "a = unary \"abs\" (x) func=abs\n"
     "y = reduce \"sum\" (a) func=0 axes=1\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,1] = reduce \"abs + sum\" (x) func=5 axes=1\n"
     "output y\n",
     NULL},
    {"sum of squares", "fuse_reduce",
     "input x FP32[2,3]\n"
     "a = binary \"square\" (x, x) func=mul\n"
     "y = reduce \"sum\" (a) func=0 axes=1\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,1] = reduce \"square + sum\" (x) func=7 axes=1\n"
     "output y\n",
     NULL},
    {"L2 norm", "fold_scalars fuse_reduce",
     "input x FP32[2,3]\n"
     "a = binary \"square\" (x, two FP32[]=2) func=pow\n"
     "s = reduce \"sum\" (a) func=0 axes=1 keepdims=0\n"
     "y = unary \"root\" (s) func=sqrt\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2] = reduce \"square + sum + root\" (x) func=6 axes=1 keepdims=0\n"
     "output y\n",
     "fuse_reduce: square + sum"},
    {"log-sum and log-sum-exp", "fuse_reduce",
     "input x FP32[2,3]\n"
     "e = unary \"exp\" (x) func=exp\n"
     "s = reduce \"sum\" (e) func=0 axes=1\n"
     "y = unary \"log\" (s) func=log\n"
     "f = unary \"exp2\" (x) func=exp\n"
     "t = reduce \"sum2\" (f) func=0 axes=1\n"
     "z = unary \"log2\" (t) func=log\n"
     "output y\noutput z\noutput f\n",
     "input x FP32[2,3]\n"
     "y FP32[2,1] = reduce \"exp + sum + log\" (x) func=9 axes=1\n"
     "f FP32[2,3] = unary \"exp2\" (x) func=exp\n"
     "z FP32[2,1] = reduce \"sum2 + log2\" (f) func=8 axes=1\n"
     "output y\n"
     "output z\n"
     "output f\n",
     NULL},
    {"products of two, sums that others read: not", "fuse_reduce",
     "input x FP32[2,3]\n"
     "a = binary \"square\" (x, x) func=mul\n"
     "b = binary \"product\" (x, a) func=mul\n"
     "s = reduce \"sum\" (a) func=0 axes=1\n"
     "t = reduce \"sum2\" (b) func=0 axes=1\n"
     "u = unary \"exp\" (t) func=exp\n"
     "v = unary \"root\" (s) func=sqrt\n"
     "output u\noutput v\n",
     NULL, NULL},
    {"transpose + reduce", "fuse_reduce",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=0,2,3,1\n"
     "y = reduce \"r\" (t) func=2 axes=1,3 keepdims=0\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "y FP32[2,5] = reduce \"t + r\" (x) func=2 axes=1,2 keepdims=0\n"
     "output y\n",
     NULL},
    {"transpose + reduce that keeps its dimensions: a reshape is left", "*",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=0,2,3,1\n"
     "y = reduce \"r\" (t) func=0 axes=1,2\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "%2 FP32[2,3,1,1] = reduce \"r\" (x) func=0 axes=2,3 keepdims=1\n"
     "y FP32[2,1,1,3] = reshape \"t\" (%2) shape=2,1,1,3\n"
     "output y\n",
     "fuse_reduce: t + r"},
    {"transpose + reduce + transpose back: one reduce", "*",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=0,2,3,1\n"
     "r = reduce \"r\" (t) func=2 axes=1,2\n"
     "b = transpose \"b\" (r) perm=0,3,1,2\n"
     "y = unary \"u\" (b) func=abs\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "%2 FP32[2,3,1,1] = pool \"r\" (x) func=0 kernel=4,5\n"
     "y FP32[2,3,1,1] = unary \"u\" (%2) func=abs\n"
     "output y\n",
     NULL},
    {"transpose of what is reduced: nothing is left of it", "fuse_reduce",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=0,1,3,2\n"
     "y = reduce \"r\" (t) func=0 axes=2,3 keepdims=1\n"
     "output y\n",
     "input x FP32[2,3,4,5]\n"
     "y FP32[2,3,1,1] = reduce \"t + r\" (x) func=0 axes=2,3 keepdims=1\n"
     "output y\n",
     NULL},
    {"transpose + reduce that leaves another order: the smaller one is transposed", "fuse_reduce",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=3,2,1,0\n"
     "y = reduce \"r\" (t) func=2 axes=1,2 keepdims=0\n"
     "s = transpose \"s\" (x) perm=3,2,1,0\n"
     "z = reduce \"q\" (s) func=1 axes=1\n"
     "output y\noutput z\n",
     "input x FP32[2,3,4,5]\n"
     "%3 FP32[2,5] = reduce \"r\" (x) func=2 axes=1,2 keepdims=0\n"
     "y FP32[5,2] = transpose \"t\" (%3) perm=1,0\n"
     "%4 FP32[2,3,1,5] = reduce \"q\" (x) func=1 axes=2 keepdims=1\n"
     "z FP32[5,1,3,2] = transpose \"s\" (%4) perm=3,2,1,0\n"
     "output y\noutput z\n",
     NULL},
    {"transpose that another one reads: not", "fuse_reduce",
     "input x FP32[2,3,4,5]\n"
     "t = transpose \"t\" (x) perm=0,2,3,1\n"
     "y = reduce \"r\" (t) func=0 axes=1,2\n"
     "output y\noutput t\n",
     NULL, NULL},
};

static void shuffling(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shuffling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
