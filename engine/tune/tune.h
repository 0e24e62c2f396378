/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner: gives every node of a graph a tactic and every tensor a layout and a type.
 *
 * It asks the backend for the candidates of each node within a precision, compiles them on several
 * threads, times them on random data, times the reformats between the layouts and types that occur,
 * and takes the cheapest consistent assignment over the whole graph. Nothing is forced: a layer
 * keeps fp32 where that is faster. Nodes that are the same (op, attributes, epilogue, shapes,
 * types, constants or not) are timed once, in this graph and in every other one that shares the
 * cache. A node that the device has no candidate for is given to the CPU, plain and as the graph
 * has it.
 *
 * On return the graph is complete but for places and offsets:
 *  - node->tactic and node->time_ns are set, node->workspace_bytes is the tactic's need;
 *  - tensors have their layouts and types; graph inputs and outputs are plain and of their own
 * type;
 *  - REFORMAT nodes stand where layouts or types differ; one between layouts that agree has no
 *    tactic: it becomes an alias (engine/build/place.c);
 *  - constants that a tactic wants packed are replaced by OPAQUE ones, others converted. Two graphs
 *    (profiles) of one model often get the same bytes: whoever writes the plan should store equal
 *    bytes once.
 * The graph has been compacted: indices have changed.
 */
#ifndef INFERD_ENGINE_TUNE_TUNE_H
#define INFERD_ENGINE_TUNE_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

struct tune_cache;
struct tune_history;

struct tune_options {
    struct device *device;        /* device->backend is asked */
    struct device *host;          /* a CPU device for what `device` does not do; NULL: nothing is */
    struct tune_history *history; /* what other graphs of this model have shown; may be NULL */
    enum precision precision;
    bool no_timing; /* time nothing: cached times where there are any, else guesses from sizes */
    bool retune;    /* take no times from the cache */
    struct tune_cache *cache; /* read and added to; NULL: none */
    uint64_t seed;            /* of the random data */
    const struct log_sink
        *log; /* info: a line at the end; verbose: a line a candidate. May be NULL */
    /* May be NULL. `done` of `total` candidates; called on the caller's thread. */
    void (*progress)(void *user, uint32_t done, uint32_t total, const char *what);
    void *user;
};

struct tune_report {
    uint32_t nodes;      /* with a tactic, reformats included */
    uint32_t reformats;  /* put in */
    uint32_t timed;      /* candidates that were run now */
    uint32_t disturbed;  /* of those, the ones whose time is not believed, and not in the cache */
    uint32_t from_cache; /* candidates whose time was known */
    uint32_t given_up;   /* candidates not tried: hopeless by other batch sizes, or out of time */
    uint32_t on_host;    /* nodes that the CPU runs in the device's place */
    uint64_t time_ns;    /* sum over the chosen tactics; 0 if nothing was timed */
};

/* UNIMPLEMENTED: neither device nor host has a candidate for some node; the text names it. */
enum status tune_graph(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_report *report, struct error *err);

/*
 * The timing cache: a file of times, keyed by device, node and tactic, and of the compiled form of
 * the tactics that were chosen. Loading never fails for what
 * a file holds: one that is missing is an empty cache, one that is damaged or of another version is
 * ignored with a warning to `log`; times of other devices stay in it and are not used. Not
 * thread-safe.
 */
enum status tune_cache_load(const char *path, struct device *device, const struct log_sink *log,
                            struct tune_cache **out, struct error *err);
/* An empty one, kept in memory. */
enum status tune_cache_new(struct device *device, struct tune_cache **out, struct error *err);
/* Replaces the file, under its writer's lock; times that another process has put there since are
 * kept. Nothing is written if nothing was added. */
enum status tune_cache_save(struct tune_cache *cache, const char *path, struct error *err);
void tune_cache_free(struct tune_cache *cache);

/*
 * What was seen while one model was tuned at several batch sizes: a candidate that was slow at two
 * of them need not be compiled for a third. Only for backends that compile. For the graphs of one
 * model on one device, the smallest and the largest first.
 */
struct tune_history *tune_history_new(void); /* NULL: no memory */
void tune_history_free(struct tune_history *history);

#endif
