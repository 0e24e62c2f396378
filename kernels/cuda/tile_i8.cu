/* SPDX-License-Identifier: Apache-2.0 */
/* Products of INT8 by INT8 on Hopper. */
#include "kernels/cuda/tile_table.cuh"

cudaError_t tile::launch_i8(const struct kernel_call *call, const struct kernel_tile &p)
{
    return launch<int8_t>(call, p);
}
