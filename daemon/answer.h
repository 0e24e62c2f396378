/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to all questions that are no inference, once for all doors. A question is a struct
 * request, whatever protocol it came in; an answer is plain structs (proto/body.h), which the
 * session that asked encodes (session_ops.encode) as protobuf or JSON. Nothing here knows a wire
 * format.
 *
 *   answer.c           readiness, metadata, configuration, statistics, the index of models
 *   answer_status.c    the server's status
 *   answer_settings.c  settings of traces and log
 *   answer_region.c    regions of shared memory: registering, too
 *   answer_order.c     orders to load and unload models, which the loader carries out
 *   describe.c         sends what was made here; answers that cost much are kept for a moment
 *
 * Texts of an answer are static, lie in its arena or belong to the loop's table, so an answer is to
 * be encoded before its loop goes on. All functions are called on a loop's thread, except
 * answer_ordered.
 */
#ifndef INFERD_DAEMON_ANSWER_H
#define INFERD_DAEMON_ANSWER_H

#include "daemon/brought.h"
#include "daemon/loop.h"
#include "proto/body.h"

/* Makes the answer to a request of one of struct body's kinds. A model that it names is in the
 * loop's table (exchange_model has seen to that). RESOURCE_EXHAUSTED: no memory;
 * INVALID_ARGUMENT, UNIMPLEMENTED: a setting that cannot be set so. */
enum status answer_make(struct loop *loop, const struct request *request, struct arena *arena,
                        struct body *out, struct error *err);

/* SERVER_READY, and MODEL_READY of a model in the table. */
bool answer_server_ready(const struct shared *shared);
bool answer_model_ready(const struct shared *shared, const struct table_entry *entry);

/* Answers a MEMORY_... or CUDA_... request of `who`. */
void answer_region(struct connection *c, const struct request *request, const struct identity *who);

/* --- orders --- */

/* Who loads and unloads models while the server serves: shared.orders, set before the loops start.
 * NULL: nobody; such requests are answered UNIMPLEMENTED. */
struct answer_order {
    enum request_kind kind; /* REQUEST_MODEL_LOAD or REQUEST_MODEL_UNLOAD */
    char model[MESSAGE_MAX_NAME + 1];
    bool dependents;    /* unload the models that this one is made of, too */
    const char *config; /* a load's `config`: JSON in place of config.pbtxt; NULL: none */
    struct slab *files; /* a load's files, */
    const struct brought *brought; /* which lie in it; NULL: none */
    /* Whom to answer, and what. */
    struct loop *loop;
    uint64_t connection, id;
    bool failed;
    struct error err;
};

struct answer_orders {
    /* Takes over the order, and calls answer_ordered for it once, on any thread, when it has been
     * carried out or has failed. An error: it is not taken. A loop's thread: it may not wait. */
    enum status (*take)(void *user, struct answer_order *order, struct error *err);
    void *user;
};

/* Answers an order (`err` NULL: it was carried out) and frees it. Any thread, before the loops are
 * freed. */
void answer_ordered(struct answer_order *order, const struct error *err);
/* The end of it, on the loop's thread. */
void answer_order_end(struct answer_order *order);

/* Hands on a MODEL_LOAD or MODEL_UNLOAD request; an error is answered. */
void answer_order(struct connection *c, const struct request *request);

/* --- answer_status.c, answer_settings.c: parts of answer_make --- */

enum status answer_status(struct loop *loop, struct arena *arena, struct body_server_status *out,
                          struct error *err);
enum status answer_settings(struct loop *loop, const struct request *request, struct arena *arena,
                            struct body_settings *out, struct error *err);

#endif
