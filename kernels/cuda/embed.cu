/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What language models begin with: rows of tables that ids name, summed up. A thread has one vector
 * of a row: 16 bytes where rows begin at multiples of them, else one element. All ids are read
 * before any row, and all rows before the first sum, so that a thread waits twice for memory,
 * however many tables there are.
 */
#include <math.h>

#include "kernels/cuda/device.cuh"

namespace
{

constexpr int THREADS = 256, TABLES = KERNEL_TABLES_MAX;
constexpr int64_t LIMIT = (INT64_C(1) << 31) - THREADS;

struct table {
    const void *data, *ids;
    struct divider inner, n; /* as in kernel_table */
    int64_t rows;
    int32_t wide; /* ids are 64 bit */
};

struct embed {
    struct table table[TABLES];
    void *y;
    int32_t *bad;
    struct divider vectors; /* of a row */
    int32_t n;              /* tables */
    uint32_t total;         /* vectors of all rows */
};

/* The row of the table for row `row` of y; -1: there is none. */
__device__ __forceinline__ int64_t table_row(const table &t, uint32_t row)
{
    uint32_t at;
    divider_split(t.n, divider_quotient(t.inner, row), &at);
    if (!t.ids)
        return at;
    int64_t id =
        t.wide ? static_cast<const int64_t *>(t.ids)[at] : static_cast<const int32_t *>(t.ids)[at];
    id += id < 0 ? t.rows : 0;
    return id < t.rows ? id : -1;
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS) embed_rows(const __grid_constant__ embed e)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, at;
    uint32_t row = divider_split(e.vectors, i, &at);
    int64_t from[TABLES];
    vector<T, V> raw[TABLES];
    float sum[V];
    grid_go();
    grid_wait();
    if (i >= e.total)
        return;
#pragma unroll
    for (int k = 0; k < TABLES; k++)
        from[k] = k < e.n ? table_row(e.table[k], row) : 0;
#pragma unroll
    for (int k = 0; k < TABLES; k++)
        if (k < e.n && from[k] >= 0)
            raw[k] = vector_load<T, V>(static_cast<const T *>(e.table[k].data) +
                                       (from[k] * e.vectors.by + at) * V);
    bool strays = from[0] < 0;
#pragma unroll
    for (int j = 0; j < V; j++)
        sum[j] = number_float(raw[0].v[j]);
#pragma unroll
    for (int k = 1; k < TABLES; k++) {
        if (k >= e.n)
            break;
        strays = strays || from[k] < 0;
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] += number_float(raw[k].v[j]);
    }
    if (strays) {
        if (e.bad)
            *e.bad = KERNEL_BAD_INDEX;
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] = NAN;
    }
    vector_write<V>(static_cast<T *>(e.y) + (int64_t)i * V, sum);
}

bool table_make(const struct kernel_table *from, int64_t rows, table *to)
{
    if (from->inner < 1 || from->n < 1 || from->inner >= LIMIT || from->n >= LIMIT ||
        rows >= LIMIT ||
        (from->ids_type != DTYPE_NONE && from->ids_type != DTYPE_I32 &&
         from->ids_type != DTYPE_I64))
        return false;
    to->data = from->data;
    to->ids = from->ids_type == DTYPE_NONE ? NULL : from->ids;
    to->inner = divider_make((uint32_t)from->inner);
    to->n = divider_make((uint32_t)from->n);
    to->rows = from->rows;
    to->wide = from->ids_type == DTYPE_I64;
    return true;
}

bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

template <class T>
cudaError_t launch(const struct kernel_call *call, embed *e, int64_t rows, int64_t width)
{
    constexpr int V = 16 / sizeof(T);
    bool wide = width % V == 0 && aligned(e->y);
    for (int k = 0; k < e->n; k++)
        wide = wide && aligned(e->table[k].data);
    int64_t vectors = wide ? width / V : width;
    if (vectors >= LIMIT || (rows > 0 && vectors > LIMIT / rows))
        return cudaErrorNotSupported;
    e->vectors = divider_make((uint32_t)vectors);
    e->total = (uint32_t)(rows * vectors);
    dim3 grid((unsigned)kernel_ceil_div(e->total, THREADS));
    return wide ? kernel_launch_early(embed_rows<T, V>, grid, dim3(THREADS), 0, call, *e)
                : kernel_launch_early(embed_rows<T, 1>, grid, dim3(THREADS), 0, call, *e);
}

} // namespace

extern "C" cudaError_t kernel_embed(const struct kernel_call *call,
                                    const struct kernel_table *tables, int32_t n, int32_t dtype,
                                    int64_t rows, int64_t width, void *y, int32_t *bad)
{
    embed e = {};
    if (n < 1 || n > TABLES)
        return cudaErrorNotSupported;
    for (int k = 0; k < n; k++)
        if (!table_make(&tables[k], rows, &e.table[k]))
            return cudaErrorNotSupported;
    e.n = n;
    e.y = y;
    e.bad = bad;
    switch (dtype) {
    case DTYPE_F16:
        return launch<half_t>(call, &e, rows, width);
    case DTYPE_BF16:
        return launch<bf16_t>(call, &e, rows, width);
    case DTYPE_F32:
        return launch<float>(call, &e, rows, width);
    default:
        return cudaErrorNotSupported;
    }
}
