/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/takes.h"

_Static_assert(IR_OP_COUNT_ <= 64, "a set of ops is 64 bits");

#define OP(op)                                       (UINT64_C(1) << IR_OP_##op)
#define F(id, NAME, name, title, library, ops, what) [id] = {title, library, what, ops},

const struct cuda_taking cuda_takings[CUDA_FAMILY_COUNT_] = {CUDA_FAMILIES(F)};
