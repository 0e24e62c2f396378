/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a judge (engine/tune/tune.h) that measures what shorter types cost in exactness, and
 * rules them out where they cost too much.
 *
 * It runs each assignment beside fp32, layer by layer and in step, on a few samples. fp32's values
 * come from the host's kernels on the same graph. A layer that stores tensors in shorter types runs
 * twice: on fp32's values, which gives its own error, and on what the layers before it have made,
 * which gives the error that is carried on. Errors are relative: the norm of the difference,
 * divided by the norm of fp32's values.
 *
 * A layer is held back if it gives NaN or infinity where fp32 is finite, or if its own error alone
 * is beyond the bound. If the whole model is beyond the bound, layers are held back by their share
 * of its error, and by the time that they save, until the other layers' shares are small enough.
 * Then the tuner assigns anew. After some rounds all that is left is held back. A model
 * in 16 bits becomes slower only as far as options->most_loss says.
 *
 * Where a node makes decisions (indices, comparisons), nearly equal numbers may fall either way. It
 * is fp32's decision that the rest of the model goes on with, and the error of what the decision
 * was made from counts as the error of an output. So it is where the model itself quantises, with
 * the error of the integers.
 *
 * What a profile's layers were held back from, those of the next profile are held back from at
 * once. A guard belongs to one thread.
 */
#ifndef INFERD_ENGINE_GUARD_GUARD_H
#define INFERD_ENGINE_GUARD_GUARD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"
#include "engine/tune/tune.h"

#define GUARD_NO_BOUND ((double)INFINITY) /* only measures */

enum { GUARD_SAMPLES = 4 }; /* at least; more if the batch is larger */

/* Samples of a model's inputs. */
struct guard_source {
    /* Fills to[i] with the plain elements of the graph's input i: batch number `index`, which has
     * `batch` samples, one behind the other; 0: the model is not batched. */
    enum status (*read)(void *user, const struct ir_graph *graph, uint32_t batch, uint32_t index,
                        void *const *to, struct error *err);
    void *user;
};

struct guard_options {
    struct device *host; /* a CPU, or NULL: the device itself computes fp32's values */
    double bound;        /* above 0; GUARD_NO_BOUND */
    /* The part of its time by which a model of 16 bits may become slower so that it keeps the
     * bound; 1 or more: any. If it would be more, in one profile, the model stays beyond the bound
     * in all, and the log says so. Layers that are beyond it by themselves, or not finite, are held
     * back anyway. */
    double most_loss;
    const struct guard_source *source; /* NULL: random numbers (input.c) */
    uint64_t seed;
    /* A profile with so many bytes of values in fp32 is not measured if each layer that stores
     * shorter types was in an earlier profile, in the same type. 0: 16 GiB. */
    uint64_t many_bytes;
    const struct log_sink *log; /* warning: what is held back; may be NULL */
};

/* A layer that was, at some time, to run in shorter types. */
struct guard_layer {
    const char *name;
    enum ir_op op;
    enum dtype type; /* the shortest type that it was last measured in */
    double error;    /* its own; INFINITY: not finite where fp32 is */
    double carried;  /* of its output in the whole model */
    double gain_ns;  /* what the type saves beside fp32; estimated where fp32 was not timed */
    bool held;       /* it was to run in this type, and does not */
};

struct guard_output {
    double error;     /* at least that of the decisions it follows from; integers have no other */
    double agreement; /* part of the rows whose largest element is the same, or of the integers that
                         are; below 0: it has no classes */
};

struct guard_report {
    bool measured;    /* some layer was to run in a shorter type */
    bool beyond;      /* the bound could not be kept */
    double bound;     /* the options' */
    uint32_t samples; /* of the profile with most */
    uint32_t n_outputs;
    struct guard_output outputs[IR_MAX_IO]; /* the worst of all profiles */
    uint32_t n_layers, n_held;
    const struct guard_layer *layers; /* of the profile with most samples */
    const struct guard_layer *held;   /* of all profiles, each once for a type */
};

struct guard;
enum status guard_new(const struct guard_options *options, struct guard **out, struct error *err);
void guard_free(struct guard *guard);  /* NULL is fine */
void guard_cleanup(struct guard **at); /* for CLEANUP (base/compiler.h) */
/* A profile begins, whose graphs take so many samples; 0: the model is not batched, which is so at
 * first. */
void guard_set_batch(struct guard *guard, uint32_t batch);
/* The judge stays the guard's. */
const struct tune_judge *guard_judge(struct guard *guard);
/* Valid until the guard judges again or is freed. */
void guard_read(const struct guard *guard, struct guard_report *out);

#endif
