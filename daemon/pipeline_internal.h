/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that bind a pipeline; see pipeline.h.
 *
 *   pipeline_bind.c     finds models and names, and makes what runs
 *   pipeline_tensors.c  types, shapes and instances of all tensors, from the inputs on
 *   pipeline_sizes.h    what is known of sizes meanwhile
 */
#ifndef INFERD_DAEMON_PIPELINE_INTERNAL_H
#define INFERD_DAEMON_PIPELINE_INTERNAL_H

#include "daemon/pipeline.h"
#include "daemon/pipeline_sizes.h"

/* A step as the file has it, while it is bound. Values are those of the file's own names. */
struct part {
    const struct model_file_step *said;
    struct model *model;
    const struct engine_info *info;
    uint32_t *inputs, *outputs;
    struct size *own; /* of each free dimension of the model, and the number of its instances */
    bool done;
};

struct binder {
    const struct table *table;
    const struct model_file *file;
    struct arena *arena;
    struct pipeline *pipeline;
    struct part *parts; /* n_steps of the file */
    struct pipeline_value *values;
    struct sizes *sizes;
    struct size (*dims)[SHAPE_MAX_RANK]; /* of each value, whose shape has the rank alone */
    uint32_t n_values, n_named;          /* with those within inner pipelines, which come last */
    bool *known;                         /* a value's type and rank are */
    bool counted;                        /* the pipeline counts instances */
    struct error *err;
};

/* Says what is wrong, with the step. FAILED_PRECONDITION. `part` may be NULL. */
enum status pipeline_refuse(const struct binder *b, const struct part *part, const char *fmt, ...)
    PRINTF(3, 4);

/* Makes types and shapes known, from the inputs on. */
enum status pipeline_tensors_bind(struct binder *b);
/* A tensor that a step makes, as its model says it, with the sizes of the step's inputs. */
void pipeline_tensor_make(const struct binder *b, const struct part *part, uint32_t value,
                          const struct shape *shape, const struct engine_axes *axes);
/* The tensor that the file itself names so, or PIPELINE_NONE. */
uint32_t pipeline_named_find(const struct binder *b, const char *name);
/* Puts what was found of sizes where requests find it: numbers those that they choose, of which
 * `info` gets the list. */
enum status pipeline_tensors_settle(const struct binder *b, struct engine_info *info);

#endif
