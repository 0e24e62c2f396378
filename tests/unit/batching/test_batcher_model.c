/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random sequences of events against a model of the rules: plain arrays, everything recomputed from
 * the rules' text at every step, nothing shared with the implementation. The model does not predict
 * a decision (several may be equally good) but judges each one, then follows it.
 *
 * A failure prints the seed of its sequence; `test_batcher_model SEED` runs that one alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "batching/batcher.h"
#include "tests/test.h"

enum {
    SEQUENCES = 120000,
    EVENTS = 40,
    LONG = 256, /* one sequence of this many has LONG_EVENTS events */
    LONG_EVENTS = 500,
    MODELS = 3,
    WORKERS = 3,
    KEYS = 3,
    FLOWS = 4,
    ITEMS = 320,  /* in one sequence, at most */
    LONGEST = 20, /* every batch takes less time */
    UNIT = 4096,  /* what an instance adds to a flow's clock */
    SHARE = 16,   /* one batch or place of this many goes to a worse priority */
};

enum fate { UNUSED_YET, QUEUED, RAN, EXPIRED, CANCELLED, REFUSED, EVICTED };

struct world {
    struct batcher *batcher;
    struct batcher_model *model[MODELS];
    struct batcher_model_config config[MODELS];
    bool draining[MODELS];
    bool idle[WORKERS];
    uint32_t batch[WORKERS]; /* its instances; 0: none */
    uint64_t now;            /* the latest the batcher has seen */
    uint32_t used;
    struct batcher_item item[ITEMS];
    uint32_t of[ITEMS];    /* the model's index */
    uint64_t start[ITEMS]; /* its turn */
    uint64_t front[ITEMS]; /* since when it is the first of its flow */
    uint64_t clock[MODELS][BATCHER_PRIORITIES];
    uint64_t served[MODELS][BATCHER_PRIORITIES][FLOWS]; /* where what ran ended */
    /* batches in a row that passed over the first item of each priority */
    uint32_t passed[MODELS][BATCHER_PRIORITIES];
    enum fate fate[ITEMS];
    uint32_t answers[ITEMS];
    uint64_t ran[MODELS], expired[MODELS], refused[MODELS];
    uint64_t early; /* expired items that left before their deadlines */
    bool is_long;   /* has LONG_EVENTS events, mostly for one model */
};

static uint64_t seed, rng;
static struct {
    uint64_t early, evicted, evicted_better, overtakes, leads; /* how often a rule was looked at */
} seen;

static uint32_t roll(uint32_t n) /* 0..n-1 */
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)((rng >> 11) % n);
}

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("seed %llu: %s\n", (unsigned long long)seed, #cond);                       \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

/* --- the rules, over arrays --- */

static bool waits(const struct world *w, uint32_t i, uint32_t m, uint64_t key)
{
    return w->fate[i] == QUEUED && w->of[i] == m && w->item[i].shape_key == key;
}

static uint64_t saturate(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t total_of(const struct world *w, uint32_t m, uint64_t key)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < w->used; i++)
        total += waits(w, i, m, key) ? w->item[i].instances : 0;
    return total;
}

/* The size at which a batch of `total` instances is cut. `reached`: a preferred size has been
 * reached. */
static uint32_t cut_of(const struct world *w, uint32_t m, uint64_t total, bool *reached)
{
    const struct batcher_model_config *c = &w->config[m];
    uint32_t cut = c->max_batch;
    *reached = total >= c->max_batch;
    for (uint32_t i = 0; i < c->n_preferred && !(total >= c->max_batch); i++) {
        if (total >= c->preferred[i]) {
            *reached = true;
            cut = c->preferred[i];
        }
    }
    return cut;
}

/* When the requests of a key may go: `now` if they may; BATCHER_NEVER if there are none. */
static uint64_t due_of(const struct world *w, uint32_t m, uint64_t key)
{
    uint64_t due = BATCHER_NEVER, delay = w->config[m].max_delay_ns;
    bool reached, any = false, hurry = w->draining[m] || delay == 0;
    cut_of(w, m, total_of(w, m, key), &reached);
    for (uint32_t i = 0; i < w->used; i++) {
        if (!waits(w, i, m, key))
            continue;
        uint64_t own = saturate(w->item[i].arrival_ns, delay);
        any = true;
        due = MIN(due, own);
        if (w->item[i].deadline_ns != BATCHER_NEVER && w->item[i].deadline_ns <= own)
            hurry = true;
    }
    if (!any)
        return BATCHER_NEVER;
    return hurry || reached || due <= w->now ? w->now : due;
}

static bool may_go(const struct world *w, uint32_t m, uint64_t key)
{
    return total_of(w, m, key) > 0 && due_of(w, m, key) <= w->now;
}

/* --- flows --- */

static bool same_lane(const struct world *w, uint32_t a, uint32_t b)
{
    return w->of[a] == w->of[b] && w->item[a].priority == w->item[b].priority &&
           w->item[a].flow == w->item[b].flow;
}

/* The first and the last queued item of the flow, model and priority of item `i`; ITEMS: none. */
static uint32_t lane_first(const struct world *w, uint32_t i)
{
    for (uint32_t o = 0; o < w->used; o++) {
        if (w->fate[o] == QUEUED && same_lane(w, i, o))
            return o;
    }
    return ITEMS;
}

static uint32_t lane_last(const struct world *w, uint32_t i)
{
    for (uint32_t o = w->used; o-- > 0;) {
        if (w->fate[o] == QUEUED && same_lane(w, i, o))
            return o;
    }
    return ITEMS;
}

static uint64_t end_of(const struct world *w, uint32_t i)
{
    return w->start[i] + (uint64_t)w->item[i].instances * UNIT;
}

/* A request starts where the one before it ends, but not before the clock. */
static void start(struct world *w, uint32_t i)
{
    uint32_t m = w->of[i], p = w->item[i].priority, last = lane_last(w, i);
    uint64_t end = last < ITEMS ? end_of(w, last) : w->served[m][p][w->item[i].flow];
    w->start[i] = MAX(end, w->clock[m][p]);
    w->front[i] = w->now;
}

/* Item `i` is served: the clocks of its flow and priority go on. It still counts as waiting. */
static void serve(struct world *w, uint32_t i)
{
    uint32_t m = w->of[i], p = w->item[i].priority, flows = 0;
    for (uint32_t o = 0; o < w->used; o++) {
        bool here = w->fate[o] == QUEUED && w->of[o] == m && w->item[o].priority == p;
        flows += here && lane_first(w, o) == o;
    }
    uint64_t *served = &w->served[m][p][w->item[i].flow];
    *served = MAX(*served, end_of(w, i));
    uint64_t each = ((uint64_t)w->item[i].instances * UNIT + flows - 1) / flows;
    w->clock[m][p] = MAX(w->clock[m][p], w->start[i]) + each;
}

/* --- turns --- */

/* Whether one item goes before another: the better priority wins, then the earlier start, then the
 * earlier submission. */
static bool before(const struct world *w, uint32_t a, uint32_t b)
{
    if (w->item[a].priority != w->item[b].priority)
        return w->item[a].priority < w->item[b].priority;
    return w->start[a] < w->start[b] || (w->start[a] == w->start[b] && a < b);
}

/* The first item of priority `p` among the keys that may go. */
static uint32_t first_of(const struct world *w, uint32_t m, uint32_t p)
{
    uint32_t first = ITEMS;
    for (uint64_t k = 0; k < KEYS; k++) {
        if (!may_go(w, m, k))
            continue;
        for (uint32_t i = 0; i < w->used; i++) {
            if (waits(w, i, m, k) && w->item[i].priority == p &&
                (first == ITEMS || before(w, i, first)))
                first = i;
        }
    }
    return first;
}

/* The item that leads the model's next batch: the best one, or a worse one that was passed over too
 * often. */
static uint32_t lead_of(const struct world *w, uint32_t m)
{
    uint32_t lead = ITEMS;
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++) {
        uint32_t first = first_of(w, m, p);
        if (first < ITEMS && p > 0 && lead < ITEMS && w->passed[m][p] >= SHARE - 1)
            return first;
        if (lead == ITEMS)
            lead = first;
    }
    return lead;
}

/* The batch that item `lead` heads, in order. Returns the number of items. */
static uint32_t batch_of(const struct world *w, uint32_t lead, uint32_t out[ITEMS])
{
    bool taken[ITEMS] = {0}, reached;
    uint32_t m = w->of[lead], n = 0, instances = 0, best = lead;
    uint64_t key = w->item[lead].shape_key;
    uint32_t cut = cut_of(w, m, total_of(w, m, key), &reached);
    for (;;) {
        for (uint32_t i = 0; i < w->used && n > 0; i++) {
            if (waits(w, i, m, key) && !taken[i] && (best == ITEMS || before(w, i, best)))
                best = i;
        }
        if (best == ITEMS || (n > 0 && instances + w->item[best].instances > cut))
            return n;
        taken[best] = true;
        instances += w->item[best].instances;
        out[n++] = best;
        best = ITEMS;
    }
}

/* --- places --- */

/* How many requests of the flow wait in that model with priority `p` or worse. */
static uint32_t places_of(const struct world *w, uint32_t m, uint64_t flow, uint32_t p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->used; i++)
        n += w->fate[i] == QUEUED && w->of[i] == m && w->item[i].flow == flow &&
             w->item[i].priority >= p;
    return n;
}

/* Whether item `i` may take the place of item `o`, if priorities from `p` on are compared. */
static bool may_push(const struct world *w, uint32_t i, uint32_t o, uint32_t p)
{
    uint32_t m = w->of[i], theirs = places_of(w, m, w->item[o].flow, p);
    if (w->fate[o] != QUEUED || w->of[o] != m || theirs < places_of(w, m, w->item[i].flow, p) + 2)
        return false;
    for (uint64_t f = 0; f < FLOWS; f++) {
        if (places_of(w, m, f, p) > theirs)
            return false;
    }
    for (uint32_t k = 0; k < w->used; k++) { /* the newest of the worst */
        if (w->fate[k] == QUEUED && w->of[k] == m && w->item[k].flow == w->item[o].flow &&
            (w->item[k].priority > w->item[o].priority ||
             (w->item[k].priority == w->item[o].priority && k > o)))
            return false;
    }
    return true;
}

static bool may_push_any(const struct world *w, uint32_t i, uint32_t p)
{
    for (uint32_t o = 0; o < w->used; o++) {
        if (may_push(w, i, o, p))
            return true;
    }
    return false;
}

/* The priority from which on places are compared; BATCHER_PRIORITIES: the item finds no place. */
static uint32_t push_level(const struct world *w, uint32_t i)
{
    uint32_t m = w->of[i], p = w->item[i].priority, all = 0;
    if (may_push_any(w, i, p))
        return p;
    for (uint64_t f = 0; f < FLOWS; f++)
        all += places_of(w, m, f, p);
    if (all < MAX(w->config[m].queue_limit / SHARE, 1U) && may_push_any(w, i, 0))
        return 0;
    return BATCHER_PRIORITIES;
}

static bool any_idle(const struct world *w)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (w->idle[i])
            return true;
    }
    return false;
}

/* --- judging a decision --- */

static uint32_t index_of(const struct world *w, const struct batcher_item *item)
{
    CHECK(item >= w->item && item < w->item + w->used, "an item that was never submitted");
    return (uint32_t)(item - w->item);
}

static void answer(struct world *w, uint32_t i, enum fate fate)
{
    CHECK(w->fate[i] == QUEUED, "item %u: answered in state %d", i, (int)w->fate[i]);
    CHECK(w->item[i].model == NULL, "item %u: left but still has a model", i);
    bool first = lane_first(w, i) == i;
    w->fate[i] = fate;
    w->answers[i]++;
    uint32_t next = lane_first(w, i);
    if (first && next < ITEMS)
        w->front[next] = w->now;
}

static void judge_expired(struct world *w, const struct batcher_decision *d)
{
    for (const struct batcher_item *item = d->expired; item; item = item->next) {
        uint32_t i = index_of(w, item), m = w->of[i];
        answer(w, i, EXPIRED);
        w->expired[m]++;
        if (item->deadline_ns <= w->now)
            continue;
        /* Dropped early: at the usual pace it would be late, and others can have its place. */
        uint64_t left = total_of(w, m, item->shape_key);
        CHECK(item->deadline_ns < w->now + 3 * LONGEST, "item %u: deadline %llu at %llu", i,
              (unsigned long long)item->deadline_ns, (unsigned long long)w->now);
        CHECK(left >= w->config[m].max_batch, "item %u: expired early, and %llu others wait", i,
              (unsigned long long)left);
        w->early++;
    }
}

static uint64_t turn_of(const struct world *w, uint32_t lead)
{
    return saturate(w->front[lead], w->config[w->of[lead]].max_delay_ns);
}

/* No other model had a better right to run. */
static void judge_turn(const struct world *w, uint32_t lead)
{
    for (uint32_t o = 0; o < MODELS; o++) {
        uint32_t other = lead_of(w, o);
        if (other < ITEMS)
            CHECK(turn_of(w, lead) <= turn_of(w, other), "model %u went before model %u",
                  w->of[lead], o);
    }
}

/* A batch was formed. `first` are the items that could lead it, one of each priority. */
static void count_passed(struct world *w, uint32_t m, const uint32_t first[BATCHER_PRIORITIES])
{
    for (uint32_t p = 1; p < BATCHER_PRIORITIES; p++) {
        uint32_t waiting = 0;
        for (uint32_t i = 0; i < w->used; i++)
            waiting += w->fate[i] == QUEUED && w->of[i] == m && w->item[i].priority == p;
        if (first[p] < ITEMS && w->fate[first[p]] == QUEUED)
            w->passed[m][p]++;
        else if (first[p] < ITEMS || waiting == 0)
            w->passed[m][p] = 0;
    }
}

static void judge_batch(struct world *w, const struct batcher_decision *d)
{
    uint32_t want[ITEMS], first[BATCHER_PRIORITIES], n = 0, instances = 0;
    uint32_t m = w->of[index_of(w, d->batch)], lead = lead_of(w, m);
    CHECK(d->model == w->model[m], "a batch of another model");
    CHECK(d->worker < WORKERS && w->idle[d->worker], "worker %u is not idle", d->worker);
    CHECK(may_go(w, m, d->batch->shape_key), "model %u, key %u should wait for others", m,
          (unsigned)d->batch->shape_key);
    CHECK(lead < ITEMS, "nobody of model %u could go", m);
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++)
        first[p] = first_of(w, m, p);
    for (uint32_t p = 0; p < w->item[lead].priority; p++)
        seen.leads += first[p] < ITEMS;
    judge_turn(w, lead);
    uint32_t n_want = batch_of(w, lead, want);
    for (const struct batcher_item *item = d->batch; item; item = item->next) {
        uint32_t i = index_of(w, item);
        CHECK(n < n_want && want[n] == i, "place %u: item %u", n, i);
        CHECK(item->deadline_ns > w->now, "item %u ran after its deadline", i);
        instances += item->instances;
        n++;
    }
    CHECK(n == n_want, "%u items where %u should go", n, n_want);
    CHECK(instances == d->instances, "%u counted, %u said", instances, d->instances);
    CHECK(n == 1 || instances <= w->config[m].max_batch, "%u instances, at most %u", instances,
          w->config[m].max_batch);
    for (uint32_t k = 0; k < n; k++) {
        seen.overtakes += k > 0 && want[k] < want[k - 1];
        serve(w, want[k]);
        answer(w, want[k], RAN);
    }
    count_passed(w, m, first);
    w->ran[m] += instances;
    w->idle[d->worker] = false;
    w->batch[d->worker] = instances;
}

static bool step(struct world *w, uint64_t now)
{
    struct batcher_decision d;
    bool could = any_idle(w);
    w->now = MAX(w->now, now);
    batcher_step(w->batcher, now, &d);
    CHECK(could || (!d.model && !d.expired), "a decision without an idle worker");
    judge_expired(w, &d);
    if (d.model)
        judge_batch(w, &d);
    else
        CHECK(!d.batch, "a batch of no model");
    uint64_t wake = BATCHER_NEVER;
    for (uint32_t m = 0; m < MODELS && any_idle(w); m++) {
        for (uint64_t k = 0; k < KEYS; k++)
            wake = MIN(wake, due_of(w, m, k));
    }
    if (could && !d.model)
        CHECK(wake > w->now, "somebody may go, a worker is idle, and nothing is done");
    CHECK(d.wake_ns == wake, "wakes at %llu, should at %llu", (unsigned long long)d.wake_ns,
          (unsigned long long)wake);
    return d.model != NULL;
}

/* --- events --- */

static struct batcher_model_config random_config(void)
{
    static const uint64_t delays[] = {0, 1, 5, 20, BATCHER_NEVER};
    struct batcher_model_config c = {.max_batch = 1 + roll(6),
                                     .max_delay_ns = delays[roll(ARRAY_LEN(delays))],
                                     .queue_limit = 1 + roll(12)};
    for (uint32_t size = 1; roll(3) == 0 && size <= c.max_batch; size += 1 + roll(2)) {
        c.preferred[c.n_preferred++] = size;
        if (c.n_preferred == BATCHER_MAX_PREFERRED)
            break;
    }
    return c;
}

static uint32_t queued(const struct world *w, uint32_t m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->used; i++)
        n += w->fate[i] == QUEUED && w->of[i] == m;
    return n;
}

/* Item `i` pushed out `evicted`. `level` is what push_level said while the queue was full. */
static void judge_evicted(struct world *w, uint32_t i, const struct batcher_item *evicted,
                          uint32_t level)
{
    uint32_t o = index_of(w, evicted);
    CHECK(level < BATCHER_PRIORITIES, "item %u was pushed out of a queue with room", o);
    CHECK(may_push(w, i, o, level), "item %u had no right to the place of item %u", i, o);
    seen.evicted++;
    seen.evicted_better += w->item[o].priority < w->item[i].priority;
    answer(w, o, EVICTED);
    w->refused[w->of[o]]++;
}

static struct batcher_item random_item(const struct world *w, uint32_t m, uint64_t now)
{
    return (struct batcher_item){.instances = 1 + (roll(2) ? 0 : roll(w->config[m].max_batch + 1)),
                                 .priority = roll(3) ? 1 : roll(BATCHER_PRIORITIES + 1),
                                 .flow = roll(2) ? 0 : roll(FLOWS),
                                 .shape_key = roll(2) ? 0 : roll(KEYS),
                                 .deadline_ns = roll(4) ? BATCHER_NEVER : now + roll(30)};
}

static void event_submit(struct world *w, uint64_t now)
{
    uint32_t i = w->used, m = w->is_long && roll(16) ? 0 : roll(MODELS);
    uint32_t level = BATCHER_PRIORITIES;
    if (i == ITEMS)
        return;
    struct batcher_item *item = &w->item[i], *evicted = NULL;
    *item = random_item(w, m, now);
    w->of[i] = m;
    enum cause want = CAUSE_OK;
    if (item->instances > w->config[m].max_batch || item->priority >= BATCHER_PRIORITIES)
        want = CAUSE_INVALID_ARGUMENT;
    else if (w->draining[m])
        want = CAUSE_DRAINING;
    else if (queued(w, m) >= w->config[m].queue_limit &&
             (level = push_level(w, i)) == BATCHER_PRIORITIES)
        want = CAUSE_QUEUE_FULL;
    w->now = MAX(w->now, now);
    enum cause got = batcher_submit(w->model[m], item, now, &evicted);
    /* test_pace.c checks the delay itself; here only whether a refusal is allowed */
    if (item->late_ns) {
        CHECK(item->deadline_ns != BATCHER_NEVER && want == CAUSE_OK &&
                  (!any_idle(w) || queued(w, 0) + queued(w, 1) + queued(w, 2) > 0),
              "refused for its deadline, deadline %llu", (unsigned long long)item->deadline_ns);
        want = CAUSE_DEADLINE_HOPELESS;
    }
    CHECK(got == want, "submit says %s, not %s", cause_row(got)->name, cause_row(want)->name);
    CHECK((evicted != NULL) == (!got && level < BATCHER_PRIORITIES), "item %u pushes out %p", i,
          (void *)evicted);
    if (evicted)
        judge_evicted(w, i, evicted, level);
    w->used++;
    w->refused[m] += got && got != CAUSE_INVALID_ARGUMENT;
    if (!got)
        start(w, i);
    w->fate[i] = got ? REFUSED : QUEUED;
    CHECK((item->model != NULL) == !got, "item %u: model %p after %s", i, (void *)item->model,
          cause_row(got)->name);
    if (!got)
        CHECK(item->arrival_ns == w->now, "arrival %llu", (unsigned long long)item->arrival_ns);
}

static void event_cancel(struct world *w)
{
    if (w->used == 0)
        return;
    uint32_t i = roll(w->used);
    bool got = batcher_cancel(&w->item[i]);
    CHECK(got == (w->fate[i] == QUEUED), "cancel of item %u says %d", i, (int)got);
    if (got)
        answer(w, i, CANCELLED);
}

/* The worker's batch ends after any time; any part of it may have run. */
static void finish(struct world *w, uint32_t worker)
{
    if (w->batch[worker])
        batcher_worker_ran(w->batcher, worker, roll(w->batch[worker] + 1), roll(LONGEST));
    w->batch[worker] = 0;
}

static void event_worker(struct world *w)
{
    uint32_t worker = roll(WORKERS);
    finish(w, worker);
    w->idle[worker] = !w->idle[worker] || roll(4);
    if (w->idle[worker])
        batcher_worker_idle(w->batcher, worker);
    else
        batcher_worker_gone(w->batcher, worker);
}

static void event_configure(struct world *w)
{
    uint32_t m = roll(MODELS);
    w->config[m] = random_config();
    CHECK(batcher_model_configure(w->model[m], &w->config[m], NULL) == STATUS_OK, "configure");
}

static void event_drain(struct world *w)
{
    uint32_t m = roll(MODELS + 1);
    for (uint32_t i = 0; i < MODELS; i++)
        w->draining[i] |= m == MODELS || i == m;
    if (m == MODELS)
        batcher_drain(w->batcher);
    else
        batcher_model_drain(w->model[m]);
}

static void random_event(struct world *w)
{
    uint64_t now = w->now + (roll(2) ? roll(6) : 0) - (w->now > 2 && roll(16) == 0 ? 2 : 0);
    uint32_t kind = roll(100);
    if (kind < 55)
        event_submit(w, now);
    else if (kind < 62)
        event_cancel(w);
    else if (kind < 78)
        event_worker(w);
    else if (kind < 81)
        event_configure(w);
    else if (kind < 82)
        event_drain(w);
    else
        now += roll(25);
    if (roll(4)) {
        while (step(w, now))
            continue;
    } else if (roll(2)) {
        step(w, now);
    }
}

/* --- a sequence --- */

static void check_stats(const struct world *w, bool end)
{
    for (uint32_t m = 0; m < MODELS; m++) {
        struct batcher_model_stats stats;
        batcher_model_stats(w->model[m], &stats);
        CHECK(stats.queued_items == queued(w, m), "%u queued, not %u", stats.queued_items,
              queued(w, m));
        CHECK(stats.instances == w->ran[m] && stats.expired == w->expired[m] &&
                  stats.refused == w->refused[m],
              "counts of model %u", m);
        CHECK(!end || (stats.queued_instances == 0 && stats.oldest_arrival_ns == BATCHER_NEVER),
              "model %u is not empty", m);
    }
}

static void run_sequence(uint64_t number)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof(*w));
    seed = number;
    w->is_long = number % LONG == LONG - 1;
    rng = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    w->batcher = batcher_new();
    assert_non_null(w->batcher);
    for (uint32_t m = 0; m < MODELS; m++) {
        w->config[m] = random_config();
        assert_int_equal(batcher_model_add(w->batcher, &w->config[m], &w->model[m], NULL), 0);
    }
    for (int e = w->is_long ? LONG_EVENTS : EVENTS; e > 0; e--)
        random_event(w);
    check_stats(w, false);

    /* Draining empties the model: every worker takes the batch that it gets and comes back. */
    memset(w->draining, true, sizeof(w->draining));
    batcher_drain(w->batcher);
    do {
        for (uint32_t i = 0; i < WORKERS; i++) {
            finish(w, i);
            w->idle[i] = true;
            batcher_worker_idle(w->batcher, i);
        }
    } while (step(w, w->now));
    check_stats(w, true);
    for (uint32_t i = 0; i < w->used; i++)
        CHECK(w->fate[i] == REFUSED ? w->answers[i] == 0 : w->answers[i] == 1,
              "item %u: %u answers", i, w->answers[i]);
    seen.early += w->early;
    batcher_free(w->batcher);
}

static uint64_t first_sequence, n_sequences = SEQUENCES;

static void random_sequences_obey_the_rules(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < n_sequences; i++)
        run_sequence(first_sequence + i);
    if (n_sequences < SEQUENCES)
        return;
    assert_in_range(seen.early, 100, UINT64_MAX); /* each rule was looked at often enough */
    assert_in_range(seen.evicted, 100, UINT64_MAX);
    assert_in_range(seen.evicted_better, 100, UINT64_MAX);
    assert_in_range(seen.overtakes, 100, UINT64_MAX);
    assert_in_range(seen.leads, 100, UINT64_MAX);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        first_sequence = strtoull(argv[1], NULL, 10);
        n_sequences = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_sequences_obey_the_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
