/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of an answer to the assignment problem, and the choice of the solver: the exact one
 * where it is cheap (solve_exact.c), else local improvement (solve_local.c).
 */
#include "engine/tune/solve.h"

#include "engine/tune/solve_internal.h"

uint64_t solve_plus(uint64_t a, uint64_t b)
{
    return a >= SOLVE_NEVER || b >= SOLVE_NEVER || a + b >= SOLVE_NEVER ? SOLVE_NEVER : a + b;
}

uint8_t solve_format_at(const struct solve_end *end, const uint32_t *choice)
{
    return end->format[end->node == IR_NONE ? 0 : choice[end->node]];
}

uint64_t solve_tensor_cost(const struct solve_tensor *t, const uint32_t *choice)
{
    uint8_t from = solve_format_at(&t->from, choice);
    bool paid[SOLVE_FORMATS] = {false};
    uint64_t sum = 0;
    paid[from] = true;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        uint8_t to = solve_format_at(&t->uses[i], choice);
        if (!paid[to])
            sum = solve_plus(sum, t->reformat[from][to]);
        paid[to] = true;
    }
    return sum;
}

uint64_t solve_cost(const struct solve_problem *p, const uint32_t *choice)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        sum = solve_plus(sum, p->nodes[i].cost[choice[i]]);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        sum = solve_plus(sum, solve_tensor_cost(&p->tensors[i], choice));
    return sum;
}

enum { TABLE_DEFAULT = 1 << 16 };

enum status solve(const struct solve_problem *p, uint32_t table_limit, uint32_t *choice,
                  bool *exact, struct error *err)
{
    bool done = solve_exact(p, table_limit ? table_limit : TABLE_DEFAULT, choice);
    if (!done && !solve_local(p, choice))
        return error_no_memory(err, "the tuner");
    if (exact)
        *exact = done;
    return STATUS_OK;
}
