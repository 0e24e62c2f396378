/* SPDX-License-Identifier: Apache-2.0 */
/* Two products of FP8 (E4M3) in a row on Hopper. */
#include "kernels/cuda/chain.cuh"

cudaError_t tile::launch_chains_f8(const struct kernel_call *call, const struct kernel_chain &p)
{
    return launch_chains<f8_t>(call, p);
}
