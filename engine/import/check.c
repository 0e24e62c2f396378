/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a node with its row of the table: number of operands, element type, names and types of
 * attributes. A node with an attribute that the row does not have is refused rather than run
 * without it, because nobody knows what the attribute would have meant.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/import/ops.h"

static const struct {
    enum onnx_attr_type type;
    char letter; /* in map_op.attrs */
    const char *name;
} attr_types[] = {
    {ONNX_ATTR_FLOAT, 'f', "FLOAT"},     {ONNX_ATTR_INT, 'i', "INT"},
    {ONNX_ATTR_STRING, 's', "STRING"},   {ONNX_ATTR_TENSOR, 't', "TENSOR"},
    {ONNX_ATTR_GRAPH, 'g', "GRAPH"},     {ONNX_ATTR_FLOATS, 'F', "FLOATS"},
    {ONNX_ATTR_INTS, 'I', "INTS"},       {ONNX_ATTR_STRINGS, 'S', "STRINGS"},
    {ONNX_ATTR_TENSORS, 'T', "TENSORS"}, {ONNX_ATTR_GRAPHS, 'G', "GRAPHS"},
};

static char attr_letter(enum onnx_attr_type type)
{
    for (uint32_t i = 0; i < ARRAY_LEN(attr_types); i++) {
        if (attr_types[i].type == type)
            return attr_types[i].letter;
    }
    return '?';
}

static const char *attr_type_name(char letter)
{
    if (letter == 'b')
        letter = 'i';
    for (uint32_t i = 0; i < ARRAY_LEN(attr_types); i++) {
        if (attr_types[i].letter == letter)
            return attr_types[i].name;
    }
    return "another type";
}

/* The type letters of the attribute in a row's list; NULL: the list does not name it. */
static const char *letters_of(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, name, length) && at[length] == ':')
            return at + length + 1;
    }
    return NULL;
}

/* Other numbers mean true to some programs, and false to others. */
static void check_flag(struct mapper *m, const struct onnx_attr *attr)
{
    if (attr->i != 0 && attr->i != 1)
        map_invalid(m, "attribute '%s' is %lld, expected 0 or 1", attr->name, (long long)attr->i);
}

/* Only what a Constant or a Pad puts into a tensor may be NaN. */
static void check_number(struct mapper *m, const struct onnx_attr *attr)
{
    if (attr->type == ONNX_ATTR_FLOAT && isnan(attr->f) && strncmp(attr->name, "value", 5))
        map_invalid(m, "attribute '%s' is not a number", attr->name);
}

static void check_attr(struct mapper *m, uint32_t index)
{
    const struct onnx_attr *attr = &m->node->attrs[index];
    bool any = m->row->map == map_plugin; /* the plugin looks at them */
    const char *letters = any ? "" : letters_of(m->row->attrs, attr->name);
    char letter = attr_letter(attr->type);
    if (!letters) {
        map_invalid(m, "attribute '%s' is none of this op's", attr->name);
        return;
    }
    if (attr->type == ONNX_ATTR_SPARSE_TENSOR || attr->type == ONNX_ATTR_SPARSE_TENSORS) {
        map_refuse(m, "attribute '%s': sparse tensors are not supported", attr->name);
        return;
    }
    size_t n = strcspn(letters, " ");
    if (letter == 'i' && letters[0] == 'b')
        check_flag(m, attr);
    else if (!any && !memchr(letters, letter, n))
        map_invalid(m, "attribute '%s' is %s, expected %s", attr->name, attr_type_name(letter),
                    attr_type_name(letters[0]));
    check_number(m, attr);
    for (uint32_t i = 0; i < index; i++) {
        if (!strcmp(m->node->attrs[i].name, attr->name))
            map_invalid(m, "attribute '%s' is given twice", attr->name);
    }
}

static void check_counts(struct mapper *m)
{
    const struct map_arity *arity = &m->row->arity;
    uint32_t n = map_in_count(m), outputs = m->node->n_outputs;
    while (outputs && !m->node->outputs[outputs - 1][0])
        outputs--;
    if (n < arity->min_in)
        map_invalid(m, "%u inputs, expected at least %u", n, arity->min_in);
    else if (n > arity->max_in)
        map_invalid(m, "%u inputs, expected at most %u", n, arity->max_in);
    else if (outputs > arity->max_out)
        map_invalid(m, "%u outputs, expected at most %u", outputs, arity->max_out);
}

/* "FP16, BF16, FP32" */
static const char *types_text(uint32_t types, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (enum dtype t = DTYPE_BOOL; t < DTYPE_COUNT_; t++) {
        if (types & 1u << t && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", dtype_name(t));
    }
    return text;
}

static void check_type(struct mapper *m)
{
    uint32_t index = m->row->arity.typed;
    uint32_t tensor = map_in_opt(m, index);
    char text[128];
    if (tensor == IR_NONE || map_in_narrow(m, index) || m->row->types & 1u << map_dtype(m, tensor))
        return;
    map_refuse(m, "input %u is %s, expected one of %s", index, dtype_name(map_dtype(m, tensor)),
               types_text(m->row->types, text, sizeof(text)));
}

/* A narrow constant is held in a wider type, so only ops that read nothing but its values may have
 * it. */
static void check_narrow(struct mapper *m)
{
    for (uint32_t i = 0; i < m->node->n_inputs && !map_failed(m); i++) {
        int32_t type = map_in_narrow(m, i);
        bool given = map_in_opt(m, i) != IR_NONE;
        if (given && map_dtype(m, map_in_opt(m, i)) == DTYPE_F8 &&
            !(m->row->types & 1u << DTYPE_F8))
            map_refuse(m, "input %u is %s, which only (De)QuantizeLinear, Cast and moves read", i,
                       onnx_type_name(ONNX_FLOAT8E4M3FN));
        else if (type && m->row->map != map_dequantize && m->row->map != map_cast)
            map_refuse(m,
                       "input %u is %s, which only DequantizeLinear and Cast read, as a constant",
                       i, onnx_type_name(type));
    }
}

void map_check_form(struct mapper *m)
{
    check_counts(m);
    for (uint32_t i = 0; i < m->node->n_attrs && !map_failed(m); i++)
        check_attr(m, i);
}

void map_check_operands(struct mapper *m)
{
    check_narrow(m);
    check_type(m);
}
