/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to engine/build: tunes a profile's graph, with sums of two convolutions as one product
 * (fuse_pair) where a device has a kernel for that and it takes less time.
 *
 * Both graphs are tuned without the judge, one with all such nodes and one with none. A node that
 * takes longer than its two parts is left out; the graph with the others is tuned once more, with
 * times from the cache and with the judge. What the judge holds back in FP32, which no kernel for
 * such nodes has, is left out, too (watch.h). Without timing, sizes decide.
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
