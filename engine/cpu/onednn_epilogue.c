/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a node's epilogue into oneDNN post-ops. A step that oneDNN does not know makes the whole
 * recipe UNIMPLEMENTED: the node then runs on another kernel, never with half of its epilogue.
 *
 * A residual becomes a binary post-op, not a sum. A sum would need the residual in the destination,
 * which would be a rule for whoever places tensors; a binary post-op only reads one more tensor.
 */
#include <math.h>

#include "base/compiler.h"
#include "engine/cpu/onednn_recipe.h"
#include "engine/stored.h"

struct eltwise {
    dnnl_alg_kind_t kind;
    bool known;
    /* Which parameters oneDNN takes from the function; the others have the fixed values below. */
    bool takes_alpha, takes_beta;
    float alpha, beta;
};

/* Logarithm and softplus are left out: oneDNN 2.6 gives -1.4e-6 for log(1), and negative numbers
 * for softplus(-20). */
static const struct eltwise eltwise_table[IR_UNARY_COUNT_] = {
    [IR_UNARY_IDENTITY] = {dnnl_eltwise_linear, true, false, false, 1, 0},
    [IR_UNARY_RELU] = {dnnl_eltwise_relu, true, false, false, 0, 0},
    [IR_UNARY_LEAKY_RELU] = {dnnl_eltwise_relu, true, true, false, 0, 0},
    [IR_UNARY_ELU] = {dnnl_eltwise_elu, true, true, false, 0, 0},
    [IR_UNARY_SIGMOID] = {dnnl_eltwise_logistic, true, false, false, 0, 0},
    [IR_UNARY_HARD_SWISH] = {dnnl_eltwise_hardswish, true, false, false, 0, 0},
    [IR_UNARY_SWISH] = {dnnl_eltwise_swish, true, true, false, 0, 0},
    [IR_UNARY_TANH] = {dnnl_eltwise_tanh, true, false, false, 0, 0},
    [IR_UNARY_GELU] = {dnnl_eltwise_gelu_erf, true, false, false, 0, 0},
    [IR_UNARY_GELU_TANH] = {dnnl_eltwise_gelu_tanh, true, false, false, 0, 0},
    [IR_UNARY_MISH] = {dnnl_eltwise_mish, true, false, false, 0, 0},
    [IR_UNARY_CLIP] = {dnnl_eltwise_clip, true, true, true, 0, 0},
    [IR_UNARY_LINEAR] = {dnnl_eltwise_linear, true, true, true, 0, 0},
    [IR_UNARY_ABS] = {dnnl_eltwise_abs, true, false, false, 0, 0},
    [IR_UNARY_NEG] = {dnnl_eltwise_linear, true, false, false, -1, 0},
    [IR_UNARY_EXP] = {dnnl_eltwise_exp, true, false, false, 0, 0},
    [IR_UNARY_SQRT] = {dnnl_eltwise_sqrt, true, false, false, 0, 0},
    [IR_UNARY_RECIPROCAL] = {dnnl_eltwise_pow, true, false, false, 1, -1},
    [IR_UNARY_ROUND] = {dnnl_eltwise_round, true, false, false, 0, 0},
};

bool eltwise_of(uint32_t func, float alpha, float beta, dnnl_alg_kind_t *kind, float *out_alpha,
                float *out_beta)
{
    if (func >= IR_UNARY_COUNT_ || !eltwise_table[func].known)
        return false;
    const struct eltwise *row = &eltwise_table[func];
    if ((row->takes_alpha && !isfinite(alpha)) || (row->takes_beta && !isfinite(beta)))
        return false;
    *kind = row->kind;
    *out_alpha = row->takes_alpha ? alpha : row->alpha;
    *out_beta = row->takes_beta ? beta : row->beta;
    return true;
}

bool binary_of(uint32_t func, dnnl_alg_kind_t *kind)
{
    static const dnnl_alg_kind_t kinds[] = {
        [IR_BINARY_ADD] = dnnl_binary_add, [IR_BINARY_SUB] = dnnl_binary_sub,
        [IR_BINARY_MUL] = dnnl_binary_mul, [IR_BINARY_DIV] = dnnl_binary_div,
        [IR_BINARY_MAX] = dnnl_binary_max, [IR_BINARY_MIN] = dnnl_binary_min,
    };
    if (func >= ARRAY_LEN(kinds))
        return false;
    *kind = kinds[func];
    return true;
}

/* Gives an operand's dims as the view has them. Returns false if the operand broadcasts only a part
 * of a merged dimension. */
static bool operand_dims(const struct output_view *view, const struct shape *out,
                         const struct shape *operand, int64_t *dims)
{
    int64_t all[SHAPE_MAX_RANK];
    if (view->kind == VIEW_SAME && view->seen == SEEN_AS_IS)
        return dims_padded(operand, view->rank, dims);
    if (!dims_padded(operand, out->rank, all))
        return false;
    if (view->kind == VIEW_SAME) {
        dims_seen(view->seen, out->rank, all, dims);
        return true;
    }
    uint32_t kept = view->kind == VIEW_PIXELS ? 1 : out->rank - 1;
    bool ones = true, full = true;
    for (uint32_t i = 0; i < out->rank; i++) {
        ones = ones && (i == kept || all[i] == 1);
        full = full && (i == kept || all[i] == out->dim[i]);
    }
    if (!ones && !full)
        return false;
    dims[0] = full ? view->dims[0] : 1;
    dims[1] = all[kept];
    return true;
}

static enum status append_binary(const struct subject *s, const struct output_view *view,
                                 const struct ir_epilogue *step, int position, dnnl_post_ops_t ops,
                                 struct recipe *r)
{
    dnnl_alg_kind_t kind;
    const struct ir_tensor *operand = subject_in(s, step->input);
    bool first = step == s->node->epilogue && step->func == IR_BINARY_ADD;
    if (!operand || !binary_of(step->func, &kind) || step->input >= TACTIC_PORTS_MAX ||
        (operand->scale != IR_NO_SCALE && !first))
        return STATUS_UNIMPLEMENTED;
    int64_t dims[SHAPE_MAX_RANK] = {0};
    const struct ir_tensor *out = subject_out(s, 0);
    if (!operand_dims(view, &out->shape, &operand->shape, dims))
        return STATUS_UNIMPLEMENTED;
    bool plain = false;
    for (uint32_t i = 0; i < view->rank; i++)
        plain = plain || dims[i] != view->dims[i];
    /* A broadcast operand is plain. An operand of the full shape has the output's layout; if its
     * rank is smaller than the output's, it has no channel dimension for such a layout. */
    if (!plain && view->layout != IR_LAYOUT_PLAIN && operand->shape.rank != out->shape.rank)
        return STATUS_UNIMPLEMENTED;
    enum ir_layout layout = plain ? IR_LAYOUT_PLAIN : view->layout;
    dnnl_memory_desc_t md;
    if (!desc_layout(&md, view->rank, dims, view->kind == VIEW_SAME ? layout : IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    desc_type(&md, operand);
    if (dnnl_post_ops_append_binary(ops, kind, &md) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1, step->input, &md,
              layout);
    return STATUS_OK;
}

/* oneDNN 2.6 generates one routine for each algorithm, so a second step with the same algorithm
 * silently gets the parameters of the first. */
static bool taken(const_dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha, float beta)
{
    for (int i = 0; i < dnnl_post_ops_len(ops); i++) {
        dnnl_alg_kind_t other;
        float scale, a, b;
        if (dnnl_post_ops_get_kind(ops, i) == dnnl_eltwise &&
            dnnl_post_ops_get_params_eltwise(ops, i, &scale, &other, &a, &b) == dnnl_success &&
            other == kind && (a != alpha || b != beta))
            return true;
    }
    return false;
}

static enum status append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha,
                                  float beta)
{
    if (taken(ops, kind, alpha, beta) ||
        dnnl_post_ops_append_eltwise(ops, 1, kind, alpha, beta) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    return STATUS_OK;
}

/* How a function of numbers that count in some unit is computed. */
enum unit_rule {
    UNIT_ONE = 0, /* it wants real numbers */
    UNIT_ANY,     /* f(u x) = u f(x) for u > 0 */
    UNIT_BETA,    /* the same if beta is divided by u */
    UNIT_BOTH,    /* ... and alpha, too */
};

static const enum unit_rule unit_rules[IR_UNARY_COUNT_] = {
    [IR_UNARY_IDENTITY] = UNIT_ANY, [IR_UNARY_RELU] = UNIT_ANY, [IR_UNARY_LEAKY_RELU] = UNIT_ANY,
    [IR_UNARY_ABS] = UNIT_ANY,      [IR_UNARY_NEG] = UNIT_ANY,  [IR_UNARY_LINEAR] = UNIT_BETA,
    [IR_UNARY_CLIP] = UNIT_BOTH,
};

static enum unit_rule rule_of(const struct ir_epilogue *step)
{
    if (step->kind == IR_EPILOGUE_BINARY)
        return step->func == IR_BINARY_MUL ? UNIT_ANY : UNIT_ONE;
    return step->func < IR_UNARY_COUNT_ ? unit_rules[step->func] : UNIT_ONE;
}

/* How the operand of a first sum is stored; dtype NONE: it is no sum, or its operand is fp32. */
static struct stored residual_of(const struct subject *s)
{
    struct stored residual = {.dtype = DTYPE_NONE};
    const struct ir_epilogue *first = &s->node->epilogue[0];
    if (s->node->n_epilogue && first->kind == IR_EPILOGUE_BINARY && first->func == IR_BINARY_ADD)
        (void)stored_read(s->graph, s->node->inputs[first->input], &residual);
    return residual;
}

float epilogue_unit(const struct subject *s)
{
    struct stored y, residual = residual_of(s);
    if (residual.dtype != DTYPE_NONE)
        return residual.step;
    for (uint32_t i = 0; i < s->node->n_epilogue; i++)
        if (rule_of(&s->node->epilogue[i]) == UNIT_ONE)
            return 1;
    return stored_read(s->graph, s->node->outputs[0], &y) && y.dtype != DTYPE_NONE ? y.step : 1;
}

/* Lets 1 stand for `to`, and adds `zero`. */
static enum status append_unit(dnnl_post_ops_t ops, float *unit, float to, int32_t zero)
{
    float factor = *unit / to;
    *unit = to;
    return factor == 1 && zero == 0 ? STATUS_OK
                                    : append_eltwise(ops, dnnl_eltwise_linear, factor, (float)zero);
}

/* Whether the output's type does by itself what the last step does: all that it cuts off, the type
 * cannot hold. */
static bool is_implied(const struct subject *s, const struct ir_epilogue *step)
{
    struct stored y;
    float low = step->func == IR_UNARY_CLIP ? step->alpha : 0;
    float high = step->func == IR_UNARY_CLIP ? step->beta : INFINITY;
    if (step != &s->node->epilogue[s->node->n_epilogue - 1] || step->kind != IR_EPILOGUE_UNARY ||
        (step->func != IR_UNARY_RELU && step->func != IR_UNARY_CLIP) ||
        !stored_read(s->graph, s->node->outputs[0], &y) || y.dtype == DTYPE_NONE)
        return false;
    float least = (float)(stored_least(y.dtype) - y.zero);
    return low / y.step <= least && high / y.step >= least + 255;
}

static enum status append(const struct subject *s, const struct output_view *view,
                          const struct ir_epilogue *step, float *unit, dnnl_post_ops_t ops,
                          struct recipe *r)
{
    enum unit_rule rule = rule_of(step);
    bool residual = step == s->node->epilogue && residual_of(s).dtype != DTYPE_NONE;
    if (is_implied(s, step))
        return STATUS_OK;
    if (rule == UNIT_ONE && !residual)
        TRY(append_unit(ops, unit, 1, 0));
    if (step->kind == IR_EPILOGUE_BINARY)
        return append_binary(s, view, step, dnnl_post_ops_len(ops), ops, r);
    dnnl_alg_kind_t kind;
    float alpha = rule == UNIT_BOTH ? step->alpha / *unit : step->alpha;
    float beta = rule == UNIT_BOTH || rule == UNIT_BETA ? step->beta / *unit : step->beta;
    if (step->func == IR_UNARY_HARD_SIGMOID) { /* two steps in oneDNN */
        TRY(append_eltwise(ops, dnnl_eltwise_linear, alpha, beta));
        return append_eltwise(ops, dnnl_eltwise_clip, 0, 1);
    }
    if (!eltwise_of(step->func, alpha, beta, &kind, &alpha, &beta))
        return STATUS_UNIMPLEMENTED;
    return append_eltwise(ops, kind, alpha, beta);
}

static void post_ops_cleanup(dnnl_post_ops_t *at)
{
    if (*at)
        dnnl_post_ops_destroy(*at);
}

static enum status append_all(const struct subject *s, const struct output_view *view, float unit,
                              dnnl_post_ops_t ops, struct recipe *r)
{
    struct stored y;
    for (uint32_t i = 0; i < s->node->n_epilogue; i++)
        TRY(append(s, view, &s->node->epilogue[i], &unit, ops, r));
    if (!stored_read(s->graph, s->node->outputs[0], &y))
        return STATUS_UNIMPLEMENTED;
    if (stored_moves(s->graph, s->node))
        return STATUS_OK;
    return append_unit(ops, &unit, y.dtype == DTYPE_NONE ? 1 : y.step, y.zero);
}

enum status epilogue_attr_in(const struct subject *s, const struct output_view *view, float unit,
                             struct recipe *r, dnnl_primitive_attr_t *out)
{
    CLEANUP(attr_cleanup) dnnl_primitive_attr_t attr = NULL;
    CLEANUP(post_ops_cleanup) dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success ||
        dnnl_post_ops_create(&ops) != dnnl_success)
        return STATUS_RESOURCE_EXHAUSTED;
    TRY(append_all(s, view, unit, ops, r));
    if (dnnl_primitive_attr_set_post_ops(attr, ops) != dnnl_success ||
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success)
        return STATUS_RESOURCE_EXHAUSTED;
    *out = STEAL(attr);
    return STATUS_OK;
}

enum status epilogue_attr(const struct subject *s, const struct output_view *view, struct recipe *r,
                          dnnl_primitive_attr_t *out)
{
    return epilogue_attr_in(s, view, 1, r, out);
}
