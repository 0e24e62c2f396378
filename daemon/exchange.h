/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange between connections and the rest of the server: what becomes of a decoded request,
 * and what becomes of a result.
 *
 *   exchange.c        replies, results, failures, cancels; which function answers which request
 *   exchange_infer.c  an inference is checked against its model and submitted
 *   exchange_shape.c  an inference of sizes that no profile has waits for an engine
 *   exchange_classes.c classes in the place of large outputs are found, in slices
 *   exchange_unpack.c typed contents of large requests, in slices
 *   describe.c        everything else is answered on the spot
 *
 * exchange_begin begins every reply.
 */
#ifndef INFERD_DAEMON_EXCHANGE_H
#define INFERD_DAEMON_EXCHANGE_H

#include "daemon/connection.h"

/* Answers or submits a request. Takes over `frame` (may be NULL), see session_host_ops.request. */
void exchange_request(struct connection *c, const struct request *request, struct slab *frame);
/* The session gave up: counts that, and tells the operator what he should know. */
void exchange_session_end(struct connection *c, enum session_end why);

/* Answers a request that came back, if its connection is still there: now, or after some turns if
 * classes have to be found. Then its payload is released, and the loop holds it until the flush,
 * because the reply still points to its batch. */
void exchange_result(struct loop *loop, struct inflight *inflight);

/* Takes back the request of that id without an answer, if it does not run yet. */
void exchange_withdraw(struct connection *c, uint64_t id);
/* The connection ends: takes back what is queued for it. What runs comes back to nobody, and the
 * loop drops what has not been submitted yet. */
void exchange_forget(struct connection *c);
/* Takes back the requests that wait, and answers them UNAVAILABLE. With `all`, answers those that
 * run as well, which then come back to nobody. */
void exchange_fail(struct connection *c, bool all);
/* Answers the requests of these serials, which hang in a worker and come back to nobody. */
void exchange_abandon(struct connection *c, const uint64_t *serials, size_t n);

/* Begins the response to a request of that id and kind, in the loop's scratch: OK and otherwise
 * empty. To be followed by connection_reply. */
struct response *exchange_begin(struct connection *c, uint64_t id, enum request_kind kind);
/* Finds the entry of the model that is asked for. NULL: the answer was that there is none. */
const struct table_entry *exchange_model(struct connection *c, const struct request *request);
/* Gives a request the reason why there is no result, which says more than its cause. */
void exchange_tell(struct inflight *inflight, const struct error *err);
/* Replies with an error, gives the retry hint of its cause, and counts it as the cause says. */
void exchange_error(struct connection *c, uint64_t id, const struct error *err);

/* --- exchange_infer.c --- */

/* Submits an inference. Takes `*frame` if the payload stays there. */
void exchange_infer(struct connection *c, const struct request *request, const struct identity *who,
                    struct slab **frame);

/* --- exchange_shape.c --- */

/* Once a turn: has parked requests go on, fail or expire. */
void exchange_shapes_turn(struct loop *loop);

/* --- exchange_classes.c --- */

/* Once a turn, if loop->classes has any: a slice for requests whose classes are being found. */
void exchange_classes_turn(struct loop *loop);
/* The request ends: nothing more is found for it. */
void exchange_classes_drop(struct loop *loop, struct inflight *inflight);

/* --- exchange_unpack.c --- */

/* Unpacks typed contents of a large frame in slices, one a turn; until the end the connection takes
 * no further request. */
void exchange_unpack_go_on(struct connection *c);
void exchange_unpack_drop(struct connection *c); /* none is fine */
/* The same if the contents are those of the request of that id. */
void exchange_unpack_withdraw(struct connection *c, uint64_t id);

#endif
