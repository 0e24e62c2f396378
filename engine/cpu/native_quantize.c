/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUANTIZE and DEQUANTIZE by one scale, CAST of what requests send as bytes, and REFORMAT from or
 * to 8 bits, or of bytes. The first three are chains, of which one end is stored in 8 bits. A
 * reformat between plain and channels-last order turns images of channels and places in blocks of
 * bytes, that is before the bytes are widened or after the floats are narrowed.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

/* --- quantising --- */

static float real_of(const void *from)
{
    float value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static int32_t whole_of(enum dtype dtype, const void *from)
{
    uint8_t byte;
    memcpy(&byte, from, sizeof(byte));
    return dtype == DTYPE_I8 ? (int8_t)byte : byte;
}

static struct stored *integers(struct native_op *op)
{
    return &op->stored[op->quantizes ? 0 : 1];
}

/* Takes scale and zero point from where they were computed. */
static void read_now(struct native_op *op)
{
    struct stored *by = integers(op);
    by->step = real_of(op->inputs[1]);
    by->zero = op->has_zero ? whole_of(by->dtype, op->inputs[2]) : 0;
}

static bool is_one(const struct ir_tensor *t, enum dtype dtype)
{
    size_t n;
    return t->dtype == dtype && shape_elements(&t->shape, &n) && n == 1;
}

/* How the operands say that the integers are stored. */
static bool read_operands(struct native_op *op, const struct ir_graph *graph,
                          const struct ir_node *node)
{
    struct stored *by = integers(op);
    const struct ir_tensor *scale = ir_tensor(graph, node->inputs[1]), *zero = NULL;
    op->has_zero = node->n_inputs > 2 && node->inputs[2] != IR_NONE;
    if (op->has_zero)
        zero = ir_tensor(graph, node->inputs[2]);
    by->dtype = ir_tensor(graph, op->quantizes ? node->outputs[0] : node->inputs[0])->dtype;
    if ((by->dtype != DTYPE_I8 && by->dtype != DTYPE_U8) || !is_one(scale, DTYPE_F32) ||
        (zero && !is_one(zero, by->dtype)))
        return false;
    if (!scale->data || (zero && !zero->data)) {
        op->begin = read_now;
        return true;
    }
    by->step = real_of(scale->data);
    by->zero = zero ? whole_of(by->dtype, zero->data) : 0;
    return true;
}

bool native_quantize_make(struct native_op *op, const struct ir_graph *graph,
                          const struct ir_node *node)
{
    op->quantizes = node->op == IR_OP_QUANTIZE;
    uint32_t real = op->quantizes ? node->inputs[0] : node->outputs[0];
    struct stored *of_real = &op->stored[op->quantizes ? 1 : 0];
    op->input[1] = 0;
    return stored_read(graph, real, of_real) &&
           (of_real->dtype != DTYPE_NONE || ir_tensor(graph, real)->dtype == DTYPE_F32) &&
           read_operands(op, graph, node) && native_chunks_make(op, graph, node, 2);
}

/* A cast of 8-bit integers to real numbers that are stored in 8 bits. */
bool native_convert_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node)
{
    uint32_t n = 1;
    op->input[n++] = 0;
    return native_steps_add(op, node, &n) && native_stored_read(op, graph, node, n) &&
           op->stored[1].dtype != DTYPE_NONE && native_chunks_make(op, graph, node, n);
}

/* --- reformats --- */

enum { TILE_ROWS = 64, TILE_COLS = 256, LANES_MAX = 16 };

/* The matrix that is turned: rows of the input, which are columns of the output. */
struct tile {
    int64_t rows, cols, row, col, n_rows, n_cols;
    const char *x; /* the image's */
    char *y;
};

static void narrow_tile(const struct native_op *op, const struct tile *t)
{
    const struct stored *to = &op->stored[0];
    const struct byte_kernels *bytes = op->fast->bytes;
    uint8_t tile[TILE_ROWS * TILE_COLS];
    for (int64_t r = 0; r < t->n_rows; r++)
        bytes->narrow[native_byte(to)](
            (const float *)(const void *)t->x + (t->row + r) * t->cols + t->col,
            tile + r * TILE_COLS, (size_t)t->n_cols, to->step, (float)to->zero);
    bytes->turn(tile, TILE_COLS, (uint8_t *)t->y + t->col * t->rows + t->row, t->rows, t->n_rows,
                t->n_cols);
}

static void widen_tile(const struct native_op *op, const struct tile *t)
{
    const struct stored *from = &op->stored[1];
    const struct byte_kernels *bytes = op->fast->bytes;
    uint8_t tile[TILE_ROWS * TILE_COLS];
    bytes->turn((const uint8_t *)t->x + t->row * t->cols + t->col, t->cols, tile, TILE_ROWS,
                t->n_rows, t->n_cols);
    for (int64_t c = 0; c < t->n_cols; c++)
        bytes->widen[native_byte(from)](tile + c * TILE_ROWS,
                                        (float *)(void *)t->y + (t->col + c) * t->rows + t->row,
                                        (size_t)t->n_rows, from->step, (float)from->zero);
}

static void move_tile(const struct native_op *op, const struct tile *t)
{
    op->fast->bytes->turn((const uint8_t *)t->x + t->row * t->cols + t->col, t->cols,
                          (uint8_t *)t->y + t->col * t->rows + t->row, t->rows, t->n_rows,
                          t->n_cols);
}

static void run_turn(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_reformat *f = &op->reformat;
    int64_t rows = f->from_last ? f->places : f->channels;
    int64_t cols = f->from_last ? f->channels : f->places;
    int64_t down = (rows + TILE_ROWS - 1) / TILE_ROWS, across = (cols + TILE_COLS - 1) / TILE_COLS;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t image = unit / (down * across) * rows * cols;
        struct tile t = {.rows = rows, .cols = cols};
        t.row = unit / across % down * TILE_ROWS;
        t.col = unit % across * TILE_COLS;
        t.n_rows = MIN(rows - t.row, TILE_ROWS);
        t.n_cols = MIN(cols - t.col, TILE_COLS);
        t.x = (const char *)op->inputs[0] + image * f->x_size;
        t.y = (char *)op->output + image * f->y_size;
        if (f->x_size > 1)
            narrow_tile(op, &t);
        else if (f->y_size > 1)
            widen_tile(op, &t);
        else
            move_tile(op, &t);
    }
}

/* Narrows the lanes of a place, whose bytes lie `step` apart. */
static void narrow_lanes(const struct native_op *op, const float *real, uint8_t *byte, int64_t step,
                         size_t n)
{
    const struct stored *by = &op->stored[0];
    uint8_t lanes[LANES_MAX] = {0}, *at = step == 1 ? byte : lanes;
    op->fast->bytes->narrow[native_byte(by)](real, at, n, by->step, (float)by->zero);
    for (size_t i = 0; at == lanes && i < n; i++)
        byte[(int64_t)i * step] = lanes[i];
}

static void widen_lanes(const struct native_op *op, const uint8_t *byte, int64_t step, float *real,
                        size_t n)
{
    const struct stored *by = &op->stored[1];
    uint8_t lanes[LANES_MAX];
    for (size_t i = 0; step != 1 && i < n; i++)
        lanes[i] = byte[(int64_t)i * step];
    op->fast->bytes->widen[native_byte(by)](step == 1 ? byte : lanes, real, n, by->step,
                                            (float)by->zero);
    memset(real + n, 0, ((size_t)op->reformat.lanes - n) * sizeof(*real));
}

/* A unit is a block of channels of one image; floats are in blocks, bytes plain or channels
 * last. */
static void run_blocks(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_reformat *f = &op->reformat;
    bool narrows = op->stored[0].dtype != DTYPE_NONE;
    int64_t blocks = (f->channels + f->lanes - 1) / f->lanes;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t c = unit % blocks * f->lanes, image = unit / blocks;
        size_t n = (size_t)MIN(f->channels - c, f->lanes);
        for (int64_t s = 0; s < f->places; s++) {
            int64_t real = (unit * f->places + s) * f->lanes;
            int64_t byte = f->step == 1 ? (image * f->places + s) * f->channels + c
                                        : (image * f->channels + c) * f->places + s;
            if (narrows)
                narrow_lanes(op, (const float *)op->inputs[0] + real, (uint8_t *)op->output + byte,
                             f->step, n);
            else
                widen_lanes(op, (const uint8_t *)op->inputs[0] + byte, f->step,
                            (float *)op->output + real, n);
        }
    }
}

static bool make_flat(struct native_op *op, int64_t elements)
{
    const struct shape flat = {.rank = 1, .dim = {elements}};
    int64_t strides[REF_WALK_MAX][SHAPE_MAX_RANK] = {{1}, {1}};
    return native_row_make(op, &flat, 2, strides);
}

/* Between plain and channels-last order. */
static bool make_turn(struct native_op *op, const struct ir_tensor *x, const struct ir_tensor *y)
{
    struct native_reformat *f = &op->reformat;
    int64_t rows = f->from_last ? f->places : f->channels;
    int64_t cols = f->from_last ? f->channels : f->places;
    f->x_size = (int64_t)dtype_size(x->dtype);
    f->y_size = (int64_t)dtype_size(y->dtype);
    op->units = x->shape.dim[0] * ((rows + TILE_ROWS - 1) / TILE_ROWS) *
                ((cols + TILE_COLS - 1) / TILE_COLS);
    op->work = run_turn;
    return (x->layout == IR_LAYOUT_PLAIN && y->layout == IR_LAYOUT_CHANNELS_LAST) ||
           (y->layout == IR_LAYOUT_PLAIN && f->from_last);
}

static bool is_byte(const struct ir_tensor *t)
{
    return t->dtype == DTYPE_U8 || t->dtype == DTYPE_I8;
}

/* Whether bytes are moved that mean the same on both sides. */
static bool moves_bytes(const struct ir_graph *graph, const struct ir_tensor *x,
                        const struct ir_tensor *y)
{
    return is_byte(x) && x->dtype == y->dtype &&
           ir_scale_equal(ir_scale(graph, x->scale), ir_scale(graph, y->scale));
}

bool native_reformat_make(struct native_op *op, const struct ir_graph *graph,
                          const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct native_reformat *f = &op->reformat;
    uint32_t rank = x->shape.rank;
    bool moves = moves_bytes(graph, x, y),
         agree = ir_layouts_agree(&x->shape, x->layout, y->layout);
    op->input[1] = 0;
    if (!moves && (!native_stored_read(op, graph, node, 2) ||
                   (op->stored[0].dtype == DTYPE_NONE) == (op->stored[1].dtype == DTYPE_NONE)))
        return false;
    if (agree && !moves)
        return make_flat(op, ref_extent(&x->shape, 0, rank));
    if (rank < 3 || agree)
        return false;
    const struct ir_tensor *real = is_byte(y) ? x : y;
    f->channels = x->shape.dim[1];
    f->places = ref_extent(&x->shape, 2, rank);
    f->from_last = x->layout == IR_LAYOUT_CHANNELS_LAST;
    f->lanes = ir_layout_block(real->layout);
    if (moves || !f->lanes)
        return make_turn(op, x, y);
    op->units = x->shape.dim[0] * ((f->channels + f->lanes - 1) / f->lanes);
    op->work = run_blocks;
    enum ir_layout bytes = real == y ? x->layout : y->layout;
    f->step = bytes == IR_LAYOUT_PLAIN ? f->places : 1;
    return f->lanes <= LANES_MAX && (bytes == IR_LAYOUT_PLAIN || bytes == IR_LAYOUT_CHANNELS_LAST);
}
