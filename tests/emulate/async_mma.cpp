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

enum { WARPGROUP = 128, ROWS = 64, STEP = 32, K_MOST = 32 };

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

static float eight_bits(unsigned char v) /* E4M3 */
{
    int exponent = v >> 3 & 15, mantissa = v & 7;
    float f = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7)
                       : ldexpf((float)mantissa / 8, -6);
    if ((v & 0x7f) == 0x7f)
        f = NAN;
    return v & 0x80 ? -f : f;
}

/* Row of STEP bytes as numbers; returns how many. */
static int numbers(int type, bool of_a, const char *row, float *to)
{
    int size = size_of(type), n = STEP / size;
    for (int i = 0; i < n; i++) {
        uint16_t half = 0;
        memcpy(&half, row + i * size, size == 2 ? 2 : 1);
        unsigned char byte = (unsigned char)row[i * size];
        uint32_t wide = (uint32_t)half << 16;
        if (type == EMULATE_F16)
            to[i] = __half2float(__ushort_as_half(half));
        else if (type == EMULATE_BF16)
            memcpy(&to[i], &wide, sizeof(wide));
        else if (type == EMULATE_E4M3)
            to[i] = eight_bits(byte);
        else
            to[i] = type == (of_a ? EMULATE_U8_S8 : EMULATE_S8_U8) ? (float)byte
                                                                   : (float)(signed char)byte;
    }
    return n;
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
    bool known = n >= 8 && n <= 256 && n % 8 == 0;
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
    for (int i = 0; i < n; i++)
        numbers(type, false, &p.bytes_b[(size_t)i * STEP], &p.numbers_b[(size_t)i * K_MOST]);
    if (!registers) {
        p.bytes_a.resize(ROWS * STEP);
        gather(async_now(), a, 0, ROWS, p.bytes_a.data());
    }
    return p;
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
    p->sum[t].assign((size_t)n / 2, 0);
    p->ready[t] = !keep || !follows;
    if (keep && !follows)
        memcpy(p->sum[t].data(), d, (size_t)n / 2 * 4);
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

/* Most of the time of most tests; a sanitizer, which triples it, would see two arrays of K_MOST. */
__attribute__((no_sanitize("address", "undefined"))) static float dot(const float *a,
                                                                      const float *b, int n)
{
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}

static void multiply(struct async_product *p, int t)
{
    char rows[16 * STEP];
    float a[2][K_MOST];
    rows_of_a(*p, t, rows);
    int g = t % 32 / 4, steps = 0;
    for (int up = 0; up < 2; up++)
        steps = numbers(p->type, true, rows + (g + up * 8) * STEP, a[up]);
    for (int j = 0; j < p->n / 8; j++)
        for (int e = 0; e < 2; e++) {
            const float *b = &p->numbers_b[(size_t)(8 * j + t % 4 * 2 + e) * K_MOST];
            for (int up = 0; up < 2; up++) {
                uint32_t *at = &p->sum[t][(size_t)(4 * j + 2 * up + e)];
                float sum = dot(a[up], b, steps), before;
                if (is_integer(p->type)) {
                    *at = (p->keep ? *at : 0) + (uint32_t)(int32_t)sum;
                    continue;
                }
                memcpy(&before, at, sizeof(before));
                sum += p->keep ? before : 0;
                memcpy(at, &sum, sizeof(sum));
            }
        }
}

/* Brings the thread's sums to its registers, or to the next product that goes on with them. */
static void hand_over(struct async_group *g, struct async_product *p, int t)
{
    for (int i = g->taken[t] + 1; i < g->issued[t]; i++) {
        struct async_product *next = product_at(g, i);
        if (next->d[t] != p->d[t])
            continue;
        if (!next->ready[t])
            next->sum[t] = p->sum[t];
        next->ready[t] = true;
        return;
    }
    memcpy(p->d[t], p->sum[t].data(), p->sum[t].size() * 4);
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
