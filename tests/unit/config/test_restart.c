/* SPDX-License-Identifier: Apache-2.0 */
/* A reload that would need a restart names the keys concerned, and no others. */
#include <string.h>

#include "config/config.h"
#include "tests/test.h"

static struct config *parse(const char *text)
{
    struct config *config = NULL;
    struct error err = {0};
    if (config_parse("t.yaml", text, strlen(text), &config, &err) != STATUS_OK)
        fail_msg("refused: %s\n%s", err.text, text);
    return config;
}

static void names_of_what_differs(void **state)
{
    static const struct {
        const char *running, *wanted, *names;
    } cases[] = {
        {"", "", ""},
        {"workers: 2", "workers: 2", ""},
        {"", "max_delay_us: 7\nhang_timeout_ms: 11\nrepository: /r", ""},
        {"", "workers: 2", "workers"},
        {"cache: /a", "cache: /b", "cache"},
        {"cache: /a", "", "cache"},
        {"", "cache_insecure: true", "cache_insecure"},
        {"", "cache_bytes: 0\nplan_keys: /k", "cache_bytes, plan_keys"},
        {"plan_keys: /k", "plan_keys: /l", "plan_keys"},
        {"", "build_memory_bytes: 1GiB", "build_memory_bytes"},
        {"", "device: cuda\nio_threads: 3\nthreads: 5", "device, threads, io_threads"},
        {"", "trace_rate: 7", ""},
        {"", "trace_file: /t", "trace_file"},
        {"trace_collector: http://a:1", "trace_collector: http://b:1", "trace_collector"},
        {"", "log_level: error\nlog_format: json\nlog_components: peers=verbose", ""},
        {"listen:\n  framed: [\"127.0.0.1:1\"]", "listen:\n  framed: [\"127.0.0.1:2\"]", "listen"},
        {"listen:\n  framed: [\"127.0.0.1:1\"]",
         "listen:\n  framed: [\"127.0.0.1:1\", \"127.0.0.1:2\"]", "listen"},
        {"", "limits:\n  connections: 100", ""},
        {"", "limits:\n  connections: 10000", "limits.connections"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[256];
        struct config *running = parse(cases[i].running), *wanted = parse(cases[i].wanted);
        config_restart_names(running, wanted, out, sizeof(out));
        assert_string_equal(out, cases[i].names);
        config_free(running);
        config_free(wanted);
    }
}

static void cut_where_it_ends(void **state)
{
    char out[12];
    struct config *running = parse(""), *wanted = parse("device: cuda\nworkers: 9\nthreads: 5");
    (void)state;
    config_restart_names(running, wanted, out, sizeof(out));
    assert_string_equal(out, "device, wor");
    config_free(running);
    config_free(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_what_differs),
        cmocka_unit_test(cut_where_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
