/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a decoded request: an inference is checked against its model and submitted;
 * everything else is answered on the spot. And what becomes of a result: a response.
 */
#ifndef INFERD_DAEMON_INTAKE_H
#define INFERD_DAEMON_INTAKE_H

#include "daemon/connection.h"

enum {
    INTAKE_RETRY_US = 10000,         /* hint with RESOURCE_EXHAUSTED */
    INTAKE_RETRY_LATER_US = 1000000, /* hint with UNAVAILABLE */
};

/* Takes over `frame` (may be NULL), see session_host_ops.request. */
void intake_request(struct connection *c, const struct request *request, struct slab *frame);

/* Answers a request that came back, if its connection is still there. Its payload is released; its
 * batch is not, for the reply still points there. */
void intake_result(struct loop *loop, struct inflight *inflight);

#endif
