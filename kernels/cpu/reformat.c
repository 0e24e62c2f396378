/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves a tensor from one layout to another. Each side is seen as N, C/b, c (the channel in a
 * block) and S (all spatial dims as one), with strides of its own. Plain and channels-last layouts
 * have one block of all channels, rounded up if the layout says so.
 */
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

struct place {
    int64_t block, blocks;              /* channels of one block, and blocks */
    int64_t by_n, by_block, by_c, by_s; /* steps in elements */
};

static struct place place_of(enum ir_layout layout, int64_t channels, int64_t spatial)
{
    static const int64_t blocked[IR_LAYOUT_COUNT_] = {
        [IR_LAYOUT_BLOCKED_8] = 8, [IR_LAYOUT_BLOCKED_16] = 16};
    static const int64_t padded[IR_LAYOUT_COUNT_] = {
        [IR_LAYOUT_CHANNELS_LAST_4] = 4, [IR_LAYOUT_CHANNELS_LAST_8] = 8};
    int64_t pad = padded[layout], block = blocked[layout];
    if (block == 0)
        block = pad ? (channels + pad - 1) / pad * pad : channels;
    int64_t blocks = block ? (channels + block - 1) / block : 0;
    struct place p = {.block = MAX(block, 1), .blocks = blocks, .by_n = blocks * block * spatial};
    p.by_block = block * spatial;
    p.by_c = layout == IR_LAYOUT_PLAIN ? spatial : 1;
    p.by_s = layout == IR_LAYOUT_PLAIN ? 1 : block;
    return p;
}

static int64_t channel_at(const struct place *p, int64_t c)
{
    return c / p->block * p->by_block + c % p->block * p->by_c;
}

/* Moves one channel's row of elements. */
static void move_row(const struct tensor_view *x, int64_t from, int64_t x_step,
                     const struct tensor_view *y, int64_t to, int64_t y_step, int64_t n)
{
    double row[REF_ROW];
    if (x->dtype == y->dtype) {
        size_t size = dtype_size(x->dtype);
        for (int64_t s = 0; s < n; s++)
            memcpy((char *)y->data + (to + s * y_step) * (int64_t)size,
                   (const char *)x->data + (from + s * x_step) * (int64_t)size, size);
        return;
    }
    for (int64_t s = 0; s < n; s += REF_ROW) {
        size_t part = (size_t)MIN(n - s, REF_ROW);
        ref_read_f64(x->dtype, x->data, from + s * x_step, x_step, part, row);
        ref_write_f64(y->dtype, y->data, to + s * y_step, y_step, part, row);
    }
}

static void clear_row(const struct tensor_view *y, int64_t to, int64_t step, int64_t n)
{
    size_t size = dtype_size(y->dtype);
    for (int64_t s = 0; s < n; s++)
        memset((char *)y->data + (to + s * step) * (int64_t)size, 0, size);
}

void ref_reformat(enum ir_layout from, enum ir_layout to, const struct tensor_view *x,
                  const struct tensor_view *y)
{
    int64_t batch = x->shape.rank ? x->shape.dim[0] : 1;
    int64_t channels = x->shape.rank > 1 ? x->shape.dim[1] : 1;
    int64_t spatial = ref_extent(&x->shape, MIN(2, x->shape.rank), x->shape.rank);
    struct place px = place_of(from, channels, spatial), py = place_of(to, channels, spatial);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < py.blocks * py.block; c++) {
            int64_t at = n * py.by_n + channel_at(&py, c);
            if (c < channels)
                move_row(x, n * px.by_n + channel_at(&px, c), px.by_s, y, at, py.by_s, spatial);
            else
                clear_row(y, at, py.by_s, spatial); /* the padding */
        }
}
