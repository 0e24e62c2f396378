/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks with a size and a lifetime, put into one arena such that those alive together do not
 * overlap. */
#ifndef INFERD_ENGINE_BUILD_PACK_H
#define INFERD_ENGINE_BUILD_PACK_H

#include <stdbool.h>
#include <stdint.h>

struct pack_block {
    uint64_t *offset;     /* where the answer goes */
    uint64_t size;        /* > 0 */
    uint32_t first, last; /* alive from one step to the other, both included */
    uint32_t index;       /* decides between equals, so that the result is always the same */
};

/* How many blocks are alive together with others, as pairs (at most), and how many at one step. */
struct pack_load {
    uint64_t pairs;
    uint32_t alive;
};

/* `n_steps`: every `last` is below it. False: no memory. */
bool pack_measure(const struct pack_block *blocks, uint32_t n, uint32_t n_steps,
                  struct pack_load *out);

/* Gives every block its offset. Reorders `blocks`. `arena` is where the last one ends. False: no
 * memory. */
bool pack_blocks(struct pack_block *blocks, uint32_t n, const struct pack_load *load,
                 uint64_t *arena);

#endif
