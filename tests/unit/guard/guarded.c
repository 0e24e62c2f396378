/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/guard/guarded.h"

#include <string.h>

#include "base/compiler.h"
#include "engine/engine.h"

struct device *device;
struct guard *guard;
struct guard_report report;
char heard[4096];

/* Light layers do not leave fp32 otherwise. */
uint64_t short_is_fast(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic UNUSED)
{
    if (node->op == IR_OP_REFORMAT)
        return 100;
    return 1000 * dtype_size(ir_tensor(graph, node->outputs[0])->dtype);
}

int set_up(void **state UNUSED)
{
    device = mock_simulate();
    mock_script(device)->cost = short_is_fast;
    ear.level = LOG_WARNING;
    heard[0] = '\0';
    return 0;
}

int tear_down(void **state UNUSED)
{
    guard_free(guard);
    guard = NULL;
    engine_device_close(device); /* checks that all of it came back */
    return 0;
}

static void hear(void *user UNUSED, enum log_level level UNUSED, const char *line)
{
    if (strlen(heard) + strlen(line) + 2 < sizeof(heard))
        strcat(strcat(heard, line), "\n");
}

struct log_sink ear = {.level = LOG_WARNING, .write = hear};

void open_sparing(double bound, double most_loss)
{
    const struct guard_options options = {
        .bound = bound, .most_loss = most_loss, .seed = 1, .log = &ear};
    assert_int_equal(guard_new(&options, &guard, NULL), STATUS_OK);
}

void open_guard(struct device *host, double bound, const struct guard_source *source)
{
    const struct guard_options options = {
        .host = host, .bound = bound, .most_loss = 1, .source = source, .seed = 1, .log = &ear};
    assert_int_equal(guard_new(&options, &guard, NULL), STATUS_OK);
}

/* Tunes the graph under the guard, which is made if there is none. */
void tune_beside(struct ir_graph *g, enum precision precision, struct device *host)
{
    if (!guard)
        open_guard(NULL, 0.02, NULL);
    struct tune_options options = {.device = device,
                                   .host = host,
                                   .precision = precision,
                                   .judge = guard_judge(guard),
                                   .seed = 3};
    struct error err;
    if (tune_graph(g, &options, NULL, &err))
        fail_msg("%s", err.text);
    guard_read(guard, &report);
}

/* --- networks --- */

uint32_t unary(struct ir_graph *g, const char *name, enum ir_unary func, uint32_t x)
{
    uint32_t node = net_node(g, IR_OP_UNARY, name, 1, &x);
    net_int(g, node, IR_ATTR_FUNC, func);
    return net_infer(g, node);
}

uint32_t scalar(struct ir_graph *g, float value)
{
    float *data = arena_array(g->arena, 1, sizeof(*data));
    const struct shape shape = {.rank = 1, .dim = {1}};
    *data = value;
    return ir_constant_add(g, "c", DTYPE_F32, &shape, data);
}

uint32_t binary(struct ir_graph *g, const char *name, enum ir_binary func, uint32_t x, uint32_t y)
{
    uint32_t in[2] = {x, y}, node = net_node(g, IR_OP_BINARY, name, 2, in);
    net_int(g, node, IR_ATTR_FUNC, func);
    return net_infer(g, node);
}

/* x -> first -> fc -> last -> y */
struct ir_graph *chain(int64_t rows)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = unary(g, "first", IR_UNARY_TANH, net_input(g, (int64_t[]){rows, 32, 0}));
    uint32_t in[2] = {x, net_constant(g, (int64_t[]){32, 16, 0})};
    x = net_infer(g, net_node(g, IR_OP_MATMUL, "fc", 2, in));
    net_output(g, unary(g, "last", IR_UNARY_SIGMOID, x));
    return g;
}

/* The type of what the node of that name stores. */
enum dtype type_of(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!strcmp(ir_node(g, i)->name, name))
            return ir_node(g, i)->tactic->out[0].format.dtype;
    fail_msg("no layer '%s'", name);
    return DTYPE_NONE;
}

const struct guard_layer *held(const char *name)
{
    for (uint32_t i = 0; i < report.n_held; i++)
        if (!strcmp(report.held[i].name, name))
            return &report.held[i];
    return NULL;
}
