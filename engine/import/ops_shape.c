/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that only change the shape: Reshape, Flatten, Squeeze, Unsqueeze, Expand, Transpose,
 * DepthToSpace, SpaceToDepth. */
#include "engine/import/ops.h"

/* Resolves 0 (the input's dimension, unless `allow_zero`) and -1 (what remains). */
static void reshape_resolve(struct mapper *m, const struct shape *in, const struct ints *wanted,
                            bool allow_zero, struct shape *out)
{
    uint32_t rest = UINT32_MAX;
    *out = (struct shape){.rank = wanted->n};
    if (wanted->n > SHAPE_MAX_RANK) {
        map_refuse(m, "to rank %u, the limit is %d", wanted->n, SHAPE_MAX_RANK);
        out->rank = 0;
        return;
    }
    for (uint32_t d = 0; d < wanted->n; d++) {
        int64_t dim = wanted->v[d];
        if (dim == 0 && !allow_zero && d < in->rank)
            dim = in->dim[d];
        else if (dim == -1 && rest == UINT32_MAX)
            rest = d;
        else if (dim < 0 || (dim == 0 && !allow_zero))
            map_invalid(m, "dimension %u of its shape is %lld", d, (long long)dim);
        out->dim[d] = d == rest ? 1 : dim;
    }
    if (rest == UINT32_MAX || map_failed(m))
        return;
    int64_t have = map_product(m, in, 0, in->rank), given = map_product(m, out, 0, out->rank);
    if (!map_failed(m) && (given <= 0 || have % given))
        map_invalid(m, "%lld elements cannot be divided into %lld parts", (long long)have,
                    (long long)given);
    else if (!map_failed(m))
        out->dim[rest] = have / given;
}

void map_reshape(struct mapper *m)
{
    struct ints wanted;
    struct shape out;
    uint32_t x = map_in(m, 0);
    if (!map_ints(m, 1, "shape", &wanted) && !map_failed(m))
        map_invalid(m, "it has no shape");
    struct shape in = *map_shape(m, x);
    bool allow_zero = m->opset >= 14 && map_attr_int(m, "allowzero", 0) != 0;
    reshape_resolve(m, &in, &wanted, allow_zero, &out);
    map_out(m, 0, emit_reshape(m, x, &out));
}

uint32_t emit_flat(struct mapper *m, uint32_t x)
{
    struct shape in = *map_shape(m, x), out = {.rank = 1};
    out.dim[0] = map_product(m, &in, 0, in.rank);
    return emit_reshape(m, x, &out);
}

void map_flatten(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct shape in = *map_shape(m, x), out = {.rank = 2};
    int64_t given = map_attr_int(m, "axis", 1);
    uint32_t axis = given == in.rank ? in.rank : map_axis(m, given, in.rank);
    out.dim[0] = map_product(m, &in, 0, axis);
    out.dim[1] = map_product(m, &in, axis, in.rank);
    map_out(m, 0, emit_reshape(m, x, &out));
}

void map_squeeze(struct mapper *m)
{
    struct ints axes;
    uint32_t x = map_in(m, 0);
    bool given = map_ints(m, m->opset >= 13 ? 1 : UINT32_MAX, "axes", &axes);
    struct shape in = *map_shape(m, x), out = {.rank = 0};
    map_axes(m, &axes, in.rank);
    for (uint32_t d = 0, next = 0; d < in.rank; d++) {
        bool named = next < axes.n && axes.v[next] == d;
        next += named;
        if (named && in.dim[d] != 1)
            map_invalid(m, "dimension %u is %lld, not 1", d, (long long)in.dim[d]);
        if (given ? !named : in.dim[d] != 1)
            out.dim[out.rank++] = in.dim[d];
    }
    map_out(m, 0, emit_reshape(m, x, &out));
}

void map_unsqueeze(struct mapper *m)
{
    struct ints axes;
    uint32_t x = map_in(m, 0);
    if (!map_ints(m, m->opset >= 13 ? 1 : UINT32_MAX, "axes", &axes) && !map_failed(m))
        map_invalid(m, "it has no axes");
    struct shape in = *map_shape(m, x), out = {.rank = in.rank + axes.n};
    if (out.rank > SHAPE_MAX_RANK) {
        map_refuse(m, "to rank %u, the limit is %d", out.rank, SHAPE_MAX_RANK);
        return;
    }
    map_axes(m, &axes, out.rank);
    for (uint32_t d = 0, next = 0; d < out.rank && !map_failed(m); d++) {
        bool named = next < axes.n && axes.v[next] == d;
        out.dim[d] = named ? 1 : in.dim[d - next];
        next += named;
    }
    map_out(m, 0, emit_reshape(m, x, &out));
}

void map_expand(struct mapper *m)
{
    struct ints wanted;
    struct shape shape = {.rank = 0}, out;
    uint32_t x = map_in(m, 0);
    map_known_ints(m, map_in(m, 1), &wanted);
    if (wanted.n > SHAPE_MAX_RANK)
        map_refuse(m, "to rank %u, the limit is %d", wanted.n, SHAPE_MAX_RANK);
    for (uint32_t d = 0; d < wanted.n && !map_failed(m); d++) {
        shape.dim[shape.rank++] = wanted.v[d];
        if (wanted.v[d] < 0)
            map_invalid(m, "dimension %u of its shape is %lld", d, (long long)wanted.v[d]);
    }
    if (map_failed(m))
        return;
    if (!shape_broadcast(map_shape(m, x), &shape, &out))
        map_invalid(m, "its shape does not fit the input's");
    map_out(m, 0, emit_expand(m, x, &out));
}

void map_transpose(struct mapper *m)
{
    struct ints perm;
    uint32_t x = map_in(m, 0), rank = map_shape(m, x)->rank;
    if (!map_attr_ints(m, "perm", &perm)) {
        perm.n = rank;
        for (uint32_t d = 0; d < rank; d++)
            perm.v[d] = rank - 1 - d;
    }
    if (!map_failed(m) && perm.n != rank)
        map_invalid(m, "attribute 'perm' has %u values for rank %u", perm.n, rank);
    map_out(m, 0, emit_transpose(m, x, perm.n, perm.v));
}

static int64_t block_size(struct mapper *m, uint32_t x)
{
    int64_t block = map_attr_int(m, "blocksize", 0);
    if (map_shape(m, x)->rank != 4)
        map_invalid(m, "an input of rank %u, expected 4", map_shape(m, x)->rank);
    if (block < 1 || block > INT32_MAX)
        map_invalid(m, "attribute 'blocksize' is %lld", (long long)block);
    return map_failed(m) ? 1 : block;
}

void map_depth_to_space(struct mapper *m)
{
    static const int64_t depth_first[] = {0, 3, 4, 1, 5, 2}, column_first[] = {0, 1, 4, 2, 5, 3};
    uint32_t x = map_in(m, 0);
    int64_t b = block_size(m, x);
    bool crd = map_attr_is(m, "mode", "CRD", "DCR");
    struct shape in = *map_shape(m, x);
    const int64_t *dim = in.dim;
    int64_t c = dim[1] / (b * b);
    if (!map_failed(m) && dim[1] % (b * b))
        map_invalid(m, "%lld channels with a block size of %lld", (long long)dim[1], (long long)b);
    struct shape parts = crd ? (struct shape){6, {dim[0], c, b, b, dim[2], dim[3]}}
                             : (struct shape){6, {dim[0], b, b, c, dim[2], dim[3]}};
    struct shape out = {.rank = 4, .dim = {dim[0], c}};
    if (__builtin_mul_overflow(dim[2], b, &out.dim[2]) ||
        __builtin_mul_overflow(dim[3], b, &out.dim[3]))
        map_invalid(m, "its output's dimensions overflow");
    uint32_t y = emit_reshape(m, x, &parts);
    y = emit_transpose(m, y, 6, crd ? column_first : depth_first);
    map_out(m, 0, emit_reshape(m, y, &out));
}

void map_space_to_depth(struct mapper *m)
{
    static const int64_t perm[] = {0, 3, 5, 1, 2, 4};
    uint32_t x = map_in(m, 0);
    int64_t b = block_size(m, x);
    struct shape in = *map_shape(m, x);
    const int64_t *dim = in.dim;
    if (dim[2] % b || dim[3] % b)
        map_invalid(m, "an image of %lld x %lld with a block size of %lld", (long long)dim[2],
                    (long long)dim[3], (long long)b);
    struct shape parts = {6, {dim[0], dim[1], dim[2] / b, b, dim[3] / b, b}};
    struct shape out = {.rank = 4, .dim = {dim[0], 0, dim[2] / b, dim[3] / b}};
    if (__builtin_mul_overflow(dim[1], b * b, &out.dim[1]))
        map_invalid(m, "its output's dimensions overflow");
    uint32_t y = emit_transpose(m, emit_reshape(m, x, &parts), 6, perm);
    map_out(m, 0, emit_reshape(m, y, &out));
}
