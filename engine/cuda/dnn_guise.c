/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that cuDNN runs in the guise of another convolution. A guise is a graph of one CONV, made
 * for a call of the family of convolutions; its inputs have the node's numbers.
 *
 *   product   A[..,K] B[K,N] is the 1x1 convolution of rows as images of one pixel. cuBLASLt knows
 *             few activations; here the exact GELU, swish and their like are inside.
 *   stem      A convolution without the node's epilogue, which a kernel of ours runs behind it. For
 *             images of a few channels cuDNN's fast kernels take no activation but a plain Relu.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/dnn.h"
#include "engine/cuda/own.h"

enum {
    STEM_CHANNELS = 8,
    LANE = 8,
    KIN_OF_GUISE = 64, /* the node may have candidates of the guised family, too */
};

enum guise_kind { PRODUCT, STEM };

struct guise {
    enum guise_kind kind;
    const struct ir_graph *from;
    const struct ir_node *what;
    struct ir_graph *graph;
    struct tactic *tactic; /* the convolution's; lives as long as the graph */
};

static void guise_deinit(struct guise *g)
{
    ir_graph_free(g->graph);
}

/* --- the graph --- */

static bool add_attrs(struct guise *g, uint32_t node)
{
    static const int64_t ones[2] = {1, 1}, zeros[4] = {0};
    if (g->kind == STEM)
        return ir_attrs_copy(g->graph, node, g->what);
    return ir_attr_set_ints(g->graph, node, IR_ATTR_STRIDES, 2, ones) &&
           ir_attr_set_ints(g->graph, node, IR_ATTR_DILATIONS, 2, ones) &&
           ir_attr_set_ints(g->graph, node, IR_ATTR_PADS, 4, zeros) &&
           ir_attr_set_int(g->graph, node, IR_ATTR_GROUP, 1);
}

/* The shape that a product's tensor has in its guise; false: none. A and what is as large as Y
 * become rows, a number for each column becomes channels. */
static bool rows_shape(const struct guise *g, uint32_t input, const struct shape *from,
                       struct shape *out)
{
    const struct shape *y = &ir_tensor(g->from, g->what->outputs[0])->shape;
    size_t n;
    if (from->rank < 1 || !shape_elements(from, &n) || n == 0)
        return false;
    int64_t last = from->dim[from->rank - 1];
    if (input == 2 && ir_node_own_inputs(g->what) > 2) {
        *out = *from;
        return from->rank == 1;
    }
    if (input == 1) {
        bool turned = ir_attr_int(g->what, IR_ATTR_TRANS_B) != 0;
        *out = (struct shape){.rank = 4, .dim = {last, from->dim[0], 1, 1}};
        if (turned)
            *out = (struct shape){.rank = 4, .dim = {from->dim[0], last, 1, 1}};
        return from->rank == 2;
    }
    bool whole = input == 0 || input == UINT32_MAX || shape_equal(from, y);
    *out = (struct shape){.rank = 4, .dim = {(int64_t)n / last, last, 1, 1}};
    return whole || (int64_t)n == last;
}

static bool shape_of(const struct guise *g, uint32_t input, const struct shape *from,
                     struct shape *out)
{
    *out = *from;
    return g->kind == STEM || rows_shape(g, input, from, out);
}

/* Tensors that a product reads or writes as rows lie plainly; rows of pixels are channels-last. */
static uint32_t add_tensor(struct guise *g, uint32_t input, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(g->from, tensor);
    struct shape shape;
    if (!shape_of(g, input, &t->shape, &shape))
        return IR_NONE;
    uint32_t id = ir_tensor_add(g->graph, "", t->dtype, &shape);
    if (id == IR_NONE)
        return IR_NONE;
    struct ir_tensor *copy = ir_tensor(g->graph, id);
    copy->layout = t->layout;
    if (g->kind == PRODUCT && shape.rank == 4 && t->layout == IR_LAYOUT_PLAIN &&
        !ir_tensor_is_constant(t))
        copy->layout = IR_LAYOUT_CHANNELS_LAST;
    copy->bytes = t->bytes;
    copy->data = t->data;
    copy->place = t->place == IR_PLACE_CONSTANT ? IR_PLACE_CONSTANT : IR_PLACE_NONE;
    return id;
}

static bool is_product(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *b = cuda_input(graph, node, 1);
    return node->op == IR_OP_MATMUL && b && ir_tensor_is_constant(b) && b->shape.rank == 2 &&
           b->shape.dim[0] % LANE == 0 && b->shape.dim[1] % LANE == 0 &&
           !ir_attr_int(node, IR_ATTR_TRANS_A) && ir_attr_float(node, IR_ATTR_ALPHA) == 1;
}

static bool is_stem(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    return node->op == IR_OP_CONV && x->rank == 4 && x->dim[1] < STEM_CHANNELS &&
           ir_attr_int(node, IR_ATTR_GROUP) == 1 && node->n_epilogue > 0;
}

static bool fill(struct guise *g)
{
    uint32_t inputs[IR_MAX_INPUTS];
    uint32_t n = g->kind == STEM ? ir_node_own_inputs(g->what) : g->what->n_inputs;
    for (uint32_t i = 0; i < n; i++) {
        inputs[i] = IR_NONE;
        if (g->what->inputs[i] != IR_NONE &&
            (inputs[i] = add_tensor(g, i, g->what->inputs[i])) == IR_NONE)
            return false;
    }
    uint32_t node = ir_node_add(g->graph, IR_OP_CONV, "", n, inputs);
    uint32_t y = add_tensor(g, UINT32_MAX, g->what->outputs[0]);
    if (node == IR_NONE || y == IR_NONE || !add_attrs(g, node))
        return false;
    struct ir_node *conv = ir_node(g->graph, node);
    conv->name = g->what->name; /* an op keeps it longer than the guise */
    conv->outputs[0] = y;
    conv->n_outputs = 1;
    ir_tensor(g->graph, y)->producer = node;
    conv->n_epilogue = g->kind == STEM ? 0 : g->what->n_epilogue;
    memcpy(conv->epilogue, g->what->epilogue, sizeof(conv->epilogue));
    return true;
}

/* False: the node has no such guise, or there is no memory. */
static bool guise_init(struct guise *g, enum guise_kind kind, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    *g = (struct guise){.kind = kind, .from = graph, .what = node};
    if (node->n_outputs != 1 || !(kind == STEM ? is_stem(graph, node) : is_product(graph, node)))
        return false;
    g->graph = ir_graph_new();
    return g->graph && fill(g) &&
           (g->tactic = arena_alloc(g->graph->arena, sizeof(*g->tactic))) != NULL;
}

/* --- tactics --- */

static const struct cuda_family *const guised[] = {
    [PRODUCT] = &cuda_family_dnn_matmul, [STEM] = &cuda_family_dnn_stem};

static bool lies_as_rows(const struct guise *g, const struct tactic_port *port, uint32_t tensor)
{
    return g->kind == PRODUCT && !port->packed_bytes && tensor != IR_NONE &&
           ir_tensor(g->graph, tensor)->shape.rank == 4;
}

/* The convolution's tactic as the node's. */
static void put_on(const struct guise *g, const struct tactic *conv, struct tactic *out)
{
    const struct ir_node *node = ir_node(g->graph, 0);
    const char *detail = strstr(conv->name, " e");
    cuda_tactic(out, guised[g->kind], 0, g->from, g->what, tactic_float(conv), IR_LAYOUT_PLAIN,
                detail ? detail + 1 : conv->name);
    for (uint32_t i = 0; i < conv->n_in; i++) {
        out->in[i] = conv->in[i];
        if (lies_as_rows(g, &conv->in[i], node->inputs[i]))
            out->in[i].format.layout = IR_LAYOUT_PLAIN;
    }
    out->out[0] = conv->out[0];
    if (g->kind == PRODUCT)
        out->out[0].format.layout = IR_LAYOUT_PLAIN;
    const uint32_t rank = ir_tensor(g->from, g->what->outputs[0])->shape.rank;
    for (uint32_t i = conv->n_in; i < out->n_in; i++) /* the epilogue's, of a stem */
        if (g->what->inputs[i] != IR_NONE &&
            ir_tensor(g->from, g->what->inputs[i])->shape.rank == rank)
            out->in[i].format.layout = conv->out[0].format.layout;
    out->kin = conv->kin ? (uint8_t)(conv->kin + KIN_OF_GUISE) : 0;
    out->wave = conv->wave;
    out->blob_size = conv->blob_size;
    memcpy(out->blob, conv->blob, sizeof(out->blob));
}

/* The node's tactic as the convolution's. */
static bool take_off(struct guise *g, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(g->graph, 0);
    if (tactic->id != cuda_tactic_id(guised[g->kind]->id, 0) || tactic->n_in < node->n_inputs ||
        tactic->n_out != 1)
        return false;
    struct tactic *conv = g->tactic;
    *conv = *tactic;
    conv->id = cuda_tactic_id(CUDA_FAMILY_DNN_CONV, 0);
    conv->n_in = node->n_inputs;
    for (uint32_t i = 0; i < conv->n_in; i++)
        if (lies_as_rows(g, &conv->in[i], node->inputs[i]))
            conv->in[i].format.layout = IR_LAYOUT_CHANNELS_LAST;
    if (g->kind == PRODUCT)
        conv->out[0].format.layout = IR_LAYOUT_CHANNELS_LAST;
    return true;
}

/* --- the epilogue behind a stem --- */

struct stem_op {
    struct backend_op base;
    struct backend_op *conv;
    const struct ir_node *node;
    struct kernel_view y;
    struct kernel_epilogue rest;
};

static bool read_rest(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      enum ir_layout layout, struct kernel_view *y, struct kernel_epilogue *rest)
{
    return own_view(ir_tensor(graph, node->outputs[0]), dtype, layout, y) &&
           cuda_epilogue(graph, node, y, rest);
}

static bool rest_fits(const struct cuda_device *device, const struct guise *g,
                      const struct tactic *tactic)
{
    struct kernel_view y;
    struct kernel_epilogue rest;
    struct kernel_call call = own_call_dry(device, 0);
    return g->kind == PRODUCT || (read_rest(g->from, g->what, tactic->out[0].format.dtype,
                                            tactic->out[0].format.layout, &y, &rest) &&
                                  kernel_map(&call, &y, &y, 0, &rest) == cudaSuccess);
}

static enum status launch_stem(struct backend_op *base, struct backend_stream *stream,
                               void *const *inputs, void *const *outputs, void *workspace,
                               struct error *err)
{
    struct stem_op *op = CONTAINER_OF(base, struct stem_op, base);
    TRY(op->conv->launch(op->conv, stream, inputs, outputs, workspace, err));
    struct kernel_call call = own_call(stream, 0);
    op->y.data = outputs[0];
    cuda_epilogue_bind(&op->rest, op->node, inputs);
    cudaError_t code = kernel_map(&call, &op->y, &op->y, 0, &op->rest);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_map");
}

static void free_stem(struct backend_op *base)
{
    struct stem_op *op = CONTAINER_OF(base, struct stem_op, base);
    op->conv->free(op->conv);
    free(op);
}

/* Takes the convolution over, also on failure. */
static enum status make_stem(const struct guise *g, const struct tactic *tactic,
                             struct backend_op *conv, struct backend_op **out, struct error *err)
{
    struct stem_op *op = calloc(1, sizeof(*op));
    bool fits = op && read_rest(g->from, g->what, DTYPE_NONE, tactic->out[0].format.layout, &op->y,
                                &op->rest);
    if (!fits) {
        conv->free(conv);
        free(op);
        return op ? cuda_refuse(g->what, tactic, err) : error_no_memory(err, "cuDNN");
    }
    op->base =
        (struct backend_op){.workspace = conv->workspace, .launch = launch_stem, .free = free_stem};
    op->conv = conv;
    op->node = g->what;
    *out = &op->base;
    return STATUS_OK;
}

/* --- the families --- */

struct offer {
    struct guise *guise;
    struct cuda_device *device;
    tactic_visit visit;
    void *user;
};

static enum status offer_guised(void *user, const struct tactic *conv, struct error *err)
{
    const struct offer *o = user;
    CLEANUP(cleanup_free) struct tactic *t = malloc(sizeof(*t));
    if (!t)
        return error_no_memory(err, "cuDNN");
    put_on(o->guise, conv, t);
    return rest_fits(o->device, o->guise, t) ? o->visit(o->user, t, err) : STATUS_OK;
}

/* Whether the epilogue has a function that cuBLASLt leaves to a kernel behind the product. */
static bool is_more_than_relu(const struct ir_node *node)
{
    bool more = false;
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        more = more || (node->epilogue[i].kind == IR_EPILOGUE_UNARY &&
                        node->epilogue[i].func != IR_UNARY_RELU &&
                        node->epilogue[i].func != IR_UNARY_GELU_TANH);
    return more;
}

static enum status candidates_of(enum guise_kind kind, struct cuda_device *device,
                                 const struct ir_graph *graph, const struct ir_node *node,
                                 enum precision precision, tactic_visit visit, void *user,
                                 struct error *err)
{
    CLEANUP(guise_deinit) struct guise g = {0};
    bool half = precision == PRECISION_F16 || precision == PRECISION_BF16 ||
                dtype_size(ir_tensor(graph, node->outputs[0])->dtype) == 2;
    if (!is_more_than_relu(node) || (kind == PRODUCT && !half) ||
        !guise_init(&g, kind, graph, node))
        return STATUS_OK;
    struct offer offer = {&g, device, visit, user};
    return cuda_family_dnn_conv.candidates(device, g.graph, ir_node(g.graph, 0), precision,
                                           offer_guised, &offer, err);
}

/* The weights of a product as the convolution has them, [N,K]. */
static bool turn_weights(struct guise *g)
{
    struct ir_tensor *w = ir_tensor(g->graph, ir_node(g->graph, 0)->inputs[1]);
    size_t size = dtype_size(w->dtype), n = (size_t)w->shape.dim[0], k = (size_t)w->shape.dim[1];
    if (g->kind == STEM || ir_attr_int(g->what, IR_ATTR_TRANS_B))
        return true;
    char *turned = arena_alloc(g->graph->arena, n * k * size);
    for (size_t i = 0; turned && i < n; i++)
        for (size_t j = 0; j < k; j++)
            memcpy(turned + (i * k + j) * size, (const char *)w->data + (j * n + i) * size, size);
    w->data = turned;
    return turned != NULL;
}

static enum status pack_of(enum guise_kind kind, struct cuda_device *device,
                           const struct ir_graph *graph, const struct ir_node *node,
                           const struct tactic *tactic, uint32_t input, void *to, struct error *err)
{
    CLEANUP(guise_deinit) struct guise g = {0};
    if (!guise_init(&g, kind, graph, node) || !take_off(&g, tactic))
        return cuda_refuse(node, tactic, err);
    if (input == 1 && !turn_weights(&g))
        return error_no_memory(err, "cuDNN");
    return cuda_family_dnn_conv.pack(device, g.graph, ir_node(g.graph, 0), g.tactic, input, to,
                                     err);
}

static enum status plan_of(enum guise_kind kind, struct cuda_device *device,
                           const struct ir_graph *graph, const struct ir_node *node,
                           const struct tactic *tactic, struct dnn_plan **out, struct error *err)
{
    CLEANUP(guise_deinit) struct guise g = {0};
    if (!guise_init(&g, kind, graph, node) || !take_off(&g, tactic))
        return cuda_refuse(node, tactic, err);
    return cuda_family_dnn_conv.plan(device, g.graph, ir_node(g.graph, 0), g.tactic, out, err);
}

static enum status prepare_of(enum guise_kind kind, struct backend_stream *stream,
                              const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic, struct backend_op **out,
                              struct error *err)
{
    CLEANUP(guise_deinit) struct guise g = {0};
    struct backend_op *conv;
    if (!guise_init(&g, kind, graph, node) || !take_off(&g, tactic) ||
        !rest_fits(stream->device, &g, tactic))
        return cuda_refuse(node, tactic, err);
    TRY(cuda_family_dnn_conv.prepare(stream, g.graph, ir_node(g.graph, 0), g.tactic, &conv, err));
    if (kind == STEM)
        return make_stem(&g, tactic, conv, out, err);
    *out = conv;
    return STATUS_OK;
}

/* Where cuDNN has an activation inside of a first layer, the kernel is one for all shapes. Of 32
 * images on an H200 it took 138 us, and with a clip 672, where a stem takes 26. */
static bool stem_leads(const struct cuda_device *device UNUSED, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    bool other = false; /* than ReLU */
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        other = other || (node->epilogue[i].kind == IR_EPILOGUE_UNARY &&
                          node->epilogue[i].func != IR_UNARY_RELU);
    return other && is_stem(graph, node);
}

#define FAMILY(KIND, NAME, name, lead)                                                             \
    static enum status name##_candidates(struct cuda_device *device, const struct ir_graph *graph, \
                                         const struct ir_node *node, enum precision precision,     \
                                         tactic_visit visit, void *user, struct error *err)        \
    {                                                                                              \
        return candidates_of(KIND, device, graph, node, precision, visit, user, err);              \
    }                                                                                              \
    static enum status name##_pack(struct cuda_device *device, const struct ir_graph *graph,       \
                                   const struct ir_node *node, const struct tactic *tactic,        \
                                   uint32_t input, void *to, struct error *err)                    \
    {                                                                                              \
        return pack_of(KIND, device, graph, node, tactic, input, to, err);                         \
    }                                                                                              \
    static enum status name##_plan(struct cuda_device *device, const struct ir_graph *graph,       \
                                   const struct ir_node *node, const struct tactic *tactic,        \
                                   struct dnn_plan **out, struct error *err)                       \
    {                                                                                              \
        return plan_of(KIND, device, graph, node, tactic, out, err);                               \
    }                                                                                              \
    static enum status name##_prepare(struct backend_stream *stream, const struct ir_graph *graph, \
                                      const struct ir_node *node, const struct tactic *tactic,     \
                                      struct backend_op **out, struct error *err)                  \
    {                                                                                              \
        return prepare_of(KIND, stream, graph, node, tactic, out, err);                            \
    }                                                                                              \
    const struct cuda_family cuda_family_##name = {                                                \
        .id = CUDA_FAMILY_##NAME,                                                                  \
        .candidates = name##_candidates,                                                           \
        .pack = name##_pack,                                                                       \
        .plan = name##_plan,                                                                       \
        .prepare = name##_prepare,                                                                 \
        .leads = (lead),                                                                           \
    };

FAMILY(PRODUCT, DNN_MATMUL, dnn_matmul, NULL)
FAMILY(STEM, DNN_STEM, dnn_stem, stem_leads)
