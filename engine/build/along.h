/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a graph does along a dimension that is longer than a request. The same model is given for
 * two sizes of the dimension, and it is proved, or not, that what the longer graph makes of a
 * request of the smaller size, with zeros behind it, is what the smaller graph makes of it: its
 * results hold these, with something else behind. Nothing is run.
 *
 * The proof walks over both graphs, which must have the same nodes. Of each tensor it knows which
 * of its dimensions are of that size (a mark), and what is known of the numbers that lie behind the
 * request (a value): one constant, numbers so low that a softmax makes zeros of them, something
 * finite, or nothing. A node that sums along a mark is proved only if what it adds is zero. What
 * the mask of a softmax hides may be anything finite.
 *
 * A number is taken for low if it has had -1e4 or less added to it: that is what models themselves
 * take for a mask. Products of finite numbers are taken for finite.
 *
 * A row of scores that are all low is no row with a few that are low: what lies behind counts in it
 * as much as the rest. Whether there are such rows depends on the mask that a request has. If the
 * mask alone says which keys all queries see, it has to show one key. If something else hides keys
 * from some queries, as causal attention hides later ones, it has to show the first key. If it
 * hides all keys from the queries that it hides as keys, it has to show all.
 *
 * The proof fails rather than err: an op without a rule (along_rules.c), a mark that is merged with
 * another, a graph whose nodes differ between the sizes.
 */
#ifndef INFERD_ENGINE_BUILD_ALONG_H
#define INFERD_ENGINE_BUILD_ALONG_H

#include "engine/ir/ir.h"

enum along_mode {
    ALONG_PADDED, /* zeros lie behind the request */
    ALONG_APART,  /* others' requests: nothing may be seen of them, wherever one lies */
};

struct along_result {
    uint64_t masks;         /* inputs, by bits, whose zeros hide what is behind the request */
    uint64_t first, whole;  /* of these, those of which more is asked (enum engine_mask) */
    uint8_t out[IR_MAX_IO]; /* by bits, the dimensions of an output that have the size */
    bool no_memory;         /* nothing is said of the graphs, then */
    char why[160];          /* if it is not proved: the layer where it ends, for people */
    /* The name of that layer if there is no doubt that it sums, sorts or compares along the
     * dimension; else "". */
    char joins[128];
};

/* The dimension has `small_size` in the one graph, and a larger one in the other. Inputs have it
 * where their sizes differ. False: not proved, or no memory. */
bool along_prove(const struct ir_graph *small, const struct ir_graph *large, int64_t small_size,
                 int64_t large_size, enum along_mode mode, struct along_result *out);

#endif
