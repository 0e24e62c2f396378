/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma: products of a warpgroup, 64 rows of A with n columns of B, 32 bytes of K (16 numbers of 16
 * bits, or 32 of 8). The kernels' manual for fragments and descriptors is kernels/cuda/hopper.cuh.
 */
#include "tests/emulate/async.h"
#include "tests/emulate/emulate.h"

#include <cmath>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { WARPGROUP = 128, ROWS = 64, STEP = 32, K_MOST = 32, N_MOST = 256 };

static bool is_integer(int type)
{
    return type == EMULATE_S8 || type == EMULATE_U8_S8 || type == EMULATE_S8_U8;
}

static int size_of(int type)
{
    return type == EMULATE_F16 || type == EMULATE_BF16 ? 2 : 1;
}

/* --- operands in shared memory --- */

struct operand {
    uint32_t start, lead, stride;
    int swizzle; /* bytes of a line; 0: none */
};

static struct operand operand_of(uint64_t descriptor)
{
    static const int lines[4] = {0, 128, 64, 32};
    struct operand o = {(uint32_t)(descriptor & 0x3fff) << 4,
                        (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                        (uint32_t)(descriptor >> 32 & 0x3fff) << 4, lines[descriptor >> 62]};
    if (descriptor & ~UINT64_C(0xc0003fff3fff3fff))
        emulate_fail("a descriptor with a base offset, or with bits that mean nothing");
    return o;
}

/* The address of 16 bytes of K of row `r`; K-major. */
static uint32_t place(const struct operand &o, int r, int byte)
{
    uint32_t row = (uint32_t)r, k = (uint32_t)byte;
    if (!o.swizzle)
        return o.start + row / 8 * o.stride + row % 8 * 16 + k / 16 * o.lead + k % 16;
    uint32_t line = (uint32_t)o.swizzle;
    return async_swizzle(o.start + row / 8 * o.stride + row % 8 * line + k, o.swizzle);
}

/* The address of 8 neighbouring columns from `column` on of row `k` of a transposed B, 16 bit. */
static uint32_t place_transposed(const struct operand &o, int column, int k)
{
    if (!o.swizzle)
        emulate_fail("a transposed operand without a swizzle");
    uint32_t line = (uint32_t)o.swizzle, wide = line / 2, c = (uint32_t)column, row = (uint32_t)k;
    return async_swizzle(o.start + c / wide * o.lead + row / 8 * o.stride + row % 8 * line +
                             c % wide * 2,
                         o.swizzle);
}

/* Rows `first` to `last` as STEP bytes each, K in order. */
static void gather(struct async *a, uint64_t descriptor, int first, int last, char *to)
{
    struct operand o = operand_of(descriptor);
    for (int r = first; r < last; r++)
        for (int k = 0; k < STEP; k += 16)
            async_read(a, place(o, r, k), to + (r - first) * STEP + k, 16);
}

static void gather_transposed(struct async *a, uint64_t descriptor, int n, char *to)
{
    struct operand o = operand_of(descriptor);
    for (int k = 0; k < 16; k++)
        for (int c = 0; c < n; c += 8) {
            char eight[16];
            async_read(a, place_transposed(o, c, k), eight, sizeof(eight));
            for (int i = 0; i < 8; i++)
                memcpy(to + (c + i) * STEP + k * 2, eight + i * 2, 2);
        }
}

static void gather_b(struct async *a, const struct async_product &p, char *to)
{
    if (p.transposed)
        gather_transposed(a, p.b, p.n, to);
    else
        gather(a, p.b, 0, p.n, to);
}

/* --- numbers --- */

static float e4m3_of(unsigned char v)
{
    int exponent = v >> 3 & 15, mantissa = v & 7;
    float f = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7)
                       : ldexpf((float)mantissa / 8, -6);
    if ((v & 0x7f) == 0x7f)
        f = NAN;
    return v & 0x80 ? -f : f;
}

/* Each of the 256 or 65,536 values that an element of the operand has, as a number. */
static const float *table_of(int type, bool of_a)
{
    static std::vector<float> tables[EMULATE_TYPES][2];
    std::vector<float> &table = tables[type][of_a];
    if (!table.empty())
        return table.data();
    bool is_unsigned = type == (of_a ? EMULATE_U8_S8 : EMULATE_S8_U8);
    table.resize(size_of(type) == 2 ? 65536 : 256);
    for (size_t i = 0; i < table.size(); i++) {
        uint32_t wide = (uint32_t)i << 16;
        if (type == EMULATE_F16)
            table[i] = __half2float(__ushort_as_half((unsigned short)i));
        else if (type == EMULATE_BF16)
            memcpy(&table[i], &wide, sizeof(wide));
        else if (type == EMULATE_E4M3)
            table[i] = e4m3_of((unsigned char)i);
        else
            table[i] = is_unsigned ? (float)i : (float)(signed char)(unsigned char)i;
    }
    return table.data();
}

/* Row of STEP bytes as numbers, `step` floats apart. */
static void numbers(const float *table, int size, const char *row, float *to, int step)
{
    for (int i = 0; i < STEP / size; i++) {
        unsigned low = (unsigned char)row[i * size];
        unsigned high = size == 2 ? (unsigned char)row[i * size + 1] : 0;
        to[i * step] = table[high << 8 | low];
    }
}

/* --- issuing --- */

static struct async_product *product_at(struct async_group *g, int index)
{
    auto it = g->products.begin();
    for (int i = g->dropped; i < index; i++)
        ++it;
    return &*it;
}

/* Whether another product with the same accumulators is under way in this thread. */
static bool chained(struct async_group *g, int t, const void *d)
{
    for (int i = g->taken[t]; i < g->issued[t]; i++)
        if (product_at(g, i)->d[t] == d)
            return true;
    return false;
}

static bool n_fits(int type, int n)
{
    bool known = n >= 8 && n <= N_MOST && n % 8 == 0;
    return known && (!is_integer(type) || n % 16 == 0 || n == 8 || n == 24);
}

static struct async_product product_of(int type, int n, uint64_t a, bool registers, uint64_t b,
                                       bool transposed, bool keep)
{
    struct async_product p = {};
    if (!n_fits(type, n) || (transposed && size_of(type) != 2))
        emulate_fail("wgmma: there is no such form");
    p.type = type;
    p.n = n;
    p.a = a;
    p.b = b;
    p.keep = keep;
    p.registers = registers;
    p.transposed = transposed;
    p.left = WARPGROUP;
    p.bytes_b.resize((size_t)n * STEP);
    gather_b(async_now(), p, p.bytes_b.data());
    p.numbers_b.resize((size_t)n * K_MOST);
    p.numbers_a.resize(ROWS * K_MOST);
    p.sums.resize((size_t)WARPGROUP * n / 2);
    const float *table = table_of(type, false);
    for (int i = 0; i < n; i++) /* a thread has two columns of 8 */
        numbers(table, size_of(type), &p.bytes_b[(size_t)i * STEP],
                &p.numbers_b[(size_t)(i % 8 / 2 * K_MOST * (n / 4) + i / 8 * 2 + i % 2)], n / 4);
    if (!registers) {
        p.bytes_a.resize(ROWS * STEP);
        gather(async_now(), a, 0, ROWS, p.bytes_a.data());
    }
    return p;
}

static uint32_t *sums_of(struct async_product *p, int t)
{
    return p->sums.data() + t * (p->n / 2);
}

static struct async_group *group_now(int *t)
{
    *t = async_thread() % WARPGROUP;
    return &async_now()->groups[(size_t)(async_thread() / WARPGROUP)];
}

void emulate_wgmma(int type, int n, void *d, uint64_t a, const uint32_t *fragment, uint64_t b,
                   bool transposed, bool keep)
{
    int t;
    struct async_group *g = group_now(&t);
    bool follows = chained(g, t, d);
    if (!follows && !g->fenced[t])
        emulate_fail("wgmma without wgmma.fence before it");
    if (g->issued[t] - g->dropped == (int)g->products.size()) {
        g->products.push_back(product_of(type, n, a, fragment, b, transposed, keep));
        g->products.back().group = g->committed[t];
    }
    struct async_product *p = product_at(g, g->issued[t]);
    if (p->type != type || p->n != n || p->a != a || p->b != b || p->keep != keep ||
        p->registers != (fragment != nullptr) || p->transposed != transposed ||
        p->group != g->committed[t])
        emulate_fail("wgmma: the threads of a warpgroup disagree");
    p->d[t] = d;
    p->fragment[t] = fragment;
    if (fragment)
        memcpy(p->was[t], fragment, sizeof(p->was[t]));
    p->ready[t] = !keep || !follows;
    if (keep && !follows)
        memcpy(sums_of(p, t), d, (size_t)n / 2 * 4);
    for (int i = 0; i < n / 2; i++) { /* NaN, and no small integer, until waited for */
        uint32_t poison = 0x7fc0dead;
        memcpy(static_cast<char *>(d) + i * 4, &poison, sizeof(poison));
    }
    g->issued[t]++;
}

void emulate_wgmma_fence(void)
{
    int t;
    if (async_left_out("wgmma.fence", __builtin_return_address(0)))
        return;
    struct async_group *g = group_now(&t);
    g->fenced[t] = true;
}

void emulate_wgmma_commit(void)
{
    int t;
    if (async_left_out("wgmma.commit_group", __builtin_return_address(0)))
        return;
    struct async_group *g = group_now(&t);
    g->committed[t]++;
}

/* --- results --- */

/* The rows of A that the thread's warp has, 16 of STEP bytes, from fragments or from memory. */
static void rows_of_a(const struct async_product &p, int t, char *to)
{
    int warp = t / 32;
    if (!p.registers) {
        memcpy(to, &p.bytes_a[(size_t)warp * 16 * STEP], 16 * STEP);
        return;
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) /* rows g and g + 8; bytes 4t and 4t + 16 */
            memcpy(to + (lane / 4 + (i & 1) * 8) * STEP + lane % 4 * 4 + (i >> 1) * 16,
                   &p.was[warp * 32 + lane][i], 4);
}

static void check_unchanged(const struct async_product &p, int t)
{
    std::vector<char> now((size_t)p.n * STEP), rows(16 * STEP);
    gather_b(async_now(), p, now.data());
    if (now != p.bytes_b)
        emulate_fail("B changed while a product read it");
    if (p.registers)
        return;
    int first = t / 32 * 16;
    gather(async_now(), p.a, first, first + 16, rows.data());
    if (memcmp(rows.data(), &p.bytes_a[(size_t)first * STEP], rows.size()) != 0)
        emulate_fail("A changed while a product read it");
}

/* Adds a row of A times the thread's columns of B, each in the order of K. */
static void dots(const float *a, const float *b, int steps, int columns, float *sums)
{
    for (int k = 0; k < steps; k++)
        for (int c = 0; c < columns; c++)
            sums[c] += a[k] * b[k * columns + c];
}

/* Sums are two rows of the thread's columns; registers hold pairs of columns, row by row. */
static void keep_sums(bool integers, bool keep, const float (*sums)[N_MOST / 4], int columns,
                      uint32_t *to)
{
    for (int c = 0; c < columns; c++)
        for (int up = 0; up < 2; up++) {
            uint32_t *at = to + c / 2 * 4 + up * 2 + c % 2;
            float sum = sums[up][c], before;
            if (integers) {
                *at = (keep ? *at : 0) + (uint32_t)(int32_t)sum;
                continue;
            }
            __builtin_memcpy(&before, at, sizeof(before)); /* these are no memory of a kernel's */
            sum += keep ? before : 0;
            __builtin_memcpy(at, &sum, sizeof(sum));
        }
}

static void multiply(struct async_product *p, int t)
{
    int warp = t / 32, size = size_of(p->type), columns = p->n / 4;
    float *a = p->numbers_a.data() + warp * 16 * K_MOST;
    if (!p->has_a[warp]) {
        char rows[16 * STEP];
        rows_of_a(*p, t, rows);
        for (int i = 0; i < 16; i++)
            numbers(table_of(p->type, true), size, rows + i * STEP, a + i * K_MOST, 1);
        p->has_a[warp] = true;
    }
    const float *b = p->numbers_b.data() + t % 4 * K_MOST * columns;
    float sums[2][N_MOST / 4] = {};
    for (int up = 0; up < 2; up++)
        dots(a + (t % 32 / 4 + up * 8) * K_MOST, b, STEP / size, columns, sums[up]);
    keep_sums(is_integer(p->type), p->keep, sums, columns, sums_of(p, t));
}

/* Brings the thread's sums to its registers, or to the next product that goes on with them. */
static void hand_over(struct async_group *g, struct async_product *p, int t)
{
    for (int i = g->taken[t] + 1; i < g->issued[t]; i++) {
        struct async_product *next = product_at(g, i);
        if (next->d[t] != p->d[t])
            continue;
        if (next->n != p->n)
            emulate_fail("wgmma: products of different widths have the same accumulators");
        if (!next->ready[t])
            memcpy(sums_of(next, t), sums_of(p, t), (size_t)p->n / 2 * 4);
        next->ready[t] = true;
        return;
    }
    memcpy(p->d[t], sums_of(p, t), (size_t)p->n / 2 * 4);
}

static void take(struct async_group *g, int t)
{
    struct async_product *p = product_at(g, g->taken[t]);
    if (t % 32 == 0)
        check_unchanged(*p, t);
    if (p->registers && memcmp(p->fragment[t], p->was[t], sizeof(p->was[t])) != 0)
        emulate_fail("registers of A changed while a product read them");
    multiply(p, t);
    hand_over(g, p, t);
    g->taken[t]++;
    p->left--;
    while (!g->products.empty() && !g->products.front().left) {
        g->products.pop_front();
        g->dropped++;
    }
}

void emulate_wgmma_wait(int pending)
{
    int t;
    if (async_left_out("wgmma.wait_group", __builtin_return_address(0)))
        return;
    pending += async_weaker(__builtin_return_address(0));
    struct async_group *g = group_now(&t);
    __syncwarp(); /* all lanes have issued what they wait for */
    while (g->taken[t] < g->issued[t] &&
           product_at(g, g->taken[t])->group < g->committed[t] - pending)
        take(g, t);
    g->fenced[t] = false;
}
