/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels without one of the instructions that order their work: each must be missed. */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_LEFT_OUT_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_LEFT_OUT_H

/* Runs the kernel of a case; 0: its answer is right. */
typedef int (*left_out_run)(const void *user);

/* Runs it as it is, which must be right, and then in processes of their own without each wait,
 * arrival, fence and commit that it has executed and no kernel before it, and with waits for groups
 * that wait for one group less. Fails where that is not found: by the emulator, which ends the
 * process, or by a wrong answer. Returns how many faults there were. */
int left_out_all(const char *what, left_out_run run, const void *user);

#endif
