/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, see server.h. The main thread runs the first loop; what concerns the whole process
 * (signals, listeners, the batcher's timer, the watchdog) is watched there.
 *
 *   starting   models are loaded; nothing is accepted
 *   serving
 *   draining   SIGTERM, SIGINT, a failed start or a lost device: nothing new is admitted; what was
 *              admitted is answered, or given up at the deadline
 *
 * At a deadline what still runs is answered "may have been executed", and the process ends without
 * taking itself apart: a worker that hangs cannot be joined.
 */
#include "daemon/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/notify.h"
#include "engine/backend.h"

enum {
    BEAT_MOST_MS = 1000,
    DRAIN_STEP_MS = 5,
    LOST_MS = 800,       /* from the loss of the device to the answers (R29) */
    LAST_WORDS_MS = 100, /* for answers at a deadline to go out */
    LOOP_SILENCE_MS = 5000,
    STUCK_MAX = 4096,
    FRAME_EXTRA = 256 * 1024,
    SPARE_DESCRIPTORS = 512, /* beside connections: devices, files, build children */
};

enum phase { PHASE_STARTING, PHASE_SERVING, PHASE_DRAINING, PHASE_LAST_WORDS };

struct server {
    struct shared shared;
    const struct options *options;
    struct config *config; /* the first one, until the loader has it */
    struct notify notify;
    struct listeners *listeners;
    struct models *models;
    uint32_t most_connections; /* that there are descriptors for; set before all else */

    /* The main thread's. */
    enum phase phase;
    bool handles, hung, drain_sent;
    int exit_code;
    uint64_t phase_end_ms; /* of draining and last words */
    uint64_t hang_exit_ns;
    uint64_t loop_beats[DISPATCH_MAX_LOOPS], loop_beat_ms[DISPATCH_MAX_LOOPS];
    uv_signal_t term, interrupt, hangup;
    uv_async_t news;
    uv_timer_t beat, step;
    uv_poll_t batch_timer;

    /* Relaxed: plain numbers that a reload may change. */
    _Atomic uint64_t hang_ns, drain_ms;

    pthread_mutex_t lock; /* guards what other threads have to tell */
    struct {
        bool first, reload, ended, lost;
        uint32_t loaded;
        bool failed;
        struct error err; /* of first or reload, if failed; of lost */
    } told;
};

static uv_loop_t *main_loop(struct server *s)
{
    return &s->shared.loops[0]->uv;
}

/* ---- the end ---- */

static void handles_close(struct server *s)
{
    if (!s->handles)
        return;
    s->handles = false;
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&s->term,        (uv_handle_t *)&s->interrupt, (uv_handle_t *)&s->hangup,
        (uv_handle_t *)&s->news,        (uv_handle_t *)&s->beat,      (uv_handle_t *)&s->step,
        (uv_handle_t *)&s->batch_timer,
    };
    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        uv_close(handles[i], NULL);
}

static uint32_t pending_loops(const struct server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        n += loop_pending(s->shared.loops[i]);
    return n;
}

static void order_all(struct server *s, enum loop_order order)
{
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        loop_order(s->shared.loops[i], order);
}

static bool loader_ended(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    bool ended = s->told.ended;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

/* Every few milliseconds while draining. */
static void on_step(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now_ms = uv_now(main_loop(s));
    bool noted = true;
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        noted &= atomic_load_explicit(&s->shared.loops[i]->drain_noted, memory_order_acquire);
    if (s->phase == PHASE_DRAINING && noted && !s->drain_sent) {
        s->drain_sent = true;
        dispatch_drain(s->shared.dispatch);
    }
    if (s->phase == PHASE_DRAINING && !pending_loops(s) && loader_ended(s)) {
        handles_close(s);
        order_all(s, LOOP_STOP);
        return;
    }
    if (now_ms < s->phase_end_ms)
        return;
    if (s->phase == PHASE_LAST_WORDS)
        _exit(EXIT_FAILURE);
    log_write(&s->shared.log, LOG_ERROR, "not everything could be answered in time");
    s->phase = PHASE_LAST_WORDS;
    s->phase_end_ms = now_ms + LAST_WORDS_MS;
    order_all(s, LOOP_FAIL_ALL);
}

static void drain(struct server *s, int exit_code, uint64_t within_ms)
{
    uint64_t end_ms = uv_now(main_loop(s)) + within_ms;
    if (s->phase >= PHASE_DRAINING) { /* a loss while draining shortens it */
        s->phase_end_ms = MIN(s->phase_end_ms, end_ms);
        s->exit_code = MAX(s->exit_code, exit_code);
        return;
    }
    s->phase = PHASE_DRAINING;
    s->exit_code = exit_code;
    s->phase_end_ms = end_ms;
    atomic_store_explicit(&s->shared.ready, false, memory_order_relaxed);
    atomic_store_explicit(&s->shared.draining, true, memory_order_relaxed);
    notify_send(&s->notify, "STOPPING=1");
    listeners_stop(s->listeners);
    models_stop(s->models);
    order_all(s, LOOP_DRAIN);
    uv_timer_start(&s->step, on_step, 0, DRAIN_STEP_MS);
}

static void device_lost(struct server *s, const char *why)
{
    if (atomic_exchange_explicit(&s->shared.lost, true, memory_order_relaxed))
        return;
    atomic_store_explicit(&s->shared.ready, false, memory_order_relaxed);
    counter_add(&s->shared.counters, COUNTER_DEVICE_LOST, 1);
    log_write(&s->shared.log, LOG_ERROR, "device lost: %s", why);
    notify_send(&s->notify, "STATUS=device lost");
    dispatch_fail(s->shared.dispatch);
    order_all(s, LOOP_FAIL_QUEUED);
    drain(s, EXIT_FAILURE, LOST_MS);
}

/* ---- signals ---- */

static void on_stop_signal(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    if (s->phase >= PHASE_DRAINING) {
        log_write(&s->shared.log, LOG_WARNING, "signal %d again: ending at once", number);
        _exit(EXIT_FAILURE);
    }
    log_write(&s->shared.log, LOG_INFO, "signal %d: stopping", number);
    drain(s, EXIT_SUCCESS, atomic_load_explicit(&s->drain_ms, memory_order_relaxed));
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
    (void)number;
    struct server *s = signal->data;
    if (s->phase >= PHASE_DRAINING)
        return;
    log_write(&s->shared.log, LOG_INFO, "reloading");
    notify_send(&s->notify, "RELOADING=1\nMONOTONIC_USEC=%llu",
                (unsigned long long)(clock_now_ns() / NS_PER_US));
    models_reload(s->models);
}

/* ---- news from other threads ---- */

static void first_done(struct server *s, uint32_t loaded, const struct error *err)
{
    if (s->phase != PHASE_STARTING)
        return;
    bool none = !s->shared.loops[0]->table->n; /* the pass has published its table */
    if (!err && none)
        log_write(&s->shared.log, LOG_WARNING,
                  "no models: name some in the configuration, or put them into the repository, and "
                  "send SIGHUP");
    if (err || (!loaded && !none)) {
        log_write(&s->shared.log, LOG_ERROR, "%s", err ? err->text : "no model could be loaded");
        drain(s, EXIT_FAILURE, LOST_MS);
        return;
    }
    s->phase = PHASE_SERVING;
    atomic_store_explicit(&s->shared.ready, true, memory_order_relaxed);
    listeners_start(s->listeners);
    notify_send(&s->notify, "READY=1\nSTATUS=serving %u model versions", loaded);
}

static void reload_done(struct server *s, uint32_t loaded, const struct error *err)
{
    if (err)
        log_write(&s->shared.log, LOG_ERROR, "reload failed, everything stays as it was: %s",
                  err->text);
    else
        log_write(&s->shared.log, LOG_INFO, "reloaded: %u model versions", loaded);
    notify_send(&s->notify, "READY=1\nSTATUS=%sserving %u model versions",
                err ? "the last reload failed; " : "", loaded);
}

static void on_news(uv_async_t *async)
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
        device_lost(s, told.err.text);
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

static void worker_lost(void *user, const struct error *err)
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
    return options_configure(s->options, out, err);
}

/* What of a configuration can change while serving, beside the table. */
static void settings_apply(struct server *s, const struct config *config)
{
    atomic_store_explicit(&s->hang_ns, config->hang_timeout_ms * NS_PER_MS, memory_order_relaxed);
    atomic_store_explicit(&s->drain_ms, config->drain_timeout_ms, memory_order_relaxed);
    /* A single frame always finds room: its slab may be a quarter larger than it is, and what it
     * was kept in before is there for a moment longer. */
    uint64_t one_frame = config->limits.frame_bytes + config->limits.frame_bytes / 4 + FRAME_EXTRA;
    atomic_store_explicit(&s->shared.budget.limit, MAX(config->limits.inflight_bytes, one_frame),
                          memory_order_relaxed);
    atomic_store_explicit(&s->shared.max_connections,
                          MIN(config->limits.connections, s->most_connections),
                          memory_order_relaxed);
}

static void publish(void *user, struct table *table, const struct config *config)
{
    struct server *s = user;
    uv_sem_t done;
    settings_apply(s, config);
    uv_sem_init(&done, 0);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        while (loop_set_table(s->shared.loops[i], table, &done) != STATUS_OK)
            clock_sleep_until(clock_now_ns() + NS_PER_MS);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        uv_sem_wait(&done);
    uv_sem_destroy(&done);
}

static void retire(void *user, struct model *model)
{
    struct server *s = user;
    models_retire(s->models, model);
}

static void deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    struct server *s = user;
    loop_complete(s->shared.loops[loop], first, last);
}

/* ---- watching over it ---- */

static void on_batch_timer(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct server *s = poll->data;
    dispatch_timer(s->shared.dispatch);
}

/* Answers those who wait for a batch that hangs. */
static void stuck_abandon(struct server *s, uint64_t now_ns, uint64_t age_ns)
{
    struct dispatch_stuck *stuck = calloc(STUCK_MAX, sizeof(*stuck));
    uint64_t *serials = calloc(STUCK_MAX, sizeof(*serials));
    size_t n = stuck ? dispatch_stuck(s->shared.dispatch, now_ns, age_ns, stuck, STUCK_MAX) : 0;
    for (uint32_t loop = 0; serials && loop < s->shared.n_loops; loop++) {
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            if (stuck[i].loop == loop)
                serials[k++] = stuck[i].serial;
        if (k)
            loop_abandon(s->shared.loops[loop], serials, k);
    }
    free(stuck);
    free(serials);
}

/* A batch that runs far too long: unready, the watchdog is not fed, its requests are answered. If
 * it comes to an end after all, serving goes on; if nobody watches, the process ends by itself. */
static void hang_check(struct server *s, uint64_t now_ns)
{
    uint64_t limit_ns = atomic_load_explicit(&s->hang_ns, memory_order_relaxed);
    bool hung = dispatch_longest_ns(s->shared.dispatch, now_ns) > limit_ns;
    if (hung && !s->hung) {
        log_write(&s->shared.log, LOG_ERROR, "a worker hangs: a batch has run for over %llu ms",
                  (unsigned long long)(limit_ns / NS_PER_MS));
        counter_add(&s->shared.counters, COUNTER_WORKER_HANGS, 1);
        s->hang_exit_ns = now_ns + limit_ns;
    } else if (!hung && s->hung) {
        log_write(&s->shared.log, LOG_WARNING, "no worker hangs any more");
    }
    if (hung != s->hung && s->phase == PHASE_SERVING)
        atomic_store_explicit(&s->shared.ready, !hung, memory_order_relaxed);
    s->hung = hung;
    if (hung)
        stuck_abandon(s, now_ns, limit_ns);
    if (hung && !s->notify.watchdog_ns && now_ns > s->hang_exit_ns)
        device_lost(s, "a worker still hangs");
}

static bool loops_alive(struct server *s, uint64_t now_ms)
{
    bool alive = true;
    for (uint32_t i = 0; i < s->shared.n_loops; i++) {
        uint64_t beats = atomic_load_explicit(&s->shared.loops[i]->beats, memory_order_relaxed);
        if (beats != s->loop_beats[i]) {
            s->loop_beats[i] = beats;
            s->loop_beat_ms[i] = now_ms;
        }
        alive &= now_ms - s->loop_beat_ms[i] < LOOP_SILENCE_MS;
    }
    return alive;
}

static uint64_t beat_ms(const struct server *s)
{
    uint64_t ms = BEAT_MOST_MS;
    ms = MIN(ms, atomic_load_explicit(&s->hang_ns, memory_order_relaxed) / NS_PER_MS / 2);
    if (s->notify.watchdog_ns)
        ms = MIN(ms, s->notify.watchdog_ns / NS_PER_MS / 3);
    return MAX(ms, UINT64_C(1));
}

static void on_beat(uv_timer_t *timer)
{
    struct server *s = timer->data;
    hang_check(s, clock_now_ns());
    if (loops_alive(s, uv_now(main_loop(s))) && !s->hung && s->notify.watchdog_ns)
        notify_send(&s->notify, "WATCHDOG=1");
    uv_timer_start(timer, on_beat, beat_ms(s), 0);
}

/* ---- starting ---- */

/* Room for all connections; with less, fewer are taken. */
static void descriptors_raise(struct server *s, const struct config *config)
{
    struct rlimit limit;
    s->most_connections = UINT32_MAX;
    rlim_t wanted = (rlim_t)config->limits.connections + SPARE_DESCRIPTORS +
                    4 * (rlim_t)(config->io_threads + config->models_count);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur != wanted) { /* a higher one would only make libuv's tables larger */
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = MIN(wanted, limit.rlim_max);
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before;
    }
    if (limit.rlim_cur < wanted) {
        rlim_t spared = limit.rlim_cur > SPARE_DESCRIPTORS ? limit.rlim_cur - SPARE_DESCRIPTORS : 0;
        s->most_connections = (uint32_t)MAX(limit.rlim_cur / 2, spared);
        log_write(&s->shared.log, LOG_WARNING,
                  "only %llu descriptors are allowed: at most %u connections are taken",
                  (unsigned long long)limit.rlim_cur, s->most_connections);
    }
}

/* The configured number, else the first plan's that is named; 0: all cores. */
static uint32_t thread_count(const struct config *config)
{
    uint32_t threads = config->threads;
    for (uint32_t i = 0; i < config->models_count && threads == 0; i++)
        engine_plan_threads(config->models[i].path, &threads, NULL); /* its loader reports */
    return threads;
}

static enum status device_start(struct server *s, const struct config *config, struct error *err)
{
    const struct device_options options = {
        .threads = thread_count(config),
        .reference_only = getenv("INFERD_REFERENCE_KERNELS") != NULL,
        .script = getenv("INFERD_FAULT_SCRIPT"), /* of the device `fault` alone */
        .log = &s->shared.log,
    };
    s->shared.reference = options.reference_only;
    snprintf(s->shared.device_name, sizeof(s->shared.device_name), "%s", config->device);
    return engine_device_open(config->device, &options, &s->shared.device, err);
}

static uint32_t worker_count(const struct server *s, const struct config *config)
{
    if (config->workers)
        return config->workers;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return MAX((uint32_t)MAX(cores, 1L) / MAX(s->shared.device->threads, 1u), 1u);
}

static enum status loops_start(struct server *s, uint32_t n, struct table *table, struct error *err)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < n && status == STATUS_OK; i++) {
        status = loop_new(&s->shared, i, table, &s->shared.loops[i], err);
        s->shared.n_loops += status == STATUS_OK;
    }
    for (uint32_t i = 1; i < n && status == STATUS_OK; i++)
        status = loop_start(s->shared.loops[i], err);
    return status;
}

static enum status handles_start(struct server *s, struct error *err)
{
    uv_loop_t *uv = main_loop(s);
    int r = uv_async_init(uv, &s->news, on_news);
    if (r == 0)
        r = uv_poll_init(uv, &s->batch_timer, dispatch_timer_fd(s->shared.dispatch));
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
    uv_poll_start(&s->batch_timer, UV_READABLE, on_batch_timer);
    uv_timer_start(&s->beat, on_beat, 0, 0);
    r = uv_signal_start(&s->term, on_stop_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&s->interrupt, on_stop_signal, SIGINT);
    if (r == 0)
        r = uv_signal_start(&s->hangup, on_reload_signal, SIGHUP);
    return r == 0 ? STATUS_OK : error_set(err, STATUS_INTERNAL, "signals: %s", uv_strerror(r));
}

static enum status dispatch_start(struct server *s, const struct config *config, struct error *err)
{
    const struct dispatch_config dispatch = {
        .device = s->shared.device,
        .workers = worker_count(s, config),
        .log = &s->shared.log,
        .counters = &s->shared.counters,
        .deliver = deliver,
        .lost = worker_lost,
        .retire = retire,
        .user = s,
    };
    return dispatch_new(&dispatch, &s->shared.dispatch, err);
}

static enum status server_start(struct server *s, struct config *config, struct table *table,
                                struct error *err)
{
    const struct models_ops ops = {configure, publish, pass_done, loader_end, s};
    enum status status = device_start(s, config, err);
    if (status == STATUS_OK)
        status = dispatch_start(s, config, err);
    if (status == STATUS_OK)
        status = loops_start(s, config->io_threads, table, err);
    if (status == STATUS_OK)
        status = handles_start(s, err);
    if (status == STATUS_OK)
        status = listeners_new(&s->shared, main_loop(s), &config->listen, notify_listen_fds(),
                               &s->listeners, err);
    if (status == STATUS_OK)
        status = models_new(&s->shared, STEAL(s->config), table, &ops, &s->models, err);
    if (status == STATUS_OK)
        models_start(s->models);
    return status;
}

/* In the order in which they lean on each other; after a failed start too. */
static void server_stop(struct server *s)
{
    handles_close(s);
    listeners_stop(s->listeners);
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        if (i > 0) {
            loop_order(s->shared.loops[i], LOOP_STOP);
            loop_join(s->shared.loops[i]);
        }
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        loop_free(s->shared.loops[i]);
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
    enum log_level level = LOG_INFO;
    struct error err;
    log_level_parse(config->log_level, &level);
    log_stderr_init(&s->shared.log, level);
    signal(SIGPIPE, SIG_IGN);
    s->options = options;
    s->config = config;
    s->shared.started_ns = clock_now_ns();
    pthread_mutex_init(&s->lock, NULL);
    notify_init(&s->notify);
    descriptors_raise(s, config);
    settings_apply(s, config);
    enum status status = server_start(s, config, table, &err);
    table_unref(table);
    if (status == STATUS_OK) {
        uv_run(main_loop(s), UV_RUN_DEFAULT);
    } else {
        log_write(&s->shared.log, LOG_ERROR, "%s", err.text);
        s->exit_code = EXIT_FAILURE;
    }
    server_stop(s);
    int exit_code = s->exit_code;
    free(s);
    return exit_code;
}
