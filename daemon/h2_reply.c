/* SPDX-License-Identifier: Apache-2.0 */
/* Answers become messages and trailers, see h2.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/h2.h"

#define NV(name, value, length)                                                                    \
    (nghttp2_nv)                                                                                   \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), length,         \
            NGHTTP2_NV_FLAG_NO_COPY_NAME                                                           \
    }
#define NV_TEXT(name, value) NV(name, value, strlen(value))

/* --- the end of a call --- */

/* A text of a header: what is no printable ASCII, and '%', as %XX. NULL: no memory, or no text. */
static char *text_encode(struct message_text text)
{
    size_t len = utf8_prefix(text.data, text.len, ERROR_TEXT_MAX);
    char *out = len ? malloc(3 * len + 1) : NULL, *to = out;
    for (size_t i = 0; out && i < len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c < 0x7f && c != '%')
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    if (out)
        *to = '\0';
    return out;
}

/* Writes the trailers; `digits` holds what they point to. */
struct digits {
    char status[16], retry[24];
};
static size_t trailers(const struct h2_stream *stream, struct digits *digits, nghttp2_nv *nv)
{
    size_t n = 0;
    snprintf(digits->status, sizeof(digits->status), "%d", (int)stream->status);
    nv[n++] = NV_TEXT("grpc-status", digits->status);
    if (stream->text)
        nv[n++] = NV_TEXT("grpc-message", stream->text);
    if (stream->retry_ms) {
        snprintf(digits->retry, sizeof(digits->retry), "%llu",
                 (unsigned long long)stream->retry_ms);
        nv[n++] = NV_TEXT("grpc-retry-pushback-ms", digits->retry);
    }
    return n;
}

void h2_trailers_submit(struct h2_stream *stream)
{
    struct digits digits = {0};
    nghttp2_nv nv[3];
    size_t n = trailers(stream, &digits, nv);
    nghttp2_submit_trailer(stream->session->ng, stream->id, nv, n);
}

/* An answer without a message: headers and trailers in one. */
static void trailers_only(struct h2_stream *stream)
{
    struct digits digits = {0};
    nghttp2_nv nv[6] = {NV_TEXT(":status", "200"), NV_TEXT("content-type", "application/grpc"),
                        NV_TEXT("grpc-accept-encoding", "identity,deflate,gzip")};
    size_t n = 3 + trailers(stream, &digits, nv + 3);
    nghttp2_submit_response(stream->session->ng, stream->id, nv, n, NULL);
}

void h2_finish(struct h2_stream *stream, enum status status, struct message_text text,
               uint64_t retry_us)
{
    if (stream->finished)
        return;
    stream->finished = true;
    stream->status = status;
    stream->text = text_encode(text);
    stream->retry_ms = (retry_us + 999) / 1000;
    h2_calm_earn(&stream->session->calm, H2_CALM_ANSWER);
    if (!stream->began && !stream->out)
        trailers_only(stream);
    else if (stream->began)
        nghttp2_session_resume_data(stream->session->ng, stream->id);
}

void h2_finish_error(struct h2_stream *stream, const struct error *err)
{
    h2_finish(stream, err->status, message_text_of(err->text), cause_row(err->cause)->retry_us);
}

void h2_finish_http(struct h2_stream *stream, const char *status)
{
    const nghttp2_nv nv[] = {NV_TEXT(":status", status)};
    stream->finished = true;
    nghttp2_submit_response(stream->session->ng, stream->id, nv, 1, NULL);
}

/* --- messages --- */

void h2_begin(struct h2_stream *stream)
{
    static const char type[] = "application/grpc";
    const nghttp2_nv nv[] = {NV_TEXT(":status", "200"), NV_TEXT("content-type", type)};
    const nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = h2_on_read};
    if (stream->began)
        return;
    stream->began = true;
    nghttp2_submit_response(stream->session->ng, stream->id, nv, ARRAY_LEN(nv), &provider);
}

/* Where the room that holds the message's head ends. */
static uint8_t *head_end(uint8_t *room, const struct iovec *iov, uint32_t n)
{
    uint8_t *end = room;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = iov[i].iov_base;
        if (at >= room && at < room + RESPONSE_OPEN_MAX)
            end = MAX(end, at + iov[i].iov_len);
    }
    return end;
}

/* Room for the message's head and for the heads of its frames, which may be as small as peers get
 * by default. */
static size_t room_size(const struct response *response)
{
    size_t size = response->body.len;
    for (uint32_t k = 0; k < response->n_outputs; k++)
        size += response->outputs[k].size;
    size_t frames = size / H2_FRAME_LEAST * H2_FRAME_HEAD;
    return MIN(RESPONSE_OPEN_MAX + H2_ROOM + frames, (size_t)SESSION_ROOM_MAX);
}

static enum status message_reply(struct h2_stream *stream, uint32_t number,
                                 const struct response *response, struct error *err)
{
    struct session *s = stream->session;
    struct iovec iov[MESSAGE_MAX_IOV];
    bool streamed = stream->method->call == H2_CALL_STREAM_INFER;
    uint32_t n;
    uint8_t *room = h2_room(s, room_size(response));
    TRY(response_encode_open(response, streamed, room, iov, &n, err));
    s->room = head_end(room, iov, n);
    h2_begin(stream);
    if (!stream->method->streams)
        stream->finished = true; /* the trailers follow the message */
    h2_message_send(stream, number, iov, n);
    return STATUS_OK;
}

static void reply(struct h2_stream *stream, uint32_t number, const struct response *response)
{
    enum h2_call call = stream->method->call;
    struct error err;
    if (response->status && call != H2_CALL_STREAM_INFER) {
        h2_finish(stream, response->status, response->message, response->retry_after_us);
    } else if (call == H2_CALL_HEALTH || call == H2_CALL_WATCH) {
        h2_health_reply(stream, number, response->yes);
    } else if (message_reply(stream, number, response, &err)) {
        h2_finish_error(stream, &err);
    }
}

void h2_reply(struct session *s, const struct response *response)
{
    int32_t id = (int32_t)(uint32_t)response->id;
    struct h2_stream *stream = h2_stream_of(s, id);
    struct response named;
    if (s->ended || !stream || !stream->n_open)
        return;
    stream->n_open--;
    if (stream->finished)
        return;
    if (response->status && !response->infer_id.len && s->infer_id.len) {
        named = *response;
        named.infer_id = s->infer_id;
        response = &named;
    }
    reply(stream, (uint32_t)(response->id >> 32), response);
    if ((stream = h2_stream_of(s, id)))
        h2_stream_settle(stream);
    h2_send(s);
}
