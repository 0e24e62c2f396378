/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the exchange share about inferences on their way to the queue. */
#ifndef INFERD_DAEMON_EXCHANGE_INTERNAL_H
#define INFERD_DAEMON_EXCHANGE_INTERNAL_H

#include "daemon/exchange.h"
#include "daemon/shared.h"

/* Why no inference is taken at all any more; CAUSE_OK: they are. */
enum cause exchange_stopped(const struct shared *shared);

/* One that is ready goes to the queue; its address has been asked. */
void exchange_submit(struct connection *c, struct inflight *inflight);
/* One that goes nowhere: gives back what it has. */
void exchange_drop(struct connection *c, struct inflight *inflight);

/* --- exchange_unpack.c --- */

/* Begins to unpack typed contents, which lie in `*frame` (taken over), into the request's slab.
 * `input` has the request's input for each of the model's. The request is the unpacking's then. */
enum status exchange_unpack_begin(struct connection *c, const struct request *request,
                                  const uint8_t *input, struct inflight *inflight,
                                  struct slab **frame, struct error *err);
/* Ends the unpacking of that request, which stays the caller's, if it had begun. */
void exchange_unpack_cancel(struct connection *c, const struct inflight *inflight);

#endif
