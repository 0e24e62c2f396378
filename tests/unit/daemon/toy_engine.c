/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon/toy_engine.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { MAX_BATCH = 16 };

struct toy toy;

struct engine {
    _Atomic int refs;
    struct engine_info info;
    struct engine_profile profile;
    struct engine_binding input, output;
    uint32_t in, out; /* numbers an instance */
    size_t out_offset;
};

struct lane {
    int unused;
};

enum { SHELF_BYTES = 1 << 20 };

struct shelf {
    _Atomic size_t size;
    _Alignas(64) uint8_t bytes[SHELF_BYTES];
};

struct context {
    struct engine *engine;
    uint64_t shelved;
    enum status result;
    struct error err;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool closed, standing; /* a worker waits at the gate */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

void toy_reset(void)
{
    memset(&toy, 0, sizeof(toy));
    toy_gate_open();
    atomic_store(&toy.contexts_allowed, -1);
    atomic_store(&toy.buffers_allowed, -1);
    atomic_store(&toy.shelves_allowed, -1);
}

struct device *toy_device(void)
{
    return (struct device *)(void *)&toy; /* only ever handed through */
}

/* --- the gate --- */

static void gate_set(bool closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    gate.standing &= closed;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
}

void toy_gate_close(void)
{
    gate_set(true);
}

void toy_gate_open(void)
{
    gate_set(false);
}

bool toy_gate_pass(void)
{
    pthread_mutex_lock(&gate.lock);
    bool stood = gate.standing;
    gate.standing = false;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
    return stood;
}

bool toy_gate_holds(void)
{
    pthread_mutex_lock(&gate.lock);
    bool holds = gate.standing;
    pthread_mutex_unlock(&gate.lock);
    return holds;
}

static void gate_stop(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.standing = gate.closed;
    while (gate.standing)
        pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

/* --- engines --- */

static struct engine *engine_make(uint32_t in, uint32_t out, size_t out_bytes)
{
    struct engine *e = calloc(1, sizeof(*e));
    assert(e);
    atomic_store(&e->refs, 1);
    e->in = in;
    e->out = out;
    e->input = (struct engine_binding){"x", DTYPE_U64, {2, {-1, in}}, 8 * (size_t)in};
    e->output = (struct engine_binding){"y", DTYPE_U64, {2, {-1, out}}, 8 * (size_t)out};
    e->profile = (struct engine_profile){
        .batch = MAX_BATCH, .out_offset = &e->out_offset, .out_bytes = out_bytes};
    e->info = (struct engine_info){.name = "toy",
                                   .batched = true,
                                   .max_batch = MAX_BATCH,
                                   .n_inputs = 1,
                                   .n_outputs = 1,
                                   .n_profiles = 1,
                                   .inputs = &e->input,
                                   .outputs = &e->output,
                                   .profiles = &e->profile,
                                   .out_bytes_max = out_bytes};
    atomic_fetch_add(&toy.engines, 1);
    return e;
}

struct engine *toy_engine_new(size_t out_bytes)
{
    return engine_make(1, 1, out_bytes);
}

struct engine *toy_engine_shaped(uint32_t in, uint32_t out)
{
    return engine_make(in, out, 8 * (size_t)out * MAX_BATCH);
}

struct engine *engine_ref(struct engine *engine)
{
    atomic_fetch_add(&engine->refs, 1);
    return engine;
}

void engine_unref(struct engine *engine)
{
    if (!engine || atomic_fetch_sub(&engine->refs, 1) > 1)
        return;
    atomic_fetch_sub(&toy.engines, 1);
    free(engine);
}

const struct engine_info *engine_describe(const struct engine *engine)
{
    return &engine->info;
}

const struct engine_profile *engine_profile_for(const struct engine *engine, uint32_t point UNUSED,
                                                uint32_t batch)
{
    return batch >= 1 && batch <= MAX_BATCH ? &engine->profile : NULL;
}

bool engine_device_apart(const struct device *device)
{
    assert(device == toy_device());
    return atomic_load(&toy.apart);
}

/* Takes one from the number allowed; a negative number never runs out. */
static bool allowed(_Atomic int *left)
{
    if (atomic_load(left) < 0)
        return true;
    if (atomic_fetch_sub(left, 1) > 0)
        return true;
    atomic_store(left, 0);
    return false;
}

struct buffer {
    size_t frames; /* the buffer's size, if it is for frames */
    _Alignas(64) uint8_t bytes[];
};

enum status engine_buffer_alloc(struct device *device, size_t size, const char *tag, void **out,
                                struct error *err)
{
    assert(device == toy_device());
    if (!allowed(&toy.buffers_allowed))
        return error_no_memory(err, "%s", tag);
    struct buffer *buffer = aligned_alloc(64, (sizeof(*buffer) + size + 63) / 64 * 64);
    assert(buffer);
    buffer->frames = strcmp(tag, "frames") == 0 ? size : 0;
    atomic_fetch_add(&toy.frame_bytes, buffer->frames);
    atomic_fetch_add(&toy.buffers, 1);
    *out = buffer->bytes;
    return STATUS_OK;
}

void engine_buffer_free(struct device *device, void *buffer)
{
    assert(device == toy_device());
    if (!buffer)
        return;
    struct buffer *b = CONTAINER_OF(buffer, struct buffer, bytes);
    atomic_fetch_sub(&toy.frame_bytes, b->frames);
    atomic_fetch_sub(&toy.buffers, 1);
    free(b);
}

/* --- shelves --- */

enum status shelf_new(struct device *device, struct shelf **out, struct error *err)
{
    assert(device == toy_device());
    if (!allowed(&toy.shelves_allowed))
        return error_no_memory(err, "a shelf");
    struct shelf *shelf = aligned_alloc(64, sizeof(*shelf));
    assert(shelf);
    atomic_init(&shelf->size, 0);
    atomic_fetch_add(&toy.shelves, 1);
    *out = shelf;
    return STATUS_OK;
}

enum status shelf_grow(struct shelf *shelf, size_t size, struct error *err)
{
    if (size > SHELF_BYTES)
        return error_no_memory(err, "a shelf");
    atomic_store(&shelf->size, MAX(atomic_load(&shelf->size), size));
    return STATUS_OK;
}

const void *shelf_at(const struct shelf *shelf, size_t offset)
{
    return shelf->bytes + offset;
}

void shelf_free(struct shelf *shelf)
{
    atomic_fetch_sub(&toy.shelves, shelf != NULL);
    free(shelf);
}

bool engine_input_apart(const struct engine *engine, uint32_t index)
{
    (void)engine;
    return index == 0;
}

struct engine_results *context_results(struct context *ctx UNUSED)
{
    return NULL; /* no sizes are late */
}

uint64_t context_shelved(const struct context *ctx)
{
    return ctx->shelved;
}

enum status lane_new(struct device *device, struct lane **out, struct error *err)
{
    (void)err;
    assert(device == toy_device());
    *out = calloc(1, sizeof(**out));
    atomic_fetch_add(&toy.lanes, 1);
    return STATUS_OK;
}

void lane_free(struct lane *lane)
{
    atomic_fetch_sub(&toy.lanes, lane != NULL);
    free(lane);
}

enum status context_new(struct engine *engine, struct lane *lane, struct context **out,
                        struct error *err)
{
    assert(lane);
    if (!allowed(&toy.contexts_allowed))
        return error_no_memory(err, "a context");
    struct context *ctx = calloc(1, sizeof(*ctx));
    assert(ctx);
    ctx->engine = engine_ref(engine);
    atomic_fetch_add(&toy.contexts, 1);
    *out = ctx;
    return STATUS_OK;
}

void context_free(struct context *ctx)
{
    if (!ctx)
        return;
    engine_unref(ctx->engine);
    atomic_fetch_sub(&toy.contexts, 1);
    free(ctx);
}

bool toy_is_poison(uint64_t x)
{
    uint64_t poison = atomic_load(&toy.poison);
    return poison && x % poison == 1;
}

static enum status refusal(enum status status, struct error *err)
{
    if (atomic_load(&toy.model_scope))
        err->scope = ERROR_MODEL;
    return status;
}

/* One instance; false: it is poisoned. */
static bool instance_run(const struct engine *e, const char *from, uint64_t *to, uint64_t *x)
{
    for (uint32_t k = 0; k < e->out; k++) {
        memcpy(x, from + 8 * (size_t)(k % e->in), 8);
        if (toy_is_poison(*x))
            return false;
        to[k] = *x + 1;
    }
    return true;
}

enum status context_enqueue_at(struct context *ctx, uint32_t point, uint32_t batch,
                               const struct engine_input *inputs, void *out, struct error *err)
{
    const struct engine_batch what = {.point = point, .instances = batch};
    return context_enqueue_batch(ctx, &what, inputs, out, err);
}

/* The bytes of a span, from a shelf if they are on one. */
static const char *bytes_of(const struct engine_batch *batch, const struct engine_input *input,
                            uint32_t i)
{
    const struct engine_request *request = batch->requests ? &batch->requests[i] : NULL;
    if (!request || !request->shelved || !request->shelved[0])
        return input->spans[i].data;
    atomic_fetch_add(&toy.fetched, 1);
    return request->shelved[0];
}

/* Leaves the output on the shelf; what nobody reads on the host is nothing there. */
static void put(struct context *ctx, const struct engine_batch *batch, void *out)
{
    size_t size = 8 * (size_t)ctx->engine->out * batch->instances;
    ctx->shelved = batch->shelf ? batch->shelve & 1 : 0;
    if (!ctx->shelved)
        return;
    assert(size <= atomic_load(&batch->shelf->size));
    memcpy(batch->shelf->bytes, out, size);
    if (!(batch->unread & 1))
        return;
    memset(out, 0xee, size);
    atomic_fetch_add(&toy.alone, 1);
}

enum status context_enqueue_batch(struct context *ctx, const struct engine_batch *batch,
                                  const struct engine_input *inputs, void *out, struct error *err)
{
    const struct engine *e = ctx->engine;
    int n = atomic_fetch_add(&toy.batches, 1) + 1;
    int fail_every = atomic_load(&toy.fail_every);
    uint64_t *to = out, left = batch->instances, x;
    if (n == atomic_load(&toy.lose_at)) {
        error_set(err, STATUS_INTERNAL, "the toy fell off the table");
        err->scope = ERROR_DEVICE;
        return STATUS_INTERNAL;
    }
    if (fail_every && n % fail_every == 0)
        return refusal(error_set(err, STATUS_INTERNAL, "the toy does not feel like it"), err);
    if (atomic_load(&toy.apart))
        gate_stop();
    for (uint32_t i = 0; i < inputs->n_spans; i++) {
        size_t instances = inputs->spans[i].size / (8 * (size_t)e->in);
        const char *from = bytes_of(batch, inputs, i);
        assert(instances <= left);
        for (size_t k = 0; k < instances; k++, from += 8 * (size_t)e->in, to += e->out)
            if (!instance_run(e, from, to, &x))
                return refusal(error_set(err, STATUS_INVALID_ARGUMENT, "the toy spits out %llu",
                                         (unsigned long long)x),
                               err);
        left -= instances;
    }
    assert(left == 0);
    put(ctx, batch, out);
    return STATUS_OK;
}

enum status context_wait_inputs(struct context *ctx, struct error *err)
{
    (void)ctx;
    (void)err;
    return STATUS_OK;
}

enum status context_wait(struct context *ctx, struct engine_times *times, struct error *err)
{
    (void)ctx;
    (void)err;
    gate_stop();
    uint64_t delay_ns = atomic_load(&toy.delay_ns);
    if (delay_ns)
        clock_sleep_until(clock_now_ns() + delay_ns);
    *times = (struct engine_times){1, 2, 3};
    return STATUS_OK;
}

/* What the rest of the daemon would ask; not reached here. */
enum status engine_device_open(const char *spec, const struct device_options *options,
                               struct device **out, struct error *err)
{
    (void)options;
    (void)out;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s", spec);
}

void engine_device_close(struct device *device)
{
    (void)device;
}

enum status engine_load(struct device *device, const char *path, struct engine **out,
                        struct error *err)
{
    (void)device;
    (void)out;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s", path);
}

enum status engine_load_fd(struct device *device, int fd, const char *name,
                           const struct file_guard *guard, const struct engine *like,
                           struct engine **out, struct error *err)
{
    (void)fd;
    (void)guard;
    (void)like;
    return engine_load(device, name, out, err);
}
