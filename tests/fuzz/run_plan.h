/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans that were accepted: loads them on the CPU and runs each small profile once. */
#ifndef INFERD_TESTS_FUZZ_RUN_PLAN_H
#define INFERD_TESTS_FUZZ_RUN_PLAN_H

#include "engine/plan/format.h"

/* Bounds on the profiles that are run: bytes of the arena, inputs and outputs, and roughly the
 * steps of the kernels. Larger profiles are skipped. */
enum { RUN_BYTES_MAX = 16 << 20, RUN_STEPS_MAX = 1 << 23 };

/* Runs a plan on the device that has only reference kernels, and on the device that has all
 * kernels. `file` is a whole plan in which only the header's device and digest may be wrong; `plan`
 * was read from it. */
void run_plan(const void *file, size_t size, const struct plan *plan);

#endif
