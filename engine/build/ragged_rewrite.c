/* SPDX-License-Identifier: Apache-2.0 */
/* See ragged.h. All rewriting is done to two forms of the model in step, so that tensors of one
 * number stay the same thing in both. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/build/ragged_internal.h"
#include "engine/passes/pass.h"

enum status ragged_refuse(struct error *err, const char *layer, const char *fmt, ...)
{
    char why[192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    return error_set(err, STATUS_UNIMPLEMENTED, "--ragged: layer '%.100s' %s", layer, why);
}

enum status ragged_no_memory(struct error *err)
{
    return error_no_memory(err, "the builder");
}

/* --- what depends on what --- */

bool ragged_differs(const struct ir_graph *a, const struct ir_graph *b, uint32_t tensor)
{
    return !shape_equal(&ir_tensor(a, tensor)->shape, &ir_tensor(b, tensor)->shape);
}

/* Finds the tensors that have a row for each token. */
static bool find_tokens(struct ragged_forms *f)
{
    f->tokens = arena_array(f->graph->arena, (size_t)f->graph->n_tensors + 1, sizeof(*f->tokens));
    for (uint32_t i = 0; f->tokens && i < f->graph->n_tensors; i++)
        f->tokens[i] = ragged_differs(f->graph, f->longer, i) &&
                       !ir_tensor_is_constant(ir_tensor(f->graph, i));
    return f->tokens != NULL;
}

static bool of_tokens(const struct ragged_forms *f, uint32_t tensor)
{
    return tensor < f->more->n_tensors && f->tokens[tensor];
}

/* --- masks --- */

/* Whether a constant is a mask that hides nothing: zeros that are added, or truth. */
static bool hides_nothing(const struct ir_tensor *t)
{
    const uint8_t *data = t->data;
    bool truth = ir_tensor_type(t) == DTYPE_BOOL;
    size_t size = dtype_size(t->dtype);
    for (uint64_t at = 0; data && at < t->bytes; at += size)
        for (size_t k = 0; k < size; k++) {
            bool sign = k + 1 == size && !truth; /* -0 is added as well */
            if (truth ? !data[at] : (sign ? data[at + k] & 0x7f : data[at + k]))
                return false;
        }
    return data != NULL;
}

/* `any`: whatever the mask hides. */
static enum status drop_mask(struct ir_graph *graph, struct ir_node *node, bool any,
                             struct error *err)
{
    if (node->n_inputs < 4 || node->inputs[3] == IR_NONE)
        return STATUS_OK;
    const struct ir_tensor *mask = ir_tensor(graph, node->inputs[3]);
    if (!any && !ir_tensor_is_constant(mask))
        return ragged_refuse(err, node->name,
                             "has a mask that is computed from more than the mask input, "
                             "or is too large for so many tokens");
    if (!any && !hides_nothing(mask))
        return ragged_refuse(err, node->name, "adds numbers to its scores that depend on places");
    node->inputs[3] = IR_NONE;
    return STATUS_OK;
}

/* The form of the longest sequences is looked at for its tables alone. Its masks may be too large
 * to be constants. */
enum status ragged_drop_masks(struct ragged_forms *f, struct error *err)
{
    struct ir_graph *const all[] = {f->graph, f->longer, f->more, f->most};
    for (size_t g = 0; g < ARRAY_LEN(all) && all[g]; g++) {
        struct pass_context context = {.log = NULL};
        for (uint32_t i = 0; i < all[g]->n_nodes; i++)
            if (ir_node(all[g], i)->op == IR_OP_ATTENTION)
                TRY(drop_mask(all[g], ir_node(all[g], i), all[g] == f->most, err));
        TRY(pass_run(pass_find("erase_unused"), all[g], &context, err));
    }
    return STATUS_OK;
}

/* --- inputs that the runtime makes --- */

static uint32_t input_add(struct ir_graph *graph, const char *name, const struct shape *shape)
{
    if (graph->n_inputs == IR_MAX_IO)
        return IR_NONE;
    uint32_t id = ir_tensor_add(graph, name, DTYPE_I32, shape);
    if (id != IR_NONE)
        graph->inputs[graph->n_inputs++] = id;
    return id;
}

uint32_t ragged_input_of(struct ir_graph *graph, const char *name, const struct shape *shape)
{
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        if (!strcmp(ir_tensor(graph, graph->inputs[i])->name, name))
            return graph->inputs[i];
    return input_add(graph, name, shape);
}

/* Adds a node whose output is inferred; IR_NONE: *err says why not. */
static uint32_t add_node(struct ir_graph *graph, enum ir_op op, const char *name, uint32_t n,
                         const uint32_t *inputs, enum ir_attr_key key, uint32_t n_values,
                         const int64_t *values, struct error *err)
{
    uint32_t node = ir_node_add(graph, op, name, n, inputs);
    if (node == IR_NONE || !ir_attr_set_ints(graph, node, key, n_values, values)) {
        ragged_no_memory(err);
        return IR_NONE;
    }
    return ir_infer_apply(graph, node, &name, 1, err) ? IR_NONE : ir_node(graph, node)->outputs[0];
}

uint32_t ragged_add_reshape(struct ir_graph *graph, const char *name, uint32_t input,
                            const struct shape *shape, struct error *err)
{
    return add_node(graph, IR_OP_RESHAPE, name, 1, &input, IR_ATTR_SHAPE, shape->rank, shape->dim,
                    err);
}

uint32_t ragged_add_gather(struct ir_graph *graph, const char *name, uint32_t from,
                           uint32_t indices, struct error *err)
{
    const uint32_t inputs[] = {from, indices};
    return add_node(graph, IR_OP_GATHER, name, 2, inputs, IR_ATTR_AXIS, 1, (const int64_t[]){0},
                    err);
}

/* --- attention --- */

/* An operand that has its heads first, [n,heads,s,d], as rows of heads. */
static enum status put_rows_first(struct ir_graph *graph, uint32_t index, uint32_t input,
                                  struct error *err)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    const char *name = ir_node(graph, index)->name;
    uint32_t from = ir_node(graph, index)->inputs[input];
    const int64_t *dim = ir_tensor(graph, from)->shape.dim;
    const struct shape rows = {.rank = 3, .dim = {dim[0], dim[2], dim[1] * dim[3]}};
    uint32_t turned = add_node(graph, IR_OP_TRANSPOSE, name, 1, &from, IR_ATTR_PERM, 4, perm, err);
    if (turned == IR_NONE)
        return err->status;
    uint32_t made = ragged_add_reshape(graph, name, turned, &rows, err);
    if (made == IR_NONE)
        return err->status;
    ir_node(graph, index)->inputs[input] = made;
    return STATUS_OK;
}

static enum status join_attention(struct ir_graph *graph, int64_t n, int64_t s, uint32_t index,
                                  struct error *err)
{
    const struct shape shape = {.rank = 3, .dim = {n, s, 2}};
    uint32_t spans = ragged_input_of(graph, RAGGED_SPANS, &shape);
    if (spans == IR_NONE)
        return ragged_no_memory(err);
    for (uint32_t i = 0; i < 3 && i < ir_node(graph, index)->n_inputs; i++) {
        uint32_t input = ir_node(graph, index)->inputs[i];
        const struct shape *own = input == IR_NONE ? NULL : &ir_tensor(graph, input)->shape;
        if (own && (own->dim[0] != n || own->dim[own->rank - 2] != s))
            return ragged_refuse(err, ir_node(graph, index)->name,
                                 "attends to something else than the tokens of its sequence");
        if (own && own->rank == 4)
            TRY(put_rows_first(graph, index, i, err));
    }
    while (ir_node(graph, index)->n_inputs < 5)
        if (ir_node_input_add(graph, index, IR_NONE) == IR_NONE)
            return ragged_no_memory(err);
    ir_node(graph, index)->inputs[4] = spans;
    return STATUS_OK;
}

static enum status join_attentions(struct ragged_forms *f, struct error *err)
{
    for (uint32_t i = 0, n = f->graph->n_nodes; i < n; i++) {
        if (ir_node(f->graph, i)->op != IR_OP_ATTENTION)
            continue;
        TRY(join_attention(f->graph, f->n, f->s, i, err));
        TRY(join_attention(f->longer, f->n, f->other, i, err));
    }
    return STATUS_OK;
}

/* --- first tokens --- */

static bool is_zero(const struct ir_tensor *t)
{
    const uint8_t *data = t->data;
    for (uint64_t i = 0; data && i < t->bytes; i++)
        if (data[i])
            return false;
    return data && t->bytes == dtype_size(t->dtype);
}

/* Whether the node takes the first token of each sequence of [n,s,..], and nothing else. */
static bool takes_first(const struct ragged_forms *f, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(f->graph, node->inputs[0])->shape;
    if (node->n_epilogue || x->rank < 2 || x->dim[0] != f->n || x->dim[1] != f->s)
        return false;
    if (node->op == IR_OP_GATHER)
        return ir_attr_int(node, IR_ATTR_AXIS) == 1 &&
               is_zero(ir_tensor(f->graph, node->inputs[1]));
    if (node->op != IR_OP_SLICE)
        return false;
    for (uint32_t d = 0; d < x->rank; d++)
        if (ir_attr_at(node, IR_ATTR_STARTS, d) != 0 || ir_attr_at(node, IR_ATTR_STEPS, d) != 1 ||
            ir_attr_at(node, IR_ATTR_ENDS, d) != (d == 1 ? 1 : x->dim[d]))
            return false;
    return true;
}

/* Whether the node sums up integers [n,s] along the tokens, as positions are counted from ids. Sums
 * of one sequence are differences of sums over all, which integers have exactly. */
static bool sums_up(const struct ragged_forms *f, const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(f->graph, node->inputs[0]);
    return node->op == IR_OP_CUMSUM && !node->n_epilogue && ir_attr_int(node, IR_ATTR_AXIS) == 1 &&
           !ir_attr_int(node, IR_ATTR_EXCLUSIVE) && !ir_attr_int(node, IR_ATTR_REVERSE) &&
           x->shape.rank == 2 && x->shape.dim[0] == f->n && x->shape.dim[1] == f->s &&
           (x->dtype == DTYPE_I32 || x->dtype == DTYPE_I64);
}

/* Whether the node reduces [n,s,W] along the tokens, and nothing else. */
static bool reduces_tokens(const struct ragged_forms *f, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(f->graph, node->inputs[0])->shape;
    const struct ir_attr *axes = ir_attr(node, IR_ATTR_AXES);
    return node->op == IR_OP_REDUCE && !node->n_epilogue && axes && axes->count == 1 &&
           axes->i[0] == 1 && x->rank == 3 && x->dim[0] == f->n && x->dim[1] == f->s;
}

/* Whether node `index` divides by `s` in the graph. */
static bool divides_by(const struct ir_graph *graph, uint32_t index, int64_t s)
{
    const struct ir_node *node = ir_node(graph, index);
    float alpha, beta, gamma;
    if (node->op != IR_OP_UNARY || node->n_epilogue ||
        ir_attr_int(node, IR_ATTR_FUNC) != IR_UNARY_LINEAR)
        return false;
    ir_unary_constants(node, &alpha, &beta, &gamma);
    float error = alpha * (float)s - 1;
    return beta == 0 && error > -1e-6F && error < 1e-6F;
}

/* Finds the node whose output is the mean of all tokens, if this one is its beginning: a mean, or a
 * sum that the next one divides by as many as there are. IR_NONE: it is none. */
static uint32_t find_mean(const struct ragged_forms *f, uint32_t index)
{
    const struct ir_node *node = ir_node(f->graph, index);
    if (!reduces_tokens(f, node))
        return IR_NONE;
    if (ir_attr_int(node, IR_ATTR_FUNC) == IR_REDUCE_MEAN)
        return index;
    uint32_t next = ir_tensor_sole_reader(f->graph, node->outputs[0]);
    bool mean = ir_attr_int(node, IR_ATTR_FUNC) == IR_REDUCE_SUM && next != IR_NONE &&
                divides_by(f->graph, next, f->s) && divides_by(f->longer, next, f->other);
    return mean ? next : IR_NONE;
}

/* Makes the node's output an input. */
static bool cut_off(struct ir_graph *graph, uint32_t index)
{
    uint32_t output = ir_node(graph, index)->outputs[0];
    if (graph->n_inputs == IR_MAX_IO)
        return false;
    ir_node_remove(graph, index);
    graph->inputs[graph->n_inputs++] = output;
    return true;
}

/* Cuts the graph behind node `last`, which makes of the input of node `index` what `kind` says. */
static enum status cut_pick(struct ragged_forms *f, uint32_t index, uint32_t last,
                            enum ragged_kind kind, struct error *err)
{
    const char *name = ir_node(f->graph, index)->name;
    uint32_t from = ir_node(f->graph, index)->inputs[0], to = ir_node(f->graph, last)->outputs[0];
    if (f->n_picks == RAGGED_PICKS_MAX)
        return ragged_refuse(err, name, "is one too many of those that join tokens");
    f->picks[f->n_picks++] = (struct ragged_pick){kind, from, to, name};
    if (index != last) {
        ir_node_remove(f->graph, index);
        ir_node_remove(f->longer, index);
    }
    if (!cut_off(f->graph, last) || !cut_off(f->longer, last))
        return ragged_refuse(err, name, "is one too many of those that join tokens");
    return STATUS_OK;
}

static enum status cut_picks(struct ragged_forms *f, struct error *err)
{
    for (uint32_t i = 0; i < f->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(f->graph, i);
        if (node->op == IR_OP_NONE || node->n_outputs != 1 || !node->n_inputs ||
            !of_tokens(f, node->inputs[0]))
            continue;
        uint32_t mean = find_mean(f, i);
        if (mean != IR_NONE)
            TRY(cut_pick(f, i, mean, RAGGED_MEAN, err));
        else if (sums_up(f, node))
            TRY(cut_pick(f, i, i, RAGGED_SUM, err));
        else if (!of_tokens(f, node->outputs[0]) && takes_first(f, node))
            TRY(cut_pick(f, i, i, RAGGED_FIRST, err));
    }
    return STATUS_OK;
}

/* What comes of first tokens, and of that, has a row for each sequence: nothing else joins tokens.
 */
enum status ragged_rewrite(struct ragged_forms *f, struct error *err)
{
    if (!find_tokens(f))
        return ragged_no_memory(err);
    TRY(cut_picks(f, err));
    TRY(ragged_gather_constants(f, err));
    return join_attentions(f, err);
}

/* --- rows of sequences --- */

/* The shape that a tensor with a row for each of `n` sequences has for `rows` of them. */
static bool stretch(const struct ragged_forms *f, uint32_t id, int64_t rows, struct shape *out)
{
    const struct shape *a = &ir_tensor(f->graph, id)->shape, *c = &ir_tensor(f->more, id)->shape;
    *out = *a;
    for (uint32_t d = 0; d < a->rank; d++) {
        if (a->dim[d] == c->dim[d])
            continue;
        if (a->dim[d] % f->n || a->dim[d] / f->n * (f->n + 1) != c->dim[d])
            return false;
        out->dim[d] = a->dim[d] / f->n * rows;
    }
    return a->rank == c->rank;
}

static bool same_ints(const struct ir_attr *a, const struct ir_attr *b)
{
    return a->count == b->count && a->is_float == b->is_float &&
           (!a->count || a->is_float || !memcmp(a->i, b->i, a->count * sizeof(*a->i)));
}

/* Whether the node's attributes, but for the shape of its output, are the same for any number. */
static bool keeps_attrs(const struct ragged_forms *f, uint32_t index)
{
    const struct ir_node *a = ir_node(f->graph, index), *c = ir_node(f->more, index);
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (a->attrs[i].key != IR_ATTR_SHAPE && !same_ints(&a->attrs[i], &c->attrs[i]))
            return false;
    return true;
}

/* Stretches what the node makes. `n` tensors are the model's; those behind have their sizes. */
static enum status stretch_node(struct ragged_forms *f, uint32_t index, uint32_t n, int64_t rows,
                                struct error *err)
{
    struct ir_node *node = ir_node(f->graph, index);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && node->inputs[i] < n &&
            ir_tensor_is_constant(ir_tensor(f->graph, node->inputs[i])) &&
            ragged_differs(f->graph, f->more, node->inputs[i]))
            return ragged_refuse(err, node->name,
                                 "reads a constant that depends on how many sequences "
                                 "there are");
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        uint32_t id = node->outputs[i];
        struct shape shape;
        if (of_tokens(f, id) || !ragged_differs(f->graph, f->more, id))
            continue;
        if (!stretch(f, id, rows, &shape) || !keeps_attrs(f, index))
            return ragged_refuse(err, node->name, "does not have a row for each sequence");
        if (ir_attr(node, IR_ATTR_SHAPE) &&
            !ir_attr_set_ints(f->graph, index, IR_ATTR_SHAPE, shape.rank, shape.dim))
            return ragged_no_memory(err);
        ir_tensor(f->graph, id)->shape = shape;
        if (!ir_tensor_set_layout(f->graph, id, IR_LAYOUT_PLAIN))
            return ragged_refuse(err, node->name, "makes too much of so many sequences");
    }
    return STATUS_OK;
}

/* The new tensor has the name, too: it may be an output. */
static void replace(struct ir_graph *graph, uint32_t from, uint32_t to)
{
    ir_tensor(graph, to)->name = ir_tensor(graph, from)->name;
    ir_replace_uses(graph, from, to);
}

/* Gives each token the mean of its sequence: attention with scores of 0 weighs all tokens alike. */
static uint32_t add_mean(struct ragged_forms *f, const struct ragged_pick *pick, struct error *err)
{
    enum { COLUMNS = 128 }; /* of a head, which all kernels take */
    struct ir_graph *graph = f->graph;
    const struct shape spans = {.rank = 3, .dim = {f->n, f->s, 2}};
    int64_t width = ir_tensor(graph, pick->from)->shape.dim[2], heads = 1;
    while (width % heads || width / heads > COLUMNS)
        heads++;
    const uint32_t inputs[] = {pick->from, pick->from, pick->from, IR_NONE,
                               ragged_input_of(graph, RAGGED_SPANS, &spans)};
    uint32_t node =
        inputs[4] == IR_NONE ? IR_NONE : ir_node_add(graph, IR_OP_ATTENTION, pick->name, 5, inputs);
    if (node == IR_NONE || !ir_attr_set_int(graph, node, IR_ATTR_HEADS, heads) ||
        !ir_attr_set_float(graph, node, IR_ATTR_ALPHA, 0)) {
        ragged_no_memory(err);
        return IR_NONE;
    }
    return ir_infer_apply(graph, node, NULL, 0, err) ? IR_NONE : ir_node(graph, node)->outputs[0];
}

/* Gives what was cut off its maker: the rows of the tokens at which sequences start. */
static enum status join_pick(struct ragged_forms *f, const struct ragged_pick *pick, int64_t rows,
                             struct error *err)
{
    struct ir_graph *graph = f->graph;
    const struct shape *x = &ir_tensor(graph, pick->from)->shape, starts = {1, {rows}};
    struct shape flat = {.rank = x->rank - 1, .dim = {rows}}, want;
    memcpy(flat.dim + 1, x->dim + 2, (flat.rank - 1) * sizeof(flat.dim[0]));
    if (!stretch(f, pick->to, rows, &want))
        return ragged_refuse(err, pick->name, "does not have a row for each sequence");
    uint32_t by = ragged_input_of(graph, RAGGED_STARTS, &starts), from = pick->from;
    if (by == IR_NONE)
        return ragged_no_memory(err);
    if (pick->kind == RAGGED_MEAN)
        from = add_mean(f, pick, err);
    if (from == IR_NONE)
        return err->status;
    uint32_t all = ragged_add_reshape(graph, "ragged: tokens", from, &flat, err);
    if (all == IR_NONE)
        return err->status;
    uint32_t first = ragged_add_gather(graph, pick->name, all, by, err);
    if (first == IR_NONE)
        return err->status;
    uint32_t made = ragged_add_reshape(graph, "ragged: sequences", first, &want, err);
    if (made == IR_NONE)
        return err->status;
    replace(graph, pick->to, made);
    return STATUS_OK;
}

static uint32_t subtract(struct ir_graph *graph, const char *name, uint32_t a, uint32_t b,
                         struct error *err)
{
    const uint32_t inputs[] = {a, b};
    return add_node(graph, IR_OP_BINARY, name, 2, inputs, IR_ATTR_FUNC, 1,
                    (const int64_t[]){IR_BINARY_SUB}, err);
}

/* The place at which each token's sequence begins, [rows]. */
static uint32_t begins_of(struct ragged_forms *f, int64_t rows, struct error *err)
{
    const struct shape spans = {.rank = 3, .dim = {f->n, f->s, 2}}, flat = {1, {rows}};
    const int64_t starts[] = {0, 0, 0}, ends[] = {f->n, f->s, 1}, steps[] = {1, 1, 1};
    uint32_t from = ragged_input_of(f->graph, RAGGED_SPANS, &spans);
    uint32_t node =
        from == IR_NONE ? from : ir_node_add(f->graph, IR_OP_SLICE, "ragged: begins", 1, &from);
    if (node == IR_NONE || !ir_attr_set_ints(f->graph, node, IR_ATTR_STARTS, 3, starts) ||
        !ir_attr_set_ints(f->graph, node, IR_ATTR_ENDS, 3, ends) ||
        !ir_attr_set_ints(f->graph, node, IR_ATTR_STEPS, 3, steps)) {
        ragged_no_memory(err);
        return IR_NONE;
    }
    if (ir_infer_apply(f->graph, node, NULL, 0, err))
        return IR_NONE;
    return ragged_add_reshape(f->graph, "ragged: begins", ir_node(f->graph, node)->outputs[0],
                              &flat, err);
}

/* The same for a sum: that over all tokens, less what it was where the sequence begins. */
static enum status join_sum(struct ragged_forms *f, const struct ragged_pick *pick, int64_t rows,
                            struct error *err)
{
    struct ir_graph *graph = f->graph;
    const struct shape whole = ir_tensor(graph, pick->from)->shape, flat = {1, {rows}};
    uint32_t x = ragged_add_reshape(graph, pick->name, pick->from, &flat, err), begins = IR_NONE,
             sum = IR_NONE, before = IR_NONE, made = IR_NONE;
    if (x != IR_NONE)
        begins = begins_of(f, rows, err);
    if (begins != IR_NONE)
        sum = add_node(graph, IR_OP_CUMSUM, pick->name, 1, &x, IR_ATTR_AXIS, 1,
                       (const int64_t[]){0}, err);
    if (sum != IR_NONE)
        before = subtract(graph, pick->name, sum, x, err);
    if (before != IR_NONE)
        before = ragged_add_gather(graph, pick->name, before, begins, err);
    if (before != IR_NONE)
        made = subtract(graph, pick->name, sum, before, err);
    if (made != IR_NONE)
        made = ragged_add_reshape(graph, pick->name, made, &whole, err);
    if (made == IR_NONE)
        return err->status;
    replace(graph, pick->to, made);
    return STATUS_OK;
}

/* --- flat inputs and outputs --- */

static void input_drop(struct ir_graph *graph, uint32_t id)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        if (graph->inputs[i] != id)
            graph->inputs[kept++] = graph->inputs[i];
    graph->n_inputs = kept;
}

/* [n,s,..] as rows of tokens. */
static struct shape flatten(const struct shape *shape)
{
    struct shape flat = {.rank = shape->rank - 1, .dim = {shape->dim[0] * shape->dim[1]}};
    memcpy(flat.dim + 1, shape->dim + 2, (flat.rank - 1) * sizeof(flat.dim[0]));
    return flat;
}

static bool is_of(const struct ragged_forms *f, const struct shape *shape)
{
    return shape->rank >= 2 && shape->dim[0] == f->n && shape->dim[1] == f->s;
}

static enum status flat_input(struct ragged_forms *f, uint32_t i, struct error *err)
{
    struct ir_graph *graph = f->graph;
    uint32_t id = graph->inputs[i];
    const struct ir_tensor *t = ir_tensor(graph, id);
    const struct shape whole = t->shape, flat = is_of(f, &whole) ? flatten(&whole) : whole;
    if (!strcmp(t->name, RAGGED_STARTS))
        return STATUS_OK;
    if (!is_of(f, &whole))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "--ragged: input '%.64s' does not have its sequences and tokens in the "
                         "first two dimensions",
                         t->name);
    uint32_t fresh = ir_tensor_add(graph, t->name, t->dtype, &flat);
    if (fresh == IR_NONE)
        return ragged_no_memory(err);
    uint32_t made = ragged_add_reshape(graph, "ragged: tokens", fresh, &whole, err);
    if (made == IR_NONE)
        return err->status;
    ir_replace_uses(graph, id, made);
    graph->inputs[i] = fresh;
    return STATUS_OK;
}

/* The rows of an output: its tokens', in front of which the first two dimensions are one, or its
 * sequences'. In the model it is tensor `own`. */
static enum status flat_output(struct ragged_forms *f, uint32_t i, uint32_t own, int64_t rows,
                               struct error *err)
{
    struct ir_graph *graph = f->graph;
    uint32_t id = graph->outputs[i];
    const struct shape *one = &ir_tensor(f->more, own)->shape,
                       *two = &ir_tensor(f->longer, own)->shape;
    const struct ir_tensor *t = ir_tensor(graph, id);
    struct shape whole = t->shape;
    bool tokens = of_tokens(f, own), ok = true;
    for (uint32_t d = tokens ? 2 : 1; d < whole.rank; d++)
        ok = ok && one->dim[d] == whole.dim[d] && (!tokens || two->dim[d] == whole.dim[d]);
    if (!ok || (tokens ? !is_of(f, &whole) : whole.rank < 1 || whole.dim[0] != rows))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "--ragged: output '%.64s' does not have a row for each token, or for each "
                         "sequence",
                         t->name);
    if (!tokens)
        return STATUS_OK;
    const struct shape flat = flatten(&whole);
    char *name = arena_strndup(graph->arena, t->name, strlen(t->name));
    if (!name)
        return ragged_no_memory(err);
    uint32_t node = ir_node_add(graph, IR_OP_RESHAPE, "ragged: rows", 1, &id);
    if (node == IR_NONE || !ir_attr_set_ints(graph, node, IR_ATTR_SHAPE, flat.rank, flat.dim))
        return ragged_no_memory(err);
    const char *names[] = {name};
    TRY(ir_infer_apply(graph, node, names, 1, err));
    graph->outputs[i] = ir_node(graph, node)->outputs[0];
    return STATUS_OK;
}

enum status ragged_finish(struct ragged_forms *f, struct error *err)
{
    struct ir_graph *graph = f->graph;
    uint32_t tensors = f->more->n_tensors, nodes = f->more->n_nodes;
    int64_t rows = f->n * f->s; /* no batch has more sequences than tokens */
    uint32_t outputs[IR_MAX_IO];
    memcpy(outputs, graph->outputs, sizeof(outputs));
    for (uint32_t i = 0; i < nodes; i++)
        if (ir_node(graph, i)->op != IR_OP_NONE)
            TRY(stretch_node(f, i, tensors, rows, err));
    for (uint32_t i = 0; i < f->n_picks; i++) {
        TRY(f->picks[i].kind == RAGGED_SUM ? join_sum(f, &f->picks[i], rows, err)
                                           : join_pick(f, &f->picks[i], rows, err));
        input_drop(graph, f->picks[i].to);
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        TRY(flat_output(f, i, outputs[i], rows, err));
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        TRY(flat_input(f, i, err));
    TRY(ir_graph_compact(graph, err));
    return ir_verify(graph, err);
}
