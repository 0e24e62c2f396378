/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First layers of images by our own kernel for Hopper (kernels/cuda/stem.cuh): convolutions of at
 * most four channels at steps of 2, with ReLU, and with the pool behind them (CONV_POOL), whose
 * images may be bytes as they came. In 16 bits, or in 8 bits where y is stored by a scale and x is,
 * too, or has a range; images plain or channels last, the output channels last. Images in FP32 are
 * read as they are, and become 16 or 8 bits on their way: no reformat is in front of them then.
 * Refused: groups, dilations, weights or biases that are computed, other activations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/cuda/scaled.h"

enum { RANK = 4, STEP = 2 };
enum variant { FLOATS = 1, BYTES = 2, ROUNDED = 3 }; /* stored in plans; ROUNDED: FP32 to bytes */

struct stem {
    struct kernel_stem stem;
    struct stored from, to; /* how x is multiplied and y is stored, if that is in 8 bits */
    bool biased, bytes, rounded;
    uint64_t packed, vector;    /* bytes of packed weights, and of a number for each filter */
    uint64_t scale_at, bias_at; /* of bytes: behind the packed weights */
};

struct stem_op {
    struct backend_op base;
    struct stem made;
};

/* --- from a node --- */

/* The window's sides and pads, and the sides of the convolution's output. */
static bool read_window(const struct ir_node *node, const struct shape *x, const struct shape *w,
                        struct kernel_stem *p)
{
    struct kernel_window window;
    bool even;
    if (!own_conv_window_read(node, w, &window, &even))
        return false;
    for (int32_t d = 0; d < 2; d++) {
        int64_t end = ir_attr_at(node, IR_ATTR_PADS, 2 + (uint32_t)d);
        int64_t room = x->dim[d + 2] + window.pad[d] + end - window.kernel[d];
        if (window.stride[d] != STEP || window.dilation[d] != 1 || room < 0)
            return false;
        p->kernel[d] = window.kernel[d];
        p->pad[d] = window.pad[d];
        p->in[d] = x->dim[d + 2];
        p->out[d] = room / STEP + 1;
    }
    return true;
}

static bool read_steps(const struct ir_node *node, bool *relu)
{
    const struct ir_epilogue *step = node->epilogue;
    *relu = node->n_epilogue > 0;
    return node->n_epilogue == 0 || (node->n_epilogue == 1 && step->kind == IR_EPILOGUE_UNARY &&
                                     step->func == IR_UNARY_RELU);
}

/* What is asked of a node. */
struct form {
    enum dtype dtype;           /* in place of FP32 */
    enum ir_layout layout;      /* of x */
    bool wide;                  /* x stays in FP32 */
    const struct stored *round; /* how it becomes bytes; NULL: by its range */
};

/* How x becomes bytes: as its range says; plans have no ranges, but what was said here before. */
static bool read_rounding(const struct ir_graph *graph, const struct ir_tensor *x,
                          const struct form *form, struct stored *out)
{
    if (form->round) {
        *out = *form->round;
        return true;
    }
    const struct ir_scale *range = ir_scale(graph, x->range);
    if (!range || range->n != 1)
        return false;
    *out = (struct stored){stored_type(range), range->step[0], range->zero ? range->zero[0] : 0};
    return true;
}

/* How x and y are stored: both in 8 bits or neither, or x in FP32. What CONV_POOL reads as bytes
 * counts as their numbers. */
static bool read_types(const struct ir_graph *graph, const struct ir_node *node,
                       const struct form *form, struct stem *s)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0);
    enum dtype from = form->wide ? x->dtype : own_type(x->dtype, form->dtype);
    enum dtype to = own_type(ir_tensor(graph, node->outputs[0])->dtype, form->dtype);
    bool raw = node->op == IR_OP_CONV_POOL && x->dtype == DTYPE_U8;
    if ((form->wide && from != DTYPE_F32) || !stored_read(graph, node->inputs[0], &s->from) ||
        !stored_read(graph, node->outputs[0], &s->to))
        return false;
    raw = raw && s->from.dtype == DTYPE_NONE;
    s->bytes = s->to.dtype != DTYPE_NONE;
    s->rounded = s->bytes && form->wide;
    if (s->bytes && raw)
        s->from = (struct stored){DTYPE_U8, 1, 0};
    if (s->rounded && !read_rounding(graph, x, form, &s->from))
        return false;
    s->stem.x_dtype = (int32_t)from;
    s->stem.y_dtype = (int32_t)to;
    s->stem.q_dtype = (int32_t)s->from.dtype;
    s->stem.step = s->from.step;
    s->stem.zero = s->from.zero;
    if (s->bytes)
        return scaled_is_byte(s->stem.q_dtype) && scaled_is_byte(to) &&
               (s->rounded || s->from.dtype == from);
    return s->from.dtype == DTYPE_NONE && (to == DTYPE_F16 || to == DTYPE_BF16) &&
           (from == to || form->wide || raw);
}

/* Where packed numbers lie, and the range of y. */
static void read_places(struct stem *s)
{
    const uint64_t align = BACKEND_ALIGN - 1;
    uint64_t size = s->bytes ? 1 : dtype_size((enum dtype)s->stem.y_dtype);
    int32_t least = s->bytes ? stored_least(s->to.dtype) : 0;
    s->vector = (uint64_t)kernel_stem_filters(s->stem.filters) * sizeof(float);
    s->scale_at = ((uint64_t)kernel_stem_packed(&s->stem) * size + align) & ~align;
    s->bias_at = s->scale_at + ((s->vector + align) & ~align);
    s->packed = s->bytes ? s->bias_at + s->vector : s->scale_at;
    s->stem.low = (float)(s->stem.relu ? MAX(s->to.zero, least) : least);
    s->stem.high = (float)(least + 255);
}

static bool read_stem(const struct ir_graph *graph, const struct ir_node *node,
                      const struct form *form, struct stem *out)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    struct stem s = {.biased = ir_node_own_inputs(node) > 2 && cuda_input(graph, node, 2)};
    s.stem.last = form->layout == IR_LAYOUT_CHANNELS_LAST;
    s.stem.pool = node->op == IR_OP_CONV_POOL;
    if (x->shape.rank != RANK || w->shape.rank != RANK || w->shape.dim[1] != x->shape.dim[1] ||
        x->shape.dim[1] > KERNEL_STEM_CHANNELS || !ir_tensor_is_constant(w) ||
        (s.biased && !ir_tensor_is_constant(cuda_input(graph, node, 2))) ||
        !read_types(graph, node, form, &s) || !read_window(node, &x->shape, &w->shape, &s.stem) ||
        !read_steps(node, &s.stem.relu))
        return false;
    s.stem.images = x->shape.dim[0];
    s.stem.channels = x->shape.dim[1];
    s.stem.filters = w->shape.dim[0];
    *out = s;
    return true;
}

/* Whether the kernel takes it; if so, places are known. */
static bool takes(const struct cuda_device *device, struct stem *s)
{
    struct kernel_call call = own_call_dry(device, 0);
    if (kernel_stem(&call, &s->stem) != cudaSuccess)
        return false;
    read_places(s);
    return true;
}

/* --- tactics --- */

static void fill(const struct ir_graph *graph, const struct ir_node *node, const struct stem *s,
                 const struct form *form, struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    enum variant variant = s->rounded ? ROUNDED : s->bytes ? BYTES : FLOATS;
    snprintf(detail, sizeof(detail), "%s to %s%s", dtype_name((enum dtype)s->stem.x_dtype),
             dtype_name((enum dtype)s->stem.y_dtype), s->stem.last ? "" : " nchw");
    cuda_tactic(tactic, &cuda_family_own_stem, variant, graph, node, form->dtype,
                IR_LAYOUT_CHANNELS_LAST, detail);
    if (s->rounded) {
        memcpy(tactic->blob, &s->from, sizeof(s->from));
        tactic->blob_size = sizeof(s->from);
    }
    if (s->bytes) {
        scaled_ports(graph, node, s->biased, DTYPE_I8, s->packed, tactic);
    } else {
        tactic_port_pack(&tactic->in[1], s->packed);
        if (s->biased)
            tactic_port_pack(&tactic->in[2], s->vector);
    }
    tactic->in[0].format.layout = form->layout;
    tactic->in[0].format.dtype = (enum dtype)s->stem.x_dtype;
}

struct ask {
    struct cuda_device *device;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
    enum dtype dtype;
};

static enum status ask_form(const struct ask *ask, const struct ir_graph *graph, bool bytes,
                            const struct form *form, struct error *err)
{
    struct stem s;
    struct tactic tactic;
    if (!read_stem(graph, ask->node, form, &s) || s.bytes != bytes || !takes(ask->device, &s) ||
        (bytes && !scaled_constants_fit(graph, ask->node, scaled_inputs(s.biased), 0,
                                        s.stem.filters, DTYPE_I8)))
        return STATUS_OK;
    fill(graph, ask->node, &s, form, &tactic);
    return ask->visit(ask->user, &tactic, err);
}

/* Images as models have them come first: plans without timing begin with such a tactic. */
static enum status ask_forms(const struct ask *ask, const struct ir_graph *graph, bool bytes,
                             struct error *err)
{
    const struct form forms[] = {
        {ask->dtype, IR_LAYOUT_PLAIN, true, NULL},
        {ask->dtype, IR_LAYOUT_CHANNELS_LAST, true, NULL},
        {ask->dtype, IR_LAYOUT_CHANNELS_LAST, false, NULL},
        {ask->dtype, IR_LAYOUT_PLAIN, false, NULL},
    };
    for (uint32_t i = 0; i < ARRAY_LEN(forms); i++)
        TRY(ask_form(ask, graph, bytes, &forms[i], err));
    return STATUS_OK;
}

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    return ask_forms(user, graph, true, err);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {device, node, visit, user, DTYPE_NONE};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n; i++) {
        ask.dtype = dtypes[i];
        TRY(ask_forms(&ask, graph, false, err));
    }
    ask.dtype = DTYPE_NONE;
    return stored_each(graph, node, ask_stored, &ask, err);
}

/* What a stored tactic's variant and blob say of x. */
static bool reread_form(const struct tactic *tactic, struct stored *round, struct form *form)
{
    uint32_t variant = cuda_tactic_variant(tactic);
    *form =
        (struct form){DTYPE_NONE, IR_LAYOUT_OPAQUE, tactic->in[0].format.dtype == DTYPE_F32, NULL};
    if (tactic->n_in > 1)
        form->layout = tactic->in[0].format.layout;
    if (variant == FLOATS)
        form->dtype = tactic->out[0].format.dtype;
    if (variant == ROUNDED) {
        if (tactic->blob_size != sizeof(*round))
            return false;
        memcpy(round, tactic->blob, sizeof(*round));
        form->round = round;
    }
    return variant >= FLOATS && variant <= ROUNDED &&
           (variant == ROUNDED ? form->wide : !tactic->blob_size);
}

/* What a stored tactic says of the node. */
static bool reread(const struct cuda_device *device, const struct ir_graph *graph,
                   const struct ir_node *node, const struct tactic *tactic, struct stem *s)
{
    struct stored round;
    struct form form;
    return reread_form(tactic, &round, &form) &&
           (form.layout == IR_LAYOUT_PLAIN || form.layout == IR_LAYOUT_CHANNELS_LAST) &&
           read_stem(graph, node, &form, s) &&
           s->bytes == (cuda_tactic_variant(tactic) != FLOATS) && takes(device, s) &&
           tactic->in[0].format.dtype == (enum dtype)s->stem.x_dtype &&
           tactic->out[0].format.layout == IR_LAYOUT_CHANNELS_LAST &&
           tactic->out[0].format.dtype == (enum dtype)s->stem.y_dtype &&
           tactic->in[1].packed_bytes == s->packed &&
           (!s->biased || tactic->in[2].packed_bytes == (s->bytes ? 0 : s->vector));
}

/* --- packing --- */

static void pack_halves(const struct kernel_stem *p, const uint16_t *from, uint16_t *to)
{
    for (int64_t m = 0; m < p->filters; m++)
        for (int64_t c = 0; c < p->channels; c++)
            for (int64_t r = 0; r < p->kernel[0]; r++)
                for (int64_t t = 0; t < p->kernel[1]; t++)
                    to[kernel_stem_place(p, m, c, r, t)] = *from++;
}

/* x stands for sx (p - zx), and a filter's weights for sw q, so that y / sy + zy is
 *
 *     sx sw / sy sum(p q) + (bias - sx sw zx sum(q)) / sy + zy
 */
static void pack_filter(const struct stem *s, const struct scaled_constants *from, int64_t m,
                        char *to)
{
    const struct kernel_stem *p = &s->stem;
    float step = scaled_step(from->scale, m);
    double one = (double)s->from.step * (double)step / (double)s->to.step;
    const float *w = from->weights + m * p->channels * p->kernel[0] * p->kernel[1];
    int64_t sum = 0;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t r = 0; r < p->kernel[0]; r++)
            for (int64_t t = 0; t < p->kernel[1]; t++) {
                int8_t q = scaled_byte(*w++, step);
                ((int8_t *)to)[kernel_stem_place(p, m, c, r, t)] = q;
                sum += q;
            }
    ((float *)(void *)(to + s->scale_at))[m] = (float)one;
    ((float *)(void *)(to + s->bias_at))[m] =
        (float)((double)from->bias[m] / (double)s->to.step - one * (double)(s->from.zero * sum) +
                s->to.zero);
}

static enum status pack_bytes(const struct stem *s, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic, void *to,
                              struct error *err)
{
    const struct kernel_stem *p = &s->stem;
    CLEANUP(scaled_constants_cleanup) struct scaled_constants from = {0};
    uint64_t n = (uint64_t)(p->filters * p->channels * p->kernel[0] * p->kernel[1]);
    bool fit = false;
    if (!scaled_constants_fit(graph, node, scaled_inputs(s->biased), 0, p->filters, DTYPE_I8))
        return cuda_refuse(node, tactic, err);
    TRY(scaled_constants_read(graph, node, scaled_inputs(s->biased), n, (uint64_t)p->filters, &from,
                              &fit, err));
    if (!fit)
        return cuda_refuse(node, tactic, err);
    memset(to, 0, s->packed);
    for (int64_t m = 0; m < p->filters; m++)
        pack_filter(s, &from, m, to);
    return STATUS_OK;
}

static enum status pack(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *t = cuda_input(graph, node, input);
    struct stem s;
    size_t n;
    if (!t || !reread(device, graph, node, tactic, &s) || !shape_elements(&t->shape, &n) ||
        (input != 1 && (input != 2 || !s.biased || s.bytes)))
        return cuda_refuse(node, tactic, err);
    if (s.bytes)
        return pack_bytes(&s, graph, node, tactic, to, err);
    if (input == 2) {
        memset(to, 0, s.vector);
        return n == (uint64_t)s.stem.filters && cuda_constant_f32(t, to, n)
                   ? STATUS_OK
                   : cuda_refuse(node, tactic, err);
    }
    CLEANUP(cleanup_free) uint16_t *same = malloc(n * sizeof(*same));
    if (!same)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_cast(t, (enum dtype)s.stem.y_dtype, same, n))
        return cuda_refuse(node, tactic, err);
    memset(to, 0, s.packed);
    pack_halves(&s.stem, same, to);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct stem_op *op = CONTAINER_OF(base, struct stem_op, base);
    const struct stem *made = &op->made;
    struct kernel_call call = own_call(stream, 0);
    struct kernel_stem p = made->stem;
    const char *packed = inputs[1];
    p.x = inputs[0];
    p.weights = packed;
    p.y = outputs[0];
    p.bias = made->biased ? inputs[2] : NULL;
    if (made->bytes) {
        p.scale = (const void *)(packed + made->scale_at);
        p.bias = (const void *)(packed + made->bias_at);
    }
    cudaError_t code = kernel_stem(&call, &p);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_stem");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct stem_op made = {.base.launch = launch};
    if (!reread(stream->device, graph, node, tactic, &made.made))
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_stem = {
    .id = CUDA_FAMILY_OWN_STEM,
    .scales = true,
    .casts = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
