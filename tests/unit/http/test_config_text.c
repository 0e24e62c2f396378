/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as JSON becomes a text that config/model_file.h reads. */
#include "http/config_text.h"

#include <string.h>

#include "tests/test.h"

static enum status made(const char *json, struct text *out)
{
    struct error err;
    text_init(out, 4096);
    return config_text_of_json(message_text_of(json), out, &err);
}

static void objects_become_messages(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{}", ""},
        {"{\"name\": \"m\", \"max_batch_size\": 4}", "name: \"m\"\nmax_batch_size: 4\n"},
        {"{\"maxBatchSize\": 4, \"a\": null, \"b\": true}", "max_batch_size: 4\nb: true\n"},
        {"{\"input\": [{\"dims\": [1, \"-1\"]}, {}]}",
         "input {dims: 1\ndims: \"-1\"\n}\ninput {}\n"},
        {"{\"parameters\": {\"a b\": {\"string_value\": \"x\"}}}",
         "parameters { key: \"a b\" value {string_value: \"x\"\n}}\n"},
        {"{\"step\": [{\"input_map\": {\"x\": \"y\", \"u\": \"v\"}}]}",
         "step {input_map { key: \"x\" value: \"y\"}\ninput_map { key: \"u\" value: \"v\"}\n}\n"},
        {"{\"s\": \"a\\\"b\\\\c\\n\\u00e4\"}", "s: \"a\\042b\\134c\\012\xc3\xa4\"\n"},
        {"{\"version_policy\": {\"all\": {}}}", "version_policy {all {}\n}\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct text out;
        assert_int_equal(made(rows[i][0], &out), STATUS_OK);
        if (out.len != strlen(rows[i][1]) || memcmp(out.data, rows[i][1], out.len ? out.len : 0))
            if (out.len || *rows[i][1])
                fail_msg("%s: %.*s", rows[i][0], (int)out.len, out.data);
        text_deinit(&out);
    }
}

static void other_json_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "[]",
        "1",
        "\"a\"",
        "null",
        "{",
        "{\"a\"}",
        "{\"a\":1}}",
        "{\"\":1}",
        "{\"1\":1}",
        "{\"a b\":1}",
        "{\"a\":[[1]]}",
        "{\"a\":1} {}",
        "{\"a{\":1}",
        "{\"parameters\":{\"a\":[1]}}",
        "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}",
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
        "\"a\":"
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}}}}}}}}}}}}}}"};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct text out;
        if (!made(rows[i], &out))
            fail_msg("taken: %s", rows[i]);
        text_deinit(&out);
    }
}

static void what_is_too_long_is_refused(void **state)
{
    (void)state;
    struct text out;
    struct error err;
    text_init(&out, 8);
    assert_int_equal(config_text_of_json(message_text_of("{\"name\": \"model\"}"), &out, &err),
                     STATUS_RESOURCE_EXHAUSTED);
    text_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_become_messages),
        cmocka_unit_test(other_json_is_refused),
        cmocka_unit_test(what_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
