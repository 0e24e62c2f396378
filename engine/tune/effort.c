/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tuner's own time goes. */
#include "base/clock.h"
#include "engine/tune/internal.h"

void tune_effort_add(struct tune_effort *to, const struct tune_effort *effort)
{
    to->listed += effort->listed;
    to->compiled += effort->compiled;
    to->slow += effort->slow;
    to->core_ns += effort->core_ns;
    for (int i = 0; i < TUNE_PHASES; i++)
        to->ns[i] += effort->ns[i];
}

void tune_phase_end(struct tune_report *report, enum tune_phase phase, uint64_t *since)
{
    uint64_t now = clock_now_ns();
    report->effort.ns[phase] += now - *since;
    *since = now;
}
