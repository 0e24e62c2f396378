/* SPDX-License-Identifier: Apache-2.0 */
/* An order of a graph's nodes that keeps those together that run in one place. */
#ifndef INFERD_ENGINE_IR_RUNS_H
#define INFERD_ENGINE_IR_RUNS_H

#include "engine/ir/ir.h"

/* Where a node runs. */
enum ir_side { IR_SIDE_ANY = 0, IR_SIDE_DEVICE = 1, IR_SIDE_HOST = 2 };

/*
 * Orders the nodes so that they change sides as seldom as possible. side[i] is the side of node i;
 * nodes on any side join a run. Fills order[n_nodes] and, by node, run[n_nodes], and returns the
 * number of runs. The nodes must stand in an order in which they may run.
 *
 * A run takes every node of its side that may run by then. No order has fewer runs, except that one
 * that begins on the other side may have one less, so both beginnings are tried. The time is that
 * of going over the graph once for each run.
 *
 * UINT32_MAX: no memory.
 */
uint32_t ir_runs(const struct ir_graph *graph, const uint8_t *side, uint32_t *order, uint32_t *run);

#endif
