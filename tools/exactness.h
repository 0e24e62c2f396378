/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what shorter types cost a plan in exactness: of a plan, as text or as JSON, and of the
 * layers that a build has looked at. */
#ifndef INFERD_TOOLS_EXACTNESS_H
#define INFERD_TOOLS_EXACTNESS_H

#include "engine/guard/guard.h"
#include "engine/plan/plan.h"
#include "tools/json.h"

/* A line for each output, and one for each layer that is held back; `lead` stands before each. At
 * most `max` layers. Nothing if nothing was measured. */
void exactness_print(const struct plan *plan, const char *lead, uint32_t max);
/* The value of the key "exactness": null if nothing was measured. */
void exactness_json(struct json *json, const struct plan *plan);
/* A table of layers by falling error; for build_options. */
void exactness_sensitivity(void *user, const struct guard_report *report);

#endif
