/* SPDX-License-Identifier: Apache-2.0 */
/* Products of BF16 on Hopper. */
#include "kernels/cuda/matmul_table.cuh"

cudaError_t matmul::launch_bf16(const struct kernel_call *call, const struct kernel_matmul &p)
{
    return launch<bf16_t>(call, p);
}
