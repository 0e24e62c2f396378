/* SPDX-License-Identifier: Apache-2.0 */
/* Cleanups of what a command owns for a while; for CLEANUP of base/compiler.h. NULL is fine. */
#ifndef INFERD_TOOLS_CLEANUP_H
#define INFERD_TOOLS_CLEANUP_H

#include "base/cleanup.h"
#include "base/file.h"
#include "client/client.h"
#include "engine/engine.h"
#include "engine/import/onnx.h"
#include "engine/ir/ir.h"
#include "engine/plan/plan.h"

static inline void writer_cleanup(struct file_writer **writer)
{
    file_writer_free(*writer);
}

static inline void client_cleanup(struct inferd_client **client)
{
    inferd_client_close(*client);
}

static inline void device_cleanup(struct device **device)
{
    engine_device_close(*device);
}

static inline void lane_cleanup(struct lane **lane)
{
    lane_free(*lane);
}

static inline void context_cleanup(struct context **ctx)
{
    context_free(*ctx);
}

static inline void onnx_cleanup(struct onnx_model **model)
{
    onnx_close(*model);
}

static inline void graph_cleanup(struct ir_graph **graph)
{
    ir_graph_free(*graph);
}

static inline void plan_cleanup(struct plan **plan)
{
    plan_free(*plan);
}

#endif
