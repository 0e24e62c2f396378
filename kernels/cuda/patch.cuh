/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3x3 at steps of 1 over few channels, on Hopper: of 16-bit floats, and of bytes
 * with results of 8 bits. docs/kernels.md has a drawing.
 *
 * matmul.cuh and tile.cuh load nine windows of each pixel, one for each tap, and multiply pixels by
 * 64 filters: shared memory cannot feed that. Here a tile is 8x14 pixels, whose patch of 10x16 one
 * tensor copy brings; and filters are the rows of a product, pixels its columns. The patch is read
 * nine times where it lies, by descriptors that begin whole lines further on: eight pixels of a row
 * are eight lines of the operand, and the next eight are ten lines on.
 *
 * A block keeps the weights of its 64 filters. Each of its two warpgroups that multiply has tiles,
 * a ring of patches and slots for results of its own: while one finishes results, the other
 * multiplies. A residual is loaded into the slot that takes the result, as in tile.cuh.
 *
 * Packed weights give a thread two neighbouring filters (kernel_patch_row).
 */
#ifndef INFERD_KERNELS_CUDA_PATCH_CUH
#define INFERD_KERNELS_CUDA_PATCH_CUH

#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/tile.cuh"

namespace patch
{

constexpr int WIDE = 8, HIGH = 14, PIXELS = WIDE * HIGH; /* of a tile */
constexpr int SIDE = 3, TAPS = SIDE * SIDE, AROUND = SIDE - 1;
constexpr int PITCH = WIDE + AROUND, LINES = PITCH * (HIGH + AROUND); /* of a patch */
constexpr int FILTERS = 64;
constexpr int CONSUMERS = 2, THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
constexpr int WARPS = HOPPER_WARPGROUP / 32, FIRST_LOADER = CONSUMERS * WARPS;

/* --- the two kinds of numbers --- */

/* A thread's results are of two filters and of two pixels of every eight. `z` and the value are
 * those of one pixel, as they lie in memory: a `pair` each. BENT: with code for all activations,
 * which is so long that it does not stay in the instructions' cache; its residual may be 0. */
template <class T> struct floats {
    typedef T X;
    typedef float sum;
    typedef uint32_t pair;
    typedef struct matmul::job job;
    float bias[2], floor;

    __device__ floats(const job &j, int filter) : floor(j.func == IR_UNARY_RELU ? 0 : -INFINITY)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
            bias[i] = j.bias && filter + i < j.cols
                          ? number_float(static_cast<const T *>(j.bias)[filter + i])
                          : 0.0f;
    }
    __device__ static __forceinline__ bool bent(const job &j)
    {
        return (j.func != IR_UNARY_IDENTITY && j.func != IR_UNARY_RELU) || j.late;
    }
    __device__ static __forceinline__ void multiply(float (&sums)[PIXELS / 2], uint64_t weights,
                                                    uint64_t pixels, int keep)
    {
        wgmma<T>(sums, weights, pixels, keep);
    }
    template <bool RESIDUAL, bool BENT>
    __device__ __forceinline__ void finish(const job &j, const float (&four)[4],
                                           const uint32_t (&z)[2], uint32_t (&out)[2]) const
    {
        float v[4], w[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = fmaf(four[i], j.scale, bias[i % 2]);
        if (RESIDUAL)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float2 two = pair_floats<T>(z[e]);
                w[2 * e] = two.x;
                w[2 * e + 1] = two.y;
            }
        if (RESIDUAL && !(BENT && j.late))
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] += w[i];
        if (BENT) {
            activate::values(j.func, j.alpha, v);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = max_or_nan(v[i], floor);
        }
        if (RESIDUAL && BENT && j.late)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] += w[i];
        out[0] = pair_of<T>(v[0], v[1]);
        out[1] = pair_of<T>(v[2], v[3]);
    }
};

template <class X_> struct bytes {
    typedef X_ X;
    typedef tile::kind<X> K;
    typedef typename K::Sum sum;
    typedef uint16_t pair;
    typedef struct tile::job job;
    float4 scale, bias;

    __device__ bytes(const job &j, int filter)
    {
        float2 s = *reinterpret_cast<const float2 *>(j.scale + filter);
        float2 b = *reinterpret_cast<const float2 *>(j.bias + filter);
        scale = make_float4(s.x, s.y, s.x, s.y);
        bias = make_float4(b.x, b.y, b.x, b.y);
    }
    __device__ static __forceinline__ bool bent(const job &j)
    {
        return j.bent;
    }
    __device__ static __forceinline__ void multiply(sum (&sums)[PIXELS / 2], uint64_t weights,
                                                    uint64_t pixels, int keep)
    {
        K::multiply_turned(sums, weights, pixels, keep);
    }
    template <bool RESIDUAL, bool BENT>
    __device__ __forceinline__ void finish(const job &j, const sum (&four)[4],
                                           const uint16_t (&z)[2], uint16_t (&out)[2]) const
    {
        uint32_t both = RESIDUAL ? z[0] | (uint32_t)z[1] << 16 : 0;
        const float v[4] = {(float)four[0], (float)four[1], (float)four[2], (float)four[3]};
        uint32_t word = K::template finish<RESIDUAL, BENT>(j, v, scale, bias, both);
        out[0] = (uint16_t)word;
        out[1] = (uint16_t)(word >> 16);
    }
};

/* LINE: bytes of a pixel in the patch. */
template <class F_, int LINE_, int STAGES_, int SLOTS_> struct shape {
    typedef F_ F;
    static constexpr int LINE = LINE_, STAGES = STAGES_, SLOTS = SLOTS_;
    static constexpr int SIZE = (int)sizeof(typename F::X);
    static constexpr int RESULT = FILTERS * SIZE; /* bytes of a pixel's results */
    static constexpr int TAP = FILTERS * LINE, PATCH = LINES * LINE, SLOT = PIXELS * RESULT;
    static constexpr int BARRIERS = CONSUMERS * 2 * (STAGES + SLOTS) + 1;
    static constexpr int SHARED =
        HOPPER_ALIGN + TAPS * TAP + CONSUMERS * (STAGES * PATCH + SLOTS * SLOT) + BARRIERS * 8;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(PATCH % HOPPER_ALIGN == 0 && SLOT % HOPPER_ALIGN == 0 && TAP % HOPPER_ALIGN == 0,
                  "where swizzled tiles may begin");
};

template <class S> struct job {
    struct divider across, down; /* tiles of an image */
    int tiles;                   /* of all images */
    int columns;                 /* tiles of filters */
    int pad[2];
    bool residual;
    typename S::F::job how;
};

template <class S> struct room { /* shared memory */
    unsigned char *weights, *patches, *slots;
    uint64_t *full, *empty, *come, *gone, *there; /* come, gone: of slots; there: of weights */
    __device__ explicit room(unsigned char *raw)
    {
        weights = shared_kept(raw);
        patches = weights + TAPS * S::TAP;
        slots = patches + CONSUMERS * S::STAGES * S::PATCH;
        full = reinterpret_cast<uint64_t *>(slots + CONSUMERS * S::SLOTS * S::SLOT);
        empty = full + CONSUMERS * S::STAGES;
        come = empty + CONSUMERS * S::STAGES;
        gone = come + CONSUMERS * S::SLOTS;
        there = gone + CONSUMERS * S::SLOTS;
    }
};

/* The tiles of a consumer, in order: blocks of the same filters share all tiles. The first ones of
 * all blocks go before the second ones of any. */
template <class S> struct walk {
    int at, step, end;
    __device__ __forceinline__ walk(const job<S> &j, int consumer)
    {
        int blocks = (int)gridDim.x / j.columns;
        at = (int)blockIdx.x / j.columns + consumer * blocks;
        step = CONSUMERS * blocks;
        end = j.tiles;
    }
    __device__ __forceinline__ bool more(void) const
    {
        return at < end;
    }
};

template <class S> __device__ __forceinline__ int first_filter(const job<S> &j)
{
    return (int)blockIdx.x % j.columns * FILTERS;
}

struct place { /* the first pixel of a tile */
    int w, h, n;
    template <class S> __device__ __forceinline__ place(const job<S> &j, int tile)
    {
        uint32_t x, y;
        n = (int)divider_split(j.down, divider_split(j.across, (uint32_t)tile, &x), &y);
        w = (int)x * WIDE;
        h = (int)y * HIGH;
    }
};

/* --- threads that load --- */

template <class S>
__device__ __forceinline__ void load_weights(const room<S> &r, const CUtensorMap *map,
                                             const job<S> &j)
{
    mbarrier_expect(r.there, TAPS * S::TAP);
    for (int tap = 0; tap < TAPS; tap++)
        tensor_load_2d(r.weights + tap * S::TAP, map, r.there, tap * (S::LINE / S::SIZE),
                       first_filter(j));
}

template <class S>
__device__ __forceinline__ void load_patches(const room<S> &r, const CUtensorMap *map,
                                             const job<S> &j, int consumer)
{
    hopper_turn t = {0, 0};
    for (walk<S> w(j, consumer); w.more(); w.at += w.step) {
        int stage = consumer * S::STAGES + t.at;
        place p(j, w.at);
        mbarrier_wait(r.empty + stage, t.parity ^ 1);
        mbarrier_expect(r.full + stage, S::PATCH);
        tensor_load_4d(r.patches + stage * S::PATCH, map, r.full + stage, 0, p.w - j.pad[1],
                       p.h - j.pad[0], p.n);
        t.next(S::STAGES);
    }
}

template <class S>
__device__ __forceinline__ void load_residual(const room<S> &r, const CUtensorMap *map,
                                              const job<S> &j, int consumer)
{
    hopper_turn t = {0, 0};
    for (walk<S> w(j, consumer); w.more(); w.at += w.step) {
        int slot = consumer * S::SLOTS + t.at;
        place p(j, w.at);
        mbarrier_wait(r.gone + slot, t.parity ^ 1);
        mbarrier_expect(r.come + slot, S::SLOT);
        tensor_load_4d(r.slots + slot * S::SLOT, map, r.come + slot, first_filter(j), p.w, p.h,
                       p.n);
        t.next(S::SLOTS);
    }
}

/* --- a consumer --- */

template <class S> struct consumer {
    typedef typename S::F F;
    typedef typename F::sum sum_t;
    typedef typename F::pair pair_t;
    const room<S> &r;
    const job<S> &j;
    const CUtensorMap *y;
    int group, filter; /* filter: the first of the thread's two, in the tile */
    hopper_turn t, slot;
    bool leads, again; /* again: it has stored before */
    F how;

    __device__ consumer(const room<S> &shared, const job<S> &todo, const CUtensorMap *to,
                        int warpgroup)
        : r(shared), j(todo), y(to), group(warpgroup),
          filter((int)threadIdx.x % HOPPER_WARPGROUP / 32 * 16 + (int)threadIdx.x % 32 / 4 * 2),
          t({0, 0}), slot({0, 0}), leads(threadIdx.x % HOPPER_WARPGROUP == 0), again(false),
          how(todo.how, first_filter(todo) + filter)
    {
    }

    __device__ __forceinline__ void multiply(sum_t (&sum)[PIXELS / 2])
    {
        int stage = group * S::STAGES + t.at;
        mbarrier_wait(r.full + stage, t.parity);
        uint32_t a = shared_address(r.weights), b = shared_address(r.patches + stage * S::PATCH);
        const uint64_t filters = descriptor_rows<S::LINE>(a);
        const uint64_t pixels = descriptor_rows<S::LINE>(b, PITCH);
        wgmma_hold(sum);
        wgmma_fence();
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int k = 0; k < S::LINE; k += 32)
                F::multiply(
                    sum, descriptor_beyond(filters, tap * S::TAP + k),
                    descriptor_beyond(pixels, (tap / SIDE * PITCH + tap % SIDE) * S::LINE + k),
                    tap > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(sum);
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(r.empty + stage);
        t.next(S::STAGES);
    }

    /* Where the thread's two results of a pixel lie in a slot. */
    __device__ __forceinline__ pair_t *spot(unsigned char *to, int pixel) const
    {
        int at = pixel * S::RESULT + filter * S::SIZE;
        at ^= (at >> 7 & (S::RESULT == 128 ? 7 : 3)) << 4;
        return reinterpret_cast<pair_t *>(to + at);
    }

    template <bool RESIDUAL, bool BENT>
    __device__ __forceinline__ void finish(const sum_t (&sum)[PIXELS / 2], unsigned char *to)
    {
        constexpr int ROW = WIDE * S::RESULT / (int)sizeof(pair_t); /* its swizzle is the next's */
        const int pixel = (int)threadIdx.x % 4 * 2;
        pair_t *const at[2] = {spot(to, pixel), spot(to, pixel + 1)};
#pragma unroll
        for (int c = 0; c < HIGH; c++) {
            const sum_t four[4] = {sum[4 * c], sum[4 * c + 2], sum[4 * c + 1], sum[4 * c + 3]};
            pair_t z[2] = {}, out[2];
            if (RESIDUAL && (!BENT || j.residual))
                z[0] = at[0][c * ROW], z[1] = at[1][c * ROW];
            how.template finish<RESIDUAL, BENT>(j.how, four, z, out);
            shared_put(at[0] + c * ROW, out[0]);
            shared_put(at[1] + c * ROW, out[1]);
        }
    }

    __device__ __forceinline__ void store(const sum_t (&sum)[PIXELS / 2], const place &p)
    {
        unsigned char *to = r.slots + (group * S::SLOTS + slot.at) * S::SLOT;
        tile::take_slot<S::SLOTS>(r, group, slot, j.residual, leads, again);
        if (S::F::bent(j.how))
            finish<true, true>(sum, to);
        else if (j.residual)
            finish<true, false>(sum, to);
        else
            finish<false, false>(sum, to);
        proxy_fence();
        named_sync(1 + group, HOPPER_WARPGROUP);
        if (leads) {
            tensor_store_4d(y, to, first_filter(j), p.w, p.h, p.n);
            store_commit();
        }
        again = true;
        slot.next(S::SLOTS);
    }

    __device__ __forceinline__ void run(void)
    {
        mbarrier_wait(r.there, 0);
        for (walk<S> w(j, group); w.more(); w.at += w.step) {
            sum_t sum[PIXELS / 2];
            multiply(sum);
            store(sum, place(j, w.at));
        }
        if (leads)
            store_wait_all();
    }
};

template <class S>
__device__ __forceinline__ void load(const room<S> &r, const CUtensorMap *x,
                                     const CUtensorMap *weights, const CUtensorMap *z,
                                     const job<S> &j)
{
    int loader = (int)threadIdx.x / 32 - FIRST_LOADER;
    if (loader == 0)
        load_weights(r, weights, j); /* no kernel writes weights */
    grid_wait();
    grid_fence();
    if (loader < CONSUMERS)
        load_patches(r, x, j, loader);
    else if (j.residual)
        load_residual(r, z, j, loader - CONSUMERS);
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
           const __grid_constant__ CUtensorMap z, const __grid_constant__ CUtensorMap y,
           const __grid_constant__ job<S> j)
{
    KERNEL_SHARED(unsigned char, raw);
    room<S> r(raw);
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    if (threadIdx.x == 0) {
        tensor_prefetch(&x);
        tensor_prefetch(&weights);
        tensor_prefetch(&y);
        for (int i = 0; i < CONSUMERS * S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, WARPS);
        }
        for (int i = 0; i < CONSUMERS * S::SLOTS; i++) {
            mbarrier_init(r.come + i, 1);
            mbarrier_init(r.gone + i, 1);
        }
        mbarrier_init(r.there, 1);
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    if (group == CONSUMERS) {
        registers_fewer<40>();
        if (threadIdx.x % 32 == 0)
            load<S>(r, &x, &weights, &z, j);
        else
            grid_wait();
    } else {
        registers_more<232>();
        grid_wait();
        consumer<S>(r, j, &y, group).run();
    }
}

/* --- launching --- */

struct source {
    const struct kernel_images *image;
    int64_t rows, cols, deep, filters; /* deep, filters: of the packed weights */
    int32_t x_dtype, w_dtype, y_dtype;
    const void *x, *weights, *residual, *y;
};

inline struct hopper_tensor images_of(const void *data, int32_t dtype, int64_t channels,
                                      const int64_t (&side)[2], int64_t images)
{
    struct hopper_tensor t = {};
    t.data = data;
    t.dtype = dtype;
    t.rank = 4;
    t.dim[0] = channels;
    t.dim[1] = side[1];
    t.dim[2] = side[0];
    t.dim[3] = images;
    t.stride[0] = 1;
    t.stride[1] = channels;
    t.stride[2] = channels * side[1];
    t.stride[3] = channels * side[1] * side[0];
    t.box[3] = 1;
    return t;
}

template <class S> struct places {
    struct hopper_tensor x, weights, residual, y;
    explicit places(const struct source &p)
    {
        x = images_of(p.x, p.x_dtype, p.image->channels, p.image->in, p.image->images);
        x.box[0] = S::LINE / S::SIZE;
        x.box[1] = PITCH;
        x.box[2] = HIGH + AROUND;
        weights = hopper_matrix(p.weights, p.w_dtype, p.deep, p.deep, p.filters, FILTERS, S::LINE);
        y = images_of(p.y, p.y_dtype, p.cols, p.image->out, p.image->images);
        y.box[0] = FILTERS;
        y.box[1] = WIDE;
        y.box[2] = HIGH;
        residual = y;
        residual.data = p.residual ? p.residual : p.y;
    }
    bool fit(void) const
    {
        return hopper_tensor_fits(&x) && hopper_tensor_fits(&weights) &&
               hopper_tensor_fits(&residual) && hopper_tensor_fits(&y);
    }
    cudaError_t open(CUtensorMap (&map)[4]) const
    {
        const struct hopper_tensor *all[] = {&x, &weights, &residual, &y};
        cudaError_t code = cudaSuccess;
        for (int i = 0; i < 4 && code == cudaSuccess; i++)
            code = hopper_map(all[i], &map[i]);
        return code;
    }
};

template <class S> bool takes(const struct source &p)
{
    const struct kernel_images *i = p.image;
    const int64_t most = INT32_MAX / 4;
    bool fit = i->channels >= 1 && i->channels * S::SIZE <= S::LINE && p.cols >= 1 &&
               p.cols <= most && p.rows >= 1 && p.rows <= most;
    for (int d = 0; fit && d < 2; d++)
        fit = i->kernel[d] == SIDE && i->stride[d] == 1 && i->dilation[d] == 1 && i->pad[d] >= 0 &&
              i->pad[d] <= INT16_MAX && i->in[d] >= 1 && i->out[d] >= 1 && i->in[d] <= most &&
              i->out[d] <= most;
    return fit && p.rows == i->images * i->out[0] * i->out[1];
}

template <class S>
cudaError_t launch(const struct kernel_call *call, const struct source &p, struct job<S> &j)
{
    int multiprocessors = kernel_multiprocessors(call);
    if (!takes<S>(p))
        return cudaErrorNotSupported;
    places<S> at(p);
    if (!at.fit())
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    CUtensorMap map[4];
    int across = (int)kernel_ceil_div(p.image->out[1], WIDE);
    int down = (int)kernel_ceil_div(p.image->out[0], HIGH);
    j.across = divider_make((uint32_t)across);
    j.down = divider_make((uint32_t)down);
    j.tiles = across * down * (int)p.image->images;
    j.columns = (int)kernel_ceil_div(p.cols, FILTERS);
    j.pad[0] = p.image->pad[0];
    j.pad[1] = p.image->pad[1];
    j.residual = p.residual != nullptr;
    cudaError_t code = at.open(map);
    if (code != cudaSuccess)
        return code;
    int blocks = min(max(multiprocessors / j.columns, 1), j.tiles) * j.columns;
    return hopper_launch(kernel<S>, (unsigned)blocks, 1, THREADS, S::SHARED, call, map[0], map[1],
                         map[2], map[3], j);
}

template <class T, int STAGES, int SLOTS>
cudaError_t launch_floats(const struct kernel_call *call, const struct kernel_matmul &p)
{
    typedef shape<floats<T>, 128, STAGES, SLOTS> S;
    job<S> j = {};
    if (p.second.depth || p.wide)
        return cudaErrorNotSupported;
    struct source s = {};
    s.image = &p.image;
    s.rows = p.rows;
    s.cols = p.cols;
    s.deep = kernel_matmul_packed_depth(&p.image, p.depth);
    s.filters = kernel_matmul_packed_rows(p.cols);
    s.x_dtype = s.w_dtype = s.y_dtype = p.dtype;
    s.x = p.a;
    s.weights = p.b;
    s.residual = p.residual;
    s.y = p.y;
    j.how = matmul::job_of(p, PIXELS, FILTERS);
    return launch<S>(call, s, j);
}

template <class X, int LINE, int STAGES, int SLOTS>
cudaError_t launch_bytes(const struct kernel_call *call, const struct kernel_tile &p)
{
    typedef shape<bytes<X>, LINE, STAGES, SLOTS> S;
    job<S> j = {};
    if (p.second.depth || tile::is_wide(p) ||
        (LINE == 128 && p.image.channels <= 64)) /* for which shorter lines are there */
        return cudaErrorNotSupported;
    struct source s = {};
    s.image = &p.image;
    s.rows = p.rows;
    s.cols = p.cols;
    s.deep = kernel_tile_depth(&p.image, p.depth, LINE);
    s.filters = kernel_tile_rows(p.cols);
    s.x_dtype = p.x_dtype;
    s.w_dtype = DTYPE_I8;
    s.y_dtype = p.y_dtype;
    s.x = p.x;
    s.weights = p.weights;
    s.residual = p.residual;
    s.y = p.y;
    j.how = tile::finish_of(p);
    return launch<S>(call, s, j);
}

} // namespace patch

#endif
