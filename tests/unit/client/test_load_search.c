/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search against simulated servers with every kind of disturbance planted. However it is
 * disturbed, the search ends, and its answer is within 5% of the answer on a quiet machine.
 */
#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "client/load/load_search.h"
#include "tests/test.h"

#define CAPACITY 1000.0
#define BOUND    5.0

/* Disturbs some readings of a search. */
struct disturbance {
    uint32_t from, n; /* `n` readings, from reading `from` on */
    uint32_t every;   /* of these, the first and each so many after it; 0: all */
    double times;     /* factor of their latency */
    bool unstable;    /* they report that they are unstable */
    bool drops;       /* some of their answers are missing */
};

struct world {
    double service;    /* latency of a server that has nothing else to do */
    double noise;      /* each latency is off by up to this share */
    bool cliff;        /* latency is flat up to the capacity */
    bool never_stable; /* no reading is stable */
    const struct disturbance *planted;
    double capacity_factor; /* the closed loop's estimate over the capacity; 0: 1 */
    double slower_from;     /* from this reading on the server is slower */
    double slower;          /* by this factor; 0: not at all */
};

static double uniform(void)
{
    return (double)rand() / RAND_MAX;
}

/* The server is a queue: latency rises as the rate comes near the capacity. */
static struct load_reading measure(const struct world *w, double rate, uint32_t i)
{
    double capacity = CAPACITY;
    if (w->slower > 0 && i >= w->slower_from)
        capacity /= w->slower;
    double load = rate / capacity, free = 1 - load;
    struct load_reading r = {.kept_up = load <= 1.02, .stable = load < 0.99};
    r.latency = w->service / (w->cliff ? 1 : MAX(free, 0.002));
    if (load >= 1)
        r.latency = 1000 * load; /* the queue grows as long as it is measured */
    r.latency *= 1 + w->noise * (2 * uniform() - 1);
    r.stable &= !w->never_stable;
    const struct disturbance *d = w->planted;
    if (d && i >= d->from && i - d->from < d->n && (i - d->from) % MAX(d->every, 1u) == 0) {
        r.latency *= d->times;
        r.stable &= !d->unstable;
        r.kept_up &= !d->drops;
    }
    return r;
}

static struct load_answer search(const struct world *w, uint32_t *readings)
{
    struct load_search s;
    double rate, factor = w->capacity_factor > 0 ? w->capacity_factor : 1;
    uint32_t n = 0;
    load_search_init(&s, BOUND, factor * CAPACITY);
    while ((rate = load_search_next(&s)) > 0) {
        assert_true(n < LOAD_SEARCH_READINGS);
        assert_true(load_search_next(&s) == rate); /* asking changes nothing */
        struct load_reading r = measure(w, rate, n++);
        load_search_add(&s, &r);
    }
    if (readings)
        *readings = n;
    return load_search_answer(&s);
}

static double truth(const struct world *w)
{
    return w->cliff ? CAPACITY : CAPACITY * (1 - w->service / BOUND);
}

static void expect_near(const struct load_answer *a, double right, double share, const char *what,
                        uint32_t i)
{
    if (!a->found || fabs(a->rate - right) > share * right)
        fail_msg("%s %u: %g (%g to %g), not %g", what, i, a->rate, a->low, a->high, right);
}

static const struct world worlds[] = {
    {.service = 0.1},
    {.service = 1},
    {.service = 3},
    {.service = 4.5},
    {.service = 2, .cliff = true},
};

static void a_quiet_machine(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(worlds); i++) {
        uint32_t n;
        struct load_answer a = search(&worlds[i], &n);
        expect_near(&a, truth(&worlds[i]), 0.02, "world", i);
        assert_true(a.sure && a.low <= a.rate && a.rate <= a.high);
        assert_true(a.high - a.low <= 0.021 * a.high);
        if (n > 32)
            fail_msg("world %u: %u readings", i, n);
    }
}

/* The measured rates are 2% apart; the answer is nearer to the truth than that. */
static void the_answer_lies_between_what_was_measured(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        struct world w = {.service = 0.5 + 0.03 * i};
        struct load_answer a = search(&w, NULL);
        expect_near(&a, truth(&w), 0.003, "server", i);
    }
}

/* The disturbance may come at any time and may last two thirds of a search. Its readings may or may
 * not report it. A disturbance that is still on at the end does not count: the server could as well
 * have become slower. */
static void a_planted_disturbance_does_not_move_the_answer(void **state)
{
    (void)state;
    static const double times[] = {0.01, 1.5, 4, 100};
    for (uint32_t i = 0; i < ARRAY_LEN(worlds); i++) {
        struct load_answer quiet = search(&worlds[i], NULL);
        uint32_t over = 0;
        for (uint32_t k = 0; k < 25 * 10 * ARRAY_LEN(times) * 4; k++) {
            struct disturbance d = {.from = k % 25,
                                    .n = 1 + k / 25 % 10,
                                    .times = times[k / 250 % ARRAY_LEN(times)],
                                    .unstable = k / 1000 % 2,
                                    .drops = k / 2000 % 2};
            struct world w = worlds[i];
            w.planted = &d;
            uint32_t n;
            struct load_answer a = search(&w, &n);
            if (d.from + d.n >= n)
                continue;
            expect_near(&a, quiet.rate, 0.05, "disturbance", k);
            over++;
        }
        assert_true(over > 1500);
    }
}

/* A server that is stopped for a moment again and again. Between these moments latency is off by up
 * to a tenth. */
static void what_disturbs_four_times_does_not_move_it_either(void **state)
{
    (void)state;
    enum { TIMES = 4 };
    srand(7);
    for (uint32_t i = 0; i < 3; i++) { /* the others are as near to the bound as noise */
        uint32_t over = 0;
        for (uint32_t k = 0; k < 7 * 12 * 2 * 20; k++) {
            uint32_t every = 1 + k % 7;
            struct disturbance d = {.from = k / 7 % 12,
                                    .n = (TIMES - 1) * every + 1,
                                    .every = every,
                                    .times = 100,
                                    .unstable = k / 84 % 2};
            struct world w = {.service = (double[]){0.1, 0.3, 1}[i], .noise = 0.1, .planted = &d};
            uint32_t n;
            struct load_answer a = search(&w, &n);
            if (d.from + d.n >= n)
                continue;
            expect_near(&a, truth(&w), 0.05, "disturbance", k);
            over++;
        }
        assert_true(over > 1000);
    }
}

static void noise_moves_it_by_no_more_than_noise(void **state)
{
    (void)state;
    srand(5);
    for (uint32_t k = 0; k < 2000; k++) {
        struct world w = worlds[k % ARRAY_LEN(worlds)];
        w.noise = w.service > 4 ? 0.003 : 0.05;
        struct load_answer a = search(&w, NULL);
        double load = truth(&w) / CAPACITY, slope = w.cliff ? 0 : (1 - load) / load;
        expect_near(&a, truth(&w), 0.02 + w.noise * slope, "seed", k);
        assert_true(a.low <= a.rate && (a.high == 0 || a.rate <= a.high));
    }
}

static void a_wrong_capacity_costs_time_alone(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < ARRAY_LEN(worlds); k++) {
        for (double factor = 0.1; factor < 20; factor *= 2) {
            struct world w = worlds[k];
            w.capacity_factor = factor;
            struct load_answer a = search(&w, NULL);
            expect_near(&a, truth(&w), 0.03, "world", k);
        }
    }
}

static void readings_that_are_never_stable_give_an_answer_at_last(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < ARRAY_LEN(worlds); k++) {
        struct world w = worlds[k];
        w.never_stable = true;
        struct load_answer a = search(&w, NULL);
        expect_near(&a, truth(&w), 0.03, "world", k);
    }
}

/* An unstable reading has no vote: two failures of that kind do not outweigh two readings that
 * hold. */
static void an_unstable_reading_is_repeated(void **state)
{
    (void)state;
    struct load_search s;
    struct load_reading good = {1, true, true}, bad = {100, true, false};
    load_search_init(&s, BOUND, CAPACITY);
    double rate = load_search_next(&s);
    const struct load_reading *in_turn[] = {&bad, &good, &bad, &good};
    for (size_t i = 0; i < ARRAY_LEN(in_turn); i++) {
        assert_true(load_search_next(&s) == rate);
        load_search_add(&s, in_turn[i]);
    }
    assert_true(load_search_next(&s) > rate);
    assert_int_equal(s.n_unstable, 2);
    struct load_answer a = load_search_answer(&s);
    assert_true(a.found && !a.sure && a.rate == rate && a.low == rate && a.high == 0);
}

static void the_machine_stays_slower(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 20; k++) {
        struct world w = {.service = 1, .slower_from = k, .slower = 1.5};
        struct load_answer a = search(&w, NULL);
        if (k < 12)
            expect_near(&a, truth(&w) / 1.5, 0.05, "from reading", k);
        assert_true(a.found);
    }
}

static void nothing_holds(void **state)
{
    (void)state;
    struct world w = {.service = 6};
    uint32_t n;
    struct load_answer a = search(&w, &n);
    assert_false(a.found);
    assert_true(a.rate == 0 && a.low == 0 && a.high < 0.02 * CAPACITY);
    assert_true(n <= 24);
    struct load_search s;
    load_search_init(&s, BOUND, 0);
    assert_true(load_search_next(&s) == 0);
    assert_false(load_search_answer(&s).found);
}

/* If noise exceeds everything else, the search ends and says that it is not sure. */
static void nonsense_ends_and_is_not_sure(void **state)
{
    (void)state;
    srand(11);
    uint32_t sure = 0;
    for (uint32_t k = 0; k < 500; k++) {
        struct load_search s;
        load_search_init(&s, BOUND, CAPACITY);
        uint32_t n = 0;
        for (; load_search_next(&s) > 0; n++) {
            struct load_reading r = {2 * BOUND * uniform(), uniform() < 0.9, uniform() < 0.5};
            load_search_add(&s, &r);
        }
        assert_true(n <= LOAD_SEARCH_READINGS);
        struct load_answer a = load_search_answer(&s);
        sure += a.sure;
        assert_true(a.low <= a.rate);
    }
    if (sure > 250)
        fail_msg("sure %u times of 500", sure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine),
        cmocka_unit_test(the_answer_lies_between_what_was_measured),
        cmocka_unit_test(a_planted_disturbance_does_not_move_the_answer),
        cmocka_unit_test(what_disturbs_four_times_does_not_move_it_either),
        cmocka_unit_test(noise_moves_it_by_no_more_than_noise),
        cmocka_unit_test(a_wrong_capacity_costs_time_alone),
        cmocka_unit_test(readings_that_are_never_stable_give_an_answer_at_last),
        cmocka_unit_test(an_unstable_reading_is_repeated),
        cmocka_unit_test(the_machine_stays_slower),
        cmocka_unit_test(nothing_holds),
        cmocka_unit_test(nonsense_ends_and_is_not_sure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
