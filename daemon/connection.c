/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, see connection.h. A connection that is closed stays in memory until libuv has let go
 * of its handle, at the end of the turn; until then `closing` says that it is dead.
 */
#include "daemon/connection.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/intake.h"
#include "daemon/loop.h"
#include "daemon/permit.h"

enum {
    RATE_GRACE_MS = 2000,  /* before a sender's rate is looked at */
    RATE_FROM = 64 * 1024, /* of frames that hold this much */
    LINGER_MS = 1000,      /* for a peer to read why it is disconnected */
};

static struct connection *connection_of(struct session_host *host)
{
    return CONTAINER_OF(host, struct connection, host);
}

/* ---- accounts ---- */

static bool above(const struct connection *c, uint64_t share)
{
    const struct config_limits *limits = &c->loop->table->limits;
    return c->charged >= limits->connection_inflight_bytes / share ||
           c->n_inflight >= MAX(limits->connection_requests / share, UINT64_C(1));
}

static bool stopped(const struct connection *c)
{
    return c->closing || c->ending || c->over || c->starved;
}

/* Only with something in flight, whose end lets it go on: a single frame may be as large as the
 * cap.
 */
static void check_caps(struct connection *c)
{
    if (!c->over && c->n_inflight && above(c, 1)) {
        c->over = true;
        counter_add(&c->loop->counters, COUNTER_READS_PAUSED, 1);
    }
}

struct slab *connection_slab_take(struct connection *c, size_t size, bool force)
{
    struct slab *slab = slabs_take(c->loop->slabs, size, force);
    if (slab) {
        c->charged += slab->charge;
        check_caps(c);
    } else if (!c->starved) {
        c->starved = true;
        counter_add(&c->loop->counters, COUNTER_READS_PAUSED, 1);
    }
    return slab;
}

void connection_slab_give(struct connection *c, struct slab *slab)
{
    if (slab)
        c->charged -= slab->charge;
    slabs_give(c->loop->slabs, slab);
}

void connection_inflight_in(struct connection *c, struct inflight *i)
{
    i->connection = c->id;
    i->prev_of_connection = NULL;
    i->next_of_connection = c->inflight;
    if (c->inflight)
        c->inflight->prev_of_connection = i;
    c->inflight = i;
    c->n_inflight++;
    check_caps(c);
}

/* ---- reading ---- */

static void read_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct connection *c = handle->data;
    void *at = NULL;
    size_t size = 0;
    if (!c->lingering)
        c->ops->buffer(c->session, &at, &size);
    if (size)
        *buf = uv_buf_init(at, (unsigned)MIN(size, (size_t)1 << 30));
    else
        *buf = uv_buf_init((char *)c->loop->staging, LOOP_STAGING);
}

static void read_update(struct connection *c);

static void read_done(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

bool connection_watch(const struct connection *c)
{
    uv_os_fd_t fd;
    return uv_fileno(&c->io.handle, &fd) == 0 && loop_watch(&c->loop->uv, fd);
}

static bool read_start(struct connection *c)
{
    return uv_read_start(&c->io.stream, read_alloc, read_done) == 0 && connection_watch(c);
}

static void read_done(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    if (c->lingering) {
        if (n < 0)
            connection_close(c);
        return;
    }
    if (n > 0) {
        counter_add(&c->loop->counters, COUNTER_BYTES_IN, (uint64_t)n);
        c->loop->now_ns = clock_now_ns();
        c->active_ms = uv_now(&c->loop->uv);
        c->ops->input(c->session, buf->base, (size_t)n);
    } else if (n == UV_EOF) {
        c->eof = true;
    } else if (n < 0) {
        connection_close(c);
    }
    read_update(c);
    loop_breathe(c->loop);
}

/* The replies to everything that was asked have gone, and there will be no more. */
static bool finished(const struct connection *c)
{
    bool asked = c->eof && !c->over && !c->starved; /* else the session keeps more requests */
    return (asked || c->ending) && !c->n_inflight && !c->out && !c->backlog;
}

/* Closing a socket with unread bytes resets it, and the peer might never see why: so first only our
 * side is closed, and what still comes is thrown away, for a while. */
static void linger(struct connection *c)
{
    c->lingering = true;
    c->active_ms = uv_now(&c->loop->uv);
    if (uv_shutdown(&c->shutdown, &c->io.stream, NULL) != 0 || (!c->reading && !read_start(c)))
        connection_close(c);
    c->reading = true;
}

void connection_finish(struct connection *c)
{
    if (c->closing || c->lingering || !finished(c))
        return;
    if (c->ending && !c->eof)
        linger(c);
    else
        connection_close(c);
}

static void read_update(struct connection *c)
{
    if (c->closing || c->lingering || !c->session)
        return;
    bool wanted = !c->eof && !stopped(c);
    if (wanted && !c->reading && !(c->reading = read_start(c))) {
        connection_close(c); /* it could neither be read nor be closed by its peer */
        return;
    }
    if (!wanted && c->reading)
        c->reading = uv_read_stop(&c->io.stream) != 0;
    if (c->starved && !c->in_starved) {
        c->in_starved = true;
        c->next_starved = c->loop->starved;
        c->loop->starved = c;
    }
    if (!c->in_dirty) /* else the end of the turn looks at it */
        connection_finish(c);
}

/* Goes on with what the session kept, then with the socket. */
static void read_resume(struct connection *c)
{
    counter_add(&c->loop->counters, COUNTER_READS_RESUMED, 1);
    c->loop->now_ns = clock_now_ns();
    c->state = (struct session_state){0}; /* the pause was not the peer's */
    c->ops->resume(c->session);
    read_update(c);
}

void connection_inflight_orphan(struct connection *c, struct inflight *i)
{
    if (i->prev_of_connection)
        i->prev_of_connection->next_of_connection = i->next_of_connection;
    else
        c->inflight = i->next_of_connection;
    if (i->next_of_connection)
        i->next_of_connection->prev_of_connection = i->prev_of_connection;
    i->connection = 0;
    c->n_inflight--;
    c->charged -= i->slab ? i->slab->charge : 0;
}

/* Less is charged to it: reading goes on if that is what it waited for. */
static void check_resume(struct connection *c)
{
    if (c->over && (!c->n_inflight || !above(c, 2))) {
        c->over = false;
        if (!stopped(c))
            read_resume(c);
    }
}

void connection_inflight_out(struct connection *c, struct inflight *i)
{
    connection_inflight_orphan(c, i);
    slabs_give(c->loop->slabs, STEAL(i->slab));
    check_resume(c);
}

void connection_payload_spent(struct connection *c, struct inflight *i)
{
    connection_slab_give(c, STEAL(i->slab));
    check_resume(c);
}

void connection_unstarve(struct connection *c)
{
    c->in_starved = c->starved = false;
    if (!stopped(c))
        read_resume(c);
}

/* ---- who the peer is ---- */

static int connection_fd(const struct connection *c)
{
    uv_os_fd_t fd;
    return uv_fileno(&c->io.handle, &fd) == 0 ? fd : -1;
}

const struct identity *connection_permit(struct connection *c, const struct request *request)
{
    struct identities *identities = c->loop->table->identities;
    const struct identity *who = NULL;
    struct error err;
    enum status s = permit_request(&c->caller, identities, connection_fd(c), request, &who, &err);
    if (c->caller.refused >= CALLER_REFUSED_MOST && !c->ending) {
        c->ending = true; /* it hears of this one yet */
        connection_dirty(c);
    }
    if (s == STATUS_OK)
        return who;
    if (s != STATUS_RESOURCE_EXHAUSTED) {
        counter_add(&c->loop->counters,
                    s == STATUS_UNAUTHENTICATED ? COUNTER_REFUSED_UNAUTHENTICATED
                                                : COUNTER_REFUSED_PERMISSION,
                    1);
        if (permit_refusal_is_news(&c->caller, identities, request, s))
            log_write(&c->loop->shared->log, LOG_WARNING, "refused: %s", err.text);
    }
    connection_reply_error(c, request->id, s, err.text,
                           s == STATUS_RESOURCE_EXHAUSTED ? INTAKE_RETRY_US : 0);
    return NULL;
}

/* ---- the host of a session ---- */

static void host_request(struct session_host *host, const struct request *request,
                         struct slab *frame)
{
    struct connection *c = connection_of(host);
    counter_add(&c->loop->counters, COUNTER_FRAMES, 1);
    intake_request(c, request, frame);
}

static void host_malformed(struct session_host *host, uint64_t id, const struct error *err)
{
    struct connection *c = connection_of(host);
    struct counters *counters = &c->loop->counters;
    uint64_t retry_us = 0;
    counter_add(counters, COUNTER_FRAMES, 1);
    if (err->status == STATUS_RESOURCE_EXHAUSTED) {
        counter_add(counters, COUNTER_FRAMES_REFUSED, 1);
        retry_us = INTAKE_RETRY_US;
    } else if (err->status != STATUS_UNAUTHENTICATED) { /* else counted where the session ends */
        counter_add(counters, COUNTER_REQUESTS_INVALID, 1);
    }
    connection_reply_error(c, id, err->status, err->text, retry_us);
}

static bool host_paused(struct session_host *host)
{
    return stopped(connection_of(host));
}

static void *host_head(struct session_host *host)
{
    return loop_head(connection_of(host)->loop);
}

static void host_write(struct session_host *host, const struct iovec *iov, uint32_t n)
{
    connection_write(connection_of(host), iov, n);
}

static struct slab *host_slab_take(struct session_host *host, size_t size, bool force)
{
    return connection_slab_take(connection_of(host), size, force);
}

static void host_slab_give(struct session_host *host, struct slab *slab)
{
    connection_slab_give(connection_of(host), slab);
}

static struct request *host_scratch(struct session_host *host)
{
    return &connection_of(host)->loop->request;
}

static size_t host_frame_limit(struct session_host *host)
{
    struct connection *c = connection_of(host);
    const struct table *table = c->loop->table;
    bool stranger = caller_is_stranger(&c->caller, table->identities, connection_fd(c));
    return stranger ? MIN(table->limits.frame_bytes, (uint64_t)CALLER_FRAME_MOST)
                    : table->limits.frame_bytes;
}

static enum status host_introduce(struct session_host *host, const void *message, size_t size,
                                  size_t whole, struct error *err)
{
    struct connection *c = connection_of(host);
    const struct table *table = c->loop->table;
    if (whole > table->limits.frame_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a frame of %zu bytes; the limit is %zu",
                         whole, (size_t)table->limits.frame_bytes);
    return permit_large(&c->caller, table->identities, connection_fd(c), message, size, err);
}

static void host_end(struct session_host *host, enum session_end why)
{
    struct connection *c = connection_of(host);
    if (why == SESSION_TOO_LARGE)
        counter_add(&c->loop->counters, COUNTER_FRAMES_TOO_LARGE, 1);
    if (why == SESSION_STRANGER)
        counter_add(&c->loop->counters, COUNTER_REFUSED_UNAUTHENTICATED, 1);
    c->ending = true;
    connection_dirty(c); /* so that the end of the turn looks at it */
}

static const struct session_host_ops host_ops = {
    .request = host_request,
    .malformed = host_malformed,
    .paused = host_paused,
    .head = host_head,
    .write = host_write,
    .slab_take = host_slab_take,
    .slab_give = host_slab_give,
    .scratch = host_scratch,
    .frame_limit = host_frame_limit,
    .introduce = host_introduce,
    .end = host_end,
};

void connection_reply(struct connection *c, const struct response *response)
{
    if (!c->closing)
        c->ops->reply(c->session, response);
}

void connection_reply_error(struct connection *c, uint64_t id, enum status status, const char *text,
                            uint64_t retry_after_us)
{
    struct response *r = &c->loop->response;
    r->id = id;
    r->status = status;
    r->message = message_text_of(text);
    r->retry_after_us = retry_after_us;
    r->timing = (struct response_timing){0};
    r->kind = REQUEST_NONE;
    r->n_outputs = 0;
    r->body = (struct message_text){0};
    connection_reply(c, r);
}

/* ---- timeouts ---- */

static void timed_out(struct connection *c, enum counter which)
{
    counter_add(&c->loop->counters, which, 1);
    connection_close(c);
}

/* A reader that takes nothing. */
static bool tick_write(struct connection *c, uint64_t now_ms, const struct config_limits *limits)
{
    if (!c->backlog)
        return false;
    size_t left = connection_unread(c);
    if (left != c->write_left) {
        c->write_left = left;
        c->write_ms = now_ms;
    }
    if (now_ms - c->write_ms <= limits->frame_timeout_ms)
        return false;
    timed_out(c, COUNTER_TIMEOUT_WRITE);
    return true;
}

static void tick_read(struct connection *c, uint64_t now_ms, const struct config_limits *limits)
{
    struct session_state state;
    c->ops->state(c->session, &state);
    if (stopped(c) || state.wait != c->state.wait || state.message != c->state.message) {
        c->state = state;
        c->message_ms = now_ms;
        c->message_begin = state.received;
        return;
    }
    uint64_t age_ms = now_ms - c->message_ms;
    size_t came = state.received - MIN(c->message_begin, state.received);
    if (state.wait == SESSION_WAIT_HEAD && age_ms > limits->header_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_HEADER);
    else if (state.wait == SESSION_WAIT_BODY && age_ms > limits->frame_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_FRAME);
    else if (state.wait == SESSION_WAIT_BODY && state.received >= RATE_FROM &&
             age_ms >= RATE_GRACE_MS && came * 1000 < age_ms * limits->receive_rate)
        timed_out(c, COUNTER_SLOW_SENDERS);
    else if (state.wait == SESSION_WAIT_NOTHING && !c->n_inflight && !c->backlog &&
             now_ms - c->active_ms > limits->idle_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_IDLE);
}

/* Who has shown nothing that gives it a right has a short time. */
static bool tick_stranger(struct connection *c, uint64_t now_ms)
{
    if (!caller_is_stranger(&c->caller, c->loop->table->identities, connection_fd(c))) {
        c->stranger_ms = 0;
        return false;
    }
    if (!c->stranger_ms)
        c->stranger_ms = now_ms;
    if (now_ms - c->stranger_ms <= CALLER_WAIT_MS)
        return false;
    timed_out(c, COUNTER_TIMEOUT_TOKEN);
    return true;
}

void connection_tick(struct connection *c, uint64_t now_ms)
{
    const struct config_limits *limits = &c->loop->table->limits;
    if (c->lingering && now_ms - c->active_ms > LINGER_MS)
        connection_close(c);
    if (!c->closing && !c->lingering && !tick_stranger(c, now_ms) && !tick_write(c, now_ms, limits))
        tick_read(c, now_ms, limits);
}

/* ---- life ---- */

/* libuv has let go: no callback comes any more, and no function of the session is being run. */
static void closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    c->ops->destroy(c->session);
    caller_deinit(&c->caller);
    connection_backlog_drop(c);
    loop_connection_gone(c->loop, c);
    free(c);
}

void connection_close(struct connection *c)
{
    if (c->closing)
        return;
    c->closing = true;
    /* What is queued is taken back; what runs comes back to nobody; what has not been submitted
     * yet the loop drops. */
    dispatch_cancel_all(c->loop->shared->dispatch, c->inflight);
    while (c->inflight) {
        struct inflight *i = c->inflight;
        connection_inflight_orphan(c, i);
        if (i->cancelled) {
            counter_add(&c->loop->counters, COUNTER_CANCELLED, 1);
            loop_inflight_give(c->loop, i);
        }
    }
    uv_close(&c->io.handle, closed);
}

static int socket_open(struct connection *c, int fd, bool tcp)
{
    int r;
    if (!tcp) {
        r = uv_pipe_init(&c->loop->uv, &c->io.pipe, 0);
        return r ? r : uv_pipe_open(&c->io.pipe, fd);
    }
    r = uv_tcp_init(&c->loop->uv, &c->io.tcp);
    if (r == 0)
        r = uv_tcp_open(&c->io.tcp, fd);
    if (r == 0)
        uv_tcp_nodelay(&c->io.tcp, 1); /* replies are written whole */
    return r;
}

bool connection_open(struct loop *loop, int fd, bool tcp, const struct session_ops *ops)
{
    struct connection *c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return false;
    }
    c->host.ops = &host_ops;
    c->loop = loop;
    c->ops = ops;
    c->session = ops->create(&c->host);
    c->active_ms = uv_now(&loop->uv);
    if (!c->session || !loop_connection_came(loop, c)) {
        ops->destroy(c->session);
        close(fd);
        free(c);
        return false;
    }
    int r = socket_open(c, fd, tcp);
    c->io.handle.data = c;
    if (r == 0) {
        read_update(c);
    } else {
        close(fd);
        connection_close(c);
    }
    return true;
}
