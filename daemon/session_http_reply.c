/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies over HTTP/1.1; see session_http.h.
 *
 * The reply to an inference is JSON and, behind it, the outputs that go as binary data, which are
 * written from where the worker left them. If the text is short it is written at once, to the same
 * memory as all replies. Elements as text take far more time than a copy, so a reply with many is
 * copied away from the worker's buffer and its text is made in steps: first to learn its length,
 * which stands in the head, and then to be written.
 */
#include <stdio.h>

#include "daemon/session_http.h"

enum {
    HEAD_MOST = 512,     /* bytes of a reply's head */
    AT_ONCE = 64 * 1024, /* text that is written at once, at most */
    STEP = 8 * 1024,     /* text between two looks whether to let others go on */
};

/* --- heads --- */

struct head {
    unsigned code;
    const char *type; /* NULL: no body */
    uint64_t length;  /* of the body */
    uint64_t json;    /* of its JSON, if binary data follow; else 0 */
    uint64_t retry_us;
};

static const char *connection_of(const struct session *s)
{
    const struct http_head *head = http_reader_request(s->reader);
    if (s->close)
        return "Connection: close\r\n";
    return head->minor ? "" : "Connection: keep-alive\r\n";
}

static size_t head_write(const struct session *s, const struct head *h, char out[HEAD_MOST])
{
    int n = snprintf(out, HEAD_MOST, "HTTP/1.1 %u %s\r\n%s", h->code, http_phrase(h->code),
                     connection_of(s));
    if (h->type)
        n +=
            snprintf(out + n, HEAD_MOST - (size_t)n, "Content-Type: %s\r\nContent-Length: %llu\r\n",
                     h->type, (unsigned long long)h->length);
    if (h->json)
        n += snprintf(out + n, HEAD_MOST - (size_t)n, "Inference-Header-Content-Length: %llu\r\n",
                      (unsigned long long)h->json);
    if (h->retry_us)
        n += snprintf(out + n, HEAD_MOST - (size_t)n, "Retry-After: %llu\r\n",
                      (unsigned long long)(h->retry_us + 999999) / 1000000);
    if (h->code == 401)
        n += snprintf(out + n, HEAD_MOST - (size_t)n, "WWW-Authenticate: Bearer\r\n");
    if (s->allow && *s->allow && (h->code == 405 || h->code == 204))
        n += snprintf(out + n, HEAD_MOST - (size_t)n, "Allow: %s\r\n", s->allow);
    return (size_t)n + (size_t)snprintf(out + n, HEAD_MOST - (size_t)n, "\r\n");
}

/* Makes room for a head and `most` bytes of text; the text is written first, behind HEAD_MOST. */
static struct json_writer text_begin(struct session *s, size_t most, char **room)
{
    *room = s->host->ops->room(s->host, HEAD_MOST + most);
    return (struct json_writer){*room + HEAD_MOST, *room + HEAD_MOST + most, false};
}

/* Puts the head in front of a text and gives back the rest of the room. */
static struct iovec text_end(struct session *s, char *room, const struct json_writer *w,
                             const struct head *h)
{
    char head[HEAD_MOST];
    size_t len = (size_t)(w->at - (room + HEAD_MOST)), unused = (size_t)(w->end - w->at);
    size_t n = head_write(s, h, head);
    memmove(room + n, room + HEAD_MOST, len);
    memcpy(room, head, n);
    s->host->ops->room_give(s->host, unused + HEAD_MOST - n);
    return (struct iovec){room, n + (s->no_body ? 0 : len)};
}

static size_t length_of(const char *room, const struct json_writer *w)
{
    return (size_t)(w->at - (room + HEAD_MOST));
}

/* --- small replies --- */

void http_continue(struct session *s)
{
    static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct iovec iov = {text, sizeof(text) - 1};
    s->host->ops->write(s->host, &iov, 1);
}

static void text_reply(struct session *s, const struct head *h, struct message_text text)
{
    char *room;
    struct json_writer w = text_begin(s, 0, &room);
    struct iovec iov[2] = {text_end(s, room, &w, h), {(void *)(uintptr_t)text.data, text.len}};
    s->host->ops->write(s->host, iov, s->no_body || !text.len ? 1 : 2);
}

void http_empty_reply(struct session *s)
{
    const struct head h = {.code = 204};
    text_reply(s, &h, (struct message_text){0});
    http_finish(s);
}

static void small_reply(struct session *s, const struct response *r)
{
    bool ready = r->kind == REQUEST_SERVER_READY || r->kind == REQUEST_MODEL_READY;
    struct head h = {.code = ready && !r->yes ? 503 : 200, .type = "application/json"};
    char *room;
    struct json_writer w = text_begin(s, HTTP_SMALL_MOST, &room);
    if (r->status) {
        h.code = s->code ? s->code : http_code_of(r->status);
        h.retry_us = r->retry_after_us;
        http_error_write(&w, r->message);
    } else {
        http_answer_write(&w, r->kind, message_text_of(s->route.model), r->yes);
    }
    h.length = length_of(room, &w);
    const struct iovec iov = text_end(s, room, &w, &h);
    s->host->ops->write(s->host, &iov, 1);
}

/* --- inferences --- */

/* The outputs that go as binary data, a bit for each. */
static uint64_t binary_of(const struct session *s, const struct response *r)
{
    if (s->wanted.named)
        return s->wanted.outputs;
    return s->wanted.binary && r->n_outputs ? UINT64_MAX >> (64 - r->n_outputs) : 0;
}

static size_t binary_bytes(const struct response *r, uint64_t binary)
{
    size_t sum = 0;
    for (uint32_t k = 0; k < r->n_outputs; k++)
        sum += binary >> k & 1 ? r->outputs[k].size : 0;
    return sum;
}

static struct head infer_head(size_t json, size_t binary)
{
    return (struct head){.code = 200,
                         .type = binary ? "application/octet-stream" : "application/json",
                         .length = json + binary,
                         .json = binary ? json : 0};
}

static void infer_reply_at_once(struct session *s, const struct response *r, uint64_t binary,
                                size_t most)
{
    struct http_infer_text text = {0};
    struct iovec iov[1 + MESSAGE_MAX_TENSORS];
    uint32_t n = 1;
    char *room;
    struct json_writer w = text_begin(s, most, &room);
    http_infer_text(&text, r, binary, &w);
    const struct head h = infer_head(length_of(room, &w), binary_bytes(r, binary));
    iov[0] = text_end(s, room, &w, &h);
    for (uint32_t k = 0; k < r->n_outputs; k++)
        if (binary >> k & 1 && r->outputs[k].size)
            iov[n++] = (struct iovec){(void *)(uintptr_t)r->outputs[k].data, r->outputs[k].size};
    s->host->ops->write(s->host, iov, n);
}

/* --- large replies --- */

static struct response *kept_response(const struct session *s)
{
    return (struct response *)(void *)s->reply_slab->data;
}

/* Copies the texts of a reply, which lie in its model. */
static void text_copy(struct message_text *text, uint8_t **to)
{
    if (text->len)
        memcpy(*to, text->data, text->len);
    text->data = (char *)*to;
    *to += text->len;
}

/* Copies a reply and all that it points to. False: there is no memory. */
static bool response_keep(struct session *s, const struct response *r)
{
    size_t size = sizeof(*r) + r->model.len + r->version.len + r->infer_id.len;
    for (uint32_t k = 0; k < r->n_outputs; k++)
        size += r->outputs[k].name.len + r->outputs[k].region.name.len + r->outputs[k].size;
    if (!(s->reply_slab = s->host->ops->reply_take(s->host, size)))
        return false;
    struct response *kept = kept_response(s);
    uint8_t *to = s->reply_slab->data + sizeof(*r);
    *kept = *r;
    text_copy(&kept->model, &to);
    text_copy(&kept->version, &to);
    text_copy(&kept->infer_id, &to);
    for (uint32_t k = 0; k < r->n_outputs; k++) {
        struct message_tensor *t = &kept->outputs[k];
        text_copy(&t->name, &to);
        text_copy(&t->region.name, &to);
        if (t->size)
            memcpy(to, t->data, t->size);
        t->data = to;
        to += t->size;
    }
    return true;
}

static void infer_reply_in_steps(struct session *s, const struct response *r, uint64_t binary)
{
    if (!response_keep(s, r)) {
        const struct response failed = {.status = STATUS_RESOURCE_EXHAUSTED,
                                        .message = message_text_of("no memory for the reply now"),
                                        .retry_after_us = cause_row(CAUSE_OVER_BUDGET)->retry_us};
        small_reply(s, &failed);
        http_finish(s);
        return;
    }
    s->reply_binary = binary;
    s->written = (struct http_infer_text){0};
    s->reply_length = 0;
    s->reply_measured = false;
    s->phase = HTTP_WRITING;
}

void http_write_drop(struct session *s)
{
    if (s->reply_slab)
        s->host->ops->reply_give(s->host, STEAL(s->reply_slab));
}

/* What is left to be written becomes less while the text is written. */
size_t http_unsent(const struct session *s)
{
    if (!s->reply_slab) /* nothing is being written, or all was, and the connection closes */
        return 0;
    const struct response *r = kept_response(s);
    size_t done = 0;
    for (uint32_t k = 0; s->reply_measured && k < s->written.output; k++)
        done += r->outputs[k].size;
    if (s->reply_measured && s->written.output < r->n_outputs)
        done += s->written.element * MAX(dtype_size(r->outputs[s->written.output].dtype), 1u);
    return s->reply_slab->size - MIN(done, s->reply_slab->size - 1);
}

/* Makes the next piece of the text; *done: it is over. While the text is measured it is written
 * nowhere. */
static void text_step(struct session *s, bool *done)
{
    char *room = s->host->ops->room(s->host, STEP);
    struct json_writer w = {room, room + STEP, false};
    *done = http_infer_text(&s->written, kept_response(s), s->reply_binary, &w);
    size_t len = (size_t)(w.at - room);
    if (!s->reply_measured) {
        s->reply_length += len;
        s->host->ops->room_give(s->host, STEP);
        return;
    }
    s->host->ops->room_give(s->host, STEP - len);
    const struct iovec iov = {room, len};
    s->host->ops->write(s->host, &iov, 1);
}

/* The text has been measured: the head goes out, and the text begins anew. */
static void measured(struct session *s)
{
    const struct response *r = kept_response(s);
    const struct head h = infer_head(s->reply_length, binary_bytes(r, s->reply_binary));
    s->reply_measured = true;
    s->written = (struct http_infer_text){0};
    text_reply(s, &h, (struct message_text){0});
}

/* All is text but the binary data, which are written and, since they lie in the session's own
 * memory, flushed. */
static void binary_write(struct session *s)
{
    const struct response *r = kept_response(s);
    for (uint32_t k = 0; k < r->n_outputs; k++) {
        const struct iovec iov = {(void *)(uintptr_t)r->outputs[k].data, r->outputs[k].size};
        if (s->reply_binary >> k & 1 && iov.iov_len)
            s->host->ops->write(s->host, &iov, 1);
    }
    s->host->ops->flush(s->host);
}

void http_write_go_on(struct session *s)
{
    bool done = false;
    while (!s->host->ops->paused(s->host)) {
        text_step(s, &done);
        if (done && s->reply_measured) {
            binary_write(s);
            http_write_drop(s);
            http_finish(s);
            return;
        }
        if (done)
            measured(s);
        if (s->host->ops->tired(s->host))
            return;
    }
}

/* --- all replies --- */

void http_reply(struct session *s, const struct response *r)
{
    if (!r->status && r->kind == REQUEST_INFER) {
        uint64_t binary = binary_of(s, r);
        size_t most = http_infer_text_most(r, binary) + HTTP_TEXT_STEP;
        if (most > AT_ONCE) {
            infer_reply_in_steps(s, r, binary);
            if (s->holding) { /* the host goes on, with the text */
                s->holding = false;
                s->host->ops->hold(s->host, false);
            }
            return;
        }
        infer_reply_at_once(s, r, binary, most);
    } else if (!r->status && r->body.data) {
        const struct head h = {.code = 200, .type = "application/json", .length = r->body.len};
        text_reply(s, &h, r->body);
    } else {
        small_reply(s, r);
    }
    http_finish(s);
}
