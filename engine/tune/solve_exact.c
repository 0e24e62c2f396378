/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact solution by bucket elimination (Dechter, "Bucket elimination: a unifying framework for
 * reasoning", 1999): networks are long and narrow, so eliminating the node that leaves the smallest
 * table keeps tables small.
 *
 * A tensor with many readers would tie them all together in one table. It is taken apart instead: a
 * variable for each format says whether the tensor is brought into that format, and each reader is
 * tied to these variables alone.
 *
 * A file chooses how many nodes there are and which node reads which, so no step here may look at
 * all nodes: a variable knows the factors that mention it, factors of one scope are merged into
 * one, and the next variable comes from a heap. The work of eliminating a variable grows with the
 * entries of its tables.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/arena.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "engine/tune/solve_internal.h"

enum {
    SCOPE_MAX = 24,
    TABLES_MAX = 1 << 24, /* entries of all tables together */
    TENSOR_MAX = 512,     /* entries of a tensor's table; a larger one is taken apart */
};

#define WORK_MAX (UINT64_C(1) << 30) /* look-ups in tables */

/* A function of the options of a few variables, as a table in which the first variable's option
 * changes fastest. The variables are sorted. */
struct factor {
    uint32_t n;
    uint32_t vars[SCOPE_MAX];
    uint64_t *table;
    bool counts; /* part of the problem that is left, and in the hash table of such factors */
    UT_hash_handle hh;
};

/* One of the factors that mention a variable. */
struct mention {
    struct factor *factor;
    struct mention *next;
};

struct heap_entry {
    uint64_t size;
    uint32_t var;
};

/* The first variables are the nodes, the others belong to tensors that were taken apart. */
struct elimination {
    const struct solve_problem *p;
    struct arena *memory;
    uint32_t limit;
    uint64_t left, work; /* table entries that may still be made, and look-ups */
    uint32_t n_vars;
    uint32_t *options;         /* of each variable */
    uint64_t *size;            /* of the table that its elimination leaves; 0: too large */
    bool *done;                /* eliminated, or with one option only */
    bool *stale;               /* the variable's `size` has to be found anew; it is in `anew` */
    struct mention **mentions; /* by variable; factors that no longer count are dropped when met */
    struct factor *factors;    /* hash table by scope: the factors that count */
    uint32_t *anew, n_anew;
    struct heap_entry *heap; /* by size, then by variable; some entries are outdated */
    uint32_t n_heap, heap_cap;
    uint32_t *choice; /* scratch while tables are filled, then the answer */
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

/* Keeps the variables sorted. */
static bool scope_add(struct factor *f, uint32_t var)
{
    uint32_t at = f->n;
    while (at && f->vars[at - 1] > var)
        at--;
    if (at && f->vars[at - 1] == var)
        return true;
    if (f->n == SCOPE_MAX)
        return false;
    memmove(&f->vars[at + 1], &f->vars[at], (f->n - at) * sizeof(*f->vars));
    f->vars[at] = var;
    f->n++;
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

static struct factor *factor_new(struct elimination *e)
{
    struct factor *f = arena_alloc(e->memory, sizeof(*f));
    if (f)
        memset(f, 0, sizeof(*f));
    return f;
}

/* A table of zeros. False: no memory, or too large. */
static bool factor_table(struct elimination *e, struct factor *f)
{
    uint64_t size = scope_size(e, f, MIN(e->limit, e->left));
    f->table = size ? arena_array(e->memory, size, sizeof(*f->table)) : NULL;
    if (!f->table)
        return false;
    memset(f->table, 0, size * sizeof(*f->table));
    e->left -= size;
    return true;
}

static void stale(struct elimination *e, uint32_t var)
{
    if (e->stale[var] || e->done[var])
        return;
    e->stale[var] = true;
    e->anew[e->n_anew++] = var;
}

/* Makes the factor count. If there is a factor of the same scope, its table takes up this one. */
static bool factor_add(struct elimination *e, struct factor *f)
{
    struct factor *same;
    for (uint32_t i = 0; i < f->n; i++)
        stale(e, f->vars[i]);
    HASH_FIND(hh, e->factors, f->vars, f->n * sizeof(*f->vars), same);
    if (same) {
        uint64_t size = scope_size(e, f, UINT64_MAX);
        for (uint64_t at = 0; at < size; at++)
            same->table[at] = solve_plus(same->table[at], f->table[at]);
        return true;
    }
    HASH_ADD_KEYPTR(hh, e->factors, f->vars, f->n * sizeof(*f->vars), f);
    if (!HASH_ADDED(f))
        return false;
    f->counts = true;
    for (uint32_t i = 0; i < f->n; i++) {
        struct mention *m = arena_alloc(e->memory, sizeof(*m));
        if (!m)
            return false;
        *m = (struct mention){f, e->mentions[f->vars[i]]};
        e->mentions[f->vars[i]] = m;
    }
    return true;
}

/* --- the problem as factors --- */

static bool add_node(struct elimination *e, uint32_t node)
{
    struct factor *f = factor_new(e);
    if (!f || !scope_add(f, node) || !factor_table(e, f))
        return false;
    memcpy(f->table, e->p->nodes[node].cost, e->p->nodes[node].n * sizeof(*f->table));
    return factor_add(e, f);
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

/* Adds the cost of bringing the tensor into `format`, by its maker's option and by whether the
 * tensor is brought into it at all (`var`). */
static bool add_supply(struct elimination *e, const struct solve_tensor *t, uint32_t format,
                       uint32_t var)
{
    struct factor *f = factor_new(e);
    bool open = varies(e->p, &t->from);
    if (!f || (open && !scope_add(f, t->from.node)) || !scope_add(f, var) || !factor_table(e, f))
        return false;
    /* Variables of tensors come behind all nodes, so the maker's option changes fastest. */
    uint32_t n = open ? e->options[t->from.node] : 1;
    for (uint32_t o = 0; o < n; o++) {
        uint8_t from = t->from.format[o];
        f->table[n + o] = from == format ? 0 : t->reformat[from][format];
    }
    return factor_add(e, f);
}

/* Makes a reader need the variable of its format. `vars`: by format. */
static bool add_demand(struct elimination *e, const struct solve_end *use, const uint32_t *vars)
{
    bool set[SOLVE_FORMATS] = {false};
    struct factor *f = factor_new(e);
    if (!f)
        return false;
    bool fits = !varies(e->p, use) || scope_add(f, use->node);
    mark_formats(e->p, use, set);
    for (uint32_t k = 0; k < SOLVE_FORMATS && fits; k++)
        fits = !set[k] || scope_add(f, vars[k]);
    if (!fits || !factor_table(e, f))
        return false;
    uint64_t size = scope_size(e, f, UINT64_MAX);
    for (uint64_t at = 0; at < size; at++) {
        scope_set(e, f, at);
        f->table[at] = e->choice[vars[solve_format_at(use, e->choice)]] ? 0 : SOLVE_NEVER;
    }
    return factor_add(e, f);
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

/* Nodes outside the scope may have any option here: their formats do not vary. */
static bool add_tensor(struct elimination *e, const struct solve_tensor *t)
{
    struct factor scope = {0};
    if (!tensor_scope(e->p, t, &scope))
        return take_apart(e, t);
    struct factor *f = factor_new(e);
    if (!f)
        return false;
    *f = scope;
    if (!factor_table(e, f))
        return false;
    uint64_t size = scope_size(e, f, UINT64_MAX);
    for (uint64_t at = 0; at < size; at++) {
        scope_set(e, f, at);
        f->table[at] = solve_tensor_cost(t, e->choice);
    }
    return factor_add(e, f);
}

/* --- which variable is next --- */

/* The factors that count and mention the variable; drops the others from its list. */
static struct mention *mentions_of(struct elimination *e, uint32_t var)
{
    struct mention **at = &e->mentions[var];
    while (*at) {
        if ((*at)->factor->counts)
            at = &(*at)->next;
        else
            *at = (*at)->next;
    }
    return e->mentions[var];
}

/* *out: the variables that the elimination of `var` leaves tied together. False: too many. */
static bool neighbours(struct elimination *e, uint32_t var, struct factor *out)
{
    for (struct mention **at = &e->mentions[var]; *at;) {
        const struct factor *f = (*at)->factor;
        if (!f->counts) {
            *at = (*at)->next;
            continue;
        }
        for (uint32_t i = 0; i < f->n; i++)
            if (f->vars[i] != var && !scope_add(out, f->vars[i]))
                return false;
        at = &(*at)->next;
    }
    return true;
}

static bool before(const struct heap_entry *a, const struct heap_entry *b)
{
    return a->size != b->size ? a->size < b->size : a->var < b->var;
}

static bool heap_push(struct elimination *e, struct heap_entry entry)
{
    if (e->n_heap == e->heap_cap) {
        uint32_t cap = MAX(2 * e->heap_cap, 64u);
        struct heap_entry *more = realloc(e->heap, cap * sizeof(*more));
        if (!more)
            return false;
        e->heap = more;
        e->heap_cap = cap;
    }
    uint32_t at = e->n_heap++;
    for (; at && before(&entry, &e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = entry;
    return true;
}

static struct heap_entry heap_pop(struct elimination *e)
{
    struct heap_entry top = e->heap[0], last = e->heap[--e->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < e->n_heap && before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (child >= e->n_heap || !before(&e->heap[child], &last))
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    if (e->n_heap)
        e->heap[at] = last;
    return top;
}

static bool sizes_find(struct elimination *e)
{
    while (e->n_anew) {
        uint32_t var = e->anew[--e->n_anew];
        struct factor scope = {0};
        e->stale[var] = false;
        if (e->done[var])
            continue;
        e->size[var] = neighbours(e, var, &scope) ? scope_size(e, &scope, e->limit) : 0;
        if (e->size[var] && !heap_push(e, (struct heap_entry){e->size[var], var}))
            return false;
    }
    return true;
}

/* The variable whose elimination leaves the smallest table; IR_NONE if all leave too large ones, or
 * there is no memory. */
static uint32_t cheapest(struct elimination *e)
{
    if (!sizes_find(e))
        return IR_NONE;
    while (e->n_heap) {
        struct heap_entry top = heap_pop(e);
        if (!e->done[top.var] && e->size[top.var] == top.size)
            return top.var;
    }
    return IR_NONE;
}

/* --- elimination --- */

/* *option: the best option of `var` for the present options of the other variables. Returns its
 * cost. */
static uint64_t best_option(const struct elimination *e, const struct mention *touching,
                            uint32_t var, uint32_t *option)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t o = 0; o < e->options[var]; o++) {
        uint64_t sum = 0;
        e->choice[var] = o;
        for (const struct mention *m = touching; m; m = m->next)
            sum = solve_plus(sum, scope_get(e, m->factor));
        if (sum < best) {
            best = sum;
            *option = o;
        }
    }
    return best;
}

/* Subtracts the look-ups that filling a table of this size takes. False: too many. */
static bool afford(struct elimination *e, const struct mention *touching, uint32_t var,
                   uint64_t size)
{
    uint64_t each = 1;
    for (const struct mention *m = touching; m; m = m->next)
        each += e->options[var];
    if (size > e->work / each)
        return false;
    e->work -= size * each;
    return true;
}

static bool eliminate(struct elimination *e, uint32_t var)
{
    struct factor *left = factor_new(e), *answer = factor_new(e);
    struct mention *touching = mentions_of(e, var);
    if (!left || !answer || !neighbours(e, var, left))
        return false;
    *answer = *left;
    if (!factor_table(e, left) || !factor_table(e, answer))
        return false;
    uint64_t size = scope_size(e, left, UINT64_MAX);
    if (!afford(e, touching, var, size))
        return false;
    for (uint64_t at = 0; at < size; at++) {
        uint32_t option = 0;
        scope_set(e, left, at);
        left->table[at] = best_option(e, touching, var, &option);
        answer->table[at] = option;
    }
    for (struct mention *m = touching; m; m = m->next) {
        HASH_DEL(e->factors, m->factor); /* NOLINT: the analyser loses uthash's list */
        m->factor->counts = false;
    }
    e->buckets[e->n_buckets++] = (struct bucket){var, answer};
    e->done[var] = true;
    return left->n == 0 || factor_add(e, left);
}

static void elimination_deinit(struct elimination *e)
{
    HASH_CLEAR(hh, e->factors);
    free(e->heap);
    arena_free(e->memory);
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
    e->memory = arena_new(0);
    if (!e->memory)
        return false;
    e->options = arena_array(e->memory, n, sizeof(*e->options));
    e->size = arena_array(e->memory, n, sizeof(*e->size));
    e->done = arena_array(e->memory, n, sizeof(*e->done));
    e->stale = arena_array(e->memory, n, sizeof(*e->stale));
    e->mentions = arena_array(e->memory, n, sizeof(struct mention *));
    e->anew = arena_array(e->memory, n, sizeof(*e->anew));
    e->choice = arena_array(e->memory, n, sizeof(*e->choice));
    e->buckets = arena_array(e->memory, n, sizeof(*e->buckets));
    if (!e->options || !e->size || !e->done || !e->stale || !e->mentions || !e->anew ||
        !e->choice || !e->buckets)
        return false;
    memset(e->done, 0, n * sizeof(*e->done));
    memset(e->stale, 0, n * sizeof(*e->stale));
    memset(e->choice, 0, n * sizeof(*e->choice));
    for (size_t i = 0; i < n; i++)
        e->mentions[i] = NULL;
    return true;
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

bool solve_exact(const struct solve_problem *p, uint32_t limit, uint32_t *choice)
{
    struct elimination e = {.p = p, .limit = limit, .left = TABLES_MAX, .work = WORK_MAX};
    bool ok = elimination_init(&e) && state(&e);
    uint32_t open = 0;
    for (uint32_t i = 0; ok && i < e.n_vars; i++) {
        open += !e.done[i];
        stale(&e, i);
    }
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
