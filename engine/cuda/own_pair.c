/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of two convolutions (CONV_PAIR) whose data and results are stored in 8 bits by scales, by
 * our own kernel for Hopper (kernels/cuda/tile.cuh). What follows may be limits. own_sources.h says
 * how it is computed. The same in 16 bits is own_matmul.c's.
 */
#include <math.h>
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/own_sources.h"

struct pair {
    struct kernel_tile tile;
    struct own_sources sources;
    struct own_sources_places places;
};

struct pair_op {
    struct backend_op base;
    int32_t variant;
    struct pair made;
};

/* --- from a node --- */

static bool read_stored(const struct ir_graph *graph, const struct ir_node *node, struct pair *p)
{
    struct own_sources *s = &p->sources;
    if (!stored_read(graph, node->inputs[0], &s->from[0]) ||
        !stored_read(graph, node->inputs[IR_PAIR_X2], &s->from[1]) ||
        !stored_read(graph, node->outputs[0], &s->to))
        return false;
    p->tile.x_dtype = (int32_t)s->from[0].dtype;
    p->tile.y_dtype = (int32_t)s->to.dtype;
    p->tile.to = 1 / s->to.step;
    return own_sources_types(s) && isfinite(p->tile.to);
}

static bool read_limits(const struct ir_node *node, struct pair *p)
{
    const struct ir_epilogue *step = node->epilogue;
    bool bare = node->n_epilogue == 0;
    if (node->n_epilogue > 1 || (!bare && step->kind != IR_EPILOGUE_UNARY))
        return false;
    return own_sources_limits(&p->sources, bare ? IR_UNARY_IDENTITY : step->func,
                              bare ? 0 : step->alpha, bare ? 0 : step->beta, &p->tile.low,
                              &p->tile.high);
}

static void read_sizes(const struct ir_graph *graph, const struct ir_node *node, struct pair *p)
{
    const int64_t *y = ir_tensor(graph, node->outputs[0])->shape.dim;
    const int64_t *x2 = cuda_input(graph, node, IR_PAIR_X2)->shape.dim;
    p->tile.rows = y[0] * y[2] * y[3];
    p->tile.cols = p->sources.cols = y[1];
    p->tile.depth = p->sources.depth[0] = cuda_input(graph, node, 0)->shape.dim[1];
    p->tile.second.depth = p->sources.depth[1] = x2[1];
    own_pair_images(node, x2, y, &p->tile.second.image);
    p->sources.image[1] = p->tile.second.image;
}

static bool read_pair(const struct ir_graph *graph, const struct ir_node *node, struct pair *out)
{
    struct pair p = {.sources.n = OWN_SOURCES};
    bool biased =
        ir_node_own_inputs(node) > IR_PAIR_BIAS && cuda_input(graph, node, IR_PAIR_BIAS) != NULL;
    if (node->op != IR_OP_CONV_PAIR || !ir_tensor_is_constant(cuda_input(graph, node, 1)) ||
        !ir_tensor_is_constant(cuda_input(graph, node, IR_PAIR_W2)) ||
        !read_stored(graph, node, &p) || !read_limits(node, &p))
        return false;
    p.sources.in[0] = (struct scaled_inputs){1, biased ? IR_PAIR_BIAS : IR_NONE};
    p.sources.in[1] = (struct scaled_inputs){IR_PAIR_W2, IR_NONE};
    read_sizes(graph, node, &p);
    *out = p;
    return own_sources_count(&p.sources);
}

/* The kernel's step of depth, and with it where packed numbers lie, are a variant's own. */
static void read_places(struct pair *p, int32_t variant)
{
    own_sources_place(&p->sources, kernel_tile_line(variant), kernel_tile_step(variant),
                      &p->places);
}

/* --- tactics --- */

static void fill(const struct ir_graph *graph, const struct ir_node *node, const struct pair *p,
                 int32_t variant, struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s to %s", own_tile_names[variant],
             dtype_name(p->sources.from[0].dtype), dtype_name(p->sources.to.dtype));
    cuda_tactic(tactic, &cuda_family_own_pair, (uint32_t)variant, graph, node, DTYPE_NONE,
                IR_LAYOUT_CHANNELS_LAST, detail);
    stored_set_scales(tactic, graph, node);
    for (uint32_t i = 1; i < tactic->n_in; i++)
        tactic->in[i].format.layout = i == IR_PAIR_X2 ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    own_sources_ports(graph, node, &p->sources, &p->places, tactic);
}

struct ask {
    struct cuda_device *device;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

/* Those whose tiles are no wider than they need be. */
static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct ask *ask = user;
    struct pair p;
    if (!read_pair(graph, ask->node, &p) || !own_sources_fit(graph, ask->node, &p.sources))
        return STATUS_OK;
    for (int32_t v = 1; v <= KERNEL_TILE_VARIANTS; v++) {
        struct kernel_call call = own_call_dry(ask->device, v);
        struct tactic tactic;
        if ((kernel_tile_line(v) == 128 && p.tile.cols <= 64) ||
            kernel_tile(&call, &p.tile) != cudaSuccess)
            continue;
        read_places(&p, v);
        fill(graph, ask->node, &p, v, &tactic);
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
                   const struct tactic *tactic, struct pair *p)
{
    int32_t variant = (int32_t)cuda_tactic_variant(tactic);
    struct tactic want;
    if (variant < 1 || variant > KERNEL_TILE_VARIANTS || tactic->blob_size ||
        !read_pair(graph, node, p))
        return false;
    read_places(p, variant);
    fill(graph, node, p, variant, &want);
    return own_sources_same(tactic, &want);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct pair p;
    bool fit = false;
    if ((input != 1 && input != IR_PAIR_W2) || !reread(graph, node, tactic, &p))
        return cuda_refuse(node, tactic, err);
    TRY(own_sources_pack(graph, node, &p.sources, &p.places, input != 1, to, &fit, err));
    return fit ? STATUS_OK : cuda_refuse(node, tactic, err);
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct pair_op *op = CONTAINER_OF(base, struct pair_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    struct kernel_tile t = op->made.tile;
    t.x = inputs[0];
    t.y = outputs[0];
    t.second.x = inputs[IR_PAIR_X2];
    own_sources_bind(&op->made.places, inputs[1], inputs[IR_PAIR_W2], &t);
    cudaError_t code = kernel_tile(&call, &t);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_tile");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct pair_op made = {.base.launch = launch, .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    if (!reread(graph, node, tactic, &made.made) ||
        kernel_tile(&call, &made.made.tile) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_pair = {
    .id = CUDA_FAMILY_OWN_PAIR,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
