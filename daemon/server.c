/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, see server.h. The main thread has a loop of its own for what concerns the whole
 * process: signals, listeners, the batcher's timer, the watchdog. Peers are served by other threads
 * (daemon/loop.h), so none of that ever waits for one.
 *
 *   starting   models are loaded; nothing is accepted
 *   serving
 *   draining   SIGTERM, SIGINT, a failed start or a lost device: nothing new is admitted
 */
#include "daemon/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/device.h"
#include "daemon/listen_names.h"
#include "daemon/log.h"
#include "daemon/regions.h"
#include "daemon/server_internal.h"
#include "daemon/trace.h"
#include "engine/backend.h"

static const int handled_signals[] = {SIGTERM, SIGINT, SIGHUP};

static void signals_mask(int how)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(handled_signals); i++)
        sigaddset(&set, handled_signals[i]);
    pthread_sigmask(how, &set, NULL);
}

void server_signals_hold(void)
{
    signals_mask(SIG_BLOCK);
}

enum {
    SPARE_DESCRIPTORS = 512, /* beside connections: devices, files, build children */
    DEVICE_WORKERS = 2,
};

/* Deals out descriptors of which there are too few: a region of shared memory holds one for as long
 * as it is registered, so regions get a quarter at most, and connections what they leave. */
static void descriptors_deal(struct server *s, const struct config *config, rlim_t allowed)
{
    rlim_t spared = allowed > SPARE_DESCRIPTORS ? allowed - SPARE_DESCRIPTORS : 0;
    uint32_t most = (uint32_t)MAX(allowed / 2, spared);
    char regions[64] = "";
    if (config->shared_memory) {
        s->most_regions = MIN(config->limits.regions, MAX(most / 4, 1u));
        most -= s->most_regions;
        snprintf(regions, sizeof(regions), ", and %u regions of shared memory", s->most_regions);
    }
    s->most_connections = most;
    log_write(&s->shared.log, LOG_WARNING,
              "only %llu descriptors are allowed: at most %u connections are taken%s",
              (unsigned long long)allowed, most, regions);
}

/* Makes room for the descriptors of all connections and regions. If there is not enough, fewer are
 * taken. */
static void descriptors_raise(struct server *s, const struct config *config)
{
    struct rlimit limit;
    s->most_connections = s->most_regions = UINT32_MAX;
    rlim_t wanted = (rlim_t)config->limits.connections + SPARE_DESCRIPTORS +
                    4 * (rlim_t)(config->io_threads + config->models_count) +
                    (config->shared_memory ? config->limits.regions : 0);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur != wanted) { /* a higher limit would only make libuv's tables larger */
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = MIN(wanted, limit.rlim_max);
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before;
    }
    if (limit.rlim_cur < wanted)
        descriptors_deal(s, config, limit.rlim_cur);
}

static enum status device_start(struct server *s, const struct config *config, struct error *err)
{
    snprintf(s->shared.device_name, sizeof(s->shared.device_name), "%s", config->device);
    TRY(device_configured_open(config, &s->shared.log, &s->shared.device, err));
    s->shared.reference = s->shared.device->reference_only;
    return STATUS_OK;
}

/* Two for a device with memory of its own: one computes while the other copies. */
static uint32_t worker_count(const struct server *s, const struct config *config)
{
    if (config->workers)
        return config->workers;
    if (engine_device_apart(s->shared.device))
        return DEVICE_WORKERS;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return MAX((uint32_t)MAX(cores, 1L) / MAX(s->shared.device->threads, 1u), 1u);
}

static enum status traces_start(struct server *s, const struct config *config, struct error *err)
{
    if (!config->trace_file && !config->trace_collector)
        return STATUS_OK;
    s->shared.traces = traces_new(config->io_threads);
    if (!s->shared.traces)
        return error_no_memory(err, "traces");
    traces_rate_set(s->shared.traces, config->trace_rate);
    return STATUS_OK;
}

static enum status loops_start(struct server *s, uint32_t n, struct table *table, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        TRY(loop_new(&s->shared, i, table, &s->shared.loops[i], err));
        s->shared.n_loops++;
    }
    for (uint32_t i = 0; i < n; i++)
        TRY(loop_start(s->shared.loops[i], err));
    return STATUS_OK;
}

static enum status control_start(struct server *s, struct error *err)
{
    int r = uv_loop_init(&s->control);
    if (r != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_loop_init: %s", uv_strerror(r));
    s->has_control = true;
    return loop_watchers_grow(&s->control, err);
}

static enum status handles_start(struct server *s, struct error *err)
{
    uv_loop_t *uv = server_loop(s);
    int r = uv_async_init(uv, &s->news, server_on_news);
    if (r == 0) {
        r = uv_poll_init(uv, &s->batch_timer, dispatch_timer_fd(s->shared.dispatch));
        if (r != 0)
            uv_close((uv_handle_t *)&s->news, NULL);
    }
    if (r != 0)
        return error_set(err, STATUS_INTERNAL, "libuv: %s", uv_strerror(r));
    uv_signal_init(uv, &s->term);
    uv_signal_init(uv, &s->interrupt);
    uv_signal_init(uv, &s->hangup);
    uv_timer_init(uv, &s->beat);
    uv_timer_init(uv, &s->step);
    s->handles = true;
    s->term.data = s->interrupt.data = s->hangup.data = s->news.data = s->beat.data = s->step.data =
        s->batch_timer.data = s;
    uv_poll_start(&s->batch_timer, UV_READABLE, server_on_batch_timer);
    uv_timer_start(&s->beat, server_on_beat, 0, 0);
    r = uv_signal_start(&s->term, server_on_stop_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&s->interrupt, server_on_stop_signal, SIGINT);
    if (r == 0)
        r = uv_signal_start(&s->hangup, server_on_reload_signal, SIGHUP);
    if (r != 0)
        return error_set(err, STATUS_INTERNAL, "signals: %s", uv_strerror(r));
    signals_mask(SIG_UNBLOCK); /* here alone: threads were started before, or block all signals */
    return STATUS_OK;
}

static enum status dispatch_start(struct server *s, const struct config *config, struct error *err)
{
    const struct dispatch_config dispatch = {
        .device = s->shared.device,
        .workers = worker_count(s, config),
        .log = &s->shared.log,
        .counters = &s->shared.counters,
        .deliver = server_deliver,
        .spent = server_spent,
        .lost = server_worker_lost,
        .retire = server_retire,
        .user = s,
    };
    return dispatch_new(&dispatch, &s->shared.dispatch, err);
}

static enum status monitor_open(struct server *s, const struct config *config, struct table *table,
                                struct error *err)
{
    CLEANUP(listen_names_free) struct config_listen listen = {0};
    if (!config->listen.metrics_count && !s->shared.traces)
        return STATUS_OK;
    TRY(listen_names_resolve(&config->listen, &listen, err));
    TRY(monitor_new(&s->shared, config, &listen, table, &s->monitor, err));
    TRY(monitor_check(s->monitor, config, err));
    return monitor_start(s->monitor, err);
}

/* A service manager's sockets take the place of what is configured. */
static enum status listeners_open(struct server *s, const struct config *config, struct error *err)
{
    CLEANUP(listen_names_free) struct config_listen listen = {0};
    uint32_t n_fds = notify_listen_fds();
    if (!n_fds)
        TRY(listen_names_resolve(&config->listen, &listen, err));
    TRY(listeners_new(&s->shared, server_loop(s), &listen, n_fds, &s->listeners, err));
    return listeners_check(s->listeners, config, err);
}

static enum status server_start(struct server *s, struct config *config, struct table *table,
                                struct error *err)
{
    struct models_ops ops = server_models_ops;
    ops.user = s;
    TRY(control_start(s, err));
    TRY(device_start(s, config, err));
    TRY(dispatch_start(s, config, err));
    TRY(traces_start(s, config, err));
    TRY(regions_new(config, s->most_regions, s->shared.device, &s->shared.regions, err));
    TRY(loops_start(s, config->io_threads, table, err));
    TRY(handles_start(s, err));
    TRY(listeners_open(s, config, err));
    TRY(monitor_open(s, config, table, err));
    TRY(models_new(&s->shared, STEAL(s->config), table, &ops, &s->models, err));
    models_start(s->models);
    return STATUS_OK;
}

/* Stops everything in the order in which the parts lean on each other, also after a failed
 * start. */
static void server_stop(struct server *s)
{
    server_handles_close(s);
    listeners_stop(s->listeners);
    monitor_free(s->monitor); /* before what it looks at */
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        if (s->shared.loops[i]->started) {
            loop_order(s->shared.loops[i], LOOP_STOP);
            loop_join(s->shared.loops[i]);
        }
    dispatch_settle(s->shared.dispatch);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        loop_free(s->shared.loops[i]);
    traces_free(s->shared.traces);
    regions_free(s->shared.regions);
    if (s->has_control) {
        uv_run(&s->control, UV_RUN_DEFAULT); /* lets go of handles that were closed */
        uv_loop_close(&s->control);
    }
    listeners_free(s->listeners);
    models_free(s->models);
    dispatch_free(s->shared.dispatch);
    engine_device_close(s->shared.device);
    notify_deinit(&s->notify);
    config_free(s->config);
    pthread_mutex_destroy(&s->lock);
}

int server_run(const struct options *options, struct config *config)
{
    struct server *s = calloc(1, sizeof(*s));
    struct table *table = table_new(config, 0);
    if (!s || !table) {
        fprintf(stderr, "inferd: no memory\n");
        free(s);
        table_unref(table);
        config_free(config);
        return EXIT_FAILURE;
    }
    struct error err;
    log_stderr_init(&s->shared.log, LOG_INFO);
    log_configure(&s->shared.log, config);
    signal(SIGPIPE, SIG_IGN);
    s->options = options;
    s->config = config;
    s->shared.started_ns = clock_now_ns();
    s->shared.started_ms = clock_wall_ms();
    pthread_mutex_init(&s->lock, NULL);
    notify_init(&s->notify);
    descriptors_raise(s, config);
    server_settings_apply(s, config);
    server_orders_init(s);
    enum status status = server_start(s, config, table, &err);
    table_unref(table);
    if (!status) {
        uv_run(server_loop(s), UV_RUN_DEFAULT);
    } else {
        log_write(&s->shared.log, LOG_ERROR, "%s", err.text);
        s->exit_code = EXIT_FAILURE;
    }
    server_stop(s);
    int exit_code = s->exit_code;
    free(s);
    return exit_code;
}
