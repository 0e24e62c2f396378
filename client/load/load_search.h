/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the highest rate at which latency keeps a bound, without the measuring: it says
 * which rate is to be measured next, and is told what came.
 *
 * It is a bisection that does not believe what it has seen once. A rate is measured until one
 * verdict, holds or fails, is two ahead of the other; a reading that was not stable is no vote, and
 * only three of them make a verdict where there is no better. When the rates that bracket the
 * answer are close, each is measured once more: by then what had disturbed the first readings may
 * be over. A verdict that this contradicts is reached anew; if it turns round, and not by a little
 * noise about the bound, those beyond it are forgotten, since they are older. The answer lies
 * between the two ends, by their latencies. After LOAD_SEARCH_READINGS the search ends in any case.
 */
#ifndef INFERD_CLIENT_LOAD_LOAD_SEARCH_H
#define INFERD_CLIENT_LOAD_LOAD_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { LOAD_SEARCH_READINGS = 64, LOAD_SEARCH_ROUND = 5 };

/* What was measured at a rate. */
struct load_reading {
    double latency; /* the quantile that is bounded, in the bound's unit */
    bool kept_up;   /* all was answered, about as fast as it was sent */
    bool stable;
};

enum load_verdict { LOAD_OPEN, LOAD_HOLDS, LOAD_FAILS, LOAD_FORGOTTEN };

struct load_search_point {
    double rate;
    enum load_verdict verdict, before; /* of this round, of the one before */
    bool mixed;                        /* some of the round's readings said otherwise */
    bool checked;                      /* measured again, later, and it was the same */
    bool moved;                        /* the round began with another latency than before */
    uint32_t n;                        /* readings of the round */
    struct load_reading readings[LOAD_SEARCH_ROUND];
};

struct load_search {
    double bound, top; /* `top`: what is taken to be beyond the answer as long as nothing fails */
    uint32_t n_points, n_readings, n_unstable;
    struct load_search_point points[LOAD_SEARCH_READINGS];
    struct load_search_point *now; /* what load_search_next said */
};

struct load_answer {
    bool found;       /* some rate holds */
    bool sure;        /* both ends were measured again, with the same result, and never another */
    double rate;      /* the answer; 0 if there is none */
    double low, high; /* nearest rates of undivided verdicts: held, failed; 0: there is none */
};

/* `capacity`: about the most that the server can do. */
void load_search_init(struct load_search *search, double bound, double capacity);

/* The rate to be measured next; 0: the search is over. */
double load_search_next(struct load_search *search);

/* What was measured at that rate. */
void load_search_add(struct load_search *search, const struct load_reading *reading);

/* At any time: as far as is known. */
struct load_answer load_search_answer(const struct load_search *search);

#endif
