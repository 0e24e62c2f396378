/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered table of passes, and the loop over it.
 *
 * The order matters where one pass prepares another: scalars become one canonical function before
 * patterns are looked for; patterns become single nodes before they are fused into others;
 * weights take scales before activations close a node. What a later pass uncovers for an earlier
 * one is done in the next round.
 */
#include "engine/passes/pass.h"

#include <string.h>

#include "engine/passes/table.h"

/* Each round that changes something makes the graph smaller or more canonical, so that few are
 * ever needed; the bound is for a mistake in here, not for models. */
enum { ROUNDS_MAX = 16 };

const struct pass passes[] = {
    {"dead-layers", "drops nodes whose results nobody reads", pass_erase_unused},
    {"fold-constants", "computes what depends on constants alone", pass_fold_constants},
    {"no-ops", "drops nodes that only hand on their input", pass_erase_noops},
    {"fold-scalars", "arithmetic with one number becomes y = a x + b", pass_fold_scalars},
    {"skip-expand", "elementwise operations broadcast by themselves", pass_skip_expand},
    {"merge-shuffles", "reshapes, transposes and slices in a row become one", pass_merge_shuffles},
    {"transpose-matmul", "a matrix product reads its operand transposed", pass_transpose_matmul},
    {"fold-pad", "zero padding moves into the convolution behind it", pass_fold_pad},
    {"fuse-reduce", "L1 and L2 norms, sums of squares, log-sums", pass_fuse_reduce},
    {"fuse-gelu", "GELU from its parts, exact and by tanh", pass_fuse_gelu},
    {"fuse-gates", "swish, hard swish, hard sigmoid, mish from their parts", pass_fuse_gates},
    {"fuse-layer-norm", "layer normalisation from its parts", pass_fuse_layer_norm},
    {"reduce-to-pool", "an average over all places becomes a pooling", pass_reduce_to_pool},
    {"fold-batch-norm", "batch normalisation moves into weights", pass_fold_batch_norm},
    {"fold-scale", "a scale, uniform or per channel, moves into weights", pass_fold_scale},
    {"fuse-attention", "attention from its parts, where a backend has it", pass_fuse_attention},
    {"fuse-bias", "a sum per channel becomes the bias", pass_fuse_bias},
    {"merge-siblings", "products that read the same input become one", pass_merge_siblings},
    {"fuse-sum", "elementwise sums and products join the node before them", pass_fuse_sum},
    {"fuse-activation", "activations join the node before them", pass_fuse_activation},
    {NULL, NULL, NULL},
};

const struct pass *pass_find(const char *name)
{
    for (const struct pass *pass = passes; pass->name; pass++)
        if (strcmp(pass->name, name) == 0)
            return pass;
    return NULL;
}

static enum status run_one(const struct pass *pass, struct ir_graph *graph,
                           struct pass_context *ctx, struct error *err)
{
    enum status status = pass->run(graph, ctx, err);
    if (status == STATUS_OK)
        status = ir_graph_compact(graph, err);
    if (status == STATUS_OK)
        status = ir_verify(graph, err);
    if (status != STATUS_OK && err)
        error_prefix(err, "after pass %s", pass->name);
    return status;
}

enum status passes_run(struct ir_graph *graph, struct pass_context *ctx, struct error *err)
{
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        uint32_t before = ctx->rewrites;
        for (const struct pass *pass = passes; pass->name; pass++) {
            enum status status = run_one(pass, graph, ctx, err);
            if (status != STATUS_OK)
                return status;
        }
        if (ctx->rewrites == before)
            break;
    }
    return STATUS_OK;
}
