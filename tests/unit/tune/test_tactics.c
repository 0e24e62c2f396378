/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tactics as a damaged or hostile plan might have them: preparing refuses the tactic, or gives an
 * op that runs within its buffers (the test watches their ends, the sanitizers the rest).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

static struct device *device;
static struct backend_stream *stream;

static int open_device(void **state)
{
    (void)state;
    device = net_device();
    return (int)device->backend->stream_new(device, &stream, NULL);
}

static int close_device(void **state)
{
    (void)state;
    device->backend->stream_free(stream);
    engine_device_close(device);
    return 0;
}

/* A convolution with a residual, tuned with its k-th candidate; NULL if there are fewer. */
static struct ir_graph *convolution(int k)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t in[3] = {net_input(g, (int64_t[]){1, 16, 8, 8, 0}),
                      net_constant(g, (int64_t[]){16, 16, 3, 3, 0}),
                      net_constant(g, (int64_t[]){16, 0})};
    uint32_t node = net_node(g, IR_OP_CONV, "conv", 3, in);
    net_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){1, 1, 1, 1});
    uint32_t y = net_infer(g, node);
    net_binary(g, node, IR_BINARY_ADD, net_input(g, (int64_t[]){1, 16, 8, 8, 0}));
    net_output(g, y);
    struct tune_options options = {.device = device, .no_timing = true};
    net_only(k);
    enum status st = tune_graph(g, &options, NULL, NULL);
    if (st) {
        ir_graph_free(g);
        return NULL;
    }
    return g;
}

static struct ir_node *the_convolution(const struct ir_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (ir_node(g, i)->op == IR_OP_CONV)
            return ir_node(g, i);
    fail_msg("no convolution");
    return NULL;
}

/* Whether the node can be prepared with this tactic. If so, it must also run, with the workspace
 * that it asks for. */
static bool prepares(const struct ir_graph *g, struct ir_node *node, const struct tactic *tactic)
{
    struct backend_op *op = NULL;
    struct error err;
    if (device->backend->op_prepare(stream, g, node, tactic, &op, &err)) {
        assert_true(err.text[0] != '\0');
        return false;
    }
    node->tactic = tactic;
    node->workspace_bytes = device->backend->op_workspace(op);
    device->backend->op_free(op);
    return true;
}

static void run(const struct ir_graph *g)
{
    float *out[IR_MAX_IO];
    net_run(device, NULL, g, out);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        free(out[i]);
}

static void r34_changed_blobs(void **state)
{
    (void)state;
    unsigned refused = 0, accepted = 0;
    struct ir_graph *g;
    for (int k = 0; (g = convolution(k)) != NULL; k++) {
        struct ir_node *node = the_convolution(g);
        const struct tactic *good = node->tactic;
        for (uint32_t byte = 0; byte < good->blob_size; byte++)
            for (uint32_t value = 0; value < 256; value += byte < 4 ? 1 : 85) {
                struct tactic bad = *good;
                bad.blob[byte] = (uint8_t)value;
                bool same = good->blob[byte] == value;
                bool ok = prepares(g, node, &bad);
                if (same)
                    assert_true(ok);
                accepted += ok && !same;
                refused += !ok;
                if (ok && !same && byte < 4)
                    run(g);
                node->tactic = good;
            }
        ir_graph_free(g);
    }
    if (refused < 1000)
        fail_msg("only %u were refused, %u accepted", refused, accepted);
}

static void r34_changed_heads(void **state)
{
    (void)state;
    struct ir_graph *g;
    for (int k = 0; (g = convolution(k)) != NULL; k++) {
        struct ir_node *node = the_convolution(g);
        const struct tactic *good = node->tactic;
        struct tactic bad = *good;
        bad.id ^= 0x800;
        assert_false(prepares(g, node, &bad));
        bad = *good;
        bad.id = UINT32_MAX;
        assert_false(prepares(g, node, &bad));
        if (good->blob_size > 0) {
            for (uint32_t size = 0; size <= TACTIC_BLOB_MAX; size++) {
                bad = *good;
                bad.blob_size = size;
                assert_int_equal(prepares(g, node, &bad), size == good->blob_size);
            }
        }
        node->tactic = good;
        ir_graph_free(g);
    }
}

/* Tensors that are smaller, or laid out differently, than those that the tactic was made for. */
static void r34_changed_tensors(void **state)
{
    (void)state;
    struct ir_graph *g;
    for (int k = 0; (g = convolution(k)) != NULL; k++) {
        struct ir_node *node = the_convolution(g);
        const struct tactic *good = node->tactic;
        bool onednn = strncmp(good->name, "onednn", 6) == 0;
        uint32_t ids[5] = {node->inputs[0], node->inputs[1], node->inputs[2], node->inputs[3],
                           node->outputs[0]};
        for (int i = 0; i < 5 && onednn; i++) {
            struct ir_tensor *t = ir_tensor(g, ids[i]), was = *t;
            t->bytes = was.bytes - 64;
            assert_false(prepares(g, node, good));
            *t = was;
            for (int layout = 0; layout <= IR_LAYOUT_OPAQUE; layout++) {
                t->layout = (enum ir_layout)layout;
                bool ok = prepares(g, node, good);
                if (t->layout == was.layout)
                    assert_true(ok);
                else if (t->shape.rank > 1)
                    assert_false(ok);
            }
            *t = was;
            t->dtype = DTYPE_I32;
            assert_false(prepares(g, node, good));
            *t = was;
        }
        assert_true(prepares(g, node, good));
        ir_graph_free(g);
    }
}

/* A tactic of one op on a node of another. */
static void r34_tactics_of_other_ops(void **state)
{
    (void)state;
    struct ir_graph *g = convolution(0), *other = ir_graph_new();
    struct tactic tactic = *the_convolution(g)->tactic;
    uint32_t in[2] = {net_input(other, (int64_t[]){4, 4, 0}),
                      net_input(other, (int64_t[]){4, 4, 0})};
    static const struct {
        enum ir_op op;
        enum ir_attr_key key;
    } rows[] = {{IR_OP_MATMUL, IR_ATTR_TRANS_A},
                {IR_OP_BINARY, IR_ATTR_FUNC},
                {IR_OP_CONCAT, IR_ATTR_AXIS},
                {IR_OP_TILE, IR_ATTR_NONE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t node = net_node(other, rows[i].op, "other", rows[i].op == IR_OP_TILE ? 1 : 2, in);
        if (rows[i].op == IR_OP_TILE)
            net_ints(other, node, IR_ATTR_REPEATS, 2, (int64_t[]){1, 2});
        else
            net_int(other, node, rows[i].key, 0);
        net_infer(other, node);
        assert_false(prepares(other, ir_node(other, node), &tactic));
    }
    ir_graph_free(other);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r34_changed_blobs),
        cmocka_unit_test(r34_changed_heads),
        cmocka_unit_test(r34_changed_tensors),
        cmocka_unit_test(r34_tactics_of_other_ops),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
