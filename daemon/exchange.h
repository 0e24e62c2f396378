/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange between connections and what the server has to offer: what becomes of a decoded
 * request, and what becomes of a result.
 *
 *   exchange.c        replies, results, failures, cancels; which function answers which request
 *   exchange_infer.c  an inference is checked against its model and submitted
 *   exchange_unpack.c typed contents of large requests, in slices
 *   describe.c        everything else is answered on the spot
 *
 * Every reply is begun by exchange_begin.
 */
#ifndef INFERD_DAEMON_EXCHANGE_H
#define INFERD_DAEMON_EXCHANGE_H

#include "daemon/connection.h"

/* Takes over `frame` (may be NULL), see session_host_ops.request. */
void exchange_request(struct connection *c, const struct request *request, struct slab *frame);
/* The session gave up: counts it, and tells the operator if he should know. */
void exchange_session_end(struct connection *c, enum session_end why);

/* Answers a request that came back, if its connection is still there. Its payload is released; its
 * batch is not, for the reply still points there. */
void exchange_result(struct loop *loop, struct inflight *inflight);

/* The connection ends: what is queued for it is taken back, what runs comes back to nobody, and
 * what has not been submitted yet the loop drops. */
void exchange_forget(struct connection *c);
/* Those that wait are taken back and answered UNAVAILABLE; if `all`, those that run are answered
 * too, and then come back to nobody. */
void exchange_fail(struct connection *c, bool all);
/* The same for those of the serials, which hang in a worker. */
void exchange_abandon(struct connection *c, const uint64_t *serials, size_t n);

/* The response, in the loop's scratch, to a request of that id and kind: OK, and without anything
 * else. Then connection_reply. */
struct response *exchange_begin(struct connection *c, uint64_t id, enum request_kind kind);
/* The entry of the model that is asked for; NULL: the answer was that there is none. */
const struct table_entry *exchange_model(struct connection *c, const struct request *request);
/* A whole reply, with the hint that the cause has; counted as the cause says. */
void exchange_error(struct connection *c, uint64_t id, const struct error *err);

/* --- exchange_infer.c --- */

/* `*frame` is taken if the payload stays there. */
void exchange_infer(struct connection *c, const struct request *request, const struct identity *who,
                    struct slab **frame);

/* --- exchange_unpack.c --- */

/* Typed contents of a large frame are unpacked in slices, one a turn; until then the connection
 * takes no further request. */
void exchange_unpack_go_on(struct connection *c);
void exchange_unpack_drop(struct connection *c); /* none is fine */

#endif
