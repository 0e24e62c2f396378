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
#include "daemon/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 300 * 1024, PENDING = 64, STAGING = 128 * 1024, ROOMS = 512, PIECES = 4096 };

struct host {
    struct session_host base;
    struct session *session;
    struct slabs *slabs;
    struct budget budget;
    uint32_t most; /* requests before it pauses */
    size_t reply_size;
    bool backwards, ended, starved;
    uint32_t n_waiting;
    uint64_t waiting[PENDING];
    uint32_t n_rooms, n_pieces;
    void *rooms[ROOMS];
    struct iovec pieces[PIECES];
    uint64_t frame_left, frame_head; /* of what goes out */
    uint8_t head[3];
    size_t kept;
    uint8_t seen;
    struct request scratch;
};

static uint8_t payload[256 * 1024];

static void must(bool holds)
{
    if (!holds)
        abort();
}

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, base);
}

/* Follows the heads of the frames that go out. */
static void frames_follow(struct host *h, const uint8_t *data, size_t size)
{
    while (size) {
        if (h->frame_left) {
            size_t n = size < h->frame_left ? size : h->frame_left;
            for (size_t i = 0; i < n; i += 64)
                h->seen ^= data[i];
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
    on_flush(&h->base);
    while (h->n_rooms)
        free(h->rooms[--h->n_rooms]);
    must(!h->frame_left && !h->frame_head); /* whole frames */
}

static void on_request(struct session_host *base, const struct request *r, struct slab *frame)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; r->kind == REQUEST_INFER && i < r->n_inputs; i++)
        for (size_t k = 0; !r->inputs[i].typed && k < r->inputs[i].size; k++)
            h->seen ^= ((const uint8_t *)r->inputs[i].data)[k];
    base->ops->slab_give(base, frame);
    if (h->n_waiting < PENDING)
        h->waiting[h->n_waiting++] = r->id;
}

static void on_malformed(struct session_host *base, uint64_t id, const struct error *err)
{
    const struct response response = {
        .id = id, .status = err->status, .message = message_text_of(err->text)};
    session_h2.reply(host_of(base)->session, &response);
}

static bool on_paused(struct session_host *base)
{
    const struct host *h = host_of(base);
    return h->n_waiting >= h->most || h->starved || h->ended;
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

static struct slab *on_slab_take(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    struct slab *slab = slabs_take(h->slabs, size, SLAB_REQUEST);
    h->starved |= !slab;
    return slab;
}

static struct slab *on_slab_left(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    must(size <= STAGING);
    uint64_t limit = atomic_exchange(&h->budget.limit, UINT64_C(1) << 40);
    struct slab *slab = slabs_take(h->slabs, size, SLAB_REQUEST);
    atomic_store(&h->budget.limit, limit);
    return slab;
}

static void on_slab_give(struct session_host *base, struct slab *slab)
{
    slabs_give(host_of(base)->slabs, slab);
}

static size_t on_queued(struct session_host *base)
{
    (void)base;
    return 0;
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

static void on_end(struct session_host *base, enum session_end why)
{
    (void)why;
    host_of(base)->ended = true;
}

/* Memory of its own for each, so that a use beyond its end, or after the turn, is seen. */
static void *on_room(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    must(size <= SESSION_ROOM_MAX);
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
    must(unused <= SESSION_ROOM_MAX);
}

static struct slab *on_reply_take(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    struct slab *slab = h->kept + size > (4 << 20) ? NULL : slabs_take(h->slabs, size, SLAB_REPLY);
    h->kept += slab ? slab->charge : 0;
    return slab;
}

static void on_reply_give(struct session_host *base, struct slab *slab)
{
    host_of(base)->kept -= slab->charge;
    slabs_give(host_of(base)->slabs, slab);
}

static void on_forget(struct session_host *base, uint64_t id)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; i < h->n_waiting; i++)
        if (h->waiting[i] == id)
            h->waiting[i] = h->waiting[--h->n_waiting];
}

static void on_token(struct session_host *base, struct message_text token)
{
    for (size_t i = 0; i < token.len; i++)
        host_of(base)->seen ^= (uint8_t)token.data[i];
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
    .slab_take = on_slab_take,
    .slab_left = on_slab_left,
    .slab_give = on_slab_give,
    .queued = on_queued,
    .scratch = on_scratch,
    .frame_limit = on_frame_limit,
    .end = on_end,
    .room = on_room,
    .room_give = on_room_give,
    .flush = on_flush,
    .reply_take = on_reply_take,
    .reply_give = on_reply_give,
    .forget = on_forget,
    .token = on_token,
    .tired = on_tired,
};

static void answer(struct host *h, uint64_t id)
{
    struct response response = {.id = id, .kind = REQUEST_INFER, .n_outputs = 1};
    response.outputs[0] = (struct message_tensor){.name = message_text_of("y"),
                                                  .dtype = DTYPE_U8,
                                                  .shape = {1, {(int64_t)h->reply_size}},
                                                  .data = payload,
                                                  .size = h->reply_size};
    session_h2.reply(h->session, &response);
}

/* Answers what waits, and lets the session go on until nothing waits any more. */
static void settle(struct host *h)
{
    while (h->n_waiting || ((h->starved || session_h2.waiting(h->session)) && !h->ended)) {
        while (h->n_waiting) {
            uint64_t id = h->waiting[h->backwards ? --h->n_waiting : 0];
            if (!h->backwards)
                memmove(h->waiting, h->waiting + 1, --h->n_waiting * sizeof(h->waiting[0]));
            answer(h, id);
        }
        h->starved = false;
        session_h2.resume(h->session);
        turn_end(h);
    }
}

/* Hands over one piece as a connection does. */
static size_t piece(struct host *h, const uint8_t *data, size_t n)
{
    void *at;
    size_t room;
    session_h2.buffer(h->session, &at, &room);
    must(session_h2.wants(h->session) > 0);
    if (room) {
        n = n < room ? n : room;
        memcpy(at, data, n);
        session_h2.input(h->session, at, n);
        return n;
    }
    n = n < STAGING ? n : STAGING;
    uint8_t *staging = malloc(n); /* exactly the size of the piece, so a read beyond it is seen */
    must(staging != NULL);
    memcpy(staging, data, n);
    session_h2.input(h->session, staging, n);
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

static void run(struct host *h, const uint8_t *data, size_t size, uint8_t cut)
{
    static const size_t sizes[] = {1, 2, 3, 5, 64, 1000, 4096, 70000, SIZE_MAX};
    if (size > 8 * 1024 && cut < 5) /* because byte by byte takes long */
        cut = 7;
    uint32_t seed = cut;
    for (size_t at = 0; at < size && !h->ended;) {
        size_t n = sizes[cut < 9 ? cut : (seed = seed * 1664525 + 1013904223) >> 16 & 7];
        at += piece(h, data + at, n < size - at ? n : size - at);
        turn_end(h);
        /* A message that came compressed may hold up to 4 MiB, LIMIT here; replies are bounded. */
        must(budget_used(&h->budget) <=
             16 * 1024 * 100 + 5 * at + 2 * STAGING + 2 * LIMIT + h->kept);
        if (on_paused(&h->base) || at == size)
            settle(h);
        struct session_state state;
        session_h2.state(h->session, &state);
        if (cut % 3 == 2 && !h->ended)
            session_h2.tick(h->session, at);
        turn_end(h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const size_t reply_sizes[] = {0, 8, 700, 5000, 70000, 250000};
    const struct slab_memory memory = {memory_alloc, memory_release, NULL};
    if (size < 2 || size > (1 << 18))
        return 0;
    struct host *h = calloc(1, sizeof(*h));
    must(h != NULL);
    h->base.ops = &ops;
    h->most = 1 + data[1] % 16;
    h->backwards = data[1] & 16;
    h->reply_size = reply_sizes[(data[1] >> 5) % 6];
    atomic_store(&h->budget.limit, data[0] & 128 ? 60000 : UINT64_C(1) << 40);
    h->slabs = slabs_new(&memory, &h->budget, 1 << 20);
    h->session = session_h2.create(&h->base);
    must(h->slabs && h->session);
    session_h2.input(h->session, preface, sizeof(preface) - 1);
    run(h, data + 2, size - 2, data[0] % 12);
    if (!h->ended && data[0] & 64)
        session_h2.drain(h->session);
    while (!h->ended && session_h2.expire(h->session))
        ;
    settle(h);
    turn_end(h);
    session_h2.destroy(h->session);
    turn_end(h);
    must(budget_used(&h->budget) == 0 && h->kept == 0);
    slabs_free(h->slabs);
    free(h);
    return 0;
}
