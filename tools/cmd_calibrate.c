/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl calibrate: runs a model on samples of real data, and writes what its tensors held as a
 * table of ranges for builds with 8 bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/target.h"
#include "engine/quant/method.h"
#include "tools/cleanup.h"
#include "tools/dataset.h"
#include "tools/inferctl.h"
#include "tools/model.h"
#include "tools/output.h"
#include "tools/show.h"

struct calibrate_args {
    struct model_args model;
    const char *data, *output, *method;
    uint32_t batches;
};

static const struct arg options[] = {
    {"data", 'd', ARG_TEXT, offsetof(struct calibrate_args, data), "FOLDER",
     "samples in .npy files (required)"},
    {"output", 'o', ARG_TEXT, offsetof(struct calibrate_args, output), "TABLE",
     "the table of ranges (required)"},
    {"method", 0, ARG_TEXT, offsetof(struct calibrate_args, method), "M",
     "entropy (default), minmax, percentile or percentile=P (of 99.99)"},
    {"batches", 0, ARG_U32, offsetof(struct calibrate_args, batches), "N",
     "take the first N files of each input (default: all)"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl calibrate MODEL.onnx --data FOLDER -o TABLE [options]",
    .what = "Runs a model on real data and writes which ranges its tensors need in 8 bits.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = {{model_device_options, offsetof(struct calibrate_args, model), NULL},
               {model_import_options, offsetof(struct calibrate_args, model), NULL},
               {model_developer_options, offsetof(struct calibrate_args, model),
                "For tests of inferd itself:"}},
};

enum { SPARSE_S = 20 }; /* between lines that are not on a terminal */

struct run {
    const struct calibrate_args *args;
    const char *model;
    struct model_args model_args; /* with what the data say of open dimensions */
    char dims[ARG_LIST_MAX][96];
    enum quant_method method;
    double percentile;
    struct onnx_survey *survey;
    uint32_t n_inputs; /* of the model */
    const char *names[IR_MAX_IO];
    struct dataset *data;
    bool terminal;
    uint64_t begun_ns, next_ns;
};

static void survey_cleanup(struct onnx_survey **survey)
{
    onnx_survey_free(*survey);
}

/* --- what the data say of the model --- */

static bool is_bound(const struct model_args *args, const char *dim)
{
    size_t n = strlen(dim);
    for (uint32_t i = 0; i < args->dims.n; i++)
        if (!strncmp(args->dims.list[i], dim, n) && args->dims.list[i][n] == '=')
            return true;
    return false;
}

/* Binds the open dimensions of an input, but the first, to those of its first file. */
static enum status guess_dims(struct run *r, const struct onnx_model *model, uint32_t input,
                              struct error *err)
{
    const struct onnx_survey_value *value = &r->survey->inputs[input];
    struct model_args *args = &r->model_args;
    struct tensor_view t;
    TRY(dataset_peek(r->data, input, &t, err));
    uint32_t shift = t.shape.rank + 1 == value->rank ? 1 : 0; /* a sample without its dimension */
    for (uint32_t axis = 1; value->has_shape && axis < value->rank; axis++) {
        const char *dim = onnx_input_dim(model, value->name, axis);
        if (!dim || strlen(dim) > 64 || axis - shift >= t.shape.rank || is_bound(args, dim) ||
            args->dims.n == ARG_LIST_MAX)
            continue;
        char *text = r->dims[args->dims.n];
        snprintf(text, sizeof(r->dims[0]), "%s=%lld", dim, (long long)t.shape.dim[axis - shift]);
        args->dims.list[args->dims.n++] = text;
    }
    return STATUS_OK;
}

static enum status open_data(struct run *r, struct error *err)
{
    CLEANUP(onnx_cleanup) struct onnx_model *model = NULL;
    TRY(model_survey(r->model, &r->args->model, 1, &r->survey, err));
    r->n_inputs = MIN(r->survey->n_inputs, (uint32_t)IR_MAX_IO); /* an import refuses more */
    for (uint32_t i = 0; i < r->n_inputs; i++)
        r->names[i] = r->survey->inputs[i].name;
    TRY(dataset_open(r->args->data, r->names, r->n_inputs, r->args->batches, &r->data, err));
    TRY(onnx_open(r->model, &model, err));
    for (uint32_t i = 0; i < r->n_inputs; i++)
        TRY(guess_dims(r, model, i, err));
    return STATUS_OK;
}

/* --- the samples --- */

static void progress(struct run *r, uint64_t samples)
{
    uint64_t now = clock_now_ns();
    double part = dataset_part(r->data);
    char left[48] = "";
    if (now < r->next_ns)
        return;
    r->next_ns = now + (r->terminal ? 100 * NS_PER_MS : SPARSE_S * (uint64_t)NS_PER_S);
    if (part > 0.02)
        snprintf(left, sizeof(left), ", about %.0f s left",
                 (double)(now - r->begun_ns) / NS_PER_S * (1 - part) / part + 0.5);
    fprintf(stderr, "%scalibrating: %.0f%%, %llu samples%s%s", r->terminal ? "\r\033[K" : "",
            100 * part, (unsigned long long)samples, left, r->terminal ? "" : "\n");
}

static enum status run_samples(struct run *r, struct calibration *calibration, struct error *err)
{
    struct dataset_want want[IR_MAX_IO];
    uint32_t place[IR_MAX_IO] = {0};
    const void *data[IR_MAX_IO] = {0}, *inputs[IR_MAX_IO] = {0};
    dataset_wants(r->names, r->n_inputs, calibration_graph(calibration), false, want, place);
    r->begun_ns = clock_now_ns();
    r->next_ns = r->terminal ? 0 : r->begun_ns + SPARSE_S * (uint64_t)NS_PER_S;
    for (uint64_t samples = 0;; samples++) {
        bool end = true;
        TRY(dataset_next(r->data, want, data, &end, err));
        if (end)
            return STATUS_OK;
        for (uint32_t i = 0; i < r->n_inputs; i++)
            if (place[i] != IR_NONE)
                inputs[place[i]] = data[i];
        enum status status = calibration_add(calibration, inputs, err);
        if (status) {
            error_prefix(err, "%.200s", dataset_file(r->data));
            return status;
        }
        progress(r, samples + 1);
    }
}

static void print_report(const struct run *r, const struct calibration_report *report)
{
    /* Not among the lines of the table. */
    FILE *to = target_is_stdout(r->args->output) ? stderr : stdout;
    char method[32];
    quant_method_format(r->method, r->percentile, method);
    fprintf(to, "%s: %u tensors from %llu sample%s by %s, %.1f s\n", r->args->output,
            report->tensors, (unsigned long long)report->samples, report->samples == 1 ? "" : "s",
            method, (double)(clock_now_ns() - r->begun_ns) / NS_PER_S);
    if (report->infinite)
        show_fprintf(
            to, "  %u tensor%s held infinite numbers or NaN and %s kept as floats: '%.80s'%s\n",
            report->infinite, report->infinite == 1 ? "" : "s",
            report->infinite == 1 ? "is" : "are", report->first_infinite,
            report->infinite == 1 ? "" : ", ...");
    if (report->empty)
        fprintf(to, "  %u tensor%s 0 in all samples: the range 0..1 is a guess\n", report->empty,
                report->empty == 1 ? " was" : "s were");
}

static enum status fill(void *user, struct calibration *calibration, struct error *err)
{
    struct run *r = user;
    struct calibration_report report;
    CLEANUP(quant_table_cleanup) struct quant_table *table = NULL;
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    enum status status = run_samples(r, calibration, err);
    if (r->terminal)
        fputs("\r\033[K", stderr);
    TRY(status);
    TRY(calibration_table(calibration, r->method, r->percentile, &table, &report, err));
    const char *slash = strrchr(r->model, '/');
    TRY(file_writer_new_text(r->args->output, &writer, err));
    TRY(quant_table_write(writer, table, slash ? slash + 1 : r->model, err));
    print_report(r, &report);
    return STATUS_OK;
}

static enum status calibrate(struct run *r, struct error *err)
{
    struct log_sink log = model_log(&r->args->model);
    CLEANUP(device_cleanup) struct device *device = NULL;
    if (model_is_plan(r->model))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%.200s is a plan: calibrate the model that it was built from", r->model);
    TRY(output_check(r->args->output, r->model, &r->args->model, err));
    TRY(quant_method_parse(r->args->method ? r->args->method : "entropy", &r->method,
                           &r->percentile, err));
    TRY(open_data(r, err));
    TRY(file_writer_try_text(r->args->output, err));
    TRY(model_device_open(&r->args->model, NULL, &log, &device, err));
    return model_calibrate(r->model, &r->model_args, device, &log, fill, r, err);
}

static void run_deinit(struct run *r)
{
    dataset_close(r->data);
    survey_cleanup(&r->survey);
}

int command_calibrate(int argc, char **argv)
{
    struct calibrate_args args = {0};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (!args.data || !args.output) {
        fprintf(stderr, "inferctl calibrate: %s is required\n",
                args.data ? "-o TABLE" : "--data FOLDER");
        return EXIT_USAGE;
    }
    CLEANUP(run_deinit)
    struct run r = {.args = &args,
                    .model = files.list[0],
                    .model_args = args.model,
                    .terminal = isatty(STDERR_FILENO)};
    return calibrate(&r, &err) ? command_failed("calibrate", &err) : EXIT_OK;
}
