/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/options.h"
#include "tests/test.h"

static struct options options;

/* Arguments up to a NULL. */
static enum options_result parse(const char *const *arguments)
{
    static char *argv[32];
    static char copies[32][64];
    int argc = 0;
    snprintf(copies[0], sizeof(copies[0]), "inferd");
    argv[argc++] = copies[0];
    for (; arguments[argc - 1]; argc++) {
        snprintf(copies[argc], sizeof(copies[argc]), "%s", arguments[argc - 1]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    optind = 0; /* getopt starts again, and forgets all state */
    return options_parse(argc, argv, &options);
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void options_override_the_defaults(void **state)
{
    (void)state;
    struct config *config;
    struct error err;
    assert_int_equal(PARSE("--listen", "127.0.0.1:1", "--device", "fault", "--max-delay-us", "7",
                           "--listen", "unix:/tmp/x", "--max-batch", "5", "--workers", "3",
                           "m=/tmp/m.plan", "n=/tmp/n.onnx"),
                     OPTIONS_RUN);
    if (options_configure(&options, &config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(config->listen.framed_count, 2);
    assert_string_equal(config->listen.framed[1], "unix:/tmp/x");
    assert_string_equal(config->device, "fault");
    assert_int_equal(config->max_delay_us, 7);
    assert_int_equal(config->max_batch, 5);
    assert_int_equal(config->workers, 3);
    assert_int_equal(config->models_count, 2);
    assert_string_equal(config->models[0].name, "m");
    assert_string_equal(config->models[1].path, "/tmp/n.onnx");
    config_free(config);
    options_deinit(&options);
}

static void r16_insecure_is_said_on_the_command_line(void **state)
{
    (void)state;
    struct config *config;
    struct error err = {0};
    assert_int_equal(PARSE("--listen", "0.0.0.0:0"), OPTIONS_RUN);
    assert_int_equal(options_configure(&options, &config, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "listen: 0.0.0.0:0 is reachable by others"));
    options_deinit(&options);
    assert_int_equal(PARSE("--listen", "0.0.0.0:0", "--insecure"), OPTIONS_RUN);
    assert_int_equal(options_configure(&options, &config, &err), STATUS_OK);
    assert_true(config->listen.insecure);
    config_free(config);
    options_deinit(&options);
}

static void without_options_the_defaults_hold(void **state)
{
    (void)state;
    struct config *config, *defaults = config_new();
    struct error err;
    assert_int_equal(parse((const char *const[]){NULL}), OPTIONS_RUN);
    assert_int_equal(options_configure(&options, &config, &err), STATUS_OK);
    assert_int_equal(config->max_delay_us, defaults->max_delay_us);
    assert_string_equal(config->listen.framed[0], defaults->listen.framed[0]);
    config_free(config);
    config_free(defaults);
    options_deinit(&options);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--nothing"), OPTIONS_WRONG);
    assert_int_equal(PARSE("--workers"), OPTIONS_WRONG);
    assert_int_equal(PARSE("--workers", "-1"), OPTIONS_WRONG);
    assert_int_equal(PARSE("--workers", "1x"), OPTIONS_WRONG);
    assert_int_equal(PARSE("--max-batch", "4294967296"), OPTIONS_WRONG);
    assert_int_equal(PARSE("--max-delay-us", ""), OPTIONS_WRONG);

    static const char *const bad[][2] = {{"--workers", "100000"},
                                         {"--listen", "localhost"}, /* no port */
                                         {"--config", "/nowhere/inferd.yaml"},
                                         {"--max-delay-us", "4000000000"},
                                         {"--max-batch=1", "m=/tmp/m.txt"},
                                         {"--max-batch=1", "a b=/tmp/m.plan"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct config *config;
        struct error err = {0};
        assert_int_equal(PARSE(bad[i][0], bad[i][1]), OPTIONS_RUN);
        if (options_configure(&options, &config, &err) == STATUS_OK)
            fail_msg("%s %s was taken", bad[i][0], bad[i][1]);
        assert_true(err.text[0]);
        options_deinit(&options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_override_the_defaults),
        cmocka_unit_test(r16_insecure_is_said_on_the_command_line),
        cmocka_unit_test(without_options_the_defaults_hold),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
