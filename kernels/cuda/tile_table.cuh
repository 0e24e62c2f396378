/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of products of bytes on Hopper, in the order of their numbers. */
#ifndef INFERD_KERNELS_CUDA_TILE_TABLE_CUH
#define INFERD_KERNELS_CUDA_TILE_TABLE_CUH

#include "kernels/cuda/patch.cuh"
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/tile_split.cuh"

namespace tile
{

/* R(columns, steps of weights that stay, stages, slots, bytes of a step) */
#define TILE_SHAPES(R)                                                                             \
    R(256, 0, 4, 1, 128)                                                                           \
    R(128, 0, 5, 2, 128)                                                                           \
    R(64, 0, 7, 3, 128)                                                                            \
    R(256, 1, 4, 3, 128)                                                                           \
    R(256, 2, 4, 2, 128)                                                                           \
    R(256, 4, 3, 1, 128)                                                                           \
    R(128, 2, 6, 4, 128)                                                                           \
    R(128, 8, 4, 1, 128)                                                                           \
    R(64, 4, 7, 4, 128)                                                                            \
    R(64, 9, 6, 3, 128)                                                                            \
    R(256, 1, 6, 3, 64)                                                                            \
    R(64, 9, 8, 4, 64)

/* Behind them, R(bytes of a pixel, stages, slots): see patch.cuh */
#define TILE_PATCHES(R)                                                                            \
    R(64, 4, 3)                                                                                    \
    R(128, 2, 3)

/* Behind them, R(columns, stages, bytes of a step, blocks that share a tile): see split.cuh */
#define TILE_SPLITS(R)                                                                             \
    R(32, 8, 128, 2)                                                                               \
    R(32, 8, 128, 4)                                                                               \
    R(32, 8, 128, 8)                                                                               \
    R(64, 5, 128, 2)                                                                               \
    R(64, 5, 128, 4)                                                                               \
    R(64, 5, 128, 8)                                                                               \
    R(64, 8, 64, 2)

/* Behind them, of wide results: R(columns, steps of weights that stay, stages, slots) */
#define TILE_WIDES(R)                                                                              \
    R(256, 0, 3, 1)                                                                                \
    R(128, 0, 5, 2)                                                                                \
    R(64, 0, 7, 3)                                                                                 \
    R(128, 8, 4, 1)                                                                                \
    R(64, 8, 5, 2)

/* Behind them, R(columns, steps of weights that stay, stages, slots, bytes of a step, consumers) */
#define TILE_MANIES(R)                                                                             \
    R(128, 1, 6, 4, 64, 3)                                                                         \
    R(128, 2, 4, 2, 128, 3)                                                                        \
    R(128, 4, 3, 2, 128, 3)                                                                        \
    R(128, 6, 2, 2, 128, 3)                                                                        \
    R(64, 1, 6, 4, 64, 4)                                                                          \
    R(64, 4, 4, 3, 128, 4)                                                                         \
    R(64, 9, 3, 2, 128, 4)

typedef cudaError_t (*launch_fn)(const struct kernel_call *call, const struct kernel_tile &p);

template <class X> cudaError_t launch(const struct kernel_call *call, const struct kernel_tile &p)
{
#define ROW(columns, stay, stages, slots, line)                                                    \
    launch_of<shape<X, columns, stay, stages, slots, line>>,
#define PATCH(line, stages, slots) patch::launch_bytes<X, line, stages, slots>,
#define SPLIT(columns, stages, line, blocks)                                                       \
    launch_split<split_shape<X, columns, stages, line>, blocks>,
#define WIDE(columns, stay, stages, slots)                                                         \
    launch_of<shape<X, columns, stay, stages, slots, 128, 2>>,
#define MANY(columns, stay, stages, slots, line, consumers)                                        \
    launch_of<shape<X, columns, stay, stages, slots, line, 1, consumers>>,
    static const launch_fn rows[] = {TILE_SHAPES(ROW) TILE_PATCHES(PATCH) TILE_SPLITS(SPLIT)
                                         TILE_WIDES(WIDE) TILE_MANIES(MANY)};
#undef ROW
#undef PATCH
#undef SPLIT
#undef WIDE
#undef MANY
    static_assert(sizeof(rows) / sizeof(*rows) == KERNEL_TILE_VARIANTS, "each has its number");
    if (call->variant < 1 || call->variant > KERNEL_TILE_VARIANTS)
        return cudaErrorNotSupported;
    return rows[call->variant - 1](call, p);
}

/* tile_f8.cu, tile_i8.cu, tile_u8.cu: by the type of x */
cudaError_t launch_f8(const struct kernel_call *call, const struct kernel_tile &p);
cudaError_t launch_i8(const struct kernel_call *call, const struct kernel_tile &p);
cudaError_t launch_u8(const struct kernel_call *call, const struct kernel_tile &p);

} // namespace tile

#endif
