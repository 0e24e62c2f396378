/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one layout to another. Both sides are seen as N, C/b, c (channel in a block), S (all spatial
 * dims as one) with strides of their own; plain and channels-last are one block of all channels.
 */
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

struct place {
    int64_t block, blocks;              /* channels of one block, and blocks */
    int64_t by_n, by_block, by_c, by_s; /* steps in elements */
};

static struct place place_of(enum ref_layout layout, int64_t channels, int64_t spatial)
{
    int64_t block = layout == REF_BLOCKED_8 ? 8 : layout == REF_BLOCKED_16 ? 16 : channels;
    int64_t blocks = block ? (channels + block - 1) / block : 0;
    struct place p = {.block = block, .blocks = blocks, .by_n = blocks * block * spatial};
    p.by_block = block * spatial;
    p.by_c = layout == REF_PLAIN ? spatial : 1;
    p.by_s = layout == REF_PLAIN ? 1 : block;
    return p;
}

static int64_t channel_at(const struct place *p, int64_t c)
{
    return c / p->block * p->by_block + c % p->block * p->by_c;
}

void ref_reformat(enum ref_layout from, enum ref_layout to, const struct tensor_view *x,
                  const struct tensor_view *y)
{
    int64_t size = (int64_t)dtype_size(x->dtype);
    int64_t batch = x->shape.rank ? x->shape.dim[0] : 1;
    int64_t channels = x->shape.rank > 1 ? x->shape.dim[1] : 1;
    int64_t spatial = ref_extent(&x->shape, MIN(2, x->shape.rank), x->shape.rank);
    struct place px = place_of(from, channels, spatial), py = place_of(to, channels, spatial);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < py.blocks * py.block; c++) {
            char *out = (char *)y->data + (n * py.by_n + channel_at(&py, c)) * size;
            const char *in = NULL;
            if (c < channels)
                in = (const char *)x->data + (n * px.by_n + channel_at(&px, c)) * size;
            for (int64_t s = 0; s < spatial; s++, out += py.by_s * size) {
                if (in)
                    memcpy(out, in + s * px.by_s * size, (size_t)size);
                else
                    memset(out, 0, (size_t)size); /* the padding of the last block */
            }
        }
}
