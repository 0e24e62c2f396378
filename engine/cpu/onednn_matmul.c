/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix product. If there is one matrix on the right (a linear layer), the rows of all batches on
 * the left form one matrix, and a constant right side is packed as the primitive likes it. The same
 * product may run as an inner product, whose kernels differ. If each batch has a right matrix of
 * its own, the node is a batched product over strides, so that a transposed operand costs nothing.
 *
 * oneDNN scales the bias too, so ALPHA together with a bias is refused.
 */
#include <string.h>

#include "engine/cpu/onednn_recipe.h"

enum way { WAY_ROWS, WAY_INNER_PRODUCT, WAY_BATCH };

struct product {
    int64_t rows, k, n; /* rows: of all batches, if there is one matrix on the right */
    bool one_right, trans_a, trans_b, biased;
    float alpha;
};

static bool read_product(const struct subject *s, struct product *p)
{
    const struct shape *a = &subject_in(s, 0)->shape, *b = &subject_in(s, 1)->shape;
    p->trans_a = ir_attr_int(s->node, IR_ATTR_TRANS_A) != 0;
    p->trans_b = ir_attr_int(s->node, IR_ATTR_TRANS_B) != 0;
    p->alpha = ir_attr_float(s->node, IR_ATTR_ALPHA);
    p->biased = ir_node_own_inputs(s->node) > 2 && subject_in(s, 2);
    p->k = b->dim[b->rank - (p->trans_b ? 1 : 2)];
    p->n = b->dim[b->rank - (p->trans_b ? 2 : 1)];
    p->one_right = !p->trans_a;
    p->rows = 1;
    for (uint32_t i = 0; i + 2 < b->rank; i++)
        p->one_right = p->one_right && b->dim[i] == 1;
    for (uint32_t i = 0; i + 1 < a->rank; i++)
        p->rows *= a->dim[i];
    return (subject_is_scaled(s) || !(p->biased && p->alpha != 1)) &&
           (!p->biased || subject_in(s, 2)->shape.rank <= 1);
}

static uint32_t list(const struct subject *s, struct choice out[CHOICES_MAX])
{
    struct product p;
    uint32_t n = 0;
    if (!read_product(s, &p))
        return 0;
    if (p.one_right) {
        out[n++] = (struct choice){.way = WAY_ROWS};
        if (ir_tensor_is_constant(subject_in(s, 1)))
            out[n++] = (struct choice){.way = WAY_INNER_PRODUCT};
    } else if (!subject_is_scaled(s)) {
        out[n++] = (struct choice){.way = WAY_BATCH};
    }
    /* For a product, oneDNN adds up the weights at each launch. */
    return subject_is_scaled(s) ? list_zeros(s, out, n, ZERO_IN_BIAS) : n;
}

static enum status finish(const struct subject *s, const struct product *p, struct choice c,
                          const struct output_view *view, const_dnnl_op_desc_t desc,
                          const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *bias,
                          struct recipe *r)
{
    if (p->alpha == 1 || subject_is_scaled(s))
        return recipe_finish(s, c, view, desc, plain, bias, r);
    dnnl_primitive_attr_t attr;
    TRY(epilogue_attr(s, view, r, &attr));
    if (dnnl_primitive_attr_set_output_scales(attr, 1, 0, &p->alpha) != dnnl_success) {
        dnnl_primitive_attr_destroy(attr);
        return STATUS_UNIMPLEMENTED;
    }
    TRY(recipe_pick(s, r, desc, attr));
    recipe_packed(s, r, DNNL_ARG_WEIGHTS, 1, recipe_md(r, dnnl_query_weights_md, 0), plain);
    return STATUS_OK;
}

/* Lets oneDNN choose the form of a constant right side. Any other right side stays as it lies. */
static bool right_desc(const struct subject *s, const dnnl_memory_desc_t *plain, uint32_t rank,
                       const int64_t *dims, dnnl_memory_desc_t *out)
{
    *out = *plain;
    return !ir_tensor_is_constant(subject_in(s, 1)) || desc_any(out, rank, dims);
}

/* Gives the descriptors the types of their tensors; a bias has the type of the output. */
static void set_types(const struct subject *s, dnnl_memory_desc_t *a, dnnl_memory_desc_t *b,
                      dnnl_memory_desc_t *plain, dnnl_memory_desc_t *bias, dnnl_memory_desc_t *d)
{
    desc_type(a, subject_in(s, 0));
    desc_weights(s, b);
    desc_plain(s, plain);
    desc_bias(s, bias);
    desc_type(d, subject_out(s, 0));
}

static enum status make_rows(const struct subject *s, const struct product *p, struct choice c,
                             struct recipe *r)
{
    bool ip = c.way == WAY_INNER_PRODUCT;
    int64_t a_dims[2] = {p->rows, p->k};
    int64_t b_dims[2] = {ip ? p->n : p->k, ip ? p->k : p->n};
    bool first_dense = ip != p->trans_b; /* whether b_dims[0] is dense in memory */
    int64_t b_strides[2] = {first_dense ? 1 : b_dims[1], first_dense ? b_dims[0] : 1};
    int64_t bias_dims[2] = {ip ? p->n : 1, p->n};
    struct output_view view = {.kind = VIEW_ROWS, .rank = 2, .dims = {p->rows, p->n}};
    dnnl_memory_desc_t a, b, plain, bias, d;
    if (!desc_layout(&a, 2, a_dims, IR_LAYOUT_PLAIN) ||
        !desc_strides(&plain, 2, b_dims, b_strides) || !right_desc(s, &plain, 2, b_dims, &b) ||
        !desc_layout(&bias, ip ? 1 : 2, bias_dims, IR_LAYOUT_PLAIN) ||
        !desc_layout(&d, 2, view.dims, IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    set_types(s, &a, &b, &plain, &bias, &d);
    union {
        dnnl_matmul_desc_t matmul;
        dnnl_inner_product_desc_t ip;
    } desc;
    dnnl_status_t made =
        ip ? dnnl_inner_product_forward_desc_init(&desc.ip, dnnl_forward_inference, &a, &b,
                                                  subject_biased(s) ? &bias : NULL, &d)
           : dnnl_matmul_desc_init(&desc.matmul, &a, &b, subject_biased(s) ? &bias : NULL, &d);
    if (made != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &a, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &d, IR_LAYOUT_PLAIN);
    return finish(s, p, c, &view, &desc, &plain, &bias, r);
}

/* Describes an operand, with its last two dims swapped if `swap` is set. */
static bool operand_desc(const struct shape *shape, uint32_t rank, bool swap, int64_t *dims,
                         dnnl_memory_desc_t *md)
{
    int64_t strides[SHAPE_MAX_RANK] = {0}, step = 1;
    if (rank < 2 || !dims_padded(shape, rank, dims))
        return false;
    for (uint32_t i = rank; i-- > 0;) {
        strides[i] = step;
        step *= dims[i];
    }
    if (swap) {
        int64_t d = dims[rank - 1], t = strides[rank - 1];
        dims[rank - 1] = dims[rank - 2];
        dims[rank - 2] = d;
        strides[rank - 1] = strides[rank - 2];
        strides[rank - 2] = t;
    }
    return desc_strides(md, rank, dims, strides);
}

static enum status make_batch(const struct subject *s, const struct product *p, struct choice c,
                              struct recipe *r)
{
    const struct ir_tensor *y = subject_out(s, 0);
    uint32_t rank = y->shape.rank;
    int64_t a_dims[SHAPE_MAX_RANK], b_dims[SHAPE_MAX_RANK], bias_dims[SHAPE_MAX_RANK];
    struct output_view view = {.kind = VIEW_SAME, .rank = rank};
    memcpy(view.dims, y->shape.dim, sizeof(view.dims));
    dnnl_memory_desc_t a, b, plain, bias, d;
    for (uint32_t i = 0; i < rank; i++)
        bias_dims[i] = i + 1 < rank ? 1 : p->n;
    if (!operand_desc(&subject_in(s, 0)->shape, rank, p->trans_a, a_dims, &a) ||
        !operand_desc(&subject_in(s, 1)->shape, rank, p->trans_b, b_dims, &plain) ||
        !right_desc(s, &plain, rank, b_dims, &b) ||
        !desc_layout(&bias, rank, bias_dims, IR_LAYOUT_PLAIN) ||
        !desc_tensor(&d, y, IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    set_types(s, &a, &b, &plain, &bias, &d);
    dnnl_matmul_desc_t desc;
    if (dnnl_matmul_desc_init(&desc, &a, &b, p->biased ? &bias : NULL, &d) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &a, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &d, IR_LAYOUT_PLAIN);
    return finish(s, p, c, &view, &desc, &plain, &bias, r);
}

static enum status make(const struct subject *s, struct choice c, struct recipe *r)
{
    struct product p;
    if (!read_product(s, &p))
        return STATUS_UNIMPLEMENTED;
    if (c.way == WAY_BATCH)
        return subject_is_scaled(s) ? STATUS_UNIMPLEMENTED : make_batch(s, &p, c, r);
    bool constant = ir_tensor_is_constant(subject_in(s, 1));
    if (!p.one_right || (c.way == WAY_INNER_PRODUCT && !constant))
        return STATUS_UNIMPLEMENTED;
    return make_rows(s, &p, c, r);
}

const struct onednn_row onednn_matmul = {
    .op = IR_OP_MATMUL, .list = list, .make = make, .impls = 3};
