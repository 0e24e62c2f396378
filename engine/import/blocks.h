/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the larger values that onnx_compute makes. A block lives as long as a name has it, and
 * is then used for other values, of this request or a later one: fresh pages cost more than most
 * nodes. What requests have not used for a while is freed, and little is kept in all.
 *
 * Of one thread.
 */
#ifndef INFERD_ENGINE_IMPORT_BLOCKS_H
#define INFERD_ENGINE_IMPORT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum { BLOCKS_LEAST = 1 << 13 }; /* smaller values are not worth a block */

struct blocks;

struct blocks *blocks_new(void); /* NULL: no memory */
void blocks_free(struct blocks *blocks);

/* Memory whose bytes mean nothing, aligned to 64. NULL: there is none. */
void *blocks_take(struct blocks *blocks, size_t size);
/* A name has the value at `data`, which may lie anywhere. False: that is in no block. */
bool blocks_hold(struct blocks *blocks, const void *data) MUST_USE;
void blocks_drop(struct blocks *blocks, const void *data); /* undoes one blocks_hold */
/* Takes back the blocks that no name has; returns how many bytes were asked for in them. */
size_t blocks_sweep(struct blocks *blocks);
/* Takes all back, at the end of a request. */
void blocks_rest(struct blocks *blocks);

#endif
