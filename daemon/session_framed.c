/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framed protocol: a 4-byte length, a message; see docs/protocol.md.
 *
 * Frames are decoded where they were read if they are whole. What is not whole is kept in a slab
 * that grows with what has really come (R1): to 4, 16, 64 KiB, and only then to the frame's length;
 * from there on the connection reads straight into it. Such a large frame's slab is handed over
 * with the request, so its payload is never copied.
 *
 * A frame that finds no budget is answered RESOURCE_EXHAUSTED and its bytes are thrown away as they
 * come. A length beyond the limit ends the session: nothing says where the next frame begins.
 */
#include "daemon/session.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/frame.h"

enum { FIRST_SLAB = 4 * 1024, LARGE_FRAME = 64 * 1024 };

struct session {
    struct session_host *host;
    struct slab *kept; /* bytes not yet used; NULL: none */
    size_t at, have;   /* they are [at, have) of kept */
    size_t need;       /* of the frame at `at`, head included; 0: not known yet */
    size_t discard;    /* bytes of a refused frame still to come, */
    size_t refused;    /* of so many */
    uint64_t message;
    bool ended;
};

static struct session *framed_create(struct session_host *host)
{
    struct session *s = calloc(1, sizeof(*s));
    if (s)
        s->host = host;
    return s;
}

static void framed_destroy(struct session *s)
{
    if (!s)
        return;
    s->host->ops->slab_give(s->host, s->kept);
    free(s);
}

static void framed_reply(struct session *s, const struct response *response)
{
    struct iovec iov[MESSAGE_MAX_IOV];
    struct error err;
    uint32_t n;
    void *head = s->host->ops->head(s->host);
    if (response_encode(response, head, iov, &n, &err) != STATUS_OK) {
        const struct response failed = {
            .id = response->id, .status = err.status, .message = message_text_of(err.text)};
        enum status again = response_encode(&failed, head, iov, &n, NULL);
        assert(again == STATUS_OK); /* an error without a body always fits */
        (void)again;
    }
    s->host->ops->write(s->host, iov, n);
}

static void end(struct session *s, enum session_end why)
{
    s->ended = true;
    s->host->ops->end(s->host, why);
}

/* A whole message. `frame`: the slab that holds it alone, or NULL. */
static void message_take(struct session *s, const void *message, size_t size, struct slab *frame)
{
    struct request *request = s->host->ops->scratch(s->host);
    struct error err;
    s->message++;
    if (request_decode(message, size, request, &err) == STATUS_OK) {
        s->host->ops->request(s->host, request, frame);
        return;
    }
    s->host->ops->slab_give(s->host, frame);
    s->host->ops->malformed(s->host, request->id, &err);
}

static void too_large(struct session *s, const uint8_t *message, size_t have,
                      const struct error *err)
{
    bool stranger = err->status == STATUS_UNAUTHENTICATED;
    uint64_t id = stranger ? request_id_find(message, have) : 0;
    s->host->ops->malformed(s->host, id, err);
    end(s, stranger ? SESSION_STRANGER : SESSION_TOO_LARGE);
}

/* A frame beyond the limit begins at data[0..have): true if it may be read on. */
static bool large_begin(struct session *s, const uint8_t *data, size_t have, size_t message,
                        enum frame_state *state)
{
    struct error err;
    *state = FRAME_PARTIAL;
    enum status status = s->host->ops->introduce(s->host, data + FRAME_HEAD_BYTES,
                                                 have - FRAME_HEAD_BYTES, message, &err);
    if (status == STATUS_OK && have - FRAME_HEAD_BYTES >= message)
        *state = FRAME_COMPLETE;
    if (status == STATUS_OK || status == STATUS_UNAVAILABLE)
        return true;
    too_large(s, data + FRAME_HEAD_BYTES, have - FRAME_HEAD_BYTES, &err);
    return false;
}

/* Answers a frame for which there is no memory, of which `have` bytes are here. */
static void frame_refuse(struct session *s, const uint8_t *frame, size_t have, size_t need)
{
    struct error err;
    uint64_t id = 0;
    if (have > FRAME_HEAD_BYTES)
        id = request_id_find(frame + FRAME_HEAD_BYTES, have - FRAME_HEAD_BYTES);
    error_set(&err, STATUS_RESOURCE_EXHAUSTED, "no memory for a frame of %zu bytes now", need);
    s->message++;
    s->discard = need - have;
    s->refused = need;
    s->host->ops->malformed(s->host, id, &err);
}

/* Uses up whole frames at data[0..size); returns how many bytes they were. Stops early when the
 * host pauses or the session ends. `*need` is the length of the frame then begun, 0 if unknown. */
static size_t frames_take(struct session *s, const uint8_t *data, size_t size, size_t *need)
{
    size_t used = 0;
    *need = 0;
    while (!s->ended && !s->host->ops->paused(s->host)) {
        size_t message;
        enum frame_state state =
            frame_peek(data + used, size - used, s->host->ops->frame_limit(s->host), &message);
        if (state == FRAME_TOO_LARGE && !large_begin(s, data + used, size - used, message, &state))
            break;
        if (state == FRAME_PARTIAL) {
            *need = size - used < FRAME_HEAD_BYTES ? 0 : FRAME_HEAD_BYTES + message;
            break;
        }
        message_take(s, data + used + FRAME_HEAD_BYTES, message, NULL);
        used += FRAME_HEAD_BYTES + message;
    }
    return used;
}

/* The slab that `have` bytes of a frame of `need` bytes deserve. */
static size_t kept_size(size_t have, size_t need)
{
    if (have >= LARGE_FRAME)
        return MAX(have, need);
    size_t size = FIRST_SLAB;
    while (size <= have)
        size *= 4;
    return need ? MAX(have, MIN(size, need)) : size;
}

/* Keeps data[0..size), the beginning of a frame or frames that came while paused. */
static void keep(struct session *s, const uint8_t *data, size_t size, size_t need)
{
    /* What came behind a pause is not the frame's fault: it is kept even beyond the budget. */
    bool unknown = need == 0;
    struct slab *slab = s->host->ops->slab_take(s->host, kept_size(size, need), unknown);
    if (!slab) {
        if (unknown)
            end(s, SESSION_NO_MEMORY);
        else
            frame_refuse(s, data, size, need);
        return;
    }
    memcpy(slab->data, data, size);
    s->kept = slab;
    s->at = 0;
    s->have = size;
    s->need = need;
}

static void kept_drop(struct session *s)
{
    s->host->ops->slab_give(s->host, s->kept);
    s->kept = NULL;
    s->at = s->have = s->need = 0;
}

/* Room for more of the frame that is being kept. */
static void kept_grow(struct session *s)
{
    struct slab *old = s->kept;
    size_t want = kept_size(s->have, s->need);
    if (s->have < old->size && want <= old->size)
        return;
    struct slab *slab = s->host->ops->slab_take(s->host, want, false);
    if (slab) {
        memcpy(slab->data, old->data, s->have);
        s->kept = slab;
        s->host->ops->slab_give(s->host, old);
        return;
    }
    size_t have = s->have, need = s->need;
    s->kept = NULL;
    s->at = s->have = s->need = 0;
    if (need)
        frame_refuse(s, old->data, have, need);
    else
        end(s, SESSION_NO_MEMORY);
    s->host->ops->slab_give(s->host, old);
}

/* A whole large frame, alone in its slab. */
static void kept_hand_over(struct session *s)
{
    struct slab *frame = s->kept;
    size_t size = s->need - FRAME_HEAD_BYTES;
    s->kept = NULL;
    s->at = s->have = s->need = 0;
    message_take(s, frame->data + FRAME_HEAD_BYTES, size, frame);
}

/* Uses what is kept, as far as the host lets it; then makes room for what is missing. */
static void kept_use(struct session *s)
{
    if (s->at == 0 && s->need > LARGE_FRAME && s->have == s->need) {
        if (!s->host->ops->paused(s->host))
            kept_hand_over(s);
        return;
    }
    size_t need;
    s->at += frames_take(s, s->kept->data + s->at, s->have - s->at, &need);
    if (s->ended || s->at == s->have) {
        kept_drop(s);
        return;
    }
    if (s->host->ops->paused(s->host))
        return;
    memmove(s->kept->data, s->kept->data + s->at, s->have - s->at);
    s->have -= s->at;
    s->at = 0;
    s->need = need;
    kept_grow(s);
}

/* Where the frame being kept goes on. Not beyond its end: what follows belongs elsewhere. While the
 * head is not complete, that is the head's end. */
static size_t kept_room(const struct session *s)
{
    return (s->need ? MIN(s->need, s->kept->size) : (size_t)FRAME_HEAD_BYTES) - s->have;
}

/* Adds to what is kept; returns how much was taken. */
static size_t kept_add(struct session *s, const uint8_t *data, size_t size)
{
    size_t n = MIN(size, kept_room(s));
    if (data != s->kept->data + s->have) /* else it was read there */
        memcpy(s->kept->data + s->have, data, n);
    s->have += n;
    return n;
}

/* Adds what came behind the request at which the host paused. */
static void kept_append(struct session *s, const uint8_t *data, size_t size)
{
    struct slab *old = s->kept;
    size_t have = s->have - s->at;
    struct slab *slab = s->host->ops->slab_take(s->host, have + size, true);
    if (!slab) {
        end(s, SESSION_NO_MEMORY);
        return;
    }
    memcpy(slab->data, old->data + s->at, have);
    memcpy(slab->data + have, data, size);
    s->host->ops->slab_give(s->host, old);
    s->kept = slab;
    s->at = s->need = 0;
    s->have = have + size;
}

static void framed_resume(struct session *s)
{
    if (s->kept && !s->ended)
        kept_use(s);
}

static void framed_input(struct session *s, const void *data, size_t size)
{
    const uint8_t *from = data;
    if (s->at) /* kept when the host was paused */
        framed_resume(s);
    while (size && !s->ended) {
        if (s->kept && s->host->ops->paused(s->host)) {
            kept_append(s, from, size);
            return;
        }
        if (s->discard) {
            size_t n = MIN(size, s->discard);
            s->discard -= n;
            from += n;
            size -= n;
        } else if (s->kept) {
            size_t n = kept_add(s, from, size);
            from += n;
            size -= n;
            kept_use(s);
        } else {
            size_t need;
            size_t n = frames_take(s, from, size, &need);
            if (n < size && !s->ended)
                keep(s, from + n, size - n, need);
            return;
        }
    }
}

static void framed_buffer(struct session *s, void **at, size_t *size)
{
    *size = 0;
    if (s->kept && !s->at && !s->ended) {
        *at = s->kept->data + s->have;
        *size = kept_room(s);
    }
}

static void framed_state(const struct session *s, struct session_state *out)
{
    out->message = s->message;
    out->received = s->have - s->at;
    out->wait = SESSION_WAIT_NOTHING;
    if (s->discard) {
        out->wait = SESSION_WAIT_BODY;
        out->received = s->refused - s->discard;
    } else if (s->kept) {
        out->wait = s->need ? SESSION_WAIT_BODY : SESSION_WAIT_HEAD;
    }
}

const struct session_ops session_framed = {
    .name = "framed",
    .create = framed_create,
    .destroy = framed_destroy,
    .buffer = framed_buffer,
    .input = framed_input,
    .resume = framed_resume,
    .reply = framed_reply,
    .state = framed_state,
};
