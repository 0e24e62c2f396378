/* SPDX-License-Identifier: Apache-2.0 */
/* Models for the offline commands; see model.h. */
#include "tools/model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/names.h"
#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/runtime/memory.h"
#include "tools/cleanup.h"
#include "tools/guard_data.h"
#include "tools/handed.h"
#include "tools/pins.h"

#define FIELD(name) offsetof(struct model_args, name)
#define NO_MORE                                                                                    \
    {                                                                                              \
        NULL, 0, ARG_FLAG, 0, NULL, NULL                                                           \
    }

/* clang-format off */
const struct arg model_device_options[] = {
    {"device", 0, ARG_TEXT, FIELD(device), "DEVICE", "cpu (default), cuda, cuda:N"},
    {"threads", 0, ARG_U32, FIELD(threads), "N",
     "CPU: threads of one stream (default: one a core)"},
    {"plugin", 0, ARG_TEXTS, FIELD(plugins), "FILE.so",
     "ops of one's own (inferd_plugin.h); may be given several times"},
    {"verbose", 'v', ARG_COUNT, FIELD(verbose), NULL,
     "say more of a build; -vv: each fusion; -vvv: each candidate"},
    NO_MORE,
};

const struct arg model_import_options[] = {
    {"dim", 0, ARG_TEXTS, FIELD(dims), "NAME=N",
     "value of a symbolic dimension, not the batch; NAME may be INPUT:AXIS"},
    {"shape", 0, ARG_TEXTS, FIELD(shapes), "NAME=R",
     "what an input's dimensions may be, such as ids=1..32x1..512; * says nothing"},
    {"profiles", 0, ARG_TEXTS, FIELD(profiles), "NAME=N,..",
     "sizes of such a dimension that get profiles (default: powers of two up to the most)"},
    {"value", 0, ARG_TEXTS, FIELD(values), "NAME=V",
     "the value of an input, which is a constant from then on: V, or V,V,.."},
    {"ragged", 0, ARG_TEXTS, FIELD(ragged), "INPUT,..",
     "inputs [sequences,tokens,..], with their mask, that run without padding: --batch counts "
     "tokens"},
    {"input-type", 0, ARG_TEXTS, FIELD(input_types), "NAME=T",
     "a float input that clients send as uint8 or fp16"},
    {"input-scale", 0, ARG_TEXTS, FIELD(input_scales), "NAME=S,..",
     "its value is S times what is sent; one S, or one a channel"},
    {"input-bias", 0, ARG_TEXTS, FIELD(input_biases), "NAME=B,..",
     "plus B; one, or one a channel"},
    {"output-type", 0, ARG_TEXTS, FIELD(output_types), "NAME=T",
     "what clients get a float output as: fp16, or the uint8 or int8 that the model has it from"},
    NO_MORE,
};

const struct arg model_tune_options[] = {
    {"precision", 0, ARG_TEXT, FIELD(precision), "P",
     "lowest type allowed for layers: fp32 (default), tf32, fp16, bf16, int8, fp8"},
    {"max-error", 0, ARG_TEXT, FIELD(max_error), "E|none",
     "most relative error beside fp32 (default: fp16 0.02, bf16 0.1, 8 bits 0.15)"},
    {"data", 0, ARG_TEXT, FIELD(data), "FOLDER",
     "samples in .npy files to measure that error on (default: random numbers)"},
    {"ranges", 0, ARG_TEXTS, FIELD(ranges), "TABLE",
     "int8, fp8: what tensors hold, from inferctl calibrate or by hand; the last one counts"},
    {"missing-ranges", 0, ARG_TEXT, FIELD(missing_ranges), "WHAT",
     "keep: what has no range stays a float; error (default): refuse it"},
    {"pin", 0, ARG_TEXTS, FIELD(pin), "LAYER=WHAT",
     "what layers run on, such as conv*=fp16, fc=cpu, head=!cublaslt*, *=~int8"},
    {"keep", 0, ARG_TEXTS, FIELD(keep), "LAYER,..", "layers that stay in their own types"},
    {"max-bytes", 0, ARG_BYTES, FIELD(max_bytes), "N[MiB]",
     "most memory a profile may need (default: the device's)"},
    {"memory-fraction", 0, ARG_F64, FIELD(memory_fraction), "F",
     "the same as a part of the device's memory, such as 0.25"},
    {"workspace", 0, ARG_BYTES, FIELD(workspace), "N[MiB]",
     "most scratch memory that a layer's kernel may need (default: any)"},
    {"timing-cache", 0, ARG_TEXT, FIELD(timing_cache), "FILE",
     "keeps layer times (default: in the user's cache; '': none)"},
    {"no-tune", 0, ARG_FLAG, FIELD(no_tune), NULL,
     "time nothing: take what the cache knows, or heuristics"},
    {"retune", 0, ARG_FLAG, FIELD(retune), NULL, "time all, whatever the cache knows"},
    {"thorough", 0, ARG_FLAG, FIELD(thorough), NULL,
     "on a GPU: compile and time each kernel, also those that promise little"},
    {"min-segment", 0, ARG_U32, FIELD(min_segment), "N",
     "on a GPU: leave runs of fewer layers than N to the CPU"},
    NO_MORE,
};

const struct arg model_developer_options[] = {
    {"reference-only", 0, ARG_FLAG, FIELD(reference_only), NULL,
     "CPU: plain kernels only, to compare with"},
    {"fault", 0, ARG_TEXT, FIELD(fault), "SCRIPT",
     "device fault: what goes wrong (engine/runtime/fault.h)"},
    NO_MORE,
};
/* clang-format on */

enum status model_args_check(const struct model_args *args, const char *plan, struct error *err)
{
    const char *given = args_given(model_import_options, args);
    given = given ? given : args_given(model_tune_options, args);
    if (!given)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID_ARGUMENT,
        "--%s says how a model is built, and %.200s is a plan: build it again with this option",
        given, plan);
}

bool model_is_plan(const char *path)
{
    struct file_map map;
    if (file_map_path(path, 0, &map, NULL))
        return false;
    bool is = map.size >= 8 && !memcmp(map.data, "INFERDPL", 8);
    file_unmap(&map);
    return is;
}

static void write_log(void *user UNUSED, enum log_level level, const char *line)
{
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    fprintf(stderr, "%s%s%s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", names[level], line);
}

struct log_sink model_log(const struct model_args *args)
{
    enum log_level level = args->verbose < 2    ? LOG_WARNING
                           : args->verbose == 2 ? LOG_INFO
                                                : LOG_VERBOSE;
    return (struct log_sink){.level = level, .write = write_log};
}

enum status model_plugins_load(const struct model_args *args, struct error *err)
{
    for (uint32_t i = 0; i < args->plugins.n; i++)
        TRY(engine_plugin_load(args->plugins.list[i], err));
    return STATUS_OK;
}

enum status model_device_open(const struct model_args *args, const char *plan,
                              const struct log_sink *log, struct device **out, struct error *err)
{
    uint32_t threads = args->threads;
    const char *name = args->device ? args->device : "cpu";
    if (args->fault && strcmp(name, "fault") != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--fault is for --device fault, not %.64s",
                         name);
    if (args->reference_only && !strncmp(name, "cuda", strlen("cuda")))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--reference-only is for the CPU: %.64s has no plain kernels", name);
    if (!threads && plan)
        engine_plan_threads(plan, &threads, NULL); /* engine_load says what is wrong with it */
    struct device_options options = {
        .threads = threads,
        .reference_only = args->reference_only,
        .script = args->fault,
        .log = log,
    };
    TRY(model_plugins_load(args, err));
    return engine_device_open(name, &options, out, err);
}

/* --- building --- */

enum { SPARSE_S = 20 }; /* between lines that are not on a terminal */

struct progress {
    bool terminal;
    uint64_t begun_ns, next_ns;
    double part;
};

static void show_progress(void *user, const struct build_progress *at)
{
    struct progress *p = user;
    uint64_t now = clock_now_ns();
    char left[48] = "", point[48] = "";
    p->part = MAX(p->part, MIN(at->part, 0.99)); /* something is always left to do */
    if (now < p->next_ns)
        return;
    p->next_ns = now + (p->terminal ? 100 * NS_PER_MS : SPARSE_S * (uint64_t)NS_PER_S);
    if (p->part > 0.02)
        snprintf(left, sizeof(left), ", about %.0f s left",
                 (double)(now - p->begun_ns) / NS_PER_S * (1 - p->part) / p->part + 0.5);
    if (at->points > 1)
        snprintf(point, sizeof(point), ", shape %u/%u", at->point, at->points);
    fprintf(stderr, "%sbuilding: %.0f%%%s; batch %u%s: %s %u/%u%s", p->terminal ? "\r\033[K" : "",
            100 * p->part, left, at->batch, point, at->what, at->done, at->total,
            p->terminal ? "" : "\n");
}

static enum status parse_precision(const struct model_args *args, enum precision *out,
                                   struct error *err)
{
    const char *name;
    struct names names;
    if (!args->precision)
        return STATUS_OK;
    names_init(&names, args->precision, strlen(args->precision));
    for (int i = 0; (name = precision_name((enum precision)i)); i++) {
        names_add(&names, name);
        if (strcmp(args->precision, name) != 0)
            continue;
        *out = (enum precision)i;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID_ARGUMENT, "--precision '%.64s': there are %s",
                     args->precision, names_text(&names));
}

static enum status parse_max_error(const struct model_args *args, struct build_options *out,
                                   struct error *err)
{
    const char *text = args->max_error;
    if (!text)
        return STATUS_OK;
    if (!strcmp(text, "none")) {
        out->guard = args->sensitivity ? BUILD_GUARD_MEASURE : BUILD_GUARD_OFF;
        return STATUS_OK;
    }
    if (!args_f64(text, &out->max_error) || !isfinite(out->max_error) || out->max_error <= 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--max-error '%.64s': a number above 0 was expected, or none", text);
    return STATUS_OK;
}

/* The tables in one; *out stays NULL if none is given. */
static enum status read_ranges(const struct model_args *args, struct quant_table **out,
                               struct error *err)
{
    for (uint32_t i = 0; i < args->ranges.n; i++) {
        CLEANUP(quant_table_cleanup) struct quant_table *table = NULL;
        TRY(quant_table_read(args->ranges.list[i], &table, err));
        enum status status = *out ? quant_table_merge(*out, table, err) : STATUS_OK;
        if (status) {
            error_prefix(err, "--ranges %.200s", args->ranges.list[i]);
            return status;
        }
        if (!*out)
            *out = STEAL(table);
    }
    return STATUS_OK;
}

static enum status parse_ranges(const struct model_args *args, struct quant_table **table,
                                struct build_options *options, struct error *err)
{
    const char *missing = args->missing_ranges ? args->missing_ranges : "error";
    const char *given = args->ranges.n ? "ranges" : args->missing_ranges ? "missing-ranges" : NULL;
    if (given && !precision_is_8bit(options->precision))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--%s goes with --precision int8 or fp8, not with %s", given,
                         precision_name(options->precision));
    options->keep_missing = strcmp(missing, "keep") == 0;
    if (!options->keep_missing && strcmp(missing, "error") != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--missing-ranges '%.40s': known are keep and error", missing);
    TRY(read_ranges(args, table, err));
    options->ranges = *table;
    return STATUS_OK;
}

/* What the model's dimensions and inputs are, as the command line says. */
struct wishes {
    struct onnx_dim dims[ARG_LIST_MAX];
    struct onnx_value values[ARG_LIST_MAX];
    struct build_range ranges[ARG_LIST_MAX];
    struct build_sizes sizes[ARG_LIST_MAX];
    char names[ARG_LIST_MAX][BUILD_NAME_MAX], value_names[ARG_LIST_MAX][BUILD_NAME_MAX];
    struct build_ragged ragged;
    char ragged_names[ARG_LIST_MAX][BUILD_NAME_MAX];
    const char *ragged_list[ARG_LIST_MAX];
};

/* "ids,mask": names with commas between. */
static enum status parse_ragged(const char *text, struct wishes *w, struct error *err)
{
    struct build_ragged *ragged = &w->ragged;
    for (const char *at = text; at; ragged->n++) {
        size_t len = strcspn(at, ",");
        if (!len || len >= BUILD_NAME_MAX || ragged->n == ARG_LIST_MAX)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--ragged '%.64s': the form is INPUT, or INPUT,INPUT", text);
        memcpy(w->ragged_names[ragged->n], at, len);
        w->ragged_list[ragged->n] = w->ragged_names[ragged->n];
        for (uint32_t i = 0; i < ragged->n; i++)
            if (!strcmp(w->ragged_names[i], w->ragged_names[ragged->n]))
                return error_set(err, STATUS_INVALID_ARGUMENT, "--ragged '%s': given twice",
                                 w->ragged_names[i]);
        at = at[len] ? at + len + 1 : NULL;
    }
    ragged->inputs = w->ragged_list;
    return STATUS_OK;
}

static enum status parse_dims(const struct model_args *args, struct wishes *w, struct error *err)
{
    for (uint32_t i = 0; i < args->dims.n; i++) {
        const char *value;
        uint32_t n;
        if (!args_split(args->dims.list[i], w->names[i], BUILD_NAME_MAX, &value) ||
            !args_u32(value, &n))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--dim '%s': the form is NAME=N, or INPUT:AXIS=N", args->dims.list[i]);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(w->names[k], w->names[i]))
                return error_set(err, STATUS_INVALID_ARGUMENT,
                                 "--dim '%s': given twice; dimensions of one name are told apart "
                                 "as INPUT:AXIS",
                                 w->names[i]);
        w->dims[i] = (struct onnx_dim){w->names[i], n};
    }
    return STATUS_OK;
}

static enum status parse_values(const struct model_args *args, struct wishes *w, struct error *err)
{
    for (uint32_t i = 0; i < args->values.n; i++) {
        const char *text;
        if (!args_split(args->values.list[i], w->value_names[i], BUILD_NAME_MAX, &text) || !*text)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--value '%s': the form is INPUT=V, or INPUT=V,V",
                             args->values.list[i]);
        w->values[i] = (struct onnx_value){.name = w->value_names[i], .text = text};
    }
    return STATUS_OK;
}

static enum status wishes_parse(const struct model_args *args, struct wishes *w, struct error *err)
{
    TRY(parse_dims(args, w, err));
    TRY(parse_values(args, w, err));
    for (uint32_t i = 0; i < args->shapes.n; i++)
        TRY(build_range_parse(args->shapes.list[i], &w->ranges[i], err));
    for (uint32_t i = 0; i < args->profiles.n; i++)
        TRY(build_sizes_parse(args->profiles.list[i], &w->sizes[i], err));
    for (uint32_t i = 0; i < args->ragged.n; i++)
        TRY(parse_ragged(args->ragged.list[i], w, err));
    return STATUS_OK;
}

/* --- served inputs --- */

enum { SERVED_NUMBERS_MAX = 8192 };

struct served {
    struct build_input list[ARG_LIST_MAX];
    char names[ARG_LIST_MAX][128];
    float numbers[SERVED_NUMBERS_MAX]; /* scales and biases of all of them */
    uint32_t n, n_numbers;
    struct build_output outputs[ARG_LIST_MAX];
    char output_names[ARG_LIST_MAX][128];
    uint32_t n_outputs;
};

/* Finds or makes the entry of that name; `rest` is what stands behind "NAME=". */
static enum status served_entry(struct served *s, const char *option, const char *text,
                                struct build_input **out, const char **rest, struct error *err)
{
    char name[sizeof(s->names[0])];
    if (!args_split(text, name, sizeof(name), rest) || !**rest)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--%s '%s': the form is NAME=VALUE", option,
                         text);
    uint32_t i = 0;
    while (i < s->n && strcmp(s->names[i], name) != 0)
        i++;
    if (i == ARG_LIST_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--%s: at most %d inputs", option,
                         ARG_LIST_MAX);
    if (i == s->n) {
        memcpy(s->names[i], name, sizeof(name));
        s->list[s->n++] = (struct build_input){.name = s->names[i]};
    }
    *out = &s->list[i];
    return STATUS_OK;
}

static enum status served_numbers(struct served *s, const char *option, const char *text,
                                  const char *from, const float **out, uint32_t *n,
                                  struct error *err)
{
    if (*n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--%s '%s': given twice", option, text);
    *out = &s->numbers[s->n_numbers];
    for (;;) {
        char *end;
        float value = strtof(from, &end);
        if (end == from || (*end && *end != ','))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--%s '%s': numbers separated by commas were expected", option, text);
        if (s->n_numbers == SERVED_NUMBERS_MAX)
            return error_set(err, STATUS_INVALID_ARGUMENT, "--%s: more than %d numbers", option,
                             SERVED_NUMBERS_MAX);
        s->numbers[s->n_numbers++] = value;
        ++*n;
        if (!*end)
            return STATUS_OK;
        from = end + 1;
    }
}

static enum status parse_types(const struct model_args *args, struct served *s, struct error *err)
{
    for (uint32_t i = 0; i < args->input_types.n; i++) {
        const char *text = args->input_types.list[i], *rest;
        struct build_input *input;
        TRY(served_entry(s, "input-type", text, &input, &rest, err));
        if (input->dtype != DTYPE_NONE)
            return error_set(err, STATUS_INVALID_ARGUMENT, "--input-type '%s': given twice", text);
        input->dtype = build_served_type(rest);
        if (input->dtype == DTYPE_NONE)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--input-type '%s': known are uint8 and fp16", text);
    }
    return STATUS_OK;
}

static enum status parse_outputs(const struct model_args *args, struct served *s, struct error *err)
{
    for (uint32_t i = 0; i < args->output_types.n; i++) {
        const char *text = args->output_types.list[i], *rest = "";
        char *name = s->output_names[i];
        bool ok = args_split(text, name, sizeof(s->output_names[i]), &rest);
        s->outputs[i] = (struct build_output){name, build_served_output_type(rest)};
        if (!ok || s->outputs[i].dtype == DTYPE_NONE)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--output-type '%s': the form is NAME=fp16, =uint8 or =int8", text);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(s->output_names[k], name))
                return error_set(err, STATUS_INVALID_ARGUMENT, "--output-type '%s': given twice",
                                 text);
    }
    s->n_outputs = args->output_types.n;
    return STATUS_OK;
}

static enum status parse_served(const struct model_args *args, struct served *s, struct error *err)
{
    TRY(parse_types(args, s, err));
    TRY(parse_outputs(args, s, err));
    struct build_input *input;
    const char *rest;
    for (uint32_t i = 0; i < args->input_scales.n; i++) {
        const char *text = args->input_scales.list[i];
        TRY(served_entry(s, "input-scale", text, &input, &rest, err));
        TRY(served_numbers(s, "input-scale", text, rest, &input->scale, &input->n_scale, err));
    }
    for (uint32_t i = 0; i < args->input_biases.n; i++) {
        const char *text = args->input_biases.list[i];
        TRY(served_entry(s, "input-bias", text, &input, &rest, err));
        TRY(served_numbers(s, "input-bias", text, rest, &input->bias, &input->n_bias, err));
    }
    return STATUS_OK;
}

/* The path of ~/.cache/inferd/timing.cache, whose folder is made. False: there is no place. */
static bool default_cache(char *out, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[512];
    int n;
    if (xdg && *xdg == '/')
        n = snprintf(folder, sizeof(folder), "%s", xdg);
    else if (home && *home == '/')
        n = snprintf(folder, sizeof(folder), "%s/.cache", home);
    else
        return false;
    if (n < 0 || (size_t)n >= sizeof(folder) - 16 || (mkdir(folder, 0700) && errno != EEXIST))
        return false;
    memcpy(folder + n, "/inferd", sizeof("/inferd"));
    if (mkdir(folder, 0700) && errno != EEXIST) /* inferd keeps plans there, for itself alone */
        return false;
    return snprintf(out, size, "%s/timing.cache", folder) < (int)size;
}

/* Everything that building needs, taken from the command line. */
struct setup {
    struct build_options options;
    struct wishes *wishes;
    char cache_path[600];
    struct progress progress;
    struct device
        *host; /* for nodes that the device has no kernel for; NULL if the device is the CPU */
    struct served served;
    struct pins pins;
    struct quant_table *ranges;
    struct onnx_survey *survey; /* of the model, if there are data; else NULL */
    struct guard_data *data;
};

/* Also of a setup that is all zeros, or whose setup_init has failed. */
static void setup_deinit(struct setup *s)
{
    free(s->wishes);
    pins_deinit(&s->pins);
    tune_cache_free(s->options.cache);
    quant_table_free(s->ranges);
    guard_data_close(s->data);
    onnx_survey_free(s->survey);
    engine_device_close(s->host);
}

/* A GPU's memory is what a plan's weights and tensors need, so it bounds them. */
static enum status set_memory(const struct model_args *args, struct device *device,
                              struct build_options *out, struct error *err)
{
    uint64_t all = device && device->backend->memory_total ? device->backend->memory_total(device)
                                                           : machine_memory();
    if (args->memory_fraction < 0 || args->memory_fraction > 1)
        return error_set(
            err, STATUS_INVALID_ARGUMENT,
            "--memory-fraction %g: a part of the device's memory was expected, at most "
            "1",
            args->memory_fraction);
    if (args->memory_fraction > 0)
        all = (uint64_t)((double)all * args->memory_fraction);
    bool both = args->max_bytes && args->memory_fraction > 0;
    out->max_bytes = both ? MIN(args->max_bytes, all) : args->max_bytes ? args->max_bytes : all;
    if (args->max_bytes || args->memory_fraction > 0)
        out->workspace = args->workspace ? MIN(args->workspace, out->max_bytes) : out->max_bytes;
    return STATUS_OK;
}

static enum status setup_init(struct setup *s, const struct model_args *args, struct device *device,
                              const struct log_sink *log, struct error *err)
{
    *s = (struct setup){.progress = {.terminal = isatty(STDERR_FILENO)}};
    s->progress.begun_ns = clock_now_ns();
    s->wishes = calloc(1, sizeof(*s->wishes));
    if (!s->wishes)
        return error_no_memory(err, "the builder");
    if (!s->progress.terminal)
        s->progress.next_ns = s->progress.begun_ns + SPARSE_S * (uint64_t)NS_PER_S;
    s->options = (struct build_options){
        .device = device,
        .evaluator = {.eval = cpu_eval_node},
        .dims = s->wishes->dims,
        .n_dims = args->dims.n,
        .values = s->wishes->values,
        .n_values = args->values.n,
        .shapes = s->wishes->ranges,
        .n_shapes = args->shapes.n,
        .sizes = s->wishes->sizes,
        .n_sizes = args->profiles.n,
        .inputs = s->served.list,
        .outputs = s->served.outputs,
        .workspace = args->workspace,
        .pins = &s->pins.made,
        .no_timing = args->no_tune,
        .retune = args->retune,
        .thorough = args->thorough,
        .min_segment = args->min_segment,
        .sensitivity = args->sensitivity,
        .log = log,
        .progress = show_progress,
        .user = &s->progress,
    };
    if (args->min_segment && device && device->backend->host_memory)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--min-segment: all layers run on this device, '%s'; it is for a GPU",
                         device->backend->name);
    TRY(model_plugins_load(args, err));
    TRY(set_memory(args, device, &s->options, err));
    TRY(parse_precision(args, &s->options.precision, err));
    TRY(pins_parse(&args->pin, &args->keep, s->options.precision, &s->pins, err));
    TRY(parse_max_error(args, &s->options, err));
    TRY(parse_ranges(args, &s->ranges, &s->options, err));
    TRY(wishes_parse(args, s->wishes, err));
    TRY(parse_served(args, &s->served, err));
    s->options.ragged = args->ragged.n ? &s->wishes->ragged : NULL;
    s->options.n_inputs = s->served.n;
    s->options.n_outputs = s->served.n_outputs;
    if (device && !device->backend->host_memory)
        TRY(backend_host_open(device, &s->host, err));
    s->options.host = s->host;
    return STATUS_OK;
}

static enum status load_cache(struct setup *s, const struct model_args *args, struct error *err)
{
    const char *path = args->timing_cache;
    if (!path && default_cache(s->cache_path, sizeof(s->cache_path)))
        path = s->cache_path;
    else if (path && strlen(path) < sizeof(s->cache_path))
        memcpy(s->cache_path, path, strlen(path) + 1);
    else if (path)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--timing-cache: the path is too long");
    if (!path || !*path)
        return tune_cache_new(s->options.device, &s->options.cache, err);
    return tune_cache_load(path, s->options.device, s->options.log, &s->options.cache, err);
}

static enum status open_data(struct setup *s, const char *path, const struct model_args *args,
                             struct error *err)
{
    if (!args->data)
        return STATUS_OK;
    TRY(model_survey(path, args, 1, &s->survey, err));
    TRY(guard_data_open(args->data, s->survey, &s->data, err));
    s->options.samples = guard_data_source(s->data);
    return STATUS_OK;
}

static enum status open_onnx(const char *path, struct onnx_model **out, struct error *err)
{
    struct handed handed;
    if (handed_parse(path, &handed))
        return onnx_open_fd(handed.fd, handed.folder, handed.name, out, err);
    return onnx_open(path, out, err);
}

static enum status import_and_build(const char *path, const struct build_options *options,
                                    struct plan **out, struct error *err)
{
    CLEANUP(onnx_cleanup) struct onnx_model *model = NULL;
    TRY(open_onnx(path, &model, err));
    return build_plan(model, options, out, err);
}

enum status model_build(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, const struct arg_u32s *batches,
                        struct build_report *report, struct plan **out, struct error *err)
{
    CLEANUP(setup_deinit) struct setup setup = {0};
    struct error why;
    TRY(setup_init(&setup, args, device, log, err));
    TRY(open_data(&setup, path, args, err));
    TRY(load_cache(&setup, args, err));
    setup.options.report = report;
    if (batches->n) {
        setup.options.batches = batches->list;
        setup.options.n_batches = batches->n;
    }
    enum status status = import_and_build(path, &setup.options, out, err);
    if (setup.progress.terminal)
        fputs("\r\033[K", stderr);
    /* Times are worth keeping even if the build has failed. A cache that cannot be written costs a
     * later build some time, and nothing else. */
    if (setup.cache_path[0] && tune_cache_save(setup.options.cache, setup.cache_path, &why))
        log_write(log, LOG_WARNING, "timing cache: %s", why.text);
    return status;
}

enum status model_graph(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, uint32_t batch, bool fused,
                        struct ir_graph **out, struct error *err)
{
    CLEANUP(setup_deinit) struct setup setup = {0};
    CLEANUP(onnx_cleanup) struct onnx_model *model = NULL;
    TRY(setup_init(&setup, args, device, log, err));
    TRY(onnx_open(path, &model, err));
    return build_graph(model, &setup.options, batch, fused, out, err);
}

enum status model_calibrate(const char *path, const struct model_args *args, struct device *device,
                            const struct log_sink *log,
                            enum status (*fill)(void *user, struct calibration *calibration,
                                                struct error *err),
                            void *user, struct error *err)
{
    CLEANUP(setup_deinit) struct setup setup = {0};
    CLEANUP(onnx_cleanup) struct onnx_model *model = NULL;
    CLEANUP(calibration_cleanup) struct calibration *calibration = NULL;
    TRY(setup_init(&setup, args, device, log, err));
    TRY(onnx_open(path, &model, err));
    TRY(calibration_new(model, &setup.options, &calibration, err));
    return fill(user, calibration, err);
}

enum status model_survey(const char *path, const struct model_args *args, uint32_t batch,
                         struct onnx_survey **out, struct error *err)
{
    CLEANUP(onnx_cleanup) struct onnx_model *model = NULL;
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
    CLEANUP(cleanup_free) struct wishes *w = calloc(1, sizeof(*w));
    struct build_space space;
    if (!arena || !w)
        return error_no_memory(err, "a survey");
    TRY(wishes_parse(args, w, err));
    TRY(model_plugins_load(args, err));
    TRY(onnx_open(path, &model, err));
    const struct build_wishes wishes = {.dims = w->dims,
                                        .n_dims = args->dims.n,
                                        .ranges = w->ranges,
                                        .n_ranges = args->shapes.n,
                                        .sizes = w->sizes,
                                        .n_sizes = args->profiles.n};
    TRY(build_space_find(model, &wishes, arena, &space, err));
    const struct onnx_options options = {.batch = batch,
                                         .dims = space.dims,
                                         .n_dims = space.n_dims,
                                         .values = w->values,
                                         .n_values = args->values.n,
                                         .evaluator = {.eval = cpu_eval_node}};
    return onnx_survey(model, &options, out, err);
}

/* --- running --- */

static enum status load(struct model *model, const char *path, struct error *err)
{
    uint64_t begin_ns = clock_now_ns();
    enum status status = engine_load(model->device, path, &model->engine, err);
    model->load_ns = clock_now_ns() - begin_ns;
    return status;
}

/* Opens a file without a name, so that nothing is left however this process ends. */
static enum status open_nameless(int *out, struct error *err)
{
    const char *tmp = getenv("TMPDIR");
    char path[256];
    if (snprintf(path, sizeof(path), "%s/inferctl-XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
        (int)sizeof(path))
        return error_set(err, STATUS_INVALID_ARGUMENT, "TMPDIR is too long");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "a file for the plan: %s", path);
    unlink(path);
    *out = fd;
    return STATUS_OK;
}

/* The file may go at the end: the engine has read it. */
static enum status build_and_load(struct model *model, const char *path,
                                  const struct model_args *args, const struct arg_u32s *batches,
                                  struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    CLEANUP(plan_cleanup) struct plan *plan = NULL;
    char name[32];
    TRY(open_nameless(&fd, err));
    TRY(file_writer_new_fd(fd, "the plan", &writer, err));
    TRY(model_build(path, args, model->device, &model->log, batches, NULL, &plan, err));
    TRY(plan_write_to(writer, plan, err));
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return load(model, name, err);
}

static enum status open_steps(struct model *model, const char *path, const struct model_args *args,
                              const struct arg_u32s *batches, struct error *err)
{
    bool plan = model_is_plan(path);
    if (plan)
        TRY(model_args_check(args, path, err));
    TRY(model_device_open(args, plan ? path : NULL, &model->log, &model->device, err));
    if (args->track_memory)
        TRY(memory_track_start(model->device, err));
    return plan ? load(model, path, err) : build_and_load(model, path, args, batches, err);
}

enum status model_open(struct model *model, const char *path, const struct model_args *args,
                       const struct arg_u32s *batches, struct error *err)
{
    *model = (struct model){.log = model_log(args)};
    enum status status = open_steps(model, path, args, batches, err);
    if (status)
        model_close(model);
    return status;
}

void model_close(struct model *model)
{
    engine_unref(model->engine);
    engine_device_close(model->device);
    model->engine = NULL;
    model->device = NULL;
}
