/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 with gRPC: what the files of this session share. nghttp2 knows frames, header compression,
 * streams and windows; the rest is ours.
 *
 *   session_h2.c     the session: input, pauses, time, what nghttp2 calls
 *   h2_calm.c        frames that only make work
 *   h2_stream.c      a call begins: its headers; a call ends
 *   h2_message.c     messages come in: each lies in one piece where it is decoded
 *   h2_method.c      which call is which question, and the answers that need no server
 *   h2_send.c        frames go out
 *   h2_reply.c       answers become messages and trailers
 *
 * A stream carries one call. Its messages are put together here, outside of nghttp2: a small one is
 * decoded in the bytes that were read, a large one in a slab that grows with what has come and into
 * which the connection reads. Nothing is handed on while nghttp2 works, so that a call which is
 * reset in the same breath costs no more than its headers.
 *
 * An answer goes out as far as windows and socket allow; what the peer's windows do not take yet is
 * copied to a slab of its own at once, so that no batch waits for a peer.
 */
#ifndef INFERD_DAEMON_H2_H
#define INFERD_DAEMON_H2_H

#include <nghttp2/nghttp2.h>

#include "daemon/h2_calm.h"
#include "daemon/inflate.h"
#include "daemon/session.h"

enum {
    H2_STREAMS = 100,         /* calls of a connection at a time */
    H2_WINDOW = 16 << 20,     /* bytes that may come before we grant more */
    H2_FRAME_MOST = 1 << 20,  /* of one frame that comes, */
    H2_SEND_MOST = 1 << 20,   /* and of one that goes */
    H2_FRAME_LEAST = 1 << 14, /* that a peer takes at a time, at least */
    H2_HEADERS = 64,          /* of a call */
    H2_HEADER_BYTES = 16 << 10,
    H2_PREFIX = 5,         /* of a message: whether it is compressed, and its length */
    H2_PLACE = 8 << 10,    /* of a message, within which its payload begins */
    H2_PARTIAL_FRAMES = 4, /* so many of the largest messages may be on their way at once */
    H2_PIECES = 48,
    H2_ROOM = 4 << 10,        /* for the frames' heads of a pass */
    H2_COPY = 1 << 10,        /* pieces up to this are copied beside them */
    H2_CALL_BYTES = 1024,     /* what an open call is taken to need, without its texts */
    H2_CALLS_OWN = 16 << 10,  /* of open calls, is their connection's; */
    H2_CALLS_STEP = 16 << 10, /* what goes beyond is charged in such steps */
    H2_TRACEPARENT = 128,     /* a longer one is of no version that is known */
    H2_DRAIN_MS = 500,        /* between the two steps of a goodbye, at most */
};

struct h2_stream;

/* A message on its way out. */
struct h2_out {
    struct h2_out *next;
    uint32_t number; /* of the request that it answers */
    size_t left;
    const struct iovec *at; /* what is left begins here, */
    size_t skip;            /* behind so many bytes */
    struct slab *slab;      /* that holds all of it, this struct included; NULL: it is somebody's */
    struct iovec own;
};

/* What a call is about (h2_method.c). */
enum h2_call {
    H2_CALL_QUESTION,
    H2_CALL_INFER,
    H2_CALL_STREAM_INFER,
    H2_CALL_HEALTH,
    H2_CALL_WATCH,
    H2_CALL_REFLECTION,
};

struct h2_method {
    const char *path;
    enum h2_call call;
    enum request_kind kind; /* of a QUESTION */
    bool streams;           /* the client may send any number of messages */
};

enum h2_encoding { H2_IDENTITY, H2_GZIP, H2_DEFLATE, H2_ENCODING_UNKNOWN };

struct h2_stream {
    struct session *session;
    int32_t id;
    struct h2_stream *prev, *next;             /* all of them */
    struct h2_stream *prev_ready, *next_ready; /* those with a message to hand on */
    struct h2_stream *prev_owing, *next_owing; /* those whose client owes more of it */
    bool is_ready, is_owing;

    /* Headers. */
    const struct h2_method *method; /* NULL: unknown */
    uint32_t n_headers, header_bytes;
    bool post, grpc; /* :method, content-type */
    enum h2_encoding encoding;
    uint64_t deadline_ns;                   /* 0: none */
    struct message_text token, traceparent; /* copies, if anybody needs them */
    size_t booked;                          /* what it adds to open_bytes */
    bool crowded;                           /* there was no room for it */

    /* The message that comes. */
    uint8_t prefix[H2_PREFIX];
    uint32_t n_prefix;
    size_t need, have;
    struct slab *slab;     /* NULL: nothing of it has come, or */
    const uint8_t *direct; /* all of it lies here, in the bytes that were read */
    bool whole;
    struct turn turn;           /* while it waits, its window stays closed and its clock stands */
    struct session_clock clock; /* of what the client owes */
    bool placed;                /* its payload is aligned, or nobody knows where it begins */
    bool ended;                 /* the client sends no more */
    bool discard;               /* what comes is of no use */
    const uint8_t *rest, *rest_end; /* bytes read, behind the message that waits */
    struct inflate *inflate;

    /* Answers. */
    uint32_t next_in, next_out; /* numbers of requests: the next one, and the next to be answered */
    uint32_t n_open;            /* requests not answered yet */
    struct h2_out *out;         /* in order */
    struct h2_out *early;       /* answers whose turn has not come */
    bool began;                 /* its response headers are on their way */
    bool finished;              /* nothing is added any more: the trailers follow */
    enum status status;         /* for the trailers */
    char *text;                 /* likewise, encoded; NULL: none */
    uint64_t retry_ms;          /* likewise; 0: none */
    int watched;                /* the state that a WATCH was told last; -1: none */
};

struct session {
    struct session_host *host;
    nghttp2_session *ng;
    struct h2_calm calm;
    struct h2_stream *streams, *ready, *owing; /* utlist DL */
    uint32_t n_streams;
    bool ended;
    enum session_end why; /* if nghttp2 has nothing left to do */
    uint64_t draining_ms; /* since when a goodbye is under way; 0: it is not, 1: its end was sent */
    size_t partial_bytes; /* of slabs of messages that are not whole */
    size_t open_bytes;    /* of open calls, */
    size_t booked;        /* and what of it the host was charged */

    /* What was read and not used yet: [at, end), in `held` or in the host's buffer. */
    const uint8_t *at, *end;
    struct slab *held;
    bool interrupted;          /* nghttp2 has something to do even if no bytes are left */
    struct h2_stream *resting; /* has bytes behind its message, which come before `at` */
    struct h2_stream *landing; /* the data frame that comes is for it, */
    size_t landing_left;       /* and has so many bytes left; 0: it is padded, or none comes */

    /* Going out. */
    bool sending;
    uint8_t *room, *room_end;
    struct iovec pieces[H2_PIECES];
    uint32_t n_pieces;
    struct h2_out *now;           /* the answer whose bytes are somebody's */
    struct h2_stream *now_stream; /* whose it is */
    struct slab *spent;           /* written, to be given back after a flush */
    size_t unsent;                /* bytes in slabs */
    struct message_text infer_id; /* of the request that is being handed on */
};

/* --- session_h2.c --- */

void h2_end(struct session *s, enum session_end why);
uint64_t h2_now_ms(void);

/* --- h2_stream.c --- */

struct h2_stream *h2_stream_of(struct session *s, int32_t id);
struct h2_stream *h2_stream_new(struct session *s, int32_t id);
/* The stream is gone: what is queued for it is taken back. */
void h2_stream_free(struct h2_stream *stream);
/* Takes a header. False: too many. */
bool h2_stream_header(struct h2_stream *stream, struct message_text name,
                      struct message_text value);
/* All headers are there. */
void h2_stream_begin(struct h2_stream *stream);
/* The client sends no more. */
void h2_stream_end(struct h2_stream *stream);
/* Ends a call whose requests are all answered and which gets no more. */
void h2_stream_settle(struct h2_stream *stream);

/* --- h2_message.c --- */

/* Takes bytes of messages; returns how many. Fewer: a message is whole and waits. */
size_t h2_message_add(struct h2_stream *stream, const uint8_t *data, size_t size);
/* Moves a whole message out of the bytes that were read. */
void h2_message_keep(struct h2_stream *stream);
/* Drops what there is of a message. */
void h2_message_drop(struct h2_stream *stream);
/* A place for the next bytes of this message; 0: there is none. */
size_t h2_message_room(const struct h2_stream *stream, uint8_t **at);
/* Hands on the message that waits. The stream may be gone afterwards. */
void h2_message_hand_on(struct h2_stream *stream);
void h2_ready_add(struct h2_stream *stream);
void h2_ready_remove(struct h2_stream *stream);
/* The client owes the message that its call takes, the rest of one, or the end of the call: for the
 * first, and then for the others, it has frame_timeout_ms. A call that takes any number of messages
 * may wait for the next one. */
void h2_owing_set(struct h2_stream *stream, bool owing);
/* Whether bytes of the stream's message can come, and are to. */
static inline bool h2_message_comes(const struct h2_stream *stream)
{
    return stream->n_prefix && !stream->whole && stream->turn.state != TURN_WAITS;
}

/* --- h2_method.c --- */

const struct h2_method *h2_method_find(struct message_text path);
/* Decodes a message into a request of the server. *done: it has been answered here. */
enum status h2_method_decode(struct h2_stream *stream, const void *message, size_t size,
                             struct request *out, bool *done, struct error *err);
/* Answers a health check; a stream that watches goes on. */
void h2_health_reply(struct h2_stream *stream, uint32_t number, bool yes);
/* Asks again for every stream that watches. */
void h2_watch(struct session *s);

/* --- h2_send.c --- */

/* Sends what there is to send, as far as it may go. */
void h2_send(struct session *s);
/* Gets `size` bytes of room for what is written until h2_send. */
uint8_t *h2_room(struct session *s, size_t size);
/* Sends a message of `size` bytes, which lie in room and elsewhere, and takes a copy of what does
 * not go yet. */
void h2_message_send(struct h2_stream *stream, uint32_t number, const struct iovec *iov,
                     uint32_t n);
/* The same of an encoded message, which is flushed before the call returns. */
void h2_bytes_send(struct h2_stream *stream, uint32_t number, struct message_text message);
void h2_out_free(struct session *s, struct h2_out *out);
ssize_t h2_on_read(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t length, uint32_t *flags,
                   nghttp2_data_source *source, void *user);
int h2_on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t length,
                    nghttp2_data_source *source, void *user);

/* --- h2_reply.c --- */

void h2_reply(struct session *s, const struct response *response);
/* Submits the response's headers, unless they were. */
void h2_begin(struct h2_stream *stream);
/* The call ends, with this status, when what it was sent has gone. */
void h2_finish(struct h2_stream *stream, enum status status, struct message_text text,
               uint64_t retry_us);
void h2_finish_error(struct h2_stream *stream, const struct error *err);
/* Ends a call that is no gRPC with a status of HTTP. */
void h2_finish_http(struct h2_stream *stream, const char *status);
void h2_trailers_submit(struct h2_stream *stream);

#endif
