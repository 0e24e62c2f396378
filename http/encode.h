/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as JSON, in the form that the clients of Triton and KServe know. */
#ifndef INFERD_HTTP_ENCODE_H
#define INFERD_HTTP_ENCODE_H

#include "http/json.h"
#include "proto/body.h"
#include "proto/response.h"

/* A description. The text lies in the arena. RESOURCE_EXHAUSTED: no memory. */
enum status http_body_encode(const struct body *body, struct arena *arena, struct message_text *out,
                             struct error *err);

/* {"live":true}, {"ready":false} and so on: the answer to a question of yes or no, of a model if
 * `model` is not empty. At most HTTP_SMALL_MOST bytes; an error's object is no longer either. */
enum { HTTP_SMALL_MOST = 6 * 1024 };
void http_answer_write(struct json_writer *w, enum request_kind kind, struct message_text model,
                       bool yes);
void http_error_write(struct json_writer *w, struct message_text message);

/*
 * The JSON of a reply to an inference, piece by piece, so that a large one neither needs memory for
 * all of its text nor keeps an event loop for long. A struct http_infer_text is plain data, zeros
 * in the beginning. `binary` has a bit for each output that goes as binary data behind the JSON;
 * the others' elements are in the text.
 */
struct http_infer_text {
    uint32_t phase, output;
    size_t element;
};

/* Bytes that the text has at most. */
size_t http_infer_text_most(const struct response *response, uint64_t binary);
/* The writer must have room for HTTP_TEXT_STEP bytes. Writes as much as fits; true: that was
 * all. */
enum { HTTP_TEXT_STEP = 4 * 1024 };
bool http_infer_text(struct http_infer_text *text, const struct response *response, uint64_t binary,
                     struct json_writer *w);

#endif
