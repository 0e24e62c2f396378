/* SPDX-License-Identifier: Apache-2.0 */
/* First layers of images in 8 bits. */
#include "kernels/cuda/stem_launch.cuh"

/* T: what the image is multiplied as. */
template <class T>
static cudaError_t launch_floats(const struct kernel_call *call, const struct kernel_stem &p)
{
    bool usual = p.step > 1e-30f && p.step < 1e30f; /* quotients need no care then */
    int least = p.q_dtype == DTYPE_I8 ? INT8_MIN : 0;
    if (!usual || p.zero < least || p.zero > least + 255)
        return cudaErrorNotSupported;
    return stem::launch<T, float>(call, p);
}

cudaError_t stem::launch_bytes(const struct kernel_call *call, const struct kernel_stem &p)
{
    if (p.x_dtype == DTYPE_U8)
        return launch<uint8_t, uint8_t>(call, p);
    if (p.x_dtype == DTYPE_I8)
        return launch<int8_t, int8_t>(call, p);
    if (p.x_dtype != DTYPE_F32)
        return cudaErrorNotSupported;
    if (p.q_dtype == DTYPE_U8)
        return launch_floats<uint8_t>(call, p);
    return p.q_dtype == DTYPE_I8 ? launch_floats<int8_t>(call, p) : cudaErrorNotSupported;
}
