/* SPDX-License-Identifier: Apache-2.0 */
/* Dead layers, no-ops, constants, scalar arithmetic. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    /* --- erase_unused --- */
    {"a chain that nobody reads", "erase_unused",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=abs\n"
     "b = unary \"b\" (a) func=tanh\n"
     "y = unary \"y\" (x) func=relu\n"
     "output y\n",
     "input x FP32[2]\n"
     "y FP32[2] = unary \"y\" (x) func=relu\n"
     "output y\n",
     "b (unary) is read by nobody"},
    {"an unread second output keeps its node", "erase_unused",
     "input x FP32[5]\n"
     "v, i = topk \"t\" (x) axis=0 k=2\n"
     "y = unary \"y\" (i) func=identity\n"
     "output y\n",
     NULL, NULL},
    /* --- erase_requantise --- */
    {"integers that come back", "erase_requantise",
     "input q UINT8[2,3]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z UINT8[]=7) to=12\n"
     "p = quantise \"q\" (x, s, z) to=2\n"
     "y = dequantise \"e\" (p, t FP32[]=0.25) to=12\n"
     "output y\n",
     "input q UINT8[2,3]\n"
     "y FP32[2,3] = dequantise \"e\" (q, t FP32[]) to=12\n"
     "output y\n",
     "q takes back d"},
    {"integers of another scale, zero point or type", "erase_requantise",
     "input q UINT8[2,3]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z UINT8[]=7) to=12\n"
     "a = quantise \"a\" (x, t FP32[]=0.25, z) to=2\n"
     "b = quantise \"b\" (x, s, v UINT8[]=8) to=2\n"
     "c = quantise \"c\" (x, s, w INT8[]=7) to=6\n"
     "output a\noutput b\noutput c\n",
     NULL, NULL},
    {"quantising again: a maximum over windows", "erase_requantise",
     "input q INT8[1,2,4,4]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z INT8[]=3) to=12\n"
     "m = pool \"m\" (x) func=0 kernel=2,2 strides=2,2\n"
     "f = reshape \"f\" (m) shape=1,8\n"
     "p = quantise \"p\" (f, s, z) to=6\n"
     "e = dequantise \"e\" (p, s, z) to=12\n"
     "y = unary \"y\" (e) func=tanh\n"
     "output y\n",
     "input q INT8[1,2,4,4]\n"
     "x FP32[1,2,4,4] = dequantise \"d\" (q, s FP32[], z INT8[]) to=12\n"
     "m FP32[1,2,2,2] = pool \"m\" (x) func=0 kernel=2,2 strides=2,2\n"
     "f FP32[1,8] = reshape \"f\" (m) shape=1,8\n"
     "y FP32[1,8] = unary \"y\" (f) func=tanh\n"
     "output y\n",
     "p and e round nothing"},
    {"an average is rounded again", "erase_requantise",
     "input q INT8[1,2,4,4]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z INT8[]=3) to=12\n"
     "m = pool \"m\" (x) func=1 kernel=2,2 strides=2,2\n"
     "p = quantise \"p\" (m, s, z) to=6\n"
     "e = dequantise \"e\" (p, s, z) to=12\n"
     "y = unary \"y\" (e) func=tanh\n"
     "output y\n",
     NULL, NULL},
    {"quantising again: parts of equal scales, and of others", "erase_requantise",
     "input p UINT8[2,3]\n"
     "input q UINT8[2,3]\n"
     "a = dequantise \"a\" (p, s FP32[]=0.5, z UINT8[]=3) to=12\n"
     "b = dequantise \"b\" (q, s, z) to=12\n"
     "c = dequantise \"c\" (q, t FP32[]=0.25, z) to=12\n"
     "m = concat \"m\" (a, b) axis=0\n"
     "n = concat \"n\" (a, c) axis=0\n"
     "d = quantise \"d\" (m, s, z) to=2\n"
     "e = quantise \"e\" (n, s, z) to=2\n"
     "f = dequantise \"f\" (d, s, z) to=12\n"
     "g = dequantise \"g\" (e, s, z) to=12\n"
     "y = binary \"y\" (f, g) func=mul\n"
     "output y\n",
     "input p UINT8[2,3]\n"
     "input q UINT8[2,3]\n"
     "a FP32[2,3] = dequantise \"a\" (p, s FP32[], z UINT8[]) to=12\n"
     "b FP32[2,3] = dequantise \"b\" (q, s FP32[], z UINT8[]) to=12\n"
     "c FP32[2,3] = dequantise \"c\" (q, t FP32[], z UINT8[]) to=12\n"
     "m FP32[4,3] = concat \"m\" (a, b) axis=0\n"
     "n FP32[4,3] = concat \"n\" (a, c) axis=0\n"
     "e UINT8[4,3] = quantise \"e\" (n, s FP32[], z UINT8[]) to=2\n"
     "g FP32[4,3] = dequantise \"g\" (e, s FP32[], z UINT8[]) to=12\n"
     "y FP32[4,3] = binary \"y\" (m, g) func=mul\n"
     "output y\n",
     NULL},
    {"a ReLU that saturation does", "erase_requantise",
     "input x FP32[2,3]\n"
     "r = unary \"r\" (x) func=relu\n"
     "c = unary \"c\" (x) func=clip alpha=0.0 beta=6.0\n"
     "p = quantise \"p\" (r, s FP32[]=0.5, z INT8[]=-128) to=6\n"
     "q = quantise \"q\" (c, t FP32[]=0.0234375) to=2\n"
     "output p\noutput q\n",
     "input x FP32[2,3]\n"
     "p INT8[2,3] = quantise \"p\" (x, s FP32[], z INT8[]) to=6\n"
     "q UINT8[2,3] = quantise \"q\" (x, t FP32[]) to=2\n"
     "output p\noutput q\n",
     "p cuts off what r does"},
    {"activations that saturation does not do", "erase_requantise",
     "input x FP32[2,3]\n"
     "r = unary \"r\" (x) func=relu\n"
     "c = unary \"c\" (x) func=clip alpha=0.0 beta=6.0\n"
     "p = quantise \"p\" (r, s FP32[]=0.5, z INT8[]=-127) to=6\n"
     "q = quantise \"q\" (c, t FP32[]=0.25) to=2\n"
     "output p\noutput q\n",
     NULL, NULL},
    /* --- fuse_tables --- */
    {"a gate that is rounded to bytes", "erase_requantise fuse_tables",
     "input q UINT8[2,3]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z UINT8[]=128) to=12\n"
     "a = unary \"a\" (x) func=sigmoid\n"
     "p = quantise \"p\" (a, t FP32[]=0.0625, v INT8[]=-100) to=6\n"
     "e = dequantise \"e\" (p, t, v) to=12\n"
     "y = binary \"y\" (x, e) func=mul\n"
     "output y\n",
     "input q UINT8[2,3]\n"
     "x FP32[2,3] = dequantise \"d\" (q, s FP32[], z UINT8[]) to=12\n"
     "y FP32[2,3] = unary \"a + y\" (x) func=sigmoid then div(t FP32[]), clip(-28,227,0), "
     "round, linear(0.0625,0,0), mul(x)\n"
     "output y\n",
     "a + y"},
    {"gates of floats, of other bytes, and such as others read", "erase_requantise fuse_tables",
     "input q UINT8[2,3]\n"
     "input r FP32[2,3]\n"
     "x = dequantise \"d\" (q, s FP32[]=0.5, z UINT8[]=128) to=12\n"
     "a = unary \"a\" (x) func=sigmoid\n"
     "p = quantise \"p\" (a, t FP32[]=0.0625, v INT8[]=-100) to=6\n"
     "e = dequantise \"e\" (p, t, v) to=12\n"
     "y = binary \"y\" (r, e) func=mul\n"
     "b = unary \"b\" (r) func=sigmoid\n"
     "o = quantise \"o\" (b, t, v) to=6\n"
     "f = dequantise \"f\" (o, t, v) to=12\n"
     "w = binary \"w\" (r, f) func=mul\n"
     "c = unary \"c\" (x) func=tanh\n"
     "m = quantise \"m\" (c, t, v) to=6\n"
     "g = dequantise \"g\" (m, t, v) to=12\n"
     "u = binary \"u\" (x, g) func=mul\n"
     "output y\noutput w\noutput u\noutput g\n",
     NULL, NULL},
    /* --- merge_equal --- */
    {"equal nodes, a row of them, equal constants", "merge_equal",
     "input x FP32[4]\n"
     "a = binary \"a\" (x, one FP32[]=1) func=add\n"
     "b = binary \"b\" (x, uno FP32[]=1) func=add\n"
     "c = unary \"c\" (a) func=relu\n"
     "d = unary \"d\" (b) func=relu\n"
     "y = binary \"y\" (c, d) func=mul\n"
     "output y\n",
     "input x FP32[4]\n"
     "a FP32[4] = binary \"a\" (x, one FP32[]) func=add\n"
     "c FP32[4] = unary \"c\" (a) func=relu\n"
     "y FP32[4] = binary \"y\" (c, c) func=mul\n"
     "output y\n",
     "d is the same as c"},
    {"nodes with epilogues and two outputs", "merge_equal",
     "input x FP32[2,5]\n"
     "input z FP32[2,3]\n"
     "a, i = topk \"a\" (x) axis=1 k=3\n"
     "b, j = topk \"b\" (x) k=3 axis=1\n"
     "c = unary \"c\" (a) func=relu then add(z)\n"
     "d = unary \"d\" (b) func=relu then add(z)\n"
     "y = binary \"y\" (c, d) func=mul\n"
     "k = binary \"k\" (i, j) func=add\n"
     "output y\noutput k\n",
     "input x FP32[2,5]\n"
     "input z FP32[2,3]\n"
     "a FP32[2,3], i INT64[2,3] = topk \"a\" (x) axis=1 k=3\n"
     "c FP32[2,3] = unary \"c\" (a) func=relu then add(z)\n"
     "y FP32[2,3] = binary \"y\" (c, c) func=mul\n"
     "k INT64[2,3] = binary \"k\" (i, i) func=add\n"
     "output y\noutput k\n",
     NULL},
    {"the second one is an output and keeps its name", "merge_equal",
     "input x FP32[4]\n"
     "a = unary \"a\" (x) func=exp\n"
     "b = unary \"b\" (a) func=relu\n"
     "y = unary \"y\" (x) func=exp\n"
     "output b\noutput y\n",
     "input x FP32[4]\n"
     "y FP32[4] = unary \"a\" (x) func=exp\n"
     "b FP32[4] = unary \"b\" (y) func=relu\n"
     "output b\noutput y\n",
     NULL},
    {"both are outputs, or something differs", "merge_equal",
     "input x FP32[4]\n"
     "a = unary \"a\" (x) func=exp\n"
     "b = unary \"b\" (x) func=exp\n"
     "c = unary \"c\" (x) func=leaky_relu alpha=0.5\n"
     "d = unary \"d\" (x) func=leaky_relu alpha=0.25\n"
     "e = binary \"e\" (x, k FP32[]=1) func=add\n"
     "f = binary \"f\" (x, l FP32[1]=1) func=add\n"
     "g = binary \"g\" (x, m FP32[]=2) func=add\n"
     "h = unary \"h\" (x) func=exp then relu\n"
     "r = unary \"r\" (x) func=exp then sigmoid\n"
     "output a\noutput b\noutput c\noutput d\noutput e\noutput f\noutput g\noutput h\noutput r\n",
     NULL, NULL},
    /* --- erase_noops --- */
    {"identities and their like", "erase_noops",
     "input x FP32[2,1,3]\n"
     "a = unary \"dropout\" (x) func=identity\n"
     "b = reshape \"same\" (a) shape=2,1,3\n"
     "c = cast \"fp32\" (b) to=12\n"
     "d = slice \"all\" (c) starts=0,0,0 ends=2,1,3 steps=1,1,1\n"
     "e = pad \"by nothing\" (d) pads=0,0,0,0,0,0\n"
     "f = expand \"same\" (e) shape=2,1,3\n"
     "g = tile \"once\" (f) repeats=1,1,1\n"
     "h = transpose \"same\" (g) perm=0,1,2\n"
     "i = concat \"of one\" (h) axis=1\n"
     "j = pool \"of one\" (i) func=1 kernel=1\n"
     "k = binary \"zero\" (j, z FP32[1,1,1]=0) func=add\n"
     "l = binary \"one\" (o FP32[3]=1, k) func=mul\n"
     "m = unary \"linear\" (l) func=linear alpha=1 beta=0\n"
     "n = unary \"clip\" (m) func=clip\n"
     "y = unary \"y\" (n) func=relu\n"
     "output y\n",
     "input x FP32[2,1,3]\n"
     "y FP32[2,1,3] = unary \"y\" (x) func=relu\n"
     "output y\n",
     NULL},
    {"what only looks like it", "erase_noops",
     "input x FP32[2,2]\n"
     "b = transpose \"t\" (x) perm=1,0\n"
     "c = binary \"wide\" (b, z FP32[3,1,1]=0) func=add\n"
     "d = binary \"sub\" (u FP32[]=0, c) func=sub\n"
     "e = slice \"backwards\" (d) starts=2,0,0 ends=-1,2,2 steps=-1,1,1\n"
     "f = pool \"p2\" (e) func=2 kernel=1 alpha=3\n"
     "g = binary \"half\" (f, h FP32[]=0.5) func=mul\n"
     "output g\n",
     NULL, NULL},
    {"relu of relu", "erase_noops",
     "input x FP32[2]\n"
     "a = unary \"r1\" (x) func=relu\n"
     "b = unary \"r2\" (a) func=relu\n"
     "y = unary \"y\" (b) func=tanh\n"
     "output y\n",
     "input x FP32[2]\n"
     "a FP32[2] = unary \"r1\" (x) func=relu\n"
     "y FP32[2] = unary \"y\" (a) func=tanh\n"
     "output y\n",
     NULL},
    {"an output keeps its name", "erase_noops",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=abs\n"
     "z = unary \"z\" (a) func=tanh\n"
     "y = unary \"dropout\" (a) func=identity\n"
     "output y\n"
     "output z\n",
     "input x FP32[2]\n"
     "y FP32[2] = unary \"a\" (x) func=abs\n"
     "z FP32[2] = unary \"z\" (y) func=tanh\n"
     "output y\n"
     "output z\n",
     NULL},
    {"an output that is an input stays made by a node", "erase_noops",
     "input x FP32[2]\n"
     "y = unary \"pass\" (x) func=identity\n"
     "output y\n",
     NULL, "pass (unary) stays"},
    {"two outputs of one value", "erase_noops",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=abs\n"
     "y = unary \"copy\" (a) func=identity\n"
     "output a\n"
     "output y\n",
     NULL, "copy (unary) stays"},
    /* --- fold_constants --- */
    {"a transposed weight", "fold_constants",
     "input x FP32[2,3]\n"
     "t = transpose \"t\" (w FP32[5,3]) perm=1,0\n"
     "y = matmul \"ip\" (x, t)\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,5] = matmul \"ip\" (x, t FP32[3,5])\n"
     "output y\n",
     NULL},
    {"a chain", "fold_constants",
     "input x FP32[3]\n"
     "a = unary \"a\" (k FP32[3]) func=exp\n"
     "b = binary \"b\" (a, k) func=add\n"
     "c = reshape \"c\" (b) shape=1,3\n"
     "y = binary \"y\" (x, c) func=mul\n"
     "output y\n",
     "input x FP32[3]\n"
     "y FP32[1,3] = binary \"y\" (x, b FP32[1,3]) func=mul\n"
     "output y\n",
     NULL},
    {"two outputs, one of them the graph's", "fold_constants",
     "input x FP32[3]\n"
     "v, i = topk \"t\" (k FP32[5]) axis=0 k=3\n"
     "y = binary \"y\" (x, v) func=mul\n"
     "output y\n"
     "output i\n",
     "input x FP32[3]\n"
     "y FP32[3] = binary \"y\" (x, v FP32[3]) func=mul\n"
     "i INT64[3] = unary \"i\" (i INT64[3]) func=identity\n"
     "output y\n"
     "output i\n",
     NULL},
    {"an identity of a constant as an output stays", "fold_constants",
     "input x FP32[3]\n"
     "y = unary \"pass\" (k FP32[5]) func=identity\n"
     "z = unary \"z\" (x) func=tanh\n"
     "output y\n"
     "output z\n",
     NULL, NULL},
    {"a constant that would grow beyond measure", "fold_constants",
     "input x FP32[600000]\n"
     "e = expand \"e\" (k FP32[1]=2) shape=600000\n"
     "y = binary \"y\" (x, e) func=mul\n"
     "output y\n",
     NULL, "e (expand) is not folded"},
    {"a convolution of constants", "fold_constants",
     "input x FP32[1,1,2,2]\n"
     "c = conv \"c\" (k FP32[1,1,3,3], w FP32[1,1,2,2])\n"
     "y = binary \"y\" (x, c) func=mul\n"
     "output y\n",
     NULL, "c (conv) is not folded"},
    {"a recurrent layer of constants", "fold_constants",
     "input x FP32[2,1,2]\n"
     "h, l = recurrent \"h\" (k FP32[2,1,2], w FP32[2,2]) func=0 funcs=10 alphas=1.0 betas=1.0\n"
     "y = binary \"y\" (x, h) func=mul\n"
     "output y\n",
     NULL, "h (recurrent) is not folded"},
    {"a resized table of constants", "fold_constants",
     "input x FP32[4]\n"
     "r = resize \"r\" (k FP32[2]) shape=4 scales=2.0 mode=1\n"
     "y = binary \"y\" (x, r) func=mul\n"
     "output y\n",
     "input x FP32[4]\n"
     "y FP32[4] = binary \"y\" (x, r FP32[4]) func=mul\n"
     "output y\n",
     NULL},
    /* --- fold_scalars --- */
    {"one number: a x + b", "fold_scalars",
     "input x FP32[2,3]\n"
     "input u FP32[2,3]\n"
     "a = binary \"add\" (c FP32[]=2, x) func=add\n"
     "b = binary \"sub\" (x, c FP32[]=2) func=sub\n"
     "d = binary \"from\" (c, x) func=sub\n"
     "e = binary \"mul\" (x, k FP32[2,3]=3) func=mul\n"
     "f = binary \"div\" (x, q FP32[1]=4) func=div\n"
     "g = unary \"neg\" (u) func=neg\n"
     "output a\noutput b\noutput d\noutput e\noutput f\noutput g\n",
     "input x FP32[2,3]\n"
     "input u FP32[2,3]\n"
     "a FP32[2,3] = unary \"add\" (x) func=linear alpha=1 beta=2\n"
     "b FP32[2,3] = unary \"sub\" (x) func=linear alpha=1 beta=-2\n"
     "d FP32[2,3] = unary \"from\" (x) func=linear alpha=-1 beta=2\n"
     "e FP32[2,3] = unary \"mul\" (x) func=linear alpha=3 beta=0\n"
     "f FP32[2,3] = unary \"div\" (x) func=linear alpha=0.25 beta=0\n"
     "g FP32[2,3] = unary \"neg\" (u) func=linear alpha=-1 beta=0\n"
     "output a\n"
     "output b\n"
     "output d\n"
     "output e\n"
     "output f\n"
     "output g\n",
     NULL},
    {"powers", "fold_scalars",
     "input x FP32[2]\n"
     "p = unary \"p\" (x) func=exp\n"
     "a = binary \"two\" (p, c FP32[]=2) func=pow\n"
     "b = binary \"half\" (p, d FP32[]=0.5) func=pow\n"
     "e = binary \"inverse\" (p, f FP32[]=-1) func=pow\n"
     "g = binary \"three\" (p, h FP32[]=3) func=pow\n"
     "i = binary \"base\" (c, p) func=pow\n"
     "output a\noutput b\noutput e\noutput g\noutput i\n",
     "input x FP32[2]\n"
     "p FP32[2] = unary \"p\" (x) func=exp\n"
     "a FP32[2] = binary \"two\" (p, p) func=mul\n"
     "b FP32[2] = unary \"half\" (p) func=sqrt\n"
     "e FP32[2] = unary \"inverse\" (p) func=reciprocal\n"
     "g FP32[2] = binary \"three\" (p, h FP32[]) func=pow\n"
     "i FP32[2] = binary \"base\" (c FP32[], p) func=pow\n"
     "output a\n"
     "output b\n"
     "output e\n"
     "output g\n"
     "output i\n",
     NULL},
    {"clips", "fold_scalars",
     "input x FP32[20]\n"
     "a = binary \"relu\" (x, z FP32[]=0) func=max\n"
     "b = unary \"relu6\" (a) func=clip alpha=0 beta=0.5\n"
     "c = binary \"min\" (x, k FP32[]=0.5) func=min\n"
     "d = binary \"max\" (c, l FP32[]=-0.25) func=max\n"
     "e = unary \"top\" (x) func=clip beta=0.75\n"
     "f = binary \"prelu\" (x, s FP32[1]=0.25) func=prelu\n"
     "output b\noutput d\noutput e\noutput f\n",
     "input x FP32[20]\n"
     "b FP32[20] = unary \"relu + relu6\" (x) func=clip alpha=0 beta=0.5\n"
     "d FP32[20] = unary \"min + max\" (x) func=clip alpha=-0.25 beta=0.5\n"
     "e FP32[20] = unary \"top\" (x) func=clip alpha=-3.40282347e+38 beta=0.75\n"
     "f FP32[20] = unary \"prelu\" (x) func=leaky_relu alpha=0.25\n"
     "output b\n"
     "output d\n"
     "output e\n"
     "output f\n",
     NULL},
    {"a maximum or a minimum alone, of finite numbers or not", "fold_scalars",
     "input x FP32[20]\n"
     "a = binary \"max\" (x, k FP32[]=0.5) func=max\n"
     "b = binary \"min\" (z FP32[]=0, x) func=min\n"
     "c = unary \"relu\" (x) func=relu\n"
     "d = binary \"above\" (c, k) func=max\n"
     "e = unary \"clip\" (x) func=clip alpha=-1 beta=1\n"
     "f = binary \"inf\" (e, i FP32[]=inf) func=min\n"
     "output a\noutput b\noutput d\noutput f\n",
     NULL, NULL},
    {"both bounds, in other spellings", "fold_scalars",
     "input x FP32[20]\n"
     "a = binary \"relu\" (x, z FP32[]=0) func=max\n"
     "b = binary \"max\" (l FP32[]=-0.25, x) func=max\n"
     "c = binary \"min\" (h FP32[]=0.5, b) func=min\n"
     "d = unary \"relu2\" (x) func=relu\n"
     "e = binary \"six\" (d, h) func=min\n"
     "f = binary \"low\" (x, l) func=max\n"
     "g = unary \"clip\" (f) func=clip alpha=-0.5 beta=0.75\n"
     "h1 = binary \"high\" (x, h) func=min\n"
     "h2 = unary \"clip2\" (h1) func=clip alpha=-0.5\n"
     "i1 = unary \"clip3\" (x) func=clip alpha=-0.5 beta=0.75\n"
     "i2 = binary \"max3\" (i1, l) func=max\n"
     "output a\noutput c\noutput e\noutput g\noutput h2\noutput i2\n",
     "input x FP32[20]\n"
     "a FP32[20] = unary \"relu\" (x) func=relu\n"
     "c FP32[20] = unary \"max + min\" (x) func=clip alpha=-0.25 beta=0.5\n"
     "e FP32[20] = unary \"relu2 + six\" (x) func=clip alpha=0 beta=0.5\n"
     "g FP32[20] = unary \"low + clip\" (x) func=clip alpha=-0.25 beta=0.75\n"
     "h2 FP32[20] = unary \"high + clip2\" (x) func=clip alpha=-0.5 beta=0.5\n"
     "i2 FP32[20] = unary \"clip3 + max3\" (x) func=clip alpha=-0.25 beta=0.75\n"
     "output a\noutput c\noutput e\noutput g\noutput h2\noutput i2\n",
     NULL},
    {"bounds that cross: not", "fold_scalars",
     "input x FP32[20]\n"
     "a = binary \"max\" (x, h FP32[]=0.5) func=max\n"
     "b = binary \"min\" (a, l FP32[]=-0.25) func=min\n"
     "output b\n",
     NULL, NULL},
    {"linear after linear", "fold_scalars",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=linear alpha=2 beta=1\n"
     "y = unary \"b\" (a) func=linear alpha=3 beta=-1\n"
     "output y\n",
     "input x FP32[2]\n"
     "y FP32[2] = unary \"a + b\" (x) func=linear alpha=6 beta=2\n"
     "output y\n",
     NULL},
    {"a number that comes and goes to round: not", "fold_scalars fold_scale fuse_bias",
     "input x FP32[2,4]\n"
     "a = unary \"a\" (x) func=linear alpha=3 beta=12582912\n"
     "b = unary \"b\" (a) func=linear alpha=1 beta=-12582912\n"
     "m = matmul \"m\" (b, w FP32[4,3])\n"
     "c = unary \"c\" (m) func=linear alpha=1 beta=12582912\n"
     "y = unary \"d\" (c) func=linear alpha=2 beta=-25165824\n"
     "output y\n",
     NULL, "a + b: they round"},
    {"a number that comes and goes, but is not large", "fold_scalars",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=linear alpha=1 beta=128\n"
     "y = unary \"b\" (a) func=linear alpha=0.5 beta=-64\n"
     "output y\n",
     "input x FP32[2]\n"
     "y FP32[2] = unary \"a + b\" (x) func=linear alpha=0.5 beta=0\n"
     "output y\n",
     NULL},
    {"linear after linear that another one reads", "fold_scalars",
     "input x FP32[2]\n"
     "a = unary \"a\" (x) func=linear alpha=2 beta=1\n"
     "y = unary \"b\" (a) func=linear alpha=3 beta=-1\n"
     "output y\noutput a\n",
     NULL, NULL},
    {"a quotient that is rounded: only by a power of two", "fold_scalars",
     "input x FP32[2]\n"
     "a = binary \"by 7\" (x, k FP32[]=7) func=div\n"
     "b = unary \"floor\" (a) func=floor\n"
     "c = binary \"by 8\" (x, l FP32[]=8) func=div\n"
     "d = cast \"index\" (c) to=9\n"
     "e = unary \"e\" (x) func=linear alpha=0.1 beta=0\n"
     "f = unary \"f\" (e) func=linear alpha=10 beta=0\n"
     "g = binary \"less\" (f, x) func=less\n"
     "output b\noutput d\noutput g\n",
     "input x FP32[2]\n"
     "a FP32[2] = binary \"by 7\" (x, k FP32[]) func=div\n"
     "b FP32[2] = unary \"floor\" (a) func=floor\n"
     "c FP32[2] = unary \"by 8\" (x) func=linear alpha=0.125 beta=0\n"
     "d INT64[2] = cast \"index\" (c) to=9\n"
     "e FP32[2] = unary \"e\" (x) func=linear alpha=0.100000001 beta=0\n"
     "f FP32[2] = unary \"f\" (e) func=linear alpha=10 beta=0\n"
     "g BOOL[2] = binary \"less\" (f, x) func=less\n"
     "output b\n"
     "output d\n"
     "output g\n",
     "by 7: its quotient is rounded"},
    {"numbers that broadcast, integers, zero and infinity: not", "fold_scalars",
     "input x FP32[2]\n"
     "input n INT64[2]\n"
     "a = binary \"wide\" (x, c FP32[3,1]=2) func=add\n"
     "b = binary \"int\" (n, k INT64[]=2) func=add\n"
     "d = binary \"zero\" (x, z FP32[]=0) func=div\n"
     "e = binary \"inf\" (x, i FP32[]=inf) func=add\n"
     "f = binary \"per\" (x, v FP32[2]) func=add\n"
     "output a\noutput b\noutput d\noutput e\noutput f\n",
     NULL, "wide broadcasts its input"},
};

static void cleaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cleaning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
