/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving elements: copies between views (transposes, slices, expansions), concatenation, gathering
 * and padding. Only the size of a type matters. Elements travel in the widest words (16,
 * 8, 4, 2, 1 bytes) into which runs of neighbours divide on all sides.
 *
 * Transposes whose neighbours differ go through shared memory (map.cuh), except for 8-byte
 * elements. Refused: more than 2^31 elements on either side.
 */
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/walk.cuh"

enum { MOVE_UNROLL = 2 };

/* The words that a thread moves at a time. */
template <int BYTES> struct move_word;
template <> struct move_word<1> {
    typedef uint8_t type;
};
template <> struct move_word<2> {
    typedef uint16_t type;
};
template <> struct move_word<4> {
    typedef uint32_t type;
};
template <> struct move_word<8> {
    typedef uint2 type;
};
template <> struct move_word<16> {
    typedef uint4 type;
};

template <int BYTES> struct move_tag {
    static const int value = BYTES;
};

/* Calls launch(move_tag<bytes>()). */
template <class L> static cudaError_t move_dispatch(int bytes, L launch)
{
    switch (bytes) {
    case 1:
        return launch(move_tag<1>());
    case 2:
        return launch(move_tag<2>());
    case 4:
        return launch(move_tag<4>());
    case 8:
        return launch(move_tag<8>());
    case 16:
        return launch(move_tag<16>());
    default:
        return cudaErrorNotSupported;
    }
}

/* The most elements that a word can hold on the sides in `which`, where they are contiguous. */
template <int K>
static int move_elements(const walk<K> *w, const struct kernel_view *const (&views)[K],
                         unsigned which)
{
    int size = number_size(views[0]->dtype);
    for (int n = 16 / size; n > 1; n /= 2) {
        bool all = true;
        for (int k = 0; k < K; k++) {
            bool repeats = w->stride[k][w->rank - 1] == 0;
            if (which >> k & 1)
                all = all && !repeats && walk_is_wide(w, k, n, views[k]);
            else
                all = all && repeats && w->dim[w->rank - 1].by % (uint32_t)n == 0;
        }
        if (all)
            return n;
    }
    return 1;
}

/* --- copies --- */

/* Offsets are in elements of `size` bytes. */
template <class W>
static __global__ void __launch_bounds__(MAP_THREADS)
    copy_words(const char *x, char *y, int32_t size, const __grid_constant__ walk<2> w)
{
    uint32_t first = blockIdx.x * (MAP_THREADS * MOVE_UNROLL) + threadIdx.x;
    W word[MOVE_UNROLL];
    int32_t at[MOVE_UNROLL][2];
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        if (i >= w.total)
            break;
        walk_at(w, i, at[u]);
        word[u] = *reinterpret_cast<const W *>(x + (int64_t)at[u][1] * size);
    }
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++)
        if (first + (uint32_t)u * MAP_THREADS < w.total)
            *reinterpret_cast<W *>(y + (int64_t)at[u][0] * size) = word[u];
}

static cudaError_t copy_transposed(const struct kernel_call *call, const walk<2> *w,
                                   const struct kernel_view *x, const struct kernel_view *y)
{
    struct epilogue none = epilogue();
    switch (number_size(y->dtype)) {
    case 1:
        return map_transpose_launch<uint8_t, uint8_t, EPILOGUE_NONE>(call, w, 0, x, y, none);
    case 2:
        return map_transpose_launch<uint16_t, uint16_t, EPILOGUE_NONE>(call, w, 0, x, y, none);
    case 4:
        return map_transpose_launch<uint32_t, uint32_t, EPILOGUE_NONE>(call, w, 0, x, y, none);
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t kernel_copy(const struct kernel_call *call, const struct kernel_view *x,
                        const struct kernel_view *y)
{
    walk<2> w;
    const struct kernel_view *const views[2] = {y, x};
    int size = number_size(y->dtype);
    if (size == 0 || x->dtype != y->dtype || !walk_make(views, &w))
        return cudaErrorNotSupported;
    if (w.total == 0)
        return cudaSuccess;
    int n = move_elements(&w, views, 3);
    cudaError_t code = n == 1 ? copy_transposed(call, &w, x, y) : cudaErrorNotSupported;
    if (code != cudaErrorNotSupported)
        return code;
    walk_widen(&w, n);
    unsigned blocks = (unsigned)kernel_ceil_div(w.total, MAP_THREADS * MOVE_UNROLL);
    return move_dispatch(n * size, [&](auto bytes) {
        typedef typename move_word<decltype(bytes)::value>::type word;
        return KERNEL_LAUNCH(copy_words<word>, blocks, MAP_THREADS, 0, call,
                             static_cast<const char *>(x->data), static_cast<char *>(y->data), size,
                             w);
    });
}

/* --- concatenation --- */

/* Part p is copied by blocks first[p] to first[p + 1] - 1. */
struct concat_plan {
    int32_t n, size;
    uint32_t first[KERNEL_CONCAT_MAX + 1];
    struct {
        const char *x;
        char *y;
        uint32_t at; /* of y's first element here, in the whole */
        walk<2> w;
    } part[KERNEL_CONCAT_MAX];
};

template <class W>
static __global__ void __launch_bounds__(MAP_THREADS)
    concat_words(const __grid_constant__ concat_plan plan)
{
    int p = 0;
    while (p + 1 < plan.n && blockIdx.x >= plan.first[p + 1])
        p++;
    const walk<2> &w = plan.part[p].w;
    uint32_t first = (blockIdx.x - plan.first[p]) * (MAP_THREADS * MOVE_UNROLL) + threadIdx.x;
    W word[MOVE_UNROLL];
    int32_t at[MOVE_UNROLL][2];
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        if (i >= w.total)
            break;
        walk_at(w, i, at[u]);
        word[u] = *reinterpret_cast<const W *>(plan.part[p].x + (int64_t)at[u][1] * plan.size);
    }
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++)
        if (first + (uint32_t)u * MAP_THREADS < w.total)
            *reinterpret_cast<W *>(plan.part[p].y + (int64_t)at[u][0] * plan.size) = word[u];
}

/* The same of floats, N at a time, which an epilogue changes on their way. */
template <class T, int N>
static __global__ void __launch_bounds__(MAP_THREADS)
    concat_steps(const __grid_constant__ concat_plan plan, const __grid_constant__ epilogue e)
{
    int p = 0;
    while (p + 1 < plan.n && blockIdx.x >= plan.first[p + 1])
        p++;
    const walk<2> &w = plan.part[p].w;
    const T *x = reinterpret_cast<const T *>(plan.part[p].x);
    T *y = reinterpret_cast<T *>(plan.part[p].y);
    uint32_t first = (blockIdx.x - plan.first[p]) * (MAP_THREADS * MOVE_UNROLL) + threadIdx.x;
    vector<T, N> from[MOVE_UNROLL];
    int32_t at[MOVE_UNROLL][2];
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        if (i >= w.total)
            break;
        walk_at(w, i, at[u]);
        from[u] = vector_load<T, N>(x + at[u][1]);
    }
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++)
        if (first + (uint32_t)u * MAP_THREADS < w.total)
            vector_store<T, N>(y + at[u][0], map_convert<T, T, EPILOGUE_ANY, N>(
                                                 e, from[u], plan.part[p].at + (uint32_t)at[u][0]));
}

/* The slice of y that part p fills, which begins at `from` along the axis. */
static struct kernel_view concat_slice(const struct kernel_view *y, const struct kernel_view *part,
                                       int32_t axis, int64_t from)
{
    struct kernel_view slice = *y;
    slice.dim[axis] = part->dim[axis];
    slice.data = static_cast<char *>(y->data) + from * y->stride[axis] * number_size(y->dtype);
    return slice;
}

/* `n` neighbours fill 16 bytes, or are taken one by one. */
template <class T>
static cudaError_t concat_steps_launch(const struct kernel_call *call, const concat_plan &plan,
                                       const struct epilogue &e, int n)
{
    const int N = 16 / (int)sizeof(T);
    if (n == N)
        return KERNEL_LAUNCH((concat_steps<T, N>), plan.first[plan.n], MAP_THREADS, 0, call, plan,
                             e);
    return KERNEL_LAUNCH((concat_steps<T, 1>), plan.first[plan.n], MAP_THREADS, 0, call, plan, e);
}

/* Copies the plan's parts, all of which `n` neighbours divide. */
static cudaError_t concat_launch(const struct kernel_call *call, const concat_plan &plan,
                                 const struct epilogue &e, const struct kernel_view *y, int n)
{
    if (e.n == 0)
        return move_dispatch(n * plan.size, [&](auto bytes) {
            typedef typename move_word<decltype(bytes)::value>::type word;
            return KERNEL_LAUNCH(concat_words<word>, plan.first[plan.n], MAP_THREADS, 0, call,
                                 plan);
        });
    return y->dtype == DTYPE_F16    ? concat_steps_launch<half_t>(call, plan, e, n)
           : y->dtype == DTYPE_BF16 ? concat_steps_launch<bf16_t>(call, plan, e, n)
                                    : concat_steps_launch<float>(call, plan, e, n);
}

/* Copies the parts of one launch to y, from `from` on. */
static cudaError_t concat_some(const struct kernel_call *call, const struct kernel_view *parts,
                               int32_t n_parts, int32_t axis, int64_t from,
                               const struct kernel_view *y, const struct epilogue &e)
{
    concat_plan plan = concat_plan();
    plan.size = number_size(y->dtype);
    if (plan.size == 0 || (e.n && !number_is_short_float(y->dtype)))
        return cudaErrorNotSupported;
    int n = 16 / plan.size;
    for (int i = 0; i < n_parts; from += parts[i++].dim[axis]) {
        struct kernel_view slice = concat_slice(y, &parts[i], axis, from);
        const struct kernel_view *const views[2] = {&slice, &parts[i]};
        auto *part = &plan.part[plan.n];
        if (parts[i].dtype != y->dtype || !walk_make(views, &part->w))
            return cudaErrorNotSupported;
        if (part->w.total == 0)
            continue;
        int mine = move_elements(&part->w, views, 3);
        part->at = (uint32_t)(from * y->stride[axis]);
        mine = e.n && (mine * plan.size < 16 || part->at % (uint32_t)mine) ? 1 : mine;
        n = mine < n ? mine : n;
        part->x = static_cast<const char *>(parts[i].data);
        part->y = static_cast<char *>(slice.data);
        plan.n++;
    }
    if (plan.n == 0)
        return cudaSuccess;
    for (int i = 0; i < plan.n; i++) {
        walk_widen(&plan.part[i].w, n);
        plan.first[i + 1] = plan.first[i] + (uint32_t)kernel_ceil_div(plan.part[i].w.total,
                                                                      MAP_THREADS * MOVE_UNROLL);
    }
    return concat_launch(call, plan, e, y, n);
}

cudaError_t kernel_concat(const struct kernel_call *call, const struct kernel_view *parts,
                          int32_t n_parts, int32_t axis, const struct kernel_view *y,
                          const struct kernel_epilogue *epilogue)
{
    struct epilogue e;
    if (n_parts < 1 || axis < 0 || axis >= y->rank || kernel_span(y) >= INT64_C(1) << 31 ||
        !epilogue_make(epilogue, y, &e))
        return cudaErrorNotSupported;
    cudaError_t code = cudaSuccess;
    int64_t from = 0;
    for (int first = 0; first < n_parts && code == cudaSuccess; first += KERNEL_CONCAT_MAX) {
        int n = n_parts - first < KERNEL_CONCAT_MAX ? n_parts - first : KERNEL_CONCAT_MAX;
        code = concat_some(call, parts + first, n, axis, from, y, e);
        for (int i = 0; i < n; i++)
            from += parts[first + i].dim[axis];
    }
    return code;
}

/* --- gathering --- */

struct gather_plan {
    int32_t size; /* of an element */
    int32_t wide; /* indices are 64 bit */
    int32_t dim, stride;
    uint32_t bad[2]; /* 8 bytes of the element that stands in for elements out of range */
};

template <class W> __device__ __forceinline__ W gather_fill(const gather_plan &p)
{
    uint32_t raw[4] = {p.bad[0], p.bad[1], p.bad[0], p.bad[1]};
    W word;
    memcpy(&word, raw, sizeof(word));
    return word;
}

/* `w` is over y, x (without its axis) and the indices. */
template <class W>
static __global__ void __launch_bounds__(MAP_THREADS)
    gather_words(const char *x, const void *indices, char *y, int32_t *bad, const gather_plan p,
                 const __grid_constant__ walk<3> w)
{
    uint32_t first = blockIdx.x * (MAP_THREADS * MOVE_UNROLL) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < MOVE_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        if (i >= w.total)
            break;
        int32_t at[3];
        walk_at(w, i, at);
        int64_t index = p.wide ? static_cast<const int64_t *>(indices)[at[2]]
                               : static_cast<const int32_t *>(indices)[at[2]];
        index += index < 0 ? p.dim : 0;
        W word;
        if (index >= 0 && index < p.dim) {
            word = *reinterpret_cast<const W *>(x + (at[1] + index * p.stride) * p.size);
        } else {
            word = gather_fill<W>(p);
            if (bad)
                *bad = KERNEL_BAD_INDEX;
        }
        *reinterpret_cast<W *>(y + (int64_t)at[0] * p.size) = word;
    }
}

/* Fills 8 bytes with NaNs of the type; with zeros if it has none. */
static void gather_bad(int dtype, uint32_t *out)
{
    uint32_t low = dtype == DTYPE_F16    ? 0x7e007e00u
                   : dtype == DTYPE_BF16 ? 0x7fc07fc0u
                   : dtype == DTYPE_F32  ? 0x7fc00000u
                                         : 0;
    out[0] = low;
    out[1] = dtype == DTYPE_F64 ? 0x7ff80000u : low;
}

/* Makes views of y's dims of x, without its axis, and of the indices. */
static bool gather_views(const struct kernel_view *x, const struct kernel_view *indices,
                         int32_t axis, const struct kernel_view *y, struct kernel_view *rows,
                         struct kernel_view *picks)
{
    *rows = *picks = *y;
    if (axis < 0 || axis >= x->rank || y->rank != x->rank - 1 + indices->rank)
        return false;
    for (int d = 0; d < y->rank; d++) {
        bool inside = d >= axis && d < axis + indices->rank;
        int from = d < axis ? d : d - indices->rank + 1;
        rows->stride[d] = inside ? 0 : x->stride[from];
        picks->stride[d] = inside ? indices->stride[d - axis] : 0;
    }
    rows->data = x->data;
    picks->data = indices->data;
    picks->dtype = indices->dtype;
    return true;
}

cudaError_t kernel_gather(const struct kernel_call *call, const struct kernel_view *x,
                          const struct kernel_view *indices, int32_t axis,
                          const struct kernel_view *y, int32_t *bad)
{
    struct kernel_view rows, picks;
    walk<3> w;
    gather_plan p = {number_size(y->dtype), indices->dtype == DTYPE_I64, 0, 0, {0, 0}};
    const struct kernel_view *const views[3] = {y, &rows, &picks};
    if (p.size == 0 || x->dtype != y->dtype ||
        (indices->dtype != DTYPE_I64 && indices->dtype != DTYPE_I32) ||
        !gather_views(x, indices, axis, y, &rows, &picks) || !walk_make(views, &w) ||
        kernel_span(x) >= INT64_C(1) << 31 || x->dim[axis] > INT32_MAX)
        return cudaErrorNotSupported;
    if (w.total == 0)
        return cudaSuccess;
    p.dim = (int32_t)x->dim[axis];
    p.stride = (int32_t)x->stride[axis];
    gather_bad(y->dtype, p.bad);
    int n = move_elements(&w, views, 3);
    while (n > 1 && p.stride % n)
        n /= 2;
    walk_widen(&w, n);
    unsigned blocks = (unsigned)kernel_ceil_div(w.total, MAP_THREADS * MOVE_UNROLL);
    return move_dispatch(n * p.size, [&](auto bytes) {
        typedef typename move_word<decltype(bytes)::value>::type word;
        return KERNEL_LAUNCH(gather_words<word>, blocks, MAP_THREADS, 0, call,
                             static_cast<const char *>(x->data), picks.data,
                             static_cast<char *>(y->data), bad, p, w);
    });
}

/* --- padding --- */

/* y's dims in the order of its memory; the innermost one counts words. */
struct pad_plan {
    int32_t rank, size;
    enum ir_pad mode;
    uint32_t total;
    uint32_t fill[2]; /* 8 bytes of the value */
    struct divider dim[KERNEL_RANK_MAX];
    int32_t begin[KERNEL_RANK_MAX], extent[KERNEL_RANK_MAX]; /* of x within y */
    int32_t x_stride[KERNEL_RANK_MAX], y_stride[KERNEL_RANK_MAX];
};

/* The index of x that stands for `at`, which lies outside of 0..n-1. */
__device__ __forceinline__ int32_t pad_source(enum ir_pad mode, int32_t at, int32_t n)
{
    if (mode == IR_PAD_EDGE)
        return at < 0 ? 0 : n - 1;
    int32_t period = mode == IR_PAD_WRAP ? n : n > 1 ? 2 * (n - 1) : 1;
    int32_t rest = at % period;
    rest += rest < 0 ? period : 0;
    return rest < n ? rest : period - rest; /* REFLECT goes there and back */
}

template <class W>
static __global__ void __launch_bounds__(MAP_THREADS)
    pad_words(const char *x, char *y, const __grid_constant__ pad_plan p)
{
    uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x;
    if (i >= p.total)
        return;
    uint32_t rest = i, raw[4] = {p.fill[0], p.fill[1], p.fill[0], p.fill[1]};
    int32_t from = 0, to = 0;
    bool inside = true;
    for (int d = p.rank - 1; d >= 0; d--) {
        uint32_t index;
        rest = divider_split(p.dim[d], rest, &index);
        int32_t at = (int32_t)index - p.begin[d];
        bool beyond = at < 0 || at >= p.extent[d];
        if (beyond && p.mode != IR_PAD_CONSTANT)
            at = pad_source(p.mode, at, p.extent[d]);
        else
            inside = inside && !beyond;
        from += at * p.x_stride[d];
        to += (int32_t)index * p.y_stride[d];
    }
    W word;
    memcpy(&word, raw, sizeof(word));
    if (inside)
        word = *reinterpret_cast<const W *>(x + (int64_t)from * p.size);
    *reinterpret_cast<W *>(y + (int64_t)to * p.size) = word;
}

/* Fills 8 bytes with elements of that value, converted to integers as a cast does it. */
static bool pad_fill(int dtype, float value, uint32_t *out)
{
    uint64_t bits = 0;
    double wide = value;
    int64_t integer = value >= -0x1p63f && value < 0x1p63f ? (int64_t)value : INT64_MIN;
    switch (dtype) {
    case DTYPE_F16:
        bits = __half_as_ushort(__float2half_rn(value)) * UINT64_C(0x0001000100010001);
        break;
    case DTYPE_BF16:
        bits = __bfloat16_as_ushort(__float2bfloat16_rn(value)) * UINT64_C(0x0001000100010001);
        break;
    case DTYPE_F32:
        memcpy(&bits, &value, sizeof(value));
        bits |= bits << 32;
        break;
    case DTYPE_F64:
        memcpy(&bits, &wide, sizeof(wide));
        break;
    case DTYPE_BOOL:
        bits = (value != 0) * UINT64_C(0x0101010101010101);
        break;
    default:
        switch (number_size(dtype)) {
        case 1:
            bits = (uint8_t)integer * UINT64_C(0x0101010101010101);
            break;
        case 2:
            bits = (uint16_t)integer * UINT64_C(0x0001000100010001);
            break;
        case 4:
            bits = (uint32_t)integer * UINT64_C(0x0000000100000001);
            break;
        case 8:
            bits = (uint64_t)integer;
            break;
        default:
            return false;
        }
    }
    memcpy(out, &bits, sizeof(bits));
    return true;
}

static bool pad_make(enum ir_pad mode, const struct kernel_view *x, const int64_t *pads,
                     const struct kernel_view *y, pad_plan *p)
{
    int order[KERNEL_RANK_MAX], rank = 0;
    int64_t total = kernel_elements(y);
    const int64_t limit = INT64_C(1) << 31;
    if (kernel_span(y) >= limit || kernel_span(x) >= limit || total >= limit)
        return false;
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] >= limit || pads[i] <= -limit / 2 || pads[i] >= limit / 2 ||
            x->dim[i] >= limit / 2 || (x->dim[i] == 0 && mode != IR_PAD_CONSTANT && total > 0))
            return false;
        int at = rank++;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < rank; i++) {
        int d = order[i];
        p->dim[i] = divider_make((uint32_t)y->dim[d]);
        p->begin[i] = (int32_t)pads[d];
        p->extent[i] = (int32_t)x->dim[d];
        p->x_stride[i] = (int32_t)x->stride[d];
        p->y_stride[i] = (int32_t)y->stride[d];
    }
    p->rank = rank;
    p->mode = mode;
    p->total = (uint32_t)total;
    return true;
}

/* Widens words along an innermost dim that is contiguous on both sides and divides, padding and
 * all. Only a constant may pad that dim. */
static int pad_widen(pad_plan *p, const struct kernel_view *x, const struct kernel_view *y)
{
    int last = p->rank - 1;
    if (p->rank == 0 || p->x_stride[last] != 1 || p->y_stride[last] != 1)
        return 1;
    for (int n = 16 / p->size; n > 1; n /= 2) {
        uintptr_t word = (uintptr_t)(n * p->size);
        bool fits = p->dim[last].by % (uint32_t)n == 0 && p->begin[last] % n == 0 &&
                    (p->mode == IR_PAD_CONSTANT ||
                     (p->begin[last] == 0 && p->dim[last].by == (uint32_t)p->extent[last])) &&
                    p->extent[last] % n == 0 && (uintptr_t)x->data % word == 0 &&
                    (uintptr_t)y->data % word == 0;
        for (int i = 0; i < last; i++)
            fits = fits && p->x_stride[i] % n == 0 && p->y_stride[i] % n == 0;
        if (!fits)
            continue;
        p->total /= (uint32_t)n;
        p->dim[last] = divider_make(p->dim[last].by / (uint32_t)n);
        p->begin[last] /= n;
        p->extent[last] /= n;
        p->x_stride[last] = p->y_stride[last] = n;
        return n;
    }
    return 1;
}

cudaError_t kernel_pad(const struct kernel_call *call, enum ir_pad mode,
                       const struct kernel_view *x, const int64_t *pads, float value,
                       const struct kernel_view *y)
{
    pad_plan p = pad_plan();
    p.size = number_size(y->dtype);
    if (x->dtype != y->dtype || x->rank != y->rank || !pad_fill(y->dtype, value, p.fill) ||
        !pad_make(mode, x, pads, y, &p))
        return cudaErrorNotSupported;
    if (p.total == 0)
        return cudaSuccess;
    int n = pad_widen(&p, x, y);
    unsigned blocks = (unsigned)kernel_ceil_div(p.total, MAP_THREADS);
    return move_dispatch(n * p.size, [&](auto bytes) {
        typedef typename move_word<decltype(bytes)::value>::type word;
        return KERNEL_LAUNCH(pad_words<word>, blocks, MAP_THREADS, 0, call,
                             static_cast<const char *>(x->data), static_cast<char *>(y->data), p);
    });
}
