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
#include "proto/frame.h"
#include "tests/fuzz/guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PENDING = 64 };

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
    struct guest guest;
    uint32_t most; /* requests before it pauses */
    uint32_t n_waiting;
    struct waiting waiting[PENDING];
    uint64_t asked, answered, hash;
    uint8_t head[MESSAGE_HEAD_MAX];
};

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, guest.base);
}

static void reply(struct host *h, const struct response *response)
{
    h->answered++;
    session_framed.reply(h->guest.session, response);
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
        guest_must(shape_bytes(&t->shape, t->dtype, &size) && size <= (1 << 20));
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
        h->guest.seen ^= payload_read(&r->inputs[i]);
    guest_must(h->n_waiting < PENDING);
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
    return h->n_waiting >= h->most || h->guest.starved || h->guest.ended;
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
    guest_must(frame != NULL);
    for (uint32_t i = 0; i < n; at += iov[i++].iov_len)
        memcpy(frame + at, iov[i].iov_base, iov[i].iov_len);
    guest_must(len >= FRAME_HEAD_BYTES && frame_head_read(frame) == len - FRAME_HEAD_BYTES);
    guest_must(response_decode(frame + FRAME_HEAD_BYTES, len - FRAME_HEAD_BYTES, &response, &err) ==
               STATUS_OK);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ frame[i]) * UINT64_C(1099511628211);
    h->hash += hash; /* errors may overtake answers that wait, so the order does not count */
    free(frame);
}

static enum status on_introduce(struct session_host *base, const void *message, size_t size,
                                size_t whole, struct error *err)
{
    (void)base;
    (void)message;
    (void)size;
    return error_set(err, STATUS_INVALID_ARGUMENT, "a frame of %zu bytes; the limit is %d", whole,
                     GUEST_LIMIT);
}

static const struct session_host_ops ops = {
    .request = on_request,
    .malformed = on_malformed,
    .paused = on_paused,
    .head = on_head,
    .write = on_write,
    .slab_take = guest_slab_take,
    .slab_left = guest_slab_left,
    .queued = guest_queued,
    .slab_give = guest_slab_give,
    .scratch = guest_scratch,
    .frame_limit = guest_frame_limit,
    .introduce = on_introduce,
    .end = guest_end,
};

/* Answers what waits, in order, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    static const float result[2] = {1, 2};
    while (h->n_waiting || (h->guest.starved && !h->guest.ended)) {
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
            slabs_give(h->guest.slabs, now[i].frame);
        }
        h->guest.starved = false;
        session_framed.resume(h->guest.session);
    }
}

static uint64_t run(const uint8_t *data, size_t size, uint8_t cut, uint32_t most, uint64_t budget)
{
    struct host *h = calloc(1, sizeof(*h));
    guest_must(h != NULL);
    h->most = most;
    guest_open(&h->guest, &session_framed, &ops, budget);
    cut = guest_cut(cut, size);
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->guest.ended;) {
        size_t n = guest_next(cut, &seed, size - at);
        h->guest.queued = cut % 2 ? size - at - n : 0; /* what a socket would hold, or nothing */
        at += guest_feed(&h->guest, data + at, n);
        /* Bytes that are left at a pause have a place of their own. All other memory is in
         * proportion to the bytes that came. */
        guest_must(budget_used(&h->guest.budget) <=
                   8 * 1024 + 5 * (at + h->guest.queued) + 2 * GUEST_STAGING);
        if (on_paused(&h->guest.base) || at == size)
            settle(h);
        struct session_state state;
        session_framed.state(h->guest.session, &state);
        guest_must(state.received <= at);
    }
    settle(h);
    guest_must(h->asked == h->answered);
    session_framed.destroy(h->guest.session);
    guest_close(&h->guest);
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
        guest_must(hash == run(data + 2, size - 2, 8, PENDING, UINT64_C(1) << 40));
    return 0;
}
