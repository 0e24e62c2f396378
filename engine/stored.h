/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of real numbers that are stored in 8 bits by scales (engine/ir/format.h), as backends see
 * them. Private to engine/cpu and engine/cuda.
 *
 * Kernels are asked about a node by the formats that its tensors have. A candidate that would store
 * some of them in 8 bits is found by asking about a copy of the graph, in which they are stored so.
 */
#ifndef INFERD_ENGINE_STORED_H
#define INFERD_ENGINE_STORED_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/backend.h"
#include "engine/ir/ir.h"

/* The number q stands for step * (q - zero). */
struct stored {
    enum dtype dtype; /* INT8, UINT8 or FP8; NONE: the tensor is not stored by a scale */
    float step;
    int32_t zero;
};

/* How the tensor is stored. False: by a scale for each index of a dimension, or IR_NONE. */
bool stored_read(const struct ir_graph *graph, uint32_t tensor, struct stored *out);
/* The type in which a tensor may be stored by the scale. */
enum dtype stored_type(const struct ir_scale *scale);
/* The least integer of the type, INT8 or UINT8. */
int32_t stored_least(enum dtype dtype);

/* Whether one of the node's tensors is stored by a scale; whether one is so as FP8. */
bool stored_any(const struct ir_graph *graph, const struct ir_node *node);
bool stored_f8(const struct ir_graph *graph, const struct ir_node *node);
/* Whether the node only moves numbers of 8 bits, or picks one of several, since all its real
 * tensors are stored by equal scales. */
bool stored_moves(const struct ir_graph *graph, const struct ir_node *node);
/* Gives the tactic's ports the scales by which the node's tensors are stored. */
void stored_set_scales(struct tactic *tactic, const struct ir_graph *graph,
                       const struct ir_node *node);
/* Whether the tensors have the types and scales that the ports say. */
bool stored_fits(const struct tactic *tactic, const struct ir_graph *graph,
                 const struct ir_node *node);

/* Calls `offer` with copies of the graph in which some of the node's tensors are stored in 8 bits
 * by their ranges: all of them first, then fewer. A copy lives as long as the call. */
typedef enum status (*stored_offer)(void *user, const struct ir_graph *graph, struct error *err);
enum status stored_each(const struct ir_graph *graph, const struct ir_node *node,
                        stored_offer offer, void *user, struct error *err);

#endif
