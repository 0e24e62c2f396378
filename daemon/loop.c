/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event loops, see loop.h.
 *
 * libuv 1.44 aborts when the table of its watchers cannot grow, so that table is made as large as
 * descriptors can get before the first connection comes (R37 of docs/operations.md).
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
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "daemon/exchange.h"
#include "daemon/identity_use.h"
#include "daemon/loop_internal.h"
#include "daemon/regions.h"
#include "daemon/trace.h"

enum { TICK_MS = 1000, TICK_LEAST_MS = 20, TRIM_TICKS = 10 };

struct inflight_chunk {
    struct inflight_chunk *next;
    struct inflight items[LOOP_INFLIGHT_CHUNK];
};

/* --- from other threads --- */

void loop_complete(struct loop *loop, struct inflight *first, struct inflight *last)
{
    last->next = atomic_load_explicit(&loop->completions, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->completions, &last->next, first,
                                                  memory_order_release, memory_order_relaxed))
        ;
    uv_async_send(&loop->wake);
}

/* Does not wake the loop: while a loop has nothing else to do, none of its connections waits for
 * memory. */
void loop_spent(struct loop *loop, struct inflight *first, struct inflight *last)
{
    last->next_spent = atomic_load_explicit(&loop->spent, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->spent, &last->next_spent, first,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void loop_shapes_news(struct loop *loop)
{
    atomic_store_explicit(&loop->shapes_news, true, memory_order_release);
    uv_async_send(&loop->wake);
}

bool loop_pending(const struct loop *loop)
{
    return !atomic_load_explicit(&loop->drain_noted, memory_order_acquire) ||
           atomic_load_explicit(&loop->pending, memory_order_acquire) != 0;
}

/* --- descriptors --- */

bool loop_watch(uv_loop_t *uv, int fd)
{
    struct epoll_event none = {.data.fd = fd};
    return epoll_ctl(uv_backend_fd(uv), EPOLL_CTL_ADD, fd, &none) == 0 || errno == EEXIST;
}

/* --- requests --- */

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
    struct inflight *inflight = loop->free_inflight;
    loop->free_inflight = inflight->next;
    loop->n_inflight++;
    inflight->next = NULL;
    inflight->item.model = NULL;
    inflight->connection = 0;
    inflight->serial = ++loop->next_serial;
    inflight->loop = loop->index;
    inflight->submitted = inflight->cancelled = inflight->parked = inflight->told = false;
    inflight->shelve = inflight->unread = 0;
    inflight->trace = NULL;
    inflight->slab = inflight->texts = inflight->run = inflight->rooms = NULL;
    inflight->found = NULL;
    inflight->whole = NULL;
    inflight->item.admitted = inflight->kept = false;
    inflight->use = NULL;
    inflight->model = inflight->base = NULL;
    inflight->batch = NULL;
    return inflight;
}

static void regions_give(struct inflight *inflight)
{
    for (uint32_t k = 0; inflight->regions && k < inflight->n_outputs; k++)
        region_give(inflight->regions[k].region);
    free(STEAL(inflight->regions));
}

void loop_inflight_give(struct loop *loop, struct inflight *inflight)
{
    exchange_classes_drop(loop, inflight);
    regions_give(inflight);
    if (inflight->trace)
        trace_end(loop->shared->traces, STEAL(inflight->trace));
    slabs_give(loop->slabs, inflight->slab);
    slabs_give(loop->slabs, inflight->texts);
    slabs_give(loop->slabs, inflight->run);
    while (inflight->rooms) {
        struct slab *slab = inflight->rooms;
        inflight->rooms = slab->next;
        slabs_give(loop->slabs, slab);
    }
    identity_use_give(inflight->use, inflight->use_bytes);
    model_unref(inflight->model);
    model_unref(inflight->base); /* after its engine, which counts there */
    inflight->next = loop->free_inflight;
    loop->free_inflight = inflight;
    loop->n_inflight--;
}

void loop_submit(struct loop *loop, struct inflight *inflight)
{
    *loop->submit_tail = inflight;
    loop->submit_tail = &inflight->next;
    loop->n_gathered += inflight->slab ? 1 + inflight->slab->charge / LOOP_GATHERED_BYTES : 1;
}

struct inflight **loop_bucket(struct loop *loop, uint64_t connection, uint64_t id)
{
    uint64_t key[] = {connection, id};
    return &loop->by_id[XXH3_64bits_withSeed(key, sizeof(key), loop->seed) % LOOP_IDS];
}

/* --- connections --- */

struct connection *loop_connection(const struct loop *loop, uint64_t id)
{
    uint32_t slot = (uint32_t)id, generation = (uint32_t)(id >> 32);
    if (!id || slot >= loop->n_slots || loop->slots[slot].generation != generation)
        return NULL;
    struct connection *c = loop->slots[slot].connection;
    return c && c->phase < CONNECTION_CLOSED ? c : NULL;
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
    struct loop_slot *slot = &loop->slots[(uint32_t)c->id];
    slot->connection = NULL;
    slot->generation += slot->generation == UINT32_MAX ? 2 : 1; /* an id is never 0 */
    slot->next_free = loop->free_slot;
    loop->free_slot = (uint32_t)c->id;
    loop->n_connections--;
}

/* --- the turn --- */

/* Takes the messages. For completions the wake-up itself is enough, because each turn takes
 * them. */
static void on_wake(uv_async_t *async)
{
    loop_messages_take(async->data);
}

/* Does nothing: an idle handle that is active keeps the poll from blocking. */
static void on_again(uv_idle_t *idle UNUSED)
{
}

/* Connections whose sessions have not finished their goodbyes. */
static uint64_t partings(const struct loop *loop)
{
    uint64_t n = 0;
    if (!atomic_load_explicit(&loop->drain_noted, memory_order_relaxed) || loop->stopping)
        return 0;
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *c = loop->slots[i].connection;
        n += c && connection_is_parting(c, uv_now(&loop->uv));
    }
    return n;
}

static void on_turn_end(uv_check_t *check)
{
    struct loop *loop = check->data;
    loop_turn(loop);
    bool again = loop->results || loop->classes || loop->fresh || loop->busy ||
                 clock_now_ns() < loop->look_ns;
    if (again && !loop->stopping)
        uv_idle_start(&loop->again, on_again);
    else
        uv_idle_stop(&loop->again);
    atomic_store_explicit(&loop->pending, loop->n_inflight + loop->n_backlogs + partings(loop),
                          memory_order_release);
}

static uint64_t tick_ms(const struct loop *loop)
{
    const struct config_limits *limits = &loop->table->limits;
    uint64_t least =
        MIN(MIN(limits->header_timeout_ms, limits->frame_timeout_ms), limits->idle_timeout_ms);
    if (loop->waiting || loop->parked || loop->turns.waiting ||
        atomic_load_explicit(&loop->drain_noted, memory_order_relaxed))
        return TICK_LEAST_MS;
    return MAX(MIN(least / 4, (uint64_t)TICK_MS), (uint64_t)TICK_LEAST_MS);
}

static void on_tick(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    uint64_t beats = atomic_fetch_add_explicit(&loop->beats, 1, memory_order_relaxed);
    loop->stale_bytes = 0;
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        struct connection *c = loop->slots[i].connection;
        if (!c)
            continue;
        connection_tick(c, uv_now(&loop->uv));
        loop->stale_bytes += connection_stale(c, uv_now(&loop->uv), TURNS_STILL_MS);
    }
    if (beats % TRIM_TICKS == 0 && !engine_device_apart(loop->shared->device))
        slabs_trim(loop->slabs);
    uv_timer_start(timer, on_tick, tick_ms(loop), 0);
}

void loop_tick_soon(struct loop *loop)
{
    if (!loop->stopping)
        uv_timer_start(&loop->tick, on_tick, TICK_LEAST_MS, 0);
}

/* --- life --- */

/* Watches the highest descriptor there can be, once, so that the table of watchers has its final
 * size. */
enum status loop_watchers_grow(uv_loop_t *uv, struct error *err)
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
    int r = uv_poll_init(uv, &poll, high);
    if (r == 0) {
        r = uv_poll_start(&poll, UV_READABLE, NULL);
        uv_close((uv_handle_t *)&poll, NULL);
        uv_run(uv, UV_RUN_NOWAIT);
    }
    close(high);
    return r == 0 ? STATUS_OK : error_set(err, STATUS_INTERNAL, "uv_poll: %s", uv_strerror(r));
}

/* Whether a slab is for payloads that the engine packs anyway, and so is not worth pinning. */
static bool slab_is_small(const struct device *device, size_t size)
{
    return engine_device_apart(device) && size <= ENGINE_PACK_MAX;
}

/* Large slabs that are not pinned are mapped, so that they can grow. */
static bool slab_is_mapped(const struct device *device, size_t size)
{
    return !engine_device_apart(device) && size >= SLAB_GROWN;
}

static void *mapped(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    return memory;
}

static void *slab_alloc(void *user, size_t size)
{
    void *memory;
    if (slab_is_small(user, size))
        return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
    if (slab_is_mapped(user, size))
        return mapped(size);
    return engine_buffer_alloc(user, size, "frames", &memory, NULL) ? NULL : memory;
}

static void slab_release(void *user, void *memory, size_t size)
{
    if (slab_is_small(user, size))
        free(memory);
    else if (slab_is_mapped(user, size))
        munmap(memory, size);
    else
        engine_buffer_free(user, memory);
}

static void *slab_grow(void *user UNUSED, void *memory, size_t size, size_t to)
{
    void *grown = mremap(memory, size, to, MREMAP_MAYMOVE);
    return grown == MAP_FAILED ? NULL : grown;
}

/* How many bytes of slabs are kept. Pinned memory is kept as far as the budget goes, because giving
 * it back may wait for the device. */
static size_t keep_most(const struct loop *loop)
{
    return engine_device_apart(loop->shared->device) ? SIZE_MAX : (size_t)LOOP_SLABS_KEPT;
}

static enum status handles_init(struct loop *loop, struct error *err)
{
    int r = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (r != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_async_init: %s", uv_strerror(r));
    uv_check_init(&loop->uv, &loop->turn_end);
    uv_idle_init(&loop->uv, &loop->again);
    uv_timer_init(&loop->uv, &loop->tick);
    uv_timer_init(&loop->uv, &loop->moment);
    loop->wake.data = loop->turn_end.data = loop->again.data = loop->tick.data = loop->moment.data =
        loop;
    uv_check_start(&loop->turn_end, on_turn_end);
    uv_timer_start(&loop->tick, on_tick, tick_ms(loop), 0);
    return STATUS_OK;
}

static enum status parts_make(struct loop *loop, struct error *err)
{
    struct device *device = loop->shared->device;
    const struct slab_memory memory = {slab_alloc, slab_release,
                                       engine_device_apart(device) ? NULL : slab_grow, device};
    loop->turns.budget = &loop->shared->budget;
    loop->slabs = slabs_new(&memory, &loop->shared->budget, keep_most(loop));
    loop->heads = malloc(LOOP_HEADS);
    if (!loop->slabs || !loop->heads)
        return error_no_memory(err, "a loop");
    TRY(loop_watchers_grow(&loop->uv, err));
    return handles_init(loop, err);
}

enum status loop_new(struct shared *shared, uint32_t index, struct table *table, struct loop **out,
                     struct error *err)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return error_no_memory(err, "a loop");
    int r = uv_loop_init(&loop->uv);
    if (r != 0) {
        free(loop);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_loop_init: %s", uv_strerror(r));
    }
    loop->shared = shared;
    loop->index = index;
    loop->submit_tail = &loop->submit_first;
    loop->results_tail = &loop->results;
    if (getrandom(&loop->seed, sizeof(loop->seed), GRND_NONBLOCK) < 0)
        loop->seed = (uintptr_t)loop;
    loop->table = table_ref(table);
    enum status status = parts_make(loop, err);
    if (status)
        loop_free(loop);
    else
        *out = loop;
    return status;
}

static void handle_close(uv_handle_t *handle, void *arg UNUSED)
{
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
    /* Takes what came after the loop had stopped. */
    loop_results_take(loop);
    loop_results_answer(loop, UINT64_MAX);
    while (loop->classes)
        exchange_classes_turn(loop);
    loop_messages_take(loop);
    exchange_shapes_turn(loop);
    loop_held_release(loop);
    loop_aside_drop(loop);
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
    for (uint32_t i = 0; i < SESSION_FORMATS; i++)
        for (uint32_t k = 0; k < SNAPSHOTS; k++)
            free(loop->snapshots[i][k].data);
    free(loop->slots);
    free(loop->heads);
    free(loop);
}

void loop_stop(struct loop *loop)
{
    if (loop->stopping)
        return;
    loop->stopping = true;
    loop_flush(loop);
    for (uint32_t i = 0; i < loop->n_slots; i++)
        if (loop->slots[i].connection)
            connection_die(loop->slots[i].connection);
    loop_turn(loop); /* closes them */
    uv_close((uv_handle_t *)&loop->tick, NULL);
    uv_close((uv_handle_t *)&loop->moment, NULL);
    uv_close((uv_handle_t *)&loop->turn_end, NULL);
    uv_close((uv_handle_t *)&loop->again, NULL);
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
