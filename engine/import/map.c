/* SPDX-License-Identifier: Apache-2.0 */
/* Answers what mapping functions ask about the ONNX node: operands, attributes, values known when
 * the plan is built. */
#include "engine/import/map.h"

#include <stdlib.h>
#include <string.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = hash_fnv1a((key), (len)))
#include "base/hash.h"
#include "engine/import/blocks.h"

struct value {
    const char *name;
    uint32_t tensor; /* in `used`: how many readers are still to come */
    int32_t narrow;  /* the ONNX type of a constant that was unpacked (narrow.c), or 0 */
    bool held;       /* the value lies in a block, which it keeps */
    bool settled;    /* it is the same in every iteration of the loop whose body has the name */
    UT_hash_handle hh;
};

struct bytes {
    const struct onnx_tensor *from;
    uint32_t tensor;
    UT_hash_handle hh;
};

/* --- failing --- */

static void fail_with(struct mapper *m, enum status status, const char *fmt, va_list args)
{
    if (m->status)
        return;
    m->status = error_setv(m->err, status, fmt, args);
    if (m->node && !m->survey) /* a survey names the node in a field of its own */
        error_prefix(m->err, "%s \"%s\" (opset %lld)", m->node->op, m->label, (long long)m->opset);
}

void map_refuse(struct mapper *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_with(m, STATUS_UNIMPLEMENTED, fmt, args);
    va_end(args);
}

void map_invalid(struct mapper *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_with(m, STATUS_INVALID_ARGUMENT, fmt, args);
    va_end(args);
}

void map_unknown(struct mapper *m, const char *fmt, ...)
{
    va_list args;
    m->unknown = m->unknown || !m->status;
    va_start(args, fmt);
    fail_with(m, STATUS_UNIMPLEMENTED, fmt, args);
    va_end(args);
}

static void fail(struct mapper *m, enum status status, const char *fmt, ...) PRINTF(3, 4);
static void fail(struct mapper *m, enum status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_with(m, status, fmt, args);
    va_end(args);
}

void map_exhausted(struct mapper *m)
{
    fail(m, STATUS_RESOURCE_EXHAUSTED, "no memory, or a limit of the graph is reached");
}

void map_spent(struct mapper *m)
{
    fail(m, STATUS_RESOURCE_EXHAUSTED,
         "sizes that this request leads to need more memory than one request may take");
}

void map_failed_with(struct mapper *m, enum status status, const struct error *err)
{
    bool passed_on = status == STATUS_UNIMPLEMENTED || status == STATUS_RESOURCE_EXHAUSTED;
    fail(m, passed_on ? status : STATUS_INVALID_ARGUMENT, "%s", err->text);
}

/* --- names --- */

static struct value *table_add(struct mapper *m, struct value **table, const char *name,
                               uint32_t tensor)
{
    struct value *value = malloc(sizeof(*value));
    if (!value) {
        map_exhausted(m);
        return NULL;
    }
    *value = (struct value){.name = name, .tensor = tensor};
    HASH_ADD_KEYPTR(hh, *table, value->name, strlen(value->name), value);
    if (!HASH_ADDED(value)) {
        free(value);
        map_exhausted(m);
        return NULL;
    }
    return value;
}

/* Of the graph that is imported, not of those around it. */
static struct value *find_here(const struct mapper *m, const char *name)
{
    struct value *value = NULL;
    HASH_FIND_STR(m->scope->values, name, value);
    return value;
}

static struct value *find(const struct mapper *m, const char *name)
{
    struct value *value = NULL;
    for (const struct scope *scope = m->scope; scope && !value; scope = scope->outer)
        HASH_FIND_STR(scope->values, name, value);
    return value;
}

uint32_t map_value_find(const struct mapper *m, const char *name, bool *found)
{
    struct value *value = find(m, name);
    *found = value != NULL;
    return value ? value->tensor : IR_NONE;
}

bool map_value_add(struct mapper *m, const char *name, uint32_t tensor)
{
    struct value *value = find_here(m, name);
    if (value)
        map_invalid(m, "the name '%s' is given twice", name);
    value = map_failed(m) ? NULL : table_add(m, &m->scope->values, name, tensor);
    if (value)
        value->settled = m->settles;
    if (value && m->notes && map_noted(m, name) == IR_NONE)
        table_add(m, &m->noted, name, tensor);
    if (value && m->blocks)
        value->held = blocks_hold(m->blocks, ir_tensor(m->graph, tensor)->data);
    return value;
}

uint32_t map_noted(const struct mapper *m, const char *name)
{
    struct value *value;
    HASH_FIND_STR(m->noted, name, value);
    return value ? value->tensor : IR_NONE;
}

void map_sweep(struct mapper *m)
{
    if (m->blocks && !map_failed(m))
        m->fold_budget += blocks_sweep(m->blocks);
}

static void release(struct mapper *m, struct value *value)
{
    if (value->held)
        blocks_drop(m->blocks, ir_tensor(m->graph, value->tensor)->data);
    value->held = false;
}

void map_value_narrow(struct mapper *m, const char *name, int32_t type)
{
    struct value *value = find(m, name);
    if (value)
        value->narrow = type;
}

int32_t map_narrow_of(const struct mapper *m, const char *name)
{
    const struct value *value = find(m, name);
    return value ? value->narrow : 0;
}

int32_t map_in_narrow(const struct mapper *m, uint32_t i)
{
    return map_narrow_of(m, m->node->inputs[i]);
}

bool map_set_has(struct value *set, const char *name)
{
    struct value *value;
    HASH_FIND_STR(set, name, value);
    return value != NULL;
}

bool map_set_add(struct mapper *m, struct value **set, const char *name)
{
    return map_set_has(*set, name) || table_add(m, set, name, 0);
}

bool map_use_add(struct mapper *m, const char *name)
{
    struct value *value;
    HASH_FIND_STR(m->used, name, value);
    if (value)
        value->tensor++;
    return value || table_add(m, &m->used, name, 1);
}

/* A reader is done; the value of a name that has no other goes. */
static void use_done(struct mapper *m, const char *name)
{
    struct value *use;
    HASH_FIND_STR(m->used, name, use);
    if (!use || !use->tensor || --use->tensor)
        return;
    struct value *value = find_here(m, name);
    if (value)
        release(m, value);
}

static void uses_done(struct mapper *m, const struct onnx_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        use_done(m, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const struct onnx_graph *graph = node->attrs[i].graph;
        for (uint32_t k = 0; graph && k < graph->n_nodes; k++)
            uses_done(m, &graph->nodes[k]);
        for (uint32_t k = 0; graph && k < graph->n_outputs; k++)
            use_done(m, graph->outputs[k].name);
    }
}

void map_node_done(struct mapper *m, const struct onnx_node *node)
{
    if (!m->blocks || map_failed(m))
        return;
    uses_done(m, node);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        struct value *use, *value = find_here(m, node->outputs[i]);
        HASH_FIND_STR(m->used, node->outputs[i], use);
        if (value && !use)
            release(m, value);
    }
    map_sweep(m);
}

void map_hold(struct mapper *m, uint32_t tensor)
{
    if (!m->blocks || map_failed(m) || tensor == IR_NONE)
        return;
    bool in_block = blocks_hold(m->blocks, ir_tensor(m->graph, tensor)->data);
    (void)in_block; /* what is in none stays for the whole request */
}

void map_let_go(struct mapper *m, uint32_t tensor)
{
    if (m->blocks && !map_failed(m) && tensor != IR_NONE)
        blocks_drop(m->blocks, ir_tensor(m->graph, tensor)->data);
}

/* --- what is the same in every iteration --- */

struct settled_value {
    uint32_t tensor; /* IR_NONE: nobody reads it */
    int32_t narrow;
};

struct settled {
    bool *inputs; /* of the body */
    uint32_t n_nodes;
    struct settled_node {
        uint32_t n_outputs; /* 0: not kept */
        struct settled_value *outputs;
    } nodes[];
};

bool map_hands_on(const struct onnx_graph *body, const char *from, const char *to)
{
    bool same = !strcmp(from, to);
    for (uint32_t i = 0; i < body->n_nodes && !same; i++) {
        const struct onnx_node *node = &body->nodes[i];
        same = !strcmp(node->op, "Identity") && node->n_inputs == 1 && node->n_outputs == 1 &&
               !strcmp(node->inputs[0], from) && !strcmp(node->outputs[0], to);
    }
    return same;
}

struct settled *settled_new(const struct mapper *m, const struct onnx_graph *body,
                            uint32_t first_in, uint32_t first_out, uint32_t n_state)
{
    size_t n = m->computes ? body->n_nodes : 0;
    struct settled *s = n ? calloc(1, sizeof(*s) + n * sizeof(s->nodes[0])) : NULL;
    if (!s)
        return NULL;
    s->n_nodes = body->n_nodes;
    s->inputs = calloc(body->n_inputs + 1, sizeof(*s->inputs));
    for (uint32_t i = 0; s->inputs && i < n_state; i++)
        s->inputs[first_in + i] =
            map_hands_on(body, body->inputs[first_in + i].name, body->outputs[first_out + i].name);
    return s;
}

bool settled_input(const struct mapper *m, uint32_t i)
{
    return m->settled && m->settled->inputs && m->settled->inputs[i];
}

void settled_free(struct mapper *m, struct settled *settled)
{
    if (!settled)
        return;
    for (uint32_t i = 0; i < settled->n_nodes; i++)
        for (uint32_t k = 0; k < settled->nodes[i].n_outputs; k++)
            map_let_go(m, settled->nodes[i].outputs[k].tensor);
    free(settled->inputs);
    free(settled);
}

void settled_begin(struct mapper *m, const struct onnx_node *node)
{
    bool known = !node->domain[0] || !strcmp(node->domain, "com.microsoft");
    m->settles = false;
    if (!m->settled || !known || map_failed(m))
        return;
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].graph) /* it may read any name */
            return;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct value *value = find_here(m, node->inputs[i]);
        if (value && !value->settled)
            return;
    }
    m->settles = true;
}

void settled_end(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    bool settles = m->settles && !map_failed(m) && node->n_outputs;
    struct settled_value *outputs =
        settles ? arena_array(m->graph->arena, node->n_outputs, sizeof(*outputs)) : NULL;
    m->settles = false;
    for (uint32_t i = 0; outputs && i < node->n_outputs; i++) {
        const struct value *value = find_here(m, node->outputs[i]);
        outputs[i] =
            (struct settled_value){value ? value->tensor : IR_NONE, value ? value->narrow : 0};
        map_hold(m, outputs[i].tensor);
    }
    if (outputs)
        m->settled->nodes[index] = (struct settled_node){node->n_outputs, outputs};
}

bool settled_take(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    const struct settled_node *kept = m->settled ? &m->settled->nodes[index] : NULL;
    if (!kept || !kept->n_outputs)
        return false;
    m->settles = true;
    for (uint32_t i = 0; i < kept->n_outputs; i++) {
        if (kept->outputs[i].tensor == IR_NONE)
            continue;
        map_value_add(m, node->outputs[i], kept->outputs[i].tensor);
        map_value_narrow(m, node->outputs[i], kept->outputs[i].narrow);
    }
    m->settles = false;
    return true;
}

static void table_free(struct value **table)
{
    struct value *value, *next;
    HASH_ITER(hh, *table, value, next)
    {
        HASH_DEL(*table, value); /* NOLINT: the analyser loses uthash's list */
        free(value);
    }
}

void map_set_free(struct value **set)
{
    table_free(set);
}

void map_scope_free(struct mapper *m, struct scope *scope)
{
    struct value *value, *next;
    HASH_ITER(hh, scope->values, value, next)
    {
        release(m, value);
    }
    table_free(&scope->values);
}

void map_tables_free(struct mapper *m)
{
    struct bytes *bytes, *next;
    table_free(&m->used);
    table_free(&m->noted);
    HASH_ITER(hh, m->shared, bytes, next)
    {
        HASH_DEL(m->shared, bytes); /* NOLINT: the analyser loses uthash's list */
        free(bytes);
    }
}

uint32_t map_shared_find(const struct mapper *m, const struct onnx_tensor *tensor)
{
    struct bytes *bytes;
    HASH_FIND_PTR(m->shared, &tensor, bytes);
    return bytes ? bytes->tensor : IR_NONE;
}

void map_shared_add(struct mapper *m, const struct onnx_tensor *tensor, uint32_t constant)
{
    struct bytes *bytes = map_failed(m) ? NULL : malloc(sizeof(*bytes));
    if (bytes) {
        *bytes = (struct bytes){.from = tensor};
        HASH_ADD_PTR(m->shared, from, bytes);
    }
    if (!bytes || !HASH_ADDED(bytes)) {
        free(bytes);
        map_exhausted(m);
        return;
    }
    bytes->tensor = constant;
}

/* --- operands --- */

uint32_t map_in_opt(struct mapper *m, uint32_t i)
{
    bool found;
    if (map_failed(m) || i >= m->node->n_inputs || !m->node->inputs[i][0])
        return IR_NONE;
    uint32_t tensor = map_value_find(m, m->node->inputs[i], &found);
    if (!found)
        map_invalid(m, "input %u ('%s') is written by no node before it", i, m->node->inputs[i]);
    return tensor;
}

uint32_t map_in(struct mapper *m, uint32_t i)
{
    uint32_t tensor = map_in_opt(m, i);
    if (tensor == IR_NONE && !map_failed(m))
        map_invalid(m, "input %u is missing", i);
    return tensor;
}

uint32_t map_in_count(const struct mapper *m)
{
    uint32_t n = m->node->n_inputs;
    while (n && !m->node->inputs[n - 1][0])
        n--;
    return n;
}

const struct shape *map_shape(const struct mapper *m, uint32_t tensor)
{
    static const struct shape scalar = {0};
    return tensor == IR_NONE ? &scalar : &ir_tensor(m->graph, tensor)->shape;
}

enum dtype map_dtype(const struct mapper *m, uint32_t tensor)
{
    return tensor == IR_NONE ? DTYPE_NONE : ir_tensor(m->graph, tensor)->dtype;
}

int64_t map_product(struct mapper *m, const struct shape *shape, uint32_t first, uint32_t last)
{
    int64_t product = 1;
    for (uint32_t d = first; d < last; d++) {
        if (__builtin_mul_overflow(product, shape->dim[d], &product)) {
            map_invalid(m, "a product of dimensions overflows");
            return 0;
        }
    }
    return product;
}

void map_sequence(struct mapper *m, int64_t steps)
{
    m->steps += (uint64_t)steps;
}

bool map_out_used(const struct mapper *m, uint32_t i)
{
    struct value *value;
    if (i >= m->node->n_outputs || !m->node->outputs[i][0])
        return false;
    HASH_FIND_STR(m->used, m->node->outputs[i], value);
    return value != NULL;
}

void map_out(struct mapper *m, uint32_t i, uint32_t tensor)
{
    if (map_failed(m) || i >= m->node->n_outputs || !m->node->outputs[i][0])
        return;
    struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (!t->name[0]) {
        t->name =
            arena_printf(m->graph->arena, "%s%.*s", m->scope->prefix,
                         m->scope->outer ? MAP_NAME_PART : ONNX_MAX_NAME, m->node->outputs[i]);
        if (!t->name) {
            t->name = "";
            map_exhausted(m);
        }
    }
    map_value_add(m, m->node->outputs[i], tensor);
}

/* --- attributes --- */

const struct onnx_attr *map_attr(const struct mapper *m, const char *name)
{
    for (uint32_t i = 0; i < m->node->n_attrs; i++) {
        if (!strcmp(m->node->attrs[i].name, name))
            return &m->node->attrs[i];
    }
    return NULL;
}

static const struct onnx_attr *attr_typed(struct mapper *m, const char *name,
                                          enum onnx_attr_type type)
{
    const struct onnx_attr *attr = map_failed(m) ? NULL : map_attr(m, name);
    if (!attr || attr->type == type)
        return attr;
    map_invalid(m, "attribute '%s' has type %d, expected %d", name, (int)attr->type, (int)type);
    return NULL;
}

int64_t map_attr_int(struct mapper *m, const char *name, int64_t fallback)
{
    const struct onnx_attr *attr = attr_typed(m, name, ONNX_ATTR_INT);
    return attr ? attr->i : fallback;
}

float map_attr_float(struct mapper *m, const char *name, float fallback)
{
    const struct onnx_attr *attr = attr_typed(m, name, ONNX_ATTR_FLOAT);
    return attr ? attr->f : fallback;
}

bool map_attr_ints(struct mapper *m, const char *name, struct ints *out)
{
    const struct onnx_attr *attr = attr_typed(m, name, ONNX_ATTR_INTS);
    out->n = 0;
    if (attr && attr->n_ints > MAP_MAX_INTS)
        map_refuse(m, "attribute '%s' has %u values, the limit is %d", name, attr->n_ints,
                   MAP_MAX_INTS);
    if (!attr || map_failed(m))
        return false;
    out->n = attr->n_ints;
    if (attr->n_ints)
        memcpy(out->v, attr->ints, attr->n_ints * sizeof(*attr->ints));
    return true;
}

bool map_attr_is(struct mapper *m, const char *name, const char *value, const char *fallback)
{
    const struct onnx_attr *attr = attr_typed(m, name, ONNX_ATTR_STRING);
    if (!attr)
        return !strcmp(value, fallback);
    return attr->s.size == strlen(value) && !memcmp(attr->s.data, value, attr->s.size);
}

int64_t map_attr_named(struct mapper *m, const char *name, const char *const *names, uint32_t n,
                       const char *fallback)
{
    for (uint32_t i = 0; i < n; i++) {
        if (names[i] && map_attr_is(m, name, names[i], fallback))
            return i;
    }
    map_refuse(m, "this value of attribute '%s'", name);
    return 0;
}
