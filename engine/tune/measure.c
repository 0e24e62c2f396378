/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing one candidate, in one round: the least of a few samples (what else runs on the machine can
 * only make it slower).
 *
 * A round is clean if nothing speaks against its answer: the two least samples agree, and while the
 * least one was taken no thread waited for a processor that others had. Samples that are shorter
 * than a scheduler's time slice often fit into one; of a longer sample, what its unluckiest thread
 * has waited is taken off, which is closer to the truth, but not clean.
 *
 * Where a backend captures, a context will replay its launches, so that is what is timed: a graph
 * of some launches, one behind the other, each with other constants. What the host does for a
 * launch is not in it.
 *
 * A candidate that fails is only that: it is refused (UNIMPLEMENTED), the others go on. Errors of
 * the device end the tuning.
 */
#include "base/compiler.h"
#include "engine/tune/bench.h"

enum {
    SAMPLES_MIN = 3,
    SAMPLES_MAX = 16,
    SAMPLE_NS = 50000, /* launches are repeated until a sample is at least this long */
    REPEATS_MAX = 64,
    GRAPH_NS = 150000, /* the same of a graph: its start must not show */
    GRAPH_REPEATS_MIN = 4,
    GRAPH_LAUNCH_NS = 12000, /* what a lone launch may take on top of its kernel */
    GRAPH_SAMPLES_MAX = 8,
    BUDGET_NS = 60000000, /* of a round, once it has SAMPLES_MIN */
    STEADY_PART = 30,     /* the two least samples differ by less than this part */
    SLOW_NUM = 3,         /* slower than the best by 3/2: SAMPLES_MIN will do */
    SLOW_DEN = 2,
    HOPELESS_FACTOR = 8, /* slower than the best by this: one will do */
    GRAPH_HOPELESS_FACTOR = 3,
    ROUGH_PART = 4,     /* of the slow the two least need not agree better */
    CHUNK_NS = 1000000, /* so much is run before waits are asked for: that costs microseconds */
    WAITED_PART = 32,   /* a chunk is clean if less than this part of it was waited */
};

/* Puts some work onto the stream, between the two events. */
struct work {
    struct backend_op *op;       /* launched `repeats` times, */
    struct backend_graph *graph; /* or a graph that holds as many launches */
    uint32_t repeats;
};

static enum status launch(struct tune_bench *b, struct backend_op *op, uint32_t repeats,
                          struct error *err)
{
    for (uint32_t i = 0; i < repeats; i++) {
        bench_turn_pool(b);
        TRY(b->backend->op_launch(op, b->stream, b->inputs, b->outputs,
                                  b->slots[BENCH_WORKSPACE].memory, err));
    }
    return STATUS_OK;
}

/* What the samples of a round have shown so far; UINT64_MAX: nothing. */
struct round {
    uint64_t least, second, clean; /* of one launch; `clean`: the least of clean chunks */
    uint64_t spent;                /* on all samples */
    struct chunk {
        uint64_t ns, least; /* all of it; of one launch */
        uint32_t samples;
    } chunk;        /* since waits were last asked for */
    uint64_t guess; /* the last sample without its waits; one alone may have waited outside of it */
    bool careful;   /* after each sample: something was waited for */
};

static const struct round no_round = {.least = UINT64_MAX,
                                      .second = UINT64_MAX,
                                      .clean = UINT64_MAX,
                                      .chunk.least = UINT64_MAX,
                                      .guess = UINT64_MAX};

static uint64_t longest_wait(struct tune_bench *b)
{
    return b->backend->longest_wait ? b->backend->longest_wait(b->stream) : 0;
}

static bool is_blind(const struct tune_bench *b)
{
    return !b->backend->longest_wait;
}

static uint64_t end_chunk(struct tune_bench *b, struct round *r)
{
    uint64_t waited = longest_wait(b);
    if (waited <= r->chunk.ns / WAITED_PART)
        r->clean = MIN(r->clean, r->chunk.least);
    r->chunk = no_round.chunk;
    return waited;
}

static void add_sample(struct tune_bench *b, struct round *r, uint64_t total, uint64_t ns)
{
    bool alone = r->chunk.samples == 0;
    r->spent += total;
    r->chunk.samples++;
    r->chunk.ns += total;
    r->chunk.least = MIN(r->chunk.least, ns);
    if (r->careful || r->chunk.ns >= CHUNK_NS) {
        uint64_t waited = end_chunk(b, r);
        if (alone && waited > total / WAITED_PART && waited < total) {
            uint64_t guess = (uint64_t)((double)ns * (double)(total - waited) / (double)total);
            ns = MIN(ns, MAX(guess, r->guess));
            r->guess = guess;
        }
    }
    r->second = MIN(r->second, MAX(r->least, ns));
    r->least = MIN(r->least, ns);
}

/* Nanoseconds of all launches together. */
static enum status run(struct tune_bench *b, const struct work *work, uint64_t *out,
                       struct error *err)
{
    const struct backend *backend = b->backend;
    uint64_t total = 0;
    enum status status = backend->event_record(b->begin, b->stream, err);
    if (!status && work->graph)
        status = backend->graph_launch(work->graph, b->stream, err);
    else if (!status)
        status = launch(b, work->op, work->repeats, err);
    if (status) {
        bench_settle(b, NULL); /* what has begun still uses the buffers */
        return status;
    }
    status = bench_settle(b, err);
    if (!status)
        status = backend->event_wait(b->begin, err);
    if (!status)
        status = backend->event_elapsed(b->begin, b->end, &total, err);
    *out = MAX(total, work->repeats);
    return status;
}

static enum status sample(struct tune_bench *b, const struct work *work, struct round *r,
                          struct error *err)
{
    uint64_t total;
    if (r->chunk.samples == 0)
        longest_wait(b); /* what was waited before is not this one's */
    TRY(run(b, work, &total, err));
    add_sample(b, r, total, total / work->repeats);
    return STATUS_OK;
}

static bool agree(const struct round *r, uint32_t part)
{
    return r->second - r->least <= r->least / part;
}

static bool is_slow(const struct round *r, uint64_t best_ns)
{
    return best_ns && r->least / SLOW_NUM > best_ns / SLOW_DEN;
}

/* Whether the least is clean, as far as is known now. */
static bool is_clean(struct tune_bench *b, struct round *r)
{
    if (r->chunk.samples)
        end_chunk(b, r);
    r->careful = !tune_times_agree(r->least, r->clean);
    return !r->careful;
}

/* Much slower than the best, and not because of others. */
static bool is_hopeless(struct tune_bench *b, struct round *r, uint64_t best_ns)
{
    return best_ns && r->least / HOPELESS_FACTOR > best_ns && is_clean(b, r);
}

/* Whether another sample would tell nothing new: the least is believed once another one comes close
 * to it. */
static bool enough(struct tune_bench *b, struct round *r, uint64_t best_ns)
{
    return (is_slow(r, best_ns) || agree(r, STEADY_PART)) && is_clean(b, r);
}

/* `rough`: it is known well enough without a second sample that agrees. */
static struct tune_time end_round(struct tune_bench *b, struct round *r, uint64_t best_ns,
                                  bool rough)
{
    bool agreed = rough || agree(r, is_slow(r, best_ns) ? ROUGH_PART : STEADY_PART);
    return (struct tune_time){r->least, r->spent, is_clean(b, r) && agreed, is_blind(b)};
}

static enum status sample_launches(struct tune_bench *b, struct backend_op *op, uint64_t best_ns,
                                   bool once, struct tune_time *out, struct error *err)
{
    struct work work = {.op = op, .repeats = 1};
    struct round r = no_round;
    bool hopeless = false;
    TRY(sample(b, &work, &r, err)); /* warms up, but bounds it too */
    for (uint32_t i = 0; !once && i < SAMPLES_MAX; i++) {
        hopeless = is_hopeless(b, &r, best_ns);
        if (hopeless)
            break;
        work.repeats = (uint32_t)MIN(MAX(SAMPLE_NS / MAX(r.least, 1), 1), REPEATS_MAX);
        TRY(sample(b, &work, &r, err));
        if (i + 1 >= SAMPLES_MIN && (enough(b, &r, best_ns) || r.spent > BUDGET_NS))
            break;
    }
    *out = end_round(b, &r, best_ns, once || hopeless);
    out->clean = out->clean || once;
    return STATUS_OK;
}

static enum status capture(struct tune_bench *b, struct backend_op *op, uint32_t repeats,
                           struct backend_graph **out, struct error *err)
{
    struct backend_graph *graph = NULL;
    enum status status = b->backend->capture_begin(b->stream, err);
    if (status)
        return status;
    status = launch(b, op, repeats, err);
    enum status ended = b->backend->capture_end(b->stream, &graph, status ? NULL : err);
    if (!status && !ended) {
        *out = graph;
        return STATUS_OK;
    }
    if (!ended)
        b->backend->graph_free(graph);
    return status ? status : ended;
}

static enum status sample_graph(struct tune_bench *b, const struct work *work, uint64_t best_ns,
                                struct tune_time *out, struct error *err)
{
    struct round r = no_round;
    uint64_t ns;
    TRY(run(b, work, &ns, err)); /* uploads the graph */
    for (uint32_t i = 0; i < GRAPH_SAMPLES_MAX; i++) {
        TRY(sample(b, work, &r, err));
        if (i + 1 >= SAMPLES_MIN && (enough(b, &r, best_ns) || r.spent > BUDGET_NS))
            break;
    }
    *out = end_round(b, &r, best_ns, false);
    return STATUS_OK;
}

static enum status sample_captured(struct tune_bench *b, struct backend_op *op, uint64_t best_ns,
                                   struct tune_time *out, struct error *err)
{
    struct work work = {.op = op, .repeats = 1};
    uint64_t ns = 0;
    TRY(run(b, &work, &ns, err)); /* loads what is loaded lazily */
    TRY(run(b, &work, &ns, err));
    uint64_t least = ns > GRAPH_LAUNCH_NS ? ns - GRAPH_LAUNCH_NS : 1;
    if (best_ns && least / GRAPH_HOPELESS_FACTOR > best_ns && longest_wait(b) <= ns / WAITED_PART) {
        *out = (struct tune_time){ns, ns, true, is_blind(b)};
        return STATUS_OK;
    }
    work.repeats = (uint32_t)MIN(MAX(GRAPH_NS / least, GRAPH_REPEATS_MIN), REPEATS_MAX);
    TRY(capture(b, op, work.repeats, &work.graph, err));
    enum status status = sample_graph(b, &work, best_ns, out, err);
    b->backend->graph_free(work.graph);
    return status;
}

/* What one candidate does wrong is no reason to end; a lost device is. */
static enum status judge(enum status status, const struct error *why, struct error *err)
{
    if (status == STATUS_OK)
        return status;
    if (err)
        *err = *why;
    return why->scope == ERROR_DEVICE ? status : STATUS_UNIMPLEMENTED;
}

enum status tune_bench_time(struct tune_bench *b, const struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once,
                            struct tune_time *out, struct error *err)
{
    struct backend_op *op = NULL;
    struct ir_graph *shaped;
    struct error why = {0};
    struct tune_time time;
    enum status status = tune_sample_shaped(sample, tactic, &shaped, err);
    if (status)
        return status;
    status = b->backend->op_prepare(b->stream, shaped, ir_node(shaped, 0), tactic, &op, &why);
    if (!status)
        status = bench_set_up(b, shaped, b->backend->op_workspace(op), &why);
    longest_wait(b);
    if (!status && b->backend->capture_begin && !once)
        status = sample_captured(b, op, best_ns, &time, &why);
    else if (!status)
        status = sample_launches(b, op, best_ns, once, &time, &why);
    if (op)
        b->backend->op_free(op);
    ir_graph_free(shaped);
    if (!status)
        *out = time;
    return judge(status, &why, err);
}

enum status tune_bench_workspace(struct tune_bench *b, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err)
{
    struct backend_op *op = NULL;
    TRY(b->backend->op_prepare(b->stream, graph, node, node->tactic, &op, err));
    *out = b->backend->op_workspace(op);
    b->backend->op_free(op);
    return STATUS_OK;
}
