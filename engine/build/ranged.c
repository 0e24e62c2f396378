/* SPDX-License-Identifier: Apache-2.0 */
/* See ranged.h. */
#include "engine/build/ranged.h"

#include <stdlib.h>

#include "engine/build/fuse.h"
#include "engine/quant/emulate.h"

bool build_emulates(const struct build_options *o)
{
    return o->precision == PRECISION_F8 && o->device &&
           !(o->device->backend->features & BACKEND_F8);
}

enum status build_find_known(const struct ir_graph *imported, const struct build_options *o,
                             bool **known, struct error *err)
{
    *known = NULL;
    if (!precision_is_8bit(o->precision))
        return STATUS_OK;
    *known = calloc((o->ranges ? quant_table_size(o->ranges) : 0) + 1, sizeof(**known));
    if (!*known)
        return error_no_memory(err, "the builder");
    if (o->ranges)
        quant_note_known(imported, o->ranges, *known);
    return STATUS_OK;
}

enum status build_fuse_named(struct ir_graph *graph, const struct build_options *o,
                             struct build_report *report, struct error *err)
{
    TRY(build_fuse(graph, o, report, err));
    if (precision_is_8bit(o->precision) && !quant_name_tensors(graph))
        return error_no_memory(err, "the builder");
    return STATUS_OK;
}

enum status build_range(struct ir_graph *graph, const struct build_options *o, const bool *known,
                        struct build_report *report, struct error *err)
{
    if (!known)
        return STATUS_OK;
    bool sign = o->device && o->device->backend->features & BACKEND_SIGNED;
    enum dtype bytes = o->precision == PRECISION_F8 ? DTYPE_F8 : sign ? DTYPE_I8 : DTYPE_NONE;
    TRY(quant_apply(graph, o->ranges, known, o->keep_missing, bytes, &report->ranges, err));
    return build_emulates(o) ? quant_emulate(graph, err) : STATUS_OK;
}
