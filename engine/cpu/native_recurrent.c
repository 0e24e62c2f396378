/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers in fp32. A step multiplies the states of all sequences with the packed matrix,
 * adds the products to what the inputs gave, and then computes the gates with the fast rows, a row
 * being one sequence. Threads share the work in one of two ways:
 *
 *  - by sequences: each thread takes some sequences of a direction through all steps, so no thread
 *    waits for another;
 *  - by panels: each thread computes some panels of hidden elements for all sequences. It reads
 *    only its part of the matrix, which then stays in its cache, but waits for the others in each
 *    step. So a single sequence, or a matrix that is too large for one cache, uses all threads. One
 *    direction follows the other.
 *
 * The workspace holds for each sequence of a direction the sums of all gates, the state h before
 * and after a step, the cell state and two more rows. Behind them lies the packed matrix, unless it
 * is a constant.
 */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "engine/cpu/native_op.h"

enum {
    SPARE = 5,              /* rows of a sequence beside its sums: h twice, c, reset, spare */
    PANELS_BYTES = 1 << 20, /* a matrix of this size is shared by panels */
};

/* What one thread does in a launch: sequences begin..end-1, hidden elements from..from+size-1 of
 * one direction. All pointers are to what this direction has. */
struct run {
    const struct native_op *op;
    const struct native_recurrent *l;
    const struct native_step *funcs;
    bool back;
    const float *h0, *c0;
    float *h_last, *c_last;
    const float *x, *first, *second, *peephole, *bias; /* first, second: of the matrix */
    float *y, *sums, *h, *next, *c, *reset, *spare;    /* a step reads h and writes next */
    int64_t begin, end, from, size;
};

static void call(const struct run *r, uint32_t f, float *row, int64_t n)
{
    const struct native_step *s = &r->funcs[f];
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
    int64_t hidden = r->l->hidden, size = r->size;
    const float *p = r->peephole ? r->peephole + r->from : NULL;
    float *i = r->sums + n * r->l->width + r->from, *o = i + hidden, *f = o + hidden;
    float *g = f + hidden, *h = r->next + n * hidden + r->from, *c = r->c + n * hidden + r->from;
    peek(p, c, i, size);
    call(r, 0, i, size);
    if (r->l->coupled) {
        for (int64_t j = 0; j < size; j++)
            f[j] = 1 - i[j];
    } else {
        peek(p ? p + 2 * hidden : NULL, c, f, size);
        call(r, 0, f, size);
    }
    call(r, 1, g, size);
    for (int64_t j = 0; j < size; j++)
        c[j] = f[j] * c[j] + i[j] * g[j];
    peek(p ? p + hidden : NULL, c, o, size);
    call(r, 0, o, size);
    memcpy(h, c, (size_t)size * sizeof(*h));
    call(r, 2, h, size);
    for (int64_t j = 0; j < size; j++)
        h[j] *= o[j];
}

/* Computes z and r of each sequence, and then r * h, which the hidden gate multiplies. */
static void open_gru(const struct run *r)
{
    int64_t hidden = r->l->hidden;
    for (int64_t n = r->begin; n < r->end; n++) {
        float *z = r->sums + n * r->l->width + r->from, *gate = z + hidden;
        int64_t at = n * hidden + r->from;
        call(r, 0, z, r->size);
        call(r, 0, gate, r->size);
        for (int64_t j = 0; j < r->size; j++)
            r->reset[at + j] = gate[j] * r->h[at + j];
    }
}

static void close_gru(const struct run *r, int64_t n, const float *x)
{
    int64_t hidden = r->l->hidden, size = r->size, at = n * hidden + r->from;
    float *z = r->sums + n * r->l->width + r->from, *gate = z + hidden, *t = gate + hidden;
    const float *h = r->h + at;
    float *next = r->next + at;
    if (r->l->linear)
        for (int64_t j = 0; j < size; j++)
            t[j] = t[j] * gate[j] + x[2 * hidden + r->from + j];
    call(r, 1, t, size);
    for (int64_t j = 0; j < size; j++)
        next[j] = (1 - z[j]) * t[j] + z[j] * h[j];
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
    return r->back ? length - 1 - step : step;
}

/* X of sequence n at position t. */
static const float *x_at(const struct run *r, int64_t t, int64_t n)
{
    return r->x + (t * r->l->sequences + n) * r->l->directions * r->l->width;
}

static float *y_at(const struct run *r, int64_t t, int64_t n)
{
    return r->y + (t * r->l->sequences + n) * r->l->directions * r->l->hidden;
}

/* Adds a part of `cols` columns of a product to rows of sequence `n` and of those behind it. */
static void multiply_part(const struct run *r, const float *packed, int64_t at, int64_t cols,
                          int64_t n, int64_t rows, int64_t t, const float *from, const float *bias)
{
    const struct native_recurrent *l = r->l;
    const float *x = x_at(r, t, n) + at;
    r->op->fast->product(packed, l->hidden, cols, rows, from + n * l->hidden, l->hidden,
                         bias ? bias : x, bias ? 0 : l->directions * l->width,
                         r->sums + n * l->width + at, l->width);
}

/* Sets columns at..at+cols-1 of the sums of the sequences that have not ended to the products of
 * `from` with a part of the matrix, plus `bias`, or plus x if `bias` is NULL. */
static void multiply_columns(const struct run *r, const float *packed, int64_t at, int64_t cols,
                             int64_t step, const float *from, const float *bias)
{
    if (!r->l->lengths) { /* all sequences are at the same position */
        multiply_part(r, packed, at, cols, r->begin, r->end - r->begin, position(r, r->begin, step),
                      from, bias);
        return;
    }
    for (int64_t n = r->begin; n < r->end; n++) {
        int64_t t = position(r, n, step);
        if (t >= 0)
            multiply_part(r, packed, at, cols, n, 1, t, from, bias);
    }
}

/* The same for gates first..first+gates-1, of which this thread computes its elements. `packed` is
 * the matrix of these gates. */
static void multiply(const struct run *r, const float *packed, int64_t first, int64_t gates,
                     int64_t step, const float *from, const float *bias)
{
    int64_t hidden = r->l->hidden;
    if (r->size == hidden) {
        multiply_columns(r, packed, first * hidden, gates * hidden, step, from, bias);
        return;
    }
    for (int64_t g = 0; g < gates; g++) /* whole panels: see by_panels */
        multiply_columns(r, packed + (g * hidden + r->from) * hidden,
                         (first + g) * hidden + r->from, r->size, step, from,
                         bias ? bias + r->from : NULL);
}

/* The threads of a launch by panels have all come here. */
static void meet(const struct run *r)
{
    if (r->l->by_panels)
        team_meet();
}

/* Makes the state of sequence n behind the step from the sums, and writes it to the output. */
static void close_step(const struct run *r, int64_t n, int64_t step)
{
    const struct native_recurrent *l = r->l;
    int64_t t = position(r, n, step), at = n * l->hidden + r->from;
    if (t < 0) {
        memcpy(r->next + at, r->h + at, (size_t)r->size * sizeof(*r->h));
        return;
    }
    if (l->cell == IR_RECURRENT_GRU) {
        close_gru(r, n, x_at(r, t, n));
    } else if (l->cell == IR_RECURRENT_LSTM) {
        close_lstm(r, n);
    } else {
        memcpy(r->next + at, r->sums + n * l->width + r->from, (size_t)r->size * sizeof(*r->h));
        call(r, 0, r->next + at, r->size);
    }
    memcpy(y_at(r, t, n) + r->from, r->next + at, (size_t)r->size * sizeof(*r->y));
}

static void run_step(const struct run *r, int64_t step)
{
    const struct native_recurrent *l = r->l;
    bool gru = l->cell == IR_RECURRENT_GRU;
    int64_t once = l->once / l->hidden;
    multiply(r, r->first, 0, once, step, r->h, NULL);
    if (gru && l->linear)
        multiply(r, r->second, once, 1, step, r->h, r->bias);
    if (gru)
        open_gru(r);
    if (gru && !l->linear) {
        meet(r);
        multiply(r, r->second, once, 1, step, r->reset, NULL);
    }
    for (int64_t n = r->begin; n < r->end; n++)
        close_step(r, n, step);
    meet(r);
}

/* What direction d has of input `i`, which has so many floats for each; NULL if it is absent. */
static const float *input(const struct native_op *op, uint32_t i, int64_t d, int64_t floats)
{
    const float *all = i < op->cell.n_inputs ? op->inputs[i] : NULL;
    return all ? all + d * floats : NULL;
}

/* Sets this thread's part of the rows of `to`. */
static void begin_rows(const struct run *r, float *to, const float *from)
{
    size_t bytes = (size_t)r->size * sizeof(*to);
    for (int64_t n = r->begin; n < r->end; n++) {
        int64_t at = n * r->l->hidden + r->from;
        if (from)
            memcpy(to + at, from + at, bytes);
        else
            memset(to + at, 0, bytes);
    }
}

/* Clears this thread's part of the output where sequences may have ended. */
static void begin_output(const struct run *r)
{
    for (int64_t t = 0; r->l->lengths && t < r->l->steps; t++)
        for (int64_t n = r->begin; n < r->end; n++)
            memset(y_at(r, t, n) + r->from, 0, (size_t)r->size * sizeof(*r->y));
}

/* Memory for a packed matrix that is no constant: it lies behind the rows. */
static float *own_matrix(const struct native_op *op)
{
    const struct native_recurrent *l = &op->cell;
    return (float *)op->workspace + l->directions * l->sequences * (l->width + SPARE * l->hidden);
}

static struct run run_of(const struct native_op *op, int64_t d)
{
    const struct native_recurrent *l = &op->cell;
    int64_t all = l->sequences * l->hidden;
    struct run r = {.op = op, .l = l, .funcs = l->funcs[d], .h0 = input(op, 3, d, all)};
    r.back = d > 0 || l->way == IR_WAY_BACK;
    r.c0 = input(op, 4, d, all);
    r.h_last = (float *)op->outputs[1] + d * all;
    r.c_last = l->has_c ? (float *)op->outputs[2] + d * all : NULL;
    r.x = (const float *)op->inputs[0] + d * l->width;
    r.y = (float *)op->outputs[0] + d * l->hidden;
    r.sums = (float *)op->workspace + d * l->sequences * (l->width + SPARE * l->hidden);
    r.h = r.sums + l->sequences * l->width;
    r.next = r.h + all;
    r.c = r.next + all;
    r.reset = r.c + all;
    r.spare = r.reset + all;
    r.first = (l->packs ? own_matrix(op) : (const float *)op->inputs[1]) + d * l->packed;
    r.second = r.first + fast_packed_floats(l->once, l->hidden);
    r.peephole = input(op, 5, d, 3 * l->hidden);
    r.bias = input(op, 6, d, l->hidden);
    return r;
}

static void run_part(struct run *r)
{
    const struct native_recurrent *l = r->l;
    begin_rows(r, r->h, r->h0);
    begin_rows(r, r->c, r->c0);
    if (!r->bias) {
        begin_rows(r, r->spare, NULL);
        r->bias = r->spare + r->begin * l->hidden;
    }
    begin_output(r);
    meet(r);
    for (int64_t step = 0; step < l->steps; step++) {
        run_step(r, step);
        float *h = r->h;
        r->h = r->next;
        r->next = h;
    }
    begin_rows(r, r->h_last, r->h);
    if (l->has_c)
        begin_rows(r, r->c_last, r->c);
}

/* The sequences of the second direction follow those of the first. */
static void run_sequences(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    int64_t n = op->cell.sequences;
    for (int64_t d = 0; d < op->cell.directions; d++) {
        struct run r = run_of(op, d);
        r.begin = MAX(first - d * n, 0);
        r.end = MIN(end - d * n, n);
        r.size = r.l->hidden;
        if (r.begin < r.end)
            run_part(&r);
    }
}

static void run_panels(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    for (int64_t d = 0; d < op->cell.directions; d++) {
        struct run r = run_of(op, d);
        r.end = r.l->sequences;
        r.from = first * FAST_PANEL;
        r.size = (end - first) * FAST_PANEL;
        run_part(&r);
    }
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
    const char *rows = from;
    for (int64_t d = 0; d < l->directions; d++, to += l->packed) {
        fast_pack(rows, l->once, l->hidden, to);
        rows += (size_t)(l->once * l->hidden) * sizeof(float);
        fast_pack(rows, l->width - l->once, l->hidden, to + fast_packed_floats(l->once, l->hidden));
        rows += (size_t)((l->width - l->once) * l->hidden) * sizeof(float);
    }
}

/* --- making --- */

static bool take_functions(struct native_op *op, const struct ir_node *node)
{
    const struct ir_attr *funcs = ir_attr(node, IR_ATTR_FUNCS);
    const float *alphas = ir_attr(node, IR_ATTR_ALPHAS)->f;
    const float *betas = ir_attr(node, IR_ATTR_BETAS)->f;
    uint32_t each = funcs->count / (uint32_t)op->cell.directions;
    for (uint32_t i = 0; i < funcs->count; i++) {
        int64_t f = funcs->i[i];
        fast_unary row = op->fast->unary[f];
        if ((!row && f != IR_UNARY_IDENTITY) ||
            (f == IR_UNARY_TANH && (alphas[i] != 1 || betas[i] != 1)))
            return false;
        op->cell.funcs[i / each][i % each] =
            (struct native_step){.unary = row, alphas[i], betas[i]};
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

/* Says whether threads share panels. The gates then have whole panels of their own. */
static bool by_panels(const struct native_recurrent *l)
{
    return l->hidden % FAST_PANEL == 0 && l->hidden > FAST_PANEL &&
           (l->sequences == 1 || l->packed * (int64_t)sizeof(float) >= PANELS_BYTES);
}

bool native_recurrent_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct ir_tensor *matrix = ir_tensor(graph, node->inputs[1]);
    struct native_recurrent *l = &op->cell;
    bool lengths = node->n_inputs > 2 && node->inputs[2] != IR_NONE;
    l->way = (enum ir_way)ir_attr_int(node, IR_ATTR_REVERSE);
    l->directions = ir_way_directions(l->way);
    if (!all_f32(graph, node) || node->n_outputs < 2 || !take_functions(op, node))
        return false;
    l->cell = (enum ir_recurrent)ir_attr_int(node, IR_ATTR_FUNC);
    l->clip = ir_attr_float(node, IR_ATTR_CLIP);
    l->linear = ir_attr_int(node, IR_ATTR_LINEAR);
    l->coupled = ir_attr_int(node, IR_ATTR_COUPLED);
    l->steps = x->dim[0];
    l->sequences = x->dim[1];
    l->width = x->dim[2] / l->directions;
    l->hidden = matrix->shape.dim[1];
    l->once = l->cell == IR_RECURRENT_GRU ? 2 * l->hidden : l->width;
    l->packed =
        fast_packed_floats(l->once, l->hidden) + fast_packed_floats(l->width - l->once, l->hidden);
    l->lengths = lengths ? ir_tensor(graph, node->inputs[2])->dtype : DTYPE_NONE;
    l->n_inputs = node->n_inputs;
    l->has_c = node->n_outputs > 2;
    l->packs = !ir_tensor_is_constant(matrix);
    int64_t floats = l->sequences * (l->width + SPARE * l->hidden) + (l->packs ? l->packed : 0);
    op->workspace_bytes = (uint64_t)(l->directions * floats) * sizeof(float);
    op->packed_bytes = l->packs ? 0 : (uint64_t)(l->directions * l->packed) * sizeof(float);
    op->name = node->name;
    l->by_panels = by_panels(l);
    op->units = l->by_panels ? l->hidden / FAST_PANEL : l->directions * l->sequences;
    op->work = l->by_panels ? run_panels : run_sequences;
    op->check = prepare_launch;
    return true;
}
