/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local improvement: changes one node at a time, from a start where each node is fastest and from
 * starts that favour one format throughout. For each tensor the search counts how many readers want
 * each format. So the work of trying an option grows with the ends of its node only, however many
 * other nodes read the same tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/tune/solve_internal.h"

enum {
    SWEEPS_MAX = 50,
    WORK_MAX = 1 << 26, /* ends looked at; the first start is finished in any case */
};

/* One end of a tensor, from its node's side. */
struct port {
    uint32_t tensor;
    const struct solve_end *end;
};

struct search {
    const struct solve_problem *p;
    uint32_t *first; /* ports[first[i] .. first[i + 1]): those of node i, by rising tensor */
    struct port *ports;
    uint32_t (*readers)[SOLVE_FORMATS]; /* by tensor: how many readers want each format */
    uint32_t *choice;
    uint64_t work;
};

static void count_port(uint32_t *count, const struct solve_end *end)
{
    if (end->node != IR_NONE)
        count[end->node + 1]++;
}

static void put_port(struct search *s, uint32_t *next, uint32_t tensor, const struct solve_end *end)
{
    if (end->node != IR_NONE)
        s->ports[s->first[end->node] + next[end->node]++] = (struct port){tensor, end};
}

static bool search_init(struct search *s, const struct solve_problem *p)
{
    s->p = p;
    s->first = calloc((size_t)p->n_nodes + 2, sizeof(*s->first));
    s->readers = calloc((size_t)p->n_tensors + 1, sizeof(*s->readers));
    s->choice = calloc((size_t)p->n_nodes + 1, sizeof(*s->choice));
    uint32_t *next = calloc((size_t)p->n_nodes + 1, sizeof(*next));
    bool ok = s->first && s->readers && s->choice && next;
    for (uint32_t t = 0; ok && t < p->n_tensors; t++) {
        count_port(s->first, &p->tensors[t].from);
        for (uint32_t u = 0; u < p->tensors[t].n_uses; u++)
            count_port(s->first, &p->tensors[t].uses[u]);
    }
    for (uint32_t i = 0; ok && i < p->n_nodes; i++)
        s->first[i + 1] += s->first[i];
    if (ok)
        s->ports = calloc((size_t)s->first[p->n_nodes] + 1, sizeof(*s->ports));
    ok = ok && s->ports;
    for (uint32_t t = 0; ok && t < p->n_tensors; t++) {
        for (uint32_t u = 0; u < p->tensors[t].n_uses; u++)
            put_port(s, next, t, &p->tensors[t].uses[u]);
        put_port(s, next, t, &p->tensors[t].from);
    }
    free(next);
    return ok;
}

static void search_deinit(struct search *s)
{
    free(s->first);
    free(s->ports);
    free(s->readers);
    free(s->choice);
}

static bool is_use(const struct search *s, const struct port *port)
{
    return port->end != &s->p->tensors[port->tensor].from;
}

/* Counts the readers of all tensors for the present choice. */
static void count_readers(struct search *s)
{
    memset(s->readers, 0, s->p->n_tensors * sizeof(*s->readers));
    for (uint32_t t = 0; t < s->p->n_tensors; t++)
        for (uint32_t u = 0; u < s->p->tensors[t].n_uses; u++)
            s->readers[t][solve_format_at(&s->p->tensors[t].uses[u], s->choice)]++;
}

static void choose(struct search *s, uint32_t node, uint32_t option)
{
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        const struct port *port = &s->ports[i];
        if (!is_use(s, port))
            continue;
        s->readers[port->tensor][port->end->format[s->choice[node]]]--;
        s->readers[port->tensor][port->end->format[option]]++;
    }
    s->choice[node] = option;
}

static uint64_t reformats(const struct search *s, uint32_t tensor)
{
    const struct solve_tensor *t = &s->p->tensors[tensor];
    uint8_t from = solve_format_at(&t->from, s->choice);
    uint64_t sum = 0;
    for (uint32_t to = 0; to < SOLVE_FORMATS; to++)
        if (to != from && s->readers[tensor][to])
            sum = solve_plus(sum, t->reformat[from][to]);
    return sum;
}

static uint64_t cost_around(struct search *s, uint32_t node)
{
    uint64_t sum = s->p->nodes[node].cost[s->choice[node]];
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        bool twice = i > s->first[node] && s->ports[i].tensor == s->ports[i - 1].tensor;
        sum = solve_plus(sum, twice ? 0 : reformats(s, s->ports[i].tensor));
    }
    s->work += s->first[node + 1] - s->first[node] + 1;
    return sum;
}

static bool improve_node(struct search *s, uint32_t node)
{
    uint32_t was = s->choice[node], best = was;
    uint64_t best_cost = cost_around(s, node);
    for (uint32_t o = 0; o < s->p->nodes[node].n; o++) {
        choose(s, node, o);
        uint64_t cost = cost_around(s, node);
        if (cost < best_cost) {
            best_cost = cost;
            best = o;
        }
    }
    choose(s, node, best);
    return best != was;
}

static void improve(struct search *s)
{
    bool changed = true;
    count_readers(s);
    for (uint32_t sweep = 0; sweep < SWEEPS_MAX && changed; sweep++) {
        changed = false;
        for (uint32_t i = 0; i < s->p->n_nodes; i++) {
            uint32_t node = sweep % 2 ? s->p->n_nodes - 1 - i : i;
            changed = (s->p->nodes[node].n > 1 && improve_node(s, node)) || changed;
        }
        if (s->work > WORK_MAX)
            break;
    }
}

/* How many ends of the node's option have the format. */
static uint32_t votes(const struct search *s, uint32_t node, uint32_t option, uint8_t format)
{
    uint32_t n = 0;
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++)
        n += s->ports[i].end->format[option] == format;
    return n;
}

/* Chooses a start that favours `format`; SOLVE_FORMATS: it favours none. */
static void start(struct search *s, uint8_t format)
{
    for (uint32_t node = 0; node < s->p->n_nodes; node++) {
        uint32_t best_votes = 0, best = 0;
        for (uint32_t o = 0; o < s->p->nodes[node].n; o++) {
            uint32_t v = votes(s, node, o, format);
            bool faster = s->p->nodes[node].cost[o] < s->p->nodes[node].cost[best];
            if (v > best_votes || (v == best_votes && faster)) {
                best_votes = v;
                best = o;
            }
        }
        s->choice[node] = best;
    }
}

/* A format that no option has needs no start: to favour it would be to favour none. */
static void find_formats(const struct solve_problem *p, bool there[SOLVE_FORMATS + 1])
{
    there[SOLVE_FORMATS] = true;
    for (uint32_t t = 0; t < p->n_tensors; t++)
        for (uint32_t u = 0; u <= p->tensors[t].n_uses; u++) {
            const struct solve_end *end =
                u == p->tensors[t].n_uses ? &p->tensors[t].from : &p->tensors[t].uses[u];
            for (uint32_t o = 0; end->node != IR_NONE && o < p->nodes[end->node].n; o++)
                there[end->format[o]] = true;
        }
}

bool solve_local(const struct solve_problem *p, uint32_t *choice)
{
    struct search s = {0};
    bool there[SOLVE_FORMATS + 1] = {false};
    bool ok = search_init(&s, p);
    uint64_t best = UINT64_MAX;
    find_formats(p, there);
    for (uint8_t format = 0; ok && format <= SOLVE_FORMATS; format++) {
        if (!there[format] || (s.work > WORK_MAX && best < UINT64_MAX))
            continue;
        start(&s, format);
        improve(&s);
        uint64_t cost = solve_cost(p, s.choice);
        if (cost < best) {
            best = cost;
            memcpy(choice, s.choice, p->n_nodes * sizeof(*choice));
        }
    }
    search_deinit(&s);
    return ok;
}
