/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing one candidate: the least of a few repetitions (what else runs on the machine can only make
 * it slower).
 *
 * Where a backend captures, a context will replay its launches, so that is what is timed: a graph
 * of some launches, one behind the other, each with other constants. What the host does for a
 * launch is not in it.
 *
 * A candidate that fails is only that: it is refused (UNIMPLEMENTED), the others go on. Errors of
 * the device end the tuning.
 */
#include "base/clock.h"
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
    BUDGET_NS = 60000000, /* of one candidate, once it has SAMPLES_MIN */
    STEADY_PART = 30,     /* the two least samples differ by less than this part */
    SLOW_NUM = 3,         /* slower than the best by 3/2: SAMPLES_MIN will do */
    SLOW_DEN = 2,
    HOPELESS_FACTOR = 8, /* slower than the best by this: one will do */
    GRAPH_HOPELESS_FACTOR = 3,
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
    enum status st = STATUS_OK;
    for (uint32_t i = 0; i < repeats && !st; i++) {
        bench_turn_pool(b);
        st = b->backend->op_launch(op, b->stream, b->inputs, b->outputs,
                                   b->slots[BENCH_WORKSPACE].memory, err);
    }
    return st;
}

/* Nanoseconds of one launch, as the mean of all. */
static enum status run(struct tune_bench *b, const struct work *work, uint64_t *ns,
                       struct error *err)
{
    const struct backend *backend = b->backend;
    uint64_t total = 0;
    enum status st = backend->event_record(b->begin, b->stream, err);
    if (!st && work->graph)
        st = backend->graph_launch(work->graph, b->stream, err);
    else if (!st)
        st = launch(b, work->op, work->repeats, err);
    if (st) {
        bench_settle(b, NULL); /* what has begun still uses the buffers */
        return st;
    }
    st = bench_settle(b, err);
    if (!st)
        st = backend->event_wait(b->begin, err);
    if (!st)
        st = backend->event_elapsed(b->begin, b->end, &total, err);
    *ns = MAX(total / work->repeats, 1);
    return st;
}

/* Whether another sample would tell nothing new: the least is believed once another one comes close
 * to it. */
static bool enough(uint64_t least, uint64_t second, uint64_t best_ns)
{
    bool slow = best_ns && least / SLOW_NUM > best_ns / SLOW_DEN;
    return slow || second - least <= least / STEADY_PART;
}

static enum status sample_launches(struct tune_bench *b, struct backend_op *op, uint64_t best_ns,
                                   bool once, uint64_t *out, struct error *err)
{
    struct work work = {.op = op, .repeats = 1};
    uint64_t least = 1, second = UINT64_MAX, ns = 0, begun = clock_now_ns();
    enum status st = run(b, &work, &least, err); /* the first one warms up, but bounds it too */
    for (uint32_t i = 0; !once && i < SAMPLES_MAX && !st; i++) {
        if (best_ns && least / HOPELESS_FACTOR > best_ns)
            break;
        work.repeats = (uint32_t)MIN(MAX(SAMPLE_NS / MAX(least, 1), 1), REPEATS_MAX);
        st = run(b, &work, &ns, err);
        second = MIN(second, MAX(least, ns));
        least = MIN(least, ns);
        if (i + 1 >= SAMPLES_MIN &&
            (enough(least, second, best_ns) || clock_now_ns() - begun > BUDGET_NS))
            break;
    }
    *out = least;
    return st;
}

static enum status capture(struct tune_bench *b, struct backend_op *op, uint32_t repeats,
                           struct backend_graph **out, struct error *err)
{
    struct backend_graph *graph = NULL;
    enum status st = b->backend->capture_begin(b->stream, err);
    if (st)
        return st;
    st = launch(b, op, repeats, err);
    enum status ended = b->backend->capture_end(b->stream, &graph, st ? NULL : err);
    if (!st && !ended) {
        *out = graph;
        return STATUS_OK;
    }
    if (!ended)
        b->backend->graph_free(graph);
    return st ? st : ended;
}

static enum status sample_graph(struct tune_bench *b, const struct work *work, uint64_t best_ns,
                                uint64_t *out, struct error *err)
{
    uint64_t least = UINT64_MAX, second = UINT64_MAX, ns, begun = clock_now_ns();
    enum status st = run(b, work, &ns, err); /* uploads the graph */
    for (uint32_t i = 0; i < GRAPH_SAMPLES_MAX && !st; i++) {
        st = run(b, work, &ns, err);
        second = MIN(second, MAX(least, ns));
        least = MIN(least, ns);
        if (i + 1 >= SAMPLES_MIN &&
            (enough(least, second, best_ns) || clock_now_ns() - begun > BUDGET_NS))
            break;
    }
    *out = least;
    return st;
}

static enum status sample_captured(struct tune_bench *b, struct backend_op *op, uint64_t best_ns,
                                   uint64_t *out, struct error *err)
{
    struct work work = {.op = op, .repeats = 1};
    uint64_t ns = 0;
    enum status st = run(b, &work, &ns, err); /* loads what is loaded lazily */
    if (!st)
        st = run(b, &work, &ns, err);
    uint64_t least = ns > GRAPH_LAUNCH_NS ? ns - GRAPH_LAUNCH_NS : 1;
    if (st || (best_ns && least / GRAPH_HOPELESS_FACTOR > best_ns)) {
        *out = ns;
        return st;
    }
    work.repeats = (uint32_t)MIN(MAX(GRAPH_NS / least, GRAPH_REPEATS_MIN), REPEATS_MAX);
    st = capture(b, op, work.repeats, &work.graph, err);
    if (st)
        return st;
    st = sample_graph(b, &work, best_ns, out, err);
    b->backend->graph_free(work.graph);
    return st;
}

/* What one candidate does wrong is no reason to end; a lost device is. */
static enum status judge(enum status st, const struct error *why, struct error *err)
{
    if (st == STATUS_OK)
        return st;
    if (err)
        *err = *why;
    return why->scope == ERROR_DEVICE ? st : STATUS_UNIMPLEMENTED;
}

enum status tune_bench_time(struct tune_bench *b, const struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once, uint64_t *out,
                            struct error *err)
{
    struct backend_op *op = NULL;
    struct ir_graph *shaped;
    struct error why = {0};
    uint64_t ns = 0;
    enum status st = tune_sample_shaped(sample, tactic, &shaped, err);
    if (st)
        return st;
    st = b->backend->op_prepare(b->stream, shaped, ir_node(shaped, 0), tactic, &op, &why);
    if (!st)
        st = bench_set_up(b, shaped, b->backend->op_workspace(op), &why);
    if (!st && b->backend->capture_begin && !once)
        st = sample_captured(b, op, best_ns, &ns, &why);
    else if (!st)
        st = sample_launches(b, op, best_ns, once, &ns, &why);
    if (op)
        b->backend->op_free(op);
    ir_graph_free(shaped);
    if (!st)
        *out = ns;
    return judge(st, &why, err);
}

enum status tune_bench_workspace(struct tune_bench *b, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err)
{
    struct backend_op *op = NULL;
    enum status st = b->backend->op_prepare(b->stream, graph, node, node->tactic, &op, err);
    if (st)
        return st;
    *out = b->backend->op_workspace(op);
    b->backend->op_free(op);
    return STATUS_OK;
}
