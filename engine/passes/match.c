/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/passes/match.h"

#include <math.h>
#include <stdio.h>

bool match_part(struct match *m, uint32_t node)
{
    if (node == IR_NONE)
        return false;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->parts[i] == node)
            return true;
    if (m->n < ARRAY_LEN(m->parts))
        m->parts[m->n++] = node;
    return true;
}

/* Models of 16-bit floats have constants that were rounded to FP16 or BF16 and then widened. */
static bool is_rounded(float value, float wanted)
{
    return value == f16_to_f32(f32_to_f16(wanted)) || value == bf16_to_f32(f32_to_bf16(wanted));
}

bool match_near(float value, double wanted)
{
    return fabs((double)value - wanted) <= 1e-4 * fabs(wanted) ||
           is_rounded(value, (float)wanted) || is_rounded(1 / value, (float)(1 / wanted));
}

float match_scaled(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *x)
{
    float scale, shift;
    uint32_t linear = rw_made_by_unary(rw, tensor, IR_UNARY_LINEAR);
    if (!rw_linear(rw, linear, &scale, &shift) || shift != 0) {
        *x = tensor;
        return 1;
    }
    match_part(m, linear);
    *x = rw_input(rw, linear, 0);
    return scale;
}

void match_done(struct rewrite *rw, const struct match *m, uint32_t node, const char *what)
{
    char names[256];
    size_t len = 0;
    uint32_t last = IR_NONE;
    names[0] = '\0';
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t next = IR_NONE; /* the smallest one above `last` */
        for (uint32_t j = 0; j < m->n; j++)
            if ((last == IR_NONE || m->parts[j] > last) && m->parts[j] < next)
                next = m->parts[j];
        if (next == IR_NONE || len >= sizeof(names))
            break;
        len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i ? " + " : "",
                                ir_node(rw->graph, next)->name);
        last = next;
    }
    rw_set_name(rw, node, names, "");
    rw_done(rw, "%s is %s", ir_node(rw->graph, node)->name, what);
}
