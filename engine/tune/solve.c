/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact solution by bucket elimination (Dechter, "Bucket elimination: a unifying framework for
 * reasoning", 1999): networks are long and narrow, so eliminating the node that leaves the smallest
 * table keeps tables small. Where it does not, local improvement: change one node at a time, from a
 * start where each node is fastest and from starts that favour one format throughout.
 *
 * A tensor with many readers would tie them all together in one table. It is taken apart instead: a
 * variable for each format says whether the tensor is brought into it, and each reader is tied to
 * those alone.
 */
#include "engine/tune/solve.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum {
    SCOPE_MAX = 24,
    TABLE_DEFAULT = 1 << 16,
    TABLES_MAX = 1 << 24, /* entries of all tables together */
    TENSOR_MAX = 512,     /* entries of a tensor's table; a larger one is taken apart */
    SWEEPS_MAX = 50,
};

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a >= SOLVE_NEVER || b >= SOLVE_NEVER || a + b >= SOLVE_NEVER ? SOLVE_NEVER : a + b;
}

static uint8_t format_at(const struct solve_end *end, const uint32_t *choice)
{
    return end->format[end->node == IR_NONE ? 0 : choice[end->node]];
}

static uint64_t tensor_cost(const struct solve_tensor *t, const uint32_t *choice)
{
    uint8_t from = format_at(&t->from, choice);
    bool paid[SOLVE_FORMATS] = {false};
    uint64_t sum = 0;
    paid[from] = true;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        uint8_t to = format_at(&t->uses[i], choice);
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

/* A function of the options of a few variables: a table, the first one's option changing fastest.
 */
struct factor {
    uint32_t n;
    uint32_t vars[SCOPE_MAX];
    uint64_t *table;
    struct factor *next;
};

/* Variables are the nodes, then those of the tensors that were taken apart. */
struct elimination {
    const struct solve_problem *p;
    uint32_t limit;
    uint64_t left; /* entries that tables may still have */
    uint32_t n_vars;
    uint32_t *options;      /* of each variable */
    uint64_t *size;         /* of the table that its elimination leaves; 0: too large */
    bool *fresh;            /* whether `size` is still right */
    bool *done;             /* eliminated, or with one option only */
    struct factor *factors; /* those that still count */
    struct factor *spent;   /* kept to be freed */
    uint32_t *choice;       /* scratch while tables are filled, then the answer */
    struct bucket {
        uint32_t var;
        struct factor *scope; /* table holds the best option of `var` */
    } * buckets;
    uint32_t n_buckets;
};

static bool varies(const struct solve_problem *p, const struct solve_end *end)
{
    if (end->node == IR_NONE)
        return false;
    for (uint32_t i = 1; i < p->nodes[end->node].n; i++)
        if (end->format[i] != end->format[0])
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
static uint64_t scope_size(const struct elimination *e, const struct factor *f, uint64_t limit)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        n *= e->options[f->vars[i]];
        if (n > limit)
            return 0;
    }
    return n;
}

/* Sets the scope's variables to the options of entry `at`. */
static void scope_set(const struct elimination *e, const struct factor *f, uint64_t at)
{
    for (uint32_t i = 0; i < f->n; i++) {
        e->choice[f->vars[i]] = (uint32_t)(at % e->options[f->vars[i]]);
        at /= e->options[f->vars[i]];
    }
}

static uint64_t scope_get(const struct elimination *e, const struct factor *f)
{
    uint64_t at = 0;
    for (uint32_t i = f->n; i-- > 0;)
        at = at * e->options[f->vars[i]] + e->choice[f->vars[i]];
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
    uint64_t size = scope_size(e, f, MIN(e->limit, e->left));
    f->table = size ? calloc(size, sizeof(*f->table)) : NULL;
    e->left -= f->table ? size : 0;
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

/* The nodes whose options decide what the tensor costs. False: too many for one table. */
static bool tensor_scope(const struct solve_problem *p, const struct solve_tensor *t,
                         struct factor *out)
{
    uint64_t size = 1;
    bool fits = !varies(p, &t->from) || scope_add(out, t->from.node);
    for (uint32_t i = 0; i < t->n_uses && fits; i++)
        fits = !varies(p, &t->uses[i]) || scope_add(out, t->uses[i].node);
    for (uint32_t i = 0; i < out->n && fits; i++) {
        size *= p->nodes[out->vars[i]].n;
        fits = size <= TENSOR_MAX;
    }
    return fits;
}

static void mark_formats(const struct solve_problem *p, const struct solve_end *end,
                         bool set[SOLVE_FORMATS])
{
    uint32_t n = end->node == IR_NONE ? 1 : p->nodes[end->node].n;
    for (uint32_t k = 0; k < n; k++)
        set[end->format[k]] = true;
}

static uint32_t use_formats(const struct solve_problem *p, const struct solve_tensor *t,
                            bool set[SOLVE_FORMATS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_uses; i++)
        mark_formats(p, &t->uses[i], set);
    for (uint32_t f = 0; f < SOLVE_FORMATS; f++)
        n += set[f];
    return n;
}

/* What bringing the tensor into `format` costs, by its maker's option and by whether it is done. */
static bool add_supply(struct elimination *e, const struct solve_tensor *t, uint32_t format,
                       uint32_t var)
{
    struct factor *f = factor_new();
    if (!f)
        return false;
    bool open = varies(e->p, &t->from);
    if (open)
        scope_add(f, t->from.node);
    scope_add(f, var);
    if (!factor_table(e, f, &e->factors))
        return false;
    uint32_t n = open ? e->options[t->from.node] : 1;
    for (uint32_t o = 0; o < n; o++) {
        uint8_t from = t->from.format[o];
        f->table[n + o] = from == format ? 0 : t->reformat[from][format];
    }
    return true;
}

/* A reader needs its format to be there. `vars`: by format. */
static bool add_demand(struct elimination *e, const struct solve_end *use, const uint32_t *vars)
{
    bool set[SOLVE_FORMATS] = {false};
    struct factor *f = factor_new();
    if (!f)
        return false;
    bool fits = !varies(e->p, use) || scope_add(f, use->node);
    mark_formats(e->p, use, set);
    for (uint32_t k = 0; k < SOLVE_FORMATS && fits; k++)
        fits = !set[k] || scope_add(f, vars[k]);
    if (!fits) {
        free(f);
        return false;
    }
    if (!factor_table(e, f, &e->factors))
        return false;
    uint64_t size = scope_size(e, f, UINT64_MAX);
    for (uint64_t at = 0; at < size; at++) {
        scope_set(e, f, at);
        f->table[at] = e->choice[vars[format_at(use, e->choice)]] ? 0 : SOLVE_NEVER;
    }
    return true;
}

static bool take_apart(struct elimination *e, const struct solve_tensor *t)
{
    bool set[SOLVE_FORMATS] = {false}, ok = true;
    uint32_t vars[SOLVE_FORMATS];
    use_formats(e->p, t, set);
    for (uint32_t f = 0; f < SOLVE_FORMATS && ok; f++) {
        if (!set[f])
            continue;
        vars[f] = e->n_vars++;
        e->options[vars[f]] = 2;
        ok = add_supply(e, t, f, vars[f]);
    }
    for (uint32_t i = 0; i < t->n_uses && ok; i++)
        ok = add_demand(e, &t->uses[i], vars);
    return ok;
}

static bool add_tensor(struct elimination *e, const struct solve_tensor *t)
{
    struct factor scope = {0};
    if (!tensor_scope(e->p, t, &scope))
        return take_apart(e, t);
    struct factor *f = factor_new();
    if (!f)
        return false;
    *f = scope;
    if (!factor_table(e, f, &e->factors))
        return false;
    memset(e->choice, 0, e->n_vars * sizeof(*e->choice));
    uint64_t size = scope_size(e, f, UINT64_MAX);
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

/* The variables that one's elimination leaves tied together. False: too many. */
static bool neighbours(const struct elimination *e, uint32_t var, struct factor *out)
{
    for (const struct factor *f = e->factors; f; f = f->next)
        for (uint32_t i = 0; mentions(f, var) && i < f->n; i++)
            if (f->vars[i] != var && !scope_add(out, f->vars[i]))
                return false;
    return true;
}

/* The one whose elimination leaves the smallest table; IR_NONE if all leave too large ones. */
static uint32_t cheapest(struct elimination *e)
{
    uint32_t best = IR_NONE;
    for (uint32_t i = 0; i < e->n_vars; i++) {
        if (e->done[i])
            continue;
        if (!e->fresh[i]) {
            struct factor scope = {0};
            e->size[i] = neighbours(e, i, &scope) ? scope_size(e, &scope, e->limit) : 0;
            e->fresh[i] = true;
        }
        if (e->size[i] && (best == IR_NONE || e->size[i] < e->size[best]))
            best = i;
        if (best != IR_NONE && e->size[best] == 1)
            break;
    }
    return best;
}

/* The best option of `var` for the options that the others have now, and its cost. */
static uint64_t best_option(const struct elimination *e, const struct factor *touching,
                            uint32_t var, uint32_t *option)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t o = 0; o < e->options[var]; o++) {
        uint64_t sum = 0;
        e->choice[var] = o;
        for (const struct factor *f = touching; f; f = f->next)
            sum = plus(sum, scope_get(e, f));
        if (sum < best) {
            best = sum;
            *option = o;
        }
    }
    return best;
}

static bool eliminate(struct elimination *e, uint32_t var)
{
    struct factor *left = factor_new(), *answer = factor_new(), *touching = NULL;
    bool ok = left && answer && neighbours(e, var, left);
    if (!ok) {
        free(left);
        free(answer);
        return false;
    }
    *answer = *left;
    for (uint32_t i = 0; i < left->n; i++)
        e->fresh[left->vars[i]] = false;
    for (struct factor **at = &e->factors; *at;) {
        struct factor *f = *at;
        if (!mentions(f, var)) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = touching;
        touching = f;
    }
    ok = factor_table(e, left, &e->factors);
    ok = factor_table(e, answer, &e->spent) && ok;
    uint64_t size = ok ? scope_size(e, left, UINT64_MAX) : 0;
    for (uint64_t at = 0; at < size; at++) {
        uint32_t option = 0;
        scope_set(e, left, at);
        left->table[at] = best_option(e, touching, var, &option);
        answer->table[at] = option;
    }
    while (touching) {
        struct factor *next = touching->next;
        touching->next = e->spent;
        e->spent = touching;
        touching = next;
    }
    e->buckets[e->n_buckets++] = (struct bucket){var, answer};
    e->done[var] = true;
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

static void elimination_deinit(struct elimination *e)
{
    factors_free(e->factors);
    factors_free(e->spent);
    free(e->options);
    free(e->size);
    free(e->fresh);
    free(e->done);
    free(e->choice);
    free(e->buckets);
}

static bool elimination_init(struct elimination *e)
{
    const struct solve_problem *p = e->p;
    size_t n = (size_t)p->n_nodes + 1;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct factor scope = {0};
        bool set[SOLVE_FORMATS] = {false};
        if (!tensor_scope(p, &p->tensors[i], &scope))
            n += use_formats(p, &p->tensors[i], set);
    }
    e->options = calloc(n, sizeof(*e->options));
    e->size = calloc(n, sizeof(*e->size));
    e->fresh = calloc(n, sizeof(*e->fresh));
    e->done = calloc(n, sizeof(*e->done));
    e->choice = calloc(n, sizeof(*e->choice));
    e->buckets = calloc(n, sizeof(*e->buckets));
    return e->options && e->size && e->fresh && e->done && e->choice && e->buckets;
}

static bool state(struct elimination *e)
{
    bool ok = true;
    e->n_vars = e->p->n_nodes;
    for (uint32_t i = 0; i < e->p->n_nodes && ok; i++) {
        e->options[i] = e->p->nodes[i].n;
        e->done[i] = e->options[i] == 1; /* nothing to decide */
        ok = e->done[i] || add_node(e, i);
    }
    for (uint32_t i = 0; i < e->p->n_tensors && ok; i++)
        ok = add_tensor(e, &e->p->tensors[i]);
    return ok;
}

/* False: tables would be too large, or there is no memory. */
static bool solve_exact(const struct solve_problem *p, uint32_t limit, uint32_t *choice)
{
    struct elimination e = {.p = p, .limit = limit, .left = TABLES_MAX};
    bool ok = elimination_init(&e) && state(&e);
    uint32_t open = 0;
    for (uint32_t i = 0; i < e.n_vars; i++)
        open += !e.done[i];
    for (; open > 0 && ok; open--) {
        uint32_t var = cheapest(&e);
        ok = var != IR_NONE && eliminate(&e, var);
    }
    if (ok)
        memset(e.choice, 0, e.n_vars * sizeof(*e.choice));
    for (uint32_t i = e.n_buckets; ok && i-- > 0;)
        e.choice[e.buckets[i].var] = (uint32_t)scope_get(&e, e.buckets[i].scope);
    if (ok)
        memcpy(choice, e.choice, p->n_nodes * sizeof(*choice));
    elimination_deinit(&e);
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

/* How many ends of the node's option have the format. */
static uint32_t votes(const struct search *s, uint32_t node, uint32_t option, uint8_t format)
{
    uint32_t n = 0;
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        const struct solve_tensor *t = &s->p->tensors[s->tensors[i]];
        n += t->from.node == node && t->from.format[option] == format;
        for (uint32_t u = 0; u < t->n_uses; u++)
            n += t->uses[u].node == node && t->uses[u].format[option] == format;
    }
    return n;
}

/* format SOLVE_FORMATS: favour none. */
static void start(const struct search *s, uint8_t format, uint32_t *choice)
{
    for (uint32_t node = 0; node < s->p->n_nodes; node++) {
        uint32_t best_votes = 0;
        choice[node] = 0;
        for (uint32_t o = 0; o < s->p->nodes[node].n; o++) {
            uint32_t v = votes(s, node, o, format);
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
    for (uint8_t format = 0; ok && format <= SOLVE_FORMATS; format++) {
        start(&s, format, now);
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
