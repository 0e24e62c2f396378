/* SPDX-License-Identifier: Apache-2.0 */
/* Which products of 16-bit floats go to the kernels of matmul_table.cuh. */
#include "kernels/cuda/matmul_table.cuh"

static bool knows(int32_t func)
{
    return func == IR_UNARY_IDENTITY || func == IR_UNARY_RELU || func == IR_UNARY_GELU ||
           func == IR_UNARY_GELU_TANH || func == IR_UNARY_SWISH;
}

cudaError_t kernel_matmul(const struct kernel_call *call, const struct kernel_matmul *p)
{
    if (call->capability != 90 || !knows(p->func))
        return cudaErrorNotSupported;
    return p->dtype == DTYPE_F16    ? matmul::launch_f16(call, *p)
           : p->dtype == DTYPE_BF16 ? matmul::launch_bf16(call, *p)
                                    : cudaErrorNotSupported;
}
