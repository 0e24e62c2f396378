/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to run a case's graph. */
#ifndef INFERD_TESTS_OPS_RUNNER_H
#define INFERD_TESTS_OPS_RUNNER_H

#include "tests/ops/case.h"

/* If `engine` is set, the graph runs through builder, plan and runtime; else node by node with the
 * evaluator. */
bool runner_init(struct case_runner *runner, bool engine);
void runner_deinit(struct case_runner *runner);

#endif
