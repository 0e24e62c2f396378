/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the type and shape rules of the ops; private to engine/ir.
 *
 * Before a rule is called, the inputs have been checked: they are in range, present unless the op's
 * row says optional, of bounded rank and dimensions (IR_MAX_DIM), and of the class in the row. The
 * attributes have been checked too: all that are needed are there, none is foreign to the row, each
 * is of the right kind, each that is no list has one value, and integers are in range. The rule
 * itself checks the lengths of lists, through infer_ints. Its results are checked against the same
 * bounds afterwards.
 */
#ifndef INFERD_ENGINE_IR_INFER_H
#define INFERD_ENGINE_IR_INFER_H

#include "engine/ir/ir.h"

enum {
    /* Bounds strides, dilations, kernels of pools and paddings. It is generous, and a product with
     * a dimension still fits. */
    INFER_WINDOW_MAX = 1 << 20,
    INFER_ROI_SAMPLES_MAX = 256,
};

struct infer {
    const struct ir_graph *graph;
    const struct ir_node *node;
    uint32_t n_inputs; /* the op's own */
    struct error *err;
};

typedef enum status (*infer_rule)(const struct infer *in, struct ir_type *out, uint32_t *n_out);

/* The rules: infer_conv and so on, one for each op. */
#define OP(NAME, number, name, ...)                                                                \
    enum status infer_##name(const struct infer *in, struct ir_type *out, uint32_t *n_out);
#include "engine/ir/ops.def"

/* NULL if the input is absent. */
const struct ir_tensor *infer_input(const struct infer *in, uint32_t i);

/* Returns an error that begins with the op and the node's name. */
enum status infer_fail(const struct infer *in, const char *fmt, ...) PRINTF(2, 3);

/* The value of an attribute; if it is absent, the default in the op's row. */
int64_t infer_int(const struct infer *in, enum ir_attr_key key);
/* Reads a list of `count` values; any other number of values is an error. */
enum status infer_ints(const struct infer *in, enum ir_attr_key key, uint32_t count, int64_t *out);

enum status infer_class(const struct infer *in, uint32_t input, enum ir_class wanted);
/* The type of a product's sums: the operands' type, but INT32 for two 8-bit operands. */
enum dtype infer_sums(const struct infer *in);
/* Checks that an optional input, if present, is a vector of `length`. */
enum status infer_vector(const struct infer *in, uint32_t input, int64_t length);

/* out[0] = the type of input 0. */
void infer_like_first(const struct infer *in, struct ir_type *out, uint32_t *n_out);

#endif
