/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over both graphs; see along.h. */
#include "engine/build/along.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build/along_internal.h"

/* --- for the rules --- */

/* Any operand, those of the epilogue too. */
static const struct along_state *operand(const struct along_node *n, uint32_t i)
{
    if (i >= n->large->n_inputs || n->large->inputs[i] == IR_NONE)
        return NULL;
    return &n->proof->states[n->large->inputs[i]];
}

const struct along_state *along_input(const struct along_node *n, uint32_t i)
{
    return i < n->n_inputs ? operand(n, i) : NULL;
}

const struct shape *along_shape(const struct along_node *n, uint32_t i)
{
    return &ir_tensor(n->proof->large, n->large->inputs[i])->shape;
}

const struct shape *along_out_shape(const struct along_node *n, uint32_t i)
{
    return &ir_tensor(n->proof->large, n->large->outputs[i])->shape;
}

static bool has_marks(const struct along_state *s)
{
    for (uint32_t d = 0; s && d < SHAPE_MAX_RANK; d++)
        if (s->mark[d].on)
            return true;
    return false;
}

bool along_has_marks(const struct along_node *n, uint32_t i)
{
    return has_marks(along_input(n, i));
}

struct along_value along_behind(const struct along_state *s, int d)
{
    return d >= 0 && s->mark[d].on ? s->mark[d].behind : s->all;
}

bool along_has_others(const struct along_state *s, int d)
{
    for (int i = 0; i < SHAPE_MAX_RANK; i++)
        if (i != d && s->mark[i].on)
            return true;
    return false;
}

void along_hide(const struct along_node *n, struct along_value mask)
{
    n->proof->masks |= mask.from;
}

void along_hide_keys(const struct along_node *n, const struct along_state *tensor, uint32_t d,
                     bool scores)
{
    struct along_value mask = tensor->mark[d].behind;
    along_hide(n, mask);
    if (mask.rows || (!scores && along_has_others(tensor, (int)d)))
        n->proof->first |= mask.from;
    n->proof->first |= tensor->lows & ~mask.from;
    for (uint32_t i = 0; i < SHAPE_MAX_RANK; i++) {
        struct along_value other = along_behind(tensor, (int)i);
        if (i != d && (!scores || along_is_low(other) || along_is_zero(other)))
            n->proof->whole |= other.from & mask.from;
    }
}

/* Whether what the operand brings to the value differs along another dimension than d. */
static bool brings_rows(const struct along_state *s, int d, struct along_value made)
{
    struct along_value v = along_behind(s, d);
    bool counts = along_is_low(v) || (v.kind == ALONG_CONST && v.from & made.from);
    return counts && (v.rows || along_has_others(s, d));
}

/* The dimension of the operand that lies under the output's, counted from the last; -1: none. */
static int under(const struct along_node *n, uint32_t input, uint32_t d)
{
    int shift = (int)along_out_shape(n, 0)->rank - (int)along_shape(n, input)->rank;
    return (int)d - shift < 0 ? -1 : (int)d - shift;
}

/* The mark that the operands have in the output's dimension d; false: they disagree. */
static bool common_mark(const struct along_node *n, const uint32_t *inputs, uint32_t n_inputs,
                        uint32_t d, struct along_mark *out)
{
    int64_t size = along_out_shape(n, 0)->dim[d];
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n_inputs; i++) {
            const struct along_state *s = along_input(n, inputs[i]);
            int at = s ? under(n, inputs[i], d) : -1;
            if (at < 0 || along_shape(n, inputs[i])->dim[at] != size)
                continue;
            const struct along_mark *mark = &s->mark[at];
            if (pass == 0 && mark->on)
                *out = *mark;
            if (pass == 1 && out->on && (!mark->on || mark->inner != out->inner))
                return false;
        }
    return true;
}

bool along_broadcast(const struct along_node *n, const uint32_t *inputs, uint32_t n_inputs,
                     along_combine combine, const void *user, struct along_state *out)
{
    struct along_value values[IR_MAX_EPILOGUE];
    assert(n_inputs <= IR_MAX_EPILOGUE);
    for (uint32_t i = 0; i < n_inputs; i++)
        values[i] = along_input(n, inputs[i])->all;
    out->all = combine(user, values);
    for (uint32_t d = 0; d < along_out_shape(n, 0)->rank; d++) {
        struct along_mark mark = {.on = false};
        if (!common_mark(n, inputs, n_inputs, d, &mark))
            return false;
        for (uint32_t i = 0; i < n_inputs; i++)
            values[i] = along_behind(along_input(n, inputs[i]), under(n, inputs[i], d));
        if (!mark.on)
            continue;
        struct along_value behind = combine(user, values);
        for (uint32_t i = 0; i < n_inputs; i++)
            behind.rows = behind.rows ||
                          brings_rows(along_input(n, inputs[i]), under(n, inputs[i], d), behind);
        out->mark[d] = (struct along_mark){true, mark.inner, behind};
    }
    return true;
}

/* --- constants --- */

static double element(const struct ir_tensor *t, size_t i)
{
    const char *at = (const char *)t->data + i * dtype_size(t->dtype);
    union {
        float f;
        double d;
        uint16_t h;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
        int8_t i8;
    } u = {.i64 = 0};
    memcpy(&u, at, dtype_size(t->dtype));
    switch (t->dtype) {
    case DTYPE_F32:
        return (double)u.f;
    case DTYPE_F64:
        return u.d;
    case DTYPE_F16:
        return (double)f16_to_f32(u.h);
    case DTYPE_BF16:
        return (double)bf16_to_f32(u.h);
    case DTYPE_I64:
        return (double)u.i64;
    case DTYPE_I32:
        return u.i32;
    case DTYPE_U8:
    case DTYPE_BOOL:
        return u.u8;
    case DTYPE_I8:
        return u.i8;
    default:
        return NAN; /* nothing is known of it */
    }
}

/* Adds a number to what is known of several. */
static void value_note(struct along_value *v, bool *first, double x)
{
    struct along_value now = along_const(x);
    *v = *first ? now : along_join(*v, now);
    *first = false;
}

/* What is known of a constant that is the same at both sizes. Long ones are weights. */
enum { CONSTANT_LOOK = 1 << 16 };

static struct along_value constant_value(const struct ir_tensor *t)
{
    struct along_value v = along_of(ALONG_FINITE);
    bool first = true;
    size_t n;
    if (!shape_elements(&t->shape, &n) || n > CONSTANT_LOOK)
        return v;
    for (size_t i = 0; i < n; i++)
        value_note(&v, &first, element(t, i));
    return v;
}

/* A constant whose sizes differ, element by element. If it has several elements for each place of a
 * request, as what is repeated for each instance's heads, they lie together. */
struct pair {
    const struct along_proof *proof;
    const struct ir_tensor *small, *large;
    struct along_state *state;
    bool first[SHAPE_MAX_RANK], first_all;
};

/* Where the element of these indices lies in the smaller constant; SIZE_MAX: it is not there.
 * *d: the only dimension along which it lies behind; SHAPE_MAX_RANK: there are several. */
static size_t small_place(const struct pair *p, const int64_t *index, uint32_t *d)
{
    size_t at = 0;
    uint32_t behind = 0;
    for (uint32_t k = 0; k < p->small->shape.rank; k++) {
        at = at * (size_t)p->small->shape.dim[k] + (size_t)index[k];
        if (index[k] >= p->small->shape.dim[k]) {
            behind++;
            *d = k;
        }
    }
    if (behind > 1)
        *d = SHAPE_MAX_RANK;
    return behind ? SIZE_MAX : at;
}

/* Apart, all requests must see the same: what the first one sees along every mark. */
static bool is_same_along(const struct pair *p, const int64_t *index, size_t at, size_t size)
{
    size_t first = 0;
    for (uint32_t k = 0; k < p->large->shape.rank; k++) {
        const struct along_mark *mark = &p->state->mark[k];
        first = first * (size_t)p->large->shape.dim[k] +
                (size_t)(mark->on ? index[k] % mark->inner : index[k]);
    }
    return memcmp((const char *)p->large->data + at * size,
                  (const char *)p->large->data + first * size, size) == 0;
}

static bool pair_element(struct pair *p, const int64_t *index, size_t at)
{
    size_t size = dtype_size(p->large->dtype);
    uint32_t d = SHAPE_MAX_RANK;
    size_t in_small = small_place(p, index, &d);
    if (p->proof->mode == ALONG_APART && !is_same_along(p, index, at, size))
        return false;
    if (in_small != SIZE_MAX) {
        value_note(&p->state->all, &p->first_all, element(p->large, at));
        return memcmp((const char *)p->small->data + in_small * size,
                      (const char *)p->large->data + at * size, size) == 0;
    }
    if (d < SHAPE_MAX_RANK)
        value_note(&p->state->mark[d].behind, &p->first[d], element(p->large, at));
    return true;
}

/* Marks the dimensions that have the size, or up to `most` times the size. False: others differ. */
static bool mark_differing(const struct along_proof *proof, const struct shape *small,
                           const struct shape *large, int64_t most, struct along_value behind,
                           struct along_state *state)
{
    if (small->rank != large->rank)
        return false;
    for (uint32_t d = 0; d < large->rank; d++) {
        if (small->dim[d] == large->dim[d])
            continue;
        int64_t inner = small->dim[d] / proof->small_size;
        if (inner < 1 || inner > most || small->dim[d] % proof->small_size ||
            large->dim[d] % proof->large_size || large->dim[d] / proof->large_size != inner)
            return false;
        state->mark[d] = (struct along_mark){true, inner, behind};
    }
    return true;
}

static bool constant_compare(const struct along_proof *proof, const struct ir_tensor *small,
                             const struct ir_tensor *large, struct along_state *state)
{
    struct pair p = {
        .proof = proof, .small = small, .large = large, .state = state, .first_all = true};
    int64_t index[SHAPE_MAX_RANK] = {0};
    size_t n, in_small;
    if (!mark_differing(proof, &small->shape, &large->shape, INT64_MAX, along_of(ALONG_FINITE),
                        state) ||
        small->dtype != large->dtype || !shape_elements(&large->shape, &n) ||
        !shape_elements(&small->shape, &in_small) || !n || !in_small)
        return false;
    memset(p.first, true, sizeof(p.first));
    for (size_t at = 0; at < n; at++) {
        if (!pair_element(&p, index, at))
            return false;
        for (uint32_t d = large->shape.rank; d-- > 0 && ++index[d] == large->shape.dim[d];)
            index[d] = 0;
    }
    return true;
}

static void constant_state(const struct along_proof *p, uint32_t id, struct along_state *out)
{
    const struct ir_tensor *small = ir_tensor(p->small, id), *large = ir_tensor(p->large, id);
    out->constant = true;
    if (small->dtype == large->dtype && shape_equal(&small->shape, &large->shape) &&
        small->bytes == large->bytes) {
        out->broken = small->data != large->data &&
                      memcmp(small->data, large->data, (size_t)large->bytes) != 0;
        out->all = constant_value(large);
        out->finite = out->all.kind == ALONG_FINITE || out->all.kind == ALONG_CONST;
        return;
    }
    out->broken = !constant_compare(p, small, large, out);
    out->finite = along_is_tame(out->all);
    for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
        out->finite = out->finite && (!out->mark[d].on || along_is_tame(out->mark[d].behind));
}

/* --- nodes --- */

static bool same_attr(const struct ir_attr *a, const struct ir_attr *b)
{
    size_t size = a->is_float ? sizeof(*a->f) : sizeof(*a->i);
    return a->key == b->key && a->is_float == b->is_float && a->count == b->count &&
           (!a->count || memcmp(a->i, b->i, a->count * size) == 0);
}

static bool same_attrs(const struct ir_node *a, const struct ir_node *b)
{
    if (a->n_attrs != b->n_attrs)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], &b->attrs[i]) && !along_may_differ(a->op, a->attrs[i].key))
            return false;
    return true;
}

static bool same_ids(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    return !n || memcmp(a, b, n * sizeof(*a)) == 0;
}

static bool same_node(const struct ir_node *a, const struct ir_node *b)
{
    return a->op == b->op && a->n_inputs == b->n_inputs && a->n_outputs == b->n_outputs &&
           a->n_epilogue == b->n_epilogue && same_ids(a->inputs, b->inputs, a->n_inputs) &&
           same_ids(a->outputs, b->outputs, a->n_outputs) &&
           memcmp(a->epilogue, b->epilogue, a->n_epilogue * sizeof(a->epilogue[0])) == 0;
}

/* Whether both graphs have the same nodes between the same tensors. */
static bool same_graph(const struct ir_graph *a, const struct ir_graph *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_tensors == b->n_tensors &&
                a->n_inputs == b->n_inputs && a->n_outputs == b->n_outputs &&
                same_ids(a->inputs, b->inputs, a->n_inputs) &&
                same_ids(a->outputs, b->outputs, a->n_outputs);
    for (uint32_t i = 0; same && i < a->n_nodes; i++)
        same = same_node(ir_node(a, i), ir_node(b, i));
    for (uint32_t i = 0; same && i < a->n_tensors; i++)
        same = ir_tensor_is_constant(ir_tensor(a, i)) == ir_tensor_is_constant(ir_tensor(b, i));
    return same;
}

/* --- epilogues --- */

static struct along_value step_value(const struct ir_epilogue *e, struct along_value x,
                                     struct along_value by)
{
    const float constants[3] = {e->alpha, e->beta, e->gamma};
    return e->kind == IR_EPILOGUE_UNARY ? along_unary((enum ir_unary)e->func, x, constants)
                                        : along_binary((enum ir_binary)e->func, x, by);
}

/* Marks of the operand are marks of the output: its shape is the output's, or broadcasts to it. */
static bool epilogue_apply(const struct along_node *n, const struct ir_epilogue *e)
{
    bool binary = e->kind == IR_EPILOGUE_BINARY;
    struct along_state *y = n->out[0];
    const struct along_state *x = binary ? operand(n, e->input) : NULL;
    struct along_value none = along_of(ALONG_FINITE);
    if (binary && (!x || x->broken))
        return false;
    for (uint32_t d = 0; d < along_out_shape(n, 0)->rank; d++) {
        int at = x ? under(n, e->input, d) : -1;
        bool wide = at >= 0 && along_shape(n, e->input)->dim[at] == along_out_shape(n, 0)->dim[d];
        struct along_mark *mark = &y->mark[d];
        if (wide && (x->mark[at].on != mark->on || (mark->on && x->mark[at].inner != mark->inner)))
            return false;
        if (!mark->on)
            continue;
        struct along_value made = step_value(e, mark->behind, x ? along_behind(x, at) : none);
        made.rows = brings_rows(y, (int)d, made) || (x && brings_rows(x, at, made));
        mark->behind = made;
    }
    y->all = step_value(e, y->all, x ? x->all : none);
    y->finite = y->finite && (!x || x->finite) &&
                !(x ? along_binary_grows((enum ir_binary)e->func)
                    : along_unary_grows((enum ir_unary)e->func));
    return true;
}

/* --- a node --- */

/* Whether the output's sizes are what its marks say. */
static bool is_explained(const struct along_proof *p, uint32_t id, const struct along_state *s)
{
    const struct shape *small = &ir_tensor(p->small, id)->shape;
    const struct shape *large = &ir_tensor(p->large, id)->shape;
    if (small->rank != large->rank)
        return false;
    for (uint32_t d = 0; d < large->rank; d++) {
        const struct along_mark *m = &s->mark[d];
        int64_t outer = m->on ? large->dim[d] / (p->large_size * m->inner) : 0;
        if (m->on ? outer * p->large_size * m->inner != large->dim[d] ||
                        outer * p->small_size * m->inner != small->dim[d]
                  : large->dim[d] != small->dim[d])
            return false;
    }
    return true;
}

/* Whether the node is one thing at both sizes, and no operand has a mark. */
static bool is_plain(const struct along_node *n)
{
    for (uint32_t i = 0; i < n->large->n_inputs; i++)
        if (has_marks(operand(n, i)))
            return false;
    for (uint32_t i = 0; i < n->large->n_attrs; i++)
        if (!same_attr(&n->small->attrs[i], &n->large->attrs[i]))
            return false;
    return true;
}

static void outputs_begin(const struct along_node *n, bool finite)
{
    for (uint32_t i = 0; i < n->large->n_outputs; i++)
        *n->out[i] = (struct along_state){.all = along_of(ALONG_FINITE), .finite = finite};
}

static bool node_prove(struct along_node *n)
{
    along_rule rule = along_rule_of(n->large->op);
    bool finite = true;
    if (!same_attrs(n->small, n->large))
        return false;
    for (uint32_t i = 0; i < n->large->n_inputs; i++) {
        const struct along_state *s = operand(n, i);
        if (s && s->broken && !along_takes_places(n, i))
            return false;
        finite = finite && (i >= n->n_inputs || !s || s->finite);
    }
    outputs_begin(n, finite);
    if (!rule || !rule(n)) {
        if (!is_plain(n))
            return false;
        outputs_begin(n, finite);
    }
    for (uint32_t i = 0; i < n->large->n_epilogue; i++)
        if (!epilogue_apply(n, &n->large->epilogue[i]))
            return false;
    return true;
}

static void outputs_break(struct along_node *n)
{
    for (uint32_t i = 0; i < n->large->n_outputs; i++)
        *n->out[i] = (struct along_state){.broken = true};
}

/* Whether the op leaves low numbers low, or moves them. */
static bool keeps_lows(enum ir_op op)
{
    switch (op) {
    case IR_OP_BINARY:
    case IR_OP_UNARY:
    case IR_OP_SELECT:
    case IR_OP_CAST:
    case IR_OP_RESHAPE:
    case IR_OP_TRANSPOSE:
    case IR_OP_EXPAND:
    case IR_OP_TILE:
    case IR_OP_CONCAT:
    case IR_OP_SLICE:
    case IR_OP_PAD:
    case IR_OP_TRILU:
    case IR_OP_REFORMAT:
        return true;
    default:
        return false;
    }
}

/* Inputs that make some of the output's numbers low, here and not in its operands: masks, which
 * show by what is behind, and what chooses between a low number and others. */
static uint64_t lows_made(const struct along_node *n, const struct along_state *out)
{
    uint64_t lows = 0;
    for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
        if (out->mark[d].on && along_is_low(out->mark[d].behind))
            lows |= out->mark[d].behind.from;
    if (n->large->op == IR_OP_SELECT &&
        (along_is_low(along_input(n, 1)->all) || along_is_low(along_input(n, 2)->all)))
        lows |= along_input(n, 0)->reads;
    return lows;
}

static void follow_inputs(const struct along_node *n)
{
    uint64_t reads = 0, lows = 0;
    for (uint32_t i = 0; i < n->large->n_inputs; i++) {
        const struct along_state *s = operand(n, i);
        reads |= s ? s->reads : 0;
        lows |= s ? s->lows : 0;
    }
    for (uint32_t i = 0; i < n->large->n_outputs; i++) {
        n->out[i]->reads = reads;
        n->out[i]->lows = lows_made(n, n->out[i]) | (keeps_lows(n->large->op) ? lows : 0);
    }
}

static void node_walk(struct along_proof *p, uint32_t index, struct along_result *result)
{
    struct along_node n = {.proof = p,
                           .small = ir_node(p->small, index),
                           .large = ir_node(p->large, index),
                           .n_inputs = ir_node_own_inputs(ir_node(p->large, index))};
    bool fresh = true; /* no operand is broken: the node itself is to blame */
    if (n.large->op == IR_OP_NONE)
        return;
    for (uint32_t i = 0; i < n.large->n_inputs; i++)
        fresh = fresh && !(operand(&n, i) && operand(&n, i)->broken && !operand(&n, i)->constant);
    for (uint32_t i = 0; i < n.large->n_outputs; i++)
        n.out[i] = &p->states[n.large->outputs[i]];
    if (!node_prove(&n))
        outputs_break(&n);
    follow_inputs(&n);
    for (uint32_t i = 0; i < n.large->n_outputs; i++) {
        if (!n.out[i]->broken && !is_explained(p, n.large->outputs[i], n.out[i]))
            n.out[i]->broken = true;
        if (n.out[i]->broken && fresh && !result->why[0] && along_joins(&n))
            snprintf(result->joins, sizeof(result->joins), "%.120s", n.large->name);
        if (n.out[i]->broken && fresh && !result->why[0])
            snprintf(result->why, sizeof(result->why), "%s '%.100s' may mix what lies along it",
                     ir_op_name(n.large->op), n.large->name);
    }
}

/* --- the whole --- */

static bool inputs_mark(struct along_proof *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->large->n_inputs; i++) {
        uint32_t id = p->large->inputs[i];
        struct along_value behind =
            p->mode == ALONG_PADDED ? along_const(0) : along_of(ALONG_FINITE);
        behind.from = p->states[id].reads = i < 64 ? UINT64_C(1) << i : 0;
        p->states[id].all = along_of(ALONG_FINITE);
        p->states[id].finite = true;
        if (!mark_differing(p, &ir_tensor(p->small, id)->shape, &ir_tensor(p->large, id)->shape, 1,
                            behind, &p->states[id]))
            return false;
        for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
            any = any || p->states[id].mark[d].on;
    }
    return any;
}

static bool outputs_read(const struct along_proof *p, struct along_result *out)
{
    for (uint32_t i = 0; i < p->large->n_outputs; i++) {
        const struct along_state *s = &p->states[p->large->outputs[i]];
        if (s->broken)
            return false;
        for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++) {
            if (!s->mark[d].on)
                continue;
            bool whole = s->mark[d].inner == 1 &&
                         ir_tensor(p->large, p->large->outputs[i])->shape.dim[d] == p->large_size;
            if (!whole) {
                snprintf(out->why, sizeof(out->why), "output '%.80s' merges it with another",
                         ir_tensor(p->large, p->large->outputs[i])->name);
                return false;
            }
            out->out[i] |= (uint8_t)(1u << d);
        }
    }
    return true;
}

static bool prove(struct along_proof *p, struct along_result *out)
{
    for (uint32_t i = 0; i < p->large->n_tensors; i++)
        if (ir_tensor_is_constant(ir_tensor(p->large, i)))
            constant_state(p, i, &p->states[i]);
    if (!inputs_mark(p))
        return false;
    for (uint32_t i = 0; i < p->large->n_nodes; i++)
        node_walk(p, i, out);
    out->masks = p->masks | p->first;
    out->first = p->first;
    out->whole = p->whole;
    return outputs_read(p, out);
}

bool along_prove(const struct ir_graph *small, const struct ir_graph *large, int64_t small_size,
                 int64_t large_size, enum along_mode mode, struct along_result *out)
{
    struct along_proof p = {.small = small,
                            .large = large,
                            .small_size = small_size,
                            .large_size = large_size,
                            .mode = mode};
    *out = (struct along_result){.masks = 0};
    if (!same_graph(small, large)) {
        snprintf(out->why, sizeof(out->why), "the model has other layers for another size");
        return false;
    }
    p.states = calloc((size_t)large->n_tensors + 1, sizeof(*p.states));
    out->no_memory = !p.states;
    bool proved = p.states && prove(&p, out);
    free(p.states);
    return proved;
}
