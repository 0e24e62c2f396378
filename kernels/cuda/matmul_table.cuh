/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of products on Hopper, in the order of their numbers. */
#ifndef INFERD_KERNELS_CUDA_MATMUL_TABLE_CUH
#define INFERD_KERNELS_CUDA_MATMUL_TABLE_CUH

#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/matmul_split.cuh"
#include "kernels/cuda/patch.cuh"

namespace matmul
{

typedef cudaError_t (*launch_fn)(const struct kernel_call *call, const struct kernel_matmul &p);

template <class T> cudaError_t launch(const struct kernel_call *call, const struct kernel_matmul &p)
{
    static const launch_fn rows[KERNEL_MATMUL_VARIANTS] = {
        /* slabs of 64 rows and columns of a warpgroup, apart, stages */
        launch_of<shape<T, 1, 256, false, 4>>,
        launch_of<shape<T, 1, 192, false, 5>>,
        launch_of<shape<T, 1, 128, false, 6>>,
        launch_of<shape<T, 2, 128, true, 6>>,
        launch_of<shape<T, 1, 256, true, 5>>,
        launch_of<shape<T, 1, 128, true, 8>>,
        launch_of<shape<T, 1, 64, true, 12>>,
        /* columns and stages of a block, blocks that share a tile's depth */
        launch_split<split_shape<T, 32, 8>, 2>,
        launch_split<split_shape<T, 32, 8>, 4>,
        launch_split<split_shape<T, 32, 8>, 8>,
        launch_split<split_shape<T, 64, 5>, 2>,
        launch_split<split_shape<T, 64, 5>, 4>,
        launch_split<split_shape<T, 64, 5>, 8>,
        launch_split<split_shape<T, 128, 3>, 2>,
        launch_split<split_shape<T, 128, 3>, 4>,
        launch_split<split_shape<T, 128, 3>, 8>,
        /* stages and slots */
        patch::launch_floats<T, 2, 2>,
    };
    if (call->variant < 1 || call->variant > KERNEL_MATMUL_VARIANTS)
        return cudaErrorNotSupported;
    return rows[call->variant - 1](call, p);
}

/* matmul_f16.cu, matmul_bf16.cu */
cudaError_t launch_f16(const struct kernel_call *call, const struct kernel_matmul &p);
cudaError_t launch_bf16(const struct kernel_call *call, const struct kernel_matmul &p);

} // namespace matmul

#endif
