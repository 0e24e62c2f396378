/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 with the Open Inference Protocol; see session_http.h, and docs/http.md for what peers
 * may send.
 *
 * A head is gathered by http/reader.h. A small body that has come as a whole is decoded where it
 * was read. Any other lies in a slab that grows with what has come (R1 of docs/operations.md), into
 * which the connection reads directly; it is handed over with the request, so that binary tensors
 * are not copied again.
 */
#include "daemon/session_http.h"

#include <assert.h>
#include <stdlib.h>

static struct session *http_create(struct session_host *host)
{
    struct session *s = calloc(1, sizeof(*s));
    if (!s || !(s->reader = http_reader_new())) {
        free(s);
        return NULL;
    }
    s->host = host;
    return s;
}

static void body_give(struct session *s)
{
    s->host->ops->slab_give(s->host, STEAL(s->body));
    s->have = s->need = 0;
}

static void http_destroy(struct session *s)
{
    if (!s)
        return;
    http_decode_drop(s);
    http_write_drop(s);
    body_give(s);
    s->host->ops->slab_give(s->host, s->kept);
    http_reader_free(s->reader);
    free(s);
}

static bool paused(const struct session *s)
{
    return s->host->ops->paused(s->host);
}

/* Whether bytes can be used now. */
static bool takes(const struct session *s)
{
    return s->phase <= HTTP_AT_BODY && !s->ended && !paused(s);
}

static void end(struct session *s, enum session_end why)
{
    s->ended = true;
    s->host->ops->end(s->host, why);
}

/* Gets ready for the next request. */
static void next(struct session *s)
{
    http_decode_drop(s);
    body_give(s);
    http_reader_next(s->reader);
    s->phase = HTTP_AT_HEAD;
    s->message++;
    s->code = 0;
    s->allow = NULL;
    s->drop = s->answered = s->no_body = s->coded = false;
    s->wanted = (struct http_wanted){0};
}

void http_finish(struct session *s)
{
    if (s->holding) {
        s->holding = false;
        s->host->ops->hold(s->host, false);
    }
    if (s->close && !s->ended)
        end(s, SESSION_DONE);
    else if (s->phase == HTTP_AT_BODY)
        s->answered = s->drop = true;
    else
        next(s);
}

/* --- bodies --- */

static const struct http_head *head_of(const struct session *s)
{
    return http_reader_request(s->reader);
}

static void body_done(struct session *s, const uint8_t *data, size_t size)
{
    if (s->answered) {
        next(s);
        return;
    }
    http_body_take(s, data, size);
}

/* There is no memory for the body: what comes of it is thrown away. */
static void body_refuse(struct session *s)
{
    struct error err;
    error_cause(&err, CAUSE_FRAME_OVER_BUDGET, "no memory for a body of %zu bytes now", s->need);
    s->host->ops->slab_give(s->host, STEAL(s->body));
    s->drop = true;
    http_refuse(s, 0, &err);
}

/* Moves the body to a slab of that size; tensors behind its JSON will be aligned there. False:
 * there is no memory. */
static bool body_move(struct session *s, size_t size)
{
    bool first = !s->body;
    if (!session_slab_move(s->host, &s->body, s->have, size))
        return false;
    if (first && s->need > SESSION_LARGE)
        slab_shift(s->body, 0, http_json_length(s));
    return true;
}

static size_t body_room(const struct session *s)
{
    return s->body ? MIN(s->need, s->body->size) - s->have : 0;
}

/* Takes bytes of a body of known length; returns how many. */
static size_t length_take(struct session *s, const uint8_t *data, size_t size)
{
    if (!s->have && size >= s->need && !s->drop && http_body_is_small(s, s->need)) {
        size_t n = s->need;
        s->have = n;
        body_done(s, data, n);
        return n;
    }
    size_t n = MIN(size, s->need - s->have);
    if (!s->drop && !body_room(s)) {
        size_t have = s->have + n;
        if (!body_move(s, MAX(session_slab_size(s->host, have, s->need), (size_t)1)))
            body_refuse(s);
        else
            session_turn(s->host, &s->body, have, s->need, NULL);
    }
    if (s->ended)
        return 0;
    if (!s->drop) {
        n = MIN(n, body_room(s));
        assert(s->body);                     /* body_room said so */
        if (data != s->body->data + s->have) /* else it was read there */
            memcpy(s->body->data + s->have, data, n);
    }
    s->have += n;
    if (s->have == s->need)
        body_done(s, s->body ? s->body->data : NULL, s->have);
    return n;
}

/* The bytes of a chunk. */
static bool chunk_take(void *user, const void *data, size_t size)
{
    struct session *s = user;
    size_t limit = s->host->ops->frame_limit(s->host);
    if (s->drop)
        return true;
    if (size > limit - MIN(s->have, limit)) {
        struct error err;
        error_set(&err, STATUS_INVALID_ARGUMENT, "a body of more than %zu bytes", limit);
        s->close = true;
        http_refuse(s, 413, &err);
        return false;
    }
    if (!s->body || size > s->body->size - s->have) {
        size_t whole = MIN(MAX(s->have + size, 2 * s->have), limit);
        s->need = s->have + size;
        if (!body_move(s, MAX(whole, (size_t)1))) {
            body_refuse(s);
            return !s->ended;
        }
    }
    memcpy(s->body->data + s->have, data, size);
    s->have += size;
    return true;
}

static void wrong(struct session *s, unsigned code, const struct error *err)
{
    s->close = true;
    if (s->answered)
        end(s, SESSION_DONE);
    else if (code)
        http_refuse(s, code, err);
}

static size_t chunks_take(struct session *s, const uint8_t *data, size_t size)
{
    struct error err;
    unsigned code;
    size_t used;
    switch (http_reader_chunks(s->reader, data, size, &used, chunk_take, s, &code, &err)) {
    case HTTP_DONE:
        body_done(s, s->body ? s->body->data : NULL, s->have);
        break;
    case HTTP_WRONG:
        wrong(s, code, &err);
        break;
    default:
        break;
    }
    return used;
}

/* A head has come and its body, if it has one, may: it begins. */
static void body_begin(struct session *s, bool more)
{
    const struct http_head *head = head_of(s);
    s->phase = HTTP_AT_BODY;
    s->need = head->length;
    if (!http_head_take(s) || s->ended)
        return;
    if (head->expects && head->body != HTTP_BODY_NONE && !more)
        http_continue(s);
    if (head->body == HTTP_BODY_NONE)
        body_done(s, NULL, 0);
}

static size_t head_take(struct session *s, const uint8_t *data, size_t size)
{
    struct error err;
    unsigned code;
    size_t used;
    switch (http_reader_head(s->reader, data, size, &used, &code, &err)) {
    case HTTP_DONE:
        body_begin(s, used < size);
        break;
    case HTTP_TWO:
        s->two = s->ended = true;
        break;
    case HTTP_WRONG:
        wrong(s, code, &err);
        break;
    default:
        break;
    }
    return used;
}

/* --- input --- */

/* Uses bytes as far as the host and the request in hand let it; returns how many. */
static size_t use(struct session *s, const uint8_t *data, size_t size)
{
    size_t used = 0;
    while (used < size && takes(s)) {
        if (s->phase == HTTP_AT_HEAD)
            used += head_take(s, data + used, size - used);
        else if (head_of(s)->body == HTTP_BODY_CHUNKS)
            used += chunks_take(s, data + used, size - used);
        else
            used += length_take(s, data + used, size - used);
    }
    return used;
}

static void left_keep(struct session *s, const uint8_t *data, size_t size)
{
    s->kept = session_left_keep(s->host, data, size);
    if (!s->kept) {
        end(s, SESSION_NO_MEMORY);
        return;
    }
    s->kept_at = 0;
    s->kept_have = size;
}

static void http_input(struct session *s, const void *data, size_t size)
{
    assert(!s->kept); /* nothing is read for a session that waits */
    size_t used = use(s, data, size);
    const uint8_t *rest = (const uint8_t *)data + used;
    if (s->two && !s->message)
        s->host->ops->become(s->host, &session_h2, http_reader_taken(s->reader),
                             (struct message_text){(const char *)rest, size - used});
    else if (s->two)
        s->host->ops->end(s->host, SESSION_DONE);
    else if (used < size && !s->ended)
        left_keep(s, rest, size - used);
}

static void kept_use(struct session *s)
{
    s->kept_at += use(s, s->kept->data + s->kept_at, s->kept_have - s->kept_at);
    if (s->two)
        s->host->ops->end(s->host, SESSION_DONE);
    if (s->kept_at == s->kept_have || s->ended)
        s->host->ops->slab_give(s->host, STEAL(s->kept));
}

static void http_resume(struct session *s)
{
    if (s->phase == HTTP_DECODING && !s->ended)
        http_decode_go_on(s);
    if (s->phase == HTTP_WRITING && !s->ended)
        http_write_go_on(s);
    if (s->kept && takes(s))
        kept_use(s);
}

static bool http_waiting(const struct session *s)
{
    return !s->ended && (s->kept || s->phase == HTTP_DECODING || s->phase == HTTP_WRITING);
}

static void http_buffer(struct session *s, void **at, size_t *size)
{
    *size = 0;
    if (s->phase != HTTP_AT_BODY || s->kept || s->drop || s->ended || !s->body ||
        head_of(s)->body != HTTP_BODY_LENGTH)
        return;
    *at = s->body->data + s->have;
    *size = body_room(s);
}

static size_t http_wants(const struct session *s)
{
    if (s->phase == HTTP_AT_BODY && head_of(s)->body == HTTP_BODY_LENGTH)
        return MAX(s->need - s->have, (size_t)1);
    return http_reader_wants(s->reader);
}

static size_t http_due(const struct session *s)
{
    return s->phase == HTTP_AT_BODY && head_of(s)->body == HTTP_BODY_LENGTH ? s->need - s->have : 0;
}

static void http_state(const struct session *s, struct session_state *out)
{
    out->message = s->message;
    out->received = s->phase == HTTP_AT_HEAD ? http_reader_has(s->reader) : s->have;
    out->wait = s->phase == HTTP_AT_BODY   ? SESSION_WAIT_BODY
                : s->phase != HTTP_AT_HEAD ? SESSION_WAIT_OPEN
                : out->received            ? SESSION_WAIT_HEAD
                                           : SESSION_WAIT_NOTHING;
}

/* A client that has nothing on its way may as well go elsewhere now. */
static void http_drain(struct session *s)
{
    s->leaving = s->close = true;
    if (s->phase == HTTP_AT_HEAD && !http_reader_has(s->reader) && !s->kept && !s->ended)
        end(s, SESSION_DONE);
}

/* A request that came whole has its answer, with which the connection ends. */
static bool http_parting(const struct session *s)
{
    return s->leaving && http_waiting(s);
}

const struct session_ops session_http = {
    .name = "http",
    .format = SESSION_JSON,
    .encode = http_body_encode,
    .create = http_create,
    .destroy = http_destroy,
    .buffer = http_buffer,
    .wants = http_wants,
    .due = http_due,
    .input = http_input,
    .waiting = http_waiting,
    .resume = http_resume,
    .reply = http_reply,
    .state = http_state,
    .drain = http_drain,
    .unsent = http_unsent,
    .parting = http_parting,
};
