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
#include "tests/fuzz/guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 256 * 1024, BIG = 3000 };

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
    struct guest guest;
    bool held;
    uint32_t tire, looks; /* every so many looks it is tired */
    bool tired;
    bool waiting; /* a request, */
    uint64_t id;  /* of this number */
    enum request_kind kind;
    uint32_t n_outputs;
    uint8_t output[MESSAGE_MAX_TENSORS];
    struct slab *frame;
    uint64_t asked, answered, heads, hash;
    uint64_t left; /* bytes of the reply that is being written */
    uint8_t room[ROOM];
    size_t room_used;
};

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, guest.base);
}

static void reply(struct host *h, const struct response *response)
{
    h->answered++;
    session_http.reply(h->guest.session, response);
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
    guest_must(!h->waiting);
    for (uint32_t i = 0; r->kind == REQUEST_INFER && i < r->n_inputs; i++)
        for (size_t k = 0; !r->inputs[i].region.sized && k < r->inputs[i].size; k++)
            h->guest.seen ^= ((const uint8_t *)r->inputs[i].data)[k];
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
    return h->held || h->guest.starved || h->guest.ended || h->tired;
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
    guest_must(iov->iov_len > 13 && memcmp(text, "HTTP/1.1 ", 9) == 0);
    if (memcmp(text + 9, "100", 3) == 0)
        return;
    const char *end = memmem(text, iov->iov_len, "\r\n\r\n", 4);
    guest_must(end != NULL);
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
        guest_must(len <= h->left);
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

static struct slab *on_reply_take(struct session_host *base, size_t size)
{
    return slabs_take(host_of(base)->guest.slabs, size, SLAB_REPLY);
}

static void on_hold(struct session_host *base, bool on)
{
    guest_must(host_of(base)->held != on);
    host_of(base)->held = on;
}

static void on_become(struct session_host *base, const struct session_ops *protocol,
                      struct message_text begin, struct message_text rest)
{
    guest_must(protocol == &session_h2 && begin.len == 18);
    host_of(base)->guest.seen ^= rest.len ? (uint8_t)rest.data[0] : 0;
    host_of(base)->guest.ended = true;
}

static const struct session_host_ops ops = {
    .request = on_request,
    .malformed = on_malformed,
    .paused = on_paused,
    .write = on_write,
    .slab_take = guest_slab_take,
    .slab_left = guest_slab_left,
    .queued = guest_queued,
    .slab_give = guest_slab_give,
    .scratch = guest_scratch,
    .frame_limit = guest_frame_limit,
    .room = on_room,
    .room_give = on_room_give,
    .flush = on_flush,
    .reply_take = on_reply_take,
    .reply_give = guest_slab_give,
    .token = guest_token,
    .tired = on_tired,
    .hold = on_hold,
    .become = on_become,
    .end = guest_end,
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
    slabs_give(h->guest.slabs, frame);
}

/* Answers what waits, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    for (;;) {
        h->guest.starved = h->tired = false;
        if (h->waiting)
            answer(h);
        else if (session_http.waiting(h->guest.session) && !h->guest.ended)
            session_http.resume(h->guest.session);
        else
            return;
    }
}

static uint64_t run(const uint8_t *data, size_t size, uint8_t cut, uint32_t tire, uint64_t budget)
{
    struct host *h = calloc(1, sizeof(*h));
    guest_must(h != NULL);
    h->tire = tire;
    guest_open(&h->guest, &session_http, &ops, budget);
    cut = guest_cut(cut, size);
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->guest.ended;) {
        size_t n = guest_next(cut, &seed, size - at);
        h->guest.queued = cut % 2 ? size - at - n : 0; /* what a socket would hold, or nothing */
        at += guest_feed(&h->guest, data + at, n);
        /* What JSON is read with, and the reply in hand, are bounded for themselves. */
        guest_must(budget_used(&h->guest.budget) <=
                   8 * 1024 + 9 * (at + h->guest.queued) + 2 * GUEST_STAGING + 512 * 1024);
        settle(h);
        struct session_state state;
        session_http.state(h->guest.session, &state);
        guest_must(state.received <= at);
    }
    settle(h);
    guest_must(h->asked == h->answered && h->heads >= h->answered);
    session_http.destroy(h->guest.session);
    guest_close(&h->guest);
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
        guest_must(hash == run(data + 2, size - 2, 8, 1000, UINT64_C(1) << 40));
    return 0;
}
