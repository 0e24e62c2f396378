/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A format says how a tensor is stored. The same struct describes a tensor of a graph, a port of a
 * tactic, both ends of a reformat, and a tensor in a plan file.
 */
#ifndef INFERD_ENGINE_IR_FORMAT_H
#define INFERD_ENGINE_IR_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/op_enums.h"

enum { IR_NO_SCALE = 0 };

struct ir_format {
    enum ir_layout layout;
    enum dtype dtype;
    uint32_t scale; /* number of the row in the graph's table of scales, or IR_NO_SCALE */
};

/*
 * A stored number q, an integer or a float of 8 bits, stands for step * (q - zero). There is one
 * pair of step and zero for the whole tensor, or one for each index of dimension `axis`. The
 * padding of a layout is stored as 0.
 */
struct ir_scale {
    uint32_t n; /* 1, or the tensor's dim[axis] */
    uint32_t axis;
    enum dtype dtype;           /* the stored type, INT8, UINT8 or FP8; NONE: either of the first */
    const float *step;          /* n of them, finite and above 0 */
    const int32_t *zero;        /* n of them, within the stored type; NULL: all are 0, as FP8's */
    int32_t zero_min, zero_max; /* over all zeros; set by ir_scale_add */
};

/* Says whether both stand for the same numbers, byte for byte. NULL is equal to NULL alone. */
bool ir_scale_equal(const struct ir_scale *a, const struct ir_scale *b);

static inline bool ir_format_equal(struct ir_format a, struct ir_format b)
{
    return a.layout == b.layout && a.dtype == b.dtype && a.scale == b.scale;
}

enum { IR_FORMAT_TEXT_MAX = 96 };
struct ir_graph;
/* Writes "FP16 nhwc", "INT8 nhwc step 0.02 zero 3" or "INT8 opaque step 0.02.. of 64" into `text`,
 * and returns it. */
const char *ir_format_text(const struct ir_graph *graph, struct ir_format format,
                           char text[IR_FORMAT_TEXT_MAX]);

#endif
