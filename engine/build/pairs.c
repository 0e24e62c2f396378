/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/build/fuse.h"
#include "engine/build/watch.h"

/* Without timing: the least numbers of a tensor that a sum does not store then. To write and to
 * read so many is 4 MiB of traffic, a microsecond on an H200, and a launch falls away. Smaller sums
 * may be one wave of few tiles, for which libraries have kernels that divide the depth. */
enum { ELEMENTS_UNTIMED = 1 << 20 };

/* The kinds of nodes that take the place of two, in the order in which they are made: a chain may
 * begin with a pair. */
enum { PAIRS, CHAINS, KINDS };
static const struct {
    const char *pass;
    uint32_t number; /* of the pass */
    enum ir_op op;
    const char *types; /* those of its kernels */
} kinds[KINDS] = {
    [PAIRS] = {"fuse_pair", PASS_NUMBER_fuse_pair, IR_OP_CONV_PAIR, "16 bits"},
    [CHAINS] = {"fuse_chain", PASS_NUMBER_fuse_chain, IR_OP_CONV_CHAIN, "8 bits"},
};

struct trial {
    const struct build_options *options;
    struct {
        bool tried;
        const struct pass_pairs *only; /* NULL: all that the device takes */
    } of[KINDS];
    bool by_size;
};

static bool is_large(const struct ir_graph *graph, const struct ir_node *node)
{
    size_t n;
    return shape_elements(&ir_tensor(graph, node->outputs[0])->shape, &n) && n >= ELEMENTS_UNTIMED;
}

static bool is_listed(const struct pass_pairs *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!strcmp(list->row[i].both, name))
            return true;
    return false;
}

static bool takes(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    const struct trial *t = user;
    const struct pass_pairs *only = t->of[node->op == kinds[CHAINS].op ? CHAINS : PAIRS].only;
    return (!only || is_listed(only, node->name)) && (!t->by_size || is_large(graph, node)) &&
           build_device_takes(t->options, graph, node);
}

/* The nodes that a graph has been given; their names are the graph's. */
struct joined {
    struct ir_graph *graph; /* NULL: there are none */
    struct pass_pairs made[KINDS];
};

static void joined_cleanup(struct joined *j)
{
    ir_graph_free(j->graph);
}

/* Gives a copy of the graph the nodes that the trial allows. */
static enum status join(const struct ir_graph *graph, struct trial *trial,
                        const struct log_sink *log, struct joined *out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *copy = NULL;
    struct pass_context context = {.pairs = &out->made[PAIRS],
                                   .chains = &out->made[CHAINS],
                                   .takes = takes,
                                   .takes_user = trial,
                                   .log = log};
    *out = (struct joined){0};
    TRY(ir_graph_copy(graph, &copy, err));
    for (uint32_t k = 0; k < KINDS; k++)
        if (trial->of[k].tried)
            TRY(pass_run(pass_find(kinds[k].pass), copy, &context, err));
    if (context.rewrites)
        out->graph = STEAL(copy);
    return STATUS_OK;
}

/* --- times --- */

static uint64_t time_of(const struct ir_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (!strcmp(ir_node(graph, i)->name, name))
            return ir_node(graph, i)->time_ns;
    return 0;
}

/* Adds what another tuning has cost. */
static void add_report(struct tune_report *to, const struct tune_report *report)
{
    to->timed += report->timed;
    to->disturbed += report->disturbed;
    to->from_cache += report->from_cache;
    to->given_up += report->given_up;
    tune_effort_add(&to->effort, &report->effort);
}

/* Tunes a graph for its nodes' times. */
static enum status tune_trial(struct ir_graph *graph, const struct tune_options *tune,
                              struct tune_report *sum, struct error *err)
{
    struct tune_report report = {0};
    struct tune_options trial = *tune;
    trial.judge = NULL;
    trial.trial = true;
    TRY(tune_graph(graph, &trial, &report, err));
    add_report(sum, &report);
    return STATUS_OK;
}

/* --- what pays --- */

/* The trials of a graph: what pays of each kind, and what they have cost. */
struct trials {
    const struct build_options *options;
    const struct tune_options *tune;
    struct joined with[KINDS]; /* of a kind: all that the device takes; then what pays is left */
    struct ir_graph *apart;    /* with none of any kind */
    struct tune_report sum;
};

static void trials_cleanup(struct trials *t)
{
    for (uint32_t k = 0; k < KINDS; k++)
        joined_cleanup(&t->with[k]);
    ir_graph_free(t->apart);
}

/* That of a node which is no longer one of two; a pair is one that a chain may begin with. */
static uint64_t part_time(const struct trials *t, const char *name)
{
    uint64_t ns = time_of(t->apart, name);
    return ns || !t->with[PAIRS].graph ? ns : time_of(t->with[PAIRS].graph, name);
}

/* Keeps those that take less time than their parts. */
static void keep_faster(struct trials *t, uint32_t kind)
{
    struct pass_pairs *pairs = &t->with[kind].made[kind];
    uint32_t n = 0;
    for (uint32_t i = 0; i < pairs->n; i++) {
        const struct pass_pair *p = &pairs->row[i];
        uint64_t both = time_of(t->with[kind].graph, p->both);
        uint64_t parts = part_time(t, p->first) + part_time(t, p->second);
        log_write(t->tune->log, LOG_INFO, "%s: %.1f us together, %.1f us apart", p->both,
                  (double)both / 1e3, (double)parts / 1e3);
        if (both < parts)
            pairs->row[n++] = *p;
    }
    pairs->n = n;
}

/* Leaves in with[kind] what pays of it. Parts are tuned once, in a graph that has none of any kind.
 * Only the first trial says what the cache had: for others it has what trials have put there. */
static enum status try_both(const struct ir_graph *graph, struct trials *t, uint32_t kind,
                            struct error *err)
{
    uint32_t from_cache = t->sum.from_cache;
    bool first = !t->apart;
    TRY(tune_trial(t->with[kind].graph, t->tune, &t->sum, err));
    from_cache = first ? t->sum.from_cache : from_cache;
    if (first) {
        TRY(ir_graph_copy(graph, &t->apart, err));
        TRY(tune_trial(t->apart, t->tune, &t->sum, err));
    }
    t->sum.from_cache = from_cache;
    keep_faster(t, kind);
    return STATUS_OK;
}

/* Tries a kind in the graph that has what pays of those before it. */
static enum status try_kind(const struct ir_graph *graph, struct trials *t, uint32_t kind,
                            struct error *err)
{
    struct trial before = {.options = t->options}, all = {.options = t->options};
    CLEANUP(joined_cleanup) struct joined base = {0};
    all.of[kind].tried = true;
    for (uint32_t k = 0; k < kind; k++) {
        before.of[k].tried = t->with[k].made[k].n > 0;
        before.of[k].only = &t->with[k].made[k];
    }
    TRY(join(graph, &before, NULL, &base, err));
    const struct ir_graph *from = base.graph ? base.graph : graph;
    TRY(join(from, &all, NULL, &t->with[kind], err));
    return t->with[kind].graph ? try_both(from, t, kind, err) : STATUS_OK;
}

/* --- the graph that is kept --- */

/* A graph with such nodes, if there are any. */
struct last {
    struct joined joined;
    bool held[KINDS][PASS_PAIRS_MAX]; /* of those that were made */
    struct pass_pairs rest[KINDS];    /* those that are not held back */
    struct build_watch watch;
};

static void last_cleanup(struct last *l)
{
    joined_cleanup(&l->joined);
}

static void note_held(void *user, const struct ir_node *node)
{
    struct last *l = user;
    for (uint32_t k = 0; k < KINDS; k++)
        for (uint32_t i = 0; i < l->joined.made[k].n; i++)
            l->held[k][i] = l->held[k][i] || !strcmp(l->joined.made[k].row[i].both, node->name);
}

/* A pair that a chain begins with is let go no sooner than it is held back by itself. */
static void list_rest(struct last *l, const struct log_sink *log)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct pass_pairs *made = &l->joined.made[k];
        l->rest[k].n = 0;
        for (uint32_t i = 0; i < made->n; i++)
            if (!l->held[k][i])
                l->rest[k].row[l->rest[k].n++] = made->row[i];
            else
                log_write(log, LOG_INFO, "%s: two nodes again, since it is held back from %s",
                          made->row[i].both, kinds[k].types);
    }
}

/* Asks what is held back from the start, as it is if it was in another profile: to tune a graph
 * with such a node is for nothing. */
static enum status ask_before(struct last *l, struct error *err)
{
    const struct ir_graph *graph = l->joined.graph;
    CLEANUP(cleanup_free) uint32_t *held = calloc((size_t)graph->n_nodes + 1, sizeof(*held));
    const struct tune_judge *judge = &l->watch.judge;
    return held ? judge->begin(judge->user, graph, held, err) : error_no_memory(err, "the builder");
}

/* Joins what the trial allows, and tunes. */
static enum status join_last(const struct ir_graph *graph, struct trial *trial,
                             const struct tune_options *tune, struct tune_report *tuned,
                             struct last *last, struct error *err)
{
    struct tune_options options = *tune;
    *last = (struct last){0};
    TRY(join(graph, trial, tune->log, &last->joined, err));
    if (last->joined.graph && tune->judge) {
        build_watch_init(&last->watch, tune->judge,
                         WATCH_OP(kinds[PAIRS].op) | WATCH_OP(kinds[CHAINS].op), note_held, last);
        options.judge = &last->watch.judge;
        TRY(ask_before(last, err));
    }
    if (last->joined.graph && !last->watch.ended)
        TRY(tune_graph(last->joined.graph, &options, tuned, err));
    list_rest(last, tune->log);
    return STATUS_OK;
}

/* Tunes the graph with the nodes that the trial allows, and again with those that the judge does
 * not hold back, until it holds none back. */
static enum status tune_last(struct ir_graph *graph, const struct trial *trial,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined, struct error *err)
{
    CLEANUP(last_cleanup) struct last kept = {0};
    struct trial next = *trial;
    TRY(join_last(graph, &next, tune, tuned, &kept, err));
    while (kept.joined.graph && kept.watch.ended) {
        CLEANUP(last_cleanup) struct last before = kept; /* has the names of `rest` */
        kept = (struct last){0};
        bool some = false;
        for (uint32_t k = 0; k < KINDS; k++) {
            next.of[k].only = &before.rest[k];
            some = some || before.rest[k].n;
        }
        if (some)
            TRY(join_last(graph, &next, tune, tuned, &kept, err));
    }
    if (!kept.joined.graph)
        TRY(tune_graph(graph, tune, tuned, err));
    for (uint32_t k = 0; k < KINDS; k++) {
        uint32_t n = kept.joined.made[k].n;
        report->passes[kinds[k].number] = (struct pass_tally){n, (int32_t)n};
        report->fused -= n;
    }
    *joined = STEAL(kept.joined.graph);
    return STATUS_OK;
}

static enum status tune_timed(struct ir_graph *graph, const struct build_options *options,
                              const struct tune_options *tune, const bool *asked,
                              struct build_report *report, struct tune_report *tuned,
                              struct ir_graph **joined, struct error *err)
{
    CLEANUP(trials_cleanup) struct trials trials = {.options = options, .tune = tune};
    struct trial trial = {.options = options};
    struct tune_options last = *tune;
    for (uint32_t k = 0; k < KINDS; k++) {
        if (asked[k])
            TRY(try_kind(graph, &trials, k, err));
        if (trials.with[k].graph)
            last.retune = false; /* it was done */
        trial.of[k].tried = asked[k];
        trial.of[k].only = &trials.with[k].made[k];
    }
    if (!trials.with[PAIRS].graph && !trials.with[CHAINS].graph)
        return tune_graph(graph, tune, tuned, err);
    TRY(tune_last(graph, &trial, &last, report, tuned, joined, err));
    tuned->from_cache = 0; /* the trials have put those times there, or have counted them */
    add_report(tuned, &trials.sum);
    return STATUS_OK;
}

/* Which kinds the device may have kernels for. In 8 bits it depends on scales whether one takes a
 * node, and nobody guesses that. Chains have kernels for 8 bits alone. */
static void find_asked(const struct build_options *options, const struct tune_options *tune,
                       bool asked[KINDS])
{
    uint32_t features = options->device ? options->device->backend->features : 0;
    bool bytes = precision_is_8bit(options->precision);
    asked[PAIRS] = features & BACKEND_PAIRS && !(tune->no_timing && bytes);
    asked[CHAINS] = features & BACKEND_CONV_CHAINS && bytes && !tune->no_timing;
}

enum status build_tune_pairs(struct ir_graph *graph, const struct build_options *options,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined, struct error *err)
{
    struct trial trial = {.options = options, .by_size = true};
    bool asked[KINDS];
    *joined = NULL;
    find_asked(options, tune, asked);
    if (!asked[PAIRS] && !asked[CHAINS])
        return tune_graph(graph, tune, tuned, err);
    trial.of[PAIRS].tried = asked[PAIRS];
    if (tune->no_timing)
        return tune_last(graph, &trial, tune, report, tuned, joined, err);
    if (tune->cache)
        return tune_timed(graph, options, tune, asked, report, tuned, joined, err);
    struct tune_options cached = *tune;
    TRY(tune_cache_new(options->device, &cached.cache, err));
    enum status status = tune_timed(graph, options, &cached, asked, report, tuned, joined, err);
    tune_cache_free(cached.cache);
    return status;
}
