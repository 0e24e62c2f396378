/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: a client's frame decoded in place, and the client's encoder. No I/O, no allocation.
 */
#ifndef INFERD_PROTO_REQUEST_H
#define INFERD_PROTO_REQUEST_H

#include <sys/uio.h>

#include "proto/message.h"

/* The members of Request.body; the values are their field numbers. Those from 100 on have no
 * member: they are asked at the doors of the Open Inference Protocol alone. */
enum request_kind {
    REQUEST_NONE = 0,
    REQUEST_INFER = 10,
    REQUEST_SERVER_LIVE = 11,
    REQUEST_SERVER_READY = 12,
    REQUEST_MODEL_READY = 13,
    REQUEST_SERVER_METADATA = 14,
    REQUEST_MODEL_METADATA = 15,
    REQUEST_STATISTICS = 16,
    REQUEST_REPOSITORY_INDEX = 17,
    REQUEST_CANCEL = 18,
    REQUEST_SERVER_STATUS = 19,
    REQUEST_MODEL_CONFIG = 100,
    REQUEST_MODEL_LOAD = 101,
    REQUEST_MODEL_UNLOAD = 102,
    REQUEST_TRACE_SETTING = 103,
    REQUEST_LOG_SETTING = 104,
    REQUEST_MEMORY_STATUS = 105, /* regions of shared memory: of the system, */
    REQUEST_MEMORY_REGISTER = 106,
    REQUEST_MEMORY_UNREGISTER = 107,
    REQUEST_CUDA_STATUS = 108, /* and of a GPU */
    REQUEST_CUDA_REGISTER = 109,
    REQUEST_CUDA_UNREGISTER = 110,
};

enum {
    REQUEST_MAX_SETTINGS = 32,
    REQUEST_MAX_REGION = 128, /* bytes of a region's name */
    REQUEST_PRIORITY_LAST = 3,
};

/* A named value of a model_load, trace_setting or log_setting. A value that is a list has several
 * rows of one key. */
enum request_setting_kind {
    REQUEST_SETTING_CLEAR, /* back to its default */
    REQUEST_SETTING_BOOL,
    REQUEST_SETTING_NUMBER,
    REQUEST_SETTING_TEXT, /* strings, and bytes */
};
struct request_setting {
    struct message_text key;
    enum request_setting_kind kind;
    struct message_text text;
    uint64_t number; /* of a BOOL: 0 or 1 */
};

/* A model_load's files, "file:VERSION/NAME", are settings with their bytes as text. */
static inline bool request_setting_is_file(struct message_text key)
{
    return key.len >= 5 && memcmp(key.data, "file:", 5) == 0;
}
enum { REQUEST_FILE_PREFIX = 5 };

/* A region of shared memory, as a client names and finds it. */
struct request_region {
    struct message_text name; /* empty: all regions (status, unregister) */
    struct message_text key;  /* of the system: its name for shm_open(3); of a GPU: its handle */
    uint64_t offset, size;    /* of the region in the file */
    uint64_t device;          /* of a GPU's: its number */
};

/* About 22 KiB: keep one for each thread, not one for each request. */
struct request {
    uint64_t id;
    uint64_t timeout_us; /* 0: the server's default */
    uint32_t priority;
    uint64_t level; /* as an open protocol names it: by the model's own levels; 0: it does not */
    enum request_kind kind;
    struct message_text token, traceparent;
    /* infer, model_*, statistics, trace_setting; empty texts: any model, the newest version */
    struct message_text model, version;
    /* infer */
    struct message_text infer_id; /* to be echoed */
    uint32_t n_inputs, n_outputs;
    struct message_tensor inputs[MESSAGE_MAX_TENSORS];
    struct message_text outputs[MESSAGE_MAX_TENSORS]; /* wanted, in this order; none: all */
    uint32_t classes[MESSAGE_MAX_TENSORS]; /* of each: so many best classes as text; 0: as it is */
    struct message_region regions[MESSAGE_MAX_TENSORS]; /* of each: where it is to be written */
    /* repository_index */
    bool ready_only;
    /* cancel */
    uint64_t target;
    /* model_load, trace_setting, log_setting */
    uint32_t n_settings;
    struct request_setting settings[REQUEST_MAX_SETTINGS];
    /* model_unload: the models that this one is made of, too */
    bool dependents;
    /* memory_*, cuda_* */
    struct request_region region;
};

/*
 * Decodes the message of one frame. The texts and payloads of `out` point into it. Fields may come
 * in any order; unknown ones are skipped, except groups (R6 of docs/operations.md). A request is
 * refused with INVALID_ARGUMENT and a reason if it breaks a cap of message.h, has a name twice, has
 * a payload of another size than its shape and dtype need, has contents both typed and raw, has an
 * id to be echoed that is not UTF-8, or has no body or two. UNIMPLEMENTED: its body is not in the
 * schema. Even then `out->id` is right, if one of the first MESSAGE_MAX_FIELDS fields is a readable
 * id; otherwise it is 0. Uses less than 8 KiB of stack (R5).
 */
enum status request_decode(const void *message, size_t size, struct request *out,
                           struct error *err);

/* --- the doors of the Open Inference Protocol --- */

/* The value of a parameter, whatever it was written in. */
enum request_value_kind {
    REQUEST_VALUE_BOOL, /* `number` is 0 or 1 */
    REQUEST_VALUE_INT,  /* in `number`; what is larger came as INT64_MAX */
    REQUEST_VALUE_DOUBLE,
    REQUEST_VALUE_TEXT,
};
struct request_parameter {
    struct message_text key;
    enum request_value_kind kind;
    struct message_text text;
    int64_t number;
    double real;
};
/* Whose parameter it is; of the input or output that was taken last. */
enum request_place { REQUEST_PLACE_REQUEST, REQUEST_PLACE_INPUT, REQUEST_PLACE_OUTPUT };

/*
 * Takes a parameter of an inference over into the request. With `open` a request's "priority" (1 is
 * the first, 0 the default) and "timeout" (microseconds) count, an output's "classification", the
 * "shared_memory_region" of an input or output with its "_byte_size" and "_offset", and parameters
 * of sequences are refused, for no model keeps a state between requests. Unknown ones change
 * nothing. INVALID_ARGUMENT: refused, or a value of the wrong kind.
 */
enum status request_parameter(struct request *request, enum request_place place,
                              const struct request_parameter *parameter, bool open,
                              struct error *err);

/* Decodes a message of the protocol's own service as request_decode does, with `out->id` 0. Of a
 * ModelInferRequest the parameters count. */
enum status request_decode_infer(const void *message, size_t size, struct request *out,
                                 struct error *err);
/* The same for the message that asks a question of this kind: not INFER, CANCEL or SERVER_STATUS.
 */
enum status request_decode_open(enum request_kind kind, const void *message, size_t size,
                                struct request *out, struct error *err);

/* Clears everything but the arrays, whose entries are cleared when they are taken. */
void request_clear(struct request *request);
/* Checks what a decoder took over of texts: model, version, token and infer_id. */
enum status request_texts_check(const struct request *request, struct error *err);
/* Checks the names and regions of the outputs that an inference asks for, and the regions of its
 * inputs; part of request_decode. */
enum status request_outputs_check(const struct request *request, struct error *err);

/* The id of a message that cannot be decoded, or of which only the beginning has come; 0 if none of
 * its first MESSAGE_MAX_FIELDS fields is an id. */
uint64_t request_id_find(const void *message, size_t size);

/* Where the first payload of at least `least` bytes begins in an inference of which the first
 * `have` bytes have come; `framed`: of the framed protocol, else of gRPC. 0: that is not known
 * (yet). */
size_t request_payload_find(const void *message, size_t have, size_t least, bool framed);

/*
 * Finds the token of a message of which only the first `size` bytes have come, so that the server
 * knows the sender before it keeps the message. Encoders write fields in the order of their
 * numbers, and so the token before the body; a token that stands elsewhere is not found. The search
 * looks at 16 fields and 2 KiB at most.
 */
enum request_token {
    REQUEST_TOKEN_FOUND, /* *out lies in the message, and is not empty */
    REQUEST_TOKEN_MORE,  /* not in these bytes, but perhaps in the next ones */
    REQUEST_TOKEN_NONE,
};
enum request_token request_token_find(const void *message, size_t size, struct message_text *out);

/*
 * Encodes a frame, its 4-byte head included, for the client's side. `request` is filled in as the
 * decoder fills it; a tensor's name, dtype, shape, data and size are sent. The encoded parts go to
 * `head` (MESSAGE_HEAD_MAX bytes), and payloads stay where they are: `iov` gets at most
 * MESSAGE_MAX_IOV pieces. INVALID_ARGUMENT: the request exceeds a cap; INTERNAL: the frame would
 * have 4 GiB or more.
 */
enum status request_encode(const struct request *request, void *head, struct iovec *iov,
                           uint32_t *n_iov, struct error *err);

#endif
