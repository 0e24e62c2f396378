/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames go out, see h2.h. nghttp2 decides which frame is next and how much of a message the
 * windows take; its bytes are gathered as pieces, small ones in room of the host, large ones where
 * they lie.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "daemon/h2.h"

/* --- pieces --- */

static void pieces_write(struct session *s)
{
    if (s->n_pieces)
        s->host->ops->write(s->host, s->pieces, s->n_pieces);
    s->n_pieces = 0;
}

static void piece_add(struct session *s, const uint8_t *data, size_t size)
{
    struct iovec *last = s->n_pieces ? &s->pieces[s->n_pieces - 1] : NULL;
    if (last && (const uint8_t *)last->iov_base + last->iov_len == data) {
        last->iov_len += size;
        return;
    }
    if (s->n_pieces == H2_PIECES)
        pieces_write(s);
    s->pieces[s->n_pieces++] = (struct iovec){(void *)(uintptr_t)data, size};
}

static void out_keep(struct session *s);

uint8_t *h2_room(struct session *s, size_t size)
{
    if ((size_t)(s->room_end - s->room) < size) {
        size_t get = MAX(size, (size_t)H2_ROOM);
        pieces_write(s);
        out_keep(s); /* its head may lie in the room that is left now */
        s->room = s->host->ops->room(s->host, get);
        s->room_end = s->room + get;
    }
    return s->room;
}

static void copy_add(struct session *s, const void *data, size_t size)
{
    const uint8_t *from = data;
    while (size) {
        size_t n = MIN(size, (size_t)H2_ROOM);
        uint8_t *to = h2_room(s, n);
        memcpy(to, from, n);
        s->room += n;
        piece_add(s, to, n);
        from += n;
        size -= n;
    }
}

/* --- messages --- */

void h2_out_free(struct session *s, struct h2_out *out)
{
    if (s->now == out)
        s->now = NULL;
    if (!out->slab)
        return;
    if (out->left < out->own.iov_len) { /* pieces that were written lie in it */
        pieces_write(s);
        s->host->ops->flush(s->host);
    }
    s->unsent -= out->left;
    s->host->ops->reply_give(s->host, out->slab);
}

/* Moves what is left of a message into memory of its own. NULL: there is none. */
static struct h2_out *out_copy(struct session *s, const struct h2_out *out)
{
    struct slab *slab = s->host->ops->reply_take(s->host, sizeof(struct h2_out) + out->left);
    if (!slab)
        return NULL;
    struct h2_out *copy = (struct h2_out *)(void *)slab->data;
    uint8_t *begin = slab->data + sizeof(*copy), *to = begin;
    size_t left = out->left, skip = out->skip;
    for (const struct iovec *v = out->at; left; v++, skip = 0) {
        size_t n = MIN(left, v->iov_len - skip);
        memcpy(to, (const uint8_t *)v->iov_base + skip, n);
        to += n;
        left -= n;
    }
    *copy = (struct h2_out){.next = out->next,
                            .number = out->number,
                            .left = out->left,
                            .slab = slab,
                            .own = {begin, out->left}};
    copy->at = &copy->own;
    s->unsent += copy->left;
    return copy;
}

static void list_replace(struct h2_out **list, const struct h2_out *out, struct h2_out *by)
{
    while (*list && *list != out)
        list = &(*list)->next;
    if (*list)
        *list = by ? by : out->next;
}

/* Copies what has not gone of the answer that is being sent, before its bytes go away. */
static void out_keep(struct session *s)
{
    struct h2_out *now = STEAL(s->now);
    struct h2_stream *stream = s->now_stream;
    if (!now)
        return;
    struct h2_out *copy = out_copy(s, now);
    list_replace(&stream->out, now, copy);
    list_replace(&stream->early, now, copy);
    if (!copy) /* it cannot be answered any more */
        nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* The first message of the stream is sent. */
static void out_pop(struct h2_stream *stream)
{
    struct session *s = stream->session;
    struct h2_out *out = stream->out;
    stream->out = out->next;
    h2_calm_earn(&s->calm, H2_CALM_ANSWER);
    if (s->now == out)
        s->now = NULL;
    if (out->slab) {
        out->slab->next = s->spent;
        s->spent = out->slab;
    }
}

ssize_t h2_on_read(nghttp2_session *ng UNUSED, int32_t id UNUSED, uint8_t *buffer UNUSED,
                   size_t length, uint32_t *flags, nghttp2_data_source *source, void *user UNUSED)
{
    struct h2_stream *stream = source->ptr;
    struct h2_out *out = stream->out;
    size_t n = out ? MIN(length, out->left) : 0;
    bool last = stream->finished && (!out || (n == out->left && !out->next));
    if (!out && !last)
        return NGHTTP2_ERR_DEFERRED;
    if (last) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        h2_trailers_submit(stream);
    }
    if (n)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)n;
}

int h2_on_send_data(nghttp2_session *ng UNUSED, nghttp2_frame *frame UNUSED, const uint8_t *head,
                    size_t length, nghttp2_data_source *source, void *user UNUSED)
{
    struct h2_stream *stream = source->ptr;
    struct session *s = stream->session;
    copy_add(s, head, H2_FRAME_HEAD);
    if (length <= H2_COPY)
        h2_room(s, length); /* before looking at the message, which this may move */
    struct h2_out *out = stream->out;
    if (!out)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    h2_calm_earn(&s->calm, length / H2_CALM_BYTES);
    out->left -= length;
    if (out->slab)
        s->unsent -= length;
    while (length) {
        size_t n = MIN(length, out->at->iov_len - out->skip);
        const uint8_t *from = (const uint8_t *)out->at->iov_base + out->skip;
        if (n <= (size_t)(s->room_end - s->room) && n <= H2_COPY)
            copy_add(s, from, n);
        else
            piece_add(s, from, n);
        length -= n;
        out->skip += n;
        if (out->skip == out->at->iov_len) {
            out->at++;
            out->skip = 0;
        }
    }
    if (!out->left)
        out_pop(stream);
    return 0;
}

/* --- a pass --- */

static void spent_give(struct session *s)
{
    if (s->spent)
        s->host->ops->flush(s->host); /* pieces lie there */
    while (s->spent) {
        struct slab *slab = s->spent;
        s->spent = slab->next;
        s->host->ops->reply_give(s->host, slab);
    }
}

void h2_send(struct session *s)
{
    const uint8_t *data;
    ssize_t n = 0;
    if (s->sending || s->ended)
        return;
    s->sending = true;
    while ((n = nghttp2_session_mem_send(s->ng, &data)) > 0)
        copy_add(s, data, (size_t)n);
    out_keep(s);
    pieces_write(s);
    if (s->room_end > s->room)
        s->host->ops->room_give(s->host, (size_t)(s->room_end - s->room));
    s->room = s->room_end = NULL;
    spent_give(s);
    s->sending = false;
    if (n < 0)
        h2_end(s, SESSION_NO_MEMORY);
    else if (!nghttp2_session_want_read(s->ng) && !nghttp2_session_want_write(s->ng))
        h2_end(s, s->why);
}

/* Puts a message in its place: answers go out in the order of their requests. */
static void out_add(struct h2_stream *stream, struct h2_out *out)
{
    struct h2_out **list = &stream->early;
    while (*list && (*list)->number < out->number)
        list = &(*list)->next;
    out->next = *list;
    *list = out;
    list = &stream->out;
    while (*list)
        list = &(*list)->next;
    while (stream->early && stream->early->number == stream->next_out) {
        *list = stream->early;
        stream->early = stream->early->next;
        list = &(*list)->next;
        *list = NULL;
        stream->next_out++;
    }
}

void h2_bytes_send(struct h2_stream *stream, uint32_t number, struct message_text message)
{
    struct session *s = stream->session;
    size_t n = message.len;
    const uint8_t prefix[H2_PREFIX] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                       (uint8_t)n};
    uint8_t *room = h2_room(s, sizeof(prefix) + H2_ROOM);
    memcpy(room, prefix, sizeof(prefix));
    s->room += sizeof(prefix);
    const struct iovec iov[] = {{room, sizeof(prefix)}, {(void *)(uintptr_t)message.data, n}};
    h2_message_send(stream, number, iov, n ? 2 : 1);
}

void h2_message_send(struct h2_stream *stream, uint32_t number, const struct iovec *iov, uint32_t n)
{
    struct session *s = stream->session;
    struct h2_out now = {.number = number, .at = iov};
    for (uint32_t i = 0; i < n; i++)
        now.left += iov[i].iov_len;
    out_add(stream, &now);
    s->now = &now;
    s->now_stream = stream;
    if (stream->began)
        nghttp2_session_resume_data(s->ng, stream->id);
    h2_send(s);
}
