/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IR_OP_MATMUL as a product.
 *
 * Leading dims that run with one stride in A, B and Y are one loop. If B does not change along the
 * innermost loop, the loop only adds rows to A: M grows. The longest loop is cuBLASLt's batch.
 * Loops that are then left (operands that broadcast along different dims) become several launches.
 */
#include "base/compiler.h"
#include "engine/cuda/lt.h"

enum { LAUNCHES_MAX = 1024, BATCH_MAX = INT32_MAX };

struct operand {
    const struct shape *shape;
    int64_t rows, cols; /* of the matrices as they lie in memory */
};

/* The operand's step along dim `i` of Y's `leading` leading dims; 0 where it broadcasts. */
static int64_t step_along(const struct operand *o, uint32_t i, uint32_t leading)
{
    uint32_t own = o->shape->rank - 2;
    if (i + own < leading || o->shape->dim[i + own - leading] == 1)
        return 0;
    int64_t step = o->rows * o->cols;
    for (uint32_t k = i + own - leading + 1; k < own; k++)
        step *= o->shape->dim[k];
    return step;
}

/* Reads the leading dims as loops, innermost first. */
static void read_loops(const struct operand *a, const struct operand *b, const struct shape *y,
                       struct lt_product *p)
{
    uint32_t leading = y->rank - 2;
    int64_t y_step = p->m * p->n;
    p->n_loops = 0;
    for (uint32_t i = leading; i-- > 0;) {
        if (y->dim[i] == 1)
            continue;
        struct lt_loop now = {y->dim[i], step_along(a, i, leading), step_along(b, i, leading),
                              y_step};
        struct lt_loop *last = p->n_loops ? &p->loops[p->n_loops - 1] : NULL;
        y_step *= y->dim[i];
        if (last && now.a == last->a * last->n && now.b == last->b * last->n)
            last->n *= now.n;
        else
            p->loops[p->n_loops++] = now;
    }
}

static void drop_loop(struct lt_product *p, uint32_t at)
{
    for (uint32_t i = at + 1; i < p->n_loops; i++)
        p->loops[i - 1] = p->loops[i];
    p->n_loops--;
}

static void fold_rows(struct lt_product *p)
{
    if (p->n_loops == 0 || p->trans_a || p->loops[0].b != 0 || p->loops[0].a != p->m * p->k)
        return;
    p->m *= p->loops[0].n;
    drop_loop(p, 0);
}

static bool choose_batch(struct lt_product *p)
{
    uint32_t best = 0;
    p->batch = (struct lt_loop){.n = 1};
    for (uint32_t i = 1; i < p->n_loops; i++)
        if (p->loops[i].n > p->loops[best].n)
            best = i;
    if (p->n_loops > 0) {
        p->batch = p->loops[best];
        drop_loop(p, best);
    }
    p->launches = 1;
    for (uint32_t i = 0; i < p->n_loops; i++) {
        if (p->loops[i].n > LAUNCHES_MAX / p->launches)
            return false;
        p->launches *= p->loops[i].n;
    }
    return p->batch.n <= BATCH_MAX;
}

static bool read_types(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       bool exact, enum lt_order order, struct lt_product *p)
{
    const struct ir_tensor *a = cuda_input(graph, node, 0), *b = cuda_input(graph, node, 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    p->dtype = dtype == DTYPE_NONE ? y->dtype : dtype;
    if (!a || !b || (p->dtype != DTYPE_F16 && p->dtype != DTYPE_BF16 && p->dtype != DTYPE_F32) ||
        lt_type(y, dtype, exact) != p->dtype || lt_type(a, dtype, exact) != p->dtype)
        return false;
    if (order == LT_AS_IS)
        return lt_type(b, dtype, exact) == p->dtype && !ir_tensor_is_constant(b);
    return ir_tensor_is_constant(b) && dtype_is_float(b->dtype);
}

static bool read_product(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         bool exact, enum lt_order order, struct lt_product *out)
{
    struct lt_product p = {0};
    if (node->op != IR_OP_MATMUL || !read_types(graph, node, dtype, exact, order, &p))
        return false;
    const struct shape *a = &cuda_input(graph, node, 0)->shape;
    const struct shape *b = &cuda_input(graph, node, 1)->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    size_t a_n, b_n, y_n;
    if (!shape_elements(a, &a_n) || !shape_elements(b, &b_n) || !shape_elements(y, &y_n) ||
        a_n == 0 || b_n == 0 || y_n == 0)
        return false;
    bool swapped = ir_attr_int(node, IR_ATTR_TRANS_B) != 0;
    p.trans_a = ir_attr_int(node, IR_ATTR_TRANS_A) != 0;
    p.trans_b = order == LT_AS_IS ? swapped : order == LT_PACKED_NK;
    p.alpha = ir_attr_float(node, IR_ATTR_ALPHA);
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (p.trans_a ? 2 : 1)];
    p.b_elements = b_n;
    p.axis = y->rank - 1;
    if (!lt_steps_read(graph, node, 2, dtype, exact, &p))
        return false;
    struct operand left = {a, p.m, p.k}, right = {b, p.n, p.k};
    read_loops(&left, &right, y, &p);
    fold_rows(&p);
    if (!choose_batch(&p))
        return false;
    *out = p;
    return true;
}

const struct lt_kind lt_kind_matmul = {
    .family = &cuda_family_lt_matmul, .layout = IR_LAYOUT_PLAIN, .read = read_product};

/* --- the family --- */

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    return lt_gemm_candidates(&lt_kind_matmul, device, graph, node, precision, visit, user, err);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    return lt_gemm_pack(&lt_kind_matmul, graph, node, tactic, input, to, err);
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    return lt_gemm_prepare(&lt_kind_matmul, stream, graph, node, tactic, out, err);
}

const struct cuda_family cuda_family_lt_matmul = {
    .id = CUDA_FAMILY_LT_MATMUL,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
