/* SPDX-License-Identifier: Apache-2.0 */
/* Which products of bytes go to the kernels of tile_table.cuh. */
#include "kernels/cuda/tile_table.cuh"

static bool is_byte(int32_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

/* Columns of a line and bytes of a step, by variant. */
static const struct {
    int columns, step;
} rows[] = {{128, 128},
#define ROW(columns, stay, stages, slots, line) {columns < 128 ? 64 : 128, line},
#define PATCH(line, ...)                        {64, line},
#define SPLIT(columns, stages, line, blocks)    {split::PART, line},
            TILE_SHAPES(ROW) TILE_PATCHES(PATCH) TILE_SPLITS(SPLIT)};
#undef ROW
#undef PATCH
#undef SPLIT

static int32_t known(int32_t variant)
{
    return variant >= 1 && variant <= KERNEL_TILE_VARIANTS ? variant : 0;
}

int64_t kernel_tile_line(int32_t variant)
{
    return rows[known(variant)].columns;
}

int64_t kernel_tile_step(int32_t variant)
{
    return rows[known(variant)].step;
}

/* Floats from end to end. */
static cudaError_t floats(const struct kernel_call *call, const struct kernel_tile *p)
{
    bool fit = p->y_dtype == DTYPE_F8 && (!p->residual || p->residual_dtype == DTYPE_F8) &&
               activate::knows(p->func) && !p->second.depth;
    return fit ? tile::launch_f8(call, *p) : cudaErrorNotSupported;
}

cudaError_t kernel_tile(const struct kernel_call *call, const struct kernel_tile *p)
{
    if (call->capability != 90)
        return cudaErrorNotSupported;
    if (p->x_dtype == DTYPE_F8)
        return floats(call, p);
    if (!is_byte(p->x_dtype) || !is_byte(p->y_dtype) ||
        (p->residual && !is_byte(p->residual_dtype)))
        return cudaErrorNotSupported;
    return p->x_dtype == DTYPE_I8 ? tile::launch_i8(call, *p) : tile::launch_u8(call, *p);
}
