/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structure section -> struct plan, with nanopb callbacks. Every list has a limit, and all memory
 * is charged to a budget that grows with the section, so that a small file cannot ask for much.
 * This file only refuses what would not fit the structs; check.c checks the rest.
 */
#include <limits.h>
#include <string.h>

#include <pb_decode.h>

#include "engine/engine.h"
#include "engine/plan/format.h"
#include "plan.pb.h"

enum {
    BUDGET_BASE = 1 << 20,
    BUDGET_FACTOR = 64, /* a small node takes some 50 bytes in the file and 2.5 KiB in memory */
    ATTR_VALUES_MAX = 64,
};

struct decoder {
    struct plan *plan;
    struct ir_graph *graph; /* of the profile being read */
    struct arena *arena;    /* holds the strings that are read now: the plan's or the graph's */
    size_t budget;
    struct error *err;
    enum status status;
};

static bool fail(struct decoder *d, enum status status, const char *what)
{
    if (!d->status)
        d->status = error_set(d->err, status, "plan: %s", what);
    return false;
}

static bool charge(struct decoder *d, size_t bytes)
{
    if (bytes > d->budget)
        return fail(d, STATUS_DATA_LOSS, "the structure takes more memory than its size allows");
    d->budget -= bytes;
    return true;
}

static void *take(struct decoder *d, size_t count, size_t size)
{
    if (count > SIZE_MAX / size || !charge(d, count * size))
        return NULL;
    void *p = arena_array(d->arena, count, size);
    if (!p)
        fail(d, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    return p;
}

/* --- scalars and strings --- */

struct text {
    struct decoder *d;
    const char *value;
};

static bool on_text(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct text *text = *arg;
    size_t len = in->bytes_left;
    char *copy = take(text->d, len + 1, 1);
    if (!copy || !pb_read(in, (pb_byte_t *)copy, len))
        return false;
    copy[len] = '\0';
    if (strlen(copy) != len)
        return fail(text->d, STATUS_DATA_LOSS, "a zero byte in a name");
    text->value = copy;
    return true;
}

#define TEXT(var)                                                                                  \
    {                                                                                              \
        .funcs.decode = on_text, .arg = &(var)                                                     \
    }

struct dims {
    struct decoder *d;
    struct shape shape;
};

static bool on_dims(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct dims *dims = *arg;
    while (in->bytes_left) {
        int64_t v;
        if (!pb_decode_svarint(in, &v))
            return false;
        if (dims->shape.rank == SHAPE_MAX_RANK)
            return fail(dims->d, STATUS_DATA_LOSS, "a shape of more than 8 dimensions");
        dims->shape.dim[dims->shape.rank++] = v;
    }
    return true;
}

/* A bounded list of uint32. */
struct list {
    struct decoder *d;
    uint32_t n, max;
    uint32_t *values;
};

static bool on_list(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct list *list = *arg;
    while (in->bytes_left) {
        uint32_t v;
        if (!pb_decode_varint32(in, &v))
            return false;
        if (list->n == list->max)
            return fail(list->d, STATUS_DATA_LOSS, "a list is longer than its limit");
        list->values[list->n++] = v;
    }
    return true;
}

/* --- nodes --- */

struct node_stage {
    struct decoder *d;
    uint32_t inputs[IR_MAX_INPUTS], outputs[IR_MAX_OUTPUTS];
    uint32_t n_attrs, n_epilogue;
    struct ir_attr attrs[IR_ATTR_COUNT_];
    struct ir_epilogue epilogue[IR_MAX_EPILOGUE];
    struct tactic *tactic;
};

struct attr_values {
    struct decoder *d;
    uint32_t n_ints, n_floats;
    int64_t ints[ATTR_VALUES_MAX];
    float floats[ATTR_VALUES_MAX];
};

static bool on_attr_ints(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct attr_values *values = *arg;
    while (in->bytes_left) {
        if (values->n_ints == ATTR_VALUES_MAX)
            return fail(values->d, STATUS_DATA_LOSS, "an attribute of more than 64 values");
        if (!pb_decode_svarint(in, &values->ints[values->n_ints++]))
            return false;
    }
    return true;
}

static bool on_attr_floats(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct attr_values *values = *arg;
    while (in->bytes_left) {
        if (values->n_floats == ATTR_VALUES_MAX)
            return fail(values->d, STATUS_DATA_LOSS, "an attribute of more than 64 values");
        if (!pb_decode_fixed32(in, &values->floats[values->n_floats++]))
            return false;
    }
    return true;
}

static bool on_attr(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct node_stage *stage = *arg;
    struct decoder *d = stage->d;
    struct attr_values values = {.d = d};
    inferd_plan_Attr msg = {.ints = {.funcs.decode = on_attr_ints, .arg = &values},
                            .floats = {.funcs.decode = on_attr_floats, .arg = &values}};
    if (!pb_decode(in, inferd_plan_Attr_fields, &msg))
        return false;
    if (stage->n_attrs == ARRAY_LEN(stage->attrs))
        return fail(d, STATUS_DATA_LOSS, "a node with too many attributes");
    if (msg.key == IR_ATTR_NONE || msg.key >= IR_ATTR_COUNT_)
        return fail(d, STATUS_DATA_LOSS, "an attribute of an unknown kind");
    struct ir_attr *attr = &stage->attrs[stage->n_attrs];
    *attr = (struct ir_attr){.key = (enum ir_attr_key)msg.key, .is_float = msg.is_float};
    attr->count = msg.is_float ? values.n_floats : values.n_ints;
    size_t size = msg.is_float ? sizeof(float) : sizeof(int64_t);
    void *copy = take(d, attr->count, size);
    if (!copy)
        return false;
    memcpy(copy, msg.is_float ? (const void *)values.floats : (const void *)values.ints,
           attr->count * size);
    if (msg.is_float)
        attr->f = copy;
    else
        attr->i = copy;
    stage->n_attrs++;
    return true;
}

static bool on_epilogue(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct node_stage *stage = *arg;
    inferd_plan_Epilogue msg = inferd_plan_Epilogue_init_zero;
    if (!pb_decode(in, inferd_plan_Epilogue_fields, &msg))
        return false;
    if (stage->n_epilogue == IR_MAX_EPILOGUE || msg.kind > IR_EPILOGUE_BINARY)
        return fail(stage->d, STATUS_DATA_LOSS, "a bad epilogue");
    stage->epilogue[stage->n_epilogue++] = (struct ir_epilogue){
        .kind = (enum ir_epilogue_kind)msg.kind,
        .func = msg.func,
        .alpha = msg.alpha,
        .beta = msg.beta,
        .gamma = msg.gamma,
        .input = msg.input,
    };
    return true;
}

static bool format_get(struct decoder *d, const inferd_plan_Format *msg, struct ir_format *out)
{
    if (msg->layout >= IR_LAYOUT_COUNT_ || msg->dtype >= DTYPE_COUNT_)
        return fail(d, STATUS_DATA_LOSS, "a format of an unknown layout or type");
    *out = (struct ir_format){(enum ir_layout)msg->layout, (enum dtype)msg->dtype, msg->scale};
    return true;
}

struct ports {
    struct decoder *d;
    uint32_t *n, max;
    struct tactic_port *ports;
};

static bool on_port(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct ports *ports = *arg;
    inferd_plan_Port msg = inferd_plan_Port_init_zero;
    if (!pb_decode(in, inferd_plan_Port_fields, &msg))
        return false;
    if (*ports->n == ports->max)
        return fail(ports->d, STATUS_DATA_LOSS, "a tactic with too many ports");
    struct tactic_port *port = &ports->ports[(*ports->n)++];
    port->packed_bytes = msg.packed_bytes;
    return format_get(ports->d, &msg.format, &port->format);
}

static bool on_blob(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct node_stage *stage = *arg;
    if (in->bytes_left > TACTIC_BLOB_MAX)
        return fail(stage->d, STATUS_DATA_LOSS, "a tactic's data is too long");
    stage->tactic->blob_size = (uint32_t)in->bytes_left;
    return pb_read(in, stage->tactic->blob, in->bytes_left);
}

static bool on_tactic(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct node_stage *stage = *arg;
    struct decoder *d = stage->d;
    if (stage->tactic)
        return fail(d, STATUS_DATA_LOSS, "a node with two tactics");
    struct tactic *tactic = stage->tactic = take(d, 1, sizeof(*tactic));
    if (!tactic)
        return false;
    struct text backend = {.d = d, .value = ""}, name = {.d = d, .value = ""};
    struct ports inputs = {d, &tactic->n_in, TACTIC_PORTS_MAX, tactic->in};
    struct ports outputs = {d, &tactic->n_out, IR_MAX_OUTPUTS, tactic->out};
    inferd_plan_Tactic msg = {
        .backend = TEXT(backend),
        .name = TEXT(name),
        .blob = {.funcs.decode = on_blob, .arg = stage},
        .in = {.funcs.decode = on_port, .arg = &inputs},
        .out = {.funcs.decode = on_port, .arg = &outputs},
    };
    if (!pb_decode(in, inferd_plan_Tactic_fields, &msg))
        return false;
    if (strlen(name.value) >= TACTIC_NAME_MAX)
        return fail(d, STATUS_DATA_LOSS, "a tactic's name is too long");
    tactic->backend = backend.value;
    memcpy(tactic->name, name.value, strlen(name.value) + 1);
    tactic->id = msg.id;
    if (msg.code_size == 0)
        return true;
    if (msg.code_size > d->plan->code_bytes ||
        msg.code_offset > d->plan->code_bytes - msg.code_size)
        return fail(d, STATUS_DATA_LOSS, "a tactic's code outside its section");
    tactic->code = (const char *)d->plan->code + msg.code_offset;
    tactic->code_size = msg.code_size;
    return true;
}

/* Connects the node's outputs, which must be tensors that no node has produced yet. */
static bool connect_outputs(struct decoder *d, uint32_t id, const struct list *outputs)
{
    struct ir_node *node = ir_node(d->graph, id);
    for (uint32_t i = 0; i < outputs->n; i++) {
        uint32_t t = outputs->values[i];
        if (t >= d->graph->n_tensors || ir_tensor(d->graph, t)->producer != IR_NONE)
            return fail(d, STATUS_DATA_LOSS, "a node's output is no free tensor");
        node->outputs[i] = t;
        ir_tensor(d->graph, t)->producer = id;
    }
    node->n_outputs = outputs->n;
    return true;
}

static bool node_add(struct node_stage *stage, const inferd_plan_Node *msg, const char *name,
                     struct list *inputs, const struct list *outputs)
{
    struct decoder *d = stage->d;
    if (msg->op == IR_OP_NONE || msg->op >= IR_OP_COUNT_)
        return fail(d, STATUS_DATA_LOSS, "a node of an unknown op");
    for (uint32_t i = 0; i < inputs->n; i++)
        if (inputs->values[i]-- > d->graph->n_tensors) /* 0 becomes IR_NONE */
            return fail(d, STATUS_DATA_LOSS, "a node's input is no tensor");
    struct ir_attr *attrs = take(d, stage->n_attrs, sizeof(*attrs));
    if (!attrs || !charge(d, sizeof(struct ir_node) + inputs->n * sizeof(uint32_t)))
        return false;
    uint32_t id = ir_node_add(d->graph, (enum ir_op)msg->op, name, inputs->n, inputs->values);
    if (id == IR_NONE)
        return fail(d, STATUS_RESOURCE_EXHAUSTED, "too many nodes, or out of memory");
    struct ir_node *node = ir_node(d->graph, id);
    memcpy(attrs, stage->attrs, stage->n_attrs * sizeof(*attrs));
    node->attrs = attrs;
    node->n_attrs = stage->n_attrs;
    memcpy(node->epilogue, stage->epilogue, sizeof(node->epilogue));
    node->n_epilogue = stage->n_epilogue;
    node->tactic = stage->tactic;
    node->workspace_offset = msg->workspace_offset;
    node->workspace_bytes = msg->workspace_bytes;
    node->time_ns = msg->time_ns;
    return connect_outputs(d, id, outputs);
}

static bool on_node(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct node_stage stage = {.d = d};
    struct text name = {.d = d, .value = ""};
    struct list inputs = {.d = d, .max = IR_MAX_INPUTS, .values = stage.inputs};
    struct list outputs = {.d = d, .max = IR_MAX_OUTPUTS, .values = stage.outputs};
    inferd_plan_Node msg = {
        .name = TEXT(name),
        .inputs = {.funcs.decode = on_list, .arg = &inputs},
        .outputs = {.funcs.decode = on_list, .arg = &outputs},
        .attrs = {.funcs.decode = on_attr, .arg = &stage},
        .epilogue = {.funcs.decode = on_epilogue, .arg = &stage},
        .tactic = {.funcs.decode = on_tactic, .arg = &stage},
    };
    return pb_decode(in, inferd_plan_Node_fields, &msg) &&
           node_add(&stage, &msg, name.value, &inputs, &outputs);
}

/* --- tensors, segments, profiles --- */

static bool on_tensor(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct text name = {.d = d, .value = ""};
    struct dims dims = {.d = d};
    inferd_plan_Tensor msg = {
        .name = TEXT(name),
        .dim = {.funcs.decode = on_dims, .arg = &dims},
    };
    struct ir_format format;
    size_t bytes;
    if (!pb_decode(in, inferd_plan_Tensor_fields, &msg) || !charge(d, sizeof(struct ir_tensor)) ||
        !format_get(d, &msg.format, &format))
        return false;
    if (format.dtype == DTYPE_NONE || msg.real >= DTYPE_COUNT_ || msg.place > IR_PLACE_ARENA ||
        !shape_bytes(&dims.shape, format.dtype, &bytes))
        return fail(d, STATUS_DATA_LOSS, "a tensor of a bad type, shape or place");
    uint32_t id = ir_tensor_add(d->graph, name.value, format.dtype, &dims.shape);
    if (id == IR_NONE)
        return fail(d, STATUS_RESOURCE_EXHAUSTED, "too many tensors, or out of memory");
    struct ir_tensor *t = ir_tensor(d->graph, id);
    t->format = format;
    t->real = (enum dtype)msg.real;
    t->range = format.scale;
    t->place = (enum ir_place)msg.place;
    t->alias_of = msg.alias_of - 1; /* 0 becomes IR_NONE */
    t->offset = msg.offset;
    t->bytes = msg.bytes;
    t->part = msg.part;
    if (t->place == IR_PLACE_CONSTANT) {
        const struct plan *plan = d->plan;
        if (t->bytes > plan->weight_bytes || t->offset > plan->weight_bytes - t->bytes)
            return fail(d, STATUS_DATA_LOSS, "a constant outside the weight section");
        t->data = (const char *)plan->weights + t->offset;
    }
    return true;
}

/* A packed list of four-byte numbers, which must come in one piece. */
struct words {
    struct decoder *d;
    uint32_t n;
    void *values;
};

static bool on_words(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct words *words = *arg;
    if (words->values || in->bytes_left == 0 || in->bytes_left % 4)
        return fail(words->d, STATUS_DATA_LOSS, "a list of numbers in pieces");
    words->n = (uint32_t)(in->bytes_left / 4);
    uint32_t *values = words->values = take(words->d, words->n, sizeof(*values));
    for (uint32_t i = 0; values && i < words->n; i++)
        if (!pb_decode_fixed32(in, &values[i]))
            return false;
    return values != NULL;
}

static bool on_scale(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct words step = {.d = d}, zero = {.d = d};
    inferd_plan_Scale msg = {.step = {.funcs.decode = on_words, .arg = &step},
                             .zero = {.funcs.decode = on_words, .arg = &zero}};
    if (!pb_decode(in, inferd_plan_Scale_fields, &msg))
        return false;
    if (step.n == 0 || (zero.n && zero.n != step.n) || msg.dtype >= DTYPE_COUNT_)
        return fail(d, STATUS_DATA_LOSS, "a scale without steps, or with other zeros than steps");
    const struct ir_scale scale = {.n = step.n,
                                   .axis = msg.axis,
                                   .dtype = (enum dtype)msg.dtype,
                                   .step = step.values,
                                   .zero = zero.values};
    if (!charge(d, sizeof(scale) + 2 * sizeof(float) * scale.n))
        return false;
    return ir_scale_add(d->graph, &scale) != IR_NO_SCALE ||
           fail(d, STATUS_RESOURCE_EXHAUSTED, "too many scales, or out of memory");
}

static bool on_segment(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct ir_graph *g = d->graph;
    struct text backend = {.d = d, .value = ""};
    inferd_plan_Segment msg = {.backend = TEXT(backend)};
    if (!pb_decode(in, inferd_plan_Segment_fields, &msg))
        return false;
    if (g->n_segments == PLAN_MAX_SEGMENTS)
        return fail(d, STATUS_DATA_LOSS, "too many segments");
    if (!g->segments && !(g->segments = take(d, PLAN_MAX_SEGMENTS, sizeof(*g->segments))))
        return false;
    g->segments[g->n_segments++] = (struct ir_segment){
        .backend = backend.value,
        .first = msg.first,
        .count = msg.count,
        .arena_bytes = msg.arena_bytes,
    };
    return true;
}

struct bodies {
    struct decoder *d;
    struct plan_body *list; /* PLAN_MAX_BODIES of them, or NULL until there is one */
    uint32_t n;
};

static bool on_body(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct bodies *b = *arg;
    inferd_plan_Body msg = inferd_plan_Body_init_zero;
    if (!pb_decode(in, inferd_plan_Body_fields, &msg))
        return false;
    if (b->n == PLAN_MAX_BODIES)
        return fail(b->d, STATUS_DATA_LOSS, "too many bodies of loops");
    if (!b->list && charge(b->d, PLAN_MAX_BODIES * sizeof(*b->list)))
        b->list = arena_array(b->d->plan->arena, PLAN_MAX_BODIES, sizeof(*b->list));
    if (!b->list)
        return fail(b->d, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    b->list[b->n++] =
        (struct plan_body){msg.offset, msg.size, msg.weights_offset, msg.weights_size};
    return true;
}

static bool on_profile(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct plan *plan = d->plan;
    if (plan->n_profiles == PLAN_MAX_PROFILES)
        return fail(d, STATUS_DATA_LOSS, "too many profiles");
    struct ir_graph *graph = ir_graph_new();
    if (!graph)
        return fail(d, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    plan->profiles[plan->n_profiles++].graph = graph; /* the plan owns it from here on */
    d->graph = graph;
    d->arena = graph->arena;
    struct list inputs = {.d = d, .max = IR_MAX_IO, .values = graph->inputs};
    struct list outputs = {.d = d, .max = IR_MAX_IO, .values = graph->outputs};
    struct dims values = {.d = d};
    struct bodies bodies = {.d = d};
    inferd_plan_Profile msg = {
        .tensors = {.funcs.decode = on_tensor, .arg = d},
        .nodes = {.funcs.decode = on_node, .arg = d},
        .segments = {.funcs.decode = on_segment, .arg = d},
        .inputs = {.funcs.decode = on_list, .arg = &inputs},
        .outputs = {.funcs.decode = on_list, .arg = &outputs},
        .scales = {.funcs.decode = on_scale, .arg = d},
        .values = {.funcs.decode = on_dims, .arg = &values},
        .bodies = {.funcs.decode = on_body, .arg = &bodies},
    };
    bool ok = pb_decode(in, inferd_plan_Profile_fields, &msg);
    d->arena = plan->arena;
    graph->n_inputs = inputs.n;
    graph->n_outputs = outputs.n;
    struct plan_profile *p = &plan->profiles[plan->n_profiles - 1];
    p->batch = msg.batch;
    p->tensor_bytes = msg.tensor_bytes;
    p->tail_offset = msg.tail_offset;
    p->tail_size = msg.tail_size;
    p->bodies = bodies.list;
    p->n_bodies = bodies.n;
    memcpy(p->values, values.shape.dim, values.shape.rank * sizeof(p->values[0]));
    return ok;
}

/* --- exactness --- */

struct exactness_stage {
    struct decoder *d;
    struct plan_exactness *e;
    struct plan_held *held; /* PLAN_MAX_HELD of them, or NULL until there is one */
};

static bool on_output_error(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct exactness_stage *stage = *arg;
    struct plan_exactness *e = stage->e;
    inferd_plan_OutputError msg = inferd_plan_OutputError_init_zero;
    if (!pb_decode(in, inferd_plan_OutputError_fields, &msg))
        return false;
    if (e->n_outputs == IR_MAX_IO)
        return fail(stage->d, STATUS_DATA_LOSS, "errors of too many outputs");
    e->outputs[e->n_outputs].error = msg.error;
    e->outputs[e->n_outputs++].agreement = msg.classes ? msg.agreement : -1;
    return true;
}

static bool on_held(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct exactness_stage *stage = *arg;
    struct text layer = {.d = stage->d, .value = ""};
    inferd_plan_Held msg = {.layer = TEXT(layer)};
    if (!pb_decode(in, inferd_plan_Held_fields, &msg))
        return false;
    if (stage->e->n_held == PLAN_MAX_HELD || msg.dtype >= DTYPE_COUNT_)
        return fail(stage->d, STATUS_DATA_LOSS, "a bad layer that is held back, or too many");
    if (!stage->held && !(stage->held = take(stage->d, PLAN_MAX_HELD, sizeof(*stage->held))))
        return false;
    stage->held[stage->e->n_held++] =
        (struct plan_held){layer.value, (enum dtype)msg.dtype, msg.error};
    return true;
}

static bool on_exactness(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct plan_exactness *e = &d->plan->exactness;
    struct exactness_stage stage = {.d = d, .e = e};
    inferd_plan_Exactness msg = {
        .outputs = {.funcs.decode = on_output_error, .arg = &stage},
        .held = {.funcs.decode = on_held, .arg = &stage},
    };
    if (e->measured)
        return fail(d, STATUS_DATA_LOSS, "two measurements of exactness");
    if (!pb_decode(in, inferd_plan_Exactness_fields, &msg))
        return false;
    e->measured = true;
    e->data = msg.data;
    e->samples = msg.samples;
    e->bound = msg.bound;
    e->held = stage.held;
    return true;
}

/* --- the whole --- */

struct bindings {
    struct decoder *d;
    uint32_t *n;
    struct plan_binding *list;
    struct plan_axes *axes;
};

/* The axes of a binding of that rank; `free` holds as many numbers, or none. */
static bool axes_of(const inferd_plan_Binding *msg, const struct list *free, uint32_t rank,
                    struct plan_axes *out)
{
    *out = (struct plan_axes){
        .shared = msg->shared, .mask = (uint8_t)msg->mask, .role = (uint8_t)msg->role};
    if (msg->batch > SHAPE_MAX_RANK || msg->mask >= ENGINE_MASKS || msg->role >= PLAN_ROLE_COUNT_ ||
        (free->n && free->n != rank))
        return false;
    out->batch = (uint8_t)(msg->batch ? msg->batch - 1 : 0);
    for (uint32_t d = 0; d < free->n; d++) {
        if (free->values[d] > PLAN_MAX_FREE)
            return false;
        out->free[d] = (uint8_t)free->values[d];
    }
    return true;
}

static bool on_binding(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct bindings *b = *arg;
    struct text name = {.d = b->d, .value = ""};
    struct dims dims = {.d = b->d};
    uint32_t numbers[SHAPE_MAX_RANK];
    struct list free = {.d = b->d, .max = SHAPE_MAX_RANK, .values = numbers};
    struct plan_axes axes;
    inferd_plan_Binding msg = {
        .name = TEXT(name),
        .dim = {.funcs.decode = on_dims, .arg = &dims},
        .free = {.funcs.decode = on_list, .arg = &free},
    };
    if (!pb_decode(in, inferd_plan_Binding_fields, &msg))
        return false;
    if (*b->n == IR_MAX_IO || msg.dtype >= DTYPE_COUNT_ || msg.dtype == DTYPE_F8 ||
        !axes_of(&msg, &free, dims.shape.rank, &axes))
        return fail(b->d, STATUS_DATA_LOSS, "a bad binding, or too many");
    b->axes[*b->n] = axes;
    b->list[(*b->n)++] = (struct plan_binding){
        .name = name.value,
        .dtype = (enum dtype)msg.dtype,
        .shape = dims.shape,
    };
    return true;
}

static bool on_free(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct plan *plan = d->plan;
    struct text name = {.d = d, .value = ""};
    inferd_plan_Free msg = {.name = TEXT(name)};
    if (!pb_decode(in, inferd_plan_Free_fields, &msg))
        return false;
    if (plan->n_free == PLAN_MAX_FREE)
        return fail(d, STATUS_DATA_LOSS, "too many free dimensions");
    plan->free[plan->n_free++] = (struct plan_free){name.value, msg.low, msg.high, msg.pads};
    return true;
}

static bool on_ragged(pb_istream_t *in, const pb_field_t *field UNUSED, void **arg)
{
    struct decoder *d = *arg;
    struct plan_ragged *r = &d->plan->ragged;
    struct text mask = {.d = d, .value = ""};
    inferd_plan_Ragged msg = {.mask = TEXT(mask)};
    if (r->max_length)
        return fail(d, STATUS_DATA_LOSS, "two lengths of sequences");
    if (!pb_decode(in, inferd_plan_Ragged_fields, &msg))
        return false;
    if (msg.max_length < 1 || msg.mask_dtype >= DTYPE_COUNT_)
        return fail(d, STATUS_DATA_LOSS, "sequences of no length, or a mask of no type");
    *r = (struct plan_ragged){
        .max_length = msg.max_length,
        .mask = *mask.value ? mask.value : NULL,
        .mask_type = (enum dtype)msg.mask_dtype,
        .mask_at = msg.mask_at,
    };
    return true;
}

enum status plan_decode(struct plan *plan, const void *data, size_t size, struct error *err)
{
    struct decoder d = {
        .plan = plan,
        .arena = plan->arena,
        .budget = BUDGET_BASE + BUDGET_FACTOR * size,
        .err = err,
    };
    struct text name = {.d = &d, .value = ""};
    struct bindings inputs = {&d, &plan->n_inputs, plan->inputs, plan->input_axes};
    struct bindings outputs = {&d, &plan->n_outputs, plan->outputs, plan->output_axes};
    struct plan_axes no_axes[IR_MAX_IO]; /* a tail's outputs have none */
    struct bindings late = {&d, &plan->n_late, plan->late, no_axes};
    inferd_plan_Plan msg = {
        .name = TEXT(name),
        .inputs = {.funcs.decode = on_binding, .arg = &inputs},
        .outputs = {.funcs.decode = on_binding, .arg = &outputs},
        .profiles = {.funcs.decode = on_profile, .arg = &d},
        .exactness = {.funcs.decode = on_exactness, .arg = &d},
        .free = {.funcs.decode = on_free, .arg = &d},
        .late = {.funcs.decode = on_binding, .arg = &late},
        .ragged = {.funcs.decode = on_ragged, .arg = &d},
    };
    pb_istream_t in = pb_istream_from_buffer(data, size);
    if (!pb_decode(&in, inferd_plan_Plan_fields, &msg)) {
        fail(&d, STATUS_DATA_LOSS, PB_GET_ERROR(&in));
        return d.status;
    }
    plan->name = name.value;
    plan->batched = msg.batched;
    return STATUS_OK;
}
