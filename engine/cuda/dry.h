/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device without hardware, made from the text of cuDNN's device-property descriptor (JSON, as
 * tests/data holds one). Candidates and packing work on it, and so does compilation as far as it
 * needs no driver. It is for tests of the lowering on machines without a GPU.
 */
#ifndef INFERD_ENGINE_CUDA_DRY_H
#define INFERD_ENGINE_CUDA_DRY_H

#include "engine/cuda/cuda.h"

/* Closed by cuda_device_close. */
enum status cuda_device_open_dry(const char *path, const struct log_sink *log, struct device **out,
                                 struct error *err);

/* A stream of such a device: ops may be prepared for it but not launched. Freed by
 * cuda_stream_free_dry. */
enum status cuda_stream_new_dry(struct device *device, struct backend_stream **out,
                                struct error *err);
void cuda_stream_free_dry(struct backend_stream *stream);

#endif
