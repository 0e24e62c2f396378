/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two convolutions of one place in a row (CONV_CHAIN) whose data and results are stored in 8 bits
 * by scales, by our own kernel for Hopper (kernels/cuda/chain.cuh). Both are sums as own_sources.h
 * has them: the first one of one source or two, with a residual, and the second one of what the
 * first has made.
 */
#include <math.h>
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/own_sources.h"

/* By the rows of the kernel's table: columns of the second product, and consumers. */
static const char *const names[] = {"", "64 three", "64 two", "128 two"};
_Static_assert(ARRAY_LEN(names) == KERNEL_CHAIN_VARIANTS + 1, "each row of the table");

struct chain {
    struct kernel_chain kernel;
    struct own_sources first, next;
    struct own_sources_places first_places, next_places;
};

struct chain_op {
    struct backend_op base;
    const struct ir_node *node;
    int32_t variant;
    struct chain made;
};

/* --- from a node --- */

static uint32_t input_of(const struct ir_node *node, uint32_t i)
{
    return i < node->n_inputs ? node->inputs[i] : IR_NONE;
}

static bool is_constant(const struct ir_graph *graph, const struct ir_node *node, uint32_t i)
{
    const struct ir_tensor *t = cuda_input(graph, node, i);
    return t && ir_tensor_is_constant(t);
}

/* What is stored in 8 bits by one scale, all but constants. */
static bool read_stored(const struct ir_graph *graph, const struct ir_node *node, struct chain *c)
{
    struct own_sources *s = &c->first;
    s->n = input_of(node, IR_CHAIN_X2) == IR_NONE ? 1 : OWN_SOURCES;
    if (!stored_read(graph, node->inputs[0], &s->from[0]) ||
        (s->n > 1 && !stored_read(graph, node->inputs[IR_CHAIN_X2], &s->from[1])) ||
        !stored_read(graph, node->outputs[0], &s->to) ||
        !stored_read(graph, node->outputs[1], &c->next.to))
        return false;
    c->next.n = 1;
    c->next.from[0] = s->to;
    c->kernel.first.x_dtype = (int32_t)s->from[0].dtype;
    c->kernel.first.y_dtype = (int32_t)s->to.dtype;
    c->kernel.next.t_dtype = (int32_t)c->next.to.dtype;
    c->kernel.first.to = 1 / s->to.step;
    c->kernel.next.to = 1 / c->next.to.step;
    return own_sources_types(s) && own_sources_types(&c->next) && s->to.dtype == s->from[0].dtype &&
           isfinite(c->kernel.first.to) && isfinite(c->kernel.next.to);
}

static bool read_residual(const struct ir_graph *graph, const struct ir_node *node, struct chain *c)
{
    struct kernel_tile *k = &c->kernel.first;
    struct stored z;
    if (input_of(node, IR_CHAIN_RESIDUAL) == IR_NONE)
        return true;
    if (!stored_read(graph, node->inputs[IR_CHAIN_RESIDUAL], &z) || !(z.step > 0))
        return false;
    k->residual_dtype = (int32_t)z.dtype;
    k->residual_step = z.step;
    if (z.dtype == DTYPE_F8)
        return true;
    k->residual_step = z.step / c->first.to.step;
    c->first.less = (double)(z.zero - (z.dtype == DTYPE_U8 ? 128 : 0)) * (double)k->residual_step;
    return true;
}

static void read_sizes(const struct ir_graph *graph, const struct ir_node *node, struct chain *c)
{
    const int64_t *y = ir_tensor(graph, node->outputs[0])->shape.dim;
    struct kernel_tile *k = &c->kernel.first;
    k->rows = y[0] * y[2] * y[3];
    k->cols = c->first.cols = c->next.depth[0] = y[1];
    k->depth = c->first.depth[0] = cuda_input(graph, node, 0)->shape.dim[1];
    c->kernel.next.cols = c->next.cols = ir_tensor(graph, node->outputs[1])->shape.dim[1];
    if (c->first.n == 1)
        return;
    const int64_t *x2 = cuda_input(graph, node, IR_CHAIN_X2)->shape.dim;
    k->second.depth = c->first.depth[1] = x2[1];
    own_pair_images(node, x2, y, &k->second.image);
    c->first.image[1] = k->second.image;
}

static uint32_t bias_of(const struct ir_node *node, uint32_t i)
{
    return input_of(node, i) == IR_NONE ? IR_NONE : i;
}

static bool read_chain(const struct ir_graph *graph, const struct ir_node *node, struct chain *out)
{
    struct chain c = {0};
    if (node->op != IR_OP_CONV_CHAIN || !is_constant(graph, node, 1) ||
        !is_constant(graph, node, IR_CHAIN_NEXT) || !read_stored(graph, node, &c) ||
        (c.first.n > 1 && !is_constant(graph, node, IR_CHAIN_W2)) ||
        !read_residual(graph, node, &c))
        return false;
    c.first.in[0] = (struct scaled_inputs){1, bias_of(node, IR_CHAIN_BIAS)};
    c.first.in[1] = (struct scaled_inputs){IR_CHAIN_W2, IR_NONE};
    c.next.in[0] = (struct scaled_inputs){IR_CHAIN_NEXT, bias_of(node, IR_CHAIN_NEXT_BIAS)};
    own_sources_limits(&c.first, (uint32_t)ir_attr_at(node, IR_ATTR_FUNCS, 0), 0, 0,
                       &c.kernel.first.low, &c.kernel.first.high);
    own_sources_limits(&c.next, (uint32_t)ir_attr_at(node, IR_ATTR_FUNCS, 1), 0, 0,
                       &c.kernel.next.low, &c.kernel.next.high);
    read_sizes(graph, node, &c);
    *out = c;
    return own_sources_count(&c.first) && own_sources_count(&c.next);
}

static void read_places(struct chain *c, int32_t variant)
{
    int64_t line = kernel_chain_line(variant);
    own_sources_place(&c->first, KERNEL_CHAIN_LINE, KERNEL_CHAIN_STEP, &c->first_places);
    own_sources_place(&c->next, line, KERNEL_CHAIN_STEP, &c->next_places);
}

/* Launches; inputs NULL: asks whether the kernel takes the node. It sees only that there is a
 * residual then. */
static cudaError_t call_kernel(const struct ir_node *node, const struct chain *c,
                               const struct kernel_call *call, void *const *inputs,
                               void *const *outputs)
{
    static const _Alignas(BACKEND_ALIGN) char any[1];
    struct kernel_chain k = c->kernel;
    struct kernel_tile next = {0};
    if (input_of(node, IR_CHAIN_RESIDUAL) != IR_NONE)
        k.first.residual = inputs ? inputs[IR_CHAIN_RESIDUAL] : any;
    if (!inputs)
        return kernel_chain(call, &k);
    k.first.x = inputs[0];
    k.first.y = outputs[0];
    k.next.t = outputs[1];
    if (c->first.n > 1)
        k.first.second.x = inputs[IR_CHAIN_X2];
    own_sources_bind(&c->first_places, inputs[1], c->first.n > 1 ? inputs[IR_CHAIN_W2] : NULL,
                     &k.first);
    own_sources_bind(&c->next_places, inputs[IR_CHAIN_NEXT], NULL, &next);
    k.next.weights = next.weights;
    k.next.scale = next.scale;
    k.next.bias = next.bias;
    return kernel_chain(call, &k);
}

/* --- tactics --- */

static bool is_data(uint32_t input)
{
    return input == 0 || input == IR_CHAIN_X2 || input == IR_CHAIN_RESIDUAL;
}

static void fill(const struct ir_graph *graph, const struct ir_node *node, const struct chain *c,
                 int32_t variant, struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s to %s", names[variant],
             dtype_name(c->first.from[0].dtype), dtype_name(c->next.to.dtype));
    cuda_tactic(tactic, &cuda_family_own_chain, (uint32_t)variant, graph, node, DTYPE_NONE,
                IR_LAYOUT_CHANNELS_LAST, detail);
    stored_set_scales(tactic, graph, node);
    for (uint32_t i = 0; i < tactic->n_in; i++)
        tactic->in[i].format.layout = is_data(i) ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    own_sources_ports(graph, node, &c->first, &c->first_places, tactic);
    own_sources_ports(graph, node, &c->next, &c->next_places, tactic);
}

/* Whether the row of the kernel's table is no wider than t's columns want. */
static bool is_narrow(const struct chain *c, int32_t variant)
{
    return kernel_chain_line(variant) <= 64 || c->kernel.next.cols > 64;
}

struct ask {
    struct cuda_device *device;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct ask *ask = user;
    struct chain c;
    if (!read_chain(graph, ask->node, &c) || !own_sources_fit(graph, ask->node, &c.first) ||
        !own_sources_fit(graph, ask->node, &c.next))
        return STATUS_OK;
    for (int32_t v = 1; v <= KERNEL_CHAIN_VARIANTS; v++) {
        struct kernel_call call = own_call_dry(ask->device, v);
        struct tactic tactic;
        if (!is_narrow(&c, v) || call_kernel(ask->node, &c, &call, NULL, NULL) != cudaSuccess)
            continue;
        read_places(&c, v);
        fill(graph, ask->node, &c, v, &tactic);
        TRY(ask->visit(ask->user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision UNUSED,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {device, node, visit, user};
    return stored_each(graph, node, ask_stored, &ask, err);
}

/* What a stored tactic says of the node. */
static bool reread(const struct ir_graph *graph, const struct ir_node *node,
                   const struct tactic *tactic, struct chain *c)
{
    int32_t variant = (int32_t)cuda_tactic_variant(tactic);
    struct tactic want;
    if (variant < 1 || variant > KERNEL_CHAIN_VARIANTS || tactic->blob_size ||
        !read_chain(graph, node, c))
        return false;
    read_places(c, variant);
    fill(graph, node, c, variant, &want);
    return own_sources_same(tactic, &want);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct chain c;
    bool fit = false, next = input == IR_CHAIN_NEXT;
    if ((input != 1 && input != IR_CHAIN_W2 && !next) || !reread(graph, node, tactic, &c))
        return cuda_refuse(node, tactic, err);
    TRY(own_sources_pack(graph, node, next ? &c.next : &c.first,
                         next ? &c.next_places : &c.first_places, input == IR_CHAIN_W2, to, &fit,
                         err));
    return fit ? STATUS_OK : cuda_refuse(node, tactic, err);
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct chain_op *op = CONTAINER_OF(base, struct chain_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    cudaError_t code = call_kernel(op->node, &op->made, &call, inputs, outputs);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_chain");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct chain_op made = {
        .base.launch = launch, .node = node, .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    if (!reread(graph, node, tactic, &made.made) ||
        call_kernel(node, &made.made, &call, NULL, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_chain = {
    .id = CUDA_FAMILY_OWN_CHAIN,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
