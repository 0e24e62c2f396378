/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small graphs for the tuner's tests: each is made in a line, tuned with chosen candidates, run
 * node by node, and compared with the reference kernels' answer.
 */
#ifndef INFERD_TESTS_UNIT_TUNE_NET_H
#define INFERD_TESTS_UNIT_TUNE_NET_H

#include "engine/backend.h"
#include "engine/ir/ir.h"
#include "engine/tune/tune.h"

/* A 32-bit number that depends on the state alone. */
uint32_t net_random(uint64_t *state);
/* A random number in [low, high]. */
int64_t net_between(uint64_t *state, int64_t low, int64_t high);

/* `dims` ends with a 0. */
uint32_t net_input(struct ir_graph *g, const int64_t *dims);
uint32_t net_constant(struct ir_graph *g, const int64_t *dims);
/* A node over `n` inputs. The caller sets its attributes and infers its outputs. */
uint32_t net_node(struct ir_graph *g, enum ir_op op, const char *name, uint32_t n,
                  const uint32_t *inputs);
void net_ints(struct ir_graph *g, uint32_t node, enum ir_attr_key key, uint32_t n,
              const int64_t *values);
void net_int(struct ir_graph *g, uint32_t node, enum ir_attr_key key, int64_t value);
void net_float(struct ir_graph *g, uint32_t node, enum ir_attr_key key, float value);
/* Infers the node's outputs. Returns the first one. Fails the test if the node is wrong. */
uint32_t net_infer(struct ir_graph *g, uint32_t node);
void net_output(struct ir_graph *g, uint32_t tensor);
void net_unary(struct ir_graph *g, uint32_t node, enum ir_unary func, float alpha, float beta);
void net_binary(struct ir_graph *g, uint32_t node, enum ir_binary func, uint32_t tensor);

/* A convolution with bias and relu, padded so that stride 1 keeps the size. */
uint32_t net_conv(struct ir_graph *g, uint32_t x, int64_t m, int64_t k, int64_t stride);
/* A stem, a pool, two residual blocks, a concat, a mean and a product. Two inner tensors are
 * outputs as well: one that nodes read, and one that only the graph has. */
struct ir_graph *net_network(int64_t batch);

/* A CPU device with two threads. All nodes but reformats have one candidate left: net_only(k) lets
 * the k-th through (none, if there are fewer), net_only(NET_ALL) all. */
enum { NET_ALL = -1 };
struct device *net_device(void);
void net_only(int k);
/* How many candidates the last tuned node had before the cut, and the name of the candidate
 * left. */
uint32_t net_offered(void);
const char *net_name(void);

/* The name of node i's tactic; "" if the node only renames a tensor, and becomes an alias. */
const char *net_tactic(const struct ir_graph *g, uint32_t i);
/* How many nodes have a tactic. */
uint32_t net_layers(const struct ir_graph *g);

/* A copy that can be tuned while the original stays as it is. */
struct ir_graph *net_copy(const struct ir_graph *g);
/* Fills input `index` as it is filled when a graph runs. */
void net_input_fill(const struct ir_tensor *t, uint32_t index, void *to);
/* Runs a tuned graph, with nodes of other backends on `host` (may be NULL). Gives each output's
 * plain bytes, which the caller frees. */
void net_run(struct device *device, struct device *host, const struct ir_graph *g, float **outputs);
/* As net_run, with the reference kernels, for a graph that is not tuned. */
void net_reference(const struct ir_graph *g, float **outputs);
/* The norm of the difference of output i, divided by the norm of `want`. */
double net_error(const struct ir_graph *g, uint32_t i, const float *got, const float *want);

#endif
