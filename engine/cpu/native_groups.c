/* SPDX-License-Identifier: Apache-2.0 */
/*
 * INSTANCE_NORM and group normalisation, in plain, channels-last and blocked layouts. A slab is
 * what stays together of some channels: one channel in the plain layout, all of them in channels
 * last, one block in a blocked layout. If a group has slabs of its own, a unit of work is a group,
 * which is then read again while it is in the cache. Otherwise a unit is a part of a slab: the
 * statistics of all parts come first, then what follows from them, then the output.
 */
#include <math.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum { PART_FLOATS = 1 << 14, STAT_DOUBLES = 2 };

/* The workspace: mean and squared deviations of each part, by [image][slab][part][2][lane]; then
 * mean, factor and shift of each channel, by [image][3][channel]. */
static double *part_stats(const struct native_op *op, int64_t part)
{
    return (double *)op->workspace + part * STAT_DOUBLES * op->groups.lanes;
}

static float *channel_numbers(const struct native_op *op, int64_t image)
{
    const struct native_groups *g = &op->groups;
    void *all = part_stats(op, g->images * g->slabs * g->parts);
    return (float *)all + image * 3 * g->channels;
}

static int64_t part_rows(const struct native_groups *g, int64_t part)
{
    return MIN(g->part, g->places - part % g->parts * g->part);
}

/* Where a part begins, in elements. */
static int64_t part_begin(const struct native_groups *g, int64_t part)
{
    return (part / g->parts * g->places + part % g->parts * g->part) * g->lanes;
}

static void measure(const struct native_op *op, int64_t part)
{
    const struct native_groups *g = &op->groups;
    double *stats = part_stats(op, part);
    op->fast->sweep->moments((const float *)op->inputs[0] + part_begin(g, part), part_rows(g, part),
                             (size_t)g->lanes, stats, stats + g->lanes);
}

static void write_part(const struct native_op *op, int64_t part)
{
    const struct native_groups *g = &op->groups;
    int64_t slab = part / g->parts, at = part_begin(g, part), rows = part_rows(g, part);
    const float *numbers = channel_numbers(op, slab / g->slabs) + slab % g->slabs * g->lanes;
    op->fast->sweep->affine((const float *)op->inputs[0] + at, (float *)op->output + at, rows,
                            (size_t)g->lanes, numbers, numbers + g->channels,
                            numbers + 2 * g->channels);
    native_after(op, at, rows * g->lanes);
}

/* The statistics of part p of channel c. */
static const double *stats_of(const struct native_op *op, int64_t image, int64_t c, int64_t p)
{
    const struct native_groups *g = &op->groups;
    return part_stats(op, (image * g->slabs + c / g->lanes) * g->parts + p) + c % g->lanes;
}

/* Joins the parts of a group's channels, and makes the numbers of these channels. */
static void join(const struct native_op *op, int64_t group)
{
    const struct native_groups *g = &op->groups;
    int64_t groups = g->channels / g->in_group, image = group / groups;
    int64_t first = group % groups * g->in_group, end = first + g->in_group;
    double n = (double)g->in_group * (double)g->places, mean = 0, squares = 0;
    for (int64_t c = first; c < end; c++)
        for (int64_t p = 0; p < g->parts; p++)
            mean += *stats_of(op, image, c, p) * (double)part_rows(g, p) / n;
    for (int64_t c = first; c < end; c++)
        for (int64_t p = 0; p < g->parts; p++) {
            const double *stats = stats_of(op, image, c, p);
            double apart = *stats - mean;
            squares += stats[g->lanes] + apart * apart * (double)part_rows(g, p);
        }
    float *numbers = channel_numbers(op, image);
    const float *scale = op->inputs[1], *bias = op->inputs[2];
    double inverse = 1 / sqrt(squares / n + (double)g->epsilon);
    for (int64_t c = first; c < end; c++) {
        numbers[c] = (float)mean;
        numbers[g->channels + c] = (float)(inverse * (double)scale[c]);
        numbers[2 * g->channels + c] = bias[c];
    }
}

static void run_groups(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_groups *g = &op->groups;
    int64_t parts = g->in_group / g->lanes * g->parts;
    for (int64_t group = first; group < end; group++) {
        for (int64_t p = group * parts; p < (group + 1) * parts; p++)
            measure(op, p);
        join(op, group);
        for (int64_t p = group * parts; p < (group + 1) * parts; p++)
            write_part(op, p);
    }
}

static void run_measure(void *user, int64_t first, int64_t end)
{
    for (int64_t part = first; part < end; part++)
        measure(user, part);
}

static void run_join(const struct native_op *op)
{
    const struct native_groups *g = &op->groups;
    for (int64_t group = 0; group < g->images * (g->channels / g->in_group); group++)
        join(op, group);
}

static void run_write(void *user, int64_t first, int64_t end)
{
    for (int64_t part = first; part < end; part++)
        write_part(user, part);
}

/* Whether the statistics of one unit of work are all that its output needs. */
static bool stays_together(const struct native_groups *g)
{
    return g->in_group % g->lanes == 0 &&
           (g->images * (g->channels / g->in_group) > 1 || g->slabs * g->parts == 1);
}

static void set_work(struct native_op *op)
{
    const struct native_groups *g = &op->groups;
    if (stays_together(g)) {
        op->units = g->images * (g->channels / g->in_group);
        op->work = run_groups;
    } else {
        op->units = g->images * g->slabs * g->parts;
        op->work = run_measure;
        op->middle = run_join;
        op->rest = run_write;
    }
}

bool native_groups_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    struct native_groups *g = &op->groups;
    struct native_stored stored;
    if (!native_all_f32(graph, node, 0) || !native_after_make(op, graph, node) ||
        !native_stored_make(x, op->layout, &stored))
        return false;
    int64_t groups = ir_attr_int(node, IR_ATTR_GROUP), whole = PART_FLOATS;
    bool plain = op->layout == IR_LAYOUT_PLAIN;
    *g = (struct native_groups){.images = x->dim[0],
                                .channels = x->dim[1],
                                .places = ref_extent(x, 2, x->rank),
                                .epsilon = ir_attr_float(node, IR_ATTR_EPSILON)};
    g->lanes = plain ? 1 : stored.dims.dim[stored.dims.rank - 1];
    g->slabs = g->channels / g->lanes;
    g->in_group = groups ? g->channels / groups : 1;
    g->part = MAX(whole / g->lanes, 1);
    g->parts = (g->places + g->part - 1) / g->part;
    uint64_t doubles = (uint64_t)(g->images * g->parts * g->channels) * STAT_DOUBLES;
    op->workspace_bytes =
        doubles * sizeof(double) + (uint64_t)(g->images * 3 * g->channels) * sizeof(float);
    set_work(op);
    return true;
}
