/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one node of a graph on values: as a sample of its own, whose constants are packed or
 * converted as the tuner would do in the plan. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/guard/internal.h"
#include "engine/tune/internal.h"

enum {
    WIDE_MAX = 8,     /* tactics in fp32 that are tried */
    SPARE_MIB = 2048, /* of a machine at most */
};

static enum status no_memory(struct error *err)
{
    return error_no_memory(err, "the comparison with fp32");
}

/* --- machines --- */

static enum status machine_open(struct layer_machine *m, struct error *err)
{
    const struct backend *backend = m->device->backend;
    if (!m->stream)
        TRY(backend->stream_new(m->device, &m->stream, err));
    return m->done ? STATUS_OK : backend->event_new(m->device, false, &m->done, err);
}

static void drop_spares(struct layer_machine *m)
{
    while (m->n_spare)
        m->device->backend->memory_free(m->device, MEMORY_DEVICE, m->spare[--m->n_spare].at);
    m->spare_bytes = 0;
}

/* Takes a spare of at least `size` bytes that is not much larger, or else new memory, for which the
 * spares go if there is not enough. A large batch's tensors have gigabytes, which a host's system
 * would have to clear for each layer. */
static enum status take_memory(struct layer_machine *m, size_t size, struct layer_memory *out,
                               struct error *err)
{
    const struct backend *backend = m->device->backend;
    for (uint32_t i = 0; i < m->n_spare; i++)
        if (m->spare[i].size >= size && m->spare[i].size / 2 <= size) {
            *out = m->spare[i];
            m->spare_bytes -= out->size;
            m->spare[i] = m->spare[--m->n_spare];
            return STATUS_OK;
        }
    out->size = MAX(size, (size_t)1);
    enum status status =
        backend->memory_alloc(m->device, MEMORY_DEVICE, out->size, "comparison", &out->at, err);
    if (!status || m->n_spare == 0)
        return status;
    drop_spares(m);
    return backend->memory_alloc(m->device, MEMORY_DEVICE, out->size, "comparison", &out->at, err);
}

/* Takes the memory back, if it is any. */
static void give_memory(struct layer_machine *m, struct layer_memory memory)
{
    bool keep = m->n_spare < LAYER_SPARES && (m->spare_bytes + memory.size) >> 20 < SPARE_MIB;
    if (!memory.at)
        return;
    if (!keep) {
        m->device->backend->memory_free(m->device, MEMORY_DEVICE, memory.at);
        return;
    }
    m->spare[m->n_spare++] = memory;
    m->spare_bytes += memory.size;
}

void layer_machine_close(struct layer_machine *m)
{
    drop_spares(m);
    if (m->stored)
        m->device->backend->memory_free(m->device, MEMORY_PINNED, m->stored);
    if (m->done)
        m->device->backend->event_free(m->done);
    if (m->stream)
        m->device->backend->stream_free(m->stream);
    *m = (struct layer_machine){.device = m->device, .times = m->times};
}

/* Counts the time since *since, which becomes now. */
static void count_time(struct layer_machine *m, enum walk_part part, uint64_t *since)
{
    uint64_t now = clock_now_ns();
    if (m->times)
        m->times->ns[part] += now - *since;
    *since = now;
}

/* Room for a tensor on its way to or from the device. */
static enum status stored_room(struct layer_machine *m, size_t size, void **out, struct error *err)
{
    const struct backend *backend = m->device->backend;
    if (m->stored && m->stored_size < size) {
        backend->memory_free(m->device, MEMORY_PINNED, m->stored);
        m->stored = NULL;
    }
    if (!m->stored) {
        TRY(backend->memory_alloc(m->device, MEMORY_PINNED, MAX(size, (size_t)1), "comparison",
                                  &m->stored, err));
        m->stored_size = size;
    }
    *out = m->stored;
    return STATUS_OK;
}

static enum status settle(struct layer_machine *m, struct error *err)
{
    TRY(m->device->backend->event_record(m->done, m->stream, err));
    return m->device->backend->event_wait(m->done, err);
}

static enum status copy(struct layer_machine *m, enum copy_direction direction, void *to,
                        const void *from, size_t size, struct error *err)
{
    const struct backend_copy one = {to, from, size};
    if (size)
        TRY(m->device->backend->copy(m->stream, direction, &one, 1, err));
    return settle(m, err);
}

/* --- a node as a graph of its own --- */

struct layer {
    struct layer_machine *machine;
    struct ir_graph *sample;
    struct ir_node *node;
    struct tactic tactic; /* its ports name the sample's scales */
    struct backend_op *op;
    struct layer_memory inputs[IR_MAX_INPUTS], outputs[IR_MAX_OUTPUTS], workspace;
    bool renames; /* the output is the input's bytes: in a plan it is an alias, which never runs */
};

static void layer_cleanup(struct layer **at)
{
    struct layer *l = *at;
    if (!l)
        return;
    const struct backend *backend = l->machine->device->backend;
    if (l->op)
        backend->op_free(l->op);
    for (uint32_t i = 0; i < IR_MAX_INPUTS; i++)
        give_memory(l->machine, l->inputs[i]);
    for (uint32_t i = 0; i < IR_MAX_OUTPUTS; i++)
        give_memory(l->machine, l->outputs[i]);
    give_memory(l->machine, l->workspace);
    ir_graph_free(l->sample);
    free(l);
}

static struct ir_tensor *input_of(const struct layer *l, uint32_t i)
{
    uint32_t id = l->node->inputs[i];
    return id == IR_NONE ? NULL : ir_tensor(l->sample, id);
}

static bool set_ports(struct layer *l)
{
    for (uint32_t i = 0; i < l->tactic.n_in; i++)
        if (input_of(l, i))
            l->tactic.in[i].format = tune_port_format(input_of(l, i), &l->tactic.in[i]);
    for (uint32_t i = 0; i < l->node->n_outputs; i++) {
        struct tactic_port *port = &l->tactic.out[i];
        port->format = tune_port_format(ir_tensor(l->sample, l->node->outputs[i]), port);
        if (!ir_tensor_set_format(l->sample, l->node->outputs[i], port->format))
            return false;
    }
    for (uint32_t i = 0; i < l->node->n_inputs; i++) {
        const struct ir_tensor *t = input_of(l, i);
        if (t && !ir_tensor_is_constant(t) &&
            !ir_tensor_set_format(l->sample, l->node->inputs[i],
                                  tune_port_format(t, tune_port_in(&l->tactic, i))))
            return false;
    }
    return true;
}

static enum status pack(struct layer *l, uint32_t input, void **out, struct error *err)
{
    struct device *device = l->machine->device;
    *out = arena_alloc(l->sample->arena, tune_port_in(&l->tactic, input)->packed_bytes);
    if (!*out)
        return no_memory(err);
    if (!device->backend->pack)
        return error_set(err, STATUS_INTERNAL, "the backend cannot pack constants");
    return device->backend->pack(device, l->sample, l->node, &l->tactic, input, *out, err);
}

/* Gives the constant the port's format; `packed`: its bytes, if the backend has packed it. */
static enum status set_constant(struct layer *l, uint32_t input, void *packed, struct error *err)
{
    const struct tactic_port *port = tune_port_in(&l->tactic, input);
    struct ir_tensor *t = input_of(l, input);
    const void *data = t->data;
    struct ir_format format = tune_port_format(t, port);
    if (!packed && ir_format_equal(format, t->format))
        return STATUS_OK;
    if (!ir_tensor_set_format(l->sample, l->node->inputs[input], format))
        return no_memory(err);
    if (packed) {
        t->bytes = port->packed_bytes;
        t->data = packed;
        return STATUS_OK;
    }
    void *stored = arena_alloc(l->sample->arena, t->bytes);
    if (!stored || !value_store(l->sample, t, data, stored))
        return no_memory(err);
    t->data = stored;
    return STATUS_OK;
}

/* All are packed before any is replaced, because the backend may look at the others. */
static enum status set_constants(struct layer *l, struct error *err)
{
    void *packed[IR_MAX_INPUTS] = {NULL};
    for (int step = 0; step < 2; step++)
        for (uint32_t i = 0; i < l->node->n_inputs; i++) {
            const struct ir_tensor *t = input_of(l, i);
            if (!t || !ir_tensor_is_constant(t))
                continue;
            if (step == 1)
                TRY(set_constant(l, i, packed[i], err));
            else if (tune_port_in(&l->tactic, i)->packed_bytes)
                TRY(pack(l, i, &packed[i], err));
        }
    return STATUS_OK;
}

/* Whether the node can read or write the tensor's value in place: the device's memory is ours, and
 * the tensor is stored as values are. */
static bool is_direct(const struct layer *l, const struct ir_tensor *t)
{
    return l->machine->device->backend->host_memory && !ir_tensor_is_constant(t) &&
           t->layout == IR_LAYOUT_PLAIN && t->real == DTYPE_NONE && t->scale == IR_NO_SCALE;
}

static enum status set_memory(struct layer *l, struct error *err)
{
    for (uint32_t i = 0; i < l->node->n_inputs; i++) {
        const struct ir_tensor *t = input_of(l, i);
        if (!t || is_direct(l, t))
            continue;
        TRY(take_memory(l->machine, t->bytes, &l->inputs[i], err));
        if (ir_tensor_is_constant(t))
            TRY(copy(l->machine, COPY_TO_DEVICE, l->inputs[i].at, t->data, t->bytes, err));
    }
    for (uint32_t i = 0; i < l->node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(l->sample, l->node->outputs[i]);
        if (!is_direct(l, t))
            TRY(take_memory(l->machine, t->bytes, &l->outputs[i], err));
    }
    return take_memory(l->machine, l->machine->device->backend->op_workspace(l->op), &l->workspace,
                       err);
}

static bool renames(const struct layer *l)
{
    const struct ir_tensor *x = l->node->n_inputs ? input_of(l, 0) : NULL;
    const struct ir_tensor *y = ir_tensor(l->sample, l->node->outputs[0]);
    return x && !ir_tensor_is_constant(x) && ir_op_has(l->node->op, IR_TRAIT_RENAMES) &&
           x->bytes == y->bytes && ir_node_renames(l->sample, l->node, x->format, y->format);
}

static enum status layer_new(struct layer_machine *machine, const struct ir_graph *graph,
                             const struct ir_node *node, const struct tactic *tactic, bool compile,
                             struct layer **out, struct error *err)
{
    const struct backend *backend = machine->device->backend;
    CLEANUP(layer_cleanup) struct layer *l = calloc(1, sizeof(*l));
    if (!l)
        return no_memory(err);
    l->machine = machine;
    l->tactic = *tactic;
    TRY(machine_open(machine, err));
    TRY(tune_sample_new(graph, node, &l->sample, err));
    l->node = ir_node(l->sample, 0);
    if (!set_ports(l))
        return no_memory(err);
    l->renames = renames(l);
    if (l->renames) {
        *out = STEAL(l);
        return STATUS_OK;
    }
    TRY(set_constants(l, err));
    if (compile && backend->compile)
        TRY(backend->compile(machine->device, l->sample, l->node, &l->tactic, err));
    TRY(backend->op_prepare(machine->stream, l->sample, l->node, &l->tactic, &l->op, err));
    TRY(set_memory(l, err));
    *out = STEAL(l);
    return STATUS_OK;
}

/* --- running --- */

static enum status put_input(struct layer *l, uint32_t input, const void *value, struct error *err)
{
    const struct ir_tensor *t = input_of(l, input);
    void *to = l->inputs[input].at, *stored;
    if (l->machine->device->backend->host_memory)
        return value_store(l->sample, t, value, to) ? STATUS_OK : no_memory(err);
    TRY(stored_room(l->machine, t->bytes, &stored, err));
    if (!value_store(l->sample, t, value, stored))
        return no_memory(err);
    return copy(l->machine, COPY_TO_DEVICE, to, stored, t->bytes, err);
}

static enum status take_output(struct layer *l, uint32_t output, void *value, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(l->sample, l->node->outputs[output]);
    void *from = l->outputs[output].at, *stored;
    if (l->machine->device->backend->host_memory)
        return value_load(l->sample, t, from, value) ? STATUS_OK : no_memory(err);
    TRY(stored_room(l->machine, t->bytes, &stored, err));
    TRY(copy(l->machine, COPY_TO_HOST, stored, from, t->bytes, err));
    return value_load(l->sample, t, stored, value) ? STATUS_OK : no_memory(err);
}

static enum status rename_once(const struct layer *l, const struct ir_node *original,
                               const struct layer_run *run, struct error *err)
{
    const struct ir_tensor *x = input_of(l, 0), *y = ir_tensor(l->sample, l->node->outputs[0]);
    CLEANUP(cleanup_free) void *stored = calloc(1, MAX(x->bytes, 1));
    return stored && value_store(l->sample, x, run->from[original->inputs[0]], stored) &&
                   value_load(l->sample, y, stored, run->to[0])
               ? STATUS_OK
               : no_memory(err);
}

/* `original` is the node in the graph whose tensors the run's values belong to. */
static enum status run_once(struct layer *l, const struct ir_node *original,
                            const struct layer_run *run, struct error *err)
{
    const struct backend *backend = l->machine->device->backend;
    void *in[IR_MAX_INPUTS], *out[IR_MAX_OUTPUTS];
    uint64_t since = clock_now_ns();
    for (uint32_t i = 0; i < l->node->n_inputs; i++) {
        const struct ir_tensor *t = input_of(l, i);
        bool direct = t && is_direct(l, t);
        in[i] = direct ? run->from[original->inputs[i]] : l->inputs[i].at;
        if (t && !direct && !ir_tensor_is_constant(t))
            TRY(put_input(l, i, run->from[original->inputs[i]], err));
    }
    for (uint32_t i = 0; i < l->node->n_outputs; i++)
        out[i] = l->outputs[i].at ? l->outputs[i].at : run->to[i];
    count_time(l->machine, WALK_MOVE, &since);
    TRY(backend->op_launch(l->op, l->machine->stream, in, out, l->workspace.at, err));
    TRY(settle(l->machine, err));
    count_time(l->machine, WALK_RUN, &since);
    for (uint32_t i = 0; i < l->node->n_outputs; i++)
        if (l->outputs[i].at)
            TRY(take_output(l, i, run->to[i], err));
    count_time(l->machine, WALK_MOVE, &since);
    return STATUS_OK;
}

enum status layer_run(struct layer_machine *machine, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, bool compile,
                      struct layer_run *runs, uint32_t n, struct error *err)
{
    CLEANUP(layer_cleanup) struct layer *layer = NULL;
    uint64_t since = clock_now_ns();
    TRY(layer_new(machine, graph, node, tactic, compile, &layer, err));
    count_time(machine, WALK_PREPARE, &since);
    for (uint32_t i = 0; i < n; i++)
        TRY(layer->renames ? rename_once(layer, node, &runs[i], err)
                           : run_once(layer, node, &runs[i], err));
    return STATUS_OK;
}

/* --- in fp32 --- */

/* The cheapest tactics that store tensors in the graph's own types, the cheapest first. */
struct wide {
    const struct layer_machine *machine;
    const struct ir_graph *graph;
    const struct ir_node *node;
    struct tactic *list;
    uint64_t cost[WIDE_MAX];
    uint32_t n, seen;
};

/* Adds to *cost what it takes to bring a value into the port's layout, a byte a nanosecond. */
static bool is_wide_port(const struct wide *w, uint32_t tensor, const struct tactic_port *port,
                         uint64_t *cost)
{
    if (tensor == IR_NONE || port->packed_bytes)
        return true;
    const struct ir_tensor *t = ir_tensor(w->graph, tensor);
    *cost += port->format.layout == IR_LAYOUT_PLAIN ? 0 : t->bytes;
    return port->format.dtype == t->dtype && port->format.scale == IR_NO_SCALE &&
           port->format.layout != IR_LAYOUT_OPAQUE;
}

static bool is_wide(const struct wide *w, const struct tactic *tactic, uint64_t *cost)
{
    if (tactic->n_in != MIN(w->node->n_inputs, TACTIC_PORTS_MAX) ||
        tactic->n_out != w->node->n_outputs)
        return false;
    for (uint32_t i = 0; i < w->node->n_inputs; i++)
        if (!is_wide_port(w, w->node->inputs[i], tune_port_in(tactic, i), cost))
            return false;
    for (uint32_t i = 0; i < w->node->n_outputs; i++)
        if (!is_wide_port(w, w->node->outputs[i], &tactic->out[i], cost))
            return false;
    return true;
}

static enum status visit_wide(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct wide *w = user;
    struct device *device = w->machine->device;
    uint32_t rank = w->seen++, at;
    uint64_t cost = rank;
    if (device->backend->cost)
        cost = device->backend->cost(device, w->graph, w->node, tactic, rank);
    if (!is_wide(w, tactic, &cost) || (w->n == WIDE_MAX && cost >= w->cost[WIDE_MAX - 1]))
        return STATUS_OK;
    for (at = w->n == WIDE_MAX ? WIDE_MAX - 1 : w->n++; at > 0 && w->cost[at - 1] > cost; at--) {
        w->list[at] = w->list[at - 1];
        w->cost[at] = w->cost[at - 1];
    }
    w->list[at] = *tactic;
    w->list[at].code = NULL;
    w->list[at].code_size = 0;
    w->cost[at] = cost;
    return STATUS_OK;
}

enum status layer_run_wide(struct layer_machine *machine, const struct ir_graph *graph,
                           const struct ir_node *node, struct layer_run *runs, uint32_t n,
                           struct error *err)
{
    if (parts_has(node))
        return parts_run_wide(machine, graph, node, runs, n, err);
    const struct backend *backend = machine->device->backend;
    CLEANUP(cleanup_free) struct tactic *list = calloc(WIDE_MAX, sizeof(*list));
    struct wide w = {.machine = machine, .graph = graph, .node = node, .list = list};
    if (!list)
        return no_memory(err);
    enum status status =
        backend->candidates(machine->device, graph, node, PRECISION_F32, visit_wide, &w, err);
    if (status && status != STATUS_UNIMPLEMENTED)
        return status;
    status = error_set(err, STATUS_UNIMPLEMENTED, "no kernel for '%s' (%s) in its own types",
                       node->name, ir_op_name(node->op));
    for (uint32_t i = 0; i < w.n && status; i++) {
        status = layer_run(machine, graph, node, &list[i], true, runs, n, err);
        if (status == STATUS_INVALID_ARGUMENT || status == STATUS_RESOURCE_EXHAUSTED)
            return status; /* no other kernel would do better */
    }
    return status;
}
