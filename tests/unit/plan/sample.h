/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small plan made by hand, for tests and the fuzz target's seeds: two profiles of
 *
 *   x[N,4,6,6] -> conv(w, b) + relu -> softmax -> reshape -> y[N,144]
 *                      \-> + x -> transpose -> z[N,6,6,4]
 *
 * with tactics that no backend knows.
 */
#ifndef INFERD_TESTS_UNIT_PLAN_SAMPLE_H
#define INFERD_TESTS_UNIT_PLAN_SAMPLE_H

#include "engine/plan/plan.h"

/* NULL: something failed. */
struct plan *sample_plan(void);

#endif
