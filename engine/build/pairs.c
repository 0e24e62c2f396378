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

struct trial {
    const struct build_options *options;
    const struct pass_pairs *only; /* NULL: all that the device takes */
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
    return (!t->only || is_listed(t->only, node->name)) && (!t->by_size || is_large(graph, node)) &&
           build_device_takes(t->options, graph, node);
}

/* A copy with such nodes, whose names are the copy's; NULL if there is none. */
static enum status join(const struct ir_graph *graph, struct trial *trial,
                        const struct log_sink *log, struct pass_pairs *made, struct ir_graph **out,
                        struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *copy = NULL;
    struct pass_context context = {.pairs = made, .takes = takes, .takes_user = trial, .log = log};
    made->n = 0;
    *out = NULL;
    TRY(ir_graph_copy(graph, &copy, err));
    TRY(pass_run(pass_find("fuse_pair"), copy, &context, err));
    if (made->n)
        *out = STEAL(copy);
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

/* Keeps the pairs that take less time than their parts. */
static void keep_faster(const struct ir_graph *together, const struct ir_graph *apart,
                        const struct log_sink *log, struct pass_pairs *pairs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pairs->n; i++) {
        const struct pass_pair *p = &pairs->row[i];
        uint64_t both = time_of(together, p->both);
        uint64_t parts = time_of(apart, p->first) + time_of(apart, p->second);
        log_write(log, LOG_INFO, "%s: %.1f us together, %.1f us apart", p->both, (double)both / 1e3,
                  (double)parts / 1e3);
        if (both < parts)
            pairs->row[n++] = *p;
    }
    pairs->n = n;
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

/* Tunes a graph whose tactics nobody will run. */
static enum status tune_trial(struct ir_graph *graph, const struct tune_options *tune,
                              struct tune_report *sum, struct error *err)
{
    struct tune_report report = {0};
    struct tune_options trial = *tune;
    trial.judge = NULL;
    TRY(tune_graph(graph, &trial, &report, err));
    add_report(sum, &report);
    return STATUS_OK;
}

/* Leaves in `pairs` what pays. */
static enum status try_both(const struct ir_graph *graph, struct ir_graph *together,
                            const struct tune_options *tune, struct tune_report *sum,
                            struct pass_pairs *pairs, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *apart = NULL;
    TRY(ir_graph_copy(graph, &apart, err));
    TRY(tune_trial(together, tune, sum, err));
    uint32_t from_cache = sum->from_cache;
    TRY(tune_trial(apart, tune, sum, err));
    sum->from_cache = from_cache; /* the rest was timed for the other graph */
    keep_faster(together, apart, tune->log, pairs);
    return STATUS_OK;
}

/* --- the graph that is kept --- */

/* A graph with such nodes; NULL: there are none. */
struct last {
    struct ir_graph *graph;
    struct pass_pairs made;
    bool held[PASS_PAIRS_MAX]; /* of those that were made */
    struct pass_pairs rest;    /* those that are not held back */
    struct build_watch watch;
};

static void last_cleanup(struct last *l)
{
    ir_graph_free(l->graph);
}

static void note_held(void *user, const struct ir_node *node)
{
    struct last *l = user;
    for (uint32_t i = 0; i < l->made.n; i++)
        l->held[i] = l->held[i] || !strcmp(l->made.row[i].both, node->name);
}

static void list_rest(struct last *l, const struct log_sink *log)
{
    l->rest.n = 0;
    for (uint32_t i = 0; i < l->made.n; i++)
        if (!l->held[i])
            l->rest.row[l->rest.n++] = l->made.row[i];
        else
            log_write(log, LOG_INFO, "%s: two nodes again, since it is held back from 16 bits",
                      l->made.row[i].both);
}

/* Asks what is held back from the start, as it is if it was in another profile: to tune a graph
 * with such a pair is for nothing. */
static enum status ask_before(struct last *l, struct error *err)
{
    CLEANUP(cleanup_free) uint32_t *held = calloc((size_t)l->graph->n_nodes + 1, sizeof(*held));
    const struct tune_judge *judge = &l->watch.judge;
    return held ? judge->begin(judge->user, l->graph, held, err)
                : error_no_memory(err, "the builder");
}

/* Joins the pairs that the trial allows, and tunes. */
static enum status join_last(const struct ir_graph *graph, struct trial *trial,
                             const struct tune_options *tune, struct tune_report *tuned,
                             struct last *last, struct error *err)
{
    struct tune_options options = *tune;
    *last = (struct last){0};
    TRY(join(graph, trial, tune->log, &last->made, &last->graph, err));
    if (last->graph && tune->judge) {
        build_watch_init(&last->watch, tune->judge, IR_OP_CONV_PAIR, note_held, last);
        options.judge = &last->watch.judge;
        TRY(ask_before(last, err));
    }
    if (last->graph && !last->watch.ended)
        TRY(tune_graph(last->graph, &options, tuned, err));
    list_rest(last, tune->log);
    return STATUS_OK;
}

/* Tunes the graph with the pairs that the trial allows, and again with those that the judge does
 * not hold back, until it holds none back. */
static enum status tune_last(struct ir_graph *graph, struct trial *trial,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined, struct error *err)
{
    CLEANUP(last_cleanup) struct last kept = {0};
    struct trial next = *trial;
    TRY(join_last(graph, &next, tune, tuned, &kept, err));
    while (kept.graph && kept.watch.ended) {
        CLEANUP(last_cleanup) struct last before = kept; /* has the names of `rest` */
        kept = (struct last){0};
        next.only = &before.rest;
        if (before.rest.n)
            TRY(join_last(graph, &next, tune, tuned, &kept, err));
    }
    if (!kept.graph)
        TRY(tune_graph(graph, tune, tuned, err));
    report->passes[PASS_NUMBER_fuse_pair] = (struct pass_tally){kept.made.n, (int32_t)kept.made.n};
    report->fused -= kept.made.n;
    *joined = STEAL(kept.graph);
    return STATUS_OK;
}

static enum status tune_timed(struct ir_graph *graph, const struct build_options *options,
                              const struct tune_options *tune, struct build_report *report,
                              struct tune_report *tuned, struct ir_graph **joined,
                              struct error *err)
{
    struct trial trial = {.options = options};
    struct pass_pairs pairs;
    struct tune_report trials = {0};
    CLEANUP(ir_graph_cleanup) struct ir_graph *together = NULL;
    TRY(join(graph, &trial, NULL, &pairs, &together, err));
    if (!together)
        return tune_graph(graph, tune, tuned, err);
    TRY(try_both(graph, together, tune, &trials, &pairs, err));
    struct tune_options last = *tune;
    last.retune = false; /* it was done */
    trial.only = &pairs;
    TRY(tune_last(graph, &trial, &last, report, tuned, joined, err));
    tuned->from_cache = 0; /* the trials have put those times there, or have counted them */
    add_report(tuned, &trials);
    return STATUS_OK;
}

enum status build_tune_pairs(struct ir_graph *graph, const struct build_options *options,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined, struct error *err)
{
    struct trial trial = {.options = options, .by_size = true};
    *joined = NULL;
    /* No kernel is for FP8, and whether the one for INT8 takes a sum depends on its scales. */
    bool guess = tune->no_timing && precision_is_8bit(options->precision);
    if (!options->device || !(options->device->backend->features & BACKEND_PAIRS) || guess ||
        options->precision == PRECISION_F8)
        return tune_graph(graph, tune, tuned, err);
    if (tune->no_timing)
        return tune_last(graph, &trial, tune, report, tuned, joined, err);
    if (tune->cache)
        return tune_timed(graph, options, tune, report, tuned, joined, err);
    struct tune_options cached = *tune;
    TRY(tune_cache_new(options->device, &cached.cache, err));
    enum status status = tune_timed(graph, options, &cached, report, tuned, joined, err);
    tune_cache_free(cached.cache);
    return status;
}
