/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a peer sends over HTTP/1.1, cut in any way: heads, chunks, JSON, binary
 * tensors.
 *
 * The first byte decides how the rest is cut into pieces; the second how much memory the host has,
 * and how soon it tires. What must hold: each request is answered once, by a head and as many bytes
 * as it announces; memory held is in proportion to the bytes that came and is all given back; and
 * without a shortage of memory the answers are the same however the stream was cut.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admission.h"
#include "daemon/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 300 * 1024, STAGING = 128 * 1024, ROOM = 256 * 1024, BIG = 3000 };

static const struct engine_binding inputs[] = {
    {"a", DTYPE_F32, {2, {-1, 2}}, 8},
    {"n", DTYPE_I64, {2, {-1, 1}}, 8},
};
static const struct engine_binding outputs[] = {{"sum", DTYPE_F32, {2, {-1, 2}}, 8},
                                                {"big", DTYPE_F32, {2, {-1, BIG}}, 4 * BIG}};
static const struct engine_info info = {.batched = true,
                                        .max_batch = 16384,
                                        .n_inputs = 2,
                                        .n_outputs = 2,
                                        .inputs = inputs,
                                        .outputs = outputs};

struct host {
    struct session_host base;
    struct session *session;
    struct slabs *slabs;
    struct budget budget;
    bool ended, starved, held, infer;
    uint32_t tire, looks; /* every so many looks it is tired */
    bool tired;
    size_t queued;
    bool waiting; /* a request, */
    uint64_t id;  /* of this number */
    enum request_kind kind;
    uint32_t n_outputs;
    uint8_t output[MESSAGE_MAX_TENSORS];
    struct slab *frame;
    uint64_t asked, answered, heads, hash;
    uint64_t left; /* bytes of the reply that is being written */
    uint8_t seen;
    struct request scratch;
    uint8_t room[ROOM];
    size_t room_used;
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
    session_http.reply(h->session, response);
}

static void reply_error(struct host *h, uint64_t id, const struct error *err)
{
    const struct response response = {
        .id = id, .status = err->status, .message = message_text_of(err->text)};
    reply(h, &response);
}

static void on_request(struct session_host *base, const struct request *r, struct slab *frame)
{
    struct host *h = host_of(base);
    struct admission admission = {0};
    struct error err;
    h->asked++;
    must(!h->waiting);
    for (uint32_t i = 0; r->kind == REQUEST_INFER && i < r->n_inputs; i++)
        for (size_t k = 0; k < r->inputs[i].size; k++)
            h->seen ^= ((const uint8_t *)r->inputs[i].data)[k];
    if (r->kind == REQUEST_INFER &&
        admission_check(&info, info.max_batch, r, &admission, &err) != STATUS_OK) {
        base->ops->slab_give(base, frame);
        reply_error(h, r->id, &err);
        return;
    }
    h->waiting = true;
    h->id = r->id;
    h->kind = r->kind;
    h->frame = frame;
    h->n_outputs = admission.n_outputs;
    memcpy(h->output, admission.output, sizeof(h->output));
}

static void on_malformed(struct session_host *base, uint64_t id, const struct error *err)
{
    host_of(base)->asked++;
    reply_error(host_of(base), id, err);
}

static bool on_paused(struct session_host *base)
{
    const struct host *h = host_of(base);
    return h->held || h->starved || h->ended || h->tired;
}

static bool on_tired(struct session_host *base)
{
    struct host *h = host_of(base);
    h->tired |= ++h->looks % h->tire == 0;
    return h->tired;
}

/* A head announces how long its body is; nothing else may be written before that has come. */
static void head_check(struct host *h, const struct iovec *iov)
{
    const char *text = iov->iov_base;
    must(iov->iov_len > 13 && memcmp(text, "HTTP/1.1 ", 9) == 0);
    if (memcmp(text + 9, "100", 3) == 0)
        return;
    const char *end = memmem(text, iov->iov_len, "\r\n\r\n", 4);
    must(end != NULL);
    const char *length = memmem(text, (size_t)(end - text), "Content-Length: ", 16);
    h->heads++;
    h->left = length ? strtoull(length + 16, NULL, 10) + (size_t)(end + 4 - text)
                     : (size_t)(end + 4 - text);
}

static void on_write(struct session_host *base, const struct iovec *iov, uint32_t n)
{
    struct host *h = host_of(base);
    size_t len = 0;
    bool go_on = iov->iov_len >= 12 && memcmp(iov->iov_base, "HTTP/1.1 100", 12) == 0;
    if (!h->left || (iov->iov_len > 9 && memcmp(iov->iov_base, "HTTP/1.1 ", 9) == 0))
        head_check(h, iov); /* a reply to HEAD has no body */
    for (uint32_t i = 0; i < n; i++)
        len += iov[i].iov_len;
    for (uint32_t i = 0; i < n && !go_on; i++)
        for (size_t k = 0; k < iov[i].iov_len; k++)
            h->hash = (h->hash ^ ((const uint8_t *)iov[i].iov_base)[k]) * UINT64_C(1099511628211);
    if (!go_on) {
        must(len <= h->left);
        h->left -= len;
    }
}

static void *on_room(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    if (ROOM - h->room_used < size)
        h->room_used = 0;
    void *room = h->room + h->room_used;
    h->room_used += size;
    return room;
}

static void on_room_give(struct session_host *base, size_t unused)
{
    host_of(base)->room_used -= unused;
}

static void on_flush(struct session_host *base)
{
    (void)base;
}

static struct slab *take(struct host *h, size_t size, enum slab_use use)
{
    struct slab *slab = slabs_take(h->slabs, size, use);
    h->starved |= !slab;
    return slab;
}

static struct slab *on_slab_take(struct session_host *base, size_t size)
{
    return take(host_of(base), size, SLAB_REQUEST);
}

static struct slab *on_reply_take(struct session_host *base, size_t size)
{
    return slabs_take(host_of(base)->slabs, size, SLAB_REPLY);
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

static void on_token(struct session_host *base, struct message_text token)
{
    for (size_t i = 0; i < token.len; i++)
        host_of(base)->seen ^= (uint8_t)token.data[i];
}

static void on_hold(struct session_host *base, bool on)
{
    must(host_of(base)->held != on);
    host_of(base)->held = on;
}

static void on_become(struct session_host *base, const struct session_ops *protocol,
                      struct message_text begin, struct message_text rest)
{
    must(protocol == &session_h2 && begin.len == 18);
    host_of(base)->seen ^= rest.len ? (uint8_t)rest.data[0] : 0;
    host_of(base)->ended = true;
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
    .write = on_write,
    .slab_take = on_slab_take,
    .slab_left = on_slab_left,
    .queued = on_queued,
    .slab_give = on_slab_give,
    .scratch = on_scratch,
    .frame_limit = on_frame_limit,
    .room = on_room,
    .room_give = on_room_give,
    .flush = on_flush,
    .reply_take = on_reply_take,
    .reply_give = on_slab_give,
    .token = on_token,
    .tired = on_tired,
    .hold = on_hold,
    .become = on_become,
    .end = on_end,
};

static void answer(struct host *h)
{
    static float result[BIG] = {1, 0.1f, -3e30f};
    static struct response response;
    response = (struct response){.id = h->id, .kind = h->kind, .yes = true};
    if (h->kind == REQUEST_INFER) {
        response.model = message_text_of("m");
        response.version = message_text_of("1");
        response.n_outputs = h->n_outputs;
        for (uint32_t k = 0; k < h->n_outputs; k++) {
            const struct engine_binding *b = &outputs[h->output[k]];
            response.outputs[k] = (struct message_tensor){.name = message_text_of(b->name),
                                                          .dtype = b->dtype,
                                                          .shape = {2, {1, b->shape.dim[1]}},
                                                          .data = result,
                                                          .size = b->instance_bytes};
        }
    }
    h->waiting = false;
    struct slab *frame = STEAL(h->frame);
    reply(h, &response);
    slabs_give(h->slabs, frame);
}

/* Answers what waits, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    for (;;) {
        h->starved = h->tired = false;
        if (h->waiting)
            answer(h);
        else if (session_http.waiting(h->session) && !h->ended)
            session_http.resume(h->session);
        else
            return;
    }
}

/* Hands over one piece as a connection does: if the session offers a place, the piece is read into
 * it. */
static size_t piece(struct host *h, const uint8_t *data, size_t n)
{
    void *at;
    size_t room;
    session_http.buffer(h->session, &at, &room);
    if (room) {
        n = n < room ? n : room;
        memcpy(at, data, n);
        session_http.input(h->session, at, n);
        return n;
    }
    n = n < STAGING ? n : STAGING;
    uint8_t *staging = malloc(n); /* exactly the size of the piece, so a read beyond it is seen */
    must(staging != NULL);
    memcpy(staging, data, n);
    session_http.input(h->session, staging, n);
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

static uint64_t run(const uint8_t *data, size_t size, uint8_t cut, uint32_t tire, uint64_t budget)
{
    static const size_t sizes[] = {1, 2, 3, 5, 64, 1000, 4096, 70000, SIZE_MAX};
    const struct slab_memory memory = {memory_alloc, memory_release, NULL};
    struct host *h = calloc(1, sizeof(*h));
    must(h != NULL);
    h->base.ops = &ops;
    h->tire = tire;
    atomic_store(&h->budget.limit, budget);
    h->slabs = slabs_new(&memory, &h->budget, 1 << 20);
    h->session = session_http.create(&h->base);
    must(h->slabs && h->session);
    if (size > 8 * 1024 && cut < 5) /* because byte by byte takes long */
        cut = 7;
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->ended;) {
        size_t n = sizes[cut < 9 ? cut : (seed = seed * 1664525 + 1013904223) >> 16 & 7];
        n = n < size - at ? n : size - at;
        h->queued = cut % 2 ? size - at - n : 0; /* what a socket would hold, or nothing */
        at += piece(h, data + at, n);
        /* What JSON is read with, and the reply in hand, are bounded for themselves. */
        must(budget_used(&h->budget) <= 8 * 1024 + 9 * (at + h->queued) + 2 * STAGING + 512 * 1024);
        settle(h);
        struct session_state state;
        session_http.state(h->session, &state);
        must(state.received <= at);
    }
    settle(h);
    must(h->asked == h->answered && h->heads >= h->answered);
    session_http.destroy(h->session);
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
    bool scarce = data[1] >= 128;
    uint64_t hash =
        run(data + 2, size - 2, data[0], 1 + data[1] % 8, scarce ? 200000 : UINT64_C(1) << 40);
    if (!scarce)
        must(hash == run(data + 2, size - 2, 8, 1000, UINT64_C(1) << 40));
    return 0;
}
