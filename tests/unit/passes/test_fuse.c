/* SPDX-License-Identifier: Apache-2.0 */
/* Fusions into the node before: bias, sums, activations, weights. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    /* --- fuse_activation --- */
    {"conv + activation", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "y = unary \"relu1\" (c) func=relu\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + relu1\" (x, w FP32[4,3,3,3]) then relu\n"
     "output y\n",
     "fuse_activation: conv1 + relu1"},
    {"conv + activation: the value has another reader", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "y = unary \"relu1\" (c) func=relu\n"
     "z = unary \"tanh1\" (c) func=tanh\n"
     "output y\n"
     "output z\n",
     NULL, "c has 2 readers"},
    {"conv + activation: the value is an output", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "y = unary \"relu1\" (c) func=relu\n"
     "output c\n"
     "output y\n",
     NULL, "c has 2 readers"},
    {"conv + activation: no step of an epilogue", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "y = unary \"sin1\" (c) func=sin\n"
     "output y\n",
     NULL, "sin is no step"},
    {"fully connected + activations", "fuse_activation",
     "input x FP32[2,3]\n"
     "m = matmul \"ip1\" (x, w FP32[3,5], b FP32[5])\n"
     "e = unary \"elu1\" (m) func=elu alpha=0.5\n"
     "y = unary \"clip1\" (e) func=clip alpha=-1 beta=6\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,5] = matmul \"ip1 + elu1 + clip1\" (x, w FP32[3,5], b FP32[5]) then elu(0.5,0,0), "
     "clip(-1,6,0)\n"
     "output y\n",
     NULL},
    {"scale + activation", "fuse_activation",
     "input x FP32[2,3,4]\n"
     "m = binary \"scale1\" (x, k FP32[3,1]) func=mul\n"
     "y = unary \"leaky1\" (m) func=leaky_relu\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "y FP32[2,3,4] = binary \"scale1 + leaky1\" (x, k FP32[3,1]) func=mul then "
     "leaky_relu(0.00999999978,0,0)\n"
     "output y\n",
     NULL},
    {"sum + activation, in integers: not", "fuse_activation",
     "input x INT64[2,3]\n"
     "m = binary \"sum1\" (x, x) func=add\n"
     "y = unary \"relu1\" (m) func=relu\n"
     "output y\n",
     NULL, NULL},
    {"conv + relu + leaky: the routine is taken", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3]) then leaky_relu(0.5,0,0)\n"
     "y = unary \"leaky1\" (c) func=leaky_relu\n"
     "output y\n",
     NULL, "a step like it is there already"},
    {"conv + hard sigmoid + clip: the routine is taken", "fuse_activation",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "h = unary \"hard1\" (c) func=hard_sigmoid\n"
     "y = unary \"clip1\" (h) func=clip alpha=0.1 beta=0.9\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "h FP32[1,4,6,6] = conv \"conv1 + hard1\" (x, w FP32[4,3,3,3]) then "
     "hard_sigmoid(0.200000003,0.5,0)\n"
     "y FP32[1,4,6,6] = unary \"clip1\" (h) func=clip alpha=0.100000001 beta=0.899999976\n"
     "output y\n",
     "a step like it is there already"},
    /* --- fuse_sum --- */
    {"conv + sum + activation", "fuse_sum fuse_activation",
     "input x FP32[2,4,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,4,1,1], b FP32[4])\n"
     "s = binary \"sum1\" (c, x) func=add\n"
     "y = unary \"relu1\" (s) func=relu\n"
     "output y\n",
     "input x FP32[2,4,8,8]\n"
     "y FP32[2,4,8,8] = conv \"conv1 + sum1 + relu1\" (x, w FP32[4,4,1,1], b FP32[4]) then add(x), "
     "relu\n"
     "output y\n",
     "fuse_sum: conv1 + sum1"},
    {"two convs + sum: the later one takes it", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"down\" (x, v FP32[6,4,1,1])\n"
     "b = conv \"main\" (x, w FP32[6,4,3,3]) pads=1,1,1,1\n"
     "y = binary \"sum1\" (b, a) func=add\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "a FP32[1,6,8,8] = conv \"down\" (x, v FP32[6,4,1,1])\n"
     "y FP32[1,6,8,8] = conv \"main + sum1\" (x, w FP32[6,4,3,3]) pads=1,1,1,1 then add(a)\n"
     "output y\n",
     NULL},
    {"the operand is computed behind the node: sorted", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "b = unary \"late\" (x) func=tanh\n"
     "y = binary \"sum1\" (a, b) func=add\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "b FP32[1,4,8,8] = unary \"late\" (x) func=tanh\n"
     "y FP32[1,4,8,8] = conv \"conv1 + sum1\" (x, v FP32[4,4,1,1]) then add(b)\n"
     "output y\n",
     NULL},
    {"x + x of a conv: two readers", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sum1\" (a, a) func=add\n"
     "output y\n",
     NULL, "a has 2 readers"},
    {"conv on the right of a difference: not", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sub1\" (x, a) func=sub\n"
     "output y\n",
     NULL, NULL},
    {"conv on the left of a difference", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sub1\" (a, x) func=sub\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "y FP32[1,4,8,8] = conv \"conv1 + sub1\" (x, v FP32[4,4,1,1]) then sub(x)\n"
     "output y\n",
     NULL},
    {"the conv is broadcast: not", "fuse_sum",
     "input x FP32[1,4,1,1]\n"
     "input z FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sum1\" (a, z) func=add\n"
     "output y\n",
     NULL, NULL},
    {"the operand is broadcast along width: not", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "input z FP32[1,4,8,1]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sum1\" (a, z) func=add\n"
     "output y\n",
     NULL, "z is broadcast"},
    {"the operand is broadcast over the batch: not", "fuse_sum",
     "input x FP32[2,4,8,8]\n"
     "input z FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"sum1\" (z, a) func=add\n"
     "output y\n",
     NULL, "z is broadcast"},
    {"a product with one number for each channel", "fuse_sum",
     "input x FP32[2,4,8,8]\n"
     "input g FP32[1,4,1,1]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"mul1\" (g, a) func=mul\n"
     "output y\n",
     "input x FP32[2,4,8,8]\n"
     "input g FP32[1,4,1,1]\n"
     "y FP32[2,4,8,8] = conv \"conv1 + mul1\" (x, v FP32[4,4,1,1]) then mul(g)\n"
     "output y\n",
     NULL},
    {"a slope for each channel: not", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1])\n"
     "y = binary \"prelu1\" (a, slope FP32[4,1,1]) func=prelu\n"
     "output y\n",
     NULL, NULL},
    {"a power: not", "fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "a = conv \"conv1\" (x, v FP32[4,4,1,1]) then abs\n"
     "y = binary \"pow1\" (a, e FP32[4,1,1]=3) func=pow\n"
     "output y\n",
     NULL, NULL},
    {"pre-activation: relu, then the sum", "fuse_activation fuse_sum",
     "input x FP32[1,4,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,4,1,1])\n"
     "r = unary \"relu1\" (c) func=relu\n"
     "y = binary \"sum1\" (r, x) func=add\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "y FP32[1,4,8,8] = conv \"conv1 + relu1 + sum1\" (x, w FP32[4,4,1,1]) then relu, add(x)\n"
     "output y\n",
     NULL},
    /* --- fuse_bias --- */
    {"conv + bias", "fuse_bias",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3])\n"
     "y = binary \"bias1\" (c, k FP32[4,1,1]) func=add\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + bias1\" (x, w FP32[4,3,3,3], %3 FP32[4])\n"
     "output y\n",
     "fuse_bias: conv1 + bias1"},
    {"conv with a bias - constant", "fuse_bias",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = binary \"bias1\" (c, k FP32[1,4,1,1]) func=sub\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + bias1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "output y\n",
     NULL},
    {"conv + constant along width: not", "fuse_bias",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,1,1])\n"
     "y = binary \"bias1\" (c, k FP32[8]) func=add\n"
     "output y\n",
     NULL, "not per channel"},
    {"matmul + bias", "fuse_bias",
     "input x FP32[2,3,4]\n"
     "m = matmul \"ip1\" (x, w FP32[4,5]) alpha=0.5\n"
     "y = binary \"bias1\" (k FP32[5], m) func=add\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "y FP32[2,3,5] = matmul \"ip1 + bias1\" (x, w FP32[4,5], %3 FP32[5]) alpha=0.5\n"
     "output y\n",
     NULL},
    {"matmul + number", "fuse_bias",
     "input x FP32[2,3,4]\n"
     "m = matmul \"ip1\" (x, w FP32[4,5])\n"
     "y = unary \"bias1\" (m) func=linear alpha=1 beta=3\n"
     "output y\n",
     "input x FP32[2,3,4]\n"
     "y FP32[2,3,5] = matmul \"ip1 + bias1\" (x, w FP32[4,5], %3 FP32[5])\n"
     "output y\n",
     NULL},
    {"matmul + matrix: not", "fuse_bias",
     "input x FP32[3,4]\n"
     "m = matmul \"ip1\" (x, w FP32[4,5])\n"
     "y = binary \"bias1\" (k FP32[3,5], m) func=add\n"
     "output y\n",
     NULL, "not per channel"},
    {"conv + constant that broadcasts it: not", "fuse_bias",
     "input x FP32[1,1,1,1]\n"
     "c = conv \"conv1\" (x, w FP32[1,1,1,1])\n"
     "y = binary \"bias1\" (c, k FP32[4,1,1]) func=add\n"
     "output y\n",
     NULL, NULL},
    /* --- fold_scale --- */
    {"conv + scale, uniform", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = unary \"scale1\" (c) func=linear alpha=2 beta=1\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + scale1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "output y\n",
     "fold_scale: conv1 + scale1"},
    {"conv + scale, per channel, shared weights", "fold_scale",
     "input x FP32[1,4,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,4,3,3])\n"
     "s = binary \"scale1\" (k FP32[4,1,1], c) func=mul\n"
     "y = conv \"conv2\" (s, w FP32[4,4,3,3])\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "s FP32[1,4,6,6] = conv \"conv1 + scale1\" (x, w FP32[4,4,3,3])\n"
     "y FP32[1,4,4,4] = conv \"conv2\" (s, w FP32[4,4,3,3])\n"
     "output y\n",
     NULL},
    {"conv / constant per channel", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = binary \"div1\" (c, k FP32[4,1,1]=+) func=div\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + div1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "output y\n",
     NULL},
    {"constant / conv: not", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = binary \"div1\" (k FP32[4,1,1], c) func=div\n"
     "output y\n",
     NULL, NULL},
    {"conv / 0: not", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = binary \"div1\" (c, k FP32[4,1,1]=0) func=div\n"
     "output y\n",
     NULL, NULL},
    {"grouped conv + scale", "fold_scale",
     "input x FP32[1,4,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[6,2,3,3]) group=2\n"
     "y = binary \"scale1\" (c, k FP32[6,1,1]) func=mul\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "y FP32[1,6,6,6] = conv \"conv1 + scale1\" (x, w FP32[6,2,3,3]) group=2\n"
     "output y\n",
     NULL},
    {"grouped deconv + scale", "fold_scale",
     "input x FP32[1,4,5,5]\n"
     "c = deconv \"deconv1\" (x, w FP32[4,3,3,2], b FP32[6]) group=2 strides=2,2\n"
     "y = binary \"scale1\" (c, k FP32[6,1,1]) func=mul\n"
     "output y\n",
     "input x FP32[1,4,5,5]\n"
     "y FP32[1,6,11,10] = deconv \"deconv1 + scale1\" (x, w FP32[4,3,3,2], b FP32[6]) group=2 "
     "strides=2,2\n"
     "output y\n",
     NULL},
    {"matmul + scale", "fold_scale",
     "input x FP32[2,3]\n"
     "c = matmul \"ip1\" (x, w FP32[3,5], b FP32[5])\n"
     "y = binary \"scale1\" (c, k FP32[5]) func=mul\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,5] = matmul \"ip1 + scale1\" (x, w FP32[3,5], b FP32[5])\n"
     "output y\n",
     NULL},
    {"transposed matmul + scale", "fold_scale",
     "input x FP32[2,3]\n"
     "c = matmul \"ip1\" (x, w FP32[5,3]) trans_b=1\n"
     "y = binary \"scale1\" (c, k FP32[5]) func=mul\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,5] = matmul \"ip1 + scale1\" (x, w FP32[5,3]) trans_b=1\n"
     "output y\n",
     NULL},
    {"product of two computed matrices: alpha", "fold_scale",
     "input a FP32[2,3,4]\n"
     "input b FP32[2,4,5]\n"
     "s = unary \"scale1\" (a) func=linear alpha=0.5 beta=0\n"
     "m = matmul \"scores\" (s, b)\n"
     "y = unary \"scale2\" (m) func=linear alpha=0.25 beta=0\n"
     "output y\n",
     "input a FP32[2,3,4]\n"
     "input b FP32[2,4,5]\n"
     "y FP32[2,3,5] = matmul \"scale1 + scores + scale2\" (a, b) alpha=0.125\n"
     "output y\n",
     NULL},
    {"product of two computed matrices, and a shift: not", "fold_scale",
     "input a FP32[2,3,4]\n"
     "input b FP32[2,4,5]\n"
     "m = matmul \"scores\" (a, b)\n"
     "y = unary \"scale2\" (m) func=linear alpha=0.25 beta=1\n"
     "output y\n",
     NULL, "no constants to take the scale"},
    {"scale + conv", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "s = unary \"scale1\" (x) func=linear alpha=0.5 beta=0\n"
     "y = conv \"conv1\" (s, w FP32[4,3,3,3], b FP32[4]) pads=1,1,1,1\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,8,8] = conv \"scale1 + conv1\" (x, w FP32[4,3,3,3], b FP32[4]) pads=1,1,1,1\n"
     "output y\n",
     NULL},
    {"scale and shift + conv: not", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "s = unary \"scale1\" (x) func=linear alpha=0.5 beta=1\n"
     "y = conv \"conv1\" (s, w FP32[4,3,3,3], b FP32[4]) pads=1,1,1,1\n"
     "output y\n",
     NULL, "what is padded would not be shifted"},
    {"scale and shift + conv without padding", "fold_scale",
     "input x FP32[1,4,8,8]\n"
     "s = unary \"scale1\" (x) func=linear alpha=0.5 beta=1\n"
     "y = conv \"conv1\" (s, w FP32[4,2,3,3], b FP32[4]) group=2 pads=0,0,0,0\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "y FP32[1,4,6,6] = conv \"scale1 + conv1\" (x, w FP32[4,2,3,3], b FP32[4]) group=2 "
     "pads=0,0,0,0\n"
     "output y\n",
     NULL},
    {"an image's mean and deviation + grouped conv", "fold_scale",
     "input x FP32[1,4,8,8]\n"
     "s = binary \"mean\" (x, m FP32[4,1,1]) func=sub\n"
     "d = binary \"deviation\" (s, v FP32[1,4,1,1]=+) func=div\n"
     "y = conv \"conv1\" (d, w FP32[6,2,3,3]) group=2\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "y FP32[1,6,6,6] = conv \"mean + deviation + conv1\" (x, w FP32[6,2,3,3], %3 FP32[6]) "
     "group=2\n"
     "output y\n",
     "fold_scale: deviation + conv1"},
    {"an image's mean and deviation + conv with padding: the deviation alone", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "s = binary \"deviation\" (v FP32[3,1,1], x) func=mul\n"
     "d = binary \"mean\" (s, m FP32[1,3,1,1]) func=add\n"
     "y = conv \"conv1\" (d, w FP32[6,3,3,3]) pads=1,1,1,1\n"
     "t = binary \"only\" (v FP32[3,1,1], x) func=mul\n"
     "z = conv \"conv2\" (t, w FP32[6,3,3,3]) pads=1,1,1,1\n"
     "output y\noutput z\n",
     "input x FP32[1,3,8,8]\n"
     "s FP32[1,3,8,8] = binary \"deviation\" (v FP32[3,1,1], x) func=mul\n"
     "d FP32[1,3,8,8] = binary \"mean\" (s, m FP32[1,3,1,1]) func=add\n"
     "y FP32[1,6,8,8] = conv \"conv1\" (d, w FP32[6,3,3,3]) pads=1,1,1,1\n"
     "z FP32[1,6,8,8] = conv \"only + conv2\" (x, w FP32[6,3,3,3]) pads=1,1,1,1\n"
     "output y\noutput z\n",
     NULL},
    {"scale and shift + matmul, in both orders of weights", "fold_scale",
     "input x FP32[5,4]\n"
     "s = unary \"scale1\" (x) func=linear alpha=0.5 beta=1\n"
     "a = matmul \"m1\" (s, w FP32[4,3]) alpha=2\n"
     "d = binary \"mean\" (x, m FP32[4]) func=add\n"
     "b = matmul \"m2\" (d, u FP32[3,4], c FP32[3]) trans_b=1\n"
     "output a\noutput b\n",
     "input x FP32[5,4]\n"
     "a FP32[5,3] = matmul \"scale1 + m1\" (x, w FP32[4,3], %5 FP32[3]) alpha=1\n"
     "b FP32[5,3] = matmul \"mean + m2\" (x, u FP32[3,4], c FP32[3]) trans_b=1\n"
     "output a\noutput b\n",
     NULL},
    {"a scale per place, and one that others read: not", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "s = binary \"places\" (x, v FP32[8,8]) func=mul\n"
     "y = conv \"conv1\" (s, w FP32[4,3,3,3])\n"
     "t = binary \"read\" (x, c FP32[3,1,1]) func=mul\n"
     "z = conv \"conv2\" (t, w FP32[4,3,3,3])\n"
     "output y\noutput z\noutput t\n",
     NULL, NULL},
    {"cast + scale and shift, one number or one a channel", "fuse_sum fuse_activation",
     "input x UINT8[2,3,4,4]\n"
     "input i INT64[2,5]\n"
     "f = cast \"cast\" (x) to=12\n"
     "s = binary \"scale\" (f, c FP32[3,1,1]) func=mul\n"
     "y = binary \"shift\" (s, d FP32[3,1,1]) func=add\n"
     "g = cast \"mask\" (i) to=12\n"
     "z = unary \"linear\" (g) func=linear alpha=10 beta=-10\n"
     "output y\noutput z\n",
     "input x UINT8[2,3,4,4]\n"
     "input i INT64[2,5]\n"
     "y FP32[2,3,4,4] = cast \"cast + scale + shift\" (x) to=12 "
     "then mul(c FP32[3,1,1]), add(d FP32[3,1,1])\n"
     "z FP32[2,5] = cast \"mask + linear\" (i) to=12 then linear(10,-10,0)\n"
     "output y\noutput z\n",
     NULL},
    {"cast + another function, cast to fp16: not", "fuse_sum fuse_activation",
     "input x UINT8[2,3]\n"
     "f = cast \"cast\" (x) to=12\n"
     "y = unary \"tanh\" (f) func=tanh\n"
     "g = cast \"half\" (x) to=10\n"
     "z = unary \"linear\" (g) func=linear alpha=10 beta=-10\n"
     "output y\noutput z\n",
     NULL, "tanh is no step"},
    {"conv with computed weights + scale: not", "fold_scale",
     "input x FP32[1,3,8,8]\n"
     "input w FP32[4,3,3,3]\n"
     "c = conv \"conv1\" (x, w)\n"
     "y = unary \"scale1\" (c) func=linear alpha=2 beta=0\n"
     "output y\n",
     NULL, "no constants"},
    /* --- fold_batch_norm --- */
    {"conv + batch norm", "fold_batch_norm",
     "input x FP32[1,3,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "y = batch_norm \"bn1\" (c, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=+) epsilon=0.001\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,6,6] = conv \"conv1 + bn1\" (x, w FP32[4,3,3,3], b FP32[4])\n"
     "output y\n",
     "fold_batch_norm: conv1 + bn1"},
    {"deconv + batch norm", "fold_batch_norm",
     "input x FP32[1,4,5,5]\n"
     "c = deconv \"deconv1\" (x, w FP32[4,3,2,2]) group=2\n"
     "y = batch_norm \"bn1\" (c, s FP32[6], t FP32[6], m FP32[6], v FP32[6]=+)\n"
     "output y\n",
     "input x FP32[1,4,5,5]\n"
     "y FP32[1,6,6,6] = deconv \"deconv1 + bn1\" (x, w FP32[4,3,2,2], %3 FP32[6]) group=2\n"
     "output y\n",
     NULL},
    {"matmul + batch norm", "fold_batch_norm",
     "input x FP32[2,3]\n"
     "c = matmul \"ip1\" (x, w FP32[3,4])\n"
     "y = batch_norm \"bn1\" (c, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=+)\n"
     "output y\n",
     "input x FP32[2,3]\n"
     "y FP32[2,4] = matmul \"ip1 + bn1\" (x, w FP32[3,4], %3 FP32[4])\n"
     "output y\n",
     NULL},
    {"matmul + batch norm over another dimension", "fold_batch_norm",
     "input x FP32[2,4,3]\n"
     "c = matmul \"ip1\" (x, w FP32[3,4])\n"
     "y = batch_norm \"bn1\" (c, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=+)\n"
     "output y\n",
     "input x FP32[2,4,3]\n"
     "c FP32[2,4,4] = matmul \"ip1\" (x, w FP32[3,4])\n"
     "y FP32[2,4,4] = binary \"bn1\" (c, %4 FP32[4,1]) func=mul then add(%5 FP32[4,1])\n"
     "output y\n",
     "bn1 becomes a scale"},
    {"batch norm + activation before a conv", "fold_batch_norm fuse_activation",
     "input x FP32[1,4,8,8]\n"
     "n = batch_norm \"bn1\" (x, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=+)\n"
     "r = unary \"relu1\" (n) func=relu\n"
     "y = conv \"conv1\" (r, w FP32[4,4,3,3])\n"
     "output y\n",
     "input x FP32[1,4,8,8]\n"
     "r FP32[1,4,8,8] = binary \"bn1 + relu1\" (x, %4 FP32[4,1,1]) func=mul then add(%5 "
     "FP32[4,1,1]), relu\n"
     "y FP32[1,4,6,6] = conv \"conv1\" (r, w FP32[4,4,3,3])\n"
     "output y\n",
     NULL},
    {"batch norm of a value with two readers", "fold_batch_norm",
     "input x FP32[1,4,8,8]\n"
     "c = conv \"conv1\" (x, w FP32[4,4,1,1])\n"
     "y = batch_norm \"bn1\" (c, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=+)\n"
     "output y\n"
     "output c\n",
     "input x FP32[1,4,8,8]\n"
     "c FP32[1,4,8,8] = conv \"conv1\" (x, w FP32[4,4,1,1])\n"
     "y FP32[1,4,8,8] = binary \"bn1\" (c, %4 FP32[4,1,1]) func=mul then add(%5 FP32[4,1,1])\n"
     "output y\n"
     "output c\n",
     "conv1: its output has 2 readers"},
    {"batch norm with computed statistics: not", "fold_batch_norm",
     "input x FP32[1,4,8,8]\n"
     "input v FP32[4]\n"
     "a = unary \"abs\" (v) func=abs\n"
     "y = batch_norm \"bn1\" (x, s FP32[4], t FP32[4], m FP32[4], a)\n"
     "output y\n",
     NULL, "not constant"},
    {"batch norm with a negative variance: not", "fold_batch_norm",
     "input x FP32[1,4,8,8]\n"
     "y = batch_norm \"bn1\" (x, s FP32[4], t FP32[4], m FP32[4], v FP32[4]=-1)\n"
     "output y\n",
     NULL, "negative or not finite"},
    {"half precision conv + batch norm", "fold_batch_norm",
     "input x FP16[1,1,1,1]\n"
     "c = conv \"conv1\" (x, w FP16[1,1,1,1]=2)\n"
     "y = batch_norm \"bn1\" (c, s FP16[1]=2, t FP16[1]=1, m FP16[1]=0, v FP16[1]=1) epsilon=0\n"
     "output y\n",
     "input x FP16[1,1,1,1]\n"
     "y FP16[1,1,1,1] = conv \"conv1 + bn1\" (x, w FP16[1,1,1,1], %3 FP16[1])\n"
     "output y\n",
     NULL},
    /* --- fold_pad --- */
    {"pad + conv", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,1,2,0,0,3,0\n"
     "y = conv \"conv1\" (p, w FP32[4,3,3,3]) pads=0,1,1,0\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,4,11,9] = conv \"pad1 + conv1\" (x, w FP32[4,3,3,3]) pads=1,3,4,0\n"
     "output y\n",
     NULL},
    {"pad with a value + conv: not", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,1,1,0,0,1,1 value=1\n"
     "y = conv \"conv1\" (p, w FP32[4,3,3,3])\n"
     "output y\n",
     NULL, "cannot be its own"},
    {"pad of channels + conv: not", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,1,0,0,0,0,0,0\n"
     "y = conv \"conv1\" (p, w FP32[4,4,3,3])\n"
     "output y\n",
     NULL, "cannot be its own"},
    {"crop + conv: not", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,-1,0,0,0,0,0\n"
     "y = conv \"conv1\" (p, w FP32[4,3,3,3])\n"
     "output y\n",
     NULL, "cannot be its own"},
    {"pad + average pool", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,1,1,0,0,1,1\n"
     "y = pool \"pool1\" (p) func=1 kernel=3,3\n"
     "output y\n",
     "input x FP32[1,3,8,8]\n"
     "y FP32[1,3,8,8] = pool \"pad1 + pool1\" (x) func=1 kernel=3,3 count_include_pad=1 "
     "pads=1,1,1,1\n"
     "output y\n",
     NULL},
    {"pad + average pool that does not count its own: not", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,1,1,0,0,1,1\n"
     "y = pool \"pool1\" (p) func=1 kernel=3,3 pads=1,1,1,1\n"
     "output y\n",
     NULL, "cannot be its own"},
    {"pad + max pool: not", "fold_pad",
     "input x FP32[1,3,8,8]\n"
     "p = pad \"pad1\" (x) pads=0,0,1,1,0,0,1,1\n"
     "y = pool \"pool1\" (p) func=0 kernel=3,3\n"
     "output y\n",
     NULL, "cannot be its own"},
};

static void fusions(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fusions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
