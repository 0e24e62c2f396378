/* SPDX-License-Identifier: Apache-2.0 */
/* The text for Prometheus, made of snapshots by hand; and what is read of host and GPUs. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/monitor/metrics.h"
#include "tests/test.h"

static struct config_limits limits = {.connections = 7, .frame_bytes = 99};
static struct snapshot_model models[2];
static struct snapshot snapshot;

static char *written(unsigned sets)
{
    struct text text;
    text_init(&text, 1 << 20);
    metrics_write(&snapshot, sets, &text);
    text_bytes(&text, "", 1);
    assert_false(text.failed);
    return text.data;
}

static void has(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("not there: %s", line);
}

static int setup(void **state)
{
    (void)state;
    memset(models, 0, sizeof(models));
    models[0] = (struct snapshot_model){.name = "a", .version = "1", .ready = true, .loaded = true};
    models[1] = (struct snapshot_model){.name = "b\"\\\n", .version = "2"};
    snapshot = (struct snapshot){
        .device = "cpu", .limits = &limits, .n_models = 2, .models = models, .started_ms = 1500};
    for (size_t i = 0; i < ARRAY_LEN(snapshot.memory); i++)
        snapshot.memory[i].name = "of these, some";
    return 0;
}

static void times_and_units(void **state)
{
    (void)state;
    models[0].ok = 3;
    models[0].last_ms = 1234567;
    models[0].load_ns = 1500000000;
    models[0].queue_age_ns = 1;
    models[0].times[BODY_TOTAL] = (struct snapshot_times){.sum_ns = 61000001999};
    models[0].times[BODY_TOTAL].count[snapshot_bound(50000)] = 1;
    models[0].times[BODY_TOTAL].count[snapshot_bound(50001)] = 1;
    models[0].times[BODY_TOTAL].count[snapshot_bound(61000000000)] = 1;
    char *text = written(METRICS_ALL);
    has(text, "nv_inference_request_success{model=\"a\",version=\"1\"} 3");
    has(text, "nv_inference_request_duration_us{model=\"a\",version=\"1\"} 61000001");
    has(text, "nv_model_load_duration_secs{model=\"a\",version=\"1\"} 1.500000000");
    has(text, "inferd_queue_age_seconds{model=\"a\",version=\"1\"} 0.000000001");
    has(text, "inferd_model_last_inference_timestamp_seconds{model=\"a\",version=\"1\"} 1234.567");
#define TOTAL(rest) "inferd_request_duration_seconds" rest
    has(text, TOTAL("_bucket{model=\"a\",version=\"1\",le=\"5e-05\"} 1"));
    has(text, TOTAL("_bucket{model=\"a\",version=\"1\",le=\"0.0001\"} 2"));
    has(text, TOTAL("_bucket{model=\"a\",version=\"1\",le=\"60\"} 2"));
    has(text, TOTAL("_bucket{model=\"a\",version=\"1\",le=\"+Inf\"} 3"));
    has(text, TOTAL("_sum{model=\"a\",version=\"1\"} 61.000001999"));
    has(text, TOTAL("_count{model=\"a\",version=\"1\"} 3"));
    has(text, "nv_inference_first_response_histogram_ms_bucket{model=\"a\",version=\"1\","
              "le=\"0.05\"} 1");
    has(text, "process_start_time_seconds 1.5");
    has(text, "inferd_limit{limit=\"frame_bytes\"} 99");
    has(text, "inferd_memory_bytes{part=\"of_these_some\"} 0");
    free(text);
}

static void models_that_are_not_loaded(void **state)
{
    (void)state;
    char *text = written(METRICS_ALL);
    has(text, "inferd_model_ready{model=\"b\\\"\\\\\\n\",version=\"2\"} 0");
    assert_null(strstr(text, "nv_inference_count{model=\"b"));
    free(text);
}

static void causes_and_reasons(void **state)
{
    (void)state;
    models[0].failed = 1;
    models[0].unrun[CAUSE_QUEUE_FULL] = 2;
    models[0].unrun[CAUSE_EXPIRED] = 4;
    models[0].unrun[CAUSE_CLIENT_CANCELLED] = 8;
    models[0].unrun[CAUSE_INVALID_ARGUMENT] = 16;
    assert_int_equal(snapshot_failures(&models[0]), 31);
    char *text = written(METRICS_ALL);
#define FAILURE "nv_inference_request_failure{model=\"a\",version=\"1\",reason="
    has(text, FAILURE "\"REJECTED\"} 6");
    has(text, FAILURE "\"CANCELED\"} 8");
    has(text, FAILURE "\"BACKEND\"} 1");
    has(text, FAILURE "\"OTHER\"} 16");
#define REFUSED "inferd_model_refused_requests_total{model=\"a\",version=\"1\",cause="
    has(text, REFUSED "\"queue_full\"} 2");
    has(text, REFUSED "\"expired\"} 4");
    assert_null(strstr(text, "cause=\"draining\""));
    free(text);
}

static void the_sets_are_apart(void **state)
{
    (void)state;
    char *tritons = written(METRICS_TRITON), *own = written(METRICS_OWN);
    assert_null(strstr(tritons, "inferd_"));
    assert_null(strstr(own, "\nnv_"));
    free(tritons);
    free(own);
}

static void gpus(void **state)
{
    (void)state;
    assert_null(gpus_open("libthere-is-none.so"));
    assert_null(gpus_open("libc.so.6")); /* not NVML */
    assert_int_equal(gpus_read(NULL, snapshot.gpus), 0);
    struct gpus *open = gpus_open(NVML);
    assert_non_null(open);
    snapshot.n_gpus = gpus_read(open, snapshot.gpus);
    gpus_close(open);
    assert_int_equal(snapshot.n_gpus, 2);
    char *text = written(METRICS_TRITON);
    has(text, "nv_gpu_utilization{gpu_uuid=\"GPU-0\"} 0.75");
    has(text, "nv_gpu_memory_total_bytes{gpu_uuid=\"GPU-2\"} 1000");
    has(text, "nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-0\"} 400");
    has(text, "nv_gpu_power_usage{gpu_uuid=\"GPU-0\"} 70.5");
    has(text, "nv_gpu_power_limit{gpu_uuid=\"GPU-0\"} 700");
    has(text, "nv_energy_consumption{gpu_uuid=\"GPU-0\"} 1234.567");
    assert_null(strstr(text, "nv_gpu_power_usage{gpu_uuid=\"GPU-2\"}"));
    assert_null(strstr(text, "GPU-1"));
    free(text);
    snapshot.n_gpus = 0;
    text = written(METRICS_TRITON);
    assert_null(strstr(text, "nv_gpu"));
    free(text);
}

static void the_host(void **state)
{
    (void)state;
    struct host_ticks ticks;
    uint64_t total = 0, used = 0;
    assert_true(host_ticks_parse("cpu  10 1 5 100 20 2 3 4 0 0\ncpu0 1 1 1 1\n", &ticks));
    assert_int_equal(ticks.busy, 25);
    assert_int_equal(ticks.all, 145);
    assert_false(host_ticks_parse("intr 1 2 3", &ticks));
    assert_true(host_memory_parse("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable: 40 kB\n", &total,
                                  &used));
    assert_int_equal(total, 102400);
    assert_int_equal(used, 61440);
    assert_false(host_memory_parse("MemTotal:  100 kB\n", &total, &used));
    assert_false(host_memory_parse("MemTotal: 1 kB\nMemAvailable: 2 kB\n", &total, &used));
    struct host host;
    struct host_ticks since = {0};
    host_read(&since, &host);
    assert_true(host.memory_total > host.memory_used);
    assert_true(host.process_fds >= 3);
    assert_true(host.process_threads >= 1);
    assert_true(host.process_resident > 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(times_and_units, setup),
        cmocka_unit_test_setup(models_that_are_not_loaded, setup),
        cmocka_unit_test_setup(causes_and_reasons, setup),
        cmocka_unit_test_setup(the_sets_are_apart, setup),
        cmocka_unit_test_setup(gpus, setup),
        cmocka_unit_test(the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
