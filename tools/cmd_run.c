/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl run runs a model once over the given inputs, in as many batches as they take. Inputs
 * that are not given are random, the same in every run. Outputs are shown, written, or compared
 * with files.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/names.h"
#include "engine/build/ragged.h"
#include "engine/import/onnx.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"
#include "tools/model.h"
#include "tools/npy.h"
#include "tools/output.h"
#include "tools/show.h"
#include "tools/tensor.h"

struct run_args {
    struct model_args model;
    struct arg_texts inputs, checks;
    const char *output;
    double rtol, atol;
    uint32_t batch;
    bool quiet;
};

static const struct arg options[] = {
    {"input", 'i', ARG_TEXTS, offsetof(struct run_args, inputs), "NAME=FILE",
     ".npy or TensorProto (.pb); random if not given"},
    {"output", 'o', ARG_TEXT, offsetof(struct run_args, output), "DIR",
     "write each output there as NAME.npy"},
    {"check", 0, ARG_TEXTS, offsetof(struct run_args, checks), "NAME=FILE",
     "compare an output; exit 1 on mismatch"},
    {"rtol", 0, ARG_F64, offsetof(struct run_args, rtol), "R", "relative tolerance (default 1e-3)"},
    {"atol", 0, ARG_F64, offsetof(struct run_args, atol), "A", "absolute tolerance (default 1e-5)"},
    {"batch", 'b', ARG_U32, offsetof(struct run_args, batch), "B",
     "instances of random inputs; for a .onnx, the profile to build"},
    {"quiet", 'q', ARG_FLAG, offsetof(struct run_args, quiet), NULL, "do not show the outputs"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl run MODEL|PLAN [--input NAME=FILE]... [--check NAME=FILE]... [options]",
    .what = "Runs a model once. Exit 1 if a --check fails.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = MODEL_TABLES(struct run_args, model),
};

struct run {
    const struct run_args *args;
    struct model model;
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_IO];
    size_t instances;                /* 1 if the model is not batched */
    int64_t values[ENGINE_MAX_FREE]; /* of the free dimensions; 0: no input says */
    uint32_t point;
    bool of_plan;
};

static const struct engine_info *info(const struct run *r)
{
    return engine_describe(r->model.engine);
}

static bool find_binding(const struct engine_binding *list, uint32_t n, const char *name,
                         uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) {
            *out = i;
            return true;
        }
    return false;
}

/* --- inputs --- */

/* The files' shapes say what a model leaves open: how many instances to build for, and its other
 * symbolic dimensions unless the command line binds them. */
struct guess {
    struct model_args args;
    char dims[ARG_LIST_MAX][128]; /* "NAME=N" */
    uint32_t batch;
};

/* "NAME=", or "INPUT:AXIS=" of a dimension whose name says nothing. */
static void dim_key(const char *input, uint32_t axis, const char *name, char out[96])
{
    if (name && *name != '?')
        snprintf(out, 96, "%.64s=", name);
    else
        snprintf(out, 96, "%.64s:%u=", input, axis);
}

static void guess_dim(struct guess *g, const char *input, uint32_t axis,
                      const struct onnx_axis_info *info, int64_t size)
{
    struct arg_texts *dims = &g->args.dims;
    char key[96];
    dim_key(input, axis, info->name, key);
    if (dims->n == ARG_LIST_MAX || size < 0)
        return;
    for (uint32_t i = 0; i < dims->n; i++)
        if (!strncmp(dims->list[i], key, strlen(key)))
            return;
    char *text = g->dims[dims->n];
    snprintf(text, sizeof(g->dims[0]), "%s%lld", key, (long long)size);
    dims->list[dims->n++] = text;
}

/* `alone`: no dimension counts instances. */
static void guess_dims(struct guess *g, const struct onnx_model *model, bool alone,
                       const char *input, const struct shape *shape)
{
    uint32_t rank, index = 0;
    while (index < onnx_n_inputs(model) && strcmp(onnx_input(model, index, &rank), input) != 0)
        index++;
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        struct onnx_axis_info info = onnx_input_axis(model, index, axis);
        info.batch = info.batch && !alone;
        if (info.batch && shape->dim[axis] > 0 && g->batch == 0)
            g->batch = (uint32_t)MIN(shape->dim[axis], 32);
        else if (!info.batch && info.fixed < 0 && index < onnx_n_inputs(model))
            guess_dim(g, input, axis, &info, shape->dim[axis]);
    }
}

/* As many tokens as there are with padding, unless --batch says how many. */
static void guess_tokens(struct guess *g, const struct shape *shape)
{
    int64_t tokens = shape->rank < 2 ? 0 : MIN(shape->dim[0], PLAN_MAX_BATCH) * shape->dim[1];
    tokens = MIN(MAX(tokens, 1), PLAN_MAX_BATCH);
    if (!g->batch)
        g->batch = (uint32_t)(tokens + RAGGED_TOKENS_OF - 1) / RAGGED_TOKENS_OF * RAGGED_TOKENS_OF;
}

static void guess_all(struct guess *g, const struct run_args *args, const char *path, bool alone)
{
    struct onnx_model *model = NULL;
    g->args = args->model;
    g->batch = args->batch;
    if (model_is_plan(path) || onnx_open(path, &model, NULL))
        model = NULL; /* model_open will say what is wrong with it */
    for (uint32_t i = 0; i < args->inputs.n; i++) {
        char name[128];
        const char *file;
        struct tensor_view t;
        if (!args_split(args->inputs.list[i], name, sizeof(name), &file) ||
            tensor_read(file, &t, NULL))
            continue;
        free(t.data);
        if (args->model.ragged.n)
            guess_tokens(g, &t.shape);
        else if (model && !args->model.shapes.n)
            guess_dims(g, model, alone, name, &t.shape);
    }
    if (args->model.ragged.n && !g->batch)
        g->batch = RAGGED_MAX_LENGTH;
    onnx_close(model);
}

/* A model that is built on the fly gets a second try: it may turn out not to be batched. Then what
 * looked like a batch is a size as any other. */
static enum status open_model(struct run *r, const char *path, struct error *err)
{
    struct guess g = {.batch = 0};
    guess_all(&g, r->args, path, false);
    r->of_plan = model_is_plan(path);
    struct arg_u32s batches = {.n = 1, .list = {g.batch ? g.batch : 1}};
    enum status status = model_open(&r->model, path, &g.args, &batches, err);
    if (status == STATUS_INVALID_ARGUMENT && batches.list[0] > 1 && !r->args->batch) {
        guess_all(&g, r->args, path, true);
        batches.list[0] = 1;
        status = model_open(&r->model, path, &g.args, &batches, err);
    }
    return status;
}

/* Takes the free dimensions' values from an input. */
static enum status take_values(struct run *r, uint32_t index, const struct shape *shape,
                               struct error *err)
{
    for (uint32_t d = 0; info(r)->n_free && d < shape->rank; d++) {
        uint32_t number = info(r)->input_axes[index].free[d];
        int64_t *known = number ? &r->values[number - 1] : NULL;
        if (known && *known && *known != shape->dim[d])
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': dimension %u ('%s') is %lld, but %lld elsewhere",
                             info(r)->inputs[index].name, d, info(r)->free[number - 1].name,
                             (long long)shape->dim[d], (long long)*known);
        if (known)
            *known = shape->dim[d];
    }
    return STATUS_OK;
}

static enum status check_shape(struct run *r, uint32_t index, const struct tensor_view *t,
                               struct error *err)
{
    const struct engine_binding *b = &info(r)->inputs[index];
    const struct engine_axes *axes = &info(r)->input_axes[index];
    char have_text[SHAPE_TEXT_MAX], want_text[SHAPE_TEXT_MAX];
    bool fits = t->dtype == b->dtype && t->shape.rank == b->shape.rank;
    for (uint32_t d = 0; fits && d < t->shape.rank; d++)
        fits = b->shape.dim[d] == -1 || b->shape.dim[d] == t->shape.dim[d];
    if (!fits)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': %s %s, the model wants %s %s",
                         b->name, dtype_name(t->dtype), shape_format(&t->shape, have_text),
                         dtype_name(b->dtype), shape_format(&b->shape, want_text));
    TRY(take_values(r, index, &t->shape, err));
    if (!info(r)->batched || info(r)->ragged || axes->shared)
        return STATUS_OK;
    size_t n = (size_t)t->shape.dim[axes->batch];
    if (n == 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': no instances: dimension %u counts them, and is 0", b->name,
                         axes->batch);
    if (r->instances && n != r->instances)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': %zu instances, others have %zu",
                         b->name, n, r->instances);
    r->instances = n;
    return STATUS_OK;
}

/* Finds the point for the inputs' sizes; a size that no input gives is the point's. */
static enum status find_point(struct run *r, struct error *err)
{
    const struct engine_info *model = info(r);
    char text[160] = "";
    size_t len = 0;
    for (r->point = 0; r->point < model->n_points; r->point++) {
        int64_t values[ENGINE_MAX_FREE];
        for (uint32_t i = 0; i < ENGINE_MAX_FREE; i++)
            values[i] = r->values[i] ? r->values[i] : model->points[r->point].values[i];
        if (!engine_point_holds(model, r->point, values))
            continue;
        memcpy(r->values, values, sizeof(values));
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < model->n_free && len < sizeof(text) - 1; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.32s=%lld", i ? ", " : "",
                                model->free[i].name, (long long)r->values[i]);
    return error_set(err, STATUS_INVALID_ARGUMENT, "no profile is for %s: build one by --profiles",
                     text);
}

static enum status no_such_binding(const char *option, const char *what, const char *name,
                                   const struct engine_binding *list, uint32_t n, struct error *err)
{
    struct names names;
    names_init(&names, name, strlen(name));
    for (uint32_t i = 0; i < n; i++)
        names_add(&names, list[i].name);
    return error_set(err, STATUS_INVALID_ARGUMENT, "--%s '%s': the model has no such %s; it has %s",
                     option, name, what, names_text(&names));
}

/* What no file says: one sequence, as long as may be. */
static void choose_sequences(struct run *r)
{
    const struct engine_ragged *ragged = info(r)->ragged;
    r->values[0] = r->values[0] ? r->values[0] : 1;
    r->values[1] = r->values[1] ? r->values[1] : ragged->max_length;
}

static enum status load_inputs(struct run *r, struct error *err)
{
    for (uint32_t i = 0; i < r->args->inputs.n; i++) {
        char name[128];
        const char *path;
        uint32_t index;
        struct tensor_view t;
        if (!args_split(r->args->inputs.list[i], name, sizeof(name), &path))
            return error_set(err, STATUS_INVALID_ARGUMENT, "--input '%s': the form is NAME=FILE",
                             r->args->inputs.list[i]);
        if (!find_binding(info(r)->inputs, info(r)->n_inputs, name, &index))
            return no_such_binding("input", "input", name, info(r)->inputs, info(r)->n_inputs, err);
        if (r->in[index].data)
            return error_set(err, STATUS_INVALID_ARGUMENT, "--input '%s' is given twice", name);
        TRY(tensor_read(path, &t, err));
        r->in[index] = t;
        TRY(check_shape(r, index, &t, err));
    }
    if (info(r)->ragged)
        choose_sequences(r);
    TRY(find_point(r, err));
    if (r->instances == 0)
        r->instances = info(r)->batched && r->args->batch ? r->args->batch : 1;
    /* Of a plan alone: of a model, --batch is the profile that was built. */
    if (r->of_plan && r->args->batch && r->args->batch != r->instances)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--batch %u: %s", r->args->batch,
                         info(r)->batched ? "the files say how many instances there are"
                                          : "the model is not batched");
    return STATUS_OK;
}

static enum status make_tensor(const struct run *r, const struct engine_binding *b,
                               const struct engine_axes *axes, struct tensor_view *out,
                               struct error *err)
{
    struct tensor_view t = {.dtype = b->dtype, .shape = b->shape};
    size_t bytes;
    t.shape = engine_shape_of(info(r), axes, &b->shape, (uint32_t)r->instances, r->values);
    if (!shape_bytes(&t.shape, t.dtype, &bytes) || !(t.data = malloc(bytes ? bytes : 1)))
        return error_no_memory(err, "'%s'", b->name);
    *out = t;
    return STATUS_OK;
}

static enum status make_tensors(struct run *r, struct error *err)
{
    uint64_t seed = 1;
    for (uint32_t i = 0; i < info(r)->n_inputs; i++) {
        size_t n;
        if (r->in[i].data)
            continue;
        TRY(make_tensor(r, &engine_point_inputs(info(r), r->point)[i],
                        engine_input_axes(info(r), i), &r->in[i], err));
        bool mask = info(r)->ragged && i == info(r)->ragged->mask;
        if (shape_elements(&r->in[i].shape, &n) && !mask)
            tensor_random(r->in[i].data, n, r->in[i].dtype, &seed);
        else if (mask) /* nothing but zeros hides tokens */
            memset(r->in[i].data, 1, n * dtype_size(r->in[i].dtype));
    }
    for (uint32_t i = 0; i < info(r)->n_outputs && !info(r)->late; i++)
        TRY(make_tensor(r, &engine_point_outputs(info(r), r->point)[i],
                        engine_output_axes(info(r), i), &r->out[i], err));
    return STATUS_OK;
}

/* --- running --- */

/* The bytes of `n` instances of a tensor, or of all of it if they share it. */
static size_t bytes_of(const struct run *r, const struct tensor_view *t,
                       const struct engine_axes *axes, uint32_t n)
{
    struct shape own = engine_shape_of(info(r), axes, &t->shape, n, r->values);
    size_t bytes;
    return shape_bytes(&own, t->dtype, &bytes) ? bytes : 0; /* all of it was made or read */
}

/* Where instance `first` of the tensor lies: the caller has seen to it that `first` is 0 unless
 * instances lie one behind the other. */
static char *place_of(const struct run *r, const struct tensor_view *t,
                      const struct engine_axes *axes, size_t first)
{
    return (char *)t->data + (first ? first * bytes_of(r, t, axes, 1) : 0);
}

/* Outputs whose sizes are only known now. */
static enum status take_results(struct run *r, struct context *ctx, struct error *err)
{
    CLEANUP(cleanup_free) struct engine_results *results = context_results(ctx);
    for (uint32_t i = 0; results && i < results->n; i++) {
        struct tensor_view *to = &r->out[i];
        size_t size;
        *to = results->outputs[i];
        to->data = shape_bytes(&to->shape, to->dtype, &size) ? malloc(MAX(size, 1)) : NULL;
        if (!to->data)
            return error_no_memory(err, "output '%s'", info(r)->outputs[i].name);
        memcpy(to->data, results->outputs[i].data, size);
    }
    return STATUS_OK;
}

static enum status run_batch(struct run *r, struct context *ctx, size_t first, uint32_t batch,
                             char *buffer, struct error *err)
{
    struct engine_span spans[IR_MAX_IO];
    struct engine_input inputs[IR_MAX_IO];
    struct engine_request whole = {.instances = batch};
    const struct engine_batch what = {
        .point = r->point, .instances = batch, .requests = &whole, .n_requests = 1};
    const struct engine_profile *profile = engine_profile_for(r->model.engine, r->point, batch);
    memcpy(whole.values, r->values, sizeof(whole.values));
    for (uint32_t i = 0; i < info(r)->n_inputs; i++) {
        const struct engine_axes *axes = engine_input_axes(info(r), i);
        spans[i] = (struct engine_span){place_of(r, &r->in[i], axes, first),
                                        bytes_of(r, &r->in[i], axes, batch)};
        inputs[i] = (struct engine_input){&spans[i], 1};
    }
    TRY(engine_masks_check(info(r), r->point, r->values, batch, spans, err));
    TRY(context_enqueue_batch(ctx, &what, inputs, buffer, err));
    TRY(context_wait(ctx, NULL, err));
    if (info(r)->late)
        return take_results(r, ctx, err);
    for (uint32_t i = 0; i < info(r)->n_outputs; i++) {
        const struct engine_axes *axes = engine_output_axes(info(r), i);
        size_t bytes = bytes_of(r, &r->out[i], axes, batch);
        if (bytes)
            memcpy(place_of(r, &r->out[i], axes, first), buffer + profile->out_offset[i], bytes);
    }
    return STATUS_OK;
}

/* The inputs are one request. */
static enum status run_sequences(struct run *r, struct context *ctx, char *buffer,
                                 struct error *err)
{
    struct engine_span spans[IR_MAX_IO];
    uint32_t instances;
    for (uint32_t i = 0; i < info(r)->n_inputs; i++)
        spans[i] = (struct engine_span){r->in[i].data, 0};
    TRY(engine_ragged_instances(info(r), r->values, spans, &instances, err));
    return run_batch(r, ctx, 0, instances, buffer, err);
}

static enum status run_batches(struct run *r, struct context *ctx, char *buffer, struct error *err)
{
    uint32_t batch;
    if (info(r)->ragged)
        return run_sequences(r, ctx, buffer, err);
    if (!engine_counts_first(info(r)) && r->instances > info(r)->max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%zu instances; the model takes %u, and counts them elsewhere than in the "
                         "first dimension of each input and output: give it fewer",
                         r->instances, info(r)->max_batch);
    for (size_t done = 0; done < r->instances; done += batch) {
        batch = (uint32_t)MIN(r->instances - done, (size_t)info(r)->max_batch);
        TRY(run_batch(r, ctx, done, batch, buffer, err));
    }
    return STATUS_OK;
}

static enum status run_all(struct run *r, struct error *err)
{
    CLEANUP(lane_cleanup) struct lane *lane = NULL;
    CLEANUP(context_cleanup) struct context *ctx = NULL;
    void *buffer;
    TRY(lane_new(r->model.device, &lane, err));
    TRY(context_new(r->model.engine, lane, &ctx, err));
    TRY(engine_buffer_alloc(r->model.device, MAX(info(r)->out_bytes_max, (size_t)64), "output",
                            &buffer, err));
    enum status status = run_batches(r, ctx, buffer, err);
    engine_buffer_free(r->model.device, buffer);
    return status;
}

/* --- outputs --- */

/* The file of an output in the folder of --output. */
static enum status output_path(const struct run *r, uint32_t index, char path[PATH_MAX],
                               struct error *err)
{
    char name[PLAN_NAME_MAX + 1];
    snprintf(name, sizeof(name), "%s", info(r)->outputs[index].name);
    for (char *c = name; *c; c++)
        if (*c == '/' || *c == ':')
            *c = '_';
    if (snprintf(path, PATH_MAX, "%s/%s.npy", r->args->output, name) >= PATH_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--output: the path is too long");
    return STATUS_OK;
}

/* Makes the folder before the work, and sees that its files may be written. */
static enum status try_outputs(const struct run *r, const char *model, struct error *err)
{
    if (!r->args->output)
        return STATUS_OK;
    if (mkdir(r->args->output, 0777) && errno != EEXIST)
        return error_errno(err, errno, "%s", r->args->output);
    for (uint32_t i = 0; i < info(r)->n_outputs; i++) {
        CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
        char path[PATH_MAX];
        TRY(output_path(r, i, path, err));
        TRY(output_check(path, model, &r->args->model, err));
        TRY(output_check_named(path, &r->args->inputs, err));
        TRY(output_check_named(path, &r->args->checks, err));
        TRY(file_writer_new(path, true, &writer, err));
    }
    return STATUS_OK;
}

static enum status write_outputs(const struct run *r, struct error *err)
{
    for (uint32_t i = 0; r->args->output && i < info(r)->n_outputs; i++) {
        char path[PATH_MAX];
        TRY(output_path(r, i, path, err));
        TRY(npy_write(path, &r->out[i], err));
    }
    return STATUS_OK;
}

static enum status check_output(const struct run *r, const char *text, struct error *err)
{
    char name[128], have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    const char *path;
    uint32_t index;
    struct tensor_view t;
    struct tensor_difference d;
    if (!args_split(text, name, sizeof(name), &path))
        return error_set(err, STATUS_INVALID_ARGUMENT, "--check '%s': the form is NAME=FILE", text);
    if (!find_binding(info(r)->outputs, info(r)->n_outputs, name, &index))
        return no_such_binding("check", "output", name, info(r)->outputs, info(r)->n_outputs, err);
    TRY(tensor_read(path, &t, err));
    CLEANUP(cleanup_free) UNUSED void *data = t.data;
    const struct tensor_view *out = &r->out[index];
    if (!tensor_compare(out, &t, r->args->rtol, r->args->atol, &d))
        return error_set(err, STATUS_ABORTED, "'%s' is %s %s, %s has %s %s", name,
                         dtype_name(out->dtype), shape_format(&out->shape, have), path,
                         dtype_name(t.dtype), shape_format(&t.shape, want));
    if (d.different)
        return error_set(err, STATUS_ABORTED,
                         "'%s' differs from %s in %zu of %zu elements: greatest difference %g "
                         "(relative %g), first at %zu: %g instead of %g",
                         name, path, d.different, d.elements, d.max_abs, d.max_rel, d.first,
                         tensor_at(out, d.first), tensor_at(&t, d.first));
    show_printf("%s agrees: %zu elements, greatest difference %g (relative %g)\n", name, d.elements,
                d.max_abs, d.max_rel);
    return STATUS_OK;
}

static enum status run_steps(struct run *r, const char *path, struct error *err)
{
    TRY(open_model(r, path, err));
    TRY(load_inputs(r, err));
    TRY(try_outputs(r, path, err));
    TRY(make_tensors(r, err));
    TRY(run_all(r, err));
    for (uint32_t i = 0; !r->args->quiet && i < info(r)->n_outputs; i++)
        tensor_print(stdout, info(r)->outputs[i].name, &r->out[i], 10);
    TRY(write_outputs(r, err));
    for (uint32_t i = 0; i < r->args->checks.n; i++)
        TRY(check_output(r, r->args->checks.list[i], err));
    return STATUS_OK;
}

static enum status run(struct run *r, const char *path, struct error *err)
{
    enum status status = run_steps(r, path, err);
    for (uint32_t i = 0; i < IR_MAX_IO; i++) {
        free(r->in[i].data);
        free(r->out[i].data);
    }
    model_close(&r->model);
    return status;
}

int command_run(int argc, char **argv)
{
    struct run_args args = {.rtol = -1, .atol = -1};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (args.checks.n == 0 && (args.rtol >= 0 || args.atol >= 0)) {
        fprintf(stderr, "inferctl run: --rtol and --atol go with --check\n");
        return EXIT_USAGE;
    }
    args.rtol = args.rtol >= 0 ? args.rtol : 1e-3;
    args.atol = args.atol >= 0 ? args.atol : 1e-5;
    struct run r = {.args = &args};
    return run(&r, files.list[0], &err) ? command_failed("run", &err) : EXIT_OK;
}
