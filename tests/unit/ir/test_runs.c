/* SPDX-License-Identifier: Apache-2.0 */
/* An order with the fewest runs, compared with all orders of small graphs. */
#include <string.h>

#include "engine/ir/runs.h"
#include "tests/test.h"

enum { NODES = 8, ROUNDS = 400 };

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

/* Node i reads one or two of the tensors made before it. */
static struct ir_graph *make(uint32_t *seed)
{
    struct ir_graph *g = ir_graph_new();
    struct shape shape = {.rank = 1, .dim = {4}};
    uint32_t made[NODES + 1];
    made[0] = ir_tensor_add(g, "x", DTYPE_F32, &shape);
    g->inputs[g->n_inputs++] = made[0];
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t in[2] = {made[next(seed) % (i + 1)], made[next(seed) % (i + 1)]};
        uint32_t node = ir_node_add(g, IR_OP_BINARY, "sum", 2, in);
        const char *name = "y";
        assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_BINARY_ADD));
        assert_int_equal(ir_infer_apply(g, node, &name, 1, NULL), STATUS_OK);
        made[i + 1] = ir_node(g, node)->outputs[0];
    }
    g->name = "sums";
    g->outputs[g->n_outputs++] = made[NODES];
    return g;
}

static bool may_run(const struct ir_graph *g, uint32_t node, uint32_t done)
{
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t from = ir_tensor(g, ir_node(g, node)->inputs[k])->producer;
        if (from != IR_NONE && !(done >> from & 1))
            return false;
    }
    return true;
}

/* The fewest runs of all orders of the nodes that are not done. */
static uint32_t fewest(const struct ir_graph *g, const uint8_t *side, uint32_t done, uint8_t now)
{
    uint32_t best = done == (1U << NODES) - 1 ? 0 : UINT32_MAX;
    for (uint32_t i = 0; i < NODES; i++) {
        if ((done >> i & 1) || !may_run(g, i, done))
            continue;
        bool changes = side[i] != IR_SIDE_ANY && side[i] != now;
        uint32_t rest = fewest(g, side, done | 1U << i, changes ? side[i] : now) + changes;
        best = MIN(best, rest);
    }
    return best;
}

static void no_order_has_fewer_runs(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < ROUNDS; round++) {
        struct ir_graph *g = make(&seed);
        uint8_t side[NODES];
        uint32_t order[NODES], run[NODES], done = 0, last = 0;
        for (uint32_t i = 0; i < NODES; i++)
            side[i] = (uint8_t)(next(&seed) % 8 == 0 ? IR_SIDE_ANY : 1 + next(&seed) % 2);
        uint32_t runs = ir_runs(g, side, order, run);
        assert_int_equal(runs, fewest(g, side, 0, IR_SIDE_ANY));
        for (uint32_t i = 0; i < NODES; i++) {
            assert_true(may_run(g, order[i], done) && !(done >> order[i] & 1));
            done |= 1U << order[i];
            assert_in_range(run[order[i]], last, runs ? runs - 1 : 0);
            last = run[order[i]];
        }
        ir_graph_free(g);
    }
}

static void a_graph_in_a_new_order_is_the_same_graph(void **state)
{
    (void)state;
    uint32_t seed = 3;
    struct error err;
    for (int round = 0; round < 20; round++) {
        struct ir_graph *g = make(&seed);
        uint8_t side[NODES];
        uint32_t order[NODES], run[NODES], reads[NODES][2], writes[NODES];
        for (uint32_t i = 0; i < NODES; i++) {
            side[i] = (uint8_t)(1 + next(&seed) % 2);
            memcpy(reads[i], ir_node(g, i)->inputs, sizeof(reads[i]));
            writes[i] = ir_node(g, i)->outputs[0];
        }
        ir_runs(g, side, order, run);
        assert_int_equal(ir_graph_reorder(g, order, &err), STATUS_OK);
        if (ir_verify(g, &err))
            fail_msg("%s", err.text);
        for (uint32_t i = 0; i < NODES; i++) {
            assert_memory_equal(ir_node(g, i)->inputs, reads[order[i]], sizeof(reads[0]));
            assert_int_equal(ir_node(g, i)->outputs[0], writes[order[i]]);
            assert_int_equal(ir_tensor(g, writes[order[i]])->producer, i);
        }
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_has_fewer_runs),
        cmocka_unit_test(a_graph_in_a_new_order_is_the_same_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
