/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the solver's answer into the graph: layouts and types, reformats, constants, tactics and
 * times. In the end every node is prepared once as it stands, which gives its workspace and proves
 * that the plan's nodes can be made ready.
 *
 * Layouts that agree are one format to the solver. Here a REFORMAT without a tactic renames the
 * tensor from one such layout to the other, so that every tactic sees the layout it wants; the
 * REFORMAT becomes an alias.
 */
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/compiler.h"
#include "base/hash.h"
#include "engine/tune/internal.h"
#include "kernels/cpu/ref.h"

/* The tensor `made` is tensor key.tensor in format key.format. */
struct reformatted {
    struct {
        uint32_t tensor;
        struct ir_format format;
    } key;
    uint32_t made;
    UT_hash_handle hh;
};

struct apply {
    struct ir_graph *graph;
    struct tune_table *table;
    struct arena *memory;            /* of the table below */
    struct reformatted *reformatted; /* hash table: the first reformat of each tensor and format */
};

/* 0: it is a guess. */
static uint64_t time_of(const struct tune_option *option)
{
    return option->timed ? option->ns : 0;
}

void tune_apply_times(struct ir_graph *graph, const struct tune_pick *picks)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (picks[i].entry)
            ir_node(graph, i)->time_ns = time_of(&picks[i].entry->options[picks[i].option]);
}

/* Gives the node a copy of the tactic whose ports name the graph's scales, not the sample's. */
static enum status set_tactic(struct apply *a, uint32_t node, const struct tune_option *option,
                              struct error *err)
{
    struct ir_node *n = ir_node(a->graph, node);
    struct tactic *copy = arena_alloc(a->graph->arena, sizeof(*copy));
    if (!copy)
        return error_no_memory(err, "the tuner");
    *copy = *option->tactic;
    for (uint32_t i = 0; i < copy->n_in; i++)
        if (n->inputs[i] != IR_NONE)
            copy->in[i].format = tune_port_format(ir_tensor(a->graph, n->inputs[i]), &copy->in[i]);
    for (uint32_t i = 0; i < copy->n_out; i++)
        copy->out[i].format = tune_port_format(ir_tensor(a->graph, n->outputs[i]), &copy->out[i]);
    n->tactic = copy;
    n->time_ns = time_of(option);
    return STATUS_OK;
}

/* --- one tensor in another format --- */

static uint32_t like(struct apply *a, uint32_t tensor, struct ir_format format)
{
    struct ir_tensor t = *ir_tensor(a->graph, tensor);
    uint32_t id = ir_tensor_add(a->graph, t.name, ir_tensor_type(&t), &t.shape);
    if (id == IR_NONE || !ir_tensor_set_format(a->graph, id, format))
        return IR_NONE;
    ir_tensor(a->graph, id)->range = t.range;
    return id;
}

static bool renames(const struct ir_tensor *x, const struct ir_tensor *y)
{
    return x->dtype == y->dtype && x->scale == y->scale &&
           ir_layouts_agree(&x->shape, x->layout, y->layout);
}

static struct ir_format in_layout(struct ir_format format, enum ir_layout layout)
{
    format.layout = layout;
    return format;
}

/* Gives the reformat its fastest tactic, with its code if the backend compiles. */
static enum status reformat_tactic(struct apply *a, uint32_t node, uint32_t from, uint32_t to,
                                   struct error *err)
{
    struct tune_entry *e;
    TRY(tune_table_reformat(a->table, a->graph, from, ir_tensor(a->graph, from)->format,
                            ir_tensor(a->graph, to)->format, &e, err));
    bool again = false;
    if (e->n > 0) {
        struct tune_job job = {.entry = e, .option = &e->options[0]};
        TRY(tune_compile_chosen(a->table, &job, 1, a->graph->arena, &again, err));
    }
    if (e->n == 0 || again)
        return error_set(err, STATUS_INTERNAL, "tuner: no reformat where one was planned");
    tune_table_report(a->table)->reformats++;
    return set_tactic(a, node, &e->options[0], err);
}

/* An earlier reformat of the tensor to this format; IR_NONE: there is none. */
static uint32_t find_reformat(const struct apply *a, uint32_t tensor, struct ir_format format)
{
    const struct reformatted probe = {.key = {tensor, format}};
    struct reformatted *r;
    HASH_FIND(hh, a->reformatted, &probe.key, sizeof(probe.key), r);
    return r ? r->made : IR_NONE;
}

static bool note_reformat(struct apply *a, uint32_t from, uint32_t to)
{
    const struct ir_tensor *y = ir_tensor(a->graph, to);
    if (find_reformat(a, from, y->format) != IR_NONE)
        return true;
    struct reformatted *r = arena_alloc(a->memory, sizeof(*r));
    if (!r)
        return false;
    *r = (struct reformatted){.key = {from, y->format}, .made = to};
    HASH_ADD(hh, a->reformatted, key, sizeof(r->key), r);
    return HASH_ADDED(r);
}

/* Adds a node that writes `from` into `to`; both tensors have their formats already. */
static enum status add_reformat(struct apply *a, uint32_t from, uint32_t to, struct error *err)
{
    bool rename = renames(ir_tensor(a->graph, from), ir_tensor(a->graph, to));
    struct ir_tensor t = *ir_tensor(a->graph, to);
    uint32_t node = ir_node_add(a->graph, IR_OP_REFORMAT, "reformat", 1, &from);
    if (node == IR_NONE || !note_reformat(a, from, to) ||
        ir_node_output_add(a->graph, node, "", t.dtype, &t.shape) == IR_NONE)
        return error_no_memory(err, "the tuner");
    ir_node_set_output(a->graph, node, 0, to); /* in place of the output that was just added */
    return rename ? STATUS_OK : reformat_tactic(a, node, from, to, err);
}

/* *out: the tensor in this format: itself, what an earlier reformat made, or a new one. */
static enum status step_to(struct apply *a, uint32_t tensor, struct ir_format format, uint32_t *out,
                           struct error *err)
{
    if (ir_format_equal(ir_tensor(a->graph, tensor)->format, format)) {
        *out = tensor;
        return STATUS_OK;
    }
    uint32_t made = find_reformat(a, tensor, format);
    if (made != IR_NONE) {
        *out = made;
        return STATUS_OK;
    }
    made = like(a, tensor, format);
    if (made == IR_NONE)
        return error_no_memory(err, "the tuner");
    TRY(add_reformat(a, tensor, made, err));
    *out = made;
    return STATUS_OK;
}

/* *out: the tensor in this format, made as the solver has counted it: one reformat between the
 * least layouts that agree with the tensor's and with the wanted one, and renamings before and
 * behind the reformat. */
static enum status in_format(struct apply *a, uint32_t tensor, struct ir_format format,
                             uint32_t *out, struct error *err)
{
    const struct ir_tensor t = *ir_tensor(a->graph, tensor);
    struct ir_format from = in_layout(t.format, tune_layout_least(&t.shape, t.layout));
    struct ir_format to = in_layout(format, tune_layout_least(&t.shape, format.layout));
    if (!ir_format_equal(from, to)) {
        TRY(step_to(a, tensor, from, &tensor, err));
        TRY(step_to(a, tensor, to, &tensor, err));
    }
    return step_to(a, tensor, format, out, err);
}

/* --- outputs: formats of what nodes write --- */

/* The node writes a new tensor in the format, which all its readers read. A reformat makes the
 * graph's output from the new tensor; the output keeps its name and its format. */
static enum status divert_output(struct apply *a, uint32_t node, uint32_t index,
                                 struct ir_format format, struct error *err)
{
    uint32_t tensor = ir_node(a->graph, node)->outputs[index], from;
    uint32_t made = like(a, tensor, format);
    if (made == IR_NONE)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < a->graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(a->graph, i)->n_inputs; k++)
            if (ir_node(a->graph, i)->inputs[k] == tensor)
                ir_node(a->graph, i)->inputs[k] = made;
    ir_node_set_output(a->graph, node, index, made);
    const struct ir_tensor t = *ir_tensor(a->graph, made);
    if (renames(&t, ir_tensor(a->graph, tensor)))
        return add_reformat(a, made, tensor, err);
    format.layout = tune_layout_least(&t.shape, format.layout);
    TRY(step_to(a, made, format, &from, err));
    return add_reformat(a, from, tensor, err);
}

static enum status set_output(struct apply *a, uint32_t node, uint32_t index, struct error *err)
{
    const struct tactic *tactic = ir_node(a->graph, node)->tactic;
    uint32_t tensor = ir_node(a->graph, node)->outputs[index];
    struct ir_format format = tactic->out[index].format;
    if (ir_format_equal(format, ir_tensor(a->graph, tensor)->format))
        return STATUS_OK;
    if (ir_tensor_is_output(a->graph, tensor))
        return divert_output(a, node, index, format, err);
    return ir_tensor_set_format(a->graph, tensor, format) ? STATUS_OK
                                                          : error_no_memory(err, "the tuner");
}

/* --- constants --- */

static enum status add_constant(struct apply *a, uint32_t like_tensor, struct ir_format format,
                                uint64_t bytes, const void *data, uint32_t *out, struct error *err)
{
    uint32_t id = like(a, like_tensor, format);
    if (id == IR_NONE)
        return error_no_memory(err, "the tuner");
    ir_tensor(a->graph, id)->bytes = bytes;
    ir_tensor(a->graph, id)->data = data;
    *out = id;
    return STATUS_OK;
}

static enum status pack_constant(struct apply *a, struct device *device, uint32_t node,
                                 uint32_t input, uint32_t *out, struct error *err)
{
    const struct ir_node *n = ir_node(a->graph, node);
    uint64_t bytes = tune_port_in(n->tactic, input)->packed_bytes;
    void *packed = arena_alloc(a->graph->arena, bytes);
    if (!packed)
        return error_no_memory(err, "the tuner");
    if (!device->backend->pack)
        return error_set(err, STATUS_INTERNAL, "tuner: the backend cannot pack constants");
    TRY(device->backend->pack(device, a->graph, n, n->tactic, input, packed, err));
    return add_constant(a, n->inputs[input], tune_port_in(n->tactic, input)->format, bytes, packed,
                        out, err);
}

static enum status convert_constant(struct apply *a, uint32_t tensor, struct ir_format format,
                                    uint32_t *out, struct error *err)
{
    const struct ir_tensor t = *ir_tensor(a->graph, tensor);
    uint64_t bytes;
    if (!ir_layout_bytes(&t.shape, format.dtype, format.layout, &bytes))
        return error_set(err, STATUS_INTERNAL, "tuner: a constant cannot have the layout %s",
                         ir_layout_name(format.layout));
    void *data = arena_alloc(a->graph->arena, bytes);
    if (!data)
        return error_no_memory(err, "the tuner");
    const struct tensor_view from = {t.dtype, t.shape, (void *)(uintptr_t)t.data};
    const struct tensor_view to = {format.dtype, t.shape, data};
    if (ir_layouts_agree(&t.shape, t.layout, format.layout))
        ref_cast(&from, &to);
    else
        ref_reformat((enum ir_layout)t.layout, (enum ir_layout)format.layout, &from, &to);
    return add_constant(a, tensor, format, bytes, data, out, err);
}

/* --- inputs --- */

static enum status set_constant(struct apply *a, const struct tune_entry *entry, uint32_t node,
                                uint32_t input, uint32_t *out, struct error *err)
{
    const struct ir_node *n = ir_node(a->graph, node);
    const struct tactic_port *port = tune_port_in(n->tactic, input);
    uint32_t tensor = n->inputs[input];
    struct ir_format format = tune_port_format(ir_tensor(a->graph, tensor), port);
    if (port->packed_bytes > 0)
        return pack_constant(a, entry->device, node, input, out, err);
    if (!ir_format_equal(format, ir_tensor(a->graph, tensor)->format))
        return convert_constant(a, tensor, format, out, err);
    *out = tensor;
    return STATUS_OK;
}

/* First brings the inputs that other nodes make into their formats, then the constants: `pack` may
 * rely on the node's other tensors being as the tactic wants them, and on its constants being as
 * the graph had them. */
static enum status set_inputs(struct apply *a, const struct tune_entry *entry, uint32_t node,
                              struct error *err)
{
    uint32_t made[IR_MAX_INPUTS], n = ir_node(a->graph, node)->n_inputs;
    for (int constants = 0; constants < 2; constants++) {
        for (uint32_t i = 0; i < n; i++) {
            const struct tactic_port *port = tune_port_in(ir_node(a->graph, node)->tactic, i);
            uint32_t id = made[i] = ir_node(a->graph, node)->inputs[i];
            const struct ir_tensor *t = id == IR_NONE ? NULL : ir_tensor(a->graph, id);
            if (!t || ir_tensor_is_constant(t) != constants)
                continue;
            if (constants)
                TRY(set_constant(a, entry, node, i, &made[i], err));
            else
                TRY(in_format(a, id, tune_port_format(t, port), &made[i], err));
        }
        memcpy(ir_node(a->graph, node)->inputs, made, n * sizeof(*made));
    }
    return STATUS_OK;
}

/* --- the whole --- */

/* The device that the node's tactic runs on; NULL: the node only renames and runs nowhere. */
static struct device *device_of(const struct apply *a, const struct ir_node *node)
{
    const struct tune_options *options = tune_table_options(a->table);
    if (!node->tactic)
        return NULL;
    bool host = options->host && strcmp(node->tactic->backend, options->device->backend->name) != 0;
    return host ? options->host : options->device;
}

static enum status set_workspace(struct apply *a, struct device *device, struct ir_node *node,
                                 struct error *err)
{
    struct tune_bench *bench;
    TRY(tune_table_bench(a->table, device, &bench, err));
    return tune_bench_workspace(bench, a->graph, node, &node->workspace_bytes, err);
}

static enum status set_workspaces(struct apply *a, struct error *err)
{
    for (uint32_t i = 0; i < a->graph->n_nodes; i++) {
        struct ir_node *node = ir_node(a->graph, i);
        struct device *device = device_of(a, node);
        if (!device)
            continue;
        tune_table_report(a->table)->nodes++;
        enum status status = set_workspace(a, device, node, err);
        if (status) {
            error_prefix(err, "layer '%s' (%s)", node->name, node->tactic->name);
            return status;
        }
    }
    return STATUS_OK;
}

static void apply_deinit(struct apply *a)
{
    HASH_CLEAR(hh, a->reformatted);
    arena_free(a->memory);
}

enum status tune_apply(struct ir_graph *graph, struct tune_table *table,
                       const struct tune_pick *picks, struct error *err)
{
    CLEANUP(apply_deinit)
    struct apply a = {.graph = graph, .table = table, .memory = arena_new(0)};
    uint32_t n_nodes = graph->n_nodes; /* the nodes that were tuned; reformats come behind them */
    if (!a.memory)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < n_nodes; i++)
        if (picks[i].entry)
            TRY(set_tactic(&a, i, &picks[i].entry->options[picks[i].option], err));
    for (uint32_t i = 0; i < n_nodes; i++)
        for (uint32_t k = 0; picks[i].entry && k < ir_node(graph, i)->n_outputs; k++)
            TRY(set_output(&a, i, k, err));
    for (uint32_t i = 0; i < n_nodes; i++)
        if (picks[i].entry)
            TRY(set_inputs(&a, picks[i].entry, i, err));
    TRY(ir_graph_compact(graph, err));
    TRY(ir_verify(graph, err));
    return set_workspaces(&a, err);
}
