/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tuning a graph: collects candidates, has them timed, states the assignment problem, and has its
 * answer put into the graph.
 *
 * Among a node's candidates with the same formats only the fastest is an option of the problem.
 * Constants cost nothing to reformat: they are repacked when the plan is built. Graph inputs and
 * outputs are plain and keep their types.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/clock.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "engine/ir/runs.h"
#include "engine/tune/internal.h"
#include "engine/tune/solve.h"

/* A round finds that chosen tactics do not work, or beyond a limit of workspaces one for each
 * layer. */
enum { POOL_MIN = 1 << 16, POOL_MAX = 1 << 27, ROUNDS_MAX = 16, ROUNDS_OF_LIMIT = 600 };

/* A graph of many layers that take so long is far from SOLVE_NEVER still. */
#define UNWISHED_NS UINT64_C(1000000000000)

/* The costs of bringing tensors of one type and shape from some formats into others. */
struct prices {
    struct {
        struct shape shape;
        uint32_t dtype, layout, range;
        uint32_t from, to; /* sets of formats */
    } key;
    uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
    UT_hash_handle hh;
};

/* The readers of tensor i are readers[first_reader[i] .. first_reader[i + 1]). */
struct reader {
    uint32_t node, input;
};

struct tuner {
    struct ir_graph *graph;
    const struct tune_options *options;
    struct tune_report *report;
    struct tune_table *table;
    struct arena *memory;    /* of the problem */
    struct tune_site *sites; /* by node; a removed node has no entry */
    uint32_t *held;          /* by node: types that are ruled out, as in struct tune_judge */
    struct node_options {
        uint32_t n;
        struct tune_pick *picks; /* the fastest of each set of formats */
    } * nodes;
    uint32_t *first_reader;
    struct reader *readers;
    struct solve_node *solve_nodes;
    struct solve_tensor *tensors;
    uint32_t n_tensors;
    struct prices *prices; /* hash table; in `memory` */
    /* The formats by their numbers, sorted. They are relative to a tensor, see relative(). */
    struct sided {
        enum ir_side side; /* where the tensor is */
        struct ir_format format;
    } formats[SOLVE_FORMATS];
    uint32_t n_formats;
    bool sides; /* some node may run on the host */
};

/* Graph inputs and outputs: plain, in the graph's own type, and on either side for nothing. */
static const uint8_t plain_end[1] = {0};

/* --- options --- */

static enum status unsupported(const struct ir_node *node, const char *why, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED, "%s '%s' (%s) on this device", why, node->name,
                     ir_op_name(node->op));
}

static enum status refused(const struct tuner *t, const struct tune_entry *e, struct error *err)
{
    const struct tune_options *o = t->options;
    uint64_t pins = e->pins & ~tune_pins_wishes(o->pins, e->pins);
    return pins ? tune_pins_refuse(o->pins, pins, e->sample, o->device, o->host, o->precision, err)
                : unsupported(ir_node(e->sample, 0), "no kernel for", err);
}

static enum status collect(struct tuner *t, struct error *err)
{
    TRY(tune_pins_check(t->options->pins, t->graph, err));
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(t->graph, i);
        if (node->op == IR_OP_NONE)
            continue;
        TRY(tune_table_node(t->table, t->graph, node, &t->sites[i].entry, err));
    }
    TRY(tune_table_ask(t->table, err));
    for (uint32_t i = 0; i < t->graph->n_nodes; i++)
        if (t->sites[i].entry && t->sites[i].entry->n == 0)
            return refused(t, t->sites[i].entry, err);
    return tune_sites_twin(t->table, t->graph, t->sites, err);
}

static int by_format(const void *a, const void *b)
{
    const struct sided *first = a, *second = b;
    const struct ir_format *x = &first->format, *y = &second->format;
    if (first->side != second->side)
        return first->side < second->side ? -1 : 1;
    if (x->scale != y->scale)
        return x->scale < y->scale ? -1 : 1;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    return x->layout == y->layout ? 0 : x->layout < y->layout ? -1 : 1;
}

static enum ir_side side_of(const struct tuner *t, const struct tactic *tactic)
{
    if (!t->sides)
        return IR_SIDE_ANY;
    bool host = strcmp(tactic->backend, t->options->device->backend->name) != 0;
    return host ? IR_SIDE_HOST : IR_SIDE_DEVICE;
}

/* The format that a port gives the tensor, relative to the tensor: layouts that agree are one
 * layout, dtype is NONE if the tensor keeps its type, and scale is 1 if the tensor is stored by its
 * range. */
static struct sided relative(enum ir_side side, const struct ir_tensor *x,
                             const struct tactic_port *port)
{
    struct ir_format f = tune_port_format(x, port);
    f.layout = tune_layout_least(&x->shape, f.layout);
    f.dtype = f.dtype == x->dtype ? DTYPE_NONE : f.dtype;
    f.scale = f.scale != IR_NO_SCALE;
    return (struct sided){side, f};
}

static struct ir_format absolute(const struct ir_tensor *x, struct ir_format f)
{
    f.dtype = f.dtype == DTYPE_NONE ? x->dtype : f.dtype;
    f.scale = f.scale ? x->range : IR_NO_SCALE;
    return f;
}

static uint8_t format_number(const struct tuner *t, uint32_t tensor, const struct tactic *tactic,
                             const struct tactic_port *port)
{
    struct sided f = relative(side_of(t, tactic), ir_tensor(t->graph, tensor), port);
    uint8_t i = 0;
    while (i < t->n_formats && by_format(&t->formats[i], &f) != 0)
        i++;
    return i;
}

static enum status note_format(struct tuner *t, uint32_t tensor, const struct tactic *tactic,
                               const struct tactic_port *port, struct error *err)
{
    if (tensor == IR_NONE || ir_tensor_is_constant(ir_tensor(t->graph, tensor)))
        return STATUS_OK;
    uint8_t number = format_number(t, tensor, tactic, port);
    if (number == SOLVE_FORMATS)
        return error_set(err, STATUS_INTERNAL, "tuner: tensor '%s' has more than %d formats",
                         ir_tensor(t->graph, tensor)->name, SOLVE_FORMATS);
    if (number == t->n_formats)
        t->formats[t->n_formats++] =
            relative(side_of(t, tactic), ir_tensor(t->graph, tensor), port);
    return STATUS_OK;
}

static enum status note_entry(struct tuner *t, const struct ir_node *node,
                              const struct tune_entry *e, struct error *err)
{
    for (uint32_t k = 0; e && k < e->n; k++) {
        const struct tactic *tactic = e->options[k].tactic;
        for (uint32_t p = 0; p < node->n_inputs; p++)
            TRY(note_format(t, node->inputs[p], tactic, tune_port_in(tactic, p), err));
        for (uint32_t p = 0; p < node->n_outputs; p++)
            TRY(note_format(t, node->outputs[p], tactic, &tactic->out[p], err));
    }
    return STATUS_OK;
}

static bool has_sides(const struct tuner *t)
{
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        const struct tune_site *s = &t->sites[i];
        if (s->twin || tune_on_host(t->options, s->entry))
            return true;
    }
    return false;
}

/* Lists the formats of all ports. The first one is that of graph inputs and outputs. */
static enum status find_formats(struct tuner *t, struct error *err)
{
    t->sides = has_sides(t);
    t->formats[0] = (struct sided){IR_SIDE_ANY, {IR_LAYOUT_PLAIN, DTYPE_NONE, IR_NO_SCALE}};
    t->n_formats = 1;
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        TRY(note_entry(t, ir_node(t->graph, i), t->sites[i].entry, err));
        TRY(note_entry(t, ir_node(t->graph, i), t->sites[i].twin, err));
    }
    qsort(t->formats, t->n_formats, sizeof(*t->formats), by_format);
    return STATUS_OK;
}

static uint8_t format_in(const struct tuner *t, const struct ir_node *node,
                         const struct tactic *tactic, uint32_t input)
{
    return format_number(t, node->inputs[input], tactic, tune_port_in(tactic, input));
}

static uint8_t format_out(const struct tuner *t, const struct ir_node *node,
                          const struct tactic *tactic, uint32_t output)
{
    return format_number(t, node->outputs[output], tactic, &tactic->out[output]);
}

/* Whether two tactics have the same formats, constants apart. */
static bool same_formats(const struct tuner *t, const struct ir_node *node, const struct tactic *a,
                         const struct tactic *b)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE &&
            !ir_tensor_is_constant(ir_tensor(t->graph, node->inputs[i])) &&
            format_in(t, node, a, i) != format_in(t, node, b, i))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (format_out(t, node, a, i) != format_out(t, node, b, i))
            return false;
    return true;
}

static uint64_t ns_of(const struct tune_pick *pick)
{
    return pick->entry->options[pick->option].ns;
}

static const struct tactic *tactic_of(const struct tune_pick *pick)
{
    return pick->entry->options[pick->option].tactic;
}

static void sort_entry(const struct tuner *t, uint32_t index, struct tune_entry *e,
                       struct node_options *o)
{
    const struct ir_node *node = ir_node(t->graph, index);
    for (uint32_t i = 0; e && i < e->n; i++) {
        const struct tune_pick pick = {e, i};
        uint32_t k = 0;
        if (ns_of(&pick) >= TUNE_NEVER ||
            (t->held[index] && t->held[index] & tune_types(e->sample, tactic_of(&pick))))
            continue;
        while (k < o->n && !same_formats(t, node, tactic_of(&o->picks[k]), tactic_of(&pick)))
            k++;
        if (k == o->n)
            o->picks[o->n++] = pick;
        else if (ns_of(&pick) < ns_of(&o->picks[k]))
            o->picks[k] = pick;
    }
}

/* What an operator wishes for a layer is worth more than all time that the graph may take. */
static uint64_t unwished_ns(const struct tuner *t, const struct tune_pick *pick)
{
    const struct tune_entry *e = pick->entry;
    bool wished = tune_pins_wished(t->options->pins, e->pins, e->sample, tactic_of(pick));
    return wished ? 0 : UNWISHED_NS;
}

/* Whether the part of a node's tensor is one run of its bytes in the format, and aligned. */
static bool part_fits(const struct ir_tensor *whole, const struct ir_tensor *part,
                      const int64_t *start, const struct ir_format *format)
{
    uint64_t offset;
    return ir_part_offset(&whole->shape, &part->shape, start, format->dtype, format->layout,
                          &offset) &&
           offset % BACKEND_ALIGN == 0;
}

/* Whether other nodes write all inputs of a node that joins, so that they may write them where the
 * output has them (engine/build/parts.h). */
static bool joins_free(const struct tuner *t, const struct ir_node *node,
                       const struct tactic *tactic)
{
    const struct ir_tensor *y = ir_tensor(t->graph, node->outputs[0]);
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    int64_t start[SHAPE_MAX_RANK] = {0};
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct ir_tensor *x = ir_tensor(t->graph, node->inputs[i]);
        bool again = false;
        for (uint32_t k = 0; k < i && !again; k++)
            again = node->inputs[k] == node->inputs[i];
        if (again || x->producer == IR_NONE || ir_tensor_is_output(t->graph, node->inputs[i]) ||
            !ir_format_equal(tune_port_in(tactic, i)->format, tactic->out[0].format) ||
            !part_fits(y, x, start, &tactic->out[0].format))
            return false;
        start[axis] += x->shape.dim[axis];
    }
    return true;
}

/* Whether a slice may be read where it is. */
static bool cuts_free(const struct tuner *t, const struct ir_node *node,
                      const struct tactic *tactic)
{
    const struct ir_tensor *x = ir_tensor(t->graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(t->graph, node->outputs[0]);
    int64_t start[SHAPE_MAX_RANK] = {0};
    if (ir_tensor_is_constant(x) || ir_tensor_is_output(t->graph, node->outputs[0]) ||
        !ir_format_equal(tactic->in[0].format, tactic->out[0].format))
        return false;
    for (uint32_t d = 0; d < x->shape.rank; d++) {
        start[d] = ir_attr_at(node, IR_ATTR_STARTS, d);
        if (ir_attr_at(node, IR_ATTR_STEPS, d) != 1 && y->shape.dim[d] != 1)
            return false;
    }
    return part_fits(x, y, start, &tactic->out[0].format);
}

/* What the solver pays for the option: nothing, if the node will not run. */
static uint64_t cost_of(const struct tuner *t, uint32_t index, const struct tune_pick *pick)
{
    const struct ir_node *node = ir_node(t->graph, index);
    bool is_free = !node->n_epilogue && node->n_outputs == 1 &&
                   ((ir_op_has(node->op, IR_TRAIT_JOINS) && joins_free(t, node, tactic_of(pick))) ||
                    (ir_op_has(node->op, IR_TRAIT_CUTS) && cuts_free(t, node, tactic_of(pick))));
    return MIN((is_free ? 0 : ns_of(pick)) + unwished_ns(t, pick), SOLVE_NEVER);
}

static bool sort_options(struct tuner *t, uint32_t index)
{
    const struct tune_site *s = &t->sites[index];
    struct node_options *o = &t->nodes[index];
    size_t most = (size_t)s->entry->n + (s->twin ? s->twin->n : 0) + 1;
    o->picks = arena_array(t->memory, most, sizeof(*o->picks));
    uint64_t *cost = arena_array(t->memory, most, sizeof(*cost));
    if (!o->picks || !cost)
        return false;
    o->n = 0;
    if (!s->exiled)
        sort_entry(t, index, s->entry, o);
    sort_entry(t, index, s->twin, o);
    for (uint32_t k = 0; k < o->n; k++)
        cost[k] = cost_of(t, index, &o->picks[k]);
    t->solve_nodes[index] = (struct solve_node){o->n, cost};
    return true;
}

/* --- the problem --- */

/* The formats of one port of a node, by option. */
static const uint8_t *formats_of(struct tuner *t, uint32_t node, bool output, uint32_t port)
{
    const struct node_options *o = &t->nodes[node];
    const struct ir_node *n = ir_node(t->graph, node);
    uint8_t *formats = arena_array(t->memory, o->n, 1);
    for (uint32_t k = 0; formats && k < o->n; k++) {
        const struct tactic *tactic = tactic_of(&o->picks[k]);
        formats[k] = output ? format_out(t, n, tactic, port) : format_in(t, n, tactic, port);
    }
    return formats;
}

static void mark(uint32_t *set, const struct solve_end *end, const struct solve_node *nodes)
{
    uint32_t n = end->node == IR_NONE ? 1 : nodes[end->node].n;
    for (uint32_t k = 0; k < n; k++)
        *set |= 1U << end->format[k];
}

/* The sets of formats that a tensor's ends may want. */
static void mark_ends(const struct tuner *t, const struct solve_tensor *s, uint32_t *from,
                      uint32_t *to)
{
    mark(from, &s->from, t->solve_nodes);
    for (uint32_t u = 0; u < s->n_uses; u++)
        mark(to, &s->uses[u], t->solve_nodes);
}

/* Prices the way of a tensor from one format into another: a reformat, on the device, and the
 * crossing to the other side. */
static enum status price_way(struct tuner *t, uint32_t tensor, const struct sided *from,
                             const struct sided *to, uint64_t *out, struct error *err)
{
    const struct ir_tensor *x = ir_tensor(t->graph, tensor);
    struct tune_entry *e;
    *out = from->side && to->side && from->side != to->side ? tune_crossing_ns(x) : 0;
    if (ir_format_equal(from->format, to->format))
        return STATUS_OK;
    TRY(tune_table_reformat(t->table, t->graph, tensor, absolute(x, from->format),
                            absolute(x, to->format), &e, err));
    *out = e->n ? MIN(*out + e->options[0].ns, SOLVE_NEVER) : SOLVE_NEVER;
    return STATUS_OK;
}

static enum status fill_prices(struct tuner *t, uint32_t tensor, struct prices *p,
                               struct error *err)
{
    for (unsigned a = 0; a < SOLVE_FORMATS; a++)
        for (unsigned b = 0; b < SOLVE_FORMATS; b++) {
            p->reformat[a][b] = a == b ? 0 : SOLVE_NEVER;
            if (a != b && (p->key.from >> a & 1) && (p->key.to >> b & 1))
                TRY(price_way(t, tensor, &t->formats[a], &t->formats[b], &p->reformat[a][b], err));
        }
    return STATUS_OK;
}

static enum status price(struct tuner *t, uint32_t tensor, uint32_t from, uint32_t to,
                         struct solve_tensor *s, struct error *err)
{
    const struct ir_tensor *x = ir_tensor(t->graph, tensor);
    struct prices *p, *known;
    if (!(p = arena_alloc(t->memory, sizeof(*p))))
        return error_no_memory(err, "the tuner");
    memset(p, 0, sizeof(*p));
    p->key.shape.rank = x->shape.rank;
    memcpy(p->key.shape.dim, x->shape.dim, x->shape.rank * sizeof(x->shape.dim[0]));
    p->key.dtype = x->dtype;
    p->key.layout = x->layout;
    p->key.range = x->range;
    p->key.from = from;
    p->key.to = to;
    HASH_FIND(hh, t->prices, &p->key, sizeof(p->key), known);
    if (!known) {
        TRY(fill_prices(t, tensor, p, err));
        HASH_ADD(hh, t->prices, key, sizeof(p->key), p);
        if (!HASH_ADDED(p))
            return error_no_memory(err, "the tuner");
        known = p;
    }
    s->reformat = (const uint64_t(*)[SOLVE_FORMATS])known->reformat;
    return STATUS_OK;
}

static bool find_uses(struct tuner *t, uint32_t tensor, struct solve_tensor *s)
{
    uint32_t begin = t->first_reader[tensor], end = t->first_reader[tensor + 1];
    bool output = ir_tensor_is_output(t->graph, tensor);
    struct solve_end *uses = arena_array(t->memory, end - begin + output, sizeof(*uses));
    if (!uses)
        return false;
    s->uses = uses;
    for (uint32_t i = begin; i < end; i++) {
        const struct reader *r = &t->readers[i];
        uses[s->n_uses] = (struct solve_end){r->node, formats_of(t, r->node, false, r->input)};
        if (!uses[s->n_uses++].format)
            return false;
    }
    if (output)
        uses[s->n_uses++] = (struct solve_end){IR_NONE, plain_end};
    return true;
}

static enum status state_tensor(struct tuner *t, uint32_t tensor, struct error *err)
{
    const struct ir_tensor *x = ir_tensor(t->graph, tensor);
    struct solve_tensor s = {.from = {IR_NONE, plain_end}};
    uint32_t from = 0, to = 0;
    if (ir_tensor_is_constant(x))
        return STATUS_OK;
    for (uint32_t i = 0; x->producer != IR_NONE && i < IR_MAX_OUTPUTS; i++)
        if (i < ir_node(t->graph, x->producer)->n_outputs &&
            ir_node(t->graph, x->producer)->outputs[i] == tensor)
            s.from = (struct solve_end){x->producer, formats_of(t, x->producer, true, i)};
    if (!s.from.format || !find_uses(t, tensor, &s))
        return error_no_memory(err, "the tuner");
    mark_ends(t, &s, &from, &to);
    if ((from | to) == 0 || ((from | to) & ((from | to) - 1)) == 0 || s.n_uses == 0)
        return STATUS_OK; /* one format at all ends: nothing to decide, nothing to pay */
    TRY(price(t, tensor, from, to, &s, err));
    t->tensors[t->n_tensors++] = s;
    return STATUS_OK;
}

static enum status beyond(const struct tuner *t, const struct ir_node *node, uint64_t least,
                          struct error *err)
{
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "layer '%s' (%s): its kernels need a workspace of %.2f MiB at least; at most "
                     "%.2f MiB are allowed",
                     node->name, ir_op_name(node->op), (double)least / (1 << 20),
                     (double)t->options->workspace / (1 << 20));
}

/* Every node had candidates; here it must have one that works. */
static enum status check_options(const struct tuner *t, struct error *err)
{
    for (uint32_t i = 0; i < t->graph->n_nodes; i++)
        if (t->sites[i].entry && t->nodes[i].n == 0)
            return t->sites[i].entry->least_beyond
                       ? beyond(t, ir_node(t->graph, i), t->sites[i].entry->least_beyond, err)
                       : unsupported(ir_node(t->graph, i), "no kernel works for", err);
    return STATUS_OK;
}

static enum status state_problem(struct tuner *t, struct error *err)
{
    static const uint64_t nothing[1] = {0};
    t->n_tensors = 0;
    HASH_CLEAR(hh, t->prices); /* times may have changed */
    TRY(find_formats(t, err));
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        t->solve_nodes[i] = (struct solve_node){1, nothing};
        if (t->sites[i].entry && !sort_options(t, i))
            return error_no_memory(err, "the tuner");
    }
    TRY(check_options(t, err));
    for (uint32_t i = 0; i < t->graph->n_tensors; i++)
        TRY(state_tensor(t, i, err));
    return STATUS_OK;
}

/* --- the answer --- */

static enum status choose(struct tuner *t, uint32_t *choice, struct tune_pick *picks,
                          struct error *err)
{
    struct solve_problem p = {t->graph->n_nodes, t->n_tensors, t->solve_nodes, t->tensors};
    bool exact;
    TRY(solve(&p, 0, choice, &exact, err));
    uint64_t cost = solve_cost(&p, choice); /* with UNWISHED_NS for what was wished in vain */
    if (cost >= SOLVE_NEVER)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "no way to bring the layers' layouts and types together");
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        picks[i] = t->sites[i].entry ? t->nodes[i].picks[choice[i]] : (struct tune_pick){0};
        cost -= picks[i].entry ? unwished_ns(t, &picks[i]) : 0;
    }
    log_write(t->options->log, LOG_VERBOSE, "tuner: %u nodes, %.1f us, %s", t->graph->n_nodes,
              (double)cost / 1000, exact ? "the best assignment" : "by local improvement");
    t->report->time_ns = t->report->timed + t->report->from_cache > 0 ? cost : 0;
    return STATUS_OK;
}

static void forget_chosen(struct tune_entry *e)
{
    for (uint32_t k = 0; e && k < e->n; k++)
        e->options[k].chosen = false;
}

/* Lists each chosen option once. Returns how many there are. */
static uint32_t list_chosen(struct tuner *t, const struct tune_pick *picks, struct tune_job *jobs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        forget_chosen(t->sites[i].entry);
        forget_chosen(t->sites[i].twin);
    }
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        struct tune_entry *e = picks[i].entry;
        if (!e || e->options[picks[i].option].chosen)
            continue;
        e->options[picks[i].option].chosen = true;
        jobs[n++] = (struct tune_job){.entry = e, .option = &e->options[picks[i].option]};
    }
    return n;
}

static enum status fill_again(struct tuner *t, struct error *err)
{
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        if (t->sites[i].entry)
            TRY(tune_fill_entry(t->table, t->sites[i].entry, err));
        if (t->sites[i].twin)
            TRY(tune_fill_entry(t->table, t->sites[i].twin, err));
    }
    return STATUS_OK;
}

/* Chooses until all runs on the device are long enough. */
static enum status choose_sides(struct tuner *t, uint32_t *choice, struct tune_pick *picks,
                                struct error *err)
{
    for (bool again = true; again;) {
        TRY(state_problem(t, err));
        TRY(choose(t, choice, picks, err));
        TRY(tune_sites_exile(t->table, t->graph, t->sites, picks, &again, err));
    }
    return STATUS_OK;
}

/* A tactic whose time was guessed or remembered may turn out not to work here: then the next best
 * assignment is chosen. */
static enum status settle(struct tuner *t, struct tune_pick *picks, struct error *err)
{
    size_t nodes = (size_t)t->graph->n_nodes + 1;
    struct tune_job *jobs = arena_array(t->memory, nodes, sizeof(*jobs));
    uint32_t *choice = arena_array(t->memory, nodes, sizeof(*choice));
    if (!jobs || !choice)
        return error_no_memory(err, "the tuner");
    int most = t->options->workspace ? ROUNDS_OF_LIMIT : ROUNDS_MAX;
    for (int round = 0; round < most; round++) {
        bool again = false;
        TRY(choose_sides(t, choice, picks, err));
        TRY(tune_compile_chosen(t->table, jobs, list_chosen(t, picks, jobs), t->graph->arena,
                                &again, err));
        if (!again)
            return STATUS_OK;
        TRY(fill_again(t, err));
    }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "too many of the chosen tactics do not work on this device");
}

/* --- beginning --- */

/* The bytes of all constants, rounded up to a power of two, so that models of about the same size
 * share their times, and cut off at a size that no device's cache reaches. */
static uint64_t pool_bytes(const struct ir_graph *graph)
{
    uint64_t sum = 0, rounded = POOL_MIN;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor_is_constant(ir_tensor(graph, i)))
            sum += ir_tensor(graph, i)->bytes;
    while (rounded < sum && rounded < POOL_MAX)
        rounded *= 2;
    return rounded;
}

/* Counts the readers of each tensor, sums the counts up, and puts readers where the sums say. */
static bool find_readers(struct tuner *t)
{
    const struct ir_graph *g = t->graph;
    size_t n_edges = 0, n = (size_t)g->n_tensors + 2;
    uint32_t *next = arena_array(t->memory, n, sizeof(*next));
    t->first_reader = arena_array(t->memory, n, sizeof(*t->first_reader));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n_edges += ir_node(g, i)->n_inputs;
    t->readers = arena_array(t->memory, n_edges + 1, sizeof(*t->readers));
    if (!next || !t->first_reader || !t->readers)
        return false;
    memset(t->first_reader, 0, n * sizeof(*t->first_reader));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; ir_node(g, i)->op != IR_OP_NONE && k < ir_node(g, i)->n_inputs; k++)
            if (ir_node(g, i)->inputs[k] != IR_NONE)
                t->first_reader[ir_node(g, i)->inputs[k] + 1]++;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        t->first_reader[i + 1] += t->first_reader[i];
    memcpy(next, t->first_reader, n * sizeof(*next));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; ir_node(g, i)->op != IR_OP_NONE && k < ir_node(g, i)->n_inputs; k++)
            if (ir_node(g, i)->inputs[k] != IR_NONE)
                t->readers[next[ir_node(g, i)->inputs[k]]++] = (struct reader){i, k};
    return true;
}

static enum status start(struct tuner *t, struct tune_pick **picks, struct error *err)
{
    size_t nodes = (size_t)t->graph->n_nodes + 1;
    t->memory = arena_new(0);
    if (!t->memory)
        return error_no_memory(err, "the tuner");
    t->sites = arena_array(t->memory, nodes, sizeof(*t->sites));
    t->held = arena_array(t->memory, nodes, sizeof(*t->held));
    t->nodes = arena_array(t->memory, nodes, sizeof(*t->nodes));
    t->solve_nodes = arena_array(t->memory, nodes, sizeof(*t->solve_nodes));
    t->tensors = arena_array(t->memory, (size_t)t->graph->n_tensors + 1, sizeof(*t->tensors));
    *picks = arena_array(t->memory, nodes, sizeof(**picks));
    if (!t->sites || !t->held || !t->nodes || !t->solve_nodes || !t->tensors || !*picks ||
        !find_readers(t))
        return error_no_memory(err, "the tuner");
    return tune_table_new(t->options, pool_bytes(t->graph), t->report, &t->table, err);
}

/* --- the judge --- */

static enum status ensure_all(struct tuner *t, struct error *err)
{
    for (uint32_t i = 0; i < t->graph->n_nodes; i++)
        if (t->held[i] && t->sites[i].entry)
            TRY(tune_held_ensure(t->table, t->graph, i, &t->sites[i], &t->held[i], err));
    return STATUS_OK;
}

static enum status ask_judge(struct tuner *t, const struct tune_pick *picks, bool *again,
                             struct error *err)
{
    const struct tune_judge *judge = t->options->judge;
    size_t nodes = (size_t)t->graph->n_nodes + 1;
    *again = false;
    if (!judge)
        return STATUS_OK;
    struct tune_layer *layers = arena_array(t->memory, nodes, sizeof(*layers));
    if (!layers)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < t->graph->n_nodes; i++)
        layers[i] = tune_held_layer(&picks[i], &t->sites[i]);
    TRY(judge->look(judge->user, t->graph, layers, t->held, again, err));
    return ensure_all(t, err);
}

/* Chooses until the judge has nothing against it. */
static enum status settle_all(struct tuner *t, struct tune_pick *picks, struct error *err)
{
    const struct tune_judge *judge = t->options->judge;
    if (judge)
        TRY(judge->begin(judge->user, t->graph, t->held, err));
    TRY(ensure_all(t, err));
    for (bool again = true; again;) {
        uint64_t since = clock_now_ns();
        TRY(settle(t, picks, err));
        tune_phase_end(t->report, TUNE_CHOOSE, &since);
        TRY(ask_judge(t, picks, &again, err));
        tune_phase_end(t->report, TUNE_JUDGE, &since);
    }
    return STATUS_OK;
}

/* --- the whole tuning --- */

static enum status tune(struct tuner *t, struct error *err)
{
    struct tune_pick *picks = NULL;
    uint64_t since = clock_now_ns();
    TRY(start(t, &picks, err));
    TRY(collect(t, err));
    tune_phase_end(t->report, TUNE_LIST, &since);
    TRY(tune_fill(t->table, err));
    TRY(settle_all(t, picks, err));
    if (t->options->trial) {
        tune_apply_times(t->graph, picks);
        return STATUS_OK;
    }
    tune_sites_tell(t->table, t->graph, t->sites, picks);
    return tune_apply(t->graph, t->table, picks, err);
}

enum status tune_graph(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_report *report, struct error *err)
{
    struct tune_report sum = {0};
    struct tuner t = {.graph = graph, .options = options, .report = &sum};
    enum status status = tune(&t, err);
    HASH_CLEAR(hh, t.prices);
    tune_table_free(t.table);
    if (options->device->backend->compile_drop)
        options->device->backend->compile_drop(options->device);
    arena_free(t.memory);
    if (!status && report)
        *report = sum;
    return status;
}
