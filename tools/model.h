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
#include "engine/build/build.h"
#include "engine/build/calibrate.h"
#include "engine/engine.h"
#include "engine/import/onnx.h"
#include "engine/ir/ir.h"
#include "engine/plan/plan.h"
#include "tools/args.h"

struct model_args {
    const char *device, *precision, *timing_cache, *fault, *max_error, *data;
    struct arg_texts dims, shapes, profiles, values, ragged;
    struct arg_texts input_types, input_scales, input_biases, output_types; /* of a .onnx */
    struct arg_texts ranges, plugins;
    struct arg_texts pin, keep;
    const char *missing_ranges;
    uint32_t threads, min_segment;
    uint64_t max_bytes; /* 0: the device's memory */
    uint64_t workspace;
    double memory_fraction; /* 0: not given */
    bool no_tune, retune, thorough, reference_only;
    build_sensitivity sensitivity; /* as in build_options; set by build alone */
    bool track_memory; /* from the opening of the device on; set by bench --memory alone */
    uint32_t verbose;  /* 1: a longer report; 2: info; 3: everything */
};

/* Tables for commands that have a struct model_args. The options of import and tune say how a model
 * is built; with a plan, which is built already, they are refused. */
extern const struct arg model_device_options[], model_import_options[], model_tune_options[],
    model_developer_options[];

/* clang-format off */
#define MODEL_TABLES(type, member) {                                                               \
    {model_device_options, offsetof(type, member), NULL},                                          \
    {model_import_options, offsetof(type, member), "How a MODEL.onnx is built:"},                  \
    {model_tune_options, offsetof(type, member), NULL},                                            \
    {model_developer_options, offsetof(type, member), "For tests of inferd itself:"},              \
}
/* clang-format on */

/* INVALID_ARGUMENT: an option says how to build what is a plan already. */
enum status model_args_check(const struct model_args *args, const char *plan, struct error *err);

/* Whether the file is a plan, by its first bytes. */
bool model_is_plan(const char *path);

/* Prints to stderr: warnings always, more by args->verbose. */
struct log_sink model_log(const struct model_args *args);

/* Loads the plugins that the options name; also done by all functions below that may need them. */
enum status model_plugins_load(const struct model_args *args, struct error *err);

/* `plan` is the plan that the device will run, or NULL. Without --threads the device gets the
 * plan's number of threads. */
enum status model_device_open(const struct model_args *args, const char *plan,
                              const struct log_sink *log, struct device **out, struct error *err);

/* Builds a plan of an ONNX file, with progress on stderr: one line on a terminal, else a line now
 * and then. `batches` may be empty: the default list. The timing cache is loaded before and saved
 * after. `report` may be NULL. */
enum status model_build(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, const struct arg_u32s *batches,
                        struct build_report *report, struct plan **out, struct error *err);

/* The graph of an ONNX file for one batch size, before or after the passes. */
enum status model_graph(const char *path, const struct model_args *args, struct device *device,
                        const struct log_sink *log, uint32_t batch, bool fused,
                        struct ir_graph **out, struct error *err);

/* Makes an ONNX file ready to be calibrated and calls `fill` with the calibration, which is freed
 * when the call returns. */
enum status model_calibrate(const char *path, const struct model_args *args, struct device *device,
                            const struct log_sink *log,
                            enum status (*fill)(void *user, struct calibration *calibration,
                                                struct error *err),
                            void *user, struct error *err);

/* What is in an ONNX file, and what a build would refuse; needs no device. */
enum status model_survey(const char *path, const struct model_args *args, uint32_t batch,
                         struct onnx_survey **out, struct error *err);

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
