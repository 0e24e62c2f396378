/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the Open Inference Protocol that come as JSON: an inference, whose tensors are JSON,
 * binary data behind it or in regions of shared memory; the index of the repository; a load and an
 * unload; settings of traces and log; a region to register.
 *
 * JSON can be long and costs far more than a copy, so it is read in steps, between which an event
 * loop can serve others. An inference is read twice: first for all that is not an element of a
 * tensor, so that types and shapes are known and checked wherever they stand; then the elements,
 * straight into memory that the caller gives once it is known how much that is.
 *
 * Keys that are not known are read over, as the protocol asks; a known one that comes twice, or
 * with a value of another kind, is refused. What asks for something that is not there (sequences)
 * is refused with UNIMPLEMENTED.
 */
#ifndef INFERD_HTTP_DECODE_H
#define INFERD_HTTP_DECODE_H

#include "proto/request.h"

enum { HTTP_DECODE_ALIGN = 64 /* of each input in the caller's memory */ };

/* What an inference says of its reply. */
struct http_wanted {
    bool binary;        /* outputs go as binary data if nothing is said of them */
    bool named;         /* outputs are asked for by name: */
    uint64_t outputs;   /* a bit for each of these that goes as binary data */
    uint64_t undecided; /* while the request is read: those that said nothing of it */
};

struct http_decode;

/* Bytes of a decoder for so many bytes of JSON; and one made in such memory, aligned as a slab's.
 * `json` and `binary` have to stay. `request` is what is known already: kind, id, token, model. */
size_t http_decode_size(size_t json);
struct http_decode *http_decode_init(void *memory, size_t memory_size,
                                     const struct request *request, struct message_text json,
                                     struct message_text binary);

enum http_decode_state {
    HTTP_DECODE_GOES_ON, /* call again */
    HTTP_DECODE_NEEDS, /* http_decode_place must be called with memory of http_decode_needs bytes */
    HTTP_DECODE_DONE,
};

/* Takes one step, of some 8 KiB of JSON or 256 KiB of binary data. INVALID_ARGUMENT, UNIMPLEMENTED:
 * the request is refused. */
enum status http_decode_step(struct http_decode *decode, enum http_decode_state *state,
                             struct error *err);
size_t http_decode_needs(const struct http_decode *decode);
void http_decode_place(struct http_decode *decode, void *memory);

/* The request that was decoded; its texts lie in the decoder, its payloads in `binary` or, if
 * memory was asked for, all of them there. */
const struct request *http_decode_request(const struct http_decode *decode);
const struct http_wanted *http_decode_wanted(const struct http_decode *decode);

#endif
