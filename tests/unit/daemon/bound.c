/* SPDX-License-Identifier: Apache-2.0 */
/* See bound.h. */
#include "tests/unit/daemon/bound.h"

#include <stdlib.h>
#include <string.h>

enum { MODELS = 5 };

static const struct engine_binding x = {"x", DTYPE_F32, {2, {-1, 4}}, 16},
                                   y = {"y", DTYPE_F32, {2, {-1, 4}}, 16},
                                   sides[] = {{"l", DTYPE_F32, {2, {-1, 4}}, 16},
                                              {"r", DTYPE_F32, {2, {-1, 4}}, 16}},
                                   sum = {"sum", DTYPE_F32, {2, {-1, 4}}, 16},
                                   u = {"u", DTYPE_U8, {2, {-1, 3}}, 3},
                                   v = {"v", DTYPE_I64, {3, {-1, 2, 2}}, 32},
                                   p = {"p", DTYPE_F32, {2, {1, 4}}, 16},
                                   q = {"q", DTYPE_F32, {2, {1, 4}}, 16};

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
};

static const char inner[] =
    "platform: 'ensemble' input { name: 'x' } output { name: 'y' } ensemble_scheduling {"
    " step { model_name: 'a' input_map { key: 'x' value: 'x' }"
    "        output_map { key: 'y' value: 't' } }"
    " step { model_name: 'a' input_map { key: 'x' value: 't' }"
    "        output_map { key: 'y' value: 'y' } } }";

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

struct table *bound_table(void)
{
    static const char *const names[] = {"a", "b", "c", "w"};
    struct config *config = table ? NULL : config_new();
    struct model_file *file = NULL;
    struct pipeline *pipeline = NULL;
    if (table)
        return table;
    must(config && (table = table_new(config, MODELS)));
    for (uint32_t i = 0; i < ARRAY_LEN(infos); i++)
        model_put(i, names[i], &infos[i]);
    must(!model_file_parse("inner", inner, sizeof(inner) - 1, "d", NULL, &file, NULL));
    must(!pipeline_bind(table, file, &pipeline, NULL));
    model_file_free(file);
    models[ARRAY_LEN(infos)].pipeline = pipeline;
    model_put(ARRAY_LEN(infos), "d", &pipeline->info);
    config_free(config);
    return table;
}

void bound_end(void)
{
    table_unref(table);
    pipeline_free(models[ARRAY_LEN(infos)].pipeline);
    memset(models, 0, sizeof(models));
    table = NULL;
}

/* --- what must hold --- */

static void step_check(const struct pipeline *pipe, uint32_t s, const bool *made)
{
    const struct pipeline_step *step = &pipe->steps[s];
    const struct engine_info *info = step->model->info;
    uint32_t instances = step->instances ? step->instances : 1;
    must(!step->model->pipeline && step->group < pipe->n_groups && *step->name);
    must(step->instances <= step->model->max_instances);
    must(step->instances || pipe->info.batched);
    for (uint32_t k = 0; k < info->n_inputs; k++) {
        const struct pipeline_value *value = &pipe->values[step->inputs[k]];
        must(step->inputs[k] < pipe->n_values && made[step->inputs[k]]);
        must(value->dtype == info->inputs[k].dtype && value->users > 0);
        must(value->bytes == info->inputs[k].instance_bytes * (info->batched ? instances : 1));
        must(value->counted == !step->instances);
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
    bool made[4096] = {false}, done[PIPELINE_STEPS_MOST] = {false};
    must(pipe->n_steps >= 1 && pipe->n_steps <= PIPELINE_STEPS_MOST);
    must(pipe->n_values <= ARRAY_LEN(made) && pipe->depth <= PIPELINE_DEPTH_MOST);
    must(pipe->max_batch >= 1 && pipe->info.n_outputs >= 1);
    must(pipeline_run_bytes(pipe, 1) > 0);
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
