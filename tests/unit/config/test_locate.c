/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a key: the key's own line if the key is there, else the line of its section. */
#include <string.h>

#include "config/schema.h"
#include "tests/test.h"

static const char text[] = "# one\n"
                           "workers: 1\n"
                           "limits:\n"
                           "  connections: 2\n"
                           "  frame_bytes: 3\n"
                           "models:\n"
                           "- name: a\n"
                           "- name: b\n"
                           "  batches: [1,\n"
                           "    2]\n";

static size_t line(const char *key)
{
    return schema_line(text, strlen(text), key);
}

static void keys_are_found(void **state)
{
    (void)state;
    assert_int_equal(line("workers"), 2);
    assert_int_equal(line("limits.frame_bytes"), 5);
    assert_int_equal(line("models[0].name"), 7);
    assert_int_equal(line("models[1].name"), 8);
    assert_int_equal(line("models[1].batches[0]"), 9);
    assert_int_equal(line("models[1].batches[1]"), 10);
}

static void what_is_not_there_is_placed_at_its_section(void **state)
{
    (void)state;
    assert_int_equal(line("models[1].path"), 8);
    assert_int_equal(line("models[7].path"), 7);
    assert_int_equal(line("nothing"), 2);
    assert_int_equal(line("workers.inside"), 2);
    assert_int_equal(line("limits[0]"), 4);
    assert_int_equal(line("models[1"), 8);
}

static void broken_text(void **state)
{
    (void)state;
    static const char broken[] = "a: 1\nb: [\n";
    assert_int_equal(schema_line(broken, strlen(broken), NULL), 3);
    assert_int_equal(schema_line(text, strlen(text), NULL), 0);
    assert_int_equal(schema_line("", 0, "workers"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(what_is_not_there_is_placed_at_its_section),
        cmocka_unit_test(broken_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
