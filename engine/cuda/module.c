/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend's table, and the one symbol of its module. */
#include "base/compiler.h"
#include "engine/cuda/family.h"

static const struct backend backend_cuda = {
    .abi = BACKEND_ABI,
    .features = BACKEND_ATTENTION | BACKEND_MERGE,
    .name = "cuda",
    .stable_addresses = true,
    .candidates = cuda_candidates,
    .pack = cuda_pack,
    .compile = cuda_compile,
    .code = cuda_code,
    .op_prepare = cuda_op_prepare,
    .op_workspace = cuda_op_workspace,
    .op_free = cuda_op_free,
    .op_launch = cuda_op_launch,
};

__attribute__((visibility("default"))) const struct backend *inferd_backend(void);

const struct backend *inferd_backend(void)
{
    return &backend_cuda;
}
