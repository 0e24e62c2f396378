/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend of the families of our own kernels and of plugins, on the emulated device, whose memory
 * is the host's.
 */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_EMULATED_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_EMULATED_H

#include "engine/cuda/device.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/device/trial.h"

extern const struct backend backend_emulated;

/* What a stream's capture is said to be, and whether nothing is added to it. */
extern enum cudaStreamCaptureStatus emulated_capture;
extern bool emulated_idle;

/* A device, its stream, and a trial on them; cuBLASLt is one that knows INT8 alone. */
struct emulated {
    int32_t flag;
    struct cuda_device device;
    struct backend_stream stream;
    struct trial trial;
};

void emulated_init(struct emulated *emulated);
void emulated_deinit(struct emulated *emulated);

/* Variant v of kernel_tile is variant v + EMULATED_TILES of own scaled. */
enum { EMULATED_TILES = 16, EMULATED_OFFERS_MAX = 64 };

struct emulated_offers {
    struct tactic items[EMULATED_OFFERS_MAX];
    uint32_t n;
};

/* The candidates of a graph's only node; the caller frees them. */
struct emulated_offers *emulated_ask(struct device *device, const struct ir_graph *graph,
                                     enum precision precision);

/* The graph of a case, with the subject's ranges and constants. */
struct ir_graph *emulated_ranged(const struct case_kind *kind, uint64_t seed,
                                 const struct subject *subject);

#endif
