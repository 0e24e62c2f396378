/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The candidates of each distinct node. A node that the device has no candidate for is given to the
 * host, with plain layouts and in the graph's own types, so that its tensors cross as they are. A
 * reference kernel is the CPU backend's fallback: it is not even tried for heavy work that another
 * candidate can do.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "engine/tune/internal.h"
#include "engine/tune/spread.h"

enum {
    OPTIONS_MAX = 512,
    HIGH_MAX = 8, /* fp32 candidates of a heavy node that has candidates in shorter types */
    WIDE_MAX = 8, /* those that are asked for when nothing shorter may be used */
};

#define F16_MAX 65504.0F

struct row {
    struct row_key {
        struct tune_key node;
        uint64_t twin; /* 1: the host's, beside the device's */
        uint64_t pins;
    } key;
    struct tune_entry entry;
    UT_hash_handle hh;
};

struct tune_table {
    const struct tune_options *options;
    struct tune_report *report;
    uint64_t pool_bytes;
    struct tune_bench *bench, *host_bench; /* NULL until needed */
    struct row *rows;                      /* hash table, in the order in which rows were added */
    uint32_t total, done;                  /* candidates, for progress */
    char host_line[FINGERPRINT_MAX];
};

enum status tune_table_new(const struct tune_options *options, uint64_t pool_bytes,
                           struct tune_report *report, struct tune_table **out, struct error *err)
{
    struct tune_table *t = calloc(1, sizeof(*t));
    if (!t)
        return error_no_memory(err, "the tuner");
    t->options = options;
    t->report = report;
    t->pool_bytes = pool_bytes;
    if (options->host)
        options->host->backend->device_fingerprint(options->host, t->host_line);
    *out = t;
    return STATUS_OK;
}

static void drop_option(struct tune_entry *e, uint32_t index)
{
    free(e->options[index].tactic);
    memmove(&e->options[index], &e->options[index + 1], (--e->n - index) * sizeof(*e->options));
}

static void row_free(struct row *row)
{
    while (row->entry.n)
        drop_option(&row->entry, row->entry.n - 1);
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
    tune_bench_free(t->host_bench);
    free(t);
}

const struct tune_options *tune_table_options(const struct tune_table *t)
{
    return t->options;
}

struct tune_report *tune_table_report(const struct tune_table *t)
{
    return t->report;
}

enum status tune_table_bench(struct tune_table *t, struct device *device, struct tune_bench **out,
                             struct error *err)
{
    struct tune_bench **bench = device == t->options->device ? &t->bench : &t->host_bench;
    if (!*bench)
        TRY(tune_bench_new(device, t->options->seed, t->pool_bytes, bench, err));
    *out = *bench;
    return STATUS_OK;
}

struct tune_key tune_table_key(const struct tune_table *t, const struct tune_entry *e,
                               const struct tactic *tactic)
{
    bool scaled = false;
    for (uint32_t i = 0; i < tactic->n_in + tactic->n_out; i++)
        scaled = scaled ||
                 (i < tactic->n_in ? tactic->in[i] : tactic->out[i - tactic->n_in]).format.scale !=
                     IR_NO_SCALE;
    return tune_key_tactic(scaled ? &e->key : &e->float_key, tactic,
                           e->device == t->options->device ? "" : t->host_line);
}

void tune_table_progress(struct tune_table *t, const struct tune_entry *e, uint32_t done)
{
    t->done += done;
    if (t->options->progress)
        t->options->progress(t->options->user, MIN(t->done, t->total), t->total,
                             ir_node(e->sample, 0)->name);
}

struct tune_entry *tune_table_next(struct tune_table *t, struct tune_entry *entry)
{
    struct row *row =
        entry ? (struct row *)CONTAINER_OF(entry, struct row, entry)->hh.next : t->rows;
    return row ? &row->entry : NULL;
}

/* --- which candidates are kept --- */

bool tune_is_fallback(const struct tactic *tactic)
{
    return strncmp(tactic->name, "reference", strlen("reference")) == 0;
}

/* Whether finite numbers would become infinite in fp16: masks often have such numbers. */
static bool overflows_f16(const struct ir_tensor *t)
{
    size_t n;
    if (t->dtype != DTYPE_F32 || !ir_tensor_is_constant(t) || !shape_elements(&t->shape, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, (const char *)t->data + i * sizeof(v), sizeof(v));
        if ((v > F16_MAX && v <= FLT_MAX) || (v < -F16_MAX && v >= -FLT_MAX))
            return true;
    }
    return false;
}

/* Whether the node casts from or to a wide integer: that is an index or a count, which must stay
 * exact. */
static bool counts(const struct ir_graph *g, const struct ir_node *node)
{
    enum dtype x = ir_tensor(g, node->inputs[0])->dtype, y = ir_tensor(g, node->outputs[0])->dtype;
    return node->op == IR_OP_CAST &&
           ((!dtype_is_float(x) && dtype_size(x) > 1) || (!dtype_is_float(y) && dtype_size(y) > 1));
}

/* Shorter types that cannot hold this node's numbers. */
struct limits {
    bool no_low, no_f16;
};

static struct limits limits_of(const struct ir_graph *g, const struct ir_node *node)
{
    struct limits l = {.no_low = counts(g, node)};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            l.no_f16 = l.no_f16 || overflows_f16(ir_tensor(g, node->inputs[i]));
    return l;
}

struct keeper {
    const struct tune_pins *pins;
    struct tune_entry *entry;
    struct limits limits;
    uint32_t most; /* options of the entry */
    bool plain;    /* only tactics that leave everything as the graph has it */
    bool scales;   /* the backend has kernels for formats with a scale */
};

/* Whether the tensor can have the format that the port gives it, and the options allow that. The
 * tensors of a reformat have their formats already. A constant gets 8 bits with a scale only if the
 * backend packs it. */
static bool port_wanted(const struct keeper *k, const struct ir_tensor *t,
                        const struct tactic_port *port)
{
    const struct ir_format *f = &port->format;
    bool low = f->dtype != t->dtype, scaled = f->scale != IR_NO_SCALE;
    if (scaled && !k->scales)
        return false;
    if (ir_node(k->entry->sample, 0)->op == IR_OP_REFORMAT)
        return ir_format_equal(*f, t->format);
    if (k->plain && (low || (f->layout != IR_LAYOUT_PLAIN && !port->packed_bytes)))
        return false;
    return ir_format_fits(k->entry->sample, t, *f) && (!scaled || f->scale == t->range) &&
           !(scaled && ir_tensor_is_constant(t) && !port->packed_bytes) &&
           !(low && k->limits.no_low) && !(low && f->dtype == DTYPE_F16 && k->limits.no_f16);
}

static bool wanted(const struct keeper *k, const struct tactic *tactic)
{
    const struct tune_entry *e = k->entry;
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct tactic_port *port;
    if (e->n >= k->most || tactic->n_in != MIN(node->n_inputs, TACTIC_PORTS_MAX) ||
        tactic->n_out != node->n_outputs)
        return false;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const struct ir_tensor *t = tune_port_at(e->sample, tactic, i, &port);
        if (t && !port_wanted(k, t, port))
            return false;
    }
    if (!tune_pins_allow(k->pins, e->pins, e->sample, tactic))
        return false;
    return e->n == 0 || !tune_is_fallback(tactic) || !ir_op_has(node->op, IR_TRAIT_HEAVY);
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err)
{
    const struct keeper *k = user;
    struct tune_entry *e = k->entry;
    if (!wanted(k, tactic))
        return STATUS_OK;
    if (e->n == e->cap) {
        uint32_t cap = e->cap ? 2 * e->cap : 8;
        struct tune_option *more = realloc(e->options, cap * sizeof(*more));
        if (!more)
            return error_no_memory(err, "the tuner");
        e->options = more;
        e->cap = cap;
    }
    struct tactic *copy = malloc(sizeof(*copy));
    if (!copy)
        return error_no_memory(err, "the tuner");
    *copy = *tactic;
    copy->code = NULL;
    copy->code_size = 0;
    e->options[e->n++] = (struct tune_option){.tactic = copy, .wave = copy->wave};
    return STATUS_OK;
}

static enum precision floats_of(const struct tune_table *t, const struct tune_entry *e)
{
    return precision_floats(tune_pins_precision(t->options->pins, e->pins, t->options->precision),
                            t->options->device->backend);
}

/* Asks for at most `most` more. */
static enum status ask(struct tune_table *t, struct tune_entry *e, struct device *device,
                       enum precision floats, uint32_t most, struct error *err)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    const struct tune_pins *pins = t->options->pins;
    struct keeper k = {.pins = pins,
                       .entry = e,
                       .most = e->n + most,
                       .plain = device != t->options->device,
                       .scales = device->backend->features & BACKEND_SCALES};
    if (floats != PRECISION_F32)
        k.limits = limits_of(e->sample, node);
    e->device = device;
    if (!tune_pins_backend(pins, e->pins, device->backend->name))
        return STATUS_OK;
    enum status status =
        device->backend->candidates(device, e->sample, node, floats, keep, &k, err);
    return status == STATUS_UNIMPLEMENTED ? STATUS_OK : status;
}

/* fp32 is seldom fastest where shorter types are allowed; a heavy node's first few fp32 candidates
 * show whether it is. */
static void thin_out(struct tune_entry *e)
{
    bool low = false;
    uint32_t high = 0;
    for (uint32_t i = 0; i < e->n; i++)
        low = low || tune_type(e->sample, e->options[i].tactic);
    if (!low || !ir_op_has(ir_node(e->sample, 0)->op, IR_TRAIT_HEAVY) ||
        !e->device->backend->compile)
        return;
    for (uint32_t i = 0; i < e->n;)
        if (!tune_type(e->sample, e->options[i].tactic) && ++high > HIGH_MAX)
            drop_option(e, i);
        else
            i++;
}

enum status tune_table_to_host(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    struct device *host = t->options->host;
    if (!host || e->device == host || ir_node(e->sample, 0)->op == IR_OP_REFORMAT)
        return STATUS_OK;
    if (!e->filled)
        t->total -= e->n;
    e->filled = false;
    e->widened_at = 0;
    while (e->n)
        drop_option(e, e->n - 1);
    enum status status = ask(t, e, host, PRECISION_F32, OPTIONS_MAX, err);
    t->total += e->n;
    return status;
}

enum status tune_table_widen(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    uint32_t before = e->n;
    if (e->widened || e->device != t->options->device || floats_of(t, e) == PRECISION_F32 ||
        ir_node(e->sample, 0)->op == IR_OP_REFORMAT)
        return STATUS_OK;
    e->widened = true;
    e->widened_at = before;
    enum status status = ask(t, e, e->device, PRECISION_F32, WIDE_MAX, err);
    for (uint32_t i = before; i < e->n; i++)
        e->options[i].wave = 0;
    t->report->effort.listed += e->n - before;
    t->total += e->n - before;
    return status;
}

/* --- entries --- */

static void row_cleanup(struct row **row)
{
    if (*row)
        row_free(*row);
}

static enum status take(struct tune_table *t, struct tune_entry *e, struct error *err)
{
    e->asked = true;
    t->report->effort.listed += e->n;
    thin_out(e);
    t->total += e->n;
    if (e->n == 0) /* shorter types may be all that is offered, and too short for the node */
        TRY(tune_table_widen(t, e, err));
    return e->n ? STATUS_OK : tune_table_to_host(t, e, err);
}

/* An entry that is to be asked for, and what came of it. */
struct question {
    struct tune_table *table;
    struct tune_entry *entry;
    enum status status;
    struct error err;
};

static void ask_one(void *user, uint32_t i)
{
    struct question *q = (struct question *)user + i;
    q->status = ask(q->table, q->entry, q->table->options->device, floats_of(q->table, q->entry),
                    OPTIONS_MAX, &q->err);
}

enum status tune_table_ask(struct tune_table *t, struct error *err)
{
    uint32_t n = 0, most = HASH_COUNT(t->rows);
    CLEANUP(cleanup_free) struct question *list = calloc((size_t)most + 1, sizeof(*list));
    if (!list)
        return error_no_memory(err, "the tuner");
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        if (!e->asked)
            list[n++] = (struct question){.table = t, .entry = e};
    if (t->options->device->backend->compile)
        spread(n, ask_one, list);
    for (uint32_t i = 0; i < n; i++) {
        if (!t->options->device->backend->compile)
            ask_one(list, i);
        if (list[i].status) {
            error_copy(err, &list[i].err);
            return list[i].status;
        }
        TRY(take(t, list[i].entry, err));
    }
    return STATUS_OK;
}

/* Whether a tensor is stored by a scale already: only those of a reformat are. */
static bool has_scale(const struct ir_graph *sample)
{
    bool has = false;
    for (uint32_t i = 0; i < sample->n_tensors; i++)
        has = has || ir_tensor(sample, i)->scale != IR_NO_SCALE;
    return has;
}

/* Takes the sample over. */
static enum status add_row(struct tune_table *t, const struct row_key *key, enum precision floats,
                           struct ir_graph *sample, struct tune_entry **out, struct error *err)
{
    CLEANUP(row_cleanup) struct row *row = calloc(1, sizeof(*row));
    if (!row) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    row->key = *key;
    row->entry.key = row->entry.float_key = key->node;
    if (!has_scale(sample) && !tune_key_of(sample, ir_node(sample, 0), floats, t->pool_bytes, false,
                                           &row->entry.float_key)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    row->entry.pins = key->pins;
    row->entry.sample = sample;
    row->entry.asked = key->twin;
    if (key->twin)
        TRY(tune_table_to_host(t, &row->entry, err));
    HASH_ADD(hh, t->rows, key, sizeof(row->key), row);
    if (!HASH_ADDED(row))
        return error_no_memory(err, "the tuner");
    *out = &STEAL(row)->entry;
    return STATUS_OK;
}

/* Takes the sample over; if there is an entry already, the sample is freed. */
static enum status find_or_add(struct tune_table *t, struct ir_graph *sample, uint64_t pins,
                               bool twin, struct tune_entry **out, struct error *err)
{
    struct row_key key = {.twin = twin, .pins = pins};
    struct row *row = NULL;
    enum precision floats =
        precision_floats(tune_pins_precision(t->options->pins, pins, t->options->precision),
                         t->options->device->backend);
    if (!tune_key_of(sample, ir_node(sample, 0), floats, t->pool_bytes, true, &key.node)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    HASH_FIND(hh, t->rows, &key, sizeof(key), row);
    if (!row)
        return add_row(t, &key, floats, sample, out, err);
    ir_graph_free(sample);
    *out = &row->entry;
    return STATUS_OK;
}

enum status tune_table_node(struct tune_table *t, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err)
{
    struct ir_graph *sample;
    TRY(tune_sample_new(graph, node, &sample, err));
    TRY(find_or_add(t, sample, tune_pins_of(t->options->pins, node->name), false, out, err));
    (*out)->uses++;
    return STATUS_OK;
}

enum status tune_table_twin(struct tune_table *t, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err)
{
    struct ir_graph *sample;
    TRY(tune_sample_new(graph, node, &sample, err));
    return find_or_add(t, sample, tune_pins_of(t->options->pins, node->name), true, out, err);
}

static int by_time(const void *a, const void *b)
{
    const struct tune_option *x = a, *y = b;
    return x->ns == y->ns ? 0 : x->ns < y->ns ? -1 : 1;
}

enum status tune_table_reformat(struct tune_table *t, const struct ir_graph *graph, uint32_t tensor,
                                struct ir_format from, struct ir_format to, struct tune_entry **out,
                                struct error *err)
{
    struct ir_graph *sample;
    struct tune_entry *e;
    TRY(tune_sample_reformat(graph, tensor, from, to, &sample, err));
    TRY(find_or_add(t, sample, 0, false, &e, err));
    TRY(tune_table_ask(t, err));
    TRY(tune_fill_entry(t, e, err));
    if (e->n > 1)
        qsort(e->options, e->n, sizeof(*e->options), by_time);
    while (e->n && e->options[e->n - 1].ns >= TUNE_NEVER)
        drop_option(e, e->n - 1);
    *out = e;
    return STATUS_OK;
}
