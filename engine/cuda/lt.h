/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products through cuBLASLt: what its files share.
 *
 *   lt.c         the library, opened when first needed: 150 MB of memory and 100 ms that a plan
 *                without matrix products does not pay
 *   lt_desc.c    a product -> cuBLASLt's descriptors; names of algorithms
 *   lt_steps.c   which part of an epilogue cuBLASLt can do
 *   lt_gemm.c    candidates, packing, preparation, launch of a product
 *   lt_matmul.c  IR_OP_MATMUL -> product          lt_conv.c  1x1 IR_OP_CONV -> product
 *   lt_head.c    products with rows of an odd length, which need another arrangement
 *   lt_sums.c    both of numbers of 8 bits: another kind of product, which shares little with the
 *                others             lt_bytes.c   of INT8     lt_f8.c   of FP8
 *
 * cuBLASLt's matrices are column-major. A row-major Y = A B is read as Y' = B' A': our B is its A,
 * our N is its number of rows, and so a bias per column of Y is its bias per row of D.
 */
#ifndef INFERD_ENGINE_CUDA_LT_H
#define INFERD_ENGINE_CUDA_LT_H

#include <cublasLt.h>

#include "engine/cuda/cuda.h"

/* --- the library (lt.c) --- */

#define LT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusName)                                                                       \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulDescGetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)                                                            \
    X(cublasLtMatrixLayoutGetAttribute)                                                            \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)

struct lt_api {
#define LT_MEMBER(name) __typeof__(&name) name; /* NOLINT: a name takes no () */
    LT_FUNCTIONS(LT_MEMBER)
#undef LT_MEMBER
    cublasLtHandle_t handle; /* NULL without a device; may be used by all threads */
    uint32_t version;
};

/* Opens the library and makes the device's handle on the first call; any thread may call.
 * UNIMPLEMENTED: the library is not installed. *out is valid until cuda_lt_free. */
enum status lt_open(struct cuda_lt *lt, const struct lt_api **out, struct error *err);
/* Sets the table of functions to use instead of opening the library; for tests without a device. */
void lt_adopt(struct cuda_lt *lt, const struct lt_api *api);
/* The same for candidates: a missing library leaves the node to other families (*api is NULL then)
 * and is logged once. */
enum status lt_open_or_tell(struct cuda_device *device, const struct lt_api **api,
                            struct error *err);
/* True on the first call only, so that a missing library is logged once. */
bool lt_first_failure(struct cuda_lt *lt);
enum status lt_error(const struct lt_api *api, cublasStatus_t code, const char *what,
                     struct error *err);

/* --- epilogues (lt_steps.c) --- */

enum { LT_STEPS_MAX = IR_MAX_EPILOGUE + 1 };

enum lt_operand { LT_OPERAND_NONE, LT_OPERAND_VECTOR, LT_OPERAND_FULL, LT_OPERAND_OTHER };

/* What happens to a product before it is stored: the node's bias, then its epilogue. */
struct lt_step {
    bool binary;
    uint32_t func;
    uint32_t input; /* of the node, for binary */
    enum lt_operand operand;
};

struct lt_steps {
    uint32_t n;
    bool half; /* the product's type has 16 bits */
    struct lt_step step[LT_STEPS_MAX];
};

/* The steps that cuBLASLt does itself: Y = act(alpha A B + residual + bias). */
struct lt_epilogue {
    uint32_t bias, residual; /* inputs of the node, or IR_NONE */
    cublasLtEpilogue_t act;  /* DEFAULT, RELU or GELU */
};

/* Gives the first `taken` steps as cuBLASLt does them; false: it does not do them. */
bool lt_epilogue(const struct lt_steps *steps, uint32_t taken, struct lt_epilogue *out);
/* How many steps, counted from the first, cuBLASLt does at most. */
uint32_t lt_epilogue_longest(const struct lt_steps *steps);

/* --- products --- */

enum lt_order { /* how B lies in memory; stored in plans */
                LT_AS_IS = 0,
                LT_PACKED_KN = 1, /* a constant, [.., K, N] */
                LT_PACKED_NK = 2, /* a constant, [.., N, K] */
                LT_ORDER_COUNT_
};

struct lt_loop { /* steps in elements from one product to the next */
    int64_t n, a, b, y;
};

struct lt_product {
    enum dtype dtype; /* of A, B, Y, bias and residual: F16, BF16 or F32 */
    bool tf32;
    bool trans_a, trans_b; /* as they lie in memory: A is [K, M], B is [N, K]; dense */
    int64_t m, n, k;
    float alpha;
    struct lt_loop batch; /* n = 1: no batch */
    uint32_t n_loops;     /* launches around the batch, if broadcasting makes more than one */
    struct lt_loop loops[SHAPE_MAX_RANK];
    int64_t launches;
    uint64_t b_elements; /* of all B */
    uint32_t axis;       /* dimension of the output's tensor along which N lies */
    struct lt_steps steps;
};

/* --- descriptors (lt_desc.c) --- */

struct lt_desc {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, y; /* cuBLASLt's A, B and D */
    cublasLtMatrixLayout_t c;       /* NULL: C is like D */
};

enum status lt_desc_new(const struct lt_api *api, const struct lt_product *p,
                        const struct lt_epilogue *epilogue, struct lt_desc *out, struct error *err);
void lt_desc_free(const struct lt_api *api, struct lt_desc *desc);

/* Whether there is a device, and the library is of the version that a plan was built with. */
enum status lt_version_check(const struct lt_api *api, uint32_t planned, struct error *err);
/* Lets an algorithm check itself. *workspace is the larger of what the algorithm asks for now and
 * of `planned`, which it asked for when the plan was built. */
enum status lt_algo_check(const struct lt_api *api, const struct lt_desc *desc,
                          const cublasLtMatmulAlgo_t *algo, uint64_t planned, uint64_t *workspace,
                          struct error *err);

/* Rows and columns of a cublasLtMatmulTile_t. False: outside the table. */
bool lt_tile_size(uint32_t tile, uint32_t *rows, uint32_t *cols);
/* "tn algo67 tile128x128 stages4 splitk1 f16" */
void lt_algo_name(const struct lt_api *api, const struct lt_product *p,
                  const cublasLtMatmulAlgo_t *algo, char *out, size_t size);

/* --- running products (lt_gemm.c) --- */

/* One family: how its op is read as a product. */
struct lt_kind {
    const struct cuda_family *family;
    enum ir_layout layout; /* of A, Y and operands of full shape; everything else is plain */
    /* Reads a node as a product; false: it is none that we do. `dtype` NONE: with the types that
     * the graph has. `exact`: tensors have their final types; else F32 stands for `dtype`. */
    bool (*read)(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                 bool exact, enum lt_order order, struct lt_product *out);
};

enum status lt_gemm_candidates(const struct lt_kind *kind, struct cuda_device *device,
                               const struct ir_graph *graph, const struct ir_node *node,
                               enum precision precision, tactic_visit visit, void *user,
                               struct error *err);
enum status lt_gemm_pack(const struct lt_kind *kind, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                         void *to, struct error *err);
enum status lt_gemm_prepare(const struct lt_kind *kind, struct backend_stream *stream,
                            const struct ir_graph *graph, const struct ir_node *node,
                            const struct tactic *tactic, struct backend_op **out,
                            struct error *err);

/* Helpers of `read`: the type of a tensor (`dtype` and `exact` as there), and the node's steps,
 * whose vectors lie along p->axis. `bias` is the number of the input that is the bias; p->dtype
 * must be set. */
enum dtype lt_type(const struct ir_tensor *tensor, enum dtype dtype, bool exact);
bool lt_steps_read(const struct ir_graph *graph, const struct ir_node *node, uint32_t bias,
                   enum dtype dtype, bool exact, struct lt_product *p);

/* Whether a convolution of x by w does nothing but a product (lt_conv.c). */
bool lt_is_pointwise(const struct ir_node *node, const struct shape *x, const struct shape *w);
/* Reads a convolution of one group, whose rows of A are its windows (lt_conv.c), as lt_kind's. */
bool lt_conv_read_windows(const struct ir_graph *graph, const struct ir_node *node,
                          enum dtype dtype, bool exact, enum lt_order order,
                          struct lt_product *out);

/* --- tactics (lt_gemm.c) --- */

/* tactic.blob: native endianness, as the algorithm itself is. */
struct lt_blob {
    uint32_t version; /* of the library: no other one understands the algorithm */
    uint8_t dtype, tf32, order, taken;
    int64_t m, n, k, batch;
    uint64_t workspace;
    cublasLtMatmulAlgo_t algo;
};

enum { LT_WORKSPACE_MAX = 64 << 20 };

/* Make the tactic for one algorithm, and read it again; `lt_blob_read` checks everything but the
 * algorithm. */
void lt_tactic_fill(const struct lt_kind *kind, const struct lt_api *api,
                    const struct ir_graph *graph, const struct ir_node *node,
                    const struct lt_product *p, enum dtype dtype, const struct lt_blob *blob,
                    struct tactic *out);
struct lt_blob lt_blob_make(const struct lt_product *p, enum lt_order order, uint32_t taken);
enum status lt_blob_read(const struct lt_kind *kind, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic,
                         struct lt_blob *blob, struct lt_product *p, struct error *err);

extern const struct lt_kind lt_kind_matmul, lt_kind_conv;

/* What the heuristics are asked to keep to: an attribute of a preference. */
struct lt_preference {
    cublasLtMatmulPreferenceAttributes_t key;
    const void *value;
    size_t size;
};

/* *out may be set although this fails, and is the caller's to destroy then, too. */
cublasStatus_t lt_preference_new(const struct lt_api *api, const struct lt_preference *wishes,
                                 size_t n, cublasLtMatmulPreference_t *out);

#endif
