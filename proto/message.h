/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What requests and responses are made of: texts and tensors that lie in a frame, their caps, and
 * the names that are allowed.
 *
 * Decoding is in place: a text or a payload is a pointer into the frame and lives as long as the
 * frame. Payloads have whatever alignment they happen to have.
 */
#ifndef INFERD_PROTO_MESSAGE_H
#define INFERD_PROTO_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/utf8.h"

enum {
    MESSAGE_MAX_TENSORS = 64, /* inputs of a request, outputs of a response */
    MESSAGE_MAX_NAME = 64,    /* bytes of a model's, a version's, a tensor's name */
    MESSAGE_MAX_ID = 128,     /* bytes of ModelInferRequest.id, which is echoed */
    MESSAGE_MAX_TOKEN = 1024,
    MESSAGE_MAX_PARAMETERS = 64, /* entries of all maps of a request */

    /* Fields of a message and of all messages within it, known or not, those of typed contents
     * apart. An encoder that packs numbers writes about 720 when every other cap is used up. */
    MESSAGE_MAX_FIELDS = 1024,

    /* A frame without its payloads is never larger than this. */
    MESSAGE_HEAD_MAX = 20 * 1024,
    /* Pieces of a frame: head and payload of each tensor. */
    MESSAGE_MAX_IOV = 2 * MESSAGE_MAX_TENSORS + 1,
};

/* Bytes, not terminated. */
struct message_text {
    const char *data;
    size_t len;
};

static inline struct message_text message_text_of(const char *text)
{
    return (struct message_text){.data = text, .len = text ? strlen(text) : 0};
}

static inline bool message_text_equal(struct message_text a, struct message_text b)
{
    return a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
}

/* "%.*s" with MESSAGE_TEXT(t): cut at 80 bytes, so that an error text has room for the reason. */
#define MESSAGE_TEXT(t) (int)utf8_cut((t).data, (t).len, 80), (t).data ? (t).data : ""

/* Where a tensor's bytes lie if they are in a region of shared memory. */
struct message_region {
    struct message_text name; /* empty: they are in no region */
    uint64_t offset, size;
    bool sized; /* received: it says how many they are */
};

/* A tensor as it is sent or was received. */
struct message_tensor {
    struct message_text name;
    struct message_text datatype; /* received: as it came; sent: used if dtype is NONE ("BYTES") */
    enum dtype dtype;             /* received: DTYPE_NONE if the name is not one of ours */
    struct shape shape;
    const void *data; /* the raw bytes; NULL if it came typed */
    size_t size;
    bool typed;                   /* received: as InferTensorContents; see message_unpack */
    struct message_text contents; /* that message, encoded */
    struct message_region region; /* in which its bytes lie; `data` is NULL then */
};

/* [A-Za-z0-9._-]{1,64}, no leading dot: models and versions, which become file names (R13 of
 * docs/operations.md). */
bool message_name_ok(struct message_text name);

/* 1 to 64 printable ASCII characters without spaces: tensors. They are only ever compared with
 * names in a plan, and exporters write "input:0" and "encoder/layer_0/out". */
bool message_tensor_name_ok(struct message_text name);

/* Finds the dtypes of tensors that came, and checks their names, dtypes and sizes. Typed contents,
 * of whatever encoding, must have a byte for each element. `what` is "input" or "output". */
enum status message_tensors_check(struct message_tensor *tensors, uint32_t n, const char *what,
                                  struct error *err);

/*
 * The state of writing a typed tensor's elements as raw bytes, a slice at a time. It is plain data
 * and may be dropped at any time. `at`, `end`, `chunk_end` and `name` point into the frame and `to`
 * into the caller's memory; frame and memory must stay until the last slice is written.
 */
struct message_unpacking {
    const struct message_unpack_row *row;
    struct message_text name;
    const uint8_t *at, *end;  /* the contents not read yet */
    const uint8_t *chunk_end; /* elements until here; `at` here: a field comes next */
    unsigned char *to;
    size_t left;    /* elements */
    uint32_t empty; /* fields without an element so far */
};

/*
 * Begins to write the tensor's elements to `to`, which has the `size` bytes that its shape and
 * dtype take. INVALID_ARGUMENT: the dtype has no typed form (FP16 and BF16). The struct `tensor` is
 * not needed afterwards.
 */
enum status message_unpack_begin(struct message_unpacking *u, const struct message_tensor *tensor,
                                 void *to, size_t size, struct error *err);

/*
 * Decodes about `bytes` more of the encoded contents: at least one element, and at most a field's
 * head and one element beyond `bytes`. Fields without elements are stepped over, at the same cost
 * whatever their size, but no more than MESSAGE_MAX_FIELDS of them. `*done` is set when all
 * elements have been written. INVALID_ARGUMENT, after which no further step may be taken: the
 * contents are damaged, of another type (FP32 goes into fp32_contents; INT8 and INT16 into
 * int_contents), out of the dtype's range, too many or too few for the shape, or hold too many
 * fields without elements.
 */
enum status message_unpack_step(struct message_unpacking *u, size_t bytes, bool *done,
                                struct error *err);

/* Begins and takes all steps. */
enum status message_unpack(const struct message_tensor *tensor, void *to, size_t size,
                           struct error *err);

#endif
