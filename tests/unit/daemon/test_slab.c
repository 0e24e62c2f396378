/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/slab.h"

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

static struct heap heap;
static struct budget budget;
static struct slabs *slabs;

static int setup(void **state)
{
    (void)state;
    heap = (struct heap){0};
    const struct slab_memory memory = {heap_alloc, heap_release, &heap};
    atomic_store(&budget.used, 0);
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
        struct slab *slab = slabs_take(slabs, size, false);
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
    assert_null(slabs_take(slabs, SIZE_MAX, false));
    assert_null(slabs_take(slabs, SIZE_MAX - 64, false));
    assert_null(slabs_take(slabs, (size_t)1 << 34, false));
    slabs_give(slabs, NULL);
}

static void the_budget_holds(void **state)
{
    (void)state;
    struct slab *taken[2000];
    uint32_t n = 0;
    while (n < 2000 && (taken[n] = slabs_take(slabs, 4000, false)))
        n++;
    assert_true(n > 150 && n < 300);
    assert_true(budget_used(&budget) <= 1 << 20);
    assert_null(slabs_take(slabs, 100000, false));
    struct slab *forced = slabs_take(slabs, 4000, true);
    assert_non_null(forced);
    slabs_give(slabs, forced);
    while (n)
        slabs_give(slabs, taken[--n]);
    assert_int_equal(budget_used(&budget), 0);
    assert_false(budget_take(&budget, UINT64_MAX));
    assert_int_equal(budget_used(&budget), 0);
}

static void slabs_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        slabs_give(slabs, slabs_take(slabs, 5000, false));
    assert_int_equal(heap.allocs, 1);
    /* What is beyond `keep` goes back at once. */
    slabs_give(slabs, slabs_take(slabs, 300000, false));
    assert_int_equal(heap.live, 1);
}

static void a_trim_gives_back_what_lay_idle(void **state)
{
    (void)state;
    struct slab *a = slabs_take(slabs, 5000, false), *b = slabs_take(slabs, 5000, false);
    slabs_give(slabs, a);
    slabs_give(slabs, b);
    slabs_trim(slabs); /* both were in use since the last one */
    assert_int_equal(heap.live, 2);
    slabs_give(slabs, slabs_take(slabs, 5000, false));
    slabs_trim(slabs); /* one was enough */
    assert_int_equal(heap.live, 1);
    slabs_trim(slabs);
    assert_int_equal(heap.live, 0);
}

static void no_memory_charges_nothing(void **state)
{
    (void)state;
    heap.empty = true;
    assert_null(slabs_take(slabs, 5000, false));
    assert_null(slabs_take(slabs, 5000, true));
    assert_int_equal(budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_fit_and_waste_little, setup, teardown),
        cmocka_unit_test_setup_teardown(the_budget_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(slabs_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trim_gives_back_what_lay_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory_charges_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
