/* SPDX-License-Identifier: Apache-2.0 */
/* What HTTP requests ask; see session_http.h. */
#include <strings.h>

#include "daemon/session_http.h"

enum { SMALL_BODY = 64 * 1024, SMALL_JSON = 8 * 1024 };

void http_refuse(struct session *s, unsigned code, const struct error *err)
{
    s->code = code;
    s->host->ops->malformed(s->host, s->message, err);
}

/* --- heads --- */

static const struct message_text *field(const struct session *s, enum http_field which)
{
    return &http_reader_request(s->reader)->fields[which];
}

/* The token of "Authorization: Bearer TOKEN"; empty: there is none. */
static struct message_text token_of(const struct session *s)
{
    static const char scheme[] = "bearer ";
    const struct message_text *text = field(s, HTTP_FIELD_AUTHORIZATION);
    size_t n = sizeof(scheme) - 1;
    if (!text->data || text->len <= n || strncasecmp(text->data, scheme, n) != 0)
        return (struct message_text){0};
    while (n < text->len && text->data[n] == ' ')
        n++;
    return (struct message_text){text->data + n, text->len - n};
}

/* A web page may send requests to whatever address its reader's machine can reach. The browser says
 * where the page came from; only pages of this very server are let in. */
static bool is_foreign_page(const struct session *s)
{
    const struct message_text *origin = field(s, HTTP_FIELD_ORIGIN);
    const struct message_text *host = field(s, HTTP_FIELD_HOST);
    if (!origin->data)
        return false;
    const char *mark = memmem(origin->data, origin->len, "://", 3);
    size_t skip = mark ? (size_t)(mark - origin->data) + 3 : origin->len;
    const struct message_text from = {origin->data + skip, origin->len - skip};
    return !host->data || !message_text_equal(from, *host);
}

/* Whether a body of that length may come. The peer's token may raise the limit. */
static bool length_allowed(struct session *s, uint64_t length)
{
    if (length <= s->host->ops->frame_limit(s->host))
        return true;
    s->host->ops->token(s->host, token_of(s));
    return length <= s->host->ops->frame_limit(s->host);
}

static unsigned head_check(struct session *s, struct error *err)
{
    const struct http_head *head = http_reader_request(s->reader);
    const struct message_text *coding = field(s, HTTP_FIELD_CONTENT_ENCODING);
    if (is_foreign_page(s)) {
        error_set(err, STATUS_PERMISSION_DENIED, "a page of another origin asks: '%.*s'",
                  MESSAGE_TEXT(*field(s, HTTP_FIELD_ORIGIN)));
        return 403;
    }
    unsigned code = http_route_find(head, &s->route, &s->allow, err);
    if (code)
        return code;
    bool gzip = http_text_is(*coding, "gzip") || http_text_is(*coding, "x-gzip");
    s->coded = gzip || http_text_is(*coding, "deflate");
    s->coding = gzip ? INFLATE_GZIP : INFLATE_ZLIB;
    if (!coding->len || s->coded || http_text_is(*coding, "identity"))
        return 0;
    error_set(err, STATUS_UNIMPLEMENTED,
              "Content-Encoding '%.*s': expected gzip, deflate or identity", MESSAGE_TEXT(*coding));
    return 415;
}

bool http_head_take(struct session *s)
{
    const struct http_head *head = http_reader_request(s->reader);
    struct error err;
    s->no_body = head->method == HTTP_METHOD_HEAD;
    s->close = !head->keep_alive || s->leaving;
    if (!length_allowed(s, head->length)) {
        size_t limit = s->host->ops->frame_limit(s->host);
        error_set(&err, STATUS_INVALID_ARGUMENT, "a body of %llu bytes; the limit is %zu",
                  (unsigned long long)head->length, limit);
        s->close = true;
        http_refuse(s, 413, &err);
        return false;
    }
    if (head->body == HTTP_BODY_CHUNKS)
        s->host->ops->token(s->host, token_of(s)); /* how long it will be is not known */
    unsigned code = head_check(s, &err);
    /* A client that waits for leave to send its body does not send it after a refusal. */
    s->close |= code && head->expects && head->body != HTTP_BODY_NONE;
    bool none = head->body == HTTP_BODY_NONE;
    if (none && code)
        s->phase = HTTP_ASKED;
    s->drop = code || !s->route.takes_body;
    if (code == 204)
        http_empty_reply(s);
    else if (code)
        http_refuse(s, code, &err);
    else
        s->allow = NULL;
    return !code;
}

/* --- requests --- */

static void request_fill(struct session *s, struct request *r)
{
    request_clear(r);
    r->id = s->message;
    r->kind = s->route.kind;
    r->token = token_of(s);
    r->traceparent = *field(s, HTTP_FIELD_TRACEPARENT);
    r->model = message_text_of(s->route.model);
    r->version = message_text_of(s->route.version);
    r->region.name = message_text_of(s->route.region);
}

/* Hands a request to the host, and waits for its reply if that does not come at once. */
static void ask(struct session *s, const struct request *request, struct slab *frame)
{
    uint64_t message = s->message;
    s->phase = HTTP_ASKED;
    s->host->ops->request(s->host, request, frame);
    if (s->message == message && s->phase == HTTP_ASKED && !s->ended) {
        s->holding = true;
        s->host->ops->hold(s->host, true);
    }
}

/* --- decoding --- */

void http_decode_drop(struct session *s)
{
    s->decode = NULL;
    inflate_free(STEAL(s->inflate));
    s->host->ops->slab_give(s->host, STEAL(s->decoding));
    s->host->ops->slab_give(s->host, STEAL(s->placed));
}

/* The end of decoding: the request is asked, with the memory that its payloads lie in. */
static void decode_finish(struct session *s)
{
    const struct request *request = http_decode_request(s->decode);
    s->wanted = *http_decode_wanted(s->decode);
    struct slab *frame = STEAL(s->placed);
    if (!frame && request->kind == REQUEST_INFER)
        frame = STEAL(s->body);
    /* The request's texts lie in the decoder, which must outlive the call but not the reply. */
    struct slab *decoding = STEAL(s->decoding);
    s->decode = NULL;
    ask(s, request, frame);
    s->host->ops->slab_give(s->host, decoding);
}

static void decode_refuse(struct session *s, const struct error *err)
{
    s->phase = HTTP_ASKED;
    http_refuse(s, 0, err);
}

static void no_memory(struct session *s, const char *what, size_t size)
{
    struct error err;
    error_cause(&err, CAUSE_OVER_BUDGET, "no memory for %zu bytes of %s now", size, what);
    decode_refuse(s, &err);
}

/* Tensors as JSON may take more memory than their text, up to the limit of a message. */
static bool decode_place(struct session *s)
{
    size_t size = http_decode_needs(s->decode), limit = s->host->ops->frame_limit(s->host);
    struct error err;
    if (size > limit) {
        error_set(&err, STATUS_INVALID_ARGUMENT, "tensors of %zu bytes; the limit is %zu", size,
                  limit);
        decode_refuse(s, &err);
        return false;
    }
    s->placed = s->host->ops->slab_take(s->host, size);
    if (!s->placed) {
        no_memory(s, "tensors", size);
        return false;
    }
    http_decode_place(s->decode, s->placed->data);
    return true;
}

/* Takes one step. False: decoding is over. */
static bool decode_step(struct session *s)
{
    enum http_decode_state state = HTTP_DECODE_GOES_ON;
    struct error err;
    if (http_decode_step(s->decode, &state, &err)) {
        decode_refuse(s, &err);
        return false;
    }
    if (state == HTTP_DECODE_NEEDS)
        return decode_place(s);
    if (state == HTTP_DECODE_DONE)
        decode_finish(s);
    return state == HTTP_DECODE_GOES_ON;
}

static void body_read(struct session *s, const uint8_t *data, size_t size);

/* Inflates for a while; the body that came of it takes the place of the one that came. */
static void inflate_step(struct session *s)
{
    struct error err;
    bool done = false;
    if (inflate_go_on(s->inflate, s->body->data, &done, &err)) {
        decode_refuse(s, &err);
        return;
    }
    if (!done)
        return;
    s->host->ops->slab_give(s->host, STEAL(s->body));
    s->body = inflate_take(STEAL(s->inflate), &s->have);
    s->coded = false;
    body_read(s, s->body->data, s->have);
}

void http_decode_go_on(struct session *s)
{
    if (s->inflate) {
        inflate_step(s);
        return;
    }
    while (decode_step(s))
        if (s->host->ops->tired(s->host))
            return;
}

/* Divides the body into JSON and binary data. False: it was refused. */
static bool body_divide(struct session *s, const uint8_t *data, size_t size)
{
    const struct message_text *text = field(s, HTTP_FIELD_JSON_LENGTH);
    uint64_t length = size;
    struct error err;
    if (text->data &&
        (json_element_read(JSON_NUMBER, *text, DTYPE_U64, &length,
                           message_text_of("Inference-Header-Content-Length"), &err) ||
         length > size)) {
        error_set(
            &err, STATUS_INVALID_ARGUMENT,
            "Inference-Header-Content-Length '%.*s': expected a number up to %zu, the size of "
            "the body",
            MESSAGE_TEXT(*text), size);
        decode_refuse(s, &err);
        return false;
    }
    if (!length && s->route.kind == REQUEST_INFER) {
        error_set(&err, STATUS_INVALID_ARGUMENT,
                  "an inference without JSON; expected an object with \"inputs\"");
        decode_refuse(s, &err);
        return false;
    }
    s->json = (struct message_text){(const char *)data, length};
    s->binary = (struct message_text){(const char *)data + length, size - length};
    return true;
}

size_t http_json_length(const struct session *s)
{
    const struct message_text *text = field(s, HTTP_FIELD_JSON_LENGTH);
    uint64_t length = 0;
    struct error err;
    if (!text->data || json_element_read(JSON_NUMBER, *text, DTYPE_U64, &length,
                                         message_text_of("Inference-Header-Content-Length"), &err))
        return 0;
    return (size_t)length;
}

bool http_body_is_small(const struct session *s, size_t size)
{
    bool small =
        size <= SMALL_JSON || (size <= SMALL_BODY && field(s, HTTP_FIELD_JSON_LENGTH)->data);
    return small && !s->coded;
}

/* Decodes a body. What is small, or lies where it cannot stay, is decoded at once. */
static void decode_begin(struct session *s, const uint8_t *data, size_t size)
{
    struct request *known = s->host->ops->scratch(s->host);
    if (!body_divide(s, data, size))
        return;
    size_t memory = http_decode_size(s->json.len);
    s->decoding = s->host->ops->slab_take(s->host, memory);
    if (!s->decoding) {
        no_memory(s, "a request", memory);
        return;
    }
    request_fill(s, known);
    struct error err;
    if (request_texts_check(known, &err)) {
        decode_refuse(s, &err);
        return;
    }
    s->decode = http_decode_init(s->decoding->data, memory, known, s->json, s->binary);
    s->phase = HTTP_DECODING;
    if (s->body)
        http_decode_go_on(s);
    else
        while (decode_step(s))
            ;
}

static void ask_plainly(struct session *s)
{
    struct request *request = s->host->ops->scratch(s->host);
    struct error err;
    request_fill(s, request);
    if (request_texts_check(request, &err))
        decode_refuse(s, &err);
    else
        ask(s, request, NULL);
}

static void inflate_begin(struct session *s, size_t size)
{
    s->inflate = inflate_new(s->host, s->coding, size);
    if (!s->inflate) {
        no_memory(s, "a compressed body", size);
        return;
    }
    s->phase = HTTP_DECODING;
    inflate_step(s);
}

void http_body_take(struct session *s, const uint8_t *data, size_t size)
{
    if (s->coded && size && s->route.takes_body)
        inflate_begin(s, size);
    else
        body_read(s, data, size);
}

static void body_read(struct session *s, const uint8_t *data, size_t size)
{
    s->phase = HTTP_ASKED;
    if (s->route.takes_body && (size || s->route.kind == REQUEST_INFER))
        decode_begin(s, data, size);
    else
        ask_plainly(s);
}
