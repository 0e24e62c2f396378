/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors of a graph get which range: from a table, from what they follow, or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>

#include "engine/quant/emulate.h"
#include "engine/quant/ranges.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

#define HEAD "inferd ranges 1\nmodel any\n"

static struct quant_table *parse(const char *text)
{
    char whole[4096];
    struct quant_table *table = NULL;
    struct error err;
    snprintf(whole, sizeof(whole), "%s%s", HEAD, text);
    must(quant_table_parse("table", whole, strlen(whole), &table, &err), &err);
    return table;
}

static const struct ir_scale *range_of(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (strcmp(ir_tensor(g, i)->name, name) == 0)
            return ir_scale(g, ir_tensor(g, i)->range);
    fail_msg("no tensor '%s'", name);
    return NULL;
}

/* "x uint8 0.5; y -": each tensor's range as it should be. */
static void check(const struct ir_graph *g, const char *want)
{
    char text[1024], *rest = NULL;
    snprintf(text, sizeof(text), "%s", want);
    for (char *item = strtok_r(text, ";", &rest); item; item = strtok_r(NULL, ";", &rest)) {
        char name[64], type[16] = "";
        float step = 0;
        assert_true(sscanf(item, "%63s %15s %f", name, type, &step) >= 2);
        const struct ir_scale *scale = range_of(g, name);
        if (!strcmp(type, "-")) {
            if (scale)
                fail_msg("'%s' has a range, step %g", name, (double)scale->step[0]);
            continue;
        }
        if (!scale)
            fail_msg("'%s' has no range", name);
        assert_int_equal(scale->dtype, strcmp(type, "int8") ? DTYPE_U8 : DTYPE_I8);
        if (scale->step[0] < step * 0.999F || scale->step[0] > step * 1.001F)
            fail_msg("'%s' has the step %g, not %g", name, (double)scale->step[0], (double)step);
    }
}

struct rows {
    const char *what, *graph, *table, *want;
    struct quant_report report; /* given, used, idle, gone, kept, own, ranged, weights, missing */
};

static const struct rows cases[] = {
    {"convolutions read their input in 8 bits, and the end stays a float",
     "input x FP32[1,3,8,8]\n"
     "a = conv \"a\" (x, w FP32[4,3,3,3]) pads=1,1,1,1 then relu\n"
     "m = pool \"m\" (a) func=0 kernel=2,2 strides=2,2\n"
     "b = conv \"b\" (m, v FP32[5,4,3,3])\n"
     "y = softmax \"y\" (b) axis=1\n"
     "output y\n",
     "x range -100 127 entropy 5\na range 0 255\nm range 0 3 minmax\nb range -1 1\ny range 0 1\n",
     "x int8 1; a uint8 1; m uint8 1; b -; y -",
     {.given = 5, .used = 3, .idle = 2, .ranged = 3, .weights = 2}},
    {"a residual stream that is normalised stays a float",
     "input x FP32[1,4,8]\n"
     "n = layer_norm \"n\" (x, s FP32[8], t FP32[8]) axis=2\n"
     "p = matmul \"p\" (n, w FP32[8,16]) then gelu\n"
     "q = matmul \"q\" (p, v FP32[16,8])\n"
     "r = binary \"r\" (q, x) func=add\n"
     "o = layer_norm \"o\" (r, s, t) axis=2\n"
     "y = matmul \"y\" (o, u FP32[8,8])\n"
     "output y\n",
     "x range -1 1\nn range -127 43\np range -127 50\nq range 0 1\nr range 0 1\no range 0 255\n",
     "x -; n int8 1; p int8 1; q -; r -; o uint8 1; y -",
     {.given = 6, .used = 3, .idle = 3, .ranged = 3, .weights = 3}},
    {"products of two computed tensors read floats",
     "input x FP32[1,4,8]\n"
     "q = matmul \"q\" (x, w FP32[8,8])\n"
     "s = matmul \"s\" (q, q) trans_b=1\n"
     "p = softmax \"p\" (s) axis=2\n"
     "o = matmul \"o\" (p, q)\n"
     "y = matmul \"y\" (o, v FP32[8,8])\n"
     "output y\n",
     "x range 0 255\nq range 0 255\ns range 0 255\np range 0 1\no range 0 255\n",
     "x uint8 1; q -; s -; p -; o uint8 1; y -",
     {.given = 5, .used = 2, .idle = 3, .ranged = 2, .weights = 2}},
    {"parts of a concatenation have its range; what is moved, that of its source",
     "input x FP32[1,2,4,4]\n"
     "a = unary \"a\" (x) func=relu\n"
     "b = unary \"b\" (x) func=abs\n"
     "c = concat \"c\" (a, b) axis=1\n"
     "t = transpose \"t\" (c) perm=0,2,3,1\n"
     "y = matmul \"y\" (t, w FP32[4,3])\n"
     "output y\n",
     "x range -127 102\na range 0 1 entropy\nb range 0 2 entropy\nc range 0 510 entropy\n"
     "t range 0 9 entropy\n",
     "x int8 1; a uint8 2; b uint8 2; c uint8 2; t uint8 2; y -",
     {.given = 5, .used = 5, .ranged = 5, .weights = 1}},
    {"a range behind a transpose is one before it as well",
     "input x FP32[1,4,6]\n"
     "a = unary \"a\" (x) func=abs\n"
     "t = transpose \"t\" (a) perm=0,2,1\n"
     "y = matmul \"y\" (t, w FP32[4,3])\n"
     "output y\n",
     "t range 0 510\nx range -1 1\n",
     "a uint8 2; t uint8 2; y -",
     {.given = 2, .used = 2, .ranged = 3, .weights = 1}},
    {"bytes that are cast have the range of bytes",
     "input x UINT8[1,3,8,8]\n"
     "f = cast \"f\" (x) to=12\n"
     "y = conv \"y\" (f, w FP32[4,3,3,3])\n"
     "output y\n",
     "f range 0 1 entropy\n",
     "f uint8 1; y -",
     {.given = 1, .used = 1, .ranged = 1, .weights = 1}},
    {"counts stay floats",
     "input x INT64[1,3,8,8]\n"
     "f = cast \"f\" (x) to=12\n"
     "y = conv \"y\" (f, w FP32[4,3,3,3])\n"
     "output y\n",
     "f range 0 1\n",
     "f -; y -",
     {.given = 1, .idle = 1}},
    {"what a person has written stands",
     "input x FP32[1,2,4,4]\n"
     "a = unary \"a\" (x) func=relu\n"
     "b = unary \"b\" (x) func=abs\n"
     "c = concat \"c\" (a, b) axis=1\n"
     "t = transpose \"t\" (c) perm=0,2,3,1\n"
     "y = matmul \"y\" (t, w FP32[4,3])\n"
     "output y\n",
     "x range -127 102\na range 0 255\nb range 0 2 entropy\nc range 0 510 minmax 3\n"
     "t uint8 4 0 user\n",
     "x int8 1; a uint8 1; b uint8 2; c uint8 2; t uint8 4; y -",
     {.given = 5, .used = 5, .ranged = 5, .weights = 1}},
    {"keep keeps, also what would follow",
     "input x FP32[1,3,8,8]\n"
     "a = conv \"a\" (x, w FP32[4,3,3,3]) pads=1,1,1,1 then relu\n"
     "b = conv \"b\" (a, v FP32[5,4,3,3])\n"
     "output b\n",
     "x keep\na uint8 0.5 3 user\n",
     "x -; a uint8 0.5; b -",
     {.given = 2, .used = 1, .kept = 1, .ranged = 1, .weights = 1}},
};

static void ranges_are_where_they_are_of_use(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct rows *c = &cases[i];
        struct ir_graph *g = graph_parse(c->graph);
        struct quant_table *table = parse(c->table);
        struct quant_report report;
        struct error err;
        print_message("%s\n", c->what);
        assert_true(quant_name_tensors(g));
        must(quant_apply(g, table, NULL, false, DTYPE_NONE, &report, &err), &err);
        check(g, c->want);
        const uint32_t *want = &c->report.given, *got = &report.given;
        for (int k = 0; k < 9; k++)
            if (got[k] != want[k])
                fail_msg("count %d of the report is %u, not %u", k, got[k], want[k]);
        must(ir_verify(g, &err), &err);
        quant_table_free(table);
        ir_graph_free(g);
    }
}

/* --- weights --- */

static void check_weights(const char *graph, const char *name, uint32_t axis, uint32_t n)
{
    struct ir_graph *g = graph_parse(graph);
    struct quant_table *table = parse("x range 0 1\n");
    struct quant_report report;
    struct error err;
    must(quant_apply(g, table, NULL, false, DTYPE_NONE, &report, &err), &err);
    const struct ir_scale *s = range_of(g, name);
    const struct ir_tensor *w = NULL;
    size_t inner = 1, elements = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (strcmp(ir_tensor(g, i)->name, name) == 0)
            w = ir_tensor(g, i);
    assert_non_null(s);
    assert_int_equal(s->n, n);
    assert_int_equal(s->axis, axis);
    assert_int_equal(s->dtype, DTYPE_I8);
    assert_null(s->zero);
    assert_true(shape_elements(&w->shape, &elements));
    for (uint32_t i = axis + 1; i < w->shape.rank; i++)
        inner *= (size_t)w->shape.dim[i];
    float most[64] = {0};
    for (size_t i = 0; i < elements; i++) {
        float v = ((const float *)w->data)[i];
        most[i / inner % n] = MAX(most[i / inner % n], v < 0 ? -v : v);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(s->step[i] == most[i] / 127);
    quant_table_free(table);
    ir_graph_free(g);
}

static void weights_have_a_step_for_each_channel(void **state UNUSED)
{
    check_weights("input x FP32[1,4,8,8]\ny = conv \"y\" (x, w FP32[6,2,3,3]) group=2\noutput y\n",
                  "w", 0, 6);
    check_weights("input x FP32[1,4,8,8]\ny = deconv \"y\" (x, w FP32[4,6,3,3])\noutput y\n", "w",
                  1, 6);
    check_weights("input x FP32[2,8]\ny = matmul \"y\" (x, w FP32[8,5])\noutput y\n", "w", 1, 5);
    check_weights("input x FP32[2,8]\ny = matmul \"y\" (x, w FP32[5,8]) trans_b=1\noutput y\n", "w",
                  0, 5);
    check_weights("input x FP32[3,2,8]\ny = matmul \"y\" (x, w FP32[3,8,5])\noutput y\n", "w", 2,
                  5);
    check_weights("input x FP32[8,2]\ny = matmul \"y\" (w FP32[5,8], x)\noutput y\n", "w", 0, 5);
}

static void a_channel_of_zeros_has_some_step(void **state UNUSED)
{
    struct ir_graph *g =
        graph_parse("input x FP32[1,4,8,8]\ny = conv \"y\" (x, w FP32[2,4,3,3]=0)\noutput y\n");
    struct quant_table *table = parse("x range 0 1\n");
    struct quant_report report;
    must(quant_apply(g, table, NULL, false, DTYPE_NONE, &report, NULL), NULL);
    assert_true(range_of(g, "w")->step[0] == 1 && range_of(g, "w")->step[1] == 1);
    quant_table_free(table);
    ir_graph_free(g);
}

/* Where products read INT8 alone, a range from 0 up loses a bit; what is written as uint8 stays. */
static void ranges_get_a_sign_where_products_want_it(void **state UNUSED)
{
    struct ir_graph *g = graph_parse("input x FP32[2,8]\nz = unary \"z\" (x) func=relu\n"
                                     "y = matmul \"y\" (z, w FP32[8,5])\noutput y\n");
    struct quant_table *table = parse("x uint8 0.5 3\nz range 0 254\n");
    struct quant_report report;
    must(quant_apply(g, table, NULL, false, DTYPE_I8, &report, NULL), NULL);
    assert_int_equal(range_of(g, "z")->dtype, DTYPE_I8);
    assert_true(range_of(g, "z")->step[0] == 2);
    assert_int_equal(range_of(g, "x")->dtype, DTYPE_U8);
    quant_table_free(table);
    ir_graph_free(g);
}

static void check_skewed(const char *row, enum dtype bytes, enum dtype dtype, float step,
                         int32_t zero)
{
    struct ir_graph *g =
        graph_parse("input x FP32[2,8]\ny = matmul \"y\" (x, w FP32[8,5])\noutput y\n");
    struct quant_table *table = parse(row);
    struct quant_report report;
    must(quant_apply(g, table, NULL, false, bytes, &report, NULL), NULL);
    const struct ir_scale *scale = range_of(g, "x");
    assert_int_equal(scale->dtype, dtype);
    assert_true(scale->step[0] > step * 0.999F && scale->step[0] < step * 1.001F);
    assert_int_equal(scale->zero ? scale->zero[0] : 0, zero);
    quant_table_free(table);
    ir_graph_free(g);
}

/* Steps go where values are, if the kernels take zero points; 0 has an integer of its own. */
static void skewed_ranges_have_a_zero_point(void **state UNUSED)
{
    check_skewed("x range -5 250\n", DTYPE_NONE, DTYPE_U8, 1, 5);
    check_skewed("x range -250 5\n", DTYPE_NONE, DTYPE_U8, 1, 250);
    check_skewed("x range -0.17 8\n", DTYPE_NONE, DTYPE_U8, 8.17F / 255, 5);
    check_skewed("x range -255 -3\n", DTYPE_NONE, DTYPE_U8, 1, 255);
    check_skewed("x range -1e-30 255\n", DTYPE_NONE, DTYPE_U8, 1, 0);
    check_skewed("x range -63.5 127\n", DTYPE_NONE, DTYPE_I8, 1, 0);
    check_skewed("x range -5 254\n", DTYPE_I8, DTYPE_I8, 2, 0);
    check_skewed("x int8 1 0\n", DTYPE_NONE, DTYPE_I8, 1, 0);
}

/* --- refusals --- */

#define TWO                                                                                        \
    "input image FP32[1,3,8,8]\n"                                                                  \
    "conv1_out = conv \"conv1\" (image, w FP32[4,3,3,3]) pads=1,1,1,1 then relu\n"                 \
    "b = conv \"conv2\" (conv1_out, v FP32[5,4,3,3])\n"                                            \
    "output b\n"

static void refuse(const char *text, bool keep, const char *says)
{
    struct ir_graph *g = graph_parse(TWO);
    struct quant_table *table = text ? parse(text) : NULL;
    struct quant_report report;
    struct error err;
    bool known[8] = {false};
    known[0] = text && !strncmp(text, "gone", 4);
    enum status status = quant_apply(g, table, known, keep, DTYPE_NONE, &report, &err);
    if (!says)
        must(status, &err);
    else if (!status || !strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", status ? err.text : "success", says);
    quant_table_free(table);
    ir_graph_free(g);
}

static void what_is_missing_or_unknown_is_named(void **state UNUSED)
{
    refuse("image range 0 1\n", false, "no range is known for tensor 'conv1_out' of layer 'conv2'");
    refuse("conv1_out range 0 1\n", false, "'image' of layer 'conv1'");
    refuse(NULL, false, "'image' of layer 'conv1' and 1 more");
    refuse(NULL, true, NULL);
    refuse("image range 0 1\n", true, NULL);
    refuse("image range 0 1\nconv1_uot range 0 1\n", true,
           "line 4: the model has no tensor 'conv1_uot' (did you mean 'conv1_out'?)");
    refuse("gone range 0 1\n", true, NULL); /* fused away: it was known before */
    refuse("@elsewhere range 0 1\n", true, NULL);
    refuse("w range 0 1\n", true, "no tensor 'w'"); /* weights have no line */
}

/* --- names --- */

static void every_tensor_has_a_name_of_its_own(void **state UNUSED)
{
    struct ir_graph *g = graph_parse("input x FP32[6]\n"
                                     "a = unary \"n\" (x) func=abs\n"
                                     "b = unary \"n\" (a) func=tanh\n"
                                     "c = unary \"m + k\" (b) func=relu\n"
                                     "v, i = topk \"t\" (c) axis=0 k=2\n"
                                     "y = unary \"y\" (v) func=tanh\n"
                                     "output y\noutput i\n");
    static const char *const names[] = {"@n", "@n~2", "@m", "@t", "@t:1", "x~2"};
    uint32_t ids[] = {0, 0, 0, 0, 0, 0}, n = 0;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        for (uint32_t o = 0; o < ir_node(g, k)->n_outputs; o++)
            ids[n++] = ir_node(g, k)->outputs[o];
    assert_int_equal(n, ARRAY_LEN(ids));
    for (uint32_t k = 0; k + 1 < n; k++)
        ir_tensor(g, ids[k])->name = "";
    ir_tensor(g, ids[n - 1])->name = "x"; /* as the input is called */
    assert_true(quant_name_tensors(g));
    for (uint32_t k = 0; k < n; k++)
        assert_string_equal(ir_tensor(g, ids[k])->name, names[k]);
    assert_true(quant_name_tensors(g)); /* again: nothing changes */
    for (uint32_t k = 0; k < n; k++)
        assert_string_equal(ir_tensor(g, ids[k])->name, names[k]);
    ir_graph_free(g);
}

/* The larger end becomes FP8's largest number; one step does for weights that are not too unlike.
 * Emulated, weights and data are rounded, and no range is left. */
static void floats_of_eight_bits_have_ranges_and_are_emulated(void **state)
{
    (void)state;
    struct ir_graph *g =
        graph_parse("input x FP32[2,8]\ny = matmul \"y\" (x, w FP32[8,5])\noutput y\n");
    struct quant_table *table = parse("x range -5 8.96\n");
    struct quant_report report;
    must(quant_apply(g, table, NULL, false, DTYPE_F8, &report, NULL), NULL);
    assert_int_equal(range_of(g, "x")->dtype, DTYPE_F8);
    assert_true(fabsf(range_of(g, "x")->step[0] - 0.02F) < 1e-6F);
    uint32_t w = ir_node(g, 0)->inputs[1];
    const struct ir_scale *weights = ir_scale(g, ir_tensor(g, w)->range);
    assert_true(weights && weights->dtype == DTYPE_F8);
    must(quant_emulate(g, NULL), NULL);
    assert_int_equal(g->n_nodes, 3);
    assert_int_equal(ir_node(g, 0)->op, IR_OP_QUANTIZE);
    assert_int_equal(ir_node(g, 1)->op, IR_OP_DEQUANTIZE);
    assert_int_equal(ir_node(g, 2)->op, IR_OP_MATMUL);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        assert_int_equal(ir_tensor(g, i)->range, IR_NO_SCALE);
    must(ir_verify(g, NULL), NULL);
    quant_table_free(table);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_where_they_are_of_use),
        cmocka_unit_test(weights_have_a_step_for_each_channel),
        cmocka_unit_test(a_channel_of_zeros_has_some_step),
        cmocka_unit_test(ranges_get_a_sign_where_products_want_it),
        cmocka_unit_test(skewed_ranges_have_a_zero_point),
        cmocka_unit_test(what_is_missing_or_unknown_is_named),
        cmocka_unit_test(every_tensor_has_a_name_of_its_own),
        cmocka_unit_test(floats_of_eight_bits_have_ranges_and_are_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
