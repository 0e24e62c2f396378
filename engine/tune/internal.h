/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tuner's files share. One node of the graph becomes a `sample`: a graph of that node
 * alone, on which candidates are asked for, compiled and timed. Nodes with equal keys share a
 * sample. A sample stays as the graph has it; what a tactic makes of it is a copy.
 */
#ifndef INFERD_ENGINE_TUNE_INTERNAL_H
#define INFERD_ENGINE_TUNE_INTERNAL_H

#include <xxhash.h>

#include "engine/tune/solve.h"
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
/* Of one of its tactics; `device`: the fingerprint of a device that is not the cache's, or "". */
struct tune_key tune_key_tactic(const struct tune_key *node, const struct tactic *tactic,
                                const char *device);
int tune_key_compare(const struct tune_key *a, const struct tune_key *b);

/* --- the cache (cache.c) --- */

#define TUNE_NEVER SOLVE_NEVER /* the time of what cannot be used, which is never chosen */

bool tune_cache_get(const struct tune_cache *cache, const struct tune_key *key, uint64_t *ns);
/* False: no memory. */
bool tune_cache_put(struct tune_cache *cache, const struct tune_key *key, uint64_t ns) MUST_USE;
/* Compiled tactics. What is got is the cache's, until it is freed or the key put again. */
bool tune_cache_get_code(struct tune_cache *cache, const struct tune_key *key, const void **code,
                         uint64_t *size);
bool tune_cache_put_code(struct tune_cache *cache, const struct tune_key *key, const void *code,
                         uint64_t size) MUST_USE;
/* Adds the entries of a file's bytes; those that are there already stay if `keep`. *fault: why the
 * bytes are not a cache, and nothing is added; NULL if they are one. */
enum status tune_cache_merge(struct tune_cache *cache, const void *data, size_t size, bool keep,
                             const char **fault, struct error *err);

/* --- formats (format.c) --- */

/* The least layout that agrees with this one. */
enum ir_layout tune_layout_least(const struct shape *shape, enum ir_layout layout);
const struct tactic_port *tune_port_in(const struct tactic *tactic, uint32_t input);
/* What the port makes of a tensor, of the sample or of the graph. */
struct ir_format tune_port_format(const struct ir_tensor *tensor, const struct tactic_port *port);
/* Port `at` of the sample's node, inputs first, and its tensor; NULL: an absent input. */
const struct ir_tensor *tune_port_at(const struct ir_graph *sample, const struct tactic *tactic,
                                     uint32_t at, const struct tactic_port **port);
/* For keys: the scale's number does not count. */
static inline uint64_t tune_format_word(struct ir_format format)
{
    return (uint64_t)format.layout | (uint64_t)format.dtype << 8 |
           (uint64_t)(format.scale != IR_NO_SCALE) << 16;
}
/* The least type that the tactic stores in the place of one of the graph; NONE: it stores all
 * tensors as the graph has them. */
enum dtype tune_type(const struct ir_graph *sample, const struct tactic *tactic);

/* --- samples (sample.c) --- */

/* A graph with a copy of the node and of its tensors; constants keep their data. */
enum status tune_sample_new(const struct ir_graph *graph, const struct ir_node *node,
                            struct ir_graph **out, struct error *err);
/* A sample that turns a tensor of the graph from one format into another. */
enum status tune_sample_reformat(const struct ir_graph *graph, uint32_t tensor,
                                 struct ir_format from, struct ir_format to, struct ir_graph **out,
                                 struct error *err);
/* A copy whose tensors are stored as the tactic wants them. */
enum status tune_sample_shaped(const struct ir_graph *sample, const struct tactic *tactic,
                               struct ir_graph **out, struct error *err);

/* --- buffers and timing (bench.c, measure.c) --- */

/* A stream, events and buffers that grow; for one tuning run on one device. */
struct tune_bench;

/* `pool_bytes`: the constants of all nodes together, as far as caches can tell. */
enum status tune_bench_new(struct device *device, uint64_t seed, uint64_t pool_bytes,
                           struct tune_bench **out, struct error *err);
void tune_bench_free(struct tune_bench *bench);

/* What one round has shown. */
struct tune_time {
    uint64_t ns;
    uint64_t spent_ns; /* on all its samples */
    bool clean;        /* nothing speaks against it */
    bool blind;        /* what others took of the device is not known */
};

/* Whether a time says the same as the least one. */
static inline bool tune_times_agree(uint64_t least, uint64_t other)
{
    return other - least <= least / 20;
}

/* Times the sample's node with the tactic, once more. `best_ns`: of the candidates so far (0:
 * none); one that is clearly slower is given up early. `once`: a single launch is enough to know.
 * UNIMPLEMENTED: the tactic does not work here, for whatever reason; the error says which. */
enum status tune_bench_time(struct tune_bench *bench, const struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once,
                            struct tune_time *out, struct error *err);
/* Bytes of workspace of a node as it stands in its graph. */
enum status tune_bench_workspace(struct tune_bench *bench, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err);

/* --- tables (table.c) --- */

struct tune_option {
    struct tactic *tactic;
    uint64_t ns;
    bool timed;    /* now or from the cache: not a guess */
    bool ran;      /* now */
    bool compiled; /* now; or the backend does not compile */
    bool chosen;   /* by some node */
    bool given_up; /* not tried: hopeless by what was seen at other batch sizes, or out of time */
    /* Of the rounds in which it ran now: how many, the least but one, the least clean one (0: none
     * was). */
    uint32_t rounds;
    uint64_t second_ns, clean_ns, spent_ns;
    bool blind;
};

/* Whether the time is the tactic's, and not that of what else ran on the machine. */
bool tune_believed(const struct tune_option *option);

/* What is known of all nodes with one key. */
struct tune_entry {
    struct tune_key key;
    struct device *device; /* the one that runs it: the options' device, or their host */
    struct ir_graph *sample;
    struct tune_option *options;
    uint32_t n, cap;
    bool filled; /* each option has a time, or TUNE_NEVER */
};

struct tune_table; /* entries by key, and what filling them takes */

/* `pool_bytes` as for the bench. */
enum status tune_table_new(const struct tune_options *options, uint64_t pool_bytes,
                           struct tune_report *report, struct tune_table **out, struct error *err);
void tune_table_free(struct tune_table *table);
/* The entry for a node, its candidates collected but not yet timed; the host's, if the device has
 * none. */
enum status tune_table_node(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err);
/* The entry for a reformat of a tensor, timed, its options by rising time. n is 0 if there is no
 * way. */
enum status tune_table_reformat(struct tune_table *table, const struct ir_graph *graph,
                                uint32_t tensor, struct ir_format from, struct ir_format to,
                                struct tune_entry **out, struct error *err);
/* The entry's candidates are dropped for those of the host, if there is one. */
enum status tune_table_to_host(struct tune_table *table, struct tune_entry *entry,
                               struct error *err);
/* Entries in the order in which they came; NULL behind the last one. */
struct tune_entry *tune_table_next(struct tune_table *table, struct tune_entry *entry);
/* Made on first use. `device`: the options' device or their host. */
enum status tune_table_bench(struct tune_table *table, struct device *device,
                             struct tune_bench **out, struct error *err);
const struct tune_options *tune_table_options(const struct tune_table *table);
struct tune_report *tune_table_report(const struct tune_table *table);
struct tune_key tune_table_key(const struct tune_table *table, const struct tune_entry *entry,
                               const struct tactic *tactic);
void tune_table_progress(struct tune_table *table, const struct tune_entry *entry, uint32_t done);
bool tune_is_fallback(const struct tactic *tactic); /* a reference kernel */

/* --- filling them (fill.c) --- */

/* Times what is not timed yet in all entries: from the cache, on the device, or by a guess. */
enum status tune_fill(struct tune_table *table, struct error *err);
/* The same for one entry that came later, without compiling ahead. An entry of which nothing works
 * on the device becomes the host's. */
enum status tune_fill_entry(struct tune_table *table, struct tune_entry *entry, struct error *err);

/* --- compiling (compile.c) --- */

struct tune_job {
    const struct tune_entry *entry;
    struct tune_option *option;
    char why[120]; /* it does not work */
};

/* Compiles all of them on several threads, in their order, for those whose backend does that. Sets
 * `compiled`, or `ns` to TUNE_NEVER for what does not work; after `budget_ns` (0: no limit) nothing
 * more is begun. An error is one of memory or of the device. */
enum status tune_compile(const struct tune_options *options, struct tune_job *jobs, uint32_t n,
                         uint64_t budget_ns, struct error *err);
/* Gives the chosen options' tactics their code, from the cache or from the backend; its bytes live
 * in `arena`. *again: some did not work after all and are TUNE_NEVER now: choose once more. */
enum status tune_compile_chosen(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                                struct arena *arena, bool *again, struct error *err);

/* --- what other batch sizes have shown (history.c) --- */

/* Adds the entry's times. False: no memory. */
bool tune_history_note(struct tune_history *history, const struct tune_entry *entry) MUST_USE;
/* Whether this option was slow wherever it was tried; not before two graphs were noted. */
bool tune_history_hopeless(const struct tune_history *history, const struct tune_entry *entry,
                           const struct tune_option *option);
void tune_history_graph_done(struct tune_history *history);

/* --- using the answer (apply.c) --- */

/* `entries` and `choice` by node. Gives tensors their layouts and types, puts reformats in, packs
 * or converts constants, compacts the graph. */
enum status tune_apply(struct ir_graph *graph, struct tune_table *table,
                       struct tune_entry *const *entries, const uint32_t *choice,
                       struct error *err);

#endif
