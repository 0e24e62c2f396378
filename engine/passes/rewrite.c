/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over the nodes, and the edits that visitors make.
 *
 * To replace a tensor, no reader is visited. The replacement is noted in `forward`; a node's inputs
 * are brought up to date when the walk comes to the node, and the remaining ones at the end. Graph
 * outputs are the exception: there are few of them, and they have the names that users know, so an
 * output's tensor stays, and its new producer writes it.
 */
#include "engine/passes/rewrite.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 256, LINE_MAX_LENGTH = 640 };

void rw_fail(struct rewrite *rw)
{
    if (!rw->status)
        rw->status = error_no_memory(rw->err, "pass %s", rw->ctx->pass->name);
}

/* Makes room in the per-tensor arrays for all present tensors. */
static void cover(struct rewrite *rw)
{
    uint32_t n = rw->graph->n_tensors;
    if (rw->status || n <= rw->cap)
        return;
    uint32_t cap = MAX(n + 64, rw->cap + rw->cap / 2);
    uint32_t *uses = realloc(rw->uses, cap * sizeof(*uses));
    if (uses)
        rw->uses = uses;
    uint32_t *forward = realloc(rw->forward, cap * sizeof(*forward));
    if (forward)
        rw->forward = forward;
    bool *stepped = realloc(rw->stepped, cap * sizeof(*stepped));
    if (stepped)
        rw->stepped = stepped;
    if (!uses || !forward || !stepped) {
        rw_fail(rw);
        return;
    }
    for (uint32_t i = rw->cap; i < cap; i++) {
        rw->uses[i] = 0;
        rw->stepped[i] = false;
        rw->forward[i] = i;
    }
    rw->cap = cap;
}

static uint32_t resolve(struct rewrite *rw, uint32_t tensor)
{
    uint32_t end = tensor;
    if (tensor == IR_NONE)
        return IR_NONE;
    while (rw->forward[end] != end)
        end = rw->forward[end];
    while (rw->forward[tensor] != end && tensor != end) {
        uint32_t next = rw->forward[tensor];
        rw->forward[tensor] = end;
        tensor = next;
    }
    return end;
}

static void resolve_inputs(struct rewrite *rw, uint32_t node)
{
    struct ir_node *n = ir_node(rw->graph, node);
    for (uint32_t i = 0; i < n->n_inputs; i++)
        n->inputs[i] = resolve(rw, n->inputs[i]);
}

static void count_uses(struct rewrite *rw)
{
    const struct ir_graph *g = rw->graph;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *n = ir_node(g, i);
        if (n->op == IR_OP_NONE)
            continue;
        bool step = ir_node_jumps(n);
        for (uint32_t j = 0; j < n->n_inputs; j++) {
            if (n->inputs[j] == IR_NONE)
                continue;
            rw->uses[n->inputs[j]]++;
            rw->stepped[n->inputs[j]] |= step;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        rw->uses[g->outputs[i]]++;
}

/* Twice the bytes of all present constants, four times more of those of 8 bits, which may be
 * dequantised, and something for graphs that have nearly none. */
static uint64_t room_for_constants(const struct ir_graph *graph)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(graph, i);
        if (t->data)
            sum += t->bytes * (dtype_size(t->dtype) == 1 ? 3 : 1);
    }
    return 2 * sum + (UINT64_C(64) << 20);
}

enum status rewrite_run(struct ir_graph *graph, struct pass_context *ctx, rewrite_visit visit,
                        struct error *err)
{
    return rewrite_run_with(graph, ctx, visit, NULL, err);
}

enum status rewrite_run_with(struct ir_graph *graph, struct pass_context *ctx, rewrite_visit visit,
                             void *state, struct error *err)
{
    struct rewrite rw = {.graph = graph, .ctx = ctx, .err = err, .state = state};
    rw.room = room_for_constants(graph);
    uint32_t n = graph->n_nodes;
    cover(&rw);
    if (!rw.status)
        count_uses(&rw);
    for (uint32_t i = 0; i < n && !rw.status; i++) {
        if (ir_node(graph, i)->op == IR_OP_NONE)
            continue;
        resolve_inputs(&rw, i);
        visit(&rw, i);
    }
    for (uint32_t i = 0; i < graph->n_nodes && !rw.status; i++)
        if (ir_node(graph, i)->op != IR_OP_NONE)
            resolve_inputs(&rw, i);
    free(rw.uses);
    free(rw.forward);
    free(rw.stepped);
    free(rw.stack);
    return rw.status;
}

uint32_t rw_uses(const struct rewrite *rw, uint32_t tensor)
{
    return rw->uses[tensor];
}

uint32_t rw_made_by(const struct rewrite *rw, uint32_t tensor, enum ir_op op)
{
    uint32_t node = tensor == IR_NONE ? IR_NONE : ir_tensor(rw->graph, tensor)->producer;
    if (node == IR_NONE || ir_node(rw->graph, node)->op != op ||
        ir_node(rw->graph, node)->n_epilogue)
        return IR_NONE;
    return node;
}

bool rw_is_unary(const struct rewrite *rw, uint32_t node, enum ir_unary func)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    return n->op == IR_OP_UNARY && !n->n_epilogue && ir_attr_int(n, IR_ATTR_FUNC) == func;
}

bool rw_is_binary(const struct rewrite *rw, uint32_t node, enum ir_binary func)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    return n->op == IR_OP_BINARY && !n->n_epilogue && ir_attr_int(n, IR_ATTR_FUNC) == func;
}

uint32_t rw_made_by_unary(const struct rewrite *rw, uint32_t tensor, enum ir_unary func)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_UNARY);
    return node != IR_NONE && rw_is_unary(rw, node, func) ? node : IR_NONE;
}

uint32_t rw_made_by_binary(const struct rewrite *rw, uint32_t tensor, enum ir_binary func)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_BINARY);
    return node != IR_NONE && rw_is_binary(rw, node, func) ? node : IR_NONE;
}

uint32_t rw_input(const struct rewrite *rw, uint32_t node, uint32_t i)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    return i < n->n_inputs ? n->inputs[i] : IR_NONE;
}

uint32_t rw_output(const struct rewrite *rw, uint32_t node)
{
    return ir_node(rw->graph, node)->outputs[0];
}

bool rw_is_stepped(const struct rewrite *rw, uint32_t tensor)
{
    return rw->stepped[tensor];
}

struct unary_args rw_unary_args(const struct ir_node *node)
{
    struct unary_args args;
    ir_unary_constants(node, &args.alpha, &args.beta, &args.gamma);
    return args;
}

bool rw_linear(const struct rewrite *rw, uint32_t node, float *scale, float *shift)
{
    if (node == IR_NONE || !rw_is_unary(rw, node, IR_UNARY_LINEAR))
        return false;
    struct unary_args args = rw_unary_args(ir_node(rw->graph, node));
    *scale = args.alpha;
    *shift = args.beta;
    return true;
}

bool rw_shift_rounds(float shift)
{
    return fabsf(shift) > 0x1p16F; /* biases of networks are far below */
}

bool rw_same_shape(const struct rewrite *rw, uint32_t a, uint32_t b)
{
    return shape_equal(&ir_tensor(rw->graph, a)->shape, &ir_tensor(rw->graph, b)->shape);
}

bool rw_is_float(const struct rewrite *rw, uint32_t tensor)
{
    enum dtype dtype = ir_tensor(rw->graph, tensor)->dtype;
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* Lets `to` take the place and the name of a graph output. A node must make `to`; it may have other
 * readers. */
static bool replace_output(struct rewrite *rw, uint32_t from, uint32_t to)
{
    struct ir_graph *g = rw->graph;
    uint32_t node = ir_tensor(g, to)->producer;
    if (node == IR_NONE || ir_tensor_is_output(g, to))
        return false;
    struct ir_node *n = ir_node(g, node);
    uint32_t index = 0;
    while (n->outputs[index] != to)
        index++;
    ir_node_set_output(g, node, index, from);
    ir_replace_uses(g, to, from);
    rw->forward[to] = from;
    rw->uses[from] += rw->uses[to];
    rw->uses[to] = 0;
    return true;
}

bool rw_replace(struct rewrite *rw, uint32_t from, uint32_t to)
{
    const struct ir_tensor *a = ir_tensor(rw->graph, from), *b = ir_tensor(rw->graph, to);
    if (rw->status || from == to || a->dtype != b->dtype || !shape_equal(&a->shape, &b->shape))
        return false;
    if (ir_tensor_is_output(rw->graph, from))
        return replace_output(rw, from, to);
    rw->forward[from] = to;
    rw->uses[to] += rw->uses[from];
    rw->uses[from] = 0;
    return true;
}

static bool is_unused(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (ir_tensor(rw->graph, n->outputs[i])->producer == node && rw->uses[n->outputs[i]])
            return false;
    return true;
}

/* Takes one reader off the tensor. If that was the last one, the tensor's producer goes on the
 * stack. */
static uint32_t drop_use(struct rewrite *rw, uint32_t tensor, uint32_t depth)
{
    if (tensor == IR_NONE || --rw->uses[tensor] > 0)
        return depth;
    uint32_t producer = ir_tensor(rw->graph, tensor)->producer;
    if (producer != IR_NONE && is_unused(rw, producer))
        rw->stack[depth++] = producer;
    return depth;
}

static void sweep(struct rewrite *rw, uint32_t depth)
{
    while (depth) {
        uint32_t at = rw->stack[--depth];
        struct ir_node *n = ir_node(rw->graph, at);
        if (n->op == IR_OP_NONE)
            continue;
        resolve_inputs(rw, at);
        uint32_t n_inputs = n->n_inputs, *inputs = n->inputs;
        ir_node_remove(rw->graph, at);
        for (uint32_t i = 0; i < n_inputs; i++)
            depth = drop_use(rw, inputs[i], depth);
    }
}

/* Makes room for all nodes, each of which is pushed at most once: when the last of its outputs
 * loses its last reader. */
static bool cover_stack(struct rewrite *rw)
{
    uint32_t need = rw->graph->n_nodes + 1;
    if (rw->status || need <= rw->stack_cap)
        return !rw->status;
    uint32_t *stack = realloc(rw->stack, (need + 64) * sizeof(*stack));
    if (!stack) {
        rw_fail(rw);
        return false;
    }
    rw->stack = stack;
    rw->stack_cap = need + 64;
    return true;
}

void rw_remove(struct rewrite *rw, uint32_t node)
{
    if (!cover_stack(rw))
        return;
    rw->stack[0] = node;
    sweep(rw, 1);
}

void rw_set_input(struct rewrite *rw, uint32_t node, uint32_t i, uint32_t tensor)
{
    if (!cover_stack(rw))
        return;
    uint32_t *slot = &ir_node(rw->graph, node)->inputs[i], old = *slot;
    *slot = tensor;
    if (tensor != IR_NONE)
        rw->uses[tensor]++;
    sweep(rw, drop_use(rw, old, 0));
}

void rw_add_input(struct rewrite *rw, uint32_t node, uint32_t tensor)
{
    if (rw->status)
        return;
    if (ir_node_input_add(rw->graph, node, tensor) == IR_NONE)
        rw_fail(rw);
    else if (tensor != IR_NONE)
        rw->uses[tensor]++;
}

void rw_add_epilogue(struct rewrite *rw, uint32_t node, struct ir_epilogue step, uint32_t tensor)
{
    if (rw->status)
        return;
    if (!ir_epilogue_add(rw->graph, node, step, tensor))
        rw_fail(rw);
    else if (step.kind == IR_EPILOGUE_BINARY)
        rw->uses[tensor]++;
}

void rw_become(struct rewrite *rw, uint32_t node, enum ir_op op, uint32_t n_inputs,
               const uint32_t *inputs)
{
    uint32_t *list = arena_array(rw->graph->arena, n_inputs, sizeof(*list));
    if (!list)
        rw_fail(rw);
    if (!cover_stack(rw))
        return;
    for (uint32_t i = 0; i < n_inputs; i++) {
        list[i] = inputs[i];
        if (inputs[i] != IR_NONE)
            rw->uses[inputs[i]]++;
    }
    struct ir_node *n = ir_node(rw->graph, node);
    uint32_t n_old = n->n_inputs, *old = n->inputs;
    n->op = op;
    n->inputs = list;
    n->n_inputs = n_inputs;
    n->n_attrs = n->n_epilogue = 0;
    for (uint32_t i = 0; i < n_old; i++)
        sweep(rw, drop_use(rw, old[i], 0));
}

void rw_absorb(struct rewrite *rw, uint32_t host, uint32_t node)
{
    if (rw->status)
        return;
    uint32_t own = rw_output(rw, host), out = rw_output(rw, node);
    rw_set_name(rw, host, ir_node(rw->graph, host)->name, ir_node(rw->graph, node)->name);
    ir_node_set_output(rw->graph, host, 0, out);
    rw_remove(rw, node);
    rw->forward[own] = out; /* nothing reads it any more */
}

void rw_adopt(struct rewrite *rw, uint32_t host, uint32_t node)
{
    if (rw->status)
        return;
    uint32_t out = rw_output(rw, node);
    struct ir_node *n = ir_node(rw->graph, host);
    assert(n->n_outputs < IR_MAX_OUTPUTS);
    n->outputs[n->n_outputs++] = out;
    ir_tensor(rw->graph, out)->producer = host;
    rw_remove(rw, node);
}

uint32_t rw_add_node(struct rewrite *rw, enum ir_op op, const char *name, uint32_t n_inputs,
                     const uint32_t *inputs)
{
    uint32_t node = IR_NONE;
    if (!rw->status)
        node = ir_node_add(rw->graph, op, name, n_inputs, inputs);
    if (node == IR_NONE) {
        rw_fail(rw);
        return IR_NONE;
    }
    for (uint32_t i = 0; i < n_inputs; i++)
        if (inputs[i] != IR_NONE)
            rw->uses[inputs[i]]++;
    return node;
}

uint32_t rw_finish(struct rewrite *rw, uint32_t node)
{
    if (!rw->status)
        rw->status = ir_infer_apply(rw->graph, node, NULL, 0, rw->err);
    cover(rw);
    return !rw->status ? rw_output(rw, node) : IR_NONE;
}

bool rw_is_taken(struct rewrite *rw, const struct rewrite_fusion *f)
{
    if (!rw->ctx->takes)
        return true;
    uint32_t node = rw_add_node(rw, f->op, f->first, f->n_inputs, f->inputs);
    if (node == IR_NONE)
        return false;
    if (f->attrs)
        f->attrs(rw, node, f->user);
    if (rw_finish(rw, node) == IR_NONE)
        return false;
    for (uint32_t i = 0; i < f->n_outputs; i++)
        ir_tensor(rw->graph, ir_node(rw->graph, node)->outputs[i])->range =
            ir_tensor(rw->graph, f->outputs[i])->range;
    if (f->steps)
        f->steps(rw, node, f->user);
    rw_set_name(rw, node, f->first, f->second);
    bool taken =
        !rw->status && rw->ctx->takes(rw->ctx->takes_user, rw->graph, ir_node(rw->graph, node));
    rw_remove(rw, node);
    return taken;
}

/* What the epilogue reads may have no other reader: it must not go before it is read again. */
void rw_become_fusion(struct rewrite *rw, uint32_t node, const struct rewrite_fusion *f)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t n_old = n->n_inputs;
    const uint32_t *old = n->inputs;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i] != IR_NONE)
            rw->uses[old[i]]++;
    rw_set_name(rw, node, f->first, f->second);
    rw_become(rw, node, f->op, f->n_inputs, f->inputs);
    if (f->attrs)
        f->attrs(rw, node, f->user);
    if (f->steps)
        f->steps(rw, node, f->user);
    for (uint32_t i = 0; i < n_old && cover_stack(rw); i++)
        sweep(rw, drop_use(rw, old[i], 0));
}

bool rw_join(struct rewrite *rw, uint32_t node, const struct rewrite_fusion *f, const char *done,
             struct pass_pairs *list)
{
    if (!rw_is_taken(rw, f) || rw->status) {
        rw_near_miss(rw, "%s + %s: no kernel for both, or it is slower", f->first, f->second);
        return false;
    }
    rw_done(rw, "%s + %s: %s", f->first, f->second, done);
    rw_become_fusion(rw, node, f);
    list->row[list->n++] = (struct pass_pair){f->first, f->second, ir_node(rw->graph, node)->name};
    return true;
}

void rw_set_ints(struct rewrite *rw, uint32_t node, enum ir_attr_key key, uint32_t n,
                 const int64_t *values)
{
    if (!rw->status && !ir_attr_set_ints(rw->graph, node, key, n, values))
        rw_fail(rw);
}

void rw_copy_attrs(struct rewrite *rw, uint32_t node, uint32_t from)
{
    if (!rw->status && !ir_attrs_copy(rw->graph, node, ir_node(rw->graph, from)))
        rw_fail(rw);
}

void rw_set_int(struct rewrite *rw, uint32_t node, enum ir_attr_key key, int64_t value)
{
    rw_set_ints(rw, node, key, 1, &value);
}

void rw_set_float(struct rewrite *rw, uint32_t node, enum ir_attr_key key, float value)
{
    if (!rw->status && !ir_attr_set_float(rw->graph, node, key, value))
        rw_fail(rw);
}

void rw_set_floats(struct rewrite *rw, uint32_t node, enum ir_attr_key key, uint32_t n,
                   const float *values)
{
    if (!rw->status && !ir_attr_set_floats(rw->graph, node, key, n, values))
        rw_fail(rw);
}

void rw_become_unary(struct rewrite *rw, uint32_t node, uint32_t input, enum ir_unary func,
                     struct unary_args args)
{
    uint32_t has = ir_unary_row(func)->flags;
    rw_become(rw, node, IR_OP_UNARY, 1, &input);
    rw_set_int(rw, node, IR_ATTR_FUNC, func);
    if (has & IR_FUNC_ALPHA)
        rw_set_float(rw, node, IR_ATTR_ALPHA, args.alpha);
    if (has & IR_FUNC_BETA)
        rw_set_float(rw, node, IR_ATTR_BETA, args.beta);
    if (has & IR_FUNC_GAMMA)
        rw_set_float(rw, node, IR_ATTR_GAMMA, args.gamma);
}

void rw_become_reshape(struct rewrite *rw, uint32_t node, uint32_t input, uint32_t rank,
                       const int64_t *dim)
{
    rw_become(rw, node, IR_OP_RESHAPE, 1, &input);
    rw_set_ints(rw, node, IR_ATTR_SHAPE, rank, dim);
}

void rw_become_transpose(struct rewrite *rw, uint32_t node, uint32_t input, uint32_t rank,
                         const int64_t *perm)
{
    rw_become(rw, node, IR_OP_TRANSPOSE, 1, &input);
    rw_set_ints(rw, node, IR_ATTR_PERM, rank, perm);
}

uint32_t rw_add_reshape(struct rewrite *rw, const char *name, uint32_t input, uint32_t rank,
                        const int64_t *dim)
{
    uint32_t node = rw_add_node(rw, IR_OP_RESHAPE, name, 1, &input);
    rw_set_ints(rw, node, IR_ATTR_SHAPE, rank, dim);
    return rw_finish(rw, node);
}

uint32_t rw_add_transpose(struct rewrite *rw, const char *name, uint32_t input, uint32_t rank,
                          const int64_t *perm)
{
    uint32_t node = rw_add_node(rw, IR_OP_TRANSPOSE, name, 1, &input);
    rw_set_ints(rw, node, IR_ATTR_PERM, rank, perm);
    return rw_finish(rw, node);
}

uint32_t rw_add_slice(struct rewrite *rw, const char *name, uint32_t input, uint32_t axis,
                      int64_t from, int64_t to)
{
    if (input == IR_NONE)
        return IR_NONE;
    const struct shape shape = ir_tensor(rw->graph, input)->shape;
    int64_t starts[SHAPE_MAX_RANK] = {0}, ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    if (from == 0 && to == shape.dim[axis])
        return input;
    for (uint32_t d = 0; d < shape.rank; d++) {
        ends[d] = shape.dim[d];
        steps[d] = 1;
    }
    starts[axis] = from;
    ends[axis] = to;
    uint32_t node = rw_add_node(rw, IR_OP_SLICE, name, 1, &input);
    rw_set_ints(rw, node, IR_ATTR_STARTS, shape.rank, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, shape.rank, ends);
    rw_set_ints(rw, node, IR_ATTR_STEPS, shape.rank, steps);
    return rw_finish(rw, node);
}

void rw_set_name(struct rewrite *rw, uint32_t node, const char *a, const char *b)
{
    char text[NAME_MAX_LENGTH];
    int n = snprintf(text, sizeof(text), "%s%s%s", a, *a && *b ? " + " : "", b);
    if (n >= (int)sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    char *copy = arena_strndup(rw->graph->arena, text, strlen(text));
    if (copy)
        ir_node(rw->graph, node)->name = copy;
    else
        rw_fail(rw);
}

uint32_t rw_add_constant(struct rewrite *rw, const char *name, enum dtype dtype,
                         const struct shape *shape, void **data)
{
    uint64_t bytes;
    if (rw->status)
        return IR_NONE;
    void *memory = ir_layout_bytes(shape, dtype, IR_LAYOUT_PLAIN, &bytes)
                       ? arena_alloc(rw->graph->arena, bytes)
                       : NULL;
    uint32_t id = memory ? ir_constant_add(rw->graph, name, dtype, shape, memory) : IR_NONE;
    if (id == IR_NONE)
        rw_fail(rw);
    cover(rw);
    if (rw->status)
        return IR_NONE;
    *data = memory;
    return id;
}

uint32_t rw_share_constant(struct rewrite *rw, uint32_t constant, const struct shape *shape)
{
    struct ir_tensor t = *ir_tensor(rw->graph, constant);
    uint32_t id = IR_NONE;
    if (!rw->status)
        id = ir_constant_add(rw->graph, t.name, t.dtype, shape, t.data);
    if (id == IR_NONE)
        rw_fail(rw);
    cover(rw);
    return !rw->status ? id : IR_NONE;
}

static void say(const struct rewrite *rw, enum log_level level, const char *fmt, va_list args)
{
    const struct log_sink *log = rw->ctx->log;
    if (!log || level > log->level)
        return;
    char text[LINE_MAX_LENGTH];
    vsnprintf(text, sizeof(text), fmt, args);
    log_write(log, level, "%s: %s", rw->ctx->pass->name, text);
}

void rw_done(struct rewrite *rw, const char *fmt, ...)
{
    va_list args;
    rw->ctx->rewrites++;
    va_start(args, fmt);
    say(rw, LOG_INFO, fmt, args);
    va_end(args);
}

void rw_near_miss(struct rewrite *rw, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(rw, LOG_VERBOSE, fmt, args);
    va_end(args);
}
