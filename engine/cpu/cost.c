/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launch takes as long as its arithmetic or its bytes take, whichever is longer, and then what it
 * costs to call the library and to wake the other threads. The machine's part is the width of its
 * vectors; the kernels' part is the table below. Only the ratios between candidates of one network
 * matter: they decide kernel, layout and number of threads.
 */
#include "engine/cpu/cost.h"

#include <string.h>

#include "base/compiler.h"

/* A lane of a vector does two multiply-adds in a cycle, of which there are 4 in a nanosecond. */
static const double flops_per_lane = 16;

/* What kernels do, as far as their speed goes. */
enum kind {
    KIND_PRODUCT, /* sums of products */
    KIND_WINDOW,  /* the same, for convolutions */
    KIND_DECONV,  /* ... and transposed ones */
    KIND_NUMBERS, /* functions of elements, rows, windows */
    KIND_MOVES,   /* no arithmetic */
    KIND_REFORMAT,
};

/*
 * The numbers are medians over the layers of MobileNet v2 and v3, EfficientNet-B0, RegNet-Y,
 * ConvNeXt-T, DenseNet-121, Swin-T, ResNet-50, BERT-base and a U-Net, timed one by one on one
 * thread of an AMD EPYC with AVX-512 by the tuner (oneDNN 2.6).
 *
 * part: of the arithmetic that the vector units could do; bytes: read and written in a
 * nanosecond, of tensors that lie in the caches, and twice as many as of weights, which do not;
 * extra_ns: what each launch takes in addition.
 */
static const struct speed {
    enum kind kind;
    const char *impl; /* the beginning of its name */
    double part, bytes, extra_ns;
} speeds[] = {
    {KIND_WINDOW, "jit_dw", 0.50, 110, 0},
    {KIND_WINDOW, "brdgmm_dw", 0.40, 90, 0},
    {KIND_WINDOW, "jit_1x1", 0.95, 85, 0},
    {KIND_WINDOW, "brgconv_1x1", 0.95, 85, 0},
    {KIND_WINDOW, "brgconv", 0.80, 80, 0},
    {KIND_WINDOW, "jit_fp32_wino", 1.10, 40, 8000},
    {KIND_WINDOW, "jit_wino", 1.20, 40, 8000},
    {KIND_WINDOW, "jit", 0.74, 65, 0},
    {KIND_WINDOW, "brg", 0.95, 90, 0},
    {KIND_WINDOW, "gemm", 0.85, 75, 0},
    {KIND_WINDOW, "x64:gemm", 0.15, 10, 0},
    {KIND_WINDOW, "reference", 0.002, 1, 0},
    {KIND_WINDOW, "", 0.10, 10, 0},
    {KIND_DECONV, "jit", 0.13, 65, 0},
    {KIND_DECONV, "x64:gemm", 0.13, 30, 0},
    {KIND_DECONV, "reference", 0.002, 1, 0},
    {KIND_DECONV, "", 0.10, 10, 0},
    {KIND_PRODUCT, "brg", 0.95, 90, 0},
    {KIND_PRODUCT, "x64:gemm", 0.65, 60, 0},
    {KIND_PRODUCT, "gemm", 0.80, 75, 0},
    {KIND_PRODUCT, "native", 0.40, 40, 0},
    {KIND_PRODUCT, "reference", 0.002, 1, 0},
    {KIND_PRODUCT, "", 0.30, 30, 0},
    {KIND_NUMBERS, "jit", 0.30, 90, 0},
    {KIND_NUMBERS, "native", 0.30, 40, 0},
    {KIND_NUMBERS, "simple_layer", 0.30, 48, 0},
    {KIND_NUMBERS, "reference", 0.02, 5, 0},
    {KIND_NUMBERS, "", 0.10, 10, 0},
    {KIND_MOVES, "jit", 1, 50, 0},
    {KIND_MOVES, "native", 1, 65, 0},
    {KIND_MOVES, "reference", 1, 25, 0},
    {KIND_MOVES, "", 1, 8, 0},
    {KIND_REFORMAT, "jit:blk", 1, 110, 0},
    {KIND_REFORMAT, "jit", 1, 42, 0},
    {KIND_REFORMAT, "native", 1, 45, 0},
    {KIND_REFORMAT, "reference", 1, 4, 0},
    {KIND_REFORMAT, "", 1, 8, 0},
};

/* Products of 8-bit integers: as many times what products of floats are. */
static const double byte_products = 3.4;
static const double half_products = 2; /* of BF16 */
static const double launch_ns = 700;   /* a call of a kernel */
static const double wake_ns = 8000;    /* threads that sleep between launches, and their barrier */
static const double each_more = 0.9;   /* what a further thread adds to the speed of one */
static const double step_flops = 8;    /* of an elementwise function, on average */
static const double norm_flops = 32;   /* of a norm or softmax, for each element */
static const double mixed_layouts = 3; /* as many times as long if input and output differ */

static enum kind kind_of(enum ir_op op)
{
    switch (ir_op_row(op)->group) {
    case IR_GROUP_CONVOLUTION:
        return ir_op_attr(op, IR_ATTR_OUTPUT_PADDING) ? KIND_DECONV : KIND_WINDOW;
    case IR_GROUP_PRODUCT:
        return KIND_PRODUCT;
    case IR_GROUP_SHAPE:
    case IR_GROUP_INDEX:
        return KIND_MOVES;
    case IR_GROUP_LAYOUT:
        return KIND_REFORMAT;
    default:
        return KIND_NUMBERS;
    }
}

static double elements(const struct shape *shape)
{
    double n = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        n *= (double)shape->dim[i];
    return n;
}

static double rounded(double n, uint32_t lanes)
{
    double of = lanes ? lanes : 1;
    double whole = (double)(int64_t)(n / of) * of;
    return whole < n ? whole + of : n;
}

/* A convolution's multiplications and additions. Vectors hold channels: of the output, in each
 * group, unless every group is one channel and the kernel knows. */
static double conv_flops(const struct ir_graph *graph, const struct ir_node *node,
                         const struct tactic *tactic, const char *impl, uint32_t lanes)
{
    bool transposed = kind_of(node->op) == KIND_DECONV;
    const struct shape *w = &ir_tensor(graph, node->inputs[1])->shape;
    const struct shape *at =
        &ir_tensor(graph, transposed ? node->inputs[0] : node->outputs[0])->shape;
    double groups = (double)ir_attr_int(node, IR_ATTR_GROUP), places = elements(at), taps = 1;
    places /= (double)MAX(at->dim[1], 1);
    for (uint32_t i = 2; i < w->rank; i++)
        taps *= (double)w->dim[i];
    double out = transposed ? (double)w->dim[1] : (double)w->dim[0] / groups;
    double in = transposed ? (double)w->dim[0] / groups : (double)w->dim[1];
    bool depthwise = strstr(impl, "_dw") != NULL;
    if (groups == 1 && ir_layout_block(tactic->in[0].format.layout))
        in = rounded(in, lanes);
    double wide = depthwise ? rounded(groups * out, lanes) : groups * rounded(out, lanes);
    return 2 * places * taps * wide * in;
}

static double product_flops(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    double out = elements(&ir_tensor(graph, node->outputs[0])->shape);
    uint32_t last = x->rank - (ir_attr_int(node, IR_ATTR_TRANS_A) ? 2 : 1);
    return 2 * out * (double)x->dim[last];
}

/* Operations of attention and of recurrent layers: each number of the first operand meets a row of
 * the second, which are keys or a matrix; keys may be packed into the first. */
static double paired_flops(const struct ir_graph *graph, const struct ir_node *node)
{
    bool two = node->n_inputs > 1 && node->inputs[1] != IR_NONE;
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *m = two ? &ir_tensor(graph, node->inputs[1])->shape : x;
    return 4 * elements(x) * (m->rank >= 2 ? (double)m->dim[m->rank - 2] : 1);
}

static double flops_of(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic, const char *impl, uint32_t lanes)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    double steps = step_flops * (double)node->n_epilogue * elements(y);
    switch (kind_of(node->op)) {
    case KIND_WINDOW:
    case KIND_DECONV:
        return conv_flops(graph, node, tactic, impl, lanes) + steps;
    case KIND_PRODUCT:
        return (ir_op_row(node->op)->work == IR_WORK_PRODUCT ? product_flops(graph, node)
                                                             : paired_flops(graph, node)) +
               steps;
    case KIND_NUMBERS:
        return (ir_op_row(node->op)->group == IR_GROUP_NORM ? norm_flops : step_flops) *
                   MAX(elements(x), elements(y)) +
               steps;
    case KIND_MOVES:
    case KIND_REFORMAT:
        break;
    }
    return steps;
}

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

/* Bytes of a tensor as the port wants it. */
static double port_bytes(const struct ir_tensor *t, const struct tactic_port *port)
{
    double bytes = (double)t->bytes;
    return is_byte(port->format.dtype) && !is_byte(t->dtype) ? bytes / (double)dtype_size(t->dtype)
                                                             : bytes;
}

/* Bytes of the constants, as the tactic packs them, or of all other tensors. What is moved without
 * being looked at is read as often as it is written. */
static double bytes_of(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic, bool constants)
{
    const struct tactic_port *last = &tactic->in[tactic->n_in ? tactic->n_in - 1 : 0];
    double bytes = 0;
    if (ir_op_has(node->op, IR_TRAIT_MOVES) && kind_of(node->op) == KIND_MOVES)
        return constants ? 0 : 2 * port_bytes(ir_tensor(graph, node->outputs[0]), &tactic->out[0]);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE ||
            ir_tensor_is_constant(ir_tensor(graph, node->inputs[i])) != constants)
            continue;
        const struct tactic_port *port = i < tactic->n_in ? &tactic->in[i] : last;
        bytes += port->packed_bytes ? (double)port->packed_bytes
                                    : port_bytes(ir_tensor(graph, node->inputs[i]), port);
    }
    for (uint32_t i = 0; i < node->n_outputs && !constants; i++)
        bytes += port_bytes(ir_tensor(graph, node->outputs[i]), &tactic->out[i]);
    return bytes;
}

static const struct speed *speed_of(const char *impl, enum kind kind)
{
    size_t i = 0;
    while (speeds[i].kind != kind || strncmp(impl, speeds[i].impl, strlen(speeds[i].impl)) != 0)
        i++; /* the last row of each kind fits every name */
    return &speeds[i];
}

/* What the other threads cost. oneDNN's plain concatenation calls them for each input. */
static double team_ns(const struct ir_node *node, const struct cost_kernel *kernel, enum kind kind)
{
    bool each = kind == KIND_MOVES && strncmp(kernel->impl, "simple", 6) == 0;
    return kernel->threads > 1 ? wake_ns * (each ? (double)node->n_inputs : 1) : 0;
}

uint64_t cost_estimate(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic, const struct cost_kernel *kernel,
                       uint32_t lanes)
{
    enum kind kind = kind_of(node->op);
    const struct speed *speed = speed_of(kernel->impl, kind);
    double flops = flops_of(graph, node, tactic, kernel->impl, lanes);
    bool products = kind == KIND_PRODUCT || kind == KIND_WINDOW;
    enum dtype type = tactic->in[0].format.dtype;
    double faster = !products            ? 1
                    : is_byte(type)      ? byte_products
                    : type == DTYPE_BF16 ? half_products
                                         : 1;
    double arithmetic = flops / (flops_per_lane * MAX(lanes, 1) * speed->part * faster);
    double moving = bytes_of(graph, node, tactic, false) / speed->bytes;
    double threads = MAX(kernel->threads, 1), team = 1 + each_more * (threads - 1);
    if (kind == KIND_NUMBERS && tactic->in[0].format.layout != tactic->out[0].format.layout)
        moving *= mixed_layouts;
    double ns = MAX(arithmetic, moving) / team + launch_ns + speed->extra_ns +
                2 * bytes_of(graph, node, tactic, true) / speed->bytes +
                team_ns(node, kernel, kind);
    return ns < 1e18 ? (uint64_t)ns : UINT64_C(1000000000000000000);
}
