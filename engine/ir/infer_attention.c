/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: queries, keys and values in rows of heads ([N,S,heads x size]) or heads first
 * ([N,heads,S,size]), or all three in the rows of one tensor.
 */
#include "engine/ir/infer.h"

#include <inttypes.h>

/* An operand, in whichever order its dimensions are. */
struct operand {
    int64_t batches, rows, size; /* size: of a row of one head */
};

/* Reads an operand with these heads; a row of a packed one has more of them, and rank 3. */
static enum status read_operand(const struct infer *in, uint32_t input, int64_t heads, bool packed,
                                struct operand *out)
{
    const struct ir_tensor *t = infer_input(in, input);
    char text[SHAPE_TEXT_MAX];
    if (!t)
        return infer_fail(in, "input %u is missing", input);
    const int64_t *dim = t->shape.dim;
    shape_format(&t->shape, text);
    if (t->shape.rank == 4 && !packed) {
        *out = (struct operand){dim[0], dim[2], dim[3]};
        return dim[1] == heads ? STATUS_OK
                               : infer_fail(in, "input %u is %s, but needs %" PRId64 " heads",
                                            input, text, heads);
    }
    if (t->shape.rank != 3)
        return infer_fail(in, "input %u is %s, but needs rank 3%s", input, text,
                          packed ? "" : " or 4");
    if (dim[2] % heads)
        return infer_fail(in, "input %u is %s, whose last dimension %" PRId64 " does not divide",
                          input, text, heads);
    *out = (struct operand){dim[0], dim[1], dim[2] / heads};
    return STATUS_OK;
}

/* Reads keys and values, and checks that keys fit the queries, and values the keys. */
static enum status read_apart(const struct infer *in, int64_t heads, const struct operand *q,
                              struct operand *k, struct operand *v)
{
    TRY(read_operand(in, 1, heads, false, k));
    TRY(read_operand(in, 2, heads, false, v));
    if (k->batches == q->batches && k->size == q->size && v->batches == q->batches &&
        v->rows == k->rows)
        return STATUS_OK;
    char qs[SHAPE_TEXT_MAX], ks[SHAPE_TEXT_MAX], vs[SHAPE_TEXT_MAX];
    return infer_fail(in, "inputs %s, %s and %s do not fit together",
                      shape_format(&infer_input(in, 0)->shape, qs),
                      shape_format(&infer_input(in, 1)->shape, ks),
                      shape_format(&infer_input(in, 2)->shape, vs));
}

/* A mask of fewer batches than the queries repeats: their number must divide the queries'. */
static enum status check_mask(const struct infer *in, struct shape *scores)
{
    const struct ir_tensor *mask = infer_input(in, 3);
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    struct shape r;
    if (!mask)
        return STATUS_OK;
    if (ir_tensor_type(mask) != DTYPE_BOOL)
        TRY(infer_class(in, 3, IR_CLASS_LIKE));
    int64_t batches = mask->shape.rank == 4 ? mask->shape.dim[0] : 1;
    if (batches > 1 && scores->dim[0] % batches == 0 && scores->dim[0])
        scores->dim[0] = batches;
    if (shape_broadcast(&mask->shape, scores, &r) && shape_equal(&r, scores))
        return STATUS_OK;
    return infer_fail(in, "mask %s does not broadcast to %s", shape_format(&mask->shape, have),
                      shape_format(scores, want));
}

/* Spans are of all rows, which are those of the keys as well. */
static enum status check_spans(const struct infer *in, bool packed, const struct operand *q,
                               const struct operand *k)
{
    const struct ir_tensor *spans = infer_input(in, 4);
    const struct shape want = {.rank = 3, .dim = {q->batches, q->rows, 2}};
    char have[SHAPE_TEXT_MAX], text[SHAPE_TEXT_MAX];
    if (!spans)
        return STATUS_OK;
    if (spans->dtype != DTYPE_I32 || !shape_equal(&spans->shape, &want))
        return infer_fail(in, "spans are %s %s, but must be INT32 %s", dtype_name(spans->dtype),
                          shape_format(&spans->shape, have), shape_format(&want, text));
    bool flat = infer_input(in, 0)->shape.rank == 3;
    for (uint32_t i = 1; !packed && i < 3; i++)
        flat = flat && infer_input(in, i)->shape.rank == 3;
    if (!flat || infer_input(in, 3) || k->rows != q->rows)
        return infer_fail(in, "has spans, so operands are of rank 3 with equal rows, without mask");
    return STATUS_OK;
}

enum status infer_attention(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t heads = infer_int(in, IR_ATTR_HEADS), kv_heads = infer_int(in, IR_ATTR_KV_HEADS);
    bool packed = infer_int(in, IR_ATTR_PACKED);
    struct operand q, k, v;
    kv_heads = kv_heads ? kv_heads : heads;
    if (heads % kv_heads)
        return infer_fail(in, "%" PRId64 " heads do not divide by %" PRId64 " of the keys", heads,
                          kv_heads);
    TRY(read_operand(in, 0, packed ? heads + 2 * kv_heads : heads, packed, &q));
    k = v = q;
    if (!packed)
        TRY(read_apart(in, kv_heads, &q, &k, &v));
    else if (infer_input(in, 1) || infer_input(in, 2))
        return infer_fail(in, "is packed, but has keys or values apart");
    struct shape scores = {.rank = 4, .dim = {q.batches, heads, q.rows, k.rows}};
    TRY(check_mask(in, &scores));
    TRY(check_spans(in, packed, &q, &k));
    int64_t width;
    if (__builtin_mul_overflow(heads, v.size, &width))
        return infer_fail(in, "its rows are too long");
    infer_like_first(in, out, n_out);
    out->shape = (struct shape){.rank = 3, .dim = {q.batches, q.rows, width}};
    return STATUS_OK;
}
