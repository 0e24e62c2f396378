/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_server.h. The server is simple rather than fast: blocking sockets, a thread for each
 * connection. */
#include "tests/unit/client/fake_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/arena.h"
#include "base/clock.h"
#include "proto/body.h"
#include "proto/frame.h"
#include "proto/response.h"

enum { MAX_CONNECTIONS = 2048, MAX_HELD = 256 };

struct fake_server {
    int listener;
    char address[ADDRESS_TEXT_MAX], folder[64];
    pthread_t acceptor;
    _Atomic uint64_t requests, cancels, looks;
    _Atomic bool stopping;
    pthread_mutex_t lock; /* guards the fields below */
    uint32_t n;
    int fds[MAX_CONNECTIONS];
    pthread_t threads[MAX_CONNECTIONS];
};

/* One connection; the frame of a held request stays allocated. */
struct session {
    struct fake_server *server;
    int fd;
    struct request request;
    struct response response;
    uint8_t head[MESSAGE_HEAD_MAX];
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_held;
    struct {
        uint8_t *frame;
        uint32_t size;
        uint64_t id;
        bool cancellable, silent;
    } held[MAX_HELD];
    bool over, drip;
    uint32_t n_mortal;
};

static void die(const char *what)
{
    perror(what);
    abort();
}

/* --- bytes --- */

static bool read_all(int fd, void *to, size_t size)
{
    for (char *p = to; size > 0;) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static void write_all(struct session *s, const void *from, size_t size)
{
    const char *p = from;
    while (size > 0) {
        ssize_t n = send(s->fd, p, s->drip ? 1 : size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->over = true;
            return;
        }
        p += n;
        size -= (size_t)n;
    }
}

static void respond(struct session *s, const struct response *r)
{
    uint32_t n;
    struct error err;
    if (response_encode(r, s->head, s->iov, &n, &err))
        die(err.text);
    if (!s->drip) {
        size_t total = 0;
        for (uint32_t i = 0; i < n; i++)
            total += s->iov[i].iov_len;
        struct msghdr msg = {.msg_iov = s->iov, .msg_iovlen = n};
        ssize_t sent = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
        if (sent == (ssize_t)total)
            return;
        if (sent < 0) {
            s->over = true;
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            size_t skip = MIN((size_t)sent, s->iov[i].iov_len);
            sent -= (ssize_t)skip;
            write_all(s, (char *)s->iov[i].iov_base + skip, s->iov[i].iov_len - skip);
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        write_all(s, s->iov[i].iov_base, s->iov[i].iov_len);
}

/* --- answers --- */

static struct response *clear(struct session *s, uint64_t id)
{
    memset(&s->response, 0, offsetof(struct response, outputs));
    s->response.body = (struct message_text){0};
    s->response.id = id;
    return &s->response;
}

static void error_reply(struct session *s, uint64_t id, enum status status, const char *text)
{
    struct response *r = clear(s, id);
    r->status = status;
    r->message = message_text_of(text);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        r->retry_after_us = 1234;
    respond(s, r);
}

static void echo(struct session *s, const struct request *q)
{
    struct response *r = clear(s, q->id);
    r->kind = REQUEST_INFER;
    r->model = q->model;
    r->version = message_text_of("7");
    r->timing = (struct response_timing){1000, 2000, 3000, 4000, 8};
    r->n_outputs = q->n_inputs;
    for (uint32_t i = 0; i < q->n_inputs; i++)
        r->outputs[i] = q->inputs[i];
    respond(s, r);
}

static void release(struct session *s)
{
    static _Thread_local struct request q;
    while (s->n_held > 0) {
        uint32_t i = --s->n_held;
        if (!s->held[i].silent && request_decode(s->held[i].frame, s->held[i].size, &q, NULL) == 0)
            echo(s, &q);
        free(s->held[i].frame);
    }
}

static void cancel(struct session *s, const struct request *q)
{
    bool found = false;
    atomic_fetch_add(&s->server->cancels, 1);
    for (uint32_t i = 0; i < s->n_held; i++) {
        if (s->held[i].id == q->target && s->held[i].cancellable) {
            error_reply(s, q->target, STATUS_CANCELLED, "cancelled");
            free(s->held[i].frame);
            s->held[i] = s->held[--s->n_held];
            found = true;
            break;
        }
    }
    struct response *r = clear(s, q->id);
    r->kind = REQUEST_CANCEL;
    r->yes = found;
    respond(s, r);
}

static enum status describe_status(struct fake_server *server, struct arena *arena,
                                   struct message_text *out)
{
    uint64_t looks = atomic_fetch_add(&server->looks, 1) + 1;
    const struct body_counter counters[] = {{"rejected", 3 + looks},
                                            {"a_counter_of_many", UINT64_MAX},
                                            {"another", UINT64_MAX},
                                            {"a_third_one", UINT64_MAX - 9},
                                            {"none", 0}};
    static const struct body_memory memory[] = {
        {"requests", 3ull << 30 >> 1, 1ull << 40}, {"replies", 1023, 0}, {"plans", 1024, 2048}};
    static const struct body_bucket huge = {1023, UINT64_MAX};
    /* From 1,024 to 1,055 ns and, for half of those that came later, to 1,087 ns; the other half:
     * 1,048,576 ns to 1,081,343 ns. */
    const struct body_bucket buckets[] = {
        {160, 9}, {0, 5 * (looks - 1)}, {480 - 162, 4 * (looks - 1)}};
    struct body_status_model models[] = {
        {.name = "echo",
         .version = "2",
         .state = "READY",
         .requests = 9 * looks,
         .instances = 18 * looks,
         .batches = 6 * looks,
         .since_ms = 1234},
        {.name = "large",
         .version = "18446744073709551615",
         .state = "READY",
         .queued = UINT32_MAX,
         .requests = UINT64_MAX,
         .failures = UINT64_MAX,
         .instances = UINT64_MAX,
         .batches = 3,
         .since_ms = looks},
        {.name = "a_name_that_is_longer_than_any_table_has_room_for_and_then_some_more_of_it",
         .version = "1234567890123456789012345678901234567890",
         .state = "UNAVAILABLE",
         .reason = "not\033enough memory for the weights of this model, which are larger than all",
         .since_ms = looks}};
    for (int k = 0; k < BODY_STAGES; k++) {
        models[0].stages[k] = (struct body_stage){2000 * looks, looks > 1 ? 3 : 1, buckets};
        models[1].stages[k] = (struct body_stage){UINT64_MAX, 1, &huge};
    }
    const struct body_server_status status = {.version = "0.0",
                                              .device = "none",
                                              .uptime_s = 12,
                                              .uptime_ns = 12 * NS_PER_S + looks * NS_PER_S / 2,
                                              .started_ms = 1000,
                                              .ready = true,
                                              .workers = 2,
                                              .n_models = 3,
                                              .n_counters = 5,
                                              .models = models,
                                              .counters = counters,
                                              .n_memory = 3,
                                              .memory = memory};
    return body_server_status_encode(&status, arena, out, NULL);
}

static void describe(struct session *s, const struct request *q)
{
    static const char *const versions[] = {"1", "2"}, *const extensions[] = {"statistics"};
    static const struct body_tensor in[] = {
        {"x", "FP32", {2, {-1, 16}}},
        {"mask", "BOOL", {1, {-1}}},
    };
    static const struct body_tensor out[] = {{"y", "WEIRD", {2, {-1, 16}}}};
    static const struct body_model_metadata metadata = {"echo", "inferd", 2,  2,
                                                        1,      versions, in, out};
    static const struct body_model_statistics model = {.name = "echo",
                                                       .version = "2",
                                                       .inference_count = 10,
                                                       .execution_count = 5,
                                                       .success = {3, 300},
                                                       .queue = {3, 30}};
    static const struct body_statistics statistics = {1, &model};
    static const struct body_index_entry entry = {"echo", "2", "READY", ""};
    static const struct body_index index = {1, &entry};
    static const struct body_server_metadata server = {"fake", "0.0", 1, extensions};
    struct arena *arena = arena_new(0);
    struct response *r = clear(s, q->id);
    enum status failed = STATUS_OK;
    r->kind = q->kind;
    r->yes = true;
    switch (q->kind) {
    case REQUEST_SERVER_METADATA:
        failed = body_server_metadata_encode(&server, arena, &r->body, NULL);
        break;
    case REQUEST_MODEL_METADATA:
        failed = body_model_metadata_encode(&metadata, arena, &r->body, NULL);
        break;
    case REQUEST_STATISTICS:
        failed = body_statistics_encode(&statistics, arena, &r->body, NULL);
        break;
    case REQUEST_REPOSITORY_INDEX:
        failed = body_index_encode(&index, arena, &r->body, NULL);
        break;
    case REQUEST_SERVER_STATUS:
        failed = describe_status(s->server, arena, &r->body);
        break;
    default:
        break;
    }
    if (failed)
        abort();
    respond(s, r);
    arena_free(arena);
}

/* --- the models --- */

static bool is(const struct request *q, const char *name)
{
    return message_text_equal(q->model, message_text_of(name));
}

/* Returns true if the frame is kept. */
static bool keep(struct session *s, const struct request *q, uint8_t *frame, uint32_t size)
{
    if (s->n_held == MAX_HELD)
        abort();
    s->held[s->n_held].frame = frame;
    s->held[s->n_held].size = size;
    s->held[s->n_held].id = q->id;
    s->held[s->n_held].cancellable = !is(q, "mute");
    s->held[s->n_held++].silent = !is(q, "hold");
    return true;
}

/* Models that break the protocol. */
static void misbehave(struct session *s, const struct request *q)
{
    static const uint8_t huge[] = {0x80, 0, 0, 0}, garbage[] = {0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff};
    if (is(q, "wrong")) {
        struct response *r = clear(s, q->id);
        r->kind = REQUEST_MODEL_READY;
        r->yes = true;
        respond(s, r);
    } else if (is(q, "stranger")) {
        error_reply(s, 987654321, STATUS_INTERNAL, "for nobody");
        echo(s, q);
    } else if (is(q, "huge")) {
        write_all(s, huge, sizeof(huge));
    } else if (is(q, "garbage")) {
        write_all(s, garbage, sizeof(garbage));
    } else if (is(q, "half")) {
        write_all(s, garbage, 6);
        s->over = true;
    } else if (is(q, "farewell")) {
        error_reply(s, 0, STATUS_UNAVAILABLE, "going away");
        s->over = true;
    } else if (is(q, "die")) {
        s->over = true;
    } else if (is(q, "stall")) {
        while (!atomic_load(&s->server->stopping))
            clock_sleep_until(clock_now_ns() + 5 * NS_PER_MS);
        s->over = true;
    } else {
        error_reply(s, q->id, STATUS_NOT_FOUND, "no such model");
    }
}

static bool serve(struct session *s, uint8_t *frame, uint32_t size)
{
    struct request *q = &s->request;
    struct error err;
    if (request_decode(frame, size, q, &err)) {
        error_reply(s, q->id, STATUS_INVALID_ARGUMENT, err.text);
        return false;
    }
    if (q->kind == REQUEST_CANCEL) {
        cancel(s, q);
        return false;
    }
    atomic_fetch_add(&s->server->requests, 1);
    s->drip = is(q, "drip");
    if (q->kind != REQUEST_INFER) {
        describe(s, q);
    } else if (is(q, "hold") || is(q, "silent") || is(q, "mute")) {
        return keep(s, q, frame, size);
    } else if (is(q, "refuse")) {
        error_reply(s, q->id, STATUS_RESOURCE_EXHAUSTED, "the queue is full");
    } else if (is(q, "echo") || is(q, "drip")) {
        echo(s, q);
    } else if (is(q, "slow") || is(q, "mortal")) {
        clock_sleep_until(clock_now_ns() + 20 * NS_PER_MS);
        echo(s, q);
        s->n_mortal += is(q, "mortal");
        s->over = s->n_mortal == 20;
    } else if (is(q, "release")) {
        static _Thread_local struct request own;
        own = *q;
        release(s);
        echo(s, &own);
    } else {
        misbehave(s, q);
    }
    return false;
}

static void *session_main(void *arg)
{
    struct session *s = arg;
    uint8_t head[FRAME_HEAD_BYTES];
    while (!s->over && read_all(s->fd, head, sizeof(head))) {
        uint32_t size = frame_head_read(head);
        uint8_t *frame = malloc(size ? size : 1);
        if (!frame || !read_all(s->fd, frame, size)) {
            free(frame);
            break;
        }
        if (!serve(s, frame, size))
            free(frame);
    }
    while (s->n_held > 0)
        free(s->held[--s->n_held].frame);
    /* closed only when the server stops, so that no new connection gets this number */
    shutdown(s->fd, SHUT_RDWR);
    free(s);
    return NULL;
}

/* --- the server --- */

static void *acceptor_main(void *arg)
{
    struct fake_server *server = arg;
    for (;;) {
        int one = 1, fd = accept(server->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct session *s = calloc(1, sizeof(*s));
        if (!s)
            abort();
        s->server = server;
        s->fd = fd;
        pthread_mutex_lock(&server->lock);
        if (server->n == MAX_CONNECTIONS)
            abort();
        server->fds[server->n] = fd;
        if (pthread_create(&server->threads[server->n++], NULL, session_main, s))
            die("pthread_create");
        pthread_mutex_unlock(&server->lock);
    }
}

struct fake_server *fake_server_start(bool unix_socket)
{
    struct fake_server *server = calloc(1, sizeof(*server));
    struct address address;
    char text[ADDRESS_TEXT_MAX] = "127.0.0.1:0";
    if (!server)
        abort();
    pthread_mutex_init(&server->lock, NULL);
    if (unix_socket) {
        strcpy(server->folder, "/tmp/fake_server.XXXXXX");
        if (!mkdtemp(server->folder))
            die("mkdtemp");
        snprintf(text, sizeof(text), "unix:%s/socket", server->folder);
    }
    if (address_parse(text, &address, NULL))
        abort();
    server->listener = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0 ||
        bind(server->listener, address_sockaddr(&address), address.length) != 0 ||
        listen(server->listener, 64) != 0)
        die("listen");
    address.length = sizeof(address.storage);
    getsockname(server->listener, (struct sockaddr *)&address.storage, &address.length);
    address_format(&address, server->address);
    if (pthread_create(&server->acceptor, NULL, acceptor_main, server))
        die("pthread_create");
    return server;
}

void fake_server_stop(struct fake_server *server)
{
    atomic_store(&server->stopping, true);
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->acceptor, NULL);
    close(server->listener);
    for (uint32_t i = 0; i < server->n; i++) {
        shutdown(server->fds[i], SHUT_RDWR);
        pthread_join(server->threads[i], NULL);
        close(server->fds[i]);
    }
    if (server->folder[0]) {
        unlink(server->address + strlen("unix:"));
        rmdir(server->folder);
    }
    pthread_mutex_destroy(&server->lock);
    free(server);
}

const char *fake_server_address(const struct fake_server *server)
{
    return server->address;
}

uint64_t fake_server_requests(const struct fake_server *server)
{
    return atomic_load(&server->requests);
}

uint64_t fake_server_cancels(const struct fake_server *server)
{
    return atomic_load(&server->cancels);
}
