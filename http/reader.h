/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HTTP/1.0 and HTTP/1.1 requests from a stream of bytes: the request line, the header fields
 * and bodies that come in chunks. It knows no socket, no path and no header's meaning beyond what
 * framing takes. llhttp, the parser of Node.js, does the grammar; this module gathers the head,
 * bounds it, and refuses what two servers might read in two ways:
 *
 *   a line that ends in a bare LF, a CR without LF, a NUL or another control character
 *   a field that goes on in the next line, a field that counts here and comes twice
 *   Content-Length beside Transfer-Encoding, a coding other than "chunked"
 *   a request without Host (HTTP/1.1), a version other than 1.0 and 1.1
 *
 * A head is gathered in memory of the reader, at most HTTP_HEAD_MOST bytes and HTTP_FIELDS_MOST
 * fields; texts of struct http_head point there until http_reader_next. After a refusal nothing
 * says where the next request begins: the connection has to end.
 *
 * The reader's owner reads a body of known length itself (HTTP_BODY_LENGTH): it is the bytes behind
 * the head. A body in chunks is taken apart here (http_reader_chunks).
 */
#ifndef INFERD_HTTP_READER_H
#define INFERD_HTTP_READER_H

#include "proto/message.h"

enum {
    HTTP_HEAD_MOST = 16 * 1024,
    HTTP_FIELDS_MOST = 100,
    HTTP_CHUNKS_SPARE = 64 * 1024, /* bytes of chunks' heads, beyond as many as the body has */
};

enum http_method {
    HTTP_METHOD_OTHER,
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_OPTIONS
};

/* The header fields that somebody asks for; the others are read over. X(ID, name in small
 * letters) */
#define HTTP_FIELDS(X)                                                                             \
    X(HOST, "host")                                                                                \
    X(ORIGIN, "origin")                                                                            \
    X(AUTHORIZATION, "authorization")                                                              \
    X(CONTENT_LENGTH, "content-length")                                                            \
    X(TRANSFER_ENCODING, "transfer-encoding")                                                      \
    X(CONTENT_ENCODING, "content-encoding")                                                        \
    X(CONTENT_TYPE, "content-type")                                                                \
    X(EXPECT, "expect")                                                                            \
    X(ACCEPT, "accept")                                                                            \
    X(ACCEPT_ENCODING, "accept-encoding")                                                          \
    X(IF_NONE_MATCH, "if-none-match")                                                              \
    X(JSON_LENGTH, "inference-header-content-length")                                              \
    X(TRACEPARENT, "traceparent")

enum http_field {
#define X(id, name) HTTP_FIELD_##id,
    HTTP_FIELDS(X)
#undef X
        HTTP_FIELD_COUNT_
};

enum http_body { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKS };

struct http_head {
    enum http_method method;
    struct message_text path;  /* from the first slash to the query; "*" of OPTIONS */
    struct message_text query; /* behind the question mark */
    struct message_text fields[HTTP_FIELD_COUNT_]; /* without spaces around; data NULL: none came */
    uint32_t minor;                                /* HTTP/1.minor */
    bool keep_alive; /* the peer may send another request on this connection */
    bool expects;    /* it waits for "100 Continue" before it sends the body */
    enum http_body body;
    uint64_t length; /* of HTTP_BODY_LENGTH; at least 1 */
};

struct http_reader;

/* NULL: no memory. */
struct http_reader *http_reader_new(void);
void http_reader_free(struct http_reader *reader); /* NULL is fine */

enum http_step {
    HTTP_MORE,  /* all bytes were taken; more must come */
    HTTP_DONE,  /* the head, or the body, is complete; what follows was not taken */
    HTTP_TWO,   /* the preface of HTTP/2; http_reader_taken has what was taken of it */
    HTTP_WRONG, /* *code is the status to answer with, and `err` says why */
};

/* Takes bytes of a head. `*used` is how many of them. */
enum http_step http_reader_head(struct http_reader *reader, const void *data, size_t size,
                                size_t *used, unsigned *code, struct error *err);
/* The head that is complete. */
const struct http_head *http_reader_request(const struct http_reader *reader);

/* Takes bytes of a body in chunks, and hands what belongs to the body to `take`, piece by piece;
 * false from there ends it with HTTP_WRONG and *code 0. Trailer fields are read over. */
typedef bool http_take_fn(void *user, const void *data, size_t size);
enum http_step http_reader_chunks(struct http_reader *reader, const void *data, size_t size,
                                  size_t *used, http_take_fn *take, void *user, unsigned *code,
                                  struct error *err);

/* Gets ready for the next request. */
void http_reader_next(struct http_reader *reader);

/* Bytes of an unfinished head, and those bytes. */
size_t http_reader_has(const struct http_reader *reader);
struct message_text http_reader_taken(const struct http_reader *reader);
/* A number of bytes, at least 1, that certainly belong to the head, or to the body in chunks. */
size_t http_reader_wants(const struct http_reader *reader);

/* Whether a list of tokens, such as "gzip, deflate", has this one; case does not matter, and what
 * follows a token's semicolon is not looked at. */
bool http_list_has(struct message_text list, const char *token);
/* Whether the text is this one, but for case. */
bool http_text_is(struct message_text text, const char *wanted);

/* Undoes the encoding of a path by per cent. False: it is none, has a control character, or does
 * not fit. */
bool http_text_decode(struct message_text text, char *out, size_t size);

/* The phrase of a status, such as "Not Found". Static storage. */
const char *http_phrase(unsigned code);

#endif
