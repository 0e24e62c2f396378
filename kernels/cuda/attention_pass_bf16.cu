/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of BF16 on Hopper. */
#include "kernels/cuda/attention_pass.cuh"

cudaError_t attention::pass_launch_bf16(const struct kernel_call *call, const struct problem &p)
{
    return pass_launch<bf16_t>(call, p);
}
