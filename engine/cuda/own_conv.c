/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by our own kernels: depthwise ones over channels-last images, and the direct kernel,
 * which does every convolution of floats, transposed or not, in either layout.
 *
 * The direct kernel is slow. Where a library surely does the node (one group, two spatial dims, the
 * same padding on both sides, in FP32 only a sum and a range behind it) and the work is large, it
 * is not offered, because timing it would take longer than it could ever save.
 *
 * Weights of depthwise nodes are packed [k.., C]; those of the direct kernel stay as they are. The
 * bias is packed in fp32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

enum variant {           /* stored in plans */
               WIDE = 1, /* depthwise, as kernel_depthwise numbers them */
               NARROW = 2,
               ANY = 3,
               STRIP = 4, /* kernel_depthwise_strip */
               DIRECT = 8,
};

static const char *const names[] = {[WIDE] = "depthwise 4 columns",
                                    [NARROW] = "depthwise 2 columns",
                                    [ANY] = "depthwise any window",
                                    [STRIP] = "depthwise strips",
                                    [DIRECT] = "direct"};

/* At most so many products for the direct kernel where a library surely does the node, too. */
#define DIRECT_WORK_MAX (INT64_C(1) << 28)

struct conv {
    struct kernel_window window;
    int64_t groups, channels, outputs; /* channels of x and of y */
    int64_t work;                      /* products */
    bool even;                         /* padding is the same on both sides */
    bool transposed;
    struct kernel_view x, y;
    struct kernel_epilogue epilogue;
    bool biased;
};

struct conv_op {
    struct backend_op base;
    const struct ir_node *node;
    enum variant variant;
    struct conv conv;
};

static const struct ir_tensor *input_of(const struct ir_graph *graph, const struct ir_node *node,
                                        uint32_t i)
{
    return i < ir_node_own_inputs(node) ? cuda_input(graph, node, i) : NULL;
}

static bool fits_int(int64_t value, int64_t least)
{
    return value >= least && value <= INT32_MAX / 4;
}

bool own_conv_window_read(const struct ir_node *node, const struct shape *w,
                          struct kernel_window *window, bool *even)
{
    uint32_t spatial = w->rank - 2;
    window->spatial = (int32_t)spatial;
    *even = true;
    for (uint32_t i = 0; i < spatial; i++) {
        int64_t stride = ir_attr_at(node, IR_ATTR_STRIDES, i);
        int64_t dilation = ir_attr_at(node, IR_ATTR_DILATIONS, i);
        int64_t pad = ir_attr_at(node, IR_ATTR_PADS, i);
        if (!fits_int(w->dim[2 + i], 1) || !fits_int(stride, 1) || !fits_int(dilation, 1) ||
            !fits_int(pad, 0))
            return false;
        *even = *even && pad == ir_attr_at(node, IR_ATTR_PADS, spatial + i);
        window->kernel[i] = (int32_t)w->dim[2 + i];
        window->stride[i] = (int32_t)stride;
        window->dilation[i] = (int32_t)dilation;
        window->pad[i] = (int32_t)pad;
    }
    return true;
}

/* `dtype` NONE: with the types that its tensors have. */
static bool read_conv(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      enum ir_layout layout, struct conv *out)
{
    struct conv c = {.groups = ir_attr_int(node, IR_ATTR_GROUP),
                     .transposed = node->op == IR_OP_DECONV};
    const struct ir_tensor *x = input_of(graph, node, 0), *w = input_of(graph, node, 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    size_t y_n, w_n;
    if (!x || !w || x->shape.rank < 3 || x->shape.rank > 5 || w->shape.rank != x->shape.rank ||
        y->shape.rank != x->shape.rank ||
        !own_conv_window_read(node, &w->shape, &c.window, &c.even) || !fits_int(c.groups, 1) ||
        !own_view(x, dtype, layout, &c.x) || !own_view(y, dtype, layout, &c.y) ||
        c.x.dtype != c.y.dtype || !cuda_epilogue(graph, node, &c.y, &c.epilogue) ||
        !shape_elements(&y->shape, &y_n) || !shape_elements(&w->shape, &w_n) || y_n == 0)
        return false;
    c.channels = x->shape.dim[1];
    c.outputs = y->shape.dim[1];
    c.biased = input_of(graph, node, 2) != NULL;
    if (__builtin_mul_overflow((int64_t)y_n / c.outputs, (int64_t)w_n, &c.work))
        c.work = INT64_MAX;
    *out = c;
    return true;
}

/* --- which kernels take it --- */

static struct conv with_height(const struct conv *c)
{
    struct conv two = *c;
    own_view_add_height(&two.x);
    own_view_add_height(&two.y);
    own_window_add_height(&two.window);
    for (int32_t i = 0; i < two.epilogue.n; i++)
        if (two.epilogue.step[i].binary)
            own_view_add_height(&two.epilogue.step[i].operand);
    return two;
}

static cudaError_t call_kernel(const struct kernel_call *call, enum variant variant,
                               const struct conv *c, const void *weights, const float *bias)
{
    if (variant == DIRECT)
        return kernel_conv_direct(call, &c->window, (int32_t)c->groups, c->transposed, &c->x,
                                  weights, bias, &c->y, &c->epilogue);
    const struct conv two = c->window.spatial == 1 ? with_height(c) : *c;
    if (variant == STRIP)
        return kernel_depthwise_strip(call, &two.window, &two.x, weights, bias, &two.y,
                                      &two.epilogue);
    return kernel_depthwise(call, &two.window, &two.x, weights, bias, &two.y, &two.epilogue);
}

static bool is_depthwise(const struct conv *c)
{
    return !c->transposed && c->window.spatial <= 2 && c->groups == c->channels &&
           c->outputs == c->channels;
}

/* Whether there are more than enough columns for threads of four. */
static bool is_large(const struct cuda_device *device, const struct conv *c)
{
    int64_t vector = 16 / (int64_t)dtype_size((enum dtype)c->x.dtype), columns = 1;
    for (int32_t i = 0; i < c->y.rank; i++)
        columns *= c->y.dim[i];
    return columns / vector / 4 >= (int64_t)device->properties.multiProcessorCount * 512;
}

/* Whether there are kernels with unrolled loops for this window. */
static bool is_usual(const struct conv *c)
{
    const struct kernel_window *w = &c->window;
    int64_t vector = 16 / (int64_t)dtype_size((enum dtype)c->x.dtype);
    return w->kernel[0] == w->kernel[1] && w->stride[0] == w->stride[1] && w->stride[0] <= 2 &&
           (w->kernel[0] == 3 || w->kernel[0] == 5 || (w->kernel[0] == 7 && w->stride[0] == 1)) &&
           w->dilation[0] == 1 && w->dilation[1] == 1 && c->window.spatial == 2 &&
           c->channels % vector == 0;
}

static bool is_range(const struct kernel_epilogue *e)
{
    return e->n == 0 || (e->n == 1 && !e->step[0].binary &&
                         (e->step[0].func == IR_UNARY_RELU || e->step[0].func == IR_UNARY_CLIP));
}

/* Whether all that follows the convolution is a sum and a range, each at most once. */
static bool is_sum_and_range(const struct kernel_epilogue *e)
{
    int32_t i = 0;
    i += i < e->n && e->step[i].binary;
    i += i < e->n && !e->step[i].binary &&
         (e->step[i].func == IR_UNARY_RELU || e->step[i].func == IR_UNARY_CLIP);
    return i == e->n;
}

static bool library_does(const struct conv *c)
{
    return c->groups == 1 && c->window.spatial == 2 && c->even &&
           (c->x.dtype != (int32_t)DTYPE_F32 || is_sum_and_range(&c->epilogue));
}

/* Weights and biases that are not constants must have, or get by the tactic, the type that the
 * kernel reads. */
static bool inputs_fit(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       enum variant variant, const struct conv *c)
{
    const struct ir_tensor *w = input_of(graph, node, 1), *bias = input_of(graph, node, 2);
    bool weights = variant == DIRECT ? (dtype != DTYPE_NONE && w->dtype == DTYPE_F32) ||
                                           (int32_t)w->dtype == c->x.dtype
                                     : ir_tensor_is_constant(w) && dtype_is_float(w->dtype);
    return weights && (!bias || (ir_tensor_is_constant(bias) && dtype_is_float(bias->dtype)) ||
                       (bias->dtype == DTYPE_F32 && c->x.dtype == (int32_t)DTYPE_F32));
}

static bool is_worth_it(enum variant variant, enum ir_layout layout, const struct conv *c)
{
    switch (variant) {
    case DIRECT:
        return !library_does(c) || c->work <= DIRECT_WORK_MAX;
    case WIDE:
        return layout == IR_LAYOUT_CHANNELS_LAST && is_usual(c) && is_range(&c->epilogue);
    case NARROW:
    case STRIP:
        return layout == IR_LAYOUT_CHANNELS_LAST && is_usual(c);
    default:
        return layout == IR_LAYOUT_CHANNELS_LAST && !is_usual(c);
    }
}

static uint64_t weight_bytes(const struct conv *c)
{
    uint64_t bytes = (uint64_t)c->channels * dtype_size((enum dtype)c->x.dtype);
    for (int32_t i = 0; i < c->window.spatial; i++)
        bytes *= (uint64_t)c->window.kernel[i];
    return bytes;
}

static void set_ports(const struct ir_graph *graph, const struct ir_node *node,
                      enum variant variant, enum ir_layout layout, const struct conv *c,
                      struct tactic *tactic)
{
    const struct ir_tensor *bias = input_of(graph, node, 2);
    for (uint32_t i = 1; i < tactic->n_in; i++) {
        bool like_y = i >= ir_node_own_inputs(node) && node->inputs[i] != IR_NONE &&
                      shape_equal(&ir_tensor(graph, node->inputs[i])->shape,
                                  &ir_tensor(graph, node->outputs[0])->shape);
        tactic->in[i].format.layout = like_y ? layout : IR_LAYOUT_PLAIN;
    }
    if (variant != DIRECT)
        tactic_port_pack(&tactic->in[1], weight_bytes(c));
    if (bias && ir_tensor_is_constant(bias))
        tactic_port_pack(&tactic->in[2], (uint64_t)c->outputs * sizeof(float));
}

/* Makes the tactic; false: the variant does not take the node. */
static bool make_tactic(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        enum variant variant, enum ir_layout layout, const struct conv *c,
                        struct tactic *out)
{
    char detail[TACTIC_NAME_MAX];
    if ((variant != DIRECT && !is_depthwise(c)) || !inputs_fit(graph, node, dtype, variant, c))
        return false;
    snprintf(detail, sizeof(detail), "%s %s %s", names[variant], ir_layout_name(layout),
             dtype_name((enum dtype)c->x.dtype));
    cuda_tactic(out, &cuda_family_own_conv, variant, graph, node, dtype, layout, detail);
    set_ports(graph, node, variant, layout, c, out);
    return true;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    static const struct way {
        enum variant variant;
        enum ir_layout layout;
    } ways[] = {
        {STRIP, IR_LAYOUT_CHANNELS_LAST},  {WIDE, IR_LAYOUT_CHANNELS_LAST},
        {NARROW, IR_LAYOUT_CHANNELS_LAST}, {ANY, IR_LAYOUT_CHANNELS_LAST},
        {DIRECT, IR_LAYOUT_CHANNELS_LAST}, {DIRECT, IR_LAYOUT_PLAIN},
    };
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++)
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            struct conv c;
            struct tactic tactic;
            if (!read_conv(graph, node, dtypes[d], ways[i].layout, &c))
                continue;
            /* The first candidate is taken without timing: WIDE only for large images. */
            struct way way = ways[i];
            if ((way.variant == WIDE || way.variant == NARROW) && !is_large(device, &c))
                way.variant = way.variant == WIDE ? NARROW : WIDE;
            struct kernel_call call = own_call_dry(device, (int32_t)way.variant);
            if (!is_worth_it(way.variant, way.layout, &c) ||
                !make_tactic(graph, node, dtypes[d], way.variant, way.layout, &c, &tactic) ||
                call_kernel(&call, way.variant, &c, NULL, NULL) != cudaSuccess)
                continue;
            TRY(visit(user, &tactic, err));
        }
    return STATUS_OK;
}

/* cuDNN has few kernels for depthwise convolutions, none of them quick with an activation. */
static bool leads(const struct cuda_device *device UNUSED, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    const struct ir_tensor *x = input_of(graph, node, 0), *w = input_of(graph, node, 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    return node->op == IR_OP_CONV && x && w && ir_tensor_is_constant(w) &&
           (x->shape.rank == 3 || x->shape.rank == 4) &&
           ir_attr_int(node, IR_ATTR_GROUP) == x->shape.dim[1] &&
           y->shape.dim[1] == x->shape.dim[1] && x->shape.dim[1] > 1;
}

/* --- packing --- */

/* Packs [C, 1, k..] as [k.., C]. */
static bool pack_depthwise(const struct ir_tensor *w, enum dtype dtype, char *to)
{
    uint64_t channels = (uint64_t)w->shape.dim[0], size = dtype_size(dtype);
    size_t n;
    if (!shape_elements(&w->shape, &n) || n == 0)
        return false;
    char *same = malloc(n * size);
    bool ok = same && cuda_constant_cast(w, dtype, same, n);
    uint64_t window = n / channels;
    for (uint64_t c = 0; ok && c < channels; c++)
        for (uint64_t k = 0; k < window; k++)
            memcpy(to + (k * channels + c) * size, same + (c * window + k) * size, size);
    free(same);
    return ok;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *t = input_of(graph, node, input);
    uint64_t bytes = tactic->in[input].packed_bytes;
    size_t n;
    bool ok = t && shape_elements(&t->shape, &n) && n > 0;
    enum dtype dtype = tactic->in[input].format.dtype;
    if (ok && input == 1 && bytes == n * dtype_size(dtype))
        ok = pack_depthwise(t, dtype, to);
    else if (ok && input == 2 && bytes == n * sizeof(float))
        ok = cuda_constant_f32(t, to, n);
    else
        ok = false;
    return ok ? STATUS_OK : cuda_refuse(node, tactic, err);
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct conv_op *op = CONTAINER_OF(base, struct conv_op, base);
    struct kernel_call call = own_call(stream, (int32_t)op->variant);
    struct conv *c = &op->conv;
    c->x.data = inputs[0];
    c->y.data = outputs[0];
    cuda_epilogue_bind(&c->epilogue, op->node, inputs);
    cudaError_t code = call_kernel(&call, op->variant, c, inputs[1], c->biased ? inputs[2] : NULL);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "convolution kernel");
}

static bool ports_fit(const struct ir_graph *graph, const struct ir_node *node,
                      const struct tactic *tactic, const struct tactic *want)
{
    bool fit = tactic->n_in == want->n_in && tactic->n_out == want->n_out &&
               tactic->out[0].format.layout == want->out[0].format.layout;
    for (uint32_t i = 0; fit && i < tactic->n_in; i++) {
        /* Our kernels take operands of the epilogue as they lie. */
        bool free_layout = i >= ir_node_own_inputs(node);
        fit = tactic->in[i].packed_bytes == want->in[i].packed_bytes &&
              (free_layout || tactic->in[i].format.layout == want->in[i].format.layout ||
               input_of(graph, node, i) == NULL);
    }
    return fit;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct conv_op made = {
        .base.launch = launch, .node = node, .variant = (enum variant)cuda_tactic_variant(tactic)};
    enum ir_layout layout = tactic->n_in > 1 ? tactic->in[0].format.layout : IR_LAYOUT_OPAQUE;
    struct kernel_call call = own_call_dry(stream->device, (int32_t)made.variant);
    struct tactic want;
    if ((made.variant != DIRECT && (uint32_t)made.variant - WIDE > STRIP - WIDE) ||
        (layout != IR_LAYOUT_CHANNELS_LAST && layout != IR_LAYOUT_PLAIN) ||
        !read_conv(graph, node, DTYPE_NONE, layout, &made.conv) ||
        !make_tactic(graph, node, DTYPE_NONE, made.variant, layout, &made.conv, &want) ||
        !ports_fit(graph, node, tactic, &want) ||
        call_kernel(&call, made.variant, &made.conv, NULL, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_conv = {
    .id = CUDA_FAMILY_OWN_CONV,
    .leads = leads,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
