/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of fp32. A head (a function, a softmax or a layer norm) writes a stretch of the output; then
 * the epilogue's functions run over this stretch while it is in the first-level cache.
 *
 * A chain walks the output in rows that are as long as all operands allow, and cuts these rows into
 * chunks. In softmax and layer norm a row is what is normalised: the walk covers the dims outside
 * of the row, and operands of the epilogue must be dense or constant along it.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/call.h"
#include "engine/cpu/native_op.h"

/* --- making --- */

static bool is_f32(const struct ir_graph *graph, uint32_t tensor)
{
    return tensor != IR_NONE && ir_tensor(graph, tensor)->dtype == DTYPE_F32;
}

bool native_all_f32(const struct ir_graph *graph, const struct ir_node *node, uint32_t first)
{
    for (uint32_t i = first; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && !is_f32(graph, node->inputs[i]))
            return false;
    return is_f32(graph, node->outputs[0]);
}

/* Adds node input `input` to the walk's tensors; returns its number there. */
static uint32_t add_tensor(struct native_op *op, uint32_t *n, uint32_t input)
{
    op->input[*n] = input;
    return (*n)++;
}

static bool add_unary(struct native_op *op, uint32_t func, float alpha, float beta)
{
    if (func >= IR_UNARY_COUNT_ || !op->fast->unary[func])
        return false;
    op->steps[op->n_steps++] =
        (struct native_step){.unary = op->fast->unary[func], .alpha = alpha, .beta = beta};
    return true;
}

static bool add_binary(struct native_op *op, uint32_t func, uint32_t operand)
{
    if (func >= IR_BINARY_COUNT_ || !op->fast->binary[func])
        return false;
    op->steps[op->n_steps++] =
        (struct native_step){.binary = op->fast->binary[func], .operand = operand};
    return true;
}

bool native_steps_add(struct native_op *op, const struct ir_node *node, uint32_t *n)
{
    if (node->n_epilogue > IR_MAX_EPILOGUE)
        return false;
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *e = &node->epilogue[i];
        if (e->kind == IR_EPILOGUE_UNARY ? !add_unary(op, e->func, e->alpha, e->beta)
                                         : !add_binary(op, e->func, add_tensor(op, n, e->input)))
            return false;
    }
    return true;
}

const float *native_operand(const float *data, int64_t step, size_t n, float *buffer)
{
    if (step == 1)
        return data;
    for (size_t i = 0; i < n; i++)
        buffer[i] = data[(int64_t)i * step];
    return buffer;
}

/* Widens what lies apart. */
static void load_apart(const struct stored *stored, const uint8_t *x, int64_t step, size_t n,
                       float *y)
{
    float zero = (float)stored->zero;
    for (size_t i = 0; i < n; i++, x += step) {
        int q = stored->dtype == DTYPE_I8 ? (int8_t)*x : *x;
        y[i] = stored->step * ((float)q - zero);
    }
}

const float *native_load(const struct native_op *op, uint32_t k, int64_t at, int64_t step, size_t n,
                         float *buffer)
{
    const struct stored *stored = &op->stored[k];
    if (stored->dtype == DTYPE_NONE)
        return native_operand((const float *)op->inputs[op->input[k]] + at, step, n, buffer);
    const uint8_t *x = (const uint8_t *)op->inputs[op->input[k]] + at;
    if (step == 1)
        op->fast->bytes->widen[native_byte(stored)](x, buffer, n, stored->step,
                                                    (float)stored->zero);
    else
        load_apart(stored, x, step, n, buffer);
    return buffer;
}

void native_store(const struct native_op *op, int64_t at, const float *x, size_t n)
{
    const struct stored *stored = &op->stored[0];
    op->fast->bytes->narrow[native_byte(stored)](x, (uint8_t *)op->output + at, n, stored->step,
                                                 (float)stored->zero);
}

void native_steps_run(const struct native_op *op, const int64_t *base, const int64_t *step,
                      int64_t at, const float *x, float *y, size_t n)
{
    float buffer[NATIVE_CHUNK];
    for (uint32_t i = 0; i < op->n_steps; i++, x = y) {
        const struct native_step *s = &op->steps[i];
        uint32_t k = s->operand;
        if (s->unary)
            s->unary(x, y, n, s->alpha, s->beta);
        else
            s->binary(x, native_load(op, k, base[k] + at * step[k], step[k], n, buffer), y, n);
    }
}

/* --- chains --- */

void native_chunk_run(const struct native_op *op, const struct ref_walk *w, int64_t at, size_t n)
{
    float bytes[NATIVE_CHUNK]; /* what becomes bytes */
    bool narrows = op->stored[0].dtype != DTYPE_NONE;
    /* If the head has another type, this is unused. */
    float *y = narrows ? bytes : (float *)op->output + w->at[0] + at;
    const float *x = y;
    if (op->head)
        native_head_run(op, w, at, n);
    else /* an input that is broadcast, or in 8 bits, is spread out in y */
        x = native_load(op, 1, w->at[1] + at * w->step[1], w->step[1], n, y);
    native_steps_run(op, w->at, w->step, at, x, y, n);
    if (narrows)
        native_store(op, w->at[0] + at, op->n_steps ? y : x, n);
    else if (!op->n_steps && !op->head && x != y)
        memcpy(y, x, n * sizeof(*y));
}

void native_each_chunk(const struct native_op *op, int64_t first, int64_t end, native_chunk run)
{
    struct ref_walk w = op->walk;
    int64_t per_row = (w.row + NATIVE_CHUNK - 1) / NATIVE_CHUNK;
    ref_walk_seek(&w, first / per_row);
    int64_t chunk = first % per_row;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t at = chunk * NATIVE_CHUNK;
        run(op, &w, at, (size_t)MIN(w.row - at, NATIVE_CHUNK));
        if (++chunk == per_row) {
            chunk = 0;
            ref_walk_next(&w);
        }
    }
}

static void run_chunks(void *user, int64_t first, int64_t end)
{
    native_each_chunk(user, first, end, native_chunk_run);
}

/* Whether all inputs, without those before `first`, and the output are fp32 or stored in 8 bits. */
static bool all_real(const struct ir_graph *graph, const struct ir_node *node, uint32_t first)
{
    struct stored unused;
    for (uint32_t i = first; i <= node->n_inputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[0];
        if (id != IR_NONE && !is_f32(graph, id) &&
            !(ir_tensor(graph, id)->scale && stored_read(graph, id, &unused)))
            return false;
    }
    return true;
}

static bool add_head(struct native_op *op, const struct ir_node *node, uint32_t *n)
{
    float alpha, beta, gamma;
    add_tensor(op, n, 0);
    uint32_t func = (uint32_t)ir_attr_int(node, IR_ATTR_FUNC);
    if (node->op == IR_OP_BINARY)
        return add_binary(op, func, add_tensor(op, n, 1));
    ir_unary_constants(node, &alpha, &beta, &gamma);
    return add_unary(op, func, alpha, beta);
}

bool native_chain_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    uint32_t n = 1;
    bool real = (node->op == IR_OP_UNARY || node->op == IR_OP_BINARY) && all_real(graph, node, 0);
    if (!real && stored_any(graph, node))
        return false;
    if (real ? !add_head(op, node, &n) : !native_head_make(op, graph, node, &n))
        return false;
    if (node->n_epilogue &&
        !(all_real(graph, node, ir_node_own_inputs(node)) && native_steps_add(op, node, &n)))
        return false;
    if ((real && !native_stored_read(op, graph, node, n)) ||
        !native_chunks_make(op, graph, node, n))
        return false;
    if (real && !native_table_make(op, graph, node, n))
        native_bytes_make(op, n);
    return true;
}

/* Units are chunks of the walk's rows. */
static bool cut_chunks(struct native_op *op)
{
    int64_t per_row = (op->walk.row + NATIVE_CHUNK - 1) / NATIVE_CHUNK;
    op->units = ref_walk_rows(&op->walk) * per_row;
    op->work = run_chunks;
    return true;
}

bool native_chunks_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, uint32_t n)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    bool whole = false;
    for (uint32_t i = 0; i < ir_node_own_inputs(node); i++)
        whole = whole || (node->inputs[i] != IR_NONE &&
                          shape_equal(&ir_tensor(graph, node->inputs[i])->shape, y));
    return (op->layout == IR_LAYOUT_PLAIN || whole) &&
           native_walk_make(op, graph, node, n, &op->walk) && cut_chunks(op);
}

bool native_row_make(struct native_op *op, const struct shape *space, uint32_t n,
                     int64_t (*strides)[SHAPE_MAX_RANK])
{
    return ref_walk_init(&op->walk, space, n, strides) && cut_chunks(op);
}

/* --- softmax and layer norm --- */

static void run_rows(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    int64_t base[REF_WALK_MAX] = {0};
    struct ref_walk w = op->walk;
    ref_walk_seek(&w, first / w.row);
    int64_t in_row = first % w.row;
    for (int64_t unit = first; unit < end; unit++) {
        float *y = (float *)op->output + unit * op->row;
        const float *x = (const float *)op->inputs[0] + unit * op->row;
        if (op->is_norm)
            op->fast->layer_norm(x, op->inputs[op->scale],
                                 op->bias == IR_NONE ? NULL : op->inputs[op->bias], op->rms,
                                 op->epsilon, y, (size_t)op->row);
        else
            op->fast->softmax(x, y, (size_t)op->row, op->log_of);
        for (uint32_t k = 1; k < w.n; k++)
            base[k] = w.at[k] + in_row * w.step[k];
        for (int64_t at = 0; at < op->row && op->n_steps; at += NATIVE_CHUNK)
            native_steps_run(op, base, op->inner, at, y + at, y + at,
                             (size_t)MIN(op->row - at, NATIVE_CHUNK));
        if (++in_row == w.row) {
            in_row = 0;
            ref_walk_next(&w);
        }
    }
}

/* Finds the step of an operand along the dims of y from `axis` on: 1 if it is dense there, 0 if it
 * is constant. Returns false if it is neither. */
static bool inner_step(const struct shape *y, uint32_t axis, const int64_t *strides, int64_t *out)
{
    struct shape inner = {.rank = y->rank - axis};
    int64_t of_inner[1][SHAPE_MAX_RANK];
    for (uint32_t d = 0; d < inner.rank; d++) {
        inner.dim[d] = y->dim[axis + d];
        of_inner[0][d] = strides[axis + d];
    }
    struct ref_walk w;
    if (!ref_walk_init(&w, &inner, 1, of_inner) || w.rank > 0 || w.step[0] > 1)
        return false;
    *out = w.step[0];
    return true;
}

/* Makes an op whose rows are the dims axis..rank-1. */
static bool make_rows(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node, uint32_t axis)
{
    uint32_t n = 1;
    if (!native_steps_add(op, node, &n))
        return false;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    struct shape outer = *y;
    outer.rank = axis;
    op->row = ref_extent(y, axis, y->rank);
    int64_t strides[REF_WALK_MAX][SHAPE_MAX_RANK];
    shape_strides(y, strides[0]);
    for (uint32_t k = 1; k < n; k++) {
        ref_broadcast_strides(&ir_tensor(graph, node->inputs[op->input[k]])->shape, y, strides[k]);
        if (!inner_step(y, axis, strides[k], &op->inner[k]))
            return false;
    }
    op->units = ref_extent(y, 0, axis);
    op->work = run_rows;
    return ref_walk_init(&op->walk, &outer, n, strides);
}

/* --- softmax over an axis that is not the last --- */

static void run_across(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t col = unit % op->blocks * FAST_ACROSS, n = MIN(op->cols - col, FAST_ACROSS);
        int64_t at = unit / op->blocks * op->rows * op->cols + col;
        op->fast->softmax_across((const float *)op->inputs[0] + at, (float *)op->output + at,
                                 op->rows, op->cols, (size_t)n, op->log_of);
        for (int64_t r = 0; r < op->rows && op->n_steps; r++)
            native_after(op, at + r * op->cols, n);
    }
}

static bool make_across(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, uint32_t axis)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    op->rows = y->dim[axis];
    op->cols = ref_extent(y, axis + 1, y->rank);
    op->blocks = (op->cols + FAST_ACROSS - 1) / FAST_ACROSS;
    op->units = ref_extent(y, 0, axis) * op->blocks;
    op->work = run_across;
    return native_after_make(op, graph, node);
}

bool native_softmax_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    op->log_of = ir_attr_int(node, IR_ATTR_LOG);
    if (!native_all_f32(graph, node, 0))
        return false;
    return ref_extent(y, axis + 1, y->rank) == 1 ? make_rows(op, graph, node, axis)
                                                 : make_across(op, graph, node, axis);
}

/* Whether an input has one number for each element of a row, as scale and bias must. */
static bool is_row(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                   int64_t row)
{
    const struct shape *s = &ir_tensor(graph, node->inputs[input])->shape;
    return ref_extent(s, 0, s->rank) == row;
}

bool native_norm_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node)
{
    bool has_bias = ir_node_own_inputs(node) > 2 && node->inputs[2] != IR_NONE;
    op->is_norm = true;
    op->rms = ir_attr_int(node, IR_ATTR_RMS);
    op->epsilon = ir_attr_float(node, IR_ATTR_EPSILON);
    op->scale = 1;
    op->bias = has_bias ? 2 : IR_NONE;
    return native_all_f32(graph, node, 0) &&
           make_rows(op, graph, node, (uint32_t)ir_attr_int(node, IR_ATTR_AXIS)) &&
           is_row(graph, node, 1, op->row) && (!has_bias || is_row(graph, node, 2, op->row));
}
