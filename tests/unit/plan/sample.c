/* SPDX-License-Identifier: Apache-2.0 */
/* See sample.h. */
#include "tests/unit/plan/sample.h"

#include <stdio.h>
#include <math.h>
#include <string.h>

#include "engine/build/build.h"

static bool add_tactics(struct ir_graph *g)
{
    static const char code[] = "compiled form of the convolution";
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct ir_node *node = ir_node(g, i);
        struct tactic *t = arena_alloc(g->arena, sizeof(*t));
        if (!t)
            return false;
        t->backend = "cpu";
        snprintf(t->name, sizeof(t->name), "made up %u", i);
        t->id = 7 + i;
        t->blob_size = i;
        memset(t->blob, 0xa5, i);
        t->n_in = node->n_inputs;
        t->n_out = node->n_outputs;
        tactic_set_types(t, g, node, DTYPE_NONE);
        if (node->op == IR_OP_CONV) { /* the same in both profiles */
            t->code = code;
            t->code_size = sizeof(code);
        } else if (node->op == IR_OP_SOFTMAX) {
            char *own = arena_printf(g->arena, "of batch %d", (int)ir_tensor(g, 0)->shape.dim[0]);
            if (!own)
                return false;
            t->code = own;
            t->code_size = strlen(own);
        }
        node->tactic = t;
        node->workspace_bytes = i == 0 ? 100 : 0;
        node->time_ns = 1000 * (i + 1);
    }
    return true;
}

static uint32_t output_of(struct ir_graph *g, uint32_t node, const char *name)
{
    struct error err;
    if (node == IR_NONE || ir_infer_apply(g, node, &name, 1, &err))
        return IR_NONE;
    return ir_node(g, node)->outputs[0];
}

static uint32_t add_reshape(struct ir_graph *g, uint32_t in, const char *name, uint32_t rank,
                            const int64_t *shape)
{
    uint32_t node = ir_node_add(g, IR_OP_RESHAPE, name, 1, &in);
    if (node == IR_NONE || !ir_attr_set_ints(g, node, IR_ATTR_SHAPE, rank, shape))
        return IR_NONE;
    return output_of(g, node, name);
}

static bool add_nodes(struct ir_graph *g, int64_t batch)
{
    static const float weights[4 * 4 * 3 * 3] = {0.5f, -1.0f, 0.25f}, bias[4] = {1, 2, 3, 4};
    struct shape xs = {.rank = 4, .dim = {batch, 4, 6, 6}}, ws = {.rank = 4, .dim = {4, 4, 3, 3}};
    struct shape bs = {.rank = 1, .dim = {4}};
    int64_t flat[2] = {batch, 144}, square[3] = {batch, 12, 12};
    int64_t pads[4] = {1, 1, 1, 1}, perm[4] = {0, 2, 3, 1};
    uint32_t x = ir_tensor_add(g, "x", DTYPE_F32, &xs);
    uint32_t w = ir_constant_add(g, "w", DTYPE_F32, &ws, weights);
    uint32_t b = ir_constant_add(g, "b", DTYPE_F32, &bs, bias);
    uint32_t conv = ir_node_add(g, IR_OP_CONV, "conv + relu", 3, (uint32_t[]){x, w, b});
    struct ir_epilogue relu = {.kind = IR_EPILOGUE_UNARY, .func = IR_UNARY_RELU};
    if (conv == IR_NONE || !ir_attr_set_ints(g, conv, IR_ATTR_PADS, 4, pads) ||
        !ir_epilogue_add(g, conv, relu, IR_NONE))
        return false;
    uint32_t c = output_of(g, conv, "c");
    uint32_t soft = ir_node_add(g, IR_OP_SOFTMAX, "soft", 1, &c);
    if (soft == IR_NONE || !ir_attr_set_int(g, soft, IR_ATTR_AXIS, 1))
        return false;
    uint32_t s = output_of(g, soft, "s");
    uint32_t y = add_reshape(g, s, "y", 2, flat), same = add_reshape(g, x, "same", 2, flat);
    uint32_t again = add_reshape(g, y, "again", 3, square);
    uint32_t add = ir_node_add(g, IR_OP_BINARY, "add", 2, (uint32_t[]){c, x});
    if (add == IR_NONE || !ir_attr_set_int(g, add, IR_ATTR_FUNC, IR_BINARY_ADD))
        return false;
    uint32_t a = output_of(g, add, "a");
    uint32_t turn = ir_node_add(g, IR_OP_TRANSPOSE, "turn", 1, &a);
    if (turn == IR_NONE || !ir_attr_set_ints(g, turn, IR_ATTR_PERM, 4, perm))
        return false;
    uint32_t z = output_of(g, turn, "z");
    g->n_inputs = 1;
    g->inputs[0] = x;
    g->n_outputs = 4;
    g->outputs[0] = y;
    g->outputs[1] = z;
    g->outputs[2] = same;
    g->outputs[3] = again;
    return z != IR_NONE && same != IR_NONE && again != IR_NONE;
}

struct ir_graph *sample_graph(uint32_t batch)
{
    struct ir_graph *g = ir_graph_new();
    if (!g)
        return NULL;
    g->name = "sample";
    if (!add_nodes(g, batch)) {
        ir_graph_free(g);
        return NULL;
    }
    return g;
}

static bool add_profile(struct plan *plan, uint32_t batch)
{
    struct error err;
    struct plan_profile *p = &plan->profiles[plan->n_profiles];
    p->batch = batch;
    p->graph = sample_graph(batch);
    if (!p->graph)
        return false;
    plan->n_profiles++;
    return add_tactics(p->graph) && !build_place(p->graph, &p->tensor_bytes, &err);
}

struct plan *sample_plan_empty(void)
{
    static const struct plan_binding outputs[] = {
        {"y", DTYPE_F32, {2, {-1, 144}}},
        {"z", DTYPE_F32, {4, {-1, 6, 6, 4}}},
        {"same", DTYPE_F32, {2, {-1, 144}}},
        {"again", DTYPE_F32, {3, {-1, 12, 12}}},
    };
    struct plan *plan = plan_new();
    if (!plan)
        return NULL;
    plan->name = "sample";
    strcpy(plan->device, "cpu: a device for tests");
    strcpy(plan->digest, "00112233445566778899aabbccddeeff");
    plan->batched = true;
    plan->n_inputs = 1;
    plan->inputs[0] = (struct plan_binding){"x", DTYPE_F32, {4, {-1, 4, 6, 6}}};
    plan->n_outputs = ARRAY_LEN(outputs);
    memcpy(plan->outputs, outputs, sizeof(outputs));
    return plan;
}

static void add_exactness(struct plan *plan)
{
    static const struct plan_held held[] = {{"conv", DTYPE_F16, 0.25F},
                                            {"soft", DTYPE_I8, INFINITY}};
    plan->exactness = (struct plan_exactness){
        .measured = true, .data = true, .samples = 4, .bound = 0.02F, .n_outputs = 4};
    for (uint32_t i = 0; i < plan->exactness.n_outputs; i++) {
        plan->exactness.outputs[i].error = 0.001F * (float)i;
        plan->exactness.outputs[i].agreement = i ? -1 : 0.5F;
    }
    plan->exactness.n_held = ARRAY_LEN(held);
    plan->exactness.held = held;
}

struct plan *sample_plan(void)
{
    struct plan *plan = sample_plan_empty();
    if (plan)
        add_exactness(plan);
    if (plan && add_profile(plan, 1) && add_profile(plan, 8))
        return plan;
    plan_free(plan);
    return NULL;
}
