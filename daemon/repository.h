/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which versions of which models are to be served: those of the configuration, and those found in
 * the repository, <repository>/<model>/<version>/model.plan or model.onnx. Files below the
 * repository are opened without following symbolic links or leaving it (R13 of docs/operations.md).
 *
 * A model's folder may hold a config.pbtxt (config/model_file.h), which holds for all its versions,
 * and says which of them are wanted. If it cannot be used, none of them can.
 */
#ifndef INFERD_DAEMON_REPOSITORY_H
#define INFERD_DAEMON_REPOSITORY_H

#include "base/log.h"
#include "config/model_file.h"
#include "daemon/model.h"

#define REPOSITORY_MODEL_FILE "config.pbtxt"
#define REPOSITORY_WARMUP     "warmup" /* beside the versions: inputs to warm up with */

struct wanted {
    struct config_model config;  /* the configuration's, or defaults; the strings are not its own */
    struct model_file *settings; /* the model's config.pbtxt; NULL: there is none */
    bool pipeline;               /* of `settings`: it has no file of its own, and `fd` is -1 */
    bool of_repository;          /* else of the configuration */
    char *name, *version;
    char *path;                 /* of the file, below `folder` if that is not -1 */
    int folder;                 /* the file's folder in the repository; -1: `path` says it all */
    int fd;                     /* the file; -1: it could not be opened */
    bool onnx;                  /* else a plan */
    struct model_source source; /* which file this is; its path is `path` of the listing */
    struct error err;           /* why fd is -1 */
};

struct wanted_list {
    uint32_t n, capacity;
    struct wanted *items;
    struct model_file **files; /* those that `settings` point to */
    uint32_t n_files;
};

/* What cannot be opened is listed with its reason. Fails if the repository cannot be read, if two
 * entries have the same name and version, or for want of memory. */
enum status repository_list(const struct config *config, const struct log_sink *log,
                            struct wanted_list *out, struct error *err);
void repository_list_deinit(struct wanted_list *list);
/* Lists the versions of one model of the repository; none: it is not there. Unless they are NULL,
 * `root` takes the place of the repository, and `instead` that of the model's config.pbtxt
 * (model_file_parse_quoted). */
enum status repository_list_model(const struct config *config, const char *root, const char *model,
                                  const char *instead, const struct log_sink *log,
                                  struct wanted_list *out, struct error *err);

/* A digest of what a plan is built with beside its batch sizes; 0: nothing special. */
uint64_t wanted_build_digest(const struct config_model *config);
/* A digest of all that is known of items[first..first+n), to find out whether it has changed, and
 * when their files last did. */
uint64_t wanted_signature(const struct wanted *items, uint32_t n, uint64_t *changed_ns);

bool model_source_equal(const struct model_source *a, const struct model_source *b);

#endif
