/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All facts about ops, attribute keys and functions: the tables behind ops.def and attrs.def. Code
 * that needs a fact about an op asks here; it keeps no list of ops that have something in common.
 * Everything is static. A number outside a table gives an empty row called "?".
 */
#ifndef INFERD_ENGINE_IR_OPS_H
#define INFERD_ENGINE_IR_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "engine/ir/op.h"

/* Classes of element types. */
enum ir_class {
    IR_CLASS_ANY,
    IR_CLASS_NUMBER, /* anything but BOOL */
    IR_CLASS_FLOAT,
    IR_CLASS_INTEGER,
    IR_CLASS_BOOL,
    IR_CLASS_INDEX, /* INT32 or INT64 */
    IR_CLASS_LIKE,  /* the type of the first operand */
    IR_CLASS_COUNT_
};
const char *ir_class_name(enum ir_class class); /* "a float" */

enum {
    IR_OPERANDS_MAX = 9, /* in a row, with the one that ends it */
    IR_OP_ATTRS_MAX = 12,

    /* of an operand */
    IR_OPERAND_OPTIONAL = 1,
    IR_OPERAND_MANY = 2,   /* any number of such operands may follow it */
    IR_OPERAND_FAILS = 4,  /* some of its values make the node fail when it runs */
    IR_OPERAND_LENGTH = 8, /* says how many steps of each sequence count; the work depends on it */
    IR_OPERAND_SPANS = 16, /* pairs of places, between which the work lies */

    /* of an attribute */
    IR_OP_ATTR_NEEDED = 1,
    IR_OP_ATTR_DIM = 2,  /* its values are dimensions of the first operand */
    IR_OP_ATTR_OPEN = 4, /* no fixed value stands for an absent one */
};

struct ir_operand {
    const char *name; /* with its shape: "W[M,C/GROUP,k..]"; NULL: the list ends */
    enum ir_class class;
    uint32_t flags;
};

struct ir_op_attr {
    enum ir_attr_key key; /* IR_ATTR_NONE: the list ends */
    uint32_t flags;
    int64_t lo, hi;  /* of each value, if it is an integer */
    double fallback; /* the value if it is absent */
};

enum ir_trait {
    IR_TRAIT_EPILOGUE = 1 << 0, /* the first output may have an epilogue */
    IR_TRAIT_PRODUCT = 1 << 1,  /* sums of products with operand 1, plus operand 2. Any kernel of
                                   the op can apply further steps before it stores */
    IR_TRAIT_BYTES = 1 << 2,    /* operands 0 and 1 may be INT8 and UINT8, in any mixture; sums and
                                   operand 2 then are INT32, and there is no epilogue */
    IR_TRAIT_HEAVY = 1 << 3,    /* the reference takes very long: the last resort */
    IR_TRAIT_MIXES = 1 << 4,    /* rows of the output do not belong to one instance each */
    IR_TRAIT_MOVES = 1 << 5,    /* moves elements without looking at them */
    IR_TRAIT_RENAMES = 1 << 6,  /* the output may be the input's bytes under another shape or
                                   layout */
    IR_TRAIT_JOINS = 1 << 7,    /* the inputs may be written where the output has them */
    IR_TRAIT_CUTS = 1 << 8,     /* the output may be read where the input has it */
};

/* What ir_node_work counts. */
enum ir_work {
    IR_WORK_SIZES,   /* bytes of inputs and outputs */
    IR_WORK_PRODUCT, /* for each element of the output a row and a column */
    IR_WORK_PAIRS,   /* each box against each score */
    IR_WORK_CUBES,   /* elimination in each matrix */
    IR_WORK_TAPS,    /* for each element of the output the elements that it is interpolated from */
    IR_WORK_ENDLESS, /* not known: a file of a few bytes could ask for hours of it */
};

enum ir_group {
    IR_GROUP_NONE,
    IR_GROUP_CONVOLUTION,
    IR_GROUP_PRODUCT,
    IR_GROUP_REDUCTION,
    IR_GROUP_NORM,
    IR_GROUP_ELEMENTWISE,
    IR_GROUP_SHAPE,
    IR_GROUP_INDEX,
    IR_GROUP_IMAGE,
    IR_GROUP_LAYOUT,
    IR_GROUP_PLUGIN,
    IR_GROUP_COUNT_
};

struct ir_op_row {
    const char *name; /* "conv" */
    enum ir_group group;
    struct ir_operand operands[IR_OPERANDS_MAX];
    uint32_t min_out, max_out;
    struct ir_op_attr attrs[IR_OP_ATTRS_MAX];
    uint32_t traits; /* enum ir_trait */
    enum ir_work work;
    const char *text; /* a paragraph for docs/ir.md */
};
const struct ir_op_row *ir_op_row(enum ir_op op);
const char *ir_op_name(enum ir_op op); /* "conv" */
bool ir_op_has(enum ir_op op, enum ir_trait trait);
/* What the op makes of the key; NULL: the op does not have it. */
const struct ir_op_attr *ir_op_attr(enum ir_op op, enum ir_attr_key key);

struct ir_attr_row {
    const char *name;
    bool is_float, is_list;
};
const struct ir_attr_row *ir_attr_row(enum ir_attr_key key);
const char *ir_attr_name(enum ir_attr_key key); /* "func" */

enum {
    /* of a function */
    IR_FUNC_ALPHA = 1, /* the constants that it has */
    IR_FUNC_BETA = 2,
    IR_FUNC_GAMMA = 4,
    IR_FUNC_TO_BOOL = 8, /* its values are BOOL */
    IR_FUNC_JUMPS = 16,  /* a slight rounding of its operands may matter much */
    IR_FUNC_CELL = 32,   /* a cell of RECURRENT may have it */
};

struct ir_func_row {
    const char *name;
    enum ir_class class; /* of its operands */
    uint32_t flags;
    float alpha, beta, gamma; /* where absent */
    const char *formula;
};
const struct ir_func_row *ir_unary_row(enum ir_unary func);
const struct ir_func_row *ir_binary_row(enum ir_binary func);
const char *ir_unary_name(enum ir_unary func);   /* "relu" */
const char *ir_binary_name(enum ir_binary func); /* "add" */

#endif
