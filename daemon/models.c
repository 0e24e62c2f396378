/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, see models.h. */
#include "daemon/models.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file_read.h"
#include "daemon/identity.h"
#include "daemon/plan_cache.h"
#include "daemon/repository.h"

struct models {
    struct shared *shared;
    struct models_ops ops;
    struct trust *trust; /* NULL: files need no signature */
    struct plan_cache *cache;
    pthread_t thread;

    pthread_mutex_t lock; /* guards start, reload and retired */
    pthread_cond_t wake;
    bool start, reload;
    struct model *retired; /* by ->next */

    _Atomic bool stop; /* relaxed: it guards no other data */

    /* The loader's thread. */
    struct config *config; /* of the present table */
    struct config *first;  /* what devices, threads and sockets were made from */
    struct table *table;   /* a reference */
    bool loaded_once;
};

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
        return plan_cache_load(source->cache, w, config->build_timeout_s, out, err);
    /* Loads the file that was opened, whatever its name leads to by now. */
    const char *slash = strrchr(w->path, '/');
    struct accepting who = {source->trust, w};
    const struct file_guard guard = {source->stop, source->trust ? accept_signed : NULL, &who};
    return engine_load_fd(source->device, w->fd, slash ? slash + 1 : w->path, &guard, out, err);
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
    return dispatch_model_load(m->shared->dispatch, config, &named, w->version, *engine, out, err);
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
    model->source = w->source;
    model->source.path = strdup(w->source.path);
    model->load_ns = clock_now_ns() - start_ns;
    log_write(&m->shared->log, LOG_INFO, "model '%s' version '%s' loaded in %llu ms", w->name,
              w->version, (unsigned long long)(model->load_ns / NS_PER_MS));
    *out = model;
    return STATUS_OK;
}

static const struct table_entry *served(const struct table *table, const struct wanted *w)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->entries[i].name, w->name) == 0 &&
            strcmp(table->entries[i].version, w->version) == 0)
            return &table->entries[i];
    return NULL;
}

/* Keeps a version that is loaded already, if it is from the same file and only limits changed. */
static bool version_keep(struct models *m, const struct config *config, const struct wanted *w,
                         const struct table_entry *old)
{
    return old && old->model && old->model->source.path &&
           model_source_equal(&old->model->source, &w->source) &&
           !dispatch_model_configure(m->shared->dispatch, old->model, config, &w->config, NULL);
}

/* --- a pass --- */

static enum status entry_make(struct models *m, const struct config *config, const struct wanted *w,
                              struct table *table, struct error *err)
{
    const struct table_entry *old = served(m->table, w);
    struct model *model = NULL;
    char reason[96] = "";
    if (version_keep(m, config, w, old)) {
        model = model_ref(old->model);
    } else {
        struct error why;
        enum status status = version_load(m, config, w, &model, &why);
        bool tolerated = !m->loaded_once || (old && old->state == MODEL_UNAVAILABLE);
        if (status && !tolerated)
            return error_set(err, status, "model '%s' version '%s': %s", w->name, w->version,
                             why.text);
        if (status)
            snprintf(reason, sizeof(reason), "%s; the server's log says more", status_name(status));
    }
    if (table_add(table, w->name, w->version, model ? MODEL_READY : MODEL_UNAVAILABLE, reason,
                  model))
        return STATUS_OK;
    model_unref(model);
    return error_no_memory(err, "the table of models");
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
    for (uint32_t i = 0; i < list.n; i++) {
        if (atomic_load_explicit(&m->stop, memory_order_relaxed))
            return error_plain(err, CAUSE_STOPPED);
        TRY(entry_make(m, config, &list.items[i], table, err));
    }
    table_sort(table);
    *out = STEAL(table);
    return STATUS_OK;
}

/* Gives versions that a failed pass kept from the old table their old limits back. */
static void limits_restore(struct models *m)
{
    struct wanted_list list;
    if (repository_list(m->config, NULL, &list, NULL))
        return;
    for (uint32_t i = 0; i < list.n; i++)
        version_keep(m, m->config, &list.items[i], served(m->table, &list.items[i]));
    repository_list_deinit(&list);
}

static enum status table_change(struct models *m, struct config *config, struct error *err)
{
    struct table *table = NULL;
    TRY(table_make(m, config, &table, err));
    assert(table);
    m->ops.publish(m->ops.user, table, config);
    table_unref(m->table);
    m->table = table;
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
        plan_cache_release(m->cache, model->engine);
        dispatch_model_unload(m->shared->dispatch, model);
    }
}

static void *loader_run(void *arg)
{
    struct models *m = arg;
    bool stop = false;
    pthread_setname_np(pthread_self(), "loader");
    while (!stop) {
        pthread_mutex_lock(&m->lock);
        while (!m->start && !m->reload && !m->retired &&
               !atomic_load_explicit(&m->stop, memory_order_relaxed))
            pthread_cond_wait(&m->wake, &m->lock);
        bool start = m->start, reload = m->reload;
        struct model *retired = STEAL(m->retired);
        m->start = m->reload = false;
        stop = atomic_load_explicit(&m->stop, memory_order_relaxed);
        pthread_mutex_unlock(&m->lock);
        if (start && !stop)
            first_pass(m);
        if (reload && !stop)
            reload_pass(m);
        retired_unload(m, retired);
    }
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
    pthread_mutex_lock(&m->lock);
    model->next = m->retired;
    m->retired = model;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

/* --- life --- */

static void models_destroy(struct models *m)
{
    plan_cache_free(m->cache);
    trust_free(m->trust);
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
    const struct plan_cache_config cache = {.folder = m->config->cache,
                                            .limit = m->config->cache_bytes,
                                            .device = shared->device,
                                            .device_spec = shared->device_name,
                                            .reference = shared->reference,
                                            .build_memory_bytes = m->config->build_memory_bytes,
                                            .log = &shared->log,
                                            .counters = &shared->counters,
                                            .trust = m->trust,
                                            .stop = &m->stop};
    TRY(plan_cache_new(&cache, &m->cache, err));
    return thread_start(m, err);
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
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
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
    retired_unload(m, STEAL(m->retired));
    models_destroy(m);
}
