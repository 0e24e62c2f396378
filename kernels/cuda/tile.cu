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
#define ROW(columns, stay, stages, slots, line)             {columns < 128 ? 64 : 128, line},
#define PATCH(line, ...)                                    {64, line},
#define SPLIT(columns, stages, line, blocks)                {split::PART, line},
#define WIDE(...)                                           {64, 128},
#define MANY(columns, stay, stages, slots, line, consumers) {columns < 128 ? 64 : 128, line},
            TILE_SHAPES(ROW) TILE_PATCHES(PATCH) TILE_SPLITS(SPLIT) TILE_WIDES(WIDE)
                TILE_MANIES(MANY)};
#undef ROW
#undef PATCH
#undef SPLIT
#undef WIDE
#undef MANY

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

/* What is behind sums are real numbers: of FP8, or of results of 16 bits. */
static bool is_real(const struct kernel_tile *p)
{
    return p->x_dtype == DTYPE_F8 || tile::is_wide(*p);
}

/* Residuals are of the results' kind. */
static bool fits(const struct kernel_tile *p)
{
    if (!is_real(p))
        return is_byte(p->x_dtype) && is_byte(p->y_dtype) &&
               (!p->residual || is_byte(p->residual_dtype)) && activate::knows(p->func) &&
               !p->late && (p->func == IR_UNARY_IDENTITY || !p->second.depth);
    return (p->y_dtype == DTYPE_F8 ? p->x_dtype == DTYPE_F8 : tile::is_wide(*p)) &&
           (p->x_dtype == DTYPE_F8 || is_byte(p->x_dtype)) &&
           (!p->residual || p->residual_dtype == p->y_dtype) && activate::knows(p->func) &&
           (!p->second.depth || (p->y_dtype == DTYPE_F8 && p->func == IR_UNARY_IDENTITY));
}

cudaError_t kernel_tile(const struct kernel_call *call, const struct kernel_tile *p)
{
    if (call->capability != 90 || !fits(p))
        return cudaErrorNotSupported;
    return p->x_dtype == DTYPE_F8   ? tile::launch_f8(call, *p)
           : p->x_dtype == DTYPE_I8 ? tile::launch_i8(call, *p)
                                    : tile::launch_u8(call, *p);
}
