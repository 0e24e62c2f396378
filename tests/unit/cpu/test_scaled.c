/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes whose tensors are stored in 8 bits by scales: each candidate that stores some of them so is
 * compared with the reference kernels on the real numbers that the integers stand for. Steps of
 * operands are powers of two, so that the reference's sums are exact; its result is then quantised
 * as docs/ir.md says. An integer may be one off where the real number lies halfway to the next.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/backend.h"
#include "engine/cpu/eval.h"
#include "engine/stored.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

enum { RANGES_MAX = 6, TENSORS_MAX = 16 };

struct range {
    const char *tensor;
    float step;
    int32_t zero;
    enum dtype dtype;
    bool channels; /* a step for each index of `axis`, some of them smaller */
    uint32_t axis;
};

/* What operands hold. */
enum filling { RANDOM, ALL_HIGH, ALL_LOW, HIGH_AND_LOW, FILLINGS };

struct trial {
    const char *text;
    struct device *device;
    struct backend_stream *stream;
    struct ir_graph *graph;
    const struct range *ranges;
    uint32_t ran;
    float *real[TENSORS_MAX]; /* by tensor, plain: real numbers, or the integers of another type */
    const char *name;         /* of the tactic at hand */
    double slack;             /* what fp32 may lose of an integer sum */
};

static void *memory_of(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xee, (bytes + 64) / 64 * 64);
    return memory;
}

static size_t elements_of(const struct ir_tensor *t)
{
    size_t n;
    assert_true(shape_elements(&t->shape, &n));
    return n;
}

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

/* --- the numbers --- */

/* The pair of step and zero of element i. */
static uint32_t pair_of(const struct ir_scale *s, const struct shape *shape, size_t i)
{
    size_t inner = 1;
    for (uint32_t d = s->axis + 1; d < shape->rank; d++)
        inner *= (size_t)shape->dim[d];
    return s->n == 1 ? 0 : (uint32_t)(i / inner % s->n);
}

static int32_t fill_byte(enum filling filling, bool weights, int32_t least, uint64_t *state,
                         size_t i)
{
    int32_t any = least + (int32_t)(random_bits(state) % 256);
    switch (filling) {
    case ALL_HIGH:
        return least + 255;
    case ALL_LOW:
        return weights ? least : least + 255;
    case HIGH_AND_LOW:
        return weights && i % 2 ? least : random_bits(state) % 8 ? least + 255 : any;
    default:
        return any;
    }
}

static void fill_tensor(struct trial *t, uint32_t id, enum filling filling)
{
    struct ir_tensor *x = ir_tensor(t->graph, id);
    size_t n = elements_of(x);
    const struct ir_scale *s = ir_scale(t->graph, x->range);
    uint64_t state = id * 977 + filling + 5;
    if (x->data && !s)
        return;
    float *real = t->real[id] = realloc(t->real[id], (n + 1) * sizeof(*real));
    for (size_t i = 0; i < n && x->dtype != DTYPE_F32; i++)
        ((uint8_t *)real)[i] = (uint8_t)random_bits(&state);
    if (x->dtype != DTYPE_F32)
        return;
    for (size_t i = 0; i < n; i++) {
        real[i] = (float)((int)(random_bits(&state) % 129) - 64) / 16;
        if (!s)
            continue;
        uint32_t k = pair_of(s, &x->shape, i);
        int32_t q = fill_byte(filling, x->data != NULL, stored_least(stored_type(s)), &state, i);
        real[i] = s->step[k] * (float)(q - (s->zero ? s->zero[k] : 0));
    }
    if (x->data)
        x->data = real;
}

/* Half a unit in the last place of the largest sum that there may be of the products. */
static double slack_of(const struct trial *t)
{
    const struct ir_node *node = ir_node(t->graph, 0);
    const struct ir_tensor *w = node->n_inputs > 1 ? ir_tensor(t->graph, node->inputs[1]) : NULL;
    const struct ir_scale *x = ir_scale(t->graph, ir_tensor(t->graph, node->inputs[0])->range);
    const struct ir_scale *s = w ? ir_scale(t->graph, w->range) : NULL;
    if (!s || !x || !w->data)
        return 0;
    double depth = (double)elements_of(w) / (double)w->shape.dim[s->axis];
    return depth * 255 * 128 * (double)x->step[0] * (double)s->step[0] / (1 << 23);
}

/* Computes the output from real numbers. */
static void evaluate(struct trial *t)
{
    const struct ir_node *node = ir_node(t->graph, 0);
    const void *in[TENSORS_MAX] = {0};
    struct error err;
    uint32_t y = node->outputs[0];
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            in[i] = t->real[node->inputs[i]] ? t->real[node->inputs[i]]
                                             : ir_tensor(t->graph, node->inputs[i])->data;
    free(t->real[y]);
    t->real[y] = memory_of(ir_tensor(t->graph, y)->bytes);
    t->slack = slack_of(t);
    void *out[] = {t->real[y]};
    if (cpu_eval_node(NULL, t->graph, node, in, out, &err))
        fail_msg("%s: %s", t->text, err.text);
}

/* --- one candidate --- */

#define VIEW(tensor, memory)                                                                       \
    (struct tensor_view)                                                                           \
    {                                                                                              \
        (tensor)->dtype, (tensor)->shape, (memory)                                                 \
    }

/* The bytes of a tensor of real numbers in the format that it has now. */
static void *store(const struct trial *t, uint32_t id)
{
    const struct ir_tensor *x = ir_tensor(t->graph, id);
    size_t n = elements_of(x);
    const struct ir_scale *s = ir_scale(t->graph, x->scale);
    void *plain = memory_of(n * sizeof(float)), *to = memory_of(x->bytes);
    if (x->data || !dtype_is_float(ir_tensor_type(x))) {
        memcpy(plain, x->data ? x->data : (const void *)t->real[id], x->bytes);
        if (x->layout != IR_LAYOUT_PLAIN)
            ref_reformat(IR_LAYOUT_PLAIN, x->layout, &VIEW(x, plain), &VIEW(x, to));
        else
            memcpy(to, plain, x->bytes);
        free(plain);
        return to;
    }
    for (size_t i = 0; i < n; i++)
        if (s)
            ((uint8_t *)plain)[i] = (uint8_t)(int32_t)(rintf(t->real[id][i] / s->step[0]) +
                                                       (s->zero ? (float)s->zero[0] : 0));
        else
            ((float *)plain)[i] = t->real[id][i];
    if (x->layout == IR_LAYOUT_PLAIN)
        memcpy(to, plain, x->bytes);
    else
        ref_reformat(IR_LAYOUT_PLAIN, x->layout, &VIEW(x, plain), &VIEW(x, to));
    free(plain);
    return to;
}

static double largest_of(const struct trial *t, uint32_t id)
{
    double largest = 1;
    for (size_t i = 0; i < elements_of(ir_tensor(t->graph, id)); i++)
        largest = fmax(largest, fabs((double)t->real[id][i]));
    return largest;
}

static void judge_bytes(const struct trial *t, uint32_t id, const uint8_t *got)
{
    const struct ir_tensor *y = ir_tensor(t->graph, id);
    const struct ir_scale *s = ir_scale(t->graph, y->scale);
    int32_t least = stored_least(y->dtype), zero = s->zero ? s->zero[0] : 0;
    for (size_t i = 0; i < elements_of(y); i++) {
        double real = (double)t->real[id][i] / (double)s->step[0];
        double whole = rint(real) + zero;
        int32_t want = (int32_t)fmin(fmax(whole, least), least + 255);
        int32_t have = y->dtype == DTYPE_I8 ? (int8_t)got[i] : got[i];
        bool halfway = fabs(fabs(real - rint(real)) - 0.5) < 2e-3 + t->slack / (double)s->step[0];
        if (have != want && !(halfway && abs(have - want) == 1))
            fail_msg("%s: %s: [%zu] is %d, expected %d (%g)", t->text, t->name, i, have, want,
                     real);
    }
}

static void judge(struct trial *t, uint32_t id, const void *got)
{
    const struct ir_tensor *y = ir_tensor(t->graph, id);
    size_t n = elements_of(y);
    void *plain = memory_of(n * 4);
    struct tensor_view from = {y->dtype, y->shape, (void *)(uintptr_t)got},
                       to = {y->dtype, y->shape, plain};
    if (y->layout == IR_LAYOUT_PLAIN)
        memcpy(plain, got, n * dtype_size(y->dtype));
    else
        ref_reformat(y->layout, IR_LAYOUT_PLAIN, &from, &to);
    if (y->scale) {
        judge_bytes(t, id, plain);
    } else if (y->dtype != DTYPE_F32) {
        if (memcmp(plain, t->real[id], n * dtype_size(y->dtype)) != 0)
            fail_msg("%s: %s: other integers", t->text, t->name);
    } else {
        double allowed = 4e-6 * largest_of(t, id) + t->slack;
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)((float *)plain)[i] - (double)t->real[id][i]) <= allowed))
                fail_msg("%s: %s: [%zu] is %.9g, expected %.9g", t->text, t->name, i,
                         (double)((float *)plain)[i], (double)t->real[id][i]);
    }
    free(plain);
}

static struct ir_format format_at(const struct tactic *tactic, const struct ir_node *node,
                                  uint32_t i)
{
    return i < node->n_inputs ? tactic->in[i].format : tactic->out[i - node->n_inputs].format;
}

/* Gives the tensors the formats of the ports; packs constants. */
static void take_formats(struct trial *t, const struct tactic *tactic, void *in[TENSORS_MAX])
{
    const struct ir_node *node = ir_node(t->graph, 0);
    struct error err;
    for (int constants = 0; constants < 2; constants++)
        for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
            uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
            if (id == IR_NONE)
                continue;
            struct ir_tensor *x = ir_tensor(t->graph, id);
            const struct tactic_port *port = i < node->n_inputs ? &tactic->in[i] : NULL;
            if ((x->data != NULL) != constants)
                continue;
            if (port && port->packed_bytes) {
                in[i] = memory_of(port->packed_bytes);
                if (backend_cpu.pack(t->device, t->graph, node, tactic, i, in[i], &err))
                    fail_msg("%s: %s: %s", t->text, t->name, err.text);
            } else {
                assert_true(ir_tensor_set_format(t->graph, id, format_at(tactic, node, i)));
                if (port)
                    in[i] = store(t, id);
            }
        }
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (tactic->in[i].packed_bytes) {
            struct ir_tensor *x = ir_tensor(t->graph, node->inputs[i]);
            assert_true(ir_tensor_set_format(t->graph, node->inputs[i], tactic->in[i].format));
            x->bytes = tactic->in[i].packed_bytes;
        }
}

static void give_back(struct trial *t)
{
    const struct ir_node *node = ir_node(t->graph, 0);
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        if (id == IR_NONE)
            continue;
        struct ir_tensor *x = ir_tensor(t->graph, id);
        assert_true(
            ir_tensor_set_format(t->graph, id, (struct ir_format){.dtype = ir_tensor_type(x)}));
    }
}

static bool is_scaled(const struct tactic *tactic)
{
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].format.scale)
            return true;
    return tactic->out[0].format.scale != IR_NO_SCALE;
}

static enum status run_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct trial *t = user;
    const struct ir_node *node = ir_node(t->graph, 0);
    void *in[TENSORS_MAX] = {0};
    struct backend_op *op = NULL;
    t->name = tactic->name;
    if (strstr(t->name, "amx") && (strstr(t->name, "brgconv:") || strstr(t->name, "jit_1x1:")))
        fail_msg("%s: %s leaves its memory", t->text, t->name);
    if (!is_scaled(tactic))
        return STATUS_OK;
    take_formats(t, tactic, in);
    if (backend_cpu.op_prepare(t->stream, t->graph, node, tactic, &op, err))
        fail_msg("%s: %s: %s", t->text, t->name, err->text);
    void *workspace = memory_of(backend_cpu.op_workspace(op));
    void *out[] = {memory_of(ir_tensor(t->graph, node->outputs[0])->bytes)};
    if (backend_cpu.op_launch(op, t->stream, in, out, workspace, err))
        fail_msg("%s: %s: %s", t->text, t->name, err->text);
    judge(t, node->outputs[0], out[0]);
    backend_cpu.op_free(op);
    if (node->op != IR_OP_REFORMAT)
        give_back(t);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        free(in[i]);
    free(out[0]);
    free(workspace);
    t->ran++;
    return STATUS_OK;
}

/* --- a case --- */

static uint32_t find_tensor(const struct ir_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(ir_tensor(graph, i)->name, name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return IR_NONE;
}

static void add_range(struct ir_graph *graph, const struct range *r)
{
    struct ir_tensor *x = ir_tensor(graph, find_tensor(graph, r->tensor));
    float step[512];
    int32_t zero[512];
    uint32_t n = r->channels ? (uint32_t)x->shape.dim[r->axis] : 1;
    assert_in_range(n, 1, 512);
    for (uint32_t i = 0; i < n; i++) {
        step[i] = r->step / (float)(1 << i % 3);
        zero[i] = r->zero;
    }
    const struct ir_scale scale = {
        .n = n, .axis = r->axis, .dtype = r->dtype, .step = step, .zero = r->zero ? zero : NULL};
    x->range = ir_scale_add(graph, &scale);
    assert_int_not_equal(x->range, IR_NO_SCALE);
}

/* Runs all candidates with scales of the graph's only node; returns their number. */
static uint32_t check(const char *text, const struct range ranges[RANGES_MAX], uint32_t threads)
{
    static uint32_t calls; /* operands that are all extreme take turns */
    const struct device_options options = {.threads = threads};
    uint32_t fillings = 0;
    struct trial t = {.text = text, .graph = graph_parse(text), .ranges = ranges};
    struct error err;
    assert_int_equal(t.graph->n_nodes, 1);
    assert_in_range(t.graph->n_tensors, 1, TENSORS_MAX);
    for (uint32_t i = 0; i < RANGES_MAX && ranges[i].tensor; i++)
        add_range(t.graph, &ranges[i]);
    assert_int_equal(backend_cpu.device_open(&options, &t.device, &err), STATUS_OK);
    assert_int_equal(backend_cpu.stream_new(t.device, &t.stream, &err), STATUS_OK);
    calls++;
    for (enum filling f = RANDOM; f < FILLINGS; f++) {
        if ((f == ALL_HIGH && calls % 3) || (f == ALL_LOW && calls % 3 != 1))
            continue;
        fillings++;
        for (uint32_t id = 0; id < t.graph->n_tensors; id++)
            if (ir_tensor(t.graph, id)->producer == IR_NONE)
                fill_tensor(&t, id, f);
        evaluate(&t);
        if (backend_cpu.candidates(t.device, t.graph, ir_node(t.graph, 0), PRECISION_F32, run_one,
                                   &t, &err))
            fail_msg("%s: %s", text, err.text);
    }
    backend_cpu.stream_free(t.stream);
    backend_cpu.device_close(t.device);
    for (uint32_t id = 0; id < t.graph->n_tensors; id++)
        free(t.real[id]);
    ir_graph_free(t.graph);
    return t.ran / fillings;
}

/* Products exist only on machines that get them right. */
static bool has_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni"); /* clang 14 has no name for avxvnni */
}

#define RANGES(...)                                                                                \
    (const struct range[RANGES_MAX])                                                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define X_U8(zero_)                                                                                \
    {                                                                                              \
        "x", 0.0625F, zero_, DTYPE_U8, false, 0                                                    \
    }
#define X_I8(zero_)                                                                                \
    {                                                                                              \
        "x", 0.0625F, zero_, DTYPE_I8, false, 0                                                    \
    }
#define W                                                                                          \
    {                                                                                              \
        "w", 0.03125F, 0, DTYPE_I8, true, 0                                                        \
    }
#define Y_U8(step_, zero_)                                                                         \
    {                                                                                              \
        "y", step_, zero_, DTYPE_U8, false, 0                                                      \
    }
#define Y_I8(step_, zero_)                                                                         \
    {                                                                                              \
        "y", step_, zero_, DTYPE_I8, false, 0                                                      \
    }

static void products(const char *text, const struct range *ranges)
{
    static uint32_t turn;
    uint32_t ran = check(text, ranges, 1 + turn++ % 2);
    if (has_vnni() && ran == 0)
        fail_msg("%s: no candidate", text);
}

/* --- convolutions --- */

static const char *const convolutions[] = {
    "input x FP32[2,16,7,9]\ny = conv \"c\" (x, w FP32[32,16,3,3], b FP32[32]) pads=1,1,1,1\n",
    "input x FP32[1,5,6,7]\ny = conv \"c\" (x, w FP32[7,5,3,2]) pads=1,0,0,1 strides=2,1 then "
    "relu\n",
    "input x FP32[1,3,14,14]\ny = conv \"c\" (x, w FP32[24,3,7,7], b FP32[24]) pads=3,3,3,3 "
    "strides=2,2 "
    "then relu\n",
    "input x FP32[2,24,5,5]\ny = conv \"c\" (x, w FP32[40,24,1,1], b FP32[40]) then relu\n",
    "input x FP32[1,64,9,9]\ny = conv \"c\" (x, w FP32[64,1,3,3], b FP32[64]) group=64 "
    "pads=1,1,1,1 "
    "then clip(0,6,0)\n",
    "input x FP32[1,19,9,9]\ny = conv \"c\" (x, w FP32[19,1,3,3]) group=19 pads=1,1,1,1 "
    "strides=2,2\n",
    "input x FP32[1,32,6,6]\ny = conv \"c\" (x, w FP32[64,8,3,3], b FP32[64]) group=4 "
    "pads=1,1,1,1\n",
    "input x FP32[1,18,6,6]\ny = conv \"c\" (x, w FP32[12,6,3,3]) group=3 dilations=2,2\n",
    "input x FP32[1,16,12]\ny = conv \"c\" (x, w FP32[8,16,3], b FP32[8]) pads=1,1 then "
    "swish(1,0,0)\n",
    "input x FP32[1,16,5,5]\ny = conv \"c\" (x, w FP32[16,16,3,3], b FP32[16]) pads=1,1,1,1 then "
    "leaky_relu(0.25,0,0)\n",
};

static void convolutions_are_exact(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(convolutions); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%soutput y\n", convolutions[i]);
        products(text, RANGES(X_U8(0), W, Y_U8(1.1F, 0)));
        products(text, RANGES(X_U8(255), W, Y_U8(2.3F, 128)));
        products(text, RANGES(X_U8(117), {"w", 0.03125F, 0, DTYPE_I8, false, 0}, Y_I8(1.3F, -128)));
        products(text, RANGES(X_I8(0), W, Y_I8(1.7F, 0)));
        products(text, RANGES(X_I8(-128), W, Y_U8(0.9F, 255)));
        products(text, RANGES(X_I8(127), {"w", 0.0625F, 128, DTYPE_U8, true, 0}, Y_I8(3.1F, 5)));
        products(text, RANGES(X_I8(3), W));
    }
}

static void sums_with_a_residual_are_exact(void **state UNUSED)
{
    static const char *const texts[] = {
        "input x FP32[2,24,5,5]\ninput r FP32[2,24,5,5]\n"
        "y = conv \"c\" (x, w FP32[24,24,1,1], b FP32[24]) then add(r), relu\noutput y\n",
        "input x FP32[1,13,5,6]\ninput r FP32[1,9,5,6]\n"
        "y = conv \"c\" (x, w FP32[9,13,3,3], b FP32[9]) pads=1,1,1,1 then add(r)\noutput y\n",
        "input x FP32[1,8,5,6]\ninput r FP32[1,8,5,6]\n"
        "y = conv \"c\" (x, w FP32[8,1,3,3]) group=8 pads=1,1,1,1 then add(r), relu\noutput y\n",
        "input x FP32[3,40]\ninput r FP32[3,24]\n"
        "y = matmul \"m\" (x, w FP32[24,40], b FP32[24]) trans_b=1 then add(r), relu\noutput y\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        products(texts[i], RANGES(X_U8(0), W, {"r", 0.5F, 0, DTYPE_U8, false, 0}, Y_U8(1.3F, 0)));
        products(texts[i], RANGES(X_U8(9), W, {"r", 0.5F, 77, DTYPE_U8, false, 0}, Y_U8(1.3F, 3)));
        products(texts[i],
                 RANGES(X_I8(-5), W, {"r", 0.25F, -9, DTYPE_I8, false, 0}, Y_I8(2.3F, 1)));
        products(texts[i], RANGES(X_I8(0), W, {"r", 0.25F, 0, DTYPE_I8, false, 0}));
        products(texts[i], RANGES(X_I8(0), W, Y_I8(2.3F, 0)));
    }
}

static void matrix_products_are_exact(void **state UNUSED)
{
    static const struct {
        const char *text;
        uint32_t axis;
    } cases[] = {
        {"input x FP32[5,33]\ny = matmul \"m\" (x, w FP32[33,17], b FP32[17])\noutput y\n", 1},
        {"input x FP32[2,3,64]\ny = matmul \"m\" (x, w FP32[48,64]) trans_b=1 alpha=0.5\noutput "
         "y\n",
         0},
        {"input x FP32[1,100]\ny = matmul \"m\" (x, w FP32[10,100], b FP32[10]) trans_b=1 then "
         "relu\n"
         "output y\n",
         0},
        {"input x FP32[2,7,32]\ny = matmul \"m\" (x, w FP32[32,64], b FP32[64]) then gelu\noutput "
         "y\n",
         1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct range w = {"w", 0.03125F, 0, DTYPE_I8, true, cases[i].axis};
        products(cases[i].text, RANGES(X_U8(0), w, Y_U8(1.1F, 128)));
        products(cases[i].text, RANGES(X_U8(130), w, Y_U8(1.1F, 0)));
        products(cases[i].text, RANGES(X_I8(0), w, Y_I8(1.7F, 0)));
        products(cases[i].text, RANGES(X_I8(-128), w, Y_I8(1.7F, 127)));
        products(cases[i].text, RANGES(X_U8(255), w));
    }
}

/* --- elementwise, pools and moves --- */

static void others(const char *text, const struct range *ranges, uint32_t least)
{
    uint32_t ran = check(text, ranges, 2);
    if (ran < least)
        fail_msg("%s: %u candidates, expected %u", text, ran, least);
}

static void sums_and_functions_requantise(void **state UNUSED)
{
    static const char *const texts[] = {
        ("input x FP32[2,7,3,5]\ninput r FP32[2,7,3,5]\ny = binary \"b\" (x, r) func=add then "
         "relu\n"),
        "input x FP32[2,7,3,5]\ninput r FP32[2,7,1,1]\ny = binary \"b\" (x, r) func=mul\n",
        "input x FP32[2,7,3,5]\ninput r FP32[7,1,1]\ny = binary \"b\" (x, r) func=add\n",
        "input x FP32[1,1,3,5]\ninput r FP32[2,7,3,5]\ny = binary \"b\" (x, r) func=sub\n",
        "input x FP32[2,70,1,1]\ninput r FP32[2,70,9,5]\ny = binary \"b\" (x, r) func=mul\n",
        "input x FP32[2,7,1,5]\ninput r FP32[2,7,3,5]\ny = binary \"b\" (x, r) func=add\n",
        "input x FP32[2,7,1,5]\ninput r FP32[2,7,3,1]\ny = binary \"b\" (x, r) func=mul\n",
        "input x FP32[3000]\ninput r FP32[1]\ny = binary \"b\" (x, r) func=add\n",
        "input x FP32[40]\ninput r FP32[40]\ny = unary \"b\" (x) func=relu then add(r)\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%soutput y\n", texts[i]);
        others(text, RANGES(X_U8(3), {"r", 0.125F, 255, DTYPE_U8, false, 0}, Y_U8(0.3F, 7)), 5);
        others(text, RANGES(X_I8(-128), {"r", 0.125F, 4, DTYPE_I8, false, 0}, Y_I8(0.3F, 127)), 5);
        others(text, RANGES(X_I8(0), Y_U8(0.7F, 0)), 3);
        others(text, RANGES({"r", 0.125F, 4, DTYPE_I8, false, 0}), 1);
        others(text, RANGES(Y_I8(0.7F, 0)), 1);
    }
    others("input x FP32[1,9,4,4]\ny = unary \"u\" (x) func=sigmoid\noutput y\n",
           RANGES(X_U8(128), Y_U8(0.00390625F, 0)), 3);
    others("input x FP32[1,16,4,4]\ny = unary \"u\" (x) func=hard_swish\noutput y\n",
           RANGES(X_I8(1), Y_I8(0.1F, -50)), 3);
}

static void functions_of_a_byte_are_tables(void **state UNUSED)
{
    static const char *const texts[] = {
        "y = unary \"u\" (x) func=sigmoid\n",
        "y = unary \"u\" (x) func=tanh then relu\n",
        "y = unary \"u\" (x) func=hard_sigmoid then mul(x)\n",
        "y = unary \"u\" (x) func=exp then add(c FP32[1]=0.5), sqrt\n",
        "y = binary \"u\" (x, x) func=mul\n",
        "y = binary \"u\" (x, c FP32[]=0.25) func=add\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char text[512];
        snprintf(text, sizeof(text), "input x FP32[2,9,17,11]\n%soutput y\n", texts[i]);
        others(text, RANGES(X_U8(128), Y_U8(0.3F, 7)), 4);
        others(text, RANGES(X_I8(1), Y_I8(0.1F, -50)), 4);
        others(text, RANGES(X_I8(0), Y_U8(0.01F, 0)), 4);
    }
}

static void averages_requantise(void **state UNUSED)
{
    static const char *const texts[] = {
        "input x FP32[2,19,7,5]\ny = reduce \"r\" (x) func=1 axes=2,3\n",
        "input x FP32[2,300,3,5]\ny = reduce \"r\" (x) func=1 axes=2,3 keepdims=0\n",
        "input x FP32[1,16,7,5]\ny = pool \"p\" (x) func=1 kernel=3,2 strides=2,1 pads=1,1,1,0\n",
        ("input x FP32[1,9,7,5]\ny = pool \"p\" (x) func=1 kernel=3,3 pads=1,1,1,1 "
         "count_include_pad=1 then relu\n"),
        "input x FP32[1,9,12]\ny = pool \"p\" (x) func=1 kernel=2 strides=2\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%soutput y\n", texts[i]);
        others(text, RANGES(X_U8(3), Y_U8(0.3F, 7)), 2);
        others(text, RANGES(X_I8(-128), Y_I8(0.2F, 127)), 2);
        others(text, RANGES(X_I8(0)), 1);
    }
}

static void moves_keep_bytes(void **state UNUSED)
{
    static const char *const texts[] = {
        "input x FP32[2,16,7,5]\ny = pool \"p\" (x) func=0 kernel=3,3 strides=2,2 pads=1,1,1,1\n",
        "input x FP32[2,6,7,5]\ny = transpose \"t\" (x) perm=0,2,3,1\n",
        "input x FP32[2,6,35]\ny = transpose \"t\" (x) perm=0,2,1\n",
        "input x FP32[2,6,7,5]\ny = reshape \"t\" (x) shape=12,35\n",
        "input x FP32[2,6,7,5]\ny = slice \"t\" (x) starts=0,2,0,1 ends=2,5,7,4 steps=1,1,1,1\n",
        "input x FP32[2,6,3,5]\ny = resize \"t\" (x) shape=2,6,6,10 scales=1,1,2,2 mode=0\n",
        "input x FP32[2,6,3,1]\ny = expand \"t\" (x) shape=2,6,3,4\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%soutput y\n", texts[i]);
        others(text, RANGES(X_U8(3), {"y", 0.0625F, 3, DTYPE_U8, false, 0}), 1);
        others(text, RANGES(X_I8(-128), {"y", 0.0625F, -128, DTYPE_I8, false, 0}), 1);
    }
    others("input x FP32[2,6,3,5]\ny = resize \"t\" (x) shape=2,6,5,7 scales=1,1,1.7,1.5 mode=0\n"
           "output y\n",
           RANGES(X_U8(3), {"y", 0.0625F, 3, DTYPE_U8, false, 0}), 4);
}

static void padding_is_the_zero_point(void **state UNUSED)
{
    static const char *const texts[] = {
        "input x FP32[2,6,7,5]\ny = pad \"p\" (x) pads=0,0,1,2,0,0,3,0 mode=0\noutput y\n",
        ("input x FP32[2,6,7,5]\ny = pad \"p\" (x) pads=0,1,1,0,0,1,0,0 mode=0 value=0.125\n"
         "output y\n"),
        "input x FP32[2,6,7,5]\ny = pad \"p\" (x) pads=0,0,1,2,0,0,-3,1 mode=1\noutput y\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        others(texts[i], RANGES(X_U8(3), {"y", 0.0625F, 3, DTYPE_U8, false, 0}), 2);
        others(texts[i], RANGES(X_I8(-128), {"y", 0.0625F, -128, DTYPE_I8, false, 0}), 2);
    }
    /* 0.1 is no multiple of the step. */
    assert_int_equal(check("input x FP32[2,6,7,5]\ny = pad \"p\" (x) pads=0,0,1,2,0,0,3,0 mode=0 "
                           "value=0.1\noutput y\n",
                           RANGES(X_U8(3), {"y", 0.0625F, 3, DTYPE_U8, false, 0}), 2),
                     0);
}

static void concats_take_other_scales(void **state UNUSED)
{
    static const char *const texts[] = {
        "input x FP32[2,3,4,5]\ninput r FP32[2,6,4,5]\ny = concat \"c\" (x, r) axis=1\noutput y\n",
        "input x FP32[2,3,4,5]\ninput r FP32[2,3,4,2]\ny = concat \"c\" (x, r) axis=3\noutput y\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        others(texts[i],
               RANGES(X_U8(3), {"r", 0.0625F, 3, DTYPE_U8, false, 0},
                      {"y", 0.0625F, 3, DTYPE_U8, false, 0}),
               2);
        others(texts[i], RANGES(X_U8(3), {"r", 0.125F, 255, DTYPE_U8, false, 0}, Y_U8(0.3F, 7)), 2);
        others(texts[i], RANGES(X_I8(-3), {"r", 0.125F, 25, DTYPE_U8, false, 0}, Y_I8(0.3F, 7)), 2);
    }
}

/* --- quantising --- */

static void quantising_reads_and_writes_bytes(void **state UNUSED)
{
    others("input x FP32[2,6,7,5]\ny = quantise \"q\" (x, s FP32[]=0.0625, z UINT8[]=3) "
           "to=2\noutput y\n",
           RANGES(X_U8(3)), 2);
    others("input x FP32[2,6,7,5]\ny = quantise \"q\" (x, s FP32[]=0.25) to=6\noutput y\n",
           RANGES(X_U8(3)), 2);
    others("input x UINT8[2,6,7,5]\ny = dequantise \"q\" (x, s FP32[]=0.25, z UINT8[]=3) "
           "to=12\noutput y\n",
           RANGES(Y_I8(0.3F, 7)), 2);
}

/* --- reformats --- */

/* Runs all reformats between two formats of a tensor; returns their number. */
static uint32_t reformat(const char *shape, struct ir_format from, struct ir_format to,
                         bool shifted)
{
    const struct device_options options = {.threads = 2};
    struct trial t = {.text = shape};
    char text[128];
    struct error err;
    snprintf(text, sizeof(text), "input x FP32[%s]\ny = unary \"r\" (x) func=abs\noutput y\n",
             shape);
    t.graph = graph_parse(text);
    struct ir_node *node = ir_node(t.graph, 0);
    node->op = IR_OP_REFORMAT;
    node->n_attrs = 0;
    add_range(t.graph, &(struct range){"x", 0.25F, shifted ? 77 : 0, DTYPE_U8, false, 0});
    ir_tensor(t.graph, node->outputs[0])->range = ir_tensor(t.graph, 0)->range;
    from.scale = from.dtype == DTYPE_U8;
    to.scale = to.dtype == DTYPE_U8;
    fill_tensor(&t, 0, RANDOM);
    t.real[node->outputs[0]] = t.real[0];
    assert_true(ir_tensor_set_format(t.graph, 0, from));
    assert_true(ir_tensor_set_format(t.graph, node->outputs[0], to));
    assert_int_equal(backend_cpu.device_open(&options, &t.device, &err), STATUS_OK);
    assert_int_equal(backend_cpu.stream_new(t.device, &t.stream, &err), STATUS_OK);
    if (backend_cpu.candidates(t.device, t.graph, node, PRECISION_F32, run_one, &t, &err))
        fail_msg("%s: %s", shape, err.text);
    backend_cpu.stream_free(t.stream);
    backend_cpu.device_close(t.device);
    free(t.real[0]);
    ir_graph_free(t.graph);
    return t.ran;
}

static void reformats_keep_the_numbers(void **state UNUSED)
{
    static const enum ir_layout layouts[] = {IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST,
                                             IR_LAYOUT_BLOCKED_16, IR_LAYOUT_BLOCKED_8};
    static const char *const shapes[] = {"2,3,17,19", "1,24,5,7", "2,70,9,33", "3,16,40"};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        for (size_t a = 0; a < 2; a++)
            for (size_t b = 0; b < ARRAY_LEN(layouts); b++) {
                struct ir_format bytes = {.layout = layouts[a], .dtype = DTYPE_U8};
                struct ir_format reals = {.layout = layouts[b], .dtype = DTYPE_F32};
                struct ir_format others = {.layout = layouts[b % 2], .dtype = DTYPE_U8};
                assert_in_range(reformat(shapes[s], bytes, reals, b % 2), 1, 9);
                assert_in_range(reformat(shapes[s], reals, bytes, b % 2), 1, 9);
                if (others.layout != bytes.layout)
                    assert_in_range(reformat(shapes[s], bytes, others, true), 2, 9);
            }
}

/* What requests send as bytes becomes other bytes, without floats in memory. */
static void bytes_are_converted(void **state UNUSED)
{
    others("input x UINT8[2,3,7,5]\ny = cast \"c\" (x) to=12 then mul(a FP32[3,1,1]=0.0625), "
           "add(b FP32[3,1,1]=-1.5)\noutput y\n",
           RANGES(Y_U8(0.0625F, 24)), 1);
    others("input x UINT8[2,3,7,5]\ny = cast \"c\" (x) to=12 then linear(0.01,-2,0)\noutput y\n",
           RANGES(Y_I8(0.02F, -3)), 1);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(convolutions_are_exact),
        TEST(sums_with_a_residual_are_exact),
        TEST(matrix_products_are_exact),
        TEST(sums_and_functions_requantise),
        TEST(functions_of_a_byte_are_tables),
        TEST(averages_requantise),
        TEST(moves_keep_bytes),
        TEST(padding_is_the_zero_point),
        TEST(concats_take_other_scales),
        TEST(quantising_reads_and_writes_bytes),
        TEST(bytes_are_converted),
        TEST(reformats_keep_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
