/* SPDX-License-Identifier: Apache-2.0 */
#include "client/flight.h"
#include "tests/test.h"

static void a_late_id_finds_nothing(void **state)
{
    (void)state;
    struct flight f;
    assert_int_equal(flight_init(&f, 2, NULL), STATUS_OK);
    struct flight_slot *a = flight_take(&f, INFERD_INFER), *b = flight_take(&f, INFERD_STATUS);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(flight_take(&f, INFERD_INFER));
    assert_int_equal(f.n, 2);
    uint64_t id = a->id;
    assert_true(id != 0 && id != b->id && id < UINT64_C(1) << 48);
    assert_ptr_equal(flight_find(&f, id), a);
    flight_give_back(&f, a);
    assert_null(flight_find(&f, id));
    struct flight_slot *again = flight_take(&f, INFERD_INFER);
    assert_ptr_equal(again, a); /* the same place under another id */
    assert_true(again->id != id);
    assert_null(flight_find(&f, id));
    assert_null(flight_find(&f, 0));
    assert_null(flight_find(&f, UINT64_MAX));
    assert_null(flight_find(&f, b->id + 1));
    flight_deinit(&f);
}

static void ids_stay_short_when_a_place_was_used_often(void **state)
{
    (void)state;
    struct flight f;
    assert_int_equal(flight_init(&f, 1, NULL), STATUS_OK);
    f.slots[0].uses = UINT32_MAX - 1;
    struct flight_slot *slot = flight_take(&f, INFERD_INFER);
    assert_true(slot->id < UINT64_C(1) << 48);
    flight_give_back(&f, slot);
    slot = flight_take(&f, INFERD_INFER); /* numbers start again, but not with 0 */
    assert_int_equal(slot->id, UINT64_C(1) << 16);
    flight_deinit(&f);
}

static void the_earliest_deadline_is_found(void **state)
{
    (void)state;
    struct flight f;
    struct flight_slot *slots[5];
    static const uint64_t deadlines[5] = {FLIGHT_NEVER, 50, 20, 90, 20};
    assert_int_equal(flight_init(&f, 8, NULL), STATUS_OK);
    assert_null(flight_earliest(&f));
    assert_null(flight_any(&f));
    for (int i = 0; i < 5; i++) {
        slots[i] = flight_take(&f, INFERD_INFER);
        assert_null(flight_earliest(&f));
    }
    for (int i = 0; i < 5; i++)
        slots[i]->deadline_ns = deadlines[i];
    assert_int_equal(flight_earliest(&f)->deadline_ns, 20);
    flight_give_back(&f, slots[2]);
    assert_ptr_equal(flight_earliest(&f), slots[4]);
    flight_give_back(&f, slots[4]);
    assert_ptr_equal(flight_earliest(&f), slots[1]);
    assert_non_null(flight_any(&f));
    flight_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_id_finds_nothing),
        cmocka_unit_test(ids_stay_short_when_a_place_was_used_often),
        cmocka_unit_test(the_earliest_deadline_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
