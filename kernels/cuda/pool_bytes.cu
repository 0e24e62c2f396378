/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling of tensors that are stored in 8 bits by a scale, or become so: maxima and averages.
 *
 * A thread has N neighbouring channels of a window, 16 bytes where the layout allows it, and reads
 * them at AHEAD places before it uses the first. A global average has few windows of many places:
 * several threads share such a window, each with every so many-th place of a row, and what they
 * have found meets in shared memory. A window of all lines of an image is one row.
 *
 *   bytes_sum   sums of integers, by dp4a: exact, so that sharing changes no result
 *   bytes_most  maxima of integers, two in a register
 *   reals       both, of FP8, floats and INT32, in floats
 *
 * UINT8 is read as INT8 by 128 less. Refused: LP pooling, epilogues, 2^31 elements and more, and
 * windows that INT32 cannot sum.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/side.cuh"

namespace
{

constexpr int THREADS_LOG = 8, THREADS = 1 << THREADS_LOG, AHEAD = 4;
constexpr int SHARES_MAX = THREADS_LOG; /* log2 of the threads to a window: all of a block */
constexpr int SHARED_ROW = 16;          /* places of a row that is shared, at least */
constexpr int BUSY = 512;               /* threads that keep a multiprocessor busy */
constexpr int64_t SUM_PLACES = 1 << 22, FAR = 1 << 30;

/* Images of up to 3 spatial dims, the last ones of the arrays; those before have one element. */
struct job {
    bytes_side x, y;
    struct divider channels, out[3]; /* by which an item's number is taken apart */
    struct divider dilation[3];
    uint32_t items;                             /* windows of N channels */
    int32_t x_n, x_c, x_s[3], y_n, y_c, y_s[3]; /* strides */
    int32_t x_step[3];                          /* from one place of a window to the next */
    int32_t in[3], kernel[3], stride[3], pad[3], end[3];
    int32_t first;                 /* dim that is there */
    int32_t shares;                /* log2 of the threads to a window */
    int32_t zero;                  /* of x's integers, as they are read */
    uint32_t flip;                 /* 0x80808080 turns UINT8 into INT8 */
    bool average, count_pad, same; /* same: x and y store a number alike */
};

/* --- what is found in a window --- */

/* These hold `channels` neighbours, and a `piece` is as much of x: four bytes are one register.
 * `blocks` are to have room on a multiprocessor. keeps: x's own bytes can be had back. */
template <class T, int V> struct piece_of {
    typedef vector<T, V> type;
};
template <> struct piece_of<uint8_t, 1> {
    typedef uint8_t type;
};
template <> struct piece_of<uint8_t, 4> {
    typedef uint32_t type;
};
template <> struct piece_of<f8_t, 4> {
    typedef uint32_t type;
};

template <int V> struct bytes_sum {
    static const int channels = V, blocks = 4;
    static const bool keeps = false;
    typedef typename piece_of<uint8_t, V>::type piece;
    vector<int32_t, V> sum;

    __device__ __forceinline__ void clear(const job &)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            sum.v[i] = 0;
    }
    __device__ __forceinline__ void add(const job &p, uint32_t bytes)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            sum.v[i] = dot_bytes(bytes ^ p.flip, 1u << 8 * i, sum.v[i]);
    }
    __device__ __forceinline__ void merge(const job &, const bytes_sum &other)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            sum.v[i] += other.sum.v[i];
    }
    __device__ __forceinline__ float number(const job &p, int i, int inside) const
    {
        float v = (float)(sum.v[i] - inside * p.zero);
        return p.x.step != 0 ? __fmul_rn(v, p.x.step) : v;
    }
};

/* Maxima are the upper bytes of INT16: what is below them changes no order of theirs. */
template <int V> struct bytes_most {
    static const int channels = V, blocks = 5;
    static const bool keeps = true;
    typedef typename piece_of<uint8_t, V>::type piece;
    vector<uint32_t, 2> most; /* of bytes 0 and 2, and of 1 and 3 */

    __device__ __forceinline__ void clear(const job &)
    {
        most.v[0] = most.v[1] = 0x80008000;
    }
    __device__ __forceinline__ void add(const job &p, uint32_t bytes)
    {
        bytes ^= p.flip;
        most.v[0] = max_pairs(most.v[0], bytes << 8);
        if (V > 1)
            most.v[1] = max_pairs(most.v[1], bytes);
    }
    __device__ __forceinline__ void merge(const job &, const bytes_most &other)
    {
        most.v[0] = max_pairs(most.v[0], other.most.v[0]);
        most.v[1] = max_pairs(most.v[1], other.most.v[1]);
    }
    __device__ __forceinline__ piece bytes(const job &p) const
    {
        return (piece)(__byte_perm(most.v[0], most.v[1], 0x7351) ^ p.flip);
    }
    __device__ __forceinline__ float number(const job &p, int i, int inside) const
    {
        int32_t q = (int8_t)(most.v[i % 2] >> (i / 2 * 16 + 8));
        float v = (float)(q - p.zero);
        return inside == 0 ? -INFINITY : p.x.step != 0 ? __fmul_rn(v, p.x.step) : v;
    }
};

template <class T, int V>
__device__ __forceinline__ float number_at(const vector<T, V> &numbers, int i)
{
    return number_float(numbers.v[i]);
}

__device__ __forceinline__ float number_at(uint32_t bytes, int i)
{
    f8_t number = {(unsigned char)(bytes >> 8 * i)};
    return number_float(number);
}

template <class T, int V> struct reals {
    static const int channels = V, blocks = 3;
    static const bool keeps = false;
    typedef typename piece_of<T, V>::type piece;
    vector<float, V> found; /* in x's steps */

    __device__ __forceinline__ void one(const job &p, int i, float v)
    {
        float &to = found.v[i];
        to = p.average ? to + v : v != v || v > to ? v : to;
    }
    __device__ __forceinline__ void clear(const job &p)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            found.v[i] = p.average ? 0.0f : -INFINITY;
    }
    __device__ __forceinline__ void add(const job &p, const piece &numbers)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            one(p, i, number_at(numbers, i));
    }
    __device__ __forceinline__ void merge(const job &p, const reals &other)
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            one(p, i, other.found.v[i]);
    }
    __device__ __forceinline__ float number(const job &p, int i, int inside) const
    {
        float zeros = p.x.zero * (p.average ? (float)inside : 1.0f);
        return p.x.step != 0 ? __fmul_rn(found.v[i] - zeros, p.x.step) : found.v[i];
    }
};

/* --- windows --- */

/* A window's part inside of the image. */
struct place {
    int32_t from, to; /* offsets of its first place in x, and in y */
    int32_t n[3];     /* places along the dims */
    int32_t inside;   /* all of them */
    int32_t count;    /* the divisor of an average */
};

/* Places of a window before `far` from its first, along a dim. */
__device__ __forceinline__ int places_before(const job &p, int d, int far)
{
    const struct divider &by = p.dilation[d];
    return min((int)divider_quotient(by, (uint32_t)max(far, 0) + by.by - 1), p.kernel[d]);
}

template <int N> __device__ __forceinline__ struct place place_of(const job &p, uint32_t item)
{
    struct place w;
    uint32_t c, o, n = divider_split(p.channels, item, &c);
    w.from = (int32_t)c * N * p.x_c;
    w.to = (int32_t)c * N * p.y_c;
    w.inside = w.count = 1;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        w.n[d] = 1;
        if (d < p.first)
            continue;
        n = divider_split(p.out[d], n, &o);
        int first = (int)o * p.stride[d] - p.pad[d];
        int begin = places_before(p, d, -first);
        w.n[d] = places_before(p, d, p.in[d] - first) - begin;
        w.inside *= w.n[d];
        w.count *= p.count_pad ? places_before(p, d, p.in[d] + p.end[d] - first) : w.n[d];
        if (w.n[d] > 0)
            w.from += first * p.x_s[d] + begin * p.x_step[d];
        w.to += (int32_t)o * p.y_s[d];
    }
    w.from += (int32_t)n * p.x_n;
    w.to += (int32_t)n * p.y_n;
    return w;
}

/* Finds what a thread's places hold: of each row of the window, `part` and every (1 << shares)-th
 * behind it. */
template <class F, int N>
__device__ __forceinline__ void look(const job &p, const struct place &w, int part,
                                     F (&found)[N / F::channels])
{
    typedef vector<typename F::piece, N / F::channels> numbers;
    constexpr int BYTES = (int)sizeof(numbers) / N;
    const char *x = static_cast<const char *>(p.x.data);
    int n = (w.n[2] - part + (1 << p.shares) - 1) >> p.shares;
    int64_t step = (int64_t)(p.x_step[2] << p.shares) * BYTES;
    for (int a = 0; a < w.n[0]; a++)
        for (int b = 0; b < w.n[1]; b++) {
            int32_t row = w.from + a * p.x_step[0] + b * p.x_step[1] + part * p.x_step[2];
            const char *from = x + (int64_t)row * BYTES;
            for (int i = 0; i < n; i += AHEAD) {
                numbers read[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; k++, from += step)
                    if (i + k < n)
                        read[k] = *reinterpret_cast<const numbers *>(from);
#pragma unroll
                for (int k = 0; k < AHEAD; k++)
                    if (i + k < n)
#pragma unroll
                        for (int g = 0; g < N / F::channels; g++)
                            found[g].add(p, read[k].v[g]);
            }
        }
}

template <class F, int N>
__device__ __forceinline__ void store(const job &p, const struct place &w, int32_t at,
                                      const F (&found)[N / F::channels])
{
    typedef typename F::piece piece;
    if constexpr (F::keeps)
        if (p.same) {
            vector<piece, N / F::channels> raw;
#pragma unroll
            for (int g = 0; g < N / F::channels; g++)
                raw.v[g] = found[g].bytes(p);
            *reinterpret_cast<vector<piece, N / F::channels> *>(static_cast<char *>(p.y.data) +
                                                                at) = raw;
            return;
        }
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = found[i / F::channels].number(p, i % F::channels, w.inside);
        if (p.average)
            v[i] = w.count ? v[i] / (float)w.count : 0.0f;
    }
    side_store<N>(p.y, at, v);
}

/* A block has THREADS >> shares items. Neighbouring threads have the same part of neighbouring
 * items, and so read neighbouring channels. */
template <class F, int N>
__global__ void __launch_bounds__(THREADS, F::blocks) pool_windows(const __grid_constant__ job p)
{
    constexpr int GROUPS = N / F::channels;
    int items = 1 << (THREADS_LOG - p.shares), part = (int)threadIdx.x >> (THREADS_LOG - p.shares);
    uint32_t item = blockIdx.x * (uint32_t)items + (threadIdx.x & (uint32_t)(items - 1));
    struct place w;
    F found[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        found[g].clear(p);
    if (item < p.items) {
        w = place_of<N>(p, item);
        look<F, N>(p, w, part, found);
    }
    KERNEL_SHARED(F, parts); /* [1 << shares][items][GROUPS], if a window is shared */
    F *mine = parts + threadIdx.x * GROUPS;
#pragma unroll
    for (int g = 0; g < GROUPS && p.shares > 0; g++)
        mine[g] = found[g];
    for (int half = 1 << p.shares >> 1; half > 0; half >>= 1) {
        __syncthreads();
        if (part < half)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                found[g].merge(p, mine[half * items * GROUPS + g]);
                mine[g] = found[g];
            }
    }
    if (part == 0 && item < p.items)
        store<F, N>(p, w, w.to, found);
}

/* --- launching --- */

/* Whether one window has just all of the dim. */
bool is_whole(const job *p, int d)
{
    return p->out[d].by == 1 && p->dilation[d].by == 1 && p->pad[d] == 0 &&
           p->kernel[d] == p->in[d];
}

/* Makes one row of dims d and 2, if one window has all of both. */
void job_join(job *p, int d)
{
    int64_t places = (int64_t)p->in[d] * p->in[2];
    if (!is_whole(p, d) || !is_whole(p, 2) || places > FAR ||
        p->x_s[d] != (int64_t)p->in[2] * p->x_s[2])
        return;
    p->in[2] = p->kernel[2] = (int32_t)places;
    p->in[d] = p->kernel[d] = 1;
    p->first += p->first == d;
}

bool job_dim(job *p, int d, const struct kernel_window *w, const struct kernel_view *x,
             const struct kernel_view *y)
{
    int k = d - p->first;
    int64_t dilation = w->kernel[k] > 1 ? w->dilation[k] : 1, step = x->stride[2 + k] * dilation;
    if (w->kernel[k] < 1 || w->stride[k] < 1 || dilation < 1 || w->pad[k] < 0 || w->end[k] < 0 ||
        x->dim[2 + k] + w->end[k] + w->pad[k] > FAR || step > INT32_MAX ||
        w->kernel[k] * dilation + y->dim[2 + k] * w->stride[k] > FAR)
        return false;
    p->in[d] = (int32_t)x->dim[2 + k];
    p->out[d] = divider_make((uint32_t)y->dim[2 + k]);
    p->dilation[d] = divider_make((uint32_t)dilation);
    p->x_s[d] = (int32_t)x->stride[2 + k];
    p->x_step[d] = (int32_t)step;
    p->y_s[d] = (int32_t)y->stride[2 + k];
    p->kernel[d] = w->kernel[k];
    p->stride[d] = w->stride[k];
    p->pad[d] = w->pad[k];
    p->end[d] = w->end[k];
    return true;
}

/* Fills all but what depends on the channels of a thread. False: dims or windows are too large. */
bool job_make(bool average, bool count_pad, const struct kernel_window *w,
              const struct kernel_view *x, const struct kernel_view *y, job *p)
{
    *p = job();
    p->x = side_of(x);
    p->y = side_of(y);
    p->average = average;
    p->count_pad = count_pad;
    p->same = x->dtype == y->dtype && x->step == y->step && (x->step == 0 || x->zero == y->zero);
    p->flip = x->dtype == DTYPE_U8 ? 0x80808080 : 0;
    p->zero = (x->step != 0 ? (int32_t)x->zero : 0) - (x->dtype == DTYPE_U8 ? 128 : 0);
    p->x_n = (int32_t)x->stride[0];
    p->x_c = (int32_t)x->stride[1];
    p->y_n = (int32_t)y->stride[0];
    p->y_c = (int32_t)y->stride[1];
    p->first = 3 - w->spatial;
    for (int d = 0; d < 3; d++) {
        p->in[d] = p->kernel[d] = p->stride[d] = 1;
        p->out[d] = p->dilation[d] = divider_make(1);
        if (d >= p->first && !job_dim(p, d, w, x, y))
            return false;
    }
    job_join(p, 1);
    if (p->in[1] == 1)
        job_join(p, 0);
    return true;
}

/* The most places that a window has inside of the image. */
int64_t places_of(const job *p)
{
    int64_t n = 1;
    for (int d = 0; d < 3; d++)
        n *= p->kernel[d] < p->in[d] ? p->kernel[d] : p->in[d];
    return n;
}

struct request {
    const struct kernel_call *call;
    const struct kernel_view *x, *y;
    job p;
};

/* As many threads to a window as keep the device busy, but at least two places for each. */
int32_t choose_shares(const struct kernel_call *call, const job *p, int64_t items)
{
    int64_t room = (int64_t)kernel_multiprocessors(call) * BUSY;
    int32_t row = p->kernel[2] < p->in[2] ? p->kernel[2] : p->in[2], shares = 0;
    if (row < SHARED_ROW)
        return 0;
    while (shares < SHARES_MAX && 4 << shares <= row && items << shares < room)
        shares++;
    return shares;
}

template <class F, int N> cudaError_t launch(struct request *r)
{
    job *p = &r->p;
    int64_t items = kernel_elements(r->y) / N;
    p->items = (uint32_t)items;
    p->shares = choose_shares(r->call, p, items);
    p->channels = divider_make((uint32_t)(r->y->dim[1] / N));
    size_t shared = p->shares > 0 ? THREADS * (N / F::channels) * sizeof(F) : 0;
    return KERNEL_LAUNCH((pool_windows<F, N>),
                         (unsigned)kernel_ceil_div(items, THREADS >> p->shares), THREADS, shared,
                         r->call, *p);
}

bool in_chunks(const struct kernel_view *v, int n)
{
    bool fits = v->dim[1] % n == 0 && v->stride[1] == 1 && (uintptr_t)v->data % 16 == 0;
    for (int d = 0; d < v->rank; d++)
        fits = fits && (d == 1 || v->dim[d] == 1 || v->stride[d] % n == 0);
    return fits;
}

bool fits(const struct request *r, int n)
{
    return in_chunks(r->x, n) && in_chunks(r->y, n);
}

template <template <int> class F> cudaError_t launch_bytes(struct request *r)
{
    return fits(r, 16) ? launch<F<4>, 16>(r) : fits(r, 8) ? launch<F<4>, 8>(r) : launch<F<1>, 1>(r);
}

template <class T> cudaError_t launch_reals(struct request *r)
{
    constexpr int N = 16 / sizeof(T);
    if constexpr (N == 16)
        if (!fits(r, N) && fits(r, 8))
            return launch<reals<T, 4>, 8>(r);
    return fits(r, N) ? launch<reals<T, 4>, N>(r) : launch<reals<T, 1>, 1>(r);
}

cudaError_t launch_any(struct request *r)
{
    switch (r->x->dtype) {
    case DTYPE_U8:
    case DTYPE_I8:
        if (!r->p.average)
            return launch_bytes<bytes_most>(r);
        return places_of(&r->p) <= SUM_PLACES ? launch_bytes<bytes_sum>(r) : cudaErrorNotSupported;
    case DTYPE_F8:
        return launch_reals<f8_t>(r);
    case DTYPE_I32:
        return launch_reals<int32_t>(r);
    case DTYPE_F16:
        return launch_reals<half_t>(r);
    case DTYPE_BF16:
        return launch_reals<bf16_t>(r);
    default:
        return launch_reals<float>(r);
    }
}

} // namespace

cudaError_t kernel_bytes_pool(const struct kernel_call *call, bool average, bool count_include_pad,
                              const struct kernel_window *window, const struct kernel_view *x,
                              const struct kernel_view *y)
{
    const int64_t limit = INT64_C(1) << 31;
    struct request r = {call, x, y, {}};
    if (!side_known(x) || !side_known(y) || y->dtype == DTYPE_I32 || window->spatial < 1 ||
        window->spatial > 3 || x->rank != window->spatial + 2 || y->rank != x->rank ||
        kernel_span(x) >= limit || kernel_span(y) >= limit ||
        !job_make(average, count_include_pad, window, x, y, &r.p))
        return cudaErrorNotSupported;
    return kernel_elements(y) == 0 ? cudaSuccess : launch_any(&r);
}
