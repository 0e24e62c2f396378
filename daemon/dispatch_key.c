/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the batcher calls a shape: requests with equal keys may share a batch. At a point all
 * requests have the same shapes apart from the number of instances and from what is padded, so any
 * of them may, if they agree in the inputs that all instances of a batch share. Large such inputs
 * are not compared: the request runs alone. Keys are seeded by nothing and may collide, so
 * dispatch_run.c compares bytes once more.
 */
#include <xxhash.h>

#include "daemon/dispatch.h"

enum { SHARED_BYTES_MOST = 256 << 10 };

void inflight_key(struct inflight *inflight)
{
    const struct engine_info *info = inflight->model->info;
    uint64_t key = inflight->point;
    for (uint32_t k = 0; info->batched && info->input_axes && k < info->n_inputs; k++) {
        const struct engine_span *span = &inflight->spans[k];
        if (!info->input_axes[k].shared || !span->size)
            continue;
        for (uint32_t d = 0; d < info->inputs[k].shape.rank; d++)
            if (info->input_axes[k].free[d])
                key = key * 31 + (uint64_t)inflight->values[info->input_axes[k].free[d] - 1];
        key = span->size <= SHARED_BYTES_MOST
                  ? XXH3_64bits_withSeed(span->data, span->size, key)
                  : XXH3_64bits_withSeed(&inflight->serial, sizeof(inflight->serial), key + 1);
    }
    inflight->item.shape_key = key;
}
