/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/slab.h"
#include "tests/test.h"

struct heap {
    uint32_t live, allocs;
    bool empty; /* has no memory */
};

static void *heap_alloc(void *user, size_t size)
{
    struct heap *heap = user;
    if (heap->empty)
        return NULL;
    heap->live++;
    heap->allocs++;
    return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
}

static void heap_release(void *user, void *memory, size_t size)
{
    (void)size;
    struct heap *heap = user;
    heap->live--;
    free(memory);
}

/* Always at another address. */
static void *heap_grow(void *user, void *memory, size_t size, size_t to)
{
    void *grown = heap_alloc(user, to);
    if (!grown)
        return NULL;
    memcpy(grown, memory, size);
    heap_release(user, memory, size);
    return grown;
}

static struct heap heap;
static struct budget budget;
static struct slabs *slabs;

static int setup(void **state)
{
    (void)state;
    heap = (struct heap){0};
    const struct slab_memory memory = {heap_alloc, heap_release, NULL, &heap};
    atomic_store(&budget.used, 0);
    atomic_store(&budget.held, 0);
    atomic_store(&budget.pressure, 0);
    atomic_store(&budget.limit, 1 << 20);
    slabs = slabs_new(&memory, &budget, 1 << 18);
    return slabs ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    slabs_free(slabs);
    return heap.live ? -1 : 0;
}

static void sizes_fit_and_waste_little(void **state)
{
    (void)state;
    atomic_store(&budget.limit, UINT64_MAX / 2);
    for (size_t size = 1; size < ((size_t)1 << 26); size += size / 7 + 1) {
        struct slab *slab = slabs_take(slabs, size, SLAB_REQUEST);
        assert_non_null(slab);
        assert_true(slab->size >= size);
        assert_int_equal((uintptr_t)slab->data % SLAB_ALIGN, 0);
        assert_int_equal(slab->size + sizeof(*slab), slab->charge);
        if (size > 1024)
            assert_true((double)slab->charge <= 1.25 * (double)(size + sizeof(*slab)));
        assert_int_equal(budget_used(&budget), slab->charge);
        slab->data[0] = slab->data[size - 1] = 1;
        slabs_give(slabs, slab);
        assert_int_equal(budget_used(&budget), 0);
    }
    assert_null(slabs_take(slabs, SIZE_MAX, SLAB_REQUEST));
    assert_null(slabs_take(slabs, SIZE_MAX - 64, SLAB_REQUEST));
    assert_null(slabs_take(slabs, (size_t)1 << 34, SLAB_REQUEST));
    slabs_give(slabs, NULL);
}

static void the_budget_holds(void **state)
{
    (void)state;
    struct slab *taken[2000];
    uint32_t n = 0;
    while (n < 2000 && (taken[n] = slabs_take(slabs, 4000, SLAB_REQUEST)))
        n++;
    assert_true(n > 150 && n < 300);
    assert_true(budget_used(&budget) <= 1 << 20);
    assert_null(slabs_take(slabs, 100000, SLAB_REQUEST));
    while (n)
        slabs_give(slabs, taken[--n]);
    assert_int_equal(budget_used(&budget), 0);
}

static void open_calls_have_a_share_of_the_budget(void **state)
{
    (void)state;
    uint64_t most = (1 << 20) / SLAB_CALLS_SHARE;
    assert_true(slabs_book(slabs, most - 1000));
    assert_int_equal(budget_used(&budget), most - 1000);
    assert_int_equal(budget_held(&budget), most - 1000);
    assert_false(slabs_book(slabs, 1001));
    struct slab *slab = slabs_take(slabs, 700000, SLAB_REQUEST); /* the rest is not theirs */
    assert_non_null(slab);
    assert_true(slabs_book(slabs, 1000));
    slabs_unbook(slabs, most);
    slabs_give(slabs, slab);

    struct slab *all[2000]; /* what others use, calls do not get either */
    uint32_t n = 0;
    while (n < 2000 && (all[n] = slabs_take(slabs, 900, SLAB_REQUEST)))
        n++;
    uint64_t used = budget_used(&budget), held = budget_held(&budget);
    assert_false(slabs_book(slabs, 1100));
    assert_int_equal(budget_used(&budget), used);
    assert_int_equal(budget_held(&budget), held);
    while (n)
        slabs_give(slabs, all[--n]);
    assert_int_equal(budget_used(&budget), 0);
    assert_int_equal(atomic_load(&budget.calls), 0);
}

static void slabs_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        slabs_give(slabs, slabs_take(slabs, 5000, SLAB_REQUEST));
    assert_int_equal(heap.allocs, 1);
    /* Memory that is larger than the largest kept size goes back at once. */
    slabs_give(slabs, slabs_take(slabs, 300000, SLAB_REQUEST));
    assert_int_equal(heap.live, 1);
}

static void a_trim_gives_back_what_lay_idle(void **state)
{
    (void)state;
    struct slab *a = slabs_take(slabs, 5000, SLAB_REQUEST),
                *b = slabs_take(slabs, 5000, SLAB_REQUEST);
    slabs_give(slabs, a);
    slabs_give(slabs, b);
    slabs_trim(slabs); /* both were in use since the last trim */
    assert_int_equal(heap.live, 2);
    slabs_give(slabs, slabs_take(slabs, 5000, SLAB_REQUEST));
    slabs_trim(slabs); /* one slab was enough since then */
    assert_int_equal(heap.live, 1);
    slabs_trim(slabs);
    assert_int_equal(heap.live, 0);
}

static void no_memory_charges_nothing(void **state)
{
    (void)state;
    heap.empty = true;
    assert_null(slabs_take(slabs, 5000, SLAB_REQUEST));
    assert_int_equal(budget_used(&budget), 0);
    assert_int_equal(budget_held(&budget), 0);
}

/* Peers choose the sizes, so slabs that one class keeps make room for another class. */
static void r1_kept_and_used_stay_within_the_budget(void **state)
{
    (void)state;
    slabs_free(slabs);
    const struct slab_memory memory = {heap_alloc, heap_release, NULL, &heap};
    slabs = slabs_new(&memory, &budget, SIZE_MAX); /* keeps everything, as for a device apart */
    for (size_t size = 700 << 10; size > 1000; size -= size / 9) {
        struct slab *slab = slabs_take(slabs, size, SLAB_REQUEST);
        assert_non_null(slab);
        assert_true(budget_held(&budget) <= 1 << 20);
        slabs_give(slabs, slab);
        assert_true(budget_held(&budget) <= 1 << 20);
        assert_int_equal(slabs_kept(slabs), budget_held(&budget));
    }
    assert_int_equal(budget_used(&budget), 0);
    assert_true(slabs_kept(slabs) > 1 << 18);
}

/* Half of the budget can be had at once, whichever loop keeps the other half. */
static void what_is_kept_leaves_half_to_others(void **state)
{
    (void)state;
    const struct slab_memory memory = {heap_alloc, heap_release, NULL, &heap};
    struct slabs *other = slabs_new(&memory, &budget, SIZE_MAX);
    struct slab *slab[9];
    for (uint32_t i = 0; i < ARRAY_LEN(slab); i++)
        assert_non_null(slab[i] = slabs_take(other, 90 << 10, SLAB_REQUEST));
    for (uint32_t i = 0; i < ARRAY_LEN(slab); i++)
        slabs_give(other, slab[i]);
    assert_int_equal(budget_held(&budget), slabs_kept(other));
    assert_in_range(slabs_kept(other), 1 << 18, 1 << 19);
    assert_non_null(slab[0] = slabs_take(slabs, 400 << 10, SLAB_REQUEST));
    slabs_give(slabs, slab[0]);
    slabs_free(other);
}

static void what_others_keep_is_asked_for(void **state)
{
    (void)state;
    const struct slab_memory memory = {heap_alloc, heap_release, NULL, &heap};
    struct slabs *other = slabs_new(&memory, &budget, SIZE_MAX);
    slabs_give(other, slabs_take(other, 400 << 10, SLAB_REQUEST));
    assert_int_equal(budget_used(&budget), 0);
    assert_false(slabs_heed(other));
    assert_null(
        /* no room while the other loop keeps its slabs */
        slabs_take(slabs, 700 << 10, SLAB_REQUEST));
    assert_int_equal(budget_used(&budget), 0);
    assert_true(slabs_heed(other));
    assert_int_equal(slabs_kept(other), 0);
    struct slab *slab = slabs_take(slabs, 700 << 10, SLAB_REQUEST);
    assert_non_null(slab);
    slabs_give(slabs, slab);
    slabs_free(other);
}

static void large_ones_leave_a_share_alone(void **state)
{
    (void)state;
    struct slab *large[64], *small[200];
    uint32_t n = 0, m = 0;
    while (n < 64 && (large[n] = slabs_take(slabs, 100 << 10, SLAB_REQUEST)))
        n++;
    assert_true(n > 5);
    assert_true(budget_used(&budget) <= (1 << 20) - (1 << 20) / SLAB_SMALL_SHARE);
    assert_false(slabs_room(slabs, 100 << 10));
    while (m < 200 && (small[m] = slabs_take(slabs, 4000, SLAB_REQUEST)))
        m++;
    assert_true(m >= 10);
    /* each loop has a share of its own */
    struct slab *reply = slabs_take(slabs, 40000, SLAB_REPLY);
    assert_non_null(reply);
    slabs_give(slabs, reply);
    while (n)
        slabs_give(slabs, large[--n]);
    while (m)
        slabs_give(slabs, small[--m]);
}

static void a_budget_that_shrinks_lets_go_of_what_is_kept(void **state)
{
    (void)state;
    slabs_give(slabs, slabs_take(slabs, 100 << 10, SLAB_REQUEST));
    assert_true(budget_held(&budget) > 100 << 10);
    atomic_store(&budget.limit, 50 << 10);
    slabs_heed(slabs);
    assert_int_equal(budget_held(&budget), 0);
}

static void what_is_set_aside_is_nobody_s_until_it_is_claimed(void **state)
{
    (void)state;
    struct slab *slab = slabs_take(slabs, 1000, SLAB_REQUEST);
    slabs_set_aside(slabs, slab);
    assert_int_equal(budget_used(&budget), 0);
    assert_int_equal(budget_held(&budget), slab->charge);
    slabs_claim(slabs, slab);
    assert_int_equal(budget_used(&budget), slab->charge);
    slabs_give(slabs, slab);
    assert_int_equal(budget_used(&budget), 0);
}

static void a_slab_within_a_charge_is_the_largest_one(void **state)
{
    (void)state;
    assert_int_equal(slab_within(1023), 0);
    for (size_t charge = 1024; charge < 1 << 20; charge += 501) {
        size_t size = slab_within(charge);
        assert_true(slab_charge(size) <= charge);
        assert_true(slab_charge(size + 1) > charge);
    }
}

static void a_message_is_aligned_where_its_payload_begins(void **state)
{
    (void)state;
    for (size_t at = 0; at < 2 * SLAB_ALIGN; at++) {
        struct slab *slab = slabs_take(slabs, 1000, SLAB_REQUEST);
        assert_non_null(slab);
        size_t size = slab->size;
        for (size_t i = 0; i < 200; i++)
            slab->data[i] = (uint8_t)i;
        slab_shift(slab, 200, at);
        assert_int_equal((uintptr_t)(slab->data + at) % SLAB_ALIGN, 0);
        assert_int_equal(slab->size + slab_lead(slab), size);
        for (size_t i = 0; i < 200; i++)
            assert_int_equal(slab->data[i], (uint8_t)i);
        struct slab *copy = slabs_take(slabs, 2000, SLAB_REQUEST);
        assert_non_null(copy);
        slab_copy(copy, slab, 200);
        assert_int_equal((uintptr_t)(copy->data + at) % SLAB_ALIGN, 0);
        assert_memory_equal(copy->data, slab->data, 200);
        slab_shift(copy, 200, 0); /* and back */
        assert_int_equal(slab_lead(copy), 0);
        assert_memory_equal(copy->data, slab->data, 200);
        slabs_give(slabs, copy);
        slabs_give(slabs, slab);
    }
}

static void large_slabs_grow_in_their_place(void **state)
{
    (void)state;
    const struct slab_memory memory = {heap_alloc, heap_release, heap_grow, &heap};
    const size_t mib = 1 << 20;
    atomic_store(&budget.limit, 40 * mib);
    struct slabs *grown = slabs_new(&memory, &budget, SIZE_MAX);
    assert_non_null(grown);
    struct slab *small = slabs_take(grown, mib, SLAB_REQUEST);
    assert_non_null(small);
    assert_null(slabs_grow(grown, small, 2 * mib, SLAB_REQUEST)); /* it moves */
    slabs_give(grown, small);

    struct slab *slab = slabs_take(grown, SLAB_GROWN, SLAB_REQUEST);
    assert_non_null(slab);
    slab_shift(slab, 0, 13);
    memset(slab->data, 7, SLAB_GROWN - 64);
    uint32_t live = heap.live;
    slab = slabs_grow(grown, slab, 16 * mib, SLAB_REQUEST);
    assert_non_null(slab);
    assert_int_equal(heap.live, live);
    assert_true(slab->size >= 16 * mib);
    assert_int_equal((uintptr_t)(slab->data + 13) % SLAB_ALIGN, 0);
    for (size_t i = 0; i < SLAB_GROWN - 64; i += 997)
        assert_int_equal(slab->data[i], 7);
    assert_int_equal(budget_used(&budget), slab->charge);
    /* Beyond the budget, or without memory, it stays. */
    assert_null(slabs_grow(grown, slab, 64 * mib, SLAB_REQUEST));
    heap.empty = true;
    assert_null(slabs_grow(grown, slab, 24 * mib, SLAB_REQUEST));
    heap.empty = false;
    assert_null(slabs_grow(grown, slab, mib, SLAB_REQUEST));
    assert_null(slabs_grow(grown, slab, SIZE_MAX - 64, SLAB_REQUEST));
    assert_int_equal(budget_used(&budget), slab->charge);
    size_t kept = slabs_kept(grown);
    slabs_give(grown, slab);
    assert_int_equal(slabs_kept(grown), kept);
    assert_int_equal(budget_used(&budget), 0);
    slabs_free(grown);
    assert_int_equal(budget_held(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_fit_and_waste_little, setup, teardown),
        cmocka_unit_test_setup_teardown(the_budget_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(open_calls_have_a_share_of_the_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(slabs_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trim_gives_back_what_lay_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory_charges_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(r1_kept_and_used_stay_within_the_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_kept_leaves_half_to_others, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_keep_is_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(large_ones_leave_a_share_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_budget_that_shrinks_lets_go_of_what_is_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_set_aside_is_nobody_s_until_it_is_claimed, setup,
                                        teardown),
        cmocka_unit_test(a_slab_within_a_charge_is_the_largest_one),
        cmocka_unit_test_setup_teardown(a_message_is_aligned_where_its_payload_begins, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(large_slabs_grow_in_their_place, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
