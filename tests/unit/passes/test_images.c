/* SPDX-License-Identifier: Apache-2.0 */
/* Concatenations with epilogues, first layers with their pool, and products over patches. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    /* --- fuse_concat --- */
    {"concatenation + batch norm + activation (DenseNet)",
     "fold_batch_norm fuse_activation fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "input z FP32[2,3,5,6]\n"
     "c = concat \"c\" (x, z) axis=1\n"
     "n = batch_norm \"n\" (c, s FP32[7], t FP32[7], m FP32[7], v FP32[7]=+)\n"
     "r = unary \"r\" (n) func=relu\n"
     "y = conv \"y\" (r, w FP32[4,7,1,1])\n"
     "output y\n",
     "input x FP32[2,4,5,6]\n"
     "input z FP32[2,3,5,6]\n"
     "r FP32[2,7,5,6] = concat \"c + n + r\" (x, z) axis=1 then mul(%5 FP32[7,1,1]), add(%6 "
     "FP32[7,1,1]), relu\n"
     "y FP32[2,4,5,6] = conv \"y\" (r, w FP32[4,7,1,1])\n"
     "output y\n",
     "c + n + r"},
    {"concatenation + constant of one instance (class token and positions)", "fuse_concat",
     "input x FP32[2,4,6]\n"
     "input z FP32[2,1,6]\n"
     "c = concat \"c\" (z, x) axis=1\n"
     "y = binary \"p\" (q FP32[1,5,6], c) func=add\n"
     "output y\n",
     "input x FP32[2,4,6]\n"
     "input z FP32[2,1,6]\n"
     "y FP32[2,5,6] = concat \"c + p\" (z, x) axis=1 then add(q FP32[1,5,6])\n"
     "output y\n",
     "c + p"},
    {"concatenation + activation", "fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "c = concat \"c\" (x, x) axis=1\n"
     "y = unary \"y\" (c) func=clip alpha=-0.5 beta=1\n"
     "output y\n",
     "input x FP32[2,4,5,6]\n"
     "y FP32[2,8,5,6] = concat \"c + y\" (x, x) axis=1 then clip(-0.5,1,0)\n"
     "output y\n",
     "c + y"},
    {"concatenation that others read: stays", "fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "c = concat \"c\" (x, x) axis=1\n"
     "y = unary \"y\" (c) func=relu\n"
     "output y\noutput c\n",
     NULL, "c has 2 readers"},
    {"concatenation + what is computed: stays", "fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "input s FP32[8,1,1]\n"
     "c = concat \"c\" (x, x) axis=1\n"
     "y = binary \"y\" (c, s) func=mul\n"
     "output y\n",
     NULL, "its operands are computed"},
    {"concatenation + a step that is computed: stays", "fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "input s FP32[8,1,1]\n"
     "c = concat \"c\" (x, x) axis=1\n"
     "y = binary \"y\" (c, k FP32[8,1,1]) func=mul then add(s)\n"
     "output y\n",
     NULL, "its operands are computed"},
    {"concatenation along rows, of two dimensions, on the right of a difference, made larger: stay",
     "fuse_concat",
     "input x FP32[2,4,5,6]\n"
     "input u FP32[2,3]\n"
     "input o FP32[1,4,1,6]\n"
     "a = concat \"a\" (x, x) axis=2\n"
     "b = unary \"b\" (a) func=relu\n"
     "c = concat \"c\" (u, u) axis=1\n"
     "d = unary \"d\" (c) func=relu\n"
     "e = concat \"e\" (x, x) axis=1\n"
     "f = binary \"f\" (k FP32[8,1,1], e) func=sub\n"
     "g = concat \"g\" (o, o) axis=1\n"
     "h = binary \"h\" (g, l FP32[1,1,5,1]) func=add\n"
     "output b\noutput d\noutput f\noutput h\n",
     NULL, NULL},
    {"an epilogue keeps slices from being put together", "gather_slices",
     "input x FP32[2,4,5,6]\n"
     "a = slice \"a\" (x) starts=0,2,0,0 ends=2,4,5,6 steps=1,1,1,1\n"
     "b = slice \"b\" (x) starts=0,0,0,0 ends=2,2,5,6 steps=1,1,1,1\n"
     "y = concat \"y\" (a, b) axis=1 then relu\n"
     "output y\n",
     NULL, NULL},
    /* --- fuse_stem_pool --- */
    {"the first layer of ResNet", "fuse_activation fuse_stem_pool",
     "input x FP32[1,3,9,12]\n"
     "c = conv \"c\" (x, w FP32[4,3,7,7], b FP32[4]) strides=2,2 pads=3,3,3,3\n"
     "r = unary \"r\" (c) func=relu\n"
     "y = pool \"y\" (r) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "output y\n",
     "input x FP32[1,3,9,12]\n"
     "y FP32[1,4,3,3] = conv_pool \"c + r + y\" (x, w FP32[4,3,7,7], b FP32[4]) strides=2,2 "
     "pads=3,3,3,3 dilations=1,1 then relu\n"
     "output y\n",
     "c + r + y: convolution and pool"},
    {"bytes of an image", "fuse_stem_pool",
     "input x UINT8[1,1,8,8]\n"
     "f = cast \"f\" (x) to=12\n"
     "c = conv \"c\" (f, w FP32[4,1,3,3]) strides=2,2 pads=1,1,1,1 then relu\n"
     "y = pool \"y\" (c) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1 then exp\n"
     "output y\n",
     "input x UINT8[1,1,8,8]\n"
     "y FP32[1,4,2,2] = conv_pool \"c + y\" (x, w FP32[4,1,3,3]) strides=2,2 pads=1,1,1,1 "
     "dilations=1,1 then relu, exp\n"
     "output y\n",
     NULL},
    {"a pool of two by two, of averages, of what others read, behind many channels: two nodes",
     "fuse_stem_pool",
     "input x FP32[1,3,8,8]\n"
     "input z FP32[1,8,8,8]\n"
     "c = conv \"c\" (x, w FP32[4,3,3,3])\n"
     "a = pool \"a\" (c) func=0 kernel=2,2 strides=2,2\n"
     "d = conv \"d\" (x, w)\n"
     "b = pool \"b\" (d) func=1 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "e = conv \"e\" (x, w)\n"
     "g = pool \"g\" (e) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "h = conv \"h\" (z, v FP32[4,8,3,3])\n"
     "i = pool \"i\" (h) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "output a\noutput b\noutput g\noutput e\noutput i\n",
     NULL, "e + g: the convolution has other readers"},
    {"a first layer with exp, with computed weights, of a pool rounded up: two nodes",
     "fuse_stem_pool",
     "input x FP32[1,3,8,8]\n"
     "input v FP32[4,3,3,3]\n"
     "c = conv \"c\" (x, w FP32[4,3,3,3]) then exp\n"
     "a = pool \"a\" (c) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "d = conv \"d\" (x, v)\n"
     "b = pool \"b\" (d) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n"
     "e = conv \"e\" (x, w)\n"
     "g = pool \"g\" (e) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1 ceil_mode=1\n"
     "output a\noutput b\noutput g\n",
     NULL, "c + a: a step between them is no ReLU"},
    /* --- fuse_pair --- */
    {"the end of a block of ResNet", "fuse_pair",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,8,5]\n"
     "c = conv \"c\" (t, w FP32[6,3,1,1], b FP32[6])\n"
     "y = conv \"y\" (x, v FP32[6,5,1,1], d FP32[6]) strides=2,2 then add(c), relu\n"
     "output y\n",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,8,5]\n"
     "y FP32[2,6,4,3] = conv_pair \"c + y\" (t, w FP32[6,3,1,1], x, v FP32[6,5,1,1], b FP32[6]) "
     "strides=2,2 then relu\n"
     "output y\n",
     "c + y: one product over two sources"},
    {"a block whose last convolution has the sum, and more behind it", "fuse_pair",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,4,7]\n"
     "input z FP32[2,6,4,3]\n"
     "e = unary \"e\" (z) func=exp\n"
     "c = conv \"c\" (x, v FP32[6,5,1,1]) strides=1,3\n"
     "y = conv \"y\" (t, w FP32[6,3,1,1], b FP32[6]) then add(c), relu, mul(e)\n"
     "output y\n",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,4,7]\n"
     "input z FP32[2,6,4,3]\n"
     "e FP32[2,6,4,3] = unary \"e\" (z) func=exp\n"
     "y FP32[2,6,4,3] = conv_pair \"c + y\" (t, w FP32[6,3,1,1], x, v FP32[6,5,1,1], b FP32[6]) "
     "strides=1,3 then relu, mul(e)\n"
     "output y\n",
     NULL},
    {"sums that stay two convolutions", "fuse_pair",
     "input x FP32[2,3,8,8]\n"
     "input v FP32[6,3,1,1]\n"
     "a = conv \"a\" (x, w FP32[6,3,1,1]) strides=2,2\n"
     "b = conv \"b\" (x, w) strides=2,2 then add(a)\n" /* both at steps */
     "c = conv \"c\" (x, k FP32[6,3,3,3]) pads=1,1,1,1\n"
     "d = conv \"d\" (x, w) then add(c)\n" /* a window */
     "e = conv \"e\" (x, w)\n"
     "f = conv \"f\" (x, w) then add(e)\n" /* e is read elsewhere */
     "g = conv \"g\" (x, w) then relu\n"
     "h = conv \"h\" (x, w) then add(g)\n" /* a ReLU between */
     "i = conv \"i\" (x, w)\n"
     "j = conv \"j\" (x, w) then relu, add(i)\n" /* a ReLU before */
     "l = conv \"l\" (x, v)\n"
     "m = conv \"m\" (x, w) then add(l)\n" /* computed weights */
     "n = conv \"n\" (x, u FP32[6,1,1,1]) group=3\n"
     "o = conv \"o\" (x, w) then add(n)\n" /* groups */
     "p = conv \"p\" (x, w) pads=0,1,0,1\n"
     "q = conv \"q\" (x, w) pads=0,1,0,1 then add(p)\n" /* padding */
     "output b\noutput d\noutput e\noutput f\noutput h\noutput j\noutput m\noutput o\n"
     "output q\n",
     NULL, "e + f: others read the first one's result"},
    /* --- fuse_chain --- */
    {"the end of a block and the next one, whose residual is read again", "fuse_chain",
     "input x FP32[2,3,4,3]\n"
     "input z FP32[2,6,4,3]\n"
     "y = conv \"y\" (x, w FP32[6,3,1,1], b FP32[6]) then add(z), relu\n"
     "p = conv \"p\" (y, u FP32[5,6,1,1]) strides=2,2\n"
     "t = conv \"t\" (y, v FP32[5,6,1,1], a FP32[5]) then relu\n"
     "q = conv \"q\" (y, v) then add(t)\n"
     "output p\noutput q\n",
     "input x FP32[2,3,4,3]\n"
     "input z FP32[2,6,4,3]\n"
     "y FP32[2,6,4,3], t FP32[2,5,4,3] = conv_chain \"y + t\" (x, w FP32[6,3,1,1], "
     "v FP32[5,6,1,1], -, -, b FP32[6], z, a FP32[5]) funcs=1,1\n"
     "p FP32[2,5,2,2] = conv \"p\" (y, u FP32[5,6,1,1]) strides=2,2\n"
     "q FP32[2,5,4,3] = conv \"q\" (y, v FP32[5,6,1,1]) then add(t)\n"
     "output p\noutput q\n",
     "y + t: the second one's input is not read again"},
    {"convolutions in a row, which are outputs, have other readers, or none", "fuse_chain",
     "input x FP32[2,3,4,3]\n"
     "input z FP32[2,6,4,3]\n"
     "c = conv \"c\" (x, w FP32[6,3,1,1])\n"
     "d = conv \"d\" (c, v FP32[5,6,1,1])\n"
     "e = conv \"e\" (x, w) then add(z)\n"
     "f = conv \"f\" (e, v) then relu\n"
     "g = conv \"g\" (f, k FP32[6,5,1,1]) then relu\n"
     "h = conv \"h\" (g, v, a FP32[5])\n"
     "output e\noutput d\noutput h\n",
     "input x FP32[2,3,4,3]\n"
     "input z FP32[2,6,4,3]\n"
     "c FP32[2,6,4,3], d FP32[2,5,4,3] = conv_chain \"c + d\" (x, w FP32[6,3,1,1], "
     "v FP32[5,6,1,1]) funcs=0,0\n"
     "e FP32[2,6,4,3], f FP32[2,5,4,3] = conv_chain \"e + f\" (x, w FP32[6,3,1,1], "
     "v FP32[5,6,1,1], -, -, -, z) funcs=0,1\n"
     "g FP32[2,6,4,3], h FP32[2,5,4,3] = conv_chain \"g + h\" (f, k FP32[6,5,1,1], "
     "v FP32[5,6,1,1], -, -, -, -, a FP32[5]) funcs=1,0\n"
     "output e\noutput d\noutput h\n",
     NULL},
    {"the sum of two sources and the next block", "fuse_pair fuse_chain",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,8,5]\n"
     "c = conv \"c\" (t, w FP32[6,3,1,1], b FP32[6])\n"
     "y = conv \"y\" (x, v FP32[6,5,1,1]) strides=2,2 then add(c), relu\n"
     "n = conv \"n\" (y, u FP32[4,6,1,1]) then relu\n"
     "m = unary \"m\" (y) func=exp\n"
     "d = conv \"d\" (t, w)\n"
     "e = conv \"e\" (x, v) strides=2,2 then add(d)\n"
     "f = conv \"f\" (e, u)\n"
     "output n\noutput m\noutput f\n",
     "input t FP32[2,3,4,3]\n"
     "input x FP32[2,5,8,5]\n"
     "y FP32[2,6,4,3], n FP32[2,4,4,3] = conv_chain \"c + y + n\" (t, w FP32[6,3,1,1], "
     "u FP32[4,6,1,1], x, v FP32[6,5,1,1], b FP32[6]) strides=2,2 funcs=1,1\n"
     "m FP32[2,6,4,3] = unary \"m\" (y) func=exp\n"
     "e FP32[2,6,4,3], f FP32[2,4,4,3] = conv_chain \"d + e + f\" (t, w FP32[6,3,1,1], "
     "u FP32[4,6,1,1], x, v FP32[6,5,1,1]) strides=2,2 funcs=0,0\n"
     "output n\noutput m\noutput f\n",
     NULL},
    {"convolutions in a row that stay two", "fuse_chain",
     "input x FP32[2,6,4,4]\n"
     "input v FP32[6,6,1,1]\n"
     "input z FP32[1,6,1,4]\n"
     "a = conv \"a\" (x, w FP32[6,6,1,1]) strides=2,2\n"
     "b = conv \"b\" (a, w)\n" /* the first one at steps */
     "c = conv \"c\" (x, w)\n"
     "d = conv \"d\" (c, w) strides=1,2\n" /* the second one at steps */
     "e = conv \"e\" (x, w)\n"
     "f = conv \"f\" (e, k FP32[6,6,3,3]) pads=1,1,1,1\n"
     "g = conv \"g\" (f, w)\n" /* windows */
     "h = conv \"h\" (x, v)\n"
     "i = conv \"i\" (h, w)\n" /* computed weights */
     "j = conv \"j\" (x, w)\n"
     "l = conv \"l\" (j, v)\n"
     "m = conv \"m\" (x, u FP32[6,2,1,1]) group=3\n"
     "n = conv \"n\" (m, u) group=3\n" /* groups */
     "o = conv \"o\" (x, w) pads=0,1,0,1\n"
     "p = conv \"p\" (o, w) pads=0,1,0,1\n" /* padding */
     "q = conv \"q\" (x, w) then add(z)\n"
     "r = conv \"r\" (q, w)\n" /* a smaller residual */
     "s = conv \"s\" (x, w) then relu, add(x)\n"
     "t = conv \"t\" (s, w)\n" /* a residual behind ReLU */
     "ab = conv \"ab\" (x, w) then mul(x)\n"
     "ac = conv \"ac\" (ab, w)\n" /* a product */
     "ad = conv \"ad\" (x, w) then clip(0,6,0)\n"
     "ae = conv \"ae\" (ad, w)\n" /* another activation */
     "af = conv \"af\" (x, w)\n"
     "ag = conv \"ag\" (af, w) then add(x)\n" /* a residual of the second one */
     "ah = conv \"ah\" (x, w)\n"
     "ai = conv \"ai\" (ah, w) then exp\n" /* another activation of the second one */
     "output b\noutput d\noutput g\noutput i\noutput l\noutput n\noutput p\noutput r\n"
     "output t\noutput ac\noutput ae\noutput ag\noutput ai\n",
     NULL, "c + d: one is read at steps"},
    /* --- unfold_patches --- */
    {"patches of an image to tokens (ViT)",
     "unfold_patches merge_chains merge_shuffles erase_noops",
     "input x FP32[2,3,8,16]\n"
     "c = conv \"c\" (x, w FP32[16,3,4,8], b FP32[16]) strides=4,8\n"
     "r = reshape \"r\" (c) shape=2,16,4\n"
     "y = transpose \"y\" (r) perm=0,2,1\n"
     "z = unary \"z\" (y) func=exp\n"
     "output z\n",
     "input x FP32[2,3,8,16]\n"
     "%4 FP32[2,3,2,4,2,8] = reshape \"c\" (x) shape=2,3,2,4,2,8\n"
     "%5 FP32[2,2,2,3,4,8] = transpose \"c\" (%4) perm=0,2,4,1,3,5\n"
     "%6 FP32[2,2,2,96] = reshape \"c\" (%5) shape=2,2,2,96\n"
     "%8 FP32[2,2,2,16] = matmul \"c\" (%6, w FP32[16,96], b FP32[16]) trans_b=1\n"
     "y FP32[2,4,16] = reshape \"y\" (%8) shape=2,4,16\n"
     "z FP32[2,4,16] = unary \"z\" (y) func=exp\n"
     "output z\n",
     "c is a product over patches"},
    {"patches with an activation stay an image", "unfold_patches",
     "input x FP32[1,1,4,4]\n"
     "y = conv \"y\" (x, w FP32[8,1,2,4]) strides=2,4 then relu\n"
     "output y\n",
     "input x FP32[1,1,4,4]\n"
     "%2 FP32[1,1,2,2,1,4] = reshape \"y\" (x) shape=1,1,2,2,1,4\n"
     "%3 FP32[1,2,1,1,2,4] = transpose \"y\" (%2) perm=0,2,4,1,3,5\n"
     "%4 FP32[1,2,1,8] = reshape \"y\" (%3) shape=1,2,1,8\n"
     "%6 FP32[1,2,1,8] = matmul \"y\" (%4, w FP32[8,8]) trans_b=1 then relu\n"
     "y FP32[1,8,2,1] = transpose \"y\" (%6) perm=0,3,1,2\n"
     "output y\n",
     NULL},
    {"patches with a rest, of few numbers, with computed weights, with a sum: stay",
     "unfold_patches",
     "input x FP32[1,3,9,8]\n"
     "input s FP32[1,8,2,2]\n"
     "input v FP32[8,3,4,4]\n"
     "input u FP32[1,3,8,8]\n"
     "a = conv \"a\" (x, w FP32[8,3,4,4]) strides=4,4\n"
     "b = conv \"b\" (u, k FP32[8,3,2,2]) strides=2,2\n"
     "c = conv \"c\" (u, v) strides=4,4\n"
     "d = conv \"d\" (u, w) strides=4,4 then add(s)\n"
     "e = conv \"e\" (u, l FP32[6,3,4,4]) strides=4,4\n"
     "output a\noutput b\noutput c\noutput d\noutput e\n",
     NULL, "stays a convolution: patches leave a rest"},
    {"windows that overlap, gaps, padding, groups, many channels: no patches", "unfold_patches",
     "input x FP32[1,4,8,8]\n"
     "input z FP32[1,8,8,8]\n"
     "a = conv \"a\" (x, w FP32[8,4,4,4]) strides=2,2\n"
     "b = conv \"b\" (x, k FP32[8,4,2,2]) strides=4,4\n"
     "c = conv \"c\" (x, w) strides=4,4 pads=4,0,0,0\n"
     "d = conv \"d\" (x, l FP32[8,2,4,4]) strides=4,4 group=2\n"
     "e = conv \"e\" (z, m FP32[8,8,4,4]) strides=4,4\n"
     "f = conv \"f\" (x, n FP32[8,4,1,1])\n"
     "g = conv \"g\" (x, k) strides=2,2 dilations=2,2\n"
     "output a\noutput b\noutput c\noutput d\noutput e\noutput f\noutput g\n",
     NULL, NULL},
    /* --- lay_patches --- */
    {"patches laid side by side (U-Net)", "lay_patches merge_chains merge_shuffles",
     "input x FP32[2,5,3,4]\n"
     "y = deconv \"y\" (x, w FP32[5,6,2,3], b FP32[6]) strides=2,3 then relu\n"
     "output y\n",
     "input x FP32[2,5,3,4]\n"
     "%2 FP32[2,3,4,5] = transpose \"y\" (x) perm=0,2,3,1\n"
     "%5 FP32[2,3,4,36] = matmul \"y\" (%2, y FP32[5,36], y FP32[36]) then relu\n"
     "%6 FP32[2,3,4,2,3,6] = reshape \"y\" (%5) shape=2,3,4,2,3,6\n"
     "%7 FP32[2,6,3,2,4,3] = transpose \"y\" (%6) perm=0,5,1,3,2,4\n"
     "y FP32[2,6,6,12] = reshape \"y\" (%7) shape=2,6,6,12\n"
     "output y\n",
     "y is a product that lays patches"},
    {"patches of one dimension lie side by side", "lay_patches merge_shuffles",
     "input x FP32[2,5,7]\n"
     "y = deconv \"y\" (x, w FP32[5,6,4]) strides=4\n"
     "output y\n",
     "input x FP32[2,5,7]\n"
     "%2 FP32[2,7,5] = transpose \"y\" (x) perm=0,2,1\n"
     "%4 FP32[2,7,24] = matmul \"y\" (%2, y FP32[5,24])\n"
     "%5 FP32[2,28,6] = reshape \"y\" (%4) shape=2,28,6\n"
     "y FP32[2,6,28] = transpose \"y\" (%5) perm=0,2,1\n"
     "output y\n",
     NULL},
    {"transposed convolutions that overlap, leave gaps, cut, add, or have groups stay",
     "lay_patches",
     "input x FP32[1,4,4,4]\n"
     "input s FP32[1,6,8,8]\n"
     "input v FP32[4,6,2,2]\n"
     "a = deconv \"a\" (x, w FP32[4,6,3,3]) strides=2,2\n"
     "b = deconv \"b\" (x, k FP32[4,6,2,2]) strides=3,3\n"
     "c = deconv \"c\" (x, k) strides=2,2 pads=1,0,0,0\n"
     "d = deconv \"d\" (x, k) strides=2,2 output_padding=1,0\n"
     "e = deconv \"e\" (x, l FP32[4,3,2,2]) strides=2,2 group=2\n"
     "f = deconv \"f\" (x, v) strides=2,2\n"
     "g = deconv \"g\" (x, k) strides=2,2 dilations=2,2\n"
     "h = deconv \"h\" (x, k) strides=2,2 then add(s)\n"
     "output a\noutput b\noutput c\noutput d\noutput e\noutput f\noutput g\noutput h\n",
     NULL, "stays a transposed convolution: its epilogue reads a tensor"},
};

static void rewrites(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

struct device_of_floats {
    uint32_t asked;
    bool none; /* it has no kernels at all */
};

/* Has kernels for convolutions with a pool and ReLU, unless they read bytes. */
static bool takes_floats(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    struct device_of_floats *d = user;
    d->asked++;
    assert_int_equal(node->op, IR_OP_CONV_POOL);
    assert_int_equal(node->n_epilogue, 1);
    assert_int_equal(ir_attr_at(node, IR_ATTR_STRIDES, 1), 2);
    assert_int_equal(ir_attr_at(node, IR_ATTR_PADS, 3), 1);
    return !d->none && ir_tensor(graph, node->inputs[0])->dtype == DTYPE_F32;
}

static char *ask(struct device_of_floats *device)
{
    struct ir_graph *g = graph_parse("input x UINT8[1,1,8,8]\n"
                                     "f = cast \"f\" (x) to=12\n"
                                     "c = conv \"c\" (f, w FP32[4,1,3,3]) strides=2,2 "
                                     "pads=1,1,1,1 then relu\n"
                                     "y = pool \"y\" (c) func=0 kernel=3,3 strides=2,2 "
                                     "pads=1,1,1,1\n"
                                     "output y\n");
    struct pass_context ctx = {.stems = true, .takes = takes_floats, .takes_user = device};
    struct error err = {0};
    assert_int_equal(pass_run(pass_find("fuse_stem_pool"), g, &ctx, &err), STATUS_OK);
    assert_int_equal(ctx.rewrites, device->none ? 0 : 1);
    char *text = ir_graph_text(g);
    ir_graph_free(g);
    return text;
}

/* The device is asked in each form that the node may have, and nothing changes if it takes none. */
static void the_device_is_asked(void **state)
{
    (void)state;
    struct device_of_floats some = {0}, none = {.none = true};
    char *fused = ask(&some), *apart = ask(&none);
    assert_int_equal(some.asked, 2);
    assert_non_null(strstr(fused, "conv_pool \"c + y\" (f,"));
    assert_null(strstr(fused, "= pool"));
    assert_int_equal(none.asked, 2);
    assert_null(strstr(apart, "conv_pool"));
    assert_non_null(strstr(apart, "= pool \"y\" (c)"));
    free(fused);
    free(apart);
}

static bool takes_named(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    (void)graph;
    assert_int_equal(node->op, IR_OP_CONV_PAIR);
    assert_int_equal(node->n_epilogue, 1);
    assert_int_equal(ir_attr_at(node, IR_ATTR_STRIDES, 1), 2);
    return strcmp(node->name, user) == 0;
}

/* What is not asked for, or not taken, stays; what is taken is noted by its names. */
static void pairs_are_asked_and_noted(void **state)
{
    (void)state;
    static const char text[] = "input x FP32[1,2,5,5]\n"
                               "a = conv \"a\" (x, w FP32[2,2,1,1])\n"
                               "b = conv \"b\" (a, w) strides=2,2\n"
                               "c = conv \"c\" (a, w) strides=2,2 then relu\n"
                               "d = conv \"d\" (c, w) then add(b), relu\n"
                               "e = conv \"e\" (d, w) strides=2,2\n"
                               "f = conv \"f\" (d, w) strides=2,2 then relu\n"
                               "g = conv \"g\" (f, w) then add(e), relu\n"
                               "output g\n";
    static const char *const wanted[] = {"", "b + d", "e + g"};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        struct ir_graph *g = graph_parse(text);
        struct pass_pairs pairs = {0};
        struct pass_context ctx = {.takes = takes_named,
                                   .takes_user = (void *)(uintptr_t)wanted[i]};
        struct error err = {0};
        assert_int_equal(pass_run(pass_find("fuse_pair"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(ctx.rewrites, 0);
        ctx.pairs = &pairs;
        assert_int_equal(pass_run(pass_find("fuse_pair"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(pairs.n, i > 0);
        if (i > 0) {
            assert_string_equal(pairs.row[0].both, wanted[i]);
            assert_string_equal(pairs.row[0].first, i == 1 ? "b" : "e");
            assert_string_equal(pairs.row[0].second, i == 1 ? "d" : "g");
        }
        ir_graph_free(g);
    }
}

/* What the tensors y and t of a chain hold in 8 bits. */
static const float steps_of_chain[] = {0.5F, 0.25F};

struct device_of_bytes {
    uint32_t asked;
    const char *name; /* of the node that it has a kernel for */
};

static bool takes_bytes(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    struct device_of_bytes *d = user;
    d->asked++;
    assert_int_equal(node->op, IR_OP_CONV_CHAIN);
    assert_int_equal(node->n_outputs, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct ir_scale *scale = ir_scale(graph, ir_tensor(graph, node->outputs[i])->range);
        assert_true(scale && scale->n == 1 && scale->step[0] == steps_of_chain[i]);
    }
    return strcmp(node->name, d->name) == 0;
}

/* Gives all that the nodes make ranges: y and t have steps of their own. */
static void give_ranges(struct ir_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_scale scale = {
            .n = 1, .dtype = DTYPE_I8, .step = &steps_of_chain[ir_node(g, i)->name[0] == 't']};
        uint32_t number = ir_scale_add(g, &scale);
        assert_int_not_equal(number, IR_NO_SCALE);
        ir_tensor(g, ir_node(g, i)->outputs[0])->range = number;
    }
}

/* The device is asked by the ranges of both results. Nothing changes if it has no kernel; else the
 * two tensors stay the same, and the first convolution that it takes joins. */
static void chains_are_asked_with_ranges(void **state)
{
    (void)state;
    static const char text[] = "input x FP32[1,2,4,4]\n"
                               "y = conv \"y\" (x, w FP32[3,2,1,1]) then relu\n"
                               "ta = conv \"ta\" (y, v FP32[2,3,1,1])\n"
                               "tb = conv \"tb\" (y, v) then relu\n"
                               "tc = conv \"tc\" (y, v)\n"
                               "output ta\noutput tb\noutput tc\n";
    static const struct {
        const char *name;
        uint32_t asked;
    } rows[] = {{"", 3}, {"y + tb", 2}, {"y + tc", 3}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *g = graph_parse(text);
        struct device_of_bytes device = {0, rows[i].name};
        struct pass_pairs chains = {0};
        struct pass_context ctx = {.takes = takes_bytes, .takes_user = &device};
        struct error err = {0};
        give_ranges(g);
        assert_int_equal(pass_run(pass_find("fuse_chain"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(device.asked, 0);
        ctx.chains = &chains;
        assert_int_equal(pass_run(pass_find("fuse_chain"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(device.asked, rows[i].asked);
        assert_int_equal(chains.n, i > 0);
        assert_int_equal(g->n_nodes, i > 0 ? 3 : 4);
        if (i > 0) {
            const struct ir_node *node = ir_node(g, 0);
            assert_string_equal(chains.row[0].both, rows[i].name);
            assert_string_equal(chains.row[0].first, "y");
            assert_string_equal(chains.row[0].second, i == 1 ? "tb" : "tc");
            assert_string_equal(node->name, rows[i].name);
            assert_string_equal(ir_tensor(g, node->outputs[0])->name, "y");
            assert_string_equal(ir_tensor(g, node->outputs[1])->name, i == 1 ? "tb" : "tc");
            for (uint32_t k = 0; k < 2; k++)
                assert_true(ir_scale(g, ir_tensor(g, node->outputs[k])->range)->step[0] ==
                            steps_of_chain[k]);
        }
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rewrites),
                                       cmocka_unit_test(the_device_is_asked),
                                       cmocka_unit_test(pairs_are_asked_and_noted),
                                       cmocka_unit_test(chains_are_asked_with_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
