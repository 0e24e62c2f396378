/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs every native candidate of one node, in every layout, and compares it with the reference.
 */
#ifndef INFERD_TESTS_UNIT_CPU_NATIVE_CASE_H
#define INFERD_TESTS_UNIT_CPU_NATIVE_CASE_H

#include <stdint.h>

#include "base/op_enums.h"

/* Sets of layouts. A machine has one of the two blocked ones. */
enum {
    PLAIN = 1 << IR_LAYOUT_PLAIN,
    LAST = 1 << IR_LAYOUT_CHANNELS_LAST,
    BLOCKS = 1 << IR_LAYOUT_BLOCKED_8 | 1 << IR_LAYOUT_BLOCKED_16,
};

/*
 * `text` is the line of a graph (tests/unit/passes/parse.h) that makes y; all operands are
 * constants. Each candidate runs twice, on memory of exactly the size that it needs. Outputs that
 * are integers must be the reference's, floats may differ by tolerance * max(1, |y|). Returns a set
 * of the layouts that candidates had: bit l for enum ir_layout l; 0: there was no candidate.
 */
uint32_t native_case(const char *text, double tolerance);

/* The same, with the bytes at operands[i] as those of input i; NULL: as the text has them. */
uint32_t native_case_on(const char *text, double tolerance, const void *const *operands);

/* The same for a text as of printf. */
uint32_t native_casef(double tolerance, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fails unless the layouts are the wanted ones; with BLOCKS, any blocked one will do. */
void assert_layouts(const char *text, uint32_t layouts, uint32_t wanted);

#endif
