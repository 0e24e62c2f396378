/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolution of bytes over channels-last images.
 *
 * A thread takes 4 V neighbouring channels of TILE output columns in one row. Bytes of four columns
 * are transposed in registers, 8 permutations for 16 bytes, so that a register has four columns of
 * one channel; then one instruction (dp4a) adds up to four taps of a row to an output. A window of
 * K = 3 with stride 1 costs an output and row about 3 instructions, where floats need 3
 * multiplications and as many conversions. What lies outside of the image is x's zero point, whose
 * share the caller takes off the bias.
 *
 * 3x3 and 5x5 with stride 1 and 2, and 7x7 with stride 1, are compiled with their loops unrolled;
 * other windows, and channels that are no multiple of 4, go one output at a time.
 *
 * UINT8 is read as INT8 by 128 less: so a kernel has one kind of product.
 *
 * Refused: as depthwise.cuh says.
 */
#include "kernels/cuda/depthwise.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

struct bytes_of_x {
    const uint8_t *x;
    uint32_t flip;    /* 0x80808080 turns UINT8 into INT8 */
    uint32_t outside; /* four zero points, turned likewise */
};

/* Transposes four columns of four channels. */
__device__ __forceinline__ void transpose_bytes(const uint32_t (&columns)[4], uint32_t (&to)[4])
{
    uint32_t a = __byte_perm(columns[0], columns[1], 0x5140);
    uint32_t b = __byte_perm(columns[2], columns[3], 0x5140);
    uint32_t c = __byte_perm(columns[0], columns[1], 0x7362);
    uint32_t d = __byte_perm(columns[2], columns[3], 0x7362);
    to[0] = __byte_perm(a, b, 0x5410);
    to[1] = __byte_perm(a, b, 0x7632);
    to[2] = __byte_perm(c, d, 0x5410);
    to[3] = __byte_perm(c, d, 0x7632);
}

/* Four columns of a channel from column AT on; those that are not there are of no matter. */
template <int QUADS, int AT>
__device__ __forceinline__ uint32_t columns_from(const uint32_t (&quads)[QUADS])
{
    constexpr int quad = AT / 4, shift = AT % 4 * 8;
    if constexpr (shift == 0)
        return quads[quad];
    else if constexpr (quad + 1 < QUADS)
        return __funnelshift_r(quads[quad], quads[quad + 1], shift);
    else
        return quads[quad] >> shift;
}

/* sums += a row's products for output columns from T on. */
template <int V, int K, int S, int TILE, int QUADS, int T = 0>
__device__ __forceinline__ void add_row(const uint32_t (&quads)[QUADS],
                                        const uint32_t (&weights)[(K + 3) / 4], int channel,
                                        int32_t (&sums)[TILE][4 * V])
{
    if constexpr (T < TILE) {
        sums[T][channel] =
            dot_bytes(columns_from<QUADS, T * S>(quads), weights[0], sums[T][channel]);
        if constexpr (K > 4)
            sums[T][channel] =
                dot_bytes(columns_from<QUADS, T * S + 4>(quads), weights[1], sums[T][channel]);
        add_row<V, K, S, TILE, QUADS, T + 1>(quads, weights, channel, sums);
    }
}

template <int V, int K, int S, int TILE>
__global__ void __launch_bounds__(THREADS)
    depthwise_words(const __grid_constant__ struct geometry g, const struct bytes_of_x in,
                    const uint32_t *__restrict__ weights, const __grid_constant__ finish f)
{
    constexpr int INPUTS = (TILE - 1) * S + K, QUADS = (INPUTS + 3) / 4, WORDS = (K + 3) / 4;
    struct place p;
    if (!find_place<4 * V, TILE>(g, &p))
        return;
    int32_t sums[TILE][4 * V] = {};
    int first_row = p.row * S - g.pad[0], first = p.column * S - g.pad[1];
    const uint8_t *from = in.x + p.image * g.x[0] + p.channel;
    constexpr int ROWS = K <= 5 ? K : 1;
#pragma unroll ROWS
    for (int r = 0; r < K; r++) {
        int row = first_row + r;
        bool there = (unsigned)row < (unsigned)g.height;
        vector<uint32_t, V> raw[4 * QUADS];
#pragma unroll
        for (int i = 0; i < 4 * QUADS; i++) {
            bool inside = i < INPUTS && there && (unsigned)(first + i) < (unsigned)g.width;
            if (inside)
                raw[i] = vector_load<uint32_t, V>(
                    reinterpret_cast<const uint32_t *>(from + row * g.x[1] + (first + i) * g.x[2]));
#pragma unroll
            for (int v = 0; v < V; v++)
                raw[i].v[v] = inside ? raw[i].v[v] ^ in.flip : in.outside;
        }
#pragma unroll
        for (int v = 0; v < V; v++) {
            vector<uint32_t, 4> w[WORDS];
            uint32_t channels[4][QUADS];
#pragma unroll
            for (int j = 0; j < WORDS; j++)
                w[j] = vector_load<uint32_t, 4>(weights + (r * WORDS + j) * g.channels + p.channel +
                                                4 * v);
#pragma unroll
            for (int q = 0; q < QUADS; q++) {
                uint32_t columns[4] = {raw[4 * q].v[v], raw[4 * q + 1].v[v], raw[4 * q + 2].v[v],
                                       raw[4 * q + 3].v[v]};
                uint32_t turned[4];
                transpose_bytes(columns, turned);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    channels[c][q] = turned[c];
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint32_t taps[WORDS];
#pragma unroll
                for (int j = 0; j < WORDS; j++)
                    taps[j] = w[j].v[c];
                add_row<V, K, S, TILE, QUADS>(channels[c], taps, 4 * v + c, sums);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        if (p.column + t >= g.out_width)
            break;
        int at = p.image * g.y[0] + p.row * g.y[1] + (p.column + t) * g.y[2] + p.channel;
        finish_store<4 * V>(f, p.channel, at, sums[t]);
    }
}

__global__ void __launch_bounds__(THREADS)
    depthwise_bytes_any(const __grid_constant__ struct geometry g, const struct bytes_of_x in,
                        const int8_t *__restrict__ weights, const __grid_constant__ finish f)
{
    struct place p;
    if (!find_place<1, 1>(g, &p))
        return;
    int32_t sum[1] = {0};
    int words = (g.kernel[1] + 3) / 4;
    int first_row = p.row * g.stride[0] - g.pad[0], first = p.column * g.stride[1] - g.pad[1];
    const uint8_t *from = in.x + p.image * g.x[0] + p.channel;
    for (int r = 0; r < g.kernel[0]; r++) {
        int row = first_row + r * g.dilation[0];
        for (int k = 0; k < g.kernel[1]; k++) {
            int column = first + k * g.dilation[1];
            bool inside =
                (unsigned)row < (unsigned)g.height && (unsigned)column < (unsigned)g.width;
            uint32_t byte = in.outside;
            if (inside)
                byte = from[row * g.x[1] + column * g.x[2]] ^ in.flip;
            sum[0] += (int8_t)(byte & 0xff) *
                      weights[((int64_t)(r * words + k / 4) * g.channels + p.channel) * 4 + k % 4];
        }
    }
    int at = p.image * g.y[0] + p.row * g.y[1] + p.column * g.y[2] + p.channel;
    finish_store<1>(f, p.channel, at, sum);
}

/* --- launching --- */

struct job {
    const struct kernel_call *call;
    struct geometry g;
    struct bytes_of_x in;
    const void *weights;
    finish f;
};

template <int V, int K, int S, int TILE> cudaError_t launch_words(struct job *j)
{
    struct shape_of_launch s;
    if (!plan_launch(&j->g, 4 * V, TILE, LINE_BYTES / (4 * V), &s))
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH((depthwise_words<V, K, S, TILE>), s.grid, s.block, 0, j->call, j->g, j->in,
                         static_cast<const uint32_t *>(j->weights), j->f);
}

cudaError_t launch_any(struct job *j)
{
    struct shape_of_launch s;
    if (!plan_launch(&j->g, 1, 1, KERNEL_WARP, &s))
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH(depthwise_bytes_any, s.grid, s.block, 0, j->call, j->g, j->in,
                         static_cast<const int8_t *>(j->weights), j->f);
}

/* Whether a thread may take so many channels. */
bool fits(const struct job *j, int channels)
{
    const struct geometry *g = &j->g;
    bool fit = g->channels % channels == 0 && is_aligned(j->in.x) && is_aligned(j->weights);
    for (int i = 0; i < 3; i++)
        fit = fit && g->x[i] % channels == 0;
    return fit;
}

template <int K, int S> cudaError_t launch_window(struct job *j, int variant)
{
    switch (variant) {
    case KERNEL_DEPTHWISE_BYTES_16:
        return fits(j, 16) ? launch_words<4, K, S, 2>(j) : cudaErrorNotSupported;
    case KERNEL_DEPTHWISE_BYTES_8:
        return fits(j, 8) ? launch_words<2, K, S, 4>(j) : cudaErrorNotSupported;
    case KERNEL_DEPTHWISE_BYTES_4:
        return fits(j, 4) ? launch_words<1, K, S, 2>(j) : cudaErrorNotSupported;
    default:
        return cudaErrorNotSupported;
    }
}

/* Many channels to a thread only if there is work enough for all threads. */
int choose(const struct job *j)
{
    const struct geometry *g = &j->g;
    int64_t outputs = (int64_t)g->images * g->out_height * g->out_width * g->channels;
    int64_t room = (int64_t)kernel_multiprocessors(j->call) * THREADS * 32 * 4;
    return fits(j, 16) && outputs >= room  ? KERNEL_DEPTHWISE_BYTES_16
           : fits(j, 8) && outputs >= room ? KERNEL_DEPTHWISE_BYTES_8
                                           : KERNEL_DEPTHWISE_BYTES_4;
}

/* Whether there are kernels with unrolled loops for this window. */
bool is_usual(const struct geometry *g)
{
    int k = g->kernel[0], s = g->stride[0];
    return g->kernel[1] == k && g->stride[1] == s && g->dilation[0] == 1 && g->dilation[1] == 1 &&
           (((k == 3 || k == 5) && (s == 1 || s == 2)) || (k == 7 && s == 1));
}

cudaError_t launch_job(struct job *j, bool aligned)
{
    int k = j->g.kernel[0], s = j->g.stride[0], variant = j->call->variant;
    bool usual = aligned && is_usual(&j->g) && fits(j, 4);
    if (variant == 0)
        variant = usual ? choose(j) : KERNEL_DEPTHWISE_BYTES_ANY;
    if (variant == KERNEL_DEPTHWISE_BYTES_ANY)
        return launch_any(j);
    if (!usual)
        return cudaErrorNotSupported;
    if (k == 3)
        return s == 1 ? launch_window<3, 1>(j, variant) : launch_window<3, 2>(j, variant);
    if (k == 5)
        return s == 1 ? launch_window<5, 1>(j, variant) : launch_window<5, 2>(j, variant);
    return launch_window<7, 1>(j, variant);
}

} // namespace

cudaError_t kernel_depthwise_bytes(const struct kernel_call *call,
                                   const struct kernel_window *window, const struct kernel_view *x,
                                   const void *weights, const float *scale, const float *bias,
                                   const struct kernel_view *y,
                                   const struct kernel_epilogue *epilogue)
{
    struct job j = {call, {}, {}, weights, {}};
    bool aligned, sign = x->dtype == DTYPE_I8;
    if ((!sign && x->dtype != DTYPE_U8) || !read_geometry(window, x, y, &j.g) ||
        !finish_make(y, 1, scale, bias, epilogue, &j.f, &aligned))
        return cudaErrorNotSupported;
    uint32_t zero = (uint32_t)((int32_t)x->zero - (sign ? 0 : 128)) & 0xff;
    j.in.x = static_cast<const uint8_t *>(x->data);
    j.in.flip = sign ? 0 : 0x80808080;
    j.in.outside = zero * 0x01010101;
    return kernel_elements(y) == 0 ? cudaSuccess : launch_job(&j, aligned);
}
