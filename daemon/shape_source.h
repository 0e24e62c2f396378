/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What further engines of a served model are built from: its file, which stays open, and what its
 * configuration says of it. All of it is a copy, because the listing and the configuration that the
 * model came from are gone by then.
 */
#ifndef INFERD_DAEMON_SHAPE_SOURCE_H
#define INFERD_DAEMON_SHAPE_SOURCE_H

#include "base/arena.h"
#include "daemon/repository.h"
#include "engine/engine.h"

struct shape_source;

/* Of a model's .onnx, which must be open. */
enum status shape_source_new(const struct wanted *wanted, struct shape_source **out,
                             struct error *err);
void shape_source_free(struct shape_source *source); /* NULL is fine */

/* What to ask the plan cache for: the model at these values alone of its free dimensions, which
 * `info` names, and `on_cpu` with all its layers there. Strings are the source's or the arena's. */
enum status shape_source_at(const struct shape_source *source, const struct engine_info *info,
                            const int64_t *values, bool on_cpu, struct arena *arena,
                            struct wanted *out, struct error *err);

#endif
