/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing one candidate, in one round: its time is the least of a few samples, because other work on
 * the machine can only make a sample longer.
 *
 * A round is clean if nothing speaks against its answer: the two least samples agree, and no thread
 * waited for a processor while the least sample was taken. Before each sample the threads that run
 * the op are gathered (op_gather), so that a sample does not show how long they take to wake up; if
 * they do not come together, it is not clean. Samples that are shorter than a scheduler's time
 * slice often pass without a wait. From a longer sample the wait of its unluckiest thread is
 * subtracted, which is closer to the truth, but not clean.
 *
 * Where a backend captures, a context will replay captured launches, so these are timed: a graph of
 * some launches, one behind the other, each with other constants. The host's work for a launch is
 * not part of such a time.
 *
 * A candidate that fails is refused (UNIMPLEMENTED), and the others go on. Errors of the device end
 * the tuning.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/tune/bench.h"

enum {
    SAMPLES_MIN = 3,
    SAMPLES_MAX = 16,
    SAMPLE_NS = 50000, /* launches are repeated until a sample is at least this long */
    REPEATS_MAX = 64,
    GRAPH_NS = 100000, /* the same for a graph, which is longer so that its start does not count */
    GRAPH_REPEATS_MIN = 4,
    GRAPH_LAUNCH_NS = 12000, /* a lone launch may take this much longer than its kernel */
    GRAPH_SAMPLES_MAX = 8,
    BUDGET_NS = 60000000, /* a round that has SAMPLES_MIN ends after this time */
    STEADY_PART = 30,     /* the two least samples agree if they differ by less than 1/30 */
    SLOW_NUM = 3,         /* slower than the best by 3/2: SAMPLES_MIN are enough */
    SLOW_DEN = 2,
    HOPELESS_FACTOR = 8,      /* slower than the best by this factor: one sample is enough */
    LONG_NS = 20000000,       /* of launches of so long, two that agree are enough; */
    LONG_HOPELESS_FACTOR = 3, /* or one: no first touch of memory takes the rest */
    GRAPH_HOPELESS_FACTOR = 3,
    GRAPH_LONG_NS = 100000, /* a launch of which says enough of its time to be SLOW */
    ROUGH_PART = 4,         /* as STEADY_PART, for a slow candidate */
    GRAPH_BEHIND_PART = 8,  /* slower than the best by this part: two samples are enough */
    CHUNK_NS = 1000000, /* samples run this long between two calls of longest_wait, which is slow */
    GATHERINGS = 3,
    GATHER_NS = 100000, /* threads that need not wait for processors gather in less */
    WAITED_PART = 32,   /* a chunk is clean if its waits are less than 1/32 of it */
};

/* What one sample puts onto the stream, between the two events. */
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

/* What the samples of a round have shown so far; UINT64_MAX: nothing yet. Times are of one launch,
 * if the label does not say otherwise. */
struct round {
    uint64_t least, second;
    uint64_t clean; /* the least time in clean chunks */
    uint64_t spent; /* on all samples together, and on gathering */
    struct chunk {
        uint64_t ns; /* of all its samples together */
        uint64_t least;
        uint32_t samples;
        bool apart; /* a sample was taken while the op's threads were not all on processors */
    } chunk;        /* the samples since the last call of longest_wait */
    uint64_t guess; /* the last sample less its waits, some of which may have been outside of it */
    bool careful;   /* the chunk ends after each sample, because the least time is not clean */
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
    if (waited <= r->chunk.ns / WAITED_PART && !r->chunk.apart)
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

static enum status start(struct tune_bench *b, const struct work *work, struct error *err)
{
    TRY(b->backend->event_record(b->begin, b->stream, err));
    return work->graph ? b->backend->graph_launch(work->graph, b->stream, err)
                       : launch(b, work->op, work->repeats, err);
}

/* *out: nanoseconds of all launches together. */
static enum status run(struct tune_bench *b, const struct work *work, uint64_t *out,
                       struct error *err)
{
    const struct backend *backend = b->backend;
    uint64_t total = 0;
    enum status status = start(b, work, err);
    if (status) {
        bench_settle(b, NULL); /* launches that have begun still use the buffers */
        return status;
    }
    TRY(bench_settle(b, err));
    TRY(backend->event_wait(b->begin, err));
    TRY(backend->event_elapsed(b->begin, b->end, &total, err));
    *out = MAX(total, work->repeats);
    return STATUS_OK;
}

/* Gathering that takes long has waits of its own, which are no sample's: they are forgotten, and
 * the threads, which have only just run, gather once more. */
static bool gather_op(struct tune_bench *b, struct backend_op *op)
{
    for (uint32_t i = 0; i < GATHERINGS; i++) {
        uint64_t begin = clock_now_ns();
        if (!b->backend->op_gather(op, b->stream))
            return false;
        if (clock_now_ns() - begin < GATHER_NS)
            return true;
        longest_wait(b);
    }
    return true;
}

static void gather(struct tune_bench *b, const struct work *work, struct round *r)
{
    if (!b->backend->op_gather || work->graph)
        return;
    uint64_t begin = clock_now_ns();
    if (!gather_op(b, work->op))
        r->chunk.apart = true;
    r->spent += clock_now_ns() - begin;
}

static enum status sample(struct tune_bench *b, const struct work *work, struct round *r,
                          struct error *err)
{
    uint64_t total;
    if (r->chunk.samples == 0)
        longest_wait(b); /* forgets the waits before this chunk */
    gather(b, work, r);
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

/* Ends the chunk, and says whether the least time is confirmed by a clean one. */
static bool is_clean(struct tune_bench *b, struct round *r)
{
    if (r->chunk.samples)
        end_chunk(b, r);
    r->careful = !tune_times_agree(r->least, r->clean);
    return !r->careful;
}

/* Whether a launch is so long that whatever disturbs it is a small part of it, or is noticed. */
static bool is_long(const struct round *r)
{
    return r->least > LONG_NS;
}

/* Whether the candidate is much slower than the best, and not because of other work. */
static bool is_hopeless(struct tune_bench *b, struct round *r, uint64_t best_ns)
{
    uint64_t factor = is_long(r) ? LONG_HOPELESS_FACTOR : HOPELESS_FACTOR;
    return best_ns && r->least / factor > best_ns && is_clean(b, r);
}

/* Whether another sample would tell nothing new: the least time is believed once another sample
 * comes close to it. */
static bool enough(struct tune_bench *b, struct round *r, uint64_t best_ns)
{
    return (is_slow(r, best_ns) || agree(r, STEADY_PART)) && is_clean(b, r);
}

/* `rough`: the time is known well enough without a second sample that agrees. */
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
    TRY(sample(b, &work, &r, err)); /* warms up; its time counts all the same */
    for (uint32_t i = 0; !once && i < SAMPLES_MAX; i++) {
        hopeless = is_hopeless(b, &r, best_ns);
        if (hopeless)
            break;
        work.repeats = (uint32_t)MIN(MAX(SAMPLE_NS / MAX(r.least, 1), 1), REPEATS_MAX);
        TRY(sample(b, &work, &r, err));
        bool least = i + 1 >= SAMPLES_MIN;
        if ((least || is_long(&r)) && (enough(b, &r, best_ns) || (least && r.spent > BUDGET_NS)))
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
    TRY(b->backend->capture_begin(b->stream, err));
    enum status status = launch(b, op, repeats, err);
    enum status end_status = b->backend->capture_end(b->stream, &graph, status ? NULL : err);
    if (!status && !end_status) {
        *out = graph;
        return STATUS_OK;
    }
    if (!end_status)
        b->backend->graph_free(graph);
    return status ? status : end_status;
}

/* Whether two samples of a graph, in which the host has no part, say well enough that the candidate
 * is not the best. */
static bool is_behind(struct tune_bench *b, struct round *r, uint64_t best_ns)
{
    bool behind = best_ns && r->least - r->least / GRAPH_BEHIND_PART > best_ns;
    return behind && agree(r, is_slow(r, best_ns) ? ROUGH_PART : STEADY_PART) && is_clean(b, r);
}

static enum status sample_graph(struct tune_bench *b, const struct work *work, uint64_t best_ns,
                                struct tune_time *out, struct error *err)
{
    struct round r = no_round;
    uint64_t ns;
    TRY(run(b, work, &ns, err)); /* uploads the graph */
    for (uint32_t i = 0; i < GRAPH_SAMPLES_MAX; i++) {
        TRY(sample(b, work, &r, err));
        if ((i == 1 && is_behind(b, &r, best_ns)) ||
            (i + 1 >= SAMPLES_MIN && (enough(b, &r, best_ns) || r.spent > BUDGET_NS)))
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
    TRY(run(b, &work, &ns, err)); /* libraries load kernels at their first launch */
    TRY(run(b, &work, &ns, err));
    uint64_t least = ns > GRAPH_LAUNCH_NS ? ns - GRAPH_LAUNCH_NS : 1;
    bool hopeless = best_ns && (least / GRAPH_HOPELESS_FACTOR > best_ns ||
                                (least > GRAPH_LONG_NS && least / SLOW_NUM > best_ns / SLOW_DEN));
    if (hopeless && longest_wait(b) <= ns / WAITED_PART) {
        *out = (struct tune_time){ns, ns, true, is_blind(b)};
        return STATUS_OK;
    }
    work.repeats = (uint32_t)MIN(MAX(GRAPH_NS / least, GRAPH_REPEATS_MIN), REPEATS_MAX);
    TRY(capture(b, op, work.repeats, &work.graph, err));
    enum status status = sample_graph(b, &work, best_ns, out, err);
    b->backend->graph_free(work.graph);
    return status;
}

/* A failure of one candidate is no reason to end the tuning; a lost device is. */
static enum status judge(enum status status, const struct error *why, struct error *err)
{
    if (!status)
        return STATUS_OK;
    if (err)
        *err = *why;
    return why->scope == ERROR_DEVICE ? status : STATUS_UNIMPLEMENTED;
}

static enum status time_op(struct tune_bench *b, const struct ir_graph *shaped,
                           struct backend_op *op, uint64_t best_ns, bool once,
                           struct tune_time *out, struct error *err)
{
    TRY(bench_set_up(b, shaped, b->backend->op_workspace(op), err));
    longest_wait(b);
    return b->backend->capture_begin && !once ? sample_captured(b, op, best_ns, out, err)
                                              : sample_launches(b, op, best_ns, once, out, err);
}

static enum status time_shaped(struct tune_bench *b, const struct ir_graph *shaped,
                               const struct tactic *tactic, uint64_t best_ns, bool once,
                               struct tune_time *out, struct error *err)
{
    struct backend_op *op = NULL;
    TRY(b->backend->op_prepare(b->stream, shaped, ir_node(shaped, 0), tactic, &op, err));
    enum status status = time_op(b, shaped, op, best_ns, once, out, err);
    b->backend->op_free(op);
    return status;
}

enum status tune_bench_time(struct tune_bench *b, const struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once,
                            struct tune_time *out, struct error *err)
{
    struct ir_graph *shaped;
    struct error why = {0};
    TRY(tune_sample_shaped(sample, tactic, &shaped, err));
    enum status status = time_shaped(b, shaped, tactic, best_ns, once, out, &why);
    ir_graph_free(shaped);
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
