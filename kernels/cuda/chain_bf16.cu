/* SPDX-License-Identifier: Apache-2.0 */
/* Two products of BF16 in a row on Hopper. */
#include "kernels/cuda/chain.cuh"

cudaError_t tile::launch_chains_bf16(const struct kernel_call *call, const struct kernel_chain &p)
{
    return launch_chains<bf16_t>(call, p);
}
