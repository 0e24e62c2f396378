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

/* x[2,1,3..] - a, which is broadcast along any of the other dimensions: oneDNN is not told of the
 * channel. */
static void one_channel(void **state UNUSED)
{
    for (uint32_t rank = 3; rank <= 5; rank++) {
        for (uint32_t wide = 0; wide < 1U << rank; wide++) {
            struct ir_graph *graph = ir_graph_new();
            struct shape x = {.rank = rank, .dim = {2, 1, 3, 2, 4}}, a = x;
            for (uint32_t d = 0; d < rank; d++)
                a.dim[d] = wide >> d & 1 ? x.dim[d] : 1;
            const uint32_t in[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &x),
                                    ir_tensor_add(graph, "a", DTYPE_F32, &a)};
            uint32_t node = ir_node_add(graph, IR_OP_BINARY, "difference", 2, in);
            assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, IR_BINARY_SUB));
            infer(graph);
            check(graph);
        }
    }
}

/* x is 0.5 everywhere, so that y follows from the channel alone. */
static enum status try_blocks(void *user, const struct tactic *tactic, struct error *err)
{
    struct trial *t = user;
    const struct ir_node *node = ir_node(t->graph, 0);
    static _Alignas(64) float x[ELEMENTS], a[ELEMENTS], b[ELEMENTS], y[ELEMENTS];
    static _Alignas(64) char workspace[1 << 16];
    const struct ir_tensor *out = ir_tensor(t->graph, node->outputs[0]);
    const int64_t block = ir_layout_block(tactic->out[0].format.layout);
    const int64_t places = out->shape.dim[2] * out->shape.dim[3];
    if (!block)
        return STATUS_OK;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        x[i] = 0.5F;
        a[i] = (float)i;
        b[i] = (float)(i % 7);
    }
    struct ir_graph *shaped = NULL;
    assert_int_equal(ir_graph_copy(t->graph, &shaped, err), STATUS_OK);
    assert_true(ir_tensor_set_layout(shaped, node->inputs[0], tactic->in[0].format.layout) &&
                ir_tensor_set_layout(shaped, node->outputs[0], tactic->out[0].format.layout));
    struct backend_op *op = NULL;
    void *inputs[3] = {x, a, b}, *outputs[1] = {y};
    assert_int_equal(
        backend_cpu.op_prepare(t->stream, shaped, ir_node(shaped, 0), tactic, &op, err), STATUS_OK);
    assert_in_range(backend_cpu.op_workspace(op), 0, sizeof(workspace));
    assert_int_equal(backend_cpu.op_launch(op, t->stream, inputs, outputs, workspace, err),
                     STATUS_OK);
    backend_cpu.op_free(op);
    ir_graph_free(shaped);
    for (int64_t i = 0; i < (int64_t)(out->bytes / sizeof(float)); i++) {
        int64_t c = i / (places * block) * block + i % block;
        assert_true(y[i] == 0.5F * (float)c + (float)(c % 7));
    }
    t->ran++;
    return STATUS_OK;
}

/* x[1,32,1,2] * a[1,32,1,1] + b[1,32,1,1] in blocks of channels: so a network of scales and
 * convolutions (DenseNet) needs no reformats. */
static void numbers_for_each_channel_in_blocks(void **state UNUSED)
{
    const struct device_options options = {.threads = 1};
    struct ir_graph *graph = ir_graph_new();
    struct error err = {0};
    const struct shape x = {.rank = 4, .dim = {1, 32, 1, 2}}, a = {.rank = 4, .dim = {1, 32, 1, 1}};
    const uint32_t in[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &x),
                            ir_tensor_add(graph, "a", DTYPE_F32, &a)};
    uint32_t b = ir_tensor_add(graph, "b", DTYPE_F32, &a);
    uint32_t node = ir_node_add(graph, IR_OP_BINARY, "scale", 2, in);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, IR_BINARY_MUL));
    const struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    assert_true(ir_epilogue_add(graph, node, step, b));
    infer(graph);
    struct trial t = {.graph = graph};
    assert_int_equal(backend_cpu.device_open(&options, &t.device, &err), STATUS_OK);
    assert_int_equal(backend_cpu.stream_new(t.device, &t.stream, &err), STATUS_OK);
    if (backend_cpu.candidates(t.device, graph, ir_node(graph, node), PRECISION_F32, try_blocks, &t,
                               &err))
        fail_msg("%s", err.text);
    assert_true(t.ran > 0);
    backend_cpu.stream_free(t.stream);
    backend_cpu.device_close(t.device);
    ir_graph_free(graph);
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

/* --- BF16 --- */

struct found {
    uint32_t all, short_in, short_out;
};

static enum status count_short(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct found *found = user;
    found->all++;
    found->short_in += tactic->in[0].format.dtype == DTYPE_BF16;
    found->short_out += tactic->out[0].format.dtype == DTYPE_BF16;
    return STATUS_OK;
}

static struct found ask_for(enum precision precision, bool constant)
{
    static const float weights[64 * 16];
    const struct device_options options = {.threads = 1};
    const struct shape x = {.rank = 2, .dim = {4, 64}}, w = {.rank = 2, .dim = {64, 16}};
    struct device *device = NULL;
    struct error err = {0};
    struct found found = {0};
    struct ir_graph *graph = ir_graph_new();
    uint32_t in[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &x),
                      constant ? ir_constant_add(graph, "w", DTYPE_F32, &w, weights)
                               : ir_tensor_add(graph, "w", DTYPE_F32, &w)};
    ir_node_add(graph, IR_OP_MATMUL, "product", 2, in);
    infer(graph);
    assert_int_equal(backend_cpu.device_open(&options, &device, &err), STATUS_OK);
    assert_int_equal(backend_cpu.candidates(device, graph, ir_node(graph, 0), precision,
                                            count_short, &found, &err),
                     STATUS_OK);
    char line[FINGERPRINT_MAX];
    backend_cpu.device_fingerprint(device, line);
    if (precision == PRECISION_BF16 && constant)
        assert_int_equal(found.short_in > 0, strstr(line, "bf16") || strstr(line, "amx"));
    backend_cpu.device_close(device);
    ir_graph_free(graph);
    return found;
}

/* Products by constant weights, with either output, where the machine has instructions for it. */
static void bf16_where_it_is_allowed(void **state UNUSED)
{
    static const enum precision others[] = {PRECISION_F32, PRECISION_TF32, PRECISION_F16};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(ask_for(others[i], true).short_in, 0);
    struct found with = ask_for(PRECISION_BF16, true), without = ask_for(PRECISION_F32, true);
    assert_int_equal(with.all - with.short_in, without.all);
    assert_true(with.short_in == 0 || (with.short_out > 0 && with.short_out < with.short_in));
    assert_int_equal(ask_for(PRECISION_BF16, false).short_in, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogue_of_instances_of_one_place),
        cmocka_unit_test(one_channel),
        cmocka_unit_test(numbers_for_each_channel_in_blocks),
        cmocka_unit_test(log_softmax_over_one_element),
        cmocka_unit_test(bf16_where_it_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
