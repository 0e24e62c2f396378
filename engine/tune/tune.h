/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner: gives every node of a graph a tactic and every tensor a layout and a type.
 *
 * A tactic is one way to run a node; a candidate is a tactic that is being timed. The tuner asks
 * the backend for the candidates of each node within a precision, compiles them on several threads,
 * times them on random data, times the reformats between the layouts and types that occur, and
 * takes the cheapest consistent assignment over the whole graph. Nothing is forced: a layer keeps
 * fp32 where that is faster. Nodes that are the same (op, attributes, epilogue, shapes, types,
 * constants or not) are timed once, in this graph and in every other graph that shares the cache. A
 * node that the device has no candidate for is given to the CPU, with plain layouts and in the
 * graph's own types; so are light nodes beside it, where that is cheaper than going back and forth.
 *
 * On return the graph is complete but for places and offsets:
 *  - node->tactic, node->time_ns and node->workspace_bytes are set;
 *  - tensors have their layouts and types; graph inputs and outputs are plain and keep their types;
 *  - REFORMAT nodes stand where layouts or types differ; a REFORMAT between layouts that agree has
 *    no tactic: it becomes an alias (engine/build/place.c);
 *  - constants that a tactic wants packed are replaced by OPAQUE ones, others converted. Two graphs
 *    (profiles) of one model often get the same bytes: the plan's writer should store them once.
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
struct tune_pins;

/* What the tuner has chosen for one node of the graph. */
struct tune_layer {
    struct device *device;
    const struct tactic *tactic; /* NULL: the node has been removed */
    uint32_t types; /* set of 1 << dtype: what its tensors are stored as in place of their types */
    uint64_t ns;    /* its time, measured or guessed */
    uint64_t wide_ns; /* the least time of a tactic without such types; 0: it has none */
};

/*
 * Looks at the assignments that the tuner finds, and may rule types out, node by node. Both
 * functions get the graph as the tuner got it. held[node] is a set of 1 << dtype: no tactic that
 * stores a tensor as one of these types is chosen for the node, unless the node has no other.
 */
struct tune_judge {
    /* Fills `held`, which is all zeros, before the first assignment. */
    enum status (*begin)(void *user, const struct ir_graph *graph, uint32_t *held,
                         struct error *err);
    /* `layers` has a row for each node. *again: `held` has grown, so find another assignment. */
    enum status (*look)(void *user, const struct ir_graph *graph, const struct tune_layer *layers,
                        uint32_t *held, bool *again, struct error *err);
    void *user;
};

struct tune_options {
    struct device *device;        /* runs the graph; its backend is asked for candidates */
    struct device *host;          /* a CPU for nodes that `device` has no candidate for; or NULL */
    struct tune_history *history; /* times of other graphs of this model; may be NULL */
    enum precision precision;
    bool no_timing; /* time nothing: cached times where there are any, else guesses from sizes */
    bool retune;    /* take no times from the cache */
    bool thorough;  /* try each candidate, however long it takes and however little it promises */
    bool trial;     /* nobody will run the graph: its nodes get their times and nothing else */
    uint64_t workspace; /* a layer's kernel may need so many bytes of scratch memory; 0: any */
    const struct tune_pins *pins; /* what layers may run on (pin.h); NULL: anything */
    uint32_t min_segment; /* the host runs what would be fewer layers in a row on the device, unless
                             all layers are; 0 or 1: nothing but time decides */
    struct tune_cache *cache;       /* read and added to; NULL: none */
    const struct tune_judge *judge; /* NULL: the first assignment is taken */
    uint64_t seed;                  /* of the random data */
    const struct log_sink
        *log; /* info: a line at the end; verbose: one for each candidate; or NULL */
    /* Tells that `done` of `total` candidates are done, on the caller's thread. May be NULL. */
    void (*progress)(void *user, uint32_t done, uint32_t total, const char *what);
    void *user;
};

enum { TUNE_REASONS = 3, TUNE_LINE_MAX = 480 };

/* What the tuner spends its time on. */
enum tune_phase { TUNE_LIST, TUNE_COMPILE, TUNE_TIME, TUNE_CHOOSE, TUNE_JUDGE, TUNE_PHASES };

struct tune_effort {
    uint32_t listed;          /* candidates of all distinct nodes */
    uint32_t compiled;        /* that a backend was asked to compile */
    uint32_t slow;            /* of these, that took a core more than 10 ms */
    uint64_t core_ns;         /* all cores together, while they compiled */
    uint64_t ns[TUNE_PHASES]; /* by phase, by the clock */
};

/* Adds one to another. */
void tune_effort_add(struct tune_effort *to, const struct tune_effort *effort);

struct tune_report {
    uint32_t nodes;      /* with a tactic, reformats included */
    uint32_t reformats;  /* put in */
    uint32_t timed;      /* candidates that ran */
    uint32_t disturbed;  /* candidates that ran, but whose times are not believed and not cached */
    uint32_t from_cache; /* candidates whose times the cache had */
    uint32_t given_up;   /* candidates not tried: too little promise, or out of time */
    struct tune_effort effort;
    uint32_t on_host;                       /* nodes that the CPU runs in the device's place */
    char host[TUNE_REASONS][TUNE_LINE_MAX]; /* which, and why: a line for each reason, or "" */
    uint64_t time_ns; /* sum over the chosen tactics; 0 if nothing was timed */
};

/* FAILED_PRECONDITION: all candidates of a layer need more workspace than the options allow.
 * UNIMPLEMENTED: neither device nor host has a candidate for some node, or none that its pins
 * allow; the text names it. NOT_FOUND: a pin names no layer. */
enum status tune_graph(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_report *report, struct error *err);

/*
 * The timing cache: a file of times, keyed by device, node and tactic, and of the compiled forms of
 * the tactics that were chosen. Loading never fails because of a file's contents: a missing file is
 * an empty cache, and a file that is damaged or of another version is ignored with a warning to
 * `log`. Times of other devices stay in the file and are not used. Not thread-safe.
 */
enum status tune_cache_load(const char *path, struct device *device, const struct log_sink *log,
                            struct tune_cache **out, struct error *err);
/* An empty cache in memory. */
enum status tune_cache_new(struct device *device, struct tune_cache **out, struct error *err);
/* Replaces the file, under its writer's lock; times that another process has put there since are
 * kept. Nothing is written if nothing was added. */
enum status tune_cache_save(struct tune_cache *cache, const char *path, struct error *err);
void tune_cache_free(struct tune_cache *cache);

/*
 * Times from tuning one model at several batch sizes on one device: a candidate that was slow at
 * those beside a size need not be compiled for it. Tune the smallest and the largest batch first.
 * Backends that do not compile have no use for it.
 */
struct tune_history *tune_history_new(void); /* NULL: no memory */
void tune_history_free(struct tune_history *history);

#endif
