/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the type and shape rules of the ops share; private to engine/ir.
 *
 * A rule is called with inputs that are in range, present unless the op's row says optional, of
 * bounded rank and dimensions (IR_MAX_DIM) and of the class that the row gives; and with the
 * attributes that the row has, all that are needed, of the right kind, one value where there is
 * one, integers within their range. How long lists are is checked through infer_ints, before they
 * are read. What a rule computes is checked against the same bounds afterwards.
 */
#ifndef INFERD_ENGINE_IR_INFER_H
#define INFERD_ENGINE_IR_INFER_H

#include "engine/ir/ir.h"

enum {
    /* Strides, dilations, kernels of pools and paddings: generous, and products with a dimension
     * fit. */
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

/* An error that begins with op and node name. */
enum status infer_fail(const struct infer *in, const char *fmt, ...) PRINTF(2, 3);

/* The value of an attribute, or what the op's row says of an absent one. */
int64_t infer_int(const struct infer *in, enum ir_attr_key key);
/* The same for `count` values; an error if there is another number of them. */
enum status infer_ints(const struct infer *in, enum ir_attr_key key, uint32_t count, int64_t *out);

enum status infer_class(const struct infer *in, uint32_t input, enum ir_class wanted);
/* The type of a product's sums: the operands', but INT32 of two 8-bit ones. */
enum dtype infer_sums(const struct infer *in);
/* An optional input that, if present, is a vector of `length`. */
enum status infer_vector(const struct infer *in, uint32_t input, int64_t length);

/* out[0] = the type of input 0. */
void infer_like_first(const struct infer *in, struct ir_type *out, uint32_t *n_out);

#endif
