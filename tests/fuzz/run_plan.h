/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans that were accepted: loaded on the CPU, made ready, each small profile once. */
#ifndef INFERD_TESTS_FUZZ_RUN_PLAN_H
#define INFERD_TESTS_FUZZ_RUN_PLAN_H

#include "engine/plan/format.h"

/* Bounds on what is run: bytes of a profile's arena, inputs and outputs, and steps of its kernels,
 * roughly. What is beyond is skipped. */
enum { RUN_BYTES_MAX = 16 << 20, RUN_STEPS_MAX = 1 << 23 };

/* Runs a plan on the device that has only reference kernels, and on the one that has all. `file` is
 * a whole plan of which all but the header's device and digest is right; `plan` is what was read of
 * it. */
void run_plan(const void *file, size_t size, const struct plan *plan);

#endif
