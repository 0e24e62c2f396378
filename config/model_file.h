/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.pbtxt: what a model of the repository is served with, in the words of Triton's
 * ModelConfig. A struct model_file is plain data in an arena of its own; model_file_fields.c has
 * the table of all fields that are known. Fields without effect are named in warnings; what would
 * change results and is not supported is an error.
 */
#ifndef INFERD_CONFIG_MODEL_FILE_H
#define INFERD_CONFIG_MODEL_FILE_H

#include <stdatomic.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/shape.h"
#include "config/config.h"

enum {
    MODEL_FILE_MAX = 256 << 10,
    MODEL_FILE_TENSORS = 64,
    MODEL_FILE_PRIORITIES = 4, /* that there are; more levels share them */
    MODEL_FILE_STEPS = 32,
};

/* A tensor that the file declares; dim -1: any. Without the batch if `batched` is set. */
struct model_file_tensor {
    const char *name;
    enum dtype dtype; /* DTYPE_NONE: not said */
    bool dims_given;
    struct shape shape;
};

enum model_file_policy { POLICY_LATEST, POLICY_ALL, POLICY_SPECIFIC };

enum model_file_data { WARM_ZERO, WARM_RANDOM, WARM_FILE };

struct model_file_warm_input {
    const char *name;
    enum dtype dtype;
    struct shape shape; /* without the batch */
    enum model_file_data data;
    const char *file; /* below the model's folder warmup/ */
};

struct model_file_warmup {
    const char *name;
    uint32_t batch, count;
    uint32_t n_inputs;
    const struct model_file_warm_input *inputs;
};

/* One model of a pipeline: what it calls a tensor, and what the pipeline calls it. */
struct model_file_link {
    const char *inner, *outer;
};

struct model_file_step {
    const char *model;
    const char *version; /* NULL: the latest */
    uint32_t n_inputs, n_outputs;
    const struct model_file_link *inputs, *outputs;
};

struct model_file {
    struct arena *arena;
    _Atomic uint32_t refs; /* begins with one */
    /* What inferd.yaml could say as well: max_batch, max_delay_us, preferred, queue_limit, batches,
     * inputs, precision. Strings and lists lie in the arena; name, path and version are NULL. */
    struct config_model config;
    const char *file; /* default_model_filename; NULL: model.plan or model.onnx */
    bool batched;     /* max_batch_size > 0: dims leave the batch out */
    bool max_batch_given;
    uint32_t n_inputs, n_outputs;
    const struct model_file_tensor *inputs, *outputs;
    enum model_file_policy policy;
    uint32_t latest; /* versions */
    uint32_t n_specific;
    const int64_t *specific;
    uint32_t n_warmups;
    const struct model_file_warmup *warmups;
    uint32_t n_steps; /* of a pipeline; 0: it is a model */
    const struct model_file_step *steps;
};

/* `folder` is the model's name, which the file's `name` must be. */
enum status model_file_parse(const char *name, const void *data, size_t size, const char *folder,
                             const struct log_sink *log, struct model_file **out,
                             struct error *err);
/* The same of a text in which words and numbers may stand in quotes, because it was JSON. */
enum status model_file_parse_quoted(const char *name, const void *data, size_t size,
                                    const char *folder, const struct log_sink *log,
                                    struct model_file **out, struct error *err);
struct model_file *model_file_ref(struct model_file *file);
void model_file_free(struct model_file *file); /* gives a reference back; NULL is fine */
void model_file_cleanup(struct model_file **at);

#endif
