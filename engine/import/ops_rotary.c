/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: pairs of numbers in each head turn by an angle that grows with the position. */
#include "engine/import/ops.h"

/* The two numbers of each pair: neighbours, or the same place in either half. */
static void split_pairs(struct mapper *m, uint32_t x, bool neighbours, uint32_t out[2])
{
    struct shape pairs = *map_shape(m, x);
    int64_t width = pairs.dim[3];
    pairs.rank = 5;
    pairs.dim[3] = width / 2;
    pairs.dim[4] = 2;
    for (int64_t i = 0; i < 2; i++) {
        if (!neighbours) {
            out[i] = emit_slice(m, x, 3, i * width / 2, (i + 1) * width / 2);
            continue;
        }
        uint32_t one = emit_slice(m, emit_reshape(m, x, &pairs), 4, i, i + 1);
        struct shape flat = {.rank = 4,
                             .dim = {pairs.dim[0], pairs.dim[1], pairs.dim[2], width / 2}};
        out[i] = emit_reshape(m, one, &flat);
    }
}

static uint32_t join_pairs(struct mapper *m, const uint32_t parts[2], bool neighbours)
{
    struct shape apart = *map_shape(m, parts[0]), whole = apart;
    if (!neighbours || map_failed(m))
        return emit_concat(m, 2, parts, 3);
    apart.rank = 5;
    apart.dim[4] = 1;
    whole.dim[3] *= 2;
    const uint32_t columns[2] = {emit_reshape(m, parts[0], &apart),
                                 emit_reshape(m, parts[1], &apart)};
    return emit_reshape(m, emit_concat(m, 2, columns, 4), &whole);
}

static uint32_t product(struct mapper *m, uint32_t a, uint32_t b)
{
    return emit_binary(m, IR_BINARY_MUL, a, b);
}

uint32_t emit_rotary(struct mapper *m, uint32_t x, uint32_t cosine, uint32_t sine, bool neighbours)
{
    uint32_t pairs[2];
    int64_t width = map_shape(m, x)->dim[3], turned = 2 * map_shape(m, cosine)->dim[3];
    if (!map_failed(m) && turned > width)
        map_invalid(m, "angles for %lld columns of a head that has %lld", (long long)turned,
                    (long long)width);
    if (map_failed(m))
        return IR_NONE;
    split_pairs(m, turned < width ? emit_slice(m, x, 3, 0, turned) : x, neighbours, pairs);
    const uint32_t after[2] = {
        emit_binary(m, IR_BINARY_SUB, product(m, pairs[0], cosine), product(m, pairs[1], sine)),
        emit_binary(m, IR_BINARY_ADD, product(m, pairs[0], sine), product(m, pairs[1], cosine)),
    };
    uint32_t y = join_pairs(m, after, neighbours);
    if (turned == width || map_failed(m))
        return y;
    return emit_concat(m, 2, (const uint32_t[]){y, emit_slice(m, x, 3, turned, width)}, 3);
}

uint32_t emit_angles(struct mapper *m, uint32_t table, uint32_t positions, uint32_t heads_axis)
{
    if (positions != IR_NONE)
        table = emit_gather(m, table, positions, 0);
    struct shape shape = *map_shape(m, table);
    if (!map_failed(m) && shape.rank != 3)
        map_invalid(m, "angles of rank %u, expected sequences, positions and angles", shape.rank);
    struct shape out = {.rank = 4, .dim = {shape.dim[0], shape.dim[1], 1, shape.dim[2]}};
    if (heads_axis == 1)
        out = (struct shape){.rank = 4, .dim = {shape.dim[0], 1, shape.dim[1], shape.dim[2]}};
    return emit_reshape(m, table, &out);
}

/* The positions of sequences that all start at the one that the operand holds. */
static uint32_t from_offset(struct mapper *m, uint32_t offset, int64_t steps)
{
    const struct shape one = {.rank = 2, .dim = {1, 1}};
    uint32_t start = emit_reshape(m, emit_cast(m, offset, DTYPE_I64), &one);
    uint32_t row =
        emit_reshape(m, emit_count(m, steps), &(struct shape){.rank = 2, .dim = {1, steps}});
    return emit_binary(m, IR_BINARY_ADD, start, row);
}

static int64_t head_size(struct mapper *m, uint32_t x, uint32_t table, int64_t heads)
{
    const struct shape *shape = map_shape(m, x), *angles = map_shape(m, table);
    int64_t width = shape->dim[2];
    if (map_failed(m) || shape->rank == 4)
        return shape->dim[3];
    if (heads == 0 && m->row->func && angles->rank && 2 * angles->dim[angles->rank - 1] > 0)
        return 2 * angles->dim[angles->rank - 1]; /* com.microsoft: heads may be left out */
    if (shape->rank == 3 && heads > 0 && width % heads == 0 && heads <= width)
        return width / heads;
    map_invalid(m, "an input of rank %u and %lld heads", shape->rank, (long long)heads);
    return 0;
}

/* The row's function tells the order of operands: ONNX has positions last, com.microsoft first. */
void map_rotary(struct mapper *m)
{
    bool ms = m->row->func;
    uint32_t x = map_in(m, 0), cosine = map_in(m, ms ? 2 : 1), sine = map_in(m, ms ? 3 : 2);
    uint32_t positions = ms ? map_in(m, 1) : map_in_opt(m, 3);
    struct shape whole = *map_shape(m, x), rows = whole;
    int64_t size = head_size(m, x, cosine, map_attr_int(m, "num_heads", 0));
    int64_t turned = map_attr_int(m, "rotary_embedding_dim", 0);
    bool neighbours = map_attr_int(m, "interleaved", 0) != 0;
    if (map_attr_float(m, "scale", 1) != 1 || map_attr_int(m, "is_packed_batching", 0))
        map_refuse(m, "a scale other than 1, or packed sequences");
    if (!map_failed(m) && (size < 1 || whole.dim[whole.rank - 1] % size))
        map_invalid(m, "heads of %lld columns", (long long)size);
    if (map_failed(m) || size < 1)
        return;
    if (whole.rank == 3)
        rows = (struct shape){.rank = 4,
                              .dim = {whole.dim[0], whole.dim[1], whole.dim[2] / size, size}};
    if (ms && map_shape(m, positions)->rank < 2)
        positions = from_offset(m, positions, whole.dim[whole.rank == 4 ? 2 : 1]);
    uint32_t heads_axis = whole.rank == 4 ? 1 : 2;
    cosine = emit_angles(m, cosine, positions, heads_axis);
    sine = emit_angles(m, sine, positions, heads_axis);
    if (!map_failed(m) && turned && 2 * map_shape(m, cosine)->dim[3] != turned)
        map_invalid(m, "attribute 'rotary_embedding_dim' is %lld, and there are %lld angles",
                    (long long)turned, (long long)map_shape(m, cosine)->dim[3]);
    uint32_t y = emit_rotary(m, emit_reshape(m, x, &rows), cosine, sine, neighbours);
    map_out(m, 0, emit_reshape(m, y, &whole));
}
