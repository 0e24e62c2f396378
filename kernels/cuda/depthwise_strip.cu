/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions of 16 bits on Hopper, by tensor copies.
 *
 *     x, one image            a block: 32 channels of a band of y's rows
 *     +-----------------+     +------------------------------+
 *     |                 |     | step 0   rows of x           |  a ring of slots: one copy and two
 *     |  #############  | >>  | step 1                       |  mbarriers a step; what lies
 *     |  #############  |     |  ..                          |  outside of x is read as 0
 *     |                 |     | step n                       |
 *     +-----------------+     +------------------------------+
 *                               | a thread: 2 channels of TILE columns, down all steps
 *                               v
 *                             sums in registers: each row of x is read once from shared memory,
 *                             and added to all rows of y that it belongs to
 *
 * What such a convolution needs is bytes under way, and warps: a kernel whose threads load for
 * themselves (depthwise.cu) has as many bytes as registers allow, this one as shared memory does.
 * `cut_best` chooses bands and images of a block by what blocks cost.
 *
 * A step is as many rows of x as the window moves down by. With A = (K - 1) / S sums of rows under
 * way, row S m of x ends row m - A of y and begins row m; acc[i] belongs to row m - A + 1 + i.
 *
 * Taken: 3x3 and 5x5, steps of 1 and 2 in both directions, channels innermost in multiples of 8,
 * and behind it nothing, a range, swish or hard swish.
 */
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/hopper_map.cuh"

namespace
{

constexpr int TILE = 7;                 /* divides 112, 56, 28, 14 and 7 */
constexpr int CHANNELS = 32, LINE = 64; /* of a block; its bytes */
constexpr int LANES = CHANNELS / 2;     /* a thread has two channels */
constexpr int TILES = 8;                /* of a block, at most */
constexpr int THREADS = TILES * LANES;
constexpr int SLOTS = 8; /* at most; and at least SLOTS_MIN, or a slot a step */
constexpr int SLOTS_MIN = 4;
constexpr int BEHIND = 2;      /* a slot is filled again so many steps after it was read */
constexpr int ROOM = 32 << 10; /* bytes that a block's slots should not exceed */
constexpr int ALIGN = 128;     /* of a copy's place without a swizzle */
constexpr int BARRIERS = 2 * SLOTS * (int)sizeof(uint64_t);
static_assert(BARRIERS % ALIGN == 0 && SLOTS_MIN > BEHIND, "slots");

/* Warps of a multiprocessor, of which each has that share of its registers. */
__host__ __device__ constexpr int warps_by_registers(int k, int s)
{
    return k == 3 ? 20 : s == 1 ? 12 : 16;
}

struct job {
    const void *weights;
    const float *bias;
    void *y;
    int channels, images, tall, wide; /* of y */
    int y_image, y_row, y_column;     /* strides */
    int up, left;                     /* the window's padding */
    int tiles, pictures, band;        /* of a block: tiles of a row, images, rows of y */
    int width;                        /* pixels of x that a row of a block's tiles reads */
    int slots, slab;                  /* of a block; bytes of a slot */
    struct divider chunks, strips, bands;
    int func; /* IDENTITY, SWISH by alpha, HARD_SWISH; then y's range */
    float alpha, low, high;
};

/* --- the kernel --- */

struct place {
    int channel, column, row, image; /* where the block begins; channel: this thread's */
    int tile, picture;               /* this thread's within the block */
    bool idle;                       /* it has nothing to store */
};

__device__ __forceinline__ struct place find_place(const struct job &j)
{
    struct place p;
    uint32_t chunk, strip, band;
    uint32_t rest = divider_split(j.chunks, blockIdx.x, &chunk);
    rest = divider_split(j.strips, rest, &strip);
    rest = divider_split(j.bands, rest, &band);
    int mine = (int)threadIdx.x / LANES;
    p.idle = mine >= j.tiles * j.pictures;
    mine = p.idle ? 0 : mine;
    p.picture = mine / j.tiles;
    p.tile = mine - p.picture * j.tiles;
    p.channel = (int)chunk * CHANNELS + (int)threadIdx.x % LANES * 2;
    p.column = (int)strip * j.tiles * TILE;
    p.row = (int)band * j.band;
    p.image = (int)rest * j.pictures;
    p.idle = p.idle || p.channel >= j.channels || p.image + p.picture >= j.images;
    return p;
}

template <class T, int K>
__device__ __forceinline__ void load_weights(const struct job &j, const struct place &p,
                                             float (&w)[K * K][2], float (&bias)[2])
{
    bool there = p.channel < j.channels;
    const T *from = static_cast<const T *>(j.weights) + (there ? p.channel : 0);
#pragma unroll
    for (int i = 0; i < K * K; i++)
        vector_read<2>(from + (size_t)i * j.channels, w[i]);
    bias[0] = j.bias && there ? j.bias[p.channel] : 0.0f;
    bias[1] = j.bias && there ? j.bias[p.channel + 1] : 0.0f;
}

/* Adds the products of one row of x to sums of a row of y: `w` is that row of the filter. */
template <int K, int S, int N>
__device__ __forceinline__ void add_row(const float (&x)[N][2], const float (*w)[2],
                                        float (&sum)[TILE][2])
{
#pragma unroll
    for (int t = 0; t < TILE; t++)
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                sum[t][c] += x[t * S + k][c] * w[k][c];
}

template <class T, int N>
__device__ __forceinline__ void load_row(const unsigned char *from, float (&x)[N][2])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 both = pair_floats<T>(*reinterpret_cast<const uint32_t *>(from + i * LINE));
        x[i][0] = both.x;
        x[i][1] = both.y;
    }
}

/* Stores a row of the tile at y, whose `columns` first columns are there. */
template <class T>
__device__ __forceinline__ void store_row(const struct job &j, const uint32_t (&range)[2],
                                          float (&sum)[TILE][2], T *y, int columns)
{
    if (j.func == IR_UNARY_SWISH) {
#pragma unroll
        for (int i = 0; i < TILE * 2; i++)
            sum[i / 2][i % 2] = activate::swish(sum[i / 2][i % 2], j.alpha);
    } else if (j.func == IR_UNARY_HARD_SWISH) {
#pragma unroll
        for (int i = 0; i < TILE * 2; i++)
            sum[i / 2][i % 2] *= fma_saturated(sum[i / 2][i % 2], 1.0f / 6, 0.5f);
    }
#pragma unroll
    for (int t = 0; t < TILE; t++)
        if (t < columns)
            *reinterpret_cast<uint32_t *>(y + t * j.y_column) =
                pair_within<T>(pair_of<T>(sum[t][0], sum[t][1]), range[0], range[1]);
}

/* Who asks for steps of x: one thread, which knows when the block has read a slot. */
struct loader {
    const CUtensorMap &map;
    const struct job &j;
    const struct place &p;
    unsigned char *slabs;
    uint64_t *full, *empty;
    struct hopper_turn turn;
    __device__ __forceinline__ void load(int step, int s)
    {
        mbarrier_expect(full + turn.at, (uint32_t)(j.pictures * s * j.width * LINE));
        tensor_load_4d(slabs + turn.at * j.slab, &map, full + turn.at, p.channel,
                       p.column * s - j.left, (p.row + step) * s - j.up, p.image);
    }
    /* In the order of steps, once all slots have been filled. */
    __device__ __forceinline__ void load_again(int step, int s)
    {
        mbarrier_wait(empty + turn.at, turn.parity);
        load(step, s);
        turn.next(j.slots);
    }
    __device__ __forceinline__ void load_first(int steps, int s)
    {
        for (turn.at = 0; turn.at < min(j.slots, steps); turn.at++)
            load(turn.at, s);
        turn.at = 0;
    }
};

template <class T, int K, int S>
__global__ void __launch_bounds__(THREADS, warps_by_registers(K, S) * KERNEL_WARP / THREADS)
    kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ struct job j)
{
    constexpr int UNDER_WAY = (K - 1) / S, INPUTS = (TILE - 1) * S + K;
    KERNEL_SHARED(unsigned char, raw);
    unsigned char *shared = shared_aligned(raw), *slabs = shared + BARRIERS;
    uint64_t *full = reinterpret_cast<uint64_t *>(shared), *empty = full + SLOTS;
    const struct place p = find_place(j);
    const int steps = min(j.band, j.tall - p.row) + UNDER_WAY;
    if (threadIdx.x == 0) {
        tensor_prefetch(&map);
        for (int i = 0; i < j.slots; i++) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, blockDim.x / KERNEL_WARP);
        }
        mbarrier_fence();
    }
    float w[K * K][2], bias[2];
    load_weights<T, K>(j, p, w, bias);
    grid_go();
    grid_wait();
    struct loader loader = {map, j, p, slabs, full, empty, {0, 0}};
    if (threadIdx.x == 0) {
        grid_fence();
        loader.load_first(steps, S);
    }
    __syncthreads();

    const int mine =
        (p.picture * S * j.width + p.tile * TILE * S) * LINE + (int)threadIdx.x % LANES * 4;
    const int column = p.column + p.tile * TILE;
    const int columns = p.idle ? 0 : min(TILE, j.wide - column);
    const uint32_t range[2] = {pair_of<T>(j.low, j.low), pair_of<T>(j.high, j.high)};
    T *y = static_cast<T *>(j.y) + (int64_t)(p.image + p.picture) * j.y_image +
           (int64_t)p.row * j.y_row + (int64_t)column * j.y_column + p.channel;
    float acc[UNDER_WAY][TILE][2];
#pragma unroll
    for (int i = 0; i < UNDER_WAY * TILE * 2; i++)
        acc[i / (TILE * 2)][i / 2 % TILE][i % 2] = bias[i % 2];
    struct hopper_turn turn = {0, 0};
#pragma unroll 1
    for (int m = 0; m < steps; m++) {
        if (threadIdx.x == 0 && m >= BEHIND && m - BEHIND + j.slots < steps)
            loader.load_again(m - BEHIND + j.slots, S);
        const unsigned char *from = slabs + turn.at * j.slab + mine;
        float x[INPUTS][2], done[TILE][2];
        mbarrier_wait(full + turn.at, turn.parity);
        load_row<T, INPUTS>(from, x);
#pragma unroll
        for (int t = 0; t < TILE * 2; t++) {
            done[t / 2][t % 2] = acc[0][t / 2][t % 2];
#pragma unroll
            for (int i = 0; i < UNDER_WAY; i++)
                acc[i][t / 2][t % 2] = i + 1 < UNDER_WAY ? acc[i + 1][t / 2][t % 2] : bias[t % 2];
        }
        add_row<K, S>(x, w + (K - 1) * K, done);
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++)
            add_row<K, S>(x, w + S * (UNDER_WAY - 1 - i) * K, acc[i]);
        if (m >= UNDER_WAY) {
            store_row<T>(j, range, done, y, columns);
            y += j.y_row;
        }
#pragma unroll
        for (int r = 1; r < S; r++) {
            load_row<T, INPUTS>(from + r * j.width * LINE, x);
#pragma unroll
            for (int i = 0; i < UNDER_WAY; i++)
                add_row<K, S>(x, w + (S * (UNDER_WAY - 1 - i) + r) * K, acc[i]);
        }
        __syncwarp();
        if (threadIdx.x % KERNEL_WARP == 0)
            mbarrier_arrive(empty + turn.at);
        turn.next(j.slots);
    }
}

/* --- launching --- */

/* What blocks are made of, and how many there are. */
struct cut {
    int pictures, tiles, strips, bands, band, width, slots, slab;
    int64_t blocks;
};

int steps_of(const struct cut &c, int k, int s)
{
    return c.band + (k - 1) / s;
}

struct cut cut_of(const struct kernel_view *y, int k, int s, int pictures, int bands)
{
    struct cut c = {};
    int all = (int)kernel_ceil_div(y->dim[3], TILE);
    c.strips = (int)kernel_ceil_div(all, TILES);
    c.tiles = (int)kernel_ceil_div(all, c.strips);
    c.pictures = pictures;
    c.band = (int)kernel_ceil_div(y->dim[2], bands);
    c.bands = (int)kernel_ceil_div(y->dim[2], c.band);
    c.width = (c.tiles * TILE - 1) * s + k;
    c.slab = (int)kernel_ceil_div((int64_t)pictures * s * c.width * LINE, ALIGN) * ALIGN;
    c.slots = min(max(min(ROOM / c.slab, SLOTS), SLOTS_MIN), steps_of(c, k, s));
    /* fewer than the elements of y, which are counted in an int */
    c.blocks = kernel_ceil_div(y->dim[0], pictures) * c.strips * c.bands *
               kernel_ceil_div(y->dim[1], CHANNELS);
    return c;
}

int64_t shared_of(const struct cut &c)
{
    return HOPPER_ALIGN + BARRIERS + (int64_t)c.slots * c.slab;
}

int warps_of(const struct cut &c)
{
    return (int)kernel_ceil_div((int64_t)c.tiles * c.pictures * LANES, KERNEL_WARP);
}

/* Clocks that all blocks take on so many multiprocessors, about. Blocks come in waves; in one, `n`
 * blocks share a multiprocessor. A step is so many instructions of a warp, which has one ready
 * every fifth clock, and a multiprocessor takes four a clock. */
double cost_of(const struct cut &c, int k, int s, int multiprocessors)
{
    const double bytes_a_clock = 20, of_a_warp = 0.22, of_all = 4;
    int warps = warps_of(c), steps = steps_of(c, k, s);
    int64_t together =
        min(HOPPER_SHARED_MAX / shared_of(c), (int64_t)(warps_by_registers(k, s) / warps));
    int64_t wave = together * multiprocessors;
    double instructions = (double)warps * steps * (k * k * TILE * 2 + 100 * s);
    double bytes = (double)steps * c.slab / bytes_a_clock;
    auto clocks = [&](int64_t n) {
        double rate = fmin((double)n * warps * of_a_warp, of_all);
        return fmax((double)n * instructions / rate, (double)n * bytes);
    };
    return (double)(c.blocks / wave) * clocks(together) +
           (c.blocks % wave ? clocks(kernel_ceil_div(c.blocks % wave, multiprocessors)) : 0);
}

struct cut cut_best(const struct kernel_view *y, int k, int s, int multiprocessors)
{
    struct cut best = cut_of(y, k, s, 1, 1);
    double least = cost_of(best, k, s, multiprocessors);
    for (int pictures = 1; pictures * best.tiles <= TILES; pictures *= 2)
        for (int bands = 1; bands <= y->dim[2]; bands += 1 + bands / 8) {
            struct cut c = cut_of(y, k, s, pictures, bands);
            double cost = cost_of(c, k, s, multiprocessors);
            if (cost >= least)
                continue;
            least = cost;
            best = c;
        }
    return best;
}

struct hopper_tensor tensor_of(const struct kernel_view *x, const struct cut &c, int s)
{
    static const int order[4] = {1, 3, 2, 0};
    struct hopper_tensor t = {};
    const int32_t box[4] = {CHANNELS, c.width, s, c.pictures};
    t.data = x->data;
    t.dtype = x->dtype;
    t.rank = 4;
    t.plain = true;
    for (int i = 0; i < 4; i++) {
        t.dim[i] = x->dim[order[i]];
        t.stride[i] = x->stride[order[i]];
        t.box[i] = box[i];
    }
    return t;
}

/* A range, or swish or hard swish, and no range behind it. */
bool read_steps(const struct kernel_epilogue *epilogue, struct job *j)
{
    j->func = IR_UNARY_IDENTITY;
    if (epilogue_range(epilogue, &j->low, &j->high))
        return true;
    const struct kernel_step *step = &epilogue->step[0];
    j->func = step->func;
    j->alpha = step->alpha;
    return epilogue->n == 1 && !step->binary &&
           (step->func == IR_UNARY_SWISH || step->func == IR_UNARY_HARD_SWISH);
}

bool takes(const struct kernel_window *w, const struct kernel_view *x, const struct kernel_view *y)
{
    const int64_t limit = INT64_C(1) << 31, side = 1 << 20;
    bool fits = w->spatial == 2 && x->rank == 4 && y->rank == 4 && x->dtype == y->dtype &&
                x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1] && x->dim[1] % 8 == 0 &&
                x->stride[1] == 1 && y->stride[1] == 1 && kernel_span(x) < limit &&
                kernel_span(y) < limit && (uintptr_t)y->data % 4 == 0;
    for (int i = 0; fits && i < 2; i++)
        fits = w->kernel[i] == w->kernel[0] && w->stride[i] == w->stride[0] &&
               w->dilation[i] == 1 && w->pad[i] >= 0 && w->pad[i] <= side &&
               x->dim[2 + i] <= side && y->dim[2 + i] <= side && y->dim[2 + i] >= 1;
    for (int i = 0; fits && i < 4; i++)
        fits = i == 1 || y->dim[i] == 1 || y->stride[i] % 2 == 0;
    return fits && (w->kernel[0] == 3 || w->kernel[0] == 5) && w->stride[0] >= 1 &&
           w->stride[0] <= 2;
}

template <class T, int K, int S>
cudaError_t launch(const struct kernel_call *call, const CUtensorMap &map, const struct job &j,
                   const struct cut &c)
{
    return hopper_launch(kernel<T, K, S>, (unsigned)c.blocks, 1,
                         (unsigned)warps_of(c) * KERNEL_WARP, (size_t)shared_of(c), call, map, j);
}

template <class T>
cudaError_t launch_window(const struct kernel_call *call, int k, int s, const CUtensorMap &map,
                          const struct job &j, const struct cut &c)
{
    if (k == 3)
        return s == 1 ? launch<T, 3, 1>(call, map, j, c) : launch<T, 3, 2>(call, map, j, c);
    return s == 1 ? launch<T, 5, 1>(call, map, j, c) : launch<T, 5, 2>(call, map, j, c);
}

} // namespace

cudaError_t kernel_depthwise_strip(const struct kernel_call *call,
                                   const struct kernel_window *window, const struct kernel_view *x,
                                   const void *weights, const float *bias,
                                   const struct kernel_view *y,
                                   const struct kernel_epilogue *epilogue)
{
    struct job j = {};
    bool half = x->dtype == DTYPE_F16;
    int k = window->kernel[0], s = window->stride[0];
    if (call->capability != 90 || (!half && x->dtype != DTYPE_BF16) || !takes(window, x, y) ||
        !read_steps(epilogue, &j))
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    const struct cut c = cut_best(y, k, s, kernel_multiprocessors(call));
    const struct hopper_tensor tensor = tensor_of(x, c, s);
    if (!hopper_tensor_fits(&tensor))
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    CUtensorMap map;
    cudaError_t code = hopper_map(&tensor, &map);
    if (code != cudaSuccess)
        return code;
    j.weights = weights, j.bias = bias, j.y = y->data;
    j.images = (int)y->dim[0], j.channels = (int)y->dim[1];
    j.tall = (int)y->dim[2], j.wide = (int)y->dim[3];
    j.y_image = (int)y->stride[0], j.y_row = (int)y->stride[2], j.y_column = (int)y->stride[3];
    j.up = window->pad[0], j.left = window->pad[1];
    j.tiles = c.tiles, j.pictures = c.pictures, j.band = c.band;
    j.width = c.width, j.slots = c.slots, j.slab = c.slab;
    j.chunks = divider_make((uint32_t)kernel_ceil_div(y->dim[1], CHANNELS));
    j.strips = divider_make((uint32_t)c.strips);
    j.bands = divider_make((uint32_t)c.bands);
    return half ? launch_window<half_t>(call, k, s, map, j, c)
                : launch_window<bf16_t>(call, k, s, map, j, c);
}
