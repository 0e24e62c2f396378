/* SPDX-License-Identifier: Apache-2.0 */
/* Cleanups of types that commands alone release by CLEANUP (base/compiler.h). NULL is fine. The
 * others stand beside their free functions, such as file_writer_cleanup. */
#ifndef INFERD_TOOLS_CLEANUP_H
#define INFERD_TOOLS_CLEANUP_H

#include "base/cleanup.h"
#include "base/file.h"
#include "client/client.h"
#include "engine/engine.h"
#include "engine/import/onnx.h"
#include "engine/ir/ir.h"
#include "engine/plan/plan.h"

static inline void client_cleanup(struct inferd_client **client)
{
    inferd_client_close(*client);
}

static inline void device_cleanup(struct device **device)
{
    engine_device_close(*device);
}

static inline void context_cleanup(struct context **ctx)
{
    context_free(*ctx);
}

static inline void onnx_cleanup(struct onnx_model **model)
{
    onnx_close(*model);
}

#endif
