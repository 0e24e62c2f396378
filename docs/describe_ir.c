/* SPDX-License-Identifier: Apache-2.0 */
/* Writes docs/ir.md: the manual of the intermediate representation, from the tables of ops.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"

static const char introduction[] =
    "# The intermediate representation\n"
    "\n"
    "`docs/describe_ir.c` makes this page from `engine/ir/ops.def`, `engine/ir/attrs.def` and\n"
    "`engine/ir/functions.c`; `ninja -C build operators` writes it again. The enums that\n"
    "attributes name are in `base/op_enums.h`, graphs in `engine/ir/ir.h`.\n"
    "\n"
    "Importers map to these ops, passes rewrite among them, and every backend is judged by the\n"
    "reference in `kernels/cpu/`. A fusion adds an epilogue to a node, not an op for a\n"
    "combination, unless values between its parts are not to leave a kernel (`attention`, `mlp`,\n"
    "`conv_pool`, `conv_pair`, `conv_chain`, `embed`).\n"
    "Everything is static: if ONNX passes integers about shapes as a tensor (axes, pads, starts,\n"
    "sizes), the importer resolves them, and they are an attribute here. Plans store the numbers\n"
    "of ops, attributes and functions.\n"
    "\n"
    "## Adding an op\n"
    "\n"
    "Five files:\n"
    "\n"
    "1. `engine/ir/ops.def`: its row. The number, the name, the manual and all that the importer,\n"
    "   the verifier, the passes and the tuner ask about an op come from there.\n"
    "2. `engine/ir/infer_arith.c` or another file of rules: `infer_NAME` infers types and shapes.\n"
    "3. `kernels/cpu/ref.h` and 4. a file beside it: the reference kernel.\n"
    "5. `engine/cpu/call.c`: `run_NAME` calls that kernel for a node.\n"
    "\n"
    "Without 2 or 5 nothing links or compiles. `tests/unit/ir/test_infer.c` and\n"
    "`tests/unit/cpu/test_every_op.c` fail until they have cases of the new op; the latter also\n"
    "runs the kernel. A test fails until this page is written again. To map an operator of ONNX "
    "to\n"
    "the op, add a row and a mapping function to `engine/import/ops.c`. A backend that has a\n"
    "kernel of its own for the op lists it in its table.\n";

static const char *const groups[IR_GROUP_COUNT_] = {
    [IR_GROUP_CONVOLUTION] = "Convolutions",
    [IR_GROUP_PRODUCT] = "Products",
    [IR_GROUP_REDUCTION] = "Pooling and reductions",
    [IR_GROUP_NORM] = "Normalisation",
    [IR_GROUP_ELEMENTWISE] = "Element by element",
    [IR_GROUP_SHAPE] = "Shapes",
    [IR_GROUP_INDEX] = "Indices",
    [IR_GROUP_IMAGE] = "Images",
    [IR_GROUP_LAYOUT] = "Layouts",
    [IR_GROUP_PLUGIN] = "Plugins",
};

static const struct {
    enum ir_trait trait;
    const char *text;
} traits[] = {
    {IR_TRAIT_EPILOGUE, "may have an epilogue"},
    {IR_TRAIT_BYTES, "takes 8-bit operands too (INT32 sums and bias, no epilogue)"},
    {IR_TRAIT_HEAVY, "slow in the reference"},
    {IR_TRAIT_MIXES, "mixes instances"},
    {IR_TRAIT_MOVES, "only moves elements"},
    {IR_TRAIT_RENAMES, "may only rename bytes"},
    {IR_TRAIT_JOINS, "may find its inputs in place"},
    {IR_TRAIT_CUTS, "may be read in place"},
};

static const char *const works[] = {
    [IR_WORK_SIZES] = NULL,
    [IR_WORK_PRODUCT] = "folded if its product is small enough",
    [IR_WORK_PAIRS] = "folded if there are few enough pairs of boxes and scores",
    [IR_WORK_CUBES] = "folded if the cube of n is small enough",
    [IR_WORK_TAPS] = "folded if it reads few enough elements",
    [IR_WORK_ENDLESS] = "never folded",
};

/* --- cells --- */

static void put_bound(int64_t value)
{
    int64_t size = value < 0 ? -value : value;
    int bits = size > 1 << 16 && !(size & (size - 1)) ? __builtin_ctzll((uint64_t)size) : 0;
    if (bits)
        printf("%s2^%d", value < 0 ? "-" : "", bits);
    else
        printf("%" PRId64, value);
}

static void put_range(const struct ir_op_attr *attr)
{
    if (attr->flags & IR_OP_ATTR_DIM)
        printf("a dimension of X");
    else if (!ir_attr_row(attr->key)->is_float && attr->lo != INT64_MIN) {
        put_bound(attr->lo);
        printf(" to ");
        put_bound(attr->hi);
    }
}

static void put_fallback(const struct ir_op_attr *attr)
{
    if (attr->flags & IR_OP_ATTR_NEEDED)
        printf("needed");
    else if (attr->flags & IR_OP_ATTR_OPEN)
        printf("see text");
    else
        printf("%.7g", attr->fallback);
}

static const char *class_text(const struct ir_operand *operand)
{
    return operand->class == IR_CLASS_LIKE ? "the type of the first"
                                           : ir_class_name(operand->class);
}

/* --- the page --- */

static void put_operands(const struct ir_op_row *row)
{
    for (const struct ir_operand *o = row->operands; o->name; o++)
        printf("- `%s`%s: %s%s%s\n", o->name, o->flags & IR_OPERAND_MANY ? ", one or more" : "",
               class_text(o), o->flags & IR_OPERAND_OPTIONAL ? "; may be absent" : "",
               o->flags & IR_OPERAND_FAILS ? "; a value out of range is an error when it runs"
                                           : "");
}

static void put_attrs(const struct ir_op_row *row)
{
    if (row->attrs[0].key)
        printf("\n| attribute | kind | each value | if absent |\n|---|---|---|---|\n");
    for (const struct ir_op_attr *a = row->attrs; a->key; a++) {
        const struct ir_attr_row *key = ir_attr_row(a->key);
        printf("| `%s` | %s%s | ", key->name, key->is_float ? "float" : "integer",
               key->is_list ? "s" : "");
        put_range(a);
        printf(" | ");
        put_fallback(a);
        printf(" |\n");
    }
}

static void put_traits(const struct ir_op_row *row)
{
    const char *before = "\n*";
    for (size_t i = 0; i < ARRAY_LEN(traits); i++)
        if (row->traits & (uint32_t)traits[i].trait) {
            printf("%s%s", before, traits[i].text);
            before = "; ";
        }
    if (works[row->work]) {
        printf("%s%s", before, works[row->work]);
        before = "; ";
    }
    if (strcmp(before, "\n*") != 0)
        printf(".*\n");
}

static void put_op(enum ir_op op)
{
    const struct ir_op_row *row = ir_op_row(op);
    printf("\n### %s (%d)\n\n%s\n\n", row->name, (int)op, row->text);
    put_operands(row);
    put_attrs(row);
    if (row->max_out > 1)
        printf("\nOutputs: %u%s.\n", row->min_out,
               row->min_out == row->max_out ? ""
               : row->max_out == 2          ? " or 2"
                                            : " to 3");
    put_traits(row);
}

static void put_constant(const char *name, float value, bool has)
{
    if (has)
        printf("%s = %.9g ", name, (double)value);
}

static void put_function(const struct ir_func_row *row, int number)
{
    printf("| %d | `%s` | %s%s | `%s` | ", number, row->name, ir_class_name(row->class),
           row->flags & IR_FUNC_TO_BOOL ? ", gives BOOL" : "", row->formula);
    put_constant("a", row->alpha, row->flags & IR_FUNC_ALPHA);
    put_constant("b", row->beta, row->flags & IR_FUNC_BETA);
    put_constant("g", row->gamma, row->flags & IR_FUNC_GAMMA);
    printf("|\n");
}

int main(void)
{
    fputs(introduction, stdout);
    for (int group = 1; group < IR_GROUP_COUNT_; group++) {
        printf("\n## %s\n", groups[group]);
        for (enum ir_op op = 1; op < IR_OP_COUNT_; op++)
            if (ir_op_row(op)->group == (enum ir_group)group)
                put_op(op);
    }
    printf("\n## Functions of one argument\n\na, b, g: `alpha`, `beta`, `gamma`.\n\n"
           "| number | name | takes | value | if absent |\n|---|---|---|---|---|\n");
    for (int i = 0; i < IR_UNARY_COUNT_; i++)
        put_function(ir_unary_row((enum ir_unary)i), i);
    printf("\n## Functions of two arguments\n\n"
           "| number | name | takes | value | |\n|---|---|---|---|---|\n");
    for (int i = 0; i < IR_BINARY_COUNT_; i++)
        put_function(ir_binary_row((enum ir_binary)i), i);
    return ferror(stdout) || fflush(stdout);
}
