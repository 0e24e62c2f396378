/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/tune/toy.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/tune/internal.h"
#include "kernels/cpu/ref.h"

struct toy {
    struct device base;
    struct backend table;
    struct toy_script script;
    struct toy_counts counts;
    pthread_mutex_t lock;
    pthread_t first; /* thread that compiled */
    uint64_t now, n_spent, waited;
    struct compiled {
        struct tune_key key;
        struct compiled *next;
    } * compiled;
};

struct backend_stream {
    struct toy *toy;
    struct backend_graph *capture;
};

struct backend_event {
    struct toy *toy;
    uint64_t at;
};

struct backend_op {
    struct toy *toy;
    const struct ir_graph *graph;
    const struct ir_node *node;
    struct tactic tactic;
    const void *constant; /* that the last launch read */
};

struct launch {
    struct backend_op *op;
    void *inputs[IR_MAX_INPUTS], *outputs[IR_MAX_OUTPUTS];
    struct launch *next;
};

struct backend_graph {
    struct toy *toy;
    struct launch *first, **end;
};

static struct toy *toy_of(struct device *device)
{
    return (struct toy *)device;
}

static bool names(const char *text, const struct tactic *tactic)
{
    return text && strstr(tactic->name, text);
}

/* --- memory, streams, events --- */

static void fingerprint(struct device *device, char out[FINGERPRINT_MAX])
{
    (void)device;
    snprintf(out, FINGERPRINT_MAX, "toy; version 1");
}

static enum status memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                                const char *tag, void **out, struct error *err)
{
    (void)kind, (void)tag;
    size_t rounded = (size + 63) / 64 * 64;
    *out = aligned_alloc(64, rounded ? rounded : 64);
    if (!*out)
        return error_no_memory(err, "the toy");
    toy_of(device)->counts.open_memory++;
    return STATUS_OK;
}

static void memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    (void)kind;
    toy_of(device)->counts.open_memory--;
    free(memory);
}

static enum status stream_new(struct device *device, struct backend_stream **out, struct error *err)
{
    (void)err;
    *out = calloc(1, sizeof(**out));
    (*out)->toy = toy_of(device);
    return STATUS_OK;
}

static void stream_free(struct backend_stream *stream)
{
    free(stream);
}

static enum status event_new(struct device *device, bool timing, struct backend_event **out,
                             struct error *err)
{
    (void)timing, (void)err;
    *out = calloc(1, sizeof(**out));
    (*out)->toy = toy_of(device);
    return STATUS_OK;
}

static void event_free(struct backend_event *event)
{
    free(event);
}

static enum status event_record(struct backend_event *event, struct backend_stream *stream,
                                struct error *err)
{
    (void)err;
    event->at = stream->toy->now;
    return STATUS_OK;
}

static enum status event_wait(struct backend_event *event, struct error *err)
{
    (void)event, (void)err;
    return STATUS_OK;
}

static enum status event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                                 struct error *err)
{
    (void)err;
    *ns = to->at - from->at;
    return STATUS_OK;
}

static uint64_t longest_wait(struct backend_stream *stream)
{
    uint64_t waited = stream->toy->script.told ? stream->toy->waited : 0;
    stream->toy->waited = 0;
    return waited;
}

static enum status copy(struct backend_stream *stream, enum copy_direction direction,
                        const struct backend_copy *copies, uint32_t n, struct error *err)
{
    (void)stream, (void)direction, (void)err;
    for (uint32_t i = 0; i < n; i++)
        memcpy(copies[i].to, copies[i].from, copies[i].size);
    return STATUS_OK;
}

/* --- candidates --- */

static bool is_image(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    return x->shape.rank == 4 && y->shape.rank == 4 && node->op != IR_OP_TRANSPOSE &&
           node->op != IR_OP_RESHAPE;
}

static bool has_f32(const struct ir_graph *graph, const struct ir_node *node)
{
    bool has = ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        has = has || ir_tensor(graph, node->inputs[i])->dtype == DTYPE_F32;
    return has;
}

struct offer {
    const struct ir_graph *graph;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

enum { BYTES_IN = 1, BYTES_OUT = 2 };

/* UINT8 where a zero point is beyond INT8. False: the tensor has no range. */
static bool ask_bytes(const struct ir_graph *graph, uint32_t tensor, struct tactic_port *port)
{
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    const struct ir_scale *scale = ir_scale(graph, t->range);
    if (!scale)
        return false;
    port->format.dtype = scale->zero_max > INT8_MAX ? DTYPE_U8 : DTYPE_I8;
    port->format.scale = t->range;
    port->packed_bytes /= sizeof(float);
    return true;
}

static bool set_bytes(const struct offer *o, unsigned bytes, struct tactic *t)
{
    bool in = false, out = false;
    for (uint32_t i = 0; bytes & BYTES_IN && i < t->n_in; i++)
        in = ask_bytes(o->graph, o->node->inputs[i], &t->in[i]) || in;
    for (uint32_t i = 0; bytes & BYTES_OUT && i < t->n_out; i++)
        out = ask_bytes(o->graph, o->node->outputs[i], &t->out[i]) || out;
    return in == (bytes & BYTES_IN) && out == !!(bytes & BYTES_OUT);
}

/* Weights of convolutions and products are packed: their bytes as fp32, or as 8 bits, each
 * inverted. */
static enum status offer(const struct offer *o, enum dtype dtype, unsigned bytes, enum ir_layout in,
                         enum ir_layout out, struct error *err)
{
    static const char *const kinds[] = {"", " in8", " out8", " in8 out8"};
    const struct ir_node *node = o->node;
    bool heavy = node->op == IR_OP_CONV || node->op == IR_OP_MATMUL;
    for (uint32_t v = 0; v < (heavy ? TOY_VARIANTS : 1); v++) {
        struct tactic t = {.backend = "toy", .id = 1 + v};
        t.n_in = node->n_inputs;
        t.n_out = node->n_outputs;
        for (uint32_t i = 0; i < t.n_in; i++) {
            const struct ir_tensor *x = ir_tensor(o->graph, node->inputs[i]);
            t.in[i].format.layout = x->shape.rank != 4 ? IR_LAYOUT_PLAIN : i ? out : in;
            if (heavy && i == 1 && ir_tensor_is_constant(x))
                tactic_port_pack(&t.in[i], x->bytes);
        }
        for (uint32_t i = 0; i < t.n_out; i++)
            t.out[i].format.layout =
                ir_tensor(o->graph, node->outputs[i])->shape.rank == 4 ? out : IR_LAYOUT_PLAIN;
        tactic_set_types(&t, o->graph, node, dtype);
        if (!set_bytes(o, bytes, &t))
            return STATUS_OK;
        if (node->op == IR_OP_REFORMAT) {
            t.in[0].format = ir_tensor(o->graph, node->inputs[0])->format;
            t.out[0].format = ir_tensor(o->graph, node->outputs[0])->format;
        }
        snprintf(t.name, sizeof(t.name), "toy %s %s %s%s v%u", ir_op_name(node->op),
                 dtype_name(dtype), ir_layout_name(in), kinds[bytes], v);
        enum status st = o->visit(o->user, &t, err);
        if (st)
            return st;
    }
    return STATUS_OK;
}

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {graph, node, visit, user};
    enum dtype types[2] = {DTYPE_NONE};
    uint32_t n = 1;
    toy_of(device)->counts.candidates++;
    if (node->op == toy_of(device)->script.missing && node->op != IR_OP_NONE)
        return STATUS_OK;
    if (precision >= PRECISION_F16 && has_f32(graph, node)) {
        types[0] = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F16;
        types[n++] = DTYPE_F32;
    }
    enum status st = STATUS_OK;
    for (unsigned b = 1; b <= (BYTES_IN | BYTES_OUT) && !st; b++)
        if (toy_of(device)->script.bytes && node->op != IR_OP_REFORMAT)
            st = offer(&o, DTYPE_NONE, b, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        if (node->op == IR_OP_CONV && types[i] != DTYPE_F32)
            st = offer(&o, types[i], 0, IR_LAYOUT_CHANNELS_LAST_8, IR_LAYOUT_CHANNELS_LAST, err);
        if (!st && is_image(graph, node) && node->op != IR_OP_REFORMAT)
            st = offer(&o, types[i], 0, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST, err);
        if (!st)
            st = offer(&o, types[i], 0, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, err);
    }
    return st;
}

uint32_t toy_variant(const struct tactic *tactic)
{
    return tactic->id - 1;
}

uint64_t toy_cost(const struct ir_graph *graph, const struct ir_node *node,
                  const struct tactic *tactic)
{
    uint64_t bytes = 0;
    bool heavy = node->op == IR_OP_CONV || node->op == IR_OP_MATMUL;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        bytes += ir_tensor(graph, node->inputs[i])->bytes;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += ir_tensor(graph, node->outputs[i])->bytes;
    uint64_t ns = 1000 + bytes / 4;
    if (heavy && ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32)
        ns *= 10;
    return ns + ns * toy_variant(tactic) / 8;
}

/* --- compiling --- */

static struct tune_key key_of(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic)
{
    struct tune_key key = {0};
    (void)!tune_key_of(graph, node, PRECISION_F32, 0, &key);
    return tune_key_tactic(&key, tactic, "");
}

static bool is_compiled(struct toy *toy, const struct tune_key *key)
{
    for (const struct compiled *c = toy->compiled; c; c = c->next)
        if (!tune_key_compare(&c->key, key))
            return true;
    return false;
}

static enum status compile(struct device *device, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct error *err)
{
    struct toy *toy = toy_of(device);
    struct compiled *c = calloc(1, sizeof(*c));
    c->key = key_of(graph, node, tactic);
    pthread_mutex_lock(&toy->lock);
    if (!toy->counts.compiled)
        toy->first = pthread_self();
    else
        toy->counts.threads |= !pthread_equal(toy->first, pthread_self());
    toy->counts.compiled += tactic->code == NULL;
    toy->counts.loaded += tactic->code != NULL;
    bool refused =
        names(toy->script.no_compile, tactic) || (tactic->code && toy->script.refuse_code);
    if (!refused) {
        c->next = toy->compiled;
        toy->compiled = c;
    }
    pthread_mutex_unlock(&toy->lock);
    if (!refused)
        return STATUS_OK;
    free(c);
    return error_set(err, STATUS_FAILED_PRECONDITION, "toy: it does not compile");
}

static void compile_drop(struct device *device)
{
    struct toy *toy = toy_of(device);
    toy->counts.drops++;
    while (toy->compiled) {
        struct compiled *next = toy->compiled->next;
        free(toy->compiled);
        toy->compiled = next;
    }
}

static enum status code(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct arena *arena, const void **out, uint64_t *size, struct error *err)
{
    (void)graph, (void)err;
    toy_of(device)->counts.codes++;
    *size = 0;
    if (node->op != IR_OP_CONV && node->op != IR_OP_MATMUL)
        return STATUS_OK;
    char *text = arena_printf(arena, "code of %s", tactic->name);
    *size = strlen(text) + 1;
    *out = text;
    return STATUS_OK;
}

/* --- 8 bits --- */

/* Which of the scale's pairs element i has. */
static uint32_t pair_of(const struct ir_scale *scale, const struct shape *shape, size_t i)
{
    size_t inner = 1;
    for (uint32_t d = scale->axis + 1; d < shape->rank; d++)
        inner *= (size_t)shape->dim[d];
    return scale->n == 1 ? 0 : (uint32_t)(i / inner % scale->n);
}

/* Plain fp32 into plain 8 bits. */
static void quantise(const struct ir_graph *graph, const struct ir_tensor *t,
                     struct ir_format format, const float *from, uint8_t *to)
{
    const struct ir_scale *scale = ir_scale(graph, format.scale);
    int32_t low = format.dtype == DTYPE_I8 ? INT8_MIN : 0;
    size_t n = 0;
    (void)!shape_elements(&t->shape, &n);
    for (size_t i = 0; i < n; i++) {
        uint32_t k = pair_of(scale, &t->shape, i);
        float q = rintf(from[i] / scale->step[k]) + (float)(scale->zero ? scale->zero[k] : 0);
        to[i] = (uint8_t)(int32_t)fminf(fmaxf(q, (float)low), (float)(low + UINT8_MAX));
    }
}

static void dequantise(const struct ir_graph *graph, const struct ir_tensor *t, const uint8_t *from,
                       float *to)
{
    const struct ir_scale *scale = ir_scale(graph, t->scale);
    size_t n = 0;
    (void)!shape_elements(&t->shape, &n);
    for (size_t i = 0; i < n; i++) {
        uint32_t k = pair_of(scale, &t->shape, i);
        int32_t q = t->dtype == DTYPE_I8 ? (int8_t)from[i] : from[i];
        to[i] = scale->step[k] * (float)(q - (scale->zero ? scale->zero[k] : 0));
    }
}

static enum status pack(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    (void)device;
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[input]);
    const struct tactic_port *port = &tactic->in[input];
    uint64_t bytes = port->packed_bytes;
    bool scaled = port->format.scale != IR_NO_SCALE;
    if (t->dtype != DTYPE_F32 || t->bytes != (scaled ? sizeof(float) : 1) * bytes)
        return error_set(err, STATUS_INTERNAL, "toy: constants are packed from what the graph has");
    if (scaled)
        quantise(graph, t, port->format, t->data, to);
    else
        memcpy(to, t->data, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] ^= 0xff;
    return STATUS_OK;
}

/* --- running --- */

static enum status check_port(const struct ir_tensor *t, const struct tactic_port *port,
                              struct error *err)
{
    if (port->packed_bytes ? t->layout == IR_LAYOUT_OPAQUE && t->bytes == port->packed_bytes
                           : ir_format_equal(t->format, port->format))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "toy: a tensor lies in %s",
                     ir_layout_name(t->layout));
}

static enum status op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err)
{
    struct toy *toy = stream->toy;
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n;
    enum status st = ir_infer_node(graph, node, types, &n, err);
    for (uint32_t i = 0; i < node->n_inputs && !st; i++)
        st = check_port(ir_tensor(graph, node->inputs[i]), tune_port_in(tactic, i), err);
    for (uint32_t i = 0; i < node->n_outputs && !st; i++)
        st = check_port(ir_tensor(graph, node->outputs[i]), &tactic->out[i], err);
    if (st)
        return st;
    struct tune_key key = key_of(graph, node, tactic);
    pthread_mutex_lock(&toy->lock);
    toy->counts.prepared++;
    toy->counts.uncompiled +=
        !is_compiled(toy, &key) && !tactic->code && node->op != IR_OP_REFORMAT;
    pthread_mutex_unlock(&toy->lock);
    *out = calloc(1, sizeof(**out));
    (*out)->toy = toy;
    (*out)->graph = graph;
    (*out)->node = node;
    (*out)->tactic = *tactic;
    toy->counts.open_ops++;
    return STATUS_OK;
}

static uint64_t op_workspace(const struct backend_op *op)
{
    return 64 * (toy_variant(&op->tactic) + 1);
}

static void op_free(struct backend_op *op)
{
    if (op)
        op->toy->counts.open_ops--;
    free(op);
}

static bool is_half(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static enum dtype wide_type(const struct ir_tensor *t)
{
    return is_half(ir_tensor_type(t)) ? DTYPE_F32 : ir_tensor_type(t);
}

/* The tensor's bytes as plain fp32; the caller frees. */
static void *widen(const struct ir_graph *graph, const struct ir_tensor *t, const void *from)
{
    size_t n = 0, bytes = 0;
    enum dtype plain = t->scale ? t->dtype : wide_type(t);
    (void)!shape_elements(&t->shape, &n);
    (void)!shape_bytes(&t->shape, plain, &bytes);
    uint8_t *to = calloc(1, bytes + 1);
    struct tensor_view x = {t->dtype, t->shape, (void *)(uintptr_t)from};
    struct tensor_view y = {plain, t->shape, to};
    for (size_t i = 0; t->layout == IR_LAYOUT_OPAQUE && i < bytes; i++)
        to[i] = ((const uint8_t *)from)[i] ^ 0xff;
    if (t->layout == IR_LAYOUT_PLAIN)
        ref_cast(&x, &y);
    else if (t->layout != IR_LAYOUT_OPAQUE)
        ref_reformat(t->layout, IR_LAYOUT_PLAIN, &x, &y);
    if (t->scale == IR_NO_SCALE)
        return to;
    float *real = calloc(n + 1, sizeof(*real));
    dequantise(graph, t, to, real);
    free(to);
    return real;
}

static void narrow(const struct ir_graph *graph, const struct ir_tensor *t, const void *from,
                   void *to)
{
    size_t n = 0;
    (void)!shape_elements(&t->shape, &n);
    uint8_t *bytes = t->scale ? calloc(1, n + 1) : NULL;
    if (bytes)
        quantise(graph, t, t->format, from, bytes);
    struct tensor_view x = {bytes ? t->dtype : wide_type(t), t->shape,
                            bytes ? bytes : (void *)(uintptr_t)from};
    struct tensor_view y = {t->dtype, t->shape, to};
    if (t->layout == IR_LAYOUT_PLAIN)
        ref_cast(&x, &y);
    else
        ref_reformat(IR_LAYOUT_PLAIN, t->layout, &x, &y);
    free(bytes);
}

static bool all_zero(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const uint8_t *)data)[i])
            return false;
    return true;
}

static void watch_inputs(struct backend_op *op, void *const *inputs)
{
    for (uint32_t i = 0; i < op->node->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(op->graph, op->node->inputs[i]);
        if (dtype_is_float(t->dtype) && t->bytes)
            op->toy->counts.zeros += all_zero(inputs[i], t->bytes);
        if (i == 1 && ir_tensor_is_constant(t)) {
            op->toy->counts.same_constants += op->constant == inputs[i];
            op->constant = inputs[i];
        }
    }
}

static enum status compute(struct backend_op *op, void *const *inputs, void *const *outputs,
                           struct error *err)
{
    struct ir_graph *wide;
    void *in[IR_MAX_INPUTS] = {0}, *out[IR_MAX_OUTPUTS] = {0};
    enum status st = tune_sample_new(op->graph, op->node, &wide, err);
    if (st)
        return st;
    const struct ir_node *node = ir_node(wide, 0);
    for (uint32_t i = 0; i < wide->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(wide, i);
        t->format = (struct ir_format){IR_LAYOUT_PLAIN, wide_type(t), IR_NO_SCALE};
        t->real = DTYPE_NONE;
        (void)!ir_tensor_set_layout(wide, i, IR_LAYOUT_PLAIN);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in[i] = widen(op->graph, ir_tensor(op->graph, op->node->inputs[i]), inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out[i] = calloc(1, ir_tensor(wide, node->outputs[i])->bytes + 1);
    st = cpu_eval_node(NULL, wide, ir_node(wide, 0), (const void *const *)in, out, err);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (!st)
            narrow(op->graph, ir_tensor(op->graph, op->node->outputs[i]), out[i], outputs[i]);
        free(out[i]);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++)
        free(in[i]);
    ir_graph_free(wide);
    return st;
}

static void spend(struct backend_op *op)
{
    struct toy *toy = op->toy;
    uint64_t ns =
        (toy->script.cost ? toy->script.cost : toy_cost)(op->graph, op->node, &op->tactic);
    uint64_t waited = toy->script.disturb ? toy->script.disturb(toy->n_spent++, ns) : 0;
    toy->now += ns + waited;
    toy->waited += waited;
}

static enum status op_launch(struct backend_op *op, struct backend_stream *stream,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err)
{
    struct toy *toy = op->toy;
    memset(workspace, 0xee, op_workspace(op));
    if (names(toy->script.lost, &op->tactic)) {
        error_set(err, STATUS_INTERNAL, "toy: the device is lost");
        if (err)
            err->scope = ERROR_DEVICE;
        return STATUS_INTERNAL;
    }
    if (names(toy->script.no_launch, &op->tactic) ||
        (stream->capture && names(toy->script.no_capture, &op->tactic)))
        return error_set(err, STATUS_INTERNAL, "toy: it does not run");
    watch_inputs(op, inputs);
    if (!stream->capture) {
        toy->counts.launches++;
        toy->now += TOY_LAUNCH_NS;
        spend(op);
        return compute(op, inputs, outputs, err);
    }
    struct launch *l = calloc(1, sizeof(*l));
    l->op = op;
    memcpy(l->inputs, inputs, op->node->n_inputs * sizeof(*inputs));
    memcpy(l->outputs, outputs, op->node->n_outputs * sizeof(*outputs));
    *stream->capture->end = l;
    stream->capture->end = &l->next;
    return STATUS_OK;
}

static enum status capture_begin(struct backend_stream *stream, struct error *err)
{
    (void)err;
    stream->capture = calloc(1, sizeof(*stream->capture));
    stream->capture->toy = stream->toy;
    stream->capture->end = &stream->capture->first;
    stream->toy->counts.captured++;
    stream->toy->counts.open_graphs++;
    return STATUS_OK;
}

static enum status capture_end(struct backend_stream *stream, struct backend_graph **out,
                               struct error *err)
{
    (void)err;
    *out = stream->capture;
    stream->capture = NULL;
    return STATUS_OK;
}

static enum status graph_launch(struct backend_graph *graph, struct backend_stream *stream,
                                struct error *err)
{
    enum status st = STATUS_OK;
    stream->toy->counts.replayed++;
    for (struct launch *l = graph->first; l && !st; l = l->next)
        spend(l->op);
    (void)err;
    return st;
}

static void graph_free(struct backend_graph *graph)
{
    graph->toy->counts.open_graphs--;
    while (graph->first) {
        struct launch *next = graph->first->next;
        free(graph->first);
        graph->first = next;
    }
    free(graph);
}

/* --- the device --- */

static const struct backend table = {
    .abi = BACKEND_ABI,
    .name = "toy",
    .features = BACKEND_SCALES,
    .stable_addresses = true,
    .device_fingerprint = fingerprint,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .longest_wait = longest_wait,
    .copy = copy,
    .candidates = candidates,
    .pack = pack,
    .compile = compile,
    .compile_drop = compile_drop,
    .code = code,
    .op_prepare = op_prepare,
    .op_workspace = op_workspace,
    .op_free = op_free,
    .op_launch = op_launch,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
};

struct device *toy_new(void)
{
    struct toy *toy = calloc(1, sizeof(*toy));
    toy->table = table;
    toy->table.arena_new = backend_cpu.arena_new;
    toy->table.arena_grow = backend_cpu.arena_grow;
    toy->table.arena_base = backend_cpu.arena_base;
    toy->table.arena_free = backend_cpu.arena_free;
    toy->base.backend = &toy->table;
    pthread_mutex_init(&toy->lock, NULL);
    return &toy->base;
}

void toy_free(struct device *device)
{
    compile_drop(device);
    pthread_mutex_destroy(&toy_of(device)->lock);
    free(device);
}

struct toy_script *toy_script(struct device *device)
{
    return &toy_of(device)->script;
}

struct toy_counts *toy_counts(struct device *device)
{
    return &toy_of(device)->counts;
}
