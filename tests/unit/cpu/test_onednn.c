/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases that oneDNN's kernels get wrong, so that they must not be offered: every candidate of the
 * node whose operands all lie in plain order gives the reference kernel's answer.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/backend.h"
#include "tests/test.h"

enum { ELEMENTS = 64 };

struct trial {
    struct device *device;
    struct backend_stream *stream;
    const struct ir_graph *graph;
    uint32_t ran;
    float want[ELEMENTS];
    bool judge; /* fill `want` from the reference kernel */
};

static bool is_plain(const struct tactic *tactic)
{
    bool plain = true;
    for (uint32_t i = 0; i < tactic->n_in; i++)
        plain =
            plain && tactic->in[i].format.layout == IR_LAYOUT_PLAIN && !tactic->in[i].packed_bytes;
    for (uint32_t i = 0; i < tactic->n_out; i++)
        plain = plain && tactic->out[i].format.layout == IR_LAYOUT_PLAIN;
    return plain;
}

static enum status launch(struct trial *t, const struct tactic *tactic, float *y, struct error *err)
{
    static float in[4][ELEMENTS];
    void *inputs[4], *outputs[1] = {y};
    const struct ir_node *node = ir_node(t->graph, 0);
    struct backend_op *op = NULL;
    static _Alignas(64) char workspace[1 << 16];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        for (uint32_t k = 0; k < ELEMENTS; k++)
            in[i][k] = (float)(k * (i + 3) % 11) / 4 - 1;
        inputs[i] = in[i];
    }
    enum status status = backend_cpu.op_prepare(t->stream, t->graph, node, tactic, &op, err);
    if (!status) {
        assert_in_range(backend_cpu.op_workspace(op), 0, sizeof(workspace));
        status = backend_cpu.op_launch(op, t->stream, inputs, outputs, workspace, err);
    }
    backend_cpu.op_free(op);
    return status;
}

static enum status try_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct trial *t = user;
    float y[ELEMENTS];
    uint64_t n = ir_tensor(t->graph, ir_node(t->graph, 0)->outputs[0])->bytes / sizeof(float);
    if (!is_plain(tactic) || (t->judge && strcmp(tactic->name, "reference") != 0))
        return STATUS_OK;
    memset(y, 0xff, sizeof(y));
    enum status status = launch(t, tactic, t->judge ? t->want : y, err);
    for (uint64_t i = 0; i < n && !status && !t->judge; i++)
        if (!(fabsf(y[i] - t->want[i]) <= 1e-6F * fabsf(t->want[i])))
            fail_msg("%s: [%d] is %.9g, expected %.9g", tactic->name, (int)i, (double)y[i],
                     (double)t->want[i]);
    t->ran++;
    return status;
}

/* Checks every candidate of the graph's only node. Frees the graph. */
static void check(struct ir_graph *graph)
{
    const struct device_options options = {.threads = 1};
    struct trial t = {.graph = graph};
    struct error err = {0};
    assert_int_equal(backend_cpu.device_open(&options, &t.device, &err), STATUS_OK);
    assert_int_equal(backend_cpu.stream_new(t.device, &t.stream, &err), STATUS_OK);
    for (int judge = 1; judge >= 0; judge--) {
        t.judge = judge;
        if (backend_cpu.candidates(t.device, graph, ir_node(graph, 0), PRECISION_F32, try_one, &t,
                                   &err))
            fail_msg("%s", err.text);
    }
    assert_true(t.ran > 1);
    backend_cpu.stream_free(t.stream);
    backend_cpu.device_close(t.device);
    ir_graph_free(graph);
}

static void infer(struct ir_graph *graph)
{
    struct error err = {0};
    if (ir_infer_apply(graph, 0, NULL, 0, &err))
        fail_msg("%s", err.text);
}

/* x[3,C,1..] * a[1,C,1..] + b[1,C,1..]: plain order and channels last have the same strides. */
static void epilogue_of_instances_of_one_place(void **state UNUSED)
{
    for (uint32_t rank = 3; rank <= 5; rank++) {
        for (int64_t channels = 2; channels <= 16; channels += 7) {
            struct ir_graph *graph = ir_graph_new();
            struct shape x = {.rank = rank, .dim = {3, channels, 1, 1, 1}}, a = x;
            a.dim[0] = 1;
            uint32_t in[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &x),
                              ir_tensor_add(graph, "a", DTYPE_F32, &a)};
            uint32_t b = ir_tensor_add(graph, "b", DTYPE_F32, &a);
            uint32_t node = ir_node_add(graph, IR_OP_BINARY, "scale", 2, in);
            assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, IR_BINARY_MUL));
            const struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
            assert_true(ir_epilogue_add(graph, node, step, b));
            infer(graph);
            check(graph);
        }
    }
}

/* The logarithm of 1 is 0, exactly. */
static void log_softmax_over_one_element(void **state UNUSED)
{
    struct ir_graph *graph = ir_graph_new();
    struct shape shape = {.rank = 2, .dim = {7, 1}};
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, &shape);
    uint32_t node = ir_node_add(graph, IR_OP_SOFTMAX, "softmax", 1, &x);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_AXIS, 1));
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_LOG, 1));
    infer(graph);
    check(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogue_of_instances_of_one_place),
        cmocka_unit_test(log_softmax_over_one_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
