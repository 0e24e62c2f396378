/* SPDX-License-Identifier: Apache-2.0 */
/* First layers of images in BF16. */
#include "kernels/cuda/stem_launch.cuh"

cudaError_t stem::launch_bf16(const struct kernel_call *call, const struct kernel_stem &p)
{
    if (p.x_dtype == DTYPE_F32)
        return launch<bf16_t, float>(call, p);
    if (p.x_dtype == DTYPE_U8)
        return launch<bf16_t, uint8_t>(call, p);
    return p.x_dtype == DTYPE_BF16 ? launch<bf16_t, bf16_t>(call, p) : cudaErrorNotSupported;
}
