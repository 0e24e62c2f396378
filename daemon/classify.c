/* SPDX-License-Identifier: Apache-2.0 */
/* Best classes as texts, see classify.h. */
#include "daemon/classify.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    LENGTH_BYTES = 4,
    /* "%f" of the largest FP64 has 309 digits, a point, six more and a sign; ":" and the index. */
    TEXT_MOST = 352,
    SHORT_TEXT_MOST = 80, /* of any other type */
};

struct candidate {
    double value;
    size_t index;
};

/* --- elements --- */

#define READ(type) ((type *)(void *)memcpy(&(type){0}, at, sizeof(type)))[0]

static double element(const struct message_tensor *t, size_t i)
{
    const uint8_t *at = (const uint8_t *)t->data + i * dtype_size(t->dtype);
    double value = 0;
    switch (t->dtype) {
    case DTYPE_F32:
        value = (double)READ(float);
        break;
    case DTYPE_F64:
        value = READ(double);
        break;
    case DTYPE_F16:
        value = (double)f16_to_f32(READ(uint16_t));
        break;
    case DTYPE_BF16:
        value = (double)bf16_to_f32(READ(uint16_t));
        break;
    case DTYPE_BOOL:
    case DTYPE_U8:
        return *at;
    case DTYPE_I8:
        return READ(int8_t);
    case DTYPE_U16:
        return READ(uint16_t);
    case DTYPE_I16:
        return READ(int16_t);
    case DTYPE_U32:
        return READ(uint32_t);
    case DTYPE_I32:
        return READ(int32_t);
    case DTYPE_U64:
        return (double)READ(uint64_t);
    case DTYPE_I64:
        return (double)READ(int64_t);
    default:
        return 0;
    }
    return value;
}

/* An element to compare; what is no number is less than all that are. */
static struct candidate candidate(const struct message_tensor *t, size_t first, size_t i)
{
    double value = element(t, first + i);
    return (struct candidate){value == value ? value : -__builtin_inf(), i};
}

static int element_print(const struct message_tensor *t, size_t i, char *out)
{
    const uint8_t *at = (const uint8_t *)t->data + i * dtype_size(t->dtype);
    if (t->dtype == DTYPE_U64)
        return snprintf(out, TEXT_MOST, "%" PRIu64, READ(uint64_t));
    if (t->dtype == DTYPE_I64)
        return snprintf(out, TEXT_MOST, "%" PRId64, READ(int64_t));
    return snprintf(out, TEXT_MOST, dtype_is_float(t->dtype) ? "%f" : "%.0f", element(t, i));
}

/* --- the best of them: a heap whose root is the worst --- */

static bool worse(const struct candidate *a, const struct candidate *b)
{
    return a->value < b->value || (a->value == b->value && a->index > b->index);
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate c = *a;
    *a = *b;
    *b = c;
}

static void sink(struct candidate *heap, size_t n, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(&heap[child + 1], &heap[child]))
            child++;
        if (!worse(&heap[child], &heap[i]))
            return;
        swap(&heap[i], &heap[child]);
    }
}

/* The best `k` of the elements [first, first + n), best first. */
static void best(const struct message_tensor *t, size_t first, size_t n, size_t k,
                 struct candidate *heap)
{
    if (!k)
        return;
    for (size_t i = 0; i < k; i++)
        heap[i] = candidate(t, first, i);
    for (size_t i = k; i-- > 0;)
        sink(heap, k, i);
    for (size_t i = k; i < n; i++) {
        struct candidate c = candidate(t, first, i);
        if (worse(&heap[0], &c)) {
            heap[0] = c;
            sink(heap, k, 0);
        }
    }
    for (size_t left = k; left > 1; left--) {
        swap(&heap[0], &heap[left - 1]);
        sink(heap, left - 1, 0);
    }
}

/* --- */

static size_t instances_of(const struct message_tensor *t, bool batched)
{
    return batched && t->shape.rank ? (size_t)t->shape.dim[0] : 1;
}

static size_t elements_of(const struct message_tensor *t, bool batched)
{
    size_t instances = instances_of(t, batched);
    return instances ? t->size / dtype_size(t->dtype) / instances : 0;
}

size_t classify_room(const struct message_tensor *output, bool batched, uint32_t classes)
{
    size_t k = MIN((size_t)MIN(classes, (uint32_t)CLASSIFY_MOST), elements_of(output, batched));
    size_t text = output->dtype == DTYPE_F64 ? TEXT_MOST : SHORT_TEXT_MOST;
    return instances_of(output, batched) * k * (LENGTH_BYTES + text);
}

static char *class_write(const struct message_tensor *t, size_t first, size_t index, char *to)
{
    char *text = to + LENGTH_BYTES;
    int n = element_print(t, first + index, text);
    n += snprintf(text + n, TEXT_MOST - (size_t)n, ":%zu", index);
    for (int i = 0; i < LENGTH_BYTES; i++)
        to[i] = (char)((uint32_t)n >> (8 * i));
    return text + n;
}

void classify(struct message_tensor *output, bool batched, uint32_t classes, char *to)
{
    struct candidate heap[CLASSIFY_MOST];
    size_t instances = instances_of(output, batched), n = elements_of(output, batched);
    size_t k = MIN((size_t)MIN(classes, (uint32_t)CLASSIFY_MOST), n);
    char *at = to;
    for (size_t i = 0; i < instances; i++) {
        best(output, i * n, n, k, heap);
        for (size_t c = 0; c < k; c++)
            at = class_write(output, i * n, heap[c].index, at);
    }
    output->data = to;
    output->size = (size_t)(at - to);
    output->dtype = DTYPE_NONE;
    output->datatype = message_text_of("BYTES");
    output->shape = batched ? (struct shape){.rank = 2, .dim = {(int64_t)instances, (int64_t)k}}
                            : (struct shape){.rank = 1, .dim = {(int64_t)k}};
}
