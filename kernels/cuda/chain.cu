/* SPDX-License-Identifier: Apache-2.0 */
/* Which two products in a row go to the kernels of chain.cuh; those of UINT8. */
#include "kernels/cuda/chain.cuh"

int64_t kernel_chain_line(int32_t variant)
{
    static const int lines[] = {128,
#define ROW(next, ...) next,
                                TILE_CHAINS(ROW)};
#undef ROW
    return lines[variant >= 1 && variant <= KERNEL_CHAIN_VARIANTS ? variant : 0];
}

static_assert((int)tile::CHAIN_STEP == KERNEL_CHAIN_STEP &&
                  (int)tile::CHAIN_CHUNK == KERNEL_CHAIN_LINE,
              "as weights are packed");

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
    if (call->capability != 90 || (!is_byte(f->x_dtype) && f->x_dtype != DTYPE_F8) ||
        f->y_dtype != f->x_dtype || !is_like(p->next.t_dtype, f->x_dtype) ||
        (f->residual && !is_like(f->residual_dtype, f->x_dtype)) || f->func != IR_UNARY_IDENTITY)
        return cudaErrorNotSupported;
    return f->x_dtype == DTYPE_F8   ? tile::launch_chains_f8(call, *p)
           : f->x_dtype == DTYPE_I8 ? tile::launch_chains_i8(call, *p)
                                    : tile::launch_chains<uint8_t>(call, *p);
}
