/* SPDX-License-Identifier: Apache-2.0 */
/* Which two products in a row go to the kernels of chain.cuh; those of UINT8. */
#include "kernels/cuda/chain.cuh"

/* Columns of y's line and of t's, by variant. */
static const int lines[][2] = {{128, 128},
#define BYTES(next, ...)  {128, next},
#define HALVES(next, ...) {64, 64},
                               CHAIN_BYTES(BYTES) CHAIN_HALVES(HALVES)};
#undef BYTES
#undef HALVES

int64_t kernel_chain_line(int32_t variant, bool next)
{
    return lines[variant >= 1 && variant <= KERNEL_CHAIN_VARIANTS ? variant : 0][next];
}

static bool is_byte(int32_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

/* Whether a tensor has the type of another one, or both are integers. */
static bool is_like(int32_t dtype, int32_t other)
{
    return is_byte(other) ? is_byte(dtype) : dtype == other;
}

cudaError_t kernel_chain(const struct kernel_call *call, const struct kernel_chain *p)
{
    const struct kernel_tile *f = &p->first;
    if (call->capability != 90 || f->y_dtype != f->x_dtype ||
        !is_like(p->next.t_dtype, f->x_dtype) ||
        (f->residual && !is_like(f->residual_dtype, f->x_dtype)) || f->func != IR_UNARY_IDENTITY)
        return cudaErrorNotSupported;
    switch (f->x_dtype) {
    case DTYPE_F16:
        return tile::launch_chains_f16(call, *p);
    case DTYPE_BF16:
        return tile::launch_chains_bf16(call, *p);
    case DTYPE_F8:
        return tile::launch_chains_f8(call, *p);
    case DTYPE_I8:
        return tile::launch_chains_i8(call, *p);
    case DTYPE_U8:
        return tile::launch_chains<uint8_t>(call, *p);
    default:
        return cudaErrorNotSupported;
    }
}
