/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of few rows that are normalised first (NORM_MATMUL), by our own kernel for Hopper
 * (kernels/cuda/norm_matmul.cu), in 16-bit floats. The norm's scale becomes part of the packed
 * weights, behind which lie two sums for each column that the kernel needs; scale and shift
 * themselves are packed as FP32, for the normalised rows. Refused: weights, scales and shifts that
 * are no constants, and what is more than a bias, a residual and one activation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/own_matmul.h"

struct norm_matmul_op {
    struct backend_op base;
    int32_t variant;
    struct own_matmul_operands with;
    bool shifted;
    struct kernel_norm_matmul norm;
};

static const char *const names[] = {"64x32 by 2", "64x32 by 4", "64x32 by 8", "64x64 by 2",
                                    "64x64 by 4", "64x64 by 8", "64x32",      "64x64"};
_Static_assert(ARRAY_LEN(names) == KERNEL_NORM_MATMUL_VARIANTS, "each row of the kernel's table");

/* --- reading a node --- */

static bool is_vector(const struct ir_tensor *t, int64_t n)
{
    return t && ir_tensor_is_constant(t) && dtype_is_float(t->dtype) && t->shape.rank == 1 &&
           t->shape.dim[0] == n;
}

/* The numbers of a packed constant are known from its port alone, so that it is not looked at. */
static bool constants_fit(const struct ir_graph *graph, const struct ir_node *node, bool packed,
                          const struct lt_product *p, bool *shifted)
{
    const struct ir_tensor *w = cuda_input(graph, node, IR_NORMED_W);
    const struct ir_tensor *scale = cuda_input(graph, node, IR_NORMED_SCALE);
    const struct ir_tensor *shift = ir_node_own_inputs(node) > IR_NORMED_SHIFT
                                        ? cuda_input(graph, node, IR_NORMED_SHIFT)
                                        : NULL;
    *shifted = shift != NULL;
    return w && ir_tensor_is_constant(w) &&
           (packed || (dtype_is_float(w->dtype) && w->shape.rank == 2 && is_vector(scale, p->k) &&
                       (!shift || is_vector(shift, p->k))));
}

/* Whether the tensors that are read and stored have the product's type. */
static bool types_fit(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      bool exact, enum dtype want)
{
    bool fit = (want == DTYPE_F16 || want == DTYPE_BF16) &&
               lt_type(cuda_input(graph, node, IR_NORMED_X), dtype, exact) == want;
    for (uint32_t i = 0; fit && i < node->n_outputs; i++)
        fit = lt_type(ir_tensor(graph, node->outputs[i]), dtype, exact) == want;
    return fit;
}

/* `dtype` and `exact` as lt_kind's. */
static bool read_node(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      bool exact, struct norm_matmul_op *op)
{
    const struct ir_tensor *x = cuda_input(graph, node, IR_NORMED_X);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct lt_product p = {.alpha = 1, .batch = {.n = 1}, .launches = 1, .m = 1};
    p.dtype = dtype == DTYPE_NONE ? y->dtype : dtype;
    p.axis = y->shape.rank - 1;
    p.n = y->shape.dim[p.axis];
    p.k = x->shape.dim[x->shape.rank - 1];
    for (uint32_t i = 0; i + 1 < y->shape.rank; i++)
        p.m *= y->shape.dim[i];
    op->norm = (struct kernel_norm_matmul){
        .product = {.rows = p.m, .cols = p.n, .depth = p.k, .dtype = (int32_t)p.dtype, .scale = 1},
        .epsilon = ir_attr_float(node, IR_ATTR_EPSILON),
        .rms = ir_attr_int(node, IR_ATTR_RMS) != 0,
    };
    return types_fit(graph, node, dtype, exact, p.dtype) &&
           constants_fit(graph, node, exact, &p, &op->shifted) &&
           lt_steps_read(graph, node, IR_NORMED_BIAS, dtype, exact, &p) &&
           own_matmul_steps(node, &p.steps, &op->norm.product, &op->with);
}

/* --- tactics --- */

static uint64_t columns_of(const struct kernel_matmul *p)
{
    return (uint64_t)kernel_matmul_packed_rows(p->cols);
}

/* Of the weights alone, behind which come a slope and an offset for each column. */
static uint64_t weights_bytes(const struct kernel_matmul *p)
{
    return columns_of(p) * (uint64_t)kernel_matmul_packed_depth(&p->image, p->depth) *
           dtype_size((enum dtype)p->dtype);
}

static uint64_t packed_bytes(const struct norm_matmul_op *op, uint32_t input)
{
    const struct kernel_matmul *p = &op->norm.product;
    if (input == IR_NORMED_W)
        return weights_bytes(p) + 2 * columns_of(p) * sizeof(float);
    return input == IR_NORMED_SCALE || (input == IR_NORMED_SHIFT && op->shifted)
               ? (uint64_t)p->depth * sizeof(float)
               : 0;
}

static void fill(const struct ir_graph *graph, const struct ir_node *node,
                 const struct norm_matmul_op *op, enum dtype dtype, int32_t variant,
                 struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s", dtype_name((enum dtype)op->norm.product.dtype),
             names[variant - 1]);
    cuda_tactic(tactic, &cuda_family_own_norm_matmul, (uint32_t)variant, graph, node, dtype,
                IR_LAYOUT_PLAIN, detail);
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (packed_bytes(op, i))
            tactic_port_pack(&tactic->in[i], packed_bytes(op, i));
}

static bool takes(const struct cuda_device *device, int32_t variant,
                  const struct kernel_norm_matmul *norm)
{
    struct kernel_call call = own_call_dry(device, variant);
    return kernel_norm_matmul(&call, norm) == cudaSuccess;
}

/* The variant to take without timing, counted from 0: where tiles of 64 columns are enough for half
 * of the multiprocessors, a block has one alone. */
static int32_t first_of(const struct cuda_device *device, const struct kernel_matmul *p)
{
    int64_t tiles = (p->rows + 63) / 64 * ((p->cols + 63) / 64);
    return tiles >= device->properties.multiProcessorCount / 2 ? KERNEL_NORM_MATMUL_VARIANTS - 1
                                                               : own_matmul_split(device, p);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n; i++) {
        struct norm_matmul_op op;
        if (!read_node(graph, node, dtypes[i], false, &op))
            continue;
        int32_t first = first_of(device, &op.norm.product);
        for (int32_t v = 0; v < KERNEL_NORM_MATMUL_VARIANTS; v++) {
            int32_t variant = 1 + (first + v) % KERNEL_NORM_MATMUL_VARIANTS;
            struct tactic tactic;
            if (!takes(device, variant, &op.norm))
                continue;
            fill(graph, node, &op, dtypes[i], variant, &tactic);
            TRY(visit(user, &tactic, err));
        }
    }
    return STATUS_OK;
}

/* --- packing --- */

static uint16_t rounded(enum dtype dtype, float v)
{
    return dtype == DTYPE_F16 ? f32_to_f16(v) : f32_to_bf16(v);
}

static float widened(enum dtype dtype, uint16_t v)
{
    return dtype == DTYPE_F16 ? f16_to_f32(v) : bf16_to_f32(v);
}

/* The constants of a node as floats; shift is 0 if there is none. */
struct constants {
    float *w, *scale, *shift;
    bool by_columns; /* w is [columns, depth], else [depth, columns] */
};

static void pack_column(const struct kernel_matmul *p, const struct constants *from, int64_t c,
                        void *to)
{
    uint16_t *row = (uint16_t *)to + kernel_matmul_packed_row(1, c) *
                                         kernel_matmul_packed_depth(&p->image, p->depth);
    float *slope = (float *)(void *)((char *)to + weights_bytes(p)),
          *offset = slope + columns_of(p);
    double slopes = 0, offsets = 0;
    for (int64_t k = 0; k < p->depth; k++) {
        float w = from->w[from->by_columns ? c * p->depth + k : k * p->cols + c];
        row[k] = rounded((enum dtype)p->dtype, w * from->scale[k]);
        slopes += (double)widened((enum dtype)p->dtype, row[k]);
        offsets += (double)w * (double)from->shift[k];
    }
    slope[c] = (float)slopes;
    offset[c] = (float)offsets;
}

static enum status pack_weights(const struct ir_graph *graph, const struct ir_node *node,
                                const struct norm_matmul_op *op, const struct tactic *tactic,
                                void *to, struct error *err)
{
    const struct kernel_matmul *p = &op->norm.product;
    size_t depth = (size_t)p->depth, n = depth * (size_t)p->cols;
    CLEANUP(cleanup_free) float *all = calloc(n + 2 * depth, sizeof(*all));
    if (!all)
        return error_no_memory(err, "CUDA");
    const struct constants from = {all, all + n, all + n + depth,
                                   ir_attr_int(node, IR_ATTR_TRANS_B) != 0};
    if (!cuda_constant_f32(cuda_input(graph, node, IR_NORMED_W), from.w, n) ||
        !cuda_constant_f32(cuda_input(graph, node, IR_NORMED_SCALE), from.scale, depth) ||
        (op->shifted &&
         !cuda_constant_f32(cuda_input(graph, node, IR_NORMED_SHIFT), from.shift, depth)))
        return cuda_refuse(node, tactic, err);
    memset(to, 0, packed_bytes(op, IR_NORMED_W));
    for (int64_t c = 0; c < p->cols; c++)
        pack_column(p, &from, c, to);
    return STATUS_OK;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct norm_matmul_op op;
    if (!read_node(graph, node, tactic_float(tactic), false, &op) || !packed_bytes(&op, input) ||
        tactic->in[input].packed_bytes != packed_bytes(&op, input))
        return cuda_refuse(node, tactic, err);
    if (input == IR_NORMED_W)
        return pack_weights(graph, node, &op, tactic, to, err);
    return cuda_constant_f32(cuda_input(graph, node, input), to, (uint64_t)op.norm.product.depth)
               ? STATUS_OK
               : cuda_refuse(node, tactic, err);
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct norm_matmul_op *op = CONTAINER_OF(base, struct norm_matmul_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    struct kernel_norm_matmul *n = &op->norm;
    const char *weights = inputs[IR_NORMED_W];
    n->product.a = inputs[IR_NORMED_X];
    n->product.b = weights;
    n->slope = (const float *)(const void *)(weights + weights_bytes(&n->product));
    n->offset = n->slope + columns_of(&n->product);
    n->scale = inputs[IR_NORMED_SCALE];
    n->shift = op->shifted ? inputs[IR_NORMED_SHIFT] : NULL;
    n->product.bias = op->with.bias == IR_NONE ? NULL : inputs[op->with.bias];
    n->product.residual = op->with.residual == IR_NONE ? NULL : inputs[op->with.residual];
    n->product.y = outputs[0];
    if (n->h)
        n->h = outputs[1];
    cudaError_t code = kernel_norm_matmul(&call, n);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_norm_matmul");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct norm_matmul_op made = {.base.launch = launch,
                                  .variant = (int32_t)cuda_tactic_variant(tactic)};
    if (made.variant < 1 || made.variant > KERNEL_NORM_MATMUL_VARIANTS ||
        !read_node(graph, node, tactic_float(tactic), true, &made) ||
        !takes(stream->device, made.variant, &made.norm))
        return cuda_refuse(node, tactic, err);
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes != packed_bytes(&made, i))
            return cuda_refuse(node, tactic, err);
    made.norm.h = node->n_outputs > 1 ? &made : NULL; /* wanted: launch says where */
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_norm_matmul = {
    .id = CUDA_FAMILY_OWN_NORM_MATMUL,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
