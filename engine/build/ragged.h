/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged batches: a model whose inputs are rows of tokens, [N,S,..], becomes a graph of T tokens,
 * whatever sequences they are of. All that is done to one token after the other (products,
 * normalisations) is done to T rows, without padding; attention sees within a sequence alone.
 *
 * The model is imported for N sequences of S tokens, where N x S = T, with a mask of ones, and
 * fused. Then
 *
 *   attention        reads which rows belong together (its spans, engine/ir/ops.def)
 *   constants that   differ with S are tables by places: they are gathered by positions, the
 *                    place that each token has in its sequence
 *   x[:, 0]          is gathered by starts, and what comes of it has a row for each sequence
 *   means of all     tokens are attention with scores of 0, gathered by starts
 *   sums of          integers along tokens are those over all, less that where a sequence begins
 *
 * and it is proved (along.h) that nothing else joins tokens or sequences; so the N x S rows may be
 * any. Inputs and outputs become flat: [T,..], and [T,..] of which the first rows are the
 * sequences'. What cannot be so is refused with the layer's name.
 *
 * The answer is what the model gives for each sequence alone, at its own length and with a mask of
 * ones.
 */
#ifndef INFERD_ENGINE_BUILD_RAGGED_H
#define INFERD_ENGINE_BUILD_RAGGED_H

#include "engine/build/build.h"

#define RAGGED_FOLD_BYTES (UINT64_C(256) << 20) /* of a constant, before it is rewritten */

enum {
    RAGGED_TOKENS_OF = 16,   /* a batch has a multiple of these tokens */
    RAGGED_MAX_LENGTH = 512, /* of a sequence, if nobody says */
};

/* INVALID_ARGUMENT: the inputs named are not those of the model. */
enum status build_ragged_check(const struct onnx_model *model, const struct build_options *options,
                               struct error *err);

/* The fused graph of so many tokens; `report` is filled as by build_fuse. UNIMPLEMENTED: the model
 * cannot be ragged; the text says which layer is in the way. */
enum status build_ragged_graph(struct onnx_model *model, const struct build_options *options,
                               uint32_t tokens, struct build_report *report, struct ir_graph **out,
                               struct error *err);

/* Says in the plan, whose bindings are made, what they are to clients. */
enum status build_ragged_describe(struct onnx_model *model, const struct build_options *options,
                                  struct plan *plan, struct error *err);

#endif
