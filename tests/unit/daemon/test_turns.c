/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/turns.h"
#include "tests/test.h"

static void *heap_alloc(void *user, size_t size)
{
    (void)user;
    return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
}

static void heap_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

/* A message: its slab, and its turn. */
struct message {
    struct turn turn; /* first */
    struct slab *slab;
    uint32_t went; /* its number among those that went on; 0: it has not */
};

static struct budget budget;
static struct slabs *slabs;
static struct turns turns;
static struct turns_now now;
static struct message messages[4];
static uint32_t n_went;

static void go(struct turn *turn)
{
    ((struct message *)turn)->went = ++n_went;
}

static int setup(void **state)
{
    (void)state;
    const struct slab_memory memory = {heap_alloc, heap_release, NULL, NULL};
    budget = (struct budget){.limit = 1 << 20};
    turns = (struct turns){.budget = &budget};
    now = (struct turns_now){.most = 100, .ms = 5000};
    n_went = 0;
    slabs = slabs_new(&memory, &budget, 0);
    for (size_t i = 0; slabs && i < ARRAY_LEN(messages); i++)
        messages[i] =
            (struct message){.turn.go = go, .slab = slabs_take(slabs, 1000, SLAB_REQUEST)};
    return slabs ? 0 : -1;
}

static void give(uint32_t i)
{
    slabs_give(slabs, STEAL(messages[i].slab));
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(messages); i++)
        give(i);
    slabs_free(slabs);
    return atomic_load(&budget.large) || atomic_load(&budget.held) ? -1 : 0;
}

static bool join(uint32_t i, uint64_t bytes)
{
    return turns_join(&turns, &messages[i].turn, &messages[i].slab, bytes, &now);
}

static void the_sum_stays_below_what_is_allowed(void **state)
{
    (void)state;
    assert_true(join(0, 60));
    assert_true(join(0, 60)); /* it has joined */
    assert_true(join(1, 40));
    assert_int_equal(atomic_load(&budget.large), 100);
    assert_false(join(2, 1));
    assert_false(join(2, 1));
    assert_false(turns_look(&turns, &now));
    give(1);
    assert_int_equal(atomic_load(&budget.large), 60);
    assert_true(turns_look(&turns, &now));
    assert_int_equal(messages[2].went, 1);
    assert_int_equal(atomic_load(&budget.large), 61);
}

static void a_message_that_is_alone_never_waits(void **state)
{
    (void)state;
    assert_true(join(0, 1000));
    assert_false(join(1, 1000));
    give(0);
    assert_true(turns_look(&turns, &now));
    assert_int_equal(atomic_load(&budget.large), 1000);
}

static void they_go_in_the_order_in_which_they_came(void **state)
{
    (void)state;
    assert_true(join(0, 90));
    assert_false(join(1, 95));
    assert_false(join(2, 5)); /* there would be room */
    assert_false(turns_look(&turns, &now));
    give(0);
    assert_true(turns_look(&turns, &now));
    assert_int_equal(messages[1].went, 1);
    assert_int_equal(messages[2].went, 2);
}

static void without_a_limit_nobody_waits(void **state)
{
    (void)state;
    now.most = 0;
    assert_true(join(0, UINT32_MAX));
    assert_true(join(1, UINT32_MAX));
}

static void replies_count(void **state)
{
    (void)state;
    now.backlog = 80;
    assert_false(join(0, 21));
    now.backlog = 79;
    assert_true(turns_look(&turns, &now));
    slab_large(&budget, messages[3].slab, 100);
    assert_false(join(1, 1));
    give(3);
    give(0);
    assert_true(turns_look(&turns, &now));
}

/* Those in the sum are whole, and their models take long. */
static void nobody_waits_for_what_does_not_end(void **state)
{
    (void)state;
    assert_true(join(0, 100));
    turns_leave(&turns, &messages[0].turn);
    assert_false(join(1, 100));
    assert_false(join(2, 100));
    now.ms += TURNS_STILL_MS - 1;
    assert_false(turns_look(&turns, &now));
    now.ms++;
    assert_true(turns_look(&turns, &now));
    assert_true(messages[1].went && !messages[2].went); /* one at a time */
    assert_int_equal(atomic_load(&budget.large), 200);
    turns_leave(&turns, &messages[1].turn);
    now.ms += TURNS_STILL_MS;
    assert_true(turns_look(&turns, &now));
    assert_int_equal(messages[2].went, 2);
}

static void who_sends_slowly_is_waited_for_once(void **state)
{
    (void)state;
    assert_true(join(0, 100));
    now.ms += TURNS_STILL_MS - 1;
    assert_false(join(1, 100));
    assert_false(turns_look(&turns, &now));
    now.ms++;
    assert_true(turns_look(&turns, &now));
    assert_int_equal(atomic_load(&budget.large), 100); /* that of 1 */
    assert_true(join(0, 100));                         /* it comes on, and counts no more */
    assert_int_equal(atomic_load(&budget.large), 100);
    give(1);
    turns_leave(&turns, &messages[1].turn);
    assert_true(join(2, 100));
    slab_copy(messages[3].slab, messages[0].slab, 10);
    assert_true(join(3, 100)); /* nor does it elsewhere */
    assert_int_equal(atomic_load(&budget.large), 100);
}

static void a_wait_has_an_end_though_others_move(void **state)
{
    (void)state;
    uint64_t begin = now.ms;
    slab_large(&budget, messages[0].slab, 200);
    assert_false(join(1, 10));
    while (!messages[1].went) {
        now.ms += TURNS_STILL_MS / 2;
        slab_large(&budget, messages[2].slab, 10); /* comes and goes */
        give(2);
        messages[2].slab = slabs_take(slabs, 1000, SLAB_REQUEST);
        turns_look(&turns, &now);
        assert_true(now.ms - begin <= TURNS_WAIT_MS);
    }
    assert_int_equal(now.ms - begin, TURNS_WAIT_MS);
}

static void who_leaves_is_not_told(void **state)
{
    (void)state;
    assert_true(join(0, 100));
    assert_false(join(1, 100));
    assert_false(join(2, 100));
    turns_leave(&turns, &messages[1].turn);
    turns_leave(&turns, &messages[1].turn);
    give(0);
    assert_true(turns_look(&turns, &now));
    assert_int_equal(messages[1].went, 0);
    assert_int_equal(messages[2].went, 1);
}

/* A connection whose message was given up is told all the same, so that it reads on. */
static void a_message_that_has_gone_joins_nothing(void **state)
{
    (void)state;
    assert_true(join(0, 100));
    assert_false(join(1, 100));
    give(1);
    assert_true(turns_look(&turns, &now));
    assert_int_equal(messages[1].went, 1);
    assert_int_equal(atomic_load(&budget.large), 100);
}

static void a_slab_that_moves_keeps_its_place(void **state)
{
    (void)state;
    assert_true(join(0, 100));
    slab_copy(messages[1].slab, messages[0].slab, 10);
    give(0);
    assert_int_equal(atomic_load(&budget.large), 100);
    give(1);
    assert_int_equal(atomic_load(&budget.large), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_sum_stays_below_what_is_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_message_that_is_alone_never_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(they_go_in_the_order_in_which_they_came, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_limit_nobody_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(replies_count, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_waits_for_what_does_not_end, setup, teardown),
        cmocka_unit_test_setup_teardown(who_sends_slowly_is_waited_for_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wait_has_an_end_though_others_move, setup, teardown),
        cmocka_unit_test_setup_teardown(who_leaves_is_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_message_that_has_gone_joins_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slab_that_moves_keeps_its_place, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
