/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/model.h"
#include "tests/test.h"

static struct config *config;
static struct table *table;

static int setup(void **state)
{
    (void)state;
    config = config_new();
    table = table_new(config, 100);
    return config && table ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    table_unref(table);
    config_free(config);
    return 0;
}

static const char *version(const char *name, const char *wanted)
{
    const struct table_entry *e = table_find(table, message_text_of(name), message_text_of(wanted));
    return e ? e->version : "none";
}

static void names_and_versions_are_found(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"m", "2"},  {"b", "1"},    {"m", "10"}, {"m", "1"},
                                          {"mm", "3"}, {"a", "v1.9"}, {"z", "01"}, {"a", "v1.10"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_true(table_add(table, rows[i][0], rows[i][1], MODEL_READY, NULL, NULL));
    table_sort(table);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(version(rows[i][0], rows[i][1]), rows[i][1]);
    assert_string_equal(version("m", ""), "10"); /* numbers, not letters */
    assert_string_equal(version("a", ""), "v1.10");
    assert_string_equal(version("mm", ""), "3");
    assert_string_equal(version("m", "3"), "none");
    assert_string_equal(version("", ""), "none");
    assert_string_equal(version("mmm", ""), "none");
    assert_string_equal(version("A", ""), "none");
    const struct message_text cut = {"mm", 1};
    assert_string_equal(table_find(table, cut, (struct message_text){0})->name, "m");
}

static void the_newest_that_is_ready_is_preferred(void **state)
{
    (void)state;
    assert_true(table_add(table, "m", "1", MODEL_READY, NULL, NULL));
    assert_true(table_add(table, "m", "2", MODEL_READY, NULL, NULL));
    assert_true(table_add(table, "m", "3", MODEL_UNAVAILABLE, "damaged", NULL));
    assert_true(table_add(table, "n", "1", MODEL_UNAVAILABLE, NULL, NULL));
    assert_true(table_add(table, "n", "2", MODEL_LOADING, NULL, NULL));
    table_sort(table);
    assert_string_equal(version("m", ""), "2");
    assert_string_equal(version("m", "3"), "3");
    assert_string_equal(version("n", ""), "2");
}

static void many_are_found(void **state)
{
    (void)state;
    char name[24];
    for (int i = 99; i >= 0; i--) {
        snprintf(name, sizeof(name), "model%d", i);
        assert_true(table_add(table, name, "1", MODEL_READY, NULL, NULL));
    }
    table_sort(table);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "model%d", i);
        assert_string_equal(table_find(table, message_text_of(name), message_text_of(""))->name,
                            name);
    }
    assert_string_equal(version("model", ""), "none");
    assert_string_equal(version("model100", ""), "none");
}

static uint32_t priority(uint32_t levels, uint32_t standard, uint64_t level)
{
    static struct model model;
    atomic_init(&model.priority_levels, levels);
    atomic_init(&model.default_priority, standard);
    return model_priority(&model, level);
}

static void levels_of_a_model_share_the_priorities(void **state)
{
    (void)state;
    assert_int_equal(priority(0, 0, 7), 0);
    assert_int_equal(priority(3, 2, 0), 1);
    assert_int_equal(priority(3, 2, 1), 0);
    assert_int_equal(priority(3, 2, 3), 2);
    assert_int_equal(priority(3, 2, UINT64_MAX), 2);
    assert_int_equal(priority(8, 1, 1), 0);
    assert_int_equal(priority(8, 1, 4), 1);
    assert_int_equal(priority(8, 1, 8), 3);
}

static void an_empty_table_has_nothing(void **state)
{
    (void)state;
    assert_string_equal(version("m", ""), "none");
    table_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_and_versions_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newest_that_is_ready_is_preferred, setup, teardown),
        cmocka_unit_test_setup_teardown(many_are_found, setup, teardown),
        cmocka_unit_test(levels_of_a_model_share_the_priorities),
        cmocka_unit_test_setup_teardown(an_empty_table_has_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
