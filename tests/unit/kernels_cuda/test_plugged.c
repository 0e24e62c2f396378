/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins' kernels for CUDA, from a node to its answer, on the emulated device: the example that is
 * installed, engine/plugin/examples/peak_scale.cu, compiled as C++.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/plugin/plugin.h"
#include "tests/test.h"
#include "tests/unit/kernels_cuda/emulated.h"

enum { LISTED_MAX = 8 };

struct list {
    struct tactic items[LISTED_MAX];
    uint32_t n;
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct list *list = user;
    assert_true(list->n < LISTED_MAX);
    list->items[list->n++] = *tactic;
    return STATUS_OK;
}

/* A node of PeakScale over x, whose outputs are the graph's. */
static struct ir_graph *peak_new(enum dtype dtype, const struct shape *shape)
{
    static const char *const names[] = {"y", "peak"};
    static const float to = 3;
    const struct inferd_plugin_attr attr = {
        .name = "to", .kind = INFERD_PLUGIN_FLOATS, .count = 1, .floats = &to};
    const struct plugin *of = NULL;
    const struct inferd_plugin_op *op = plugin_find("example.inferd", "PeakScale", &of);
    int64_t words[PLUGIN_WORDS_MAX];
    uint32_t n;
    struct error err = {0};
    assert_non_null(op);
    assert_true(plugin_node_write(of, op, &attr, 1, words, &n));
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    uint32_t x = ir_tensor_add(graph, "x", dtype, shape);
    graph->inputs[graph->n_inputs++] = x;
    uint32_t node = ir_node_add(graph, IR_OP_PLUGIN, "peak", 1, &x);
    assert_true(ir_attr_set_ints(graph, node, IR_ATTR_WORDS, n, words));
    if (ir_infer_apply(graph, node, names, 2, &err))
        fail_msg("%s", err.text);
    case_outputs(graph);
    return graph;
}

static void ask(struct emulated *b, const struct ir_graph *graph, enum precision precision,
                struct list *list)
{
    struct error err = {0};
    list->n = 0;
    if (backend_emulated.candidates(&b->device.base, graph, ir_node(graph, 0), precision, keep,
                                    list, &err))
        fail_msg("%s", err.text);
}

static double bound_of(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 2e-3 : dtype == DTYPE_BF16 ? 2e-2 : 1e-6;
}

static void try_tactic(struct emulated *b, enum dtype dtype, const struct shape *shape,
                       const struct tactic *tactic)
{
    struct subject subject;
    struct outcome out = {0};
    struct error err = {0};
    struct ir_graph *graph = peak_new(dtype, shape);
    enum dtype type = trial_type(graph, tactic);
    enum status status = subject_init(&subject, peak_new(dtype, shape), type, 7, true, &err);
    if (!status)
        status = trial_run(&b->trial, &subject, graph, tactic, 0, &out, &err);
    if (status)
        fail_msg("'%s': %s", tactic->name, err.text);
    if (!(out.error <= bound_of(type)))
        fail_msg("'%s': error %g", tactic->name, out.error);
    subject_deinit(&subject);
    ir_graph_free(graph);
}

static const struct shape small = {.rank = 3, .dim = {3, 5, 7}},
                          large = {.rank = 2, .dim = {2, 9001}};

static void every_kernel_agrees_with_the_reference(void **state)
{
    static const struct {
        const struct shape *shape;
        enum dtype dtype;
        enum precision precision;
        const char *names[LISTED_MAX];
    } rows[] = {
        {&small, DTYPE_F32, PRECISION_F32, {"plugin peak-scale.one-block"}},
        {&large,
         DTYPE_F32,
         PRECISION_TF32,
         {"plugin peak-scale.one-block", "plugin peak-scale.parts"}},
        {&large,
         DTYPE_F32,
         PRECISION_F16,
         {"plugin peak-scale.one-block", "plugin peak-scale.parts", "plugin peak-scale.one-block",
          "plugin peak-scale.parts"}},
        {&small,
         DTYPE_F32,
         PRECISION_BF16,
         {"plugin peak-scale.one-block", "plugin peak-scale.one-block"}},
        {&small, DTYPE_F16, PRECISION_F32, {"plugin peak-scale.one-block"}},
    };
    CLEANUP(emulated_deinit) struct emulated b;
    static struct list list;
    emulated_init(&b);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *graph = peak_new(rows[i].dtype, rows[i].shape);
        ask(&b, graph, rows[i].precision, &list);
        for (uint32_t k = 0; k < list.n; k++) {
            assert_non_null(rows[i].names[k]);
            assert_string_equal(list.items[k].name, rows[i].names[k]);
            try_tactic(&b, rows[i].dtype, rows[i].shape, &list.items[k]);
        }
        assert_null(rows[i].names[list.n]);
        ir_graph_free(graph);
    }
}

static enum status prepare(struct emulated *b, const struct ir_graph *graph,
                           const struct tactic *tactic, struct backend_op **op, struct error *err)
{
    return backend_emulated.op_prepare(&b->stream, graph, ir_node(graph, 0), tactic, op, err);
}

/* Tactics as a damaged plan, or one of other hardware, might have them. */
static void stored_tactics_are_checked(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    static struct list list;
    struct backend_op *op = NULL;
    struct error err = {0};
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = peak_new(DTYPE_F32, &small);
    ask(&b, graph, PRECISION_F32, &list);
    struct tactic *tactic = &list.items[0];
    static const char *const names[] = {"reference", "parts", "none-such", ""};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tactic other = *tactic;
        other.blob_size = (uint32_t)strlen(names[i]);
        memcpy(other.blob, names[i], other.blob_size);
        assert_int_equal(prepare(&b, graph, &other, &op, &err), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "for the GPU"));
    }
    struct tactic other = *tactic;
    other.id++;
    assert_int_equal(prepare(&b, graph, &other, &op, &err), STATUS_INVALID_ARGUMENT);
    other = *tactic;
    other.n_in = 0;
    assert_int_equal(prepare(&b, graph, &other, &op, &err), STATUS_INVALID_ARGUMENT);
    other = *tactic;
    other.blob_size = TACTIC_BLOB_MAX;
    assert_int_equal(prepare(&b, graph, &other, &op, &err), STATUS_INVALID_ARGUMENT);
    ir_graph_free(graph);
}

/* A kernel that ends a capture is named. */
static void a_kernel_that_waits_is_found(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    static struct list list;
    struct backend_op *op = NULL;
    struct error err = {0};
    float x[3 * 5 * 7] = {1, -2}, y[3 * 5 * 7], peak[3];
    void *in[1] = {x}, *out[2] = {y, peak};
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = peak_new(DTYPE_F32, &small);
    ask(&b, graph, PRECISION_F32, &list);
    assert_int_equal(prepare(&b, graph, &list.items[0], &op, &err), STATUS_OK);
    assert_int_equal(backend_emulated.op_workspace(op), 0);
    b.stream.capturing = true;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, out, NULL, &err), STATUS_OK);
    assert_true(y[1] == -3 && peak[0] == 2);
    emulated_capture = cudaStreamCaptureStatusInvalidated;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, out, NULL, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "'peak-scale': its kernel 'one-block' does what cannot be"));
    emulated_capture = cudaStreamCaptureStatusActive;
    emulated_idle = true;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, out, NULL, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "'one-block' puts nothing onto the stream"));
    emulated_idle = false;
    backend_emulated.op_free(op);
    ir_graph_free(graph);
}

static int load(void **state)
{
    (void)state;
    return (int)plugin_add(inferd_plugin(), "0", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_agrees_with_the_reference),
        cmocka_unit_test(stored_tactics_are_checked),
        cmocka_unit_test(a_kernel_that_waits_is_found),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
