/* SPDX-License-Identifier: Apache-2.0 */
/* Writes ONNX messages byte by byte, both valid and invalid ones. Asserts when a buffer is full. */
#ifndef INFERD_TESTS_UNIT_IMPORT_WIRE_H
#define INFERD_TESTS_UNIT_IMPORT_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/import/onnx.h"

enum { WIRE_MAX = 16384 };

/* Messages lie on the stack of a test, which is larger than the server's. */
#pragma GCC diagnostic ignored "-Wframe-larger-than="

struct wire {
    uint8_t data[WIRE_MAX];
    size_t n;
};

static inline void wire_raw(struct wire *w, const void *data, size_t n)
{
    assert(w->n + n <= WIRE_MAX);
    memcpy(w->data + w->n, data, n);
    w->n += n;
}

static inline void wire_varint(struct wire *w, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        wire_raw(w, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    wire_raw(w, &(uint8_t){(uint8_t)value}, 1);
}

static inline void wire_int(struct wire *w, uint32_t field, int64_t value)
{
    wire_varint(w, field << 3);
    wire_varint(w, (uint64_t)value);
}

static inline void wire_float(struct wire *w, uint32_t field, float value)
{
    wire_varint(w, field << 3 | 5);
    wire_raw(w, &value, sizeof(value));
}

static inline void wire_bytes(struct wire *w, uint32_t field, const void *data, size_t n)
{
    wire_varint(w, field << 3 | 2);
    wire_varint(w, n);
    wire_raw(w, data, n);
}

static inline void wire_text(struct wire *w, uint32_t field, const char *text)
{
    wire_bytes(w, field, text, strlen(text));
}

static inline void wire_message(struct wire *w, uint32_t field, const struct wire *inner)
{
    wire_bytes(w, field, inner->data, inner->n);
}

/* --- ONNX --- */

static inline void wire_tensor(struct wire *w, const char *name, int type, uint32_t rank,
                               const int64_t *dims, const void *raw, size_t n)
{
    for (uint32_t d = 0; d < rank; d++)
        wire_int(w, 1, dims[d]);
    wire_int(w, 2, type);
    wire_text(w, 8, name);
    if (raw)
        wire_bytes(w, 9, raw, n);
}

/* A graph's input or output; a dimension below 0 is the symbol "n", one of -2 is "m",
 * of -3 "?", of -4 "batch". */
static inline void wire_value(struct wire *graph, uint32_t field, const char *name, int type,
                              uint32_t rank, const int64_t *dims)
{
    struct wire shape = {.n = 0}, tensor = {.n = 0}, outer = {.n = 0}, value = {.n = 0};
    for (uint32_t d = 0; d < rank; d++) {
        struct wire dim = {.n = 0};
        if (dims[d] < 0)
            wire_text(&dim, 2,
                      dims[d] == -4   ? "batch"
                      : dims[d] == -3 ? "?"
                      : dims[d] == -2 ? "m"
                                      : "n");
        else
            wire_int(&dim, 1, dims[d]);
        wire_message(&shape, 1, &dim);
    }
    wire_int(&tensor, 1, type);
    if (dims || !rank)
        wire_message(&tensor, 2, &shape);
    wire_message(&outer, 1, &tensor);
    wire_text(&value, 1, name);
    wire_message(&value, 2, &outer);
    wire_message(graph, field, &value);
}

static inline void wire_input(struct wire *graph, const char *name, int type, uint32_t rank,
                              const int64_t *dims)
{
    wire_value(graph, 11, name, type, rank, dims);
}

/* An output of which only the name is given. */
static inline void wire_output(struct wire *graph, const char *name)
{
    struct wire value = {.n = 0};
    wire_text(&value, 1, name);
    wire_message(graph, 12, &value);
}

static inline void wire_constant(struct wire *graph, const char *name, int type, uint32_t rank,
                                 const int64_t *dims, const void *raw, size_t n)
{
    struct wire tensor = {.n = 0};
    wire_tensor(&tensor, name, type, rank, dims, raw, n);
    wire_message(graph, 5, &tensor);
}

/* Names separated by blanks; "-" is one left out. */
static inline void wire_names(struct wire *node, uint32_t field, const char *names)
{
    while (*names) {
        size_t n = strcspn(names, " ");
        wire_bytes(node, field, names, n == 1 && *names == '-' ? 0 : n);
        names += n + (names[n] == ' ');
    }
}

static inline void wire_node(struct wire *graph, const char *op, const char *inputs,
                             const char *outputs, const struct wire *attrs)
{
    struct wire node = {.n = 0};
    wire_names(&node, 1, inputs);
    wire_names(&node, 2, outputs);
    wire_text(&node, 4, op);
    if (attrs)
        wire_raw(&node, attrs->data, attrs->n);
    wire_message(graph, 1, &node);
}

static inline void wire_attr_int(struct wire *attrs, const char *name, int64_t value)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    wire_int(&attr, 3, value);
    wire_int(&attr, 20, 2);
    wire_message(attrs, 5, &attr);
}

static inline void wire_attr_float(struct wire *attrs, const char *name, float value)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    wire_float(&attr, 2, value);
    wire_int(&attr, 20, 1);
    wire_message(attrs, 5, &attr);
}

static inline void wire_attr_text(struct wire *attrs, const char *name, const char *value)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    wire_text(&attr, 4, value);
    wire_int(&attr, 20, 3);
    wire_message(attrs, 5, &attr);
}

static inline void wire_attr_ints(struct wire *attrs, const char *name, uint32_t n,
                                  const int64_t *values)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    for (uint32_t i = 0; i < n; i++)
        wire_int(&attr, 8, values[i]);
    wire_int(&attr, 20, 7);
    wire_message(attrs, 5, &attr);
}

static inline void wire_model(struct wire *model, const struct wire *graph, int64_t opset)
{
    struct wire set = {.n = 0};
    model->n = 0;
    wire_int(model, 1, 8);
    wire_message(model, 7, graph);
    wire_int(&set, 2, opset);
    wire_message(model, 8, &set);
}

#endif
