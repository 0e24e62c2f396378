/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the offline commands share: the options about device and building, and a model ready to run
 * from either an ONNX file (built on the fly into a temporary plan) or a plan.
 */
#ifndef INFERD_TOOLS_MODEL_H
#define INFERD_TOOLS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/ir/ir.h"
#include "engine/plan/plan.h"
#include "tools/args.h"

struct model_args {
    const char *device, *precision, *timing_cache, *fault;
    struct arg_texts dims;
    struct arg_texts input_types, input_scales, input_biases; /* of a .onnx */
    uint32_t threads;
    uint64_t max_bytes; /* 0: the machine's memory */
    bool no_tune, reference_only;
    bool track_memory; /* from the opening of the device on; no option of its own */
    uint32_t verbose;  /* 1: info, 2: everything */
};

/* Rows for a command's option table; `type` has a struct model_args called `member`. */
#define MODEL_ARG(type, member, field) offsetof(type, member) + offsetof(struct model_args, field)
#define MODEL_ARGS(type, member)                                                                   \
    {"device", 0,                                                                                  \
     ARG_TEXT, MODEL_ARG(type, member, device),                                                    \
     "DEVICE", "cpu (default), cuda, cuda:N"},                                                     \
        {"threads", 0,                                                                             \
         ARG_U32,   MODEL_ARG(type, member, threads),                                              \
         "N",       "CPU: threads of one stream (default: one a core)"},                           \
        {"precision", 0,                                                                           \
         ARG_TEXT,    MODEL_ARG(type, member, precision),                                          \
         "P",         "lowest allowed: fp32 (default), tf32, fp16, bf16"},                         \
        {"dim",     0,                                                                             \
         ARG_TEXTS, MODEL_ARG(type, member, dims),                                                 \
         "NAME=N",  "value of another symbolic dimension"},                                        \
        {"input-type", 0,                                                                          \
         ARG_TEXTS,    MODEL_ARG(type, member, input_types),                                       \
         "NAME=T",     "a float input that clients send as uint8 or fp16"},                        \
        {"input-scale", 0,                                                                         \
         ARG_TEXTS,     MODEL_ARG(type, member, input_scales),                                     \
         "NAME=S,..",   "its value is S times what is sent; one S, or one a channel"},             \
        {"input-bias", 0,                                                                          \
         ARG_TEXTS,    MODEL_ARG(type, member, input_biases),                                      \
         "NAME=B,..",  "plus B; one, or one a channel"},                                           \
        {"max-bytes", 0,                                                                           \
         ARG_BYTES,   MODEL_ARG(type, member, max_bytes),                                          \
         "N[MiB]",    "memory a profile may need (default: the machine's)"},                       \
        {"timing-cache", 0,                                                                        \
         ARG_TEXT,       MODEL_ARG(type, member, timing_cache),                                    \
         "FILE",         "known times (default: in the user's cache; '': none)"},                  \
        {"no-tune", 0,                                                                             \
         ARG_FLAG,  MODEL_ARG(type, member, no_tune),                                              \
         NULL,      "time nothing: heuristics, or what the cache knows"},                          \
        {"reference-only",                                                                         \
         0,                                                                                        \
         ARG_FLAG,                                                                                 \
         MODEL_ARG(type, member, reference_only),                                                  \
         NULL,                                                                                     \
         "CPU: plain kernels only, to compare with"},                                              \
        {"fault",  0,                                                                              \
         ARG_TEXT, MODEL_ARG(type, member, fault),                                                 \
         "SCRIPT", "device fault: what goes wrong (engine/runtime/fault.h)"},                      \
    {                                                                                              \
        "verbose", 'v', ARG_COUNT, MODEL_ARG(type, member, verbose), NULL,                         \
            "say what was fused; twice: and what was not, and why"                                 \
    }

/* The file is a plan (by its first bytes). */
bool model_is_plan(const char *path);

/* Prints to stderr by args->verbose; warnings always. */
struct log_sink model_log(const struct model_args *args);

/* `plan`: the plan it is for, or NULL; without --threads the device gets the plan's number. */
enum status model_device_open(const struct model_args *args, const char *plan,
                              const struct log_sink *log, struct device **out, struct error *err);

/* Builds a plan of an ONNX file, with progress if stderr is a terminal. `batches` may be empty: the
 * default list. The timing cache is loaded before and saved after. */
enum status model_build(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, const struct arg_u32s *batches,
                        struct plan **out, struct error *err);

/* The graph of an ONNX file for one batch size, before or after the passes. */
enum status model_graph(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, uint32_t batch, bool fused,
                        struct ir_graph **out, struct error *err);

/* A plan, or an ONNX file built with these batches, on a device. */
struct model {
    struct log_sink log;
    struct device *device;
    struct engine *engine;
    uint64_t load_ns; /* to read the plan and upload its weights */
};

enum status model_open(struct model *model, const char *path, const struct model_args *args,
                       const struct arg_u32s *batches, struct error *err);
void model_close(struct model *model);

#endif
