/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that builds and keeps engines for new sizes, see shapes.h. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/fits.h"
#include "daemon/shapes.h"
#include "daemon/shapes_internal.h"

enum {
    SAY_AGAIN_S = 60,
    VALUES_BYTES = 4096,
    PLANS_KEPT = 16, /* on disk, for each engine that may be in memory */
};

/* --- building one --- */

struct making {
    struct shapes *s;
    struct model *base;
    const int64_t *values;
    struct engine *engine;
    struct shapes_settings settings;
    uint32_t timeout_s;
    bool on_cpu; /* all its layers */
    bool kept;   /* its plan was there already */
};

/* Whether it is what was asked for: a plan is not trusted. */
static bool is_like(const struct making *m, const struct engine_info *info)
{
    const struct engine_info *base = m->base->info;
    bool like = info->n_inputs == base->n_inputs && info->n_outputs == base->n_outputs &&
                info->batched == base->batched && info->late == base->late &&
                info->n_free == base->n_free && info->n_points == 1 &&
                strcmp(info->digest, base->digest) == 0;
    for (uint32_t i = 0; like && i < base->n_free; i++)
        like = info->points[0].values[i] == m->values[i];
    for (uint32_t i = 0; like && i < base->n_inputs; i++)
        like = strcmp(info->inputs[i].name, base->inputs[i].name) == 0 &&
               info->inputs[i].dtype == base->inputs[i].dtype;
    for (uint32_t i = 0; like && i < base->n_outputs; i++)
        like = strcmp(info->outputs[i].name, base->outputs[i].name) == 0 &&
               info->outputs[i].dtype == base->outputs[i].dtype;
    return like;
}

static enum status engine_open(struct making *m, struct error *err)
{
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(VALUES_BYTES);
    struct wanted wanted;
    if (!arena)
        return error_no_memory(err, "an engine");
    TRY(shape_source_at(m->base->shapes->source, m->base->info, m->values, m->on_cpu, arena,
                        &wanted, err));
    uint64_t builds = plan_cache_builds(m->s->plans);
    TRY(plan_cache_load(m->s->plans, &wanted, m->timeout_s, m->base->engine, &m->engine, err));
    m->kept = builds == plan_cache_builds(m->s->plans);
    if (is_like(m, engine_describe(m->engine)))
        return STATUS_OK;
    engine_unref(m->engine);
    return error_set(err, STATUS_INTERNAL, "the plan that was built is not like the model's");
}

/* Lets others go to make room. */
static enum status room_make(struct shapes *s, uint64_t bytes, struct error *err)
{
    struct shape_entry *gone = NULL;
    pthread_mutex_lock(&s->lock);
    bool room = shape_cache_room(s->cache, bytes, &s->limits, &gone);
    uint64_t limit = s->limits.bytes;
    shapes_figures_note(s);
    pthread_mutex_unlock(&s->lock);
    for (const struct shape_entry *each = gone; each; each = each->next)
        counter_add(&s->shared->counters, COUNTER_SHAPES_EVICTED, 1);
    shapes_chain_free(gone);
    return room ? STATUS_OK
                : error_set(err, STATUS_FAILED_PRECONDITION,
                            "the engine takes %llu bytes; shape_bytes is %llu, for all of them",
                            (unsigned long long)bytes, (unsigned long long)limit);
}

static void retired_unload(struct shapes *s)
{
    pthread_mutex_lock(&s->lock);
    struct model *list = STEAL(s->retired);
    pthread_mutex_unlock(&s->lock);
    while (list) {
        struct model *model = list;
        list = model->next;
        plan_cache_release(s->plans, model->engine);
        dispatch_model_unload(s->shared->dispatch, model);
    }
}

static enum status model_make(struct making *m, struct model **out, uint64_t *bytes,
                              struct error *err)
{
    struct shapes *s = m->s;
    const struct engine_info *info = engine_describe(m->engine);
    struct shapes_settings *set = &m->settings;
    *bytes = fits_bytes(info, dispatch_workers(s->shared->dispatch));
    enum status status = room_make(s, *bytes, err);
    retired_unload(s); /* before more memory is taken */
    if (status) {
        engine_unref(m->engine);
        return status;
    }
    set->model.name = m->base->name;
    set->model.preferred = set->preferred;
    TRY(dispatch_model_load_beside(s->shared->dispatch, &set->server, &set->model, m->base,
                                   m->engine, out, err));
    engine_settle((*out)->engine);
    return STATUS_OK;
}

static enum status make(struct making *m, struct model **out, uint64_t *bytes, struct error *err)
{
    TRY(engine_open(m, err));
    const struct engine *engine = m->engine;
    enum status status = model_make(m, out, bytes, err);
    if (status)
        plan_cache_release(m->s->plans, engine);
    return status;
}

/* Clients cannot fill the log: lines about single sizes are for those who look closer. */
static void say(struct shapes *s, const struct making *m, uint64_t begun_ns,
                const struct error *why)
{
    char text[ADMISSION_VALUES_TEXT];
    uint64_t now_ns = clock_now_ns();
    bool news = why && (!s->said_ns || now_ns - s->said_ns >= SAY_AGAIN_S * NS_PER_S);
    admission_values_text(m->base->info, m->values, text);
    if (why)
        log_write(&s->shared->log, news ? LOG_WARNING : LOG_VERBOSE,
                  "model '%s' version '%s': no engine for %s: %s", m->base->name, m->base->version,
                  text, why->text);
    else
        log_write(&s->shared->log, LOG_VERBOSE,
                  "model '%s' version '%s': an engine for %s, %s in %llu ms", m->base->name,
                  m->base->version, text, m->kept ? "loaded" : "built",
                  (unsigned long long)((now_ns - begun_ns) / NS_PER_MS));
    if (news)
        s->said_ns = now_ns;
}

/* What serves on the CPU while the device's engine is built: one worker at a time runs it. NULL:
 * nothing does. Engines are built one at a time, so there is one of these at most. */
static struct model *aside_make(struct making *m, struct shape_entry *shape)
{
    struct shapes *s = m->s;
    struct making aside = *m;
    struct model *made;
    uint64_t bytes;
    struct error err;
    unsigned policy = atomic_load_explicit(&m->base->shapes->policy, memory_order_relaxed);
    if (policy != SHAPES_FALLBACK || strcmp(s->shared->device_name, "cpu") == 0)
        return NULL;
    aside.on_cpu = true;
    aside.settings.model.instances = 1;
    if (make(&aside, &made, &bytes, &err)) {
        log_write(&s->shared->log, LOG_VERBOSE, "model '%s' version '%s': nothing on the CPU: %s",
                  m->base->name, m->base->version, err.text);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    shape->aside = made;
    pthread_mutex_unlock(&s->lock);
    shapes_wake(s);
    return made;
}

static void build_one(struct shapes *s, struct shape_entry *shape)
{
    struct making m = {.s = s, .base = shape->held, .values = shape->key.values};
    struct model *made = NULL;
    uint64_t bytes = 0, begun_ns = clock_now_ns();
    struct error err;
    pthread_mutex_lock(&s->lock);
    m.settings = m.base->shapes->settings;
    m.timeout_s = s->build_timeout_s;
    pthread_mutex_unlock(&s->lock);
    struct model *aside = aside_make(&m, shape);
    enum status status = make(&m, &made, &bytes, &err);
    bool stopped = atomic_load_explicit(&s->stop, memory_order_relaxed);
    say(s, &m, begun_ns, status ? &err : NULL);
    pthread_mutex_lock(&s->lock);
    shape->aside = NULL;
    if (!status)
        shape_cache_ready(s->cache, shape, made, bytes);
    else if (stopped)
        shape_cache_forget(s->cache, shape);
    else
        shape_cache_failed(s->cache, shape, err.status, clock_now_ns());
    shapes_figures_note(s);
    pthread_mutex_unlock(&s->lock);
    model_unref(aside);
    counter_add(&s->shared->counters,
                status   ? COUNTER_SHAPES_FAILED
                : m.kept ? COUNTER_SHAPES_LOADED
                         : COUNTER_SHAPES_BUILT,
                1);
    model_unref(m.base);
    shapes_wake(s);
}

/* --- the thread --- */

/* NULL: it is time to end. */
static struct shape_entry *next_wait(struct shapes *s)
{
    struct shape_entry *shape = NULL;
    pthread_mutex_lock(&s->lock);
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed) && !shape) {
        if (s->retired) {
            pthread_mutex_unlock(&s->lock);
            retired_unload(s);
            pthread_mutex_lock(&s->lock);
        } else if (!(shape = shape_cache_next(s->cache))) {
            pthread_cond_wait(&s->wake, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return shape;
}

static void *thread_run(void *arg)
{
    struct shapes *s = arg;
    struct shape_entry *shape;
    pthread_setname_np(pthread_self(), "shapes");
    while ((shape = next_wait(s)))
        build_one(s, shape);
    pthread_mutex_lock(&s->lock);
    struct shape_entry *left = shape_cache_take(s->cache, NULL);
    shapes_figures_note(s);
    pthread_mutex_unlock(&s->lock);
    shapes_chain_free(left);
    shapes_wake(s); /* who waits hears that nothing comes */
    return NULL;
}

void shapes_retire(struct shapes *s, struct model *model)
{
    pthread_mutex_lock(&s->lock);
    model->next = s->retired;
    s->retired = model;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* --- life --- */

void shapes_configure(struct shapes *s, const struct config *config)
{
    pthread_mutex_lock(&s->lock);
    s->limits = (struct shape_limits){config->shape_engines, config->shape_bytes,
                                      config->limits.shape_builds};
    s->build_timeout_s = config->build_timeout_s;
    pthread_mutex_unlock(&s->lock);
}

static enum status parts_make(struct shapes *s, const struct plan_cache_config *plans,
                              const struct config *config, struct error *err)
{
    struct plan_cache_config own = *plans;
    sigset_t all, old;
    own.below = "shapes";
    own.limit = config->shape_cache_bytes;
    own.most = PLANS_KEPT * config->shape_engines;
    own.quiet = true;
    own.stop = &s->stop;
    s->cache = shape_cache_new();
    if (!s->cache)
        return error_no_memory(err, "engines for new shapes");
    TRY(plan_cache_new(&own, &s->plans, err));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    int r = pthread_create(&s->thread, NULL, thread_run, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    s->started = r == 0;
    return r == 0 ? STATUS_OK : error_errno(err, r, "the thread for new shapes");
}

enum status shapes_new(struct shared *shared, const struct plan_cache_config *plans,
                       const struct config *config, struct shapes **out, struct error *err)
{
    struct shapes *s = calloc(1, sizeof(*s));
    if (!s)
        return error_no_memory(err, "engines for new shapes");
    s->shared = shared;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    shapes_configure(s, config);
    enum status status = parts_make(s, plans, config, err);
    if (status)
        shapes_free(s);
    else
        *out = s;
    return status;
}

void shapes_stop(struct shapes *s)
{
    if (!s || !s->started)
        return;
    pthread_mutex_lock(&s->lock);
    atomic_store_explicit(&s->stop, true, memory_order_relaxed);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->started = false;
}

void shapes_free(struct shapes *s)
{
    if (!s)
        return;
    shapes_stop(s);
    retired_unload(s);
    assert(!s->cache || !shape_cache_count(s->cache, SHAPE_READY));
    shape_cache_free(s->cache);
    plan_cache_free(s->plans);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s);
}
