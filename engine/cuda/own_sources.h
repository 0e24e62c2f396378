/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the channels of one tensor or of two, by constant weights of 8 bits and one place:
 * weights, scales and biases are packed as our kernels for Hopper want them that have results of 8
 * bits, those of own_pair.c and own_chain.c. Source i stands for s[i] (p - z[i]) and its weights of
 * channel c for t[i][c] q, so that with u[i] = s[i] t[i]
 *
 *     y[c] = u[0] sum(p q) + u[1] sum(p2 q2) + bias[c] - u[0] z[0] sum(q) - u[1] z[1] sum(q2)
 *
 * The kernels sum in units of the last source's u: the first one's sum is rounded to them, which is
 * refused where one of them would be felt in y. Channels to which the second source brings next to
 * nothing have larger units than their weights ask for, so that no sum overflows. FP8 has no zero
 * points, its sums are not rounded, and what is behind them are real numbers; of integers they are
 * steps of y.
 */
#ifndef INFERD_ENGINE_CUDA_OWN_SOURCES_H
#define INFERD_ENGINE_CUDA_OWN_SOURCES_H

#include "engine/cuda/own.h"
#include "engine/cuda/scaled.h"

enum { OWN_SOURCES = 2 };

struct own_sources {
    int n;
    struct stored from[OWN_SOURCES], to;
    struct scaled_inputs in[OWN_SOURCES]; /* of the node; the first one's has the bias */
    struct kernel_images image[OWN_SOURCES];
    int64_t depth[OWN_SOURCES], cols;
    double less; /* what is taken off y, in its steps: what a residual's zero point stands for */
};

/* Where things are packed, for lines of so many columns, in steps of so many bytes. Behind the
 * first source's weights stand scale and bias, behind the second one's the ratio and a number, the
 * most that a sum of the first source can be in units of the second one. */
struct own_sources_places {
    int64_t line, step;
    uint64_t weights[OWN_SOURCES]; /* bytes of packed weights */
    uint64_t vector;               /* bytes of a number for each of their rows */
};

void own_sources_place(const struct own_sources *s, int64_t line, int64_t step,
                       struct own_sources_places *out);
uint64_t own_sources_bytes(const struct own_sources_places *places, int source);

/* Whether all are stored in types that the kernels take: integers of 8 bits, or FP8. */
bool own_sources_types(const struct own_sources *s);
/* The limits that an activation is to results; IR_UNARY_IDENTITY: their type's. False: it is not
 * one of ReLU and clip. */
bool own_sources_limits(const struct own_sources *s, uint32_t func, float alpha, float beta,
                        float *low, float *high);

/* Whether no sum overflows, and whether the constants are as packing wants them. The latter is
 * asked only before they are packed. */
bool own_sources_count(const struct own_sources *s);
bool own_sources_fit(const struct ir_graph *graph, const struct ir_node *node,
                     const struct own_sources *s);

/* Give a tactic's ports the forms in which the sources' constants are packed. */
void own_sources_ports(const struct ir_graph *graph, const struct ir_node *node,
                       const struct own_sources *s, const struct own_sources_places *places,
                       struct tactic *tactic);

/* Whether a stored tactic has the layouts and packed bytes of the one that is made for its node. */
bool own_sources_same(const struct tactic *stored, const struct tactic *want);

/* Packs the constants of a source. False in *fit: they are not as they should be. */
enum status own_sources_pack(const struct ir_graph *graph, const struct ir_node *node,
                             const struct own_sources *s, const struct own_sources_places *places,
                             int source, void *to, bool *fit, struct error *err);

/* Points the kernel's argument at what was packed; second NULL: there is one source. */
void own_sources_bind(const struct own_sources_places *places, const void *first,
                      const void *second, struct kernel_tile *tile);

#endif
