/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of bytes by constant INT8 weights into INT32 sums, exactly (modulo
 * 2^32), on tensor cores. Rows of the product are the rows of x, or, for a convolution, the windows
 * of its output's positions, gathered as they are read: an element of x is read once for each tile
 * of columns and each tap, which for bytes is cheap beside writing windows to memory.
 *
 * A block of WM x WN warps computes (16 WM MI) rows by (8 WN NI) columns. Tiles of 64 bytes of
 * depth go through STAGES buffers in shared memory; its rows are four chunks of 16 bytes, swapped
 * by the row's number so that the eight rows of a matrix lie in different banks. Rows of x that are
 * not whole chunks, or windows, are gathered byte by byte.
 *
 * Refused: sums of more than 2^16 products, extents beyond 2^28.
 *
 * kernel_product_edges does the first and last columns of rows of an odd length: a warp a row.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

enum { EXTENT_MAX = 1 << 28 };

enum source { SOURCE_CHUNKS, SOURCE_BYTES, SOURCE_WINDOWS }; /* how rows of x are read */

struct geometry {
    int rows, cols, depth, packed; /* packed: the depth of the weights, with padding */
    int64_t x_part, y_part;        /* from one image's group to the next, in elements */
    int64_t y_row, y_col;
    int groups;
    struct divider row_tiles;
    /* of windows */
    struct divider taps, kernel[3], out[3];
    int in[3], stride[3], dilation[3], pad[3];
    int64_t plane;
};

struct operands {
    const uint8_t *x;
    const int8_t *w;
    const int32_t *bias;
    int32_t *y;
};

/* --- reading x --- */

/* The corner of a position's window. */
struct corner {
    int at[3];
    bool there;
};

__device__ __forceinline__ struct corner corner_of(const struct geometry &g, int row)
{
    struct corner c;
    uint32_t rest = (uint32_t)row, index;
    c.there = row < g.rows;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        rest = divider_split(g.out[d], rest, &index);
        c.at[d] = (int)index * g.stride[d] - g.pad[d];
    }
    return c;
}

/* What lies under number k of a window; outside of the image that is 0. */
__device__ __forceinline__ uint32_t window_byte(const struct geometry &g, const uint8_t *x,
                                                const struct corner &c, int k)
{
    uint32_t tap, index;
    int64_t place = (int64_t)divider_split(g.taps, (uint32_t)k, &tap) * g.plane, step = 1;
    bool inside = c.there && k < g.depth;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        tap = divider_split(g.kernel[d], tap, &index);
        int at = c.at[d] + (int)index * g.dilation[d];
        inside = inside && at >= 0 && at < g.in[d];
        place += at * step;
        step *= g.in[d];
    }
    return inside ? x[place] : 0;
}

template <int SOURCE>
__device__ __forceinline__ void load_chunk(const struct geometry &g, const uint8_t *x,
                                           const struct corner &c, int row, int k, uint8_t *to)
{
    if constexpr (SOURCE == SOURCE_CHUNKS) {
        bool valid = row < g.rows && k < g.depth;
        copy_async_16(to, x + (valid ? (int64_t)row * g.depth + k : 0), valid);
    } else {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            word[i] = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int at = k + i * 4 + j;
                uint32_t byte = 0;
                if (SOURCE == SOURCE_WINDOWS)
                    byte = window_byte(g, x, c, at);
                else if (row < g.rows && at < g.depth)
                    byte = x[(int64_t)row * g.depth + at];
                word[i] |= byte << 8 * j;
            }
        }
        *reinterpret_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

/* --- the kernel --- */

/* Starts loading a tile of x and one of the weights, from depth k on. */
template <class S, int SOURCE>
__device__ __forceinline__ void load_tiles(const struct geometry &g, const uint8_t *x,
                                           const int8_t *w, const struct corner *corners,
                                           int first_row, int first_col, int k, uint8_t *to)
{
#pragma unroll
    for (int s = 0; s < S::slots; s++) {
        int i = (int)threadIdx.x + s * S::threads, row = i / CHUNKS, chunk = i % CHUNKS;
        load_chunk<SOURCE>(g, x, corners[s], first_row + row, k + chunk * CHUNK,
                           tile_at(to, row, chunk));
    }
    load_weights<S>(w, g.cols, g.packed, first_col, k, to);
    copy_async_commit();
}

template <class S>
__device__ __forceinline__ void store_sums(const struct geometry &g, const int32_t *bias,
                                           int32_t *y, int row, int col,
                                           const int32_t (&sums)[S::tiles_m][S::tiles_n][4])
{
    int lane = (int)threadIdx.x % KERNEL_WARP;
#pragma unroll
    for (int j = 0; j < S::tiles_n; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int c = col + j * 8 + lane % 4 * 2 + k % 2;
            uint32_t add = bias && c < g.cols ? (uint32_t)bias[c] : 0;
#pragma unroll
            for (int i = 0; i < S::tiles_m; i++) {
                int r = row + i * 16 + lane / 4 + k / 2 * 8;
                if (r < g.rows && c < g.cols)
                    y[r * g.y_row + c * g.y_col] = (int32_t)((uint32_t)sums[i][j][k] + add);
            }
        }
}

template <class S, int SOURCE, bool SIGNED>
__global__ void __launch_bounds__(S::threads)
    sum_products(const __grid_constant__ struct geometry g, const struct operands o)
{
    KERNEL_SHARED(uint8_t, stages);
    uint32_t tile;
    int part = (int)divider_split(g.row_tiles, blockIdx.x, &tile), group = part % g.groups;
    int first_row = (int)tile * S::rows, first_col = (int)blockIdx.y * S::cols;
    int warp = (int)threadIdx.x / KERNEL_WARP;
    int row = warp / S::warps_n * S::tiles_m * 16, col = warp % S::warps_n * S::tiles_n * 8;
    const uint8_t *x = o.x + part * g.x_part;
    const int8_t *w = o.w + (int64_t)group * g.cols * g.packed;
    struct corner corners[S::slots];
#pragma unroll
    for (int s = 0; s < S::slots && SOURCE == SOURCE_WINDOWS; s++)
        corners[s] = corner_of(g, first_row + ((int)threadIdx.x + s * S::threads) / CHUNKS);
    int32_t sums[S::tiles_m][S::tiles_n][4] = {};
    int steps = (g.depth + DEPTH - 1) / DEPTH;
    for (int i = 0; i < STAGES - 1; i++) { /* tiles beyond the depth are zeros */
        load_tiles<S, SOURCE>(g, x, w, corners, first_row, first_col, i * DEPTH,
                              stages + i * S::bytes);
    }
    for (int i = 0; i < steps; i++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        load_tiles<S, SOURCE>(g, x, w, corners, first_row, first_col, (i + STAGES - 1) * DEPTH,
                              stages + (i + STAGES - 1) % STAGES * S::bytes);
        multiply_tiles<S, SIGNED>(stages + i % STAGES * S::bytes, row, col, sums);
    }
    copy_async_wait<0>();
    store_sums<S>(g, o.bias ? o.bias + group * g.cols : nullptr, o.y + part * g.y_part,
                  first_row + row, first_col + col, sums);
}

/* --- launching --- */

bool fits(int64_t value)
{
    return value >= 1 && value <= EXTENT_MAX;
}

bool read_windows(const struct kernel_product *p, struct geometry *g)
{
    int64_t taps = 1, plane = 1;
    if (p->window.spatial < 1 || p->window.spatial > 3)
        return false;
    for (int d = 0; d < 3; d++) {
        int from = d - (3 - p->window.spatial); /* dims that are not there come first */
        bool there = from >= 0;
        int64_t in = there ? p->in[from] : 1, out = there ? p->out[from] : 1;
        int kernel = there ? p->window.kernel[from] : 1;
        g->stride[d] = there ? p->window.stride[from] : 1;
        g->dilation[d] = there ? p->window.dilation[from] : 1;
        g->pad[d] = there ? p->window.pad[from] : 0;
        if (!fits(in) || !fits(out) || !fits(kernel) || !fits((int64_t)g->pad[d] + 1) ||
            !fits(out * g->stride[d]) || !fits((int64_t)kernel * g->dilation[d]))
            return false;
        g->in[d] = (int)in;
        g->kernel[d] = divider_make((uint32_t)kernel);
        g->out[d] = divider_make((uint32_t)out);
        taps *= kernel;
        plane *= in;
        if (taps > p->depth || !fits(plane))
            return false;
    }
    g->taps = divider_make((uint32_t)taps);
    g->plane = plane;
    return p->depth % taps == 0;
}

bool read_geometry(const struct kernel_product *p, struct geometry *g)
{
    if (!fits(p->images) || !fits(p->groups) || !fits(p->rows) || !fits(p->cols) || p->depth < 1 ||
        p->depth > KERNEL_PRODUCT_DEPTH_MAX || (p->window.spatial && !read_windows(p, g)))
        return false;
    g->rows = (int)p->rows;
    g->cols = (int)p->cols;
    g->depth = (int)p->depth;
    g->packed = (int)kernel_product_depth(p->depth);
    g->groups = (int)p->groups;
    if (p->window.spatial) {
        g->x_part = p->depth / (int64_t)g->taps.by * g->plane;
        g->y_part = p->cols * p->rows;
        g->y_row = 1;
        g->y_col = p->rows;
    } else {
        g->x_part = p->rows * p->depth;
        g->y_part = p->rows * p->cols;
        g->y_row = p->cols;
        g->y_col = 1;
    }
    return true;
}

template <class S>
cudaError_t launch(const struct kernel_call *call, const struct kernel_product *p,
                   struct geometry g, const struct operands &o)
{
    int64_t tiles = kernel_ceil_div(g.rows, S::rows), cols = kernel_ceil_div(g.cols, S::cols);
    int64_t parts = (int64_t)p->images * p->groups;
    if (parts > INT32_MAX / tiles || cols > 65535)
        return cudaErrorNotSupported;
    g.row_tiles = divider_make((uint32_t)tiles);
    dim3 grid((unsigned)(parts * tiles), (unsigned)cols);
    int source = p->window.spatial       ? SOURCE_WINDOWS
                 : p->depth % CHUNK == 0 ? SOURCE_CHUNKS
                                         : SOURCE_BYTES;
#define LAUNCH(SOURCE, SIGNED)                                                                     \
    if (source == SOURCE && p->is_signed == SIGNED)                                                \
    return KERNEL_LAUNCH((sum_products<S, SOURCE, SIGNED>), grid, S::threads, S::shared, call, g, o)
    LAUNCH(SOURCE_CHUNKS, false);
    LAUNCH(SOURCE_CHUNKS, true);
    LAUNCH(SOURCE_BYTES, false);
    LAUNCH(SOURCE_BYTES, true);
    LAUNCH(SOURCE_WINDOWS, false);
    LAUNCH(SOURCE_WINDOWS, true);
#undef LAUNCH
    return cudaErrorNotSupported;
}

/* The largest tiles of which there are as many as multiprocessors. */
int choose(const struct kernel_call *call, const struct kernel_product *p)
{
    for (int side = 128, variant = 1; variant < KERNEL_PRODUCT_VARIANTS; side /= 2, variant++)
        if (kernel_ceil_div(p->rows, side) * kernel_ceil_div(p->cols, side) * p->images *
                p->groups >=
            call->multiprocessors)
            return variant;
    return KERNEL_PRODUCT_VARIANTS;
}

/* --- edges --- */

enum { EDGE_WARPS = 8, EDGE_MORE = 7 /* columns at most, beyond 16 bytes less one */ };

struct edges {
    int64_t rows, cols, depth;
    int left;
    float alpha;
};

template <class TX, class TY>
__global__ void __launch_bounds__(EDGE_WARPS *KERNEL_WARP)
    product_edges(const struct edges e, const TX *__restrict__ x, const TX *__restrict__ w,
                  const TY *__restrict__ bias, TY *y)
{
    const int LANES = 16 / (int)sizeof(TY), LEFT = LANES - 1 + EDGE_MORE;
    const int V = 16 / (int)sizeof(TX);
    int64_t row = (int64_t)blockIdx.x * EDGE_WARPS + threadIdx.x / KERNEL_WARP;
    int lane = (int)threadIdx.x % KERNEL_WARP;
    if (row >= e.rows)
        return;
    int first = (int)((LANES - row % LANES * (e.cols % LANES) % LANES) % LANES);
    float sums[LEFT] = {};
    for (int64_t k = lane * V; k < e.depth; k += KERNEL_WARP * V) {
        float a[V], b[V];
        vector_read<V>(x + row * e.depth + k, a);
#pragma unroll
        for (int i = 0; i < LEFT; i++) {
            if (i >= e.left)
                break;
            int64_t col = i < first ? i : e.cols - e.left + i;
            vector_read<V>(w + col * e.depth + k, b);
#pragma unroll
            for (int j = 0; j < V; j++)
                sums[i] += a[j] * b[j];
        }
    }
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        if (i >= e.left)
            break;
        int64_t col = i < first ? i : e.cols - e.left + i;
        float sum = reduce_warp(sums[i], reduce_sum());
        if (lane == 0)
            y[row * e.cols + col] =
                number_from<TY>(e.alpha * sum + (bias ? number_float(bias[col]) : 0.0f));
    }
}

template <class TX, class TY>
cudaError_t launch_edges(const struct kernel_call *call, const struct kernel_edges *from,
                         const void *x, const void *w, const void *bias, void *y)
{
    const struct edges e = {from->rows, from->cols, from->depth, (int)from->left, from->alpha};
    const int64_t lanes = 16 / (int64_t)sizeof(TY);
    int64_t blocks = kernel_ceil_div(e.rows, EDGE_WARPS);
    if (e.depth % (16 / (int64_t)sizeof(TX)) != 0 || blocks > INT32_MAX ||
        (from->left && (from->left < lanes - 1 || from->left > lanes - 1 + EDGE_MORE)))
        return cudaErrorNotSupported;
    if (from->left == 0)
        return cudaSuccess;
    return KERNEL_LAUNCH((product_edges<TX, TY>), (unsigned)blocks, EDGE_WARPS * KERNEL_WARP, 0,
                         call, e, static_cast<const TX *>(x), static_cast<const TX *>(w),
                         static_cast<const TY *>(bias), static_cast<TY *>(y));
}

} // namespace

cudaError_t kernel_product_edges(const struct kernel_call *call, const struct kernel_edges *e,
                                 const void *x, const void *w, const void *bias, void *y)
{
    bool wide = e->y_dtype == DTYPE_F32;
    if (!wide && e->y_dtype != e->x_dtype)
        return cudaErrorNotSupported;
    switch (e->x_dtype) {
    case DTYPE_F16:
        return wide ? launch_edges<half_t, float>(call, e, x, w, bias, y)
                    : launch_edges<half_t, half_t>(call, e, x, w, bias, y);
    case DTYPE_BF16:
        return wide ? launch_edges<bf16_t, float>(call, e, x, w, bias, y)
                    : launch_edges<bf16_t, bf16_t>(call, e, x, w, bias, y);
    case DTYPE_F32:
        return launch_edges<float, float>(call, e, x, w, bias, y);
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t kernel_product_bytes(const struct kernel_call *call, const struct kernel_product *p,
                                 const void *x, const void *w, const int32_t *bias, int32_t *y)
{
    struct geometry g = {};
    const struct operands o = {static_cast<const uint8_t *>(x), static_cast<const int8_t *>(w),
                               bias, y};
    if (!read_geometry(p, &g))
        return cudaErrorNotSupported;
    switch (call->variant ? call->variant : choose(call, p)) {
    case 1:
        return launch<large_tile>(call, p, g, o);
    case 2:
        return launch<middle_tile>(call, p, g, o);
    case 3:
        return launch<small_tile>(call, p, g, o);
    default:
        return cudaErrorNotSupported;
    }
}
