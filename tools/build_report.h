/* SPDX-License-Identifier: Apache-2.0 */
/* The report at the end of a build: what fusion removed, and which layers run where. */
#ifndef INFERD_TOOLS_BUILD_REPORT_H
#define INFERD_TOOLS_BUILD_REPORT_H

#include <stdbool.h>

#include "engine/build/build.h"
#include "engine/plan/plan.h"

/* Prints a few lines on stdout; shares of time are those of the largest batch. `all`: also a line
 * for each profile and for each pass that changed something. */
void build_report_print(const struct plan *plan, const struct build_report *report, bool all);

#endif
