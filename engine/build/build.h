/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder: an ONNX model becomes a plan for one device.
 *
 *   for each batch size: import -> passes -> tune -> place in memory
 *
 * A model is batched if some dimensions of its inputs count instances (engine/import/dims.h) and
 * one dimension of each output grows with them; anything else gets one profile with the shapes it
 * has. Dimensions with ranges
 * (engine/build/shapes.h) multiply that: all batch sizes for each point. With the same
 * timing cache the same model gives the same plan, byte for byte.
 */
#ifndef INFERD_ENGINE_BUILD_BUILD_H
#define INFERD_ENGINE_BUILD_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/build/served.h"
#include "engine/build/shapes.h"
#include "engine/guard/guard.h"
#include "engine/import/onnx.h"
#include "engine/passes/pass.h"
#include "engine/plan/plan.h"
#include "engine/quant/ranges.h"
#include "engine/tune/tune.h"

/* How far a build is. */
struct build_progress {
    uint32_t batch;         /* the profile at hand */
    uint32_t point, points; /* its point, from 1 on, and how many there are */
    const char *what;
    uint32_t done, total; /* of this step */
    double part;          /* of the whole build, by guess: 0 to 1 */
};

/* What a build has done. */
struct build_report {
    uint32_t imported, fused; /* nodes of one profile: as imported, and after the passes */
    struct pass_tally passes[PASS_COUNT];
    uint32_t widened;                       /* tensors of 16-bit floats that are FP32 in the plan */
    uint64_t dropped;                       /* weights so small that they are 0 (tiny.h) */
    uint32_t timed, disturbed;              /* candidates of all profiles, as in tune_report */
    uint32_t from_cache, given_up;          /* the same */
    struct tune_effort effort;              /* of all profiles */
    char host[TUNE_REASONS][TUNE_LINE_MAX]; /* of the largest profile, as in tune_report */
    uint32_t host_batch;                    /* that profile's */
    struct quant_report ranges;             /* of the last profile; 8 bits alone have them */
};

/* What build_options say of exactness. */
enum build_guard {
    BUILD_GUARD_ON,      /* layers are held back that shorter types would put beyond max_error */
    BUILD_GUARD_MEASURE, /* the error is measured, and nothing is held back */
    BUILD_GUARD_OFF,
};

/* The layers that were to run in shorter types; called once, when all profiles are built. */
typedef void (*build_sensitivity)(void *user, const struct guard_report *report);

/* Inputs of rows of tokens, of sequences of any lengths (engine/build/ragged.h). One of them may be
 * called a mask. A range of the second dimension says how long sequences may be. */
struct build_ragged {
    const char *const *inputs;
    uint32_t n;
};

struct build_options {
    struct device *device;         /* NULL for build_graph: any device's */
    struct device *host;           /* a CPU for nodes that `device` cannot run; may be NULL */
    struct ir_evaluator evaluator; /* for nodes that depend on constants alone */
    enum precision precision;
    const struct quant_table *ranges; /* for INT8 and FP8; may be NULL */
    bool keep_missing;                /* what has no range stays a float; else that is an error */
    bool layers_apart;                /* chains of layers do not become one node (fuse_mlp), */
    bool stems_apart;                 /* nor a convolution and its pool (fuse_stem_pool) */
    const uint32_t *batches; /* batch sizes of the profiles, in any order; NULL: 1,2,4,8,16,32 */
    uint32_t n_batches;
    const struct onnx_dim *dims; /* values of other symbolic dimensions */
    uint32_t n_dims;
    bool said;    /* the same as in onnx_options */
    bool guessed; /* the builder's own: `dims` say what counts instances because it fits (ties.h) */
    const struct build_range *shapes; /* or ranges, */
    uint32_t n_shapes;
    const struct build_sizes *sizes; /* with these sizes; default: powers of two up to the most */
    uint32_t n_sizes;
    const struct build_ragged *ragged; /* batch sizes count tokens; NULL: they count instances */
    const struct onnx_value *values;   /* the values of inputs that shapes depend on */
    uint32_t n_values;
    const struct build_input *inputs; /* the inputs that are served as another type */
    uint32_t n_inputs;
    const struct build_output *outputs; /* likewise */
    uint32_t n_outputs;
    uint64_t max_bytes; /* a profile may need this much memory; 0: any amount */
    uint64_t workspace; /* as in tune_options, as these two: */
    const struct tune_pins *pins;
    enum build_guard guard;
    double max_error;                   /* 0: build_max_error */
    const struct guard_source *samples; /* that errors are measured on; NULL: random numbers */
    build_sensitivity sensitivity;      /* may be NULL */
    void *sensitivity_user;
    bool no_timing; /* choose by times from the cache, else by guesses */
    bool retune;    /* time candidates anew whose times the cache has */
    bool thorough;  /* as in tune_options, like the next one */
    uint32_t min_segment;
    struct tune_cache *cache;   /* may be NULL */
    const struct log_sink *log; /* may be NULL */
    /* Called on the caller's thread; may be NULL. */
    void (*progress)(void *user, const struct build_progress *at);
    void *user;
    struct build_report *report; /* filled; may be NULL */
};

/* UNIMPLEMENTED: something in the model is not supported; the text says what. INVALID_ARGUMENT: the
 * options do not fit the model, or the model is wrong. FAILED_PRECONDITION: a profile needs more
 * than max_bytes (default batch sizes that need more are left out instead, but for the smallest),
 * or the ranges for 8 bits are of another model or lack some. */
enum status build_plan(struct onnx_model *model, const struct build_options *options,
                       struct plan **out, struct error *err);

/* One profile's graph before it is tuned: as imported, or after the passes. It is that of the
 * largest point. */
enum status build_graph(struct onnx_model *model, const struct build_options *options,
                        uint32_t batch, bool fused, struct ir_graph **out, struct error *err);

/* The default bound of the error that a precision may cost. */
double build_max_error(enum precision precision);

/* The precision's name on the command line; NULL for a number outside the enum. */
const char *precision_name(enum precision precision);

/* The digest of the model's file, in hex, as plans and tables of ranges have it. */
void build_digest(const struct onnx_model *model, char out[PLAN_DIGEST_MAX]);
/* Whether the options give the input its values. */
bool build_is_valued(const struct build_options *options, const char *input);
/* Sets the plan's device line; `host` may be NULL. */
void build_put_device(struct plan *plan, struct device *device, struct device *host);

/*
 * Gives every tensor of a tuned graph its place and every segment its arena: reshapes become
 * aliases, and so do parts of tensors that are joined or cut (engine/build/parts.h); outputs go to
 * the caller's buffer, the other tensors share an arena by lifetime. *tensor_bytes is the size that
 * the arena would have without sharing.
 */
enum status build_place(struct ir_graph *graph, uint64_t *tensor_bytes, struct error *err);
/* The same, except that all concatenations and slices run, so that each writes its output. */
enum status build_place_apart(struct ir_graph *graph, uint64_t *tensor_bytes, struct error *err);

/* FAILED_PRECONDITION if the graph, tuned or not, needs more memory than `max_bytes` (0: any
 * amount) however it is placed; the error says what needs it. Takes linear time. */
enum status build_bounds_check(const struct ir_graph *graph, uint64_t max_bytes, struct error *err);

/* The same of a graph that is tuned and placed: what it takes, with its workspaces. */
enum status build_fits_check(const struct ir_graph *graph, uint64_t max_bytes, struct error *err);

/*
 * A store that keeps equal constants once, so that the profiles of a plan share their weights while
 * the last profile is being built. build_store_graph copies a graph, puts the copy's constants into
 * the store, and frees the original, also on failure, with everything that import, passes and tuner
 * left in its arena. A copied graph holds a reference to the store.
 */
struct build_store;
enum status build_store_new(struct build_store **out, struct error *err);
void build_store_unref(struct build_store *store); /* NULL is fine */
enum status build_store_graph(struct build_store *store, struct ir_graph *graph,
                              struct ir_graph **out, struct error *err);

#endif
