/* SPDX-License-Identifier: Apache-2.0 */
/* Models of one node, a line of text each, for tables of refusals. */
#ifndef INFERD_TESTS_UNIT_IMPORT_CASES_H
#define INFERD_TESTS_UNIT_IMPORT_CASES_H

#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "tests/unit/import/wire.h"

/* Operands, a letter and a shape each: inputs are x FP32, d FP64, h FP16, b INT64, i INT32, u
 * UINT8, q INT8, o BOOL ("x1,3,8"; "x" is of rank 0). Constants of a shape are X FP32, I INT32, U
 * UINT8, Q INT8 (1, 2, 3 .. 7, 1 ..) and V UINT8 with large values; "c5,6" is INT64 with those
 * values, "s3" one number, "f3" and "g3" an FP32 and an FP64 one, "z3" a UINT8 one, "-" is left
 * out. Attributes: "mode=linear pads=1,1 inverse:1 alpha~0.5", where ':' is one integer, '~' a
 * float, and '=' a list if it starts with a digit. Outputs are "y", or all the names in `outputs`.
 */
struct refusal {
    const char *op;
    int64_t opset;
    const char *operands, *attrs;
    const char *says;
};

struct built {
    struct wire graph, model;
    char names[64];
};

static inline uint32_t case_numbers(const char **at, int64_t *out)
{
    uint32_t n = 0;
    if ((**at < '0' || **at > '9') && **at != '-')
        return 0;
    for (char *end; n < 8; *at = end + 1) {
        out[n++] = strtoll(*at, &end, 10);
        if (*end != ',') {
            *at = end;
            break;
        }
    }
    return n;
}

/* A constant of a shape, or of the values themselves. */
static inline void case_constant(struct wire *graph, char kind, const char *name, uint32_t n,
                                 const int64_t *v)
{
    uint8_t bytes[4096];
    size_t count = 1;
    const int64_t dims[1] = {n};
    const float f = (float)v[0];
    const double d = (double)v[0];
    for (uint32_t i = 0; i < n; i++)
        count *= (size_t)v[i];
    switch (kind) {
    case 'c':
    case 's':
        wire_constant(graph, name, 7, kind == 'c', dims, v, n * sizeof(*v));
        return;
    case 'f':
        wire_constant(graph, name, 1, 0, dims, &f, sizeof(f));
        return;
    case 'g':
        wire_constant(graph, name, 11, 0, dims, &d, sizeof(d));
        return;
    case 'z':
        wire_constant(graph, name, 2, 0, dims, &(uint8_t){(uint8_t)v[0]}, 1);
        return;
    }
    size_t size = kind == 'X' || kind == 'I' ? 4 : 1;
    assert(count * size <= sizeof(bytes));
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(i % 7 + 1);
        const int32_t whole = (int32_t)(i % 7 + 1);
        bytes[i * size] = (uint8_t)(kind == 'V' ? 250 - i % 3 : i % 7 + 1);
        if (size == 4)
            memcpy(bytes + i * size, kind == 'X' ? (const void *)&value : &whole, size);
    }
    int type = kind == 'X' ? 1 : kind == 'I' ? 6 : kind == 'Q' ? 3 : 2;
    wire_constant(graph, name, type, n, v, bytes, count * size);
}

static inline int case_input_type(char kind)
{
    static const char kinds[] = "xdhbiuqo";
    static const int types[] = {1, 11, 10, 7, 6, 2, 3, 9};
    const char *at = strchr(kinds, kind);
    return at ? types[at - kinds] : 0;
}

static inline void case_operands(struct built *b, const char *at)
{
    for (uint32_t i = 0; *at && *at != '>'; i++) {
        char name[4] = {*at, (char)('0' + i), 0}, kind = *at++;
        int64_t v[8] = {0};
        uint32_t n = kind == '-' ? 0 : case_numbers(&at, v);
        strcat(b->names, b->names[0] ? " " : "");
        strcat(b->names, kind == '-' ? "-" : name);
        if (case_input_type(kind))
            wire_input(&b->graph, name, case_input_type(kind), n, v);
        else if (kind != '-')
            case_constant(&b->graph, kind, name, n, v);
        at += *at == ' ';
    }
}

static inline void case_attrs(struct wire *attrs, const char *at)
{
    while (*at) {
        char name[64] = "", text[64] = "";
        int64_t v[8];
        size_t n = strcspn(at, "=:~");
        memcpy(name, at, n);
        char kind = at[n];
        at += n + 1;
        if (kind == ':') {
            case_numbers(&at, v);
            wire_attr_int(attrs, name, v[0]);
        } else if (kind == '~') {
            char *end;
            wire_attr_float(attrs, name, strtof(at, &end));
            at = end;
        } else if ((*at >= '0' && *at <= '9') || *at == '-') {
            n = case_numbers(&at, v);
            wire_attr_ints(attrs, name, (uint32_t)n, v);
        } else {
            n = strcspn(at, " ");
            memcpy(text, at, n);
            wire_attr_text(attrs, name, text);
            at += n;
        }
        at += *at == ' ';
    }
}

/* The graph's constants may be stored in `b`. */
static inline enum status case_import(struct built *b, const struct refusal *c,
                                      const struct onnx_options *options, struct ir_graph **graph,
                                      struct error *err)
{
    struct wire attrs = {.n = 0};
    struct onnx_model *opened = NULL;
    const char *outputs = strchr(c->operands, '>');
    outputs = outputs ? outputs + 1 : "y";
    *b = (struct built){.names = ""};
    case_operands(b, c->operands);
    case_attrs(&attrs, c->attrs);
    wire_node(&b->graph, c->op, b->names, outputs, &attrs);
    for (size_t n; *outputs; outputs += n + (outputs[n] == ' ')) {
        char name[8] = "";
        n = strcspn(outputs, " ");
        memcpy(name, outputs, n);
        wire_output(&b->graph, name);
    }
    wire_model(&b->model, &b->graph, c->opset);
    assert_int_equal(onnx_open_memory(b->model.data, b->model.n, &opened, err), STATUS_OK);
    enum status status = onnx_import(opened, options, graph, err);
    onnx_close(opened);
    return status;
}

/* Each model must become a graph that `describe` describes as the line says. */
static inline void case_become_all(const struct refusal *cases, size_t n,
                                   void (*describe)(const struct ir_graph *, char *text,
                                                    size_t size))
{
    const struct onnx_options options = {.batch = 1};
    static struct built b;
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct ir_graph *graph = NULL;
        struct error err;
        char text[ERROR_TEXT_MAX] = "";
        if (case_import(&b, &cases[i], &options, &graph, &err) || ir_verify(graph, &err))
            snprintf(text, sizeof(text), "%s", err.text);
        else
            describe(graph, text, sizeof(text));
        ir_graph_free(graph);
        if (!strcmp(text, cases[i].says))
            continue;
        wrong++;
        print_error("%s (%s) %s: %s, not %s\n", cases[i].op, cases[i].operands, cases[i].attrs,
                    text, cases[i].says);
    }
    assert_int_equal(wrong, 0);
}

/* Each model must be refused with the op's name and the text of the line. */
static inline void case_refuse_all(const struct refusal *cases, size_t n)
{
    const struct onnx_options options = {.batch = 1};
    static struct built b;
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct error err;
        struct ir_graph *graph = NULL;
        enum status status = case_import(&b, &cases[i], &options, &graph, &err);
        if (status && strstr(err.text, cases[i].says) && strstr(err.text, cases[i].op))
            continue;
        wrong++;
        ir_graph_free(graph);
        print_error("%s (%s) %s: %s, not '%s'\n", cases[i].op, cases[i].operands, cases[i].attrs,
                    status ? err.text : "accepted", cases[i].says);
    }
    assert_int_equal(wrong, 0);
}

#endif
