/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, see models.h. */
#include "daemon/models.h"

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

    pthread_mutex_t lock; /* guards these four */
    pthread_cond_t wake;
    bool start, reload;
    struct model *retired; /* by ->next */

    _Atomic bool stop; /* relaxed: read again and again */

    /* The loader's thread. */
    struct config *config; /* of the present table */
    struct config *first;  /* the one that devices, threads and sockets were made of */
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
    /* The file that was opened, whatever its name leads to by now. */
    const char *slash = strrchr(w->path, '/');
    struct accepting who = {source->trust, w};
    const struct file_guard guard = {source->stop, source->trust ? accept_signed : NULL, &who};
    return engine_load_fd(source->device, w->fd, slash ? slash + 1 : w->path, &guard, out, err);
}

static enum status version_load(struct models *m, const struct config *config,
                                const struct wanted *w, struct model **out, struct error *err)
{
    uint64_t start_ns = clock_now_ns();
    const struct models_source source = {m->shared->device, m->cache, m->trust, &m->stop};
    struct engine *engine = NULL;
    struct model *model;
    enum status s = models_engine_open(&source, config, w, &engine, err);
    if (s == STATUS_OK) {
        struct config_model named = w->config;
        named.name = w->name;
        s = dispatch_model_load(m->shared->dispatch, config, &named, w->version, engine, &model,
                                err);
    }
    if (s != STATUS_OK) {
        plan_cache_release(m->cache, engine);
        counter_add(&m->shared->counters, COUNTER_LOADS_FAILED, 1);
        log_write(&m->shared->log, LOG_ERROR, "model '%s' version '%s' (%s): %s", w->name,
                  w->version, w->source.path, err->text);
        return s;
    }
    engine_settle(model->engine); /* every worker has its context */
    model->source = w->source;
    model->source.path = strdup(w->source.path);
    log_write(&m->shared->log, LOG_INFO, "model '%s' version '%s' loaded in %llu ms", w->name,
              w->version, (unsigned long long)((clock_now_ns() - start_ns) / NS_PER_MS));
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

/* Serves on what is already loaded, if it is from the same file and only its limits changed. */
static bool version_keep(struct models *m, const struct config *config, const struct wanted *w,
                         const struct table_entry *old)
{
    return old && old->model && old->model->source.path &&
           model_source_equal(&old->model->source, &w->source) &&
           dispatch_model_configure(m->shared->dispatch, old->model, config, &w->config, NULL) ==
               STATUS_OK;
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
        enum status s = version_load(m, config, w, &model, &why);
        bool tolerated = !m->loaded_once || (old && old->state == MODEL_UNAVAILABLE);
        if (s != STATUS_OK && !tolerated) {
            error_set(err, s, "model '%s' version '%s': %s", w->name, w->version, why.text);
            return s;
        }
        if (s != STATUS_OK)
            snprintf(reason, sizeof(reason), "%s; the server's log says more", status_name(s));
    }
    if (table_add(table, w->name, w->version, model ? MODEL_READY : MODEL_UNAVAILABLE, reason,
                  model))
        return STATUS_OK;
    model_unref(model);
    return error_no_memory(err, "the table of models");
}

static enum status table_make(struct models *m, const struct config *config, struct table **out,
                              struct error *err)
{
    struct wanted_list list;
    enum status s = repository_list(config, &m->shared->log, &list, err);
    if (s != STATUS_OK)
        return s;
    struct table *table = table_new(config, list.n);
    if (!table)
        s = error_no_memory(err, "the table of models");
    if (s == STATUS_OK)
        s = identities_new(config, m->table->identities, &table->identities, err);
    for (uint32_t i = 0; i < list.n && s == STATUS_OK; i++)
        s = atomic_load_explicit(&m->stop, memory_order_relaxed)
                ? error_plain(err, CAUSE_STOPPED)
                : entry_make(m, config, &list.items[i], table, err);
    repository_list_deinit(&list);
    if (s != STATUS_OK) {
        table_unref(table);
        return s;
    }
    table_sort(table);
    *out = table;
    return STATUS_OK;
}

/* Limits that versions kept from the old table may have been given by a pass that then failed. */
static void limits_restore(struct models *m)
{
    struct wanted_list list;
    if (repository_list(m->config, NULL, &list, NULL) != STATUS_OK)
        return;
    for (uint32_t i = 0; i < list.n; i++)
        version_keep(m, m->config, &list.items[i], served(m->table, &list.items[i]));
    repository_list_deinit(&list);
}

static enum status table_change(struct models *m, struct config *config, struct error *err)
{
    struct table *table;
    TRY(table_make(m, config, &table, err));
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
    enum status s = table_change(m, m->config, &err);
    m->loaded_once = s == STATUS_OK;
    m->ops.done(m->ops.user, true, ready_count(m->table), s == STATUS_OK ? NULL : &err);
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

static void reload_pass(struct models *m)
{
    struct error err;
    struct config *config = NULL;
    enum status s = m->ops.configure(m->ops.user, &config, &err);
    if (s == STATUS_OK) {
        s = table_change(m, config, &err);
        if (s != STATUS_OK)
            limits_restore(m);
    }
    if (s == STATUS_OK) {
        restart_warn(m, config);
        config_keep(m, config);
    } else {
        config_free(config);
    }
    counter_add(&m->shared->counters, s == STATUS_OK ? COUNTER_RELOADS : COUNTER_RELOADS_FAILED, 1);
    m->ops.done(m->ops.user, false, ready_count(m->table), s == STATUS_OK ? NULL : &err);
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
    enum status s = config->plan_keys ? trust_new(config->plan_keys, &m->trust, err) : STATUS_OK;
    const struct plan_cache_config cache = {.folder = config->cache,
                                            .limit = config->cache_bytes,
                                            .device = shared->device,
                                            .device_spec = shared->device_name,
                                            .reference = shared->reference,
                                            .build_memory_bytes = config->build_memory_bytes,
                                            .log = &shared->log,
                                            .counters = &shared->counters,
                                            .trust = m->trust,
                                            .stop = &m->stop};
    if (s == STATUS_OK)
        s = plan_cache_new(&cache, &m->cache, err);
    if (s == STATUS_OK)
        s = thread_start(m, err);
    if (s != STATUS_OK) {
        models_destroy(m);
        return s;
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
