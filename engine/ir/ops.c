/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of ops and attribute keys, from ops.def and attrs.def, and the words for layouts. */
#include "engine/ir/ops.h"

#include "base/compiler.h"
#include "engine/ir/infer.h"
#include "engine/ir/ir.h"

/* The words of ops.def. */
enum {
    NONE = 0,
    EPILOGUE = IR_TRAIT_EPILOGUE,
    PRODUCT = IR_TRAIT_PRODUCT,
    BYTES = IR_TRAIT_BYTES,
    HEAVY = IR_TRAIT_HEAVY,
    MIXES = IR_TRAIT_MIXES,
    MOVES = IR_TRAIT_MOVES,
    RENAMES = IR_TRAIT_RENAMES,
    JOINS = IR_TRAIT_JOINS,
    CUTS = IR_TRAIT_CUTS,

    WINDOW_MAX = INFER_WINDOW_MAX,
    ROI_SAMPLES_MAX = INFER_ROI_SAMPLES_MAX,
};

/* clang-format off */
#define OPERANDS(...)             {__VA_ARGS__}
#define IN(name, class)           {name, IR_CLASS_##class, 0}
#define OPT(name, class)          {name, IR_CLASS_##class, IR_OPERAND_OPTIONAL}
#define MANY(name, class)         {name, IR_CLASS_##class, IR_OPERAND_MANY}
#define INDEX(name)               {name, IR_CLASS_INDEX, IR_OPERAND_FAILS}
#define OPT_INDEX(name)           {name, IR_CLASS_INDEX, IR_OPERAND_OPTIONAL | IR_OPERAND_FAILS}
#define SPANS(name)               {name, IR_CLASS_INDEX, IR_OPERAND_OPTIONAL | IR_OPERAND_SPANS}
#define LENGTHS(name)                                                                              \
    {name, IR_CLASS_INDEX, IR_OPERAND_OPTIONAL | IR_OPERAND_FAILS | IR_OPERAND_LENGTH}

#define ATTRS(...)                {__VA_ARGS__}
#define NO_ATTRS                  {{IR_ATTR_NONE, 0, 0, 0, 0}}
#define NEED(KEY, lo, hi)         {IR_ATTR_##KEY, IR_OP_ATTR_NEEDED, lo, hi, 0}
#define DIM(KEY)                  {IR_ATTR_##KEY, IR_OP_ATTR_NEEDED | IR_OP_ATTR_DIM, 0, 0, 0}
#define MAY(KEY, lo, hi, value)   {IR_ATTR_##KEY, 0, lo, hi, value}
#define FLAG(KEY)                 MAY(KEY, 0, 1, 0)
#define FLAG_ON(KEY)              MAY(KEY, 0, 1, 1)
#define REAL(KEY, value)          {IR_ATTR_##KEY, 0, 0, 0, (double)(value)}
#define NEED_REAL(KEY)            {IR_ATTR_##KEY, IR_OP_ATTR_NEEDED, 0, 0, 0}
#define OPEN_REAL(KEY)            {IR_ATTR_##KEY, IR_OP_ATTR_OPEN, 0, 0, 0}
/* clang-format on */

static const struct ir_op_row rows[IR_OP_COUNT_] = {
    [IR_OP_NONE] = {.name = "none"},
#define OP(NAME, number, name, GROUP, operands, min_out, max_out, attrs, traits, WORK, text)       \
    [IR_OP_##NAME] = {#name, IR_GROUP_##GROUP, operands,       min_out, max_out,                   \
                      attrs, traits,           IR_WORK_##WORK, text},
#include "engine/ir/ops.def"
};

static const struct ir_attr_row keys[IR_ATTR_COUNT_] = {
    [IR_ATTR_NONE] = {"?", false, false},
#define ATTR(KEY, number, name, type, many) [IR_ATTR_##KEY] = {#name, type, many},
#include "engine/ir/attrs.def"
};

static const char *const layout_names[IR_LAYOUT_COUNT_] = {
    [IR_LAYOUT_PLAIN] = "nchw",
    [IR_LAYOUT_CHANNELS_LAST] = "nhwc",
    [IR_LAYOUT_BLOCKED_8] = "nChw8c",
    [IR_LAYOUT_BLOCKED_16] = "nChw16c",
    [IR_LAYOUT_OPAQUE] = "opaque",
    [IR_LAYOUT_CHANNELS_LAST_4] = "nhwc4",
    [IR_LAYOUT_CHANNELS_LAST_8] = "nhwc8",
};

static const char *const class_names[IR_CLASS_COUNT_] = {
    [IR_CLASS_ANY] = "anything",  [IR_CLASS_NUMBER] = "a number",
    [IR_CLASS_FLOAT] = "a float", [IR_CLASS_INTEGER] = "an integer",
    [IR_CLASS_BOOL] = "BOOL",     [IR_CLASS_INDEX] = "INT32 or INT64",
    [IR_CLASS_LIKE] = "as X",
};

const struct ir_op_row *ir_op_row(enum ir_op op)
{
    static const struct ir_op_row unknown = {.name = "?"};
    return (uint32_t)op < IR_OP_COUNT_ ? &rows[op] : &unknown;
}

const struct ir_attr_row *ir_attr_row(enum ir_attr_key key)
{
    return &keys[(uint32_t)key < IR_ATTR_COUNT_ ? key : IR_ATTR_NONE];
}

const struct ir_op_attr *ir_op_attr(enum ir_op op, enum ir_attr_key key)
{
    const struct ir_op_attr *attr = ir_op_row(op)->attrs;
    for (uint32_t i = 0; i < IR_OP_ATTRS_MAX && attr[i].key; i++)
        if (attr[i].key == key)
            return &attr[i];
    return NULL;
}

bool ir_op_has(enum ir_op op, enum ir_trait trait)
{
    return (ir_op_row(op)->traits & (uint32_t)trait) != 0;
}

const char *ir_op_name(enum ir_op op)
{
    return ir_op_row(op)->name;
}

const char *ir_attr_name(enum ir_attr_key key)
{
    return ir_attr_row(key)->name;
}

const char *ir_class_name(enum ir_class class)
{
    return class_names[class];
}

const char *ir_layout_name(enum ir_layout layout)
{
    return (uint32_t)layout < IR_LAYOUT_COUNT_ ? layout_names[layout] : "?";
}
