/* SPDX-License-Identifier: Apache-2.0 */
/* The passes, one a file; see each file's top for what it does. Private to engine/passes. */
#ifndef INFERD_ENGINE_PASSES_TABLE_H
#define INFERD_ENGINE_PASSES_TABLE_H

#include "engine/passes/pass.h"

#define PASS(name)                                                                                 \
    enum status pass_##name(struct ir_graph *graph, struct pass_context *ctx, struct error *err)

PASS(erase_unused);
PASS(erase_noops);
PASS(fold_constants);
PASS(fold_scalars);
PASS(merge_shuffles);
PASS(skip_expand);
PASS(transpose_matmul);
PASS(fold_pad);
PASS(reduce_to_pool);
PASS(fuse_reduce);
PASS(fuse_gelu);
PASS(fuse_gates);
PASS(fuse_layer_norm);
PASS(fuse_attention);
PASS(merge_siblings);
PASS(fold_batch_norm);
PASS(fold_scale);
PASS(fuse_bias);
PASS(fuse_sum);
PASS(fuse_activation);

#endif
