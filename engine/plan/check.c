/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what must hold of a plan before any part of it runs. The builder's plans are checked
 * before they are written, a file's plan after it was read.
 *
 * The last part walks each graph in its order and keeps the arena's occupied intervals, sorted and
 * disjoint: a tensor occupies its bytes from the node that writes it to the last node that reads
 * it. So no tensor is read before it was written, and none is overwritten while it is needed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/ir/ops.h"
#include "engine/plan/format.h"

#define ARENA_BYTES_MAX (UINT64_C(1) << 48)

static enum status bad(struct error *err, const char *what, const char *name)
{
    return error_set(err, STATUS_DATA_LOSS, "plan: %s: '%s'", what, name);
}

/* --- bindings --- */

/* Whether the axes are those of such a binding. */
static bool axes_ok(const struct plan *plan, const struct plan_binding *b,
                    const struct plan_axes *axes, bool input)
{
    const struct shape *shape = &b->shape;
    bool counts = plan->batched && !axes->shared;
    if (counts ? axes->batch >= shape->rank || shape->dim[axes->batch] != -1 : axes->batch != 0)
        return false;
    if (axes->shared && (!plan->batched || !input))
        return false;
    for (uint32_t d = 0; d < shape->rank; d++) {
        bool is_batch = counts && d == axes->batch;
        if (axes->free[d] > plan->n_free || (axes->free[d] && (is_batch || shape->dim[d] != -1)))
            return false;
        /* An output's size may follow from free dimensions in any way, an input's must be one. */
        if (shape->dim[d] == -1 && !is_batch && !axes->free[d] && (input || !plan->n_free))
            return false;
    }
    return true;
}

static enum status check_bindings(const struct plan *plan, const struct plan_binding *list,
                                  const struct plan_axes *axes, uint32_t n, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_binding *b = &list[i];
        struct shape shape = b->shape;
        size_t bytes;
        if (!plan_name_ok(b->name))
            return bad(err, "a binding's name is not [A-Za-z0-9._/:-]{1,64}", b->name);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(list[k].name, b->name))
                return bad(err, "two bindings of one name", b->name);
        if (shape.rank > SHAPE_MAX_RANK || !axes_ok(plan, b, &axes[i], list == plan->inputs))
            return bad(err, "a binding's dimensions are not what they should be", b->name);
        for (uint32_t d = 0; d < shape.rank; d++)
            if (shape.dim[d] == -1)
                shape.dim[d] = plan->batched && d == axes[i].batch && !axes[i].shared
                                   ? PLAN_MAX_BATCH
                                   : 1; /* its profiles are checked */
        if (!shape_bytes(&shape, b->dtype, &bytes))
            return bad(err, "a binding of a bad type or shape", b->name);
    }
    return STATUS_OK;
}

/* Whether the profile may have such a dimension where the binding has -1. `first` is the first
 * profile of its point. */
static bool dim_fits(const struct plan *plan, const struct plan_profile *profile,
                     const struct plan_axes *axes, uint32_t d, int64_t dim, int64_t first)
{
    if (plan->batched && !axes->shared && d == axes->batch)
        return dim == profile->batch;
    return axes->free[d] ? dim == profile->values[axes->free[d] - 1] : dim == first;
}

/* Compares graph inputs or outputs with the bindings, and with those of the point's first
 * profile. */
static enum status check_io(const struct plan *plan, const struct plan_profile *profile,
                            const struct plan_profile *first, bool input, struct error *err)
{
    const struct ir_graph *graph = profile->graph;
    const struct plan_binding *bindings = input ? plan->inputs : plan->outputs;
    const struct plan_axes *axes = input ? plan->input_axes : plan->output_axes;
    const uint32_t *ids = input ? graph->inputs : graph->outputs;
    const uint32_t *firsts = input ? first->graph->inputs : first->graph->outputs;
    uint32_t n = input ? graph->n_inputs : graph->n_outputs;
    if (n != (input ? plan->n_inputs : plan->n_outputs))
        return bad(err, "a profile with another number of inputs or outputs", graph->name);
    for (uint32_t i = 0; i < n; i++) {
        const struct shape *want = &bindings[i].shape;
        if (ids[i] >= graph->n_tensors)
            return bad(err, "an input or output is no tensor", bindings[i].name);
        const struct ir_tensor *t = ir_tensor(graph, ids[i]);
        const struct shape *as = &ir_tensor(first->graph, firsts[i])->shape;
        bool fits = t->dtype == bindings[i].dtype && t->shape.rank == want->rank;
        for (uint32_t d = 0; d < want->rank && fits; d++)
            fits = want->dim[d] == -1
                       ? dim_fits(plan, profile, &axes[i], d, t->shape.dim[d], as->dim[d])
                       : t->shape.dim[d] == want->dim[d];
        if (!fits || t->layout != IR_LAYOUT_PLAIN || t->real != DTYPE_NONE ||
            t->scale != IR_NO_SCALE)
            return bad(err, "an input or output unlike its binding", bindings[i].name);
    }
    return STATUS_OK;
}

/* --- segments --- */

static enum status check_segments(const struct ir_graph *graph, struct error *err)
{
    uint32_t next = 0;
    if (graph->n_segments > PLAN_MAX_SEGMENTS)
        return bad(err, "too many segments", graph->name);
    for (uint32_t i = 0; i < graph->n_segments; i++) {
        struct ir_segment *s = &graph->segments[i];
        if (s->first != next || s->count == 0 || s->count > graph->n_nodes - next)
            return bad(err, "segments that do not follow each other", s->backend);
        if (s->arena_bytes > ARENA_BYTES_MAX || s->arena_bytes != graph->segments[0].arena_bytes)
            return bad(err, "a segment with too large an arena, or one unlike the first's",
                       s->backend);
        for (uint32_t n = next; n < next + s->count; n++)
            ir_node(graph, n)->segment = i;
        next += s->count;
    }
    return next == graph->n_nodes ? STATUS_OK : bad(err, "nodes without a segment", graph->name);
}

/* --- tensors --- */

static bool in_arena(const struct ir_graph *graph, uint64_t offset, uint64_t bytes)
{
    uint64_t size = graph->segments[0].arena_bytes;
    return offset % BACKEND_ALIGN == 0 && bytes <= size && offset <= size - bytes;
}

/* --- aliases (plan.h has their kinds) --- */

struct aliases {
    const struct ir_graph *graph;
    uint32_t *slot;         /* by tensor: the node in whose output it has its place, or IR_NONE */
    unsigned char *written; /* by tensor: some tensors have their places in it */
};

/* Notes which tensors have their places in outputs of nodes that join. */
static enum status find_slots(struct aliases *a, struct error *err)
{
    const struct ir_graph *graph = a->graph;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        a->slot[i] = IR_NONE;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (!ir_op_has(node->op, IR_TRAIT_JOINS) || !plan_node_is_alias(graph, node))
            continue;
        uint32_t y = node->outputs[0];
        uint64_t at;
        uint32_t root = plan_tensor_at(graph, y, &at);
        if (!plan_node_joins_at(graph, node, root, at))
            return bad(err, "tensors that do not lie where they are joined", node->name);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            uint32_t carrier = plan_tensor_carrier(graph, node->inputs[k]);
            if (ir_tensor(graph, carrier)->alias_of != y)
                continue;
            a->slot[carrier] = i;
            a->written[y] = 1;
        }
    }
    return STATUS_OK;
}

/* What lies in a tensor is written there by nodes that run if `slot` says so, else it is read. Two
 * slots of one node never overlap, since they have different inputs of the node. So a row that is
 * no slot itself must have none. */
static bool alias_ok(const struct aliases *a, uint32_t id)
{
    const struct ir_graph *graph = a->graph;
    const struct ir_tensor *t = ir_tensor(graph, id);
    if (t->alias_of >= graph->n_tensors || t->producer == IR_NONE)
        return false;
    const struct ir_tensor *of = ir_tensor(graph, t->alias_of);
    const struct ir_node *node = ir_node(graph, t->producer);
    bool joins = ir_op_has(node->op, IR_TRAIT_JOINS), alias = plan_node_is_alias(graph, node);
    uint64_t offset = 0;
    if (t->place != of->place || t->place == IR_PLACE_CONSTANT ||
        t->offset - of->offset != (t->place == IR_PLACE_ARENA ? t->part : 0))
        return false;
    if (a->slot[id] != IR_NONE)
        return a->slot[id] == of->producer && (joins || !alias);
    if (alias && joins)
        return !a->written[id];
    if (alias && ir_op_has(node->op, IR_TRAIT_CUTS))
        return ir_node_part(graph, node, 0, &offset) && offset == t->part &&
               offset % BACKEND_ALIGN == 0;
    return alias && ir_node_renames(graph, node, of->format, t->format) && t->bytes == of->bytes &&
           t->part == 0;
}

static void aliases_deinit(struct aliases *a)
{
    free(a->slot);
    free(a->written);
}

static enum status check_aliases(const struct ir_graph *graph, struct error *err)
{
    CLEANUP(aliases_deinit) struct aliases a = {.graph = graph};
    a.slot = calloc((size_t)graph->n_tensors + 1, sizeof(*a.slot));
    a.written = calloc((size_t)graph->n_tensors + 1, sizeof(*a.written));
    if (!a.slot || !a.written)
        return error_no_memory(err, "a plan");
    TRY(find_slots(&a, err));
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(graph, i);
        if (t->alias_of == IR_NONE ? t->part != 0 : !alias_ok(&a, i))
            return bad(err, "a bad alias", t->name);
    }
    return STATUS_OK;
}

/* The root of a graph's output is the whole output. Its bytes come from one side, because the
 * runtime takes them from where they were written. */
static enum status check_ends(const struct ir_graph *graph, struct error *err)
{
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        uint64_t at;
        const struct ir_tensor *root =
            ir_tensor(graph, plan_tensor_at(graph, graph->outputs[i], &at));
        const struct ir_node *made =
            root->producer == IR_NONE ? NULL : ir_node(graph, root->producer);
        if (at || root->bytes != t->bytes)
            return bad(err, "an output that is a part of another tensor", t->name);
        for (uint32_t s = 1; made && plan_node_is_alias(graph, made) && s < graph->n_segments; s++)
            if (strcmp(graph->segments[s].backend, graph->segments[0].backend) != 0)
                return bad(err, "an output that is joined in place by two backends", t->name);
    }
    return STATUS_OK;
}

static bool place_ok(const struct plan *plan, const struct ir_graph *graph, uint32_t id)
{
    const struct ir_tensor *t = ir_tensor(graph, id);
    bool produced = t->producer != IR_NONE;
    switch (t->place) {
    case IR_PLACE_CONSTANT:
        return !produced && t->data &&
               (!plan->weights ||
                (t->offset % BACKEND_ALIGN == 0 && t->bytes <= plan->weight_bytes &&
                 t->offset <= plan->weight_bytes - t->bytes));
    case IR_PLACE_INPUT:
        return !produced && t->offset < graph->n_inputs && graph->inputs[t->offset] == id;
    case IR_PLACE_OUTPUT:
        return produced && t->offset < graph->n_outputs &&
               plan_tensor_root(graph, graph->outputs[t->offset]) == id;
    case IR_PLACE_ARENA:
        return produced && in_arena(graph, t->offset, t->bytes);
    case IR_PLACE_NONE:
        break;
    }
    return false;
}

/* How many tensors the chain of aliases from here on has, if they are fewer than the limit: those
 * behind it are known. ir_verify has seen that it ends. */
static uint32_t chain_length(const struct ir_graph *graph, uint32_t tensor, const uint16_t *known)
{
    uint32_t n = 0;
    while (ir_tensor(graph, tensor)->alias_of != IR_NONE && !known[tensor] &&
           n <= PLAN_MAX_ALIASES) {
        tensor = ir_tensor(graph, tensor)->alias_of;
        n++;
    }
    return n + known[tensor];
}

/* Chains of aliases are followed again and again, so their length is limited; so are rows of nodes
 * that do not run. The builder leaves no chain beyond that. */
enum status plan_check_chains(const struct ir_graph *graph, struct error *err)
{
    size_t n = (size_t)graph->n_tensors + 1;
    CLEANUP(cleanup_free) uint16_t *length = calloc(2 * n, sizeof(*length));
    if (!length)
        return error_no_memory(err, "a plan");
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        uint32_t found = chain_length(graph, i, length);
        if (found > PLAN_MAX_ALIASES)
            return bad(err, "too long a chain of aliases", ir_tensor(graph, i)->name);
        for (uint32_t at = i; found && !length[at]; at = ir_tensor(graph, at)->alias_of)
            length[at] = (uint16_t)found--;
    }
    uint16_t *depth = length + n;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        for (uint32_t k = 0; k < node->n_inputs && plan_node_is_alias(graph, node); k++)
            if (node->inputs[k] != IR_NONE)
                depth[node->outputs[0]] =
                    MAX(depth[node->outputs[0]], (uint16_t)(depth[node->inputs[k]] + 1));
        if (node->n_outputs && depth[node->outputs[0]] > PLAN_MAX_ALIASES)
            return bad(err, "too long a chain of aliases", node->name);
    }
    return STATUS_OK;
}

static enum status check_tensors(const struct plan *plan, const struct ir_graph *graph,
                                 struct error *err)
{
    /* All aliases first: place_ok follows them. */
    TRY(plan_check_chains(graph, err));
    TRY(check_aliases(graph, err));
    TRY(check_ends(graph, err));
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(graph, i);
        uint64_t bytes = t->bytes;
        if (t->layout == IR_LAYOUT_OPAQUE
                ? t->place != IR_PLACE_CONSTANT
                : !ir_layout_bytes(&t->shape, t->dtype, t->layout, &bytes))
            return bad(err, "a tensor that cannot have its layout", t->name);
        if (bytes != t->bytes)
            return bad(err, "a tensor of the wrong size", t->name);
        if (t->alias_of == IR_NONE && !place_ok(plan, graph, i))
            return bad(err, "a tensor in a bad place", t->name);
    }
    return STATUS_OK;
}

/* --- nodes --- */

/* Whether the tensor is stored as the port wants it. `like`: the node has more inputs than ports,
 * and the last port stands for this input, whose scale is its own. */
static bool port_ok(const struct ir_graph *graph, uint32_t tensor, const struct tactic_port *port,
                    bool like)
{
    if (tensor == IR_NONE)
        return true;
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    struct ir_format want = port->format;
    if (like && want.scale != IR_NO_SCALE && t->scale != IR_NO_SCALE)
        want.scale = t->scale;
    return ir_format_equal(t->format, want) &&
           (t->layout == IR_LAYOUT_OPAQUE ? t->bytes == port->packed_bytes : !port->packed_bytes);
}

static bool ports_ok(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (!port_ok(graph, node->inputs[i], &tactic->in[MIN(i, tactic->n_in - 1)],
                     i >= tactic->n_in))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!port_ok(graph, node->outputs[i], &tactic->out[i], false))
            return false;
    return true;
}

static enum status check_node(const struct ir_graph *graph, const struct ir_node *node,
                              struct error *err)
{
    const struct tactic *tactic = node->tactic;
    const struct ir_segment *segment = &graph->segments[node->segment];
    if (plan_node_is_alias(graph, node))
        return STATUS_OK;
    if (!tactic)
        return bad(err, "a node without a tactic", node->name);
    if (!tactic->backend || strcmp(tactic->backend, segment->backend) != 0)
        return bad(err, "a tactic of another backend than its segment's", node->name);
    if (tactic->blob_size > TACTIC_BLOB_MAX || (tactic->code_size && !tactic->code) ||
        tactic->n_in != MIN(node->n_inputs, TACTIC_PORTS_MAX) || tactic->n_out != node->n_outputs)
        return bad(err, "a tactic that does not fit its node", node->name);
    if (!ports_ok(graph, node, tactic))
        return bad(err, "a tensor in another format than its node's tactic wants", node->name);
    if (!in_arena(graph, node->workspace_offset, node->workspace_bytes))
        return bad(err, "a workspace outside the arena", node->name);
    return STATUS_OK;
}

/* --- liveness --- */

enum { UNWRITTEN, LIVE, DEAD };

struct interval {
    uint64_t begin, end;
};

struct liveness {
    const struct ir_graph *graph;
    uint32_t *last_use;     /* by root: the node that reads it last; n_nodes: an output */
    unsigned char *state;   /* by root (plan_tensor_root) */
    unsigned char *written; /* by tensor: all its bytes are there */
    struct interval *alive; /* sorted, disjoint */
    uint32_t n_alive;
};

/* Index of the first interval that ends behind `at`. */
static uint32_t find_interval(const struct liveness *l, uint64_t at)
{
    uint32_t lo = 0, hi = l->n_alive;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (l->alive[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static bool occupy(struct liveness *l, struct interval in)
{
    if (in.begin == in.end)
        return true;
    uint32_t i = find_interval(l, in.begin);
    if (l->n_alive == PLAN_MAX_LIVE || (i < l->n_alive && l->alive[i].begin < in.end))
        return false;
    memmove(&l->alive[i + 1], &l->alive[i], (l->n_alive - i) * sizeof(in));
    l->alive[i] = in;
    l->n_alive++;
    return true;
}

static void vacate(struct liveness *l, struct interval in)
{
    if (in.begin == in.end)
        return;
    uint32_t i = find_interval(l, in.begin);
    memmove(&l->alive[i], &l->alive[i + 1], (l->n_alive - i - 1) * sizeof(in));
    l->n_alive--;
}

/* All arenas of a graph are laid out as one. */
static struct interval tensor_interval(const struct liveness *l, uint32_t root)
{
    const struct ir_tensor *t = ir_tensor(l->graph, root);
    if (t->place != IR_PLACE_ARENA)
        return (struct interval){0};
    return (struct interval){t->offset, t->offset + t->bytes};
}

static void end_life(struct liveness *l, uint32_t root)
{
    if (l->state[root] == LIVE) {
        vacate(l, tensor_interval(l, root));
        l->state[root] = DEAD;
    }
}

/* A node writes the tensor. What lies in another one begins that one's life, or joins it. */
static enum status begin_life(struct liveness *l, uint32_t tensor, struct error *err)
{
    uint32_t root = plan_tensor_root(l->graph, tensor);
    bool joins = root != tensor && l->state[root] == LIVE;
    if (!joins && (l->state[root] != UNWRITTEN || !occupy(l, tensor_interval(l, root))))
        return bad(err, "a tensor overwrites another that is still needed",
                   ir_tensor(l->graph, tensor)->name);
    l->state[root] = LIVE;
    l->written[tensor] = 1;
    return STATUS_OK;
}

static enum status check_inputs(const struct liveness *l, const struct ir_node *node,
                                struct error *err)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (node->inputs[k] == IR_NONE)
            continue;
        uint32_t root = plan_tensor_root(l->graph, node->inputs[k]);
        if (l->state[root] != LIVE || !l->written[node->inputs[k]])
            return bad(err, "a tensor is read before it is written",
                       ir_tensor(l->graph, node->inputs[k])->name);
    }
    return STATUS_OK;
}

static enum status step(struct liveness *l, uint32_t i, struct error *err)
{
    const struct ir_node *node = ir_node(l->graph, i);
    TRY(check_inputs(l, node, err));
    bool alias = plan_node_is_alias(l->graph, node);
    uint64_t scratch_bytes = alias ? 0 : node->workspace_bytes;
    struct interval scratch = {node->workspace_offset, node->workspace_offset + scratch_bytes};
    for (uint32_t k = 0; k < node->n_outputs && !alias; k++)
        TRY(begin_life(l, node->outputs[k], err));
    for (uint32_t k = 0; k < node->n_outputs && alias; k++)
        l->written[node->outputs[k]] = 1;
    if (!occupy(l, scratch))
        return bad(err, "a workspace overwrites a tensor", node->name);
    vacate(l, scratch);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (node->inputs[k] == IR_NONE)
            continue;
        uint32_t root = plan_tensor_root(l->graph, node->inputs[k]);
        if (l->last_use[root] == i)
            end_life(l, root);
    }
    for (uint32_t k = 0; k < node->n_outputs && !alias; k++) {
        uint32_t root = plan_tensor_root(l->graph, node->outputs[k]);
        if (l->last_use[root] == IR_NONE)
            end_life(l, root);
    }
    return STATUS_OK;
}

static void find_last_uses(struct liveness *l)
{
    const struct ir_graph *graph = l->graph;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        l->last_use[i] = IR_NONE;
        l->written[i] = ir_tensor(graph, i)->producer == IR_NONE;
        l->state[i] = l->written[i] ? LIVE : UNWRITTEN;
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] != IR_NONE)
                l->last_use[plan_tensor_root(graph, ir_node(graph, i)->inputs[k])] = i;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        l->last_use[plan_tensor_root(graph, graph->outputs[i])] = graph->n_nodes;
}

static void liveness_deinit(struct liveness *l)
{
    free(l->last_use);
    free(l->state);
    free(l->written);
    free(l->alive);
}

static enum status check_liveness(const struct ir_graph *graph, struct error *err)
{
    CLEANUP(liveness_deinit) struct liveness l = {.graph = graph};
    l.last_use = calloc(graph->n_tensors + 1, sizeof(*l.last_use));
    l.state = calloc(graph->n_tensors + 1, sizeof(*l.state));
    l.written = calloc(graph->n_tensors + 1, sizeof(*l.written));
    l.alive = calloc(PLAN_MAX_LIVE, sizeof(*l.alive));
    if (!l.last_use || !l.state || !l.written || !l.alive)
        return error_no_memory(err, "a plan");
    find_last_uses(&l);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        TRY(step(&l, i, err));
    return STATUS_OK;
}

/* --- the whole --- */

static enum status check_profile(const struct plan *plan, const struct plan_profile *profile,
                                 const struct plan_profile *first, struct error *err)
{
    const struct ir_graph *graph = profile->graph;
    TRY(check_io(plan, profile, first, true, err));
    TRY(check_io(plan, profile, first, false, err));
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        if (t->place != IR_PLACE_INPUT || t->offset != i)
            return bad(err, "an input in a bad place", t->name);
    }
    TRY(check_segments(graph, err)); /* sets each node's segment, which a file does not hold */
    TRY(ir_verify(graph, err));
    TRY(check_tensors(plan, graph, err));
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        TRY(check_node(graph, ir_node(graph, i), err));
    return check_liveness(graph, err);
}

static bool is_error(float value)
{
    return value >= 0; /* infinity is one, NaN is none */
}

static enum status check_exactness(const struct plan *plan, struct error *err)
{
    const struct plan_exactness *e = &plan->exactness;
    if (!e->measured)
        return STATUS_OK;
    if (e->n_outputs != plan->n_outputs || e->n_held > PLAN_MAX_HELD || e->samples == 0 ||
        !(e->bound > 0))
        return bad(err, "errors that are not those of its outputs", plan->name);
    for (uint32_t i = 0; i < e->n_outputs; i++)
        if (!is_error(e->outputs[i].error) ||
            !(e->outputs[i].agreement == -1 || is_error(e->outputs[i].agreement)) ||
            e->outputs[i].agreement > 1)
            return bad(err, "an output's error that is no error", plan->outputs[i].name);
    for (uint32_t i = 0; i < e->n_held; i++)
        if (!is_error(e->held[i].error) || e->held[i].type == DTYPE_NONE)
            return bad(err, "a layer held back by no error, or from no type", e->held[i].layer);
    return STATUS_OK;
}

/* --- tails --- */

/* A tail's dimensions are as a request tells; no arithmetic is done on them before it has. */
static enum status check_late(const struct plan *plan, struct error *err)
{
    for (uint32_t i = 0; i < plan->n_late; i++) {
        const struct plan_binding *b = &plan->late[i];
        bool ok = plan_name_ok(b->name) && b->dtype != DTYPE_NONE;
        for (uint32_t k = 0; k < i; k++)
            ok = ok && strcmp(plan->late[k].name, b->name) != 0;
        for (uint32_t d = 0; d < b->shape.rank; d++)
            ok = ok && b->shape.dim[d] >= -1 && b->shape.dim[d] <= IR_MAX_DIM;
        if (!ok)
            return bad(err, "an output of a tail is not what it should be", b->name);
    }
    return STATUS_OK;
}

static bool lies_in_tail(const struct plan *plan, uint64_t offset, uint64_t size)
{
    return offset % BACKEND_ALIGN == 0 && offset <= plan->tail_bytes &&
           size <= plan->tail_bytes - offset;
}

/* *sum: of the heads, which are no more than the section can have apart: each is decoded. */
static bool bodies_ok(const struct plan *plan, const struct plan_profile *p, uint64_t *sum)
{
    bool ok = p->n_bodies <= (p->tail_size ? PLAN_MAX_BODIES : 0);
    for (uint32_t i = 0; i < p->n_bodies && ok; i++) {
        const struct plan_body *b = &p->bodies[i];
        ok = lies_in_tail(plan, b->offset, b->size) &&
             lies_in_tail(plan, b->weights_offset, b->weights_size) &&
             b->size <= plan->tail_bytes - *sum;
        *sum += ok ? b->size : 0;
    }
    return ok;
}

static enum status check_tails(const struct plan *plan, struct error *err)
{
    if (plan->n_late && plan->batched)
        return bad(err, "a plan with tails, and batched", plan->name);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        const struct plan_profile *p = &plan->profiles[i];
        if ((p->tail_size != 0) != (plan->n_late != 0) || p->tail_offset > plan->tail_bytes ||
            p->tail_size > plan->tail_bytes - p->tail_offset)
            return bad(err, "a tail outside of its section", plan->name);
        if (!bodies_ok(plan, p, &sum))
            return bad(err, "a loop's body outside of its section", plan->name);
    }
    return check_late(plan, err);
}

/* --- ragged plans --- */

/* Whether the binding is rows of a ragged plan's instances in this role. */
static bool role_ok(const struct plan_binding *b, const struct plan_axes *axes, bool input)
{
    bool made = axes->role >= PLAN_ROLE_SPANS;
    uint32_t rank = axes->role == PLAN_ROLE_SPANS ? 2 : 1;
    if (axes->batch || axes->shared || (input ? axes->role == PLAN_ROLE_SEQUENCES : made) ||
        b->shape.rank >= SHAPE_MAX_RANK) /* a client's tensors have one dimension more */
        return false;
    return !made ||
           (b->dtype == DTYPE_I32 && b->shape.rank == rank && (rank == 1 || b->shape.dim[1] == 2));
}

/* Whether the mask goes with `tokens` other inputs of a client's. */
static bool mask_ok(const struct plan *plan, uint32_t tokens)
{
    const struct plan_ragged *r = &plan->ragged;
    if (!r->mask)
        return r->mask_type == DTYPE_NONE && !r->mask_at;
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        if (!strcmp(plan->inputs[i].name, r->mask))
            return false;
    return plan_name_ok(r->mask) && r->mask_at <= tokens && tokens < IR_MAX_IO &&
           dtype_size(r->mask_type) && r->mask_type != DTYPE_F8;
}

static enum status check_ragged(const struct plan *plan, struct error *err)
{
    uint32_t made[PLAN_ROLE_COUNT_] = {0};
    bool ragged = plan->ragged.max_length != 0, ok = true;
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        const struct plan_axes *axes = &plan->input_axes[i];
        ok = ok && (ragged ? role_ok(&plan->inputs[i], axes, true) : axes->role == 0);
        made[axes->role]++;
    }
    for (uint32_t i = 0; i < plan->n_outputs; i++)
        ok = ok && (ragged ? role_ok(&plan->outputs[i], &plan->output_axes[i], false)
                           : plan->output_axes[i].role == 0);
    for (uint32_t i = PLAN_ROLE_SPANS; i < PLAN_ROLE_COUNT_; i++)
        ok = ok && made[i] <= 1;
    if (ragged)
        ok = ok && plan->batched && !plan->n_free && !plan->n_late && made[PLAN_ROLE_TOKENS] &&
             plan->ragged.max_length <= PLAN_MAX_BATCH && mask_ok(plan, made[PLAN_ROLE_TOKENS]);
    return ok ? STATUS_OK : bad(err, "sequences that are not what they should be", plan->name);
}

/* --- points --- */

static enum status check_free(const struct plan *plan, struct error *err)
{
    for (uint32_t i = 0; i < plan->n_free; i++) {
        const struct plan_free *f = &plan->free[i];
        if (f->low < 1 || f->high < f->low || f->high > PLAN_MAX_SIZE)
            return bad(err, "a free dimension of no range", f->name);
    }
    return STATUS_OK;
}

static bool values_ok(const struct plan *plan, const struct plan_profile *p)
{
    for (uint32_t i = 0; i < plan->n_free; i++)
        if (p->values[i] < plan->free[i].low || p->values[i] > plan->free[i].high)
            return false;
    return true;
}

/* Whether the profile is the first of a point, and no earlier one is of that point. */
static bool is_fresh(const struct plan *plan, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (plan_same_point(plan, &plan->profiles[i], &plan->profiles[index]))
            return false;
    return true;
}

/* Profiles are sorted by points and batches, and all points end with the same batch. */
static enum status check_order(const struct plan *plan, struct error *err)
{
    uint32_t largest = plan->profiles[plan->n_profiles - 1].batch;
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        const struct plan_profile *p = &plan->profiles[i];
        bool goes_on = i && plan_same_point(plan, p, p - 1);
        if (p->batch == 0 || p->batch > PLAN_MAX_BATCH || (!plan->batched && p->batch != 1) ||
            (goes_on && p->batch <= p[-1].batch))
            return bad(err, "profiles that do not rise in batch", plan->name);
        if (!goes_on &&
            (!is_fresh(plan, i) || !values_ok(plan, p) || (i && p[-1].batch != largest)))
            return bad(err, "profiles of points that are not in order", plan->name);
    }
    return STATUS_OK;
}

enum status plan_check(const struct plan *plan, struct error *err)
{
    const struct plan_profile *first = plan->profiles;
    if (plan->n_profiles == 0 || plan->n_outputs == 0 || plan->n_free > PLAN_MAX_FREE)
        return bad(err, "a plan without profiles or outputs", plan->name);
    TRY(check_free(plan, err));
    TRY(check_order(plan, err));
    TRY(check_bindings(plan, plan->inputs, plan->input_axes, plan->n_inputs, err));
    TRY(check_bindings(plan, plan->outputs, plan->output_axes, plan->n_outputs, err));
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        const struct plan_profile *p = &plan->profiles[i];
        if (!plan_same_point(plan, p, first))
            first = p;
        TRY(check_profile(plan, p, first, err));
    }
    TRY(check_tails(plan, err));
    TRY(check_ragged(plan, err));
    return check_exactness(plan, err);
}
