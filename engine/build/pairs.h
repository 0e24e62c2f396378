/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to engine/build: tunes a profile's graph, with sums of two convolutions as one product
 * (fuse_pair), and then, in 8 bits, with two convolutions in a row as one node (fuse_chain), where
 * a device has a kernel for that and it takes less time.
 *
 * For each kind both graphs are tuned without the judge, one with all such nodes and one with none
 * but those of the kind before that have turned out to pay. A node that takes longer than its two
 * parts is left out; the graph with the others is tuned once more, with times from the cache and
 * with the judge. What the judge holds back from the types that kernels for such nodes have is left
 * out, too (watch.h): a chain first, and then the pair that it began with. Without timing, sizes
 * decide on pairs, and there are no chains.
 */
#ifndef INFERD_ENGINE_BUILD_PAIRS_H
#define INFERD_ENGINE_BUILD_PAIRS_H

#include "engine/build/build.h"

/* Tunes `graph`, or *joined, a copy that has such nodes; NULL: there are none. The graph must
 * outlive the copy. */
enum status build_tune_pairs(struct ir_graph *graph, const struct build_options *options,
                             const struct tune_options *tune, struct build_report *report,
                             struct tune_report *tuned, struct ir_graph **joined,
                             struct error *err);

#endif
