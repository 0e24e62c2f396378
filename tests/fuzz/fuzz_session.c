/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the stream of a peer, cut in any way: frames, requests, and their check against a
 * model.
 *
 * The first byte decides how the rest is cut into pieces. The second byte describes the host: how
 * much memory it has, and how many requests it takes before it pauses. What must hold: each reply
 * is a frame that the client's decoder accepts; each request is answered once; memory held is in
 * proportion to the bytes that came (R1 of docs/operations.md) and is all given back; and without a
 * shortage of memory the answers are the same however the stream was cut.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admission.h"
#include "daemon/session.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 300 * 1024, PENDING = 64, STAGING = 128 * 1024 };

static const struct engine_binding inputs[] = {
    {"a", DTYPE_F32, {2, {-1, 2}}, 8},
    {"n", DTYPE_I64, {3, {-1, 1, 1}}, 8},
};
static const struct engine_binding outputs[] = {{"sum", DTYPE_F32, {2, {-1, 2}}, 8}};
static const struct engine_info info = {.batched = true,
                                        .max_batch = 16384,
                                        .n_inputs = 2,
                                        .n_outputs = 1,
                                        .inputs = inputs,
                                        .outputs = outputs};

struct waiting {
    uint64_t id;
    bool infer;
    struct slab *frame;
};

struct host {
    struct session_host base;
    struct session *session;
    struct slabs *slabs;
    struct budget budget;
    uint32_t most; /* requests before it pauses */
    bool ended, starved;
    size_t queued; /* bytes that have come and have not been read */
    uint32_t n_waiting;
    struct waiting waiting[PENDING];
    uint64_t asked, answered, hash;
    uint8_t seen; /* made of the payloads' bytes, so that the reads are not left out */
    struct request scratch;
    uint8_t head[MESSAGE_HEAD_MAX];
};

static void must(bool holds)
{
    if (!holds)
        abort();
}

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, base);
}

static void reply(struct host *h, const struct response *response)
{
    h->answered++;
    session_framed.reply(h->session, response);
}

static void reply_error(struct host *h, uint64_t id, const struct error *err)
{
    const struct response response = {
        .id = id, .status = err->status, .message = message_text_of(err->text)};
    reply(h, &response);
}

/* Every byte of a payload is read, as a worker would. */
static uint8_t payload_read(const struct message_tensor *t)
{
    size_t size = 0;
    uint8_t sum = 0;
    if (t->typed) {
        struct error err;
        must(shape_bytes(&t->shape, t->dtype, &size) && size <= (1 << 20));
        void *raw = malloc(size + 1);
        if (raw && message_unpack(t, raw, size, &err) == STATUS_OK)
            for (size_t i = 0; i < size; i++)
                sum ^= ((uint8_t *)raw)[i];
        free(raw);
    }
    for (size_t i = 0; !t->typed && i < t->size; i++)
        sum ^= ((const uint8_t *)t->data)[i];
    return sum;
}

static void on_request(struct session_host *base, const struct request *r, struct slab *frame)
{
    struct host *h = host_of(base);
    struct admission admission;
    struct error err;
    h->asked++;
    if (r->kind == REQUEST_INFER &&
        admission_check(&info, info.max_batch, r, &admission, &err) != STATUS_OK) {
        base->ops->slab_give(base, frame);
        reply_error(h, r->id, &err);
        return;
    }
    for (uint32_t i = 0; r->kind == REQUEST_INFER && i < r->n_inputs; i++)
        h->seen ^= payload_read(&r->inputs[i]);
    must(h->n_waiting < PENDING);
    h->waiting[h->n_waiting++] = (struct waiting){r->id, r->kind == REQUEST_INFER, frame};
}

static void on_malformed(struct session_host *base, uint64_t id, const struct error *err)
{
    host_of(base)->asked++;
    reply_error(host_of(base), id, err);
}

static bool on_paused(struct session_host *base)
{
    const struct host *h = host_of(base);
    return h->n_waiting >= h->most || h->starved || h->ended;
}

static void *on_head(struct session_host *base)
{
    return host_of(base)->head;
}

static void on_write(struct session_host *base, const struct iovec *iov, uint32_t n)
{
    struct host *h = host_of(base);
    static struct response response;
    struct error err;
    size_t len = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        len += iov[i].iov_len;
    uint8_t *frame = malloc(len);
    must(frame != NULL);
    for (uint32_t i = 0; i < n; at += iov[i++].iov_len)
        memcpy(frame + at, iov[i].iov_base, iov[i].iov_len);
    must(len >= FRAME_HEAD_BYTES && frame_head_read(frame) == len - FRAME_HEAD_BYTES);
    must(response_decode(frame + FRAME_HEAD_BYTES, len - FRAME_HEAD_BYTES, &response, &err) ==
         STATUS_OK);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ frame[i]) * UINT64_C(1099511628211);
    h->hash += hash; /* errors may overtake answers that wait, so the order does not count */
    free(frame);
}

static struct slab *on_slab_take(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    struct slab *slab = slabs_take(h->slabs, size, SLAB_REQUEST);
    h->starved |= !slab;
    return slab;
}

/* Takes the memory as if it had been set aside before, whatever the budget says. */
static struct slab *on_slab_left(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    must(size <= STAGING);
    uint64_t limit = atomic_exchange(&h->budget.limit, UINT64_C(1) << 40);
    struct slab *slab = slabs_take(h->slabs, size, SLAB_REQUEST);
    atomic_store(&h->budget.limit, limit);
    return slab;
}

static size_t on_queued(struct session_host *base)
{
    return host_of(base)->queued;
}

static void on_slab_give(struct session_host *base, struct slab *slab)
{
    slabs_give(host_of(base)->slabs, slab);
}

static struct request *on_scratch(struct session_host *base)
{
    return &host_of(base)->scratch;
}

static size_t on_frame_limit(struct session_host *base)
{
    (void)base;
    return LIMIT;
}

static enum status on_introduce(struct session_host *base, const void *message, size_t size,
                                size_t whole, struct error *err)
{
    (void)base;
    (void)message;
    (void)size;
    return error_set(err, STATUS_INVALID_ARGUMENT, "a frame of %zu bytes; the limit is %d", whole,
                     LIMIT);
}

static void on_end(struct session_host *base, enum session_end why)
{
    (void)why;
    host_of(base)->ended = true;
}

static const struct session_host_ops ops = {
    .request = on_request,
    .malformed = on_malformed,
    .paused = on_paused,
    .head = on_head,
    .write = on_write,
    .slab_take = on_slab_take,
    .slab_left = on_slab_left,
    .queued = on_queued,
    .slab_give = on_slab_give,
    .scratch = on_scratch,
    .frame_limit = on_frame_limit,
    .introduce = on_introduce,
    .end = on_end,
};

/* Answers what waits, in order, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    static const float result[2] = {1, 2};
    while (h->n_waiting || (h->starved && !h->ended)) {
        struct waiting now[PENDING];
        uint32_t n = h->n_waiting;
        memcpy(now, h->waiting, sizeof(now));
        h->n_waiting = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct response response = {.id = now[i].id, .kind = REQUEST_SERVER_LIVE, .yes = true};
            if (now[i].infer) {
                response.kind = REQUEST_INFER;
                response.n_outputs = 1;
                response.outputs[0] = (struct message_tensor){.name = message_text_of("sum"),
                                                              .dtype = DTYPE_F32,
                                                              .shape = {2, {1, 2}},
                                                              .data = result,
                                                              .size = sizeof(result)};
            }
            reply(h, &response);
            slabs_give(h->slabs, now[i].frame);
        }
        h->starved = false;
        session_framed.resume(h->session);
    }
}

/* Hands over one piece as a connection does: if the session offers a place, the piece is read into
 * it. */
static size_t piece(struct host *h, const uint8_t *data, size_t n)
{
    void *at;
    size_t room;
    session_framed.buffer(h->session, &at, &room);
    if (room) {
        n = n < room ? n : room;
        memcpy(at, data, n);
        session_framed.input(h->session, at, n);
        return n;
    }
    n = n < STAGING ? n : STAGING;
    uint8_t *staging = malloc(n); /* exactly the size of the piece, so a read beyond it is seen */
    must(staging != NULL);
    memcpy(staging, data, n);
    session_framed.input(h->session, staging, n);
    free(staging);
    return n;
}

static void *memory_alloc(void *user, size_t size)
{
    (void)user;
    return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
}

static void memory_release(void *user, void *memory, size_t size)
{
    (void)size;
    (void)user;
    free(memory);
}

static uint64_t run(const uint8_t *data, size_t size, uint8_t cut, uint32_t most, uint64_t budget)
{
    static const size_t sizes[] = {1, 2, 3, 5, 64, 1000, 4096, 70000, SIZE_MAX};
    const struct slab_memory memory = {memory_alloc, memory_release, NULL};
    struct host *h = calloc(1, sizeof(*h));
    must(h != NULL);
    h->base.ops = &ops;
    h->most = most;
    atomic_store(&h->budget.limit, budget);
    h->slabs = slabs_new(&memory, &h->budget, 1 << 20);
    h->session = session_framed.create(&h->base);
    must(h->slabs && h->session);
    if (size > 8 * 1024 && cut < 5) /* because byte by byte takes long */
        cut = 7;
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->ended;) {
        size_t n = sizes[cut < 9 ? cut : (seed = seed * 1664525 + 1013904223) >> 16 & 7];
        n = n < size - at ? n : size - at;
        h->queued = cut % 2 ? size - at - n : 0; /* what a socket would hold, or nothing */
        at += piece(h, data + at, n);
        /* Bytes that are left at a pause have a place of their own. All other memory is in
         * proportion to the bytes that came. */
        must(budget_used(&h->budget) <= 8 * 1024 + 5 * (at + h->queued) + 2 * STAGING);
        if (on_paused(&h->base) || at == size)
            settle(h);
        struct session_state state;
        session_framed.state(h->session, &state);
        must(state.received <= at);
    }
    settle(h);
    must(h->asked == h->answered);
    session_framed.destroy(h->session);
    must(budget_used(&h->budget) == 0);
    slabs_free(h->slabs);
    uint64_t hash = h->hash;
    free(h);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > (1 << 20))
        return 0;
    uint32_t most = 1 + data[1] % 16;
    bool scarce = data[1] >= 128;
    uint64_t hash = run(data + 2, size - 2, data[0], most, scarce ? 20000 : UINT64_C(1) << 40);
    if (!scarce)
        must(hash == run(data + 2, size - 2, 8, PENDING, UINT64_C(1) << 40));
    return 0;
}
