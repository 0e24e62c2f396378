/* SPDX-License-Identifier: Apache-2.0 */
/* The assignment problem against trying everything. */
#include <stdlib.h>
#include <string.h>

#include "engine/tune/solve.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

enum { NODES_MAX = 9, OPTIONS_MAX = 3, USES_MAX = 8, TENSORS_MAX = 12 };

struct problem {
    struct solve_problem p;
    struct solve_node nodes[NODES_MAX];
    struct solve_tensor tensors[TENSORS_MAX];
    uint64_t cost[NODES_MAX][OPTIONS_MAX];
    uint8_t layouts[TENSORS_MAX][USES_MAX + 1][OPTIONS_MAX];
    uint64_t reformat[TENSORS_MAX][SOLVE_FORMATS][SOLVE_FORMATS];
    struct solve_end uses[TENSORS_MAX][USES_MAX];
};

static struct solve_end some_end(struct problem *p, uint32_t tensor, uint32_t slot, uint32_t node,
                                 uint64_t *seed)
{
    for (int k = 0; k < OPTIONS_MAX; k++)
        p->layouts[tensor][slot][k] = (uint8_t)net_between(seed, 0, SOLVE_FORMATS - 1);
    return (struct solve_end){node, p->layouts[tensor][slot]};
}

static void all_cost(uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS], uint64_t price)
{
    for (int a = 0; a < SOLVE_FORMATS; a++)
        for (int b = 0; b < SOLVE_FORMATS; b++)
            reformat[a][b] = a == b ? 0 : price;
}

/* A random network: each tensor is made by a node or given, and some later nodes read it. */
static void random_problem(struct problem *p, uint64_t seed)
{
    memset(p, 0, sizeof(*p));
    p->p =
        (struct solve_problem){(uint32_t)net_between(&seed, 1, NODES_MAX),
                               (uint32_t)net_between(&seed, 0, TENSORS_MAX), p->nodes, p->tensors};
    for (uint32_t i = 0; i < p->p.n_nodes; i++) {
        for (int k = 0; k < OPTIONS_MAX; k++)
            p->cost[i][k] = (uint64_t)net_between(&seed, 0, 100);
        p->nodes[i] = (struct solve_node){(uint32_t)net_between(&seed, 1, OPTIONS_MAX), p->cost[i]};
    }
    for (uint32_t t = 0; t < p->p.n_tensors; t++) {
        struct solve_tensor *s = &p->tensors[t];
        uint32_t from = (uint32_t)net_between(&seed, 0, p->p.n_nodes);
        s->from = some_end(p, t, 0, from == p->p.n_nodes ? IR_NONE : from, &seed);
        s->n_uses = (uint32_t)net_between(&seed, 0, USES_MAX);
        s->uses = p->uses[t];
        for (uint32_t u = 0; u < s->n_uses; u++) {
            uint32_t node = (uint32_t)net_between(&seed, 0, p->p.n_nodes);
            p->uses[t][u] = some_end(p, t, u + 1, node == p->p.n_nodes ? IR_NONE : node, &seed);
        }
        for (int a = 0; a < SOLVE_FORMATS; a++)
            for (int b = 0; b < SOLVE_FORMATS; b++)
                p->reformat[t][a][b] = a == b                        ? 0
                                       : net_random(&seed) % 16 == 0 ? SOLVE_NEVER
                                                                     : net_random(&seed) % 60;
        s->reformat = (const uint64_t(*)[SOLVE_FORMATS])p->reformat[t];
    }
}

static uint64_t try_everything(const struct solve_problem *p)
{
    uint32_t choice[NODES_MAX] = {0};
    uint64_t best = UINT64_MAX;
    for (;;) {
        uint64_t cost = solve_cost(p, choice);
        best = cost < best ? cost : best;
        uint32_t i = 0;
        while (i < p->n_nodes && ++choice[i] == p->nodes[i].n)
            choice[i++] = 0;
        if (i == p->n_nodes)
            return best;
    }
}

static void exact_is_the_best(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        static struct problem p;
        uint32_t choice[NODES_MAX];
        bool exact = false;
        random_problem(&p, seed);
        assert_int_equal(solve(&p.p, 0, choice, &exact, NULL), STATUS_OK);
        assert_true(exact);
        for (uint32_t i = 0; i < p.p.n_nodes; i++)
            assert_in_range(choice[i], 0, p.nodes[i].n - 1);
        uint64_t got = solve_cost(&p.p, choice), want = try_everything(&p.p);
        if (got != want)
            fail_msg("seed %u: %llu, the best is %llu", (unsigned)seed, (unsigned long long)got,
                     (unsigned long long)want);
    }
}

/* Without tables the answer is never better than the best, and rarely much worse. */
static void local_is_close(void **state)
{
    (void)state;
    unsigned equal = 0, n = 2000;
    for (uint64_t seed = 1; seed <= n; seed++) {
        static struct problem p;
        uint32_t choice[NODES_MAX];
        bool exact = true;
        random_problem(&p, seed);
        assert_int_equal(solve(&p.p, 1, choice, &exact, NULL), STATUS_OK);
        uint64_t got = solve_cost(&p.p, choice), want = try_everything(&p.p);
        assert_true(got >= want);
        equal += got == want;
    }
    if (equal < n * 8 / 10)
        fail_msg("the best in %u of %u only", equal, n);
}

/* The shape of a transformer: layers read the stream three times and add to it, and every layer
 * reads one tensor, with more options than one table over all its readers could hold. The solver
 * must find the hidden assignment: each node costs nothing at its own option, if all formats
 * agree. */
static void a_widely_read_tensor_does_not_tie_all_layers_together(void **state)
{
    (void)state;
    enum { LAYERS = 40, PER = 5, OPTIONS = 6, NODES = 1 + LAYERS * PER };
    static uint64_t cost[NODES][OPTIONS];
    static uint8_t formats[NODES][OPTIONS];
    static struct solve_node nodes[NODES];
    static struct solve_end uses[2 * NODES + 1][PER];
    static struct solve_tensor tensors[NODES + 1];
    static struct solve_end mask_uses[LAYERS];
    static const uint8_t plain[1] = {0};
    uint32_t choice[NODES], best[NODES];
    uint64_t seed = 99;
    for (uint32_t i = 0; i < NODES; i++) {
        best[i] = (uint32_t)net_between(&seed, 0, OPTIONS - 1);
        for (uint32_t k = 0; k < OPTIONS; k++) {
            cost[i][k] = k == best[i] ? 10 : (uint64_t)net_between(&seed, 11, 40);
            formats[i][k] = k == best[i] ? 1 : (uint8_t)net_between(&seed, 0, 5);
        }
        nodes[i] = (struct solve_node){OPTIONS, cost[i]};
    }
    /* Node 0 feeds layer 0; the last node of each layer feeds all but the inner ones of the next.
     */
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t in = l * PER, first = in + 1;
        struct solve_tensor *stream = &tensors[in];
        *stream = (struct solve_tensor){.from = {in, formats[in]}, .n_uses = 4, .uses = uses[in]};
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t reader = first + (k == 3 ? PER - 1 : k);
            uses[in][k] = (struct solve_end){reader, formats[reader]};
        }
        for (uint32_t k = 0; k + 1 < PER; k++) {
            struct solve_tensor *inner = &tensors[first + k];
            uint32_t reader = first + (k < 3 ? 3 : PER - 1);
            *inner = (struct solve_tensor){
                .from = {first + k, formats[first + k]}, .n_uses = 1, .uses = uses[first + k]};
            uses[first + k][0] = (struct solve_end){reader, formats[reader]};
        }
        mask_uses[l] = (struct solve_end){first + 3, formats[first + 3]};
    }
    static uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
    all_cost(reformat, 5);
    for (uint32_t t = 0; t <= NODES; t++)
        tensors[t].reformat = (const uint64_t(*)[SOLVE_FORMATS])reformat;
    tensors[NODES - 1] = (struct solve_tensor){.from = {IR_NONE, plain}};
    tensors[NODES].from = (struct solve_end){IR_NONE, plain};
    tensors[NODES].n_uses = LAYERS;
    tensors[NODES].uses = mask_uses;
    struct solve_problem p = {NODES, NODES + 1, nodes, tensors};
    bool exact = false;
    assert_int_equal(solve(&p, 0, choice, &exact, NULL), STATUS_OK);
    assert_true(exact);
    assert_int_equal(solve_cost(&p, choice), 10 * NODES + 5); /* the mask is reformatted once */
    assert_memory_equal(choice, best, sizeof(best));
}

/* One fast odd layout in the middle of a chain does not pay for two reformats. */
static void a_reformat_is_paid_for(void **state)
{
    (void)state;
    static const uint64_t cost[3][2] = {{10, 12}, {12, 10}, {10, 12}};
    static const uint8_t layouts[2] = {IR_LAYOUT_PLAIN, IR_LAYOUT_BLOCKED_16};
    struct solve_node nodes[3] = {{2, cost[0]}, {2, cost[1]}, {2, cost[2]}};
    struct solve_end uses[2] = {{1, layouts}, {2, layouts}};
    struct solve_tensor tensors[2] = {{.from = {0, layouts}, .n_uses = 1, .uses = &uses[0]},
                                      {.from = {1, layouts}, .n_uses = 1, .uses = &uses[1]}};
    struct solve_problem p = {3, 2, nodes, tensors};
    uint32_t choice[3];
    for (uint64_t price = 0; price <= 2; price++) {
        uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
        all_cost(reformat, price);
        for (int t = 0; t < 2; t++)
            tensors[t].reformat = (const uint64_t(*)[SOLVE_FORMATS])reformat;
        assert_int_equal(solve(&p, 0, choice, NULL, NULL), STATUS_OK);
        assert_int_equal(solve_cost(&p, choice), price < 1 ? 30 : 32);
    }
    assert_int_equal(choice[0], choice[1]);
    assert_int_equal(choice[1], choice[2]);
}

/* Three readers of one reformatted tensor pay for the reformat once. */
static void a_reformat_is_shared(void **state)
{
    (void)state;
    static const uint64_t cost[2] = {10, 7};
    static const uint8_t layouts[2] = {IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST},
                         plain[1] = {IR_LAYOUT_PLAIN};
    struct solve_node nodes[3] = {{2, cost}, {2, cost}, {2, cost}};
    struct solve_end uses[3] = {{0, layouts}, {1, layouts}, {2, layouts}};
    struct solve_tensor tensor = {.from = {IR_NONE, plain}, .n_uses = 3, .uses = uses};
    static uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
    reformat[IR_LAYOUT_PLAIN][IR_LAYOUT_CHANNELS_LAST] = 8;
    tensor.reformat = (const uint64_t(*)[SOLVE_FORMATS])reformat;
    struct solve_problem p = {3, 1, nodes, &tensor};
    uint32_t choice[3];
    assert_int_equal(solve(&p, 0, choice, NULL, NULL), STATUS_OK);
    assert_int_equal(solve_cost(&p, choice), 7 * 3 + 8);
    tensor.n_uses = 2; /* two readers would not earn the reformat back */
    assert_int_equal(solve(&p, 0, choice, NULL, NULL), STATUS_OK);
    assert_int_equal(solve_cost(&p, choice), 10 * 2 + 7);
}

/* 30,000 nodes read two tensors, and each node feeds the next. If the solver looked at all readers
 * or at all nodes for each node, this would not come to an end. */
static void time_does_not_grow_with_readers(void **state)
{
    enum { READERS = 30000 };
    static const uint64_t cost[2] = {10, 11};
    static const uint8_t layouts[2] = {IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST};
    uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
    struct solve_node *nodes = calloc(READERS + 2, sizeof(*nodes));
    struct solve_tensor *tensors = calloc(READERS + 2, sizeof(*tensors));
    struct solve_end *uses = calloc(READERS * 3, sizeof(*uses));
    uint32_t *choice = calloc(READERS + 2, sizeof(*choice));
    (void)state;
    assert_true(nodes && tensors && uses && choice);
    all_cost(reformat, 5);
    for (uint32_t i = 0; i < READERS + 2; i++) {
        bool hub = i >= READERS;
        nodes[i] = (struct solve_node){2, cost};
        tensors[i] =
            (struct solve_tensor){.from = {i, layouts},
                                  .n_uses = hub ? READERS : i + 1 < READERS,
                                  .uses = hub ? uses + READERS * (i - READERS + 1) : uses + i,
                                  .reformat = (const uint64_t(*)[SOLVE_FORMATS])reformat};
        uses[i % READERS] = (struct solve_end){i % READERS + 1, layouts};
        for (uint32_t k = 0; hub && k < READERS; k++)
            uses[READERS * (i - READERS + 1) + k] = (struct solve_end){k, layouts};
    }
    struct solve_problem p = {READERS + 2, READERS + 2, nodes, tensors};
    for (uint32_t limit = 0; limit < 2; limit++) { /* 1: no table is small enough */
        bool exact = limit;
        assert_int_equal(solve(&p, limit, choice, &exact, NULL), STATUS_OK);
        assert_int_equal(exact, !limit);
        assert_int_equal(solve_cost(&p, choice), 10 * (READERS + 2));
    }
    free(nodes);
    free(tensors);
    free(uses);
    free(choice);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    static const uint64_t cost[1] = {5};
    static const uint8_t blocked[1] = {IR_LAYOUT_BLOCKED_8}, plain[1] = {IR_LAYOUT_PLAIN};
    struct solve_node node = {1, cost};
    struct solve_end use = {0, blocked};
    struct solve_tensor tensor = {.from = {IR_NONE, plain}, .n_uses = 1, .uses = &use};
    static uint64_t reformat[SOLVE_FORMATS][SOLVE_FORMATS];
    reformat[IR_LAYOUT_PLAIN][IR_LAYOUT_BLOCKED_8] = SOLVE_NEVER;
    tensor.reformat = (const uint64_t(*)[SOLVE_FORMATS])reformat;
    struct solve_problem p = {1, 1, &node, &tensor};
    uint32_t choice[1];
    assert_int_equal(solve(&p, 0, choice, NULL, NULL), STATUS_OK);
    assert_true(solve_cost(&p, choice) >= SOLVE_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_is_the_best),
        cmocka_unit_test(local_is_close),
        cmocka_unit_test(a_widely_read_tensor_does_not_tie_all_layers_together),
        cmocka_unit_test(a_reformat_is_paid_for),
        cmocka_unit_test(a_reformat_is_shared),
        cmocka_unit_test(time_does_not_grow_with_readers),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
