/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/build/fuse.h"

/* Without timing: the least numbers of a tensor that a sum does not store then. To write and to
 * read so many is 4 MiB of traffic, a microsecond on an H200, and a launch falls away. Smaller sums
 * may be one wave of few tiles, for which libraries have kernels that divide the depth. */
enum { ELEMENTS_UNTIMED = 1 << 20 };

/* Types of 16 bits, as a judge holds them. */
enum { HALVES = 1 << DTYPE_F16 | 1 << DTYPE_BF16 };

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

/* --- the judge --- */

/* Looks on: a node for which the judge rules out 16 bits has nothing wider. */
struct watch {
    const struct tune_judge *judge;
    const struct pass_pairs *made;
    bool held[PASS_PAIRS_MAX]; /* of those that were made */
};

static void look_on(struct watch *w, const struct ir_graph *graph, const uint32_t *held)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        bool is_held = node->op == IR_OP_CONV_PAIR && held[i] & HALVES;
        for (uint32_t k = 0; is_held && k < w->made->n; k++)
            w->held[k] = w->held[k] || !strcmp(w->made->row[k].both, node->name);
    }
}

static enum status watch_begin(void *user, const struct ir_graph *graph, uint32_t *held,
                               struct error *err)
{
    struct watch *w = user;
    TRY(w->judge->begin(w->judge->user, graph, held, err));
    look_on(w, graph, held);
    return STATUS_OK;
}

static enum status watch_look(void *user, const struct ir_graph *graph,
                              const struct tune_layer *layers, uint32_t *held, bool *again,
                              struct error *err)
{
    struct watch *w = user;
    TRY(w->judge->look(w->judge->user, graph, layers, held, again, err));
    look_on(w, graph, held);
    return STATUS_OK;
}

/* Tunes a graph that has such nodes, and leaves out those that the judge would have in other
 * types: *rest has the others. */
static enum status tune_watched(struct ir_graph *graph, const struct tune_options *tune,
                                const struct pass_pairs *made, struct tune_report *tuned,
                                struct pass_pairs *rest, struct error *err)
{
    struct watch watch = {.judge = tune->judge, .made = made};
    const struct tune_judge watching = {watch_begin, watch_look, &watch};
    struct tune_options options = *tune;
    if (tune->judge)
        options.judge = &watching;
    TRY(tune_graph(graph, &options, tuned, err));
    rest->n = 0;
    for (uint32_t i = 0; i < made->n; i++)
        if (!watch.held[i])
            rest->row[rest->n++] = made->row[i];
        else
            log_write(tune->log, LOG_INFO, "%s: two nodes again, held back in FP32",
                      made->row[i].both);
    return STATUS_OK;
}

/* --- the graph that is kept --- */

/* A graph with such nodes, tuned; NULL: there are none. rest: those that the judge leaves as they
 * are. */
struct last {
    struct ir_graph *graph;
    struct pass_pairs made, rest;
};

static void last_cleanup(struct last *l)
{
    ir_graph_free(l->graph);
}

/* Leaves out of the graph the pairs that the judge holds back from the start, as it has done in
 * another profile: a graph with them would be tuned and compared for nothing. */
static enum status leave_held(const struct ir_graph *graph, const struct trial *trial,
                              const struct tune_options *tune, struct last *last, struct error *err)
{
    struct watch watch = {.judge = tune->judge, .made = &last->made};
    struct pass_pairs rest = {.n = 0};
    struct trial fewer = *trial;
    CLEANUP(cleanup_free) uint32_t *held = calloc((size_t)last->graph->n_nodes + 1, sizeof(*held));
    if (!held)
        return error_no_memory(err, "the builder");
    TRY(watch_begin(&watch, last->graph, held, err));
    for (uint32_t i = 0; i < last->made.n; i++)
        if (!watch.held[i])
            rest.row[rest.n++] = last->made.row[i];
    if (rest.n == last->made.n)
        return STATUS_OK;
    CLEANUP(ir_graph_cleanup) UNUSED struct ir_graph *names = STEAL(last->graph); /* of `rest` */
    fewer.only = &rest;
    return join(graph, &fewer, tune->log, &last->made, &last->graph, err);
}

static enum status join_last(const struct ir_graph *graph, struct trial *trial,
                             const struct tune_options *tune, struct tune_report *tuned,
                             struct last *last, struct error *err)
{
    TRY(join(graph, trial, tune->log, &last->made, &last->graph, err));
    if (last->graph && tune->judge)
        TRY(leave_held(graph, trial, tune, last, err));
    return last->graph ? tune_watched(last->graph, tune, &last->made, tuned, &last->rest, err)
                       : STATUS_OK;
}

/* Tunes the graph with the pairs that the trial allows; once more with those that the judge has not
 * held back, if there are any; and without any, if it holds back one of these, too. */
static enum status tune_last(struct ir_graph *graph, struct trial *trial,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined, struct error *err)
{
    CLEANUP(last_cleanup) struct last first = {0}, again = {0};
    struct last *kept = &first;
    TRY(join_last(graph, trial, tune, tuned, &first, err));
    if (first.graph && first.rest.n > 0 && first.rest.n < first.made.n) {
        struct trial fewer = *trial;
        fewer.only = &first.rest;
        kept = &again;
        TRY(join_last(graph, &fewer, tune, tuned, &again, err));
    }
    bool whole = kept->graph && kept->rest.n == kept->made.n;
    if (!whole)
        TRY(tune_graph(graph, tune, tuned, err));
    uint32_t n = whole ? kept->made.n : 0;
    report->passes[PASS_NUMBER_fuse_pair] = (struct pass_tally){n, (int32_t)n};
    report->fused -= n;
    *joined = whole ? STEAL(kept->graph) : NULL;
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
