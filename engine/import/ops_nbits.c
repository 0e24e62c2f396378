/* SPDX-License-Identifier: Apache-2.0 */
/*
 * com.microsoft's MatMulNBits: a product by weights of 2, 4 or 8 bits with a scale, and maybe a
 * zero point, for each block of a column. The weights become a constant of floats, which the
 * product then reads as any other.
 */
#include "engine/import/ops.h"

#include <math.h>

enum { BLOCK_LEAST = 16, SIDE_MAX = 1 << 30 };

struct nbits {
    int64_t columns, depth, block, blocks, blob; /* blocks of a column; bytes of a block */
    uint32_t bits;
    const struct ir_tensor *weights, *scales, *zeros, *groups; /* zeros, groups: NULL: none */
    bool packed; /* zeros are as many bits as the weights, whole bytes for a column */
};

/* Numbers of so many bits are packed from the lowest bits of a byte on. */
static uint32_t bits_at(const struct nbits *p, const struct ir_tensor *t, int64_t byte, int64_t i)
{
    uint32_t number = ((const uint8_t *)t->data)[byte + i * p->bits / 8];
    return number >> i * p->bits % 8 & ((1U << p->bits) - 1);
}

static int64_t zero_bytes(const struct nbits *p)
{
    return (p->blocks * p->bits + 7) / 8;
}

/* --- reading --- */

static void read_sizes(struct mapper *m, struct nbits *p)
{
    int64_t bits = map_attr_int(m, "bits", 4);
    p->columns = map_attr_int(m, "N", 0);
    p->depth = map_attr_int(m, "K", 0);
    p->block = map_attr_int(m, "block_size", 0);
    if (map_failed(m))
        return;
    if (bits != 2 && bits != 4 && bits != 8)
        map_refuse(m, "attribute 'bits' is %lld, expected 2, 4 or 8", (long long)bits);
    else if (p->columns < 1 || p->columns > SIDE_MAX || p->depth < 1 || p->depth > SIDE_MAX)
        map_invalid(m, "attributes 'N' and 'K' are %lld and %lld", (long long)p->columns,
                    (long long)p->depth);
    else if (p->block < BLOCK_LEAST || p->block > SIDE_MAX || p->block & (p->block - 1))
        map_invalid(m, "attribute 'block_size' is %lld, expected a power of two from %d on",
                    (long long)p->block, BLOCK_LEAST);
    p->bits = (uint32_t)bits;
    if (map_failed(m))
        return;
    p->blocks = (p->depth + p->block - 1) / p->block;
    p->blob = p->block * bits / 8;
}

/* A constant that has so many elements. */
static const struct ir_tensor *read_known(struct mapper *m, uint32_t i, const char *what,
                                          int64_t expected)
{
    uint32_t id = map_in_opt(m, i);
    const struct ir_tensor *t = map_failed(m) || id == IR_NONE ? NULL : map_known(m, id);
    size_t n = 0;
    if (t && (!shape_elements(&t->shape, &n) || n != (uint64_t)expected))
        map_invalid(m, "its %s have %zu elements, expected %lld", what, n, (long long)expected);
    return map_failed(m) ? NULL : t;
}

/* In bits, or as numbers of the scales' type. */
static void read_zeros(struct mapper *m, struct nbits *p)
{
    uint32_t id = map_in_opt(m, 3);
    if (map_failed(m) || id == IR_NONE)
        return;
    p->packed = map_dtype(m, id) == DTYPE_U8;
    p->zeros =
        read_known(m, 3, "zero points", p->columns * (p->packed ? zero_bytes(p) : p->blocks));
    if (p->zeros && !p->packed && !dtype_is_float(ir_tensor_type(p->zeros)))
        map_invalid(m, "its zero points are %s", dtype_name(ir_tensor_type(p->zeros)));
}

/* Which block's scale a row of the weights has, if the blocks are not in order. */
static void read_groups(struct mapper *m, struct nbits *p)
{
    p->groups = read_known(m, 4, "groups", p->depth);
    for (int64_t k = 0; p->groups && k < p->depth && !map_failed(m); k++) {
        int64_t group = map_element_int(p->groups, (size_t)k);
        if (group < 0 || group >= p->blocks)
            map_invalid(m, "row %lld is in group %lld of %lld", (long long)k, (long long)group,
                        (long long)p->blocks);
    }
}

static bool read_nbits(struct mapper *m, struct nbits *p)
{
    const struct shape *a = map_shape(m, map_in(m, 0));
    *p = (struct nbits){0};
    read_sizes(m, p);
    if (map_failed(m))
        return false;
    if (a->rank == 0 || a->dim[a->rank - 1] != p->depth)
        map_invalid(m, "its input has %lld columns, attribute 'K' is %lld",
                    a->rank ? (long long)a->dim[a->rank - 1] : 0, (long long)p->depth);
    int64_t bytes;
    if (__builtin_mul_overflow(p->columns, p->blocks * p->blob, &bytes))
        map_invalid(m, "its weights overflow");
    if (map_failed(m))
        return false;
    p->weights = read_known(m, 1, "weights", bytes);
    if (p->weights && ir_tensor_type(p->weights) != DTYPE_U8)
        map_invalid(m, "its weights are %s, expected UINT8",
                    dtype_name(ir_tensor_type(p->weights)));
    p->scales = read_known(m, 2, "scales", p->columns * p->blocks);
    read_zeros(m, p);
    read_groups(m, p);
    return !map_failed(m);
}

/* --- unpacking --- */

static float weight_at(const struct nbits *p, int64_t column, int64_t k)
{
    int64_t block = p->groups ? map_element_int(p->groups, (size_t)k) : k / p->block;
    size_t at = (size_t)(column * p->blocks + block);
    int64_t byte = (column * p->blocks + k / p->block) * p->blob;
    double zero = !p->zeros   ? (double)(1U << (p->bits - 1))
                  : p->packed ? bits_at(p, p->zeros, column * zero_bytes(p), block)
                              : map_element(p->zeros, at);
    return (float)((bits_at(p, p->weights, byte, k % p->block) - zero) *
                   map_element(p->scales, at));
}

/* FP32 [K, N]. */
static uint32_t unpacked(struct mapper *m, const struct nbits *p)
{
    const struct shape shape = {.rank = 2, .dim = {p->depth, p->columns}};
    float *to = emit_room(m, &shape, DTYPE_F32);
    if (!to)
        return IR_NONE;
    for (int64_t c = 0; c < p->columns; c++)
        for (int64_t k = 0; k < p->depth; k++) {
            float w = weight_at(p, c, k);
            if (!isfinite(w) && !map_failed(m))
                map_invalid(m, "a weight is %g", (double)w);
            to[k * p->columns + c] = w;
        }
    return emit_constant(m, DTYPE_F32, &shape, to);
}

void map_matmul_nbits(struct mapper *m)
{
    uint32_t a = map_in(m, 0), bias = map_in_opt(m, 5);
    struct nbits p;
    if (!read_nbits(m, &p))
        return;
    uint32_t weights = emit_cast(m, unpacked(m, &p), map_dtype(m, a));
    uint32_t y = emit_matmul_any(m, a, weights);
    map_out(m, 0, bias == IR_NONE ? y : emit_binary(m, IR_BINARY_ADD, y, bias));
}
