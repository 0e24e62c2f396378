/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, see connection.h: accounts, reading, and the host's side of a session.
 *
 * Nothing here closes a connection at once. A function that finds it beyond help marks it as dying,
 * and the end of the turn closes it, so that connections which are open in a turn exist until its
 * end.
 */
#include "daemon/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/exchange.h"
#include "daemon/loop.h"
#include "daemon/permit.h"
#include "daemon/tls.h"

enum {
    READ_MOST = 256 * 1024, /* at once, into a session's own place */
    KEEPALIVE_S = 60,       /* of silence, before TCP asks whether the peer is still there */
    KEEPALIVE_EVERY_S = 15,
    KEEPALIVE_TIMES = 4,
};

static struct connection *connection_of(struct session_host *host)
{
    return CONTAINER_OF(host, struct connection, host);
}

/* --- stopping and going on --- */

void connection_stop(struct connection *c, uint32_t why)
{
    if (!c->stops)
        counter_add(&c->loop->counters, COUNTER_READS_PAUSED, 1);
    c->stops |= why;
}

/* Whether inputs can be unpacked now: they belong to the request that a protocol which answers in
 * order waits for. */
static bool unpacks(const struct connection *c)
{
    return c->unpack && c->phase <= CONNECTION_HALF && !(c->stops & ~(uint32_t)STOP_HOLD);
}

void connection_resume(struct connection *c, uint32_t why)
{
    if (!(c->stops & why))
        return;
    c->stops &= ~why;
    if (c->stops && !unpacks(c))
        return;
    counter_add(&c->loop->counters, COUNTER_READS_RESUMED, 1);
    if (c->phase <= CONNECTION_HALF)
        loop_ready(c->loop, c, false); /* its turn looks at the session and at the socket */
}

/* --- what is watched --- */

/* A peer that is held seldom sends anything before its reply, so it stays watched until it does:
 * most requests then need no call to change that. */
static bool watches_input(const struct connection *c)
{
    return !c->stops || (c->stops == STOP_HOLD && !c->early);
}

static int events_wanted(const struct connection *c)
{
    int events = c->backlog || (c->tls && tls_unsent(c->tls)) ? UV_WRITABLE : 0;
    if (c->phase == CONNECTION_LINGERING || (c->phase == CONNECTION_OPEN && watches_input(c)))
        events |= UV_READABLE;
    else if (c->phase == CONNECTION_OPEN && !c->left)
        events |= UV_DISCONNECT;
    /* No peer sends urgent data, so watching for that reports nothing but an error or a reset. */
    return events ? events : UV_PRIORITIZED;
}

/* No protocol here has urgent data, so such an event ends the connection. A peer that has closed
 * its sending side may still wait for replies; only when both directions are closed has it left for
 * good, and then the poll here says so. */
static void peer_left(struct connection *c, int events)
{
    struct pollfd now = {.fd = c->fd};
    if (poll(&now, 1, 0) < 0 || now.revents || !(events & UV_DISCONNECT))
        connection_die(c);
    c->left = true;
}

/* Reads and discards what comes, until the peer closes too. */
static void drop_input(struct connection *c)
{
    ssize_t n = recv(c->fd, c->loop->staging, LOOP_STAGING, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        connection_die(c);
}

/* The socket takes more of what TLS has for it. */
static void tls_writable(struct connection *c)
{
    if (!tls_flush(c->tls))
        connection_die(c);
    else if (!tls_unsent(c->tls))
        connection_dirty(c); /* it may be finished */
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct connection *c = poll->data;
    if (c->phase >= CONNECTION_DYING)
        return;
    if (status < 0) { /* an error on the socket: it was reset */
        connection_die(c);
        return;
    }
    if (events & UV_WRITABLE && c->tls)
        tls_writable(c);
    if (events & UV_WRITABLE && c->backlog && c->phase < CONNECTION_DYING)
        connection_writable(c);
    if (events & (UV_DISCONNECT | UV_PRIORITIZED) && c->phase < CONNECTION_DYING)
        peer_left(c, events);
    if (events & UV_READABLE && c->phase == CONNECTION_LINGERING)
        drop_input(c);
    else if (events & UV_READABLE && c->phase == CONNECTION_OPEN && c->stops == STOP_HOLD)
        c->early = true;
    else if (events & UV_READABLE && c->phase == CONNECTION_OPEN)
        loop_ready(c->loop, c, false);
    connection_watch(c);
}

void connection_watch(struct connection *c)
{
    if (c->phase >= CONNECTION_DYING)
        return;
    int wanted = events_wanted(c);
    if (wanted == c->events)
        return;
    c->events = wanted;
    if (uv_poll_start(&c->poll, wanted, on_poll) != 0 || !loop_watch(&c->loop->uv, c->fd))
        connection_die(c); /* it could neither be read nor be seen to leave */
}

/* --- reading --- */

enum got { GOT_ALL, GOT_MORE };

/* Takes note of when a message begins. In HTTP/2 messages come mixed, and each begins now. */
static void message_mark(struct connection *c)
{
    struct session_state state = {.wait = SESSION_WAIT_NOTHING};
    if (c->ops != &session_h2)
        c->ops->state(c->session, &state);
    if (state.wait == SESSION_WAIT_NOTHING)
        c->message_ns = c->loop->now_ns;
}

/* Where to read to: the session's own place, or staging, or both, one behind the other. */
static uint32_t places(struct connection *c, struct iovec *at)
{
    struct loop *loop = c->loop;
    size_t size = 0;
    c->ops->buffer(c->session, &at[0].iov_base, &size);
    at[0].iov_len = MIN(size, (size_t)READ_MOST);
    at[1] = (struct iovec){loop->staging, LOOP_STAGING};
    if (!size) {
        at[0] = at[1];
        if (!loop_aside(loop)) /* a rest of the input would have no place */
            at[0].iov_len = MIN(at[0].iov_len, c->ops->wants(c->session));
        return 1;
    }
    bool both = !c->tls && size <= READ_MOST && c->ops->goes_on && c->ops->goes_on(c->session);
    return both && loop_aside(loop) ? 2 : 1;
}

static void input(struct connection *c, const struct iovec *at, uint32_t n, size_t came)
{
    for (uint32_t i = 0; i < n && came; i++) {
        size_t size = MIN(came, at[i].iov_len);
        c->ops->input(c->session, at[i].iov_base, size);
        came -= size;
    }
}

/* Reads once. GOT_MORE: there may be more. */
static enum got read_once(struct connection *c)
{
    struct loop *loop = c->loop;
    struct iovec at[2];
    uint32_t n_at = places(c, at);
    struct msghdr to = {.msg_iov = at, .msg_iovlen = n_at};
    ssize_t n = c->tls ? tls_recv(c->tls, at->iov_base, at->iov_len) : recvmsg(c->fd, &to, 0);
    if (n < 0 && errno == EINTR)
        return GOT_MORE;
    if (n < 0) {
        if (errno != EAGAIN)
            connection_die(c);
        return GOT_ALL;
    }
    if (n == 0) {
        c->phase = CONNECTION_HALF;
        return GOT_ALL;
    }
    counter_add(&loop->counters, COUNTER_BYTES_IN, (uint64_t)n);
    loop->now_ns = clock_now_ns();
    if (n >= LOOP_POUR)
        connection_poured(c);
    c->active_ms = uv_now(&loop->uv);
    if (loop->shared->traces)
        message_mark(c);
    input(c, at, n_at, (size_t)n);
    loop_breathe(loop);
    size_t asked = at[0].iov_len + (n_at > 1 ? at[1].iov_len : 0);
    return (size_t)n < asked && !c->tls ? GOT_ALL : GOT_MORE; /* TLS gives a record at a time */
}

/* Goes on with the handshake of TLS. False: it takes more bytes of the peer. */
static bool shake_hands(struct connection *c)
{
    enum tls_step step = tls_handshake(c->tls);
    if (step == TLS_FAILED) {
        counter_add(&c->loop->counters, COUNTER_TLS_FAILED, 1);
        c->phase = CONNECTION_ENDING; /* the peer still hears why */
        connection_dirty(c);
    }
    c->active_ms = uv_now(&c->loop->uv);
    return step == TLS_DONE;
}

void connection_turn(struct connection *c)
{
    enum got got = GOT_ALL;
    c->loop->now_ns = clock_now_ns();
    if (c->tls && !tls_is_open(c->tls) && !shake_hands(c)) {
        connection_watch(c);
        return;
    }
    if (unpacks(c))
        exchange_unpack_go_on(c);
    if (!c->unpack && connection_takes(c) && c->ops->waiting(c->session))
        c->ops->resume(c->session);
    if (!c->ops->waiting(c->session))
        c->in_vain = false;
    while (c->phase == CONNECTION_OPEN && !c->stops && !c->unpack && !c->ops->waiting(c->session)) {
        got = c->loop->slice_over ? GOT_MORE : read_once(c);
        if (got == GOT_ALL || loop_slice_over(c->loop))
            break;
    }
    bool more = connection_takes(c) && (got == GOT_MORE || c->ops->waiting(c->session));
    if (more || unpacks(c))
        loop_ready(c->loop, c, true);
    connection_mark(c);
    connection_watch(c);
    connection_dirty(c); /* so that the end of the turn looks whether it is finished */
}

/* --- the end --- */

/* Everything that was asked has been answered and written, and the peer asks nothing more. */
static bool finished(const struct connection *c)
{
    bool asked = c->phase == CONNECTION_HALF && !c->stops && !c->unpack && c->queue == QUEUE_NONE &&
                 !c->ops->waiting(c->session);
    return (asked || c->phase == CONNECTION_ENDING) && !c->n_inflight && !c->n_orders && !c->out &&
           !c->backlog && !(c->tls && tls_unsent(c->tls)) &&
           !(c->ops->unsent && c->ops->unsent(c->session));
}

/* Closing a socket with unread bytes resets it, and the peer might never see why. So only our side
 * is closed at first, and what still comes is thrown away for a while. */
static void linger(struct connection *c)
{
    c->phase = CONNECTION_LINGERING;
    c->active_ms = uv_now(&c->loop->uv);
    if (shutdown(c->fd, SHUT_WR) != 0)
        connection_die(c);
    connection_watch(c);
}

void connection_finish(struct connection *c)
{
    if (c->phase >= CONNECTION_LINGERING || !finished(c))
        return;
    if (c->tls)
        tls_goodbye(c->tls);
    if (c->phase == CONNECTION_ENDING)
        linger(c);
    else
        connection_die(c);
}

/* --- the host of a session --- */

static void host_request(struct session_host *host, const struct request *request,
                         struct slab *frame)
{
    struct connection *c = connection_of(host);
    counter_add(&c->loop->counters, COUNTER_FRAMES, 1);
    exchange_request(c, request, frame);
    loop_slice_over(c->loop);
}

static void host_malformed(struct session_host *host, uint64_t id, const struct error *err)
{
    struct connection *c = connection_of(host);
    counter_add(&c->loop->counters, COUNTER_FRAMES, 1);
    exchange_error(c, id, err);
    loop_slice_over(c->loop);
}

static bool host_paused(struct session_host *host)
{
    struct connection *c = connection_of(host);
    return !connection_takes(c) || c->unpack || c->loop->slice_over;
}

static void *host_head(struct session_host *host)
{
    return loop_head(connection_of(host)->loop);
}

static void host_write(struct session_host *host, const struct iovec *iov, uint32_t n)
{
    connection_write(connection_of(host), iov, n);
}

static struct slab *host_slab_take(struct session_host *host, size_t size)
{
    return connection_slab_take(connection_of(host), size);
}

/* Takes a slab for the rest of the input: one of its size if the rest is small and there is room,
 * and otherwise the slab that the loop has set aside. */
static struct slab *host_slab_left(struct session_host *host, size_t size)
{
    struct connection *c = connection_of(host);
    struct loop *loop = c->loop;
    struct slab *slab =
        size <= LOOP_STAGING / 4 ? slabs_take(loop->slabs, size, SLAB_REQUEST) : NULL;
    if (!slab && loop->aside) {
        slab = STEAL(loop->aside);
        slabs_claim(loop->slabs, slab);
    } else if (!slab) {
        return NULL;
    }
    c->charged += slab->charge;
    peer_bytes_force(c->peer, slab->charge);
    return slab;
}

static struct slab *host_slab_grow(struct session_host *host, struct slab *slab, size_t size)
{
    return connection_slab_grow(connection_of(host), slab, size);
}

static void host_slab_give(struct session_host *host, struct slab *slab)
{
    connection_slab_give(connection_of(host), slab);
}

static void on_turn(struct turn *turn)
{
    connection_resume(CONTAINER_OF(turn, struct connection, turn), STOP_TURN);
}

static bool host_turn(struct session_host *host, struct slab **slab, size_t bytes,
                      struct turn *turn)
{
    struct connection *c = connection_of(host);
    c->turn.go = on_turn;
    if (loop_turns_join(c->loop, turn ? turn : &c->turn, slab, bytes))
        return true;
    if (!turn)
        connection_stop(c, STOP_TURN);
    return false;
}

static void host_turn_leave(struct session_host *host, struct turn *turn)
{
    turns_leave(&connection_of(host)->loop->turns, turn);
}

static size_t host_queued(struct session_host *host)
{
    int queued = 0;
    return ioctl(connection_of(host)->fd, FIONREAD, &queued) == 0 ? (size_t)MAX(queued, 0) : 0;
}

static struct request *host_scratch(struct session_host *host)
{
    return &connection_of(host)->loop->request;
}

bool connection_is_stranger(struct connection *c)
{
    return caller_is_stranger(&c->caller, c->loop->table->identities, c->fd);
}

static size_t host_frame_limit(struct session_host *host)
{
    struct connection *c = connection_of(host);
    uint64_t limit = c->loop->table->limits.frame_bytes;
    return connection_is_stranger(c) ? MIN(limit, (uint64_t)CALLER_FRAME_MOST) : limit;
}

static enum status host_introduce(struct session_host *host, const void *message, size_t size,
                                  size_t whole, struct error *err)
{
    struct connection *c = connection_of(host);
    const struct table *table = c->loop->table;
    if (whole > table->limits.frame_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a frame of %zu bytes; the limit is %zu",
                         whole, (size_t)table->limits.frame_bytes);
    return permit_large(&c->caller, table->identities, c->fd, message, size, err);
}

static void host_hold(struct session_host *host, bool on)
{
    struct connection *c = connection_of(host);
    if (on) {
        c->stops |= STOP_HOLD;
        return;
    }
    c->stops &= ~(uint32_t)STOP_HOLD;
    bool more = c->early || (c->tls && tls_pending(c->tls)) || c->ops->waiting(c->session);
    if (!c->stops && c->phase <= CONNECTION_HALF && more)
        loop_ready(c->loop, c, false);
    c->early = false;
}

static void host_become(struct session_host *host, const struct session_ops *protocol,
                        struct message_text begin, struct message_text rest)
{
    struct connection *c = connection_of(host);
    struct session *session = c->former ? NULL : protocol->create(host);
    if (!session) {
        connection_die(c);
        return;
    }
    c->former_ops = c->ops; /* it is being called now, so it is destroyed with the connection */
    c->former = c->session;
    c->ops = protocol;
    c->session = session;
    c->ops->input(c->session, begin.data, begin.len);
    if (rest.len)
        c->ops->input(c->session, rest.data, rest.len);
}

static void host_end(struct session_host *host, enum session_end why)
{
    struct connection *c = connection_of(host);
    exchange_session_end(c, why);
    if (c->phase < CONNECTION_ENDING)
        c->phase = CONNECTION_ENDING;
    connection_dirty(c);
}

static void *host_room(struct session_host *host, size_t size)
{
    return loop_room(connection_of(host)->loop, size);
}

static void host_room_give(struct session_host *host, size_t unused)
{
    connection_of(host)->loop->heads_used -= unused;
}

static void host_flush(struct session_host *host)
{
    connection_flush(connection_of(host));
}

static struct slab *host_reply_take(struct session_host *host, size_t size)
{
    struct connection *c = connection_of(host);
    struct slab *slab = NULL;
    if (c->kept_bytes + size <= c->loop->table->limits.output_bytes)
        slab = slabs_take(c->loop->slabs, size, SLAB_REPLY);
    if (!slab) {
        counter_add(&c->loop->counters, COUNTER_OUTPUT_LIMIT, 1);
        return NULL;
    }
    c->loop->n_backlogs += !c->kept_bytes;
    c->kept_bytes += slab->charge;
    c->loop->kept_bytes += slab->charge;
    return slab;
}

static void host_reply_give(struct session_host *host, struct slab *slab)
{
    struct connection *c = connection_of(host);
    c->kept_bytes -= slab->charge;
    c->loop->kept_bytes -= slab->charge;
    c->loop->n_backlogs -= !c->kept_bytes;
    c->served_ms = uv_now(&c->loop->uv);
    slabs_give(c->loop->slabs, slab);
    connection_dirty(c); /* it may be finished */
}

static void host_forget(struct session_host *host, uint64_t id)
{
    exchange_withdraw(connection_of(host), id);
}

static void host_token(struct session_host *host, struct message_text token)
{
    struct connection *c = connection_of(host);
    const struct identity *who;
    if (connection_is_stranger(c))
        caller_identify(&c->caller, c->loop->table->identities, c->fd, token, &who, NULL);
}

static bool host_book(struct session_host *host, size_t bytes)
{
    return connection_book(connection_of(host), bytes);
}

static void host_unbook(struct session_host *host, size_t bytes)
{
    connection_unbook(connection_of(host), bytes);
}

static bool host_needs(struct session_host *host, enum session_need what)
{
    const struct loop *loop = connection_of(host)->loop;
    return what == SESSION_TOKEN ? identities_required(loop->table->identities)
                                 : loop->shared->traces != NULL;
}

static bool host_tired(struct session_host *host)
{
    return loop_slice_over(connection_of(host)->loop);
}

static const struct session_host_ops host_ops = {
    .request = host_request,
    .malformed = host_malformed,
    .paused = host_paused,
    .head = host_head,
    .write = host_write,
    .slab_take = host_slab_take,
    .slab_left = host_slab_left,
    .slab_grow = host_slab_grow,
    .slab_give = host_slab_give,
    .turn = host_turn,
    .turn_leave = host_turn_leave,
    .queued = host_queued,
    .scratch = host_scratch,
    .frame_limit = host_frame_limit,
    .introduce = host_introduce,
    .hold = host_hold,
    .become = host_become,
    .end = host_end,
    .room = host_room,
    .room_give = host_room_give,
    .flush = host_flush,
    .reply_take = host_reply_take,
    .reply_give = host_reply_give,
    .forget = host_forget,
    .token = host_token,
    .tired = host_tired,
    .book = host_book,
    .unbook = host_unbook,
    .needs = host_needs,
};

void connection_reply(struct connection *c, const struct response *response)
{
    if (c->phase >= CONNECTION_LINGERING)
        return;
    /* Inferences are booked in and out one by one. Other replies are booked until the kernel has
     * taken all that was written. */
    c->telling = response->kind != REQUEST_INFER && response->kind != REQUEST_NONE;
    c->n_told += c->telling;
    c->served_ms = uv_now(&c->loop->uv);
    c->ops->reply(c->session, response);
    c->telling = false;
    connection_cap_check(c);
}

/* --- life --- */

void connection_die(struct connection *c)
{
    if (c->phase >= CONNECTION_DYING)
        return;
    c->phase = CONNECTION_DYING;
    if (!c->in_dying) {
        c->in_dying = true;
        c->next_dying = c->loop->dying;
        c->loop->dying = c;
    }
}

/* libuv has let go of the handle, so no callback comes any more. */
static void closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    close(c->fd);
    c->ops->destroy(c->session);
    if (c->former)
        c->former_ops->destroy(c->former);
    tls_peer_free(c->tls);
    caller_deinit(&c->caller);
    connection_backlog_drop(c);
    if (c->id)
        loop_connection_gone(c->loop, c);
    loop_connection_uncount(c->loop);
    peer_leave(c->peer);
    free(c);
}

void connection_close(struct connection *c)
{
    if (c->phase == CONNECTION_CLOSED)
        return;
    c->phase = CONNECTION_CLOSED;
    exchange_forget(c);
    connection_mark_drop(c);
    turns_leave(&c->loop->turns, &c->turn);
    uv_close((uv_handle_t *)&c->poll, closed);
}

static void socket_options(int fd, bool tcp)
{
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1}, /* replies are written whole */
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TIMES},
    };
    for (size_t i = 0; tcp && i < ARRAY_LEN(options); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof(options[i].value)); /* without them it works too */
}

void connection_open(struct loop *loop, const struct arrival *arrival)
{
    struct connection *c = calloc(1, sizeof(*c));
    if (!c || uv_poll_init(&loop->uv, &c->poll, arrival->fd) != 0) {
        free(c);
        c = NULL;
    }
    if (!c) {
        close(arrival->fd);
        peer_leave(arrival->peer);
        loop_connection_uncount(loop);
        return;
    }
    c->host.ops = &host_ops;
    c->loop = loop;
    c->fd = arrival->fd;
    c->peer = arrival->peer;
    c->ops = arrival->protocol;
    c->poll.data = c;
    c->mark = 1;
    c->active_ms = c->served_ms = c->tick_ms = uv_now(&loop->uv);
    c->session = c->ops->create(&c->host);
    bool tls = arrival->tcp && tls_covers(loop->table->tls, arrival->door);
    if (tls)
        c->tls = tls_peer_new(loop->table->tls, c->fd, arrival->door);
    if (!c->session || (tls && !c->tls) || !loop_connection_came(loop, c)) {
        c->phase = CONNECTION_CLOSED;
        uv_close((uv_handle_t *)&c->poll, closed);
        return;
    }
    socket_options(c->fd, arrival->tcp);
    connection_watch(c);
}
