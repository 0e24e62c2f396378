/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the threads of a depthwise convolution over channels-last images work: what depthwise.cu
 * and depthwise_bytes.cu share. A thread has some neighbouring channels of TILE columns in one row,
 * and a block is a patch of columns and rows of about a line of memory's channels.
 */
#ifndef INFERD_KERNELS_CUDA_DEPTHWISE_CUH
#define INFERD_KERNELS_CUDA_DEPTHWISE_CUH

#include "kernels/cuda/device.cuh"

namespace
{

enum { COLUMNS = 4, THREADS = 256, LINE_BYTES = 128, DEPTH_MAX = 64 /* of a block */ };

struct geometry {
    int height, width, out_height, out_width, channels;
    int kernel[2], stride[2], dilation[2], pad[2];
    int x[3], y[3]; /* strides of N, H, W */
    int images;
    struct divider chunks, columns, rows; /* of the grid */
    float low, high;                      /* of y, where depthwise.cu clips it */
};

/* Finds where a thread works; false: it has nothing to do. */
struct place {
    int channel, column, row, image;
};

template <int V, int TILE>
__device__ __forceinline__ bool find_place(const struct geometry &g, struct place *p)
{
    uint32_t chunk, column, row;
    uint32_t rest = divider_split(g.chunks, blockIdx.x, &chunk);
    rest = divider_split(g.columns, rest, &column);
    rest = divider_split(g.rows, rest, &row);
    p->channel = (int)(chunk * blockDim.x + threadIdx.x) * V;
    p->column = (int)(column * blockDim.y + threadIdx.y) * TILE;
    p->row = (int)(row * blockDim.z + threadIdx.z);
    p->image = (int)rest;
    return p->channel < g.channels && p->column < g.out_width && p->row < g.out_height;
}

/* The threads of a block along the channels: about a line of memory, with few idle threads. */
int channel_threads(int vectors, int wanted)
{
    int best = vectors < wanted ? vectors : wanted;
    for (int n = 2 * wanted; n >= wanted / 2 && n > 0; n--)
        if (vectors % n == 0)
            return n;
    return best;
}

struct shape_of_launch {
    dim3 block;
    unsigned grid;
};

/* `wanted`: threads along the channels, or about so many. */
bool plan_launch(struct geometry *g, int vector, int tile, int wanted, struct shape_of_launch *out)
{
    int vectors = g->channels / vector, columns = (int)kernel_ceil_div(g->out_width, tile);
    int bx = channel_threads(vectors, wanted);
    int by = columns < COLUMNS ? columns : COLUMNS;
    int bz = THREADS / (bx * by), most = g->out_height < DEPTH_MAX ? g->out_height : DEPTH_MAX;
    bz = bz < 1 ? 1 : bz > most ? most : bz;
    int64_t chunks = kernel_ceil_div(vectors, bx), rows = kernel_ceil_div(g->out_height, bz);
    int64_t column_blocks = kernel_ceil_div(columns, by);
    int64_t grid = chunks * column_blocks;
    if (grid > INT32_MAX / rows || (g->images > 0 && grid * rows > INT32_MAX / g->images))
        return false;
    g->chunks = divider_make((uint32_t)chunks);
    g->columns = divider_make((uint32_t)column_blocks);
    g->rows = divider_make((uint32_t)rows);
    out->block = dim3((unsigned)bx, (unsigned)by, (unsigned)bz);
    out->grid = (unsigned)(grid * rows * g->images);
    return true;
}

bool is_aligned(const void *data)
{
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

/* False: channels that are not innermost, or more than 2^31 elements. */
bool read_geometry(const struct kernel_window *window, const struct kernel_view *x,
                   const struct kernel_view *y, struct geometry *g)
{
    const int64_t limit = INT64_C(1) << 31;
    if (window->spatial != 2 || x->rank != 4 || y->rank != 4 || x->dim[0] != y->dim[0] ||
        x->dim[1] != y->dim[1] || kernel_span(x) >= limit || kernel_span(y) >= limit ||
        (x->dim[1] > 1 && (x->stride[1] != 1 || y->stride[1] != 1)))
        return false;
    /* Positions of windows, padding included, must stay within an int. */
    for (int i = 0; i < 2; i++) {
        if (window->pad[i] < 0 || window->pad[i] > 1 << 20 || x->dim[2 + i] > 1 << 28 ||
            (y->dim[2 + i] + 4) * window->stride[i] +
                    (int64_t)window->kernel[i] * window->dilation[i] >
                1 << 29)
            return false;
        g->kernel[i] = window->kernel[i];
        g->stride[i] = window->stride[i];
        g->dilation[i] = window->dilation[i];
        g->pad[i] = window->pad[i];
    }
    if ((int64_t)window->kernel[0] * window->kernel[1] * x->dim[1] >= limit)
        return false;
    g->images = (int)x->dim[0];
    g->channels = (int)x->dim[1];
    g->height = (int)x->dim[2];
    g->width = (int)x->dim[3];
    g->out_height = (int)y->dim[2];
    g->out_width = (int)y->dim[3];
    static const int order[3] = {0, 2, 3};
    for (int i = 0; i < 3; i++) {
        g->x[i] = (int)x->stride[order[i]];
        g->y[i] = (int)y->stride[order[i]];
    }
    return true;
}

} // namespace

#endif
