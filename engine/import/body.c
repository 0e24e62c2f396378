/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/import/late.h"

enum { FIRST_STATE = 2, ALIGN = 64 };
enum { FOLD_BYTES = 1 << 26, FOLD_WORK = 1 << 28 }; /* constants within a body */

static const char *name_of(const struct onnx_node *loop)
{
    uint32_t i = 0;
    while (i + 1 < loop->n_outputs && !loop->outputs[i][0])
        i++;
    return i < loop->n_outputs ? loop->outputs[i] : "";
}

/* The name of an input or an output: its kind, and its number if there are several (body.h). */
struct port_name {
    char chars[16];
};

static struct port_name port_name(char kind, uint32_t at)
{
    struct port_name name = {{kind, '\0'}};
    if (strchr("soy", kind))
        snprintf(name.chars, sizeof(name.chars), "%c%u", kind, at);
    return name;
}

static const char *keep_port_name(struct mapper *m, char kind, uint32_t at)
{
    struct port_name name = port_name(kind, at);
    return map_failed(m) ? NULL : arena_strndup(m->graph->arena, name.chars, sizeof(name.chars));
}

/* --- values from outside --- */

/* Walks over the names of a body that the loop's own graph has. */
struct outside {
    struct mapper *m;     /* of that graph */
    struct value *skip;   /* names of the body's own, and those that were seen */
    uint32_t n;           /* values seen */
    uint32_t *list;       /* body_run: their tensors; or NULL */
    struct mapper *inner; /* body_graph: where the values go */
};

static void outside_deinit(struct outside *o)
{
    map_set_free(&o->skip);
}

/* Notes the names that the graph, and those within it, give to values: some exporters name them
 * like values outside. */
static bool skip_own(struct outside *o, const struct onnx_graph *graph)
{
    bool ok = true;
    for (uint32_t i = 0; i < graph->n_inputs && ok; i++)
        ok = map_set_add(o->m, &o->skip, graph->inputs[i].name);
    for (uint32_t i = 0; i < graph->n_initializers && ok; i++)
        ok = map_set_add(o->m, &o->skip, graph->initializers[i].name);
    for (uint32_t i = 0; i < graph->n_nodes && ok; i++) {
        const struct onnx_node *node = &graph->nodes[i];
        for (uint32_t k = 0; k < node->n_outputs && ok; k++)
            ok = map_set_add(o->m, &o->skip, node->outputs[k]);
        for (uint32_t k = 0; k < node->n_attrs && ok; k++)
            ok = !node->attrs[k].graph || skip_own(o, node->attrs[k].graph);
    }
    return ok;
}

/* Whether the name is one of outside that comes up for the first time, or is late. */
static bool is_outside(struct outside *o, const char *name, uint32_t *tensor, bool *late)
{
    bool found;
    *late = false;
    if (!name[0] || map_set_has(o->skip, name))
        return false;
    *tensor = map_value_find(o->m, name, &found);
    *late = !found;
    return map_set_add(o->m, &o->skip, name);
}

/* --- the graph --- */

/* The body cannot be a plan, whose inputs and outputs are fewer and of other types: nobody is
 * refused anything for that. */
static void leave(struct mapper *m, const char *why)
{
    struct error err;
    map_failed_with(m, error_set(&err, STATUS_UNIMPLEMENTED, "%s", why), &err);
}

static uint32_t add_input(struct mapper *m, char kind, uint32_t at, const struct ir_tensor *like)
{
    struct ir_graph *graph = m->graph;
    const char *name = keep_port_name(m, kind, at);
    if (like->dtype == DTYPE_F8)
        leave(m, "it reads an 8-bit float");
    uint32_t tensor = name && graph->n_inputs < IR_MAX_IO
                          ? ir_tensor_add(graph, name, like->dtype, &like->shape)
                          : IR_NONE;
    if (tensor == IR_NONE) {
        map_exhausted(m);
        return IR_NONE;
    }
    m->bound[graph->n_inputs] = IR_NONE;
    graph->inputs[graph->n_inputs++] = tensor;
    return tensor;
}

/* Brings a value in: a constant as one, others as inputs. False: it is late, and of any shape. */
static bool bring(void *user, const char *name)
{
    struct outside *o = user;
    struct mapper *inner = o->inner;
    uint32_t from;
    bool late;
    if (!is_outside(o, name, &from, &late) || late)
        return !late && !map_failed(o->m);
    const struct ir_tensor *t = ir_tensor(o->m->graph, from);
    uint32_t tensor = ir_tensor_is_constant(t) ? emit_constant(inner, t->dtype, &t->shape, t->data)
                                               : add_input(inner, 'o', o->n, t);
    o->n++;
    if (map_failed(inner) || !map_value_add(inner, name, tensor))
        return false;
    int32_t narrow = map_narrow_of(o->m, name);
    if (narrow)
        map_value_narrow(inner, name, narrow);
    return true;
}

static bool is_kept(const struct onnx_graph *body, uint32_t k)
{
    return map_hands_on(body, body->inputs[FIRST_STATE + k].name, body->outputs[1 + k].name);
}

/* The inputs and outputs of a body that is imported. */
struct once {
    struct mapper *m; /* of the loop's own graph */
    const struct onnx_node *loop;
    const struct onnx_graph *body;
    uint32_t n_state;
    uint32_t *inputs, *outputs;
};

/* The tensor that is state `k` before the first iteration; IR_NONE: it is late. */
static uint32_t state_of(const struct once *o, uint32_t k)
{
    bool found;
    uint32_t tensor = map_value_find(o->m, o->loop->inputs[FIRST_STATE + k], &found);
    return found ? tensor : IR_NONE;
}

static uint32_t bring_in(struct mapper *inner, char kind, uint32_t at, const struct ir_tensor *t,
                         bool known)
{
    return known && ir_tensor_is_constant(t) ? emit_constant(inner, t->dtype, &t->shape, t->data)
                                             : add_input(inner, kind, at, t);
}

/* Makes the body's inputs. The trial knows what is known of states before the first iteration; the
 * other import only knows those that stay as they are. False: a state is late. */
static bool add_operands(struct mapper *inner, struct once *o)
{
    static const struct ir_tensor count = {.dtype = DTYPE_I64};
    o->inputs[0] =
        inner->trial ? add_input(inner, 'i', 0, &count) : emit_scalar(inner, DTYPE_I64, 0);
    o->inputs[1] = emit_scalar(inner, DTYPE_BOOL, 1);
    for (uint32_t k = 0; k < o->n_state && !map_failed(inner); k++) {
        bool kept = is_kept(o->body, k);
        uint32_t begins = state_of(o, k);
        if (begins == IR_NONE)
            return false;
        const struct ir_tensor *t = ir_tensor(o->m->graph, begins);
        if (inner->trial && !kept) /* the outputs are still the trial's */
            t = ir_tensor(inner->trial->graph, o->outputs[1 + k]);
        o->inputs[FIRST_STATE + k] = bring_in(inner, 's', k, t, kept || !inner->trial);
    }
    return !map_failed(inner);
}

static void add_output(struct mapper *inner, char kind, uint32_t at, uint32_t tensor)
{
    struct ir_graph *graph = inner->graph;
    if (graph->n_outputs == IR_MAX_IO)
        leave(inner, "it has more outputs than a plan may have");
    if (map_dtype(inner, tensor) == DTYPE_F8)
        leave(inner, "it makes an 8-bit float");
    const char *name = keep_port_name(inner, kind, at);
    tensor = name ? map_own_output(inner, tensor, name) : IR_NONE;
    if (!map_failed(inner))
        graph->outputs[graph->n_outputs++] = tensor;
}

/* Makes the graph's outputs. False: an iteration does not give what the next one takes. */
static bool add_results(struct mapper *inner, const struct once *o)
{
    size_t n;
    if (map_dtype(inner, o->outputs[0]) != DTYPE_BOOL ||
        !shape_elements(map_shape(inner, o->outputs[0]), &n) || n != 1)
        return false;
    add_output(inner, 'c', 0, o->outputs[0]);
    if (inner->assumes)
        add_output(inner, 'k', 0, inner->assumed);
    for (uint32_t k = 0; k < o->n_state && !map_failed(inner); k++) {
        uint32_t before = o->inputs[FIRST_STATE + k], after = o->outputs[1 + k];
        if (map_dtype(inner, after) != map_dtype(inner, before) ||
            !shape_equal(map_shape(inner, after), map_shape(inner, before)))
            return false;
        if (!is_kept(o->body, k))
            add_output(inner, 's', k, after);
    }
    for (uint32_t k = 1 + o->n_state; k < o->body->n_outputs && !map_failed(inner); k++)
        add_output(inner, 'y', k - 1 - o->n_state, o->outputs[k]);
    return !map_failed(inner);
}

/* Leaves out the inputs that nothing reads. */
static void drop_unread(struct ir_graph *graph)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        bool read = false;
        for (uint32_t k = 0; k < graph->n_nodes && !read; k++) {
            const struct ir_node *node = ir_node(graph, k);
            for (uint32_t j = 0; j < node->n_inputs && node->op != IR_OP_NONE; j++)
                read = read || node->inputs[j] == graph->inputs[i];
        }
        if (read)
            graph->inputs[n++] = graph->inputs[i];
    }
    graph->n_inputs = n;
}

static bool import_once(struct mapper *inner, struct once *once)
{
    CLEANUP(outside_deinit) struct outside o = {.m = once->m, .inner = inner};
    if (!skip_own(&o, once->body) || !late_each_name(once->body, bring, &o) ||
        !add_operands(inner, once))
        return false;
    map_body(inner, once->body, "body", NULL, once->inputs, once->outputs);
    inner->node = NULL;
    return !map_failed(inner);
}

static enum status check_graph(struct ir_graph *graph, struct error *err)
{
    TRY(ir_graph_compact(graph, err));
    return ir_verify(graph, err);
}

static bool finish_graph(struct mapper *inner, const struct once *once)
{
    struct error why;
    if (!add_results(inner, once))
        return false;
    drop_unread(inner->graph);
    enum status status = check_graph(inner->graph, &why);
    if (status)
        map_failed_with(inner, status, &why);
    return !status;
}

/* The body of a loop that is well-formed; NULL: it is none. */
static const struct onnx_graph *body_of(const struct onnx_node *loop)
{
    const struct onnx_graph *body = NULL;
    if (strcmp(loop->op, "Loop") != 0 || loop->domain[0])
        return NULL;
    for (uint32_t i = 0; i < loop->n_attrs; i++)
        if (!strcmp(loop->attrs[i].name, "body"))
            body = loop->attrs[i].graph;
    bool fits = body && loop->n_inputs >= FIRST_STATE && body->n_inputs == loop->n_inputs &&
                body->n_outputs >= loop->n_inputs - 1;
    return fits ? body : NULL;
}

/* A mapper of a body alone. Its graph has no nodes yet. */
struct inner {
    struct onnx_options options;
    struct scope names;
    struct error why;
    struct mapper m;
};

static bool inner_init(struct inner *to, struct mapper *m, const struct onnx_node *loop)
{
    *to = (struct inner){.options = {.batch = 1, .evaluator = m->options->evaluator},
                         .names = {.prefix = ""},
                         .m = {.model = m->model,
                               .options = &to->options,
                               .graph = map_graph_new(m->model),
                               .scope = &to->names,
                               .used = m->used,
                               .node = loop,
                               .opset = m->opset,
                               .label = loop->name[0] ? loop->name : "loop",
                               .fold_budget = FOLD_BYTES,
                               .fold_work = FOLD_WORK,
                               .err = &to->why}};
    struct ir_graph *graph = to->m.graph;
    if (graph)
        graph->name = arena_strndup(graph->arena, name_of(loop), ONNX_MAX_NAME);
    return graph && graph->name;
}

static void inner_deinit(struct inner *inner)
{
    struct mapper *m = &inner->m;
    map_scope_free(m, &inner->names);
    m->used = NULL; /* the other mapper's */
    map_tables_free(m);
    ir_graph_free(m->graph);
}

struct ir_graph *body_graph(struct mapper *m, const struct onnx_node *loop)
{
    const struct onnx_graph *body = map_failed(m) ? NULL : body_of(loop);
    if (!body)
        return NULL;
    CLEANUP(inner_deinit) struct inner trial = {.m = {.graph = NULL}}, last = trial;
    if (!inner_init(&trial, m, loop) || !inner_init(&last, m, loop))
        return NULL;
    uint32_t *ids =
        arena_array(trial.m.graph->arena, (size_t)body->n_inputs + body->n_outputs, sizeof(*ids));
    struct once once = {.m = m,
                        .loop = loop,
                        .body = body,
                        .n_state = loop->n_inputs - FIRST_STATE,
                        .inputs = ids,
                        .outputs = ids ? ids + body->n_inputs : NULL};
    trial.m.notes = true;
    last.m.trial = &trial.m;
    if (ids && import_once(&trial.m, &once) && import_once(&last.m, &once) &&
        finish_graph(&last.m, &once))
        return STEAL(last.m.graph);
    log_write(m->options->log, LOG_VERBOSE, "Loop '%s' runs node by node: %s", loop->name,
              last.m.status    ? last.why.text
              : trial.m.status ? trial.why.text
                               : "sizes in its body are not the same all the time");
    return NULL;
}

/* --- running it --- */

/* A loop whose next iterations a body is to run. */
struct run {
    struct mapper *m;
    struct unroll *u;
    const struct onnx_body *ready;
    const void *in[IR_MAX_IO];
    uint32_t next[IR_MAX_IO]; /* by input: the output that is its next value, or IR_NONE */
    uint32_t cond, holds;     /* outputs; holds: IR_NONE if there is none */
    uint32_t *states, *scans; /* the outputs of each; IR_NONE: it stays as it is, is not wanted */
    uint32_t *outside, n_outside;
    size_t scan_bytes; /* of one iteration */
    int64_t *count;
    char *made[2]; /* outputs of even and of odd iterations */
    uint32_t n;    /* iterations done by the body */
};

static uint32_t find_output(const struct onnx_body *ready, char kind, uint32_t at)
{
    struct port_name name = port_name(kind, at);
    for (uint32_t i = 0; i < ready->n_outputs; i++)
        if (!strcmp(ready->outputs[i].name, name.chars))
            return i;
    return IR_NONE;
}

/* --- whether a body fits --- */

static bool list_one(void *user, const char *name)
{
    struct outside *o = user;
    uint32_t tensor;
    bool late;
    if (!is_outside(o, name, &tensor, &late) || late)
        return true;
    if (o->list)
        o->list[o->n] = tensor;
    o->n++;
    return true;
}

/* Walks over the values from outside; returns how many there are. */
static uint32_t walk_outside(const struct run *r, uint32_t *list)
{
    CLEANUP(outside_deinit) struct outside o = {.m = r->m, .list = list};
    if (skip_own(&o, r->u->body))
        (void)late_each_name(r->u->body, list_one, &o); /* it goes on to the end */
    return o.n;
}

static bool list_outside(struct run *r)
{
    r->n_outside = walk_outside(r, NULL);
    r->outside = arena_array(r->m->graph->arena, (size_t)r->n_outside + 1, sizeof(uint32_t));
    return r->outside && walk_outside(r, r->outside) == r->n_outside;
}

/* The tensor that an input is bound to; IR_NONE: there is none. */
static uint32_t tensor_of(struct run *r, uint32_t i)
{
    const struct onnx_port *port = &r->ready->inputs[i];
    uint32_t at = (uint32_t)strtoul(port->name + 1, NULL, 10);
    if (port->name[0] == 's' && at < r->u->n_state) {
        r->next[i] = r->states[at];
        return r->u->inputs[r->u->first_in + at];
    }
    return port->name[0] == 'o' && at < r->n_outside ? r->outside[at] : IR_NONE;
}

static bool is_like(const struct onnx_port *port, const struct ir_tensor *t)
{
    return port->dtype == t->dtype && shape_equal(&port->shape, &t->shape);
}

static bool is_flag(const struct onnx_port *port)
{
    size_t n;
    return port->dtype == DTYPE_BOOL && shape_elements(&port->shape, &n) && n == 1;
}

static bool input_fits(struct run *r, uint32_t i)
{
    static const struct ir_tensor count = {.dtype = DTYPE_I64};
    const struct onnx_port *port = &r->ready->inputs[i];
    r->next[i] = IR_NONE;
    if (port->name[0] == 'i')
        return is_like(port, &count);
    uint32_t tensor = tensor_of(r, i);
    const struct ir_tensor *t = tensor == IR_NONE ? NULL : ir_tensor(r->m->graph, tensor);
    r->in[i] = t ? t->data : NULL;
    return t && ir_tensor_is_constant(t) && is_like(port, t);
}

static bool outputs_fit(struct run *r)
{
    const struct unroll *u = r->u;
    const struct onnx_port *ports = r->ready->outputs;
    r->scan_bytes = 0;
    r->cond = find_output(r->ready, 'c', 0);
    r->holds = find_output(r->ready, 'k', 0);
    bool fit = r->cond != IR_NONE && is_flag(&ports[r->cond]) &&
               (r->holds == IR_NONE || is_flag(&ports[r->holds]));
    for (uint32_t k = 0; k < u->n_state && fit; k++) {
        uint32_t at = r->states[k] = find_output(r->ready, 's', k);
        fit = at == IR_NONE
                  ? is_kept(u->body, k)
                  : is_like(&ports[at], ir_tensor(r->m->graph, u->inputs[u->first_in + k]));
    }
    for (uint32_t k = 0; k < u->n_scan && fit; k++) {
        bool used = map_out_used(r->m, u->n_state + k);
        size_t bytes = 0;
        r->scans[k] = used ? find_output(r->ready, 'y', k) : IR_NONE;
        fit = !used || (r->scans[k] != IR_NONE &&
                        shape_bytes(&ports[r->scans[k]].shape, ports[r->scans[k]].dtype, &bytes) &&
                        checked_add(r->scan_bytes, bytes, &r->scan_bytes));
    }
    return fit;
}

static bool choose(struct run *r)
{
    const char *name = name_of(r->m->node);
    for (uint32_t i = 0; i < r->m->n_bodies; i++) {
        r->ready = &r->m->bodies[i];
        bool fits = !strcmp(r->ready->name, name) && outputs_fit(r);
        for (uint32_t k = 0; k < r->ready->n_inputs && fits; k++)
            fits = input_fits(r, k);
        if (fits)
            return true;
    }
    return false;
}

/* --- running it --- */

static void *aligned_room(struct mapper *m, size_t bytes)
{
    const struct shape shape = {.rank = 1, .dim = {(int64_t)bytes + ALIGN}};
    char *room = emit_brief_room(m, &shape, DTYPE_U8);
    return room ? room + (ALIGN - (uintptr_t)room % ALIGN) % ALIGN : NULL;
}

/* Whether there is room for what `begin` takes. Node by node, a loop may need less: values that are
 * handed on share their bytes there. */
static bool has_room(const struct run *r)
{
    size_t sum = 0, bytes;
    bool ok = checked_mul(2, r->ready->out_bytes, &sum) && checked_add(sum, 16 * ALIGN, &sum);
    for (uint32_t i = 0; i < r->ready->n_inputs && ok; i++) {
        const struct onnx_port *port = &r->ready->inputs[i];
        if ((uintptr_t)r->in[i] % ALIGN)
            ok = shape_bytes(&port->shape, port->dtype, &bytes) &&
                 checked_add(sum, bytes + 2 * ALIGN, &sum);
    }
    return ok && sum <= r->m->fold_budget;
}

/* Takes memory, and copies what does not lie as kernels want it. */
static void begin(struct run *r)
{
    struct mapper *m = r->m;
    r->count = aligned_room(m, sizeof(*r->count));
    for (uint32_t i = 0; i < 2; i++)
        r->made[i] = aligned_room(m, r->ready->out_bytes);
    for (uint32_t i = 0; i < r->ready->n_inputs && !map_failed(m); i++) {
        const struct onnx_port *port = &r->ready->inputs[i];
        size_t bytes;
        if (port->name[0] == 'i')
            r->in[i] = r->count;
        if ((uintptr_t)r->in[i] % ALIGN == 0 || !shape_bytes(&port->shape, port->dtype, &bytes))
            continue;
        void *copy = aligned_room(m, bytes);
        if (copy && bytes)
            memcpy(copy, r->in[i], bytes);
        r->in[i] = copy;
    }
}

/* Makes a tensor that the loop holds. */
static uint32_t emit_held(struct mapper *m, const struct onnx_port *port, const void *data)
{
    uint32_t tensor = emit_constant(m, port->dtype, &port->shape, data);
    map_hold(m, tensor);
    return tensor;
}

/* Keeps what an iteration has made. */
static void keep(struct run *r, const char *made)
{
    struct unroll *u = r->u;
    for (uint32_t k = 0; k < u->n_scan; k++) {
        uint32_t *kept = &u->kept[(size_t)k * u->max + u->n];
        *kept = IR_NONE;
        if (r->scans[k] == IR_NONE)
            continue;
        const struct onnx_port *port = &r->ready->outputs[r->scans[k]];
        void *room = emit_brief_room(r->m, &port->shape, port->dtype);
        size_t bytes;
        if (!room || !shape_bytes(&port->shape, port->dtype, &bytes))
            return;
        if (bytes)
            memcpy(room, made + port->offset, bytes);
        *kept = emit_held(r->m, port, room);
    }
}

/* Runs an iteration. False: it has failed, or there is no room for what it keeps, or what the body
 * assumes is not so, and the outputs are void. A failure may come of that, too: then the same
 * iteration shows it node by node. */
static bool step(struct run *r, bool *go_on)
{
    const struct onnx_body *ready = r->ready;
    char *made = r->made[r->n % 2];
    struct error err;
    if (r->scan_bytes > r->m->fold_budget)
        return false;
    *r->count = r->u->n;
    enum status status = ready->run(ready->user, r->in, made, &err);
    if (status && r->holds == IR_NONE) {
        error_prefix(&err, "cannot be computed");
        map_failed_with(r->m, status, &err);
    }
    if (status || (r->holds != IR_NONE && !made[ready->outputs[r->holds].offset]))
        return false;
    map_unroll(r->m, r->u->body);
    keep(r, made);
    for (uint32_t i = 0; i < ready->n_inputs; i++)
        if (r->next[i] != IR_NONE)
            r->in[i] = made + ready->outputs[r->next[i]].offset;
    *go_on = made[ready->outputs[r->cond].offset] != 0;
    r->n++;
    r->u->n++;
    return !map_failed(r->m);
}

/* Leaves the states to the loop. */
static void finish(struct run *r, bool held)
{
    struct unroll *u = r->u;
    const char *made = r->made[(r->n - 1) % 2];
    for (uint32_t k = 0; k < u->n_state && !map_failed(r->m); k++) {
        uint32_t *state = &u->inputs[u->first_in + k], before = *state;
        if (r->states[k] != IR_NONE) {
            const struct onnx_port *port = &r->ready->outputs[r->states[k]];
            *state = emit_held(r->m, port, made + port->offset);
        } else {
            map_hold(r->m, before);
        }
        if (held)
            map_let_go(r->m, before);
    }
}

bool body_run(struct mapper *m, struct unroll *u, bool *go_on)
{
    bool held = u->n > 0; /* the states are */
    struct run *r = map_failed(m) || !m->n_bodies || m->scope->outer
                        ? NULL
                        : arena_alloc(m->graph->arena, sizeof(*r));
    if (!r)
        return false;
    *r = (struct run){.m = m, .u = u};
    r->states = arena_array(m->graph->arena, (size_t)u->n_state + u->n_scan + 1, sizeof(uint32_t));
    if (!r->states)
        return false;
    r->scans = r->states + u->n_state;
    if (!list_outside(r) || !choose(r) || !has_room(r))
        return false;
    begin(r);
    while (!map_failed(m) && *go_on && u->n < u->max && step(r, go_on))
        ;
    if (r->n && !map_failed(m))
        finish(r, held);
    return r->n > 0;
}
