/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking half of client.h: one non-blocking socket and poll. Nothing is queued here: a
 * request is written from where it lies until the socket has taken all of it. What the server sends
 * meanwhile is read, so that client and server never wait for each other.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/resolve.h"
#include "client/client.h"
#include "client/encoder.h"
#include "client/flight.h"
#include "client/inbox.h"
#include "client/options.h"
#include "client/reply.h"
#include "client/seal.h"

/* An answer that inferd_client_call met while it waited for its own. */
struct stashed {
    struct stashed *prev, *next;
    size_t size;
    char message[];
};

struct inferd_client {
    int fd;            /* -1 once the connection has failed */
    struct seal *seal; /* NULL: in the clear */
    struct error failure;
    struct inferd_options options;
    struct flight flight;
    struct inbox inbox;
    struct encoder encoder;
    struct reply reply;
    struct stashed *stash; /* utlist DL, in order of arrival */
    struct stashed *shown; /* the reply points into it */
    size_t stash_size;
};

/* --- connection --- */

static enum status fail(struct inferd_client *c, const struct error *err)
{
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
        c->failure = *err;
    }
    return c->failure.status;
}

static enum status fail_set(struct inferd_client *c, enum status status, const char *reason)
{
    struct error err;
    error_set(&err, status, "%s", reason);
    return fail(c, &err);
}

/* Waits for `*events` and sets it to those that came; DEADLINE_EXCEEDED: none by `until_ns`. */
static enum status wait_for(int fd, short *events, uint64_t until_ns, struct error *err)
{
    for (;;) {
        uint64_t now = clock_now_ns(), left = until_ns > now ? until_ns - now : 0;
        struct pollfd p = {.fd = fd, .events = *events};
        struct timespec ts = {.tv_sec = (time_t)(left / NS_PER_S),
                              .tv_nsec = (long)(left % NS_PER_S)};
        int n = ppoll(&p, 1, until_ns == FLIGHT_NEVER ? NULL : &ts, NULL);
        if (n > 0) {
            *events = p.revents;
            return STATUS_OK;
        }
        if (n == 0)
            return error_set(err, STATUS_DEADLINE_EXCEEDED, "timed out");
        if (errno != EINTR)
            return error_errno(err, errno, "poll");
    }
}

static enum status finish_connect(int fd, uint64_t until_ns, struct error *err)
{
    short events = POLLOUT;
    int errnum = 0;
    socklen_t len = sizeof(errnum);
    TRY(wait_for(fd, &events, until_ns, err));
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    return errnum ? error_errno(err, errnum, "connect") : STATUS_OK;
}

static enum status connect_socket(int fd, const struct address *address, uint64_t until_ns,
                                  struct error *err)
{
    int one = 1;
    if (!address_is_unix(address))
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, address_sockaddr(address), address->length) == 0)
        return STATUS_OK;
    if (errno != EINPROGRESS)
        return error_errno(err, errno, "connect");
    return finish_connect(fd, until_ns, err);
}

static enum status connect_to(const struct address *address, uint64_t until_ns, int *out,
                              struct error *err)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, errno, "socket");
    enum status status = connect_socket(fd, address, until_ns, err);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}

/* Tries one address after the other until one accepts; the error is that of the last one. */
static enum status connect_first(const struct resolved *addresses, uint64_t until_ns, int *out,
                                 struct error *err)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < addresses->n; i++) {
        status = connect_to(&addresses->items[i], until_ns, out, err);
        if (!status || status == STATUS_DEADLINE_EXCEEDED)
            break;
    }
    return status;
}

static void client_cleanup(struct inferd_client **client)
{
    inferd_client_close(*client);
}

static enum status shake_hands(struct inferd_client *c, uint64_t until_ns, struct error *err);

static enum status connect_by(struct inferd_client *c, const struct resolved *addresses,
                              uint64_t until_ns, struct error *err)
{
    TRY(connect_first(addresses, until_ns, &c->fd, err));
    return c->seal ? shake_hands(c, until_ns, err) : STATUS_OK;
}

static enum status open_client(const char *text, const struct inferd_options *options,
                               struct inferd_client **out, struct error *err)
{
    struct resolved addresses;
    CLEANUP(seal_target_cleanup) struct seal_target target = {0};
    TRY(seal_target_parse(text, &target, err));
    TRY(resolve_wait(target.address, &addresses, err));
    CLEANUP(client_cleanup) struct inferd_client *c = calloc(1, sizeof(*c));
    if (!c)
        return error_no_memory(err, "a connection");
    c->fd = -1;
    c->options = options_fill(options);
    inbox_init(&c->inbox, c->options.max_response);
    TRY(flight_init(&c->flight, c->options.max_in_flight, err));
    TRY(seal_new(&target, &c->seal, err));
    uint64_t until = clock_now_ns() + c->options.connect_timeout_ms * NS_PER_MS;
    enum status status = connect_by(c, &addresses, until, err);
    if (status)
        error_prefix(err, "%.150s", target.address);
    else
        *out = STEAL(c);
    return status;
}

enum inferd_status inferd_client_open(const char *address, const struct inferd_options *options,
                                      struct inferd_client **out, struct inferd_error *user_err)
{
    struct error err;
    return open_client(address, options, out, &err) ? error_to_user(&err, user_err) : INFERD_OK;
}

/* Says goodbye if the socket has room for that. */
static void part(struct inferd_client *c)
{
    const void *at;
    if (!c->seal || !seal_goodbye(c->seal))
        return;
    size_t size = seal_unsent(c->seal, &at);
    if (send(c->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the server finds the connection cut, as it may at any time */
}

void inferd_client_close(struct inferd_client *client)
{
    struct stashed *s, *next;
    if (!client)
        return;
    if (client->fd >= 0) {
        part(client);
        close(client->fd);
    }
    DL_FOREACH_SAFE(client->stash, s, next)
    free(s);
    free(client->shown);
    seal_free(client->seal);
    flight_deinit(&client->flight);
    inbox_deinit(&client->inbox);
    reply_deinit(&client->reply);
    free(client);
}

uint32_t inferd_client_in_flight(const struct inferd_client *client)
{
    return client->flight.n;
}

/* --- bytes --- */

/* Room for bytes from the socket. */
static enum status room_of(struct inferd_client *c, void **at, size_t *size, struct error *err)
{
    if (!c->seal)
        return inbox_room(&c->inbox, at, size, err);
    seal_room(c->seal, at, size);
    return STATUS_OK;
}

/* Takes what came from the socket: into the inbox, once it is unsealed. */
static enum status room_filled(struct inferd_client *c, size_t size, struct error *err)
{
    void *at;
    size_t room, got = 1;
    if (!c->seal) {
        inbox_filled(&c->inbox, size);
        return STATUS_OK;
    }
    TRY(seal_filled(c->seal, size, err));
    while (seal_is_open(c->seal) && got) {
        TRY(inbox_room(&c->inbox, &at, &room, err));
        TRY(seal_read(c->seal, at, room, &got, err));
        inbox_filled(&c->inbox, got);
    }
    return STATUS_OK;
}

/* Reads once what is there; `*got` (may be NULL) says whether that was anything. The connection
 * fails if the server has ended it. */
static enum status read_some(struct inferd_client *c, bool *got)
{
    struct error err;
    void *at;
    size_t room;
    if (got)
        *got = false;
    if (room_of(c, &at, &room, &err))
        return fail(c, &err);
    ssize_t n = read(c->fd, at, room);
    if (n > 0) {
        if (got)
            *got = true;
        return room_filled(c, (size_t)n, &err) ? fail(c, &err) : STATUS_OK;
    }
    if (n == 0)
        return fail_set(c, STATUS_UNAVAILABLE, "the server closed the connection");
    if (errno == EAGAIN || errno == EINTR)
        return STATUS_OK;
    error_errno(&err, errno, "the connection was lost");
    error_recast(&err, CAUSE_UNAVAILABLE);
    return fail(c, &err);
}

static void advance(struct iovec **iov, uint32_t *n, size_t sent)
{
    while (*n > 0 && sent >= (*iov)->iov_len) {
        sent -= (*iov)->iov_len;
        (*iov)++;
        (*n)--;
    }
    if (*n > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + sent;
        (*iov)->iov_len -= sent;
    }
}

/* Waits until more can be written, and reads what comes before that. */
static enum status wait_to_write(struct inferd_client *c, uint64_t until_ns)
{
    struct error err;
    /* If so much is unread, the caller does not receive: reading more would only hide that. */
    bool full = c->inbox.end - c->inbox.begin > c->options.max_response;
    short events = POLLOUT | (full ? 0 : POLLIN);
    if (wait_for(c->fd, &events, until_ns, &err)) {
        error_prefix(&err, "the server takes no more bytes");
        return fail(c, &err); /* half a frame is out: nothing can follow it */
    }
    return events & POLLIN ? read_some(c, NULL) : STATUS_OK;
}

/* The server may have answered before it closed, so what it sent is read first. */
static enum status write_failed(struct inferd_client *c, int errnum)
{
    struct error err;
    bool got = true;
    while (got && read_some(c, &got) == STATUS_OK)
        continue;
    error_errno(&err, errnum, "the connection was lost");
    error_recast(&err, CAUSE_UNAVAILABLE);
    return fail(c, &err);
}

static enum status write_pieces(struct inferd_client *c, struct iovec *iov, uint32_t n,
                                uint64_t until_ns)
{
    while (n > 0) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
        ssize_t sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
        if (sent >= 0) {
            advance(&iov, &n, (size_t)sent);
        } else if (errno == EAGAIN) {
            TRY(wait_to_write(c, until_ns));
        } else if (errno != EINTR) {
            return write_failed(c, errno);
        }
    }
    return STATUS_OK;
}

/* Writes what is sealed. */
static enum status write_sealed(struct inferd_client *c, uint64_t until_ns)
{
    const void *at;
    size_t size;
    while ((size = seal_unsent(c->seal, &at)) > 0) {
        struct iovec piece = {(void *)(uintptr_t)at, size};
        TRY(write_pieces(c, &piece, 1, until_ns));
        seal_sent(c->seal, size);
    }
    return STATUS_OK;
}

/* Writes the encoder's frame. */
static enum status write_all(struct inferd_client *c, uint64_t until_ns)
{
    struct error err;
    const struct encoder *e = &c->encoder;
    if (!c->seal)
        return write_pieces(c, c->encoder.iov, e->n_iov, until_ns);
    for (uint32_t i = 0; i < e->n_iov; i++)
        for (size_t at = 0, n; at < e->iov[i].iov_len; at += n) {
            n = MIN(e->iov[i].iov_len - at, (size_t)SEAL_RECORD);
            if (seal_write(c->seal, (const char *)e->iov[i].iov_base + at, n, &err))
                return fail(c, &err);
            TRY(write_sealed(c, until_ns));
        }
    return STATUS_OK;
}

/* Makes the connection one of TLS. What fails ends it, but the server hears why. */
static enum status shake_hands(struct inferd_client *c, uint64_t until_ns, struct error *err)
{
    while (!seal_is_open(c->seal)) {
        struct error why;
        short events = POLLIN;
        enum status status = seal_shake(c->seal, &why);
        if (write_sealed(c, until_ns) || status)
            return error_copy(err, status ? &why : &c->failure);
        if (seal_is_open(c->seal))
            break;
        TRY(wait_for(c->fd, &events, until_ns, err));
        if (read_some(c, NULL))
            return error_copy(err, &c->failure);
    }
    return room_filled(c, 0, err); /* what came behind it */
}

/* --- receiving --- */

/* The connection fails with the reason that the server gave. */
static enum status told(struct inferd_client *c, const struct inferd_response *r)
{
    fail_set(c, STATUS_UNAVAILABLE, "");
    return error_set(&c->failure, r->status ? (enum status)r->status : STATUS_INTERNAL, "%s",
                     r->message);
}

/*
 * Takes the next message of the stream that answers something in flight into the reply; `*slot` is
 * NULL if none is complete. The slot is not given back yet: inferd_client_call may put the answer
 * aside.
 */
static enum status next_answer(struct inferd_client *c, const void **message, size_t *size,
                               struct flight_slot **slot)
{
    struct error err;
    *slot = NULL;
    while (!*slot) {
        if (inbox_next(&c->inbox, message, size, &err))
            return fail(c, &err);
        if (!*message)
            return STATUS_OK;
        if (reply_decode(&c->reply, *message, *size, &err)) {
            error_prefix(&err, "unreadable response");
            error_recast(&err, CAUSE_INTERNAL);
            return fail(c, &err);
        }
        const struct inferd_response *r = &c->reply.response;
        if (r->id == 0) /* about the connection, which the server closes now */
            return told(c, r);
        *slot = flight_find(&c->flight, r->id); /* NULL: it came too late, or answers a cancel */
    }
    return STATUS_OK;
}

static enum status put_aside(struct inferd_client *c, const void *message, size_t size)
{
    struct stashed *s = NULL;
    if (size <= c->options.max_response - c->stash_size)
        s = malloc(sizeof(*s) + size);
    if (!s)
        return fail_set(c, STATUS_RESOURCE_EXHAUSTED, "too many answers were not received");
    s->size = size;
    memcpy(s->message, message, size);
    DL_APPEND(c->stash, s);
    c->stash_size += size;
    return STATUS_OK;
}

/* Puts aside all that has come: answers to other requests, and perhaps the reason of a failure. */
static void put_all_aside(struct inferd_client *c)
{
    const void *message;
    size_t size;
    struct flight_slot *slot;
    while (next_answer(c, &message, &size, &slot) == STATUS_OK && slot) {
        if (put_aside(c, message, size))
            return;
    }
}

static const struct inferd_response *finish(struct inferd_client *c, struct flight_slot *slot)
{
    if (!reply_fits(&c->reply, slot->kind))
        reply_make(&c->reply, slot->id, slot->kind, STATUS_INTERNAL,
                   "the server answered another question");
    flight_give_back(&c->flight, slot);
    return &c->reply.response;
}

static const struct inferd_response *give_up(struct inferd_client *c, struct flight_slot *slot,
                                             enum status status, const char *reason)
{
    reply_make(&c->reply, slot->id, slot->kind, status, reason);
    flight_give_back(&c->flight, slot);
    return &c->reply.response;
}

/* The first stashed answer that is still wanted. */
static const struct inferd_response *from_stash(struct inferd_client *c)
{
    struct error err;
    while (c->stash) {
        struct stashed *s = c->stash;
        DL_DELETE(c->stash, s);
        c->stash_size -= s->size;
        free(c->shown);
        c->shown = s;
        enum status status UNUSED = reply_decode(&c->reply, s->message, s->size, &err);
        assert(!status); /* the message was decoded before it was put aside */
        struct flight_slot *slot = flight_find(&c->flight, c->reply.response.id);
        if (slot)
            return finish(c, slot);
    }
    return NULL;
}

static enum status wait_to_read(struct inferd_client *c, uint64_t until_ns, struct error *err)
{
    short events = POLLIN;
    TRY(wait_for(c->fd, &events, until_ns, err));
    read_some(
        c,
        NULL); /* a failure is reported in the next round, after the answers that came before it */
    return STATUS_OK;
}

/* --- sending --- */

static enum status failed(const struct inferd_client *c, struct error *err)
{
    *err = c->failure;
    assert(err->status);
    return err->status == STATUS_DEADLINE_EXCEEDED ? error_recast(err, CAUSE_UNAVAILABLE)
                                                   : err->status;
}

static uint64_t deadline_of(const struct inferd_client *c, uint64_t timeout_us)
{
    if (timeout_us == 0 || timeout_us > UINT64_MAX / NS_PER_US / 4)
        return FLIGHT_NEVER;
    return clock_now_ns() + timeout_us * NS_PER_US + c->options.grace_ms * NS_PER_MS;
}

static enum status send_request(struct inferd_client *c, const struct inferd_request *request,
                                uint64_t *id, struct error *err)
{
    if (c->fd < 0)
        return failed(c, err);
    struct flight_slot *slot = flight_take(&c->flight, request->kind);
    if (!slot)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "%u requests are unanswered: receive first", c->flight.n);
    enum status status = encoder_request(&c->encoder, request, slot->id, err);
    if (status) {
        flight_give_back(&c->flight, slot);
        return status;
    }
    slot->deadline_ns = deadline_of(c, request->timeout_us);
    *id = slot->id;
    if (write_all(c, slot->deadline_ns)) {
        flight_give_back(&c->flight, slot);
        put_all_aside(c); /* which also finds what the server said about the failure */
        return failed(c, err);
    }
    return STATUS_OK;
}

enum inferd_status inferd_client_send(struct inferd_client *client,
                                      const struct inferd_request *request, uint64_t *id,
                                      struct inferd_error *user_err)
{
    struct error err;
    uint64_t sent = 0;
    if (send_request(client, request, &sent, &err))
        return error_to_user(&err, user_err);
    *id = sent;
    return INFERD_OK;
}

enum inferd_status inferd_client_cancel(struct inferd_client *client, uint64_t id,
                                        struct inferd_error *user_err)
{
    struct error err;
    if (!flight_find(&client->flight, id)) {
        error_set(&err, STATUS_NOT_FOUND, "no such request is in flight");
        return error_to_user(&err, user_err);
    }
    if (client->fd < 0) {
        failed(client, &err);
        return error_to_user(&err, user_err);
    }
    uint64_t until = clock_now_ns() + client->options.connect_timeout_ms * NS_PER_MS;
    if (encoder_cancel(&client->encoder, CANCEL_ID(id), id, &err))
        return error_to_user(&err, user_err);
    if (write_all(client, until)) {
        failed(client, &err);
        return error_to_user(&err, user_err);
    }
    return INFERD_OK;
}

/* --- the calls --- */

static enum status receive(struct inferd_client *c, uint64_t until_ns,
                           const struct inferd_response **out, struct error *err)
{
    const void *message;
    size_t size;
    struct flight_slot *slot;
    if ((*out = from_stash(c)))
        return STATUS_OK;
    for (;;) {
        if (c->flight.n == 0)
            return error_set(err, STATUS_FAILED_PRECONDITION, "no request is in flight");
        if (next_answer(c, &message, &size, &slot) == STATUS_OK && slot) {
            *out = finish(c, slot);
            return STATUS_OK;
        }
        if (c->fd < 0) {
            enum status status = failed(c, err);
            *out = give_up(c, flight_any(&c->flight), status, err->text);
            return STATUS_OK;
        }
        slot = flight_earliest(&c->flight);
        if (slot && slot->deadline_ns <= clock_now_ns()) {
            *out = give_up(c, slot, STATUS_DEADLINE_EXCEEDED, "no answer came in time");
            return STATUS_OK;
        }
        uint64_t limit_ns = slot ? MIN(slot->deadline_ns, until_ns) : until_ns;
        enum status status = wait_to_read(c, limit_ns, err);
        if (status && (status != STATUS_DEADLINE_EXCEEDED || limit_ns == until_ns))
            return status;
    }
}

enum inferd_status inferd_client_receive(struct inferd_client *client, uint64_t timeout_us,
                                         const struct inferd_response **out,
                                         struct inferd_error *user_err)
{
    struct error err;
    const struct inferd_response *response = NULL;
    uint64_t until = timeout_us > UINT64_MAX / NS_PER_US / 4
                         ? FLIGHT_NEVER
                         : clock_now_ns() + timeout_us * NS_PER_US;
    if (receive(client, until, &response, &err))
        return error_to_user(&err, user_err);
    *out = response;
    return INFERD_OK;
}

/* Waits for the answer to `id` alone. */
static enum status await(struct inferd_client *c, uint64_t id, const struct inferd_response **out,
                         struct error *err)
{
    const void *message;
    size_t size;
    struct flight_slot *slot, *own = flight_find(&c->flight, id);
    for (;;) {
        while (next_answer(c, &message, &size, &slot) == STATUS_OK && slot) {
            if (slot == own) {
                *out = finish(c, slot);
                return STATUS_OK;
            }
            if (put_aside(c, message, size))
                break;
        }
        if (c->fd < 0) {
            flight_give_back(&c->flight, own);
            return failed(c, err);
        }
        if (own->deadline_ns <= clock_now_ns()) {
            flight_give_back(&c->flight, own);
            return error_set(err, STATUS_DEADLINE_EXCEEDED, "no answer came in time");
        }
        enum status status = wait_to_read(c, own->deadline_ns, err);
        if (status && status != STATUS_DEADLINE_EXCEEDED) {
            flight_give_back(&c->flight, own);
            return status;
        }
    }
}

enum inferd_status inferd_client_call(struct inferd_client *client,
                                      const struct inferd_request *request,
                                      const struct inferd_response **out,
                                      struct inferd_error *user_err)
{
    struct error err;
    uint64_t id = 0;
    const struct inferd_response *response = NULL;
    if (send_request(client, request, &id, &err) || await(client, id, &response, &err))
        return error_to_user(&err, user_err);
    assert(response);
    *out = response;
    if (response->status == INFERD_OK)
        return INFERD_OK;
    error_set(&err, (enum status)response->status, "%s", response->message);
    return error_to_user(&err, user_err);
}
