/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the highest rate at which latency keeps a bound. The search does not measure: it
 * says which rate comes next, and is told what was measured.
 *
 * It is a bisection that does not believe a single reading. A rate is measured until one verdict,
 * holds or fails, is two readings ahead of the other. A reading that was not stable does not count,
 * but if a rate has no other readings, three of them make a verdict. When the rates that bracket
 * the answer are close, each is measured once more: by then whatever disturbed the first readings
 * may be over. If such a reading contradicts the verdict, a new round of readings begins for that
 * rate. If the new verdict is the opposite, and not only by noise about the bound, the verdicts
 * beyond that rate are forgotten, because they are older. The answer is interpolated between the
 * two ends by their latencies. After LOAD_SEARCH_READINGS the search ends in any case.
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
    enum load_verdict verdict, before; /* of this round, and of the round before */
    bool mixed;                        /* some of the round's readings said otherwise */
    bool checked;                      /* a later reading gave the same verdict */
    bool moved;                        /* when the round began, latency had changed */
    uint32_t n;                        /* readings of the round */
    struct load_reading readings[LOAD_SEARCH_ROUND];
};

struct load_search {
    double bound, top; /* `top`: assumed to be beyond the answer until a rate fails */
    uint32_t n_points, n_readings, n_unstable;
    struct load_search_point points[LOAD_SEARCH_READINGS];
    struct load_search_point *now; /* what load_search_next said */
};

struct load_answer {
    bool found;       /* some rate holds */
    bool sure;        /* both ends were measured again, and all readings of each agree */
    double rate;      /* the answer; 0 if there is none */
    double low, high; /* nearest rates whose readings all held, all failed; 0: none */
};

/* `capacity`: about the most that the server can do. */
void load_search_init(struct load_search *search, double bound, double capacity);

/* The rate that must be measured next; 0: the search is over. */
double load_search_next(struct load_search *search);

/* What was measured at that rate. */
void load_search_add(struct load_search *search, const struct load_reading *reading);

/* May be asked at any time, for what is known by then. */
struct load_answer load_search_answer(const struct load_search *search);

#endif
