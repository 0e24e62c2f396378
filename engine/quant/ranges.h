/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts ranges onto the tensors of a graph: those of a table, those that follow from them, and those
 * of the weights.
 *
 * A range is put where it can be of use: onto tensors from which the data of a product with
 * constant weights (a convolution, a matrix product) comes, through nothing but element-wise
 * functions, moves, pools and products. What normalisations, softmax and products of two computed
 * tensors (attention) read stays a float, and so do outputs of the model and tensors that hold
 * counts. Ranges follow moves exactly: what a reshape, a transpose, a slice or a max pool makes has
 * the range of what it reads. A cast from bytes has the range of these bytes. Neither holds for a
 * row without a method, or with "user" in its place: what a person has written stands. Weights get
 * a symmetric range for each channel of the output.
 */
#ifndef INFERD_ENGINE_QUANT_RANGES_H
#define INFERD_ENGINE_QUANT_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/ir/ir.h"
#include "engine/quant/table.h"

enum { QUANT_TOLD_MAX = 256 };

struct quant_report {
    uint32_t given;   /* rows of the table */
    uint32_t used;    /* that are the range of a tensor */
    uint32_t idle;    /* of tensors that no 8-bit layer could use, or that follow another tensor */
    uint32_t gone;    /* of tensors that are fused away or not there */
    uint32_t kept;    /* that keep their tensor a float */
    uint32_t own;     /* tensors whose ranges the model gives itself */
    uint32_t ranged;  /* tensors that have a range in the end, weights aside */
    uint32_t weights; /* that got a range */
    uint32_t missing; /* inputs of layers that stay floats because no range is known */
    char first_missing[QUANT_TOLD_MAX]; /* "'x' of layer 'conv1'" */
};

/*
 * Gives each unnamed tensor a name made of that of its node (of a fused node, of its first part):
 * "@conv1", "@conv1:1" for the second output, "@conv1~2" for the second tensor of that name. A name
 * that occurs twice gets such an end as well. So every tensor of the graph can be named in a table.
 * False: no memory.
 */
bool quant_name_tensors(struct ir_graph *graph) MUST_USE;

/* Notes which rows of the table name a tensor of this graph: known[i] becomes true for row i.
 * Called with the graph as it was imported, before passes make tensors vanish. */
void quant_note_known(const struct ir_graph *graph, const struct quant_table *table, bool *known);

/*
 * Puts the ranges onto a fused graph whose tensors have names. `table` NULL: no row. `known` as
 * above; a row that names neither a known tensor nor one of this graph is an error, unless the name
 * is made up of a node's (see above). `bytes`: NONE, so that a range that lies mostly on one side
 * of 0 becomes one of UINT8 with a zero point; INT8 if the device's products read INT8 alone, so
 * that a range from 0 to HIGH becomes one of INT8; FP8, so that all ranges become those of FP8,
 * whose largest number stands for the larger end.
 *
 * FAILED_PRECONDITION: the data of a product has no range, and not `keep_missing`.
 */
enum status quant_apply(struct ir_graph *graph, const struct quant_table *table, const bool *known,
                        bool keep_missing, enum dtype bytes, struct quant_report *report,
                        struct error *err);

/* Whether 8 bits could be of use for the tensor, as above; `useful` has an entry for each tensor of
 * the graph. False: no memory. */
bool quant_find_useful(const struct ir_graph *graph, bool *useful) MUST_USE;

#endif
