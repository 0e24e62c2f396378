/* SPDX-License-Identifier: Apache-2.0 */
/* The device: memory, streams, events and captures; see mock.h. */
#include "tests/unit/mock/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "engine/engine.h"
#include "tests/test.h"

static enum status refuse(struct error *err, const char *what)
{
    return error_set(err, STATUS_INTERNAL, "mock device: %s", what);
}

void mock_count(struct mock_device *d, uint64_t *what, uint64_t n)
{
    pthread_mutex_lock(&d->lock);
    *what += n;
    pthread_mutex_unlock(&d->lock);
}

/* --- memory --- */

/* The real address of `size` bytes of device memory; NULL: the address is not device memory. The
 * caller holds the lock. */
static void *real_of(const struct mock_device *d, const void *at, size_t size)
{
    const char *p = at;
    if (d->simulated)
        return (void *)(uintptr_t)at;
    for (uint32_t i = 0; i < d->n_ranges; i++) {
        const struct range *r = &d->ranges[i];
        if (r->kind == MEMORY_DEVICE && p >= r->at && p <= r->at + r->size &&
            size <= (size_t)(r->at + r->size - p))
            return r->real + (p - r->at);
    }
    return NULL;
}

/* Whether no byte is device memory, and all bytes are in one allocation if any byte is pinned. The
 * caller holds the lock. */
static bool on_host(const struct mock_device *d, const void *at, size_t size)
{
    const char *p = at;
    for (uint32_t i = 0; i < d->n_ranges && !d->simulated; i++) {
        const struct range *r = &d->ranges[i];
        bool meet = r->at && p < r->at + r->reserved && p + size > r->at;
        if (meet && (r->kind == MEMORY_DEVICE || p < r->at || p + size > r->at + r->size))
            return false;
    }
    return true;
}

static size_t whole(size_t size, size_t unit)
{
    return (MAX(size, (size_t)1) + unit - 1) / unit * unit;
}

static char *map(size_t size, int access)
{
    void *at = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

/* The first gap of at least `size` bytes. */
static char *find_pinned(const struct mock_device *d, size_t size)
{
    char *at = d->pinned;
    for (uint32_t i = 0; i < d->n_ranges; i++) {
        const struct range *r = &d->ranges[i];
        if (r->kind == MEMORY_PINNED && at < r->at + r->reserved && at + size > r->at) {
            at = r->at + r->reserved;
            i = UINT32_MAX; /* look at all allocations once more */
        }
    }
    assert_true(at + size <= d->pinned + PINNED_MAX);
    return at;
}

/* Under the lock. */
static struct range *range_new(struct mock_device *d, enum memory_kind kind, size_t size,
                               size_t reserve)
{
    uint32_t i = 0;
    while (i < d->n_ranges && d->ranges[i].at)
        i++;
    assert_true(i < RANGES_MAX);
    d->n_ranges = MAX(d->n_ranges, i + 1);
    struct range *r = &d->ranges[i];
    r->reserved = whole(reserve, kind == MEMORY_PINNED ? (size_t)BACKEND_ALIGN : 4096);
    if (kind == MEMORY_PINNED) {
        r->at = r->real = find_pinned(d, r->reserved);
    } else {
        r->real = map(r->reserved, PROT_READ | PROT_WRITE);
        r->at = d->simulated ? r->real : map(r->reserved, PROT_NONE);
    }
    r->size = size;
    r->kind = kind;
    memset(r->real, POISON, size);
    return r;
}

static void range_free(struct range *r)
{
    if (r->kind == MEMORY_DEVICE) {
        munmap(r->real, r->reserved);
        if (r->at != r->real)
            munmap(r->at, r->reserved);
    }
    *r = (struct range){0};
}

static size_t *held(struct mock_device *d, enum memory_kind kind)
{
    return kind == MEMORY_DEVICE ? &d->counts.device_bytes : &d->counts.pinned_bytes;
}

static enum status memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                                const char *tag, void **out, struct error *err UNUSED)
{
    struct mock_device *d = mock_of(device);
    assert_true(tag && *tag);
    pthread_mutex_lock(&d->lock);
    *out = range_new(d, kind, size, size)->at;
    d->counts.allocations++;
    *held(d, kind) += size;
    pthread_mutex_unlock(&d->lock);
    return STATUS_OK;
}

static void memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    struct mock_device *d = mock_of(device);
    pthread_mutex_lock(&d->lock);
    uint32_t i = 0;
    while (memory && i < d->n_ranges && d->ranges[i].at != memory)
        i++;
    assert_true(i < d->n_ranges && d->ranges[i].kind == kind);
    *held(d, kind) -= d->ranges[i].size;
    range_free(&d->ranges[i]);
    pthread_mutex_unlock(&d->lock);
}

/* --- memory of another process: that of memory_alloc, whose handle is its address --- */

struct backend_shared {
    struct mock_device *device;
    struct range *range;
};

static enum status shared_open(struct device *device, const void *handle, size_t least,
                               struct backend_shared **out, struct error *err)
{
    struct mock_device *d = mock_of(device);
    void *at;
    struct range *found = NULL;
    memcpy(&at, handle, sizeof(at));
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->n_ranges && at; i++)
        if (d->ranges[i].at == at && d->ranges[i].kind == MEMORY_DEVICE)
            found = &d->ranges[i];
    pthread_mutex_unlock(&d->lock);
    if (!found || found->size < least)
        return error_set(err, STATUS_INVALID_ARGUMENT, "mock device: no such handle");
    struct backend_shared *shared = malloc(sizeof(*shared));
    assert_non_null(shared);
    *shared = (struct backend_shared){d, found};
    *out = shared;
    return STATUS_OK;
}

static void shared_close(struct backend_shared *shared)
{
    free(shared);
}

static enum status shared_read(struct backend_shared *shared, size_t at, void *to, size_t size,
                               struct error *err UNUSED)
{
    assert_true(at + size <= shared->range->size);
    memcpy(to, (char *)shared->range->real + at, size);
    return STATUS_OK;
}

static enum status shared_write(struct backend_shared *shared, size_t at, const void *from,
                                size_t size, struct error *err UNUSED)
{
    assert_true(at + size <= shared->range->size);
    memcpy((char *)shared->range->real + at, from, size);
    return STATUS_OK;
}

static enum status arena_make(struct device *device, size_t reserve, struct backend_arena **out,
                              struct error *err UNUSED)
{
    struct backend_arena *arena = calloc(1, sizeof(*arena));
    assert_non_null(arena);
    arena->device = mock_of(device);
    pthread_mutex_lock(&arena->device->lock);
    arena->range =
        (uint32_t)(range_new(arena->device, MEMORY_DEVICE, 0, MIN(reserve, (size_t)1 << 28)) -
                   arena->device->ranges);
    pthread_mutex_unlock(&arena->device->lock);
    *out = arena;
    return STATUS_OK;
}

static enum status arena_grow(struct backend_arena *arena, size_t size, struct error *err)
{
    struct mock_device *d = arena->device;
    struct range *r = &d->ranges[arena->range];
    if (size > r->reserved)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "mock device: the arena is too small");
    pthread_mutex_lock(&d->lock);
    if (size > r->size) {
        memset(r->real + r->size, POISON, size - r->size);
        d->counts.device_bytes += size - r->size;
        d->counts.allocations++;
        r->size = size;
    }
    pthread_mutex_unlock(&d->lock);
    return STATUS_OK;
}

static void *arena_base(struct backend_arena *arena)
{
    return arena->device->ranges[arena->range].at;
}

static void arena_drop(struct backend_arena *arena)
{
    if (!arena)
        return;
    struct mock_device *d = arena->device;
    pthread_mutex_lock(&d->lock);
    d->counts.device_bytes -= d->ranges[arena->range].size;
    range_free(&d->ranges[arena->range]);
    pthread_mutex_unlock(&d->lock);
    free(arena);
}

/* --- a stream's thread --- */

static void pass_event(struct mock_device *d, struct backend_event *event)
{
    pthread_mutex_lock(&d->lock);
    event->passed++;
    event->at_ns = d->simulated ? d->now_ns : clock_now_ns();
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
}

static void pass_half(struct mock_device *d, uint64_t turn)
{
    pthread_mutex_lock(&d->lock);
    if (d->halves + 1 != turn)
        abort(); /* the launch did not wait for its turn */
    d->halves = turn;
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
}

static void run_task(struct mock_device *d, const struct task *t, uint64_t turn)
{
    struct error err;
    switch (t->kind) {
    case TASK_COPY:
        for (uint32_t i = 0; i < t->n_copies; i++)
            memcpy(t->copies[i].to, t->copies[i].from, t->copies[i].size);
        break;
    case TASK_OP:
        if (d->simulated)
            mock_spend(t->op);
        else if (backend_cpu.op_launch(t->op->inner, t->op->stream, t->inputs, t->outputs,
                                       t->workspace, &err)) {
            fprintf(stderr, "mock device: %s\n", err.text);
            abort();
        }
        break;
    case TASK_EVENT:
        pass_event(d, t->event);
        break;
    case TASK_HALF:
        pass_half(d, turn);
        break;
    case TASK_GRAPH:
        for (uint32_t i = 0; i < t->graph->n; i++)
            run_task(d, &t->graph->tasks[i], t->turn);
        break;
    }
}

/* Under the lock. */
static void end_task(struct backend_stream *s, const struct task *t)
{
    if (t->kind == TASK_GRAPH)
        t->graph->ended++;
    s->head++;
}

static void *stream_main(void *arg)
{
    struct backend_stream *s = arg;
    struct mock_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (s->head == s->tail && !s->stop)
            pthread_cond_wait(&d->moved, &d->lock);
        if (s->head == s->tail)
            break;
        const struct task *t = &s->queue[s->head % QUEUE_MAX];
        uint64_t delay_ns = d->delay_ns;
        while (d->halves < t->behind)
            pthread_cond_wait(&d->moved, &d->lock);
        pthread_mutex_unlock(&d->lock);
        if (delay_ns)
            clock_sleep_until(clock_now_ns() + delay_ns);
        run_task(d, t, 0);
        pthread_mutex_lock(&d->lock);
        end_task(s, t);
        pthread_cond_broadcast(&d->moved);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Room for a task in the graph that is being captured, or else at the end of the queue. The caller
 * holds the lock. */
struct task *mock_task_new(struct backend_stream *s)
{
    if (s->capture) {
        struct backend_graph *g = s->capture;
        g->tasks = realloc(g->tasks, (g->n + 1) * sizeof(*g->tasks));
        assert_non_null(g->tasks);
        return &g->tasks[g->n++];
    }
    while (s->tail - s->head == QUEUE_MAX)
        pthread_cond_wait(&s->device->moved, &s->device->lock);
    return &s->queue[s->tail % QUEUE_MAX];
}

void mock_task_put(struct backend_stream *s)
{
    struct mock_device *d = s->device;
    if (!s->capture)
        s->tail++;
    if (!s->capture && d->simulated) { /* no thread has been started */
        const struct task *t = &s->queue[s->head % QUEUE_MAX];
        pthread_mutex_unlock(&d->lock);
        run_task(d, t, 0);
        pthread_mutex_lock(&d->lock);
        end_task(s, t);
    }
    pthread_cond_broadcast(&d->moved);
}

static enum status stream_new(struct device *device, struct backend_stream **out,
                              struct error *err UNUSED)
{
    struct backend_stream *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->device = mock_of(device);
    s->queue = calloc(QUEUE_MAX, sizeof(*s->queue));
    assert_non_null(s->queue);
    if (!s->device->simulated)
        assert_int_equal(pthread_create(&s->thread, NULL, stream_main, s), 0);
    mock_count(s->device, &s->device->counts.allocations, 1);
    *out = s;
    return STATUS_OK;
}

static void stream_free(struct backend_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->device->lock);
    assert_int_equal(s->graphs, 0);
    s->stop = true;
    pthread_cond_broadcast(&s->device->moved);
    pthread_mutex_unlock(&s->device->lock);
    if (!s->device->simulated)
        pthread_join(s->thread, NULL);
    free(s->queue);
    free(s);
}

/* --- events and copies --- */

static enum status event_new(struct device *device, bool timing, struct backend_event **out,
                             struct error *err UNUSED)
{
    struct backend_event *event = calloc(1, sizeof(*event));
    assert_non_null(event);
    event->device = mock_of(device);
    event->timing = timing;
    mock_count(event->device, &event->device->counts.allocations, 1);
    *out = event;
    return STATUS_OK;
}

static void event_free(struct backend_event *event)
{
    free(event);
}

static enum status event_record(struct backend_event *event, struct backend_stream *s,
                                struct error *err UNUSED)
{
    pthread_mutex_lock(&s->device->lock);
    *mock_task_new(s) = (struct task){.kind = TASK_EVENT, .event = event};
    if (s->capture)
        s->capture->what.events++;
    else
        event->recorded++;
    mock_task_put(s);
    pthread_mutex_unlock(&s->device->lock);
    return STATUS_OK;
}

static enum status event_wait(struct backend_event *event, struct error *err UNUSED)
{
    pthread_mutex_lock(&event->device->lock);
    while (event->passed < event->recorded)
        pthread_cond_wait(&event->device->moved, &event->device->lock);
    pthread_mutex_unlock(&event->device->lock);
    return STATUS_OK;
}

static enum status event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                                 struct error *err)
{
    struct mock_device *d = from->device;
    pthread_mutex_lock(&d->lock);
    bool ok = from->timing && to->timing && from->passed && to->passed &&
              from->passed >= from->recorded && to->passed >= to->recorded;
    *ns = MAX(to->at_ns, from->at_ns) - from->at_ns;
    pthread_mutex_unlock(&d->lock);
    return ok ? STATUS_OK : refuse(err, "elapsed time of events that have not passed");
}

static uint64_t longest_wait(struct backend_stream *s)
{
    uint64_t waited = s->device->script.told ? s->device->waited_ns : 0;
    s->device->waited_ns = 0;
    return waited;
}

static bool translate(const struct mock_device *d, enum copy_direction direction,
                      const struct backend_copy *from, struct backend_copy *to)
{
    *to = *from;
    if (direction == COPY_TO_HOST ? !on_host(d, from->to, from->size)
                                  : !(to->to = real_of(d, from->to, from->size)))
        return false;
    return direction == COPY_TO_DEVICE ? on_host(d, from->from, from->size)
                                       : (to->from = real_of(d, from->from, from->size)) != NULL;
}

static enum status copy(struct backend_stream *s, enum copy_direction direction,
                        const struct backend_copy *copies, uint32_t n, struct error *err)
{
    struct mock_device *d = s->device;
    bool ok = true;
    pthread_mutex_lock(&d->lock);
    d->counts.copy_calls[direction]++;
    d->counts.copies[direction] += n;
    for (uint32_t i = 0; i < n && ok;) {
        struct task *t = mock_task_new(s);
        *t = (struct task){.kind = TASK_COPY};
        for (; i < n && ok && t->n_copies < COPIES_MAX; i++)
            ok = translate(d, direction, &copies[i], &t->copies[t->n_copies++]);
        if (ok)
            mock_task_put(s);
    }
    pthread_mutex_unlock(&d->lock);
    return ok ? STATUS_OK : refuse(err, "a copy between the wrong sides");
}

/* functions that ops.c needs */

bool mock_find_all(const struct mock_device *d, uint32_t n, void *const *at, void **real)
{
    for (uint32_t i = 0; i < n; i++) {
        real[i] = at[i] ? real_of(d, at[i], 1) : NULL;
        if (at[i] && !real[i])
            return false;
    }
    return true;
}

/* --- capture --- */

static enum status capture_begin(struct backend_stream *s, struct error *err)
{
    if (s->capture)
        return refuse(err, "a capture within a capture");
    struct backend_graph *graph = calloc(1, sizeof(*graph));
    assert_non_null(graph);
    graph->device = s->device;
    pthread_mutex_lock(&s->device->lock);
    s->capture = graph;
    s->device->counts.allocations++;
    s->device->counts.captured++;
    pthread_mutex_unlock(&s->device->lock);
    return STATUS_OK;
}

static enum status capture_half(struct backend_stream *s, struct error *err)
{
    if (!s->capture || s->capture->what.marks)
        return refuse(err, "half of no capture, or once more");
    pthread_mutex_lock(&s->device->lock);
    s->capture->what.marks++;
    s->capture->what.marked_at = s->capture->what.ops;
    *mock_task_new(s) = (struct task){.kind = TASK_HALF};
    mock_task_put(s);
    pthread_mutex_unlock(&s->device->lock);
    return STATUS_OK;
}

static enum status capture_end(struct backend_stream *s, struct backend_graph **out,
                               struct error *err)
{
    struct mock_device *d = s->device;
    if (!s->capture)
        return refuse(err, "the end of no capture");
    pthread_mutex_lock(&d->lock);
    *out = s->capture;
    s->capture = NULL;
    (*out)->stream = s;
    s->graphs++;
    d->captures[d->n_captures++ % CAPTURES_MAX] = (*out)->what;
    pthread_mutex_unlock(&d->lock);
    return STATUS_OK;
}

/* Gives the launch of a marked graph its number, and the number of the launch that it waits for.
 * The caller holds the lock. */
static void take_turn(struct backend_graph *graph, struct task *t)
{
    struct mock_device *d = graph->device;
    if (d->turn && d->turn->stream != graph->stream) {
        t->behind = d->turns;
        d->counts.turns++;
    }
    t->turn = ++d->turns;
    d->turn = graph;
}

static enum status graph_launch(struct backend_graph *graph, struct backend_stream *s,
                                struct error *err)
{
    if (s != graph->stream)
        return refuse(err, "a graph on another stream than its ops'");
    pthread_mutex_lock(&s->device->lock);
    s->device->counts.graphs++;
    for (uint32_t i = 0; i < graph->n; i++)
        if (graph->tasks[i].kind == TASK_EVENT)
            graph->tasks[i].event->recorded++;
    struct task *t = mock_task_new(s);
    *t = (struct task){.kind = TASK_GRAPH, .graph = graph};
    if (graph->what.marks)
        take_turn(graph, t);
    graph->launched++;
    mock_task_put(s);
    pthread_mutex_unlock(&s->device->lock);
    return STATUS_OK;
}

static void graph_free(struct backend_graph *graph)
{
    if (!graph)
        return;
    struct mock_device *d = graph->device;
    pthread_mutex_lock(&d->lock);
    assert_int_equal(graph->ended, graph->launched);
    if (d->turn == graph)
        d->turn = NULL;
    graph->stream->graphs--;
    pthread_mutex_unlock(&d->lock);
    free(graph->tasks);
    free(graph);
}

/* --- device --- */

static enum status device_count(uint32_t *out, struct error *err UNUSED)
{
    *out = 1;
    return STATUS_OK;
}

static enum status device_open(const struct device_options *options UNUSED, struct device **out,
                               struct error *err)
{
    const struct device_options plain = {.threads = 1, .reference_only = true};
    struct mock_device *d = calloc(1, sizeof(*d));
    assert_non_null(d);
    enum status status = engine_device_open("cpu", &plain, &d->cpu, err);
    if (status) {
        free(d);
        return status;
    }
    d->pinned = map(PINNED_MAX, PROT_READ | PROT_WRITE);
    d->base = (struct device){.backend = &backend_mock, .threads = 1, .reference_only = true};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->moved, NULL);
    *out = &d->base;
    return STATUS_OK;
}

static void device_close(struct device *device)
{
    if (!device)
        return;
    struct mock_device *d = mock_of(device);
    for (uint32_t i = 0; i < d->n_ranges; i++)
        assert_null(d->ranges[i].at); /* all memory has been given back */
    assert_int_equal(d->open_ops, 0);
    mock_compile_drop(device);
    munmap(d->pinned, PINNED_MAX);
    engine_device_close(d->cpu);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->moved);
    free(d);
}

static void device_fingerprint(struct device *device UNUSED, char out[FINGERPRINT_MAX])
{
    snprintf(out, FINGERPRINT_MAX, "mock");
}

const struct backend backend_mock = {
    .abi = BACKEND_ABI,
    .name = "mock",
    .stable_addresses = true,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_fingerprint = device_fingerprint,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .arena_new = arena_make,
    .arena_grow = arena_grow,
    .arena_base = arena_base,
    .arena_free = arena_drop,
    .shared_open = shared_open,
    .shared_close = shared_close,
    .shared_read = shared_read,
    .shared_write = shared_write,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .copy = copy,
    .compile = mock_compile,
    .compile_drop = mock_compile_drop,
    .op_prepare = mock_op_prepare,
    .op_workspace = mock_op_workspace,
    .op_free = mock_op_free,
    .op_launch = mock_op_launch,
    .capture_begin = capture_begin,
    .capture_half = capture_half,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
};

struct device *mock_simulate(void)
{
    struct device *device = mock_open();
    struct mock_device *d = mock_of(device);
    d->simulated = true;
    d->table = backend_mock;
    d->table.features = BACKEND_SCALES;
    d->table.candidates = mock_candidates;
    d->table.pack = mock_pack;
    d->table.code = mock_code;
    d->table.capture_half = NULL;
    d->table.longest_wait = longest_wait;
    d->base.backend = &d->table;
    return device;
}

struct mock_script *mock_script(struct device *device)
{
    return &mock_of(device)->script;
}

void mock_add_features(struct device *device, uint32_t features)
{
    mock_of(device)->table.features |= features;
}

struct device *mock_open(void)
{
    struct error err;
    struct device *device = NULL;
    const struct device_options options = {.reference_only = true};
    if (device_open(&options, &device, &err))
        fail_msg("%s", err.text);
    return device;
}

void mock_read(const struct device *device, struct mock_counts *out)
{
    struct mock_device *d = mock_of(device);
    pthread_mutex_lock(&d->lock);
    *out = d->counts;
    pthread_mutex_unlock(&d->lock);
}

uint32_t mock_read_captures(const struct device *device, struct mock_capture *out, uint32_t max)
{
    struct mock_device *d = mock_of(device);
    pthread_mutex_lock(&d->lock);
    uint32_t n = d->n_captures;
    assert_true(n <= CAPTURES_MAX && n <= max);
    memcpy(out, d->captures, n * sizeof(*out));
    pthread_mutex_unlock(&d->lock);
    return n;
}

void mock_set_delay(struct device *device, uint64_t ns)
{
    struct mock_device *d = mock_of(device);
    pthread_mutex_lock(&d->lock);
    d->delay_ns = ns;
    pthread_mutex_unlock(&d->lock);
}
