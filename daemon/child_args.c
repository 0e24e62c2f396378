/* SPDX-License-Identifier: Apache-2.0 */
/* See child_args.h. */
#include "daemon/child_args.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/restart.h"
#include "daemon/child_confine.h"

enum { ARGS_MAX = 64, ARGS_OF_INPUT = 6, PLUGINS_OF_BUILD = 16 };

/* "NAME=1,2,3" */
static char *text_of_numbers(const char *name, const float *values, uint32_t n)
{
    size_t size = strlen(name) + 2 + (size_t)n * 24, used;
    char *text = malloc(size);
    if (!text)
        return NULL;
    used = (size_t)snprintf(text, size, "%s=", name);
    for (uint32_t i = 0; i < n; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.9g", i ? "," : "", (double)values[i]);
    return text;
}

static char *text_of_type(const char *name, const char *type)
{
    size_t size = strlen(name) + strlen(type) + 2;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%s=%s", name, type);
    return text;
}

/* Appends option and text at *n. False: `text` is NULL, since there was no memory for it. */
static bool append(struct child_args *args, uint32_t *n, uint32_t *texts, char *option, char *text)
{
    if (!text)
        return false;
    args->texts[(*texts)++] = text;
    args->argv[(*n)++] = option;
    args->argv[(*n)++] = text;
    return true;
}

static bool inputs_fill(struct child_args *args, const struct child_build *build, uint32_t *n)
{
    static char type[] = "--input-type", scale[] = "--input-scale", bias[] = "--input-bias";
    uint32_t t = 0;
    for (uint32_t i = 0; i < build->n_inputs; i++) {
        const struct config_input *in = &build->inputs[i];
        if ((in->type && !append(args, n, &t, type, text_of_type(in->name, in->type))) ||
            (in->scale_count &&
             !append(args, n, &t, scale, text_of_numbers(in->name, in->scale, in->scale_count))) ||
            (in->bias_count &&
             !append(args, n, &t, bias, text_of_numbers(in->name, in->bias, in->bias_count))))
            return false;
    }
    return true;
}

static uint32_t sizes_count(const struct child_build *build)
{
    uint32_t n = 0;
    for (uint32_t k = 0; build->sizes && k < CONFIG_SIZE_COUNT_; k++)
        n += build->sizes[k].count;
    return n;
}

static void sizes_fill(struct child_args *args, const struct child_build *build, uint32_t *n)
{
#define SIZE_OPTION(number, key, option) option,
    static const char *const options[] = {CONFIG_SIZES(SIZE_OPTION)};
#undef SIZE_OPTION
    for (uint32_t k = 0; build->sizes && k < CONFIG_SIZE_COUNT_; k++)
        for (uint32_t i = 0; i < build->sizes[k].count; i++) {
            args->argv[(*n)++] = (char *)(uintptr_t)options[k];
            args->argv[(*n)++] = build->sizes[k].items[i];
        }
}

static void limits_fill(struct child_args *args, const struct child_build *build, uint32_t *n)
{
    const struct {
        const char *option;
        uint64_t bytes;
    } sizes[] = {{"--max-bytes", build->max_bytes}, {"--workspace", build->workspace}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (!sizes[i].bytes)
            continue;
        snprintf(args->limits[i], sizeof(args->limits[i]), "%llu",
                 (unsigned long long)sizes[i].bytes);
        args->argv[(*n)++] = (char *)(uintptr_t)sizes[i].option;
        args->argv[(*n)++] = args->limits[i];
    }
    static char fraction[] = "--memory-fraction";
    if (!build->memory_percent)
        return;
    snprintf(args->limits[2], sizeof(args->limits[2]), "%.2f", build->memory_percent / 100.0);
    args->argv[(*n)++] = fraction;
    args->argv[(*n)++] = args->limits[2];
}

static bool argv_fill(struct child_args *args, const struct child_build *build)
{
    uint32_t n = 0;
    args->argv =
        calloc(ARGS_MAX + (size_t)ARGS_OF_INPUT * build->n_inputs + 2 * (size_t)sizes_count(build),
               sizeof(*args->argv));
    args->texts = calloc(1 + (size_t)ARGS_OF_INPUT * build->n_inputs, sizeof(*args->texts));
    if (!args->argv || !args->texts)
        return false;
    snprintf(args->plan, sizeof(args->plan), "fd:%d", CHILD_PLAN_AT);
    if (build->folder >= 0)
        snprintf(args->model, sizeof(args->model), "fd:%d,%d:%s", CHILD_MODEL_AT, CHILD_FOLDER_AT,
                 build->name);
    else
        snprintf(args->model, sizeof(args->model), "fd:%d:%s", CHILD_MODEL_AT, build->name);
    const char *const fixed[] = {"inferctl",       "build",    args->model,   "-o",
                                 args->plan,       "--device", build->device, "--no-tune",
                                 "--timing-cache", "",         "--threads"};
    for (; n < ARRAY_LEN(fixed); n++)
        args->argv[n] = (char *)(uintptr_t)fixed[n];
    snprintf(args->threads, sizeof(args->threads), "%u", build->threads);
    args->argv[n++] = args->threads;
    static char reference[] = "--reference-only", batch[] = "--batch", precision[] = "--precision",
                plugin[] = "--plugin";
    if (build->precision) {
        args->argv[n++] = precision;
        args->argv[n++] = (char *)(uintptr_t)build->precision;
    }
    limits_fill(args, build, &n);
    for (uint32_t i = 0; i < MIN(build->n_plugins, (uint32_t)PLUGINS_OF_BUILD); i++) {
        args->argv[n++] = plugin;
        args->argv[n++] = build->plugins[i];
    }
    if (build->reference)
        args->argv[n++] = reference;
    size_t used = 0;
    for (uint32_t i = 0; i < build->n_batches && used + 12 < sizeof(args->batches); i++)
        used += (size_t)snprintf(args->batches + used, sizeof(args->batches) - used, "%s%u",
                                 i ? "," : "", build->batches[i]);
    if (used) {
        args->argv[n++] = batch;
        args->argv[n++] = args->batches;
    }
    if (!inputs_fill(args, build, &n))
        return false;
    sizes_fill(args, build, &n);
    args->argv[n] = NULL;
    return true;
}

bool child_args_init(struct child_args *args, const struct child_build *build)
{
    *args = (struct child_args){0};
    if (argv_fill(args, build))
        return true;
    child_args_deinit(args);
    return false;
}

void child_args_deinit(struct child_args *args)
{
    for (uint32_t i = 0; args->texts && args->texts[i]; i++)
        free(args->texts[i]);
    free(args->texts);
    free(args->argv);
    *args = (struct child_args){0};
}

/* The child does not inherit OpenMP's variables that bind threads to cores, because the daemon's
 * own threads run on those cores. */
static bool is_inherited(const char *entry)
{
    static const char *const prefixes[] = {
        "LD_LIBRARY_PATH=",
        "LANG=",
        "LC_",
        "TZ=",
        "OMP_STACK",
        "GLIBC_",
        "MALLOC_",
        "DNNL_",
        "ONEDNN_",
        "CUDA_",
        "CUDNN_",
        "CUBLAS",
        "NVIDIA_",
        "INFERD_MODULE_DIR=",
        "ASAN_",
        "UBSAN_",
    };
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

char **child_environment_new(void)
{
    /* Waiting threads must sleep, and inferctl would otherwise start itself again to have them do
     * so. The driver must cache nothing in files. A leak check would have to trace the process. */
    static const char spins[] = "GOMP_SPINCOUNT=" RESTART_SPINS;
    static const char *const own[] = {"OMP_WAIT_POLICY=passive", spins, "CUDA_CACHE_DISABLE=1",
                                      "LSAN_OPTIONS=detect_leaks=0"};
    size_t n = 0, used = 0;
    while (environ && environ[n])
        n++;
    char **envp = calloc(n + ARRAY_LEN(own) + 1, sizeof(*envp));
    if (!envp)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        envp[used++] = (char *)(uintptr_t)own[i]; /* the first of two with one name counts */
    for (size_t i = 0; i < n; i++)
        if (is_inherited(environ[i]))
            envp[used++] = environ[i];
    return envp;
}
