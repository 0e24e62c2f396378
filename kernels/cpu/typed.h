/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast elementwise rows of other types than fp32, or that change the type: casts, comparisons,
 * logic, integer arithmetic, selection. typed.c is compiled once for each instruction set; a table
 * of fast.h points to the table of its own set.
 *
 * Each function gives exactly what the reference (ref.h) gives. Rows are dense and have the
 * alignment of their elements; `y` does not overlap operands.
 */
#ifndef INFERD_KERNELS_CPU_TYPED_H
#define INFERD_KERNELS_CPU_TYPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/op_enums.h"

enum {
    TYPED_OPERANDS = 3,
    TYPED_SIZE_MAX = 8, /* bytes of an element */
};

/* Operands that the function does not have are NULL. */
typedef void (*typed_row)(const void *const operands[TYPED_OPERANDS], void *y, size_t n);

/* NULL: not here. The type is that of the (first) operand. */
struct typed_kernels {
    typed_row unary[IR_UNARY_COUNT_][DTYPE_COUNT_];   /* IS_INF finds both infinities */
    typed_row binary[IR_BINARY_COUNT_][DTYPE_COUNT_]; /* MOD has the divisor's sign */
    typed_row cast[DTYPE_COUNT_][DTYPE_COUNT_];       /* from, to */
    typed_row select[TYPED_SIZE_MAX + 1]; /* by the size of an element; BOOL, then both choices */
};

#endif
