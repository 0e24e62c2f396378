/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which family takes which ops. No header of CUDA is behind this one: the same table decides what
 * families are asked, and says in docs/operators.md what a device runs, in a build without CUDA
 * too.
 */
#ifndef INFERD_ENGINE_CUDA_TAKES_H
#define INFERD_ENGINE_CUDA_TAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/ir/op.h"

/* The upper half of tactic.id; stored in plans: append, never renumber. */
enum cuda_family_id {
    CUDA_FAMILY_DNN_CONV = 1,
    CUDA_FAMILY_LT_MATMUL = 2,
    CUDA_FAMILY_LT_CONV = 3,
    CUDA_FAMILY_DNN_ATTENTION = 4,
    CUDA_FAMILY_OWN_MAP = 5,
    CUDA_FAMILY_OWN_MOVE = 6,
    CUDA_FAMILY_OWN_POOL = 7,
    CUDA_FAMILY_OWN_CONV = 8, /* own_conv.c: depthwise, and the direct one for the rest */
    CUDA_FAMILY_OWN_ROWS = 9, /* own_rows.c: softmax, norms, reductions */
    CUDA_FAMILY_OWN_ATTENTION = 10,
    CUDA_FAMILY_COUNT_
};

/* A family in words: what runs it, and what of its ops it takes. */
struct cuda_taking {
    const char *library, *what;
    uint64_t ops; /* bit (1 << enum ir_op) */
};

/* Row 0 is nobody's. */
extern const struct cuda_taking cuda_takings[CUDA_FAMILY_COUNT_];

static inline bool cuda_family_takes(enum cuda_family_id id, enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ && cuda_takings[id].ops >> op & 1;
}

#endif
