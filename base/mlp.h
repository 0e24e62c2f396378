/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a chain of fully connected layers takes in one kernel that keeps all weights in a
 * block's shared memory (kernels/cuda/mlp.cu). The pass that makes such chains and the kernel ask
 * here, so that the one makes none that the other refuses.
 *
 * Weights lie in tiles of MLP_TILE x MLP_TILE numbers if they have 16 bits, else in rows of whole
 * vectors. Values between layers alternate between two places.
 */
#ifndef INFERD_BASE_MLP_H
#define INFERD_BASE_MLP_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MLP_LAYERS_MAX = 31,
    MLP_WIDTH_MAX = 1024, /* numbers of a row, before and behind every layer */
    MLP_TILE = 16,        /* what tensor cores take at a time */
    MLP_VECTOR = 4,
    MLP_SKEW = 16, /* bytes behind a row, so that the rows of a tile lie in different banks */
    MLP_ROWS_LEAST = 16,
};

/* Bytes. */
struct mlp_room {
    uint64_t weights, bias; /* of all layers; biases are FP32 */
    uint64_t row[2];        /* a row of each of the two places */
};

/* A row of so many numbers as it is stored; `size`: bytes of a number, 2 or 4. */
static inline uint64_t mlp_padded(int64_t width, uint32_t size)
{
    uint64_t by = size == 2 ? MLP_TILE : MLP_VECTOR;
    return ((uint64_t)width + by - 1) / by * by;
}

/* `widths` has the width of x, then those behind the layers. False: more layers, or wider ones,
 * than the kernel takes. */
static inline bool mlp_room(const int32_t *widths, uint32_t layers, uint32_t size,
                            struct mlp_room *out)
{
    struct mlp_room room = {0, 0, {0, 0}};
    if (layers < 1 || layers > MLP_LAYERS_MAX || widths[0] < 1 || widths[0] > MLP_WIDTH_MAX)
        return false;
    for (uint32_t i = 0; i < layers; i++) {
        uint64_t depth = mlp_padded(widths[i], size), row = depth * size + MLP_SKEW;
        if (widths[i + 1] < 1 || widths[i + 1] > MLP_WIDTH_MAX)
            return false;
        room.weights += depth * mlp_padded(widths[i + 1], size) * size;
        room.bias += mlp_padded(widths[i + 1], size) * 4;
        room.row[i % 2] = row > room.row[i % 2] ? row : room.row[i % 2];
    }
    *out = room;
    return true;
}

/* With so many rows at a time. */
static inline uint64_t mlp_room_bytes(const struct mlp_room *room, uint64_t rows)
{
    return room->weights + room->bias + rows * (room->row[0] + room->row[1]);
}

#endif
