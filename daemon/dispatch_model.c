/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models in the dispatcher. Loading makes a context on every worker's thread, between its batches,
 * and sees to it that every output buffer is large enough. A load that fails is undone (R31 of
 * docs/operations.md).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"
#include "daemon/fits.h"
#include "daemon/pipeline.h"

/* --- output buffers --- */

/* Gives every batch of the worker a buffer of at least `size`; a batch in use, when it returns. */
static enum status outputs_grow(struct dispatch *d, struct dispatch_worker *worker, size_t size,
                                struct error *err)
{
    /* Only the thread that loads changes output_size, so it may read it without the lock. */
    if (size <= worker->output_size)
        return STATUS_OK;
    void *fresh[DISPATCH_OUTPUTS], *old[2 * DISPATCH_OUTPUTS];
    uint32_t n_fresh = 0, n_old = 0;
    enum status status = STATUS_OK;
    while (n_fresh < DISPATCH_OUTPUTS && !status) {
        status = engine_buffer_alloc(d->config.device, size, "outputs", &fresh[n_fresh], err);
        n_fresh += !status;
    }
    if (!status) {
        pthread_mutex_lock(&d->lock);
        worker->output_size = size;
        while (worker->n_spare)
            old[n_old++] = worker->spare[--worker->n_spare];
        for (struct batch *batch = worker->free; batch; batch = batch->next) {
            old[n_old++] = batch->output;
            batch->output = fresh[--n_fresh];
            batch->output_size = size;
        }
        while (n_fresh)
            worker->spare[worker->n_spare++] = fresh[--n_fresh];
        pthread_mutex_unlock(&d->lock);
    }
    while (n_fresh)
        engine_buffer_free(d->config.device, fresh[--n_fresh]);
    while (n_old)
        engine_buffer_free(d->config.device, old[--n_old]);
    return status;
}

/* --- contexts --- */

static enum status lane_open(void *arg, uint32_t worker, void *state, struct error *err)
{
    struct model *model = arg;
    return context_new(model->engine, state, &model->lanes[worker].context, err);
}

static enum status lane_close(void *arg, uint32_t worker, void *state UNUSED,
                              struct error *err UNUSED)
{
    struct model *model = arg;
    context_free(model->lanes[worker].context);
    model->lanes[worker].context = NULL;
    return STATUS_OK;
}

static void model_destroy(struct dispatch *d, struct model *model)
{
    for (uint32_t w = 0; model->lanes && w < d->config.workers; w++) {
        free(model->lanes[w].inputs);
        free(model->lanes[w].spans);
        free(model->lanes[w].requests);
    }
    free(model->lanes);
    free(model->paces);
    free(model->stats.by_batch);
    if (model->engine)
        engine_unref(model->engine);
    pipeline_free(model->pipeline);
    free(model->source.path);
    free(model->name);
    free(model->version);
    free(model);
}

static bool model_arrays(struct dispatch *d, struct model *model)
{
    size_t spans;
    if (!checked_mul(model->info->n_inputs, model->max_items, &spans))
        return false;
    model->lanes = calloc(d->config.workers, sizeof(*model->lanes));
    model->stats.by_batch = calloc((size_t)model->max_batch + 1, sizeof(*model->stats.by_batch));
    model->paces = calloc(model->info->n_profiles, sizeof(*model->paces));
    if (!model->lanes || !model->stats.by_batch || !model->paces)
        return false;
    for (uint32_t p = 0; p < model->info->n_profiles; p++)
        histogram_init(&model->paces[p].run_ns);
    for (uint32_t w = 0; w < d->config.workers; w++) {
        struct model_lane *lane = &model->lanes[w];
        lane->inputs = calloc(model->info->n_inputs + 1, sizeof(*lane->inputs));
        lane->spans = calloc(spans + 1, sizeof(*lane->spans));
        lane->requests = calloc((size_t)model->max_items + 1, sizeof(*lane->requests));
        if (!lane->inputs || !lane->spans || !lane->requests)
            return false;
    }
    return true;
}

/* --- limits --- */

static uint32_t max_batch_of(const struct engine_info *info, const struct config *server,
                             const struct config_model *config)
{
    uint32_t wanted = config->max_batch ? config->max_batch : server->max_batch;
    return wanted ? MIN(wanted, info->max_batch) : info->max_batch;
}

/* What the configuration says of single requests, whether or not they have a queue here. */
static void requests_configure(struct model *model, const struct config_model *config)
{
    atomic_store_explicit(&model->timeout_ns, config->timeout_us * NS_PER_US, memory_order_relaxed);
    atomic_store_explicit(&model->priority_levels, config->priority_levels, memory_order_relaxed);
    atomic_store_explicit(&model->default_priority, config->default_priority, memory_order_relaxed);
}

static struct batcher_model_config queue_config(struct model *model, const struct config *server,
                                                const struct config_model *config)
{
    uint64_t delay_us =
        config->max_delay_us >= 0 ? (uint64_t)config->max_delay_us : server->max_delay_us;
    struct batcher_model_config queue = {
        .max_batch = model->max_batch,
        .max_delay_ns = delay_us * NS_PER_US,
        .queue_limit = config->queue_limit ? config->queue_limit : server->limits.queue_requests,
        .max_running = config->instances,
        .user = model,
    };
    for (uint32_t i = 0; i < config->preferred_count; i++)
        if (config->preferred[i] <= model->max_batch && queue.n_preferred < BATCHER_MAX_PREFERRED)
            queue.preferred[queue.n_preferred++] = config->preferred[i];
    for (uint32_t i = 0; i < queue.n_preferred; i++)
        atomic_store_explicit(&model->preferred[i], queue.preferred[i], memory_order_relaxed);
    atomic_store_explicit(&model->n_preferred, queue.n_preferred, memory_order_relaxed);
    atomic_store_explicit(&model->instances, config->instances, memory_order_relaxed);
    atomic_store_explicit(&model->max_delay_ns, queue.max_delay_ns, memory_order_relaxed);
    atomic_store_explicit(&model->waiting.limit, queue.queue_limit, memory_order_relaxed);
    requests_configure(model, config);
    return queue;
}

enum status dispatch_model_configure(struct dispatch *d, struct model *model,
                                     const struct config *server, const struct config_model *config,
                                     struct error *err)
{
    uint32_t max_instances = 0;
    TRY(fits_check(model->info, &server->limits, d->config.workers, model->max_batch,
                   &max_instances, err));
    if (max_batch_of(model->info, server, config) != model->max_batch ||
        max_instances != model->max_instances ||
        (model->info->late &&
         fits_reply_bytes(model->info, &server->limits) != model->max_output_bytes))
        return error_set(err, STATUS_FAILED_PRECONDITION, "another max_batch needs another load");
    struct batcher_model_config queue = queue_config(model, server, config);
    pthread_mutex_lock(&d->lock);
    enum status status = batcher_model_configure(model->queue, &queue, err);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* --- load and unload --- */

static enum status model_start(struct dispatch *d, struct model *model, const struct config *server,
                               const struct config_model *config, struct error *err)
{
    for (uint32_t w = 0; w < d->config.workers; w++)
        TRY(outputs_grow(d, &d->workers[w], model->info->out_bytes_max, err));
    if (!model->base)
        TRY(pool_call_each(d->pool, lane_open, model, err));
    for (uint32_t w = 0; model->base && w < d->config.workers; w++)
        TRY(pool_call_one(d->pool, w, lane_open, model, err));
    struct batcher_model_config queue = queue_config(model, server, config);
    pthread_mutex_lock(&d->lock);
    enum status status = batcher_model_add(d->batcher, &queue, &model->queue, err);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static void lanes_close(struct dispatch *d, struct model *model)
{
    enum status status UNUSED = pool_call_each(d->pool, lane_close, model, NULL);
    assert(!status);
}

static enum status model_open(struct dispatch *d, struct model *model, const struct config *server,
                              const struct config_model *config, struct error *err)
{
    TRY(admission_model_check(model->info, err));
    TRY(fits_check(model->info, &server->limits, d->config.workers, model->max_batch,
                   &model->max_instances, err));
    model->max_output_bytes = fits_reply_bytes(model->info, &server->limits);
    if (!model->name || !model->version || !model_arrays(d, model))
        return error_no_memory(err, "a model");
    enum status status = model_start(d, model, server, config, err);
    if (status)
        lanes_close(d, model);
    return status;
}

static struct model *model_new(struct dispatch *d, const char *name, const char *version)
{
    struct model *model = calloc(1, sizeof(*model));
    if (!model)
        return NULL;
    atomic_init(&model->refs, 1);
    model->dispatch = d;
    model->stats.since_ms = clock_wall_ms();
    model->name = strdup(name);
    model->version = strdup(version);
    return model;
}

/* Steps leave on the device what others take, as far as there is memory for it. */
static void pipeline_shelves(struct dispatch *d, const struct config *config, const char *name,
                             const struct pipeline *pipeline)
{
    size_t size = 0, all;
    struct error err;
    for (uint32_t s = 0; s < pipeline->n_steps; s++)
        if (pipeline->steps[s].shelve)
            size = MAX(size, pipeline->steps[s].model->info->out_bytes_max);
    if (!size || !engine_device_apart(d->config.device))
        return;
    if (!checked_mul(size, (size_t)d->config.workers * DISPATCH_KEPT, &all) ||
        all > fits_model_bytes(&config->limits))
        error_set(&err, STATUS_RESOURCE_EXHAUSTED, "it takes more than limits.model_bytes");
    else if (!dispatch_shelves_grow(d, size, &err))
        return;
    log_write(d->config.log, LOG_WARNING,
              "pipeline '%s': no memory of the device for %zu bytes between steps (%s): larger "
              "batches go through the host",
              name, size, err.text);
}

enum status dispatch_pipeline_load(struct dispatch *d, const struct config *config,
                                   const char *name, const char *version, struct pipeline *pipeline,
                                   struct model **out, struct error *err)
{
    struct model *model = model_new(d, name, version);
    if (!model) {
        pipeline_free(pipeline);
        return error_no_memory(err, "a model");
    }
    model->pipeline = pipeline;
    model->info = &pipeline->info;
    model->max_batch = pipeline->max_batch;
    model->stats.by_batch = calloc((size_t)model->max_batch + 1, sizeof(*model->stats.by_batch));
    requests_configure(model, &pipeline->file->config);
    enum status status = model->name && model->version && model->stats.by_batch
                             ? pipeline_fits(pipeline, &config->limits, &model->max_instances, err)
                             : error_no_memory(err, "a model");
    if (status) {
        model_destroy(d, model);
        return status;
    }
    pipeline_shelves(d, config, name, pipeline);
    *out = model;
    return STATUS_OK;
}

/* Takes over `engine`. */
static enum status model_load(struct dispatch *d, const struct config *server,
                              const struct config_model *config, const char *version,
                              struct model *base, struct engine *engine, struct model **out,
                              struct error *err)
{
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&d->loading);
    struct model *model = model_new(d, config->name, version);
    if (!model) {
        engine_unref(engine);
        return error_no_memory(err, "a model");
    }
    model->base = base;
    model->engine = engine;
    model->info = engine_describe(engine);
    model->max_batch = max_batch_of(model->info, server, config);
    if (base) /* what is counted by the size of a batch has room for so many */
        model->max_batch = MIN(model->max_batch, base->max_batch);
    model->max_items = MIN(model->max_batch, (uint32_t)BATCHER_MAX_ITEMS);
    enum status status = model_open(d, model, server, config, err);
    if (status)
        model_destroy(d, model);
    else
        *out = model;
    return status;
}

enum status dispatch_model_load_beside(struct dispatch *d, const struct config *server,
                                       const struct config_model *config, struct model *base,
                                       struct engine *engine, struct model **out, struct error *err)
{
    return model_load(d, server, config, base->version, base, engine, out, err);
}

enum status dispatch_model_load(struct dispatch *d, const struct config *server,
                                const struct config_model *config, const char *version,
                                struct engine *engine, struct model **out, struct error *err)
{
    struct model *model;
    TRY(model_load(d, server, config, version, NULL, engine, &model, err));
    if (model->max_instances < model->max_batch)
        log_write(d->config.log, LOG_WARNING,
                  "model '%s' version '%s': a request carries at most %u instances, a batch %u: "
                  "the outputs of more do not fit limits.output_bytes",
                  model->name, model->version, model->max_instances, model->max_batch);
    *out = model;
    return STATUS_OK;
}

static enum status context_try(struct context *context, const struct dispatch_trial *trial,
                               void *output, struct error *err)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        TRY(context_enqueue_at(context, trial->point, trial->batch, trial->inputs, output, err));
        TRY(context_wait(context, NULL, err));
    }
    return STATUS_OK;
}

static enum status lane_try(void *arg, uint32_t worker, void *state UNUSED, struct error *err)
{
    const struct dispatch_trial *trial = arg;
    struct model *model = trial->model;
    struct device *device = model->dispatch->config.device;
    void *output;
    TRY(engine_buffer_alloc(device, MAX(model->info->out_bytes_max, (size_t)1), "warm-up", &output,
                            err));
    enum status status = context_try(model->lanes[worker].context, trial, output, err);
    engine_buffer_free(device, output);
    return status;
}

enum status dispatch_model_try(struct dispatch *d, const struct dispatch_trial *trial,
                               struct error *err)
{
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&d->loading);
    struct dispatch_trial own = *trial;
    return pool_call_each(d->pool, lane_try, &own, err);
}

void dispatch_model_retire(struct dispatch *d, struct model *model)
{
    d->config.retire(d->config.user, model);
}

void dispatch_model_unload(struct dispatch *d, struct model *model)
{
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&d->loading);
    if (model->engine)
        lanes_close(d, model);
    if (model->queue) {
        pthread_mutex_lock(&d->lock);
        batcher_model_remove(model->queue);
        pthread_mutex_unlock(&d->lock);
    }
    model_destroy(d, model);
}
