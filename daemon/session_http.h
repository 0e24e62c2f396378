/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the HTTP/1.1 session share:
 *
 *   session_http.c        bytes: heads, bodies, what is kept while a request is answered
 *   session_http_ask.c    requests: what a head and a body ask, and of whom
 *   session_http_reply.c  replies
 *
 * HTTP/1.1 answers in order, so a session has one request at a time: from the end of its body until
 * its reply nothing more is taken from the peer.
 */
#ifndef INFERD_DAEMON_SESSION_HTTP_H
#define INFERD_DAEMON_SESSION_HTTP_H

#include "daemon/inflate.h"
#include "daemon/session.h"
#include "http/decode.h"
#include "http/encode.h"
#include "http/reader.h"
#include "http/route.h"

enum http_phase {
    HTTP_AT_HEAD,
    HTTP_AT_BODY,
    HTTP_DECODING, /* in steps: what is compressed, and JSON */
    HTTP_ASKED,    /* the host has the request */
    HTTP_WRITING,  /* the text of a large reply, in steps */
};

struct session {
    struct session_host *host;
    struct http_reader *reader;
    enum http_phase phase;
    uint64_t message; /* the number of the request */
    bool ended;
    bool leaving; /* the server is about to go: each connection ends after its next reply */

    /* The request. */
    struct http_route route;
    unsigned code;     /* of a refusal that is HTTP's own; 0: the status tells */
    const char *allow; /* what the path takes; NULL: it is not asked for */
    bool no_body;      /* the reply has none (HEAD) */
    bool close;        /* the connection ends after the reply */
    bool answered;     /* it was, before its body had come */
    bool holding;      /* the host waits for the reply */
    bool two;          /* it is HTTP/2 that came */

    /* Its body. */
    struct slab *body; /* NULL: none of it is kept */
    size_t have;       /* bytes of it that came */
    size_t need;       /* bytes that it has; of one in chunks: that have room */
    bool drop;         /* nobody wants it */
    bool coded;        /* it is compressed, */
    enum inflate_coding coding;
    struct inflate *inflate; /* and being inflated; NULL: it is not */
    struct message_text json, binary;
    struct http_wanted wanted;
    struct slab *decoding; /* in which `decode` lies */
    struct http_decode *decode;
    struct slab *placed; /* tensors that came as JSON */

    /* Bytes behind the request: [kept_at, kept_have) of `kept`. */
    struct slab *kept;
    size_t kept_at, kept_have;

    /* A large reply. */
    struct slab *reply_slab;        /* struct response, and all outputs behind it */
    struct http_infer_text written; /* how far its text has been written */
    uint64_t reply_binary;
    size_t reply_length; /* bytes of its text, */
    bool reply_measured; /* once they are known */
};

/* --- session_http.c --- */

/* The reply is complete: the next request may come, or the connection ends. */
void http_finish(struct session *s);

/* --- session_http_ask.c --- */

/* A head has come: finds out what is asked. False: it was refused. */
bool http_head_take(struct session *s);
/* The whole body is there, in `body` or, if that is NULL, in memory that stays during the call. */
void http_body_take(struct session *s, const uint8_t *data, size_t size);
/* Bytes of JSON that the body begins with; 0: the head does not say. */
size_t http_json_length(const struct session *s);
/* Whether a body of this size may be decoded where it lies, within the call. */
bool http_body_is_small(const struct session *s, size_t size);
void http_decode_go_on(struct session *s);
void http_decode_drop(struct session *s);
/* Refuses the request with `code` (0: what the error's status stands for). */
void http_refuse(struct session *s, unsigned code, const struct error *err);

/* --- session_http_reply.c --- */

void http_reply(struct session *s, const struct response *response);
void http_write_go_on(struct session *s);
void http_write_drop(struct session *s);
size_t http_unsent(const struct session *s);
/* Sends "100 Continue". */
void http_continue(struct session *s);
/* Answers OPTIONS: the head tells all. */
void http_empty_reply(struct session *s);

#endif
