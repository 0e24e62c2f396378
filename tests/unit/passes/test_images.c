/* SPDX-License-Identifier: Apache-2.0 */
/* Concatenations with epilogues, and products over patches. */
#include "base/compiler.h"
#include "tests/test.h"
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
};

static void rewrites(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rewrites)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
