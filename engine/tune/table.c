/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of each distinct node: its candidates and their times, from the cache, from the
 * device, or guessed. A reference kernel is the fallback of the CPU backend: where something else
 * can do heavy work it is not even tried, and where it might win it is run once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/tune/internal.h"
#include "engine/tune/solve.h"

#include <uthash.h>

enum { OPTIONS_MAX = 256 };

struct row {
    struct tune_entry entry;
    UT_hash_handle hh;
};

struct tune_table {
    const struct tune_options *options;
    struct tune_report *report;
    uint64_t pool_bytes;
    struct tune_bench *bench; /* NULL until something is timed */
    struct row *rows;         /* in the order in which they came */
    uint32_t total, done;     /* candidates, for progress */
};

static enum status no_memory(struct error *err)
{
    return error_set(err, STATUS_RESOURCE_EXHAUSTED, "tuner: out of memory");
}

enum status tune_table_new(const struct tune_options *options, uint64_t pool_bytes,
                           struct tune_report *report, struct tune_table **out, struct error *err)
{
    struct tune_table *t = calloc(1, sizeof(*t));
    if (!t)
        return no_memory(err);
    t->options = options;
    t->report = report;
    t->pool_bytes = pool_bytes;
    enum status st = tune_bench_new(options->device, options->seed, pool_bytes, &t->bench, err);
    if (st)
        free(t);
    else
        *out = t;
    return st;
}

static void row_free(struct row *row)
{
    for (uint32_t i = 0; i < row->entry.n; i++)
        free(row->entry.options[i].tactic);
    free(row->entry.options);
    ir_graph_free(row->entry.sample);
    free(row);
}

void tune_table_free(struct tune_table *t)
{
    if (!t)
        return;
    struct row *row, *next;
    HASH_ITER(hh, t->rows, row, next)
    {
        HASH_DEL(t->rows, row);
        row_free(row);
    }
    tune_bench_free(t->bench);
    free(t);
}

struct tune_bench *tune_table_bench(struct tune_table *t)
{
    return t->bench;
}

/* --- collecting --- */

static bool is_fallback(const struct tactic *tactic)
{
    return strncmp(tactic->name, "reference", strlen("reference")) == 0;
}

static bool is_heavy(enum ir_op op)
{
    return op == IR_OP_CONV || op == IR_OP_DECONV || op == IR_OP_MATMUL;
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err)
{
    struct tune_entry *e = user;
    bool skip = e->n > 0 && is_fallback(tactic) && is_heavy(ir_node(e->sample, 0)->op);
    if (skip || e->n == OPTIONS_MAX)
        return STATUS_OK;
    if (e->n == e->cap) {
        uint32_t cap = e->cap ? 2 * e->cap : 8;
        struct tune_option *more = realloc(e->options, cap * sizeof(*more));
        if (!more)
            return no_memory(err);
        e->options = more;
        e->cap = cap;
    }
    struct tactic *copy = malloc(sizeof(*copy));
    if (!copy)
        return no_memory(err);
    *copy = *tactic;
    e->options[e->n++] = (struct tune_option){.tactic = copy};
    return STATUS_OK;
}

/* Takes the sample over. */
static enum status add_row(struct tune_table *t, const struct tune_key *key,
                           struct ir_graph *sample, struct tune_entry **out, struct error *err)
{
    struct row *row = calloc(1, sizeof(*row));
    if (!row) {
        ir_graph_free(sample);
        return no_memory(err);
    }
    row->entry.key = *key;
    row->entry.sample = sample;
    struct device *device = t->options->device;
    enum status st = device->backend->candidates(device, sample, ir_node(sample, 0),
                                                 t->options->precision, keep, &row->entry, err);
    if (st && st != STATUS_UNIMPLEMENTED) {
        row_free(row);
        return st;
    }
    HASH_ADD(hh, t->rows, entry.key, sizeof(row->entry.key), row);
    t->total += row->entry.n;
    *out = &row->entry;
    return STATUS_OK;
}

static struct tune_entry *find(struct tune_table *t, const struct tune_key *key)
{
    struct row *row = NULL;
    HASH_FIND(hh, t->rows, key, sizeof(*key), row);
    return row ? &row->entry : NULL;
}

enum status tune_table_node(struct tune_table *t, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err)
{
    struct tune_key key;
    struct ir_graph *sample;
    if (!tune_key_of(graph, node, t->options->precision, t->pool_bytes, &key))
        return no_memory(err);
    struct tune_entry *known = find(t, &key);
    if (known) {
        *out = known;
        return STATUS_OK;
    }
    enum status st = tune_sample_new(graph, node, &sample, err);
    return st ? st : add_row(t, &key, sample, out, err);
}

/* --- timing --- */

/* Without a time: as if the device moved five bytes in a nanosecond, later candidates a little
 * slower than earlier ones. Good enough to keep one layout through a network. */
static uint64_t guess(const struct tune_entry *e, uint32_t option)
{
    const struct ir_graph *g = e->sample;
    const struct ir_node *node = ir_node(g, 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += ir_tensor(g, node->outputs[i])->bytes;
    uint64_t moved = 2 * bytes / 5 + 1000;
    if (is_fallback(e->options[option].tactic) && e->n > 1 && is_heavy(node->op))
        return 1000 * moved;
    return moved + option * (moved / 8);
}

static uint64_t best_of(const struct tune_entry *e)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->options[i].timed && (!best || e->options[i].ns < best))
            best = e->options[i].ns;
    return best;
}

static void tell(struct tune_table *t, const struct tune_entry *e, const struct tune_option *o,
                 const char *whence)
{
    char shape[SHAPE_TEXT_MAX];
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct ir_tensor *y = ir_tensor(e->sample, node->outputs[0]);
    log_write(t->options->log, LOG_VERBOSE, "%s '%s' %s: %s: %.1f us%s", ir_op_name(node->op),
              node->name, shape_format(&y->shape, shape), o->tactic->name, (double)o->ns / 1000,
              whence);
}

/* A reshape that can be one is a renaming: it never runs. */
static bool runs_never(const struct tune_entry *e)
{
    return ir_node(e->sample, 0)->op == IR_OP_RESHAPE;
}

/* Runs the candidate; what it knew already can only get better. */
static enum status run_option(struct tune_table *t, struct tune_entry *e, struct tune_option *o,
                              struct error *err)
{
    uint64_t ns = 0;
    bool once = e->n > 1 && is_fallback(o->tactic);
    enum status st = tune_bench_time(t->bench, e->sample, o->tactic, best_of(e), once, &ns, err);
    if (st == STATUS_UNIMPLEMENTED) {
        o->ns = SOLVE_NEVER; /* listed, but not for this device: never chosen */
        return STATUS_OK;
    }
    if (st) {
        error_prefix(err, "timing '%s' with '%s'", ir_node(e->sample, 0)->name, o->tactic->name);
        return st;
    }
    struct tune_key key = tune_key_tactic(&e->key, o->tactic);
    o->ns = o->timed ? MIN(o->ns, ns) : ns;
    o->timed = o->ran = true;
    tell(t, e, o, "");
    if (t->options->cache && !tune_cache_put(t->options->cache, &key, o->ns))
        return no_memory(err);
    return STATUS_OK;
}

static enum status time_option(struct tune_table *t, struct tune_entry *e, uint32_t index,
                               struct error *err)
{
    struct tune_option *o = &e->options[index];
    struct tune_key key = tune_key_tactic(&e->key, o->tactic);
    if (t->options->cache && tune_cache_get(t->options->cache, &key, &o->ns)) {
        o->timed = true;
        t->report->from_cache++;
        tell(t, e, o, " (cache)");
        return STATUS_OK;
    }
    if (t->options->no_timing) {
        o->ns = guess(e, index);
        return STATUS_OK;
    }
    t->report->timed++;
    return run_option(t, e, o, err);
}

static void tell_progress(struct tune_table *t, const struct tune_entry *e)
{
    if (t->options->progress)
        t->options->progress(t->options->user, MIN(t->done, t->total), t->total,
                             ir_node(e->sample, 0)->name);
}

static enum status time_entry(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    enum status st = STATUS_OK;
    for (uint32_t i = 0; i < e->n && !st; i++) {
        bool known = e->options[i].timed || e->options[i].ns;
        if (!known && !runs_never(e))
            st = time_option(t, e, i, err);
        t->done++;
        tell_progress(t, e);
    }
    return st;
}

/* A disturbance lasts longer than the samples of one candidate: those that came close to the best
 * run once more, later. */
static enum status time_again(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    enum status st = STATUS_OK;
    uint64_t best = best_of(e);
    for (uint32_t i = 0; i < e->n && e->n > 1 && !st; i++)
        if (e->options[i].ran && e->options[i].ns / 4 <= best / 3) {
            st = run_option(t, e, &e->options[i], err);
            tell_progress(t, e);
        }
    return st;
}

enum status tune_table_time(struct tune_table *t, struct error *err)
{
    enum status st = STATUS_OK;
    for (struct row *row = t->rows; row && !st; row = row->hh.next)
        st = time_entry(t, &row->entry, err);
    for (struct row *row = t->rows; row && !st; row = row->hh.next)
        st = time_again(t, &row->entry, err);
    return st;
}

static int by_time(const void *a, const void *b)
{
    const struct tune_option *x = a, *y = b;
    return x->ns == y->ns ? 0 : x->ns < y->ns ? -1 : 1;
}

enum status tune_table_reformat(struct tune_table *t, const struct ir_tensor *tensor,
                                enum ir_layout from, enum ir_layout to, struct tune_entry **out,
                                struct error *err)
{
    struct ir_graph *sample;
    struct tune_key key;
    enum status st = tune_sample_reformat(tensor, from, to, &sample, err);
    if (st)
        return st;
    if (!tune_key_of(sample, ir_node(sample, 0), t->options->precision, t->pool_bytes, &key)) {
        ir_graph_free(sample);
        return no_memory(err);
    }
    struct tune_entry *e = find(t, &key);
    if (e) {
        ir_graph_free(sample);
        *out = e;
        return STATUS_OK;
    }
    st = add_row(t, &key, sample, &e, err);
    if (!st)
        st = time_entry(t, e, err);
    if (st)
        return st;
    if (e->n > 1)
        qsort(e->options, e->n, sizeof(*e->options), by_time);
    *out = e;
    return STATUS_OK;
}
