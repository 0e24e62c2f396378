/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that move elements without looking at them, by our own kernels: RESHAPE, TRANSPOSE, SLICE,
 * EXPAND and TILE are copies between views; CONCAT, GATHER and PAD have kernels of their own, and
 * the one of CONCAT looks at elements after all where the node has an epilogue. A copy may change
 * the float type on its way, because what a network reads and writes stays as it has it: one more
 * pass over a language model's logits takes as long as the product that made them.
 *
 * A captured graph cannot return an error for an index out of range. So GATHER makes NaN of that
 * row and raises the stream's flag in pinned memory, and cuda_event_wait turns the flag into the
 * INVALID_ARGUMENT that the reference gives.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/own.h"
#include "engine/stored.h"

struct move {
    enum ir_op op;
    uint32_t n_in;
    struct kernel_view y;
    int64_t offset; /* bytes from the first input's beginning to its view's */
    int32_t axis;
    int64_t pads[2 * KERNEL_RANK_MAX];
    enum ir_pad mode;
    float value;
    struct kernel_epilogue epilogue;      /* of CONCAT */
    int32_t *bad;                         /* GATHER's flag for an index out of range */
    struct kernel_view in[IR_MAX_INPUTS]; /* a prepared op ends behind the last one of its own */
};

struct move_op {
    struct backend_op base;
    const struct ir_node *node;
    struct move move;
};

static int64_t attr_at(const struct ir_node *node, enum ir_attr_key key, int32_t i)
{
    return ir_attr_at(node, key, (uint32_t)i);
}

/* --- from a node to views; the node was checked by ir_infer_node --- */

/* Both tensors are dense and plain, so the node copies one row of elements. */
static bool read_reshape(const struct ir_node *node UNUSED, struct move *m)
{
    int64_t n = 1;
    for (int32_t i = 0; i < m->y.rank; i++)
        n *= m->y.dim[i];
    struct kernel_view row = {.dtype = m->y.dtype, .rank = 1, .dim = {n}, .stride = {1}};
    m->in[0] = m->y = row;
    return true;
}

static bool read_transpose(const struct ir_node *node, struct move *m)
{
    struct kernel_view x = m->in[0];
    for (int32_t i = 0; i < x.rank; i++) {
        int64_t from = attr_at(node, IR_ATTR_PERM, i);
        if (from < 0 || from >= x.rank)
            return false;
        m->in[0].dim[i] = x.dim[from];
        m->in[0].stride[i] = x.stride[from];
    }
    return true;
}

static bool read_slice(const struct ir_node *node, struct move *m)
{
    int64_t first = 0, size = (int64_t)dtype_size((enum dtype)m->in[0].dtype);
    for (int32_t i = 0; i < m->y.rank && m->y.dim[i] > 0; i++) {
        int64_t stride = m->in[0].stride[i], step = attr_at(node, IR_ATTR_STEPS, i);
        first += attr_at(node, IR_ATTR_STARTS, i) * stride;
        /* The step along a dim of one element does not matter, however large it is. */
        m->in[0].stride[i] = m->y.dim[i] > 1 ? step * stride : 0;
        m->in[0].dim[i] = m->y.dim[i];
    }
    bool empty = false;
    for (int32_t i = 0; i < m->y.rank; i++)
        empty = empty || m->y.dim[i] == 0;
    if (empty)
        m->in[0] = m->y;
    m->offset = empty ? 0 : first * size;
    return true;
}

static bool read_expand(const struct ir_node *node UNUSED, struct move *m)
{
    struct kernel_view x = m->in[0];
    return cuda_view_broadcast(&x, &m->y, &m->in[0]);
}

/* Every repeated dim becomes two: the repetition, along which x stands still, and the dim
 * itself. */
static bool read_tile(const struct ir_node *node, struct move *m)
{
    struct kernel_view x = m->in[0], y = m->y;
    int32_t rank = 0;
    for (int32_t i = 0; i < x.rank; i++) {
        int64_t times = attr_at(node, IR_ATTR_REPEATS, i);
        if (rank + (times != 1) >= KERNEL_RANK_MAX)
            return false;
        if (times != 1) {
            m->in[0].dim[rank] = m->y.dim[rank] = times;
            m->in[0].stride[rank] = 0;
            m->y.stride[rank++] = y.stride[i] * x.dim[i];
        }
        m->in[0].dim[rank] = m->y.dim[rank] = x.dim[i];
        m->in[0].stride[rank] = x.stride[i];
        m->y.stride[rank++] = y.stride[i];
    }
    m->in[0].rank = m->y.rank = rank;
    return true;
}

static bool read_axis(const struct ir_node *node, struct move *m)
{
    int64_t axis = ir_attr_int(node, IR_ATTR_AXIS);
    if (axis < 0 || axis >= m->in[0].rank)
        return false;
    m->axis = (int32_t)axis;
    return true;
}

/* A number that pads bytes is stored as they are: the reader has found that it can be. */
static bool read_pad(const struct ir_node *node, struct move *m)
{
    m->mode = (enum ir_pad)ir_attr_int(node, IR_ATTR_MODE);
    for (int32_t i = 0; i < 2 * m->y.rank; i++)
        m->pads[i] = attr_at(node, IR_ATTR_PADS, i);
    m->value = ir_attr_float(node, IR_ATTR_VALUE);
    if (m->in[0].dtype == DTYPE_F8) /* its bits */
        m->value = (float)f32_to_f8(m->value / (m->in[0].step > 0 ? m->in[0].step : 1));
    else if (m->in[0].step > 0)
        m->value = rintf(m->value / m->in[0].step) + m->in[0].zero;
    return true;
}

/* The layouts that each op takes: plain, channels-last, or one read and the other written. */
enum { PLAIN = 1, LAST = 2, LAST_TO_PLAIN = 4, PLAIN_TO_LAST = 8 };

static const struct {
    bool (*read)(const struct ir_node *node, struct move *m);
    uint32_t inputs; /* 0: any number */
    uint32_t layouts;
} rows[IR_OP_COUNT_] = {
    [IR_OP_RESHAPE] = {read_reshape, 1, PLAIN},
    [IR_OP_TRANSPOSE] = {read_transpose, 1, PLAIN | LAST_TO_PLAIN | PLAIN_TO_LAST},
    [IR_OP_CONCAT] = {read_axis, 0, PLAIN | LAST},
    [IR_OP_SLICE] = {read_slice, 1, PLAIN | LAST},
    [IR_OP_PAD] = {read_pad, 1, PLAIN | LAST},
    [IR_OP_GATHER] = {read_axis, 2, PLAIN | LAST},
    [IR_OP_EXPAND] = {read_expand, 1, PLAIN},
    [IR_OP_TILE] = {read_tile, 1, PLAIN},
};

/* Whether `rows` offers this pair of layouts; a stored tactic may name another one. */
static bool layouts_fit(const struct ir_node *node, const struct tactic *tactic)
{
    enum ir_layout from = tactic->in[0].format.layout, to = tactic->out[0].format.layout;
    bool picks = node->op == IR_OP_GATHER; /* by plain indices */
    uint32_t pair = from == IR_LAYOUT_PLAIN && to == IR_LAYOUT_PLAIN                   ? PLAIN
                    : from == IR_LAYOUT_CHANNELS_LAST && to == IR_LAYOUT_CHANNELS_LAST ? LAST
                    : from == IR_LAYOUT_CHANNELS_LAST && to == IR_LAYOUT_PLAIN ? LAST_TO_PLAIN
                    : from == IR_LAYOUT_PLAIN && to == IR_LAYOUT_CHANNELS_LAST ? PLAIN_TO_LAST
                                                                               : 0;
    for (uint32_t i = 1; i < MIN(tactic->n_in, ir_node_own_inputs(node)); i++)
        if (tactic->in[i].format.layout != (picks ? IR_LAYOUT_PLAIN : from))
            return false;
    return tactic->n_in > 0 && rows[node->op].layouts & pair;
}

static bool input_view(const struct ir_graph *graph, uint32_t input, enum dtype dtype,
                       enum ir_layout layout, struct kernel_view *out)
{
    struct stored stored;
    if (!stored_read(graph, input, &stored) ||
        !own_view(ir_tensor(graph, input), dtype, layout, out))
        return false;
    out->step = stored.step;
    out->zero = (float)stored.zero;
    return true;
}

/* Whether dims are what the layout says: a list of indices leaves their number as it is. */
static bool channels_stay(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *tactic)
{
    return node->op != IR_OP_GATHER || tactic->in[0].format.layout == IR_LAYOUT_PLAIN ||
           ir_tensor(graph, node->inputs[0])->shape.rank ==
               ir_tensor(graph, node->outputs[0])->shape.rank;
}

/* The types that stand for FP32 in what a tactic reads and writes. NONE: tensors have their own. */
struct move_types {
    enum dtype in, out;
};

/* Each operand of an epilogue has a port of its own. */
static bool may_have_steps(const struct ir_node *node)
{
    return !node->n_epilogue ||
           (node->op == IR_OP_CONCAT && node->n_inputs <= (uint32_t)TACTIC_PORTS_MAX);
}

static bool move_read(const struct ir_graph *graph, const struct ir_node *node,
                      const struct tactic *tactic, struct move_types types, struct move *m)
{
    uint32_t own = ir_node_own_inputs(node),
             n = rows[node->op].inputs ? rows[node->op].inputs : own;
    memset(m, 0, sizeof(*m));
    m->op = node->op;
    m->n_in = n;
    if (!may_have_steps(node) || node->n_outputs != 1 || own != n || n == 0 || n > IR_MAX_INPUTS ||
        tactic->n_in != MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX) ||
        !layouts_fit(node, tactic) || !channels_stay(graph, node, tactic) ||
        !own_view(ir_tensor(graph, node->outputs[0]), types.out, tactic->out[0].format.layout,
                  &m->y))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (node->inputs[i] == IR_NONE ||
            !input_view(graph, node->inputs[i], types.in,
                        tactic->in[MIN(i, tactic->n_in - 1)].format.layout, &m->in[i]))
            return false;
    return rows[node->op].read(node, m) && cuda_epilogue(graph, node, &m->y, &m->epilogue);
}

/* --- the call --- */

static cudaError_t run(const struct kernel_call *call, const struct move *m)
{
    switch (m->op) {
    case IR_OP_CONCAT:
        return kernel_concat(call, m->in, (int32_t)m->n_in, m->axis, &m->y, &m->epilogue);
    case IR_OP_GATHER:
        return kernel_gather(call, &m->in[0], &m->in[1], m->axis, &m->y, m->bad);
    case IR_OP_PAD:
        return kernel_pad(call, m->mode, &m->in[0], m->pads, m->value, &m->y);
    default:
        if (m->in[0].dtype != m->y.dtype)
            return dtype_is_float((enum dtype)m->in[0].dtype) &&
                           dtype_is_float((enum dtype)m->y.dtype)
                       ? kernel_map(call, &m->in[0], &m->y, 0, NULL)
                       : cudaErrorNotSupported;
        return kernel_copy(call, &m->in[0], &m->y);
    }
}

/* Whether the node is one copy between views, which may cast. */
static bool may_cast(const struct ir_node *node)
{
    return node->op == IR_OP_TRANSPOSE || node->op == IR_OP_SLICE || node->op == IR_OP_EXPAND;
}

/* --- candidates --- */

struct question {
    struct cuda_device *device;
    const struct ir_graph *graph;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

/* How an operand of the epilogue lies: like the output, if it has its rank. */
static enum ir_layout steps_layout(const struct question *q, uint32_t input, enum ir_layout like)
{
    const struct ir_tensor *operand = cuda_input(q->graph, q->node, input);
    const struct ir_tensor *y = ir_tensor(q->graph, q->node->outputs[0]);
    return operand && operand->shape.rank == y->shape.rank ? like : IR_LAYOUT_PLAIN;
}

static enum status offer(const struct question *q, struct move_types types, enum ir_layout from,
                         enum ir_layout to, struct error *err)
{
    struct tactic tactic;
    CLEANUP(cleanup_free) struct move *m = malloc(sizeof(*m)); /* too large for a stack */
    char detail[TACTIC_NAME_MAX];
    struct kernel_call call = own_call_dry(q->device, 0);
    const struct ir_tensor *y = ir_tensor(q->graph, q->node->outputs[0]);
    bool casts = types.in != types.out;
    snprintf(detail, sizeof(detail), "%s%s%s %s%s%s", casts ? dtype_name(types.in) : "",
             casts ? " to " : "", dtype_name(types.out ? types.out : y->dtype),
             from == to ? "" : ir_layout_name(from), from == to ? "" : " to ", ir_layout_name(to));
    cuda_tactic(&tactic, &cuda_family_own_move, 0, q->graph, q->node, types.in, from, detail);
    tactic.out[0].format.layout = to;
    for (uint32_t i = ir_node_own_inputs(q->node); i < tactic.n_in; i++)
        tactic.in[i].format.layout = steps_layout(q, i, to);
    if (q->node->op == IR_OP_GATHER)
        tactic.in[1].format.layout = IR_LAYOUT_PLAIN;
    if (casts)
        tactic.out[0].format.dtype = types.out;
    stored_set_scales(&tactic, q->graph, q->node);
    if (!m)
        return error_no_memory(err, "a kernel");
    if (!move_read(q->graph, q->node, &tactic, types, m) || run(&call, m) != cudaSuccess)
        return STATUS_OK;
    return q->visit(q->user, &tactic, err);
}

static enum status offer_layouts(const struct question *q, struct move_types types,
                                 struct error *err)
{
    static const struct {
        uint32_t pair;
        enum ir_layout from, to;
    } pairs[] = {
        {PLAIN, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN},
        {LAST, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST},
        {LAST_TO_PLAIN, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN},
        {PLAIN_TO_LAST, IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST},
    };
    bool has_channels = ir_tensor(q->graph, q->node->inputs[0])->shape.rank >= 3;
    for (uint32_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (rows[q->node->op].layouts & pairs[i].pair && (pairs[i].pair == PLAIN || has_channels))
            TRY(offer(q, types, pairs[i].from, pairs[i].to, err));
    return STATUS_OK;
}

/* Offers copies from FP32 to `dtype`, and back. */
static enum status offer_casts(const struct question *q, enum dtype dtype, struct error *err)
{
    if (!may_cast(q->node) || dtype == DTYPE_NONE || dtype == DTYPE_F32 ||
        ir_tensor(q->graph, q->node->inputs[0])->dtype != DTYPE_F32)
        return STATUS_OK;
    TRY(offer_layouts(q, (struct move_types){DTYPE_F32, dtype}, err));
    return offer_layouts(q, (struct move_types){dtype, DTYPE_F32}, err);
}

/* Whether bytes move like any others, since they mean the same on both sides. What PAD writes
 * beside them must be one of their numbers. */
static bool moves_bytes(const struct ir_graph *graph, const struct ir_node *node)
{
    if (node->op != IR_OP_PAD)
        return stored_moves(graph, node);
    const struct ir_tensor *x = cuda_input(graph, node, 0), *y = ir_tensor(graph, node->outputs[0]);
    const struct ir_scale *scale = x ? ir_scale(graph, x->scale) : NULL;
    return scale && scale->n == 1 && x->dtype == y->dtype &&
           ir_scale_equal(scale, ir_scale(graph, y->scale)) && ir_range_passes(node, scale);
}

/* Asks about a graph that has some of the node's tensors in 8 bits. */
static enum status offer_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    struct question q = *(const struct question *)user;
    q.graph = graph;
    return moves_bytes(graph, q.node)
               ? offer_layouts(&q, (struct move_types){DTYPE_NONE, DTYPE_NONE}, err)
               : STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct question q = {device, graph, node, visit, user};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    if (node->n_inputs == 0 || node->inputs[0] == IR_NONE)
        return STATUS_OK;
    TRY(stored_each(graph, node, offer_stored, &q, err));
    for (uint32_t d = 0; d < n; d++) {
        TRY(offer_layouts(&q, (struct move_types){dtypes[d], dtypes[d]}, err));
        TRY(offer_casts(&q, dtypes[d], err));
    }
    return STATUS_OK;
}

/* --- ops --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct move *m = &CONTAINER_OF(base, struct move_op, base)->move;
    struct kernel_call call = own_call(stream, 0);
    for (uint32_t i = 0; i < m->n_in; i++)
        m->in[i].data = inputs[i];
    m->in[0].data = (char *)inputs[0] + m->offset;
    m->y.data = outputs[0];
    cuda_epilogue_bind(&m->epilogue, CONTAINER_OF(base, struct move_op, base)->node, inputs);
    cudaError_t code = run(&call, m);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "copy kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    CLEANUP(cleanup_free) struct move_op *made = malloc(sizeof(*made));
    struct kernel_call call = own_call_dry(stream->device, 0);
    if (!made)
        return error_no_memory(err, "a kernel");
    made->base = (struct backend_op){.launch = launch};
    made->node = node;
    if (cuda_tactic_variant(tactic) != 0 ||
        (stored_any(graph, node) ? !moves_bytes(graph, node)
                                 : !may_cast(node) && !ir_node_is_uniform(graph, node)) ||
        !move_read(graph, node, tactic, (struct move_types){DTYPE_NONE, DTYPE_NONE}, &made->move) ||
        run(&call, &made->move) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    if (node->op == IR_OP_GATHER)
        TRY(cuda_stream_flag(stream, &made->move.bad, err));
    size_t size = offsetof(struct move_op, move.in) + made->move.n_in * sizeof(made->move.in[0]);
    return own_op_new(&made->base, size, out, err);
}

const struct cuda_family cuda_family_own_move = {
    .id = CUDA_FAMILY_OWN_MOVE,
    .scales = true,
    .casts = true,
    .candidates = candidates,
    .prepare = prepare,
};
