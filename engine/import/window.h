/* SPDX-License-Identifier: Apache-2.0 */
/* The sliding window of convolutions and pools, with every default and automatic pad resolved. */
#ifndef INFERD_ENGINE_IMPORT_WINDOW_H
#define INFERD_ENGINE_IMPORT_WINDOW_H

#include "engine/import/map.h"

enum { WINDOW_MAX = SHAPE_MAX_RANK - 2 };

enum auto_pad { AUTO_PAD_NONE, AUTO_PAD_VALID, AUTO_PAD_UPPER, AUTO_PAD_LOWER };

struct window {
    uint32_t n; /* spatial dimensions */
    enum auto_pad auto_pad;
    int64_t kernel[WINDOW_MAX], strides[WINDOW_MAX], dilations[WINDOW_MAX];
    int64_t pads[2 * WINDOW_MAX]; /* begins, then ends */
};

/* Reads kernel_shape, strides, dilations, pads and auto_pad for an operand x[N,C,spatial..]. If the
 * attribute is absent, the kernel has the shape of `weights`; IR_NONE: it must be there. */
void window_read(struct mapper *m, uint32_t x, uint32_t weights, struct window *out);

/* Sets pads from auto_pad for an operator that shrinks its input by the strides. */
void window_auto_pad(struct mapper *m, uint32_t x, struct window *w);

/* The size of dimension i of the kernel, with the gaps of its dilation. */
static inline int64_t window_extent(const struct window *w, uint32_t i)
{
    return (w->kernel[i] - 1) * w->dilations[i] + 1;
}

void window_emit(struct mapper *m, uint32_t node, const struct window *w);

#endif
