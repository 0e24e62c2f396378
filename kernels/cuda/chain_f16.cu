/* SPDX-License-Identifier: Apache-2.0 */
/* Two products of F16 in a row on Hopper. */
#include "kernels/cuda/chain.cuh"

cudaError_t tile::launch_chains_f16(const struct kernel_call *call, const struct kernel_chain &p)
{
    return launch_chains<half_t>(call, p);
}
