/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the times of all candidates: from the cache, on the device, or by a guess.
 *
 * Candidates that a backend compiles are compiled first, on all cores, the best guesses of all
 * nodes before the second best; then the device runs them one at a time. Compiling takes most of
 * the time, so the device runs what is there while candidates of a kin, which take long to compile,
 * are compiled; some of these wait for what others show (wave.c), and candidates that were slow at
 * the sizes beside are not compiled (history.c). Candidates that are not begun when the time is up
 * are given up, and the cache remembers that: a build with the same cache comes to the same plan.
 *
 * Other work on the machine disturbs times. Candidates whose times are not believed run again after
 * all others, round after round, as long as these rounds take no more than a part of the time
 * before them. A time that is still not believed then is used, because there is no better one, but
 * not remembered.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/tune/internal.h"

enum {
    COMPILE_SECONDS = 20,             /* for one graph */
    AGAIN_ROUNDS = 8,                 /* most rounds for times that are not believed */
    AGAIN_PART = 2,                   /* these rounds take 1/2 of all runs before them at most, */
    AGAIN_NS_MIN = 500 * 1000 * 1000, /* or this much, whichever is more */
};

/* Bytes of the node's constants, or else of its outputs, as the tactic stores them. */
static uint64_t stored_bytes(const struct tune_entry *e, const struct tactic *tactic,
                             bool constants)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct tactic_port *port;
    uint64_t bytes = 0;
    for (uint32_t i = constants ? 0 : node->n_inputs;
         i < node->n_inputs + (constants ? 0 : node->n_outputs); i++) {
        const struct ir_tensor *t = tune_port_at(e->sample, tactic, i, &port);
        if (t && (!constants || ir_tensor_is_constant(t)))
            bytes += t->bytes / MAX(dtype_size(t->dtype), 1) * dtype_size(port->format.dtype);
    }
    return bytes;
}

/* Bytes of the node's outputs, as the graph stores them. */
static uint64_t written_bytes(const struct ir_graph *sample)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ir_node(sample, 0)->n_outputs; i++)
        bytes += ir_tensor(sample, ir_node(sample, 0)->outputs[i])->bytes;
    return bytes;
}

/* Where the option is among those that the device offered with it: the best ones come first. */
static uint32_t rank_of(const struct tune_entry *e, uint32_t option)
{
    return e->widened && option >= e->widened_at ? option - e->widened_at : option;
}

/* Stands in for a time: assumes that the device moves five bytes in a nanosecond, that later
 * candidates are a little slower than earlier ones, and that heavy work is much slower in fp32 than
 * in a shorter type where there is a choice. This is good enough to keep one layout and the
 * shortest type through a network. */
static uint64_t guess(const struct tune_entry *e, uint32_t option)
{
    const struct tactic *tactic = e->options[option].tactic;
    bool heavy = ir_op_has(ir_node(e->sample, 0)->op, IR_TRAIT_HEAVY), low = false;
    uint64_t moved = 2 * stored_bytes(e, tactic, false) / 5 + 1000;
    uint64_t step = (2 * written_bytes(e->sample) / 5 + 1000) / 8;
    uint64_t constants = stored_bytes(e, tactic, true) / 5;
    if (tune_is_fallback(tactic) && e->n > 1 && heavy)
        return 1000 * moved;
    for (uint32_t i = 0; i < e->n; i++)
        low = low || tune_type(e->sample, e->options[i].tactic);
    if (heavy && low && !tune_type(e->sample, tactic))
        moved *= 8;
    return moved + constants + rank_of(e, option) * step;
}

/* What the backend expects; a guess, if it expects nothing. */
static uint64_t estimate(const struct tune_entry *e, uint32_t option)
{
    const struct backend *backend = e->device->backend;
    const struct tactic *tactic = e->options[option].tactic;
    uint64_t ns = 0;
    if (backend->cost)
        ns = backend->cost(e->device, e->sample, ir_node(e->sample, 0), tactic, rank_of(e, option));
    return ns ? MIN(ns, TUNE_NEVER - 1) : guess(e, option);
}

static void tell(struct tune_table *t, const struct tune_entry *e, const struct tune_option *o,
                 const char *whence)
{
    char shape[SHAPE_TEXT_MAX];
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct ir_tensor *y = ir_tensor(e->sample, node->outputs[0]);
    enum dtype low = tune_type(e->sample, o->tactic);
    const char *type = low ? dtype_name(low) : "";
    if (o->ns >= TUNE_NEVER)
        log_write(tune_table_options(t)->log, LOG_VERBOSE, "%s '%s' %s: %s%s%s: not used: %s",
                  ir_op_name(node->op), node->name, shape_format(&y->shape, shape), o->tactic->name,
                  *type ? " " : "", type, whence);
    else
        log_write(tune_table_options(t)->log, LOG_VERBOSE, "%s '%s' %s: %s%s%s: %.1f us%s",
                  ir_op_name(node->op), node->name, shape_format(&y->shape, shape), o->tactic->name,
                  *type ? " " : "", type, (double)o->ns / 1000, whence);
}

/* A node that only renames a tensor never runs. Reformats are timed all the same, because those
 * that rename are not asked for. */
static bool runs_never(const struct tune_entry *e, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct ir_format *from = &tactic->in[0].format, *to = &tactic->out[0].format;
    return node->op != IR_OP_REFORMAT &&
           !ir_tensor_is_constant(ir_tensor(e->sample, node->inputs[0])) &&
           ir_node_renames(e->sample, node, *from, *to);
}

/* Whether the option still has to be compiled or timed. */
static bool is_open(const struct tune_entry *e, const struct tune_option *o)
{
    return !o->timed && o->ns == 0 && !runs_never(e, o->tactic);
}

static enum status remember(struct tune_table *t, const struct tune_entry *e,
                            const struct tune_option *o, struct error *err)
{
    struct tune_cache *cache = tune_table_options(t)->cache;
    struct tune_key key = tune_table_key(t, e, o->tactic);
    return !cache || tune_cache_put(cache, &key, o->ns) ? STATUS_OK
                                                        : error_no_memory(err, "the tuner");
}

/* --- candidates that need not run --- */

static void look_up(struct tune_table *t, struct tune_entry *e)
{
    const struct tune_options *options = tune_table_options(t);
    for (uint32_t i = 0; i < e->n; i++) {
        struct tune_option *o = &e->options[i];
        struct tune_key key = tune_table_key(t, e, o->tactic);
        if (!is_open(e, o))
            continue;
        if (options->cache && !options->retune && tune_cache_get(options->cache, &key, &o->ns)) {
            o->timed = o->ns < TUNE_NEVER;
            tune_table_report(t)->from_cache++;
            tell(t, e, o, o->timed ? " (cache)" : "it did not work before");
        } else if (options->no_timing) {
            o->ns = estimate(e, i);
            tell(t, e, o, " (estimate)");
        }
    }
}

static void give_up(struct tune_table *t, const struct tune_entry *e, struct tune_option *o,
                    const char *why)
{
    o->ns = TUNE_NEVER;
    o->given_up = true;
    tune_table_report(t)->given_up++;
    tell(t, e, o, why);
}

/* Whether the candidate is timed whatever others show: what is wished need not be fast. */
static bool is_wanted(const struct tune_table *t, const struct tune_entry *e,
                      const struct tune_option *o)
{
    const struct tune_options *options = tune_table_options(t);
    return options->thorough || (tune_pins_wishes(options->pins, e->pins) &&
                                 tune_pins_wished(options->pins, e->pins, e->sample, o->tactic));
}

/* Gives up candidates that were slow at other sizes, unless all of them were; those that were not
 * are tried at once. */
static void prune(struct tune_table *t, struct tune_entry *e)
{
    const struct tune_history *history = tune_table_options(t)->history;
    uint32_t open = 0, hopeless = 0;
    if (!history || !e->device->backend->compile || tune_table_options(t)->thorough)
        return;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->options[i].ns < TUNE_NEVER) {
            open++;
            hopeless += tune_history_ask(history, e, &e->options[i]) == TUNE_HOPELESS;
        }
    for (uint32_t i = 0; i < e->n && hopeless < open; i++) {
        struct tune_option *o = &e->options[i];
        enum tune_promise promise = tune_history_ask(history, e, o);
        if (promise == TUNE_GOOD)
            o->wave = 0;
        if (promise == TUNE_HOPELESS && is_open(e, o) && !is_wanted(t, e, o))
            give_up(t, e, o, "slow at other sizes");
    }
}

/* --- compiling --- */

/* Gives up what is not worth compiling in this wave. */
static void prune_wave(struct tune_table *t, struct tune_entry *e, uint32_t wave, uint64_t whole)
{
    for (uint32_t i = 0; i < e->n && wave; i++) {
        struct tune_option *o = &e->options[i];
        if (o->wave == wave && is_open(e, o) && !is_wanted(t, e, o) &&
            !tune_wave_worth(e, o, whole))
            give_up(t, e, o, "others of its kin are slow, or the layer is short");
    }
}

/* Where a node has the larger part of the time, its candidates come first. */
static int by_part(const void *a, const void *b)
{
    const struct tune_job *x = a, *y = b;
    uint64_t part[2] = {x->entry->uses * tune_best(x->entry), y->entry->uses * tune_best(y->entry)};
    if (part[0] != part[1])
        return part[0] > part[1] ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Whether the option is one of the wave's candidates of a kin, or of its others. */
static bool is_of(const struct tune_option *o, uint32_t wave, bool kin)
{
    return o->wave == wave && (o->tactic->kin != 0) == kin;
}

/* Such candidates, the best guesses of all nodes before the second best. */
static uint32_t list_wave(struct tune_table *t, uint32_t wave, bool kin, struct tune_job *jobs)
{
    uint32_t n = 0, most = 0;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        most = MAX(most, e->n);
    for (uint32_t rank = 0; rank < most; rank++)
        for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
            struct tune_option *o = rank < e->n ? &e->options[rank] : NULL;
            if (!o || !is_of(o, wave, kin) || !is_open(e, o))
                continue;
            jobs[n] = (struct tune_job){.entry = e, .option = o, .number = n};
            n++;
        }
    if (wave && n)
        qsort(jobs, n, sizeof(*jobs), by_part);
    return n;
}

/* Nanoseconds that are left for compiling; 0: there is no limit. */
static uint64_t budget(struct tune_table *t)
{
    uint64_t used = tune_table_report(t)->effort.ns[TUNE_COMPILE];
    uint64_t most = COMPILE_SECONDS * (uint64_t)NS_PER_S;
    if (tune_table_options(t)->thorough)
        return 0;
    return used < most ? most - used : 1;
}

/* Tells of the jobs that did not come to their end, and remembers that. */
static enum status note_jobs(struct tune_table *t, struct tune_job *jobs, uint32_t n,
                             struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tune_option *o = jobs[i].option;
        if (o->compiled)
            continue;
        if (o->ns < TUNE_NEVER)
            give_up(t, jobs[i].entry, o, "out of time");
        else
            tell(t, jobs[i].entry, o, jobs[i].why);
        TRY(remember(t, jobs[i].entry, o, err));
    }
    return STATUS_OK;
}

/* --- timing --- */

bool tune_believed(const struct tune_option *o)
{
    return !o->ran || (o->clean_ns && tune_times_agree(o->ns, o->clean_ns)) ||
           (o->blind && o->rounds > 1 && tune_times_agree(o->ns, o->second_ns));
}

static void add_round(struct tune_option *o, const struct tune_time *time)
{
    o->second_ns = o->rounds ? MIN(o->second_ns, MAX(o->ns, time->ns)) : UINT64_MAX;
    o->ns = o->rounds ? MIN(o->ns, time->ns) : time->ns;
    o->blind = time->blind;
    if (time->clean && (!o->clean_ns || time->ns < o->clean_ns))
        o->clean_ns = time->ns;
    o->spent_ns += time->spent_ns;
    o->rounds++;
    o->timed = o->ran = true;
}

/* Runs the candidate for one more round. */
static enum status run_option(struct tune_table *t, struct tune_entry *e, struct tune_option *o,
                              struct error *err)
{
    bool once = e->n > 1 && tune_is_fallback(o->tactic);
    struct tune_time time = {0};
    struct tune_bench *bench;
    struct error why = {0};
    bool fits = true;
    if (!o->ran)
        TRY(tune_limit_check(t, e, o, &fits, err));
    if (!fits)
        return STATUS_OK;
    TRY(tune_table_bench(t, e->device, &bench, err));
    enum status status =
        tune_bench_time(bench, e->sample, o->tactic, tune_best(e), once, &time, &why);
    if (status && status != STATUS_UNIMPLEMENTED) {
        if (err)
            *err = why;
        error_prefix(err, "timing '%s' with '%s'", ir_node(e->sample, 0)->name, o->tactic->name);
        return status;
    }
    if (status && o->ran)
        return STATUS_OK; /* it worked in an earlier round */
    if (!status) {
        add_round(o, &time);
        tell(t, e, o, tune_believed(o) ? "" : " (disturbed)");
        return STATUS_OK;
    }
    o->ns = TUNE_NEVER;
    tell(t, e, o, why.text);
    return remember(t, e, o, err);
}

/* At the end, of options from `first` on: remembers times that are believed, counts the others. */
static enum status keep(struct tune_table *t, const struct tune_entry *e, uint32_t first,
                        struct error *err)
{
    for (uint32_t i = first; i < e->n; i++) {
        const struct tune_option *o = &e->options[i];
        if (!o->ran)
            continue;
        tune_table_report(t)->disturbed += !tune_believed(o);
        if (tune_believed(o))
            TRY(remember(t, e, o, err));
    }
    return STATUS_OK;
}

/* Times the wave's candidates of a kin, or the others. */
static enum status time_wave(struct tune_table *t, struct tune_entry *e, uint32_t wave, bool kin,
                             struct error *err)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (!is_of(&e->options[i], wave, kin))
            continue;
        if (is_open(e, &e->options[i])) {
            tune_table_report(t)->timed++;
            TRY(run_option(t, e, &e->options[i], err));
        }
        tune_table_progress(t, e, 1);
    }
    return STATUS_OK;
}

static enum status fill_options(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    if (e->filled)
        return STATUS_OK;
    look_up(t, e);
    for (uint32_t wave = 0; wave <= tune_wave_last(e); wave++) {
        prune_wave(t, e, wave, 0);
        TRY(time_wave(t, e, wave, false, err));
        TRY(time_wave(t, e, wave, true, err));
    }
    e->filled = true;
    return STATUS_OK;
}

static bool none_works(const struct tune_entry *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (e->options[i].ns < TUNE_NEVER)
            return false;
    return true;
}

static enum status fill_entry(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    TRY(fill_options(t, e, err));
    if (e->n == 0 || !none_works(e))
        return STATUS_OK;
    TRY(tune_table_to_host(t, e, err));
    return fill_options(t, e, err);
}

static enum status run_again(struct tune_table *t, struct tune_entry *e, struct tune_option *o,
                             struct error *err)
{
    TRY(run_option(t, e, o, err));
    tune_table_progress(t, e, 0);
    return STATUS_OK;
}

/* One more round for the times that are not believed; *open: there were some. */
static enum status doubt(struct tune_table *t, struct tune_entry *e, uint32_t first, bool *open,
                         struct error *err)
{
    for (uint32_t i = first; i < e->n; i++) {
        if (tune_believed(&e->options[i]))
            continue;
        *open = true;
        TRY(run_again(t, e, &e->options[i], err));
    }
    return STATUS_OK;
}

/* Some rounds of that; then the times are kept. */
static enum status settle(struct tune_table *t, struct tune_entry *e, uint32_t first,
                          struct error *err)
{
    bool open = true;
    for (uint32_t i = 0; i < AGAIN_ROUNDS && open; i++) {
        open = false;
        TRY(doubt(t, e, first, &open, err));
    }
    return keep(t, e, first, err);
}

enum status tune_fill_entry(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    if (e->filled && (e->n == 0 || !none_works(e)))
        return STATUS_OK;
    TRY(fill_entry(t, e, err));
    return settle(t, e, 0, err);
}

/* Compiles what was listed last, from option `first` on, and times it. */
static enum status fill_last(struct tune_table *t, struct tune_entry *e, uint32_t first,
                             struct error *err)
{
    CLEANUP(cleanup_free) struct tune_job *jobs = calloc((size_t)e->n + 1, sizeof(*jobs));
    uint32_t n = 0;
    if (!jobs)
        return error_no_memory(err, "the tuner");
    look_up(t, e);
    for (uint32_t i = first; i < e->n; i++)
        if (is_open(e, &e->options[i])) {
            jobs[n] = (struct tune_job){.entry = e, .option = &e->options[i], .number = n};
            n++;
        }
    TRY(tune_compile(t, jobs, n, 0, err));
    TRY(note_jobs(t, jobs, n, err));
    for (uint32_t i = first; i < e->n; i++) {
        struct tune_option *o = &e->options[i];
        if (!is_open(e, o))
            continue;
        tune_table_report(t)->timed++;
        TRY(run_option(t, e, o, err));
    }
    tune_table_progress(t, e, e->n - first);
    return settle(t, e, first, err);
}

enum status tune_fill_without(struct tune_table *t, struct tune_entry *e, uint32_t held,
                              struct error *err)
{
    for (uint32_t i = 0; i < e->n; i++) {
        struct tune_option *o = &e->options[i];
        if (o->ns < TUNE_NEVER || o->beyond || held & tune_types(e->sample, o->tactic))
            continue;
        o->given_up = false;
        if (tune_table_options(t)->no_timing)
            o->ns = estimate(e, i);
        else
            TRY(run_option(t, e, o, err));
        if (o->ns < TUNE_NEVER)
            return o->ran && tune_believed(o) ? remember(t, e, o, err) : STATUS_OK;
    }
    return STATUS_OK;
}

enum status tune_fill_wide(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    bool before = e->widened;
    TRY(tune_table_widen(t, e, err));
    return e->widened && !before ? fill_last(t, e, e->widened_at, err) : STATUS_OK;
}

/* A disturbance lasts longer than the samples of one candidate, so candidates that came close to
 * the best run once more, later. */
static enum status time_again(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    uint64_t best = tune_best(e);
    for (uint32_t i = 0; i < e->n && e->n > 1; i++) {
        struct tune_option *o = &e->options[i];
        if (o->ran && o->rounds == 1 && o->ns / 4 <= best / 3)
            TRY(run_again(t, e, o, err));
    }
    return STATUS_OK;
}

static uint64_t spent(struct tune_table *t)
{
    uint64_t ns = 0;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        for (uint32_t i = 0; i < e->n; i++)
            ns += e->options[i].spent_ns;
    return ns;
}

/* What the device runs while candidates of a kin are compiled: the wave's others. Later waves have
 * hardly any, so that there is time for a second round of what came close to the best before. */
static enum status run_meanwhile(struct tune_table *t, uint32_t wave, bool again, struct error *err)
{
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
        TRY(time_wave(t, e, wave, false, err));
        if (again)
            TRY(time_again(t, e, err));
    }
    return STATUS_OK;
}

/* `jobs` has room for all options. */
static enum status fill_wave(struct tune_table *t, uint32_t wave, struct tune_job *jobs,
                             uint64_t *since, struct error *err)
{
    struct tune_report *report = tune_table_report(t);
    struct tune_compiling *compiling;
    uint32_t n = list_wave(t, wave, false, jobs);
    TRY(tune_compile(t, jobs, n, budget(t), err));
    TRY(note_jobs(t, jobs, n, err));
    n = list_wave(t, wave, true, jobs);
    TRY(tune_compile_begin(t, jobs, n, budget(t), &compiling, err));
    tune_phase_end(report, TUNE_COMPILE, since);
    enum status status = run_meanwhile(t, wave, wave && n, err);
    tune_phase_end(report, TUNE_TIME, since);
    enum status end_status = tune_compile_end(compiling, status ? NULL : err);
    tune_phase_end(report, TUNE_COMPILE, since);
    if (status || end_status)
        return status ? status : end_status;
    TRY(note_jobs(t, jobs, n, err));
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        TRY(time_wave(t, e, wave, true, err));
    tune_phase_end(report, TUNE_TIME, since);
    return STATUS_OK;
}

/* Compiles and times wave after wave. */
static enum status fill_waves(struct tune_table *t, struct error *err)
{
    uint64_t since = clock_now_ns();
    uint32_t last = 0, total = 0;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
        last = MAX(last, tune_wave_last(e));
        total += e->n;
    }
    CLEANUP(cleanup_free) struct tune_job *jobs = calloc((size_t)total + 1, sizeof(*jobs));
    if (!jobs)
        return error_no_memory(err, "the tuner");
    for (uint32_t wave = 0; wave <= last; wave++) {
        uint64_t whole = wave ? tune_wave_whole(t) : 0;
        for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
            prune_wave(t, e, wave, whole);
        TRY(fill_wave(t, wave, jobs, &since, err));
    }
    return STATUS_OK;
}

/* Times again what needs a second look. */
static enum status time_all(struct tune_table *t, struct error *err)
{
    struct tune_entry *e;
    for (e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
        e->filled = true;
        TRY(fill_entry(t, e, err));
    }
    for (e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        TRY(time_again(t, e, err));
    uint64_t before = spent(t), most = before + MAX(before / AGAIN_PART, AGAIN_NS_MIN);
    bool open = true;
    for (uint32_t i = 0; i < AGAIN_ROUNDS && open && spent(t) < most; i++) {
        open = false;
        for (e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
            TRY(doubt(t, e, 0, &open, err));
    }
    return STATUS_OK;
}

/* Also done if the timing ended early: times that are believed are worth keeping. */
static enum status keep_all(struct tune_table *t, struct error *err)
{
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        TRY(keep(t, e, 0, err));
    return STATUS_OK;
}

/* The bytes of the largest tensor that the entry's node makes. */
static uint64_t largest_of(const struct tune_entry *e)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes = MAX(bytes, ir_tensor(e->sample, node->outputs[i])->bytes);
    return bytes;
}

static enum status note_all(struct tune_table *t, struct tune_history *history, struct error *err)
{
    uint64_t largest = 0;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
        largest = MAX(largest, largest_of(e));
        if (!tune_history_note(history, e))
            return error_no_memory(err, "the tuner");
    }
    tune_history_graph_done(history, largest);
    return STATUS_OK;
}

enum status tune_fill(struct tune_table *t, struct error *err)
{
    struct tune_history *history = tune_table_options(t)->history;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e)) {
        look_up(t, e);
        prune(t, e);
    }
    enum status status = fill_waves(t, err);
    uint64_t since = clock_now_ns();
    status = status ? status : time_all(t, err);
    tune_phase_end(tune_table_report(t), TUNE_TIME, &since);
    enum status kept_status = keep_all(t, status ? NULL : err);
    if (status || kept_status)
        return status ? status : kept_status;
    return history ? note_all(t, history, err) : STATUS_OK;
}
