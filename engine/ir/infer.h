/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the type and shape rules of the ops share; private to engine/ir.
 *
 * A rule is called with inputs that are in range, present unless the op's row says optional, of
 * bounded rank and dimensions (IR_MAX_DIM), and with scalar attributes that have one value of the
 * right kind. Lists are checked by the rule, through the readers below, before they are read.
 * What a rule computes is checked against the same bounds afterwards.
 */
#ifndef INFERD_ENGINE_IR_INFER_H
#define INFERD_ENGINE_IR_INFER_H

#include "engine/ir/ir.h"

/* Strides, dilations, kernels of pools and paddings: generous, and products with a dimension fit.
 */
enum { INFER_WINDOW_MAX = 1 << 20 };

struct infer {
    const struct ir_graph *graph;
    const struct ir_node *node;
    uint32_t n_inputs; /* the op's own */
    struct error *err;
};

typedef enum status (*infer_rule)(const struct infer *in, struct ir_type *out, uint32_t *n_out);

/* NULL if the input is absent. */
const struct ir_tensor *infer_input(const struct infer *in, uint32_t i);

/* An error that begins with op and node name. */
enum status infer_fail(const struct infer *in, const char *fmt, ...) PRINTF(2, 3);

/* `count` values within lo..hi. Absent: all `fallback`. */
enum status infer_ints(const struct infer *in, enum ir_attr_key key, uint32_t count, int64_t lo,
                       int64_t hi, int64_t fallback, int64_t *out);
/* The same, but absent is an error. */
enum status infer_ints_needed(const struct infer *in, enum ir_attr_key key, uint32_t count,
                              int64_t lo, int64_t hi, int64_t *out);
enum status infer_int(const struct infer *in, enum ir_attr_key key, int64_t lo, int64_t hi,
                      int64_t fallback, int64_t *out);
enum status infer_int_needed(const struct infer *in, enum ir_attr_key key, int64_t lo, int64_t hi,
                             int64_t *out);

/* Classes of element types, for checks. */
enum infer_class {
    CLASS_ANY,
    CLASS_NUMBER, /* anything but BOOL */
    CLASS_FLOAT,
    CLASS_INTEGER,
    CLASS_BOOL,
    CLASS_INDEX, /* INT32 or INT64 */
};
enum status infer_class(const struct infer *in, uint32_t input, enum infer_class wanted);

/* Inputs `first`.. (those present) have the type of input 0. */
enum status infer_same_dtype(const struct infer *in, uint32_t first);

/* Operands of a product: all of one type of the class, which then is that of the sums; or two of
 * INT8 and UINT8, whose sums and bias are INT32. */
enum status infer_product(const struct infer *in, enum infer_class of, enum dtype *sums);
/* An optional input that, if present, is a vector of `length`. */
enum status infer_vector(const struct infer *in, uint32_t input, int64_t length);

/* out[0] = the type of input 0. */
void infer_like_first(const struct infer *in, struct ir_type *out, uint32_t *n_out);

/* The rules, by file. */
enum status infer_conv(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_deconv(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_pool(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_resize(const struct infer *in, struct ir_type *out, uint32_t *n_out);

enum status infer_matmul(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_unary(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_binary(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_select(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_cast(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_cumsum(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_trilu(const struct infer *in, struct ir_type *out, uint32_t *n_out);

enum status infer_reduce(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_arg_reduce(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_softmax(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_batch_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_layer_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_instance_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_lrn(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_attention(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_recurrent(const struct infer *in, struct ir_type *out, uint32_t *n_out);

enum status infer_reshape(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_transpose(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_concat(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_slice(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_pad(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_expand(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_tile(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_reformat(const struct infer *in, struct ir_type *out, uint32_t *n_out);

enum status infer_gather(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_gather_elements(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_gather_nd(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_scatter_elements(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_scatter_nd(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_one_hot(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_topk(const struct infer *in, struct ir_type *out, uint32_t *n_out);

enum status infer_sample(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_roi_pool(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_nms(const struct infer *in, struct ir_type *out, uint32_t *n_out);
enum status infer_det(const struct infer *in, struct ir_type *out, uint32_t *n_out);

/* Shared by infer and verify. */
bool ir_op_has_epilogue(enum ir_op op);
uint32_t ir_op_min_outputs(enum ir_op op);

#endif
