/* SPDX-License-Identifier: Apache-2.0 */
/* The counters' names, and those of the causes; see counters.h. */
#include "daemon/counters.h"

static const char *const names[] = {
#define X(id, name) [COUNTER_##id] = (name),
    COUNTERS(X)
#undef X
};

static const enum counter of_causes[] = {
#define STATUS_ROW(id, retry, counter, sentence)        COUNTER_##counter,
#define CAUSE_ROW(id, status, retry, counter, sentence) COUNTER_##counter,
    CAUSE_STATUSES(STATUS_ROW) CAUSES(CAUSE_ROW)
#undef STATUS_ROW
#undef CAUSE_ROW
};

const char *counter_name(enum counter which)
{
    return names[which];
}

enum counter counter_of_cause(enum cause cause)
{
    return of_causes[(unsigned)cause < CAUSE_COUNT_ ? cause : CAUSE_UNKNOWN];
}
