/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of two convolutions (CONV_PAIR) whose data and results are stored in 8 bits by scales, by
 * our own kernel for Hopper (kernels/cuda/tile.cuh). Source i stands for s[i] (p - z[i]) and its
 * weights of channel c for t[i][c] q, so that with u[i] = s[i] t[i]
 *
 *     y[c] = u[0] sum(p q) + u[1] sum(p2 q2) + bias[c] - u[0] z[0] sum(q) - u[1] z[1] sum(q2)
 *
 * The kernel sums in units of u[1]: it rounds the first source's sum to them, which is refused
 * where one of them would be felt in y. Channels to which the second source brings next to nothing
 * have larger units than their weights ask for, so that no sum overflows. What follows may be
 * limits. The same in 16 bits is own_matmul.c's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/cuda/scaled.h"

enum { SOURCES = 2 };

/* A unit of the second source may be this part of a step of y at most, */
static const double felt = 1.0 / 32;
/* and has to be this part of the first source's unit at least. Both sums have a bound as well. */
static const double smallest = 1.0 / 64, sum_max = 1 << 30, product_max = 127.0 * 255;
/* What a number of x is at most: UINT8 is counted from 128. */
static const double x_max = 128;

struct pair {
    struct kernel_tile tile;
    struct stored from[SOURCES], to;
    bool biased;
    uint64_t weights[SOURCES]; /* bytes of packed weights */
    uint64_t vector;           /* bytes of a number for each of their rows */
};

struct pair_op {
    struct backend_op base;
    int32_t variant;
    struct pair made;
};

/* --- from a node --- */

static bool read_stored(const struct ir_graph *graph, const struct ir_node *node, struct pair *p)
{
    if (!stored_read(graph, node->inputs[0], &p->from[0]) ||
        !stored_read(graph, node->inputs[IR_PAIR_X2], &p->from[1]) ||
        !stored_read(graph, node->outputs[0], &p->to))
        return false;
    p->tile.x_dtype = (int32_t)p->from[0].dtype;
    p->tile.y_dtype = (int32_t)p->to.dtype;
    return scaled_is_byte(p->from[0].dtype) && p->from[1].dtype == p->from[0].dtype &&
           scaled_is_byte(p->to.dtype) && p->to.step > 0;
}

static bool read_limits(const struct ir_node *node, struct pair *p)
{
    const struct ir_epilogue *step = node->epilogue;
    p->tile.low = -128;
    p->tile.high = 127;
    return node->n_epilogue == 0 || (node->n_epilogue == 1 && step->kind == IR_EPILOGUE_UNARY &&
                                     scaled_limits(&p->to, step->func, step->alpha, step->beta,
                                                   &p->tile.low, &p->tile.high));
}

static void read_sizes(const struct ir_graph *graph, const struct ir_node *node, struct pair *p)
{
    const int64_t *y = ir_tensor(graph, node->outputs[0])->shape.dim;
    const int64_t *x2 = cuda_input(graph, node, IR_PAIR_X2)->shape.dim;
    p->tile.rows = y[0] * y[2] * y[3];
    p->tile.cols = y[1];
    p->tile.depth = cuda_input(graph, node, 0)->shape.dim[1];
    p->tile.second.depth = x2[1];
    own_pair_images(node, x2, y, &p->tile.second.image);
}

static bool read_pair(const struct ir_graph *graph, const struct ir_node *node, struct pair *out)
{
    struct pair p = {.biased = ir_node_own_inputs(node) > IR_PAIR_BIAS &&
                               cuda_input(graph, node, IR_PAIR_BIAS) != NULL};
    if (node->op != IR_OP_CONV_PAIR || !ir_tensor_is_constant(cuda_input(graph, node, 1)) ||
        !ir_tensor_is_constant(cuda_input(graph, node, IR_PAIR_W2)) ||
        !read_stored(graph, node, &p) || !read_limits(node, &p))
        return false;
    read_sizes(graph, node, &p);
    *out = p;
    return (double)MAX(p.tile.depth, p.tile.second.depth) * product_max < sum_max;
}

/* The kernel's step of depth, and with it where packed numbers lie, are a variant's own. */
static void read_places(struct pair *p, int32_t variant)
{
    const uint64_t align = BACKEND_ALIGN - 1;
    int64_t step = kernel_tile_step(variant), rows = kernel_tile_rows(p->tile.cols);
    const struct kernel_images *images[SOURCES] = {&p->tile.image, &p->tile.second.image};
    const int64_t depth[SOURCES] = {p->tile.depth, p->tile.second.depth};
    for (int i = 0; i < SOURCES; i++)
        p->weights[i] =
            ((uint64_t)(rows * kernel_tile_depth(images[i], depth[i], step)) + align) & ~align;
    p->vector = ((uint64_t)rows * sizeof(float) + align) & ~align;
}

/* Behind the first source's weights stand scale and bias, behind the second one's the ratio and a
 * number, the most that a sum of the first source can be in units of the second one. */
static uint64_t packed_bytes(const struct pair *p, int source)
{
    return p->weights[source] + 2 * p->vector;
}

static struct scaled_inputs inputs_of(const struct pair *p, int source)
{
    return (struct scaled_inputs){source ? IR_PAIR_W2 : 1,
                                  !source && p->biased ? IR_PAIR_BIAS : IR_NONE};
}

/* The units of a channel's sums; false: rounding to the second one would be felt. */
static bool units_of(const struct pair *p, const struct ir_scale *const scale[SOURCES], int64_t c,
                     double unit[SOURCES])
{
    for (int i = 0; i < SOURCES; i++)
        unit[i] = (double)p->from[i].step * (double)scaled_step(scale[i], c);
    double least = fmax(smallest, (double)p->tile.depth * product_max / sum_max);
    unit[1] = fmax(unit[1], unit[0] * least);
    return unit[1] <= (double)p->to.step * felt;
}

static bool constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                          const struct pair *p)
{
    const struct ir_scale *scale[SOURCES];
    for (int i = 0; i < SOURCES; i++) {
        struct scaled_inputs in = inputs_of(p, i);
        if (!scaled_constants_fit(graph, node, in, 0, p->tile.cols, DTYPE_I8))
            return false;
        scale[i] = ir_scale(graph, cuda_input(graph, node, in.weights)->range);
    }
    double unit[SOURCES];
    for (int64_t c = 0; c < p->tile.cols; c++)
        if (!units_of(p, scale, c, unit))
            return false;
    return true;
}

/* --- tactics --- */

static void fill(const struct ir_graph *graph, const struct ir_node *node, const struct pair *p,
                 int32_t variant, struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s to %s", own_tile_names[variant],
             dtype_name(p->from[0].dtype), dtype_name(p->to.dtype));
    cuda_tactic(tactic, &cuda_family_own_pair, (uint32_t)variant, graph, node, DTYPE_NONE,
                IR_LAYOUT_CHANNELS_LAST, detail);
    stored_set_scales(tactic, graph, node);
    for (uint32_t i = 1; i < tactic->n_in; i++)
        tactic->in[i].format.layout = i == IR_PAIR_X2 ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    for (int i = 0; i < SOURCES; i++) {
        uint32_t input = inputs_of(p, i).weights;
        tactic->in[input].format =
            (struct ir_format){.dtype = DTYPE_I8, .scale = cuda_input(graph, node, input)->range};
        tactic_port_pack(&tactic->in[input], packed_bytes(p, i));
    }
    if (p->biased) /* packing reads it as it is */
        tactic->in[IR_PAIR_BIAS].format =
            (struct ir_format){.dtype = cuda_input(graph, node, IR_PAIR_BIAS)->dtype};
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
    if (!read_pair(graph, ask->node, &p) || !constants_fit(graph, ask->node, &p))
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
    bool fit = tactic->n_in == want.n_in && tactic->n_out == 1 && !tactic->out[0].packed_bytes &&
               tactic->out[0].format.layout == want.out[0].format.layout;
    for (uint32_t i = 0; fit && i < tactic->n_in; i++)
        fit = tactic->in[i].format.layout == want.in[i].format.layout &&
              tactic->in[i].packed_bytes == want.in[i].packed_bytes;
    return fit;
}

/* --- packing --- */

struct packing {
    const struct pair *p;
    int32_t variant;
    struct scaled_constants from[SOURCES];
    int64_t depth[SOURCES], pitch[SOURCES]; /* of a row: its numbers, and bytes when packed */
};

/* Of a row of weights. */
struct row_sum {
    int64_t all, magnitudes;
};

/* Writes a row of a source's weights, unless `to` is NULL. */
static struct row_sum pack_row(const struct packing *k, int source, int64_t c, double unit,
                               int8_t *to)
{
    const float *w = k->from[source].weights + c * k->depth[source];
    float step = (float)(unit / (double)k->p->from[source].step);
    int8_t *row = to ? to + kernel_tile_row(k->variant, c) * k->pitch[source] : NULL;
    struct row_sum sum = {0};
    for (int64_t i = 0; i < k->depth[source]; i++) {
        int8_t q = scaled_byte(w[i], step);
        sum.all += q;
        sum.magnitudes += abs(q);
        if (row)
            row[i] = q;
    }
    return sum;
}

static void pack_channel(const struct packing *k, int source, int64_t c, char *to)
{
    const struct pair *p = k->p;
    const struct ir_scale *const scale[SOURCES] = {k->from[0].scale, k->from[1].scale};
    int64_t at = kernel_tile_number(k->variant, c);
    float *numbers = (void *)(to + p->weights[source]);
    float *behind = numbers + p->vector / sizeof(float);
    struct row_sum sum[SOURCES];
    double unit[SOURCES], bias = (double)k->from[0].bias[c];
    units_of(p, scale, c, unit);
    for (int i = 0; i < SOURCES; i++) {
        sum[i] = pack_row(k, i, c, unit[i], i == source ? (int8_t *)to : NULL);
        bias -= unit[i] * (double)(p->from[i].zero * sum[i].all);
    }
    if (source) {
        double ratio = unit[0] / unit[1];
        numbers[at] = (float)ratio;
        *behind = fmaxf(*behind, (float)(ratio * x_max * (double)sum[0].magnitudes));
    } else {
        numbers[at] = (float)(unit[1] / (double)p->to.step);
        behind[at] = scaled_in_steps(&p->to, (float)bias);
    }
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    CLEANUP(scaled_constants_cleanup) struct scaled_constants first = {0}, second = {0};
    struct pair p;
    bool fit = false;
    if ((input != 1 && input != IR_PAIR_W2) || !reread(graph, node, tactic, &p) ||
        !constants_fit(graph, node, &p))
        return cuda_refuse(node, tactic, err);
    uint64_t n = (uint64_t)p.tile.cols;
    TRY(scaled_constants_read(graph, node, inputs_of(&p, 0), n * (uint64_t)p.tile.depth, n, &first,
                              &fit, err));
    if (fit)
        TRY(scaled_constants_read(graph, node, inputs_of(&p, 1), n * (uint64_t)p.tile.second.depth,
                                  n, &second, &fit, err));
    if (!fit)
        return cuda_refuse(node, tactic, err);
    int32_t variant = (int32_t)cuda_tactic_variant(tactic);
    int64_t step = kernel_tile_step(variant);
    const struct packing k = {
        .p = &p,
        .variant = variant,
        .from = {first, second},
        .depth = {p.tile.depth, p.tile.second.depth},
        .pitch = {kernel_tile_depth(&p.tile.image, p.tile.depth, step),
                  kernel_tile_depth(&p.tile.second.image, p.tile.second.depth, step)},
    };
    int source = input != 1;
    memset(to, 0, packed_bytes(&p, source));
    for (int64_t c = 0; c < p.tile.cols; c++)
        pack_channel(&k, source, c, to);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct pair_op *op = CONTAINER_OF(base, struct pair_op, base);
    const struct pair *made = &op->made;
    struct kernel_call call = own_call(stream, op->variant);
    struct kernel_tile t = made->tile;
    const char *first = inputs[1], *second = inputs[IR_PAIR_W2];
    t.x = inputs[0];
    t.y = outputs[0];
    t.weights = first;
    t.scale = (const void *)(first + made->weights[0]);
    t.bias = (const void *)(first + made->weights[0] + made->vector);
    t.second.x = inputs[IR_PAIR_X2];
    t.second.weights = second;
    t.second.ratio = (const void *)(second + made->weights[1]);
    t.second.most = (const void *)(second + made->weights[1] + made->vector);
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
