/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tuner's files share. One node of the graph becomes a `sample`: a graph of that node
 * alone, on which candidates are asked for and timed. Nodes with equal keys share a sample.
 */
#ifndef INFERD_ENGINE_TUNE_INTERNAL_H
#define INFERD_ENGINE_TUNE_INTERNAL_H

#include <xxhash.h>

#include "engine/tune/tune.h"

/* --- keys (key.c) --- */

struct tune_key {
    uint64_t high, low;
};

/* Of everything that decides how fast a node runs: op, attributes, epilogue, types, shapes and
 * layouts of its tensors, which of them are constants, how many bytes of
 * constants there are around, and precision. */
bool tune_key_of(const struct ir_graph *graph, const struct ir_node *node, enum precision precision,
                 uint64_t pool_bytes, struct tune_key *out);
/* Of one of its tactics. */
struct tune_key tune_key_tactic(const struct tune_key *node, const struct tactic *tactic);
int tune_key_compare(const struct tune_key *a, const struct tune_key *b);

/* --- the cache (cache.c) --- */

bool tune_cache_get(const struct tune_cache *cache, const struct tune_key *key, uint64_t *ns);
/* False: no memory. */
bool tune_cache_put(struct tune_cache *cache, const struct tune_key *key, uint64_t ns) MUST_USE;

/* --- samples (sample.c) --- */

/* A graph with a copy of the node and of its tensors; constants keep their data. */
enum status tune_sample_new(const struct ir_graph *graph, const struct ir_node *node,
                            struct ir_graph **out, struct error *err);
/* A sample that turns a tensor from one layout into another. */
enum status tune_sample_reformat(const struct ir_tensor *tensor, enum ir_layout from,
                                 enum ir_layout to, struct ir_graph **out, struct error *err);
/* Gives the sample's tensors the layouts of the tactic's ports. */
enum status tune_sample_shape(struct ir_graph *sample, const struct tactic *tactic,
                              struct error *err);
const struct tactic_port *tune_port_in(const struct tactic *tactic, uint32_t input);

/* --- timing (measure.c) --- */

/* A stream, events and buffers that grow; for one tuning run. */
struct tune_bench;

/* `pool_bytes`: the constants of all nodes together, as far as caches can tell. */
enum status tune_bench_new(struct device *device, uint64_t seed, uint64_t pool_bytes,
                           struct tune_bench **out, struct error *err);
void tune_bench_free(struct tune_bench *bench);

/* Times the sample's node with the tactic. `best_ns`: of the candidates so far (0: none); one that
 * is clearly slower is given up early. `once`: a single launch is enough to know. A tactic that the
 * device refuses to prepare gives UNIMPLEMENTED. */
enum status tune_bench_time(struct tune_bench *bench, struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once, uint64_t *out,
                            struct error *err);
/* Bytes of workspace of a node as it stands in its graph. */
enum status tune_bench_workspace(struct tune_bench *bench, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err);
/* Runs a reformat of constant bytes at build time. */
enum status tune_bench_reformat(struct tune_bench *bench, const struct ir_graph *sample,
                                const struct tactic *tactic, const void *from, void *to,
                                struct error *err);

/* --- tables (table.c) --- */

struct tune_option {
    struct tactic *tactic;
    uint64_t ns;
    bool timed; /* now or from the cache: not a guess */
    bool ran;   /* now */
};

/* What is known of all nodes with one key. */
struct tune_entry {
    struct tune_key key;
    struct ir_graph *sample;
    struct tune_option *options;
    uint32_t n, cap;
};

struct tune_table; /* entries by key, and what filling them takes */

/* `pool_bytes` as for the bench. */
enum status tune_table_new(const struct tune_options *options, uint64_t pool_bytes,
                           struct tune_report *report, struct tune_table **out, struct error *err);
void tune_table_free(struct tune_table *table);
/* The entry for a node, its candidates collected but not yet timed. */
enum status tune_table_node(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err);
/* Times what is not timed yet in all entries. */
enum status tune_table_time(struct tune_table *table, struct error *err);
/* The entry for a reformat, timed, its options by rising time. n is 0 if there is no way. */
enum status tune_table_reformat(struct tune_table *table, const struct ir_tensor *tensor,
                                enum ir_layout from, enum ir_layout to, struct tune_entry **out,
                                struct error *err);
struct tune_bench *tune_table_bench(struct tune_table *table);

/* --- using the answer (apply.c) --- */

/* `entries` and `choice` by node. Gives tensors their layouts, puts reformats in, repacks
 * constants, compacts the graph. */
enum status tune_apply(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_table *table, struct tune_entry *const *entries,
                       const uint32_t *choice, struct tune_report *report, struct error *err);

#endif
