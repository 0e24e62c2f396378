/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of F16 on tensor cores. */
#include "kernels/cuda/attention_flash.cuh"

cudaError_t attention::launch_f16(const struct kernel_call *call, const struct problem &p,
                                  struct cut cut)
{
    return launch<half_t>(call, p, cut);
}
