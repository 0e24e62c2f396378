/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a model can be served within the limits. This is checked when it is loaded, before any
 * memory is taken for it, so that no request finds out. The check is a pure function except for the
 * machine's memory, which is the default bound.
 *
 * A model is refused if not even one instance can be asked for (its inputs do not fit a frame) or
 * answered (its outputs do not fit a frame or limits.output_bytes), or if it needs more memory than
 * limits.model_bytes. If the outputs of one instance fit but those of max_batch do not, a request
 * carries fewer instances; a batch of several requests stays as large as it is, because each
 * request is answered by itself.
 */
#ifndef INFERD_DAEMON_FITS_H
#define INFERD_DAEMON_FITS_H

#include "config/config.h"
#include "engine/engine.h"

/* `max_batch`: instances of a batch. *max_instances: those of one request, 1..max_batch.
 * FAILED_PRECONDITION: the error says what is needed and which limit is in the way. */
enum status fits_check(const struct engine_info *info, const struct config_limits *limits,
                       uint32_t workers, uint32_t max_batch, uint32_t *max_instances,
                       struct error *err);

/* How many bytes of outputs a reply of this model can carry. */
uint64_t fits_reply_bytes(const struct engine_info *info, const struct config_limits *limits);

/* The memory that a model takes, on all workers: weights that are its own, arenas, inputs and
 * outputs. */
uint64_t fits_bytes(const struct engine_info *info, uint32_t workers);

/* Returns limits.model_bytes, or the default that 0 stands for. */
uint64_t fits_model_bytes(const struct config_limits *limits);

#endif
