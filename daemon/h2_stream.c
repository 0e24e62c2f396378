/* SPDX-License-Identifier: Apache-2.0 */
/* A call begins and ends, see h2.h. */
#include <assert.h>
#include <stdlib.h>
#include <strings.h>
#include <utlist.h>

#include "base/clock.h"
#include "daemon/h2.h"

struct h2_stream *h2_stream_of(struct session *s, int32_t id)
{
    return nghttp2_session_get_stream_user_data(s->ng, id);
}

/* --- memory --- */

/* Counts memory of a call, see H2_CALLS_OWN: most connections charge nothing. Calls are cheap to
 * open, and streams may be open for long without a message. False: there is no room. */
static bool call_book(struct h2_stream *stream, size_t bytes)
{
    struct session *s = stream->session;
    while (s->open_bytes + bytes > H2_CALLS_OWN + s->booked) {
        if (!s->host->ops->book(s->host, H2_CALLS_STEP))
            return false;
        s->booked += H2_CALLS_STEP;
    }
    s->open_bytes += bytes;
    stream->booked += bytes;
    return true;
}

/* Half a step stays free, so that calls which come and go do not charge it time and again. */
static void call_unbook(struct h2_stream *stream)
{
    struct session *s = stream->session;
    s->open_bytes -= stream->booked;
    stream->booked = 0;
    while (s->booked &&
           s->open_bytes + H2_CALLS_STEP + H2_CALLS_STEP / 2 <= H2_CALLS_OWN + s->booked) {
        s->booked -= H2_CALLS_STEP;
        s->host->ops->unbook(s->host, H2_CALLS_STEP);
    }
}

/* The rest of H2_CALL_BYTES is nghttp2's. */
static_assert(sizeof(struct h2_stream) + 384 <= H2_CALL_BYTES, "a call needs more");

struct h2_stream *h2_stream_new(struct session *s, int32_t id)
{
    struct h2_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->session = s;
    stream->id = id;
    stream->watched = -1;
    stream->crowded = !call_book(stream, H2_CALL_BYTES);
    DL_APPEND(s->streams, stream);
    s->n_streams++;
    return stream;
}

/* Nobody waits for these answers any more. */
static void requests_forget(struct h2_stream *stream)
{
    struct session *s = stream->session;
    for (uint32_t n = stream->next_out; stream->n_open && n != stream->next_in; n++)
        s->host->ops->forget(s->host, (uint64_t)n << 32 | (uint32_t)stream->id);
}

void h2_stream_free(struct h2_stream *stream)
{
    struct session *s = stream->session;
    requests_forget(stream);
    h2_message_drop(stream);
    while (stream->out || stream->early) {
        struct h2_out **list = stream->out ? &stream->out : &stream->early;
        struct h2_out *out = *list;
        *list = out->next;
        h2_out_free(s, out);
    }
    if (s->landing == stream) {
        s->landing = NULL;
        s->landing_left = 0;
    }
    DL_DELETE(s->streams, stream);
    s->n_streams--;
    call_unbook(stream);
    if (stream->token.len)
        explicit_bzero((void *)(uintptr_t)stream->token.data, stream->token.len);
    free((void *)(uintptr_t)stream->token.data);
    free((void *)(uintptr_t)stream->traceparent.data);
    free(stream->text);
    free(stream);
}

/* --- headers --- */

static bool begins(struct message_text text, const char *prefix)
{
    size_t n = strlen(prefix);
    return text.len >= n && strncasecmp(text.data, prefix, n) == 0;
}

static bool is(struct message_text text, const char *word)
{
    return message_text_equal(text, message_text_of(word));
}

/* Keeps a copy; of several headers of one name the first counts. What is too long was not said. */
static void text_keep(struct h2_stream *stream, struct message_text *to, struct message_text text,
                      size_t most)
{
    if (to->data || !text.len || text.len > most || stream->crowded)
        return;
    char *copy = call_book(stream, text.len) ? malloc(text.len) : NULL;
    stream->crowded = !copy;
    if (!copy)
        return;
    memcpy(copy, text.data, text.len);
    to->data = copy;
    to->len = text.len;
}

static void take_method(struct h2_stream *stream, struct message_text value)
{
    stream->post = is(value, "POST");
}

static void take_path(struct h2_stream *stream, struct message_text value)
{
    stream->method = h2_method_find(value);
}

/* application/grpc, alone or with "+proto" or parameters behind it. */
static void take_type(struct h2_stream *stream, struct message_text value)
{
    static const char type[] = "application/grpc";
    size_t n = sizeof(type) - 1;
    const char *rest = value.data + n;
    stream->grpc = begins(value, type) && (value.len == n || *rest == ';' ||
                                           (value.len >= n + 6 && memcmp(rest, "+proto", 6) == 0));
}

static void take_encoding(struct h2_stream *stream, struct message_text value)
{
    stream->encoding = is(value, "identity")  ? H2_IDENTITY
                       : is(value, "gzip")    ? H2_GZIP
                       : is(value, "deflate") ? H2_DEFLATE
                                              : H2_ENCODING_UNKNOWN;
}

/* One to eight digits and a unit; more than some hundred years is no deadline. */
#define TIMEOUT_MOST_NS (UINT64_C(1) << 62)
static void take_timeout(struct h2_stream *stream, struct message_text value)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'H', 3600 * NS_PER_S}, {'M', 60 * NS_PER_S}, {'S', NS_PER_S},
                 {'m', NS_PER_MS},       {'u', NS_PER_US},     {'n', 1}};
    uint64_t n = 0;
    size_t i = 0;
    for (; i < value.len && i < 8 && value.data[i] >= '0' && value.data[i] <= '9'; i++)
        n = 10 * n + (uint64_t)(value.data[i] - '0');
    for (size_t k = 0; i && i + 1 == value.len && k < ARRAY_LEN(units); k++)
        if (value.data[i] == units[k].unit && n <= TIMEOUT_MOST_NS / units[k].ns)
            stream->deadline_ns = clock_now_ns() + n * units[k].ns;
}

static void take_authorization(struct h2_stream *stream, struct message_text value)
{
    static const char scheme[] = "bearer ";
    size_t n = sizeof(scheme) - 1;
    struct session_host *host = stream->session->host;
    if (begins(value, scheme) && host->ops->needs(host, SESSION_TOKEN))
        text_keep(stream, &stream->token, (struct message_text){value.data + n, value.len - n},
                  MESSAGE_MAX_TOKEN);
}

static void take_traceparent(struct h2_stream *stream, struct message_text value)
{
    struct session_host *host = stream->session->host;
    if (host->ops->needs(host, SESSION_TRACEPARENT))
        text_keep(stream, &stream->traceparent, value, H2_TRACEPARENT);
}

static const struct {
    const char *name;
    void (*take)(struct h2_stream *stream, struct message_text value);
} headers[] = {
    {":method", take_method},          {":path", take_path},
    {"content-type", take_type},       {"grpc-encoding", take_encoding},
    {"grpc-timeout", take_timeout},    {"authorization", take_authorization},
    {"traceparent", take_traceparent},
};

bool h2_stream_header(struct h2_stream *stream, struct message_text name, struct message_text value)
{
    stream->header_bytes += (uint32_t)(name.len + value.len + 32); /* as RFC 9113 counts them */
    if (++stream->n_headers > H2_HEADERS || stream->header_bytes > H2_HEADER_BYTES)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        if (is(name, headers[i].name))
            headers[i].take(stream, value);
    return true;
}

/* --- beginning and end --- */

static enum status call_check(const struct h2_stream *stream, struct error *err)
{
    if (stream->crowded)
        return error_cause(err, CAUSE_OVER_BUDGET, "no memory for more open calls now");
    if (!stream->method)
        return error_set(err, STATUS_UNIMPLEMENTED, "there is no such method");
    if (stream->encoding == H2_ENCODING_UNKNOWN)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "messages may be compressed with gzip or deflate, or not at all");
    return STATUS_OK;
}

void h2_stream_begin(struct h2_stream *stream)
{
    struct session *s = stream->session;
    struct error err;
    bool asks_health = stream->method && stream->method->call == H2_CALL_HEALTH;
    if (s->draining_ms && !asks_health)
        nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_REFUSED_STREAM);
    else if (!stream->post)
        h2_finish_http(stream, "405");
    else if (!stream->grpc)
        h2_finish_http(stream, "415");
    else if (call_check(stream, &err))
        h2_finish_error(stream, &err);
    else if (stream->method && !stream->method->streams)
        h2_owing_set(stream, true);
}

void h2_stream_settle(struct h2_stream *stream)
{
    const struct message_text none = {0};
    bool watches = stream->method && stream->method->call == H2_CALL_WATCH; /* until it is reset */
    struct error err;
    if (stream->finished || stream->n_open || stream->whole || stream->session->resting == stream)
        return;
    if (stream->ended && !watches) {
        h2_finish(stream, STATUS_OK, none, 0);
    } else if (stream->session->draining_ms == 1 && stream->method &&
               (watches || stream->method->streams)) {
        error_plain(&err, CAUSE_DRAINING);
        h2_finish_error(stream, &err);
    }
}

void h2_stream_end(struct h2_stream *stream)
{
    struct error err;
    stream->ended = true;
    h2_owing_set(stream, false);
    if (stream->finished)
        return;
    bool partial = stream->n_prefix && !stream->whole;
    bool missing = stream->method && !stream->method->streams && !stream->whole;
    if (partial || missing) {
        error_set(&err, STATUS_INVALID_ARGUMENT, "the call ended %s",
                  partial ? "within a message" : "without a message");
        h2_finish_error(stream, &err);
        h2_message_drop(stream);
    } else if (stream->method && !stream->method->streams) {
        h2_ready_add(stream);
    } else {
        h2_stream_settle(stream);
    }
}
