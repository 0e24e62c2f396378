/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/passes/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

struct parser {
    struct ir_graph *graph;
    const char *at;
};

enum { WORD_MAX = 128 };

static void blanks(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static bool take(struct parser *p, const char *text)
{
    blanks(p);
    if (strncmp(p->at, text, strlen(text)) != 0)
        return false;
    p->at += strlen(text);
    return true;
}

static void need(struct parser *p, const char *text)
{
    if (!take(p, text))
        fail_msg("\"%s\" was expected at: %.60s", text, p->at);
}

static void word(struct parser *p, char out[WORD_MAX])
{
    blanks(p);
    size_t n = strcspn(p->at, " ,()=\n[\"");
    if (n == 0 || n >= WORD_MAX)
        fail_msg("a word was expected at: %.60s", p->at);
    memcpy(out, p->at, n);
    out[n] = '\0';
    p->at += n;
}

static bool is_type(const struct parser *p)
{
    size_t n = strcspn(p->at, "[ \n,()=");
    return p->at[n] == '[' && dtype_parse(p->at, n) != DTYPE_NONE;
}

static enum dtype type(struct parser *p, struct shape *shape)
{
    char name[WORD_MAX];
    word(p, name);
    *shape = (struct shape){0};
    need(p, "[");
    while (!take(p, "]")) {
        char *end;
        shape->dim[shape->rank++] = strtoll(p->at, &end, 10);
        assert_ptr_not_equal(end, p->at);
        p->at = end + (*end == ',');
    }
    return dtype_parse(name, strlen(name));
}

static uint32_t find(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (strcmp(ir_tensor(g, i)->name, name) == 0)
            return i;
    return IR_NONE;
}

static uint64_t hash(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static void store(enum dtype dtype, void *data, size_t i, double value)
{
    switch (dtype) {
    case DTYPE_F32:
        ((float *)data)[i] = (float)value;
        break;
    case DTYPE_F64:
        ((double *)data)[i] = value;
        break;
    case DTYPE_F16:
        ((uint16_t *)data)[i] = f32_to_f16((float)value);
        break;
    case DTYPE_BF16:
        ((uint16_t *)data)[i] = f32_to_bf16((float)value);
        break;
    case DTYPE_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case DTYPE_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case DTYPE_BOOL:
        ((uint8_t *)data)[i] = value > 0;
        break;
    case DTYPE_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case DTYPE_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    default:
        fail_msg("no values of type %s", dtype_name(dtype));
    }
}

static double next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 40) / (1 << 23) - 1;
}

void fill_random(enum dtype dtype, void *data, size_t n, uint64_t seed)
{
    /* any value of an 8-bit type, as in pixels */
    double scale = dtype == DTYPE_U8 || dtype == DTYPE_I8 ? 127 : 1;
    double shift = dtype == DTYPE_U8 ? 127 : 0;
    next(&seed);
    for (size_t i = 0; i < n; i++)
        store(dtype, data, i, next(&seed) * scale + shift);
}

static uint32_t constant(struct parser *p, const char *name)
{
    struct shape shape;
    enum dtype dtype = type(p, &shape);
    size_t n, bytes;
    assert_true(shape_elements(&shape, &n));
    assert_true(shape_bytes(&shape, dtype, &bytes));
    void *data = arena_alloc(p->graph->arena, bytes);
    assert_non_null(data);
    fill_random(dtype, data, n, hash(name));
    if (take(p, "=+")) {
        uint64_t seed = hash(name);
        for (size_t i = 0; i < n; i++)
            store(dtype, data, i, 1 + next(&seed) / 2);
    } else if (take(p, "=from ")) {
        char *end;
        long first = strtol(p->at, &end, 10);
        p->at = end;
        for (size_t i = 0; i < n; i++)
            store(dtype, data, i, (double)first + (double)i);
    } else if (take(p, "=")) {
        char *end;
        double value = strtod(p->at, &end);
        assert_ptr_not_equal(end, p->at);
        p->at = end;
        for (size_t i = 0; i < n; i++)
            store(dtype, data, i, value);
    }
    uint32_t id = ir_constant_add(p->graph, name, dtype, &shape, data);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

static uint32_t operand(struct parser *p)
{
    char name[WORD_MAX];
    word(p, name);
    if (strcmp(name, "-") == 0)
        return IR_NONE;
    blanks(p);
    uint32_t id = find(p->graph, name);
    if (is_type(p) && id == IR_NONE)
        return constant(p, name);
    struct shape again;
    if (is_type(p)) { /* writing the graph once more gives the same text */
        type(p, &again);
        p->at += *p->at == '=' ? strcspn(p->at, ",) ") : 0;
    }
    if (id == IR_NONE)
        fail_msg("tensor %s is not known at: %.60s", name, p->at);
    return id;
}

static uint32_t lookup(const char *word_, const char *(*name)(uint32_t), uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(name(i), word_) == 0)
            return i;
    return IR_NONE;
}

static const char *op_name(uint32_t i)
{
    return ir_op_name((enum ir_op)i);
}

static const char *attr_name(uint32_t i)
{
    return ir_attr_name((enum ir_attr_key)i);
}

static const char *unary_name(uint32_t i)
{
    return ir_unary_name((enum ir_unary)i);
}

static const char *binary_name(uint32_t i)
{
    return ir_binary_name((enum ir_binary)i);
}

static void attribute(struct parser *p, uint32_t node, enum ir_attr_key key)
{
    int64_t ints[64];
    float floats[64];
    uint32_t n = 0;
    for (; *p->at && *p->at != ' ' && *p->at != '\n'; n++) {
        char *end;
        if (key == IR_ATTR_FUNC && (*p->at < '0' || *p->at > '9')) {
            char name[WORD_MAX];
            word(p, name);
            ints[n] = ir_node(p->graph, node)->op == IR_OP_UNARY
                          ? lookup(name, unary_name, IR_UNARY_COUNT_)
                          : lookup(name, binary_name, IR_BINARY_COUNT_);
            continue;
        }
        floats[n] = strtof(p->at, &end);
        ints[n] = strtoll(p->at, NULL, 10);
        assert_ptr_not_equal(end, p->at);
        p->at = end + (*end == ',');
    }
    assert_true(ir_attr_row(key)->is_float ? ir_attr_set_floats(p->graph, node, key, n, floats)
                                           : ir_attr_set_ints(p->graph, node, key, n, ints));
}

static void epilogue(struct parser *p, uint32_t node)
{
    do {
        char name[WORD_MAX];
        struct ir_epilogue step = {.kind = IR_EPILOGUE_UNARY};
        uint32_t tensor = IR_NONE;
        word(p, name);
        step.func = lookup(name, unary_name, IR_UNARY_COUNT_);
        if (step.func == IR_NONE) {
            step.kind = IR_EPILOGUE_BINARY;
            step.func = lookup(name, binary_name, IR_BINARY_COUNT_);
            assert_int_not_equal(step.func, IR_NONE);
            need(p, "(");
            tensor = operand(p);
            need(p, ")");
        } else if (take(p, "(")) {
            int n = 0;
            assert_int_equal(sscanf(p->at, "%f,%f,%f)%n", &step.alpha, &step.beta, &step.gamma, &n),
                             3);
            p->at += n;
        }
        assert_true(ir_epilogue_add(p->graph, node, step, tensor));
    } while (take(p, ","));
}

static void node_line(struct parser *p)
{
    char outputs[IR_MAX_OUTPUTS][WORD_MAX], name[WORD_MAX], op[WORD_MAX];
    const char *names[IR_MAX_OUTPUTS];
    uint32_t n_outputs = 0, inputs[IR_MAX_INPUTS], n_inputs = 0;
    struct shape ignored;
    do {
        word(p, outputs[n_outputs]);
        names[n_outputs] = outputs[n_outputs];
        n_outputs++;
        blanks(p);
        if (is_type(p))
            type(p, &ignored);
    } while (take(p, ","));
    need(p, "=");
    word(p, op);
    need(p, "\"");
    size_t len = strcspn(p->at, "\"");
    memcpy(name, p->at, len);
    name[len] = '\0';
    p->at += len;
    need(p, "\"");
    need(p, "(");
    while (!take(p, ")")) {
        inputs[n_inputs++] = operand(p);
        take(p, ",");
    }
    uint32_t node = ir_node_add(p->graph, (enum ir_op)lookup(op, op_name, IR_OP_COUNT_), name,
                                n_inputs, inputs);
    while (blanks(p), *p->at && *p->at != '\n' && strncmp(p->at, "then ", 5) != 0) {
        char key[WORD_MAX];
        word(p, key);
        need(p, "=");
        uint32_t number = lookup(key, attr_name, IR_ATTR_COUNT_);
        if (number == IR_NONE)
            fail_msg("no attribute %s", key);
        attribute(p, node, (enum ir_attr_key)number);
    }
    struct error err = {0};
    if (ir_infer_apply(p->graph, node, names, n_outputs, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (take(p, "then "))
        epilogue(p, node);
}

struct ir_graph *graph_parse(const char *text)
{
    struct parser p = {ir_graph_new(), text};
    char name[WORD_MAX];
    assert_non_null(p.graph);
    for (; blanks(&p), *p.at; p.at += *p.at == '\n') {
        if (take(&p, "input ")) {
            struct shape shape;
            word(&p, name);
            blanks(&p);
            enum dtype dtype = type(&p, &shape);
            p.graph->inputs[p.graph->n_inputs++] = ir_tensor_add(p.graph, name, dtype, &shape);
        } else if (take(&p, "output ")) {
            word(&p, name);
            p.graph->outputs[p.graph->n_outputs++] = find(p.graph, name);
        } else if (*p.at != '\n') {
            node_line(&p);
        }
        if (*p.at && *p.at != '\n')
            fail_msg("the line should end at: %.60s", p.at);
    }
    struct error err = {0};
    if (ir_verify(p.graph, &err) != STATUS_OK)
        fail_msg("%s in\n%s", err.text, text);
    return p.graph;
}
