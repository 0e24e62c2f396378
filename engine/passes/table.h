/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passes in the order in which they run. A row has the pass's name, which its file and its
 * function share, and a line for people. The top of each file says what its pass does.
 *
 * The order matters where one pass prepares another: scalars become one canonical function before
 * patterns are looked for, patterns become single nodes before they are fused into others, and
 * weights take scales before activations close a node. If a later pass uncovers work for an earlier
 * one, the next round does it. The last one, fuse_mlp, waits for a round that has found nothing.
 */
#ifndef INFERD_ENGINE_PASSES_TABLE_H
#define INFERD_ENGINE_PASSES_TABLE_H

#define PASSES(ROW)                                                                                \
    ROW(erase_unused, "drops nodes whose results nobody reads")                                    \
    ROW(fold_constants, "computes what depends on constants alone")                                \
    ROW(erase_noops, "drops nodes that only hand on their input")                                  \
    ROW(merge_equal, "nodes that compute the same become one")                                     \
    ROW(fold_scalars, "arithmetic with one number becomes y = a x + b")                            \
    ROW(skip_expand, "elementwise operations broadcast by themselves")                             \
    ROW(merge_shuffles, "reshapes, transposes and slices in a row become one")                     \
    ROW(erase_requantise, "quantising again by the same scale changes nothing")                    \
    ROW(fuse_tables, "rounded functions of bytes that meet these bytes again")                     \
    ROW(merge_chains, "reshapes with transposes between become one transpose")                     \
    ROW(scatter_boxes, "what is scattered over a box of a tensor is joined with the rest of it")   \
    ROW(gather_slices, "slices of one tensor put together again are a gather")                     \
    ROW(gather_channels, "a shuffle of channels becomes a gather")                                 \
    ROW(sink_transposes, "sums and products stand before transposes of channels")                  \
    ROW(transpose_matmul, "a matrix product reads its operand transposed")                         \
    ROW(reshape_matmul, "a product between reshapes works on the tensor as it is")                 \
    ROW(fold_pad, "zero padding moves into the convolution behind it")                             \
    ROW(fuse_reduce, "L1 and L2 norms, sums of squares, log-sums")                                 \
    ROW(fuse_gelu, "GELU from its parts, exact and by tanh")                                       \
    ROW(fuse_gates, "swish, hard swish, hard sigmoid, mish from their parts")                      \
    ROW(fuse_layer_norm, "layer normalisation from its parts")                                     \
    ROW(fuse_group_norm, "group normalisation from its parts")                                     \
    ROW(reduce_to_pool, "an average over all places becomes a pooling")                            \
    ROW(fold_batch_norm, "batch normalisation moves into weights")                                 \
    ROW(fold_scale, "a scale, uniform or per channel, moves into weights")                         \
    ROW(merge_branches, "the sum of two convolutions of one tensor is one convolution")            \
    ROW(unfold_patches, "a convolution that cuts an image into patches is a product")              \
    ROW(fuse_attention, "attention from its parts, where a backend has it")                        \
    ROW(cancel_transposes, "a product computes rows in the order in which they are")               \
    ROW(keep_windows, "attention in windows keeps their order up to the next block")               \
    ROW(fuse_bias, "a sum per channel becomes the bias")                                           \
    ROW(merge_siblings, "products that read the same input become one")                            \
    ROW(hoist_activations, "activations stand before reshapes, next to their product")             \
    ROW(fuse_embed, "sums of rows that ids name, of words, types and positions, are one node")     \
    ROW(fuse_sum, "elementwise sums and products join the node before them")                       \
    ROW(fuse_activation, "activations join the node before them")                                  \
    ROW(fuse_concat, "a scale of channels and its activation join a concatenation")                \
    ROW(lay_patches, "a transposed convolution that lays patches is a product")                    \
    ROW(fuse_stem_pool, "the first convolution of an image and its pool become one node")          \
    ROW(fuse_pair, "the sum of two convolutions is one product, where that is faster")             \
    ROW(fuse_chain, "a convolution and the next one are one node, where that is faster")           \
    ROW(fuse_mlp, "a chain of fully connected layers is one node, where a backend has it")

#endif
