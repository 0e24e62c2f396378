/* SPDX-License-Identifier: Apache-2.0 */
/* See shapes.h. */
#include "engine/build/shapes.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"

/* --- text --- */

/* Splits at the last '=': names may have one. */
static const char *split(const char *text, char name[BUILD_NAME_MAX])
{
    const char *at = strrchr(text, '=');
    if (!at || at == text || (size_t)(at - text) >= BUILD_NAME_MAX || !at[1])
        return NULL;
    memcpy(name, text, (size_t)(at - text));
    name[at - text] = '\0';
    return at + 1;
}

static const char *read_size(const char *from, int64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*from))
        return NULL;
    unsigned long long value = strtoull(from, &end, 10);
    *out = (int64_t)value;
    return value >= 1 && value <= PLAN_MAX_SIZE ? end : NULL;
}

/* Reads "8", "1..8", "*" or "N". NULL: it is none of these. */
static const char *read_range(const char *from, int64_t *low, int64_t *high)
{
    if (*from == '*' || *from == 'N') {
        *low = *high = *from == '*' ? 0 : BUILD_INSTANCES;
        return from + 1;
    }
    from = read_size(from, low);
    *high = *low;
    if (from && strncmp(from, "..", 2) == 0)
        from = read_size(from + 2, high);
    return from && *low <= *high ? from : NULL;
}

enum status build_range_parse(const char *text, struct build_range *out, struct error *err)
{
    struct build_range r = {.rank = 0};
    const char *at = split(text, r.input);
    while (at && *at && r.rank < SHAPE_MAX_RANK) {
        at = read_range(at, &r.low[r.rank], &r.high[r.rank]);
        r.rank++;
        if (at && *at == 'x' && at[1])
            at++;
        else if (at && *at)
            at = NULL;
    }
    if (!at || *at)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--shape '%.200s': the form is INPUT=1..8x3x64..512, with * for what is "
                         "left open and N for what counts instances",
                         text);
    *out = r;
    return STATUS_OK;
}

enum status build_sizes_parse(const char *text, struct build_sizes *out, struct error *err)
{
    struct build_sizes s = {.n = 0};
    const char *at = split(text, s.name);
    while (at && *at && s.n < BUILD_MAX_SIZES) {
        at = read_size(at, &s.values[s.n++]);
        if (at && *at == ',' && at[1])
            at++;
        else if (at && *at)
            at = NULL;
    }
    if (!at || *at)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--profiles '%.200s': the form is NAME=32,64,128, at most %d sizes from 1 "
                         "to %d",
                         text, BUILD_MAX_SIZES, PLAN_MAX_SIZE);
    *out = s;
    return STATUS_OK;
}

/* --- dimensions --- */

struct axis {
    const char *input;
    struct onnx_axis_info info;
    uint32_t axis;
    uint8_t free;   /* from 1 on; 0: none */
    int64_t fixed;  /* by a range; 0: not */
    bool instances; /* a wish says that it counts them */
};

struct finding {
    const struct onnx_model *model;
    const struct build_wishes *wishes;
    struct arena *arena;
    struct build_space *space;
    struct axis *axes; /* all of all inputs */
    uint32_t n_axes;
    uint32_t n_sizes[PLAN_MAX_FREE];
    int64_t sizes[PLAN_MAX_FREE][BUILD_MAX_SIZES];
    struct error *err;
    const struct axis *ranged; /* a first dimension whose range is that of the instances */
};

bool build_names_much(const char *name)
{
    while (name && *name && !isalnum((unsigned char)*name))
        name++;
    return name && *name;
}

static char *axis_text(struct arena *arena, const char *input, uint32_t axis)
{
    return arena_printf(arena, "%.*s:%u", INT_MAX, input, axis);
}

static enum status axes_list(struct finding *f)
{
    uint32_t rank, n = 0;
    for (uint32_t i = 0; i < onnx_n_inputs(f->model); i++)
        n += SHAPE_MAX_RANK;
    f->axes = arena_array(f->arena, n + 1, sizeof(*f->axes));
    if (!f->axes)
        return error_no_memory(f->err, "the builder");
    for (uint32_t i = 0; i < onnx_n_inputs(f->model); i++) {
        const char *input = onnx_input(f->model, i, &rank);
        for (uint32_t d = 0; rank <= SHAPE_MAX_RANK && d < rank; d++)
            f->axes[f->n_axes++] =
                (struct axis){.input = input, .info = onnx_input_axis(f->model, i, d), .axis = d};
    }
    return STATUS_OK;
}

/* Whether both are one dimension. */
static bool is_tied(const struct axis *a, const struct axis *b)
{
    return a == b ||
           (build_names_much(a->info.name) && b->info.name &&
            strcmp(a->info.name, b->info.name) == 0 && a->info.fixed < 0 && b->info.fixed < 0);
}

static bool is_given(const struct finding *f, const struct axis *a)
{
    char text[BUILD_NAME_MAX + 16];
    snprintf(text, sizeof(text), "%s:%u", a->input, a->axis);
    for (uint32_t i = 0; i < f->wishes->n_dims; i++) {
        const char *name = f->wishes->dims[i].name;
        if (!strcmp(name, text) || (a->info.name && !strcmp(name, a->info.name)))
            return true;
    }
    return false;
}

static enum status contradict(struct finding *f, const struct axis *a, int64_t low, int64_t high,
                              int64_t low2, int64_t high2)
{
    return error_set(f->err, STATUS_INVALID_ARGUMENT,
                     "--shape %.64s: dimension %u ('%.64s') is %" PRId64 "..%" PRId64
                     " here and %" PRId64 "..%" PRId64 " elsewhere",
                     a->input, a->axis, a->info.name ? a->info.name : "", low, high, low2, high2);
}

static enum status range_batch(struct finding *f, const struct axis *a, int64_t low, int64_t high)
{
    struct build_space *s = f->space;
    bool differs = s->batch_high && (s->batch_low != low || s->batch_high != high);
    if (differs && (a->info.named || is_tied(a, f->ranged)))
        return contradict(f, a, low, high, s->batch_low, s->batch_high);
    s->batch_differs = s->batch_differs || differs;
    f->ranged = a;
    s->batch_low = low;
    s->batch_high = high;
    return STATUS_OK;
}

static enum status free_add(struct finding *f, const struct axis *a, int64_t low, int64_t high)
{
    struct build_space *s = f->space;
    if (s->n_free == PLAN_MAX_FREE)
        return error_set(f->err, STATUS_INVALID_ARGUMENT,
                         "--shape: at most %d dimensions may have a range", PLAN_MAX_FREE);
    char *name = build_names_much(a->info.name)
                     ? arena_strndup(f->arena, a->info.name, BUILD_NAME_MAX)
                     : axis_text(f->arena, a->input, a->axis);
    if (!name)
        return error_no_memory(f->err, "the builder");
    for (char *c = name; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '_';
    s->free[s->n_free++] = (struct plan_free){.name = name, .low = low, .high = high};
    for (uint32_t i = 0; i < f->n_axes; i++)
        if (is_tied(a, &f->axes[i]))
            f->axes[i].free = (uint8_t)s->n_free;
    return STATUS_OK;
}

/* "N" */
static enum status range_instances(struct finding *f, const struct axis *a)
{
    if (a->info.named)
        return STATUS_OK;
    if (a->info.fixed >= 0 || is_given(f, a) || a->free || a->fixed)
        return error_set(
            f->err, STATUS_INVALID_ARGUMENT,
            "--shape %.64s: dimension %u cannot count instances: it has a size already", a->input,
            a->axis);
    for (uint32_t i = 0; i < f->n_axes; i++)
        f->axes[i].instances |= is_tied(a, &f->axes[i]);
    return STATUS_OK;
}

static enum status range_axis(struct finding *f, struct axis *a, int64_t low, int64_t high)
{
    struct build_space *s = f->space;
    if (!low)
        return STATUS_OK;
    if (low == BUILD_INSTANCES)
        return range_instances(f, a);
    if (a->instances)
        return error_set(f->err, STATUS_INVALID_ARGUMENT,
                         "--shape %.64s: dimension %u has a size here, and counts instances "
                         "elsewhere",
                         a->input, a->axis);
    if (a->info.fixed >= 0)
        return a->info.fixed >= low && a->info.fixed <= high
                   ? STATUS_OK
                   : error_set(f->err, STATUS_INVALID_ARGUMENT,
                               "--shape %.64s: the model fixes dimension %u at %" PRId64, a->input,
                               a->axis, a->info.fixed);
    if (is_given(f, a))
        return error_set(f->err, STATUS_INVALID_ARGUMENT,
                         "--shape %.64s: dimension %u has a value by --dim already", a->input,
                         a->axis);
    if (a->info.batch && !f->wishes->alone)
        return range_batch(f, a, low, high);
    if (a->free) {
        const struct plan_free *known = &s->free[a->free - 1];
        return known->low == low && known->high == high
                   ? STATUS_OK
                   : contradict(f, a, low, high, known->low, known->high);
    }
    if (a->fixed)
        return low == a->fixed && high == low ? STATUS_OK
                                              : contradict(f, a, low, high, a->fixed, a->fixed);
    if (low < high)
        return free_add(f, a, low, high);
    for (uint32_t i = 0; i < f->n_axes; i++)
        if (is_tied(a, &f->axes[i]))
            f->axes[i].fixed = low;
    return STATUS_OK;
}

static enum status no_input(struct finding *f, const char *wanted)
{
    struct names names;
    uint32_t rank;
    names_init(&names, wanted, strlen(wanted));
    for (uint32_t i = 0; i < onnx_n_inputs(f->model); i++)
        names_add(&names, onnx_input(f->model, i, &rank));
    return error_set(f->err, STATUS_INVALID_ARGUMENT,
                     "--shape '%.64s': the model has no such input; it has %s", wanted,
                     names_text(&names));
}

static enum status range_take(struct finding *f, const struct build_range *r)
{
    uint32_t rank = 0, first = 0;
    while (first < f->n_axes && strcmp(f->axes[first].input, r->input) != 0)
        first++;
    while (first + rank < f->n_axes && !strcmp(f->axes[first + rank].input, r->input))
        rank++;
    if (first == f->n_axes)
        return no_input(f, r->input);
    if (rank != r->rank)
        return error_set(f->err, STATUS_INVALID_ARGUMENT,
                         "--shape %.64s: %u dimensions are given, and the input has %u", r->input,
                         r->rank, rank);
    for (uint32_t d = 0; d < rank; d++)
        TRY(range_axis(f, &f->axes[first + d], r->low[d], r->high[d]));
    return STATUS_OK;
}

/* Whether an "N" says which dimensions count instances: then places do not. */
static void wishes_look(struct finding *f)
{
    for (uint32_t i = 0; i < f->wishes->n_ranges; i++)
        for (uint32_t d = 0; d < f->wishes->ranges[i].rank; d++)
            f->space->said = f->space->said || f->wishes->ranges[i].low[d] == BUILD_INSTANCES;
    for (uint32_t i = 0; f->space->said && i < f->n_axes; i++)
        f->axes[i].info.batch = f->axes[i].info.named;
}

/* --- points --- */

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The free dimension of that name, or IR_NONE. */
static uint32_t free_named(const struct finding *f, const char *name)
{
    char text[BUILD_NAME_MAX + 16];
    for (uint32_t i = 0; i < f->space->n_free; i++)
        if (!strcmp(f->space->free[i].name, name))
            return i;
    for (uint32_t i = 0; i < f->n_axes; i++) {
        snprintf(text, sizeof(text), "%s:%u", f->axes[i].input, f->axes[i].axis);
        if (f->axes[i].free && !strcmp(text, name))
            return f->axes[i].free - 1u;
    }
    return IR_NONE;
}

static enum status sizes_take(struct finding *f, const struct build_sizes *s)
{
    uint32_t at = free_named(f, s->name), n = 0;
    struct names names;
    names_init(&names, s->name, strlen(s->name));
    for (uint32_t i = 0; i < f->space->n_free; i++)
        names_add(&names, f->space->free[i].name);
    if (at == IR_NONE && !f->wishes->alone && f->space->batch_high &&
        onnx_is_batch_dim(f->model, s->name)) {
        f->space->batch_sizes = s->name; /* of use if the model is not batched */
        return STATUS_OK;
    }
    if (at == IR_NONE)
        return error_set(f->err, STATUS_INVALID_ARGUMENT,
                         "--profiles '%.64s': no such dimension has a range; those with one: %s",
                         s->name, names_text(&names));
    const struct plan_free *free = &f->space->free[at];
    int64_t *list = f->sizes[at];
    if (f->n_sizes[at])
        return error_set(f->err, STATUS_INVALID_ARGUMENT, "--profiles '%.64s': given twice",
                         s->name);
    memcpy(list, s->values, s->n * sizeof(*list));
    qsort(list, s->n, sizeof(*list), by_size);
    for (uint32_t i = 0; i < s->n; i++) {
        if (list[i] < free->low || list[i] > free->high)
            return error_set(f->err, STATUS_INVALID_ARGUMENT,
                             "--profiles '%.64s': %" PRId64 " is not within %" PRId64 "..%" PRId64,
                             s->name, list[i], free->low, free->high);
        if (!n || list[i] != list[n - 1])
            list[n++] = list[i];
    }
    f->n_sizes[at] = n;
    return STATUS_OK;
}

/* The largest size, and powers of two below it. */
static void sizes_default(const struct plan_free *free, int64_t *list, uint32_t *n)
{
    int64_t size = free->high, power = 1;
    while (power <= free->high / 2)
        power *= 2;
    power = power == free->high ? power / 2 : power;
    for (*n = 0; *n < BUILD_DEFAULT_SIZES && size >= free->low && size; power /= 2) {
        list[(*n)++] = size;
        size = power;
    }
    qsort(list, *n, sizeof(*list), by_size);
}

static double size_of(const int64_t *values)
{
    double size = 1;
    for (uint32_t i = 0; i < PLAN_MAX_FREE; i++)
        size *= values[i] ? (double)values[i] : 1.0;
    return size;
}

static int by_product(const void *a, const void *b)
{
    double x = size_of(a), y = size_of(b);
    return x != y ? (x < y ? -1 : 1) : memcmp(a, b, PLAN_MAX_FREE * sizeof(int64_t));
}

/* All combinations of sizes. */
static enum status points_make(struct finding *f)
{
    struct build_space *s = f->space;
    uint32_t n = 1;
    for (uint32_t i = 0; i < s->n_free; i++) {
        if (!f->n_sizes[i])
            sizes_default(&s->free[i], f->sizes[i], &f->n_sizes[i]);
        n *= f->n_sizes[i];
        if (n > PLAN_MAX_PROFILES)
            return error_set(f->err, STATUS_INVALID_ARGUMENT,
                             "more than %d profiles: choose fewer sizes by --profiles",
                             PLAN_MAX_PROFILES);
    }
    s->points = arena_array(f->arena, n, sizeof(*s->points));
    if (!s->points)
        return error_no_memory(f->err, "the builder");
    s->n_points = n;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t rest = k;
        for (uint32_t i = 0; i < s->n_free; i++) {
            s->points[k][i] = f->sizes[i][rest % f->n_sizes[i]];
            rest /= f->n_sizes[i];
        }
    }
    qsort(s->points, n, sizeof(*s->points), by_product);
    return STATUS_OK;
}

/* --- all of it --- */

static enum status dims_make(struct finding *f)
{
    struct build_space *s = f->space;
    uint32_t most = f->wishes->n_dims + f->n_axes + 1;
    s->dims = arena_array(f->arena, most, sizeof(*s->dims));
    s->free_of = arena_array(f->arena, most, sizeof(*s->free_of));
    if (!s->dims || !s->free_of)
        return error_no_memory(f->err, "the builder");
    for (; s->n_dims < f->wishes->n_dims; s->n_dims++)
        s->dims[s->n_dims] = f->wishes->dims[s->n_dims];
    for (uint32_t i = 0; i < f->n_axes; i++) {
        const struct axis *a = &f->axes[i];
        if (!a->free && !a->fixed && !a->instances)
            continue;
        s->free_of[s->n_dims] = a->free;
        s->dims[s->n_dims] = (struct onnx_dim){axis_text(f->arena, a->input, a->axis),
                                               a->instances ? ONNX_INSTANCES : a->fixed};
        if (!s->dims[s->n_dims++].name)
            return error_no_memory(f->err, "the builder");
    }
    build_space_set(s, s->points[s->n_points - 1]);
    return STATUS_OK;
}

enum status build_space_find(const struct onnx_model *model, const struct build_wishes *wishes,
                             struct arena *arena, struct build_space *out, struct error *err)
{
    *out = (struct build_space){.n_free = 0};
    struct finding *f = arena_array(arena, 1, sizeof(*f));
    if (!f)
        return error_no_memory(err, "the builder");
    *f = (struct finding){
        .model = model, .wishes = wishes, .arena = arena, .space = out, .err = err};
    TRY(axes_list(f));
    wishes_look(f);
    for (uint32_t i = 0; i < wishes->n_ranges; i++)
        TRY(range_take(f, &wishes->ranges[i]));
    for (uint32_t i = 0; i < wishes->n_sizes; i++)
        TRY(sizes_take(f, &wishes->sizes[i]));
    TRY(points_make(f));
    return dims_make(f);
}

void build_space_set(struct build_space *space, const int64_t *values)
{
    for (uint32_t i = 0; i < space->n_dims; i++)
        if (space->free_of[i])
            space->dims[i].value = values[space->free_of[i] - 1];
}

void build_space_tie(struct build_space *space, uint32_t one, uint32_t other)
{
    uint32_t behind = space->n_free - other - 1, kept = 1;
    memmove(&space->free[other], &space->free[other + 1], behind * sizeof(space->free[0]));
    space->n_free--;
    for (uint32_t i = 0; i < space->n_dims; i++)
        if (space->free_of[i] == other + 1)
            space->free_of[i] = (uint8_t)(one + 1);
        else if (space->free_of[i] > other)
            space->free_of[i]--;
    for (uint32_t p = 0; p < space->n_points; p++) {
        int64_t *values = space->points[p];
        memmove(&values[other], &values[other + 1], behind * sizeof(*values));
        values[space->n_free] = 0;
    }
    qsort(space->points, space->n_points, sizeof(*space->points), by_product);
    for (uint32_t p = 1; p < space->n_points; p++)
        if (memcmp(space->points[p], space->points[kept - 1], sizeof(*space->points)) != 0)
            memmove(space->points[kept++], space->points[p], sizeof(*space->points));
    space->n_points = kept;
    build_space_set(space, space->points[kept - 1]);
}

uint32_t build_space_free(const struct build_space *space, const char *input, uint32_t axis)
{
    char text[16];
    size_t len = strlen(input);
    int n = snprintf(text, sizeof(text), ":%u", axis);
    for (uint32_t i = 0; i < space->n_dims; i++) {
        const char *name = space->dims[i].name;
        if (space->free_of[i] && strlen(name) == len + (size_t)n && !memcmp(name, input, len) &&
            !strcmp(name + len, text))
            return space->free_of[i];
    }
    return 0;
}
