/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine in a process of one's own: runs a plan on numbers, several times, and prints the
 * outputs; with a third argument also what each layer of the last batch took. C and C++ alike.
 *
 *   cc run_plan.c $(pkg-config --cflags --libs inferd-engine)
 *   ./a.out digits.plan cpu layers
 */
#include <stdio.h>
#include <stdlib.h>

#include <inferd_engine.h>

enum { RUNS = 3, INPUTS_MAX = 64, SHOWN = 10 };

struct app {
    struct inferd_engine_device *device;
    struct inferd_engine_plan *plan;
    struct inferd_engine_context *ctx;
    void *inputs[INPUTS_MAX];
    struct inferd_engine_plan_info info;
};

static void show_line(void *user, enum inferd_engine_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level == INFERD_ENGINE_LOG_ERROR ? "error: " : "", line);
}

static void show_layer(void *user, uint32_t index, const struct inferd_engine_layer *layer)
{
    (void)user;
    printf("layer %u: %s, %s, %.1f us\n", index, layer->name, layer->tactic,
           (double)layer->time_ns / 1000);
}

/* Memory for one instance of each input: 0, 1, 2, .. if it is fp32, else zeros. */
static enum inferd_engine_status make_input(struct app *app, uint32_t index,
                                            struct inferd_engine_error *err)
{
    struct inferd_engine_tensor t = inferd_engine_tensor_init();
    enum inferd_engine_status status = inferd_engine_plan_input(app->plan, index, &t, err);
    if (!status)
        status = inferd_engine_buffer_take(app->device, t.instance_bytes, &app->inputs[index], err);
    if (status)
        return status;
    memset(app->inputs[index], 0, t.instance_bytes);
    for (size_t i = 0; t.dtype == INFERD_ENGINE_FP32 && i < t.instance_bytes / sizeof(float); i++)
        ((float *)app->inputs[index])[i] = (float)(i % 16);
    return inferd_engine_bind_input(app->ctx, index, app->inputs[index], t.instance_bytes, 0, NULL,
                                    err);
}

static enum inferd_engine_status print_output(const struct app *app, uint32_t index,
                                              struct inferd_engine_error *err)
{
    struct inferd_engine_tensor t = inferd_engine_tensor_init();
    struct inferd_engine_view y = inferd_engine_view_init();
    enum inferd_engine_status status = inferd_engine_plan_output(app->plan, index, &t, err);
    if (!status)
        status = inferd_engine_output(app->ctx, index, &y, err);
    if (status)
        return status;
    size_t n = y.bytes / sizeof(float);
    printf("%s %s:", t.name, inferd_engine_dtype_name(y.dtype));
    for (size_t i = 0; i < n && i < SHOWN && y.dtype == INFERD_ENGINE_FP32; i++)
        printf(" %g", (double)((const float *)y.data)[i]);
    printf("%s\n", n > SHOWN ? " ..." : "");
    return INFERD_ENGINE_OK;
}

static enum inferd_engine_status open_plan(struct app *app, const char *path, const char *device,
                                           struct inferd_engine_error *err)
{
    struct inferd_engine_device_options options = inferd_engine_device_options_init();
    options.plan = path; /* the CPU has as many threads as the plan was built for */
    options.log = show_line;
    options.log_level = INFERD_ENGINE_LOG_INFO;
    enum inferd_engine_status status =
        inferd_engine_device_open(device, &options, &app->device, err);
    if (!status)
        status = inferd_engine_plan_load(app->device, path, &app->plan, err);
    if (!status)
        status = inferd_engine_plan_describe(app->plan, &app->info, err);
    if (!status)
        status = inferd_engine_context_new(app->plan, NULL, &app->ctx, err);
    for (uint32_t i = 0; !status && i < app->info.n_inputs && i < INPUTS_MAX; i++)
        status = make_input(app, i, err);
    return status;
}

static enum inferd_engine_status run(struct app *app, int layers, struct inferd_engine_error *err)
{
    struct inferd_engine_times times = inferd_engine_times_init();
    enum inferd_engine_status status = INFERD_ENGINE_OK;
    for (int i = 0; i < RUNS && !status; i++) {
        if (layers && i == RUNS - 1)
            status = inferd_engine_profile_layers(app->ctx, show_layer, NULL, err);
        if (!status)
            status = inferd_engine_enqueue(app->ctx, err);
        if (!status)
            status = inferd_engine_wait(app->ctx, &times, err);
    }
    for (uint32_t i = 0; i < app->info.n_outputs && !status; i++)
        status = print_output(app, i, err);
    if (!status)
        printf("computed in %.1f us\n", (double)times.compute_ns / 1000);
    return status;
}

int main(int argc, char **argv)
{
    struct inferd_engine_error err;
    struct app app;
    memset(&app, 0, sizeof(app));
    app.info = inferd_engine_plan_info_init();
    if (argc < 3) {
        fprintf(stderr, "usage: %s PLAN DEVICE [layers]\n", argv[0]);
        return 2;
    }
    enum inferd_engine_status status = open_plan(&app, argv[1], argv[2], &err);
    if (!status)
        status = run(&app, argc > 3, &err);
    if (status)
        fprintf(stderr, "%s: %s\n", inferd_engine_status_name(err.status), err.text);
    inferd_engine_context_free(app.ctx);
    for (int i = 0; i < INPUTS_MAX && app.device; i++)
        inferd_engine_buffer_give(app.device, app.inputs[i]);
    inferd_engine_plan_free(app.plan);
    inferd_engine_device_close(app.device);
    return status != INFERD_ENGINE_OK;
}
