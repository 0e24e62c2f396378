/* SPDX-License-Identifier: Apache-2.0 */
/* Which two products in a row go to the kernels of chain.cuh; those of UINT8. */
#include "kernels/cuda/chain.cuh"

/* Bytes of a step, and columns of both products' lines, by variant. */
static const struct {
    int step, line, next;
} rows[] = {{64, 128, 128},
#define ROW(stay, step, chunk, chunks, next, ...) {step, chunk, next},
            TILE_CHAINS(ROW)};
#undef ROW

static int32_t known(int32_t variant)
{
    return variant >= 1 && variant <= KERNEL_CHAIN_VARIANTS ? variant : 0;
}

int64_t kernel_chain_step(int32_t variant)
{
    return rows[known(variant)].step;
}

int64_t kernel_chain_line(int32_t variant)
{
    return rows[known(variant)].line;
}

int64_t kernel_chain_next_line(int32_t variant)
{
    return rows[known(variant)].next;
}

static bool is_byte(int32_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

cudaError_t kernel_chain(const struct kernel_call *call, const struct kernel_chain *p)
{
    const struct kernel_tile *f = &p->first;
    if (call->capability != 90 || !is_byte(f->x_dtype) || f->y_dtype != f->x_dtype ||
        !is_byte(p->next.t_dtype) || (f->residual && !is_byte(f->residual_dtype)) ||
        f->func != IR_UNARY_IDENTITY)
        return cudaErrorNotSupported;
    return f->x_dtype == DTYPE_U8 ? tile::launch_chains<uint8_t>(call, *p)
                                  : tile::launch_chains_i8(call, *p);
}
