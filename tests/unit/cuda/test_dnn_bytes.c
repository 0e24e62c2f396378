/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of INT8 through cuDNN, as far as tests can go without a device: which layers have
 * candidates, what these pack, and that they come back from their blobs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dry.h"
#include "engine/cuda/family.h"
#include "engine/quant/weights.h"
#include "engine/stored.h"
#include "tests/test.h"

enum { TACTICS_MAX = 64 };

static struct device *device;
static const char *properties;

static int setup(void **state UNUSED)
{
    struct error err = {0};
    if (!cuda_device_open_dry(properties, NULL, &device, &err))
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

static int teardown(void **state UNUSED)
{
    cuda_device_close(device);
    return 0;
}

struct layer {
    int64_t c, size, k, kernel, stride;
    bool residual, relu, zero;
};

static void range(struct ir_graph *g, uint32_t tensor, float step, int32_t zero)
{
    const struct ir_scale scale = {
        .n = 1, .dtype = DTYPE_I8, .step = &step, .zero = zero ? &zero : NULL};
    ir_tensor(g, tensor)->range = ir_scale_add(g, &scale);
    assert_int_not_equal(ir_tensor(g, tensor)->range, IR_NO_SCALE);
}

/* A convolution whose tensors all have ranges. */
static struct ir_graph *make(const struct layer *l)
{
    struct ir_graph *g = ir_graph_new();
    int64_t pad = l->kernel / 2;
    size_t n = (size_t)(l->k * l->c * l->kernel * l->kernel);
    struct shape x = {4, {2, l->c, l->size, l->size}}, b = {1, {l->k}};
    struct shape w = {4, {l->k, l->c, l->kernel, l->kernel}};
    float *weights = arena_array(g->arena, n, sizeof(*weights));
    float *bias = arena_array(g->arena, (size_t)l->k, sizeof(*bias));
    assert_true(weights && bias);
    for (size_t i = 0; i < n; i++)
        weights[i] = (float)(i * 37 % 255) - 127;
    for (int64_t i = 0; i < l->k; i++)
        bias[i] = (float)i;
    uint32_t in[3] = {ir_tensor_add(g, "x", DTYPE_F32, &x),
                      ir_constant_add(g, "w", DTYPE_F32, &w, weights),
                      ir_constant_add(g, "b", DTYPE_F32, &b, bias)};
    uint32_t node = ir_node_add(g, IR_OP_CONV, "conv", 3, in);
    bool made = false;
    assert_true(ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, (int64_t[]){l->stride, l->stride}) &&
                ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){pad, pad, pad, pad}));
    assert_int_equal(ir_infer_apply(g, node, NULL, 0, NULL), STATUS_OK);
    uint32_t y = ir_node(g, node)->outputs[0];
    range(g, in[0], 0.5F, l->zero ? 3 : 0);
    range(g, y, 2, 0);
    assert_int_equal(quant_weights_range(g, node, DTYPE_I8, &made, NULL), STATUS_OK);
    if (l->residual) {
        const struct shape like = ir_tensor(g, y)->shape;
        uint32_t z = ir_tensor_add(g, "z", DTYPE_F32, &like);
        range(g, z, 4, 0);
        assert_true(ir_epilogue_add(
            g, node, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, z));
    }
    if (l->relu)
        assert_true(ir_epilogue_add(g, node, (struct ir_epilogue){.func = IR_UNARY_RELU}, IR_NONE));
    return g;
}

struct found {
    uint32_t n, to_bytes;
    struct tactic tactics[TACTICS_MAX];
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct found *f = user;
    assert_true(f->n < TACTICS_MAX);
    assert_int_equal(tactic->in[0].format.dtype, DTYPE_I8);
    f->to_bytes += tactic->out[0].format.dtype == DTYPE_I8;
    f->tactics[f->n++] = *tactic;
    return STATUS_OK;
}

static struct found *ask(const struct ir_graph *g)
{
    struct error err = {0};
    struct found *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    if (cuda_family_dnn_bytes.candidates(cuda_device_of(device), g, ir_node(g, 0), PRECISION_F16,
                                         keep, f, &err))
        fail_msg("%s", err.text);
    return f;
}

static const struct layer layers[] = {
    {64, 56, 64, 1, 1, false, true, false},   {64, 56, 64, 3, 1, false, true, false},
    {64, 56, 256, 1, 1, true, true, false},   {256, 56, 512, 1, 2, false, false, false},
    {128, 56, 128, 3, 2, false, true, false}, {512, 7, 512, 3, 1, false, true, false},
    {512, 7, 2048, 1, 1, true, true, false},  {32, 14, 16, 3, 1, true, false, false},
};

static void layers_of_residual_networks_have_candidates(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        struct ir_graph *g = make(&layers[i]);
        struct found *f = ask(g);
        print_message("%zu: %u, %u of them to INT8\n", i, f->n, f->to_bytes);
        assert_in_range(f->to_bytes, 2, f->n - 2);
        free(f);
        ir_graph_free(g);
    }
}

/* cuDNN pads with zeros, and reads 16 channels at a time. */
static void what_it_cannot_do_has_none(void **state UNUSED)
{
    static const struct layer none[] = {
        {64, 14, 64, 3, 1, false, true, true},
        {24, 14, 64, 3, 1, false, true, false},
        {64, 14, 24, 1, 1, false, true, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        struct ir_graph *g = make(&none[i]);
        struct found *f = ask(g);
        assert_int_equal(f->n, 0);
        free(f);
        ir_graph_free(g);
    }
    struct layer l = {64, 14, 64, 1, 1, false, true, true}; /* there is no padding */
    struct ir_graph *g = make(&l);
    struct found *f = ask(g);
    assert_true(f->n > 0);
    free(f);
    ir_graph_free(g);
}

static void take_format(struct ir_graph *g, uint32_t tensor, const struct tactic_port *port)
{
    if (!ir_tensor_is_constant(ir_tensor(g, tensor)))
        assert_true(ir_tensor_set_format(g, tensor, port->format));
}

/* Filters lie with channels last; scales, bias and the factor of the residual count in steps of the
 * output. */
static void constants_are_packed(void **state UNUSED)
{
    struct layer l = {16, 8, 16, 3, 1, true, true, false};
    struct ir_graph *g = make(&l);
    struct found *f = ask(g);
    const struct tactic *t = NULL;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->tactics[i].out[0].format.dtype == DTYPE_I8 &&
            f->tactics[i].in[3].format.dtype == DTYPE_I8)
            t = &f->tactics[i];
    assert_non_null(t);
    const struct ir_node *node = ir_node(g, 0);
    take_format(g, node->inputs[0], &t->in[0]);
    take_format(g, node->inputs[3], &t->in[3]);
    take_format(g, node->outputs[0], &t->out[0]);
    int8_t *packed = malloc(t->in[1].packed_bytes);
    struct error err;
    assert_non_null(packed);
    if (cuda_family_dnn_bytes.pack(cuda_device_of(device), g, node, t, 1, packed, &err))
        fail_msg("%s", err.text);
    const struct ir_tensor *w = ir_tensor(g, node->inputs[1]);
    const struct ir_scale *scale = ir_scale(g, w->range);
    const float *from = w->data, *vectors = (const float *)(void *)(packed + 16 * 16 * 9);
    for (int c = 0; c < 16; c++) {
        for (int k = 0; k < 16; k++)
            for (int tap = 0; tap < 9; tap++)
                assert_int_equal(packed[(c * 9 + tap) * 16 + k],
                                 (int)rintf(from[(c * 16 + k) * 9 + tap] / scale->step[c]));
        assert_true(vectors[c] == 0.5F * scale->step[c] / 2);
        assert_true(vectors[16 + c] == (float)c / 2);
    }
    assert_true(vectors[32] == 2);
    assert_int_equal(
        cuda_family_dnn_bytes.pack(cuda_device_of(device), g, node, t, 2, packed, &err),
        STATUS_FAILED_PRECONDITION);
    free(packed);
    free(f);
    ir_graph_free(g);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    properties = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_residual_networks_have_candidates),
        cmocka_unit_test(what_it_cannot_do_has_none),
        cmocka_unit_test(constants_are_packed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
