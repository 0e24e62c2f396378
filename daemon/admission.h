/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether a request fits the model that it names. The check is a pure function: it takes no
 * lock, reads no clock and allocates nothing.
 *
 * Every mismatch is an INVALID_ARGUMENT that says what was expected and what came.
 */
#ifndef INFERD_DAEMON_ADMISSION_H
#define INFERD_DAEMON_ADMISSION_H

#include "engine/engine.h"
#include "proto/request.h"

struct admission {
    uint32_t instances;
    uint32_t point;                     /* of the engine's, by its number; unless `fit` is NEW */
    enum engine_fit fit;                /* NEW: no point runs these sizes */
    int64_t values[ENGINE_MAX_FREE];    /* of the free dimensions */
    uint8_t input[MESSAGE_MAX_TENSORS]; /* the request's input for each of the model's */
    uint32_t n_outputs;
    uint8_t output[MESSAGE_MAX_TENSORS]; /* the model's outputs in the order they were asked for */
    size_t payload_bytes; /* all inputs, each rounded up to ADMISSION_ALIGN, in the model's order */
};

enum { ADMISSION_ALIGN = 64 };

/* `max_batch` may be less than the plan's. Sizes that are within the ranges but of no point are no
 * error here: the caller looks at `fit`. */
enum status admission_check(const struct engine_info *model, uint32_t max_batch,
                            const struct request *request, struct admission *out,
                            struct error *err);

/* The same of sizes alone: `shapes` has one for each of the model's inputs, whose types are
 * right. */
struct admission_sizes {
    uint32_t instances, point;
    enum engine_fit fit;
    int64_t values[ENGINE_MAX_FREE];
};
enum status admission_sizes_check(const struct engine_info *model, uint32_t max_batch,
                                  const struct shape *shapes, struct admission_sizes *out,
                                  struct error *err);

/* "seq=9, h=3" */
enum { ADMISSION_VALUES_TEXT = 160 };
void admission_values_text(const struct engine_info *model, const int64_t *values,
                           char out[ADMISSION_VALUES_TEXT]);
/* Says that no point is for these values, and which there are. */
enum status admission_no_point(const struct engine_info *model, const int64_t *values,
                               struct error *err);

/* Checks that the daemon can serve the model at all: the protocol bounds the number and the names
 * of its bindings. */
enum status admission_model_check(const struct engine_info *model, struct error *err);

#endif
