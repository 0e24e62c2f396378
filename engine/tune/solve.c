/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact solution by bucket elimination (Dechter, "Bucket elimination: a unifying framework for
 * reasoning", 1999): networks are long and narrow, so eliminating the node that leaves the smallest
 * table keeps tables small. Where it does not, local improvement: change one node at a time, from a
 * start where each node is fastest and from starts that favour one layout throughout.
 */
#include "engine/tune/solve.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { SCOPE_MAX = 24, TABLE_DEFAULT = 1 << 18, SWEEPS_MAX = 50 };

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a >= SOLVE_NEVER || b >= SOLVE_NEVER || a + b >= SOLVE_NEVER ? SOLVE_NEVER : a + b;
}

static uint8_t layout_at(const struct solve_end *end, const uint32_t *choice)
{
    return end->layout[end->node == IR_NONE ? 0 : choice[end->node]];
}

static uint64_t tensor_cost(const struct solve_tensor *t, const uint32_t *choice)
{
    uint8_t from = layout_at(&t->from, choice);
    bool paid[SOLVE_LAYOUTS] = {false};
    uint64_t sum = 0;
    paid[from] = true;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        uint8_t to = layout_at(&t->uses[i], choice);
        if (!paid[to])
            sum = plus(sum, t->reformat[from][to]);
        paid[to] = true;
    }
    return sum;
}

uint64_t solve_cost(const struct solve_problem *p, const uint32_t *choice)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        sum = plus(sum, p->nodes[i].cost[choice[i]]);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        sum = plus(sum, tensor_cost(&p->tensors[i], choice));
    return sum;
}

/* --- exact --- */

/* A function of the options of a few nodes: a table, the first node's option changing fastest. */
struct factor {
    uint32_t n;
    uint32_t vars[SCOPE_MAX];
    uint64_t *table;
    struct factor *next;
};

struct elimination {
    const struct solve_problem *p;
    uint32_t limit;
    struct factor *factors; /* those that still count */
    struct factor *spent;   /* kept to be freed */
    uint32_t *choice;       /* scratch while tables are filled, then the answer */
    struct bucket {
        uint32_t node;
        struct factor *scope; /* table holds the best option of `node` */
    } * buckets;
    uint32_t n_buckets;
    bool *done; /* eliminated, or with one option only */
};

static bool varies(const struct solve_problem *p, const struct solve_end *end)
{
    if (end->node == IR_NONE)
        return false;
    for (uint32_t i = 1; i < p->nodes[end->node].n; i++)
        if (end->layout[i] != end->layout[0])
            return true;
    return false;
}

static bool scope_add(struct factor *f, uint32_t var)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->vars[i] == var)
            return true;
    if (f->n == SCOPE_MAX)
        return false;
    f->vars[f->n++] = var;
    return true;
}

/* Entries of the table; 0 if there are too many. */
static uint64_t scope_size(const struct elimination *e, const struct factor *f)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        n *= e->p->nodes[f->vars[i]].n;
        if (n > e->limit)
            return 0;
    }
    return n;
}

/* Sets the scope's nodes to the options of entry `at`. */
static void scope_set(const struct elimination *e, const struct factor *f, uint64_t at)
{
    for (uint32_t i = 0; i < f->n; i++) {
        e->choice[f->vars[i]] = (uint32_t)(at % e->p->nodes[f->vars[i]].n);
        at /= e->p->nodes[f->vars[i]].n;
    }
}

static uint64_t scope_get(const struct elimination *e, const struct factor *f)
{
    uint64_t at = 0;
    for (uint32_t i = f->n; i-- > 0;)
        at = at * e->p->nodes[f->vars[i]].n + e->choice[f->vars[i]];
    return f->table[at];
}

static struct factor *factor_new(void)
{
    return calloc(1, sizeof(struct factor));
}

/* Hands the factor over to the list whatever happens. False: no memory, or too large. */
static bool factor_table(struct elimination *e, struct factor *f, struct factor **list)
{
    f->next = *list;
    *list = f;
    uint64_t size = scope_size(e, f);
    f->table = size ? calloc(size, sizeof(*f->table)) : NULL;
    return f->table != NULL;
}

static bool add_node(struct elimination *e, uint32_t node)
{
    struct factor *f = factor_new();
    if (!f || !scope_add(f, node)) {
        free(f);
        return false;
    }
    if (!factor_table(e, f, &e->factors))
        return false;
    memcpy(f->table, e->p->nodes[node].cost, e->p->nodes[node].n * sizeof(*f->table));
    return true;
}

static bool add_tensor(struct elimination *e, const struct solve_tensor *t)
{
    struct factor *f = factor_new();
    if (!f)
        return false;
    bool fits = !varies(e->p, &t->from) || scope_add(f, t->from.node);
    for (uint32_t i = 0; i < t->n_uses && fits; i++)
        fits = !varies(e->p, &t->uses[i]) || scope_add(f, t->uses[i].node);
    if (!fits) {
        free(f);
        return false;
    }
    if (!factor_table(e, f, &e->factors))
        return false;
    memset(e->choice, 0, e->p->n_nodes * sizeof(*e->choice));
    uint64_t size = scope_size(e, f);
    for (uint64_t at = 0; at < size; at++) {
        scope_set(e, f, at);
        f->table[at] = tensor_cost(t, e->choice);
    }
    return true;
}

static bool mentions(const struct factor *f, uint32_t node)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->vars[i] == node)
            return true;
    return false;
}

/* The nodes that a node's elimination leaves tied together. False: too many. */
static bool neighbours(const struct elimination *e, uint32_t node, struct factor *out)
{
    for (const struct factor *f = e->factors; f; f = f->next)
        for (uint32_t i = 0; mentions(f, node) && i < f->n; i++)
            if (f->vars[i] != node && !scope_add(out, f->vars[i]))
                return false;
    return true;
}

/* The node whose elimination leaves the smallest table; IR_NONE if all leave too large ones. */
static uint32_t cheapest(const struct elimination *e)
{
    uint32_t best = IR_NONE;
    uint64_t best_size = UINT64_MAX;
    for (uint32_t i = 0; i < e->p->n_nodes; i++) {
        struct factor scope = {0};
        if (e->done[i] || !neighbours(e, i, &scope))
            continue;
        uint64_t size = scope_size(e, &scope);
        if (size && size < best_size) {
            best = i;
            best_size = size;
        }
        if (best_size == 1)
            break;
    }
    return best;
}

/* The best option of `node` for the options that the others have now, and its cost. */
static uint64_t best_option(const struct elimination *e, const struct factor *touching,
                            uint32_t node, uint32_t *option)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t o = 0; o < e->p->nodes[node].n; o++) {
        uint64_t sum = 0;
        e->choice[node] = o;
        for (const struct factor *f = touching; f; f = f->next)
            sum = plus(sum, scope_get(e, f));
        if (sum < best) {
            best = sum;
            *option = o;
        }
    }
    return best;
}

static bool eliminate(struct elimination *e, uint32_t node)
{
    struct factor *left = factor_new(), *answer = factor_new(), *touching = NULL;
    bool ok = left && answer && neighbours(e, node, left);
    if (!ok) {
        free(left);
        free(answer);
        return false;
    }
    *answer = *left;
    for (struct factor **at = &e->factors; *at;) {
        struct factor *f = *at;
        if (!mentions(f, node)) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = touching;
        touching = f;
    }
    ok = factor_table(e, left, &e->factors);
    ok = factor_table(e, answer, &e->spent) && ok;
    uint64_t size = ok ? scope_size(e, left) : 0;
    for (uint64_t at = 0; at < size; at++) {
        uint32_t option = 0;
        scope_set(e, left, at);
        left->table[at] = best_option(e, touching, node, &option);
        answer->table[at] = option;
    }
    while (touching) {
        struct factor *next = touching->next;
        touching->next = e->spent;
        e->spent = touching;
        touching = next;
    }
    e->buckets[e->n_buckets++] = (struct bucket){node, answer};
    e->done[node] = true;
    return ok;
}

static void factors_free(struct factor *f)
{
    while (f) {
        struct factor *next = f->next;
        free(f->table);
        free(f);
        f = next;
    }
}

/* False: tables would be too large, or there is no memory. */
static bool solve_exact(const struct solve_problem *p, uint32_t limit, uint32_t *choice)
{
    struct elimination e = {.p = p, .limit = limit, .choice = choice};
    e.buckets = calloc((size_t)p->n_nodes + 1, sizeof(*e.buckets));
    e.done = calloc((size_t)p->n_nodes + 1, sizeof(*e.done));
    bool ok = e.buckets && e.done;
    uint32_t open = 0;
    memset(choice, 0, p->n_nodes * sizeof(*choice));
    for (uint32_t i = 0; i < p->n_nodes && ok; i++) {
        e.done[i] = p->nodes[i].n == 1; /* nothing to decide */
        open += !e.done[i];
        ok = e.done[i] || add_node(&e, i);
    }
    for (uint32_t i = 0; i < p->n_tensors && ok; i++)
        ok = add_tensor(&e, &p->tensors[i]);
    for (; open > 0 && ok; open--) {
        uint32_t node = cheapest(&e);
        ok = node != IR_NONE && eliminate(&e, node);
    }
    for (uint32_t i = e.n_buckets; ok && i-- > 0;)
        choice[e.buckets[i].node] = (uint32_t)scope_get(&e, e.buckets[i].scope);
    factors_free(e.factors);
    factors_free(e.spent);
    free(e.buckets);
    free(e.done);
    return ok;
}

/* --- local improvement --- */

struct search {
    const struct solve_problem *p;
    uint32_t *first, *tensors; /* tensors[first[i] .. first[i + 1]): those that node i touches */
};

static void touch(uint32_t *count, const struct solve_end *end)
{
    if (end->node != IR_NONE)
        count[end->node + 1]++;
}

static bool search_init(struct search *s, const struct solve_problem *p)
{
    s->p = p;
    s->first = calloc((size_t)p->n_nodes + 2, sizeof(*s->first));
    if (!s->first)
        return false;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        touch(s->first, &p->tensors[t].from);
        for (uint32_t u = 0; u < p->tensors[t].n_uses; u++)
            touch(s->first, &p->tensors[t].uses[u]);
    }
    for (uint32_t i = 0; i < p->n_nodes; i++)
        s->first[i + 1] += s->first[i];
    s->tensors = calloc((size_t)s->first[p->n_nodes] + 1, sizeof(*s->tensors));
    uint32_t *next = calloc((size_t)p->n_nodes + 1, sizeof(*next));
    bool ok = s->tensors && next;
    for (uint32_t t = 0; ok && t < p->n_tensors; t++) {
        const struct solve_tensor *tensor = &p->tensors[t];
        for (uint32_t u = 0; u <= tensor->n_uses; u++) {
            uint32_t node = u == tensor->n_uses ? tensor->from.node : tensor->uses[u].node;
            if (node != IR_NONE)
                s->tensors[s->first[node] + next[node]++] = t;
        }
    }
    free(next);
    return ok;
}

static uint64_t cost_around(const struct search *s, uint32_t node, const uint32_t *choice)
{
    uint64_t sum = s->p->nodes[node].cost[choice[node]];
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        bool twice = i > s->first[node] && s->tensors[i] == s->tensors[i - 1];
        sum = plus(sum, twice ? 0 : tensor_cost(&s->p->tensors[s->tensors[i]], choice));
    }
    return sum;
}

static bool improve_node(const struct search *s, uint32_t node, uint32_t *choice)
{
    uint32_t was = choice[node], best = was;
    uint64_t best_cost = cost_around(s, node, choice);
    for (uint32_t o = 0; o < s->p->nodes[node].n; o++) {
        choice[node] = o;
        uint64_t cost = cost_around(s, node, choice);
        if (cost < best_cost) {
            best_cost = cost;
            best = o;
        }
    }
    choice[node] = best;
    return best != was;
}

static void improve(const struct search *s, uint32_t *choice)
{
    bool changed = true;
    for (uint32_t sweep = 0; sweep < SWEEPS_MAX && changed; sweep++) {
        changed = false;
        for (uint32_t i = 0; i < s->p->n_nodes; i++) {
            uint32_t node = sweep % 2 ? s->p->n_nodes - 1 - i : i;
            changed = improve_node(s, node, choice) || changed;
        }
    }
}

/* How many ends of the node's option have the layout. */
static uint32_t votes(const struct search *s, uint32_t node, uint32_t option, uint8_t layout)
{
    uint32_t n = 0;
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        const struct solve_tensor *t = &s->p->tensors[s->tensors[i]];
        n += t->from.node == node && t->from.layout[option] == layout;
        for (uint32_t u = 0; u < t->n_uses; u++)
            n += t->uses[u].node == node && t->uses[u].layout[option] == layout;
    }
    return n;
}

/* layout SOLVE_LAYOUTS: favour none. */
static void start(const struct search *s, uint8_t layout, uint32_t *choice)
{
    for (uint32_t node = 0; node < s->p->n_nodes; node++) {
        uint32_t best_votes = 0;
        choice[node] = 0;
        for (uint32_t o = 0; o < s->p->nodes[node].n; o++) {
            uint32_t v = votes(s, node, o, layout);
            bool faster = s->p->nodes[node].cost[o] < s->p->nodes[node].cost[choice[node]];
            if (v > best_votes || (v == best_votes && faster)) {
                best_votes = v;
                choice[node] = o;
            }
        }
    }
}

static bool solve_local(const struct solve_problem *p, uint32_t *choice)
{
    struct search s = {0};
    uint32_t *now = calloc((size_t)p->n_nodes + 1, sizeof(*now));
    bool ok = search_init(&s, p) && now;
    uint64_t best = UINT64_MAX;
    for (uint8_t layout = 0; ok && layout <= SOLVE_LAYOUTS; layout++) {
        start(&s, layout, now);
        improve(&s, now);
        uint64_t cost = solve_cost(p, now);
        if (cost < best) {
            best = cost;
            memcpy(choice, now, p->n_nodes * sizeof(*now));
        }
    }
    free(now);
    free(s.first);
    free(s.tensors);
    return ok;
}

enum status solve(const struct solve_problem *p, uint32_t table_limit, uint32_t *choice,
                  bool *exact, struct error *err)
{
    bool done = solve_exact(p, table_limit ? table_limit : TABLE_DEFAULT, choice);
    if (!done && !solve_local(p, choice))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "tuner: out of memory");
    if (exact)
        *exact = done;
    return STATUS_OK;
}
