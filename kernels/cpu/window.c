/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/window.h"

#include "base/compiler.h"

bool ref_window_next(uint32_t n, const int64_t *dims, int64_t *index)
{
    for (uint32_t d = n; d-- > 0;) {
        if (++index[d] < dims[d])
            return true;
        index[d] = 0;
    }
    return false;
}

bool ref_window_row(const struct ref_window *win, const int64_t *in, const int64_t *o,
                    const int64_t *k, int64_t *out)
{
    int64_t row = 0;
    for (uint32_t d = 0; d + 1 < win->rank; d++) {
        int64_t at = o[d] * win->strides[d] + k[d] * win->dilations[d] - win->pads[d];
        if (at < 0 || at >= in[d])
            return false;
        row = row * in[d] + at;
    }
    *out = row * in[win->rank - 1];
    return true;
}

void ref_window_span(const struct ref_window *win, int64_t k, int64_t in, int64_t n, int64_t *from,
                     int64_t *to)
{
    uint32_t last = win->rank - 1;
    int64_t stride = win->strides[last];
    int64_t shift = win->pads[last] - k * win->dilations[last]; /* input = o * stride - shift */
    int64_t first = shift > 0 ? (shift + stride - 1) / stride : 0;
    int64_t end = in + shift > 0 ? (in + shift + stride - 1) / stride : 0;
    *from = MIN(first, n);
    *to = MAX(*from, MIN(end, n));
}
