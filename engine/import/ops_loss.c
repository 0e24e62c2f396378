/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. */
#include "engine/import/ops.h"

#include <string.h>

/* The score of each target: [N, d..] from scores [N, C, d..]. */
static uint32_t picked(struct mapper *m, uint32_t scores, uint32_t targets)
{
    struct shape shape = *map_shape(m, targets), column = shape;
    if (map_failed(m))
        return IR_NONE;
    if (shape.rank + 1 != map_shape(m, scores)->rank || shape.rank < 1) {
        map_invalid(m, "targets of rank %u for scores of rank %u", shape.rank,
                    map_shape(m, scores)->rank);
        return IR_NONE;
    }
    column.rank++;
    memmove(&column.dim[2], &column.dim[1], (shape.rank - 1) * sizeof(column.dim[0]));
    column.dim[1] = 1;
    const uint32_t inputs[] = {scores, emit_reshape(m, targets, &column)};
    uint32_t node = emit_begin(m, IR_OP_GATHER_ELEMENTS, 2, inputs);
    emit_int(m, node, IR_ATTR_AXIS, 1);
    return emit_reshape(m, emit_end(m, node), &shape);
}

/* The weight of each target: the weight of its class, or 0 if the target is ignored. IR_NONE: all
 * are 1. */
static uint32_t target_weights(struct mapper *m, uint32_t targets, uint32_t ignored,
                               uint32_t classes, enum dtype dtype)
{
    if (classes == IR_NONE && ignored == IR_NONE)
        return IR_NONE;
    uint32_t weights =
        classes == IR_NONE ? emit_scalar(m, dtype, 1) : emit_gather(m, classes, targets, 0);
    if (ignored == IR_NONE)
        return weights;
    return emit_select(m, ignored, emit_scalar(m, dtype, 0), weights);
}

static uint32_t reduced(struct mapper *m, uint32_t losses, uint32_t weights)
{
    struct ints all = {.n = map_shape(m, losses)->rank};
    for (uint32_t d = 0; d < all.n; d++)
        all.v[d] = d;
    if (map_attr_is(m, "reduction", "none", "mean"))
        return losses;
    if (map_attr_is(m, "reduction", "sum", "mean"))
        return emit_reduce(m, IR_REDUCE_SUM, losses, &all, false);
    if (!map_attr_is(m, "reduction", "mean", "mean"))
        map_invalid(m, "attribute 'reduction' is none of none, sum, mean");
    if (weights == IR_NONE)
        return emit_reduce(m, IR_REDUCE_MEAN, losses, &all, false);
    uint32_t total = emit_reduce(m, IR_REDUCE_SUM, losses, &all, false);
    return emit_binary(m, IR_BINARY_DIV, total,
                       emit_reduce(m, IR_REDUCE_SUM, weights, &all, false));
}

/* -weight[target] * log_probability[target] */
static uint32_t emit_likelihood(struct mapper *m, uint32_t scores, uint32_t targets,
                                uint32_t classes)
{
    uint32_t ignored = IR_NONE;
    enum dtype dtype = map_dtype(m, scores);
    if (map_attr(m, "ignore_index")) {
        enum dtype index = map_dtype(m, targets);
        double value = (double)map_attr_int(m, "ignore_index", 0);
        ignored = emit_binary(m, IR_BINARY_EQUAL, targets, emit_scalar(m, index, value));
        targets = emit_select(m, ignored, emit_scalar(m, index, 0), targets);
    }
    uint32_t weights = target_weights(m, targets, ignored, classes, dtype);
    uint32_t losses = emit_unary(m, IR_UNARY_NEG, picked(m, scores, targets));
    if (weights != IR_NONE) {
        struct shape shape = *map_shape(m, losses);
        weights = emit_expand(m, weights, &shape);
        losses = emit_binary(m, IR_BINARY_MUL, losses, weights);
    }
    return reduced(m, losses, weights);
}

void map_likelihood_loss(struct mapper *m)
{
    uint32_t scores = map_in(m, 0), targets = map_in(m, 1), classes = map_in_opt(m, 2);
    map_out(m, 0, emit_likelihood(m, scores, targets, classes));
}

void map_cross_entropy_loss(struct mapper *m)
{
    uint32_t scores = map_in(m, 0), targets = map_in(m, 1), classes = map_in_opt(m, 2);
    uint32_t logs = emit_softmax(m, scores, 1, true);
    map_out(m, 0, emit_likelihood(m, logs, targets, classes));
    map_out(m, 1, logs);
}
