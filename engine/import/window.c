/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/window.h"

/* Keeps the product of any two values within int64. */
static const int64_t value_max = INT32_MAX;

static void read_list(struct mapper *m, const char *name, uint32_t n, int64_t least,
                      int64_t fallback, int64_t *out)
{
    struct ints list;
    bool there = map_attr_ints(m, name, &list);
    if (there && list.n != n)
        map_invalid(m, "attribute '%s' has %u values, expected %u", name, list.n, n);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = there && !map_failed(m) ? list.v[i] : fallback;
        if (out[i] < least || out[i] > value_max) {
            map_invalid(m, "attribute '%s' has a value %lld, expected %lld to %lld", name,
                        (long long)out[i], (long long)least, (long long)value_max);
            out[i] = fallback;
        }
    }
}

static void read_kernel(struct mapper *m, uint32_t weights, struct window *w)
{
    const struct shape *shape = map_shape(m, weights);
    for (uint32_t i = 0; i < w->n; i++)
        w->kernel[i] = 1;
    if (weights == IR_NONE && !map_attr(m, "kernel_shape")) {
        map_invalid(m, "attribute 'kernel_shape' is missing");
        return;
    }
    if (weights == IR_NONE) {
        read_list(m, "kernel_shape", w->n, 1, 1, w->kernel);
        return;
    }
    if (shape->rank != w->n + 2) {
        map_invalid(m, "weights of rank %u for an input of rank %u", shape->rank, w->n + 2);
        return;
    }
    if (map_attr(m, "kernel_shape"))
        read_list(m, "kernel_shape", w->n, 1, 1, w->kernel);
    for (uint32_t i = 0; i < w->n && !map_failed(m); i++) {
        int64_t dim = shape->dim[2 + i];
        if (dim < 1 || dim > value_max || (map_attr(m, "kernel_shape") && w->kernel[i] != dim))
            map_invalid(m, "kernel dimension %u is %lld in the weights", i, (long long)dim);
        else
            w->kernel[i] = dim;
    }
}

static enum auto_pad read_auto_pad(struct mapper *m)
{
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        if (map_attr_is(m, "auto_pad", names[i], "NOTSET"))
            return (enum auto_pad)i;
    }
    map_invalid(m, "attribute 'auto_pad' is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER");
    return AUTO_PAD_NONE;
}

void window_read(struct mapper *m, uint32_t x, uint32_t weights, struct window *out)
{
    struct window w = {.n = 1};
    uint32_t rank = map_shape(m, x)->rank;
    if (rank < 3)
        map_invalid(m, "its input has rank %u, expected 3 at least", rank);
    else
        w.n = rank - 2;
    read_kernel(m, weights, &w);
    read_list(m, "strides", w.n, 1, 1, w.strides);
    read_list(m, "dilations", w.n, 1, 1, w.dilations);
    w.auto_pad = read_auto_pad(m);
    if (w.auto_pad == AUTO_PAD_NONE)
        read_list(m, "pads", 2 * w.n, 0, 0, w.pads);
    *out = w;
}

void window_auto_pad(struct mapper *m, uint32_t x, struct window *w)
{
    const struct shape *shape = map_shape(m, x);
    if (map_failed(m) || (w->auto_pad != AUTO_PAD_UPPER && w->auto_pad != AUTO_PAD_LOWER))
        return;
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t in = shape->dim[2 + i];
        if (in > value_max) {
            map_invalid(m, "dimension %u of its input is %lld", 2 + i, (long long)in);
            return;
        }
        int64_t out = (in + w->strides[i] - 1) / w->strides[i];
        int64_t total = MAX((out - 1) * w->strides[i] + window_extent(w, i) - in, 0);
        int64_t less = total / 2, more = total - less;
        w->pads[i] = w->auto_pad == AUTO_PAD_UPPER ? less : more;
        w->pads[w->n + i] = w->auto_pad == AUTO_PAD_UPPER ? more : less;
    }
}

void window_emit(struct mapper *m, uint32_t node, const struct window *w)
{
    emit_ints(m, node, IR_ATTR_STRIDES, w->n, w->strides);
    emit_ints(m, node, IR_ATTR_PADS, 2 * w->n, w->pads);
    emit_ints(m, node, IR_ATTR_DILATIONS, w->n, w->dilations);
}
