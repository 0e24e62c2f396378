/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats: how one tensor may be stored. A tactic's type stands in the place of F32 and of nothing
 * else: integers, and floats of other types that the model has, stay what they are.
 */
#include "base/compiler.h"
#include "engine/tune/internal.h"
#include "engine/tune/solve.h"

static const enum dtype types[] = {DTYPE_NONE, DTYPE_F16, DTYPE_BF16};

_Static_assert(SOLVE_FORMATS == IR_LAYOUT_COUNT_ * ARRAY_LEN(types), "a number for each format");

bool tune_dtype_ok(enum dtype dtype)
{
    return dtype == DTYPE_NONE || dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

enum dtype tune_stored(enum dtype graph, enum dtype tactic)
{
    return graph == DTYPE_F32 && tactic != DTYPE_NONE ? tactic : graph;
}

enum ir_layout tune_layout_least(const struct shape *shape, enum ir_layout layout)
{
    for (int i = 0; i < (int)layout; i++)
        if (ir_layouts_agree(shape, (enum ir_layout)i, layout))
            return (enum ir_layout)i;
    return layout;
}

uint8_t tune_format_number(const struct ir_tensor *tensor, enum ir_layout layout, enum dtype tactic)
{
    enum dtype stored = tune_stored(tensor->dtype, tactic);
    uint32_t type = 0, least = (uint32_t)tune_layout_least(&tensor->shape, layout);
    for (uint32_t i = 1; i < ARRAY_LEN(types); i++)
        if (stored != tensor->dtype && stored == types[i])
            type = i;
    return (uint8_t)(type * IR_LAYOUT_COUNT_ + least);
}

struct tune_format tune_format_of(uint8_t number)
{
    return (struct tune_format){(enum ir_layout)(number % IR_LAYOUT_COUNT_),
                                types[number / IR_LAYOUT_COUNT_]};
}
