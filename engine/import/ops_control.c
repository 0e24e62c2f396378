/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If, Loop and Scan. A plan has no branches and no loops: a branch is taken when the plan is built,
 * iterations are imported one after the other, and behind them the values that they collect are put
 * together.
 *
 * If only a request knows the condition of an If, both branches are computed and one result is
 * chosen. For that the branches must give the same types and shapes, and neither may be able to
 * fail; else the If is late (late.h). So is a Loop whose end only a request knows, and one of too
 * many iterations to be unrolled.
 */
#include "engine/import/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/assume.h"
#include "engine/import/body.h"

enum { ITERATIONS_MAX = 1024, ITERATIONS_COMPUTED_MAX = 1 << 16 };

static uint32_t iterations_max(const struct mapper *m)
{
    return m->computes ? ITERATIONS_COMPUTED_MAX : ITERATIONS_MAX;
}

/* --- If --- */

/* Reads a condition. False: it is not one number, or only a request knows it. */
static bool known_flag(struct mapper *m, uint32_t tensor, bool *value)
{
    size_t n;
    if (map_failed(m) || tensor == IR_NONE || !map_make_known(m, tensor))
        return false;
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (t->dtype != DTYPE_BOOL || !shape_elements(&t->shape, &n) || n != 1) {
        map_invalid(m, "condition '%s' is not one BOOL", t->name);
        return false;
    }
    *value = map_element_int(t, 0) != 0;
    return true;
}

static const struct onnx_graph *branch_of(struct mapper *m, const char *name)
{
    const struct onnx_graph *graph = map_graph(m, name);
    if (graph && (graph->n_inputs || graph->n_outputs < m->node->n_outputs))
        map_invalid(m, "%s has %u inputs and %u outputs, expected 0 and %u", name, graph->n_inputs,
                    graph->n_outputs, m->node->n_outputs);
    return map_failed(m) ? NULL : graph;
}

static uint32_t *room_for(struct mapper *m, uint32_t n)
{
    uint32_t *room = map_failed(m) ? NULL : arena_array(m->graph->arena, MAX(n, 1u), sizeof(*room));
    if (!room)
        map_exhausted(m);
    return room;
}

static uint32_t *import_branch(struct mapper *m, const struct onnx_graph *graph, const char *tag)
{
    uint32_t *outputs = graph ? room_for(m, graph->n_outputs) : NULL;
    if (outputs)
        map_body(m, graph, tag, NULL, NULL, outputs);
    return map_failed(m) ? NULL : outputs;
}

/* Finds a node that fails for some values of its operands: such a node must not run where the model
 * would not run it. Returns its index, or IR_NONE. */
static uint32_t find_failing(const struct mapper *m, uint32_t first)
{
    for (uint32_t i = first; i < m->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(m->graph, i);
        const struct ir_operand *operands = ir_op_row(node->op)->operands;
        for (uint32_t k = 0; k < node->n_inputs && operands[k].name; k++)
            if (operands[k].flags & IR_OPERAND_FAILS && node->inputs[k] != IR_NONE &&
                !ir_tensor_is_constant(ir_tensor(m->graph, node->inputs[k])))
                return i;
    }
    return IR_NONE;
}

static bool are_alike(const struct mapper *m, uint32_t a, uint32_t b)
{
    const struct ir_tensor *x = ir_tensor(m->graph, a), *y = ir_tensor(m->graph, b);
    return x->dtype == y->dtype && shape_equal(&x->shape, &y->shape);
}

static void refuse_unlike(struct mapper *m, uint32_t a, uint32_t b)
{
    char x[SHAPE_TEXT_MAX], y[SHAPE_TEXT_MAX];
    map_unknown(m,
                "its condition is computed from an input, and its branches give %s %s and %s %s: "
                "only equal types and shapes can be chosen from at run time",
                dtype_name(map_dtype(m, a)), shape_format(map_shape(m, a), x),
                dtype_name(map_dtype(m, b)), shape_format(map_shape(m, b), y));
}

/* Makes outputs that choose between two imported branches when a request comes with the
 * condition. */
static void choose(struct mapper *m, uint32_t cond, uint32_t first, const uint32_t *then,
                   const uint32_t *other)
{
    uint32_t n = m->node->n_outputs, layers = m->graph->n_nodes - first;
    uint32_t failing = find_failing(m, first);
    if (failing != IR_NONE)
        map_unknown(m,
                    "its condition is computed from an input, so both branches would run, but "
                    "'%s' may fail for values that it should not be given",
                    ir_node(m->graph, failing)->name);
    for (uint32_t i = 0; i < n && !map_failed(m); i++)
        if (!are_alike(m, then[i], other[i]))
            refuse_unlike(m, then[i], other[i]);
    cond = emit_reshape(m, cond, &(struct shape){.rank = 0});
    for (uint32_t i = 0; i < n && !map_failed(m); i++)
        map_out(m, i, then[i] == other[i] ? then[i] : emit_select(m, cond, then[i], other[i]));
    if (!map_failed(m))
        log_write(m->options->log, LOG_INFO,
                  "If '%s': its condition is known at run time only, so both branches run: %u "
                  "layers",
                  m->label, layers);
}

static void take(struct mapper *m, const uint32_t *outputs)
{
    for (uint32_t i = 0; i < m->node->n_outputs && !map_failed(m); i++)
        map_out(m, i, outputs[i]);
}

static bool all_alike(const struct mapper *m, const uint32_t *a, const uint32_t *b)
{
    for (uint32_t i = 0; i < m->node->n_outputs; i++)
        if (!are_alike(m, a[i], b[i]))
            return false;
    return true;
}

void map_if(struct mapper *m)
{
    uint32_t cond = map_in(m, 0), first = m->graph->n_nodes;
    const struct onnx_graph *then = branch_of(m, "then_branch"),
                            *other = branch_of(m, "else_branch");
    bool value;
    if (map_failed(m))
        return;
    if (map_product(m, map_shape(m, cond), 0, map_shape(m, cond)->rank) != 1)
        map_invalid(m, "condition '%s' is not one BOOL", ir_tensor(m->graph, cond)->name);
    if (ir_tensor_is_constant(ir_tensor(m->graph, cond)) && known_flag(m, cond, &value)) {
        const uint32_t *outputs = import_branch(m, value ? then : other, value ? "then" : "else");
        if (outputs)
            take(m, outputs);
        return;
    }
    uint32_t *a = import_branch(m, then, "then");
    const uint32_t *b = import_branch(m, other, "else");
    if (!a || !b)
        return;
    /* A value that the caller gave for an input is used only if there is no other way. */
    if (!(all_alike(m, a, b) && find_failing(m, first) == IR_NONE) && known_flag(m, cond, &value))
        take(m, value ? a : b);
    else if (assume_else(m, cond, a, b) || !map_failed(m))
        choose(m, cond, first, a, b);
}

/* --- iterations --- */

static void unroll_begin(struct mapper *m, struct unroll *u)
{
    u->inputs = room_for(m, u->body->n_inputs);
    u->outputs = room_for(m, u->body->n_outputs);
    u->kept = map_failed(m) ? NULL : calloc((size_t)u->n_scan * u->max + 1, sizeof(*u->kept));
    if (!u->kept)
        map_exhausted(m);
    u->settled =
        map_failed(m) ? NULL : settled_new(m, u->body, u->first_in, u->first_out, u->n_state);
}

/* Imports one iteration. */
static void unroll_step(struct mapper *m, struct unroll *u)
{
    char tag[16];
    snprintf(tag, sizeof(tag), "%u", u->n);
    map_body(m, u->body, tag, u->settled, u->inputs, u->outputs);
    for (uint32_t i = 0; i < u->n_state + u->n_scan; i++)
        map_hold(m, u->outputs[u->first_out + i]);
    for (uint32_t i = 0; i < u->n_state; i++) {
        if (u->n > 0)
            map_let_go(m, u->inputs[u->first_in + i]);
        u->inputs[u->first_in + i] = u->outputs[u->first_out + i];
    }
    for (uint32_t i = 0; i < u->n_scan; i++)
        u->kept[(size_t)i * u->max + u->n] = u->outputs[u->first_out + u->n_state + i];
    u->n++;
}

/* The iterations are over. Their values stay until the next sweep, which comes when the loop's
 * outputs have names. */
static void unroll_let_go(struct mapper *m, struct unroll *u)
{
    for (uint32_t i = 0; u->n > 0 && i < u->n_state; i++)
        map_let_go(m, u->inputs[u->first_in + i]);
    for (uint32_t i = 0; i < u->n_scan; i++)
        for (uint32_t k = 0; k < u->n; k++)
            map_let_go(m, u->kept[(size_t)i * u->max + k]);
    settled_free(m, STEAL(u->settled));
}

/* Stacks tensors of one shape along a new axis, in as many steps as a node's limit of inputs
 * demands. */
static uint32_t emit_stack(struct mapper *m, uint32_t n, uint32_t *parts, uint32_t axis)
{
    for (uint32_t i = 0; i < n && !map_failed(m); i++) {
        struct shape shape = *map_shape(m, parts[i]);
        if (shape.rank == SHAPE_MAX_RANK) {
            map_refuse(m, "outputs of rank %u", shape.rank + 1);
            return IR_NONE;
        }
        memmove(&shape.dim[axis + 1], &shape.dim[axis], (shape.rank - axis) * sizeof(shape.dim[0]));
        shape.dim[axis] = 1;
        shape.rank++;
        parts[i] = emit_reshape(m, parts[i], &shape);
    }
    while (n > 1 && !map_failed(m)) {
        uint32_t made = 0;
        for (uint32_t i = 0; i < n; i += IR_MAX_INPUTS) {
            uint32_t part = MIN(n - i, (uint32_t)IR_MAX_INPUTS);
            parts[made++] = part == 1 ? parts[i] : emit_concat(m, part, &parts[i], axis);
        }
        n = made;
    }
    return map_failed(m) ? IR_NONE : parts[0];
}

/* Makes the output of a loop without iterations, in the shape that the body declares. */
static uint32_t emit_nothing(struct mapper *m, const struct onnx_value_info *info, uint32_t axis)
{
    struct shape shape = {.rank = info->rank + 1};
    bool known = info->has_shape && info->rank < SHAPE_MAX_RANK && axis <= info->rank &&
                 onnx_dtype(info->type) != DTYPE_NONE;
    for (uint32_t d = 0, from = 0; known && d < shape.rank; d++) {
        if (d == axis)
            continue;
        known = onnx_axis_is_fixed(&info->dims[from]);
        shape.dim[d] = info->dims[from++].value;
    }
    if (!known) {
        map_refuse(m, "it runs no iteration, and the shape of '%s' is not declared", info->name);
        return IR_NONE;
    }
    enum dtype dtype = onnx_dtype(info->type);
    void *room = emit_room(m, &shape, dtype);
    return room ? emit_constant(m, dtype, &shape, room) : IR_NONE;
}

/* Makes an output of the node from the values that the iterations gave for kept output `i`. */
static void unroll_collect(struct mapper *m, struct unroll *u, uint32_t i, int64_t axis,
                           bool backward)
{
    uint32_t output = u->n_state + i, *kept = &u->kept[(size_t)i * u->max];
    const struct onnx_value_info *info = &u->body->outputs[u->first_out + output];
    if (map_failed(m) || !map_out_used(m, output))
        return;
    uint32_t rank = (u->n ? map_shape(m, kept[0])->rank : info->rank) + 1;
    uint32_t at = map_axis(m, axis, rank);
    if (map_failed(m))
        return;
    if (!u->n) {
        map_out(m, output, emit_nothing(m, info, at));
        return;
    }
    for (uint32_t k = 1; k < u->n; k++)
        if (!are_alike(m, kept[0], kept[k])) {
            map_refuse(m, "iterations give '%s' different types or shapes", info->name);
            return;
        }
    for (uint32_t k = 0; backward && k < u->n / 2; k++) {
        uint32_t swapped = kept[k];
        kept[k] = kept[u->n - 1 - k];
        kept[u->n - 1 - k] = swapped;
    }
    map_out(m, output, emit_stack(m, u->n, kept, at));
}

/* --- Loop --- */

/* The number of iterations if it is given; -1: the condition alone ends the loop. */
static int64_t read_trips(struct mapper *m)
{
    uint32_t trips = map_in_opt(m, 0);
    if (trips == IR_NONE)
        return -1;
    if (!map_make_known(m, trips) && !map_failed(m))
        map_unknown(m, "its number of iterations is computed from an input");
    int64_t n = map_known_int(m, trips);
    return n < 0 ? 0 : n;
}

static void read_loop(struct mapper *m, struct unroll *u)
{
    uint32_t n = m->node->n_inputs;
    u->body = map_graph(m, "body");
    u->n_state = n > 2 ? n - 2 : 0;
    u->first_in = 2;
    u->first_out = 1;
    if (map_failed(m))
        return;
    if (u->body->n_inputs != 2 + u->n_state || u->body->n_outputs < 1 + u->n_state ||
        u->body->n_outputs - 1 < m->node->n_outputs)
        map_invalid(m, "%u values and %u outputs for a body of %u inputs and %u outputs",
                    u->n_state, m->node->n_outputs, u->body->n_inputs, u->body->n_outputs);
    u->n_scan = map_failed(m) ? 0 : u->body->n_outputs - 1 - u->n_state;
}

static bool loop_goes_on(struct mapper *m, uint32_t cond)
{
    bool value = false;
    if (!known_flag(m, cond, &value))
        map_unknown(m, "whether it goes on is computed from an input");
    return value && !map_failed(m);
}

void map_loop(struct mapper *m)
{
    struct unroll u = {.n = 0};
    int64_t trips = read_trips(m);
    uint32_t cond = map_in_opt(m, 1);
    read_loop(m, &u);
    if (trips > iterations_max(m) && cond == IR_NONE) /* nothing else ends it */
        map_unknown(m, "%" PRId64 " iterations, the limit is %u", trips, iterations_max(m));
    u.max = trips < 0 || trips > iterations_max(m) ? iterations_max(m) : (uint32_t)trips;
    bool go_on = map_failed(m) || cond == IR_NONE || loop_goes_on(m, cond);
    if (map_failed(m))
        return;
    unroll_begin(m, &u);
    for (uint32_t i = 0; i < u.n_state && !map_failed(m); i++)
        u.inputs[u.first_in + i] = map_in(m, 2 + i);
    while (go_on && !map_failed(m) && (trips < 0 || u.n < trips)) {
        if (u.n == u.max) {
            map_unknown(m, "more than %u iterations", u.max);
            break;
        }
        if (!u.apart && body_run(m, &u, &go_on))
            continue;
        u.apart = u.n > 0; /* the first one may begin with other shapes than all others */
        map_sweep(m);
        u.inputs[0] = emit_scalar(m, DTYPE_I64, u.n);
        u.inputs[1] = emit_scalar(m, DTYPE_BOOL, 1);
        unroll_step(m, &u);
        go_on = !map_failed(m) && loop_goes_on(m, u.outputs[0]);
    }
    unroll_let_go(m, &u);
    map_sequence(m, u.n);
    for (uint32_t i = 0; i < u.n_state && !map_failed(m); i++)
        map_out(m, i, u.inputs[u.first_in + i]);
    for (uint32_t i = 0; i < u.n_scan; i++)
        unroll_collect(m, &u, i, 0, false);
    free(u.kept);
}

/* --- Scan --- */

struct scan {
    struct unroll u;
    uint32_t n_in; /* operands that are walked along an axis */
    struct ints in_axes, in_directions, out_axes, out_directions;
};

/* Reads a list of `n` values; all are 0 if the attribute is not given. */
static void read_list(struct mapper *m, const char *name, uint32_t n, struct ints *out)
{
    if (n > MAP_MAX_INTS) {
        map_refuse(m, "more than %d operands", MAP_MAX_INTS);
    } else if (!map_attr_ints(m, name, out)) {
        out->n = n;
        memset(out->v, 0, n * sizeof(out->v[0]));
    } else if (out->n != n) {
        map_invalid(m, "attribute '%s' has %u values, expected %u", name, out->n, n);
    }
}

static void read_scan(struct mapper *m, struct scan *s)
{
    int64_t n_in = map_attr_int(m, "num_scan_inputs", 0);
    uint32_t n = m->node->n_inputs;
    struct unroll *u = &s->u;
    u->body = map_graph(m, "body");
    if (n_in < 1 || n_in > n)
        map_invalid(m, "attribute 'num_scan_inputs' is %" PRId64 " for %u inputs", n_in, n);
    if (map_failed(m))
        return;
    s->n_in = (uint32_t)n_in;
    u->n_state = n - s->n_in;
    if (u->body->n_inputs != n || u->body->n_outputs < u->n_state ||
        u->body->n_outputs < m->node->n_outputs)
        map_invalid(m, "%u inputs and %u outputs for a body of %u inputs and %u outputs", n,
                    m->node->n_outputs, u->body->n_inputs, u->body->n_outputs);
    u->n_scan = map_failed(m) ? 0 : u->body->n_outputs - u->n_state;
    read_list(m, "scan_input_axes", s->n_in, &s->in_axes);
    read_list(m, "scan_input_directions", s->n_in, &s->in_directions);
    read_list(m, "scan_output_axes", u->n_scan, &s->out_axes);
    read_list(m, "scan_output_directions", u->n_scan, &s->out_directions);
}

/* Returns the length of the operands that are walked, which all must share. Their axes become
 * non-negative. */
static int64_t read_length(struct mapper *m, struct scan *s)
{
    int64_t length = 0;
    for (uint32_t i = 0; i < s->n_in && !map_failed(m); i++) {
        const struct shape *shape = map_shape(m, map_in(m, s->u.n_state + i));
        uint32_t axis = map_axis(m, s->in_axes.v[i], shape->rank);
        if (map_failed(m))
            return 0;
        if (i && shape->dim[axis] != length)
            map_invalid(m, "operands to walk along are %" PRId64 " and %" PRId64 " long", length,
                        shape->dim[axis]);
        length = shape->dim[axis];
        s->in_axes.v[i] = axis;
    }
    return length;
}

/* Makes iteration `at`'s element of an operand. */
static uint32_t emit_element(struct mapper *m, const struct scan *s, uint32_t i, int64_t at)
{
    uint32_t x = map_in(m, s->u.n_state + i), axis = (uint32_t)s->in_axes.v[i];
    if (map_failed(m))
        return IR_NONE;
    struct shape shape = *map_shape(m, x);
    if (s->in_directions.v[i])
        at = shape.dim[axis] - 1 - at;
    memmove(&shape.dim[axis], &shape.dim[axis + 1], (shape.rank - axis - 1) * sizeof(shape.dim[0]));
    shape.rank--;
    return emit_reshape(m, emit_slice(m, x, axis, at, at + 1), &shape);
}

static void run_scan(struct mapper *m, struct scan *s)
{
    struct unroll *u = &s->u;
    unroll_begin(m, u);
    for (uint32_t i = 0; i < u->n_state && !map_failed(m); i++)
        u->inputs[i] = map_in(m, i);
    while (u->n < u->max && !map_failed(m)) {
        map_sweep(m);
        for (uint32_t i = 0; i < s->n_in; i++)
            u->inputs[u->n_state + i] = emit_element(m, s, i, u->n);
        unroll_step(m, u);
    }
    unroll_let_go(m, u);
    map_sequence(m, u->n);
    for (uint32_t i = 0; i < u->n_state && !map_failed(m); i++)
        map_out(m, i, u->inputs[i]);
    for (uint32_t i = 0; i < u->n_scan; i++)
        unroll_collect(m, u, i, s->out_axes.v[i], s->out_directions.v[i]);
    free(u->kept);
}

void map_scan(struct mapper *m)
{
    struct scan *s = map_failed(m) ? NULL : arena_alloc(m->graph->arena, sizeof(*s));
    if (!s) {
        map_exhausted(m);
        return;
    }
    *s = (struct scan){.n_in = 0};
    read_scan(m, s);
    int64_t length = read_length(m, s);
    if (length > iterations_max(m))
        map_unknown(m, "%" PRId64 " iterations, the limit is %u", length, iterations_max(m));
    if (map_failed(m))
        return;
    s->u.max = (uint32_t)length;
    run_scan(m, s);
}
