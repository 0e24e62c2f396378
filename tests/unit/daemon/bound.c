/* SPDX-License-Identifier: Apache-2.0 */
/* See bound.h. */
#include "tests/unit/daemon/bound.h"

#include <stdlib.h>
#include <string.h>

static const struct engine_binding
    x = {"x", DTYPE_F32, {2, {-1, 4}}, 16},
    y = {"y", DTYPE_F32, {2, {-1, 4}}, 16},
    sides[] = {{"l", DTYPE_F32, {2, {-1, 4}}, 16}, {"r", DTYPE_F32, {2, {-1, 4}}, 16}},
    sum = {"sum", DTYPE_F32, {2, {-1, 4}}, 16}, u = {"u", DTYPE_U8, {2, {-1, 3}}, 3},
    v = {"v", DTYPE_I64, {3, {-1, 2, 2}}, 32}, p = {"p", DTYPE_F32, {2, {1, 4}}, 16},
    q = {"q", DTYPE_F32, {2, {1, 4}}, 16},
    masked[] = {{"x", DTYPE_F32, {2, {-1, -1}}, 256}, {"m", DTYPE_F32, {2, {-1, -1}}, 256}},
    free_y = {"y", DTYPE_F32, {2, {-1, -1}}, 256}, long_x = {"x", DTYPE_F32, {2, {-1, -1}}, 800},
    long_y = {"y", DTYPE_F32, {2, {-1, -1}}, 400},
    scaled[] = {{"x", DTYPE_F32, {3, {3, -1, 2}}, 24}, {"s", DTYPE_F32, {0}, 4}},
    scaled_y = {"y", DTYPE_F32, {3, {3, -1, 2}}, 24}, late_y = {"y", DTYPE_F32, {2, {-1, 4}}, 0};

static const struct engine_axes seq[] = {{.free = {0, 1}}, {.free = {0, 1}}}, plain[] = {{0}},
                                second[] = {{.batch = 1}, {.shared = true}};
static const struct engine_free short_range = {.name = "seq", .low = 1, .high = 64},
                                long_range = {.name = "len", .low = 16, .high = 200};

static const struct engine_info infos[] = {
    {.batched = true, .max_batch = 8, .n_inputs = 1, .n_outputs = 1, .inputs = &x, .outputs = &y},
    {.batched = true,
     .max_batch = 4,
     .n_inputs = 2,
     .n_outputs = 1,
     .inputs = sides,
     .outputs = &sum},
    {.batched = true, .max_batch = 8, .n_inputs = 1, .n_outputs = 1, .inputs = &u, .outputs = &v},
    {.max_batch = 1, .n_inputs = 1, .n_outputs = 1, .inputs = &p, .outputs = &q},
    {.batched = true,
     .max_batch = 8,
     .n_inputs = 2,
     .n_outputs = 1,
     .n_free = 1,
     .inputs = masked,
     .outputs = &free_y,
     .input_axes = seq,
     .output_axes = seq,
     .free = &short_range},
    {.batched = true,
     .max_batch = 8,
     .n_inputs = 1,
     .n_outputs = 1,
     .n_free = 1,
     .inputs = &long_x,
     .outputs = &long_y,
     .input_axes = seq,
     .output_axes = plain,
     .free = &long_range},
    {.batched = true,
     .max_batch = 8,
     .n_inputs = 2,
     .n_outputs = 1,
     .inputs = scaled,
     .outputs = &scaled_y,
     .input_axes = second,
     .output_axes = second},
    {.late = true, .max_batch = 1, .n_inputs = 1, .n_outputs = 1, .inputs = &p, .outputs = &late_y},
};

static const char *const inner[] = {
    "platform: 'ensemble' input { name: 'x' } output { name: 'y' } ensemble_scheduling {"
    " step { model_name: 'a' input_map { key: 'x' value: 'x' }"
    "        output_map { key: 'y' value: 't' } }"
    " step { model_name: 'a' input_map { key: 'x' value: 't' }"
    "        output_map { key: 'y' value: 'y' } } }",
    "platform: 'ensemble' input { name: 'x' } input { name: 'm' } output { name: 'y' }"
    " ensemble_scheduling {"
    " step { model_name: 'e' input_map { key: 'x' value: 'x' }"
    "        input_map { key: 'm' value: 'm' } output_map { key: 'y' value: 't' } }"
    " step { model_name: 'e' input_map { key: 'x' value: 't' }"
    "        input_map { key: 'm' value: 'm' } output_map { key: 'y' value: 'y' } } }"};

enum { MODELS = ARRAY_LEN(infos) + ARRAY_LEN(inner) };

static struct model models[MODELS];
static struct table *table;

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void model_put(uint32_t i, const char *name, const struct engine_info *info)
{
    atomic_init(&models[i].refs, 1); /* never given back, so none is retired */
    models[i].info = info;
    models[i].max_batch = models[i].max_instances = info->max_batch;
    must(table_add(table, name, "1", MODEL_READY, "", &models[i]));
    atomic_fetch_add(&models[i].refs, 1);
    table_sort(table);
}

static void inner_put(uint32_t i, const char *name)
{
    const char *text = inner[i - ARRAY_LEN(infos)];
    struct model_file *file = NULL;
    struct pipeline *pipeline = NULL;
    must(!model_file_parse("inner", text, strlen(text), name, NULL, &file, NULL));
    must(!pipeline_bind(table, file, &pipeline, NULL));
    model_file_free(file);
    models[i].pipeline = pipeline;
    model_put(i, name, &pipeline->info);
}

struct table *bound_table(void)
{
    static const char *const names[MODELS] = {"a", "b", "c", "w", "e", "f", "t", "l", "d", "g"};
    struct config *config = table ? NULL : config_new();
    if (table)
        return table;
    must(config && (table = table_new(config, MODELS)));
    for (uint32_t i = 0; i < ARRAY_LEN(infos); i++)
        model_put(i, names[i], &infos[i]);
    for (uint32_t i = ARRAY_LEN(infos); i < MODELS; i++)
        inner_put(i, names[i]);
    config_free(config);
    return table;
}

void bound_end(void)
{
    table_unref(table);
    for (uint32_t i = ARRAY_LEN(infos); i < MODELS; i++)
        pipeline_free(models[i].pipeline);
    memset(models, 0, sizeof(models));
    table = NULL;
}

/* --- what must hold --- */

/* A tensor is what a step takes, as far as it is known without a request. */
static void value_check(const struct pipeline *pipe, const struct pipeline_value *value,
                        const struct engine_info *info, uint32_t k)
{
    const struct engine_binding *binding = &info->inputs[k];
    const struct engine_axes *axes = engine_input_axes(info, k), none = {0};
    must(value->dtype == binding->dtype && value->users > 0);
    must(value->shape.rank == binding->shape.rank);
    for (uint32_t d = 0; d < value->shape.rank; d++) {
        int64_t have = value->shape.dim[d], want = binding->shape.dim[d];
        uint32_t number = value->axes.free[d];
        bool counts = pipe->info.batched && !value->axes.shared && d == value->axes.batch;
        must(have >= 0 || value->open || number || counts);
        must(number <= pipe->info.n_free && !(number && have >= 0));
        must(want < 0 || have < 0 || have == want);
        if (counts) /* the model does so there, too */
            must(info->batched && d == (axes ? axes : &none)->batch);
    }
}

static void step_check(const struct pipeline *pipe, uint32_t s, const bool *made)
{
    const struct pipeline_step *step = &pipe->steps[s];
    const struct engine_info *info = step->model->info;
    must(!step->model->pipeline && step->group < pipe->n_groups && *step->name);
    for (uint32_t k = 0; k < info->n_inputs; k++) {
        must(step->inputs[k] < pipe->n_values && made[step->inputs[k]]);
        value_check(pipe, &pipe->values[step->inputs[k]], info, k);
    }
}

static void outputs_make(const struct pipeline *pipe, uint32_t s, bool *made)
{
    const struct pipeline_step *step = &pipe->steps[s];
    for (uint32_t k = 0; k < step->model->info->n_outputs; k++) {
        uint32_t at = step->outputs[k];
        if (at == PIPELINE_NONE)
            continue;
        must(at < pipe->n_values && !made[at] && pipe->values[at].maker == s);
        must(pipe->values[at].users > 0);
        made[at] = true;
    }
}

static bool is_due(const struct pipeline *pipe, uint32_t s, const bool *made)
{
    for (uint32_t k = 0; k < pipe->steps[s].model->info->n_inputs; k++)
        if (!made[pipe->steps[s].inputs[k]])
            return false;
    return true;
}

void bound_check(const struct pipeline *pipe)
{
    static const int64_t ones[ENGINE_MAX_FREE] = {1, 1, 1, 1, 1, 1, 1, 1};
    bool made[4096] = {false}, done[PIPELINE_STEPS_MOST] = {false};
    must(pipe->n_steps >= 1 && pipe->n_steps <= PIPELINE_STEPS_MOST);
    must(pipe->n_values <= ARRAY_LEN(made) && pipe->depth <= PIPELINE_DEPTH_MOST);
    must(pipe->max_batch >= 1 && pipe->info.n_outputs >= 1);
    must(pipe->info.n_free <= ENGINE_MAX_FREE && !pipe->info.n_points);
    for (uint32_t i = 0; i < pipe->info.n_free; i++)
        must(pipe->info.free[i].low < pipe->info.free[i].high);
    must(pipeline_run_bytes(pipe, 1, ones) > 0);
    for (uint32_t i = 0; i < pipe->info.n_inputs; i++)
        made[i] = true;
    for (uint32_t left = pipe->n_steps, before = 0; left;) {
        must(left != before); /* each round does a step at least */
        before = left;
        for (uint32_t s = 0; s < pipe->n_steps; s++) {
            if (done[s] || !is_due(pipe, s, made))
                continue;
            step_check(pipe, s, made);
            outputs_make(pipe, s, made);
            done[s] = true;
            left--;
        }
    }
    for (uint32_t i = 0; i < pipe->info.n_outputs; i++)
        must(made[pipe->outputs[i]] && pipe->values[pipe->outputs[i]].maker != PIPELINE_NONE);
}
