/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct plan -> structure section, the mirror of decode.c. nanopb encodes submessages twice, once
 * to learn their size; the section is small enough for that.
 */
#include <stdlib.h>
#include <string.h>

#include <pb_encode.h>

#include "engine/plan/format.h"
#include "plan.pb.h"

static bool put_text(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const char *text = *arg;
    return !*text || (pb_encode_tag_for_field(out, field) &&
                      pb_encode_string(out, (const pb_byte_t *)text, strlen(text)));
}

/* nanopb keeps a callback's argument as a plain pointer; encoders only read through it. */
static void *encode_arg(const void *arg)
{
    return (void *)(uintptr_t)arg;
}

#define ENCODE(fn, what)                                                                           \
    {                                                                                              \
        .funcs.encode = (fn), .arg = encode_arg(what)                                              \
    }

static bool put_message(pb_ostream_t *out, const pb_field_t *field, const pb_msgdesc_t *fields,
                        const void *msg)
{
    return pb_encode_tag_for_field(out, field) && pb_encode_submessage(out, fields, msg);
}

static bool put_dims(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct shape *shape = *arg;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (!pb_encode_tag(out, PB_WT_VARINT, field->tag) || !pb_encode_svarint(out, shape->dim[i]))
            return false;
    return true;
}

struct list {
    uint32_t n;
    const uint32_t *values;
    uint32_t add; /* 1 where 0 stands for "absent" */
};

static bool put_list(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct list *list = *arg;
    for (uint32_t i = 0; i < list->n; i++)
        if (!pb_encode_tag(out, PB_WT_VARINT, field->tag) ||
            !pb_encode_varint(out, (uint32_t)(list->values[i] + list->add)))
            return false;
    return true;
}

static bool put_ints(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_attr *attr = *arg;
    for (uint32_t i = 0; !attr->is_float && i < attr->count; i++)
        if (!pb_encode_tag(out, PB_WT_VARINT, field->tag) || !pb_encode_svarint(out, attr->i[i]))
            return false;
    return true;
}

static bool put_floats(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_attr *attr = *arg;
    for (uint32_t i = 0; attr->is_float && i < attr->count; i++)
        if (!pb_encode_tag(out, PB_WT_32BIT, field->tag) || !pb_encode_fixed32(out, &attr->f[i]))
            return false;
    return true;
}

static bool put_attrs(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_node *node = *arg;
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const struct ir_attr *attr = &node->attrs[i];
        inferd_plan_Attr msg = {
            .key = attr->key,
            .is_float = attr->is_float,
            .ints = ENCODE(put_ints, attr),
            .floats = ENCODE(put_floats, attr),
        };
        if (!put_message(out, field, inferd_plan_Attr_fields, &msg))
            return false;
    }
    return true;
}

static bool put_epilogue(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_node *node = *arg;
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *e = &node->epilogue[i];
        inferd_plan_Epilogue msg = {e->kind, e->func, e->alpha, e->beta, e->gamma, e->input};
        if (!put_message(out, field, inferd_plan_Epilogue_fields, &msg))
            return false;
    }
    return true;
}

static inferd_plan_Format format_of(struct ir_format format)
{
    return (inferd_plan_Format){format.layout, format.dtype, format.scale};
}

struct ports {
    uint32_t n;
    const struct tactic_port *list;
};

static bool put_ports(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ports *ports = *arg;
    for (uint32_t i = 0; i < ports->n; i++) {
        inferd_plan_Port msg = {true, format_of(ports->list[i].format),
                                ports->list[i].packed_bytes};
        if (!put_message(out, field, inferd_plan_Port_fields, &msg))
            return false;
    }
    return true;
}

static bool put_blob(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct tactic *tactic = *arg;
    return !tactic->blob_size || (pb_encode_tag_for_field(out, field) &&
                                  pb_encode_string(out, tactic->blob, tactic->blob_size));
}

struct tactic_arg {
    const struct tactic *tactic;
    uint64_t code_offset;
};

static bool put_tactic(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct tactic_arg *t = *arg;
    const struct tactic *tactic = t->tactic;
    if (!tactic)
        return true;
    struct ports inputs = {tactic->n_in, tactic->in}, outputs = {tactic->n_out, tactic->out};
    inferd_plan_Tactic msg = {
        .backend = ENCODE(put_text, tactic->backend),
        .name = ENCODE(put_text, tactic->name),
        .id = tactic->id,
        .blob = ENCODE(put_blob, tactic),
        .in = ENCODE(put_ports, &inputs),
        .out = ENCODE(put_ports, &outputs),
        .code_offset = t->code_offset,
        .code_size = tactic->code_size,
    };
    return put_message(out, field, inferd_plan_Tactic_fields, &msg);
}

struct profile_arg {
    const struct plan_profile *profile;
    const uint64_t *constants; /* offsets by tensor */
    const uint64_t *code;      /* offsets by node */
};

static bool put_nodes(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct profile_arg *p = *arg;
    const struct ir_graph *graph = p->profile->graph;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        struct list inputs = {node->n_inputs, node->inputs, 1};
        struct list outputs = {node->n_outputs, node->outputs, 0};
        struct tactic_arg tactic = {node->tactic, p->code[i]};
        inferd_plan_Node msg = {
            .op = node->op,
            .name = ENCODE(put_text, node->name),
            .inputs = ENCODE(put_list, &inputs),
            .outputs = ENCODE(put_list, &outputs),
            .attrs = ENCODE(put_attrs, node),
            .epilogue = ENCODE(put_epilogue, node),
            .tactic = ENCODE(put_tactic, &tactic),
            .workspace_offset = node->workspace_offset,
            .workspace_bytes = node->workspace_bytes,
            .time_ns = node->time_ns,
        };
        if (!put_message(out, field, inferd_plan_Node_fields, &msg))
            return false;
    }
    return true;
}

static bool put_tensors(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct profile_arg *p = *arg;
    for (uint32_t i = 0; i < p->profile->graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(p->profile->graph, i);
        inferd_plan_Tensor msg = {
            .name = ENCODE(put_text, t->name),
            .has_format = true,
            .format = format_of(t->format),
            .dim = ENCODE(put_dims, &t->shape),
            .real = t->real,
            .place = t->place,
            .alias_of = t->alias_of + 1,
            .offset = t->place == IR_PLACE_CONSTANT ? p->constants[i] : t->offset,
            .bytes = t->bytes,
            .part = t->part,
        };
        if (!put_message(out, field, inferd_plan_Tensor_fields, &msg))
            return false;
    }
    return true;
}

static bool put_segments(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_graph *graph = *arg;
    for (uint32_t i = 0; i < graph->n_segments; i++) {
        const struct ir_segment *s = &graph->segments[i];
        inferd_plan_Segment msg = {
            .backend = ENCODE(put_text, s->backend),
            .first = s->first,
            .count = s->count,
            .arena_bytes = s->arena_bytes,
        };
        if (!put_message(out, field, inferd_plan_Segment_fields, &msg))
            return false;
    }
    return true;
}

/* Writes a packed field: the length, then four bytes for each step. */
static bool put_steps(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_scale *s = *arg;
    bool ok = pb_encode_tag(out, PB_WT_STRING, field->tag) && pb_encode_varint(out, 4ULL * s->n);
    for (uint32_t i = 0; i < s->n && ok; i++)
        ok = pb_encode_fixed32(out, &s->step[i]);
    return ok;
}

static bool put_zeros(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_scale *s = *arg;
    bool ok = !s->zero ||
              (pb_encode_tag(out, PB_WT_STRING, field->tag) && pb_encode_varint(out, 4ULL * s->n));
    for (uint32_t i = 0; s->zero && i < s->n && ok; i++)
        ok = pb_encode_fixed32(out, &s->zero[i]);
    return ok;
}

static bool put_scales(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct ir_graph *graph = *arg;
    for (uint32_t i = 0; i < graph->n_scales; i++) {
        const struct ir_scale *s = &graph->scales[i];
        inferd_plan_Scale msg = {s->axis, ENCODE(put_steps, s), ENCODE(put_zeros, s), s->dtype};
        if (!put_message(out, field, inferd_plan_Scale_fields, &msg))
            return false;
    }
    return true;
}

struct plan_arg {
    const struct plan *plan;
    const struct plan_offsets *offsets;
};

static bool put_bodies(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_profile *p = *arg;
    for (uint32_t i = 0; i < p->n_bodies; i++) {
        inferd_plan_Body msg = {.offset = p->bodies[i].offset,
                                .size = p->bodies[i].size,
                                .weights_offset = p->bodies[i].weights_offset,
                                .weights_size = p->bodies[i].weights_size};
        if (!put_message(out, field, inferd_plan_Body_fields, &msg))
            return false;
    }
    return true;
}

static bool put_profiles(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_arg *p = *arg;
    for (uint32_t i = 0; i < p->plan->n_profiles; i++) {
        const struct ir_graph *graph = p->plan->profiles[i].graph;
        struct profile_arg profile = {&p->plan->profiles[i], p->offsets->constants[i],
                                      p->offsets->code[i]};
        struct list inputs = {graph->n_inputs, graph->inputs, 0};
        struct list outputs = {graph->n_outputs, graph->outputs, 0};
        struct shape values = {.rank = p->plan->n_free};
        memcpy(values.dim, p->plan->profiles[i].values, sizeof(p->plan->profiles[i].values));
        inferd_plan_Profile msg = {
            .batch = p->plan->profiles[i].batch,
            .tensors = ENCODE(put_tensors, &profile),
            .nodes = ENCODE(put_nodes, &profile),
            .segments = ENCODE(put_segments, graph),
            .inputs = ENCODE(put_list, &inputs),
            .outputs = ENCODE(put_list, &outputs),
            .tensor_bytes = p->plan->profiles[i].tensor_bytes,
            .scales = ENCODE(put_scales, graph),
            .values = ENCODE(put_dims, &values),
            .tail_offset = p->plan->profiles[i].tail_offset,
            .tail_size = p->plan->profiles[i].tail_size,
            .bodies = ENCODE(put_bodies, &p->plan->profiles[i]),
        };
        if (!put_message(out, field, inferd_plan_Profile_fields, &msg))
            return false;
    }
    return true;
}

_Static_assert((int)PLAN_MAX_FREE == (int)SHAPE_MAX_RANK, "values are encoded as a shape's");

struct bindings {
    uint32_t n;
    const struct plan_binding *list;
    const struct plan_axes *axes;
};

static bool has_free(const struct plan_axes *axes, uint32_t rank)
{
    bool any = false;
    for (uint32_t d = 0; d < rank; d++)
        any |= axes->free[d] != 0;
    return any;
}

static bool put_bindings(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct bindings *b = *arg;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct plan_axes *axes = &b->axes[i];
        uint32_t numbers[SHAPE_MAX_RANK];
        for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
            numbers[d] = axes->free[d];
        uint32_t rank = b->list[i].shape.rank;
        struct list free = {has_free(axes, rank) ? rank : 0, numbers, 0};
        inferd_plan_Binding msg = {
            .name = ENCODE(put_text, b->list[i].name),
            .dtype = b->list[i].dtype,
            .dim = ENCODE(put_dims, &b->list[i].shape),
            .batch = axes->batch ? axes->batch + 1u : 0,
            .shared = axes->shared,
            .free = ENCODE(put_list, &free),
            .mask = axes->mask,
            .role = axes->role,
        };
        if (!put_message(out, field, inferd_plan_Binding_fields, &msg))
            return false;
    }
    return true;
}

static bool put_output_errors(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_exactness *e = *arg;
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        bool classes = e->outputs[i].agreement >= 0;
        inferd_plan_OutputError msg = {e->outputs[i].error, classes,
                                       classes ? e->outputs[i].agreement : 0};
        if (!put_message(out, field, inferd_plan_OutputError_fields, &msg))
            return false;
    }
    return true;
}

static bool put_held(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_exactness *e = *arg;
    for (uint32_t i = 0; i < e->n_held; i++) {
        inferd_plan_Held msg = {ENCODE(put_text, e->held[i].layer), e->held[i].type,
                                e->held[i].error};
        if (!put_message(out, field, inferd_plan_Held_fields, &msg))
            return false;
    }
    return true;
}

static bool put_exactness(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_exactness *e = *arg;
    inferd_plan_Exactness msg = {
        .samples = e->samples,
        .data = e->data,
        .bound = e->bound,
        .outputs = ENCODE(put_output_errors, e),
        .held = ENCODE(put_held, e),
    };
    return !e->measured || put_message(out, field, inferd_plan_Exactness_fields, &msg);
}

static bool put_free(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan *plan = *arg;
    for (uint32_t i = 0; i < plan->n_free; i++) {
        const struct plan_free *f = &plan->free[i];
        inferd_plan_Free msg = {ENCODE(put_text, f->name), f->low, f->high, f->pads};
        if (!put_message(out, field, inferd_plan_Free_fields, &msg))
            return false;
    }
    return true;
}

static bool put_ragged(pb_ostream_t *out, const pb_field_t *field, void *const *arg)
{
    const struct plan_ragged *r = *arg;
    inferd_plan_Ragged msg = {
        .max_length = r->max_length,
        .mask = ENCODE(put_text, r->mask ? r->mask : ""),
        .mask_dtype = r->mask_type,
        .mask_at = r->mask_at,
    };
    return !r->max_length || put_message(out, field, inferd_plan_Ragged_fields, &msg);
}

enum status plan_encode(const struct plan *plan, const struct plan_offsets *offsets, uint8_t **out,
                        size_t *size, struct error *err)
{
    struct bindings inputs = {plan->n_inputs, plan->inputs, plan->input_axes};
    struct bindings outputs = {plan->n_outputs, plan->outputs, plan->output_axes};
    static const struct plan_axes no_axes[IR_MAX_IO];
    struct bindings late = {plan->n_late, plan->late, no_axes};
    struct plan_arg profiles = {plan, offsets};
    inferd_plan_Plan msg = {
        .name = ENCODE(put_text, plan->name),
        .batched = plan->batched,
        .inputs = ENCODE(put_bindings, &inputs),
        .outputs = ENCODE(put_bindings, &outputs),
        .profiles = ENCODE(put_profiles, &profiles),
        .exactness = ENCODE(put_exactness, &plan->exactness),
        .free = ENCODE(put_free, plan),
        .late = ENCODE(put_bindings, &late),
        .ragged = ENCODE(put_ragged, &plan->ragged),
    };
    pb_ostream_t sizing = PB_OSTREAM_SIZING;
    if (!pb_encode(&sizing, inferd_plan_Plan_fields, &msg))
        return error_set(err, STATUS_INTERNAL, "plan: encoding: %s", PB_GET_ERROR(&sizing));
    if (sizing.bytes_written > PLAN_MAX_STRUCTURE)
        return error_set(err, STATUS_OUT_OF_RANGE, "plan: the structure takes %zu bytes",
                         sizing.bytes_written);
    uint8_t *data = malloc(sizing.bytes_written + 1);
    if (!data)
        return error_no_memory(err, "a plan");
    pb_ostream_t stream = pb_ostream_from_buffer(data, sizing.bytes_written);
    if (!pb_encode(&stream, inferd_plan_Plan_fields, &msg)) {
        free(data);
        return error_set(err, STATUS_INTERNAL, "plan: encoding: %s", PB_GET_ERROR(&stream));
    }
    *out = data;
    *size = stream.bytes_written;
    return STATUS_OK;
}
