/* SPDX-License-Identifier: Apache-2.0 */
/* What the exchange's files share about inferences on their way to the queue. */
#ifndef INFERD_DAEMON_EXCHANGE_INTERNAL_H
#define INFERD_DAEMON_EXCHANGE_INTERNAL_H

#include "daemon/exchange.h"
#include "daemon/shared.h"

/* Why the server takes no inference any more; CAUSE_OK: it does. */
enum cause exchange_stopped(const struct shared *shared);

/* Submits a request that is ready, and is booked for its address. */
void exchange_submit(struct connection *c, struct inflight *inflight);
/* Drops a request that will not be submitted, and gives back what it has. */
void exchange_drop(struct connection *c, struct inflight *inflight);

/* Answers a request that has all it needs for that, and has the loop hold it. */
void exchange_result_end(struct loop *loop, struct inflight *inflight);

/* Checks that the regions which outputs go to hold them. */
enum status exchange_regions_fit(const struct inflight *inflight, struct error *err);

/* --- exchange_shape.c --- */

/* Says who pays for engines of the request's sizes. */
void exchange_shape_asker(const struct connection *c, const struct identity *who,
                          struct inflight *inflight);
/* Finds an engine for a request of new sizes, which then is a request to it, or has it
 * wait for one: then it must be parked, or given back by exchange_shape_give. Its payload is
 * counted while it waits. */
enum status exchange_shape_ask(struct loop *loop, struct inflight *inflight, struct error *err);
void exchange_shape_give(struct inflight *inflight);
void exchange_shape_park(struct loop *loop, struct inflight *inflight);

/* --- exchange_classes.c --- */

/* Bytes that the classes take which were asked for in the place of the response's outputs. */
size_t exchange_classes_room(const struct response *response, const struct inflight *inflight);
/* Finds them, as far as that takes no time. True: the rest is left to the loop's turns, which call
 * exchange_result_end. False: it can be answered now, with what it has found. If that is NULL,
 * either no classes were asked for or there is no memory for them. */
bool exchange_classes_begin(struct connection *c, const struct response *response,
                            struct inflight *inflight);
/* Fills in the outputs that it has found, and the request's times. */
void exchange_classes_fill(struct response *response, const struct inflight *inflight);

/* --- exchange_unpack.c --- */

/* Begins to unpack inputs into the request's slab: typed contents, what lies in regions, and what
 * came beside these. They lie in `*frame` (taken over); if that is NULL, all but regions is
 * unpacked at once. `input` has, for each input of the model, the number of the request's input.
 * From then on the unpacking owns the request. */
enum status exchange_unpack_begin(struct connection *c, const struct request *request,
                                  const struct identity *who, const uint8_t *input,
                                  struct inflight *inflight, struct slab **frame,
                                  struct error *err);
/* Ends the unpacking of that request, if it had begun. The request stays the caller's. */
void exchange_unpack_cancel(struct connection *c, const struct inflight *inflight);

#endif
