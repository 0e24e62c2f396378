/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of INT8 through cuDNN, in two dimensions, channels last, without groups. x stands
 * for sx (p - zx) and the filters of channel c for sw[c] q. The graph is
 *
 *     convolution to INT32 -> MUL scale[c] -> ADD bias[c] -> [ADD z] -> [RELU] -> y
 *
 * whose virtual values are fp32 and count in steps of y if y is INT8, else in real numbers; a z
 * that counts otherwise is multiplied before. Only kernels that cuDNN compiles at run time take it.
 * Refused: other epilogues, UINT8, zero points of y and z, and one of x where there is padding,
 * which cuDNN fills with 0.
 *
 * The filters are packed as KRSC; behind them lie scales, bias and the factor of z.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/dnn_graph.h"
#include "engine/stored.h"

enum {
    SPATIAL = 2,
    CHOICES_MAX = 16,
    HEURISTIC = 3,
    DEPTH_MAX = 65000,
    CONFIGS_MAX = 64,
    WAVES = 3,
    KIN_OF_BYTES = 128, /* beside those of 16 bits; one for each set of formats */
};

enum { UID_X = 1, UID_W, UID_Y, UID_SCALE, UID_BIAS, UID_Z, UID_FACTOR, UIDS };

/* What decides the graph; hashed as bytes, so it is zeroed first. */
struct bytes_spec {
    int64_t x[4], w[4], y[4];
    int64_t pre[SPATIAL], post[SPATIAL], stride[SPATIAL], dilation[SPATIAL];
    int32_t y_type, z_type; /* enum dtype; z_type NONE: there is no z */
    int32_t z_scaled;       /* z is multiplied by its factor */
    int32_t relu, clips;    /* clips: the ReLU has a bound: */
    float upper;
};

struct bytes {
    struct bytes_spec spec;
    struct stored x, y;
    uint32_t z; /* an input, or IR_NONE */
    bool biased;
    float unit, factor;
    uint64_t scale_at, bias_at, factor_at, size; /* of the packed filters, in bytes */
};

/* --- reading --- */

static bool read_window(const struct ir_node *node, struct bytes_spec *s, bool *padded)
{
    bool fit = true;
    *padded = false;
    for (uint32_t i = 0; i < SPATIAL; i++) {
        s->stride[i] = ir_attr_at(node, IR_ATTR_STRIDES, i);
        s->dilation[i] = ir_attr_at(node, IR_ATTR_DILATIONS, i);
        s->pre[i] = ir_attr_at(node, IR_ATTR_PADS, i);
        s->post[i] = ir_attr_at(node, IR_ATTR_PADS, i + SPATIAL);
        fit = fit && s->stride[i] > 0 && s->stride[i] <= INT32_MAX && s->dilation[i] > 0 &&
              s->dilation[i] <= INT32_MAX && s->pre[i] >= 0 && s->pre[i] <= INT32_MAX &&
              s->post[i] >= 0 && s->post[i] <= INT32_MAX;
        *padded = *padded || s->pre[i] || s->post[i];
    }
    return fit;
}

static bool read_shapes(const struct ir_graph *graph, const struct ir_node *node,
                        struct bytes_spec *s)
{
    const struct shape *x = &cuda_input(graph, node, 0)->shape;
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    if (x->rank != 4 || w->rank != 4 || y->rank != 4 || ir_attr_int(node, IR_ATTR_GROUP) != 1 ||
        w->dim[1] != x->dim[1])
        return false;
    for (int i = 0; i < 4; i++) {
        s->x[i] = x->dim[i];
        s->w[i] = w->dim[i];
        s->y[i] = y->dim[i];
        if (s->x[i] < 1 || s->w[i] < 1 || s->y[i] < 1 || s->x[i] > INT32_MAX ||
            s->w[i] > INT32_MAX || s->y[i] > INT32_MAX)
            return false;
    }
    /* 16 bytes are what these kernels read at a time. */
    return s->x[1] % 16 == 0 && s->w[0] % 16 == 0 && s->w[1] * s->w[2] * s->w[3] <= DEPTH_MAX;
}

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* `real` takes the place of F32; NONE: F32 stays. */
static enum dtype type_of(const struct ir_tensor *t, enum dtype real)
{
    return t->dtype == DTYPE_F32 && real != DTYPE_NONE ? real : t->dtype;
}

/* [+ z] [ReLU, or a clip from 0 up]. */
static bool read_steps(const struct ir_graph *graph, const struct ir_node *node, enum dtype real,
                       struct bytes *b)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    uint32_t i = 0;
    b->z = IR_NONE;
    if (i < node->n_epilogue && node->epilogue[i].kind == IR_EPILOGUE_BINARY) {
        const struct ir_epilogue *e = &node->epilogue[i++];
        const struct ir_tensor *z = cuda_input(graph, node, e->input);
        struct stored stored;
        if (e->func != IR_BINARY_ADD || !z || ir_tensor_is_constant(z) ||
            !shape_equal(&z->shape, &y->shape) ||
            !stored_read(graph, node->inputs[e->input], &stored) || stored.zero ||
            (stored.dtype != DTYPE_I8 && !is_float(z->dtype)))
            return false;
        b->z = e->input;
        b->spec.z_type = (int32_t)type_of(z, real);
        b->factor = (stored.dtype == DTYPE_I8 ? stored.step : 1) / b->unit;
        b->spec.z_scaled = b->factor != 1;
    }
    if (i < node->n_epilogue && node->epilogue[i].kind == IR_EPILOGUE_UNARY) {
        const struct ir_epilogue *e = &node->epilogue[i++];
        bool clips = e->func == IR_UNARY_CLIP && e->alpha == 0 && e->beta > 0;
        if (e->func != IR_UNARY_RELU && !clips)
            return false;
        b->spec.relu = 1;
        b->spec.clips = clips && isfinite(e->beta);
        b->spec.upper = b->spec.clips ? e->beta / b->unit : 0;
    }
    return i == node->n_epilogue;
}

static void read_places(struct bytes *b)
{
    const struct bytes_spec *s = &b->spec;
    uint64_t align = BACKEND_ALIGN - 1, weights = (uint64_t)(s->w[0] * s->w[1] * s->w[2] * s->w[3]);
    uint64_t vector = ((uint64_t)s->w[0] * sizeof(float) + align) & ~align;
    b->scale_at = (weights + align) & ~align;
    b->bias_at = b->scale_at + vector;
    b->factor_at = b->bias_at + vector;
    b->size = b->factor_at + BACKEND_ALIGN;
}

static bool bytes_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype real,
                       struct bytes *b)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    bool padded;
    memset(b, 0, sizeof(*b));
    if (!x || !w || node->n_outputs != 1 || !ir_tensor_is_constant(w) ||
        !stored_read(graph, node->inputs[0], &b->x) || b->x.dtype != DTYPE_I8 ||
        !stored_read(graph, node->outputs[0], &b->y) || b->y.zero ||
        !read_shapes(graph, node, &b->spec) || !read_window(node, &b->spec, &padded) ||
        (padded && b->x.zero))
        return false;
    b->spec.y_type = (int32_t)type_of(ir_tensor(graph, node->outputs[0]), real);
    b->unit = b->y.dtype == DTYPE_I8 ? b->y.step : 1;
    b->biased = ir_node_own_inputs(node) > 2 && cuda_input(graph, node, 2);
    read_places(b);
    return (b->y.dtype == DTYPE_I8 || is_float((enum dtype)b->spec.y_type)) &&
           read_steps(graph, node, real, b);
}

/* Whether the constants can be packed; asked only before they are. */
static bool constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                          const struct bytes *b)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct ir_tensor *bias = b->biased ? cuda_input(graph, node, 2) : NULL;
    const struct ir_scale *scale = ir_scale(graph, w->range);
    return scale && scale->dtype != DTYPE_U8 && !scale->zero_min && !scale->zero_max &&
           (scale->n == 1 || (scale->axis == 0 && scale->n == b->spec.w[0])) &&
           dtype_is_float(w->dtype) && w->layout == IR_LAYOUT_PLAIN && w->data &&
           (!bias || (ir_tensor_is_constant(bias) && dtype_is_float(bias->dtype) &&
                      bias->shape.rank == 1 && bias->shape.dim[0] == b->spec.w[0]));
}

/* --- the graph --- */

static dnn_desc tensor(struct dnn_build *b, int64_t uid, enum dtype dtype, const int64_t dim[4])
{
    cudnnDataType_t type = CUDNN_DATA_INT8;
    if (dtype == DTYPE_I32)
        type = CUDNN_DATA_INT32;
    else if (dtype != DTYPE_I8)
        dnn_type(dtype, &type);
    return dnn_tensor_nhwc(b, uid, type, 4, dim);
}

static void add_convolution(struct dnn_build *b, const struct bytes_spec *s, dnn_desc y)
{
    const struct dnn_window window = {SPATIAL, s->pre, s->post, s->stride, s->dilation};
    float one = 1, none = 0;
    dnn_desc conv = dnn_convolution(b, CUDNN_DATA_INT32, &window);
    dnn_desc op =
        dnn_make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "convolution");
    dnn_set_desc(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
    dnn_set_desc(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 tensor(b, UID_X, DTYPE_I8, s->x));
    dnn_set_desc(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 tensor(b, UID_W, DTYPE_I8, s->w));
    dnn_set_desc(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    dnn_set(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    dnn_set(b, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &none);
    dnn_op_add(b, op, "convolution");
}

/* Adds y = mode(x, other); the last step writes the output. */
static dnn_desc add_step(struct dnn_build *b, const struct bytes_spec *s, cudnnPointwiseMode_t mode,
                         dnn_desc x, dnn_desc other, bool last)
{
    dnn_desc how = dnn_pointwise(b, mode, CUDNN_DATA_FLOAT);
    double upper = (double)s->upper;
    if (mode == CUDNN_POINTWISE_RELU_FWD && s->clips)
        dnn_set(b, how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &upper);
    dnn_desc y =
        last ? tensor(b, UID_Y, (enum dtype)s->y_type, s->y) : tensor(b, 0, DTYPE_F32, s->y);
    dnn_pointwise_add(b, how, x, other, NULL, y);
    return y;
}

static void bytes_build(struct dnn_build *b, const void *spec)
{
    const struct bytes_spec *s = spec;
    const int64_t channels[4] = {1, s->y[1], 1, 1}, one[4] = {1, 1, 1, 1};
    bool adds = s->z_type != DTYPE_NONE;
    dnn_desc sums = tensor(b, 0, DTYPE_I32, s->y);
    add_convolution(b, s, sums);
    dnn_desc v =
        add_step(b, s, CUDNN_POINTWISE_MUL, sums, tensor(b, UID_SCALE, DTYPE_F32, channels), false);
    v = add_step(b, s, CUDNN_POINTWISE_ADD, v, tensor(b, UID_BIAS, DTYPE_F32, channels),
                 !adds && !s->relu);
    if (adds) {
        dnn_desc z = tensor(b, UID_Z, (enum dtype)s->z_type, s->y);
        if (s->z_scaled)
            z = add_step(b, s, CUDNN_POINTWISE_MUL, z, tensor(b, UID_FACTOR, DTYPE_F32, one),
                         false);
        v = add_step(b, s, CUDNN_POINTWISE_ADD, v, z, !s->relu);
    }
    if (s->relu)
        add_step(b, s, CUDNN_POINTWISE_RELU_FWD, v, NULL, true);
}

/* --- candidates --- */

struct choices {
    struct dnn_config list[CHOICES_MAX];
    uint8_t wave[CHOICES_MAX]; /* as in struct tactic */
    uint32_t n;
};

static void choose(struct choices *c, uint32_t wave, const struct dnn_config *config)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (memcmp(&c->list[i], config, sizeof(*config)) == 0)
            return;
    if (c->n == CHOICES_MAX)
        return;
    c->wave[c->n] = (uint8_t)MIN(wave, WAVES - 1U);
    c->list[c->n++] = *config;
}

/* Lists some kernels of the engine that has the most, which it cannot do without being told which
 * one; if there is none, the engines with their default knobs. All compile at run time, up to two
 * seconds each. `few`: only what has been best most often. */
static void choose_engines(struct dnn_build *b, bool few, struct choices *c)
{
    static const int32_t configs[] = {2, 10, 6};
    int32_t best = -1, most = 0;
    uint32_t n = dnn_engine_count(b);
    struct choices others = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        struct dnn_engine e;
        if (!dnn_engine_read(b, (int32_t)i, &e) || e.coarse)
            continue;
        choose(&others, 0, &(struct dnn_config){.engine = (int32_t)i});
        if (e.runtime && e.kernel_config > most && e.kernel_config < CONFIGS_MAX) {
            best = (int32_t)i;
            most = e.kernel_config;
        }
    }
    if (best < 0) {
        *c = others;
        return;
    }
    for (size_t i = 0; i < (few ? 2 : ARRAY_LEN(configs)); i++)
        if (configs[i] <= most)
            choose(c, (uint32_t)i,
                   &(struct dnn_config){.engine = best,
                                        .n_knobs = 1,
                                        .knob = {{CUDNN_KNOB_TYPE_KERNEL_CFG, configs[i]}}});
    if (c->n == 0)
        choose(c, 0, &(struct dnn_config){.engine = best});
}

struct ask {
    struct cuda_device *device;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
    uint32_t asked; /* formats, of which the first ones promise most */
};

static enum status list_choices(const struct ask *ask, const struct bytes *bytes, struct choices *c,
                                struct error *err)
{
    struct dnn_build *b;
    struct dnn_config found[HEURISTIC];
    TRY(dnn_build_new(ask->device->dnn, &b, err));
    bytes_build(b, &bytes->spec);
    dnn_graph_finish(b);
    if (b->status)
        log_write(ask->device->log, LOG_VERBOSE, "'%s': cuDNN takes no INT8: %s", ask->node->name,
                  b->why);
    bool few = ask->asked > 0;
    choose_engines(b, few, c);
    if (b->handle && c->n) {
        dnn_compiler_hold(ask->device->dnn);
        uint32_t n = dnn_heuristic(b, few ? 1 : HEURISTIC, found);
        for (uint32_t i = 0; i < n; i++)
            choose(c, i + few, &found[i]);
    }
    dnn_build_free(b);
    return STATUS_OK;
}

static void set_ports(const struct ir_graph *graph, const struct ir_node *node,
                      const struct bytes *b, struct tactic *t)
{
    stored_set_scales(t, graph, node);
    t->in[1].format =
        (struct ir_format){.dtype = DTYPE_I8, .scale = cuda_input(graph, node, 1)->range};
    tactic_port_pack(&t->in[1], b->size);
    if (b->biased) /* packing reads it as it is */
        t->in[2].format = (struct ir_format){.dtype = cuda_input(graph, node, 2)->dtype};
}

static enum status visit_choice(const struct ask *ask, const struct ir_graph *graph,
                                const struct bytes *b, enum dtype real,
                                const struct dnn_config *config, uint8_t wave, struct error *err)
{
    struct tactic t;
    char text[TACTIC_NAME_MAX], detail[TACTIC_NAME_MAX];
    dnn_config_text(config, text, sizeof(text));
    snprintf(detail, sizeof(detail), "%.60s to %s", text, dtype_name((enum dtype)b->spec.y_type));
    cuda_tactic(&t, &cuda_family_dnn_bytes, 0, graph, ask->node, real, IR_LAYOUT_CHANNELS_LAST,
                detail);
    set_ports(graph, ask->node, b, &t);
    t.blob_size = dnn_config_write(config, t.blob);
    t.kin = (uint8_t)(KIN_OF_BYTES + MIN(ask->asked, 64U));
    t.wave = wave;
    return ask->visit(ask->user, &t, err);
}

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    struct ask *ask = user;
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, ask->node, ask->precision, dtypes);
    struct choices choices = {.n = 0};
    struct bytes b;
    if (n == 0 || !bytes_read(graph, ask->node, dtypes[0], &b) ||
        !constants_fit(graph, ask->node, &b))
        return STATUS_OK;
    TRY(list_choices(ask, &b, &choices, err));
    for (uint32_t i = 0; i < choices.n; i++)
        TRY(visit_choice(ask, graph, &b, dtypes[0], &choices.list[i], choices.wave[i], err));
    ask->asked++;
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {device, node, precision, visit, user, 0};
    return node->n_outputs == 1 ? stored_each(graph, node, ask_stored, &ask, err) : STATUS_OK;
}

/* --- back from a tactic --- */

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: '%s' cannot run as planned: %s",
                     node->name, why);
}

static enum status reread(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *t, struct bytes *b, struct dnn_recipe *recipe,
                          struct error *err)
{
    *recipe =
        (struct dnn_recipe){.spec = &b->spec, .spec_size = sizeof(b->spec), .build = bytes_build};
    if (t->id != cuda_tactic_id(CUDA_FAMILY_DNN_BYTES, 0) || t->n_in < 2 ||
        t->blob_size > TACTIC_BLOB_MAX || !dnn_config_read(t->blob, t->blob_size, &recipe->config))
        return refuse(node, err, "the tactic is damaged");
    if (!bytes_read(graph, node,
                    t->out[0].format.dtype == DTYPE_I8 ? DTYPE_NONE : t->out[0].format.dtype, b))
        return refuse(node, err, "the tactic is not for this node");
    bool fit = t->in[0].format.layout == IR_LAYOUT_CHANNELS_LAST &&
               t->out[0].format.layout == IR_LAYOUT_CHANNELS_LAST &&
               t->in[1].packed_bytes == b->size;
    if (b->z != IR_NONE && b->z < t->n_in) {
        fit = fit && t->in[b->z].format.layout == IR_LAYOUT_CHANNELS_LAST;
        b->spec.z_type = (int32_t)t->in[b->z].format.dtype;
    }
    return fit ? STATUS_OK : refuse(node, err, "the tactic wants other layouts");
}

/* --- packing --- */

static void pack_filter(const struct bytes *b, const struct ir_scale *scale, const float *from,
                        int64_t c, char *to, float bias)
{
    const struct bytes_spec *s = &b->spec;
    int64_t taps = s->w[2] * s->w[3], sum = 0;
    float step = scale->step[scale->n > 1 ? c : 0];
    double one = (double)b->x.step * (double)step;
    int8_t *filter = (int8_t *)to + c * s->w[1] * taps;
    for (int64_t k = 0; k < s->w[1]; k++)
        for (int64_t t = 0; t < taps; t++) {
            float q = rintf(from[(c * s->w[1] + k) * taps + t] / step);
            int8_t byte = (int8_t)fminf(fmaxf(q, INT8_MIN), INT8_MAX);
            filter[t * s->w[1] + k] = byte;
            sum += byte;
        }
    ((float *)(void *)(to + b->scale_at))[c] = (float)(one / (double)b->unit);
    ((float *)(void *)(to + b->bias_at))[c] =
        (float)(((double)bias - one * (double)(b->x.zero * sum)) / (double)b->unit);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct bytes b;
    struct dnn_recipe recipe;
    TRY(reread(graph, node, tactic, &b, &recipe, err));
    const struct bytes_spec *s = &b.spec;
    uint64_t n = (uint64_t)(s->w[0] * s->w[1] * s->w[2] * s->w[3]);
    if (input != 1 || !constants_fit(graph, node, &b))
        return refuse(node, err, "it packs a constant that is none");
    CLEANUP(cleanup_free) float *weights = malloc(n * sizeof(*weights));
    CLEANUP(cleanup_free) float *bias = calloc((size_t)s->w[0], sizeof(*bias));
    if (!weights || !bias)
        return error_no_memory(err, "cuDNN");
    if (!cuda_constant_f32(cuda_input(graph, node, 1), weights, n) ||
        (b.biased && !cuda_constant_f32(cuda_input(graph, node, 2), bias, (uint64_t)s->w[0])))
        return refuse(node, err, "it packs a constant that is none");
    memset(to, 0, b.size);
    for (int64_t c = 0; c < s->w[0]; c++)
        pack_filter(&b, ir_scale(graph, cuda_input(graph, node, 1)->range), weights, c, to,
                    bias[c]);
    memcpy((char *)to + b.factor_at, &b.factor, sizeof(b.factor));
    return STATUS_OK;
}

/* --- plans and running --- */

static enum status get_plan(struct cuda_device *device, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct bytes *b, struct dnn_plan **out, struct error *err)
{
    struct dnn_recipe recipe;
    TRY(reread(graph, node, tactic, b, &recipe, err));
    return dnn_plan_of(device, node, tactic, &recipe, out, err);
}

static enum status plan(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct dnn_plan **out, struct error *err)
{
    struct bytes b;
    return get_plan(device, graph, node, tactic, &b, out, err);
}

struct bytes_op {
    struct backend_op base;
    struct cuda_dnn *dnn;
    struct dnn_plan *plan;
    const struct ir_node *node;
    struct dnn_pack pack;
    struct {
        uint32_t input; /* of the node; IR_NONE: the output */
        uint64_t offset;
    } binding[UIDS];
};

static void bind(struct bytes_op *op, int64_t uid, uint32_t input, uint64_t offset)
{
    op->pack.uid[op->pack.n] = uid;
    op->binding[op->pack.n].input = input;
    op->binding[op->pack.n++].offset = offset;
}

static void bind_all(struct bytes_op *op, const struct bytes *b)
{
    bind(op, UID_X, 0, 0);
    bind(op, UID_W, 1, 0);
    bind(op, UID_Y, IR_NONE, 0);
    bind(op, UID_SCALE, 1, b->scale_at);
    bind(op, UID_BIAS, 1, b->bias_at);
    if (b->z != IR_NONE)
        bind(op, UID_Z, b->z, 0);
    if (b->spec.z_scaled)
        bind(op, UID_FACTOR, 1, b->factor_at);
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct bytes_op *op = CONTAINER_OF(base, struct bytes_op, base);
    void *address[DNN_BINDINGS_MAX];
    for (uint32_t i = 0; i < op->pack.n; i++) {
        uint32_t input = op->binding[i].input;
        address[i] =
            (char *)(input == IR_NONE ? outputs[0] : inputs[input]) + op->binding[i].offset;
    }
    return dnn_pack_run(&op->pack, stream, op->plan, address, workspace, op->node->name, err);
}

static void op_free(struct backend_op *base)
{
    struct bytes_op *op = CONTAINER_OF(base, struct bytes_op, base);
    dnn_pack_deinit(&op->pack);
    dnn_plan_put(op->dnn, op->plan);
    free(op);
}

/* The op owns the plan if this succeeds. */
static enum status make_op(struct backend_stream *stream, const struct ir_node *node,
                           const struct bytes *b, struct dnn_plan *plan, struct backend_op **out,
                           struct error *err)
{
    cudnnHandle_t handle;
    CLEANUP(cleanup_free) struct bytes_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "cuDNN");
    if (stream->device->ordinal >= 0)
        TRY(dnn_stream_handle(stream, &handle, err));
    op->base = (struct backend_op){
        .workspace = dnn_plan_workspace(plan), .launch = launch, .free = op_free};
    op->dnn = stream->device->dnn;
    op->plan = plan;
    op->node = node;
    bind_all(op, b);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct bytes b;
    struct dnn_plan *made;
    TRY(get_plan(stream->device, graph, node, tactic, &b, &made, err));
    enum status status = make_op(stream, node, &b, made, out, err);
    if (status)
        dnn_plan_put(stream->device->dnn, made);
    return status;
}

const struct cuda_family cuda_family_dnn_bytes = {
    .id = CUDA_FAMILY_DNN_BYTES,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .plan = plan,
    .prepare = prepare,
};
