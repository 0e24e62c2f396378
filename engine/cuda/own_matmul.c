/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 16-bit floats by constant weights, and convolutions of one group, by our own kernel
 * for Hopper (kernels/cuda/matmul.cuh): with bias, residual and activation, the exact GELU among
 * them, in one launch. A node is read as cuBLASLt's families read it; a convolution's window is
 * read by tensor copies. Refused: loops around a product, and what is more than a bias, a residual
 * and one activation.
 *
 * The rows that divide the depth among blocks are always offered, and those that store FP32 where
 * that is wanted; the others only if the environment has INFERD_OWN_MATMUL: on an H200 no model was
 * quicker with them, even where some of its layers were by themselves (docs/performance.md). A plan
 * that has them runs without that. The sum of two convolutions (CONV_PAIR), for which libraries
 * have no kernel, is offered all rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/lt.h"
#include "engine/cuda/own.h"

struct matmul_op {
    struct backend_op base;
    int32_t variant;
    uint32_t bias, residual; /* inputs of the node, or IR_NONE */
    struct kernel_matmul matmul;
};

/* By variant: rows and columns of a tile, and whether a block has two tiles at a time, or how many
 * blocks have one tile. */
static const char *const names[] = {
    "128x256",     "128x192",     "128x128",     "128x128 apart", "64x256 apart", "64x128 apart",
    "64x64 apart", "64x32 by 2",  "64x32 by 4",  "64x32 by 8",    "64x64 by 2",   "64x64 by 4",
    "64x64 by 8",  "64x128 by 2", "64x128 by 4", "64x128 by 8",   "patch",
};
_Static_assert(ARRAY_LEN(names) == KERNEL_MATMUL_VARIANTS, "each row of the kernel's table");

/* The first row whose two tiles are apart, and the first that divides the depth. */
enum { FIRST_APART = 4, FIRST_SPLIT = 8 };

static const struct lt_kind *kind_of(const struct ir_node *node)
{
    return node->op == IR_OP_MATMUL ? &lt_kind_matmul : &lt_kind_conv;
}

/* --- steps --- */

static bool read_binary(const struct lt_step *step, struct matmul_op *op)
{
    bool full = step->operand == LT_OPERAND_FULL, behind = op->matmul.func != IR_UNARY_IDENTITY;
    uint32_t *to = full ? &op->residual : &op->bias;
    if (step->func != IR_BINARY_ADD || *to != IR_NONE ||
        (!full && (step->operand != LT_OPERAND_VECTOR || behind)))
        return false;
    *to = step->input;
    op->matmul.late = full && behind;
    return true;
}

/* An activation behind a residual that is late would be a second one. */
static bool read_unary(const struct ir_epilogue *step, struct matmul_op *op)
{
    bool known = step->func == IR_UNARY_RELU || step->func == IR_UNARY_GELU ||
                 step->func == IR_UNARY_GELU_TANH || step->func == IR_UNARY_SWISH;
    if (!known || op->matmul.func != IR_UNARY_IDENTITY)
        return false;
    op->matmul.func = (int32_t)step->func;
    op->matmul.alpha = step->alpha;
    return true;
}

static bool read_steps(const struct ir_node *node, const struct lt_steps *steps,
                       struct matmul_op *op)
{
    uint32_t first = steps->n - node->n_epilogue; /* 1 if there is a bias */
    op->bias = op->residual = IR_NONE;
    op->matmul.func = IR_UNARY_IDENTITY;
    for (uint32_t i = 0; i < steps->n; i++)
        if (!(steps->step[i].binary ? read_binary(&steps->step[i], op)
                                    : read_unary(&node->epilogue[i - first], op)))
            return false;
    return true;
}

/* The window of a convolution, unless it is a product of pixels as they lie. */
static bool read_window(const struct ir_graph *graph, const struct ir_node *node,
                        struct kernel_images *out)
{
    const struct shape *x = &cuda_input(graph, node, 0)->shape;
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    struct kernel_window window;
    bool even;
    *out = (struct kernel_images){0};
    return lt_is_pointwise(node, x, w) || (own_conv_window_read(node, w, &window, &even) &&
                                           own_window_images(&window, x->dim, y->dim, out));
}

static bool read_product(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         bool exact, struct lt_product *p, struct kernel_images *image)
{
    *image = (struct kernel_images){0};
    return node->op == IR_OP_CONV
               ? lt_conv_read_windows(graph, node, dtype, exact, LT_PACKED_NK, p) &&
                     read_window(graph, node, image)
               : lt_kind_matmul.read(graph, node, dtype, exact, LT_PACKED_NK, p);
}

/* The types of one source of CONV_PAIR, whose weights are its next input. */
static bool source_fits(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                        enum dtype dtype, bool exact, enum dtype want)
{
    const struct ir_tensor *x = cuda_input(graph, node, input);
    const struct ir_tensor *w = cuda_input(graph, node, input + 1);
    size_t n;
    return lt_type(x, dtype, exact) == want && ir_tensor_is_constant(w) &&
           dtype_is_float(w->dtype) && shape_elements(&x->shape, &n) && n > 0;
}

/* Reads a CONV_PAIR: both sources are rows, and the second one's may be every second pixel. */
static bool read_pair(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      bool exact, struct lt_product *p, struct matmul_op *op)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    const int64_t *x = cuda_input(graph, node, 0)->shape.dim, *out = y->shape.dim;
    const int64_t *x2 = cuda_input(graph, node, IR_PAIR_X2)->shape.dim;
    *p = (struct lt_product){.alpha = 1, .batch = {.n = 1}, .launches = 1, .axis = 1};
    p->dtype = dtype == DTYPE_NONE ? y->dtype : dtype;
    if (lt_type(y, dtype, exact) != p->dtype ||
        !source_fits(graph, node, 0, dtype, exact, p->dtype) ||
        !source_fits(graph, node, IR_PAIR_X2, dtype, exact, p->dtype) || out[1] == 0)
        return false;
    p->m = out[0] * out[2] * out[3];
    p->n = out[1];
    p->k = x[1];
    p->b_elements = (uint64_t)(p->n * p->k);
    op->matmul.second.depth = x2[1];
    own_pair_images(node, x2, out, &op->matmul.second.image);
    return lt_steps_read(graph, node, IR_PAIR_BIAS, dtype, exact, p);
}

/* `dtype` and `exact` as lt_kind's; sums that are to be FP32 are read without `exact`. */
static bool read_matmul(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        bool exact, struct matmul_op *op)
{
    struct lt_product p;
    struct kernel_images image = {0};
    op->matmul = (struct kernel_matmul){0};
    if (node->n_outputs != 1 ||
        !(node->op == IR_OP_CONV_PAIR ? read_pair(graph, node, dtype, exact, &p, op)
                                      : read_product(graph, node, dtype, exact, &p, &image)) ||
        (p.dtype != DTYPE_F16 && p.dtype != DTYPE_BF16) || p.trans_a || p.n_loops ||
        p.batch.n != 1 || p.b_elements != (uint64_t)p.n * (uint64_t)p.k)
        return false;
    op->matmul.rows = p.m;
    op->matmul.cols = p.n;
    op->matmul.depth = p.k;
    op->matmul.image = image;
    op->matmul.dtype = (int32_t)p.dtype;
    op->matmul.scale = p.alpha;
    return read_steps(node, &p.steps, op);
}

/* --- tactics --- */

/* One source's product alone: `input` has its weights. */
static struct kernel_matmul source_of(const struct kernel_matmul *p, uint32_t input)
{
    struct kernel_matmul one = *p;
    if (input == IR_PAIR_W2) {
        one.depth = p->second.depth;
        one.image = p->second.image;
    }
    return one;
}

static uint64_t packed_bytes(const struct kernel_matmul *p, uint32_t input)
{
    const struct kernel_matmul one = source_of(p, input);
    return (uint64_t)kernel_matmul_packed_rows(one.cols) *
           (uint64_t)kernel_matmul_packed_depth(&one.image, one.depth) *
           dtype_size((enum dtype)one.dtype);
}

static bool is_packed(const struct ir_node *node, uint32_t input)
{
    return input == 1 || (node->op == IR_OP_CONV_PAIR && input == IR_PAIR_W2);
}

static void fill(const struct ir_graph *graph, const struct ir_node *node,
                 const struct matmul_op *op, enum dtype dtype, int32_t variant,
                 struct tactic *tactic)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s%s", dtype_name((enum dtype)op->matmul.dtype),
             names[variant - 1], op->matmul.wide ? " to FP32" : "");
    cuda_tactic(tactic, &cuda_family_own_matmul, (uint32_t)variant, graph, node, dtype,
                kind_of(node)->layout, detail);
    if (op->matmul.wide)
        tactic->out[0].format.dtype = DTYPE_F32;
    for (uint32_t i = 1; i < tactic->n_in; i++) {
        const struct ir_tensor *t = cuda_input(graph, node, i);
        bool like_y = (t && i >= ir_node_own_inputs(node) && shape_equal(&t->shape, y)) ||
                      (node->op == IR_OP_CONV_PAIR && i == IR_PAIR_X2);
        tactic->in[i].format.layout = like_y ? kind_of(node)->layout : IR_LAYOUT_PLAIN;
        if (is_packed(node, i))
            tactic_port_pack(&tactic->in[i], packed_bytes(&op->matmul, i));
    }
}

static enum status visit_one(struct cuda_device *device, const struct ir_graph *graph,
                             const struct ir_node *node, const struct matmul_op *op,
                             enum dtype dtype, int32_t variant, tactic_visit visit, void *user,
                             struct error *err)
{
    struct kernel_call call = own_call_dry(device, variant);
    struct tactic tactic;
    if (kernel_matmul(&call, &op->matmul) != cudaSuccess)
        return STATUS_OK;
    fill(graph, node, op, dtype, variant, &tactic);
    return visit(user, &tactic, err);
}

/* Products may write FP32 themselves: what a model gives is often such a one's, and a conversion
 * behind it is one more launch. */
static bool may_be_wide(const struct ir_graph *graph, const struct ir_node *node)
{
    return node->op == IR_OP_MATMUL && ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32;
}

/* Of the rows that divide the depth, the one to take without timing: tiles of 64 columns, or of 32
 * where these are few, and so many blocks to a tile that all multiprocessors have one. */
static int32_t split_of(const struct cuda_device *device, const struct kernel_matmul *p)
{
    int64_t columns = 64, blocks = 8, tall = (p->rows + 63) / 64;
    int64_t room = device->properties.multiProcessorCount;
    if (tall * ((p->cols + 63) / 64) * blocks < room / 2)
        columns = 32;
    while (blocks > 2 && tall * ((p->cols + columns - 1) / columns) * blocks > 2 * room)
        blocks /= 2;
    return FIRST_SPLIT + (columns == 64 ? 3 : 0) + (blocks == 8 ? 2 : blocks == 4 ? 1 : 0);
}

/* Rows from..end - 1; the one to take without timing is the first. */
static enum status visit_rows(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, const struct matmul_op *op,
                              enum dtype dtype, int32_t from, int32_t end, tactic_visit visit,
                              void *user, struct error *err)
{
    int32_t first = split_of(device, &op->matmul);
    TRY(visit_one(device, graph, node, op, dtype, first, visit, user, err));
    for (int32_t v = from; v < end; v++)
        if (v != first)
            TRY(visit_one(device, graph, node, op, dtype, v, visit, user, err));
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum { FEW_ROWS = 512 }; /* others store FP32 while they multiply, which tiles apart do */
    enum dtype dtypes[3];
    bool all = node->op == IR_OP_CONV_PAIR || secure_getenv("INFERD_OWN_MATMUL");
    int32_t first = all ? 1 : FIRST_SPLIT;
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n; i++) {
        struct matmul_op op;
        if (!read_matmul(graph, node, dtypes[i], false, &op))
            continue;
        TRY(visit_rows(device, graph, node, &op, dtypes[i], first, KERNEL_MATMUL_VARIANTS + 1,
                       visit, user, err));
        op.matmul.wide = may_be_wide(graph, node);
        if (op.matmul.wide)
            TRY(visit_rows(device, graph, node, &op, dtypes[i],
                           op.matmul.rows > FEW_ROWS ? FIRST_APART : FIRST_SPLIT,
                           KERNEL_MATMUL_PATCH, visit, user, err));
    }
    return STATUS_OK;
}

/* Few rows and much depth: libraries walk all of it with few blocks, if they are not timed. */
static bool leads(const struct cuda_device *device UNUSED, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    struct matmul_op op;
    return read_matmul(graph, node, DTYPE_F16, false, &op) &&
           own_is_deep(op.matmul.rows, op.matmul.cols, op.matmul.depth);
}

/* --- packing --- */

/* Where the packed row of a column has number k of the depth, and where the constant has it. */
struct places {
    const struct kernel_matmul *p;
    bool by_columns; /* the constant is [columns, depth], else [depth, columns] */
    int64_t taps;    /* that come behind a channel there, and before the channels here */
};

static int64_t packed_place(const struct places *at, int64_t k)
{
    return k % at->taps * kernel_matmul_tap_depth(at->p->image.channels) + k / at->taps;
}

static void pack_column(const struct places *at, const uint16_t *from, int64_t c, int32_t variant,
                        uint16_t *to)
{
    const struct kernel_matmul *p = at->p;
    uint16_t *row =
        to + kernel_matmul_packed_row(variant, c) * kernel_matmul_packed_depth(&p->image, p->depth);
    for (int64_t k = 0; k < p->depth; k++)
        row[at->taps ? packed_place(at, k) : k] =
            from[at->by_columns ? c * p->depth + k : k * p->cols + c];
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *b = cuda_input(graph, node, input);
    struct matmul_op op;
    size_t n;
    if (!is_packed(node, input) || !b || !shape_elements(&b->shape, &n) ||
        !read_matmul(graph, node, tactic_float(tactic), false, &op) ||
        tactic->in[input].packed_bytes != packed_bytes(&op.matmul, input))
        return cuda_refuse(node, tactic, err);
    const struct kernel_matmul one = source_of(&op.matmul, input), *p = &one;
    if (n != (uint64_t)p->cols * (uint64_t)p->depth)
        return cuda_refuse(node, tactic, err);
    struct places at = {
        .p = p,
        .by_columns = node->op != IR_OP_MATMUL || ir_attr_int(node, IR_ATTR_TRANS_B) != 0,
        .taps = (int64_t)p->image.kernel[0] * p->image.kernel[1],
    };
    CLEANUP(cleanup_free) uint16_t *same = malloc(n * sizeof(*same));
    if (!same)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_cast(b, (enum dtype)p->dtype, same, n))
        return cuda_refuse(node, tactic, err);
    memset(to, 0, packed_bytes(&op.matmul, input));
    for (int64_t c = 0; c < p->cols; c++)
        pack_column(&at, same, c, (int32_t)cuda_tactic_variant(tactic), to);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct matmul_op *op = CONTAINER_OF(base, struct matmul_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    op->matmul.a = inputs[0];
    op->matmul.b = inputs[1];
    if (op->matmul.second.depth) {
        op->matmul.second.a = inputs[IR_PAIR_X2];
        op->matmul.second.b = inputs[IR_PAIR_W2];
    }
    op->matmul.bias = op->bias == IR_NONE ? NULL : inputs[op->bias];
    op->matmul.residual = op->residual == IR_NONE ? NULL : inputs[op->residual];
    op->matmul.y = outputs[0];
    cudaError_t code = kernel_matmul(&call, &op->matmul);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_matmul");
}

static bool ports_fit(const struct tactic *tactic, const struct tactic *want)
{
    bool fit = tactic->n_in == want->n_in && tactic->n_out == want->n_out &&
               tactic->out[0].format.dtype == want->out[0].format.dtype;
    for (uint32_t i = 0; fit && i < tactic->n_in; i++)
        fit = tactic->in[i].format.layout == want->in[i].format.layout &&
              tactic->in[i].packed_bytes == want->in[i].packed_bytes;
    return fit && tactic->out[0].format.layout == want->out[0].format.layout &&
           !tactic->out[0].packed_bytes;
}

/* Whether a planned product's inputs are of this type, of 16 bits, and its output is FP32. */
static bool is_wide(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype)
{
    bool wide = dtype_size(dtype) == 2 && ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32;
    for (uint32_t i = 0; wide && i < node->n_inputs; i++)
        wide = !cuda_input(graph, node, i) || cuda_input(graph, node, i)->dtype == dtype;
    return wide;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct matmul_op made = {.base.launch = launch,
                             .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    enum dtype dtype = tactic_float(tactic);
    bool wide = node->op == IR_OP_MATMUL && is_wide(graph, node, dtype);
    struct tactic want;
    if (made.variant < 1 || made.variant > KERNEL_MATMUL_VARIANTS ||
        !read_matmul(graph, node, dtype, !wide, &made))
        return cuda_refuse(node, tactic, err);
    made.matmul.wide = wide;
    if (kernel_matmul(&call, &made.matmul) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    fill(graph, node, &made, dtype, made.variant, &want);
    if (!ports_fit(tactic, &want))
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_matmul = {
    .id = CUDA_FAMILY_OWN_MATMUL,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
    .leads = leads,
    .casts = true,
};
