/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refusals of operators for images, boxes and signals, and the nodes that a NonMaxSuppression
 * becomes; a line a case. tests/ops and tests/zoo check the values.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/cases.h"

static const struct refusal refusals[] = {
    {"GridSample", 16, "x1,2,4,4 x1,3,3,2", "mode=linear", "attribute 'mode'"},
    {"GridSample", 20, "x1,2,4,4 x1,3,3,2", "padding_mode=wrap", "attribute 'padding_mode'"},
    {"GridSample", 20, "x1,2,4,4 x1,3,3,3", "", "do not fit together"},
    {"GridSample", 20, "x1,2,4,4 x2,3,3,2", "", "do not fit together"},
    {"GridSample", 20, "x1,2,4,4", "", "1 inputs"},
    {"GridSample", 20, "b1,2,4,4 x1,3,3,2", "", "INT64"},
    {"AffineGrid", 20, "x2,2,3 c2,3,4", "", "does not fit"},
    {"AffineGrid", 20, "x2,2,3 c3,1,4,4", "", "does not fit"},
    {"AffineGrid", 20, "x2,2,3 c2,1,-4,4", "", "a size of -4"},
    {"AffineGrid", 20, "x2,2,3 c2,1,2000000000,2000000000", "", "AffineGrid"},
    {"AffineGrid", 20, "x2,2,3 b4", "", "must be known"},
    {"RoiAlign", 16, "x1,2,8,8 x3,4 b2", "", "not [3]"},
    {"RoiAlign", 16, "x1,2,8,8 x3,5 b3", "", "do not fit"},
    {"RoiAlign", 16, "x1,2,8,8 x3,4 b3", "output_height:0", "shape[0] is 0"},
    {"RoiAlign", 16, "x1,2,8,8 x3,4 b3", "sampling_ratio:-1", "size[0] is -1"},
    {"RoiAlign", 16, "x1,2,8,8 x3,4 b3", "mode=min", "attribute 'mode'"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,4", "pooled_shape=2,2", "rows of five"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,5", "", "pooled_shape"},
    {"NonMaxSuppression", 11, "x1,9,4 x1,2,8 s3", "", "do not fit"},
    {"NonMaxSuppression", 11, "x1,9,5 x1,2,9 s3", "", "do not fit"},
    {"NonMaxSuppression", 11, "x1,9,4 x1,2,9 b1", "", "must be known"},
    {"NonMaxSuppression", 11, "x1,9,4 x1,2,9 s3 x1", "", "must be known"},
    {"NonMaxSuppression", 11, "x1,9,4 x1,2,9 c3,4", "", "2 elements"},
    {"DeformConv", 19, "x1,4,8,8 x6,2,3,3 x1,18,6,6", "", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,5", "", "does not fit the window"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,16,6,6", "", "DeformConv"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,6", "offset_group:3", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,6", "group:0", "do not fit its input"},
    {"Col2Im", 18, "x1,5,4 c5,5 c1,5", "", "4 columns of 5, expected 5"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,6", "", "larger than the image"},
    {"Col2Im", 18, "x1,5,5 c5,5 c5", "", "an image of 2 and blocks of 1"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,5", "strides=0,1", "'strides'"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,5", "pads=1,1", "'pads' has 2"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,9999", "", "in blocks of 9999"},
    {"CenterCropPad", 18, "x4,5 c3", "", "1 sizes for 2"},
    {"CenterCropPad", 18, "x4,5 c3,-1", "", "a size of -1"},
    {"CenterCropPad", 18, "x4,5 c3", "axes=2", "axis 2"},
    {"Det", 11, "x3,4", "", "not square"},
    {"DFT", 17, "x2,8,3", "", "expected 1 or 2"},
    {"DFT", 17, "x2,8,1", "axis:2", "axis 2"},
    {"DFT", 17, "x2,8,1 s0", "", "length 0"},
    {"DFT", 17, "x2,8,1 s99999999", "", "99999999 points"},
    {"DFT", 20, "x2,20000,1", "", "20000 points"},
    {"DFT", 20, "x2,8,1 - b1", "", "must be known"},
    {"STFT", 17, "x1,64,1 s8", "", "neither a window nor a frame length"},
    {"STFT", 17, "x1,64,1 s8 x16 s8", "", "a window of 16 for frames of 8"},
    {"STFT", 17, "x1,64,1 s0 x16", "", "every 0"},
    {"STFT", 17, "x1,8,1 s4 x16", "", "frames of 16"},
    {"STFT", 17, "x64 s8 x16", "", "rank 1"},
    {"MelWeightMatrix", 17, "s8 s64 s0 s0 s100", "", "at a rate of 0"},
    {"MelWeightMatrix", 17, "s8 s64 s8000 s100 s0", "", "from 100 to 0 hertz"},
    {"MelWeightMatrix", 17, "s4000000 s4000000 s8000 s0 s100", "", "4000000 bands"},
    {"Unique", 11, "x4", "", "must be known"},
    {"Unique", 11, "c1,2,1", "axis:1", "axis 1"},
    {"MaxUnpool", 11, "x1,1,2,2 b1,1,2,2 c1,1,3,4", "kernel_shape=2,2 strides=2,2", "smaller"},
    {"Einsum", 12, "x2,3", "equation=ii->i", "size 2 and 3"},
    {"Einsum", 12, "x2,3 x2,3", "equation=ij,jk->ik", "size 3 and 2"},
    {"Einsum", 12, "x2,2", "equation=ij->ii", "twice in the result"},
    {"OptionalGetElement", 18, "-", "", "0 inputs"},
};

static void r14_what_does_not_fit_is_refused(void **state UNUSED)
{
    case_refuse_all(refusals, ARRAY_LEN(refusals));
}

static void hear(void *user, enum log_level level, const char *text)
{
    if (level == LOG_WARNING)
        strncat(user, text, 255);
}

/* The output has as many rows as could be selected, and a warning says so. */
static void computed_boxes_have_a_bounded_output(void **state UNUSED)
{
    static const struct {
        const char *operands;
        int64_t rows;
    } cases[] = {{"x2,9,4 x2,3,9 s4", 24},
                 {"x1,9,4 x1,3,9 s100", 27},
                 {"x1,9,4 x1,3,9 s-1", 0},
                 {"x1,9,4 x1,3,9", 0}};
    static struct built b;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char heard[256] = "", want[32];
        const struct log_sink log = {.write = hear, .user = heard, .level = LOG_WARNING};
        const struct onnx_options options = {.batch = 1, .log = &log};
        const struct refusal c = {"NonMaxSuppression", 11, cases[i].operands, "", NULL};
        struct ir_graph *graph = NULL;
        struct error err;
        if (case_import(&b, &c, &options, &graph, &err))
            fail_msg("%s", err.text);
        const struct shape *y = &ir_tensor(graph, graph->outputs[0])->shape;
        assert_int_equal(y->dim[0], cases[i].rows);
        assert_int_equal(y->dim[1], 3);
        snprintf(want, sizeof(want), "has %lld rows", (long long)cases[i].rows);
        if (!strstr(heard, want))
            fail_msg("'%s' does not say '%s'", heard, want);
        ir_graph_free(graph);
    }
}

/* The nodes of a Resize of opset 10 as "rounding shape" each. */
static void resized(const float scales[2], char *out, size_t size)
{
    static const int64_t two[] = {2}, shape[] = {6, 8};
    struct wire graph = {.n = 0}, model;
    struct onnx_model *opened = NULL;
    struct ir_graph *made = NULL;
    struct error err;
    wire_input(&graph, "x", 1, 2, shape);
    wire_constant(&graph, "s", 1, 1, two, scales, 2 * sizeof(*scales));
    wire_node(&graph, "Resize", "x s", "y", NULL);
    wire_output(&graph, "y");
    wire_model(&model, &graph, 10);
    const struct onnx_options options = {.batch = 1};
    if (onnx_open_memory(model.data, model.n, &opened, &err) ||
        onnx_import(opened, &options, &made, &err))
        fail_msg("%s", err.text);
    out[0] = '\0';
    for (uint32_t i = 0; i < made->n_nodes; i++) {
        const struct ir_node *n = ir_node(made, i);
        char text[SHAPE_TEXT_MAX];
        size_t len = strlen(out);
        snprintf(out + len, size - len, "%s %s ",
                 ir_attr_int(n, IR_ATTR_NEAREST) == IR_NEAREST_CEIL ? "up" : "down",
                 shape_format(&ir_tensor(made, n->outputs[0])->shape, text));
    }
    ir_graph_free(made);
    onnx_close(opened);
}

/* Places are rounded up along axes that become smaller, and down along others. */
static void resize_of_opset_10_rounds_by_axis(void **state UNUSED)
{
    static const struct {
        float scales[2];
        const char *nodes;
    } cases[] = {{{0.5F, 1}, "up [3,8] "},
                 {{0.5F, 0.6F}, "up [3,4] "},
                 {{1, 2}, "down [6,16] "},
                 {{2, 0.5F}, "up [6,4] down [12,4] "},
                 {{1, 1}, "down [6,8] "}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char nodes[128];
        resized(cases[i].scales, nodes, sizeof(nodes));
        assert_string_equal(nodes, cases[i].nodes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r14_what_does_not_fit_is_refused),
        cmocka_unit_test(resize_of_opset_10_rounds_by_axis),
        cmocka_unit_test(computed_boxes_have_a_bounded_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
