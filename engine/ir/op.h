/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of ops and attribute keys: IR_OP_CONV, IR_ATTR_FUNC and so on, one for each row of
 * ops.def and attrs.def. docs/ir.md is their manual; programs ask the tables of ops.h.
 */
#ifndef INFERD_ENGINE_IR_OP_H
#define INFERD_ENGINE_IR_OP_H

#include "base/op_enums.h"

enum ir_op {
    IR_OP_NONE = 0,
#define OP(NAME, number, ...) IR_OP_##NAME = number,
#include "engine/ir/ops.def"
    IR_OP_COUNT_
};

enum ir_attr_key {
    IR_ATTR_NONE = 0,
#define ATTR(KEY, number, ...) IR_ATTR_##KEY = number,
#include "engine/ir/attrs.def"
    IR_ATTR_COUNT_
};

#endif
