/* SPDX-License-Identifier: Apache-2.0 */
/* Puts blocks with a size and a lifetime into one arena, so that blocks that are alive together do
 * not overlap. */
#ifndef INFERD_ENGINE_BUILD_PACK_H
#define INFERD_ENGINE_BUILD_PACK_H

#include <stdbool.h>
#include <stdint.h>

struct pack_block {
    uint64_t *offset;     /* the answer is written here */
    uint64_t size;        /* > 0 */
    uint32_t first, last; /* the steps of the lifetime, both included */
    uint32_t index;       /* the order of blocks that are otherwise equal: results do not vary */
};

struct pack_load {
    uint64_t pairs; /* of blocks that are alive together: an upper bound */
    uint32_t alive; /* most blocks alive at one step */
};

/* `n_steps`: every `last` is below it. False: no memory. */
bool pack_measure(const struct pack_block *blocks, uint32_t n, uint32_t n_steps,
                  struct pack_load *out);

/* Gives every block its offset and *arena the size that all of them need. Reorders `blocks`. False:
 * no memory. */
bool pack_blocks(struct pack_block *blocks, uint32_t n, const struct pack_load *load,
                 uint64_t *arena);

#endif
