/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as exporters write it: each graph, after all passes, has one attention and no softmax,
 * and computes what it computed before. Graphs in which attention would be wrong keep their
 * softmax, and the log says why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/same.h"

enum { LOG_BYTES = 1 << 16, SEEDS = 4 };

struct spelling {
    const char *what, *graph;
    /* A part of the attention's line in the text, behind its name. For a graph that must not become
     * attention, a part of the log. */
    const char *part;
};

/* Two batches of three heads of four columns; five queries. */
#define ROWS "input q FP32[2,5,12]\ninput k FP32[2,5,12]\ninput v FP32[2,5,12]\n"
#define QKV                                                                                        \
    ROWS "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"                                                 \
         "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"                                                 \
         "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"                                                 \
         "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"                                               \
         "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"                                               \
         "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
#define SCORES QKV "s = matmul \"s\" (qt, kt) alpha=0.5\n"
#define MERGE                                                                                      \
    "o = matmul \"o\" (p, vt)\n"                                                                   \
    "t = transpose \"t\" (o) perm=0,2,1,3\n"                                                       \
    "y = reshape \"y\" (t) shape=2,5,12\n"                                                         \
    "output y\n"
#define SOFTMAX "p = softmax \"p\" (a) axis=3\n"
#define GUARDED                                                                                    \
    "p0 = softmax \"p0\" (a) axis=3\n"                                                             \
    "nan = unary \"nan\" (p0) func=is_nan\n"                                                       \
    "p = select \"guard\" (nan, nought FP32[]=0, p0)\n"
/* The lower triangle of ones, which folds to a constant. */
#define CAUSAL                                                                                     \
    "tril = trilu \"tril\" (ones FP32[5,5]=1) upper=0\n"                                           \
    "causal = binary \"causal\" (tril, half FP32[]=0.5) func=greater\n"

static const struct spelling attentions[] = {
    /* --- masks --- */
    {"a mask that is added, of ones and zeros by a cast",
     SCORES "input m INT64[2,5]\n"
            "f = cast \"f\" (m) to=12\n"
            "g = reshape \"g\" (f) shape=2,1,1,5\n"
            "h = unary \"h\" (g) func=linear alpha=8 beta=-8\n"
            "a = binary \"a\" (s, h) func=add\n" SOFTMAX MERGE,
     "(q, k, v, h) heads=3 alpha=0.5"},
    {"torch: a BOOL mask becomes 0 and -inf, with the guard",
     SCORES "input m BOOL[2,1,1,5]\n"
            "w = select \"w\" (m, zero FP32[]=0, low FP32[]=-inf)\n"
            "a = binary \"a\" (s, w) func=add\n" GUARDED MERGE,
     "(q, k, v, m) heads=3 alpha=0.5"},
    {"a BOOL mask of queries and keys, hidden ones true",
     SCORES "input m BOOL[2,1,5,5]\n"
            "w = select \"w\" (m, low FP32[1]=-inf, zero FP32[1]=0)\n"
            "a = binary \"a\" (s, w) func=add\n" GUARDED MERGE,
     "(q, k, v, %"},
    {"a number as low as the type's hides: nobody is alone",
     SCORES "input m BOOL[2,1,5,5]\n"
            "w = select \"w\" (m, zero FP32[]=0, low FP32[]=-3.4028234663852886e38)\n"
            "a = binary \"a\" (s, w) func=add\n" SOFTMAX MERGE,
     "(q, k, v, %"},
    {"Where on the scores, with a number that is not the lowest",
     SCORES "input m BOOL[2,1,1,5]\n"
            "a = select \"a\" (m, s, low FP32[]=-10000)\n" SOFTMAX MERGE,
     "(q, k, v, "},
    {"Where on the scores, the other way round, the scale behind it",
     QKV "s = matmul \"s\" (qt, kt)\n"
         "input m BOOL[2,1,5,5]\n"
         "w = select \"w\" (m, low FP32[]=-inf, s)\n"
         "a = binary \"a\" (w, two FP32[]=2) func=div\n" GUARDED MERGE,
     "heads=3 alpha=0.5"},
    {"DeBERTa: the same condition hides scores and makes probabilities zero",
     SCORES "input m BOOL[2,1,5,5]\n"
            "n = unary \"n\" (m) func=not\n"
            "a = select \"a\" (n, low FP32[]=-3e38, s)\n"
            "p0 = softmax \"p0\" (a) axis=3\n"
            "p = select \"zeroed\" (n, zero FP32[]=0, p0)\n" MERGE,
     "(q, k, v, m) heads=3 alpha=0.5"},
    {"GPT-2: causal by Where",
     SCORES CAUSAL "a = select \"a\" (causal, s, low FP32[]=-10000)\n" SOFTMAX MERGE,
     "(q, k, v) heads=3 alpha=0.5 packed=0 causal=1"},
    {"GPT-2 of old: causal by a product and a sum",
     SCORES "tril = trilu \"tril\" (ones FP32[1,1,5,5]=1) upper=0\n"
            "keep = binary \"keep\" (s, tril) func=mul\n"
            "less = unary \"less\" (tril) func=linear alpha=-10000 beta=10000\n"
            "a = binary \"a\" (keep, less) func=sub\n" SOFTMAX MERGE,
     "(q, k, v) heads=3 alpha=0.5 packed=0 causal=1"},
    {"a constant of 0 and -inf is causal",
     SCORES CAUSAL "w = select \"w\" (causal, zero FP32[]=0, low FP32[]=-inf)\n"
                   "a = binary \"a\" (w, s) func=add\n" GUARDED MERGE,
     "(q, k, v) heads=3 alpha=0.5 packed=0 causal=1"},
    {"causal and a mask of keys at once",
     SCORES CAUSAL "input m BOOL[2,1,1,5]\n"
                   "both = binary \"both\" (m, causal) func=and\n"
                   "w = select \"w\" (both, zero FP32[]=0, low FP32[]=-inf)\n"
                   "a = binary \"a\" (s, w) func=add\n" GUARDED MERGE,
     "(q, k, v, m) heads=3 alpha=0.5 packed=0 causal=1"},
    {"causal and a mask of keys, the lowest number: one mask",
     SCORES CAUSAL "input m BOOL[2,1,1,5]\n"
                   "both = binary \"both\" (m, causal) func=and\n"
                   "w = select \"w\" (both, zero FP32[]=0, low FP32[]=-3e38)\n"
                   "a = binary \"a\" (s, w) func=add\n" SOFTMAX MERGE,
     "(q, k, v, %"},
    {"causal by Where, keys by a sum: one mask",
     SCORES CAUSAL "input m BOOL[2,1,1,5]\n"
                   "w = select \"w\" (m, zero FP32[]=0, low FP32[]=-3e38)\n"
                   "c = select \"c\" (causal, s, low)\n"
                   "a = binary \"a\" (c, w) func=add\n" SOFTMAX MERGE,
     "(q, k, v, "},
    {"a mask that hides nothing",
     SCORES "a = binary \"a\" (s, zeros FP32[2,1,5,5]=0) func=add\n" SOFTMAX MERGE,
     "(q, k, v) heads=3 alpha=0.5"},
    {"T5: a bias of relative positions, by head; no scale",
     QKV "s = matmul \"s\" (qt, kt)\n"
         "input m BOOL[2,1,1,5]\n"
         "w = select \"w\" (m, zero FP32[]=0, low FP32[]=-3.4e38)\n"
         "b = binary \"b\" (bias FP32[1,3,5,5], w) func=add\n"
         "a = binary \"a\" (s, b) func=add\n" SOFTMAX MERGE,
     "(q, k, v, b) heads=3 alpha=1"},
    {"a bias of three dimensions, two sums",
     SCORES "input m FP32[2,1,5,5]\n"
            "b = binary \"b\" (bias FP32[3,5,5], s) func=add\n"
            "a = binary \"a\" (b, m) func=add\n" SOFTMAX MERGE,
     "(q, k, v, "},
    {"a bias that is scaled with the scores",
     QKV "s = matmul \"s\" (qt, kt)\n"
         "b = binary \"b\" (s, bias FP32[3,5,5]) func=add\n"
         "a = unary \"a\" (b) func=linear alpha=0.25 beta=3\n" SOFTMAX MERGE,
     "heads=3 alpha=0.25"},
    {"hidden, then a bias, then hidden",
     SCORES "input m BOOL[2,1,1,5]\n"
            "input n BOOL[5,5]\n"
            "c = select \"c\" (m, s, low FP32[]=-inf)\n"
            "b = binary \"b\" (c, bias FP32[3,5,5]) func=add\n"
            "a = select \"a\" (n, low, b)\n" GUARDED MERGE,
     "(q, k, v, "},
    {"half precision with softmax in single precision",
     "input q FP16[2,5,12]\ninput k FP16[2,5,12]\ninput v FP16[2,5,12]\ninput m BOOL[2,1,1,5]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
     "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "kt = transpose \"kt\" (k4) perm=0,2,3,1\n"
     "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
     "s = matmul \"s\" (qt, kt) alpha=0.5\n"
     "w = select \"w\" (m, zero FP16[]=0, low FP16[]=-inf)\n"
     "b = binary \"b\" (s, w) func=add\n"
     "a = cast \"a\" (b) to=12\n" GUARDED "h = cast \"h\" (p) to=10\n"
     "o = matmul \"o\" (h, vt)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=2,5,12\n"
     "output y\n",
     "(q, k, v, m) heads=3 alpha=0.5"},
    /* --- heads --- */
    {"no merge behind it",
     SCORES "p = softmax \"p\" (s) axis=3\n"
            "o = matmul \"o\" (p, vt)\noutput o\n",
     "(q, k, v) heads=3"},
    {"batched products of rank 3, mask at rank 4",
     ROWS "input m FP32[2,1,1,5]\n"
          "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
          "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
          "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
          "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
          "kt = transpose \"kt\" (k4) perm=0,2,1,3\n"
          "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
          "q3 = reshape \"q3\" (qt) shape=6,5,4\n"
          "k3 = reshape \"k3\" (kt) shape=6,5,4\n"
          "v3 = reshape \"v3\" (vt) shape=6,5,4\n"
          "kk = transpose \"kk\" (k3) perm=0,2,1\n"
          "s = matmul \"s\" (q3, kk)\n"
          "s4 = reshape \"s4\" (s) shape=2,3,5,5\n"
          "a = binary \"a\" (s4, m) func=add\n"
          "a3 = reshape \"a3\" (a) shape=6,5,5\n"
          "p = softmax \"p\" (a3) axis=2\n"
          "o = matmul \"o\" (p, v3)\n"
          "o4 = reshape \"o4\" (o) shape=2,3,5,4\n"
          "t = transpose \"t\" (o4) perm=0,2,1,3\n"
          "y = reshape \"y\" (t) shape=2,5,12\noutput y\n",
     "(q, k, v, m) heads=3 alpha=1"},
    {"torch's MultiheadAttention: sequences first, one product of the batch's heads",
     "input q FP32[5,2,12]\ninput k FP32[7,2,12]\ninput v FP32[7,2,12]\n"
     "q3 = reshape \"q3\" (q) shape=5,6,4\n"
     "k3 = reshape \"k3\" (k) shape=7,6,4\n"
     "v3 = reshape \"v3\" (v) shape=7,6,4\n"
     "qt = transpose \"qt\" (q3) perm=1,0,2\n"
     "kt = transpose \"kt\" (k3) perm=1,2,0\n"
     "vt = transpose \"vt\" (v3) perm=1,0,2\n"
     "qs = binary \"qs\" (qt, two FP32[]=2) func=div\n"
     "s = matmul \"s\" (qs, kt)\n"
     "p = softmax \"p\" (s) axis=2\n"
     "o = matmul \"o\" (p, vt)\n"
     "t = transpose \"t\" (o) perm=1,0,2\n"
     "y = reshape \"y\" (t) shape=10,12\noutput y\n",
     "heads=6 alpha=0.5"},
    {"the same with a mask of keys for each batch",
     "input q FP32[5,2,12]\ninput k FP32[5,2,12]\ninput v FP32[5,2,12]\ninput m BOOL[2,5]\n"
     "q3 = reshape \"q3\" (q) shape=5,6,4\n"
     "k3 = reshape \"k3\" (k) shape=5,6,4\n"
     "v3 = reshape \"v3\" (v) shape=5,6,4\n"
     "qt = transpose \"qt\" (q3) perm=1,0,2\n"
     "kt = transpose \"kt\" (k3) perm=1,2,0\n"
     "vt = transpose \"vt\" (v3) perm=1,0,2\n"
     "s = matmul \"s\" (qt, kt)\n"
     "s4 = reshape \"s4\" (s) shape=2,3,5,5\n"
     "m4 = reshape \"m4\" (m) shape=2,1,1,5\n"
     "h = select \"h\" (m4, low FP32[]=-inf, s4)\n"
     "a = reshape \"a\" (h) shape=6,5,5\n"
     "p0 = softmax \"p0\" (a) axis=2\n"
     "nan = unary \"nan\" (p0) func=is_nan\n"
     "p = select \"p\" (nan, zero FP32[]=0, p0)\n"
     "o = matmul \"o\" (p, vt)\n"
     "t = transpose \"t\" (o) perm=1,0,2\n"
     "y = reshape \"y\" (t) shape=5,2,12\noutput y\n",
     "heads=6 alpha=1"},
    {"one head without a batch",
     "input q FP32[5,4]\ninput k FP32[7,4]\ninput v FP32[7,6]\n"
     "s = matmul \"s\" (q, k) trans_b=1 alpha=0.5\n"
     "p = softmax \"p\" (s) axis=1\n"
     "y = matmul \"o\" (p, v)\noutput y\n",
     "heads=1 alpha=0.5"},
    {"channels first: the second product is V' P'",
     "input x FP32[2,8,3,3]\n"
     "f = reshape \"f\" (x) shape=2,8,9\n"
     "g = unary \"g\" (f) func=tanh\n"
     "h = unary \"h\" (f) func=sigmoid\n"
     "ft = transpose \"ft\" (f) perm=0,2,1\n"
     "s = matmul \"s\" (ft, g)\n"
     "p = softmax \"p\" (s) axis=2\n"
     "pt = transpose \"pt\" (p) perm=0,2,1\n"
     "o = matmul \"o\" (h, pt)\n"
     "y = reshape \"y\" (o) shape=2,8,3,3\noutput y\n",
     "heads=2 alpha=1"},
    {"Swin: windows are batches, the mask of shifted ones repeats for each image",
     "input x FP32[4,6,36]\n"
     "x5 = reshape \"x5\" (x) shape=4,6,3,3,4\n"
     "xt = transpose \"xt\" (x5) perm=2,0,3,1,4\n"
     "q = gather \"q\" (xt, i0 INT64[]=0) axis=0\n"
     "k = gather \"k\" (xt, i1 INT64[]=1) axis=0\n"
     "v = gather \"v\" (xt, i2 INT64[]=2) axis=0\n"
     "qs = binary \"qs\" (q, scale FP32[]=0.5) func=mul\n"
     "kt = transpose \"kt\" (k) perm=0,1,3,2\n"
     "s = matmul \"s\" (qs, kt)\n"
     "b = binary \"b\" (s, bias FP32[1,3,6,6]) func=add\n"
     "w = reshape \"w\" (b) shape=1,4,3,6,6\n"
     "m = binary \"m\" (w, shifted FP32[1,4,1,6,6]) func=add\n"
     "a = reshape \"a\" (m) shape=4,3,6,6\n"
     "p = softmax \"p\" (a) axis=3\n"
     "o = matmul \"o\" (p, v)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=4,6,12\noutput y\n",
     "heads=3 alpha=0.5 packed=1"},
    {"Swin: two images of two windows, one mask for both images",
     "input x FP32[4,6,36]\n"
     "x5 = reshape \"x5\" (x) shape=4,6,3,3,4\n"
     "xt = transpose \"xt\" (x5) perm=2,0,3,1,4\n"
     "q = gather \"q\" (xt, i0 INT64[]=0) axis=0\n"
     "k = gather \"k\" (xt, i1 INT64[]=1) axis=0\n"
     "v = gather \"v\" (xt, i2 INT64[]=2) axis=0\n"
     "s = matmul \"s\" (q, k) trans_b=1\n"
     "b = binary \"b\" (s, bias FP32[1,3,6,6]) func=add\n"
     "w = reshape \"w\" (b) shape=2,2,3,6,6\n"
     "m = binary \"m\" (w, shifted FP32[1,2,1,6,6]) func=add\n"
     "a = reshape \"a\" (m) shape=4,3,6,6\n"
     "p = softmax \"p\" (a) axis=3\n"
     "o = matmul \"o\" (p, v)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=4,6,12\noutput y\n",
     "FP32[2,3,6,6]) heads=3 alpha=1 packed=1"},
    {"Swin v2: a scale for each head",
     QKV "s = matmul \"s\" (qt, kt)\n"
         "f = binary \"f\" (s, scales FP32[3,1,1]) func=mul\n"
         "a = binary \"a\" (f, bias FP32[1,3,5,5]) func=add\n" SOFTMAX MERGE,
     "k, v, "},
    {"rotated by position: heads first",
     ROWS "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
          "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
          "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
          "q1 = transpose \"q1\" (q4) perm=0,2,1,3\n"
          "k1 = transpose \"k1\" (k4) perm=0,2,1,3\n"
          "vt = transpose \"vt\" (v4) perm=0,2,1,3\n"
          "qt = binary \"rq\" (q1, cos FP32[5,4]) func=mul\n"
          "kr = binary \"rk\" (k1, cos) func=mul\n"
          "kt = transpose \"kt\" (kr) perm=0,1,3,2\n"
          "s = matmul \"s\" (qt, kt)\n"
          "p = softmax \"p\" (s) axis=3\n" MERGE,
     "(qt, kr, v) heads=3 alpha=1"},
    {"a cache of keys and values that are outputs too; one query",
     "input q FP32[2,1,12]\ninput k FP32[2,1,12]\ninput v FP32[2,1,12]\n"
     "input pk FP32[2,3,6,4]\ninput pv FP32[2,3,6,4]\n"
     "q4 = reshape \"q4\" (q) shape=2,1,3,4\n"
     "k4 = reshape \"k4\" (k) shape=2,1,3,4\n"
     "v4 = reshape \"v4\" (v) shape=2,1,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k1 = transpose \"k1\" (k4) perm=0,2,1,3\n"
     "v1 = transpose \"v1\" (v4) perm=0,2,1,3\n"
     "nk = concat \"nk\" (pk, k1) axis=2\n"
     "nv = concat \"nv\" (pv, v1) axis=2\n"
     "kt = transpose \"kt\" (nk) perm=0,1,3,2\n"
     "s = matmul \"s\" (qt, kt)\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"o\" (p, nv)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=2,1,12\noutput y\noutput nk\noutput nv\n",
     "(q, nk, nv) heads=3 alpha=1"},
    {"grouped queries: keys and values repeated by Expand",
     "input q FP32[2,5,24]\ninput k FP32[2,5,12]\ninput v FP32[2,5,12]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,6,4\n"
     "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
     "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k1 = transpose \"k1\" (k4) perm=0,2,1,3\n"
     "v1 = transpose \"v1\" (v4) perm=0,2,1,3\n"
     "k5 = reshape \"k5\" (k1) shape=2,3,1,5,4\n"
     "v5 = reshape \"v5\" (v1) shape=2,3,1,5,4\n"
     "ke = expand \"ke\" (k5) shape=2,3,2,5,4\n"
     "ve = tile \"ve\" (v5) repeats=1,1,2,1,1\n"
     "k6 = reshape \"k6\" (ke) shape=2,6,5,4\n"
     "vt = reshape \"vt\" (ve) shape=2,6,5,4\n"
     "kt = transpose \"kt\" (k6) perm=0,1,3,2\n"
     "s = matmul \"s\" (qt, kt)\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"o\" (p, vt)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=2,5,24\noutput y\n",
     "(q, k, v) heads=6 alpha=1 packed=0 kv_heads=3"},
    {"repeated in the other order: every head reads its own",
     "input q FP32[2,5,24]\ninput k FP32[2,5,12]\ninput v FP32[2,5,12]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,6,4\n"
     "k4 = reshape \"k4\" (k) shape=2,5,3,4\n"
     "v4 = reshape \"v4\" (v) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k1 = transpose \"k1\" (k4) perm=0,2,1,3\n"
     "v1 = transpose \"v1\" (v4) perm=0,2,1,3\n"
     "ke = tile \"ke\" (k1) repeats=1,2,1,1\n"
     "vt = tile \"ve\" (v1) repeats=1,2,1,1\n"
     "kt = transpose \"kt\" (ke) perm=0,1,3,2\n"
     "s = matmul \"s\" (qt, kt)\n"
     "p = softmax \"p\" (s) axis=3\n"
     "o = matmul \"o\" (p, vt)\n"
     "t = transpose \"t\" (o) perm=0,2,1,3\n"
     "y = reshape \"y\" (t) shape=2,5,24\noutput y\n",
     "(q, ke, vt) heads=6 alpha=1 packed=0"},
    {"one head of keys and values for all queries",
     "input q FP32[2,5,12]\ninput k FP32[2,7,4]\ninput v FP32[2,7,4]\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k4 = reshape \"k4\" (k) shape=2,1,7,4\n"
     "vt = reshape \"v4\" (v) shape=2,1,7,4\n"
     "s = matmul \"s\" (qt, k4) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n" MERGE,
     "(q, k, v) heads=3 alpha=1 packed=0 kv_heads=1"},
    {"one product for grouped queries: packed",
     "input x FP32[2,5,8]\n"
     "q = matmul \"q\" (x, wq FP32[8,12])\n"
     "k = matmul \"k\" (x, wk FP32[8,4], bk FP32[4])\n"
     "v = matmul \"v\" (x, wv FP32[4,8]) trans_b=1\n"
     "q4 = reshape \"q4\" (q) shape=2,5,3,4\n"
     "qt = transpose \"qt\" (q4) perm=0,2,1,3\n"
     "k4 = reshape \"k4\" (k) shape=2,1,5,4\n"
     "vt = reshape \"v4\" (v) shape=2,1,5,4\n"
     "s = matmul \"s\" (qt, k4) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n" MERGE,
     "heads=3 alpha=1 packed=1 kv_heads=1"},
};

static const struct spelling others[] = {
    {"the scores are an output too", SCORES "p = softmax \"p\" (s) axis=3\n" MERGE "output s\n",
     "its scores have other readers"},
    {"the probabilities are read elsewhere",
     SCORES "a = unary \"a\" (s) func=linear alpha=2 beta=0\n" SOFTMAX MERGE "output p\n",
     "the probabilities have other readers"},
    {"the guard's probabilities are read elsewhere",
     SCORES "a = unary \"a\" (s) func=linear alpha=2 beta=0\n" GUARDED MERGE "output p0\n", NULL},
    {"softmax over the queries", SCORES "p = softmax \"p\" (s) axis=2\n" MERGE,
     "its softmax is not over the keys"},
    {"softmax over the heads", SCORES "p = softmax \"p\" (s) axis=1\n" MERGE,
     "its softmax is not over the keys"},
    {"the logarithm of softmax", SCORES "p = softmax \"p\" (s) axis=3 log=1\n" MERGE,
     "its softmax is not over the keys"},
    {"scores through a function", SCORES "a = unary \"a\" (s) func=tanh\n" SOFTMAX MERGE,
     "its scores are no product"},
    {"a negative scale behind a mask",
     SCORES "b = binary \"b\" (s, m FP32[5,5]) func=add\n"
            "a = unary \"a\" (b) func=linear alpha=-1 beta=0\n" SOFTMAX MERGE,
     "its scores are no product"},
    {"a factor for each key", SCORES "a = binary \"a\" (s, f FP32[5]) func=mul\n" SOFTMAX MERGE,
     "its scores are no product"},
    {"a choice that hides nothing",
     SCORES "input m BOOL[2,1,1,5]\n"
            "a = select \"a\" (m, s, small FP32[]=-10)\n" SOFTMAX MERGE,
     "a number among its scores that hides nothing"},
    {"hidden by a number that a mask behind it goes below",
     SCORES "input m BOOL[2,1,1,5]\n"
            "input n FP32[2,1,1,5]\n"
            "c = select \"c\" (m, s, low FP32[]=-10000)\n"
            "a = binary \"a\" (c, n) func=add\n" SOFTMAX MERGE,
     "beside another mask"},
    {"probabilities that are zeroed by another condition",
     SCORES "input m BOOL[2,1,1,5]\n"
            "input n BOOL[2,1,1,5]\n"
            "a = select \"a\" (m, s, low FP32[]=-inf)\n"
            "p0 = softmax \"p0\" (a) axis=3\n"
            "p = select \"z\" (n, p0, zero FP32[]=0)\n" MERGE,
     "by another condition"},
    {"keys that are the same for both batches",
     "input q FP32[2,3,5,4]\ninput k FP32[1,3,5,4]\n"
     "s = matmul \"s\" (q, k) trans_b=1\n"
     "p = softmax \"p\" (s) axis=3\n"
     "y = matmul \"o\" (p, k)\noutput y\n",
     "an operand broadcasts"},
};

static void keep_line(void *user, enum log_level level UNUSED, const char *line)
{
    char *log = user;
    size_t n = strlen(log);
    snprintf(log + n, LOG_BYTES - n, "%s\n", line);
}

static uint32_t count(const struct ir_graph *g, enum ir_op op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += ir_node(g, i)->op == op;
    return n;
}

/* Runs all passes, and compares results before and after. */
static void run(const struct spelling *s, struct ir_graph **out, char *log)
{
    struct log_sink sink = {.level = LOG_VERBOSE, .write = keep_line, .user = log};
    struct pass_context ctx = {
        .evaluator = {cpu_eval_node, NULL}, .log = &sink, .attention = true, .merge = true};
    struct error err = {0};
    struct ir_graph *before = graph_parse(s->graph), *g = graph_parse(s->graph);
    if (passes_run(g, &ctx, &err))
        fail_msg("%s: %s", s->what, err.text);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct outputs want, got;
        outputs_compute(before, seed, &want);
        outputs_compute(g, seed, &got);
        double tolerance = ir_tensor(g, g->inputs[0])->dtype == DTYPE_F16 ? 2e-3 : 2e-5;
        outputs_check(&got, &want, tolerance, s->what);
        outputs_free(&want);
        outputs_free(&got);
    }
    ir_graph_free(before);
    *out = g;
}

typedef void (*check_result)(const struct spelling *s, const struct ir_graph *g, const char *log);

/* Runs all passes on each graph, and checks what has become of it. */
static void run_each(const struct spelling *list, size_t n, check_result check)
{
    for (size_t i = 0; i < n; i++) {
        struct ir_graph *g;
        char *log = calloc(1, LOG_BYTES);
        run(&list[i], &g, log);
        check(&list[i], g, log);
        free(log);
        ir_graph_free(g);
    }
}

static void check_attention(const struct spelling *s, const struct ir_graph *g, const char *log)
{
    char *text = ir_graph_text(g);
    const char *line = strstr(text, "= attention ");
    char *end = line ? strchr(line, '\n') : NULL;
    if (count(g, IR_OP_ATTENTION) != 1 || count(g, IR_OP_SOFTMAX) != 0 || !end)
        fail_msg("%s: there is not one attention in\n%s\n%s", s->what, text, log);
    else
        *end = '\0';
    if (line && !strstr(line, s->part))
        fail_msg("%s: \"%s\" is not in\n%s", s->what, s->part, line);
    free(text);
}

static void check_softmax(const struct spelling *s, const struct ir_graph *g, const char *log)
{
    if (count(g, IR_OP_ATTENTION) || count(g, IR_OP_SOFTMAX) != 1)
        fail_msg("%s: it became attention\n%s", s->what, log);
    if (s->part && !strstr(log, s->part))
        fail_msg("%s: \"%s\" is not in the log:\n%s", s->what, s->part, log);
}

static void each_spelling_is_one_attention(void **state UNUSED)
{
    run_each(attentions, ARRAY_LEN(attentions), check_attention);
}

static void what_only_looks_like_attention_stays(void **state UNUSED)
{
    run_each(others, ARRAY_LEN(others), check_softmax);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_spelling_is_one_attention),
        cmocka_unit_test(what_only_looks_like_attention_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
