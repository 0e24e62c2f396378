/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs an assignment beside fp32, node by node, on some sets of values. Values live from the node
 * that makes them to the last that reads them; fp32's are kept for the next walk if there is room.
 * Where nothing shorter lies before or in a node, the
 * assignment's values are fp32's, and the node runs once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "kernels/cpu/number.h"

enum { MACHINES_MAX = 3, SETS_MAX = GUARD_SAMPLES };

/* Values by set and tensor. */
struct values {
    void **set[SETS_MAX];
};

struct state {
    struct walk *walk;
    const struct ir_graph *graph;
    struct layer_machine machines[MACHINES_MAX];
    uint32_t n_machines, n_sets;
    struct values wide, made; /* fp32's, and the assignment's: the same pointer if they are equal */
    uint32_t *left;           /* by tensor: reads to come */
    bool *rounded;            /* by tensor: the model rounds it to 8 bits, by its range */
    double *decided;          /* by tensor: the worst error of the decisions that it follows from */
};

static enum status no_memory(struct error *err)
{
    return error_no_memory(err, "the comparison with fp32");
}

static void drop_of_set(struct state *s, uint32_t k, uint32_t tensor)
{
    struct value_memory *memory = s->walk->memory;
    if (s->made.set[k][tensor] != s->wide.set[k][tensor])
        value_give(memory, s->made.set[k][tensor]);
    if (s->wide.set[k][tensor] != memory->kept[k][tensor])
        value_give(memory, s->wide.set[k][tensor]);
    s->made.set[k][tensor] = s->wide.set[k][tensor] = NULL;
}

static void drop(struct state *s, uint32_t tensor)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        drop_of_set(s, k, tensor);
}

static void state_deinit(struct state *s)
{
    for (uint32_t k = 0; k < s->n_sets; k++) {
        for (uint32_t i = 0; s->wide.set[k] && s->made.set[k] && i < s->graph->n_tensors; i++)
            drop_of_set(s, k, i);
        free(s->wide.set[k]);
        free(s->made.set[k]);
    }
    free(s->left);
    free(s->rounded);
    free(s->decided);
    for (uint32_t i = 0; i < s->n_machines; i++)
        layer_machine_close(&s->machines[i]);
}

static struct layer_machine *machine_of(struct state *s, struct device *device)
{
    uint32_t i = 0;
    while (i < s->n_machines && s->machines[i].device != device)
        i++;
    if (i == s->n_machines)
        s->machines[s->n_machines++] =
            (struct layer_machine){.device = device, .times = &s->walk->times};
    return &s->machines[i];
}

/* --- beginning --- */

static enum status fill_set(struct state *s, uint32_t k, struct error *err)
{
    const struct ir_graph *g = s->graph;
    void *to[IR_MAX_IO] = {NULL};
    for (uint32_t i = 0; i < g->n_tensors; i++)
        s->wide.set[k][i] = s->walk->memory->kept[k][i];
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        to[i] = value_take(s->walk->memory, ir_tensor(g, g->inputs[i]));
        s->wide.set[k][g->inputs[i]] = s->made.set[k][g->inputs[i]] = to[i];
        if (!to[i])
            return no_memory(err);
    }
    if (s->walk->source)
        return s->walk->source->read(s->walk->source->user, g, s->walk->batch, k, to, err);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (!input_fill(g, i, s->walk->seed + k, to[i]))
            return no_memory(err);
    return STATUS_OK;
}

/* Whether the reader makes the same of a tensor that was rounded by this scale. */
static bool reads_rounded(const struct state *s, const struct ir_node *node, uint32_t input,
                          const struct ir_scale *scale)
{
    if (node->op == IR_OP_QUANTIZE)
        return input == 0 && ir_quant_is_scale(s->graph, node, scale);
    uint32_t y = node->outputs[0];
    return !node->n_epilogue && ir_range_passes(node, scale) && s->rounded[y] &&
           ir_scale_equal(ir_scale(s->graph, ir_tensor(s->graph, y)->range), scale);
}

/* Finds the tensors that the model itself rounds to 8 bits before anybody looks at them: they have
 * the range by which all readers quantise them, if need be after some moves. */
static void find_rounded(struct state *s)
{
    const struct ir_graph *g = s->graph;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        s->rounded[i] = ir_tensor(g, i)->range != IR_NO_SCALE && s->left[i] > 0 &&
                        !ir_tensor_is_output(g, i) && !ir_tensor_is_constant(ir_tensor(g, i));
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct ir_node *node = ir_node(g, i);
        for (uint32_t k = 0; node->op != IR_OP_NONE && k < node->n_inputs; k++) {
            uint32_t x = node->inputs[k];
            if (x != IR_NONE && s->rounded[x])
                s->rounded[x] = reads_rounded(s, node, k, ir_scale(g, ir_tensor(g, x)->range));
        }
    }
}

static enum status begin(struct state *s, struct error *err)
{
    const struct ir_graph *g = s->graph;
    uint32_t rows = MAX(s->walk->batch, 1);
    uint32_t n_sets = rows < GUARD_SAMPLES ? GUARD_SAMPLES / rows : 1;
    s->walk->samples = rows * n_sets;
    s->left = calloc((size_t)g->n_tensors + 1, sizeof(*s->left));
    s->rounded = calloc((size_t)g->n_tensors + 1, sizeof(*s->rounded));
    s->decided = calloc((size_t)g->n_tensors + 1, sizeof(*s->decided));
    for (s->n_sets = 0; s->n_sets < n_sets;) {
        uint32_t k = s->n_sets++;
        s->wide.set[k] = calloc((size_t)g->n_tensors + 1, sizeof(void *));
        s->made.set[k] = calloc((size_t)g->n_tensors + 1, sizeof(void *));
        if (!s->wide.set[k] || !s->made.set[k] || !s->left || !s->rounded || !s->decided)
            return no_memory(err);
        TRY(fill_set(s, k, err));
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; ir_node(g, i)->op != IR_OP_NONE && k < ir_node(g, i)->n_inputs; k++)
            if (ir_node(g, i)->inputs[k] != IR_NONE)
                s->left[ir_node(g, i)->inputs[k]]++;
    find_rounded(s);
    return STATUS_OK;
}

/* --- one node --- */

/* New values for the node's outputs in set k. */
static bool new_outputs(struct state *s, const struct ir_node *node, void *to[])
{
    bool ok = true;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        to[i] = value_take(s->walk->memory, ir_tensor(s->graph, node->outputs[i]));
        ok = ok && to[i];
    }
    return ok;
}

/* One run for each set, whose outputs the caller frees, also after a failure. */
static bool new_runs(struct state *s, const struct ir_node *node, const struct values *from,
                     struct layer_run *runs)
{
    bool ok = true;
    for (uint32_t k = 0; k < s->n_sets; k++) {
        runs[k] = (struct layer_run){.from = from->set[k]};
        ok = new_outputs(s, node, runs[k].to) && ok;
    }
    return ok;
}

static void give_outputs(const struct state *s, const struct ir_node *node, struct layer_run *runs,
                         struct values *to)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_outputs; i++)
            to->set[k][node->outputs[i]] = STEAL(runs[k].to[i]);
}

struct runs {
    struct value_memory *memory;
    struct layer_run list[2 * SETS_MAX];
};

static void runs_deinit(struct runs *runs)
{
    for (size_t k = 0; k < ARRAY_LEN(runs->list); k++)
        for (uint32_t i = 0; i < IR_MAX_OUTPUTS; i++)
            value_give(runs->memory, runs->list[k].to[i]);
}

/* Whether an earlier walk has left all that the node makes. */
static bool is_kept(const struct state *s, const struct ir_node *node)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_outputs; i++)
            if (!s->walk->memory->kept[k][node->outputs[i]])
                return false;
    return true;
}

/* Values that were kept already stay what they are. */
static void give_wide(struct state *s, const struct ir_node *node, struct layer_run *runs)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            uint32_t tensor = node->outputs[i];
            if (s->walk->memory->kept[k][tensor])
                continue;
            s->wide.set[k][tensor] = STEAL(runs[k].to[i]);
            value_keep(s->walk->memory, k, tensor, s->wide.set[k][tensor]);
        }
}

static enum status run_wide(struct state *s, const struct ir_node *node, struct device *device,
                            struct error *err)
{
    CLEANUP(runs_deinit) struct runs runs = {.memory = s->walk->memory};
    if (is_kept(s, node))
        return STATUS_OK;
    struct walk_times before = s->walk->times;
    uint64_t start = clock_now_ns();
    if (!new_runs(s, node, &s->wide, runs.list))
        return no_memory(err);
    TRY(layer_run_wide(machine_of(s, s->walk->host ? s->walk->host : device), s->graph, node,
                       runs.list, s->n_sets, err));
    give_wide(s, node, runs.list);
    s->walk->times = before;
    s->walk->times.ns[WALK_WIDE] += clock_now_ns() - start;
    return STATUS_OK;
}

/* Whether all that the node reads is as fp32 has made it. */
static bool reads_same(const struct state *s, const struct ir_node *node)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] != IR_NONE &&
                s->made.set[k][node->inputs[i]] != s->wide.set[k][node->inputs[i]])
                return false;
    return true;
}

/* The error of output `i`: of the runs' values, or of the assignment's if `runs` is NULL. */
static enum status measure(const struct state *s, const struct ir_node *node, uint32_t i,
                           const struct layer_run *runs, struct value_error *sum, struct error *err)
{
    uint32_t tensor = node->outputs[i];
    *sum = (struct value_error){0};
    for (uint32_t k = 0; k < s->n_sets; k++)
        if (!value_compare(ir_tensor(s->graph, tensor),
                           runs ? runs[k].to[i] : s->made.set[k][tensor], s->wide.set[k][tensor],
                           sum))
            return no_memory(err);
    return STATUS_OK;
}

/* Compares with what the model makes of fp32's value when it rounds it to 8 bits. */
static enum status compare_rounded(const struct state *s, uint32_t tensor, enum dtype dtype,
                                   const void *value, const void *wide, struct value_error *sum,
                                   struct error *err)
{
    struct ir_tensor stored = *ir_tensor(s->graph, tensor);
    size_t size = value_bytes(&stored) + 1;
    CLEANUP(cleanup_free) void *bytes = malloc(size);
    CLEANUP(cleanup_free) void *rounded = malloc(size);
    stored.real = ir_tensor_type(&stored);
    stored.format = (struct ir_format){IR_LAYOUT_PLAIN, dtype, stored.range};
    if (!bytes || !rounded || !value_store(s->graph, &stored, wide, bytes) ||
        !value_load(s->graph, &stored, bytes, rounded) ||
        !value_compare(ir_tensor(s->graph, tensor), value, rounded, sum))
        return no_memory(err);
    return STATUS_OK;
}

/* The error of output `i` of a layer with shorter types: of the runs' values, or of the
 * assignment's if `runs` is NULL. Storing it in 8 bits is none if the model rounds it to these. */
static enum status measure_short(const struct state *s, uint32_t index, uint32_t i,
                                 const struct layer_run *runs, struct value_error *sum,
                                 struct error *err)
{
    const struct ir_node *node = ir_node(s->graph, index);
    struct ir_format format = s->walk->layers[index].tactic->out[i].format;
    uint32_t tensor = node->outputs[i];
    *sum = (struct value_error){0};
    if (!s->rounded[tensor] || format.scale == IR_NO_SCALE)
        return measure(s, node, i, runs, sum, err);
    for (uint32_t k = 0; k < s->n_sets; k++)
        TRY(compare_rounded(s, tensor, format.dtype, runs ? runs[k].to[i] : s->made.set[k][tensor],
                            s->wide.set[k][tensor], sum, err));
    return STATUS_OK;
}

/* Runs the node as it was assigned: on fp32's values if it has shorter types, which gives its own
 * error, and on what it will get. */
static enum status run_made(struct state *s, uint32_t index, struct error *err)
{
    const struct ir_node *node = ir_node(s->graph, index);
    const struct tune_layer *layer = &s->walk->layers[index];
    CLEANUP(runs_deinit) struct runs runs = {.memory = s->walk->memory};
    struct layer_run *on_wide = runs.list, *on_made = runs.list + s->n_sets;
    bool same = reads_same(s, node);
    if ((layer->types && !new_runs(s, node, &s->wide, on_wide)) ||
        (!same && !new_runs(s, node, &s->made, on_made)))
        return no_memory(err);
    uint32_t n = (layer->types ? s->n_sets : 0) + (same ? 0 : s->n_sets);
    TRY(layer_run(machine_of(s, layer->device), s->graph, node, layer->tactic, false,
                  layer->types ? on_wide : on_made, n, err));
    for (uint32_t i = 0; layer->types && i < node->n_outputs; i++) {
        struct value_error sum;
        TRY(measure_short(s, index, i, on_wide, &sum, err));
        s->walk->rows[index].own = MAX(s->walk->rows[index].own, value_relative(&sum));
    }
    give_outputs(s, node, same ? on_wide : on_made, &s->made);
    return STATUS_OK;
}

static void share_outputs(struct state *s, const struct ir_node *node)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_outputs; i++)
            s->made.set[k][node->outputs[i]] = s->wide.set[k][node->outputs[i]];
}

static void note_output(struct state *s, uint32_t tensor, const struct value_error *sum)
{
    for (uint32_t i = 0; i < s->graph->n_outputs; i++)
        if (s->graph->outputs[i] == tensor)
            s->walk->outputs[i] = (struct guard_output){
                .error = value_relative(sum),
                .agreement =
                    sum->classes && sum->rows ? (double)sum->agree / (double)sum->rows : -1,
            };
}

static enum status note_errors(struct state *s, uint32_t index, struct error *err)
{
    const struct ir_node *node = ir_node(s->graph, index);
    struct walk_row *row = &s->walk->rows[index];
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        struct value_error sum;
        uint32_t tensor = node->outputs[i];
        if (s->made.set[0][tensor] == s->wide.set[0][tensor] &&
            !ir_tensor_is_output(s->graph, tensor))
            continue;
        if (s->walk->layers[index].types)
            TRY(measure_short(s, index, i, NULL, &sum, err));
        else
            TRY(measure(s, node, i, NULL, &sum, err));
        row->carried = MAX(row->carried, value_relative(&sum));
        note_output(s, tensor, &sum);
    }
    return STATUS_OK;
}

/* --- decisions --- */

static bool is_float(const struct ir_graph *graph, uint32_t tensor)
{
    return tensor != IR_NONE && dtype_is_float(ir_tensor_type(ir_tensor(graph, tensor)));
}

/* Whether the node makes something of floats that jumps: whole numbers, truth values. Integers of 8
 * bits are quantised floats, which only step. */
static bool decides(const struct ir_graph *graph, const struct ir_node *node)
{
    bool reads = false, writes = ir_node_jumps(node);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        reads = reads || is_float(graph, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        enum dtype type = ir_tensor_type(ir_tensor(graph, node->outputs[i]));
        if (type == DTYPE_I8 || type == DTYPE_U8 || type == DTYPE_F8)
            return false;
        writes = writes || !dtype_is_float(type);
    }
    return reads && writes;
}

/* The worst error of the floats that the node reads. */
static enum status error_read(const struct state *s, const struct ir_node *node, double *out,
                              struct error *err)
{
    *out = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        struct value_error sum = {0};
        uint32_t tensor = node->inputs[i];
        for (uint32_t k = 0; is_float(s->graph, tensor) && k < s->n_sets; k++)
            if (s->made.set[k][tensor] != s->wide.set[k][tensor] &&
                !value_compare(ir_tensor(s->graph, tensor), s->made.set[k][tensor],
                               s->wide.set[k][tensor], &sum))
                return no_memory(err);
        *out = MAX(*out, value_relative(&sum));
    }
    return STATUS_OK;
}

static void go_on_with_wide(struct state *s, const struct ir_node *node)
{
    for (uint32_t k = 0; k < s->n_sets; k++)
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            value_give(s->walk->memory, s->made.set[k][node->outputs[i]]);
            s->made.set[k][node->outputs[i]] = s->wide.set[k][node->outputs[i]];
        }
}

/* The error of what is decided on stands for the decision's, and fp32's decision for the
 * assignment's. */
static enum status note_decision(struct state *s, const struct ir_node *node, double *error,
                                 struct error *err)
{
    TRY(error_read(s, node, error, err));
    for (uint32_t i = 0; i < s->graph->n_outputs; i++)
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (s->graph->outputs[i] == node->outputs[k])
                s->walk->outputs[i].error = *error;
    go_on_with_wide(s, node);
    return STATUS_OK;
}

/* Whether the model itself rounds here. Nearly equal numbers may go either way, and networks of
 * many such steps make much of that, whoever computes them. */
static bool rounds(const struct state *s, const struct ir_node *node)
{
    return node->op == IR_OP_QUANTIZE && !ir_tensor_is_output(s->graph, node->outputs[0]);
}

/* Adds up how far the integers are from fp32's, and how far these are from the zero point. */
static void compare_steps(const struct ir_graph *g, const struct ir_node *node, const void *made,
                          const void *wide, struct value_error *sum)
{
    const struct ir_tensor *y = ir_tensor(g, node->outputs[0]);
    double start = 0;
    size_t n = 0;
    if (node->n_inputs > 2 && node->inputs[2] != IR_NONE &&
        ir_tensor_is_constant(ir_tensor(g, node->inputs[2])))
        start = ref_get_f64(y->dtype, ir_tensor(g, node->inputs[2])->data, 0);
    for (size_t i = 0; shape_elements(&y->shape, &n) && i < n; i++) {
        double a = ref_get_f64(y->dtype, made, (int64_t)i);
        double b = ref_get_f64(y->dtype, wide, (int64_t)i);
        sum->difference += (a - b) * (a - b);
        sum->norm += (b - start) * (b - start);
    }
}

/* How far the integers are from fp32's counts as the error of a decision, and fp32's are what the
 * rest of the model goes on with. */
static void note_rounding(struct state *s, const struct ir_node *node, double *error)
{
    uint32_t y = node->outputs[0];
    struct value_error sum = {0};
    for (uint32_t k = 0; k < s->n_sets; k++)
        compare_steps(s->graph, node, s->made.set[k][y], s->wide.set[k][y], &sum);
    *error = value_relative(&sum);
    go_on_with_wide(s, node);
}

/* Since the rest of the model goes on with fp32's decisions, their error is that of all that
 * follows from them: of an output at least. */
static void carry_decisions(struct state *s, const struct ir_node *node, double error)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            error = MAX(error, s->decided[node->inputs[i]]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        s->decided[node->outputs[i]] = error;
}

static void add_decisions(const struct state *s)
{
    for (uint32_t i = 0; i < s->graph->n_outputs; i++) {
        struct guard_output *output = &s->walk->outputs[i];
        output->error = MAX(output->error, s->decided[s->graph->outputs[i]]);
    }
}

/* --- the whole --- */

static void release(struct state *s, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && --s->left[node->inputs[i]] == 0)
            drop(s, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (s->left[node->outputs[i]] == 0)
            drop(s, node->outputs[i]);
}

static enum status step(struct state *s, uint32_t index, struct error *err)
{
    const struct ir_node *node = ir_node(s->graph, index);
    const struct tune_layer *layer = &s->walk->layers[index];
    TRY(run_wide(s, node, layer->device, err));
    bool shares = !layer->types && reads_same(s, node);
    double decided = 0;
    if (shares)
        share_outputs(s, node);
    else
        TRY(run_made(s, index, err));
    TRY(note_errors(s, index, err));
    if (!shares && rounds(s, node))
        note_rounding(s, node, &decided);
    else if (!shares && decides(s->graph, node))
        TRY(note_decision(s, node, &decided, err));
    carry_decisions(s, node, decided);
    release(s, node);
    return STATUS_OK;
}

enum status walk_graph(struct walk *walk, struct error *err)
{
    CLEANUP(state_deinit) struct state s = {.walk = walk, .graph = walk->graph};
    memset(walk->rows, 0, walk->graph->n_nodes * sizeof(*walk->rows));
    memset(walk->outputs, 0, walk->graph->n_outputs * sizeof(*walk->outputs));
    TRY(begin(&s, err));
    for (uint32_t i = 0; i < walk->graph->n_nodes; i++) {
        if (ir_node(walk->graph, i)->op == IR_OP_NONE)
            continue;
        enum status status = step(&s, i, err);
        if (status) {
            error_prefix(err, "comparing layer '%s' with fp32", ir_node(walk->graph, i)->name);
            return status;
        }
    }
    add_decisions(&s);
    return STATUS_OK;
}
