/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph as text, a line a node:
 *
 *   input x FP32[1,3,8,8]
 *   y FP32[1,8,8,8] = conv "conv1 + relu1" (x, w FP32[8,3,1,1], -) group=1 then add(r), relu
 *   output y
 *
 * A constant is written with its type where it is read, a tensor without a name as %number.
 */
#include "engine/ir/ir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void put_name(FILE *out, const struct ir_graph *graph, uint32_t id)
{
    if (id == IR_NONE)
        fputc('-', out);
    else if (id >= graph->n_tensors)
        fprintf(out, "%%%u?", id);
    else if (ir_tensor(graph, id)->name[0])
        fputs(ir_tensor(graph, id)->name, out);
    else
        fprintf(out, "%%%u", id);
}

static void put_type(FILE *out, const struct ir_tensor *tensor)
{
    char text[SHAPE_TEXT_MAX];
    fprintf(out, " %s%s", dtype_name(tensor->dtype), shape_format(&tensor->shape, text));
    if (tensor->layout != IR_LAYOUT_PLAIN)
        fprintf(out, ":%s", ir_layout_name(tensor->layout));
    if (tensor->scale != IR_NO_SCALE)
        fprintf(out, ":scale%u", tensor->scale);
}

static void put_input(FILE *out, const struct ir_graph *graph, uint32_t id)
{
    put_name(out, graph, id);
    if (id < graph->n_tensors && ir_tensor_is_constant(ir_tensor(graph, id)))
        put_type(out, ir_tensor(graph, id));
}

static void put_attr(FILE *out, const struct ir_node *node, const struct ir_attr *attr)
{
    bool func = attr->key == IR_ATTR_FUNC && !attr->is_float && attr->count == 1;
    fprintf(out, " %s=", ir_attr_name(attr->key));
    if (func && node->op == IR_OP_UNARY) {
        fputs(ir_unary_name((enum ir_unary)attr->i[0]), out);
        return;
    }
    if (func && node->op == IR_OP_BINARY) {
        fputs(ir_binary_name((enum ir_binary)attr->i[0]), out);
        return;
    }
    for (uint32_t i = 0; i < attr->count; i++) {
        if (i)
            fputc(',', out);
        if (attr->is_float)
            fprintf(out, "%.9g", (double)attr->f[i]);
        else
            fprintf(out, "%" PRId64, attr->i[i]);
    }
}

static void put_epilogue(FILE *out, const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *step = &node->epilogue[i];
        fputs(i ? ", " : " then ", out);
        if (step->kind == IR_EPILOGUE_BINARY) {
            fprintf(out, "%s(", ir_binary_name((enum ir_binary)step->func));
            put_input(out, graph,
                      step->input < node->n_inputs ? node->inputs[step->input] : IR_NONE);
            fputc(')', out);
            continue;
        }
        fputs(ir_unary_name((enum ir_unary)step->func), out);
        if (step->alpha != 0 || step->beta != 0 || step->gamma != 0)
            fprintf(out, "(%.9g,%.9g,%.9g)", (double)step->alpha, (double)step->beta,
                    (double)step->gamma);
    }
}

static void put_node(FILE *out, const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (i)
            fputs(", ", out);
        put_name(out, graph, node->outputs[i]);
        if (node->outputs[i] < graph->n_tensors)
            put_type(out, ir_tensor(graph, node->outputs[i]));
    }
    fprintf(out, " = %s \"%s\" (", ir_op_name(node->op), node->name);
    for (uint32_t i = 0; i < ir_node_own_inputs(node); i++) {
        if (i)
            fputs(", ", out);
        put_input(out, graph, node->inputs[i]);
    }
    fputc(')', out);
    for (uint32_t i = 0; i < node->n_attrs; i++)
        put_attr(out, node, &node->attrs[i]);
    put_epilogue(out, graph, node);
    fputc('\n', out);
}

char *ir_graph_text(const struct ir_graph *graph)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        fputs("input ", out);
        put_name(out, graph, graph->inputs[i]);
        put_type(out, ir_tensor(graph, graph->inputs[i]));
        fputc('\n', out);
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, i)->op != IR_OP_NONE)
            put_node(out, graph, ir_node(graph, i));
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        fputs("output ", out);
        put_name(out, graph, graph->outputs[i]);
        fputc('\n', out);
    }
    bool failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
