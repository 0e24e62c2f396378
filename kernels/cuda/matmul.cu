/* SPDX-License-Identifier: Apache-2.0 */
/* Which products of 16-bit floats go to the kernels of matmul_table.cuh. */
#include "kernels/cuda/matmul_table.cuh"

cudaError_t kernel_matmul(const struct kernel_call *call, const struct kernel_matmul *p)
{
    if (call->capability != 90 || !activate::knows(p->func))
        return cudaErrorNotSupported;
    return p->dtype == DTYPE_F16    ? matmul::launch_f16(call, *p)
           : p->dtype == DTYPE_BF16 ? matmul::launch_bf16(call, *p)
                                    : cudaErrorNotSupported;
}
