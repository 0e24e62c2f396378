/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is proved of a dimension that is longer than a request, and that it is true: whatever is
 * proved is also run, at both sizes, with zeros behind the request.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build/along.h"
#include "engine/cpu/eval.h"
#include "engine/runtime/box.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

enum { TEXT_MOST = 8192 };

/* Writes the size for "$", its square for "^", and one more for "+1". */
static struct ir_graph *graph_of(const char *text, int64_t size)
{
    static char out[TEXT_MOST];
    size_t n = 0;
    for (; *text && n < sizeof(out) - 24; text++) {
        if (*text == '$')
            n += (size_t)snprintf(out + n, 24, "%lld", (long long)size);
        else if (*text == '~')
            n += (size_t)snprintf(out + n, 24, "%lld", (long long)(2 * size));
        else if (*text == '^')
            n += (size_t)snprintf(out + n, 24, "%lld", (long long)(size - 1));
        else
            out[n++] = *text;
    }
    out[n] = '\0';
    return graph_parse(out);
}

/* --- running --- */

static struct tensor_view view_of(const struct ir_tensor *t)
{
    struct tensor_view view = {t->dtype, t->shape, calloc(1, t->bytes + 1)};
    assert_non_null(view.data);
    return view;
}

/* Inputs of INT64 are 1 or 2, as of ids and of masks that let through. */
static void fill(struct tensor_view *view, size_t bytes, uint64_t seed)
{
    int64_t *ids = view->data;
    if (view->dtype != DTYPE_I64)
        fill_random(view->dtype, view->data, bytes / dtype_size(view->dtype), seed);
    for (size_t i = 0; view->dtype == DTYPE_I64 && i < bytes / sizeof(*ids); i++)
        ids[i] = 1 + (int64_t)((i + seed) % 2);
}

struct ran {
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_IO];
};

static void run(const struct ir_graph *g, struct ran *r)
{
    struct error err = {.text = ""};
    for (uint32_t i = 0; i < g->n_outputs; i++)
        r->out[i] = view_of(ir_tensor(g, g->outputs[i]));
    if (cpu_eval_graph(g, r->in, r->out, &err))
        fail_msg("%s", err.text);
}

static void ran_free(const struct ir_graph *g, struct ran *r)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        free(r->in[i].data);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        free(r->out[i].data);
}

static void compare(const struct tensor_view *want, const struct tensor_view *padded,
                    const char *what)
{
    size_t n;
    struct box box = {
        .whole = &padded->shape, .part = &want->shape, .element = dtype_size(want->dtype)};
    assert_true(shape_elements(&want->shape, &n));
    float *cut = calloc(n + 1, sizeof(double));
    assert_non_null(cut);
    box_take(&box, padded->data, cut);
    const float *a = want->data;
    for (size_t i = 0; want->dtype == DTYPE_F32 && i < n; i++)
        if (!(fabsf(a[i] - cut[i]) <= 1e-5F * fmaxf(1, fabsf(a[i]))))
            fail_msg("%s: element %zu is %g, not %g", what, i, (double)cut[i], (double)a[i]);
    if (want->dtype != DTYPE_F32)
        assert_memory_equal(want->data, cut, n * dtype_size(want->dtype));
    free(cut);
}

/* Runs both, the larger one on the smaller one's inputs with zeros behind. */
static void run_both(const struct ir_graph *small, const struct ir_graph *large, const char *what)
{
    static struct ran a, b;
    for (uint32_t i = 0; i < small->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(small, small->inputs[i]);
        a.in[i] = view_of(t);
        b.in[i] = view_of(ir_tensor(large, large->inputs[i]));
        fill(&a.in[i], t->bytes, i + 1);
        box_put(&(struct box){.whole = &b.in[i].shape,
                              .part = &a.in[i].shape,
                              .element = dtype_size(t->dtype)},
                b.in[i].data, a.in[i].data);
    }
    run(small, &a);
    run(large, &b);
    for (uint32_t i = 0; i < small->n_outputs; i++)
        compare(&a.out[i], &b.out[i], what);
    ran_free(small, &a);
    ran_free(large, &b);
}

/* --- what is proved, and what not --- */

struct claim {
    const char *what, *text;
    bool padded, apart;
    const char *why; /* part of the reason; NULL: any */
};

#define MASK                                                                                       \
    "input m INT64[2,$]\n"                                                                         \
    "mf = cast \"mf\" (m) to=12\n"                                                                 \
    "ms = binary \"ms\" (mf, two FP32[]=2) func=min\n"                                             \
    "mi = unary \"mi\" (ms) func=linear alpha=10000 beta=-10000\n"                                 \
    "mr = reshape \"mr\" (mi) shape=2,1,$\n"

static const struct claim claims[] = {
    {"elementwise", "input x FP32[2,$,3]\ny = unary \"y\" (x) func=tanh\noutput y\n", true, true,
     NULL},
    {"rows of a product",
     "input x FP32[2,$,3]\ny = matmul \"y\" (x, w FP32[3,4]) then relu\noutput y\n", true, true,
     NULL},
    {"normalised rows",
     "input x FP32[2,$,3]\ny = layer_norm \"y\" (x, s FP32[3]) axis=2\noutput y\n", true, true,
     NULL},
    {"normalised columns", "input x FP32[2,3,$]\ny = softmax \"y\" (x) axis=2\noutput y\n", false,
     false, "softmax 'y'"},
    {"a convolution along it",
     "input x FP32[2,3,$]\ny = conv \"y\" (x, w FP32[3,3,3]) pads=1,1\noutput y\n", false, false,
     "conv 'y'"},
    {"a convolution of single places",
     "input x FP32[2,3,$]\ny = conv \"y\" (x, w FP32[3,3,1])\noutput y\n", true, true, NULL},
    {"a mean", "input x FP32[2,$,3]\ny = reduce \"y\" (x) func=1 axes=1 keepdims=0\noutput y\n",
     false, false, NULL},
    {"a sum of zeros",
     "input x FP32[2,$,3]\ny = reduce \"y\" (x) func=0 axes=1 keepdims=0\noutput y\n", true, false,
     NULL},
    {"a sum of what is no zero any more",
     "input x FP32[2,$,3]\na = unary \"a\" (x) func=cos\n"
     "y = reduce \"y\" (a) func=0 axes=1 keepdims=0\noutput y\n",
     false, false, NULL},
    {"the greatest", "input x FP32[2,$,3]\ny = reduce \"y\" (x) func=2 axes=1\noutput y\n", false,
     false, NULL},
    {"the first row",
     "input x FP32[2,$,3]\ny = slice \"y\" (x) starts=0,0,0 ends=2,1,3 steps=1,1,1\noutput y\n",
     true, false, NULL},
    {"the last row",
     "input x FP32[2,$,3]\ny = slice \"y\" (x) starts=0,^,0 ends=2,$,3 steps=1,1,1\noutput y\n",
     false, false, NULL},
    {"rows in reverse",
     "input x FP32[2,$,3]\ny = slice \"y\" (x) starts=0,^,0 ends=2,-1,3 steps=1,-1,1\noutput y\n",
     false, false, NULL},
    {"rows behind others",
     "input x FP32[2,$,3]\ny = concat \"y\" (k FP32[2,1,3], x) axis=1\noutput y\n", false, false,
     NULL},
    {"rows beside others",
     "input x FP32[2,$,3]\na = unary \"a\" (x) func=tanh\ny = concat \"y\" (a, x) axis=2\n"
     "output y\n",
     true, true, NULL},
    {"merged with another dimension, and apart again",
     "input x FP32[2,$,4]\na = reshape \"a\" (x) shape=~,4\nb = matmul \"b\" (a, w FP32[4,4])\n"
     "c = reshape \"c\" (b) shape=2,$,2,2\ny = transpose \"y\" (c) perm=0,2,1,3\noutput y\n",
     true, true, NULL},
    {"an output that merges it", "input x FP32[2,$,4]\ny = reshape \"y\" (x) shape=~,4\noutput y\n",
     false, false, "merges it"},
    {"a running sum", "input x FP32[2,$]\ny = cumsum \"y\" (x) axis=1\noutput y\n", true, false,
     NULL},
    {"a running sum from behind",
     "input x FP32[2,$]\ny = cumsum \"y\" (x) axis=1 reverse=1\noutput y\n", false, false, NULL},
    {"a row of a table for each id",
     "input x INT64[2,$]\ny = gather \"y\" (t FP32[9,4], x) axis=0\noutput y\n", true, true, NULL},
    {"ids that may leave the table behind the request",
     "input x INT64[2,$]\na = cumsum \"a\" (x) axis=1\ny = gather \"y\" (t FP32[9,4], a) axis=0\n"
     "output y\n",
     false, false, NULL},
    {"a sum of rows of tables",
     "input x INT64[2,$]\ninput z INT64[1,$]\ninput r FP32[$,4]\n"
     "y = embed \"y\" (t FP32[9,4], x, u FP32[3,4], z, r)\noutput y\n",
     true, true, NULL},
    {"a sum of rows of tables, of a size that is another dimension's",
     "input x INT64[2,$]\ny = embed \"y\" (t FP32[9,4], x, u FP32[4])\noutput y\n", true, true,
     NULL},
    {"a sum of rows whose ids may leave the table behind the request",
     "input x INT64[2,$]\ninput z INT64[2,$]\na = cumsum \"a\" (x) axis=1\n"
     "y = embed \"y\" (t FP32[9,4], z, u FP32[9,4], a)\noutput y\n",
     false, false, NULL},
    {"a sum of rows of a table of that size",
     "input x INT64[2,3]\ninput t FP32[$,4]\ny = embed \"y\" (t, x)\noutput y\n", false, false,
     NULL},
    {"a sum of rows as wide as that size",
     "input x INT64[2,3]\ninput t FP32[9,$]\ny = embed \"y\" (t, x)\noutput y\n", false, false,
     NULL},
    {"attention that sees everything",
     "input x FP32[2,$,4]\ny = attention \"y\" (x, x, x) heads=2\noutput y\n", false, false,
     "attention 'y'"},
    {"attention that sees what came before",
     "input x FP32[2,$,4]\ny = attention \"y\" (x, x, x) heads=2 causal=1\noutput y\n", true, false,
     NULL},
    {"attention with a mask",
     MASK "input x FP32[2,$,4]\nmm = reshape \"mm\" (mr) shape=2,1,1,$\n"
          "y = attention \"y\" (x, x, x, mm) heads=2\noutput y\n",
     true, false, NULL},
    {"attention with a mask that says nothing",
     "input x FP32[2,$,4]\ninput m FP32[2,1,1,$]\ny = attention \"y\" (x, x, x, m) heads=2\n"
     "output y\n",
     false, false, NULL},
    {"attention of rows that spans put together",
     "input x FP32[2,$,4]\ninput s INT32[2,$,2]\ny = attention \"y\" (x, x, x, -, s) heads=2\n"
     "output y\n",
     false, true, NULL},
    {"masked scores by their parts",
     MASK "input x FP32[2,$,4]\ns = matmul \"s\" (x, x) trans_b=1\nt = binary \"t\" (s, mr) "
          "func=add\np = softmax \"p\" (t) axis=2\ny = matmul \"y\" (p, x)\noutput y\n",
     true, false, NULL},
    {"scores by their parts without a mask",
     "input x FP32[2,$,4]\ns = matmul \"s\" (x, x) trans_b=1\np = softmax \"p\" (s) axis=2\n"
     "y = matmul \"y\" (p, x)\noutput y\n",
     false, false, "softmax 'p'"},
    {"masked scores of what may be infinite",
     MASK "input x FP32[2,$,4]\nr = unary \"r\" (x) func=reciprocal\n"
          "s = matmul \"s\" (x, x) trans_b=1\nt = binary \"t\" (s, mr) func=add\n"
          "p = softmax \"p\" (t) axis=2\ny = matmul \"y\" (p, r)\noutput y\n",
     false, false, NULL},
    {"the mean of what a mask lets through",
     MASK "input x FP32[2,$,4]\nc = reshape \"c\" (mf) shape=2,$,1\nz = binary \"z\" (x, c) "
          "func=mul\nt = reduce \"t\" (z) func=0 axes=1 keepdims=0\n"
          "u = reduce \"u\" (c) func=0 axes=1 keepdims=0\ny = binary \"y\" (t, u) func=div\n"
          "output y\n",
     true, false, NULL},
    {"a layer with a state",
     "input x FP32[$,2,8]\ny, h, c = recurrent \"r\" (x, r FP32[8,2]) func=1 funcs=6,10,10 "
     "alphas=0,0,0 betas=0,0,0\noutput y\n",
     true, false, NULL},
    {"the last state",
     "input x FP32[$,2,8]\ny, h, c = recurrent \"r\" (x, r FP32[8,2]) func=1 funcs=6,10,10 "
     "alphas=0,0,0 betas=0,0,0\noutput y\noutput h\n",
     false, false, NULL},
    {"sequences side by side",
     "input x FP32[3,$,8]\ny, h, c = recurrent \"r\" (x, r FP32[8,2]) func=1 funcs=6,10,10 "
     "alphas=0,0,0 betas=0,0,0\noutput y\noutput h\noutput c\n",
     true, true, NULL},
    {"elements that are picked in each row",
     "input x FP32[$,4]\ninput i INT64[$,2]\ny = gather_elements \"y\" (x, i) axis=1\noutput y\n",
     false, true, NULL},
    {"elements that are picked along it",
     "input x FP32[4,$]\ninput i INT64[4,$]\ny = gather_elements \"y\" (x, i) axis=1\noutput y\n",
     false, false, NULL},
    {"elements that are put into each row",
     "input x FP32[$,4]\ninput i INT64[$,2]\ninput u FP32[$,2]\n"
     "y = scatter_elements \"y\" (x, i, u) axis=1\noutput y\n",
     false, true, NULL},
    {"elements that are put along it",
     "input x FP32[$,4]\ninput i INT64[$,4]\ninput u FP32[$,4]\n"
     "y = scatter_elements \"y\" (x, i, u) axis=0\noutput y\n",
     false, false, NULL},
    {"places in each matrix",
     "input x FP32[$,4,5]\ninput i INT64[$,3,1]\n"
     "y = gather_nd \"y\" (x, i) batch_dims=1\noutput y\n",
     false, true, NULL},
    {"places in all matrices",
     "input x FP32[$,4,5]\ninput i INT64[$,3,1]\ny = gather_nd \"y\" (x, i)\noutput y\n", false,
     false, NULL},
    {"places that are the requests' own, in what all share",
     "input i INT64[$,3,1]\ny = gather_nd \"y\" (x FP32[4,5], i)\noutput y\n", false, true, NULL},
    {"a constant for two heads of each",
     "input x FP32[$,2,3]\na = reshape \"a\" (x) shape=~,3\n"
     "b = binary \"b\" (a, k FP32[~,3]=2) func=mul\ny = reshape \"y\" (b) shape=$,2,3\noutput y\n",
     true, true, NULL},
    {"a constant that differs between two heads of each, and between requests",
     "input x FP32[$,2,3]\na = reshape \"a\" (x) shape=~,3\n"
     "b = binary \"b\" (a, k FP32[~,3]) func=mul\ny = reshape \"y\" (b) shape=$,2,3\noutput y\n",
     true, false, NULL},
    {"a constant for two halves of all",
     "input x FP32[2,$,3]\na = reshape \"a\" (x) shape=~,3\n"
     "b = binary \"b\" (a, k FP32[~,3]=2) func=mul\ny = reshape \"y\" (b) shape=2,$,3\noutput y\n",
     false, false, NULL},
    {"one of many",
     "input i INT64[2,$]\ny = one_hot \"y\" (i, v FP32[2]) axis=1 depth=4\noutput y\n", true, true,
     NULL},
    {"other layers at another size", "input x FP32[2,$]\ny = unary \"y\" (x) func=tanh\noutput y\n",
     true, true, NULL},
};

static void check_claim(const struct claim *c)
{
    static const int64_t sizes[][2] = {{2, 3}, {3, 8}, {5, 6}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(c->text, sizes[i][0]);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(c->text, sizes[i][1]);
        struct along_result r;
        bool apart = along_prove(small, large, sizes[i][0], sizes[i][1], ALONG_APART, &r);
        if (apart != c->apart)
            fail_msg("%s: apart is %d: %s", c->what, apart, r.why);
        bool padded = along_prove(small, large, sizes[i][0], sizes[i][1], ALONG_PADDED, &r);
        if (padded != c->padded || (c->why && !padded && !strstr(r.why, c->why)))
            fail_msg("%s: padded is %d: '%s'", c->what, padded, r.why);
        if (padded)
            run_both(small, large, c->what);
    }
}

static void claims_are_proved_or_not(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(claims); i++)
        check_claim(&claims[i]);
}

/* Only where a layer surely joins what lies along the dimension is it named for that. */
static void a_layer_that_joins_is_named(void **state UNUSED)
{
    static const struct {
        const char *text, *joins;
    } cases[] = {
        {"input x FP32[$,4]\ny = softmax \"s\" (x) axis=0\noutput y\n", "s"},
        {"input x FP32[$,4]\ny = cumsum \"c\" (x) axis=0\noutput y\n", "c"},
        {"input x FP32[$,4]\nm = reduce \"m\" (x) func=1 axes=0\n"
         "y = binary \"d\" (x, m) func=sub\noutput y\n",
         "m"},
        {"input x FP32[$,4]\ng = matmul \"g\" (x, x) trans_a=1\n"
         "y = matmul \"y\" (x, g)\noutput y\n",
         "g"},
        {"input x FP32[4,$]\ny = layer_norm \"n\" (x, k FP32[1]=1) axis=1\noutput y\n", "n"},
        {"input x FP32[$,4]\ny = softmax \"s\" (x) axis=1\noutput y\n", ""},
        {"input x FP32[$,4]\ny = concat \"c\" (x, x) axis=0\noutput y\n", ""},
        {"input x FP32[$,4]\ny = binary \"b\" (x, k FP32[$,1]) func=mul\noutput y\n", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(cases[i].text, 2);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(cases[i].text, 3);
        struct along_result r;
        along_prove(small, large, 2, 3, ALONG_APART, &r);
        assert_string_equal(r.joins, cases[i].joins);
    }
}

/* Gives the constants of a graph the values 0, 1, .. period - 1, 0, .. */
static void repeat(struct ir_graph *graph, size_t period)
{
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct ir_tensor *k = ir_tensor(graph, t);
        float *to = (float *)(uintptr_t)k->data;
        for (size_t i = 0; ir_tensor_is_constant(k) && i < k->bytes / sizeof(*to); i++)
            to[i] = (float)(i % period);
    }
}

/* Of two heads, each may have a constant of its own, but all requests the same. */
static void heads_of_requests_have_the_same_constants(void **state UNUSED)
{
    static const char text[] =
        "input x FP32[$,2]\na = reshape \"a\" (x) shape=~\n"
        "b = binary \"b\" (a, k FP32[~]) func=mul\ny = reshape \"y\" (b) shape=$,2\noutput y\n";
    for (size_t period = 1; period <= 4; period++) {
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(text, 2);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(text, 3);
        struct along_result r;
        repeat(small, period);
        repeat(large, period);
        assert_int_equal(along_prove(small, large, 2, 3, ALONG_APART, &r), period <= 2);
    }
}

static void a_mask_is_noted(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
        if (strcmp(claims[i].what, "masked scores by their parts") != 0)
            continue;
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(claims[i].text, 3);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(claims[i].text, 8);
        struct along_result r;
        assert_true(along_prove(small, large, 3, 8, ALONG_PADDED, &r));
        assert_int_equal(r.masks, 1); /* input m, and not x */
        assert_int_equal(r.out[0], 1 << 1);
    }
}

/* What is asked of a mask m, whose zeros hide keys. */
static void masks_are_asked_for_what_they_hide(void **state UNUSED)
{
    /* scores s of queries by keys, and the mask as [2,1,$] and as [2,$,1] */
#define PAIRS                                                                                      \
    "input x FP32[2,$,4]\ns = matmul \"s\" (x, x) trans_b=1\n"                                     \
    "rows = reshape \"rows\" (mi) shape=2,$,1\none = reshape \"one\" (ms) shape=2,1,$\n"           \
    "own = reshape \"own\" (ms) shape=2,$,1\n"
#define SOFTMAX "p = softmax \"p\" (t) axis=2\ny = matmul \"y\" (p, x)\noutput y\n"
    static const struct {
        const char *what, *text;
        uint64_t first, whole;
    } cases[] = {
        {"keys alone", MASK PAIRS "t = binary \"t\" (s, mr) func=add\n" SOFTMAX, 0, 0},
        {"with a bias for each pair",
         MASK PAIRS "b = unary \"b\" (s) func=tanh\nu = binary \"u\" (b, mr) func=add\n"
                    "t = binary \"t\" (s, u) func=add\n" SOFTMAX,
         1, 0},
        {"pairs of both",
         MASK PAIRS "t1 = binary \"t1\" (s, mr) func=add\n"
                    "t = binary \"t\" (t1, rows) func=add\n" SOFTMAX,
         1, 1},
        {"products of both",
         MASK PAIRS "o = binary \"o\" (one, own) func=mul\n"
                    "u = unary \"u\" (o) func=linear alpha=10000 beta=-10000\n"
                    "t = binary \"t\" (s, u) func=add\n" SOFTMAX,
         1, 1},
        {"attention",
         MASK "input x FP32[2,$,4]\nmm = reshape \"mm\" (mi) shape=2,1,1,$\n"
              "y = attention \"y\" (x, x, x, mm) heads=2\noutput y\n",
         0, 0},
        {"causal attention",
         MASK "input x FP32[2,$,4]\nmm = reshape \"mm\" (mi) shape=2,1,1,$\n"
              "y = attention \"y\" (x, x, x, mm) heads=2 causal=1\noutput y\n",
         1, 0},
        {"attention by products of both",
         MASK PAIRS "o = binary \"o\" (one, own) func=mul\n"
                    "u = unary \"u\" (o) func=linear alpha=10000 beta=-10000\n"
                    "mm = reshape \"mm\" (u) shape=2,1,$,$\n"
                    "y = attention \"y\" (x, x, x, mm) heads=2\noutput y\noutput s\n",
         1, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(cases[i].text, 3);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(cases[i].text, 8);
        struct along_result r;
        if (!along_prove(small, large, 3, 8, ALONG_PADDED, &r))
            fail_msg("%s: %s", cases[i].what, r.why);
        if (r.masks != 1 || r.first != cases[i].first || r.whole != cases[i].whole)
            fail_msg("%s: masks %d, first %d, whole %d", cases[i].what, (int)r.masks, (int)r.first,
                     (int)r.whole);
    }
}

/* --- random graphs --- */

/* Each step reads `v`, which is [2,$,4] before and behind it. */
static const char *const steps[] = {
    "v%d = unary \"n%d\" (v%d) func=tanh\n",
    "v%d = unary \"n%d\" (v%d) func=exp\n",
    "v%d = matmul \"n%d\" (v%d, w FP32[4,4]) then relu\n",
    "v%d = layer_norm \"n%d\" (v%d, s FP32[4]) axis=2\n",
    "v%d = softmax \"n%d\" (v%d) axis=2\n",
    "v%d = softmax \"n%d\" (v%d) axis=1\n",
    "v%d = cumsum \"n%d\" (v%d) axis=1\n",
    "v%d = cumsum \"n%d\" (v%d) axis=1 reverse=1\n",
    "v%d = attention \"n%d\" (v%d, v0, v0, mm) heads=2\n",
    "v%d = attention \"n%d\" (v%d, v0, v0) heads=2 causal=1\n",
    "v%d = attention \"n%d\" (v%d, v0, v0) heads=2\n",
    "v%d = binary \"n%d\" (v%d, v0) func=add\n",
    "v%d = binary \"n%d\" (v%d, v0) func=div\n",
    "v%d = binary \"n%d\" (v%d, k FP32[4]) func=mul\n",
    "v%d = binary \"n%d\" (v%d, c) func=mul\n",
    "v%d = trilu \"n%d\" (v%d) upper=0\n",
};

static void write_random(char *out, uint64_t seed, const char **last)
{
    static const char *const ends[] = {
        "y = unary \"end\" (v%d) func=identity\noutput y\n",
        "y = reduce \"end\" (v%d) func=0 axes=1 keepdims=0\noutput y\n",
        "y = reduce \"end\" (v%d) func=2 axes=1 keepdims=0\noutput y\n",
        "y = slice \"end\" (v%d) starts=0,0,0 ends=2,1,4 steps=1,1,1\noutput y\n",
    };
    int n = snprintf(out, TEXT_MOST,
                     MASK "mm = reshape \"mm\" (mr) shape=2,1,1,$\nc = reshape \"c\" (mf) "
                          "shape=2,$,1\ninput v0 FP32[2,$,4]\n");
    int count = 1 + (int)(seed % 4);
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 1; i <= count; i++, random = random * UINT64_C(6364136223846793005) + 1)
        n += snprintf(out + n, (size_t)(TEXT_MOST - n), steps[(random >> 40) % ARRAY_LEN(steps)], i,
                      i, i - 1);
    *last = ends[(random >> 40) % ARRAY_LEN(ends)];
    snprintf(out + n, (size_t)(TEXT_MOST - n), *last, count);
}

/* Whether any step makes numbers that are none, of which nothing can be compared. */
static bool is_calm(const char *text)
{
    return !strstr(text, "func=exp") && !strstr(text, "func=div");
}

static void what_is_proved_of_random_graphs_is_true(void **state UNUSED)
{
    static char text[TEXT_MOST];
    uint32_t proved = 0, not_proved = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const char *last;
        struct along_result r;
        write_random(text, seed, &last);
        CLEANUP(ir_graph_cleanup) struct ir_graph *small = graph_of(text, 3);
        CLEANUP(ir_graph_cleanup) struct ir_graph *large = graph_of(text, 7);
        if (!along_prove(small, large, 3, 7, ALONG_PADDED, &r)) {
            not_proved++;
            assert_true(r.why[0]);
            continue;
        }
        proved++;
        if (is_calm(text))
            run_both(small, large, text);
    }
    assert_true(proved > 40 && not_proved > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_proved_or_not),
        cmocka_unit_test(a_layer_that_joins_is_named),
        cmocka_unit_test(heads_of_requests_have_the_same_constants),
        cmocka_unit_test(a_mask_is_noted),
        cmocka_unit_test(masks_are_asked_for_what_they_hide),
        cmocka_unit_test(what_is_proved_of_random_graphs_is_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
