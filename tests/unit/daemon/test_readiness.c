/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/readiness.h"
#include "tests/test.h"

/* Tries all combinations: the server is ready in one only, and each reason alone is enough against
 * it. */
static void every_reason_counts(void **state)
{
    (void)state;
    uint32_t ready = 0;
    for (uint32_t bits = 0; bits < 32; bits++) {
        struct readiness r = {
            .serving = bits & 1,
            .hung = bits & 2,
            .lost = bits & 4,
            .models = {.strict = bits & 8, .named = 2, .missing = bits & 16 ? 1 : 0},
        };
        bool expected = r.serving && !r.hung && !r.lost && (bits & 24) != 24;
        if (readiness_decide(&r) != expected)
            fail_msg("bits %u: ready %d, expected %d", bits, !expected, expected);
        ready += expected;
    }
    assert_int_equal(ready, 3); /* strict and complete; any and complete; any and incomplete */
}

static char lines[256];

static void line_keep(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)level;
    strncat(lines, line, sizeof(lines) - strlen(lines) - 1);
}

static void named_models_are_counted(void **state)
{
    (void)state;
    const struct log_sink log = {.level = LOG_INFO, .write = line_keep};
    struct config *config = config_new();
    struct error err;
    for (size_t i = 0; i < 3; i++) {
        static const char *const arguments[] = {"a=a.plan", "b=b.plan", "c=c.onnx"};
        assert_int_equal(config_model_argument(config, arguments[i], &err), STATUS_OK);
    }
    free(config->models[1].version);
    config->models[1].version = strdup("2");
    struct table *table = table_new(config, 4);
    assert_true(table_add(table, "a", "1", MODEL_READY, NULL, NULL));
    assert_true(table_add(table, "b", "1", MODEL_READY, NULL, NULL)); /* another version */
    assert_true(table_add(table, "c", "1", MODEL_UNAVAILABLE, "why", NULL));
    assert_true(table_add(table, "of-a-repository", "1", MODEL_UNAVAILABLE, "why", NULL));
    table_sort(table);
    lines[0] = '\0';
    struct readiness_models strict = readiness_count(config, table, &log);
    assert_true(strict.strict);
    assert_int_equal(strict.named, 3);
    assert_int_equal(strict.missing, 2);
    assert_non_null(strstr(lines, "'b' version '2'"));
    assert_non_null(strstr(lines, "'c' version '1'"));
    assert_null(strstr(lines, "'a'"));
    assert_null(strstr(lines, "repository"));

    free(config->readiness);
    config->readiness = strdup("any");
    lines[0] = '\0';
    struct readiness_models any = readiness_count(config, table, &log);
    assert_false(any.strict);
    assert_int_equal(any.missing, 2);
    assert_string_equal(lines, "");
    table_unref(table);
    config_free(config);
}

static void the_manager_reads_it(void **state)
{
    (void)state;
    char text[READINESS_TEXT];
    const struct {
        struct readiness_models models;
        uint32_t loaded;
        const char *expected;
    } rows[] = {
        {{true, 1, 0}, 1, "serving 1 model version"},
        {{true, 3, 1}, 2, "not ready: 1 of 3 named models is missing; serving 2 model versions"},
        {{true, 4, 2}, 2, "not ready: 2 of 4 named models are missing; serving 2 model versions"},
        {{false, 3, 1}, 2, "serving 2 model versions"},
        {{true, UINT32_MAX, UINT32_MAX},
         UINT32_MAX,
         "not ready: 4294967295 of 4294967295 named models are missing; serving 4294967295 model "
         "versions"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(readiness_format(&rows[i].models, rows[i].loaded, text),
                            rows[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_counts),
        cmocka_unit_test(named_models_are_counted),
        cmocka_unit_test(the_manager_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
