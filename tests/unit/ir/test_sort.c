/* SPDX-License-Identifier: Apache-2.0 */
/* An item comes after the items that it needs, items in order stay, and neither length nor cycles
 * cost more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/ir/sort.h"

enum { LONG = 1 << 18, DEGREE = 3 };

/* Item i needs the DEGREE items from need[DEGREE * i] on. */
static uint32_t listed(const void *user, uint32_t item, uint32_t k)
{
    const uint32_t *need = user;
    return k < DEGREE ? need[DEGREE * item + k] : SORT_END;
}

static uint32_t the_next(const void *user, uint32_t item, uint32_t k)
{
    uint32_t last = *(const uint32_t *)user;
    return k == 0 && item != last ? item + 1 : SORT_END;
}

static void what_is_needed_comes_first(void **state)
{
    (void)state;
    uint32_t need[6][DEGREE], order[6], place[6], through = SORT_NONE, seed = 1;
    for (int round = 0; round < 500; round++) {
        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t k = 0; k < DEGREE; k++) {
                /* a number of 0..7; an item needs only items above it */
                uint32_t to = (seed = seed * 1664525 + 1013904223) >> 29;
                need[i][k] = to < 6 && to > i ? to : SORT_NONE;
            }
        assert_int_equal(sort_by_need(6, listed, need[0], order, &through, NULL), STATUS_OK);
        for (uint32_t i = 0; i < 6; i++)
            place[order[i]] = i;
        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t k = 0; k < DEGREE; k++)
                if (need[i][k] != SORT_NONE)
                    assert_true(place[need[i][k]] < place[i]);
    }
}

static void what_is_in_order_stays(void **state)
{
    (void)state;
    const uint32_t need[4][DEGREE] = {{SORT_NONE, SORT_NONE, SORT_NONE},
                                      {SORT_NONE, SORT_NONE, SORT_NONE},
                                      {SORT_NONE, 0, SORT_NONE},
                                      {2, 0, 1}};
    uint32_t order[4], through = SORT_NONE;
    assert_int_equal(sort_by_need(4, listed, need[0], order, &through, NULL), STATUS_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(order[i], i);
}

static void a_long_chain_costs_no_stack(void **state)
{
    (void)state;
    uint32_t *order = calloc(LONG, sizeof(*order)), through = SORT_NONE, last = LONG - 1;
    assert_non_null(order);
    assert_int_equal(sort_by_need(LONG, the_next, &last, order, &through, NULL), STATUS_OK);
    for (uint32_t i = 0; i < LONG; i++)
        assert_int_equal(order[i], LONG - 1 - i);
    free(order);
}

static void a_cycle_is_named_by_one_of_its_items(void **state)
{
    (void)state;
    const uint32_t need[4][DEGREE] = {{1, SORT_NONE, SORT_NONE}, /* leads into the cycle */
                                      {2, SORT_NONE, SORT_NONE},
                                      {SORT_NONE, 3, SORT_NONE},
                                      {1, SORT_NONE, SORT_NONE}};
    const uint32_t self[1][DEGREE] = {{SORT_NONE, 0, SORT_NONE}};
    uint32_t order[4], through = SORT_NONE;
    assert_int_equal(sort_by_need(4, listed, need[0], order, &through, NULL),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(through, 3);
    assert_int_equal(sort_by_need(1, listed, self[0], order, &through, NULL),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(through, 0);
    assert_int_equal(sort_by_need(0, listed, self[0], order, &through, NULL), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_needed_comes_first),
        cmocka_unit_test(what_is_in_order_stays),
        cmocka_unit_test(a_long_chain_costs_no_stack),
        cmocka_unit_test(a_cycle_is_named_by_one_of_its_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
