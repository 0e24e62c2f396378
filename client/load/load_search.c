/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the highest rate that keeps a bound; see load_search.h. */
#include "client/load/load_search.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/compiler.h"

enum { LEAD = 2, UNSTABLE = 3 };

#define CLOSE    0.02  /* the bracket is narrow: its width as a share of its upper end */
#define HOPELESS 0.001 /* of the capacity: no rate below that is tried */
#define RISE     1.3
#define SIMILAR  1.25 /* latencies */

void load_search_init(struct load_search *s, double bound, double capacity)
{
    *s = (struct load_search){.bound = bound, .top = 1.1 * capacity};
}

/* --- verdicts --- */

static bool holds(const struct load_search *s, const struct load_reading *r)
{
    return r->kept_up && r->latency <= s->bound;
}

/* Ends the round if it has a result. */
static void decide(const struct load_search *s, struct load_search_point *p)
{
    int all = 0, stable = 0; /* readings that hold, less readings that fail */
    uint32_t n_stable = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        int vote = holds(s, &p->readings[i]) ? 1 : -1;
        all += vote;
        stable += p->readings[i].stable ? vote : 0;
        n_stable += p->readings[i].stable;
    }
    if (abs(stable) < LEAD && p->n < LOAD_SEARCH_ROUND && (n_stable || p->n < UNSTABLE))
        return;
    int sum = stable ? stable : all;
    p->verdict = sum > 0 ? LOAD_HOLDS : LOAD_FAILS;
    p->mixed = n_stable ? (uint32_t)abs(stable) < n_stable : (uint32_t)abs(all) < p->n;
    p->checked = p->verdict == p->before;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct load_search_point *p)
{
    double values[LOAD_SEARCH_ROUND] = {0};
    for (uint32_t i = 0; i < p->n; i++)
        values[i] = p->readings[i].latency;
    qsort(values, p->n, sizeof(*values), by_value);
    return values[p->n / 2];
}

/* The verdict has turned round: equal verdicts beyond it are as old as the former one, or older. */
static void forget_beyond(struct load_search *s, const struct load_search_point *p)
{
    for (uint32_t i = 0; i < s->n_points; i++) {
        struct load_search_point *q = &s->points[i];
        bool beyond = p->before == LOAD_FAILS ? q->rate > p->rate : q->rate < p->rate;
        if (beyond && q->verdict == p->before)
            q->verdict = LOAD_FORGOTTEN;
    }
}

static bool similar(const struct load_search_point *p, const struct load_reading *r)
{
    double before = median(p);
    return r->kept_up && r->latency <= SIMILAR * before && before <= SIMILAR * r->latency;
}

/* Takes a reading at a rate that has a verdict: it confirms the verdict, or a new round begins. */
static void check(struct load_search *s, struct load_search_point *p, const struct load_reading *r)
{
    p->checked = r->stable && holds(s, r) == (p->verdict == LOAD_HOLDS);
    if (p->checked)
        return;
    p->moved = !similar(p, r);
    p->before = p->verdict;
    p->verdict = LOAD_OPEN;
    p->n = 0; /* what was read before is older than all the rest */
    p->readings[p->n++] = *r;
}

void load_search_add(struct load_search *s, const struct load_reading *reading)
{
    struct load_search_point *p = s->now;
    s->n_readings++;
    s->n_unstable += !reading->stable;
    if (p->verdict != LOAD_OPEN) {
        check(s, p, reading);
        return;
    }
    p->readings[p->n++] = *reading;
    decide(s, p);
    if (p->moved && p->verdict != LOAD_OPEN && p->verdict != p->before)
        forget_beyond(s, p);
}

/* --- the bracket --- */

/* `undivided`: only rates whose readings all agree. NULL: there is none. */
static const struct load_search_point *highest_holding(const struct load_search *s, bool undivided)
{
    const struct load_search_point *best = NULL;
    for (uint32_t i = 0; i < s->n_points; i++) {
        const struct load_search_point *p = &s->points[i];
        if (p->verdict == LOAD_HOLDS && !(undivided && p->mixed) && (!best || p->rate > best->rate))
            best = p;
    }
    return best;
}

static const struct load_search_point *lowest_failing(const struct load_search *s, double above,
                                                      bool undivided)
{
    const struct load_search_point *best = NULL;
    for (uint32_t i = 0; i < s->n_points; i++) {
        const struct load_search_point *p = &s->points[i];
        if (p->verdict == LOAD_FAILS && !(undivided && p->mixed) && p->rate > above &&
            (!best || p->rate < best->rate))
            best = p;
    }
    return best;
}

static double measure(struct load_search *s, double rate)
{
    s->now = &s->points[s->n_points++];
    *s->now = (struct load_search_point){.rate = rate};
    return rate;
}

static double look_again(struct load_search *s, const struct load_search_point *point)
{
    s->now = &s->points[point - s->points];
    return point->rate;
}

double load_search_next(struct load_search *s)
{
    if (s->n_readings >= LOAD_SEARCH_READINGS || s->top <= 0)
        return 0;
    if (s->now && s->now->verdict == LOAD_OPEN)
        return s->now->rate;
    const struct load_search_point *low = highest_holding(s, false);
    double from = low ? low->rate : 0;
    const struct load_search_point *high = lowest_failing(s, from, false);
    double to = high ? high->rate : s->top;
    bool hopeless = !low && to < HOPELESS * s->top;
    if (to - from > CLOSE * to && !hopeless)
        return measure(s, (from + to) / 2);
    if (!high) { /* nothing has failed so far */
        s->top = from < s->top ? s->top : RISE * from;
        return measure(s, s->top);
    }
    if (low && !low->checked)
        return look_again(s, low);
    /* The upper end comes last: disturbances make rates fail, but hardly ever hold. */
    return high->checked ? 0 : look_again(s, high);
}

/* --- the answer --- */

/* The rate between two others at which latency, taken as a power of the rate, meets the bound. */
static double between(const struct load_search *s, const struct load_search_point *low,
                      const struct load_search_point *high)
{
    double below = median(low), above = median(high);
    if (!(below > 0 && below <= s->bound && above > s->bound))
        return low->rate; /* it was not the latency that failed */
    return low->rate * pow(high->rate / low->rate, log(s->bound / below) / log(above / below));
}

struct load_answer load_search_answer(const struct load_search *s)
{
    const struct load_search_point *low = highest_holding(s, false);
    const struct load_search_point *high = lowest_failing(s, low ? low->rate : 0, false);
    const struct load_search_point *held = highest_holding(s, true);
    const struct load_search_point *failed = lowest_failing(s, low ? low->rate : 0, true);
    return (struct load_answer){.found = low != NULL,
                                .sure = high && high->checked && !high->mixed &&
                                        (!low || (low->checked && !low->mixed)),
                                .rate = !low   ? 0
                                        : high ? between(s, low, high)
                                               : low->rate,
                                .low = held ? held->rate : 0,
                                .high = failed ? failed->rate : 0};
}
