/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan file: a model made ready for one device. It has a header (format.h), a structure section
 * (plan.proto), and a weight section that is used in the memory that it was read into. All profiles
 * share the weights: constants with the same bytes are stored once. Compiled tactics (tactic->code)
 * lie in a section of their own, equal ones once.
 *
 * A profile is what was tuned for one batch size, and for one value of each free dimension, if the
 * model has any: all profiles of the same values are a *point*. In memory it is an ir_graph with
 * everything filled in: tactics, layouts, places. The builder makes a struct plan and writes it;
 * the runtime reads the same struct back.
 *
 * The digest only finds accidents. The reader trusts no field: a plan that it returns satisfies
 * ir_verify and plan_check (indices, sizes, places inside their sections and arenas, no tensor read
 * before it is written or overwritten while it is needed). Only a backend understands tactics, so
 * op_prepare checks them.
 */
#ifndef INFERD_ENGINE_PLAN_PLAN_H
#define INFERD_ENGINE_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file_read.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

enum {
    PLAN_MAX_PROFILES = 256,
    PLAN_MAX_BODIES = 16, /* of a profile */
    PLAN_MAX_FREE = 8,
    PLAN_MAX_SIZE = 1 << 24, /* of a free dimension */
    PLAN_MAX_SEGMENTS = 256,
    PLAN_MAX_ALIASES = 1024, /* length of a chain of aliases */
    PLAN_MAX_LIVE = 8192,    /* tensors and workspaces alive at once in one graph */
    PLAN_MAX_BATCH = 65536,
    PLAN_NAME_MAX = 64, /* of a binding: [A-Za-z0-9._/:-], 1..64 bytes (R4 of docs/operations.md) */
    PLAN_DIGEST_MAX = 33,
    PLAN_MAX_HELD = 1024, /* layers in plan_exactness */
    PLAN_DEVICE_MAX = 2 * FINGERPRINT_MAX,
};

struct plan_binding {
    const char *name;
    enum dtype dtype;
    struct shape shape; /* -1: it counts instances, or is not the same in all points */
};

/* What the dimensions of a binding are. All zeros: the first one counts instances, if the model is
 * batched, and none is free. */
struct plan_axes {
    bool shared;                  /* of a batched model: all instances have this input together */
    uint8_t batch;                /* the axis of the instances, unless it is shared */
    uint8_t free[SHAPE_MAX_RANK]; /* which free dimension it is, from 1 on; 0: none */
    uint8_t mask;                 /* of an input: enum engine_mask, for what plan_free.pads says */
    uint8_t role;                 /* of a ragged plan: enum plan_role */
};

/* What the rows of a ragged plan's inputs and outputs are. Stored in plan files. */
enum plan_role {
    PLAN_ROLE_TOKENS = 0,    /* a client's tokens, or what is made of each */
    PLAN_ROLE_SEQUENCES = 1, /* an output: what is made of each sequence */
    /* Inputs of INT32 that the runtime makes of the lengths of a batch's sequences: */
    PLAN_ROLE_SPANS = 2,     /* [T,2]: where the token's sequence begins, and ends */
    PLAN_ROLE_POSITIONS = 3, /* [T]: the token's place in its sequence */
    PLAN_ROLE_STARTS = 4,    /* [T]: where the sequence begins, for each that there is */
    PLAN_ROLE_COUNT_
};

/* A plan whose instances are tokens, one behind the other, of sequences of any lengths. To clients
 * its inputs and outputs of tokens are [sequences, tokens, ..], its outputs of sequences are
 * [sequences, ..], and a mask says which tokens are there. */
struct plan_ragged {
    int64_t max_length; /* of a sequence; 0: the plan is not ragged */
    const char *mask;   /* the input that only says which tokens are there; NULL: all are */
    enum dtype mask_type;
    uint32_t mask_at; /* its place among a client's inputs */
};

/* A dimension whose size each request chooses. */
struct plan_free {
    const char *name;
    int64_t low, high;
    bool pads; /* a request may be padded with zeros to a larger size: its answer is the same */
};

/* A plan of its own, for the CPU: what an iteration of a loop in a tail computes. Its bytes lie in
 * plan->tail, at multiples of 64: the head, which no other body has, and the weights. */
struct plan_body {
    uint64_t offset, size;
    uint64_t weights_offset, weights_size;
};

struct plan_profile {
    uint32_t batch; /* 1 for a model that is not batched */
    int64_t values[PLAN_MAX_FREE];
    uint64_t tail_offset, tail_size; /* its tail's model, in plan->tail, if the plan has tails */
    const struct plan_body *bodies;  /* of loops of the tail; in the plan's arena */
    uint32_t n_bodies;
    struct ir_graph *graph;
    uint64_t tensor_bytes; /* sum of the intermediate tensors: the arena if they shared no bytes */
};

/* A layer that stays out of a type. */
struct plan_held {
    const char *layer;
    enum dtype type;
    float error; /* relative, of this layer alone; INFINITY: not finite where fp32 is */
};

/* What shorter types than the model's cost in exactness, as measured when the plan was built.
 * Errors are relative to fp32: the norm of the difference, divided by the norm. */
struct plan_exactness {
    bool measured; /* else all the rest is 0 */
    bool data;     /* on samples that the user gave; else on random numbers */
    uint32_t samples;
    float bound; /* INFINITY: none */
    struct {
        float error;
        float agreement;  /* part of the rows whose largest element is the same, or of the integers
                            that are; -1: it has no classes */
    } outputs[IR_MAX_IO]; /* the worst of all profiles */
    uint32_t n_outputs, n_held;
    const struct plan_held *held; /* in the plan's arena */
};

struct plan {
    const char *name;
    char device[PLAN_DEVICE_MAX]; /* plan_device_line */
    char digest[PLAN_DIGEST_MAX]; /* of the source model, hex */
    bool batched;
    uint32_t n_inputs, n_outputs, n_profiles, n_free;
    struct plan_binding inputs[IR_MAX_IO], outputs[IR_MAX_IO];
    struct plan_axes input_axes[IR_MAX_IO], output_axes[IR_MAX_IO];
    struct plan_free free[PLAN_MAX_FREE];
    struct plan_profile profiles[PLAN_MAX_PROFILES]; /* by points, then by rising batch */
    /* If some sizes of the model are only known when a request has come, its profiles end with a
     * tail (engine/import/onnx.h), which reads `outputs` and makes the model's outputs. These then
     * stand here, with -1 where a request tells. Such a plan is not batched. */
    uint32_t n_late;
    struct plan_binding late[IR_MAX_IO];
    const void *tail; /* all tails, and what they keep; not trusted */
    size_t tail_bytes;
    void *tail_memory; /* of `tail`, for free(); NULL: it is elsewhere */
    struct plan_exactness exactness;
    struct plan_ragged ragged;
    const void *weights; /* set by the reader; constants point into it */
    size_t weight_bytes;
    const void *code; /* set by the reader; compiled tactics point into it */
    size_t code_bytes;
    struct arena *arena;
    struct file_map map;
};

/* An empty plan; its strings go to its arena. NULL: no memory. */
struct plan *plan_new(void);
void plan_free(struct plan *plan);   /* with its graphs; NULL is fine */
void plan_cleanup(struct plan **at); /* for CLEANUP (base/compiler.h) */

/* Reads a plan into memory that nobody else can change, and checks it. DATA_LOSS: damaged;
 * FAILED_PRECONDITION: another format version or byte order; RESOURCE_EXHAUSTED: memory;
 * UNAVAILABLE: the file changed while it was read. */
enum status plan_read(const char *path, struct plan **out, struct error *err);
/* The same of an open file, which stays the caller's; `name` stands for it in errors. `guard` may
 * be NULL. */
enum status plan_read_fd(int fd, const char *name, const struct file_guard *guard,
                         struct plan **out, struct error *err);
/* Reads the device line of a plan's header; the rest of the file is neither read nor checked. */
enum status plan_read_device(const char *path, char device[PLAN_DEVICE_MAX], struct error *err);
/* Reads a plan from memory; `data` is aligned to 64 and outlives the plan. */
enum status plan_read_memory(const void *data, size_t size, struct plan **out, struct error *err);

/* Checks the plan and replaces the file. Constants are taken from their tensors' `data`, at any
 * alignment. The same plan gives the same bytes. */
enum status plan_write(const char *path, const struct plan *plan, struct error *err);
/* The same through a writer that was opened earlier; commits it. */
enum status plan_write_to(struct file_writer *writer, const struct plan *plan, struct error *err);

/* The bytes of a plan without compiled tactics and tails, as struct plan_body has them; malloc-ed.
 */
struct plan_bytes {
    void *head, *weights;
    size_t head_size, weights_size;
};
enum status plan_write_body(const struct plan *plan, struct plan_bytes *out, struct error *err);
void plan_bytes_deinit(struct plan_bytes *bytes); /* {0} is fine */
/* Reads such a plan; the bytes outlive it. Nothing in them is trusted, but there is no digest: that
 * of the plan around it is theirs, too. */
enum status plan_read_body(const void *head, size_t head_size, const void *weights,
                           size_t weights_size, struct plan **out, struct error *err);

/* Makes the device line of a plan's header: the device's fingerprint, and, if the plan needs the
 * CPU beside the device, " | " and the CPU's fingerprint. A plan fits a machine exactly if the
 * lines are equal. */
void plan_device_line(char out[PLAN_DEVICE_MAX], const char *device, const char *host);
/* Whether some segment runs on another backend than this one, which can only be the CPU. */
bool plan_needs_host(const struct plan *plan, const char *backend);

/* Checks everything that can be checked without a device. Constants' offsets are checked only if
 * plan->weights is set. */
enum status plan_check(const struct plan *plan, struct error *err);
/* The part of that which limits chains of aliases. */
enum status plan_check_chains(const struct ir_graph *graph, struct error *err);
bool plan_name_ok(const char *name); /* of a binding */

/* The root of a tensor is the tensor that its bytes lie in: itself, or the end of its chain of
 * aliases. *at: where they begin in it. The graph has passed ir_verify, and its aliases are of
 * these kinds:
 *
 *   a name       the output of a node that renames is its input
 *   a slice      the output of a node that cuts lies in its input
 *   a place      the output of any node lies in the output of one that joins, where this node
 *                wants it: whoever writes the tensor writes it there
 *   a row        the output of a node that joins is where its inputs lie, which are neighbours
 */
uint32_t plan_tensor_root(const struct ir_graph *graph, uint32_t tensor);
uint32_t plan_tensor_at(const struct ir_graph *graph, uint32_t tensor, uint64_t *at);

/* Whether nothing of the node is to run: its output is its input or a slice of it, or its inputs
 * lie in its output. */
bool plan_node_is_alias(const struct ir_graph *graph, const struct ir_node *node);

/* The tensor that this one is a name of. */
uint32_t plan_tensor_carrier(const struct ir_graph *graph, uint32_t tensor);

/* Whether all inputs of a node that joins lie where they must, if its output begins `at` bytes
 * into `root`. */
bool plan_node_joins_at(const struct ir_graph *graph, const struct ir_node *node, uint32_t root,
                        uint64_t at);

/* Says whether two profiles are of one point. */
bool plan_same_point(const struct plan *plan, const struct plan_profile *a,
                     const struct plan_profile *b);

/* Sum of the nodes' times; 0 if none was timed. */
uint64_t plan_profile_time(const struct plan_profile *profile);

#endif
