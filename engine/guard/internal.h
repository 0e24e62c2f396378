/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard's files share. A *value* is a tensor's elements on the host: plain, and in the
 * type that the graph has for the tensor. */
#ifndef INFERD_ENGINE_GUARD_INTERNAL_H
#define INFERD_ENGINE_GUARD_INTERNAL_H

#include "engine/guard/guard.h"
#include "kernels/cpu/fast.h"

/* --- values (value.c) --- */

/* Bytes of the tensor's value. */
size_t value_bytes(const struct ir_tensor *tensor);
/* Memory for it, aligned as a device's; free(3) frees it. NULL: no memory. */
void *value_new(const struct ir_tensor *tensor);
/* Between a value and the bytes of a tensor that is stored in the format which it has in `graph`.
 * False: no memory. */
bool value_store(const struct ir_graph *graph, const struct ir_tensor *tensor, const void *value,
                 void *to) MUST_USE;
bool value_load(const struct ir_graph *graph, const struct ir_tensor *tensor, const void *from,
                void *value) MUST_USE;

enum { VALUE_PIECE = 1 << 16 }; /* elements that one thread takes at a time */
/* Piece `piece` of the elements in their order, of so many (move.c). */
struct tensor_view value_piece(const struct tensor_view *t, uint32_t piece);
uint32_t value_pieces(const struct tensor_view *t);
/* The CPU's fastest kernels for what values are turned and cast by (move.c). */
const struct fast_kernels *value_kernels(void);
/* Brings x into y's type, and from one layout into the other (move.c). */
void value_move(enum ir_layout from, enum ir_layout to, const struct tensor_view *x,
                const struct tensor_view *y);
/* Between floats and 8 bits by a scale, whichever of the two x is, and from one layout into the
 * other. False: the CPU has no fast kernels for it. */
bool value_step(enum ir_layout from, enum ir_layout to, const struct ir_scale *scale,
                const struct tensor_view *x, const struct tensor_view *y) MUST_USE;

/* A sum over the elements of some values. */
struct value_error {
    double difference, norm; /* sums of squares */
    size_t broken;           /* elements that are not finite though fp32's are */
    size_t rows, agree;      /* rows whose largest element, or integers that are the same */
    bool classes;            /* rows are counted */
};

/* Adds what differs between a value and fp32's. False: no memory. */
bool value_compare(const struct ir_tensor *tensor, const void *value, const void *wanted,
                   struct value_error *sum) MUST_USE;
/* The relative error; INFINITY if an element is broken. */
double value_relative(const struct value_error *sum);

/* --- values from walk to walk (keep.c) --- */

enum { VALUE_SPARES = 64 };

struct value_memory {
    uint32_t n_tensors;
    void **kept[GUARD_SAMPLES]; /* by set and tensor: fp32's values; NULL: of none */
    size_t kept_bytes, kept_most;
    struct {
        void *value;
        size_t bytes;      /* that it has room for */
    } spare[VALUE_SPARES]; /* the oldest first */
    uint32_t n_spare;
    size_t spare_bytes;
};

/* False: no memory, and there is something to release. */
bool value_memory_init(struct value_memory *memory, uint32_t n_tensors) MUST_USE;
void value_memory_deinit(struct value_memory *memory); /* of zeros, too */
/* As value_new; the smallest spare with room for the tensor. */
void *value_take(struct value_memory *memory, const struct ir_tensor *t);
/* Takes over a value, which may be NULL. */
void value_give(struct value_memory *memory, void *value);
/* Takes over fp32's value if there is room; then kept[set][tensor] is this value. */
void value_keep(struct value_memory *memory, uint32_t set, uint32_t tensor, void *value);

/* --- inputs (input.c) --- */

/* Fills a value for input `input` of the graph with random numbers such as a model expects: normal
 * numbers, any bytes, valid indices, and ones where neither holds (masks). False: no memory. */
bool input_fill(const struct ir_graph *graph, uint32_t input, uint64_t seed, void *value);

/* --- one layer (layer.c) --- */

struct layer_memory {
    void *at; /* of the device; NULL: none */
    size_t size;
};

enum { LAYER_SPARES = 16 };

/* Where the time of a comparison goes. */
enum walk_part {
    WALK_WIDE,    /* fp32's values; the other parts are without what these take */
    WALK_PREPARE, /* layers, with their constants */
    WALK_MOVE,    /* values to and from devices, and into other types and layouts */
    WALK_RUN,     /* kernels */
    WALK_PARTS_
};

struct walk_times {
    uint64_t ns[WALK_PARTS_];
};

/* A device with a stream, or one that is not open yet. */
struct layer_machine {
    struct device *device;
    struct backend_stream *stream;
    struct backend_event *done;
    void *stored; /* pinned, for tensors on their way; it grows */
    size_t stored_size;
    struct layer_memory spare[LAYER_SPARES];
    uint32_t n_spare;
    size_t spare_bytes;
    struct walk_times *times; /* to add to; may be NULL */
};
void layer_machine_close(struct layer_machine *machine);

/* One run: values by tensor of the graph to read from (constants are not among them), and where
 * those of the outputs go, by output. */
struct layer_run {
    void *const *from;
    void *to[IR_MAX_OUTPUTS];
};

/* Runs a node of the graph with a tactic on several sets of values. */
enum status layer_run(struct layer_machine *machine, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, bool compile,
                      struct layer_run *runs, uint32_t n, struct error *err);
/* The same in the graph's own types, with the cheapest of the machine's tactics that works. */
enum status layer_run_wide(struct layer_machine *machine, const struct ir_graph *graph,
                           const struct ir_node *node, struct layer_run *runs, uint32_t n,
                           struct error *err);

/* --- the parts of a fused node (parts.c) --- */

/* Whether the node is better run in parts, where its own types are wanted. */
bool parts_has(const struct ir_node *node);
/* As layer_run_wide. */
enum status parts_run_wide(struct layer_machine *machine, const struct ir_graph *graph,
                           const struct ir_node *node, struct layer_run *runs, uint32_t n,
                           struct error *err);

/* --- the whole graph (walk.c) --- */

/* Errors of a node, as in struct guard_layer; both 0 for nodes that have nothing shorter before or
 * in them. */
struct walk_row {
    double own, carried;
};

struct walk {
    const struct ir_graph *graph;
    const struct tune_layer *layers;
    struct device *host;
    uint32_t batch; /* as in guard_set_batch */
    const struct guard_source *source;
    uint64_t seed;
    struct value_memory *memory;  /* the same for all walks over the graph and the inputs */
    struct walk_row *rows;        /* by node; out */
    uint32_t samples;             /* out */
    struct guard_output *outputs; /* by output; out */
    struct walk_times times;      /* out */
};

/* INVALID_ARGUMENT, and others: the model does not run on such inputs. */
enum status walk_graph(struct walk *walk, struct error *err);

#endif
