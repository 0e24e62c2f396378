/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl build: an ONNX model becomes a plan file. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "tools/build_report.h"
#include "tools/cleanup.h"
#include "tools/exactness.h"
#include "tools/handed.h"
#include "tools/inferctl.h"
#include "tools/model.h"
#include "tools/output.h"
#include "tools/types.h"

struct build_args {
    struct model_args model;
    const char *output;
    struct arg_u32s batches;
    bool sensitivity;
};

static const struct arg options[] = {
    {"output", 'o', ARG_TEXT, offsetof(struct build_args, output), "FILE", "the plan (required)"},
    {"batch", 0, ARG_U32S, offsetof(struct build_args, batches), "1,2,4",
     "a profile for each of these (default: 1,2,4,8,16,32)"},
    {"sensitivity", 0, ARG_FLAG, offsetof(struct build_args, sensitivity), NULL,
     "list layers in short types by their error, and what they gain"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl build MODEL.onnx -o MODEL.plan [options]",
    .what = "Makes a plan for a device: imports, fuses, times every layer's candidates there.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = MODEL_TABLES(struct build_args, model),
};

/* --precision only names the lowest type that is allowed, so the summary says which types the
 * layers of the largest batch really compute in. */
static void print_summary(const struct build_args *args, const struct plan *plan, uint64_t ns)
{
    char types[TYPES_TEXT_MAX];
    size_t layers = 0, arena = 0, host = 0;
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        const struct ir_graph *graph = plan->profiles[i].graph;
        layers = MAX(layers, (size_t)graph->n_nodes);
        size_t here = 0;
        for (uint32_t k = 0; k < graph->n_segments; k++) {
            arena = MAX(arena, graph->segments[k].arena_bytes);
            here += strcmp(graph->segments[k].backend, "cpu") ? 0 : graph->segments[k].count;
        }
        host = MAX(host, here);
    }
    const struct plan_profile *largest = &plan->profiles[plan->n_profiles - 1];
    printf("%s: %u profile%s up to batch %u, %zu layers%s, arena %.1f MiB, precision %s (%s), "
           "%.1f s\n",
           args->output, plan->n_profiles, plan->n_profiles == 1 ? "" : "s", largest->batch, layers,
           host && host < layers ? ", some of them on the CPU" : "", (double)arena / (1 << 20),
           args->model.precision ? args->model.precision : "fp32",
           types_format(largest->graph, types), (double)ns / NS_PER_S);
}

/* The file that a signal would leave unfinished. Relaxed: the handler runs on a thread of this
 * process, and the writer does not change while this points to it. */
static _Atomic(const struct file_writer *) unfinished;

static void on_signal(int number)
{
    const struct file_writer *writer = atomic_load_explicit(&unfinished, memory_order_relaxed);
    if (writer)
        file_writer_abandon(writer);
    _exit(128 + number);
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

/* A signal that is ignored stays ignored, as under nohup. */
static void handle_signals(void)
{
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct sigaction action = {.sa_handler = on_signal}, was;
        if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            sigaction(ends[i], &action, NULL);
    }
}

/* Signals are blocked until the handler knows of the temporary. */
static enum status try_writer(const char *output, struct file_writer **out, struct error *err)
{
    sigset_t those, before;
    sigemptyset(&those);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        sigaddset(&those, ends[i]);
    sigprocmask(SIG_BLOCK, &those, &before);
    enum status status = file_writer_new(output, false, out, err);
    if (!status)
        atomic_store_explicit(&unfinished, *out, memory_order_relaxed);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void unfinished_cleanup(struct file_writer **writer)
{
    atomic_store_explicit(&unfinished, NULL, memory_order_relaxed);
    file_writer_free(*writer);
}

enum { LOOK_US = 50000 }; /* time between two looks whether another build of the plan has ended */

static enum status open_plan(const struct build_args *args, const char *from,
                             struct file_writer **out, struct error *err)
{
    const char *output = args->output;
    struct handed handed;
    if (handed_parse(output, &handed))
        return file_writer_new_fd(handed.fd, "the plan", out, err);
    enum status status;
    TRY(output_check(output, from, &args->model, err));
    handle_signals();
    while ((status = try_writer(output, out, err)) == STATUS_UNAVAILABLE)
        usleep(LOOK_US);
    TRY(status);
    file_writer_sweep(*out); /* temporaries of builds that were killed */
    return STATUS_OK;
}

/* The writer is opened before the work, so that two builds of one plan take turns and a folder that
 * cannot be written to is found at once. */
static enum status build(const struct build_args *args, const char *from, struct error *err)
{
    struct log_sink log = model_log(&args->model);
    struct build_report report;
    uint64_t begin = clock_now_ns();
    CLEANUP(unfinished_cleanup) struct file_writer *writer = NULL;
    CLEANUP(device_cleanup) struct device *device = NULL;
    CLEANUP(plan_cleanup) struct plan *plan = NULL;
    TRY(open_plan(args, from, &writer, err));
    TRY(model_device_open(&args->model, NULL, &log, &device, err));
    TRY(model_build(from, &args->model, device, &log, &args->batches, &report, &plan, err));
    TRY(plan_write_to(writer, plan, err));
    print_summary(args, plan, clock_now_ns() - begin);
    build_report_print(plan, &report, args->model.verbose > 0);
    return STATUS_OK;
}

int command_build(int argc, char **argv)
{
    struct build_args args = {0};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (args.sensitivity)
        args.model.sensitivity = exactness_sensitivity;
    if (!args.output) {
        fprintf(stderr, "inferctl build: -o FILE is required\n");
        return EXIT_USAGE;
    }
    struct handed handed;
    bool is_handed = handed_parse(args.output, &handed);
    enum status status = is_handed && !handed_seal()
                             ? error_set(&err, STATUS_INTERNAL, "the kernel has no seccomp")
                             : build(&args, files.list[0], &err);
    if (!status)
        return EXIT_OK;
    int failed = command_failed("build", &err);
    return is_handed ? EXIT_HANDED + (int)err.cause : failed;
}
