/* SPDX-License-Identifier: Apache-2.0 */
/* Traces on their way out of the daemon; see trace_out.h. */
#include "daemon/monitor/trace_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "daemon/loop.h"
#include "daemon/monitor/trace_text.h"

enum {
    SLOW_MS = 5000,   /* for a collector to take a request and answer it */
    AGAIN_MS = 2000,  /* after a failure */
    SAY_AGAIN_S = 60, /* between two lines in the log about the file */
    RESPONSE = 1024,  /* bytes of an answer that are looked at */
    HOST = 256,
};

struct trace_out {
    struct shared *shared;
    uv_loop_t *uv;

    char *path; /* of the file; NULL: none */
    int file;   /* -1: not open */
    size_t written;
    struct text lines; /* of one trace */
    uint64_t file_again_ms, file_said_ms;
    bool file_said; /* the log says that the file cannot be written */

    bool collects;
    struct address collector;
    char host[RESOLVE_HOST_MAX + RESOLVE_PORT_MAX + 4]; /* for the Host header */
    char target[HOST];
    char self[HOST];
    struct text spans; /* that wait */
    uint32_t n_spans;

    uv_poll_t poll;
    int fd; /* -1: nothing is being sent */
    bool polls, connected;
    struct text request;
    size_t sent;
    uint32_t n_sending;
    char response[RESPONSE];
    size_t n_response;
    uint64_t since_ms, again_ms;
    bool complained;
};

static void dropped(struct trace_out *o, uint32_t n)
{
    counter_add(&o->shared->counters, COUNTER_TRACES_DROPPED, n);
}

/* --- the file --- */

/* What is there already stays, and nothing is tried for a while: a disk that is full is often full
 * again a moment later, and neither it nor the log shall be worn out. */
static void file_fails(struct trace_out *o, int why)
{
    uint64_t now_ms = uv_now(o->uv);
    o->file_again_ms = now_ms + AGAIN_MS;
    if (o->file_said || (o->file_said_ms && now_ms - o->file_said_ms < SAY_AGAIN_S * 1000))
        return;
    o->file_said = true;
    o->file_said_ms = now_ms;
    log_write(&o->shared->log, LOG_WARNING,
              "traces: %s: %s; until it can be written they are dropped", o->path, strerror(why));
}

static void file_works(struct trace_out *o)
{
    if (o->file_said)
        log_write(&o->shared->log, LOG_INFO, "traces: %s is written again", o->path);
    o->file_said = false;
}

static void file_open(struct trace_out *o)
{
    if (o->file >= 0 || uv_now(o->uv) < o->file_again_ms)
        return;
    o->file = open(o->path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    o->written = 0;
    if (o->file < 0)
        file_fails(o, errno);
}

/* The reader of such a file does without the bracket at its end. */
static void file_turn(struct trace_out *o)
{
    char before[4096];
    if (o->file < 0 || o->written < TRACE_FILE_MOST)
        return;
    close(o->file);
    o->file = -1;
    if (snprintf(before, sizeof(before), "%s.1", o->path) < (int)sizeof(before))
        rename(o->path, before);
}

/* Appends a trace; one that does not fit as a whole is taken back, so that the file can be read. */
static bool file_write(struct trace_out *o)
{
    size_t at = 0;
    while (at < o->lines.len) {
        ssize_t n = write(o->file, o->lines.data + at, o->lines.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int why = n < 0 ? errno : ENOSPC;
            if (at && ftruncate(o->file, (off_t)o->written) != 0)
                o->written += at; /* half a trace stays: no regular file */
            file_fails(o, why);
            return false;
        }
        at += (size_t)n;
    }
    o->written += at;
    file_works(o);
    return true;
}

static void file_add(struct trace_out *o, const struct trace *trace)
{
    bool done = o->file >= 0 && uv_now(o->uv) >= o->file_again_ms;
    if (done) {
        if (!o->written)
            text_put(&o->lines, "[\n");
        trace_chrome_write(trace, &o->lines);
        done = !o->lines.failed && file_write(o);
        o->lines.failed = false;
        o->lines.len = 0;
    }
    if (!done)
        dropped(o, 1);
}

/* --- the collector --- */

static void on_closed(uv_handle_t *handle)
{
    struct trace_out *o = handle->data;
    o->polls = false;
}

/* Ends what is being sent; `why` NULL: it was taken. */
static void send_end(struct trace_out *o, const char *why)
{
    if (why) {
        dropped(o, o->n_sending);
        o->again_ms = uv_now(o->uv) + AGAIN_MS;
        if (!o->complained)
            log_write(&o->shared->log, LOG_WARNING,
                      "the collector of traces at %s does not take them: %s", o->host, why);
    }
    o->complained = why != NULL;
    uv_close((uv_handle_t *)&o->poll, on_closed);
    close(o->fd);
    o->fd = -1;
    text_deinit(&o->request);
}

static void response_read(struct trace_out *o)
{
    ssize_t n = recv(o->fd, o->response + o->n_response, RESPONSE - 1 - o->n_response, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    o->n_response += n > 0 ? (size_t)n : 0;
    o->response[o->n_response] = '\0';
    if (o->n_response < 15 && n > 0) /* "HTTP/1.1 200 OK" */
        return;
    if (strncmp(o->response, "HTTP/1.", 7) != 0 || o->response[8] != ' ')
        send_end(o, "its answer is not HTTP");
    else if (o->response[9] != '2')
        send_end(o, "its answer is an error");
    else
        send_end(o, NULL);
}

static void request_write(struct trace_out *o)
{
    while (o->sent < o->request.len) {
        ssize_t n = send(o->fd, o->request.data + o->sent, o->request.len - o->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            send_end(o, strerror(errno));
            return;
        }
        o->sent += (size_t)n;
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct trace_out *o = poll->data;
    int error = 0;
    socklen_t size = sizeof(error);
    if (!o->connected && getsockopt(o->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error) {
        send_end(o, strerror(error));
        return;
    }
    if (status < 0) {
        send_end(o, uv_strerror(status));
        return;
    }
    o->connected = true;
    if (events & UV_WRITABLE && o->sent < o->request.len)
        request_write(o);
    else if (events & UV_READABLE)
        response_read(o);
    if (o->fd >= 0)
        uv_poll_start(&o->poll, o->sent < o->request.len ? UV_WRITABLE | UV_READABLE : UV_READABLE,
                      on_ready);
}

/* Makes one request of all spans that wait. False: no memory. */
static bool request_make(struct trace_out *o)
{
    struct text body;
    text_init(&body, 2 * TRACE_OUT_MOST);
    text_init(&o->request, 3 * TRACE_OUT_MOST);
    trace_otlp_begin(o->self, &body);
    text_bytes(&body, o->spans.data, o->spans.len);
    trace_otlp_end(&body);
    text_printf(&o->request,
                "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                "User-Agent: inferd/" INFERD_VERSION "\r\nConnection: close\r\n"
                "Content-Length: %zu\r\n\r\n",
                o->target, o->host, body.len);
    text_bytes(&o->request, body.data, body.len);
    bool whole = !body.failed && !o->request.failed;
    text_deinit(&body);
    text_deinit(&o->spans);
    text_init(&o->spans, TRACE_OUT_MOST);
    o->n_sending = o->n_spans;
    o->n_spans = 0;
    o->sent = o->n_response = 0;
    return whole;
}

static bool connect_begin(struct trace_out *o)
{
    const struct sockaddr *address = address_sockaddr(&o->collector);
    o->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    o->connected = false;
    if (o->fd >= 0 && (connect(o->fd, address, o->collector.length) == 0 || errno == EINPROGRESS) &&
        uv_poll_init(o->uv, &o->poll, o->fd) == 0)
        return true;
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    return false;
}

static void send_begin(struct trace_out *o)
{
    bool whole = request_make(o);
    if (!whole || !connect_begin(o)) {
        dropped(o, o->n_sending);
        text_deinit(&o->request);
        o->again_ms = uv_now(o->uv) + AGAIN_MS;
        return;
    }
    o->polls = true;
    o->poll.data = o;
    o->since_ms = uv_now(o->uv);
    if (uv_poll_start(&o->poll, UV_WRITABLE, on_ready) != 0 || !loop_watch(o->uv, o->fd))
        send_end(o, "no memory");
}

/* --- records --- */

static void span_add(struct trace_out *o, const struct trace *trace)
{
    uint64_t now_ns = clock_now_ns();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_ns = (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec;
    size_t before = o->spans.len;
    if (o->n_spans)
        text_put(&o->spans, ",");
    trace_otlp_write(trace, wall_ns - now_ns, &o->spans);
    if (o->spans.failed) { /* it does not fit any more; what was there stays */
        o->spans.failed = false;
        o->spans.len = before;
        dropped(o, 1);
        return;
    }
    o->n_spans++;
}

static void records_take(struct trace_out *o)
{
    struct traces *traces = o->shared->traces;
    for (uint32_t loop = 0; loop < o->shared->n_loops; loop++)
        for (struct trace *t = traces_take(traces, loop), *next; t; t = next) {
            next = t->next;
            counter_add(&o->shared->counters, COUNTER_TRACES, 1);
            if (o->path)
                file_add(o, t);
            if (o->collects)
                span_add(o, t);
            traces_give(traces, t);
        }
}

void trace_out_tick(struct trace_out *o)
{
    if (!o)
        return;
    if (o->path)
        file_open(o);
    records_take(o);
    file_turn(o);
    if (o->fd >= 0 && uv_now(o->uv) - o->since_ms > SLOW_MS)
        send_end(o, "it is too slow");
    if (o->n_spans && o->fd < 0 && !o->polls && uv_now(o->uv) >= o->again_ms)
        send_begin(o);
}

/* --- life --- */

/* "http://HOST:PORT/PATH"; without a path it is the usual one. */
static enum status collector_read(struct trace_out *o, const char *url, struct error *err)
{
    struct resolved found;
    const char *host = url + strlen("http://"), *path = strchr(host, '/');
    size_t len = path ? (size_t)(path - host) : strlen(host);
    if (len >= sizeof(o->host) || (path && strlen(path) >= sizeof(o->target)))
        return error_set(err, STATUS_INVALID_ARGUMENT, "trace_collector: \"%s\" is too long", url);
    memcpy(o->host, host, len);
    o->host[len] = '\0';
    snprintf(o->target, sizeof(o->target), "%s", path && path[1] ? path : "/v1/traces");
    TRY(resolve_wait(o->host, &found, err));
    o->collector = found.items[0];
    o->collects = true;
    return STATUS_OK;
}

enum status trace_out_new(struct shared *shared, const struct config *config,
                          struct trace_out **out, struct error *err)
{
    if (!config->trace_file && !config->trace_collector)
        return STATUS_OK;
    struct trace_out *o = calloc(1, sizeof(*o));
    if (!o)
        return error_no_memory(err, "traces");
    o->shared = shared;
    o->file = o->fd = -1;
    o->path = config->trace_file ? strdup(config->trace_file) : NULL;
    text_init(&o->lines, TRACE_OUT_MOST);
    text_init(&o->spans, TRACE_OUT_MOST);
    if (gethostname(o->self, sizeof(o->self)) != 0)
        o->self[0] = '\0';
    o->self[sizeof(o->self) - 1] = '\0';
    enum status status = config->trace_file && !o->path ? error_no_memory(err, "traces")
                         : config->trace_collector ? collector_read(o, config->trace_collector, err)
                                                   : STATUS_OK;
    if (status)
        trace_out_free(o);
    else
        *out = o;
    return status;
}

void trace_out_attach(struct trace_out *o, uv_loop_t *uv)
{
    if (o)
        o->uv = uv;
}

void trace_out_close(struct trace_out *o)
{
    if (!o)
        return;
    records_take(o);
    if (o->fd >= 0)
        send_end(o, NULL);
}

void trace_out_free(struct trace_out *o)
{
    if (!o)
        return;
    if (o->file >= 0)
        close(o->file);
    text_deinit(&o->lines);
    text_deinit(&o->spans);
    text_deinit(&o->request);
    free(o->path);
    free(o);
}
