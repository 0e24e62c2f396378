/* SPDX-License-Identifier: Apache-2.0 */
/* Field numbers are those of onnx_subset.proto. */
#include "engine/import/tail_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/onnx.h"

enum { BYTES = 2, MODEL_MAX = 1 << 30 };

/* Bytes that grow. */
struct wire {
    uint8_t *data;
    size_t size, cap;
    bool failed;
};

struct tail_model {
    struct wire graph;
};

static void put(struct wire *to, const void *data, size_t size)
{
    if (to->failed || size > MODEL_MAX - to->size) {
        to->failed = true;
        return;
    }
    if (to->size + size > to->cap) {
        size_t cap = MAX(2 * to->cap, to->size + size + 64);
        uint8_t *more = realloc(to->data, cap);
        to->failed = !more;
        if (!more)
            return;
        to->data = more;
        to->cap = cap;
    }
    if (size)
        memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_varint(struct wire *to, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    put(to, bytes, n);
}

static void put_int(struct wire *to, uint32_t field, uint64_t value)
{
    put_varint(to, field << 3); /* a varint's wire type is 0 */
    put_varint(to, value);
}

static void put_bytes(struct wire *to, uint32_t field, const void *data, size_t size)
{
    put_varint(to, field << 3 | BYTES);
    put_varint(to, size);
    put(to, data, size);
}

static void put_text(struct wire *to, uint32_t field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

/* Puts a message that was written apart, and frees it. */
static void put_message(struct wire *to, uint32_t field, struct wire *message)
{
    to->failed = to->failed || message->failed;
    put_bytes(to, field, message->data, message->size);
    free(message->data);
    *message = (struct wire){0};
}

struct tail_model *tail_model_new(void)
{
    return calloc(1, sizeof(struct tail_model));
}

void tail_model_free(struct tail_model *to)
{
    if (to)
        free(to->graph.data);
    free(to);
}

void tail_model_node(struct tail_model *to, const struct onnx_node *node)
{
    put_bytes(&to->graph, 1, node->body.data, node->body.size);
}

void tail_model_input(struct tail_model *to, const char *name)
{
    struct wire info = {0};
    put_text(&info, 1, name);
    put_message(&to->graph, 11, &info);
}

static int onnx_number(enum dtype dtype)
{
    int type = 1;
    if (dtype == DTYPE_F8) /* which onnx_dtype does not give: files have it as a narrow type */
        return ONNX_FLOAT8E4M3FN;
    while (onnx_dtype(type) != dtype && type < ONNX_INT4)
        type++;
    return type;
}

static void put_entry(struct wire *to, const char *key, uint64_t value)
{
    struct wire entry = {0};
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    put_text(&entry, 1, key);
    put_text(&entry, 2, text);
    put_message(to, 13, &entry);
}

void tail_model_constant(struct tail_model *to, const char *name, const struct ir_tensor *tensor,
                         uint64_t offset)
{
    struct wire t = {0};
    for (uint32_t d = 0; d < tensor->shape.rank; d++)
        put_int(&t, 1, (uint64_t)tensor->shape.dim[d]);
    put_int(&t, 2, (uint64_t)onnx_number(tensor->dtype));
    put_text(&t, 8, name);
    put_entry(&t, "offset", offset);
    put_entry(&t, "length", tensor->bytes);
    put_int(&t, 14, 1); /* its data is external */
    put_message(&to->graph, 5, &t);
}

void tail_model_output(struct tail_model *to, const struct onnx_value_info *info)
{
    struct wire tensor = {0}, type = {0}, value = {0};
    put_int(&tensor, 1, (uint64_t)info->type);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, info->name);
    put_message(&value, 2, &type);
    put_message(&to->graph, 12, &value);
}

bool tail_model_end(struct tail_model *to, const struct onnx_model *from, void **out, size_t *size)
{
    struct wire model = {0};
    put_int(&model, 1, (uint64_t)from->ir_version);
    for (uint32_t i = 0; i < from->n_opsets; i++) {
        struct wire opset = {0};
        put_text(&opset, 1, from->opsets[i].domain);
        put_int(&opset, 2, (uint64_t)from->opsets[i].version);
        put_message(&model, 8, &opset);
    }
    put_message(&model, 7, &to->graph);
    if (model.failed) {
        free(model.data);
        return false;
    }
    *out = model.data;
    *size = model.size;
    return true;
}
