/* SPDX-License-Identifier: Apache-2.0 */
/* What models and requests ask of engines for new sizes, see shapes.h. */
#include "daemon/shapes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/loop.h"
#include "daemon/shapes_internal.h"

void shapes_figures_note(struct shapes *s)
{
    atomic_store_explicit(&s->engines, shape_cache_count(s->cache, SHAPE_READY),
                          memory_order_relaxed);
    atomic_store_explicit(&s->bytes, shape_cache_bytes(s->cache), memory_order_relaxed);
}

void shapes_chain_free(struct shape_entry *chain)
{
    while (chain) {
        struct shape_entry *shape = chain;
        chain = shape->next;
        if (shape->held)
            model_unref(shape->held);
        free(shape);
    }
}

void shapes_wake(const struct shapes *s)
{
    for (uint32_t i = 0; i < s->shared->n_loops; i++)
        loop_shapes_news(s->shared->loops[i]);
}

static struct shape_key key_of(const struct model *model, const int64_t *values)
{
    struct shape_key key = {.owner = model, .n = model->info->n_free};
    memcpy(key.values, values, key.n * sizeof(key.values[0]));
    return key;
}

/* --- models --- */

static void settings_fill(struct shapes_settings *out, const struct wanted *w,
                          const struct config *config)
{
    memset(out, 0, sizeof(*out));
    out->server.max_batch = config->max_batch;
    out->server.max_delay_us = config->max_delay_us;
    out->server.limits = config->limits;
    out->model.max_batch = w->config.max_batch;
    out->model.max_delay_us = w->config.max_delay_us;
    out->model.queue_limit = w->config.queue_limit;
    out->model.instances = w->config.instances;
    out->model.timeout_us = w->config.timeout_us;
    out->model.priority_levels = w->config.priority_levels;
    out->model.default_priority = w->config.default_priority;
    out->model.preferred_count = MIN(w->config.preferred_count, (uint32_t)CONFIG_PREFERRED_MAX);
    for (uint32_t i = 0; i < out->model.preferred_count; i++)
        out->preferred[i] = w->config.preferred[i];
}

/* What loading a model asks of its settings (dispatch_model.c, fits.c). */
static bool settings_equal(const struct shapes_settings *a, const struct shapes_settings *b)
{
    const struct config *s = &a->server, *t = &b->server;
    const struct config_model *m = &a->model, *n = &b->model;
    return s->max_batch == t->max_batch && s->max_delay_us == t->max_delay_us &&
           s->limits.frame_bytes == t->limits.frame_bytes &&
           s->limits.inflight_bytes == t->limits.inflight_bytes &&
           s->limits.connection_inflight_bytes == t->limits.connection_inflight_bytes &&
           s->limits.address_inflight_bytes == t->limits.address_inflight_bytes &&
           s->limits.output_bytes == t->limits.output_bytes &&
           s->limits.queue_requests == t->limits.queue_requests &&
           s->limits.model_bytes == t->limits.model_bytes && m->max_batch == n->max_batch &&
           m->max_delay_us == n->max_delay_us && m->queue_limit == n->queue_limit &&
           m->instances == n->instances && m->timeout_us == n->timeout_us &&
           m->priority_levels == n->priority_levels && m->default_priority == n->default_priority &&
           m->preferred_count == n->preferred_count &&
           memcmp(a->preferred, b->preferred, sizeof(a->preferred)) == 0;
}

static enum shapes_policy policy_of(const struct config_model *config)
{
    static const char *const words[] = {
        [SHAPES_WAIT] = "wait", [SHAPES_REFUSE] = "refuse", [SHAPES_FALLBACK] = "fallback"};
    for (uint32_t i = SHAPES_WAIT; config->on_new_shape && i < ARRAY_LEN(words); i++)
        if (strcmp(config->on_new_shape, words[i]) == 0)
            return i;
    return SHAPES_NOTHING;
}

/* Takes out the engines that were made with other settings. */
static struct shape_entry *settings_apply(struct model_shapes *own, const struct model *model,
                                          const struct wanted *w, const struct config *config)
{
    struct shapes *s = own->shapes;
    struct shapes_settings settings;
    struct shape_entry *gone = NULL;
    settings_fill(&settings, w, config);
    atomic_store_explicit(&own->policy, policy_of(&w->config), memory_order_relaxed);
    pthread_mutex_lock(&s->lock);
    if (!settings_equal(&own->settings, &settings))
        gone = shape_cache_take(s->cache, model);
    own->settings = settings;
    shapes_figures_note(s);
    pthread_mutex_unlock(&s->lock);
    return gone;
}

enum status shapes_attach(struct shapes *s, struct model *model, const struct wanted *w,
                          const struct config *config, struct error *err)
{
    if (!w->onnx || w->fd < 0 || !model->info->n_free || model->pipeline)
        return STATUS_OK;
    if (model->shapes) {
        shapes_chain_free(settings_apply(model->shapes, model, w, config));
        shapes_wake(s); /* who waits asks again */
        return STATUS_OK;
    }
    struct model_shapes *own = calloc(1, sizeof(*own));
    if (!own)
        return error_no_memory(err, "a model");
    own->shapes = s;
    enum status status = shape_source_new(w, &own->source, err);
    if (status) {
        free(own);
        return status;
    }
    settings_apply(own, model, w, config);
    model->shapes = own;
    return STATUS_OK;
}

void shapes_detach(struct model *model)
{
    struct model_shapes *own = STEAL(model->shapes);
    if (!own)
        return;
    pthread_mutex_lock(&own->shapes->lock);
    struct shape_entry *gone = shape_cache_take(own->shapes->cache, model);
    shapes_figures_note(own->shapes);
    pthread_mutex_unlock(&own->shapes->lock);
    shapes_chain_free(gone);
    shape_source_free(own->source);
    free(own);
}

/* --- requests --- */

static enum status refused(const struct shapes_question *q, enum cause cause, struct error *err)
{
    char text[ADMISSION_VALUES_TEXT];
    struct error there;
    admission_values_text(q->model->info, q->values, text);
    if (cause == CAUSE_SHAPE_BUILDING) {
        admission_no_point(q->model->info, q->values, &there);
        return error_cause(err, cause, "an engine for %s is being built: try again; until then: %s",
                           text, there.text);
    }
    return error_cause(err, cause, "model '%s', %s: %s", q->model->name, text,
                       cause_row(cause)->sentence);
}

static enum cause ask_new(struct shapes *s, const struct shapes_question *q,
                          const struct shape_key *key)
{
    struct shape_entry *shape;
    if (atomic_load_explicit(&s->stop, memory_order_relaxed))
        return CAUSE_DRAINING;
    enum cause cause = shape_cache_queue(s->cache, key, q->asker, &s->limits, &shape);
    if (cause)
        return cause;
    shape->held = model_ref(q->model);
    if (q->begun)
        ++*q->begun;
    pthread_cond_signal(&s->wake);
    return CAUSE_OK;
}

/* Under the lock. */
static enum cause ask(struct shapes *s, const struct shapes_question *q, struct model **out,
                      struct model **aside, enum status *why_status)
{
    struct shape_key key = key_of(q->model, q->values);
    struct shape_entry *shape = shape_cache_find(s->cache, &key, clock_now_ns());
    if (!shape)
        return ask_new(s, q, &key);
    if (shape->state == SHAPE_FAILED) {
        *why_status = shape->why_status;
        return CAUSE_SHAPE_FAILED;
    }
    if (shape->state == SHAPE_READY) {
        shape_cache_used(s->cache, shape);
        *out = model_ref(shape->held);
    } else if (shape->aside) {
        *aside = model_ref(shape->aside);
    }
    return CAUSE_OK;
}

enum status shapes_ask(const struct shapes_question *q, struct model **out, struct error *err)
{
    struct model_shapes *own = q->model->shapes;
    struct model *engine = NULL, *aside = NULL;
    enum status why_status = STATUS_OK;
    unsigned policy = own ? atomic_load_explicit(&own->policy, memory_order_relaxed) : 0;
    if (policy == SHAPES_NOTHING)
        return admission_no_point(q->model->info, q->values, err);
    pthread_mutex_lock(&own->shapes->lock);
    enum cause cause = ask(own->shapes, q, &engine, &aside, &why_status);
    pthread_mutex_unlock(&own->shapes->lock);
    if (!q->again)
        counter_add(q->counters, engine ? COUNTER_SHAPE_HITS : COUNTER_SHAPE_MISSES, 1);
    if (cause == CAUSE_SHAPE_FAILED)
        return error_cause(err, cause, "model '%s': %s: %s; the server's log says more",
                           q->model->name, cause_row(cause)->sentence, status_name(why_status));
    if (cause)
        return refused(q, cause, err);
    if (!engine && policy == SHAPES_REFUSE && !q->again)
        return refused(q, CAUSE_SHAPE_BUILDING, err);
    if (aside)
        counter_add(q->counters, COUNTER_SHAPE_FALLBACKS, 1);
    *out = engine ? engine : aside;
    return STATUS_OK;
}

enum status shapes_wait_in(const struct model *model, const struct config_limits *limits,
                           uint64_t bytes, struct error *err)
{
    struct shapes *s = model->shapes->shapes;
    uint64_t n = atomic_fetch_add_explicit(&s->waiting, 1, memory_order_relaxed);
    uint64_t sum = atomic_fetch_add_explicit(&s->waiting_bytes, bytes, memory_order_relaxed);
    if (n < limits->shape_requests && sum + bytes <= limits->shape_request_bytes)
        return STATUS_OK;
    shapes_wait_out(model, bytes);
    return error_cause(
        err, CAUSE_SHAPES_FULL,
        "model '%s': an engine for these sizes is being built, and too many requests "
        "wait for one",
        model->name);
}

void shapes_wait_out(const struct model *model, uint64_t bytes)
{
    struct shapes *s = model->shapes->shapes;
    atomic_fetch_sub_explicit(&s->waiting, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&s->waiting_bytes, bytes, memory_order_relaxed);
}

struct shapes_figures shapes_look(const struct shapes *s)
{
    if (!s)
        return (struct shapes_figures){0};
    return (struct shapes_figures){atomic_load_explicit(&s->engines, memory_order_relaxed),
                                   atomic_load_explicit(&s->bytes, memory_order_relaxed),
                                   atomic_load_explicit(&s->waiting, memory_order_relaxed)};
}
