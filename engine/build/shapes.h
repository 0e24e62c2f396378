/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes that requests choose. A user gives dimensions ranges, and chooses points; here it is found
 * out which dimensions of the model these are, which belong together, and which profiles follow.
 *
 * Dimensions of one name are one: they have the same size in each request. A dimension without a
 * name, or whose name has no letter or digit ("?", of which there may be several), is its own, and
 * is called INPUT:AXIS.
 */
#ifndef INFERD_ENGINE_BUILD_SHAPES_H
#define INFERD_ENGINE_BUILD_SHAPES_H

#include "base/arena.h"
#include "base/error.h"
#include "engine/import/onnx.h"
#include "engine/plan/plan.h"

enum {
    BUILD_INSTANCES = -1, /* in place of a size: as many as there are instances */
    BUILD_NAME_MAX = 128,
    BUILD_MAX_SIZES = 64,   /* of a dimension */
    BUILD_DEFAULT_SIZES = 6 /* if nobody chooses them */
};

/* "ids=1..32x1..512": what the dimensions of an input may be. */
struct build_range {
    char input[BUILD_NAME_MAX];
    uint32_t rank;
    /* low 0: nothing is said ("*"); BUILD_INSTANCES: "N": then no dimension is taken to count
     * instances for its place alone */
    int64_t low[SHAPE_MAX_RANK], high[SHAPE_MAX_RANK];
};
enum status build_range_parse(const char *text, struct build_range *out, struct error *err);

/* "seq=32,64,128": the sizes of a dimension that get profiles. */
struct build_sizes {
    char name[BUILD_NAME_MAX];
    uint32_t n;
    int64_t values[BUILD_MAX_SIZES];
};
enum status build_sizes_parse(const char *text, struct build_sizes *out, struct error *err);

/* What a build makes of them; in `arena`. */
struct build_space {
    uint32_t n_free, n_points;
    struct plan_free free[PLAN_MAX_FREE]; /* whether it pads is not known yet */
    int64_t (*points)[PLAN_MAX_FREE];     /* by rising size */
    struct onnx_dim *dims;                /* of an import, at the point last set */
    uint32_t n_dims;
    uint8_t *free_of;              /* by dims: the free dimension that gives the value, + 1; or 0 */
    int64_t batch_low, batch_high; /* of the number of instances; 0: nothing is said */
    bool batch_differs;            /* first dimensions have several ranges: none counts instances */
    bool said;                     /* a wish tells which dimensions count instances */
    const char *batch_sizes;       /* a dimension that counts them, and was given sizes; or NULL */
};

struct build_wishes {
    bool alone; /* the model is not batched: no dimension counts instances, whatever its name */
    const struct onnx_dim *dims; /* values */
    uint32_t n_dims;
    const struct build_range *ranges;
    uint32_t n_ranges;
    const struct build_sizes *sizes;
    uint32_t n_sizes;
};

/* INVALID_ARGUMENT: they contradict each other or the model, or name what it does not have. The
 * space is at its largest point. */
enum status build_space_find(const struct onnx_model *model, const struct build_wishes *wishes,
                             struct arena *arena, struct build_space *out, struct error *err);

/* Gives the imports' dimensions these values of the free ones. */
void build_space_set(struct build_space *space, const int64_t *values);

/* Makes one free dimension of two with equal ranges: `other` gets the sizes of `one`, which comes
 * before it. */
void build_space_tie(struct build_space *space, uint32_t one, uint32_t other);

/* Whether a dimension's name has a letter or a digit, and so names one dimension. NULL: no. */
bool build_names_much(const char *name);

/* The free dimension that an input's dimension is, from 1 on; 0: none. */
uint32_t build_space_free(const struct build_space *space, const char *input, uint32_t axis);

#endif
