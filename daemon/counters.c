/* SPDX-License-Identifier: Apache-2.0 */
/* The counters' names; see counters.h. */
#include "daemon/counters.h"

static const char *const names[] = {
#define X(id, name) [COUNTER_##id] = (name),
    COUNTERS(X)
#undef X
};

const char *counter_name(enum counter which)
{
    return names[which];
}
