/* SPDX-License-Identifier: Apache-2.0 */
/* How the mock compiles and runs ops; see mock.h. */
#include "tests/unit/mock/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"

static bool is_ours(const struct tactic *tactic)
{
    return tactic && strcmp(tactic->backend, "mock") == 0;
}

static bool names(const char *text, const struct tactic *tactic)
{
    return text && strstr(tactic->name, text);
}

/* NULL: it is absent. */
static const struct ir_tensor *input_of(const struct ir_graph *graph, const struct ir_node *node,
                                        uint32_t i)
{
    return node->inputs[i] == IR_NONE ? NULL : ir_tensor(graph, node->inputs[i]);
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
        has = has || (input_of(graph, node, i) && input_of(graph, node, i)->dtype == DTYPE_F32);
    return has;
}

struct offer {
    const struct ir_graph *graph;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
    const struct mock_script *script;
};

enum { BYTES_IN = 1, BYTES_OUT = 2 };

/* UINT8 if the scale has a zero point beyond INT8. False: the tensor has no range. */
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
        in = (input_of(o->graph, o->node, i) &&
              ask_bytes(o->graph, o->node->inputs[i], &t->in[i])) ||
             in;
    for (uint32_t i = 0; bytes & BYTES_OUT && i < t->n_out; i++)
        out = ask_bytes(o->graph, o->node->outputs[i], &t->out[i]) || out;
    return in == (bytes & BYTES_IN) && out == !!(bytes & BYTES_OUT);
}

static void set_wave(const struct mock_script *script, uint32_t variant, uint32_t kin,
                     struct tactic *t)
{
    bool last = script->last_wave && strstr(t->name, script->last_wave);
    if (!script->waves || names(script->quick, t))
        return;
    t->kin = (uint8_t)kin;
    t->wave = (uint8_t)(last ? 3 : MIN(variant, 2));
}

/* Weights of convolutions and products are packed: stored as fp32 or as 8 bits, with each byte
 * inverted. */
static enum status offer(const struct offer *o, enum dtype dtype, unsigned bytes, enum ir_layout in,
                         enum ir_layout out, struct error *err)
{
    static const char *const kinds[] = {"", " in8", " out8", " in8 out8"};
    const struct ir_node *node = o->node;
    bool heavy = node->op == IR_OP_CONV || node->op == IR_OP_MATMUL;
    for (uint32_t v = 0; v < (heavy ? MOCK_VARIANTS : 1); v++) {
        struct tactic t = {.backend = "mock", .id = 1 + v};
        t.n_in = node->n_inputs;
        t.n_out = node->n_outputs;
        for (uint32_t i = 0; i < t.n_in; i++) {
            const struct ir_tensor *x = input_of(o->graph, node, i);
            if (!x)
                continue;
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
        snprintf(t.name, sizeof(t.name), "mock %s %s %s%s v%u", ir_op_name(node->op),
                 dtype_name(dtype), ir_layout_name(in), kinds[bytes], v);
        if (heavy)
            set_wave(o->script, v, 1 + (uint32_t)in + 32 * (dtype == DTYPE_F32) + 64 * bytes, &t);
        enum status st = o->visit(o->user, &t, err);
        if (st)
            return st;
    }
    return STATUS_OK;
}

enum status mock_candidates(struct device *device, const struct ir_graph *graph,
                            const struct ir_node *node, enum precision precision,
                            tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {graph, node, visit, user, &mock_of(device)->script};
    enum dtype types[2] = {DTYPE_NONE};
    uint32_t n = 1;
    pthread_mutex_lock(&mock_of(device)->lock);
    mock_of(device)->counts.candidates++;
    pthread_mutex_unlock(&mock_of(device)->lock);
    if (node->op == mock_of(device)->script.missing && node->op != IR_OP_NONE)
        return STATUS_OK;
    bool no_wide =
        node->op != IR_OP_REFORMAT && (o.script->no_wide || node->op == o.script->no_wide_op);
    if (precision < PRECISION_F16 && no_wide && !o.script->wide_apart)
        return STATUS_OK;
    if (precision >= PRECISION_F16 && has_f32(graph, node)) {
        types[0] = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F16;
        if (!no_wide)
            types[n++] = DTYPE_F32;
    }
    enum status st = STATUS_OK;
    for (unsigned b = 1; b <= (BYTES_IN | BYTES_OUT) && !st; b++)
        if (mock_of(device)->script.bytes && node->op != IR_OP_REFORMAT)
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

uint32_t mock_variant(const struct tactic *tactic)
{
    return tactic->id - 1;
}

uint64_t mock_cost(const struct ir_graph *graph, const struct ir_node *node,
                   const struct tactic *tactic)
{
    uint64_t bytes = 0;
    bool heavy = node->op == IR_OP_CONV || node->op == IR_OP_MATMUL;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        bytes += input_of(graph, node, i) ? input_of(graph, node, i)->bytes : 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += ir_tensor(graph, node->outputs[i])->bytes;
    uint64_t ns = 1000 + bytes / 4;
    if (heavy && ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32)
        ns *= 10;
    return ns + ns * mock_variant(tactic) / 8;
}

/* --- compiling --- */

static struct tune_key key_of(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic)
{
    struct tune_key key = {0};
    (void)!tune_key_of(graph, node, PRECISION_F32, 0, true, &key);
    return tune_key_tactic(&key, tactic, "");
}

static bool is_compiled(const struct mock_device *d, const struct tune_key *key)
{
    for (const struct compiled *c = d->compiled; c; c = c->next)
        if (!tune_key_compare(&c->key, key))
            return true;
    return false;
}

enum status mock_compile(struct device *device, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic, struct error *err)
{
    struct mock_device *d = mock_of(device);
    if (!is_ours(tactic))
        return error_set(err, STATUS_INTERNAL, "mock device: compile: another backend's tactic");
    if (d->script.compiling)
        d->script.compiling(device, tactic);
    struct compiled *c = calloc(1, sizeof(*c));
    c->key = key_of(graph, node, tactic);
    pthread_mutex_lock(&d->lock);
    if (!d->counts.compiled)
        d->compiler = pthread_self();
    else
        d->counts.threads |= !pthread_equal(d->compiler, pthread_self());
    d->counts.compiled += tactic->code == NULL;
    d->counts.loaded += tactic->code != NULL;
    bool refused = names(d->script.no_compile, tactic) || (tactic->code && d->script.refuse_code);
    if (!refused) {
        c->next = d->compiled;
        d->compiled = c;
    }
    pthread_mutex_unlock(&d->lock);
    if (!refused)
        return STATUS_OK;
    free(c);
    return error_set(err, STATUS_FAILED_PRECONDITION, "mock: it does not compile");
}

void mock_compile_drop(struct device *device)
{
    struct mock_device *d = mock_of(device);
    d->counts.drops++;
    while (d->compiled) {
        struct compiled *next = d->compiled->next;
        free(d->compiled);
        d->compiled = next;
    }
}

enum status mock_code(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, struct arena *arena,
                      const void **out, uint64_t *size, struct error *err)
{
    (void)graph, (void)err;
    mock_of(device)->counts.codes++;
    *size = 0;
    if (node->op != IR_OP_CONV && node->op != IR_OP_MATMUL)
        return STATUS_OK;
    char *text = arena_printf(arena, "code of %s", tactic->name);
    *size = strlen(text) + 1;
    *out = text;
    return STATUS_OK;
}

/* --- 8 bits --- */

/* The index of the scale's pair that holds for element i. */
static uint32_t pair_of(const struct ir_scale *scale, const struct shape *shape, size_t i)
{
    size_t inner = 1;
    for (uint32_t d = scale->axis + 1; d < shape->rank; d++)
        inner *= (size_t)shape->dim[d];
    return scale->n == 1 ? 0 : (uint32_t)(i / inner % scale->n);
}

/* Converts plain fp32 to plain 8 bits. */
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

enum status mock_pack(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                      void *to, struct error *err)
{
    (void)device;
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[input]);
    const struct tactic_port *port = &tactic->in[input];
    uint64_t bytes = port->packed_bytes;
    bool scaled = port->format.scale != IR_NO_SCALE;
    if (t->dtype != DTYPE_F32 || t->bytes != (scaled ? sizeof(float) : 1) * bytes)
        return error_set(err, STATUS_INTERNAL,
                         "mock: constants are packed from what the graph has");
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
    return error_set(err, STATUS_INVALID_ARGUMENT, "mock: a tensor lies in %s",
                     ir_layout_name(t->layout));
}

/* Checks what a simulated device demands of a node. A tactic that was not compiled is only
 * counted. */
static enum status check_node(struct mock_device *d, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct error *err)
{
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n;
    TRY(ir_infer_node(graph, node, types, &n, err));
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (input_of(graph, node, i))
            TRY(check_port(input_of(graph, node, i), tune_port_in(tactic, i), err));
    for (uint32_t i = 0; i < node->n_outputs; i++)
        TRY(check_port(ir_tensor(graph, node->outputs[i]), &tactic->out[i], err));
    struct tune_key key = key_of(graph, node, tactic);
    pthread_mutex_lock(&d->lock);
    d->counts.prepared++;
    d->counts.uncompiled += !is_compiled(d, &key) && !tactic->code && node->op != IR_OP_REFORMAT;
    pthread_mutex_unlock(&d->lock);
    return STATUS_OK;
}

enum status mock_op_prepare(struct backend_stream *s, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct backend_op **out, struct error *err)
{
    struct mock_device *d = s->device;
    if (!is_ours(tactic) || node->n_inputs > PORTS_MAX)
        return error_set(err, STATUS_INTERNAL, "mock device: prepare: not a node for it");
    if (d->simulated)
        TRY(check_node(d, graph, node, tactic, err));
    struct backend_op *op = calloc(1, sizeof(*op));
    assert_non_null(op);
    op->device = d;
    op->n_in = node->n_inputs;
    op->n_out = node->n_outputs;
    op->graph = graph;
    op->node = node;
    op->tactic = *tactic;
    pthread_mutex_lock(&d->lock);
    d->counts.allocations++;
    d->open_ops++;
    pthread_mutex_unlock(&d->lock);
    enum status status = STATUS_OK;
    if (!d->simulated)
        status = backend_cpu.stream_new(d->cpu, &op->stream, err);
    if (!status && !d->simulated)
        status = backend_cpu.op_prepare(op->stream, graph, node, tactic, &op->inner, err);
    if (status)
        mock_op_free(op);
    else
        *out = op;
    return status;
}

uint64_t mock_op_workspace(const struct backend_op *op)
{
    return op->inner ? backend_cpu.op_workspace(op->inner)
                     : 64 * (uint64_t)(mock_variant(&op->tactic) + 1);
}

void mock_op_free(struct backend_op *op)
{
    if (!op)
        return;
    if (op->stream) {
        backend_cpu.op_free(op->inner);
        backend_cpu.stream_free(op->stream);
    }
    pthread_mutex_lock(&op->device->lock);
    op->device->open_ops--;
    pthread_mutex_unlock(&op->device->lock);
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

/* The tensor's elements as plain fp32; the caller frees them. */
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
        const struct ir_tensor *t = input_of(op->graph, op->node, i);
        if (!t)
            continue;
        if (dtype_is_float(t->dtype) && t->bytes)
            op->device->counts.zeros += all_zero(inputs[i], t->bytes);
        if (i == 1 && ir_tensor_is_constant(t)) {
            op->device->counts.same_constants += op->constant == inputs[i];
            op->constant = inputs[i];
        }
    }
}

/* Makes the mistake that the script asks for. */
static void mistake(const struct backend_op *op, const struct ir_tensor *t, void *data)
{
    const struct mock_script *script = &op->device->script;
    float *value = data;
    if (t->dtype != DTYPE_F32 || !script->wrong_node ||
        strcmp(op->node->name, script->wrong_node) || !names(script->wrong_tactic, &op->tactic))
        return;
    for (size_t i = 0; i < t->bytes / sizeof(*value); i++)
        value[i] *= script->factor;
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
        if (input_of(op->graph, op->node, i))
            in[i] = widen(op->graph, input_of(op->graph, op->node, i), inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out[i] = calloc(1, ir_tensor(wide, node->outputs[i])->bytes + 1);
    st = cpu_eval_node(NULL, wide, ir_node(wide, 0), (const void *const *)in, out, err);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        mistake(op, ir_tensor(wide, node->outputs[i]), out[i]);
        if (!st)
            narrow(op->graph, ir_tensor(op->graph, op->node->outputs[i]), out[i], outputs[i]);
        free(out[i]);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++)
        free(in[i]);
    ir_graph_free(wide);
    return st;
}

void mock_spend(const struct backend_op *op)
{
    struct mock_device *d = op->device;
    uint64_t ns = (d->script.cost ? d->script.cost : mock_cost)(op->graph, op->node, &op->tactic);
    uint64_t waited = d->script.disturb ? d->script.disturb(d->n_spent++, ns) : 0;
    d->now_ns += ns + waited;
    d->waited_ns += waited;
}

/* Runs on a simulated device, where a script may make it fail. *done: nothing has to be put onto
 * the stream. */
static enum status simulate(struct backend_op *op, bool captured, void *const *inputs,
                            void *const *outputs, void *workspace, bool *done, struct error *err)
{
    struct mock_device *d = op->device;
    memset(workspace, 0xee, mock_op_workspace(op));
    if (names(d->script.lost, &op->tactic)) {
        error_set(err, STATUS_INTERNAL, "mock device: it is lost");
        if (err)
            err->scope = ERROR_DEVICE;
        return STATUS_INTERNAL;
    }
    if (names(d->script.no_launch, &op->tactic) ||
        (captured && names(d->script.no_capture, &op->tactic)))
        return error_set(err, STATUS_INTERNAL, "mock device: it does not run");
    watch_inputs(op, inputs);
    *done = !captured;
    if (captured)
        return STATUS_OK;
    d->counts.direct++;
    d->now_ns += MOCK_LAUNCH_NS;
    mock_spend(op);
    return compute(op, inputs, outputs, err);
}

enum status mock_op_launch(struct backend_op *op, struct backend_stream *s, void *const *inputs,
                           void *const *outputs, void *workspace, struct error *err)
{
    struct mock_device *d = op->device;
    bool done = false;
    if (d->simulated)
        TRY(simulate(op, s->capture != NULL, inputs, outputs, workspace, &done, err));
    if (done)
        return STATUS_OK;
    pthread_mutex_lock(&d->lock);
    struct task *t = mock_task_new(s);
    *t = (struct task){.kind = TASK_OP, .op = op};
    bool ok = mock_find_all(d, op->n_in, inputs, t->inputs) &&
              mock_find_all(d, op->n_out, outputs, t->outputs) &&
              mock_find_all(d, mock_op_workspace(op) != 0, &workspace, &t->workspace);
    d->counts.launches++;
    if (ok && s->capture)
        s->capture->what.ops++;
    if (ok)
        mock_task_put(s);
    else if (s->capture)
        s->capture->n--;
    pthread_mutex_unlock(&d->lock);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INTERNAL,
                          "mock device: an op on memory that is not the device's");
}
