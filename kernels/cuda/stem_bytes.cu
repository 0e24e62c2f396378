/* SPDX-License-Identifier: Apache-2.0 */
/* First layers of images in 8 bits. */
#include "kernels/cuda/stem.cuh"

cudaError_t stem::launch_bytes(const struct kernel_call *call, const struct kernel_stem &p)
{
    if (p.x_dtype == DTYPE_U8)
        return launch<int8_t, uint8_t>(call, p);
    return p.x_dtype == DTYPE_I8 ? launch<int8_t, int8_t>(call, p) : cudaErrorNotSupported;
}
