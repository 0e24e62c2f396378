/* SPDX-License-Identifier: Apache-2.0 */
/* Functions found by their parts, as exporters write them. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/passes/match.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/rewrite_case.h"

#define GELU   "fold_scalars fuse_gelu"
#define GATES  "fold_scalars fuse_gates"
#define NORM   "fold_scalars fuse_layer_norm"
#define GROUPS "fuse_group_norm merge_shuffles erase_noops fuse_group_norm"

static const struct rewrite_case cases[] = {
    /* --- fuse_embed --- */
    {"words, types and positions (BERT)", "fuse_embed",
     "input i INT64[2,3]\n"
     "input j INT64[2,3]\n"
     "w = gather \"w\" (words FP32[9,4], i) axis=0\n"
     "t = gather \"t\" (types FP32[2,4], j) axis=0\n"
     "a = binary \"a\" (w, t) func=add\n"
     "y = binary \"b\" (a, p FP32[1,3,4]) func=add\n"
     "output y\n",
     "input i INT64[2,3]\n"
     "input j INT64[2,3]\n"
     "y FP32[2,3,4] = embed \"w + a + b\" (words FP32[9,4], i, types FP32[2,4], j, p FP32[1,3,4])\n"
     "output y\n",
     "w + a + b: a sum of rows of tables"},
    {"positions first, of one row of ids for the batch (GPT-2)", "fuse_embed",
     "input i INT64[2,3]\n"
     "input j INT64[1,3]\n"
     "p = gather \"p\" (wpe FP32[5,4], j) axis=0\n"
     "w = gather \"w\" (wte FP32[9,4], i) axis=0\n"
     "y = binary \"y\" (p, w) func=add\n"
     "output y\n",
     "input i INT64[2,3]\n"
     "input j INT64[1,3]\n"
     "y FP32[2,3,4] = embed \"w + y\" (wte FP32[9,4], i, wpe FP32[5,4], j)\n"
     "output y\n",
     "w + y"},
    {"a sum that another one has joined, of what is computed", "fuse_embed",
     "input i INT64[2,3]\n"
     "input j INT64[2,3]\n"
     "input x FP32[3,4]\n"
     "w = gather \"w\" (words FP32[9,4], i) axis=0\n"
     "t = gather \"t\" (types FP32[2,4], j) axis=0\n"
     "e = unary \"e\" (x) func=exp\n"
     "y = binary \"y\" (e, t) func=add then add(w)\n"
     "output y\n",
     "input i INT64[2,3]\n"
     "input j INT64[2,3]\n"
     "input x FP32[3,4]\n"
     "e FP32[3,4] = unary \"e\" (x) func=exp\n"
     "y FP32[2,3,4] = embed \"t + y\" (types FP32[2,4], j, e, -, words FP32[9,4], i)\n"
     "output y\n",
     "t + y"},
    {"sums of more tables than a node has", "fuse_embed",
     "input i INT64[3]\n"
     "a = gather \"a\" (ta FP32[9,1], i) axis=0\n"
     "b = gather \"b\" (tb FP32[8,1], i) axis=0\n"
     "c = gather \"c\" (tc FP32[7,1], i) axis=0\n"
     "d = gather \"d\" (td FP32[6,1], i) axis=0\n"
     "e = gather \"e\" (te FP32[5,1], i) axis=0\n"
     "s = binary \"s\" (a, b) func=add\n"
     "t = binary \"t\" (s, c) func=add\n"
     "u = binary \"u\" (t, d) func=add\n"
     "y = binary \"y\" (e, u) func=add\n"
     "output y\n",
     "input i INT64[3]\n"
     "t FP32[3,1] = embed \"a + s + t\" (ta FP32[9,1], i, tb FP32[8,1], i, tc FP32[7,1], i)\n"
     "y FP32[3,1] = embed \"d + u + y\" (td FP32[6,1], i, t, -, te FP32[5,1], i)\n"
     "output y\n",
     NULL},
    {"rows that others read, of what is computed, along columns, made larger; differences; a lone "
     "gather; what a product can add: stay",
     "fuse_embed",
     "input i INT64[2,3]\n"
     "input x FP32[9,4]\n"
     "input z FP32[2,3,1]\n"
     "input u FP32[2,2,3,4]\n"
     "input v FP32[2,3,5]\n"
     "a = gather \"a\" (ta FP32[9,4], i) axis=0\n"
     "b = binary \"b\" (a, p FP32[3,4]) func=add\n"
     "c = binary \"c\" (a, q FP32[3,4]) func=mul\n"
     "d = gather \"d\" (x, i) axis=0\n"
     "e = binary \"e\" (d, p) func=add\n"
     "f = gather \"f\" (tf FP32[2,9], i) axis=1\n"
     "g = binary \"g\" (f, r FP32[2,2,3]) func=add\n"
     "h = gather \"h\" (ta, i) axis=0\n"
     "k = binary \"k\" (h, p) func=sub\n"
     "l = gather \"l\" (ta, i) axis=0\n"
     "m = binary \"m\" (l, z) func=add\n"
     "n = gather \"n\" (ta, i) axis=0\n"
     "o = binary \"o\" (n, u) func=add\n"
     "s = gather \"s\" (ta, i) axis=0\n"
     "t = matmul \"t\" (v, w FP32[5,4])\n"
     "y = binary \"y\" (s, t) func=add\n"
     "output b\noutput c\noutput e\noutput g\noutput k\noutput m\noutput o\noutput y\n",
     NULL, NULL},
    /* --- fuse_gelu --- */
    {"gelu: x * (erf(x / 1.414) + 1) * 0.5", GELU,
     "input x FP32[2,30]\n"
     "a = binary \"Div\" (x, r FP32[]=1.41421356) func=div\n"
     "b = unary \"Erf\" (a) func=erf\n"
     "c = binary \"Add\" (b, one FP32[]=1) func=add\n"
     "d = binary \"Mul\" (x, c) func=mul\n"
     "y = binary \"Half\" (d, half FP32[]=0.5) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Div + Erf + Add + Mul + Half\" (x) func=gelu\n"
     "output y\n",
     "is gelu"},
    {"gelu: (x * 0.5) * (1 + erf(x * 0.7071))", GELU,
     "input x FP32[2,30]\n"
     "h = binary \"Half\" (half FP32[]=0.5, x) func=mul\n"
     "a = binary \"Mul\" (x, r FP32[]=0.70710678) func=mul\n"
     "b = unary \"Erf\" (a) func=erf\n"
     "c = binary \"Add\" (one FP32[]=1, b) func=add\n"
     "y = binary \"Mul2\" (h, c) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Half + Mul + Erf + Add + Mul2\" (x) func=gelu\n"
     "output y\n",
     NULL},
    {"gelu: x * ((1 + erf(x / 1.414)) * 0.5)", GELU,
     "input x FP32[2,30]\n"
     "a = binary \"Div\" (x, r FP32[]=1.41421356) func=div\n"
     "b = unary \"Erf\" (a) func=erf\n"
     "c = binary \"Add\" (b, one FP32[]=1) func=add\n"
     "d = binary \"Half\" (c, half FP32[]=0.5) func=mul\n"
     "y = binary \"Mul\" (d, x) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Div + Erf + Add + Half + Mul\" (x) func=gelu\n"
     "output y\n",
     NULL},
    {"gelu of a scaled value", GELU,
     "input z FP32[2,30]\n"
     "x = binary \"Scale\" (z, s FP32[]=3) func=mul\n"
     "a = binary \"Div\" (x, r FP32[]=1.41421356) func=div\n"
     "b = unary \"Erf\" (a) func=erf\n"
     "c = binary \"Add\" (b, one FP32[]=1) func=add\n"
     "d = binary \"Mul\" (x, c) func=mul\n"
     "y = binary \"Half\" (d, half FP32[]=0.5) func=mul\n"
     "output y\n",
     "input z FP32[2,30]\n"
     "x FP32[2,30] = unary \"Scale\" (z) func=linear alpha=3 beta=0\n"
     "y FP32[2,30] = unary \"Div + Erf + Add + Mul + Half\" (x) func=gelu\n"
     "output y\n",
     NULL},
    {"gelu: another factor, another value, another root: not", "fuse_gelu",
     "input x FP32[2,30]\n"
     "input z FP32[2,30]\n"
     "a = unary \"a\" (x) func=linear alpha=0.70710678 beta=0\n"
     "b = unary \"b\" (a) func=erf\n"
     "c = unary \"c\" (b) func=linear alpha=1 beta=1\n"
     "d = binary \"d\" (x, c) func=mul\n"
     "e = unary \"e\" (d) func=linear alpha=0.75 beta=0\n"
     "f = binary \"f\" (z, c) func=mul\n"
     "g = unary \"g\" (f) func=linear alpha=0.5 beta=0\n"
     "h = unary \"h\" (x) func=linear alpha=0.6 beta=0\n"
     "i = unary \"i\" (h) func=erf\n"
     "j = unary \"j\" (i) func=linear alpha=0.5 beta=0.5\n"
     "k = binary \"k\" (x, j) func=mul\n"
     "output e\noutput g\noutput k\n",
     NULL, "e is 1.5 GELU"},
    {"gelu by tanh of a cube with more dimensions: not", "fuse_gelu",
     "input x FP32[2,30]\n"
     "p = binary \"Pow\" (x, three FP32[1,1,1]=3) func=pow\n"
     "q = unary \"MulP\" (p) func=linear alpha=0.044715 beta=0\n"
     "s = binary \"AddX\" (x, q) func=add\n"
     "t = unary \"MulS\" (s) func=linear alpha=0.7978845608 beta=0\n"
     "u = unary \"Tanh\" (t) func=tanh\n"
     "v = unary \"Add1\" (u) func=linear alpha=0.5 beta=0.5\n"
     "y = binary \"Mul\" (x, v) func=mul\n"
     "output y\n",
     NULL, "Mul broadcasts its input"},
    {"gelu by tanh: 0.5 x (1 + tanh(0.798 (x + 0.0447 x^3)))", GELU,
     "input x FP32[2,30]\n"
     "p = binary \"Pow\" (x, three FP32[]=3) func=pow\n"
     "q = binary \"MulP\" (p, k FP32[]=0.044715) func=mul\n"
     "s = binary \"AddX\" (x, q) func=add\n"
     "t = binary \"MulS\" (s, r FP32[]=0.7978845608) func=mul\n"
     "u = unary \"Tanh\" (t) func=tanh\n"
     "v = binary \"Add1\" (u, one FP32[]=1) func=add\n"
     "h = binary \"Half\" (x, half FP32[]=0.5) func=mul\n"
     "y = binary \"Mul\" (h, v) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Pow + MulP + AddX + MulS + Tanh + Add1 + Half + Mul\" (x) "
     "func=gelu_tanh\n"
     "output y\n",
     "is gelu_tanh"},
    {"gelu by tanh: x * 0.798 * (1 + 0.0447 x x)", GELU,
     "input x FP32[2,30]\n"
     "m = binary \"MulX\" (x, r FP32[]=0.7978845608) func=mul\n"
     "a = binary \"MulK\" (x, k FP32[]=0.044715) func=mul\n"
     "b = binary \"Square\" (x, x) func=mul\n"
     "c = binary \"MulC\" (b, k FP32[]=0.044715) func=mul\n"
     "d = binary \"Add1\" (c, one FP32[]=1) func=add\n"
     "e = binary \"MulI\" (m, d) func=mul\n"
     "f = unary \"Tanh\" (e) func=tanh\n"
     "g = binary \"Add2\" (one FP32[]=1, f) func=add\n"
     "h = binary \"Half\" (x, half FP32[]=0.5) func=mul\n"
     "y = binary \"Mul\" (h, g) func=mul\n"
     "output y\noutput a\n",
     "input x FP32[2,30]\n"
     "a FP32[2,30] = unary \"MulK\" (x) func=linear alpha=0.0447149985 beta=0\n"
     "y FP32[2,30] = unary \"MulX + Square + MulC + Add1 + MulI + Tanh + Add2 + Half + Mul\" (x) "
     "func=gelu_tanh\n"
     "output y\n"
     "output a\n",
     NULL},
    {"gelu by tanh: the cube as products", GELU,
     "input x FP32[2,30]\n"
     "b = binary \"Square\" (x, x) func=mul\n"
     "p = binary \"Cube\" (b, x) func=mul\n"
     "q = binary \"MulP\" (k FP32[]=0.044715, p) func=mul\n"
     "s = binary \"AddX\" (q, x) func=add\n"
     "t = binary \"MulS\" (s, r FP32[]=0.7978845608) func=mul\n"
     "u = unary \"Tanh\" (t) func=tanh\n"
     "v = binary \"Add1\" (u, one FP32[]=1) func=add\n"
     "w = binary \"Mul\" (x, v) func=mul\n"
     "y = binary \"Half\" (w, half FP32[]=0.5) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Square + Cube + MulP + AddX + MulS + Tanh + Add1 + Mul + Half\" (x) "
     "func=gelu_tanh\n"
     "output y\n",
     NULL},
    {"gelu by tanh with another cube: not", "fuse_gelu",
     "input x FP32[2,30]\n"
     "input z FP32[2,30]\n"
     "b = binary \"Square\" (x, z) func=mul\n"
     "p = binary \"Cube\" (b, x) func=mul\n"
     "q = unary \"MulP\" (p) func=linear alpha=0.044715 beta=0\n"
     "s = binary \"AddX\" (q, x) func=add\n"
     "t = unary \"MulS\" (s) func=linear alpha=0.7978845608 beta=0\n"
     "u = unary \"Tanh\" (t) func=tanh\n"
     "v = unary \"Add1\" (u) func=linear alpha=0.5 beta=0.5\n"
     "y = binary \"Mul\" (x, v) func=mul\n"
     "output y\n",
     NULL, NULL},
    /* --- fuse_gates --- */
    {"swish", GATES,
     "input x FP32[2,30]\n"
     "s = unary \"Sigmoid\" (x) func=sigmoid\n"
     "y = binary \"Mul\" (x, s) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Sigmoid + Mul\" (x) func=swish alpha=1\n"
     "output y\n",
     "is swish"},
    {"swish with a slope (quick gelu)", GATES,
     "input x FP32[2,30]\n"
     "a = binary \"Scale\" (x, k FP32[]=1.702) func=mul\n"
     "s = unary \"Sigmoid\" (a) func=sigmoid\n"
     "y = binary \"Mul\" (s, x) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Scale + Sigmoid + Mul\" (x) func=swish alpha=1.70200002\n"
     "output y\n",
     NULL},
    {"swish of a scaled value", GATES,
     "input z FP32[2,30]\n"
     "x = binary \"Scale\" (z, k FP32[]=3) func=mul\n"
     "s = unary \"Sigmoid\" (x) func=sigmoid\n"
     "y = binary \"Mul\" (s, x) func=mul\n"
     "output y\n",
     "input z FP32[2,30]\n"
     "x FP32[2,30] = unary \"Scale\" (z) func=linear alpha=3 beta=0\n"
     "y FP32[2,30] = unary \"Sigmoid + Mul\" (x) func=swish alpha=1\n"
     "output y\n",
     NULL},
    {"a gate of another value: not", GATES,
     "input x FP32[2,30]\n"
     "input z FP32[2,30]\n"
     "s = unary \"Sigmoid\" (z) func=sigmoid\n"
     "y = binary \"Mul\" (x, s) func=mul\n"
     "output y\n",
     NULL, NULL},
    {"hard swish: x * clip(x + 3, 0, 6) / 6", GATES,
     "input x FP32[2,30]\n"
     "a = binary \"Add\" (x, k FP32[]=3) func=add\n"
     "c = unary \"Clip\" (a) func=clip alpha=0 beta=6\n"
     "m = binary \"Mul\" (x, c) func=mul\n"
     "y = binary \"Div\" (m, six FP32[]=6) func=div\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Add + Clip + Mul + Div\" (x) func=hard_swish\n"
     "output y\n",
     "is hard_swish"},
    {"hard swish: x * (clip(x + 3, 0, 6) / 6)", GATES,
     "input x FP32[2,30]\n"
     "a = binary \"Add\" (x, k FP32[]=3) func=add\n"
     "c = unary \"Clip\" (a) func=clip alpha=0 beta=6\n"
     "d = binary \"Div\" (c, six FP32[]=6) func=div\n"
     "y = binary \"Mul\" (x, d) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Add + Clip + Div + Mul\" (x) func=hard_swish\n"
     "output y\n",
     NULL},
    {"hard swish: x * hard_sigmoid(x)", GATES,
     "input x FP32[2,30]\n"
     "h = unary \"HardSigmoid\" (x) func=hard_sigmoid alpha=0.16666667 beta=0.5\n"
     "y = binary \"Mul\" (x, h) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"HardSigmoid + Mul\" (x) func=hard_swish\n"
     "output y\n",
     NULL},
    {"x * another hard sigmoid: not", GATES,
     "input x FP32[2,30]\n"
     "h = unary \"HardSigmoid\" (x) func=hard_sigmoid alpha=0.2 beta=0.5\n"
     "y = binary \"Mul\" (x, h) func=mul\n"
     "output y\n",
     NULL, NULL},
    {"hard sigmoid: clip(0.2 x + 0.5, 0, 1)", GATES,
     "input x FP32[2,30]\n"
     "a = binary \"Mul\" (x, k FP32[]=0.2) func=mul\n"
     "b = binary \"Add\" (a, h FP32[]=0.5) func=add\n"
     "y = unary \"Clip\" (b) func=clip alpha=0 beta=1\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Mul + Add + Clip\" (x) func=hard_sigmoid alpha=0.200000003 beta=0.5\n"
     "output y\n",
     "is hard_sigmoid"},
    {"clips that are none: not", "fuse_gates",
     "input x FP32[2,30]\n"
     "a = unary \"a\" (x) func=linear alpha=1 beta=3\n"
     "b = unary \"b\" (a) func=clip alpha=0 beta=6\n"
     "c = unary \"c\" (b) func=linear alpha=0.2 beta=0\n"
     "d = unary \"d\" (x) func=linear alpha=1 beta=3\n"
     "e = unary \"e\" (d) func=clip alpha=-1 beta=1\n"
     "output c\noutput e\n",
     NULL, NULL},
    {"mish", GATES,
     "input x FP32[2,30]\n"
     "s = unary \"Softplus\" (x) func=softplus\n"
     "t = unary \"Tanh\" (s) func=tanh\n"
     "y = binary \"Mul\" (x, t) func=mul\n"
     "output y\n",
     "input x FP32[2,30]\n"
     "y FP32[2,30] = unary \"Softplus + Tanh + Mul\" (x) func=mish\n"
     "output y\n",
     "is mish"},
    /* --- fuse_layer_norm --- */
    {"layer norm as PyTorch exports it", NORM,
     "input x FP32[2,3,8]\n"
     "m = reduce \"Mean\" (x) func=1 axes=2\n"
     "d = binary \"Sub\" (x, m) func=sub\n"
     "p = binary \"Pow\" (d, two FP32[]=2) func=pow\n"
     "v = reduce \"Mean2\" (p) func=1 axes=2\n"
     "e = binary \"Add\" (v, eps FP32[]=1e-5) func=add\n"
     "s = unary \"Sqrt\" (e) func=sqrt\n"
     "q = binary \"Div\" (d, s) func=div\n"
     "a = binary \"Mul\" (q, scale FP32[8]) func=mul\n"
     "y = binary \"Add2\" (bias FP32[8], a) func=add\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "y FP32[2,3,8] = layer_norm \"Mean + Sub + Pow + Mean2 + Add + Sqrt + Div + Mul + Add2\" (x, "
     "scale FP32[8], bias FP32[8]) axis=2 epsilon=9.99999975e-06\n"
     "output y\n",
     "is layer_norm"},
    {"layer norm: two differences, reciprocal, two dimensions, leading ones", NORM,
     "input x FP32[2,3,8]\n"
     "m = reduce \"Mean\" (x) func=1 axes=1,2\n"
     "d = binary \"Sub\" (x, m) func=sub\n"
     "d2 = binary \"Sub2\" (x, m) func=sub\n"
     "p = binary \"Square\" (d2, d2) func=mul\n"
     "v = reduce \"Mean2\" (p) func=1 axes=1,2\n"
     "e = binary \"Add\" (v, eps FP32[]=0.01) func=add\n"
     "s = unary \"Sqrt\" (e) func=sqrt\n"
     "r = unary \"Reciprocal\" (s) func=reciprocal\n"
     "q = binary \"Mul0\" (r, d) func=mul\n"
     "y = binary \"Mul\" (q, scale FP32[1,1,8]) func=mul\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "y FP32[2,3,8] = layer_norm \"Mean + Sub + Sub2 + Square + Mean2 + Add + Sqrt + Reciprocal + "
     "Mul0 + Mul\" (x, scale FP32[1,8]) axis=1 epsilon=0.00999999978\n"
     "output y\n",
     NULL},
    {"a scale for each channel is none of a norm over the places", NORM,
     "input x FP32[2,3,8]\n"
     "m = reduce \"Mean\" (x) func=1 axes=2\n"
     "d = binary \"Sub\" (x, m) func=sub\n"
     "p = binary \"Square\" (d, d) func=mul\n"
     "v = reduce \"Mean2\" (p) func=1 axes=2\n"
     "e = binary \"Add\" (v, eps FP32[]=1e-5) func=add\n"
     "s = unary \"Sqrt\" (e) func=sqrt\n"
     "q = binary \"Div\" (d, s) func=div\n"
     "y = binary \"Mul\" (q, scale FP32[3,1]) func=mul\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "q FP32[2,3,8] = layer_norm \"Mean + Sub + Square + Mean2 + Add + Sqrt + Div\" (x, %4 "
     "FP32[8]) axis=2 epsilon=9.99999975e-06\n"
     "y FP32[2,3,8] = binary \"Mul\" (q, scale FP32[3,1]) func=mul\n"
     "output y\n",
     "the operand is no scale"},
    {"a scale or a bias with more dimensions than the norm: not", "fuse_layer_norm",
     "input x FP32[2,8]\n"
     "n = layer_norm \"LN\" (x, one FP32[8]=1) axis=1\n"
     "a = binary \"Mul\" (n, s FP32[1,1,8]) func=mul\n"
     "n2 = layer_norm \"LN2\" (x, one) axis=1\n"
     "b = binary \"Add\" (t FP32[1,1,8], n2) func=add\n"
     "output a\noutput b\n",
     NULL, "Add: the operand is no bias of LN2"},
    {"a root by a power of more dimensions makes no norm", "fuse_layer_norm",
     "input x FP32[2,8]\n"
     "p = binary \"Sq\" (x, x) func=mul\n"
     "v = reduce \"Mean\" (p) func=1 axes=1\n"
     "e = unary \"Add\" (v) func=linear alpha=1 beta=1e-5\n"
     "s = binary \"Root\" (e, half FP32[1,1,1]=0.5) func=pow\n"
     "q = binary \"Div\" (x, s) func=div\n"
     "output q\n",
     NULL, "Div broadcasts its input"},
    {"a second scale and a second bias: not", "fuse_layer_norm",
     "input x FP32[2,3,8]\n"
     "n = layer_norm \"LN\" (x, scale FP32[8]) axis=2\n"
     "a = binary \"Mul\" (n, s2 FP32[8]) func=mul\n"
     "n2 = layer_norm \"LN2\" (x, one FP32[8]=1, bias FP32[8]) axis=2\n"
     "b = binary \"Add\" (n2, b2 FP32[8]) func=add\n"
     "c = binary \"Mul2\" (b, s2 FP32[8]) func=mul\n"
     "output a\noutput c\n",
     NULL, NULL},
    {"a norm over dimensions that are not last: not", "fuse_layer_norm",
     "input x FP32[2,3,8]\n"
     "m = reduce \"Mean\" (x) func=1 axes=1\n"
     "d = binary \"Sub\" (x, m) func=sub\n"
     "p = binary \"Square\" (d, d) func=mul\n"
     "v = reduce \"Mean2\" (p) func=1 axes=1\n"
     "e = unary \"Add\" (v) func=linear alpha=1 beta=1e-5\n"
     "s = unary \"Sqrt\" (e) func=sqrt\n"
     "q = binary \"Div\" (d, s) func=div\n"
     "output q\n",
     NULL, NULL},
    /* --- RMS norm --- */
    {"rms norm: of what is centred over other dimensions", "fuse_layer_norm",
     "input x FP32[2,3,8]\n"
     "m2 = reduce \"Mean3\" (x) func=1 axes=2\n"
     "d2 = binary \"Sub2\" (x, m2) func=sub\n"
     "p2 = binary \"Square2\" (d2, d2) func=mul\n"
     "v2 = reduce \"Mean4\" (p2) func=1 axes=1,2\n"
     "e2 = unary \"Add3\" (v2) func=linear alpha=1 beta=1e-5\n"
     "s2 = unary \"Sqrt2\" (e2) func=sqrt\n"
     "q2 = binary \"Div2\" (d2, s2) func=div\n"
     "output q2\n",
     "input x FP32[2,3,8]\n"
     "m2 FP32[2,3,1] = reduce \"Mean3\" (x) func=1 axes=2\n"
     "d2 FP32[2,3,8] = binary \"Sub2\" (x, m2) func=sub\n"
     "q2 FP32[2,3,8] = layer_norm \"Square2 + Mean4 + Add3 + Sqrt2 + Div2\" (d2, %4 FP32[3,8]) "
     "axis=1 epsilon=9.99999975e-06 rms=1\n"
     "output q2\n",
     NULL},
    {"rms norm: Llama of TorchScript, 1 / sqrt", NORM,
     "input x FP32[2,3,8]\n"
     "p = binary \"Pow\" (x, two FP32[]=2) func=pow\n"
     "m = reduce \"Mean\" (p) func=1 axes=2\n"
     "a = binary \"Add\" (m, e FP32[]=1e-6) func=add\n"
     "r = unary \"Sqrt\" (a) func=sqrt\n"
     "d = binary \"Div\" (one FP32[]=1, r) func=div\n"
     "z = binary \"Mul\" (x, d) func=mul\n"
     "y = binary \"Gamma\" (g FP32[8], z) func=mul\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "y FP32[2,3,8] = layer_norm \"Pow + Mean + Add + Sqrt + Div + Mul + Gamma\" (x, g FP32[8]) "
     "axis=2 epsilon=9.99999997e-07 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: torch's dynamo, Reciprocal", NORM,
     "input x FP32[2,3,8]\n"
     "p = binary \"Pow\" (x, two FP32[]=2) func=pow\n"
     "m = reduce \"Mean\" (p) func=1 axes=2\n"
     "a = binary \"Add\" (e FP32[1]=1e-6, m) func=add\n"
     "r = unary \"Sqrt\" (a) func=sqrt\n"
     "d = unary \"Rec\" (r) func=reciprocal\n"
     "y = binary \"Mul\" (d, x) func=mul\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "y FP32[2,3,8] = layer_norm \"Pow + Mean + Add + Sqrt + Rec + Mul\" (x, %2 FP32[8]) axis=2 "
     "epsilon=9.99999997e-07 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: a quotient, two dimensions, a bias", NORM,
     "input x FP32[2,3,8]\n"
     "p = binary \"Sq\" (x, x) func=mul\n"
     "m = reduce \"Mean\" (p) func=1 axes=1,2\n"
     "a = binary \"Add\" (m, e FP32[]=1e-5) func=add\n"
     "r = unary \"Sqrt\" (a) func=sqrt\n"
     "z = binary \"Div\" (x, r) func=div\n"
     "s = binary \"Gamma\" (z, g FP32[3,8]) func=mul\n"
     "y = binary \"Beta\" (s, b FP32[8]) func=add\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "y FP32[2,3,8] = layer_norm \"Sq + Mean + Add + Sqrt + Div + Gamma + Beta\" (x, g "
     "FP32[3,8], b FP32[8]) axis=1 epsilon=9.99999975e-06 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: a power of -1/2", NORM,
     "input x FP32[2,8]\n"
     "p = binary \"Sq\" (x, x) func=mul\n"
     "m = reduce \"Mean\" (p) func=1 axes=1\n"
     "a = binary \"Add\" (m, e FP32[]=1e-5) func=add\n"
     "r = binary \"Rsqrt\" (a, h FP32[]=-0.5) func=pow\n"
     "y = binary \"Mul\" (x, r) func=mul\n"
     "output y\n",
     "input x FP32[2,8]\n"
     "y FP32[2,8] = layer_norm \"Sq + Mean + Add + Rsqrt + Mul\" (x, %2 FP32[8]) axis=1 "
     "epsilon=9.99999975e-06 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: a quotient by a power of 1/2", NORM,
     "input x FP32[2,8]\n"
     "p = binary \"Sq\" (x, x) func=mul\n"
     "m = reduce \"Mean\" (p) func=1 axes=1\n"
     "a = binary \"Add\" (m, e FP32[]=1e-5) func=add\n"
     "r = binary \"Root\" (a, h FP32[]=0.5) func=pow\n"
     "y = binary \"Div\" (x, r) func=div\n"
     "output y\n",
     "input x FP32[2,8]\n"
     "y FP32[2,8] = layer_norm \"Sq + Mean + Add + Root + Div\" (x, %2 FP32[8]) axis=1 "
     "epsilon=9.99999975e-06 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: 16 bits, in fp32 between casts", NORM,
     "input h FP16[2,8]\n"
     "x = cast \"Up\" (h) to=12\n"
     "p = binary \"Sq\" (x, x) func=mul\n"
     "m = reduce \"Mean\" (p) func=1 axes=1\n"
     "a = binary \"Add\" (m, e FP32[]=1e-5) func=add\n"
     "r = unary \"Sqrt\" (a) func=sqrt\n"
     "z = binary \"Div\" (x, r) func=div\n"
     "y = cast \"Down\" (z) to=10\n"
     "output y\n",
     "input h FP16[2,8]\n"
     "y FP16[2,8] = layer_norm \"Up + Sq + Mean + Add + Sqrt + Div + Down\" (h, %2 FP16[8]) "
     "axis=1 epsilon=9.99999975e-06 rms=1\n"
     "output y\n",
     NULL},
    {"rms norm: other squares, another dimension, a sum: not", "fuse_layer_norm",
     "input x FP32[2,8,8]\n"
     "input z FP32[2,8,8]\n"
     "p = binary \"p\" (x, x) func=mul\n"
     "m = reduce \"m\" (p) func=1 axes=2\n"
     "a = unary \"a\" (m) func=linear alpha=1 beta=0.00001\n"
     "r = unary \"r\" (a) func=sqrt\n"
     "y1 = binary \"y1\" (z, r) func=div\n"
     "y2 = binary \"y2\" (r, x) func=div\n"
     "m2 = reduce \"m2\" (p) func=1 axes=1\n"
     "a2 = unary \"a2\" (m2) func=linear alpha=1 beta=0.00001\n"
     "r2 = unary \"r2\" (a2) func=sqrt\n"
     "y3 = binary \"y3\" (x, r2) func=div\n"
     "m3 = reduce \"m3\" (p) func=0 axes=2\n"
     "a3 = unary \"a3\" (m3) func=linear alpha=1 beta=0.00001\n"
     "r3 = unary \"r3\" (a3) func=sqrt\n"
     "y4 = binary \"y4\" (x, r3) func=div\n"
     "output y1\noutput y2\noutput y3\noutput y4\n",
     NULL, "y1: the mean is of squares of another tensor"},
    /* --- fuse_group_norm --- */
    {"group norm as PyTorch exports it", GROUPS,
     "input x FP32[2,4,3,5]\n"
     "g = reshape \"Reshape\" (x) shape=2,2,30\n"
     "n = instance_norm \"Norm\" (g, one FP32[2]=2, zero FP32[2]=0.5)\n"
     "r = reshape \"Back\" (n) shape=2,4,3,5\n"
     "a = binary \"Mul\" (r, scale FP32[4,1,1]=3) func=mul\n"
     "y = binary \"Add\" (bias FP32[1,4,1,1]=1, a) func=add\n"
     "output y\n",
     "input x FP32[2,4,3,5]\n"
     "y FP32[2,4,3,5] = instance_norm \"Norm + Mul + Add\" (x, %2 FP32[4], %3 FP32[4]) "
     "epsilon=9.99999975e-06 group=2\n"
     "output y\n",
     "is group_norm"},
    {"a reshape behind the norm stays", "fuse_group_norm merge_shuffles erase_noops",
     "input x FP32[2,4,3,5]\n"
     "g = reshape \"Reshape\" (x) shape=2,4,15\n"
     "y = instance_norm \"Norm\" (g, scale FP32[4], bias FP32[4])\n"
     "output y\n",
     "input x FP32[2,4,3,5]\n"
     "%4 FP32[2,4,3,5] = instance_norm \"Norm\" (x, scale FP32[4], bias FP32[4]) "
     "epsilon=9.99999975e-06 group=4\n"
     "y FP32[2,4,15] = reshape \"Norm\" (%4) shape=2,4,15\n"
     "output y\n",
     NULL},
    {"groups that are not of whole channels, a scale of places: not", "fuse_group_norm",
     "input x FP32[2,4,3,5]\n"
     "g = reshape \"Reshape\" (x) shape=2,6,10\n"
     "y = instance_norm \"Norm\" (g, one FP32[6], zero FP32[6])\n"
     "n = instance_norm \"Norm2\" (x, one2 FP32[4], zero2 FP32[4])\n"
     "a = binary \"Mul\" (n, scale FP32[5]) func=mul\n"
     "output y\noutput a\n",
     NULL, "its channels are no groups"},
    /* --- all together --- */
    {"a block of ResNet", "*",
     "input x FP32[2,4,8,8]\n"
     "c1 = conv \"conv1\" (x, w1 FP32[4,4,3,3]) pads=1,1,1,1\n"
     "n1 = batch_norm \"bn1\" (c1, s1 FP32[4], t1 FP32[4], m1 FP32[4], v1 FP32[4]=+)\n"
     "r1 = unary \"relu1\" (n1) func=relu\n"
     "c2 = conv \"conv2\" (r1, w2 FP32[4,4,3,3]) pads=1,1,1,1\n"
     "n2 = batch_norm \"bn2\" (c2, s2 FP32[4], t2 FP32[4], m2 FP32[4], v2 FP32[4]=+)\n"
     "a = binary \"add\" (n2, x) func=add\n"
     "y = unary \"relu2\" (a) func=relu\n"
     "output y\n",
     "input x FP32[2,4,8,8]\n"
     "r1 FP32[2,4,8,8] = conv \"conv1 + bn1 + relu1\" (x, w1 FP32[4,4,3,3], %4 FP32[4]) "
     "pads=1,1,1,1 then relu\n"
     "y FP32[2,4,8,8] = conv \"conv2 + bn2 + add + relu2\" (r1, w2 FP32[4,4,3,3], %6 FP32[4]) "
     "pads=1,1,1,1 then add(x), relu\n"
     "output y\n",
     NULL},
    {"SwiGLU: the gate is an epilogue", "*",
     "input x FP32[2,3,4]\n"
     "a = matmul \"a\" (x, v FP32[4,6])\n"
     "b = unary \"b\" (a) func=sigmoid\n"
     "c = binary \"c\" (a, b) func=mul\n"
     "d = matmul \"d\" (x, w FP32[4,6])\n"
     "e = binary \"e\" (c, d) func=mul\n"
     "y = matmul \"y\" (e, u FP32[6,4])\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "c FP32[2,3,6] = matmul \"a + b + c\" (x, v FP32[4,6]) then swish(1,0,0)\n"
     "e FP32[2,3,6] = matmul \"d + e\" (x, w FP32[4,6]) then mul(c)\n"
     "y FP32[2,3,4] = matmul \"y\" (e, u FP32[6,4])\n"
     "output y\n",
     NULL},
    {"squeeze and excite: activations join, the gate stays", "*",
     "input x FP32[2,8,5,5]\n"
     "p = reduce \"p\" (x) func=1 axes=2,3\n"
     "a = conv \"a\" (p, v FP32[4,8,1,1], i FP32[4])\n"
     "b = unary \"b\" (a) func=relu\n"
     "c = conv \"c\" (b, w FP32[8,4,1,1], j FP32[8])\n"
     "d = binary \"d\" (c, three FP32[]=3) func=add\n"
     "e = unary \"e\" (d) func=clip alpha=0 beta=6\n"
     "f = binary \"f\" (e, six FP32[]=6) func=div\n"
     "g = binary \"g\" (f, x) func=mul\n"
     "y = conv \"y\" (g, u FP32[4,8,1,1])\n"
     "output y\n",
     "input x FP32[2,8,5,5]\n"
     "p FP32[2,8,1,1] = pool \"p\" (x) func=1 kernel=5,5\n"
     "b FP32[2,4,1,1] = conv \"a + b\" (p, v FP32[4,8,1,1], i FP32[4]) then relu\n"
     "f FP32[2,8,1,1] = conv \"c + d + e + f\" (b, w FP32[8,4,1,1], j FP32[8]) then "
     "hard_sigmoid(0.166666672,0.5,0)\n"
     "g FP32[2,8,5,5] = binary \"g\" (f, x) func=mul\n"
     "y FP32[2,4,5,5] = conv \"y\" (g, u FP32[4,8,1,1])\n"
     "output y\n",
     "fuse_activation: c + d + e + f"},
    {"a feed-forward layer of BERT", "*",
     "input x FP32[2,3,8]\n"
     "m1 = matmul \"fc1\" (x, w1 FP32[8,16])\n"
     "b1 = binary \"bias1\" (k1 FP32[16], m1) func=add\n"
     "a = binary \"Div\" (b1, r FP32[]=1.41421356) func=div\n"
     "b = unary \"Erf\" (a) func=erf\n"
     "c = binary \"Add\" (b, one FP32[]=1) func=add\n"
     "d = binary \"Mul\" (b1, c) func=mul\n"
     "g = binary \"Half\" (d, half FP32[]=0.5) func=mul\n"
     "m2 = matmul \"fc2\" (g, w2 FP32[16,8])\n"
     "b2 = binary \"bias2\" (k2 FP32[8], m2) func=add\n"
     "y = binary \"sum\" (b2, x) func=add\n"
     "output y\n",
     "input x FP32[2,3,8]\n"
     "g FP32[2,3,16] = matmul \"fc1 + bias1 + Div + Erf + Add + Mul + Half\" (x, w1 FP32[8,16], %5 "
     "FP32[16]) then gelu\n"
     "y FP32[2,3,8] = matmul \"fc2 + bias2 + sum\" (g, w2 FP32[16,8], %6 FP32[8]) then add(x)\n"
     "output y\n",
     NULL},
};

static void patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

/* As FP16 and BF16 hold 1/sqrt 2 and sqrt 2, by which some exporters divide. */
static void test_a_constant_may_be_rounded_to_16_bits(void **state)
{
    (void)state;
    const double root = 1.4142135623730951;
    static const struct {
        float value;
        bool near;
    } rows[] = {
        {0.70710678F, true},    {0.7071F, true},
        {0.70703125F, true},    {0.70654297F, false},
        {1 / 1.4140625F, true}, {0.70703125F + 0.001F, false},
        {0.7F, false},          {0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(match_near(rows[i].value, 1 / root), rows[i].near);
}

/* Takes sums of two tables alone, and counts what it was asked. */
static bool takes_two(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    (void)graph;
    assert_int_equal(node->op, IR_OP_EMBED);
    ++*(int *)user;
    return ir_embed_count(node) == 2;
}

static void test_a_device_is_asked_for_sums_of_rows(void **state)
{
    (void)state;
    struct ir_graph *g = graph_parse("input i INT64[2,3]\n"
                                     "w = gather \"w\" (t FP32[9,4], i) axis=0\n"
                                     "a = binary \"a\" (w, p FP32[3,4]) func=add\n"
                                     "y = binary \"y\" (a, q FP32[3,4]) func=add\n"
                                     "output y\n");
    int asked = 0;
    struct pass_context ctx = {.takes = takes_two, .takes_user = &asked};
    struct error err = {0};
    assert_int_equal(pass_run(pass_find("fuse_embed"), g, &ctx, &err), STATUS_OK);
    assert_int_equal(ctx.rewrites, 1);
    assert_int_equal(asked, 2);
    char *text = ir_graph_text(g);
    assert_non_null(strstr(text, "a FP32[2,3,4] = embed \"w + a\" (t FP32[9,4], i, p FP32[3,4])"));
    assert_non_null(strstr(text, "y FP32[2,3,4] = binary \"y\" (a, q FP32[3,4])"));
    free(text);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(test_a_constant_may_be_rounded_to_16_bits),
        cmocka_unit_test(test_a_device_is_asked_for_sums_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
