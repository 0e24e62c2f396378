/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small graph made by hand, for tests and the fuzz target's seeds:
 *
 *   x[N,4,6,6] -> conv(w, b) + relu -> softmax -> reshape -> y[N,144]
 *                      \-> + x -> transpose -> z[N,6,6,4]
 *
 * Its outputs are y, z, x reshaped ("same"[N,144]) and y reshaped ("again"[N,12,12]), the last two
 * for nothing: they are made of bytes that are there already. sample_plan has profiles for 1
 * and 8 instances, with tactics that no backend knows.
 */
#ifndef INFERD_TESTS_UNIT_PLAN_SAMPLE_H
#define INFERD_TESTS_UNIT_PLAN_SAMPLE_H

#include "engine/plan/plan.h"

/* NULL: something failed. The graph is not tuned. */
struct ir_graph *sample_graph(uint32_t batch);

/* Name, digest and bindings of the sample; no profiles yet. */
struct plan *sample_plan_empty(void);
struct plan *sample_plan(void);

#endif
