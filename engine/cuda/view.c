/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns tensors, epilogues and constants of the IR into what kernels take. Refused (false): tensors
 * that have no strides (opaque, blocked), and epilogue steps that do not stay within floats.
 */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/compiler.h"
#include "engine/cuda/cuda.h"
#include "engine/stored.h"

_Static_assert((int)KERNEL_RANK_MAX == (int)SHAPE_MAX_RANK, "a view holds every shape");
_Static_assert((int)KERNEL_STEPS_MAX >= (int)IR_MAX_EPILOGUE, "and every epilogue");

/* --- tactics --- */

/* A precision allows its own type and all slower types. */
static const struct {
    uint32_t n;
    enum dtype dtype[2];
} dtypes[] = {
    [PRECISION_F32] = {1, {DTYPE_F32}},
    [PRECISION_TF32] = {1, {DTYPE_F32}},
    [PRECISION_F16] = {2, {DTYPE_F16, DTYPE_F32}},
    [PRECISION_BF16] = {2, {DTYPE_BF16, DTYPE_F32}},
};

static bool has_f32(const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && ir_tensor(graph, node->inputs[i])->dtype == DTYPE_F32)
            return true;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (ir_tensor(graph, node->outputs[i])->dtype == DTYPE_F32)
            return true;
    return false;
}

uint32_t cuda_dtypes(const struct ir_graph *graph, const struct ir_node *node,
                     enum precision precision, enum dtype out[3])
{
    out[0] = DTYPE_NONE;
    if ((uint32_t)precision >= ARRAY_LEN(dtypes) || !has_f32(graph, node))
        return 1;
    memcpy(out, dtypes[precision].dtype, sizeof(dtypes[precision].dtype));
    return dtypes[precision].n;
}

const struct ir_tensor *cuda_input(const struct ir_graph *graph, const struct ir_node *node,
                                   uint32_t input)
{
    return input < node->n_inputs && node->inputs[input] != IR_NONE
               ? ir_tensor(graph, node->inputs[input])
               : NULL;
}

void cuda_tactic(struct tactic *tactic, const struct cuda_family *family, uint32_t variant,
                 const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                 enum ir_layout layout, const char *detail)
{
    *tactic = (struct tactic){
        .backend = "cuda",
        .id = cuda_tactic_id(family->id, variant),
        .n_in = MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX),
        .n_out = node->n_outputs,
    };
    snprintf(tactic->name, sizeof(tactic->name), "%s %s", cuda_takings[family->id].title, detail);
    for (uint32_t i = 0; i < tactic->n_in; i++)
        tactic->in[i].format.layout = layout;
    for (uint32_t i = 0; i < tactic->n_out; i++)
        tactic->out[i].format.layout = layout;
    tactic_set_types(tactic, graph, node, dtype);
}

enum status cuda_refuse(const struct ir_node *node, const struct tactic *tactic, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "%s '%s': tactic %x of the cuda backend is not for this node",
                     ir_op_name(node->op), node->name, tactic->id);
}

/* --- views --- */

/* Channels that a pixel takes; 0: not a layout with channels last. */
static int64_t channels_of(const struct ir_tensor *tensor)
{
    int64_t c = tensor->shape.dim[1];
    switch (tensor->layout) {
    case IR_LAYOUT_CHANNELS_LAST:
        return MAX(c, 1);
    case IR_LAYOUT_CHANNELS_LAST_4:
        return MAX((c + 3) / 4 * 4, 4);
    case IR_LAYOUT_CHANNELS_LAST_8:
        return MAX((c + 7) / 8 * 8, 8);
    default:
        return 0;
    }
}

static void channels_last_strides(const struct shape *shape, int64_t channels, int64_t *stride)
{
    int64_t step = channels;
    for (uint32_t d = shape->rank - 1; d >= 2; d--) {
        stride[d] = step;
        step *= shape->dim[d];
    }
    stride[0] = step;
    stride[1] = 1;
}

bool cuda_view(const struct ir_tensor *tensor, struct kernel_view *out, int64_t *pad_channels)
{
    const struct shape *shape = &tensor->shape;
    uint64_t bytes; /* if the size fits, so do the strides */
    if (tensor->layout == IR_LAYOUT_OPAQUE || dtype_size(tensor->dtype) == 0 ||
        !ir_layout_bytes(shape, tensor->dtype, tensor->layout, &bytes))
        return false;
    int64_t channels = tensor->layout == IR_LAYOUT_PLAIN ? 0 : channels_of(tensor);
    if (tensor->layout != IR_LAYOUT_PLAIN && channels == 0)
        return false;
    *out = (struct kernel_view){.dtype = (int32_t)tensor->dtype, .rank = (int32_t)shape->rank};
    memcpy(out->dim, shape->dim, shape->rank * sizeof(out->dim[0]));
    /* The other dims of an empty tensor may have any product, so its strides stay 0. */
    if (bytes > 0 && channels)
        channels_last_strides(shape, channels, out->stride);
    else if (bytes > 0)
        shape_strides(shape, out->stride);
    if (pad_channels)
        *pad_channels = tensor->layout == IR_LAYOUT_CHANNELS_LAST ? 0 : channels;
    return true;
}

bool cuda_view_broadcast(const struct kernel_view *view, const struct kernel_view *like,
                         struct kernel_view *out)
{
    if (view->rank > like->rank)
        return false;
    struct kernel_view wide = *like;
    wide.data = view->data;
    wide.dtype = view->dtype;
    wide.step = view->step;
    wide.zero = view->zero;
    int32_t lead = like->rank - view->rank;
    for (int32_t d = 0; d < like->rank; d++) {
        int64_t dim = d < lead ? 1 : view->dim[d - lead];
        if (dim != 1 && dim != like->dim[d])
            return false;
        wide.stride[d] = dim == 1 ? 0 : view->stride[d - lead];
    }
    *out = wide;
    return true;
}

/* --- epilogues --- */

/* Functions from floats to floats, which can be done to a value in a register before it is
 * stored. */
static bool unary_known(uint32_t func)
{
    return func < IR_UNARY_COUNT_ && func != IR_UNARY_NOT && func != IR_UNARY_IS_NAN &&
           func != IR_UNARY_IS_INF && func != IR_UNARY_BITWISE_NOT;
}

static bool binary_known(uint32_t func)
{
    return func <= IR_BINARY_PRELU;
}

static bool is_kernel_float(int32_t dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F32;
}

static bool operand_view(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                         const struct kernel_view *y, struct kernel_view *out)
{
    struct kernel_view view;
    struct stored stored;
    const struct ir_tensor *tensor = cuda_input(graph, node, input);
    if (!tensor || !cuda_view(tensor, &view, NULL) ||
        !stored_read(graph, node->inputs[input], &stored))
        return false;
    view.step = stored.step;
    view.zero = (float)stored.zero;
    return (is_kernel_float(view.dtype) || view.step > 0) && cuda_view_broadcast(&view, y, out);
}

bool cuda_has_curve(const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *e = &node->epilogue[i];
        if (e->kind == IR_EPILOGUE_UNARY && e->func != IR_UNARY_RELU && e->func != IR_UNARY_CLIP)
            return true;
    }
    return false;
}

bool cuda_epilogue(const struct ir_graph *graph, const struct ir_node *node,
                   const struct kernel_view *y, struct kernel_epilogue *out)
{
    struct kernel_epilogue made = {.n = (int32_t)node->n_epilogue};
    if (node->n_epilogue > IR_MAX_EPILOGUE ||
        (made.n && !is_kernel_float(y->dtype) && y->step == 0))
        return false;
    for (int32_t i = 0; i < made.n; i++) {
        const struct ir_epilogue *from = &node->epilogue[i];
        struct kernel_step *step = &made.step[i];
        step->binary = from->kind == IR_EPILOGUE_BINARY;
        step->func = (int32_t)from->func;
        step->alpha = from->alpha;
        step->beta = from->beta;
        step->gamma = from->gamma;
        if (step->binary ? !binary_known(from->func) ||
                               !operand_view(graph, node, from->input, y, &step->operand)
                         : !unary_known(from->func))
            return false;
    }
    *out = made;
    return true;
}

void cuda_epilogue_bind(struct kernel_epilogue *epilogue, const struct ir_node *node,
                        void *const *inputs)
{
    struct kernel_step *steps = &epilogue->step[epilogue->n - (int32_t)node->n_epilogue];
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        if (steps[i].binary)
            steps[i].operand.data = inputs[node->epilogue[i].input];
}

/* --- constants --- */

static float read_f32(enum dtype dtype, const char *data, uint64_t i)
{
    uint16_t half;
    float f;
    double d;
    switch (dtype) {
    case DTYPE_F16:
        memcpy(&half, data + i * sizeof(half), sizeof(half));
        return f16_to_f32(half);
    case DTYPE_BF16:
        memcpy(&half, data + i * sizeof(half), sizeof(half));
        return bf16_to_f32(half);
    case DTYPE_F64:
        memcpy(&d, data + i * sizeof(d), sizeof(d));
        return (float)d;
    default:
        memcpy(&f, data + i * sizeof(f), sizeof(f));
        return f;
    }
}

static void write_f32(enum dtype dtype, char *data, uint64_t i, float f)
{
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
    double d = (double)f;
    if (dtype == DTYPE_F32)
        memcpy(data + i * sizeof(f), &f, sizeof(f));
    else if (dtype == DTYPE_F64)
        memcpy(data + i * sizeof(d), &d, sizeof(d));
    else
        memcpy(data + i * sizeof(half), &half, sizeof(half));
}

bool cuda_constant_cast(const struct ir_tensor *tensor, enum dtype dtype, void *out, uint64_t n)
{
    size_t elements;
    if (!ir_tensor_is_constant(tensor) || !dtype_is_float(tensor->dtype) ||
        !dtype_is_float(dtype) || tensor->layout != IR_LAYOUT_PLAIN ||
        !shape_elements(&tensor->shape, &elements) || elements != n)
        return false;
    if (tensor->dtype == dtype)
        memcpy(out, tensor->data, n * dtype_size(dtype));
    else
        for (uint64_t i = 0; i < n; i++)
            write_f32(dtype, out, i, read_f32(tensor->dtype, tensor->data, i));
    return true;
}

bool cuda_constant_f32(const struct ir_tensor *tensor, float *out, uint64_t n)
{
    return cuda_constant_cast(tensor, DTYPE_F32, out, n);
}
