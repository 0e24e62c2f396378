/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, see models.h. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_read.h"
#include "daemon/declared.h"
#include "daemon/identity.h"
#include "daemon/models_internal.h"
#include "daemon/plan_cache.h"
#include "daemon/tls.h"
#include "daemon/warmup.h"

/* --- one version --- */

struct accepting {
    const struct trust *trust;
    const struct wanted *w;
};

static enum status accept_signed(void *user, const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    const struct accepting *who = user;
    return trust_check(who->trust, who->w, digest, err);
}

enum status models_engine_open(const struct models_source *source, const struct config *config,
                               const struct wanted *w, struct engine **out, struct error *err)
{
    if (w->fd < 0)
        return error_copy(err, &w->err);
    if (w->onnx)
        return plan_cache_load(source->cache, w, config->build_timeout_s, NULL, out, err);
    /* Loads the file that was opened, whatever its name leads to by now. */
    const char *slash = strrchr(w->path, '/');
    struct accepting who = {source->trust, w};
    const struct file_guard guard = {source->stop, source->trust ? accept_signed : NULL, &who};
    return engine_load_fd(source->device, w->fd, slash ? slash + 1 : w->path, &guard, NULL, out,
                          err);
}

/* Makes a model with its engine. If that fails, *engine may be what the cache must release. */
static enum status version_make(struct models *m, const struct config *config,
                                const struct wanted *w, struct engine **engine, struct model **out,
                                struct error *err)
{
    const struct models_source source = {m->shared->device, m->cache, m->trust, &m->stop};
    struct config_model named = w->config;
    named.name = w->name;
    TRY(models_engine_open(&source, config, w, engine, err));
    enum status status =
        w->settings ? declared_check(w->settings, engine_describe(*engine), err) : STATUS_OK;
    if (status) {
        engine_unref(*engine);
        return status;
    }
    struct model *model;
    TRY(dispatch_model_load(m->shared->dispatch, config, &named, w->version, *engine, &model, err));
    status = warmup_run(m->shared->dispatch, m->shared->device, model, w, err);
    if (status) {
        dispatch_model_unload(m->shared->dispatch, model);
        return status;
    }
    *out = model;
    return STATUS_OK;
}

static enum status version_load(struct models *m, const struct config *config,
                                const struct wanted *w, struct model **out, struct error *err)
{
    uint64_t start_ns = clock_now_ns();
    struct engine *engine = NULL;
    struct model *model;
    enum status status = version_make(m, config, w, &engine, &model, err);
    if (status) {
        plan_cache_release(m->cache, engine);
        counter_add(&m->shared->counters, COUNTER_LOADS_FAILED, 1);
        log_write(&m->shared->log, LOG_ERROR, "model '%s' version '%s' (%s): %s", w->name,
                  w->version, w->source.path, err->text);
        return status;
    }
    engine_settle(model->engine); /* every worker has its context */
    status = shapes_attach(m->shapes, model, w, config, err);
    if (status) {
        plan_cache_release(m->cache, engine);
        dispatch_model_unload(m->shared->dispatch, model);
        return status;
    }
    model->source = w->source;
    model->source.path = strdup(w->source.path);
    model->load_ns = clock_now_ns() - start_ns;
    log_write(&m->shared->log, LOG_INFO, "model '%s' version '%s' loaded in %llu ms", w->name,
              w->version, (unsigned long long)(model->load_ns / NS_PER_MS));
    *out = model;
    return STATUS_OK;
}

const struct table_entry *models_served(const struct models *m, const struct wanted *w)
{
    for (uint32_t i = 0; i < m->table->n; i++)
        if (strcmp(m->table->entries[i].name, w->name) == 0 &&
            strcmp(m->table->entries[i].version, w->version) == 0)
            return &m->table->entries[i];
    return NULL;
}

/* Keeps a version that is loaded already, if it is from the same file and only limits changed. */
static bool version_keep(struct models *m, const struct config *config, const struct wanted *w,
                         const struct table_entry *old)
{
    return old && old->model && old->model->source.path &&
           model_source_equal(&old->model->source, &w->source) &&
           !dispatch_model_configure(m->shared->dispatch, old->model, config, &w->config, NULL) &&
           !shapes_attach(m->shapes, old->model, w, config, NULL);
}

enum status models_version_make(struct models *m, const struct config *config,
                                const struct wanted *w, struct model **out, struct error *err)
{
    const struct table_entry *old = models_served(m, w);
    if (!version_keep(m, config, w, old))
        return version_load(m, config, w, out, err);
    *out = model_ref(old->model);
    return STATUS_OK;
}

enum status models_entry_add(struct table *table, const struct wanted *w, struct model *model,
                             const char *reason, struct error *err)
{
    enum model_state state = model ? MODEL_READY : MODEL_UNAVAILABLE;
    if (!table_add(table, w->name, w->version, state, reason, model)) {
        model_unref(model);
        return error_no_memory(err, "the table of models");
    }
    table->entries[table->n - 1].of_repository = w->of_repository;
    return STATUS_OK;
}

/* --- a pass --- */

static enum status unloaded_add(struct table *table, const struct wanted *w, struct error *err)
{
    TRY(models_entry_add(table, w, NULL, "unloaded", err));
    table->entries[table->n - 1].unloaded = true;
    return STATUS_OK;
}

static enum status entry_make(struct models *m, const struct config *config,
                              const struct wanted_list *list, const struct wanted *w,
                              struct table *table, struct error *err)
{
    const struct table_entry *old = models_served(m, w);
    struct model *model = NULL;
    struct error why;
    char reason[96] = "";
    if (w->of_repository && !models_chosen(m, config, list, w->name))
        return unloaded_add(table, w, err);
    if (w->pipeline)
        return models_pipeline_add(table, w, err);
    enum status status = models_version_make(m, config, w, &model, &why);
    bool tolerated = !m->loaded_once || (old && old->state == MODEL_UNAVAILABLE);
    if (status && !tolerated)
        return error_set(err, status, "model '%s' version '%s': %s", w->name, w->version, why.text);
    if (status)
        snprintf(reason, sizeof(reason), "%s; the server's log says more", status_name(status));
    return models_entry_add(table, w, model, reason, err);
}

/* What the next poll compares with. Without memory it finds everything new. */
static void seen_keep(struct models *m, const struct wanted_list *list)
{
    struct models_seen seen;
    if (!models_seen_look(&m->seen, list, 0, true, &seen))
        seen = (struct models_seen){0};
    models_seen_deinit(&m->seen);
    m->seen = seen;
}

static void table_cleanup(struct table **at)
{
    table_unref(*at);
}

static enum status table_make(struct models *m, const struct config *config, struct table **out,
                              struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    TRY(repository_list(config, &m->shared->log, &list, err));
    CLEANUP(table_cleanup) struct table *table = table_new(config, list.n);
    if (!table)
        return error_no_memory(err, "the table of models");
    TRY(identities_new(config, m->table->identities, &table->identities, err));
    TRY(tls_new(config, &table->tls, err));
    for (uint32_t i = 0; i < list.n; i++) {
        if (atomic_load_explicit(&m->stop, memory_order_relaxed))
            return error_plain(err, CAUSE_STOPPED);
        TRY(entry_make(m, config, &list, &list.items[i], table, err));
    }
    TRY(models_pipelines_bind(m, config, table, NULL, err));
    seen_keep(m, &list);
    *out = STEAL(table);
    return STATUS_OK;
}

void models_publish(struct models *m, struct table *table, const struct config *config)
{
    table_sort(table);
    m->ops.publish(m->ops.user, table, config);
    table_unref(m->table);
    m->table = table;
}

/* Gives versions that a failed pass kept from the old table their old limits back. */
static void limits_restore(struct models *m)
{
    struct wanted_list list;
    if (repository_list(m->config, NULL, &list, NULL))
        return;
    for (uint32_t i = 0; i < list.n; i++)
        if (!list.items[i].pipeline)
            version_keep(m, m->config, &list.items[i], models_served(m, &list.items[i]));
    repository_list_deinit(&list);
}

static enum status table_change(struct models *m, struct config *config, struct error *err)
{
    struct table *table = NULL;
    TRY(table_make(m, config, &table, err));
    assert(table);
    models_publish(m, table, config);
    return STATUS_OK;
}

static uint32_t ready_count(const struct table *table)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n; i++)
        n += table->entries[i].state == MODEL_READY;
    return n;
}

static void first_pass(struct models *m)
{
    struct error err;
    enum status status = table_change(m, m->config, &err);
    m->loaded_once = !status;
    m->ops.done(m->ops.user, true, ready_count(m->table), status ? &err : NULL);
}

static void restart_warn(const struct models *m, const struct config *config)
{
    char names[256];
    config_restart_names(m->first, config, names, sizeof(names));
    if (*names)
        log_write(&m->shared->log, LOG_WARNING, "takes a restart to change: %s", names);
}

static void config_keep(struct models *m, struct config *config)
{
    if (m->config != m->first)
        config_free(m->config);
    m->config = config;
}

static enum status config_change(struct models *m, struct error *err)
{
    struct config *config;
    TRY(m->ops.configure(m->ops.user, &config, err));
    enum status status = table_change(m, config, err);
    if (status) {
        limits_restore(m);
        config_free(config);
        return status;
    }
    restart_warn(m, config);
    config_keep(m, config);
    shapes_configure(m->shapes, config);
    return STATUS_OK;
}

static void reload_pass(struct models *m)
{
    struct error err;
    enum status status = config_change(m, &err);
    counter_add(&m->shared->counters, status ? COUNTER_RELOADS_FAILED : COUNTER_RELOADS, 1);
    m->ops.done(m->ops.user, false, ready_count(m->table), status ? &err : NULL);
}

/* --- the thread --- */

static void retired_unload(struct models *m, struct model *list)
{
    while (list) {
        struct model *model = list;
        list = model->next;
        log_write(&m->shared->log, LOG_INFO, "model '%s' version '%s' unloaded", model->name,
                  model->version);
        shapes_detach(model);
        if (model->engine)
            plan_cache_release(m->cache, model->engine);
        dispatch_model_unload(m->shared->dispatch, model);
    }
}

/* Waits for something to do; with polls, no longer than until the next one. Under the lock. */
static void loader_wait(struct models *m)
{
    bool poll = models_poll_wanted(m);
    const struct timespec until = {.tv_sec = (time_t)(m->poll_ns / NS_PER_S),
                                   .tv_nsec = (long)(m->poll_ns % NS_PER_S)};
    int r = 0;
    while (!m->start && !m->reload && !m->retired && !m->orders && r != ETIMEDOUT &&
           !atomic_load_explicit(&m->stop, memory_order_relaxed))
        r = poll ? pthread_cond_timedwait(&m->wake, &m->lock, &until)
                 : pthread_cond_wait(&m->wake, &m->lock);
}

static struct models_order *orders_take(struct models *m)
{
    m->orders_end = &m->orders;
    m->n_orders = 0;
    return STEAL(m->orders);
}

static void poll_if_due(struct models *m)
{
    uint64_t now_ns = clock_now_ns();
    if (!models_poll_wanted(m) || now_ns < m->poll_ns)
        return;
    models_poll(m);
    m->poll_ns = clock_now_ns() + m->config->repository_poll_ms * NS_PER_MS;
}

static void *loader_run(void *arg)
{
    struct models *m = arg;
    bool stop = false;
    pthread_setname_np(pthread_self(), "loader");
    while (!stop) {
        pthread_mutex_lock(&m->lock);
        loader_wait(m);
        bool start = m->start, reload = m->reload;
        struct model *retired = STEAL(m->retired);
        struct models_order *orders = orders_take(m);
        m->start = m->reload = false;
        stop = atomic_load_explicit(&m->stop, memory_order_relaxed);
        pthread_mutex_unlock(&m->lock);
        if (start && !stop)
            first_pass(m);
        if (reload && !stop)
            reload_pass(m);
        models_orders_run(m, orders);
        if (!stop)
            poll_if_due(m);
        retired_unload(m, retired);
    }
    models_orders_fail(m);
    shapes_stop(m->shapes);
    m->ops.ended(m->ops.user);
    return NULL;
}

static void wake(struct models *m, bool *flag)
{
    pthread_mutex_lock(&m->lock);
    *flag = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void models_start(struct models *m)
{
    wake(m, &m->start);
}

void models_reload(struct models *m)
{
    wake(m, &m->reload);
}

void models_retire(struct models *m, struct model *model)
{
    if (model->base) {
        shapes_retire(m->shapes, model);
        return;
    }
    pthread_mutex_lock(&m->lock);
    model->next = m->retired;
    m->retired = model;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

/* --- life --- */

static void models_destroy(struct models *m)
{
    shapes_free(m->shapes);
    plan_cache_free(m->cache);
    trust_free(m->trust);
    models_seen_deinit(&m->seen);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->wake);
    config_keep(m, NULL);
    config_free(m->first);
    free(m);
}

static enum status thread_start(struct models *m, struct error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    int r = pthread_create(&m->thread, NULL, loader_run, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r == 0 ? STATUS_OK : error_errno(err, r, "the loader's thread");
}

static enum status parts_make(struct models *m, struct error *err)
{
    struct shared *shared = m->shared;
    if (m->config->plan_keys)
        TRY(trust_new(m->config->plan_keys, &m->trust, err));
    struct plan_cache_config cache = {.folder = m->config->cache,
                                      .insecure = m->config->cache_insecure,
                                      .limit = m->config->cache_bytes,
                                      .device = shared->device,
                                      .device_spec = shared->device_name,
                                      .reference = shared->reference,
                                      .plugins = m->config->plugins,
                                      .n_plugins = m->config->plugins_count,
                                      .build_memory_bytes = m->config->build_memory_bytes,
                                      .log = &shared->log,
                                      .counters = &shared->counters,
                                      .trust = m->trust,
                                      .stop = &m->stop};
    TRY(plan_cache_new(&cache, &m->cache, err));
    cache.keep_none = !plan_cache_keeps(m->cache); /* one warning of one folder is enough */
    TRY(shapes_new(shared, &cache, m->config, &m->shapes, err));
    atomic_store_explicit(&shared->shapes, m->shapes, memory_order_release);
    return thread_start(m, err);
}

/* Waits are by the clock that base/clock.h has. */
static void wake_init(struct models *m)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attributes);
    pthread_condattr_destroy(&attributes);
}

enum status models_new(struct shared *shared, struct config *config, struct table *table,
                       const struct models_ops *ops, struct models **out, struct error *err)
{
    struct models *m = calloc(1, sizeof(*m));
    if (!m) {
        config_free(config);
        return error_no_memory(err, "the loader");
    }
    m->shared = shared;
    m->ops = *ops;
    m->config = m->first = config;
    m->orders_end = &m->orders;
    pthread_mutex_init(&m->lock, NULL);
    wake_init(m);
    enum status status = parts_make(m, err);
    if (status) {
        models_destroy(m);
        return status;
    }
    m->table = table_ref(table);
    *out = m;
    return STATUS_OK;
}

void models_stop(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    atomic_store_explicit(&m->stop, true, memory_order_relaxed);
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void models_free(struct models *m)
{
    if (!m)
        return;
    models_stop(m);
    pthread_join(m->thread, NULL);
    table_unref(m->table); /* retires what is left */
    while (m->retired)     /* a pipeline's end is the end of its steps' models */
        retired_unload(m, STEAL(m->retired));
    models_destroy(m);
}
