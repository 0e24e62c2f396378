/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tuner's files share. A `sample` is a graph of one node, copied from the graph that is
 * tuned: the backend is asked for its candidates, which are compiled and timed on it. Nodes with
 * equal keys share a sample. A sample's tensors stay as the graph has them; to try a tactic, a copy
 * gets the formats that the tactic wants (tune_sample_shaped).
 */
#ifndef INFERD_ENGINE_TUNE_INTERNAL_H
#define INFERD_ENGINE_TUNE_INTERNAL_H

#include <xxhash.h>

#include "engine/tune/pin.h"
#include "engine/tune/solve.h"
#include "engine/tune/tune.h"

/* --- keys (key.c) --- */

struct tune_key {
    uint64_t high, low;
};

/* A key of everything that decides how fast a node runs: op, attributes, epilogue, types, shapes
 * and layouts of its tensors, which of them are constants, the bytes of all constants of the graph
 * (`pool_bytes`), and precision. Without `ranges`, those of tensors do not count: a tactic that
 * stores nothing by a range is as fast without. False: no memory. */
bool tune_key_of(const struct ir_graph *graph, const struct ir_node *node, enum precision precision,
                 uint64_t pool_bytes, bool ranges, struct tune_key *out);
/* The key of one of the node's tactics. `device`: "" if the tactic runs on the cache's device, else
 * the fingerprint of the device that it runs on. */
struct tune_key tune_key_tactic(const struct tune_key *node, const struct tactic *tactic,
                                const char *device);
int tune_key_compare(const struct tune_key *a, const struct tune_key *b);

/* --- the cache (cache.c) --- */

#define TUNE_NEVER SOLVE_NEVER /* the time of a candidate that cannot be used or was given up */

bool tune_cache_get(const struct tune_cache *cache, const struct tune_key *key, uint64_t *ns);
/* False: no memory. */
bool tune_cache_put(struct tune_cache *cache, const struct tune_key *key, uint64_t ns) MUST_USE;
/* Compiled tactics. *code stays the cache's, and valid until the cache is freed or the same key is
 * put again. */
bool tune_cache_get_code(struct tune_cache *cache, const struct tune_key *key, const void **code,
                         uint64_t *size);
bool tune_cache_put_code(struct tune_cache *cache, const struct tune_key *key, const void *code,
                         uint64_t size) MUST_USE;
/* Adds the entries of a file's bytes; `keep`: entries that the cache has already stay. *fault: why
 * the bytes are no cache, in which case nothing is added; NULL: they are one. */
enum status tune_cache_merge(struct tune_cache *cache, const void *data, size_t size, bool keep,
                             const char **fault, struct error *err);

/* --- formats (format.c) --- */

/* The first layout that agrees with this one (ir_layouts_agree). */
enum ir_layout tune_layout_least(const struct shape *shape, enum ir_layout layout);
const struct tactic_port *tune_port_in(const struct tactic *tactic, uint32_t input);
/* The format that the port gives to a tensor, of the sample or of the graph. */
struct ir_format tune_port_format(const struct ir_tensor *tensor, const struct tactic_port *port);
/* Port `at` of the sample's node, inputs first, and its tensor; NULL: an absent input. */
const struct ir_tensor *tune_port_at(const struct ir_graph *sample, const struct tactic *tactic,
                                     uint32_t at, const struct tactic_port **port);
/* A number for keys: whether the format has a scale counts, but not which. */
static inline uint64_t tune_format_word(struct ir_format format)
{
    return (uint64_t)format.layout | (uint64_t)format.dtype << 8 |
           (uint64_t)(format.scale != IR_NO_SCALE) << 16;
}
/* The shortest type that the tactic stores a tensor as in place of the graph's type; NONE: the
 * tactic stores all tensors as the graph has them. */
enum dtype tune_type(const struct ir_graph *sample, const struct tactic *tactic);
/* All such types, as a set of 1 << dtype. */
uint32_t tune_types(const struct ir_graph *sample, const struct tactic *tactic);

/* --- samples (sample.c) --- */

/* A graph with a copy of the node and of its tensors; constants share the graph's data. */
enum status tune_sample_new(const struct ir_graph *graph, const struct ir_node *node,
                            struct ir_graph **out, struct error *err);
/* A sample that turns a tensor of the graph from one format into another. */
enum status tune_sample_reformat(const struct ir_graph *graph, uint32_t tensor,
                                 struct ir_format from, struct ir_format to, struct ir_graph **out,
                                 struct error *err);
/* A copy of the sample whose tensors are stored as the tactic wants them. */
enum status tune_sample_shaped(const struct ir_graph *sample, const struct tactic *tactic,
                               struct ir_graph **out, struct error *err);

/* --- buffers and timing (bench.c, measure.c) --- */

/* A stream, events and buffers that grow; for one tuning run on one device. */
struct tune_bench;

/* `pool_bytes`: bytes of all constants of the graph, cut off where no cache reaches (tune.c). */
enum status tune_bench_new(struct device *device, uint64_t seed, uint64_t pool_bytes,
                           struct tune_bench **out, struct error *err);
void tune_bench_free(struct tune_bench *bench);

/* What one round of samples has shown. */
struct tune_time {
    uint64_t ns;
    uint64_t spent_ns; /* on all samples of the round */
    bool clean;        /* nothing speaks against `ns` */
    bool blind;        /* the backend cannot tell whether other work used the device */
};

/* Whether a time confirms the least one. */
static inline bool tune_times_agree(uint64_t least, uint64_t other)
{
    return other - least <= least / 20;
}

/* Times the sample's node with the tactic, in one round. `best_ns`: the best time of the candidates
 * so far (0: none); a tactic that is clearly slower is given up early. `once`: a single launch is
 * enough. UNIMPLEMENTED: the tactic does not work here; the error says why. */
enum status tune_bench_time(struct tune_bench *bench, const struct ir_graph *sample,
                            const struct tactic *tactic, uint64_t best_ns, bool once,
                            struct tune_time *out, struct error *err);
/* Bytes of workspace that the node needs with its tactic. */
enum status tune_bench_workspace(struct tune_bench *bench, const struct ir_graph *graph,
                                 const struct ir_node *node, uint64_t *out, struct error *err);

/* --- tables (table.c) --- */

struct tune_option {
    struct tactic *tactic;
    uint32_t wave; /* the tactic's; 0 if other sizes say that it is worth trying */
    uint64_t ns;
    bool timed;         /* `ns` was measured, now or when the cache was filled: it is not a guess */
    bool ran;           /* in this run of the tuner */
    bool compiled;      /* in this run of the tuner; or the backend does not compile */
    bool chosen;        /* by some node */
    bool given_up;      /* not tried: hopeless at other batch sizes, or out of time */
    bool beyond;        /* its workspace is larger than the options allow */
    uint32_t rounds;    /* in which it ran; the fields below speak of these */
    uint64_t second_ns; /* the least time but one */
    uint64_t clean_ns;  /* the least time of a clean round; 0: none was clean */
    uint64_t spent_ns;
    bool blind; /* as in tune_time */
};

/* Whether the time is the tactic's own, and not made longer by other work on the machine. */
bool tune_believed(const struct tune_option *option);

/* What is known of all nodes with one key. */
struct tune_entry {
    struct tune_key key, float_key; /* float_key: without ranges */
    struct device *device;          /* the one that runs it: the options' device, or their host */
    struct ir_graph *sample;
    uint64_t pins; /* that count for its nodes (pin.h) */
    struct tune_option *options;
    uint32_t n, cap;
    uint32_t uses;         /* nodes of the graph with this key */
    uint64_t least_beyond; /* the smallest workspace that was too large; 0: none was */
    bool asked;            /* the backend, for candidates */
    bool widened;          /* it was asked for those in fp32 alone, too, */
    uint32_t widened_at;   /* which are from here on */
    bool filled;           /* each option has a time, or TUNE_NEVER */
};

/* An option of one of a node's entries. */
struct tune_pick {
    struct tune_entry *entry;
    uint32_t option;
};

struct tune_table; /* entries by key, and what is needed to fill them */

/* `pool_bytes` as in tune_bench_new. */
enum status tune_table_new(const struct tune_options *options, uint64_t pool_bytes,
                           struct tune_report *report, struct tune_table **out, struct error *err);
void tune_table_free(struct tune_table *table);
/* The entry for a node, which has no candidates yet. */
enum status tune_table_node(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err);
/* Asks for the candidates of all entries that have none yet, on all cores where the device
 * compiles. They are the host's if the device has none. */
enum status tune_table_ask(struct tune_table *table, struct error *err);
/* The entry for a node on the host, which runs it beside the device's entry. */
enum status tune_table_twin(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_entry **out, struct error *err);
/* The entry for a reformat of a tensor, timed, its options by rising time. It has no options if no
 * tactic can do the reformat. */
enum status tune_table_reformat(struct tune_table *table, const struct ir_graph *graph,
                                uint32_t tensor, struct ir_format from, struct ir_format to,
                                struct tune_entry **out, struct error *err);
/* Replaces the entry's candidates by those of the host, if there is a host. */
enum status tune_table_to_host(struct tune_table *table, struct tune_entry *entry,
                               struct error *err);
/* Adds, once, the device's candidates in fp32, of which some backends offer none where shorter
 * types are allowed. */
enum status tune_table_widen(struct tune_table *table, struct tune_entry *entry, struct error *err);
/* Entries in the order in which they came; NULL behind the last one. */
struct tune_entry *tune_table_next(struct tune_table *table, struct tune_entry *entry);
/* The bench of a device, which is made on first use: the options' device or their host. */
enum status tune_table_bench(struct tune_table *table, struct device *device,
                             struct tune_bench **out, struct error *err);
const struct tune_options *tune_table_options(const struct tune_table *table);
struct tune_report *tune_table_report(const struct tune_table *table);
struct tune_key tune_table_key(const struct tune_table *table, const struct tune_entry *entry,
                               const struct tactic *tactic);
void tune_table_progress(struct tune_table *table, const struct tune_entry *entry, uint32_t done);
bool tune_is_fallback(const struct tactic *tactic); /* a reference kernel */

/* --- candidates that take long to compile (wave.c) --- */

/* The option's least time; 0: none has worked so far. */
uint64_t tune_best(const struct tune_entry *entry);
/* Nanoseconds of the whole graph with each node's best option so far. */
uint64_t tune_wave_whole(struct tune_table *table);
/* The last wave of the entry's options. */
uint32_t tune_wave_last(const struct tune_entry *entry);
/* Whether an option of wave 1 or later is worth compiling, now that all earlier waves are timed.
 * `whole`: as above; 0: the node's part in the graph does not matter. */
bool tune_wave_worth(const struct tune_entry *entry, const struct tune_option *option,
                     uint64_t whole);

/* --- filling the table (fill.c) --- */

/* Gives all options of all entries a time: from the cache, on the device, or by a guess. */
enum status tune_fill(struct tune_table *table, struct error *err);
/* The same for one entry that was added later, without compiling ahead. An entry with no option
 * that works on the device becomes the host's. */
enum status tune_fill_entry(struct tune_table *table, struct tune_entry *entry, struct error *err);
/* Tries options of none of these types that had been given up, until one works. */
enum status tune_fill_without(struct tune_table *table, struct tune_entry *entry, uint32_t held,
                              struct error *err);
/* Gives a time to those in fp32 that the device has besides (tune_table_widen). */
enum status tune_fill_wide(struct tune_table *table, struct tune_entry *entry, struct error *err);

/* --- the tuner's own time (effort.c) --- */

/* Adds the time since `*since` to the phase, and sets *since to now. */
void tune_phase_end(struct tune_report *report, enum tune_phase phase, uint64_t *since);

/* --- compiling (compile.c) --- */

struct tune_job {
    struct tune_entry *entry;
    struct tune_option *option;
    uint32_t number; /* in the order of the guesses */
    char why[120];   /* why the option does not work */
};

/* Compiles the jobs in their order, on several threads, for backends that compile. Sets each
 * option's `compiled`, or its `ns` to TUNE_NEVER if it does not work. After `budget_ns` (0: no
 * limit) no further job is begun. An error is one of memory or of the device. */
enum status tune_compile(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                         uint64_t budget_ns, struct error *err);
/* The same while the caller does something else, which leaves the jobs' options alone. Other
 * threads compile from the first call on; the second one, which must follow, takes part and waits
 * for them. */
struct tune_compiling;
enum status tune_compile_begin(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                               uint64_t budget_ns, struct tune_compiling **out, struct error *err);
enum status tune_compile_end(struct tune_compiling *compiling, struct error *err);
/* Gives the chosen options' tactics their code, from the cache or from the backend, in `arena`.
 * *again: some options did not work after all and are TUNE_NEVER now, so choose once more. */
enum status tune_compile_chosen(struct tune_table *table, struct tune_job *jobs, uint32_t n,
                                struct arena *arena, bool *again, struct error *err);

/* --- the limit of workspaces (limit.c) --- */

/* Finds out whether the option's workspace is within the options' limit. If not, the option's time
 * is TUNE_NEVER from then on, in this graph alone. */
enum status tune_limit_check(struct tune_table *table, struct tune_entry *entry,
                             struct tune_option *option, bool *fits, struct error *err);

/* --- times at other batch sizes (history.c) --- */

/* Adds the entry's times. False: no memory. */
bool tune_history_note(struct tune_history *history, const struct tune_entry *entry) MUST_USE;
/* What other sizes say of an option. */
enum tune_promise { TUNE_UNKNOWN, TUNE_GOOD, TUNE_HOPELESS };
enum tune_promise tune_history_ask(const struct tune_history *history,
                                   const struct tune_entry *entry,
                                   const struct tune_option *option);
/* All of a graph is noted, whose largest tensor has so many bytes. */
void tune_history_graph_done(struct tune_history *history, uint64_t largest);

/* --- using the answer (apply.c) --- */

/* Gives nodes the times of their picks. */
void tune_apply_times(struct ir_graph *graph, const struct tune_pick *picks);

/* Gives tensors their layouts and types, puts reformats in, packs or converts constants, compacts
 * the graph. `picks` is indexed by node; a removed node has no entry. */
enum status tune_apply(struct ir_graph *graph, struct tune_table *table,
                       const struct tune_pick *picks, struct error *err);

/* --- device or host (sides.c) --- */

/* Whether the host runs the entry's nodes beside the device. NULL is no entry. */
static inline bool tune_on_host(const struct tune_options *options, const struct tune_entry *entry)
{
    return entry && entry->device != options->device;
}

/* Where a node may run. */
struct tune_site {
    struct tune_entry *entry; /* the device's; the host's, if only the host can run the node */
    struct tune_entry *twin;  /* the host's beside the device's; NULL: none */
    bool exiled;              /* the device must not run the node: its run was too short */
};

/* What it costs that a tensor is made on one side and read on the other. */
uint64_t tune_crossing_ns(const struct ir_tensor *tensor);
/* Finds twins for the nodes that might be cheaper on the host. */
enum status tune_sites_twin(struct tune_table *table, const struct ir_graph *graph,
                            struct tune_site *sites, struct error *err);
/* Exiles the nodes of runs on the device that are shorter than the options' min_segment. *some:
 * there were some, so choose again. */
enum status tune_sites_exile(struct tune_table *table, const struct ir_graph *graph,
                             struct tune_site *sites, const struct tune_pick *picks, bool *some,
                             struct error *err);
/* Gives the node a twin if the host can run it, and the device must not. */
enum status tune_sites_host(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_site *site, struct error *err);
/* Logs which layers run on the CPU beside a device, and why; counts them in the report. */
void tune_sites_tell(struct tune_table *table, const struct ir_graph *graph,
                     const struct tune_site *sites, const struct tune_pick *picks);

/* --- types that are ruled out (held.c) --- */

/* The entry's least time with a tactic of none of these types; TUNE_NEVER: there is no such
 * tactic. */
uint64_t tune_held_least(const struct tune_entry *entry, uint32_t held);
/* Describes a chosen tactic to a judge. */
struct tune_layer tune_held_layer(const struct tune_pick *pick, const struct tune_site *site);
/* Makes sure that the node has a tactic without the types, on the host if need be, or takes all
 * types from *held again. */
enum status tune_held_ensure(struct tune_table *table, const struct ir_graph *graph, uint32_t node,
                             struct tune_site *site, uint32_t *held, struct error *err);

#endif
