/* SPDX-License-Identifier: Apache-2.0 */
/* The world that scripts play in; see played.h. */
#include "tests/unit/daemon/played.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/dispatch_internal.h"
#include "daemon/identity.h"
#include "tests/unit/daemon/toy_engine.h"
#include "tests/unit/daemon/virtual_clock.h"

enum {
    DESCRIPTORS = 400,
    /* a turn is 40 looks at the clock and a slice is 10; a look takes as long as 4 frames */
    FRAMES_A_TURN = 220,
};
/* A look at the clock takes this long: a slice is ten looks, so slices and turns do end. */
#define LOOK_NS (100 * NS_PER_US)
/* Far from now, so that no timer of the system goes off by itself. */
#define BEGIN_NS (1000000000 * NS_PER_S)

const struct played_shape played_shapes[PLAYED_MODELS] = {[PLAYED_SMALL] = {"toy", 1, 1},
                                                          [PLAYED_WIDE] = {"wide", 4096, 1},
                                                          [PLAYED_TALL] = {"tall", 1, 2048}};

char played_title[160];
bool played_loud;

void played_fail(const struct played *p, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: event %u (%s): ", played_title, p->n_events, p->event ? p->event : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    played_show(p);
    abort();
}

/* --- what the dispatcher calls --- */

static void on_deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    loop_complete(((struct played *)user)->shared.loops[loop], first, last);
}

static void on_spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    loop_spent(((struct played *)user)->shared.loops[loop], first, last);
}

static void on_lost(void *user, const struct error *err)
{
    played_fail(user, "the device was lost: %s", err->text);
}

static void on_retire(void *user, struct model *model)
{
    struct played *p = user;
    model->next = p->retired;
    p->retired = model;
}

/* --- life --- */

static struct table *table_make(struct played *p)
{
    struct table *table = table_new(p->config, PLAYED_MODELS);
    struct error err;
    enum status s =
        identities_new(p->config, p->table ? p->table->identities : NULL, &table->identities, &err);
    PLAYED_HOLDS(p, s == STATUS_OK, "%s", err.text);
    for (uint32_t i = 0; i < PLAYED_MODELS; i++) {
        bool added = table_add(table, played_shapes[i].name, "1", MODEL_READY, NULL,
                               model_ref(p->models[i]));
        assert(added);
        (void)added;
    }
    table_sort(table);
    return table;
}

static void budget_set(struct played *p)
{
    uint64_t frame = p->config->limits.frame_bytes, limit = budget_limit(&p->config->limits);
    p->held_most = MAX(limit, budget_held(&p->shared.budget));
    atomic_store(&p->shared.budget.limit, limit);
    p->frame_least = MIN(p->frame_least, frame);
    p->frame_most = MAX(p->frame_most, frame);
}

static void models_load(struct played *p)
{
    struct error err;
    for (uint32_t i = 0; i < PLAYED_MODELS; i++) {
        const struct played_shape *shape = &played_shapes[i];
        const struct config_model config = {.name = (char *)(uintptr_t)shape->name,
                                            .max_delay_us = -1};
        enum status s =
            dispatch_model_load(p->shared.dispatch, p->config, &config, "1",
                                toy_engine_shaped(shape->in, shape->out), &p->models[i], &err);
        PLAYED_HOLDS(p, s == STATUS_OK, "%s", err.text);
    }
}

static void listener_open(struct played *p)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t size = sizeof(any);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&any, sizeof(any)) != 0 ||
        listen(p->listener, PLAYED_PEERS) != 0 ||
        getsockname(p->listener, (struct sockaddr *)&any, &size) != 0)
        played_fail(p, "no socket to listen on");
    p->port = ntohs(any.sin_port);
}

/* The loop's table of watchers has this many entries (R37 of docs/operations.md). */
static void descriptors_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > DESCRIPTORS) {
        limit.rlim_cur = DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

struct played *played_new(const struct config_limits *limits, uint32_t n_loops, bool apart,
                          uint32_t max_delay_us)
{
    struct played *p = calloc(1, sizeof(*p));
    struct error err;
    assert(p);
    descriptors_limit();
    virtual_clock_start(BEGIN_NS);
    toy_reset();
    p->config = config_new();
    p->config->limits = *limits;
    p->config->max_delay_us = max_delay_us;
    p->records = peers_new();
    p->frame_least = p->jobs = UINT64_MAX;
    p->shared.device = toy_device();
    p->shared.started_ns = BEGIN_NS;
    atomic_store(&p->shared.ready, true);
    budget_set(p);
    const struct dispatch_config dispatch = {.device = toy_device(),
                                             .workers = 1,
                                             .counters = &p->shared.counters,
                                             .deliver = on_deliver,
                                             .spent = on_spent,
                                             .lost = on_lost,
                                             .retire = on_retire,
                                             .user = p};
    enum status s = dispatch_new(&dispatch, &p->shared.dispatch, &err);
    PLAYED_HOLDS(p, s == STATUS_OK, "%s", err.text);
    /* set from here on: workers of such a device look for jobs in time */
    atomic_store(&toy.apart, apart);
    models_load(p);
    p->table = table_make(p);
    for (; p->shared.n_loops < n_loops; p->shared.n_loops++) {
        uint32_t i = p->shared.n_loops;
        s = loop_new(&p->shared, i, p->table, &p->shared.loops[i], &err);
        PLAYED_HOLDS(p, s == STATUS_OK, "%s", err.text);
    }
    listener_open(p);
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        p->peers[i].fd = -1;
    p->descriptors = played_descriptors();
    return p;
}

void played_free(struct played *p)
{
    toy_gate_open();
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        loop_order(p->shared.loops[i], LOOP_STOP);
        for (int k = 0; k < 4; k++)
            uv_run(&p->shared.loops[i]->uv, UV_RUN_NOWAIT);
    }
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        played_peer_free(&p->peers[i]);
    played_settle(p);
    dispatch_settle(p->shared.dispatch);
    PLAYED_HOLDS(p, !atomic_load(&p->shared.connections), "connections are left after the stop");
    for (uint32_t i = 0; i < p->shared.n_loops; i++)
        loop_free(p->shared.loops[i]);
    table_unref(p->table);
    for (uint32_t i = 0; i < PLAYED_MODELS; i++)
        model_unref(p->models[i]);
    while (p->retired) {
        struct model *model = p->retired;
        p->retired = model->next;
        dispatch_model_unload(p->shared.dispatch, model);
    }
    dispatch_free(p->shared.dispatch);
    peers_free(p->records);
    config_free(p->config);
    close(p->listener);
    PLAYED_HOLDS(p, !budget_held(&p->shared.budget), "%llu bytes are held after the end",
                 (unsigned long long)budget_held(&p->shared.budget));
    PLAYED_HOLDS(p, !atomic_load(&toy.buffers) && !atomic_load(&toy.contexts),
                 "buffers or contexts are left after the end");
    free(p);
}

/* --- the worker --- */

static bool running(struct dispatch *d)
{
    pthread_mutex_lock(&d->lock);
    bool runs = d->workers[0].running != NULL;
    pthread_mutex_unlock(&d->lock);
    return runs;
}

/* Only this thread and the worker itself give the worker anything to do. Once it runs nothing and
 * has been called between two jobs, it has reported all that it did. */
void played_settle(struct played *p)
{
    struct dispatch *d = p->shared.dispatch;
    for (;;) {
        while (running(d)) {
            if (toy_gate_holds())
                return;
            sched_yield();
        }
        uint64_t jobs = pool_jobs_done(d->pool, 0);
        if (jobs == p->jobs)
            return;
        p->jobs = jobs;
        dispatch_settle(d);
    }
}

/* --- turns and time --- */

uint64_t played_count(const struct played *p, enum counter which)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->shared.n_loops; i++)
        n += counter_get(&p->shared.loops[i]->counters, which);
    return n;
}

/* A loop that has nothing to do sleeps. A socket that a turn began to watch is polled in the next
 * run. */
static bool is_due(struct played *p, struct loop *loop)
{
    struct pollfd poll_fd = {.fd = uv_backend_fd(&loop->uv), .events = POLLIN};
    uv_update_time(&loop->uv);
    bool woken = uv_backend_timeout(&loop->uv) == 0 || poll(&poll_fd, 1, 0) > 0;
    bool due = woken || !p->asleep[loop->index];
    p->asleep[loop->index] = !woken;
    return due;
}

/* Turns handle whatever has come: what one turn leaves waits for the next. */
static void loop_turn_one(struct played *p, struct loop *loop)
{
    if (!is_due(p, loop))
        return;
    uint64_t before = counter_get(&loop->counters, COUNTER_FRAMES);
    virtual_clock_look_takes(LOOK_NS);
    uv_run(&loop->uv, UV_RUN_NOWAIT);
    virtual_clock_look_takes(0);
    uint64_t frames = counter_get(&loop->counters, COUNTER_FRAMES) - before;
    PLAYED_HOLDS(p, frames <= FRAMES_A_TURN, "%llu frames in one turn", (unsigned long long)frames);
}

void played_turn(struct played *p)
{
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        loop_turn_one(p, p->shared.loops[i]);
        played_settle(p);
    }
    played_check(p);
}

void played_turns(struct played *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        played_turn(p);
}

/* How long nothing happens until a timer is due; 0: there is work now. */
static uint64_t quiet_ns(struct played *p, uint64_t now_ns)
{
    uint64_t quiet = UINT64_MAX;
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        struct loop *loop = p->shared.loops[i];
        uv_update_time(&loop->uv);
        int next_ms = uv_backend_timeout(&loop->uv); /* 0: there is work for a turn right now */
        if (atomic_load(&loop->completions) || next_ms < 0)
            return 0;
        quiet = MIN(quiet, (uint64_t)next_ms * NS_PER_MS);
    }
    pthread_mutex_lock(&p->shared.dispatch->lock);
    uint64_t armed_ns = p->shared.dispatch->armed_ns;
    pthread_mutex_unlock(&p->shared.dispatch->lock);
    return MIN(quiet, armed_ns - MIN(now_ns, armed_ns));
}

void played_pass_ms(struct played *p, uint64_t ms)
{
    uint64_t end_ns = virtual_clock_now() + ms * NS_PER_MS, now_ns;
    played_turn(p);
    while ((now_ns = virtual_clock_now()) < end_ns) {
        virtual_clock_advance(MIN(quiet_ns(p, now_ns), end_ns - now_ns));
        dispatch_timer(p->shared.dispatch);
        played_settle(p);
        played_turn(p);
    }
}

void played_limits(struct played *p, const struct config_limits *limits)
{
    uv_sem_t done;
    p->config->limits = *limits;
    budget_set(p);
    struct table *before = p->table;
    p->table = table_make(p);
    table_unref(before);
    uv_sem_init(&done, 0);
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        enum status s = loop_set_table(p->shared.loops[i], p->table, &done);
        PLAYED_HOLDS(p, s == STATUS_OK, "no memory");
    }
    played_turn(p);
    for (uint32_t i = 0; i < p->shared.n_loops; i++)
        PLAYED_HOLDS(p, uv_sem_trywait(&done) == 0, "a loop did not take the table");
    uv_sem_destroy(&done);
}
