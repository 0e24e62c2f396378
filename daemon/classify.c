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
    TEXT_WORK = 32,       /* writing a class takes as long as looking at so many elements */
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
static struct classify_candidate candidate(const struct message_tensor *t, size_t first, size_t i)
{
    double value = element(t, first + i);
    return (struct classify_candidate){value == value ? value : -__builtin_inf(), i};
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

static bool worse(const struct classify_candidate *a, const struct classify_candidate *b)
{
    return a->value < b->value || (a->value == b->value && a->index > b->index);
}

static void swap(struct classify_candidate *a, struct classify_candidate *b)
{
    struct classify_candidate c = *a;
    *a = *b;
    *b = c;
}

static void sink(struct classify_candidate *heap, size_t n, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(&heap[child + 1], &heap[child]))
            child++;
        if (!worse(&heap[child], &heap[i]))
            return;
        swap(&heap[i], &heap[child]);
    }
}

/* Looks at the element that is next. */
static void look(struct classify *s)
{
    struct classify_candidate c = candidate(s->output, s->instance * s->elements, s->next),
                              *best = s->best;
    if (s->next < s->classes) {
        best[s->next++] = c;
        for (size_t i = s->next == s->classes ? s->classes : 0; i-- > 0;)
            sink(best, s->classes, i);
        return;
    }
    s->next++;
    if (worse(&best[0], &c)) {
        best[0] = c;
        sink(best, s->classes, 0);
    }
}

static void best_first(struct classify_candidate *heap, size_t n)
{
    for (size_t left = n; left > 1; left--) {
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

void classify_begin(struct classify *s, struct message_tensor *output, bool batched,
                    uint32_t classes, char *to)
{
    s->output = output;
    s->batched = batched;
    s->instances = instances_of(output, batched);
    s->elements = elements_of(output, batched);
    s->classes = MIN((size_t)MIN(classes, (uint32_t)CLASSIFY_MOST), s->elements);
    s->instance = s->classes ? 0 : s->instances; /* without elements there is nothing to look at */
    s->next = s->written = 0;
    s->begin = s->at = to;
}

/* Takes one step of the instance in hand; returns what it costs. */
static size_t step(struct classify *s)
{
    if (s->next < s->elements) {
        look(s);
        if (s->next == s->elements)
            best_first(s->best, s->classes);
        return 1;
    }
    s->at = class_write(s->output, s->instance * s->elements, s->best[s->written].index, s->at);
    if (++s->written == s->classes) {
        s->instance++;
        s->next = s->written = 0;
    }
    return TEXT_WORK;
}

static void output_replace(const struct classify *s)
{
    struct message_tensor *output = s->output;
    int64_t instances = (int64_t)s->instances, classes = (int64_t)s->classes;
    output->data = s->begin;
    output->size = (size_t)(s->at - s->begin);
    output->dtype = DTYPE_NONE;
    output->datatype = message_text_of("BYTES");
    output->shape = s->batched ? (struct shape){.rank = 2, .dim = {instances, classes}}
                               : (struct shape){.rank = 1, .dim = {classes}};
}

bool classify_step(struct classify *s, size_t *work)
{
    while (s->instance < s->instances) {
        if (!*work)
            return false;
        size_t cost = step(s);
        *work -= MIN(cost, *work);
    }
    output_replace(s);
    return true;
}
