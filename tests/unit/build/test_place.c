/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory planning on random graphs: tensors that are alive together never overlap (plan_check
 * judges), and the arena is never larger than all tensors together nor smaller than the most that
 * is alive at once.
 */
#include <stdio.h>
#include <string.h>

#include "engine/build/build.h"
#include "tests/test.h"

static uint64_t rng(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t add(struct ir_graph *g, enum ir_op op, uint32_t n, const uint32_t *in,
                    const char *name)
{
    struct error err;
    uint32_t node = ir_node_add(g, op, name, n, in);
    assert_int_not_equal(node, IR_NONE);
    if (op == IR_OP_BINARY)
        assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_BINARY_ADD));
    if (op == IR_OP_UNARY)
        assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_RELU));
    if (op == IR_OP_CONCAT) {
        const struct shape *x = &ir_tensor(g, in[0])->shape, *y = &ir_tensor(g, in[1])->shape;
        assert_true(ir_attr_set_int(g, node, IR_ATTR_AXIS, x->dim[0] == y->dim[0] ? 1 : 0));
    }
    if (op == IR_OP_SLICE) {
        const struct shape *x = &ir_tensor(g, in[0])->shape;
        int64_t first = x->dim[0] / 2, begin[2] = {first, 0}, end[2] = {x->dim[0], x->dim[1]};
        assert_true(ir_attr_set_ints(g, node, IR_ATTR_STARTS, 2, begin) &&
                    ir_attr_set_ints(g, node, IR_ATTR_ENDS, 2, end) &&
                    ir_attr_set_ints(g, node, IR_ATTR_STEPS, 2, (const int64_t[]){1, 1}));
    }
    if (op == IR_OP_RESHAPE) {
        const struct shape *s = &ir_tensor(g, in[0])->shape;
        int64_t turned[2] = {s->dim[1], s->dim[0]};
        assert_true(ir_attr_set_ints(g, node, IR_ATTR_SHAPE, 2, turned));
    }
    if (ir_infer_apply(g, node, &name, 1, &err))
        fail_msg("%s", err.text);
    return ir_node(g, node)->outputs[0];
}

/* A random binary sum, relu, concat, slice or reshape of tensors made so far. */
static uint32_t add_random(struct ir_graph *g, uint64_t *seed, const uint32_t *made, uint32_t n)
{
    uint32_t a = made[rng(seed) % n], b = made[rng(seed) % n], two[2] = {a, b};
    const struct shape *x = &ir_tensor(g, a)->shape, *y = &ir_tensor(g, b)->shape;
    switch (rng(seed) % 5) {
    case 4:
        return add(g, IR_OP_SLICE, 1, &a, "slice");
    case 0:
        return add(g, IR_OP_RESHAPE, 1, &a, "reshape");
    case 1:
        return shape_equal(x, y) ? add(g, IR_OP_BINARY, 2, two, "sum")
                                 : add(g, IR_OP_UNARY, 1, &a, "relu");
    case 2:
        return (x->dim[0] == y->dim[0] && x->dim[1] + y->dim[1] < 5000) ||
                       (x->dim[1] == y->dim[1] && x->dim[0] + y->dim[0] < 5000)
                   ? add(g, IR_OP_CONCAT, 2, two, "concat")
                   : add(g, IR_OP_UNARY, 1, &b, "relu");
    default:
        return add(g, IR_OP_UNARY, 1, &a, "relu");
    }
}

static void fill(struct ir_graph *g, uint64_t seed)
{
    enum { NODES = 60 };
    uint32_t made[NODES + 1];
    /* Every second graph has rows whose parts are aligned. */
    int64_t columns = seed % 2 ? 3 + (int64_t)(seed % 50) : 16 * (1 + (int64_t)(seed % 3));
    struct shape shape = {.rank = 2, .dim = {2 + (int64_t)(seed % 7), columns}};
    struct error err;
    made[0] = ir_tensor_add(g, "x", DTYPE_F32, &shape);
    g->inputs[g->n_inputs++] = made[0];
    for (uint32_t i = 0; i < NODES; i++)
        made[i + 1] = add_random(g, &seed, made, i + 1);
    for (uint32_t i = 1; i <= NODES && g->n_outputs < 3; i++)
        if (i == NODES || rng(&seed) % 20 == 0)
            g->outputs[g->n_outputs++] = made[i];
    g->name = "random";
    if (g->n_outputs == 0)
        g->outputs[g->n_outputs++] = made[NODES];
    if (ir_graph_compact(g, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct ir_node *node = ir_node(g, i);
        struct tactic *t = arena_alloc(g->arena, sizeof(*t));
        assert_non_null(t);
        *t = (struct tactic){0};
        t->backend = "cpu";
        t->n_in = node->n_inputs;
        t->n_out = node->n_outputs;
        tactic_set_types(t, g, node, DTYPE_NONE);
        node->tactic = t;
        node->workspace_bytes = rng(&seed) % 3 ? 0 : rng(&seed) % 3000;
    }
}

/* The bytes that must be in the arena at once, at the worst node. */
static uint64_t most_alive(const struct ir_graph *g)
{
    uint64_t most = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        uint64_t sum = (ir_node(g, n)->workspace_bytes + 63) / 64 * 64;
        for (uint32_t i = 0; i < g->n_tensors; i++) {
            const struct ir_tensor *t = ir_tensor(g, i);
            if (t->place != IR_PLACE_ARENA || t->alias_of != IR_NONE)
                continue;
            uint32_t last = t->producer, first = last;
            for (uint32_t k = 0; k < g->n_tensors; k++)
                if (plan_tensor_root(g, k) == i)
                    first = MIN(first, ir_tensor(g, k)->producer);
            for (uint32_t m = 0; m < g->n_nodes; m++)
                for (uint32_t k = 0; k < ir_node(g, m)->n_inputs; k++)
                    if (plan_tensor_root(g, ir_node(g, m)->inputs[k]) == i)
                        last = m;
            if (first <= n && last >= n)
                sum += (t->bytes + 63) / 64 * 64;
        }
        most = MAX(most, sum);
    }
    return most;
}

static void bind(struct plan *plan, struct plan_binding *list, uint32_t *n, const uint32_t *ids,
                 uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ir_tensor *t = ir_tensor(plan->profiles[0].graph, ids[i]);
        char *name = arena_printf(plan->arena, "b%u", i);
        list[i] = (struct plan_binding){name, t->dtype, t->shape};
    }
    *n = count;
}

static void random_graphs_are_placed_well(void **state)
{
    uint64_t waste = 0, ideal = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct error err;
        struct plan *plan = plan_new();
        struct ir_graph *g = ir_graph_new();
        assert_non_null(plan);
        assert_non_null(g);
        fill(g, seed * 0x9e3779b97f4a7c15ULL);
        plan->n_profiles = 1;
        plan->profiles[0] = (struct plan_profile){.batch = 1, .graph = g};
        if (build_place(g, &plan->profiles[0].tensor_bytes, &err))
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        bind(plan, plan->inputs, &plan->n_inputs, g->inputs, g->n_inputs);
        bind(plan, plan->outputs, &plan->n_outputs, g->outputs, g->n_outputs);
        if (plan_check(plan, &err))
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        uint64_t arena = g->n_segments ? g->segments[0].arena_bytes : 0, least = most_alive(g);
        if (arena < least || arena > plan->profiles[0].tensor_bytes)
            fail_msg("seed %llu: an arena of %llu, at least %llu are alive, all are %llu",
                     (unsigned long long)seed, (unsigned long long)arena, (unsigned long long)least,
                     (unsigned long long)plan->profiles[0].tensor_bytes);
        waste += arena - least;
        ideal += least;
        plan_free(plan);
    }
    if (waste * 10 > ideal)
        fail_msg("%llu bytes wasted over %llu", (unsigned long long)waste,
                 (unsigned long long)ideal);
}

/* The judge itself is tested: if any one tensor is moved onto its neighbour, plan_check notices. */
static void an_overlap_is_noticed(void **state)
{
    unsigned noticed = 0, moved = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct error err;
        struct plan *plan = plan_new();
        struct ir_graph *g = ir_graph_new();
        assert_non_null(plan);
        assert_non_null(g);
        fill(g, seed * 0x9e3779b97f4a7c15ULL);
        plan->n_profiles = 1;
        plan->profiles[0] = (struct plan_profile){.batch = 1, .graph = g};
        assert_int_equal(build_place(g, &plan->profiles[0].tensor_bytes, &err), STATUS_OK);
        bind(plan, plan->inputs, &plan->n_inputs, g->inputs, g->n_inputs);
        bind(plan, plan->outputs, &plan->n_outputs, g->outputs, g->n_outputs);
        for (uint32_t n = 0; n < g->n_nodes; n++) {
            struct ir_node *node = ir_node(g, n);
            struct ir_tensor *out = ir_tensor(g, node->outputs[0]);
            const struct ir_tensor *in = ir_tensor(g, plan_tensor_root(g, node->inputs[0]));
            if (out->place != IR_PLACE_ARENA || in->place != IR_PLACE_ARENA ||
                out->alias_of != IR_NONE || in == out) /* it is joined in place */
                continue;
            uint64_t was = out->offset;
            out->offset = in->offset; /* a node would overwrite its own input */
            moved++;
            noticed += plan_check(plan, &err) == STATUS_DATA_LOSS;
            out->offset = was;
        }
        plan_free(plan);
    }
    assert_true(moved > 50);
    assert_int_equal(noticed, moved);
}

/* To find the bytes of an alias, its chain is followed, so chains have at most 1,024 links. */
static void long_chains_of_aliases_are_refused(void **state)
{
    (void)state;
    for (uint32_t length = PLAN_MAX_ALIASES; length <= PLAN_MAX_ALIASES + 1; length++) {
        struct error err;
        struct plan *plan = plan_new();
        struct ir_graph *g = ir_graph_new();
        struct shape shape = {.rank = 2, .dim = {2, 3}};
        struct tactic tactic = {.backend = "cpu", .n_in = 1, .n_out = 1};
        assert_true(plan && g);
        uint32_t x = ir_tensor_add(g, "x", DTYPE_F32, &shape);
        g->inputs[g->n_inputs++] = x;
        x = add(g, IR_OP_UNARY, 1, &x, "first");
        for (uint32_t i = 0; i < length; i++)
            x = add(g, IR_OP_RESHAPE, 1, &x, "reshape");
        g->outputs[g->n_outputs++] = add(g, IR_OP_UNARY, 1, &x, "last");
        ir_node(g, 0)->tactic = ir_node(g, g->n_nodes - 1)->tactic = &tactic;
        tactic_set_types(&tactic, g, ir_node(g, 0), DTYPE_NONE);
        plan->n_profiles = 1;
        plan->profiles[0] = (struct plan_profile){.batch = 1, .graph = g};
        assert_int_equal(build_place(g, &plan->profiles[0].tensor_bytes, &err), STATUS_OK);
        bind(plan, plan->inputs, &plan->n_inputs, g->inputs, g->n_inputs);
        bind(plan, plan->outputs, &plan->n_outputs, g->outputs, g->n_outputs);
        assert_int_equal(plan_check(plan, &err),
                         length > PLAN_MAX_ALIASES ? STATUS_DATA_LOSS : STATUS_OK);
        plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_placed_well),
        cmocka_unit_test(an_overlap_is_noticed),
        cmocka_unit_test(long_chains_of_aliases_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
