/* SPDX-License-Identifier: Apache-2.0 */
/* Words of plugins' nodes: what was written is read, and what is damaged is refused. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/plugin/sample.h"

static const int64_t ints[] = {1, -2, INT64_MAX};
static const float floats[] = {0.5F, -1, 3};
static const struct inferd_plugin_attr attrs[] = {
    {"axes", INFERD_PLUGIN_INTS, 3, ints, NULL, NULL},
    {"scales", INFERD_PLUGIN_FLOATS, 3, NULL, floats, NULL},
    {"mode", INFERD_PLUGIN_TEXT, 6, NULL, NULL, "linear"},
    {"empty", INFERD_PLUGIN_TEXT, 0, NULL, NULL, ""},
    {"none", INFERD_PLUGIN_INTS, 0, NULL, NULL, NULL},
};

static uint32_t write_node(int64_t words[PLUGIN_WORDS_MAX])
{
    const struct plugin *of;
    const struct inferd_plugin_op *op = plugin_find("d", "o", &of);
    uint32_t n = 0;
    assert_non_null(op);
    assert_true(plugin_node_write(of, op, attrs, ARRAY_LEN(attrs), words, &n));
    return n;
}

static void what_is_written_is_read(void **state UNUSED)
{
    int64_t words[PLUGIN_WORDS_MAX];
    static struct plugin_node node;
    struct error err = {0};
    uint32_t n = write_node(words);
    assert_int_equal(plugin_node_read(words, n, &node, &err), STATUS_OK);
    assert_string_equal(node.op->name, "o");
    assert_int_equal(node.node.n_attrs, ARRAY_LEN(attrs));
    for (size_t i = 0; i < ARRAY_LEN(attrs); i++) {
        const struct inferd_plugin_attr *a = &node.node.attrs[i];
        assert_string_equal(a->name, attrs[i].name);
        assert_int_equal(a->kind, attrs[i].kind);
        assert_int_equal(a->count, attrs[i].count);
    }
    assert_memory_equal(node.attrs[0].ints, ints, sizeof(ints));
    assert_memory_equal(node.attrs[1].floats, floats, sizeof(floats));
    assert_string_equal(node.attrs[2].text, "linear");
    assert_string_equal(node.attrs[3].text, "");
}

/* Each word becomes other numbers, and each beginning of the words comes alone. */
static void damaged_words_are_refused_or_mean_something_else(void **state UNUSED)
{
    static const int64_t others[] = {-1, 0, 1, 3, 4, 33, 64, 65, 4096, 4097, INT64_MAX, INT64_MIN};
    int64_t words[PLUGIN_WORDS_MAX];
    static struct plugin_node node;
    uint32_t n = write_node(words), accepted = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t was = words[i];
        assert_int_not_equal(plugin_node_read(words, i, &node, NULL), STATUS_OK);
        for (size_t k = 0; k < ARRAY_LEN(others); k++) {
            words[i] = others[k];
            accepted += plugin_node_read(words, n, &node, NULL) == STATUS_OK;
        }
        words[i] = was;
    }
    assert_true(accepted < n * ARRAY_LEN(others) / 2); /* values of attributes may be any */
    assert_int_not_equal(plugin_node_read(words, PLUGIN_WORDS_MAX + 1, &node, NULL), STATUS_OK);
}

static void too_many_words_do_not_fit(void **state UNUSED)
{
    static const char long_text[PLUGIN_WORDS_MAX * 8] = {0};
    static int64_t words[PLUGIN_WORDS_MAX];
    const struct inferd_plugin_attr large = {"x",  INFERD_PLUGIN_TEXT, sizeof(long_text) - 1, NULL,
                                             NULL, long_text};
    const struct plugin *of;
    const struct inferd_plugin_op *op = plugin_find("d", "o", &of);
    uint32_t n;
    assert_non_null(op);
    assert_false(plugin_node_write(of, op, &large, 1, words, &n));
}

static void plugins_that_are_not_there_are_named(void **state UNUSED)
{
    int64_t words[PLUGIN_WORDS_MAX];
    static struct plugin_node node;
    struct error err = {0};
    uint32_t n = write_node(words);
    memcpy(&words[2], "u", 2); /* the plugin's name */
    assert_int_equal(plugin_node_read(words, n, &node, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "needs the plugin 'u' version 1 (digest 0)"));
    n = write_node(words);
    memcpy(&words[4], "2", 2); /* its version */
    assert_int_equal(plugin_node_read(words, n, &node, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "loaded is version 1"));
}

static void a_table_is_added_once(void **state UNUSED)
{
    struct error err = {0};
    assert_int_equal(sample_load(&err), STATUS_OK);
    assert_non_null(plugin_at(0));
    assert_null(plugin_at(1));
    struct inferd_plugin again = *plugin_at(0)->table;
    assert_int_equal(plugin_add(&again, SAMPLE_DIGEST, &err), STATUS_ALREADY_EXISTS);
}

int main(void)
{
    struct error err;
    if (sample_load(&err))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damaged_words_are_refused_or_mean_something_else),
        cmocka_unit_test(too_many_words_do_not_fit),
        cmocka_unit_test(plugins_that_are_not_there_are_named),
        cmocka_unit_test(a_table_is_added_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
