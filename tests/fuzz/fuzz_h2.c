/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the frames of a peer that speaks HTTP/2, cut in any way.
 *
 * The first byte decides how the rest is cut into pieces; the second describes the host: how much
 * memory it has, how many requests it takes before it pauses, how large its replies are, and in
 * which order they come. The preface goes ahead of the bytes. What must hold: what goes out are
 * whole frames, in memory that is there until it is flushed; memory held is in proportion to the
 * bytes that came (R1 of docs/operations.md) and is all given back; and the session ends, or waits
 * for its peer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/h2_calm.h"
#include "tests/fuzz/guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PENDING = 64, ROOMS = 512, PIECES = 4096 };

struct host {
    struct guest guest;
    uint32_t most; /* requests before it pauses */
    size_t reply_size;
    bool backwards;
    uint32_t n_waiting;
    uint64_t waiting[PENDING];
    uint32_t n_rooms, n_pieces;
    void *rooms[ROOMS];
    struct iovec pieces[PIECES];
    uint64_t frame_left, frame_head; /* of what goes out */
    uint8_t head[3];
    size_t kept;
};

static uint8_t payload[256 * 1024];

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, guest.base);
}

/* Follows the heads of the frames that go out. */
static void frames_follow(struct host *h, const uint8_t *data, size_t size)
{
    while (size) {
        if (h->frame_left) {
            size_t n = size < h->frame_left ? size : h->frame_left;
            for (size_t i = 0; i < n; i += 64)
                h->guest.seen ^= data[i];
            h->frame_left -= n;
            data += n;
            size -= n;
            continue;
        }
        if (h->frame_head < 3)
            h->head[h->frame_head] = *data;
        data++;
        size--;
        if (++h->frame_head == H2_FRAME_HEAD) {
            h->frame_head = 0;
            h->frame_left = (uint64_t)h->head[0] << 16 | (uint64_t)h->head[1] << 8 | h->head[2];
        }
    }
}

static void on_flush(struct session_host *base)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; i < h->n_pieces; i++)
        frames_follow(h, h->pieces[i].iov_base, h->pieces[i].iov_len);
    h->n_pieces = 0;
}

/* The end of a turn. */
static void turn_end(struct host *h)
{
    on_flush(&h->guest.base);
    while (h->n_rooms)
        free(h->rooms[--h->n_rooms]);
    guest_must(!h->frame_left && !h->frame_head); /* whole frames */
}

static void on_request(struct session_host *base, const struct request *r, struct slab *frame)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; r->kind == REQUEST_INFER && i < r->n_inputs; i++)
        for (size_t k = 0; r->inputs[i].data && k < r->inputs[i].size; k++)
            h->guest.seen ^= ((const uint8_t *)r->inputs[i].data)[k];
    base->ops->slab_give(base, frame);
    if (h->n_waiting < PENDING)
        h->waiting[h->n_waiting++] = r->id;
}

static void on_malformed(struct session_host *base, uint64_t id, const struct error *err)
{
    const struct response response = {
        .id = id, .status = err->status, .message = message_text_of(err->text)};
    session_h2.reply(host_of(base)->guest.session, &response);
}

static bool on_paused(struct session_host *base)
{
    const struct host *h = host_of(base);
    return h->n_waiting >= h->most || h->guest.starved || h->guest.ended;
}

static void on_write(struct session_host *base, const struct iovec *iov, uint32_t n)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; i < n; i++) {
        if (h->n_pieces == PIECES)
            on_flush(base);
        h->pieces[h->n_pieces++] = iov[i];
    }
}

/* Memory of its own for each, so that a use beyond its end, or after the turn, is seen. */
static void *on_room(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    guest_must(size <= SESSION_ROOM_MAX);
    if (h->n_rooms == ROOMS) {
        on_flush(base);
        while (h->n_rooms)
            free(h->rooms[--h->n_rooms]);
    }
    return h->rooms[h->n_rooms++] = malloc(size);
}

static void on_room_give(struct session_host *base, size_t unused)
{
    (void)base;
    guest_must(unused <= SESSION_ROOM_MAX);
}

static struct slab *on_reply_take(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    struct slab *slab =
        h->kept + size > (4 << 20) ? NULL : slabs_take(h->guest.slabs, size, SLAB_REPLY);
    h->kept += slab ? slab->charge : 0;
    return slab;
}

static void on_reply_give(struct session_host *base, struct slab *slab)
{
    host_of(base)->kept -= slab->charge;
    slabs_give(host_of(base)->guest.slabs, slab);
}

static void on_forget(struct session_host *base, uint64_t id)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; i < h->n_waiting; i++)
        if (h->waiting[i] == id)
            h->waiting[i] = h->waiting[--h->n_waiting];
}

static bool on_tired(struct session_host *base)
{
    (void)base;
    return false;
}

static const struct session_host_ops ops = {
    .request = on_request,
    .malformed = on_malformed,
    .paused = on_paused,
    .write = on_write,
    .slab_take = guest_slab_take,
    .slab_left = guest_slab_left,
    .slab_give = guest_slab_give,
    .queued = guest_queued,
    .scratch = guest_scratch,
    .frame_limit = guest_frame_limit,
    .end = guest_end,
    .room = on_room,
    .room_give = on_room_give,
    .flush = on_flush,
    .reply_take = on_reply_take,
    .reply_give = on_reply_give,
    .forget = on_forget,
    .token = guest_token,
    .tired = on_tired,
    .book = guest_book,
    .unbook = guest_unbook,
    .needs = guest_needs,
};

static void answer(struct host *h, uint64_t id)
{
    struct response response = {.id = id, .kind = REQUEST_INFER, .n_outputs = 1};
    response.outputs[0] = (struct message_tensor){.name = message_text_of("y"),
                                                  .dtype = DTYPE_U8,
                                                  .shape = {1, {(int64_t)h->reply_size}},
                                                  .data = payload,
                                                  .size = h->reply_size};
    session_h2.reply(h->guest.session, &response);
}

/* Answers what waits, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    while (h->n_waiting ||
           ((h->guest.starved || session_h2.waiting(h->guest.session)) && !h->guest.ended)) {
        while (h->n_waiting) {
            uint64_t id = h->waiting[h->backwards ? --h->n_waiting : 0];
            if (!h->backwards)
                memmove(h->waiting, h->waiting + 1, --h->n_waiting * sizeof(h->waiting[0]));
            answer(h, id);
        }
        h->guest.starved = false;
        session_h2.resume(h->guest.session);
        turn_end(h);
    }
}

static void run(struct host *h, const uint8_t *data, size_t size, uint8_t cut)
{
    cut = guest_cut(cut, size);
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->guest.ended;) {
        guest_must(session_h2.wants(h->guest.session) > 0);
        at += guest_feed(&h->guest, data + at, guest_next(cut, &seed, size - at));
        turn_end(h);
        /* A message that came compressed may hold up to 4 MiB, GUEST_LIMIT here; replies are
         * bounded, and so is what a call takes with its texts. */
        guest_must(budget_used(&h->guest.budget) <=
                   20 * 1024 * 100 + 5 * at + 2 * GUEST_STAGING + 2 * GUEST_LIMIT + h->kept);
        if (on_paused(&h->guest.base) || at == size)
            settle(h);
        struct session_state state;
        session_h2.state(h->guest.session, &state);
        if (cut % 3 == 2 && !h->guest.ended)
            session_h2.tick(h->guest.session, at);
        turn_end(h);
    }
}

/* All messages that are not whole are given up: at the first tick they are seen, at the second one
 * they are late. */
static void expire(struct host *h)
{
    uint32_t late[SESSION_LATENESSES] = {0};
    const struct session_pace seen = {.now_ms = 1, .timeout_ms = 1};
    const struct session_pace after = {.now_ms = 1000000, .passed_ms = 1, .timeout_ms = 1};
    session_h2.expire(h->guest.session, &seen, late);
    session_h2.expire(h->guest.session, &after, late);
    guest_must(!late[SESSION_IN_TIME]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const size_t reply_sizes[] = {0, 8, 700, 5000, 70000, 250000};
    if (size < 2 || size > (1 << 18))
        return 0;
    struct host *h = calloc(1, sizeof(*h));
    guest_must(h != NULL);
    h->most = 1 + data[1] % 16;
    h->backwards = data[1] & 16;
    h->reply_size = reply_sizes[(data[1] >> 5) % 6];
    guest_open(&h->guest, &session_h2, &ops, data[0] & 128 ? 60000 : UINT64_C(1) << 40);
    session_h2.input(h->guest.session, preface, sizeof(preface) - 1);
    run(h, data + 2, size - 2, data[0] % 12);
    if (!h->guest.ended && data[0] & 64)
        session_h2.drain(h->guest.session);
    expire(h);
    settle(h);
    turn_end(h);
    session_h2.destroy(h->guest.session);
    turn_end(h);
    guest_must(h->kept == 0);
    guest_close(&h->guest);
    free(h);
    return 0;
}
