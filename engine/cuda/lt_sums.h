/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and 1x1 convolutions of tensors that are stored in 8 bits by constant weights, which are
 * packed in 8 bits, too: what the families lt_bytes (INT8) and lt_f8 (FP8) share.
 */
#ifndef INFERD_ENGINE_CUDA_LT_SUMS_H
#define INFERD_ENGINE_CUDA_LT_SUMS_H

#include "engine/cuda/lt.h"
#include "engine/stored.h"

enum { LT_SUMS_ALGOS = 8, LT_SUMS_ALIGN = 256 };

/* A node as a product. */
struct lt_sums {
    int64_t m, n, k;
    enum ir_layout layout; /* of x, y and tensors of y's shape */
    uint32_t axis;         /* the dim of y along which N lies */
    float alpha;
    struct stored x, y;
    bool biased; /* input 2 is the bias */
};

/* Reads a node whose x is stored as `bytes`. The graph's tensors have their formats; F32 may stand
 * for shorter floats. False: it is no such product. */
bool lt_sums_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype bytes,
                  struct lt_sums *out);

/* The dimension of the weights along which the output's columns lie. */
uint32_t lt_sums_channels(const struct ir_node *node);
/* Whether the weights may be stored as `bytes` without zero points; and whether the bias is as
 * packing wants it. Asked only before they are packed. */
bool lt_sums_constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                           const struct lt_sums *s, enum dtype bytes);

/* Gives the tactic's ports their layouts and scales: the weights are packed as `bytes`. */
void lt_sums_ports(const struct ir_graph *graph, const struct ir_node *node,
                   const struct lt_sums *s, enum dtype bytes, uint64_t packed, struct tactic *t);

/* Asks for the LT_SUMS_ALGOS best algorithms. Returns their number. */
int lt_sums_ask(const struct lt_api *api, const struct lt_desc *d,
                cublasLtMatmulHeuristicResult_t *results);

#endif
