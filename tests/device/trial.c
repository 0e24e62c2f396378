/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/device/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/guard/internal.h"
#include "tests/device/layout.h"
#include "tests/device/ranged.h"

enum { RED_ZONE = 512, POISON = 0xff, SAMPLES = 7 };

enum status trial_init(struct trial *t, struct device *device, struct error *err)
{
    *t = (struct trial){.device = device, .backend = device->backend};
    enum status status = t->backend->stream_new(device, &t->stream, err);
    if (!status)
        status = t->backend->event_new(device, true, &t->begin, err);
    if (!status)
        status = t->backend->event_new(device, true, &t->end, err);
    return status;
}

void trial_deinit(struct trial *t)
{
    if (t->end)
        t->backend->event_free(t->end);
    if (t->begin)
        t->backend->event_free(t->begin);
    if (t->stream)
        t->backend->stream_free(t->stream);
}

/* --- subjects --- */

static uint64_t elements(const struct ir_tensor *t)
{
    size_t n;
    return shape_elements(&t->shape, &n) ? n : 0;
}

static float rounded(float value, enum dtype dtype)
{
    uint32_t bits;
    layout_store(&bits, dtype, 0, (double)value);
    return (float)layout_load(&bits, dtype, 0);
}

static void round_constants(struct ir_graph *g, enum dtype dtype)
{
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(g, i);
        if (!ir_tensor_is_constant(t) || t->dtype != DTYPE_F32)
            continue;
        float *data = (float *)(uintptr_t)t->data; /* the case's own, in its arena */
        for (uint64_t k = 0; k < elements(t); k++)
            data[k] = rounded(data[k], dtype);
    }
}

static void fill(const struct ir_tensor *t, enum dtype dtype, uint64_t seed, void *to)
{
    uint64_t random = seed * 77777 + 1;
    for (uint64_t i = 0; i < elements(t); i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        uint32_t r = (uint32_t)(random >> 33);
        double value = (double)r / (1U << 30) - 1.0;
        if (t->dtype == DTYPE_F32)
            ((float *)to)[i] = rounded((float)(2 * value), dtype);
        else if (dtype_is_float(t->dtype))
            layout_store(to, t->dtype, i, 2 * value);
        else if (t->dtype == DTYPE_BOOL)
            ((uint8_t *)to)[i] = r & 1;
        else if (dtype_size(t->dtype) == 1)
            ((uint8_t *)to)[i] = (uint8_t)r;
        else if (t->dtype == DTYPE_I32)
            ((int32_t *)to)[i] = (int32_t)(r % 2001) - 1000;
        else
            ((int64_t *)to)[i] = (int64_t)(r % 2001) - 1000;
    }
}

static enum status run_reference(struct subject *s, struct error *err)
{
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_OUTPUTS];
    for (uint32_t i = 0; i < s->graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(s->graph, s->graph->inputs[i]);
        in[i] = (struct tensor_view){t->dtype, t->shape, s->inputs[i]};
    }
    for (uint32_t i = 0; i < s->graph->n_outputs; i++) {
        const struct ir_tensor *y = ir_tensor(s->graph, s->graph->outputs[i]);
        if (!(s->want[i] = calloc(1, y->bytes + 1)))
            return error_no_memory(err, "a test");
        out[i] = (struct tensor_view){y->dtype, y->shape, s->want[i]};
    }
    return cpu_eval_graph(s->graph, in, out, err);
}

enum status subject_init(struct subject *s, struct ir_graph *graph, enum dtype dtype, uint64_t seed,
                         bool reference, struct error *err)
{
    *s = (struct subject){.graph = graph, .dtype = dtype ? dtype : DTYPE_F32, .seed = seed};
    if (!graph)
        return error_no_memory(err, "a test");
    round_constants(graph, s->dtype);
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        if (!(s->inputs[i] = malloc(t->bytes + 1)))
            return error_no_memory(err, "a test");
        fill(t, s->dtype, seed + i, s->inputs[i]);
    }
    return reference ? run_reference(s, err) : STATUS_OK;
}

enum status subject_init_ranged(struct subject *s, struct ir_graph *graph, uint64_t seed,
                                enum dtype bytes, struct error *err)
{
    *s = (struct subject){.graph = graph, .dtype = DTYPE_F32, .seed = seed};
    if (!graph)
        return error_no_memory(err, "a test");
    enum status status = ranged_inputs(graph, seed, bytes, err);
    for (uint32_t i = 0; i < graph->n_inputs && !status; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        if (!(s->inputs[i] = malloc(t->bytes + 1)))
            return error_no_memory(err, "a test");
        fill(t, DTYPE_F32, seed + i, s->inputs[i]);
        if (ir_scale(graph, t->range))
            ranged_round(ir_scale(graph, t->range), &t->shape, s->inputs[i]);
    }
    if (!status)
        status = run_reference(s, err);
    for (uint32_t i = 0; i < graph->n_outputs && !status; i++)
        status = ranged_output(graph, graph->outputs[i], s->want[i], seed, bytes, err);
    return status;
}

void subject_deinit(struct subject *s)
{
    for (uint32_t i = 0; s->graph && i < s->graph->n_inputs; i++)
        free(s->inputs[i]);
    for (uint32_t i = 0; i < IR_MAX_OUTPUTS; i++)
        free(s->want[i]);
    ir_graph_free(s->graph);
}

/* --- a graph as a tactic wants it --- */

static enum status shape_constant(struct ir_graph *g, const void *packed,
                                  const struct tactic *tactic, uint32_t input, struct error *err)
{
    struct ir_tensor *t = ir_tensor(g, ir_node(g, 0)->inputs[input]);
    const struct tactic_port *p = &tactic->in[MIN(input, tactic->n_in - 1)];
    enum dtype was = t->dtype;
    const void *plain = t->data;
    if (packed) {
        t->bytes = p->packed_bytes;
        t->data = packed;
    }
    if (!ir_tensor_set_format(g, ir_node(g, 0)->inputs[input], p->format))
        return error_set(err, STATUS_INTERNAL, "constant %u cannot be %s", input,
                         ir_layout_name(p->format.layout));
    if (packed)
        return STATUS_OK;
    void *data = arena_alloc(g->arena, t->bytes + 1);
    if (!data)
        return error_no_memory(err, "a test");
    layout_pack(t, plain, was, data);
    t->data = data;
    return STATUS_OK;
}

static enum status pack_all(struct trial *trial, struct ir_graph *g, const struct tactic *tactic,
                            void **packed, struct error *err)
{
    const struct ir_node *node = ir_node(g, 0);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < node->n_inputs && !status; i++) {
        uint64_t size = tactic->in[MIN(i, tactic->n_in - 1)].packed_bytes;
        packed[i] = NULL;
        if (node->inputs[i] == IR_NONE || !size ||
            !ir_tensor_is_constant(ir_tensor(g, node->inputs[i])))
            continue;
        if (!(packed[i] = arena_alloc(g->arena, size)))
            return error_no_memory(err, "a test");
        memset(packed[i], POISON, size);
        status = trial->backend->pack(trial->device, g, node, tactic, i, packed[i], err);
    }
    return status;
}

/* Constants are packed and replaced when the node's other tensors are as the tactic wants them. */
static enum status apply(struct trial *trial, struct ir_graph *g, const struct tactic *tactic,
                         struct error *err)
{
    struct ir_node *node = ir_node(g, 0);
    void *packed[IR_MAX_INPUTS];
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && !ir_tensor_is_constant(ir_tensor(g, node->inputs[i])) &&
            !ir_tensor_set_format(g, node->inputs[i], tactic->in[MIN(i, tactic->n_in - 1)].format))
            return error_set(err, STATUS_INTERNAL, "input %u cannot have its layout", i);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!ir_tensor_set_format(g, node->outputs[i], tactic->out[i].format))
            return error_set(err, STATUS_INTERNAL, "output %u cannot have its layout", i);
    enum status status = pack_all(trial, g, tactic, packed, err);
    for (uint32_t i = 0; i < node->n_inputs && !status; i++)
        if (node->inputs[i] != IR_NONE && ir_tensor_is_constant(ir_tensor(g, node->inputs[i])))
            status = shape_constant(g, packed[i], tactic, i, err);
    node->tactic = tactic;
    return status ? status : ir_verify(g, err);
}

/* --- on the device --- */

struct run {
    struct trial *trial;
    void *in[IR_MAX_INPUTS];
    uint32_t n_out;
    void *out[IR_MAX_OUTPUTS], *workspace;
    uint64_t bytes[IR_MAX_OUTPUTS]; /* of the outputs */
    struct backend_op *op;
    void *host;   /* staging for any output */
    float *first; /* what the first output holds, if it is stored in 8 bits */
};

static enum status settle(struct trial *t, struct error *err)
{
    enum status status = t->backend->event_record(t->end, t->stream, err);
    return status ? status : t->backend->event_wait(t->end, err);
}

static enum status move(struct trial *t, enum copy_direction direction, void *to, const void *from,
                        size_t size, struct error *err)
{
    struct backend_copy copy = {to, from, size};
    enum status status = t->backend->copy(t->stream, direction, &copy, 1, err);
    return status ? status : settle(t, err);
}

static enum status put(struct trial *t, const void *bytes, size_t size, void **out,
                       struct error *err)
{
    enum status status =
        t->backend->memory_alloc(t->device, MEMORY_DEVICE, size + 1, "test", out, err);
    return status || !size ? status : move(t, COPY_TO_DEVICE, *out, bytes, size, err);
}

static enum status put_inputs(struct run *r, const struct subject *s, const struct ir_graph *g,
                              struct outcome *out, struct error *err)
{
    const struct ir_node *node = ir_node(g, 0);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < node->n_inputs && !status; i++) {
        const struct ir_tensor *t =
            node->inputs[i] == IR_NONE ? NULL : ir_tensor(g, node->inputs[i]);
        if (!t)
            continue;
        out->bytes += (double)t->bytes;
        if (ir_tensor_is_constant(t)) {
            status = put(r->trial, t->data, t->bytes, &r->in[i], err);
            continue;
        }
        uint32_t k = 0;
        while (k < g->n_inputs && g->inputs[k] != node->inputs[i])
            k++;
        void *bytes = k < g->n_inputs ? malloc(t->bytes + 1) : NULL;
        if (!bytes)
            return error_no_memory(err, "a test");
        if (t->scale == IR_NO_SCALE)
            layout_pack(t, s->inputs[k], ir_tensor(s->graph, s->graph->inputs[k])->dtype, bytes);
        else if (!value_store(g, t, s->inputs[k], bytes))
            return error_no_memory(err, "a test");
        status = put(r->trial, bytes, t->bytes, &r->in[i], err);
        free(bytes);
    }
    return status;
}

static enum status poison(struct run *r, struct error *err)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < r->n_out && !status; i++) {
        memset(r->host, POISON, r->bytes[i] + RED_ZONE);
        status = move(r->trial, COPY_TO_DEVICE, r->out[i], r->host, r->bytes[i] + RED_ZONE, err);
    }
    return status;
}

static enum status launch(struct run *r, struct error *err)
{
    struct trial *t = r->trial;
    return t->backend->op_launch(r->op, t->stream, r->in, r->out, r->workspace, err);
}

static enum status replay(struct run *r, uint32_t repeats, uint32_t samples, double *us,
                          struct error *err)
{
    struct trial *t = r->trial;
    struct backend_graph *graph = NULL;
    double best = INFINITY;
    enum status status = t->backend->capture_begin(t->stream, err);
    for (uint32_t i = 0; i < repeats && !status; i++)
        status = launch(r, err);
    struct error ignored;
    enum status ended = status == STATUS_OK || t->backend->capture_begin
                            ? t->backend->capture_end(t->stream, &graph, status ? &ignored : err)
                            : STATUS_OK;
    if (!status)
        status = ended;
    for (uint32_t i = 0; i < samples && !status; i++) {
        uint64_t ns = 0;
        status = t->backend->event_record(t->begin, t->stream, err);
        if (!status)
            status = t->backend->graph_launch(graph, t->stream, err);
        if (!status)
            status = settle(t, err);
        if (!status)
            status = t->backend->event_elapsed(t->begin, t->end, &ns, err);
        best = fmin(best, (double)ns / 1000 / repeats);
    }
    if (graph)
        t->backend->graph_free(graph);
    *us = best;
    return status;
}

static enum status replay_plainly(struct run *r, uint32_t repeats, double *us, struct error *err)
{
    struct trial *t = r->trial;
    double best = INFINITY;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < SAMPLES && !status; i++) {
        uint64_t ns = 0;
        status = t->backend->event_record(t->begin, t->stream, err);
        for (uint32_t k = 0; k < repeats && !status; k++)
            status = launch(r, err);
        if (!status)
            status = settle(t, err);
        if (!status)
            status = t->backend->event_elapsed(t->begin, t->end, &ns, err);
        best = fmin(best, (double)ns / 1000 / repeats);
    }
    *us = best;
    return status;
}

/* --- the comparison --- */

static double difference(const struct ir_tensor *y, const void *have, const void *want)
{
    double sum = 0, norm = 0;
    for (uint64_t i = 0; i < elements(y); i++) {
        double a = layout_load(have, y->dtype, i), b = layout_load(want, y->dtype, i);
        if (isnan(a) != isnan(b) || (isinf(a) || isinf(b) ? a != b && !isnan(a) : false))
            return INFINITY;
        if (isnan(a) || isinf(a))
            continue;
        sum += (a - b) * (a - b);
        norm += b * b;
    }
    return sum == 0 ? 0 : sqrt(sum / norm);
}

/* An output in 8 bits. A step of the first output is many of one that is made of it, which is
 * compared with what follows from the numbers that are stored. */
static enum status compare_ranged(struct run *r, const struct subject *s, const struct ir_graph *g,
                                  uint32_t i, const float *have, double *error, struct error *err)
{
    const struct ir_tensor *y = ir_tensor(g, g->outputs[i]);
    size_t n = elements(y);
    float *kept = malloc(n * sizeof(*kept) + 1);
    if (!kept)
        return error_no_memory(err, "a test");
    bool follows = r->first && ranged_follows(s->graph, i);
    if (follows)
        ranged_follow(s->graph, r->first, kept);
    *error = ranged_error(ir_scale(g, y->scale), y->dtype, have, follows ? kept : s->want[i], n);
    if (i > 0) {
        free(kept);
        return STATUS_OK;
    }
    memcpy(kept, have, n * sizeof(*kept));
    free(r->first);
    r->first = kept;
    return STATUS_OK;
}

/* An output that is stored in a narrow type is compared with the reference before its last
 * rounding. */
static enum status compare_one(struct run *r, const struct subject *s, const struct ir_graph *g,
                               uint32_t i, double *error, struct error *err)
{
    const struct ir_tensor *y = ir_tensor(g, g->outputs[i]);
    const struct ir_tensor *want = ir_tensor(s->graph, s->graph->outputs[i]);
    const void *reference = s->want[i];
    enum status status = move(r->trial, COPY_TO_HOST, r->host, r->out[i], y->bytes + RED_ZONE, err);
    if (status)
        return status;
    for (uint32_t k = 0; k < RED_ZONE; k++)
        if (((unsigned char *)r->host)[y->bytes + k] != POISON)
            return error_set(err, STATUS_INTERNAL, "wrote %u bytes behind output %u", k + 1, i);
    if (!layout_padding_zero(y, r->host))
        return error_set(err, STATUS_INTERNAL, "output %u has padding that is not zero", i);
    void *have = malloc(want->bytes + 1);
    if (!have)
        return error_no_memory(err, "a test");
    const struct ir_scale *scale = ir_scale(g, y->scale);
    if (!scale)
        layout_unpack(y, r->host, want->dtype, have);
    else if (!value_load(g, y, r->host, have))
        status = error_no_memory(err, "a test");
    if (scale && !status)
        status = compare_ranged(r, s, g, i, have, error, err);
    else if (dtype_is_float(want->dtype))
        *error = difference(want, have, reference);
    else
        *error = memcmp(have, reference, want->bytes) ? INFINITY : 0;
    free(have);
    return status;
}

static enum status compare(struct run *r, const struct subject *s, const struct ir_graph *g,
                           struct outcome *out, struct error *err)
{
    enum status status = STATUS_OK;
    out->error = 0;
    for (uint32_t i = 0; i < r->n_out && !status; i++) {
        double error = NAN;
        status = compare_one(r, s, g, i, &error, err);
        if (!(error <= out->error))
            out->error = error;
    }
    return status;
}

/* Gets memory for the outputs and the workspace. */
static enum status get_outputs(struct run *r, const struct ir_graph *g, struct outcome *out,
                               struct error *err)
{
    const struct backend *backend = r->trial->backend;
    struct device *device = r->trial->device;
    uint64_t most = 0;
    enum status status = STATUS_OK;
    r->n_out = g->n_outputs;
    for (uint32_t i = 0; i < r->n_out && !status; i++) {
        r->bytes[i] = ir_tensor(g, g->outputs[i])->bytes;
        out->bytes += (double)r->bytes[i];
        most = MAX(most, r->bytes[i]);
        status = backend->memory_alloc(device, MEMORY_DEVICE, r->bytes[i] + RED_ZONE, "test",
                                       &r->out[i], err);
    }
    if (!(r->host = malloc(most + RED_ZONE)))
        return error_no_memory(err, "a test");
    return status ? status
                  : backend->memory_alloc(device, MEMORY_DEVICE, backend->op_workspace(r->op) + 1,
                                          "test", &r->workspace, err);
}

static enum status run_checked(struct run *r, const struct subject *s, const struct ir_graph *g,
                               uint32_t repeats, struct outcome *out, struct error *err)
{
    const struct backend *backend = r->trial->backend;
    enum status status = put_inputs(r, s, g, out, err);
    if (!status)
        status = get_outputs(r, g, out, err);
    if (!status)
        status = poison(r, err);
    if (!status)
        status = launch(r, err);
    if (!status && s->want[0])
        status = compare(r, s, g, out, err);
    /* Runs the op once more from a captured graph: the answer must not change. */
    if (!status && s->want[0] && backend->capture_begin) {
        struct outcome again = {0};
        double us;
        status = poison(r, err);
        if (!status)
            status = replay(r, 1, 1, &us, err);
        if (!status)
            status = compare(r, s, g, &again, err);
        if (!status && again.error > 2 * out->error + 1e-9)
            status = error_set(err, STATUS_INTERNAL, "another answer when captured: %g, not %g",
                               again.error, out->error);
    }
    if (!status && repeats)
        status = backend->capture_begin ? replay(r, repeats, SAMPLES, &out->us, err)
                                        : replay_plainly(r, repeats, &out->us, err);
    return status;
}

enum dtype trial_type(const struct ir_graph *graph, const struct tactic *tactic)
{
    enum dtype out = tactic->out[0].format.dtype, in = tactic->in[0].format.dtype;
    uint32_t x = ir_node(graph, 0)->n_inputs ? ir_node(graph, 0)->inputs[0] : IR_NONE;
    bool rounds = dtype_is_float(in) && x != IR_NONE && ir_tensor(graph, x)->dtype != in;
    if (!dtype_is_float(out))
        return tactic_float(tactic);
    return rounds && dtype_size(in) < dtype_size(out) ? in : out;
}

enum status trial_run(struct trial *trial, const struct subject *subject, struct ir_graph *graph,
                      const struct tactic *tactic, uint32_t repeats, struct outcome *out,
                      struct error *err)
{
    const struct backend *backend = trial->backend;
    struct run r = {.trial = trial};
    *out = (struct outcome){.error = NAN};
    round_constants(graph, subject->dtype);
    enum status status = apply(trial, graph, tactic, err);
    if (!status)
        status = backend->op_prepare(trial->stream, graph, ir_node(graph, 0), tactic, &r.op, err);
    if (!status)
        status = run_checked(&r, subject, graph, repeats, out, err);
    if (r.op) {
        settle(trial, NULL);
        backend->op_free(r.op);
    }
    for (uint32_t i = 0; i < IR_MAX_INPUTS; i++)
        if (r.in[i])
            backend->memory_free(trial->device, MEMORY_DEVICE, r.in[i]);
    for (uint32_t i = 0; i < r.n_out; i++)
        if (r.out[i])
            backend->memory_free(trial->device, MEMORY_DEVICE, r.out[i]);
    if (r.workspace)
        backend->memory_free(trial->device, MEMORY_DEVICE, r.workspace);
    free(r.host);
    free(r.first);
    return status;
}
