/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INFERD_ENGINE_RUNTIME_UPLOAD_H
#define INFERD_ENGINE_RUNTIME_UPLOAD_H

#include "engine/backend.h"

/* Copies from any host memory to the device, and waits for that. On a stream of its own, because an
 * engine may be loaded on any thread. */
enum status upload(struct device *device, const struct backend_copy *copies, uint32_t n,
                   struct error *err);

#endif
