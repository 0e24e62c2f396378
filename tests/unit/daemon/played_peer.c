/* SPDX-License-Identifier: Apache-2.0 */
/* Peers, see played.h. Each keeps account of its requests, and knows each right answer. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/request.h"
#include "proto/response.h"
#include "tests/unit/daemon/played.h"

enum { NUMBERS = PLAYED_BATCH * 4096 }; /* of one request, at most */

static struct request request;
static struct response response;
static uint8_t head[MESSAGE_HEAD_MAX];

/* --- coming --- */

static int tcp_connect(const struct played *p, uint32_t address, int *server)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = from;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + address);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(p->port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    /* The port is chosen at the connect, else addresses would run out of ports. */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0 ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        (*server = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
        played_fail(p, "a TCP connection cannot be made: %s", strerror(errno));
    return fd;
}

struct played_peer *played_connect(struct played *p, uint32_t address)
{
    struct played_peer *peer = NULL;
    for (uint32_t i = 0; i < PLAYED_PEERS && !peer; i++)
        if (p->peers[i].fd < 0)
            peer = &p->peers[i];
    if (!peer)
        return NULL;
    int ends[2];
    bool tcp = address < PLAYED_ADDRESSES;
    played_peer_free(peer);
    if (tcp)
        ends[0] = tcp_connect(p, address, &ends[1]);
    else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        played_fail(p, "socketpair: %s", strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *peer = (struct played_peer){.fd = ends[0], .tcp = tcp, .next_id = 1};
    atomic_fetch_add(&p->shared.connections, 1);
    struct loop *loop = p->shared.loops[p->dealt++ % p->shared.n_loops];
    atomic_fetch_add(&loop->load, 1);
    const struct arrival arrival = {.fd = ends[1],
                                    .tcp = tcp,
                                    .protocol = &session_framed,
                                    .peer = peers_meet(p->records, ends[1])};
    loop_adopt(loop, &arrival);
    return peer;
}

/* --- asking --- */

static bool room_for(struct played_peer *peer, size_t size)
{
    if (peer->fd < 0 || peer->half || peer->out_have + size > PLAYED_OUT_MOST)
        return false;
    if (peer->out_have + size > peer->out_room) {
        peer->out_room = peer->out_have + size + 4096;
        peer->out = realloc(peer->out, peer->out_room);
        assert(peer->out);
    }
    return true;
}

bool played_raw(struct played *p, struct played_peer *peer, const void *data, size_t size)
{
    (void)p;
    if (!room_for(peer, size))
        return false;
    memcpy(peer->out + peer->out_have, data, size);
    peer->out_have += size;
    return true;
}

static bool ask_append(struct played *p, struct played_peer *peer, struct played_ask ask,
                       const void *frame, size_t size)
{
    if (!played_raw(p, peer, frame, size))
        return false;
    if (peer->n_asks == peer->asks_room) {
        peer->asks_room = 2 * peer->asks_room + 64;
        peer->asks = realloc(peer->asks, peer->asks_room * sizeof(peer->asks[0]));
        assert(peer->asks);
    }
    ask.id = peer->next_id++;
    ask.end = played_end(peer);
    peer->asks[peer->n_asks++] = ask;
    return true;
}

/* Appends the frame that `request` makes. */
static bool request_append(struct played *p, struct played_peer *peer, struct played_ask ask)
{
    struct iovec iov[MESSAGE_MAX_IOV];
    struct error err;
    uint8_t frame[1024];
    uint32_t n;
    size_t size = 0;
    request.id = peer->next_id;
    enum status s = request_encode(&request, head, iov, &n, &err);
    PLAYED_HOLDS(p, s == STATUS_OK, "%s", err.text);
    for (uint32_t i = 0; i < n; size += iov[i++].iov_len)
        memcpy(frame + size, iov[i].iov_base, iov[i].iov_len);
    return ask_append(p, peer, ask, frame, size);
}

/* inferences, written by hand: also typed contents, which our clients do not send */

struct writer {
    uint8_t *to;
    size_t n;
};

static void put_varint(struct writer *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        w->to[w->n++] = (uint8_t)(v | 0x80);
    w->to[w->n++] = (uint8_t)v;
}

static void put_number(struct writer *w, uint32_t field, uint64_t v)
{
    put_varint(w, field << 3);
    put_varint(w, v);
}

static void put_bytes(struct writer *w, uint32_t field, const void *data, size_t size)
{
    put_varint(w, field << 3 | 2);
    put_varint(w, size);
    memcpy(w->to + w->n, data, size);
    w->n += size;
}

/* The k-th number of a request. As typed contents it takes one to ten bytes. */
static uint64_t number_of(uint64_t value, uint32_t k)
{
    return value + (uint64_t)k * k;
}

/* Fields of inference.proto: an InferTensorContents with uint64_contents. */
static size_t contents_write(uint8_t *to, const struct played_ask *ask, uint32_t count)
{
    static uint8_t room[10 * NUMBERS];
    struct writer packed = {room, 0}, contents = {to, 0};
    for (uint32_t k = 0; k < count; k++)
        put_varint(&packed, number_of(ask->value, k));
    put_bytes(&contents, 5, packed.to, packed.n);
    return contents.n;
}

/* A ModelInferRequest. */
static size_t infer_write(uint8_t *to, const struct played_ask *ask, bool typed)
{
    static uint8_t room[10 * NUMBERS + 16], tensor_room[sizeof(room) + 64];
    const struct played_shape *shape = &played_shapes[ask->model];
    uint32_t count = ask->instances * shape->in;
    uint8_t dim_room[16];
    struct writer infer = {to, 0}, tensor = {tensor_room, 0}, dims = {dim_room, 0};
    put_varint(&dims, ask->instances);
    put_varint(&dims, shape->in);
    put_bytes(&tensor, 1, "x", 1);
    put_bytes(&tensor, 2, "UINT64", 6);
    put_bytes(&tensor, 3, dims.to, dims.n);
    if (typed)
        put_bytes(&tensor, 5, room, contents_write(room, ask, count));
    put_bytes(&infer, 1, shape->name, strlen(shape->name));
    put_bytes(&infer, 5, tensor.to, tensor.n);
    for (uint32_t k = 0; k < count && !typed; k++) {
        uint64_t number = number_of(ask->value, k);
        memcpy(room + 8 * (size_t)k, &number, 8);
    }
    if (!typed)
        put_bytes(&infer, 7, room, 8 * (size_t)count);
    return infer.n;
}

bool played_ask_infer(struct played *p, struct played_peer *peer, enum played_model model,
                      uint32_t instances, bool typed, uint64_t timeout_us)
{
    static uint8_t infer[10 * NUMBERS + 160], room[sizeof(infer) + 64];
    struct writer whole = {room, FRAME_HEAD_BYTES};
    struct played_ask ask = {.id = peer->next_id,
                             .kind = ASK_INFER,
                             .model = model,
                             .instances = MIN(instances, p->models[model]->max_instances),
                             .timed = timeout_us != 0,
                             .value = peer->next_id * UINT64_C(0x9e3779b97f4a7c15)};
    if (typed && peer->next_id % 2)
        ask.value >>= 40;
    put_number(&whole, 1, ask.id);
    put_number(&whole, 2, timeout_us);
    put_number(&whole, 3, ask.id % 4);
    put_bytes(&whole, REQUEST_INFER, infer, infer_write(infer, &ask, typed));
    frame_head_write(room, (uint32_t)(whole.n - FRAME_HEAD_BYTES));
    return whole.n <= p->frame_most + FRAME_HEAD_BYTES && ask_append(p, peer, ask, room, whole.n);
}

bool played_ask_wrong(struct played *p, struct played_peer *peer, uint32_t how)
{
    static const uint64_t number = 1;
    const struct played_ask ask = {.kind = ASK_WRONG};
    request = (struct request){
        .kind = REQUEST_INFER,
        .model = message_text_of(how % 3 == 0 ? "none" : played_shapes[PLAYED_SMALL].name),
        .priority = how % 3 == 1 ? 7 : 0,
        .n_inputs = 1};
    request.inputs[0] = (struct message_tensor){.name = message_text_of(how % 3 == 2 ? "z" : "x"),
                                                .dtype = DTYPE_U64,
                                                .shape = {2, {1, 1}},
                                                .data = &number,
                                                .size = sizeof(number)};
    return request_append(p, peer, ask);
}

bool played_ask_describe(struct played *p, struct played_peer *peer, uint32_t which)
{
    static const enum request_kind kinds[] = {REQUEST_SERVER_LIVE,   REQUEST_SERVER_READY,
                                              REQUEST_MODEL_READY,   REQUEST_MODEL_METADATA,
                                              REQUEST_STATISTICS,    REQUEST_REPOSITORY_INDEX,
                                              REQUEST_SERVER_STATUS, REQUEST_SERVER_METADATA};
    const struct played_ask ask = {.kind = ASK_DESCRIBE};
    request = (struct request){.kind = kinds[which % ARRAY_LEN(kinds)]};
    if (request.kind == REQUEST_MODEL_READY || request.kind == REQUEST_MODEL_METADATA)
        request.model = message_text_of("wide");
    return request_append(p, peer, ask);
}

bool played_ask_cancel(struct played *p, struct played_peer *peer, uint32_t which)
{
    const struct played_ask ask = {.kind = ASK_CANCEL};
    uint32_t open = peer->n_asks - peer->first_open;
    struct played_ask *victim = open ? &peer->asks[peer->first_open + which % open] : NULL;
    request = (struct request){.kind = REQUEST_CANCEL, .target = victim ? victim->id : 1u << 30};
    if (!request_append(p, peer, ask))
        return false;
    if (victim) /* the list may have moved */
        peer->asks[peer->first_open + which % open].cancelled = true;
    return true;
}

/* --- sending --- */

void played_send(struct played_peer *peer)
{
    if (peer->fd < 0 || peer->half)
        return;
    while (peer->out_sent < peer->out_allowed) {
        ssize_t n = send(peer->fd, peer->out + (peer->out_sent - peer->out_gone),
                         (size_t)(peer->out_allowed - peer->out_sent), MSG_NOSIGNAL);
        if (n <= 0)
            break;
        peer->out_sent += (uint64_t)n;
    }
    size_t gone = (size_t)(peer->out_sent - peer->out_gone);
    if (gone && (gone == peer->out_have || gone > PLAYED_OUT_MOST / 2)) {
        memmove(peer->out, peer->out + gone, peer->out_have - gone);
        peer->out_have -= gone;
        peer->out_gone = peer->out_sent;
    }
}

void played_allow(struct played_peer *peer, uint64_t upto)
{
    peer->out_allowed = MAX(peer->out_allowed, MIN(upto, played_end(peer)));
    peer->paused_once |= peer->out_allowed < played_end(peer);
    played_send(peer);
}

/* --- being answered --- */

static void outputs_check(const struct played *p, const struct played_ask *ask)
{
    const struct played_shape *shape = &played_shapes[ask->model];
    PLAYED_HOLDS(p, response.n_outputs == 1, "%u outputs", response.n_outputs);
    const struct message_tensor *y = &response.outputs[0];
    PLAYED_HOLDS(p, y->size == 8 * (size_t)shape->out * ask->instances,
                 "an output of %zu bytes for %u instances", y->size, ask->instances);
    for (uint32_t i = 0; i < ask->instances; i++)
        for (uint32_t k = 0; k < shape->out; k++) {
            uint64_t expected = number_of(ask->value, i * shape->in + k % shape->in) + 1, got;
            memcpy(&got, (const char *)y->data + 8 * (size_t)(i * shape->out + k), 8);
            PLAYED_HOLDS(p, got == expected, "id %llu, instance %u: %llx instead of %llx",
                         (unsigned long long)ask->id, i, (unsigned long long)got,
                         (unsigned long long)expected);
        }
}

/* Whether that answer is a possible one for the request. */
static bool may_say(const struct played *p, const struct played_ask *ask, enum status status)
{
    switch (status) {
    case STATUS_OK:
        return ask->kind != ASK_WRONG;
    case STATUS_RESOURCE_EXHAUSTED:
        return true;
    case STATUS_INVALID_ARGUMENT:
    case STATUS_NOT_FOUND:
        return ask->kind == ASK_WRONG;
    case STATUS_DEADLINE_EXCEEDED:
        return ask->timed;
    case STATUS_CANCELLED:
        return ask->cancelled;
    case STATUS_UNAVAILABLE:
        return ask->kind <= ASK_WRONG && (p->draining || p->failed_queued || p->failed_all);
    default:
        return false;
    }
}

static void answer_take(struct played *p, struct played_peer *peer)
{
    bool memory = response.status == STATUS_RESOURCE_EXHAUSTED;
    if (response.status != STATUS_OK)
        snprintf(p->refusal, sizeof(p->refusal), "peer %zu, request %llu: %d, %.*s",
                 (size_t)(peer - p->peers), (unsigned long long)response.id, (int)response.status,
                 MESSAGE_TEXT(response.message));
    struct played_ask *ask = NULL;
    for (uint32_t i = peer->first_open; i < peer->n_asks && !ask; i++)
        if (peer->asks[i].id == response.id && !peer->asks[i].answered)
            ask = &peer->asks[i];
    if (!ask && (peer->broken || p->frame_least < p->frame_most))
        return;
    if (!ask && !response.id && memory && peer->paused_once) {
        peer->nameless++;
        return;
    }
    PLAYED_HOLDS(p, ask, "peer %zu got an answer to %llu, which it did not ask, or twice: %d, %.*s",
                 (size_t)(peer - p->peers), (unsigned long long)response.id, (int)response.status,
                 MESSAGE_TEXT(response.message));
    if (!peer->broken) {
        PLAYED_HOLDS(p, memory || ask->end <= peer->out_sent,
                     "%llu was answered before it had been sent", (unsigned long long)ask->id);
        PLAYED_HOLDS(p, may_say(p, ask, response.status), "%llu of kind %d was answered %d, %.*s",
                     (unsigned long long)ask->id, (int)ask->kind, (int)response.status,
                     MESSAGE_TEXT(response.message));
        if (response.status == STATUS_OK && ask->kind == ASK_INFER)
            outputs_check(p, ask);
    }
    ask->answered = true;
    while (peer->first_open < peer->n_asks && peer->asks[peer->first_open].answered)
        peer->first_open++;
}

static void answers_take(struct played *p, struct played_peer *peer)
{
    size_t at = 0, message;
    struct error err;
    while (frame_peek(peer->in + at, peer->in_have - at, SIZE_MAX, &message) == FRAME_COMPLETE) {
        at += FRAME_HEAD_BYTES;
        enum status s = response_decode(peer->in + at, message, &response, &err);
        PLAYED_HOLDS(p, s == STATUS_OK, "an answer that cannot be read: %s", err.text);
        answer_take(p, peer);
        at += message;
    }
    peer->in_have -= at;
    memmove(peer->in, peer->in + at, peer->in_have);
}

size_t played_read(struct played *p, struct played_peer *peer, size_t most)
{
    enum { PIECE = 64 * 1024 };
    size_t all = 0;
    while (peer->fd >= 0 && !peer->closed && all < most) {
        if (peer->in_have + PIECE > peer->in_room) {
            peer->in_room = 2 * peer->in_room + PIECE;
            peer->in = realloc(peer->in, peer->in_room);
            assert(peer->in);
        }
        ssize_t n = recv(peer->fd, peer->in + peer->in_have, MIN(most - all, (size_t)PIECE), 0);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) { /* or the connection was reset */
            peer->closed = true;
            p->cut_off += !peer->broken && played_owed(peer) > peer->nameless;
            break;
        }
        peer->in_have += (size_t)n;
        all += (size_t)n;
        answers_take(p, peer);
    }
    return all;
}

uint32_t played_owed(const struct played_peer *peer)
{
    uint32_t n = 0;
    for (uint32_t i = peer->first_open; i < peer->n_asks; i++)
        n += !peer->asks[i].answered && peer->asks[i].end <= peer->out_sent;
    return n;
}

/* --- leaving --- */

void played_half_close(struct played_peer *peer)
{
    if (peer->fd >= 0 && !peer->half) {
        shutdown(peer->fd, SHUT_WR);
        peer->half = true;
    }
}

void played_leave(struct played_peer *peer, bool reset)
{
    const struct linger at_once = {.l_onoff = 1};
    if (peer->fd < 0)
        return;
    if (reset)
        setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(peer->fd);
    peer->fd = -1;
}

void played_peer_free(struct played_peer *peer)
{
    played_leave(peer, true);
    free(peer->out);
    free(peer->in);
    free(peer->asks);
    *peer = (struct played_peer){.fd = -1};
}
