/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/shape_cache.h"

enum { AT = 7 }; /* seconds */

static const char alpha[1], beta[1];
static const struct shape_limits limits = {.engines = 3, .bytes = 100, .queued = 4};
static struct shape_cache *cache;

static int begin(void **state)
{
    (void)state;
    cache = shape_cache_new();
    return cache ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    shape_cache_free(cache);
    return 0;
}

static struct shape_key key(const void *owner, int64_t a, int64_t b)
{
    return (struct shape_key){.owner = owner, .n = 2, .values = {a, b}};
}

static struct shape_entry *find(const void *owner, int64_t a, uint64_t s)
{
    struct shape_key k = key(owner, a, 1);
    return shape_cache_find(cache, &k, s * NS_PER_S);
}

static enum cause queue(const void *owner, int64_t a, uint64_t asker)
{
    struct shape_entry *made = NULL;
    struct shape_key k = key(owner, a, 1);
    enum cause cause = shape_cache_queue(cache, &k, asker, &limits, &made);
    assert_int_equal(cause == CAUSE_OK, made != NULL);
    return cause;
}

static uint32_t chain_free(struct shape_entry *chain)
{
    uint32_t n = 0;
    for (struct shape_entry *next; chain; chain = next, n++) {
        next = chain->next;
        free(chain);
    }
    return n;
}

/* Builds what is queued; returns how many engines had to go for it. */
static uint32_t build(uint64_t bytes)
{
    struct shape_entry *gone = NULL, *next = shape_cache_next(cache);
    assert_non_null(next);
    assert_int_equal(next->state, SHAPE_BUILDING);
    assert_true(shape_cache_room(cache, bytes, &limits, &gone));
    shape_cache_ready(cache, next, cache, bytes);
    return chain_free(gone);
}

static uint32_t add(const void *owner, int64_t a, uint64_t bytes)
{
    assert_int_equal(queue(owner, a, 1), CAUSE_OK);
    return build(bytes);
}

static void sizes_are_found_by_model_and_values(void **state)
{
    (void)state;
    assert_null(find(alpha, 5, AT));
    assert_int_equal(add(alpha, 5, 10), 0);
    assert_int_equal(find(alpha, 5, AT)->state, SHAPE_READY);
    assert_ptr_equal(find(alpha, 5, AT)->held, cache);
    assert_null(find(alpha, 6, AT));
    assert_null(find(beta, 5, AT));
    struct shape_key other = key(alpha, 5, 2);
    assert_null(shape_cache_find(cache, &other, AT * NS_PER_S));
    assert_int_equal(shape_cache_bytes(cache), 10);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(add(alpha, i, 10), 0);
    shape_cache_used(cache, find(alpha, 0, AT));
    assert_int_equal(add(alpha, 3, 10), 1);
    assert_null(find(alpha, 1, AT));
    assert_int_equal(add(beta, 3, 10), 1);
    assert_null(find(alpha, 2, AT));
    assert_non_null(find(alpha, 0, AT));
    assert_int_equal(shape_cache_count(cache, SHAPE_READY), 3);
    shape_cache_used(cache, find(beta, 3, AT)); /* the last already */
    assert_int_equal(add(beta, 4, 10), 1);
    assert_null(find(alpha, 0, AT));
}

static void bytes_are_bounded_too(void **state)
{
    (void)state;
    struct shape_entry *gone;
    add(alpha, 0, 40);
    add(alpha, 1, 40);
    assert_int_equal(add(alpha, 2, 90), 2);
    assert_int_equal(shape_cache_bytes(cache), 90);
    assert_false(shape_cache_room(cache, 101, &limits, &gone));
    assert_int_equal(shape_cache_count(cache, SHAPE_READY), 1);
    assert_int_equal(add(alpha, 3, 100), 1);
}

static void an_asker_has_half_of_the_queue(void **state)
{
    (void)state;
    assert_int_equal(queue(alpha, 0, 1), CAUSE_OK);
    assert_int_equal(queue(alpha, 1, 1), CAUSE_OK);
    assert_int_equal(queue(alpha, 2, 1), CAUSE_SHAPES_FULL);
    assert_int_equal(queue(alpha, 3, 2), CAUSE_OK);
    assert_int_equal(queue(alpha, 4, 3), CAUSE_OK);
    assert_int_equal(queue(alpha, 5, 4), CAUSE_SHAPES_FULL);
    assert_int_equal(shape_cache_count(cache, SHAPE_QUEUED), 4);
}

static void askers_take_turns(void **state)
{
    (void)state;
    static const int64_t order[] = {0, 2, 1, 3};
    queue(alpha, 0, 1);
    queue(alpha, 1, 1);
    queue(alpha, 2, 2);
    queue(alpha, 3, 2);
    for (uint32_t i = 0; i < 4; i++) {
        struct shape_entry *next = shape_cache_next(cache);
        assert_int_equal(next->key.values[0], order[i]);
        shape_cache_forget(cache, next);
    }
    assert_null(shape_cache_next(cache));
}

static void failures_are_remembered_for_a_while(void **state)
{
    (void)state;
    queue(alpha, 0, 1);
    shape_cache_failed(cache, shape_cache_next(cache), STATUS_INTERNAL, AT * NS_PER_S);
    assert_int_equal(find(alpha, 0, AT + SHAPE_FAILURE_S - 1)->state, SHAPE_FAILED);
    assert_int_equal(find(alpha, 0, AT)->why_status, STATUS_INTERNAL);
    assert_null(find(alpha, 0, AT + SHAPE_FAILURE_S));
    assert_int_equal(shape_cache_count(cache, SHAPE_FAILED), 0);
}

static void failures_are_bounded(void **state)
{
    (void)state;
    for (int64_t i = 0; i <= SHAPE_FAILURES; i++) {
        queue(alpha, i, 1);
        shape_cache_failed(cache, shape_cache_next(cache), STATUS_INTERNAL, AT * NS_PER_S);
    }
    assert_int_equal(shape_cache_count(cache, SHAPE_FAILED), SHAPE_FAILURES);
    assert_null(find(alpha, 0, AT));
    assert_non_null(find(alpha, 1, AT));
}

static void a_model_takes_its_engines_along(void **state)
{
    (void)state;
    add(alpha, 0, 10);
    add(beta, 0, 10);
    queue(alpha, 1, 1);
    struct shape_entry *building = shape_cache_next(cache);
    queue(alpha, 2, 1);
    assert_int_equal(chain_free(shape_cache_take(cache, alpha)), 2);
    assert_null(find(alpha, 0, AT));
    assert_non_null(find(beta, 0, AT));
    assert_ptr_equal(find(alpha, 1, AT), building);
    assert_int_equal(chain_free(shape_cache_take(cache, NULL)), 1);
    assert_int_equal(shape_cache_bytes(cache), 0);
    shape_cache_ready(cache, building, NULL, 5);
    assert_int_equal(shape_cache_bytes(cache), 5);
}

/* Against a list in the order of use. */
static void random_uses_keep_the_latest(void **state)
{
    (void)state;
    int64_t order[3];
    uint32_t n = 0, seed = 1;
    for (uint32_t i = 0; i < 5000; i++) {
        seed = seed * 1103515245 + 12345;
        int64_t a = seed >> 16 & 7;
        uint32_t at = 0;
        struct shape_entry *entry = find(alpha, a, AT);
        while (at < n && order[at] != a)
            at++;
        assert_int_equal(entry != NULL, at < n);
        if (entry)
            shape_cache_used(cache, entry);
        else
            assert_int_equal(add(alpha, a, 1), n == 3);
        if (at == n && n == 3)
            at = 0;
        for (n -= at < n; at < n; at++)
            order[at] = order[at + 1];
        order[n++] = a;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sizes_are_found_by_model_and_values),
        TEST(the_least_recently_used_goes_first),
        TEST(bytes_are_bounded_too),
        TEST(an_asker_has_half_of_the_queue),
        TEST(askers_take_turns),
        TEST(failures_are_remembered_for_a_while),
        TEST(failures_are_bounded),
        TEST(a_model_takes_its_engines_along),
        TEST(random_uses_keep_the_latest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
