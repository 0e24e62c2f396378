/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libinferd-client: the client of the inferd inference server.
 *
 * This header is the manual. Compile with `pkg-config --cflags --libs inferd-client`; include as
 * <inferd/client.h>. It needs no other header of ours; the async half needs libuv in your program.
 *
 * -- In short ------------------------------------------------------------------------------------
 *
 *     struct inferd_error err;
 *     struct inferd_client *client;
 *     if (inferd_client_open("127.0.0.1:8003", NULL, &client, &err))
 *         ... err.text says why ...
 *
 *     struct inferd_tensor input = {.name = "image", .dtype = INFERD_FP32, .rank = 4,
 *                                   .dim = {1, 1, 8, 8}, .data = pixels, .size = 256};
 *     struct inferd_request request = {.model = "digits", .inputs = &input, .n_inputs = 1};
 *     const struct inferd_response *response;
 *     if (inferd_client_call(client, &request, &response, &err))
 *         ... the connection failed, or the server said no ...
 *     use(response->outputs[0].data, response->outputs[0].size);
 *
 *     inferd_client_close(client);
 *
 * -- Two interfaces over one protocol ------------------------------------------------------------
 *
 *   Blocking   inferd_client_*  one connection, one thread at a time. "call" sends and waits;
 *                               "send" and "receive" pipeline: send many, receive as they come.
 *   Async      inferd_async_*   one connection on your libuv loop; a callback for each request.
 *
 * Both take the same requests and give the same responses. A request names its kind: an inference
 * (the default), or a question about the server (INFERD_MODEL_METADATA, INFERD_STATUS, ...).
 *
 * -- Who owns what -------------------------------------------------------------------------------
 *
 *   Requests    The call that takes a request reads all of it, except the `data` of tensors:
 *               that is sent from where it lies, and must stay as it is until the call returns
 *               (blocking) or the callback has run (async). Strings and arrays may be freed
 *               before.
 *   Responses   They are views into the connection's receive buffer, and good until the next call
 *               on that connection (blocking) or until the callback returns (async). Copy what
 *               you keep. The `data` of outputs has no particular alignment: memcpy from it.
 *
 * -- Time ----------------------------------------------------------------------------------------
 *
 * `timeout_us` goes to the server. A request that the server has not begun by then is answered with
 * DEADLINE_EXCEEDED and never runs. If no answer has come by that time plus the option `grace_ms`,
 * the library gives DEADLINE_EXCEEDED itself, and drops an answer that comes later. Without a
 * timeout requests wait as long as the connection lives.
 *
 * -- Errors --------------------------------------------------------------------------------------
 *
 * Codes are gRPC's. After INFERD_UNAVAILABLE and INFERD_RESOURCE_EXHAUSTED a request can be tried
 * again, after `retry_after_us` if that is not 0. INFERD_UNAUTHENTICATED says that the server wants
 * a token that it knows (or, with TLS, another certificate), INFERD_PERMISSION_DENIED that the
 * token's owner may not do this. If a connection is lost, requests in flight get UNAVAILABLE: they
 * may have been executed. A connection that has failed cannot be used again; close it and open
 * another.
 *
 * -- Threads -------------------------------------------------------------------------------------
 *
 * A connection belongs to one thread at a time (async: the loop's). There is no global state.
 */
#ifndef INFERD_CLIENT_CLIENT_H
#define INFERD_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INFERD_API __attribute__((visibility("default")))

/* --- codes and types --- */

enum inferd_status {
    INFERD_OK = 0,
    INFERD_CANCELLED = 1,
    INFERD_UNKNOWN = 2,
    INFERD_INVALID_ARGUMENT = 3,
    INFERD_DEADLINE_EXCEEDED = 4,
    INFERD_NOT_FOUND = 5,
    INFERD_ALREADY_EXISTS = 6,
    INFERD_PERMISSION_DENIED = 7,
    INFERD_RESOURCE_EXHAUSTED = 8,
    INFERD_FAILED_PRECONDITION = 9,
    INFERD_ABORTED = 10,
    INFERD_OUT_OF_RANGE = 11,
    INFERD_UNIMPLEMENTED = 12,
    INFERD_INTERNAL = 13,
    INFERD_UNAVAILABLE = 14,
    INFERD_DATA_LOSS = 15,
    INFERD_UNAUTHENTICATED = 16
};

enum inferd_dtype {
    INFERD_NONE = 0, /* a type this library does not know */
    INFERD_BOOL = 1, /* one byte, 0 or 1 */
    INFERD_UINT8 = 2,
    INFERD_UINT16 = 3,
    INFERD_UINT32 = 4,
    INFERD_UINT64 = 5,
    INFERD_INT8 = 6,
    INFERD_INT16 = 7,
    INFERD_INT32 = 8,
    INFERD_INT64 = 9,
    INFERD_FP16 = 10,
    INFERD_BF16 = 11,
    INFERD_FP32 = 12,
    INFERD_FP64 = 13
};

enum {
    INFERD_MAX_RANK = 8,
    INFERD_MAX_TENSORS = 64, /* inputs of a request, outputs of a response */
    INFERD_ERROR_TEXT = 512
};

struct inferd_error {
    enum inferd_status status;
    char text[INFERD_ERROR_TEXT]; /* one line, terminated */
};

/* "INVALID_ARGUMENT"; "FP32" and 4 for INFERD_FP32. Static storage. */
INFERD_API const char *inferd_status_name(enum inferd_status status);
INFERD_API const char *inferd_dtype_name(enum inferd_dtype dtype);
INFERD_API size_t inferd_dtype_size(enum inferd_dtype dtype);

/* --- requests --- */

/* Dense, row-major. The first dimension of a batched model counts instances. */
struct inferd_tensor {
    const char *name;
    enum inferd_dtype dtype;
    uint32_t rank;
    int64_t dim[INFERD_MAX_RANK];
    const void *data;
    size_t size; /* bytes: those that dtype and dim need */
};

enum inferd_kind {
    INFERD_INFER = 0,
    INFERD_SERVER_LIVE,     /* response.yes */
    INFERD_SERVER_READY,    /* response.yes */
    INFERD_MODEL_READY,     /* response.yes; takes model, version */
    INFERD_SERVER_METADATA, /* response.server */
    INFERD_MODEL_METADATA,  /* response.metadata; takes model, version */
    INFERD_STATISTICS,      /* response.statistics; takes model (NULL: all), version */
    INFERD_INDEX,           /* response.index */
    INFERD_STATUS           /* response.status_page: all that `inferctl status` shows */
};

/* Unset members are zero: initialise with designators. */
struct inferd_request {
    enum inferd_kind kind;
    const char *model, *version; /* version NULL: the newest */
    uint32_t n_inputs;
    const struct inferd_tensor *inputs;
    uint32_t n_outputs; /* 0: all */
    const char *const *outputs;
    uint64_t timeout_us;     /* 0: the server's default */
    uint32_t priority;       /* 0 (first) to 3 */
    const char *token;       /* sent with the request, whatever its kind; NULL: none */
    const char *traceparent; /* W3C Trace Context */
};

/* --- responses --- */

/* Where an inference has spent its time in the server. */
struct inferd_timing {
    uint64_t queue_ns, input_ns, compute_ns, output_ns;
    uint32_t batch; /* instances in the batch it ran in */
};

struct inferd_metadata_tensor {
    const char *name;
    const char *datatype;    /* "FP32" */
    enum inferd_dtype dtype; /* INFERD_NONE for another name */
    uint32_t rank;
    int64_t dim[INFERD_MAX_RANK]; /* -1: any; the first counts instances */
};

struct inferd_metadata {
    const char *name, *platform;
    uint32_t n_versions, n_inputs, n_outputs;
    const char *const *versions;
    const struct inferd_metadata_tensor *inputs, *outputs;
};

struct inferd_server {
    const char *name, *version;
    uint32_t n_extensions;
    const char *const *extensions;
};

struct inferd_duration {
    uint64_t count, ns;
};

struct inferd_model_statistics {
    const char *name, *version;
    uint64_t last_inference_ms; /* since 1970 */
    uint64_t inferences, executions;
    struct inferd_duration success, fail, queue, input, compute, output;
};

struct inferd_statistics {
    uint32_t n_models;
    const struct inferd_model_statistics *models;
};

struct inferd_index_entry {
    const char *name, *version, *state, *reason;
};

struct inferd_index {
    uint32_t n_models;
    const struct inferd_index_entry *models;
};

/* The stages of an answered request; INFERD_TOTAL is all of them together. */
enum inferd_stage {
    INFERD_QUEUE,
    INFERD_INPUT,
    INFERD_COMPUTE,
    INFERD_OUTPUT,
    INFERD_TOTAL,
    INFERD_STAGES
};

/* Counts the requests that took from `low_ns` to below `high_ns`, which is at most a 32nd more. */
struct inferd_bucket {
    uint64_t low_ns, high_ns, count;
};

/* The buckets that are not empty, by rising times. Counts only fall when the model is loaded
 * anew. */
struct inferd_histogram {
    uint32_t n_buckets;
    const struct inferd_bucket *buckets;
};

struct inferd_status_model {
    const char *name, *version;
    const char *state, *reason; /* LOADING, READY, UNAVAILABLE, DRAINING; and why */
    uint32_t max_batch, queued;
    uint64_t max_delay_us, oldest_us; /* age of the oldest queued request */
    uint64_t requests, failures, instances, batches;
    uint64_t queue_ns, input_ns, compute_ns, output_ns; /* sums over answered requests */
    uint64_t total_ns;
    uint64_t since_ms; /* since 1970: when all these were zero; differs for each load */
    struct inferd_histogram stages[INFERD_STAGES];
};

/*
 * The time in ns that a share `q` (0 to 1) of the requests did not exceed, as exactly as the
 * buckets tell. Counted are the requests that `now` has and `before`, an earlier status of the same
 * load, has not; all of them if `before` is NULL. 0 if there are none.
 */
INFERD_API uint64_t inferd_histogram_quantile(const struct inferd_histogram *now,
                                              const struct inferd_histogram *before, double q);

struct inferd_counter {
    const char *name;
    uint64_t value;
};

/* Where the server's bytes are: one row for each place. */
struct inferd_memory {
    const char *name;
    uint64_t bytes, limit; /* limit 0: none */
};

struct inferd_status_page {
    const char *version, *device;
    uint64_t uptime_s;
    bool ready;
    uint32_t workers, workers_busy, connections;
    uint64_t inflight_bytes, inflight_requests;
    uint32_t n_models, n_counters;
    const struct inferd_status_model *models;
    const struct inferd_counter *counters;
    uint32_t n_memory; /* 0: the server does not say */
    const struct inferd_memory *memory;
    uint64_t uptime_ns, started_ms; /* started_ms counts from 1970; differs for each run */
};

struct inferd_response {
    uint64_t id; /* what inferd_client_send gave */
    enum inferd_kind kind;
    enum inferd_status status;
    const char *message;     /* the reason if status is not OK, else "" */
    uint64_t retry_after_us; /* 0: no hint */

    /* INFERD_INFER */
    const char *model, *version;
    uint32_t n_outputs;
    const struct inferd_tensor *outputs;
    struct inferd_timing timing; /* batch 0: it did not run */

    /* the other kinds; NULL unless it was asked for and answered with OK */
    bool yes;
    const struct inferd_server *server;
    const struct inferd_metadata *metadata;
    const struct inferd_statistics *statistics;
    const struct inferd_index *index;
    const struct inferd_status_page *status_page;
};

/* --- connections --- */

/* A member that is 0 has its default, shown here; a NULL pointer gives all defaults. */
struct inferd_options {
    uint32_t connect_timeout_ms; /* 10,000 */
    uint32_t grace_ms;           /* see Time above; 1,000 */
    uint32_t max_in_flight;      /* unanswered requests; 1,024; at most 65,536 */
    size_t max_response;         /* bytes; 1 GiB; memory grows only with what has come */
};

/*
 * Addresses: "127.0.0.1:8003", "[::1]:8003", "localhost:8003", "serving.example.org:8003",
 * "unix:/run/inferd/inferd.sock". The addresses of a name are tried in order. The blocking client
 * waits for the system's resolver, whatever connect_timeout_ms says. The asynchronous client has a
 * thread of libuv ask it, and cannot finish closing before the resolver has answered.
 *
 * "tls://serving.example.org:8003" speaks TLS (1.2 or 1.3), and the server's certificate has to be
 * valid for that host. Files in PEM may follow, and what the certificate is for instead:
 * "tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=HOST". The first has the authorities (default:
 * the system's), the next two the client's own certificate, if the server wants one. Values are
 * taken as they stand. Opening, or the first answer, says UNAUTHENTICATED if one side's certificate
 * does not satisfy the other.
 *
 * Out-parameters are untouched on failure; `err` may be NULL.
 */

struct inferd_client;

INFERD_API enum inferd_status inferd_client_open(const char *address,
                                                 const struct inferd_options *options,
                                                 struct inferd_client **out,
                                                 struct inferd_error *err);

/* NULL is fine. Requests in flight go unanswered. */
INFERD_API void inferd_client_close(struct inferd_client *client);

/*
 * Sends a request and waits for the answer. An error that the server answers is returned as an
 * error, with its message in `err`; `*out` is then set too, for its retry_after_us. Calls may be
 * mixed with send and receive: answers to earlier sends that come meanwhile are kept for "receive".
 */
INFERD_API enum inferd_status inferd_client_call(struct inferd_client *client,
                                                 const struct inferd_request *request,
                                                 const struct inferd_response **out,
                                                 struct inferd_error *err);

/*
 * Sends without waiting for the answer; the response will carry `*id`. RESOURCE_EXHAUSTED:
 * max_in_flight requests are unanswered, or what the server has sent meanwhile fills max_response:
 * receive first.
 */
INFERD_API enum inferd_status inferd_client_send(struct inferd_client *client,
                                                 const struct inferd_request *request, uint64_t *id,
                                                 struct inferd_error *err);

/*
 * Waits for the next answer, to whichever request. OK means that an answer came; its own status is
 * in the response. DEADLINE_EXCEEDED: no answer came in `timeout_us` (0: do not wait; UINT64_MAX:
 * wait for ever). FAILED_PRECONDITION: nothing is in flight. For a request whose own time is over,
 * this gives a response with the status DEADLINE_EXCEEDED.
 */
INFERD_API enum inferd_status inferd_client_receive(struct inferd_client *client,
                                                    uint64_t timeout_us,
                                                    const struct inferd_response **out,
                                                    struct inferd_error *err);

/* Asks the server not to run a request. The request still gets its one answer: CANCELLED, or its
 * result if the cancel came too late. NOT_FOUND: no such request is in flight. */
INFERD_API enum inferd_status inferd_client_cancel(struct inferd_client *client, uint64_t id,
                                                   struct inferd_error *err);

/* The number of unanswered requests. */
INFERD_API uint32_t inferd_client_in_flight(const struct inferd_client *client);

/* --- asynchronous, on libuv --- */

struct uv_loop_s; /* uv_loop_t */
struct inferd_async;

/* Takes the one answer to a request. It is also called when the request has timed out
 * (DEADLINE_EXCEEDED) or the connection was lost (UNAVAILABLE) or closed (CANCELLED). It may call
 * any function of this header. */
typedef void (*inferd_answer)(void *user, const struct inferd_response *response);

/* Called once with OK when connected, and once with another status when the connection could not be
 * made or was lost; then all requests in flight have been answered. */
typedef void (*inferd_state)(void *user, enum inferd_status status, const char *reason);

typedef void (*inferd_closed)(void *user);

/* Starts to connect. Requests may be sent at once; they go out when the connection is made. `state`
 * may be NULL. */
INFERD_API enum inferd_status inferd_async_open(struct uv_loop_s *loop, const char *address,
                                                const struct inferd_options *options,
                                                inferd_state state, void *user,
                                                struct inferd_async **out,
                                                struct inferd_error *err);

/* Answers all requests in flight with CANCELLED, frees everything in the next rounds of the loop,
 * and then calls `closed` (may be NULL) with `user`. Run the loop until then. */
INFERD_API void inferd_async_close(struct inferd_async *async, inferd_closed closed, void *user);

/*
 * Sends a request. If this returns OK, `answer` is called exactly once, and never from within this
 * function; otherwise it is not called. What is sent in one round of the loop goes out in one
 * system call before the loop waits again. `id` may be NULL. RESOURCE_EXHAUSTED: max_in_flight
 * requests are unanswered. UNAVAILABLE: the connection is lost.
 */
INFERD_API enum inferd_status inferd_async_send(struct inferd_async *async,
                                                const struct inferd_request *request,
                                                inferd_answer answer, void *user, uint64_t *id,
                                                struct inferd_error *err);

INFERD_API enum inferd_status inferd_async_cancel(struct inferd_async *async, uint64_t id,
                                                  struct inferd_error *err);

INFERD_API uint32_t inferd_async_in_flight(const struct inferd_async *async);

/* --- prepared requests --- */

/*
 * A request that is encoded once and sent many times. Its shapes stay the same; the bytes at its
 * tensors' `data` are read again at each send. Sending it costs about a copy. It belongs to no
 * connection: any may send it.
 */
struct inferd_prepared;

INFERD_API enum inferd_status inferd_prepared_new(const struct inferd_request *request,
                                                  struct inferd_prepared **out,
                                                  struct inferd_error *err);
INFERD_API void inferd_prepared_free(struct inferd_prepared *prepared);

INFERD_API enum inferd_status inferd_async_send_prepared(struct inferd_async *async,
                                                         const struct inferd_prepared *prepared,
                                                         inferd_answer answer, void *user,
                                                         uint64_t *id, struct inferd_error *err);

#ifdef __cplusplus
}
#endif

#endif
