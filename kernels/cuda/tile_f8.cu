/* SPDX-License-Identifier: Apache-2.0 */
/* Products of FP8 (E4M3) by FP8 on Hopper. */
#include "kernels/cuda/tile_table.cuh"

cudaError_t tile::launch_f8(const struct kernel_call *call, const struct kernel_tile &p)
{
    return launch<f8_t>(call, p);
}
