/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of gRPC come in, see h2.h: five bytes of prefix, and what it announces. A length is
 * compared with the limits when the prefix is whole, and memory is taken for what has come (R1 of
 * docs/operations.md). A message for which there is no memory is refused at once; the rest of its
 * call is thrown away as it comes.
 */
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "daemon/h2.h"

/* --- lists --- */

void h2_ready_add(struct h2_stream *stream)
{
    if (!stream->is_ready)
        DL_APPEND2(stream->session->ready, stream, prev_ready, next_ready);
    stream->is_ready = true;
}

void h2_ready_remove(struct h2_stream *stream)
{
    if (stream->is_ready)
        DL_DELETE2(stream->session->ready, stream, prev_ready, next_ready);
    stream->is_ready = false;
}

/* The client's time begins when the stream joins the list, and stands still while it waits for its
 * turn, so that nothing which happens elsewhere on the connection lengthens it. */
void h2_owing_set(struct h2_stream *stream, bool owing)
{
    struct session *s = stream->session;
    if (owing == stream->is_owing)
        return;
    stream->is_owing = owing;
    stream->clock = (struct session_clock){0};
    if (owing)
        DL_APPEND2(s->owing, stream, prev_owing, next_owing);
    else
        DL_DELETE2(s->owing, stream, prev_owing, next_owing);
}

/* --- slabs --- */

static void slab_give(struct h2_stream *stream)
{
    struct session *s = stream->session;
    if (!stream->slab)
        return;
    s->partial_bytes -= stream->slab->charge;
    s->host->ops->slab_give(s->host, STEAL(stream->slab));
}

/* Closes the stream's window, without a word: what the peer has been granted may still come. */
static void window_close(struct h2_stream *stream)
{
    nghttp2_session_set_local_window_size(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, 0);
}

/* Opens it again, for as much as has come. */
static void window_open(struct h2_stream *stream)
{
    nghttp2_session *ng = stream->session->ng;
    nghttp2_session_set_local_window_size(ng, NGHTTP2_FLAG_NONE, stream->id, H2_WINDOW);
    int32_t came = nghttp2_session_get_stream_effective_recv_data_length(ng, stream->id);
    if (came > 0)
        nghttp2_submit_window_update(ng, NGHTTP2_FLAG_NONE, stream->id, came);
}

static void on_turn(struct turn *turn)
{
    struct h2_stream *stream = CONTAINER_OF(turn, struct h2_stream, turn);
    window_open(stream);
    h2_send(stream->session);
}

/* Several large messages take turns; other calls of the connection go on meanwhile. */
static void turn_take(struct h2_stream *stream)
{
    if (stream->turn.state == TURN_WAITS)
        return;
    stream->turn.go = on_turn;
    if (session_turn(stream->session->host, &stream->slab, stream->have, stream->need,
                     &stream->turn))
        return;
    window_close(stream);
}

static void turn_end(struct h2_stream *stream)
{
    bool waits = stream->turn.state == TURN_WAITS;
    if (stream->turn.state)
        stream->session->host->ops->turn_leave(stream->session->host, &stream->turn);
    if (waits)
        window_open(stream); /* the call may bring others */
}

static void message_forget(struct h2_stream *stream)
{
    turn_end(stream);
    stream->n_prefix = 0;
    stream->need = stream->have = 0;
    stream->direct = NULL;
    stream->whole = stream->placed = false;
    h2_owing_set(stream, false);
}

void h2_message_drop(struct h2_stream *stream)
{
    inflate_free(STEAL(stream->inflate));
    slab_give(stream);
    message_forget(stream);
    h2_ready_remove(stream);
    stream->discard = true;
    stream->rest = stream->rest_end = NULL;
    if (stream->session->resting == stream)
        stream->session->resting = NULL;
}

static void refuse(struct h2_stream *stream, const struct error *err)
{
    h2_finish_error(stream, err);
    h2_message_drop(stream);
}

static void refuse_for_memory(struct h2_stream *stream)
{
    struct error err;
    error_cause(&err, CAUSE_FRAME_OVER_BUDGET, "no memory for a message of %zu bytes now",
                stream->need);
    refuse(stream, &err);
}

/* Puts the message into a slab of another size, or a first one. False: there is no memory. */
static bool slab_move(struct h2_stream *stream, size_t size)
{
    struct session *s = stream->session;
    size_t most = s->host->ops->frame_limit(s->host);
    if (s->partial_bytes + size > MAX(most, (size_t)H2_FRAME_MOST) * H2_PARTIAL_FRAMES)
        return false;
    size_t before = stream->slab ? stream->slab->charge : 0;
    if (!session_slab_move(s->host, &stream->slab, stream->have, size))
        return false;
    s->partial_bytes += stream->slab->charge - before;
    return true;
}

/* Large payloads lie where the engine can read them in place. The first bytes of a message mostly
 * tell where its payload begins. `data`: bytes that are to be added. */
static void payload_place(struct h2_stream *stream, const uint8_t *data, size_t size)
{
    struct slab *slab = stream->slab;
    size_t have = stream->have;
    if (stream->placed || stream->need <= SESSION_LARGE || stream->prefix[0])
        return;
    size_t at = have ? request_payload_find(slab->data, have, SESSION_LARGE, false)
                     : request_payload_find(data, size, SESSION_LARGE, false);
    if (at)
        slab_shift(slab, have, at);
    stream->placed = at || have >= H2_PLACE;
}

/* --- a message grows --- */

/* A peer that has shown no token yet may send small messages alone; the token stands in the
 * headers. */
static bool length_allowed(struct h2_stream *stream)
{
    struct session_host *host = stream->session->host;
    if (stream->need > host->ops->frame_limit(host) && stream->token.len)
        host->ops->token(host, stream->token);
    return stream->need <= host->ops->frame_limit(host);
}

static enum status prefix_check(struct h2_stream *stream, struct error *err)
{
    uint8_t compressed = stream->prefix[0];
    if (compressed > 1)
        return error_set(err, STATUS_INTERNAL, "a message begins with %u; expected 0 or 1",
                         compressed);
    if (compressed && stream->encoding == H2_IDENTITY)
        return error_set(err, STATUS_INTERNAL,
                         "a message is compressed, and no header says how (grpc-encoding)");
    if (!length_allowed(stream))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "a message of %zu bytes; the limit is %zu now", stream->need,
                         stream->session->host->ops->frame_limit(stream->session->host));
    return STATUS_OK;
}

/* Takes bytes of the prefix; false: they are not all there, or refused. */
static bool prefix_add(struct h2_stream *stream, const uint8_t *data, size_t size, size_t *used)
{
    struct error err;
    const uint8_t *p = stream->prefix;
    if (!stream->n_prefix)
        stream->clock = (struct session_clock){0}; /* the call's wait for it is over */
    *used = MIN(size, (size_t)(H2_PREFIX - stream->n_prefix));
    memcpy(stream->prefix + stream->n_prefix, data, *used);
    stream->n_prefix += (uint32_t)*used;
    h2_owing_set(stream, true);
    if (stream->n_prefix < H2_PREFIX)
        return false;
    stream->need = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (!prefix_check(stream, &err))
        return true;
    refuse(stream, &err);
    return false;
}

/* Adds bytes to the slab, which grows; false: there is no memory. */
static bool slab_add(struct h2_stream *stream, const uint8_t *data, size_t size)
{
    while (size) {
        if ((!stream->slab || stream->have == stream->slab->size) &&
            !slab_move(stream,
                       session_slab_size(stream->session->host, stream->have + size, stream->need)))
            return false;
        payload_place(stream, data, size);
        turn_take(stream);
        size_t n = MIN(size, stream->slab->size - stream->have);
        if (data != stream->slab->data + stream->have) /* else it was read there */
            memcpy(stream->slab->data + stream->have, data, n);
        stream->have += n;
        data += n;
        size -= n;
    }
    return true;
}

static void message_whole(struct h2_stream *stream)
{
    stream->whole = true;
    if (!stream->method->streams)
        return; /* the call's end is owed still, and until then its memory is held */
    h2_owing_set(stream, false);
    h2_ready_add(stream);
}

/* Takes bytes of the message's body; returns how many. */
static size_t body_add(struct h2_stream *stream, const uint8_t *data, size_t size)
{
    size_t n = MIN(size, stream->need - stream->have);
    if (!stream->have && n == stream->need) {
        stream->direct = data;
        stream->have = n;
    } else if (!slab_add(stream, data, n)) {
        refuse_for_memory(stream);
        return size;
    }
    if (stream->have == stream->need)
        message_whole(stream);
    return n;
}

size_t h2_message_add(struct h2_stream *stream, const uint8_t *data, size_t size)
{
    size_t used = 0;
    if (stream->discard || stream->finished || !stream->method)
        return size;
    if (stream->whole && !stream->method->streams) {
        struct error err;
        error_set(&err, STATUS_INVALID_ARGUMENT, "two messages in a call that takes one");
        refuse(stream, &err);
        return size;
    }
    if (stream->n_prefix < H2_PREFIX && !prefix_add(stream, data, size, &used))
        return stream->discard ? size : used;
    return used + body_add(stream, data + used, size - used);
}

size_t h2_message_room(const struct h2_stream *stream, uint8_t **at)
{
    if (!stream->slab || stream->whole || stream->discard)
        return 0;
    *at = stream->slab->data + stream->have;
    return MIN(stream->slab->size, stream->need) - stream->have; /* the next message has its own */
}

void h2_message_keep(struct h2_stream *stream)
{
    if (!stream->direct)
        return;
    const uint8_t *from = stream->direct;
    stream->direct = NULL;
    stream->have = 0;
    if (stream->need ? !slab_add(stream, from, stream->need) : !slab_move(stream, 1))
        refuse_for_memory(stream);
}

/* --- handing on --- */

/* The time that the call has left. False: none. */
static bool timeout_set(const struct h2_stream *stream, struct request *request)
{
    if (!stream->deadline_ns)
        return true;
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= stream->deadline_ns)
        return false;
    uint64_t left_us = MAX((stream->deadline_ns - now_ns) / NS_PER_US, UINT64_C(1));
    if (!request->timeout_us || request->timeout_us > left_us)
        request->timeout_us = left_us;
    return true;
}

/* Makes a request of a message. *done: it has been answered already. */
static enum status request_make(struct h2_stream *stream, const void *message, size_t size,
                                struct request *request, bool *done, struct error *err)
{
    TRY(h2_method_decode(stream, message, size, request, done, err));
    if (*done) /* and the stream may be gone */
        return STATUS_OK;
    request->token = stream->token;
    request->traceparent = stream->traceparent;
    if (!timeout_set(stream, request))
        return error_plain(err, CAUSE_EXPIRED);
    return STATUS_OK;
}

/* Puts what a message inflates to in its place. False: it is not all there yet, or refused. */
static bool inflated(struct h2_stream *stream)
{
    struct session *s = stream->session;
    struct error err;
    bool done;
    const uint8_t *from = stream->slab ? stream->slab->data : stream->direct;
    enum inflate_coding coding = stream->encoding == H2_GZIP ? INFLATE_GZIP : INFLATE_ZLIB;
    if (!stream->inflate && !(stream->inflate = inflate_new(s->host, coding, stream->need))) {
        error_plain(&err, CAUSE_OVER_BUDGET);
        refuse(stream, &err);
        return false;
    }
    if (inflate_go_on(stream->inflate, from, &done, &err)) {
        refuse(stream, &err);
        return false;
    }
    if (!done)
        return false;
    slab_give(stream);
    stream->slab = inflate_take(STEAL(stream->inflate), &stream->need);
    stream->direct = NULL;
    stream->prefix[0] = 0;
    s->partial_bytes += stream->slab->charge;
    return true;
}

void h2_message_hand_on(struct h2_stream *stream)
{
    if (stream->prefix[0] && !inflated(stream))
        return;
    struct session *s = stream->session;
    struct session_host *host = s->host;
    struct request *request = host->ops->scratch(host);
    struct slab *slab = STEAL(stream->slab);
    const void *message = slab ? slab->data : stream->direct;
    size_t size = stream->need;
    int32_t id = stream->id;
    uint32_t number = stream->next_in++;
    struct error err;
    bool done = false;
    if (slab)
        s->partial_bytes -= slab->charge;
    message_forget(stream);
    h2_ready_remove(stream);
    stream->n_open++;
    enum status status = request_make(stream, message, size, request, &done, &err);
    request->id = (uint64_t)number << 32 | (uint32_t)id;
    s->infer_id = request->infer_id;
    if (status)
        host->ops->malformed(host, request->id, &err);
    else if (!done)
        host->ops->request(host, request, slab && size > SESSION_LARGE ? STEAL(slab) : NULL);
    s->infer_id = (struct message_text){0};
    host->ops->slab_give(host, slab);
    if ((stream = h2_stream_of(s, id)))
        h2_stream_settle(stream);
}
