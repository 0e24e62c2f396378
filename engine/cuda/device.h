/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the backend's table that have no families: devices, memory, arenas, streams, events,
 * copies, capture. The contracts are those of engine/backend.h.
 *
 * CUDA keeps a current device for each thread. Every function that may be the first call of a
 * thread begins with cuda_enter; the functions behind it rely on that.
 */
#ifndef INFERD_ENGINE_CUDA_DEVICE_H
#define INFERD_ENGINE_CUDA_DEVICE_H

#include "base/compiler.h"
#include "engine/cuda/cuda.h"

extern const struct backend backend_cuda; /* backend.c */

static inline struct cuda_device *cuda_device_of(struct device *device)
{
    return CONTAINER_OF(device, struct cuda_device, base);
}

/* Makes the device current in the calling thread. FAILED_PRECONDITION: the device has no hardware
 * (dry.h). */
enum status cuda_enter(const struct cuda_device *device, struct error *err);

/* --- device.c --- */
enum status cuda_device_count(uint32_t *out, struct error *err);
enum status cuda_device_open(const struct device_options *options, struct device **out,
                             struct error *err);
void cuda_device_close(struct device *device);
static inline void cuda_device_cleanup(struct cuda_device **at)
{
    if (*at)
        cuda_device_close(&(*at)->base);
}
void cuda_device_fingerprint(struct device *device, char out[FINGERPRINT_MAX]);
uint64_t cuda_memory_total(struct device *device);
/* Writes device->fingerprint from its properties and the libraries' versions. */
void cuda_device_describe(struct cuda_device *device, int driver_version);
/* Whether kernels for `archs` ("90a 100") run on a device of this compute capability. Those for an
 * architecture with a letter run on that capability alone, the others also on later ones of the
 * same major version. */
bool cuda_archs_fit(const char *archs, int major, int minor);

/* --- memory.c --- */
enum status cuda_memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                              const char *tag, void **out, struct error *err);
void cuda_memory_free(struct device *device, enum memory_kind kind, void *memory);
enum status cuda_arena_new(struct device *device, size_t reserve, struct backend_arena **out,
                           struct error *err);
enum status cuda_arena_grow(struct backend_arena *arena, size_t size, struct error *err);
void *cuda_arena_base(struct backend_arena *arena);
void cuda_arena_free(struct backend_arena *arena);

/* --- shared.c --- */
enum status cuda_shared_open(struct device *device, const void *handle, size_t least,
                             struct backend_shared **out, struct error *err);
void cuda_shared_close(struct backend_shared *shared);
enum status cuda_shared_read(struct backend_shared *shared, size_t at, void *to, size_t size,
                             struct error *err);
enum status cuda_shared_write(struct backend_shared *shared, size_t at, const void *from,
                              size_t size, struct error *err);

/* --- stream.c --- */
enum status cuda_stream_new(struct device *device, struct backend_stream **out, struct error *err);
void cuda_stream_free(struct backend_stream *stream);
/* Gives the address to which a kernel writes KERNEL_BAD_INDEX when it finds an index out of range,
 * and so on. The next wait for an event that was recorded on the stream clears the flag and returns
 * INVALID_ARGUMENT. *out is NULL without hardware. */
enum status cuda_stream_flag(struct backend_stream *stream, int32_t **out, struct error *err);
enum status cuda_event_new(struct device *device, bool timing, struct backend_event **out,
                           struct error *err);
void cuda_event_free(struct backend_event *event);
enum status cuda_event_record(struct backend_event *event, struct backend_stream *stream,
                              struct error *err);
enum status cuda_event_wait(struct backend_event *event, struct error *err);
enum status cuda_event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                               struct error *err);
enum status cuda_copy(struct backend_stream *stream, enum copy_direction direction,
                      const struct backend_copy *copies, uint32_t n, struct error *err);

/* --- counters.c --- */
/* Clears at once what nodes of a captured graph clear one by one. */
cudaError_t cuda_counters_settle(const struct backend_stream *stream, cudaGraph_t graph);
void cuda_counters_free(struct backend_stream *stream);

/* --- graph.c --- */
enum status cuda_capture_half(struct backend_stream *stream, struct error *err);
enum status cuda_capture_begin(struct backend_stream *stream, struct error *err);
enum status cuda_capture_end(struct backend_stream *stream, struct backend_graph **out,
                             struct error *err);
enum status cuda_graph_launch(struct backend_graph *graph, struct backend_stream *stream,
                              struct error *err);
void cuda_graph_free(struct backend_graph *graph);
/* Called before the stream is freed, so that no later stream at the same address is taken for
 * it. */
void cuda_turn_leave(struct backend_stream *stream);
void cuda_range_begin(const char *name);
void cuda_range_end(void);

#endif
