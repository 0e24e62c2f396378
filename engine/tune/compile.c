/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling candidates. They are independent of each other and slow to compile, so all cores take
 * part; the caller's thread is one of the workers, after whatever it does meanwhile. Jobs are taken
 * in their order.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "engine/tune/internal.h"

enum {
    THREADS_MAX = 64,
    SLOW_NS = 10 * 1000 * 1000, /* precompiled kernels take less */
};

struct tune_compiling {
    struct tune_table *table;
    const struct tune_options *options;
    struct tune_job *jobs;
    uint32_t n;
    uint64_t deadline; /* 0: none */
    pthread_mutex_t lock;
    uint32_t next, finished; /* under the lock, as all below */
    struct tune_effort effort;
    enum status status; /* the first error that ends everything */
    struct error err;
    pthread_t threads[THREADS_MAX]; /* the caller's alone */
    uint32_t started;
};

static bool take(struct tune_compiling *p, struct tune_job **job)
{
    pthread_mutex_lock(&p->lock);
    bool more = !p->status && p->next < p->n && (!p->deadline || clock_now_ns() < p->deadline);
    if (more)
        *job = &p->jobs[p->next++];
    pthread_mutex_unlock(&p->lock);
    return more;
}

static enum status compile_one(const struct tune_job *job, struct error *err)
{
    struct device *device = job->entry->device;
    const struct tactic *tactic = job->option->tactic;
    struct ir_graph *shaped;
    if (!device->backend->compile)
        return STATUS_OK;
    TRY(tune_sample_shaped(job->entry->sample, tactic, &shaped, err));
    enum status status = device->backend->compile(device, shaped, ir_node(shaped, 0), tactic, err);
    ir_graph_free(shaped);
    return status;
}

static uint32_t finish(struct tune_compiling *p, struct tune_job *job, enum status status,
                       uint64_t ns, const struct error *err)
{
    if (status) {
        job->option->ns = TUNE_NEVER;
        snprintf(job->why, sizeof(job->why), "%.*s", (int)sizeof(job->why) - 1, err->text);
    } else {
        job->option->compiled = true;
    }
    pthread_mutex_lock(&p->lock);
    if (status && err->scope == ERROR_DEVICE && !p->status) {
        p->status = status;
        p->err = *err;
    }
    p->effort.slow += ns >= SLOW_NS;
    p->effort.core_ns += ns;
    uint32_t finished = ++p->finished;
    pthread_mutex_unlock(&p->lock);
    return finished;
}

static void *work(void *user)
{
    struct tune_compiling *p = user;
    struct tune_job *job;
    while (take(p, &job)) {
        struct error err = {0};
        uint64_t begin = clock_now_ns();
        enum status status = compile_one(job, &err);
        finish(p, job, status, clock_now_ns() - begin, &err);
    }
    return NULL;
}

/* The same on the caller's thread, which alone may tell of progress. */
static void work_here(struct tune_compiling *p)
{
    const struct tune_options *o = p->options;
    struct tune_job *job;
    while (take(p, &job)) {
        struct error err = {0};
        uint64_t begin = clock_now_ns();
        enum status status = compile_one(job, &err);
        uint32_t finished = finish(p, job, status, clock_now_ns() - begin, &err);
        if (o->progress)
            o->progress(o->user, finished, p->n, "compiling");
    }
}

static bool any_compiles(const struct tune_job *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (jobs[i].entry->device->backend->compile)
            return true;
    return false;
}

/* `meanwhile`: the caller comes later. If fewer threads start, this only takes longer. */
static void start(struct tune_compiling *p, bool meanwhile)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = (uint32_t)MIN(MAX(cores, 1), THREADS_MAX);
    uint32_t wanted = meanwhile ? MIN(most - 1, p->n) : MIN(most, p->n) - (p->n > 0);
    while (p->started < wanted && !pthread_create(&p->threads[p->started], NULL, work, p))
        p->started++;
}

static enum status begin(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                         uint64_t budget_ns, bool meanwhile, struct tune_compiling **out,
                         struct error *err)
{
    struct tune_compiling *p = calloc(1, sizeof(*p));
    if (!p)
        return error_no_memory(err, "the tuner");
    p->table = table;
    p->options = tune_table_options(table);
    p->jobs = jobs;
    p->n = n;
    p->deadline = budget_ns ? clock_now_ns() + budget_ns : 0;
    pthread_mutex_init(&p->lock, NULL);
    if (any_compiles(jobs, n))
        start(p, meanwhile);
    *out = p;
    return STATUS_OK;
}

enum status tune_compile_begin(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                               uint64_t budget_ns, struct tune_compiling **out, struct error *err)
{
    return begin(table, jobs, n, budget_ns, true, out, err);
}

enum status tune_compile_end(struct tune_compiling *p, struct error *err)
{
    if (any_compiles(p->jobs, p->n))
        work_here(p);
    else
        for (uint32_t i = 0; i < p->n; i++)
            p->jobs[i].option->compiled = true;
    for (uint32_t i = 0; i < p->started; i++)
        pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    p->effort.compiled = p->finished;
    tune_effort_add(&tune_table_report(p->table)->effort, &p->effort);
    enum status status = p->status;
    if (status && err)
        *err = p->err;
    free(p);
    return status;
}

enum status tune_compile(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                         uint64_t budget_ns, struct error *err)
{
    struct tune_compiling *p;
    TRY(begin(table, jobs, n, budget_ns, false, &p, err));
    return tune_compile_end(p, err);
}

/* --- what was chosen --- */

/* Gives the tactic the code that the cache has for it, if any. */
static enum status recall(struct tune_table *t, const struct tune_job *job, struct arena *arena,
                          struct error *err)
{
    struct tune_cache *cache = tune_table_options(t)->cache;
    struct tactic *tactic = job->option->tactic;
    struct tune_key key = tune_table_key(t, job->entry, tactic);
    const void *code;
    uint64_t size;
    if (!cache || !job->entry->device->backend->code || tactic->code ||
        !tune_cache_get_code(cache, &key, &code, &size))
        return STATUS_OK;
    void *copy = arena_alloc(arena, size);
    if (!copy)
        return error_no_memory(err, "the tuner");
    memcpy(copy, code, size);
    tactic->code = copy;
    tactic->code_size = size;
    return STATUS_OK;
}

/* Asks the backend for the code, and the cache to keep it. */
static enum status obtain(struct tune_table *t, const struct tune_job *job, struct arena *arena,
                          struct error *err)
{
    struct tune_cache *cache = tune_table_options(t)->cache;
    struct device *device = job->entry->device;
    struct tactic *tactic = job->option->tactic;
    struct tune_key key = tune_table_key(t, job->entry, tactic);
    struct ir_graph *shaped;
    const void *code = NULL;
    uint64_t size = 0;
    if (!device->backend->code || tactic->code)
        return STATUS_OK;
    TRY(tune_sample_shaped(job->entry->sample, tactic, &shaped, err));
    enum status status =
        device->backend->code(device, shaped, ir_node(shaped, 0), tactic, arena, &code, &size, err);
    ir_graph_free(shaped);
    if (status) {
        error_prefix(err, "the code of '%s'", tactic->name);
        return status;
    }
    if (size == 0)
        return STATUS_OK;
    tactic->code = code;
    tactic->code_size = size;
    return !cache || tune_cache_put_code(cache, &key, code, size)
               ? STATUS_OK
               : error_no_memory(err, "the tuner");
}

/* Compiles the tactics anew whose code from the cache did not work; `before`: their times. */
static enum status retry(struct tune_table *t, struct tune_job *jobs, uint32_t n,
                         const uint64_t *before, struct error *err)
{
    uint32_t again = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct tune_option *o = jobs[i].option;
        if (o->ns < TUNE_NEVER || !o->tactic->code)
            continue;
        o->ns = before[i];
        o->tactic->code = NULL;
        o->tactic->code_size = 0;
        again++;
    }
    for (uint32_t i = 0; i < n && again; i++)
        if (!jobs[i].option->compiled && jobs[i].option->ns < TUNE_NEVER)
            TRY(tune_compile(t, &jobs[i], 1, 0, err));
    return STATUS_OK;
}

static enum status remember_failure(struct tune_table *t, const struct tune_job *job,
                                    struct error *err)
{
    struct tune_cache *cache = tune_table_options(t)->cache;
    struct tune_key key = tune_table_key(t, job->entry, job->option->tactic);
    log_write(tune_table_options(t)->log, LOG_VERBOSE, "'%s' with '%s': not used after all: %s",
              ir_node(job->entry->sample, 0)->name, job->option->tactic->name, job->why);
    return !cache || tune_cache_put(cache, &key, TUNE_NEVER) ? STATUS_OK
                                                             : error_no_memory(err, "the tuner");
}

enum status tune_compile_chosen(struct tune_table *t, struct tune_job *jobs, uint32_t n,
                                struct arena *arena, bool *again, struct error *err)
{
    CLEANUP(cleanup_free) struct tune_job *list = calloc((size_t)n + 1, sizeof(*list));
    CLEANUP(cleanup_free) uint64_t *before = calloc((size_t)n + 1, sizeof(*before));
    uint32_t open = 0;
    if (!list || !before)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < n; i++) {
        TRY(recall(t, &jobs[i], arena, err));
        if (jobs[i].option->compiled)
            continue;
        before[open] = jobs[i].option->ns;
        list[open++] = jobs[i];
    }
    TRY(tune_compile(t, list, open, 0, err));
    TRY(retry(t, list, open, before, err));
    for (uint32_t i = 0; i < open; i++)
        if (list[i].option->ns >= TUNE_NEVER) {
            TRY(remember_failure(t, &list[i], err));
            *again = true;
        }
    for (uint32_t i = 0; i < n; i++) {
        bool fits = true;
        if (jobs[i].option->ns < TUNE_NEVER && !jobs[i].option->ran)
            TRY(tune_limit_check(t, jobs[i].entry, jobs[i].option, &fits, err));
        *again = *again || !fits;
        if (jobs[i].option->ns < TUNE_NEVER)
            TRY(obtain(t, &jobs[i], arena, err));
    }
    return STATUS_OK;
}
