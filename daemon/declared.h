/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a model is what its config.pbtxt declares: names, types and dimensions of inputs and
 * outputs, and how many instances a batch has. A pure function; each mismatch is an error that says
 * what was declared and what the model has.
 */
#ifndef INFERD_DAEMON_DECLARED_H
#define INFERD_DAEMON_DECLARED_H

#include "config/model_file.h"
#include "engine/engine.h"

enum status declared_check(const struct model_file *file, const struct engine_info *info,
                           struct error *err);

#endif
