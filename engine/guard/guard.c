/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which layers are held back; see guard.h. */
#include "engine/guard/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/guard/internal.h"

enum {
    ROUNDS_MAX = 10, /* then all that is left is held back */
    LEAST_PART = 24, /* in round r, r parts of the layers are held back at least */
    NAMED_MAX = 6,   /* layers in one line of the log */
    HELD_MAX = 4096, /* layers that are remembered from profile to profile */
};

/* Bytes of a profile's values in fp32, of which a comparison takes minutes. */
static const uint64_t many_bytes = (uint64_t)16 << 30;

#define MARGIN      0.9  /* what is held back should be enough */
#define MODELS_OWN  1e-3 /* an error that is far below what rounding to 8 bits costs */
#define HEAVY_SAVES 7.0  /* that 16 bits save of heavy work, in times what they take */
#define LEAST_RATIO 0.4  /* by which a round makes the model's error smaller at most */

/* A layer that is held back. */
struct held {
    uint32_t node;  /* where it was found */
    uint32_t types; /* as in struct tune_judge */
    bool by_share;  /* of the model's error */
};

struct guard {
    struct guard_options options;
    struct tune_judge judge;
    struct arena *names; /* of the layers that are held back */
    struct guard_report report;
    struct guard_layer *held;          /* the report's */
    struct held *held_at;              /* beside it */
    uint32_t n_held, held_cap, n_told; /* n_told: of those held, what the log has */
    uint32_t n_before;                 /* ... what earlier profiles held */
    struct guard_layer *best;          /* the report's layers */
    struct arena *best_names;
    /* Of the profile at hand: */
    struct arena *memory;
    struct guard_layer *now; /* by node; type NONE: never in a shorter type */
    uint32_t *asked;         /* by node: what was ruled out */
    struct walk_row *rows;
    struct value_memory values;
    uint32_t round, batch;
    struct guard_output outputs[IR_MAX_IO];
    uint32_t samples;
    struct walk_times times; /* of the last comparison */
    uint64_t took;           /* by it, in nanoseconds */
    double whole;            /* the error of the whole model */
    double first_ns;         /* of all layers, when the profile was first measured */
    bool costly;             /* the bound costs more than options.most_loss: of all profiles */
};

static enum status no_memory(struct error *err)
{
    return error_no_memory(err, "the comparison with fp32");
}

/* --- one profile --- */

static enum status begin_profile(struct guard *g, const struct ir_graph *graph, struct error *err)
{
    size_t nodes = (size_t)graph->n_nodes + 1;
    arena_free(g->memory);
    value_memory_deinit(&g->values);
    g->memory = arena_new(0);
    if (!g->memory || !value_memory_init(&g->values, graph->n_tensors))
        return no_memory(err);
    g->now = arena_array(g->memory, nodes, sizeof(*g->now));
    g->asked = arena_array(g->memory, nodes, sizeof(*g->asked));
    g->rows = arena_array(g->memory, nodes, sizeof(*g->rows));
    g->round = 0;
    return g->now && g->asked && g->rows ? STATUS_OK : no_memory(err);
}

static bool is_node(const struct ir_graph *graph, uint32_t node, const struct guard_layer *layer)
{
    return node < graph->n_nodes && ir_node(graph, node)->op == layer->op &&
           !strcmp(ir_node(graph, node)->name, layer->name);
}

/* The node of that name, at the same place if it is there. */
static uint32_t find_node(const struct ir_graph *graph, uint32_t node,
                          const struct guard_layer *layer)
{
    if (is_node(graph, node, layer))
        return node;
    for (node = 0; node < graph->n_nodes && !is_node(graph, node, layer);)
        node++;
    return node;
}

static enum status begin(void *user, const struct ir_graph *graph, uint32_t *held,
                         struct error *err)
{
    struct guard *g = user;
    TRY(begin_profile(g, graph, err));
    for (uint32_t i = 0; i < g->n_held; i++) {
        uint32_t node = find_node(graph, g->held_at[i].node, &g->held[i]);
        if (node == graph->n_nodes)
            continue;
        held[node] |= g->held_at[i].types;
        g->asked[node] |= g->held_at[i].types;
        g->now[node] = g->held[i];
        g->now[node].name = ir_node(graph, node)->name;
    }
    return STATUS_OK;
}

/* --- measuring --- */

static enum dtype shortest(uint32_t types)
{
    enum dtype least = DTYPE_NONE;
    for (int i = 0; i < DTYPE_COUNT_; i++)
        if (types >> i & 1 && (!least || dtype_size((enum dtype)i) < dtype_size(least)))
            least = (enum dtype)i;
    return least;
}

static void note_layer(struct guard *g, const struct ir_graph *graph, uint32_t node,
                       const struct tune_layer *layer)
{
    g->now[node] = (struct guard_layer){
        .name = ir_node(graph, node)->name,
        .op = ir_node(graph, node)->op,
        .type = shortest(layer->types),
        .error = g->rows[node].own,
        .carried = g->rows[node].carried,
        .gain_ns = layer->wide_ns ? (double)layer->wide_ns - (double)layer->ns : 0,
    };
}

/* Estimates what types save where nothing wider was timed: as much of their time as the others
 * save, and of heavy work what tensor cores save beside none (as the tuner's guesses do). */
static void guess_gains(struct guard *g, const struct ir_graph *graph,
                        const struct tune_layer *layers)
{
    double saved = 0, taken = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (layers[i].types && layers[i].wide_ns) {
            saved += MAX(g->now[i].gain_ns, 0);
            taken += (double)layers[i].ns;
        }
    double part = taken > 0 ? saved / taken : 1;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (layers[i].types && !layers[i].wide_ns) {
            bool heavy = ir_op_has(ir_node(graph, i)->op, IR_TRAIT_HEAVY);
            g->now[i].gain_ns = (double)layers[i].ns * (heavy ? MAX(part, HEAVY_SAVES) : part);
        }
}

static enum status measure(struct guard *g, const struct ir_graph *graph,
                           const struct tune_layer *layers, struct error *err)
{
    struct walk walk = {
        .graph = graph,
        .layers = layers,
        .host = g->options.host,
        .batch = g->batch,
        .source = g->options.source,
        .seed = g->options.seed,
        .memory = &g->values,
        .rows = g->rows,
        .outputs = g->outputs,
    };
    uint64_t start = clock_now_ns();
    TRY(walk_graph(&walk, err));
    g->took = clock_now_ns() - start;
    g->times = walk.times;
    g->samples = walk.samples;
    g->whole = 0;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        g->whole = MAX(g->whole, g->outputs[i].error);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (layers[i].types)
            note_layer(g, graph, i, &layers[i]);
    guess_gains(g, graph, layers);
    return STATUS_OK;
}

/* Says whether the reason lies in the random inputs, which fit most models, but not all. */
static bool is_input(const struct guard *g, enum status status, const struct error *why)
{
    return !g->options.source && why->scope != ERROR_DEVICE &&
           (status == STATUS_INVALID_ARGUMENT || status == STATUS_UNIMPLEMENTED);
}

/* --- holding back --- */

/* What to rule out of the types of a tactic: 8 bits first, then the rest. */
static uint32_t worst_types(uint32_t types)
{
    uint32_t bytes = 0;
    for (int i = 0; i < DTYPE_COUNT_; i++)
        if (types >> i & 1 && dtype_size((enum dtype)i) == 1)
            bytes |= 1U << i;
    return bytes ? bytes : types;
}

/* Whether the layer is in shorter types, which it can be made to leave. */
static bool can_hold(const struct guard *g, const struct tune_layer *layers, uint32_t node)
{
    return layers[node].types && worst_types(layers[node].types) & ~g->asked[node];
}

/* Whether the layer has a part in what the model loses. 8 bits that lose next to nothing are those
 * in which the model itself rounds: what differs then fell the other way, and is no worse. */
static bool has_part(const struct guard *g, const struct tune_layer *layers, uint32_t node)
{
    bool bytes = dtype_size(shortest(layers[node].types)) == 1;
    return can_hold(g, layers, node) && !(bytes && g->rows[node].own < MODELS_OWN);
}

static enum status remember(struct guard *g, struct held at_node, struct error *err)
{
    if (g->n_held == HELD_MAX)
        return STATUS_OK; /* the next profile finds the others anew */
    if (g->n_held == g->held_cap) {
        uint32_t cap = MAX(16, 2 * g->held_cap);
        struct guard_layer *held = realloc(g->held, cap * sizeof(*held));
        if (!held)
            return no_memory(err);
        g->held = held;
        struct held *at = realloc(g->held_at, cap * sizeof(*at));
        if (!at)
            return no_memory(err);
        g->held_at = at;
        g->held_cap = cap;
    }
    struct guard_layer copy = g->now[at_node.node];
    copy.name = arena_strndup(g->names, copy.name, strlen(copy.name));
    if (!copy.name)
        return no_memory(err);
    g->held_at[g->n_held] = at_node;
    g->held[g->n_held++] = copy;
    return STATUS_OK;
}

/* Forgets what could not be held back after all, since nothing else runs these nodes. */
static void forget_stuck(struct guard *g, const struct ir_graph *graph,
                         const struct tune_layer *layers)
{
    uint32_t n = 0, before = g->n_told, first = g->n_before;
    for (uint32_t i = 0; i < g->n_held; i++) {
        uint32_t node = find_node(graph, g->held_at[i].node, &g->held[i]);
        if (node < graph->n_nodes && layers[node].types & g->held_at[i].types) {
            g->now[node].held = false;
            g->n_told -= i < before;
            g->n_before -= i < first;
            continue;
        }
        g->held_at[n] = g->held_at[i];
        g->held[n++] = g->held[i];
    }
    g->n_held = n;
}

struct holder {
    struct guard *guard;
    const struct ir_graph *graph;
    const struct tune_layer *layers;
    uint32_t *held;
    uint32_t n;    /* held back in this round */
    bool by_share; /* they are */
    uint32_t free; /* let go in this round */
};

static enum status hold(struct holder *h, uint32_t node, struct error *err)
{
    struct guard *g = h->guard;
    if (!can_hold(g, h->layers, node))
        return STATUS_OK;
    uint32_t types = worst_types(h->layers[node].types);
    h->held[node] |= types;
    g->asked[node] |= types;
    g->now[node].held = true;
    h->n++;
    return remember(g, (struct held){node, types, h->by_share}, err);
}

/* Holds back all layers whose own error is above this, of those that have a part in the model's. */
static enum status hold_above(struct holder *h, double limit, struct error *err)
{
    for (uint32_t i = 0; i < h->graph->n_nodes; i++)
        if (has_part(h->guard, h->layers, i) && h->guard->rows[i].own > limit)
            TRY(hold(h, i, err));
    return STATUS_OK;
}

static uint32_t count(const struct holder *h)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->graph->n_nodes; i++)
        n += has_part(h->guard, h->layers, i);
    return n;
}

/* The node, or, if that is in fp32 itself, the shorter ones right before it. */
static enum status blame(struct holder *h, uint32_t node, uint32_t depth, struct error *err)
{
    if (h->layers[node].types || depth == 0)
        return hold(h, node, err);
    for (uint32_t i = 0; i < ir_node(h->graph, node)->n_inputs; i++) {
        uint32_t input = ir_node(h->graph, node)->inputs[i];
        uint32_t from = input == IR_NONE ? IR_NONE : ir_tensor(h->graph, input)->producer;
        if (from != IR_NONE)
            TRY(blame(h, from, depth - 1, err));
    }
    return STATUS_OK;
}

/* The first layers whose outputs are not finite in the whole model, though each is finite on fp32's
 * values: what they read has been rounded to where they have no value. */
static enum status hold_broken(struct holder *h, struct error *err)
{
    enum { DEPTH = 6 };
    for (uint32_t i = 0; i < h->graph->n_nodes && h->n == 0; i++)
        if (isinf(h->guard->rows[i].carried))
            TRY(blame(h, i, DEPTH, err));
    return STATUS_OK;
}

/* A layer that may be held back, and how much that is worth. */
struct offender {
    uint32_t node;
    double share; /* of the square of the model's error */
    double gain;  /* the time that is lost; layers that save none cost a little, too */
    double worth; /* share for the time that is lost */
};

static int by_worth(const void *a, const void *b)
{
    const struct offender *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->node < y->node ? -1 : 1;
}

/* Independent errors add up by their squares, so this is the part of the square of the error behind
 * the layer that is the layer's own. What comes behind makes the layer's error larger or smaller,
 * as it does with the rest, so it is also the layer's part of the model's error, but for what later
 * layers add. */
static double share_of(const struct walk_row *row)
{
    double part = row->own / MAX(row->carried, row->own);
    return row->own > 0 ? part * part : 0;
}

/* All that can be held back, what is worth most first. */
struct offenders {
    struct offender *list;
    uint32_t n;
    double share; /* the sum */
    bool bytes;   /* some are in 8 bits */
};

static enum status list_offenders(const struct holder *h, uint32_t n, struct offenders *out,
                                  struct error *err)
{
    const struct guard *g = h->guard;
    struct offenders o = {.list = arena_array(g->memory, (size_t)n + 1, sizeof(*o.list))};
    double gain = 0;
    if (!o.list)
        return no_memory(err);
    for (uint32_t i = 0; i < h->graph->n_nodes; i++)
        if (has_part(g, h->layers, i)) {
            o.list[o.n++] = (struct offender){.node = i, .share = share_of(&g->rows[i])};
            gain += MAX(g->now[i].gain_ns, 0);
            o.bytes = o.bytes || dtype_size(shortest(h->layers[i].types)) == 1;
        }
    for (uint32_t k = 0; k < o.n; k++) {
        struct offender *one = &o.list[k];
        one->gain = MAX(g->now[one->node].gain_ns, 0) + gain / n + 1;
        one->worth = one->share / one->gain;
        o.share += one->share;
    }
    qsort(o.list, o.n, sizeof(*o.list), by_worth);
    *out = o;
    return STATUS_OK;
}

/* By what the shares of all that stays have to become smaller. */
static double share_ratio(const struct guard *g)
{
    double ratio = MARGIN * g->options.bound / g->whole;
    return ratio * ratio;
}

static double all_ns(const struct holder *h)
{
    double ns = 0;
    for (uint32_t i = 0; i < h->graph->n_nodes; i++)
        ns += (double)h->layers[i].ns;
    return ns;
}

/* Whether the bound costs more than it may: what was held back, with what would have to be. */
static bool is_costly(const struct holder *h, const struct offenders *o, bool all)
{
    const struct guard *g = h->guard;
    double left = o->share, most = all ? 0 : o->share * share_ratio(g);
    double lost = all_ns(h) - g->first_ns;
    if (o->bytes || !isfinite(g->whole) || g->options.most_loss >= 1)
        return false;
    for (uint32_t k = 0; k < o->n && left > most; k++) {
        left -= o->list[k].share;
        lost += MAX(g->now[o->list[k].node].gain_ns, 0);
    }
    return lost > g->options.most_loss * g->first_ns;
}

/* Lets go what this profile has held back from 16 bits by shares: it costs too much, or is not
 * enough for as much as may be lost. */
static void let_go(struct holder *h)
{
    struct guard *g = h->guard;
    uint32_t n = g->n_before;
    for (uint32_t i = g->n_before; i < g->n_held; i++) {
        uint32_t node = find_node(h->graph, g->held_at[i].node, &g->held[i]);
        bool bytes = dtype_size(shortest(g->held_at[i].types)) == 1;
        if (!g->held_at[i].by_share || bytes) {
            g->held_at[n] = g->held_at[i];
            g->held[n++] = g->held[i];
            continue;
        }
        h->free++;
        if (node == h->graph->n_nodes)
            continue;
        h->held[node] &= ~g->held_at[i].types;
        g->asked[node] &= ~g->held_at[i].types;
        g->now[node].held = false;
    }
    g->n_held = n;
    g->n_told = MIN(g->n_told, n);
}

/* Holds layers back until the shares of the others are as much smaller as the square of the model's
 * error has to be. Shares are estimates, which are the worse the more is held back by them, so no
 * round asks for much, but the last one for all. */
static enum status hold_shares(struct holder *h, uint32_t n, struct error *err)
{
    struct guard *g = h->guard;
    struct offenders o = {0};
    bool last = g->round + 1 >= ROUNDS_MAX;
    TRY(list_offenders(h, n, &o, err));
    g->costly = g->costly || is_costly(h, &o, last);
    if (g->costly && !o.bytes) {
        let_go(h);
        return STATUS_OK;
    }
    double left = o.share, most = left * MAX(share_ratio(g), LEAST_RATIO * LEAST_RATIO);
    uint32_t least = last ? n : 1 + n * g->round / LEAST_PART;
    h->by_share = true;
    for (uint32_t k = 0; k < o.n && (left > most || k < least); k++) {
        TRY(hold(h, o.list[k].node, err));
        left -= o.list[k].share;
    }
    return STATUS_OK;
}

/* Whether what was held back costs more than was thought. */
static bool is_slow(const struct holder *h)
{
    const struct guard *g = h->guard;
    bool some = false;
    for (uint32_t i = g->n_before; i < g->n_held; i++)
        some = some || (g->held_at[i].by_share && dtype_size(shortest(g->held_at[i].types)) > 1);
    return some && g->options.most_loss < 1 && all_ns(h) > (1 + g->options.most_loss) * g->first_ns;
}

static enum status hold_back(struct holder *h, struct error *err)
{
    struct guard *g = h->guard;
    double bound = g->options.bound;
    uint32_t n = count(h);
    bool anew = g->n_held > g->n_before; /* other graphs of this profile were judged */
    if (g->round == 0)
        g->first_ns = anew ? MIN(g->first_ns, all_ns(h)) : all_ns(h);
    if (isinf(bound) || n == 0)
        return STATUS_OK;
    TRY(hold_above(h, bound, err));
    if (h->n == 0 && is_slow(h)) {
        g->costly = true;
        let_go(h);
    }
    if (h->n || h->free || g->whole <= bound)
        return STATUS_OK;
    if (isinf(g->whole) && g->round + 1 < ROUNDS_MAX)
        TRY(hold_broken(h, err));
    return h->n ? STATUS_OK : hold_shares(h, n, err);
}

/* --- telling --- */

static double seconds(uint64_t ns)
{
    return (double)ns / NS_PER_S;
}

static void tell_round(const struct holder *h)
{
    const struct guard *g = h->guard;
    const uint64_t *ns = g->times.ns;
    uint32_t n = h->free ? h->free : h->n;
    log_write(g->options.log, LOG_INFO,
              "comparison %u with fp32: error %.3g, %u more layer%s %s; %.1f s: fp32 %.1f, "
              "preparing layers %.1f, moving values %.1f, running %.1f",
              g->round + 1, g->whole, n, n == 1 ? " is" : "s are",
              h->free ? "let go, since they cost too much" : "held back", seconds(g->took),
              seconds(ns[WALK_WIDE]), seconds(ns[WALK_PREPARE]), seconds(ns[WALK_MOVE]),
              seconds(ns[WALK_RUN]));
}

static void tell_held(struct guard *g)
{
    char line[1024] = "";
    size_t used = 0;
    uint32_t n = g->n_held - g->n_told;
    for (uint32_t i = g->n_told; i < g->n_held && i < g->n_told + NAMED_MAX; i++) {
        const struct guard_layer *l = &g->held[i];
        char error[32] = "not finite";
        if (isfinite(l->error))
            snprintf(error, sizeof(error), "error %.2g", l->error);
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s'%.64s' (%s: %s)",
                                 used ? ", " : "", l->name, dtype_name(l->type), error);
    }
    if (n)
        log_write(g->options.log, LOG_WARNING,
                  "%u layer%s held back from shorter types, to keep the error below %.3g on %s: "
                  "%s%s",
                  n, n == 1 ? " is" : "s are", g->options.bound,
                  g->options.source ? "the data" : "random numbers (give --data)", line,
                  n > NAMED_MAX ? ", ..." : "");
    g->n_told = g->n_held;
}

static void tell_beyond(const struct guard *g)
{
    if (isinf(g->whole))
        log_write(g->options.log, LOG_WARNING,
                  "the model is not finite where fp32 is, and nothing more can be held back");
    else if (g->costly)
        log_write(g->options.log, LOG_WARNING,
                  "the error on random numbers is %.3g, beyond %.3g, and comes from so many layers "
                  "that none is held back for it: --data judges by real inputs, --max-error holds "
                  "back whatever its bound takes",
                  g->whole, g->options.bound);
    else
        log_write(g->options.log, LOG_WARNING,
                  "the error is %.3g, beyond %.3g, and nothing more can be held back", g->whole,
                  g->options.bound);
}

/* --- accepting an assignment --- */

static enum status keep_layers(struct guard *g, const struct ir_graph *graph, struct error *err)
{
    struct arena *names = arena_new(0);
    struct guard_layer *list =
        names ? arena_array(names, (size_t)graph->n_nodes + 1, sizeof(*list)) : NULL;
    bool ok = list;
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_nodes && ok; i++) {
        if (g->now[i].type == DTYPE_NONE)
            continue;
        list[n] = g->now[i];
        list[n].name = arena_strndup(names, list[n].name, strlen(list[n].name));
        ok = list[n].name;
        n++;
    }
    if (!ok) {
        arena_free(names);
        return no_memory(err);
    }
    arena_free(g->best_names);
    g->best_names = names;
    g->best = list;
    g->report.n_layers = n;
    return STATUS_OK;
}

/* The profile's last assignment is taken. `left`: it still has shorter types, and was measured. */
static enum status accept(struct guard *g, const struct ir_graph *graph, bool left,
                          struct error *err)
{
    struct guard_report *r = &g->report;
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        struct guard_output now = g->outputs[i];
        if (!left)
            now = (struct guard_output){.agreement = now.agreement < 0 ? -1 : 1};
        struct guard_output *worst = &r->outputs[i];
        if (!r->measured)
            *worst = now;
        worst->error = MAX(worst->error, now.error);
        worst->agreement = MIN(worst->agreement, now.agreement);
    }
    r->n_outputs = graph->n_outputs;
    r->measured = true;
    tell_held(g);
    if (left && g->whole > g->options.bound) {
        r->beyond = true;
        tell_beyond(g);
    }
    if (g->samples < r->samples)
        return STATUS_OK;
    r->samples = g->samples;
    return keep_layers(g, graph, err);
}

static bool has_types(const struct ir_graph *graph, const struct tune_layer *layers)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (layers[i].types)
            return true;
    return false;
}

/* --- profiles that are not measured --- */

static uint64_t bytes_of_values(const struct ir_graph *graph)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0;
             ir_node(graph, i)->op != IR_OP_NONE && k < ir_node(graph, i)->n_outputs; k++)
            sum += ir_tensor(graph, ir_node(graph, i)->outputs[k])->bytes;
    return sum;
}

/* Whether a layer of this name was measured in the type. */
static bool was_measured(const struct guard *g, const char *name, size_t length, enum dtype type)
{
    for (uint32_t i = 0; i < g->report.n_layers; i++)
        if (g->best[i].type == type && !g->best[i].held && strlen(g->best[i].name) == length &&
            !memcmp(g->best[i].name, name, length))
            return true;
    return false;
}

/* The same of two layers that one kernel runs here: its name is theirs, with this between them. */
static bool both_were_measured(const struct guard *g, const char *name, enum dtype type)
{
    static const char between[] = " + ";
    for (const char *at = strstr(name, between); at; at = strstr(at + 1, between)) {
        const char *second = at + strlen(between);
        if (was_measured(g, name, (size_t)(at - name), type) &&
            was_measured(g, second, strlen(second), type))
            return true;
    }
    return false;
}

/* Whether the profile has so many values that it is not measured, since another one was in the same
 * types. */
static bool is_known(const struct guard *g, const struct ir_graph *graph,
                     const struct tune_layer *layers)
{
    uint64_t many = g->options.many_bytes ? g->options.many_bytes : many_bytes;
    if (!g->report.measured || bytes_of_values(graph) < many)
        return false;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const char *name = ir_node(graph, i)->name;
        enum dtype type = shortest(layers[i].types);
        if (layers[i].types && !was_measured(g, name, strlen(name), type) &&
            !both_were_measured(g, name, type))
            return false;
    }
    return true;
}

static enum status look(void *user, const struct ir_graph *graph, const struct tune_layer *layers,
                        uint32_t *held, bool *again, struct error *err)
{
    struct guard *g = user;
    struct holder h = {.guard = g, .graph = graph, .layers = layers, .held = held};
    struct error why = {0};
    if (!has_types(graph, layers))
        return g->round || g->n_held ? accept(g, graph, false, err) : STATUS_OK;
    if (g->round == 0 && is_known(g, graph, layers)) {
        log_write(
            g->options.log, LOG_INFO,
            "%.1f GiB of values are not compared with fp32's: each layer was, at another size, "
            "in the type that it has here",
            (double)bytes_of_values(graph) / (1 << 30));
        return STATUS_OK;
    }
    enum status status = measure(g, graph, layers, &why);
    if (status && is_input(g, status, &why)) {
        log_write(g->options.log, LOG_WARNING, "what shorter types cost was not measured: %s",
                  why.text);
        return STATUS_OK;
    }
    if (status)
        return error_copy(err, &why);
    forget_stuck(g, graph, layers);
    TRY(hold_back(&h, err));
    tell_round(&h);
    g->round++;
    *again = h.n || h.free;
    return *again ? STATUS_OK : accept(g, graph, true, err);
}

/* --- the guard --- */

enum status guard_new(const struct guard_options *options, struct guard **out, struct error *err)
{
    struct guard *g = calloc(1, sizeof(*g));
    if (!g)
        return no_memory(err);
    g->options = *options;
    g->judge = (struct tune_judge){.begin = begin, .look = look, .user = g};
    g->names = arena_new(0);
    if (!g->names) {
        free(g);
        return no_memory(err);
    }
    *out = g;
    return STATUS_OK;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    arena_free(g->names);
    arena_free(g->best_names);
    arena_free(g->memory);
    value_memory_deinit(&g->values);
    free(g->held);
    free(g->held_at);
    free(g);
}

void guard_cleanup(struct guard **at)
{
    guard_free(*at);
}

const struct tune_judge *guard_judge(struct guard *g)
{
    return &g->judge;
}

void guard_set_batch(struct guard *g, uint32_t batch)
{
    g->batch = batch;
    g->n_before = g->n_held;
}

void guard_read(const struct guard *g, struct guard_report *out)
{
    *out = g->report;
    out->bound = g->options.bound;
    out->layers = g->best;
    out->held = g->held;
    out->n_held = g->n_held;
}
