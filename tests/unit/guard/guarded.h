/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the guard share: a simulated device (mock.h), which rounds as 16-bit types do, and
 * small networks for it. */
#ifndef INFERD_TESTS_UNIT_GUARD_GUARDED_H
#define INFERD_TESTS_UNIT_GUARD_GUARDED_H

#include "engine/guard/guard.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/tune/net.h"

/* Of the test at hand. */
extern struct device *device;
extern struct guard *guard; /* NULL, or freed behind the test */
extern struct guard_report report;
extern char heard[4096]; /* the guard's warnings, or all that it says (ear.level) */
extern struct log_sink ear;

/* Light layers do not leave fp32 otherwise. */
uint64_t short_is_fast(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic);
int set_up(void **state);
int tear_down(void **state);
void open_sparing(double bound, double most_loss);
void open_guard(struct device *host, double bound, const struct guard_source *source);
/* Tunes the graph under the guard, which is made if there is none. */
void tune_beside(struct ir_graph *g, enum precision precision, struct device *host);

uint32_t unary(struct ir_graph *g, const char *name, enum ir_unary func, uint32_t x);
uint32_t scalar(struct ir_graph *g, float value);
uint32_t binary(struct ir_graph *g, const char *name, enum ir_binary func, uint32_t x, uint32_t y);
/* x -> first -> fc -> last -> y */
struct ir_graph *chain(int64_t rows);

/* The type of what the node of that name stores. */
enum dtype type_of(const struct ir_graph *g, const char *name);
/* NULL: it is not held back. */
const struct guard_layer *held(const char *name);

#endif
