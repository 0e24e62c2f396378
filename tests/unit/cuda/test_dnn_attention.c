/* SPDX-License-Identifier: Apache-2.0 */
/* Attention through cuDNN without a device: which nodes have candidates. To run the kernels would
 * take a driver, because they compile at run time. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dry.h"
#include "engine/cuda/family.h"
#include "tests/test.h"

static struct device *device;
static const char *properties;

static int setup(void **state UNUSED)
{
    struct error err = {0};
    if (cuda_device_open_dry(properties, NULL, &device, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return 0;
}

static int teardown(void **state UNUSED)
{
    cuda_device_close(device);
    return 0;
}

struct attention {
    int64_t n, queries, keys, heads, head;
    bool packed, masked;
};

static uint32_t tensor(struct ir_graph *g, int64_t n, int64_t rows, int64_t columns)
{
    struct shape s = {.rank = 3, .dim = {n, rows, columns}};
    return ir_tensor_add(g, "t", DTYPE_F32, &s);
}

static struct ir_graph *make(const struct attention *a)
{
    struct ir_graph *g = ir_graph_new();
    int64_t width = a->heads * a->head;
    struct shape mask = {.rank = 4, .dim = {a->n, 1, 1, a->keys}};
    struct error err = {0};
    uint32_t in[4] = {tensor(g, a->n, a->queries, a->packed ? 3 * width : width), IR_NONE, IR_NONE,
                      IR_NONE};
    if (!a->packed) {
        in[1] = tensor(g, a->n, a->keys, width);
        in[2] = tensor(g, a->n, a->keys, width);
    }
    if (a->masked)
        in[3] = ir_tensor_add(g, "mask", DTYPE_F32, &mask);
    uint32_t node = ir_node_add(g, IR_OP_ATTENTION, "attention", 4, in);
    assert_true(ir_attr_set_int(g, node, IR_ATTR_HEADS, a->heads));
    assert_true(ir_attr_set_int(g, node, IR_ATTR_PACKED, a->packed));
    assert_true(ir_attr_set_float(g, node, IR_ATTR_ALPHA, 0.125F));
    if (ir_infer_apply(g, node, NULL, 0, &err))
        print_message("%s\n", err.text);
    assert_int_equal(ir_node(g, node)->n_outputs, 1);
    return g;
}

static enum status count(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    assert_int_equal(tactic->id, cuda_tactic_id(CUDA_FAMILY_DNN_ATTENTION, 0));
    assert_int_equal(tactic->in[0].format.layout, IR_LAYOUT_PLAIN);
    ++*(uint32_t *)user;
    return STATUS_OK;
}

static uint32_t ask(const struct attention *a, enum precision precision)
{
    uint32_t n = 0;
    struct error err = {0};
    struct ir_graph *g = make(a);
    assert_int_equal(cuda_family_dnn_attention.candidates(cuda_device_of(device), g, ir_node(g, 0),
                                                          precision, count, &n, &err),
                     STATUS_OK);
    ir_graph_free(g);
    return n;
}

static void half_types_without_mask(void **state UNUSED)
{
    struct attention a = {.n = 2, .queries = 128, .keys = 128, .heads = 12, .head = 64};
    assert_in_range(ask(&a, PRECISION_F16), 1, 16);
    assert_in_range(ask(&a, PRECISION_BF16), 1, 16);
    assert_int_equal(ask(&a, PRECISION_F32), 0);
    a.packed = true;
    assert_in_range(ask(&a, PRECISION_F16), 1, 16);
    a.masked = true;
    assert_int_equal(ask(&a, PRECISION_F16), 0);
    a = (struct attention){.n = 1, .queries = 7, .keys = 197, .heads = 4, .head = 80};
    assert_in_range(ask(&a, PRECISION_F16), 1, 16);
    a.head = 20;
    assert_int_equal(ask(&a, PRECISION_F16), 0);
    a.head = 136;
    assert_int_equal(ask(&a, PRECISION_F16), 0);
}

static void foreign_tactics_are_refused(void **state UNUSED)
{
    struct attention a = {.n = 2, .queries = 128, .keys = 128, .heads = 12, .head = 64};
    struct ir_graph *g = make(&a);
    struct error err;
    struct tactic t;
    cuda_tactic(&t, &cuda_family_dnn_attention, 0, g, ir_node(g, 0), DTYPE_F16, IR_LAYOUT_PLAIN,
                "x");
    assert_int_equal(cuda_compile(device, g, ir_node(g, 0), &t, &err), STATUS_FAILED_PRECONDITION);
    memset(t.blob, 0xff, sizeof(t.blob));
    t.blob_size = 8;
    assert_int_equal(cuda_compile(device, g, ir_node(g, 0), &t, &err), STATUS_FAILED_PRECONDITION);
    const int32_t nowhere[] = {250, 0};
    memcpy(t.blob, nowhere, sizeof(nowhere));
    assert_int_equal(cuda_compile(device, g, ir_node(g, 0), &t, &err), STATUS_FAILED_PRECONDITION);
    ir_graph_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_types_without_mask),
        cmocka_unit_test(foreign_tactics_are_refused),
    };
    if (argc != 2)
        return 2;
    properties = argv[1];
    return cmocka_run_group_tests(tests, setup, teardown);
}
