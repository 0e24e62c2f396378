/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the monitor, whose requests http/reader.h reads. One is answered at a time; what a
 * visitor sends beyond a buffer's worth stays in the kernel, so a visitor costs this buffer, a head
 * and an answer. TLS (daemon/tls.h) lies below all that, as it does below other doors' sessions.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utlist.h>

#include "base/clock.h"
#include "daemon/loop.h"
#include "daemon/monitor/monitor_internal.h"
#include "daemon/peer.h"
#include "daemon/tls.h"

enum { HEAD = 1536, IN = 2048 };
#define BURST_NS (200 * NS_PER_MS) /* that the monitor may work at once before it has to rest */
enum { SHARE = 4 };                /* it rests so many times as long as it worked */

enum visitor_state {
    VISITOR_READS,
    VISITOR_WAITS, /* its request is there; the monitor rests */
    VISITOR_WRITES,
};

struct visitor {
    struct monitor *monitor;
    struct visitor *prev, *next;
    uv_poll_t poll;
    int fd;
    struct peer *peer;    /* NULL: no memory for a record */
    struct tls_peer *tls; /* NULL: in the clear */
    enum visitor_state state;
    uint64_t since_ms; /* when the state began, or the first byte of a request came */
    struct http_reader *reader;
    char in[IN]; /* bytes that have come and that the reader has not taken */
    size_t n_in;
    struct question question;
    struct reply reply;
    char head[HEAD];
    size_t n_head, sent;
    size_t held;
    bool last; /* it is closed behind this answer */
    bool left; /* it sends nothing more */
};

static void on_ready(uv_poll_t *poll, int status, int events);

static void visitor_free(struct visitor *v)
{
    tls_peer_free(v->tls);
    http_reader_free(v->reader);
    peer_leave(v->peer);
    close(v->fd);
    free(v);
}

static void on_closed(uv_handle_t *handle)
{
    struct visitor *v = handle->data;
    visitor_free(v);
}

static void reply_drop(struct visitor *v)
{
    text_deinit(&v->reply.text);
    v->monitor->held -= v->held;
    v->held = 0;
    v->reply = (struct reply){0};
}

void visitor_close(struct visitor *v)
{
    reply_drop(v);
    DL_DELETE(v->monitor->visitors, v);
    v->monitor->n_visitors--;
    uv_close((uv_handle_t *)&v->poll, on_closed);
}

static void watch(struct visitor *v)
{
    static const int events[] = {UV_READABLE, UV_DISCONNECT, UV_WRITABLE};
    bool unsent = v->state == VISITOR_READS && v->tls && tls_unsent(v->tls);
    /* Nobody sends urgent data, so watching for that reports nothing but an error or a reset. */
    int wanted = v->state == VISITOR_WAITS && v->left ? UV_PRIORITIZED : events[v->state];
    uv_poll_start(&v->poll, wanted | (unsent ? UV_WRITABLE : 0), on_ready);
}

/* Ends a connection whose last bytes are out. Bytes that nobody has read would make the kernel
 * reset it, and with it what the peer has not read yet. */
static void part(struct visitor *v)
{
    shutdown(v->fd, SHUT_WR);
    while (recv(v->fd, v->in, IN, 0) > 0)
        ;
    visitor_close(v);
}

static void state_set(struct visitor *v, enum visitor_state state)
{
    v->state = state;
    v->since_ms = uv_now(&v->monitor->uv);
    watch(v);
}

/* Whether bytes have come that no poll will tell of. */
static bool is_pending(const struct visitor *v)
{
    return v->state == VISITOR_READS && v->tls && tls_pending(v->tls);
}

/* --- answers --- */

static void body_of(const struct visitor *v, const void **data, size_t *size)
{
    *data = v->reply.fixed ? v->reply.fixed : v->reply.text.data;
    *size = v->reply.fixed ? v->reply.fixed_size : v->reply.text.len;
}

/* Every answer says what a browser may do with it: next to nothing. */
static void head_write(struct visitor *v)
{
    const void *data;
    size_t size;
    body_of(v, &data, &size);
    int len = snprintf(
        v->head, HEAD,
        "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\n\r\n",
        v->reply.status, http_phrase(v->reply.status), v->reply.type, size,
        v->last ? "Connection: close\r\n" : "", v->reply.headers ? v->reply.headers : "");
    v->n_head = len < 0 || len >= HEAD ? 0 : (size_t)len;
}

static void write_more(struct visitor *v);
static void read_more(struct visitor *v);

static void reply_begin(struct visitor *v)
{
    v->held = v->reply.text.capacity;
    v->monitor->held += v->held;
    v->sent = 0;
    head_write(v);
    if (!v->n_head) {
        visitor_close(v);
        return;
    }
    state_set(v, VISITOR_WRITES);
    write_more(v);
}

static void refuse(struct visitor *v, unsigned status)
{
    v->last = true;
    reply_plain(status, &v->reply);
    reply_begin(v);
}

static void on_rest_over(uv_timer_t *timer)
{
    visitors_serve(timer->data);
}

/* Makes the answer, unless the monitor rests. False: it does. Whoever is served goes behind those
 * who wait, so that nobody who asks without end keeps the others waiting; and whoever waits for a
 * place gets that of a visitor who was served. */
static bool serve(struct visitor *v)
{
    struct monitor *m = v->monitor;
    uint64_t now_ns = clock_now_ns();
    if (m->rest_ns > now_ns) {
        uint64_t ms = (m->rest_ns - now_ns) / NS_PER_MS + 1;
        uv_timer_start(&m->rest, on_rest_over, ms, 0);
        return false;
    }
    DL_DELETE(m->visitors, v);
    DL_APPEND(m->visitors, v);
    v->last = !v->question.keep || (m->crowded && m->n_visitors >= MONITOR_VISITORS);
    if (m->held > MONITOR_HELD_MOST)
        reply_plain(503, &v->reply);
    else
        reply_make(m, &v->question, &v->reply);
    if (v->reply.text.failed) {
        text_deinit(&v->reply.text);
        reply_plain(503, &v->reply);
    }
    uint64_t end_ns = clock_now_ns();
    m->rest_ns = MAX(m->rest_ns, end_ns - MIN(end_ns, BURST_NS)) + (1 + SHARE) * (end_ns - now_ns);
    reply_begin(v);
    return true;
}

void visitors_serve(struct monitor *m)
{
    struct visitor *v, *next;
    DL_FOREACH_SAFE(m->visitors, v, next)
    {
        if (is_pending(v))
            read_more(v);
        else if (v->state == VISITOR_WAITS && !serve(v))
            return;
    }
}

/* --- reading --- */

/* Gives the reader what has come. 200: the question is whole; 0: not yet; else the status of a
 * refusal. */
static unsigned question_take(struct visitor *v)
{
    struct error err;
    unsigned status = 0;
    size_t used = 0;
    enum http_step step = http_reader_head(v->reader, v->in, v->n_in, &used, &status, &err);
    v->n_in -= used;
    memmove(v->in, v->in + used, v->n_in);
    v->question.head = false;
    if (step == HTTP_DONE)
        return question_read(http_reader_request(v->reader), &v->question);
    return step == HTTP_MORE ? 0 : step == HTTP_TWO ? 505 : status;
}

/* Looks whether a whole request is there, and answers it: at once or, so that a row of requests
 * does not become a row of nested calls, `later`. */
static void request_look(struct visitor *v, bool later)
{
    unsigned status = question_take(v);
    if (status && status != 200) {
        refuse(v, status);
    } else if (status && later) {
        state_set(v, VISITOR_WAITS);
        uv_timer_start(&v->monitor->rest, on_rest_over, 0, 0);
    } else if (status && !serve(v)) {
        state_set(v, VISITOR_WAITS);
    }
}

static void read_more(struct visitor *v)
{
    do {
        ssize_t n = v->tls ? tls_recv(v->tls, v->in, IN) : recv(v->fd, v->in, IN, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            visitor_close(v);
            return;
        }
        if (!http_reader_has(v->reader))
            v->since_ms = uv_now(&v->monitor->uv);
        v->n_in = (size_t)n;
        request_look(v, false);
    } while (is_pending(v));
}

/* Goes on with the handshake of TLS. False: it takes more bytes of the peer, or has failed. */
static bool shake_hands(struct visitor *v)
{
    enum tls_step step = tls_is_open(v->tls) ? TLS_DONE : tls_handshake(v->tls);
    if (step == TLS_FAILED)
        part(v);
    else
        watch(v);
    return step == TLS_DONE;
}

/* --- writing --- */

/* The answer is out: goes on with what came behind its request. */
static void reply_end(struct visitor *v)
{
    reply_drop(v);
    if (v->last) {
        if (v->tls)
            tls_goodbye(v->tls);
        part(v);
        return;
    }
    http_reader_next(v->reader);
    state_set(v, VISITOR_READS);
    if (v->n_in)
        request_look(v, true);
    if (is_pending(v))
        uv_timer_start(&v->monitor->rest, on_rest_over, 0, 0);
}

static void write_more(struct visitor *v)
{
    const void *data;
    size_t size;
    body_of(v, &data, &size);
    if (v->question.head)
        size = 0;
    while (v->sent < v->n_head + size) {
        size_t body = v->sent > v->n_head ? v->sent - v->n_head : 0;
        size_t head = MIN(v->sent, v->n_head);
        const struct iovec iov[2] = {
            {v->head + head, v->n_head - head},
            {size ? (char *)(uintptr_t)data + body : NULL, size - body},
        };
        const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = 2};
        ssize_t n = v->tls ? tls_send(v->tls, iov, 2) : sendmsg(v->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            visitor_close(v);
            return;
        }
        v->sent += (size_t)n;
    }
    if (v->tls && !tls_flush(v->tls))
        visitor_close(v);
    else if (!v->tls || !tls_unsent(v->tls))
        reply_end(v);
}

/* A visitor that has closed its sending side behind its request still waits for the answer. Only
 * when both directions are closed has it gone, and then the poll here says so. */
static void visitor_left(struct visitor *v, int events)
{
    struct pollfd now = {.fd = v->fd};
    v->left = true;
    if (poll(&now, 1, 0) < 0 || now.revents || !(events & UV_DISCONNECT))
        visitor_close(v);
    else
        watch(v);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct visitor *v = poll->data;
    bool unsent = v->state == VISITOR_READS && v->tls && events & UV_WRITABLE;
    if (status < 0 || (unsent && !tls_flush(v->tls)))
        visitor_close(v); /* it has gone */
    else if (v->state == VISITOR_WAITS)
        visitor_left(v, events);
    else if (v->state == VISITOR_WRITES && events & UV_WRITABLE)
        write_more(v);
    else if (v->state == VISITOR_READS && (!v->tls || shake_hands(v)))
        read_more(v);
}

/* --- life --- */

/* Whether `v` shall give way before `other`: whoever is silent before one that is slow to take its
 * answer, and of two alike the one that has been so for longer. */
static bool goes_before(const struct visitor *v, const struct visitor *other)
{
    bool reads = v->state == VISITOR_READS, other_reads = other->state == VISITOR_READS;
    return reads == other_reads ? v->since_ms < other->since_ms : reads;
}

/* A visitor who keeps a connection for the next request loses it, and opens another. Those whose
 * request is whole and waits for its answer stay: the monitor rests, it is not their doing. */
bool visitors_yield(struct monitor *m)
{
    uint64_t now_ms = uv_now(&m->uv);
    struct visitor *v, *goes = NULL;
    DL_FOREACH(m->visitors, v)
    {
        bool may = v->state != VISITOR_WAITS && now_ms - v->since_ms >= MONITOR_YIELD_MS;
        if (may && (!goes || goes_before(v, goes)))
            goes = v;
    }
    if (goes)
        visitor_close(goes);
    return goes != NULL;
}

/* One address has half of all places, except this machine's own, as at the other doors. */
static bool beyond_share(const struct peer *peer)
{
    return peer && peer_connections(peer) > peer_most(peer, 0, MONITOR_VISITORS);
}

void visitor_open(struct monitor *m, int fd)
{
    int on = 1;
    struct visitor *v = calloc(1, sizeof(*v));
    bool tls = tls_covers(m->table->tls, DOOR_metrics);
    if (!v || (m->tls && !m->table->identities)) { /* what it shows and takes is not read yet */
        free(v);
        close(fd);
        return;
    }
    v->monitor = m;
    v->fd = fd;
    v->peer = peers_meet(m->peers, fd);
    v->reader = http_reader_new();
    if (tls)
        v->tls = tls_peer_new(m->table->tls, fd, DOOR_metrics);
    if (!v->reader || beyond_share(v->peer) || (tls && !v->tls) ||
        uv_poll_init(&m->uv, &v->poll, fd) != 0) {
        visitor_free(v);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    v->poll.data = v;
    DL_APPEND(m->visitors, v);
    m->n_visitors++;
    state_set(v, VISITOR_READS);
    if (!loop_watch(&m->uv, fd))
        visitor_close(v);
}

void visitors_tick(struct monitor *m)
{
    uint64_t now_ms = uv_now(&m->uv);
    struct visitor *v, *next;
    DL_FOREACH_SAFE(m->visitors, v, next)
    {
        bool open = !v->tls || tls_is_open(v->tls);
        bool idle = open && v->state == VISITOR_READS && !http_reader_has(v->reader);
        if (now_ms - v->since_ms > (idle ? MONITOR_IDLE_MS : MONITOR_SLOW_MS))
            visitor_close(v);
    }
}
