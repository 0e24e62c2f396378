/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make cases share: drawn numbers, tensors, the end of a case. */
#ifndef INFERD_TESTS_DEVICE_MAKE_H
#define INFERD_TESTS_DEVICE_MAKE_H

#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"

/* --- numbers --- */

static inline uint32_t draw(uint64_t *random)
{
    *random = *random * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*random >> 33);
}

static inline int64_t between(uint64_t *random, int64_t low, int64_t high)
{
    return low + (int64_t)(draw(random) % (uint32_t)(high - low + 1));
}

static inline bool chance(uint64_t *random, uint32_t percent)
{
    return draw(random) % 100 < percent;
}

static inline int64_t pick(uint64_t *random, const int64_t *from, uint32_t n)
{
    return from[draw(random) % n];
}

#define PICK(random, ...)                                                                          \
    pick(random, (const int64_t[]){__VA_ARGS__}, ARRAY_LEN(((const int64_t[]){__VA_ARGS__})))

/* --- tensors --- */

static inline struct shape shape_of(uint32_t rank, const int64_t *dims)
{
    struct shape s = {.rank = rank};
    memcpy(s.dim, dims, rank * sizeof(*dims));
    return s;
}

#define DIMS(...)                                                                                  \
    shape_of(ARRAY_LEN(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

/* Up to four dims, of which the last may be long. */
static inline struct shape any_shape(uint64_t *random, uint32_t min_rank)
{
    struct shape s = {.rank = (uint32_t)between(random, min_rank, 4)};
    for (uint32_t i = 0; i < s.rank; i++)
        s.dim[i] = PICK(random, 1, 2, 3, 7, 8, 16, 24);
    if (chance(random, 30))
        s.dim[s.rank - 1] = PICK(random, 100, 128, 768, 1000, 1025);
    return s;
}

static inline uint32_t add_input(struct ir_graph *g, enum dtype dtype, struct shape shape)
{
    uint32_t id = ir_tensor_add(g, "x", dtype, &shape);
    if (id != IR_NONE && g->n_inputs < IR_MAX_IO)
        g->inputs[g->n_inputs++] = id;
    return id;
}

/* Floats in +-scale. */
static inline uint32_t add_constant(struct ir_graph *g, uint64_t *random, struct shape shape,
                                    double scale)
{
    size_t n;
    if (!shape_elements(&shape, &n))
        return IR_NONE;
    float *data = arena_array(g->arena, n + 1, sizeof(*data));
    for (size_t i = 0; data && i < n; i++)
        data[i] = (float)(((double)draw(random) / (1U << 30) - 1.0) * scale);
    return data ? ir_constant_add(g, "w", DTYPE_F32, &shape, data) : IR_NONE;
}

/* INT8, or INT32 of the same size. */
static inline uint32_t add_integers(struct ir_graph *g, uint64_t *random, struct shape shape,
                                    enum dtype dtype)
{
    size_t n, size = dtype_size(dtype);
    char *data = shape_elements(&shape, &n) ? arena_array(g->arena, n + 1, size) : NULL;
    for (size_t i = 0; data && i < n; i++)
        memcpy(data + i * size, &(int32_t){(int32_t)between(random, -128, 127)}, size);
    return data ? ir_constant_add(g, "w", dtype, &shape, data) : IR_NONE;
}

static inline uint32_t add_indices(struct ir_graph *g, uint64_t *random, struct shape shape,
                                   int64_t limit)
{
    size_t n;
    if (!shape_elements(&shape, &n))
        return IR_NONE;
    int64_t *data = arena_array(g->arena, n + 1, sizeof(*data));
    for (size_t i = 0; data && i < n; i++)
        data[i] = between(random, -limit, limit - 1);
    return data ? ir_constant_add(g, "i", DTYPE_I64, &shape, data) : IR_NONE;
}

static inline bool finish(struct ir_graph *g, uint32_t node)
{
    return node != IR_NONE && !ir_infer_apply(g, node, NULL, 0, NULL);
}

/* Appends an epilogue as fusions do to node 0, or none. `channel`: the dim that operands of one
 * value per channel follow. */
bool add_epilogue(struct ir_graph *g, uint64_t *random, uint32_t channel);
/* Append one step of an epilogue. */
bool add_unary(struct ir_graph *g, enum ir_unary func, float alpha, float beta);
bool add_operand(struct ir_graph *g, enum ir_binary func, uint32_t tensor);

/* --- images (cases_image.c) --- */

bool make_resize(struct ir_graph *g, uint64_t *random);
bool make_instance_norm(struct ir_graph *g, uint64_t *random);
bool make_lrn(struct ir_graph *g, uint64_t *random);
bool make_sample(struct ir_graph *g, uint64_t *random);
bool make_roi_pool(struct ir_graph *g, uint64_t *random);
bool make_stem_pool(struct ir_graph *g, uint64_t *random);
bool make_conv_pair(struct ir_graph *g, uint64_t *random);
bool make_conv_chain(struct ir_graph *g, uint64_t *random);
bool make_conv_odd(struct ir_graph *g, uint64_t *random);
bool make_deconv(struct ir_graph *g, uint64_t *random);
bool sized_resize(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_group_norm(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_deconv(struct ir_graph *g, uint64_t *random, int64_t batch);

/* --- attention (cases_attention.c) --- */

bool make_attention(struct ir_graph *g, uint64_t *random);
bool make_attention_odd(struct ir_graph *g, uint64_t *random);
/* Of networks that are served. */
bool sized_bert(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_gpt2(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_vit(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_swin(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_swin_shifted(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_clip(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_whisper(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_t5(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_long(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_decode(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_ragged(struct ir_graph *g, uint64_t *random, int64_t batch);

/* --- indices, and lines along an axis (cases_index.c) --- */

bool make_arg_reduce(struct ir_graph *g, uint64_t *random);
bool make_cumsum(struct ir_graph *g, uint64_t *random);
bool make_topk(struct ir_graph *g, uint64_t *random);
bool make_trilu(struct ir_graph *g, uint64_t *random);
bool make_one_hot(struct ir_graph *g, uint64_t *random);
bool make_gather_elements(struct ir_graph *g, uint64_t *random);
bool make_gather_nd(struct ir_graph *g, uint64_t *random);
bool make_scatter_elements(struct ir_graph *g, uint64_t *random);
bool make_scatter_nd(struct ir_graph *g, uint64_t *random);
bool make_reduce_any(struct ir_graph *g, uint64_t *random);

/* --- products (cases_product.c) --- */

bool make_matmul_bytes(struct ir_graph *g, uint64_t *random);
bool make_head(struct ir_graph *g, uint64_t *random);
bool make_matmul_deep(struct ir_graph *g, uint64_t *random);
bool sized_head(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_product_sum(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_row_gelu(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_row_sum(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_row_wide(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_product_bytes(struct ir_graph *g, uint64_t *random, int64_t batch);
bool make_mlp(struct ir_graph *g, uint64_t *random);
bool sized_mlp_ten(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_mlp_ranking(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_layer(struct ir_graph *g, uint64_t *random, int64_t batch);

/* --- quantisation (cases_quant.c) --- */

bool make_quantise(struct ir_graph *g, uint64_t *random);
bool make_dequantise(struct ir_graph *g, uint64_t *random);

/* --- recurrent layers (cases_recurrent.c) --- */

bool make_recurrent(struct ir_graph *g, uint64_t *random);
bool sized_lstm_256(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_lstm_512(struct ir_graph *g, uint64_t *random, int64_t batch);
bool sized_lstm_512_both(struct ir_graph *g, uint64_t *random, int64_t batch);

#endif
