/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products whose data is stored in INT8 or UINT8 by a scale, by our own kernels:
 * what no library takes (few channels, groups, depthwise filters, UINT8, zero points beside
 * padding), and what one takes as well. x stands for sx (p - zx) and the filter of channel c for
 * sw[c] q, so that
 *
 *     y[c] = alpha sx sw[c] (sum(p q) - zx sum(q)) + bias[c]
 *
 * where p is zx outside of the image. The depthwise kernel reads UINT8 as p - 128.
 *
 * x may be plain where it has few channels, as images that clients send as bytes: no reordering
 * comes before the first layer then. Behind the packed filters lie scales and bias, as fp32.
 *
 * Hopper has kernels of its own (kernels/cuda/tile.cuh) for one group, where what follows the sums
 * is at most a residual, an activation and limits. y and the residual have 8 bits, or both 16.
 * Scales and bias are in steps of y, if that has integers and there is no activation. These kernels
 * alone take FP8, for which there are no zero points. Which of them is offered first is in
 * first_of.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/cuda/scaled.h"

enum { PLAIN_CHANNELS = 4 }; /* at most so many of a plain x */

/* Stored in plans, plus the kernel's own variant. */
enum kind { TILES = 0, DEPTHWISE = 8, HOPPER = 16 };

static const char *const tile_names[] = {"", "128x128", "128x64", "32x32"};
static const char *const depthwise_names[] = {"", "depthwise 16 channels", "depthwise 8 channels",
                                              "depthwise 4 channels", "depthwise any window"};
/* clang-format off: by the rows of the kernel's table */
const char *const own_tile_names[] = {
    "",
    "128x256",
    "128x128",
    "128x64",
    "64x256 k1",
    "64x256 k2",
    "64x256 k4",
    "64x128 k2",
    "64x128 k8",
    "64x64 k4",
    "64x64 k9",
    "64x256 h1",
    "64x64 h9",
    "patch 64",
    "patch 128",
    "64x32 by 2",
    "64x32 by 4",
    "64x32 by 8",
    "64x64 by 2",
    "64x64 by 4",
    "64x64 by 8",
    "64x64 h by 2",
    "128x256 wide",
    "128x128 wide",
    "128x64 wide",
    "64x128 k8 wide",
    "64x64 k8 wide",
    "64x128 h1 three",
    "64x128 k2 three",
    "64x128 k4 three",
    "64x128 k6 three",
    "64x64 h1 four",
    "64x64 k4 four",
    "64x64 k9 four",
};
/* clang-format on */
_Static_assert(ARRAY_LEN(own_tile_names) == KERNEL_TILE_VARIANTS + 1, "each row of the table");

struct scaled {
    struct kernel_window window;
    int32_t groups;
    uint32_t axis;                   /* of y's channels */
    int64_t filters, of_group, taps; /* of_group: channels that a filter reads */
    float alpha;
    struct stored from, to; /* how x and y are stored */
    enum kind kind;
    int32_t variant;      /* HOPPER: the kernel's */
    bool biased, columns; /* columns: the weights are [K, N] */
    struct kernel_tile tile;
    uint32_t residual;   /* HOPPER: step of the epilogue whose operand it is, or IR_NONE */
    float residual_zero; /* as the kernel counts */
    struct kernel_view x, y;
    struct kernel_runs runs;
    struct kernel_epilogue epilogue;
    uint64_t scale_at, bias_at, packed; /* in bytes */
};

struct scaled_op {
    struct backend_op base;
    const struct ir_node *node;
    int32_t variant;
    struct scaled scaled;
};

/* --- reading a node --- */

static bool read_matmul(const struct ir_graph *graph, const struct ir_node *node, struct scaled *s)
{
    const struct shape *b = &cuda_input(graph, node, 1)->shape;
    int64_t depth = s->x.dim[s->x.rank - 1], rows = 1;
    s->columns = ir_attr_int(node, IR_ATTR_TRANS_B) == 0;
    if (b->rank != 2 || s->x.rank < 2 || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        b->dim[s->columns ? 0 : 1] != depth || ir_attr_float(node, IR_ATTR_ALPHA) <= 0)
        return false;
    for (int32_t d = 0; d + 1 < s->x.rank; d++)
        rows *= s->x.dim[d];
    s->alpha = ir_attr_float(node, IR_ATTR_ALPHA);
    s->groups = 1;
    s->axis = (uint32_t)s->y.rank - 1;
    s->window = (struct kernel_window){.spatial = 1, .kernel = {1}, .stride = {1}, .dilation = {1}};
    s->x.rank = 3; /* images of one position */
    s->x.dim[0] = rows;
    s->x.dim[1] = s->x.stride[0] = s->x.stride[2] = depth;
    s->x.dim[2] = s->x.stride[1] = 1;
    s->filters = b->dim[s->columns ? 1 : 0];
    s->of_group = depth;
    s->taps = 1;
    return true;
}

static bool read_conv(const struct ir_graph *graph, const struct ir_node *node, struct scaled *s)
{
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    int64_t groups = ir_attr_int(node, IR_ATTR_GROUP);
    bool even;
    if (s->x.rank < 3 || s->x.rank > 5 || w->rank != (uint32_t)s->x.rank ||
        !own_conv_window_read(node, w, &s->window, &even) || groups < 1 || groups > s->x.dim[1] ||
        s->x.dim[1] % groups || w->dim[1] != s->x.dim[1] / groups)
        return false;
    s->alpha = 1;
    s->groups = (int32_t)groups;
    s->axis = 1;
    s->filters = w->dim[0];
    s->of_group = w->dim[1];
    s->taps = 1;
    for (int32_t d = 0; d < s->window.spatial; d++)
        s->taps *= w->dim[2 + d];
    if (s->window.spatial <= 2 && groups == s->x.dim[1] && s->filters == groups && !s->variant)
        s->kind = DEPTHWISE;
    return true;
}

static void read_places(struct scaled *s)
{
    const uint64_t align = BACKEND_ALIGN - 1;
    int64_t step = kernel_tile_step(s->variant);
    int64_t each =
        s->kind == HOPPER ? kernel_tile_depth(&s->tile.image, s->tile.depth, step) : s->runs.packed;
    int64_t filters = s->kind == HOPPER ? kernel_tile_rows(s->filters) : s->filters;
    if (s->kind == DEPTHWISE) {
        int32_t last = s->window.spatial - 1;
        each =
            s->taps / s->window.kernel[last] * kernel_depthwise_words(s->window.kernel[last]) * 4;
    }
    s->scale_at = ((uint64_t)(filters * each) + align) & ~align;
    s->bias_at = s->scale_at + (((uint64_t)filters * sizeof(float) + align) & ~align);
    s->packed = s->bias_at + (((uint64_t)filters * sizeof(float) + align) & ~align);
}

/* --- Hopper's kernels --- */

/* The weights' type. */
static enum dtype bytes_of(const struct scaled *s)
{
    return s->from.dtype == DTYPE_F8 ? DTYPE_F8 : DTYPE_I8;
}

/* y, and what is added to sums, are 16 bits wide, or else numbers of x's kind. */
static bool is_wide(const struct scaled *s)
{
    return s->to.dtype == DTYPE_NONE && (s->y.dtype == DTYPE_F16 || s->y.dtype == DTYPE_BF16);
}

static bool is_like_x(const struct scaled *s, int32_t dtype)
{
    return s->from.dtype == DTYPE_F8 ? dtype == DTYPE_F8 : scaled_is_byte(dtype);
}

/* Whether results are integers; and whether the kernel computes in their steps. */
static bool is_whole(const struct scaled *s)
{
    return s->kind == HOPPER && s->from.dtype != DTYPE_F8 && !is_wide(s);
}

static bool is_in_steps(const struct scaled *s)
{
    return is_whole(s) && s->tile.func == IR_UNARY_IDENTITY;
}

static bool read_residual(const struct kernel_view *z, uint32_t step, struct scaled *s)
{
    bool wide = is_wide(s) && z->dtype == s->y.dtype && z->step == 0;
    if (s->residual != IR_NONE ||
        !(wide || (s->to.step > 0 && is_like_x(s, z->dtype) && z->step > 0)))
        return false;
    for (int32_t d = 0; d < s->y.rank; d++)
        if (s->y.dim[d] != 1 && z->stride[d] != s->y.stride[d])
            return false;
    s->residual = step;
    s->tile.residual_dtype = z->dtype;
    s->tile.residual_step = wide ? 1 : z->step;
    s->residual_zero = (z->zero - (z->dtype == DTYPE_U8 ? 128.0F : 0.0F)) * s->tile.residual_step;
    return true;
}

/* Whether it would be felt in y how far the kernel's activation is from the function: a tenth of a
 * step and more. */
static bool is_felt(const struct scaled *s)
{
    const float off = s->tile.func == IR_UNARY_GELU_TANH ? 1e-3F
                      : s->tile.func == IR_UNARY_GELU    ? 5e-5F
                                                         : 0;
    return off * 10 > s->to.step;
}

/* A sum with a residual, an activation, then limits: nothing else. */
static bool read_steps(struct scaled *s)
{
    s->residual = IR_NONE;
    s->tile.low = -128;
    s->tile.high = 127;
    s->tile.to = 1 / s->to.step;
    s->tile.zero = scaled_in_steps(&s->to, 0);
    for (int32_t i = 0; i < s->epilogue.n; i++) {
        const struct kernel_step *step = &s->epilogue.step[i];
        bool last = i + 1 == s->epilogue.n, bent = s->tile.func != IR_UNARY_IDENTITY;
        if (step->binary) {
            if (step->func != IR_BINARY_ADD || bent ||
                !read_residual(&step->operand, (uint32_t)i, s))
                return false;
        } else if (!last || !scaled_limits(&s->to, (uint32_t)step->func, step->alpha, step->beta,
                                           &s->tile.low, &s->tile.high)) {
            if (bent)
                return false;
            s->tile.func = step->func;
            s->tile.alpha = step->alpha;
        }
    }
    if (is_in_steps(s)) {
        s->tile.residual_step /= s->to.step;
        s->residual_zero /= s->to.step;
    }
    return isfinite(s->tile.to) && !is_felt(s);
}

/* Of real numbers: an activation, and a sum with a residual before or behind it; then limits. */
static bool read_steps_real(struct scaled *s)
{
    s->residual = IR_NONE;
    s->tile.low = -FLT_MAX;
    s->tile.high = FLT_MAX;
    s->tile.func = IR_UNARY_IDENTITY;
    s->tile.to = is_wide(s) ? 1 : 1 / s->to.step;
    for (int32_t i = 0; i < s->epilogue.n; i++) {
        const struct kernel_step *step = &s->epilogue.step[i];
        bool clip = !step->binary && step->func == IR_UNARY_CLIP, bent = s->tile.func != 0;
        if (step->binary) {
            if (step->func != IR_BINARY_ADD || !read_residual(&step->operand, (uint32_t)i, s))
                return false;
            s->tile.late = bent;
        } else if (i + 1 == s->epilogue.n && (clip || step->func == IR_UNARY_RELU)) {
            s->tile.low = clip ? step->alpha : 0;
            s->tile.high = clip ? step->beta : FLT_MAX;
        } else if (bent || clip || s->tile.late) {
            return false;
        } else {
            s->tile.func = step->func;
            s->tile.alpha = step->alpha;
        }
    }
    return isfinite(s->tile.to);
}

/* The rows of x are pixels: as they lie, or as a window passes over them. */
static bool read_rows(const struct ir_node *node, struct scaled *s)
{
    const struct kernel_window *w = &s->window;
    bool point = true, padded = false;
    int64_t rows = 1;
    for (int32_t d = 0; d < s->y.rank; d++)
        rows *= d == (int32_t)s->axis ? 1 : s->y.dim[d];
    s->tile.rows = rows;
    s->tile.cols = s->filters;
    s->tile.depth = s->of_group * s->taps;
    if (node->op != IR_OP_CONV)
        return true;
    for (int32_t d = 0; d < w->spatial; d++) {
        point =
            point && w->kernel[d] == 1 && w->stride[d] == 1 && s->x.dim[2 + d] == s->y.dim[2 + d];
        padded = padded ||
                 (s->y.dim[2 + d] - 1) * w->stride[d] +
                         (w->kernel[d] - 1) * (int64_t)w->dilation[d] - w->pad[d] >=
                     s->x.dim[2 + d] ||
                 w->pad[d] > 0;
    }
    if (point && !padded)
        return true;
    return !(padded && s->from.zero != 0) &&
           own_window_images(w, s->x.dim, s->y.dim, &s->tile.image);
}

static bool read_hopper(const struct ir_node *node, struct scaled *s)
{
    s->kind = HOPPER;
    s->tile.x_dtype = s->x.dtype;
    s->tile.y_dtype = s->y.dtype;
    return s->groups == 1 && (is_wide(s) || (s->to.step > 0 && is_like_x(s, s->y.dtype))) &&
           (is_whole(s) ? read_steps(s) : read_steps_real(s)) && read_rows(node, s);
}

/* Operands of y's shape lie like y, whether their layouts have been chosen yet or not. */
static bool is_like_y(const struct ir_graph *graph, const struct ir_node *node, uint32_t input)
{
    const struct ir_tensor *t = cuda_input(graph, node, input);
    return t && shape_equal(&t->shape, &ir_tensor(graph, node->outputs[0])->shape);
}

static void lay_operands(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         struct scaled *s)
{
    for (int32_t i = 0; i < s->epilogue.n; i++) {
        struct kernel_view *operand = &s->epilogue.step[i].operand;
        if (!s->epilogue.step[i].binary || !is_like_y(graph, node, node->epilogue[i].input))
            continue;
        memcpy(operand->stride, s->y.stride, sizeof(s->y.stride));
        if (s->variant)
            operand->dtype = (int32_t)own_type((enum dtype)operand->dtype, dtype);
    }
}

/* Whether sums of integers stay below 2^31, whatever the numbers are. */
static bool is_countable(const struct scaled *s)
{
    enum { PRODUCT_MAX = UINT8_MAX * -INT8_MIN };
    return s->from.dtype == DTYPE_F8 || s->of_group <= INT32_MAX / PRODUCT_MAX / s->taps;
}

/* `dtype` takes the place of F32; NONE: tensors have their types. `variant`: of a kernel for
 * Hopper, or 0. */
static bool scaled_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        enum ir_layout layout, int32_t variant, struct scaled *out)
{
    struct scaled s = {.axis = 1, .kind = TILES, .variant = variant};
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    bool conv = node->op == IR_OP_CONV;
    if (!x || !w || node->n_outputs != 1 || !ir_tensor_is_constant(w) ||
        !stored_read(graph, node->inputs[0], &s.from) ||
        !(scaled_is_byte((int32_t)s.from.dtype) || (variant && s.from.dtype == DTYPE_F8)) ||
        !stored_read(graph, node->outputs[0], &s.to) || !own_view(x, dtype, layout, &s.x) ||
        !own_view(ir_tensor(graph, node->outputs[0]), dtype,
                  conv ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN, &s.y))
        return false;
    s.x.zero = (float)s.from.zero;
    s.y.step = s.to.step;
    s.y.zero = (float)s.to.zero;
    s.biased = ir_node_own_inputs(node) > 2 && cuda_input(graph, node, 2);
    if (!(conv ? read_conv : read_matmul)(graph, node, &s) || !is_countable(&s) ||
        !cuda_epilogue(graph, node, &s.y, &s.epilogue))
        return false;
    lay_operands(graph, node, dtype, &s);
    if ((variant && !read_hopper(node, &s)) ||
        (s.kind == TILES && !kernel_conv_bytes_runs(&s.window, s.groups, &s.x, &s.runs)) ||
        (s.kind == DEPTHWISE && layout != IR_LAYOUT_CHANNELS_LAST))
        return false;
    if (s.kind == DEPTHWISE && s.window.spatial == 1) {
        own_view_add_height(&s.x);
        own_view_add_height(&s.y);
        own_window_add_height(&s.window);
        for (int32_t i = 0; i < s.epilogue.n; i++)
            if (s.epilogue.step[i].binary)
                own_view_add_height(&s.epilogue.step[i].operand);
    }
    read_places(&s);
    *out = s;
    return true;
}

static cudaError_t scaled_call(const struct kernel_call *call, const struct scaled *s,
                               const void *packed)
{
    const float *scale = packed ? (const void *)((const char *)packed + s->scale_at) : NULL;
    const float *bias = packed ? (const void *)((const char *)packed + s->bias_at) : NULL;
    if (s->kind == HOPPER) {
        struct kernel_tile t = s->tile;
        t.x = s->x.data;
        t.y = s->y.data;
        t.weights = packed;
        t.scale = scale;
        t.bias = bias;
        t.residual = s->residual == IR_NONE ? NULL : s->epilogue.step[s->residual].operand.data;
        return kernel_tile(call, &t);
    }
    return s->kind == DEPTHWISE
               ? kernel_depthwise_bytes(call, &s->window, &s->x, packed, scale, bias, &s->y,
                                        &s->epilogue)
               : kernel_conv_bytes(call, &s->window, s->groups, &s->x, packed, scale, bias, &s->y,
                                   (int32_t)s->axis, &s->epilogue);
}

/* --- candidates --- */

struct ask {
    struct cuda_device *device;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

static enum status visit_one(const struct ask *ask, const struct ir_graph *graph, enum dtype dtype,
                             enum ir_layout layout, const struct scaled *s, int32_t variant,
                             struct error *err)
{
    const struct ir_tensor *y = ir_tensor(graph, ask->node->outputs[0]);
    enum ir_layout to = ask->node->op == IR_OP_CONV ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    struct tactic tactic;
    char detail[TACTIC_NAME_MAX];
    snprintf(detail, sizeof(detail), "%s %s%s to %s",
             s->kind == HOPPER      ? own_tile_names[variant]
             : s->kind == DEPTHWISE ? depthwise_names[variant]
                                    : tile_names[variant],
             dtype_name(s->from.dtype), layout == to ? "" : " nchw",
             dtype_name(own_type(y->dtype, dtype)));
    own_tactic(&tactic, &cuda_family_own_scaled, (uint32_t)variant + s->kind, graph, ask->node,
               dtype, layout, to, detail);
    for (uint32_t i = ir_node_own_inputs(ask->node); i < tactic.n_in; i++)
        if (!is_like_y(graph, ask->node, i))
            tactic.in[i].format.layout = IR_LAYOUT_PLAIN;
    scaled_ports(graph, ask->node, s->biased, bytes_of(s), s->packed, &tactic);
    return ask->visit(ask->user, &tactic, err);
}

/* Turns to a variant for Hopper; they differ by how they are packed alone. False: it does not take
 * this, or its tiles are wider than they need be. */
static bool turn_to(const struct cuda_device *device, int32_t variant, struct scaled *s)
{
    struct kernel_call call = own_call_dry(device, variant);
    s->variant = variant;
    read_places(s);
    return !(kernel_tile_line(variant) == 128 && s->filters <= 64) &&
           scaled_call(&call, s, NULL) == cudaSuccess;
}

static int64_t tiles_of(const struct scaled *s, int64_t rows, int64_t columns)
{
    return (s->tile.rows + rows - 1) / rows * ((s->tile.cols + columns - 1) / columns);
}

static int64_t steps_of(const struct scaled *s)
{
    enum { STEP = 128 };
    return (kernel_tile_depth(&s->tile.image, s->tile.depth, STEP) + STEP - 1) / STEP;
}

/* Of the variants that share a tile's depth: tiles of 32 columns, so many blocks to each that no
 * multiprocessor has two; or, where such tiles are too many for that, of 64 columns, where it may
 * have two. A block has two steps of depth at least, unless a tile has but two blocks. */
static int32_t split_of(int64_t multiprocessors, const struct scaled *s)
{
    bool narrow = 2 * tiles_of(s, 64, 32) <= multiprocessors;
    int64_t blocks = 8, tiles = tiles_of(s, 64, narrow ? 32 : 64);
    int64_t most = narrow ? multiprocessors : 2 * multiprocessors;
    while (blocks > 2 && (tiles * blocks > most || steps_of(s) < 2 * blocks))
        blocks /= 2;
    return KERNEL_TILE_SPLIT + (narrow ? 0 : 3) + (blocks == 8 ? 2 : blocks == 4 ? 1 : 0);
}

/* Variants that do not share depths: those whose weights stay before others, and of both the widest
 * tiles first. */
static const struct {
    int32_t variant, rows, columns;
} whole_tiles[] = {
    {5, 64, 256},  /* k2 */
    {6, 64, 256},  /* k4 */
    {8, 64, 128},  /* k8 */
    {25, 64, 128}, /* k8, wide */
    {10, 64, 64},  /* k9 */
    {26, 64, 64},  /* k8, wide */
    {1, 128, 256}, {22, 128, 256}, {2, 128, 128}, {23, 128, 128}, {3, 128, 64}, {24, 128, 64},
};

/* The variant for Hopper to take without timing, as timing on an H200 chose for ResNet-50: a patch;
 * shared depths, if there are four steps of them and fewer tiles of 64x64 than multiprocessors; or
 * the widest tiles of which each multiprocessor has one. 0: no variant. */
static int32_t first_of(const struct cuda_device *device, struct scaled *s)
{
    const int64_t multiprocessors = device->properties.multiProcessorCount;
    for (int32_t v = KERNEL_TILE_PATCH; v < KERNEL_TILE_SPLIT; v++)
        if (turn_to(device, v, s))
            return v;
    int32_t split = split_of(multiprocessors, s);
    if (tiles_of(s, 64, 64) < multiprocessors && steps_of(s) >= 4 && turn_to(device, split, s))
        return split;
    for (size_t i = 0; i < ARRAY_LEN(whole_tiles); i++)
        if ((whole_tiles[i].columns == 64 ||
             tiles_of(s, whole_tiles[i].rows, whole_tiles[i].columns) >= multiprocessors) &&
            turn_to(device, whole_tiles[i].variant, s))
            return whole_tiles[i].variant;
    return 0;
}

static enum status ask_variant(const struct ask *ask, const struct ir_graph *graph,
                               enum dtype dtype, enum ir_layout layout, struct scaled *s,
                               int32_t variant, struct error *err)
{
    return turn_to(ask->device, variant, s) ? visit_one(ask, graph, dtype, layout, s, variant, err)
                                            : STATUS_OK;
}

/* Variants from..end - 1, but for the one that was asked first. */
static enum status ask_variants(const struct ask *ask, const struct ir_graph *graph,
                                enum dtype dtype, enum ir_layout layout, struct scaled *s,
                                int32_t from, int32_t end, int32_t first, struct error *err)
{
    for (int32_t v = from; v < end; v++)
        if (v != first)
            TRY(ask_variant(ask, graph, dtype, layout, s, v, err));
    return STATUS_OK;
}

/* Those for Hopper: the one to take without timing, then the others, of which those that share a
 * tile's depth come last. */
static enum status ask_hopper(const struct ask *ask, const struct ir_graph *graph, enum dtype dtype,
                              enum ir_layout layout, struct error *err)
{
    struct scaled s;
    if (!scaled_read(graph, ask->node, dtype, layout, 1, &s) ||
        !scaled_constants_fit(graph, ask->node, scaled_inputs(s.biased), s.columns ? 1 : 0,
                              s.filters, bytes_of(&s)))
        return STATUS_OK;
    int32_t first = first_of(ask->device, &s);
    if (first)
        TRY(ask_variant(ask, graph, dtype, layout, &s, first, err));
    TRY(ask_variants(ask, graph, dtype, layout, &s, 1, KERNEL_TILE_SPLIT, first, err));
    TRY(ask_variants(ask, graph, dtype, layout, &s, KERNEL_TILE_WIDE, KERNEL_TILE_VARIANTS + 1,
                     first, err));
    return ask_variants(ask, graph, dtype, layout, &s, KERNEL_TILE_SPLIT, KERNEL_TILE_WIDE, first,
                        err);
}

static enum status ask_layout(const struct ask *ask, const struct ir_graph *graph, enum dtype dtype,
                              enum ir_layout layout, struct error *err)
{
    struct scaled s;
    if (!scaled_read(graph, ask->node, dtype, layout, 0, &s) ||
        !scaled_constants_fit(graph, ask->node, scaled_inputs(s.biased), s.columns ? 1 : 0,
                              s.filters, DTYPE_I8))
        return STATUS_OK;
    bool depthwise = s.kind == DEPTHWISE;
    int32_t most = depthwise ? KERNEL_DEPTHWISE_BYTES_ANY : KERNEL_CONV_BYTES_VARIANTS;
    bool usual = false; /* a depthwise kernel with unrolled loops takes it */
    for (int32_t v = 1; v <= most; v++) {
        struct kernel_call call = own_call_dry(ask->device, v);
        if ((depthwise && v == KERNEL_DEPTHWISE_BYTES_ANY && usual) ||
            (!depthwise && v == 1 && s.filters / s.groups <= 64) ||
            (!depthwise && v == 2 && s.filters / s.groups <= 32) ||
            scaled_call(&call, &s, NULL) != cudaSuccess)
            continue;
        usual = true;
        TRY(visit_one(ask, graph, dtype, layout, &s, v, err));
    }
    return STATUS_OK;
}

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct ask *ask = user;
    const struct ir_tensor *x = cuda_input(graph, ask->node, 0);
    enum dtype dtypes[3];
    if (!x || cuda_dtypes(graph, ask->node, ask->precision, dtypes) == 0)
        return STATUS_OK;
    if (ask->node->op != IR_OP_CONV) {
        TRY(ask_hopper(ask, graph, dtypes[0], IR_LAYOUT_PLAIN, err));
        return ask_layout(ask, graph, dtypes[0], IR_LAYOUT_PLAIN, err);
    }
    if (x->shape.rank >= 3 && x->shape.dim[1] <= PLAIN_CHANNELS)
        TRY(ask_layout(ask, graph, dtypes[0], IR_LAYOUT_PLAIN, err));
    TRY(ask_hopper(ask, graph, dtypes[0], IR_LAYOUT_CHANNELS_LAST, err));
    return ask_layout(ask, graph, dtypes[0], IR_LAYOUT_CHANNELS_LAST, err);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {device, node, precision, visit, user};
    return node->n_outputs == 1 ? stored_each(graph, node, ask_stored, &ask, err) : STATUS_OK;
}

struct lead {
    const struct cuda_device *device;
    const struct ir_node *node;
    bool leads;
};

static enum status look_at(void *user, const struct ir_graph *graph, struct error *err UNUSED)
{
    struct lead *l = user;
    enum ir_layout layout = l->node->op == IR_OP_CONV ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    struct scaled s;
    if (!l->leads && scaled_read(graph, l->node, DTYPE_F16, layout, 1, &s) &&
        own_is_deep(s.tile.rows, s.tile.cols, s.tile.depth)) {
        int32_t first = first_of(l->device, &s);
        l->leads = first >= KERNEL_TILE_PATCH && first < KERNEL_TILE_WIDE;
    }
    return STATUS_OK;
}

/* Few rows and much depth, on Hopper: libraries walk all of it with few blocks. */
static bool leads(const struct cuda_device *device, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    struct lead l = {device, node, false};
    return stored_each(graph, node, look_at, &l, NULL) == STATUS_OK && l.leads;
}

/* --- back from a tactic --- */

static bool reread(const struct ir_graph *graph, const struct ir_node *node,
                   const struct tactic *tactic, struct scaled *s, int32_t *variant)
{
    int32_t number = (int32_t)cuda_tactic_variant(tactic);
    enum ir_layout to = node->op == IR_OP_CONV ? IR_LAYOUT_CHANNELS_LAST : IR_LAYOUT_PLAIN;
    enum ir_layout from = tactic->n_in > 1 ? tactic->in[0].format.layout : IR_LAYOUT_OPAQUE;
    enum dtype y = tactic->out[0].format.dtype;
    if ((from != IR_LAYOUT_PLAIN && from != IR_LAYOUT_CHANNELS_LAST) ||
        (node->op != IR_OP_CONV && from != IR_LAYOUT_PLAIN) || tactic->blob_size ||
        tactic->out[0].format.layout != to ||
        !scaled_read(graph, node, tactic->out[0].format.scale == IR_NO_SCALE ? y : DTYPE_NONE, from,
                     number > HOPPER ? number - HOPPER : 0, s) ||
        tactic->in[1].packed_bytes != s->packed)
        return false;
    *variant = number - (int32_t)s->kind;
    return *variant >= 1;
}

/* --- packing --- */

/* The place of a filter's number in the packed weights. */
static int64_t place_of(const struct scaled *s, int64_t filter, int64_t channel, int64_t tap)
{
    const struct kernel_runs *r = &s->runs;
    int64_t columns = s->window.kernel[s->window.spatial - 1];
    int64_t row = tap / columns, column = tap % columns, run, within;
    if (s->kind == HOPPER) {
        int64_t step = kernel_tile_step(s->variant);
        int64_t each =
            s->tile.image.kernel[0] ? kernel_tile_tap_depth(s->of_group, step) : s->of_group;
        return kernel_tile_row(s->variant, filter) *
                   kernel_tile_depth(&s->tile.image, s->tile.depth, step) +
               tap * each + channel;
    }
    if (s->kind == DEPTHWISE) /* [rows, words, C, 4] */
        return ((row * kernel_depthwise_words(columns) + column / 4) * s->filters + filter) * 4 +
               column % 4;
    if (r->plain) {
        run = r->merged ? channel * (s->taps / columns) + row : channel * s->taps + tap;
        within = r->merged ? column : 0;
    } else {
        run = r->merged ? row : tap;
        within = (r->merged ? column * s->of_group : 0) + channel;
    }
    return filter * r->packed + run * r->padded + within;
}

static void pack_filter(const struct scaled *s, const struct scaled_constants *from, int64_t filter,
                        char *to)
{
    float step = scaled_step(from->scale, filter);
    double one = (double)s->alpha * (double)s->from.step * (double)step;
    int64_t sum = 0,
            zero = s->from.zero - (s->kind == DEPTHWISE && s->from.dtype == DTYPE_U8 ? 128 : 0);
    for (int64_t c = 0; c < s->of_group; c++)
        for (int64_t t = 0; t < s->taps; t++) {
            int64_t at =
                s->columns ? c * s->filters + filter : (filter * s->of_group + c) * s->taps + t;
            int8_t q = s->from.dtype == DTYPE_F8 ? (int8_t)f32_to_f8(from->weights[at] / step)
                                                 : scaled_byte(from->weights[at], step);
            ((int8_t *)to)[place_of(s, filter, c, t)] = q;
            sum += q;
        }
    double bias = (double)from->bias[filter] - one * (double)(zero * sum);
    int64_t at = filter;
    if (s->kind == HOPPER)
        at = kernel_tile_number(s->variant, filter);
    if (is_in_steps(s)) {
        one /= (double)s->to.step;
        bias = (double)scaled_in_steps(&s->to, (float)bias);
    }
    bias -= (double)s->residual_zero;
    ((float *)(void *)(to + s->scale_at))[at] = (float)one;
    ((float *)(void *)(to + s->bias_at))[at] = (float)bias;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct scaled s;
    int32_t variant;
    CLEANUP(scaled_constants_cleanup) struct scaled_constants from = {0};
    bool fit = false;
    if (input != 1 || !reread(graph, node, tactic, &s, &variant) ||
        !scaled_constants_fit(graph, node, scaled_inputs(s.biased), s.columns ? 1 : 0, s.filters,
                              bytes_of(&s)))
        return cuda_refuse(node, tactic, err);
    TRY(scaled_constants_read(graph, node, scaled_inputs(s.biased),
                              (uint64_t)(s.filters * s.of_group * s.taps), (uint64_t)s.filters,
                              &from, &fit, err));
    if (!fit)
        return cuda_refuse(node, tactic, err);
    memset(to, 0, s.packed);
    for (int64_t filter = 0; filter < s.filters; filter++)
        pack_filter(&s, &from, filter, to);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct scaled_op *op = CONTAINER_OF(base, struct scaled_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    op->scaled.x.data = inputs[0];
    op->scaled.y.data = outputs[0];
    cuda_epilogue_bind(&op->scaled.epilogue, op->node, inputs);
    cudaError_t code = scaled_call(&call, &op->scaled, inputs[1]);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "convolution of bytes");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct scaled_op made = {.base.launch = launch, .node = node};
    if (!reread(graph, node, tactic, &made.scaled, &made.variant))
        return cuda_refuse(node, tactic, err);
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    for (uint32_t i = ir_node_own_inputs(node); i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes ||
            (is_like_y(graph, node, i) &&
             tactic->in[i].format.layout != tactic->out[0].format.layout))
            return cuda_refuse(node, tactic, err);
    if (scaled_call(&call, &made.scaled, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_scaled = {
    .id = CUDA_FAMILY_OWN_SCALED,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
    .leads = leads,
};
