/* SPDX-License-Identifier: Apache-2.0 */
/* Requests from a stream, see reader.h. */
#include "http/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <llhttp.h>

#include "base/hex.h"

enum { TEXT_FIRST = 1024, LINES_SKIPPED = 2 /* empty lines in front of a request line */ };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\n"; /* RFC 9113, 3.4: its first lines */

struct http_reader {
    llhttp_t parser;
    char *bytes; /* the head, gathered */
    size_t size, capacity;
    /* Where the scan for the head's end stands. */
    uint32_t lines, skipped; /* whole lines; empty ones before the first */
    uint32_t column;         /* of the present line */
    uint32_t blanks;         /* in the request line, which has three parts */
    bool cr;                 /* the last byte was a CR */
    bool whole;              /* the head is complete */
    /* What llhttp's callbacks leave. */
    struct http_head head;
    struct message_text url, name;
    const char *twice; /* a field that came twice */
    bool complete;     /* a body in chunks is */
    http_take_fn *take;
    void *user;
    bool taking_failed;
    uint64_t overhead, payload; /* bytes of a body in chunks: of its frame, and of itself */
};

static const char *const field_names[HTTP_FIELD_COUNT_] = {
#define X(id, name) name,
    HTTP_FIELDS(X)
#undef X
};

/* --- texts --- */

bool http_text_is(struct message_text text, const char *wanted)
{
    return text.len == strlen(wanted) && strncasecmp(text.data, wanted, text.len) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct message_text trimmed(struct message_text text)
{
    while (text.len && is_blank(text.data[0]))
        text = (struct message_text){text.data + 1, text.len - 1};
    while (text.len && is_blank(text.data[text.len - 1]))
        text.len--;
    return text;
}

/* What stands before the first `end`. */
static struct message_text before(struct message_text text, char end)
{
    const char *at = text.len ? memchr(text.data, end, text.len) : NULL;
    return (struct message_text){text.data, at ? (size_t)(at - text.data) : text.len};
}

bool http_list_has(struct message_text list, const char *token)
{
    while (list.len) {
        struct message_text item = before(list, ',');
        size_t step = MIN(item.len + 1, list.len);
        if (http_text_is(trimmed(before(item, ';')), token))
            return true;
        list = (struct message_text){list.data + step, list.len - step};
    }
    return false;
}

bool http_text_decode(struct message_text text, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '%') {
            int high = i + 2 < text.len ? hex_value(text.data[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text.data[i + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(16 * high + low);
            i += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7f || n + 1 >= size)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

const char *http_phrase(unsigned code)
{
    static const struct {
        unsigned code;
        const char *phrase;
    } phrases[] = {
        {100, "Continue"},
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(phrases); i++)
        if (phrases[i].code == code)
            return phrases[i].phrase;
    return "Unknown";
}

/* --- what llhttp finds --- */

static struct http_reader *reader_of(llhttp_t *parser)
{
    return CONTAINER_OF(parser, struct http_reader, parser);
}

static int on_url(llhttp_t *parser, const char *at, size_t size)
{
    reader_of(parser)->url = (struct message_text){at, size};
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t size)
{
    reader_of(parser)->name = (struct message_text){at, size};
    return 0;
}

/* The whole head is given to llhttp at once, so a value comes in one piece. Behind the head come
 * trailers, which may be in pieces, and of which nothing is kept. */
static int on_value(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *r = reader_of(parser);
    for (uint32_t k = 0; k < HTTP_FIELD_COUNT_ && !r->whole; k++) {
        if (!http_text_is(r->name, field_names[k]))
            continue;
        if (r->head.fields[k].data)
            r->twice = field_names[k];
        r->head.fields[k] = trimmed((struct message_text){at, size});
    }
    return 0;
}

static int on_head(llhttp_t *parser)
{
    (void)parser;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *parser, const char *at, size_t size)
{
    struct http_reader *r = reader_of(parser);
    r->payload += size;
    if (r->take(r->user, at, size))
        return 0;
    r->taking_failed = true;
    return -1;
}

static int on_complete(llhttp_t *parser)
{
    reader_of(parser)->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* --- life --- */

void http_reader_next(struct http_reader *r)
{
    char *text = r->bytes;
    size_t capacity = r->capacity;
    if (capacity > TEXT_FIRST) { /* an unusual head does not keep its memory */
        free(text);
        text = NULL;
        capacity = 0;
    }
    *r = (struct http_reader){.bytes = text, .capacity = capacity};
    llhttp_init(&r->parser, HTTP_REQUEST, &settings);
}

struct http_reader *http_reader_new(void)
{
    struct http_reader *r = calloc(1, sizeof(*r));
    if (r)
        http_reader_next(r);
    return r;
}

void http_reader_free(struct http_reader *r)
{
    if (r)
        free(r->bytes);
    free(r);
}

const struct http_head *http_reader_request(const struct http_reader *r)
{
    return &r->head;
}

size_t http_reader_has(const struct http_reader *r)
{
    return r->size;
}

struct message_text http_reader_taken(const struct http_reader *r)
{
    return (struct message_text){r->bytes, r->size};
}

/* A head ends in CR LF CR LF, so it misses four bytes but for those of them that are here. */
size_t http_reader_wants(const struct http_reader *r)
{
    if (r->whole)
        return r->parser.content_length && !r->complete ? r->parser.content_length : 1;
    if (!r->lines || r->column)
        return r->cr ? 3 : 4;
    return r->cr ? 1 : 2;
}

/* --- the head --- */

static enum http_step wrong(unsigned *code, unsigned value, struct error *err, const char *why)
{
    *code = value;
    error_set(err, STATUS_INVALID_ARGUMENT, "no HTTP request that is served here: %s", why);
    return HTTP_WRONG;
}

/* Takes one byte of the head. NULL: it is fine; else what is wrong with it. */
static const char *scan(struct http_reader *r, char c)
{
    unsigned char byte = (unsigned char)c;
    if (r->cr) {
        r->cr = false;
        if (c != '\n')
            return "a CR without LF";
        if (r->column == 0)
            r->whole = r->lines > 0;
        else
            r->lines++;
        r->column = 0;
        return NULL;
    }
    r->cr = c == '\r';
    if (r->cr)
        return NULL;
    if (c == '\n')
        return "a line that ends without CR";
    if ((byte < 0x20 && c != '\t') || byte == 0x7f)
        return "a control character";
    if (r->column++ == 0 && is_blank(c))
        return "a line that begins with a space";
    if (!r->lines && is_blank(c) && ++r->blanks > 2)
        return "a request line of more than three parts";
    return NULL;
}

/* Keeps one byte; an empty line before the request line is thrown away. False: no memory. */
static bool keep(struct http_reader *r, char c)
{
    if (r->size == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : TEXT_FIRST;
        char *text = realloc(r->bytes, capacity);
        if (!text)
            return false;
        r->bytes = text;
        r->capacity = capacity;
    }
    r->bytes[r->size++] = c;
    if (!r->lines && !r->column && !r->cr && r->size == 2) {
        r->size = 0;
        r->skipped++;
    }
    return true;
}

static enum http_step too_large(const struct http_reader *r, unsigned *code, struct error *err)
{
    if (!r->lines)
        return wrong(code, 414, err, "a request line without end");
    return wrong(code, 431, err, "more than 16 KiB, or 100 lines, of header");
}

/* Cuts an absolute URL down to its path, and divides path and query. */
static bool url_divide(struct http_head *head, struct message_text url)
{
    const char *scheme = url.len ? memmem(url.data, url.len, "://", 3) : NULL;
    if (url.len && url.data[0] != '/' && scheme) {
        struct message_text rest = {scheme + 3, url.len - (size_t)(scheme + 3 - url.data)};
        struct message_text host = before(rest, '/');
        url = (struct message_text){rest.data + host.len, rest.len - host.len};
    }
    bool star = head->method == HTTP_METHOD_OPTIONS && url.len == 1 && url.data[0] == '*';
    if (!star && (!url.len || url.data[0] != '/'))
        return false;
    url = before(url, '#');
    head->path = before(url, '?');
    if (head->path.len < url.len)
        head->query =
            (struct message_text){url.data + head->path.len + 1, url.len - head->path.len - 1};
    return true;
}

static enum http_method method_of(uint8_t method)
{
    switch (method) {
    case HTTP_GET:
        return HTTP_METHOD_GET;
    case HTTP_HEAD:
        return HTTP_METHOD_HEAD;
    case HTTP_POST:
        return HTTP_METHOD_POST;
    case HTTP_OPTIONS:
        return HTTP_METHOD_OPTIONS;
    default:
        return HTTP_METHOD_OTHER;
    }
}

/* How the body comes, once llhttp has accepted the fields. */
static enum http_step body_find(struct http_reader *r, unsigned *code, struct error *err)
{
    struct http_head *head = &r->head;
    const struct message_text *coding = &head->fields[HTTP_FIELD_TRANSFER_ENCODING];
    const struct message_text *length = &head->fields[HTTP_FIELD_CONTENT_LENGTH];
    if (coding->data && length->data)
        return wrong(code, 400, err, "Content-Length beside Transfer-Encoding");
    if (coding->data && !head->minor)
        return wrong(code, 400, err, "Transfer-Encoding in HTTP/1.0");
    if (coding->data && !http_text_is(*coding, "chunked"))
        return wrong(code, 501, err, "a Transfer-Encoding other than chunked");
    if (coding->data)
        head->body = HTTP_BODY_CHUNKS;
    else if (r->parser.content_length)
        head->body = HTTP_BODY_LENGTH;
    head->length = head->body == HTTP_BODY_LENGTH ? r->parser.content_length : 0;
    return HTTP_DONE;
}

static enum http_step head_finish(struct http_reader *r, unsigned *code, struct error *err)
{
    struct http_head *head = &r->head;
    const struct message_text *expect = &head->fields[HTTP_FIELD_EXPECT];
    if (r->parser.http_major != 1 || r->parser.http_minor > 1)
        return wrong(code, 505, err, "a version other than HTTP/1.0 and HTTP/1.1");
    if (r->twice) {
        wrong(code, 400, err, "this header field came twice");
        error_prefix(err, "%s", r->twice);
        return HTTP_WRONG;
    }
    head->minor = r->parser.http_minor;
    head->method = method_of(r->parser.method);
    if (head->minor && !head->fields[HTTP_FIELD_HOST].data)
        return wrong(code, 400, err, "there is no Host");
    if (!url_divide(head, r->url))
        return wrong(code, 400, err, "no path in the request line");
    if (expect->data && !http_text_is(*expect, "100-continue"))
        return wrong(code, 417, err, "an expectation other than 100-continue");
    head->expects = expect->data && head->minor;
    head->keep_alive = llhttp_should_keep_alive(&r->parser);
    return body_find(r, code, err);
}

static enum http_step head_parse(struct http_reader *r, unsigned *code, struct error *err)
{
    if (r->size == sizeof(preface) - 1 && memcmp(r->bytes, preface, r->size) == 0)
        return HTTP_TWO;
    r->whole = false; /* on_value keeps fields only of the head */
    enum llhttp_errno result = llhttp_execute(&r->parser, r->bytes, r->size);
    r->whole = true;
    if (result != HPE_PAUSED) {
        const char *reason = llhttp_get_error_reason(&r->parser);
        unsigned value = result == HPE_INVALID_METHOD ? 501 : 400;
        return wrong(code, value, err, reason && *reason ? reason : llhttp_errno_name(result));
    }
    return head_finish(r, code, err);
}

enum http_step http_reader_head(struct http_reader *r, const void *data, size_t size, size_t *used,
                                unsigned *code, struct error *err)
{
    const char *bytes = data;
    for (*used = 0; *used < size && !r->whole;) {
        const char *bad = scan(r, bytes[*used]);
        if (bad)
            return wrong(code, 400, err, bad);
        if (r->size == HTTP_HEAD_MOST || r->lines > HTTP_FIELDS_MOST + 1 ||
            r->skipped > LINES_SKIPPED)
            return too_large(r, code, err);
        if (!keep(r, bytes[*used])) {
            *code = 503;
            error_no_memory(err, "a request's head");
            return HTTP_WRONG;
        }
        ++*used;
    }
    return r->whole ? head_parse(r, code, err) : HTTP_MORE;
}

/* --- the body in chunks --- */

enum http_step http_reader_chunks(struct http_reader *r, const void *data, size_t size,
                                  size_t *used, http_take_fn *take, void *user, unsigned *code,
                                  struct error *err)
{
    uint64_t payload = r->payload;
    r->take = take;
    r->user = user;
    llhttp_resume(&r->parser);
    enum llhttp_errno result = llhttp_execute(&r->parser, data, size);
    bool paused = result == HPE_PAUSED && r->complete;
    *used = size;
    if (paused)
        *used = (size_t)(llhttp_get_error_pos(&r->parser) - (const char *)data);
    r->overhead += *used - MIN(*used, r->payload - payload);
    if (r->taking_failed) {
        *code = 0;
        return HTTP_WRONG;
    }
    if (!paused && result != HPE_OK) {
        const char *reason = llhttp_get_error_reason(&r->parser);
        return wrong(code, 400, err, reason && *reason ? reason : llhttp_errno_name(result));
    }
    if (r->overhead > r->payload + HTTP_CHUNKS_SPARE)
        return wrong(code, 400, err, "more bytes around its chunks than in them");
    return paused ? HTTP_DONE : HTTP_MORE;
}
