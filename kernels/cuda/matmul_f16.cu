/* SPDX-License-Identifier: Apache-2.0 */
/* Products of F16 on Hopper. */
#include "kernels/cuda/matmul_table.cuh"

cudaError_t matmul::launch_f16(const struct kernel_call *call, const struct kernel_matmul &p)
{
    return launch<half_t>(call, p);
}
