/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the main thread and the others: the loader says how its passes ended and has tables
 * published, workers tell of a lost device, results go to their loops.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/log.h"
#include "daemon/server_internal.h"
#include "daemon/trace.h"

static struct readiness_models models_told(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    struct readiness_models models = s->told.models;
    pthread_mutex_unlock(&s->lock);
    return models;
}

void server_ready_update(struct server *s)
{
    struct readiness now = {
        .serving = s->phase == PHASE_SERVING,
        .hung = s->hung,
        .lost = atomic_load_explicit(&s->shared.lost, memory_order_relaxed),
        .models = models_told(s),
    };
    atomic_store_explicit(&s->shared.ready, readiness_decide(&now), memory_order_relaxed);
    now.models = (struct readiness_models){0};
    atomic_store_explicit(&s->shared.healthy, readiness_decide(&now), memory_order_relaxed);
}

/* The service manager hears READY=1 also while models are missing: the process is up and serves
 * the others, and a start that is never reported would be killed. STATUS= tells the difference. */
static void manager_tell(struct server *s, const char *before, uint32_t loaded)
{
    char text[READINESS_TEXT];
    struct readiness_models models = models_told(s);
    notify_send(&s->notify, "READY=1\nSTATUS=%s%s", before,
                readiness_format(&models, loaded, text));
}

static void first_done(struct server *s, uint32_t loaded, const struct error *err)
{
    if (s->phase != PHASE_STARTING)
        return;
    bool none = !atomic_load_explicit(&s->versions, memory_order_relaxed);
    if (!err && none)
        log_write(&s->shared.log, LOG_WARNING,
                  "no models: name some in the configuration, or put them into the repository, and "
                  "send SIGHUP");
    if (err || (!loaded && !none)) {
        log_write(&s->shared.log, LOG_ERROR, "%s", err ? err->text : "no model could be loaded");
        server_drain(s, EXIT_FAILURE, SERVER_LOST_MS);
        return;
    }
    s->phase = PHASE_SERVING;
    server_ready_update(s);
    listeners_start(s->listeners);
    manager_tell(s, "", loaded);
}

static void reload_done(struct server *s, uint32_t loaded, const struct error *err)
{
    if (err)
        log_write(&s->shared.log, LOG_ERROR, "reload failed, everything stays as it was: %s",
                  err->text);
    else
        log_write(&s->shared.log, LOG_INFO, "reloaded: %u model versions", loaded);
    server_ready_update(s);
    manager_tell(s, err ? "the last reload failed; " : "", loaded);
}

void server_on_news(uv_async_t *async)
{
    struct server *s = async->data;
    pthread_mutex_lock(&s->lock);
    __typeof__(s->told) told = s->told;
    s->told.first = s->told.reload = s->told.lost = false;
    pthread_mutex_unlock(&s->lock);
    if (told.first)
        first_done(s, told.loaded, told.failed ? &told.err : NULL);
    if (told.reload)
        reload_done(s, told.loaded, told.failed ? &told.err : NULL);
    if (told.lost)
        server_device_lost(s, told.err.text);
}

static void pass_done(void *user, bool first, uint32_t loaded, const struct error *err)
{
    struct server *s = user;
    pthread_mutex_lock(&s->lock);
    *(first ? &s->told.first : &s->told.reload) = true;
    s->told.loaded = loaded;
    s->told.failed = err != NULL;
    if (err)
        s->told.err = *err;
    uv_async_send(&s->news);
    pthread_mutex_unlock(&s->lock);
}

static void loader_end(void *user)
{
    struct server *s = user;
    pthread_mutex_lock(&s->lock);
    s->told.ended = true;
    pthread_mutex_unlock(&s->lock);
}

void server_worker_lost(void *user, const struct error *err)
{
    struct server *s = user;
    pthread_mutex_lock(&s->lock);
    s->told.lost = true;
    s->told.err = *err;
    uv_async_send(&s->news);
    pthread_mutex_unlock(&s->lock);
}

static enum status configure(void *user, struct config **out, struct error *err)
{
    struct server *s = user;
    CLEANUP(config_cleanup) struct config *config = NULL;
    TRY(options_configure(s->options, &config, err));
    TRY(listeners_check(s->listeners, config, err));
    TRY(monitor_check(s->monitor, config, err));
    *out = STEAL(config);
    return STATUS_OK;
}

void server_settings_apply(struct server *s, const struct config *config)
{
    log_configure(&s->shared.log, config);
    if (s->shared.traces)
        traces_rate_set(s->shared.traces, config->trace_rate);
    atomic_store_explicit(&s->hang_ns, config->hang_timeout_ms * NS_PER_MS, memory_order_relaxed);
    atomic_store_explicit(&s->drain_ms, config->drain_timeout_ms, memory_order_relaxed);
    atomic_store_explicit(&s->drain_delay_ms, config->drain_delay_ms, memory_order_relaxed);
    atomic_store_explicit(&s->shared.budget.limit, budget_limit(&config->limits),
                          memory_order_relaxed);
    atomic_store_explicit(&s->shared.max_connections,
                          MIN(config->limits.connections, s->most_connections),
                          memory_order_relaxed);
    atomic_store_explicit(&s->shared.address_connections, config->limits.address_connections,
                          memory_order_relaxed);
}

/* Those that are or should be served. */
static uint32_t versions_wanted(const struct table *table)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n; i++)
        n += !table->entries[i].unloaded;
    return n;
}

static void publish(void *user, struct table *table, const struct config *config)
{
    struct server *s = user;
    uv_sem_t done;
    struct readiness_models models = readiness_count(config, table, &s->shared.log);
    pthread_mutex_lock(&s->lock);
    s->told.models = models;
    pthread_mutex_unlock(&s->lock);
    server_settings_apply(s, config);
    atomic_store_explicit(&s->versions, versions_wanted(table), memory_order_relaxed);
    uv_sem_init(&done, 0);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        while (loop_set_table(s->shared.loops[i], table, &done))
            clock_sleep_until(clock_now_ns() + NS_PER_MS);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        uv_sem_wait(&done);
    uv_sem_destroy(&done);
    if (s->monitor)
        monitor_set_table(s->monitor, table);
}

void server_retire(void *user, struct model *model)
{
    struct server *s = user;
    models_retire(s->models, model);
}

void server_deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    struct server *s = user;
    loop_complete(s->shared.loops[loop], first, last);
}

void server_spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    struct server *s = user;
    loop_spent(s->shared.loops[loop], first, last);
}

const struct models_ops server_models_ops = {
    .configure = configure, .publish = publish, .done = pass_done, .ended = loader_end};
