/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing where an index tensor says, and what is made of positions alone (one-hot
 * rows, triangles).
 *
 * Gathers and scatters see X as slots of `part` neighbours; each row of the indices names one.
 * A scatter whose rows name a slot twice gives what the reference gives, which takes the rows in
 * their order: a first kernel finds out for each slot which row is the last one, or which is the
 * first and how many there are, and a second one lets the last row write, or the first row take all
 * of them one after the other. So no sum depends on the order in which threads run.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/number.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int64_t LIMIT = INT64_C(1) << 31;

struct rows {
    uint32_t n, words; /* words: of a slot, of the size that is moved at a time */
    int32_t rank, size, wide;
    struct divider dim[KERNEL_RANK_MAX];
    int32_t base[KERNEL_RANK_MAX];
    int32_t numbers; /* of an index */
    int32_t extent[KERNEL_RANK_MAX], stride[KERNEL_RANK_MAX];
    uint32_t fill[2]; /* 8 bytes that stand in for a slot that does not exist */
    const void *indices;
    int32_t *bad;
};

/* The element of X where the slot of row `i` begins; -1: there is none. */
__device__ __forceinline__ int32_t row_target(const rows &r, uint32_t i)
{
    int32_t at = 0;
    uint32_t rest = i;
    for (int d = r.rank - 1; d >= 0; d--) {
        uint32_t index;
        rest = divider_split(r.dim[d], rest, &index);
        at += (int32_t)index * r.base[d];
    }
    for (int k = 0; k < r.numbers; k++) {
        int64_t j = (int64_t)i * r.numbers + k;
        int64_t index = r.wide ? static_cast<const int64_t *>(r.indices)[j]
                               : static_cast<const int32_t *>(r.indices)[j];
        index += index < 0 ? r.extent[k] : 0;
        if (index < 0 || index >= r.extent[k]) {
            if (r.bad)
                *r.bad = KERNEL_BAD_INDEX;
            return -1;
        }
        at += (int32_t)index * r.stride[k];
    }
    return at;
}

template <class W>
__global__ void __launch_bounds__(THREADS)
    gather_slots(const char *x, char *y, const __grid_constant__ rows r, struct divider words)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, word;
    if (i >= r.n * r.words)
        return;
    uint32_t row = divider_split(words, i, &word);
    int32_t at = row_target(r, row);
    W value;
    if (at >= 0) {
        value = reinterpret_cast<const W *>(x + (int64_t)at * r.size)[word];
    } else {
        uint32_t raw[4] = {r.fill[0], r.fill[1], r.fill[0], r.fill[1]};
        memcpy(&value, raw, sizeof(value));
    }
    reinterpret_cast<W *>(y)[i] = value;
}

/* --- scatters --- */

__global__ void __launch_bounds__(THREADS) fill_slots(int32_t *to, int32_t value, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = value;
}

/* `count` NULL: owner becomes the slot's last row, else its first one. */
__global__ void __launch_bounds__(THREADS)
    mark_slots(int32_t *owner, int32_t *count, struct divider part, const __grid_constant__ rows r)
{
    uint32_t row = blockIdx.x * THREADS + threadIdx.x;
    int32_t at = row < r.n ? row_target(r, row) : -1;
    if (at < 0)
        return;
    uint32_t slot = divider_quotient(part, (uint32_t)at);
    if (count) {
        atomicMin(&owner[slot], (int32_t)row);
        atomicAdd(&count[slot], 1);
    } else {
        atomicMax(&owner[slot], (int32_t)row);
    }
}

template <class W>
__global__ void __launch_bounds__(THREADS)
    put_slots(const char *updates, char *y, const int32_t *owner, struct divider part,
              const __grid_constant__ rows r, struct divider words)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, word;
    if (i >= r.n * r.words)
        return;
    uint32_t row = divider_split(words, i, &word);
    int32_t at = row_target(r, row);
    if (at >= 0 && owner[divider_quotient(part, (uint32_t)at)] == (int32_t)row)
        reinterpret_cast<W *>(y + (int64_t)at * r.size)[word] =
            reinterpret_cast<const W *>(updates)[i];
}

__device__ inline void combine(int func, int dtype, void *y, int64_t at, const void *from,
                               int64_t i)
{
    if (number_is_float(dtype))
        number_put<double>(dtype, y, at,
                           math_binary<double>(func, number_get<double>(dtype, y, at),
                                               number_get<double>(dtype, from, i)));
    else
        number_put<int64_t>(dtype, y, at,
                            number_int_binary(func, false, dtype == DTYPE_U64,
                                              number_get<int64_t>(dtype, y, at),
                                              number_get<int64_t>(dtype, from, i)));
}

/* A thread has one element of the slot whose first row is its own. */
__global__ void __launch_bounds__(THREADS)
    combine_slots(int func, int dtype, const void *updates, void *y, const int32_t *owner,
                  const int32_t *count, struct divider part, const __grid_constant__ rows r)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, element;
    if (i >= r.n * part.by)
        return;
    uint32_t row = divider_split(part, i, &element);
    int32_t at = row_target(r, row);
    if (at < 0)
        return;
    uint32_t slot = divider_quotient(part, (uint32_t)at);
    if (owner[slot] != (int32_t)row)
        return;
    for (int32_t left = count[slot]; left > 0 && row < r.n; row++)
        if (row_target(r, row) == at) {
            combine(func, dtype, y, (int64_t)at + element, updates,
                    (int64_t)row * part.by + element);
            left--;
        }
}

/* --- launching --- */

/* NaNs of the type; zeros if it has none. */
void bad_fill(int dtype, uint32_t *out)
{
    uint32_t low = dtype == DTYPE_F16    ? 0x7e007e00u
                   : dtype == DTYPE_BF16 ? 0x7fc07fc0u
                   : dtype == DTYPE_F32  ? 0x7fc00000u
                                         : 0;
    out[0] = low;
    out[1] = dtype == DTYPE_F64 ? 0x7ff80000u : low;
}

bool rows_make(const struct kernel_index *index, int dtype, rows *r)
{
    *r = rows();
    int64_t n = 1;
    for (int d = 0; d < index->rank; d++)
        n = n >= LIMIT ? LIMIT : n * index->dim[d];
    r->size = number_size(dtype);
    if (r->size == 0 || n >= LIMIT || index->part >= LIMIT || n * index->part >= LIMIT ||
        index->size >= LIMIT || (index->dtype != DTYPE_I64 && index->dtype != DTYPE_I32))
        return false;
    r->n = (uint32_t)n;
    r->wide = index->dtype == DTYPE_I64;
    r->rank = index->rank;
    for (int d = 0; d < index->rank; d++) {
        r->dim[d] = divider_make((uint32_t)index->dim[d]);
        r->base[d] = (int32_t)index->base[d];
    }
    r->numbers = index->numbers;
    for (int k = 0; k < index->numbers; k++) {
        r->extent[k] = (int32_t)index->extent[k];
        r->stride[k] = (int32_t)index->stride[k];
    }
    bad_fill(dtype, r->fill);
    return true;
}

/* The bytes that a thread moves: they divide a slot, and both sides are aligned to them. */
int word_bytes(const struct kernel_index *index, int size, const void *x, const void *y)
{
    int bytes = 16;
    while (bytes > size && (index->part * size % bytes || (uintptr_t)x % (uintptr_t)bytes ||
                            (uintptr_t)y % (uintptr_t)bytes))
        bytes /= 2;
    return bytes;
}

/* Calls launch(word) with a word of so many bytes. */
template <class L> cudaError_t by_word(int bytes, L launch)
{
    switch (bytes) {
    case 1:
        return launch(uint8_t());
    case 2:
        return launch(uint16_t());
    case 4:
        return launch(uint32_t());
    case 8:
        return launch(uint2());
    default:
        return launch(uint4());
    }
}

unsigned blocks_for(int64_t n)
{
    return (unsigned)kernel_ceil_div(n, THREADS);
}

int64_t slots_of(const struct kernel_index *index)
{
    return index->part > 0 ? index->size / index->part : 0;
}

/* Makes the owners, and the counts behind them. */
cudaError_t mark(const struct kernel_call *call, const struct kernel_index *index, bool counts,
                 const rows &r, int32_t *owner)
{
    uint32_t slots = (uint32_t)slots_of(index);
    int32_t *count = counts && owner ? owner + slots : NULL;
    cudaError_t code = KERNEL_LAUNCH(fill_slots, blocks_for(slots), THREADS, 0, call, owner,
                                     counts ? INT32_MAX : -1, slots);
    if (code == cudaSuccess && counts)
        code = KERNEL_LAUNCH(fill_slots, blocks_for(slots), THREADS, 0, call, count, 0, slots);
    if (code != cudaSuccess)
        return code;
    return KERNEL_LAUNCH(mark_slots, blocks_for(r.n), THREADS, 0, call, owner, count,
                         divider_make((uint32_t)index->part), r);
}

const int combine_with[] = {-1, IR_BINARY_ADD, IR_BINARY_MUL, IR_BINARY_MAX, IR_BINARY_MIN};

/* --- one-hot rows, triangles --- */

template <class W>
__global__ void __launch_bounds__(THREADS)
    one_hot(const void *indices, int dtype, const W *values, W *y, uint32_t n, struct divider inner,
            struct divider depth)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, at, d;
    if (i >= n)
        return;
    uint32_t outer = divider_split(depth, divider_split(inner, i, &at), &d);
    int64_t index = number_get<int64_t>(dtype, indices, (int64_t)outer * inner.by + at);
    y[i] = values[index == (int64_t)d || index == (int64_t)d - (int64_t)depth.by];
}

template <class W>
__global__ void __launch_bounds__(THREADS)
    trilu(const W *x, W *y, uint32_t n, bool upper, int64_t k, struct divider columns,
          struct divider rows)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, row, column;
    if (i >= n)
        return;
    divider_split(rows, divider_split(columns, i, &column), &row);
    int64_t off = (int64_t)column - (int64_t)row;
    y[i] = (upper ? off >= k : off <= k) ? x[i] : W();
}

} // namespace

cudaError_t kernel_gather_slots(const struct kernel_call *call, const struct kernel_index *index,
                                int32_t dtype, const void *x, const void *indices, void *y,
                                int32_t *bad)
{
    rows r;
    if (!rows_make(index, dtype, &r))
        return cudaErrorNotSupported;
    int bytes = word_bytes(index, r.size, x, y);
    r.words = (uint32_t)(index->part * r.size / bytes);
    r.indices = indices;
    r.bad = bad;
    return by_word(bytes, [&](auto word) {
        return KERNEL_LAUNCH(gather_slots<decltype(word)>, blocks_for((int64_t)r.n * r.words),
                             THREADS, 0, call, static_cast<const char *>(x), static_cast<char *>(y),
                             r, divider_make(r.words));
    });
}

int64_t kernel_scatter_workspace(const struct kernel_index *index, enum ir_scatter func)
{
    return slots_of(index) * (func == IR_SCATTER_SET ? 4 : 8);
}

cudaError_t kernel_scatter_slots(const struct kernel_call *call, const struct kernel_index *index,
                                 enum ir_scatter func, int32_t dtype, const void *indices,
                                 const void *updates, void *y, void *workspace, int32_t *bad)
{
    rows r;
    bool set = func == IR_SCATTER_SET;
    if (!rows_make(index, dtype, &r) || (uint32_t)func >= IR_SCATTER_COUNT_)
        return cudaErrorNotSupported;
    if (r.n == 0 || index->part == 0)
        return cudaSuccess;
    r.indices = indices;
    r.bad = bad;
    int32_t *owner = static_cast<int32_t *>(workspace);
    struct divider part = divider_make((uint32_t)index->part);
    cudaError_t code = mark(call, index, !set, r, owner);
    if (code != cudaSuccess)
        return code;
    if (!set)
        return KERNEL_LAUNCH(combine_slots, blocks_for((int64_t)r.n * part.by), THREADS, 0, call,
                             combine_with[func], dtype, updates, y, owner,
                             owner ? owner + slots_of(index) : NULL, part, r);
    int bytes = word_bytes(index, r.size, updates, y);
    r.words = (uint32_t)(index->part * r.size / bytes);
    return by_word(bytes, [&](auto word) {
        return KERNEL_LAUNCH(put_slots<decltype(word)>, blocks_for((int64_t)r.n * r.words), THREADS,
                             0, call, static_cast<const char *>(updates), static_cast<char *>(y),
                             owner, part, r, divider_make(r.words));
    });
}

cudaError_t kernel_one_hot(const struct kernel_call *call, const struct kernel_axis *axis,
                           int32_t index_type, const void *indices, int32_t dtype,
                           const void *values, void *y)
{
    int64_t n = axis->outer * axis->dim * axis->inner;
    int size = number_size(dtype);
    if (size == 0 || n >= LIMIT || axis->dim >= LIMIT)
        return cudaErrorNotSupported;
    return by_word(size, [&](auto word) {
        typedef decltype(word) W;
        return KERNEL_LAUNCH(one_hot<W>, blocks_for(n), THREADS, 0, call, indices, index_type,
                             static_cast<const W *>(values), static_cast<W *>(y), (uint32_t)n,
                             divider_make((uint32_t)axis->inner),
                             divider_make((uint32_t)axis->dim));
    });
}

cudaError_t kernel_trilu(const struct kernel_call *call, const struct kernel_axis *axis, bool upper,
                         int64_t k, int32_t dtype, const void *x, void *y)
{
    int64_t n = axis->outer * axis->dim * axis->inner;
    int size = number_size(dtype);
    if (size == 0 || n >= LIMIT)
        return cudaErrorNotSupported;
    return by_word(size, [&](auto word) {
        typedef decltype(word) W;
        return KERNEL_LAUNCH(trilu<W>, blocks_for(n), THREADS, 0, call, static_cast<const W *>(x),
                             static_cast<W *>(y), (uint32_t)n, upper, k,
                             divider_make((uint32_t)axis->inner),
                             divider_make((uint32_t)axis->dim));
    });
}
