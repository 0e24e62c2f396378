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

enum mask { NONE, KEYS, QUERIES, HEADS, ALL, COLUMN, BOOLS };

struct attention {
    int64_t n, queries, keys, heads, head;
    int64_t kv_heads;                  /* 0: as many */
    bool packed, causal, spans, first; /* first: heads first */
    enum mask mask;
};

static uint32_t tensor(struct ir_graph *g, const struct attention *a, int64_t rows, int64_t heads)
{
    struct shape flat = {.rank = 3, .dim = {a->n, rows, heads * a->head}};
    struct shape deep = {.rank = 4, .dim = {a->n, heads, rows, a->head}};
    return ir_tensor_add(g, "t", DTYPE_F32, a->first ? &deep : &flat);
}

static uint32_t mask(struct ir_graph *g, const struct attention *a)
{
    const struct shape shapes[] = {
        [KEYS] = {.rank = 4, .dim = {a->n, 1, 1, a->keys}},
        [QUERIES] = {.rank = 2, .dim = {a->queries, a->keys}},
        [HEADS] = {.rank = 4, .dim = {1, a->heads, a->queries, a->keys}},
        [ALL] = {.rank = 4, .dim = {a->n, a->heads, a->queries, a->keys}},
        [COLUMN] = {.rank = 4, .dim = {a->n, 1, a->queries, 1}},
        [BOOLS] = {.rank = 4, .dim = {a->n, 1, 1, a->keys}},
    };
    enum dtype dtype = a->mask == BOOLS ? DTYPE_BOOL : DTYPE_F32;
    return a->mask == NONE ? IR_NONE : ir_tensor_add(g, "mask", dtype, &shapes[a->mask]);
}

static struct ir_graph *make(const struct attention *a)
{
    struct ir_graph *g = ir_graph_new();
    int64_t kv = a->kv_heads ? a->kv_heads : a->heads;
    struct error err = {0};
    uint32_t in[5] = {tensor(g, a, a->queries, a->packed ? a->heads + 2 * kv : a->heads), IR_NONE,
                      IR_NONE, mask(g, a), IR_NONE};
    if (!a->packed) {
        in[1] = tensor(g, a, a->keys, kv);
        in[2] = tensor(g, a, a->keys, kv);
    }
    const struct shape spans = {.rank = 3, .dim = {a->n, a->queries, 2}};
    if (a->spans)
        in[4] = ir_tensor_add(g, "spans", DTYPE_I32, &spans);
    uint32_t node = ir_node_add(g, IR_OP_ATTENTION, "attention", 5, in);
    assert_true(ir_attr_set_int(g, node, IR_ATTR_HEADS, a->heads));
    assert_true(ir_attr_set_int(g, node, IR_ATTR_PACKED, a->packed));
    assert_true(ir_attr_set_int(g, node, IR_ATTR_KV_HEADS, a->kv_heads));
    assert_true(ir_attr_set_int(g, node, IR_ATTR_CAUSAL, a->causal));
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

static void expect(const struct attention *a, bool taken)
{
    assert_in_range(ask(a, PRECISION_F16), taken, taken ? 16 : 0);
    assert_in_range(ask(a, PRECISION_BF16), taken, taken ? 16 : 0);
    assert_int_equal(ask(a, PRECISION_F32), 0);
}

static void takes_half_types(void **state UNUSED)
{
    struct attention a = {.n = 2, .queries = 128, .keys = 128, .heads = 12, .head = 64};
    expect(&a, true);
    a.packed = true;
    expect(&a, true);
    a.spans = true; /* it would see all keys */
    expect(&a, false);
    a = (struct attention){.n = 1, .queries = 7, .keys = 197, .heads = 4, .head = 80};
    expect(&a, true);
    a.first = true;
    a.kv_heads = 2;
    expect(&a, true);
    a.head = 20;
    expect(&a, false);
    a.head = 264;
    expect(&a, false);
}

static void takes_masks_along_the_keys(void **state UNUSED)
{
    for (int m = KEYS; m <= BOOLS; m++) {
        struct attention a = {
            .n = 2, .queries = 128, .keys = 128, .heads = 12, .head = 64, .mask = (enum mask)m};
        expect(&a, m < COLUMN);
        a.causal = true;
        expect(&a, m < COLUMN);
    }
}

static void takes_causal_forms_that_see_a_key(void **state UNUSED)
{
    struct attention a = {
        .n = 2, .queries = 64, .keys = 128, .heads = 12, .head = 64, .causal = true};
    expect(&a, true);
    a.mask = KEYS;
    expect(&a, false);
    a.queries = 1; /* which sees all keys */
    expect(&a, true);
    a.mask = NONE;
    a.queries = 129;
    expect(&a, false);
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
        cmocka_unit_test(takes_half_types),
        cmocka_unit_test(takes_masks_along_the_keys),
        cmocka_unit_test(takes_causal_forms_that_see_a_key),
        cmocka_unit_test(foreign_tactics_are_refused),
    };
    if (argc != 2)
        return 2;
    properties = argv[1];
    return cmocka_run_group_tests(tests, setup, teardown);
}
