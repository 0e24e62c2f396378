/* SPDX-License-Identifier: Apache-2.0 */
/* Consistency of a configuration, and models named on the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/schema.h"
#include "tests/test.h"

static void set(char **slot, const char *text)
{
    free(*slot);
    *slot = strdup(text);
}

static void check(const struct config *config, const char *expected)
{
    struct error err = {0};
    enum status status = config_check(config, &err);
    if (!expected) {
        if (status != STATUS_OK)
            fail_msg("refused: %s", err.text);
        return;
    }
    if (status != STATUS_INVALID_ARGUMENT || !strstr(err.text, expected))
        fail_msg("wanted \"%s\", got %s \"%s\"", expected, status_name(status), err.text);
}

static void r17_addresses_are_checked_without_asking(void **state)
{
    (void)state;
    static const char *const right[] = {"127.0.0.1:8003", "0.0.0.0:0", "[::1]:65535", "[::]:1",
                                        "unix:/x.sock", "localhost:8003",
                                        /* found only when the server starts */
                                        "no-such.invalid:1"};
    static const char *const wrong[] = {"",
                                        ":8003",
                                        "127.0.0.1",
                                        "localhost",
                                        "local host:80",
                                        "localhost:65536",
                                        "1.2.3.4.5:80",
                                        "127.0.0.1:",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:-1",
                                        "127.0.0.1:80a",
                                        "127.1:80",
                                        "::1:80",
                                        "[::1]",
                                        "[]:80",
                                        "[127.0.0.1]:80",
                                        "[::1%lo]:80",
                                        "unix:",
                                        "unix:relative.sock",
                                        "http://127.0.0.1:80"};
    struct config *config = config_new();
    config->listen.insecure = true;
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        set(&config->listen.framed[0], right[i]);
        check(config, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        set(&config->listen.framed[0], wrong[i]);
        check(config, "listen.framed[0]: expected HOST:PORT");
    }
    char path[200] = "unix:/";
    memset(path + 6, 'a', sizeof(path) - 7);
    path[sizeof(path) - 1] = '\0';
    set(&config->listen.framed[0], path);
    check(config, "listen.framed[0]");
    config_free(config);
}

static void r16_beyond_loopback_there_are_tokens_or_the_operator_insists(void **state)
{
    (void)state;
    static const char *const open[] = {"0.0.0.0:0", "[::]:1", "192.0.2.1:8003", "[2001:db8::1]:1"};
    struct config *config = config_new();
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        struct address address;
        set(&config->listen.framed[0], open[i]);
        check(config, open[i]);
        check(config, "is reachable by others and no tokens are configured; set `tokens`, "
                      "`listen.client_ca`, or `listen.insecure: true` (--insecure) to insist");
        assert_int_equal(address_parse(open[i], &address, NULL), STATUS_OK);
        assert_int_equal(config_listen_check(config, DOOR_http, &address, NULL),
                         STATUS_INVALID_ARGUMENT);
        config->listen.insecure = true;
        check(config, NULL);
        config->listen.insecure = false;
        char file[] = "/tls.pem", door[] = "framed", *doors[] = {door};
        config->listen.certificate = config->listen.client_ca = file;
        check(config, open[i]); /* not at this door */
        config->listen.tls = doors;
        config->listen.tls_count = 1;
        check(config, NULL);
        assert_int_equal(config_listen_check(config, DOOR_metrics, &address, NULL),
                         STATUS_INVALID_ARGUMENT);
        char other[] = "metrics";
        doors[0] = other;
        assert_int_equal(config_listen_check(config, DOOR_metrics, &address, NULL), STATUS_OK);
        doors[0] = door;
        config->listen.client_ca = NULL;
        check(config, open[i]);
        config->listen.certificate = NULL;
        check(config, "listen.tls: expected listen.certificate beside it");
        config->listen.tls = NULL;
        config->listen.tls_count = 0;
        set(&config->tokens, "/etc/inferd/tokens");
        check(config, NULL);
        free(config->tokens);
        config->tokens = NULL;
    }
    config_free(config);
}

static void devices_and_levels(void **state)
{
    (void)state;
    static const char *const right[] = {"cpu", "cuda", "cuda:0", "cuda:12", "fault"};
    static const char *const wrong[] = {"", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:1 ", "CPU"};
    struct config *config = config_new();
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        set(&config->device, right[i]);
        check(config, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        set(&config->device, wrong[i]);
        check(config, "device: expected");
    }
    set(&config->device, "cpu");
    set(&config->readiness, "any");
    check(config, NULL);
    set(&config->readiness, "lax");
    check(config, "readiness: expected strict or any, got \"lax\"");
    set(&config->readiness, "strict");
    set(&config->log_level, "debug");
    check(config, "log_level: expected error, warning, info or verbose, got \"debug\"");
    set(&config->log_level, "info");
    set(&config->log_format, "xml");
    check(config, "log_format: expected text, json or journal, got \"xml\"");
    set(&config->log_format, "json");
    static const char *const wrong_urls[] = {"https://a:1", "http://a",       "http://",
                                             "a:1",         "http://unix:/a", "http://a:1/b c"};
    for (size_t i = 0; i < ARRAY_LEN(wrong_urls); i++) {
        set(&config->trace_collector, wrong_urls[i]);
        check(config, "trace_collector: expected http://HOST:PORT");
    }
    set(&config->trace_collector, "http://[::1]:4318/v1/traces");
    check(config, NULL);
    config->log_components = strdup("peers=loud");
    check(config,
          "log_components: expected such as \"peers=verbose, engine=warning\"; the components "
          "are server, peers, models and engine, got \"peers=loud\"");
    config_free(config);
}

static void values_set_by_the_command_line_have_ranges_too(void **state)
{
    (void)state;
    struct config *config = config_new();
    config->workers = 257;
    check(config, "workers: expected a whole number from 0 to 256, got \"257\"");
    config->workers = 0;
    config->max_delay_us = UINT64_MAX;
    check(config, "max_delay_us: expected");
    config->max_delay_us = 0;
    config->limits.frame_bytes = UINT64_MAX;
    check(config, "limits.frame_bytes: expected");
    config_free(config);
}

static void byte_limits_fit_into_one_another(void **state)
{
    (void)state;
    struct config *config = config_new();
    config->limits.connection_inflight_bytes = config->limits.frame_bytes;
    check(config, NULL);
    config->limits.connection_inflight_bytes--;
    check(config, "limits.connection_inflight_bytes: expected at least limits.frame_bytes");
    config->limits.connection_inflight_bytes = config->limits.inflight_bytes;
    check(config, NULL);
    config->limits.connection_inflight_bytes++;
    check(config, "limits.inflight_bytes: expected at least");
    config_free(config);
}

/* What layers run on is NAME=WHAT, or a name; options cannot be slipped in. */
static void texts_for_the_builder_have_a_form(void **state)
{
    static const struct {
        enum config_size kind;
        const char *path, *text, *said;
    } rows[] = {
        {CONFIG_PIN, "m.onnx", "conv*=fp16", NULL},
        {CONFIG_PIN, "m.onnx", "a=b=c", NULL},
        {CONFIG_PIN, "m.onnx", "conv", "models[0].pin[0]: expected NAME=WHAT, got \"conv\""},
        {CONFIG_PIN, "m.onnx", "--x=1", "models[0].pin[0]: expected NAME=WHAT"},
        {CONFIG_KEEP, "m.onnx", "softmax", NULL},
        {CONFIG_KEEP, "m.onnx", "", "models[0].keep[0]: expected a NAME"},
        {CONFIG_KEEP, "m.onnx", "-v", "models[0].keep[0]: expected a NAME, got \"-v\""},
        {CONFIG_KEEP, "m.plan", "softmax", "models[0].keep[0]: expected nothing"},
        {CONFIG_DIMS, "m.onnx", "seq=", "models[0].dims[0]: expected NAME=WHAT"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config *config = config_new();
        char argument[32];
        snprintf(argument, sizeof(argument), "m=%s", rows[i].path);
        assert_int_equal(config_model_argument(config, argument, NULL), STATUS_OK);
        struct config_texts *texts = &config->models[0].sizes[rows[i].kind];
        texts->items = calloc(1, sizeof(*texts->items));
        texts->items[0] = strdup(rows[i].text);
        texts->count = 1;
        check(config, rows[i].said);
        config_free(config);
    }
}

static void model_lists_rise_and_fit(void **state)
{
    (void)state;
    struct config *config = config_new();
    assert_int_equal(config_model_argument(config, "m=m.plan", NULL), STATUS_OK);
    struct config_model *model = &config->models[0];
    model->preferred = calloc(2, sizeof(uint32_t));
    model->preferred_count = 2;
    model->preferred[0] = 4;
    model->preferred[1] = 8;
    check(config, NULL);
    model->max_batch = 8;
    check(config, NULL);
    model->max_batch = 7;
    check(config, "models[0].preferred: expected sizes up to max_batch, 7, got \"8\"");
    model->max_batch = 0;
    model->preferred[1] = 4;
    check(config, "models[0].preferred[1]: expected rising numbers");
    model->preferred[0] = 0;
    check(config, "models[0].preferred[0]: expected a whole number from 1");
    config_free(config);
}

static void limits_of_a_build_are_for_what_is_built(void **state)
{
    (void)state;
    struct config *config = config_new();
    assert_int_equal(config_model_argument(config, "m=m.onnx", NULL), STATUS_OK);
    struct config_model *model = &config->models[0];
    model->max_bytes = model->workspace = 1 << 20;
    model->memory_percent = 100;
    check(config, NULL);
    model->memory_percent = 101;
    check(config, "models[0].memory_percent: expected a whole number from 0 to 100");
    model->memory_percent = 0;
    set(&model->path, "m.plan");
    check(config, "models[0].max_bytes: expected no such key: only an .onnx");
    model->max_bytes = 0;
    check(config, "models[0].workspace: expected no such key");
    config_free(config);
}

static void models_are_given_once(void **state)
{
    (void)state;
    struct config *config = config_new();
    assert_int_equal(config_model_argument(config, "m=a.plan", NULL), STATUS_OK);
    assert_int_equal(config_model_argument(config, "m=b.plan", NULL), STATUS_OK);
    check(config, "models[1].name: expected each name and version once");
    set(&config->models[1].version, "2");
    check(config, NULL);
    config_free(config);
}

static void listening_twice_is_refused_but_for_free_ports(void **state)
{
    (void)state;
    static const char two_free[] = "listen: {framed: ['127.0.0.1:0', '127.0.0.1:0']}";
    static const char two_same[] = "listen: {framed: ['127.0.0.1:1', '127.0.0.1:1']}";
    struct config *config = NULL;
    struct error err = {0};
    assert_int_equal(config_parse("t", two_free, strlen(two_free), &config, &err), STATUS_OK);
    config_free(config);
    assert_int_equal(config_parse("t", two_same, strlen(two_same), &config, &err),
                     STATUS_INVALID_ARGUMENT);
}

static void r13_model_arguments(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",           "=a.plan",    "a=",         "a=a.txt",         "a=.plan",     ".a=a.plan",
        "a/b=a.plan", "a b=a.plan", "model.onnx", "\xc3\xa4=a.plan", "a=a.plan.txt"};
    struct config *config = config_new();
    struct error err = {0};
    char name[80];

    assert_int_equal(config_model_argument(config, "digits=dir/x=y.onnx", &err), STATUS_OK);
    assert_string_equal(config->models[0].name, "digits");
    assert_string_equal(config->models[0].path, "dir/x=y.onnx");
    assert_string_equal(config->models[0].version, "1");
    assert_int_equal(config->models[0].max_delay_us, -1);

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        if (config_model_argument(config, wrong[i], &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_int_equal(config->models_count, 1);
        assert_null(config->repository);
    }
    memset(name, 'n', sizeof(name));
    strcpy(name + 64, "=a.plan");
    assert_int_equal(config_model_argument(config, name, &err), STATUS_OK);
    strcpy(name + 64, "n=a.plan");
    assert_int_equal(config_model_argument(config, name, &err), STATUS_INVALID_ARGUMENT);
    config_free(config);
}

static void one_repository(void **state)
{
    (void)state;
    struct config *config = config_new();
    struct error err = {0};
    assert_int_equal(config_model_argument(config, "/srv/models", &err), STATUS_OK);
    assert_string_equal(config->repository, "/srv/models");
    assert_int_equal(config_model_argument(config, "/srv/models", &err), STATUS_OK);
    assert_int_equal(config_model_argument(config, "/srv/other", &err), STATUS_INVALID_ARGUMENT);
    assert_string_equal(config->repository, "/srv/models");
    config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r17_addresses_are_checked_without_asking),
        cmocka_unit_test(r16_beyond_loopback_there_are_tokens_or_the_operator_insists),
        cmocka_unit_test(devices_and_levels),
        cmocka_unit_test(values_set_by_the_command_line_have_ranges_too),
        cmocka_unit_test(texts_for_the_builder_have_a_form),
        cmocka_unit_test(byte_limits_fit_into_one_another),
        cmocka_unit_test(model_lists_rise_and_fit),
        cmocka_unit_test(limits_of_a_build_are_for_what_is_built),
        cmocka_unit_test(models_are_given_once),
        cmocka_unit_test(listening_twice_is_refused_but_for_free_ports),
        cmocka_unit_test(r13_model_arguments),
        cmocka_unit_test(one_repository),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
