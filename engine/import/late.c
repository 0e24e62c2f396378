/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/late.h"

#include <stdlib.h>
#include <string.h>

#include "engine/import/body.h"
#include "engine/import/tail_model.h"

/* --- names that nodes read --- */

static bool node_reads(const struct onnx_node *node, late_name seen, void *user);

bool late_each_name(const struct onnx_graph *graph, late_name seen, void *user)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (!node_reads(&graph->nodes[i], seen, user))
            return false;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        if (!seen(user, graph->outputs[i].name))
            return false;
    return true;
}

/* Shows all names that the node and the graphs within it read. */
static bool node_reads(const struct onnx_node *node, late_name seen, void *user)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i][0] && !seen(user, node->inputs[i]))
            return false;
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].graph && !late_each_name(node->attrs[i].graph, seen, user))
            return false;
    return true;
}

/* --- which nodes --- */

static bool is_early(void *user, const char *name)
{
    const struct late *late = user;
    return !map_set_has(late->names, name);
}

bool late_reads(struct mapper *m, const struct onnx_node *node)
{
    return m->late && m->late->n && !m->scope->outer && !node_reads(node, is_early, m->late);
}

bool late_takes(struct mapper *m, uint32_t first)
{
    if (!m->late || !m->unknown || m->scope->outer || m->status != STATUS_UNIMPLEMENTED)
        return false;
    for (uint32_t i = first; i < m->graph->n_nodes; i++)
        if (ir_node(m->graph, i)->op != IR_OP_NONE)
            ir_node_remove(m->graph, i);
    m->status = STATUS_OK;
    m->unknown = false;
    return true;
}

/* Nodes of inner graphs are looked up now: a request is no time to find that one is not known. */
static void check_inner(struct mapper *m, const struct onnx_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes && !map_failed(m); i++) {
        const struct onnx_node *node = &graph->nodes[i];
        map_node_begin(m, node, i);
        for (uint32_t k = 0; k < node->n_attrs && !map_failed(m); k++)
            if (node->attrs[k].graph)
                check_inner(m, node->attrs[k].graph);
    }
}

void late_add(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    struct late *late = m->late;
    for (uint32_t k = 0; k < node->n_attrs && !map_failed(m); k++)
        if (node->attrs[k].graph)
            check_inner(m, node->attrs[k].graph);
    if (!late->nodes)
        late->nodes = calloc((size_t)m->model->graph.n_nodes + 1, sizeof(*late->nodes));
    if (!late->nodes) {
        map_exhausted(m);
        return;
    }
    late->n += !late->nodes[index];
    late->nodes[index] = true;
    for (uint32_t k = 0; k < node->n_outputs && !map_failed(m); k++)
        if (node->outputs[k][0])
            map_set_add(m, &late->names, node->outputs[k]);
}

/* --- the tail --- */

struct finish {
    struct mapper *m;
    const struct onnx_graph *graph;
    struct value *wanted; /* names that the tail needs */
    struct value *read;   /* names that nodes read which are not late */
    struct value *placed; /* of these, the ones that have come into the tail's model */
    struct tail_model *to;
    struct onnx_tail *out;
};

static bool want(void *user, const char *name)
{
    struct finish *f = user;
    return map_set_add(f->m, &f->wanted, name);
}

static bool is_wanted(const struct finish *f, const struct onnx_node *node)
{
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (node->outputs[k][0] && map_set_has(f->wanted, node->outputs[k]))
            return true;
    return false;
}

/* Leaves out the late nodes that no output needs. */
static void find_wanted(struct finish *f)
{
    struct late *late = f->m->late;
    for (uint32_t i = 0; i < f->graph->n_outputs && !map_failed(f->m); i++)
        want(f, f->graph->outputs[i].name);
    for (uint32_t i = f->graph->n_nodes; i-- > 0 && !map_failed(f->m);) {
        if (!late->nodes[i])
            continue;
        late->nodes[i] = is_wanted(f, &f->graph->nodes[i]);
        late->n -= !late->nodes[i];
        if (late->nodes[i])
            node_reads(&f->graph->nodes[i], want, f);
    }
}

/* --- nodes that are better late --- */

enum { CROSSINGS_FEW = 32, SUNK_SMALL = 1 << 16 };

static bool note_read(void *user, const char *name)
{
    struct finish *f = user;
    return map_set_add(f->m, &f->read, name);
}

/* How many values the tail would read of the graph. */
static uint32_t count_crossings(struct finish *f)
{
    struct mapper *m = f->m;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->graph->n_nodes && !map_failed(m); i++) {
        const struct onnx_node *node = &f->graph->nodes[i];
        for (uint32_t k = 0; k < node->n_outputs && !m->late->nodes[i]; k++) {
            bool found;
            uint32_t tensor = map_value_find(m, node->outputs[k], &found);
            n += found && map_set_has(f->wanted, node->outputs[k]) &&
                 !ir_tensor_is_constant(ir_tensor(m->graph, tensor));
        }
    }
    return n;
}

/* Whether the node costs no more than touching what it makes, which is at most `most` bytes and not
 * known already. */
static bool is_light(struct mapper *m, const struct onnx_node *node, uint32_t index, uint64_t most)
{
    uint64_t bytes = 0;
    bool known = true;
    map_node_begin(m, node, index);
    bool light = !map_failed(m) && m->row->parts != 0;
    for (uint32_t op = 0; op < IR_OP_COUNT_ && light; op++)
        light = !(m->row->parts >> op & 1) || ir_op_row((enum ir_op)op)->work == IR_WORK_SIZES;
    for (uint32_t k = 0; k < node->n_outputs && light; k++) {
        bool found;
        uint32_t tensor = map_value_find(m, node->outputs[k], &found);
        if (!found)
            continue;
        known = known && ir_tensor_is_constant(ir_tensor(m->graph, tensor));
        bytes += ir_tensor(m->graph, tensor)->bytes;
    }
    return light && !known && bytes <= most;
}

/* Lets light nodes be late, if late nodes alone read what they make. An export may pick hundreds of
 * columns out of one tensor for as many late nodes: then that tensor crosses instead of them. */
static void sink(struct finish *f, uint64_t most)
{
    struct mapper *m = f->m;
    for (uint32_t i = f->graph->n_nodes; i-- > 0 && !map_failed(m);) {
        const struct onnx_node *node = &f->graph->nodes[i];
        bool early = false, wanted = is_wanted(f, node);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            early = early || map_set_has(f->read, node->outputs[k]);
        if (m->late->nodes[i] || (!early && !wanted))
            continue;
        if (!early && is_light(m, node, i, most)) {
            late_add(m, node, i);
            node_reads(node, want, f);
        } else {
            node_reads(node, note_read, f);
        }
    }
    map_set_free(&f->read);
    m->node = NULL;
}

/* --- the tail's model --- */

/* Makes the tensor an output of the graph, which a node of its own must make. */
static void cross(struct finish *f, const char *name, uint32_t tensor)
{
    struct mapper *m = f->m;
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (m->graph->n_outputs == IR_MAX_IO) {
        map_refuse(m,
                   "more than %d values are needed by what runs with sizes that only a request "
                   "tells",
                   IR_MAX_IO);
        return;
    }
    if (t->producer == IR_NONE || ir_tensor_is_output(m->graph, tensor)) {
        m->node = NULL;
        m->label = name;
        m->n_emitted = 0;
        uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &tensor);
        emit_int(m, node, IR_ATTR_FUNC, IR_UNARY_IDENTITY);
        const char *names[] = {name};
        if (!map_failed(m) && ir_infer_apply(m->graph, node, names, 1, NULL))
            map_exhausted(m); /* any tensor can be copied */
        if (map_failed(m))
            return;
        tensor = ir_node(m->graph, node)->outputs[0];
    }
    m->graph->outputs[m->graph->n_outputs++] = tensor;
    tail_model_input(f->to, name);
}

/* Brings a name into the tail's model that something else than a late node makes. */
static bool place(void *user, const char *name)
{
    struct finish *f = user;
    struct mapper *m = f->m;
    bool found;
    if (map_set_has(m->late->names, name) || map_set_has(f->placed, name))
        return true;
    uint32_t tensor = map_value_find(m, name, &found);
    if (!found)
        return true; /* an inner graph's own */
    if (!map_set_add(m, &f->placed, name))
        return false;
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (!ir_tensor_is_constant(t)) {
        cross(f, name, tensor);
        return !map_failed(m);
    }
    uint64_t offset = 0;
    struct error err;
    enum status status =
        f->out->keep ? f->out->keep(f->out->user, t->data, t->bytes, &offset, &err) : STATUS_OK;
    if (status)
        map_failed_with(m, status, &err);
    tail_model_constant(f->to, name, t, offset);
    return !map_failed(m);
}

static void place_all(struct finish *f)
{
    const struct late *late = f->m->late;
    for (uint32_t i = 0; i < f->graph->n_nodes && !map_failed(f->m); i++)
        if (late->nodes[i])
            node_reads(&f->graph->nodes[i], place, f);
    for (uint32_t i = 0; i < f->graph->n_outputs && !map_failed(f->m); i++)
        place(f, f->graph->outputs[i].name);
}

/* Notes an output of the model. Its dimensions are those that the file fixes; others a request
 * tells. */
static void add_output(struct finish *f, const struct onnx_value_info *info)
{
    struct mapper *m = f->m;
    struct onnx_tail *out = f->out;
    bool found, late = map_set_has(m->late->names, info->name);
    uint32_t tensor = map_value_find(m, info->name, &found);
    if (!late && !found)
        map_invalid(m, "output '%s' is written by no node", info->name);
    else if (out->n_outputs == IR_MAX_IO)
        map_refuse(m, "more than %d outputs", IR_MAX_IO);
    else if (late && (!info->is_tensor || onnx_dtype(info->type) == DTYPE_NONE))
        map_refuse(m,
                   "output '%s' is declared as %s: only tensors of numbers can be answered; "
                   "let the model give what is inside as outputs of its own",
                   info->name, info->is_tensor ? onnx_type_name(info->type) : "no tensor");
    if (map_failed(m))
        return;
    struct onnx_tail_output *to = &out->outputs[out->n_outputs++];
    *to = (struct onnx_tail_output){
        info->name, onnx_dtype(info->type), {.rank = info->rank}, late && !info->has_shape};
    for (uint32_t d = 0; d < info->rank && late; d++)
        to->shape.dim[d] = onnx_axis_is_fixed(&info->dims[d]) ? info->dims[d].value : -1;
    if (!late)
        to->dtype = map_dtype(m, tensor), to->shape = *map_shape(m, tensor);
    tail_model_output(f->to, info);
}

/* Makes graphs of the bodies of loops that read nothing that is late. */
static void add_bodies(struct finish *f)
{
    struct onnx_tail *out = f->out;
    for (uint32_t i = 0; i < f->graph->n_nodes && out->keep && !map_failed(f->m); i++) {
        const struct onnx_node *node = &f->graph->nodes[i];
        if (!f->m->late->nodes[i] || out->n_bodies == ONNX_MAX_BODIES)
            continue;
        struct ir_graph *body = body_graph(f->m, node);
        if (body)
            out->bodies[out->n_bodies++] = body;
    }
}

static void write_model(struct finish *f)
{
    const struct late *late = f->m->late;
    find_wanted(f);
    if (count_crossings(f) > CROSSINGS_FEW)
        sink(f, SUNK_SMALL);
    if (count_crossings(f) > IR_MAX_IO)
        sink(f, UINT64_MAX);
    for (uint32_t i = 0; i < f->graph->n_nodes && !map_failed(f->m); i++)
        if (late->nodes[i])
            tail_model_node(f->to, &f->graph->nodes[i]);
    add_bodies(f);
    place_all(f);
    for (uint32_t i = 0; i < f->graph->n_outputs && !map_failed(f->m); i++)
        add_output(f, &f->graph->outputs[i]);
    if (!map_failed(f->m) && !tail_model_end(f->to, f->m->model, &f->out->model, &f->out->size))
        map_exhausted(f->m);
}

void late_finish(struct mapper *m, struct onnx_tail *out)
{
    struct finish f = {.m = m, .graph = &m->model->graph, .to = tail_model_new(), .out = out};
    m->node = NULL;
    if (!f.to)
        map_exhausted(m);
    else
        write_model(&f);
    out->n_nodes = m->late->n;
    tail_model_free(f.to);
    map_set_free(&f.wanted);
    map_set_free(&f.placed);
}
