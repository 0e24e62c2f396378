/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: queries, keys and values of [N,S,heads x size], or all three in one tensor. */
#include "engine/ir/infer.h"

#include <inttypes.h>

/* Checks that the last dimension is `parts` times a number that the heads divide. */
static enum status check_matrix(const struct infer *in, uint32_t input, int64_t parts)
{
    const struct ir_tensor *t = infer_input(in, input);
    char text[SHAPE_TEXT_MAX];
    if (t->shape.rank != 3)
        return infer_fail(in, "input %u is %s, but needs rank 3", input,
                          shape_format(&t->shape, text));
    if (t->shape.dim[2] % parts)
        return infer_fail(in, "input %u is %s, whose last dimension %" PRId64 " does not divide",
                          input, shape_format(&t->shape, text), parts);
    return STATUS_OK;
}

/* Checks that keys fit the queries, and values the keys. */
static enum status check_apart(const struct infer *in, int64_t heads)
{
    for (uint32_t i = 1; i <= 2; i++) {
        if (!infer_input(in, i))
            return infer_fail(in, "input %u is missing", i);
        TRY(check_matrix(in, i, heads));
    }
    const struct shape *q = &infer_input(in, 0)->shape, *k = &infer_input(in, 1)->shape,
                       *v = &infer_input(in, 2)->shape;
    char qs[SHAPE_TEXT_MAX], ks[SHAPE_TEXT_MAX], vs[SHAPE_TEXT_MAX];
    if (k->dim[0] == q->dim[0] && k->dim[2] == q->dim[2] && v->dim[0] == q->dim[0] &&
        v->dim[1] == k->dim[1])
        return STATUS_OK;
    return infer_fail(in, "inputs %s, %s and %s do not fit together", shape_format(q, qs),
                      shape_format(k, ks), shape_format(v, vs));
}

static enum status check_mask(const struct infer *in, const struct shape *scores)
{
    const struct ir_tensor *mask = infer_input(in, 3);
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    struct shape r;
    if (!mask || (shape_broadcast(&mask->shape, scores, &r) && shape_equal(&r, scores)))
        return STATUS_OK;
    return infer_fail(in, "mask %s does not broadcast to %s", shape_format(&mask->shape, have),
                      shape_format(scores, want));
}

enum status infer_attention(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t heads = infer_int(in, IR_ATTR_HEADS), packed = infer_int(in, IR_ATTR_PACKED);
    TRY(check_matrix(in, 0, packed ? 3 * heads : heads));
    const struct shape *q = &infer_input(in, 0)->shape, *k = q, *v = q;
    if (packed) {
        if (infer_input(in, 1) || infer_input(in, 2))
            return infer_fail(in, "is packed, but has keys or values apart");
    } else {
        TRY(check_apart(in, heads));
        k = &infer_input(in, 1)->shape;
        v = &infer_input(in, 2)->shape;
    }
    const struct shape scores = {.rank = 4, .dim = {q->dim[0], heads, q->dim[1], k->dim[1]}};
    TRY(check_mask(in, &scores));
    infer_like_first(in, out, n_out);
    out->shape.dim[2] = packed ? q->dim[2] / 3 : v->dim[2];
    return STATUS_OK;
}
