/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of HTTP/2, see h2.h.
 *
 * Bytes go through nghttp2 until there is a message to hand on; then nghttp2 rests, for what is
 * handed on may be answered at once. A host that pauses keeps messages waiting in `ready`, and what
 * was read behind them in a slab of its own.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "daemon/h2.h"

uint64_t h2_now_ms(void)
{
    return clock_now_ns() / NS_PER_MS;
}

void h2_end(struct session *s, enum session_end why)
{
    if (s->ended)
        return;
    s->ended = true;
    s->host->ops->end(s->host, why);
}

/* --- what nghttp2 calls --- */

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct h2_stream *stream = h2_stream_new(user, frame->hd.stream_id);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(ng, stream->id, stream);
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags UNUSED,
                     void *user)
{
    struct h2_stream *stream = h2_stream_of(user, frame->hd.stream_id);
    const struct message_text n = {(const char *)name, name_len};
    const struct message_text v = {(const char *)value, value_len};
    if (!stream)
        return 0;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST ? h2_stream_header(stream, n, v)
                                                   : ++stream->n_headers <= H2_HEADERS)
        return 0;
    nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_begin_frame(nghttp2_session *ng UNUSED, const nghttp2_frame_hd *head, void *user)
{
    struct session *s = user;
    s->landing = NULL;
    s->landing_left = 0;
    if (head->type == NGHTTP2_DATA) {
        s->landing = h2_stream_of(s, head->stream_id);
        s->landing_left = head->flags & NGHTTP2_FLAG_PADDED ? 0 : head->length;
    }
    return 0;
}

static const uint8_t goodbye[8] = {'g', 'o', 'o', 'd', 'b', 'y', 'e', '!'};

/* The second step of a goodbye: the peer knows of the first, so that no call is under way of which
 * we do not know. Calls that nothing is asked in end now, others with their last answer. */
static void goodbye_end(struct session *s)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(s->ng);
    if (s->draining_ms <= 1)
        return;
    s->draining_ms = 1;
    nghttp2_submit_goaway(s->ng, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    for (struct h2_stream *stream = s->streams, *next; stream; stream = next) {
        next = stream->next;
        h2_stream_settle(stream);
    }
}

static int on_frame(nghttp2_session *ng UNUSED, const nghttp2_frame *frame, void *user)
{
    struct session *s = user;
    struct h2_stream *stream = NULL;
    if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK &&
        memcmp(frame->ping.opaque_data, goodbye, sizeof(goodbye)) == 0)
        goodbye_end(s);
    if (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)
        stream = h2_stream_of(s, frame->hd.stream_id);
    if (!stream)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        h2_stream_begin(stream);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        h2_stream_end(stream);
    return 0;
}

static int on_data(nghttp2_session *ng UNUSED, uint8_t flags UNUSED, int32_t id,
                   const uint8_t *data, size_t size, void *user)
{
    struct session *s = user;
    struct h2_stream *stream = h2_stream_of(s, id);
    if (s->landing_left)
        s->landing_left -= MIN(size, s->landing_left);
    if (!stream)
        return 0;
    size_t used = 0;
    while (used < size && !stream->is_ready)
        used += h2_message_add(stream, data + used, size - used);
    if (used == size && !stream->is_ready)
        return 0;
    /* A message is whole in a call that may bring others: it goes on when that is handed on. */
    stream->rest = data + used;
    stream->rest_end = data + size;
    s->resting = stream;
    s->interrupted = true;
    return NGHTTP2_ERR_PAUSE;
}

static int on_close(nghttp2_session *ng, int32_t id, uint32_t code UNUSED, void *user)
{
    struct h2_stream *stream = h2_stream_of(user, id);
    if (!stream)
        return 0;
    nghttp2_session_set_stream_user_data(ng, id, NULL);
    h2_stream_free(stream);
    return 0;
}

/* A peer that makes us reset its streams works us as much as one that resets them. And a call that
 * we have answered before its client was done is over. */
static int on_sent(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct session *s = user;
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
        !h2_calm_spend(&s->calm, H2_CALM_RESET, h2_now_ms()))
        nghttp2_session_terminate_session(ng, NGHTTP2_ENHANCE_YOUR_CALM);
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        s->why = SESSION_FLOOD;
    if (frame->hd.type == NGHTTP2_GOAWAY && s->draining_ms > 1) /* pings overtake what waits */
        nghttp2_submit_ping(ng, NGHTTP2_FLAG_NONE, goodbye);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        struct h2_stream *stream = h2_stream_of(s, frame->hd.stream_id);
        if (stream && !stream->ended)
            nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static ssize_t on_read_length(nghttp2_session *ng UNUSED, uint8_t type UNUSED, int32_t id UNUSED,
                              int32_t session_window, int32_t stream_window, uint32_t frame_most,
                              void *user UNUSED)
{
    size_t window = (size_t)MAX(MIN(session_window, stream_window), 0);
    return (ssize_t)MIN(MIN(window, (size_t)frame_most), (size_t)H2_SEND_MOST);
}

/* --- life --- */

static int callbacks_make(nghttp2_session_callbacks **out)
{
    int r = nghttp2_session_callbacks_new(out);
    if (r)
        return r;
    nghttp2_session_callbacks_set_on_begin_headers_callback(*out, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(*out, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(*out, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(*out, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(*out, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(*out, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(*out, on_sent);
    nghttp2_session_callbacks_set_data_source_read_length_callback(*out, on_read_length);
    nghttp2_session_callbacks_set_send_data_callback(*out, h2_on_send_data);
    return 0;
}

static int ng_make(struct session *s)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int r = callbacks_make(&callbacks);
    if (!r)
        r = nghttp2_option_new(&option);
    if (!r) {
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_stream_reset_rate_limit(option, H2_CALM_MOST / H2_CALM_RESET,
                                                   H2_CALM_A_SECOND / H2_CALM_RESET);
        r = nghttp2_session_server_new2(&s->ng, callbacks, s, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return r;
}

static int settings_submit(struct session *s)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, H2_FRAME_MOST},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEADER_BYTES},
    };
    int r = nghttp2_submit_settings(s->ng, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    return r ? r : nghttp2_session_set_local_window_size(s->ng, NGHTTP2_FLAG_NONE, 0, H2_WINDOW);
}

static struct session *h2_create(struct session_host *host)
{
    struct session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->host = host;
    s->why = SESSION_DONE;
    h2_calm_init(&s->calm, h2_now_ms());
    if (ng_make(s) == 0 && settings_submit(s) == 0)
        return s;
    nghttp2_session_del(s->ng);
    free(s);
    return NULL;
}

static void h2_destroy(struct session *s)
{
    if (!s)
        return;
    s->ended = true;
    while (s->streams)
        h2_stream_free(s->streams);
    while (s->spent) {
        struct slab *slab = s->spent;
        s->spent = slab->next;
        s->host->ops->reply_give(s->host, slab);
    }
    s->host->ops->slab_give(s->host, s->held);
    nghttp2_session_del(s->ng);
    free(s);
}

/* --- input --- */

static bool paused(const struct session *s)
{
    return s->host->ops->paused(s->host);
}

/* Tells the peer why, and ends. */
static void part(struct session *s, uint32_t code)
{
    nghttp2_session_terminate_session(s->ng, code);
    h2_send(s);
    h2_end(s, SESSION_FLOOD);
}

/* nghttp2 says that the peer breaks the protocol; what it wants to tell the peer goes out first. */
static void broken(struct session *s, int code)
{
    bool foreign = code == NGHTTP2_ERR_BAD_CLIENT_MAGIC;
    if (code == NGHTTP2_ERR_NOMEM) {
        h2_end(s, SESSION_NO_MEMORY);
        return;
    }
    if (foreign)
        h2_end(s, SESSION_FOREIGN);
    else
        part(s, code == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
}

/* Hands on what is whole, unless the host has had enough. */
static void ready_hand_on(struct session *s)
{
    while (s->ready && !s->ended && !paused(s))
        h2_message_hand_on(s->ready);
}

/* Takes the bytes behind a message that was handed on. */
static void rest_take(struct session *s)
{
    struct h2_stream *stream = s->resting;
    const uint8_t *at = stream->rest;
    size_t left = (size_t)(stream->rest_end - at);
    size_t n = left ? h2_message_add(stream, at, left) : 0;
    if (s->resting != stream) /* refused */
        return;
    stream->rest = at + n;
    if (n == left && !stream->is_ready) {
        s->resting = NULL;
        stream->rest = stream->rest_end = NULL;
        h2_stream_settle(stream);
    }
}

/* Uses what was read, as far as the host lets it. */
static void use(struct session *s)
{
    while (!s->ended) {
        ready_hand_on(s);
        if (s->ended || paused(s))
            break;
        if (s->resting) {
            rest_take(s);
            continue;
        }
        if (s->at == s->end && !s->interrupted)
            break;
        s->interrupted = false;
        ssize_t n = nghttp2_session_mem_recv(s->ng, s->at, (size_t)(s->end - s->at));
        if (n < 0) {
            broken(s, (int)n);
            return;
        }
        s->at += n;
    }
    h2_send(s);
}

/* --- what is kept --- */

/* The first of the bytes that are still of use; `end`: none is. */
static const uint8_t *used_from(const struct session *s)
{
    const uint8_t *from = s->at;
    if (s->resting)
        from = MIN(from, s->resting->rest);
    for (const struct h2_stream *stream = s->streams; stream; stream = stream->next)
        if (stream->direct)
            from = MIN(from, stream->direct);
    return from;
}

/* Messages that wait for the end of their call do not stay where they were read. */
static void directs_keep(struct session *s)
{
    for (struct h2_stream *stream = s->streams, *next; stream && !s->ended; stream = next) {
        next = stream->next;
        h2_message_keep(stream);
    }
}

/* Keeps all that follows the message at which the host paused, and all messages that wait. */
static void hold(struct session *s)
{
    const uint8_t *from = used_from(s);
    size_t size = (size_t)(s->end - from);
    if (s->held || !size)
        return;
    struct slab *slab = s->host->ops->slab_left(s->host, size);
    if (!slab) {
        h2_end(s, SESSION_NO_MEMORY);
        return;
    }
    memcpy(slab->data, from, size);
    for (struct h2_stream *stream = s->streams; stream; stream = stream->next)
        if (stream->direct)
            stream->direct = slab->data + (stream->direct - from);
    if (s->resting) {
        s->resting->rest = slab->data + (s->resting->rest - from);
        s->resting->rest_end = slab->data + (s->resting->rest_end - from);
    }
    s->at = slab->data + (s->at - from);
    s->end = slab->data + size;
    s->held = slab;
}

static bool h2_waiting(const struct session *s)
{
    return !s->ended && (s->ready || s->resting || s->interrupted || s->at < s->end);
}

static void use_and_keep(struct session *s)
{
    use(s);
    if (s->ended)
        return;
    if (h2_waiting(s)) {
        hold(s);
        return;
    }
    directs_keep(s);
    s->at = s->end = NULL;
    s->host->ops->slab_give(s->host, STEAL(s->held));
    h2_send(s);
}

static void h2_input(struct session *s, const void *data, size_t size)
{
    if (s->ended)
        return;
    enum h2_calm_verdict verdict = h2_calm_feed(&s->calm, data, size, h2_now_ms());
    if (verdict) {
        part(s, NGHTTP2_ENHANCE_YOUR_CALM);
        return;
    }
    s->at = data;
    s->end = s->at + size;
    use_and_keep(s);
}

static void h2_resume(struct session *s)
{
    if (h2_waiting(s))
        use_and_keep(s);
}

static void h2_buffer(struct session *s, void **at, size_t *size)
{
    uint8_t *place = NULL;
    size_t room = s->landing && s->landing_left && !s->ended && !h2_waiting(s)
                      ? h2_message_room(s->landing, &place)
                      : 0;
    *size = MIN(room, s->landing_left);
    *at = place;
}

/* The frame that is landing does not end its message, so it hands on nothing. */
static bool h2_goes_on(const struct session *s)
{
    const struct h2_stream *stream = s->landing;
    return stream && stream->need - stream->have > s->landing_left;
}

static size_t h2_wants(const struct session *s)
{
    if (s->calm.preface < H2_PREFACE)
        return H2_PREFACE - s->calm.preface;
    size_t left = h2_calm_left(&s->calm);
    return left ? left : H2_FRAME_HEAD;
}

static size_t h2_due(const struct session *s)
{
    size_t least = 0;
    for (const struct h2_stream *stream = s->owing; stream; stream = stream->next_owing) {
        if (!h2_message_comes(stream))
            continue;
        if (stream->n_prefix < H2_PREFIX)
            return 0;
        size_t left = stream->need - stream->have;
        least = least ? MIN(least, left) : left;
    }
    return least;
}

/* --- time --- */

/* Tells of heads alone: messages have clocks of their own (h2_expire). */
static void h2_state(const struct session *s, struct session_state *out)
{
    *out = (struct session_state){.message = s->calm.heads};
    if (h2_calm_in_head(&s->calm))
        out->wait = SESSION_WAIT_HEAD;
    else if (s->streams)
        out->wait = SESSION_WAIT_OPEN;
}

static void clocks_tick(struct session *s, const struct session_pace *pace)
{
    uint32_t sharers = 0;
    for (const struct h2_stream *stream = s->owing; stream; stream = stream->next_owing)
        sharers += h2_message_comes(stream);
    for (struct h2_stream *stream = s->owing; stream; stream = stream->next_owing)
        session_clock_tick(&stream->clock, stream->have, sharers,
                           pace->stopped || stream->turn.state == TURN_WAITS, pace);
}

/* What is whole is not slow, however long its call takes to end. */
static enum session_lateness lateness_of(const struct h2_stream *stream,
                                         const struct session_pace *pace)
{
    enum session_lateness lateness = session_lateness(&stream->clock, stream->have, pace);
    return stream->whole && lateness == SESSION_SLOW ? SESSION_IN_TIME : lateness;
}

static struct h2_stream *late_find(const struct session *s, const struct session_pace *pace,
                                   enum session_lateness *lateness)
{
    for (struct h2_stream *stream = s->owing; stream; stream = stream->next_owing)
        if ((*lateness = lateness_of(stream, pace)))
            return stream;
    return NULL;
}

static void late_explain(const struct h2_stream *stream, struct error *err)
{
    if (!stream->n_prefix)
        error_set(err, STATUS_DEADLINE_EXCEEDED, "the message of this call took too long to begin");
    else
        error_set(err, STATUS_DEADLINE_EXCEEDED, "a message of %zu bytes took too long to %s",
                  stream->need, stream->whole ? "be followed by the end of its call" : "come");
}

/* Gives up the calls that are late, each alone, and all of them at this tick. */
static void h2_expire(struct session *s, const struct session_pace *pace,
                      uint32_t late[SESSION_LATENESSES])
{
    struct h2_stream *stream;
    enum session_lateness lateness;
    struct error err;
    if (s->ended)
        return;
    clocks_tick(s, pace);
    while (!s->ended && (stream = late_find(s, pace, &lateness))) {
        late_explain(stream, &err);
        h2_finish_error(stream, &err);
        h2_message_drop(stream); /* takes it out of the list */
        late[lateness]++;
    }
    h2_send(s);
}

static void h2_tick(struct session *s, uint64_t now_ms UNUSED)
{
    if (s->ended)
        return;
    h2_watch(s);
    if (s->draining_ms > 1 && h2_now_ms() - s->draining_ms >= H2_DRAIN_MS)
        goodbye_end(s);
    h2_send(s);
}

static void h2_drain(struct session *s)
{
    if (s->ended || s->draining_ms)
        return;
    s->draining_ms = MAX(h2_now_ms(), UINT64_C(2));
    nghttp2_submit_shutdown_notice(s->ng);
    h2_watch(s);
    h2_send(s);
}

/* A message that is ready may still have to be inflated. Each call has one more at most. */
static bool h2_parting(const struct session *s)
{
    return !s->ended && (s->draining_ms > 1 || (s->draining_ms && s->ready));
}

static size_t h2_unsent(const struct session *s)
{
    return s->ended ? 0 : s->unsent;
}

const struct session_ops session_h2 = {
    .name = "grpc",
    .format = SESSION_PROTOBUF,
    .encode = body_encode,
    .create = h2_create,
    .destroy = h2_destroy,
    .buffer = h2_buffer,
    .goes_on = h2_goes_on,
    .wants = h2_wants,
    .due = h2_due,
    .input = h2_input,
    .waiting = h2_waiting,
    .resume = h2_resume,
    .reply = h2_reply,
    .state = h2_state,
    .drain = h2_drain,
    .unsent = h2_unsent,
    .parting = h2_parting,
    .tick = h2_tick,
    .expire = h2_expire,
};
