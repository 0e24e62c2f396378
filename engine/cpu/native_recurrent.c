/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers in fp32. A step multiplies the states of all sequences with the packed matrix,
 * adds the products to what the inputs gave, and then computes the gates with the fast rows, a row
 * being one sequence. Each thread takes some sequences through all steps, so no thread waits for
 * another, and a single sequence runs on one thread.
 *
 * The workspace holds for each sequence the sums of all gates, the state h between steps, the cell
 * state and two more rows. Behind them lies the packed matrix, unless it is a constant.
 */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "engine/cpu/native_op.h"

enum { SPARE = 4 }; /* rows of a sequence beside its sums: h, c, reset, spare */

/* What one thread does in a launch: sequences begin..end-1. */
struct run {
    const struct native_op *op;
    const struct native_recurrent *l;
    const float *x, *first, *second, *peephole, *bias; /* first, second: of the matrix */
    float *y, *sums, *h, *c, *reset, *spare;
    int64_t begin, end;
};

static void call(const struct run *r, uint32_t f, float *row, int64_t n)
{
    const struct native_step *s = &r->l->funcs[f];
    if (r->l->clip > 0 && f < 2)
        r->op->fast->unary[IR_UNARY_CLIP](row, row, (size_t)n, -r->l->clip, r->l->clip);
    if (s->unary)
        s->unary(row, row, (size_t)n, s->alpha, s->beta);
}

/* row += p * c */
static void peek(const float *p, const float *c, float *row, int64_t n)
{
    for (int64_t j = 0; p && j < n; j++)
        row[j] += p[j] * c[j];
}

static void close_lstm(const struct run *r, int64_t n)
{
    int64_t size = r->l->hidden;
    const float *p = r->peephole;
    float *i = r->sums + n * r->l->width, *o = i + size, *f = o + size, *g = f + size;
    float *h = r->h + n * size, *c = r->c + n * size;
    peek(p, c, i, size);
    call(r, 0, i, size);
    if (r->l->coupled) {
        for (int64_t j = 0; j < size; j++)
            f[j] = 1 - i[j];
    } else {
        peek(p ? p + 2 * size : NULL, c, f, size);
        call(r, 0, f, size);
    }
    call(r, 1, g, size);
    for (int64_t j = 0; j < size; j++)
        c[j] = f[j] * c[j] + i[j] * g[j];
    peek(p ? p + size : NULL, c, o, size);
    call(r, 0, o, size);
    memcpy(h, c, (size_t)size * sizeof(*h));
    call(r, 2, h, size);
    for (int64_t j = 0; j < size; j++)
        h[j] *= o[j];
}

/* Computes z and r of each sequence, and then r * h, which the hidden gate multiplies. */
static void open_gru(const struct run *r)
{
    int64_t size = r->l->hidden;
    for (int64_t n = r->begin; n < r->end; n++) {
        float *z = r->sums + n * r->l->width, *gate = z + size;
        call(r, 0, z, 2 * size);
        for (int64_t j = 0; j < size; j++)
            r->reset[n * size + j] = gate[j] * r->h[n * size + j];
    }
}

static void close_gru(const struct run *r, int64_t n, const float *x)
{
    int64_t size = r->l->hidden;
    float *z = r->sums + n * r->l->width, *gate = z + size, *t = gate + size;
    float *h = r->h + n * size;
    if (r->l->linear)
        for (int64_t j = 0; j < size; j++)
            t[j] = t[j] * gate[j] + x[2 * size + j];
    call(r, 1, t, size);
    for (int64_t j = 0; j < size; j++)
        h[j] = (1 - z[j]) * t[j] + z[j] * h[j];
}

static int64_t length_of(const struct run *r, int64_t n)
{
    const struct native_recurrent *l = r->l;
    const struct tensor_view lengths = {l->lengths, {1, {l->sequences}}, r->op->inputs[2]};
    int64_t length = 0; /* stays 0 if somebody has changed the lengths since the check */
    (void)ref_recurrent_length(l->lengths ? &lengths : NULL, n, l->steps, &length, NULL);
    return length;
}

/* The position of sequence n in this step; -1: the sequence has ended. */
static int64_t position(const struct run *r, int64_t n, int64_t step)
{
    int64_t length = r->l->lengths ? length_of(r, n) : r->l->steps;
    if (step >= length)
        return -1;
    return r->l->reverse ? length - 1 - step : step;
}

/* Sets the sums of the sequences that have not ended to the products of `from` with a part of the
 * matrix, plus `bias`, or plus x if `bias` is NULL. */
static void multiply(const struct run *r, const float *packed, int64_t at, int64_t cols,
                     int64_t step, const float *from, const float *bias)
{
    const struct native_recurrent *l = r->l;
    int64_t rows = r->end - r->begin, first = r->begin * l->hidden;
    float *sums = r->sums + r->begin * l->width + at;
    if (!l->lengths) { /* all sequences are at the same position */
        int64_t t = position(r, r->begin, step);
        const float *x = r->x + (t * l->sequences + r->begin) * l->width + at;
        r->op->fast->product(packed, l->hidden, cols, rows, from + first, l->hidden,
                             bias ? bias : x, bias ? 0 : l->width, sums, l->width);
        return;
    }
    for (int64_t n = r->begin; n < r->end; n++) {
        int64_t t = position(r, n, step);
        const float *x = r->x + (t * l->sequences + n) * l->width + at;
        if (t >= 0)
            r->op->fast->product(packed, l->hidden, cols, 1, from + n * l->hidden, l->hidden,
                                 bias ? bias : x, 0, r->sums + n * l->width + at, l->width);
    }
}

static void run_step(const struct run *r, int64_t step)
{
    const struct native_recurrent *l = r->l;
    bool gru = l->cell == IR_RECURRENT_GRU;
    multiply(r, r->first, 0, l->once, step, r->h, NULL);
    if (gru && l->linear)
        multiply(r, r->second, l->once, l->hidden, step, r->h, r->bias);
    if (gru)
        open_gru(r);
    if (gru && !l->linear)
        multiply(r, r->second, l->once, l->hidden, step, r->reset, NULL);
    for (int64_t n = r->begin; n < r->end; n++) {
        int64_t t = position(r, n, step);
        if (t < 0)
            continue;
        if (gru)
            close_gru(r, n, r->x + (t * l->sequences + n) * l->width);
        else if (l->cell == IR_RECURRENT_LSTM)
            close_lstm(r, n);
        else {
            memcpy(r->h + n * l->hidden, r->sums + n * l->width, (size_t)l->hidden * sizeof(*r->h));
            call(r, 0, r->h + n * l->hidden, l->hidden);
        }
        memcpy(r->y + (t * l->sequences + n) * l->hidden, r->h + n * l->hidden,
               (size_t)l->hidden * sizeof(*r->y));
    }
}

/* Input `i` of the launch; NULL if it is absent. */
static const void *input(const struct native_op *op, uint32_t i)
{
    return i < op->cell.n_inputs ? op->inputs[i] : NULL;
}

static void begin_rows(float *to, const float *from, int64_t first, int64_t n)
{
    if (from)
        memcpy(to + first, from + first, (size_t)n * sizeof(*to));
    else
        memset(to + first, 0, (size_t)n * sizeof(*to));
}

/* Memory for a packed matrix that is no constant: it lies behind the rows. */
static float *own_matrix(const struct native_op *op)
{
    const struct native_recurrent *l = &op->cell;
    return (float *)op->workspace + l->sequences * (l->width + SPARE * l->hidden);
}

static struct run run_of(const struct native_op *op)
{
    const struct native_recurrent *l = &op->cell;
    int64_t all = l->sequences * l->hidden;
    struct run r = {.op = op, .l = l, .x = op->inputs[0], .y = op->outputs[0]};
    r.sums = op->workspace;
    r.h = r.sums + l->sequences * l->width;
    r.c = r.h + all;
    r.reset = r.c + all;
    r.spare = r.reset + all;
    r.first = l->packs ? own_matrix(op) : op->inputs[1];
    r.second = r.first + fast_packed_floats(l->once, l->hidden);
    r.peephole = input(op, 5);
    r.bias = input(op, 6);
    return r;
}

static void run_sequences(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct run r = run_of(op);
    const struct native_recurrent *l = r.l;
    int64_t at = first * l->hidden, n = (end - first) * l->hidden;
    r.begin = first;
    r.end = end;
    begin_rows(r.h, input(op, 3), at, n);
    begin_rows(r.c, input(op, 4), at, n);
    if (!r.bias) {
        begin_rows(r.spare, NULL, at, n);
        r.bias = r.spare + at;
    }
    for (int64_t t = 0; l->lengths && t < l->steps; t++)
        begin_rows(r.y + t * l->sequences * l->hidden, NULL, at, n);
    for (int64_t step = 0; step < l->steps; step++)
        run_step(&r, step);
    memcpy((float *)op->outputs[1] + at, r.h + at, (size_t)n * sizeof(*r.h));
    if (l->has_c)
        memcpy((float *)op->outputs[2] + at, r.c + at, (size_t)n * sizeof(*r.c));
}

/* Checks the lengths, and packs a matrix that is no constant, before threads start. */
static enum status prepare_launch(const struct native_op *op, struct error *err)
{
    const struct native_recurrent *l = &op->cell;
    const struct tensor_view lengths = {l->lengths, {1, {l->sequences}}, op->inputs[2]};
    int64_t unused;
    for (int64_t n = 0; l->lengths && n < l->sequences; n++) {
        enum status status = ref_recurrent_length(&lengths, n, l->steps, &unused, err);
        if (status) {
            error_prefix(err, "recurrent '%s'", op->name);
            return status;
        }
    }
    if (l->packs)
        native_recurrent_pack(op, op->inputs[1], own_matrix(op));
    return STATUS_OK;
}

void native_recurrent_pack(const struct native_op *op, const void *from, float *to)
{
    const struct native_recurrent *l = &op->cell;
    size_t first = (size_t)(l->once * l->hidden) * sizeof(float);
    fast_pack(from, l->once, l->hidden, to);
    fast_pack((const char *)from + first, l->width - l->once, l->hidden,
              to + fast_packed_floats(l->once, l->hidden));
}

/* --- making --- */

static bool take_functions(struct native_op *op, const struct ir_node *node)
{
    const struct ir_attr *funcs = ir_attr(node, IR_ATTR_FUNCS);
    const float *alphas = ir_attr(node, IR_ATTR_ALPHAS)->f;
    const float *betas = ir_attr(node, IR_ATTR_BETAS)->f;
    for (uint32_t i = 0; i < funcs->count; i++) {
        int64_t f = funcs->i[i];
        fast_unary row = op->fast->unary[f];
        if ((!row && f != IR_UNARY_IDENTITY) ||
            (f == IR_UNARY_TANH && (alphas[i] != 1 || betas[i] != 1)))
            return false;
        op->cell.funcs[i] = (struct native_step){.unary = row, alphas[i], betas[i]};
    }
    return true;
}

static bool all_f32(const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (i != 2 && node->inputs[i] != IR_NONE &&
            ir_tensor(graph, node->inputs[i])->dtype != DTYPE_F32)
            return false;
    return true;
}

bool native_recurrent_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct ir_tensor *matrix = ir_tensor(graph, node->inputs[1]);
    struct native_recurrent *l = &op->cell;
    bool lengths = node->n_inputs > 2 && node->inputs[2] != IR_NONE;
    if (!all_f32(graph, node) || node->n_outputs < 2 || !take_functions(op, node))
        return false;
    l->cell = (enum ir_recurrent)ir_attr_int(node, IR_ATTR_FUNC);
    l->clip = ir_attr_float(node, IR_ATTR_CLIP);
    l->reverse = ir_attr_int(node, IR_ATTR_REVERSE);
    l->linear = ir_attr_int(node, IR_ATTR_LINEAR);
    l->coupled = ir_attr_int(node, IR_ATTR_COUPLED);
    l->steps = x->dim[0];
    l->sequences = x->dim[1];
    l->width = x->dim[2];
    l->hidden = matrix->shape.dim[1];
    l->once = l->cell == IR_RECURRENT_GRU ? 2 * l->hidden : l->width;
    l->packed =
        fast_packed_floats(l->once, l->hidden) + fast_packed_floats(l->width - l->once, l->hidden);
    l->lengths = lengths ? ir_tensor(graph, node->inputs[2])->dtype : DTYPE_NONE;
    l->n_inputs = node->n_inputs;
    l->has_c = node->n_outputs > 2;
    l->packs = !ir_tensor_is_constant(matrix);
    int64_t floats = l->sequences * (l->width + SPARE * l->hidden) + (l->packs ? l->packed : 0);
    op->workspace_bytes = (uint64_t)floats * sizeof(float);
    op->packed_bytes = l->packs ? 0 : (uint64_t)l->packed * sizeof(float);
    op->name = node->name;
    op->units = l->sequences;
    op->work = run_sequences;
    op->check = prepare_launch;
    return true;
}
