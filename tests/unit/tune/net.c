/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

uint32_t net_random(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 32);
}

int64_t net_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(net_random(state) % (uint32_t)(high - low + 1));
}

/* --- making graphs --- */

static struct shape shape_of(const int64_t *dims)
{
    struct shape s = {0};
    while (dims[s.rank]) {
        s.dim[s.rank] = dims[s.rank];
        s.rank++;
    }
    return s;
}

static void fill(float *to, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)net_random(&seed) / (float)(1U << 31) - 1.0F;
}

uint32_t net_input(struct ir_graph *g, const int64_t *dims)
{
    struct shape s = shape_of(dims);
    uint32_t id = ir_tensor_add(g, "x", DTYPE_F32, &s);
    assert_int_not_equal(id, IR_NONE);
    assert_true(g->n_inputs < IR_MAX_IO);
    g->inputs[g->n_inputs++] = id;
    return id;
}

uint32_t net_constant(struct ir_graph *g, const int64_t *dims)
{
    struct shape s = shape_of(dims);
    size_t n;
    assert_true(shape_elements(&s, &n));
    float *data = arena_array(g->arena, n, sizeof(*data));
    assert_non_null(data);
    fill(data, n, 77 + g->n_tensors);
    uint32_t id = ir_constant_add(g, "w", DTYPE_F32, &s, data);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

uint32_t net_node(struct ir_graph *g, enum ir_op op, const char *name, uint32_t n,
                  const uint32_t *inputs)
{
    uint32_t id = ir_node_add(g, op, name, n, inputs);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

void net_ints(struct ir_graph *g, uint32_t node, enum ir_attr_key key, uint32_t n,
              const int64_t *values)
{
    assert_true(ir_attr_set_ints(g, node, key, n, values));
}

void net_int(struct ir_graph *g, uint32_t node, enum ir_attr_key key, int64_t value)
{
    assert_true(ir_attr_set_int(g, node, key, value));
}

void net_float(struct ir_graph *g, uint32_t node, enum ir_attr_key key, float value)
{
    assert_true(ir_attr_set_float(g, node, key, value));
}

uint32_t net_infer(struct ir_graph *g, uint32_t node)
{
    struct error err;
    if (ir_infer_apply(g, node, NULL, 0, &err))
        fail_msg("%s", err.text);
    return ir_node(g, node)->outputs[0];
}

void net_output(struct ir_graph *g, uint32_t tensor)
{
    g->outputs[g->n_outputs++] = tensor;
}

void net_unary(struct ir_graph *g, uint32_t node, enum ir_unary func, float alpha, float beta)
{
    struct ir_epilogue step = {
        .kind = IR_EPILOGUE_UNARY, .func = func, .alpha = alpha, .beta = beta};
    assert_true(ir_epilogue_add(g, node, step, IR_NONE));
}

void net_binary(struct ir_graph *g, uint32_t node, enum ir_binary func, uint32_t tensor)
{
    struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = func};
    assert_true(ir_epilogue_add(g, node, step, tensor));
}

/* --- networks --- */

uint32_t net_conv(struct ir_graph *g, uint32_t x, int64_t m, int64_t k, int64_t stride)
{
    int64_t c = ir_tensor(g, x)->shape.dim[1], p = k / 2;
    uint32_t in[3] = {x, net_constant(g, (int64_t[]){m, c, k, k, 0}),
                      net_constant(g, (int64_t[]){m, 0})};
    uint32_t node = net_node(g, IR_OP_CONV, "conv", 3, in);
    net_ints(g, node, IR_ATTR_STRIDES, 2, (int64_t[]){stride, stride});
    net_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){p, p, p, p});
    uint32_t y = net_infer(g, node);
    net_unary(g, node, IR_UNARY_RELU, 0, 0);
    return y;
}

struct ir_graph *net_network(int64_t batch)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_conv(g, net_input(g, (int64_t[]){batch, 3, 32, 32, 0}), 16, 7, 2);
    uint32_t pool = net_node(g, IR_OP_POOL, "pool", 1, &x);
    net_int(g, pool, IR_ATTR_FUNC, IR_POOL_MAX);
    net_ints(g, pool, IR_ATTR_KERNEL, 2, (int64_t[]){3, 3});
    net_ints(g, pool, IR_ATTR_STRIDES, 2, (int64_t[]){2, 2});
    net_ints(g, pool, IR_ATTR_PADS, 4, (int64_t[]){1, 1, 1, 1});
    x = net_infer(g, pool);
    for (int i = 0; i < 2; i++) {
        uint32_t y = net_conv(g, net_conv(g, x, 16, 3, 1), 16, 3, 1);
        net_binary(g, ir_tensor(g, y)->producer, IR_BINARY_ADD, x);
        x = y;
    }
    net_output(g, x);
    uint32_t forks[2] = {net_conv(g, x, 32, 1, 1), net_conv(g, x, 16, 3, 1)};
    uint32_t join = net_node(g, IR_OP_CONCAT, "join", 2, forks);
    net_int(g, join, IR_ATTR_AXIS, 1);
    x = net_infer(g, join);
    uint32_t mean = net_node(g, IR_OP_REDUCE, "mean", 1, &x);
    net_int(g, mean, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    net_ints(g, mean, IR_ATTR_AXES, 2, (int64_t[]){2, 3});
    net_int(g, mean, IR_ATTR_KEEPDIMS, 1);
    x = net_infer(g, mean);
    uint32_t flat = net_node(g, IR_OP_RESHAPE, "flat", 1, &x);
    net_ints(g, flat, IR_ATTR_SHAPE, 2, (int64_t[]){batch, 48});
    uint32_t in[3] = {net_infer(g, flat), net_constant(g, (int64_t[]){48, 10, 0}),
                      net_constant(g, (int64_t[]){10, 0})};
    net_output(g, net_infer(g, net_node(g, IR_OP_MATMUL, "fc", 3, in)));
    return g;
}

/* --- a device whose candidates are cut down --- */

static struct {
    struct backend table;
    int only;
    uint32_t offered;
    char name[TACTIC_NAME_MAX];
    /* of the call in progress: */
    tactic_visit visit;
    void *user;
} cut;

static enum status visit_one(void *user, const struct tactic *tactic, struct error *err)
{
    (void)user;
    bool through = cut.only == NET_ALL || (uint32_t)cut.only == cut.offered;
    cut.offered++;
    if (!through)
        return STATUS_OK;
    memcpy(cut.name, tactic->name, sizeof(cut.name));
    return cut.visit(cut.user, tactic, err);
}

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    if (node->op == IR_OP_REFORMAT)
        return backend_cpu.candidates(device, graph, node, precision, visit, user, err);
    cut.offered = 0;
    cut.visit = visit;
    cut.user = user;
    return backend_cpu.candidates(device, graph, node, precision, visit_one, NULL, err);
}

struct device *net_device(void)
{
    struct device_options options = {.threads = 2};
    struct device *device;
    struct error err;
    if (engine_device_open("cpu", &options, &device, &err))
        fail_msg("%s", err.text);
    cut.table = backend_cpu;
    cut.table.candidates = candidates;
    cut.only = NET_ALL;
    device->backend = &cut.table;
    return device;
}

void net_only(int k)
{
    cut.only = k;
}

uint32_t net_offered(void)
{
    return cut.offered;
}

const char *net_name(void)
{
    return cut.name;
}

const char *net_tactic(const struct ir_graph *g, uint32_t i)
{
    return ir_node(g, i)->tactic ? ir_node(g, i)->tactic->name : "";
}

uint32_t net_layers(const struct ir_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += ir_node(g, i)->tactic != NULL;
    return n;
}

/* running */

struct ir_graph *net_copy(const struct ir_graph *g)
{
    struct ir_graph *c = ir_graph_new();
    assert_non_null(c);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(g, i);
        uint32_t id = t->data ? ir_constant_add(c, t->name, t->dtype, &t->shape, t->data)
                              : ir_tensor_add(c, t->name, t->dtype, &t->shape);
        assert_int_equal(id, i);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *n = ir_node(g, i);
        uint32_t id = net_node(c, n->op, n->name, n->n_inputs, n->inputs);
        for (uint32_t k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].is_float)
                assert_true(
                    ir_attr_set_floats(c, id, n->attrs[k].key, n->attrs[k].count, n->attrs[k].f));
            else
                net_ints(c, id, n->attrs[k].key, n->attrs[k].count, n->attrs[k].i);
        ir_node(c, id)->n_outputs = n->n_outputs;
        for (uint32_t k = 0; k < n->n_outputs; k++) {
            ir_node(c, id)->outputs[k] = n->outputs[k];
            ir_tensor(c, n->outputs[k])->producer = id;
        }
        ir_node(c, id)->n_epilogue = n->n_epilogue;
        memcpy(ir_node(c, id)->epilogue, n->epilogue, sizeof(n->epilogue));
    }
    c->n_inputs = g->n_inputs;
    memcpy(c->inputs, g->inputs, sizeof(c->inputs));
    c->n_outputs = g->n_outputs;
    memcpy(c->outputs, g->outputs, sizeof(c->outputs));
    return c;
}

/* Memory as a device would give it: aligned, and followed by a little room that nobody may
 * touch. */
static void *bytes_new(size_t size)
{
    size_t rounded = (size + 63) / 64 * 64;
    unsigned char *p = aligned_alloc(64, rounded + 64);
    assert_non_null(p);
    memset(p, 0xa5, rounded + 64);
    return p;
}

static void run_node(struct device *device, struct backend_stream *stream, const struct ir_graph *g,
                     const struct ir_node *node, void *const *memory)
{
    const struct backend *b = device->backend;
    struct backend_op *op;
    struct error err;
    void *in[IR_MAX_INPUTS], *out[IR_MAX_OUTPUTS];
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in[i] = node->inputs[i] == IR_NONE ? NULL : memory[node->inputs[i]];
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out[i] = memory[node->outputs[i]];
    if (!node->tactic) { /* an output that the builder makes an alias */
        assert_int_equal(node->op, IR_OP_REFORMAT);
        memcpy(out[0], in[0], ir_tensor(g, node->inputs[0])->bytes);
        return;
    }
    if (b->op_prepare(stream, g, node, node->tactic, &op, &err))
        fail_msg("%s: %s", node->tactic->name, err.text);
    assert_true(b->op_workspace(op) <= node->workspace_bytes);
    void *workspace = bytes_new(node->workspace_bytes);
    if (b->op_launch(op, stream, in, out, workspace, &err))
        fail_msg("%s: %s", node->tactic->name, err.text);
    free(workspace);
    b->op_free(op);
}

void net_input_fill(const struct ir_tensor *t, uint32_t index, void *to)
{
    size_t n;
    assert_true(shape_elements(&t->shape, &n));
    fill(to, n, 1000 + index);
}

void net_run(struct device *device, struct device *host, const struct ir_graph *g, float **outputs)
{
    struct backend_stream *stream, *beside = NULL;
    struct error err;
    void **memory = calloc(g->n_tensors, sizeof(*memory));
    assert_non_null(memory);
    assert_int_equal(device->backend->stream_new(device, &stream, &err), STATUS_OK);
    if (host)
        assert_int_equal(host->backend->stream_new(host, &beside, &err), STATUS_OK);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        memory[i] = bytes_new(ir_tensor(g, i)->bytes);
        if (ir_tensor(g, i)->data)
            memcpy(memory[i], ir_tensor(g, i)->data, ir_tensor(g, i)->bytes);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        net_input_fill(ir_tensor(g, g->inputs[i]), i, memory[g->inputs[i]]);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct tactic *tactic = ir_node(g, i)->tactic;
        bool on_host = host && tactic && strcmp(tactic->backend, device->backend->name) != 0;
        run_node(on_host ? host : device, on_host ? beside : stream, g, ir_node(g, i), memory);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const unsigned char *end =
            (unsigned char *)memory[i] + (ir_tensor(g, i)->bytes + 63) / 64 * 64;
        for (int k = 0; k < 64; k++)
            assert_int_equal(end[k], 0xa5);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        assert_int_equal(ir_tensor(g, g->outputs[i])->layout, IR_LAYOUT_PLAIN);
        outputs[i] = memory[g->outputs[i]];
        memory[g->outputs[i]] = NULL;
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        free(memory[i]);
    free(memory);
    if (beside)
        host->backend->stream_free(beside);
    device->backend->stream_free(stream);
}

void net_reference(const struct ir_graph *g, float **outputs)
{
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_IO];
    struct error err;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(g, g->inputs[i]);
        in[i] = (struct tensor_view){t->dtype, t->shape, bytes_new(t->bytes)};
        net_input_fill(t, i, in[i].data);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(g, g->outputs[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, bytes_new(t->bytes)};
        outputs[i] = out[i].data;
    }
    if (cpu_eval_graph(g, in, out, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        free(in[i].data);
}

double net_error(const struct ir_graph *g, uint32_t i, const float *got, const float *want)
{
    size_t n;
    double off = 0, all = 0;
    assert_true(shape_elements(&ir_tensor(g, g->outputs[i])->shape, &n));
    for (size_t k = 0; k < n; k++) {
        double d = (double)got[k] - (double)want[k];
        off += d * d;
        all += (double)want[k] * (double)want[k];
    }
    double e = sqrt(off / (all > 1e-30 ? all : 1e-30));
    return isfinite(e) ? e : 1e9;
}
