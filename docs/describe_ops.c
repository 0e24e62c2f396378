/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes docs/operators.md: the importer's table of ops, and which backend has kernels for what
 * each op becomes. Everything but the introduction comes from tables that the programs themselves
 * use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native.h"
#include "engine/cpu/onednn.h"
#include "engine/cuda/takes.h"
#include "engine/import/map.h"

enum { TEXT_MAX = 512, OPS_MAX = 1024, OLDEST_OPSET = 7 };

static const char introduction[] =
    "# Operators\n"
    "\n"
    "`docs/describe_ops.c` makes this page from the importer's table (`engine/import/ops.c`) and\n"
    "the tables of the backends; `ninja -C build operators` writes it again.\n"
    "\n"
    "- **Opsets**: the opsets for which the op is known, as it was in each of them. Files older\n"
    "  than opset 7 are not promised to work. Operators of the domain `com.microsoft` are those\n"
    "  that onnxruntime's optimisers write, in opset 1 of that domain.\n"
    "- **Types**: the element types of its data. *floats* are FP16, BF16, FP32 and FP64;\n"
    "  *integers* are INT8 to INT64 and UINT8 to UINT64; *all* are these and BOOL. Operands\n"
    "  beside the data (indices, axes, scales) have the types that ONNX gives them. Any other\n"
    "  type is refused.\n"
    "- **CPU**: the kernels that may run it beside the reference kernels, which run every op in\n"
    "  every type. The tuner takes the fastest. oneDNN takes FP32, and 8-bit integers for\n"
    "  products and convolutions where the processor computes them exactly (VNNI); these read\n"
    "  BF16 where `--precision bf16` allows it and the processor has instructions for it. Native\n"
    "  kernels take FP32. Both have only those unary and binary functions in which networks\n"
    "  spend time.\n"
    "- **CUDA**: the families of kernels that may run it; the last table says what each family\n"
    "  takes. A node that no family takes, because of its op, type or form, runs in a *CPU\n"
    "  segment*.\n"
    "- An op that the importer makes of other ops is listed with these parts. *known at build\n"
    "  time*: nothing of the op is left in the plan. Any op may run *late*, on the CPU, where its\n"
    "  shapes depend on what only a request tells (docs/onnx.md); those marked so always do then.\n"
    "- **Refused**: limits of an op beyond its types. A node is also refused if it has too few or\n"
    "  too many operands, or an attribute that its op does not have. The error names op, node,\n"
    "  opset and reason.\n"
    "\n";

static void add(char *text, const char *separator, const char *what)
{
    size_t at = strlen(text);
    int length = snprintf(text + at, TEXT_MAX - at, "%s%s", at ? separator : "", what);
    if (length < 0 || (size_t)length >= TEXT_MAX - at) {
        fprintf(stderr, "describe_ops: a cell of over %d characters: %s\n", TEXT_MAX, text);
        exit(1);
    }
}

/* --- element types --- */

#define BIT(type) (1u << DTYPE_##type)
#define UNSIGNED  (BIT(U8) | BIT(U16) | BIT(U32) | BIT(U64))
#define SIGNED    (BIT(I8) | BIT(I16) | BIT(I32) | BIT(I64))
#define FLOATS    (BIT(F16) | BIT(BF16) | BIT(F32) | BIT(F64))

static const struct {
    uint32_t types;
    const char *name;
} groups[] = {
    {BIT(BOOL) | UNSIGNED | SIGNED | FLOATS, "all"},
    {UNSIGNED | SIGNED, "integers"},
    {SIGNED, "signed integers"},
    {UNSIGNED, "unsigned integers"},
    {FLOATS, "floats"},
};

static void types_text(uint32_t types, char *text)
{
    text[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        if ((types & groups[i].types) == groups[i].types) {
            add(text, ", ", groups[i].name);
            types &= ~groups[i].types;
        }
    }
    for (enum dtype t = DTYPE_BOOL; t < DTYPE_COUNT_; t++) {
        if (types & 1u << t)
            add(text, ", ", dtype_name(t));
    }
}

/* --- backends --- */

/* Native kernels of products take 8-bit integers only. */
static void cpu_text(enum ir_op op, uint32_t types, char *text)
{
    bool product = ir_op_has(op, IR_TRAIT_BYTES);
    text[0] = 0;
    if (onednn_takes(op))
        add(text, ", ", "oneDNN");
    if (native_takes(op) && !(product && types & FLOATS))
        add(text, ", ", "native");
    if (!text[0])
        add(text, ", ", "reference");
}

/* Of the families for products and convolutions one takes integers, and it takes no floats. */
static void cuda_text(enum ir_op op, uint32_t types, char *text)
{
    bool product = ir_op_has(op, IR_TRAIT_BYTES);
    text[0] = 0;
    for (uint32_t i = 1; i < CUDA_FAMILY_COUNT_; i++) {
        bool fits = !product || !(types & FLOATS) == (i == CUDA_FAMILY_OWN_PRODUCT);
        if (fits && cuda_family_takes(i, op) && !strstr(text, cuda_takings[i].library))
            add(text, ", ", cuda_takings[i].library);
    }
    if (!text[0])
        add(text, ", ", "CPU segment");
}

/* Writes "oneDNN", or "cast: native; matmul: oneDNN" if the parts differ. What is dequantised
 * before has floats for operands. */
static void parts_text(const struct map_op *row,
                       void (*one)(enum ir_op op, uint32_t types, char *text), char *text)
{
    char first[TEXT_MAX] = "", next[TEXT_MAX], whole[2 * TEXT_MAX];
    uint32_t types = row->parts >> IR_OP_DEQUANTIZE & 1 ? FLOATS : row->types;
    bool same = true;
    text[0] = 0;
    for (enum ir_op op = 1; op < IR_OP_COUNT_; op++) {
        if (!(row->parts >> op & 1))
            continue;
        one(op, types, next);
        if (!first[0])
            memcpy(first, next, sizeof(first));
        same &= !strcmp(first, next);
        snprintf(whole, sizeof(whole), "%s: %s", ir_op_name(op), next);
        add(text, "; ", whole);
    }
    if (same)
        memcpy(text, first, sizeof(first));
    if (!row->parts)
        add(text, "", "known at build time, or late");
}

/* --- the page --- */

static int by_name(const void *a, const void *b)
{
    const struct map_op *x = *(const struct map_op *const *)a;
    const struct map_op *y = *(const struct map_op *const *)b;
    int order = strcmp(x->op, y->op), domain = strcmp(x->domain, y->domain);
    order = order ? order : domain;
    return order ? order : (x->first > y->first) - (x->first < y->first);
}

static void print_row(const struct map_op *row)
{
    char types[TEXT_MAX], cpu[TEXT_MAX], cuda[TEXT_MAX];
    types_text(row->types, types);
    parts_text(row, cpu_text, cpu);
    bool single = row->parts && !(row->parts & (row->parts - 1));
    if (single && !(row->types & BIT(F32)))
        snprintf(cpu, sizeof(cpu), "%s", row->types == BIT(BOOL) ? "native" : "reference");
    parts_text(row, cuda_text, cuda);
    bool own = !row->domain[0]; /* ONNX's */
    printf("| %s%s%s | %d to %d | %s | %s | %s | %s |\n", row->domain, own ? "" : " ", row->op,
           own ? MAX(row->first, OLDEST_OPSET) : row->first, row->last, types, cpu,
           row->parts ? cuda : "", row->refuses ? row->refuses : "");
}

static void print_families(void)
{
    printf("\n## Families of a CUDA device\n\n"
           "Floats are FP32, FP16 and BF16 here. No kernel takes a tensor of 2^31 elements or "
           "more.\n\n"
           "| family | ops | takes |\n|---|---|---|\n");
    for (uint32_t i = 1; i < CUDA_FAMILY_COUNT_; i++) {
        char ops[TEXT_MAX] = "";
        for (enum ir_op op = 1; op < IR_OP_COUNT_; op++) {
            if (cuda_family_takes(i, op))
                add(ops, ", ", ir_op_name(op));
        }
        printf("| %s | %s | %s |\n", cuda_takings[i].library, ops, cuda_takings[i].what);
    }
}

int main(void)
{
    const struct map_op *rows[OPS_MAX];
    uint32_t n = 0, distinct = 0;
    for (const struct map_op *row; n < OPS_MAX && (row = map_op_at(n)); n++)
        rows[n] = row;
    qsort(rows, n, sizeof(struct map_op *), by_name);
    for (uint32_t i = 0; i < n; i++)
        distinct += !i || strcmp(rows[i]->op, rows[i - 1]->op) != 0 ||
                    strcmp(rows[i]->domain, rows[i - 1]->domain) != 0;
    fputs(introduction, stdout);
    printf("%u operators:\n\n| operator | opsets | types | CPU | CUDA | refused |\n"
           "|---|---|---|---|---|---|\n",
           distinct);
    for (uint32_t i = 0; i < n; i++)
        print_row(rows[i]);
    print_families();
    return ferror(stdout) || fflush(stdout);
}
