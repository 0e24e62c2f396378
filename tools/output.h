/* SPDX-License-Identifier: Apache-2.0 */
/* What a command is about to write to, held against what it reads. */
#ifndef INFERD_TOOLS_OUTPUT_H
#define INFERD_TOOLS_OUTPUT_H

#include "base/error.h"
#include "tools/model.h"

/* INVALID_ARGUMENT if the output is one of the files that the command reads: the model, or one that
 * an option names. `args` may be NULL. Comes before the work. */
enum status output_check(const char *output, const char *model, const struct model_args *args,
                         struct error *err);

/* The same for one file. */
enum status output_check_one(const char *output, const char *input, struct error *err);

#endif
