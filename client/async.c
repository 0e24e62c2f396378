/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asynchronous half of client.h: one connection on the caller's loop.
 *
 * Requests gather in one of two outboxes. A prepare handle, which runs before the loop waits,
 * writes that outbox with one system call. What the socket does not take waits until it has room,
 * while requests gather in the other outbox. So nothing is allocated for a request, and many
 * requests that are sent in one round cost one write.
 *
 * libuv would write without MSG_NOSIGNAL, and a server that goes away would end the caller's
 * program by SIGPIPE. So writes are made here, and libuv says only when there is room: its poll
 * handle takes a descriptor that none of its other handles has, therefore a duplicate.
 *
 * Threads of libuv look a name up, and its addresses are tried one after the other. Each has a
 * socket of its own, for which the handle is closed and made anew.
 *
 * The stream's position tells whether a request has left: `queued` counts bytes put into outboxes,
 * `written` bytes the socket took. What is sealed is a copy, so that counts as taken.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#include "base/clock.h"
#include "base/resolve.h"
#include "client/client.h"
#include "client/encoder.h"
#include "client/flight.h"
#include "client/inbox.h"
#include "client/options.h"
#include "client/outbox.h"
#include "client/reply.h"
#include "client/seal.h"

enum { PIECES = 64 }; /* of one write */

enum phase { CONNECTING, OPEN, FAILED, CLOSING };

struct inferd_async {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_prepare_t flush;
    uv_timer_t timer; /* the earliest deadline, at first that of the connection */
    uv_poll_t room;   /* that the socket can be written to */
    int room_fd;      /* the socket's duplicate; -1: `room` is not initialised */
    uv_connect_t connect;
    uv_getaddrinfo_t lookup;
    struct resolved addresses;
    uint32_t next_address; /* to try */
    uint32_t handles;      /* not yet closed; a lookup under way is one */
    enum phase phase;
    bool looking; /* `lookup` is under way */
    bool full;    /* what is left of outbox[sending] waits for room */
    int sending;  /* which outbox is written; the other gathers */
    struct outbox outbox[2];
    uint64_t queued, written;
    uint64_t connect_by_ns, timer_ns; /* FLIGHT_NEVER: not set */

    struct error failure;
    struct inferd_options options;
    inferd_state state;
    void *state_user;
    inferd_closed closed;
    void *closed_user;
    struct seal *seal; /* NULL: in the clear */
    struct flight flight;
    struct inbox inbox;
    struct encoder encoder;
    struct reply reply;
};

/* --- answers --- */

static void give_answer(struct inferd_async *a, struct flight_slot *slot)
{
    inferd_answer call = slot->answer;
    void *user = slot->user;
    flight_give_back(&a->flight, slot);
    call(user, &a->reply.response);
}

static void answer_all(struct inferd_async *a, enum status status, const char *reason)
{
    /* A callback may close the connection, which answers the others: so each slot is read anew. */
    for (uint32_t i = 0; i < a->flight.cap; i++) {
        struct flight_slot *slot = &a->flight.slots[i];
        if (!slot->id)
            continue;
        reply_make(&a->reply, slot->id, slot->kind, status, reason);
        give_answer(a, slot);
    }
}

static void close_socket(struct inferd_async *a);

static void fail(struct inferd_async *a, const struct error *err)
{
    if (a->phase > OPEN)
        return;
    a->phase = FAILED;
    a->failure = *err;
    close_socket(a); /* from now on no request's memory is read */
    uv_timer_stop(&a->timer);
    answer_all(a, err->status, err->text);
    if (a->phase == FAILED && a->state)
        a->state(a->state_user, (enum inferd_status)err->status, err->text);
}

static void fail_uv(struct inferd_async *a, const char *what, int code)
{
    struct error err;
    error_set(&err, STATUS_UNAVAILABLE, "%s: %s", what, uv_strerror(code));
    fail(a, &err);
}

static void fail_set(struct inferd_async *a, enum status status, const char *reason)
{
    struct error err;
    error_set(&err, status, "%s", reason);
    fail(a, &err);
}

/* --- reading --- */

static void take_message(struct inferd_async *a, const void *message, size_t size)
{
    struct error err;
    const struct inferd_response *r = &a->reply.response;
    if (reply_decode(&a->reply, message, size, &err)) {
        error_prefix(&err, "unreadable response");
        error_recast(&err, CAUSE_INTERNAL);
        fail(a, &err);
        return;
    }
    if (r->id == 0) { /* about the connection, which the server closes now */
        error_set(&err, r->status ? (enum status)r->status : STATUS_INTERNAL, "%s", r->message);
        fail(a, &err);
        return;
    }
    struct flight_slot *slot = flight_find(&a->flight, r->id);
    if (!slot)
        return; /* it came too late, or answers a cancel */
    if (slot->sent_at > a->written) {
        /* After this answer the user may free the data, but the rest of the frame is to be sent. */
        fail_set(a, STATUS_UNAVAILABLE, "the server answered a request before it had all of it");
        return;
    }
    if (!reply_fits(&a->reply, slot->kind))
        reply_make(&a->reply, slot->id, slot->kind, STATUS_INTERNAL,
                   "the server answered another question");
    give_answer(a, slot);
}

static void on_alloc(uv_handle_t *handle, size_t suggested UNUSED, uv_buf_t *buf)
{
    struct inferd_async *a = handle->data;
    void *at;
    size_t size;
    *buf = uv_buf_init(NULL, 0); /* no room: on_read gets ENOBUFS */
    if (a->seal) {
        seal_room(a->seal, &at, &size);
        *buf = uv_buf_init(at, (unsigned)size);
    } else if (inbox_room(&a->inbox, &at, &size, NULL) == STATUS_OK)
        *buf = uv_buf_init(at, (unsigned)MIN(size, (size_t)1 << 30));
}

static void take_messages(struct inferd_async *a)
{
    struct error err;
    while (a->phase == OPEN) {
        const void *message;
        size_t size;
        if (inbox_next(&a->inbox, &message, &size, &err)) {
            fail(a, &err);
            return;
        }
        if (!message)
            return;
        take_message(a, message, size);
    }
}

/* Unseals what has come, a room's worth at a time, and takes the messages in it. */
static void unseal(struct inferd_async *a)
{
    struct error err;
    void *at;
    size_t room, got = 1;
    while (a->phase == OPEN && got) {
        if (inbox_room(&a->inbox, &at, &room, &err) || seal_read(a->seal, at, room, &got, &err)) {
            fail(a, &err);
            return;
        }
        inbox_filled(&a->inbox, got);
        take_messages(a);
    }
}

static void shake_hands(struct inferd_async *a);

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf UNUSED)
{
    struct inferd_async *a = stream->data;
    struct error err;
    if (n == UV_EOF) {
        fail_set(a, STATUS_UNAVAILABLE, "the server closed the connection");
    } else if (n < 0) {
        fail_uv(a, "the connection was lost", (int)n);
    } else if (!a->seal) {
        inbox_filled(&a->inbox, (size_t)n);
        take_messages(a);
    } else if (seal_filled(a->seal, (size_t)n, &err)) {
        fail(a, &err);
    } else {
        if (a->phase == CONNECTING)
            shake_hands(a);
        unseal(a);
    }
}

/* --- writing --- */

static void sent(struct inferd_async *a, size_t size)
{
    if (a->seal) {
        seal_sent(a->seal, size);
        return;
    }
    outbox_sent(&a->outbox[a->sending], size);
    a->written += size;
}

/* The next pieces that requests have left; 0: none. */
static uint32_t pieces_gathered(struct inferd_async *a, struct iovec *iov, uint32_t most)
{
    if (a->phase != OPEN)
        return 0;
    if (outbox_empty(&a->outbox[a->sending]))
        a->sending = !a->sending;
    return outbox_pieces(&a->outbox[a->sending], iov, most);
}

/* The next piece that is sealed; 0: none. Of a handshake there are some before the connection is
 * open. */
static uint32_t piece_sealed(struct inferd_async *a, struct iovec *iov)
{
    struct error err;
    const void *at;
    size_t size = seal_unsent(a->seal, &at);
    while (!size && pieces_gathered(a, iov, 1)) {
        size_t n = MIN(iov->iov_len, (size_t)SEAL_RECORD);
        if (seal_write(a->seal, iov->iov_base, n, &err)) {
            fail(a, &err);
            return 0;
        }
        outbox_sent(&a->outbox[a->sending], n);
        a->written += n;
        size = seal_unsent(a->seal, &at);
    }
    *iov = (struct iovec){(void *)(uintptr_t)at, size};
    return size > 0;
}

static void on_room(uv_poll_t *handle, int code, int events);

/* Goes on when the socket has room. */
static int wait_for_room(struct inferd_async *a, int fd)
{
    if (a->room_fd < 0) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            return uv_translate_sys_error(errno);
        int code = uv_poll_init(a->flush.loop, &a->room, copy);
        if (code) {
            close(copy);
            return code;
        }
        a->room_fd = copy;
        a->room.data = a;
        a->handles++;
    }
    a->full = true;
    return uv_poll_start(&a->room, UV_WRITABLE, on_room);
}

/* Writes until all has left or the socket is full. */
static void flush(struct inferd_async *a)
{
    struct iovec iov[PIECES];
    while (a->phase <= OPEN && !a->full) {
        uv_os_fd_t fd;
        struct msghdr message = {.msg_iov = iov};
        message.msg_iovlen = a->seal ? piece_sealed(a, iov) : pieces_gathered(a, iov, PIECES);
        if (!message.msg_iovlen)
            return;
        int code = uv_fileno(&a->socket.handle, &fd);
        if (!code) {
            ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n >= 0)
                sent(a, (size_t)n);
            else if (errno == EAGAIN || errno == EWOULDBLOCK)
                code = wait_for_room(a, fd);
            else if (errno != EINTR)
                code = uv_translate_sys_error(errno);
        }
        if (code) {
            fail_uv(a, "the connection was lost", code);
            return;
        }
    }
}

static void on_room(uv_poll_t *handle, int code UNUSED, int events UNUSED)
{
    /* Of an error the next write tells more. */
    struct inferd_async *a = handle->data;
    uv_poll_stop(handle);
    a->full = false;
    flush(a);
}

static void on_prepare(uv_prepare_t *handle)
{
    flush(handle->data);
}

/* --- time --- */

static void on_timer(uv_timer_t *handle);

static void set_timer(struct inferd_async *a, uint64_t deadline_ns)
{
    if (deadline_ns >= a->timer_ns)
        return;
    uint64_t now = clock_now_ns();
    uint64_t ms = deadline_ns > now ? (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 0;
    a->timer_ns = deadline_ns;
    uv_update_time(a->timer.loop); /* timers count from the loop's idea of now */
    uv_timer_start(&a->timer, on_timer, ms, 0);
}

/* Puts a frame where it waits for the next flush. */
static enum status gather(struct inferd_async *a, const struct outbox_frame *frame, uint8_t **start,
                          struct error *err)
{
    size_t size;
    TRY(outbox_add(&a->outbox[!a->sending], frame, start, &size, err));
    a->queued += size;
    return STATUS_OK;
}

static struct outbox_frame encoded(const struct inferd_async *a)
{
    const struct encoder *e = &a->encoder;
    return (struct outbox_frame){e->iov, e->n_iov, e->head, sizeof(e->head)};
}

static void cancel_quietly(struct inferd_async *a, uint64_t id)
{
    uint8_t *start;
    if (encoder_cancel(&a->encoder, CANCEL_ID(id), id, NULL))
        return;
    struct outbox_frame frame = encoded(a);
    /* If there is no memory for this, the request just runs. */
    if (gather(a, &frame, &start, NULL))
        return;
}

static void expire(struct inferd_async *a, struct flight_slot *slot)
{
    if (slot->sent_at > a->written) {
        fail_set(a, STATUS_UNAVAILABLE, "the server takes no more bytes: timed out");
        return;
    }
    cancel_quietly(a, slot->id);
    reply_make(&a->reply, slot->id, slot->kind, STATUS_DEADLINE_EXCEEDED, "no answer came in time");
    give_answer(a, slot);
}

static void on_timer(uv_timer_t *handle)
{
    struct inferd_async *a = handle->data;
    uint64_t now = clock_now_ns();
    a->timer_ns = FLIGHT_NEVER;
    flush(a); /* timers run before the prepare handle, so requests may still be in the outbox */
    if (a->phase == CONNECTING && now >= a->connect_by_ns) {
        fail_set(a, STATUS_UNAVAILABLE, "connect: timed out");
        return;
    }
    if (a->phase == CONNECTING)
        set_timer(a, a->connect_by_ns);
    for (uint32_t i = 0; i < a->flight.cap && a->phase == OPEN; i++) {
        struct flight_slot *slot = &a->flight.slots[i];
        if (slot->id && slot->deadline_ns <= now)
            expire(a, slot);
    }
    const struct flight_slot *next = a->phase == OPEN ? flight_earliest(&a->flight) : NULL;
    if (next)
        set_timer(a, next->deadline_ns);
}

/* --- life --- */

static void async_free(struct inferd_async *a)
{
    inferd_closed closed = a->closed;
    void *user = a->closed_user;
    for (int i = 0; i < 2; i++)
        outbox_deinit(&a->outbox[i]);
    seal_free(a->seal);
    flight_deinit(&a->flight);
    inbox_deinit(&a->inbox);
    reply_deinit(&a->reply);
    free(a);
    if (closed)
        closed(user);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct inferd_async *a = handle->data;
    if (--a->handles == 0 && a->phase == CLOSING)
        async_free(a);
}

static void on_room_closed(uv_handle_t *handle)
{
    struct inferd_async *a = handle->data;
    close(a->room_fd);
    on_handle_closed(handle);
}

static void close_handle(uv_handle_t *handle, uv_close_cb closed)
{
    if (!uv_is_closing(handle))
        uv_close(handle, closed);
}

/* Says goodbye if the socket has room for that. */
static void part(struct inferd_async *a)
{
    const void *at;
    uv_os_fd_t fd;
    if (!a->seal || uv_is_closing(&a->socket.handle) || uv_fileno(&a->socket.handle, &fd) ||
        !seal_goodbye(a->seal))
        return;
    size_t size = seal_unsent(a->seal, &at);
    if (send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the server finds the connection cut, as it may at any time */
}

static void close_socket(struct inferd_async *a)
{
    part(a);
    close_handle(&a->socket.handle, on_handle_closed);
    if (a->room_fd >= 0)
        close_handle((uv_handle_t *)&a->room, on_room_closed);
}

void inferd_async_close(struct inferd_async *a, inferd_closed closed, void *user)
{
    if (!a)
        return;
    a->phase = CLOSING;
    a->closed = closed;
    a->closed_user = user;
    close_socket(a);
    close_handle((uv_handle_t *)&a->flush, on_handle_closed);
    close_handle((uv_handle_t *)&a->timer, on_handle_closed);
    if (a->looking)
        uv_cancel((uv_req_t *)&a->lookup); /* if no thread has begun with it */
    answer_all(a, STATUS_CANCELLED, "the connection was closed");
}

static void on_connect(uv_connect_t *request, int code);

/* Starts to connect to the next address. */
static int connect_next(struct inferd_async *a)
{
    const struct address *address = &a->addresses.items[a->next_address++];
    uv_tcp_nodelay(&a->socket.tcp, 1);
    return uv_tcp_connect(&a->connect, &a->socket.tcp, address_sockaddr(address), on_connect);
}

static void on_refused_closed(uv_handle_t *handle);

/* Tries another address on a new socket. False: there is none. */
static bool connect_again(struct inferd_async *a)
{
    if (a->next_address >= a->addresses.n)
        return false;
    uv_close(&a->socket.handle, on_refused_closed);
    return true;
}

static void on_refused_closed(uv_handle_t *handle)
{
    struct inferd_async *a = handle->data;
    if (a->phase != CONNECTING) {
        on_handle_closed(handle);
        return;
    }
    uv_tcp_init(handle->loop, &a->socket.tcp);
    a->socket.handle.data = a;
    int code = connect_next(a);
    if (code && !connect_again(a))
        fail_uv(a, "connect", code);
}

static void on_lookup(uv_getaddrinfo_t *request, int code, struct addrinfo *list)
{
    struct inferd_async *a = request->data;
    a->handles--;
    a->looking = false;
    if (a->phase == CONNECTING) {
        resolve_take(list, &a->addresses);
        if (!code && a->addresses.n == 0)
            code = UV_EAI_NONAME;
        const char *what = "look-up of the host's name";
        if (!code) {
            what = "connect";
            code = connect_next(a);
        }
        if (code && !connect_again(a))
            fail_uv(a, what, code);
    } else if (a->handles == 0 && a->phase == CLOSING) {
        async_free(a);
    }
    uv_freeaddrinfo(list);
}

/* Requests may go out, and answers come in. */
static void opened(struct inferd_async *a)
{
    a->phase = OPEN;
    uv_timer_stop(&a->timer);
    a->timer_ns = FLIGHT_NEVER;
    const struct flight_slot *next = flight_earliest(&a->flight);
    if (next)
        set_timer(a, next->deadline_ns);
    if (a->state)
        a->state(a->state_user, INFERD_OK, "");
}

/* Goes on with the handshake of TLS. What fails ends the connection, but the server hears why. */
static void shake_hands(struct inferd_async *a)
{
    struct error err;
    enum status status = seal_shake(a->seal, &err);
    flush(a);
    if (status)
        fail(a, &err);
    else if (a->phase == CONNECTING && seal_is_open(a->seal))
        opened(a);
}

static void on_connect(uv_connect_t *request, int code)
{
    struct inferd_async *a = request->data;
    if (a->phase != CONNECTING)
        return;
    if (code && connect_again(a))
        return;
    if (code) {
        fail_uv(a, "connect", code);
        return;
    }
    code = uv_read_start(&a->socket.stream, on_alloc, on_read);
    if (code)
        fail_uv(a, "read", code);
    else if (a->seal)
        shake_hands(a);
    else
        opened(a);
}

/* Starts to connect. `handles` says which handles a failure has to close: none or all. */
static int start(struct inferd_async *a, uv_loop_t *loop, const struct resolve_name *name)
{
    const struct address *first = &a->addresses.items[0];
    const struct addrinfo hints = resolve_hints();
    bool is_unix = a->addresses.n > 0 && address_is_unix(first);
    int code = is_unix ? uv_pipe_init(loop, &a->socket.pipe, 0) : uv_tcp_init(loop, &a->socket.tcp);
    if (code)
        return code;
    uv_prepare_init(loop, &a->flush);
    uv_timer_init(loop, &a->timer);
    a->handles = 3;
    a->socket.handle.data = a->flush.data = a->timer.data = a;
    a->connect.data = a->lookup.data = a;
    if (is_unix) {
        const struct sockaddr_un *sun = (const struct sockaddr_un *)(const void *)&first->storage;
        a->next_address = 1;
        uv_pipe_connect(&a->connect, &a->socket.pipe, sun->sun_path, on_connect);
    } else if (a->addresses.n > 0) {
        code = connect_next(a);
        if (code && connect_again(a))
            code = 0;
    } else {
        code = uv_getaddrinfo(loop, &a->lookup, on_lookup, name->host, name->port, &hints);
        a->looking = code == 0;
        a->handles += a->looking;
    }
    if (code)
        return code;
    uv_prepare_start(&a->flush, on_prepare);
    uv_unref((uv_handle_t *)&a->flush); /* the socket alone keeps the loop running */
    set_timer(a, a->connect_by_ns);
    return 0;
}

/* A connection that could not be opened; handles that it has already are closed by the loop. */
static void async_cleanup(struct inferd_async **async)
{
    if (*async && (*async)->handles > 0)
        inferd_async_close(*async, NULL, NULL);
    else if (*async)
        async_free(*async);
}

static enum status open_async(uv_loop_t *loop, const char *text,
                              const struct inferd_options *options, struct inferd_async **out,
                              struct error *err)
{
    struct resolve_name name;
    CLEANUP(seal_target_cleanup) struct seal_target target = {0};
    TRY(seal_target_parse(text, &target, err));
    CLEANUP(async_cleanup) struct inferd_async *a = calloc(1, sizeof(*a));
    if (!a)
        return error_no_memory(err, "a connection");
    TRY(resolve_text(target.address, &a->addresses, &name, err));
    TRY(seal_new(&target, &a->seal, err));
    a->room_fd = -1;
    a->options = options_fill(options);
    a->timer_ns = FLIGHT_NEVER;
    a->connect_by_ns = clock_now_ns() + a->options.connect_timeout_ms * NS_PER_MS;
    inbox_init(&a->inbox, a->options.max_response);
    TRY(flight_init(&a->flight, a->options.max_in_flight, err));
    int code = start(a, loop, &name);
    if (code)
        return error_set(err, STATUS_UNAVAILABLE, "%.150s: %s", target.address, uv_strerror(code));
    *out = STEAL(a);
    return STATUS_OK;
}

enum inferd_status inferd_async_open(struct uv_loop_s *loop, const char *address,
                                     const struct inferd_options *options, inferd_state state,
                                     void *user, struct inferd_async **out,
                                     struct inferd_error *user_err)
{
    struct error err;
    struct inferd_async *a = NULL;
    if (open_async(loop, address, options, &a, &err))
        return error_to_user(&err, user_err);
    assert(a);
    a->state = state;
    a->state_user = user;
    *out = a;
    return INFERD_OK;
}

uint32_t inferd_async_in_flight(const struct inferd_async *async)
{
    return async->flight.n;
}

/* --- sending --- */

static enum status check_open(const struct inferd_async *a, struct error *err)
{
    if (a->phase == FAILED)
        return error_set(err, STATUS_UNAVAILABLE, "%s", a->failure.text);
    if (a->phase == CLOSING)
        return error_set(err, STATUS_UNAVAILABLE, "the connection is closed");
    return STATUS_OK;
}

static enum status take_slot(struct inferd_async *a, enum inferd_kind kind,
                             struct flight_slot **slot, struct error *err)
{
    TRY(check_open(a, err));
    *slot = flight_take(&a->flight, kind);
    if (!*slot)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%u requests are unanswered", a->flight.n);
    return STATUS_OK;
}

/* Notes that the request is in flight: its frame is in the outbox. */
static void launch(struct inferd_async *a, struct flight_slot *slot, uint64_t timeout_us,
                   inferd_answer call, void *user)
{
    slot->sent_at = a->queued;
    slot->answer = call;
    slot->user = user;
    if (timeout_us == 0 || timeout_us > UINT64_MAX / NS_PER_US / 4)
        return;
    slot->deadline_ns = clock_now_ns() + timeout_us * NS_PER_US + a->options.grace_ms * NS_PER_MS;
    if (a->phase == OPEN)
        set_timer(a, slot->deadline_ns);
}

static enum status gather_request(struct inferd_async *a, const struct inferd_request *request,
                                  uint64_t id, struct error *err)
{
    uint8_t *start;
    TRY(encoder_request(&a->encoder, request, id, err));
    struct outbox_frame frame = encoded(a);
    return gather(a, &frame, &start, err);
}

static enum status send_request(struct inferd_async *a, const struct inferd_request *request,
                                inferd_answer call, void *user, uint64_t *id, struct error *err)
{
    struct flight_slot *slot;
    TRY(take_slot(a, request->kind, &slot, err));
    enum status status = gather_request(a, request, slot->id, err);
    if (status) {
        flight_give_back(&a->flight, slot);
        return status;
    }
    *id = slot->id;
    launch(a, slot, request->timeout_us, call, user);
    return STATUS_OK;
}

enum inferd_status inferd_async_send(struct inferd_async *async,
                                     const struct inferd_request *request, inferd_answer answer,
                                     void *user, uint64_t *id, struct inferd_error *user_err)
{
    struct error err;
    uint64_t sent_id = 0;
    if (send_request(async, request, answer, user, &sent_id, &err))
        return error_to_user(&err, user_err);
    if (id)
        *id = sent_id;
    return INFERD_OK;
}

static enum status send_prepared(struct inferd_async *a, const struct inferd_prepared *prepared,
                                 inferd_answer call, void *user, uint64_t *id, struct error *err)
{
    struct outbox_frame frame = {prepared->iov, prepared->n_iov, prepared->head,
                                 prepared->head_size};
    struct flight_slot *slot;
    uint8_t *start;
    TRY(take_slot(a, prepared->kind, &slot, err));
    enum status status = gather(a, &frame, &start, err);
    if (status) {
        flight_give_back(&a->flight, slot);
        return status;
    }
    prepared_set_id(start, slot->id);
    *id = slot->id;
    launch(a, slot, prepared->timeout_us, call, user);
    return STATUS_OK;
}

enum inferd_status inferd_async_send_prepared(struct inferd_async *async,
                                              const struct inferd_prepared *prepared,
                                              inferd_answer answer, void *user, uint64_t *id,
                                              struct inferd_error *user_err)
{
    struct error err;
    uint64_t sent_id = 0;
    if (send_prepared(async, prepared, answer, user, &sent_id, &err))
        return error_to_user(&err, user_err);
    if (id)
        *id = sent_id;
    return INFERD_OK;
}

static enum status check_in_flight(struct inferd_async *a, uint64_t id, struct error *err)
{
    TRY(check_open(a, err));
    if (!flight_find(&a->flight, id))
        return error_set(err, STATUS_NOT_FOUND, "no such request is in flight");
    return STATUS_OK;
}

enum inferd_status inferd_async_cancel(struct inferd_async *async, uint64_t id,
                                       struct inferd_error *user_err)
{
    struct error err;
    if (check_in_flight(async, id, &err))
        return error_to_user(&err, user_err);
    cancel_quietly(async, id);
    return INFERD_OK;
}
