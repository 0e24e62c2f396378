/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with data (tools/dataset.h) as the samples that errors are measured on. */
#ifndef INFERD_TOOLS_GUARD_DATA_H
#define INFERD_TOOLS_GUARD_DATA_H

#include "engine/guard/guard.h"
#include "engine/import/onnx.h"

struct guard_data;

/* Opens the folder for a model, whose survey stays the caller's and must outlive the data. */
enum status guard_data_open(const char *folder, const struct onnx_survey *survey,
                            struct guard_data **out, struct error *err);
void guard_data_close(struct guard_data *data); /* NULL is fine */
/* If there are fewer samples than are asked for, they come round again. */
const struct guard_source *guard_data_source(const struct guard_data *data);

#endif
