/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products of bytes by constant INT8 weights, on tensor cores, from windows of x
 * to stored results in one launch: sums, scale and bias, the node's epilogue, and floats or 8 bits.
 *
 * Rows of the product are positions of the output, gathered as they are read. A window is *runs* of
 * bytes that are neighbours in memory: of channels-last images a row of taps with all their
 * channels (7 x 3 = 21 bytes of a first convolution), or with groups and dilations the channels of
 * one tap; of plain images a row of taps of one channel, so that images which clients send as bytes
 * need no reordering. Runs of whole chunks of 16 aligned bytes are copied asynchronously; of others
 * a word is cut out of two aligned ones. What lies outside of the image is x's zero point.
 *
 * Results go through shared memory, 16 rows of a warp at a time, so that a thread has eight
 * neighbouring channels to finish and to store.
 *
 * Bytes and products of ResNet-50's first convolution with 32 images: 4.8 MB in, 25.7 MB out, 7 us
 * at 4.2 TB/s; 59 G products with padding, in 192 of depth for 147.
 *
 * Refused: more than 2^31 elements, windows of more than 2^16 products.
 */
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/product.cuh"

namespace
{

enum {
    EXTENT_MAX = 1 << 28,
    ROWS_MAX = INT32_MAX - 128, /* the last tile numbers rows that are not there */
    ROOM_PAD = 8,               /* integers between rows, against bank conflicts */
};

struct geometry {
    int rows, cols, depth, packed; /* rows: positions of all images; cols: of a group */
    int channels;                  /* of y */
    struct divider col_tiles;      /* of a group */
    /* x, in bytes: from one image, channel and row of each spatial dim to the next */
    int x_image, x_channel, x_row[2], x_group;
    int pixel, line;       /* from a column to the next; a row's bytes */
    int in[2];             /* extents; that of the last dim is line / pixel */
    struct divider run;    /* by its bytes in the weights */
    struct divider tap[3]; /* taps that count runs; of the last dim 1 if runs have them all */
    int stride[3], dilation[3], pad[3];
    struct divider out[3];
    int total;        /* bytes of x */
    uint32_t outside; /* four zero points */
    bool sign, plain;
};

/* The first tap of a position's window, which may lie outside of the image. */
struct corner {
    int base, at, row[2]; /* base: of its row; at: bytes from the row's beginning */
    bool there;
};

/* What lies at a depth, as seen from a corner. */
struct tap {
    int base, at, row[2];
    bool there;
};

__device__ __forceinline__ struct corner corner_of(const struct geometry &g, int group, int row)
{
    struct corner c;
    uint32_t index[3];
    uint32_t image = (uint32_t)row;
#pragma unroll
    for (int d = 2; d >= 0; d--)
        image = divider_split(g.out[d], image, &index[d]);
    c.there = row < g.rows;
    c.base = (int)image * g.x_image;
#pragma unroll
    for (int d = 0; d < 2; d++) {
        c.row[d] = (int)index[d] * g.stride[d] - g.pad[d];
        c.base += c.row[d] * g.x_row[d];
    }
    c.at = ((int)index[2] * g.stride[2] - g.pad[2]) * g.pixel;
    if (g.plain)
        c.base += group * g.x_group;
    else
        c.at += group * g.x_group;
    return c;
}

__device__ __forceinline__ struct tap tap_of(const struct geometry &g, int k)
{
    struct tap t;
    uint32_t within, index[3];
    uint32_t channel = divider_split(g.run, (uint32_t)k, &within);
#pragma unroll
    for (int d = 2; d >= 0; d--)
        channel = divider_split(g.tap[d], channel, &index[d]);
    t.there = k < g.depth;
    t.base = (int)channel * g.x_channel;
#pragma unroll
    for (int d = 0; d < 2; d++) {
        t.row[d] = (int)index[d] * g.dilation[d];
        t.base += t.row[d] * g.x_row[d];
    }
    t.at = (int)index[2] * g.dilation[2] * g.pixel + (int)within;
    return t;
}

__device__ __forceinline__ bool row_is_there(const struct geometry &g, const struct corner &c,
                                             const struct tap &t)
{
    return c.there && t.there && (unsigned)(c.row[0] + t.row[0]) < (unsigned)g.in[0] &&
           (unsigned)(c.row[1] + t.row[1]) < (unsigned)g.in[1];
}

/* Four neighbours that are in x's memory, wherever they begin. */
__device__ __forceinline__ uint32_t word_inside(const struct geometry &g, const uint8_t *x, int at)
{
    int from = at & ~3, shift = (at & 3) * 8;
    const uint32_t *words = reinterpret_cast<const uint32_t *>(x + from);
    if (shift == 0)
        return words[0];
    if (from + 8 <= g.total)
        return __funnelshift_r(words[0], words[1], (unsigned)shift);
    uint32_t word = 0; /* the last bytes of x */
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)x[at + i] << 8 * i;
    return word;
}

__device__ __forceinline__ uint32_t gather_word(const struct geometry &g, const uint8_t *x,
                                                const struct corner &c, const struct tap &t)
{
    int at = c.at + t.at, base = c.base + t.base;
    if (!row_is_there(g, c, t) || at <= -4 || at >= g.line)
        return g.outside;
    if (at >= 0 && at + 4 <= g.line)
        return word_inside(g, x, base + at);
    uint32_t word = g.outside;
    for (int i = 0; i < 4; i++)
        if (at + i >= 0 && at + i < g.line)
            word = (word & ~(0xffu << 8 * i)) | (uint32_t)x[base + at + i] << 8 * i;
    return word;
}

/* --- the kernel --- */

template <class S, bool CHUNKED>
__device__ __forceinline__ void load_tiles(const struct geometry &g, const uint8_t *x,
                                           const int8_t *w, const struct corner *corners,
                                           int first_col, int k, uint8_t *to)
{
    static_assert(S::threads % CHUNKS == 0, "a thread loads the same chunk of all its rows");
    const int chunk = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    if constexpr (CHUNKED) {
        struct tap t = tap_of(g, k + chunk * CHUNK);
#pragma unroll
        for (int s = 0; s < S::slots; s++) {
            const struct corner &c = corners[s];
            int at = c.at + t.at;
            uint8_t *place = tile_at(to, first + s * (S::threads / CHUNKS), chunk);
            if (row_is_there(g, c, t) && at >= 0 && at < g.line)
                copy_async_16(place, x + c.base + t.base + at);
            else
                *reinterpret_cast<uint4 *>(place) =
                    make_uint4(g.outside, g.outside, g.outside, g.outside);
        }
    } else {
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++) {
            struct tap t = tap_of(g, k + chunk * CHUNK + 4 * i);
#pragma unroll
            for (int s = 0; s < S::slots; s++)
                reinterpret_cast<uint32_t *>(tile_at(to, first + s * (S::threads / CHUNKS),
                                                     chunk))[i] = gather_word(g, x, corners[s], t);
        }
    }
    load_weights<S>(w, g.cols, g.packed, first_col, k, to);
    copy_async_commit();
}

/* Finishes eight sums of a row, from column `col` of the group on. */
__device__ __forceinline__ void finish_eight(const struct geometry &g, const finish &f, bool wide,
                                             int group, int row, int col, const int32_t *from)
{
    int32_t sums[FINISH_WIDE];
#pragma unroll
    for (int i = 0; i < FINISH_WIDE; i++)
        sums[i] = from[i];
    int channel = group * g.cols + col, at = row * g.channels + channel;
    if (wide) {
        finish_store<FINISH_WIDE>(f, channel, at, sums);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < FINISH_WIDE && col + i < g.cols; i++) {
        int32_t one[1] = {from[i]};
        finish_store<1>(f, channel + i, at + i, one);
    }
}

/* `room`: the warp's part of shared memory. */
template <class S>
__device__ __forceinline__ void finish_tiles(const struct geometry &g, const finish &f, bool wide,
                                             int group, int row, int col, int32_t *room,
                                             const int32_t (&sums)[S::tiles_m][S::tiles_n][4])
{
    const int PITCH = S::tiles_n * 8 + ROOM_PAD;
    int lane = (int)threadIdx.x % KERNEL_WARP;
#pragma unroll
    for (int i = 0; i < S::tiles_m; i++) {
#pragma unroll
        for (int j = 0; j < S::tiles_n; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *reinterpret_cast<int2 *>(room + (lane / 4 + 8 * h) * PITCH + j * 8 +
                                          lane % 4 * 2) =
                    make_int2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
        __syncwarp();
        for (int at = lane; at < 16 * S::tiles_n; at += KERNEL_WARP) {
            int r = at / S::tiles_n, c = at % S::tiles_n * 8;
            if (row + i * 16 + r < g.rows && col + c < g.cols)
                finish_eight(g, f, wide, group, row + i * 16 + r, col + c, room + r * PITCH + c);
        }
        __syncwarp();
    }
}

template <class S, bool CHUNKED>
__global__ void __launch_bounds__(S::threads)
    convolve_bytes(const __grid_constant__ struct geometry g, const uint8_t *__restrict__ x,
                   const int8_t *__restrict__ weights, const __grid_constant__ finish f,
                   const bool wide)
{
    KERNEL_SHARED(uint8_t, stages);
    uint32_t tile;
    int group = (int)divider_split(g.col_tiles, blockIdx.y, &tile);
    int first_row = (int)blockIdx.x * S::rows, first_col = (int)tile * S::cols;
    int warp = (int)threadIdx.x / KERNEL_WARP;
    int row = warp / S::warps_n * S::tiles_m * 16, col = warp % S::warps_n * S::tiles_n * 8;
    const int8_t *w = weights + (int64_t)group * g.cols * g.packed;
    struct corner corners[S::slots];
#pragma unroll
    for (int s = 0; s < S::slots; s++)
        corners[s] =
            corner_of(g, group, first_row + (int)threadIdx.x / CHUNKS + s * (S::threads / CHUNKS));
    int32_t sums[S::tiles_m][S::tiles_n][4] = {};
    int steps = (g.packed + DEPTH - 1) / DEPTH;
    for (int i = 0; i < STAGES - 1; i++)
        load_tiles<S, CHUNKED>(g, x, w, corners, first_col, i * DEPTH, stages + i * S::bytes);
    for (int i = 0; i < steps; i++) {
        uint8_t *stage = stages + i % STAGES * S::bytes;
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        load_tiles<S, CHUNKED>(g, x, w, corners, first_col, (i + STAGES - 1) * DEPTH,
                               stages + (i + STAGES - 1) % STAGES * S::bytes);
        if (g.sign)
            multiply_tiles<S, true>(stage, row, col, sums);
        else
            multiply_tiles<S, false>(stage, row, col, sums);
    }
    copy_async_wait<0>();
    __syncthreads();
    int32_t *room = reinterpret_cast<int32_t *>(stages);
    finish_tiles<S>(g, f, wide, group, first_row + row, first_col + col,
                    room + warp * 16 * (S::tiles_n * 8 + ROOM_PAD), sums);
}

/* --- launching --- */

bool fits(int64_t value)
{
    return value >= 1 && value <= EXTENT_MAX;
}

/* Dims that are not there come first and have one element. */
bool read_geometry(const struct kernel_window *w, const struct kernel_view *x,
                   const struct kernel_view *y, int axis, const struct kernel_runs *runs,
                   struct geometry *g)
{
    int at = 0;
    int64_t rows = 1;
    for (int d = 0; d < y->rank; d++) /* y has x's images, and then positions */
        rows *= d == axis ? 1 : y->dim[d];
    int64_t positions = x->dim[0] ? rows / x->dim[0] : 0, out[3] = {1, 1, 1};
    if (x->rank == y->rank && axis == 1)
        for (at = 0; at < w->spatial; at++)
            out[3 - w->spatial + at] = y->dim[2 + at];
    if (rows < 1 || rows > ROWS_MAX || out[0] * out[1] * out[2] != positions)
        return false;
    g->rows = (int)rows;
    for (int d = 0; d < 3; d++) {
        int from = d - (3 - w->spatial);
        bool there = from >= 0;
        int64_t in = there ? x->dim[2 + from] : 1;
        int kernel = there ? w->kernel[from] : 1;
        g->stride[d] = there ? w->stride[from] : 1;
        g->dilation[d] = there ? w->dilation[from] : 1;
        g->pad[d] = there ? w->pad[from] : 0;
        if (!fits(in) || !fits(kernel) || !fits((int64_t)g->pad[d] + 1) ||
            !fits(out[d] * g->stride[d]) || !fits((int64_t)kernel * g->dilation[d]))
            return false;
        g->out[d] = divider_make((uint32_t)out[d]);
        g->tap[d] = divider_make(d == 2 && runs->merged ? 1 : (uint32_t)kernel);
        if (d < 2) {
            g->in[d] = (int)in;
            g->x_row[d] = there ? (int)x->stride[2 + from] : 0;
        }
    }
    return true;
}

/* Offsets of what lies outside of x must stay within an int, too. */
bool offsets_fit(const struct geometry *g)
{
    const int64_t limit = INT64_C(1) << 30;
    int64_t far =
        (int64_t)g->x_image * (g->rows / ((int64_t)g->out[0].by * g->out[1].by * g->out[2].by));
    for (int d = 0; d < 3; d++) {
        int64_t step = d < 2 ? g->x_row[d] : g->pixel;
        int64_t reach = (int64_t)g->out[d].by * g->stride[d] + g->pad[d] +
                        (int64_t)g->tap[d].by * g->dilation[d];
        if (reach > limit || step * reach > limit)
            return false;
        far += step * reach;
    }
    return far < INT64_C(1) << 31;
}

bool read_bytes(const struct kernel_view *x, int32_t groups, const struct kernel_runs *runs,
                struct geometry *g)
{
    int last = x->rank - 1;
    int64_t of_group = x->dim[1] / groups;
    g->packed = (int)runs->packed;
    g->depth = (int)(runs->runs * runs->padded);
    g->run = divider_make((uint32_t)runs->padded);
    g->x_image = (int)x->stride[0];
    g->x_channel = runs->plain ? (int)x->stride[1] : 0;
    g->x_group = (int)(of_group * x->stride[1]);
    g->pixel = (int)x->stride[last];
    g->line = (int)(x->dim[last] * x->stride[last]);
    g->total = (int)kernel_span(x);
    g->sign = x->dtype == DTYPE_I8;
    g->plain = runs->plain;
    g->outside = ((uint32_t)(int32_t)x->zero & 0xff) * 0x01010101;
    return offsets_fit(g);
}

bool is_chunked(const struct kernel_view *x, int32_t groups, const struct kernel_runs *runs)
{
    bool fit = !runs->plain && (uintptr_t)x->data % CHUNK == 0 && x->dim[1] / groups % CHUNK == 0 &&
               x->stride[0] % CHUNK == 0;
    for (int d = 2; d < x->rank; d++)
        fit = fit && x->stride[d] % CHUNK == 0;
    return fit;
}

template <class S>
cudaError_t launch(const struct kernel_call *call, struct geometry g, int32_t groups, bool chunked,
                   const struct kernel_view *x, const void *w, const finish &f, bool wide)
{
    int64_t rows = kernel_ceil_div(g.rows, S::rows), cols = kernel_ceil_div(g.cols, S::cols);
    static_assert(S::threads / KERNEL_WARP * 16 * (S::tiles_n * 8 + ROOM_PAD) * 4 <= S::shared,
                  "results go where the tiles were");
    if (cols * groups > 65535)
        return cudaErrorNotSupported;
    g.col_tiles = divider_make((uint32_t)cols);
    dim3 grid((unsigned)rows, (unsigned)(cols * groups));
    const uint8_t *from = static_cast<const uint8_t *>(x->data);
    const int8_t *weights = static_cast<const int8_t *>(w);
    return chunked ? KERNEL_LAUNCH((convolve_bytes<S, true>), grid, S::threads, S::shared, call, g,
                                   from, weights, f, wide)
                   : KERNEL_LAUNCH((convolve_bytes<S, false>), grid, S::threads, S::shared, call, g,
                                   from, weights, f, wide);
}

typedef tile_shape<4, 2, 2, 4> tall_tile; /* 128 x 64 */

int choose(const struct kernel_call *call, const struct geometry *g, int groups)
{
    int64_t processors = kernel_multiprocessors(call);
    if (g->cols > 64 &&
        kernel_ceil_div(g->rows, 128) * kernel_ceil_div(g->cols, 128) * groups >= processors)
        return 1;
    return g->cols > 32 && kernel_ceil_div(g->rows, 128) * kernel_ceil_div(g->cols, 64) * groups >=
                               processors
               ? 2
               : 3;
}

} // namespace

bool kernel_conv_bytes_runs(const struct kernel_window *window, int32_t groups,
                            const struct kernel_view *x, struct kernel_runs *out)
{
    int last = x->rank - 1;
    struct kernel_runs r = {};
    if (window->spatial < 1 || window->spatial > 3 || x->rank != window->spatial + 2 ||
        groups < 1 || x->dim[1] % groups || x->dim[1] < 1)
        return false;
    bool channels_last = (x->stride[1] == 1 || x->dim[1] == 1) && x->stride[last] == x->dim[1];
    r.plain = !channels_last;
    if (r.plain && x->stride[last] != 1)
        return false;
    int64_t of_group = x->dim[1] / groups, taps = 1, columns = window->kernel[last - 2];
    for (int d = 0; d < window->spatial; d++) {
        taps *= window->kernel[d];
        if (window->kernel[d] < 1 || taps * of_group > KERNEL_PRODUCT_DEPTH_MAX)
            return false;
    }
    r.merged = window->dilation[last - 2] == 1 && (r.plain || groups == 1);
    r.length = (r.merged ? columns : 1) * (r.plain ? 1 : of_group);
    r.padded = (r.length + 3) / 4 * 4;
    r.runs = taps * of_group / r.length;
    r.packed = kernel_product_depth(r.runs * r.padded);
    *out = r;
    return r.packed <= KERNEL_PRODUCT_DEPTH_MAX;
}

cudaError_t kernel_conv_bytes(const struct kernel_call *call, const struct kernel_window *window,
                              int32_t groups, const struct kernel_view *x, const void *weights,
                              const float *scale, const float *bias, const struct kernel_view *y,
                              int32_t axis, const struct kernel_epilogue *epilogue)
{
    const int64_t limit = INT64_C(1) << 31;
    struct geometry g = {};
    struct kernel_runs runs;
    finish f;
    bool wide;
    if ((x->dtype != DTYPE_I8 && x->dtype != DTYPE_U8) || kernel_span(x) >= limit ||
        kernel_span(y) >= limit || axis < 0 || axis >= y->rank ||
        !kernel_conv_bytes_runs(window, groups, x, &runs) || y->dim[axis] % groups ||
        !finish_make(y, axis, scale, bias, epilogue, &f, &wide))
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    if (!read_geometry(window, x, y, axis, &runs, &g) || !read_bytes(x, groups, &runs, &g))
        return cudaErrorNotSupported;
    g.channels = (int)y->dim[axis];
    g.cols = g.channels / groups;
    wide = wide && g.cols % FINISH_WIDE == 0;
    bool chunked = is_chunked(x, groups, &runs);
    switch (call->variant ? call->variant : choose(call, &g, groups)) {
    case 1:
        return launch<large_tile>(call, g, groups, chunked, x, weights, f, wide);
    case 2:
        return launch<tall_tile>(call, g, groups, chunked, x, weights, f, wide);
    case 3:
        return launch<small_tile>(call, g, groups, chunked, x, weights, f, wide);
    default:
        return cudaErrorNotSupported;
    }
}
