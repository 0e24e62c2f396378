/* SPDX-License-Identifier: Apache-2.0 */
/* See ties.h. */
#include "engine/build/ties.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "engine/build/instances.h"

enum {
    CANDIDATES_MAX = 64,
    GROUPS_MAX = 4, /* each set of them is tried */
};

/* Which dimension of what shape a candidate is: those that are alike are tried together. */
struct likeness {
    uint32_t rank, axis;
    int64_t sizes[SHAPE_MAX_RANK]; /* -1: open */
};

struct finding {
    struct onnx_model *model;
    struct build_options
        quiet;  /* with the dimensions of the space and the candidates behind them */
    bool alone; /* nothing but the candidates may count instances */
    struct onnx_dim *dims;
    uint32_t first, n; /* where the candidates are among these */
    uint32_t n_groups;
    struct likeness groups[GROUPS_MAX];
    uint8_t group[CANDIDATES_MAX];
    struct arena *arena;
};

static bool is_given(const struct build_options *options, const char *name, const char *axis)
{
    for (uint32_t i = 0; i < options->n_dims; i++)
        if (!strcmp(options->dims[i].name, axis) || (name && !strcmp(options->dims[i].name, name)))
            return true;
    return false;
}

/* Whether the dimension is known to count instances. */
static bool counts(const struct finding *f, const struct onnx_axis_info *info)
{
    return f->quiet.said ? info->named : info->batch;
}

static bool is_like(const struct likeness *a, const struct likeness *b)
{
    return a->rank == b->rank && a->axis == b->axis &&
           memcmp(a->sizes, b->sizes, a->rank * sizeof(a->sizes[0])) == 0;
}

/* The group of a dimension of the input numbered `index`; GROUPS_MAX: there are too many. */
static uint32_t group_of(struct finding *f, uint32_t index, uint32_t rank, uint32_t axis)
{
    struct likeness like = {.rank = rank, .axis = axis};
    uint32_t g = 0;
    for (uint32_t d = 0; d < rank; d++)
        like.sizes[d] = onnx_input_axis(f->model, index, d).fixed;
    while (g < f->n_groups && !is_like(&f->groups[g], &like))
        g++;
    if (g == f->n_groups && g < GROUPS_MAX)
        f->groups[f->n_groups++] = like;
    return g;
}

/* Adds an open dimension, or all of its name. False: there are too many, or there is no memory. */
static bool candidate_add(struct finding *f, uint32_t index, uint32_t rank, uint32_t axis)
{
    const char *input = onnx_input(f->model, index, &rank);
    const struct onnx_axis_info info = onnx_input_axis(f->model, index, axis);
    char *text = arena_printf(f->arena, "%.*s:%u", INT_MAX, input, axis);
    if (!text)
        return false;
    if (info.fixed >= 0 || counts(f, &info) || is_given(&f->quiet, info.name, text))
        return true;
    uint32_t group = group_of(f, index, rank, axis);
    if (f->n == CANDIDATES_MAX || group == GROUPS_MAX)
        return false;
    const char *name = build_names_much(info.name) ? info.name : text;
    f->group[f->n] = (uint8_t)group;
    f->dims[f->first + f->n++] = (struct onnx_dim){name, ONNX_INSTANCES};
    f->quiet.n_dims = f->first + f->n;
    return true;
}

static bool candidates_list(struct finding *f)
{
    for (uint32_t i = 0; i < onnx_n_inputs(f->model); i++) {
        uint32_t rank;
        const char *input = onnx_input(f->model, i, &rank);
        for (uint32_t d = 0; rank <= SHAPE_MAX_RANK && d < rank; d++)
            if (!build_is_valued(&f->quiet, input) && !candidate_add(f, i, rank, d))
                return false;
    }
    for (uint32_t i = 0; f->n <= GROUPS_MAX && i < f->n; i++)
        f->group[i] = (uint8_t)i; /* there are few: each for itself */
    f->n_groups = f->n <= GROUPS_MAX ? f->n : f->n_groups;
    return f->n > 0;
}

/* *fits: whether the model can be imported. */
static enum status try(struct finding *f, uint32_t batch, bool *fits, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    CLEANUP(build_tail_cleanup) struct onnx_tail tail = {.n_nodes = 0};
    enum status status = build_import(f->model, &f->quiet, batch, NULL, &tail, &graph, err);
    *fits = !status;
    return status == STATUS_RESOURCE_EXHAUSTED ? status : STATUS_OK;
}

/* Whether all candidates may count instances, and no set of groups may have another size: two may
 * be tied to each other alone. If there is nothing else that counts instances, all of them together
 * may, since that is what they do. */
static enum status prove(struct finding *f, bool *proven, struct error *err)
{
    static const struct {
        uint32_t batch;
        int64_t size;
    } others[] = {{2, 3}, {3, 5}};
    struct onnx_dim *candidates = f->dims + f->first;
    *proven = true;
    for (uint32_t batch = 1; batch <= 3 && *proven; batch++)
        TRY(try(f, batch, proven, err));
    uint32_t sets = (1U << f->n_groups) - (f->alone ? 1 : 0);
    for (uint32_t set = 1; set < sets && *proven; set++)
        for (size_t k = 0; k < ARRAY_LEN(others) && *proven; k++) {
            bool fits = true;
            for (uint32_t i = 0; i < f->n; i++)
                candidates[i].value = set >> f->group[i] & 1 ? others[k].size : ONNX_INSTANCES;
            TRY(try(f, others[k].batch, &fits, err));
            *proven = !fits;
        }
    for (uint32_t i = 0; i < f->n; i++)
        candidates[i].value = ONNX_INSTANCES;
    return STATUS_OK;
}

/* Where nothing else counts instances, or candidates were tried together: whether the candidates
 * keep instances apart. */
static enum status prove_batched(struct finding *f, bool *proven, struct error *err)
{
    struct build_instances found;
    struct error why;
    enum status status = build_instances_find(f->model, &f->quiet, &found, &why);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        return error_copy(err, &why);
    *proven = !status && found.batched;
    return STATUS_OK;
}

enum status build_ties_find(struct onnx_model *model, struct build_options *options,
                            struct arena *arena, struct build_space *space, struct error *err)
{
    struct finding f = {.model = model, .quiet = *options, .first = space->n_dims, .arena = arena};
    bool proven = false;
    bool named;
    f.alone = !build_looks_batched(model, options, &named);
    f.dims = arena_array(arena, space->n_dims + CANDIDATES_MAX, sizeof(*f.dims));
    uint8_t *free_of = arena_array(arena, space->n_dims + CANDIDATES_MAX, 1);
    if (!f.dims || !free_of)
        return error_no_memory(err, "the builder");
    memcpy(f.dims, space->dims, space->n_dims * sizeof(*f.dims));
    memcpy(free_of, space->free_of, space->n_dims);
    f.quiet.log = NULL;
    f.quiet.dims = f.dims;
    if (!candidates_list(&f))
        return STATUS_OK;
    TRY(prove(&f, &proven, err));
    f.quiet.guessed = f.alone || f.n > f.n_groups;
    if (proven && f.quiet.guessed)
        TRY(prove_batched(&f, &proven, err));
    if (!proven)
        return STATUS_OK;
    for (uint32_t i = 0; i < f.n; i++)
        log_write(options->log, LOG_INFO, "'%s' counts instances%s", f.dims[f.first + i].name,
                  f.alone ? ": nothing along it is mixed" : ", too: no other size fits");
    space->dims = f.dims;
    space->free_of = free_of;
    options->dims = f.dims;
    options->guessed = f.quiet.guessed;
    space->n_dims = options->n_dims = f.first + f.n;
    return STATUS_OK;
}
