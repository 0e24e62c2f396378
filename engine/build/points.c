/* SPDX-License-Identifier: Apache-2.0 */
/* See points.h. The model is imported at each point, and at some others. */
#include "engine/build/points.h"

#include <stdio.h>
#include <string.h>

#include "engine/build/instances.h"

enum { POINT_TEXT = 200 };

/* "a=2, b=4" */
static void point_text(const struct build_space *space, const int64_t *values, char out[POINT_TEXT])
{
    int n = 0;
    for (uint32_t i = 0; i < space->n_free && n < POINT_TEXT; i++)
        n += snprintf(out + n, (size_t)(POINT_TEXT - n), "%s%.40s=%lld", i ? ", " : "",
                      space->free[i].name, (long long)values[i]);
}

struct finding {
    struct onnx_model *model;
    struct build_options quiet;
    const struct log_sink *log;
    uint32_t batch;
    struct build_space *space;
};

/* INVALID_ARGUMENT: the model cannot have these sizes. */
static enum status try(struct finding *f, const int64_t *values, bool *fits, struct error *why)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    CLEANUP(build_tail_cleanup) struct onnx_tail tail = {.n_nodes = 0};
    build_space_set(f->space, values);
    enum status status = build_import(f->model, &f->quiet, f->batch, NULL, &tail, &graph, why);
    *fits = !status;
    return status == STATUS_INVALID_ARGUMENT ? STATUS_OK : status;
}

/* --- dimensions that are one --- */

/* Whether the two have the same sizes, the others being at their largest, or none. Where the range
 * has 1, that may broadcast to the other's size: then they are two. */
static enum status try_pair(struct finding *f, uint32_t one, uint32_t other, bool *tied,
                            struct error *err)
{
    const struct build_space *space = f->space;
    const struct plan_free *free = &space->free[one];
    const int64_t sizes[] = {free->low, free->high};
    int64_t values[PLAN_MAX_FREE];
    struct error why;
    *tied = sizes[0] < sizes[1] && free->low == space->free[other].low &&
            free->high == space->free[other].high;
    memcpy(values, space->points[space->n_points - 1], sizeof(values));
    for (uint32_t k = 0; k < 4 && *tied; k++) {
        bool fits;
        values[one] = sizes[k / 2];
        values[other] = sizes[k % 2];
        enum status status = try(f, values, &fits, &why);
        if (status)
            return error_copy(err, &why);
        *tied = fits == (k / 2 == k % 2);
    }
    return STATUS_OK;
}

static enum status tie_all(struct finding *f, struct error *err)
{
    struct build_space *space = f->space;
    for (uint32_t one = 0; one < space->n_free; one++)
        for (uint32_t other = one + 1; other < space->n_free;) {
            bool tied;
            TRY(try_pair(f, one, other, &tied, err));
            if (!tied) {
                other++;
                continue;
            }
            log_write(f->log, LOG_INFO, "'%s' is '%s': the model cannot have two sizes of them",
                      space->free[other].name, space->free[one].name);
            build_space_tie(space, one, other);
        }
    return STATUS_OK;
}

/* --- points --- */

static enum status keep(struct finding *f, struct error *err)
{
    struct build_space *space = f->space;
    uint32_t kept = 0, all = space->n_points;
    char text[POINT_TEXT] = "";
    struct error why;
    for (uint32_t p = 0; p < all; p++) {
        bool fits;
        enum status status = try(f, space->points[p], &fits, &why);
        if (status)
            return error_copy(err, &why);
        if (fits)
            memmove(space->points[kept++], space->points[p], sizeof(space->points[0]));
        else
            point_text(space, space->points[p], text);
    }
    if (!kept)
        return error_copy(err, &why);
    space->n_points = kept;
    if (kept < all)
        log_write(f->log, LOG_WARNING,
                  "left out: %u of %u points, which the model cannot have, such as %s", all - kept,
                  all, text);
    return STATUS_OK;
}

enum status build_points_keep(struct onnx_model *model, const struct build_options *options,
                              uint32_t batch, struct build_space *space, struct error *err)
{
    struct finding f = {model, *options, options->log, batch, space};
    f.quiet.log = NULL;
    if (space->n_free < 2)
        return STATUS_OK;
    TRY(tie_all(&f, err));
    TRY(keep(&f, err));
    build_space_set(space, space->points[space->n_points - 1]);
    return STATUS_OK;
}
