/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event loops, see loop.h.
 *
 * libuv 1.44 aborts when the table of its watchers cannot grow, so that table is made as large as
 * descriptors can get before the first connection comes (R37).
 */
#include "daemon/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/identity_use.h"
#include "daemon/intake.h"

enum { TICK_MS = 1000, TICK_LEAST_MS = 20, TRIM_TICKS = 10 };

struct inflight_chunk {
    struct inflight_chunk *next;
    struct inflight items[LOOP_INFLIGHT_CHUNK];
};

/* ---- from other threads ---- */

void loop_complete(struct loop *loop, struct inflight *first, struct inflight *last)
{
    last->next = atomic_load_explicit(&loop->completions, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->completions, &last->next, first,
                                                  memory_order_release, memory_order_relaxed))
        ;
    uv_async_send(&loop->wake);
}

/* Nobody is woken: in a loop that has nothing else to do, nobody waits for memory. */
void loop_spent(struct loop *loop, struct inflight *first, struct inflight *last)
{
    last->next_spent = atomic_load_explicit(&loop->spent, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->spent, &last->next_spent, first,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

bool loop_pending(const struct loop *loop)
{
    return !atomic_load_explicit(&loop->drain_noted, memory_order_acquire) ||
           atomic_load_explicit(&loop->pending, memory_order_acquire) != 0;
}

/* ---- memory of a turn ---- */

static void flush_all(struct loop *loop)
{
    for (struct connection *c = loop->dirty; c; c = c->next_dirty)
        connection_flush(c);
    loop->heads_used = 0;
}

uint8_t *loop_head(struct loop *loop)
{
    if (LOOP_HEADS - loop->heads_used < MESSAGE_HEAD_MAX)
        flush_all(loop);
    return loop->heads + loop->heads_used;
}

void loop_head_used(struct loop *loop, size_t size)
{
    loop->heads_used += size;
}

/* ---- descriptors ---- */

bool loop_watch(uv_loop_t *uv, int fd)
{
    struct epoll_event none = {.data.fd = fd};
    return epoll_ctl(uv_backend_fd(uv), EPOLL_CTL_ADD, fd, &none) == 0 || errno == EEXIST;
}

/* ---- requests ---- */

struct inflight *loop_inflight_take(struct loop *loop)
{
    if (!loop->free_inflight) {
        struct inflight_chunk *chunk = calloc(1, sizeof(*chunk));
        if (!chunk)
            return NULL;
        chunk->next = loop->chunks;
        loop->chunks = chunk;
        for (uint32_t i = 0; i < LOOP_INFLIGHT_CHUNK; i++) {
            chunk->items[i].next = loop->free_inflight;
            loop->free_inflight = &chunk->items[i];
        }
    }
    struct inflight *i = loop->free_inflight;
    loop->free_inflight = i->next;
    loop->n_inflight++;
    i->next = NULL;
    i->item.model = NULL;
    i->connection = 0;
    i->serial = ++loop->next_serial;
    i->loop = loop->index;
    i->submitted = i->cancelled = false;
    i->slab = NULL;
    i->use = NULL;
    i->model = NULL;
    i->batch = NULL;
    return i;
}

void loop_inflight_give(struct loop *loop, struct inflight *i)
{
    slabs_give(loop->slabs, i->slab);
    identity_use_give(i->use, i->use_bytes);
    model_unref(i->model);
    i->next = loop->free_inflight;
    loop->free_inflight = i;
    loop->n_inflight--;
}

void loop_submit(struct loop *loop, struct inflight *i)
{
    *loop->submit_tail = i;
    loop->submit_tail = &i->next;
    loop->n_gathered++;
}

/* Answers a chain that came back. The replies point into the batches' outputs until the flush. */
static void results(struct loop *loop, struct inflight *first)
{
    for (struct inflight *i = first, *next; i; i = next) {
        next = i->next;
        intake_result(loop, i);
        i->next = loop->held;
        loop->held = i;
    }
}

static void submit_all(struct loop *loop)
{
    struct inflight *first = NULL, **tail = &first;
    for (struct inflight *i = loop->submit_first, *next; i; i = next) {
        next = i->next;
        i->next = NULL;
        if (!i->connection) { /* cancelled, or its connection has gone */
            loop_inflight_give(loop, i);
            continue;
        }
        *tail = i;
        tail = &i->next;
    }
    loop->submit_first = NULL;
    loop->submit_tail = &loop->submit_first;
    loop->n_gathered = 0;
    if (first)
        results(loop, dispatch_submit(loop->shared->dispatch, first));
}

static void held_release(struct loop *loop)
{
    struct batch *done = NULL;
    while (loop->held) {
        struct inflight *i = loop->held;
        loop->held = i->next;
        dispatch_release(i, &done);
        loop_inflight_give(loop, i);
    }
    if (done)
        dispatch_recycle(loop->shared->dispatch, done);
}

/* ---- connections ---- */

struct connection *loop_connection(const struct loop *loop, uint64_t id)
{
    uint32_t slot = (uint32_t)id, generation = (uint32_t)(id >> 32);
    if (!id || slot >= loop->n_slots || loop->slots[slot].generation != generation)
        return NULL;
    struct connection *c = loop->slots[slot].connection;
    return c && !c->closing ? c : NULL;
}

static bool slots_grow(struct loop *loop)
{
    uint32_t n = loop->n_slots ? 2 * loop->n_slots : 64;
    struct loop_slot *slots = realloc(loop->slots, n * sizeof(*slots));
    if (!slots)
        return false;
    for (uint32_t i = loop->n_slots; i < n; i++)
        slots[i] = (struct loop_slot){.next_free = i + 1, .generation = 1};
    loop->slots = slots;
    loop->n_slots = n;
    return true;
}

bool loop_connection_came(struct loop *loop, struct connection *c)
{
    if (loop->free_slot == loop->n_slots && !slots_grow(loop))
        return false;
    uint32_t slot = loop->free_slot;
    loop->free_slot = loop->slots[slot].next_free;
    loop->slots[slot].connection = c;
    c->id = (uint64_t)loop->slots[slot].generation << 32 | slot;
    loop->n_connections++;
    return true;
}

void loop_connection_uncount(struct loop *loop)
{
    atomic_fetch_sub_explicit(&loop->load, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&loop->shared->connections, 1, memory_order_relaxed);
}

void loop_connection_gone(struct loop *loop, struct connection *c)
{
    for (struct connection **at = &loop->starved; *at; at = &(*at)->next_starved)
        if (*at == c) {
            *at = c->next_starved;
            break;
        }
    struct loop_slot *slot = &loop->slots[(uint32_t)c->id];
    slot->connection = NULL;
    slot->generation += slot->generation == UINT32_MAX ? 2 : 1; /* an id is never 0 */
    slot->next_free = loop->free_slot;
    loop->free_slot = (uint32_t)c->id;
    loop->n_connections--;
    loop_connection_uncount(loop);
}

/* Gives back payloads that the device has a copy of. */
static void spent_take(struct loop *loop)
{
    struct inflight *i = atomic_exchange_explicit(&loop->spent, NULL, memory_order_acquire);
    for (struct inflight *next; i; i = next) {
        struct connection *c = loop_connection(loop, i->connection);
        next = i->next_spent;
        if (c)
            connection_payload_spent(c, i);
        else
            slabs_give(loop->slabs, STEAL(i->slab));
    }
}

static void completions_take(struct loop *loop)
{
    /* Chains lie on the stack latest first; within a chain the order is that of the batch. Replies
     * may go in any order, so no more is made of it. */
    struct inflight *first =
        atomic_exchange_explicit(&loop->completions, NULL, memory_order_acquire);
    /* A worker tells of a spent payload before it completes the request: so of those now completed,
     * none is told of later, when it may be another one's. */
    spent_take(loop);
    results(loop, first);
}

static void on_wake(uv_async_t *async)
{
    struct loop *loop = async->data;
    completions_take(loop);
    loop_messages_take(loop);
}

/* ---- the turn ---- */

/* The budget is at half: those who wait for it go on, until it is used up again. */
static void unstarve(struct loop *loop)
{
    struct budget *budget = &loop->shared->budget;
    uint64_t half = atomic_load_explicit(&budget->limit, memory_order_relaxed) / 2;
    struct connection *waiting = loop->starved;
    loop->starved = NULL;
    while (waiting) {
        struct connection *c = waiting;
        waiting = c->next_starved;
        if (budget_used(budget) <= half && !c->closing) {
            connection_unstarve(c);
        } else {
            c->next_starved = loop->starved;
            loop->starved = c;
        }
    }
}

static void turn_work(struct loop *loop)
{
    spent_take(loop);
    if (loop->starved)
        unstarve(loop);
    while (loop->submit_first) /* a refusal may let a connection go on, with more requests */
        submit_all(loop);
    while (loop->dirty) {
        struct connection *c = loop->dirty;
        loop->dirty = c->next_dirty;
        c->in_dirty = false;
        connection_flush(c);
        connection_finish(c);
    }
    loop->heads_used = 0;
    if (loop->held)
        held_release(loop);
}

void loop_breathe(struct loop *loop)
{
    if (loop->n_gathered < LOOP_GATHERED)
        return;
    completions_take(loop);
    turn_work(loop);
}

static void on_turn_end(uv_check_t *check)
{
    struct loop *loop = check->data;
    turn_work(loop);
    atomic_store_explicit(&loop->pending, (uint64_t)loop->n_inflight + loop->n_backlogs,
                          memory_order_release);
}

static uint64_t tick_ms(const struct loop *loop)
{
    const struct config_limits *limits = &loop->table->limits;
    uint64_t least =
        MIN(MIN(limits->header_timeout_ms, limits->frame_timeout_ms), limits->idle_timeout_ms);
    if (loop->starved)
        return TICK_LEAST_MS;
    return MAX(MIN(least / 4, (uint64_t)TICK_MS), (uint64_t)TICK_LEAST_MS);
}

static void on_tick(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    uint64_t beats = atomic_fetch_add_explicit(&loop->beats, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < loop->n_slots; i++)
        if (loop->slots[i].connection)
            connection_tick(loop->slots[i].connection, uv_now(&loop->uv));
    if (beats % TRIM_TICKS == 0 && !engine_device_apart(loop->shared->device))
        slabs_trim(loop->slabs);
    uv_timer_start(timer, on_tick, tick_ms(loop), 0);
}

/* ---- life ---- */

/* Watches the highest descriptor there can be, once, so that the table of watchers has its final
 * size. */
static enum status watchers_grow(struct loop *loop, struct error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return error_errno(err, errno, "getrlimit");
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return error_errno(err, errno, "eventfd");
    int high = fcntl(fd, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 1);
    close(fd);
    if (high < 0)
        return errno == EINVAL || errno == EMFILE ? STATUS_OK : error_errno(err, errno, "dup");
    uv_poll_t poll;
    int r = uv_poll_init(&loop->uv, &poll, high);
    if (r == 0) {
        r = uv_poll_start(&poll, UV_READABLE, NULL);
        uv_close((uv_handle_t *)&poll, NULL);
        uv_run(&loop->uv, UV_RUN_NOWAIT);
    }
    close(high);
    return r == 0 ? STATUS_OK : error_set(err, STATUS_INTERNAL, "uv_poll: %s", uv_strerror(r));
}

/* A slab for payloads that the engine packs anyway, and is not worth pinning. */
static bool slab_is_small(const struct device *device, size_t size)
{
    return engine_device_apart(device) && size <= ENGINE_PACK_MAX;
}

static void *slab_alloc(void *user, size_t size)
{
    void *memory;
    if (slab_is_small(user, size))
        return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
    return engine_buffer_alloc(user, size, "frames", &memory, NULL) == STATUS_OK ? memory : NULL;
}

static void slab_release(void *user, void *memory, size_t size)
{
    if (slab_is_small(user, size))
        free(memory);
    else
        engine_buffer_free(user, memory);
}

/* Pinned memory is kept up to the budget: giving it back may wait for the device, which nobody who
 * serves can do. */
static size_t slabs_kept(const struct loop *loop)
{
    return engine_device_apart(loop->shared->device) ? SIZE_MAX : (size_t)LOOP_SLABS_KEPT;
}

static enum status handles_init(struct loop *loop, struct error *err)
{
    int r = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (r != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_async_init: %s", uv_strerror(r));
    uv_check_init(&loop->uv, &loop->turn_end);
    uv_timer_init(&loop->uv, &loop->tick);
    loop->wake.data = loop->turn_end.data = loop->tick.data = loop;
    uv_check_start(&loop->turn_end, on_turn_end);
    uv_timer_start(&loop->tick, on_tick, tick_ms(loop), 0);
    return STATUS_OK;
}

enum status loop_new(struct shared *shared, uint32_t index, struct table *table, struct loop **out,
                     struct error *err)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a loop");
    int r = uv_loop_init(&loop->uv);
    if (r != 0) {
        free(loop);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_loop_init: %s", uv_strerror(r));
    }
    loop->shared = shared;
    loop->index = index;
    loop->submit_tail = &loop->submit_first;
    loop->table = table_ref(table);
    const struct slab_memory memory = {slab_alloc, slab_release, shared->device};
    loop->slabs = slabs_new(&memory, &shared->budget, slabs_kept(loop));
    loop->heads = malloc(LOOP_HEADS);
    enum status s = STATUS_OK;
    if (!loop->slabs || !loop->heads)
        s = error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a loop");
    if (s == STATUS_OK)
        s = watchers_grow(loop, err);
    if (s == STATUS_OK)
        s = handles_init(loop, err);
    if (s == STATUS_OK)
        *out = loop;
    else
        loop_free(loop);
    return s;
}

static void handle_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    loop->stopping = true;
    uv_walk(&loop->uv, handle_close, NULL); /* of a loop that never ran */
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    /* What came too late for a loop that has stopped. */
    completions_take(loop);
    loop_messages_take(loop);
    held_release(loop);
    while (loop->free_pieces) {
        struct loop_pieces *p = loop->free_pieces;
        loop->free_pieces = p->next;
        free(p);
    }
    while (loop->chunks) {
        struct inflight_chunk *chunk = loop->chunks;
        loop->chunks = chunk->next;
        free(chunk);
    }
    table_unref(loop->table);
    slabs_free(loop->slabs);
    free(loop->slots);
    free(loop->heads);
    free(loop);
}

void loop_stop(struct loop *loop)
{
    if (loop->stopping)
        return;
    loop->stopping = true;
    flush_all(loop);
    for (uint32_t i = 0; i < loop->n_slots; i++)
        if (loop->slots[i].connection)
            connection_close(loop->slots[i].connection);
    uv_close((uv_handle_t *)&loop->tick, NULL);
    uv_close((uv_handle_t *)&loop->turn_end, NULL);
    uv_close((uv_handle_t *)&loop->wake, NULL);
}

static void thread_run(void *arg)
{
    struct loop *loop = arg;
    char name[16];
    snprintf(name, sizeof(name), "loop %u", loop->index);
    pthread_setname_np(pthread_self(), name);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

enum status loop_start(struct loop *loop, struct error *err)
{
    int r = uv_thread_create(&loop->thread, thread_run, loop);
    if (r != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "a loop's thread: %s", uv_strerror(r));
    loop->started = true;
    return STATUS_OK;
}

void loop_join(struct loop *loop)
{
    if (loop->started)
        uv_thread_join(&loop->thread);
    loop->started = false;
}
