/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of Hopper that kernels/cuda/hopper.cuh names, as functions on the CPU. They are
 * as adverse as the architecture allows, so that a kernel that is right here by luck is rare:
 *
 *   tensor loads   land late and in any order; until then their place holds poison, and no product
 *                  or store may read it
 *   tensor stores  read shared memory when they are waited for, and it must not have changed since
 *                  they were issued
 *   products       take place when they are waited for, each warp for itself; operands must not
 *                  have changed since, and until then accumulators are NaN
 *   stores of threads to shared memory (emulate_put) are seen by tensor stores and products only
 *                  behind the writing thread's proxy fence
 *   mbarriers      count arrivals and bytes; one that is not initialised, an arrival or bytes too
 *                  many, a wait that cannot end and anything left at the block's end are errors
 *   clusters       what a block sends to another lands late and in any order, in one block after
 *                  all else, and is an error if the other has not begun or has ended
 *
 * Not here: multicast, the order of memory between blocks, and what generic reads of a
 * load's bytes see without a wait (poison, mostly).
 */
#ifndef INFERD_TESTS_EMULATE_HOPPER_H
#define INFERD_TESTS_EMULATE_HOPPER_H

#include <cstddef>
#include <cstdint>

/* The types of A and B; the sum is fp32 for floats and int32 for integers. */
enum emulate_product_type {
    EMULATE_F16,
    EMULATE_BF16,
    EMULATE_E4M3,
    EMULATE_S8,
    EMULATE_U8_S8,
    EMULATE_S8_U8,
    EMULATE_TYPES
};

uint32_t emulate_address(const void *shared);

void emulate_mbarrier_init(uint64_t *barrier, uint32_t count);
void emulate_mbarrier_fence(void);
void emulate_mbarrier_expect(uint64_t *barrier, uint32_t bytes);
void emulate_mbarrier_arrive(uint64_t *barrier);
void emulate_mbarrier_wait(uint64_t *barrier, uint32_t parity);
void emulate_named_sync(int id, int threads);
void emulate_registers(int count); /* of the calling thread, from now on */

/* `map` has the 128 bytes of a CUtensorMap. dim, stride (bytes; that of dim 0 is the element's
 * size) and box have `rank` numbers. False: cuTensorMapEncodeTiled would refuse this. */
bool emulate_map(void *map, const void *data, int size, int rank, const int64_t *dim,
                 const int64_t *stride, const int32_t *box, int swizzle);
void emulate_tensor_load(void *to, const void *map, uint64_t *barrier, int rank,
                         const int32_t *first);
/* The same of images [N, H, W, C]; dim, first from C on; corners and steps along W, then H. False:
 * cuTensorMapEncodeIm2col would refuse this. A load may begin at any place of the window. */
bool emulate_map_images(void *map, const void *data, int size, const int64_t *dim,
                        const int32_t *lower, const int32_t *upper, const int32_t *step, int pixels,
                        int swizzle);
void emulate_tensor_load_images(void *to, const void *map, uint64_t *barrier, const int32_t *first,
                                int right, int down);
void emulate_tensor_store(const void *map, const void *from, int rank, const int32_t *first);
void emulate_bulk_commit(void);
void emulate_bulk_wait(int pending);

int emulate_cluster_rank(void);
void emulate_cluster_arrive(void);
void emulate_cluster_wait(void);
/* 16 bytes to the same place of another block, counted by its barrier at the same place. */
void emulate_peer_push(void *to, const uint32_t *words, uint64_t *barrier, int rank);

void emulate_put(void *shared, const void *from, size_t size);
void emulate_proxy_fence(void);

void emulate_wgmma_fence(void);
void emulate_wgmma_commit(void);
void emulate_wgmma_wait(int pending);
/* d: n / 2 registers of 4 bytes. a is a descriptor, or the four registers of `fragment`. */
void emulate_wgmma(int type, int n, void *d, uint64_t a, const uint32_t *fragment, uint64_t b,
                   bool transposed, bool keep);

/* --- faults on purpose --- */

/* The places of code that have ordered anything so far: each wait, arrival, fence and commit of
 * each kernel that ran. */
int emulate_sites(void);
const char *emulate_site(int site); /* the instruction there */
bool emulate_site_counts(int site); /* whether it waits for all but some groups */
/* From now on the instruction at a place does nothing, or if `weaker` waits for one group less. */
void emulate_leave_out(int site, bool weaker);

#endif
