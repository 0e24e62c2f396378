/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recurrent layer, with all of its steps in one launch. Both directions of a layer share the
 * launch if the device holds them side by side; else one follows the other.
 *
 * The grid of a direction is `groups` times `slices` blocks, and all blocks of a launch are
 * resident. A group has some of the sequences, in tiles of 8 (or 2) columns; a block of a group has
 * `units` of the hidden units, and keeps its rows of the matrix in shared memory for all steps, as
 * far as they fit; the others it reads through L2 each time. A step of a block: take the states of
 * all units from the group's other blocks, multiply (tensor cores for 16-bit types, fp32
 * otherwise), sum over the warps, which share out the depth of the product, compute the gates of
 * its own units, and publish their states.
 *
 * States travel in packets of 8 bytes, the value (fp32, or a pair of 16 bit) and the number of the
 * exchange. A reader asks until the number is the one that it waits for, so that no barrier stands
 * between the blocks: a step costs one way to L2 and back. There are two buffers. A block publishes
 * exchange e + 2 only after it has seen all of e + 1, and so after all blocks have read all of e.
 * Packets of an earlier launch have numbers too, so a kernel clears the buffers first.
 *
 * A GRU that multiplies r * h with the matrix has two exchanges a step.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / KERNEL_WARP, GATES = 4;
constexpr int AHEAD = 4;              /* loads of 16 bytes that a lane waits for together */
constexpr int64_t SHARED = 227 << 10; /* of a block */

/* How deep a chunk of the product is: one instruction of a tensor core, or a value a lane. */
template <class T> constexpr int DEPTH = sizeof(T) == 4 ? 32 : 16;

struct plan {
    struct kernel_recurrent how;
    struct kernel_recurrent_data data;
    int32_t directions, together, first; /* together: in one launch; first: of the launch */
    int32_t gates, phases;               /* phases: exchanges a step */
    int32_t units, unit_bits, slices;
    int32_t columns, tiles, tiles_each, groups; /* tiles_each: of a group */
    int32_t rows, stride;                       /* of the block's part of the matrix; of sums */
    int32_t chunks, resident;                   /* resident: chunks that lie in shared memory */
    int32_t at_state, at_length, at_column, at_weights, shared; /* bytes in shared memory */
    int64_t packets;                                            /* of a direction */
};

/* The direction of a block: all pointers are to what it has. */
struct way {
    kernel_recurrent_data data;
    int direction;
    bool back;
};

/* --- directions --- */

template <class T> __device__ __forceinline__ const void *after(const void *from, int64_t elements)
{
    return from ? static_cast<const T *>(from) + elements : nullptr;
}

template <class T> __device__ __forceinline__ void *after(void *to, int64_t elements)
{
    return to ? static_cast<T *>(to) + elements : nullptr;
}

template <class T> __device__ __forceinline__ way way_of(const plan &p, int direction)
{
    int64_t hidden = p.how.hidden, width = p.gates * hidden, states = p.how.sequences * hidden;
    way d = {p.data, direction, p.how.way == IR_WAY_BACK || direction > 0};
    d.data.x = after<T>(p.data.x, direction * width);
    d.data.r = after<T>(p.data.r, direction * width * hidden);
    d.data.h0 = after<T>(p.data.h0, direction * states);
    d.data.c0 = after<T>(p.data.c0, direction * states);
    d.data.peephole = after<T>(p.data.peephole, direction * 3 * hidden);
    d.data.bias = after<T>(p.data.bias, direction * hidden);
    d.data.y = after<T>(p.data.y, direction * hidden);
    d.data.h = after<T>(p.data.h, direction * states);
    d.data.c = after<T>(p.data.c, direction * states);
    d.data.workspace = after<uint64_t>(p.data.workspace, direction * p.packets);
    return d;
}

/* --- packets --- */

__device__ __forceinline__ void packet_store(uint64_t *to, uint64_t packet)
{
#ifdef INFERD_EMULATE
    *to = packet;
#else
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(packet) : "memory");
#endif
}

__device__ __forceinline__ ulonglong2 packet_load(const uint64_t *from)
{
    ulonglong2 two;
#ifdef INFERD_EMULATE
    two.x = from[0];
    two.y = from[1];
#else
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(two.x), "=l"(two.y)
                 : "l"(from)
                 : "memory");
#endif
    return two;
}

/* Waits for the packets of `number`: two from each address, where `open` has bits 2i and 2i + 1. */
template <int N>
__device__ __forceinline__ void packets_wait(const uint64_t *const (&from)[N], unsigned open,
                                             uint32_t number, uint32_t (&out)[N][2])
{
    while (open) {
        ulonglong2 raw[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (open >> 2 * i & 3)
                raw[i] = packet_load(from[i]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if ((open >> 2 * i & 1) && (uint32_t)(raw[i].x >> 32) == number) {
                out[i][0] = (uint32_t)raw[i].x;
                open &= ~(1u << 2 * i);
            }
            if ((open >> 2 * i & 2) && (uint32_t)(raw[i].y >> 32) == number) {
                out[i][1] = (uint32_t)raw[i].y;
                open &= ~(2u << 2 * i);
            }
        }
#ifdef INFERD_EMULATE
        if (open)
            emulate_yield();
#endif
    }
    __syncwarp();
}

/* The packets of a tile in the buffer of an exchange. */
template <class T>
__device__ __forceinline__ uint64_t *packets_of(const plan &p, const way &d, uint32_t number,
                                                int tile)
{
    int packets = DEPTH<T> * p.columns / (sizeof(T) == 4 ? 1 : 2);
    int64_t at = (int64_t)((int)(number & 1) * p.tiles + tile) * p.chunks * packets;
    return static_cast<uint64_t *>(d.data.workspace) + at;
}

/* Publishes one unit's state of one column; 16-bit ones in pairs, for which all lanes of a warp
 * call together. Their packets lie in the order of the product's fragments. */
template <class T>
__device__ __forceinline__ void publish(const plan &p, const way &d, uint32_t number, int tile,
                                        int unit, int column, bool valid, float value)
{
    uint64_t *to = packets_of<T>(p, d, number, tile), high = (uint64_t)number << 32;
    if constexpr (sizeof(T) == 4) {
        if (valid)
            packet_store(to + (int64_t)unit * p.columns + column, high | __float_as_uint(value));
    } else {
        T mine = number_from<T>(valid ? value : 0.0f);
        uint16_t bits;
        memcpy(&bits, &mine, sizeof(bits));
        uint32_t other = __shfl_xor_sync(0xffffffffu, (uint32_t)bits, 1);
        int lane = column * 4 + unit % 8 / 2;
        if (valid && unit % 2 == 0)
            packet_store(to + (int64_t)(unit / 16 * 32 + lane) * 2 + unit % 16 / 8,
                         high | other << 16 | bits);
    }
}

/* --- the matrix --- */

/* Element (row, k) of the block's part: rows are the units of the first gate, of the second .. */
template <class T>
__device__ __forceinline__ T matrix_at(const plan &p, const way &d, int slice, int row, int k)
{
    int gate = row >> p.unit_bits, unit = slice * p.units + (row & (p.units - 1));
    if (gate >= p.gates || unit >= p.how.hidden || k >= p.how.hidden)
        return number_from<T>(0.0f);
    return static_cast<const T *>(
        d.data.r)[((int64_t)gate * p.how.hidden + unit) * p.how.hidden + k];
}

/* Register i of the lane's fragment of rows 16 m .. 16 m + 15 in a chunk. */
template <class T>
__device__ __forceinline__ uint32_t matrix_pair(const plan &p, const way &d, int slice, int m,
                                                int chunk, int lane, int i)
{
    int row = m * 16 + lane / 4 + i % 2 * 8, k = chunk * 16 + lane % 4 * 2 + i / 2 * 8;
    T pair[2] = {matrix_at<T>(p, d, slice, row, k), matrix_at<T>(p, d, slice, row, k + 1)};
    uint32_t bits;
    memcpy(&bits, pair, sizeof(bits));
    return bits;
}

/* Fragments in the order in which warps read them: [chunk][16 rows][lane][4]; fp32:
 * [chunk][k][row]. */
template <class T> __device__ void matrix_load(const plan &p, const way &d, int slice, char *memory)
{
    uint32_t *to = reinterpret_cast<uint32_t *>(memory + p.at_weights);
    int words = p.resident * p.rows * DEPTH<T> * (int)sizeof(T) / 4;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < words; i += THREADS) {
        if constexpr (sizeof(T) == 4) {
            /* Neighbouring threads read neighbours of a row of R. */
            int k = i % 32, row = i / 32 % p.rows, chunk = i / 32 / p.rows;
            to[(chunk * 32 + k) * p.rows + row] =
                __float_as_uint(matrix_at<T>(p, d, slice, row, chunk * 32 + k));
        } else {
            int lane = i / 4 % 32, m = i / 128 % (p.rows / 16), chunk = i / 128 / (p.rows / 16);
            to[i] = matrix_pair<T>(p, d, slice, m, chunk, lane, i % 4);
        }
    }
}

/* --- products: each warp has every WARPS-th chunk, and writes its sums [column][row] --- */

template <class T, int M>
__device__ __forceinline__ void multiply_16(const plan &p, const way &d, int slice, int tile,
                                            uint32_t number, const char *memory, float *sums)
{
    int lane = (int)threadIdx.x % KERNEL_WARP, warp = (int)threadIdx.x / KERNEL_WARP;
    int g = lane / 4, t = lane % 4, n_m = p.rows / 16;
    bool live = tile * 8 + g < p.how.sequences;
    const uint64_t *packets = packets_of<T>(p, d, number, tile);
    const uint4 *weights = reinterpret_cast<const uint4 *>(memory + p.at_weights);
    float acc[M][4] = {};
    for (int first = warp; first < p.chunks; first += WARPS * AHEAD) {
        const uint64_t *from[AHEAD];
        uint32_t b[AHEAD][2] = {};
        unsigned open = 0;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int chunk = first + i * WARPS, k = chunk * 16 + t * 2;
            from[i] = packets + (int64_t)(chunk * 32 + lane) * 2;
            open |= live && k < p.how.hidden ? 1u << 2 * i : 0;
            open |= live && k + 8 < p.how.hidden ? 2u << 2 * i : 0;
        }
        packets_wait<AHEAD>(from, open, number, b);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int chunk = first + i * WARPS;
            if (chunk >= p.chunks)
                break;
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (m >= n_m)
                    break;
                uint32_t a[4];
                if (chunk < p.resident) {
                    uint4 four = weights[(chunk * n_m + m) * 32 + lane];
                    a[0] = four.x, a[1] = four.y, a[2] = four.z, a[3] = four.w;
                } else {
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        a[j] = matrix_pair<T>(p, d, slice, m, chunk, lane, j);
                }
                mma_m16n8k16(T(), acc[m], a, b[i]);
            }
        }
    }
    sums += warp * 8 * p.stride;
#pragma unroll
    for (int m = 0; m < M; m++)
        for (int i = 0; m < n_m && i < 4; i++)
            sums[(t * 2 + i % 2) * p.stride + m * 16 + g + i / 2 * 8] = acc[m][i];
}

/* A lane has every 32nd row, M of them. */
template <int M, int COLUMNS>
__device__ __forceinline__ void multiply_32(const plan &p, const way &d, int slice, int tile,
                                            uint32_t number, char *memory, float *sums)
{
    constexpr int LOADS = COLUMNS / 2; /* of a lane */
    int lane = (int)threadIdx.x % KERNEL_WARP, warp = (int)threadIdx.x / KERNEL_WARP;
    const uint64_t *packets = packets_of<float>(p, d, number, tile);
    const float *weights = reinterpret_cast<const float *>(memory + p.at_weights);
    float *state = reinterpret_cast<float *>(memory + p.at_column) + warp * 32 * COLUMNS;
    float acc[M][COLUMNS] = {};
    for (int chunk = warp; chunk < p.chunks; chunk += WARPS) {
        const uint64_t *from[LOADS];
        uint32_t raw[LOADS][2] = {};
        unsigned open = 0;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int pair = i * KERNEL_WARP + lane, k = chunk * 32 + pair / LOADS;
            int column = tile * COLUMNS + pair % LOADS * 2;
            from[i] = packets + (int64_t)chunk * 32 * COLUMNS + pair * 2;
            open |= k < p.how.hidden && column < p.how.sequences ? 1u << 2 * i : 0;
            open |= k < p.how.hidden && column + 1 < p.how.sequences ? 2u << 2 * i : 0;
        }
        packets_wait<LOADS>(from, open, number, raw);
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            state[(i * KERNEL_WARP + lane) * 2] = __uint_as_float(raw[i][0]);
            state[(i * KERNEL_WARP + lane) * 2 + 1] = __uint_as_float(raw[i][1]);
        }
        __syncwarp();
        for (int k = 0; k < 32; k++) {
            vector<float, COLUMNS> h = vector_load<float, COLUMNS>(state + k * COLUMNS);
#pragma unroll
            for (int m = 0; m < M; m++) {
                int row = m * KERNEL_WARP + lane;
                if (row >= p.rows)
                    break;
                float w = chunk < p.resident ? weights[(chunk * 32 + k) * p.rows + row]
                                             : matrix_at<float>(p, d, slice, row, chunk * 32 + k);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    acc[m][c] += w * h.v[c];
            }
        }
        __syncwarp();
    }
    sums += warp * COLUMNS * p.stride;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int c = 0; c < COLUMNS && m * KERNEL_WARP < p.rows; c++)
            sums[c * p.stride + m * KERNEL_WARP + lane] = acc[m][c];
}

/* --- cells: a thread has one unit and one column of each tile --- */

struct element {
    int unit, row, column; /* row: of the unit in the first gate's sums */
    bool real;             /* there is such a unit */
    float peephole[3], bias;
};

/* What a thread carries from one phase of a step to the next. The inputs are on their way while the
 * block multiplies, so they are not looked at, not even converted, before it is done. */
template <class T> struct step_values {
    T x[GATES];
    float z;
};

__device__ __forceinline__ float load_or_zero(const plan &p, const void *from, int64_t i)
{
    return from ? number_load(p.how.dtype, from, i) : 0.0f;
}

__device__ __forceinline__ element element_of(const plan &p, const way &d, int slice)
{
    element e = {};
    e.row = (int)threadIdx.x & (p.units - 1);
    e.column = (int)threadIdx.x >> p.unit_bits;
    e.unit = slice * p.units + e.row;
    e.real = e.unit < p.how.hidden;
    for (int i = 0; i < 3 && e.real; i++)
        e.peephole[i] = load_or_zero(p, d.data.peephole, (int64_t)i * p.how.hidden + e.unit);
    e.bias = e.real ? load_or_zero(p, d.data.bias, e.unit) : 0.0f;
    return e;
}

__device__ __noinline__ float call_rare(int func, float a, float b, float x)
{
    switch (func) {
    case IR_UNARY_RELU:
        return x < 0 ? 0 : x;
    case IR_UNARY_LEAKY_RELU:
        return x < 0 ? a * x : x;
    case IR_UNARY_ELU:
        return x < 0 ? a * expm1f(x) : x;
    case IR_UNARY_THRESHOLDED_RELU:
        return x > a ? x : 0;
    case IR_UNARY_HARD_SIGMOID:
        return math_clip(a * x + b, 0.0f, 1.0f);
    case IR_UNARY_SOFTPLUS:
        return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    case IR_UNARY_SOFTSIGN:
        return x / (1 + fabsf(x));
    case IR_UNARY_LINEAR:
        return a * x + b;
    default:
        return x;
    }
}

/* Function `f` of the cell; the third one of an LSTM takes the cell state as it is. */
__device__ __forceinline__ float call(const plan &p, const way &d, int f, float x)
{
    int own = d.direction * KERNEL_CELL_FUNCTIONS + f, func = p.how.func[own];
    float clip = p.how.clip, a = p.how.alpha[own], b = p.how.beta[own];
    if (clip > 0 && f < 2)
        x = math_clip(x, -clip, clip);
    if (func == IR_UNARY_SIGMOID)
        return math_sigmoid(x);
    if (func == IR_UNARY_TANH)
        return a * tanhf(b * x);
    return call_rare(func, a, b, x);
}

/* Sums the product of one gate over the warps. */
__device__ __forceinline__ float summed(const plan &p, const element &e, const float *sums,
                                        int gate)
{
    const float *from = sums + e.column * p.stride + (gate << p.unit_bits) + e.row;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += from[w * p.columns * p.stride];
    return sum;
}

template <class T>
__device__ __forceinline__ void close_lstm(const plan &p, const way &d, const element &e,
                                           const float *sums, const step_values<T> &v, float *h,
                                           float *c)
{
    float was = *c;
    float i = call(p, d, 0, summed(p, e, sums, 0) + number_float(v.x[0]) + e.peephole[0] * was);
    float f = 1 - i;
    if (!p.how.coupled)
        f = call(p, d, 0, summed(p, e, sums, 2) + number_float(v.x[2]) + e.peephole[2] * was);
    float now = f * was + i * call(p, d, 1, summed(p, e, sums, 3) + number_float(v.x[3]));
    float o = call(p, d, 0, summed(p, e, sums, 1) + number_float(v.x[1]) + e.peephole[1] * now);
    *c = now;
    *h = o * call(p, d, 2, now);
}

/* Returns what is published: r * h before the second phase, then h. */
template <class T>
__device__ __forceinline__ float close_gru(const plan &p, const way &d, const element &e,
                                           const float *sums, int phase, step_values<T> &v,
                                           float *h)
{
    float inner;
    if (phase == 0) {
        v.z = call(p, d, 0, summed(p, e, sums, 0) + number_float(v.x[0]));
        float r = call(p, d, 0, summed(p, e, sums, 1) + number_float(v.x[1]));
        if (p.phases == 2)
            return r * *h;
        inner = number_float(v.x[2]) + r * (summed(p, e, sums, 2) + e.bias);
    } else {
        inner = summed(p, e, sums, 2) + number_float(v.x[2]);
    }
    return *h = (1 - v.z) * call(p, d, 1, inner) + v.z * *h;
}

template <class T>
__device__ __forceinline__ float close_cell(const plan &p, const way &d, const element &e,
                                            const float *sums, int phase, step_values<T> &v,
                                            float *h, float *c)
{
    if (p.how.cell == IR_RECURRENT_GRU)
        return close_gru(p, d, e, sums, phase, v, h);
    if (p.how.cell == IR_RECURRENT_LSTM)
        close_lstm(p, d, e, sums, v, h, c);
    else
        *h = call(p, d, 0, summed(p, e, sums, 0) + number_float(v.x[0]));
    return *h;
}

/* --- the kernel --- */

/* The shared memory of a block, behind the sums of the products. */
struct block_memory {
    float *h, *c;    /* [tile of the group][thread] */
    int32_t *length; /* [tile of the group][column] */
};

__device__ __forceinline__ block_memory memory_of(const plan &p, char *memory)
{
    float *state = reinterpret_cast<float *>(memory + p.at_state);
    int n = p.tiles_each * p.units * p.columns;
    return {state, state + n, reinterpret_cast<int32_t *>(memory + p.at_length)};
}

/* Reads the lengths of the group's sequences; one out of range raises *bad and counts as 0. */
__device__ void read_lengths(const plan &p, const way &d, int tile, int end, int32_t *length)
{
    int n = (end - tile) * p.columns, first = tile * p.columns;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int64_t steps = first + i < p.how.sequences ? p.how.steps : 0;
        if (d.data.lengths && steps)
            steps = p.how.lengths == DTYPE_I64
                        ? static_cast<const int64_t *>(d.data.lengths)[first + i]
                        : static_cast<const int32_t *>(d.data.lengths)[first + i];
        if (steps < 0 || steps > p.how.steps) {
            steps = 0;
            if (d.data.bad)
                *d.data.bad = KERNEL_BAD_LENGTH;
        }
        length[i] = (int32_t)steps;
    }
}

template <class T>
__device__ void begin_states(const plan &p, const way &d, const element &e, int tile, int end,
                             block_memory m)
{
    for (int at = (int)threadIdx.x; tile < end; tile++, at += p.units * p.columns) {
        int n = tile * p.columns + e.column;
        bool valid = e.real && n < p.how.sequences;
        int64_t i = (int64_t)n * p.how.hidden + e.unit;
        m.h[at] = valid ? load_or_zero(p, d.data.h0, i) : 0.0f;
        m.c[at] = valid ? load_or_zero(p, d.data.c0, i) : 0.0f;
        publish<T>(p, d, 1, tile, e.unit, e.column, valid, m.h[at]);
    }
}

template <class T>
__device__ void end_states(const plan &p, const way &d, const element &e, int tile, int end,
                           int steps, block_memory m)
{
    T *y = static_cast<T *>(d.data.y), *h = static_cast<T *>(d.data.h);
    T *c = static_cast<T *>(d.data.c);
    for (int at = (int)threadIdx.x; tile < end; tile++, at += p.units * p.columns) {
        int n = tile * p.columns + e.column;
        if (!e.real || n >= p.how.sequences)
            continue;
        int64_t i = (int64_t)n * p.how.hidden + e.unit;
        for (int64_t step = steps; step < p.how.steps; step++)
            y[(step * p.how.sequences + n) * p.directions * p.how.hidden + e.unit] =
                number_from<T>(0.0f);
        h[i] = number_from<T>(m.h[at]);
        if (c)
            c[i] = number_from<T>(m.c[at]);
    }
}

/* A thread's part of a step that all warps have multiplied for. */
template <class T>
__device__ __forceinline__ void close_step(const plan &p, const way &d, const element &e, int tile,
                                           int at, int step, int phase, uint32_t number,
                                           const float *sums, int length, step_values<T> &v,
                                           block_memory m)
{
    int n = tile * p.columns + e.column;
    bool valid = e.real && n < p.how.sequences;
    float out = m.h[at];
    if (valid && step < length)
        out = close_cell(p, d, e, sums, phase, v, &m.h[at], &m.c[at]);
    publish<T>(p, d, number + 1, tile, e.unit, e.column, valid, out);
    if (!valid || phase + 1 < p.phases)
        return;
    int position = step < length && d.back ? length - 1 - step : step;
    int64_t row = ((int64_t)position * p.how.sequences + n) * p.directions;
    static_cast<T *>(d.data.y)[row * p.how.hidden + e.unit] =
        number_from<T>(step < length ? out : 0.0f);
}

template <class T>
__device__ __forceinline__ void read_inputs(const plan &p, const way &d, const element &e, int tile,
                                            int step, int length, step_values<T> &v)
{
    if (!e.real || step >= length)
        return;
    int position = d.back ? length - 1 - step : step;
    int64_t row = (int64_t)position * p.how.sequences + tile * p.columns + e.column;
    row *= p.directions;
#pragma unroll
    for (int g = 0; g < GATES; g++)
        if (g < p.gates)
            v.x[g] = static_cast<const T *>(d.data.x)[(row * p.gates + g) * p.how.hidden + e.unit];
}

template <class T, int M, int COLUMNS>
__global__ void __launch_bounds__(THREADS, 1) recurrent_kernel(const __grid_constant__ plan p)
{
    KERNEL_SHARED(char, memory);
    int slice = (int)blockIdx.x % p.slices, group = (int)blockIdx.x / p.slices % p.groups;
    way d = way_of<T>(p, p.first + (int)blockIdx.x / (p.slices * p.groups));
    int first = group * p.tiles_each, end = min(first + p.tiles_each, p.tiles), steps = 0;
    bool mine = (int)threadIdx.x < p.units * COLUMNS; /* of one type within a warp, if 16 bit */
    block_memory m = memory_of(p, memory);
    element e = element_of(p, d, slice);
    if (mine)
        begin_states<T>(p, d, e, first, end, m);
    read_lengths(p, d, first, end, m.length);
    matrix_load<T>(p, d, slice, memory);
    __syncthreads();
    for (int i = 0; i < (end - first) * COLUMNS; i++)
        steps = max(steps, (int)m.length[i]);
    uint32_t number = 1;
    int turn = 0;
    for (int step = 0; step < steps; step++, number += (uint32_t)p.phases)
        for (int tile = first; tile < end; tile++) {
            int length = mine ? m.length[(tile - first) * COLUMNS + e.column] : 0;
            step_values<T> v;
            if (mine)
                read_inputs<T>(p, d, e, tile, step, length, v);
            for (int phase = 0; phase < p.phases; phase++, turn ^= 1) {
                /* The sums of the pass before may still be read: there are two sets of them. */
                float *sums = reinterpret_cast<float *>(memory) + turn * WARPS * COLUMNS * p.stride;
                if constexpr (sizeof(T) == 4)
                    multiply_32<M, COLUMNS>(p, d, slice, tile, number + phase, memory, sums);
                else
                    multiply_16<T, M>(p, d, slice, tile, number + phase, memory, sums);
                __syncthreads();
                if (mine)
                    close_step<T>(p, d, e, tile,
                                  (tile - first) * p.units * COLUMNS + (int)threadIdx.x, step,
                                  phase, number + phase, sums, length, v, m);
            }
        }
    if (mine)
        end_states<T>(p, d, e, first, end, steps, m);
}

__global__ void __launch_bounds__(THREADS) clear_packets(uint4 *packets, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        packets[i] = make_uint4(0, 0, 0, 0);
}

/* --- launching --- */

int32_t up_to(int64_t n, int64_t multiple)
{
    return (int32_t)(kernel_ceil_div(n, multiple) * multiple);
}

/* Lays out a block's shared memory. False: not even the states fit. */
bool plan_memory(plan *p)
{
    bool wide = p->how.dtype == DTYPE_F32;
    int64_t states = (int64_t)p->tiles_each * p->units * p->columns * 2 * 4;
    int64_t lengths = (int64_t)p->tiles_each * p->columns * 4;
    int64_t at = (int64_t)2 * WARPS * p->columns * p->stride * 4;
    if (states > SHARED || lengths > SHARED)
        return false;
    p->at_state = (int32_t)at;
    p->at_length = p->at_state + (int32_t)states;
    p->at_column = up_to(p->at_length + lengths, 16);
    p->at_weights = p->at_column + (wide ? WARPS * 32 * p->columns * 4 : 0);
    int64_t chunk = (int64_t)p->rows * (wide ? 32 * 4 : 16 * 2);
    int64_t room = (SHARED - p->at_weights) / chunk;
    p->resident = (int32_t)(room < p->chunks ? room : p->chunks);
    p->shared = p->at_weights + (int32_t)(p->resident * chunk);
    return room >= 0;
}

/* Fills in the plan for blocks of so many units, and so many directions in a launch. */
bool plan_make(const struct kernel_call *call, const struct kernel_recurrent *how, int unit_bits,
               int together, plan *p)
{
    int64_t blocks = kernel_multiprocessors(call) / together;
    bool wide = how->dtype == DTYPE_F32, gru = how->cell == IR_RECURRENT_GRU;
    *p = plan();
    p->how = *how;
    p->directions = ir_way_directions((enum ir_way)how->way);
    p->together = together;
    p->gates = how->cell == IR_RECURRENT_LSTM ? 4 : gru ? 3 : 1;
    p->phases = gru && !how->linear ? 2 : 1;
    p->unit_bits = unit_bits;
    p->units = 1 << unit_bits;
    p->slices = (int32_t)kernel_ceil_div(how->hidden, p->units);
    p->columns = wide && how->sequences <= 2 ? 2 : 8;
    p->tiles = (int32_t)kernel_ceil_div(how->sequences, p->columns);
    if (p->slices > blocks)
        return false;
    p->tiles_each = (int32_t)kernel_ceil_div(p->tiles, blocks / p->slices);
    p->groups = (int32_t)kernel_ceil_div(p->tiles, p->tiles_each);
    p->rows = up_to((int64_t)p->gates * p->units, wide ? 32 : 16);
    p->stride = p->rows + 4; /* so that lanes write to different banks */
    p->chunks = (int32_t)kernel_ceil_div(how->hidden, wide ? 32 : 16);
    p->packets = (int64_t)2 * p->chunks * p->tiles * p->columns * (wide ? 32 : 8);
    return plan_memory(p);
}

/* Clocks of a step, roughly: reading the matrix from shared memory or L2 and multiplying, for each
 * tile, but at least one exchange between the blocks. */
int64_t plan_cost(const plan *p)
{
    bool wide = p->how.dtype == DTYPE_F32;
    int64_t bytes = (int64_t)p->rows * (wide ? 32 * 4 : 16 * 2), out = p->chunks - p->resident;
    int64_t work = 400 + p->resident * bytes / 128 + out * bytes / 32;
    if (wide)
        work += (int64_t)p->rows * p->chunks * 32 * p->columns / 128;
    int64_t all = work * p->tiles_each;
    return (all > 1200 + work ? all : 1200 + work) * (p->directions / p->together);
}

bool plan_choose(const struct kernel_call *call, const struct kernel_recurrent *how, plan *best)
{
    bool found = false;
    plan p;
    if (how->steps < 1 || how->sequences < 1 || how->hidden < 1 || how->steps >= 1 << 30 ||
        how->hidden > 1 << 20 || how->sequences > 1 << 20)
        return false;
    for (int together = ir_way_directions((enum ir_way)how->way); together > 0; together--)
        for (int bits = 3; bits <= 5; bits++)
            if ((call->variant == 0 || call->variant == 1 << bits) &&
                plan_make(call, how, bits, together, &p) &&
                (!found || plan_cost(&p) < plan_cost(best))) {
                found = true;
                *best = p;
            }
    return found;
}

int64_t packet_bytes(const plan *p)
{
    return p->directions * p->packets * (int64_t)sizeof(uint64_t);
}

template <class T, int M, int COLUMNS>
cudaError_t launch_kernel(const struct kernel_call *call, const plan &p)
{
    cudaError_t code = cudaSuccess;
    plan part = p;
    for (; part.first < p.directions && code == cudaSuccess; part.first += p.together)
        code = kernel_launch_together(recurrent_kernel<T, M, COLUMNS>,
                                      (unsigned)(p.slices * p.groups * p.together), THREADS,
                                      (size_t)p.shared, call, part);
    return code;
}

template <class T> cudaError_t launch_16(const struct kernel_call *call, const plan &p)
{
    return p.rows <= 32   ? launch_kernel<T, 2, 8>(call, p)
           : p.rows <= 64 ? launch_kernel<T, 4, 8>(call, p)
                          : launch_kernel<T, 8, 8>(call, p);
}

template <int COLUMNS> cudaError_t launch_32(const struct kernel_call *call, const plan &p)
{
    return p.rows <= 32   ? launch_kernel<float, 1, COLUMNS>(call, p)
           : p.rows <= 64 ? launch_kernel<float, 2, COLUMNS>(call, p)
                          : launch_kernel<float, 4, COLUMNS>(call, p);
}

} // namespace

int64_t kernel_recurrent_workspace(const struct kernel_call *call,
                                   const struct kernel_recurrent *how)
{
    plan p;
    return plan_choose(call, how, &p) ? packet_bytes(&p) : 0;
}

cudaError_t kernel_recurrent(const struct kernel_call *call, const struct kernel_recurrent *how,
                             const struct kernel_recurrent_data *data)
{
    plan p;
    if (!number_is_short_float(how->dtype) || !plan_choose(call, how, &p))
        return cudaErrorNotSupported;
    int64_t n = packet_bytes(&p) / (int64_t)sizeof(uint4);
    if (n >= INT64_C(1) << 31)
        return cudaErrorNotSupported;
    if (data)
        p.data = *data;
    cudaError_t code = KERNEL_LAUNCH(clear_packets, (unsigned)kernel_ceil_div(n, THREADS), THREADS,
                                     0, call, static_cast<uint4 *>(p.data.workspace), (uint32_t)n);
    if (code != cudaSuccess)
        return code;
    switch (how->dtype) {
    case DTYPE_F16:
        return launch_16<half_t>(call, p);
    case DTYPE_BF16:
        return launch_16<bf16_t>(call, p);
    default:
        return p.columns == 2 ? launch_32<2>(call, p) : launch_32<8>(call, p);
    }
}
