/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend's table. */
#include "engine/cuda/device.h"
#include "engine/cuda/family.h"
#include "engine/plugin/plugin.h"

const struct backend backend_cuda = {
    .abi = BACKEND_ABI,
    .features = BACKEND_ATTENTION | BACKEND_MERGE | BACKEND_SCALES | BACKEND_SIGNED | BACKEND_F8 |
                BACKEND_PICKS | BACKEND_JOINS | BACKEND_PATCHES | BACKEND_CHAINS | BACKEND_STEMS |
                BACKEND_PAIRS | BACKEND_CONV_CHAINS,
    .name = "cuda",
    .stable_addresses = true,
    .plugins = plugin_registry_use,
    .device_count = cuda_device_count,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .device_fingerprint = cuda_device_fingerprint,
    .memory_total = cuda_memory_total,
    .memory_alloc = cuda_memory_alloc,
    .memory_free = cuda_memory_free,
    .arena_new = cuda_arena_new,
    .arena_grow = cuda_arena_grow,
    .arena_base = cuda_arena_base,
    .arena_free = cuda_arena_free,
    .shared_open = cuda_shared_open,
    .shared_close = cuda_shared_close,
    .shared_read = cuda_shared_read,
    .shared_write = cuda_shared_write,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_elapsed = cuda_event_elapsed,
    .copy = cuda_copy,
    .candidates = cuda_candidates,
    .pack = cuda_pack,
    .compile = cuda_compile,
    .compile_drop = cuda_compile_drop,
    .code = cuda_code,
    .op_prepare = cuda_op_prepare,
    .op_workspace = cuda_op_workspace,
    .op_free = cuda_op_free,
    .op_launch = cuda_op_launch,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .capture_half = cuda_capture_half,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
};
