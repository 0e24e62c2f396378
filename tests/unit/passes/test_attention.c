/* SPDX-License-Identifier: Apache-2.0 */
/* Attention found by its parts, and the products before it that become one. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/passes/rewrite_case.h"

#define FUSE "fuse_attention merge_chains merge_shuffles erase_noops"

/* Heads split from three tensors of [2,5,12]. */
#define SPLIT                                                                                      \
    "input q FP32[2,5,12]\n"                                                                       \
    "input k FP32[2,5,12]\n"                                                                       \
    "input v FP32[2,5,12]\n"                                                                       \
    "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"                                                      \
    "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"                                                      \
    "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"                                                      \
    "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"                                                    \
    "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
#define MERGE                                                                                      \
    "t = transpose \"t\" (o) perm=0,2,1,3\n"                                                       \
    "y = reshape \"y\" (t) shape=2,5,12\n"                                                         \
    "output y\n"
#define INPUTS                                                                                     \
    "input q FP32[2,5,12]\n"                                                                       \
    "input k FP32[2,5,12]\n"                                                                       \
    "input v FP32[2,5,12]\n"

static const struct rewrite_case cases[] = {
    {"attention: transposed keys, scaled product, mask", FUSE,
     SPLIT "input m FP32[2,1,1,5]\n"
           "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "s = matmul \"qk\" (qt, kt) alpha=0.5\n"
           "a = binary \"mask\" (m, s) func=add\n"
           "p = softmax \"p\" (a) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE,
     INPUTS "input m FP32[2,1,1,5]\n"
            "y FP32[2,5,12] = attention \"qk + mask + p + pv\" (q, k, v, m) heads=3 alpha=0.5 "
            "packed=0\n"
            "output y\n",
     "qk + mask + p + pv is attention"},
    {"attention: keys by a flag, the mask in the epilogue, only the transpose merges", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,1,3\n"
           "s = matmul \"qk\" (qt, kt) trans_b=1 alpha=0.5 then add(m FP32[5])\n"
           "p = softmax \"p\" (s) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n"
           "y = transpose \"t\" (o) perm=0,2,1,3\n"
           "output y\n",
     INPUTS "%5 FP32[2,5,12] = attention \"qk + p + pv\" (q, k, v, m FP32[5]) heads=3 alpha=0.5 "
            "packed=0\n"
            "y FP32[2,5,3,4] = reshape \"t\" (%5) shape=2,5,3,4\n"
            "output y\n",
     NULL},
    {"attention: scales on the way, of queries and keys alike", FUSE,
     SPLIT "qs = unary \"qs\" (qt) func=linear alpha=0.5 beta=0\n"
           "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "ks = unary \"ks\" (kt) func=linear alpha=0.25 beta=0\n"
           "s = matmul \"qk\" (qs, ks) alpha=2\n"
           "p = softmax \"p\" (s) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE,
     INPUTS "y FP32[2,5,12] = attention \"qk + p + pv\" (q, k, v) heads=3 alpha=0.25 packed=0\n"
            "output y\n",
     NULL},
    {"attention: one tensor, by gathers", FUSE,
     "input x FP32[2,5,36]\n"
     "x5 = reshape \"x5\" (x) shape=2,5,3,3,4\n"
     "xt = transpose \"xt\" (x5) perm=2,0,3,1,4\n"
     "q = gather \"q\" (xt, i0 INT64[]=0) axis=0\n"
     "k = gather \"k\" (xt, i1 INT64[]=1) axis=0\n"
     "v = gather \"v\" (xt, i2 INT64[1]=-1) axis=0\n"
     "v4 = reshape \"v4\" (v) shape=2,3,5,4\n"
     "s = matmul \"qk\" (q, k) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"pv\" (p, v4)\n" MERGE,
     "input x FP32[2,5,36]\n"
     "y FP32[2,5,12] = attention \"qk + p + pv\" (x) heads=3 alpha=1 packed=1\n"
     "output y\n",
     "is attention, packed"},
    {"attention: one tensor, by slices of its rows, with a mask", FUSE,
     "input x FP32[10,36]\n"
     "input m FP32[5,5]\n"
     "q2 = slice \"q2\" (x) starts=0,0 ends=10,12 steps=1,1\n"
     "k2 = slice \"k2\" (x) starts=0,12 ends=10,24 steps=1,1\n"
     "v2 = slice \"v2\" (x) starts=0,24 ends=10,36 steps=1,1\n"
     "q4 = reshape \"q4\" (q2) shape=2,5,3,4\n"
     "k4 = reshape \"k4\" (k2) shape=2,5,3,4\n"
     "v4 = reshape \"v4\" (v2) shape=2,5,3,4\n"
     "q = transpose \"q\" (q4) perm=0,2,1,3\n"
     "k = transpose \"k\" (k4) perm=0,2,3,1\n"
     "v = transpose \"v\" (v4) perm=0,2,1,3\n"
     "s = matmul \"qk\" (q, k)\n"
     "a = binary \"mask\" (s, m) func=add\n"
     "p = softmax \"p\" (a) axis=3\n"
     "o = matmul \"pv\" (p, v)\n" MERGE,
     "input x FP32[10,36]\n"
     "input m FP32[5,5]\n"
     "%3 FP32[2,5,36] = reshape \"pv\" (x) shape=2,5,36\n"
     "y FP32[2,5,12] = attention \"qk + mask + p + pv\" (%3, -, -, m) heads=3 alpha=1 packed=1\n"
     "output y\n",
     NULL},
    {"attention: windows of a batch, products of rank 3 (MaxViT)", FUSE,
     "input x FP32[2,3,5,36]\n"
     "q3 = slice \"q3\" (x) starts=0,0,0,0 ends=2,3,5,12 steps=1,1,1,1\n"
     "k3 = slice \"k3\" (x) starts=0,0,0,12 ends=2,3,5,24 steps=1,1,1,1\n"
     "v3 = slice \"v3\" (x) starts=0,0,0,24 ends=2,3,5,36 steps=1,1,1,1\n"
     "q4 = reshape \"q4\" (q3) shape=2,3,5,3,4\n"
     "k4 = reshape \"k4\" (k3) shape=2,3,5,3,4\n"
     "v4 = reshape \"v4\" (v3) shape=2,3,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,1,3,2,4\n"
     "kt = transpose \"kt\" (k4) perm=0,1,3,2,4\n"
     "vt = transpose \"vt\" (v4) perm=0,1,3,2,4\n"
     "ks = unary \"ks\" (kt) func=linear alpha=0.5 beta=0\n"
     "q = reshape \"q\" (qt) shape=18,5,4\n"
     "k = reshape \"k\" (ks) shape=18,5,4\n"
     "v = reshape \"v\" (vt) shape=18,5,4\n"
     "s = matmul \"qk\" (q, k) trans_b=1\n"
     "p = softmax \"p\" (s) axis=2\n"
     "o = matmul \"pv\" (p, v)\n"
     "o5 = reshape \"o5\" (o) shape=2,3,3,5,4\n"
     "ot = transpose \"ot\" (o5) perm=0,1,3,2,4\n"
     "y = reshape \"y\" (ot) shape=2,3,5,12\n"
     "output y\n",
     "input x FP32[2,3,5,36]\n"
     "%2 FP32[6,5,36] = reshape \"pv\" (x) shape=6,5,36\n"
     "%3 FP32[6,5,12] = attention \"qk + p + pv\" (%2) heads=3 alpha=0.5 packed=1\n"
     "y FP32[2,3,5,12] = reshape \"y\" (%3) shape=2,3,5,12\n"
     "output y\n",
     NULL},
    {"attention: keys and values in one tensor are cut apart", FUSE,
     "input q FP32[2,5,12]\n"
     "input kv FP32[2,7,24]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "kv5 = reshape \"kv5\" (kv) shape=2,7,2,3,4\n"
     "kvt = transpose \"kvt\" (kv5) perm=2,0,3,1,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k = gather \"k\" (kvt, i0 INT64[]=0) axis=0\n"
     "v = gather \"v\" (kvt, i1 INT32[]=1) axis=0\n"
     "s = matmul \"qk\" (qt, k) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"pv\" (p, v)\n" MERGE,
     "input q FP32[2,5,12]\n"
     "input kv FP32[2,7,24]\n"
     "%3 FP32[2,7,12] = slice \"pv\" (kv) starts=0,0,0 ends=2,7,12 steps=1,1,1\n"
     "%4 FP32[2,7,12] = slice \"pv\" (kv) starts=0,0,12 ends=2,7,24 steps=1,1,1\n"
     "y FP32[2,5,12] = attention \"qk + p + pv\" (q, %3, %4) heads=3 alpha=1 packed=0\n"
     "output y\n",
     NULL},
    {"attention: one head, one query: transposes are reshapes or nothing", FUSE,
     "input q FP32[2,1,4]\n"
     "input k FP32[2,5,4]\n"
     "q4 = reshape \"q4\" (q) shape=2,1,1,4\n"
     "k4 = reshape \"k4\" (k) shape=2,1,5,4\n"
     "s = matmul \"qk\" (q4, k4) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"pv\" (p, k4)\n"
     "y = reshape \"y\" (o) shape=2,1,4\n"
     "output y\n",
     "input q FP32[2,1,4]\n"
     "input k FP32[2,5,4]\n"
     "y FP32[2,1,4] = attention \"qk + p + pv\" (q, k, k) heads=1 alpha=1 packed=0\n"
     "output y\n",
     NULL},
    {"probabilities that others read: not", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "s = matmul \"qk\" (qt, kt)\n"
           "p = softmax \"p\" (s) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE "output p\n",
     NULL, "pv: the probabilities have other readers"},
    {"softmax over the queries: not", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "s = matmul \"qk\" (qt, kt)\n"
           "p = softmax \"p\" (s) axis=2\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE,
     NULL, "pv: its softmax is not over the keys"},
    {"scores through another function: not", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "s = matmul \"qk\" (qt, kt)\n"
           "c = unary \"cap\" (s) func=tanh\n"
           "p = softmax \"p\" (c) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE,
     NULL, "pv: its scores are no product"},
    {"keys for all batches: not", FUSE,
     "input q FP32[2,5,12]\n"
     "input k FP32[1,5,12]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "k4 = reshape \"k4\" (k) shape=1,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "kt = transpose \"kt\" (k4) perm=0,2,1,3\n"
     "s = matmul \"qk\" (qt, kt) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"pv\" (p, kt)\n" MERGE,
     NULL, "pv: an operand broadcasts"},
    {"heads between the parts: heads first", FUSE,
     "input x FP32[2,5,36]\n"
     "x5 = reshape \"x5\" (x) shape=2,5,3,3,4\n"
     "xt = transpose \"xt\" (x5) perm=3,0,2,1,4\n"
     "q = gather \"q\" (xt, i0 INT64[]=0) axis=0\n"
     "k = gather \"k\" (xt, i1 INT64[]=1) axis=0\n"
     "v = gather \"v\" (xt, i2 INT64[]=2) axis=0\n"
     "s = matmul \"qk\" (q, k) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"pv\" (p, v)\n" MERGE,
     "input x FP32[2,5,36]\n"
     "x5 FP32[2,5,3,3,4] = reshape \"x5\" (x) shape=2,5,3,3,4\n"
     "xt FP32[3,2,3,5,4] = transpose \"xt\" (x5) perm=3,0,2,1,4\n"
     "q FP32[2,3,5,4] = gather \"q\" (xt, i0 INT64[]) axis=0\n"
     "k FP32[2,3,5,4] = gather \"k\" (xt, i1 INT64[]) axis=0\n"
     "v FP32[2,3,5,4] = gather \"v\" (xt, i2 INT64[]) axis=0\n"
     "y FP32[2,5,12] = attention \"qk + p + pv\" (q, k, v) heads=3 alpha=1 packed=0\n"
     "output y\n",
     NULL},
    {"rotated queries: heads first", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "r = binary \"rotate\" (qt, c FP32[5,4]) func=mul\n"
           "s = matmul \"qk\" (r, kt)\n"
           "p = softmax \"p\" (s) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n" MERGE,
     INPUTS "q4 FP32[2,5,3,4] = reshape \"q4\" (q) shape=2,5,3,4\n"
            "qt FP32[2,3,5,4] = transpose \"qt\" (q4) perm=0,2,1,3\n"
            "r FP32[2,3,5,4] = binary \"rotate\" (qt, c FP32[5,4]) func=mul\n"
            "y FP32[2,5,12] = attention \"qk + p + pv\" (r, k, v) heads=3 alpha=1 packed=0\n"
            "output y\n",
     NULL},
    {"heads merged in another order: one transpose more", FUSE,
     SPLIT "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
           "s = matmul \"qk\" (qt, kt)\n"
           "p = softmax \"p\" (s) axis=3\n"
           "o = matmul \"pv\" (p, vt)\n"
           "t = transpose \"t\" (o) perm=0,2,3,1\n"
           "y = reshape \"y\" (t) shape=2,5,12\n"
           "output y\n",
     INPUTS "%5 FP32[2,5,12] = attention \"qk + p + pv\" (q, k, v) heads=3 alpha=1 packed=0\n"
            "%6 FP32[2,5,3,4] = reshape \"t\" (%5) shape=2,5,3,4\n"
            "t FP32[2,5,4,3] = transpose \"t\" (%6) perm=0,1,3,2\n"
            "y FP32[2,5,12] = reshape \"y\" (t) shape=2,5,12\n"
            "output y\n",
     NULL},
    /* --- merge_siblings --- */
    {"siblings: query, key and value, weights in both orders, one without a bias", "merge_siblings",
     "input x FP32[2,5,6]\n"
     "q = matmul \"q\" (x, wq FP32[6,12], bq FP32[12]) alpha=0.5\n"
     "k = matmul \"k\" (x, wk FP32[12,6]) trans_b=1\n"
     "v = matmul \"v\" (x, wv FP32[6,12], bv FP32[12])\n"
     "y = attention \"a\" (q, k, v, m FP32[5,5]) heads=3 alpha=0.5\n"
     "output y\n",
     "input x FP32[2,5,6]\n"
     "%5 FP32[2,5,36] = matmul \"q + k + v\" (x, %3 FP32[6,36], %4 FP32[36])\n"
     "y FP32[2,5,12] = attention \"a\" (%5, -, -, m FP32[5,5]) heads=3 alpha=0.5 packed=1\n"
     "output y\n",
     "q + k + v read the same input"},
    {"siblings of rank 2", "merge_siblings",
     "input x FP32[10,6]\n"
     "q = matmul \"q\" (x, wq FP32[6,12])\n"
     "k = matmul \"k\" (x, wk FP32[6,12])\n"
     "v = matmul \"v\" (x, wv FP32[6,12])\n"
     "q3 = reshape \"q3\" (q) shape=2,5,12\n"
     "k3 = reshape \"k3\" (k) shape=2,5,12\n"
     "v3 = reshape \"v3\" (v) shape=2,5,12\n"
     "y = attention \"a\" (q3, k3, v3) heads=3\n"
     "output y\n",
     "input x FP32[10,6]\n"
     "%3 FP32[10,36] = matmul \"q + k + v\" (x, %2 FP32[6,36])\n"
     "%4 FP32[2,5,36] = reshape \"\" (%3) shape=2,5,36\n"
     "y FP32[2,5,12] = attention \"a\" (%4) heads=3 alpha=1 packed=1\n"
     "output y\n",
     NULL},
    {"siblings of another input: not", "merge_siblings",
     "input x FP32[2,5,6]\n"
     "input z FP32[2,5,6]\n"
     "q = matmul \"q\" (x, wq FP32[6,12])\n"
     "k = matmul \"k\" (z, wk FP32[6,12])\n"
     "v = matmul \"v\" (z, wv FP32[6,12])\n"
     "y = attention \"a\" (q, k, v) heads=3\n"
     "output y\n",
     NULL, "k: it reads another tensor"},
    {"siblings of other sizes, or with other readers, or computed weights: not", "merge_siblings",
     "input x FP32[2,5,6]\n"
     "input w FP32[6,12]\n"
     "q = matmul \"q\" (x, wq FP32[6,12])\n"
     "k = matmul \"k\" (x, wk FP32[6,12])\n"
     "v = matmul \"v\" (x, wv FP32[6,9])\n"
     "y = attention \"a\" (q, k, v) heads=3\n"
     "q2 = matmul \"q2\" (x, wq FP32[6,12])\n"
     "z = attention \"b\" (q2, q2, q2) heads=3\n"
     "q3 = matmul \"q3\" (x, w)\n"
     "k3 = matmul \"k3\" (x, wk FP32[6,12])\n"
     "v3 = matmul \"v3\" (x, wk FP32[6,12])\n"
     "u = attention \"c\" (q3, k3, v3) heads=3\n"
     "output y\noutput z\noutput u\n",
     NULL, "q3: its weights are computed"},
    /* --- together --- */
    {"all: a layer with its linear parts", "**",
     "input x FP32[2,5,12]\n"
     "ql = matmul \"ql\" (x, wq FP32[12,12])\n"
     "kl = matmul \"kl\" (x, wk FP32[12,12])\n"
     "vl = matmul \"vl\" (x, wv FP32[12,12])\n"
     "q = binary \"qb\" (bq FP32[12], ql) func=add\n"
     "k = binary \"kb\" (bk FP32[12], kl) func=add\n"
     "v = binary \"vb\" (bv FP32[12], vl) func=add\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
     "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
     "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
     "s = matmul \"qk\" (qt, kt)\n"
     "d = binary \"div\" (s, two FP32[]=2) func=div\n"
     "a = binary \"mask\" (d, m FP32[2,1,1,5]) func=add\n"
     "p = softmax \"p\" (a) axis=3\n"
     "o = matmul \"pv\" (p, vt)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "r = reshape \"r\" (t) shape=2,5,12\n"
     "l = matmul \"l\" (r, wl FP32[12,12], bl FP32[12])\n"
     "y = binary \"sum\" (l, x) func=add\n"
     "output y\n",
     "input x FP32[2,5,12]\n"
     "%8 FP32[2,5,36] = matmul \"ql + qb + kl + kb + vl + vb\" (x, %6 FP32[12,36], %7 FP32[36])\n"
     "%5 FP32[2,5,12] = attention \"qk + div + mask + p + pv\" (%8, -, -, m FP32[2,1,1,5]) "
     "heads=3 alpha=0.5 packed=1\n"
     "y FP32[2,5,12] = matmul \"l + sum\" (%5, wl FP32[12,12], bl FP32[12]) then add(x)\n"
     "output y\n",
     "is attention"},
};

static void cases_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
