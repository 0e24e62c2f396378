/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch of one costs through the installed library: `library_cost PLAN DEVICE SECONDS PAUSE`
 * sleeps PAUSE microseconds between two batches, as a worker does between two requests of a client
 * who waits for each, and prints in microseconds the mean of the times that the engine says of a
 * batch (input and compute), and the median of what the caller sees, from bind to output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <inferd_engine.h>

enum { SAMPLES = 1 << 20, INPUTS_MAX = 64 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct inferd_engine_error err;

static void must(enum inferd_engine_status status)
{
    if (status) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static struct inferd_engine_context *make(const char *path, const char *spec, uint32_t *n,
                                          void **inputs, size_t *bytes)
{
    struct inferd_engine_device *device;
    struct inferd_engine_plan *plan;
    struct inferd_engine_context *ctx;
    struct inferd_engine_plan_info info = inferd_engine_plan_info_init();
    struct inferd_engine_device_options options = inferd_engine_device_options_init();
    options.plan = path;
    must(inferd_engine_device_open(spec, &options, &device, &err));
    must(inferd_engine_plan_load(device, path, &plan, &err));
    must(inferd_engine_context_new(plan, NULL, &ctx, &err));
    must(inferd_engine_plan_describe(plan, &info, &err));
    *n = info.n_inputs;
    for (uint32_t i = 0; i < info.n_inputs && i < INPUTS_MAX; i++) {
        struct inferd_engine_tensor t = inferd_engine_tensor_init();
        must(inferd_engine_plan_input(plan, i, &t, &err));
        bytes[i] = t.instance_bytes;
        must(inferd_engine_buffer_take(device, bytes[i], &inputs[i], &err));
        memset(inputs[i], 0, bytes[i]);
    }
    return ctx;
}

/* *own: the time that the engine says; returns the time that the caller sees. */
static double batch(struct inferd_engine_context *ctx, uint32_t n, void *const *inputs,
                    const size_t *bytes, double *own)
{
    struct inferd_engine_times times = inferd_engine_times_init();
    struct inferd_engine_view y = inferd_engine_view_init();
    double begin = now_us();
    for (uint32_t i = 0; i < n; i++)
        must(inferd_engine_bind_input(ctx, i, inputs[i], bytes[i], 0, NULL, &err));
    must(inferd_engine_enqueue(ctx, &err));
    must(inferd_engine_wait(ctx, &times, &err));
    must(inferd_engine_output(ctx, 0, &y, &err));
    *own = (double)(times.input_ns + times.compute_ns) / 1e3;
    return now_us() - begin;
}

int main(int argc, char **argv)
{
    void *inputs[INPUTS_MAX];
    size_t bytes[INPUTS_MAX], k = 0;
    uint32_t n;
    static double own[SAMPLES], seen[SAMPLES];
    if (argc != 5)
        return 2;
    struct inferd_engine_context *ctx = make(argv[1], argv[2], &n, inputs, bytes);
    const struct timespec pause = {.tv_nsec = strtol(argv[4], NULL, 10) * 1000};
    double end = now_us() + strtod(argv[3], NULL) * 1e6;
    for (int i = 0; i < 20; i++)
        batch(ctx, n, inputs, bytes, &own[0]);
    for (; k < SAMPLES && now_us() < end; k++) {
        if (pause.tv_nsec)
            nanosleep(&pause, NULL);
        seen[k] = batch(ctx, n, inputs, bytes, &own[k]);
    }
    double sum = 0;
    for (size_t i = 0; i < k; i++)
        sum += own[i];
    qsort(seen, k, sizeof(*seen), compare);
    printf("%.3f %.3f\n", sum / (double)k, seen[k / 2]);
    inferd_engine_context_free(ctx);
    return 0;
}
