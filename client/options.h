/* SPDX-License-Identifier: Apache-2.0 */
/* The connection options with their defaults filled in. */
#ifndef INFERD_CLIENT_OPTIONS_H
#define INFERD_CLIENT_OPTIONS_H

#include "base/compiler.h"
#include "client/client.h"
#include "client/flight.h"

static inline struct inferd_options options_fill(const struct inferd_options *given)
{
    struct inferd_options o = given ? *given : (struct inferd_options){0};
    o.connect_timeout_ms = o.connect_timeout_ms ? o.connect_timeout_ms : 10000;
    o.grace_ms = o.grace_ms ? o.grace_ms : 1000;
    o.max_in_flight = MIN(o.max_in_flight ? o.max_in_flight : 1024, (uint32_t)FLIGHT_MAX);
    o.max_response = o.max_response ? o.max_response : (size_t)1 << 30;
    return o;
}

#endif
