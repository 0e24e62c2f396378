/* SPDX-License-Identifier: Apache-2.0 */
/* Conv and ConvTranspose. */
#include "engine/import/ops.h"
#include "engine/import/window.h"

uint32_t emit_conv(struct mapper *m, uint32_t x, uint32_t weights, uint32_t bias)
{
    struct window w;
    const uint32_t inputs[] = {x, weights, bias};
    window_read(m, x, weights, &w);
    window_auto_pad(m, x, &w);
    uint32_t node = emit_begin(m, IR_OP_CONV, bias == IR_NONE ? 2 : 3, inputs);
    window_emit(m, node, &w);
    emit_int(m, node, IR_ATTR_GROUP, map_attr_int(m, "group", 1));
    return emit_end(m, node);
}

void map_conv(struct mapper *m)
{
    uint32_t x = map_in(m, 0), weights = map_in(m, 1), bias = map_in_opt(m, 2);
    map_out(m, 0, emit_conv(m, x, weights, bias));
}

/* Chooses pads for an output that must be `size` long. Pads take away what is too much;
 * output_padding adds what is too little. */
static void deconv_pads_for(const struct window *w, uint32_t i, int64_t in, int64_t size,
                            enum auto_pad side, int64_t *pads, int64_t *output_padding)
{
    int64_t total = w->strides[i] * (in - 1) + *output_padding + window_extent(w, i) - size;
    if (total < 0) {
        *output_padding -= total;
        total = 0;
    }
    int64_t less = total / 2, more = total - less;
    pads[i] = side == AUTO_PAD_UPPER ? less : more;
    pads[w->n + i] = side == AUTO_PAD_UPPER ? more : less;
}

static void deconv_sizes(struct mapper *m, uint32_t x, struct window *w, int64_t *output_padding)
{
    struct ints sizes;
    bool given = map_attr_ints(m, "output_shape", &sizes);
    bool same = w->auto_pad == AUTO_PAD_UPPER || w->auto_pad == AUTO_PAD_LOWER;
    uint32_t skip = sizes.n == w->n + 2 ? 2 : 0; /* some exporters write all dimensions */
    if (given && sizes.n != w->n + skip)
        map_invalid(m, "attribute 'output_shape' has %u values, expected %u", sizes.n, w->n);
    for (uint32_t i = 0; i < w->n && !map_failed(m); i++) {
        int64_t in = map_shape(m, x)->dim[2 + i], size;
        if (!given && !same)
            return;
        if (__builtin_mul_overflow(in, w->strides[i], &size) || size > INT32_MAX)
            map_invalid(m, "dimension %u of its input is %lld", 2 + i, (long long)in);
        else if (given && (sizes.v[skip + i] < 0 || sizes.v[skip + i] > INT32_MAX))
            map_invalid(m, "attribute 'output_shape' has a value %lld",
                        (long long)sizes.v[skip + i]);
        else
            deconv_pads_for(w, i, in, given ? sizes.v[skip + i] : size, w->auto_pad, w->pads,
                            &output_padding[i]);
    }
}

void map_conv_transpose(struct mapper *m)
{
    struct window w;
    struct ints padding;
    int64_t output_padding[WINDOW_MAX] = {0};
    uint32_t x = map_in(m, 0), weights = map_in(m, 1), bias = map_in_opt(m, 2);
    window_read(m, x, weights, &w);
    if (map_attr_ints(m, "output_padding", &padding) && padding.n != w.n)
        map_invalid(m, "attribute 'output_padding' has %u values, expected %u", padding.n, w.n);
    for (uint32_t i = 0; i < padding.n && !map_failed(m); i++) {
        output_padding[i] = padding.v[i];
        if (padding.v[i] < 0 || padding.v[i] > INT32_MAX)
            map_invalid(m, "attribute 'output_padding' has a value %lld", (long long)padding.v[i]);
    }
    deconv_sizes(m, x, &w, output_padding);
    const uint32_t inputs[] = {x, weights, bias};
    uint32_t node = emit_begin(m, IR_OP_DECONV, bias == IR_NONE ? 2 : 3, inputs);
    window_emit(m, node, &w);
    emit_int(m, node, IR_ATTR_GROUP, map_attr_int(m, "group", 1));
    emit_ints(m, node, IR_ATTR_OUTPUT_PADDING, w.n, output_padding);
    map_out(m, 0, emit_end(m, node));
}
