/* SPDX-License-Identifier: Apache-2.0 */
/* Two products of INT8 in a row on Hopper. */
#include "kernels/cuda/chain.cuh"

cudaError_t tile::launch_chains_i8(const struct kernel_call *call, const struct kernel_chain &p)
{
    return launch_chains<int8_t>(call, p);
}
