/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels that use what device.cuh and its companions offer, for test_emulate.c. */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_PROBE_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_PROBE_H

#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[0] = sum of x[0..n), by one block of 96 threads. */
cudaError_t probe_block_sum(const float *x, int n, float *y);
/* d[16*8] = a[16*16] b[16*8], halves as bits, through shared memory, copy_async, ldmatrix, mma. */
cudaError_t probe_mma(int bf16, const uint16_t *a, const uint16_t *b, float *d);
/* y = epilogue(0.5 * i at element i) for all elements of y, an F32 view of rank 4, `wide` elements
 * at a time. */
cudaError_t probe_epilogue(const struct kernel_view *y, int wide,
                           const struct kernel_epilogue *epilogue);
/* wrong[0] = how many numbers around multiples of `by` are divided wrongly by it. */
cudaError_t probe_divide(uint32_t by, uint32_t *wrong);
/* Even threads wait at one barrier, odd threads at another: the kernel never returns. */
cudaError_t probe_deadlock(void);
/* Writes one element behind y[0..n). */
cudaError_t probe_overrun(float *y, int n);
/* The numbers of the lanes with x[lane] > 0, the least significant bit first. */
cudaError_t probe_ballot(const float *x, uint32_t *bits);
/* y[i] = x[i] converted to type `to` by number_from, from float or (if `wide`) from double. */
cudaError_t probe_convert(int to, int wide, const double *x, int n, void *y);

/* The emulator's faults on purpose (tests/emulate/hopper.h). */
int probe_sites(void);
const char *probe_site(int site);
bool probe_site_counts(int site);
void probe_leave_out(int site, bool weaker); /* -1: none */

#ifdef __cplusplus
}
#endif

#endif
