/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions through cuDNN, as far as tests can go without a device: which candidates a node has,
 * that precompiled candidates become plans, that plans survive as bytes, that damage is refused,
 * and packing. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dry.h"
#include "engine/cuda/family.h"
#include "tests/device/cases.h"
#include "tests/test.h"

enum { WEIGHTS_MAX = 512 * 512 * 9, CHANNELS_MAX = 2048, TACTICS_MAX = 256 };

static struct device *device;
static struct backend_stream *stream;
static float *weights, *channels;

static const char *properties;

static int setup(void **state UNUSED)
{
    struct error err = {0};
    weights = malloc(WEIGHTS_MAX * sizeof(*weights));
    channels = malloc(CHANNELS_MAX * sizeof(*channels));
    for (int i = 0; i < WEIGHTS_MAX; i++)
        weights[i] = (float)((i * 37) % 1009) / 512.0F - 1.0F;
    for (int i = 0; i < CHANNELS_MAX; i++)
        channels[i] = (float)(i % 61) / 8.0F - 3.0F;
    if (cuda_device_open_dry(properties, NULL, &device, &err) ||
        cuda_stream_new_dry(device, &stream, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return 0;
}

static int teardown(void **state UNUSED)
{
    cuda_stream_free_dry(stream);
    cuda_device_close(device);
    free(weights);
    free(channels);
    return 0;
}

/* --- nodes --- */

struct layer {
    int64_t n, c, size, k, kernel, stride, group;
    enum dtype dtype;
    bool residual, relu, no_bias;
};

static struct shape shape_of(uint32_t rank, const int64_t *dims)
{
    struct shape s = {.rank = rank};
    memcpy(s.dim, dims, rank * sizeof(*dims));
    return s;
}

static struct shape image(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return shape_of(4, (const int64_t[]){n, c, h, w});
}

static struct ir_graph *make(const struct layer *l)
{
    struct ir_graph *g = ir_graph_new();
    int64_t group = l->group ? l->group : 1, pad = l->kernel / 2, stride = l->stride;
    enum dtype dtype = l->dtype ? l->dtype : DTYPE_F32;
    struct shape x = image(l->n, l->c, l->size, l->size),
                 w = image(l->k, l->c / group, l->kernel, l->kernel), b = shape_of(1, &l->k);
    assert_true(l->k * (l->c / group) * l->kernel * l->kernel <= WEIGHTS_MAX);
    uint32_t in[3] = {ir_tensor_add(g, "x", dtype, &x),
                      ir_constant_add(g, "w", DTYPE_F32, &w, weights),
                      ir_constant_add(g, "b", DTYPE_F32, &b, channels)};
    uint32_t node = ir_node_add(g, IR_OP_CONV, "conv", l->no_bias ? 2 : 3, in);
    struct error err;
    assert_true(ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, (int64_t[]){stride, stride}));
    assert_true(ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){pad, pad, pad, pad}));
    assert_true(ir_attr_set_int(g, node, IR_ATTR_GROUP, group));
    if (dtype == DTYPE_F32) {
        assert_int_equal(ir_infer_apply(g, node, NULL, 0, &err), STATUS_OK);
    } else {
        int64_t out = (l->size + 2 * pad - l->kernel) / stride + 1;
        struct shape y = image(l->n, l->k, out, out);
        ir_node_output_add(g, node, "y", dtype, &y);
    }
    struct shape y = ir_tensor(g, ir_node(g, node)->outputs[0])->shape;
    if (l->residual)
        assert_true(ir_epilogue_add(
            g, node, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD},
            ir_tensor_add(g, "z", dtype, &y)));
    if (l->relu)
        assert_true(ir_epilogue_add(g, node, (struct ir_epilogue){.func = IR_UNARY_RELU}, IR_NONE));
    return g;
}

static struct ir_node *node_of(const struct ir_graph *g)
{
    return ir_node(g, 0);
}

struct found {
    uint32_t n, f32_bias, layouts[IR_LAYOUT_COUNT_];
    struct tactic *tactics; /* room for TACTICS_MAX */
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct found *f = user;
    assert_true(f->n < TACTICS_MAX);
    assert_int_equal(tactic->id >> 16, CUDA_FAMILY_DNN_CONV);
    f->f32_bias += strstr(tactic->name, " f32bias ") != NULL;
    f->layouts[tactic->in[0].format.layout]++;
    f->tactics[f->n++] = *tactic;
    return STATUS_OK;
}

/* Keeps only this family's candidates: others take convolutions too. */
static struct found ask(const struct ir_graph *g, enum precision precision)
{
    struct error err = {0};
    struct found f = {.tactics = calloc(TACTICS_MAX, sizeof(struct tactic))};
    enum status st = cuda_family_dnn_conv.candidates(cuda_device_of(device), g, node_of(g),
                                                     precision, keep, &f, &err);
    if (st)
        print_message("%s\n", err.text);
    assert_int_equal(st, STATUS_OK);
    return f;
}

/* Gives the tensors the types and layouts of the tactic. */
static void shape_port(struct ir_graph *g, uint32_t id, const struct tactic_port *port)
{
    if (id == IR_NONE)
        return;
    struct ir_tensor *t = ir_tensor(g, id);
    if (port->packed_bytes == 0) {
        assert_true(ir_tensor_set_format(g, id, port->format));
        return;
    }
    t->layout = IR_LAYOUT_OPAQUE;
    t->bytes = port->packed_bytes;
}

static void apply(struct ir_graph *g, const struct tactic *t)
{
    for (uint32_t i = 0; i < node_of(g)->n_inputs; i++)
        shape_port(g, node_of(g)->inputs[i], &t->in[i]);
    shape_port(g, node_of(g)->outputs[0], &t->out[0]);
}

static const struct tactic *find(const struct found *f, const char *part)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (strstr(f->tactics[i].name, part))
            return &f->tactics[i];
    print_message("no candidate is called '%s'\n", part);
    assert_true(false);
    return NULL;
}

/* --- candidates --- */

#define ROW(c_, size_, k_, kernel_, stride_, residual_, relu_)                                     \
    {                                                                                              \
        .c = c_, .size = size_, .k = k_, .kernel = kernel_, .stride = stride_,                     \
        .residual = residual_, .relu = relu_                                                       \
    }

static const struct layer resnet[] = {
    ROW(64, 56, 64, 1, 1, false, true),      ROW(64, 56, 64, 3, 1, false, true),
    ROW(64, 56, 256, 1, 1, true, true),      ROW(64, 56, 256, 1, 1, false, false),
    ROW(256, 56, 64, 1, 1, false, true),     ROW(256, 56, 128, 1, 1, false, true),
    ROW(128, 56, 128, 3, 2, false, true),    ROW(128, 28, 512, 1, 1, true, true),
    ROW(256, 56, 512, 1, 2, false, false),   ROW(512, 28, 128, 1, 1, false, true),
    ROW(128, 28, 128, 3, 1, false, true),    ROW(512, 28, 256, 1, 1, false, true),
    ROW(256, 28, 256, 3, 2, false, true),    ROW(256, 14, 1024, 1, 1, true, true),
    ROW(512, 28, 1024, 1, 2, false, false),  ROW(1024, 14, 256, 1, 1, false, true),
    ROW(256, 14, 256, 3, 1, false, true),    ROW(1024, 14, 512, 1, 1, false, true),
    ROW(512, 14, 512, 3, 2, false, true),    ROW(512, 7, 2048, 1, 1, true, true),
    ROW(1024, 14, 2048, 1, 2, false, false), ROW(2048, 7, 512, 1, 1, false, true),
    ROW(512, 7, 512, 3, 1, false, true),
};

static const int64_t batches[] = {1, 8, 32, 128};

static void every_layer_has_both_spellings(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(resnet) * ARRAY_LEN(batches); i++) {
        struct layer l = resnet[i / ARRAY_LEN(batches)];
        l.n = batches[i % ARRAY_LEN(batches)];
        struct ir_graph *g = make(&l);
        struct found f = ask(g, PRECISION_F16);
        assert_in_range(f.n, 10, 70);
        assert_in_range(f.f32_bias, 4, f.n - 6);
        assert_int_equal(f.layouts[IR_LAYOUT_CHANNELS_LAST], f.n);
        assert_int_equal(tactic_float(&f.tactics[0]), DTYPE_F16);
        free(f.tactics);
        ir_graph_free(g);
    }
}

/* Plans without timing take the first candidate: one that compiles at run time (it alone has a bias
 * in fp32) for layers of one wave of tiles, a precompiled one for larger ones and for images. */
static void small_layers_begin_with_the_runtime_engine(void **state UNUSED)
{
    static const struct {
        struct layer layer;
        int64_t n;
        bool runtime;
    } rows[] = {
        {ROW(512, 7, 512, 3, 1, false, true), 1, true},
        {ROW(64, 56, 256, 1, 1, true, true), 1, true},
        {ROW(1024, 14, 256, 1, 1, false, true), 32, true},
        {ROW(512, 28, 128, 1, 1, false, true), 32, false},
        {ROW(64, 56, 64, 1, 1, false, true), 128, false},
        {ROW(3, 64, 64, 7, 2, false, true), 1, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct layer l = rows[i].layer;
        l.n = rows[i].n;
        struct ir_graph *g = make(&l);
        struct found f = ask(g, PRECISION_F16);
        assert_true(f.n > 1);
        assert_int_equal(strstr(f.tactics[0].name, " f32bias ") != NULL, rows[i].runtime);
        free(f.tactics);
        ir_graph_free(g);
    }
}

static void the_stem_has_three_layouts(void **state UNUSED)
{
    struct layer l = {
        .n = 32, .c = 3, .size = 224, .k = 64, .kernel = 7, .stride = 2, .relu = true};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_F16);
    assert_in_range(f.layouts[IR_LAYOUT_CHANNELS_LAST], 5, f.n);
    assert_in_range(f.layouts[IR_LAYOUT_CHANNELS_LAST_4], 5, f.n);
    assert_in_range(f.layouts[IR_LAYOUT_CHANNELS_LAST_8], 5, f.n);
    assert_in_range(f.f32_bias, 3, f.n);
    assert_in_range(f.n, 15, 90);
    find(&f, "cudnn conv e48 nhwc4 f16");
    free(f.tactics);
    ir_graph_free(g);
}

/* Tensor cores, which round fp32 to tf32, are offered only if tf32 is allowed. */
static void strict_fp32_is_strict(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 64, .size = 56, .k = 64, .kernel = 3, .stride = 1, .relu = true};
    struct ir_graph *g = make(&l);
    struct found strict = ask(g, PRECISION_F32), tf32 = ask(g, PRECISION_TF32);
    assert_in_range(strict.n, 1, tf32.n - 1);
    assert_int_equal(tactic_float(&strict.tactics[0]), DTYPE_F32);
    assert_int_equal(strict.f32_bias, 0);
    for (uint32_t i = 0; i < strict.n; i++) {
        assert_null(strstr(strict.tactics[i].name, " cfg"));
        assert_null(strstr(strict.tactics[i].name, " e41 "));
    }
    free(strict.tactics);
    free(tf32.tactics);
    ir_graph_free(g);
}

static void bf16_and_groups_and_lone_types(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 64, .size = 28, .k = 64, .kernel = 3, .stride = 1, .relu = true};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_BF16);
    assert_in_range(f.n, 5, 90);
    assert_int_equal(tactic_float(&f.tactics[0]), DTYPE_BF16);
    free(f.tactics);
    ir_graph_free(g);
    l.group = 4;
    g = make(&l);
    f = ask(g, PRECISION_F16);
    assert_in_range(f.n, 1, 90);
    free(f.tactics);
    ir_graph_free(g);
    l.group = 1;
    l.dtype = DTYPE_F16; /* the model itself is fp16 */
    g = make(&l);
    f = ask(g, PRECISION_F16);
    assert_in_range(f.n, 10, 90);
    free(f.tactics);
    ir_graph_free(g);
}

struct tail {
    struct ir_epilogue step;
    int64_t operand[4]; /* {0}: no operand */
    bool constant, wanted;
};

/* An epilogue other than ReLU goes through the runtime engines, or has no candidate. */
static void epilogues(void **state UNUSED)
{
    static const struct tail tails[] = {
        {{.func = IR_UNARY_SIGMOID}, {0}, false, true},
        {{.func = IR_UNARY_SWISH, .alpha = 1}, {0}, false, true},
        {{.func = IR_UNARY_TANH}, {0}, false, true},
        {{.func = IR_UNARY_ELU, .alpha = 1}, {0}, false, true},
        {{.func = IR_UNARY_LEAKY_RELU, .alpha = 0.1F}, {0}, false, true},
        {{.func = IR_UNARY_HARD_SWISH}, {0}, false, true},
        {{.func = IR_UNARY_HARD_SIGMOID, .alpha = 0.2F, .beta = 0.5F}, {0}, false, true},
        {{.func = IR_UNARY_GELU}, {0}, false, true},
        {{.func = IR_UNARY_MISH}, {0}, false, true},
        {{.func = IR_UNARY_CLIP, .alpha = -1, .beta = 1}, {0}, false, true},
        {{.func = IR_UNARY_LINEAR, .alpha = 2, .beta = 1}, {0}, false, true},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_MUL}, {1, 64, 1, 1}, true, true},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_MUL}, {4, 64, 28, 28}, false, true},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_MUL}, {4, 64, 1, 1}, false, true},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_PRELU}, {1, 64, 1, 1}, true, true},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, {1, 64, 28, 28}, true, false},
        {{.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_POW}, {1, 64, 1, 1}, true, false},
        {{.func = IR_UNARY_ASIN}, {0}, false, false},
        {{.func = IR_UNARY_SIGN}, {0}, false, false},
    };
    struct layer l = {.n = 4, .c = 64, .size = 28, .k = 64, .kernel = 3, .stride = 1};
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        const struct tail *t = &tails[i];
        struct ir_graph *g = make(&l);
        uint32_t operand = IR_NONE;
        struct shape s = shape_of(4, t->operand);
        if (s.dim[0] > 0)
            operand = t->constant ? ir_constant_add(g, "o", DTYPE_F32, &s, weights)
                                  : ir_tensor_add(g, "o", DTYPE_F32, &s);
        assert_true(ir_epilogue_add(g, 0, t->step, operand));
        struct found f = ask(g, PRECISION_F16);
        if ((f.n > 0) != t->wanted)
            print_message("epilogue %zu: %u candidates\n", i, f.n);
        assert_int_equal(f.n > 0, t->wanted);
        assert_int_equal(f.f32_bias, f.n);
        free(f.tactics);
        ir_graph_free(g);
    }
}

/* --- windows of all kinds --- */

static const struct case_kind *kind_of(const char *name)
{
    const struct case_kind *kind = case_kinds;
    while (strcmp(kind->name, name) != 0)
        kind++;
    return kind;
}

/* One to three dims, groups, padding that differs, weights that are computed. */
static void odd_convolutions_have_candidates(void **state UNUSED)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct ir_graph *g = case_new(kind_of("conv-odd"), seed);
        assert_non_null(g);
        struct found f = ask(g, PRECISION_F16);
        if (f.n == 0)
            fail_msg("conv-odd %u: no candidate", (unsigned)seed);
        free(f.tactics);
        ir_graph_free(g);
    }
}

/* The first guess of a transposed convolution is a precompiled kernel, which can be prepared. */
static void transposed_convolutions_have_plans(void **state UNUSED)
{
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct ir_graph *g = case_new(kind_of("deconv"), seed);
        struct error err = {0};
        struct backend_op *op;
        assert_non_null(g);
        struct found f = ask(g, PRECISION_F16);
        n += f.n > 0;
        if (f.n > 0) {
            apply(g, &f.tactics[0]);
            if (cuda_op_prepare(stream, g, node_of(g), &f.tactics[0], &op, &err))
                fail_msg("deconv %u '%s': %s", (unsigned)seed, f.tactics[0].name, err.text);
            cuda_op_free(op);
        }
        free(f.tactics);
        ir_graph_free(g);
    }
    assert_in_range(n, 11, 12);
}

/* --- plans --- */

/* Compiles, serialises, drops and loads a plan, then tries again with damaged bytes. */
static void plans_survive_as_bytes(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 64, .size = 56, .k = 64, .kernel = 3, .stride = 1, .relu = true};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_F16);
    struct arena *arena = arena_new(0);
    struct error err = {0};
    const void *code;
    uint64_t size;
    struct tactic t = *find(&f, " e41 ");
    assert_int_equal(cuda_compile(device, g, node_of(g), &t, &err), STATUS_OK);
    assert_int_equal(cuda_code(device, g, node_of(g), &t, arena, &code, &size, &err), STATUS_OK);
    assert_in_range(size, 500, 1 << 20);
    apply(g, &t);
    t.code = code;
    t.code_size = size;
    cuda_compile_drop(device);
    struct backend_op *op;
    enum status st = cuda_op_prepare(stream, g, node_of(g), &t, &op, &err);
    if (st)
        print_message("%s\n", err.text);
    assert_int_equal(st, STATUS_OK);
    cuda_compile_drop(device); /* the plan is in use */
    cuda_op_free(op);
    char *copy = malloc(size);
    for (uint64_t at = 0; at < size; at += MAX(size / 97, 1)) {
        cuda_compile_drop(device);
        memcpy(copy, code, size);
        copy[at] ^= 0x10;
        t.code = copy;
        assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &t, &op, &err),
                         STATUS_FAILED_PRECONDITION);
        t.code = code;
        t.code_size = at;
        assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &t, &op, &err),
                         STATUS_FAILED_PRECONDITION);
        t.code_size = size;
    }
    t.code = code; /* and damage leaves nothing behind */
    assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &t, &op, &err), STATUS_OK);
    cuda_op_free(op);
    free(copy);
    arena_free(arena);
    free(f.tactics);
    ir_graph_free(g);
}

static void code_of_another_node_is_refused(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 64, .size = 56, .k = 64, .kernel = 3, .stride = 1, .relu = true};
    struct ir_graph *a = make(&l);
    l.n = 16;
    struct ir_graph *b = make(&l);
    struct found f = ask(a, PRECISION_F16);
    struct arena *arena = arena_new(0);
    struct error err = {0};
    struct tactic t = *find(&f, " e41 ");
    assert_int_equal(cuda_code(device, a, node_of(a), &t, arena, &t.code, &t.code_size, &err),
                     STATUS_OK);
    struct backend_op *op;
    apply(b, &t);
    assert_int_equal(cuda_op_prepare(stream, b, node_of(b), &t, &op, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "another node"));
    t.code = NULL;
    t.code_size = 0;
    assert_int_equal(cuda_op_prepare(stream, b, node_of(b), &t, &op, &err), STATUS_OK);
    cuda_op_free(op);
    arena_free(arena);
    free(f.tactics);
    ir_graph_free(a);
    ir_graph_free(b);
}

/* If any byte of a blob or of the ports changes, the tactic is refused, or means another engine or
 * knob that is just as valid. */
static void damaged_tactics_are_refused(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 64, .size = 56, .k = 64, .kernel = 3, .stride = 1, .relu = true};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_F16);
    struct tactic t = *find(&f, " e41 ");
    struct backend_op *op;
    struct error err;
    apply(g, &t);
    uint32_t refused = 0, n = 0;
    for (uint32_t at = 0; at < t.blob_size; at++)
        for (int bit = 0; bit < 8; bit += 3, n++) {
            struct tactic bad = t;
            bad.blob[at] ^= (uint8_t)(1 << bit);
            op = NULL;
            if (cuda_op_prepare(stream, g, node_of(g), &bad, &op, &err))
                refused++;
            else
                cuda_op_free(op); /* another engine or knob: a tactic as good as this one */
        }
    assert_in_range(refused, n / 2, n);
    for (uint32_t size = 0; size < t.blob_size; size++) {
        struct tactic bad = t;
        bad.blob_size = size;
        assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &bad, &op, &err),
                         STATUS_FAILED_PRECONDITION);
    }
    struct tactic bad = t;
    bad.in[0].format.dtype = DTYPE_F32; /* but the tensor is stored as FP16 */
    assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &bad, &op, &err),
                     STATUS_INVALID_ARGUMENT);
    ir_tensor(g, node_of(g)->inputs[0])->bytes = 4;
    assert_int_equal(cuda_op_prepare(stream, g, node_of(g), &t, &op, &err),
                     STATUS_FAILED_PRECONDITION);
    cuda_compile_drop(device);
    free(f.tactics);
    ir_graph_free(g);
}

struct crowd {
    const struct ir_graph *graph;
    const struct found *found;
    uint32_t begin, made;
};

static void *compile_some(void *user)
{
    struct crowd *c = user;
    struct error err;
    for (uint32_t i = 0; i < c->found->n; i++) {
        const struct tactic *t = &c->found->tactics[(c->begin + i) % c->found->n];
        c->made += cuda_compile(device, c->graph, node_of(c->graph), t, &err) == STATUS_OK;
        if (i % 16 == 0)
            cuda_compile_drop(device);
    }
    return NULL;
}

/* Four threads want the same plans, and drop them while the others use them. */
static void many_threads_compile(void **state UNUSED)
{
    struct layer l = {.n = 8, .c = 128, .size = 28, .k = 128, .kernel = 3, .stride = 1};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_F16);
    struct crowd crowds[4];
    pthread_t threads[ARRAY_LEN(crowds)];
    for (uint32_t i = 0; i < ARRAY_LEN(crowds); i++) {
        crowds[i] = (struct crowd){g, &f, i % 2 * 5, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, compile_some, &crowds[i]), 0);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(crowds); i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < ARRAY_LEN(crowds); i++) {
        assert_in_range(crowds[i].made, 10, f.n); /* only the precompiled candidates */
        assert_int_equal(crowds[i].made, crowds[0].made);
    }
    cuda_compile_drop(device);
    free(f.tactics);
    ir_graph_free(g);
}

/* --- packing --- */

static float read_as(enum dtype dtype, const void *data, size_t i)
{
    const uint16_t *half = data;
    const float *f = data;
    return dtype == DTYPE_F16    ? f16_to_f32(half[i])
           : dtype == DTYPE_BF16 ? bf16_to_f32(half[i])
                                 : f[i];
}

static float rounded(enum dtype dtype, float f)
{
    return dtype == DTYPE_F16    ? f16_to_f32(f32_to_f16(f))
           : dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(f))
                                 : f;
}

static void *packed(struct ir_graph *g, const struct tactic *t, uint32_t input)
{
    struct error err = {0};
    void *to = aligned_alloc(64, (t->in[input].packed_bytes + 63) / 64 * 64);
    memset(to, 0xff, t->in[input].packed_bytes);
    assert_int_equal(cuda_pack(device, g, node_of(g), t, input, to, &err), STATUS_OK);
    return to;
}

static void check_weights(struct ir_graph *g, const struct layer *l, const struct tactic *t)
{
    int64_t c = l->c / (l->group ? l->group : 1), r = l->kernel, padded = c;
    if (t->in[0].format.layout == IR_LAYOUT_CHANNELS_LAST_4)
        padded = (c + 3) / 4 * 4;
    if (t->in[0].format.layout == IR_LAYOUT_CHANNELS_LAST_8)
        padded = (c + 7) / 8 * 8;
    void *w = packed(g, t, 1);
    assert_in_range(t->in[1].packed_bytes,
                    l->k * padded * r * r * (int64_t)dtype_size(tactic_float(t)),
                    l->k * padded * r * r * (int64_t)dtype_size(tactic_float(t)) + l->k * 4 + 256);
    for (int64_t k = 0; k < l->k; k++)
        for (int64_t i = 0; i < r * r; i++)
            for (int64_t j = 0; j < padded; j++) {
                float want = j < c ? rounded(tactic_float(t), weights[(k * c + j) * r * r + i]) : 0;
                float got = read_as(tactic_float(t), w, (size_t)((k * r * r + i) * padded + j));
                if (want != got)
                    print_message("%s: weight %d %d %d: %g, want %g\n", t->name, (int)k, (int)i,
                                  (int)j, (double)got, (double)want);
                assert_true(want == got);
            }
    free(w);
}

static void check_bias(struct ir_graph *g, const struct layer *l, const struct tactic *t)
{
    bool wide = strstr(t->name, " f32bias ") || tactic_float(t) == DTYPE_F32;
    enum dtype dtype = wide ? DTYPE_F32 : tactic_float(t);
    void *b = packed(g, t, 2);
    assert_int_equal(t->in[2].packed_bytes, l->k * (int64_t)dtype_size(dtype));
    for (int64_t k = 0; k < l->k; k++)
        assert_true(read_as(dtype, b, (size_t)k) == rounded(dtype, channels[k]));
    free(b);
}

static void packs_as_a_loop_does(void **state UNUSED)
{
    static const struct layer layers[] = {
        {.n = 1, .c = 3, .size = 32, .k = 8, .kernel = 7, .stride = 2},
        {.n = 1, .c = 48, .size = 16, .k = 40, .kernel = 3, .stride = 1},
        {.n = 1, .c = 24, .size = 16, .k = 16, .kernel = 1, .stride = 1},
        {.n = 1, .c = 32, .size = 16, .k = 32, .kernel = 3, .stride = 1, .group = 4},
    };
    static const enum precision precisions[] = {PRECISION_F16, PRECISION_BF16, PRECISION_TF32};
    for (size_t i = 0; i < ARRAY_LEN(layers) * ARRAY_LEN(precisions); i++) {
        const struct layer *l = &layers[i / ARRAY_LEN(precisions)];
        struct ir_graph *g = make(l);
        struct found f = ask(g, precisions[i % ARRAY_LEN(precisions)]);
        assert_in_range(f.n, 1, TACTICS_MAX);
        for (uint32_t k = 0; k < f.n; k += 3) {
            check_weights(g, l, &f.tactics[k]);
            check_bias(g, l, &f.tactics[k]);
        }
        free(f.tactics);
        ir_graph_free(g);
    }
}

/* A node without bias: its zeros lie behind the weights. */
static void zeros_stand_for_a_bias(void **state UNUSED)
{
    struct layer l = {
        .n = 1, .c = 16, .size = 8, .k = 24, .kernel = 3, .stride = 1, .no_bias = true};
    struct ir_graph *g = make(&l);
    struct found f = ask(g, PRECISION_F16);
    assert_in_range(f.n, 1, TACTICS_MAX);
    const struct tactic *t = &f.tactics[0];
    size_t at = ((size_t)(24 * 16 * 9) * 2 + 63) / 64 * 64;
    assert_in_range(t->in[1].packed_bytes, at + 24 * 4, at + 24 * 4 + 64);
    char *w = packed(g, t, 1);
    for (size_t i = 0; i < 24 * 4; i++)
        assert_int_equal(w[at + i], 0);
    free(w);
    struct error err = {0};
    char none[64];
    assert_int_equal(cuda_pack(device, g, node_of(g), t, 0, none, &err), STATUS_INVALID_ARGUMENT);
    free(f.tactics);
    ir_graph_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_has_both_spellings),
        cmocka_unit_test(small_layers_begin_with_the_runtime_engine),
        cmocka_unit_test(the_stem_has_three_layouts),
        cmocka_unit_test(strict_fp32_is_strict),
        cmocka_unit_test(bf16_and_groups_and_lone_types),
        cmocka_unit_test(epilogues),
        cmocka_unit_test(odd_convolutions_have_candidates),
        cmocka_unit_test(transposed_convolutions_have_plans),
        cmocka_unit_test(plans_survive_as_bytes),
        cmocka_unit_test(code_of_another_node_is_refused),
        cmocka_unit_test(damaged_tactics_are_refused),
        cmocka_unit_test(many_threads_compile),
        cmocka_unit_test(packs_as_a_loop_does),
        cmocka_unit_test(zeros_stand_for_a_bias),
    };
    if (argc != 2)
        return 2;
    properties = argv[1];
    return cmocka_run_group_tests(tests, setup, teardown);
}
