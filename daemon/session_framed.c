/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framed protocol: a 4-byte length, a message; see docs/protocol.md.
 *
 * A whole frame is decoded where it was read. A part of a frame is kept in a slab that grows with
 * what has come (R1 of docs/operations.md): to at most four times the bytes that are here or wait
 * in the socket, and twice beyond 128 KiB. Once the head of 4 bytes is there, the connection reads
 * straight into the slab. The slab of a large frame is handed over with the request, so its payload
 * is not copied again.
 *
 * A frame that finds no budget is answered RESOURCE_EXHAUSTED and its bytes are thrown away as they
 * come. A length beyond the limit ends the session: nothing says where the next frame begins.
 */
#include "daemon/session.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/frame.h"

struct session {
    struct session_host *host;
    /* The head of a frame, or a part of it, while no more of the frame has come; nothing else is
     * kept then. */
    uint8_t head[FRAME_HEAD_BYTES];
    size_t n_head;
    struct slab *kept; /* bytes not yet used; NULL: none */
    size_t at, have;   /* they are [at, have) of kept */
    size_t need;       /* of the frame at `at`, head included; 0: not looked at yet */
    bool held;         /* kept may have whole frames, because the host was paused */
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
    if (response_encode(response, head, iov, &n, &err)) {
        const struct response failed = {
            .id = response->id, .status = err.status, .message = message_text_of(err.text)};
        enum status failed_status UNUSED = response_encode(&failed, head, iov, &n, NULL);
        assert(!failed_status); /* an error without a body always fits */
    }
    s->host->ops->write(s->host, iov, n);
}

static void end(struct session *s, enum session_end why)
{
    s->ended = true;
    s->host->ops->end(s->host, why);
}

/* Decodes a whole message and hands it on. `frame`: the slab that holds it alone, or NULL. */
static void message_take(struct session *s, const void *message, size_t size, struct slab *frame)
{
    struct request *request = s->host->ops->scratch(s->host);
    struct error err;
    s->message++;
    if (!request_decode(message, size, request, &err)) {
        s->host->ops->request(s->host, request, frame);
        return;
    }
    s->host->ops->slab_give(s->host, frame);
    s->host->ops->malformed(s->host, request->id, &err);
}

/* The other protocol whose clients begin with these bytes; NULL: none that is known. */
static const char *foreign_protocol(const uint8_t *head)
{
    static const struct {
        const char *begin; /* up to four bytes */
        const char *name;
    } known[] = {
        {"GET ", "HTTP"},    {"POST", "HTTP"}, {"PUT ", "HTTP"},
        {"HEAD", "HTTP"},    {"DELE", "HTTP"}, {"OPTI", "HTTP"},
        {"PATC", "HTTP"},    {"CONN", "HTTP"}, {"PRI ", "HTTP/2, as gRPC does"},
        {"\x16\x03", "TLS"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (memcmp(head, known[i].begin, strlen(known[i].begin)) == 0)
            return known[i].name;
    return NULL;
}

static void too_large(struct session *s, const uint8_t *head, const uint8_t *message, size_t have,
                      const struct error *why)
{
    struct error err = *why;
    const char *foreign = s->message == 0 ? foreign_protocol(head) : NULL;
    bool stranger = !foreign && err.status == STATUS_UNAUTHENTICATED;
    if (foreign)
        error_set(&err, STATUS_INVALID_ARGUMENT,
                  "these bytes are %s; this port takes frames of a length and a message", foreign);
    s->host->ops->malformed(s->host, stranger ? request_id_find(message, have) : 0, &err);
    end(s, foreign ? SESSION_FOREIGN : stranger ? SESSION_STRANGER : SESSION_TOO_LARGE);
}

/* Whether a frame with `whole` bytes of message, which begins now, may be read on; if not, the
 * session has ended. A message beyond the limit may be read on only until it has shown whose it
 * is. */
static bool length_allowed(struct session *s, const uint8_t *head, const uint8_t *message,
                           size_t have, size_t whole)
{
    struct error err;
    if (whole <= s->host->ops->frame_limit(s->host))
        return true;
    enum status status = s->host->ops->introduce(s->host, message, have, whole, &err);
    if (!status || status == STATUS_UNAVAILABLE)
        return true;
    too_large(s, head, message, have, &err);
    return false;
}

/* Answers a frame for which there is no memory. Its message has `message` bytes, of which `size`
 * are here, in `data`. */
static void frame_refuse(struct session *s, const uint8_t *data, size_t size, size_t message)
{
    struct error err;
    uint64_t id = request_id_find(data, size);
    error_cause(&err, CAUSE_FRAME_OVER_BUDGET, "no memory for a frame of %zu bytes now",
                FRAME_HEAD_BYTES + message);
    s->message++;
    s->discard = message - size;
    s->refused = message;
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
        enum frame_state state = frame_peek(data + used, size - used, UINT32_MAX, &message);
        const uint8_t *head = data + used;
        if (size - used >= FRAME_HEAD_BYTES &&
            !length_allowed(s, head, head + FRAME_HEAD_BYTES, size - used - FRAME_HEAD_BYTES,
                            message))
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

/* --- what is kept --- */

static bool paused(const struct session *s)
{
    return s->host->ops->paused(s->host);
}

static void kept_forget(struct session *s)
{
    s->kept = NULL;
    s->at = s->have = s->need = 0;
    s->held = false;
}

static void kept_drop(struct session *s)
{
    s->host->ops->slab_give(s->host, s->kept);
    kept_forget(s);
}

/* Keeps the beginning of a frame: its head, and `size` bytes of its message. */
static void frame_begin(struct session *s, const uint8_t *head, const uint8_t *data, size_t size)
{
    size_t message = frame_head_read(head), have = FRAME_HEAD_BYTES + size;
    size_t need = FRAME_HEAD_BYTES + message;
    struct slab *slab = s->host->ops->slab_take(s->host, session_slab_size(s->host, have, need));
    if (!slab) {
        frame_refuse(s, data, size, message);
        return;
    }
    size_t payload =
        need > SESSION_LARGE ? request_payload_find(data, size, SESSION_LARGE, true) : 0;
    if (payload)
        slab_shift(slab, 0, FRAME_HEAD_BYTES + payload);
    memcpy(slab->data, head, FRAME_HEAD_BYTES);
    memcpy(slab->data + FRAME_HEAD_BYTES, data, size);
    s->kept = slab;
    s->have = have;
    s->need = need;
}

/* Puts the frame that is kept into a slab of another size. False: there is no memory. */
static bool kept_move(struct session *s, size_t size)
{
    return session_slab_move(s->host, &s->kept, s->have, size);
}

/* Makes room for more of the frame that is being kept, or moves it to a smaller slab if it lies in
 * a large one that was given for leftovers. */
static void kept_fit(struct session *s)
{
    size_t want = session_slab_size(s->host, s->have, s->need);
    if (s->have < MIN(s->need, s->kept->size)) {
        if (want < s->kept->size / 2)
            kept_move(s, want); /* if not, it stays where it is */
        return;
    }
    if (s->have == s->need)
        return;
    if (kept_move(s, want)) {
        session_turn(s->host, &s->kept, s->have, s->need, NULL);
        return;
    }
    struct slab *old = s->kept;
    size_t have = s->have, need = s->need;
    kept_forget(s);
    frame_refuse(s, old->data + FRAME_HEAD_BYTES, have - FRAME_HEAD_BYTES, need - FRAME_HEAD_BYTES);
    s->host->ops->slab_give(s->host, old);
}

/* Hands over a whole large frame, which is alone in its slab. */
static void kept_hand_over(struct session *s)
{
    struct slab *frame = s->kept;
    size_t size = s->need - FRAME_HEAD_BYTES;
    kept_forget(s);
    message_take(s, frame->data + FRAME_HEAD_BYTES, size, frame);
}

/* Keeps the bytes behind the last whole frame. A head, or a part of one, stays in the session. */
static void rest_keep(struct session *s, const uint8_t *data, size_t size)
{
    if (size > FRAME_HEAD_BYTES) {
        frame_begin(s, data, data + FRAME_HEAD_BYTES, size - FRAME_HEAD_BYTES);
        return;
    }
    memcpy(s->head, data, size);
    s->n_head = size;
}

/* Uses what is kept, as far as the host lets it; then makes room for what is missing. */
static void kept_use(struct session *s)
{
    if (s->at == 0 && s->have < s->need) {
        const uint8_t *head = s->kept->data;
        if (length_allowed(s, head, head + FRAME_HEAD_BYTES, s->have - FRAME_HEAD_BYTES,
                           s->need - FRAME_HEAD_BYTES))
            kept_fit(s);
        else
            kept_drop(s);
        return;
    }
    s->held = paused(s);
    if (s->held)
        return;
    if (s->at == 0 && s->need > SESSION_LARGE && s->have == s->need) {
        kept_hand_over(s);
        return;
    }
    size_t need;
    s->at += frames_take(s, s->kept->data + s->at, s->have - s->at, &need);
    size_t left = s->have - s->at;
    if (s->ended || left == 0) {
        kept_drop(s);
        return;
    }
    s->held = paused(s);
    if (s->held)
        return;
    if (left <= FRAME_HEAD_BYTES) {
        rest_keep(s, s->kept->data + s->at, left);
        kept_drop(s);
        return;
    }
    if (s->at)
        memmove(s->kept->data, s->kept->data + s->at, left);
    s->have = left;
    s->at = 0;
    s->need = need;
    kept_fit(s);
}

/* How much more of the frame being kept has room. It is never more than the frame, because what
 * follows belongs elsewhere. */
static size_t kept_room(const struct session *s)
{
    return MIN(s->need, s->kept->size) - s->have;
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

/* Keeps all that follows the request at which the host paused. */
static void left_keep(struct session *s, const uint8_t *data, size_t size)
{
    s->kept = session_left_keep(s->host, data, size);
    if (!s->kept) {
        end(s, SESSION_NO_MEMORY);
        return;
    }
    s->at = s->need = 0;
    s->have = size;
    s->held = true;
}

/* --- input --- */

/* Goes on with a frame of which only (part of) the head had come; returns how much was taken. */
static size_t head_add(struct session *s, const uint8_t *data, size_t size)
{
    size_t used = MIN(size, FRAME_HEAD_BYTES - s->n_head), message;
    memcpy(s->head + s->n_head, data, used);
    s->n_head += used;
    if (s->n_head < FRAME_HEAD_BYTES)
        return used;
    message = frame_head_read(s->head);
    if (!length_allowed(s, s->head, data + used, size - used, message))
        return used;
    if (size - used >= message) {
        s->n_head = 0;
        message_take(s, data + used, message, NULL);
        used += message;
    } else if (size > used) {
        s->n_head = 0;
        frame_begin(s, s->head, data + used, size - used);
        used = size;
    }
    return used;
}

static size_t discard_take(struct session *s, size_t size)
{
    size_t n = MIN(size, s->discard);
    s->discard -= n;
    return n;
}

static void framed_input(struct session *s, const void *data, size_t size)
{
    const uint8_t *from = data;
    assert(!paused(s)); /* so a kept head is completed before anything else is kept */
    while (size && !s->ended) {
        size_t n, need;
        if (s->discard) {
            n = discard_take(s, size);
        } else if (s->kept) {
            assert(!s->held); /* nothing is read for a session that waits */
            n = kept_add(s, from, size);
            kept_use(s);
        } else if (paused(s)) {
            left_keep(s, from, size);
            return;
        } else if (s->n_head) {
            n = head_add(s, from, size);
        } else {
            n = frames_take(s, from, size, &need);
            if (n < size && !s->ended && !paused(s)) {
                rest_keep(s, from + n, size - n);
                return;
            }
        }
        from += n;
        size -= n;
    }
}

static void framed_resume(struct session *s)
{
    if (s->held && !s->ended)
        kept_use(s);
}

static bool framed_waiting(const struct session *s)
{
    return s->held && !s->ended;
}

static void framed_buffer(struct session *s, void **at, size_t *size)
{
    *size = 0;
    if (s->kept && !s->held && !s->ended) {
        *at = s->kept->data + s->have;
        *size = kept_room(s);
    }
}

static size_t framed_wants(const struct session *s)
{
    if (s->discard)
        return s->discard;
    if (s->kept)
        return kept_room(s);
    size_t message = s->n_head == FRAME_HEAD_BYTES ? frame_head_read(s->head) : 0;
    return message ? message : MAX(FRAME_HEAD_BYTES - s->n_head, (size_t)1);
}

static size_t framed_due(const struct session *s)
{
    return s->kept && !s->discard ? kept_room(s) : 0;
}

static void framed_state(const struct session *s, struct session_state *out)
{
    out->message = s->message;
    out->received = s->kept ? s->have - s->at : s->n_head;
    out->wait = SESSION_WAIT_NOTHING;
    if (s->discard) {
        out->wait = SESSION_WAIT_BODY;
        out->received = s->refused - s->discard;
    } else if (s->kept || s->n_head == FRAME_HEAD_BYTES) {
        out->wait = SESSION_WAIT_BODY;
    } else if (s->n_head) {
        out->wait = SESSION_WAIT_HEAD;
    }
}

const struct session_ops session_framed = {
    .name = "framed",
    .format = SESSION_PROTOBUF,
    .encode = body_encode,
    .create = framed_create,
    .destroy = framed_destroy,
    .buffer = framed_buffer,
    .wants = framed_wants,
    .due = framed_due,
    .input = framed_input,
    .waiting = framed_waiting,
    .resume = framed_resume,
    .reply = framed_reply,
    .state = framed_state,
};
